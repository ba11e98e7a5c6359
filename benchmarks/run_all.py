"""Every benchmark, one after the other, each in a process of its own: `make bench`, or `python benchmarks/run_all.py [name ...]`

At the end: seconds of each script, and every target that was missed. Nothing else should run on the machine meanwhile."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ARGUMENTS = {
    "scoring": ["--memory"],
    "divergence": ["--memory"],
}  # what a script is run with, beside its defaults


def names():
    return sorted(p.stem for p in HERE.glob("*.py") if p.stem not in ("alternate", "run_all"))


def run(name):
    "Run one script and pass its lines on: (seconds, exit status, its lines)."
    began, lines = time.perf_counter(), []
    command = [sys.executable, "-u", HERE / f"{name}.py", *ARGUMENTS.get(name, ())]
    print(f"\n=== {name}", flush=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return time.perf_counter() - began, process.returncode, lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("names", nargs="*", help=", ".join(names()))
    done = {name: run(name) for name in p.parse_args().names or names()}
    print(f"\n=== all: {sum(seconds for seconds, _, _ in done.values()) / 60:.1f} minutes")
    for name, (seconds, status, lines) in done.items():
        print(
            f"  {name:14s} {seconds:6.0f} s"
            + (f"  ended with status {status}" if status else "")
        )
        for line in lines:
            if line.endswith("  missed"):
                print(f"    {line.strip()}")
    sys.exit(any(status for _, status, _ in done.values()))


if __name__ == "__main__":
    main()
