"""The shell: codes, margins, one line for an error, resume after a kill, profiles before scoring, reports of every kind."""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from commands import main, with_study
from conftest import needs_torch
from scipy import stats
from studies import losses

import invar_nb
from invar_nb import Rules, compare_models, page_data
from invar_nb.files.losses import read_losses, write_losses
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.shell import cli
from invar_nb.shell.error_lines import describe_error

ROOT = os.path.dirname(os.path.dirname(invar_nb.__file__))
MODELS = os.path.join(os.path.dirname(invar_nb.__file__), "demo_models")


def shell(*arguments):
    "(code, stdout, stderr) of a command in this process."
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def files(tmp_path):
    "Two loss files, two of answers, two of runs."
    both = losses(0.05, n=60)
    for name, arm in (("a", both.baseline), ("b", both.candidate)):
        write_losses(arm, tmp_path / f"{name}.jsonl")
    rows = lambda wrong: (
        "id,label,prediction,language\n"
        + "".join(
            f"q{i},{'yn'[i % 2]},{'yn'[(i + (i < wrong)) % 2]},{'en' if i % 3 else 'es'}\n"
            for i in range(80)
        )
    )
    (tmp_path / "old.csv").write_text(rows(8))
    (tmp_path / "new.csv").write_text(rows(30))
    for name, shift in (("r0", 0.0), ("r1", 0.2)):
        (tmp_path / f"{name}.csv").write_text(
            "seed,terminal,loss\n"
            + "".join(f"{s},ok,{2 + s / 100 + shift + s * shift / 200}\n" for s in range(5))
        )
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + bytes(80))
    return tmp_path


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("compare a.jsonl b.jsonl", 1, "Regressed: perplexity"),
        ("evaluate new.csv", 0, "new.csv: accuracy"),
        ("compare old.csv new.csv", 1, "Regressed: accuracy"),
        ("compare r0.csv r1.csv --metric loss --better lower", 1, "Regressed"),
        ("compare r0.csv r1.csv --metric loss --better higher", 0, "Improved"),
    ],
)
def test_files_give_a_report_that_verifies(files, monkeypatch, words, code, said):
    monkeypatch.chdir(files)
    found, out, err = shell(*words.split(), "--out", "r")
    assert (
        found == code
        and out.startswith(said)
        and "invar-nb verify r" in out
        and shell("verify", "r")[0] == 0
    ), err
    d = json.loads((files / "r/report.json").read_text())
    found, out, err = shell(*words.split(), "--out", "r", "--json", "--force", "-q")
    assert (
        found == code == d["exit"]["code"] == json.loads(out)["exit_code"]
        and json.loads(out)["headline"] == d["headline"]
        and not err
    )


def test_an_interrupt_before_a_command_or_after_it_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("invar_nb.shell.cli.run_app", interrupted)
    assert (
        cli.main(["help"]) == 130
        and capsys.readouterr().err == "invar-nb: interrupted; run again to resume.\n"
    )


