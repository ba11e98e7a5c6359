"""Calibration, Brier and confusion beyond their pages: properties, every float16, other libraries, coverage, and one table of refusals."""

import itertools
import json
import math
from dataclasses import fields
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import invar_nb
from invar_nb.arms.predictions import AMBIGUOUS, Predictions
from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import canonical_json
from invar_nb.metrics import means
from invar_nb.metrics.brier import (
    NORMALIZATIONS,
    BrierDecomposition,
    brier_decomposition,
    brier_score,
)
from invar_nb.metrics.calibration import (
    calibration_error,
    calibration_interval,
    squared_error_without,
)
from invar_nb.metrics.confusion import (
    RATES,
    class_rate,
    confusion_matrix,
    critical_mistake,
    precision_recall_f1,
)
from invar_nb.metrics.metric import METRICS, value_of
from invar_nb.metrics.reliability import (
    bin_of,
    expected_calibration_error,
    mass_edges,
    poisson_binomial,
    reliability_bins,
)
from invar_nb.metrics.smooth_calibration import smooth_calibration_error
from invar_nb.statistics.jackknife import jackknife_statistic
from invar_nb.statistics.proportions import wilson_interval

ece = expected_calibration_error
decimals = st.one_of(
    st.integers(0, 100).map(lambda k: k / 100),
    st.sampled_from([0.0, 1.0, 0.3, 0.6, 0.7, 0.29]),
    st.floats(0, 1, allow_subnormal=False),
)
rows = st.lists(st.tuples(decimals, st.booleans()), min_size=1, max_size=40)
TERMS = [field.name for field in fields(BrierDecomposition)][:6]
LABELS = ("correct", "incorrect", "ambiguous")
calibration, macro_f1 = METRICS["calibration"], METRICS["macro_f1"]


class Arm(SimpleNamespace):
    def __len__(self):
        return len(self.label)


