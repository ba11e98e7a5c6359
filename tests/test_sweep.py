"""Many candidates from the command: one report, one baseline scored once, what is kept when one fails, answers of other tools, refusals."""
import json
import shutil

import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.pair import Pair, pair
from invar_nb.comparison.predictions import Predictions
from invar_nb.comparison.sweep import compare_many, judge_sweep
from invar_nb.files.losses import write_losses
from invar_nb.foundations.numbers import PairingError, UsageError
from invar_nb.metrics.brier import brier_metric
from invar_nb.models import batches
from invar_nb.models.demo_text import demo_documents
from invar_nb.report.sweep_report import build_sweep
from invar_nb.report.verify import verify
from invar_nb.shell import arms as shell_arms
from test_report import answers, losses, marks, said
from test_shell import MODELS, shell


def copies(n=60):
    "Losses of a baseline and four candidates: the same, a little, some, much worse."
    rng, base = np.random.default_rng(4), losses(n=n).baseline
    arm = lambda name, shift, noise: base.changed(model=name, log_loss=base.log_loss + shift + noise * rng.normal(size=n))
    return base, {"same": arm("same", 0, 0), "q8": arm("q8", .0005, .003), "q4": arm("q4", .03, .02), "q2": arm("q2", .2, .1)}


@pytest.fixture
def files(tmp_path):
    base, made = copies()
    for name, arm in {"base": base, **made}.items(): write_losses(arm, tmp_path / f"{name}.jsonl")
    return tmp_path


def test_one_report_ranks_verifies_and_exits_by_the_candidates_that_gate(files):
    paths = [files / f"{name}.jsonl" for name in ("q2", "same", "q4", "q8")]
    code, out, _ = shell("compare", files / "base.jsonl", *paths, *(x for n, bits in (("q2", 2.5), ("same", 8.5), ("q4", 4.5), ("q8", 8.5), ("baseline", 16)) for x in ("--size", f"{n}={bits}")), "--between", "--out", files / "r")
    assert code == 1 and "q4, q2 regressed" in out and "bits per weight" in out
    assert [line.split()[0] for line in out.split("\n")[3:8]] == ["baseline", "same", "q8", "q4", "q2"]
    assert shell("verify", files / "r")[0] == 0 and "Candidates against each other" in (files / "r/report.md").read_text()
    code, out, _ = shell("compare", files / "base.jsonl", *paths[::-1], "--gate-on", "q8", "--gate-on", "same", "--out", files / "r2", "--json", "-q")
    d = json.loads(out)
    assert code == 0 == d["exit_code"] and d["exit"]["because"].startswith("judged by same, q8") and d["sweep"]["gate_on"] == ["same", "q8"]
    assert d["sweep"]["groups"] == [["same", "q8"], ["q4"], ["q2"]] and {*d["evidence"]} == {"baseline", *(f"{n}.candidate" for n in ("same", "q8", "q4", "q2"))}


def test_order_changes_no_byte_and_identical_candidates_are_one_group(files):
    base, made = copies()
    sweep = lambda names: compare_many({name: pair(base, made[name]) for name in names})
    one, two = (build_sweep(sweep(names), environment={"created": "2026"}) for names in (made, reversed(made)))
    assert one.text == two.text
    found, alone = sweep(made), compare(pair(base, made["q4"])).interval
    assert judge_sweep(found).claim == "regressed" and judge_sweep(found, gate_on="q8").claim == "equivalent"
    assert alone.width < found["q4"].interval.width < compare(pair(base, made["q4"]), level=1 - .05 / 3).interval.width
    same = compare_many({f"copy {i}": pair(base, made["q4"]) for i in range(5)})
    assert same.groups == (same.order,) and same.each == .95 and same["copy 0"].interval == compare(pair(base, made["q4"])).interval
    plain = {f"base {i}": pair(base, base) for i in range(3)}
    assert (still := compare_many(plain)).groups == (still.order,) and {c.claim for c in judge_sweep(still).leading.values()} == {"equivalent"}