def test_a_ranking_says_what_stops_and_answers_lead_to_their_examples(tmp_path, monkeypatch):
    "The exit line was missing where several decide, and thirty names filled the screen."
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    base = rng.normal(3, 0.5, 60)
    for k in range(11):
        rows = [
            {"window_id": f"w{i}", "n_tokens": 100, "loss": x + 0.05 * k + rng.normal(0, 0.01)}
            for i, x in enumerate(base)
        ]
        Path(f"m{k}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    all_of_them = [f"m{k}.jsonl" for k in range(11)]
    code, out, err = shell("compare", *all_of_them, "--out", "r")
    assert code == 1 and "m0.jsonl and 10 candidates\n" in err
    assert out.count("Exit code 1: perplexity regressed on m1, ") == 1
    code, out, err = shell("compare", "m0.jsonl", "m10.jsonl", "--out", "r1")
    assert code == 1 and "Exit code" not in out  # the first line says it

    for name, right in ("old", 80), ("new", 60):
        rows = [f"e{i},yes,{'yes' if (i * 7) % 100 < right else 'no'}\n" for i in range(100)]
        Path(f"{name}.csv").write_text("id,label,prediction\n" + "".join(rows))
    out = shell("compare", "old.csv", "new.csv", "--out", "my answers")[1]
    assert out.endswith("Examples lost and won: invar-nb export 'my answers' --examples\n")
    assert len(shell("export", "my answers", "--examples")[1].splitlines()) == 21
    assert "lost and won" not in shell("compare", "old.csv", "old.csv", "--out", "same")[1]


def test_compare_models_takes_the_score_that_its_refusal_asks_for(tmp_path):
    for name, shift in (("old", 0), ("new", 0.01)):
        rows = [f"e{i},d{i // 5},{(i % 7) / 10 + shift},{i % 2}" for i in range(60)]
        text = "id,document,f1,correct\n" + "\n".join(rows) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    with pytest.raises(ContractError, match="score='f1'"):
        compare_models(old, new, cluster="document")
    found = compare_models(old, new, cluster="document", score="f1")
    assert found.row.value.title == "f1" and found.row.value.n_units == 12
    both = compare_models(old, new, score=["f1", "correct"])
    assert {row.value.title for row in both} == {"f1", "correct"}


@pytest.mark.parametrize("typed, meant", [("odl.csv", "old.csv"), ("bse/x.parquet", None)])
def test_a_file_that_is_probably_meant_is_named(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("old.csv").write_text("id,f1\na,1\n")
    Path("old.txt").write_text("")
    err = shell("compare", "old.csv", typed)[2]
    assert (f"got {typed!r}. Did you mean {meant!r}?" in err) == bool(meant)
    assert meant or "Check the path, or score it" in err


def test_several_tables_of_runs_are_one_report(files):
    "The worst candidate decides; a table whose run failed is named, and an absolute margin is a share of the baseline's mean."
    worse, failed = files / "r2.csv", files / "r3.csv"
    worse.write_text((files / "r0.csv").read_text().replace("2.", "3."))
    failed.write_text((files / "r1.csv").read_text().replace("ok", "oom", 1))
    run = lambda *more, out: shell(
        "compare",
        *(files / f for f in ("r0.csv", "r1.csv", "r2.csv")),
        *more,
        "--metric",
        "loss",
        "--better",
        "lower",
        "--margin",
        "0.1",
        "--out",
        files / out,
        "--json",
    )
    assert run(out="several")[0] == 1 and shell("verify", files / "several")[0] == 0
    d = json.loads((files / "several/report.json").read_text())
    assert (
        [pair["candidate"] for pair in d["pairs"]] == ["r1", "r2"]
        and d["headline"].startswith("2 candidates, loss: ")
        and d["rankings"] == []
    )
    code, _, err = run(failed, out="broken")
    assert code == 5 and shell("verify", files / "broken")[0] == 0
    page = (files / "several/report.html").read_text()
    assert "then by Holm over the candidates" in page
    rules = Rules(metrics=["loss"], better={"loss": "lower"})
    assert len(compare_models(files / "r0.csv", [files / "r1.csv", worse], rules=rules)) == 2
    for wrong in (dict(text=files / "a.jsonl", rules=rules), dict()):
        with pytest.raises(UsageError):
            compare_models(files / "r0.csv", files / "r1.csv", **wrong)


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("", 2, "Usage"),
        ("--help", 0, "Exit codes"),
        ("compare --help", 0, "invar-nb compare lm_eval_out/base lm_eval_out/tuned"),
        ("compare --help", 0, "if its whole interval lies inside."),
        ("demo --help", 0, "needs torch"),
        ("doctor", 0, "zstandard"),
        ("doctor", 0, "gguf"),
        ("compare a", 2, "no CANDIDATE"),
        ("evaluate new.csv --metric nope -q", 2, "'nope'"),
        ("evaluate new.csv --metric perplexity -q", 2, "'perplexity'"),
        ("compare a.jsonl cut.parquet", 3, "cut.parquet"),
        ("score a.jsonl --text a.jsonl --out c.jsonl", 2, "score needs a model"),
    ],
)
def test_codes_and_words_without_a_model(files, monkeypatch, words, code, said):
    monkeypatch.chdir(files)
    found, out, err = shell(
        *words.split(),
        *(["--out", "o"] if words.startswith(("compare a.", "evaluate")) else []),
    )
    assert (
        found == code
        and said in " ".join(re.sub(r"[│\s]+", " ", out + err).split())
        and not (files / "o").exists()
    ), err


