"""How often a word is wrong: claims at the edge of the margin and at zero, sample sizes that give the power they promise."""
import math

import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.pair import pair_arrays
from invar_nb.comparison.verdict import judge
from invar_nb.statistics.planning import n_for_power
from test_comparison import PERPLEXITY

LAWS = {  # mean 0, variance 1, and whether they are symmetric
    "normal": (lambda rng, n: rng.normal(size=n), True), "laplace": (lambda rng, n: rng.laplace(size=n) / math.sqrt(2), True),
    "t3": (lambda rng, n: rng.standard_t(3, n) / math.sqrt(3), True),
    "mixture": (lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 0.9, 1, 5) / math.sqrt(3.4), True),
    "gamma": (lambda rng, n: rng.gamma(1, 1, n) - 1, False),
    "lognormal": (lambda rng, n: (np.exp(0.8 * rng.normal(size=n)) - math.exp(0.32)) / math.sqrt((math.exp(0.64) - 1) * math.exp(0.64)), False)}
SKEWED_SIGNS = {name: (1, -1) if not symmetric else (1,) for name, (_, symmetric) in LAWS.items()}


def verdicts(law, *, centre, sd, n, trials, seed, sign=1, units="auto", margin=0.02):
    "Verdicts on simulated pairs of n windows whose differences have this mean, standard deviation and law."
    rng, draw = np.random.default_rng(seed), LAWS[law][0]
    for _ in range(trials):
        loss = np.full(n, 90.0) + rng.random(n)
        data = pair_arrays(loss, loss + centre + sign * sd * draw(rng, n), np.full(n, 100))
        yield judge(compare(data, metrics=[PERPLEXITY], units=units), margin=margin)


def rates(law, trials, **how):
    found = list(verdicts(law, trials=trials, **how))
    return {"equivalent": np.mean([v.claim == "equivalent" for v in found]), "beyond": np.mean([v.beyond_margin for v in found]),
            "changed": np.mean([v.claim in ("improved", "regressed") for v in found])}


def promised(law, trials, n, units):
    "Each word at its edge; skewed laws in both directions."
    limit, both = (0.04, 0.06) if LAWS[law][1] else (0.08, 0.085)
    noise = lambda p: 3 * math.sqrt(p * (1 - p) / trials)
    for sign in SKEWED_SIGNS[law]:
        sd = 0.012 * math.sqrt(n) / 1.96 / 1.2                    # the interval fits into the margin
        edge = rates(law, trials, centre=0.02, sd=sd, n=n, seed=5, sign=sign, units=units)
        zero = rates(law, trials, centre=0.0, sd=sd, n=n, seed=6, sign=sign, units=units, margin=0.0)
        assert edge["equivalent"] <= limit + noise(limit) and edge["beyond"] <= limit + noise(limit), (law, sign, n, edge)
        assert zero["changed"] <= both + noise(both), (law, sign, n, zero)


@pytest.mark.parametrize("law", ["normal", "gamma"])
def test_words_are_wrong_as_rarely_as_promised(law):
    promised(law, trials=400, n=60, units="windows")


@pytest.mark.slow
@pytest.mark.parametrize("units", ["windows", "serial"])
@pytest.mark.parametrize("n", [60, 180, 600])
@pytest.mark.parametrize("law", LAWS)
def test_words_in_every_law(law, n, units):
    promised(law, trials=2000, n=n, units=units)


@pytest.mark.parametrize("centre, margin", [(0.03, 0.02), (0.05, 0.02), (0.02, 0.02)])
def test_n_for_power_gives_the_power(centre, margin):
    "D known, |D| >= margin: the claim comes in .75 to .85 of simulations."
    sd, trials = 0.1, 600
    n = n_for_power(sd, centre, margin)
    found = np.mean([v.claim == "regressed" for v in verdicts("normal", centre=centre, sd=sd, n=n, trials=trials, seed=1, units="windows", margin=margin)])
    spread = 3 * math.sqrt(0.8 * 0.2 / trials)
    assert 0.75 - spread < found < 0.85 + spread, (n, found)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "laplace", "t3", "gamma"])
@pytest.mark.parametrize("centre, margin", [(0.03, 0.02), (0.05, 0.02), (0.0, 0.02), (0.01, 0.02)])
def test_power_in_other_cases(law, centre, margin, capsys):
    sd, trials = 0.1, 2000
    n = n_for_power(sd, centre, margin)
    word = "regressed" if centre >= margin else "equivalent"
    found = np.mean([v.claim == word for v in verdicts(law, centre=centre, sd=sd, n=n, trials=trials, seed=1, units="windows", margin=margin)])
    with capsys.disabled(): print(f"\npower, {law}, D {centre}, margin {margin}: n {n}, {word} in {found:.3f}")
    if law == "normal" or LAWS[law][1] and n >= 60: assert 0.75 < found < 0.85  # page planning promises no more
