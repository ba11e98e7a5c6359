"""Rates of a confusion table against counting by hand, scikit-learn and statsmodels; the metrics against tables made again."""
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from invar_nb.metrics.metric import METRICS, value_of
from invar_nb.arms.predictions import AMBIGUOUS, Predictions
from invar_nb.foundations.refuse import ContractError
from invar_nb.metrics.confusion import RATES, class_rate, confusion_matrix, critical_mistake, precision_recall_f1
from invar_nb.statistics.jackknife import jackknife_statistic

statsmodels = pytest.importorskip("statsmodels.stats.proportion")
LABELS = ("correct", "incorrect", "ambiguous")
macro_f1 = METRICS["macro_f1"]
tables = st.integers(1, 5).flatmap(lambda c: st.lists(st.lists(st.integers(0, 9), min_size=c, max_size=c), min_size=c, max_size=c)).map(np.array)


class Arm(SimpleNamespace):
    def __len__(self): return len(self.label)


def by_hand(M):
    "Rates as fractions, None where the denominator is 0, example after example."
    C, out = len(M), []
    cells = [(j, k) for j in range(C) for k in range(C) for _ in range(M[j][k])]
    for c in range(C):
        named, real, hits = sum(k == c for _, k in cells), sum(j == c for j, _ in cells), sum(x == (c, c) for x in cells)
        out.append([Fraction(a, b) if b else None for a, b in ((hits, named), (hits, real), (2 * hits, named + real))])
    return out


@settings(max_examples=150, deadline=None)
@given(tables)
def test_rates_and_means_are_their_definition(M):
    scores, hand, support = precision_recall_f1(M), by_hand(M), M.sum(axis=1)
    for r, rate in enumerate(RATES):
        column = [row[r] for row in hand]
        for c, fraction in enumerate(column):
            value, interval = getattr(scores, rate)[c], getattr(scores, f"{rate}_interval")[c]
            if fraction is None: assert math.isnan(value) and interval is None
            else: assert value == pytest.approx(float(fraction), rel=1e-14, abs=0) and interval.low <= value + 1e-15 and value <= interval.high + 1e-15
        def same(value, expected):
            if expected is None: assert math.isnan(value)
            else: assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-15)
        defined = [x for x in column if x is not None]
        same(scores.macro(rate), None if len(defined) < len(column) else sum(column) / len(column))
        same(scores.macro(rate, undefined="skip"), sum(defined) / len(defined) if defined else None)
        same(scores.macro(rate, undefined="zero"), sum(defined) / Fraction(len(column)))
        weighed = [(x, int(n)) for x, n in zip(column, support, strict=True) if n]
        lost, total = any(x is None for x, _ in weighed), sum(n for _, n in weighed)
        same(scores.weighted(rate), None if not total or lost else sum(x * n for x, n in weighed) / total)
    assert str(scores).split("macro")[0].count("undefined (0/0)") == sum(f is None for row in hand for f in row)


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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=40), st.randoms(use_true_random=False))
def test_policies_permutations_and_renaming(pairs, random):
    true, said = [t for t, _ in pairs], [p for _, p in pairs]
    own, excluded = (confusion_matrix(true, said, LABELS, ambiguous=x) for x in AMBIGUOUS)
    assert own.sum() == len(pairs) and excluded.sum() == sum(t != "ambiguous" for t in true)
    np.testing.assert_array_equal(excluded[:2], own[:2])
    moved = random.sample(pairs, len(pairs))
    np.testing.assert_array_equal(confusion_matrix([t for t, _ in moved], [p for _, p in moved], LABELS), own)
    np.testing.assert_array_equal(confusion_matrix(said, true, LABELS), own.T)
    np.testing.assert_array_equal(confusion_matrix(true, said, LABELS[::-1]), own[::-1, ::-1])


def test_excluded_truths_do_not_count():
    arm = Predictions(ids=range(6), labels=LABELS, label=["correct", "correct", "incorrect", "incorrect", "ambiguous", "ambiguous"],
                      prediction=["correct", "ambiguous", "incorrect", "correct", "correct", "ambiguous"], ambiguous="excluded")
    cells = confusion_matrix(arm.label, arm.prediction, LABELS, ambiguous="excluded")
    scores = precision_recall_f1(cells, LABELS, means_over=LABELS[:2])
    value, without = macro_f1.leave_one_out(arm, np.arange(6), 6)
    assert value == pytest.approx(scores.macro("f1")) and (without[4:] == value).all()
    for rate in RATES:
        assert value_of(class_rate("correct", rate), arm) == pytest.approx(getattr(scores, rate)[0])
        absent = Arm(label=("correct",), prediction=("correct",))
        assert "'incorrect' is never" in class_rate("incorrect", rate).missing(absent) and class_rate("correct", rate).missing(absent) is None


