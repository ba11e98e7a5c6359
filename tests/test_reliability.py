"""Bins, calibration errors and their null distribution against torchmetrics, scikit-learn and every outcome listed; every float16 in its bin."""
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import canonical_json
from invar_nb.metrics.reliability import expected_calibration_error, mass_edges, poisson_binomial, reliability_bins
from invar_nb.statistics.proportions import wilson_interval

ece = expected_calibration_error
decimals = st.one_of(st.integers(0, 100).map(lambda k: k / 100), st.sampled_from([0.0, 1.0, 0.3, 0.6, 0.7, 0.29]), st.floats(0, 1, allow_subnormal=False))
rows = st.lists(st.tuples(decimals, st.booleans()), min_size=1, max_size=40)


def predictions(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, rng.random(n) < np.clip(p - shift, 0, 1)


def errors(p, y, **how):
    bins = reliability_bins(p, y, null=False, **how)
    assert math.isclose(bins.ece, ece(p, y, **how), rel_tol=1e-12, abs_tol=1e-15)
    return [bins.ece, bins.mce]


@settings(max_examples=150, deadline=None)
@given(rows, st.sampled_from(["width", "mass"]), st.integers(2, 5), st.randoms(use_true_random=False))
def test_order_and_duplication_change_nothing(given_rows, binning, times, random):
    moved = random.sample(given_rows, len(given_rows)) * times
    np.testing.assert_allclose(*(errors(*zip(*r, strict=True), binning=binning) for r in (given_rows, moved)), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 64])
@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
def test_torchmetrics(n, n_bins):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torchmetrics.functional.classification").binary_calibration_error
    p, y = predictions(n, seed=n + n_bins, shift=0.1)
    expected = [float(theirs(torch.tensor(p), torch.tensor(y.astype(int)), n_bins=n_bins, norm=norm)) for norm in ("l1", "max")]
    np.testing.assert_allclose(errors(p, y, n_bins=n_bins), expected, rtol=1e-12, atol=1e-15)


def test_more_bins_never_score_less():
    p, y = predictions(500, seed=8)
    for k in (2, 3, 5): assert ece(p, y, n_bins=10 * k) >= ece(p, y) - 1e-14
    np.testing.assert_allclose(ece(p, y, n_bins=1), abs(p.mean() - y.mean()), rtol=1e-12)


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


@pytest.mark.parametrize("n", [10, 97, 1000])
def test_equal_mass_bins_hold_equal_mass(n):
    p, y = predictions(n, seed=n)
    bins = reliability_bins(p, y, binning="mass", null=False)
    assert np.ptp(bins.count) <= 1 and bins.low[0] == p.min() and bins.high[-1] == p.max() and (bins.high[:-1] < bins.low[1:]).all()
    tied = reliability_bins(np.full(n, 0.7), y, binning="mass", null=False)
    assert tied.count.tolist() == [n] + [0] * 9 and tied.low[0] == tied.high[0] == 0.7 and np.isnan(tied.low[1:]).all()
    assert (mass_edges(10, p) == mass_edges(10, p[: n // 2], p[n // 2:])).all()


def test_single_precision_is_seen_in_every_container():
    pandas, torch = map(pytest.importorskip, ("pandas", "torch"))
    x, y = np.array([0.7, 0.75], dtype=np.float32), [1, 0]
    for way in (x, list(x), torch.tensor(x), pandas.Series(x), pandas.Series(x, dtype="Float32")):
        assert ece(way, y) == ece(x, y) and reliability_bins(way, y, null=False).count[7] == 2, type(way)
    assert reliability_bins(x.astype(float), y, null=False).count[7] == 1


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32, float, ">i8"])
def test_outcomes_of_every_type_mean_the_same(kind):
    p, y = predictions(777, seed=20)
    assert ece(p, y.astype(kind)) == ece(p, y) and ece(-np.zeros(3), [0, 0, 1]) == ece(np.zeros(3), [0, 0, 1])


# --- the null distribution ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 1000, 20_000])
def test_equal_probabilities_are_binomial(n):
    for p in (0.0, 0.03, 0.5, 0.97, 1.0):
        np.testing.assert_allclose(poisson_binomial(np.full(n, p)), stats.binom.pmf(np.arange(n + 1), n, p), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("seed", range(4))
def test_every_outcome_listed(seed, binning):
    "Nine predictions, some certain: 512 worlds with their probabilities, ECE and MCE."
    rng, how = np.random.default_rng(seed), dict(n_bins=4, binning=binning)
    p = np.round(rng.random(9), 2) if seed else np.array([0, 1, 1, .2, .4, .4, .9, .95, 1])
    worlds = [(math.prod(np.where(hits, p, 1 - p)), *errors(p, hits, **how)) for hits in np.ndindex(*[2] * 9)]
    for hits in rng.integers(0, 2, (6, 9)):
        seen = reliability_bins(p, hits, **how)
        np.testing.assert_allclose(seen.null.mean, sum(w * e for w, e, _ in worlds), rtol=1e-10)
        np.testing.assert_allclose(seen.null.p_value, sum(w for w, e, _ in worlds if e >= seen.ece - 1e-9), rtol=1e-6, atol=1e-11)
        np.testing.assert_allclose(seen.null.mce_p_value, sum(w for w, _, m in worlds if m >= seen.mce * (1 - 1e-9) - 1e-12), rtol=1e-6, atol=1e-11)
        below = sum(w for w, e, _ in worlds if e < seen.null.low - seen.null.error - 1e-9)
        above = sum(w for w, e, _ in worlds if e > seen.null.high + seen.null.error + 1e-9)
        assert below <= 0.025 + 1e-9 and above <= 0.025 + 1e-9


def test_more_examples_narrow_the_band_and_certain_ones_leave_none():
    p = np.random.default_rng(6).random(80)
    once, often = reliability_bins(p, p > 0.5).null, reliability_bins(np.tile(p, 16), np.tile(p > 0.5, 16)).null
    assert often.mean < once.mean / 3 and often.high < once.mean and often.error < 1e-4
    assert once.low <= once.mean <= once.high and once.limit <= once.high
    for y, least, most in (([0, 1, 1], 1.0, 1.0), ([0, 1, 0], 0.0, 1e-11)):
        null = reliability_bins([0.0, 1.0, 1.0], y).null
        assert (null.mean, null.low, null.high) == (0, 0, 0) and least <= null.p_value <= most and least <= null.mce_p_value <= most


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
    with pytest.raises(ValueError): bins.count[0] = 1


@pytest.mark.parametrize("p, y, options", [
    ([0.5, np.nan], [0, 1], {}), ([0.5, 1 + 2.0**-52], [0, 1], {}), ([0.5, -5e-324], [0, 1], {}), ([0.5, 0.6], [0, 2], {}), ([0.5, 0.6], [0], {}), ([], [], {}),
    ([[0.5]], [1], {}), ([0.5], [1], {"n_bins": 0}), ([0.5], [1], {"n_bins": 1 << 21}), ([0.5], [1], {"binning": "Width"}), ([0.5], [1], {"level": 95})])
def test_refusals(p, y, options):
    for call in (reliability_bins, ece)[:1 if "level" in options else 2]:
        with pytest.raises(ContractError) as refused: call(p, y, **options)
        assert refused.value.code == "contract"
