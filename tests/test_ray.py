"""Ray itself: the tests of tests/on_ray.py, run by the Python that INVAR_NB_RAY names; without it one is made for the test."""

import os
import subprocess
from pathlib import Path

import pytest
from real_tools import python_with

HERE = Path(__file__).parent


@pytest.mark.slow
def test_shards_on_a_real_ray(tmp_path):
    python = python_with(
        "INVAR_NB_RAY",
        tmp_path / "venv",
        f"{HERE.parent}[hf,arrow,ray]",
        "pytest",
        "hypothesis",
    )
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [python, "-m", "pytest", "-s", HERE / "on_ray.py"],
        cwd=HERE.parent,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    assert (
        done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout
    ), done.stdout[-3000:]
