"""What comes from outside: each case was once a crash, a wait or something that acted, and is a refusal or plain text now."""

import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
import zlib

import numpy as np
import pytest
from commands import shell
from conftest import needs_torch
from frozen_inputs import DATA
from studies import STUDIES

import invar_nb
from invar_nb import page_data
from invar_nb.files import tables
from invar_nb.foundations import store
from invar_nb.foundations.journal import Journal
from invar_nb.foundations.store import canonical_text
from invar_nb.readers import inspect_logs
from invar_nb.report.figures import markdown, visible
from invar_nb.shell import terminal, work
from invar_nb.statistics.totals import UnitTotals

MODELS = os.path.join(os.path.dirname(invar_nb.__file__), "demo_models")


def write_answers(path, wrong, **more):
    row = lambda i: {
        "id": f"q{i}",
        "label": "yn"[i % 2],
        "prediction": "yn"[(i + (i < wrong)) % 2],
        **{name: values[i % len(values)] for name, values in more.items()},
    }
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(60)))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "~no such user/a", "~no such user/b"],
        ["score", "~no such user/a", "--text", "t.txt", "--out", "o.parquet"],
        ["diff", "~no such user/a", "b"],
        ["merge", "~no such user/a", "--out", "o.parquet"],
        ["evaluate", "~no such user/a"],
    ],
)
def test_the_home_of_a_user_who_is_not_there(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("some text")
    code, _, err = shell(*words)
    assert code in (2, 3) and "no such user" in err and "bug" not in err


@pytest.mark.parametrize(
    "probabilities",
    [{"y": [1], "n": 0}, {"y": "1", "n": {}}, [1, 2], [["y", 1]], "x", 5, None],
)
def test_probabilities_of_another_type(probabilities, tmp_path):
    path = write_answers(tmp_path / "a.jsonl", 3, probabilities=[probabilities])
    code, _, err = shell("evaluate", path)
    assert code == 3 and ("probabilit" in err or "labels" in err) and "bug" not in err


def test_names_in_a_report_act_neither_in_a_comment_nor_in_a_spreadsheet(tmp_path):
    lang = ["=1+1", "@everyone", "see http://evil.example\x1b[31m\u202eexe"]
    a, b = (
        write_answers(tmp_path / f"{name}.jsonl", wrong, **{"=cmd|'/C calc'!A0": lang})
        for name, wrong in (("a", 8), ("b", 11))
    )
    assert shell("compare", a, b, "--by", "=cmd|'/C calc'!A0", "--out", tmp_path / "r")[0] == 0
    table = (tmp_path / "r" / "slices.csv").read_text()
    assert (
        ",'=cmd|" in table
        and ",=" not in table
        and "example\\x1b[31m\\u202eexe" in table
        and "\x1b" not in table
        and "\u202e" not in table
    )
    pages = (tmp_path / "r" / "report.md").read_text() + (
        tmp_path / "r" / "summary.md"
    ).read_text()
    assert (
        "@&#8203;everyone" in pages
        and "http\\://evil" in pages
        and "@everyone" not in pages
        and "http://evil" not in pages
    )
    assert shell("verify", tmp_path / "r")[0] == 0
    assert (
        markdown("org/model@main HTTPS://x Www.y a@b")
        == "org/model@main HTTPS\\://x Www\\.y a@b"
    )


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, 93])
def test_a_small_archive_of_gigabytes_is_not_unpacked(packed, tmp_path, monkeypatch):
    "85 kB of Zstandard held 2.6 GB. Here the bound is lower, so that the archive may be, too."
    monkeypatch.setattr(inspect_logs, "MOST_BYTES", 10_000)
    log = json.loads((DATA / "inspect/base/choices.json").read_text())
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        for sample in log["samples"]:
            content = json.dumps(
                sample | {"metadata": {"x": "a" * 20_000 * (sample["id"] == "q03")}}
            ).encode()
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            if packed == 93:
                write_zstandard(archive, name, content)
            else:
                archive.writestr(name, content, packed)
        archive.writestr(
            "header.json",
            json.dumps({key: value for key, value in log.items() if key != "samples"}),
        )
    code, _, err = shell("evaluate", tmp_path / "log.eval", "--score", "choice")
    assert (
        code == 3
        and "a member of the archive must have at most 10,000 bytes; got samples/q03" in err
    )


def write_zstandard(archive, name, content):
    "A member of method 93, which Python 3.11 does not write itself: stored, and then named otherwise."
    zstandard = pytest.importorskip("zstandard")
    archive.writestr(name, zstandard.compress(content))
    info = archive.getinfo(name)
    info.compress_type, info.file_size, info.CRC = 93, len(content), zlib.crc32(content)


