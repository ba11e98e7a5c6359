"""The debiased calibration error against loops over pairs, enumeration of every outcome, and simulated coverage."""
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from invar_nb.metrics.metric import METRICS
from invar_nb.foundations.refuse import ContractError
from invar_nb.metrics.reliability import bin_of, mass_edges
from invar_nb.metrics.calibration import calibration_error, calibration_interval, squared_calibration_error, squared_error_without
from invar_nb.statistics.jackknife import jackknife_statistic

metric = METRICS["calibration"]


def by_pairs(p, y, index, cluster):
    total = 0.0
    for m in set(index.tolist()):
        rows = np.flatnonzero(index == m)
        products = [(p[i] - y[i]) * (p[j] - y[j]) for i in rows for j in rows if cluster[i] != cluster[j]]
        total += len(rows) * np.mean(products) if products else 0.0
    return total / len(p)


def test_unbiased_by_enumeration():
    "All outcomes of ten answers in two bins and five clusters of two whose answers always agree."
    p = np.array([0.6, 0.62, 0.64, 0.66, 0.7, 0.72, 0.8, 0.82, 0.9, 0.92])
    index, codes, gap = np.repeat([0, 1], [6, 4]), np.repeat(np.arange(5), 2), np.repeat([0.15, -0.05], [6, 4])
    mean = 0.0
    for hits in itertools.product((0, 1), repeat=5):  # one coin a cluster: p - y has expectation `gap` only pair by pair
        truth = (p - gap)[::2]
        e = np.repeat(truth - hits, 2) + gap          # the same error for both of a cluster
        mean += math.prod(np.where(hits, truth, 1 - truth)) * squared_error_without(e, index, codes, 5, 2)[0]
    assert math.isclose(mean, np.mean(gap**2), rel_tol=1e-12)


def test_the_bins_are_shared_and_of_equal_mass():
    rng = np.random.default_rng(1)
    a, y = rng.uniform(0.5, 0.9, 200), rng.integers(0, 2, 200)
    b = a + 0.1
    arms = [SimpleNamespace(confidence=p, correct=y) for p in (a, b)]
    shared = metric.prepare(*arms)
    for arm in arms:
        value, without = shared.leave_one_out(arm, np.arange(200), 200)
        index = bin_of(arm.confidence, mass_edges(10, a, b))
        np.testing.assert_allclose(value, by_pairs(arm.confidence, y, index, np.arange(200)), rtol=1e-9)
        assert without.shape == (200,)
    assert metric.prepare(arms[0]).leave_one_out(arms[0], np.arange(200), 200)[0] == pytest.approx(squared_calibration_error(a, y))
    assert "no confidence" in metric.missing(SimpleNamespace(confidence=None))
    assert "at least 30" in metric.missing(SimpleNamespace(confidence=a[:20])) and metric.missing(arms[0]) is None


def test_two_calibrated_models_are_seldom_told_apart():
    "One of them knows less; the page has the coverage of true changes."
    rng, trials, inside, false = np.random.default_rng(600), 300, 0, 0
    for _ in range(trials):
        a = rng.uniform(0.5, 1, 600)
        y = (rng.random(600) < a).astype(float)
        arms = [SimpleNamespace(confidence=p, correct=y) for p in (a, np.where(a < 0.75, 0.625, 0.875))]
        shared = metric.prepare(*arms)
        (A, A_u), (B, B_u) = (shared.leave_one_out(arm, np.arange(600), 600) for arm in arms)
        found = jackknife_statistic(B - A, B_u - A_u).interval()
        inside += found.low <= 0 <= found.high
        false += found.high < 0
    assert inside / trials > 0.95 - 4 * math.sqrt(0.95 * 0.05 / trials) and false / trials < 0.05


def test_few_examples_and_wrong_clusters():
    p, y = np.linspace(0.1, 0.9, 29), np.arange(29) % 2
    with pytest.raises(ContractError, match="only 29 examples share a bin"): calibration_interval(p, y)
    with pytest.raises(ContractError, match="29 clusters"): calibration_error(p, y, clusters=["a"])
    found = calibration_interval(np.tile(p, 9), np.tile(y, 9), clusters=[f"t{i}" for i in range(29)] * 9, level=0.9)
    assert found.level == 0.9 and 0 <= found.low <= found.high and found.method == "jackknife"
