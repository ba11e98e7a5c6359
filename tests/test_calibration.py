"""Calibration against truth that shares no code with it: torchmetrics, scikit-learn, definitions in loops and fractions, simulated perfect models."""
import array
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from invar_nb.foundations.numbers import ContractError, PairingError, canonical_json
from invar_nb.probes.calibration import (NORMALIZATIONS, TERMS, brier_decomposition, brier_difference, brier_interval, brier_score,
                                          calibration_difference, calibration_interval, expected_calibration_error, maximum_calibration_error,
                                          reliability_bins, top_label)
from invar_nb.probes.calibration import _Column, _Width, _influence_values, _poisson_binomial, _width
from invar_nb.statistics.exact import bootstrap_interval
from invar_nb.statistics.proportion import wilson_interval


def predictions(n, seed, shift=0.0, digits=None):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    if digits is not None: p = np.round(p, digits)
    return p, rng.random(n) < np.clip(p - shift, 0, 1)


def table(n, classes, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), n)
    return p, (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, classes - 1)


# --- referees -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 64])
@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
def test_torchmetrics_says_the_same(n, n_bins):
    torch = pytest.importorskip("torch")
    judge = pytest.importorskip("torchmetrics.functional.classification", reason="torchmetrics referees where it is installed (it needs torch)").binary_calibration_error
    p, y = predictions(n, seed=n + n_bins, shift=0.1)
    for norm, ours in (("l1", expected_calibration_error), ("max", maximum_calibration_error)):
        theirs = judge(torch.tensor(p, dtype=torch.float64), torch.tensor(y.astype(int)), n_bins=n_bins, norm=norm)
        np.testing.assert_allclose(ours(p, y, n_bins=n_bins), float(theirs), rtol=1e-12, atol=1e-15)


def test_torchmetrics_on_classes_says_the_same():
    torch = pytest.importorskip("torch")
    judge = pytest.importorskip("torchmetrics.functional.classification", reason="torchmetrics referees where it is installed (it needs torch)").multiclass_calibration_error
    p, label = table(5000, 3, seed=1)
    theirs = judge(torch.tensor(p, dtype=torch.float64), torch.tensor(label), num_classes=3, n_bins=10)
    single, correct = top_label(p.astype(np.float32), label)
    np.testing.assert_allclose(expected_calibration_error(single, correct), float(theirs), atol=2.0**-20)  # for classes it adds up in float32


def test_scikit_learn_says_the_same():
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn referees where it is installed")
    p, y = predictions(5000, seed=2)
    np.testing.assert_allclose(brier_score(p, y), metrics.brier_score_loss(y, p), rtol=1e-12)
    for classes in (2, 3, 7):
        p, label = table(3000, classes, seed=classes)
        for name, half in (("sum", False), ("half", True)):
            theirs = metrics.brier_score_loss(label, p, labels=np.arange(classes), scale_by_half=half)
            np.testing.assert_allclose(brier_score(p, label, normalization=name), theirs, rtol=1e-12)


def test_scikit_learn_draws_the_same_curve():
    calibration = pytest.importorskip("sklearn.calibration", reason="scikit-learn referees where it is installed")
    p, y = predictions(3000, seed=3, shift=0.2)
    share, mean = calibration.calibration_curve(y, p, n_bins=12)
    found = reliability_bins(p, y, n_bins=12, null=False)
    np.testing.assert_allclose(found.accuracy, share, rtol=1e-12)
    np.testing.assert_allclose(found.mean_confidence, mean, rtol=1e-12)


def bin_of(p, n_bins):
    "How many edges, each the float nearest to k/M, do not lie above p: exact comparisons."
    return sum(Fraction(p) >= Fraction(k / n_bins) for k in range(1, n_bins))


def literal(p, y, n_bins, binning):
    "(ECE, MCE) by the definition, in fractions."
    n, bins = len(p), {}
    for a, b in zip(p, y, strict=True):
        m = bin_of(a, n_bins) if binning == "width" else n_bins * sum(c < a for c in p) // n
        bins.setdefault(m, []).append((Fraction(a), int(b)))
    gaps = [(len(g), abs(sum(b for _, b in g) - sum(a for a, _ in g)) / len(g)) for g in bins.values()]
    return float(sum(k * g for k, g in gaps) / n), float(max(g for _, g in gaps))


decimals = st.one_of(st.integers(0, 100).map(lambda k: k / 100), st.sampled_from([0.0, 1.0, 0.3, 0.6, 0.7, 0.29, 0.57, 0.58]), st.floats(0, 1, allow_subnormal=False))
data = st.lists(st.tuples(decimals, st.booleans()), min_size=1, max_size=40)
more = settings(max_examples=150, deadline=None)


@more
@given(data, st.integers(1, 120), st.sampled_from(["width", "mass"]))
def test_the_definition(rows, n_bins, binning):
    p, y = [a for a, _ in rows], [b for _, b in rows]
    found = [f(p, y, n_bins=n_bins, binning=binning) for f in (expected_calibration_error, maximum_calibration_error)]
    np.testing.assert_allclose(found, literal(p, y, n_bins, binning), rtol=1e-12, atol=1e-15)
    bins = reliability_bins(p, y, n_bins=n_bins, binning=binning, null=False)
    np.testing.assert_allclose([bins.ece, bins.mce], found, rtol=1e-12, atol=1e-15)


def literal_terms(p, y, n_bins):
    groups = {}
    for a, b in zip(p, y, strict=True): groups.setdefault(a if n_bins is None else bin_of(a, n_bins), []).append((Fraction(a), int(b)))
    n, rate = len(p), Fraction(sum(map(int, y)), len(p))
    out = dict.fromkeys(TERMS, Fraction(0)) | {"uncertainty": rate * (1 - rate), "score": sum((Fraction(a) - int(b)) ** 2 for a, b in zip(p, y, strict=True)) / n}
    for g in groups.values():
        pm, ym = sum(a for a, _ in g) / len(g), Fraction(sum(b for _, b in g), len(g))
        out["reliability"] += len(g) * (pm - ym) ** 2 / n
        out["resolution"] += len(g) * (ym - rate) ** 2 / n
        out["within_bin_variance"] += sum((a - pm) ** 2 for a, _ in g) / n
        out["within_bin_covariance"] += 2 * sum((a - pm) * (b - ym) for a, b in g) / n
    assert out["score"] == out["reliability"] - out["resolution"] + out["uncertainty"] + out["within_bin_variance"] - out["within_bin_covariance"]
    return out


@more
@given(data, st.sampled_from([None, 1, 3, 10, 100]))
def test_murphy_by_the_definition(rows, n_bins):
    p, y = [a for a, _ in rows], [b for _, b in rows]
    found = brier_decomposition(p, y, n_bins=n_bins)
    for name, value in literal_terms(p, y, n_bins).items(): np.testing.assert_allclose(getattr(found, name), float(value), rtol=1e-12, atol=1e-15)
    if n_bins is None: assert found.within_bin_variance == found.within_bin_covariance == 0


