"""Predictions: what generated columns, renamed labels, shuffled rows and odd files may and may not change."""
import datetime
import functools
import itertools
import json
import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from invar_nb.foundations.numbers import ContractError, PairingError, as_printed, canonical_json
from invar_nb.foundations.interval import Interval
from invar_nb.probes.evaluation import Estimate, evaluate, slice_text
from invar_nb.probes.paired_probes import HEADLINE, Difference, PredictionsComparison, compare_predictions
from invar_nb.probes.probes import Predictions
from invar_nb.statistics.two_proportions import mcnemar

FAST = {"replicates": 100}
some = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def words(count): return [f"label {c}" for c in range(count)]


@st.composite
def files(draw, most=24, form=None):
    "Columns of one arm: probabilities by column or by row, or predictions with or without confidence; some slices, some of them empty."
    n, C = draw(st.integers(1, most)), draw(st.sampled_from([2, 3, 12]))
    rng, form = np.random.default_rng(draw(st.integers(0, 2**32))), form or draw(st.sampled_from(["columns", "rows", "confidence", "bare"]))
    labels = words(C)
    truth = rng.integers(0, C, n)
    out = {"id": [f"p{i}" for i in range(n)], "label": [labels[c] for c in truth], "language": list(rng.choice(["en", "es"], n)),
           "tense": [None if x == 0 else f"t{x}" for x in rng.integers(0, 4, n)], "person": [int(x) for x in rng.integers(1, 4, n)], "prompt": [f"say {i}" for i in range(n)]}
    weights = rng.choice([0, 1, 1, 2, 5], (n, C)) + np.eye(C)[rng.integers(0, C, n)]
    p = weights / weights.sum(axis=1, keepdims=True)
    if draw(st.booleans()): p = np.eye(C)[p.argmax(axis=1)]  # all of it certain
    if form == "columns": return out | {f"p:{label}": p[:, c].tolist() for c, label in enumerate(labels)}
    if form == "rows": return out | {"probabilities": [dict(zip(labels, map(float, row), strict=True)) for row in p]}
    out["prediction"] = [labels[c] for c in p.argmax(axis=1)]
    return out | ({"confidence": p.max(axis=1).tolist()} if form == "confidence" else {})


def shuffled(columns, seed):
    order = np.random.default_rng(seed).permutation(len(columns["id"]))
    return {name: [column[i] for i in order] for name, column in columns.items()}


def read(columns, **more):
    "Told labels where there are no probabilities: the set seen may have one label only."
    if "prediction" in columns and not any(name.startswith("p:") or name == "probabilities" for name in columns): more = {"labels": words(12), **more}
    return Predictions.from_columns(columns, **more)


def other_arm(columns, seed):
    "Another model on the same probes: every third answer, or row of probabilities, comes from another probe."
    rng, n = np.random.default_rng(seed), len(columns["id"])
    source = [int(rng.integers(n)) if rng.random() < 0.4 else i for i in range(n)]
    own = [name for name in columns if name.startswith("p:") or name in ("probabilities", "prediction", "confidence")]
    return {name: [column[i] for i in source] if name in own else column for name, column in columns.items()}


# --- what may not change anything -----------------------------------------------------------------------------------------------------
@some
@given(files(), st.integers(0, 99))
def test_the_order_of_rows_is_forgotten_to_the_last_byte(columns, seed):
    a, b = read(columns), read(shuffled(columns, seed))
    assert a.test_set == b.test_set and a.ids == b.ids == tuple(sorted(columns["id"]))
    assert canonical_json(evaluate(a, **FAST).to_dict()) == canonical_json(evaluate(b, **FAST).to_dict())


@some
@given(files(), st.integers(0, 99))
def test_the_order_of_rows_is_forgotten_in_a_comparison(columns, seed):
    other = other_arm(columns, seed)
    one = compare_predictions(read(columns), read(other), **FAST)
    two = compare_predictions(read(shuffled(columns, seed)), read(shuffled(other, seed + 1)), **FAST)
    assert canonical_json(one.to_dict()) == canonical_json(two.to_dict())


@some
@given(files(), st.integers(0, 99))
def test_labels_are_only_names(columns, seed):
    "Any one-to-one renaming, emoji, commas and colons in it, changes the names and nothing else."
    old = words(12)
    new = [f"🙂{i}, :{chr(200 + i)}" for i in np.random.default_rng(seed).permutation(12)]
    name = dict(zip(old, new, strict=True))
    p = Predictions.from_columns(columns, labels=old if "prediction" in columns else None)
    answers = dict(zip(p.ids, p.prediction, strict=True))
    columns = columns | {"prediction": [answers[i] for i in columns["id"]]}  # ties go by name: tell them
    told = not any(key.startswith("p:") or key == "probabilities" for key in columns)
    renamed = {(f"p:{name[key[2:]]}" if key.startswith("p:") else key): column for key, column in columns.items()}
    for key in ("label", "prediction"):
        if key in columns: renamed[key] = [name[x] for x in columns[key]]
    if "probabilities" in columns: renamed["probabilities"] = [{name[k]: v for k, v in row.items()} for row in columns["probabilities"]]
    a = evaluate(Predictions.from_columns(columns, labels=old if told else None), **FAST)
    b = evaluate(Predictions.from_columns(renamed, labels=[name[x] for x in a.labels]), **FAST)
    assert [name[x] for x in a.labels] == list(b.labels)
    np.testing.assert_array_equal(a.matrix, b.matrix)
    assert [x.value for x in a.metrics.values()] == [x.value for x in b.metrics.values()]
    assert [(r.p_value, r.adjusted_p, r.interval, r.ece, r.brier) for r in a.slices] == [(r.p_value, r.adjusted_p, r.interval, r.ece, r.brier) for r in b.slices]


def test_ids_and_labels_are_text_whatever_type_they_come_in():
    as_text = {"id": ["2", "10", "1"], "label": ["1", "0", "1"], "prediction": ["1", "1", "0"], "flag": ["true", "false", "true"]}
    typed = {"id": [2, np.int64(10), 1], "label": np.array([1, 0, 1]), "prediction": [1, 1, 0], "flag": [True, np.bool_(False), True]}
    a, b = Predictions.from_columns(as_text), Predictions.from_columns(typed)
    assert a.ids == b.ids == ("1", "10", "2") and a.labels == b.labels == ("0", "1") and a.slices == b.slices
    assert canonical_json(evaluate(a).to_dict()) == canonical_json(evaluate(b).to_dict())
    yes = Predictions.from_columns({"id": ["a", "b"], "label": [True, False], "prediction": ["true", "true"]})
    assert yes.labels == ("false", "true") and yes.label == ("true", "false")
    with pytest.raises(ContractError, match="'7' at index 0 and at index 1"): Predictions.from_columns({"id": [7, "7"], "label": [0, 1], "prediction": [0, 1]})


def test_a_data_frame_is_a_table():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [3, 1, 2], "label": ["x", "y", "x"], "p:x": [0.5, 0.25, 1.0], "p:y": [0.5, 0.75, 0.0], "tense": ["a", "b", "a"]})
    plain = {name: frame[name].tolist() for name in frame}
    assert canonical_json(evaluate(Predictions.from_columns(frame)).to_dict()) == canonical_json(evaluate(Predictions.from_columns(plain)).to_dict())


def test_what_identifies_a_test_set_and_what_does_not():
    base = {"id": ["a", "b", "c"], "label": ["x", "y", "x"], "prediction": ["x", "y", "y"], "tense": ["1", "2", "2"], "prompt": ["p", "q", "r"]}
    digest = Predictions.from_columns(base).test_set
    for same in ({"prediction": ["y", "y", "y"]}, {"confidence": [0.5, 0.6, 0.7]}, {"model": ["m"] * 3}, {"extra": ["u", "v", "w"]}):
        assert Predictions.from_columns(base | same).test_set == digest, same
    for other in ({"id": ["a", "b", "d"]}, {"label": ["x", "x", "x"]}, {"tense": ["1", "1", "2"]}, {"prompt": ["p", "q", "R"]}, {"prompt": ["p", "q", None]}, {"language": ["en"] * 3},
                  {"text": ["s", "t", "u"]}):
        assert Predictions.from_columns(base | other).test_set != digest, other
    swapped = Predictions.from_columns({**base, "place": base["tense"], "tense": ["2", "2", "1"]}), Predictions.from_columns({**base, "place": ["2", "2", "1"]})
    assert swapped[0].test_set != swapped[1].test_set  # the same values under exchanged names
    kept = {**base, "prompt_digest": Predictions.from_columns(base).prompts}
    del kept["prompt"]
    assert Predictions.from_columns(kept).test_set == digest  # the prompt itself need not be kept


