"""Runs per seed: the lesson's own list, boundaries, invariances, another implementation, and a queue killed wherever it can be.

The referees share no code with the room: scipy.stats, statsmodels, a root finder, and the decision table typed again."""
import dataclasses
import json
import math
import pickle
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from invar_nb.evidence.runs import (Evaluator, ExperimentResult, Hypothesis, QueueRecord, RunsComparison, compare_runs, judge_many, judge_runs,
                                    pair_runs, run_queue, seeds_to_settle)
from invar_nb.evidence.verdict import MetricSpec, Verdict
from invar_nb.ground.contract import ContractError, PairingError, canonical_json

stats = pytest.importorskip("scipy.stats")
LOWER, HIGHER = "lower_is_better", "higher_is_better"
PPL = MetricSpec(metric="m", direction=LOWER, scale="log")
ACC = MetricSpec(metric="m", direction=HIGHER)
QUICK = settings(max_examples=60, deadline=None)


def runs(values, seeds=None, **more):
    return [ExperimentResult(terminal="ok", metrics={"seed": s, "m": v}, **more) for s, v in zip(seeds or range(len(values)), values, strict=True)]


def one(spec, candidate, baseline, **settings): return compare_runs(spec, runs(candidate), runs(baseline), **settings)


def typed_table(improvement, p, m, alpha):
    "The lesson's five lines, typed again; rule 1 is tested by itself."
    if abs(improvement) < m or p is None or p > alpha or improvement == 0: return "noise"
    return "improved" if improvement > 0 else "regressed"


# --- the lesson's own list --------------------------------------------------------------------------------------------------------------
BASE = [30.12, 32.41, 28.73, 33.90, 31.26]
BETTER = [29.02, 31.60, 27.70, 33.02, 30.05]


@pytest.mark.parametrize("spec", [PPL, dataclasses.replace(PPL, scale="linear")], ids=["log", "linear"])
def test_improved_and_regressed(spec):
    there, back = judge_runs(spec, runs(BETTER), runs(BASE)), judge_runs(spec, runs(BASE), runs(BETTER))
    assert (there.verdict, back.verdict, there.noise_kind) == ("improved", "regressed", None)
    up = dataclasses.replace(spec, direction=HIGHER)
    assert judge_runs(up, runs(BETTER), runs(BASE)).verdict == "regressed" and judge_runs(up, runs(BASE), runs(BETTER)).verdict == "improved"


def test_noise_by_small_effect_is_equivalent_although_significant():
    v = judge_runs(PPL, runs([x * (0.995 + 0.0002 * (-1) ** i) for i, x in enumerate(BASE)]), runs(BASE))
    assert (v.verdict, v.noise_kind) == ("noise", "equivalent") and v.p_value < 0.001 and "real but too small" in v.rationale


def test_noise_by_low_n():
    v = judge_runs(PPL, runs([20.0]), runs([30.0]))
    assert (v.verdict, v.noise_kind, v.p_value, v.seeds_to_settle) == ("noise", "inconclusive", None, None) and "one seed has no spread" in v.rationale
    two = judge_runs(PPL, runs([29.0, 31.5]), runs([30.0, 32.0]))
    assert (two.verdict, two.noise_kind) == ("noise", "inconclusive") and two.seeds_to_settle > 2


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
@pytest.mark.parametrize("state", ["timeout", "oom", "crash", "sigterm"])
def test_failed_terminal_of_either_arm(arm, state):
    arms = {"candidate": runs(BETTER), "baseline": runs(BASE)}
    arms[arm][2] = ExperimentResult(terminal=state, metrics={"seed": 2}, detail="after 7\n minutes")
    v = judge_runs(PPL, arms["candidate"], arms["baseline"])
    assert (v.verdict, v.candidate_mean, v.baseline_mean, v.improvement, v.p_value, v.noise_kind) == ("failed", 0.0, 0.0, 0.0, None, None)
    assert f"the {arm} run of seed 2 ended in {state!r} (after 7 minutes)" in v.rationale and "\n" not in v.rationale
    arms[arm][2] = ExperimentResult(terminal=state, metrics={})
    assert f"the {arm} run of seed unknown ended" in judge_runs(PPL, arms["candidate"], arms["baseline"]).rationale


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_no_number_is_failed_and_never_noise(bad):
    sick = runs([*BETTER[:4], bad])
    c = compare_runs(PPL, sick, runs(BASE))
    assert c.verdict.verdict == "failed" and c.t_test is None and c.improvement is None and "candidate run of seed 4" in c.verdict.rationale
    assert compare_runs(PPL, runs(BASE), sick).verdict.verdict == "failed"


