"""Confusion matrix and its rates against scikit-learn and against counting by hand; intervals against simulation; every 0/0 stays one."""
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from invar_nb.foundations.numbers import ContractError
from invar_nb.probes.confusion import AMBIGUOUS, RATES, confusion_matrix, danger_cell, precision_recall_f1, score_interval

metrics = pytest.importorskip("sklearn.metrics")
statsmodels = pytest.importorskip("statsmodels.stats.proportion")
LABELS = ("correct", "incorrect", "ambiguous")

tables = st.integers(1, 5).flatmap(lambda c: st.lists(st.lists(st.integers(0, 9), min_size=c, max_size=c), min_size=c, max_size=c)).map(np.array)


def by_hand(M):
    "Rates as fractions, None where the denominator is 0, by looking at probe after probe."
    C = len(M)
    probes = [(j, k) for j in range(C) for k in range(C) for _ in range(M[j][k])]
    out = []
    for c in range(C):
        named, real = [p for p in probes if p[1] == c], [p for p in probes if p[0] == c]
        hits = sum(p == (c, c) for p in probes)
        either = len(named) + len(real)
        out.append([Fraction(a, b) if b else None for a, b in ((hits, len(named)), (hits, len(real)), (2 * hits, either))])
    return out


@settings(max_examples=200, deadline=None)
@given(tables)
def test_rates_are_their_definition(M):
    scores = precision_recall_f1(M)
    for c, fractions in enumerate(by_hand(M)):
        for rate, fraction in zip(RATES, fractions, strict=True):
            value, interval = getattr(scores, rate)[c], getattr(scores, f"{rate}_interval")[c]
            if fraction is None: assert math.isnan(value) and interval is None and any(rate in s and repr(str(c)) in s for s in scores.undefined)
            else: assert value == pytest.approx(float(fraction), rel=1e-14, abs=0) and interval.low <= value + 1e-15 and value <= interval.high + 1e-15
    assert len(scores.undefined) == sum(f is None for row in by_hand(M) for f in row)
    assert scores.table().count("undefined (0/0)") == len(scores.undefined)


@settings(max_examples=100, deadline=None)
@given(tables)
def test_means_are_their_definition(M):
    scores, hand, support = precision_recall_f1(M), by_hand(M), M.sum(axis=1)
    for r, rate in enumerate(RATES):
        column = [row[r] for row in hand]
        defined = [x for x in column if x is not None]
        def check(value, expected):
            if expected is None: assert math.isnan(value)
            else: assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-15)
        check(scores.macro(rate), None if len(defined) < len(column) else sum(column) / len(column))
        check(scores.macro(rate, undefined="skip"), sum(defined) / len(defined) if defined else None)
        check(scores.macro(rate, undefined="zero"), sum(defined) / Fraction(len(column)))
        weighed = [(x, int(n)) for x, n in zip(column, support, strict=True) if n]
        total = sum(n for _, n in weighed)
        check(scores.weighted(rate), None if not total or any(x is None for x, _ in weighed) else sum(x * n for x, n in weighed) / total)
        check(scores.weighted(rate, undefined="zero"), sum((x or 0) * n for x, n in weighed) / Fraction(total) if total else None)
        some = [(x, n) for x, n in weighed if x is not None]
        check(scores.weighted(rate, undefined="skip"), sum(x * n for x, n in some) / sum(n for _, n in some) if some else None)
    if M.sum(): assert scores.weighted_recall == pytest.approx(scores.accuracy, rel=1e-12)
    assert [scores.macro_precision, scores.macro_recall, scores.macro_f1, scores.weighted_precision, scores.weighted_recall, scores.weighted_f1] == pytest.approx(
        [f(r) for f in (scores.macro, scores.weighted) for r in RATES], nan_ok=True)


def test_scikit_learn_on_generated_labels():
    rng = np.random.default_rng(0)
    for _ in range(150):
        C, n = int(rng.integers(2, 7)), int(rng.integers(2, 200))
        names = [f"c{i}" for i in rng.permutation(C)]
        t, p = (rng.choice(names, size=n, p=rng.dirichlet(np.full(C, 0.6))) for _ in range(2))
        if len({*t, *p}) == 1: continue  # the referee warns there
        M = confusion_matrix(t, p, names)
        np.testing.assert_array_equal(M, metrics.confusion_matrix(t, p, labels=names))
        scores = precision_recall_f1(M, names)
        for average in (None, "macro", "weighted"):
            theirs = metrics.precision_recall_fscore_support(t, p, labels=names, average=average, zero_division=0.0)
            for rate, expected in zip(RATES, theirs[:3], strict=True):
                ours = np.nan_to_num(getattr(scores, rate)) if average is None else getattr(scores, average)(rate, undefined="zero")
                np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(scores.support, metrics.precision_recall_fscore_support(t, p, labels=names, zero_division=0.0)[3])
        assert scores.accuracy == pytest.approx(metrics.accuracy_score(t, p), rel=1e-14)
        np.testing.assert_allclose(np.nan_to_num(scores.f1), metrics.f1_score(t, p, labels=names, average=None, zero_division=0.0), rtol=1e-12)