@needs_torch
@pytest.mark.parametrize(
    "edit, words",
    [
        ({"num_hidden_layers": 100_000}, "100,000 layers for 38 tensors"),
        (
            {"attn_implementation": "org/name"},
            "must not name weights or code elsewhere; got 'org/name'",
        ),
        ({"num_hidden_layers": "x" * 100}, "must load"),
    ],
)
def test_a_config_that_asks_for_too_much_or_for_code(edit, words, tmp_path):
    "A hundred thousand layers took half a minute and gigabytes on the meta device; an attention of that kind is fetched where `kernels` is installed."
    folder = shutil.copytree(os.path.join(MODELS, "base"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | edit))
    (tmp_path / "t.txt").write_text("some text of several words")
    code, _, err = shell(
        "score", folder, "--text", tmp_path / "t.txt", "--out", tmp_path / "o.parquet"
    )
    assert code == 3 and words in err


@needs_torch
def test_a_tokenizer_whose_rules_have_no_end(tmp_path):
    folder = shutil.copytree(os.path.join(MODELS, "base"), tmp_path / "model")
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    (tmp_path / "t.txt").write_text("a" * 80 + "!")
    code, _, err = shell(
        "score", folder, "--text", tmp_path / "t.txt", "--out", tmp_path / "o.parquet"
    )
    assert code == 3 and "the tokenizer must be able to split the text" in err


@needs_torch
def test_a_file_that_appears_during_the_work_is_kept(tmp_path, monkeypatch):
    "`--out` was looked at before the work alone; what appeared meanwhile was replaced."
    (tmp_path / "t.txt").write_text("some text of several words")
    spell = work.losses_bytes

    def meanwhile(*arguments):
        (tmp_path / "o.parquet").write_text("precious")
        return spell(*arguments)

    monkeypatch.setattr(work, "losses_bytes", meanwhile)
    score = [
        "score",
        os.path.join(MODELS, "base"),
        "--text",
        tmp_path / "t.txt",
        "--out",
        tmp_path / "o.parquet",
    ]
    code, _, err = shell(*score)
    assert (
        code == 3
        and "an existing file is not replaced" in err
        and (tmp_path / "o.parquet").read_text() == "precious"
    )
    monkeypatch.undo()
    (tmp_path / "o.parquet").unlink()
    assert shell(*score)[0] == 0 and len(invar_nb.read_losses(tmp_path / "o.parquet"))


@needs_torch
@pytest.mark.slow
def test_scoring_again_on_another_processor_is_equivalent_within_a_ten_thousandth(tmp_path):
    "Losses scored with these kernels, compared with the model scored with each other set that computes otherwise here."
    spec = importlib.util.spec_from_file_location(
        "processors", os.path.join(os.path.dirname(__file__), "..", "tools", "processors.py")
    )
    spec.loader.exec_module(processors := importlib.util.module_from_spec(spec))
    write_texts(tmp_path / "t.jsonl")
    text = ("--text", tmp_path / "t.jsonl")
    score = ("score", MODEL, *text, "--max-length", 64)
    assert shell(*score, "--dtype", "float32", "--out", tmp_path / "a.parquet")[0] == 0
    command = (sys.executable, "-m", "invar_nb", "compare", tmp_path / "a.parquet", MODEL)
    for name, kernels in processors.distinct_sets().items():
        again = subprocess.run(
            [*command, *text, *NEARLY_EQUAL, "--out", tmp_path / name],
            env={**os.environ, **kernels},
            capture_output=True,
            text=True,
        )
        assert again.returncode == 0, (name, again.stdout, again.stderr)


SAME_ANSWERS = "Both models give exactly the same result on all 40 items."
NEARLY_EQUAL = ("--margin", "0.01%", "--require", "equivalent")
MODEL, TUNED_MODEL = (os.path.join(MODELS, name) for name in ("base", "tuned"))


def write_texts(path, what="parts"):
    "Forty short documents."
    words = ("house", "tree", "river", "city")
    rows = [
        f"The {words[i % 4]} has {i} {what}, of which {i % 7} stand here." for i in range(40)
    ]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))


def shifted(losses):
    return losses.changed(log_loss=losses.log_loss + 0.015)


def halved(losses):
    "A third of the losses."
    third = np.arange(len(losses)) % 3 == 0
    return losses.changed(log_loss=np.where(third, losses.log_loss / 2, losses.log_loss))


