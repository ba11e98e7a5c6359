"""invar-nb predictions, end to end: every format, every refusal, every leaf of the report, and names that want to be more than names."""
import copy
import csv
import json
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from invar_nb.foundations.numbers import ContractError
from invar_nb.probes.probes import Predictions
from invar_nb.statement.cli import main
from invar_nb.statement.document import body_digest, canonical_text, structure_errors
from invar_nb.statement.predictions import (PREDICTIONS_FILES, build_predictions_report, check_predictions_report, predictions_schema, read_predictions, render_predictions_html,
                                            render_predictions_markdown, save_predictions, verify_predictions, write_predictions)

LABELS = ("correct", "incorrect", "ambiguous")


def answers(n=30, seed=0, skill=0.3, labels=LABELS):
    "Rows of one arm: probabilities by column, slices, prompts, samples; the probes are the same for every seed."
    rng = np.random.default_rng(99)
    truth, language = rng.integers(0, len(labels), n), rng.choice(["en", "es"], n)
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(len(labels)), n) * (1 - skill) + np.eye(len(labels))[truth] * skill
    p = np.round(p, 9)
    return [{"id": f"p{i:04d}", "label": labels[truth[i]], **{f"p:{label}": float(p[i, c]) for c, label in enumerate(labels)}, "language": str(language[i]), "person": i % 3 + 1,
             "tense": [None, "past", "present, simple"][i % 3], "negated": i % 2 == 0, "prompt": f"say {i}\nin one line", "samples": 20, "correct_samples": int(truth[i]) % 21, "note": f"n{i}"} for i in range(n)]


def as_csv(rows, path, comma=","):
    spell = {True: "true", False: "false"}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=comma)
        writer.writeheader()
        writer.writerows([{k: spell[v] if isinstance(v, bool) else v for k, v in row.items()} for row in rows])
    return path


def as_jsonl(rows, path):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def told(path):
    "A report but for when and where it was made."
    document = json.loads((path / "report.json").read_text(encoding="utf-8"))
    return {k: v for k, v in document.items() if k != "environment"}


# --- what goes in ---------------------------------------------------------------------------------------------------------------------
def test_five_formats_give_one_report(tmp_path, capsys):
    rows = answers()
    files = [as_csv(rows, tmp_path / "a.csv"), as_csv(rows, tmp_path / "a.tsv", "\t"), as_jsonl(rows, tmp_path / "a.jsonl")]
    files += [as_jsonl(rows[::-1], tmp_path / "backwards.jsonl"), tmp_path / "a.json"]
    files[-1].write_text(json.dumps(rows))
    nested = [{k: v for k, v in row.items() if not k.startswith("p:")} | {"probabilities": {label: row[f"p:{label}"] for label in LABELS}} for row in rows]
    files.append(as_jsonl(nested, tmp_path / "nested.jsonl"))
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet
    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(arrow.Table.from_pylist(nested), tmp_path / "nested.parquet")
    files += [tmp_path / "a.parquet", tmp_path / "nested.parquet"]
    reports = []
    for i, file in enumerate(files):
        code, out, err = run(capsys, "predictions", file, "--out", tmp_path / str(i), "--model", "m")
        assert code == 0 and f"{len(rows)} probes" in err, err
        reports.append(told(tmp_path / str(i)))
    assert all(report == reports[0] for report in reports)
    kept = {(tmp_path / str(i) / "candidate.jsonl").read_bytes() for i in range(len(files))}
    assert len(kept) == 1
    assert [row["slice"] for row in reports[0]["candidate"]["slices"]][:2] == ["language", "language"] and reports[0]["candidate"]["ignored"] == {"note": "has another value for every probe"}
    assert {row["value"] for row in reports[0]["candidate"]["slices"] if row["slice"] == "tense"} == {None, "past", "present, simple"}


def test_kept_evidence_is_a_file_like_any_other(tmp_path, capsys):
    "Next week's answers against the ones kept in last week's report."
    old, new = as_jsonl(answers(seed=1), tmp_path / "old.jsonl"), as_jsonl(answers(seed=2, skill=0.8), tmp_path / "new.jsonl")
    assert run(capsys, "predictions", old, "--out", tmp_path / "first", "--model", "m", "--checkpoint", "step 1")[0] == 0
    assert run(capsys, "predictions", new, "--baseline", tmp_path / "first" / "candidate.jsonl", "--out", tmp_path / "second", "--model", "m2")[0] == 0
    assert run(capsys, "predictions", new, "--baseline", old, "--out", tmp_path / "third", "--model", "m2", "--baseline-model", "m", "--baseline-checkpoint", "step 1")[0] == 0
    assert told(tmp_path / "second") == told(tmp_path / "third")
    again = read_predictions(tmp_path / "second" / "baseline.jsonl")
    write_predictions(again, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "second" / "baseline.jsonl").read_bytes()


def few_digits(rows, digits=3):
    return [{k: round(v, digits) if k.startswith("p:") else v for k, v in row.items()} for row in rows]


def test_few_digits_are_normalised_only_where_that_is_asked_for(tmp_path, capsys):
    pair = [few_digits(answers(60, seed)) for seed in (0, 1)]
    files = [as_csv(rows, tmp_path / f"{i}.csv") for i, rows in enumerate(pair)]
    code, out, err = run(capsys, "predictions", files[0], "--out", tmp_path / "none")
    assert code == 3 and "give --normalize" in err and not (tmp_path / "none").exists()
    code, out, err = run(capsys, "predictions", files[1], "--baseline", files[0], "--normalize", "--out", tmp_path / "out", "--json")
    assert code == 0, err
    document, wanted = json.loads(out), []
    for rows in pair:
        p = np.array([[row[f"p:{label}"] for label in LABELS] for row in rows])
        off = np.abs(p.sum(axis=1) - 1) > 1.5e-6
        p[off] /= p[off].sum(axis=1, keepdims=True)
        true = np.array([LABELS.index(row["label"]) for row in rows])
        wanted.append((int(off.sum()), float(((p - np.eye(3)[true]) ** 2).sum(axis=1).mean())))
    found = [(document[arm]["normalized"], document[arm]["metrics"]["brier"]["value"]) for arm in ("baseline", "candidate")]
    assert [n for n, _ in found] == [n for n, _ in wanted] and min(n for n, _ in found) > 0
    np.testing.assert_allclose([b for _, b in found], [b for _, b in wanted], rtol=1e-12)
    said = " ".join(document["warnings"])
    assert all(f"of {n} of 60 probes in the {arm} had few digits" in said for (n, _), arm in zip(wanted, ("baseline", "candidate"), strict=True))
    assert run(capsys, "verify", tmp_path / "out" / "report.json")[0] == 0
    kept = next((tmp_path / "out").glob("candidate*.jsonl"))
    again = read_predictions(kept)
    assert again.normalized == wanted[1][0]
    kept.write_bytes(kept.read_bytes().replace(f'"normalized":{wanted[1][0]}'.encode(), b'"normalized":0', 1))
    assert run(capsys, "verify", tmp_path / "out" / "report.json")[0] == 3


