"A report written with the kernels of one processor verifies with those of every other; a change of a millionth is refused by all."

import itertools

import processors
import pytest

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


def refused(environment, folders):
    "What a processor says against reports of others."
    return processors.run(
        environment, "-c", VERIFY, *folders, check=True, capture_output=True, text=True
    ).stdout


def written(sets, root):
    for name, environment in sets.items():
        processors.run(environment, "-c", WRITE, root / name, check=True)
    return {name: root / name for name in sets}


def test_reports_of_every_kind_verify_with_the_lowest_kernels_and_back(tmp_path):
    sets = processors.kernel_sets()
    sets = {name: sets[name] for name in (list(sets)[0], list(sets)[-1])}
    folders = written(sets, tmp_path)
    for here, there in itertools.permutations(sets):
        assert refused(sets[here], [folders[there]]) == ""


@pytest.mark.slow
def test_reports_of_every_kernel_set_verify_with_all_others(tmp_path):
    sets = processors.distinct_sets()
    folders = written(sets, tmp_path)
    for here in sets:
        assert refused(sets[here], [folders[there] for there in sets if there != here]) == ""
