"""Two proportions against rationals, listed tables, searched likelihoods, published tables, statsmodels and scipy.stats."""
import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.statistics.proportion import wilson_interval
from invar_nb.statistics.two_proportions import (_no_heavier, _survives, discordant_pairs, fisher_exact, mcnemar, newcombe_interval,
                                                 overlapping_intervals)

stats = pytest.importorskip("scipy.stats")


def ends(interval): return [interval.low, interval.high]


def test_newcombes_table():
    "Newcombe (1998), Statistics in Medicine 17:873, table II, method 10."
    for counts, low, high in (((48, 80, 56, 70), 0.0524, 0.3339), ((3, 10, 9, 10), 0.1705, 0.8090), ((2, 7, 6, 7), 0.0582, 0.8062),
                              ((0, 29, 5, 56), -0.0381, 0.1926), ((0, 20, 0, 10), -0.1611, 0.2775), ((0, 10, 10, 10), 0.6075, 1.0)):
        np.testing.assert_allclose(ends(newcombe_interval(*counts)), [low, high], rtol=0, atol=5.1e-5)


@pytest.mark.parametrize("level", [0.1, 0.95, 0.9999])
def test_newcombe_agrees_with_statsmodels(level):
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for n, m in ((1, 1), (5, 9), (60, 60), (7, 500)):
        for x, y in product(sorted({0, 1, n // 2, n}), sorted({0, 1, m // 2, m})):
            theirs = proportion.confint_proportions_2indep(y, m, x, n, compare="diff", method="newcomb", alpha=1 - level)
            np.testing.assert_allclose(ends(newcombe_interval(x, n, y, m, level=level)), theirs, rtol=0, atol=1e-12)


def test_newcombe_turns_round_and_stays_inside():
    for xa, na, xb, nb in product((0, 3, 8), (8, 40), (0, 2, 5), (5, 300)):
        there, back = newcombe_interval(xa, na, xb, nb), newcombe_interval(xb, nb, xa, na)
        np.testing.assert_allclose(ends(back), [-there.high, -there.low], rtol=0, atol=4e-16)
        assert -1 <= there.low <= xb / nb - xa / na <= there.high <= 1


def rejection_rate(rule, pa, pb, n=60):
    counts = np.arange(n + 1)
    rejected = np.array([[rule(int(a), int(b)) for b in counts] for a in counts])
    return float(stats.binom.pmf(counts, n, pa) @ rejected @ stats.binom.pmf(counts, n, pb))


def test_overlap_is_quiet_by_enumeration():
    apart = lambda a, b: not overlapping_intervals(a, 60, b, 60)
    clear = lambda a, b: not newcombe_interval(a, 60, b, 60).contains(0.0)
    known = {(0.8, 0.8): (0.0052, 0.046), (0.8, 0.9): (0.095, 0.323), (0.8, 0.95): (0.384, 0.716), (0.7, 0.9): (0.496, 0.794)}
    for (pa, pb), (overlap, newcombe) in known.items():
        assert abs(rejection_rate(apart, pa, pb) - overlap) < 5e-4
        assert abs(rejection_rate(clear, pa, pb) - newcombe) < 5e-4
    assert overlapping_intervals(48, 60, 57, 60) and not overlapping_intervals(48, 60, 58, 60) and not overlapping_intervals(58, 60, 48, 60)
    assert overlapping_intervals(48, 60, 48, 60) and overlapping_intervals(48, 60, 58, 60, level=0.99)


def fisher_by_listing(xa, na, xb, nb):
    "All tables with these margins, in integers."
    k = xa + xb
    weights = {i: math.comb(na, i) * math.comb(nb, k - i) for i in range(max(0, k - nb), min(na, k) + 1)}
    assert sum(weights.values()) == math.comb(na + nb, k)
    return float(Fraction(sum(w for w in weights.values() if w <= weights[xa]), sum(weights.values())))


def test_fisher_is_the_listed_sum_for_small_arms():
    for na, nb in product(range(1, 13), repeat=2):
        for xa, xb in product(range(na + 1), range(nb + 1)): assert fisher_exact(xa, na, xb, nb) == fisher_by_listing(xa, na, xb, nb), (xa, na, xb, nb)


def test_fisher_is_the_listed_sum_for_large_arms():
    rng, cases = np.random.default_rng(5), [(51, 151, 61, 194), (1000, 2000, 1000, 2000), (950, 2000, 1050, 2000), (0, 900, 900, 900), (899, 900, 1, 900), (600, 3000, 40, 200), (0, 1, 1500, 3000)]
    for _ in range(60):
        na, nb = (int(10 ** rng.uniform(0, 3)) for _ in range(2))
        cases.append((int(rng.binomial(na, rng.uniform())), na, int(rng.binomial(nb, rng.uniform())), nb))
    for case in cases: assert fisher_exact(*case) == fisher_by_listing(*case), case


def test_fisher_compares_weights_as_integers():
    "Two tables of nearly one weight, 9e-8 apart: a tolerance of 1e-7 takes them for one."
    weights = [math.comb(151, i) * math.comb(194, 112 - i) for i in range(113)]
    assert 0 < weights[47] / weights[51] - 1 < 1e-7
    assert fisher_exact(51, 151, 61, 194) + 0.08 < fisher_exact(47, 151, 65, 194)
    for half in (7, 1000, 10**5, 10**6):  # equal arms: each table has a twin of the same weight
        assert fisher_exact(half - 3, 2 * half, half + 3, 2 * half) == fisher_exact(half + 3, 2 * half, half - 3, 2 * half) < 1 == fisher_exact(half, 2 * half, half, 2 * half)


def test_weights_are_compared_exactly():
    for na, nb in product((1, 3, 6), (2, 5, 7)):
        for k in range(na + nb + 1):
            tables = range(max(0, k - nb), min(na, k) + 1)
            for i, j in product(tables, repeat=2):
                assert _no_heavier(j, i, na, nb, k) == (math.comb(na, j) * math.comb(nb, k - j) <= math.comb(na, i) * math.comb(nb, k - i))


def test_fisher_agrees_with_scipy():
    rng = np.random.default_rng(6)
    for _ in range(300):
        na, nb = (int(v) for v in rng.integers(1, 500, 2))
        xa, xb = int(rng.binomial(na, rng.uniform(0.5, 1))), int(rng.binomial(nb, rng.uniform(0.5, 1)))
        np.testing.assert_allclose(fisher_exact(xa, na, xb, nb), stats.fisher_exact([[xa, na - xa], [xb, nb - xb]])[1], rtol=0, atol=1e-12)


def test_fisher_mirrors():
    rng = np.random.default_rng(7)
    for _ in range(200):
        na, nb = (int(10 ** rng.uniform(0, 4)) for _ in range(2))
        xa, xb = int(rng.integers(0, na + 1)), int(rng.integers(0, nb + 1))
        p = fisher_exact(xa, na, xb, nb)
        assert 0 <= p <= 1 and p == fisher_exact(xb, nb, xa, na) == fisher_exact(na - xa, na, nb - xb, nb)
        assert p == fisher_exact(xa, xa + xb, na - xa, na + nb - xa - xb) if 0 < xa + xb < na + nb else p == 1.0  # rows and columns change places


def fisher_from_the_summit(xa, na, xb, nb):
    "Weights from the heaviest table outwards in decimals of 60 digits, until they are below 1e-50 of it."
    k, weights = xa + xb, {}
    with localcontext() as context:
        context.prec = 60
        summit = (na + 1) * (k + 1) // (na + nb + 2)
        for step in (1, -1):
            i, weight = summit, Decimal(1)
            while weight > Decimal("1e-50"):
                weights[i] = weight
                if step == 1: weight = weight * ((na - i) * (k - i)) / ((i + 1) * (nb - k + i + 1))
                else: weight = weight * (i * (nb - k + i)) / ((na - i + 1) * (k - i + 1))
                i += step
        return float(sum(w for w in weights.values() if w <= weights[xa] * (1 + Decimal("1e-40"))) / sum(weights.values()))


def test_fisher_of_very_many_examples():
    assert fisher_exact(0, 5 * 10**6, 5 * 10**6, 5 * 10**6) == 0.0 and fisher_exact(10**6, 10**6, 9 * 10**6, 9 * 10**6) == 1.0
    for case in ((2_499_000, 5_000_000, 2_501_000, 5_000_000), (2_499_500, 5_000_000, 2_500_900, 5_000_000), (8010, 10_000, 792_000, 990_000), (40_300, 50_000, 40_000, 50_000), (44, 50, 99_000, 99_950)):
        np.testing.assert_allclose(fisher_exact(*case), fisher_from_the_summit(*case), rtol=3e-16)


@pytest.mark.parametrize("n, m", [(20, 280), (30, 30)])
def test_fisher_keeps_its_promise(n, m):
    called = np.array([[fisher_exact(a, n, b, m) <= 0.05 for b in range(m + 1)] for a in range(n + 1)])
    for p in (0.02, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97):
        assert stats.binom.pmf(np.arange(n + 1), n, p) @ called @ stats.binom.pmf(np.arange(m + 1), m, p) <= 0.05


@pytest.mark.parametrize("args", [(9, 5, 1, 2), (1, 5, 3, 2), (-1, 5, 1, 2), (1, 0, 1, 2), (1.5, 5, 1, 2), (True, 5, 1, 2), (None, 5, 1, 2), (float("nan"), 5, 1, 2), (1, 10**7, 1, 1)])
def test_fisher_refuses(args):
    with pytest.raises(ContractError, match="^fisher_exact: [^\n]*$"): fisher_exact(*args)


def test_mcnemar_is_the_sum_of_coin_tosses():
    for a, b in [*product(range(40), repeat=2), (490, 510), (3, 997), (500, 501), (1400, 1600), (4900, 5100), (5000, 5001), (5000, 5300), (30_000, 31_000), (999, 1300), (1000, 1300), (1001, 1300), (999, 1000), (1000, 1001), (1, 1020)]:
        m, few = a + b, min(a, b)
        found = mcnemar(a, b)
        assert 0 < found.p_value <= 1 and 0 < found.mid_p <= found.p_value and (found.p_value, found.mid_p) == (mcnemar(b, a).p_value, mcnemar(b, a).mid_p)
        term, total, last = 1, 0, 0
        for i in range(few + 1):
            total, last = total + term, term
            term = term * (m - i) // (i + 1)
        truth = min(Fraction(1), Fraction(2 * total, 2**m)), Fraction(2 * total - last, 2**m)
        np.testing.assert_allclose([found.p_value, found.mid_p], [float(p) for p in truth], rtol=0 if m <= 1000 else 1e-12)


def test_mcnemar_of_very_many_examples():
    assert mcnemar(10**9, 10**9).p_value == mcnemar(2 * 10**11, 2 * 10**11).mid_p == 1.0 and mcnemar(3, 10**6).p_value == 0.0
    for a, b in ((10**8, 10**8 + 30_000), (10**10, 10**10 + 200_000)):  # the normal limit with continuity correction
        limit = 2 * stats.norm.sf((b - a - 1) / math.sqrt(a + b))
        np.testing.assert_allclose(mcnemar(a, b).p_value, limit, rtol=1e-5)


def test_mcnemar_agrees_with_statsmodels():
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    for a, b in product((0, 1, 2, 5, 13, 40, 111), repeat=2):
        if a + b: np.testing.assert_allclose(mcnemar(a, b).p_value, tables.mcnemar([[7, a], [b, 3]], exact=True).pvalue, rtol=0, atol=1e-12)


def test_paired_power_is_what_the_page_says():
    "Every table of 60 examples in rationals: 0.8 against 0.9, two percent of the examples broken."
    a, b, n = Fraction(2, 100), Fraction(12, 100), 60
    power = {"p_value": Fraction(0), "mid_p": Fraction(0)}
    for i in range(n + 1):
        for j in range(n + 1 - i):
            found = mcnemar(i, j)
            for name in power:
                if getattr(found, name) <= 0.05: power[name] += math.comb(n, i) * math.comb(n - i, j) * a**i * b**j * (1 - a - b) ** (n - i - j)
    np.testing.assert_allclose([float(power["p_value"]), float(power["mid_p"])], [0.4255, 0.5452], rtol=0, atol=5e-5)


def score_by_search(delta, a, b, n):
    from scipy.optimize import minimize_scalar
    low, high = max(0.0, -delta), (1 - delta) / 2

    def cost(q):
        return -(b * math.log(q + delta) + a * math.log(q) + (n - a - b) * math.log(1 - 2 * q - delta))
    q = minimize_scalar(cost, bounds=(low + 1e-13, high - 1e-13), method="bounded", options={"xatol": 1e-13, "maxiter": 5000}).x
    return (b - a - n * delta) / math.sqrt(n * (2 * q + delta - delta**2))


@pytest.mark.parametrize("counts", [(2, 8, 60), (9, 1, 60), (1, 0, 44), (0, 6, 60), (4, 4, 9), (30, 31, 70), (3, 900, 1000), (50, 40, 10_000)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_tango_inverts_the_paired_score_test(counts, level):
    a, b, n = counts
    found, z = mcnemar(a, b, trials=n, level=level), stats.norm.isf((1 - level) / 2)
    assert found.difference == (b - a) / n and -1 <= found.interval.low <= found.difference <= found.interval.high <= 1
    np.testing.assert_allclose([score_by_search(end, a, b, n) for end in ends(found.interval)], [z, -z], rtol=1e-4)
    grid = np.linspace(-0.9999, 0.9999, 4001)
    kept = np.array([_survives(float(delta), a, b, n, float(z)) for delta in grid])
    assert (kept == ((found.interval.low <= grid) & (grid <= found.interval.high))).all()  # one interval, no islands


def test_tango_at_the_ends():
    for n in (1, 2, 60, 10**6, 2**40):
        np.testing.assert_allclose(ends(mcnemar(0, 0, trials=n).interval), [-wilson_interval(0, n).high, wilson_interval(0, n).high], rtol=1e-12)
    assert mcnemar(60, 0, trials=60).interval.low == -1.0 and mcnemar(0, 60, trials=60).interval.high == 1.0


def test_reading_follows_the_exact_p():
    for a, b in product(range(30), repeat=2):
        found = mcnemar(a, b, trials=100)
        assert found.significant == (found.p_value <= 0.05)
        if a + b == 0: continue
        word = "not significant" if not found.significant else "B is better" if b > a else "B is worse"
        assert word in found.reading and found.reading.endswith(".") and "\n" not in found.reading
        assert json.loads(json.dumps(found.to_dict()))["p_value"] == found.p_value
    assert mcnemar(0, 0).reading.startswith("The models agree on every example")
    tie = mcnemar(0, 3, level=0.75)
    assert tie.p_value == 0.25 and tie.significant and "1 right under B only, 0" in mcnemar(0, 1).reading


def test_discordant_pairs_counts_one_by_one():
    rng = np.random.default_rng(3)
    for n in (1, 2, 50):
        a, b = rng.integers(0, 2, n), rng.integers(0, 2, n)
        truth = sum(x and not y for x, y in zip(a, b, strict=True)), sum(y and not x for x, y in zip(a, b, strict=True)), n
        forms = (lambda v: v, lambda v: v == 1, lambda v: v.tolist(), lambda v: (v == 1).tolist(), lambda v: tuple(v == 1), lambda v: v.astype(float), lambda v: (v == 1).astype(object))
        for one, other in product(forms, repeat=2): assert discordant_pairs(one(a), other(b)) == truth
    for a, b, error in (([1], [1, 0], PairingError), ([], [], PairingError), ([2], [1], ContractError), ([float("nan")], [1], ContractError),
                        ([[1]], [1], ContractError), ("10", [1, 0], ContractError), ([None], [1], ContractError)):
        with pytest.raises(error, match="discordant_pairs: "): discordant_pairs(a, b)


def test_right_and_wrong_of_every_kind_are_counted_and_gaps_are_named():
    pandas, a, b = pytest.importorskip("pandas"), [True, True, False, True], [True, False, True, False]
    for kind in (list, np.array, lambda v: np.array(v, dtype=object), lambda v: np.array(v, dtype=int), pandas.Series, lambda v: pandas.Series(v, dtype="boolean")):
        assert discordant_pairs(kind(a), kind(b)) == (2, 1, 4)
    test = mcnemar(*discordant_pairs(a, b))  # the number of examples goes along
    assert (test.only_a, test.only_b, test.trials) == (2, 1, 4) and test.interval is not None
    with pytest.raises(ContractError, match="correct_b must be booleans throughout, or 0 and 1 throughout; got <NA> at index 1"):
        discordant_pairs(a, pandas.Series([True, None, True, False], dtype="boolean"))


@pytest.mark.parametrize("call", [lambda: newcombe_interval(1, 2, 3, 2), lambda: newcombe_interval(1, 2, 1, 2, level=1), lambda: overlapping_intervals(3, 2, 1, 2),
                                  lambda: overlapping_intervals(1, 2, 1, 2, level=0), lambda: mcnemar(-1, 2), lambda: mcnemar(1, 2, trials=2), lambda: mcnemar(1, 10**12),
                                  lambda: mcnemar(1, 2, level=0), lambda: mcnemar(1, 2, trials=2**53 + 2)])
def test_bad_counts_are_refused_in_one_line(call):
    with pytest.raises(ContractError, match=r"^(newcombe_interval|overlapping_intervals|mcnemar): [^\n]+; got [^\n]+$") as error: call()
    assert error.value.cure and error.value.culprit


def test_a_column_where_a_count_belongs():
    with pytest.raises(ContractError, match="Count them: discordant_pairs"): mcnemar(np.array([True, False]), np.array([True, False]))
