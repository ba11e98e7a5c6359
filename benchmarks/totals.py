"""What do intervals from totals that are added up cost? `python benchmarks/totals.py`

The unit is one weighted mean of the same arrays, `t @ d / t.sum()`."""

import argparse

import numpy as np
from alternate import alternate, best, figures, machine, table

from invar_nb import UnitTotals
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import block_size, fit_totals
from invar_nb.statistics.totals import sum_totals

BATCH = 2**16


def draw(n):
    rng = np.random.default_rng(n)
    return 0.01 + 0.05 * rng.standard_t(3, n), np.ceil(100 * rng.lognormal(0, 1.2, n)), rng


def added(t, N, documents=None):
    "The fit of windows that come in batches."
    more = lambda rows: (
        {"units": documents[rows]} if documents is not None else {"block": block_size(t.size)}
    )
    cuts = [slice(a, a + BATCH) for a in range(0, t.size, BATCH)]
    return fit_totals(
        sum_totals(
            UnitTotals.of(
                {"tokens": t[rows], "delta": N[rows]}, start=rows.start, **more(rows)
            )
            for rows in cuts
        )
    )


def adding(n, rounds):
    d, t, _ = draw(n)
    N, documents = t * d, np.arange(n) // 16
    table(
        f"n = {n} windows of unequal tokens, in batches of {BATCH}",
        alternate(
            {
                "t @ d / t.sum()": lambda: t @ d / t.sum(),
                "totals of documents of 16 windows, and their interval": lambda: added(
                    t, N, documents
                ).interval(),
                "totals in text order, and their interval": lambda: added(t, N).interval(),
                "all windows in memory, jackknife_ratio": lambda: jackknife_ratio(N, t),
            },
            rounds,
        ),
        "t @ d / t.sum()",
        {"totals of documents of 16 windows, and their interval": "<= 40"},
    )


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    machine("numpy", "scipy")
    adding(10**6, a.rounds)
    d, t, _ = draw(64_000)
    parts = [
        UnitTotals.of(
            {"tokens": t[i : i + 1000], "delta": (t * d)[i : i + 1000]},
            start=i,
            units=np.arange(i, i + 1000) // 16,
        )
        for i in range(0, t.size, 1000)
    ]
    figures(
        "merging 64 parts", {"63 sums, ms": (1e3 * best(lambda: sum_totals(parts)), "<= 10")}
    )


if __name__ == "__main__":
    main()
