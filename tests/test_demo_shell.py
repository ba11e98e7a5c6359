"""The demo as a command: one verified report on four edits, one JSON object, words that follow from the documents."""

import json

import pytest
from test_shell import shell

from invar_nb.report.verify import verify
from invar_nb.shell import demo


def test_the_models_are_shipped_and_an_old_folder_is_kept(tmp_path):
    assert all(
        (demo.demo_model(name) / "model.safetensors").is_file() for name in ("base", "tuned")
    )
    (tmp_path / "keep.txt").write_text("mine")
    code, _, err = shell("demo", "--out", tmp_path)
    assert code == 2 and "new or an empty folder" in err and (tmp_path / "keep.txt").exists()
    code, _, err = shell(
        "demo", "--out", tmp_path, "--force"
    )  # as that line says: it replaces reports only
    assert (
        code == 2
        and "only files of an older report" in err
        and (tmp_path / "keep.txt").exists()
    )


def test_a_short_demo_saves_and_verifies_one_report_on_four_edits(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(
        demo,
        "demo_documents",
        lambda own=demo.demo_documents: tuple(each[:4] for each in own()),
    )
    code, out, err = shell("demo", "--out", tmp_path / "demo")
    d = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert (
        code == 0
        and {*d["rankings"][0]["order"]} == {*demo.EDITS, "fine-tuned"}
        and d["rankings"][0]["size_unit"] == "bits per weight"
    )
    assert (
        verify(tmp_path / "demo").report.headline == d["headline"]
        and err.count("baseline (1 of 5): perplexity") == 1
    )
    assert d["pairs"][0]["passages"]["windows"]["lost"][0]["id"]
    assert shell("demo", "--out", tmp_path / "demo", "--force", "-q")[0] == 0
    assert max(map(len, out.split("\n")[1:9])) <= 80


@pytest.mark.slow
def test_the_whole_demo_has_one_edit_of_each_kind(tmp_path):
    pytest.importorskip("torch")
    code, out, _ = shell("demo", "--out", tmp_path / "demo", "--json")
    found = json.loads(out)
    assert code == 0 and {
        row["key"]["candidate"]: row["claim"] for row in found["rows"] if row["role"] == "lead"
    } == {
        "fine-tuned": "improved",
        "pruned 10 %": "equivalent",
        "8-bit": "equivalent",
        "4-bit": "regressed",
    }
