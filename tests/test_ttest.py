"""The t law against mpmath, elementary sums and scipy.stats; the paired test against rationals; the sign-flip test against listed patterns."""
import dataclasses
import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from invar_nb.foundations.numbers import ContractError, PairingError, canonical_json
from invar_nb.statistics import ttest as room
from invar_nb.statistics.sign_flip import SignFlip, sign_flip_test
from invar_nb.statistics.ttest import TTest, paired_t_test, t_quantile, t_two_sided_p

mp = pytest.importorskip("mpmath").mp.clone()
mp.dps = 50
stats = pytest.importorskip("scipy.stats")
TINY = 2.0**-1022  # below, float64 has fewer digits to give


def beta_tail(t, df):
    t, df = mp.mpf(t), mp.mpf(df)
    return mp.betainc(df / 2, mp.mpf(1) / 2, 0, df / (df + t * t), regularized=True)


def vanishes(t, df):
    "Whether p is surely below the smallest float64: p < w^-a for t > 1."
    return mp.mpf(df) / 2 * mp.log1p(mp.mpf(t) ** 2 / df) > 1075 * mp.log(2)


def off(t, df, truth):
    found = t_two_sided_p(t, df)
    slack = mp.mpf(2) ** -1074 if truth < TINY else 0
    return max(0.0, float((abs(found - truth) - slack) / truth))


# --- the law ----------------------------------------------------------------------------------------------------------------------------
def points(n, seed):
    rng = np.random.default_rng(seed)
    t, df = 10 ** rng.uniform(-4, 3, n), 10 ** rng.uniform(-2, 8, n)
    df[::2] = np.maximum(1, np.rint(df[::2]))
    t[::3] = 10 ** rng.uniform(-1, 1.6, t[::3].size)
    t[1::5] = np.sqrt(3 * df[1::5] / (df[1::5] + 2)) * (1 + rng.normal(0, 1e-3, t[1::5].size))  # where series and fraction meet
    return list(zip(t.tolist(), df.tolist(), strict=True))


def test_ten_thousand_points_against_mpmath():
    worst, compared = 0.0, 0
    for t, df in points(11_000, 0):
        if t > 1 and vanishes(t, df):
            assert t_two_sided_p(t, df) == 0
            continue
        worst, compared = max(worst, off(t, df, beta_tail(t, df))), compared + 1
    assert compared > 10_000 and worst < 3e-14  # twenty roundings, times 11 where the halves meet; the promise is 1e-12


def test_the_deep_tail_keeps_its_digits():
    rng, compared = np.random.default_rng(1), 0
    for _ in range(250):
        df, depth = 10 ** rng.uniform(0, 8), rng.uniform(250, 745)  # p about exp(-depth)
        t = math.sqrt(df * math.expm1(2 * depth / df)) if 2 * depth / df < 700 else 1e150
        truth = beta_tail(t, df)
        assert off(t, df, truth) < 1e-14, (t, df)
        if truth >= 2 * mp.mpf(2) ** -1074: assert t_two_sided_p(t, df) > 0
        compared += truth < 1e-150
    assert compared > 100


@pytest.mark.parametrize("df", [1e9, 1e12, 1e16, 1e20, 1e100, 1e300])
def test_beyond_any_number_of_pairs_it_is_the_normal_law(df):
    for t in (1e-3, 1.0, 1.7, 1.75, 5.0, 20.0, 37.0):
        truth = mp.erfc(mp.mpf(t) / mp.sqrt(2))
        first = 1 + mp.mpf(t) * (1 + mp.mpf(t) ** 2) / (2 * mp.mpf(df)) * mp.npdf(t) / truth  # the 1/df term: p_df - p_normal = t (t^2+1) phi(t) / (2 df)
        second = (mp.mpf(t) ** 4 + 10) ** 2 / mp.mpf(df) ** 2
        assert abs(t_two_sided_p(t, df) / (truth * first) - 1) < 3e-14 + t * t * 2**-52 + float(second)  # the exponent t^2/2 is rounded up to four times


