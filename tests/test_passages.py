"""Passages, slices of losses and the gate on the tail, across pages: the report, the command, and what verify finds."""
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from invar_nb.comparison.compare import compare
from invar_nb.comparison.passages import rank_passages
from invar_nb.comparison.verdict import judge_family
from invar_nb.files.losses import write_losses
from invar_nb.foundations.numbers import ContractError, UsageError
from invar_nb.models.documents import read_documents
from invar_nb.report.build import build_report
from test_report import answers, losses


@pytest.mark.parametrize("limit, code, rule", [(.5, 0, "no_regression_shown"), (1e-4, 1, "gate_failed")])
def test_the_gate_on_the_tail_decides_the_exit_code(limit, code, rule):
    report = build_report(compare(losses(n=96)), tail={"q95": limit})
    assert report.exit["code"] == code and (report.exit["rule"] == rule or code == 0)
    tail = report.document()["policy"]["tail"]
    d = losses(n=96).candidate.log_loss - losses(n=96).baseline.log_loss
    assert tail["results"][0]["mass"] == np.mean(d > limit) and tail["passed"] == (code == 0)


def test_what_cannot_be_shown_or_makes_no_sense_is_refused():
    with pytest.raises(ContractError, match="q99 needs at least 299 windows; got 96"): build_report(compare(losses(n=96)), tail={"q99": .1})
    for wrong in ({}, {"q95": -1}, {"q5": .1}, {"q95": True}, {"tokens": 5}, {"q95": .1, "fraction": 2}, {"mass": .1}, 5):
        with pytest.raises((UsageError, TypeError)): build_report(compare(losses(n=96)), tail=wrong)
    with pytest.raises(UsageError, match="needs losses"): build_report(compare(answers()), tail={"q95": .1})
    short = build_report(compare(losses(n=96)), tail={"q95": .5, "tokens": 10**6})
    assert short.exit_code == 1 and "1e+06 asked for" in short.exit["because"]


