"""The bootstrap, the paired tests and the proportions, beyond what their pages check: properties, goldens, extreme floats, and one table of refusals."""

import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtr
from scipy.stats import binomtest, multivariate_t
from scipy.stats import t as student

from invar_nb.foundations.refuse import ContractError
from invar_nb.statistics.bootstrap import (
    BootstrapPlan,
    Limit,
    bca_p_value,
    bootstrap_analysis,
    bootstrap_interval,
    bootstrap_replicates,
    merge_windows,
)
from invar_nb.statistics.multiplicity import adjust, benjamini_hochberg, holm
from invar_nb.statistics.paired_test import paired_t_test, sign_flip_test
from invar_nb.statistics.proportions import (
    discordant_pairs,
    fisher_exact,
    mcnemar,
    newcombe_interval,
    pass_at_k,
    wilson_interval,
)
from invar_nb.statistics.serial import fit_totals
from invar_nb.statistics.simultaneous import Family
from invar_nb.statistics.totals import UnitTotals, sum_totals

NAN = math.nan
ONE, TWO = (
    UnitTotals.of({"tokens": np.ones(8), "delta": np.arange(8.0)}, start=start, block=2)
    for start in (0, 8)
)
REFUSALS = [  # (call, code)
    (lambda: BootstrapPlan(method="expanded"), "contract"),
    (lambda: BootstrapPlan(resample="documents"), "contract"),
    (lambda: BootstrapPlan(level=95), "contract"),
    (lambda: BootstrapPlan(seed=1), "contract"),
    (lambda: BootstrapPlan(replicates=100), "contract"),
    (lambda: BootstrapPlan(replicates=39, seed=0), "contract"),
    (lambda: BootstrapPlan(replicates=100, seed=-1), "contract"),
    (lambda: bootstrap_interval([], []), "pairing"),
    (lambda: bootstrap_interval([1.0, NAN], [1, 1]), "contract"),
    (lambda: bootstrap_interval([1.0, 2.0], [1, 0]), "contract"),
    (lambda: bootstrap_interval([1.0], [1, 2]), "contract"),
    (lambda: paired_t_test([], []), "pairing"),
    (lambda: paired_t_test([1, 2], [1]), "pairing"),
    (lambda: paired_t_test([1, math.inf], [1, 2]), "contract"),
    (lambda: paired_t_test([True, 2.0], [1, 2]), "contract"),
    (lambda: paired_t_test("12", [1, 2]), "contract"),
    (lambda: paired_t_test([1, 2], [1, 1], level=95), "contract"),
    (lambda: paired_t_test([1.7e308, 1.6e308], [-1.7e308, -1.7e308]), "contract"),
    (lambda: paired_t_test([1e308, 0], [0, 0]), "contract"),
    (lambda: sign_flip_test([]), "pairing"),
    (lambda: sign_flip_test([0.1, NAN]), "contract"),
    (lambda: sign_flip_test([0.1], scale=-1), "contract"),
    (lambda: wilson_interval(61, 60), "counts"),
    (lambda: wilson_interval(1, 0), "contract"),
    (lambda: wilson_interval(1, 2**53 + 1), "too_many"),
    (lambda: wilson_interval(0.5, 1), "contract"),
    (lambda: wilson_interval(1, 2, level=1), "contract"),
    (lambda: newcombe_interval(1, 2, 3, 2), "counts"),
    (lambda: fisher_exact(1, 10**7, 1, 1), "too_many"),
    (lambda: pass_at_k([5], 1, 1), "shape"),
    (lambda: pass_at_k(5, 6, 1), "counts"),
    (lambda: pass_at_k(5, 1, 6), "counts"),
    (lambda: pass_at_k(5, -1, 1), "contract"),
    (lambda: discordant_pairs([1, 0], [1]), "pairing"),
    (lambda: discordant_pairs([], []), "empty"),
    (lambda: discordant_pairs([0.5], [1]), "not_boolean"),
    (lambda: discordant_pairs([1, 0], [1, NAN]), "contract"),
    (lambda: holm([0.1, None]), "contract"),
    (lambda: holm([0.1, NAN]), "contract"),
    (lambda: benjamini_hochberg([0.1, 1.5]), "contract"),
    (lambda: holm([-0.1]), "contract"),
    (lambda: holm([True]), "contract"),
    (lambda: holm([[0.1]]), "contract"),
    (lambda: holm(["0.1"]), "contract"),
    (lambda: adjust([0.1], "bonferroni"), "contract"),
    (lambda: UnitTotals.of({"t": []}), "contract"),
    (lambda: ONE + ONE, "twice"),
    (lambda: ONE + replace(TWO, plan="other"), "pairing"),
    (lambda: ONE + replace(TWO, block=4), "pairing"),
    (lambda: fit_totals(TWO), "gap"),
    (lambda: sum_totals([]), "contract"),
    (lambda: mcnemar([1], 2), "shape"),
    (lambda: mcnemar(1, 2, trials=2), "counts"),
    (lambda: mcnemar(10**12, 1), "too_many"),
    (lambda: mcnemar(1, 2, trials=2**53 + 1), "too_many"),
    (lambda: mcnemar(-1, 2), "contract"),
]


