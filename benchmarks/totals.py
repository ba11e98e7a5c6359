"""What do intervals from totals that are added up cost? `python benchmarks/totals.py`

The unit is one weighted mean of the same arrays, `t @ d / t.sum()`; for files two plain reads of their columns by pyarrow into numpy."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from alternate import alternate, best, figures, installed, machine, table

from invar_nb import UnitTotals
from invar_nb.arms.window_losses import StreamedLosses
from invar_nb.comparison.study import study
from invar_nb.files.losses import loss_writer, open_losses
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


def files(n, folder, rounds):
    import pyarrow.parquet

    d, t, rng = draw(n)
    base, paths = (
        rng.gamma(30, 0.1, n),
        [folder / f"{arm}.parquet" for arm in ("baseline", "candidate")],
    )
    for path, loss in zip(paths, (base, np.maximum(base + d, 0)), strict=True):
        with loss_writer(
            path, names=["window_id", "tokens", "log_loss", "document_id"], windows=n
        ) as out:
            for a in range(0, n, BATCH):
                rows = range(a, min(n, a + BATCH))
                out.write(
                    {
                        "window_id": [f"w{i}" for i in rows],
                        "document_id": [f"d{i // 16}" for i in rows],
                        "tokens": t[a : a + BATCH].astype(np.int64),
                        "log_loss": loss[a : a + BATCH],
                    }
                )

    def plain():
        for path in paths:
            found = pyarrow.parquet.read_table(path)
            for name in ("tokens", "log_loss"):
                found[name].to_numpy()

    arms = lambda: {
        (name, ""): StreamedLosses(file=open_losses(path))
        for name, path in zip(("baseline", "candidate"), paths, strict=True)
    }
    table(
        f"two files of {n} windows with ids and documents, matched, checked, digests included",
        alternate(
            {
                "two plain reads by pyarrow": plain,
                "a study of both, in batches": lambda: study(arms()),
            },
            rounds,
        ),
        "two plain reads by pyarrow",
        {"a study of both, in batches": "<= 8"},
    )


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    machine("numpy", "scipy", "pyarrow")
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
    if not installed("pyarrow"):
        return
    with tempfile.TemporaryDirectory() as folder:
        files(10**6, Path(folder), a.rounds)


if __name__ == "__main__":
    main()
