"""`invar-nb runs` from outside: every exit code, every format, several metrics at once, and nothing read that was not said."""
import csv
import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from invar_nb.evidence.runs import RunsComparison, compare_runs, judge_many, judge_runs
from invar_nb.evidence.verdict import MetricSpec, Verdict
from invar_nb.statement import cli

LOSS = ("--metric", "loss", "--direction", "lower_is_better")
METRICS = ("loss", "acc", "memory")


@pytest.fixture
def run(capsys):
    "The console script in this process: code, stdout, stderr."
    handler = signal.getsignal(signal.SIGTERM)

    def call(*arguments):
        code = cli.main(["runs", *(str(a) for a in arguments)])
        out, err = capsys.readouterr()
        return code, out, err
    yield call
    signal.signal(signal.SIGTERM, handler)


def rows(shift=0.0, noise=0.01, n=6, seed=1):
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 0.1, (3, n))
    own = np.random.default_rng(1000 + round(100 * shift)).normal(0, noise, (3, n))
    return [{"seed": s, "terminal": "ok", "loss": float(3 + common[0, s] + own[0, s] + shift), "acc": float(0.8 + common[1, s] / 20), "memory": float(900 + 300 * common[2, s] + 3000 * own[2, s])} for s in range(n)]


def save(path, table):
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet
        pyarrow.parquet.write_table(pa.Table.from_pylist(table), path)
    elif path.suffix in (".csv", ".tsv"):
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(dict.fromkeys(k for row in table for k in row)), delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(table)
    elif path.suffix == ".json": path.write_text(json.dumps(table))
    else: path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


@pytest.fixture
def arms(tmp_path):
    for name, table in {"old": rows(), "better": rows(-0.3, seed=1), "worse": rows(0.3), "same": rows(0.0, 0.001), "noisy": rows(0.05, 0.3, seed=1)}.items(): save(tmp_path / f"{name}.jsonl", table)
    return tmp_path


# --- codes ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name, more, code, word", [
    ("better", (), 0, "improved"), ("worse", (), 1, "regressed"), ("same", (), 0, "noise (equivalent)"), ("noisy", (), 0, "noise (inconclusive)"),
    ("noisy", ("--fail-inconclusive",), 4, "noise (inconclusive)"), ("same", ("--fail-inconclusive",), 0, "noise (equivalent)"), ("worse", ("--fail-inconclusive",), 1, "regressed"),
    ("worse", ("--threshold", "0.5"), 0, "noise (equivalent)"), ("worse", ("--scale", "log"), 1, "regressed"), ("worse", ("--alpha", "1e-8"), 0, "noise (inconclusive)")])
def test_answers(run, arms, name, more, code, word):
    found, out, err = run(arms / "old.jsonl", arms / f"{name}.jsonl", *LOSS, *more)
    assert (found, err) == (code, "") and out.splitlines()[-1].split("  ")[1] == "loss" and word in out.splitlines()[-1], out
    assert out.splitlines()[0].endswith(".") and "loss went from" in out.splitlines()[0]


def test_the_other_direction_turns_the_verdict_round(run, arms):
    assert run(arms / "old.jsonl", arms / "worse.jsonl", "--metric", "loss", "--direction", "higher_is_better")[0] == 0
    assert run(arms / "old.jsonl", arms / "better.jsonl", "--metric", "loss", "--direction", "higher_is_better")[0] == 1


@pytest.mark.parametrize("terminal", ["timeout", "oom", "crash", "preempted"])
@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_run_that_did_not_end_well_is_5(run, arms, terminal, arm):
    table = rows()
    table[2] = {"seed": 2, "terminal": terminal, "detail": "it ran longer than 60 s"}
    bad = save(arms / "bad.jsonl", table)
    files = (bad, arms / "worse.jsonl") if arm == "baseline" else (arms / "worse.jsonl", bad)
    code, out, err = run(*files, *LOSS, "--fail-inconclusive")
    assert (code, err) == (5, "") and f"Failed: the {arm} run of seed 2 ended in '{terminal}' (it ran longer than 60 s); loss was not compared." in out
    code, out, err = run(*files, *LOSS, "--json")
    assert json.loads(out)["exit_code"] == code == 5 and json.loads(out)["verdicts"][0]["verdict"] == "failed"


