"""Sweeps over seeds: what their reports, plans and DataFrames say."""

import ast
import json
import re

import numpy as np
import pytest
from studies import losses
from test_shell import shell

from invar_nb.comparison.rules import stored_rules
from invar_nb.comparison.study import compare, study
from invar_nb.foundations.refuse import UsageError
from invar_nb.report.plan import plan_comparison
from invar_nb.report.verify import verify
from invar_nb.runs.evaluator import MetricSpec, compare_runs, judge_runs
from invar_nb.runs.runs import read_runs
from invar_nb.statistics.planning import Goal, Pilot

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
    values = [3.1046, 3.1097, 3.0977, 3.0954, 3.0891]
    baseline, sgd = report["arms"]["baseline"], report["arms"]["sgd"]
    assert baseline["levels"]["val/loss"]["value"] == pytest.approx(np.mean(values), rel=1e-12)
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


# --- how many seeds show a change of a known size


BASE_LOSSES = [2.7245, 2.69322, 2.71519, 2.72324, 2.69199, 2.72146, 2.72047, 2.69505]
DECAY_LOSSES = [2.72387, 2.69873, 2.71651, 2.72714, 2.70182, 2.72467, 2.71572, 2.6978]


def write_sweeps(folder):
    "Two tables of eight seeds: the files' paths."
    paths = folder / "base.csv", folder / "wd.csv"
    for path, values in zip(paths, (BASE_LOSSES, DECAY_LOSSES), strict=True):
        rows = [f"finished,{seed},{loss}" for seed, loss in enumerate(values)]
        path.write_text("\n".join(["State,seed,val_loss", *rows]) + "\n")
    return [*map(str, paths)]


def frames():
    "The same tables as DataFrames."
    pandas = pytest.importorskip("pandas")
    return [
        pandas.DataFrame({"seed": range(8), "val_loss": values})
        for values in (BASE_LOSSES, DECAY_LOSSES)
    ]


def seeds_for(change, sd, power=0.8):
    "The least n whose t test finds a change of this size with this power."
    stats = pytest.importorskip("scipy.stats")
    for n in range(2, 1000):
        q = stats.t.ppf(0.975, n - 1)
        if stats.nct.sf(q, n - 1, change * np.sqrt(n) / sd) >= power:
            return n
    raise AssertionError("no such n")


def test_an_expected_change_is_planned_for_without_a_margin(tmp_path):
    "The usual margin of 2 % turned the question into that of equivalence."
    words = ("plan", *write_sweeps(tmp_path), "--metric", "val_loss", "--expect", "0.005")
    code, out, _ = shell(*words)
    text = " ".join(out.split())
    assert code == 0 and "Goal: show a change of 0.184 % (0.005) with 80 % power" in text
    assert "no margin" in text and "equivalent within" not in text
    plan = json.loads(shell(*words, "--json")[1])
    assert plan["goal"]["margin"] is None
    pilot = plan["pilot"]
    bound = pilot["sd"] * np.sqrt(7 / pytest.importorskip("scipy.stats").chi2.ppf(0.2, 7))
    wanted = seeds_for(plan["goal"]["expected"], bound)
    assert abs(plan["needed"]["windows"] - wanted) <= 1
    with_margin = shell(*words, "--margin", "2%")[1]
    assert "equivalent within 2 %" in " ".join(with_margin.split())


def test_of_texts_too_an_expected_change_needs_no_margin(tmp_path):
    code, out, _ = shell("plan", "--sd", "0.1", "--expect", "1%")
    assert code == 0 and "Goal: show a change of 1 % with 80 % power" in " ".join(out.split())


def test_a_change_as_large_as_the_margin_is_refused_in_the_words_that_were_typed(tmp_path):
    words = ("plan", *write_sweeps(tmp_path), "--metric", "val_loss")
    code, _, err = shell(*words, "--margin", "0.005", "--expect", "0.005")
    assert code == 2 and "--margin 0.005 and --expect 0.005" in err
    assert "seeds" in err and "text" not in err and "Leave --margin out" in err
    with pytest.raises(UsageError, match="margin=None"):
        Goal(margin=0.01, expected=0.01)


def test_a_margin_of_0_is_none_in_a_plan(tmp_path):
    words = ("plan", *write_sweeps(tmp_path), "--metric", "val_loss")
    code, out, _ = shell(*words, "--margin", "0", "--expect", "0.005")
    assert code == 0 and out == shell(*words, "--expect", "0.005")[1]
    code, _, err = shell(*words, "--margin", "0")
    assert code == 2 and "--expect" in err


