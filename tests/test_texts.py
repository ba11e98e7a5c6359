"Several texts through the shell: each its row, one number by weights, both models loaded once."

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import main

import invar_nb
from invar_nb.models.demo_text import demo_documents
from invar_nb.report.verify import verify
from invar_nb.shell import open_models
from invar_nb.shell.settings import Scoring
from invar_nb.shell.text_plans import one_long_document, text_of

pytest.importorskip("torch")
BASE, TUNED = (
    Path(invar_nb.__file__).parent / "demo_models" / name for name in ("base", "tuned")
)
NAMES = ("news", "law", "code")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    root, documents = (
        tmp_path_factory.mktemp("texts"),
        [text[:140] for text in demo_documents()[1][:48]],
    )
    for k, name in enumerate(NAMES):
        (root / f"{name}.jsonl").write_text(
            "".join(
                json.dumps({"text": t}) + "\n" for t in documents[16 * k : 16 * k + 14 - 2 * k]
            )
        )
    return root


@pytest.fixture
def run(texts, tmp_path, capsys):
    def call(*options, models=(BASE, TUNED), names=NAMES, out="r"):
        given = [part for name in names for part in ("--text", f"{name}={texts / name}.jsonl")]
        code = main(
            [
                "compare",
                *map(str, models),
                *given,
                *options,
                "--out",
                str(tmp_path / out),
                "--dtype",
                "float32",
                "--max-length",
                "64",
                "-q",
                "--json",
            ]
        )
        return code, json.loads(capsys.readouterr().out)

    return call


def leads(d, role="lead"):
    return {row["key"]["part"]: row for row in d["rows"] if row["role"] == role}


def test_each_text_a_row_and_one_number_by_weights(run, tmp_path, monkeypatch, texts, capsys):
    loaded, load = [], open_models.load
    monkeypatch.setattr(
        open_models, "load", lambda argument, o: loaded.append(argument) or load(argument, o)
    )
    code, plain = run()
    assert len(loaded) == 2 and [*leads(plain)] == sorted(NAMES)
    assert code == 0 and verify(tmp_path / "r")
    main(
        [
            "compare",
            str(BASE),
            str(TUNED),
            "--text",
            str(texts / "law.jsonl"),
            "--out",
            str(tmp_path / "alone"),
            "--dtype",
            "float32",
            "--max-length",
            "64",
            "-q",
            "--json",
        ]
    )
    alone = json.loads(capsys.readouterr().out)
    assert (
        leads(alone)[""]["value"]["delta"] == leads(plain)["law"]["value"]["delta"]
    )  # the text by itself: the same windows and losses
    delta = np.array([leads(plain)[name]["value"]["delta"] for name in NAMES])
    for rule, weights in (
        (
            "tokens",
            [
                next(part["weight"] for part in plain["parts"] if part["part"] == name)
                for name in NAMES
            ],
        ),
        ("given", [2, 1, 1]),
    ):
        options = (
            ("rules.pooling=news=2", "rules.pooling=law=1", "rules.pooling=code=1")
            if rule == "given"
            else (f"rules.pooling={rule}",)
        )
        code, found = run(*options, out=rule)
        w = np.array(weights) / sum(weights)
        pooled = leads(found, "pooled")["pooled"]
        np.testing.assert_allclose(
            [pooled["pooled"]["weights"][name] for name in NAMES], w, rtol=1e-12
        )
        np.testing.assert_allclose(pooled["value"]["delta"], w @ delta, rtol=1e-12)
        assert found["claim"] == pooled["claim"] and code == 0
    code, found = run("rules.pooling=random", out="random")
    pooled = leads(found, "pooled")["pooled"]
    assert (
        pooled["pooled"]["speaks_of"] == "texts like these"
        and pooled["pooled"]["prediction"][0] < pooled["value"]["ci"][0]
    )
    assert "next such text" in (tmp_path / "random" / "report.html").read_text() and verify(
        tmp_path / "random"
    )


@pytest.mark.parametrize(
    "options, names, words",
    [
        (("rules.pooling=random",), NAMES[:2], "at least 3 texts"),
        (("rules.pooling=bag",), NAMES, "must be one of equal, tokens, random"),
        (("rules.pooling=equal",), NAMES[:1], "needs several texts"),
        (("--profile", "ci"), NAMES, "profile ci with the balanced tier needs"),
        (("--text", "other.txt"), NAMES, "must be a file"),
    ],
)
def test_what_makes_no_sense(run, options, names, words, tmp_path):
    code, found = run(*options, names=names)
    assert code in (2, 3) and words in found["error"] and not (tmp_path / "r").exists()