def test_a_number_that_is_not_finite_anywhere_fails_the_run_but_an_unwritten_one_only_its_own_metric():
    other = lambda value: [ExperimentResult(terminal="ok", metrics={"seed": i, "m": x, "norm": value}) for i, x in enumerate(BETTER)]
    assert judge_runs(PPL, other(math.inf), runs(BASE)).verdict == "failed"
    assert judge_runs(PPL, other(None), runs(BASE)).verdict == "improved"


def test_log_normalised():
    c = one(PPL, [28.0] * 6, [32.0] * 6)
    assert c.improvement == pytest.approx(math.log(32 / 28), abs=1e-15) and f"{c.improvement:+.4f}" == "+0.1335"
    v = judge_runs(PPL, runs(BETTER), runs(BASE))
    assert v.candidate_geometric_mean == pytest.approx(stats.gmean(BETTER), rel=1e-14) and v.candidate_mean == pytest.approx(np.mean(BETTER), rel=1e-15)
    assert judge_runs(dataclasses.replace(PPL, scale="linear"), runs(BETTER), runs(BASE)).candidate_geometric_mean is None


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_t_against_scipy(scale):
    rng = np.random.default_rng(7)
    for n in (2, 3, 5, 17, 60):
        c, b = np.exp(rng.normal(2, 0.4, (2, n)))
        found = one(dataclasses.replace(ACC, scale=scale), c.tolist(), b.tolist())
        x, y = (np.log(c), np.log(b)) if scale == "log" else (c, b)
        theirs = stats.ttest_rel(x, y)
        assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-10) and found.t_test.statistic == pytest.approx(theirs.statistic, rel=1e-10)
        if scale == "log":
            assert [found.interval.low, found.interval.high] == pytest.approx(list(theirs.confidence_interval(0.95)), rel=1e-9, abs=1e-13)


def test_t_reference_values():
    for new, old, t, p in (([5, 6, 7, 8], [4, 6, 6, 7], 3.0, 0.0576689), ([2.1, 2.3, 1.9, 2.5], [2.0] * 4, 1.5491933, 0.2191020)):
        found = one(ACC, new, old)
        assert found.t_test.statistic == pytest.approx(t, rel=1e-7) and found.p_value == pytest.approx(p, rel=1e-6)


def test_pairing_error_lists_everything():
    with pytest.raises(PairingError, match=r"candidate repeats 1; baseline repeats 4"): pair_runs(runs([1.0] * 3, [0, 1, 1]), runs([1.0] * 3, [4, 4, 0]))
    with pytest.raises(PairingError, match=r"candidate lacks 7, 8; baseline lacks 0"): judge_runs(PPL, runs([1.0, 2.0], [0, 1]), runs([1.0] * 3, [1, 7, 8]))
    with pytest.raises(PairingError, match=r"baseline has no runs"): judge_runs(PPL, runs(BASE), [])
    with pytest.raises(PairingError, match=r"no seed in common"): pair_runs(runs([1.0]), runs([1.0], [1]), intersect=True)
    with pytest.raises(PairingError, match=r"repeats"): pair_runs(runs([1.0, 2.0], [0, 0]), runs([1.0]), intersect=True)
    with pytest.raises(PairingError, match=r"without a seed"): pair_runs([ExperimentResult(terminal="oom", metrics={})], runs([1.0]))
    with pytest.raises(PairingError, match=r"and 94 more"): pair_runs(runs([1.0] * 100), runs([1.0], [500]))


def test_intersection_only_on_request_and_recorded():
    c = compare_runs(PPL, runs(BETTER[:4], [9, 1, 2, 3]), runs(BASE), intersect=True)
    assert c.seeds == (1, 2, 3) and c.candidate_only == (9,) and c.baseline_only == (0, 4) and "left out: 0, 4, 9" in c.verdict.rationale
    assert c.candidate == tuple(BETTER[1:4]) and c.baseline == tuple(BASE[1:4])


# --- boundaries -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sign,word", [(1, "improved"), (-1, "regressed")])
def test_equality_passes_both_thresholds_exactly(sign, word):
    def judged(m, alpha, n=5):
        spec = MetricSpec(metric="m", direction=HIGHER, improvement_threshold=m, significance_threshold=alpha)
        return one(spec, [4.0 + sign] * n, [4.0] * n)
    c = judged(0.25, 0.0625)
    assert (c.improvement, c.p_value, c.verdict.verdict) == (sign * 0.25, 0.0625, word)
    assert judged(math.nextafter(0.25, 1), 0.0625).verdict.verdict == judged(0.25, math.nextafter(0.0625, 0)).verdict.verdict == "noise"
    assert judged(math.nextafter(0.25, 0), 0.0625).verdict.verdict == judged(0.25, math.nextafter(0.0625, 1)).verdict.verdict == word


