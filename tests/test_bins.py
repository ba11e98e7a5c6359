"""Bins and calibration errors against definitions in fractions, torchmetrics and scikit-learn; every float16 in its bin."""
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.foundations.numbers import ContractError
from invar_nb.metrics.bins import bin_of, expected_calibration_error, mass_edges, maximum_calibration_error, width_edges
from invar_nb.metrics.null_band import reliability_bins

decimals = st.one_of(st.integers(0, 100).map(lambda k: k / 100), st.sampled_from([0.0, 1.0, 0.3, 0.6, 0.7, 0.29]), st.floats(0, 1, allow_subnormal=False))
rows = st.lists(st.tuples(decimals, st.booleans()), min_size=1, max_size=40)
more = settings(max_examples=150, deadline=None)


def predictions(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, rng.random(n) < np.clip(p - shift, 0, 1)


def literal(p, y, n_bins, binning):
    "(ECE, MCE) by the definition, in fractions; edges are the floats nearest to k/M."
    bins = {}
    for a, b in zip(p, y, strict=True):
        m = sum(a >= k / n_bins for k in range(1, n_bins)) if binning == "width" else n_bins * sum(c < a for c in p) // len(p)
        bins.setdefault(m, []).append(Fraction(a) - int(b))
    return float(sum(abs(sum(g)) for g in bins.values()) / len(p)), float(max(abs(sum(g)) / len(g) for g in bins.values()))


@more
@given(rows, st.integers(1, 120), st.sampled_from(["width", "mass"]))
def test_the_definition(given_rows, n_bins, binning):
    p, y = [a for a, _ in given_rows], [b for _, b in given_rows]
    found = [f(p, y, n_bins=n_bins, binning=binning) for f in (expected_calibration_error, maximum_calibration_error)]
    np.testing.assert_allclose(found, literal(p, y, n_bins, binning), rtol=1e-12, atol=1e-15)
    bins = reliability_bins(p, y, n_bins=n_bins, binning=binning, null=False)
    np.testing.assert_allclose([bins.ece, bins.mce], found, rtol=1e-12, atol=1e-15)


@more
@given(rows, st.sampled_from(["width", "mass"]), st.integers(2, 5), st.randoms(use_true_random=False))
def test_order_and_duplication_change_nothing(given_rows, binning, times, random):
    moved = random.sample(given_rows, len(given_rows)) * times
    for f in (expected_calibration_error, maximum_calibration_error):
        a, b = (f(*zip(*r, strict=True), binning=binning) for r in (given_rows, moved))
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 64])
@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
def test_torchmetrics(n, n_bins):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torchmetrics.functional.classification").binary_calibration_error
    p, y = predictions(n, seed=n + n_bins, shift=0.1)
    for norm, ours in (("l1", expected_calibration_error), ("max", maximum_calibration_error)):
        expected = theirs(torch.tensor(p), torch.tensor(y.astype(int)), n_bins=n_bins, norm=norm)
        np.testing.assert_allclose(ours(p, y, n_bins=n_bins), float(expected), rtol=1e-12, atol=1e-15)


def test_scikit_learn_draws_the_same_curve():
    calibration = pytest.importorskip("sklearn.calibration")
    p, y = predictions(3000, seed=3, shift=0.2)
    share, mean = calibration.calibration_curve(y, p, n_bins=12)
    found = reliability_bins(p, y, n_bins=12, null=False)
    np.testing.assert_allclose(found.accuracy, share, rtol=1e-12)
    np.testing.assert_allclose(found.mean_confidence, mean, rtol=1e-12)


def test_more_bins_never_score_less():
    p, y = predictions(500, seed=8)
    for k in (2, 3, 5): assert expected_calibration_error(p, y, n_bins=10 * k) >= expected_calibration_error(p, y) - 1e-14
    np.testing.assert_allclose(expected_calibration_error(p, y, n_bins=1), abs(p.mean() - y.mean()), rtol=1e-12)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 6, 7, 10, 19, 64, 100])
