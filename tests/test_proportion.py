"""One proportion and pass@k against rationals, listed subsets and statsmodels."""
import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.statistics.proportion import pass_at_k, pass_at_k_interval, wilson_interval

stats = pytest.importorskip("scipy.stats")


def ends(interval): return [interval.low, interval.high]


@pytest.mark.parametrize("level", [0.1, 0.95, 0.9999])
def test_statsmodels_agrees(level):
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for n in (1, 2, 5, 33, 60, 1000, 10**6):
        for x in sorted({0, 1, n // 3, n // 2, n - 1, n}):
            theirs = proportion.proportion_confint(x, n, alpha=1 - level, method="wilson")
            np.testing.assert_allclose(ends(wilson_interval(x, n, level=level)), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 10, 60, 10**5, 10**15, 2**53])
def test_wilson_inverts_the_score_test_in_rationals(n):
    for x in sorted({0, 1, n // 7, n // 2, n - n // 7, n}):
        for level in (0.3, 0.95, 0.9999):
            found, z = wilson_interval(x, n, level=level), stats.norm.isf((1 - level) / 2)
            assert (x > 0 or found.low == 0.0) and (x < n or found.high == 1.0) and 0 <= found.low <= x / n <= found.high <= 1
            z2 = Fraction(float(z)) ** 2
            for end in ends(found):
                if end in (0.0, 1.0): continue
                end = Fraction(end)
                slack = max(end * Fraction(2, 10**14), Fraction(3, 10**16) if end > Fraction(1, 2) else 0)
                off = [(Fraction(x, n) - pi) ** 2 * n - z2 * pi * (1 - pi) for pi in (end - slack, end + slack)]
                assert off[0] * off[1] < 0 or end + slack >= 1, (x, n, level, float(end))


def test_wilson_ends_are_exact():
    for n, level in product([*range(1, 400), 10**9, 2**53], (0.5, 0.95, 0.999)):
        assert wilson_interval(0, n, level=level).low == 0.0 and wilson_interval(n, n, level=level).high == 1.0
        assert 0 < wilson_interval(0, n, level=level).high < 1 and 0 < wilson_interval(1, n, level=level).low


def test_wilson_at_a_level_that_is_hardly_one():
    for level in (5e-324, 1e-300, 1e-160, 1e-17):
        for n in (1, 4, 2**53):
            for x in {0, 1, n // 2, n - 1, n}:
                found = wilson_interval(x, n, level=level)
                assert found.low <= x / n <= found.high and found.high - found.low <= 1e-15


def test_wilson_mirrors_and_nests():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(10 ** rng.uniform(0, 12))
        x, (lower, upper) = int(rng.integers(0, n + 1)), np.sort(rng.uniform(0.01, 0.9999, 2))
        inner, outer, mirror = wilson_interval(x, n, level=lower), wilson_interval(x, n, level=upper), wilson_interval(n - x, n, level=lower)
        assert outer.low <= inner.low <= inner.high <= outer.high
        np.testing.assert_allclose([1 - mirror.high, 1 - mirror.low], ends(inner), rtol=0, atol=4e-16)
        if x < n:
            more = wilson_interval(x + 1, n, level=lower)
            assert inner.low <= more.low and inner.high <= more.high
    assert wilson_interval(np.int64(48), 60.0) == wilson_interval(48, 60)


@pytest.mark.parametrize("n", range(1, 11))
def test_pass_at_k_is_the_share_of_listed_subsets(n):
    for c, k in product(range(n + 1), range(1, n + 1)):
        hits = [min(subset) < c for subset in combinations(range(n), k)]
        assert pass_at_k(n, c, k) == float(Fraction(sum(hits), len(hits)))


@pytest.mark.parametrize("n", [50, 1000, 100_000])
def test_pass_at_k_is_correctly_rounded(n):
    rng, border = np.random.default_rng(n), math.isqrt(38 * n)
    cases = [(border + i, border + j) for i, j in product((-2, 0, 2), repeat=2)] + [(0, 1), (0, n), (1, 1), (1, n), (n, 1), (n, n), (1, n - 1), (n - 1, 1), (n // 2, n // 2 + 1), (n // 2, n // 2)]
    cases += [(int(10 ** rng.uniform(0, math.log10(n))), int(10 ** rng.uniform(0, math.log10(n)))) for _ in range(25)]
    for c, k in cases:
        if not (0 <= c <= n and 1 <= k <= n): continue
        wrong = math.comb(n - c, k) if k <= n - c else 0
        total = math.comb(n, k)
        assert pass_at_k(n, c, k) == (total - wrong) / total, (n, c, k)
        assert pass_at_k(n, c, k) == (pass_at_k(n, k, c) if c else 0.0)  # c and k change places


def test_pass_at_k_golden_and_limits():
    assert f"{pass_at_k(20, 5, 10):.6f}" == "0.983746" and f"{1 - (1 - 5 / 20) ** 10:.6f}" == "0.943686"
    assert f"{pass_at_k(100_000, 10, 100):.10f}" == "0.0099555658" and pass_at_k(100_000, 1, 1) == 1e-5
    assert pass_at_k(10**9, 3 * 10**8, 5 * 10**8) == 1.0 and pass_at_k(10**15, 1, 10) == 1e-14
    for n in (10**3, 10**5, 10**7):
        gap = pass_at_k(n, n // 4, 10) - (1 - 0.75**10)
        np.testing.assert_allclose(n * gap, 45 * 0.25 * 0.75**9, rtol=20 / n + 1e-6 * n / 10**5)
    values = [pass_at_k(30, c, 7) for c in range(31)]
    assert values == sorted(values) and values[0] == 0.0 and values[-1] == 1.0


@pytest.mark.parametrize("args", [(5, 0, 10), (5, 7, 3), (5, 5, 6), (5, 2, 0), (0, 0, 1), (5, -1, 2), (5, 2.5, 2), (5, True, 2), (5, None, 2)])
def test_pass_at_k_refuses(args):
    with pytest.raises(ContractError, match="^pass_at_k: [^\n]*$"): pass_at_k(*args)


def test_pass_at_k_interval_is_the_bootstrap_over_problems():
    "All 5^5 resamples of five problems, by hand: the percentile interval and the mean."
    n, c, k = [20, 20, 10, 12, 20], [5, 0, 3, 1, 11], 4
    values = np.array([1 - math.comb(a - b, k) / math.comb(a, k) for a, b in zip(n, c, strict=True)])
    estimate, interval = pass_at_k_interval(n, c, k, method="percentile", level=0.9)
    np.testing.assert_allclose(estimate, values.mean(), rtol=1e-14)
    means = np.sort(values[np.indices((5,) * 5).reshape(5, -1)].mean(axis=0))
    for end, share in zip(ends(interval), (0.05, 0.95), strict=True):
        assert np.mean(means < end - 1e-9) <= share <= np.mean(means <= end + 1e-9)
    order = [3, 1, 4, 0, 2]
    assert pass_at_k_interval([n[i] for i in order], [c[i] for i in order], k, method="percentile", level=0.9) == (estimate, interval)
    assert pass_at_k_interval(20, [5, 0, 9], 1) == pass_at_k_interval(np.full(3, 20), np.array([5.0, 0.0, 9.0]), 1)
    one = pass_at_k_interval(20, [5, 0, 9], 1, replicates=200, seed=1)
    assert one == pass_at_k_interval(20, [5, 0, 9], 1, replicates=200, seed=1) and one[1].engine == "monte_carlo"
    assert pass_at_k_interval(20, [20] * 9, 3)[1].fallback.code == "all_equal" and pass_at_k_interval(20, [3], 3)[1].fallback.code == "single_pair"


@pytest.mark.parametrize("args, message", [((20, [5, 21], 10), "c must not exceed n; got n = 20, c = 21 at index 1"), (([20, 8], [5, 2], 10), "n must be at least k = 10.*index 1"),
                                           ((20, [5, 0.5], 10), "c must be whole"), (([20, 20.5], [5, 1], 10), "n must be whole"), ((20, [-1, 2], 1), "c must be at least 0"),
                                           (([20], [5, 2], 1), "n must have 2 entries"), ((20, [5, float("nan")], 1), "c must be finite"), ((20, [5], 0), "k must be"), ((0, [0], 1), "n must be")])
def test_pass_at_k_interval_refuses(args, message):
    with pytest.raises(ContractError, match="pass_at_k_interval: " + message): pass_at_k_interval(*args)


def test_no_problem_is_a_pairing_error():
    with pytest.raises(PairingError, match="none"): pass_at_k_interval(20, [], 10)


@pytest.mark.parametrize("call", [lambda: wilson_interval(61, 60), lambda: wilson_interval(0, 0), lambda: wilson_interval(-1, 5), lambda: wilson_interval(1, 2**53 + 2),
                                  lambda: wilson_interval(1, 2, level=95), lambda: wilson_interval(1, float("nan")), lambda: wilson_interval(True, 2)])
def test_bad_counts_are_refused_in_one_line(call):
    with pytest.raises(ContractError, match=r"^wilson_interval: [^\n]+; got [^\n]+$") as error: call()
    assert error.value.cure and error.value.culprit


def test_a_column_where_a_count_belongs():
    with pytest.raises(ContractError, match="For many problems use pass_at_k_interval"): pass_at_k([10, 10], [3, 4], 1)