def test_too_few_windows_are_refused_before_a_model_is_loaded(texts, tmp_path):
    "The number stands in the option, or in the file of the baseline."
    from test_shell import shell

    text = ("--text", texts / "news.jsonl", "--max-length", 64)
    models = (BASE, TUNED)
    assert shell("compare", *models, *text, "--out", tmp_path / "first")[0] in (0, 1)
    saved = tmp_path / "first" / "baseline.parquet"
    assert saved.is_file()
    strict = ("--profile", "ci", "--out", tmp_path / "r")
    for arguments in ((*models, *text, "--windows", 32), (saved, TUNED, *text[:2])):
        code, _, err = shell("compare", *arguments, *strict)
        assert code == 3 and "balanced tier needs 360 windows" in err, err
        assert "loading" not in err


def test_the_tiers_are_named_where_their_key_is_explained():
    from test_shell import shell

    from invar_nb.comparison.rules import TIERS

    said = " ".join(shell("help", "keys")[1].split())
    for tier in TIERS.values():
        assert f"{tier.name} {tier.preview + tier.final}" in said
    limits = ", ".join(f"{tier.limit:g}" for tier in reversed(TIERS.values()))
    assert f"the limit of their gate ({limits})" in said
    fewest = TIERS["balanced"].preview + TIERS["balanced"].final
    assert f"refuse fewer than {fewest} windows" in " ".join(
        shell("compare", "--help-all")[1].split()
    )


def test_a_question_that_is_too_long_is_refused_before_a_text_is_scored(
    run, tmp_path, monkeypatch
):
    (tmp_path / "arc.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": f"q{i}",
                    "prompt": "a word " * (1 + 2000 * (i == 1)),
                    "candidates": [" yes", " no"],
                    "label": " no",
                }
            )
            + "\n"
            for i in range(3)
        )
    )
    scored = []
    monkeypatch.setattr(open_models, "score_plan", lambda *args, **more: scored.append(args))
    code, found = run("--questions", str(tmp_path / "arc.jsonl"), names=NAMES[:1])
    assert (
        code == 3
        and "prompt and candidate must fit into the model's" in found["error"]
        and f"at line 2 of {tmp_path / 'arc.jsonl'}. Shorten the prompt." in found["error"]
        and not scored
    )