def test_murphy_of_classes_is_the_sum_over_classes():
    p, label = table(400, 4, seed=4)
    for n_bins in (None, 10):
        whole = brier_decomposition(p, label, n_bins=n_bins)
        each = [brier_decomposition(p[:, c], label == c, n_bins=n_bins) for c in range(4)]
        for name in TERMS: np.testing.assert_allclose(getattr(whole, name), sum(getattr(e, name) for e in each), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(whole.score, brier_score(p, label), rtol=1e-13)
        assert math.isclose(brier_decomposition(p, label, n_bins=n_bins, normalization="mean").score, brier_score(p, label, normalization="mean"), rel_tol=1e-13)


# --- golden numbers -------------------------------------------------------------------------------------------------------------------
def test_numbers_of_the_notes():
    conf = np.repeat([0.55, 0.75, 0.95], [100, 300, 600])
    hit = np.concatenate([np.arange(n) < k for n, k in ((100, 40), (300, 210), (600, 498))])
    np.testing.assert_allclose([expected_calibration_error(conf, hit), maximum_calibration_error(conf, hit)], [0.102, 0.15], rtol=1e-12)
    scores = [brier_score(np.full((3, 3), 1 / 3), [0, 1, 2], normalization=k) for k in NORMALIZATIONS]
    assert [f"{s:.4f}" for s in scores] == ["0.6667", "0.2222", "0.3333"]
    assert brier_score([0.5] * 4, [1, 0, 0, 1]) == 0.25


@pytest.mark.parametrize("n, expected", [(60, 0.115), (100, 0.088), (1000, 0.028)])
def test_a_perfect_model_has_an_error(n, expected):
    "Confidences of three classes, uniform on [1/3, 1]: the exact means, averaged over the confidences."
    rng = np.random.default_rng(n)
    means = [reliability_bins(rng.uniform(1 / 3, 1, n), np.ones(n)).null_mean for _ in range(40)]
    assert abs(np.mean(means) - expected) < 0.0015


@pytest.mark.parametrize("text", ["0.3", "0.6", "0.7", "1.0", "0.0", "0.29", "0.57"])
@pytest.mark.parametrize("kind", [float, np.float32])
def test_edges_are_where_the_definition_says(text, kind):
    for n_bins in (10, 100):
        if int(Fraction(text) * n_bins) != Fraction(text) * n_bins: continue
        count = reliability_bins(np.array([text], dtype=kind), [1], n_bins=n_bins, null=False).count
        assert int(np.flatnonzero(count)[0]) == min(int(Fraction(text) * n_bins), n_bins - 1)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 6, 7, 10, 15, 19, 20, 64, 100])
