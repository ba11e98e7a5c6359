"""Many candidates from the command: one report, one baseline scored once, what is kept when one fails, answers of other tools, refusals."""

import json
import shutil

import pytest
import studies
from conftest import needs_torch
from studies import answers, marks, translations
from test_shell import MODELS, shell

from invar_nb.arms.pair import Pair, pair
from invar_nb.arms.predictions import Predictions
from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import compare, study
from invar_nb.files.answers import write_predictions
from invar_nb.files.losses import read_losses, write_losses
from invar_nb.foundations.refuse import UsageError
from invar_nb.metrics.brier import brier_metric
from invar_nb.models import batches
from invar_nb.models.demo_text import demo_documents
from invar_nb.report.report import report_of
from invar_nb.report.verify import read_report, verify
from invar_nb.shell import open_models
from invar_nb.shell.study_file import set_keys


def copies(n=60):
    "Losses of a baseline and four candidates: the same, a little, some, much worse."
    arms = studies.copies(n)
    return arms.pop(("baseline", "")), {name: arm for (name, _), arm in arms.items()}


@pytest.fixture
def files(tmp_path):
    base, made = copies()
    for name, arm in {"base": base, **made}.items():
        write_losses(arm, tmp_path / f"{name}.jsonl")
    return tmp_path


def test_one_report_ranks_verifies_and_exits_by_the_candidates_that_gate(files):
    paths = [files / f"{name}.jsonl" for name in ("q2", "same", "q4", "q8")]
    code, out, _ = shell(
        "compare",
        files / "base.jsonl",
        *paths,
        *(
            x
            for n, bits in (
                ("q2", 2.5),
                ("same", 8.5),
                ("q4", 4.5),
                ("q8", 8.5),
                ("baseline", 16),
            )
            for x in ("--size", f"{n}={bits}")
        ),
        "--out",
        files / "r",
    )
    assert (
        code == 1
        and "2 regressed (q2 +22.3 %, q4 +3.51 %)" in out
        and "(8.5 bits per weight)" in out
        and "bits" in out.split("\n")[2]
    )
    assert [line.split()[0] for line in out.split("\n")[3:8]] == [
        "baseline",
        "same",
        "q8",
        "q4",
        "q2",
    ]
    assert shell("verify", files / "r")[0] == 0
    code, out, _ = shell(
        "compare",
        files / "base.jsonl",
        *paths[::-1],
        "rules.deciding=q8",
        "rules.deciding=same",
        "--out",
        files / "r2",
        "--json",
        "-q",
    )
    d = json.loads(out)
    assert (
        code == 0 == d["exit_code"]
        and {*d["rules"]["deciding"]} == {"same", "q8"}
        and {*d["arms"]} == {"baseline", "same", "q8", "q4", "q2"}
    )
    best = d["rankings"][0]["may_be_best"]
    assert {name for name, p in best.items() if p > 0.05} == {"same", "q8"}


def named(base, made):
    return {("baseline", ""): base} | {(name, ""): arm for name, arm in made.items()}


def test_order_changes_no_byte_and_identical_candidates_may_all_be_best(files):
    base, made = copies()
    rules = Rules(metrics=["perplexity"])
    found = study(named(base, made), rules)
    one, two = (
        report_of(
            study(named(base, {name: made[name] for name in names}), rules),
            environment={"created": "2026"},
        )
        for names in (made, reversed(made))
    )
    assert one.text == two.text
    alone = compare(pair(base, made["q4"]), metrics=["perplexity"]).interval
    assert (
        found.claim == "regressed"
        and study(named(base, made), Rules(metrics=["perplexity"], deciding="q8")).claim
        == "equivalent"
    )
    (q4,) = found.select(candidate="q4", role="lead")
    assert alone == q4.value.interval and q4.p["change"] <= q4.adjusted_p <= 3 * q4.p["change"]
    same = study(named(base, {f"copy {i}": made["q4"] for i in range(5)}), rules)
    (ranking,) = report_of(same).document()["rankings"]
    assert min(ranking["may_be_best"].values()) >= 0.5 and all(
        row.adjusted_p == pytest.approx(row.p["change"], rel=1e-9)
        and row.value.interval == alone
        for row in same.leading
    )
    still = study(named(base, {f"base {i}": base for i in range(3)}), rules)
    (ranking,) = report_of(still).document()["rankings"]
    assert min(ranking["may_be_best"].values()) >= 0.5
    assert {row.claim for row in still.leading} == {"equivalent"}