def test_intervals_against_statsmodels():
    rng = np.random.default_rng(1)
    for level in (0.8, 0.95, 0.99):
        M = rng.integers(0, 40, size=(4, 4))
        scores = precision_recall_f1(M, level=level)
        for c in range(4):
            tp, col, row = M[c, c], M[:, c].sum(), M[c].sum()
            for interval, trials, f in ((scores.precision_interval[c], col, lambda x: x), (scores.recall_interval[c], row, lambda x: x),
                                        (scores.f1_interval[c], col + row - tp, lambda x: 2 * x / (1 + x))):
                expected = statsmodels.proportion_confint(tp, trials, alpha=1 - level, method="wilson")
                np.testing.assert_allclose([interval.low, interval.high], [f(x) for x in expected], rtol=1e-10)
                assert interval.level == level
        expected = statsmodels.proportion_confint(np.trace(M), M.sum(), alpha=1 - level, method="wilson")
        np.testing.assert_allclose([scores.accuracy_interval.low, scores.accuracy_interval.high], expected, rtol=1e-10)


@pytest.mark.parametrize("world, n", [([[0.5, 0.1], [0.05, 0.35]], 60), ([[0.7, 0.02, 0.03], [0.05, 0.1, 0.02], [0.02, 0.02, 0.04]], 150)])
def test_f1_intervals_cover(world, n):
    "Every class, 1500 tables each: coverage within binomial noise of the level, or above it for rare classes."
    world, rng, trials = np.array(world), np.random.default_rng(2), 1500
    truth = [2 * world[c, c] / (world[c].sum() + world[:, c].sum()) for c in range(len(world))]
    inside, seen = np.zeros(len(world)), np.zeros(len(world))
    for cells in rng.multinomial(n, world.ravel(), size=trials):
        found = precision_recall_f1(cells.reshape(world.shape)).f1_interval
        for c, interval in enumerate(found):
            if interval is not None: seen[c] += 1; inside[c] += interval.low <= truth[c] <= interval.high
    assert (seen > 0.99 * trials).all()
    assert (inside / seen > 0.95 - 4 * math.sqrt(0.05 * 0.95 / trials)).all() and (inside / seen < 0.99).all()


def test_bootstrap_of_a_mean():
    M = np.array([[48, 6, 3], [4, 34, 2], [5, 3, 9]])
    value = precision_recall_f1(M).macro_f1
    for method in ("bca", "percentile", "expanded"):
        interval = score_interval(M, "f1", "macro", seed=0, method=method)
        assert interval.contains(value) and interval.method == method and interval.engine == "monte_carlo" and 0.05 < interval.width < 0.3
        assert score_interval(M, "f1", "macro", seed=0, method=method) == interval != score_interval(M, "f1", "macro", seed=1, method=method)
    recall = score_interval(M, "recall", 0, seed=0, replicates=4000)
    wilson = precision_recall_f1(M).recall_interval[0]
    assert abs(recall.low - wilson.low) < 0.03 and abs(recall.high - wilson.high) < 0.03
    weighted = score_interval(M, "recall", "weighted", seed=0, method="percentile", replicates=4000)
    accuracy = precision_recall_f1(M).accuracy_interval
    assert abs(weighted.low - accuracy.low) < 0.02 and abs(weighted.high - accuracy.high) < 0.02
    two = score_interval(M, "recall", "macro", seed=0, classes=(0, 1))
    assert two.contains(precision_recall_f1(M, means_over=("0", "1")).macro_recall) and two != score_interval(M, "recall", "macro", seed=0)
    perfect = score_interval([[50, 0], [0, 70]], "f1", "macro", seed=0)
    assert perfect.fallback.code == "all_equal" and perfect.width == 0 and perfect.engine == "point"
    assert score_interval([[1, 0], [0, 0]], "f1", 0, seed=0).fallback.code == "single_pair"


def test_bca_by_hand_from_drawn_tables():
    M, n = np.array([[20, 3], [1, 9]]), 33
    def f1(m): return np.mean([2 * m[c, c] / (m[c].sum() + m[:, c].sum()) for c in range(2)])
    star = np.array([f1(t.reshape(2, 2)) for t in np.random.default_rng(4).multinomial(n, M.ravel() / n, size=300)])
    left = []
    for j, k in ((j, k) for j in range(2) for k in range(2) for _ in range(M[j, k])):
        one_less = M.copy()
        one_less[j, k] -= 1
        left.append(f1(one_less))
    u = np.mean(left) - np.array(left)
    acceleration, bias = np.sum(u**3) / (6 * np.sum(u**2) ** 1.5), norm.ppf(np.mean(star < f1(M)) + np.mean(np.isclose(star, f1(M), rtol=1e-12)) / 2)
    assert abs(acceleration) > 0.01
    cuts = [norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in norm.ppf([0.05, 0.95])]
    found = score_interval(M, "f1", "macro", seed=4, replicates=300, level=0.9)
    np.testing.assert_allclose([found.low, found.high], np.quantile(star, cuts), rtol=0, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=40), st.randoms(use_true_random=False))