@pytest.mark.parametrize("kind", ["answers", "seen labels", "scores", "translations", "bootstrap"])
def test_every_kind_of_evidence_makes_a_sweep_that_verifies(kind, tmp_path):
    options = {}
    if kind == "answers": pairs, options = {f"c{k}": answers(flips=k, n=120) for k in (0, 6, 20)}, {"metrics": ["accuracy", "brier"]}
    elif kind == "seen labels":
        arm = lambda wrong, word: Predictions(ids=[str(i) for i in range(60)], label=["a", "b"] * 30, prediction=[word if i < wrong else "ab"[i % 2] for i in range(60)])
        pairs = {word: pair(arm(5, "a"), arm(20, word)) for word in ("b", "c", "d")}
    elif kind == "scores": pairs = {f"c{k}": pair(marks(better="lower").baseline, marks(shift=k / 9, better="lower").candidate) for k in range(3)}
    elif kind == "translations": pairs = {"one": said(), "two": Pair(baseline=said().baseline, candidate=said().baseline)}
    else: base, made = copies(); pairs, options = {n: pair(base, arm) for n, arm in made.items()}, {"method": "bca", "units": "windows"}
    sweep = compare_many(pairs, **options)
    first = {name: compare(p, **options).primary.interval for name, p in pairs.items()}
    assert all(c.interval.low <= first[name].low + 1e-12 and c.interval.high >= first[name].high - 1e-12 for name, c in sweep.items())
    folder = build_sweep(sweep, margin={sweep[next(iter(sweep))].primary_metric: .1}).save(tmp_path / "r")
    assert verify(folder).report.document()["sweep"]["order"] == list(sweep.order)


def test_what_makes_no_sense_is_refused():
    base, made = copies()
    other = base.changed(log_loss=base.log_loss * 1.1)
    with pytest.raises(PairingError, match="one baseline; got another log_loss in 'b' than in 'a'"): compare_many({"a": pair(base, made["q4"]), "b": pair(other, made["q4"])})
    with pytest.raises(UsageError, match="at least one"): compare_many({})
    sweep = compare_many({"a": pair(base, made["q4"])})
    with pytest.raises(UsageError, match="gate_on"): judge_sweep(sweep, gate_on=["b"])
    with pytest.raises(UsageError, match="margins"): judge_sweep(sweep, margin={brier_metric.name: .1})


@pytest.mark.parametrize("more, said", [
    (["q4.jsonl"], "given once"), (["--size", "q5=4"], "--size must name a candidate"), (["--size", "q4"], "NAME=BITS"), (["--size", "q4=4"], "none for q8"), (["--gate-on", "q5"], "--gate-on must name a candidate"),
    (["--divergence"], "--divergence is for one candidate"), (["--examples", "base.jsonl"], "--examples is for one candidate"), (["--separator", ":"], "--separator is for one candidate"),
    (["--control"], "--control is for one candidate"), (["--until-decided"], "that of one difference"), (["--text", "base.jsonl"], "--text is for models")])
def test_the_command_refuses_in_one_line_before_any_work(files, monkeypatch, more, said):
    monkeypatch.chdir(files)
    code, out, err = shell("compare", "base.jsonl", "q4.jsonl", "q8.jsonl", *more, "--out", "r")
    assert code == 2 and said in err.strip().split("\n")[-1] and not out and not (files / "r").exists()
    if more[0] in ("--size", "--gate-on"):
        code, _, err = shell("compare", "base.jsonl", "q4.jsonl", "--between", "--out", "r")
        assert code == 2 and "--between is for several candidates" in err


