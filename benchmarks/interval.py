"""What does a confidence interval cost? `python benchmarks/interval.py`

The unit of comparison is named in every line: for few windows the source's loop of 1200 replicates by `rng.choice(n, n, p=t/T)`, for many
windows one weighted mean, `t @ d / t.sum()`. The exact bootstrap is timed against both loops and
against its peers: no figure without the name of its loop."""

import argparse
import statistics
import warnings

import numpy as np
from alternate import alternate, figures, machine, peer, table

from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import jackknife_interval

CALLS = 100  # a closed form is timed in hundreds: one call is shorter than the clock's noise


def draw(n):
    rng = np.random.default_rng(n)
    return rng.standard_t(3, n) * 0.05 + 0.01, rng.integers(64, 1025, n).astype(float)


def choice_loop(d, t, rng, replicates=1200):
    "The source's bootstrap: windows drawn with probability t/T, plain mean of the draws."
    n, p = d.size, t / t.sum()
    return np.quantile(
        [d[rng.choice(n, n, p=p)].mean() for _ in range(replicates)], [0.025, 0.975]
    )


def plain_loop(d, t, rng, replicates=1200):
    "Windows drawn alike, mean by tokens."
    draws = (rng.integers(0, d.size, d.size) for _ in range(replicates))
    return np.quantile([d[i] @ t[i] / t[i].sum() for i in draws], [0.025, 0.975])


def hundred(call):
    return lambda: [call() for _ in range(CALLS)]


def few(n, rounds):
    "Times as fast as the loops, per interval; the median of ratios taken inside one round."
    d, t = draw(n)
    rng = np.random.default_rng(0)
    fast = {
        "jackknife_interval(d, t), serial": (lambda: jackknife_interval(d, t), 500),
        'jackknife_interval(d, t, units="windows")': (
            lambda: jackknife_interval(d, t, units="windows"),
            500,
        ),
        "jackknife_ratio(N, W), no checks": (lambda: jackknife_ratio(t * d, t), "-"),
    }
    seconds = alternate(
        {
            "choice": lambda: choice_loop(d, t, rng),
            "plain": lambda: plain_loop(d, t, rng),
            **{name: hundred(call) for name, (call, _) in fast.items()},
        },
        rounds,
    )
    print(
        f"\nn = {n} windows; how many times as fast as 1200 replicates by rng.choice(n, n, p=t/T), and by rng.integers"
    )
    print(f"  {'run':44s} {'us':>8s} {'choice':>8s} {'plain':>8s}  target (choice)")
    for name, (_, target) in fast.items():
        faster = [
            statistics.median(
                CALLS * a / b for a, b in zip(seconds[loop], seconds[name], strict=True)
            )
            for loop in ("choice", "plain")
        ]
        print(
            f"  {name:44s} {1e6 / CALLS * statistics.median(seconds[name]):8.1f} {faster[0]:8.0f} {faster[1]:8.0f}  {target}"
        )


