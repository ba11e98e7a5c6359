"""What every test shares: the choice about PyTorch said out loud, and the time of each page.

INVAR_NB_TORCH=yes (set by the Makefile on Python 3.11): a missing PyTorch stops the run, nothing is skipped for it.
INVAR_NB_TORCH=no: whatever needs PyTorch is named in the summary as NOT RUN. Unset: yes if it is installed."""

import gc
import importlib.util
import itertools
import os

import pages  # noqa: F401  (it hides GPUs: stored outputs and the tests' own models are a CPU's)
import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
WANTED = os.environ.get("INVAR_NB_TORCH", "yes" if HAS_TORCH else "no")
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs torch")


def pytest_configure(config):
    if WANTED == "yes" and not HAS_TORCH:
        raise pytest.UsageError(
            "INVAR_NB_TORCH=yes, but PyTorch is not installed: run `make test`, or `make TORCH=no test` to go without."
        )


def pytest_collection_modifyitems(items):
    "Pages first, tutorials and the two longest tests before all, so that no long test is left to one worker at the end."
    long = (
        "[tutorials/",
        "::test_site_builds_without_a_warning",
        "::test_every_edited_leaf_is_refused[joint]",
    )
    items.sort(
        key=lambda item: (
            0
            if any(part in item.nodeid for part in long)
            else 1
            if "::test_page_" in item.nodeid
            else 2
        )
    )


def pytest_collection_finish(session):
    "What was collected lives to the end: no later search for garbage looks at it (statsmodels asks for one in each of its tests)."
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    t = terminalreporter
    reports = [r for key in ("passed", "failed", "skipped") for r in t.stats.get(key, [])]
    timed = sorted(
        {
            (k, v)
            for r in reports
            for k, v in getattr(r, "user_properties", ())
            if k.startswith("page ")
        },
        key=lambda kv: -float(kv[1]),
    )
    if timed:
        t.section("pages (seconds each)")
        for name, seconds in timed:
            t.write_line(f"{float(seconds):7.1f}  {name.removeprefix('page ')}")
    uncompared = [
        str(r.longrepr[2])
        for r in t.stats.get("skipped", [])
        if "not compared" in str(r.longrepr)
    ]
    if uncompared:
        t.section("NOT COMPARED", sep="!", yellow=True, bold=True)
        for reason in uncompared:
            t.write_line(reason.removeprefix("Skipped: "))
    missed = [r for r in t.stats.get("skipped", []) if "torch" in str(r.longrepr).lower()]
    if missed:
        t.section("NOT RUN: PyTorch is not installed", sep="!", red=True, bold=True)
        for name in sorted({r.nodeid for r in missed}):
            t.write_line(f"NOT RUN  {name}")
        t.write_line(
            f"{len(missed)} checks were not run. Python 3.11 with `make test` runs them."
        )


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    "Where the caches lie, and their numbers; pytest would read the folder to count them."
    return tmp_path_factory.mktemp("caches"), itertools.count()


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch):
    "Each test has a cache of its own, empty at first: nothing is reused between tests."
    folder, numbers = caches
    cache = folder / str(next(numbers))
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