def predictions(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, rng.random(n) < np.clip(p - shift, 0, 1)


def errors(p, y, **how):
    bins = reliability_bins(p, y, null=False, **how)
    assert math.isclose(bins.ece, ece(p, y, **how), rel_tol=1e-12, abs_tol=1e-15)
    return [bins.ece, bins.mce]


# --- bins ---------------------------------------------------------------------------------------------------------------------------------
@settings(max_examples=150, deadline=None)
@given(
    rows,
    st.sampled_from(["width", "mass"]),
    st.integers(2, 5),
    st.randoms(use_true_random=False),
)
def test_order_and_duplication_change_nothing(given_rows, binning, times, random):
    moved = random.sample(given_rows, len(given_rows)) * times
    np.testing.assert_allclose(
        *(errors(*zip(*r, strict=True), binning=binning) for r in (given_rows, moved)),
        rtol=1e-11,
        atol=1e-15,
    )


@pytest.mark.parametrize("n_bins", [1, 2, 3, 6, 7, 10, 19, 64, 100])
def test_every_half_precision_number_lands_in_its_bin(n_bins):
    "All 15361 of them; each edge is the float16 nearest to k/M by exact comparison."
    p = np.arange(np.float16(1).view(np.uint16) + 1, dtype=np.uint16).view(np.float16)

    def nearest(x):
        near = (
            np.float16(x),
            np.nextafter(np.float16(x), np.float16(0)),
            np.nextafter(np.float16(x), np.float16(2)),
        )
        return min(
            near, key=lambda q: (abs(Fraction(float(q)) - x), int(q.view(np.uint16)) & 1)
        )

    edges = [0.0, *(float(nearest(Fraction(k, n_bins))) for k in range(1, n_bins)), 2.0]
    expected = [
        sum(1 for q in p.tolist() if a <= q < b)
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    ]
    assert (
        reliability_bins(p, np.ones(p.size), n_bins=n_bins, null=False).count.tolist()
        == expected
    )


@pytest.mark.parametrize("n", [10, 97, 1000])
def test_equal_mass_bins_hold_equal_mass(n):
    p, y = predictions(n, seed=n)
    bins = reliability_bins(p, y, binning="mass", null=False)
    assert (
        np.ptp(bins.count) <= 1
        and bins.low[0] == p.min()
        and bins.high[-1] == p.max()
        and (bins.high[:-1] < bins.low[1:]).all()
    )
    tied = reliability_bins(np.full(n, 0.7), y, binning="mass", null=False)
    assert (
        tied.count.tolist() == [n] + [0] * 9
        and tied.low[0] == tied.high[0] == 0.7
        and np.isnan(tied.low[1:]).all()
    )
    assert (mass_edges(10, p) == mass_edges(10, p[: n // 2], p[n // 2 :])).all()


def test_single_precision_is_seen_in_every_container():
    pandas, torch = map(pytest.importorskip, ("pandas", "torch"))
    x, y = np.array([0.7, 0.75], dtype=np.float32), [1, 0]
    for way in (
        x,
        list(x),
        torch.tensor(x),
        pandas.Series(x),
        pandas.Series(x, dtype="Float32"),
    ):
        assert (
            ece(way, y) == ece(x, y) and reliability_bins(way, y, null=False).count[7] == 2
        ), type(way)
    assert reliability_bins(x.astype(float), y, null=False).count[7] == 1


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32, float, ">i8"])
def test_outcomes_of_every_type_mean_the_same(kind):
    p, y = predictions(777, seed=20)
    assert ece(p, y.astype(kind)) == ece(p, y) and ece(-np.zeros(3), [0, 0, 1]) == ece(
        np.zeros(3), [0, 0, 1]
    )


# --- what a calibrated model shows --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 1000, 20_000])
def test_equal_probabilities_are_binomial(n):
    for p in (0.0, 0.03, 0.5, 0.97, 1.0):
        np.testing.assert_allclose(
            poisson_binomial(np.full(n, p)),
            stats.binom.pmf(np.arange(n + 1), n, p),
            rtol=1e-6,
            atol=1e-14,
        )


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("seed", range(4))
def test_every_outcome_listed(seed, binning):
    "Nine predictions, some certain: 512 worlds with their probabilities, ECE and MCE."
    rng, how = np.random.default_rng(seed), dict(n_bins=4, binning=binning)
    p = (
        np.round(rng.random(9), 2)
        if seed
        else np.array([0, 1, 1, 0.2, 0.4, 0.4, 0.9, 0.95, 1])
    )
    worlds = [
        (math.prod(np.where(hits, p, 1 - p)), *errors(p, hits, **how))
        for hits in np.ndindex(*[2] * 9)
    ]
    for hits in rng.integers(0, 2, (6, 9)):
        seen = reliability_bins(p, hits, **how)
        np.testing.assert_allclose(
            seen.null.mean, sum(w * e for w, e, _ in worlds), rtol=1e-10
        )
        np.testing.assert_allclose(
            seen.null.p_value,
            sum(w for w, e, _ in worlds if e >= seen.ece - 1e-9),
            rtol=1e-6,
            atol=1e-11,
        )
        np.testing.assert_allclose(
            seen.null.mce_p_value,
            sum(w for w, _, m in worlds if m >= seen.mce * (1 - 1e-9) - 1e-12),
            rtol=1e-6,
            atol=1e-11,
        )
        below = sum(w for w, e, _ in worlds if e < seen.null.low - seen.null.error - 1e-9)
        above = sum(w for w, e, _ in worlds if e > seen.null.high + seen.null.error + 1e-9)
        assert below <= 0.025 + 1e-9 and above <= 0.025 + 1e-9


def test_the_bars_are_wilson_intervals_and_the_dict_is_json():
    rng = np.random.default_rng(5)
    p = rng.uniform(0.35, 1, 300)
    bins = reliability_bins(p, rng.random(300) < p, level=0.9)
    assert np.isnan(bins.accuracy[:3]).all() and bins.count.sum() == 300
    for m in range(3, 10):
        bar = wilson_interval(int(bins.successes[m]), int(bins.count[m]), level=0.9)
        assert (bins.interval_low[m], bins.interval_high[m]) == (bar.low, bar.high)
    plain = json.loads(canonical_json(bins.to_dict()))
    assert plain["accuracy"][0] is None and plain["null"]["mean"] == bins.null.mean
    assert reliability_bins(p, p > 0.5, null=False).to_dict()["null"] is None
    with pytest.raises(ValueError):
        bins.count[0] = 1


def test_certain_answers_leave_no_band():
    for y, p in (([0, 1, 1], 1.0), ([0, 1, 0], 1e-12)):
        null = reliability_bins([0.0, 1.0, 1.0], y).null
        assert (null.mean, null.low, null.high, null.limit) == (
            0,
            0,
            0,
            0,
        ) and null.p_value == pytest.approx(p) == null.mce_p_value


# --- calibration errors -------------------------------------------------------------------------------------------------------------------
def test_unbiased_by_enumeration():
    "All outcomes of ten answers in two bins and five clusters of two whose answers always agree."
    p = np.array([0.6, 0.62, 0.64, 0.66, 0.7, 0.72, 0.8, 0.82, 0.9, 0.92])
    index, codes, gap = (
        np.repeat([0, 1], [6, 4]),
        np.repeat(np.arange(5), 2),
        np.repeat([0.15, -0.05], [6, 4]),
    )
    mean = 0.0
    for hits in itertools.product(
        (0, 1), repeat=5
    ):  # one coin a cluster: p - y has expectation `gap` only pair by pair
        truth = (p - gap)[::2]
        e = np.repeat(truth - hits, 2) + gap  # the same error for both of a cluster
        mean += (
            math.prod(np.where(hits, truth, 1 - truth))
            * squared_error_without(e, index, codes, 5, 2)[0]
        )
    assert math.isclose(mean, np.mean(gap**2), rel_tol=1e-12)


def test_two_calibrated_models_are_seldom_told_apart():
    "One of them knows less; the page has the coverage of true changes."
    rng, ends, every = np.random.default_rng(600), [], np.arange(600)
    for _ in range(300):
        a = rng.uniform(0.5, 1, 600)
        y = (rng.random(600) < a).astype(float)
        arms = [
            SimpleNamespace(confidence=p, correct=y)
            for p in (a, np.where(a < 0.75, 0.625, 0.875))
        ]
        shared = calibration.prepare(*arms)
        (A, A_u), (B, B_u) = (shared.leave_one_out(arm, every, 600) for arm in arms)
        ends.append(jackknife_statistic(B - A, B_u - A_u).interval())
    assert (
        np.mean([i.low <= 0 <= i.high for i in ends]) > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 300)
        and np.mean([i.high < 0 for i in ends]) < 0.05
    )


def test_the_bins_are_shared_and_of_equal_mass():
    rng = np.random.default_rng(1)
    a, y = rng.uniform(0.5, 0.9, 200), rng.integers(0, 2, 200)
    b = a + 0.1
    arms = [SimpleNamespace(confidence=p, correct=y) for p in (a, b)]
    shared = calibration.prepare(*arms)
    for arm in arms:
        value, without = shared.leave_one_out(arm, np.arange(200), 200)
        index = bin_of(arm.confidence, mass_edges(10, a, b))
        np.testing.assert_allclose(
            value,
            squared_error_without(arm.confidence - y, index, np.arange(200), 200, 10)[0],
            rtol=1e-9,
        )
        assert without.shape == (200,)
    assert math.sqrt(
        max(calibration.prepare(arms[0]).leave_one_out(arms[0], np.arange(200), 200)[0], 0)
    ) == pytest.approx(calibration_error(a, y))
    assert "no confidence" in calibration.missing(SimpleNamespace(confidence=None))
    assert (
        "at least 30" in calibration.missing(SimpleNamespace(confidence=a[:20]))
        and calibration.missing(arms[0]) is None
    )


@settings(max_examples=60, deadline=None)
@given(rows, st.floats(0, 0.01), st.randoms(use_true_random=False))
def test_between_bias_and_distance_and_continuous(given_rows, epsilon, random):
    "At least the size of the mean error (all of it cancels at most), at most the mean size; a nudge moves it by the bound of the page."
    p, y = (np.array(v, dtype=float) for v in zip(*given_rows, strict=True))
    value = smooth_calibration_error(p, y)
    assert (
        abs((y - p).mean()) - 1e-3 <= value <= np.abs(y - p).mean() + 1e-4
    )  # what the grid does not resolve is 0
    turned = random.sample(given_rows, len(given_rows)) * 2
    assert math.isclose(
        smooth_calibration_error(*zip(*turned, strict=True)), value, rel_tol=1e-6, abs_tol=1e-9
    )
    assert math.isclose(
        smooth_calibration_error(1 - p, 1 - y), value, rel_tol=1e-6, abs_tol=1e-6
    )  # the rod turned around
    q = np.clip(p + epsilon * np.array([random.choice((-1, 1)) for _ in p]), 0, 1)
    bound = (
        epsilon * (1 + math.sqrt(2 / math.pi) / value)
        if value > 0.001
        else math.sqrt(epsilon) + epsilon + 0.001
    )
    assert smooth_calibration_error(q, y) - value <= bound + 1e-6


# --- Brier --------------------------------------------------------------------------------------------------------------------------------
def table(n, classes, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), n)
    return p, (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, classes - 1)


