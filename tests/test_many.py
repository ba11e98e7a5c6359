"The promise of simultaneous intervals, by simulation: any false alarm among 8 and 20 candidates, one factor or three, three laws, windows and documents."

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from invar_nb import verify
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.ranking import may_be_best
from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import study
from invar_nb.report.report import render
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.simultaneous import Family, fit_family

LAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "gamma": lambda rng, shape: rng.gamma(1, 1, shape) - 1,
}
SHAPES = ("60 windows", "180 windows", "100 documents", "40 documents")
FACTORS = (0.2, 0.5, 0.8, 0.95, "three groups")


def differences(rng, law, n, m, factor):
    "Differences of m candidates that did not change: correlation `factor`, or .8 within three groups."
    noise = lambda k: LAWS[law](rng, (n, k))
    shared, share = (
        (noise(3)[:, np.arange(m) % 3], 0.8)
        if factor == "three groups"
        else (noise(1), factor)
    )
    return math.sqrt(share) * shared + math.sqrt(1 - share) * noise(m)


def table(rng, law, shape, m, factor):
    "(raw p-values, family) of one table; documents of geometric length share a third of the variance within them."
    n = int(shape.split()[0])
    if shape.endswith("documents"):
        lengths = np.minimum(rng.geometric(1 / 8, n), 60)
        codes = np.repeat(np.arange(n), lengths)
        d = math.sqrt(0.3) * differences(rng, law, n, m, factor)[codes] + math.sqrt(
            0.7
        ) * differences(rng, law, codes.size, m, factor)
        weights = np.full(codes.size, 128.0)
        numerators, weights = (
            np.column_stack([np.bincount(codes, d[:, k] * weights, n) for k in range(m)]),
            np.bincount(codes, weights, n),
        )
    else:
        weights = np.round(rng.lognormal(5, 0.4, n))
        numerators = differences(rng, law, n, m, factor) * weights[:, None]
    influence, fits = np.empty((m, n)), []
    for k in range(m):
        fits.append(
            jackknife_ratio(
                np.ascontiguousarray(numerators[:, k]), weights, influence=influence[k]
            )
        )
    return np.array([fit.p_value() for fit in fits]), fit_family(
        influence.T, np.array([fit.nu for fit in fits])
    )


def cell(trials, *how):
    "Rates of a false alarm, (together, Bonferroni, unadjusted), the share of tables with one factor, the rate among them, the mean level used times m / .05."
    rng, found = np.random.default_rng([ord(c) for c in str(how)]), []
    for _ in range(trials):
        p, family = table(rng, *how)
        each = 1 - family.each()
        assert (
            0.05 / p.size <= each <= 0.05 + 1e-12
        )  # widths at most Bonferroni's, at least those of one candidate
        found.append(
            (
                p.min() < each,
                p.min() < 0.05 / p.size,
                p.min() < 0.05,
                family.loadings is not None,
                each * p.size / 0.05,
            )
        )
    a = np.array(found, float)
    fits = a[:, 3] > 0
    return (
        *a[:, :3].mean(0),
        fits.mean(),
        a[fits, 0].mean() if fits.any() else math.nan,
        a[:, 4].mean(),
    )


@pytest.mark.parametrize("m", [2, 7])
def test_order_of_the_candidates_changes_nothing(m):
    rng = np.random.default_rng(m)
    y, p, nu, shuffle = (
        rng.normal(size=(40, m)) + rng.normal(size=(40, 1)),
        np.round(rng.random(m), 1),
        rng.uniform(5, 39, m),
        rng.permutation(m),
    )
    one, two = fit_family(y, nu), fit_family(y[:, shuffle], nu[shuffle])
    assert one.each() == pytest.approx(two.each(), rel=1e-9)
    np.testing.assert_allclose(one.step_down(p)[shuffle], two.step_down(p[shuffle]), rtol=1e-7)
    assert (one.step_down(p) >= p).all() and (
        one.step_down(p)
        <= Family(member=one.member, loadings=None, misfit=1.0, nu=one.nu).step_down(p) + 1e-12
    ).all()


