"""One document kind for losses, answers, runs and scores: its sections, its claims, its exit code, its schema."""
import json
import math
import re

import msgspec
import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.looks import compare_looks, order_units
from invar_nb.comparison.metric import Metric
from invar_nb.comparison.pair import pair
from invar_nb.comparison.predictions import Predictions
from invar_nb.comparison.scores import Scores, Translations
from invar_nb.comparison.window_losses import WindowLosses
from invar_nb.experiments.improvement import LOWER, MetricSpec
from invar_nb.experiments.runs import ExperimentResult
from invar_nb.foundations.numbers import ContractError, UsageError
from invar_nb.report.build import build_report, evaluate
from invar_nb.report.policy import as_tier
from invar_nb.report.runs_report import build_runs_report
from invar_nb.report.sections import Document, report_schema
from invar_nb.report.verify import verify


def losses(shift=0.0, noise=0.03, n=96, seed=1, **more):
    "A pair of loss arms, one document a window."
    rng = np.random.default_rng(seed)
    base = rng.gamma(9, .3, n)
    made = lambda values, name: WindowLosses.from_arrays(
        [f"{i}:0-64" for i in range(n)], [64] * n, values, model=name, data_id="sha256:abc",
        document_ids=[f"d{i}" for i in range(n)], n_bytes=[200] * n, **more)
    return pair(made(base, "old"), made(base + shift + rng.normal(0, noise, n), "new"))


def looked(shift=0.0, noise=.03, n=96, seed=1, margin=None, **design):
    "A comparison that stopped at the look that decided, or at the last."
    record = {"target": "text", "looks": 4, "spending": "pocock", "seed": 7, **design, "units": n, "windows": n, "tokens": 64 * n}
    whole = losses(shift, noise, n, seed, provenance={"looks": record})
    for k in (order := order_units(whole.baseline)).at:
        found = compare_looks(whole.take(order.rows(k)), margin=margin)
        if found.looks.decided: break
    return found


def answers(flips=6, n=200, worse="es"):
    "A pair of answers; the candidate is wrong on the first examples of one language."
    rng = np.random.default_rng(5)
    label = ["yes" if x else "no" for x in rng.integers(0, 2, n)]
    other = {"yes": "no", "no": "yes"}
    wrong = rng.random(n) < .2
    base = [other[t] if w else t for t, w in zip(label, wrong, strict=True)]
    language = ["es" if i % 4 == 0 else "en" for i in range(n)]
    hit = [i for i in range(n) if language[i] == worse and not wrong[i]][:flips]
    new = [other[t] if i in hit else p for i, (t, p) in enumerate(zip(label, base, strict=True))]
    made = lambda said, name: Predictions(
        model=name, data_id="", ids=[f"q{i}" for i in range(n)], labels=("no", "yes"), label=label,
        prediction=said, confidence=np.full(n, .8), slices={"language": language})
    return pair(made(base, "old"), made(new, "new"))


def marks(n=60, shift=.05, binary=False, **more):
    "A pair of scores, with prompts; 0 or 1 where asked."
    rng = np.random.default_rng(8)
    base = rng.random(n)
    values = [x.round() if binary else x for x in (base, base + shift + rng.normal(0, .05, n))]
    made = lambda x, name: Scores(ids=[f"q{i:03d}" for i in range(n)], values=x if not binary else x.clip(0, 1), model=name, score="f1",
                                  data_id="squad@2", prompt_digests=[f"sha256:{i}" for i in range(n)], **more)
    return pair(made(values[0], "old"), made(values[1], "new"))


def said(n=40, **more):
    "A pair of translations; the candidate loses the last word of every other sentence."
    gold = [" ".join(f"w{(7 * i + k * k) % 11}" for k in range(5 + i % 7)) for i in range(n)]
    made = lambda texts, name: Translations(ids=range(n), hypotheses=texts, references=gold, model=name, **more)
    old = [g.replace("w3", "w4") for g in gold]
    return pair(made(old, "old"), made([x.rsplit(" ", 1 + i % 2)[0] + " w1" for i, x in enumerate(old)], "new"))


