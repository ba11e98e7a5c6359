"""The jackknife, text order and pooling beyond their pages: formulas as printed, duality in thousands of cases, degenerate and extreme units, coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.fft import dct

from invar_nb import compare, pair_arrays
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.statistics import serial
from invar_nb.statistics.jackknife import (
    Jackknife,
    jackknife_ratio,
    jackknife_ratio_difference,
    jackknife_statistic,
)
from invar_nb.statistics.pooling import pool_fixed, pool_random
from invar_nb.statistics.serial import (
    jackknife_interval,
    serial_ratio,
    serial_ratio_difference,
)
from invar_nb.statistics.totals import units_eff


def draw(rng, n=None):
    n = n or int(rng.integers(2, 1001))
    d = (
        rng.normal,
        rng.standard_exponential,
        lambda size: rng.standard_t(3, size),
        lambda size: rng.lognormal(0, 2, size),
        lambda size: rng.integers(-1, 2, size) * 1.0,
        rng.standard_cauchy,
        lambda size: np.where(rng.random(size) < 0.03, 50.0, 0) + 1e-3 * rng.normal(size=size),
    )[rng.integers(7)](size=n)
    t = (
        np.ones(n),
        np.rint(rng.lognormal(4, 1, n)) + 1,
        np.where(rng.random(n) < 0.1, 5000.0, 100),
        np.r_[1e7, np.ones(n - 1)],
    )[rng.integers(4)]
    return d * 10.0 ** rng.integers(-3, 3) + rng.choice([0, 1, -0.01]), t


def printed(y, n_minus_one):
    "nu and c as @eq-jackknife-nu and @eq-jackknife-skewness print them, with arrays of n."
    n, z = y.size, y / math.sqrt((y**2).mean())
    k = n * (y**4).sum() / (y**2).sum() ** 2
    nu = min(n_minus_one, max(2, 2 * n / (k - 1)))
    g = (z**3).mean()
    v = ((z**3 - 3 * z - g - 1.5 * g * (z**2 - 1)) ** 2).mean() / n
    return nu, 0.0 if v >= g * g else g * (1 - v / g**2) / (2 * math.sqrt(n))


def without(N, W, u):
    return np.delete(N, u).sum() / np.delete(W, u).sum()


@pytest.mark.parametrize("n", [2, 3, 5, 30, 300, 16384, 16385, 40_000])
def test_degrees_of_freedom_and_skewness_as_printed(n):
    rng = np.random.default_rng(n)
    for law in (
        rng.standard_normal,
        rng.standard_exponential,
        lambda size: rng.lognormal(0, 1.5, size),
    ):
        d, t = law(n), np.rint(rng.lognormal(4, 0.7, n)) + 1
        fit, other = jackknife_ratio(t * d, t), jackknife_ratio(d, t, means=True)
        np.testing.assert_allclose(
            [fit.nu, fit.skewness],
            printed(t * (d - (t * d).sum() / t.sum()), n - 1),
            rtol=1e-8,
            atol=1e-12,
        )
        np.testing.assert_allclose(
            [fit.standard_error, fit.nu, fit.skewness],
            [other.standard_error, other.nu, other.skewness],
            rtol=1e-9,
            atol=1e-12,
        )
        assert (
            fit.dof == fit.nu
            and fit.n_units == n
            and fit.units_eff == pytest.approx(t.sum() ** 2 / (t * t).sum())
        )


def test_small_skewness_keeps_all_digits():
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 400
    q = mp.mpf(-float(stats.t.ppf(0.025, 30)))
    for c in (1e-300, 1e-17, 1e-12, 1.1e-9, 1e-8, 1e-5, 0.01):
        fit = Jackknife(
            estimate=0.0,
            standard_error=1.0,
            skewness=c,
            dof=30.0,
            nu=30.0,
            n_units=50,
            units_eff=50.0,
            fallback=None,
        )
        truth = -3 / mp.mpf(c) * (mp.cbrt(1 + mp.mpf(c) * (q - mp.mpf(c) / 6)) - 1)
        assert abs(fit.interval().low / truth - 1) < 1e-13


def test_interval_and_p_value_agree_in_ten_thousand_cases():
    rng, closed = np.random.default_rng(4), 0
    for k in range(2500):
        d, t = draw(rng, int(rng.choice([2, 3, 5, 9, 10, 37])) if k % 3 == 0 else None)
        level, n = rng.uniform(0.8, 0.999), d.size
        for fit in (
            jackknife_ratio(t * d, t),
            serial_ratio(t * d, t),
            jackknife_ratio_difference((t * d * 0.5, t), (t * d, 1.5 * t)),
            jackknife_statistic(d.mean(), (d.sum() - d) / (n - 1)),
        ):
            interval = fit.interval(level)
            if fit.fallback:
                assert (
                    interval.low == interval.high == fit.estimate
                    and interval.fallback == fit.fallback
                )
                continue
            closed += 1
            assert interval.engine == "closed_form" and interval.contains(0) == (
                fit.p_value() >= 1 - level
            )
            if fit.standard_error > 1e-6 * max(
                abs(interval.low), abs(interval.high)
            ):  # else the end itself has too few digits
                assert (
                    fit.p_value(interval.low)
                    == pytest.approx(1 - level, rel=1e-8)
                    == fit.p_value(interval.high)
                )
            wider = fit.interval(level + 0.0005)
            assert wider.low <= interval.low <= interval.high <= wider.high
    assert closed > 9000


def test_both_arms_deleted_by_hand():
    rng = np.random.default_rng(5)
    for n in (3, 8, 50):
        a, b, wa, wb = (
            rng.normal(size=n),
            rng.gamma(1, size=n),
            rng.integers(0, 4, n) * 1.0,
            rng.integers(1, 9, n) * 1.0,
        )
        wa[:2] = 1, 2
        fit = jackknife_ratio_difference((a * wa, wa), (b * wb, wb))
        D = without(b * wb, wb, []) - without(a * wa, wa, [])
        deleted = np.array([without(b * wb, wb, u) - without(a * wa, wa, u) for u in range(n)])
        ua, ub = ((w * (x - (x * w).sum() / w.sum()) / w.sum()) for x, w in ((a, wa), (b, wb)))
        np.testing.assert_allclose(
            [fit.estimate, fit.standard_error],
            [D, math.sqrt(((D - deleted) ** 2).sum())],
            rtol=1e-12,
        )
        np.testing.assert_allclose(
            [fit.nu, fit.skewness], printed(ub - ua, n - 1), rtol=1e-9, atol=1e-13
        )


def test_equal_weights_in_both_arms_are_one_ratio_and_a_statistic():
    rng = np.random.default_rng(6)
    a, b, t = rng.normal(size=70), rng.gamma(2, size=70), np.rint(rng.lognormal(4, 1, 70)) + 1
    two, one = (
        jackknife_ratio_difference((a * t, t), (b * t, t)),
        jackknife_ratio((b - a) * t, t),
    )
    for name in ("estimate", "standard_error", "skewness", "nu", "units_eff"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), rel=1e-10)
    plain, again = (
        jackknife_ratio(a, np.ones(70)),
        jackknife_statistic(a.mean(), (a.sum() - a) / 69),
    )
    for name in ("estimate", "standard_error", "skewness", "nu", "units_eff"):
        assert getattr(plain, name) == pytest.approx(getattr(again, name), rel=1e-9)


# --- degenerate and extreme ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "N, W, code",
    [
        ([0.3], [1.0], "single_pair"),
        ([2.0, 0.0], [4.0, 0.0], "single_pair"),
        ([1e15, 0.0], [1e15, 1.0], "single_pair"),
        ([0.9, 0.3, 0.6], [3.0, 1.0, 2.0], "all_equal"),
        ([0.0] * 5, [1.0] * 5, "all_equal"),
    ],
)
def test_no_spread_is_said(N, W, code):
    for fit in (
        jackknife_ratio(np.array(N), np.array(W)),
        serial_ratio(np.array(N), np.array(W)),
        jackknife_ratio_difference(
            (np.zeros(len(N)), np.array(W)), (np.array(N), np.array(W))
        ),
    ):
        assert (
            fit.fallback.code == code
            and fit.interval().width == 0
            and fit.interval().fallback.code == code
        )
        assert fit.dof == fit.nu == fit.n_units - 1
        assert (
            (fit.p_value() is None)
            if code == "single_pair"
            else fit.p_value() == (fit.estimate == 0)
        )


def test_rounding_is_no_spread_and_small_spread_is_one():
    t = np.arange(1.0, 181)
    assert (
        jackknife_ratio(0.3 * t, t).fallback.code
        == "all_equal"
        == jackknife_ratio(np.full(180, 0.3), t, means=True).fallback.code
    )
    assert jackknife_ratio((0.3 + 1e-12 * np.sin(t)) * t, t).fallback is None
    assert jackknife_statistic(0.3, np.full(9, 0.3)).fallback.code == "all_equal"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-60, 1e60, 1e200, 1e300])
def test_the_unit_does_not_matter(scale):
    rng = np.random.default_rng(8)
    d, t = rng.gamma(1, size=50) + 0.5, rng.integers(1, 9, 50) * 1.0
    for make in (
        lambda s, w: jackknife_ratio(t * (d * s), t * w),
        lambda s, w: serial_ratio(t * (d * s), t * w),
        lambda s, w: jackknife_statistic(s, d * s),
        lambda s, w: jackknife_ratio_difference(
            (t * (d * d * s), t * w), (t * (d * s), t * w)
        ),
    ):
        here, there = make(1.0, 1.0), make(scale, 1.0)
        np.testing.assert_allclose(
            [there.standard_error / scale, there.nu, there.skewness],
            [here.standard_error, here.nu, here.skewness],
            rtol=1e-12,
        )
        np.testing.assert_allclose(
            [there.interval().low / scale, there.interval().high / scale],
            [here.interval().low, here.interval().high],
            rtol=1e-11,
        )
        weighed = make(scale, scale)
        np.testing.assert_allclose(
            [weighed.nu, weighed.skewness, weighed.units_eff],
            [here.nu, here.skewness, here.units_eff],
            rtol=1e-10,
        )


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 10**6)), min_size=2, max_size=40),
    st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_any_rows_in_any_order(rows, random):
    def study(rows):
        d, t = (np.array(x, float) for x in zip(*rows, strict=True))
        return jackknife_ratio(t * d, t)

    one, (low, high) = study(rows), (lambda i: (i.low, i.high))(study(rows).interval(0.99))
    random.shuffle(rows)
    two = study(rows)
    assert math.isfinite(low) and low <= high
    if one.fallback is None is two.fallback and one.standard_error > 1e-7 * max(
        1.0, *(abs(d) for d, _ in rows)
    ):
        np.testing.assert_allclose(
            [two.standard_error, two.nu, two.interval(0.99).low, two.interval(0.99).high],
            [one.standard_error, one.nu, low, high],
            rtol=1e-6,
            atol=1e-6,
        )


# --- text order ---------------------------------------------------------------------------------------------------------------------------
def written_out(d, t):
    "SE and degrees of freedom as @eq-serial-joined prints them, term by term."
    n, T = d.size, t.sum()
    x, independent = t * (d - (t @ d) / T) / T, jackknife_ratio(t * d, t)
    B = min(8, n - 1, max(2, round(0.4 * n ** (2 / 3))))
    L = [
        math.sqrt(2 / n) * sum(x[i] * math.cos(math.pi * j * (i + 0.5) / n) for i in range(n))
        for j in range(1, B + 1)
    ]
    error = (
        math.sqrt(n * sum(v * v for v in L) / B)
        * independent.standard_error
        / math.sqrt(x @ x)
    )
    return max(error, independent.standard_error) if n < 10 else error, 1 / (
        1 / B + 1 / independent.nu
    )


@pytest.mark.parametrize("n", [2, 3, 4, 9, 10, 11, 60, 181, 1000])
def test_formula(n):
    rng = np.random.default_rng(n)
    d, t = rng.gamma(1, size=n), np.rint(rng.lognormal(4, 0.8, n)) + 1
    fit, plain = serial_ratio(t * d, t), jackknife_ratio(t * d, t)
    np.testing.assert_allclose([fit.standard_error, fit.dof], written_out(d, t), rtol=1e-10)
    assert (fit.estimate, fit.skewness, fit.nu, fit.units_eff, fit.n_units) == (
        plain.estimate,
        plain.skewness,
        plain.nu,
        plain.units_eff,
        n,
    )
    assert serial_ratio((t * d)[::-1].copy(), t[::-1].copy()).standard_error == pytest.approx(
        fit.standard_error, rel=1e-10
    )  # the text read backwards
    a, b = rng.normal(size=n), rng.normal(size=n)
    two, one = serial_ratio_difference((a * t, t), (b * t, t)), serial_ratio((b - a) * t, t)
    np.testing.assert_allclose(
        [two.standard_error, two.dof], [one.standard_error, one.dof], rtol=1e-9
    )


def test_of_two_arms_in_blocks_the_fewer_effective_windows_count():
    rng = np.random.default_rng(3)
    n = 3 * serial.MOST_BLOCKS
    even = np.ones(n)
    uneven = rng.exponential(size=n) ** 3
    a, b = ((rng.gamma(1, size=n) * weights, weights) for weights in (even, uneven))
    few = units_eff(uneven)
    for fit in (serial_ratio_difference(a, b), serial_ratio_difference(b, a)):
        assert (fit.n_units, fit.units_eff) == (n, pytest.approx(few))


@pytest.mark.parametrize("n", [2, 5, 60, 2053, 10_007, 65_536, 400_009])
def test_waves_are_the_cosine_transform(n):
    x, terms = np.random.default_rng(n).standard_t(3, n), serial.alarm_terms(n)
    direct = dct(x, 2)[1 : terms + 1] / 2
    np.testing.assert_allclose(
        serial.slow_parts(x, terms), direct, rtol=0, atol=1e-9 * math.sqrt((direct**2).mean())
    )
    np.testing.assert_allclose(
        serial.slow_parts(x),
        direct[: serial.cosine_terms(n)],
        rtol=0,
        atol=1e-9 * math.sqrt((direct**2).mean()),
    )


def test_more_text_is_never_a_wider_interval():
    "The width that the rule gives a text without correlation, by its number of windows: t of the joined degrees of freedom over the root of n."
    widths = [
        stats.t.ppf(0.975, 1 / (1 / serial.cosine_terms(n) + 1 / (n - 1))) / math.sqrt(n)
        for n in range(10, 5000)
    ]
    assert max(np.diff(widths)) < 0


def test_the_alarm_is_the_f_test_of_the_slowest_third():
    "From numpy and scipy.stats alone; two halves that differ raise it, and it reaches the interval, its plain values and the report."
    rng = np.random.default_rng(3)
    for n in (12, 60, 180, 700):
        for step in (0, 0.8, 2):
            d = rng.normal(size=n) + step * (np.arange(n) > n / 2)
            K = min(56, n - 1, max(2, 2 * round(0.4 * n ** (2 / 3))))
            L = [
                ((d - d.mean()) @ np.cos(math.pi * j * (np.arange(n) + 0.5) / n)) ** 2
                for j in range(1, K + 1)
            ]
            p = stats.f.sf(
                np.mean(L[: round(K / 3)]) / np.mean(L[round(K / 3) :]),
                round(K / 3),
                K - round(K / 3),
            )
            found = jackknife_interval(d, np.full(n, 64))
            assert (
                (found.alarm == "slow_waves")
                == (p < 0.005)
                == (found.to_dict()["alarm"] is not None)
            ), (n, step, p)
    both = pair_arrays(np.full(700, 3.0), 3 + 0.01 * d, np.full(700, 64))
    report = compare(both).report()
    assert report.document()["rows"][0]["value"][
        "alarm"
    ] == "slow_waves" and "topics longer than its interval can see" in str(report)
    assert (
        compare(
            pair_arrays(np.full(700, 3.0), 3 + 0.01 * rng.normal(size=700), np.full(700, 64))
        ).row.value.interval.alarm
        is None
    )


@pytest.mark.parametrize("units", ["serial", "windows"])
def test_the_door_is_its_parts(units):
    rng = np.random.default_rng(2)
    d, t = rng.standard_t(3, 180), rng.integers(1, 900, 180)
    parts = (serial_ratio if units == "serial" else jackknife_ratio)(
        t * d, t.astype(float)
    ).interval(0.9)
    for tokens in (t, t.astype(float), t.tolist(), t.astype(np.int32), t.astype(np.float32)):
        for delta in (d, d.tolist()):
            shown = jackknife_interval(delta, tokens, units=units, level=0.9)
            np.testing.assert_allclose(
                [shown.low, shown.high], [parts.low, parts.high], rtol=1e-10
            )
            assert (shown.level, shown.method, shown.engine, shown.fallback) == (
                0.9,
                "jackknife",
                "closed_form",
                None,
            )


def test_documents_by_any_names():
    rng = np.random.default_rng(3)
    d, t, codes = (
        rng.normal(size=300),
        rng.integers(1, 900, 300),
        np.sort(rng.integers(0, 40, 300)),
    )
    codes[codes == 7] = 8  # a code that no window has
    names = [f"page {c}" for c in codes]
    N, W = (
        np.array([v[codes == c].sum() for c in dict.fromkeys(codes.tolist())])
        for v in (t * d, t.astype(float))
    )
    truth = jackknife_ratio(N, W).interval()
    shuffle = rng.permutation(300)
    for ids in (
        codes,
        codes.astype(np.int32),
        codes.tolist(),
        names,
        codes * 10**9,
        codes - 20,
    ):
        for order in (np.arange(300), shuffle):
            shown = jackknife_interval(
                d[order],
                t[order],
                units="documents",
                document_ids=[ids[i] for i in order] if isinstance(ids, list) else ids[order],
            )
            np.testing.assert_allclose(
                [shown.low, shown.high], [truth.low, truth.high], rtol=1e-10
            )
    assert (
        jackknife_interval(d, t, units="documents", document_ids=["one"] * 300).fallback.code
        == "single_pair"
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "call, message",
    [
        *(
            (dict(delta=np.array(delta), tokens=np.array(tokens)), message)
            for delta, tokens, message in (
                ([0.1, math.inf], [1, 2], "delta must be finite; got inf at index 1"),
                ([0.1, 0.2], [1, 0], "tokens must be whole numbers from 1"),
                ([0.1, 0.2], [1, 2.5], "tokens must be whole numbers from 1"),
                ([0.1, 0.2], [1, math.nan], "tokens must be finite"),
                ([0.1, 0.2], [2**53, 5], "the total of tokens"),
                ([1e308, 1e308], [9, 9], "delta times tokens must fit float64"),
            )
        ),
        *(
            (dict(delta=[0.1, math.nan], tokens=[1, 2]) | more, message)
            for more, message in (
                ({}, "delta must be finite; got nan at index 1"),
                (dict(delta=[0.1, 0.2], tokens=[1, 2, 3]), "delta must have 3 entries; got 2"),
                (dict(units="document"), "Did you mean 'documents'?"),
                (
                    dict(units="documents"),
                    "document_ids and units='documents' belong together",
                ),
                (
                    dict(document_ids=["a", "b"]),
                    "document_ids and units='documents' belong together",
                ),
                (
                    dict(delta=[0.1, 0.2], units="documents", document_ids=["a"]),
                    "document_ids must have 2 entries; got 1",
                ),
                (dict(level=95), "Did you mean 0.95?"),
                (dict(delta=[], tokens=[]), "at least one pair"),
            )
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ContractError) as error:
        jackknife_interval(**call)
    assert (
        message in str(error.value)
        and str(error.value).startswith("jackknife_interval: ")
        and "\n" not in str(error.value)
    )
    assert isinstance(error.value, PairingError) == (message == "at least one pair")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("units", ["serial", "windows"])
def test_few_windows_and_equal_ones(units):
    assert jackknife_interval([0.3], [5], units=units).fallback.code == "single_pair"
    assert (
        jackknife_interval([0.3] * 50, range(1, 51), units=units).fallback.code == "all_equal"
    )
    for n in range(2, 14):
        for d in (np.r_[1.0, np.zeros(n - 1)], (-1.0) ** np.arange(n), np.arange(n) * 1.0):
            interval = jackknife_interval(d, np.ones(n), units=units, level=0.999)
            assert interval.low < interval.high and interval.contains(d.mean())


def test_below_ten_windows_never_narrower():
    rng = np.random.default_rng(5)
    for n in range(2, 10):
        for _ in range(50):
            d, t = rng.normal(size=n), rng.integers(1, 9, n) * 1.0
            assert (
                serial_ratio(t * d, t).standard_error
                >= jackknife_ratio(t * d, t).standard_error
            )


def test_input_is_not_changed():
    d, t = np.random.default_rng(6).normal(size=50_000), np.ones(50_000)
    before = d.copy(), t.copy()
    for units in ("serial", "windows"):
        jackknife_interval(d, t, units=units)
    assert (d == before[0]).all() and (t == before[1]).all()


# --- pooled texts -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 6, 12])
@pytest.mark.parametrize("tau", [0, 0.5, 1, 3])
def test_coverage_of_texts_like_these(k, tau, capsys):
    rng, inside, n = np.random.default_rng([k, int(2 * tau)]), np.zeros(4), 4000
    for errors, at in (((0.3, 1, 3), 0), ((0.7, 1, 1.4), 2)):
        for _ in range(n):
            se = rng.choice(errors, k)
            pooled = pool_random(rng.normal(0, tau, k) + rng.normal(0, se), se)
            ends, (a, b) = pooled.fit.interval(), pooled.prediction()
            inside[at : at + 2] += ends.contains(0), a < rng.normal(0, tau) < b
    with capsys.disabled():
        print(
            f"\n{k} texts, tau {tau}: mean {inside[0] / n:.3f}, next {inside[1] / n:.3f}; errors within a factor of 2: {inside[2] / n:.3f}, {inside[3] / n:.3f}"
        )
    assert (inside[[0, 2]] / n > (0.90, 0.93)).all()
    assert (
        inside[[1, 3]] / n > 0.82
    ).all()  # what the page states: short where the spread is small (Partlett and Riley 2017)


@pytest.mark.parametrize("k", [2, 5])
def test_fixed_weights_cover(k):
    rng, inside = np.random.default_rng(k), 0
    nu, scale, weights = (
        np.array([6, 12, 40, 40, 100][:k]),
        np.array([3, 1, 1, 2, 0.5][:k]),
        np.array([1, 1, 2, 1, 3][:k]),
    )
    for _ in range(3000):
        d = rng.normal(0, scale)
        pooled = pool_fixed(d, scale * np.sqrt(rng.chisquare(nu) / nu), nu, weights)
        holds = pooled.fit.interval().contains(0)
        inside += holds
        assert (pooled.fit.p_value() < 0.05) == (not holds)
    assert abs(inside / 3000 - 0.95) < 0.014


def test_no_change_and_order():
    none = pool_random([0, 0, 0], [0, 0, 0])
    assert (
        none.fit.interval().contains(0)
        and none.fit.interval().width == 0
        and none.prediction() == (0, 0)
        and none.fit.p_value() == 1
    )
    d, se, at = np.array([0.1, 0.3, -0.2, 0.05]), np.array([0.1, 0.2, 0.1, 0.05]), [2, 0, 3, 1]
    a, b = pool_random(d, se), pool_random(d[at], se[at])
    np.testing.assert_allclose(
        [a.fit.estimate, a.fit.standard_error, a.spread],
        [b.fit.estimate, b.fit.standard_error, b.spread],
        rtol=1e-12,
    )
    np.testing.assert_allclose(np.array(a.weights)[at], b.weights, rtol=1e-9)
    np.testing.assert_allclose(
        pool_random(1e6 * d, 1e6 * se).spread, 1e6 * a.spread, rtol=1e-9
    )