def test_every_half_precision_number_lands_in_its_bin(n_bins):
    "All 15361 of them: bin by bin, the numbers between two edges, each edge the float16 nearest to k/M by exact comparison."
    p = np.arange(np.float16(1).view(np.uint16) + 1, dtype=np.uint16).view(np.float16)
    nearest = lambda x: min((q for q in (np.float16(x), np.nextafter(np.float16(x), np.float16(0)), np.nextafter(np.float16(x), np.float16(2)))),
                            key=lambda q: (abs(Fraction(float(q)) - x), int(q.view(np.uint16)) & 1))
    edges = [0.0, *(float(nearest(Fraction(k, n_bins))) for k in range(1, n_bins)), 2.0]
    expected = [sum(1 for q in p.tolist() if a <= q < b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert reliability_bins(p, np.ones(p.size), n_bins=n_bins, null=False).count.tolist() == expected
    gaps = [[1 - Fraction(q) for q in p.tolist() if a <= q < b] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    np.testing.assert_allclose(expected_calibration_error(p, np.ones(p.size), n_bins=n_bins), float(sum(map(sum, gaps)) / p.size), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("n_bins", [2, 6, 10, 11, 13, 14, 19, 23, 28, 30, 47, 63, 64, 65, 100, 120, 200, 1000, 5000])
def test_neighbours_of_every_edge_land_on_its_two_sides(n_bins, kind):
    "Ones on the far side: were a single float put into the next bin, the sum of a bin would be wrong by about one."
    edges = np.array([kind(k / n_bins) for k in range(1, n_bins)])
    up, down = np.nextafter(edges, kind(2)), np.nextafter(edges, kind(0))
    p, k = np.concatenate([edges, up, down]), np.arange(1, n_bins)
    count = np.bincount(np.concatenate([k, k, k - 1]), minlength=n_bins)
    found = reliability_bins(p, np.arange(p.size) % 2 == 0, n_bins=n_bins, null=False)
    assert found.count.tolist() == count.tolist()
    assert found.mean_confidence[0] < edges[0] and all(np.diff(found.mean_confidence[count > 0]) > 0)
    once = np.concatenate([edges, down])
    assert math.isclose(expected_calibration_error(once, np.concatenate([np.ones(n_bins - 1), np.zeros(n_bins - 1)]), n_bins=n_bins),
                        literal_gap(once, np.concatenate([k, k - 1]), np.repeat([1, 0], n_bins - 1)), rel_tol=1e-11)


def literal_gap(p, index, y):
    sums = {}
    for a, m, b in zip(p.tolist(), index.tolist(), y.tolist(), strict=True): sums[m] = sums.get(m, 0) + Fraction(a) - b
    return float(sum(map(abs, sums.values())) / len(p))


BLOCK = 1 << 17  # as in the module: what follows straddles a border of blocks


@pytest.mark.parametrize("n", [1, 2, 3, 8191, 8192, 8193, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("n_bins", [10, 100])
def test_blocks_lose_no_prediction(n, n_bins):
    p, y = predictions(n, seed=n, shift=0.05, digits=3)
    index = np.searchsorted(np.arange(1, n_bins) / n_bins, p, side="right")
    sums = [math.fsum((y[index == m] - p[index == m]).tolist()) for m in range(n_bins)]
    np.testing.assert_allclose(expected_calibration_error(p, y, n_bins=n_bins), math.fsum(map(abs, sums)) / n, rtol=1e-11)
    np.testing.assert_allclose(brier_score(p, y), math.fsum(((p - y) ** 2).tolist()) / n, rtol=1e-13)
    bins = reliability_bins(p, y, n_bins=n_bins, null=False)
    assert (bins.ece, bins.mce) == (expected_calibration_error(p, y, n_bins=n_bins), maximum_calibration_error(p, y, n_bins=n_bins))


def test_single_precision_is_seen_in_every_container():
    pandas, pyarrow, torch = map(pytest.importorskip, ("pandas", "pyarrow", "torch"))
    x, y = np.array([0.7, 0.75], dtype=np.float32), [1, 0]
    ways = [x, x.astype(">f4"), list(x), tuple(x), torch.tensor(x), pandas.Series(x), pandas.Series(x, dtype="Float32"), pandas.Series(x, dtype="float[pyarrow]"),
            pyarrow.array(x), pyarrow.chunked_array([x]), array.array("f", x.tolist()), memoryview(x)]
    for way in ways:
        assert (expected_calibration_error(way, y), maximum_calibration_error(way, y)) == (expected_calibration_error(x, y), maximum_calibration_error(x, y)), type(way)
        assert reliability_bins(way, y, null=False).count[7] == 2
    assert reliability_bins(x.astype(float), y, null=False).count[7] == 1 == reliability_bins(x.astype(np.float64).tolist(), y, null=False).count[7]
    rows = np.array([[0.7, 0.3], [0.25, 0.75]], dtype=np.float32)
    for way in (pandas.DataFrame(rows), pandas.DataFrame(rows).convert_dtypes(), list(rows)):
        assert top_label(way, [0, 1])[0].dtype == np.float32 and brier_decomposition(way, [0, 1], n_bins=10) == brier_decomposition(rows, [0, 1], n_bins=10)
    for outcomes in (pyarrow.array([True, False]), pyarrow.chunked_array([[True], [False]])): assert brier_score(x, outcomes) == brier_score(x, y)
    with pytest.raises(ContractError, match="got None at index 1"): brier_score(x, pyarrow.array([True, None]))


@pytest.mark.parametrize("binning", [np.array(["width", "mass"]), np.array(["width"]), None, 1, "Width"], ids=str)
def test_binning_is_one_of_two_words(binning):
    with pytest.raises(ContractError, match="binning must be one of 'width', 'mass'"): expected_calibration_error([0.2], [1], binning=binning)


@pytest.mark.parametrize("n_bins", [1, 10, 300, 5000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.1, 1.1, 1e300])
def test_no_bin_is_taken_beyond_the_last(n_bins, bad):
    "Whatever changed between the look at p and the use of it: sums are written by compiled code, which does not look."
    width, room, index = _width(n_bins, np.dtype(float)), np.empty(3), np.empty(3, dtype=np.int32)
    with np.errstate(invalid="ignore"):
        assert width.fine(np.array([0.0, 0.5, 1.0]), room, index)
        taken = width.fine(np.array([0.0, bad, 1.0]), room, index)
    assert taken == ((0 <= index) & (index < width.bins)).all() and not (taken and width.exact)


def test_numbers_that_change_while_they_are_read_are_refused(monkeypatch):
    monkeypatch.setattr(_Width, "fine", lambda *_: False)
    with pytest.raises(ContractError, match="confidence must stay as it is while it is read"): expected_calibration_error([0.5], [True])


def test_calls_at_the_same_time_do_not_disturb_each_other():
    "What is kept between calls belongs to one call at a time, refused ones included."
    worlds = [predictions(n, seed=n, shift=0.02 * (n % 5)) for n in (7, 5000, BLOCK - 3, BLOCK + 11, 2 * BLOCK + 1)]
    alone = [(expected_calibration_error(p, y), expected_calibration_error(p, y, n_bins=7), brier_score(p, y)) for p, y in worlds]

    def work(k):
        p, y = worlds[k % len(worlds)]
        if k % 7 == 0:
            bad = np.append(p, [np.nan])
            for f in (expected_calibration_error, brier_score):
                with pytest.raises(ContractError, match=f"index {p.size}"): f(bad, np.append(y, [1]))
        return (expected_calibration_error(p, y), expected_calibration_error(p, y, n_bins=7), brier_score(p, y)) == alone[k % len(worlds)]
    with ThreadPoolExecutor(8) as pool: assert all(pool.map(work, range(120)))


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, float, ">i8", ">f8"])
def test_outcomes_of_every_type_mean_the_same(kind):
    p, y = predictions(BLOCK + 77, seed=20)
    for f in (expected_calibration_error, maximum_calibration_error, brier_score):
        np.testing.assert_allclose(f(p, y.astype(kind)), f(p, y), rtol=1e-12)
    np.testing.assert_allclose(brier_score(p.astype(">f8"), y), brier_score(p, y), rtol=1e-12)
    strided = np.repeat(p, 2)[::2], np.repeat(y.astype(kind), 3)[::3]
    assert brier_score(*strided) == brier_score(p, y.astype(kind)) and expected_calibration_error(*strided) == expected_calibration_error(p, y.astype(kind))


@pytest.mark.parametrize("at", [0, 3, BLOCK - 1, BLOCK, BLOCK + 76])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -5e-324, -0.01, 1 + 2.0**-52, 1.05])
def test_a_bad_probability_is_found_wherever_it_is(at, bad):
    p, y = predictions(BLOCK + 77, seed=21)
    p[at] = bad
    for f in (expected_calibration_error, maximum_calibration_error, brier_score):
        with pytest.raises(ContractError, match=f"at index {at}\\b"): f(p, y)


@pytest.mark.parametrize("at", [0, BLOCK, BLOCK + 76])
@pytest.mark.parametrize("kind, bad", [(np.int64, -1), (np.int64, 2), (np.int64, 4096), (np.int64, 2**62), (np.uint8, 255), (np.int32, -1), (float, 0.5), (float, -1.0), (">i8", 2**56)])
def test_a_bad_outcome_is_found_wherever_it_is(at, kind, bad):
    p, y = predictions(BLOCK + 77, seed=22)
    y = y.astype(kind)
    y[at] = bad
    for f in (expected_calibration_error, maximum_calibration_error, brier_score):
        with pytest.raises(ContractError, match=f"must be .*; got .* at index {at}\\b"): f(p, y)


def test_minus_zero_is_zero():
    p, y = np.array([-0.0, 0.0, 0.95]), [0, 1, 1]
    assert expected_calibration_error(p, y) == expected_calibration_error(np.abs(p), y) and brier_score(p, y) == brier_score(np.abs(p), y)


def test_a_tiny_brier_score_keeps_its_digits():
    "Squares are added, nothing is subtracted: a million certain forecasts that are off by 1e-9."
    p, y = np.where(np.arange(300_000) % 3 == 0, 1 - 1e-9, 1e-9), (np.arange(300_000) % 3 == 0).astype(np.int64)
    np.testing.assert_allclose(brier_score(p, y), math.fsum(((p - y) ** 2).tolist()) / p.size, rtol=1e-13)


def test_the_wilson_bars_are_wilson_intervals():
    p, y = predictions(300, seed=5)
    bins = reliability_bins(p, y, level=0.9)
    for m in range(10):
        bar = wilson_interval(int(bins.successes[m]), int(bins.count[m]), level=0.9)
        assert (bins.interval_low[m], bins.interval_high[m]) == (bar.low, bar.high)


# --- invariances ----------------------------------------------------------------------------------------------------------------------
@more
@given(data, st.sampled_from(["width", "mass"]), st.randoms(use_true_random=False))
def test_order_of_the_rows(rows, binning, random):
    moved = random.sample(rows, len(rows))
    for f in (lambda r: expected_calibration_error(*zip(*r, strict=True), binning=binning), lambda r: maximum_calibration_error(*zip(*r, strict=True), binning=binning),
              lambda r: brier_score(*zip(*r, strict=True)), lambda r: brier_decomposition(*zip(*r, strict=True), n_bins=7).resolution):
        np.testing.assert_allclose(f(moved), f(rows), rtol=1e-12, atol=1e-15)


@more
@given(data, st.sampled_from(["width", "mass"]), st.integers(2, 5))
def test_duplication_changes_no_value(rows, binning, times):
    p, y = (list(v) for v in zip(*rows, strict=True))
    for f in (lambda p, y: expected_calibration_error(p, y, binning=binning), lambda p, y: maximum_calibration_error(p, y, binning=binning), brier_score,
              *[lambda p, y, k=k: getattr(brier_decomposition(p, y, n_bins=6), k) for k in TERMS]):
        np.testing.assert_allclose(f(p * times, y * times), f(p, y), rtol=1e-11, atol=1e-15)


def test_duplication_narrows_the_null_band():
    p, y = predictions(80, seed=6)
    once, often = reliability_bins(p, y), reliability_bins(np.tile(p, 16), np.tile(y, 16))
    assert often.null_mean < once.null_mean / 3 and often.null_high < once.null_mean


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_classes_may_be_renamed(order):
    p, label = table(300, 3, seed=7)
    moved, renamed = p[:, list(order)], np.argsort(order)[label]
    np.testing.assert_allclose(brier_score(moved, renamed), brier_score(p, label), rtol=1e-13)
    for n_bins in (None, 10):
        for name in TERMS:
            np.testing.assert_allclose(getattr(brier_decomposition(moved, renamed, n_bins=n_bins), name), getattr(brier_decomposition(p, label, n_bins=n_bins), name), rtol=1e-11, atol=1e-15)
    a, b = reliability_bins(*top_label(p, label)), reliability_bins(*top_label(moved, renamed))
    assert a.ece == b.ece and a.p_value == b.p_value  # no ties in these rows


@more
@given(data)
def test_label_one_and_label_zero_may_change_places(rows):
    p, y = (np.array(v) for v in zip(*rows, strict=True))
    a, b = brier_decomposition(p, y), brier_decomposition(1 - p, ~y)
    np.testing.assert_allclose([b.score, b.uncertainty], [a.score, a.uncertainty], rtol=1e-12, atol=1e-15)
    if np.unique(p).size == np.unique(1 - p).size:  # 1 - p rounds tiny p together
        np.testing.assert_allclose([b.reliability, b.resolution], [a.reliability, a.resolution], rtol=1e-9, atol=1e-15)


def test_more_bins_never_score_less():
    p, y = predictions(500, seed=8, digits=3)
    for k in (2, 3, 5): assert expected_calibration_error(p, y, n_bins=10 * k) >= expected_calibration_error(p, y, n_bins=10) - 1e-14
    np.testing.assert_allclose(expected_calibration_error(p, y, n_bins=1), abs(p.mean() - y.mean()), rtol=1e-12)


@pytest.mark.parametrize("n", [10, 97, 1000])
def test_equal_mass_bins_hold_equal_mass(n):
    p, y = predictions(n, seed=n)
    bins = reliability_bins(p, y, binning="mass", null=False)
    assert np.ptp(bins.count) <= 1 and bins.low[0] == p.min() and bins.high[-1] == p.max()
    assert (bins.high[:-1] < bins.low[1:]).all()
    tied = reliability_bins(np.full(n, 0.7), y, binning="mass", null=False)
    assert tied.populated == 1 and tied.count[0] == n


def test_float32_is_read_where_it_lies_and_summed_in_double():
    p, y = predictions(200_000, seed=9)
    single = p.astype(np.float32)
    np.testing.assert_allclose(brier_score(single, y), brier_score(single.astype(float), y), rtol=1e-13)
    np.testing.assert_allclose(expected_calibration_error(single, y), expected_calibration_error(single.astype(float), y), rtol=1e-9)


# --- extremes -------------------------------------------------------------------------------------------------------------------------
def test_certain_and_right_certain_and_wrong():
    for f, right, wrong in ((expected_calibration_error, 0, 1), (maximum_calibration_error, 0, 1), (brier_score, 0, 1)):
        assert f([0.0, 1.0, 1.0], [0, 1, 1]) == right and f([0.0, 1.0, 1.0], [1, 0, 0]) == wrong
    for y, p_value in (([0, 1, 1], 1.0), ([0, 1, 0], 0.0)):
        null = reliability_bins([0.0, 1.0, 1.0], y).null
        assert (null.mean, null.low, null.high, null.p_value, null.mce_p_value) == (0, 0, 0, p_value, p_value)


def test_one_class_only():
    p, _ = predictions(50, seed=10)
    for y in (np.zeros(50), np.ones(50)):
        found = brier_decomposition(p, y, n_bins=10)
        assert found.uncertainty == found.resolution == 0 and abs(found.within_bin_covariance) < 1e-16
        np.testing.assert_allclose(found.score, np.mean((p - y) ** 2), rtol=1e-13)
        assert reliability_bins(p, y).p_value < 1e-6
        assert brier_interval(p, y, term="uncertainty").fallback.code == "all_equal"


def test_empty_bins_are_undefined_not_zero():
    bins = reliability_bins([0.95, 0.97], [1, 0])
    assert bins.populated == 1 and bins.n_bins == 10
    for name in ("accuracy", "mean_confidence", "interval_low", "interval_high"): assert np.isnan(getattr(bins, name)[:9]).all()
    document = json.loads(canonical_json(bins.to_dict()))
    assert document["accuracy"] == [None] * 9 + [0.5] and document["null"]["mean"] == bins.null_mean
    np.testing.assert_allclose(bins.ece, abs(0.96 - 0.5), rtol=1e-12)
    with pytest.raises(ValueError): bins.count[0] = 7


# --- the null law ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n, n_bins, binning", [(40, 10, "width"), (100, 7, "mass"), (500, 30, "width")])
def test_the_null_law_is_what_perfect_models_do(n, n_bins, binning):
    rng = np.random.default_rng(n)
    p = np.round(rng.uniform(0.3, 1, n), 3)
    draws = 4000
    perfect = np.array([expected_calibration_error(p, rng.random(n) < p, n_bins=n_bins, binning=binning) for _ in range(draws)])
    seen = [reliability_bins(p, rng.random(n) < p - shift, n_bins=n_bins, binning=binning, level=0.9) for shift in (0.0, 0.05)]
    assert abs(perfect.mean() - seen[0].null_mean) < 4 * perfect.std() / math.sqrt(draws)
    for end, q in ((seen[0].null_low, 0.05), (seen[0].null_high, 0.95)): assert abs((perfect <= end + seen[0].null.error).mean() - q) < 4 * math.sqrt(q * (1 - q) / draws) + 0.002
    for one in seen: assert abs((perfect >= one.ece - 1e-12).mean() - one.p_value) < 4 * math.sqrt(max(one.p_value * (1 - one.p_value), 1e-3) / draws) + 0.002


def test_perfect_models_are_seldom_called_miscalibrated():
    rng, low = np.random.default_rng(11), {"ece": 0, "mce": 0}
    for _ in range(300):
        p = rng.uniform(1 / 3, 1, 100)
        null = reliability_bins(p, rng.random(100) < p).null
        low["ece"] += null.p_value <= 0.05
        low["mce"] += null.mce_p_value <= 0.05
    for k in low.values(): assert abs(k - 15) <= 4 * math.sqrt(300 * 0.05 * 0.95)


def test_certain_predictions_only_shift_the_null():
    p = np.array([1.0, 1.0, 0.95, 0.93, 0.0, 0.04])
    worlds = [(math.prod(c if h else 1 - c for c, h in zip(p, hits, strict=True)), expected_calibration_error(p, np.array(hits))) for hits in np.ndindex(*[2] * 6)]
    found = reliability_bins(p, [1, 1, 0, 1, 0, 0])
    np.testing.assert_allclose(found.null_mean, sum(w * e for w, e in worlds), rtol=1e-12)
    np.testing.assert_allclose(found.p_value, sum(w for w, e in worlds if e >= found.ece - 1e-12), rtol=1e-9)


def test_no_influence_is_no_reason_to_collapse():
    found = brier_interval([0.5] * 6, [0, 1] * 3, term="uncertainty")
    assert found.fallback.code == "zero_jackknife_variance" and found.low < 0.25 == found.high


@pytest.mark.parametrize("n, right", [(10, 3), (10, 1), (20, 6), (60, 18)])
def test_influence_that_is_only_rounding_is_none(n, right):
    "A bin without a gap has no first-order influence, and groups of one rate have none on the resolution: what is left of either is dust, and BCa must not read it."
    y = np.arange(n) < right
    for found in (brier_interval(np.full(n, right / n), y, term="reliability"), brier_interval(np.repeat([0.25, 0.65, 0.9], n), np.tile(y, 3), term="resolution", n_bins=10)):
        assert found.fallback.code == "zero_jackknife_variance" and found.high > 0.1 / n
    whole = brier_interval(np.full((3 * right, 3), 1 / 3), [0, 1, 2] * right, term="reliability")
    assert whole.fallback.code == "zero_jackknife_variance" and whole.high > 1e-3


@pytest.mark.parametrize("metric", ["ece", "mce", *TERMS])
def test_influence_is_what_leaving_a_probe_out_does(metric):
    p, y = predictions(400, seed=23, shift=0.12)
    y, copies = y.astype(float), 25
    index = np.minimum((p * 5).astype(int), 4)
    values = _influence_values(metric, _Column(p, y, 5, index))
    f = {"ece": lambda p, y: expected_calibration_error(p, y, n_bins=5), "mce": lambda p, y: maximum_calibration_error(p, y, n_bins=5)}.get(
        metric, lambda p, y: getattr(brier_decomposition(p, y, n_bins=5), metric))
    T = f(p, y)
    many = np.repeat(p, copies), np.repeat(y, copies)
    left_out = np.array([f(*(np.delete(column, copies * i) for column in many)) for i in range(0, 400, 5)])
    np.testing.assert_allclose(values.mean(), T, rtol=1e-11, atol=1e-15)
    second_order = 4 / (copies * np.bincount(index).min())  # of the largest influence: a share of the bin that one probe of it is
    np.testing.assert_allclose((copies * 400 - 1) * (T - left_out), (values - T)[::5], rtol=0, atol=second_order * np.abs(values - T).max())


@pytest.mark.parametrize("n", [7, 300, 3000])
def test_the_law_of_a_sum_is_a_law(n):
    p = np.random.default_rng(n).random(n) ** 3
    law = _poisson_binomial(np.concatenate([p, [1.0, 0.0]]))
    assert law.min() >= 0 and abs(law.sum() - 1) < 1e-13 and law[0] == 0  # one is certain
    plain = np.array([1.0])
    for q in p: plain = np.convolve(plain, [1 - q, q])
    np.testing.assert_allclose(law[1:n + 2], plain, atol=1e-14)


def test_the_null_of_a_large_bin_is_normal():
    p = np.full(30_000, 0.3)
    mean = reliability_bins(p, np.ones(30_000)).null_mean
    np.testing.assert_allclose(mean, math.sqrt(2 / math.pi * 0.21 / 30_000), rtol=1e-4)


# --- intervals ------------------------------------------------------------------------------------------------------------------------
def loop_replicates(p, y, statistic, replicates, seed):
    rng, n = np.random.default_rng(seed), len(p)
    return np.array([statistic(p[i], y[i]) for i in rng.integers(0, n, (replicates, n))])


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("metric", ["ece", "mce"])
def test_the_percentile_interval_is_what_resampling_gives(metric, binning):
    p, y = predictions(120, seed=12, shift=0.1, digits=2)
    f = {"ece": expected_calibration_error, "mce": maximum_calibration_error}[metric]
    found = calibration_interval(p, y, metric=metric, binning=binning, method="percentile", replicates=4000, seed=5)
    drawn = loop_replicates(p, y, lambda a, b: f(a, b, binning=binning), 4000, seed=6)
    for end, q, error in ((found.low, 0.025, found.endpoint_error[0]), (found.high, 0.975, found.endpoint_error[1])):
        assert abs(end - np.quantile(drawn, q)) < 4 * math.sqrt(2) * error + 1e-3


@pytest.mark.parametrize("term", TERMS)
def test_intervals_of_the_terms(term):
    p, y = predictions(150, seed=13, shift=0.1)
    found = brier_interval(p, y, term=term, n_bins=5, method="percentile", replicates=4000, seed=5)
    drawn = loop_replicates(p, y, lambda a, b: getattr(brier_decomposition(a, b, n_bins=5), term), 3000, seed=6)
    for end, q, error in ((found.low, 0.025, found.endpoint_error[0]), (found.high, 0.975, found.endpoint_error[1])):
        assert abs(end - np.quantile(drawn, q)) < 6 * error + 150.0**-2  # near 1/2 neighbouring base rates are that far apart in uncertainty
    assert found.engine == "monte_carlo"


def test_the_brier_interval_is_the_exact_interval_of_a_mean():
    p, label = table(90, 3, seed=14)
    squares = ((p - np.eye(3)[label]) ** 2).sum(axis=1)
    a, b = brier_interval(p, label), bootstrap_interval(squares, np.ones(90, dtype=int))
    np.testing.assert_allclose([a.low, a.high], [b.low, b.high], rtol=1e-9)
    assert a.engine != "monte_carlo" and a.method == "bca"
    half = brier_interval(p, label, normalization="half")
    np.testing.assert_allclose([half.low, half.high], [a.low / 2, a.high / 2], rtol=1e-9)


def test_the_order_of_the_rows_does_not_matter_to_the_last_bit():
    p, y = predictions(80, seed=15, digits=1)
    order = np.random.default_rng(0).permutation(80)
    for f in (lambda p, y: calibration_interval(p, y, method="bca", replicates=400), lambda p, y: calibration_interval(p, y, metric="mce", binning="mass", replicates=400),
              lambda p, y: brier_interval(p, y, term="resolution", n_bins=4, replicates=400, seed=1), lambda p, y: brier_interval(p, y),
              lambda p, y: calibration_difference((p, y), (1 - p, y), replicates=400).interval):
        assert f(p[order], y[order]) == f(p, y)


def test_a_paired_difference_resamples_pairs():
    rng = np.random.default_rng(16)
    p = rng.random(100)
    y = rng.random(100) < p
    found = calibration_difference((p, y), (np.clip(p + 0.1, 0, 1), y), method="percentile", replicates=4000)
    both = np.stack([p, np.clip(p + 0.1, 0, 1)], axis=1)
    drawn = loop_replicates(both, y, lambda a, b: expected_calibration_error(a[:, 1].copy(), b) - expected_calibration_error(a[:, 0].copy(), b), 3000, seed=2)
    for end, q, error in ((found.interval.low, 0.025, found.interval.endpoint_error[0]), (found.interval.high, 0.975, found.interval.endpoint_error[1])): assert abs(end - np.quantile(drawn, q)) < 6 * error
    np.testing.assert_allclose(found.delta, found.candidate - found.baseline, rtol=1e-12)
    turned = calibration_difference((np.clip(p + 0.1, 0, 1), y), (p, y))
    assert math.isclose(turned.delta, -found.delta, rel_tol=1e-12)


def lifted(p, y, drawn, alpha, bins=10):
    "By how much noise may have lifted the resamples: mean of a folded normal less its centre, bin by bin, and what resampling added."
    added = drawn.mean() - expected_calibration_error(p, y)
    for m in range(bins):
        inside = np.where((p * bins).astype(int) == m, p - y, 0.0)
        sigma = math.sqrt(inside.var() / len(p))
        if sigma > 0:
            least = max(0.0, abs(inside.mean()) - stats.norm.isf(alpha / 2) * sigma)
            added += stats.foldnorm(least / sigma, scale=sigma).mean() - least
    return added


def beyond(k, n, alpha):
    "Jeffreys' upper limit for k of n less the binomial quantile, whose cdf is made smooth through the beta distribution."
    smooth = lambda x: stats.beta.cdf(1 - k / n, n - x, x + 1) - (1 - alpha / 2)
    reached = optimize.brentq(smooth, -0.999, n - 1e-9) + 0.5 if k else 0.0
    return max(0.0, stats.beta(k + 0.5, n - k + 0.5).ppf(1 - alpha / 2) - max(0.0, reached) / n)


def not_seen(p, y, alpha, bins=10):
    held = [y[(p * bins).astype(int) == m] for m in range(bins)]
    return beyond(sum(min((h == 0).sum(), (h == 1).sum()) for h in held), len(p), alpha)


def test_the_seed_given_is_the_seed_used():
    "The same draws, taken by hand from the rows in order: the ends lie beside the order statistics that the level asks for."
    p, y = predictions(60, seed=24, shift=0.1)
    order = np.lexsort([y, p])
    p, y = p[order], y[order]
    drawn = {seed: np.sort(loop_replicates(p, y, expected_calibration_error, 1000, seed)) for seed in (0, 5)}
    for seed in drawn:
        found = calibration_interval(p, y, method="percentile", seed=seed, replicates=1000, level=0.9)
        beside = {other: all(d[k - 2] <= end <= d[k + 1] for end, k in ((found.low, 50), (found.high, 950))) for other, d in drawn.items()}
        assert beside == {0: seed == 0, 5: seed == 5}
        widened = calibration_interval(p, y, seed=seed, replicates=1000, level=0.9)
        by_noise, unseen = lifted(p, y, drawn[seed], 0.1), not_seen(p, y, 0.1)
        assert widened.method == "widened" and widened.fallback is None and by_noise > 0.02 and unseen > 0
        assert widened.high == pytest.approx(found.high + unseen, abs=1e-12) and widened.low == pytest.approx(max(0, found.low - by_noise - unseen), abs=1e-12)
        assert widened.endpoint_error[0] > found.endpoint_error[0] and widened.endpoint_error[1] == pytest.approx(found.endpoint_error[1])


@pytest.mark.parametrize("turned", [False, True])
def test_a_difference_is_widened_at_either_end_by_the_noise_of_one_arm(turned):
    rng = np.random.default_rng(25)
    p = rng.uniform(0.5, 0.9, 120)
    y = (rng.random(120) < p).astype(float)
    x = [np.round(p + 0.1, 3), p] if turned else [p, np.round(p + 0.1, 3)]
    order = np.lexsort([y, x[0], y, x[1]])  # the order in which the function draws
    x, y = [a[order] for a in x], y[order]
    ask = lambda **more: calibration_difference((x[0], y), (x[1], y), **{"replicates": 800, "draws": 19, "seed": 3, "level": 0.9, **more})
    told, plain = ask(), ask(method="percentile")
    drawn = np.random.default_rng(3).integers(0, 120, (800, 120))
    seen = [np.array([expected_calibration_error(a[k], y[k]) for k in drawn]) for a in x]
    noise = lambda alpha: [lifted(a, y, T, alpha) for T, a in zip(seen, x, strict=True)]
    unseen = lambda alpha: sum(not_seen(a, y, alpha) for a in x)
    up, down = noise(0.1)[1], noise(0.1)[0]
    assert min(up, down) > 0.001 and max(up, down) == (up, down)[not turned] > 1.2 * min(up, down)  # the arm that is right is the one that noise lifts
    assert told.interval.method == "widened" and plain.interval.method == "percentile"
    gaps = lambda k: [np.bincount((a[k] * 10).astype(int), weights=y[k] - a[k], minlength=10) / len(k) for a in x]
    apart = np.array([np.abs(np.subtract(*gaps(k))).sum() for k in drawn])
    far = np.quantile(apart, 0.975) - apart.mean() + np.abs(np.subtract(*gaps(np.arange(120)))).sum()
    low, high = plain.interval.low - up - unseen(0.1), plain.interval.high + down + unseen(0.1)
    np.testing.assert_allclose([told.interval.low, told.interval.high], [max(low, -far), min(high, far)], rtol=0, atol=1e-12)
    assert all(wide > narrow > 0 for wide, narrow in zip(told.interval.endpoint_error, plain.interval.endpoint_error, strict=True))
    p = told.bootstrap_p_value
    assert plain.bootstrap_p_value == p and 0.01 < p < 0.99
    side = seen[1] - seen[0] if told.delta > 0 else seen[0] - seen[1]
    assert np.quantile(side, p / 2) == pytest.approx(noise(p)[told.delta > 0] + unseen(p), abs=1e-9)  # where an end just reaches 0
    for level in (0.8, 0.9, 0.95, 0.98): assert ask(level=level).interval.contains(0) == (p > 1 - level)


def test_resamples_that_lie_low_by_luck_narrow_no_interval():
    far = np.full(400, 0.9), np.arange(400) % 2  # off by twenty standard deviations: noise lifts nothing
    for seed, lucky in ((0, False), (5, True)):
        found, plain = (calibration_interval(*far, seed=seed, replicates=100, method=method) for method in (None, "percentile"))
        assert found.high == plain.high and (plain.low - found.low < 1e-12) == lucky and plain.low >= found.low - 1e-12


def test_a_shift_of_every_confidence_far_from_the_truth_has_ends_that_do_not_cross():
    rng = np.random.default_rng(45)
    for _ in range(150):
        n, (one, two) = int(rng.integers(100, 200)), np.round(rng.uniform(0.5, 1, 2), 2)
        came = np.arange(n) < n // 20
        found = calibration_difference((np.full(n, one), came), (np.full(n, two), came), n_bins=1, replicates=100, draws=19).interval
        assert found.low <= found.high and [found.low, found.high] == pytest.approx([two - one] * 2, abs=0.02)


def test_bins_apart_by_rounding_only_leave_no_negative_room():
    true_of_none = [0, 0, 1, 1, 1]
    for seed in (0, 964):
        for tiny in (1e-20, 1e-17):
            found = calibration_difference(([0.0] * 5, true_of_none), ([tiny] * 5, true_of_none), seed=seed, draws=19).interval
            assert abs(found.low) < 1e-15 and abs(found.high) < 1e-15 and str(found.low) != "-0.0"


def test_resamples_prove_no_less_than_their_number():
    rng = np.random.default_rng(44)
    p = rng.uniform(0.5, 0.7, 500)
    came = rng.random(500) < p
    told = calibration_difference((p, came), (p + 0.3, came), replicates=300, draws=99)
    assert told.interval.low > 0.1 and told.bootstrap_p_value == 2 / 301 and told.swap_p_value == 1 / 100


def test_an_interval_of_a_difference_stays_within_what_differences_can_be():
    few = (np.full(4, 0.5), np.array([1, 0, 1, 0])), (np.ones(4), np.zeros(4))  # errors of 0 and 1
    assert calibration_difference(*few, replicates=200, draws=9).interval.high == 1 and calibration_difference(*few[::-1], replicates=200, draws=9).interval.low == -1
    with pytest.raises(ContractError, match="method must be one of 'bca'"): calibration_difference(*few, metric="mce", method="widened")


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("split", [0, 2])
def test_an_interval_of_a_difference_reaches_no_farther_than_bins_lie_apart(binning, split):
    "Two arms that hardly differ: noise lifts both alike. Answers that one arm alone has right may be more of them elsewhere."
    rng = np.random.default_rng(26)
    p = rng.uniform(0.5, 0.9, 400)
    y, q = (rng.random(400) < p).astype(float), p + rng.normal(0, 0.005, 400)
    z = np.where(np.arange(400) < split, 1 - y, y)
    order = np.lexsort([y, p, z, q])
    p, q, y, z = p[order], q[order], y[order], z[order]
    found = calibration_difference((p, y), (q, z), binning=binning, replicates=500, draws=9, seed=3, level=0.9).interval
    bins = (lambda x: (x * 10).astype(int)) if binning == "width" else (lambda x: np.searchsorted(np.sort(x), x, side="left") * 10 // 400)
    drawn = np.random.default_rng(3).integers(0, 400, (500, 400))
    gaps = lambda k: [np.bincount(bins(x[k]), weights=came[k] - x[k], minlength=10) for x, came in ((p, y), (q, z))]
    apart = np.array([np.abs(np.subtract(*gaps(k))).sum() / 400 for k in drawn])
    around = np.sort(apart)[[486, 489]] + np.abs(np.subtract(*gaps(np.arange(400)))).sum() / 400 - apart.mean()  # the quantile at 1 - 0.1/4, recentred
    if split: around = around + beyond(split, 400, 0.05)
    assert around[0] <= found.high == -found.low <= around[1]


def overconfident_edit(rng, n=400, more=0.06):
    q = rng.uniform(0.4, 0.93, n)
    came = rng.random(n) < q
    return ((q, came), (q + more, came)), more


def wrong_elsewhere(rng, n=500, error=0.04):
    "Equal errors: a fifth of the probes off by five times as much, and all of them."
    sure, luck = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], n // 5), rng.random(n)
    return [(sure, luck < right) for right in (np.where(sure > 0.9, sure - 5 * error, sure), sure - error)], 0.0


@pytest.mark.parametrize("world", [overconfident_edit, wrong_elsewhere])
def test_the_interval_of_a_difference_holds_where_noise_lifts_one_arm_only(world):
    rng, held, alarms, R = np.random.default_rng(41), {"widened": 0, "bca": 0}, 0, 100
    for k in range(R):
        arms, true = world(rng)
        for method in held:
            told = calibration_difference(*arms, method=method, replicates=200, draws=1, seed=k)
            held[method] += told.interval.contains(true)
        alarms += true == 0 and told.bootstrap_p_value <= 0.05
    assert held["widened"] / R > 0.95 - 3 * math.sqrt(0.95 * 0.05 / R) > 0.8 > held["bca"] / R
    assert alarms / R < 0.05 + 2 * math.sqrt(0.05 * 0.95 / R)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_the_interval_of_a_calibration_error_holds_the_error(binning):
    "Percentiles alone leave it out where the model is nearly calibrated."
    outside = 0
    for seed in range(60):
        p, y = predictions(100, seed)
        error = expected_calibration_error(p, y, binning=binning)
        found, plain = (calibration_interval(p, y, binning=binning, method=method, replicates=200) for method in (None, "percentile"))
        assert found.low <= error <= found.high
        outside += not plain.low <= error <= plain.high
    assert outside > 0
    with pytest.raises(ContractError, match="method must be one of 'widened'"): calibration_interval([0.5, 0.6], [1, 0], method="basic")


@pytest.mark.parametrize("n", [2, 5, 9, 30])
def test_a_difference_without_spread_is_as_sure_as_its_probes_are_many(n):
    sure, unsure = (np.full(n, 0.9), np.ones(n)), (np.full(n, 0.6), np.ones(n))
    told = calibration_difference(sure, unsure)
    assert math.isclose(told.delta, 0.3) and told.swap_p_value == max(2.0 ** (1 - n), 1e-4) and told.interval.fallback is None
    e = stats.beta(0.5, n + 0.5)  # the chance of a wrong answer that n right ones leave open, in either arm
    bounds = [max(0.3 - 2 * e.ppf(0.975), -0.5), min(0.3 + 2 * e.ppf(0.975), 0.5)]  # 0.5: the same answers, so gaps of 0.1 and 0.4 in two bins are all there is
    assert [told.interval.low, told.interval.high] == pytest.approx(bounds)
    assert told.p_value == max(told.swap_p_value, told.bootstrap_p_value) and told.bootstrap_p_value == pytest.approx(max(2 / 2001, 2 * e.sf(0.15)), rel=1e-6)
    assert calibration_difference(sure, unsure, metric="mce").p_value == max(2.0 ** (1 - n), 1e-4)
    same = calibration_difference(sure, sure)
    assert same.p_value == 1 and same.interval.width == 0 and same.interval.fallback.code == "all_equal"


@pytest.mark.parametrize("n", [15, 60])
def test_right_answers_only_leave_room_for_wrong_ones(n):
    "Both arms err by 0.02, one upwards, one downwards; most files of 15 have no wrong answer."
    rng, held, alarms, R = np.random.default_rng(43), np.zeros(2), 0, 100
    for k in range(R):
        came = rng.random(n) < 0.97
        arms = [(np.full(n, conf), came) for conf in (0.95, 0.99)]
        held += [calibration_interval(*arm, replicates=200, seed=k).contains(0.02) for arm in arms]
        told = calibration_difference(*arms, replicates=200, draws=99, seed=k)
        alarms += told.p_value <= 0.05
        assert told.interval.contains(0) == (told.bootstrap_p_value > 0.05)
    assert held.min() / R > 0.95 - 3 * math.sqrt(0.95 * 0.05 / R) and alarms / R < 0.05 + 2 * math.sqrt(0.05 * 0.95 / R)


def test_a_difference_of_terms_and_of_classes():
    p, label = table(120, 3, seed=17)
    worse = 0.6 * p + 0.4 / 3
    for term in TERMS:
        d = brier_difference(p, worse, label, term=term, n_bins=5)
        np.testing.assert_allclose([d.baseline, d.candidate], [getattr(brier_decomposition(x, label, n_bins=5), term) for x in (p, worse)], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(d.delta, d.candidate - d.baseline, rtol=1e-9, atol=1e-14)
        if term == "uncertainty": assert d.delta == 0 and d.p_value == 1 and d.interval.fallback.code == "all_equal"  # the labels are shared
        else: assert (d.interval.engine == "monte_carlo") == (term != "score") and d.interval.contains(d.delta)
    same = brier_difference(p, p, label)
    assert same.delta == 0 and same.p_value == 1 and same.interval.fallback.code == "all_equal"
    json.dumps(asdict(same))


def test_a_single_probe_is_never_significant():
    d = calibration_difference(([0.9], [1]), ([0.6], [1]))
    assert d.p_value is None and d.interval.fallback.code == "single_pair"
    assert brier_difference([0.9], [0.6], [1]).p_value is None


def equal_arms(n, rng):
    "Noisy views of one truth: exchangeable on every probe."
    truth = rng.uniform(0.05, 0.95, n)
    came = (rng.random(n) < truth).astype(int)
    logit = np.log(truth / (1 - truth))
    return came, [1 / (1 + np.exp(-logit * rng.uniform(0.6, 1.8, n) - rng.normal(0, 0.6, n))) for _ in range(2)]


def as_confidence(p, came): return np.maximum(p, 1 - p), (p >= 0.5) == came


def swap_p_by_hand(statistic, one, two):
    "Over all 2^n patterns of exchanging row i of the two tables."
    sizes = []
    for pattern in np.ndindex(*[2] * len(one)):
        turn = np.array(pattern, dtype=bool)[:, None]
        sizes.append(abs(statistic(np.where(turn, one, two)) - statistic(np.where(turn, two, one))))
    return np.mean(np.array(sizes) >= sizes[0] - 1e-12)


@pytest.mark.parametrize("metric", ["ece", "mce"])
@pytest.mark.parametrize("seed", range(4))
def test_every_swap_by_hand(metric, seed):
    came, views = equal_arms(9, np.random.default_rng(seed))
    one, two = (np.column_stack(as_confidence(p, came)).astype(float) for p in views)
    literal = expected_calibration_error if metric == "ece" else maximum_calibration_error
    told = calibration_difference((one[:, 0], one[:, 1]), (two[:, 0], two[:, 1]), metric=metric, n_bins=5)
    assert told.swap_p_value == swap_p_by_hand(lambda t: literal(t[:, 0], t[:, 1], n_bins=5), one, two)
    assert told.p_value == max(told.swap_p_value, told.bootstrap_p_value)
    assert (told.p_from, told.p_draws, told.p_seed) == ("swap and bootstrap, the larger", None, None)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("n_bins", [None, 4])
def test_every_swap_of_a_term_by_hand(term, n_bins):
    p, label = table(7, 3, seed=5)
    q = np.round(np.random.default_rng(6).permutation(p), 1)
    q[:, 2] = 1 - q[:, 0] - q[:, 1]
    q = q.clip(0, 1)
    told = brier_difference(p, q, label, term=term, n_bins=n_bins)
    assert (told.p_value if term == "score" else told.swap_p_value) == pytest.approx(swap_p_by_hand(lambda t: getattr(brier_decomposition(t, label, n_bins=n_bins), term), p, q), abs=1e-12)
    assert told.p_from == ("sign_flip" if term == "score" else "swap and bootstrap, the larger") and told.p_draws is None
    assert (told.swap_p_value is None and told.bootstrap_p_value is None) if term == "score" else told.p_value == max(told.swap_p_value, told.bootstrap_p_value)


def test_resamples_counted_once_are_the_same_resamples(monkeypatch):
    import invar_nb.probes.calibration as room
    came, views = equal_arms(60, np.random.default_rng(2))
    arms = [as_confidence(p, came) for p in views]
    asks = [lambda: calibration_difference(*arms, replicates=200, draws=9).interval, lambda: calibration_difference(*arms, metric="mce", replicates=200, draws=9).interval,
            *(lambda term=term: brier_interval(views[0], came, term=term, n_bins=5) for term in TERMS if term != "score")]
    plain = [ask() for ask in asks]
    monkeypatch.setattr(room, "_MANY", 1)
    for one, ask in zip(plain, asks, strict=True): np.testing.assert_allclose([ask().low, ask().high], [one.low, one.high], rtol=0, atol=1e-12)


def test_swaps_forget_the_order_of_rows_and_of_arms():
    rng = np.random.default_rng(11)
    came, views = equal_arms(60, rng)
    one, two = (as_confidence(np.round(p, 2), came) for p in views)
    order = rng.permutation(60)
    for binning in ("width", "mass"):
        told = calibration_difference(one, two, binning=binning, draws=999, seed=4)
        again = calibration_difference(*(tuple(x[order] for x in arm) for arm in (one, two)), binning=binning, draws=999, seed=4)
        turned = calibration_difference(two, one, binning=binning, draws=999, seed=4)
        assert told.swap_p_value == again.swap_p_value == turned.swap_p_value and told.p_value == again.p_value and (told.p_draws, told.p_seed) == (999, 4)
        assert told.test == "paired swap test, 999 draws, seed 4, and bootstrap: the larger p"
        other = calibration_difference(one, two, binning=binning, draws=999, seed=5).swap_p_value
        assert abs(other - told.swap_p_value) < 5 * math.sqrt(2 * 0.25 / 999)
    by_bins = [calibration_difference(one, two, n_bins=n, draws=99) for n in (64, 65)]  # one product of matrices, and counting
    assert all(0 < d.p_value <= 1 for d in by_bins)


def test_p_convinces_under_both_tests_and_never_contradicts_the_interval():
    rng = np.random.default_rng(31)
    for k in range(60):
        d = calibration_difference(*(((sure, rng.random(100) < sure)) for sure in (np.full(100, 0.75), rng.uniform(0.5, 1, 100))), replicates=400, draws=199, seed=k)
        assert d.p_value == max(d.swap_p_value, d.bootstrap_p_value)
        if d.interval.contains(0): assert d.p_value > 0.04  # one replicate of 400 lies between 0.05 and the end
    assert not np.isnan(d.p_value)


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 40, 100, 300])
def test_false_alarms_of_a_difference_are_rare(n):
    R, rng, low = 800, np.random.default_rng(n), {"ece": 0, "mce": 0, "mass": 0, "brier": 0, "reliability": 0}
    for k in range(R):
        came, views = equal_arms(n, rng)
        arms = [as_confidence(p, came) for p in views]
        for name, more in (("ece", {}), ("mce", {"metric": "mce"}), ("mass", {"binning": "mass"})):
            low[name] += calibration_difference(*arms, replicates=40, draws=199, seed=k, **more).p_value <= 0.05
        low["brier"] += brier_difference(*views, came, method="percentile", replicates=40, draws=199, seed=k).p_value <= 0.05
        low["reliability"] += brier_difference(*views, came, term="reliability", n_bins=10, replicates=40, draws=199, seed=k).p_value <= 0.05
    bound = 0.05 + 4 * math.sqrt(0.05 * 0.95 / R)
    assert max(low.values()) / R <= bound, {name: count / R for name, count in low.items()}


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_rows_of_six_digits_are_admitted_and_rows_of_three_are_not(classes):
    p = np.random.default_rng(0).dirichlet(np.ones(classes), 2000)
    label = np.zeros(2000, dtype=int)
    rounded = np.round(p, 6)
    assert brier_score(rounded, label) == pytest.approx(((rounded - np.eye(classes)[label]) ** 2).sum(axis=1).mean(), rel=1e-12)  # as they are
    with pytest.raises(ContractError, match="six digits"): brier_score(np.round(p, 3), label)


def test_outcomes_may_be_booleans_of_every_kind():
    pandas = pytest.importorskip("pandas")
    p, wanted = [0.2, 0.7, 0.9], (0.8**2 + 0.7**2 + 0.1**2) / 3
    flags = [True, False, True]
    kinds = [flags, tuple(map(np.bool_, flags)), np.array(flags), np.array(flags, dtype=object), np.array(flags, dtype=np.uint8), [1, 0, 1],
             pandas.Series(flags), pandas.Series(flags, dtype="boolean", index=[7, 8, 9]), pandas.Series(flags, dtype=object)]
    for kind in kinds: assert brier_score(p, kind) == pytest.approx(wanted, rel=1e-15), type(kind)
    rows = pandas.DataFrame({"no": [0.8, 0.3, 0.1], "yes": p}, dtype="Float64")
    assert brier_score(rows, flags, normalization="half") == pytest.approx(wanted, rel=1e-15)  # two classes: False and True are columns 0 and 1
    rows.loc[1, "no"] = None
    with pytest.raises(ContractError, match=r"probability\[1\] must be numbers; got <NA> at index 0"): brier_score(rows, flags)
    with pytest.raises(ContractError, match="got <NA> at index 1"): brier_score(p, pandas.Series([True, None, True], dtype="boolean"))


# --- refusals -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call, message", [
    (lambda: expected_calibration_error([0.5, 1.5], [1, 0]), r"confidence must lie in \[0, 1\]; got 1.5 at index 1"),
    (lambda: expected_calibration_error(np.array([0.5, np.nan]), [1, 0]), "must be finite; got nan at index 1"),
    (lambda: expected_calibration_error([0.5, 0.5], np.array([1, 3])), "correct must be 0 or 1; got 3 at index 1"),
    (lambda: expected_calibration_error([0.5], [0.5]), "correct must be 0 or 1; got 0.5 at index 0"),
    (lambda: expected_calibration_error(np.ma.array([0.5, 0.6], mask=[0, 1]), [1, 0]), "must not be masked"),
    (lambda: expected_calibration_error([0.5, 0.6], np.ma.array([True, False], mask=[0, 1])), "must not be masked"),
    (lambda: expected_calibration_error([0.5, 0.6], [True, None]), "correct must be booleans throughout, or 0 and 1 throughout; got None at index 1"),
    (lambda: expected_calibration_error([0.5, 0.6], np.array([2, True], dtype=object)), "throughout; got 2 at index 0"),
    (lambda: expected_calibration_error([0.5, 0.6], np.array(True, dtype=object)), r"one dimension; got shape \(\)|one dimension; got a"),
    (lambda: expected_calibration_error([0.5], [1], n_bins=2**21), "n_bins must be at most"),
    (lambda: expected_calibration_error([0.5], [1], binning="quantile"), "binning must be one of 'width', 'mass'"),
    (lambda: reliability_bins([], []), "at least one prediction"),
    (lambda: brier_score(np.array([[0.5, np.nan]]), [0]), "got nan in row 0, column 1"),
    (lambda: brier_score([[0.2, 0.2]], [0]), "must add up to 1 within the rounding of six digits; got 0.4 in row 0"),
    (lambda: brier_score(np.array([[0.5, 0.5]]), [2]), "label must be a column"),
    (lambda: brier_score(np.array([[0.5, 0.5]]), [0, 1]), "label must have 1 entries"),
    (lambda: brier_score(np.array([[["a"]]]), [0]), "must be numbers of shape"),
    (lambda: brier_score([0.5], [1], normalization="third"), "normalization must be one of"),
    (lambda: brier_decomposition([0.5], [1], n_bins=0), "n_bins must be a whole number"),
    (lambda: brier_interval([0.5, 0.2], [1, 0], term="refinement"), "term must be one of"),
    (lambda: brier_interval([0.5, 0.2], [1, 0], seed=3), "a seed needs replicates"),
    (lambda: calibration_interval([0.5, 0.2], [1, 0], metric="rmsce"), "metric must be one of"),
    (lambda: top_label([0.5], [0]), "one column per class"),
])
def test_what_cannot_be_meant_is_refused(call, message):
    with pytest.raises(ContractError, match=message) as told: call()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("term", TERMS)