def test_a_run_without_its_number_is_5_for_that_metric_alone(run, arms):
    table = rows(0.3)
    table[1]["acc"] = None
    save(arms / "gap.jsonl", table)
    code, out, _ = run(arms / "old.jsonl", arms / "gap.jsonl", *LOSS)
    assert code == 1
    code, out, _ = run(arms / "old.jsonl", arms / "gap.jsonl", "--metric", "loss:lower_is_better", "--metric", "acc:higher_is_better", "--json")
    assert code == 5 and [v["verdict"] for v in json.loads(out)["verdicts"]] == ["regressed", "failed"]    # failed before regressed: the family is not whole


def verdict(word, kind=None):
    means = {"improved": (0.8, 1.0), "regressed": (1.2, 1.0), "noise": (1.0, 1.0), "failed": (0.0, 0.0)}[word]
    return Verdict(hypothesis_id=0, metric="m", direction="lower_is_better", scale="linear", candidate_mean=means[0], baseline_mean=means[1],
                   improvement={"improved": 0.2, "regressed": -0.2}.get(word, 0.0), p_value=None if word == "failed" else 0.001, significance_threshold=0.05, improvement_threshold=0.02,
                   verdict=word, rationale="So.", noise_kind=kind)


def test_exit_code_table():
    kinds = {"improved": verdict("improved"), "regressed": verdict("regressed"), "equivalent": verdict("noise", "equivalent"), "inconclusive": verdict("noise", "inconclusive"), "failed": verdict("failed")}
    for a in kinds:
        for b in kinds:
            for asked in (False, True):
                both = {a, b}
                expected = 5 if "failed" in both else 1 if "regressed" in both else 4 if asked and "inconclusive" in both else 0
                assert cli.runs_code([kinds[a], kinds[b]], fail_inconclusive=asked) == expected


@pytest.mark.parametrize("arguments, says", [
    ((), "Missing argument"), (("{old}",), "Missing argument"), (("{old}", "{worse}"), "needs --metric"), (("{old}", "{worse}", "--metric", "loss"), "lower or when it is higher"),
    (("{old}", "{worse}", "--metric", "los", "--direction", "lower_is_better"), "Did you mean 'loss'?"), (("{old}", "{worse}", "--metric", "loss", "--direction", "lower"), "direction must be one of"),
    (("{old}", "{worse}", *LOSS, "--scale", "logarithmic"), "scale must be one of"), (("{old}", "{worse}", *LOSS, "--threshold", "-1"), "--threshold must be"),
    (("{old}", "{worse}", *LOSS, "--threshold", "nan"), "--threshold must be"), (("{old}", "{worse}", *LOSS, "--alpha", "5"), "Did you mean 0.05?"), (("{old}", "{worse}", *LOSS, "--alpha", "1e-13"), "--alpha must be at least 1e-09"), (("{old}", "{worse}", *LOSS, "--alpha", "x"), "--alpha"),
    (("{old}", "{worse}", *LOSS, "--multiplicity", "bonferroni"), "--multiplicity must be one of"), (("{old}", "{worse}", *LOSS, "--metric", "loss"), "is given twice"),
    (("{old}", "{worse}", "--metric", "seed:lower_is_better"), "names no metric"), (("{old}", "{worse}", "--metric", "terminal:lower_is_better"), "names no metric"), (("{old}", "{worse}", "--metric", ":log"), "names no metric"),
    (("{old}", "{worse}", "--metric", "loss:log:log"), "scale twice"), (("{old}", "{worse}", "--metric", "loss:higher_is_beter"), "Did you mean 'higher_is_better'?"),
    (("{old}", "{worse}", "--metric", "loss:log:lower_is_better", "--scale", "linear"), "Say it once"), (("{old}", "{worse}", *LOSS, "--direction", "lower_is_better"), "once, or once for each of the 1 metrics; got 2"),
    (("{old}", "{worse}", *LOSS, "--metric", "acc", "--metric", "memory", "--direction", "higher_is_better"), "each of the 3 metrics; got 2"),
    (("{old}", "missing.jsonl", *LOSS), "is not a file"), (("{home}", "{old}", *LOSS), "is not a file"), (("{old}", "{worse}", *LOSS, "--nonsense"), "No such option")])
