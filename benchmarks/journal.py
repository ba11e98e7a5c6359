"""What does a record cost that survives a kill, or a power cut? `python benchmarks/journal.py`

A record is what scoring keeps of a batch: eight mean losses. The journal waits for the disk at each record; the peers are a line of JSON
without and with an fsync, and SQLite as it comes."""

import argparse
import json
import os
import sqlite3
import statistics
import tempfile
from pathlib import Path

import numpy as np
from alternate import alternate, figures, machine, table

from invar_nb.foundations.journal import Journal

RECORDS = 200
VALUE = (np.random.default_rng(0).gamma(9, 0.3, 8)).tolist()


def ways(folder):
    journal, lines, count = (
        Journal(folder / "a", {"key": 1}),
        open(folder / "lines", "ab", 0),
        iter(range(10**9)),
    )
    link = sqlite3.connect(folder / "plain", isolation_level=None)
    link.execute("CREATE TABLE record (name TEXT PRIMARY KEY, value TEXT)")

    def put():
        for _ in range(RECORDS):
            journal.put(f"batch {next(count)}", VALUE)

    def line(wait):
        for _ in range(RECORDS):
            lines.write(json.dumps([f"batch {next(count)}", VALUE]).encode() + b"\n")
            if wait:
                os.fsync(lines.fileno())

    def plain():
        for _ in range(RECORDS):
            link.execute(
                "INSERT INTO record VALUES (?, ?)", (f"batch {next(count)}", json.dumps(VALUE))
            )

    return journal, {
        "journal": put,
        "a line of JSON (kill: nothing, power cut: anything)": lambda: line(False),
        "a line of JSON and fsync": lambda: line(True),
        "SQLite as it comes": plain,
    }


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--folder", help="on the disk to be measured")
    a = p.parse_args()
    machine("numpy")
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        journal, runs = ways(Path(folder))
        seconds = alternate(runs, a.rounds)
        table(
            f"{RECORDS} records, ratio to SQLite as it comes",
            seconds,
            "SQLite as it comes",
            {"journal": "<= 1.3"},
        )
        one = statistics.median(seconds["journal"]) / RECORDS
        figures(
            "what scoring pays",
            {
                "one record, ms": (1e3 * one, ""),
                "share of the time of batches of 1 s, %": (100 * one, "<= 2"),
            },
        )
        journal.close()


if __name__ == "__main__":
    main()
