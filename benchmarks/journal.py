"""What does a record cost that survives a kill, or a power cut? `python benchmarks/journal.py`

A record is what scoring keeps of a batch: eight mean losses. The journal hands each to the system at once and waits for the disk once a
second; the peers are a line of JSON without and with an fsync, and SQLite as it comes, which waits for the disk at each record."""
import argparse
import json
import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from alternate import alternate, figures, machine, table

from invar_nb.foundations.journal import Journal

RECORDS = 200
VALUE = (np.random.default_rng(0).gamma(9, .3, 8)).tolist()


def ways(folder):
    journal, lines, count = Journal(folder / "a", {"key": 1}), open(folder / "lines", "ab", 0), iter(range(10 ** 9))
    link = sqlite3.connect(folder / "plain", isolation_level=None)
    link.execute("CREATE TABLE record (name TEXT PRIMARY KEY, value TEXT)")

    def put():
        for _ in range(RECORDS): journal.put(f"batch {next(count)}", VALUE)

    def line(wait):
        for _ in range(RECORDS):
            lines.write(json.dumps([f"batch {next(count)}", VALUE]).encode() + b"\n")
            if wait: os.fsync(lines.fileno())

    def plain():
        for _ in range(RECORDS): link.execute("INSERT INTO record VALUES (?, ?)", (f"batch {next(count)}", json.dumps(VALUE)))
    return journal, {"journal (kill: nothing lost, power cut: one second)": put, "a line of JSON (kill: nothing, power cut: anything)": lambda: line(False),
                     "a line of JSON and fsync": lambda: line(True), "SQLite as it comes": plain}


def flush_seconds(journal, n=20):
    times = []
    for k in range(n):
        journal.put(f"flush {k}", VALUE)
        began = time.perf_counter()
        journal.flush()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--folder", help="on the disk to be measured")
    a = p.parse_args()
    machine("numpy")
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        journal, runs = ways(Path(folder))
        seconds = alternate(runs, a.rounds)
        table(f"{RECORDS} records, ratio to a line of JSON with fsync", seconds, "a line of JSON and fsync", {next(iter(runs)): "<= 0.25"})
        one, wait = statistics.median(seconds[next(iter(runs))]) / RECORDS, flush_seconds(journal)
        figures("what scoring pays", {"one record, us": (1e6 * one, ""), "waiting for the disk, once a second, ms": (1e3 * wait, ""),
                                      "share of the time of batches of 100 ms, %": (100 * (one / .1 + wait), "<= 2")})
        journal.close()


if __name__ == "__main__": main()
