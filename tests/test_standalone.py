"Pages that left their repository: copies run in an empty folder, on the package of a wheel."

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pages
import pytest
from build_site import address
from standalone import Home, standalone

ROOT = Path(__file__).parents[1]
HOME = Home("https://example.org/docs/", "https://example.org/code", "main")
COPIES = (
    "coverage",
    "errors-in-the-literature",
    "guides/lm_eval_results",
    "guides/which_quant",
    "statistics/01_jackknife",
    "tutorials/five_minutes",
)


def alone(page):
    "The copy of a page, as the site offers it."
    notebook = json.loads((ROOT / "nbs" / page).read_text(encoding="utf-8"))
    return standalone(notebook, page, address, HOME)


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    "The folder of an installed wheel, built from what git tracks."
    work = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "invar_nb", "*.py", "*.in", "*.ini"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for name in [*tracked, "pyproject.toml", "README.md", "LICENSE"]:
        if (ROOT / name).exists():
            (work / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, work / "source" / name)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(work)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", build],
        cwd=work / "source",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        wheel.extractall(work / "installed")
    return work / "installed"


@pytest.mark.parametrize("page", COPIES)
def test_a_copy_runs_in_an_empty_folder(page, installed, tmp_path, monkeypatch):
    copied = nbformat.from_dict(alone(f"{page}.ipynb"))
    where = f"import invar_nb; assert invar_nb.__file__.startswith({str(installed)!r})"
    copied.cells.insert(1, nbformat.v4.new_code_cell(where))
    nbformat.write(copied, tmp_path / "page.ipynb")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    os.chdir(tmp_path)
    try:
        pages.run(tmp_path / "page.ipynb", warm=False)
    except pages.PageError as error:
        if error.needs_torch and os.environ.get("INVAR_NB_TORCH") != "yes":
            pytest.skip("needs PyTorch")
        raise


def test_a_copy_leads_to_the_site():
    text = json.dumps(alone("guides/lm_eval_results.ipynb"))
    assert f"]({HOME.site}" in text
    assert "](../" not in text
    assert ".ipynb)" not in text


@pytest.mark.parametrize(
    "page, extras",
    [("coverage", "pages"), ("tutorials/train_demo", "pages,hf,gguf")],
)
def test_a_copy_installs_what_it_uses(page, extras):
    first = alone(f"{page}.ipynb")["cells"][0]["source"]
    assert f'"invar_nb[{extras}] @ git+https://example.org/code@main"' in first


def test_a_picture_is_taken_from_its_bytes_and_a_sheet_scores_no_model():
    copy = alone("guides/report_a_change.ipynb")
    text = "\n".join("".join(cell["source"]) for cell in copy["cells"])
    assert "https://example.org/code/raw/main/nbs/images/sheet.svg" in text
    assert "/blob/main/nbs/images/" not in text
    assert "invar_nb[pages] @" in copy["cells"][0]["source"]
