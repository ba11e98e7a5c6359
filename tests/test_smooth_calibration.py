"""Smooth calibration error against Gaussian images and quadrature, its limits, its continuity and its leave-one-out values."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from invar_nb.metrics.smooth_calibration import smooth_calibration_error



def left(p, y, sigma, cells=1500):
    "The integral by midpoints, the reflected kernel by its images."
    t = (np.arange(cells) + 0.5) / cells
    r = np.zeros(cells)
    for shift in range(-3, 4):
        for at in (p, -p): r += np.exp(-0.5 * ((t[:, None] - at - 2 * shift) / sigma) ** 2) @ (y - p)
    return np.abs(r).mean() / p.size / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("n, power", [(1, 1.0), (5, 1.0), (60, 1.5), (400, 1.0), (400, 0.5)])
def test_images_and_quadrature(n, power):
    rng = np.random.default_rng(n)
    p = rng.beta(2, 1, n)
    y = (rng.random(n) < p**power).astype(float)
    expected = brentq(lambda s: left(p, y, s) - s, 0.005, 1.0, xtol=1e-10)
    assert abs(smooth_calibration_error(p, y) - expected) < 3e-5


rows = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(rows, st.floats(0, 0.01), st.randoms(use_true_random=False))
def test_between_bias_and_distance_and_continuous(given_rows, epsilon, random):
    "At least the size of the mean error (all of it cancels at most), at most the mean size; a nudge moves it by the bound of the page."
    p, y = (np.array(v, dtype=float) for v in zip(*given_rows, strict=True))
    value = smooth_calibration_error(p, y)
    assert abs((y - p).mean()) - 1e-3 <= value <= np.abs(y - p).mean() + 1e-4  # what the grid does not resolve is 0
    turned = random.sample(given_rows, len(given_rows)) * 2
    assert math.isclose(smooth_calibration_error(*zip(*turned, strict=True)), value, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(smooth_calibration_error(1 - p, 1 - y), value, rel_tol=1e-6, abs_tol=1e-6)  # the rod turned around
    q = np.clip(p + epsilon * np.array([random.choice((-1, 1)) for _ in p]), 0, 1)
    bound = epsilon * (1 + math.sqrt(2 / math.pi) / value) if value > 0.001 else math.sqrt(epsilon) + epsilon + 0.001
    assert smooth_calibration_error(q, y) - value <= bound + 1e-6
