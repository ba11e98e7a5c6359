"The baseline scored twice: its interval is a floor, and nothing below it has improved or regressed."

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from studies import arms_of, losses, scored_again
from test_shell import shell

import invar_nb
from invar_nb.arms.pair import pair
from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import study
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.report.report import report_of
from invar_nb.report.verify import verify

BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"


def moved(by, noise=1e-9):
    "A pair that moves by so many nats, the same way in every window."
    both = losses(n=60)
    rng = np.random.default_rng(4)
    return pair(
        both.baseline,
        both.candidate.changed(
            log_loss=both.baseline.log_loss + by + rng.normal(0, noise, 60)
        ),
    )


@pytest.mark.parametrize("by", [-1e-7, 1e-7])
def test_an_edit_below_the_floor_is_never_a_change(by, tmp_path):
    both, rules = moved(by), Rules(margin=0, metrics=["perplexity"])
    alone = report_of(study(arms_of({"": both}), rules))
    assert alone.document()["claim"] == (
        "regressed" if by > 0 else "improved"
    ) and alone.exit_code == (by > 0)
    r = report_of(study(arms_of({"": both}, control=True), rules))
    d = r.document()
    (control,) = (row for row in d["rows"] if row["role"] == "control")
    (lead,) = (row for row in d["rows"] if row["role"] == "lead")
    low, high = control["value"]["ci"]
    assert (
        lead["floor"] == max(-low, high) > abs(by)
        and lead["claim"] == d["claim"] == "inconclusive"
        and r.exit_code == d["exit"]["code"] == 0
    )
    assert "below the numerical noise of" in d[
        "headline"
    ] and "below the numerical noise of" in str(r)
    r.save(tmp_path / "r")
    assert (
        verify(tmp_path / "r").report.document()["rows"] == d["rows"]
        and len([*tmp_path.glob("r/control.*")]) == 1
    )
    assert "baseline scored twice" in (tmp_path / "r" / "report.html").read_text()


def test_above_the_floor_nothing_changes_and_equivalent_stays():
    both, rules = moved(1e-4), Rules(margin=0)
    plain, beside = (
        [
            row
            for row in report_of(study(arms_of({"": both}, control=c), rules)).document()[
                "rows"
            ]
            if row["role"] != "control"
        ]
        for c in (False, True)
    )
    assert [row["floor"] is not None for row in beside] != [False] * len(beside) and [
        row | {"floor": None} for row in beside
    ] == plain
    assert study(arms_of({"": moved(1e-7)}, control=True)).claim == "equivalent"


def test_a_control_is_of_the_baseline_and_its_windows():
    both = losses(n=40)
    known = both.baseline.changed(provenance={"weights_digest": "sha256:a"})
    with_control = lambda made, control, **rules: study(
        arms_of({"": made}) | {("control", ""): control}, Rules(**rules)
    )
    with pytest.raises(
        PairingError,
        match="control: the control must be the baseline, scored again; got weights_digest None",
    ):
        with_control(pair(known, both.candidate), both.baseline)
    with pytest.raises(ContractError):
        with_control(both, losses(n=30).baseline)
    columns = losses(
        0.01,
        n=40,
        columns={"kl_divergence": np.linspace(0.1, 1, 40), "top1_changed": [2] * 40},
    )
    with pytest.raises(ContractError):
        with_control(columns, scored_again(columns.baseline), metrics=["kl_divergence"])
    assert {
        row.key.metric
        for row in with_control(columns, scored_again(columns.baseline))
        if row.floor is not None and row.role == "lead"
    } == {"perplexity"}


def test_the_command_scores_the_baseline_twice_once(tmp_path):
    "In float32 the noise of the shipped model is below 1e-6; it is kept beside the report, and a second comparison reads it; another type is another scoring."
    pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    near = Path(shutil.copytree(BASE, tmp_path / "near"))
    tensors = {name: x.float() for name, x in load_file(BASE / "model.safetensors").items()}
    tensors["model.layers.1.mlp.up_proj.weight"][17, 4] *= 1 + 1e-6
    save_file(tensors, near / "model.safetensors", metadata={"format": "pt"})
    text = tmp_path / "t.jsonl"
    text.write_text(
        "".join(
            json.dumps({"text": f"Line {i} of the file is read before line {3 * i}. " * 3})
            + "\n"
            for i in range(11)
        )
    )
    compared = lambda out, *more: shell(
        "compare",
        BASE,
        near,
        "--text",
        text,
        "--max-length",
        128,
        "--margin",
        "1e-13",
        "--out",
        tmp_path / out,
        *more,
    )
    code, out, err = compared("one", "--control")
    found = lambda name: [
        row
        for row in json.loads((tmp_path / name / "report.json").read_text())["rows"]
        if row["role"] in ("lead", "control")
    ]
    (lead,) = (row for row in found("one") if row["role"] == "lead")
    assert (
        code == (lead["claim"] == "regressed")
        and 0 <= lead["floor"] < 1e-6
        and "control: scoring" in err
    ), (out, err)
    assert (
        re.search(r"batch tokens \d+ and 128; order usual and backwards", out)
        and shell("verify", tmp_path / "one")[0] == 0
    ), " ".join(x for x in out.splitlines() if "twice" in x)
    code, out, err = compared("two", "--control")
    assert "windows reused from the cache" in err and "control: scoring" not in err
    assert found("two") == found("one") and not [*tmp_path.glob(".*journal")]
    kept = tmp_path / "kept.jsonl"
    for more in ("control: scoring", f"control: the second scoring is read from {kept}"):
        code, out, err = compared(f"file{len(more)}", f"arms.control={kept}", "--no-cache")
        assert more in err and kept.is_file()
    coarse = tmp_path / "coarse.jsonl"
    score = ("score", BASE, "--text", text, "--max-length", 128, "--dtype", "bfloat16")
    assert shell(*score, "--out", coarse)[0] == 0
    code, out, err = compared("coarse", f"arms.control={coarse}")
    assert "dtype float32 and bfloat16" in out
    assert max(row["floor"] or 0 for row in found("coarse")) > 1e-5
    arms = [next((tmp_path / "one").glob(f"{arm}.*")) for arm in ("baseline", "candidate")]
    assert (
        shell(
            "compare",
            *arms,
            f"arms.control={kept}",
            "--out",
            tmp_path / "files",
            "--margin",
            "1e-13",
        )[0]
        == 0
    )
    assert found("files") == found("one")
    assert (
        shell(
            "compare", *arms, f"arms.control={kept}", "--out", tmp_path / "files", "--force"
        )[0]
        == 0
    )
    refusals = [
        ((*arms, "--control"), 2, "BASELINE that can be scored twice"),
        (
            (BASE, near, f"arms.control={tmp_path / 'x.csv'}", "--text", text),
            2,
            "must be .jsonl or .parquet",
        ),
        (
            (BASE, near, "--control", "--questions", text),
            2,
            "--control works only with losses",
        ),
        ((arms[1], arms[0], f"arms.control={kept}"), 3, "must be the baseline, scored again"),
    ]
    for more, code, words in refusals:
        got, _, err = shell("compare", *more, "--out", tmp_path / "no")
        assert got == code and words in err and not (tmp_path / "no").exists(), (more, err)