def test_usage_is_2_in_one_line(run, arms, arguments, says):
    known = {"old": arms / "old.jsonl", "worse": arms / "worse.jsonl", "home": arms}
    code, out, err = run(*(a.format(**known) for a in arguments))
    assert code == 2 and says in err and len(err.splitlines()) == 1 and out == ""


def edited(*changes):
    def table():
        found = rows(0.3)
        for at, change in changes:
            if change is None: del found[at]
            else: found[at] = {**found[at], **change}
        return found
    return table


EVIDENCE = {
    "a seed missing": (edited((5, None)), "candidate lacks 5. Run what is missing, or give --intersect"), "another seed": (edited((5, {"seed": 9})), "candidate lacks 5; baseline lacks 9"),
    "a seed twice": (edited((5, {"seed": 4})), "candidate repeats 4"), "no seed": (edited((0, {"seed": None})), "line 1: a run that ended well must name its seed"),
    "a broken seed": (edited((0, {"seed": 2.7})), "line 1: seed must be a whole number"), "a seed that is true": (edited((0, {"seed": True})), "seed must be a whole number"),
    "no terminal": (edited((3, {"terminal": None})), "give --assume-ok"), "a spelling": (edited((3, {"terminal": "OK"})), "Did you mean 'ok'?"), "text": (edited((3, {"loss": "much"})), "must be a number"),
    "a bool": (edited((3, {"loss": True})), "must be a number"), "too large": (edited((3, {"loss": 1e200})), "at most 1e+150")}


@pytest.mark.parametrize("what", EVIDENCE)
def test_refused_evidence_is_3_in_one_line(run, arms, what):
    table, says = EVIDENCE[what]
    code, out, err = run(arms / "old.jsonl", save(arms / "bad.jsonl", table()), *LOSS)
    assert code == 3 and says in err and len(err.splitlines()) == 1 and out == "", err
    code, out, err = run(arms / "old.jsonl", arms / "bad.jsonl", *LOSS, "--json")
    assert code == json.loads(out)["exit_code"] == 3 and len(err.splitlines()) == 1


@pytest.mark.parametrize("name, data", [("torn.jsonl", b'{"seed": 1, "termi'), ("empty.jsonl", b""), ("nan.jsonl", b'{"seed": 1, "terminal": "ok", "loss": NaN}\n'), ("noise.parquet", bytes(range(256))),
                                        ("wide.csv", b"seed,terminal,loss\n1,ok,2,3\n"), ("german.csv", b"seed,terminal,loss\n1,ok,\"2,5\"\n"), ("runs.xlsx", b"PK"), ("latin.csv", b"seed,terminal,loss\n1,ok\xe9,2\n")])
def test_files_that_cannot_be_read_are_3_in_one_line(run, arms, name, data):
    (arms / name).write_bytes(data)
    code, out, err = run(arms / "old.jsonl", arms / name, *LOSS)
    assert code == 3 and name in err and len(err.splitlines()) == 1 and out == "", err


def test_not_positive_on_the_log_scale_is_3(run, arms):
    code, out, err = run(arms / "old.jsonl", save(arms / "bad.jsonl", edited((3, {"loss": 0}))()), *LOSS, "--scale", "log")
    assert code == 3 and "positive on the log scale" in err and "seed 3" in err and out == ""


# --- what it says ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("name", ["better", "worse", "same", "noisy"])
def test_every_format_says_the_same(run, arms, suffix, name):
    tables = {n: [json.loads(line) for line in (arms / f"{n}.jsonl").read_text().splitlines()] for n in ("old", name)}
    reference = json.loads(run(arms / "old.jsonl", arms / f"{name}.jsonl", *LOSS, "--json")[1])
    found = json.loads(run(save(arms / f"a{suffix}", tables["old"]), save(arms / f"b{suffix}", tables[name][::-1]), *LOSS, "--json")[1])
    assert found == reference