@pytest.mark.parametrize(
    "words, said",
    [
        ("compare a.jsonl b.jsonl --method bca", "Windows are treated as independent"),
        ("compare a.jsonl b.jsonl --units serial", "60 windows in text order"),
        ("compare w0.jsonl w1.jsonl --units documents", "1 effective document;"),
        ("compare w0.jsonl w1.jsonl --units windows", "1 effective window;"),
        ("compare w0.jsonl w1.jsonl --units serial", "over 1 window in text order"),
        ("evaluate p.csv --study labels.toml", "on 1 example."),
        ("compare r0.csv oom.csv --metric loss --better lower", "failed"),
    ],
)
def test_the_summary_says_what_was_independent(files, monkeypatch, words, said):
    "One of a thing is singular; nobody chose the windows of a bootstrap; there is no interval of nothing."
    monkeypatch.chdir(files)
    head = '{"schema": "invar_nb/losses/2", "windows": 1}\n{"window_id": "w0", "tokens": 10, "log_loss": %s, "document_id": "d"}\n'
    for name, loss in (("w0", 2.0), ("w1", 2.1)):
        (files / f"{name}.jsonl").write_text(head % loss)
    (files / "oom.csv").write_text(
        (files / "r1.csv").read_text().replace("0,ok,2.2", "0,oom,", 1)
    )
    (files / "p.csv").write_text("id,label,prediction\nq,y,y\n")
    (files / "labels.toml").write_text('[columns]\nlabels = ["y", "n"]\n')
    code, out, err = shell(*words.split(), "--out", "r")
    assert (
        said in out
        and " serial" not in out
        and not re.search(r"\b1 (effective )?(windows|documents|examples|items)\b", out)
    ), out + err
    assert ("bca" not in words or "Chosen by the caller" not in out) and (
        "oom" not in words or code == 5 and "Intervals over" not in out
    )


def test_no_device_is_a_note(monkeypatch):
    version = metadata.version

    def missing(name):
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", missing)
    code, out, _ = shell("doctor", "--json")
    assert code == 0 and json.loads(out)["findings"][-1] == {
        "what": "device",
        "state": "note",
        "found": "none",
    }


# --- with a model ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "t.jsonl"
    lines = [
        f"Document {i}. "
        + " ".join(
            f"The {w} number {i * k} is read by line."
            for k, w in enumerate(("first", "second", "third", "last"))
        )
        for i in range(16)
    ]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return path