def runs(shift=-.05, n=5, end="ok"):
    rows = [{"seed": s, "terminal": "ok", "loss": 2.3 + .01 * s, "hours": 3 + s % 3} for s in range(n)]
    new = [{**r, "loss": r["loss"] + shift + .002 * (r["seed"] % 2), "hours": 3 + r["seed"] % 2} for r in rows]
    new[-1]["terminal"] = end
    made = lambda part: tuple(map(ExperimentResult.from_row, part))
    return {"baseline_runs": made(rows), "candidate_runs": made(new)}


def test_the_source_systems_fields_are_there_with_their_values():
    both = losses(.05)
    d = build_report(compare(both)).document()
    metric, stats = d["primary_metric"], d["dataset"]["windows"]["stats"]
    a, b = both.baseline.log_loss, both.candidate.log_loss
    assert metric["kind"] == "ppl_causal" and metric["method"] == "jackknife"
    assert metric["preview"] == pytest.approx(math.exp(b[:48].mean()))
    assert metric["final"] == pytest.approx(math.exp(b[48:].mean()))
    assert metric["display_ci"] == [math.exp(end) for end in metric["ci"]]      # bit for bit
    assert metric["bits_per_byte"]["baseline"] == pytest.approx(a.sum() * 64 / math.log(2) / (96 * 200))
    assert stats["window_match_fraction"] == 1 and stats["window_overlap_fraction"] == 0
    assert stats["paired_windows"] == 96 and stats["coverage"]["tier"] == "balanced"
    assert stats["paired_delta_summary"]["mean"] == pytest.approx((b - a).mean(), rel=1e-12)
    boot = stats["bootstrap"]
    assert (boot["method"], boot["replicates"], boot["seed"]) == ("bca", None, None)
    by_name = compare(both, method="bca", units="windows").interval
    assert boot["ci"] == [by_name.low, by_name.high] and boot["ci"] != metric["ci"]


def test_tokens_scored_twice_and_halves_are_measured():
    n = 40
    arm = WindowLosses.from_arrays([f"0:{32 * i}-{32 * i + 64}" for i in range(n)], [64] * n, np.linspace(1, 2, n))
    other = WindowLosses.from_arrays(arm.window_ids, arm.tokens, arm.log_loss + np.sin(range(n)) / 50)
    d = build_report(compare(pair(arm, other), units="windows")).document()
    union = len({t for i in range(n) for t in range(32 * i, 32 * i + 64)})
    assert d["dataset"]["windows"]["stats"]["window_overlap_fraction"] == pytest.approx(1 - union / (64 * n))
    assert not d["policy"]["contracts"]["no_token_is_scored_twice"]
    assert any("more than once" in line for line in d["warnings"])


@pytest.mark.parametrize("shift, claim, code", [(0.0, "equivalent", 0), (.08, "regressed", 1), (-.08, "improved", 0)])
def test_word_and_exit_code_of_losses(shift, claim, code):
    report = build_report(compare(losses(shift)))
    assert report.document()["verdict"]["claim"] == claim and report.exit_code == code
    assert report.headline in str(report)


@pytest.mark.parametrize("better, claim, code", [("higher", "improved", 0), ("lower", "regressed", 1)])
def test_the_direction_of_a_score_decides_its_word(better, claim, code):
    report = build_report(compare(marks(better=better)))
    d = report.document()
    assert (d["verdict"]["claim"], report.exit_code) == (claim, code) and d["comparison"][0]["title"] == "f1" and d["units"]["kind"] == "items"
    assert d["verdict"]["direction"] == f"{better}_is_better" and d["dataset"]["data_id"] == "squad@2"