def test_terms_of_classes_are_sums_over_classes():
    p, label = table(400, 4, seed=4)
    quarters = np.eye(4)[label] / 2 + 1 / 8  # forecasts that repeat
    for forecasts, n_bins in ((quarters, None), (p, 10)):
        whole = brier_decomposition(forecasts, label, n_bins=n_bins)
        each = [
            brier_decomposition(forecasts[:, c], label == c, n_bins=n_bins) for c in range(4)
        ]
        for name in TERMS:
            np.testing.assert_allclose(
                getattr(whole, name),
                sum(getattr(e, name) for e in each),
                rtol=1e-12,
                atol=1e-15,
            )
        for k, factor in zip(NORMALIZATIONS, (1, 0.25, 0.5), strict=True):
            assert (
                brier_decomposition(forecasts, label, n_bins=n_bins, normalization=k).score
                == pytest.approx(factor * whole.score)
                == pytest.approx(brier_score(forecasts, label, normalization=k))
            )


def test_groups_of_one_forecast_are_refused_with_a_cure_that_cures():
    "Real-valued forecasts had reliability = score, resolution = uncertainty: no word of it."
    rng = np.random.default_rng(5)
    p = rng.random(300)
    y = rng.random(300) < p
    with pytest.raises(ContractError, match="300 of 300 that equal no other.*n_bins=10"):
        brier_decomposition(p, y)
    assert brier_decomposition(p, y, n_bins=10).reliability < 0.05
    assert brier_decomposition(p.round(1), y).within_bin_variance < 1e-30
    with pytest.raises(ContractError, match="equal no other"):
        brier_decomposition(*table(300, 3, seed=5))