@pytest.mark.parametrize("count", ["-1", "61", "true", "1.5", "null", '"3"'])
def test_a_kept_header_counts_no_more_normalised_probes_than_there_are(count, tmp_path):
    save_predictions(tmp_path / "out", read_predictions(as_csv(few_digits(answers(60)), tmp_path / "a.csv"), normalize=True), replicates=60)
    kept = next((tmp_path / "out").glob("candidate*.jsonl"))
    found = read_predictions(kept).normalized
    assert 0 < found < 60
    kept.write_bytes(kept.read_bytes().replace(f'"normalized":{found}'.encode(), f'"normalized":{count}'.encode(), 1))
    with pytest.raises(ContractError, match="'normalized'") as told: read_predictions(kept)
    assert "It was not written by save_predictions" in str(told.value)


def test_six_digits_are_left_as_they_are_when_asked(tmp_path, capsys):
    file = as_csv(answers(), tmp_path / "a.csv")
    for name, more in (("one", []), ("two", ["--normalize"])):
        assert run(capsys, "predictions", file, "--out", tmp_path / name, *more)[0] == 0
    assert told(tmp_path / "one") == told(tmp_path / "two") and told(tmp_path / "one")["candidate"]["normalized"] == 0


@pytest.mark.parametrize("change", [{"p:correct": 0.4, "p:incorrect": 0.4, "p:ambiguous": 0.1}, {"p:correct": 1.0, "p:incorrect": 1.0, "p:ambiguous": 1.0}])
def test_what_is_no_rounding_is_refused_even_so(change, tmp_path, capsys):
    rows = answers()
    rows[4] |= change
    for more in ([], ["--normalize"]):
        code, out, err = run(capsys, "predictions", as_csv(rows, tmp_path / "a.csv"), "--out", tmp_path / "out", *more)
        assert code == 3 and "line 10" in err and "A label is missing, or these are no probabilities" in err and "--normalize" not in err


def test_a_confidence_is_compared_as_it_was_told():
    columns = {"id": ["a", "b"], "label": ["x", "y"], "p:x": [0.67, 0.33], "p:y": [0.32, 0.68], "confidence": [0.67, 0.68]}
    found = Predictions.from_columns(columns, normalize=True)
    np.testing.assert_allclose(found.confidence, [0.67 / 0.99, 0.68 / 1.01], rtol=1e-15)
    assert found.normalized == 2 and (found.confidence == found.probability.max(axis=1)).all()


@pytest.mark.parametrize("labels", [("0", "1", "2"), ("🙂", "🙁"), tuple(f"class {i}" for i in range(40)), ("a,b", "c:d", 'e"f'), ("a:b", "a", "b:a"), ("x" * 200, "y|z", "<b>")],
                         ids=["integers", "emoji", "forty", "commas and colons", "colons only", "long and marked up"])
def test_odd_label_sets(labels, tmp_path, capsys):
    rows = answers(n=60, labels=labels)
    spelled = ",".join('"' + label.replace('"', '""') + '"' for label in labels)
    for i, file in enumerate((as_jsonl(rows, tmp_path / "a.jsonl"), as_csv(rows, tmp_path / "a.csv"))):
        code, out, err = run(capsys, "predictions", file, "--out", tmp_path / str(i), "--labels", spelled, "--danger", f"{labels[1]}:{labels[0]}", "--json", "--quiet")
        assert code == 0 and not err
        found = json.loads(out)["candidate"]
        assert tuple(found["labels"]) == labels and found["danger"] == {"true": labels[1], "predicted": labels[0]}
        assert sum(map(sum, found["confusion"]["matrix"])) == 60
    assert told(tmp_path / "0") == told(tmp_path / "1")
    assert run(capsys, "verify", tmp_path / "0")[0] == 0


def test_integer_labels_and_ids_may_be_numbers(tmp_path, capsys):
    rows = answers(labels=("0", "1"))
    typed = [{**row, "id": int(row["id"][1:]), "label": int(row["label"])} for row in rows]
    as_text = [{**row, "id": str(int(row["id"][1:]))} for row in rows]
    for i, some in enumerate((typed, as_text)):
        assert run(capsys, "predictions", as_jsonl(some, tmp_path / f"{i}.jsonl"), "--out", tmp_path / str(i), "--model", "m")[0] == 0
    assert told(tmp_path / "0") == told(tmp_path / "1")


# --- what comes out -------------------------------------------------------------------------------------------------------------------
def test_exit_codes_and_what_is_said(tmp_path, capsys):
    files = {name: as_jsonl(answers(n=120, seed=seed, skill=skill), tmp_path / f"{name}.jsonl") for name, seed, skill in (("good", 1, 0.8), ("bad", 2, 0.05), ("like", 3, 0.8))}
    cases = [(["good"], 0, "Right on"), (["bad", "good"], 1, "Regressed"), (["good", "bad"], 0, "Improved"), (["like", "good"], 0, "Undecided"), (["like", "good", "--fail-inconclusive"], 4, "Undecided"),
             (["bad", "good", "--fail-inconclusive"], 1, "Regressed"), (["good", "good", "--margin", "0.2", "--fail-inconclusive"], 0, "Equivalent")]
    for i, ((name, *more), expected, word) in enumerate(cases):
        arguments = [files[name]] + (["--baseline", files[more[0]], *more[1:]] if more else [])
        code, out, err = run(capsys, "predictions", *arguments, "--out", tmp_path / str(i), "--quiet")
        assert code == expected and not err and out.startswith(word), out
        assert "invar-nb verify" in out and "accuracy" in out
        code, out, err = run(capsys, "predictions", *arguments, "--out", tmp_path / f"{i}j", "--quiet", "--json")
        found = json.loads(out)
        assert code == found["exit_code"] == expected and found["sentence"].startswith(word) and not err
        if i == 1: assert {row["side"] for row in found["comparison"]["differences"][:4]} == {"worse"}
        assert set(os.listdir(tmp_path / str(i))) == set(PREDICTIONS_FILES) - (set() if more else {"baseline.jsonl"})
        code, out, err = run(capsys, "verify", tmp_path / str(i))
        assert code == 0 and ("two predictions files" if more else "one predictions file") in out


