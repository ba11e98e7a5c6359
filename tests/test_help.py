"""What people type first: the help is short, its examples run, and one refusal names all that is missing."""
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import typer
from frozen_inputs import DATA

import invar_nb
from invar_nb.shell.cli import app, main

MODELS = os.path.join(os.path.dirname(invar_nb.__file__), "demo_models")
HAS_TORCH = importlib.util.find_spec("torch") is not None
COMMANDS = typer.main.get_command(app).commands
EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line in command.examples]
WRITES = ("compare", "evaluate", "demo", "plan")  # without --out into a folder of a fixed name


def shell(*words):
    "(code, stdout, stderr) of a command in this process."
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err: code = main([*map(str, words)])
    return code, out.getvalue(), err.getvalue()


def marked(line):
    heavy = "models/" in line or line.startswith(("invar-nb demo", "invar-nb merge"))
    return pytest.param(line, marks=[pytest.mark.skipif(not HAS_TORCH, reason="needs torch")] * heavy + [pytest.mark.slow] * line.startswith("invar-nb demo"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Every file and folder that an example of the help names."
    folder = tmp_path_factory.mktemp("help")
    (folder / "models").mkdir()
    for name, source in (("base", "base"), ("copy", "base"), ("q8", "tuned"), ("q4", "tuned")): (folder / "models" / name).symlink_to(os.path.join(MODELS, source))
    line = "Document {}. The {} word is read by line, and {} more of them stand here to be scored."
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": line.format(i, i * 7, i * 3)}) + "\n" for i in range(60)))
    rows = lambda wrong: "id,label,prediction,language\n" + "".join(f"q{i},{'yn'[i % 2]},{'yn'[(i + (i < wrong)) % 2]},{'en' if i % 3 else 'es'}\n" for i in range(80))
    (folder / "old.csv").write_text(rows(8))
    (folder / "new.csv").write_text(rows(9))
    (folder / "questions.jsonl").write_text("".join(json.dumps({"id": f"q{i}", "prompt": f"{i} and", "candidates": [" one", " two"], "label": " one"}) + "\n" for i in range(8)))
    shutil.copytree(DATA / "lm_eval", folder / "lm_eval_out", ignore=shutil.ignore_patterns("*_words_*", "*_lengths_*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert shell("compare", "old.csv", "new.csv")[0] in (0, 1)
        if HAS_TORCH:
            for shard in ("1/2", "2/2"): assert shell("score", "models/base", "--text", "text.jsonl", "--shard", shard, "--out", "parts")[0] == 0
    return folder


@pytest.mark.parametrize("line", [marked(line) for _, line in EXAMPLES])
def test_an_example_of_the_help_runs_as_it_stands(line, folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    program, command, *words = shlex.split(line)
    if command != "verify" and command != "card": shutil.rmtree("invar-nb-report")
    if "--shard" in words: shutil.rmtree("parts")
    code, out, err = shell(command, *words)
    assert program == "invar-nb" and code in (0, 1) and out and (code == 0 or command in ("compare", "diff")), err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_is_short_has_an_example_and_leaves_room_for_the_text(name, monkeypatch):
    "`compare --help` had 73 options on 261 lines of 80 columns, `<bool>` beside each flag, a text of 29 columns, and one example."
    monkeypatch.setenv("COLUMNS", "80")
    (code, brief, err), (_, whole, _) = shell(name, "--help"), shell(name, "--help-all")
    options = lambda text: re.findall(r"^│ (?:-\w, )?(--[\w-]+)", text, re.M)
    assert code == 0 and not err and COMMANDS[name].examples and all(f"  {line}\n" in brief for line in COMMANDS[name].examples)
    assert all(len(line) <= 80 for line in (brief + whole).splitlines()) and not re.search(r"<\w|\[\d|x>=", brief + whole)
    ends = [m.end() for m in re.finditer(r"^│ (?:-\w, )?--\S+(?: \S+)? +(?=\S)", whole, re.M)]
    starts = [end - (whole.rfind("\n", 0, end) + 1) for end in ends]
    assert max(starts) + 45 <= 78 and {*options(whole)} >= {*options(brief)}
    named = {max(p.opts, key=len) for p in COMMANDS[name].params if p.param_type_name == "option"}
    assert {*options(whole)} == named | {"--help"}
    few = len(named) + 1 <= 12
    assert (brief == whole) if few else len(options(brief)) == 10 and f"All options: invar-nb {name} --help-all" in brief
    assert shell("help", name) == (0, brief, "")


def test_compare_shows_three_examples_and_ten_options(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shell("compare", "--help")[1]
    assert text.count("\n  invar-nb compare ") == 3 and len(text.splitlines()) < 70
    assert re.findall(r"^│ (--[\w-]+)", text, re.M) == "--text --questions --margin --out --force --until-decided --divergence --by --json --profile".split()
    assert shell("help")[1] == shell("--help")[1] and shell("help", "compar")[::2] == (2, shell("help", "compar")[2]) and "Did you mean compare?" in shell("help", "compar")[2]


def test_a_reader_of_the_help_may_stop_after_three_lines():
    "`compare --help | head -3` added `stdout was closed too early`."
    with subprocess.Popen([sys.executable, "-m", "invar_nb.shell.cli", "compare", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(3): process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
