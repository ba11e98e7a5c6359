"""What do intervals from mergeable sums cost, and how near are they? `python benchmarks/sketch.py`

The unit is one weighted mean of the same arrays, `t @ d / t.sum()`; for files two plain reads of their columns by pyarrow into numpy."""
import argparse
import tempfile
from pathlib import Path

import numpy as np
from alternate import alternate, best, figures, installed, machine, peer, table

from invar_nb import Sketch, compare_large, open_losses, pair_arrays
from invar_nb.files.loss_writer import loss_writer
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.sketch import BlockSums, DocumentSums, RatioSums
from invar_nb.statistics.totals import unit_totals

BATCH = 2**16


def draw(n, law="t3"):
    rng = np.random.default_rng(n)
    moved = {"normal": rng.standard_normal, "t3": lambda n: rng.standard_t(3, n), "skewed": lambda n: rng.lognormal(0, 1, n)}[law](n)
    return 0.01 + 0.05 * moved, np.ceil(100 * rng.lognormal(0, 1.2, n)), rng


def filled(sums, t, N, documents=None):
    for a in range(0, t.size, BATCH):
        rows = slice(a, a + BATCH)
        if documents is None: sums.add(t[rows], N[rows])
        else:
            first, last = documents[rows][[0, -1]]
            sums.add([str(k) for k in range(first, last + 1)], documents[rows] - first, t[rows], N[rows])
    return sums


def adding(n, rounds):
    d, t, _ = draw(n)
    N, documents = t * d, np.arange(n) // 16
    moments = lambda: __import__("scipy.stats").stats.moment(d, [2, 3, 4, 5, 6])
    table(f"n = {n} windows of unequal tokens, in batches of {BATCH}", alternate({
        "t @ d / t.sum()": lambda: t @ d / t.sum(),
        "sums over windows (37 and the 64 largest)": lambda: filled(RatioSums(), t, N),
        "sums over documents of 16 windows": lambda: filled(DocumentSums(), t, N, documents),
        "totals of blocks": lambda: filled(BlockSums(), t, N),
        "all windows in memory, jackknife_ratio": lambda: jackknife_ratio(N, t),
        "scipy.stats.moment, 2 to 6, in memory, without weights": peer("scipy", moments)}, rounds), "t @ d / t.sum()",
        {"sums over windows (37 and the 64 largest)": "<= 25", "sums over documents of 16 windows": "<= 40", "totals of blocks": "<= 25"})


def joined(parts, rng):
    parts = list(parts)
    while len(parts) > 1:
        one, other = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        parts.append(one.merged(other))
    return parts[0]


def apart(a, b):
    i, j = a.interval(), b.interval()
    return max(abs(i.low - j.low), abs(i.high - j.high)) / i.width


def agreement(n, orders):
    "Largest distance of the ends from those of one pass in memory, in widths: 64 shards in random orders, laws, a shift one sd off."
    found = {"windows": 0.0, "documents": 0.0, "windows, shift one sd off": 0.0}
    for law in ("normal", "t3", "skewed"):
        d, t, rng = draw(n, law)
        N = t * d
        documents = np.repeat(np.arange(n // 10), rng.multinomial(n, rng.dirichlet(np.ones(n // 10))))
        cuts = np.split(np.arange(n), np.sort(rng.choice(np.arange(1, n), 63, replace=False)))
        whole = jackknife_ratio(N, t)
        codes = np.unique(documents, return_inverse=True)[1]
        by_document = jackknife_ratio(*(unit_totals(v, codes, codes[-1] + 1) for v in (N, t)))
        shards = [filled(RatioSums(), t[rows], N[rows]) for rows in cuts]
        cut = [filled(DocumentSums(), t[rows], N[rows], codes[rows]) for rows in cuts]
        for _ in range(orders):
            found["windows"] = max(found["windows"], apart(whole, joined(shards, rng).fit()))
            found["documents"] = max(found["documents"], apart(by_document, joined(cut, rng).whole().fit()))
        off = filled(RatioSums(whole.estimate + float(np.std(d))), t, N).fit()
        found["windows, shift one sd off"] = max(found["windows, shift one sd off"], apart(whole, off))
    return found


def files(n, folder, rounds):
    import pyarrow.parquet
    d, t, rng = draw(n)
    base, paths = rng.gamma(30, 0.1, n), [folder / f"{arm}.parquet" for arm in ("baseline", "candidate")]
    for path, loss in zip(paths, (base, np.maximum(base + d, 0)), strict=True):
        with loss_writer(path, names=["window_id", "tokens", "log_loss", "document_id"], windows=n) as out:
            for a in range(0, n, BATCH):
                rows = range(a, min(n, a + BATCH))
                out.write({"window_id": [f"w{i}" for i in rows], "document_id": [f"d{i // 16}" for i in rows], "tokens": t[a:a + BATCH].astype(np.int64), "log_loss": loss[a:a + BATCH]})

    def plain():
        for path in paths:
            found = pyarrow.parquet.read_table(path)
            for name in ("tokens", "log_loss"): found[name].to_numpy()
    table(f"two files of {n} windows with ids and documents, matched, checked, digests included", alternate({
        "two plain reads by pyarrow": plain, "compare_large": lambda: compare_large(*map(open_losses, paths))}, rounds), "two plain reads by pyarrow",
        {"compare_large": "<= 8"})


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--orders", type=int, default=20)
    a = p.parse_args()
    machine("numpy", "scipy", "pyarrow")
    adding(10**6, a.rounds)
    d, t, rng = draw(64_000)
    shards = [filled(RatioSums(), t[rows], t[rows] * d[rows]) for rows in np.array_split(np.arange(t.size), 64)]
    cut = [Sketch(pair_arrays(np.full(1000, 5.0), 5 + d[rows] - d.min(), t[rows].astype(int))) for rows in np.array_split(np.arange(t.size), 64)]
    figures("merging 64 shards", {"63 merges of sums, ms": (1e3 * best(lambda: joined(shards, rng)), "<= 10"),
                                  "63 merges through JSON, ms": (1e3 * best(lambda: [Sketch.from_json(one.to_json()).merge(cut[0]) for one in cut[1:]]), "<= 30"),
                                  "JSON of one, bytes": (len(cut[0].to_json()), "<= 2200")})
    for n in (10**3, 10**4, 10**5, 10**6):
        if n == 10**3: found = agreement(n, a.orders)
        else: found = agreement(n, max(1, a.orders // (n // 10**4)))
        figures(f"n = {n}: ends of 64 shards in random orders against one pass in memory, in widths",
                {name: (value, "<= 1e-10" if "off" in name else "<= 1e-12") for name, value in found.items()})
    if not installed("pyarrow"): return
    with tempfile.TemporaryDirectory() as folder: files(10**6, Path(folder), a.rounds)


if __name__ == "__main__": main()