def test_the_console_script(tmp_path):
    file = as_csv(answers(), tmp_path / "a.csv")
    script = [sys.executable, "-c", "import sys; from invar_nb.statement.cli import main; sys.exit(main())"]
    good = subprocess.run([*script, "predictions", file, "--out", tmp_path / "r", "--json"], capture_output=True, text=True)
    assert good.returncode == 0 and json.loads(good.stdout)["verdict"]["verdict"] == "measured" and "30 probes" in good.stderr
    file.write_text(file.read_text().replace("p0003", "p0004"))
    bad = subprocess.run([*script, "predictions", file, "--out", tmp_path / "s", "--json"], capture_output=True, text=True)
    assert bad.returncode == 3 and json.loads(bad.stdout)["exit_code"] == 3 and len(bad.stderr.splitlines()) == 1 and not (tmp_path / "s").exists()


def test_worse_in_a_slice_is_worse(tmp_path, capsys):
    "Spanish falls from 36 to 24 of 40 while English rises from 26 to 40: the whole is not worse, and still nobody should ship this unseen."
    def table(right):
        return [{"id": f"{tongue}-{i}", "label": "yes" if i % 2 else "no", "language": tongue, "prediction": ("yes" if i % 2 else "no") if i < n else ("no" if i % 2 else "yes")}
                for tongue, n in right.items() for i in range(40)]
    as_jsonl(table({"en": 26, "es": 36}), tmp_path / "a.jsonl")
    as_jsonl(table({"en": 40, "es": 24}), tmp_path / "b.jsonl")
    code, said, _ = run(capsys, "predictions", tmp_path / "b.jsonl", "--baseline", tmp_path / "a.jsonl", "--out", tmp_path / "out")
    assert told(tmp_path / "out")["verdict"]["verdict"] == "noise" and code == 1
    assert "worse where language = es" in said and "exit 1   worse in a slice" in said
    code, said, _ = run(capsys, "predictions", tmp_path / "a.jsonl", "--baseline", tmp_path / "a.jsonl", "--out", tmp_path / "same")
    assert code == 0 and "exit 1" not in said


@pytest.mark.parametrize(("margin", "counts"), [(0.02, True), (0.04, True), (0.05, False)])
def test_a_slice_counts_from_the_margin_on(margin, counts, tmp_path, capsys):
    "Of 500 Spanish probes 20 are lost and none is won: 4 points, beyond noise."
    def table(lost):
        return [{"id": f"{tongue}-{i:03d}", "label": "yes" if i % 2 else "no", "language": tongue, "prediction": ("yes" if i % 2 else "no") if i >= fewest else ("no" if i % 2 else "yes")}
                for tongue, fewest in lost.items() for i in range(500)]
    as_jsonl(table({"en": 40, "es": 40}), tmp_path / "a.jsonl")
    as_jsonl(table({"en": 20, "es": 60}), tmp_path / "b.jsonl")
    code, said, _ = run(capsys, "predictions", tmp_path / "b.jsonl", "--baseline", tmp_path / "a.jsonl", "--margin", margin, "--out", tmp_path / "out")
    document = told(tmp_path / "out")
    assert [row["flag"] for row in document["comparison"]["slices"] if row["value"] == "es"] == ["significant"] and "worse where language = es" in said
    assert code == int(counts) and ("exit 1" in said) == counts and ("beyond noise worse" in document["sentence"]) == counts


@pytest.mark.parametrize(("right", "word"), [(90, "not beyond chance"), (50, "beyond chance")])
def test_the_terminal_says_whether_a_calibration_error_is_beyond_chance(right, word, tmp_path, capsys):
    table = [{"id": str(i), "label": "yes", "prediction": "yes" if i < right else "no", "confidence": 0.9} for i in range(100)]
    code, said, _ = run(capsys, "predictions", as_jsonl(table, tmp_path / "a.jsonl"), "--out", tmp_path / "out")
    line = next(line for line in said.splitlines() if line.startswith("  ece "))
    assert code == 0 and line.endswith(f"] {word}")


@pytest.mark.parametrize("column", ["{}", "p_{}", "prob_{}"])
def test_columns_called_like_the_labels_get_their_cure(column, tmp_path, capsys):
    rows = answers()
    flat = [{"id": row["id"], "label": row["label"], **{column.format(name): row[f"p:{name}"] for name in LABELS}} for row in rows]
    as_jsonl(flat, tmp_path / "flat.jsonl")
    code, _, said = run(capsys, "predictions", tmp_path / "flat.jsonl", "--out", tmp_path / "out")
    assert code == 3 and f"If '{column.format(LABELS[0])}' holds the probability of '{LABELS[0]}', rename it to 'p:{LABELS[0]}'" in said and not (tmp_path / "out").exists()


