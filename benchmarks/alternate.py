"""Ratios of alternating runs: A B A B ..., one ratio a round, their median. Seconds depend on the machine and on its other
work; ratios taken inside one round depend on them much less. Not a test: nothing here passes or fails."""
import os
import platform
import statistics
import time
from importlib import metadata


def alternate(runs, rounds):
    "{name: callable} -> {name: [seconds of each round]}; every round runs each once, in turn, after one round nobody counts."
    seconds = {name: [] for name in runs}
    for k in range(rounds + 1):
        for name, call in runs.items():
            began = time.perf_counter()
            call()
            if k: seconds[name].append(time.perf_counter() - began)
    return seconds


def table(title, seconds, reference, goals=None):
    "Print each run's median and the median of its per-round ratios to the reference."
    print(f"\n{title}")
    print(f"  {'run':44s} {'median ms':>11s} {'ratio':>9s}  goal")
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds[reference], strict=True)]
        print(f"  {name:44s} {1000 * statistics.median(times):11.2f} {statistics.median(ratios):9.2f}  {(goals or {}).get(name, '')}")


def machine(*packages):
    "What the numbers were taken on."
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
          + ", ".join(f"{p} {version(p)}" for p in packages) + f"; load {os.getloadavg()[0]:.1f}")


def version(package):
    try: return metadata.version(package)
    except metadata.PackageNotFoundError: return "not installed"