def test_a_plan_without_a_metric_proposes_the_plan_with_its_files(tmp_path):
    files = write_sweeps(tmp_path)
    code, _, err = shell("plan", *files, "--expect", "0.005")
    assert code == 2 and f"invar-nb plan {files[0]} {files[1]} " in err
    assert "--expect 0.005 --metric val_loss" in err
    proposed = err.partition("Write: invar-nb ")[2].strip().removesuffix(".").split()
    assert shell(*proposed)[0] == 0


def test_plans_from_a_study_of_runs_and_from_two_frames(tmp_path):
    base, decay = frames()
    both = compare(base, decay, metrics="val_loss")
    plan = plan_comparison(both, expected=0.002)
    assert plan.items == "seeds" and plan.goal.margin is None
    of_frames = plan_comparison(base, decay, metric="val_loss", expected=0.002)
    assert of_frames.to_dict() == plan.to_dict()
    assert plan_comparison(both).goal.margin == 0.02
    several = study(
        {
            "baseline": both.arms["baseline", ""],
            "a": both.arms["candidate", ""],
            "b": both.arms["candidate", ""],
        },
        metrics="val_loss",
    )
    with pytest.raises(UsageError, match="one candidate"):
        plan_comparison(several)
    losses_pair = losses(0.05, n=60)
    assert plan_comparison(compare(losses_pair)).needed == plan_comparison(losses_pair).needed


def test_a_goal_of_a_change_alone_is_planned_for():
    pilot = Pilot(sd=0.01, dof=7)
    assert Goal(margin=None, expected=0.01).needs(pilot, 2) == Goal(
        margin=0, expected=0.01
    ).needs(pilot, 2)
    assert (
        Goal(margin=None, expected=0.005).needs(pilot, 2)
        > Goal(margin=None, expected=0.01).needs(pilot, 2)
        > 2
    )


def test_a_pilot_says_of_what_it_is_the_spread():
    "Its standard deviation was estimated, from units that the caller names."
    text = " ".join(str(plan_comparison(Pilot(sd=0.01, dof=7), units="seeds")).split())
    assert "windows" not in text and "known" not in text
    assert "Pilot: a standard deviation of 0.01 per seed, with 7 degrees of freedom" in text
    unnamed = " ".join(str(plan_comparison(Pilot(sd=0.01, dof=7))).split())
    assert "windows" not in unnamed and "known" not in unnamed


# --- one meaning of a margin


def test_a_margin_as_text_means_in_python_what_it_does_in_the_shell(tmp_path):
    base, decay = frames()
    files = write_sweeps(tmp_path)
    for text in ("0.5%", "0.005"):
        out = tmp_path / text
        shell("compare", *files, "--metric", "val_loss", "--margin", text, "--out", str(out))
        report = json.loads((out / "report.json").read_text())
        of_text = compare(base, decay, metrics="val_loss", margin=text)
        by_name = compare(base, decay, metrics="val_loss", margin={"val_loss": text})
        assert of_text.row.margin == by_name.row.margin == report["rows"][0]["margin"]
        spec = MetricSpec("val_loss", improvement_threshold=text)
        arms = {
            "baseline_runs": base.assign(State="finished"),
            "candidate_runs": decay.assign(State="finished"),
        }
        assert compare_runs(spec, **arms).spec.improvement_threshold == of_text.row.margin
        assert judge_runs(spec, **arms).improvement_threshold == of_text.row.margin
    assert of_text.row.margin == pytest.approx(0.005 / np.mean(BASE_LOSSES), rel=1e-12)
    for number in (0.005, {"val_loss": 0.005}):  # it was a share, as 0.5 % of the mean
        of_number = compare(base, decay, metrics="val_loss", margin=number)
        assert of_number.row.margin == of_text.row.margin
    assert compare(base, decay, metrics="val_loss").row.margin == 0.02