def test_equal_inputs_equal_bytes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    a, b = as_jsonl(answers(seed=1), tmp_path / "a.jsonl"), as_jsonl(answers(seed=2), tmp_path / "b.jsonl")
    for out in ("one", "two"): run(capsys, "predictions", a, "--baseline", b, "--out", tmp_path / out)
    for name in PREDICTIONS_FILES: assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_checkpoint_is_weights_or_a_name(tmp_path, capsys, monkeypatch):
    file = as_jsonl(answers(), tmp_path / "a.jsonl")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"w")
    found = []
    for i, told_ in enumerate((tmp_path / "m", tmp_path / "m" / "model.safetensors", "step 7", "org/name")):
        assert run(capsys, "predictions", file, "--out", tmp_path / str(i), "--checkpoint", told_)[0] == 0
        found.append(told(tmp_path / str(i))["header"]["checkpoint"])
    assert found[2:] == ["step 7", "org/name"] and all(x.startswith("sha256:") for x in found[:2]) and found[0] != found[1]
    for lost in ("./nowhere", tmp_path / "x.safetensors", "model.gguf"):
        assert run(capsys, "predictions", file, "--out", tmp_path / "x", "--checkpoint", lost)[0] == 2
    (tmp_path / "empty").mkdir()
    assert run(capsys, "predictions", file, "--out", tmp_path / "x", "--checkpoint", tmp_path / "empty")[0] == 2 and not (tmp_path / "x").exists()


def test_force_replaces_and_nothing_else_does(tmp_path, capsys):
    a, b = as_jsonl(answers(seed=1), tmp_path / "a.jsonl"), as_jsonl(answers(seed=2), tmp_path / "b.jsonl")
    out = tmp_path / "r"
    assert run(capsys, "predictions", a, "--baseline", b, "--out", out)[0] == 0
    (out / "mine.txt").write_text("keep me")
    before = {name: (out / name).read_bytes() for name in PREDICTIONS_FILES}
    code, said, err = run(capsys, "predictions", a, "--out", out)
    assert code == 2 and "never overwritten" in err and {name: (out / name).read_bytes() for name in PREDICTIONS_FILES} == before
    bad = as_jsonl([{**row, "id": "same"} for row in answers()], tmp_path / "bad.jsonl")
    assert run(capsys, "predictions", bad, "--out", out, "--force")[0] == 3
    assert {name: (out / name).read_bytes() for name in PREDICTIONS_FILES} == before
    assert run(capsys, "predictions", a, "--out", out, "--force")[0] == 0
    assert sorted(os.listdir(out)) == ["candidate.jsonl", "mine.txt", "report.html", "report.json", "report.md"]  # the old baseline is gone
    assert run(capsys, "verify", out)[0] == 0
    assert run(capsys, "predictions", a, "--out", a)[0] == 2  # a file in the place of the folder


def test_a_disk_that_fails_leaves_nothing(tmp_path, capsys, monkeypatch):
    import invar_nb.statement.predictions as room
    real = room.write_bytes
    def full(path, data):
        if str(path).endswith("report.html"): raise OSError(28, "No space left on device")
        real(path, data)
    monkeypatch.setattr(room, "write_bytes", full)
    code, out, err = run(capsys, "predictions", as_jsonl(answers(), tmp_path / "a.jsonl"), "--out", tmp_path / "r", "--quiet")
    assert code == 5 and "No space left" in err and sorted(os.listdir(tmp_path)) == ["a.jsonl"]


# --- what is refused ------------------------------------------------------------------------------------------------------------------
def changed(rows, i, **fields):
    rows = copy.deepcopy(rows)
    for name, value in fields.items():
        if value is ...: del rows[i][name]
        else: rows[i][name] = value
    return rows


BAD = {"sum": ({"p:correct": 0.9}, "line 18", "add up to 1"), "beyond 1": ({"p:correct": 1.5}, "line 18", "must lie in [0, 1]"), "null": ({"p:correct": None}, "line 18", "must be a number"),
       "text": ({"p:correct": "high"}, "line 18", "finite number"), "label": ({"label": "corect"}, "line 18", "Did you mean 'correct'?"), "no label": ({"label": None}, "line 18", "Fill it in"),
       "id": ({"id": "p0001"}, "line 2 and at line 18", "Keep one"), "no id": ({"id": ""}, "line 18", "Fill it in"), "samples": ({"correct_samples": 21}, "line 18", "exchanged"),
       "half samples": ({"samples": 2.5}, "line 18", "whole number"), "fraction": ({"label": 1.5}, "line 18", "whole number")}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_refused_with_place_and_cure(name, tmp_path, capsys):
    fields, place, cure = BAD[name]
    file = as_jsonl(changed(answers(), 17, **fields), tmp_path / "a.jsonl")
    code, out, err = run(capsys, "predictions", file, "--out", tmp_path / "r")
    assert code == 3 and out == "" and len(err.splitlines()) == 1 and place in err and cure in err and "a.jsonl" in err, err
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl"]


def test_bad_files_are_refused_with_place_and_cure(tmp_path, capsys):
    rows = answers()
    lines = [json.dumps(row) for row in rows]
    def mapped(change): return "".join(json.dumps(change(row)) + "\n" for row in rows)
    as_csv(rows, tmp_path / "good.csv")
    table = (tmp_path / "good.csv").read_text()
    cases = {"nan.jsonl": ("\n".join([*lines[:5], lines[5].replace('"p:correct": ', '"p:correct": NaN, "x": '), *lines[6:]]) + "\n", "line 6", "NaN"),
             "nan.csv": (table.replace(str(rows[5]["p:correct"]), "nan"), "line", "nan"), "cut.jsonl": ("\n".join(lines)[:-20], "line 30", "JSON"),
             "columns.jsonl": (mapped(lambda row: {k: v for k, v in row.items() if not k.startswith("p:")}), "columns", "Add 'prediction'"), "near.jsonl": (mapped(lambda row: {**{k: v for k, v in row.items() if k != "label"}, "Label": row["label"]}), "'Label'", "Did you mean 'Label'?"),
             "ragged.csv": (table.replace("p0003,", "p0003,,", 1), "line", "cells"), "empty.jsonl": ("", "empty", "interrupted"), "head.csv": (table.split("\n")[0] + "\n", "none", "interrupted"),
             "comma.csv": (table.replace(str(rows[5]["p:correct"]), '"0,5"'), "0,5", "decimal point"), "semicolon.csv": ("id;label;prediction\na;x;y\n", "semicolons", "commas"), "image.png": ("x", ".png", "Rename"),
             "labels.jsonl": (mapped(lambda row: {k: v for k, v in row.items() if not k.startswith("p:")} | {"prediction": "correct", "label": "correct"}), "two labels", "--labels")}
    for name, (text, place, cure) in cases.items():
        file = tmp_path / name
        file.write_text(text)
        code, out, err = run(capsys, "predictions", file, "--out", tmp_path / "r")
        assert code == 3 and out == "" and len(err.splitlines()) == 1 and place in err and cure in err, (name, err)
        assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name, change, said", [
    ("one more", lambda rows: [*rows, {**rows[0], "id": "p9999"}], "'p9999' (baseline line 31) missing from the candidate"), ("one less", lambda rows: rows[:-1], "'p0029' (candidate line 30) missing from the baseline"),
    ("label", lambda rows: changed(rows, 4, label="ambiguous" if rows[4]["label"] != "ambiguous" else "correct"), "same true label"), ("prompt", lambda rows: changed(rows, 4, prompt="other"), "another prompt for probe 'p0004'"),
    ("language", lambda rows: changed(rows, 4, language="fr"), "same value of 'language'"), ("no tense", lambda rows: [{k: v for k, v in row.items() if k != "tense"} for row in rows], "with --slice"),
    ("tokenizers", lambda rows: [{**row, "tokenizer": "b"} for row in rows], "'b' and 'a'"), ("no prompts", lambda rows: [{k: v for k, v in row.items() if k != "prompt"} for row in rows], "prompts in the candidate only"),
    ("labels", lambda rows: [{**row, "p:other": 0.0} for row in rows], "choose among the same labels")])