@pytest.mark.parametrize("case", range(len(REFUSALS)))
def test_refusals(case):
    call, code = REFUSALS[case]
    with pytest.raises(ContractError) as refused:
        call()
    assert refused.value.code == code and refused.value.cure and "\n" not in str(refused.value)


def test_fifteen_published_p_values():
    "Benjamini and Hochberg (1995), section 3.1: at 0.05 the line takes four, Bonferroni's walk three."
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0000,
    ]
    assert np.sum(benjamini_hochberg(p) <= 0.05) == 4 and np.sum(holm(p) <= 0.05) == 3


# --- bootstrap ------------------------------------------------------------------------------------------------------------------------
def windows(law, counts, n, seed):
    rng = np.random.default_rng(seed)
    delta = {
        "normal": rng.normal(0.02, 0.05, n),
        "t3": 0.05 * rng.standard_t(3, n),
        "gamma": rng.gamma(1.0, 0.05, n),
        "tenths": np.round(rng.normal(0, 0.2, n), 1),
        "outlier": np.r_[3.0, rng.normal(0, 0.05, n - 1)],
        "broken": np.r_[3.5, rng.normal(0, 1e-5, n - 1)],
    }[law]
    tokens = {
        "equal": np.full(n, 128),
        "uneven": np.ceil(rng.lognormal(4, 1, n)).astype(int),
        "one heavy": np.r_[np.full(n - 1, 128), 128_000],
    }[counts]
    return delta, tokens


@pytest.mark.parametrize("rule", ["windows", "tokens"])
@pytest.mark.parametrize("counts", ["equal", "uneven", "one heavy"])
@pytest.mark.parametrize("law", ["normal", "t3", "gamma", "tenths", "outlier", "broken"])
@pytest.mark.parametrize("n", [4, 11, 80])
def test_ends_against_a_plain_loop(n, law, counts, rule):
    "The share of 40 000 draws of another generator below each percentile end, within five standard errors and a thousandth of the spread."
    delta, tokens = windows(law, counts, n, n)
    if np.ptp(delta) == 0:
        delta[0] += 1
    got = bootstrap_interval(delta, tokens, method="percentile", resample=rule)
    drawn = bootstrap_replicates(delta, tokens, replicates=40_000, seed=99, resample=rule)
    slip = 4e-3 * drawn.std()
    for end, level in ((got.low, 0.025), (got.high, 0.975)):
        noise = 5 * math.sqrt(0.025 * 0.975 / 40_000)
        assert (
            np.mean(drawn < end - slip) <= level + noise
            and np.mean(drawn <= end + slip) >= level - noise
        )
    low, high = delta.min(), delta.max()
    assert low - 1e-9 * (high - low) <= got.low <= got.high <= high + 1e-9 * (high - low)


@pytest.mark.parametrize("unit", [1e-200, 1e-300, 1e200])
def test_a_tiny_or_huge_unit_changes_nothing(unit):
    delta, tokens = windows("gamma", "uneven", 60, 4)
    base, scaled = bootstrap_interval(delta, tokens), bootstrap_interval(unit * delta, tokens)
    np.testing.assert_allclose(
        [scaled.low / unit, scaled.high / unit], [base.low, base.high], rtol=1e-6
    )