def exchanged(losses):
    "Losses of other windows: the same mean."
    return losses.changed(log_loss=losses.log_loss[::-1].copy())


def heavier(losses):
    return losses.changed(tokens=8 * losses.tokens)


def of_other_documents(losses):
    return losses.changed(document_ids=[f"d{i}" for i in range(len(losses))])


def fewer(losses):
    return losses.take(np.arange(len(losses) - 3))


@needs_torch
@pytest.mark.parametrize(
    "forge, exit_code, said",
    [
        (shifted, 1, "0.01 %"),
        (halved, 1, "0.01 %"),
        (exchanged, 1, "equivalent is required, and was not shown. Inconclusive"),
        (heavier, 3, "tokens"),
        (of_other_documents, 3, "document"),
        (fewer, 3, "both models must be scored on the same text and windows"),
    ],
)
def test_scoring_again_finds_losses_that_are_not_the_models(forge, exit_code, said, tmp_path):
    "Each of these reports verifies, since it follows from its evidence; the recipe of SECURITY.md does not let it pass."
    write_texts(tmp_path / "t.jsonl")
    text = ("--text", tmp_path / "t.jsonl")
    made = ("compare", MODEL, TUNED_MODEL, *text, "--max-length", 64, "--out", tmp_path / "r")
    assert shell(*made)[0] in (0, 1)
    again = ("compare", tmp_path / "r" / "candidate.parquet", TUNED_MODEL, *text)
    code, out, _ = shell(*again, *NEARLY_EQUAL, "--out", tmp_path / "true")
    assert code == 0 and out.startswith("Identical"), out
    arms = [
        invar_nb.read_losses(tmp_path / "r" / f"{n}.parquet")
        for n in ("baseline", "candidate")
    ]
    if forge in (shifted, halved, exchanged):
        arms[1] = forge(arms[1])
    else:
        arms = [forge(arm) for arm in arms]
    invar_nb.compare(invar_nb.pair(*arms)).report().save(tmp_path / "r", force=True)
    assert shell("verify", tmp_path / "r")[0] == 0
    code, out, err = shell(*again, *NEARLY_EQUAL, "--out", tmp_path / "forged")
    assert code == exit_code and said in out + err, (out, err)