def test_three_candidates_on_two_texts_and_questions_in_one_command(
    run, tmp_path, monkeypatch
):
    rows = [
        {
            "id": f"q{i}",
            "prompt": f"{i} is",
            "candidates": [" a number", " no number"],
            "label": " a number" if i % 3 else " no number",
            "language": ("en", "es")[i % 2],
        }
        for i in range(24)
    ]
    (tmp_path / "arc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("copy", "other"):
        shutil.copytree(BASE if name == "copy" else TUNED, tmp_path / name)
    loaded, load = [], open_models.load
    monkeypatch.setattr(
        open_models,
        "load",
        lambda argument, o: loaded.append(Path(argument).name) or load(argument, o),
    )
    models = (BASE, TUNED, tmp_path / "copy", tmp_path / "other")
    code, found = run(
        "--questions", str(tmp_path / "arc.jsonl"), models=models, names=NAMES[:2]
    )
    assert loaded == ["base", "tuned", "copy", "other"] and code == found["exit"]["code"]
    rows = {
        (row["key"]["candidate"], row["key"]["part"]): row
        for row in found["rows"]
        if row["role"] == "lead"
    }
    assert {*rows} == {
        (name, part)
        for name in ("tuned", "copy", "other")
        for part in ("news", "law", "examples")
    }
    assert found["rules"]["deciding"] == ["news", "law"] and {
        row["key"]["slice"] for row in found["rows"] if row["key"]["part"] == "examples"
    } >= {None, "language es"}
    assert (
        rows["copy", "law"]["value"]["delta"] == 0
        and rows["tuned", "law"]["value"]["delta"]
        == rows["other", "law"]["value"]["delta"]
        != 0
    )
    assert verify(tmp_path / "r") and not list(tmp_path.glob(".*.journal"))
    facts = {pair["candidate"]: pair["facts"]["weights"] for pair in found["pairs"]}
    assert facts == {"tuned": "different", "copy": "identical", "other": "different"}
    code, both = run(
        "--divergence",
        "--control",
        models=models[:3],
        names=NAMES[:2],
        out="r2",
    )
    lead = {
        (row["key"]["candidate"], row["key"]["part"]): row["value"]["delta"]
        for row in both["rows"]
        if row["role"] == "lead"
    }
    assert lead["tuned", "law"] == pytest.approx(
        rows["tuned", "law"]["value"]["delta"], abs=1e-6
    ) and verify(tmp_path / "r2")
    assert {
        (row["key"]["part"], row["role"])
        for row in both["rows"]
        if row["key"]["metric"] == "perplexity" and not row["key"]["slice"]
    } >= {("news", "control"), ("law", "control")}
    assert any(row["key"]["metric"] == "kl_divergence" for row in both["rows"]) and all(
        pair["passages"]["windows"]["lost"]
        for pair in both["pairs"]
        if pair["candidate"] == "tuned"
    )


def write_questions(path):
    "Twenty questions with a column to slice by."
    rows = [
        {
            "id": i,
            "prompt": f"{i}?",
            "candidates": ["yes", "no"],
            "label": i % 2,
            "topic": i % 3,
        }
        for i in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_slices_that_no_file_has_are_refused_before_a_model_is_loaded(texts, tmp_path):
    "They were refused when all models had been scored."
    from test_shell import shell

    text = ("--text", texts / "news.jsonl")
    asked = ("--questions", write_questions(tmp_path / "q.jsonl"))
    columns = "--by must be one of topic"
    no_language = "--by language needs documents with a field language"
    for options, words in (
        ((*asked, "--by", "nix"), f"{columns} for these questions; got 'nix'"),
        ((*asked, "--by", "language"), f"{columns} for these questions; got 'language'"),
        ((*text, *asked, "--by", "nix"), f"{columns}, language, position"),
        ((*text, "--by", "language"), no_language),
        ((*text, *asked, "--by", "language"), no_language),
    ):
        code, _, err = shell("compare", BASE, TUNED, *options, "--out", tmp_path / "r")
        assert code == 2 and words in err and "loading" not in err, err
    for options in ((*asked, "--by", "topic"), (*text, *asked, "--by", "topic")):
        code, _, err = shell("compare", BASE, TUNED, *options, "--out", tmp_path / "r")
        assert code in (0, 1) and "topic 2" in (tmp_path / "r" / "report.json").read_text(), (
            err
        )
        shutil.rmtree(tmp_path / "r")


def test_a_language_of_some_documents_slices_the_text(texts, tmp_path):
    from test_shell import shell

    rows = [json.loads(line) for line in (texts / "news.jsonl").read_text().splitlines()]
    rows = [row | {"language": ["en", "de"][i % 2]} for i, row in enumerate(rows[:-1])]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--text", tmp_path / "t.jsonl", "--by", "language", "--out", tmp_path / "r")
    code, out, err = shell("compare", BASE, TUNED, *options)
    assert code in (0, 1) and "language de" in out, err


def test_a_broken_control_file_is_refused_before_a_model_is_loaded(texts, tmp_path):
    from test_shell import shell

    (tmp_path / "again.jsonl").write_text('{"x": 1}\n')
    study = tmp_path / "study.toml"
    study.write_text(f"[arms]\ncontrol = '{tmp_path}/again.jsonl'\n")
    options = ("--text", texts / "news.jsonl", "--study", study, "--out", tmp_path / "r")
    code, _, err = shell("compare", BASE, TUNED, *options)
    assert code == 3 and "again.jsonl" in err and "loading" not in err, err


# --- documents of one file ---
def test_an_expression_says_where_a_document_begins_in_a_text_file(tmp_path):
    "Articles of a .txt are documents; paragraphs, and pieces of a row, stay one document."
    path = tmp_path / "wiki.txt"
    path.write_text(" \n = A = \n\nOne.\n\n = = Part = = \nTwo.\n = B = \nThree.\n")
    expression = "^ = [^=].* = $"

    def read(name, cut):
        files = [str(tmp_path / name)]
        return text_of(files, Scoring(text=files, documents=cut))

    articles = read("wiki.txt", expression)
    assert len(articles.texts) == 2 and articles.documents is None
    paragraphs = read("wiki.txt", "blank-lines")
    assert len(paragraphs.texts) == 3 and set(paragraphs.documents) == {"0"}
    row = json.dumps({"text": path.read_text()})
    (tmp_path / "wiki.jsonl").write_text(row + "\n")
    assert read("wiki.jsonl", expression).documents == ("0", "0")


def test_a_long_text_of_one_document_names_the_ways_to_its_documents(tmp_path):
    path = tmp_path / "wiki.txt"
    path.write_text("".join(f" = {i} = \n{'word ' * 2000}\n" for i in range(12)))
    scoring = Scoring(text=[str(path)])
    line = one_long_document(text_of([str(path)], scoring))
    assert "one document a line" in line and "--set documents=EXPRESSION" in line
    cut = Scoring(text=[str(path)], documents="^ = .* = $")
    assert not one_long_document(text_of([str(path)], cut))
    path.write_text("A short text.")
    assert not one_long_document(text_of([str(path)], scoring))
