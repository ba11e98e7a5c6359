"""What does it cost to start? `python benchmarks/startup.py`

Fresh processes, alternating. The limit is an empty Python; the peers are what a user would import instead."""
import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from alternate import alternate, machine, table

SCRIPT = Path(sys.executable).parent / "invar-nb"


def process(*command):
    def call(): subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return call


def python(code): return process(sys.executable, "-c", code)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=7)
    a = p.parse_args()
    machine("numpy", "scipy", "typer", "torch")
    pairs = "from invar_nb import compare, pair_arrays; compare(pair_arrays([3.1, 3.2, 3.0], [3.2, 3.1, 3.1], [9, 9, 9]))"
    runs = {"import numpy": python("import numpy"), "python -c pass (the limit)": python("pass"), "import invar_nb": python("import invar_nb"),
            "invar-nb --help": process(SCRIPT, "--help"), "an interval from arrays": python(pairs), "import scipy.stats": python("import scipy.stats")}
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package): runs[f"import {package}"] = python(f"import {package}")
    if not SCRIPT.exists(): runs.pop("invar-nb --help")
    table("start-up, ratio to `import numpy`", alternate(runs, a.rounds), "import numpy",
          {"import invar_nb": "<= 1", "invar-nb --help": "<= 4"})


if __name__ == "__main__": main()