def command(*arguments, **more):
    env = dict(
        os.environ,
        PYTHONPATH=ROOT,
        HF_HUB_OFFLINE="1",
        SOURCE_DATE_EPOCH="1700000000",
        OMP_NUM_THREADS="1",
    )
    return subprocess.Popen(
        [sys.executable, "-m", "invar_nb", *with_study(arguments)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def compared(text, out):
    return (
        "compare",
        f"{MODELS}/base",
        f"{MODELS}/tuned",
        "--text",
        text,
        "--out",
        out,
        "--max-length",
        "64",
        "--batch-tokens",
        "128",
        "--device",
        "cpu",
    )


def test_too_few_windows_are_refused_before_scoring(text, tmp_path):
    "Finding 17."
    pytest.importorskip("torch")
    code, _, err = shell(*compared(text, tmp_path / "r"), "--profile", "ci")
    assert (
        code == 3
        and "360 windows" in err
        and "scoring" not in err
        and not (tmp_path / "r").exists()
    )


@pytest.mark.slow
def test_interrupted_and_killed_compares_resume_to_the_same_bytes(text, tmp_path, monkeypatch):
    "Findings 17 and 22: the first line within two seconds of a loaded machine, 130 and a newline on Ctrl-C, the same bytes after a resume."
    whole = command(*compared(text, tmp_path / "whole"))
    assert whole.wait() in (0, 1)
    for how, delay in ((signal.SIGINT, 0.3), (signal.SIGKILL, 1.0), (signal.SIGKILL, 2.5)):
        out = tmp_path / f"r{delay}" / "r"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache{delay}"))
        began = time.monotonic()
        p = command(*compared(text, out))
        line = p.stderr.readline()
        assert line.startswith("invar-nb compare") and time.monotonic() - began < 4
        while "scoring" not in line and line:
            line = p.stderr.readline()
        time.sleep(delay)
        p.send_signal(how)
        _, err = p.communicate()
        if how == signal.SIGINT and p.returncode not in (0, 1):
            assert (
                p.returncode == 130
                and "\ninvar-nb: interrupted; run again to resume." in "\n" + err
            )
        if not (out / "report.json").exists():
            assert command(*compared(text, out)).wait() in (0, 1)
        for name in ("report.json", "report.html"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert not list(out.parent.glob(".*.journal"))


def test_a_message_in_the_shell_says_what_to_type(files):
    "Options and file contents, not Python calls: each refusal can be followed as it stands."
    (files / "bare.csv").write_text("seed,loss\n1,2.0\n2,2.1\n")
    (files / "half.csv").write_text("seed,terminal,loss\n0,ok,2.0\n1,ok,2.1\n")
    asked = ("--metric", "loss", "--better", "lower", "--out", files / "x")
    code, _, err = shell("compare", files / "bare.csv", files / "bare.csv", *asked)
    assert code == 0  # no column says how runs ended: they are taken as finished
    assert (
        "Nothing says how the runs of baseline and candidate ended"
        in (files / "x/report.md").read_text()
    )
    (files / "blank.csv").write_text("seed,state,loss\n1,finished,2.0\n2,,2.1\n")
    again = (*asked[:-1], files / "blank-report")
    code, _, err = shell("compare", files / "blank.csv", files / "bare.csv", *again)
    assert code == 3 and "a row must say how its run ended" in err and "from_row" not in err
    code, _, err = shell("compare", files / "r0.csv", files / "half.csv", *again)
    assert code == 3 and "out: --intersect." in err
    (files / "l.csv").write_text("window_id,tokens,log_loss\nw0,10,2.0\n")
    (files / "l.jsonl").write_text('{"window_id": "w0", "tokens": 10, "log_loss": 2.0}\n')
    for name in ("l.csv", "l.jsonl"):
        assert (
            shell("compare", files / name, files / name, "--out", files / name[2:])[0] == 0
        )  # a table needs no header of ours
    with pytest.raises(ContractError) as caught:
        read_losses(files / "l.jsonl")
    err = str(caught.value)
    assert '{"schema": "invar_nb/losses/2", "windows": N}' in err and "write_losses" not in err
    said = err.partition("is ")[2]
    head = said[said.index("{") : said.index("}") + 1].replace("N}", "12}")
    for name in ("b0", "b1"):  # the file that the message describes is one
        (files / f"{name}.jsonl").write_text(
            head
            + "".join(
                f'\n{{"window_id": "w{i}", "tokens": 10, "log_loss": 2.{i}}}'
                for i in range(12)
            )
            + "\n"
        )
    code, out, err = shell(
        "compare", files / "b0.jsonl", files / "b1.jsonl", "--out", files / "y"
    )
    assert code == 0 and "Intervals over" in out, err


def test_a_report_on_answers_speaks_of_no_weights_and_judges_no_metric_of_a_caveat(files):
    rows = "id,label,prediction,confidence\n" + "".join(
        f"q{i},{'yn'[i % 2]},y,0.{55 + i % 40}\n" for i in range(60)
    )
    (files / "o.csv").write_text(rows)
    (files / "n.csv").write_text(rows.replace(",0.6", ",0.8"))
    _, out, err = shell("compare", files / "o.csv", files / "n.csv", "--out", files / "j")
    (smooth,) = (
        row
        for row in json.loads((files / "j" / "report.json").read_text())["rows"]
        if row["key"]["metric"] == "smooth_calibration"
    )
    assert smooth["words"]["claim"] == "not judged" and "smooth" not in out and "o.csv" in err
    text = (files / "j/report.md").read_text()
    assert "weights hashed" not in text and "models were run" in text
    assert all("not judged" in x for x in text.splitlines() if "smooth" in x and "points" in x)
    assert shell("verify", files / "j")[0] == 0
    shell("compare", files / "a.jsonl", files / "b.jsonl", "--out", files / "k")
    assert "weights hashed" not in (files / "k/report.md").read_text()  # these files name none


@pytest.mark.parametrize(
    "table, said",
    [
        ('tier = "balancd"', "balancd"),
        ("tier = 3", "tier"),
        ("[rules.tiers.balanced]\npreview = 20", "tiers"),
    ],
)
def test_a_tier_that_is_not_known_is_never_passed_over(files, table, said):
    "A misspelled tier was ignored; numbers of one's own have no place."
    (files / "c.toml").write_text(f"[rules]\n{table}\n")
    code, _, err = shell(
        "compare",
        files / "a.jsonl",
        files / "b.jsonl",
        "--study",
        files / "c.toml",
        "--out",
        files / "r",
        "-q",
    )
    assert code == 2 and said in err and not (files / "r").exists()


def test_files_and_names_that_cannot_be_are_usage(files):
    "Nesting, other bytes, names too long and a file in the way of --out ended with 5, or after the work."
    (files / "nested.jsonl").write_text("[" * 100_000)
    (files / "bytes.jsonl").write_bytes(b"PAR1\x15\rabc\rdef")
    long = "n" * 5000
    for arm in (files / "nested.jsonl", files / "bytes.jsonl", long):
        code, _, err = shell("compare", files / "a.jsonl", arm, "--out", files / "r", "-q")
        assert code == (2 if arm == long else 3) and "defect" not in err and len(err) < 2000, (
            err
        )  # a damaged file is evidence
    for out in (files / "a.jsonl/x", files / "a.jsonl", long):
        code, _, err = shell(
            "compare", files / "a.jsonl", files / "b.jsonl", "--out", out, "--force", "-q"
        )
        assert code == 2 and "--out must be" in err and len(err) < 2000, err
    os.mkfifo(files / "pipe.toml")
    for name, content in (
        ("deep", "a=" + "[" * 20_000),
        ("long", "seed=" + "9" * 5000),
        ("tables", "[arms]\n" + "a." * 1500 + "b=1"),
        ("pipe", None),
        ("latin", "a='\xe9'"),
        ("none", None),
    ):
        if content:
            (files / f"{name}.toml").write_text(content, encoding="latin-1")
        code, _, err = shell(
            "compare",
            files / "a.jsonl",
            files / "b.jsonl",
            "--study",
            files / f"{name}.toml",
            "-q",
        )
        assert (
            code == 2
            and (
                "must not be nested"
                if name == "tables"
                else "--study must be TOML"
                if content
                else "--study must be a file"
            )
            in err
            and f"{name}.toml" in err
        ), err
    (files / "top.toml").write_text("margin=0.02\n")
    assert (
        "got 'margin'. Write it under [rules]."
        in shell("compare", "--study", files / "top.toml")[2]
    )
    os.mkfifo(files / "pipe.json")
    assert (
        "pipe.json', a pipe or a device. Name one." in shell("verify", files / "pipe.json")[2]
    )
    assert "None" not in shell("score", MODELS)[2]


@pytest.mark.parametrize(
    "margin, code, said",
    [
        ("0.15", 1, "7.43 % (0.15)"),
        ("15%", 0, "15 % (0.303)"),
        ("0.3", 0, "14.9 % (0.3)"),
        ("loss=5%", 1, "5 % (0.101)"),
    ],
)
def test_a_margin_of_runs_is_a_share_of_the_baseline_with_per_cent_else_in_the_metrics_unit(
    files, margin, code, said
):
    "0.15 and 15% were the same: the loss rose by 0.202 from 2.02, which is above 0.15 and below 15 %."
    got, out, _ = shell(
        "compare",
        files / "r0.csv",
        files / "r1.csv",
        "--metric",
        "loss",
        "--better",
        "lower",
        "--margin",
        margin,
        "--out",
        files / "rr",
        "-q",
    )
    row = json.loads((files / "rr/report.json").read_text())["rows"][0]
    assert got == code and row["words"]["margin"] == said, (out, row["words"])
    assert shell("verify", files / "rr")[0] == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            ["rules.replicates=99"],
            "replicates, --seed and resample belong to a bootstrap; got --method jackknife. Choose --method bca",
        ),
        (
            ["--method", "bca", "rules.replicates=99"],
            "replicates and a seed go together; got --set replicates=99, no --seed",
        ),
        (["--method", "bca", "--units", "serial"], "--method bca cannot use serial units"),
        (["--units", "items"], "--units must be one of"),
        (["--margin", "100%"], "--margin must be below 1 (100 %)"),
        (["--metric", "accuracy"], "--metric must read losses; got 'accuracy'"),
        (["--by", "nope"], "--by must be one of 'position'"),
    ],
)
def test_messages_speak_of_options_and_come_before_scoring(
    files, monkeypatch, arguments, said
):
    "The same for two files and for models, where nothing is loaded before."
    code, _, err = shell(
        "compare", files / "a.jsonl", files / "b.jsonl", "--out", files / "o", "-q", *arguments
    )
    assert code == 2 and said in err, err
    if "--by" in arguments:
        return
    (files / "t.txt").write_text("A text.")
    assert (
        shell(
            "compare",
            MODELS + "/base",
            MODELS + "/tuned",
            "--text",
            files / "t.txt",
            "--out",
            files / "o",
            *arguments,
        )[2].split("\n")[1]
        == err.strip()
    )