# --- what a result says follows from its numbers --------------------------------------------------------------------------------------
def by_hand_holm(tests):
    "{key: p} -> {key: adjusted}, by the definition: the largest over smaller p of (number of p at least that) times p."
    return {key: min(1.0, max(q * sum(r >= q for r in tests.values()) if len(set(tests.values())) == len(tests) else
                              q * (len(tests) - sorted(tests.values()).index(q)) for q in tests.values() if q <= p)) for key, p in tests.items()}


@some
@given(files(), st.integers(0, 99))
def test_every_statement_can_be_made_again_from_the_dictionary(columns, seed):
    p = read(columns)
    d = json.loads(canonical_json(evaluate(p, **FAST).to_dict()))
    m, n = d["confusion"]["matrix"], d["scored"]
    assert n == sum(map(sum, m)) == d["n"] - d["excluded"] and d["correct"] == sum(m[c][c] for c in range(len(m)))
    assert d["confusion"]["row_sums"] == [sum(row) for row in m] and d["confusion"]["column_sums"] == [sum(col) for col in zip(*m, strict=True)]
    assert d["metrics"]["accuracy"]["value"] == d["correct"] / n
    for estimate in d["metrics"].values():
        assert (estimate["value"] is not None and estimate["interval"] is not None) or estimate["reason"]
        assert estimate["value"] is not None or estimate["interval"] is None
    for c, row in enumerate(d["classes"]):
        assert (row["support"], row["predicted"], row["hits"]) == (sum(m[c]), sum(r[c] for r in m), m[c][c])
        for rate, top, bottom in (("precision", 1, row["predicted"]), ("recall", 1, row["support"]), ("f1", 2, row["predicted"] + row["support"])):
            assert row[rate]["value"] == (None if not bottom else pytest.approx(top * row["hits"] / bottom, rel=1e-12))
            assert (row[rate]["value"] is None) == bool(row[rate]["reason"])
    recalls = [row["recall"]["value"] for row in d["classes"]]
    assert d["metrics"]["balanced_accuracy"]["value"] == (None if None in recalls else pytest.approx(sum(recalls) / len(recalls), rel=1e-12))
    for name in p.slices:
        rows = [row for row in d["slices"] if row["slice"] == name]
        assert sum(row["n"] for row in rows) == n and sum(row["correct"] for row in rows) == d["correct"]  # no probe is dropped, none counted twice
        assert {row["value"] for row in rows} == set(p.slices[name])
    for row in d["slices"]:
        assert row["accuracy"] == row["correct"] / row["n"] and row["rest_n"] == n - row["n"] and row["rest_correct"] == d["correct"] - row["correct"]
        assert row["flag"] == (None if row["adjusted_p"] is None else "differs from the rest" if row["adjusted_p"] <= 0.05 else "within noise")
        assert (row["p_value"] is None) == (row["rest_n"] == 0) == bool(row["reason"])
    cuts = {}
    for row in d["slices"]:
        members = frozenset(i for i in range(n) if p.slices[row["slice"]][i] == row["value"])
        if row["p_value"] is not None: cuts[min(members, frozenset(range(n)) - members, key=sorted)] = row["p_value"]
    assert d["slice_tests"] == len(cuts)
    again = by_hand_holm(cuts)
    for row in d["slices"]:
        members = frozenset(i for i in range(n) if p.slices[row["slice"]][i] == row["value"])
        if row["p_value"] is not None: assert row["adjusted_p"] == pytest.approx(again[min(members, frozenset(range(n)) - members, key=sorted)], rel=1e-9)
    assert d["sentence"].startswith(f"Right on {d['correct']} of {n} probe{'s' if n > 1 else ''}: accuracy {100 * d['correct'] / n:.1f}%")


@some
@given(files(), st.integers(0, 99))
def test_a_comparison_mirrors_and_its_verdict_follows(columns, seed):
    a, b = read(columns), read(other_arm(columns, seed))
    one, two = compare_predictions(a, b, **FAST), compare_predictions(b, a, **FAST)
    assert one.lost == two.gained and one.gained == two.lost and one.overlap_rule == two.overlap_rule
    right = {arm: {i for i, x, y in zip(arm.ids, arm.label, arm.prediction, strict=True) if x == y} for arm in (a, b)}
    assert set(one.lost) == right[a] - right[b] and set(one.gained) == right[b] - right[a]
    for x, y in zip(one.differences, two.differences, strict=True):
        assert x.metric == y.metric and (x.baseline, x.candidate) == (y.candidate, y.baseline)
        if x.delta is not None: assert x.delta == pytest.approx(-y.delta, abs=1e-15) and x.side in {"better": ("worse", "same"), "worse": ("better", "same"), "same": ("same", "worse", "better")}[y.side]
    for metric in ("accuracy", "danger"): assert one.difference(metric).p_value == two.difference(metric).p_value
    d = json.loads(canonical_json(one.to_dict()))
    tested = {row["metric"]: row["p_value"] for row in d["differences"] if row["p_value"] is not None}
    assert set(tested) <= set(HEADLINE)
    again = by_hand_holm(tested)
    for row in d["differences"]: assert row["adjusted_p"] == (pytest.approx(again[row["metric"]], rel=1e-9) if row["metric"] in tested else None)
    moved = [row for row in d["differences"] if row["flag"] == "significant" and abs(row["delta"]) >= 0.02]
    safe = d["differences"][0]["interval"]["low"] > -0.02
    word = "regressed" if any(row["side"] == "worse" for row in moved) else "improved" if moved and safe else "noise"
    reach = {row["metric"]: max(map(abs, (row["interval"]["low"], row["interval"]["high"]) if row["interval"] else (0 if abs(row["delta"]) <= 1e-12 else 1,))) for row in d["differences"] if row["metric"] in HEADLINE and row["delta"] is not None}
    inside = max(reach.values()) < 0.02
    assert d["verdict"] == word and d["noise_kind"] == (None if word != "noise" else "equivalent" if inside else "inconclusive")
    assert d["sentence"].startswith({"regressed": "Regressed", "improved": "Improved", "noise": "Equivalent" if inside else "Undecided"}[word])
    for row in d["slices"]: assert row["n"] >= 1 and row["delta"] == pytest.approx((row["candidate"] - row["baseline"]) / row["n"], abs=1e-15)


@some
@given(files())
def test_a_model_against_itself(columns):
    c = compare_predictions(read(columns), read(columns), **FAST)
    assert c.verdict == "noise" and not c.lost and not c.gained
    assert all(row.delta in (0.0, None) and row.p_value in (1.0, None) for row in c.differences) and all(row.p_value == 1.0 for row in c.slices)


def test_a_forged_verdict_is_not_born():
    point = Interval(low=-0.01, high=0.3, level=0.95, method="tango")
    def row(metric, gain, adjusted, direction="higher_is_better"):
        return Difference(metric=metric, direction=direction, baseline=0.5, candidate=0.5 + gain, delta=gain, interval=point, test="", p_value=adjusted, adjusted_p=adjusted, level=0.95)
    columns = {"id": ["a", "b"], "label": ["x", "y"], "prediction": ["x", "x"]}
    e = evaluate(Predictions.from_columns(columns))
    cases = {"improved": (row("accuracy", 0.1, 0.01), row("ece", 0.01, 0.001, "lower_is_better")), "regressed": (row("accuracy", 0.1, 0.01), row("ece", 0.02, 0.05, "lower_is_better")),
             "noise": (row("accuracy", 0.1, 0.051), row("brier", -0.0199, 0.0, "lower_is_better"))}
    for true_word, differences in cases.items():
        for word in cases:
            make = lambda: PredictionsComparison(baseline=e, candidate=e, margin=0.02, differences=differences, slices=(), slice_tests=0, lost=(), gained=(), overlap_rule="within noise",
                                                 verdict=word, noise_kind="inconclusive" if word == "noise" else None, probes_to_settle=None)
            if word == true_word: make()
            else:
                with pytest.raises(ContractError, match="the verdict must follow"): make()