def test_terms_that_do_not_add_up_are_refused(term):
    good = brier_decomposition([0.2, 0.7, 0.75, 0.4], [0, 1, 0, 1], n_bins=4)
    assert replace(good, **{term: getattr(good, term) + 1e-14}) != good
    with pytest.raises(ContractError, match="the terms must add up to the score"): replace(good, **{term: getattr(good, term) + 1e-11})


def test_other_probes_are_a_pairing_error():
    with pytest.raises(PairingError, match="same probes"): calibration_difference(([0.5], [1]), ([0.5, 0.6], [1, 0]))
    with pytest.raises(PairingError, match="same probes"): brier_difference(np.full((2, 2), 0.5), np.full((3, 2), 0.5), [0, 1])


def test_rows_add_up_within_six_digits():
    assert brier_score(np.array([[0.5, 0.5 + 9e-7]]), [0]) == pytest.approx(0.5, abs=1e-5)
    for off in (1.1e-6, -1.1e-6, 1e-3):
        with pytest.raises(ContractError, match="must add up to 1 within the rounding of six digits; got .* in row 1"): brier_score(np.array([[0.5, 0.5], [0.5, 0.5 + off]]), [0, 0])
    wide = np.random.default_rng(25).dirichlet(np.ones(1000), 50).astype(np.float32)
    assert brier_score(wide, np.zeros(50)) > 0.9


def test_of_equal_probabilities_the_first_is_the_prediction():
    confidence, correct = top_label([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.2, 0.4, 0.4]], [0, 1, 1])
    assert confidence.tolist() == [0.4] * 3 and correct.tolist() == [True, False, True]


def test_tables_of_many_kinds():
    p, label = table(20, 3, seed=18)
    assert brier_score(p.tolist(), label.tolist()) == brier_score(p, label) == brier_score(tuple(map(tuple, p)), label)
    assert brier_score(p.astype(np.float32), label) == pytest.approx(brier_score(p, label), rel=1e-6)
    confidence, correct = top_label(p.astype(np.float32), label)
    assert confidence.dtype == np.float32 and correct.dtype == bool
