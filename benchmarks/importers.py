"""What does it cost to read other programs' files? `python benchmarks/importers.py [--rows 200000] [table ...]`

Each format against the plainest correct reader of the same bytes: csv.DictReader and float, json.loads of each line, columns of pyarrow. Ratios of
medians of alternating runs, at most 3 is asked for. Each function below writes its files into a folder and returns
{name: (our reader, the plain one)}; `python benchmarks/importers.py plain` runs one of them."""
import argparse
import csv
import json
import os
import tempfile
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy is imported

import numpy as np  # noqa: E402
from alternate import alternate, machine, table  # noqa: E402


def plain(folder, n):
    "Tables without a header of ours: losses with tokens and documents."
    import pyarrow
    import pyarrow.parquet as parquet

    from invar_nb.files.plain_table import read_plain
    rng = np.random.default_rng(0)
    rows = [{"id": f"q{i:06d}", "loss": x, "tokens": t, "document_id": f"d{i % 57}"}
            for i, (x, t) in enumerate(zip(rng.gamma(9, .3, n).tolist(), rng.integers(20, 200, n).tolist(), strict=True))]
    with open(folder / "x.csv", "w", newline="") as file:
        out = csv.DictWriter(file, rows[0])
        out.writeheader()
        out.writerows(rows)
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "x.parquet")

    def columns(rows):
        return ([r["id"] for r in rows], [r["document_id"] for r in rows], np.array([float(r["loss"]) for r in rows]),
                np.array([int(r["tokens"]) for r in rows]))

    def from_csv():
        with open(folder / "x.csv", newline="") as file: return columns(list(csv.DictReader(file)))

    def from_jsonl():
        with open(folder / "x.jsonl") as file: return columns([json.loads(line) for line in file])

    def from_parquet():
        t = parquet.read_table(folder / "x.parquet")
        return t["id"].to_pylist(), t["document_id"].to_pylist(), t["loss"].to_numpy(), t["tokens"].to_numpy()
    ours = lambda suffix: lambda: read_plain(folder / f"x{suffix}")
    return {"plain table, CSV": (ours(".csv"), from_csv), "plain table, JSONL": (ours(".jsonl"), from_jsonl),
            "plain table, Parquet": (ours(".parquet"), from_parquet)}


FORMATS = {"plain": plain}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("formats", nargs="*", default=list(FORMATS), help=", ".join(FORMATS))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    machine("numpy", "pyarrow")
    for name in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            for title, (ours, reference) in FORMATS[name](Path(folder), options.rows).items():
                table(f"{title}, {options.rows} rows", alternate({"plainest reader": reference, "this package": ours}, options.rounds),
                      "plainest reader", {"this package": "at most 3"})


if __name__ == "__main__":
    main()