@needs_torch
def test_evidence_of_every_kind_is_compared_with_its_model(tmp_path):
    "Bits per byte, answers, one of several texts and a second scoring: a command for each file."
    write_texts(tmp_path / "t.jsonl")
    write_texts(tmp_path / "u.jsonl", "pieces")
    questions = [
        {
            "id": str(i),
            "prompt": f"Row {i} has",
            "candidates": [" one", " two"],
            "label": i % 2,
        }
        for i in range(40)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    one, two, quiz = (tmp_path / f"{name}.jsonl" for name in "tuq")
    made = ("compare", MODEL, TUNED_MODEL, "--out")
    for more in (
        ("bytes", "--text", one, "--per-byte"),
        ("texts", "--text", f"a={one}", "--text", f"b={two}", "--max-length", 64, "--control"),
        ("answers", "--questions", quiz),
    ):
        assert shell(*made, tmp_path / more[0], *more[1:])[0] in (0, 1)
    bits = ("--margin", "bits_per_byte=0.0001", "--require", "equivalent")
    for file, model, words in (
        ("bytes/candidate.parquet", TUNED_MODEL, ("--text", one, *bits)),
        ("texts/b.candidate.parquet", TUNED_MODEL, ("--text", two, *NEARLY_EQUAL)),
        ("texts/a.control.parquet", MODEL, ("--text", one, *NEARLY_EQUAL)),
        ("answers/candidate.jsonl", TUNED_MODEL, ("--questions", quiz)),
    ):
        again = ("compare", tmp_path / file)
        other = MODEL if model == TUNED_MODEL else TUNED_MODEL
        out = ("--out", tmp_path / "again", "--force")
        code, right, err = shell(*again, model, *words, *out)
        assert code == 0, (file, right, err)
        code, wrong, err = shell(*again, other, *words, *out)
        if "answers" in file:  # of labels there is no margin so narrow
            assert SAME_ANSWERS in right and SAME_ANSWERS not in wrong, (right, wrong)
        else:
            assert code == 1, (file, wrong, err)


@needs_torch
def test_losses_of_looks_are_not_compared_with_a_model_alone(tmp_path):
    "The model alone has no looks: it is refused before anything is scored."
    write_texts(tmp_path / "t.jsonl")
    made = ("compare", MODEL, TUNED_MODEL, "--text", tmp_path / "t.jsonl", "--until-decided")
    assert shell(*made, "--max-length", 64, "--out", tmp_path / "r")[0] in (0, 1)
    again = ("compare", tmp_path / "r" / "baseline.parquet", MODEL)
    code, _, err = shell(*again, "--text", tmp_path / "t.jsonl", "--out", tmp_path / "again")
    assert code == 2 and "run its own command again and compare the two reports" in err, err
    assert "scoring" not in err


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    arms = [
        write_answers(folder / f"{name}.jsonl", wrong) for name, wrong in (("a", 8), ("b", 11))
    ]
    assert shell("compare", *arms, "--out", folder / "r")[0] == 0
    return folder / "r"


LM = {
    "samples": "samples_t_2024-01-01T00-00-00.000000.jsonl",
    "results": "results_2024-01-01T00-00-00.000000.json",
}
ODD_FILES = {
    "pipe": os.mkfifo,
    "link to a device": lambda path: os.symlink("/dev/zero", path),
    "large": lambda path: path.open("wb").truncate(2**36),
}


@pytest.mark.parametrize("odd", ODD_FILES)
@pytest.mark.parametrize(
    "at, words",
    [
        ("x/" + LM["samples"], "evaluate x"),
        ("x/" + LM["results"], "evaluate x"),
        ("x.jsonl", "evaluate x.jsonl"),
        ("x.csv", "evaluate x.csv"),
        ("x.json", "evaluate x.json"),
        ("x/a.json", "evaluate x"),
        ("x.toml", "compare --study x.toml"),
        ("x/report.json", "verify x"),
        ("x/report.json", "card x"),
        ("r/report.md", "verify r"),
        ("r/baseline.jsonl", "verify r"),
        ("r/slices.csv", "verify r"),
        ("x/part-1-of-2.json", "merge x --out o.parquet"),
        ("x/part-1-of-2.parquet", "merge x --out o.parquet"),
    ],
)
def test_pipes_devices_and_files_beyond_all_bounds_are_refused(
    odd, at, words, report, tmp_path, monkeypatch
):
    "A pipe in a folder of lm-eval waited for ever; a device or a sparse file of 64 GiB would be read or hashed without end."
    monkeypatch.chdir(tmp_path)
    shutil.copytree(report, "r")
    (tmp_path / at).parent.mkdir(exist_ok=True)
    if at.startswith("x/") and "2024" in at:
        (tmp_path / "x" / LM["samples"]).write_text("{}\n")
        (tmp_path / "x" / LM["results"]).write_text(
            json.dumps(
                {
                    "results": {"t": {"acc,none": 1}},
                    "configs": {"t": {}},
                    "versions": {"t": 1},
                    "task_hashes": {"t": "x"},
                    "n-samples": {"t": {"effective": 1}},
                    "n-shot": {"t": 0},
                }
            )
        )
    (tmp_path / at).unlink(missing_ok=True)
    ODD_FILES[odd](tmp_path / at)
    code, _, err = shell(*words.split())
    assert code in (2, 3) and "bug" not in err and len(err.splitlines()[-1]) < 800, err


def test_lines_values_and_files_have_a_bound_that_is_said(tmp_path, monkeypatch):
    for module in (store, tables):
        monkeypatch.setattr(module, "MOST_LINE", 500)
    monkeypatch.setattr(store, "MOST_VALUES", 100)
    long, many = tmp_path / "long.jsonl", tmp_path / "many.json"
    long.write_text(json.dumps({"id": "a" * 300_000, "score": 1}) + "\n")
    many.write_text("[" + "[],\n" * 5000 + "[]]")
    assert (
        "a line must have at most 500 bytes" in shell("evaluate", long)[2]
        and "JSON must hold at most 100 values" in shell("evaluate", many)[2]
    )
    with pytest.raises(invar_nb.ContractError, match="at most 500 bytes"):
        [*store.read_lines(long, "read")]
    with pytest.raises(invar_nb.ContractError, match="at most 0 MiB"):
        store.read_file(long, "read", 100)


PROVENANCES = [
    {"languages": {"en": "x"}},
    {"source": 5},
    {"source": {"other_metrics": 5}},
    {"source": {"limit": "x", "format": []}},
    {"noise_floor": "x"},
    {"document_slices": 5},
    {"weights": {"digests": {"baseline": None, "candidate": None}}},
    {"document_languages": 5},
]


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_what_a_file_says_of_itself_has_its_type(provenance, tmp_path):
    head = {"schema": "invar_nb/losses/2", "windows": 40, "provenance": provenance}
    rows = [
        {"window_id": f"w{i}", "tokens": 10, "log_loss": 1.5 + i % 3, "document_id": f"d{i}"}
        for i in range(40)
    ]
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in (head, *rows))
        )
    code, _, err = shell(
        "compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--out", tmp_path / "r"
    )
    assert (
        code == 3
        and "the header must be one of a loss file" in err
        and next(iter(provenance)) in err
    ), err