def many(n, rounds):
    d, t = draw(n)
    rng = np.random.default_rng(1)
    codes = np.sort(rng.integers(0, max(2, n // 16), n))
    mixed = rng.permutation(codes)
    runs = {
        "t @ d / t.sum()": lambda: t @ d / t.sum(),
        "windows": lambda: jackknife_interval(d, t, units="windows"),
        "documents by codes, in order": lambda: jackknife_interval(
            d, t, units="documents", document_ids=codes
        ),
        "documents by codes, mixed": lambda: jackknife_interval(
            d, t, units="documents", document_ids=mixed
        ),
        "serial": lambda: jackknife_interval(d, t),
    }
    table(
        f"n = {n} windows, jackknife_interval with its checks, ratio to one weighted mean",
        alternate(runs, rounds),
        "t @ d / t.sum()",
        {
            "windows": "at most 6",
            "documents by codes, in order": "at most 15",
            "documents by codes, mixed": "at most 15",
            "serial": "at most 30",
        },
    )


def ratio(d, t, axis=-1):
    return (d * t).sum(axis=axis) / t.sum(axis=axis)


EXACT = "BCa in the limit (this package)"


def bootstraps(n, rounds, replicates=1200):
    "The exact BCa interval against both loops and against peers; a loop gives percentiles."
    from scipy import stats

    from invar_nb import bootstrap_interval

    d, t = draw(n)
    rng = np.random.default_rng(0)
    scipy = lambda: stats.bootstrap(
        (d, t),
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=replicates,
        batch=100,
        rng=np.random.default_rng(0),
    )

    def arch():
        from arch.bootstrap import IIDBootstrap

        return IIDBootstrap(d, t, seed=np.random.default_rng(0)).conf_int(
            ratio, replicates, method="bca"
        )

    seconds = alternate(
        {
            "the choice loop": lambda: choice_loop(d, t, rng),
            "the plain loop": lambda: plain_loop(d, t, rng),
            EXACT: lambda: bootstrap_interval(d, t),
            f"BCa, {replicates} replicates (this package)": lambda: bootstrap_interval(
                d, t, replicates=replicates, seed=0
            ),
            f"scipy.stats.bootstrap BCa, {replicates}": scipy,
            f"arch IIDBootstrap BCa, {replicates}": peer("arch", arch),
            "jackknife_interval(d, t)": lambda: jackknife_interval(d, t),
        },
        rounds,
    )
    targets = {180: (">= 15", ">= 5"), 10_000: (">= 300", "")}.get(n, ("", ""))
    for loop, target in zip(("the choice loop", "the plain loop"), targets, strict=True):
        table(
            f"n = {n} windows, times as fast as {loop} of {replicates} replicates",
            seconds,
            loop,
            {EXACT: target},
            speedup=True,
        )


def exact_many(n, rounds):
    from invar_nb import bootstrap_interval

    d, t = draw(n)
    table(
        f"n = {n} windows, the exact BCa interval with its checks, ratio to one weighted mean",
        alternate(
            {
                "t @ d / t.sum()": lambda: t @ d / t.sum(),
                EXACT: lambda: bootstrap_interval(d, t),
            },
            rounds,
        ),
        "t @ d / t.sum()",
        {EXACT: "<= 30"},
    )


LAWS = {
    "normal": np.random.Generator.standard_normal,
    "t3": lambda rng, size: rng.standard_t(3, size),
    "exponential": np.random.Generator.standard_exponential,
}


def exact_few(rounds, sizes=(12, 14, 16, 20, 25, 30)):
    "Milliseconds of few windows, where no characteristic function dies: three laws, equal and lognormal token counts."
    from invar_nb import bootstrap_interval

    took = []
    for n in sizes:
        for seed, law in enumerate(LAWS.values()):
            for sigma in (0.0, 0.8):
                rng = np.random.default_rng(100 * n + seed)
                d, t = law(rng, size=n), np.ceil(100 * rng.lognormal(0, sigma, n))
                runs = alternate({EXACT: lambda d=d, t=t: bootstrap_interval(d, t)}, rounds)[
                    EXACT
                ]
                took.append(1000 * statistics.median(runs))
    figures(
        f"{len(took)} sets of {sizes[0]} to {sizes[-1]} windows, the exact BCa interval",
        {
            "median, ms": (statistics.median(took), "<= 15"),
            "longest, ms": (max(took), "<= 40"),
        },
    )


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument(
        "--n",
        type=int,
        nargs="+",
        default=[180, 1_000_000, 1_000_003],
        help="numbers of windows; the last default is a prime",
    )
    p.add_argument("--rounds", type=int, default=9)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    machine("numpy", "scipy", "arch")
    for n in a.n:
        (few if n < 20_000 else many)(n, a.rounds)
        if n < 20_000:
            bootstraps(n, a.rounds)
        else:
            exact_many(n, a.rounds)
    bootstraps(10_000, 2)
    exact_few(3)


if __name__ == "__main__":
    main()
