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
from invar_nb.foundations.numbers import ContractError, PairingError, canonical_json

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
        assert same.p_value == 1 and same.noise_kind == "inconclusive" and same.improvement == 0 and same.seeds_to_settle is None
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


@given(st.dictionaries(names, cells, max_size=4), st.integers(1 - 2**64, 2**64 - 1), st.sampled_from(["ok", "oom", "other"]), st.text(max_size=8), st.booleans())
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


# --- what an adversarial reader found -----------------------------------------------------------------------------------------------------
def seeded(value, seed=1, **more): return ExperimentResult(terminal="ok", metrics={"seed": seed, "m": value}, **more)


@pytest.mark.parametrize("level", [0.95, 0.8, 0.5, 0.01, 0.999])
def test_the_level_that_is_shown_decides_nothing(level):
    rng = np.random.default_rng(4)
    for scale in ("linear", "log"):
        for spread in (0.001, 0.01, 0.03):
            c = (1 + rng.normal(0, spread, 4)).tolist()
            spec = dataclasses.replace(ACC, scale=scale)
            base, shown = one(spec, c, [1.0] * 4), one(spec, c, [1.0] * 4, level=level)
            assert (shown.verdict.verdict, shown.noise_kind, shown.seeds_to_settle) == (base.verdict.verdict, base.noise_kind, base.seeds_to_settle)
            assert shown.deciding_interval == base.interval and shown.interval.level == level
    c = one(ACC, [1.0, 1.05, 0.97], [1.0] * 3, level=0.01)
    assert c.noise_kind == "inconclusive" and "1% interval" in c.verdict.rationale and "judged by the 95% interval" in c.verdict.rationale
    wide = one(ACC, [1.001, 0.999, 1.0, 1.0015], [1.0] * 4, level=1 - 1e-9)
    assert wide.noise_kind == "equivalent" and wide.interval.high > 0.02 > wide.deciding_interval.high
    assert "judged by the 95% interval [" in wide.verdict.rationale and "99.9999999% interval" in wide.verdict.rationale


def test_false_equivalence_at_the_threshold_whatever_is_shown():
    rng = np.random.default_rng(5)
    said = sum(one(ACC, (0.98 + rng.normal(0, 0.005, 5)).tolist(), [1.0] * 5, level=0.5).noise_kind == "equivalent" for _ in range(600))
    assert said / 600 < 0.025 + 4 * math.sqrt(0.025 * 0.975 / 600)


def test_a_family_judges_equivalence_at_its_own_level_whatever_is_shown():
    wobble = [1.001, 0.99, 1.012, 1.002]
    alone = [one(ACC, wobble, [1.0] * 4, hypothesis_id=i, level=0.5) for i in range(5)]
    for c in judge_many(alone):
        assert c.deciding_interval.level == pytest.approx(0.99, abs=1e-12) and c.interval.level == pytest.approx(0.9, abs=1e-12) and c.noise_kind == "inconclusive"


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_equal_differences_are_never_equivalent(scale):
    spec = dataclasses.replace(ACC, scale=scale)
    for n in (2, 6, 60):
        for value in (0.8, 0.804):
            c = one(spec, [value] * n, [0.8] * n)
            assert (c.noise_kind, c.seeds_to_settle) == ("inconclusive", None) and "no interval (no spread was seen)" in c.verdict.rationale
            assert f"{n} seeds bound only their share, at most about {100 * (1 - 0.05 ** (1 / n)):.2g}%" in c.verdict.rationale
    rng, lost = np.random.default_rng(6), 0.04  # true improvement -0.02
    said = sum(one(spec, [0.4 if u < lost else 0.8 for u in rng.random(6)], [0.8] * 6).noise_kind == "equivalent" for _ in range(300))
    assert said == 0