@pytest.mark.parametrize("t, df", [(1e308, 0.5), (1e200, 1.5), (1e160, 0.01), (1e150, 2.0), (1.7e308, 1.0), (3.0, 1e-10), (1e100, 1e-3), (1e-200, 3.0), (5e-324, 5e-324), (1e-160, 1e-300)])
def test_ends_of_the_float_range(t, df):
    truth = beta_tail(t, df)
    assert abs(t_two_sided_p(t, df) - truth) <= 2e-13 * truth


def test_elementary_sums_for_whole_df():
    def angle_sum(t, df):  # Abramowitz and Stegun 26.7.3-4
        theta = mp.atan(mp.mpf(t) / mp.sqrt(df))
        s, c = mp.sin(theta), mp.cos(theta)
        if df % 2 == 0: return 1 - s * mp.fsum(mp.binomial(2 * j, j) / mp.mpf(4) ** j * c ** (2 * j) for j in range(df // 2))
        total, term = mp.mpf(0), c
        for j in range(1, (df + 1) // 2): total, term = total + term, term * mp.mpf(2 * j) / (2 * j + 1) * c * c
        return 1 - 2 / mp.pi * (theta + s * total)
    for df in (1, 2, 3, 4, 5, 9, 10, 29, 30):
        for t in (1e-6, 0.3, 1.0, 1.5, 1.73, 2.0, 4.0, 11.0):
            assert off(t, df, angle_sum(t, df)) < 1e-14


def test_published_points():
    for t, df, digits in ((12.7062047361747, 1, 1e-12), (2.7764451051977987, 4, 1e-12), (2.2281388519649385, 10, 1e-10)):
        assert abs(t_two_sided_p(t, df) - 0.05) < 0.05 * digits
    assert 1.80e-12 < t_two_sided_p(2.2281388519649385, 10) - 0.05 < 1.82e-12  # this published point misses in the eleventh digit
    np.testing.assert_allclose(t_two_sided_p(2.2281388519862747, 10), 0.05, rtol=1e-14)
    np.testing.assert_allclose([t_two_sided_p(1.0, 1), t_two_sided_p(2.0, 2)], [0.5, 1 - 2 / math.sqrt(6)], rtol=1e-14)


def test_scipy_agrees():
    rng = np.random.default_rng(2)
    t, df = 10 ** rng.uniform(-3, 3, 12_000), 10 ** rng.uniform(-1, 8, 12_000)
    df[::2] = np.maximum(1, np.rint(df[::2]))
    ours, theirs = np.array([t_two_sided_p(*pair) for pair in zip(t, df, strict=True)]), 2 * stats.t.sf(t, df)
    fair = ours > 1e-300  # scipy returns 0 for some truths below
    np.testing.assert_allclose(theirs[fair], ours[fair], rtol=1e-12)
    assert np.all(theirs[~fair] < 1.001e-300) and fair.sum() > 8000


def test_the_fraction_always_settles():
    most = 0
    for a in [*10 ** np.linspace(-3, 17, 120), 1e100, 1e300, 2.5e-324]:
        for share in (1.0, 0.9, 0.5, 0.1, 1e-3, 0.0):
            value, terms = room._gauss_fraction(float(a), share * (a + 1) / 1.5)
            assert 0 < value <= 1
            most = max(most, terms)
    assert 100 < most < 200


@given(st.floats(0, 1e3), st.floats(0.05, 1e8), st.floats(1.001, 3))
@settings(max_examples=200, deadline=None)
def test_shape_of_the_law(t, df, more):
    p = t_two_sided_p(t, df)
    assert 0 <= p <= 1 and t_two_sided_p(-t, df) == p and t_two_sided_p(0.0, df) == 1.0
    assert t_two_sided_p(t * more, df) <= p * (1 + 1e-14)
    assert t_two_sided_p(t, df * more) <= p * (1 + 1e-14) or t < 1e-6  # a wider law for fewer pairs
    inside, outside = room._halves(t, df)
    assert abs(inside + outside - 1) < 1e-15


def test_what_the_law_refuses():
    assert t_two_sided_p(math.inf, 3) == t_two_sided_p(-math.inf, 1e8) == 0.0 and t_two_sided_p(0, 3) == 1.0
    assert t_two_sided_p(np.float32(2.0), np.int64(4)) == t_two_sided_p(2, 4.0) == t_two_sided_p(Fraction(2), 4)
    for statistic, df, words in ((math.nan, 3, "statistic must be a number; got nan"), (None, 3, "statistic must be a number"), ("2", 3, "statistic must be a number"), (True, 3, "got True"),
                                 (2.0, 0, "df must be positive"), (2.0, -1, "df must be positive"), (2.0, math.inf, "df must be positive and finite"), (2.0, math.nan, "df must be a number"),
                                 (10**400, 3, "statistic must fit float64"), (np.array([1.0, 2.0]), 3, "statistic must be a number")):
        with pytest.raises(ContractError, match=words): t_two_sided_p(statistic, df)


# --- the quantile ------------------------------------------------------------------------------------------------------------------------
@given(st.floats(1e-300, 0.4999), st.floats(1, 1e8))
@settings(max_examples=150, deadline=None)
@example(p=1e-300, df=1.2)  # the power of two had no room for its last digits
def test_there_and_back(p, df):
    q = t_quantile(p, df)
    steep = max(1.0, min(df, q * q))  # d log p / d log t: what one rounding of q costs
    assert q < 0 and abs(t_two_sided_p(q, df) / (2 * p) - 1) < 1e-14 + 4e-16 * steep


def test_quantiles():
    for df in (1, 2, 3.5, 4, 10, 99, 1e6):
        for p in (0.0005, 0.01, 0.025, 0.3, 0.6, 0.975, 0.9995):
            np.testing.assert_allclose(t_quantile(p, df), stats.t.ppf(p, df), rtol=1e-12)
        for p in (0.25, 0.0625, 2.0**-40): assert t_quantile(1 - p, df) == -t_quantile(p, df)
        for d in (1e-3, 1e-9, 2.0**-50):  # next to the middle: t = d / f(0) (1 + O(d^2))
            d = (0.5 + d) - 0.5
            np.testing.assert_allclose(t_quantile(0.5 + d, df), d / stats.t.pdf(0, df), rtol=1e-12 + 30 * d * d)
    assert t_quantile(0.5, 3) == 0.0
    np.testing.assert_allclose(t_quantile(0.975, 1), math.tan(math.pi * 0.475), rtol=1e-13)
    np.testing.assert_allclose(t_quantile(1e-250, 1), -1 / (math.pi * 1e-250), rtol=1e-13)
    for bad in (0, 1, 95, math.nan, None):
        with pytest.raises(ContractError, match="t_quantile: p must lie"): t_quantile(bad, 4)
    with pytest.raises(ContractError, match="quantile must fit float64"): t_quantile(1e-300, 0.5)


# --- the paired test ------------------------------------------------------------------------------------------------------------------------
def exact_t(d):
    d = [Fraction(x) for x in d]
    mean = sum(d) / len(d)
    squares = sum((x - mean) ** 2 for x in d)
    return math.copysign(math.sqrt(float(mean**2 * len(d) * (len(d) - 1) / squares)), mean)


def test_examples():
    r = paired_t_test([5, 6, 7, 8], [4, 6, 6, 7])
    assert (r.statistic, r.df, r.n, r.mean, r.degenerate, r.p_from, r.std) == (3.0, 3, 4, 0.75, None, "t", 0.5)
    np.testing.assert_allclose([r.p_value, r.effect_size], [0.05766888562243731, 1.5], rtol=1e-13)
    np.testing.assert_allclose(r.corrected_effect_size, 1.5 * math.gamma(1.5) / (math.sqrt(1.5) * math.gamma(1.0)), rtol=1e-13)
    r = paired_t_test([2.1, 2.3, 1.9, 2.5], [2.0] * 4)
    np.testing.assert_allclose([r.statistic, r.p_value], [1.5491933384829668, 0.2191020], rtol=2e-7)
    rng = np.random.default_rng(3)
    for n in (2, 3, 4, 7, 40, 1000):
        a, b = rng.normal(3, 1, (2, n))
        for level in (0.3, 0.5, 0.95, 0.999):
            ours, theirs = paired_t_test(a, b, level=level), stats.ttest_rel(a, b)
            np.testing.assert_allclose([ours.statistic, ours.p_value], [theirs.statistic, theirs.pvalue], rtol=1e-11)
            np.testing.assert_allclose([ours.interval.low, ours.interval.high], list(theirs.confidence_interval(level)), rtol=1e-11)
            assert ours.level == ours.interval.level == level and ours.significant == (not ours.interval.contains(0.0))
        np.testing.assert_allclose(ours.std, np.std(a - b, ddof=1), rtol=1e-13)


arms = st.integers(2, 12).flatmap(lambda n: st.tuples(*[st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=n, max_size=n)] * 2))


@given(arms, st.randoms(use_true_random=False), st.integers(-900, 900))
@settings(max_examples=200, deadline=None)
def test_invariances(arms, random, power):
    a, b = arms
    r = paired_t_test(a, b)
    order = list(range(len(a)))
    random.shuffle(order)
    assert paired_t_test([a[i] for i in order], [b[i] for i in order]) == r  # bit for bit
    back = paired_t_test(b, a)
    assert (back.p_value, back.std, back.mean, back.degenerate) == (r.p_value, r.std, -r.mean, r.degenerate)
    assert (back.interval.low, back.interval.high) == (-r.interval.high, -r.interval.low)
    scaled = paired_t_test(np.ldexp(a, power), np.ldexp(b, power))
    assert (scaled.p_value, scaled.statistic, scaled.effect_size, scaled.degenerate) == (r.p_value, r.statistic, r.effect_size, r.degenerate)
    assert scaled.mean == math.ldexp(r.mean, power)
    assert json.loads(canonical_json(r.to_dict())) == r.to_dict()
    d = [x - y for x, y in zip(a, b, strict=True)]
    assert min(d) <= r.mean <= max(d) and r.interval.low <= r.mean <= r.interval.high
    if r.degenerate is None:
        np.testing.assert_allclose(r.statistic, exact_t(d), rtol=1e-12)
        assert r.p_value == t_two_sided_p(r.statistic, r.df) and (r.corrected_effect_size is None) == (r.n == 2)
    else:
        assert r.degenerate == "all_equal" and max(d) - min(d) <= 1e-14 * max(map(abs, a + b + [0.0]))


@given(st.integers(2, 9), st.floats(-1e3, 1e3), st.lists(st.floats(0.125, 1e3), min_size=9, max_size=9))
@settings(max_examples=150, deadline=None)
def test_equal_differences_in_decimals_are_dust(n, gain, bases):
    gain, bases = round(gain, 2), [round(x, 2) for x in bases[:n]]
    r = paired_t_test([round(x + gain, 2) for x in bases], bases)
    assert r.degenerate == "all_equal" and r.statistic is None and r.p_from == "sign_flip"
    assert r.p_value == (2.0 ** (1 - n) if gain else 1.0) and r.interval.fallback.code == "all_equal" and r.interval.width == 0
    assert r.source_p_value == (0.0 if r.mean else 1.0) and r.effect_size is None and "equal within the rounding" in r.reason and r.reason in r.reading


def test_small_spread_is_spread():
    for size in (1e-3, 1e-9, 1e-12):
        r = paired_t_test([1 + size, 1 + 2 * size, 1 + 3 * size], [1, 1, 1])
        assert r.degenerate is None and abs(r.statistic / math.sqrt(12) - 1) < 1e-3
    assert paired_t_test([1 + 1e-15, 1.0, 1.0], [1, 1, 1]).degenerate == "all_equal"
    near = np.array([1.0, 1 + 2.0**-40, 1 - 2.0**-40])  # a mean 2^40 times the spread
    assert paired_t_test(near, [0.0] * 3).degenerate is None
    np.testing.assert_allclose(paired_t_test(near, [0.0] * 3).statistic, exact_t(near), rtol=1e-12)
    for n in (3, 5, 7, 11):  # the mean itself is rounded by a share of the spread
        third = 1 / 3 + np.arange(n) % 3 * 2.0**-49
        assert paired_t_test(third, [0.0] * n).degenerate is None
        np.testing.assert_allclose(paired_t_test(third, [0.0] * n).statistic, exact_t(third), rtol=1e-12)
    nothing = paired_t_test([0.1 + 0.2] * 3, [0.3] * 3)  # a mean that is rounding too
    assert (nothing.degenerate, nothing.p_value, nothing.source_p_value, nothing.mean != 0) == ("all_equal", 1.0, 0.0, True)


def test_one_pair_and_none():
    r = paired_t_test([3], [1])
    assert (r.statistic, r.p_value, r.std, r.p_from, r.df, r.n, r.mean, r.degenerate, r.significant, r.source_p_value) == (None, None, None, None, 0, 1, 2.0, "single_pair", False, None)
    assert r.interval.low == r.interval.high == 2.0 and r.interval.fallback.code == "single_pair" and canonical_json(r.to_dict())
    for a, b, words in (([], [], "at least one pair; got no pairs"), ([1, 2], [1], "got 2 and 1 numbers"), ([1.0], [1.0, 2.0], "got 1 and 2")):
        with pytest.raises(PairingError, match=words): paired_t_test(a, b)
    for a, b, words in (([1, math.inf], [1, 2], "candidate must be finite; got inf at index 1"), ([1, 2], [math.nan, 2], "baseline must be finite; got nan at index 0"),
                        ([True, 2.0], [1, 2], "not booleans"), ("12", [1, 2], "must be numbers"), ([[1, 2]], [1, 2], "one dimension")):
        with pytest.raises(ContractError, match=words): paired_t_test(a, b)
    with pytest.raises(ContractError, match="Did you mean 0.95"): paired_t_test([1, 2], [1, 1], level=95)


def test_edges_of_float64():
    for a, b in (([9e307, 1e308, 1.1e308], [-8e307, 0, 1e307]), ([1e308, 1e308], [-1e308, 1e308 * 0.9]), ([2e-320, 3e-320, 5e-320], [0, 0, 1e-320]),
                 ([1e308, 1e-320, 1.0], [1e308, 0, 0.5]), ([5e-324, 0, 0], [0, 0, 0]), ([2**53, 2**53 - 1], [0, 0])):
        r = paired_t_test(a, b, level=0.3)
        d = [Fraction(x) - Fraction(y) for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(r.mean, float(sum(d) / len(d)), rtol=1e-13, atol=2.0**-1074)
        if r.degenerate is None: np.testing.assert_allclose(r.statistic, exact_t(d), rtol=1e-13)
    assert paired_t_test([1e308, 1e-320, 1.0], [1e308, 0, 0.5]).degenerate == "all_equal"  # beside 1e308 all these are roundings
    for a, b in (([1.7e308, 1.6e308], [-1.7e308, -1.7e308]), ([1.7e308, -1.7e308], [-1.7e308, 1.7e308]), ([1e308, 0], [0, 0])):
        with pytest.raises(ContractError, match="must fit float64; got differences up to 2.*Change the unit"): paired_t_test(a, b)


def test_a_result_that_does_not_follow_cannot_be_built():
    good = paired_t_test([5, 6, 7, 8], [4, 6, 6, 7])
    assert dataclasses.replace(good) == good
    for change, words in (({"p_value": 0.01}, "p_value must follow"), ({"statistic": None}, "a statistic needs spread"), ({"df": 4}, "df must be n - 1"), ({"n": 0, "df": -1}, "n must be a whole number"),
                          ({"degenerate": "all_equal"}, "a statistic needs spread"), ({"degenerate": "bad"}, "degenerate must be one of"), ({"p_from": None}, "p_from must say"),
                          ({"n": 1, "df": 0}, "one pair, and only one"), ({"level": 2}, "level must lie"), ({"p_value": None}, "p_value must follow")):
        with pytest.raises(ContractError, match=words): dataclasses.replace(good, **change)
    equal = paired_t_test([2, 3, 4], [1, 2, 3])
    for p in (0.0, None, 0.5):
        with pytest.raises(ContractError, match="p_value must follow"): dataclasses.replace(equal, p_value=p)
    with pytest.raises(dataclasses.FrozenInstanceError): good.p_value = 0.0
    assert set(TTest.__dataclass_fields__) >= {"statistic", "df", "p_value", "mean", "std", "n", "degenerate"}


def test_readings():
    five = paired_t_test([30.78, 29.60, 30.41, 31.55, 30.13], [31.20, 29.85, 30.90, 32.10, 30.40])
    assert "significant at 0.05" in five.reading and "cannot be below 0.0625" in five.reading
    assert "not significant at 0.05" in paired_t_test([5, 6, 7, 8], [4, 6, 6, 7]).reading
    six = paired_t_test([1.1, 1.2, 1.0, 1.3, 0.9, 1.1], [0] * 6)
    assert six.significant and "relies" not in six.reading
    assert "1 pair; one pair shows no spread" in paired_t_test([3], [1]).reading


# --- signs ------------------------------------------------------------------------------------------------------------------------------
def listed(d):
    d = [Fraction(x) for x in d]
    sums = [abs(sum(e * x for e, x in zip(signs, d, strict=True))) for signs in product((1, -1), repeat=len(d))]
    return float(Fraction(sum(s >= abs(sum(d)) for s in sums), len(sums)))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=9), st.integers(-900, 900))
@settings(max_examples=120, deadline=None)
def test_every_pattern(d, power):
    r = sign_flip_test(np.ldexp(np.array(d, float), power))
    assert r.p_value == listed(d) and r.engine == "enumeration" and r.patterns == 2 ** len(d) and r.seed is None
    assert r.smallest == min(1.0, 2.0 ** (1 - sum(x != 0 for x in d))) <= r.p_value and r.mean == math.ldexp(math.fsum(d) / len(d), power)
    assert sign_flip_test(d[::-1]).p_value == sign_flip_test([-x for x in d]).p_value == r.p_value


@given(st.lists(st.integers(-30, 30), min_size=1, max_size=8))
@settings(max_examples=120, deadline=None)
def test_ties_in_decimals_are_ties(d):
    assert sign_flip_test([x / 10 for x in d]).p_value == listed(d)
    assert sign_flip_test([(7 + x / 10) - 7 for x in d], scale=10).p_value == listed(d)


def test_scipy_permutes_too():
    rng = np.random.default_rng(4)
    for n in (3, 8, 12):
        d = rng.normal(0.4, 1, n)
        theirs = stats.permutation_test((d,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True, n_resamples=np.inf)
        np.testing.assert_allclose(sign_flip_test(d).p_value, theirs.pvalue, rtol=1e-12)


def test_forty_and_more():
    rng = np.random.default_rng(5)
    assert sign_flip_test(np.ones(40)).p_value == 2.0**-39 and sign_flip_test(np.ones(40)).reaching == 2
    coins = np.where(np.arange(40) < 29, 1.0, -1.0)  # a sum of signs is a binomial count
    assert sign_flip_test(coins).p_value == 2 * sum(math.comb(40, k) for k in range(12)) / 2**40
    many = rng.normal(0.1, 1, 300)
    drawn = sign_flip_test(many)
    assert (drawn.engine, drawn.seed, drawn.patterns) == ("monte_carlo", 0, 9999) and drawn == sign_flip_test(many[::-1])
    z = abs(many.sum()) / math.sqrt(np.sum(many**2))
    normal = math.erfc(z / math.sqrt(2))
    assert abs(drawn.p_value - normal) < 4 * math.sqrt(normal * (1 - normal) / 9999) + 1 / 300  # the limit's own error is below 1/n
    assert 0 < drawn.standard_error == math.sqrt(drawn.p_value * (1 - drawn.p_value) / 9999)
    assert sign_flip_test(np.ones(60)).p_value == 1 / 10_000  # never 0
    few = rng.normal(0.5, 1, 7)
    assert abs(sign_flip_test(few, replicates=5000, seed=3).p_value - sign_flip_test(few).p_value) < 4 * math.sqrt(0.25 / 5000)
    assert sign_flip_test(few, replicates=5000, seed=3) != sign_flip_test(few, replicates=5000, seed=4)


def test_edges_of_signs():
    assert sign_flip_test([0.0, 0.0]).p_value == sign_flip_test([3.0]).p_value == 1.0
    assert sign_flip_test([1e308] * 6).p_value == sign_flip_test([5e-324] * 6).p_value == 2.0**-5
    assert sign_flip_test([0.1] * 6, scale=1e300).p_value == 1.0 and sign_flip_test([5e-324] * 6, scale=1.7e308).p_value == 1.0  # all is rounding beside such inputs
    assert canonical_json(sign_flip_test([0.1, 0.2]).to_dict())
    with pytest.raises(PairingError, match="at least one difference"): sign_flip_test([])
    for options, words in (({"replicates": 99}, "go together"), ({"seed": 1}, "go together"), ({"replicates": 0, "seed": 1}, "replicates must be"), ({"replicates": 9, "seed": -1}, "seed must be"),
                           ({"scale": -1}, "scale must be at least 0"), ({"scale": math.nan}, "scale must be finite")):
        with pytest.raises(ContractError, match=words): sign_flip_test([0.1, 0.2], **options)
    with pytest.raises(ContractError, match="got nan at index 1"): sign_flip_test([0.1, math.nan])
    good = sign_flip_test([0.1, 0.2])
    for change in ({"p_value": 0.1}, {"seed": 1}, {"engine": "guess"}):
        with pytest.raises(ContractError): dataclasses.replace(good, **change)
    assert isinstance(good, SignFlip)


@pytest.mark.slow
def test_false_alarm_and_coverage():
    rng, sets = np.random.default_rng(6), 3000
    for n in (2, 3, 5, 12):
        hits = covered = 0
        for d in rng.normal(0.7, 2, (sets, n)):
            r = paired_t_test(d + 5, np.full(n, 5.0), level=0.9)
            covered += r.interval.contains(0.7)
            hits += paired_t_test(d, np.full(n, 0.7), level=0.9).significant
        for rate, target in ((covered / sets, 0.9), (hits / sets, 0.1)): assert abs(rate - target) < 4 * math.sqrt(0.1 * 0.9 / sets)


# --- what an adversarial reader found -----------------------------------------------------------------------------------------------------
def test_the_law_where_float64_ends():
    special = pytest.importorskip("scipy.special")
    for df in (1e8, 1e15, 1e17, 1e300, 1.7e308):
        for t in (40.0, 1e5, 1e300, 1.79e308): assert t_two_sided_p(t, df) == 0.0
        if df > 1e16:
            for t in (0.5, 2.0, 8.0, 20.0, 37.0): assert t_two_sided_p(t, df) == pytest.approx(2 * special.ndtr(-t), rel=1e-12)
            for p in (1e-300, 1e-10, 0.025, 0.3, 0.975): assert t_quantile(p, df) == pytest.approx(special.ndtri(p), rel=1e-12)
    assert t_two_sided_p(1.79e308, 1e-300) == 1.0


def test_the_point_of_the_notes_is_rounded():
    p = t_two_sided_p(2.2281388519649385, 10)
    assert p == pytest.approx(0.0500000000018087, abs=1e-16) and p - 0.05 == pytest.approx(1.8087e-12, rel=1e-3)