@pytest.mark.slow
def test_false_alarms_in_tables_of_8_and_20():
    """The whole grid, kept for the page. Two standard errors are allowed on either side of the promise. Skewed laws over documents of unequal length
    are shown and not promised: there the far tail of a single interval is too short, and Bonferroni's table errs as often."""
    trials, lines, broken = (
        1000,
        [
            "candidates,law,units,factor,together,bonferroni,unadjusted,one_factor_share,rate_with_one_factor,level_times_m"
        ],
        [],
    )
    slack = lambda p, n: 2 * math.sqrt(p * (1 - p) / n)
    for m, law, shape, factor in product((8, 20), LAWS, SHAPES, FACTORS):
        found = cell(trials, law, shape, m, factor)
        lines.append(",".join([str(m), law, shape, str(factor), *(f"{x:.3f}" for x in found)]))
        print(lines[-1], flush=True)
        excused = law == "gamma" and shape.endswith("documents")
        if found[0] > 0.075 + slack(0.075, trials) and not excused:
            broken.append(lines[-1])
        if found[3] > 0.9 and found[0] < 0.03 - slack(0.03, trials):
            broken.append(lines[-1])
    Path(__file__).parents[1].joinpath("invar_nb/data/many.csv").write_text(
        "\n".join(lines) + "\n"
    )
    assert not broken


def best_cell(trials, law, k, gap, n=60):
    "Shares of tables in which the first of k candidates, the best by `gap` standard errors, is struck out: by the study, and by the rule's text in scipy; candidates that are left."
    rng, found = np.random.default_rng([ord(c) for c in f"best {law} {k} {gap}"]), []
    for trial in range(trials):
        d = 0.01 * differences(rng, law, n, k, 0.8)
        d[:, 1:] += gap * 0.01 * math.sqrt(0.4 / n)
        base = WindowLosses.from_arrays(range(n), [128] * n, rng.gamma(40, 0.08, n))
        arms = {("baseline", ""): base} | {
            (f"c{j}", ""): base.changed(log_loss=base.log_loss + d[:, j]) for j in range(k)
        }
        p = may_be_best(
            study(arms, Rules(metrics=["perplexity"], units="windows")).select(role="contrast")
        )
        better = d[:, [0]] - d[:, 1:]
        cor = np.corrcoef(better, rowvar=False).reshape(k - 1, k - 1)
        t = better.mean(0) / better.std(0, ddof=1) * math.sqrt(n)
        theirs = 1 - stats.multivariate_t(shape=cor, df=n - 1, seed=trial).cdf(
            np.full(k - 1, t.max()), maxpts=2000 * k
        )
        found.append((p["c0"] <= 0.05, theirs <= 0.05, sum(x > 0.05 for x in p.values())))
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    "law, k, gap, trials",
    [
        ("normal", 3, 0, 200),
        *[
            pytest.param(law, k, gap, 1500, marks=pytest.mark.slow)
            for law in LAWS
            for k in (2, 5, 10)
            for gap in (0, 2)
        ],
    ],
)
def test_the_best_is_rarely_struck_out(law, k, gap, trials):
    "Hsu's set of candidates that may be the best: at most .05, and three standard errors, for symmetric laws and skewed ones."
    ours, theirs, left = best_cell(trials, law, k, gap)
    print(
        f"{law}, {k} candidates, {gap} standard errors: struck out {ours:.3f}, by the text {theirs:.3f}; left {left:.2f}"
    )
    assert ours <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials) and abs(
        ours - theirs
    ) < 0.015 + 3 * math.sqrt(0.05 / trials)
    assert 1 <= left <= k


# --- more than 26 candidates: each against the best of the others ---------------------------------------------------------------------
def many(rng, k, law="normal", n=60, effects=0.0):
    "A baseline and k candidates whose changes are independent, and worse by so many nats each."
    base = WindowLosses.from_arrays(range(n), [128] * n, rng.gamma(40, 0.08, n))
    d = effects + 0.01 * LAWS[law](rng, (n, k))
    return {"baseline": base} | {
        f"c{j:02d}": base.changed(log_loss=base.log_loss + d[:, j]) for j in range(k)
    }