def test_coverage_of_a_macro_f1_difference():
    "Two models of known tables, 300 evaluations of 200 examples."
    rng, trials, inside = np.random.default_rng(5), 300, 0
    share, names = np.array([0.5, 0.3, 0.2]), np.array(["a", "b", "c"])
    said = [np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]]), np.array([[0.75, 0.15, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])]
    def f1(table): return np.mean([2 * table[c, c] / (table[c].sum() + table[:, c].sum()) for c in range(3)])
    truth = f1(share[:, None] * said[1]) - f1(share[:, None] * said[0])
    for _ in range(trials):
        t = rng.choice(3, 200, p=share)
        values = []
        for table in said:
            k = (rng.random((200, 1)) > np.cumsum(table[t], axis=1)).sum(axis=1).clip(0, 2)
            values.append(macro_f1.leave_one_out(Arm(labels=tuple(names), label=tuple(names[t]), prediction=tuple(names[k])), np.arange(200), 200))
        (A, A_u), (B, B_u) = values
        found = jackknife_statistic(B - A, B_u - A_u).interval()
        inside += found.low <= truth <= found.high
    assert abs(inside / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


def test_critical_mistake():
    metric = critical_mistake("incorrect", "correct")
    label = ("incorrect",) * 40 + ("correct",) * 20
    first = Arm(labels=LABELS, label=label, prediction=("correct",) * 4 + ("incorrect",) * 36 + ("correct",) * 20)
    second = Arm(labels=LABELS, label=label, prediction=("incorrect",) * 2 + ("correct",) * 9 + ("incorrect",) * 29 + ("correct",) * 20)
    assert value_of(metric, first) == 0.1 and value_of(metric, second) == 9 / 40
    interval, p = metric.exact(first, second, 0.95)  # 2 only under the first, 7 only under the second
    assert p == pytest.approx(2 * sum(math.comb(9, k) for k in range(3)) / 2**9) and interval.low < 5 / 40 < interval.high
    none, _ = metric.exact(*[Arm(labels=LABELS, label=label, prediction=label)] * 2, 0.95)
    assert none.low < 0 < none.high
    assert metric.arm_interval(first, 0.9).contains(0.1) and metric.arm_interval(Arm(label=("correct",), prediction=("correct",)), 0.9) is None
    assert "never the true label" in metric.missing(Arm(label=("correct",), prediction=("correct",)))


def test_one_class_empty_tables_and_integer_labels():
    assert confusion_matrix([], [], LABELS).sum() == 0
    empty = precision_recall_f1(np.zeros((3, 3), int), LABELS)
    assert str(empty).count("undefined (0/0)") == 15 and math.isnan(empty.accuracy) and empty.accuracy_interval is None
    one = precision_recall_f1(confusion_matrix([7, 7], [7, 7], [7]), [7])
    assert one.labels == ("7",) and one.f1[0] == one.accuracy == 1 and one.f1_interval[0].high == 1.0
    with pytest.raises(ValueError): one.recall[0] = 1


@pytest.mark.parametrize("call", [
    lambda: confusion_matrix(["a", "b", "c"], ["a", "b", "a"], ["a", "b"]), lambda: confusion_matrix(["a", "b"], ["a", "B"], ["a", "b"]), lambda: confusion_matrix(["a"], [], ["a"]),
    lambda: confusion_matrix(["a"], ["a"], []), lambda: confusion_matrix(["a"], ["a"], ["a", "b", "a"]), lambda: confusion_matrix("aab", "aab", ["a", "b"]),
    lambda: confusion_matrix(["a"], ["a"], ["a"], ambiguous="excluded"), lambda: precision_recall_f1([[1, math.nan], [0, 1]]), lambda: precision_recall_f1([[True, False], [False, True]]),
    lambda: precision_recall_f1([]), lambda: precision_recall_f1([[1, 2], [3, 4]], level=95), lambda: precision_recall_f1([[1, 2], [3, 4]], ["a", "b"], means_over=["c"]),
    lambda: precision_recall_f1([[1, 2], [3, 4]], ["a"]), lambda: precision_recall_f1([[1, 2], [3, 4]]).macro("recall", undefined="ignore"), lambda: critical_mistake("a", "a"), lambda: class_rate("a", "auc")])
def test_refusals(call):
    with pytest.raises(ContractError) as refused: call()
    assert refused.value.code == "contract"
