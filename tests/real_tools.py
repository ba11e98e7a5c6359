"A Python that has another tool: the one that an environment variable names, else one made for the test."

import os
import subprocess
import sys


def python_with(variable, folder, *packages):
    if python := os.environ.get(variable):
        return python
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    for wanted in (["torch==2.13.0"], packages):
        subprocess.run(
            [python, "-m", "pip", "install", "-q", *wanted], check=True
        )  # torch first: others would take another build
    return python
