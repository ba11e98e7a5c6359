"""The exact bootstrap against truth that shares no code with it: every ordered resample, and two million drawn ones."""
import math

import numpy as np
import pytest
from scipy.special import ndtri

from invar_nb.statistics.bca import acceleration, bca_levels, empirical_influence, leave_one_out
from invar_nb.statistics.bootstrap import BootstrapPlan, tail_levels
from invar_nb.statistics.atoms import Atoms, _draw, _list_resamples
from invar_nb.statistics.exact import Inversion, bootstrap_analysis, bootstrap_interval, exact_distribution
from invar_nb.statistics.weighted import effective_sample_size

WORLDS = ("normal", "gamma", "t3", "lattice", "decimals", "lattice-uneven", "outlier", "uneven")
RULES = ("windows", "tokens")


def world(name, n, seed):
    rng = np.random.default_rng(seed)
    steady, uneven = np.full(n, 128), np.ceil(rng.lognormal(4, 1, n)).astype(int)
    outlier = rng.normal(0, 0.05, n)
    outlier[0] = 3.0
    return {
        "normal": (rng.normal(0.02, 0.05, n), steady),
        "gamma": (rng.gamma(1.0, 0.05, n), steady),
        "t3": (0.05 * rng.standard_t(3, n), steady),
        "lattice": (0.1 * rng.integers(-1, 2, n), steady),
        "decimals": (np.round(rng.normal(0, 0.1, n), 2), steady),
        "lattice-uneven": (0.1 * rng.integers(-1, 2, n), uneven),
        "outlier": (outlier, steady),
        "uneven": (rng.normal(0.02, 0.05, n), uneven),
    }[name]


def every_resample(delta, tokens, rule):
    "(T*, probability) of all n^n ordered resamples."
    n = len(delta)
    index = np.indices((n,) * n, dtype=np.int8).reshape(n, -1)
    if rule == "windows":
        top, bottom = np.zeros(index.shape[1]), np.zeros(index.shape[1])
        for row in index: top += (tokens * delta)[row]; bottom += tokens[row]
        return top / bottom, np.full(len(top), float(n) ** -n)
    mean, weight = np.zeros(index.shape[1]), np.ones(index.shape[1])
    for row in index: mean += delta[row] / n; weight *= (tokens / tokens.sum())[row]
    return mean, weight


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("n", [2, 3, 5, 7, pytest.param(8, marks=pytest.mark.slow)])
def test_distribution_function_equals_the_count_of_every_resample(n, name, rule):
    delta, tokens = world(name, n, seed=n)
    if np.ptp(delta) == 0: delta = delta + 0.1 * (np.arange(n) == 0)
    value, weight = every_resample(delta, tokens, rule)
    tie = 1e-12 * np.abs(delta).max()
    exact = exact_distribution(delta, tokens, resample=rule)
    forced = Inversion(_draw(delta, tokens, rule))
    for x in (float(tokens @ delta) / tokens.sum(), 0.0, delta[0], exact.quantile(0.1), exact.quantile(0.8), np.median(delta) + 1e-4):
        truth = weight[value < x - tie].sum() + weight[np.abs(value - x) <= tie].sum() / 2
        assert abs(exact.below(x) - truth) < 1e-9
        assert abs(forced.below(x) - truth) <= forced.below_error(x) + 1e-12