def test_scikit_learn():
    sk = pytest.importorskip("sklearn.metrics")
    p, y = np.random.default_rng(2).random(5000), np.random.default_rng(3).random(5000) < 0.4
    np.testing.assert_allclose(brier_score(p, y), sk.brier_score_loss(y, p), rtol=1e-12)
    for classes in (2, 3, 7):
        p, label = table(3000, classes, seed=classes)
        for name, half in (("sum", False), ("half", True)):
            theirs = sk.brier_score_loss(
                label, p, labels=np.arange(classes), scale_by_half=half
            )
            np.testing.assert_allclose(
                brier_score(p, label, normalization=name), theirs, rtol=1e-12
            )


def test_torchmetrics_of_the_top_label():
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip(
        "torchmetrics.functional.classification"
    ).multiclass_calibration_error
    p, label = table(5000, 3, seed=1)
    confidence, correct = p.astype(np.float32).max(axis=1), p.argmax(axis=1) == label
    expected = theirs(torch.tensor(p), torch.tensor(label), num_classes=3, n_bins=10)
    np.testing.assert_allclose(
        expected_calibration_error(confidence, correct), float(expected), atol=2.0**-20
    )


def test_extremes():
    assert brier_score([0.5] * 4, [1, 0, 0, 1]) == 0.25 and brier_score([0, 1], [0, 1]) == 0
    p, y = np.where(np.arange(30_000) % 3 == 0, 1 - 1e-9, 1e-9), np.arange(30_000) % 3 == 0
    np.testing.assert_allclose(brier_score(p, y), 1e-18, rtol=1e-6)
    assert brier_score([[0.4, 0.6], [1, 0]], [True, False]) == brier_score(
        [[0.4, 0.6], [1, 0]], [1, 0]
    )


# --- confusion ----------------------------------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_policies_permutations_and_renaming(pairs, random):
    true, said = [t for t, _ in pairs], [p for _, p in pairs]
    own, excluded = (confusion_matrix(true, said, LABELS, ambiguous=x) for x in AMBIGUOUS)
    assert own.sum() == len(pairs) and excluded.sum() == sum(t != "ambiguous" for t in true)
    np.testing.assert_array_equal(excluded[:2], own[:2])
    moved = random.sample(pairs, len(pairs))
    np.testing.assert_array_equal(
        confusion_matrix([t for t, _ in moved], [p for _, p in moved], LABELS), own
    )
    np.testing.assert_array_equal(confusion_matrix(said, true, LABELS), own.T)
    np.testing.assert_array_equal(confusion_matrix(true, said, LABELS[::-1]), own[::-1, ::-1])


