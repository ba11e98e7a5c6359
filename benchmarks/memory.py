"""What memory does a long text take? `python benchmarks/memory.py`

Peak of a process that reads a text, tokenises it and plans its windows, above the same with a text of 100 kB, for each byte of text. At 5.1
bytes of memory a byte, a text of 200 MB takes 1 GiB. The peer is one call of the tokenizer with the offsets of its tokens."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from alternate import figures, machine


def write(path, n_bytes):
    rng = np.random.default_rng(0)
    words = np.array(
        ["".join(rng.choice(list("etaoinshrdlu"), rng.integers(1, 9))) for _ in range(20_000)]
    )
    with open(path, "w", encoding="utf-8") as file:
        k = size = 0
        while size < n_bytes:
            text = (
                f"{k} “"
                + " ".join(
                    words[(20_000 * rng.random(rng.integers(20, 400)) ** 3).astype(int)]
                )
                + ".”"
            )
            size += file.write(
                json.dumps({"text": text}, ensure_ascii=False) + "\n"
                if path.suffix == ".jsonl"
                else text + "\n\n"
            )
            k += 1


def one(way, path):
    "Peak resident memory of this process, MiB."
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from invar_nb.models.text import read_documents
    from invar_nb.models.text_plan import plan_text

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with open(path, encoding="utf-8") as file:
        sample = file.read(50_000)
    words.train_from_iterator(
        [sample],
        trainers.BpeTrainer(
            vocab_size=600,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    if way == "whole":
        tokenizer(
            Path(path).read_text(encoding="utf-8"), return_offsets_mapping=True, verbose=False
        )
    else:
        plan_text(tokenizer, read_documents(path), max_length=1024)
    with open("/proc/self/status", encoding="ascii") as file:
        print(
            next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
        )  # ru_maxrss begins at the parent's


def slope(way, suffix, n_bytes, folder):
    peaks = []
    for n in (100_000, n_bytes):
        write(folder / f"text{suffix}", n)
        run = subprocess.run(
            [sys.executable, __file__, "--one", way, folder / f"text{suffix}"],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(float(run.stdout.split()[-1]))
    return (peaks[1] - peaks[0]) * 2**20 / (n_bytes - 100_000)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--mb", type=int, default=40, help="size of the text")
    p.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        return one(*a.one)
    machine("transformers", "tokenizers", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        figures(
            f"bytes of memory for a byte of text, {a.mb} MB",
            {
                "one text, read and planned": (
                    slope("plan", ".txt", a.mb * 10**6, folder),
                    "<= 5.1",
                ),
                "lines of .jsonl, read and planned": (
                    slope("plan", ".jsonl", a.mb * 10**6, folder),
                    "<= 5.1",
                ),
                "peer: the tokenizer's own answer, 4 MB": (
                    slope("whole", ".txt", 4 * 10**6, folder),
                    "",
                ),
            },
        )


if __name__ == "__main__":
    main()
