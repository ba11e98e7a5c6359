"""What does opening a GGUF cost, beside one pass of the package gguf over it, and comparing two? `python benchmarks/loading.py [FILE.gguf [OTHER.gguf]]`

The limit reads the header once with `gguf.GGUFReader` and dequantises each tensor. Times are of the processor. Without a file: SmolLM2's Q4_K_M, compared with
its F16, from the folder that `make real` fills."""

import argparse
import sys
from pathlib import Path

from alternate import alternate, cpu_seconds, figures, machine, peak_memory, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import real  # noqa: E402

ALONE = "import sys; from invar_nb import load_model; from scoring import resident; load_model(sys.argv[1]); print(resident('VmHWM'))"


def one_pass(path):
    import gguf

    for tensor in gguf.GGUFReader(path).tensors:
        gguf.dequantize(tensor.data, tensor.tensor_type)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=real.model("Q4_K_M"))
    parser.add_argument("other", nargs="?", type=Path, help="another GGUF of the same model")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    file, other = chosen.file.resolve(), chosen.other
    if other is None and file == real.model("Q4_K_M").resolve():
        other = real.model("F16")
    for path in filter(None, (file, other)):
        if not path.exists():
            print(
                f"{path} is not here: name a GGUF, or run `make real` first (INVAR_NB_REAL: another folder)"
            )
            return
    from invar_nb import compare_weights, load_model
    from invar_nb.models.load import find_checkpoint

    machine("torch", "transformers", "gguf")
    runs = {
        "load_model": lambda: load_model(file),
        "one GGUFReader and dequantising": lambda: one_pass(file),
        "find_checkpoint (header, digests as needed)": lambda: find_checkpoint(file),
    }
    reference = "one GGUFReader and dequantising"
    seconds = alternate(runs, chosen.rounds, clock=cpu_seconds)
    table(f"opening {file.name}", seconds, reference, {"load_model": "<= 1"})
    if other is not None:
        comparing = f"compare_weights, {other.name} with it"
        runs = {
            comparing: lambda: compare_weights(other, file),
            "load_model": lambda: load_model(file),
            f"load_model, {other.name}": lambda: load_model(other),
        }
        seconds = alternate(runs, chosen.rounds, clock=cpu_seconds)
        table(f"comparing with {file.name}", seconds, "load_model", {comparing: "<= 1"})
    weights = 4 * load_model(file).provenance["parameters"] / 2**20
    most = f"<= {weights + 400:.0f}"
    figures(
        "memory, MiB",
        {
            "peak of load_model in a process of its own": (
                peak_memory(["-c", ALONE, file]),
                most,
            ),
            "weights in float32": (weights, ""),
        },
    )


if __name__ == "__main__":
    main()