def test_a_baseline_on_another_test_is_refused(name, change, said, tmp_path, capsys):
    rows = [{**row, "tokenizer": "a"} for row in answers()]
    file, other = as_jsonl(rows, tmp_path / "a.jsonl"), as_jsonl(change(rows), tmp_path / "b.jsonl")
    code, out, err = run(capsys, "predictions", file, "--baseline", other, "--out", tmp_path / "r", "--quiet")
    assert code == 3 and out == "" and len(err.splitlines()) == 1 and said in err, err
    assert not (tmp_path / "r").exists()


USAGE = [["--slice", "tenze"], ["--slice", "note", "--labels", "correct,incorrect"], ["--danger", "incorrect"], ["--danger", "incorrect:corect"], ["--danger", "correct:correct"], ["--k", "21"], ["--k", "0"],
         ["--bins", "0"], ["--bins", "100000"], ["--binning", "height"], ["--ambiguous", "dropped"], ["--ambiguous", "excluded", "--ambiguous-label", "unclear"], ["--level", "95"], ["--margin", "0.1"],
         ["--fail-inconclusive"], ["--baseline-model", "x"], ["--baseline", "nowhere.csv"], ["--multiplicity", "none"], ["--seed", "-1"], ["--replicates", "3"], ["--replicates", "100000000"], ["--out", ""],
         ["--labels", ""], ["--labels", "a,,b"], ["--labels", '"a'], ["--nonsense"]]


@pytest.mark.parametrize("more", USAGE, ids=" ".join)
def test_senseless_options_are_usage(more, tmp_path, capsys):
    file = as_jsonl(answers(), tmp_path / "a.jsonl")
    code, out, err = run(capsys, "predictions", file, "--out", tmp_path / "r", "--quiet", *more)
    assert code == 2 and out == "" and len(err.splitlines()) == 1, err
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl"]


def test_usage_beside_the_file(tmp_path, capsys):
    file = as_jsonl(answers(), tmp_path / "a.jsonl")
    for arguments in (["predictions"], ["predictions", tmp_path / "no.csv"], ["predictions", tmp_path], ["predictions", file, "--baseline", file, "--margin", "0"], ["predictions", file, "--baseline", file, "--margin", "2"]):
        assert run(capsys, *arguments, "--out", tmp_path / "r")[0] == 2
    assert not (tmp_path / "r").exists()


# --- what was written, changed --------------------------------------------------------------------------------------------------------
def leaves(value, path=()):
    if isinstance(value, dict) and value: return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value: return [leaf for i, item in enumerate(value) for leaf in leaves(item, (*path, i))]
    return [path]


def other(value):
    if isinstance(value, bool): return not value
    if isinstance(value, int): return value + 1
    if isinstance(value, float): return value * 0.5 + 0.013
    if isinstance(value, str): return value + "x"
    return {"x": "y"} if value == {} else ["x"] if value == [] else 0