def test_a_tie_with_the_threshold_has_no_unit():
    for new, old, direction, word in ((10.2, 10.0, HIGHER, "improved"), (102.0, 100.0, HIGHER, "improved"), (1.02, 1.0, HIGHER, "improved"), (0.98, 1.0, LOWER, "improved"),
                                      (9.8, 10.0, LOWER, "improved"), (0.051, 0.05, HIGHER, "improved"), (1.02e-5, 1e-5, HIGHER, "improved"), (9.8, 10.0, HIGHER, "regressed")):
        c = one(dataclasses.replace(ACC, direction=direction), [new] * 6, [old] * 6)
        assert (abs(c.improvement), c.verdict.verdict) == (0.02, word), (new, old)
    up, b = [10.1, 10.2, 10.3, 10.25, 10.15, 10.2], [10.0] * 6
    found = {one(ACC, [float(f"{x}e{k}") for x in up], [float(f"{x}e{k}") for x in b]).improvement for k in range(-9, 9)}
    assert found == {0.02}


@given(st.lists(st.tuples(st.decimals(-999, 999, places=3), st.decimals("0.001", 999, places=3)), min_size=1, max_size=6))
@QUICK
def test_linear_improvement_is_that_of_the_decimals(pairs):
    from fractions import Fraction
    c, b = zip(*pairs, strict=True)
    mean = lambda values: sum(map(Fraction, values)) / len(values)
    assert one(ACC, list(map(float, c)), list(map(float, b))).improvement == float((mean(c) - mean(b)) / mean(b))


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items(): yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value): yield from leaves(item, (*path, i))
    else: yield path, value


SAVED = [judge_many([one(PPL, BETTER, BASE), one(PPL, BASE[::-1], BASE, hypothesis_id=1)])[0], one(ACC, BETTER, BASE, level=0.8), one(ACC, [0.8] * 6, [0.8] * 6), one(PPL, [28.0], [30.0]),
         compare_runs(PPL, runs(BETTER[:4], [9, 1, 2, 3]), runs(BASE), intersect=True), one(ACC, [0.9, -0.7, 1.4], [0.5, -0.8, 0.6]),
         compare_runs(PPL, [ExperimentResult(terminal="oom", metrics={})], runs(BASE))]


@pytest.mark.parametrize("c", SAVED, ids=["family", "level", "equal", "one seed", "intersect", "no interval", "failed"])
def test_every_derived_leaf_is_recomputed(c):
    saved = json.loads(canonical_json(c.to_dict()))
    assert RunsComparison.from_dict(saved) == c and canonical_json(RunsComparison.from_dict(saved).to_dict()) == canonical_json(c.to_dict())
    for path, value in leaves({k: v for k, v in saved.items() if k != "evidence"}):
        changed = (not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 1.001 + (value == 0) if isinstance(value, float)
                   else 0.5 if value is None else value.replace("seed", "sead") if path[-1] == "rationale" else value + "x")
        for other in (changed, None if value is not None else "x", {"a": 1}, [value]):
            edited = json.loads(json.dumps(saved))
            at = edited
            for step in path[:-1]: at = at[step]
            at[path[-1]] = other
            with pytest.raises(ContractError, match="RunsComparison.from_dict: .*edited"): RunsComparison.from_dict(edited)
            del at[path[-1]]
            with pytest.raises(ContractError): RunsComparison.from_dict(edited)
    with pytest.raises(ContractError, match="more must follow"): RunsComparison.from_dict(saved | {"more": 1})


def test_a_number_edited_in_a_saved_sentence_is_seen_and_a_last_digit_is_rounding():
    saved = one(PPL, BETTER, BASE).to_dict()
    def told(a, b): return RunsComparison.from_dict(saved | {"verdict": saved["verdict"] | {"rationale": saved["verdict"]["rationale"].replace(a, b)}})
    for a, b in (("31.2329", "31.2349"), ("5 seeds", "6 seeds"), ("better", "worse"), ("+0.03296", "-0.03296")):
        assert a in saved["verdict"]["rationale"]
        with pytest.raises(ContractError, match="rationale"): told(a, b)
    told("31.2329", "31.2330")


