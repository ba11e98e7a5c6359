"""Adjusted p-values against closed testing over all sets, the definition of the line, statsmodels, and their promises by simulation."""
import math
from fractions import Fraction
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.foundations.numbers import ContractError
from invar_nb.statistics.multiplicity import PROCEDURES, adjust, benjamini_hochberg, holm

p_value = st.one_of(st.sampled_from([0.0, 1.0, 0.05, 0.025, 0.01, 0.5, 5e-324, 1 - 2**-53]), st.floats(0, 1), st.integers(0, 20).map(lambda i: i / 20))
tables = st.lists(p_value, max_size=40)


def closed_testing(p):
    "The largest Bonferroni p-value of any set that holds the hypothesis."
    out = [0.0] * len(p)
    for size in range(1, len(p) + 1):
        for chosen in combinations(range(len(p)), size):
            worst = min(1.0, size * min(p[j] for j in chosen))
            for i in chosen: out[i] = max(out[i], worst)
    return out


def below_the_line(p, alpha):
    "Indices at or below alpha r/m for the largest r that has r of them."
    m = len(p)
    r = max((r for r in range(1, m + 1) if sum(v <= alpha * r / m for v in p) >= r), default=0)
    return {i for i in range(m) if r and p[i] <= alpha * r / m}


# --- definitions ------------------------------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(st.lists(p_value, max_size=8))
def test_holm_is_closed_testing_over_all_sets(p):
    assert holm(p).tolist() == closed_testing(p)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 64), min_size=1, max_size=24), st.sampled_from([1, 8, 30]), st.integers(0, 1000))
