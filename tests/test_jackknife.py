"""The jackknife beyond its page: formulas as printed over block sizes, both arms deleted by hand, duality in ten thousand cases, degenerate and extreme units."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from invar_nb.statistics.jackknife import Jackknife, jackknife_ratio, jackknife_ratio_difference, jackknife_statistic
from invar_nb.statistics.serial import serial_ratio


def draw(rng, n=None):
    n = n or int(rng.integers(2, 1001))
    d = (rng.normal, rng.standard_exponential, lambda size: rng.standard_t(3, size), lambda size: rng.lognormal(0, 2, size),
         lambda size: rng.integers(-1, 2, size) * 1.0, rng.standard_cauchy, lambda size: np.where(rng.random(size) < 0.03, 50.0, 0) + 1e-3 * rng.normal(size=size))[rng.integers(7)](size=n)
    t = (np.ones(n), np.rint(rng.lognormal(4, 1, n)) + 1, np.where(rng.random(n) < 0.1, 5000.0, 100), np.r_[1e7, np.ones(n - 1)])[rng.integers(4)]
    return d * 10.0 ** rng.integers(-3, 3) + rng.choice([0, 1, -0.01]), t


def printed(y, n_minus_one):
    "nu and c as @eq-jackknife-nu and @eq-jackknife-skewness print them, with arrays of n."
    n, z = y.size, y / math.sqrt((y**2).mean())
    k = n * (y**4).sum() / (y**2).sum() ** 2
    nu = min(n_minus_one, max(2, 2 * n / (k - 1)))
    g = (z**3).mean()
    v = ((z**3 - 3 * z - g - 1.5 * g * (z**2 - 1)) ** 2).mean() / n
    return nu, 0.0 if v >= g * g else g * (1 - v / g**2) / (2 * math.sqrt(n))


def without(N, W, u): return np.delete(N, u).sum() / np.delete(W, u).sum()


@pytest.mark.parametrize("n", [2, 3, 5, 30, 300, 16384, 16385, 40_000])
def test_degrees_of_freedom_and_skewness_as_printed(n):
    rng = np.random.default_rng(n)
    for law in (rng.standard_normal, rng.standard_exponential, lambda size: rng.lognormal(0, 1.5, size)):
        d, t = law(n), np.rint(rng.lognormal(4, 0.7, n)) + 1
        fit, other = jackknife_ratio(t * d, t), jackknife_ratio(d, t, means=True)
        np.testing.assert_allclose([fit.nu, fit.skewness], printed(t * (d - (t * d).sum() / t.sum()), n - 1), rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose([fit.standard_error, fit.nu, fit.skewness], [other.standard_error, other.nu, other.skewness], rtol=1e-9, atol=1e-12)
        assert fit.dof == fit.nu and fit.n_units == n and fit.units_eff == pytest.approx(t.sum() ** 2 / (t * t).sum())


def test_small_skewness_keeps_all_digits():
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 400
    q = mp.mpf(-float(stats.t.ppf(0.025, 30)))
    for c in (1e-300, 1e-17, 1e-12, 1.1e-9, 1e-8, 1e-5, 0.01):
        fit = Jackknife(estimate=0.0, standard_error=1.0, skewness=c, dof=30.0, nu=30.0, n_units=50, units_eff=50.0, fallback=None)
        truth = -3 / mp.mpf(c) * (mp.cbrt(1 + mp.mpf(c) * (q - mp.mpf(c) / 6)) - 1)
        assert abs(fit.interval().low / truth - 1) < 1e-13


def test_interval_and_p_value_agree_in_ten_thousand_cases():
    rng, closed = np.random.default_rng(4), 0
    for k in range(2500):
        d, t = draw(rng, int(rng.choice([2, 3, 5, 9, 10, 37])) if k % 3 == 0 else None)
        level, n = rng.uniform(0.8, 0.999), d.size
        for fit in (jackknife_ratio(t * d, t), serial_ratio(t * d, t), jackknife_ratio_difference((t * d * 0.5, t), (t * d, 1.5 * t)), jackknife_statistic(d.mean(), (d.sum() - d) / (n - 1))):
            interval = fit.interval(level)
            if fit.fallback:
                assert interval.low == interval.high == fit.estimate and interval.fallback == fit.fallback
                continue
            closed += 1
            assert interval.engine == "closed_form" and interval.contains(0) == (fit.p_value() >= 1 - level)
            if fit.standard_error > 1e-6 * max(abs(interval.low), abs(interval.high)):  # else the end itself has too few digits
                assert fit.p_value(interval.low) == pytest.approx(1 - level, rel=1e-8) == fit.p_value(interval.high)
            wider = fit.interval(level + 0.0005)
            assert wider.low <= interval.low <= interval.high <= wider.high
    assert closed > 9000


def test_both_arms_deleted_by_hand():
    rng = np.random.default_rng(5)
    for n in (3, 8, 50):
        a, b, wa, wb = rng.normal(size=n), rng.gamma(1, size=n), rng.integers(0, 4, n) * 1.0, rng.integers(1, 9, n) * 1.0
        wa[:2] = 1, 2
        fit = jackknife_ratio_difference((a * wa, wa), (b * wb, wb))
        D = without(b * wb, wb, []) - without(a * wa, wa, [])
        deleted = np.array([without(b * wb, wb, u) - without(a * wa, wa, u) for u in range(n)])
        ua, ub = ((w * (x - (x * w).sum() / w.sum()) / w.sum()) for x, w in ((a, wa), (b, wb)))
        np.testing.assert_allclose([fit.estimate, fit.standard_error], [D, math.sqrt(((D - deleted) ** 2).sum())], rtol=1e-12)
        np.testing.assert_allclose([fit.nu, fit.skewness], printed(ub - ua, n - 1), rtol=1e-9, atol=1e-13)


def test_equal_weights_in_both_arms_are_one_ratio_and_a_statistic():
    rng = np.random.default_rng(6)
    a, b, t = rng.normal(size=70), rng.gamma(2, size=70), np.rint(rng.lognormal(4, 1, 70)) + 1
    two, one = jackknife_ratio_difference((a * t, t), (b * t, t)), jackknife_ratio((b - a) * t, t)
    for name in ("estimate", "standard_error", "skewness", "nu", "units_eff"): assert getattr(two, name) == pytest.approx(getattr(one, name), rel=1e-10)
    plain, again = jackknife_ratio(a, np.ones(70)), jackknife_statistic(a.mean(), (a.sum() - a) / 69)
    for name in ("estimate", "standard_error", "skewness", "nu", "units_eff"): assert getattr(plain, name) == pytest.approx(getattr(again, name), rel=1e-9)


# --- degenerate and extreme -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("N, W, code", [([0.3], [1.0], "single_pair"), ([2.0, 0.0], [4.0, 0.0], "single_pair"), ([1e15, 0.0], [1e15, 1.0], "single_pair"),
                                        ([0.9, 0.3, 0.6], [3.0, 1.0, 2.0], "all_equal"), ([0.0] * 5, [1.0] * 5, "all_equal")])
def test_no_spread_is_said(N, W, code):
    for fit in (jackknife_ratio(np.array(N), np.array(W)), serial_ratio(np.array(N), np.array(W)),
                jackknife_ratio_difference((np.zeros(len(N)), np.array(W)), (np.array(N), np.array(W)))):
        assert fit.fallback.code == code and fit.interval().width == 0 and fit.interval().fallback.code == code
        assert (fit.p_value() is None) if code == "single_pair" else fit.p_value() == (fit.estimate == 0)


def test_rounding_is_no_spread_and_small_spread_is_one():
    t = np.arange(1.0, 181)
    assert jackknife_ratio(0.3 * t, t).fallback.code == "all_equal" == jackknife_ratio(np.full(180, 0.3), t, means=True).fallback.code
    assert jackknife_ratio((0.3 + 1e-12 * np.sin(t)) * t, t).fallback is None
    assert jackknife_statistic(0.3, np.full(9, 0.3)).fallback.code == "all_equal"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-60, 1e60, 1e200, 1e300])
def test_the_unit_does_not_matter(scale):
    rng = np.random.default_rng(8)
    d, t = rng.gamma(1, size=50) + 0.5, rng.integers(1, 9, 50) * 1.0
    for make in (lambda s, w: jackknife_ratio(t * (d * s), t * w), lambda s, w: serial_ratio(t * (d * s), t * w), lambda s, w: jackknife_statistic(s, d * s),
                 lambda s, w: jackknife_ratio_difference((t * (d * d * s), t * w), (t * (d * s), t * w))):
        here, there = make(1.0, 1.0), make(scale, 1.0)
        np.testing.assert_allclose([there.standard_error / scale, there.nu, there.skewness], [here.standard_error, here.nu, here.skewness], rtol=1e-12)
        np.testing.assert_allclose([there.interval().low / scale, there.interval().high / scale], [here.interval().low, here.interval().high], rtol=1e-11)
        weighed = make(scale, scale)
        np.testing.assert_allclose([weighed.nu, weighed.skewness, weighed.units_eff], [here.nu, here.skewness, here.units_eff], rtol=1e-10)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 10**6)), min_size=2, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_any_rows_in_any_order(rows, random):
    def study(rows):
        d, t = (np.array(x, float) for x in zip(*rows, strict=True))
        return jackknife_ratio(t * d, t)
    one, (low, high) = study(rows), (lambda i: (i.low, i.high))(study(rows).interval(0.99))
    random.shuffle(rows)
    two = study(rows)
    assert math.isfinite(low) and low <= high
    if one.fallback is None is two.fallback and one.standard_error > 1e-7 * max(1.0, *(abs(d) for d, _ in rows)):
        np.testing.assert_allclose([two.standard_error, two.nu, two.interval(0.99).low, two.interval(0.99).high], [one.standard_error, one.nu, low, high], rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_one_dominant_unit():
    for heavy in (10.0, 1e3, 1e6, 1e8):
        t, d = np.r_[heavy, np.ones(30)], np.r_[0.3, np.random.default_rng(9).normal(0, 0.1, 30)]
        fit = jackknife_ratio(t * d, t)
        assert fit.standard_error > 0.9 * abs(d[0] - d[1:].mean()) * (heavy / (heavy + 30))  # without it the mean would move that far
        assert 1 < fit.units_eff < 20 and fit.interval().contains(d[1:].mean())


# --- units ------------------------------------------------------------------------------------------------------------------------------
