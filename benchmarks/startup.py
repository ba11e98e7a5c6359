"""What does it cost to start, and when does a command say its first line? `python benchmarks/startup.py`

Fresh processes, alternating. The limit is an empty Python; the peers are what a user would import instead. A command is timed from its
start to its first line, which says what is being loaded, and then ended: on stderr, for --help on stdout."""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from alternate import alternate, figures, installed, machine, table

SCRIPT, MODELS = (
    Path(sys.executable).parent / "invar-nb",
    Path(__file__).parents[1] / "invar_nb" / "demo_models",
)
PAIRS = "from invar_nb import compare, pair_arrays; compare(pair_arrays([3.1, 3.2, 3.0], [3.2, 3.1, 3.1], [9, 9, 9]))"


def process(*command):
    def call():
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    return call


def python(code):
    return process(sys.executable, "-c", code)


def commands(folder):
    "Each as a user types it."
    for name, add in (("a", 0), ("b", 1)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(
                [
                    ("seed", "terminal", "loss"),
                    *((seed, "ok", 2 + (seed + add) % 3 / 10) for seed in range(5)),
                ]
            )
    (folder / "text.txt").write_text("The cat sat on the mat. " * 200)
    (folder / "answers.jsonl").write_text(
        "".join(
            f'{{"id": "q{i}", "label": "a", "probabilities": {{"a": 0.{i + 1}, "b": 0.{9 - i}}}}}\n'
            for i in range(8)
        )
    )
    runs = ["compare", "a.csv", "b.csv", "--metric", "loss", "--better", "lower"]
    subprocess.run(
        [SCRIPT, *runs, "--out", "kept"], cwd=folder, check=False, capture_output=True
    )
    return {
        "compare, two models": [
            "compare",
            MODELS / "base",
            MODELS / "tuned",
            "--text",
            "text.txt",
        ],
        "score": ["score", MODELS / "base", "--text", "text.txt", "--out", "x.jsonl"],
        "runs": runs,
        "evaluate": ["evaluate", "answers.jsonl"],
        "verify": ["verify", "kept"],
        "--help": ["--help"],
    }


def first_line(command, folder):
    "Seconds from the start of a process to its first line."
    began, help_ = time.perf_counter(), command[-1] == "--help"
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        line = (process.stdout if help_ else process.stderr).readline()
        seconds = time.perf_counter() - began
        process.kill()
    assert help_ or line.startswith(b"invar-nb "), line
    return seconds


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    machine("numpy", "scipy", "typer", "torch")
    runs = {
        "import numpy": python("import numpy"),
        "python -c pass (the limit)": python("pass"),
        "import invar_nb": python("import invar_nb"),
        "an interval from arrays": python(PAIRS),
        "import scipy.stats": python("import scipy.stats"),
        "import typer": python("import typer"),
    }
    for package in ("torch", "transformers"):
        runs[f"import {package}"] = python(f"import {package}") if installed(package) else None
    table(
        "start-up, ratio to `import numpy`",
        alternate(runs, a.rounds),
        "import numpy",
        {"import invar_nb": "<= 1"},
    )
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        there = commands(folder)
        seconds = {name: [] for name in there}
        for k in range(a.rounds + 1):
            for name, words in there.items():
                found = first_line([SCRIPT, *map(str, words)], folder)
                if k:
                    seconds[name].append(found)
        figures(
            f"from the start of a command to its first line, ms (median of {a.rounds}; load {os.getloadavg()[0]:.1f})",
            {
                name: (1000 * statistics.median(times), "<= 500")
                for name, times in seconds.items()
            },
        )


if __name__ == "__main__":
    main()