def test_benjamini_hochberg_is_the_line(numerators, shrink, level):
    p = [Fraction(v // shrink, 64) for v in numerators]
    alpha = Fraction(2 * level + 1, 2003)  # 2003 is prime: no p-value meets the line
    assert set(np.flatnonzero(benjamini_hochberg([float(v) for v in p]) <= float(alpha)).tolist()) == below_the_line(p, alpha)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_benjamini_hochberg_is_the_smallest_alpha(numerators):
    p = [Fraction(v, 1000) for v in numerators]
    found = benjamini_hochberg([float(v) for v in p])
    levels = sorted({len(p) * v / j for v in p for j in range(1, len(p) + 1)})
    first = {i: alpha for alpha in reversed(levels) for i in below_the_line(p, alpha)}
    for i, value in enumerate(found): np.testing.assert_allclose(value, float(first[i]), rtol=4e-16)


def test_published_example():
    "Benjamini and Hochberg (1995), section 3.1: 15 p-values; at 0.05 the line takes four, Bonferroni's walk three."
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert np.sum(benjamini_hochberg(p) <= 0.05) == 4 and np.sum(holm(p) <= 0.05) == 3


# --- another implementation ---------------------------------------------------------------------------------------------------------------
@settings(max_examples=150, deadline=None)
@given(tables.filter(len))
def test_statsmodels_agrees(p):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for name, theirs in (("holm", "holm"), ("benjamini_hochberg", "fdr_bh")):
        with mock.patch("gc.collect"):  # called by theirs for every table: minutes in a process that holds much
            expected = multitest.multipletests(p, method=theirs)[1]
        np.testing.assert_allclose(adjust(p, name), expected, rtol=0, atol=1e-12)


# --- invariances ----------------------------------------------------------------------------------------------------------------------------
@settings(max_examples=150, deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_order_ties_and_ends(p, random):
    order = list(range(len(p)))
    random.shuffle(order)
    for name in PROCEDURES:
        found = adjust(p, name)
        assert found.shape == (len(p),) and found.dtype == np.float64 and not found.flags.writeable
        assert adjust([p[i] for i in order], name).tolist() == [found[i] for i in order]
        assert len(set(zip(p, found.tolist(), strict=True))) == len(set(p))  # equal p, equal answer
        assert (np.diff(found[np.argsort(p, kind="stable")]) >= 0).all() and (found <= 1).all() and (found >= p).all()
        assert all(v == 0 for v, q in zip(found, p, strict=True) if q == 0) and all(v == 1 for v, q in zip(found, p, strict=True) if q == 1)
    assert (benjamini_hochberg(p) <= holm(p)).all()
    if p:
        np.testing.assert_allclose(benjamini_hochberg(p).max(), max(p), rtol=0)
        np.testing.assert_allclose(holm(p).min(), min(1.0, len(p) * min(p)), rtol=0)


def test_one_more_hypothesis_never_helps_holm():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, more = rng.random(12) ** 3, rng.random()
        assert (holm([*p, more])[:12] >= holm(p)).all()


def test_small_families():
    for name in PROCEDURES:
        assert adjust([], name).shape == (0,) and adjust([0.3], name).tolist() == [0.3] and adjust(np.array([0.0]), name).tolist() == [0.0]
        assert adjust([0, 1], name).tolist() == [0.0, 1.0] and adjust((0.5,), name).tolist() == [0.5]
    assert holm([0.03, 0.04]).tolist() == [0.06, 0.06] and benjamini_hochberg([0.03, 0.04]).tolist() == [0.04, 0.04]
    assert holm([0.01, 0.02, 0.06]).tolist() == [0.03, 0.04, 0.06] and holm([0.5] * 4).tolist() == [1.0] * 4
    assert benjamini_hochberg([0.02] * 5).tolist() == [0.02] * 5


# --- promises ---------------------------------------------------------------------------------------------------------------------------------
def errors(rule, rho, studies, seed, m=10, unchanged=7, shift=2.5):
    rng = np.random.default_rng(seed)
    from scipy.special import ndtr
    true = np.arange(m) < unchanged
    z = math.sqrt(rho) * rng.normal(size=(studies, 1)) + math.sqrt(1 - rho) * rng.normal(size=(studies, m)) + shift * ~true
    found = np.array([rule(row) <= 0.05 for row in 2 * ndtr(-np.abs(z))])
    false = (found & true).sum(1)
    return np.mean(false > 0), np.mean(false / np.maximum(found.sum(1), 1))


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_promises_hold(rho, studies=4000):
    slack = lambda p: 4 * math.sqrt(p * (1 - p) / studies)
    assert errors(holm, rho, studies, seed=1)[0] <= 0.05 + slack(0.05)
    fdr = errors(benjamini_hochberg, rho, studies, seed=2)[1]
    assert fdr <= 0.035 + slack(0.035)
    if rho == 0: assert fdr >= 0.035 - slack(0.035)  # independent tests: exactly alpha m0/m
    assert errors(lambda p: p, rho, studies, seed=3)[0] > 0.05 + slack(0.05)  # the raw reading keeps neither


def test_holm_of_unchanged_slices_is_bonferroni():
    rng, studies = np.random.default_rng(4), 6000
    truth = 1 - (1 - 0.05 / 20) ** 20
    assert abs(np.mean([holm(p).min() <= 0.05 for p in rng.random((studies, 20))]) - truth) < 4 * math.sqrt(truth * (1 - truth) / studies)


def test_the_worst_dependence():
    "K uniform p-values in the K-th piece: Benjamini-Hochberg errs alpha (1 + 1/2 + ... + 1/m), Holm alpha."
    rng, studies, m = np.random.default_rng(5), 12_000, 10
    chance = 0.05 / np.arange(1, m + 1)
    K = rng.choice(m + 1, size=studies, p=[1 - chance.sum(), *chance])[:, None]
    p = np.where(rng.random((studies, m)).argsort(1) < K, (K - 1 + rng.random((studies, m))) * 0.05 / m, 0.05 + 0.95 * rng.random((studies, m)))
    for rule, truth in ((benjamini_hochberg, chance.sum()), (holm, 0.05)):
        assert abs(np.mean([rule(row).min() <= 0.05 for row in p]) - truth) < 4 * math.sqrt(truth * (1 - truth) / studies)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
def test_promises_hold_closely(rho, studies=60_000):
    slack = lambda p: 4 * math.sqrt(p * (1 - p) / studies)
    assert errors(holm, rho, studies, seed=7)[0] <= 0.05 + slack(0.05)
    fdr = errors(benjamini_hochberg, rho, studies, seed=8)[1]
    assert fdr <= 0.035 + slack(0.035) and (rho > 0 or fdr >= 0.035 - slack(0.035))


# --- refusals -----------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("values, message", [([0.1, None], "None at index 1"), ([0.1, float("nan")], "nan at index 1"), ([0.1, 1.5], "at most 1; got 1.5 at index 1"), ([-0.1], "at least 0.*index 0"),
                                             ([float("inf")], "finite"), ([True], "not booleans"), ("0.1", "must be numbers"), ([[0.1]], "one dimension"), (0.1, "one dimension"), (["0.1"], "must be numbers"),
                                             ({"a": 0.1}, "must be numbers"), (np.ma.masked_array([0.1], [True]), "masked")])
def test_bad_p_values_are_refused(values, message):
    for rule in (holm, benjamini_hochberg):
        with pytest.raises(ContractError, match=rf"^{rule.__name__}: p_values [^\n]*{message}[^\n]*$"): rule(values)


def test_unknown_procedures_are_refused():
    for name in ("bonferroni", "Holm", None, 3, ""):
        with pytest.raises(ContractError, match="^adjust: procedure must be one of 'holm', 'benjamini_hochberg'; got"): adjust([0.1], name)