def test_a_missing_package_is_usage_with_its_cure(monkeypatch, tmp_path):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = shell("demo", "--out", tmp_path / "d", "-q")
    assert (
        code == 2
        and err.startswith(
            "invar-nb: models need torch and transformers; got no torch. In the clone: pip install '.[hf]'"
        )
        and err.count("\n") == 1
    )
    assert describe_error(ModuleNotFoundError("No module named 'pyarrow'"))[0] == 2


def test_losses_of_another_text_and_another_tokenizer_are_refused_before_scoring(
    files, text, tmp_path
):
    "A saved arm of other text was refused after the model was scored, another tokenizer after the baseline was."
    pytest.importorskip("torch")
    code, _, err = shell(
        "compare",
        MODELS + "/base",
        files / "a.jsonl",
        "--text",
        text,
        "--max-length",
        "64",
        "--device",
        "cpu",
        "--out",
        tmp_path / "r",
    )
    assert code == 3 and "the same text and windows" in err and "scoring" not in err, err
    shutil.copytree(MODELS + "/tuned", tmp_path / "other")
    words = json.loads((tmp_path / "other/tokenizer.json").read_text())
    ids = words["model"]["vocab"]
    ids["e"], ids["t"] = ids["t"], ids["e"]
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(words))
    code, _, err = shell(
        "compare",
        MODELS + "/base",
        tmp_path / "other",
        "--text",
        text,
        "--max-length",
        "64",
        "--device",
        "cpu",
        "--out",
        tmp_path / "r",
    )
    assert code == 3 and "the same tokens" in err and "scoring" not in err, err