def test_p_values_are_dual_and_bounded():
    plan = BootstrapPlan()
    assert bootstrap_analysis([0.3], [5], plan)[1] is None
    assert [bootstrap_analysis([0.3] * n, [5] * n, plan)[1] for n in (2, 3, 9)] == [
        0.5,
        0.25,
        2.0**-8,
    ]
    assert bootstrap_analysis([0.0] * 9, [5] * 9, plan)[1] == 1.0
    for deltas in ([0.25, 0.5, 0.75], [0.01, 0.02, 0.03, 0.04]):
        assert bootstrap_analysis(deltas, [100] * len(deltas), plan)[1] == 2.0 ** (
            1 - len(deltas)
        )
    delta, tokens = windows("gamma", "uneven", 120, 2)
    for method, shift in product(("bca", "percentile"), (0.03, 0.045)):
        p = bootstrap_analysis(delta - shift, tokens, BootstrapPlan(method=method))[1]
        dual = bootstrap_interval(delta - shift, tokens, method=method, level=1 - p)
        assert min(abs(dual.low), abs(dual.high)) < 1e-4 * dual.width
    drawn = bootstrap_analysis(
        delta + 5, tokens, BootstrapPlan(method="percentile", replicates=200, seed=1)
    )[1]
    assert drawn == 2 / 201  # R draws show no smaller share


def test_seeded_draws_are_reproducible():
    delta, tokens = windows("normal", "uneven", 60, 3)
    once, again = (
        bootstrap_interval(delta, tokens, replicates=1200, seed=5, resample="tokens")
        for _ in range(2)
    )
    assert (
        once
        == again
        != bootstrap_interval(delta, tokens, replicates=1200, seed=6, resample="tokens")
    )
    # written down by an earlier version, from the same seed
    np.testing.assert_allclose(
        bootstrap_replicates(
            np.array([0.0, 0.03, 0.12]), np.array([1, 2, 3]), replicates=4, seed=2
        ).sum(),
        GOLDEN_DRAWS,
        rtol=1e-12,
    )


GOLDEN_DRAWS = 0.2635


def test_cells_of_windows_lose_nothing_that_shows():
    "32 cells, with what they lose put back, against every window in a cell of its own; outliers stay alone."
    n, rng = 5000, np.random.default_rng(5)
    tokens = rng.integers(1, 60, n).astype(float)
    delta = rng.standard_gamma(0.3, n) ** 1.5 * rng.choice([-1, 3.0], n) * (tokens / 30)
    delta[:3] = 40, 55, -60
    whole, merged = Limit(delta, tokens, cells=n), Limit(delta, tokens, cells=32)
    v, w, p = whole.v, whole.w, whole.p
    V, W, P, lost = merge_windows(v, w, p, 32)
    far = v[abs(v) * math.sqrt(n) > 8.5]
    assert (
        32 < V.size < 64
        and far.size > 5
        and np.isclose(V[:, None], far, rtol=1e-12).sum(axis=0).tolist() == [1] * far.size
    )
    np.testing.assert_allclose(
        [P.sum(), P @ V, P @ W, *lost],
        [1, p @ v, p @ w, p @ v**2 - P @ V**2, p @ (v * w) - P @ (V * W), p @ w**2 - P @ W**2],
        rtol=1e-9,
        atol=1e-15,
    )
    for level in (0.001, 0.025, 0.5, 0.975, 0.999):
        assert abs(merged.quantile(level) - whole.quantile(level)) < 2e-4 * whole.unit


def test_a_plan_holds_plain_numbers():
    plan = BootstrapPlan(replicates=np.int64(100), seed=np.int64(3), level=np.float64(0.9))
    assert {type(plan.replicates), type(plan.seed)} == {int} and type(plan.level) is float


# --- paired tests -----------------------------------------------------------------------------------------------------------------------
def exact_t(d):
    d = [Fraction(x) for x in d]
    mean = sum(d) / len(d)
    squares = sum((x - mean) ** 2 for x in d)
    return math.copysign(math.sqrt(float(mean**2 * len(d) * (len(d) - 1) / squares)), mean)


arms = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        *[st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=n, max_size=n)]
        * 2
    )
)


@given(arms, st.randoms(use_true_random=False), st.integers(-400, 400))
@settings(max_examples=150, deadline=None)
def test_t_test_invariances(arms, random, power):
    a, b = arms
    r, order = paired_t_test(a, b), list(range(len(a)))
    random.shuffle(order)
    assert paired_t_test([a[i] for i in order], [b[i] for i in order]) == r  # bit for bit
    back, scaled = paired_t_test(b, a), paired_t_test(np.ldexp(a, power), np.ldexp(b, power))
    assert (back.p_value, back.std, back.mean, back.degenerate, back.interval.low) == (
        r.p_value,
        r.std,
        -r.mean,
        r.degenerate,
        -r.interval.high,
    )
    assert (
        scaled.p_value,
        scaled.statistic,
        scaled.effect_size,
        scaled.degenerate,
        scaled.mean,
    ) == (r.p_value, r.statistic, r.effect_size, r.degenerate, math.ldexp(r.mean, power))
    assert r.interval.low <= r.mean <= r.interval.high
    d = [x - y for x, y in zip(a, b, strict=True)]
    if r.degenerate is None:
        np.testing.assert_allclose(r.statistic, exact_t(d), rtol=1e-12)
        assert r.p_value == 2 * stdtr(r.df, -abs(r.statistic))
    else:
        assert r.degenerate == "all_equal" and max(d) - min(d) <= 1e-14 * max(
            map(abs, a + b + [0.0])
        )