@pytest.mark.parametrize(
    "text",
    [
        "calculating perplexity over 99999999999 chunks, n_ctx=512\n[1]4.5000,",
        "calculating perplexity over 1 chunks, n_ctx=" + "9" * 5000 + "\n[1]4.5000,",
        "calculating perplexity over 1 chunks, n_ctx=512\n[" + "1" * 5000 + "]4.5000,",
    ],
)
def test_logs_with_numbers_of_thousands_of_digits(text, tmp_path):
    (tmp_path / "x.log").write_text(text)
    code, _, err = shell("evaluate", tmp_path / "x.log")
    assert code in (2, 3) and "bug" not in err


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE work SET key = ?",
        "UPDATE record SET value = ?",
    ],
)
@pytest.mark.parametrize("value", [None, b"\xff", "x", "[1", "[" * 10**5])
def test_a_journal_with_other_values_is_damaged(change, value, tmp_path):
    with Journal(tmp_path / "j", {"a": 1}) as journal:
        journal.put("x", 1)
    with sqlite3.connect(tmp_path / "j") as link:
        link.execute(change, (value,))
    link.close()
    with pytest.raises(
        invar_nb.ContractError, match="the file must be a journal written by invar_nb"
    ):
        Journal(tmp_path / "j", {"a": 1})


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"rows": 5},
        {"schema": "invar_nb/report/3"},
        b'{"report": "\xff..report.json"}',
        "changed",
    ],
)
def test_a_card_is_made_of_reports_alone(document, report, tmp_path):
    if document == "changed":
        document = json.loads((report / "report.json").read_text()) | {
            "headline": "Improved by 40 points."
        }
    (tmp_path / "report.json").write_bytes(
        document if isinstance(document, bytes) else canonical_text(document).encode()
    )
    for words in (["card"], ["export", "--to", "junit"], ["verify"]):
        code, _, err = shell(words[0], tmp_path, *words[1:])
        assert code in (2, 3) and "bug" not in err, err


def test_marks_that_show_nothing_are_seen_and_addresses_are_no_links():
    assert (
        visible("a\ufe0fb\u3164c\u034fd\u200be") == r"a\ufe0fb\u3164c\u034fd\u200be"
        and visible("東京 é") == "東京 é"
    )
    assert (
        markdown("ftp://a.b, x+y@b-c.de, org/model@main")
        == r"ftp\://a.b, x+y@&#8203;b-c.de, org/model@main"
    )