def test_the_baseline_is_scored_once_and_what_is_finished_is_kept(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    scored, real, batch = {}, shell_arms.score_plan, batches.Scorer.score
    def counted(model, plan, **more):
        scored[model.name] = 0
        monkeypatch.setattr(batches.Scorer, "score", lambda self, b: (scored.update({model.name: scored[model.name] + 1}), batch(self, b))[1])
        return real(model, plan, **more)
    monkeypatch.setattr(shell_arms, "score_plan", counted)
    for name in ("tuned", "broken", "again"): shutil.copytree(f"{MODELS}/{'tuned' if name == 'tuned' else 'base'}", tmp_path / name)
    config = (tmp_path / "broken/config.json").read_text()
    (tmp_path / "broken/config.json").write_text(config.replace('"num_hidden_layers": 4', '"num_hidden_layers": 5'))
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t[:150]}) + "\n" for t in demo_documents()[1][:4]))
    run = lambda: shell("compare", f"{MODELS}/base", *(tmp_path / n for n in ("tuned", "broken", "again")), "--text", tmp_path / "text.jsonl", "--out", tmp_path / "r", "--max-length", 64, "--device", "cpu")
    code, _, err = run()
    assert code == 3 and list(scored) == ["base", "tuned"] and min(scored.values()) > 0 and "kept: run again" in err and "what the last run scored is kept" not in err
    (tmp_path / "broken/config.json").write_text(config)
    scored.clear()
    code, out, err = run()
    assert code == 0 and list(scored) == ["base", "tuned", "broken", "again"] and "again (4 of 4)" in err and err.count("what the last run scored is kept") == 2
    assert scored["base"] == scored["tuned"] == 0 < scored["broken"] == scored["again"], "finished windows are found in the journals"
    d = json.loads((tmp_path / "r/report.json").read_text())
    assert d["sweep"]["size_unit"] == "bytes" and d["sweep"]["sizes"]["again"] == (tmp_path / "again/model.safetensors").stat().st_size
    assert d["parts"]["again"]["facts"]["weights"] == "identical" and not list(tmp_path.glob(".*.journal"))


@pytest.mark.slow
def test_six_real_quantisations_are_ranked(tmp_path):
    from invar_nb.shell.demo import demo_model, pruned_copy, quantised_copy
    pytest.importorskip("torch")
    for bits in (8, 4, 3): quantised_copy(demo_model("base"), tmp_path / f"int{bits}", bits=bits)
    for share in (.1, .3): pruned_copy(demo_model("base"), tmp_path / f"pruned{share:.0%}"[:-1], share=share)
    shutil.copytree(demo_model("base"), tmp_path / "identical")
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in demo_documents()[1]))
    names = ("int3", "pruned30", "identical", "int8", "pruned10", "int4")
    code, out, err = shell("compare", demo_model("base"), *(tmp_path / n for n in names), "--text", tmp_path / "text.jsonl", "--out", tmp_path / "r", "--between", "--device", "cpu")
    sweep = json.loads((tmp_path / "r/report.json").read_text())["sweep"]
    assert code == 1 and err.count("baseline (1 of 7): scoring") == 1 and shell("verify", tmp_path / "r")[0] == 0
    assert {*sweep["order"][:3]} == {"identical", "int8", "pruned10"} and sweep["order"][3:] == ["int4", "pruned30", "int3"]
    assert [{*g} for g in sweep["groups"]] == [{"identical", "int8", "pruned10"}, {"int4"}, {"pruned30"}, {"int3"}]


@pytest.mark.parametrize("more, line", [
    pytest.param(["--text", "text.jsonl", "--max-length", 64, "--until-decided", "--target", "text", "--looks", "3"], "baseline: scoring", marks=pytest.mark.slow),
    pytest.param(["--text", "a=text.jsonl", "--text", "b=more.jsonl", "--max-length", 64], "baseline, b: scoring", marks=pytest.mark.slow),
    (["--examples", "ask.jsonl"], "baseline: answering")])
def test_a_command_that_goes_on_says_so_wherever_it_scores(more, line, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name, part in (("text", slice(0, 20)), ("more", slice(20, 40))): (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t[:90]}) + "\n" for t in demo_documents()[1][part]))
    (tmp_path / "ask.jsonl").write_text("".join(json.dumps(dict(id=i, prompt=f"{i} is", candidates=[" odd", " even"], label=" odd" if i % 2 else " even")) + "\n" for i in range(24)))
    run = lambda: shell("compare", f"{MODELS}/base", f"{MODELS}/tuned", *more, "--out", "r", "--device", "cpu", "--batch-tokens", 128)
    real, calls = batches.Scorer.score, []
    def cut(scorer, batch):
        calls.append(batch)
        if len(calls) > limit: raise KeyboardInterrupt
        return real(scorer, batch)
    limit = {"baseline, b: scoring": 4}.get(line, 1)
    monkeypatch.setattr(batches.Scorer, "score", cut)
    code, _, err = run()
    assert code == 130 and "is kept" not in err
    limit = 10**9
    found = [text for text in run()[2].splitlines() if text.startswith(line)]
    assert found and found[0].endswith("; what the last run scored is kept")
