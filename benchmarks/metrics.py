"""What do metrics of a million predictions cost? `python benchmarks/metrics.py`

Calibration error against torchmetrics, Brier score against scikit-learn, both on the same arrays and with equal values. Limits: one read of the
data, and one bincount into bins that are known already. Peers that are not installed have no row."""
import argparse
import importlib.util

import numpy as np
from alternate import alternate, machine, table

from invar_nb.metrics.calibration import brier_decomposition, brier_score, expected_calibration_error, reliability_bins


def installed(name): return importlib.util.find_spec(name) is not None


def data(n):
    rng = np.random.default_rng(n)
    p = rng.random(n)
    return p, (rng.random(n) < p).astype(np.int64)


def calibration_runs(n, peers):
    p, y = data(n)
    index, gap = (p * 10).astype(np.intp), y - p
    ours, equal_mass = "equal width (this package)", "equal mass (this package)"
    out = {ours: lambda: expected_calibration_error(p, y), equal_mass: lambda: expected_calibration_error(p, y, binning="mass"),
           "bins with their Wilson bars (this package)": lambda: reliability_bins(p, y, null=False),
           "the same with the null band (this package)": lambda: reliability_bins(p, y),
           "limit: one read of the data": lambda: (p.sum(), y.sum()), "limit: one bincount": lambda: np.bincount(index, weights=gap, minlength=10)}
    if peers and installed("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import binary_calibration_error
        tp, ty = torch.tensor(p), torch.tensor(y)
        out["torchmetrics"] = lambda: binary_calibration_error(tp, ty, n_bins=10)
        out["torchmetrics, arguments not validated"] = lambda: binary_calibration_error(tp, ty, n_bins=10, validate_args=False)
        np.testing.assert_allclose(out[ours](), float(out["torchmetrics"]()), rtol=1e-9)
    if peers and installed("sklearn"):
        from sklearn.calibration import calibration_curve
        out["scikit-learn calibration_curve (no error)"] = lambda: calibration_curve(y, p, n_bins=10)
    return out, ours, {"torchmetrics": ">= 20"}


def brier_runs(n, peers):
    p, y = data(n)
    ours = "Brier score (this package)"
    out = {ours: lambda: brier_score(p, y), "five terms, ten bins (this package)": lambda: brier_decomposition(p, y, n_bins=10),
           "numpy, not validated": lambda: np.mean((p - y) ** 2), "limit: one read of the data": lambda: (p.sum(), y.sum())}
    if peers and installed("sklearn"):
        from sklearn.metrics import brier_score_loss
        out["scikit-learn"] = lambda: brier_score_loss(y, p)
        np.testing.assert_allclose(out[ours](), out["scikit-learn"](), rtol=1e-12)
    return out, ours, {"scikit-learn": ">= 50"}


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--n", type=int, nargs="+", default=[1_000_000])
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--no-peers", action="store_true")
    a = a.parse_args()
    machine("numpy", "torchmetrics", "scikit-learn")
    for n in a.n:
        for what, runs in (("calibration error", calibration_runs), ("Brier score", brier_runs)):
            out, ours, goals = runs(n, not a.no_peers)
            table(f"{what} of {n} predictions", alternate(out, a.rounds), ours, goals)


if __name__ == "__main__": main()
