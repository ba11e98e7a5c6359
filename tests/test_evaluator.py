"""The evaluator: the source's own list, its table at every boundary, invariances, other implementations.

The referees share no code with the pages: scipy, statsmodels, and the decision table typed again."""
import dataclasses
import inspect
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from invar_nb.experiments import evaluator
from invar_nb.experiments.evaluator import (Evaluator, RunsComparison, compare_runs, decide, judge_many,
                                            judge_runs)
from invar_nb.experiments.improvement import (HIGHER, LINEAR, LOG, LOWER, MetricSpec, fieller_interval,
                                              find_improvement, seeds_for_power)
from invar_nb.experiments.runs import ExperimentResult
from invar_nb.foundations.numbers import ContractError, PairingError, canonical_json

stats = pytest.importorskip("scipy.stats")
PPL = MetricSpec("m", direction=LOWER, scale=LOG)
ACC = MetricSpec("m")
QUICK = settings(max_examples=60, deadline=None)
BASE = [30.12, 32.41, 28.73, 33.90, 31.26]
BETTER = [29.02, 31.60, 27.70, 33.02, 30.05]


def runs(values, seeds=None):
    return [ExperimentResult(terminal="ok", metrics={"seed": s, "m": v})
            for s, v in zip(seeds or range(len(values)), values, strict=True)]


def one(spec, candidate, baseline, **more):
    return compare_runs(spec, baseline_runs=runs(baseline), candidate_runs=runs(candidate), **more)


def table(failed, improvement, p, m, alpha):
    "The source's five rows, typed again."
    if failed: return "failed"
    if abs(improvement) < m: return "noise"
    if p is None or p > alpha: return "noise"
    return "improved" if improvement > 0 else "regressed"


# --- the source's list ----------------------------------------------------------------------------
def test_the_spec_as_its_source_writes_it():
    spec = MetricSpec("perplexity", direction=LOWER, scale=LOG)
    assert (spec.metric, spec.direction, spec.scale) == ("perplexity", "lower_is_better", "log")
    assert (ACC.direction, ACC.scale, ACC.improvement_threshold, ACC.significance_threshold) == (
        "higher_is_better", "linear", 0.02, 0.05)
    for bad in (dict(metric=""), dict(metric="a\nb"), dict(metric=3), dict(direction="up"),
                dict(scale="ln"), dict(improvement_threshold=-0.1), dict(improvement_threshold=math.nan),
                dict(improvement_threshold=True), dict(significance_threshold=0),
                dict(significance_threshold=5)):
        with pytest.raises(ContractError): MetricSpec(**{"metric": "m"} | bad)


def test_evaluate_keeps_the_source_s_order_and_the_rest_takes_names():
    made = Evaluator().evaluate(7, PPL, runs(BETTER), runs(BASE))
    assert (made.verdict, made.hypothesis_id) == ("improved", 7)
    assert made == judge_runs(PPL, baseline_runs=runs(BASE), candidate_runs=runs(BETTER), hypothesis_id=7)
    for call in (judge_runs, compare_runs):
        kinds = [p.kind for p in inspect.signature(call).parameters.values()]
        assert kinds[0] == inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert set(kinds[1:]) == {inspect.Parameter.KEYWORD_ONLY}
        with pytest.raises(TypeError): call(PPL, runs(BASE), runs(BETTER))


def test_the_twelve_fields_come_first():
    twelve = ["hypothesis_id", "metric", "direction", "scale", "candidate_mean", "baseline_mean",
              "improvement", "p_value", "significance_threshold", "improvement_threshold", "verdict",
              "rationale"]
    v = judge_runs(PPL, baseline_runs=runs(BASE), candidate_runs=runs(BETTER))
    assert list(v.to_dict())[:12] == twelve
    assert v.candidate_mean == pytest.approx(np.mean(BETTER), rel=1e-15)
    assert v.candidate_geometric_mean == pytest.approx(stats.gmean(BETTER), rel=1e-14)