@pytest.mark.parametrize("command", ["compare", "score"])
def test_a_place_that_cannot_be_written_to_is_usage_before_any_work(
    files, text, monkeypatch, command
):
    "A loop of links, a file or a folder in the way, the current folder, a long name, and files that --force would not replace ended with 3 or 5, some after the scoring."
    (files / "loop").symlink_to(files / "loop")
    (files / "mine").mkdir()
    (files / "mine/notes.txt").write_text("mine")
    (files / "dir.jsonl").mkdir()
    arguments = {
        "compare": [MODELS + "/base", MODELS + "/tuned"],
        "score": [MODELS + "/base"],
    }[command]
    for out in {
        "compare": ["loop", "loop/x", "a.jsonl", "a.jsonl/x", "mine"],
        "score": ["loop/x.jsonl", "a.jsonl/x.jsonl", "dir.jsonl"],
    }[command]:
        code, _, err = shell(
            command, *arguments, "--text", text, "--out", files / out, "--force", "-q"
        )
        assert (
            code == 2
            and ("--out must be" in err or "--force replaces" in err)
            and err.count("\n") == 1
        ), (out, err)
    (files / "empty").mkdir()
    monkeypatch.chdir(files / "empty")
    for out in (
        (".", "", "..", "/", "n" * 254, "n" * 111)
        if command == "compare"
        else ("n" * 248 + ".jsonl",)
    ):
        code, _, err = shell(command, *arguments, "--text", text, "--out", out, "-q")
        assert (
            code == 2 and "--out must be" in err and err.count("\n") == 1 and not os.listdir()
        ), (out, err)
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(files))
    code, _, err = shell(
        command, *arguments, "--text", text, "--out", files / "new.jsonl", "-q"
    )
    assert code == 2 and "be writable" in err
    assert (files / "mine/notes.txt").read_text() == "mine" and not list(files.glob(".*"))


def test_of_two_processes_on_one_folder_one_writes_and_the_other_says_so(text, tmp_path):
    "Both score at once: one line for the second (3, or 2 where it comes late), the report of the first is whole; a link at --out is followed."
    pytest.importorskip("torch")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    two = [command(*compared(text, tmp_path / "link"), "-q") for _ in range(2)]
    said = [p.communicate()[1] for p in two]
    codes = sorted(p.returncode for p in two)
    assert codes[1] in (2, 3) and codes[0] == 0, said
    loser = next(text for p, text in zip(two, said, strict=True) if p.returncode)
    assert loser.count("\n") == 1 and (
        "only one process" in loser or "not overwritten" in loser or "--out must be" in loser
    ), said
    assert (
        (tmp_path / "link").is_symlink()
        and shell("verify", tmp_path / "real")[0] == 0
        and not list(tmp_path.glob(".*"))
    )


@pytest.mark.parametrize("words", [["--out", "r"], []])
def test_the_mark_of_a_command_that_was_killed_goes_with_the_next(files, monkeypatch, words):
    "Killed between its report and its end, it left a hidden file that a refused command did not take away."
    monkeypatch.chdir(files)
    evaluate = lambda: shell("evaluate", "new.csv", *words)[0]
    assert evaluate() == 0
    name = f".{words[-1] if words else 'invar-nb-evaluation'}.lock"
    (files / name).touch()
    assert evaluate() == (2 if words else 0) and not (files / name).exists()


