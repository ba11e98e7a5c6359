"""Damaged inputs of every reader: taken, or refused in one line; never a crash, never a long wait. 3,000 cases here, 100,000 in the slow suite."""

import contextlib
import resource
import shutil
import time
import warnings
from pathlib import Path

import fuzz
import pytest
from conftest import needs_torch
from frozen_inputs import write_inputs

import invar_nb
from invar_nb import (
    ContractError,
    UnitTotals,
    compare,
    compare_weights,
    evaluate,
    pair,
    read_losses,
    read_predictions,
    read_runs,
    verify,
    write_predictions,
)
from invar_nb.models.questions import read_examples
from invar_nb.models.text import read_documents
from invar_nb.readers.reader import Reading
from invar_nb.readers.recognise import read_arms
from invar_nb.shell.study_file import read_study

MODEL = Path(invar_nb.__file__).parent / "demo_models" / "base"
LONGEST = 10  # seconds of one case


def arms(**options):
    "Read, and measured where it was taken."

    def read(path):
        for arm in read_arms(path, Reading(**options)).values():
            evaluate(arm)

    return read


LM, NAME = (
    "samples_invar_choices_2026-11-22T22-05-50.271119.jsonl",
    "results_2026-11-22T22-05-50.271119.json",
)
READERS = {  # file or folder of the inputs, the file in the folder, how it is changed, who reads it
    "losses.jsonl": ("docs/base.jsonl", "", fuzz.change_lines, arms()),
    "losses.parquet": ("docs/base.parquet", "", fuzz.change_parquet, arms()),
    "sliced losses": ("sliced/base.jsonl", "", fuzz.change_lines, arms()),
    "answers.csv": ("answers/base.csv", "", fuzz.change_cells, arms()),
    "answers.jsonl": ("plain/base.jsonl", "", fuzz.change_lines, arms()),
    "answers.parquet": ("plain/base.parquet", "", fuzz.change_parquet, arms()),
    "own answers": ("kept.jsonl", "", fuzz.change_lines, arms()),
    "scores.csv": (
        "scores/base.csv",
        "",
        fuzz.change_cells,
        arms(id="doc", score="f1", better="higher"),
    ),
    "table.csv": (
        "tables/base.csv",
        "",
        fuzz.change_cells,
        arms(id="item", loss="nll", tokens="n"),
    ),
    "table.jsonl": (
        "tables/base.jsonl",
        "",
        fuzz.change_lines,
        arms(id="item", loss="nll", tokens="n"),
    ),
    "table.json": (
        "tables/base.json",
        "",
        fuzz.change_json,
        arms(id="item", loss="nll", tokens="n"),
    ),
    "table.parquet": (
        "tables/base.parquet",
        "",
        fuzz.change_parquet,
        arms(id="item", loss="nll", tokens="n"),
    ),
    "runs.csv": ("runs/base.csv", "", fuzz.change_cells, read_runs),
    "EEE": ("eee/base.jsonl", "", fuzz.change_lines, arms()),
    "lm-eval samples": ("lm/base", LM, fuzz.change_lines, arms(tasks=("invar_choices",))),
    "lm-eval results": ("lm/base", NAME, fuzz.change_json, arms(tasks=("invar_choices",))),
    "inspect.json": ("inspect/base/choices.json", "", fuzz.change_json, arms(score="choice")),
    "inspect.eval": ("choices.eval", "", fuzz.change_zip, arms(score="choice")),
    "logits": ("llama/base.kld", "", None, arms()),
    "log": ("llama/base.default.log", "", None, arms()),
    "type 1 log": ("llama/base.type1.log", "", None, arms()),
    "text.jsonl": ("text/a.jsonl", "", fuzz.change_lines, read_documents),
    "text.txt": ("text/a.txt", "", None, read_documents),
    "questions": ("text/questions.jsonl", "", fuzz.change_lines, read_examples),
    "study.toml": ("study.toml", "", None, read_study),
    "totals": ("totals.units", "", None, UnitTotals.read),
    "report.json": ("report", "report.json", fuzz.change_json, verify),
    "evidence": ("report", "baseline.jsonl", fuzz.change_lines, verify),
    "safetensors": (
        "model",
        "model.safetensors",
        fuzz.change_header,
        lambda path: compare_weights(path, MODEL),
    ),
    "config.json": (
        "model",
        "config.json",
        fuzz.change_json,
        lambda path: compare_weights(path, MODEL),
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    write_inputs(folder)
    answers = read_predictions(folder / "answers/base.csv")
    write_predictions(answers, folder / "kept.jsonl")
    a, b = (read_losses(folder / f"docs/{name}.jsonl") for name in ("base", "q4"))
    invar_nb.sum_pair(pair(a, b)).write(folder / "totals.units")
    compare(
        pair(
            read_predictions(folder / "plain/base.jsonl"),
            read_predictions(folder / "plain/q4.jsonl"),
        )
    ).report().save(folder / "report")
    shutil.copytree(MODEL, folder / "model")
    return folder


def run(name, inputs, where, seeds):
    "Read each case; an error that is no refusal ends it, with the seed in sight."
    source, file, change, read = READERS[name]
    for seed in seeds:
        path = fuzz.write_case(
            inputs / source, where / Path(source).name, f"{name} {seed}", change, file
        )
        began = time.process_time()
        with contextlib.suppress(ContractError), warnings.catch_warnings():
            read(path)
        assert time.process_time() - began < LONGEST, f"{name} {seed}"


CASES = [
    pytest.param(
        name,
        marks=[needs_torch] if READERS[name][0] == "model" else [],
    )
    for name in READERS
]


@pytest.mark.parametrize("name", CASES)
def test_damaged_inputs_are_taken_or_refused(name, inputs, tmp_path):
    run(name, inputs, tmp_path, range(100))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_damaged_inputs_are_taken_or_refused(name, inputs, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(name, inputs, tmp_path, range(100, 3500))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB: 1 GiB


def test_a_crash_and_a_wait_are_found(inputs, tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "crash", ("text/a.txt", "", None, lambda path: {}["x"]))
    with pytest.raises(KeyError):
        run("crash", inputs, tmp_path, range(3))
    monkeypatch.setattr("test_fuzz.LONGEST", -1)
    with pytest.raises(AssertionError, match="text.txt 0"):
        run("text.txt", inputs, tmp_path, range(1))