def drawn_replicates(delta, tokens, rule, replicates, seed):
    rng, n, parts = np.random.default_rng(seed), len(delta), []
    while replicates > 0:
        size = min(replicates, max(1, (1 << 21) // n))
        if rule == "windows":
            index = rng.integers(0, n, (size, n))
            parts.append((tokens * delta)[index].sum(axis=1) / tokens[index].sum(axis=1))
        else:
            index = np.searchsorted(np.cumsum(tokens), rng.integers(0, tokens.sum(), (size, n)), side="right")
            parts.append(delta[index].mean(axis=1))
        replicates -= size
    return np.concatenate(parts)


def check_endpoints(n, name, rule, replicates):
    """Endpoints of every method within three Monte Carlo standard deviations.

    A drawn endpoint is the drawn quantile at a drawn level: its level is off by the empirical process at p and, for BCa, by dp/dG times
    the one at G. The exact quantiles at p -+ 3 sd bracket it, whatever the distribution, atoms included."""
    delta, tokens = world(name, n, seed=1000 + n)
    exact = exact_distribution(delta, tokens, resample=rule)
    sample = drawn_replicates(delta, tokens, rule, replicates, seed=n)
    estimate = float(tokens @ delta) / tokens.sum()
    tie = 1e-11 * np.abs(delta).max()
    g, g_drawn = exact.below(estimate), (np.mean(sample < estimate - tie) + np.mean(sample <= estimate + tie)) / 2
    assert abs(g - g_drawn) <= 3 * math.sqrt(g * (1 - g) / replicates)

    left = leave_one_out(delta, tokens)
    a = acceleration(empirical_influence(delta, tokens) if rule == "windows" else left.mean() - left)
    levels = [(p, p, 0.0) for method in ("percentile", "expanded") for p in tail_levels(method, 0.95, n=n, n_eff=effective_sample_size(tokens))]
    step = 1e-5
    for end in (0, 1):
        at, up, down, drawn = (bca_levels(0.95, float(ndtri(v)), a)[end] for v in (g, g + step, g - step, g_drawn))
        levels.append((at, drawn, (up - down) / (2 * step)))
    for p, p_drawn, slope in levels:
        variance = p * (1 - p) + slope**2 * g * (1 - g) - 2 * slope * (min(p, g) - p * g)
        width = 3 * math.sqrt(max(variance, 0.0) / replicates)
        endpoint = np.quantile(sample, p_drawn)
        low, high = (exact.quantile(min(max(level, 0.0), 1.0)) for level in (p - width, p + width))
        assert low - tie <= endpoint <= high + tie, (p, endpoint, low, high)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("n", [10, 60])
def test_endpoints_against_replicates(n, name, rule):
    check_endpoints(n, name, rule, 50_000)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("n", [5, 10, 20, 60, 180])
def test_endpoints_against_two_million_replicates(n, name, rule):
    check_endpoints(n, name, rule, 2_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_two_engines_agree_where_lists_are_just_possible(name):
    "n = 12 and 13 have 1.4 and 5.2 million multisets: too long to list in use, possible once."
    for n in (12, 13):
        delta, tokens = world(name, n, seed=n)
        draw = _draw(delta, tokens, "windows")
        listed, forced = Atoms("enumeration", draw, *_list_resamples(draw)), Inversion(draw)
        for x in np.quantile(delta, [0.2, 0.4, 0.5, 0.6, 0.8]):
            assert abs(listed.below(x) - forced.below(x)) <= forced.below_error(x) + 1e-12
        for p in (0.025, 0.3, 0.975):
            assert abs(listed.quantile(p) - forced.quantile(p)) <= forced.quantile_error(p) + 1e-12


@pytest.mark.parametrize("others, last", [(64, 16), (100, 99), (7, 300)])
def test_lattice_with_one_odd_window_is_not_mistaken_for_smooth(others, last):
    """All windows of one length but the last, deltas in tenths: |phi|^n dies, then revives, and no single lattice holds the sums.

    The referee splits by k, how often the odd window is drawn: k is binomial, the other draws convolve on the lattice of tenths."""
    n, rng = 60, np.random.default_rng(1)
    tenths = np.round(1.5 * rng.standard_normal(n)).astype(int)
    tokens = np.r_[np.full(n - 1, others), last]
    law = exact_distribution(tenths / 10, tokens)
    assert law.engine == "inversion"
    lowest = tenths[:-1].min()
    one = np.bincount(tenths[:-1] - lowest) / (n - 1)
    sums = [np.ones(1)]
    for _ in range(n): sums.append(np.convolve(sums[-1], one))
    value, weight = [], []
    for k in range(n + 1):
        total = (lowest * (n - k) + np.arange(len(sums[n - k]))) / 10
        value.append((others * total + last * k * tenths[-1] / 10) / (others * (n - k) + last * k))
        weight.append(math.comb(n, k) * (1 / n) ** k * (1 - 1 / n) ** (n - k) * sums[n - k])
    value, weight = np.concatenate(value), np.concatenate(weight)
    estimate = float(tokens @ tenths) / tokens.sum() / 10
    errors = []
    for x in np.r_[estimate, estimate + np.linspace(-0.05, 0.05, 23)]:
        truth = weight[value < x - 1e-12].sum() + weight[np.abs(value - x) <= 1e-12].sum() / 2
        errors.append(abs(law.below(x) - truth))
        assert errors[-1] <= law.below_error(x) + 1e-12
    assert max(errors) < 2e-3  # the smooth reading of these data is off by ten times as much
    for p in (0.025, 0.5, 0.975):
        x, slack = law.quantile(p), law.quantile_error(p)
        assert weight[value < x - slack].sum() <= p <= weight[value <= x + slack].sum()


@pytest.mark.parametrize("rule", RULES)
def test_lattice_is_found_and_convolved(rule):
    "Deltas with two decimals on windows of one length: the referee convolves sixty times, one draw after the other."
    delta, tokens = world("decimals", 60, seed=5)
    law = exact_distribution(delta, tokens, resample=rule)
    assert law.engine == "convolution"
    hundredths = np.round(100 * delta).astype(int)
    one, sums = np.bincount(hundredths - hundredths.min()) / 60, np.ones(1)
    for _ in range(60): sums = np.convolve(sums, one)
    value = (60 * hundredths.min() + np.arange(len(sums))) / 6000
    for x in np.r_[delta.mean(), np.linspace(-0.04, 0.04, 9)]:
        assert abs(law.below(x) - sums[value < x - 1e-12].sum() - sums[np.abs(value - x) <= 1e-12].sum() / 2) < 1e-12
    for p in (0.025, 0.3, 0.975): assert abs(law.quantile(p) - value[np.searchsorted(np.cumsum(sums), p)]) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_quantile_inverts_the_distribution_function(rule):
    delta, tokens = world("uneven", 180, seed=2)
    law = exact_distribution(delta, tokens, resample=rule)
    for p in (1e-6, 0.025, 0.5, 0.9, 1 - 1e-6): assert abs(law.below(law.quantile(p)) - p) < 1e-12 + 1e-9 * p * (1 - p)
    np.testing.assert_allclose([law.quantile(0), law.quantile(1)], [delta.min(), delta.max()], rtol=1e-14)


@pytest.mark.parametrize("deltas", [[0.25, 0.5, 0.75], [0.1, 0.4], [-1.0, -2.0], [0.01, 0.02, 0.03, 0.04]])
def test_symmetric_deltas_of_one_sign_have_a_p_value(deltas):
    "Acceleration 0 and F(0) = 0: the level that reaches 0 does not exist, and n signs prove 2^(1-n) and no more."
    interval, p = bootstrap_analysis(deltas, [100] * len(deltas), BootstrapPlan())
    assert p == 2.0 ** (1 - len(deltas)) and min(deltas) <= interval.low <= interval.high <= max(deltas)


@pytest.mark.parametrize("n, tokens", [(60, 10**5), (60, 10**6), (12, 2**40), (30, 2**40)])
def test_one_window_with_nearly_all_tokens_comes_to_an_end(n, tokens):
    rng = np.random.default_rng(7)
    for _ in range(3):
        delta, counts = rng.normal(0, 0.02, n), np.r_[tokens, np.ones(n - 1, int)]
        got = bootstrap_interval(delta, counts)
        sample = drawn_replicates(delta, counts, "windows", 20_000, seed=1)
        assert sample.min() - 1e-12 <= got.low <= got.high <= sample.max() + 1e-12 and np.isfinite(got.endpoint_error).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n, large", [(87, 9), (12, 5), (60, 59), pytest.param(513, 256, marks=pytest.mark.slow)])
def test_several_windows_that_dwarf_the_others_come_to_an_end(n, large, rule):
    "Splitting by one large window after the other would take exponentially many clumps."
    rng = np.random.default_rng(n)
    delta, tokens = np.r_[rng.normal(1, 0.3, large), rng.normal(0, 1e-6, n - large)], np.ceil(rng.lognormal(4, 1, n)).astype(int)
    got = bootstrap_interval(delta, tokens, resample=rule, method="percentile")
    sample = drawn_replicates(delta, tokens, rule, 50_000, seed=2)
    for end, error, p in ((got.low, got.endpoint_error[0], 0.025), (got.high, got.endpoint_error[1], 0.975)):
        noise = 5 * math.sqrt(p * (1 - p) / sample.size)
        assert np.mean(sample < end - error) <= p + noise and np.mean(sample <= end + error) >= p - noise


@pytest.mark.parametrize("unit", [1e-200, 1e-300, 1e200])
def test_a_tiny_or_huge_unit_changes_nothing(unit):
    delta, tokens = world("uneven", 60, seed=4)
    base, scaled = bootstrap_interval(delta, tokens), bootstrap_interval(unit * delta, tokens)
    np.testing.assert_allclose([scaled.low / unit, scaled.high / unit], [base.low, base.high], rtol=1e-9)


@pytest.mark.parametrize("scatter", [1e-4, 1e-7])
@pytest.mark.parametrize("n", [20, 60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_where_one_window_dwarfs_the_others_the_law_is_inverted_clump_by_clump(n, scatter):
    "One broken window of 3.5 nats over a small scatter: the referee splits by how often that window is drawn, in the middle of the first clump."
    for seed in range(3):
        rng = np.random.default_rng(seed)
        delta, R = np.r_[3.5, rng.normal(scatter / 5, scatter, n - 1)], min(200_000, 400_000_000 // n // 20)
        law = exact_distribution(delta, np.full(n, 10))
        assert law.engine == "inversion"
        never = np.concatenate([delta[rng.integers(1, n, (R // 20, n))].sum(axis=1) for _ in range(20)])
        x = float(np.median(never[:R // 2])) / n
        truth = (1 - 1 / n) ** n * np.mean(never <= n * x)  # drawn once or more, the mean is far above
        assert abs(law.below(x) - truth) < 4 * math.sqrt(truth * (1 - truth) / R) and law.below_error(x) < 1e-4
        got = bootstrap_interval(delta, np.full(n, 10))
        assert got.engine == "inversion" and max(got.endpoint_error) < 1e-3 * got.width


def test_p_value_without_spread_is_the_sign_flip_test():
    "n equal deltas: of the 2^n sign patterns two are as extreme, so p = 2^(1-n); one pair proves nothing."
    plan = BootstrapPlan()
    assert bootstrap_analysis([0.3], [5], plan)[1] is None
    assert [bootstrap_analysis([0.3] * n, [5] * n, plan)[1] for n in (2, 3, 9)] == [0.5, 0.25, 2.0**-8]
    assert bootstrap_analysis([0.0] * 9, [5] * 9, plan)[1] == 1.0


def test_seeded_replicates_are_the_contract_of_the_source():
    delta, tokens = world("uneven", 60, seed=3)
    once, again = (bootstrap_interval(delta, tokens, replicates=1200, seed=5, resample="tokens") for _ in range(2))
    other = bootstrap_interval(delta, tokens, replicates=1200, seed=6, resample="tokens")
    assert once == again != other and once.engine == "monte_carlo"
    exact = bootstrap_interval(delta, tokens, resample="tokens")
    assert abs(once.low - exact.low) < 4 * once.endpoint_error[0] and abs(once.high - exact.high) < 4 * once.endpoint_error[1]


@pytest.mark.parametrize("n", [19, 180, 3000])
def test_the_answer_forgets_order_unit_and_sign(n):
    delta, tokens = world("uneven", n, seed=n)
    base = bootstrap_interval(delta, tokens)
    shuffle = np.random.default_rng(0).permutation(n)
    assert bootstrap_interval(delta[shuffle], tokens[shuffle]) == base
    slack = 2 * max(base.endpoint_error)
    mirrored, scaled = bootstrap_interval(-delta, tokens), bootstrap_interval(1e-6 * delta, tokens)
    np.testing.assert_allclose([-mirrored.high, -mirrored.low], [base.low, base.high], atol=slack, rtol=0)
    np.testing.assert_allclose([scaled.low, scaled.high], [1e-6 * base.low, 1e-6 * base.high], atol=1e-6 * slack, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_shifting_every_delta_shifts_the_interval(rule):
    delta, tokens = world("t3", 60, seed=1)
    base, moved = bootstrap_interval(delta, tokens, resample=rule), bootstrap_interval(delta + 2.0, tokens, resample=rule)
    np.testing.assert_allclose([moved.low - 2, moved.high - 2], [base.low, base.high], atol=1e-12, rtol=0)


def stress_set(k):
    "One of 500 sets: n = 9 to 500, nine laws, five kinds of token counts, three levels, both rules."
    rng = np.random.default_rng([17, k])
    n = int(np.exp(rng.uniform(np.log(9), np.log(500))))
    z = rng.normal(size=n)
    delta = [z, rng.standard_t(3, n), rng.gamma(1, size=n), rng.standard_cauchy(n), rng.lognormal(0, 1.5, n), np.round(z, 1), np.where(rng.random(n) < 0.1, 20 * z, z),
             rng.integers(-1, 2, n) + 1e-3 * z * (k % 2), np.sign(z) + 0.02 * rng.normal(size=n)][k % 9]
    tokens = [np.full(n, 128), rng.integers(64, 513, n), np.ceil(100 * rng.lognormal(0, 0.8, n)), np.ceil(100 * rng.lognormal(0, 2, n)), np.r_[np.full(n - 1, 128), 50_000]][k // 9 % 5]
    if np.ptp(delta) == 0: delta[0] += 1
    return 0.05 * delta, tokens.astype(int), (0.9, 0.95, 0.999)[k % 3], RULES[k // 45 % 2]


def directly_inverted(delta, tokens, rule, x, terms=1 << 12):
    "F(x) and |phi|^n at the last terms: every frequency one after the other, by the general power of complex numbers."
    n, p = len(delta), np.full(len(delta), 1 / len(delta)) if rule == "windows" else tokens / tokens.sum()
    y = (delta - x) * (tokens if rule == "windows" else 1)
    centre, spread = n * (p @ y), math.sqrt(n * (p @ (y - p @ y) ** 2))
    half = abs(centre) + 20 * spread + 20 * np.abs(y - p @ y).max()
    total = 0.0
    for k in np.array_split(np.arange(1, 2 * terms, 2), 1 + terms * n // 2**22):
        powers = (np.exp(1j * np.pi / half * np.outer(k, y)) @ p) ** n
        total += float(np.sum(powers.imag / k))
        if np.abs(powers[-32:]).max() < 1e-14: break
    return 0.5 - 2 / np.pi * total, float(np.abs(powers[-512:]).max())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_end_of_500_random_sets_is_outside_its_bound(part):
    """The share below an end -+ its error brackets the level, by 30 000 replicates of every set, and by direct inversion of the smooth ones.

    Smooth: a continuous law, forty windows, no extreme token counts; all of these are proved to 1e-4 of the width."""
    for k in range(part, 500, 10):
        delta, tokens, level, rule = stress_set(k)
        got = bootstrap_interval(delta, tokens, level=level, resample=rule, method="percentile")
        assert got.engine in ("enumeration", "convolution", "inversion")
        smooth = k % 9 in (0, 1, 2) and k // 9 % 5 < 3 and len(delta) >= 40
        assert not smooth or max(got.endpoint_error) <= 1e-4 * got.width, k
        sample, tie = drawn_replicates(delta, tokens, rule, 30_000, seed=k), 1e-12 * np.abs(delta).max()
        for end, error, p in ((got.low, got.endpoint_error[0], (1 - level) / 2), (got.high, got.endpoint_error[1], (1 + level) / 2)):
            noise = 5 * math.sqrt(p * (1 - p) / sample.size)
            assert np.mean(sample < end - error - tie) <= p + noise and np.mean(sample <= end + error + tie) >= p - noise, k
            if not smooth: continue
            (below, last), (above, _) = (directly_inverted(delta, tokens, rule, end + side * error) for side in (-1, 1))
            assert last > 1e-12 or below <= p + 1e-9 and above >= p - 1e-9, k