def test_scores_of_0_and_1_are_judged_as_accuracy_is():
    a, b = marks(binary=True).baseline, marks(binary=True).candidate
    said = lambda arm: Predictions(ids=arm.ids, label=["yes"] * 60, labels=("no", "yes"), prediction=np.where(arm.values == 1, "yes", "no").tolist())
    rows = [build_report(compare(both, metrics=[name])).document() for name, both in (("score", pair(a, b)), ("accuracy", pair(said(a), said(b))))]
    score, accuracy = (d["comparison"][0] for d in rows)
    skip = ("metric", "title")
    assert {k: v for k, v in score.items() if k not in skip} == {k: v for k, v in accuracy.items() if k not in skip}
    assert rows[0]["evaluation"]["baseline"][0]["interval"] == rows[1]["evaluation"]["baseline"][0]["interval"]
    clustered = compare(marks(binary=True, clusters=np.repeat(range(20), 3).tolist()))
    assert clustered.method == "jackknife" and clustered.primary.unit == "share" and clustered.primary.n_units == 20
    only = evaluate(marks(binary=True, clusters=np.repeat(range(20), 3).tolist()).baseline).document()["evaluation"]["candidate"][0]
    assert only["interval"] != rows[0]["evaluation"]["baseline"][0]["interval"]


def test_a_worse_slice_decides_the_exit_code_inside_the_report():
    "Finding 3: the rule stood in the shell only."
    report = build_report(compare(answers(24), metrics=["accuracy"]), margin=.5)
    d = report.document()
    assert d["verdict"]["verdict"] == "noise" and report.exit_code == 1
    assert report.exit["rule"] == "secondary_regressed" and "language es" in report.exit["because"]
    row = next(r for r in d["slices"] if r["slice"] == "language es")
    assert row["adjusted_p"] >= row["p_value"] and row["claim"] == "regressed"


def test_inconclusive_fails_only_where_asked():
    both = losses(.012, noise=.12)
    assert build_report(compare(both)).exit["rule"] == "not_worse"
    assert build_report(compare(both), fail_inconclusive=True).exit_code == 4


def test_gate_is_there_only_where_asked_for():
    "Finding 8: 'regressed' and 'gate passed' in one report that nobody asked for a gate."
    both = losses(.05)
    assert build_report(compare(both)).document()["policy"]["gate"] is None
    gated = build_report(compare(both), gate=1.5, margin=.02)
    assert gated.document()["policy"]["gate"]["passed"] and gated.exit_code == 1       # regressed all the same
    low = build_report(compare(losses(.005, noise=.01)), gate=1.001)
    assert low.exit["rule"] == "gate_failed"


def test_profiles_refuse_and_dev_warns():
    comparison = compare(losses(n=60))
    assert any("Only 60 windows; the balanced tier asks for at least 360" in w for w in build_report(comparison).document()["warnings"])
    with pytest.raises(ContractError, match="needs the 360 windows") as caught:
        build_report(comparison, profile="ci")
    assert caught.value.code == "too_few_windows"
    changed = {"name": "balanced", "preview": 20, "final": 20, "note": "short text"}
    report = build_report(comparison, profile="ci", tier=changed)
    assert report.document()["policy"]["tier"]["note"] == "short text"
    with pytest.raises(UsageError, match="need a note"):
        as_tier({"name": "balanced", "preview": 20})


@pytest.mark.parametrize("kwargs", [{"margin": 20}, {"margin": {"nonsense": .1}}, {"gate": 5e5}, {"profile": "prod"}, {"tier": "hard"}, {"by": "language"}])
def test_settings_that_make_no_sense_are_refused(kwargs):
    with pytest.raises(ContractError):
        build_report(compare(losses()), **kwargs)


def test_identical_models_are_told_once():
    "Finding 25."
    both = losses(0, noise=0, provenance={"weights_digest": "sha256:same"})
    d = build_report(compare(both)).document()
    assert d["facts"]["weights"] == "identical" and d["facts"]["sentence"].startswith("The weights are identical.")
    assert d["headline"].startswith("Identical") and d["verdict"]["claim"] == "equivalent"