def test_equality_with_a_spread_and_in_a_family():
    values, spec = [4.5, 5.5, 5.0, 4.75, 5.25], MetricSpec(metric="m", direction=HIGHER, improvement_threshold=0.25)
    p = one(spec, values, [4.0] * 5).p_value
    at = lambda alpha: dataclasses.replace(spec, significance_threshold=alpha)
    assert one(at(p), values, [4.0] * 5).verdict.verdict == "improved" and one(at(math.nextafter(p, 0)), values, [4.0] * 5).verdict.verdict == "noise"
    two = lambda alpha: judge_many([one(at(alpha), values, [4.0] * 5), one(at(alpha), [4.0, 4.5, 3.5, 4.0, 4.0], [4.0] * 5, hypothesis_id=1)])[0]
    assert two(2 * p).adjusted_p_value == 2 * p and two(2 * p).verdict.verdict == "improved" and two(math.nextafter(2 * p, 0)).verdict.verdict == "noise"


def test_interval_on_the_threshold_is_not_equivalent():
    spec = dataclasses.replace(PPL, improvement_threshold=0.02)
    c = one(spec, BASE, [x * (1.001, 0.999, 1.0, 1.002, 0.998)[i] for i, x in enumerate(BASE)])
    assert c.noise_kind == "equivalent"
    edge = max(-c.interval.low, c.interval.high)
    assert one(dataclasses.replace(spec, improvement_threshold=edge), BASE, list(c.baseline)).noise_kind == "inconclusive"
    assert one(dataclasses.replace(spec, improvement_threshold=math.nextafter(edge, 1)), BASE, list(c.baseline)).noise_kind == "equivalent"
    assert one(dataclasses.replace(spec, improvement_threshold=0), BASE, list(c.baseline)).noise_kind == "inconclusive"


def test_equal_differences_have_the_p_value_of_their_signs():
    for n in range(2, 9):
        c = one(PPL, [28.0] * n, [32.0] * n)
        assert c.p_value == 2.0 ** (1 - n) and c.degenerate == "all_equal" and (c.verdict.verdict == "improved") == (n >= 6)
        assert c.interval.fallback.code == "all_equal" and c.seeds_to_settle == (6 if n < 6 else None)
        same = one(PPL, BASE[:1] * n, BASE[:1] * n)
        assert same.p_value == 1 and same.noise_kind == ("equivalent" if n >= 6 else "inconclusive") and same.improvement == 0
    family = judge_many([one(PPL, [28.0] * 6, [32.0] * 6), one(PPL, [28.0] * 6, [32.0] * 6, hypothesis_id=1)])
    assert [(c.verdict.verdict, c.seeds_to_settle) for c in family] == [("noise", 7)] * 2


@pytest.mark.parametrize("k", [1.0, 1e-3, 1000 / 7, 1e9])
def test_equal_ratios_are_equal_in_every_unit(k):
    c = one(PPL, [x * 0.9 * k for x in BASE + [40.0]], [x * k for x in BASE + [40.0]])
    assert c.degenerate == "all_equal" and c.p_value == 2.0**-5 and c.improvement == pytest.approx(-math.log(0.9), abs=1e-14)
    rounded = one(dataclasses.replace(PPL, improvement_threshold=0), [x * k * (1 + 2**-52) for x in BASE], [x * k for x in BASE])
    assert rounded.improvement == 0 and rounded.verdict.verdict == "noise"


# --- invariances ------------------------------------------------------------------------------------------------------------------------
values = st.lists(st.tuples(st.floats(0.5, 100), st.floats(0.5, 100)), min_size=2, max_size=9)
specs = st.builds(MetricSpec, metric=st.just("m"), direction=st.sampled_from([LOWER, HIGHER]), scale=st.sampled_from(["linear", "log"]),
                  improvement_threshold=st.sampled_from([0.0, 0.02, 0.3]), significance_threshold=st.sampled_from([0.05, 0.3]))


@given(values, specs, st.randoms(use_true_random=False))
@QUICK
def test_order_of_rows_moves_no_bit(pairs, spec, rnd):
    c, b = map(list, zip(*pairs, strict=True))
    seeds = rnd.sample(range(-50, 50), len(c))
    first, second = list(zip(runs(c, seeds), runs(b, seeds), strict=True)), [*range(len(c))]
    rnd.shuffle(second)
    forwards = compare_runs(spec, [x for x, _ in first], [y for _, y in first])
    mixed = compare_runs(spec, [first[i][0] for i in second], [y for _, y in reversed(first)])
    assert canonical_json(mixed.to_dict()) == canonical_json(forwards.to_dict())
    assert judge_runs(spec, [first[i][0] for i in second], [y for _, y in first]) == forwards.verdict


