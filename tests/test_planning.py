"""Sample sizes against simulation with the interval itself, the normal law, and the closed form of one edge."""
import math

import numpy as np
import pytest
from scipy import stats

from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.planning import n_for_power


@pytest.mark.parametrize("s, delta, margin", [(1, 0.3, 0.1), (0.05, -0.02, 0.02), (2, 0.5, None), (1, 0.2, 0)])
def test_outside_the_margin_one_edge_matters(s, delta, margin):
    for power in (0.5, 0.8, 0.9):
        exact = ((stats.norm.ppf(0.975) + stats.norm.ppf(power)) * s / delta) ** 2
        assert n_for_power(s, delta, margin, power) == math.ceil(exact)


def test_inside_the_margin_both_edges_matter():
    z = stats.norm.ppf
    assert n_for_power(1, 0, 0.1) == math.ceil(((z(0.975) + z(0.9)) / 0.1) ** 2)
    for delta in (0.0, 0.01, 0.03, 0.06, 0.09):
        n = n_for_power(1, delta, 0.1)
        def chance(n): return stats.norm.cdf(math.sqrt(n) * (0.1 - delta) - z(0.975)) - stats.norm.cdf(z(0.975) - math.sqrt(n) * (0.1 + delta))  # noqa: B023
        assert chance(n) >= 0.8 > chance(n - 1)


def test_a_pilot_asks_for_more():
    known, small, large = (n_for_power(1, 0.1, 0.05, nu=nu) for nu in (None, 9, 900))
    assert small / known == pytest.approx(9 / stats.chi2.ppf(0.2, 9), rel=2e-3) and known < large < 1.1 * known


def test_what_no_sample_settles():
    assert n_for_power(1, 0, None) is None and n_for_power(1, 0, 0) is None and n_for_power(0, 0.1, 0.02) == 2


LAWS = {"normal": lambda rng, size: rng.standard_normal(size), "Laplace": lambda rng, size: rng.laplace(size=size) / math.sqrt(2), "gamma": lambda rng, size: rng.standard_exponential(size) - 1}


@pytest.mark.parametrize("law, delta, margin", [("normal", 0.3, 0.3), ("normal", 0.4, 0.2), ("normal", -0.25, 0.2), ("normal", 0.0, 0.3), ("normal", 0.1, 0.4), ("Laplace", 0.2, 0.2),
                                                ("Laplace", 0.0, 0.2), ("gamma", 0.1, 0.1), ("gamma", -0.1, 0.05)])
def test_the_claim_comes_in_four_of_five_simulations(law, delta, margin):
    n, trials, rng = n_for_power(1, delta, margin), 2000, np.random.default_rng(7)
    d = delta + LAWS[law](rng, (trials, n))  # skewed laws reach the normal one slowly: 0.70 to 0.88 below a hundred units
    ends = [jackknife_ratio(row, np.ones(n)).interval() for row in d]
    inside = np.array([-margin < i.low and i.high < margin for i in ends])
    nonzero = np.array([i.low > 0 if delta > 0 else i.high < 0 for i in ends])
    made = np.mean(nonzero & ~inside if abs(delta) >= margin else inside)
    assert 0.75 <= made <= 0.85, (law, delta, margin, n, made)