@pytest.mark.parametrize("scale", [LOG, LINEAR])
def test_improved_regressed_and_direction(scale):
    spec = MetricSpec("m", LOWER, scale)
    up = dataclasses.replace(spec, direction=HIGHER)
    words = [one(s, c, b).verdict.verdict for s in (spec, up)
             for c, b in ((BETTER, BASE), (BASE, BETTER))]
    assert words == ["improved", "regressed", "regressed", "improved"]
    assert one(up, BETTER, BASE).improvement.value == -one(spec, BETTER, BASE).improvement.value


def test_small_but_significant_is_equivalent():
    v = one(PPL, [x * (0.995 + 0.0002 * (-1) ** i) for i, x in enumerate(BASE)], BASE).verdict
    assert (v.verdict, v.claim, v.not_worse, v.beyond_margin) == ("noise", "equivalent", True, False)
    assert v.p_value < 0.001 and v.rationale.startswith("Equivalent within 2 %: m -0.496 %")


def test_one_seed_and_two():
    v = one(PPL, [20.0], [30.0]).verdict
    assert (v.verdict, v.claim, v.p_value, v.n_for_power) == ("noise", "inconclusive", None, None)
    assert "one seed has no spread" in v.rationale and not v.not_worse
    two = one(PPL, [29.0, 31.5], [30.0, 32.0]).verdict
    assert (two.verdict, two.claim) == ("noise", "inconclusive") and two.n_for_power > 2


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
@pytest.mark.parametrize("state", ["timeout", "oom", "crash", "sigterm"])
def test_a_failed_run_of_either_arm(arm, state):
    arms = {"candidate_runs": runs(BETTER), "baseline_runs": runs(BASE)}
    arms[f"{arm}_runs"][2] = ExperimentResult(terminal=state, metrics={"seed": 2}, detail="after 7\n min")
    v = judge_runs(PPL, **arms)
    assert (v.verdict, v.candidate_mean, v.baseline_mean, v.improvement, v.p_value, v.claim) == (
        "failed", 0.0, 0.0, 0.0, None, None)
    assert f"the {arm} run of seed 2 ended in {state!r} (after 7 min)" in v.rationale
    assert "\n" not in v.rationale and "p = 1)" in v.rationale
    arms[f"{arm}_runs"][2] = ExperimentResult(terminal=state, metrics={})
    assert f"the {arm} run of seed unknown ended" in judge_runs(PPL, **arms).rationale


def test_three_of_five_failed_is_said_with_fisher():
    sick = runs(BETTER[:2]) + [ExperimentResult(terminal="oom", metrics={"seed": s}) for s in (2, 3, 4)]
    v = judge_runs(PPL, baseline_runs=runs(BASE), candidate_runs=sick)
    assert "3 of 5 candidate runs and 0 of 5 baseline runs failed" in v.rationale
    assert f"p = {stats.fisher_exact([[3, 2], [0, 5]])[1]:.2g}" in v.rationale and "(and 2 more)" in v.rationale


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_no_number_is_failed_and_never_noise(bad):
    for spec in (PPL, ACC):
        assert one(spec, [*BETTER[:4], bad], BASE).verdict.verdict == "failed"
        assert one(spec, BASE, [*BETTER[:4], bad]).verdict.verdict == "failed"


def test_log_normalised():
    c = one(PPL, [28.0] * 6, [32.0] * 6)
    assert c.improvement.value == pytest.approx(math.log(32 / 28), abs=1e-15)
    assert f"{c.improvement.value:+.4f}" == "+0.1335" and "m -12.5 %" in c.verdict.rationale


def test_t_reference_values():
    for new, old, p in (([5, 6, 7, 8], [4, 6, 6, 7], 0.0576689), ([2.1, 2.3, 1.9, 2.5], [2.0] * 4, 0.219102)):
        assert one(ACC, new, old).p_value == pytest.approx(p, rel=1e-6)


def test_pairing_errors_and_misspelled_metrics():
    with pytest.raises(PairingError, match="baseline lacks 0; candidate lacks 4"):
        compare_runs(PPL, baseline_runs=runs([1.0, 2.0], [1, 4]), candidate_runs=runs([1.0, 2.0]))
    broken = [*runs(BETTER[:4]), ExperimentResult(terminal="oom", metrics={"seed": 4})]
    with pytest.raises(ContractError, match="Did you mean 'm'"):  # a misspelling is not a failed run
        judge_runs(dataclasses.replace(PPL, metric="mm"), baseline_runs=runs(BASE), candidate_runs=broken)
    c = compare_runs(PPL, baseline_runs=runs(BASE), candidate_runs=runs(BETTER[:4], [9, 1, 2, 3]), intersect=True)
    assert c.seeds == (1, 2, 3) and c.left_out == (0, 4, 9)
    assert c.verdict.rationale.endswith("left out: 0, 4, 9.")


