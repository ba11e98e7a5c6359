"The baseline scored twice: its interval is a floor, and nothing below it has improved or regressed."
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_report import losses
from test_shell import shell
from test_verify import again

import invar_nb
from invar_nb.comparison.compare import compare
from invar_nb.comparison.control import measure_control
from invar_nb.comparison.pair import pair
from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.report.build import build_report
from invar_nb.report.verify import verify

BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"


def moved(by, noise=1e-9):
    "A pair that moves by so many nats, the same way in every window."
    both = losses(n=60)
    rng = np.random.default_rng(4)
    return pair(both.baseline, both.candidate.changed(log_loss=both.baseline.log_loss + by + rng.normal(0, noise, 60)))


@pytest.mark.parametrize("by", [-1e-7, 1e-7])
def test_an_edit_below_the_floor_is_never_a_change(by, tmp_path):
    both = moved(by)
    alone = build_report(compare(both), margin=0)
    assert alone.document()["verdict"]["claim"] == ("regressed" if by > 0 else "improved") and alone.exit_code == (by > 0)
    r = build_report(compare(both), margin=0, control=again(both))
    d = r.document()
    low, high = d["control"]["ci"]
    assert d["control"]["floor"] == max(-low, high) > abs(by) and d["control"]["below"] and r.exit_code == 0
    assert (d["verdict"]["claim"], d["verdict"]["verdict"], d["verdict"]["beyond_margin"]) == ("inconclusive", "noise", False)
    assert "below the numerical noise of" in d["headline"] and "The edit's change is below this numerical noise." in str(r)
    assert {row["metric"]: row["claim"] for row in d["comparison"]} == {"perplexity": "inconclusive"}
    r.save(tmp_path / "r")
    assert verify(tmp_path / "r").report.document()["control"] == d["control"] and len([*tmp_path.glob("r/control.*")]) == 1
    assert "baseline scored twice" in (tmp_path / "r" / "report.html").read_text()


def test_above_the_floor_nothing_changes_and_equivalent_stays():
    both = moved(1e-4)
    plain, beside = (build_report(compare(both), margin=m, control=c).document() for m, c in ((0, None), (0, again(both))))
    assert not beside["control"]["below"] and {k: v for k, v in beside.items() if k not in ("control", "evidence", "digest", "environment")} == {
        k: v for k, v in plain.items() if k not in ("control", "evidence", "digest", "environment")}
    assert build_report(compare(moved(1e-7)), control=again(both)).document()["verdict"]["claim"] == "equivalent"


def test_a_control_is_of_the_baseline_and_its_windows():
    both = losses(n=40)
    known = both.baseline.changed(provenance={"weights_digest": "sha256:a"})
    with pytest.raises(PairingError, match="control: the control must be the baseline, scored again; got weights_digest None"):
        measure_control(compare(pair(known, both.candidate)), both.baseline)
    with pytest.raises(ContractError): measure_control(compare(both), losses(n=30).baseline)
    columns = losses(.01, n=40, columns={"kl_divergence": np.linspace(.1, 1, 40), "top1_changed": [2] * 40})
    only = compare(columns, metrics=["kl_divergence"])
    with pytest.raises(ContractError, match="some metric must have a value of the baseline"): measure_control(only, again(columns))
    assert {key[0] for key in measure_control(compare(columns), again(columns)).floors} == {"perplexity"}


def test_the_command_scores_the_baseline_twice_once(tmp_path):
    "In float32 the noise of the shipped model is below 1e-6; it is kept beside the report, and a second comparison reads it; another type is another scoring."
    pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file
    near = Path(shutil.copytree(BASE, tmp_path / "near"))
    tensors = {name: x.float() for name, x in load_file(BASE / "model.safetensors").items()}
    tensors["model.layers.1.mlp.up_proj.weight"][17, 4] *= 1 + 1e-6
    save_file(tensors, near / "model.safetensors", metadata={"format": "pt"})
    text = tmp_path / "t.jsonl"
    text.write_text("".join(json.dumps({"text": f"Line {i} of the file is read before line {3 * i}. " * 3}) + "\n" for i in range(11)))
    compared = lambda out, *more: shell("compare", BASE, near, "--text", text, "--max-length", 128, "--margin", "1e-13", "--out", tmp_path / out, *more)
    code, out, err = compared("one", "--control")
    d = json.loads((tmp_path / "one" / "report.json").read_text())
    assert code == 0 and 0 < d["control"]["floor"] < 1e-6 and "control: scoring" in err and d["control"]["below"] == (abs(d["primary_metric"]["delta"]) <= d["control"]["floor"]), (out, err)
    assert d["control"]["how"] == "batch tokens 512 and 128; order usual and backwards" and shell("verify", tmp_path / "one")[0] == 0
    kept, = tmp_path.glob("invar-nb-control-*.jsonl")
    code, out, err = compared("two", "--control")
    assert f"control: the second scoring is read from {kept}" in err and "control: scoring" not in err
    assert json.loads((tmp_path / "two" / "report.json").read_text())["control"] == d["control"] and not [*tmp_path.glob(".*journal")]
    code, out, err = compared("coarse", "--control-dtype", "bfloat16")
    coarse = json.loads((tmp_path / "coarse" / "report.json").read_text())["control"]
    assert "dtype float32 and bfloat16" in coarse["how"] and coarse["floor"] > 1e-5 > d["control"]["floor"] and len([*tmp_path.glob("invar-nb-control-*.jsonl")]) == 2
    arms = [next((tmp_path / "one").glob(f"{arm}.*")) for arm in ("baseline", "candidate")]
    assert shell("compare", *arms, "--control-file", kept, "--out", tmp_path / "files", "--margin", "1e-13")[0] == 0
    assert json.loads((tmp_path / "files" / "report.json").read_text())["control"] == d["control"]
    assert shell("compare", *arms, "--control-file", kept, "--out", tmp_path / "files", "--force")[0] == 0
    refusals = [((*arms, "--control"), 2, "BASELINE that can be scored twice"), ((BASE, near, "--control-file", tmp_path / "x.csv", "--text", text), 2, "must be .jsonl or .parquet"),
                ((BASE, near, "--control-file", kept, "--control-dtype", "float16", "--text", text), 2, "--control-dtype is for a scoring"),
                ((BASE, near, "--control", "--examples", text), 2, "--control is for losses"), ((arms[1], arms[0], "--control-file", kept), 3, "must be the baseline, scored again")]
    for more, code, words in refusals:
        found = shell("compare", *more, "--out", tmp_path / "no")
        assert found[0] == code and words in found[2] and not (tmp_path / "no").exists(), (more, found)