def right_or_wrong(right):
    "A prediction-only arm with these answers right."
    label = ["x", "y"] * (len(right) // 2)
    return Predictions.from_columns({"id": range(len(right)), "label": label, "prediction": [x if ok else {"x": "y", "y": "x"}[x] for x, ok in zip(label, right, strict=True)]}, labels=["x", "y"])


@pytest.mark.parametrize("counts", [(5, 8, 60), (0, 0, 60), (30, 30, 500), (20, 12, 300), (0, 2, 2), (1, 4, 10)])
def test_the_number_of_probes_that_would_settle_it_does(counts):
    "At so many probes with these shares the comparison is decided; with one less it is not."
    only_a, only_b, n = counts
    c = compare_predictions(*(right_or_wrong(right) for right in ([True] * only_a + [False] * only_b + [True] * (n - only_a - only_b), [False] * only_a + [True] * only_b + [True] * (n - only_a - only_b))), **FAST)
    assert c.noise_kind == "inconclusive" and c.probes_to_settle > n
    def settled(N):
        test = mcnemar(round(only_a * N / n), round(only_b * N / n), trials=N)
        return test.interval.inside(-0.02, 0.02) or test.p_value <= 0.05 and abs(test.difference) >= 0.02
    assert settled(c.probes_to_settle) and not settled(c.probes_to_settle - 1)
    assert f"about {c.probes_to_settle} probes would tell" in c.sentence
    if counts == (0, 2, 2): assert c.probes_to_settle == 6  # 2 * 0.5**6 = 0.03125


def test_the_number_of_probes_pays_for_the_other_questions():
    "With the danger cell tested too, Holm asks for a smaller p-value of the accuracy, and so for more probes."
    label, said = ["correct"] * 30 + ["incorrect"] * 10, ["incorrect"] * 3 + ["correct"] * 27 + ["incorrect"] * 10
    make = lambda prediction, names: Predictions.from_columns({"id": range(40), "label": [names[x] for x in label], "prediction": [names[x] for x in prediction]})
    plain, paid = (compare_predictions(make(said, names), make(label, names), **FAST) for names in ({"correct": "x", "incorrect": "y"}, {"correct": "correct", "incorrect": "incorrect"}))
    assert plain.noise_kind == paid.noise_kind == "inconclusive" and 40 < plain.probes_to_settle < paid.probes_to_settle


def test_better_calibrated_is_not_improved_while_the_accuracy_may_have_fallen():
    "400 probes; the baseline is sure of 0.99, the candidate of what it is right on; the accuracy falls by 4 points, or not at all."
    def arm(right, sure): return Predictions.from_columns({"id": range(400), "label": ["x", "y"] * 200, "prediction": [x if ok else {"x": "y", "y": "x"}[x] for x, ok in zip(["x", "y"] * 200, right, strict=True)],
                                                           "confidence": [sure] * 400})
    before = [i % 10 < 6 for i in range(400)]
    lost, gained = [i for i, ok in enumerate(before) if ok][:40], [i for i, ok in enumerate(before) if not ok][:24]
    after = [ok != (i in lost or i in gained) for i, ok in enumerate(before)]
    c = compare_predictions(arm(before, 0.99), arm(after, 0.55), **FAST)
    assert c.difference("ece").flag == "significant" and c.difference("ece").side == "better"
    assert c.differences[0].flag == "within noise" and c.differences[0].interval.low <= -0.02
    assert (c.verdict, c.noise_kind) == ("noise", "inconclusive")
    assert c.sentence.startswith("Undecided: better in calibration error (ECE)") and "but whether the accuracy fell by 2 points or more is open" in c.sentence
    safe = compare_predictions(arm(before, 0.99), arm(before, 0.55), **FAST)
    assert safe.verdict == "improved"


def test_better_and_worse_point_the_right_way():
    "The second model is right more often, surer of it, and praises fewer wrong sentences; then the arms change places."
    n = 40
    label = ["correct", "incorrect"] * (n // 2)
    def arm(rights, sure):
        right = [i < rights for i in range(n)]
        share = [sure if ok else 1 - sure for ok in right]
        return Predictions.from_columns({"id": range(n), "label": label, "p:correct": [q if x == "correct" else 1 - q for q, x in zip(share, label, strict=True)],
                                         "p:incorrect": [1 - q if x == "correct" else q for q, x in zip(share, label, strict=True)]})
    bad, good = arm(20, 0.95), arm(38, 0.95)
    up, down = compare_predictions(bad, good), compare_predictions(good, bad)
    assert {row.metric: row.side for row in up.differences} == dict.fromkeys((row.metric for row in up.differences), "better")
    assert {row.metric: row.side for row in down.differences} == dict.fromkeys((row.metric for row in down.differences), "worse")
    assert [row.metric for row in up.differences][:4] == list(HEADLINE) and all(row.flag == "significant" for row in up.differences[:4])
    assert (up.verdict, down.verdict) == ("improved", "regressed")
    assert up.difference("ece").p_value >= 2 / 2001  # so many replicates prove no less
    assert up.difference("ece").test == "paired swap test, 9999 draws, seed 0, and bootstrap: the larger p; interval by bootstrap, 2000 replicates, seed 0, widened by noise"
    assert up.difference("brier").test.startswith("paired sign-flip test, ") and up.difference("brier").test.endswith("; interval by the exact bootstrap")


def test_values_of_a_slice_stand_in_a_natural_order():
    values = [10, 2, None, "b", 1, "a", 2, 10, None, "b"]
    e = evaluate(Predictions.from_columns({"id": range(10), "label": ["x", "y"] * 5, "prediction": ["x"] * 10, "grade": values}))
    assert [row.value for row in e.slices] == ["1", "2", "10", "a", "b", None]


# --- policies -------------------------------------------------------------------------------------------------------------------------
@some
@given(files(form="rows"))
def test_excluded_means_as_if_the_probe_had_not_been_asked(columns):
    "The excluded probes leave every number; the class stays as a column."
    out = words(12)[1]
    left = [i for i, label in enumerate(columns["label"]) if label != out]
    if not left: return
    whole = evaluate(read(columns), ambiguous="excluded", ambiguous_label=out, **FAST)
    part = evaluate(read({name: [column[i] for i in left] for name, column in columns.items()}, slices=list(read(columns).slices)), **FAST)
    assert whole.scored == len(left) and whole.n == len(columns["id"])
    for name in ("accuracy", "ece", "mce", "brier", "confidence_brier"): assert whole.metrics[name] == part.metrics[name]
    assert [(r.slice, r.value, r.n, r.p_value) for r in whole.slices] == [(r.slice, r.value, r.n, r.p_value) for r in part.slices]
    assert not whole.classes[1].averaged and whole.classes[1].support == 0


def test_labels_told_seen_and_read_off():
    bare = {"id": range(4), "label": list("xyxy"), "prediction": list("xyyy")}
    assert Predictions.from_columns(bare).labels_from == "seen"
    told = Predictions.from_columns(bare, labels=["z", "y", "x"])
    assert told.labels == ("z", "y", "x") and told.labels_from == "told"
    assert evaluate(told).metrics["macro_f1"].value is None and "occurs nowhere" in evaluate(told).metrics["macro_f1"].reason
    third = Predictions.from_columns({**bare, "prediction": list("xzyy")})
    c = compare_predictions(Predictions.from_columns(bare), third)
    assert c.baseline.labels == c.candidate.labels == ("x", "y", "z")  # the union of what was seen: one set for both
    full = {"id": range(4), "label": list("xyxy"), **{f"p:{label}": [0.5, 0.25, 0.0, 1.0] if label == "x" else [0.25, 0.375, 0.5, 0.0] for label in "yxz"}}
    assert Predictions.from_columns(full).labels == ("x", "y", "z")  # whatever the order of columns
    assert compare_predictions(Predictions.from_columns(full), third).candidate.labels == ("x", "y", "z")
    with pytest.raises(PairingError, match="choose among the same labels"): compare_predictions(Predictions.from_columns(full), Predictions.from_columns({**bare, "prediction": list("xwyy")}))


def test_ties_go_to_the_first_name_and_are_counted():
    columns = {"id": ["a", "b", "c"], "label": ["x", "y", "z"], "p:z": [0.4, 0.5, 1 / 3], "p:y": [0.4, 0.5, 1 / 3], "p:x": [0.2, 0.0, 1 / 3]}
    p = Predictions.from_columns(columns)
    assert p.labels == ("x", "y", "z") and p.prediction == ("y", "y", "x") and p.ties == 3 and evaluate(p).to_dict()["ties"] == 3
    told = Predictions.from_columns({**columns, "prediction": ["z", "y", "x"]})
    assert told.prediction == ("z", "y", "x") and told.ties == 3  # a tie broken by the file stays as the file has it
    numbers_ = Predictions.from_columns({"id": ["a"], "label": ["10"], "p:10": [0.5], "p:9": [0.5]})
    assert numbers_.prediction == ("9",)  # names that are whole numbers go by value


def test_equal_numbers_are_equal_answers_whatever_the_order_of_keys_columns_rows_and_labels():
    n = 60
    rows = [{"x": 0.5, "y": 0.5} if i % 2 == 0 else {"x": 0.2, "y": 0.8} for i in range(n)]
    base = {"id": list(range(n)), "label": ["x", "y"] * (n // 2)}
    forms = [Predictions.from_columns({**base, "probabilities": rows}), Predictions.from_columns({**base, "probabilities": [dict(reversed(row.items())) for row in rows]}),
             Predictions.from_columns({**base, "probabilities": [dict(reversed(row.items())) if i % 3 else row for i, row in enumerate(rows)]}),
             Predictions.from_columns({**base, "p:x": [row["x"] for row in rows], "p:y": [row["y"] for row in rows]}),
             Predictions.from_columns({**base, "p:y": [row["y"] for row in rows], "p:x": [row["x"] for row in rows]}),
             Predictions.from_columns({**base, "probabilities": rows}, labels=["y", "x"]), Predictions.from_columns({**base, "probabilities": rows}, labels=["x", "y"])]
    forms += [p.relabelled(labels) for p in forms[3:5] for labels in (("x", "y"), ("y", "x"))]
    for p in forms:
        assert p.prediction == forms[0].prediction and p.ties == n // 2
        c = compare_predictions(forms[0], p, **FAST)
        assert c.verdict == "noise" and not c.lost and not c.gained and c.differences[0].delta == 0 and c.baseline.ties == c.candidate.ties == n // 2


def test_default_tries_and_probes_without_samples():
    columns = {"id": range(4), "label": list("xyxy"), "prediction": list("xyyy"), "samples": [20, None, 12, 20], "correct_samples": [5, None, 0, 20]}
    e = evaluate(Predictions.from_columns(columns))
    assert e.settings["k"] == [1, 10] and e.metrics["pass@1"].value == pytest.approx((5 / 20 + 0 + 1) / 3, rel=1e-12)
    assert e.metrics["pass@10"].value == pytest.approx((1 - math.comb(15, 10) / math.comb(20, 10) + 0 + 1) / 3, rel=1e-12) and "over 3 probes" in e.metrics["pass@1"].reading
    assert evaluate(Predictions.from_columns(columns), k=(3, 3, 12)).settings["k"] == [3, 12]
    with pytest.raises(ContractError, match="k = 13, 12 samples of '2' at index 2"): evaluate(Predictions.from_columns(columns), k=13)


# --- slices ---------------------------------------------------------------------------------------------------------------------------
def test_every_column_is_a_slice_or_says_why_not():
    n = 40
    columns = {"id": range(n), "label": ["x", "y"] * (n // 2), "prediction": ["x", "y", "y", "y"] * (n // 4), "language": ["en"] * n, "verb": [f"v{i % 30}" for i in range(n)],
               "tense": [("past", None)[i // 2 % 2] for i in range(n)], "one": [1] * n, "each": list(range(n)), "score": [0.5 * (i % 3) for i in range(n)], "text score": [str(0.5 * (i % 3)) for i in range(n)],
               "nested": [["a"], ["b"]] * (n // 2), "raw": ["x", "y", "y", "y"] * (n // 4), "right": [1, 1, 0, 1] * (n // 4), "correct": [True] * n, "short": [i // 2 % 2 for i in range(n)], "twin": ["X", "Y"] * (n // 2)}
    p = Predictions.from_columns(columns)
    named = "is named like a part of the answer, not of the probe; name it in slices= to use it"
    assert list(p.slices) == ["language", "short", "tense"] and set(p.slices["tense"]) == {"past", None}
    assert p.ignored == {"verb": "has 30 different values, more than 20", "one": "has one value only", "each": "has another value for every probe",
                         "score": "holds numbers between 0 and 1; if it is the probability of the prediction, rename it to 'confidence'",
                         "text score": "holds decimal numbers", "nested": "holds nested values", "raw": named, "right": named,
                         "twin": "says the label in other words", "correct": "differs from prediction = label on 10 of 40 probes, and is not used"}
    asked = Predictions.from_columns(columns, slices=["verb", "score", "raw"])
    assert list(asked.slices) == ["verb", "score", "raw", "language"] and asked.slices["score"][:3] == ("0.0", "0.5", "0.5") and asked.ignored["tense"] == "was not asked for"
    rows = {(r.slice, r.value): r for r in evaluate(p).slices}
    assert rows["language", "en"].p_value is None and rows["language", "en"].flag is None and rows["tense", None].n == 20
    assert evaluate(p).slice_tests == 1  # short and tense cut the probes alike: one question
    for bad in ("nested", "nosuch"):
        with pytest.raises(ContractError, match="a slice must"): Predictions.from_columns(columns, slices=[bad])


def test_a_slice_that_holds_exactly_what_was_right_is_a_finding():
    n = 100
    label = ["x", "y"] * (n // 2)
    half = [x if i < n // 2 else ("y" if x == "x" else "x") for i, x in enumerate(label)]
    base = {"id": list(range(n)), "label": label, "english": [i < n // 2 for i in range(n)], "kind": label}  # kind: what a perfect model repeats
    a, b = Predictions.from_columns({**base, "prediction": half}), Predictions.from_columns({**base, "prediction": label})
    assert set(a.slices) == set(b.slices) == {"english"} and a.ignored == b.ignored == {"kind": "says the label in other words"}
    a, b = (Predictions.from_columns({**base, "prediction": said}, slices=["english", "kind"]) for said in (half, label))
    assert set(a.slices) == set(b.slices) == {"english", "kind"}  # where it is asked for
    assert [(row.value, row.correct) for row in evaluate(a, **FAST).flagged] == [("false", 0), ("true", 50)]
    assert compare_predictions(a, b, **FAST).verdict == "improved"


def test_a_slice_row_knows_its_calibration():
    rng = np.random.default_rng(0)
    confidence, place = rng.uniform(0.5, 1, 200), rng.choice(["here", "there"], 200)
    columns = {"id": range(200), "label": ["x" if u < c else "y" for u, c in zip(rng.random(200), confidence, strict=True)], "p:x": confidence.tolist(), "p:y": (1 - confidence).tolist(), "place": place.tolist()}
    e = evaluate(Predictions.from_columns(columns))
    for row in e.slices:
        inside = {name: [x for x, where in zip(column, place, strict=True) if where == row.value] for name, column in columns.items() if name != "place"}
        alone = evaluate(Predictions.from_columns(inside))
        assert row.ece == pytest.approx(alone.metrics["ece"].value, rel=1e-12) and row.ece_by_chance == pytest.approx(alone.reliability.null_mean, rel=1e-9)
        assert row.brier == pytest.approx(alone.metrics["brier"].value, rel=1e-12) and row.interval == alone.metrics["accuracy"].interval


# --- what is refused ------------------------------------------------------------------------------------------------------------------
GOOD = {"id": ["a", "b", "c"], "label": ["x", "y", "x"], "prediction": ["x", "y", "y"]}


@pytest.mark.parametrize("change, said", [
    ({"id": None}, "there must be a column 'id'"), ({"label": None}, "there must be a column 'label'"), ({"prediction": None}, "there must be a prediction"),
    ({"id": ["a", "a", "c"]}, "'a' at line 1 and at line 2"), ({"id": ["a", "", "c"]}, "'' at line 2"), ({"id": [1.5, "b", "c"]}, "1.5 at line 1"), ({"id": [True, "b", "c"]}, "True at line 1"),
    ({"label": ["x", "y", None]}, "None at line 3"), ({"label": ["x", "y", float("nan")]}, "nan at line 3"), ({"label": ["x", "y", "\ud800"]}, "UTF-8"), ({"label": ["x", "y"]}, "2 in 'label' for 3 ids"),
    ({"label": [], "id": [], "prediction": []}, "there must be a probe"), ({"label": ["x"] * 3, "prediction": ["x"] * 3}, "at least two labels; got 'x'"),
    ({"confidence": [0.5, 1.0000001, 0.5]}, "1.0000001 at line 2"), ({"confidence": [0.5, -0.0001, 0.5]}, "must lie in"), ({"confidence": [0.5, "0.5", 0.5]}, "'0.5' at line 2"),
    ({"confidence": [0.5, True, 0.5]}, "True at line 2"), ({"confidence": [0.5, None, 0.5]}, "None at line 2"), ({"confidence": [0.5, float("inf"), 0.5]}, "inf at line 2"),
    ({"probabilities": [{"x": 1}, {"x": 1}, {"x": 1}]}, "at least two labels"), ({"probabilities": ["x", "x", "x"]}, "must map each label"), ({"probabilities": [{"x": 0.9, "y": 0.2}] * 3}, "1.1 at line 1"),
    ({"probabilities": [{"x": 0.9, "y": 0.099998}, {"x": 0.2, "y": 0.8}, {"x": 0.2, "y": 0.8}]}, "within the rounding of the digits they have; got 0.999998"),
    ({"probabilities": [{"x": 0.9, "y": 0.1}] * 3}, "'y' with 0.1 where 'x' has 0.9 at line 2"), ({"p:x": [1, 0, 0], "p:y": [0, 1, 1], "confidence": [1, 1, 0.9]}, "0.9 where the probability is 1 at line 3"),
    ({"p:x": [1, 0, 0], "p:y": [0, 1, 1], "probabilities": [{"x": 1}] * 3}, "told once"), ({"p:x": [1, 0, 0], "p:z": [0, 1, 1]}, "must be one of 'x', 'z'; got 'y' at line 2"),
    ({"samples": [1, 1, 1], "correct_samples": [1, 2, 1]}, "correct_samples 2 at line 2"), ({"samples": [1, 1, 1], "correct_samples": [1, None, 1]}, "correct_samples None at line 2"),
    ({"samples": [1, 0, 1], "correct_samples": [1, 0, 1]}, "samples must be a whole number of at least 1; got 0 at line 2"), ({"samples": [1, 1, 1]}, "belong together"),
    ({"checkpoint": ["c", "c", "d"]}, "'c' at line 1 and 'd' at line 3"), ({"prompt": ["p"] * 3, "prompt_digest": ["d"] * 3}, "prompt must be told once"),
])
def test_a_bad_column_is_refused_with_its_row(change, said):
    columns = {name: column for name, column in {**GOOD, **change}.items() if column is not None}
    n = max(map(len, columns.values()), default=0)
    with pytest.raises(ContractError, match=re.escape(said).replace("\\ ", " ")) as caught:
        Predictions.from_columns(columns, places=[f"line {i + 1}" for i in range(n)] if all(len(c) == n for c in columns.values()) else None, where="answers.csv")
    assert str(caught.value).startswith("answers.csv: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("label, said", [(["correct", "wrong"], ["Correct ", "Wrong "]), (["1", "0"], ["1.0", "0.0"]), (["1", "0"], [True, False]), (["caf\u00e9", "th\u00e9"], ["cafe\u0301", "the\u0301"])])
def test_labels_that_can_never_match_are_refused(label, said):
    columns = {"id": range(4), "label": label * 2, "prediction": said * 2}
    with pytest.raises(ContractError, match="must share a value|must differ by more than"): Predictions.from_columns(columns)
    spelled = [{True: "true", False: "false"}.get(x, x) if isinstance(x, bool) else x for x in said]
    assert evaluate(Predictions.from_columns(columns, labels=[*label, *spelled]), **FAST).correct == 0  # told on purpose
    with pytest.raises(ContractError, match=re.escape("label 'x' and prediction 'z' at line 1")) as caught:
        Predictions.from_columns({**GOOD, "label": ["x", "x", "x"], "prediction": ["z", "w", "z"]}, places=["line 1", "line 2", "line 3"])
    assert "labels=" in str(caught.value)


@pytest.mark.parametrize("twins", [("x", "X"), ("x", " x"), ("x y", "xy"), ("\u00e9", "e\u0301"), ("1", "1.0"), ("1", "01")])
def test_labels_that_differ_in_spelling_only_are_refused(twins):
    one, two = twins
    columns = {"id": range(4), "label": [one, "q", one, two], "prediction": [one, "q", "q", one]}
    with pytest.raises(ContractError, match="must differ by more than case, blanks"): Predictions.from_columns(columns)
    with pytest.raises(ContractError, match="must differ by more than"): Predictions.from_columns({"id": ["a"], "label": [one], f"p:{one}": [0.5], f"p:{two}": [0.5]})
    assert Predictions.from_columns(columns, labels=[one, two, "q"]).labels == (one, two, "q")
    arms = [Predictions.from_columns({"id": range(3), "label": ["p", "q", "p"], "prediction": ["p", "q", odd]}) for odd in twins]
    with pytest.raises(ContractError, match="must differ by more than"): compare_predictions(*arms)


def test_cures_cure():
    "What a refusal tells to do is done, and the refusal is gone."
    short = {"id": [1, 2], "label": ["c", "a"], "probabilities": [{"a": 0.5, "b": 0.5}, {"a": 1, "b": 0}]}
    for labels in (None, ["a", "b", "c"]):
        with pytest.raises(ContractError, match="Give every row a probability for .*0 (where it|for one that) is ruled out"): Predictions.from_columns(short, labels=labels)
    full = Predictions.from_columns(short | {"probabilities": [{**row, "c": 0} for row in short["probabilities"]]})
    two = Predictions.from_columns(short | {"label": ["a", "b"]})
    with pytest.raises(PairingError, match="give every row one for each label of both arms"): compare_predictions(two, Predictions.from_columns({**short, "label": ["a", "b"], "probabilities": [{**row, "c": 0} for row in short["probabilities"]]}))
    assert full.labels == ("a", "b", "c")
    with pytest.raises(ContractError, match="Give every row the probabilities of all labels"): Predictions.from_columns({"id": [1], "label": ["a"], "probabilities": [{"a": 1.0}]})
    assert Predictions.from_columns({"id": [1], "label": ["a"], "probabilities": [{"a": 1.0, "b": 0.0}]}).n == 1


def test_near_misses_have_a_cure_of_their_own():
    for bad in (True, ["a"], {"a": 1}):
        with pytest.raises(ContractError, match="Write each id as one text or whole number"): Predictions.from_columns({**GOOD, "id": [bad, "b", "c"]})
    for name in ("probs", "prob", "probability", "Scores", "logits"):
        columns = {"id": [1, 2], "label": ["a", "b"], name: [{"a": 0.5, "b": 0.5}] * 2}
        with pytest.raises(ContractError, match=f"If '{name}' maps each label to its probability, rename it to 'probabilities', or write one column p:LABEL"): Predictions.from_columns(columns)
        assert "rename it to 'probabilities'" in Predictions.from_columns({**columns, "prediction": ["a", "a"]}).ignored[name]


def test_one_is_no_plural():
    one = Predictions.from_columns({"id": [1], "label": ["incorrect"], "prediction": ["correct"]}, labels=["correct", "incorrect"])
    said = evaluate(one, **FAST).sentence + compare_predictions(one, one, **FAST).sentence
    assert "of 1 probe:" in said and "1 of 1 probe that is 'incorrect' was called 'correct'" in said and "1 probes" not in said


def test_the_text_of_a_name_is_not_the_name():
    assert [slice_text(x) for x in (None, "", "(none)", "(empty)", '"(none)"', "past")] == ["(none)", "(empty)", '"(none)"', '"(empty)"', '""(none)""', "past"]
    right = [i % 4 != 2 or i < 8 for i in range(80)]
    e = evaluate(Predictions.from_columns({"id": range(80), "label": ["x", "y"] * 40, "prediction": ["xy"[(i + (not ok)) % 2] for i, ok in enumerate(right)], "s": [None, "(none)", "", "(empty)"] * 20}), **FAST)
    assert "worse than the rest where s = (empty)." in e.sentence


def test_what_is_no_table_is_refused():
    for bad in ([GOOD], "id", None):
        with pytest.raises(ContractError, match="columns by name"): Predictions.from_columns(bad)
    for columns in ({"id": {"a", "b", "c"}}, {"label": "xyx"}, {"label": b"xyx"}, {"prediction": {"x": 1, "y": 2, "z": 3}}, {"label": 1}, {"label": None}, {"confidence": np.ones((3, 1))},
                    {"confidence": np.float64(0.5)}, {"label": iter(["x", "y", "x"])}, {"confidence": np.ma.masked_array([0.5] * 3, [0, 1, 0])}):
        with pytest.raises(ContractError, match=f"column '{next(iter(columns))}' must be a sequence"): Predictions.from_columns(GOOD | columns)
    for name in (1, None, b"a", "\ud800", ("a",)):
        with pytest.raises(ContractError, match="the name of a column must be text"): Predictions.from_columns(GOOD | {name: [1, 1, 2]})
    for told in ({"slices": 1}, {"slices": {"tense"}}, {"slices": [["tense"]]}, {"places": 1}, {"places": "abc"}, {"places": [1, 2, 3]}, {"labels": np.array(3)}, {"labels": {"x", "y"}},
                 {"labels": {"x": 1, "y": 2}}, {"model": math.nan}, {"model": ["m"]}, {"checkpoint": b"c"}, {"tokenizer": "\ud800"}, {"where": 1}):
        with pytest.raises(ContractError): Predictions.from_columns({**GOOD, "tense": ["1", "1", "2"]}, **told)
    for labels in ("xy", ["x"], ["x", "x"], ["x", 2.0], [f"l{i}" for i in range(300)]):
        with pytest.raises(ContractError): Predictions.from_columns(GOOD, labels=labels)
    with pytest.raises(ContractError, match="must have one entry for each id"): Predictions(ids=("a",), labels=("x", "y"), labels_from="told", label=("x", "y"), prediction=("x",), confidence=None,
                probability=None, slices={}, samples=None, correct_samples=None, prompts=None, ignored={}, model="", checkpoint=None, tokenizer=None, places=("",))
    for missing in ({"value": None}, {"value": 0.5}, {"value": float("nan"), "reason": "so"}):
        with pytest.raises(ContractError): Estimate(**missing)


@pytest.mark.parametrize("change, said", [
    ({"level": 95}, "0.95"), ({"level": 1.0}, "strictly between"), ({"n_bins": 0}, "n_bins"), ({"n_bins": 10**6}, "n_bins"), ({"binning": "height"}, "binning"), ({"ambiguous": "ignore"}, "ambiguous"),
    ({"danger": "x:y"}, "pair"), ({"danger": ("x", "x")}, "mistake"), ({"danger": ("x", "z")}, "must be one of"), ({"k": 0}, "samples"), ({"multiplicity": "none"}, "multiplicity"), ({"seed": -1}, "seed"),
    ({"seed": 0.5}, "seed"), ({"replicates": 10}, "replicates"), ({"replicates": None}, "replicates"), ({"replicates": 10**7}, "replicates"), ({"ambiguous": "excluded"}, "excluded label")])
def test_senseless_settings_are_refused_before_the_work(change, said):
    with pytest.raises(ContractError, match=said): evaluate(Predictions.from_columns(GOOD), **change)
    with pytest.raises(ContractError, match=said): compare_predictions(Predictions.from_columns(GOOD), Predictions.from_columns(GOOD), **change)


@pytest.mark.parametrize("change, said", [
    ({"confidence": [0.5, 10**400, 0.5]}, "confidence must lie in [0, 1]; got 1000"), ({"p:x": [1, -10**400, 0], "p:y": [0, 1, 1]}, "the probability of 'x' must lie in [0, 1]; got -1000"),
    ({"prompt": ["p", math.nan, "r"]}, "got nan at line 2, column 'prompt'"), ({"prompt": ["p", "q", "r"], "text": ["p", Decimal("1.5"), "r"]}, "got Decimal('1.5') at line 2, column 'text'"),
    ({"prompt": ["p", datetime.date(2020, 1, 1), "r"]}, "at line 2, column 'prompt'"), ({"prompt": ["p", {"a": [math.nan]}, "r"]}, "got a dict at line 2, column 'prompt'"),
    ({"prompt": ["p", functools.reduce(lambda inner, _: [inner], range(5000), "deep"), "r"]}, "got a list at line 2, column 'prompt'"), ({"p:x": [0.333, 1, 0], "p:y": [0.333, 0, 1], "p:z": [0.333, 0, 0]}, "Write six digits or more")])
def test_what_no_column_can_mean_is_refused_with_its_place(change, said):
    columns = {name: column for name, column in GOOD.items() if name != "prediction" or "p:x" not in change} | change
    with pytest.raises(ContractError, match=re.escape(said)) as caught: Predictions.from_columns(columns, places=["line 1", "line 2", "line 3"])
    assert "line" in str(caught.value) and "\n" not in str(caught.value)


def test_settings_beyond_sense_are_refused_in_one_line():
    p, q = Predictions.from_columns(GOOD), Predictions.from_columns({**GOOD, "prediction": ["y", "y", "x"]})
    for level in (1e-160, 1e-10, 0.4999, 0.99991, 1 - 2**-53):
        with pytest.raises(ContractError, match="level must be between 0.5 and 0.9999"): evaluate(p, level=level)
        with pytest.raises(ContractError, match="level must be between 0.5 and 0.9999"): compare_predictions(p, q, level=level)
    for margin in (5e-324, 1e-170, 0.99e-4, 0.51, 0.999999):
        with pytest.raises(ContractError, match="margin must be between 0.0001 and 0.5"): compare_predictions(p, q, margin=margin)
    for level in (0.5, 0.9999):
        for margin in (1e-4, 0.5): compare_predictions(p, q, level=level, margin=margin, replicates=20_000)
    for other in (None, GOOD, 1, evaluate(p)):
        with pytest.raises(ContractError, match="must be Predictions"): evaluate(other)
        with pytest.raises(ContractError, match="candidate must be Predictions"): compare_predictions(p, other)
        with pytest.raises(ContractError, match="baseline must be Predictions"): compare_predictions(other, p)
    with pytest.raises(ContractError) as caught: evaluate(p, replicates=20)
    assert "replicates=None is exact" not in str(caught.value) and "between 40 and" in str(caught.value)
    for label in ("\ud800", "", None, 1.5):
        with pytest.raises(ContractError, match="ambiguous_label"): evaluate(p, ambiguous_label=label)


def test_tries_may_be_any_sequence():
    p = Predictions.from_columns({**GOOD, "samples": [5] * 3, "correct_samples": [1, 2, 0]})
    for k in (range(1, 4), np.array([1, 2, 3]), [3, 2, 1], (1, np.int64(2), 3)): assert evaluate(p, k=k, **FAST).settings["k"] == [1, 2, 3]
    for k in (np.int64(2), np.array(2), 2): assert evaluate(p, k=k, **FAST).settings["k"] == [2]
    for k in ("12", {1, 2}, [1.5], np.ones((2, 2))):
        with pytest.raises(ContractError, match="k must be"): evaluate(p, k=k)


def test_six_digits_are_enough_for_any_number_of_labels():
    for C in (3, 4, 10, 40):
        p = np.round(np.random.default_rng(C).dirichlet(np.ones(C), 3000), 6)
        columns = {"id": range(3000), "label": ["l0"] * 3000, **{f"p:l{c}": p[:, c] for c in range(C)}}
        np.testing.assert_array_equal(Predictions.from_columns(columns, labels=[f"l{c}" for c in range(C)]).probability[:9], p[[int(i) for i in sorted(map(str, range(3000)))[:9]]])  # as they are
        with pytest.raises(ContractError, match="the digits they have"): Predictions.from_columns({**columns, "p:l0": np.minimum(1, p[:, 0] + 2.1e-5)})


def brain(p): return (np.asarray(p, dtype=np.float32).view(np.uint32) + 0x7FFF + ((np.asarray(p, dtype=np.float32).view(np.uint32) >> 16) & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("C", [2, 3, 10, 60])
@pytest.mark.parametrize("shorten", [lambda p: p.round(2), lambda p: p.round(3), lambda p: p.round(5), lambda p: p.round(3).astype(np.float32), lambda p: p.astype(np.float16), brain,
                                     lambda p: np.vectorize(as_printed)(p.astype(np.float16)), lambda p: np.vectorize(as_printed)(brain(p))],
                         ids=["two", "three", "five", "three of float32", "float16", "bfloat16", "float16 as float32 prints it", "bfloat16 as float32 prints it"])
def test_rounding_is_normalised_and_nothing_else(C, shorten):
    "Every row of few digits is taken when asked, in any order of columns with equal bytes; a label of 2 per cent left out of full digits never is."
    p = shorten(np.random.default_rng(C).dirichlet(np.full(C, 2.0), 150))
    read = lambda order, **how: Predictions.from_columns({"id": range(len(p)), "label": ["l0"] * len(p), **{f"p:l{c}": p[:, c].astype(float) for c in order}}, **how)
    far = np.abs(p.sum(axis=1, dtype=float) - 1) > 0.05
    if far.any():  # two digits of sixty labels may add up to anything
        with pytest.raises(ContractError, match="A label is missing"): read(range(C), normalize=True)
    p = p[~far]
    assert len(p) > 20
    one, two = read(range(C), normalize=True), read(np.random.default_rng(1).permutation(C), normalize=True)
    assert one.probability.tobytes() == two.probability.tobytes() and one.labels == two.labels and one.normalized == two.normalized
    told = read(range(C), normalize=True, labels=[f"l{c}" for c in reversed(range(C))])
    assert told.relabelled(one.labels).probability.tobytes() == one.probability.tobytes()
    np.testing.assert_allclose(one.probability.sum(axis=1), 1, atol=0.51e-6 * C)
    if one.normalized:
        with pytest.raises(ContractError, match="pass normalize=True"): read(range(C))
    whole = np.random.default_rng(C).dirichlet(np.full(C, 2.0), 20) * 0.98
    for how in ({}, {"normalize": True}):
        with pytest.raises(ContractError, match="A label is missing"):
            Predictions.from_columns({"id": range(20), "label": ["l0"] * 20, **{f"p:l{c}": whole[:, c] for c in range(C)}}, **how)


def test_a_sum_is_the_sum_that_was_written():
    "0.499 of 0.998 is one half: in the bin it belongs to, in every order of the labels."
    for order in itertools.permutations("abcd"):
        row = {"a": 0.499, "b": 0.031, "c": 0.4, "d": 0.068}
        found = Predictions.from_columns({"id": ["1"], "label": ["a"], **{f"p:{c}": [row[c]] for c in order}}, normalize=True)
        assert found.confidence[0] == 0.5 and found.labels == ("a", "b", "c", "d")
    with pytest.raises(ContractError, match="normalize must be True or False"): Predictions.from_columns({"id": ["1"], "label": ["a"], "prediction": ["a"]}, normalize="no")


def test_no_order_of_keys_columns_or_rows_changes_a_byte():
    rng = np.random.default_rng(7)
    p, truth = rng.dirichlet(np.ones(4), 120).round(9), rng.integers(0, 4, 120)
    names = ["d", "b", "10", "9"]
    found = []
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        rows = [dict(zip([names[c] for c in order], p[i, list(order)].tolist(), strict=True)) for i in range(120)]
        found.append(evaluate(Predictions.from_columns({"id": range(120), "label": [names[c] for c in truth], "probabilities": rows}), replicates=60))
    assert canonical_json(found[0].to_dict()) == canonical_json(found[1].to_dict()) and found[0].labels == ("9", "10", "b", "d")


def test_tries_of_different_probes_are_not_subtracted():
    columns = lambda drawn: {"id": range(4), "label": list("xyxy"), "prediction": list("xyxy"), "samples": drawn, "correct_samples": [None if d is None else 2 for d in drawn]}
    arms = [Predictions.from_columns(columns(drawn)) for drawn in ([5, 5, None, 5], [5, None, 5, 5])]
    row = compare_predictions(*arms).difference("pass@1")
    assert row.delta is None and "different probes" in row.reason and row.baseline == row.candidate == pytest.approx(0.4)
    assert compare_predictions(arms[0], arms[0]).difference("pass@1").delta == 0


# --- what a verdict promises ----------------------------------------------------------------------------------------------------------
def equal_models(n, rng):
    "Two noisy views of one forecast: exchangeable on every probe, and drawn otherwise than on the page."
    base = rng.dirichlet(np.full(3, rng.choice([0.5, 1, 2])), n) + 1e-12
    truth = np.array([rng.choice(3, p=row / row.sum()) for row in base])
    out = []
    for _ in range(2):
        z = np.log(base) * rng.uniform(0.6, 1.8, (n, 1)) + rng.normal(0, 0.6, base.shape)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        out.append(p / p.sum(axis=1, keepdims=True))
    return truth, out


def verdicts(n, R, seed):
    "Share of R comparisons of equal models that say improved or regressed, and the share of raw p-values at most 0.05 by metric."
    rng, wrong, low, labels = np.random.default_rng(seed), 0, dict.fromkeys(HEADLINE, 0), ("correct", "incorrect", "z")
    for k in range(R):
        truth, arms = equal_models(n, rng)
        c = compare_predictions(*(Predictions.from_columns({"id": range(n), "label": [labels[i] for i in truth], **{f"p:{name}": p[:, j] for j, name in enumerate(labels)}}) for p in arms),
                                seed=k, replicates=40)
        wrong += c.verdict != "noise"
        for row in c.differences: low[row.metric] = low.get(row.metric, 0) + (row.p_value is not None and row.p_value <= 0.05)
    return wrong / R, {name: count / R for name, count in low.items()}


def calibrated_arms(n, rng):
    "Both exactly calibrated with equal true accuracy: the baseline sure of 0.75, the candidate of anything from 0.5 to 1; not exchangeable."
    truth, out = rng.integers(0, 2, n), []
    for sure in (np.full(n, 0.75), rng.uniform(0.5, 1, n)): out.append((truth, np.where(rng.random(n) < sure, truth, 1 - truth), sure))
    return out


def noisy_arms(n, rng):
    "Exchangeable on every probe."
    truth, q = rng.integers(0, 2, n), rng.uniform(0.05, 0.95, n)
    came, out = rng.random(n) < q, []
    for _ in range(2):
        p = 1 / (1 + np.exp(-np.log(q / (1 - q)) * rng.uniform(0.6, 1.8, n) - rng.normal(0, 0.6, n)))
        out.append((truth, np.where((p >= 0.5) == came, truth, 1 - truth), np.maximum(p, 1 - p)))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("world", [noisy_arms, calibrated_arms])
@pytest.mark.parametrize("n", [100, 300])
def test_equally_calibrated_arms_seldom_regress(world, n):
    R, rng, wrong, low = 300, np.random.default_rng(n), 0, 0
    for k in range(R):
        files = [Predictions.from_columns({"id": range(n), "label": ["ab"[i] for i in truth], "prediction": ["ab"[i] for i in said], "confidence": sure}) for truth, said, sure in world(n, rng)]
        c = compare_predictions(*files, seed=k, replicates=200)
        wrong, low = wrong + (c.verdict == "regressed"), low + (c.difference("ece").p_value <= 0.05)
    bound = 0.05 + 4 * math.sqrt(0.05 * 0.95 / R)
    assert wrong / R <= bound and low / R <= bound, (wrong / R, low / R, bound)


def test_equal_models_are_seldom_told_apart():
    wrong, low = verdicts(30, 40, 1)
    assert max(wrong, *low.values()) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 40)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 60, 100])
def test_equal_models_are_told_apart_in_at_most_one_of_twenty(n):
    R = 400
    wrong, low = verdicts(n, R, n)
    bound = 0.05 + 4 * math.sqrt(0.05 * 0.95 / R)
    print(f"n = {n}: verdict other than noise {wrong:.3f}, p at most 0.05: {low}; bound {bound:.3f}")
    assert wrong <= bound and max(low.values()) <= bound


def test_excluding_all_probes_is_refused():
    p = Predictions.from_columns({"id": ["a"], "label": ["ambiguous"], "prediction": ["correct"]}, labels=["ambiguous", "correct"])
    with pytest.raises(ContractError, match="a probe must be left"): evaluate(p, ambiguous="excluded")
    for margin in (0, 1, -0.1, "2%", math.nan):
        with pytest.raises(ContractError, match="margin"): compare_predictions(p, p, margin=margin)


@pytest.mark.parametrize("change, said", [
    ({"id": ["a", "b", "d"]}, r"'c' \(baseline index 2\) missing from the candidate \(1 of 3 are\)"), ({"label": ["x", "x", "x"]}, "same true label; got 'y'"),
    ({"prompt": ["p", "q", "R"]}, "another prompt for probe 'c'"), ({"prompt": None}, "prompts in the baseline only"), ({"tense": ["1", "1", "2"]}, "same value of 'tense'; got '2'"),
    ({"tense": None}, "'tense' in the baseline only. Add the column"),
    ({"tense": ["1", "1", "1"]}, "'tense' in the baseline only: the other file's column has one value only. Name the slices"), ({"tokenizer": ["t2"] * 3}, "'t1' and 't2'"), ({"prediction": ["x", "y", "z"], "labels": None}, "choose among the same labels; got 'z'")])
def test_arms_that_answered_different_tests_are_refused(change, said):
    base = {**GOOD, "tense": ["1", "2", "2"], "prompt": ["p", "q", "r"], "tokenizer": ["t1"] * 3}
    labels = change.pop("labels", ["x", "y"])
    candidate = {name: column for name, column in {**base, **change}.items() if column is not None}
    with pytest.raises(PairingError, match=said): compare_predictions(Predictions.from_columns(base, labels=["x", "y"]), Predictions.from_columns(candidate, labels=labels))


def test_too_many_tries_name_the_arm_that_lacks_samples():
    few, many = ({**GOOD, "samples": [n] * 3, "correct_samples": [1, 2, 0]} for n in (4, 8))
    for pair, name in (((few, many), "baseline"), ((many, few), "candidate")):
        with pytest.raises(ContractError, match=f"compare_predictions, {name}: k must not exceed .*; got k = 5, 4 samples of 'a'"):
            compare_predictions(*map(Predictions.from_columns, pair), k=5)


def test_an_accuracy_that_stays_is_not_equivalence_where_the_danger_may_have_risen():
    "2000 probes, 20 of them incorrect: five more of those are praised, five others repaired."
    n, label = 2000, ["incorrect"] * 20 + ["correct"] * 1980
    before = ["incorrect"] * 20 + ["correct"] * 1975 + ["incorrect"] * 5
    after = ["correct"] * 5 + ["incorrect"] * 15 + ["correct"] * 1980
    c = compare_predictions(*(Predictions.from_columns({"id": list(range(n)), "label": label, "prediction": said}) for said in (before, after)), **FAST)
    low, high = c.difference("accuracy").interval.low, c.difference("accuracy").interval.high
    assert c.difference("danger").delta == 0.25 and -0.02 < low < high < 0.02
    assert (c.verdict, c.noise_kind, c.probes_to_settle) == ("noise", "inconclusive", None)
    assert c.sentence.startswith("Undecided: the accuracy is equivalent") and "danger cell (+25.0 points [+" in c.sentence


def test_a_loss_of_less_than_a_tenth_of_a_point_has_no_sign():
    arms = [Predictions.from_columns({"id": range(3000), "label": ["x", "y"] * 1500, "prediction": ["x", "y"] * 1499 + ["x", last]}) for last in "yx"]
    found = compare_predictions(*arms, **FAST)
    assert found.difference("accuracy").delta < 0 and "+0.0 points" in found.sentence and "-0.0 " not in found.sentence


def test_a_difference_that_no_resample_changes_has_no_interval():
    "All right, one arm a little less sure of each."
    arms = [Predictions.from_columns({"id": list(range(60)), "label": ["x", "y"] * 30, "p:x": [sure, 1 - sure] * 30, "p:y": [1 - sure, sure] * 30}) for sure in (0.98, 0.86)]
    c = compare_predictions(*arms, **FAST)
    row = c.difference("brier")
    assert row.delta > 0 and row.interval is None and "every resample of these probes is the same" in row.reason and row.p_value < 0.001 and "interval" not in row.test
    row = c.difference("ece")  # sixty right answers leave room for wrong ones in either arm
    e = beta(0.5, 60.5)
    assert row.delta == pytest.approx(0.12) and [row.interval.low, row.interval.high] == pytest.approx([0.12 - 2 * e.ppf(0.975), 0.02 + 0.14]) and row.reason is None and row.p_value == pytest.approx(max(2 / 101, 2 * e.sf(0.06)), rel=1e-6)
    assert c.verdict == "regressed" and json.dumps(c.to_dict(), allow_nan=False)
    near = Predictions.from_columns({"id": list(range(60)), "label": ["x", "y"] * 30, "p:x": [0.979, 0.021] * 30, "p:y": [0.021, 0.979] * 30})
    near = compare_predictions(arms[0], near, margin=0.1, **FAST)  # below the margin, but nothing says by how much on other probes
    assert (near.verdict, near.noise_kind) == ("noise", "inconclusive") and near.difference("accuracy").interval.inside(-0.1, 0.1) and "may have moved by that or more" in near.sentence
    same = compare_predictions(arms[0], arms[0], margin=0.1, **FAST)
    assert (same.verdict, same.noise_kind) == ("noise", "equivalent") and same.difference("brier").interval is None


def test_a_p_value_that_is_the_threshold_convinces():
    "Fisher: 0 of 2 against 3 of 3 is p = 0.1; 1 - 0.9 is a little less in floats."
    p = Predictions.from_columns({"id": list(range(5)), "label": ["x", "x", "y", "x", "y"], "prediction": ["y", "y", "y", "x", "y"], "place": ["a", "a", "b", "b", "b"]})
    assert [row.flag for row in evaluate(p, level=0.9, **FAST).slices] == ["differs from the rest"] * 2
    assert [row.flag for row in evaluate(p, level=0.91, **FAST).slices] == ["within noise"] * 2


@pytest.mark.parametrize("nothing", [None, math.nan, np.nan])
def test_nothing_in_a_slice_is_a_value_of_it(nothing):
    p = Predictions.from_columns({**GOOD, "tense": ["a", nothing, "a"]})
    assert p.slices == {"tense": ("a", None, "a")}


def test_single_precision_says_what_the_same_numbers_say_in_text():
    "However float32 comes in, 0.7 lies in the bin of 0.7."
    pandas, torch, pyarrow = map(pytest.importorskip, ("pandas", "torch", "pyarrow"))
    sure = np.random.default_rng(3).choice([0.6, 0.7, 0.75, 1 / 3], 80)
    columns = lambda p, q: {"id": list(range(80)), "label": ["x", "y"] * 40, "p:x": p, "p:y": q}
    short, other = np.float32(sure), np.float32(1 - sure)
    text = lambda values: [float(cell) for cell in values.astype(str)]
    told = evaluate(Predictions.from_columns(columns(text(short), text(other))), **FAST).to_dict()
    assert told["reliability"]["count"][7] == ((sure == 0.7) | (sure == 0.75)).sum()
    frame = pandas.DataFrame(columns(short, other))
    ways = {"numpy": columns(short, other), "scalars": columns(list(short), list(other)), "tensor": columns(torch.tensor(short), torch.tensor(other)), "pandas": frame,
            "nullable": frame.convert_dtypes(), "arrow": columns(pyarrow.array(short), pyarrow.chunked_array([other])), "arrow in pandas": frame.convert_dtypes(dtype_backend="pyarrow"),
            "probabilities": {"id": list(range(80)), "label": ["x", "y"] * 40, "probabilities": [{"x": a, "y": b} for a, b in zip(short, other, strict=True)]}}
    for way, told_so in ways.items():
        assert evaluate(Predictions.from_columns(told_so), **FAST).to_dict() == told, way
    wide = evaluate(Predictions.from_columns(columns(short.astype(float), other.astype(float))), **FAST).to_dict()
    assert wide["reliability"]["count"][7] == (sure == 0.75).sum()  # float64 is taken at its word


@pytest.mark.parametrize("margin", [0.01, 0.02, 0.15, 0.3])
@pytest.mark.parametrize("said", ["ab", "aabb", "aaabbb"])
def test_arms_that_differ_on_every_probe_are_undecided(said, margin):
    arm = lambda said: Predictions.from_columns({"id": list(range(len(said))), "label": ["a"] * len(said), "prediction": list(said)}, labels=["a", "b"])
    c = compare_predictions(arm(said), arm(said[::-1]), margin=margin, **FAST)
    assert (c.verdict, c.noise_kind) == ("noise", "inconclusive") and (c.probes_to_settle is None or c.probes_to_settle > len(said))


def test_nothing_of_a_data_frame_is_nothing():
    pandas = pytest.importorskip("pandas")
    for column in (pandas.Series(["a", pandas.NA, "a"], dtype="string"), pandas.Series(["a", None, "a"]), pandas.Series([pandas.NaT, "a", "a"], dtype=object)):
        frame = pandas.DataFrame({**GOOD, "tense": column})
        assert sorted(map(str, Predictions.from_columns(frame).slices["tense"])) == ["None", "a", "a"]


@pytest.mark.parametrize("names, cure", [
    (("sample_id", "target", "pred"), "Did you mean 'sample_id', 'target' and 'pred'? Rename them to 'id', 'label' and 'prediction'."), (("id", "y_true", "y_pred"), "Did you mean 'y_true' and 'y_pred'? Rename them to 'label' and 'prediction'."),
    (("id", "label", "pred"), "Did you mean 'pred'? Rename it to 'prediction'."), (("doc_id", "label", "prediction"), "Did you mean 'doc_id'? Rename it to 'id'."), (("number", "label", "prediction"), "Add it.")])
def test_columns_under_the_names_of_other_tools(names, cure):
    with pytest.raises(ContractError) as told: Predictions.from_columns(dict(zip(names, GOOD.values(), strict=True)))
    assert str(told.value).endswith(cure)


def test_a_column_that_may_be_the_confidence_says_so():
    p = Predictions.from_columns({**GOOD, "score": [0.5, 0.75, 0.9]})
    assert p.ignored["score"].endswith("rename it to 'confidence'") and p.confidence is None
    for other in ([0.5, 7.5, 0.9], [1, 0, 1], ["0.5", "x", "y"]):
        assert "confidence" not in Predictions.from_columns({**GOOD, "score": other}).ignored["score"]
    assert "confidence" not in Predictions.from_columns({**GOOD, "score": [0.5, 0.75, 0.9], "confidence": [0.5, 0.75, 0.9]}).ignored["score"]


def test_one_more_probe_in_the_candidate_is_named():
    more = {name: [*column, last] for (name, column), last in zip(GOOD.items(), ("d", "x", "y"), strict=True)}
    with pytest.raises(PairingError, match=r"'d' \(candidate index 3\) missing from the baseline \(1 of 4 are\)"): compare_predictions(Predictions.from_columns(GOOD), Predictions.from_columns(more))


def test_probabilities_that_were_rounded_are_used_as_they_are():
    p = Predictions.from_columns({"id": ["a", "b"], "label": ["x", "y"], "p:x": [0.333333, 0.9], "p:y": [0.333333, 0.0999995], "p:z": [0.333333, 0.0]})
    assert p.probability[0].tolist() == [0.333333] * 3 and p.probability[1, 1] == 0.0999995


# --- many rows ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_hundred_thousand_probes():
    n, rng = 100_000, np.random.default_rng(0)
    p = rng.dirichlet((1, 1, 1), n) / 2 + np.eye(3)[rng.integers(0, 3, n)] / 2
    columns = {"id": range(n), "label": [("x", "y", "z")[i] for i in rng.integers(0, 3, n)], **{f"p:{label}": p[:, c] for c, label in enumerate("xyz")}, "tense": rng.integers(0, 5, n)}
    c = compare_predictions(Predictions.from_columns(columns), Predictions.from_columns(shuffled(columns, 1)))
    assert c.verdict == "noise" and c.noise_kind == "equivalent" and c.probes_to_settle is None