def test_every_half_precision_number_lands_in_its_bin(n_bins):
    "All 15361 of them; each edge is the float16 nearest to k/M by exact comparison."
    p = np.arange(np.float16(1).view(np.uint16) + 1, dtype=np.uint16).view(np.float16)
    def nearest(x):
        near = (np.float16(x), np.nextafter(np.float16(x), np.float16(0)), np.nextafter(np.float16(x), np.float16(2)))
        return min(near, key=lambda q: (abs(Fraction(float(q)) - x), int(q.view(np.uint16)) & 1))
    edges = [0.0, *(float(nearest(Fraction(k, n_bins))) for k in range(1, n_bins)), 2.0]
    expected = [sum(1 for q in p.tolist() if a <= q < b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert reliability_bins(p, np.ones(p.size), n_bins=n_bins, null=False).count.tolist() == expected


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("n_bins", [2, 10, 13, 30, 64, 100, 1000, 5000])
def test_neighbours_of_every_edge_land_on_its_two_sides(n_bins, kind):
    edges = np.array([kind(k / n_bins) for k in range(1, n_bins)])
    up, down = np.nextafter(edges, kind(2)), np.nextafter(edges, kind(0))
    k, found = np.arange(1, n_bins), width_edges(n_bins, kind)
    for p, expected in ((edges, k), (up, k), (down, k - 1)): assert (bin_of(p, found) == expected).all()


@pytest.mark.parametrize("n", [10, 97, 1000])
def test_equal_mass_bins_hold_equal_mass(n):
    p, y = predictions(n, seed=n)
    bins = reliability_bins(p, y, binning="mass", null=False)
    assert np.ptp(bins.count) <= 1 and bins.low[0] == p.min() and bins.high[-1] == p.max() and (bins.high[:-1] < bins.low[1:]).all()
    tied = reliability_bins(np.full(n, 0.7), y, binning="mass", null=False)
    assert (tied.count > 0).sum() == 1 and tied.count[0] == n
    assert (mass_edges(10, p) == mass_edges(10, p[: n // 2], p[n // 2:])).all()


def test_single_precision_is_seen_in_every_container():
    pandas, torch = map(pytest.importorskip, ("pandas", "torch"))
    x, y = np.array([0.7, 0.75], dtype=np.float32), [1, 0]
    for way in (x, list(x), torch.tensor(x), pandas.Series(x), pandas.Series(x, dtype="Float32")):
        assert expected_calibration_error(way, y) == expected_calibration_error(x, y), type(way)
        assert reliability_bins(way, y, null=False).count[7] == 2
    assert reliability_bins(x.astype(float), y, null=False).count[7] == 1


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32, float, ">i8"])
def test_outcomes_of_every_type_mean_the_same(kind):
    p, y = predictions(777, seed=20)
    assert expected_calibration_error(p, y.astype(kind)) == expected_calibration_error(p, y)
    assert expected_calibration_error(-np.zeros(3), [0, 0, 1]) == expected_calibration_error(np.zeros(3), [0, 0, 1])


@pytest.mark.parametrize("call, words", [
    (lambda: expected_calibration_error([0.5, np.nan], [0, 1]), "index 1"),
    (lambda: expected_calibration_error([0.5, 1 + 2.0**-52], [0, 1]), "1.0000000000000002 at index 1.*logits"),
    (lambda: expected_calibration_error([0.5, -5e-324], [0, 1]), "index 1"),
    (lambda: expected_calibration_error([0.5, 0.6], [0, 2]), "2.0 at index 1"),
    (lambda: expected_calibration_error([0.5, 0.6], [0]), "2 entries.*got 1"),
    (lambda: expected_calibration_error([], []), "at least one prediction"),
    (lambda: expected_calibration_error([0.5], [1], n_bins=0), "n_bins"),
    (lambda: expected_calibration_error([0.5], [1], n_bins=1 << 21), "n_bins"),
    (lambda: expected_calibration_error([0.5], [1], binning="Width"), "binning must be one of 'width', 'mass'"),
    (lambda: maximum_calibration_error([[0.5]], [1]), "one dimension"),
])
def test_refusals_name_the_culprit(call, words):
    with pytest.raises(ContractError, match=words): call()
