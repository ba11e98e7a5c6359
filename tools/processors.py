"""What other processors would compute, on this one: the kernels that NumPy, OpenBLAS, PyTorch, MKL and oneDNN choose there are forced by their own variables.

python tools/processors.py         every set of kernels that computes otherwise than this processor's own: all pages, all tests that use NumPy or PyTorch
python tools/processors.py lowest  the lowest set: pages and tests marked `processor`
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
REFERENCE = """
import hashlib, numpy as np
x = np.random.default_rng(0).normal(size=(64, 1000))
parts = [x @ x.T, x[:, :590] @ x[0, :590], np.exp(x.astype("f4")), np.linalg.eigvalsh(x @ x.T)]
try: import torch
except ImportError: pass
else:
    t = torch.tensor(x, dtype=torch.float32)
    parts += [(t @ t.T).numpy(), (t[:, :24] @ t[:24, :97]).numpy(), t.log_softmax(1).numpy(), torch.nn.functional.gelu(t).numpy(), (t.bfloat16() @ t.bfloat16().T).float().numpy()]
print(hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()[:12])
"""


def kernel_sets():
    """Name -> environment variables that force a set of kernels; the lowest set is last.

    NumPy is asked which of its own kernels can be disabled on this processor.
    """
    from numpy._core._multiarray_umath import (
        __cpu_dispatch__ as dispatched,
    )
    from numpy._core._multiarray_umath import (
        __cpu_features__ as features,
    )

    usable = [name for name in dispatched if features[name]]
    without = lambda names: {"NPY_DISABLE_CPU_FEATURES": " ".join(names)} if names else {}
    sets = {"own": {}}
    if platform.machine() not in ("x86_64", "AMD64"):
        return sets | {
            "lowest": dict(ATEN_CPU_CAPABILITY="default", OPENBLAS_CORETYPE="ARMV8")
            | without(usable)
        }
    if features["AVX2"]:
        sets["AVX2"] = dict(
            ATEN_CPU_CAPABILITY="avx2",
            MKL_ENABLE_INSTRUCTIONS="AVX2",
            MKL_CBWR="AVX2",
            ONEDNN_MAX_CPU_ISA="AVX2",
            OPENBLAS_CORETYPE="Haswell",
        ) | without([name for name in usable if re.match("X86_V4|AVX512", name)])
    low = dict(
        ATEN_CPU_CAPABILITY="default",
        MKL_ENABLE_INSTRUCTIONS="SSE4_2",
        MKL_CBWR="COMPATIBLE",
        ONEDNN_MAX_CPU_ISA="SSE41",
    ) | without(usable)
    return sets | {
        "SSE4": low | {"OPENBLAS_CORETYPE": "Nehalem"},
        "SSE3": low | {"OPENBLAS_CORETYPE": "Prescott"},
    }


def run(environment, *command, **more):
    "Run Python with a command and these environment variables added."
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **environment},
        cwd=root,
        **more,
    )


def product(environment):
    """A digest of sums, products and exponentials computed with a set of kernels.

    Two sets with one digest compute the same here.
    """
    return run(
        environment, "-c", REFERENCE, check=True, capture_output=True, text=True
    ).stdout.strip()


def distinct_sets(show=lambda line: None, sets=None):
    "One set of kernels for each different digest; this processor's own is first."
    kept = {}
    sets = sets or kernel_sets()
    for name, environment in sets.items():
        kept.setdefault(digest := product(environment), name)
        show(
            f"processors: {name:6} {digest}"
            + (f", as {kept[digest]}" if kept[digest] != name else "")
        )
    show(f"processors: {len(kept)} of {len(sets)} kernel sets differ here")
    return {name: sets[name] for name in kept.values()}


def lowest_of(sets):
    "This processor's own set of kernels, and the lowest one."
    names = [*sets]
    return {name: sets[name] for name in (names[0], names[-1])}


def tests_with(pattern):
    "The test files that contain a pattern."
    return [
        path
        for path in sorted((root / "tests").rglob("test_*.py"))
        if re.search(pattern, path.read_text(encoding="utf-8"))
    ]


def main(argv=None):
    "Run the tests under every set that computes differently; 1 where some fail, else 0."
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", nargs="?", choices=["all", "lowest"], default="all")
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args(argv)
    failed, sets = [], kernel_sets()
    if a.what == "lowest":
        sets = lowest_of(sets)
        tests = ["-m", "processor", *tests_with(r"\bmark\.processor\b")]
    else:
        tests = tests_with(r"\bnumpy\b|torch")
    sets = distinct_sets(lambda line: print(line, flush=True), sets)
    for name in list(sets)[-1:] if a.what == "lowest" else list(sets)[1:]:
        print(f"processors: {name}", flush=True)
        if run(
            sets[name], "-m", "pytest", "-n", a.workers, "--dist", "worksteal", *tests
        ).returncode:
            failed.append(name)
    print(
        f"processors: {', '.join(failed)} failed" if failed else "processors: all the same",
        flush=True,
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
