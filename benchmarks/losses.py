"""What does it cost to read, check, compare and verify loss files? `python benchmarks/losses.py [--windows 200000] [--large 1000000]`

Reading is set against the plainest reader of the same bytes: of Parquet `pyarrow.parquet.read_table` and `to_numpy` of every column, ids as an array
of Python strings; of JSON lines `json.loads` of each line into one list a column. Neither checks anything; ours check every cell, that ids are unique,
and the digest. `invar-nb compare` and `verify` are set against two of those plain reads of Parquet; the report is written, with its evidence."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"
)  # before numpy is imported

import numpy as np  # noqa: E402
from alternate import alternate, machine, table  # noqa: E402
from pyarrow import parquet  # noqa: E402

from invar_nb import WindowLosses, open_losses, read_losses, write_losses  # noqa: E402


def write(folder, n, endings=(".parquet", ".jsonl")):
    "Two arms of n windows, twenty a document, with the names that plans give."
    rng, document = np.random.default_rng(0), np.arange(n) // 20
    ids = [
        f"{d}:{128 * (i % 20)}-{128 * (i % 20) + 128}" for i, d in enumerate(document.tolist())
    ]
    tokens, loss = rng.integers(60, 129, n), rng.gamma(9, 0.3, n)
    for name, values in (
        ("base", loss),
        ("cand", np.maximum(loss + rng.normal(0.001, 0.05, n), 0)),
    ):
        arm = WindowLosses.from_arrays(
            ids, tokens, values, document_ids=document, model=name, data_id="text"
        )
        for ending in endings:
            write_losses(arm, folder / f"{name}{ending}")


def plain_parquet(path):
    return {
        name: column.to_numpy()
        for name, column in (lambda t: zip(t.column_names, t.columns, strict=True))(
            parquet.read_table(path)
        )
    }


def plain_jsonl(path):
    with open(path) as file:
        next(file)
        rows = [json.loads(line) for line in file]
    return {name: [row[name] for row in rows] for name in rows[0]}


def in_batches(path):
    return sum(len(batch["tokens"]) for batch in open_losses(path).batches())


def read(folder, n, rounds):
    write(folder, n)
    for ending, plain, goal in ((".parquet", plain_parquet, 4), (".jsonl", plain_jsonl, 2)):
        path = folder / f"base{ending}"
        table(
            f"reading {n} windows, {ending}",
            alternate(
                {
                    "plainest reader": lambda: plain(path),
                    "read_losses, all checked": lambda: read_losses(path),
                    "open_losses(...).batches()": lambda: in_batches(path),
                },
                rounds,
            ),
            "plainest reader",
            {
                "read_losses, all checked": f"<= {goal}",
                "open_losses(...).batches()": f"<= {goal}",
            },
        )


def compare(folder, n, rounds):
    from invar_nb.shell.cli import main as shell

    write(folder, n, (".parquet",))
    base, cand, out = (folder / name for name in ("base.parquet", "cand.parquet", "report"))
    words = ["compare", str(base), str(cand), "--out", str(out), "--json", "--quiet"]

    def here(*words):
        with open(os.devnull, "w") as nowhere:
            old, sys.stdout = sys.stdout, nowhere
            try:
                assert shell(list(words)) == 0
            finally:
                sys.stdout = old

    def in_process():
        shutil.rmtree(out, ignore_errors=True)
        here(*words)

    def command():
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run(
            [sys.executable, "-m", "invar_nb", *words], check=True, stdout=subprocess.DEVNULL
        )

    table(
        f"comparing 2 x {n} windows, report and evidence written",
        alternate(
            {
                "two plainest reads": lambda: (plain_parquet(base), plain_parquet(cand)),
                "invar-nb compare, Python running": in_process,
                "invar-nb compare, a new process": command,
                "invar-nb verify, Python running": lambda: here(
                    "verify", str(out), "--json", "--quiet"
                ),
            },
            rounds,
        ),
        "two plainest reads",
        {
            "invar-nb compare, a new process": "<= 10",
            "invar-nb compare, Python running": "<= 10",
        },
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--windows", type=int, default=200_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    machine("numpy", "pyarrow")
    for run, n in ((read, options.windows), (compare, options.large)):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), n, options.rounds)


if __name__ == "__main__":
    main()