def at(document, path):
    for key in path[:-1]: document = document[key]
    return document, path[-1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    one, two = (Predictions.from_columns({name: [row[name] for row in rows] for name in rows[0] if name not in ("tense", "negated", "person")}, model="m", checkpoint="c") for rows in (answers(8, seed=1), answers(8, seed=2)))
    save_predictions(folder / "one", one, replicates=60, n_bins=3)
    save_predictions(folder / "two", two, one, replicates=60, n_bins=3)
    return folder


def refused_leaves(folder, seal):
    "Every leaf, one by one, with or without digests that fit again; the leaves that got through."
    path = folder / "report.json"
    text = path.read_text()
    good, through = json.loads(text), []
    for leaf in leaves(good):
        document = copy.deepcopy(good)
        holder, key = at(document, leaf)
        holder[key] = other(holder[key])
        if seal and leaf[0] != "environment": document["digest"] = body_digest(document)
        path.write_text(canonical_text(document))
        try:
            verify_predictions(path)
            through.append(leaf)
        except ContractError: pass
    path.write_text(text)
    return through, len(leaves(good))


def test_no_leaf_of_one_arm_can_be_changed(saved):
    "With digests that fit again: what is caught is caught by the numbers."
    through, n = refused_leaves(saved / "one", seal=True)
    assert [leaf for leaf in through if leaf != ("digest",)] == [] and n > 200


@pytest.mark.slow
def test_no_leaf_of_two_arms_can_be_changed(saved):
    for seal in (False, True):
        through, n = refused_leaves(saved / "two", seal)
        assert [leaf for leaf in through if not (seal and leaf == ("digest",))] == [] and n > 500


def test_a_changed_leaf_is_exit_3(saved, capsys):
    path = saved / "two" / "report.json"
    text = path.read_text()
    for leaf in (("comparison", "verdict"), ("comparison", "differences", 0, "p_value"), ("baseline", "confusion", "matrix", 0, 0), ("evidence", "baseline", "sha256"), ("environment", "host"), ("comparison", "lost")):
        document = json.loads(text)
        holder, key = at(document, leaf)
        holder[key] = other(holder[key]) if key != "lost" else [*holder[key], "x"]
        path.write_text(canonical_text(document))
        code, out, err = run(capsys, "verify", path)
        assert code == 3 and out == "" and len(err.splitlines()) == 1 and "verify" in err
    path.write_text(text)
    assert run(capsys, "verify", path)[0] == 0


def test_every_line_of_the_evidence_counts(saved, tmp_path, capsys):
    folder = shutil.copytree(saved / "two", tmp_path / "two")
    for name in ("candidate.jsonl", "baseline.jsonl"):
        path = folder / name
        data = path.read_bytes()
        lines = data.split(b"\n")
        for changed_ in (b"\n".join(lines[:-2]) + b"\n", b"\n".join([lines[0], lines[2], lines[1], *lines[3:]]), data.replace(b'"id":"p0001"', b'"id":"p0009"'), data + b"\n", b""):
            path.write_bytes(changed_)
            assert run(capsys, "verify", folder)[0] == 3
        path.unlink()
        assert run(capsys, "verify", folder)[0] == 3
        path.write_bytes(data)
    assert json.loads(run(capsys, "verify", folder, "--json")[1])["absent"] == []
    absent = []
    for name in ("report.md", "report.html"):
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        assert run(capsys, "verify", folder)[0] == 3
        (folder / name).unlink()  # a page that is not there says nothing wrong
        absent.append(name)
        code, out, _ = run(capsys, "verify", folder)
        assert code == 0 and f"absent   {' and '.join(absent)}" in out and name not in out.splitlines()[0]


def test_the_two_kinds_of_report_are_told_apart(saved, tmp_path, capsys):
    document = json.loads((saved / "one" / "report.json").read_text())
    for schema in ("invar_nb.report/1", "invar_nb.predictions_report/2", "other", 7):
        (tmp_path / "report.json").write_text(canonical_text({**document, "schema": schema}))
        assert run(capsys, "verify", tmp_path)[0] == 3
    for text in ("[]", "", "{", "null"):
        (tmp_path / "report.json").write_text(text)
        assert run(capsys, "verify", tmp_path)[0] == 3


def test_the_schema_says_what_jsonschema_says(saved):
    jsonschema = pytest.importorskip("jsonschema")
    schema = predictions_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema)
    rng = np.random.default_rng(0)
    for kind in ("one", "two"):
        good = json.loads((saved / kind / "report.json").read_text())
        assert judge.is_valid(good) and not list(structure_errors(good, schema))
        paths = leaves(good)
        for i in rng.choice(len(paths), 60, replace=False):
            for value in (None, -1, "x", [], {}, True, 1e9):
                document = copy.deepcopy(good)
                holder, key = at(document, paths[i])
                holder[key] = value
                assert judge.is_valid(document) == (not list(structure_errors(document, schema))), (paths[i], value)


def test_a_document_that_does_not_hold_together_is_not_born(saved):
    good = json.loads((saved / "two" / "report.json").read_text())
    assert check_predictions_report(good) == []
    for path, value in ((("verdict", "verdict"), "measured"), (("sentence",), "All is well."), (("baseline",), None), (("digest",), "sha256:" + "0" * 64), (("schema",), "x")):
        document = copy.deepcopy(good)
        holder, key = at(document, path)
        holder[key] = value
        assert check_predictions_report(document)


def test_a_label_that_is_said_and_never_true_is_warned_of(tmp_path, capsys):
    rows = [{"id": i, "label": "xyz"[i % 3], "prediction": "[invalid]" if i % 9 == 0 else "xyz"[i % 3]} for i in range(90)]
    file = as_jsonl(rows, tmp_path / "a.jsonl")
    assert run(capsys, "predictions", file, "--out", tmp_path / "1")[0] == 0
    one = told(tmp_path / "1")
    assert any("'[invalid]' is never the truth, and was said 10 times" in line for line in one["warnings"])
    assert run(capsys, "predictions", file, "--out", tmp_path / "2", "--ambiguous", "excluded", "--ambiguous-label", "[invalid]")[0] == 0
    two = told(tmp_path / "2")
    recall = [1 - 10 / 30, 1, 1]  # of x, y, z: the cure leaves such answers as mistakes and averages over the three
    assert one["candidate"]["metrics"]["balanced_accuracy"]["value"] is None and not any("never the truth" in line for line in two["warnings"])
    assert two["candidate"]["metrics"]["balanced_accuracy"]["value"] == pytest.approx(sum(recall) / 3) and two["candidate"]["correct"] == one["candidate"]["correct"] == 80


def test_a_model_without_a_name_is_called_like_its_file(tmp_path, capsys):
    for folder in ("new", "old"): (tmp_path / folder).mkdir()
    files = [as_jsonl(answers(seed=i), tmp_path / folder / "answers.jsonl") for i, folder in enumerate(("new", "old"))]
    assert run(capsys, "predictions", files[0], "--baseline", files[1], "--out", tmp_path / "r", "--baseline-model", "M")[0] in (0, 1)
    assert [told(tmp_path / "r")[arm]["model"] for arm in ("candidate", "baseline")] == ["new/answers", "M"]
    assert run(capsys, "predictions", files[0], "--out", tmp_path / "one")[0] == 0 and told(tmp_path / "one")["candidate"]["model"] == "answers"


# --- pages ----------------------------------------------------------------------------------------------------------------------------
class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.text = set(), []

    def handle_starttag(self, tag, attrs): self.seen |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}

    def handle_data(self, data): self.text.append(data)


def test_names_are_shown_and_not_obeyed():
    evil = "<script>alert(1)</script>"
    rows = answers(n=24, labels=(evil, "b|c\n# d", "\u202egnorw"))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["<img src=x onerror=y>"] = ["[link](javascript:x)" if i % 2 else "`code`" for i in range(24)]
    p = Predictions.from_columns(columns, model=evil, checkpoint="](x)")
    report = build_predictions_report(p, p, danger=(evil, "b|c\n# d"))
    page = Tags()
    page.feed(render_predictions_html(report))
    assert not page.seen & {"script", "img", "a", "iframe", "link"} and not any(name.split(".")[-1].startswith("on") for name in page.seen) and "\u202e" not in "".join(page.text)
    text = render_predictions_markdown(report)
    assert "<script>" not in text and "\u202e" not in text and "\n# d" not in text
    width = {line.count("|") - line.count("\\|") for line in text.split("\n") if line.startswith("| ") and "heading" not in line}
    assert all(n >= 3 for n in width)


