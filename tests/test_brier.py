"""Brier score, its five terms and the log score against fractions and scikit-learn; the metric on arms."""
import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.foundations.refuse import ContractError
from invar_nb.metrics.reliability import expected_calibration_error
from invar_nb.metrics.brier import NORMALIZATIONS, BrierDecomposition, brier_decomposition, brier_score, log_score, top_label

sk = pytest.importorskip("sklearn.metrics")
rows = st.lists(st.tuples(st.one_of(st.integers(0, 100).map(lambda k: k / 100), st.floats(0, 1, allow_subnormal=False)), st.booleans()), min_size=1, max_size=40)

TERMS = [field.name for field in fields(BrierDecomposition)][:6]


def table(n, classes, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), n)
    return p, (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, classes - 1)


def literal_terms(p, y, n_bins):
    groups = {}
    for a, b in zip(p, y, strict=True): groups.setdefault(a if n_bins is None else sum(a >= k / n_bins for k in range(1, n_bins)), []).append((Fraction(a), int(b)))
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


@settings(max_examples=150, deadline=None)
@given(rows, st.sampled_from([None, 1, 3, 10, 100]))
def test_terms_by_the_definition(given_rows, n_bins):
    p, y = [a for a, _ in given_rows], [b for _, b in given_rows]
    found = brier_decomposition(p, y, n_bins=n_bins)
    for name, value in literal_terms(p, y, n_bins).items(): np.testing.assert_allclose(getattr(found, name), float(value), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(brier_score(p, y), found.score, rtol=1e-13)


def test_terms_of_classes_are_sums_over_classes():
    p, label = table(400, 4, seed=4)
    for n_bins in (None, 10):
        whole, each = brier_decomposition(p, label, n_bins=n_bins), [brier_decomposition(p[:, c], label == c, n_bins=n_bins) for c in range(4)]
        for name in TERMS: np.testing.assert_allclose(getattr(whole, name), sum(getattr(e, name) for e in each), rtol=1e-12, atol=1e-15)
        for k, factor in zip(NORMALIZATIONS, (1, 0.25, 0.5), strict=True):
            assert brier_decomposition(p, label, n_bins=n_bins, normalization=k).score == pytest.approx(factor * whole.score) == pytest.approx(brier_score(p, label, normalization=k))


def test_scikit_learn():
    p, y = np.random.default_rng(2).random(5000), np.random.default_rng(3).random(5000) < 0.4
    np.testing.assert_allclose(brier_score(p, y), sk.brier_score_loss(y, p), rtol=1e-12)
    np.testing.assert_allclose(log_score(p, y), sk.log_loss(y, p), rtol=1e-12)
    for classes in (2, 3, 7):
        p, label = table(3000, classes, seed=classes)
        np.testing.assert_allclose(log_score(p, label), sk.log_loss(label, p, labels=np.arange(classes)), rtol=1e-12)
        for name, half in (("sum", False), ("half", True)):
            theirs = sk.brier_score_loss(label, p, labels=np.arange(classes), scale_by_half=half)
            np.testing.assert_allclose(brier_score(p, label, normalization=name), theirs, rtol=1e-12)


def test_torchmetrics_of_the_top_label():
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torchmetrics.functional.classification").multiclass_calibration_error
    p, label = table(5000, 3, seed=1)
    confidence, correct = top_label(p.astype(np.float32), label)
    assert confidence.dtype == np.float32 and correct.dtype == bool
    expected = theirs(torch.tensor(p), torch.tensor(label), num_classes=3, n_bins=10)
    np.testing.assert_allclose(expected_calibration_error(confidence, correct), float(expected), atol=2.0**-20)


def test_extremes():
    assert brier_score([0.5] * 4, [1, 0, 0, 1]) == 0.25 and brier_score([0, 1], [0, 1]) == 0 and log_score([0.0], [1]) == math.inf
    p, y = np.where(np.arange(30_000) % 3 == 0, 1 - 1e-9, 1e-9), np.arange(30_000) % 3 == 0
    np.testing.assert_allclose(brier_score(p, y), 1e-18, rtol=1e-6)
    assert brier_score([[0.4, 0.6], [1, 0]], [True, False]) == brier_score([[0.4, 0.6], [1, 0]], [1, 0])
    half = np.random.default_rng(1).dirichlet(np.ones(5), 50).astype(np.float16)
    assert top_label(half, np.zeros(50, int))[0].dtype == np.float16


@pytest.mark.parametrize("call", [
    lambda: brier_score([[0.5, 0.4, 0.2]], [0]), lambda: brier_score([[0.5, 0.5], [1.5, -0.5]], [0, 1]), lambda: brier_score([[0.5, 0.5], [0.2, 0.3, 0.5]], [0, 1]), lambda: brier_score([[0.5, 0.5]], [2]),
    lambda: brier_score([[0.5, 0.5]], ["yes"]), lambda: brier_score([[1.0]], [0]), lambda: brier_score([0.5], [1], normalization="none"), lambda: brier_score([0.5, 0.2], [1]),
    lambda: brier_decomposition([0.5], [1], n_bins=0), lambda: top_label([0.5], [1])])
def test_refusals(call):
    with pytest.raises(ContractError) as refused: call()
    assert refused.value.code == "contract"
