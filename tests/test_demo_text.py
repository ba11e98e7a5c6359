"The demo's text: each passage once, sorted, nothing of the manual; and the losses of the demo's edits on it, for the coverage on real losses."

import subprocess
import sys

import numpy as np
import pytest

from invar_nb import page_data
from invar_nb.foundations.refuse import ContractError
from invar_nb.models.demo_text import demo_documents, library_modules, text_runs

LOSSES = page_data("docstring_losses.npz")


def library(folder, **docstrings):
    for name, text in docstrings.items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""{text}"""\nimport nothing_that_exists\n', encoding="utf-8")
    return folder


def words(k, n=40):
    return " ".join(f"w{k}n{i}" for i in range(n))


def test_a_passage_counts_once(tmp_path):
    "A copy in a later module goes, a copy of what is known goes, the rest of the document stays; short rests are dropped."
    many = {f"m{k:02d}": words(k) for k in range(30)}
    folder = library(
        tmp_path,
        **many,
        z1=f"{words(3)}\n\n{words(100)}",
        z2=words(4),
        z3=f"{words(200)}\n\n{words(201)}",
    )
    ids, texts = demo_documents(library_modules(folder), known=text_runs(words(200)))
    found = dict(zip(ids, texts, strict=True))
    assert (
        found["z1"] == words(100)
        and "z2" not in found
        and found["z3"] == words(201)
        and found["m03"] == words(3)
    )
    assert len(found) == 32


def test_modules_of_packages_without_the_tests_of_the_library(tmp_path):
    assert list(
        library_modules(
            library(tmp_path, **{"a": "x", "pack.__init__": "x", "pack.b": "x", "test.c": "x"})
        )
    ) == ["a", "pack", "pack.b"]
    assert text_runs("short") == set() and text_runs("a  b\n\tc", 3) == {"a b", " b ", "b c"}


def test_a_library_without_source_is_refused(tmp_path):
    with pytest.raises(ContractError, match="full CPython"):
        demo_documents(library_modules(library(tmp_path, a=words(1))), known=set())


def test_no_module_is_run_and_nothing_heavy_is_loaded():
    code = (
        "import sys; from invar_nb.models.demo_text import demo_documents; demo_documents(); "
        "print([m for m in ('torch', 'scipy', 'turtle', 'antigravity') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_losses_of_the_demo_edits():
    "The shipped file is what scoring gave: one row a window, at least 60 effective documents, finite losses."
    with np.load(LOSSES) as data:
        names, document, tokens = data["document_ids"], data["document"], data["tokens"]
        losses = {name: data[name] for name in ("base", "int8", "int4", "tuned")}
    sizes = np.bincount(document, weights=tokens)
    assert (
        sizes.size == names.size
        and (np.diff(document) >= 0).all()
        and sizes.sum() ** 2 / (sizes**2).sum() >= 60
    )
    assert all(v.shape == tokens.shape and np.isfinite(v).all() for v in losses.values())
    total = {name: (v * tokens).sum() / tokens.sum() for name, v in losses.items()}
    assert (
        total["tuned"] < total["base"] < total["int4"]
        and abs(total["int8"] - total["base"]) < 0.02
    )
