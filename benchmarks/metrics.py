"""What do the metrics cost? `python benchmarks/metrics.py`

Calibration error of a million predictions against torchmetrics, Brier score against scikit-learn, BLEU of ten thousand segments against
sacreBLEU, on the same data and with equal values. Every side has one thread. Limits: one read of the data, and one bincount into bins that
are known already. Peers that are not installed have no row.

Where the time goes: each call follows a peer's, so the data come from memory and not from the cache, and every step of NumPy is one more pass over
a block, about as slow as a copy. The last two tables take the passes of ten bins one by one, on a block that stays in the cache, and say what the
goals would ask of the peers were Python and the memory for nothing. That is a profile of this way to compute them, no proof that there is no
other. The peers' own times move by half with the state of the process's memory, and on a busy machine long calls are interrupted more often than
short ones: compare on a quiet one, and more than once."""
import argparse
import importlib.util
import os
import statistics
from functools import partial

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy and torch are imported

import numpy as np  # noqa: E402
from alternate import alternate, machine, table  # noqa: E402

from invar_nb.probes.bleu import corpus_bleu  # noqa: E402
from invar_nb.probes.calibration import _BLOCK, _ENTRY, _width, brier_decomposition, brier_score, expected_calibration_error, reliability_bins  # noqa: E402


def installed(name): return importlib.util.find_spec(name) is not None


GOALS = {"calibration error": ("torchmetrics", 20), "Brier score": ("scikit-learn", 50)}


def goal_of(metric):
    peer, times = GOALS[metric]
    return {peer: f">= {times}"}


def data(n, sure=False):
    rng = np.random.default_rng(n)
    p = 1 - rng.random(n) ** 8 / 2 if sure else rng.random(n)
    return p, (rng.random(n) < p).astype(np.int64)