@pytest.mark.parametrize("value", [None, True, 1, -1, 1.5, "x", "", [], {}, [1], {"a": 1}, math.nan, math.inf, 10**400, 1e308, 0, "1", [None], ["1", "2"]], ids=lambda v: repr(v)[:12])
def test_no_edit_raises_anything_but_a_contract_error(value):
    saved = json.loads(canonical_json(SAVED[0].to_dict()))
    paths = [path for path, _ in leaves(saved)] + [("evidence",), ("evidence", "spec"), ("evidence", "seeds"), ("evidence", "failures"), ("interval",), ("verdict",)]
    for path in paths:
        edited = json.loads(json.dumps(saved))
        at = edited
        for step in path[:-1]: at = at[step]
        if at[path[-1]] == value and isinstance(value, bool) == isinstance(at[path[-1]], bool): continue
        at[path[-1]] = value
        try: RunsComparison.from_dict(edited)
        except ContractError as error: assert "\n" not in str(error)
        else: assert path[0] == "evidence" and path[1] in ("seeds", "spec"), path
    for whole in (value, {"evidence": value}):
        with pytest.raises(ContractError): RunsComparison.from_dict(whole)
        with pytest.raises(ContractError): QueueRecord.from_dict(whole)


def test_texts_are_no_lists_and_words_are_no_flags():
    row = {"seed": "1", "terminal": "ok", "ppl": "3.5", "p": "7"}
    for numbers in ("ppl", None, 5, b"ppl", {"ppl": 1}, [5], np.array(3)):
        with pytest.raises(ContractError, match="numbers must be a list of names"): ExperimentResult.from_row(row, numbers=numbers)
    assert ExperimentResult.from_row(row, numbers={"ppl"}).metrics == {"ppl": 3.5, "seed": 1}
    for flag in ("no", 1, None, 0.0):
        for act in (compare_runs, judge_runs):
            with pytest.raises(ContractError, match="intersect must be True or False"): act(PPL, runs(BETTER), runs(BASE), intersect=flag)
        with pytest.raises(ContractError, match="intersect"): pair_runs(runs(BETTER), runs(BASE), intersect=flag)
        with pytest.raises(ContractError, match="intersect"): Evaluator(intersect=flag)


@pytest.mark.parametrize("wrong", [None, 5, "ab", np.array(3), {}, 1.5], ids=repr)
def test_what_is_no_list_is_refused(wrong):
    go = dict(settles=lambda h: None, run=World().run, spec=PPL)
    for act in (lambda: judge_many(wrong), lambda: judge_runs(PPL, wrong, runs(BASE)), lambda: run_queue(wrong, **go)):
        with pytest.raises(ContractError, match="must be a list") as error: act()
        assert "\n" not in str(error.value)
    for act in (lambda: judge_many(SAVED[0]), lambda: run_queue(make_queue(1)[0], **go), lambda: judge_runs(PPL, runs(BASE)[0], runs(BASE))):
        with pytest.raises(ContractError, match="must be a list"): act()
    def broken():
        yield seeded(1.0)
        raise TypeError("mine")
    with pytest.raises(TypeError, match="mine"): judge_runs(PPL, broken(), runs(BASE))


def test_runs_may_stand_in_a_set():
    assert judge_runs(PPL, set(runs(BETTER)), set(runs(BASE))) == judge_runs(PPL, runs(BETTER), runs(BASE))
    assert hash(seeded(1.0, other={"a": [1]})) == hash(seeded(1.0, other={"a": [2]})) and len({seeded(1.0), seeded(1.0), seeded(2.0)}) == 2


def test_what_the_queue_is_given():
    go = dict(settles=lambda h: None, run=World().run, spec=PPL)
    for name in ("settles", "run", "spec", "evaluator", "finished"):
        for wrong in (None, [], "x", 5):
            with pytest.raises(ContractError, match=f"run_queue: {name} must be") as error: run_queue(make_queue(1), **go | {name: wrong})
            assert "\n" not in str(error.value)
    with pytest.raises(ContractError, match="record must be"): run_queue(make_queue(1), **go, record=5)
    for wrong in (math.nan, "", "  ", 0, 1, np.array([1, 2]), {}, {"a": 1}, []):
        with pytest.raises(ContractError, match="hypothesis 0: settles must give a text, True, False or None"): list(run_queue(make_queue(1), **go | {"settles": lambda h, wrong=wrong: wrong}))
    assert [list(run_queue(make_queue(1), **go | {"settles": lambda h, word=word: word}))[0].settled for word in ("known", True, False, None)] == ["known", "settled by what is known", None, None]