def test_excluded_truths_do_not_count():
    arm = Predictions(
        ids=range(6),
        labels=LABELS,
        label=["correct", "correct", "incorrect", "incorrect", "ambiguous", "ambiguous"],
        prediction=["correct", "ambiguous", "incorrect", "correct", "correct", "ambiguous"],
        ambiguous="excluded",
    )
    cells = confusion_matrix(arm.label, arm.prediction, LABELS, ambiguous="excluded")
    scores = precision_recall_f1(cells, LABELS, means_over=LABELS[:2])
    value, without = macro_f1.leave_one_out(arm, np.arange(6), 6)
    assert value == pytest.approx(scores.macro("f1")) and (without[4:] == value).all()
    for rate in RATES:
        assert value_of(class_rate("correct", rate), arm) == pytest.approx(
            getattr(scores, rate)[0]
        )
        absent = Arm(label=("correct",), prediction=("correct",))
        assert (
            "'incorrect' is never" in class_rate("incorrect", rate).missing(absent)
            and class_rate("correct", rate).missing(absent) is None
        )


def test_weighted_means_are_scikit_learns():
    sk, rng = pytest.importorskip("sklearn.metrics"), np.random.default_rng(4)
    true, said = rng.choice(LABELS, 200, p=(0.5, 0.3, 0.2)), rng.choice(LABELS, 200)
    scores = precision_recall_f1(confusion_matrix(true, said, LABELS), LABELS)
    assert [scores.weighted(rate) for rate in RATES] == pytest.approx(
        sk.precision_recall_fscore_support(true, said, labels=LABELS, average="weighted")[:3],
        rel=1e-12,
    )
    absent, unasked = (
        precision_recall_f1(cells).weighted("precision")
        for cells in ([[0, 1], [0, 2]], [[3, 0], [0, 0]])
    )
    assert math.isnan(absent) and unasked == 1  # 0/0 counts only where the class has examples