def test_a_number_that_was_stored_as_a_share_verifies_and_is_read_as_one(tmp_path):
    "Reports keep shares of the mean as plain numbers, whatever was typed."
    base, decay = frames()
    for place, margin in enumerate((0.005, "0.5%", {"val_loss": 0.005}, None, 0)):
        done = compare(base, decay, metrics="val_loss", margin=margin)
        folder = tmp_path / str(place)
        done.report().save(folder)
        stored = json.loads((folder / "report.json").read_text())["rules"].get("margin")
        share = {"val_loss": done.row.margin}
        assert stored == (None if margin is None else share), margin
        verify(folder)
        again = study(done.arms, done.rules)  # rules that were used are shares
        assert again.row.margin == done.row.margin
    report = json.loads((tmp_path / "0" / "report.json").read_text())
    kept = stored_rules(report["rules"] | {"margin": 0.02}, has_runs=True)
    assert study(done.arms, kept).row.margin == 0.02


def test_the_margin_of_several_metrics_names_its_metric_or_is_in_per_cent():
    base, decay = (frame.assign(val_acc=0.5 + frame.seed / 100) for frame in frames())
    names = ["val_loss", "val_acc"]
    with pytest.raises(UsageError, match="must name its metric") as refused:
        compare(base, decay, metrics=names, margin=0.005)
    cure = re.search(r"margin=(\{.*?\})", str(refused.value))[1]
    both = compare(base, decay, metrics=names, margin=ast.literal_eval(cure))
    assert both.row.margin == pytest.approx(0.005 / np.mean(BASE_LOSSES), rel=1e-12)


def test_sizes_of_a_plan_of_runs_mean_what_a_margin_does():
    base, decay = frames()
    both = compare(base, decay, metrics="val_loss")
    of_number = plan_comparison(both, margin=0.005)
    of_text = plan_comparison(both, margin="0.005")
    share = 0.005 / np.mean(BASE_LOSSES)
    assert of_number.goal.margin == of_text.goal.margin == pytest.approx(share, rel=1e-12)
    assert plan_comparison(both, margin="0.5%").goal.margin == 0.005
    assert plan_comparison(both, goal=Goal(margin=0.005)).needed == of_number.needed
    assert plan_comparison(compare(base, decay, metrics="val_loss", margin=0.005)).needed == (
        of_number.needed
    )
    with pytest.raises(UsageError, match="below its mean"):
        plan_comparison(both, margin=5)


def test_a_margin_as_text_of_losses_and_what_is_refused():
    both = losses(0.05, n=60)
    for text in ("2%", "0.02", {"perplexity": "2%"}):
        done = compare(both, margin=text)
        assert done.row.margin == 0.02
        assert done.rules.margin in (0.02, {"perplexity": 0.02})
    base, decay = frames()
    for wrong, says in (("x", "2%"), ("-1", "2%"), ("5", "below its mean"), ("120%", "below")):
        with pytest.raises(UsageError, match=says):
            compare(base, decay, metrics="val_loss", margin=wrong)
    two = [frame.assign(val_acc=0.5 + frame.seed / 100) for frame in (base, decay)]
    with pytest.raises(UsageError, match="val_loss"):
        compare(*two, metrics=["val_loss", "val_acc"], margin="0.005")
    both = compare(*two, metrics=["val_loss", "val_acc"], margin="1%")
    assert [row.margin for row in both.rows] == [0.01, 0.01]


def test_every_result_of_runs_says_its_margin_both_ways(tmp_path):
    base, decay = frames()
    both = compare(base, decay, metrics="val_loss", margin="0.005")
    sentence = "Margin: 0.184 % of val_loss = 0.005."
    assert sentence in " ".join(str(both).split())
    _, out, _ = shell(*sweep_command(tmp_path))
    margins = "Margin: 2 % of val/loss = 0.062, 2 % of val/accuracy = 0.0124."
    assert margins in " ".join(out.split())
    alone = compare_runs(
        MetricSpec("val_loss"),
        baseline_runs=rows_of(BASE_LOSSES),
        candidate_runs=rows_of(DECAY_LOSSES),
    )
    assert "Margin: 2 % of val_loss = 0.0542." in alone.summary()


def rows_of(values):
    return [{"seed": k, "terminal": "ok", "val_loss": x} for k, x in enumerate(values)]


def test_two_metrics_are_proposed_margins_that_suit_them(tmp_path):
    words = sweep_command(tmp_path)
    code, _, err = shell(*words, "--margin", "0.005")
    assert code == 2 and "--margin val/loss=0.005 --margin val/accuracy=2%" in err
    more = ("--json", "-q", "--out", str(tmp_path / "report"), "--force")
    _, out, _ = shell(*words, "--margin", "1%", *more)
    assert json.loads(out)["rules"]["margin"] == {"val/loss": 0.01, "val/accuracy": 0.01}
    _, out, _ = shell(*words, "--margin", "1%", "--margin", "val/loss=2%", *more)
    assert json.loads(out)["rules"]["margin"] == {"val/loss": 0.02, "val/accuracy": 0.01}