def test_languages_are_sliced_by_default_and_the_rest_where_asked(tmp_path):
    for name, lines in (("a.jsonl", ["One.", "Two."]), ("b.jsonl", ["Three."])):
        (tmp_path / name).write_text("".join(json.dumps({"text": x}) + "\n" for x in lines))
    found = read_documents([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert found.files == ("a.jsonl", "a.jsonl", "b.jsonl") and read_documents(tmp_path / "a.jsonl").files is None
    facts = {"document_languages": {f"d{i}": "en" if i % 2 else "es" for i in range(96)}}
    plain, spoken = compare(losses()), compare(losses(provenance=facts))
    slices = lambda c, by=None: {claim.slice for claim in judge_family(c, by=by)} - {None}
    assert not slices(plain) and slices(spoken) == {"language en", "language es"}
    assert slices(plain, ["position"]) == {"position under 4 windows"}
    with pytest.raises(UsageError, match="'position'"): slices(plain, ["source"])


def test_the_command_refuses_at_once_and_gates(tmp_path):
    from invar_nb.shell.cli import app
    both = losses(n=96)
    for name in ("baseline", "candidate"): write_losses(getattr(both, name), tmp_path / f"{name}.jsonl")
    def run(*more): return CliRunner().invoke(app, ["compare", *(str(tmp_path / f"{n}.jsonl") for n in ("baseline", "candidate")), "--out", str(tmp_path / f"r{len(more)}"), "--force", *more])
    assert run("--tail-gate", "q95=0.0001").exit_code == 1
    report = json.loads((tmp_path / "r2" / "report.json").read_text())
    assert report["exit"]["rule"] == "gate_failed" and report["settings"]["tail"]["q95"] == 1e-4
    assert isinstance(run("--show-text").exception, (UsageError, SystemExit)) and run("--show-text").exit_code
    assert run("--tail-gate", "q95").exit_code and run("--tail-gate", "q99=1", "--quiet").exit_code


@pytest.mark.slow
def test_noise_alone_is_rarely_called_beyond_noise():
    rng = np.random.default_rng(11)
    laws = {"normal": lambda n: rng.normal(size=n), "Laplace": lambda n: rng.laplace(size=n), "t3": lambda n: rng.standard_t(3, n), "gamma 1": lambda n: rng.gamma(1, 1, n)}
    for name, law in laws.items():
        for n in (40, 180, 590):
            rate = np.mean([rank_passages(tuple(map(str, range(n))), law(n), np.full(n, 64.0)).lost[0].beyond for _ in range(1000)])
            print(f"{name:>8} n = {n:3d}: {rate:.3f}")
            assert rate < .1 + 4 * math.sqrt(.1 * .9 / 1000)


@pytest.mark.slow
def test_classes_of_tokens_are_the_same_from_models_files_and_tiles_and_verify_finds_an_edit(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from invar_nb.foundations.document import read_canonical
    from invar_nb.models.demo_text import demo_documents
    from invar_nb.models.load import load_model
    from invar_nb.models.batches import token_log_losses
    from invar_nb.models.score import score_plan
    from invar_nb.models.text import plan_text
    from invar_nb.report.verify import verify
    from invar_nb.shell.cli import main
    from invar_nb.shell.demo import demo_model
    monkeypatch.chdir(tmp_path)
    for name in ("base", "tuned"): (tmp_path / name).symlink_to(demo_model(name))
    texts = [t[:600] for t in demo_documents()[1][:24]]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    text = ["--text", "t.jsonl", "--max-length", "64", "-q"]
    by = ["--by", "frequency", "--by", "context"]
    assert main(["score", "base", *text, *by, "--out", "b.jsonl"]) == 0
    runs = {"models": ["base", "tuned", *text, *by], "file": ["b.jsonl", "tuned", *text[:2], "-q", *by], "tiles": ["base", "tuned", *text, *by, "--divergence"]}
    found = {}
    for name, more in runs.items():
        assert main(["compare", *more, "--out", name]) in (0, 1)
        found[name] = {row["slice"]: row for row in read_canonical((tmp_path / name / "report.json").read_bytes(), where="t")["slices"] if row["metric"] == "perplexity"}
    assert {k.split()[0] for k in found["models"]} == {"frequency", "context"} and verify(tmp_path / "models")
    for name in ("file", "tiles"):
        for row, other in zip(found["models"].values(), found[name].values(), strict=True): assert row["slice"] == other["slice"] and row["delta"] == pytest.approx(other["delta"], abs=1e-6)
    loaded = load_model(tmp_path / "base")  # from the losses of single tokens, by a Counter
    plan = plan_text(loaded, read_documents(tmp_path / "t.jsonl"), max_length=64)
    import collections
    seen = [(int(plan.token_ids[w.document_id][w.score_from + k]), w.score_from + k - w.start, float(x)) for i, losses in token_log_losses(loaded, plan.token_ids, plan.windows) for w in [plan.windows[i]] for k, x in enumerate(losses)]
    often = collections.Counter(token for token, _, _ in seen)
    for row in found["models"].values():
        ends = [int(n) for n in row["slice"].replace(",", "").split() if n.isdigit()]
        mine = [x for token, context, x in seen if ends[0] <= (often[token] if row["slice"].startswith("f") else context) <= ends[-1]]
        assert math.log(row["baseline"]) == pytest.approx(np.mean(mine), abs=1e-6)
    assert score_plan(loaded, plan).columns == {}
    file = tmp_path / "models" / "report.json"
    k, row = next((k, row) for k, row in found["models"].items())
    file.write_text(file.read_text().replace(json.dumps(row["delta"]), json.dumps(row["delta"] * 1.01)))
    with pytest.raises(ContractError): verify(tmp_path / "models")
    for wrong, said in ((["b.jsonl", "tuned", *text[:2], "--by", "source"], "--by must be one of"), (["base", "tuned", *text, *by, "--per-byte"], "--by must be one of"), (["base", "tuned", *text, *by, "--until-decided"], "--by")):
        assert main(["compare", *wrong, "--out", "w"]) == 2, said