@pytest.mark.parametrize("option", ["--baseline", "--candidate", "--text"])
def test_a_name_of_two_lines_goes_into_no_workflow(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    code, _, err = shell("init", option, "q8\nrun: evil")
    assert (
        code == 2
        and f"{option} must be a name on one line; got 'q8\\nrun: evil'" in err
        and not list(tmp_path.iterdir())
    )


@pytest.mark.parametrize(
    "words",
    [
        "verify {}",
        "card {}",
        "compare a b --study {}",
        "compare a b --out {}",
        "score m --text {} --out o.jsonl",
        "score m --text t --out {}",
        "compare a {} --control {}",
        "answer m {} --out o.jsonl",
        "score m --text t --set tokenizer={} --out o.jsonl",
        "merge {} --out o.parquet",
    ],
)
@pytest.mark.parametrize(
    "address",
    ["openai:http:/u:secret@host", "vllm:https://u:secret@host/v1", "s3://u:secret@bucket/x"],
)
def test_a_password_in_an_address_is_not_repeated_wherever_it_stands(
    words, address, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = shell(*words.format(address, address).split())
    assert code == 2 and "secret" not in out + err and [*tmp_path.iterdir()] == []


def test_pages_that_a_report_does_not_have_and_links_to_other_files(report, tmp_path):
    shutil.copytree(report, tmp_path / "r")
    (tmp_path / "r" / "slices.csv").write_text("slice,claim\n")
    code, _, err = shell("verify", tmp_path / "r")
    assert code == 3 and "got slices.csv" in err
    (tmp_path / "r" / "slices.csv").unlink()
    (tmp_path / "secret").write_text("PASSWORD")
    (tmp_path / "r" / "report.md").unlink()
    (tmp_path / "r" / "report.md").symlink_to(tmp_path / "secret")
    code, out, err = shell("verify", tmp_path / "r")
    assert code == 3 and "report.md must be a file" in err and "PASSWORD" not in out + err


def study_file(path, text):
    path.write_text(text)
    return path


@needs_torch
@pytest.mark.parametrize(
    "line, option",
    [
        ("trust_remote_code = true", ["--trust-remote-code"]),
        ("trust_remote_code = true", ["--set", "trust_remote_code=true"]),
        ("allow_pickle = true", ["--set", "allow_pickle=true"]),
        ('documents = "(a+)+$"', ["--set", "documents=(a+)+$"]),
    ],
)
@pytest.mark.parametrize("command", ["compare", "score", "answer"])
def test_a_study_file_may_forbid_and_never_allow(line, option, command, tmp_path):
    "Code beside a model ran, and pickles were opened, where a file that travels with a pull request said so."
    (tmp_path / "t.txt").write_text("some text of several words")
    (tmp_path / "q.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": f"q{i}",
                    "prompt": "The answer is",
                    "candidates": [" yes", " no"],
                    "label": " no",
                }
            )
            + "\n"
            for i in range(12)
        )
    )
    if command == "answer" and "documents" in line:
        return
    model, out = os.path.join(MODELS, "base"), ["--out", tmp_path / "o.jsonl"]
    words = {
        "compare": [
            "compare",
            model,
            os.path.join(MODELS, "tuned"),
            "--text",
            tmp_path / "t.txt",
            "--out",
            tmp_path / "r",
        ],
        "score": ["score", model, "--text", tmp_path / "t.txt", *out],
        "answer": ["answer", model, tmp_path / "q.jsonl", *out],
    }[command]
    words += ["--study", study_file(tmp_path / "s.toml", f"[scoring]\n{line}\n")]
    code, out, err = shell(*words)
    assert (
        (code, out) == (2, "")
        and "must be allowed on the command line" in err
        and len(err.splitlines()) <= 3
    )
    cure = shlex.split(err.strip().rpartition("write ")[2].removesuffix("."))
    assert cure == option or option[1:] == ["trust_remote_code=true"], err
    study_file(
        tmp_path / "s.toml", f"{line}\n"
    )  # outside its section: nobody is sent to where it is refused again
    assert shell(*words)[2] == err
    study_file(tmp_path / "s.toml", f"[scoring]\n{line}\n")
    assert "must be allowed" not in shell(*words, *option)[2]
    usual = {
        "trust_remote_code = true": "trust_remote_code = false",
        "allow_pickle = true": "allow_pickle = false",
    }.get(line, 'documents = "headings"')
    study_file(tmp_path / "s.toml", f"[scoring]\n{usual}\n")
    assert "must be allowed" not in shell(*words, *["--force"])[2]


ELSEWHERE = "openai:http://127.0.0.1:9/v1"  # where nobody answers


@pytest.mark.parametrize(
    "arms, typed",
    [
        (f'baseline = "m/base"\nq4 = "{ELSEWHERE}"', []),
        (f'baseline = "{ELSEWHERE}"\nq4 = "m/q4"', []),
        (f'baseline = "m/base"\nq4 = "{ELSEWHERE}#x"', ["m/base"]),
    ],
)
def test_a_key_goes_to_hosts_that_you_named(arms, typed, tmp_path, monkeypatch):
    "A server that only a study file named got the key of the environment in its first request."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("some text of several words")
    words = [
        "compare",
        *typed,
        "--text",
        "t.txt",
        "--out",
        "r",
        "--study",
        study_file(tmp_path / "s.toml", f"[arms]\n{arms}\n"),
    ]
    monkeypatch.setenv("INVAR_NB_API_KEY", "sk-0123456789")
    for hosts in (
        "",
        "https://127.0.0.1:9",
        "127.0.0.1:9",
        "http://127.0.0.1",
        "http://127.0.0.1:90",
    ):
        monkeypatch.setenv("INVAR_NB_API_HOST", hosts)
        code, out, err = shell(*words)
        assert (
            code == 2
            and "you must name the server that gets it; got 'http://127.0.0.1:9'" in err
            and "set INVAR_NB_API_HOST=http://127.0.0.1:9," in err
            and "sk-0" not in err
        ), err
    monkeypatch.setenv("INVAR_NB_API_HOST", "https://other, http://127.0.0.1:9")
    assert "must name the server" not in shell(*words)[2]
    monkeypatch.delenv("INVAR_NB_API_HOST")
    monkeypatch.delenv("INVAR_NB_API_KEY")
    assert "must name the server" not in shell(*words)[2]