def test_t_test_where_floats_end():
    for a, b in (
        ([9e149, 1e150, 9.5e149], [-8e149, 0, 1e149]),
        ([2e-140, 3e-140, 5e-140], [0, 0, 1e-140]),
    ):
        r, d = (
            paired_t_test(a, b, level=0.3),
            [Fraction(x) - Fraction(y) for x, y in zip(a, b, strict=True)],
        )
        np.testing.assert_allclose(
            [r.mean, r.statistic], [float(sum(d) / len(d)), exact_t(d)], rtol=1e-13
        )
    for a, b in (
        ([5e-324, 0, 0], [0, 0, 0]),
        ([2**53, 2**53 - 1], [0, 0]),
        ([1e140, 1e-320, 1.0], [1e140, 0, 0.5]),
    ):
        assert (
            paired_t_test(a, b).degenerate == "all_equal"
        )  # beside 1e140 these are roundings
    one = paired_t_test([3], [1])
    assert (one.statistic, one.p_value, one.degenerate, one.significant, one.interval.low) == (
        None,
        None,
        "single_pair",
        False,
        2.0,
    )
    for size in (1e-3, 1e-9, 1e-12):
        assert (
            paired_t_test([1 + size, 1 + 2 * size, 1 + 3 * size], [1, 1, 1]).degenerate is None
        )
    nothing = paired_t_test([0.1 + 0.2] * 3, [0.3] * 3)  # a mean that is rounding, too
    assert (nothing.degenerate, nothing.p_value, nothing.mean != 0) == ("all_equal", 1.0, True)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=9), st.integers(-900, 900))
@settings(max_examples=100, deadline=None)
def test_every_sign_pattern(d, power):
    sums = [
        abs(sum(e * x for e, x in zip(signs, d, strict=True)))
        for signs in product((1, -1), repeat=len(d))
    ]
    p, r = (
        sum(s >= abs(sum(d)) for s in sums) / len(sums),
        sign_flip_test(np.ldexp(np.array(d, float), power)),
    )
    assert r.p_value == p and r.patterns == 2 ** len(d)
    assert (
        sign_flip_test(d[::-1]).p_value
        == sign_flip_test([x / 10 for x in d]).p_value
        == sign_flip_test([(7 + x / 10) - 7 for x in d], scale=10).p_value
        == p
    )


def test_sign_flips_of_many():
    assert (
        sign_flip_test(np.ones(32)).reaching == 2
        and sign_flip_test(np.ones(60)).p_value == 2.0**-59
    )  # never 0
    coins = np.where(np.arange(32) < 23, 1.0, -1.0)  # a sum of signs is a binomial count
    assert (
        sign_flip_test(coins).p_value == 2 * sum(math.comb(32, k) for k in range(10)) / 2**32
    )
    many = np.random.default_rng(5).normal(0.1, 1, 300)
    one, other = sign_flip_test(many), sign_flip_test(many[::-1] * 2.0**300)
    assert (one.engine, one.reaching) == (
        "saddlepoint",
        None,
    ) and one.p_value == pytest.approx(other.p_value, rel=1e-12)
    assert sign_flip_test(many - many.mean()).p_value == pytest.approx(1, abs=1e-3)
    assert sign_flip_test([0.0, 0.0]).p_value == sign_flip_test([0.0] * 50).p_value == 1.0
    assert (
        sign_flip_test([1e308] * 6).p_value == sign_flip_test([5e-324] * 6).p_value == 2.0**-5
    )
    assert (
        sign_flip_test([0.1] * 6, scale=1e300).p_value
        == sign_flip_test([5e-324] * 6, scale=1.7e308).p_value
        == 1.0
    )  # rounding beside such inputs