@pytest.mark.parametrize(
    "kind", ["answers", "seen labels", "scores", "translations", "bootstrap"]
)
def test_every_kind_of_evidence_makes_a_sweep_that_verifies(kind, tmp_path):
    options = {}
    if kind == "answers":
        pairs, options = (
            {f"c{k}": answers(flips=k, n=120) for k in (0, 6, 20)},
            {"metrics": ["accuracy", "brier"]},
        )
    elif kind == "seen labels":
        arm = lambda wrong, word: Predictions(
            ids=[str(i) for i in range(60)],
            label=["a", "b"] * 30,
            prediction=[word if i < wrong else "ab"[i % 2] for i in range(60)],
        )
        pairs = {word: pair(arm(5, "a"), arm(20, word)) for word in ("b", "c", "d")}
    elif kind == "scores":
        pairs = {
            f"c{k}": pair(
                marks(better="lower").baseline, marks(shift=k / 9, better="lower").candidate
            )
            for k in range(3)
        }
    elif kind == "translations":
        pairs = {
            "one": translations(),
            "two": Pair(baseline=translations().baseline, candidate=translations().baseline),
        }
    else:
        base, made = copies()
        pairs, options = (
            {n: pair(base, arm) for n, arm in made.items()},
            {"method": "bca", "units": "windows"},
        )
    arms = named(
        next(iter(pairs.values())).baseline, {name: p.candidate for name, p in pairs.items()}
    )
    sweep = study(arms, Rules(**options))
    first = {name: compare(p, **options).interval for name, p in pairs.items()}
    assert {row.key.candidate for row in sweep.leading} == {*pairs}
    assert all(
        row.value.interval.low <= first[row.key.candidate].low + 1e-12
        and row.value.interval.high >= first[row.key.candidate].high - 1e-12
        for row in sweep.leading
    )
    report = report_of(study(arms, Rules(margin={sweep.row.key.metric: 0.1}, **options)))
    folder = report.save(tmp_path / "r")
    assert verify(folder).report.document()["rankings"] == report.document()["rankings"] != []


def test_what_makes_no_sense_is_refused():
    base, made = copies()
    with pytest.raises(UsageError, match="baseline"):
        study({})
    arms = named(base, {"a": made["q4"]})
    with pytest.raises(UsageError, match="deciding"):
        study(arms, Rules(deciding=["b"]))
    with pytest.raises(UsageError, match="margin"):
        study(arms, Rules(margin={brier_metric.name: 0.1}))


