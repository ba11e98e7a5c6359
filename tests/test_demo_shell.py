"""The demo as a command: one verified report on four edits, one JSON object, words that follow from the documents."""
import json

import pytest

from invar_nb.shell.demo import EDITS, demo_model, run_demo
from invar_nb.report.verify import verify
from test_shell import shell


def test_the_models_are_shipped_and_an_old_folder_is_kept(tmp_path):
    assert all((demo_model(name) / "model.safetensors").is_file() for name in ("base", "tuned"))
    (tmp_path / "keep.txt").write_text("mine")
    code, _, err = shell("demo", "--out", tmp_path)
    assert code == 2 and "new or an empty folder" in err and (tmp_path / "keep.txt").exists()
    code, _, err = shell("demo", "--out", tmp_path, "--force")  # as that line says: it replaces reports only
    assert code == 2 and "files of an older report only" in err and (tmp_path / "keep.txt").exists()


def test_a_short_demo_saves_and_verifies_one_report_on_four_edits(tmp_path):
    pytest.importorskip("torch")
    lines = []
    result = run_demo(tmp_path / "demo", documents=4, echo=lines.append)
    d = result.report.document()
    assert {*d["rankings"][0]["order"]} == {*EDITS} == {*result.windows} and any("saved and verified" in line for line in lines)
    assert verify(result.out).report.headline == result.report.headline and sum("base: perplexity" in line for line in lines) == 1
    run_demo(tmp_path / "demo", documents=4, force=True)
    assert max(map(len, str(result).split("\n")[:5])) <= 130


@pytest.mark.slow
def test_the_whole_demo_has_one_edit_of_each_kind(tmp_path):
    pytest.importorskip("torch")
    code, out, _ = shell("demo", "--out", tmp_path / "demo", "--json")
    found = json.loads(out)
    assert code == 0 and {row["edit"]: row["claim"] for row in found["rows"]} == {"fine-tuned": "improved", "pruned 10 %": "equivalent", "8-bit": "equivalent", "4-bit": "regressed"}