def test_policies_permutations_and_renaming(probes, random):
    true, said = [t for t, _ in probes], [p for _, p in probes]
    own, excluded = (confusion_matrix(true, said, LABELS, ambiguous=x) for x in AMBIGUOUS)
    assert own.sum() == len(probes) and excluded.sum() == sum(t != "ambiguous" for t in true)
    np.testing.assert_array_equal(excluded[:2], own[:2])
    assert not excluded[2].any() and excluded.shape == own.shape == (3, 3)
    shuffled = random.sample(probes, len(probes))
    np.testing.assert_array_equal(confusion_matrix([t for t, _ in shuffled], [p for _, p in shuffled], LABELS), own)
    new = dict(zip(LABELS, ("x", "y", "z"), strict=True))
    np.testing.assert_array_equal(confusion_matrix([new[t] for t in true], [new[p] for p in said], ("x", "y", "z")), own)
    np.testing.assert_array_equal(confusion_matrix(said, true, LABELS), own.T)
    np.testing.assert_array_equal(confusion_matrix(true, said, LABELS[::-1]), own[::-1, ::-1])
    named = confusion_matrix([new[t] for t in true], [new[p] for p in said], ("x", "y", "z"), ambiguous="excluded", ambiguous_label="z")
    np.testing.assert_array_equal(named, excluded)
    cell = danger_cell(own, LABELS)
    assert cell.count == sum(x == ("incorrect", "correct") for x in probes)
    for value, interval, trials in ((cell.of_true, cell.of_true_interval, true.count("incorrect")), (cell.of_predicted, cell.of_predicted_interval, said.count("correct"))):
        if trials: assert value == cell.count / trials and interval.contains(value)
        else: assert math.isnan(value) and interval is None


def test_one_class_empty_tables_and_integer_labels():
    assert confusion_matrix([], [], LABELS).sum() == 0
    empty = precision_recall_f1(np.zeros((3, 3), int), LABELS)
    assert len(empty.undefined) == 9 and math.isnan(empty.accuracy) and empty.accuracy_interval is None and math.isnan(empty.weighted_f1)
    one = precision_recall_f1(confusion_matrix([7, 7], [7, 7], [7]), [7])
    assert one.labels == ("7",) and one.f1[0] == one.accuracy == 1 and one.f1_interval[0].high == 1.0
    never = precision_recall_f1([[0, 5], [0, 5]])
    assert math.isnan(never.precision[0]) and never.recall[0] == 0 and never.f1[0] == 0 and never.recall_interval[0].low == 0.0
    with pytest.raises(ValueError): never.recall[0] = 1


@pytest.mark.parametrize("call, words", [
    (lambda: confusion_matrix(["a", "b", "c"], ["a", "b", "a"], ["a", "b"]), "true labels.*'c' at row 2"),
    (lambda: confusion_matrix(["a", "b"], ["a", "B"], ["a", "b"]), "predicted labels.*'B' at row 1.*Did you mean 'b'"),
    (lambda: confusion_matrix(["a"], [], ["a"]), "1 true and 0 predicted"),
    (lambda: confusion_matrix(["a"], ["a"], []), "no label"),
    (lambda: confusion_matrix(["a"], ["a"], ["a", "b", "a"]), "different"),
    (lambda: confusion_matrix("aab", "aab", ["a", "b"]), "sequence of names"),
    (lambda: confusion_matrix(["a", math.nan], ["a", "a"], ["a"]), "nan at index 1"),
    (lambda: confusion_matrix(["a"], ["a"], ["a"], ambiguous="excluded"), "ambiguous_label="),
    (lambda: precision_recall_f1([[1, math.nan], [0, 1]]), r"counts.*\(0, 1\)"),
    (lambda: precision_recall_f1([[True, False], [False, True]]), "counts"),
    (lambda: precision_recall_f1([["1", "2"], ["3", "4"]]), "counts"),
    (lambda: precision_recall_f1([]), "square"),
    (lambda: precision_recall_f1([[1, 2], [3, 4]], level=95), "0.95"),
    (lambda: precision_recall_f1([[1, 2], [3, 4]], ["a", "b"], means_over=["c"]), "means_over"),
    (lambda: precision_recall_f1([[1, 2], [3, 4]]).macro("recall", undefined="ignore"), "propagate"),
    (lambda: danger_cell([[1, 2], [3, 4]], ["a", "b"]), "true must be one of"),
    (lambda: score_interval(np.zeros((2, 2), int), seed=0), "a probe"),
    (lambda: score_interval([[3, 1], [1, 3]], "f1", True, seed=0), "class number"),
    (lambda: score_interval([[3, 1], [1, 3]], "f1", "micro", seed=0), "'macro'"),
    (lambda: score_interval([[3, 1], [1, 3]], "recall", "macro", seed=0, classes=(5,)), "class numbers"),
    (lambda: score_interval([[3, 0], [0, 0]], "recall", "macro", seed=0), "must be defined"),
    (lambda: score_interval([[30, 1], [1, 1]], "precision", "macro", seed=0), "in every resample; got 0/0 in [1-9]"),
])
def test_refusals_name_the_culprit(call, words):
    with pytest.raises(ContractError, match=words): call()