def test_other_tokenizers_are_refused():
    a = losses(provenance={"tokenizer_digest": "a"}).baseline
    b = losses(provenance={"tokenizer_digest": "b"}).candidate
    with pytest.raises(ContractError, match="one tokenizer_digest"):
        build_report(compare(pair(a, b)))


def test_one_arm_has_the_same_sections_without_a_verdict():
    both = answers()
    d = evaluate(both.candidate).document()
    whole = build_report(compare(both)).document()
    assert d.keys() == whole.keys() and d["verdict"] is None and d["exit"]["rule"] == "measured"
    rows = {row["metric"]: row for row in d["evaluation"]["candidate"]}
    accuracy = rows["accuracy"]["value"]
    assert accuracy == pytest.approx(np.mean(both.candidate.correct)) and rows["accuracy"]["interval"][0] < accuracy
    assert {row["slice"] for row in d["slices"]} == {"language en", "language es"}
    assert np.sum(d["classes"]["confusion"]["candidate"]) == 200


def test_perplexity_by_language_of_one_arm():
    n = 40
    arm = WindowLosses.from_arrays([f"w{i}" for i in range(n)], [10] * n, np.linspace(1, 3, n), document_ids=[f"d{i // 2}" for i in range(n)],
                                   provenance={"document_languages": {f"d{i}": "en" if i < 12 else "es" for i in range(20)},
                                               "languages": {"en": {"documents": 12, "tokens": 240}, "es": {"documents": 8, "tokens": 160}}})
    found = evaluate(arm).document()["dataset"]["languages"]
    assert found["en"]["perplexity"]["candidate"] == pytest.approx(math.exp(arm.log_loss[:24].mean()))
    assert found["es"]["documents"] == 8 and found["es"]["tokens"] == 160


def test_runs_get_the_same_document():
    spec = MetricSpec("loss", direction=LOWER)
    report = build_runs_report([spec], **runs())
    d = report.document()
    assert d["kind"] == "runs" and d["verdict"]["verdict"] == "improved" and report.exit_code == 0
    assert d["dataset"]["seeds"]["seeds"] == ["0", "1", "2", "3", "4"]
    assert build_runs_report([spec], **runs(.05)).exit["rule"] == "primary_regressed"
    assert build_runs_report([spec], **runs(end="oom")).exit_code == 5


def test_scores_and_metrics_of_ones_own():
    n = 60
    rng = np.random.default_rng(2)
    a = rng.random(n)
    arms = [Scores(ids=[f"e{i}" for i in range(n)], values=v, model=m) for v, m in ((a, "old"), (a - .2, "new"))]
    mine = Metric(name="mark", unit="points of 1", better="higher", kind="scores", margin=.05, totals=lambda arm: (arm.values, np.ones(len(arm))))
    report = build_report(compare(pair(*arms), metrics=[mine]))
    assert report.exit["rule"] == "primary_regressed" and report.document()["settings"]["margin"] == {"mark": .05}


@pytest.mark.parametrize("arm, kwargs, said", [
    (losses().baseline, {"level": 95}, "level must lie strictly between 0 and 1; got 95. Did you mean 0.95"), (losses().baseline, {"level": 0}, "level must lie"),
    (answers().baseline, {"level": 95}, "Did you mean 0.95"), (5, {}, "arm must be what one model said; got int"),
    (losses(), {}, "got Pair"), (losses().baseline, {"by": "nope"}, "by must be one of 'position'"), (answers().baseline, {"by": "nope"}, "by must be one of 'language'"),
    (answers().baseline, {"by": 5}, "by must be names of columns"), (marks().baseline, {"metrics": []}, "metrics must read scores; got none"),
    (losses().baseline, {"metrics": ["perplexity"] * 2}, "a name of its own"), (losses().baseline, {"metrics": "accuracy"}, "'accuracy', which reads answers")])