# --- the table ------------------------------------------------------------------------------------
def test_the_table_exhaustively():
    around = lambda x: (0.0, math.nextafter(x, 0), x, math.nextafter(x, 1), 3 * x)
    seen = set()
    for failed, m, alpha in itertools.product((False, True), (0.02, 0.25, 1e-300), (0.05, 0.0625)):
        for g, sign, p in itertools.product(around(m), (1, -1), (None, *around(alpha), 1.0)):
            if g == 0: continue
            word = decide(sign * g, p, improvement_threshold=m, significance_threshold=alpha, failed=failed)
            assert word == table(failed, sign * g, p, m, alpha)
            seen.add(word)
    assert seen == {"failed", "noise", "improved", "regressed"}
    assert decide(0.0, 0.0, improvement_threshold=0.0) == "noise"
    with pytest.raises(ContractError, match="finite"): decide(math.nan, 0.01)


@pytest.mark.parametrize("sign, word", [(1, "improved"), (-1, "regressed")])
def test_equality_passes_both_thresholds_through_the_library(sign, word):
    "Six equal differences of exactly a quarter: p is that of the signs, 2^-5."
    def judged(m, alpha):
        spec = MetricSpec("m", HIGHER, LINEAR, m, alpha)
        return one(spec, [4.0 + sign] * 6, [4.0] * 6).verdict
    v = judged(0.25, 2**-5)
    assert (v.improvement, v.p_value, v.verdict) == (sign * 0.25, 2**-5, word)
    assert judged(math.nextafter(0.25, 1), 2**-5).verdict == "noise"
    assert judged(0.25, math.nextafter(2**-5, 0)).verdict == "noise"


def test_equality_with_a_spread_and_in_a_family():
    values, flat = [4.5, 5.5, 5.0, 4.75, 5.25], [4.0] * 5
    p = one(ACC, values, flat).p_value
    def at(alpha): return dataclasses.replace(ACC, improvement_threshold=0.25, significance_threshold=alpha)
    assert one(at(p), values, flat).verdict.verdict == "improved"
    assert one(at(math.nextafter(p, 0)), values, flat).verdict.verdict == "noise"
    def first(alpha):
        null = one(at(alpha), [4.0, 4.5, 3.5, 4.0, 4.0], flat, hypothesis_id=1)
        return judge_many([one(at(alpha), values, flat), null])[0]
    assert first(2 * p).adjusted_p_value == 2 * p and first(2 * p).verdict.verdict == "improved"
    assert first(math.nextafter(2 * p, 0)).verdict.verdict == "noise"


def test_an_interval_that_ends_on_the_threshold_is_not_equivalent():
    wobble = [x * f for x, f in zip(BASE, (1.001, 0.999, 1.0, 1.002, 0.998), strict=True)]
    c = one(PPL, BASE, wobble)
    edge = max(-c.improvement.interval.low, c.improvement.interval.high)
    for m, claim in ((0.02, "equivalent"), (edge, "inconclusive"), (math.nextafter(edge, 1), "equivalent"),
                     (0, "inconclusive")):
        assert one(dataclasses.replace(PPL, improvement_threshold=m), BASE, wobble).verdict.claim == claim


def test_equal_differences_have_the_p_value_of_their_signs_and_are_never_equivalent():
    for n, k in itertools.product(range(2, 9), (1.0, 1e-3, 1000 / 7, 1e9)):
        ratios = [x * k for x in (BASE * 2)[:n]]
        c = one(PPL, [x * 0.9 for x in ratios], ratios)
        assert c.p_value == 2.0 ** (1 - n) and c.improvement.degenerate == "all_equal"
        assert (c.verdict.verdict == "improved") == (n >= 6)
        assert c.verdict.n_for_power == (6 if n < 6 else None)
        for spec in (PPL, MetricSpec("m", LOWER)):
            same = one(spec, ratios, ratios).verdict
            assert (same.p_value, same.claim, same.improvement) == (1, "inconclusive", 0)
    near = (1.0001, 1.00013, 1.00007, 1.00002)  # logarithms near 0, rounded at the scale of 1
    assert find_improvement(PPL, baseline=near, candidate=tuple(x * 1.0001 for x in near)).degenerate


