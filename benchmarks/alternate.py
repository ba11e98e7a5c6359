"""Ratios of alternating runs: A B A B ..., one ratio a round, their median. Seconds depend on the machine and on its other
work; ratios taken inside one round depend on them much less. Not a test: nothing here passes or fails, a target that is not reached
is printed as `missed`.

    runs = {"ours": ours, "limit": limit, "a peer": peer("arch", lambda: ...)}
    machine("numpy", "arch")
    table("what is timed", alternate(runs, 5), "limit", {"ours": "<= 1.1"})
    figures("memory, MiB", {"ours": (80, "<= 100"), "a peer": (504, "")})"""

import importlib.util
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np


def installed(package):
    return importlib.util.find_spec(package) is not None


def peer(package, call):
    "The run, or None where its package is not installed: its row then says so."
    return call if installed(package) else None


def cpu_seconds():
    "Seconds of the processor that this process and the programs it ran have taken; on a busy machine less depends on others."
    spent = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(each.ru_utime + each.ru_stime for each in spent)


def peak_memory(arguments):
    "What a Python process with these arguments prints last, MiB: its own peak, which a process that did more before cannot have."
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    return float(done.stdout.split()[-1])


def alternate(runs, rounds, clock=time.perf_counter):
    """{name: callable or None} -> {name: [seconds of each round]}; every round runs each once, in turn, after one round nobody counts.
    The clock is the wall's, or `cpu_seconds`."""
    seconds = {name: [] for name in runs}
    for k in range(rounds + 1):
        for name, call in runs.items():
            if call is None:
                continue
            began = clock()
            call()
            if k:
                seconds[name].append(clock() - began)
    return seconds


def judged(value, target):
    "The target (`<= 4`, `>= 15` or any words) and, where it is a bound that does not hold, `missed`."
    sign, bound, *_ = (*target.split(), "", "")
    reached = {"<=": lambda: value <= float(bound), ">=": lambda: value >= float(bound)}.get(
        sign, lambda: True
    )()
    return target if reached else f"{target}  missed"


def table(title, seconds, reference, targets=None, *, speedup=False):
    """Print each run's median and the median of its per-round ratios to the reference: run / reference, or with `speedup` reference / run.
    `targets` holds `<= 1.1` or `>= 15` for such a ratio."""
    print(
        f"\n{title}\n  {'way':58s} {'median ms':>11s} {'times faster' if speedup else 'ratio':>12s}  target",
        flush=True,
    )
    for name, times in seconds.items():
        if not times:
            print(f"  {name:58s} {'not installed':>11s}")
            continue
        ratio = statistics.median(
            b / a if speedup else a / b for a, b in zip(times, seconds[reference], strict=True)
        )
        print(
            f"  {name:58s} {1000 * statistics.median(times):11.2f} {ratio:12.2f}  {judged(ratio, (targets or {}).get(name, ''))}",
            flush=True,
        )


def figures(title, rows):
    "Print what is no time: {name: (value, target)}; the value may be None (not installed) or words."
    print(f"\n{title}\n  {'way':58s} {'value':>24s}  target")
    for name, (value, target) in rows.items():
        number = isinstance(value, (int, float))
        shown = "not installed" if value is None else f"{value:.4g}" if number else str(value)
        print(
            f"  {name:58s} {shown:>24s}  {judged(value, target) if number else target}",
            flush=True,
        )


def best(call, rounds=5):
    "The shortest of some calls, in seconds: a limit is what the machine can do."
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def limits():
    "{what: figure}: what memory and the arithmetic units of this machine give now, in about half a second."
    data, a = np.ones(2**25), np.ones((1024, 1024), np.float32)
    b, out = np.ones_like(a), np.empty_like(a)
    return {
        "memory read, GB/s": data.nbytes / best(data.sum) / 1e9,
        "memory copy (bytes read), GB/s": data.nbytes / best(data.copy, 3) / 1e9,
        "product of fp32 matrices, GFLOP/s": 2
        * 1024**3
        / best(lambda: np.matmul(a, b, out=out))
        / 1e9,
    }


def machine(*packages):
    "What the numbers were taken on, and the machine's limits now."
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        + ", ".join(f"{p} {version(p)}" for p in packages)
        + f"; load {os.getloadavg()[0]:.1f}"
    )
    print(
        "limits now: " + ", ".join(f"{name} {value:.0f}" for name, value in limits().items()),
        flush=True,
    )


def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