def calibration_runs(n, peers, dtype, sure=False):
    p, y = data(n, sure)
    y = y.astype(dtype)
    index, gap = (p * 10).astype(np.intp), y - p
    ours, equal_mass = "equal width (this package)", "equal mass (this package)"
    out = {ours: lambda: expected_calibration_error(p, y), equal_mass: lambda: expected_calibration_error(p, y, binning="mass"),
           "bins with their Wilson bars (this package)": lambda: reliability_bins(p, y, null=False),
           "the same with the null band (this package)": lambda: reliability_bins(p, y),
           "limit: one read of the data": lambda: (p.sum(), y.sum()), "one bincount, bins known": lambda: np.bincount(index, weights=gap, minlength=10)}
    if peers and installed("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import binary_calibration_error
        torch.set_num_threads(1)
        tp, ty = torch.tensor(p), torch.tensor(y)
        out["torchmetrics"] = lambda: binary_calibration_error(tp, ty, n_bins=10)
        out["torchmetrics, arguments not validated"] = lambda: binary_calibration_error(tp, ty, n_bins=10, validate_args=False)
        np.testing.assert_allclose(out[ours](), float(out["torchmetrics"]()), rtol=1e-9)
    if peers and installed("sklearn"):
        from sklearn.calibration import calibration_curve
        out["scikit-learn calibration_curve (no error)"] = lambda: calibration_curve(y, p, n_bins=10)
    return out, ours, goal_of("calibration error")


def brier_runs(n, peers, dtype):
    p, y = data(n)
    y = y.astype(dtype)
    ours = "Brier score (this package)"
    out = {ours: lambda: brier_score(p, y), "five terms, ten bins (this package)": lambda: brier_decomposition(p, y, n_bins=10),
           "numpy, not validated": lambda: np.mean((p - y) ** 2), "limit: one read of the data": lambda: (p.sum(), y.sum())}
    if peers and installed("sklearn"):
        from sklearn.metrics import brier_score_loss
        out["scikit-learn"] = lambda: brier_score_loss(y, p)
        np.testing.assert_allclose(out[ours](), out["scikit-learn"](), rtol=1e-12)
    return out, ours, goal_of("Brier score")


def passes(block):
    "{metric: {pass: callable}}: what a call does to each block of outcomes in 64-bit integers, each pass by itself on a block in the cache."
    p, y = data(block)
    gap, scaled, one = np.empty(block), np.empty(block), np.float64(1).view(np.int64)
    width = _width(10, np.dtype(float))
    column = width.column()
    column.indptr[1], column.data[:block] = block, y - p
    shared = {COPY: lambda: np.copyto(scaled, p), "probabilities lie in [0, 1]": lambda: np.maximum.reduce(p.view(np.uint64)),
              "outcomes are 0 or 1": lambda: np.bitwise_or.reduce(y), "outcomes as floats": lambda: np.multiply(y, one, gap.view(np.int64)),
              "differences": lambda: np.subtract(gap, p, gap)}
    return {"Brier score": {**shared, "sum of the squares": lambda: np.dot(gap, gap)},
            "calibration error": {**shared, "times the number of finer bins": lambda: np.multiply(p, width.factor, scaled),
                                  "the whole parts": lambda: column.indices[:block].__setitem__(slice(None), scaled), "sums by bins": lambda: column @ _ENTRY}}


COPY = "a bare copy, for comparison"


def passes_table(n, block=_BLOCK):
    for metric, steps in passes(block).items():
        seconds = {name: [t * n / block for t in times] for name, times in alternate(steps, 300).items()}
        table(f"passes of the {metric} of {n} predictions, outcomes int64, in the cache", seconds, COPY)
        total = 1000 * sum(statistics.median(times) for name, times in seconds.items() if name != COPY)
        peer, goal = GOALS[metric]
        print(f"  all passes, Python and memory for nothing    {total:11.2f}            {goal} times as fast as {peer}, where that takes {goal * total:.0f} ms")


def sentences(n):
    "Segments of 4 to 40 words of a vocabulary as skewed as English, with punctuation; candidates are references with words changed."
    rng = np.random.default_rng(n)
    words = np.array(["".join(rng.choice(list("etaoinshrdlucmfw"), rng.integers(2, 10))) + ("", "", "", "", ",", ".", "!", "'s")[k % 8] for k in range(8000)])
    draw = lambda size: words[np.minimum(rng.zipf(1.3, size) - 1, words.size - 1)]
    candidates, references = [], []
    for length in rng.integers(4, 41, n):
        said = draw(length)
        references.append(" ".join(said))
        candidates.append(" ".join(np.where(rng.random(length) < 0.3, draw(length), said)))
    return candidates, references


def bleu_runs(n, tokenize, peers):
    candidates, references = sentences(n)
    ours = f"{tokenize} (this package)"
    out = {ours: lambda: corpus_bleu(candidates, references, tokenize=tokenize)}
    if peers and installed("sacrebleu"):
        from sacrebleu.metrics import BLEU
        out["sacreBLEU"] = lambda: BLEU(tokenize=tokenize, smooth_method="none", force=True).corpus_score(candidates, [references])
        np.testing.assert_allclose(100 * out[ours]().score, out["sacreBLEU"]().score, rtol=1e-12)
    return out, ours, {"sacreBLEU": ">= 1.6"}


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--n", type=int, nargs="+", default=[1_000_000])
    a.add_argument("--segments", type=int, default=10_000)
    a.add_argument("--rounds", type=int, default=15)
    a.add_argument("--no-peers", action="store_true")
    a = a.parse_args()
    machine("numpy", "torchmetrics", "scikit-learn", "sacrebleu")
    for n in a.n:
        for what, runs in (("calibration error, outcomes int64,", partial(calibration_runs, dtype=np.int64)), ("calibration error, outcomes bool,", partial(calibration_runs, dtype=bool)),
                           ("calibration error, a sure model, outcomes int64,", partial(calibration_runs, dtype=np.int64, sure=True)),
                           ("Brier score, outcomes int64,", partial(brier_runs, dtype=np.int64)), ("Brier score, outcomes bool,", partial(brier_runs, dtype=bool))):
            out, ours, goals = runs(n, not a.no_peers)
            table(f"{what} of {n} predictions", alternate(out, a.rounds), ours, goals)
        passes_table(n)
    for tokenize in ("none", "13a", "char", "intl"):
        out, ours, goals = bleu_runs(a.segments, tokenize, not a.no_peers)
        table(f"BLEU of {a.segments} segments, tokenize={tokenize}", alternate(out, max(1, a.rounds // 5)), ours, goals)


if __name__ == "__main__": main()
