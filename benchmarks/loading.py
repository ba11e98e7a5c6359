"""What does opening a GGUF cost, beside one pass of the package gguf over it? `python benchmarks/loading.py [FILE.gguf]`

The limit reads the header once with `gguf.GGUFReader` and dequantises each tensor. Without a file: SmolLM2's Q4_K_M, where `make real` has been run."""

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from alternate import alternate, figures, machine, table

USUAL = Path(__file__).resolve().parent.parent / ".real" / "models" / "smollm2-Q4_K_M.gguf"
ALONE = "import resource, sys; from invar_nb import load_model; load_model(sys.argv[1]); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def one_pass(path):
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        gguf.dequantize(tensor.data, tensor.tensor_type)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=USUAL)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if not chosen.file.exists():
        print(f"{chosen.file} is not here: name a GGUF, or run make real first")
        return
    from invar_nb import compare_weights, load_model
    from invar_nb.models.load import find_checkpoint

    machine("torch", "transformers", "gguf")
    runs = {
        "load_model": lambda: load_model(chosen.file),
        "one GGUFReader and dequantising": lambda: one_pass(chosen.file),
        "find_checkpoint (header, digests as needed)": lambda: find_checkpoint(chosen.file),
        "compare_weights with itself": lambda: compare_weights(chosen.file, chosen.file),
    }
    reference = "one GGUFReader and dequantising"
    table(
        f"opening {chosen.file.name}",
        alternate(runs, chosen.rounds),
        reference,
        {"load_model": "<= 1", "compare_weights with itself": ""},
    )
    weights = 4 * load_model(chosen.file).provenance["parameters"] / 2**20
    peak = subprocess.run(
        [sys.executable, "-c", ALONE, chosen.file], capture_output=True, text=True, check=True
    )
    figures(
        "memory, MiB",
        {
            "peak of load_model in a process of its own": (
                int(peak.stdout) / 1024,
                f"<= {weights + 400:.0f}",
            ),
            "weights in float32": (weights, ""),
        },
    )
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


if __name__ == "__main__":
    main()