def test_evaluate_refuses_what_makes_no_sense(arm, kwargs, said):
    with pytest.raises(UsageError, match=re.escape(said)): evaluate(arm, **kwargs)


def test_a_metric_has_one_value_in_a_report():
    "Bins shared by both arms and clusters as units, also where each model stands alone."
    both = answers(24)
    rng = np.random.default_rng(3)
    sure = lambda arm: arm.changed(confidence=rng.uniform(.5, 1, 200), clusters=[f"c{i // 4}" for i in range(200)])
    d = build_report(compare(pair(sure(both.baseline), sure(both.candidate)))).document()
    assert "calibration" in {row["metric"] for row in d["comparison"]}
    for row in d["comparison"]:
        for arm, rows in d["evaluation"].items():
            assert next(r["value"] for r in rows if r["metric"] == row["metric"]) == row[arm], row["metric"]


@pytest.mark.parametrize("made", [lambda: build_report(compare(losses())), lambda: build_report(compare(answers())),
                                  lambda: build_runs_report([MetricSpec("loss", direction=LOWER)], **runs()), lambda: evaluate(losses().baseline)],
                         ids=["losses", "answers", "runs", "one arm"])
def test_same_inputs_same_bytes_and_the_schema_holds(made):
    jsonschema = pytest.importorskip("jsonschema")
    one, two = made(), made()
    strip = lambda report: {k: v for k, v in report.document().items() if k != "environment"}
    assert strip(one) == strip(two) and one.digest == two.digest
    jsonschema.validate(one.document(), report_schema())
    assert msgspec.json.decode(one.text.encode(), type=Document).digest == one.digest
    json.loads(one.text, parse_constant=lambda name: pytest.fail(name))


def test_replicates_and_seed_reproduce_the_source_interval():
    both = losses(.01)
    one, two, three = (build_report(compare(both, method="bca", replicates=1200, seed=s)).document() for s in (3, 3, 4))
    boot = [d["dataset"]["windows"]["stats"]["bootstrap"] for d in (one, two, three)]
    assert boot[0] == boot[1] != boot[2] and boot[0]["replicates"] == 1200
    assert one["primary_metric"]["ci"] == boot[0]["ci"]


def test_few_effective_units_are_told():
    d = build_report(compare(losses(n=24))).document()
    assert any("Only 24 effective documents" in line for line in d["warnings"])
    assert d["units"]["effective"] == pytest.approx(24) and d["units"]["speaks_of"].startswith("other documents")


def test_slices_are_a_table_and_reliability_a_picture(tmp_path):
    import csv
    folder = build_report(compare(answers(n=90))).save(tmp_path / "r")
    assert (folder / "reliability.svg").read_text().startswith("<svg")
    sliced = build_report(compare(marks(binary=True, slices={"language": ["en", "es"] * 30}))).save(tmp_path / "s")
    rows = list(csv.DictReader((sliced / "slices.csv").open()))
    d = json.loads((sliced / "report.json").read_text())
    assert len(rows) == len(d["slices"]) and [float(row["delta"]) for row in rows] == [row["delta"] for row in d["slices"]]
    assert [float(row["low"]) for row in rows] == [row["ci"][0] for row in d["slices"]] and rows[0]["slice"] == "language en" and rows[0]["claim"]
    (sliced / "slices.csv").write_text((sliced / "slices.csv").read_text().replace("en", "de"))
    with pytest.raises(ContractError, match="slices.csv"): verify(sliced)
    verify(folder)
    build_report(compare(answers(n=80))).save(folder, force=True)
    alone = evaluate(marks(binary=True, slices={"language": ["en", "es"] * 30}).candidate).save(tmp_path / "one")
    assert "value" in (alone / "slices.csv").read_text().partition("\n")[0] and verify(alone)
