"Pooled texts: coverage over many trials, with draws that the page does not make."
import numpy as np
import pytest

from invar_nb.statistics.pooling import pool_fixed, pool_random


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 6, 12])
@pytest.mark.parametrize("tau", [0, .5, 1, 3])
def test_coverage_of_texts_like_these(k, tau, capsys):
    rng, inside, n = np.random.default_rng([k, int(2 * tau)]), np.zeros(4), 4000
    for errors, at in (((.3, 1, 3), 0), ((.7, 1, 1.4), 2)):
        for _ in range(n):
            se = rng.choice(errors, k)
            pooled = pool_random(rng.normal(0, tau, k) + rng.normal(0, se), se)
            (low, high), (a, b) = pooled.ends(), pooled.prediction()
            inside[at:at + 2] += low < 0 < high, a < rng.normal(0, tau) < b
    with capsys.disabled(): print(f"\n{k} texts, tau {tau}: mean {inside[0] / n:.3f}, next {inside[1] / n:.3f}; errors within a factor of 2: {inside[2] / n:.3f}, {inside[3] / n:.3f}")
    assert (inside[[0, 2]] / n > (.90, .93)).all()
    assert (inside[[1, 3]] / n > .82).all()                                                 # what the page states: short where the spread is small (Partlett and Riley 2017)


@pytest.mark.parametrize("k", [2, 5])
def test_fixed_weights_cover(k):
    rng, inside = np.random.default_rng(k), 0
    nu, scale, weights = np.array([6, 12, 40, 40, 100][:k]), np.array([3, 1, 1, 2, .5][:k]), np.array([1, 1, 2, 1, 3][:k])
    for _ in range(3000):
        d = rng.normal(0, scale)
        pooled = pool_fixed(d, scale * np.sqrt(rng.chisquare(nu) / nu), nu, weights)
        low, high = pooled.ends()
        inside += low < 0 < high
        assert (pooled.p_value() < .05) == (not low <= 0 <= high)
    assert abs(inside / 3000 - .95) < .014


def test_no_change_and_order():
    none = pool_random([0, 0, 0], [0, 0, 0])
    assert none.ends() == (0, 0) == none.prediction() and none.p_value() == 1
    d, se, at = np.array([.1, .3, -.2, .05]), np.array([.1, .2, .1, .05]), [2, 0, 3, 1]
    a, b = pool_random(d, se), pool_random(d[at], se[at])
    np.testing.assert_allclose([a.estimate, a.standard_error, a.spread], [b.estimate, b.standard_error, b.spread], rtol=1e-12)
    np.testing.assert_allclose(np.array(a.weights)[at], b.weights, rtol=1e-9)
    np.testing.assert_allclose(pool_random(1e6 * d, 1e6 * se).spread, 1e6 * a.spread, rtol=1e-9)