# --- what is named


def test_frames_whose_seeds_have_another_name_are_refused_for_that():
    base, decay = (frame.rename(columns={"seed": "rng"}) for frame in frames())
    with pytest.raises(UsageError, match="column of seeds.*rename.*'rng': 'seed'"):
        compare(base, decay, metrics="val_loss")
    named = [read_runs(frame, seed="rng", terminal="ok") for frame in (base, decay)]
    assert compare(*named, metrics="val_loss").row.value.n == 8


def test_a_direction_against_the_name_of_the_metric_is_noted(tmp_path):
    files = write_sweeps(tmp_path)
    words = ("compare", *files, "--metric", "val_loss", "--out", str(tmp_path / "report"))
    note = "Higher val_loss counts as better, as was asked for; its name says lower."
    _, out, _ = shell(*words, "--better", "higher")
    assert note in " ".join(out.split())
    assert note.replace("_", "\\_") in (tmp_path / "report" / "report.md").read_text()
    _, out, _ = shell(*words, "--better", "lower", "--force")
    assert "counts as better" not in out


# --- the interval in the metric's own unit


def test_the_interval_of_a_difference_is_that_of_the_paired_t_test():
    stats = pytest.importorskip("scipy.stats")
    base, decay = frames()
    both = compare(base, decay, metrics="val_loss")
    changes = np.subtract(DECAY_LOSSES, BASE_LOSSES)
    low, high = stats.ttest_1samp(changes, 0).confidence_interval(0.95)
    alone = compare_runs(
        MetricSpec("val_loss"),
        baseline_runs=rows_of(BASE_LOSSES),
        candidate_runs=rows_of(DECAY_LOSSES),
    )
    for frame in (both.to_frame(), alone.to_frame()):
        row = frame.iloc[0]
        assert (row.difference, row.difference_low, row.difference_high) == pytest.approx(
            (changes.mean(), low, high), rel=1e-6
        )
    line = f"Difference of the means: {changes.mean():+.3g} (95 % CI {low:.3g} to {high:.3g})."
    assert line in " ".join(str(both).split())


def test_an_end_near_0_shows_on_which_side_it_lies(tmp_path):
    _, out, _ = shell(*sweep_command(tmp_path))
    assert "(0.0 to" not in out and " to 0.0)" not in out


def test_help_finds_runs_over_seeds():
    code, out, _ = shell("help", "plan")
    assert code == 0 and "plan base.csv wd.csv --metric val_loss --expect 0.005" in out
    for word in ("runs", "seeds"):
        code, out, _ = shell("help", word)
        assert code == 0 and out == shell("help", "files")[1] and "seed" in out


def test_two_arms_of_which_a_run_crashed_are_answered_in_the_terminal(tmp_path):
    "The table of the answer has no column then: it was an IndexError."
    rows = [
        f"{seed},{arm},{'crashed' if (arm, seed) == ('b', 3) else 'finished'},"
        f"{2 + seed % 4 / 50 + (arm == 'b') / 90}"
        for arm in "ab"
        for seed in range(6)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["seed,arm,State,loss", *rows]) + "\n")
    words = ("compare", tmp_path / "runs.csv", "--column", "arm=arm=a,b", "--metric", "loss")
    code, out, err = shell(*words)
    assert code == 5 and "run of seed 3 ended in 'crashed'" in out + err, out + err
    assert "--set drop_failed=true" in out + err
    assert shell(*words, "--set", "drop_failed=true")[0] in (0, 1)


def test_a_column_is_named_as_that_of_seeds_by_its_name_alone(tmp_path):
    "Batch sizes were offered as seeds, and runs were paired by them."
    rows = [f"{arm},{2**k},{2 + k / 50 + (arm == 'b') / 90}" for arm in "ab" for k in range(6)]
    for column, is_likely in (("batch_size", False), ("Runtime", False), ("trial", True)):
        (tmp_path / "runs.csv").write_text("\n".join([f"arm,{column},loss", *rows]) + "\n")
        words = ("compare", tmp_path / "runs.csv", "--column", "arm=arm=a,b")
        code, _, err = shell(*words, "--metric", "loss")
        cure = f"Write --column seed={column}" if is_likely else "Add a column seed"
        assert code == 2 and cure in err, err
