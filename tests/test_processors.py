"A report written with the kernels of one processor verifies with those of every other; a change of a millionth is refused by all."

import processors
import pytest
from studies import STUDIES

from invar_nb import verify

WRITE = """import sys; sys.path.insert(0, "tests")
from studies import STUDIES
for k, make in enumerate(STUDIES.values()): make().report().save(f"{sys.argv[1]}/{k}")"""
VERIFY = """import sys; sys.path.insert(0, "tests")
from invar_nb import verify
from studies import STUDIES
for folder in sys.argv[1:]:
    for k, name in enumerate(STUDIES):
        try: verify(f"{folder}/{k}")
        except ValueError as error: print(folder, name, error)"""

EXCHANGE = """import sys; sys.path[:0] = ["tests", "tools"]
from pathlib import Path
from test_processors import save_reports
from invar_nb import verify
here, there, *names = sys.argv[1:]
for name in names:
    try: verify(f"{here}/{name}")
    except ValueError as error: print(name, error)
save_reports(Path(there), names)"""


def refused(environment, folders):
    "What a processor says against reports of others."
    return processors.run(
        environment, "-c", VERIFY, *folders, check=True, capture_output=True, text=True
    ).stdout


def written(sets, root):
    for name, environment in sets.items():
        processors.run(environment, "-c", WRITE, root / name, check=True)
    return {name: root / name for name in sets}


FEW = ("bootstrap", "looks", "answers", "translations", "pooled", "runs of several")


def save_reports(folder, names):
    for name in names:
        STUDIES[name]().report().save(folder / name)


def test_reports_verify_with_the_lowest_kernels_and_back(tmp_path):
    "A few kinds, whose numbers come about in different ways; the slow run has every kind."
    lowest = [*processors.kernel_sets().values()][-1]
    here, there = tmp_path / "own", tmp_path / "lowest"
    save_reports(here, FEW)
    done = processors.run(
        lowest, "-c", EXCHANGE, here, there, *FEW, check=True, capture_output=True, text=True
    )
    assert done.stdout == ""
    for name in FEW:
        verify(there / name)


@pytest.mark.slow
def test_reports_of_every_kernel_set_verify_with_all_others(tmp_path):
    sets = processors.distinct_sets()
    folders = written(sets, tmp_path)
    for here in sets:
        assert refused(sets[here], [folders[there] for there in sets if there != here]) == ""