@needs_torch
def test_who_gets_the_key_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("some text of several words")
    monkeypatch.setenv("INVAR_NB_API_KEY", "sk-0123456789")
    pytest.importorskip("httpx")
    words = [
        "compare",
        ELSEWHERE,
        f"{ELSEWHERE}#b",
        "--text",
        tmp_path / "t.txt",
        "--tokenizer",
        os.path.join(MODELS, "base"),
        "--out",
        tmp_path / "r",
    ]
    for more in ([], ["--quiet"]):
        code, _, err = shell(*words, *more)
        assert (
            code == 5
            and err.count("INVAR_NB_API_KEY is sent to http://127.0.0.1:9\n") == 1
            and "sk-0" not in err
        )


def test_a_summary_that_cannot_be_written_changes_no_verdict(tmp_path, monkeypatch):
    "A container that passes the variable and not the file turned a regression (1) into a failure (5)."
    a, b = (
        write_answers(tmp_path / f"{name}.jsonl", wrong)
        for name, wrong in (("a", 0), ("b", 30))
    )
    usual = shell("compare", a, b, "--out", tmp_path / "r")
    assert usual[0] == 1 and "egressed" in usual[1]
    os.mkfifo(tmp_path / "fifo")  # nobody reads it: to open it would wait for ever
    for page in (
        tmp_path / "no" / "such",
        tmp_path,
        "/dev/full",
        "/dev/null",
        tmp_path / "fifo",
    ):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
        code, out, err = shell("compare", a, b, "--out", tmp_path / "r", "--force")
        assert (code, out) == usual[:2] and err.count(
            "the summary of this job was not written"
        ) == 1, err


@pytest.mark.parametrize(
    "name",
    [
        "::error title=gate::all good",
        "::stop-commands::x",
        "##[error]all good",
        "##vso[task.complete result=Succeeded]",
        "x ##[group]y",
    ],
)
def test_a_name_is_no_command_of_a_runner(name, tmp_path):
    "A runner reads commands in lines of either stream, blanks before `::` or not, and `##[` anywhere."
    for file, wrong in (("a", 8), ("b", 11), ("c", 12)):
        write_answers(tmp_path / f"{file}.jsonl", wrong)
    study = study_file(
        tmp_path / "s.toml",
        f'[arms]\nbaseline = "{tmp_path}/a.jsonl"\n"{name}" = "{tmp_path}/b.jsonl"\nc = "{tmp_path}/c.jsonl"\n',
    )
    outputs = [
        shell("compare", "--study", study, "--out", tmp_path / "r"),
        shell("compare", name, "x", "--text", "t"),
        shell("verify", tmp_path / "r"),
    ]
    assert outputs[0][0] == 0
    for line in "".join(out + err for _, out, err in outputs).splitlines():
        assert not line.lstrip().startswith("::") and not re.search(r"##\w*\[", line), line
    terminal.answer(f"  {name}\n\t{name}")


@pytest.mark.parametrize(
    "name",
    ["##[error]all good", "##vso[task.complete result=Succeeded]", "x ##[group]y ##[z]"],
)
def test_json_on_a_log_holds_no_command_of_a_runner(name, tmp_path):
    for file, wrong in (("a", 8), ("b", 11), ("c", 12)):
        write_answers(tmp_path / f"{file}.jsonl", wrong)
    study = study_file(
        tmp_path / "s.toml",
        f'[arms]\nbaseline = "{tmp_path}/a.jsonl"\n"{name}" = "{tmp_path}/b.jsonl"\nc = "{tmp_path}/c.jsonl"\n',
    )
    code, out, _ = shell("compare", "--study", study, "--out", tmp_path / "r", "--json")
    assert (
        code == 0
        and not re.search(r"##\w*\[", out)
        and name in {arm["name"] for arm in json.loads(out)["arms"].values()}
    )
    _, out, _ = shell("compare", name, "x", "--text", "t", "--json")
    assert not re.search(r"##\w*\[", out) and json.loads(out)["exit_code"] == 2