def test_every_number_of_the_headline_is_on_both_pages(saved):
    report = verify_predictions(saved / "two")
    d = report.document()
    for page in (render_predictions_html(report), render_predictions_markdown(report)):
        for arm in ("candidate", "baseline"):
            for estimate in d[arm]["metrics"].values():
                if estimate["value"] is not None: assert f"{estimate['value']:.4f}" in page
        for row in d["comparison"]["slices"]: assert f"{row['baseline']}, {row['candidate']} of {row['n']}" in page
        assert d["header"]["test_set"] in page and d["digest"] in page


@pytest.mark.parametrize("C", [2, 8, 9, 20, 21, 40])
def test_mistakes_of_many_labels(C):
    labels = tuple(f"class {i}" for i in range(C))
    rows = answers(n=200, labels=labels)
    text = render_predictions_markdown(build_predictions_report(Predictions.from_columns({name: [row[name] for row in rows] for name in rows[0]}), replicates=60))
    assert ("the most frequent first" in text) == (C > 20) and ("true \\\\ predicted" in text) == (C <= 20)


def test_a_page_without_calibration_slices_or_danger():
    p = Predictions.from_columns({"id": ["a", "b"], "label": ["x", "y"], "prediction": ["x", "x"]})
    text = render_predictions_markdown(build_predictions_report(p, p))
    for line in ("No reliability diagram: the predictions carry no confidence.", "The file has no column to slice by.", "Danger cell: no danger cell was named: the mistake that matters most", "undefined (0/0)", "No checkpoint is named"):
        assert line in text, line


# --- many rows ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_hundred_thousand_rows(tmp_path, capsys):
    files = [as_jsonl(answers(n=100_000, seed=seed), tmp_path / f"{seed}.jsonl") for seed in (1, 2)]
    code, out, err = run(capsys, "predictions", files[0], "--baseline", files[1], "--out", tmp_path / "r")
    assert code == 0 and "100000 probes" in err
    assert run(capsys, "verify", tmp_path / "r")[0] == 0


def test_tries_as_any_sequence_stand_in_the_inputs_as_understood():
    p = Predictions.from_columns({"id": ["a", "b", "c"], "label": ["x", "y", "x"], "prediction": ["x", "y", "y"], "samples": [5] * 3, "correct_samples": [1, 2, 0]})
    for k in (range(1, 4), [3, 1, 2, 2]): assert build_predictions_report(p, k=k, replicates=100).document()["inputs"]["k"] == [1, 2, 3]
    assert build_predictions_report(p, replicates=100).document()["inputs"]["k"] is None


def test_the_report_names_the_test_behind_each_p_value():
    columns = {"id": range(30), "label": ["x", "y"] * 15}
    arms = [Predictions.from_columns({**columns, "p:x": x.tolist(), "p:y": (1 - x).tolist()}) for x in (q.round(6) for q in np.random.default_rng(0).random((2, 30)))]
    said = build_predictions_report(arms[1], arms[0], replicates=100, seed=3).document()["conventions"]
    assert "Test of calibration error (ECE): paired swap test, 9999 draws, seed 3, and bootstrap: the larger p; interval by bootstrap, 100 replicates, seed 3, widened by noise." in said
    assert any(line.startswith("Test of Brier score: paired sign-flip test, every pattern counted; interval by the exact bootstrap") for line in said)
    assert any("of Brier scores and pass@k: exact bootstrap, no Monte Carlo error." in line and line.endswith("and that of a difference at both; few wrong answers, or few right ones, widen it too.") for line in said)


# --- nothing of the user's is lost -----------------------------------------------------------------------------------------------------
def test_force_never_takes_the_input_for_an_old_report(tmp_path, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    file = as_jsonl(answers(), mine / "candidate.jsonl")
    base = as_jsonl(answers(seed=2), mine / "baseline.jsonl")
    before = {p.name: p.read_bytes() for p in mine.iterdir()}
    (tmp_path / "link.jsonl").symlink_to(file)
    os.link(file, tmp_path / "hard.jsonl")
    for given in (file, tmp_path / "link.jsonl", tmp_path / "hard.jsonl"):
        code, said, err = run(capsys, "predictions", given, "--out", mine, "--force")
        assert code == 2 and len(err.splitlines()) == 1 and "no file that is read may be replaced" in err
    assert run(capsys, "predictions", as_jsonl(answers(), tmp_path / "a.jsonl"), "--baseline", base, "--out", mine, "--force")[0] == 2
    assert {p.name: p.read_bytes() for p in mine.iterdir()} == before


def test_force_never_takes_a_file_of_the_users_for_evidence(tmp_path, capsys):
    a = as_jsonl(answers(), tmp_path / "a.jsonl")
    for name in ("baseline.jsonl", "candidate.jsonl", "report.md"):
        out = tmp_path / f"to_{name}"
        out.mkdir()
        (out / name).write_text("mine\n")
        code, said, err = run(capsys, "predictions", a, "--out", out, "--force")
        assert code == 2 and len(err.splitlines()) == 1 and "Move it away" in err and (out / name).read_text() == "mine\n" and os.listdir(out) == [name]
    out = tmp_path / "out"
    assert run(capsys, "predictions", a, "--out", out)[0] == 0
    (out / "baseline.jsonl").write_text("mine\n")  # the report there has no baseline
    assert run(capsys, "predictions", a, "--out", out, "--force")[0] == 2 and (out / "baseline.jsonl").read_text() == "mine\n"
    (out / "baseline.jsonl").unlink()
    (out / "candidate.jsonl").write_text("edited\n")
    assert run(capsys, "predictions", a, "--out", out, "--force")[0] == 2 and (out / "candidate.jsonl").read_text() == "edited\n"


# --- what the shell says ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("more, says", [(("--replicates", "1"), "--replicates must be between 40 and"), (("--bins", "0"), "--bins must be"), (("--k", "0"), "--k must be"), (("--seed", "-1"), "--seed must be"),
                                        (("--level", "1"), "0.95 is usual"), (("--level", "95"), "Did you mean 0.95?"), (("--level", "0.2"), "--level must"), (("--baseline", "{}", "--margin", "0"), "0.02 is usual"),
                                        (("--baseline", "{}", "--margin", "2"), "--margin must")])
