"""The ledger of the options as they were before the redesign: each with a line that uses it, what becomes of it, why, and who is hurt.

`python tests/test_options.py` prints it for the change log. An option that changes its name keeps its row; its example follows."""

import csv
import re
import shlex

import pytest
import typer
from conftest import HAS_TORCH, needs_torch
from frozen_cases import answer
from frozen_inputs import DATA, write_inputs

from invar_nb.shell.cli import app, main

LEDGER = (
    list(csv.DictReader((DATA / "options.csv").read_text().splitlines()))
    if (DATA / "options.csv").is_file()
    else []
)
LINES = {row["example"]: int(row["exit"]) for row in LEDGER}
WRITES = {
    "compare": "r",
    "evaluate": "r",
    "plan": "p",
    "demo": "d",
    "score": "l.jsonl",
    "answer": "a.jsonl",
    "merge": "m.jsonl",
}


def options_of_the_app():
    "(command, option) of all that can be typed."
    commands = typer.main.get_command(app).commands
    return [
        (name, max(param.opts, key=len))
        for name, command in commands.items()
        for param in command.params
        if param.param_type_name == "option"
    ]


def respelled(command, words):
    "The words with what became of each option: a key of a study file such as `rules.looks=3`, `--column ROLE=NAME` or `--set KEY=VALUE`."
    fates, words, spelled = (
        {row["option"]: row["becomes"] for row in LEDGER if row["command"] == command},
        [*words],
        [],
    )
    while words:
        word = words.pop(0)
        fate = fates.get(word, "same")
        if not word.startswith("--") or fate in ("same", "refused", "gone"):
            spelled.append(word)
            continue
        value = "true" if not words or words[0].startswith("--") else words.pop(0)
        if key := re.search(r"\[(\w+)\] (\w+)", fate):
            spelled.append(f"{key[1]}.{key[2]}={value}")
        elif fate == "--column ROLE=NAME":
            spelled += ["--column", "=".join(value.split("=")[::-1])]
        elif fate.startswith("--set "):
            spelled += fate.split()
        elif fate.startswith("--column"):
            spelled += ["--column", fate.split()[1].replace("NAME", value)]
        elif fate == "[rules.tiers]":
            spelled += ["--study", value]
        else:
            assert fate == "org/name@rev"  # of hub ids; the example has folders
    return spelled


def run_line(line, folder):
    "The exit code of a line; what it writes goes into the folder."
    folder.mkdir()
    command, *words = shlex.split(line)
    place = folder / ("parts" if "--shard" in words else WRITES.get(command, ""))
    return answer(
        shlex.join(
            [
                command,
                *respelled(command, words),
                *(["--out", str(place)] if command in WRITES else []),
            ]
        )
    )[0]


def prepare(folder, models):
    "Reports of losses and of answers, and with models the parts of a scoring to merge."
    write_inputs(folder)
    answer(f"compare docs/base.jsonl docs/q4.jsonl --out {folder}/made")
    answer(f"compare plain/base.jsonl plain/q4.jsonl --out {folder}/answered")
    if models:
        answer(
            f"score models/base --text text/a.jsonl --max-length 48 --shard 1/1 --out {folder}/parts"
        )


def as_markdown():
    "What becomes of the options, those of one fate in one row; what stays as it is in one line a command."
    lines, fates = [], {}
    for command in dict.fromkeys(row["command"] for row in LEDGER):
        rows = [row for row in LEDGER if row["command"] == command]
        same = [row for row in rows if row["becomes"] == "same"]
        kept, new = (
            " ".join(
                f"`{row['option']}`" for row in same if row["why"].startswith("new:") == fresh
            )
            for fresh in (False, True)
        )
        lines += [
            f"- {command}, {len(rows)} options"
            + (f", as before: {kept}" if kept else ", all of them elsewhere")
            + (f"; new: {new}" if new else "")
        ]
        for row in rows:
            fate = row["becomes"].replace(row["option"], "the same"), row["why"], row["hurt"]
            if row["becomes"] != "same":
                fates.setdefault(fate, {}).setdefault(f"`{row['option']}`", []).append(command)
    lines += ["", "| option | of | becomes | why | who is hurt |", "|---|---|---|---|---|"]
    for (becomes, why, hurt), options in fates.items():
        commands = dict.fromkeys(name for names in options.values() for name in names)
        lines += [
            f"| {' '.join(options)} | {', '.join(commands)} | {becomes} | {why} | {hurt} |"
        ]
    return "\n".join(lines)


def marked(line):
    "What needs a model needs PyTorch, and takes long where two models are scored."
    marks = []
    if "models/" in line or line.startswith(("demo", "merge")):
        marks.append(needs_torch)
    if line.startswith(("compare models", "plan models", "demo")):
        marks.append(pytest.mark.slow)
    return pytest.param(line, marks=marks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(folder, HAS_TORCH)
    return folder


def test_every_option_is_in_the_ledger_and_no_other():
    assert {
        (row["command"], row["option"])
        for row in LEDGER
        if row["becomes"] in ("same", "refused")
    } == {*options_of_the_app()}
    assert all(
        row["option"] in shlex.split(row["example"]) or row["option"] == "--out"
        for row in LEDGER
    )
    assert all(row[name] for row in LEDGER for name in ("becomes", "why", "hurt"))


@pytest.mark.parametrize("line", [marked(line) for line in LINES])
def test_a_line_for_each_option_runs(line, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    assert run_line(line, tmp_path / "out") == LINES[line]


def test_the_change_log_has_the_ledger():
    assert as_markdown() in (DATA.parent.parent / "CHANGELOG.md").read_text()


if __name__ == "__main__":
    print(as_markdown())


def test_a_command_leaves_no_option_behind(tmp_path, capsys):
    "Options typed for one command are not taken for those of the next in the same process."
    from invar_nb.shell.options import TYPED

    assert main(["verify", str(tmp_path), "--quiet"]) != 0 and TYPED.get() == frozenset()


def test_a_role_that_is_none_has_a_cure_that_works():
    from invar_nb.foundations.refuse import UsageError
    from invar_nb.shell.settings import roles_of

    for text, cure in (
        ("samples=n", "call the columns samples and correct_samples, or n and c"),
        ("correct_samples=c", "call the columns samples and correct_samples, or n and c"),
        ("fluency=n", "Choose the role of 'n', such as --column score=n"),
        ("document=n", "Write --column cluster=n"),
    ):
        with pytest.raises(UsageError, match=cure):
            roles_of([text])
