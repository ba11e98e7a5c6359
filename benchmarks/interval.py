"""What does an interval cost, without replicates and with them? `python benchmarks/interval.py`

The reference is the exact interval. Peers: scipy's BCa on the same ratio, arch's where it is installed. Limits: one read of the data,
and the draws of indices that no engine with replicates can do without."""
import argparse
import importlib.util
import warnings

import numpy as np
from alternate import alternate, machine, table

from invar_nb import bootstrap_interval


def ratio(d, t, axis=-1): return (d * t).sum(axis=axis) / t.sum(axis=axis)


def runs(n, replicates, peers):
    rng = np.random.default_rng(n)
    delta, tokens = rng.standard_t(3, n) * 0.05 + 0.01, rng.integers(64, 1025, n)
    t = tokens.astype(float)
    out = {"exact (this package)": lambda: bootstrap_interval(delta, tokens),
           "exact, expanded percentile": lambda: bootstrap_interval(delta, tokens, method="expanded"),
           f"this package, {replicates} replicates": lambda: bootstrap_interval(delta, tokens, replicates=replicates, seed=0),
           "limit: one read of the data": lambda: (delta.sum(), t.sum()),
           f"limit: drawing {replicates} x n indices": lambda: [rng.integers(0, n, n, dtype=np.uint32) for _ in range(replicates)]}
    if n > 200_000: [out.pop(k) for k in list(out) if "replicates" in k or "drawing" in k]
    if peers and n <= 20_000:
        from scipy import stats
        for r in (replicates, 9999) if n <= 1000 else (replicates,):
            out[f"scipy.stats.bootstrap BCa, {r}"] = lambda r=r: stats.bootstrap((delta, t), ratio, paired=True, vectorized=True, n_resamples=r, batch=100, rng=np.random.default_rng(0))
        if importlib.util.find_spec("arch"):
            from arch.bootstrap import IIDBootstrap
            out[f"arch IIDBootstrap BCa, {replicates}"] = lambda: IIDBootstrap(delta, t, seed=np.random.default_rng(0)).conf_int(ratio, replicates, method="bca")
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--n", type=int, nargs="+", default=[180, 10_000])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--replicates", type=int, default=1200)
    p.add_argument("--no-peers", action="store_true")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    machine("numpy", "scipy", "arch")
    for n in a.n:
        table(f"n = {n} windows, ratio to the exact interval", alternate(runs(n, a.replicates, not a.no_peers), a.rounds), "exact (this package)")


if __name__ == "__main__": main()
