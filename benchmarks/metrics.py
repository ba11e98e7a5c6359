"""What do the metrics cost? `python benchmarks/metrics.py`

Calibration error of a hundred thousand predictions against torchmetrics and Brier score against scikit-learn, on the same data and with equal values;
and what the leave-one-out values behind an interval cost. Every side has one thread. Limits: one read of the data, and one bincount into bins that are
known already. Peers that are not installed have no row."""

import argparse
import importlib.util
import os
from functools import partial

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"
)  # before numpy and torch are imported

import numpy as np  # noqa: E402
from alternate import alternate, machine, table  # noqa: E402

from invar_nb.metrics.brier import brier_decomposition, brier_score  # noqa: E402
from invar_nb.metrics.calibration import squared_error_without  # noqa: E402
from invar_nb.metrics.reliability import (
    bin_of,
    expected_calibration_error,
    mass_edges,
    reliability_bins,
)  # noqa: E402
from invar_nb.metrics.smooth_calibration import smooth_calibration_error, smooth_without  # noqa: E402


def installed(name):
    return importlib.util.find_spec(name) is not None


def data(n, sure=False):
    rng = np.random.default_rng(n)
    p = 1 - rng.random(n) ** 8 / 2 if sure else rng.random(n)
    return p, (rng.random(n) < p).astype(np.int64)


def calibration_runs(n, peers, dtype, sure=False):
    p, y = data(n, sure)
    y = y.astype(dtype)
    index, gap = (p * 10).astype(np.intp), y - p
    ours, equal_mass = "equal width (this package)", "equal mass (this package)"
    out = {
        ours: lambda: expected_calibration_error(p, y),
        equal_mass: lambda: expected_calibration_error(p, y, binning="mass"),
        "bins with their Wilson bars (this package)": lambda: reliability_bins(
            p, y, null=False
        ),
        "the same with the null band (this package)": lambda: reliability_bins(p, y),
        "limit: one read of the data": lambda: (p.sum(), y.sum()),
        "one bincount, bins known": lambda: np.bincount(index, weights=gap, minlength=10),
    }
    if peers and installed("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import binary_calibration_error

        torch.set_num_threads(1)
        tp, ty = torch.tensor(p), torch.tensor(y)
        out["torchmetrics"] = lambda: binary_calibration_error(tp, ty, n_bins=10)
        out["torchmetrics, arguments not validated"] = lambda: binary_calibration_error(
            tp, ty, n_bins=10, validate_args=False
        )
        np.testing.assert_allclose(out[ours](), float(out["torchmetrics"]()), rtol=1e-9)
    if peers and installed("sklearn"):
        from sklearn.calibration import calibration_curve

        out["scikit-learn calibration_curve (no error)"] = lambda: calibration_curve(
            y, p, n_bins=10
        )
    return out, ours


def brier_runs(n, peers, dtype):
    p, y = data(n)
    y = y.astype(dtype)
    ours = "Brier score (this package)"
    out = {
        ours: lambda: brier_score(p, y),
        "five terms, ten bins (this package)": lambda: brier_decomposition(p, y, n_bins=10),
        "numpy, not validated": lambda: np.mean((p - y) ** 2),
        "limit: one read of the data": lambda: (p.sum(), y.sum()),
    }
    if peers and installed("sklearn"):
        from sklearn.metrics import brier_score_loss

        out["scikit-learn"] = lambda: brier_score_loss(y, p)
        np.testing.assert_allclose(out[ours](), out["scikit-learn"](), rtol=1e-12)
    return out, ours


def interval_runs(n):
    p, y = data(n)
    rows, e, y = np.arange(n), p - y, y.astype(float)
    index = bin_of(p, mass_edges(10, p))
    ours = "calibration error without each prediction"
    return {
        ours: lambda: squared_error_without(e, index, rows, n, 10),
        "smooth calibration error": lambda: smooth_calibration_error(p, y),
        "smooth calibration error without each prediction": lambda: smooth_without(
            p, y, rows, n
        ),
        "limit: one read of the data": lambda: (p.sum(), y.sum()),
    }, ours


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--n", type=int, nargs="+", default=[100_000])
    a.add_argument("--rounds", type=int, default=15)
    a.add_argument("--no-peers", action="store_true")
    a = a.parse_args()
    machine("numpy", "torchmetrics", "scikit-learn")
    for n in a.n:
        for what, runs in (
            ("calibration error, outcomes int64,", partial(calibration_runs, dtype=np.int64)),
            ("calibration error, outcomes bool,", partial(calibration_runs, dtype=bool)),
            (
                "calibration error, a sure model, outcomes int64,",
                partial(calibration_runs, dtype=np.int64, sure=True),
            ),
            ("Brier score, outcomes int64,", partial(brier_runs, dtype=np.int64)),
            ("Brier score, outcomes bool,", partial(brier_runs, dtype=bool)),
        ):
            out, ours = runs(n, not a.no_peers)
            table(f"{what} of {n} predictions", alternate(out, a.rounds), ours)
        small = min(n, 2000)
        out, ours = interval_runs(small)
        table(f"intervals of {small} predictions", alternate(out, max(1, a.rounds // 5)), ours)


if __name__ == "__main__":
    main()