def test_the_baseline_is_scored_once_and_what_is_finished_is_kept(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    scored, real, batch = {}, open_models.score_plan, batches.Scorer.score

    def counted(model, plan, **more):
        scored[model.name] = 0
        monkeypatch.setattr(
            batches.Scorer,
            "score",
            lambda self, b, *more: (
                scored.update({model.name: scored[model.name] + 1}),
                batch(self, b, *more),
            )[1],
        )
        return real(model, plan, **more)

    monkeypatch.setattr(open_models, "score_plan", counted)
    for name in ("tuned", "broken", "again"):
        shutil.copytree(f"{MODELS}/{'tuned' if name == 'tuned' else 'base'}", tmp_path / name)
    config = (tmp_path / "broken/config.json").read_text()
    (tmp_path / "broken/config.json").write_text(
        config.replace('"num_hidden_layers": 4', '"num_hidden_layers": 5')
    )
    (tmp_path / "text.jsonl").write_text(
        "".join(json.dumps({"text": t[:150]}) + "\n" for t in demo_documents()[1][:4])
    )
    run = lambda: shell(
        "compare",
        f"{MODELS}/base",
        *(tmp_path / n for n in ("tuned", "broken", "again")),
        "--text",
        tmp_path / "text.jsonl",
        "--out",
        tmp_path / "r",
        "--max-length",
        64,
        "--device",
        "cpu",
        "--no-cache",  # it would have the losses of all copies of the baseline
    )
    code, _, err = run()
    assert (
        code == 3
        and list(scored) == ["base", "tuned"]
        and min(scored.values()) > 0
        and "kept: run again" in err
        and "what the last run scored is kept" not in err
    )
    (tmp_path / "broken/config.json").write_text(config)
    scored.clear()
    code, out, err = run()
    assert (
        code == 0
        and list(scored) == ["base", "tuned", "broken", "again"]
        and "again (4 of 4)" in err
        and err.count("what the last run scored is kept") == 2
    )
    assert scored["base"] == scored["tuned"] == 0 < scored["broken"] == scored["again"], (
        "finished windows are found in the journals"
    )
    d = json.loads((tmp_path / "r/report.json").read_text())
    assert (
        d["rankings"][0]["size_unit"] == "bytes"
        and d["rankings"][0]["sizes"]["again"]
        == (tmp_path / "again/model.safetensors").stat().st_size
    )
    assert {pair["candidate"]: pair["facts"]["weights"] for pair in d["pairs"]}[
        "again"
    ] == "identical" and not list(tmp_path.glob(".*.journal"))


@pytest.mark.slow
def test_six_real_quantisations_are_ranked(tmp_path):
    from invar_nb.shell.demo import demo_model, pruned_copy, quantised_copy

    pytest.importorskip("torch")
    for bits in (8, 4, 3):
        quantised_copy(demo_model("base"), tmp_path / f"int{bits}", bits=bits)
    for share in (0.1, 0.3):
        pruned_copy(demo_model("base"), tmp_path / f"pruned{share:.0%}"[:-1], share=share)
    shutil.copytree(demo_model("base"), tmp_path / "identical")
    (tmp_path / "text.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in demo_documents()[1])
    )
    names = ("int3", "pruned30", "identical", "int8", "pruned10", "int4")
    code, out, err = shell(
        "compare",
        demo_model("base"),
        *(tmp_path / n for n in names),
        "--text",
        tmp_path / "text.jsonl",
        "--out",
        tmp_path / "r",
        "--device",
        "cpu",
    )
    (sweep,) = json.loads((tmp_path / "r/report.json").read_text())["rankings"]
    assert (
        code == 1
        and err.count("baseline (1 of 7): scoring") == 1
        and shell("verify", tmp_path / "r")[0] == 0
    )
    assert {*sweep["order"][:3]} == {"identical", "int8", "pruned10"} and sweep["order"][
        3:
    ] == ["int4", "pruned30", "int3"]
    best = {name for name, p in sweep["may_be_best"].items() if p > 0.05}
    assert best == {"identical", "int8", "pruned10"}


@pytest.mark.parametrize(
    "more, line",
    [
        pytest.param(
            [
                "--text",
                "text.jsonl",
                "--max-length",
                64,
                "--until-decided",
            ],
            "baseline: scoring",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--text", "a=text.jsonl", "--text", "b=more.jsonl", "--max-length", 64],
            "baseline, b: scoring",
            marks=pytest.mark.slow,
        ),
        (["--questions", "ask.jsonl"], "baseline: answering"),
    ],
)
def test_a_command_that_goes_on_says_so_wherever_it_scores(more, line, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name, part in (("text", slice(0, 20)), ("more", slice(20, 40))):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": t[:90]}) + "\n" for t in demo_documents()[1][part])
        )
    (tmp_path / "ask.jsonl").write_text(
        "".join(
            json.dumps(
                dict(
                    id=i,
                    prompt=f"{i} is",
                    candidates=[" odd", " even"],
                    label=" odd" if i % 2 else " even",
                )
            )
            + "\n"
            for i in range(24)
        )
    )
    run = lambda: shell(
        "compare",
        f"{MODELS}/base",
        f"{MODELS}/tuned",
        *more,
        "--out",
        "r",
        "--device",
        "cpu",
        "--batch-tokens",
        128,
        "--no-cache",
    )
    real, calls = batches.Scorer.score, []

    def cut(scorer, batch, *more):
        calls.append(batch)
        if len(calls) > limit:
            raise KeyboardInterrupt
        return real(scorer, batch, *more)

    limit = {"baseline, b: scoring": 4}.get(line, 1)
    monkeypatch.setattr(batches.Scorer, "score", cut)
    code, _, err = run()
    assert code == 130 and "is kept" not in err
    limit = 10**9
    found = [text for text in run()[2].splitlines() if text.startswith(line)]
    assert found and found[0].endswith("; what the last run scored is kept")


def test_a_study_file_is_what_could_be_typed(files, monkeypatch):
    monkeypatch.chdir(files)
    (files / "study.toml").write_text(
        '[arms]\nbaseline = "base.jsonl"\nq8 = "q8.jsonl"\nq4 = "q4.jsonl"\n[rules]\nmargin = {perplexity = "5%"}\ndeciding = ["q8"]\ntier = "aggressive"\n'
    )
    made = [
        shell("compare", "--study", "study.toml", "--out", "r", "--json"),
        shell(
            "compare",
            "base.jsonl",
            "q8.jsonl",
            "q4.jsonl",
            "--margin",
            "perplexity=5%",
            "rules.deciding=q8",
            "rules.tier=aggressive",
            "--out",
            "s",
            "--json",
        ),
    ]
    assert (
        made[0][0] == made[1][0]
        and json.loads(made[0][1])["digest"] == json.loads(made[1][1])["digest"]
        and shell("verify", "r")[0] == 0
    )
    assert json.loads(
        shell("compare", "--study", "study.toml", "--margin", "9%", "--out", "t", "--json")[1]
    )["rules"]["margin"] == {"perplexity": 0.09}
    (files / "level.toml").write_text("\ufeff[rules]\nlevel = 0.9\n")
    assert [
        json.loads(
            shell(
                "compare",
                "base.jsonl",
                "q8.jsonl",
                "--study",
                "level.toml",
                *typed,
                "--out",
                f"l{len(typed)}",
                "--json",
            )[1]
        )["rules"].get("level")
        for typed in ((), ("--level", "0.95"))
    ] == [0.9, None]  # a usual value that is typed wins; the report keeps what is unusual
    for text, said in (
        ("[rule]\n", "Did you mean 'rules'?"),
        ('[rules]\ndecide = ["q8"]\n', "Did you mean 'deciding'?"),
        ("[arms]\n", "compare needs BASELINE and CANDIDATE"),
        ("[rules\n", "must be TOML"),
        ("[rules]\nlevel = 2\n", "level must be from 1e-06 to 0.999999"),
        ('[rules]\nlevel = "high"\n', "must be a valid value"),
        ('rules = "none"\n', "must be a table"),
    ):
        (files / "wrong.toml").write_text(text)
        code, out, err = shell("compare", "--study", "wrong.toml", "--out", "u")
        assert (
            code == 2 and said in err and err.count("\n") == 1 and not (files / "u").exists()
        )


def test_a_key_of_the_study_file_is_typed_with_set(files, monkeypatch):
    "--sums, --repeats, --assume-ok: what newcomers typed had no option, and needed a file of one line."
    monkeypatch.chdir(files)
    for name, shift in (("a", 0.0), ("b", 0.5)):
        (files / f"{name}.csv").write_text(
            "id,loss,tokens\n"
            + "".join(f"{i % 20},{30 + i % 7 + shift},10\n" for i in range(40))
        )
    (files / "once.toml").write_text("[columns]\nrepeats = 'refuse'\n[rules]\nlevel = 0.9\n")
    line = ("compare", "a.csv", "b.csv", "--json", "-q", "--force", "--out", "set")
    assert (
        "say --set sums=true" in shell(*line, "--set", "cluster=id")[2]
        and "--column cluster=id"
        in shell(*line, "--set", "sums=true", "--set", "repeats=refuse")[2]
    )
    typed = ("--set", "columns.sums=true", "--set", "cluster=id")
    assert json.loads(shell(*line, *typed)[1])["rows"][0]["value"]["n_units"] == 20
    levels = [
        json.loads(shell(*line, *typed, "--study", "once.toml", *more)[1])["rules"].get(
            "level"
        )
        for more in ((), ("--set", "level=0.8"), ("--set", "level=0.8", "--level", "0.85"))
    ]
    assert levels == [0.9, 0.8, 0.85]  # the file, then --set, then the option
    for words, said in (
        (("--sums",), "Write --set sums=VALUE"),
        (("--loss", "nll"), "Write --column loss=NAME"),
        (("--set", "sum=1"), "Did you mean 'sums'?"),
        (("--set", "sums"), "must be KEY=VALUE"),
        (("--set", "zzz=1"), "invar-nb help keys"),
        (("--set", "rules.sums=true"), "a key of [rules] must be"),
        (("--set", "concurrency=many"), "must be a valid value"),
        (("--set", "=1"), "must be KEY=VALUE"),
        (("--set", "a b=1"), "must"),
    ):
        code, out, err = shell("compare", "a.csv", "b.csv", *words)
        assert code == 2 and said in err and err.count("\n") == 1, err
    code, _, err = shell(
        "evaluate",
        "a.csv",
        "--set",
        "cluster=id",
        "--set",
        "sums=true",
        "--set",
        "pooling=equal",
    )
    assert code == 2 and "--set pooling must be read by this command" in err
    assert "repeats             What to do with repeated ids" in shell("help", "keys")[
        1
    ] and set_keys({}, ["rules.level=0.9"]) == {"rules": {"level": 0.9}}


def test_what_an_attack_found(files, monkeypatch):
    monkeypatch.chdir(files)
    for name, shift in (("a", 0.0), ("b", 0.1)):
        (files / f"{name}.csv").write_text(
            "seed,terminal,loss\n"
            + "".join(f"{i},ok,{2 + 0.01 * i + shift * (1 + 0.1 * i)}\n" for i in range(5))
        )
    (files / "runs.toml").write_text(
        '[arms]\nbaseline = "a.csv"\nb = "b.csv"\n[rules]\nmetrics = ["loss"]\nbetter = "lower"\n'
    )
    assert (
        shell("compare", "--study", "runs.toml", "--out", "runs")[0] == 1
        and shell("verify", "runs")[0] == 0
    )
    (files / "arms.toml").write_text(
        '[arms]\nbaseline = "nowhere.jsonl"\nq8 = "q8.jsonl"\nq4 = "q4.jsonl"\n'
    )
    assert (
        "q8" in shell("compare", "base.jsonl", "--study", "arms.toml", "--out", "typed")[1]
    )  # a typed baseline, candidates of the file
    code, _, err = shell("verify", "typed", "--without", "perplexity")
    assert code == 2 and "without must keep the leading metrics; got perplexity" in err
    text, quiz = studies.losses(), studies.answers()
    arms = {
        (name, part): getattr(both, {"baseline": "baseline", "a": "candidate"}[name])
        for part, both in (("text", text), ("quiz", quiz))
        for name in ("baseline", "a")
    }
    folder = study(arms, Rules(deciding=("text",))).report().save(files / "both")
    for name in ("brier", "macro_f1", "smooth_calibration"):
        assert (
            verify(folder, without=[name]).partly
            and shell("verify", folder, "--without", name)[0] == 3
        )


@pytest.mark.parametrize(
    "more, said",
    [
        (["q4.jsonl"], "given once"),
        (["--size", "q5=4"], "--size must name a candidate"),
        (["--size", "q4"], "NAME=BITS"),
        (["--size", "q4=4"], "none for q8"),
        (["rules.deciding=q5"], "deciding must be one of 'q4', 'q8'"),
        (["--divergence"], "--divergence needs two models"),
        (["--questions", "base.jsonl"], "--questions needs two models"),
        (["scoring.separator=:"], "separator of the study file needs --questions"),
        (["--control"], "--control needs a BASELINE"),
        (["--until-decided"], "--until-decided needs two models"),
        (["--text", "base.jsonl"], "--text works only when models"),
    ],
)
def test_the_command_refuses_for_the_right_reason(files, monkeypatch, more, said):
    monkeypatch.chdir(files)
    code, out, err = shell(
        "compare", "base.jsonl", "q4.jsonl", "q8.jsonl", *more, "--out", "r"
    )
    assert (
        code == 2 and said in err.splitlines()[-1] and not out and not (files / "r").exists()
    )


def test_what_a_second_attack_found(files, monkeypatch):
    "A study file that won over what was typed, names and paths that nothing checked, revisions of folders."
    monkeypatch.chdir(files)
    for name, shift in (("ra", 0.1), ("rb", 0.0)):
        (files / f"{name}.csv").write_text(
            "seed,terminal,loss\n"
            + "".join(f"{i},ok,{2 + 0.01 * i + shift * (1 + 0.1 * i)}\n" for i in range(5))
        )
    (files / "two.csv").write_text(
        "id,score,other\n" + "".join(f"q{i},{i % 7},{i % 5}\n" for i in range(30))
    )
    wins = ["compare", "rb.csv", "ra.csv", "--metric", "loss"]
    assert (
        shell(*wins, "--better", "lower", "rules.better={loss='higher'}", "--out", "w1")[0]
        == 1
        and shell(*wins, "rules.better={loss='lower'}", "--out", "w2")[0] == 1
    )
    (files / "flat.toml").write_text('rules = "none"\n')
    accepted = '[[accepted]]\nup_to = 0.1\nreason = "x"\nexpires = 2027-01-01\n'
    (files / "flat_accepted.toml").write_text('rules = "none"\n' + accepted)
    cases = [
        ((*wins, "--better", "lower", "--study", "flat.toml"), "must be a table"),
        ((*wins, "--study", "flat_accepted.toml"), "rules must be a table"),
        (
            (*wins, "columns.better=higher", "rules.better={loss='lower'}"),
            "Write it under [rules]",
        ),
        (
            (
                "evaluate",
                "two.csv",
                "--score",
                "score",
                "--column",
                "score=other",
                "--better",
                "higher",
            ),
            "must name one column",
        ),
        (
            ("compare", "base.jsonl", "q4.jsonl", "scoring.by=context"),
            "by of the study file works only when models",
        ),
        (
            ("compare", "base.jsonl", "q4.jsonl", "--task", "x"),
            "--task is an option of lm-eval",
        ),
        (
            (
                "compare",
                "two.csv",
                "two.csv",
                "--score",
                "other",
                "--better",
                "higher",
                "columns.id=",
            ),
            "must have a value",
        ),
        (
            ("compare", f"{MODELS}/base@v1", f"{MODELS}/tuned", "--text", "base.jsonl"),
            "a revision must follow a hub id",
        ),
    ]
    for arms in (
        "baseline=1\nx='q4.jsonl'",
        "baseline='base.jsonl'\nx=['q4.jsonl']",
        "baseline='base.jsonl'\n''='q4.jsonl'",
        "baseline='base.jsonl'\ncandidate='q4.jsonl'\nb='q8.jsonl'",
        "baseline='base.jsonl'\na='q4.jsonl'\nb='q4.jsonl'",
        'baseline="base.jsonl"\n"a\\nb"="q4.jsonl"',
        "x='q4.jsonl'",
    ):
        (files / f"arms{len(cases)}.toml").write_text(f"[arms]\n{arms}\n")
        cases.append((("compare", "--study", f"arms{len(cases)}.toml"), "; got "))
    for words, said in cases:
        code, _, err = shell(*words, "--out", "refused")
        assert (
            code == 2 and said in err.splitlines()[-1] and not (files / "refused").exists()
        ), err
    for wrong in ({"units": "foo"}, {"margin": {1: 1}}, {"pooling": {}}):
        with pytest.raises(UsageError):
            Rules(**wrong)


@needs_torch
def test_where_all_files_are_equally_large_the_options_for_sizes_are_written(tmp_path):
    for name in ("q4", "q8"):
        shutil.copytree(f"{MODELS}/tuned", tmp_path / name)
    (tmp_path / "t.txt").write_text("\n\n".join(demo_documents()[1])[:4000])
    line = ["compare", f"{MODELS}/base", tmp_path / "q8", tmp_path / "q4"]
    line += ["--text", tmp_path / "t.txt", "--max-length", "48", "--out", tmp_path / "r"]
    _, out, err = shell(*line)
    assert "--size q8=BITS --size q4=BITS" in err and "Smallest" not in out


def saved(root, models, suffix=".parquet"):
    "Files of one name in a folder each, as `compare` saves them; .jsonl holds answers."
    base, made = copies()
    paths = []
    arms = [base, *made.values()][: len(models)]
    for (folder, model), losses in zip(models.items(), arms, strict=True):
        path = root / folder / f"candidate{suffix}"
        path.parent.mkdir(parents=True)
        if suffix == ".jsonl":
            write_predictions(answers().candidate.changed(model=model), path)
        else:
            write_losses(losses.changed(model=model), path)
        paths.append(path)
    return paths


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_saved_files_of_one_name_are_called_after_their_models(tmp_path, suffix):
    "The path stays where the model is that of another arm, too, or its name is taken."

    def names(models, *more):
        root = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        paths = saved(root, models, suffix)
        code, out, err = shell("compare", *paths, *more, "--out", root / "r", "--json")
        assert code < 2, err
        report = read_report(root / "r" / "report.json")[0].content
        found = [arm.name for arm in report.arms.values() if arm.name != "baseline"]
        short = {str(path): path.parent.name for path in paths}
        assert shell("verify", root / "r")[0] == 0
        return sorted(short.get(name, name) for name in found)

    models = {"base": "m-F16.gguf", "a": "m-Q8_0.gguf", "b": "org/m-Q4_K_M"}
    assert names(models) == ["m-Q4_K_M", "m-Q8_0"]
    assert names(models | {"c": "m-Q8_0.gguf"}) == ["a", "c", "m-Q4_K_M"]
    assert names(models | {"a": "m-F16.gguf"}) == ["a", "m-Q4_K_M"]
    assert names(models | {"a": ""}) == ["a", "m-Q4_K_M"]
    assert names(models | {"a": "pooled", "b": "two\nlines"}) == ["a", "b"]
    other = tmp_path / f"m-Q8_0{suffix}"
    shutil.copy(saved(tmp_path / "other", {"x": "z"}, suffix)[0], other)
    assert names(models, other) == ["a", "m-Q4_K_M", "m-Q8_0"]


def test_a_file_keeps_the_name_that_was_given_to_it(tmp_path):
    "A name of its own, or of a study file."
    base, a, b = saved(tmp_path, {"base": "m-F16", "a": "m-Q8_0", "b": "m-Q4_0"})
    named = [a.rename(tmp_path / "q8.parquet"), b.rename(tmp_path / "q4.parquet")]
    _, out, _ = shell("compare", base, *named, "--out", tmp_path / "r")
    assert {line.split()[0] for line in out.split("\n")[4:6]} == {"q8", "q4"}, out
    study = [f"arms.baseline={base}", f"arms.x={named[0]}", f"arms.y={named[1]}"]
    _, out, _ = shell("compare", *study, "--out", tmp_path / "s")
    assert {line.split()[0] for line in out.split("\n")[4:6]} == {"x", "y"}, out


def files_with_size(tmp_path, path):
    "A copy of a file of losses that has the size of its model, too."
    losses = read_losses(path)
    facts = losses.provenance | {"weight_bytes": 10**6}
    write_losses(losses.changed(provenance=facts, model="m"), tmp_path / "sized.parquet")
    return tmp_path / "sized.parquet"


def test_bits_that_files_without_a_size_hold_are_written_as_options(tmp_path):
    "As older versions saved a GGUF: the options give the column."
    base, a, b = saved(tmp_path, {"base": "m-F16.gguf", "a": "m-Q8_0.gguf", "b": "m-Q4.gguf"})
    for path, bits in ((base, 16.0), (a, 8.5061), (b, 4.8944)):
        losses = read_losses(path)
        facts = losses.provenance | {"gguf": {"bits_per_weight": bits}}
        write_losses(losses.changed(provenance=facts), path)
    line = ["compare", base, a, b, "--out"]
    options = "--size baseline=16 --size m-Q8_0=8.506 --size m-Q4=4.894"
    _, out, err = shell(*line, tmp_path / "r")
    assert options in err and "bits" not in out.splitlines()[2]
    _, out, err = shell(*line, tmp_path / "s", *options.split())
    assert "hold no sizes" not in err and out.splitlines()[2].split()[0] == "bits"
    _, _, err = shell(*line[:-1], files_with_size(tmp_path, b), "--out", tmp_path / "t")
    assert "hold no sizes" not in err