def test_json_is_the_library_s_answer_and_can_be_rebuilt(run, arms):
    tables = [[json.loads(line) for line in (arms / f"{n}.jsonl").read_text().splitlines()] for n in ("old", "noisy")]
    specs = [MetricSpec(metric="loss", direction="lower_is_better", scale="log"), MetricSpec(metric="acc", direction="higher_is_better", improvement_threshold=0.01), MetricSpec(metric="memory", direction="lower_is_better", improvement_threshold=0.1)]
    for procedure in ("holm", "benjamini_hochberg"):
        code, out, err = run(arms / "old.jsonl", arms / "noisy.jsonl", "--metric", "loss:lower_is_better:log", "--metric", "acc:higher_is_better", "--metric", "memory:lower_is_better",
                             "--threshold", "0.02", "--threshold", "0.01", "--threshold", "0.1", "--multiplicity", procedure, "--json")
        told = json.loads(out)
        expected = judge_many([compare_runs(spec, tables[1], tables[0]) for spec in specs], multiplicity=procedure)
        assert told["verdicts"] == [json.loads(json.dumps(c.verdict.to_dict())) for c in expected] and told["exit_code"] == code and not err
        assert [RunsComparison.from_dict(c).verdict.to_dict() for c in told["comparisons"]] == [c.verdict.to_dict() for c in expected]
    seed_fields = {"hypothesis_id", "metric", "direction", "scale", "candidate_mean", "baseline_mean", "improvement", "p_value", "significance_threshold", "improvement_threshold", "verdict", "rationale"}
    assert seed_fields < set(told["verdicts"][0])


def test_p_values_against_scipy(run, arms):
    tables = [[json.loads(line) for line in (arms / f"{n}.jsonl").read_text().splitlines()] for n in ("old", "noisy")]
    for scale, f in (("linear", float), ("log", math.log)):
        told = json.loads(run(arms / "old.jsonl", arms / "noisy.jsonl", *LOSS, "--scale", scale, "--json")[1])["verdicts"][0]
        b, c = ([f(row["loss"]) for row in table] for table in tables)
        np.testing.assert_allclose(told["p_value"], stats.ttest_rel(c, b).pvalue, rtol=1e-9)
        expected = np.mean(b) - np.mean(c) if scale == "log" else (np.mean(b) - np.mean(c)) / abs(np.mean(b))
        np.testing.assert_allclose(told["improvement"], expected, rtol=1e-9)


def test_one_metric_is_no_family_unless_asked(run, arms):
    told = json.loads(run(arms / "old.jsonl", arms / "worse.jsonl", *LOSS, "--json")[1])["verdicts"][0]
    assert "adjusted_p_value" not in told and told == json.loads(json.dumps(judge_runs(MetricSpec(metric="loss", direction="lower_is_better"), rows(0.3), rows()).to_dict()))
    assert json.loads(run(arms / "old.jsonl", arms / "worse.jsonl", *LOSS, "--multiplicity", "holm", "--json")[1])["verdicts"][0]["multiplicity"] == "holm over 1 test"
    several = json.loads(run(arms / "old.jsonl", arms / "worse.jsonl", *LOSS, "--metric", "acc", "--json")[1])["verdicts"]
    assert [v["multiplicity"] for v in several] == ["holm over 2 tests"] * 2 and [v["direction"] for v in several] == ["lower_is_better"] * 2


def test_three_ways_to_say_the_same(run, arms):
    files = (arms / "old.jsonl", arms / "noisy.jsonl", "--json")
    inline = run(*files, "--metric", "loss:lower_is_better:log", "--metric", "acc:log:higher_is_better")
    assert inline == run(*files, "--metric", "loss", "--metric", "acc", "--direction", "lower_is_better", "--direction", "higher_is_better", "--scale", "log")
    assert inline == run(*files, "--metric", "loss", "--metric", "acc:higher_is_better", "--direction", "lower_is_better", "--scale", "log", "--scale", "log")
    assert inline[0] == 0


def test_names_with_colons(run, arms):
    for n in ("old", "worse"): save(arms / f"{n}2.jsonl", [{"seed": r["seed"], "terminal": "ok", "eval:loss": r["loss"], "log": r["loss"]} for r in map(json.loads, (arms / f"{n}.jsonl").read_text().splitlines())])
    assert run(arms / "old2.jsonl", arms / "worse2.jsonl", "--metric", "eval:loss:lower_is_better")[0] == 1
    assert run(arms / "old2.jsonl", arms / "worse2.jsonl", "--metric", "log:log:lower_is_better")[0] == 1


