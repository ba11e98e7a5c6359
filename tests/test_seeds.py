"""Sweeps over seeds: what their reports, plans and DataFrames say."""

import json

import numpy as np
import pytest
from test_shell import shell

from invar_nb.comparison.study import study

# --- a sweep of four optimizers, in which one run crashed


SWEEP = """Name,State,config.optimizer,config.seed,val/loss,val/accuracy
adamw-0,finished,adamw,0,3.1046,0.619
adamw-1,finished,adamw,1,3.1097,0.6127
adamw-2,finished,adamw,2,3.0977,0.6204
adamw-3,finished,adamw,3,3.0954,0.6213
adamw-4,finished,adamw,4,3.0891,0.6241
muon-0,finished,muon,0,3.0667,0.6325
muon-1,finished,muon,1,3.0784,0.63
muon-2,finished,muon,2,3.0704,0.6279
muon-3,finished,muon,3,3.0788,0.6254
muon-4,finished,muon,4,3.0607,0.6318
sgd-0,finished,sgd,0,3.2869,0.5662
sgd-1,finished,sgd,1,3.2893,0.5659
sgd-2,finished,sgd,2,3.2971,0.5585
sgd-3,crashed,sgd,3,,
sgd-4,finished,sgd,4,3.2953,0.5594
"""


def sweep_command(tmp_path, *more):
    "The command that compares the optimizers of SWEEP, without the seed that crashed."
    (tmp_path / "sweep.csv").write_text(SWEEP)
    arms = "arm=config.optimizer=adamw,muon,sgd"
    metrics = ("--metric", "val/loss", "--metric", "val/accuracy")
    table = str(tmp_path / "sweep.csv")
    rest = ("--set", "drop_failed=true", "--out", str(tmp_path / "report"), *more)
    return ("compare", table, "--column", arms, *metrics, *rest)


def test_each_arm_alone_has_all_of_its_own_finished_runs(tmp_path):
    "Seed 3 crashed in sgd; it stays in the mean of the baseline, whose n is 5."
    shell(*sweep_command(tmp_path))
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    losses = [3.1046, 3.1097, 3.0977, 3.0954, 3.0891]
    baseline, sgd = report["arms"]["baseline"], report["arms"]["sgd"]
    assert baseline["levels"]["val/loss"]["value"] == pytest.approx(np.mean(losses), rel=1e-12)
    assert (baseline["n"], baseline["levels"]["val/loss"]["beside"]) == (5, None)
    assert (sgd["n"], sgd["levels"]["val/loss"]["beside"]) == (5, "4 of 5 runs")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "3.292; 4 of 5 runs" in page and "3.099" in page
    code, out, _ = shell("verify", str(tmp_path / "report"))
    assert code == 0, out


def test_a_seed_whose_run_failed_is_named_with_its_arm(tmp_path):
    "In the terminal, the report and in Python, not only how many there are."
    _, out, _ = shell(*sweep_command(tmp_path))
    assert "Left out: seed 3, whose run failed in sgd." in " ".join(out.split())

    def rows(lost):
        ends = ["crash" if seed in lost else "ok" for seed in range(6)]
        return [{"seed": k, "terminal": end, "loss": 2 + k / 10} for k, end in enumerate(ends)]

    both = study(
        {"baseline": rows([1]), "candidate": rows([2, 4])}, metrics="loss", drop_failed=True
    )
    assert (
        "Left out: seed 1, whose run failed in the baseline; seeds 2, 4, whose runs failed in "
        "the candidate." in " ".join(str(both).split())
    )