@pytest.mark.parametrize(
    "name",
    ["\x1b", "\u202e", "a\u00a0b", "\x85", "\u2028", "tab\there", "x: [y", "- z", "\u200b"],
)
def test_what_a_program_reads_is_what_was_written(name, tmp_path):
    "YAML, XML and JSON were made, and then `?` put in the place of what is not printable: `- name: ?` is no YAML."
    yaml = pytest.importorskip("yaml")
    import xml.etree.ElementTree as xml

    p = invar_nb.pair(
        *(
            invar_nb.Scores(ids=range(60), values=np.arange(60) % 7 / 7 + shift, model=name)
            for shift in (0, 0.01)
        )
    )
    invar_nb.compare(p).report().save(tmp_path / "r")
    pytest.importorskip("huggingface_hub")
    code, out, err = shell("card", tmp_path / "r", "--dataset", "d")
    assert code == 0, err
    facts = json.loads(shell("card", tmp_path / "r", "--dataset", "d", "--json")[1])
    assert yaml.safe_load(
        out.strip().removeprefix("---").removesuffix("---")
    ) == yaml.safe_load(facts["block"].strip().removeprefix("---").removesuffix("---"))
    assert "?" not in out
    out = shell("export", tmp_path / "r")[1]
    assert out == json.loads(shell("export", tmp_path / "r", "--json")[1])["text"] + "\n"
    xml.fromstring(out)


def test_a_call_leaves_signal_handlers_as_they_were():
    before = signal.getsignal(signal.SIGTERM)
    assert shell("help")[0] == 0 and signal.getsignal(signal.SIGTERM) is before
    assert shell("verify", "nothing")[0] == 2 and signal.getsignal(signal.SIGTERM) is before


def test_a_line_takes_time_in_proportion_to_its_length():
    "30 kB of `://` took 3 seconds."
    for text in ("://", "openai:", "://@", "vllm:x"):
        began = time.process_time()
        terminal.one_line(text * 20_000)
        assert time.process_time() - began < 2
    assert (
        terminal.one_line("at https://me:p?w@host/v1?key=1 and vllm:me:pw@host")
        == "at https://host/v1 and vllm:host"
    )


HUGE = "1" + "0" * 400


def test_numbers_that_fit_no_float_and_texts_that_are_none(tmp_path):
    "windows of 10**19 and more, a share of 400 digits, half a surrogate pair as raw bytes: each ended as a bug, exit 5."
    for number in (str(2**53 + 1), str(10**19), HUGE):
        (tmp_path / "w.jsonl").write_text(
            f'{{"schema": "invar_nb/losses/2", "windows": {number}}}\n'
            + '{"window_id": "a", "tokens": 3, "log_loss": 1.5}\n'
        )
        code, _, err = shell("evaluate", tmp_path / "w.jsonl")
        assert code == 3 and "bug" not in err, err
    for edit in (
        lambda text: re.sub(r'"acc,none": [\d.e-]+', f'"acc,none": {HUGE}', text),
        None,
    ):
        folder = shutil.copytree(page_data("lm_eval") / "base", tmp_path / str(edit is None))
        for file in folder.rglob("*.json*"):
            if edit and file.name.startswith("results"):
                file.write_text(edit(file.read_text()))
            if not edit and file.name.startswith("samples"):
                data = file.read_bytes()
                file.write_bytes(
                    re.sub(rb'("arg_1": "[^"]*)"', lambda m: m[1] + b'\xed\xa0\x80"', data)
                )
        code, _, err = shell("evaluate", folder)
        assert code == 3 and "bug" not in err and len(err.strip().splitlines()) <= 2, err


def test_totals_claim_no_more_than_their_file_holds(tmp_path):
    "188 bytes whose header claims 10**14 numbers; 2 MB that unpack to 2 GB."
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**14,)}
    )
    for packed, content in (
        (zipfile.ZIP_STORED, header.getvalue()),
        (zipfile.ZIP_DEFLATED, header.getvalue() + bytes(10**6)),
    ):
        with zipfile.ZipFile(tmp_path / "x.units", "w", packed) as archive:
            archive.writestr("sums.npy", content)
        with pytest.raises(
            invar_nb.ContractError, match="UnitTotals.read: the file must hold totals"
        ):
            UnitTotals.read(tmp_path / "x.units")
    values = np.arange(9.0)
    UnitTotals.of({"a": values, "b": values}, block=2).write(tmp_path / "x.units")
    assert UnitTotals.read(tmp_path / "x.units").columns["a"].sum() == values.sum()


@pytest.mark.parametrize("kind", STUDIES)
def test_a_process_that_raises_for_every_rounding_gets_the_same_report(kind, tmp_path):
    "np.seterr(all='raise') is a user's own: 5e-324 in a picture of passages ended every report."
    usual = STUDIES[kind]().report()
    with np.errstate(all="raise"):
        report = STUDIES[kind]().report()
        assert report.digest == usual.digest
        report.to_frame(), report.to_markdown(), report.summary(), report.plot()
        folder = report.save(tmp_path / "r")
        assert invar_nb.verify(folder)