def test_numbers_too_long_for_anybody():
    for act in (lambda: seeded(1.0, seed=10**400), lambda: seeded(1.0, seed=-2**64), lambda: seeded(1.0, hypothesis_id=10**400), lambda: Hypothesis(id=10**400, text="x"),
                lambda: one(PPL, BETTER, BASE, hypothesis_id=10**5000), lambda: MetricSpec(metric="m", direction=LOWER, improvement_threshold=10**400)):
        with pytest.raises(ContractError) as error: act()
        assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert seeded(1.0, seed=2**64 - 1).ok
    for text in ("1e-400", "-0.1e-330"):
        with pytest.raises(ContractError, match="become 0"): ExperimentResult.from_row({"seed": 1, "terminal": "ok", "m": text}, numbers=["m"])
    assert ExperimentResult.from_row({"seed": 1, "terminal": "ok", "m": "0e-400"}, numbers=["m"]).metrics["m"] == 0


def test_text_that_no_file_holds():
    for act in (lambda: seeded(1.0, detail="\ud800"), lambda: seeded(1.0, experiment_id="\ud800"), lambda: ExperimentResult(terminal="\ud800", metrics={}), lambda: Hypothesis(id=0, text="\ud800"),
                lambda: ExperimentResult(terminal="ok", metrics={"seed": 1, "\ud800": 1.0}), lambda: QueueRecord(hypothesis_id=0, text="a", settled="\ud800")):
        with pytest.raises(ContractError, match="text that UTF-8 can write"): act()
    for name in ("a\nb", "a\r\nb", "a\u2028b", "\x00", "\ud800", " "):
        with pytest.raises(ContractError, match="^MetricSpec: metric must be"): MetricSpec(metric=name, direction=LOWER)


def test_true_messages_at_the_ends_of_float64():
    narrow = lambda alpha: dataclasses.replace(ACC, significance_threshold=alpha)
    with pytest.raises(ContractError, match="significance_threshold over the tests of the family must be at least 1e-12; got 1e-13 over 1"): one(narrow(1e-13), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    with pytest.raises(ContractError, match="got 0.05 over 1000000000000"):
        RunsComparison(spec=ACC, hypothesis_id=0, seeds=(0, 1), candidate=(1.0, 2.0), baseline=(1.0, 3.0), family=10**12, adjusted_p_value=1.0, multiplicity="holm")
    assert one(dataclasses.replace(PPL, significance_threshold=1e-12), BETTER, BASE).interval.level == pytest.approx(1 - 1e-12, abs=1e-16)
    with pytest.raises(ContractError, match="relative change of m must be at most 1e.70; got a mean of 2e.100 on a baseline of 1.03333e-300. Judge it with scale=.log."):
        one(ACC, [1e100, 2e100, 3e100], [1e-300, 1.1e-300, 1e-300])
    with pytest.raises(ContractError, match="candidate values must be at most"): one(ACC, [1e100, -1e100, 1.0], [1e-3, 1.1e-3, 1e-3])
    with pytest.raises(ContractError, match="at least 2.23e-308 on the log scale"): one(PPL, [5e-324, 1e-323, 2e-323], [1e-323, 5e-324, 5e-324])
    with pytest.raises(ContractError, match="some value of m must be at least 2e-292"): one(ACC, [5e-324, 1e-323, 2e-323], [1e-323, 5e-324, 5e-324])
    assert one(ACC, [0.0, 5e-324], [1.0, 2.0]).improvement == -1.0


def test_many_seeds():
    import time
    rng = np.random.default_rng(0)
    arms = [runs(rng.normal(1, 1, 30_000).tolist()) for _ in range(2)]
    start = time.perf_counter()
    c = compare_runs(ACC, *arms)
    assert c.n == 30_000 and time.perf_counter() - start < 20