@pytest.mark.parametrize(
    ("won", "lost", "unchanged"), [(12, 2, 50), (30, 19, 551), (5, 4, 31), (116, 16, 468)]
)
def test_answers_that_are_right_or_wrong_flip_as_a_binomial_count(won, lost, unchanged):
    d = np.repeat([1.0, -1.0, 0.0], [won, lost, unchanged])
    truth = binomtest(lost, won + lost).pvalue
    for scale in (1, 1 / 600, 0.1):  # a step that is no binary number, as of means
        assert sign_flip_test(d * scale).p_value == pytest.approx(truth, rel=1e-9)


def test_marks_that_tie_are_counted_and_a_long_list_of_them_taken_from_half_way():
    rng = np.random.default_rng(11)
    marks = rng.integers(-3, 4, 400)
    ways = {0: 1}  # sum -> patterns, in whole numbers of any size
    for size in np.abs(marks[marks != 0]):
        more: dict[int, int] = {}
        for total, count in ways.items():
            for moved in (total - int(size), total + int(size)):
                more[moved] = more.get(moved, 0) + count
        ways = more
    far = sum(count for total, count in ways.items() if abs(total) >= abs(marks.sum()))
    test = sign_flip_test(marks / 7)
    assert test.engine == "convolution"
    assert test.p_value == pytest.approx(float(Fraction(far, sum(ways.values()))), rel=1e-9)
    many = np.repeat([1.0, -1.0], [10_100, 9_900])  # of which no count is made
    test = sign_flip_test(many)
    assert test.engine == "saddlepoint"
    assert test.p_value == pytest.approx(binomtest(9_900, 20_000).pvalue, rel=1e-5)
    assert "saddlepoint" in repr(test)  # 2^20000 has more digits than Python writes
    assert sign_flip_test(np.repeat([1.0, -1.0], [10_000, 10_000])).p_value == 1.0


@pytest.mark.parametrize("n", [40, 60])
def test_the_saddlepoint_against_the_count_of_every_pattern(n):
    rng = np.random.default_rng(3)
    sizes, ways = rng.integers(1, 400, n), np.ones(1)
    for size in sizes:
        ways = (
            np.pad(ways, (0, 2 * size)) + np.pad(ways, (2 * size, 0))
        ) / 2  # the sum, counted from the least one
    sums = np.arange(ways.size) - sizes.sum()
    for share in (0.5, 0.6, 0.7, 0.85, 0.95):
        d = np.where(rng.random(n) < share, 1, -1) * sizes
        reached = ways[abs(sums) >= abs(d.sum())].sum()
        assert sign_flip_test(d).p_value == pytest.approx(reached, rel=1e-9)
        untied = np.abs(d) * (1 + rng.normal(0, 1e-6, n))  # nearly the same, without a step
        test = sign_flip_test(np.sign(d) * untied)
        assert test.engine == "saddlepoint" and test.p_value == pytest.approx(
            reached, rel=0.02
        )
    assert sign_flip_test([1.0] * n + [0.0] * 5).p_value == 2.0 ** (
        1 - n
    )  # zeros have no sign


# --- simultaneous -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "loadings, nu",
    [((0.9, 0.7, 0.5, 0.3), 12.0), ((0.95, -0.8, 0.6), 30.0), ((0.2, 0.99, 0.5), 7.5)],
)
def test_a_family_against_the_multivariate_t(loadings, nu):
    "The chance that all intervals hold, and both adjusted p-values, against SciPy's quasi-random integral over boxes."
    m = len(loadings)
    R = np.outer(loadings, loadings)
    np.fill_diagonal(R, 1)
    family, law, p = (
        Family(member=np.arange(m), loadings=np.array(loadings), misfit=0.0, nu=nu),
        multivariate_t(shape=R, df=nu, seed=1),
        np.array([0.03, 0.004, 0.02, 0.5])[:m],
    )
    inside = lambda c: law.cdf(np.full(m, c), lower_limit=np.full(m, -c), maxpts=50_000 * m)
    assert inside(student.isf((1 - family.each(0.95)) / 2, nu)) == pytest.approx(
        0.95, abs=1e-4
    )
    assert family.step_down(p)[1] == pytest.approx(
        1 - inside(student.isf(0.002, nu)), abs=1e-4
    )
    assert family.p_of_best(p) == pytest.approx(
        1 - law.cdf(np.full(m, student.isf(0.004, nu)), maxpts=50_000 * m), abs=1e-4
    )
    with np.errstate(all="raise"):
        assert family.step_down(np.ones(m)).tolist() == [1.0] * m