@given(values, specs)
@QUICK
def test_the_word_is_what_the_typed_table_says(pairs, spec):
    c, b = (np.array(x) for x in zip(*pairs, strict=True))
    found = one(spec, c.tolist(), b.tolist())
    x, y = (np.log(c), np.log(b)) if spec.scale == "log" else (c, b)
    g = (math.fsum(x) - math.fsum(y)) / len(c) / (1 if spec.scale == "log" else abs(math.fsum(b) / len(c))) * (1 if spec.direction == HIGHER else -1)
    assert found.improvement == pytest.approx(g, rel=1e-9, abs=1e-12)
    assert found.verdict.verdict == typed_table(found.improvement, found.p_value, spec.improvement_threshold, spec.significance_threshold)
    if found.degenerate is None and np.ptp(x - y) > 1e-9 * np.abs(x).max():
        assert found.p_value == pytest.approx(stats.ttest_rel(x, y).pvalue, rel=1e-5, abs=1e-12)
        if found.interval is not None and abs(found.p_value - spec.significance_threshold) > 1e-9:
            assert (found.interval.low <= 0 <= found.interval.high) == (found.p_value > spec.significance_threshold)
    again = Verdict(**json.loads(json.dumps(found.verdict.to_dict())))
    assert again == found.verdict and RunsComparison.from_dict(json.loads(canonical_json(found.to_dict()))) == found


@given(values, st.sampled_from([LOWER, HIGHER]), st.floats(-20, 20))
@QUICK
def test_units_do_not_matter_on_the_log_scale(pairs, direction, exponent):
    c, b = zip(*pairs, strict=True)
    k, spec = math.exp(exponent), dataclasses.replace(PPL, direction=direction)
    here, there = one(spec, list(c), list(b)), one(spec, [k * x for x in c], [k * x for x in b])
    assert there.improvement == pytest.approx(here.improvement, abs=1e-12)
    assume(abs(abs(here.improvement) - 0.02) > 1e-9 and (here.p_value is None or abs(here.p_value - 0.05) > 1e-6))
    assume(here.interval is None or min(abs(abs(e) - 0.02) for e in (here.interval.low, here.interval.high)) > 1e-9)
    spread = np.ptp(np.log(c) - np.log(b))
    assume(not 1e-13 < spread < 1e-11)  # where equal ends is a matter of one rounding
    assert (there.verdict.verdict, there.noise_kind, there.degenerate) == (here.verdict.verdict, here.noise_kind, here.degenerate)


@given(values, specs)
@QUICK
def test_direction_is_a_sign_and_arms_change_sides(pairs, spec):
    c, b = map(list, zip(*pairs, strict=True))
    other = dataclasses.replace(spec, direction=LOWER if spec.direction == HIGHER else HIGHER)
    here, turned = one(spec, c, b), one(other, c, b)
    assert turned.improvement == -here.improvement and turned.p_value == here.p_value and turned.noise_kind == here.noise_kind
    if here.effect_size is not None: assert turned.effect_size == -here.effect_size and here.effect_size * here.improvement > -1e-20
    if here.interval is not None: assert (turned.interval.low, turned.interval.high) == (-here.interval.high, -here.interval.low)
    assert {here.verdict.verdict, turned.verdict.verdict} in ({"noise"}, {"improved", "regressed"})
    if spec.scale == "log": assert one(spec, b, c).improvement == pytest.approx(-here.improvement, abs=1e-14)


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.5, 3)), min_size=2, max_size=8), st.sampled_from([1, -1]))
@QUICK
def test_linear_interval_solves_its_own_test(pairs, sign):
    c, b = (np.array(x) for x in zip(*pairs, strict=True))
    b = sign * b
    found = one(ACC, c.tolist(), b.tolist())
    assume(found.degenerate is None and np.std(c / b) > 1e-3 and np.std(b) > 1e-3)
    if found.interval is None:
        assert stats.ttest_1samp(b, 0).pvalue > 0.0499
        return
    for end in (found.interval.low, found.interval.high):  # c - (1 + g) b for b > 0, c - (1 - g) b for b < 0
        assert stats.ttest_1samp(c - (1 + sign * end) * b, 0).pvalue == pytest.approx(0.05, rel=1e-4)
    assert found.interval.low <= found.improvement <= found.interval.high


@given(st.floats(0, 0.1), st.floats(1e-4, 1), st.integers(2, 12), st.sampled_from([0.0, 0.02]), st.sampled_from([0.9, 0.95]))
@QUICK
def test_seeds_to_settle_is_the_first_that_clears(g, h, n, m, level):
    gap = m - g if g < m else g
    found = seeds_to_settle(g, h, n, threshold=m, level=level)
    width = lambda k: h * stats.t.ppf((1 + level) / 2, k - 1) / stats.t.ppf((1 + level) / 2, n - 1) * math.sqrt(n / k)
    if gap == 0: assert found is None
    elif found is None: assert width(10**6) > gap * (1 - 1e-9)
    else: assert found > n and width(found) <= gap * (1 + 1e-9) and (found == n + 1 or width(found - 1) > gap * (1 - 1e-9))