def test_intersect_says_what_it_left_out(run, arms):
    save(arms / "short.jsonl", [r for r in rows(0.3) if r["seed"] not in (1, 4)])
    assert run(arms / "old.jsonl", arms / "short.jsonl", *LOSS)[0] == 3
    code, out, err = run(arms / "old.jsonl", arms / "short.jsonl", *LOSS, "--intersect")
    assert code == 1 and not err and "seeds in one arm only, left out: 1, 4" in out
    told = json.loads(run(arms / "old.jsonl", arms / "short.jsonl", *LOSS, "--intersect", "--json")[1])["comparisons"][0]
    assert told["evidence"]["baseline_only"] == [1, 4] and told["n"] == 4


def test_assume_ok_reads_rows_that_say_nothing(run, arms):
    for n in ("old", "worse"): save(arms / f"{n}.csv", [{k: v for k, v in r.items() if k != "terminal"} for r in map(json.loads, (arms / f"{n}.jsonl").read_text().splitlines())])
    assert run(arms / "old.csv", arms / "worse.csv", *LOSS)[0] == 3 and run(arms / "old.csv", arms / "worse.csv", *LOSS, "--assume-ok")[0] == 1
    table = [*rows(0.3)[:5], {"seed": 5, "terminal": "crash"}]
    assert run(arms / "old.jsonl", save(arms / "dead.jsonl", table), *LOSS, "--assume-ok")[0] == 5       # what is said is believed


def test_nested_metrics_are_found(run, arms):
    nested = [{"terminal": "ok", "metrics": {"seed": r["seed"], "loss": r["loss"]}} for r in rows(0.3)]
    assert run(arms / "old.jsonl", save(arms / "nested.jsonl", nested), *LOSS)[0] == 1
    code, _, err = run(arms / "old.jsonl", arms / "nested.jsonl", "--metric", "lost:lower_is_better")
    assert code == 3 and "the run must have the metric 'lost'" in err


def test_the_runner_s_files_are_read(run, tmp_path):
    from invar_nb.machine.runner import ExperimentSpec, ablate, over_seeds, run_all, write_runs
    code = "import json, sys; d = json.load(sys.stdin); print(json.dumps({'loss': d['config']['rate'] + d['seed'] / 100 + d['seed'] ** 2 * d['config']['rate'] / 1000}))"
    base = ExperimentSpec(experiment_id="x", command=(sys.executable, "-c", code), seed=0, metric_keys=("loss",), config={"rate": 1.0})
    for spec in ablate(base, "rate", [1.0, 1.2]):
        write_runs(run_all(over_seeds(spec, range(5)), results_file=tmp_path / "results.jsonl"), tmp_path / f"{spec.config['rate']}.jsonl")
    assert run(tmp_path / "1.0.jsonl", tmp_path / "1.2.jsonl", *LOSS)[0] == 1 and run(tmp_path / "1.2.jsonl", tmp_path / "1.0.jsonl", *LOSS)[0] == 0


def test_names_from_a_file_do_not_steer_the_terminal(run, arms):
    table = rows(0.3)
    table[2] = {"seed": 2, "terminal": "crash", "detail": "\x1b[2Jall fine\u202e\ntwo lines"}
    code, out, err = run(arms / "old.jsonl", save(arms / "bad.jsonl", table), *LOSS)
    assert code == 5 and not any(c in out for c in "\x1b\u202e") and "two lines" in out.splitlines()[0]


