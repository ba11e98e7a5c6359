"""Each cure that a refusal names is followed. tests/data/cures.csv has, beside each line of refusals.csv, the lines that its message leads to, or
the reason why no line can; with a line, the reason is a second fault, which the line mends too. A step `cp A B` copies a file; folders are made."""

import csv
import functools
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import shell
from conftest import WANTED, needs_torch
from frozen_cases import answer
from frozen_inputs import DATA, write_inputs

from invar_nb.shell.demo import demo_model

rows_of = lambda name: [*csv.DictReader((DATA / name).read_text().splitlines())]
REFUSED, CURES = [row["line"] for row in rows_of("refusals.csv")], rows_of("cures.csv")
PAIRS = [(row["line"], row["cured"], row["reason"]) for row in CURES if row["cured"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


def test_each_refused_line_has_a_cured_one_or_a_reason():
    assert [*dict.fromkeys(row["line"] for row in CURES)] == REFUSED and len(PAIRS) == len(
        set(PAIRS)
    )
    assert (
        all(row["cured"] or row["reason"] for row in CURES)
        and sum(not row["cured"] for row in CURES) <= 5
    )


def follow(step, out, done={}):
    "(code, stderr) of one step; what is made for a later step is made once in a folder."
    key = Path.cwd(), step  # a worker that comes back to this file has a new folder
    if key in done:
        return done[key]
    words = shlex.split(step)
    for word in words[1:]:
        if word.startswith("made/"):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
    if words[0] == "cp":
        return 0, shutil.copy(*words[1:])
    code, _, _, said = answer(step, out)
    if re.search(r"--out made/\w+(\.jsonl|/|$)", step):
        done[key] = code, said
    return code, said


@functools.cache
def said_of(line):
    return answer(line, Path("made/refused").absolute())[3]


def named(step):
    return {
        m[1] or m[2]
        for m in re.finditer(
            r"(?:(--[a-z][-a-z]*)|\b(?:rules|columns|scoring|arms)\.(\w+)=)", step
        )
    }


@pytest.mark.parametrize("line, cured, also", PAIRS)
def test_a_cure_that_is_followed_cures(line, cured, also, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    message = said_of(line)
    unnamed = [
        word
        for word in named(cured.split(" && ")[-1]) - named(line)
        if word.removeprefix("--") not in message
    ]
    assert also or not unnamed, message
    for i, step in enumerate(cured.split(" && ")):
        code, said = follow(step, tmp_path / f"r{i}")
        if WANTED == "no" and re.search("got no torch|No module named 'safetensors'", said):
            pytest.skip("needs torch")
        assert code in (0, 1), f"{message}{step}\n{code}: {said}"


# --- documents and prompts without a token to score: all at once, before weights are read ----------------------------------------------
@pytest.fixture
def models(tmp_path, monkeypatch):
    "`bare` has no BOS token, `bos` has one; neither has weights. `whole` is `bos` with weights."
    monkeypatch.chdir(tmp_path)
    for name in ("bare", "bos", "whole"):
        shutil.copytree(demo_model("base"), name)
        if name != "whole":
            Path(name, "model.safetensors").unlink()
        config = json.loads(Path(name, "tokenizer_config.json").read_text())
        if name != "bare":
            Path(name, "tokenizer_config.json").write_text(
                json.dumps(config | {"bos_token": "!"})
            )
    write = lambda name, rows: Path(name).write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    write(
        "short.jsonl",
        [{"text": text} for text in ("a good text", "b", "c", "another one", "d")],
    )
    write(
        "many.jsonl",
        [{"text": chr(0x4E00 + i) if i % 2 else f"text {i}"} for i in range(8)]
        + [{"text": chr(65 + i)} for i in range(26)],
    )
    write("empty.jsonl", [{"text": text} for text in ("a good text", "", "more", "")])
    write(
        "quiz.jsonl",
        [
            {"id": f"q{i}", "prompt": prompt, "candidates": [" a", " b"], "label": " a"}
            for i, prompt in enumerate(("x", "", "y", ""))
        ],
    )


def lines_of(*words):
    code, _, said = shell(*words)
    return code, " ".join(said.split())


SHORT_TEXTS = [
    ["compare", "{0}", "{0}", "--text", "{1}", "--out", "r"],
    ["score", "{0}", "--text", "{1}", "--out", "r.jsonl"],
    ["score", "{0}", "--text", "{1}", "--shard", "1/2", "--out", "r"],
    ["plan", "{0}", "{0}", "--text", "{1}", "--out", "r"],
]
QUIZ = [
    ["compare", "{0}", "{0}", "--questions", "quiz.jsonl", "--out", "r"],
    ["answer", "{0}", "quiz.jsonl", "--out", "r.jsonl"],
]


@needs_torch
@pytest.mark.parametrize("words", SHORT_TEXTS, ids=" ".join)
def test_texts_that_are_too_short_are_named_together_before_weights_are_read(models, words):
    run = lambda *given: lines_of(*(word.format(*given) for word in words))
    code, said = run("bare", "short.jsonl")
    assert (
        code == 3
        and "short.jsonl, line 2, 3, 5. Leave them out, or join each to another; the tokenizer has no BOS token to add."
        in said
    ), said
    code, said = run("bos", "short.jsonl")
    assert (
        code == 3
        and "short.jsonl, line 2, 3, 5. Leave them out, or join each to another, or say --set bos=add."
        in said
    ), said
    code, said = run("bare", "many.jsonl")
    assert code == 3 and re.search(r"line (\d+, ){19}\d+ and 6 more\.", said), said
    code, said = run("bare", "empty.jsonl")
    assert code == 3 and "empty.jsonl, line 2, 4. Leave empty documents out, and" in said, said


@needs_torch
@pytest.mark.parametrize("words", QUIZ, ids=" ".join)
def test_prompts_that_are_empty_are_named_together_before_weights_are_read(models, words):
    run = lambda *given: lines_of(*(word.format(*given) for word in words))
    code, said = run("bare")
    assert (
        code == 3
        and "got '' at line 2 of quiz.jsonl, line 4 of quiz.jsonl. Write a prompt." in said
    ), said
    code, said = run("bos")
    assert (
        code == 3 and "line 4 of quiz.jsonl. Write a prompt, or say --set bos=add." in said
    ), said


@needs_torch
def test_the_cures_of_short_texts_and_of_empty_prompts_cure(models):
    for name, texts in (
        ("left", ("a good text", "another one")),
        ("joined", ("a good text\n\nb\n\nc", "another one\n\nd")),
    ):
        Path(f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in texts)
        )
        assert (
            lines_of("score", "whole", "--text", f"{name}.jsonl", "--out", f"{name}-r.jsonl")[
                0
            ]
            == 0
        )
    assert (
        lines_of(
            "score", "whole", "--text", "short.jsonl", "--out", "r.jsonl", "--set", "bos=add"
        )[0]
        == 0
    )
    assert (
        lines_of("answer", "whole", "quiz.jsonl", "--out", "a.jsonl", "--set", "bos=add")[0]
        == 0
    )
    assert lines_of(
        "compare",
        "whole",
        demo_model("tuned"),
        "--text",
        "short.jsonl",
        "--set",
        "bos=add",
        "--tokenizer",
        "whole",
        "--out",
        "c",
    )[0] in (0, 1)
    code, said = lines_of(
        "score", "bare", "--text", "short.jsonl", "--out", "r2.jsonl", "--set", "bos=add"
    )
    assert code == 2 and "Leave bos out" in said, said


# --- a metric for each margin, a margin that can be, and a candidate that can be meant ---------------------------------------------------
def test_the_margins_that_a_refusal_writes_are_those_of_all_tasks(
    folder, monkeypatch, tmp_path
):
    monkeypatch.chdir(folder)
    line = "compare lm/base lm/tuned --score shared --set filter=first-word --margin 7%"
    message = answer(line, tmp_path / "r")[3]
    margins = re.findall(r"--margin \S+=7%", message)
    assert {m.split()[1].split("=")[0] for m in margins} > {"accuracy", "perplexity"}, message
    code, _, _, said = answer(
        f"{line.removesuffix('--margin 7%')} {' '.join(margins)}", tmp_path / "r"
    )
    leads = [
        row
        for row in json.loads((tmp_path / "r/report.json").read_text())["rows"]
        if row["role"] == "lead"
    ]
    assert (
        code in (0, 1)
        and len(leads) == 4
        and all(abs(row["margin"] - 0.07) < 1e-9 or row["margin"] is None for row in leads)
    ), said


@pytest.mark.parametrize(
    "margin, words",
    [
        ("200%", "Write less than 100 %"),
        ("20", "For 20 % write 20%"),
        ("brier=0.1", "Choose from perplexity"),
        ("bits_per_byte=0.1", "Write a size alone, such as 2%"),
        ("nothing", "Write the smallest change"),
    ],
)
def test_init_writes_no_margin_that_compare_refuses(margin, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = lines_of("init", "--margin", margin)
    assert code == 2 and words in said and not [*tmp_path.iterdir()], said
    assert lines_of("init", "--margin", "20%")[0] == 0 and lines_of("doctor")[0] in (0, 1)


def test_the_card_of_a_ranking_is_suggested_for_a_candidate_that_is_not_worse(
    folder, monkeypatch, tmp_path
):
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(folder)
    for files, cure in (
        ("docs/q3.jsonl docs/q8.jsonl", "Give --candidate q8."),
        ("docs/q3.jsonl docs/q4.jsonl", "none is shown to be as good"),
        (
            "docs/q3.jsonl docs/q8.jsonl docs/tuned.jsonl --size q3=3 --size tuned=16 --size q8=8",
            "Give --candidate q8.",
        ),
    ):
        answer(f"compare docs/base.jsonl {files} --force", tmp_path / "ranking")
        code, _, _, message = answer(f"card {tmp_path / 'ranking'}")
        assert code == 2 and cure in message, message
        if named := re.search(r"Give (--candidate \w+)", message):
            assert answer(f"card {tmp_path / 'ranking'} {named[1]}")[0] == 0
