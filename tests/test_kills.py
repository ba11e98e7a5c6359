"Nothing is lost when a process dies, or the disk is full: see tools/attacks.py, which also runs by itself."

import os
import subprocess
import sys
from pathlib import Path

import pytest

from invar_nb.arms.window_losses import WindowLosses
from invar_nb.files.losses import write_losses

FULL = """import resource, sys
from invar_nb.shell.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.exit(main(sys.argv[2:]))"""


def test_a_report_on_a_full_disk_leaves_the_old_one_and_one_line(tmp_path):
    for name, shift in (("a", 0), ("b", 0.1)):
        write_losses(
            WindowLosses.from_arrays(
                [f"w{i}" for i in range(40)],
                [9] * 40,
                [2 + shift + i % 7 / 10 for i in range(40)],
                model=name,
            ),
            tmp_path / f"{name}.jsonl",
        )

    def compare(limit, *words):
        root = str(Path(__file__).parents[1])
        r = subprocess.run(
            [sys.executable, "-c", FULL, str(limit), "compare", *words, "--out", "r", "-q"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        return r.returncode, r.stderr

    files = lambda: {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    assert compare(10**9, "a.jsonl", "a.jsonl")[0] == 0
    old = files()
    code, said = compare(9000, "a.jsonl", "b.jsonl", "--force")
    assert code == 5 and said.count("\n") == 1 and "Check the disk" in said, said
    assert files() == old and sorted(os.listdir(tmp_path)) == ["a.jsonl", "b.jsonl", "r"]


@pytest.mark.slow
@pytest.mark.parametrize("attack, n", [("kills", 200), ("faults", 200)])
def test_commands_that_are_killed_or_cannot_write(attack, n, tmp_path):
    pytest.importorskip("torch")
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).parents[1] / "tools/attacks.py",
            attack,
            "--n",
            str(n),
            "--seed",
            "17",
            "--table",
            tmp_path / "t.csv",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
