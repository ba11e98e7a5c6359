"""What people type first: the help is short, its examples run, and one refusal names all that is missing."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import typer
from commands import shell
from conftest import HAS_TORCH, needs_torch

import invar_nb
from invar_nb import page_data
from invar_nb.shell.cli import app

MODELS = os.path.join(os.path.dirname(invar_nb.__file__), "demo_models")
COMMANDS = typer.main.get_command(app).commands
EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line in command.examples]
WRITES = ("compare", "evaluate", "demo", "plan")  # without --out into a folder of a fixed name


def marked(line):
    "The line as a parameter of a test: skipped without PyTorch, or among the slow ones."
    marks = []
    if "models/" in line or line.startswith(("invar-nb demo", "invar-nb merge")):
        marks.append(needs_torch)
    if line.startswith("invar-nb demo"):
        marks.append(pytest.mark.slow)
    return pytest.param(line, marks=marks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Every file and folder that an example of the help names."
    folder = tmp_path_factory.mktemp("help")
    (folder / "models").mkdir()
    for name, source in (("base", "base"), ("copy", "base"), ("q8", "tuned"), ("q4", "tuned")):
        (folder / "models" / name).symlink_to(os.path.join(MODELS, source))
    line = "Document {}. The {} word is read by line, and {} more of them stand here to be scored."
    (folder / "text.jsonl").write_text(
        "".join(json.dumps({"text": line.format(i, i * 7, i * 3)}) + "\n" for i in range(60))
    )
    rows = lambda wrong: (
        "id,label,prediction,language\n"
        + "".join(
            f"q{i},{'yn'[i % 2]},{'yn'[(i + (i < wrong)) % 2]},{'en' if i % 3 else 'es'}\n"
            for i in range(80)
        )
    )
    (folder / "old.csv").write_text(rows(8))
    (folder / "new.csv").write_text(rows(9))
    for name, shift in (("base", 0), ("wd", 0.004)):
        rows = [f"{k},{2.7 + 0.01 * k + shift * (k % 3)}" for k in range(8)]
        (folder / f"{name}.csv").write_text("\n".join(["seed,val_loss", *rows]) + "\n")
    (folder / "questions.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": f"q{i}",
                    "prompt": f"{i} and",
                    "candidates": [" one", " two"],
                    "label": " one",
                }
            )
            + "\n"
            for i in range(8)
        )
    )
    shutil.copytree(
        page_data("lm_eval"),
        folder / "lm_eval_out",
        ignore=shutil.ignore_patterns("*_words_*", "*_lengths_*"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert shell("compare", "old.csv", "new.csv")[0] in (0, 1)
        if HAS_TORCH:
            for shard in ("1/2", "2/2"):
                assert (
                    shell(
                        "score",
                        "models/base",
                        "--text",
                        "text.jsonl",
                        "--shard",
                        shard,
                        "--out",
                        "parts",
                    )[0]
                    == 0
                )
    return folder


@pytest.mark.parametrize("line", [marked(line) for _, line in EXAMPLES])
def test_an_example_of_the_help_runs_as_it_stands(line, folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    program, command, *words = shlex.split(line)
    if command not in ("verify", "card", "export"):
        shutil.rmtree("invar-nb-report")
    if "--shard" in words:
        shutil.rmtree("parts")
    code, out, err = shell(command, *words)
    assert (
        program == "invar-nb"
        and code in (0, 1)
        and out
        and (code == 0 or command in ("compare", "diff"))
    ), err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_is_short_has_an_example_and_leaves_room_for_the_text(name, monkeypatch):
    "`compare --help` had all options on 151 lines of 80 columns, `<bool>` beside each flag, a narrow text, and one example."
    monkeypatch.setenv("COLUMNS", "80")
    (code, brief, err), (_, whole, _) = shell(name, "--help"), shell(name, "--help-all")
    options = lambda text: re.findall(r"^│ (?:-\w, )?(--[\w-]+)", text, re.M)
    assert (
        code == 0
        and not err
        and COMMANDS[name].examples
        and all(f"  {line}\n" in brief for line in COMMANDS[name].examples)
    )
    assert all(len(line) <= 80 for line in (brief + whole).splitlines()) and not re.search(
        r"<\w|\[\d|x>=", brief + whole
    )
    ends = [m.end() for m in re.finditer(r"^│ (?:-\w, )?--\S+(?: \S+)? +(?=\S)", whole, re.M)]
    starts = [end - (whole.rfind("\n", 0, end) + 1) for end in ends]
    assert max(starts) + 45 <= 78 and {*options(whole)} >= {*options(brief)}
    named = {
        max(p.opts, key=len) for p in COMMANDS[name].params if p.param_type_name == "option"
    }
    assert {*options(whole)} == named | {"--help"}
    few = len(named) + 1 <= 12
    assert (
        (brief == whole)
        if few
        else len(options(brief)) == 10 and f"All options: invar-nb {name} --help-all" in brief
    )
    assert shell("help", name) == (0, brief, "")


def test_compare_shows_three_examples_and_ten_options(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shell("compare", "--help")[1]
    assert text.count("\n  invar-nb compare ") == 3 and len(text.splitlines()) < 70
    assert re.findall(r"^│ (--[\w-]+)", text, re.M) == [
        "--text",
        "--questions",
        "--margin",
        "--out",
        "--require",
        "--until-decided",
        "--divergence",
        "--by",
        "--json",
        "--profile",
    ]
    assert (
        shell("help")[1] == shell("--help")[1]
        and shell("help", "compar")[::2] == (2, shell("help", "compar")[2])
        and "Did you mean 'compare'?" in shell("help", "compar")[2]
    )


def test_help_keys_lists_every_key_and_section_of_a_study_file():
    from invar_nb.shell.study_file import SECTIONS, SHAPES, study_keys

    text = shell("help", "keys")[1]
    head, *parts = re.split(r"^\[(\w+)\]", text, flags=re.M)
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    assert (
        {*said} == {*SHAPES}
        and head == "Of keys that are options, invar-nb help compare says what they do.\n"
        and max(map(len, text.splitlines())) <= 100
    )
    for section in SECTIONS:
        names = re.findall(r"^(\w+)  +\S", said[section], re.M) + re.findall(
            r"\w+", re.search(r"^as options ((?:.*\n)(?: .*\n)*)", said[section], re.M)[1]
        )
        assert sorted(names) == sorted({*study_keys(section)} - {"require"}), (
            section
        )  # another spelling of required


def test_a_reader_of_the_help_may_stop_after_three_lines():
    "`compare --help | head -3` added `stdout was closed too early`."
    with subprocess.Popen(
        [sys.executable, "-m", "invar_nb", "compare", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        for _ in range(3):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


# --- what is missing ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def runs(tmp_path, monkeypatch):
    "Two tables of runs with two metrics of opposite directions, with and without a terminal."
    monkeypatch.chdir(tmp_path)
    for name, shift in (("adamw", 0.0), ("muon", 0.05)):
        rows = [
            (s, "ok", 2 + s / 100 - shift * (1 + s % 3), 0.6 + s / 200 + shift * (1 + s % 2))
            for s in range(12)
        ]
        (tmp_path / f"{name}.csv").write_text(
            "seed,terminal,val_loss,val_acc\n"
            + "".join(f"{s},{t},{x:.4f},{y:.4f}\n" for s, t, x, y in rows)
        )
        (tmp_path / f"{name}-bare.csv").write_text(
            "seed,val_loss,val_acc\n"
            + "".join(f"{s},{x:.4f},{y:.4f}\n" for s, _, x, y in rows)
        )
    return tmp_path


def follow(err):
    "What the command line of a refusal gives."
    line = re.search(r"Write: (invar-nb compare .*?)(?: \(|\.$)", err.strip())[1]
    return line, shell(*shlex.split(line)[1:])


@pytest.mark.parametrize(
    "words, needs",
    [
        (
            "adamw-bare.csv muon-bare.csv",
            [
                "a metric",
                "no --metric (columns: val_acc, gap)",
            ],
        ),
        ("adamw.csv muon.csv --out kept", ["a metric", "no --metric"]),
        (
            "adamw-bare.csv muon.csv --metric gap",
            ["no --better"],
        ),
        ("adamw.csv muon.csv --metric gap --level 0.9", ["no --better"]),
        ("adamw.csv muon.csv --better higher", ["no --metric"]),
        (
            "adamw.csv muon.csv --metric gap --metric val_acc --better lower",
            ["one --better lower for gap, val_acc"],
        ),
        (
            "adamw.csv muon.csv --metric gap --metric val_acc --better val_acc=higher",
            ["no --better for gap"],
        ),
        (
            "adamw-bare.csv muon-bare.csv --metric gap --metric val_acc --margin 0.01",
            ["no --better for gap", "one --margin 0.01 for"],
        ),
        (
            "adamw.csv muon.csv --metric gap --metric val_acc --better gap=lower --better val_acc=higher --margin 0.01",
            ["one --margin 0.01 for gap, val_acc"],
        ),
    ],
)
def test_one_refusal_names_all_that_is_missing_of_runs_with_the_line_that_works(
    runs, words, needs
):
    "Metric and direction were asked for one after the other; `gap` is a name that says no direction, `val_acc` one that does."
    for table in runs.glob("*.csv"):
        table.write_text(table.read_text().replace("val_loss", "gap"))
    code, out, err = shell("compare", *words.split(), "-q")
    assert (
        code == 2 and not out and err.count("\n") == 1 and all(need in err for need in needs)
    ), err
    line, (code, out, err) = follow(err)
    assert (
        code == 0
        and out.startswith(("Improved", "2 metrics", "Equivalent"))
        or "improved" in out.splitlines()[0]
    ), (line, out, err)
    assert all(
        word in line
        for word in ("--out kept" * ("--out" in words), "--level 0.9" * ("--level" in words))
    )


def test_a_direction_that_a_name_says_is_taken_and_said(runs):
    "Nothing is said, one is, a wrong one is; the report says what was taken by its name."
    both, said = (
        (
            "compare",
            "adamw.csv",
            "muon.csv",
            "--metric",
            "val_loss",
            "--metric",
            "val_acc",
            "-q",
        ),
        "val_loss is taken as lower is better, by its name; --better val_loss=higher says otherwise.",
    )
    for out, typed, code, notes in (
        ("a", (), 0, ["val_loss", "val_acc"]),
        ("b", ("--better", "val_loss=lower"), 0, ["val_acc"]),
        ("c", ("--better", "val_acc=lower"), 1, ["val_loss"]),
        ("d", ("--better", "val_loss=higher"), 1, ["val_acc"]),
    ):
        assert shell(*both, *typed, "--out", out)[0] == code
        d = json.loads((runs / out / "report.json").read_text())
        assert (
            [line.split()[0] for line in d["warnings"] if "by its name" in line] == notes
            and (said in d["warnings"]) == ("val_loss" in notes)
            and shell("verify", out)[0] == 0
        )


def test_each_metric_of_runs_has_its_own_direction_and_margin(runs):
    "One `--better lower` called a better accuracy regressed, with exit code 1; one `--margin` reached the first metric only. Per cent reach both."
    both = (
        "compare",
        "adamw.csv",
        "muon.csv",
        "--metric",
        "val_loss",
        "--metric",
        "val_acc",
        "-q",
    )
    ways = ("--better", "val_loss=lower", "--better", "val_acc=higher")
    assert (
        shell(*both, "--better", "lower")[0] == 2
        and shell(*both, *ways, "--margin", "0.01")[0] == 2
    )
    code, _, err = shell(
        *both, *ways, "--margin", "val_loss=1%", "--margin", "val_acc=0.5%", "--out", "r"
    )
    d = json.loads((runs / "r/report.json").read_text())
    rows = {
        row["key"]["metric"] if "metric" in row["key"] else row["value"]["metric"]: row
        for row in d["rows"]
        if row["role"] in ("lead", "rest")
    }
    assert code == 0 and {
        name: row["words"]["margin"].split(" %")[0] for name, row in rows.items()
    } == {"val_loss": "1", "val_acc": "0.5"}, err
    assert shell("verify", "r")[0] == 0
    (runs / "s.toml").write_text(
        '[rules]\nbetter = {val_loss = "lower", val_acc = "lower"}\n'
    )  # what is typed wins, metric by metric
    assert (
        shell(*both, "--study", "s.toml", "--out", "s1")[0] == 1
        and shell(*both, "--study", "s.toml", "--better", "val_acc=higher", "--out", "s2")[0]
        == 0
    )
    (runs / "c.toml").write_text(
        '[rules]\nbetter = {val_loss = "lower", val_acc = "higher"}\n'
    )
    assert shell(*both, "--study", "c.toml", "--out", "c")[0] == 0
    (runs / "b.toml").write_text('[rules]\nbetter = "lower"\n')
    assert shell(*both, "--study", "b.toml", "--out", "b")[0] == 2
    (runs / "d.toml").write_text('[columns]\nbetter = "lower"\n')
    assert "Write it under [rules]" in shell(*both, "--study", "d.toml", "--out", "b")[2]
    for words, said in (
        (("--better", "val_loss=up"), "must be higher or lower"),
        (("--better", "lower", "--better", "higher"), "must be given once"),
        ((*ways, "--better", "val_acc=lower"), "must be given once"),
        ((*ways, "--better", "hours=lower"), "of metrics that are compared"),
    ):
        code, _, err = shell(*both, *words, "--out", "x")
        assert code == 2 and said in err and not (runs / "x").exists(), err


def test_scores_have_a_direction_of_their_own_or_one_for_all(runs):
    for name, more in (("s", 0), ("t", 1)):
        (runs / f"{name}.csv").write_text(
            "id,seconds\n" + "".join(f"q{i},{i % 7 + more}\n" for i in range(30))
        )
    for k, words in enumerate((("compare", "s.csv", "t.csv"), ("evaluate", "s.csv"))):
        codes = {
            shell(*words, "--score", "seconds", *better, "--out", f"{words[0]}{i}", "-q")[0]
            for i, better in enumerate(
                (("--better", "seconds=lower"), ("--better", "lower"), ())
            )
        }
        assert codes == {1 - k}  # a table of seconds says it by its name


def test_the_baseline_is_sized_by_its_own_name(folder, tmp_path, monkeypatch):
    "`--size base=16` was refused, though the title says against base."
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    sizes = lambda *names: [word for name in names for word in ("--size", name)]
    run = lambda *names, out: shell(
        "compare",
        "models/base",
        "models/q8",
        "models/q4",
        "--text",
        "text.jsonl",
        "--device",
        "cpu",
        *sizes(*names),
        "--out",
        tmp_path / out,
        "-q",
    )
    for out, own in (("own", "base=16"), ("usual", "baseline=16")):
        assert run("q8=8.5", "q4=4.5", own, out=out)[0] in (0, 1)
    first, second = (
        json.loads((tmp_path / out / "report.json").read_text())["arms"]
        for out in ("own", "usual")
    )
    assert first == second and "16" in json.dumps(first)
    code, _, err = run("q8=8.5", "q4=4.5", "base=16", "baseline=16", out="x")
    assert (
        code == 2
        and "got base and baseline" in err
        and "Choose from q8, q4, base, baseline" in run("q8=8.5", "q4=4.5", "q3=3", out="x")[2]
    )


# --- what is checked before any weights -----------------------------------------------------------------------------------------------
@pytest.fixture
def no_weights(monkeypatch):
    "Whatever reads or compares weights fails loudly."
    from invar_nb.models import load, weights
    from invar_nb.shell import side_by_side, weight_differences

    def loud(*given, **more):
        raise AssertionError("weights were read")

    for module, name in (
        (weight_differences, "compare_weights"),
        (side_by_side, "memory_needed"),
        (load, "_load_weights"),
        (weights, "compare_weights"),
    ):
        monkeypatch.setattr(module, name, loud)


@pytest.mark.parametrize("how", ["", "--divergence", "--until-decided", "score", "plan"])
def test_text_tokenizer_folder_and_torch_are_checked_before_any_weights(
    how, folder, tmp_path, monkeypatch, no_weights
):
    "An empty, broken or wrong text was refused after the weights of both models had been compared."
    pytest.importorskip("torch")
    for name, data in (
        ("empty.txt", b""),
        ("latin.txt", "caf\xe9 au lait".encode("latin-1")),
        ("field.jsonl", b'{"body": "A text."}\n'),
        ("none.jsonl", b""),
        ("good.txt", b"A text. " * 99),
    ):
        (tmp_path / name).write_bytes(data)
    for name in ("base", "other"):
        shutil.copytree(folder / "models" / name.replace("other", "q8"), tmp_path / name)
    words = json.loads((tmp_path / "other/tokenizer.json").read_text())
    ids = words["model"]["vocab"]
    ids["e"], ids["t"] = ids["t"], ids["e"]
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(words))
    monkeypatch.chdir(tmp_path)
    models, out = {
        "score": (["score", "base"], "l.jsonl"),
        "plan": (["plan", "base", "base2"], "p"),
    }.get(how, (["compare", "base", "base2", *[how] * bool(how)], "r"))
    (tmp_path / "base2").symlink_to("base")
    run = lambda text, *more, out=out, models=models: shell(
        *models, "--text", text, "--device", "cpu", "--out", out, *more, "-q"
    )
    for text, said in (
        ("gone.txt", "must be a file"),
        ("empty.txt", "empty.txt"),
        ("latin.txt", "UTF-8"),
        ("field.jsonl", "'text'"),
        ("none.jsonl", "none.jsonl"),
    ):
        code, _, err = run(text)
        assert code in (2, 3) and said in err and "weights were read" not in err, (text, err)
    code, _, err = run("good.txt", "--tokenizer", "gone")
    assert code == 2 and "tokenizer" in err, err
    code, _, err = run("good.txt", out="base/config.json/x.jsonl")
    assert code == 2 and "--out must be" in err, err
    if how != "score":
        code, _, err = run(
            "good.txt", models=[word.replace("base2", "other") for word in models]
        )
        assert code == 3 and "the same tokens" in err, err
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run("good.txt")
    assert code == 2 and "In the clone: pip install '.[hf]'" in err, err


def test_a_margin_of_runs_beyond_their_mean_is_refused(tmp_path):
    for k, name in enumerate(("a", "b")):
        (tmp_path / f"{name}.csv").write_text(
            "seed,terminal,acc\n"
            + "".join(f"{s},ok,{0.7 + s / 100 - k / 50}\n" for s in range(12))
        )
    line = (
        "compare",
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        "--metric",
        "acc",
        "--better",
        "higher",
        "--out",
        tmp_path / "r",
        "--margin",
    )
    code, _, err = shell(*line, "acc=3")
    assert (
        code == 2
        and "--margin of acc must be below its mean, which is 0.755; got 3" in err
        and "--margin acc=2%" in err
    ), err
    assert shell(*line, "acc=0.05")[0] in (0, 1)