# --- a family ---------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ours,theirs", [("holm", "holm"), ("benjamini_hochberg", "fdr_bh")])
def test_families_against_statsmodels(ours, theirs):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(11)
    for m in (1, 2, 7, 20):
        alone = [one(PPL, np.exp(3 - rng.normal(0.03, 0.03, 5)).tolist(), [math.exp(3)] * 5, hypothesis_id=i) for i in range(m)]
        failed = compare_runs(PPL, [ExperimentResult(terminal="oom", metrics={})], runs(BASE), hypothesis_id=m)
        single = one(PPL, [28.0], [30.0], hypothesis_id=m + 1)
        made = judge_many([failed, *alone, single], multiplicity=ours)
        assert made[0] == failed and made[-1] == single
        expected = multitest.multipletests([c.p_value for c in alone], method=theirs)[1]
        for before, after, p in zip(alone, made[1:-1], expected, strict=True):
            assert after.p_value == before.p_value and after.adjusted_p_value == pytest.approx(p, rel=1e-12) and after.family == m
            assert after.verdict.verdict == typed_table(after.improvement, after.adjusted_p_value, 0.02, 0.05)
            assert after.verdict.p_value == before.p_value and after.verdict.adjusted_p_value == after.adjusted_p_value
            assert after.interval.level == pytest.approx(1 - 0.05 / m, abs=1e-12) and after.interval.width >= before.interval.width
            if before.noise_kind == "inconclusive": assert after.noise_kind == "inconclusive"
            assert RunsComparison.from_dict(json.loads(canonical_json(after.to_dict()))) == after
        assert judge_many(made, multiplicity=ours) == made  # from the unadjusted p-values, each time


def test_family_of_metrics_and_its_refusals():
    row = lambda s, f: {"seed": s, "terminal": "ok", "loss": 2.0 + f, "accuracy": 0.7 - f / 10, "speed": 100.0 + s}
    c, b = [row(s, 0.1 + 0.01 * s) for s in range(5)], [row(s, 0.0) for s in range(5)]
    metrics = [MetricSpec(metric="loss", direction=LOWER), MetricSpec(metric="accuracy", direction=HIGHER), MetricSpec(metric="speed", direction=HIGHER)]
    made = judge_many([compare_runs(m, c, b) for m in metrics])
    assert [x.verdict.verdict for x in made] == ["regressed", "noise", "noise"] and made[1].adjusted_p_value > made[1].p_value
    with pytest.raises(ContractError, match="once"): judge_many([made[0], made[0]])
    with pytest.raises(ContractError, match="RunsComparisons"): judge_many([made[0].verdict])
    assert judge_many([]) == ()


# --- rows -------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [2.7, True, False, "3x", "2.7", "", "nan", math.nan, math.inf, None, [3], 2.0**60, "1_0", "³"])
def test_seeds_that_are_none(seed):
    with pytest.raises(ContractError, match="seed"): ExperimentResult.from_row({"seed": seed, "terminal": "ok", "m": 1.0}, place="line 4")
    with pytest.raises(ContractError, match="seed"): ExperimentResult(terminal="ok", metrics={"seed": seed, "m": 1.0})


@pytest.mark.parametrize("seed", [3, 3.0, "3", " 3 ", "3.0", "+3", "3e0", np.int64(3), np.float32(3)])
def test_seeds_that_are_three(seed):
    run = ExperimentResult.from_row({"seed": seed, "terminal": "ok", "m": 1.0})
    assert run.seed == 3 and type(run.seed) is int


def test_rows_of_text_are_converted_by_name():
    row = {"seed": "3", "terminal": "ok", "m": "28.1", "host": "7", "note": "", "gone": None, "hypothesis_id": "12", "experiment_id": "a"}
    run = ExperimentResult.from_row(row, numbers=["m"])
    assert run.metrics == {"m": 28.1, "seed": 3, "gone": None} and run.other == {"host": "7", "note": ""} and run.hypothesis_id == 12 and run.experiment_id == "a"
    for text in ("0,75", "1e999", "28.1 s", "0x1p3", "1_0", "", "--1"):
        with pytest.raises(ContractError, match="must be a number"): ExperimentResult.from_row(row | {"m": text}, numbers=["m"], place="line 9")
    assert not ExperimentResult.from_row(row | {"m": "nan"}, numbers=["m"]).ok
    with pytest.raises(ContractError, match=r"read it with numbers=\['m'\]"): judge_runs(PPL, [ExperimentResult.from_row(row)], runs([1.0], [3]))