# --- invariances ----------------------------------------------------------------------------------
pairs = st.lists(st.tuples(st.floats(0.5, 100), st.floats(0.5, 100)), min_size=2, max_size=9)
specs = st.builds(MetricSpec, metric=st.just("m"), direction=st.sampled_from([LOWER, HIGHER]),
                  scale=st.sampled_from([LINEAR, LOG]), improvement_threshold=st.sampled_from([0.0, 0.02, 0.3]),
                  significance_threshold=st.sampled_from([0.05, 0.3]))


@given(pairs, specs, st.randoms(use_true_random=False))
@QUICK
def test_order_of_rows_moves_no_bit(values, spec, rnd):
    c, b = map(list, zip(*values, strict=True))
    seeds = rnd.sample(range(-50, 50), len(c))
    arms = [runs(c, seeds), runs(b, seeds)]
    straight = compare_runs(spec, candidate_runs=arms[0], baseline_runs=arms[1])
    for arm in arms: rnd.shuffle(arm)
    mixed = compare_runs(spec, candidate_runs=arms[0], baseline_runs=arms[1])
    assert canonical_json(mixed.to_dict()) == canonical_json(straight.to_dict())


@given(pairs, specs)
@QUICK
def test_the_word_is_what_table_and_scipy_say(values, spec):
    c, b = (np.array(x) for x in zip(*values, strict=True))
    found = one(spec, c.tolist(), b.tolist())
    x, y = (np.log(c), np.log(b)) if spec.scale == LOG else (c, b)
    g = (x - y).mean() / (1 if spec.scale == LOG else abs(b.mean())) * (1 if spec.direction == HIGHER else -1)
    i = found.improvement
    assert i.value == pytest.approx(g, rel=1e-9, abs=1e-12)
    assert found.verdict.verdict == (table(False, i.value, i.p_value, spec.improvement_threshold,
                                           spec.significance_threshold) if i.value else "noise")
    if i.degenerate or np.ptp(x - y) <= 1e-9 * np.abs(x).max(): return
    assert i.p_value == pytest.approx(stats.ttest_rel(x, y).pvalue, rel=1e-5, abs=1e-12)
    if i.interval is not None and abs(i.p_value - spec.significance_threshold) > 1e-6:
        assert (i.interval.low <= 0 <= i.interval.high) == (i.p_value > spec.significance_threshold)
    v = found.verdict
    assert v.claim == (v.verdict if v.verdict != "noise" else v.claim)
    assert not (v.beyond_margin and v.verdict == "noise") and json.dumps(found.to_dict(), allow_nan=False)


@given(pairs, st.floats(-20, 20))
@QUICK
def test_units_do_not_matter_on_the_log_scale(values, exponent):
    c, b = zip(*values, strict=True)
    k = math.exp(exponent)
    here, there = (find_improvement(PPL, candidate=tuple(u * x for x in c), baseline=tuple(u * x for x in b))
                   for u in (1.0, k))
    assert there.value == pytest.approx(here.value, abs=1e-12)
    spread = np.ptp(np.log(c) - np.log(b))
    assume(not 1e-13 < spread < 1e-11)  # where "equal" is a matter of one rounding
    assert there.degenerate == here.degenerate
    if here.degenerate is None: assert there.p_value == pytest.approx(here.p_value, rel=1e-3, abs=1e-9)


def test_a_tie_with_the_threshold_has_no_unit():
    for ten, more in ((10, 10.2), (100, 102), (1, 1.02), (0.1, 0.102), (1e6, 1.02e6)):
        assert one(ACC, [more] * 6, [ten] * 6).verdict.verdict == "improved"
        assert one(ACC, [math.nextafter(more, 0)] * 6, [ten] * 6).verdict.verdict == "noise"