# --- proportions ------------------------------------------------------------------------------------------------------------------------
@given(
    st.integers(1, 10**9),
    st.floats(0, 1),
    st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=2),
)
@settings(max_examples=150, deadline=None)
def test_wilson_mirrors_and_nests(n, share, levels):
    x, (less, more) = round(share * n), sorted(levels)
    inner, outer, mirror = (
        wilson_interval(x, n, level=less),
        wilson_interval(x, n, level=more),
        wilson_interval(n - x, n, level=less),
    )
    assert 0 <= outer.low <= inner.low <= x / n <= inner.high <= outer.high <= 1
    np.testing.assert_allclose(
        [mirror.low, mirror.high], [1 - inner.high, 1 - inner.low], rtol=0, atol=4e-16
    )
    assert (
        wilson_interval(0, n, level=less).low == 0.0
        and wilson_interval(n, n, level=less).high == 1.0
    )


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_mcnemar_forgets_which_arm_is_which(a, b, more):
    if a + b > 10**12:
        a, b = a // 2, b // 2
    test, back = mcnemar(a, b, trials=a + b + more + 1), mcnemar(b, a, trials=a + b + more + 1)
    assert (test.p_value, test.mid_p, test.interval.low) == (
        back.p_value,
        back.mid_p,
        -back.interval.high,
    )
    assert (
        0 <= test.p_value <= 1
        and test.mid_p <= test.p_value
        and test.interval.contains(test.difference)
    )
    if a == b:
        assert test.p_value == test.mid_p == 1.0


def test_a_near_tie_is_no_tie():
    assert fisher_exact(51, 151, 61, 194) == pytest.approx(
        0.6453005683853178, rel=1e-12
    )  # a tolerance of 1e-7 gives 0.7282
    assert fisher_exact(0, 5, 0, 9) == 1.0 and fisher_exact(0, 500, 500, 500) < 1e-298


# --- totals -----------------------------------------------------------------------------------------------------------------------------
@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(0, 2),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
def test_totals_forget_cuts_and_order(n, cuts, power, random):
    rng, edges = np.random.default_rng(n), sorted({0, n, *(cut for cut in cuts if cut < n)})
    t, x, units = (
        rng.integers(1, 9, n) * 1.0,
        rng.normal(size=n),
        np.cumsum(rng.random(n) < 0.4),
    )
    for how in ({"block": 2**power}, {"units": units}):
        part = lambda a, b: UnitTotals.of(
            {"tokens": t[a:b], "delta": x[a:b]},
            start=a,
            largest=x[a:b],
            **{k: v[a:b] if k == "units" else v for k, v in how.items()},
        )  # noqa: B023
        parts = [part(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        random.shuffle(parts)
        one, total = part(0, n), sum_totals(parts)
        assert (
            total.positions.tolist() == one.positions.tolist()
            and total.columns["tokens"].tolist() == one.columns["tokens"].tolist()
        )
        assert (
            total.largest.tolist() == one.largest.tolist()
            and total.windows.tolist() == one.windows.tolist()
            and total.spans.tolist() == [[0, n]]
        )
        np.testing.assert_allclose(
            total.columns["delta"],
            one.columns["delta"],
            rtol=0,
            atol=64 * 2.0**-52 * np.abs(x).sum(),
        )


STREAM = """
import resource, numpy as np
from invar_nb.statistics.serial import MOST_BLOCKS, block_size, fit_totals
from invar_nb.statistics.simultaneous import Family
from invar_nb.statistics.totals import UnitTotals, sum_totals
n, step, rng = {n}, 10**6, np.random.default_rng(0)
def parts():
    for start in range(0, n, step):
        t = np.full(step, 512.0)
        yield UnitTotals.of({{"tokens": t, "delta": t * rng.normal(.01, .05, step), "tokens^2": t * t}}, start=start, block=block_size(n))
fit = fit_totals(sum_totals(parts()))
print(fit.n_units, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_a_hundred_million_windows_pass_through_a_gibibyte():
    out = subprocess.run(
        [sys.executable, "-c", STREAM.format(n=10**8)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert int(out[0]) == 10**8 and int(out[1]) < 1024


def test_bca_p_value_without_acceleration_where_no_replicate_reaches_zero():
    "It was a division by zero, as for changes that are symmetric and all on one side."
    for below_zero in (0.0, 1.0):
        assert bca_p_value(below_zero, 0.1, 0.0) == 0.0
        assert bca_p_value(below_zero, 0.0, 0.0) == 0.0