def test_a_row_says_how_it_ended():
    for row in ({"seed": 1, "m": 1.0}, {"seed": 1, "m": 1.0, "terminal": None}):
        with pytest.raises(ContractError, match="line 5: a row must say how its run ended"): ExperimentResult.from_row(row, place="line 5")
        assumed = ExperimentResult.from_row(row, terminal="ok")
        assert assumed.ok and "taken as 'ok'" in assumed.detail
    assert ExperimentResult.from_row({"seed": 1, "m": 1.0, "terminal": "oom"}, terminal="ok").terminal == "oom"
    for word in ("", " ", True, 0, "OK", "Ok ", 1):
        with pytest.raises(ContractError, match="terminal"): ExperimentResult.from_row({"seed": 1, "m": 1.0, "terminal": word})


def test_missing_metric_names_seed_and_neighbours():
    with pytest.raises(ContractError, match=r"metric 'perplexty'; got 'loss', 'perplexity' in the run of seed 3. Did you mean 'perplexity'\?"):
        ExperimentResult(terminal="ok", metrics={"seed": 3, "perplexity": 1.0, "loss": 2.0}).value("perplexty")
    with pytest.raises(ContractError, match="no metric"): ExperimentResult(terminal="ok", metrics={"seed": 3}).value("m")
    with pytest.raises(ContractError, match="must have the metric 'seed'"): judge_runs(dataclasses.replace(PPL, metric="seed"), runs(BASE), runs(BASE))
    broken = [*runs(BETTER[:4]), ExperimentResult(terminal="oom", metrics={"seed": 4})]
    with pytest.raises(ContractError, match="Did you mean"): judge_runs(dataclasses.replace(PPL, metric="mm"), broken, runs(BASE))  # a typing error is not a failed run
    assert judge_runs(PPL, broken, runs(BASE)).verdict == "failed"


cells = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(-10**6, 10**6))
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda x: x not in ("seed", "terminal", "metrics", "experiment_id", "hypothesis_id", "detail", "other"))


@given(st.dictionaries(names, cells, max_size=4), st.integers(-2**70, 2**70), st.sampled_from(["ok", "oom", "other"]), st.text(max_size=8), st.booleans())
@QUICK
def test_a_run_survives_json_and_pickle(metrics, seed, terminal, detail, named):
    run = ExperimentResult(terminal=terminal, metrics=metrics | ({"seed": seed} if named or terminal == "ok" else {}), hypothesis_id=4 if named else None, detail=detail)
    saved = run.to_dict()
    again = ExperimentResult.from_row(json.loads(canonical_json(saved)))
    assert again.to_dict() == saved == pickle.loads(pickle.dumps(run)).to_dict() and again.failure() == run.failure() and again.seed == run.seed
    with pytest.raises(TypeError): run.metrics["m"] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError): run.terminal = "ok"


def test_rows_are_taken_as_they_come():
    rows = [{"seed": i, "terminal": "ok", "m": x, "host": "a"} for i, x in enumerate(BETTER)]
    assert judge_runs(PPL, rows, iter(runs(BASE))) == judge_runs(PPL, runs(BETTER), runs(BASE))
    with pytest.raises(ContractError, match="candidate run 1"): judge_runs(PPL, [rows[0], {"seed": 1}], runs(BASE))
    for bad in ("runs.jsonl", rows[0], 7, runs(BASE)[0], [3]):
        with pytest.raises(ContractError, match="candidate must"): judge_runs(PPL, bad, runs(BASE))