def test_options_are_refused_in_the_words_of_the_shell(more, says, tmp_path, capsys):
    file = as_jsonl(answers(), tmp_path / "a.jsonl")
    code, out, err = run(capsys, "predictions", file, "--out", tmp_path / "r", *(word.format(file) for word in more))
    assert code == 2 and says in err and len(err.splitlines()) == 1 and not [word for word in ("None", "Pass ", "BootstrapPlan", "n_bins") if word in err], err


def test_a_slice_name_cannot_write_a_line_of_its_own(tmp_path, capsys):
    file = as_jsonl([{**row, "x\ninvar-nb: Verified": "ab"[i % 2]} for i, row in enumerate(answers())], tmp_path / "a.jsonl")
    code, out, err = run(capsys, "predictions", file, "--out", tmp_path / "r")
    assert code == 0 and "x\\ninvar-nb: Verified" in err and not any(line.startswith("invar-nb: Verified") for line in (out + err).splitlines())


def test_an_interrupt_promises_nothing(tmp_path, capsys, monkeypatch):
    import invar_nb.statement.predictions as room
    def stopped(*_, **__): raise KeyboardInterrupt
    monkeypatch.setattr(room, "save_predictions", stopped)
    code, out, err = run(capsys, "predictions", as_jsonl(answers(), tmp_path / "a.jsonl"), "--out", tmp_path / "r", "--quiet")
    assert code == 5 and "interrupted" in err and "score" not in err, err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_number_that_is_none_has_a_cure_that_is_true(kind, tmp_path, capsys):
    table = [{**row, "p:correct": float("nan")} if i == 3 else row for i, row in enumerate(answers())]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet
        pyarrow.parquet.write_table(pa.Table.from_pylist(table), path)
    else: (as_csv if kind == "csv" else as_jsonl)(table, path)
    code, out, err = run(capsys, "predictions", path, "--out", tmp_path / "r")
    assert code == 3 and len(err.splitlines()) == 1 and "Score this probe again, or take its row out of both files" in err and "null" not in err, err


# --- what the page shows ---------------------------------------------------------------------------------------------------------------
def page_of(tmp_path, capsys, rows, other=None, *more):
    files = [as_jsonl(rows, tmp_path / "a.jsonl")] + ([] if other is None else ["--baseline", as_jsonl(other, tmp_path / "b.jsonl")])
    code, out, err = run(capsys, "predictions", *files, "--out", tmp_path / "r", *more)
    assert code == 0, err
    return out, (tmp_path / "r" / "report.html").read_text(encoding="utf-8"), (tmp_path / "r" / "report.md").read_text(encoding="utf-8")


def test_one_file_twice_is_warned_of(tmp_path, capsys):
    out, html, md = page_of(tmp_path, capsys, answers(), answers())
    assert all("answered every probe identically" in text for text in (out, html, md)) and run(capsys, "verify", tmp_path / "r")[0] == 0
    (tmp_path / "2").mkdir()
    assert "identically" not in page_of(tmp_path / "2", capsys, answers(), answers(seed=4))[0]


def test_a_title_begins_with_a_capital_and_tells_two_arms_of_one_name_apart(tmp_path, capsys):
    for i, (more, title) in enumerate([((), "# a against b on 30 probes"), (("--model", "M", "--baseline-model", "M"), "# Candidate M against baseline M on 30 probes"),
                                       (("--model", "gpt", "--baseline-model", "N"), "# gpt against N on 30 probes")]):
        (tmp_path / str(i)).mkdir()
        md = page_of(tmp_path / str(i), capsys, answers(), answers(seed=2), *more)[2]
        assert md.startswith(title + "\n"), md[:80]
        assert "Within noise means: these probes cannot tell" not in md


def test_a_column_without_reasons_is_left_out(tmp_path, capsys):
    md = page_of(tmp_path, capsys, answers(), answers(seed=2))[2]
    head = next(line for line in md.splitlines() if line.startswith("| beside, not tested"))
    assert head.endswith("| difference |")  # each of them has one
    (tmp_path / "2").mkdir()
    other = lambda rows: [{**row, "label": {"correct": "right"}.get(row["label"], row["label"]), **{"p:right": row["p:correct"]}} for row in rows]
    without = lambda rows: [{k: v for k, v in row.items() if k != "p:correct"} for row in other(rows)]
    md = page_of(tmp_path / "2", capsys, without(answers()), without(answers(seed=2)))[2]  # no danger cell
    assert "No difference: danger cell (" in md and "why there is none" not in md


@pytest.mark.parametrize("labels", [[f"a very long label that ends in {x}" for x in "xyz"], [f"a very long label {x} that ends alike in all" for x in "xyz"]])
def test_labels_of_the_heat_map_can_be_told_apart(labels, tmp_path, capsys):
    import re
    html = page_of(tmp_path, capsys, answers(labels=labels))[1]
    picture = next(part for part in re.findall(r"<figure>.*?</figure>", html, re.S) if "Confusion of" in part)
    ends = re.findall(r'text-anchor="end"[^>]*>([^<]*)<', picture)
    assert len(ends) == len(set(ends)) == 3, ends
    assert all(re.search(r"[xyz123]", text) for text in ends) and (ends[0] != "1" or all(f"{i} {label}" in picture for i, label in enumerate(sorted(labels), 1)))


def test_numbers_are_not_broken_and_long_names_are(tmp_path, capsys):
    html = page_of(tmp_path, capsys, [{**row, "what": "ab"[i % 2] * 144} for i, row in enumerate(answers())])[1]
    style = html[html.index("<style>"):html.index("</style>")]
    assert "td:first-child{min-width:9.5rem}" in style and "td.n{white-space:nowrap" in style
    assert f"<td>what = {'a' * 144}</td>" in html and "<td class=n>[" in html and "of 15</td>" in html