def test_coverage_of_a_macro_f1_difference():
    "Two models of known tables, 300 evaluations of 200 examples."
    rng, trials, inside = np.random.default_rng(5), 300, 0
    share, names = np.array([0.5, 0.3, 0.2]), np.array(["a", "b", "c"])
    said = [
        np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]]),
        np.array([[0.75, 0.15, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]),
    ]

    def f1(table):
        return np.mean(
            [2 * table[c, c] / (table[c].sum() + table[:, c].sum()) for c in range(3)]
        )

    truth = f1(share[:, None] * said[1]) - f1(share[:, None] * said[0])
    for _ in range(trials):
        t = rng.choice(3, 200, p=share)
        values = []
        for table in said:
            k = (rng.random((200, 1)) > np.cumsum(table[t], axis=1)).sum(axis=1).clip(0, 2)
            values.append(
                macro_f1.leave_one_out(
                    Arm(
                        labels=tuple(names), label=tuple(names[t]), prediction=tuple(names[k])
                    ),
                    np.arange(200),
                    200,
                )
            )
        (A, A_u), (B, B_u) = values
        found = jackknife_statistic(B - A, B_u - A_u).interval()
        inside += found.low <= truth <= found.high
    assert abs(inside / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


def test_critical_mistake():
    metric = critical_mistake("incorrect", "correct")
    label = ("incorrect",) * 40 + ("correct",) * 20
    first = Arm(
        labels=LABELS,
        label=label,
        prediction=("correct",) * 4 + ("incorrect",) * 36 + ("correct",) * 20,
    )
    second = Arm(
        labels=LABELS,
        label=label,
        prediction=("incorrect",) * 2
        + ("correct",) * 9
        + ("incorrect",) * 29
        + ("correct",) * 20,
    )
    assert value_of(metric, first) == 0.1 and value_of(metric, second) == 9 / 40
    interval, p_of = metric.exact(
        first, second, 0.95
    )  # 2 only under the first, 7 only under the second
    assert (
        p_of(0) == pytest.approx(math.erfc(5 / 3 / math.sqrt(2)))
        and interval.low < 5 / 40 < interval.high
    )
    none, _ = metric.exact(*[Arm(labels=LABELS, label=label, prediction=label)] * 2, 0.95)
    assert none.low < 0 < none.high
    assert (
        metric.arm_interval(first, 0.9).contains(0.1)
        and metric.arm_interval(Arm(label=("correct",), prediction=("correct",)), 0.9) is None
    )
    assert "never the true label" in metric.missing(
        Arm(label=("correct",), prediction=("correct",))
    )


def test_one_class_empty_tables_and_integer_labels():
    assert confusion_matrix([], [], LABELS).sum() == 0
    empty = precision_recall_f1(np.zeros((3, 3), int), LABELS)
    assert (
        str(empty).count("undefined (0/0)") == 15
        and math.isnan(empty.accuracy)
        and empty.accuracy_interval is None
    )
    one = precision_recall_f1(confusion_matrix([7, 7], [7, 7], [7]), [7])
    assert (
        one.labels == ("7",)
        and one.f1[0] == one.accuracy == 1
        and one.f1_interval[0].high == 1.0
    )
    with pytest.raises(ValueError):
        one.recall[0] = 1


P29, Y29 = np.linspace(0.1, 0.9, 29), np.arange(29) % 2
BINNED = [
    ([0.5, np.nan], [0, 1], {}),
    ([0.5, 1 + 2.0**-52], [0, 1], {}),
    ([0.5, -5e-324], [0, 1], {}),
    ([0.5, 0.6], [0, 2], {}),
    ([0.5, 0.6], [0], {}),
    ([], [], {}),
    ([[0.5]], [1], {}),
    ([0.5], [1], {"n_bins": 0}),
    ([0.5], [1], {"n_bins": 1 << 21}),
    ([0.5], [1], {"binning": "Width"}),
]


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda call=call, p=p, y=y, how=how: call(p, y, **how)
            for p, y, how in BINNED
            for call in (ece, reliability_bins)
        ),
        lambda: reliability_bins([0.5], [1], level=95),
        lambda: calibration_interval(P29, Y29),
        lambda: calibration_error(P29, Y29, clusters=["a"]),
        lambda: brier_score([[0.5, 0.4, 0.2]], [0]),
        lambda: brier_score([[0.5, 0.5], [1.5, -0.5]], [0, 1]),
        lambda: brier_score([[0.5, 0.5], [0.2, 0.3, 0.5]], [0, 1]),
        lambda: brier_score([[0.5, 0.5]], [2]),
        lambda: brier_score([[0.5, 0.5]], ["yes"]),
        lambda: brier_score([[1.0]], [0]),
        lambda: brier_score([0.5], [1], normalization="none"),
        lambda: brier_score([0.5, 0.2], [1]),
        lambda: brier_decomposition([0.5], [1], n_bins=0),
        lambda: confusion_matrix(["a", "b", "c"], ["a", "b", "a"], ["a", "b"]),
        lambda: confusion_matrix(["a", "b"], ["a", "B"], ["a", "b"]),
        lambda: confusion_matrix(["a"], [], ["a"]),
        lambda: confusion_matrix(["a"], ["a"], []),
        lambda: confusion_matrix(["a"], ["a"], ["a", "b", "a"]),
        lambda: confusion_matrix("aab", "aab", ["a", "b"]),
        lambda: confusion_matrix(["a"], ["a"], ["a"], ambiguous="excluded"),
        lambda: precision_recall_f1([[1, math.nan], [0, 1]]),
        lambda: precision_recall_f1([[True, False], [False, True]]),
        lambda: precision_recall_f1([]),
        lambda: precision_recall_f1([[1, 2], [3, 4]], level=95),
        lambda: precision_recall_f1([[1, 2], [3, 4]], ["a", "b"], means_over=["c"]),
        lambda: precision_recall_f1([[1, 2], [3, 4]], ["a"]),
        lambda: precision_recall_f1([[1, 2], [3, 4]]).macro("recall", undefined="ignore"),
        lambda: critical_mistake("a", "a"),
        lambda: class_rate("a", "auc"),
    ],
)
def test_refusals(call):
    with pytest.raises(ContractError) as refused:
        call()
    assert refused.value.code == "contract" and "\n" not in str(refused.value)


