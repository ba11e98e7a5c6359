"""What comes from outside: each case was once a crash, a wait or something that acted, and is a refusal or plain text now."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
from commands import shell
from frozen_inputs import DATA

import invar_nb
from invar_nb.files import inspect_logs
from invar_nb.report.figures import markdown
from invar_nb.shell import work

MODELS = os.path.join(os.path.dirname(invar_nb.__file__), "demo_models")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def write_answers(path, wrong, **more):
    row = lambda i: {"id": f"q{i}", "label": "yn"[i % 2], "prediction": "yn"[(i + (i < wrong)) % 2], **{name: values[i % len(values)] for name, values in more.items()}}
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(60)))
    return path


@pytest.mark.parametrize("words", [["compare", "~no such user/a", "~no such user/b"], ["score", "~no such user/a", "--text", "t.txt", "--out", "o.parquet"],
                                   ["diff", "~no such user/a", "b"], ["merge", "~no such user/a", "--out", "o.parquet"], ["evaluate", "~no such user/a"]])
def test_the_home_of_a_user_who_is_not_there(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("some text")
    code, _, err = shell(*words)
    assert code in (2, 3) and "no such user" in err and "bug" not in err


@pytest.mark.parametrize("probabilities", [{"y": [1], "n": 0}, {"y": "1", "n": {}}, [1, 2], [["y", 1]], "x", 5, None])
def test_probabilities_of_another_type(probabilities, tmp_path):
    path = write_answers(tmp_path / "a.jsonl", 3, probabilities=[probabilities])
    code, _, err = shell("evaluate", path)
    assert code == 3 and ("probabilit" in err or "labels" in err) and "bug" not in err


def test_names_in_a_report_act_neither_in_a_comment_nor_in_a_spreadsheet(tmp_path):
    lang = ["=1+1", "@everyone", "see http://evil.example"]
    a, b = (write_answers(tmp_path / f"{name}.jsonl", wrong, **{"=cmd|'/C calc'!A0": lang}) for name, wrong in (("a", 8), ("b", 11)))
    assert shell("compare", a, b, "--by", "=cmd|'/C calc'!A0", "--out", tmp_path / "r")[0] == 0
    table = (tmp_path / "r" / "slices.csv").read_text()
    assert ",'=cmd|" in table and ",=" not in table
    pages = (tmp_path / "r" / "report.md").read_text() + (tmp_path / "r" / "summary.md").read_text()
    assert "@&#8203;everyone" in pages and "http\\://evil" in pages and "@everyone" not in pages and "http://evil" not in pages
    assert shell("verify", tmp_path / "r")[0] == 0
    assert markdown("org/model@main HTTPS://x Www.y a@b") == "org/model@main HTTPS\\://x Www\\.y a@b"


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, 93])
def test_a_small_archive_of_gigabytes_is_not_unpacked(packed, tmp_path, monkeypatch):
    "85 kB of Zstandard held 2.6 GB. Here the bound is lower, so that the archive may be, too."
    monkeypatch.setattr(inspect_logs, "MOST_BYTES", 10_000)
    log = json.loads((DATA / "inspect/base/choices.json").read_text())
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        for sample in log["samples"]:
            content = json.dumps(sample | {"metadata": {"x": "a" * 20_000 * (sample["id"] == "q03")}}).encode()
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            if packed == 93: write_zstandard(archive, name, content)
            else: archive.writestr(name, content, packed)
        archive.writestr("header.json", json.dumps({key: value for key, value in log.items() if key != "samples"}))
    code, _, err = shell("evaluate", tmp_path / "log.eval", "--score", "choice")
    assert code == 3 and "a member of the archive must have at most 10,000 bytes; got samples/q03" in err


def write_zstandard(archive, name, content):
    "A member of method 93, which Python 3.11 does not write itself: stored, and then named otherwise."
    zstandard = pytest.importorskip("zstandard")
    archive.writestr(name, zstandard.compress(content))
    info = archive.getinfo(name)
    info.compress_type, info.file_size, info.CRC = 93, len(content), zlib.crc32(content)


@needs_torch
@pytest.mark.parametrize("edit, words", [({"num_hidden_layers": 100_000}, "100,000 layers for 38 tensors"), ({"attn_implementation": "org/name"}, "must not name weights or code elsewhere; got 'org/name'"),
                                         ({"num_hidden_layers": "x" * 100}, "must load")])
def test_a_config_that_asks_for_too_much_or_for_code(edit, words, tmp_path):
    "A hundred thousand layers took half a minute and gigabytes on the meta device; an attention of that kind is fetched where `kernels` is installed."
    folder = shutil.copytree(os.path.join(MODELS, "base"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | edit))
    (tmp_path / "t.txt").write_text("some text of several words")
    code, _, err = shell("score", folder, "--text", tmp_path / "t.txt", "--out", tmp_path / "o.parquet")
    assert code == 3 and words in err


@needs_torch
def test_a_tokenizer_whose_rules_have_no_end(tmp_path):
    folder = shutil.copytree(os.path.join(MODELS, "base"), tmp_path / "model")
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    (tmp_path / "t.txt").write_text("a" * 80 + "!")
    code, _, err = shell("score", folder, "--text", tmp_path / "t.txt", "--out", tmp_path / "o.parquet")
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
    score = ["score", os.path.join(MODELS, "base"), "--text", tmp_path / "t.txt", "--out", tmp_path / "o.parquet"]
    code, _, err = shell(*score)
    assert code == 3 and "an existing file is not replaced" in err and (tmp_path / "o.parquet").read_text() == "precious"
    monkeypatch.undo()
    (tmp_path / "o.parquet").unlink()
    assert shell(*score)[0] == 0 and len(invar_nb.read_losses(tmp_path / "o.parquet"))


@needs_torch
@pytest.mark.slow
def test_rescoring_on_another_processor_raises_no_alarm(tmp_path):
    "Losses scored with these kernels, in float32 and bfloat16, scored again with each other set that computes otherwise here."
    spec = importlib.util.spec_from_file_location("processors", os.path.join(os.path.dirname(__file__), "..", "tools", "processors.py"))
    spec.loader.exec_module(processors := importlib.util.module_from_spec(spec))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": f"The {word} has {i} parts, of which {i % 7} stand here and {i % 5} elsewhere."}) + "\n" for i, word in enumerate(("house", "tree", "river", "city") * 10)))
    models = [os.path.join(MODELS, name) for name in ("base", "tuned")]
    for dtype in ("float32", "bfloat16"):
        assert shell("compare", *models, "--text", tmp_path / "t.jsonl", "--max-length", 64, "--dtype", dtype, "--out", tmp_path / dtype)[0] in (0, 1)
        for name, kernels in processors.distinct_sets().items():
            p = subprocess.run([sys.executable, "-m", "invar_nb", "verify", tmp_path / dtype, *models, "--text", tmp_path / "t.jsonl", "--rescore", "1000", "--json"], env={**os.environ, **kernels}, capture_output=True, text=True)
            facts = json.loads(p.stdout)
            assert (p.returncode, facts["altered"], facts["verified"]) == (0, [], True), (dtype, name, p.stderr)

@needs_torch
def test_a_report_whose_models_were_never_run_is_found(tmp_path, monkeypatch):
    "All of it verifies: only scoring again tells the candidate's true losses from improved ones."
    texts = [{"text": f"The {word} has {i} parts, of which {i % 7} are told of here and {i % 5} elsewhere."} for i, word in enumerate(("house", "tree", "river", "city") * 10)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    models, text = [os.path.join(MODELS, name) for name in ("base", "tuned")], ["--text", tmp_path / "t.jsonl"]
    assert shell("compare", *models, *text, "--max-length", 64, "--out", tmp_path / "r")[0] in (0, 1)
    again = lambda *more, n=30: shell("verify", tmp_path / "r", *models, *text, "--rescore", n, "--json", *more)
    assert again(n=10**6)[0] == 0  # all of them: nothing is left that could be altered
    code, out, _ = again("--seed", 5)
    facts = json.loads(out)
    assert not any("models were run" in line for line in facts["not_covered"]) and len(facts["shift"]) == 2
    assert code in (0, 3) and facts["altered"] == [] and facts["seed"] == 5 and facts["windows"] == 30 and (code == 0) == facts["verified"] == (not facts["could_fall"])
    with monkeypatch.context() as patch:  # a metric that was left out stays left out, whatever is scored again
        known = invar_nb.verify(tmp_path / "r")
        patch.setattr(invar_nb, "verify", lambda path, without: replace(known, without=("kl_divergence",)))
        code, out, _ = again(n=10**6)
        assert code == 3 and not json.loads(out)["verified"] and json.loads(out)["could_fall"] == []
    a, b = (invar_nb.read_losses(tmp_path / "r" / f"{name}.parquet") for name in ("baseline", "candidate"))
    better = b.changed(log_loss=np.where(np.arange(len(b)) % 3 == 0, b.log_loss * .5, b.log_loss))
    invar_nb.compare(invar_nb.pair(a, better)).report().save(tmp_path / "r", force=True)
    assert shell("verify", tmp_path / "r")[0] == 0
    code, out, _ = again()
    assert code == 3 and len(json.loads(out)["altered"]) >= 2
    code, _, err = shell("verify", tmp_path / "r", models[0], models[0], *text, "--rescore", 9)
    assert code == 3 and "candidate must be the model of the report" in err
    assert shell("verify", tmp_path / "r", "--seed", 9)[0] == 2