def test_two_runs_at_the_same_time_have_two_folders(tmp_path, monkeypatch):
    "The first one holds the usual folder until it ends; both are there, whole, and neither was refused."
    monkeypatch.chdir(tmp_path)
    for name, shift in (("a", 0), ("b", 0.01)):
        Path(f"{name}.csv").write_text(
            "id,score\n" + "".join(f"{i},{i % 7 / 7 + shift * (i % 3)}\n" for i in range(60))
        )
    line = [sys.executable, "-m", "invar_nb", "compare", "a.csv", "b.csv"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    runs = [
        subprocess.Popen(
            line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [run.communicate() for run in runs]
    assert [run.returncode for run in runs] == [0] * 3, said
    names = ["invar-nb-report", "invar-nb-report-2", "invar-nb-report-3"]
    assert sorted(path.name for path in Path().iterdir() if path.is_dir()) == names and not [
        path for path in Path().iterdir() if path.name.startswith(".")
    ]
    for name in names:
        assert (
            main(["verify", name, "--quiet"]) == 0
            and sum(f"Report: {name}/" in out for out, _ in said) == 1
        )


def table(name, rows):
    Path(name).write_text("\n".join(rows) + "\n")


def test_evaluate_takes_several_files_tasks_and_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lm = page_data("lm_eval")
    table(
        "runs.csv",
        [
            "seed,acc,loss,terminal",
            *(f"{i},{0.8 + i % 3 / 100},{2 + i % 5 / 10},ok" for i in range(12)),
        ],
    )
    table("failed.csv", ["seed,acc,terminal", "0,.8,ok", "1,,oom"])
    table(
        "score.csv",
        ["id,score,subject", *(f"{i},{i % 4 / 4},{'ab'[i % 2]}" for i in range(40))],
    )
    found, out, _ = shell(
        "evaluate",
        lm / "base",
        "--task",
        "invar_choices",
        "--task",
        "invar_rolling",
        "--out",
        "tasks",
    )
    lines = out.splitlines()
    assert (
        found == 0
        and lines[0] == "base: 2 parts, each measured by itself."
        and "value (95 % CI)" in lines[2]
    )
    assert [line for line in lines if line.startswith("invar_")] == [
        "invar_choices",
        "invar_rolling",
    ] and sum("acc)" in line and "(" in line for line in lines) == 1
    found, out, _ = shell(
        "evaluate",
        lm / "base",
        lm / "tuned",
        "score.csv",
        "--task",
        "invar_choices",
        "--out",
        "three",
    )
    assert found == 2  # a table has no task
    found, out, _ = shell("evaluate", "score.csv", "runs.csv", "--out", "mixed")
    assert found == 2
    found, out, _ = shell(
        "evaluate",
        lm / "base",
        lm / "tuned",
        "--task",
        "invar_choices",
        "--by",
        "gold",
        "--out",
        "two",
    )
    assert (
        found == 0
        and out.startswith(
            "2 models: 2 parts, each measured by itself. invar-nb compare says whether models differ."
        )
        and "4 slices" in out
    )
    found, out, _ = shell("evaluate", "runs.csv", "--out", "one")
    rows = {
        line.split()[0]: line for line in out.splitlines() if line.startswith(("acc", "loss"))
    }
    assert (
        found == 0
        and "on 12 seeds" in out
        and "(" in rows["loss"]
        and rows["acc"].split()[1] == "0.81"
    )
    low, high = stats.ttest_1samp([2 + i % 5 / 10 for i in range(12)], 0).confidence_interval(
        0.9
    )
    assert shell(
        "evaluate", "runs.csv", "--metric", "loss", "--level", "0.9", "--out", "ninety"
    )[1].startswith(f"runs: loss 2.175 ({low:.4g} to {high:.4g}, 90 % CI) on 12 seeds.")
    for words, code, part in (
        (("failed.csv",), 3, "every run must have ended well"),
        (("runs.csv", "--metric", "los"), 2, "Did you mean 'loss'?"),
        (("runs.csv", "runs.csv"), 2, "each FILE must be given once"),
        (("runs.csv", "--by", "seed"), 2, "by"),
    ):
        found, out, err = shell("evaluate", *words, "--out", "bad", "--quiet")
        assert (
            found == code and part in err and err.count("\n") == 1 and not Path("bad").exists()
        ), err
    for name in ("tasks", "two", "one", "ninety"):
        assert shell("verify", name, "--quiet")[0] == 0


@needs_torch
def test_a_log_shows_progress_and_pace_after_the_first_pass(tmp_path, monkeypatch):
    "Also for questions and for two models in one pass; a batch of eight passes took minutes."
    from functools import partial

    from invar_nb.shell import open_models, side_by_side, terminal, work

    at_once = partial(terminal.Progress, first=0.0, every=0.0)
    for page in (open_models, side_by_side, work):
        monkeypatch.setattr(page, "Progress", at_once)
    text = tmp_path / "text.txt"
    text.write_text("The gate reads this text once for every model that it is given. " * 20)
    asked = tmp_path / "asked.jsonl"
    question = {
        "prompt": "The gate reads",
        "candidates": [" this", " that", " it"],
        "label": 1,
    }
    rows = [{"id": k, **question} for k in range(6)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base, tuned = f"{MODELS}/base", f"{MODELS}/tuned"
    small = ("--max-length", 32, "--batch-tokens", 32, "--no-cache")
    of_text = ("--text", text, *small)
    batch = ("--batch-tokens", 8, "--no-cache")
    for command, item in (
        (("score", base, *of_text, "--out", tmp_path / "s.jsonl"), "window"),
        (("compare", base, tuned, *of_text, "--divergence"), "window"),
        (("answer", base, asked, *batch, "--out", tmp_path / "a.jsonl"), "candidate"),
    ):
        code, _, err = shell(*command, *["--out", tmp_path / "r"] * (command[0] == "compare"))
        assert code in (0, 1), err
        lines = [line for line in err.splitlines() if f" s per {item}, " in line]
        assert len(lines) > 1 and "left" in lines[0], err
        shares = [int(re.search(r"(\d+)%", line)[1]) for line in lines]
        assert shares == sorted(shares) and shares[0] < 60 and shares[-1] < 100


class Clock:
    "A clock that is a step later whenever it is read."

    def __init__(self, step):
        self.step = step
        self.time = -step

    def __call__(self):
        self.time += self.step
        return self.time


def test_lines_of_progress_come_each_minute_although_steps_are_long(capsys):
    from invar_nb.shell.terminal import Progress

    for seconds, n_before in ((1, 0), (7, 0), (40, 0), (75, 0), (40, 30)):
        clock = Clock(seconds)
        progress = Progress("score", clock=clock)
        progress.n_items = 20
        times = []  # of the lines
        capsys.readouterr()
        for done in range(n_before, 61):
            progress(done, 60)
            if line := capsys.readouterr().err:
                times.append(clock.time)
                assert f", {3 * seconds} s per window, " in line, line
        assert times[0] <= max(10, 2 * seconds)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert max(gaps, default=0) <= max(60, seconds)


def test_the_answer_says_whether_the_gate_passed(files):
    "Also for exit code 0; of several candidates by number, with the one that is nearest."
    pair = ("compare", files / "a.jsonl", files / "b.jsonl")

    def of_gate(text):
        return [line for line in text.splitlines() if "gate" in line]

    end = r"upper end of the ratio, 1\.\d{4},"
    code, out, _ = shell(*pair, "--gate", "1.5", "--out", files / "r1")
    (line,) = of_gate(out)
    assert re.fullmatch(rf"The {end} is within the gate's limit of 1\.5\.", line)
    assert line in (files / "r1" / "summary.md").read_text()
    (passed,) = json.loads((files / "r1" / "report.json").read_text())["pairs"]
    assert passed["gate"]["because"].capitalize() == line.capitalize()
    code, out, _ = shell(*pair, "--gate", "1.0001", "--out", files / "r2")
    (line,) = of_gate(out)
    exceeds = rf"he {end} exceeds the gate's limit of 1\.0001\."
    assert code == 1 and re.fullmatch(f"T{exceeds}", line)
    wide = (*pair, "--gate", "1.0001", "--margin", "20%")
    code, out, _ = shell(*wide, "--out", files / "r5")
    (line,) = of_gate(out)
    assert code == 1 and re.match(f"Exit code 1: t{exceeds}", line)
    shutil.copy(files / "a.jsonl", files / "c.jsonl")
    both = (*pair, files / "c.jsonl", "--margin", "2%")
    code, out, _ = shell(*both, "--gate", "1.5", "--out", files / "r3")
    (line,) = of_gate(out)
    assert line.startswith("2 of 2 gates passed: the upper end of the ratio on b, 1.")
    assert "gate" not in shell(*pair, "--out", files / "r4")[1]