@pytest.mark.parametrize(
    "effects",
    [
        0.0,
        np.linspace(0, 0.02, 30),
        np.r_[0, np.full(29, 0.01)],
        np.r_[np.zeros(15), np.full(15, 0.03)],
    ],
    ids=["equal", "ladder", "one best", "two halves"],
)
def test_many_candidates_against_the_best_agree_with_all_pairs(effects, monkeypatch):
    "Of 30 candidates 29 tests, the same numbers as among all 435; what they call apart or not the best, all pairs do, too; the best one has the same p."
    arms = many(np.random.default_rng(8), 30, effects=effects)
    few = study(arms, metrics=["perplexity"])
    with monkeypatch.context() as patch:
        patch.setattr("invar_nb.comparison.ranking.MOST_PAIRWISE", 100)
        every = study(arms, metrics=["perplexity"])
    ours, theirs = (
        {
            frozenset((row.key.candidate, row.key.against)): row
            for row in found.select(role="contrast")
        }
        for found in (few, every)
    )
    assert len(ours) == 29 and len(theirs) == 435 and ours.keys() <= theirs.keys()
    for pair, row in ours.items():
        assert (
            row.value.delta == theirs[pair].value.delta
            and row.value.p_value == theirs[pair].value.p_value
        )
        assert (
            row.adjusted_p >= theirs[pair].adjusted_p - 1e-12
        )  # chosen by its look: never bolder
    p, q = (may_be_best(found.select(role="contrast")) for found in (few, every))
    (best,) = set.intersection(*map(set, ours))
    assert (
        p.keys() == q.keys() == {*arms} - {"baseline"}
        and p[best] == pytest.approx(q[best], rel=1e-9)
        and p[best] > 0.05
    )
    assert all(p[name] >= q[name] - 1e-12 for name in p)
    apart = {name for name in p if p[name] <= 0.05}
    assert (
        (len(apart) >= 15)
        if np.ptp(effects) == 0.02
        else not apart
        if np.ptp(effects) == 0
        else len(apart) >= 14
    ), sorted(apart)
    report = few.report()
    text = render(report)["report.md"]
    assert "compared with the best of the others alone" in text
    table = [
        line
        for line in text.splitlines()
        if line.startswith("| c") and line.rstrip("| ").split()[-1] in ("yes", "no")
    ]
    assert (
        len(table) == 30
        and {line.split("|")[1].strip() for line in table if line.rstrip("| ").endswith("no")}
        == apart
    )
    assert "asked by itself" in text


def test_copies_among_many_candidates_are_not_told_apart(tmp_path):
    "40 candidates that are one model: nothing is distinguished, each may be the best; the report verifies. One that is worse is struck out alone."
    base = many(np.random.default_rng(9), 1)
    arms = {"baseline": base["baseline"]} | {
        f"c{j:02d}": base["c00"].changed(model=f"c{j:02d}") for j in range(40)
    }
    found = study(arms, metrics=["perplexity"])
    assert min(may_be_best(found.select(role="contrast")).values()) >= 0.5 and not any(
        row.adjusted_p is not None and row.adjusted_p <= 0.05
        for row in found.select(role="contrast")
    )
    found.report().save(tmp_path / "r")
    assert verify(tmp_path / "r")
    noise = 0.01 * np.random.default_rng(1).standard_normal(60)
    p = may_be_best(
        study(
            arms | {"c17": arms["c17"].changed(log_loss=arms["c17"].log_loss + 0.02 + noise)},
            metrics=["perplexity"],
        ).select(role="contrast")
    )
    assert [name for name, x in p.items() if x <= 0.05] == ["c17"]


def wrongly_apart(law, k, studies):
    "Of studies of k equal candidates: share in which some two are distinguished; share of candidates that are struck out, with its standard error; share of studies with any."
    rng, found = np.random.default_rng([ord(c) for c in f"many {law} {k}"]), []
    for _ in range(studies):
        rows = study(many(rng, k, law), metrics=["perplexity"]).select(role="contrast")
        struck = [p <= 0.05 for p in may_be_best(rows).values()]
        found.append(
            (
                any(row.adjusted_p is not None and row.adjusted_p <= 0.05 for row in rows),
                np.mean(struck),
                any(struck),
            )
        )
    a = np.array(found, float)
    return (
        a[:, 0].mean(),
        a[:, 1].mean(),
        a[:, 1].std(ddof=1) / math.sqrt(studies),
        a[:, 2].mean(),
    )


@pytest.mark.parametrize(
    "law, k, studies",
    [
        ("normal", 4, 60),
        ("gamma", 4, 60),
        ("normal", 30, 30),
        *[
            pytest.param(law, k, 400, marks=pytest.mark.slow)
            for law in ("normal", "gamma")
            for k in (4, 20, 40)
        ],
    ],
)
def test_equal_candidates_are_rarely_told_apart(law, k, studies):
    """In at most 5 of 100 studies any two are distinguished, and each of them is struck out of those that may be the best in at most 5 of 100. Each is asked by itself, which holds
    for the one that truly is the best (Hsu 1996): that some candidate of many equal ones is struck out happens more often, and the report says so."""
    apart, struck, error, some = wrongly_apart(law, k, studies)
    print(
        f"{law}, {k} candidates: any two apart {apart:.3f}, struck out {struck:.4f} (se {error:.4f}), any struck out {some:.3f}"
    )
    assert apart <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / studies) and struck <= 0.05 + 2 * error