def test_in_a_process_of_its_own_offline_and_without_torch(arms):
    code = ("import sys; from invar_nb.statement.cli import main; code = main(sys.argv[1:]); "
            "heavy = {'torch', 'transformers', 'matplotlib', 'pyarrow', 'scipy.stats'} & set(sys.modules); sys.exit(code if not heavy else 99)")
    r = subprocess.run([sys.executable, "-c", code, "runs", str(arms / "old.jsonl"), str(arms / "worse.jsonl"), *LOSS], capture_output=True, text=True, timeout=60, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert (r.returncode, r.stderr) == (1, "") and "regressed" in r.stdout
    shown = subprocess.run([sys.executable, "-c", code, "runs", "--help"], capture_output=True, text=True, timeout=60).stdout
    assert all(option in shown for option in ("--metric", "--direction", "--scale", "--threshold", "--alpha", "--multiplicity", "--intersect", "--fail-inconclusive", "--json"))


# --- what is said is said in the words of the shell, and names the culprit -------------------------------------------------------------
PYTHON = ("=None", "Pass an int", 'scale="', "numbers=", "improvement_threshold", "0.95")


@pytest.mark.parametrize("more, says", [(("--alpha", "1"), "0.05 is usual"), (("--alpha", "0"), "0.05 is usual"), (("--alpha", "0.5"), "--alpha must"), (("--alpha", "5"), "Did you mean 0.05?"), (("--alpha", "nan"), "--alpha must"),
                                        (("--threshold", "-1"), "--threshold must"), (("--threshold", "inf"), "--threshold must")])
def test_options_are_refused_in_the_words_of_the_shell(run, arms, more, says):
    code, out, err = run(arms / "old.jsonl", arms / "worse.jsonl", *LOSS, *more)
    assert code == 2 and says in err and len(err.splitlines()) == 1 and not [word for word in PYTHON if word in err], err


def test_cures_of_evidence_are_options(run, arms):
    code, out, err = run(arms / "old.jsonl", save(arms / "bad.jsonl", edited((3, {"loss": -1.0}))()), *LOSS, "--scale", "log")
    assert code == 3 and "--scale linear" in err and not [word for word in PYTHON if word in err], err
    code, out, err = run(arms / "old.jsonl", save(arms / "bad.jsonl", edited((3, {"loss": "much"}))()), *LOSS)
    assert code == 3 and not [word for word in PYTHON if word in err], err


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_metric_that_one_file_lacks_names_the_arm(run, arms, arm):
    other = save(arms / "other.jsonl", [{k: v for k, v in row.items() if k != "loss"} for row in rows()])
    files = (other, arms / "old.jsonl") if arm == "baseline" else (arms / "old.jsonl", other)
    code, out, err = run(*files, *LOSS)
    assert code == 3 and f"the {arm} run of seed" in err and "'loss'" in err, err


def test_a_baseline_of_mean_0_is_named_with_its_metric(run, arms):
    zero = save(arms / "zero.jsonl", [{**row, "loss": 1.0 - 2 * (row["seed"] % 2)} for row in rows()])
    code, out, err = run(zero, arms / "old.jsonl", *LOSS)
    assert code == 3 and "the baseline's mean of loss must not be 0" in err, err


def test_no_spread_is_no_interval_in_the_table_too(run, arms):
    one, two = (save(arms / f"{x}.jsonl", [{"seed": s, "terminal": "ok", "loss": x} for s in range(6)]) for x in (2.8, 3.0))
    code, out, err = run(one, two, *LOSS)
    assert "no interval (no spread was seen)" in out and "[" not in out.splitlines()[-1], out


def test_an_interrupt_promises_nothing(run, arms, monkeypatch):
    import invar_nb.evidence.runs as room
    def stopped(*_, **__): raise KeyboardInterrupt
    monkeypatch.setattr(room, "compare_runs", stopped)
    code, out, err = run(arms / "old.jsonl", arms / "worse.jsonl", *LOSS)
    assert code == 5 and "interrupted" in err and "score" not in err and "goes on" not in err, err


@pytest.mark.parametrize("column", ["status", "State"])
def test_a_column_that_may_tell_the_end_is_not_overlooked(tmp_path, capsys, column):
    "A timed-out run with half a loss must not become an ordinary seed because nobody read its status."
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"seed,{column},loss\n0,completed,2.0\n1,timeout,1.5\n")
    code = cli.main(["runs", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--metric", "loss:lower_is_better", "--assume-ok"])
    assert code == 3 and f"Rename '{column}' to 'terminal'" in capsys.readouterr().err


def test_a_column_that_tells_something_else_is_left_alone(tmp_path, capsys):
    for name, shift in (("a", 0.0), ("b", 0.001)):
        (tmp_path / f"{name}.csv").write_text("seed,state,loss\n" + "".join(f"{seed},Ohio,{2 + seed / 10 + shift * seed}\n" for seed in range(4)))
    code = cli.main(["runs", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--metric", "loss:lower_is_better", "--assume-ok"])
    assert code == 0 and "loss went from" in capsys.readouterr().out
