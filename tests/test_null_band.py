"""The null distribution of the ECE against every outcome listed, scipy's binomial and simulated perfect models."""
import json
import math

import numpy as np
import pytest
from scipy import stats

from invar_nb.foundations.numbers import canonical_json
from invar_nb.metrics.bins import expected_calibration_error, maximum_calibration_error
from invar_nb.metrics.null_band import poisson_binomial, reliability_bins
from invar_nb.statistics.proportion import wilson_interval


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 1000, 20_000])
def test_equal_probabilities_are_binomial(n):
    for p in (0.03, 0.5, 0.97):
        np.testing.assert_allclose(poisson_binomial(np.full(n, p)), stats.binom.pmf(np.arange(n + 1), n, p), rtol=1e-6, atol=1e-14)


def test_unequal_and_certain_probabilities():
    p = np.array([0.0, 1.0, 0.2, 0.9, 1.0, 0.4])
    law = np.array([1.0])
    for q in p: law = np.convolve(law, [1 - q, q])
    np.testing.assert_allclose(poisson_binomial(p), law, atol=1e-15)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("seed", range(4))
def test_every_outcome_listed(seed, binning):
    "Nine predictions: 512 worlds with their probabilities, ECE and MCE."
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(9), 2)
    how = dict(n_bins=4, binning=binning)
    worlds = [(math.prod(np.where(hits, p, 1 - p)), expected_calibration_error(p, hits, **how), maximum_calibration_error(p, hits, **how)) for hits in np.ndindex(*[2] * 9)]
    for hits in rng.integers(0, 2, (6, 9)):
        seen = reliability_bins(p, hits, **how)
        np.testing.assert_allclose(seen.null.mean, sum(w * e for w, e, _ in worlds), rtol=1e-10)
        np.testing.assert_allclose(seen.null.p_value, sum(w for w, e, _ in worlds if e >= seen.ece - 1e-9), rtol=1e-6, atol=1e-11)
        np.testing.assert_allclose(seen.null.mce_p_value, sum(w for w, _, m in worlds if m >= seen.mce * (1 - 1e-9) - 1e-12), rtol=1e-6, atol=1e-11)
        below = sum(w for w, e, _ in worlds if e < seen.null.low - seen.null.error - 1e-9)
        above = sum(w for w, e, _ in worlds if e > seen.null.high + seen.null.error + 1e-9)
        assert below <= 0.025 + 1e-9 and above <= 0.025 + 1e-9


@pytest.mark.parametrize("n, expected", [(60, 0.115), (100, 0.088), (1000, 0.028)])
def test_a_perfect_model_has_an_error(n, expected):
    "Confidences of three classes, uniform on [1/3, 1]."
    rng = np.random.default_rng(n)
    means = [reliability_bins(rng.uniform(1 / 3, 1, n), np.ones(n)).null.mean for _ in range(40)]
    assert abs(np.mean(means) - expected) < 0.0015


def test_p_values_of_perfect_models_are_at_most_uniform():
    rng, trials = np.random.default_rng(5), 400
    p = rng.uniform(0.5, 1, 120)
    low = np.array([reliability_bins(p, rng.random(120) < p).null.p_value for _ in range(trials)])
    for q in (0.05, 0.2, 0.5): assert abs((low <= q).mean() - q) < 4 * math.sqrt(q * (1 - q) / trials) + 0.005


def test_ten_times_the_examples_narrow_the_band():
    p = np.random.default_rng(6).random(80)
    once, often = reliability_bins(p, p > 0.5).null, reliability_bins(np.tile(p, 16), np.tile(p > 0.5, 16)).null
    assert often.mean < once.mean / 3 and often.high < once.mean and often.error < 1e-4
    assert once.low <= once.mean <= once.high and once.limit <= once.high


def test_nothing_left_to_chance():
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