def test_numbers_that_have_no_meaning_on_their_scale():
    for value in (0.0, -1.0):
        with pytest.raises(ContractError, match="positive on the log scale; got .* in the baseline run of seed 1"): one(PPL, [1.0, 1.0], [1.0, value])
    with pytest.raises(ContractError, match="must not be 0"): one(ACC, [1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ContractError, match="Change the unit"): one(ACC, [1e200, 1.0], [1.0, 1.0])
    tiny = one(PPL, [x * 1e-300 for x in BETTER], [x * 1e-300 for x in BASE])
    assert tiny.verdict.verdict == "improved" and tiny.verdict.candidate_geometric_mean > 0


def test_a_baseline_around_zero_has_no_bounded_relative_change():
    c = one(ACC, [0.9, -0.7, 1.4], [0.5, -0.8, 0.6])
    assert c.interval is None and "cannot be told from 0" in c.verdict.rationale and c.noise_kind == "inconclusive" and c.seeds_to_settle is None


def test_levels():
    c = one(PPL, BETTER, BASE, level=0.8)
    assert c.interval.level == 0.8 and c.verdict == dataclasses.replace(one(PPL, BETTER, BASE).verdict, rationale=c.verdict.rationale)
    e = Evaluator(level=0.8)
    assert e.compare(3, PPL, runs(BETTER), runs(BASE)).interval == c.interval and e.evaluate(3, PPL, runs(BETTER), runs(BASE)).hypothesis_id == 3
    wobble = [x * (1.02, 0.99, 1.01, 0.985, 1.03)[i] for i, x in enumerate(BASE)]
    assert one(PPL, wobble, BASE, level=0.5).seeds_to_settle is None or one(PPL, wobble, BASE, level=0.5).seeds_to_settle > 5
    assert one(PPL, BASE, BASE).interval.level == 0.95 and Evaluator().multiplicity == "holm"
    for bad in (dict(level=95), dict(multiplicity="none")):
        with pytest.raises(ContractError): Evaluator(**bad)


def test_a_comparison_cannot_contradict_its_evidence():
    saved = one(PPL, BETTER, BASE).to_dict()
    for change in ({"candidate": saved["evidence"]["candidate"][::-1]}, {"seeds": [0, 2, 1, 3, 4]}, {"seeds": [0, 1, 2, 3]}, {"family": 0}, {"spec": None},
                   {"failures": ["x"]}, {"candidate": BASE}, {"adjusted_p_value": 0.9}, {"hypothesis_id": 2}, {"baseline": [math.nan] * 5}):
        with pytest.raises(ContractError): RunsComparison.from_dict(saved | {"evidence": saved["evidence"] | change})
    for name, value in (("verdict", "regressed"), ("p_value", 0.5), ("adjusted_p_value", 0.001), ("improvement", 0.5)):
        with pytest.raises(ContractError, match="edited"): RunsComparison.from_dict(saved | {"verdict": saved["verdict"] | {name: value}})
    with pytest.raises(ContractError): RunsComparison.from_dict({})


# --- the queue --------------------------------------------------------------------------------------------------------------------------
class Killed(RuntimeError): pass


def make_queue(m=7): return [Hypothesis(id=10 * i, text=f"claim {i}", candidate_specs=[("candidate", i, s) for s in range(4)],
                                        baseline_specs=[("baseline", i, s) for s in range(4)]) for i in range(m)]


class World:
    "A runner and a literature that count what they are asked, and die when told to."
    def __init__(self, die_at=None): self.started, self.asked, self.calls, self.die_at = [], [], 0, die_at

    def step(self):
        self.calls += 1
        if self.calls - 1 == self.die_at: raise Killed

    def settles(self, h):
        self.step()
        self.asked.append(h.id)
        return "known" if h.id in (10, 60) else None

    def run(self, specs):
        self.step()
        self.started.append(specs[0][:2])
        return [ExperimentResult(terminal="crash" if spec == ("candidate", 3, 1) else "ok", hypothesis_id=10 * spec[1],
                                 metrics={"seed": spec[2], "m": 30 + spec[2] - (spec[0] == "candidate") * spec[1] * (1 + 0.01 * spec[2])}) for spec in specs]


def through(world, queue, **more): return run_queue(queue, settles=world.settles, run=world.run, spec=PPL, **more)


WHOLE = list(through(World(), make_queue()))


def test_the_queue_goes_through_in_order():
    assert [r.word for r in WHOLE] == ["noise", "settled", "improved", "failed", "improved", "improved", "settled"]
    assert [r.hypothesis_id for r in WHOLE] == [10 * i for i in range(7)] and WHOLE[1].verdict is None and WHOLE[1].settled == "known"
    assert WHOLE[2].verdict == judge_runs(PPL, World().run(make_queue()[2].candidate_specs), World().run(make_queue()[2].baseline_specs), hypothesis_id=20)


@pytest.mark.parametrize("keeps", [False, True], ids=["before it is kept", "after it is kept"])
@pytest.mark.parametrize("k", range(7))
def test_killed_while_recording(k, keeps):
    ledger, first, second = [], World(), World()
    def record(done):
        if len(ledger) == k and not keeps: raise Killed
        ledger.append(canonical_json(done.to_dict()))
        if len(ledger) == k + 1 and keeps: raise Killed
    with pytest.raises(Killed): list(through(first, make_queue(), record=record))
    kept = {r.hypothesis_id: r for r in map(QueueRecord.from_dict, map(json.loads, ledger))}
    assert list(kept) == [10 * i for i in range(k + keeps)]  # nothing lost, nothing begun before the one before was kept
    again = list(through(second, make_queue(), finished=kept, record=lambda done: ledger.append(canonical_json(done.to_dict()))))
    assert again == WHOLE and [json.loads(line) for line in ledger] == [json.loads(canonical_json(r.to_dict())) for r in WHOLE]
    assert not {10 * i for _, i in second.started} & set(kept) and not set(second.asked) & set(kept)


@pytest.mark.parametrize("k", range(17))  # 7 questions to the literature and 10 calls of the runner
def test_killed_while_asking_or_running(k):
    ledger, first, second = {}, World(die_at=k), World()
    record = lambda done: ledger.setdefault(done.hypothesis_id, done)
    with pytest.raises(Killed): list(through(first, make_queue(), record=record))
    before = set(ledger)
    assert list(through(second, make_queue(), finished=ledger, record=record)) == WHOLE and list(ledger.values()) == WHOLE
    assert not {10 * i for _, i in second.started} & before and not set(second.asked) & before
    assert len(first.started) + len(second.started) <= 11  # at most the arm that ran when the other one died is run again


@pytest.mark.parametrize("k", range(8))
def test_a_reader_who_stops_loses_nothing(k):
    ledger, first = {}, World()
    records = through(first, make_queue(), record=lambda done: ledger.setdefault(done.hypothesis_id, done))
    assert [next(records) for _ in range(k)] == WHOLE[:k] and list(ledger.values()) == WHOLE[:k]  # no hypothesis begins unasked
    records.close()
    assert list(through(World(), make_queue(), finished=ledger)) == WHOLE
    assert list(ledger.values()) == WHOLE[:k]  # the mapping that was passed in is not written to


def test_the_queue_refuses_before_anything_runs():
    world, queue = World(), make_queue(3)
    for bad, more, match in ((queue + queue[:1], {}, "unique"), ([*queue, "claim"], {}, "Hypothesis objects"), (queue, {"finished": {30: WHOLE[3]}}, "of this queue"),
                             (queue, {"finished": {0: WHOLE[2]}}, "same hypothesis"), (queue, {"finished": {0: "noise"}}, "same hypothesis")):
        with pytest.raises(ContractError, match=match): through(world, bad, **more)
    assert world.calls == 0
    with pytest.raises(ContractError, match="either settled or judged"): QueueRecord(hypothesis_id=1, text="x")
    with pytest.raises(ContractError, match="of this hypothesis"): QueueRecord(hypothesis_id=1, text="x", comparison=WHOLE[2].comparison)
    with pytest.raises(ContractError, match="candidate_specs"): Hypothesis(id=1, text="x", candidate_specs="spec")
    with pytest.raises(ContractError, match="id"): Hypothesis(id=-1, text="x")


def test_an_error_names_its_hypothesis():
    def cut(specs): return World().run(specs)[:3 + (specs[0][0] == "baseline")]
    queue = make_queue(1)
    with pytest.raises(PairingError, match=r"run_queue, hypothesis 0: pair_runs: .* candidate lacks 3"):
        list(run_queue(queue, settles=lambda h: None, run=cut, spec=PPL))
    mixed = lambda specs: [dataclasses.replace(r, hypothesis_id=9) for r in World().run(specs)]
    with pytest.raises(ContractError, match="hypothesis 9"): list(run_queue(queue, settles=lambda h: None, run=mixed, spec=PPL))
    chosen = list(run_queue(queue, settles=lambda h: None, run=World().run, spec=lambda h: ACC))
    assert chosen[0].verdict.direction == HIGHER


def test_the_finished_queue_is_a_family():
    judged = judge_many([r.comparison for r in WHOLE if r.comparison is not None])
    assert [c.family for c in judged] == [4, 4, 1, 4, 4] and [c.hypothesis_id for c in judged] == [0, 20, 30, 40, 50]


# --- long -------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_false_verdicts_and_coverage():
    "Null hypotheses: false verdicts at most alpha alone and at most alpha per family; the linear interval covers as promised."
    rng, queues, m = np.random.default_rng(1), 400, 10
    spec = dataclasses.replace(PPL, improvement_threshold=0.001)
    single = family = 0
    for _ in range(queues):
        alone = [one(spec, np.exp(3 - rng.normal(0, 0.04, 5)).tolist(), [math.exp(3)] * 5, hypothesis_id=i) for i in range(m)]
        single += sum(c.noise_kind is None for c in alone)
        family += any(c.noise_kind is None for c in judge_many(alone))
    assert single / (queues * m) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / (queues * m)) and single / (queues * m) > 0.03
    assert family / queues < 0.05 + 4 * math.sqrt(0.05 * 0.95 / queues)
    held = 0
    for _ in range(3000):
        b = rng.normal(1, 0.2, 5)
        c = 2 * rng.normal(1, 0.05, 5)
        found = one(ACC, c.tolist(), b.tolist())
        held += found.interval is None or found.interval.contains(1.0)
    assert abs(held / 3000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 3000)


def test_shuffled_seeds_of_a_large_study():
    rnd = random.Random(5)
    seeds = rnd.sample(range(10**6), 60)
    b = [30 + rnd.random() for _ in seeds]
    c = [x * (0.97 + 0.01 * rnd.random()) for x in b]
    order = rnd.sample(range(60), 60)
    assert compare_runs(PPL, runs(c, seeds), runs(b, seeds)).to_dict() == compare_runs(PPL, [runs(c, seeds)[i] for i in order], runs(b, seeds)).to_dict()
    assert compare_runs(PPL, runs(c, seeds), runs(b, seeds)).sign_flip.engine == "monte_carlo"