@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 64])
@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
def test_torchmetrics(n, n_bins):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip(
        "torchmetrics.functional.classification"
    ).binary_calibration_error
    p, y = predictions(n, seed=n + n_bins, shift=0.1)
    expected = [
        float(theirs(torch.tensor(p), torch.tensor(y.astype(int)), n_bins=n_bins, norm=norm))
        for norm in ("l1", "max")
    ]
    np.testing.assert_allclose(errors(p, y, n_bins=n_bins), expected, rtol=1e-12, atol=1e-15)


def test_intervals_against_statsmodels():
    statsmodels = pytest.importorskip("statsmodels.stats.proportion")
    rng = np.random.default_rng(1)
    for level in (0.8, 0.95, 0.99):
        M = rng.integers(0, 40, size=(4, 4))
        scores = precision_recall_f1(M, level=level)
        for c in range(4):
            tp, col, row = M[c, c], M[:, c].sum(), M[c].sum()
            for interval, trials, f in (
                (scores.precision_interval[c], col, lambda x: x),
                (scores.recall_interval[c], row, lambda x: x),
                (scores.f1_interval[c], col + row - tp, lambda x: 2 * x / (1 + x)),
            ):
                expected = statsmodels.proportion_confint(
                    tp, trials, alpha=1 - level, method="wilson"
                )
                np.testing.assert_allclose(
                    [interval.low, interval.high], [f(x) for x in expected], rtol=1e-10
                )


def test_a_package_may_announce_a_metric_and_register_it(tmp_path, monkeypatch):
    "The module that the entry point names calls `register_metric`, which asks for the metric while it is loaded."
    (tmp_path / "above.py").write_text(
        "import invar_nb\nabove_5 = invar_nb.register_metric(invar_nb.Metric(name='above_5', unit='share', better='lower', kind='losses', totals=lambda arm: (arm.log_loss > 5, arm.tokens * 0 + 1)))\n"
    )
    (tmp_path / "above-1.dist-info").mkdir()
    (tmp_path / "above-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: above\nVersion: 1\n"
    )
    (tmp_path / "above-1.dist-info" / "entry_points.txt").write_text(
        "[invar_nb.metrics]\nabove_5 = above:above_5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = type(METRICS)()
    monkeypatch.setattr("invar_nb.metrics.metric.METRICS", registry)
    assert registry["above_5"].name == "above_5" and "above_5" in list(registry)


# --- messages have the noun of the function, and defaults are those of its siblings ---
UNEQUAL = [0.1, 0.2, 0.3], [1, 0]


@pytest.mark.parametrize(
    "call, noun",
    [
        (lambda: invar_nb.expected_calibration_error(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.calibration_error(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.smooth_calibration_error(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.reliability_bins(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.brier_score(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.brier_decomposition(*UNEQUAL), "one entry per example"),
        (lambda: invar_nb.jackknife_interval([1.0, 2], [1]), "one entry per item"),
        (lambda: invar_nb.weighted_mean([1.0, 2], [1]), "one entry per item"),
        (lambda: invar_nb.perplexity([1.0, 2], [1]), "one entry per window"),
        (lambda: invar_nb.paired_t_test(*UNEQUAL), "one number for each pair"),
        (lambda: invar_nb.paired_t_test([], []), "at least one number"),
    ],
)
def test_arrays_of_unequal_length_are_refused_with_the_noun_of_the_function(call, noun):
    with pytest.raises(ContractError) as caught:
        call()
    text = str(caught.value)
    assert noun in text, text
    assert "seed" not in text and ("window" in noun or "window" not in text), text


def test_a_confusion_matrix_without_labels_has_those_that_occur_in_order():
    true, predicted = ["no", "yes", "no", "maybe"], ["no", "no", "yes", "yes"]
    found = invar_nb.confusion_matrix(true, predicted)
    assert (found == invar_nb.confusion_matrix(true, predicted, ["maybe", "no", "yes"])).all()
    numbers = invar_nb.confusion_matrix([2, 10, 2], [2, 2, 10])
    assert (numbers == [[1, 1], [1, 0]]).all()  # 2 comes before 10
    with pytest.raises(ContractError, match="must be non-empty"):
        invar_nb.confusion_matrix(["a", ""], ["a", "a"])
    with pytest.raises(ContractError, match="at least one"):
        invar_nb.confusion_matrix([], [])


@pytest.mark.parametrize("function", [invar_nb.pass_at_k, means.pass_hat_k])
def test_the_help_of_pass_at_k_says_what_its_counts_are(function):
    assert "n: samples drawn for one problem; c: of them correct" in function.__doc__