# --- the interval of a relative change --------------------------------------------------------------
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.5, 3)), min_size=2, max_size=8), st.sampled_from([1, -1]))
@QUICK
def test_fieller_solves_its_own_test(values, sign):
    c, b = (np.array(x) for x in zip(*values, strict=True))
    b = sign * b
    assume(np.std(c / b) > 1e-3 and np.std(b) > 1e-3)
    ends = fieller_interval(b, c)
    if ends is None:
        assert stats.ttest_1samp(b, 0).pvalue > 0.0499
        return
    for end in ends:  # c - (1 + g) b for b > 0, c - (1 - g) b for b < 0
        assert stats.ttest_1samp(c - (1 + sign * end) * b, 0).pvalue == pytest.approx(0.05, rel=1e-4)
    found = find_improvement(ACC, baseline=tuple(b), candidate=tuple(c))
    assert ends[0] <= found.value <= ends[1]


def test_numbers_that_have_no_meaning_on_their_scale():
    for value in (0.0, -1.0):
        with pytest.raises(ContractError, match="positive on the log scale; got .* baseline run of seed 1"):
            one(PPL, [1.0, 1.0], [1.0, value])
    with pytest.raises(ContractError, match="must not be 0"): one(ACC, [1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ContractError, match="Change the unit"): one(ACC, [1e200, 1.0], [1.0, 1.0])
    c = one(ACC, [0.9, -0.7, 1.4], [0.5, -0.8, 0.6])
    assert c.improvement.interval is None and c.verdict.claim == "inconclusive" and "no interval" in c.verdict.rationale
    tiny = one(PPL, [x * 1e-300 for x in BETTER], [x * 1e-300 for x in BASE])
    assert tiny.verdict.verdict == "improved" and tiny.verdict.candidate_geometric_mean > 0


# --- how many seeds ---------------------------------------------------------------------------------
@pytest.mark.parametrize("g, sd, m", [(0.03, 0.04, 0.02), (0.06, 0.04, 0.02), (0.0, 0.02, 0.02), (0.012, 0.01, 0.02), (0.03, 0.03, 0.0)])
def test_that_many_seeds_have_the_power(g, sd, m):
    "Simulated with scipy's quantiles; and one seed in ten fewer would not do."
    z = np.array([-1.0, 1.0, -1.0, 1.0]) / np.std([-1, 1, -1, 1], ddof=1)
    c = np.exp(g + sd * z)
    found = find_improvement(MetricSpec("m", HIGHER, LOG), baseline=(1.0,) * 4, candidate=tuple(c))
    n = seeds_for_power(found, threshold=m, level=0.95)
    rng = np.random.default_rng(1)

    def power(n):
        draws = g + sd * rng.standard_normal((20_000, n))
        half = stats.t.ppf(0.975, n - 1) * draws.std(axis=1, ddof=1) / math.sqrt(n)
        mean = draws.mean(axis=1)
        return np.mean(abs(mean) > half) if g >= m else np.mean(abs(mean) + half < m)
    assert 0.74 < power(n) < 0.9 and power(max(2, int(0.8 * n))) < 0.8


def test_the_number_of_seeds_is_more_than_there_are_and_falls_with_the_change():
    wobble = [x * f for x, f in zip(BASE, (1.02, 0.99, 1.01, 0.985, 1.03), strict=True)]
    near, far = (one(PPL, [x * k for x in wobble], BASE).verdict for k in (0.99, 0.972))
    assert near.claim == far.claim == "inconclusive"
    assert 5 < far.n_for_power < 60 and 5 < near.n_for_power < 60
    assert seeds_for_power(one(PPL, BASE, BASE).improvement, threshold=0.02, level=0.95) is None


# --- a family ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("ours, theirs", [("holm", "holm"), ("benjamini_hochberg", "fdr_bh")])
def test_families_against_statsmodels(ours, theirs):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(11)
    for m in (1, 2, 7, 20):
        alone = [one(PPL, np.exp(3 - rng.normal(0.03, 0.03, 5)).tolist(), [math.exp(3)] * 5, hypothesis_id=i)
                 for i in range(m)]
        failed = compare_runs(PPL, candidate_runs=[ExperimentResult(terminal="oom", metrics={})],
                              baseline_runs=runs(BASE), hypothesis_id=m)
        single = one(PPL, [28.0], [30.0], hypothesis_id=m + 1)
        made = judge_many([failed, *alone, single], multiplicity=ours)
        assert made[0] == failed and made[-1] == single
        expected = multitest.multipletests([c.p_value for c in alone], method=theirs)[1]
        for before, after, p in zip(alone, made[1:-1], expected, strict=True):
            assert after.p_value == before.p_value and after.adjusted_p_value == pytest.approx(p, rel=1e-12)
            assert after.verdict.verdict == table(False, after.improvement.value, after.adjusted_p_value, 0.02, 0.05)
            assert after.improvement.interval.level == pytest.approx(1 - 0.05 / m, abs=1e-12)
            assert after.verdict.adjusted_p_value == after.adjusted_p_value
            assert f"by {ours} over {m} tests" in after.verdict.rationale
        assert judge_many(made, multiplicity=ours) == made  # from the unadjusted p-values, each time


def test_a_family_of_metrics_and_what_it_refuses():
    def row(s, f): return {"seed": s, "terminal": "ok", "loss": 2.0 + f, "accuracy": 0.7 - f / 10, "speed": 100.0 + s}
    arms = {"candidate_runs": [row(s, 0.1 + 0.01 * s) for s in range(5)],
            "baseline_runs": [row(s, 0.0) for s in range(5)]}
    specs = [MetricSpec("loss", LOWER), MetricSpec("accuracy"), MetricSpec("speed")]
    made = judge_many([compare_runs(m, **arms) for m in specs])
    assert [x.verdict.verdict for x in made] == ["regressed", "noise", "noise"]
    assert made[1].adjusted_p_value > made[1].p_value and judge_many([]) == ()
    with pytest.raises(ContractError, match="once"): judge_many([made[0], made[0]])


# --- what a report recomputes -------------------------------------------------------------------------
def test_everything_shown_follows_from_the_two_runs_files():
    arms = {"baseline_runs": runs(BASE), "candidate_runs": runs(BETTER)}
    saved = compare_runs(PPL, **arms).to_dict()
    kept = {name: [json.loads(json.dumps(r.to_dict())) for r in arm] for name, arm in arms.items()}
    assert compare_runs(PPL, **kept).to_dict() == saved == json.loads(json.dumps(saved))
    changed = {**kept, "candidate_runs": [{**kept["candidate_runs"][0], "metrics": {"seed": 0, "m": 29.03}},
                                          *kept["candidate_runs"][1:]]}
    other = compare_runs(PPL, **changed).to_dict()
    assert other["verdict"]["rationale"] != saved["verdict"]["rationale"]
    assert other["improvement"]["interval"] != saved["improvement"]["interval"]
    assert {f.name for f in dataclasses.fields(RunsComparison)} <= set(saved)


@pytest.mark.parametrize("newer, exact", [(BETTER, True), ([29.4, 31.7, 28.0, 33.1, 30.6], False)])
def test_the_exact_p_value_stands_beside_an_outlying_difference(newer, exact):
    c = one(PPL, newer, BASE)
    d = np.log(BASE) - np.log(newer)
    far = abs(d - np.median(d))
    assert (far.max() > 3 * np.median(far)) == exact == c.improvement.outlying
    signs = np.array(list(itertools.product((1, -1), repeat=5)))
    by_hand = np.mean(abs(signs @ d) >= abs(d.sum()) - 1e-12)
    assert c.improvement.sign_flip_p_value == by_hand
    assert (f"exact sign-flip p = {by_hand:.3g}" in c.verdict.rationale) == exact


@pytest.mark.slow
def test_error_rates_of_the_words_through_the_library():
    rng, n, trials = np.random.default_rng(8), 5, 1500
    flat = [30.0] * n

    def rate(true, word, sd=0.02):
        hits = 0
        for _ in range(trials):
            v = one(PPL, (30 * np.exp(-(true + sd * rng.standard_normal(n)))).tolist(), flat).verdict
            hits += v.verdict == word or v.claim == word
        return hits / trials
    assert rate(0.0, "regressed") + rate(0.0, "improved") <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    assert rate(-0.02, "equivalent") <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / trials)
    assert 0.2 < rate(-0.019, "regressed") < 0.4 and rate(-0.04, "regressed") > 0.85
    assert evaluator.__doc__
