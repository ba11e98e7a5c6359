"""Runs, their judgement and their runner from outside: what no page shows. The referees are scipy, statsmodels, the decision table typed again, and the plainest loops."""

import dataclasses
import errno
import itertools
import json
import math
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import commands
import numpy as np
import pytest
from documents import render_html, render_markdown, summary, summary_markdown
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from studies import recipes

from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import compare, evaluate, study
from invar_nb.foundations.refuse import ContractError, PairingError, UsageError
from invar_nb.foundations.store import canonical_json
from invar_nb.report.plan import plan_comparison
from invar_nb.report.report import render
from invar_nb.runs import run_all as runner
from invar_nb.runs.evaluator import (
    HIGHER,
    LINEAR,
    LOG,
    LOWER,
    MetricSpec,
    RunsArm,
    compare_runs,
    fieller_interval,
    judge_candidates,
    judge_many,
    judge_runs,
    runs_difference,
)
from invar_nb.runs.run_all import final_metrics, guarded_run, run_all
from invar_nb.runs.runs import (
    TERMINALS,
    ExperimentResult,
    ExperimentSpec,
    as_runs,
    find_failure,
    pair_runs,
    read_row,
    read_runs,
    write_runs,
)
from invar_nb.statistics.multiplicity import benjamini_hochberg, holm
from invar_nb.statistics.planning import Goal

stats = pytest.importorskip("scipy.stats")
PPL, ACC = MetricSpec("m", direction=LOWER, scale=LOG), MetricSpec("m", HIGHER)
QUICK = settings(max_examples=60, deadline=None)
BASE = [30.12, 32.41, 28.73, 33.90, 31.26]
BETTER = [29.02, 31.60, 27.70, 33.02, 30.05]


def runs(values, seeds=None):
    return [
        ExperimentResult(terminal="ok", metrics={"seed": s, "m": v})
        for s, v in zip(seeds or range(len(values)), values, strict=True)
    ]


def pair(b, c, **more):
    return pair_runs("m", baseline_runs=b, candidate_runs=c, **more)


def one(spec, candidate, baseline, **more):
    return compare_runs(
        spec, baseline_runs=runs(baseline), candidate_runs=runs(candidate), **more
    )


# --- what is refused --------------------------------------------------------------------------------
GOOD = dict(terminal="ok", metrics={"seed": 1, "m": 2.0})
NO_RECORD = [
    {"metrics": [1]},
    {"metrics": {"": 1}},
    {"metrics": {"m": True, "seed": 1}},
    {"metrics": {"m": "x", "seed": 1}},
    {"metrics": {"m": 1.0}},
    {"other": {"m": 1}},
    {"metrics": {"seed": 1, "detail": 2}},
    {"detail": None},
    {"hypothesis_id": -1},
    {"terminal": " "},
    {"terminal": "OK"},
    {"terminal": True},
]
NO_SEED = [
    2.7,
    True,
    "3x",
    "2.7",
    "",
    math.nan,
    math.inf,
    None,
    [3],
    2.0**60,
    "1_0",
    "³",
    2**64,
]
NO_ROW = [
    {"seed": 1, "m": 1.0},
    {"seed": 1, "terminal": None},
    {"seed": 1, "terminal": "ok", "m": 1, "metrics": {"m": 1}},
    {"seed": 1, "terminal": "ok", "metrics": [1]},
    7,
]
NO_SPEC = [
    dict(name=""),
    dict(name="a\nb"),
    dict(name=3),
    dict(direction="up"),
    dict(scale="ln"),
    dict(improvement_threshold=-0.1),
    dict(improvement_threshold=math.nan),
    dict(improvement_threshold=True),
    dict(significance_threshold=0),
    dict(significance_threshold=5),
]
NO_EXPERIMENT = [
    dict(command="python x.py"),
    dict(command=()),
    dict(metric_keys=()),
    dict(metric_keys=("seed",)),
    dict(seed=-1),
    dict(seed=1.5),
    dict(config={"a": math.nan}),
    dict(wall_timeout_s=0),
    dict(wall_timeout_s=math.inf),
    dict(memory_cap_mb="1"),
    dict(experiment_id=""),
]
REFUSED = [
    *((lambda bad=bad: ExperimentResult(**GOOD | bad), "contract") for bad in NO_RECORD),
    *(
        (lambda seed=seed: read_row({"seed": seed, "terminal": "ok"}), "contract")
        for seed in NO_SEED
    ),
    *((lambda row=row: read_row(row), "contract") for row in NO_ROW),
    *(
        (lambda bad=bad: MetricSpec(**{"name": "m", "direction": HIGHER} | bad), "contract")
        for bad in NO_SPEC
    ),
    *((lambda bad=bad: spec(**bad), "contract") for bad in NO_EXPERIMENT),
    *(
        (lambda arm=arm: pair(runs([1.0]), arm), "contract")
        for arm in ("runs.jsonl", {"seed": 1}, 7, [3], None)
    ),
    *(
        (
            lambda text=text: find_failure(
                read_row({"seed": 3, "terminal": "ok", "m": text}), "m"
            ),
            "contract",
        )
        for text in ("0,75", "28.1 s", "0x1p3", "1_0", "--1")
    ),
    (
        lambda: find_failure(read_row({"seed": 3, "terminal": "ok", "m": 1}), "seed"),
        "contract",
    ),
    (lambda: pair([], runs([1.0])), "pairing"),
    (lambda: pair(runs([1.0]), runs([1.0], [1]), intersect=True), "pairing"),
    (lambda: one(PPL, [1.0, 1.0], [1.0, -1.0]), "contract"),
    (lambda: one(PPL, [1.0, 1.0], [1.0, 0.0]), "contract"),
    (lambda: one(ACC, [1.0, 1.0], [1.0, -1.0]), "contract"),
    (lambda: one(ACC, [1e200, 1.0], [1.0, 1.0]), "contract"),
    (lambda: one("m", [1.0], [1.0]), "contract"),
    (lambda: judge_many([one(PPL, BETTER, BASE)] * 2), "contract"),
    (
        lambda: judge_runs(
            MetricSpec("mm", HIGHER),
            baseline_runs=runs(BASE),
            candidate_runs=[
                *runs(BETTER[:4]),
                ExperimentResult(terminal="oom", metrics={"seed": 4}),
            ],
        ),
        "contract",
    ),
    (lambda: run_all(["x"], results_file=os.devnull), "contract"),
    (lambda: run_all([spec(files=("nowhere.py",))], results_file=os.devnull), "contract"),
    (lambda: run_all([spec()], results_file=os.devnull, again=("ok",)), "contract"),
]


@pytest.mark.parametrize("call, code", REFUSED)
def test_what_is_refused(call, code):
    with pytest.raises(ContractError) as caught:
        call()
    assert caught.value.code == code and "\n" not in str(caught.value)


# --- records and pairs ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "seed", [3, 3.0, "3", " 3 ", "3.0", "+3", "3e0", np.int64(3), np.float32(3)]
)
def test_seeds_that_are_three(seed):
    run = read_row({"seed": seed, "terminal": "ok", "m": 1.0})
    assert run.seed == 3 and type(run.seed) is int


def test_cells_that_spell_numbers_are_metrics_and_the_rest_is_kept():
    row = {
        "seed": "3",
        "terminal": "ok",
        "m": "28.1",
        "host": "a7",
        "note": "",
        "gone": None,
        "hypothesis_id": "12",
        "experiment_id": "a",
        "nested": [1],
        "flag": True,
    }
    run = read_row(row)
    assert run.metrics == {"m": 28.1, "seed": 3, "gone": None} and run.other == {
        "host": "a7",
        "note": "",
        "nested": [1],
        "flag": True,
    }
    assert (run.hypothesis_id, run.experiment_id) == (12, "a") and read_row(
        {"seed": 1, "terminal": "oom"}, terminal="ok"
    ).terminal == "oom"
    assert [find_failure(read_row(row | {"m": m}), "m") for m in ("NaN", "1e999", None)] == [
        "reported m = nan",
        "reported m = inf",
        "wrote no number for m",
    ]
    with pytest.raises(TypeError):
        run.metrics["m"] = 1.0


cells = st.one_of(st.none(), st.floats(), st.integers(-(10**6), 10**6))


@given(
    st.dictionaries(st.text("abmxyz é", min_size=1, max_size=6), cells, max_size=4),
    st.integers(1 - 2**64, 2**64 - 1),
    st.sampled_from(["ok", "oom", "other"]),
    st.text(max_size=8).map(str.strip),
)
@QUICK
def test_a_run_survives_json_and_pickle(metrics, seed, terminal, detail):
    run = ExperimentResult(terminal=terminal, metrics=metrics | {"seed": seed}, detail=detail)
    saved = run.to_dict()
    again = read_row(json.loads(canonical_json(saved)))
    assert (
        again.to_dict() == saved == pickle.loads(pickle.dumps(run)).to_dict()
        and again.seed == seed
    )


def test_pairing_lists_everything():
    for b, c, says in (
        (
            runs([1.0] * 3, [4, 4, 0]),
            runs([1.0] * 3, [0, 1, 1]),
            "baseline repeats 4; candidate repeats 1",
        ),
        (
            runs([1.0] * 3, [1, 7, 8]),
            runs([1.0] * 2, [0, 1]),
            "baseline lacks 0; candidate lacks 7, 8",
        ),
        (runs([1.0], [500]), runs([1.0] * 100), "and 94 more"),
    ):
        with pytest.raises(PairingError, match=says):
            pair(b, c)
    both = pair(
        runs([1.0, 2.0, 3.0], [2, 0, 9]), runs([4.0, 5.0, 6.0], [0, 2, 1]), intersect=True
    )
    assert both.seeds == (0, 2) and both.candidate == (4.0, 5.0) and both.left_out == (1, 9)
    c = compare_runs(
        PPL,
        baseline_runs=runs(BASE),
        candidate_runs=runs(BETTER[:4], [9, 1, 2, 3]),
        intersect=True,
    )
    assert c.pairs.left_out == (0, 4, 9) and c.verdict.rationale.endswith("left out: 0, 4, 9.")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "json"])
def test_files(tmp_path, suffix):
    path, rows = (
        tmp_path / f"runs.{suffix}",
        [{"seed": 1, "terminal": "ok", "m": 2.5}, {"seed": 2, "terminal": "oom", "m": None}],
    )
    text = {
        "jsonl": "".join(json.dumps(r) + "\n" for r in rows),
        "json": json.dumps(rows),
        "csv": "seed,terminal,m\n1,ok,2.5\n2,oom,\n",
    }[suffix]
    path.write_text(text)
    assert [(r.seed, r.terminal, r.metrics["m"]) for r in read_runs(path)] == [
        (1, "ok", 2.5),
        (2, "oom", None),
    ]
    path.write_text(text.replace("2,oom", "2.5,oom").replace('"seed": 2', '"seed": 2.5'))
    place = {"jsonl": "line 2", "csv": "line 3", "json": "row 2"}[suffix]
    with pytest.raises(
        ContractError, match=f"{place}: the seed of a run must be a whole number"
    ):
        read_runs(path)


# --- the word and the numbers behind it -------------------------------------------------------------
def table(failed, improvement, p, m, alpha):
    "The source's five rows, typed again."
    if failed:
        return "failed"
    if abs(improvement) < m or p is None or p > alpha:
        return "noise"
    return "improved" if improvement > 0 else "regressed"


@pytest.mark.parametrize("bad", ["timeout", "sigterm", math.nan, math.inf, None])
@pytest.mark.parametrize("arm", ["candidate", "baseline"])
def test_a_failed_run_of_either_arm_is_failed_and_never_noise(arm, bad):
    arms = {"candidate_runs": runs(BETTER), "baseline_runs": runs(BASE)}
    for metrics in ({"seed": 2}, {}) if isinstance(bad, str) else ({"seed": 2, "m": bad},):
        arms[f"{arm}_runs"][2] = ExperimentResult(
            terminal=bad if isinstance(bad, str) else "ok",
            metrics=metrics,
            detail="after 7\n min",
        )
        v = judge_runs(PPL, **arms)
        assert (
            v.verdict,
            v.candidate_mean,
            v.baseline_mean,
            v.improvement,
            v.p_value,
            v.claim,
        ) == ("failed", 0.0, 0.0, 0.0, None, None)
        assert (
            f"the {arm} run of seed {metrics.get('seed', 'unknown')} " in v.rationale
            and "p = 1)" in v.rationale
            and "\n" not in v.rationale
        )


def test_golden_numbers():
    "32 to 28 is +0.1335 on the log scale; two p-values of the source's tests."
    assert list(one(PPL, BETTER, BASE).verdict.to_dict())[:12] == [
        "hypothesis_id",
        "metric",
        "direction",
        "scale",
        "candidate_mean",
        "baseline_mean",
        "improvement",
        "p_value",
        "significance_threshold",
        "improvement_threshold",
        "verdict",
        "rationale",
    ]
    v = one(PPL, BETTER, BASE).verdict
    assert v.candidate_mean == pytest.approx(
        np.mean(BETTER), rel=1e-15
    ) and v.candidate_geometric_mean == pytest.approx(stats.gmean(BETTER), rel=1e-14)
    c = one(PPL, [28.0] * 6, [32.0] * 6)
    assert (
        c.verdict.improvement == pytest.approx(math.log(32 / 28), abs=1e-15)
        and f"{c.verdict.improvement:+.4f}" == "+0.1335"
    )
    for new, old, p in (
        ([5, 6, 7, 8], [4, 6, 6, 7], 0.0576689),
        ([2.1, 2.3, 1.9, 2.5], [2.0] * 4, 0.219102),
    ):
        assert one(ACC, new, old).p_value == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize("scale", [LOG, LINEAR])
def test_the_direction_turns_the_word_and_the_sign(scale):
    lower, higher = (MetricSpec("m", direction, scale) for direction in (LOWER, HIGHER))
    found = [
        one(spec, *arms).verdict
        for spec in (lower, higher)
        for arms in ((BETTER, BASE), (BASE, BETTER))
    ]
    assert [v.verdict for v in found] == [
        "improved",
        "regressed",
        "regressed",
        "improved",
    ] and found[0].improvement == -found[2].improvement > 0 > found[1].improvement == -found[
        3
    ].improvement


@pytest.mark.parametrize(
    "newer, shown", [(BETTER, True), ([29.4, 31.7, 28.0, 33.1, 30.6], False)]
)
def test_the_exact_p_value_stands_beside_an_outlying_difference(newer, shown):
    d = np.log(BASE) - np.log(newer)
    by_hand = np.mean(
        abs(np.array(list(itertools.product((1, -1), repeat=5))) @ d) >= abs(d.sum()) - 1e-12
    )
    assert (
        (
            f"exact sign-flip p = {by_hand:.3g}"
            in (text := one(PPL, newer, BASE).verdict.rationale)
        )
        == ("sign-flip" in text)
        == shown
    )


def test_a_change_that_only_rounding_keeps_below_the_threshold_asks_for_no_number_of_seeds():
    "No number of seeds tells it from the threshold: this ended with a TypeError."
    base = [10.0, 10.2, 9.8, 10.1, 9.9]
    steps = [0.001, -0.001, 0.001, -0.001, 0.0]
    runs = [
        [{"seed": i, "terminal": "ok", "acc": x} for i, x in enumerate(values)]
        for values in (base, [x + 0.2 + step for x, step in zip(base, steps, strict=True)])
    ]
    c = compare_runs(
        MetricSpec("acc", improvement_threshold=0.02),
        baseline_runs=runs[0],
        candidate_runs=runs[1],
    )
    assert 0.02 - 1e-15 < c.difference.delta < 0.02
    assert c.verdict.claim == "inconclusive" and c.verdict.n_for_power is None


def test_few_seeds_and_small_changes():
    v = one(PPL, [20.0], [30.0]).verdict
    assert (v.verdict, v.claim, v.p_value, v.n_for_power, v.not_worse) == (
        "noise",
        "inconclusive",
        None,
        None,
        False,
    )
    two = one(PPL, [29.0, 31.5], [30.0, 32.0]).verdict
    assert (two.verdict, two.claim) == ("noise", "inconclusive") and two.n_for_power > 2
    for times, claim, word in (
        (1, "inconclusive", "Better below margin"),
        (2, "equivalent", "Better, but equivalent within 2 %"),
    ):
        many = [(x * (0.995 + 0.0002 * (-1) ** i), x) for i, x in enumerate(BASE * times)]
        v = one(PPL, *zip(*many, strict=True)).verdict
        assert (v.verdict, v.claim, v.not_worse, v.beyond_margin) == (
            "noise",
            claim,
            True,
            False,
        ) and v.p_value < 0.001
        assert v.headline.startswith(f"{word}: ") and (
            "fewer than 10 seeds no claim rests on the interval" in v.rationale
        ) == ("equivalence needs 10 seeds" in v.headline) == (times < 2)
    c = one(ACC, [0.9, -0.7, 1.4], [0.5, -0.8, 0.6])
    assert (
        c.difference.fallback.code == "unbounded"
        and c.verdict.claim == "inconclusive"
        and "no interval" in c.verdict.rationale
    )
    assert (
        one(PPL, [x * 1e-300 for x in BETTER], [x * 1e-300 for x in BASE]).verdict.verdict
        == "improved"
    )


@pytest.mark.parametrize("sign, word", [(1, "improved"), (-1, "regressed")])
def test_equality_passes_both_thresholds(sign, word):
    "Six equal differences of exactly a quarter: p is that of the signs, 2^-5; then with a spread, alone and in a family of two."

    def judged(m, alpha):
        return one(
            MetricSpec("m", HIGHER, LINEAR, m, alpha), [4.0 + sign] * 6, [4.0] * 6
        ).verdict

    v = judged(0.25, 2**-5)
    assert (v.improvement, v.p_value, v.verdict) == (sign * 0.25, 2**-5, word)
    assert (
        judged(math.nextafter(0.25, 1), 2**-5).verdict
        == judged(0.25, math.nextafter(2**-5, 0)).verdict
        == "noise"
    )
    values, flat = [4 + sign * x for x in (0.5, 1.5, 1.0, 0.75, 1.25)], [4.0] * 5

    def at(alpha):
        return dataclasses.replace(
            ACC, improvement_threshold=0.25, significance_threshold=alpha
        )

    def first(alpha):
        return judge_many(
            [
                one(at(alpha), values, flat),
                one(at(alpha), [4.0, 4.5, 3.5, 4.0, 4.0], flat, hypothesis_id=1),
            ]
        )[0].verdict.verdict

    p = one(ACC, values, flat).p_value
    assert (
        [one(at(a), values, flat).verdict.verdict for a in (p, math.nextafter(p, 0))]
        == [first(2 * p), first(math.nextafter(2 * p, 0))]
        == [word, "noise"]
    )


def test_an_interval_that_ends_on_the_threshold_is_not_equivalent():
    base = BASE * 2
    wobble = [x * f for x, f in zip(base, (1.001, 0.999, 1.0, 1.002, 0.998) * 2, strict=True)]
    c = one(PPL, base, wobble)
    edge = max(-c.difference.interval.low, c.difference.interval.high)
    for m, claim in (
        (0.02, "equivalent"),
        (edge, "inconclusive"),
        (math.nextafter(edge, 1), "equivalent"),
        (0, "inconclusive"),
    ):
        assert (
            one(dataclasses.replace(PPL, improvement_threshold=m), base, wobble).verdict.claim
            == claim
        )


def test_equal_differences_have_the_p_value_of_their_signs_and_are_never_equivalent():
    for n, k in itertools.product(range(2, 9), (1.0, 1e-3, 1000 / 7, 1e9)):
        ratios = [x * k for x in (BASE * 2)[:n]]
        c = one(PPL, [x * 0.9 for x in ratios], ratios)
        assert c.p_value == 2.0 ** (1 - n) and c.difference.fallback.code == "all_equal"
        assert (c.verdict.verdict == "improved") == (n >= 6) and c.verdict.n_for_power == (
            6 if n < 6 else None
        )
        for spec in (PPL, MetricSpec("m", LOWER)):
            same = one(spec, ratios, ratios).verdict
            assert (same.p_value, same.claim, same.improvement) == (1, "inconclusive", 0)
    near = (1.0001, 1.00013, 1.00007, 1.00002)  # logarithms near 0, rounded at the scale of 1
    assert runs_difference(
        PPL, baseline=near, candidate=tuple(x * 1.0001 for x in near)
    ).fallback


pairs = st.lists(st.tuples(st.floats(0.5, 100), st.floats(0.5, 100)), min_size=2, max_size=9)
specs = st.builds(
    MetricSpec,
    name=st.just("m"),
    direction=st.sampled_from([LOWER, HIGHER]),
    scale=st.sampled_from([LINEAR, LOG]),
    improvement_threshold=st.sampled_from([0.0, 0.02, 0.3]),
    significance_threshold=st.sampled_from([0.05, 0.3]),
)


@given(pairs, specs, st.randoms(use_true_random=False))
@QUICK
def test_order_of_rows_moves_no_bit(values, spec, rnd):
    c, b = map(list, zip(*values, strict=True))
    seeds = rnd.sample(range(-50, 50), len(c))
    arms = [runs(c, seeds), runs(b, seeds)]
    straight = compare_runs(spec, candidate_runs=arms[0], baseline_runs=arms[1])
    for arm in arms:
        rnd.shuffle(arm)
    mixed = compare_runs(spec, candidate_runs=arms[0], baseline_runs=arms[1])
    assert mixed == straight and canonical_json(mixed.verdict.to_dict()) == canonical_json(
        straight.verdict.to_dict()
    )


@given(pairs, specs)
@QUICK
def test_the_word_is_what_table_and_scipy_say(values, spec):
    c, b = (np.array(x) for x in zip(*values, strict=True))
    found = one(spec, c.tolist(), b.tolist())
    x, y = (np.log(c), np.log(b)) if spec.scale == LOG else (c, b)
    d, v = found.difference, found.verdict
    assert d.delta == pytest.approx(
        (x - y).mean() / (1 if spec.scale == LOG else abs(b.mean())), rel=1e-9, abs=1e-12
    )
    assert v.verdict == (
        table(
            False,
            v.improvement,
            d.p_value,
            spec.improvement_threshold,
            spec.significance_threshold,
        )
        if d.delta
        else "noise"
    )
    if np.ptp(x - y) <= 1e-9 * np.abs(x).max():
        return
    assert d.p_value == pytest.approx(stats.ttest_rel(x, y).pvalue, rel=1e-5, abs=1e-12)
    if d.fallback is None and abs(d.p_value - spec.significance_threshold) > 1e-6:
        assert (d.interval.low <= 0 <= d.interval.high) == (
            d.p_value > spec.significance_threshold
        )
    assert not (v.beyond_margin and v.verdict == "noise") and json.dumps(
        v.to_dict(), allow_nan=False
    )


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.5, 3)), min_size=2, max_size=8),
    st.sampled_from([1, -1]),
)
@QUICK
def test_fieller_solves_its_own_test(values, sign):
    c, b = (np.array(x) for x in zip(*values, strict=True))
    b = sign * b
    assume(np.std(c / b) > 1e-3 and np.std(b) > 1e-3)
    ends = fieller_interval(b, c)
    if ends is None:
        assert stats.ttest_1samp(b, 0).pvalue > 0.0499
        return
    for end in ends:
        assert stats.ttest_1samp(c - (1 + sign * end) * b, 0).pvalue == pytest.approx(
            0.05, rel=1e-4
        )  # c - (1 - g) b for b < 0
    assert (
        ends[0] <= runs_difference(ACC, baseline=tuple(b), candidate=tuple(c)).delta <= ends[1]
    )


@pytest.mark.parametrize("multiplicity", ["holm", "benjamini_hochberg"])
def test_candidates_are_adjusted_over_metrics_and_then_by_holm(multiplicity):
    "The referee asks at each level, list by list, which candidate is wholly rejected next."
    adjust, rng, names = (
        {"holm": holm, "benjamini_hochberg": benjamini_hochberg}[multiplicity],
        np.random.default_rng(2),
        "abc",
    )
    for trial in range(40):
        done = {
            name: [
                one(
                    MetricSpec("m", LOWER, LOG),
                    np.exp(3 - s + rng.normal(0, 0.03, 5)).tolist(),
                    [math.exp(3)] * 5,
                    hypothesis_id=i,
                )
                for i, s in enumerate((0, 0.04, 0.2)[: 1 + trial % 3])
            ]
            for name in names
        }
        judged, lists = (
            judge_candidates(done, multiplicity),
            {name: adjust([c.p_value for c in done[name]]) for name in names},
        )
        for name in names:
            for i, c in enumerate(judged[name]):
                assert (
                    c.family == 3 * len(done[name])
                    and c.p_value == done[name][i].p_value
                    and c.level == pytest.approx(1 - 0.05 / c.family)
                )
                for level, rejected in (
                    (c.adjusted_p_value * (1 - 1e-9), False),
                    (min(c.adjusted_p_value * (1 + 1e-9), 1), True),
                ):
                    gone = set()
                    while more := {
                        n
                        for n in names
                        if n not in gone and max(lists[n]) <= level / (3 - len(gone))
                    }:
                        gone |= {min(more, key=lambda n: max(lists[n]))}
                    asked = 3 - len(gone) + (name in gone)
                    assert (
                        lists[name][i] <= level / asked or name in gone
                    ) == rejected or level == 1
    single = judge_candidates({"a": [one(PPL, BETTER, BASE)]})["a"][0]
    assert single.adjusted_p_value is None and single.multiplicity is None


def test_several_candidates_are_one_report():
    rules = Rules(metrics=["loss"], better={"loss": "lower"})
    done, alone = (
        study(recipes(), rules),
        {
            n: study({k: v for k, v in recipes().items() if k[0] in ("baseline", n)}, rules)
            for n in ("adagrad", "lion", "sgd")
        },
    )
    words = {row.key.candidate: row.claim for row in done.leading}
    assert (
        words == {"adagrad": "regressed", "lion": "improved", "sgd": "inconclusive"}
        and done.claim == "regressed"
        and not done.failed
    )
    assert [row.adjusted_p for row in done.leading] == pytest.approx(
        holm([row.value.p_value for row in done.leading]).tolist(), rel=1e-12
    )
    for row in done.leading:
        one_row = alone[row.key.candidate].row
        assert (row.value.delta, row.value.p_value) == (
            one_row.value.delta,
            one_row.value.p_value,
        ) and row.value.interval.width > one_row.value.interval.width
    report = done.report()
    assert (
        report.exit.rule == "primary_regressed"
        and report.headline.startswith("3 candidates, loss: 1 regressed (adagrad +")
        and "adagrad" in report.document()["rationale"]
    )
    broken = study(recipes({"lion": "oom"}), rules)
    end = broken.report().exit
    assert (end.code, end.rule) == (5, "failed_runs") and len(broken) == 2
    assert end.because == "a run failed, so lion was not compared."
    nothing = study(recipes({"baseline": "oom"}), rules)
    assert (
        nothing.report().exit_code == 5
        and nothing.failed == ["adagrad", "lion", "sgd"]
        and nothing.headline == "3 candidates: 3 failed (adagrad, lion, sgd)."
    )
    for wrong, said in (
        (
            recipes() | {("lion", "again"): recipes()["lion", "runs"]},
            "need a baseline and candidates on one part",
        ),
        ({("lion", "runs"): recipes()["lion", "runs"]}, "must have an arm called 'baseline'"),
    ):
        with pytest.raises(UsageError, match=said):
            study(wrong, rules)
    with pytest.raises(UsageError, match="ones that levels of runs use; got better"):
        study({("baseline", "runs"): recipes()["baseline", "runs"]}, rules)
    short = recipes() | {("sgd", "runs"): RunsArm(runs=recipes()["sgd", "runs"].runs[:4])}
    with pytest.raises(PairingError, match="sgd: .*candidate lacks 4, 5"):
        study(short, rules)
    left = study(short, dataclasses.replace(rules, intersect=True))
    assert left.notes == (
        "sgd: Left out: seeds 4, 5, which sgd lacks.",
    ) and left.report().document()["warnings"] == list(left.notes)


# --- how runs end -----------------------------------------------------------------------------------
posix = pytest.mark.skipif(os.name != "posix", reason="the runner needs POSIX processes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
PRINTS = "print('{\"loss\": 1.5}')"


def spec(code=PRINTS, **more):
    return ExperimentSpec(
        **{
            "experiment_id": "x",
            "command": (sys.executable, "-c", textwrap.dedent(code)),
            "seed": 3,
            "metric_keys": ("loss",),
            "wall_timeout_s": 20.0,
            **more,
        }
    )


def over_seeds(experiment, seeds):
    "The same experiment under each seed."
    return [
        dataclasses.replace(
            experiment, experiment_id=f"{experiment.experiment_id}/seed={seed}", seed=seed
        )
        for seed in seeds
    ]


def recorded(path):
    "Key -> result of a results file."
    with path.open("rb+") as file:
        return runner.read_results(file)


def run(one, tmp_path, **more):
    (result,) = run_all([one], results_file=tmp_path / "results", **more)
    return result


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not holds():
        time.sleep(0.02)
    return bool(holds())


HOG = "x = []\nwhile True: x.append(bytearray(2**20))"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
ENDS = {  # code, limits, terminal, exit code, detail
    "ok": (PRINTS, {}, "ok", 0, ""),
    "last line counts": (
        "print('{\"loss\": 7}'); print('{\"loss\": 1.5}'); print('bye', end='')",
        {},
        "ok",
        0,
        "",
    ),
    "metrics, then exit 3": (
        PRINTS + "; raise SystemExit(3)",
        {},
        "crash",
        3,
        "exit code 3",
    ),
    "silent": ("pass", {}, "crash", 0, "no line of output is a JSON object with loss"),
    "NaN at last": (
        PRINTS + "; print('{\"loss\": NaN}')",
        {},
        "crash",
        0,
        "loss is nan",
    ),
    "another seed": (
        'print(\'{"loss": 1.5, "seed": 4}\')',
        {},
        "crash",
        0,
        "seed 4.0 where 3 was asked for",
    ),
    "segfault": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        {},
        "crash",
        -11,
        "did not send",
    ),
    "no such command": (
        "",
        {"command": ("no-such-program", "x")},
        "crash",
        0,
        "No such file or directory: no-such-program",
    ),
    "not executable": ("", {"command": ("/",)}, "crash", 0, "Permission denied"),
    "no such folder": (
        PRINTS,
        {"folder": "/nowhere/at/all"},
        "crash",
        0,
        "No such file or directory: /nowhere",
    ),
    "too slow": (
        PRINTS + "; import time; time.sleep(60)",
        {"wall_timeout_s": 0.4},
        "timeout",
        -15,
        "longer than 0.4 s",
    ),
    "too slow, leaves politely": (
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print('{"loss": 1}'), sys.exit(0)))
        time.sleep(60)""",
        {"wall_timeout_s": 1.5},
        "timeout",
        0,
        "longer than 1.5 s",
    ),
    "too slow, deaf": (
        DEAF,
        {"wall_timeout_s": 1.2},
        "timeout",
        -9,
        "longer",
    ),
    "too slow, stopped": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        {"wall_timeout_s": 1.0},
        "timeout",
        -9,
        "longer",
    ),
    "pipes closed, too slow": (
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
        {"wall_timeout_s": 0.6},
        "timeout",
        -15,
        "longer",
    ),
    "kills its own group": (
        "import os, signal; os.killpg(0, signal.SIGKILL)",
        {},
        "crash",
        -9,
        "did not send",
    ),
    "too large, with metrics": (
        f"print('{{\"loss\": 1.5}}', flush=True)\n{HOG}",
        {"memory_cap_mb": 100},
        "oom",
        -9,
        "limit 100 MB",
    ),
}


@posix
@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_state_and_its_reason(tmp_path, name):
    code, more, terminal, exit_code, says = ENDS[name]
    result = run(spec(code, **more), tmp_path)
    ending = result.other["run"]
    assert (result.terminal, ending["exit_code"]) == (terminal, exit_code), result.detail
    assert says in result.detail
    assert dict(result.metrics) == (
        {"loss": 1.5, "seed": 3} if terminal == "ok" else {"seed": 3}
    )
    assert run(spec(code, **more), tmp_path).to_dict() == result.to_dict()  # from the file


@posix
def test_config_seed_and_environment_arrive(tmp_path):
    config = {
        "rate": 1e-3,
        "name": "naïve \u2028 \U0001f600",
        "big": "x" * 300_000,
        "deep": {"a": [1, None]},
    }
    code = """
        import json, os, sys
        given = json.load(sys.stdin)
        print(json.dumps({"loss": sum(map(ord, json.dumps(given["config"], sort_keys=True))), "seed": given["seed"]}))
        print(json.dumps([os.environ["MINE"], os.environ["PATH"], os.getcwd(), os.listdir('.')]), file=sys.stderr)"""
    result = run(
        spec(code, config=config, seed=41, environment={"MINE": "naïve = 1"}), tmp_path
    )
    assert result.metrics["loss"] == sum(map(ord, json.dumps(config, sort_keys=True)))
    assert result.seed == 41
    mine, path, where, files = json.loads(result.other["run"]["stderr_tail"])
    assert (mine, path, files) == ("naïve = 1", os.environ["PATH"], [])
    assert not os.path.exists(where)


NAP = str(10**6 + os.getpid())  # seconds; no other process of this machine sleeps as long
SPAWN = f"""
    import os, subprocess, sys, time
    subprocess.Popen(["sleep", "{NAP}"])
    if os.fork() == 0:  # its parent ends at once, its pipes are closed
        if os.fork() == 0:
            for fd in (0, 1, 2): os.close(fd)
            os.execvpe("sleep", ["sleep", "{NAP}"], {{"PATH": os.environ["PATH"]}})
        os._exit(0)
    os.wait()
"""


def sleepers():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            mine = Path(f"/proc/{name}/cmdline").read_bytes() == f"sleep\0{NAP}\0".encode()
        except OSError:
            continue
        if mine and alive(name):
            found.append(int(name))
    return found


@linux
@pytest.mark.parametrize(
    "then, terminal",
    [
        (PRINTS, "ok"),
        ("time.sleep(60)", "timeout"),
        (HOG, "oom"),
        (f'subprocess.run(["sleep", "{NAP}"], start_new_session=True)', "timeout"),
    ],
    ids=["ok", "timeout", "oom", "own session"],
)
def test_children_end_with_the_run(tmp_path, then, terminal):
    "Those of the group, whoever their parent is; and one in a session of its own, while its parent lives."
    assert not sleepers()
    result = run(
        spec(
            textwrap.dedent(SPAWN) + then,
            wall_timeout_s=2.0 if terminal == "timeout" else 20.0,
            memory_cap_mb=150,
        ),
        tmp_path,
    )
    assert result.terminal == terminal and until(lambda: not sleepers(), 2)


@linux
def test_no_process_thread_or_descriptor_is_kept(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(runner.tempfile, "tempdir", str(tmp_path / "scratch"))
    run(spec(seed=999), tmp_path)

    def held():
        return (
            threading.active_count(),
            len(os.listdir("/proc/self/fd")),
            os.listdir(tmp_path / "scratch"),
        )

    before = held()
    results = run_all(
        over_seeds(spec(SPAWN + "    " + PRINTS), range(3))
        + over_seeds(spec("1/0"), range(3)),
        results_file=tmp_path / "results",
        workers=3,
    )
    assert Counter(r.terminal for r in results) == {"ok": 3, "crash": 3} and held() == before


def test_a_run_in_a_folder_of_its_own_makes_no_other(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(runner.tempfile, "tempdir", str(scratch))
    made = []
    directory = runner.tempfile.TemporaryDirectory
    monkeypatch.setattr(
        runner.tempfile,
        "TemporaryDirectory",
        lambda **options: made.append(options) or directory(**options),
    )
    assert guarded_run(spec(folder=str(tmp_path))).terminal == "ok" and not made
    assert guarded_run(spec()).terminal == "ok" and len(made) == 1


@linux
def test_memory_is_neither_ours_nor_that_of_reserved_addresses():
    ballast = b"x" * (200 * 2**20)  # our own size is not the run's
    run = guarded_run(
        spec(
            "import mmap as m; x = m.mmap(-1, 2**36, flags=m.MAP_PRIVATE | m.MAP_ANONYMOUS, prot=m.PROT_READ); import time; time.sleep(.3)",
            memory_cap_mb=100,
        )
    )
    assert (
        run.other["run"]["exit_code"] == 0
        and run.other["run"]["peak_memory_mb"] < 60
        and len(ballast)
    )


# --- output -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "line, says",
    [
        ('{"loss": null}', "not a finite number"),
        ('{"loss": true}', "not a finite number"),
        ('{"loss": "1.5"}', "not a finite number"),
        ('{"loss": -Infinity}', "-inf"),
        ('{"loss": 1e999}', "inf"),
        ('{"loss": ' + "9" * 400 + "}", "inf"),
        ('{"loss": 1, "seed": "3"}', "seed '3'"),
        ('["loss"]', None),
        ('{"lost": 1}', None),
        ('{"loss": 1', None),
        ("{" * 99, None),
    ],
)
def test_lines_that_are_no_result(line, says):
    metrics, doubt = final_metrics(line.encode() + b"\n", spec())
    assert (says or "no line of output") in doubt


@posix
def test_a_flood_of_output_is_not_kept(tmp_path):
    "The first line of metrics stands at the end of a line that is too long."
    code = """
        import os
        for _ in range(40): os.write(1, b"x" * 2**20); os.write(2, b"e" * 2**20)
        os.write(1, b'{"loss": 9}\\n{"loss": 1.5}')"""
    result = run(spec(code), tmp_path)
    assert result.ok and result.metrics["loss"] == 1.5
    assert len(result.other["run"]["stderr_tail"]) <= runner.KEPT_TAIL


# --- the queue of runs ------------------------------------------------------------------------------
WORK = """
import json, random, sys, time
given = json.load(sys.stdin)
with open(given["config"]["log"], "a") as log: log.write(f"start {given['seed']}\\n")
time.sleep(given["config"]["sleep"] * random.Random(given["seed"]).random())
if given["seed"] % 5 == 4: raise SystemExit(7)
print(json.dumps({"loss": given["seed"] / 8, "seed": given["seed"]}))
"""


def work(tmp_path, seeds, sleep=0, **more):
    return over_seeds(
        spec(WORK, config={"log": str(tmp_path / "log"), "sleep": sleep}, **more), seeds
    )


def outcome(results):
    return [(r.seed, r.terminal, r.metrics.get("loss")) for r in results]


@posix
def test_results_come_in_the_order_of_the_specs_and_nothing_runs_twice(tmp_path):
    specs, twins, seen = (
        work(tmp_path, [3, 9, 1, 0], 0.2),
        work(tmp_path, [1, 0], 0.2, experiment_id="y", hypothesis_id=7),
        [],
    )
    first = run_all(
        [*specs, *twins],
        results_file=tmp_path / "r",
        workers=3,
        progress=lambda *a: seen.append(a[1:]),
    )
    assert outcome(first[:4]) == [
        (3, "ok", 0.375),
        (9, "crash", None),
        (1, "ok", 0.125),
        (0, "ok", 0.0),
    ]
    assert [(r.experiment_id, r.hypothesis_id) for r in first[4:]] == [
        ("y/seed=1", 7),
        ("y/seed=0", 7),
    ] and seen == [(i, 4) for i in range(1, 5)]
    assert Counter((tmp_path / "log").read_text().splitlines()) == {
        f"start {s}": 1 for s in (3, 9, 1, 0)
    }
    again = run_all([*specs, *twins], results_file=tmp_path / "r", progress=seen.append)
    assert [r.to_dict() for r in again] == [r.to_dict() for r in first] and len(seen) == 4
    write_runs(first[:4], tmp_path / "arm.jsonl")
    assert outcome(read_runs(tmp_path / "arm.jsonl")) == outcome(first[:4])
    whole = (tmp_path / "r").read_bytes()
    n_kept = whole[:-1].rindex(b"\n") + 1  # bytes of all lines but the last
    for n_bytes in (
        n_kept + 1,
        n_kept + 9,
        n_kept + 30,
        len(whole) - 1,
    ):  # a kill while writing
        (tmp_path / "r").write_bytes(whole[:n_bytes])
        with runner.open_results(tmp_path / "r") as file:
            assert len(runner.read_results(file)) == 3
        assert (tmp_path / "r").read_bytes() == whole[:n_kept]


@posix
def test_workers_run_at_the_same_time(tmp_path):
    "Each waits until the other has started."
    code = f"""
        import json, os, sys, time
        seed = json.load(sys.stdin)["seed"]
        open(f"{tmp_path}/started-{{seed}}", "w").close()
        while not os.path.exists(f"{tmp_path}/started-{{1 - seed}}"): time.sleep(0.01)
        {PRINTS}"""
    assert all(
        r.ok
        for r in run_all(
            over_seeds(spec(code), range(2)), results_file=tmp_path / "r", workers=2
        )
    )


@posix
def test_failed_runs_get_another_attempt_only_when_asked(tmp_path):
    flag = tmp_path / "repaired"
    code = f"import os\nif not os.path.exists({str(flag)!r}): raise SystemExit(2)\n{PRINTS}"
    assert run(spec(code), tmp_path).terminal == "crash"
    flag.touch()
    assert (
        run(spec(code), tmp_path).terminal
        == run(spec(code), tmp_path, again=("timeout",)).terminal
        == "crash"
    )
    assert (
        run(spec(code), tmp_path, again=("crash",)).ok
        and run(spec(code), tmp_path, again=TERMINALS[1:]).ok
    )


def test_the_key_is_everything_that_decides_and_nothing_else(tmp_path):
    script, data = tmp_path / "train.py", tmp_path / "data.txt"
    script.write_text(PRINTS)
    data.write_text("x")
    base = spec(config={"a": 1}, environment={"A": "1"}, files=(str(script),))
    others = {
        "command": ("true",),
        "config": {"a": 2},
        "seed": 4,
        "metric_keys": ("loss", "acc"),
        "environment": {"A": "2"},
        "files": (str(data),),
        "folder": str(tmp_path),
        "wall_timeout_s": 21.0,
        "memory_cap_mb": 513.0,
    }
    keys = {
        name: dataclasses.replace(base, **{name: value}).key for name, value in others.items()
    } | {"base": base.key}
    script.write_text(PRINTS + "\n")
    keys["content"] = base.key
    assert len(set(keys.values())) == len(keys) == 11
    script.write_text(PRINTS)
    assert dataclasses.replace(base, experiment_id="y", hypothesis_id=9).key == keys["base"]


@posix
def test_what_stops_the_queue_ends_every_run_and_keeps_what_finished(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"open({str(script)!r}, 'a').write('#\\n')\n{PRINTS}")
    specs = over_seeds(spec(command=(sys.executable, str(script)), files=(script,)), range(3))
    with pytest.raises(
        ContractError, match="must not change while the queue runs; got 'x/seed=1'"
    ):
        run_all(specs, results_file=tmp_path / "r", workers=1)
    assert len(recorded(tmp_path / "r")) == 1

    class Stop(Exception):
        pass

    def progress(result, done, total):
        raise Stop

    nap = spec(f"import subprocess; subprocess.run(['sleep', '{NAP}'])", wall_timeout_s=1e6)
    with pytest.raises(Stop):
        run_all(
            [spec(), *over_seeds(nap, range(4))],
            results_file=tmp_path / "s",
            workers=3,
            progress=progress,
        )
    assert [result.terminal for result in recorded(tmp_path / "s").values()] == ["ok"]
    assert sys.platform != "linux" or until(lambda: not sleepers(), 2)
    (tmp_path / "text").write_text("seed,loss\n" * 100)
    with pytest.raises(ContractError):
        run_all([spec()], results_file=tmp_path / "text")
    assert (tmp_path / "text").read_text().startswith("seed,loss")


# --- a parent that dies -----------------------------------------------------------------------------
PARENT = """
import sys, tempfile
tempfile.tempdir = sys.argv[4]
from invar_nb import ExperimentSpec, run_all
specs = [ExperimentSpec(experiment_id="x", command=(sys.executable, "-c", sys.argv[1]), seed=seed, metric_keys=("loss",),
                        config={"log": sys.argv[3], "sleep": float(sys.argv[5])}) for seed in range(12)]
run_all(specs, results_file=sys.argv[2], workers=3)
print("done", flush=True)
"""


def parent(tmp_path, sleep):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
            WORK,
            *(str(tmp_path / n) for n in ("r", "log", "scratch")),
            str(sleep),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def living(tmp_path):
    "Runs of this test, by the folder that they work in."
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            mine = os.readlink(p / "cwd").startswith(str(tmp_path / "scratch"))
        except OSError:
            continue
        if mine and alive(p.name):
            found.append(p.name)
    return found


@linux
def test_killed_at_random_times_the_queue_resumes_without_loss(tmp_path):
    rnd, before, kills, log = random.Random(7), {}, 0, tmp_path / "log"
    log.touch()
    while True:
        p, starts = parent(tmp_path, 0.2), len(log.read_text().splitlines())
        if kills < 4:
            until(lambda: len(log.read_text().splitlines()) > starts + 2)
            time.sleep(0.3 * rnd.random())
            p.kill()
        if "done" in p.communicate()[0]:
            break
        kills += 1
        assert until(lambda: not living(tmp_path)), "short runs end by themselves"
        now = recorded(tmp_path / "r") if (tmp_path / "r").exists() else {}
        assert all(now[key] == result for key, result in before.items())
        before = now
    assert sorted(outcome(recorded(tmp_path / "r").values())) == [
        (s, "crash", None) if s % 5 == 4 else (s, "ok", s / 8) for s in range(12)
    ]
    assert (
        len(log.read_text().splitlines()) <= 12 + 2 * 3 * kills and kills == 4
    )  # of each worker one run, and one result not yet in the file


@posix
def test_a_result_is_on_the_disk_before_it_is_reported(tmp_path):
    code = """
import os, signal, sys
from invar_nb import ExperimentSpec, run_all
specs = [ExperimentSpec(experiment_id="x", command=("true",), seed=s, metric_keys=("loss",)) for s in range(3)]
run_all(specs, results_file=sys.argv[1], workers=1,
        progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))"""
    p = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True)
    assert p.returncode == -signal.SIGKILL, p.stderr
    assert len(recorded(tmp_path / "r")) == 1


@linux
def test_an_interrupt_while_the_queue_is_filled_ends_the_runs_that_began(
    tmp_path, monkeypatch
):
    fill = runner.ThreadPoolExecutor.submit

    def interrupted(pool, run, key, spec, stop):
        if spec.seed < 2:
            return fill(pool, run, key, spec, stop)
        assert until(lambda: len(list(tmp_path.iterdir())) == 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.ThreadPoolExecutor, "submit", interrupted)
    work = spec(
        f"import json, sys, time; open(f'{tmp_path}/{{json.load(sys.stdin)[\"seed\"]}}', 'w'); time.sleep(60)",
        wall_timeout_s=90,
    )
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_all(over_seeds(work, range(4)), workers=2)
    assert time.monotonic() - began < 30


@posix
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_fails_is_no_outcome_of_a_run(tmp_path, monkeypatch, number):
    "It was recorded as a crash of the experiment, with success; a command that there is not still is."

    def fails(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(runner.tempfile, "TemporaryFile", fails)
        with pytest.raises(OSError, match=os.strerror(number)):
            run(spec(), tmp_path)
    assert (
        run(spec(), tmp_path).ok
        and run(dataclasses.replace(spec(), command=("/nowhere/at-all",)), tmp_path).terminal
        == "crash"
    )


def test_an_interval_of_another_level_is_explained():
    "One word for one answer; 97.5 % where two metrics hold together, and why."
    rules = Rules(metrics=["loss", "accuracy"], better={"loss": "lower"})
    runs = lambda name, shift: RunsArm(
        model=name,
        runs=as_runs(
            [
                {
                    "seed": i,
                    "terminal": "ok",
                    "loss": 2 + i % 3 / 1000 - shift * (1 + i % 2 / 10),
                    "accuracy": 0.8 + i % 4 / 1000,
                }
                for i in range(12)
            ],
            name,
        ),
    )
    arms = {("baseline", ""): runs("a", 0), ("candidate", ""): runs("b", 0.01)}
    d = study(arms, rules).report().document()
    assert (
        d["headline"].startswith("Better, but equivalent within 2 % (0.04): loss -0.5")
        and d["claim"] == "equivalent"
        and "97.5 % CI" in d["headline"]
    )
    why = "Each is at 97.5 %, so that all of them hold together at 95 %."
    for text in (
        summary(d),
        summary_markdown(d),
        render_html(d, arms),
        render_markdown(d, arms),
    ):
        assert text.count("Each is at 97.5") == 1, text
    assert why in summary(d) and "Each is at" not in summary(
        study(arms, dataclasses.replace(rules, metrics=("loss",))).report().document()
    )


# --- what a run wrote, and tables over a setting ----------------------------------------------------
@posix
def test_run_all_and_the_metric_as_the_source_writes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = []
    found = run_all(
        specs := [spec(), spec(), spec(seed=4)], progress=lambda *a: started.append(a[1:])
    )
    assert (
        [(r.seed, r.metrics["loss"]) for r in found] == [(3, 1.5), (3, 1.5), (4, 1.5)]
        and started == [(1, 2), (2, 2)]
        and not [*tmp_path.iterdir()]
    )
    assert run_all(specs, again=("crash",))[2].to_dict().keys() == found[2].to_dict().keys()
    assert (
        MetricSpec(name="m", direction=LOWER, scale=LOG) == PPL == MetricSpec("m", LOWER, LOG)
    )
    assert (
        v := judge_runs(
            MetricSpec(name="m", direction=LOWER, scale=LOG),
            baseline_runs=runs(BASE),
            candidate_runs=runs(BETTER),
        )
    ).metric == "m" and "name" not in v.to_dict()


def of_knob(values, seeds=range(6), ends=()):
    "Results of several settings as `run_all` gives them: the value moves the loss, the seed moves all values alike."
    return [
        ExperimentResult(
            terminal=dict(ends).get((value, s), "ok"),
            metrics={"seed": s}
            | (
                {"loss": 3 + 0.05 * s - 0.02 * value + 0.004 * ((7 * s + i) % 5)}
                if (value, s) not in dict(ends)
                else {}
            ),
            other={"config": {"lr": value, "steps": 9}},
        )
        for i, value in enumerate(values)
        for s in seeds
    ]


def arms_of(results):
    "Arms for `study`, one for each value of the setting; the first value is the baseline."
    groups = {}
    for result in results:
        groups.setdefault(str(result.other["config"]["lr"]), []).append(result)
    first = next(iter(groups))
    return {
        "baseline" if value == first else value: RunsArm(runs=tuple(group), model=value)
        for value, group in groups.items()
    }


def test_runs_of_several_settings_are_one_family_from_memory_and_from_a_file(tmp_path):
    "2 stands before 10; the p-values are Holm's over the values."
    results = of_knob([1, 10, 2])
    table = study(arms_of(results), metrics="loss")
    assert [row.key.candidate for row in table] == ["2", "10"]
    losses = {
        name: [run.metrics["loss"] for run in arm.runs]
        for name, arm in arms_of(results).items()
    }
    alone = [
        one(MetricSpec("m", LOWER), losses[name], losses["baseline"]).p_value
        for name in ("2", "10")
    ]
    assert [row.adjusted_p for row in table] == pytest.approx(holm(alone).tolist(), rel=1e-12)
    path = tmp_path / "runs.jsonl"
    write_runs(results, path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["lr"] for row in rows} == {1, 2, 10}
    assert not any("steps" in row for row in rows)
    arms = {
        name: RunsArm(runs=read_runs(path, rows=("lr", value)))
        for name, value in (("baseline", "1"), ("2", "2"), ("10", "10"))
    }
    from_file = study(arms, metrics="loss")
    assert [(row.key, row.value.delta, row.adjusted_p, row.claim) for row in from_file] == [
        (row.key, row.value.delta, row.adjusted_p, row.claim) for row in table
    ]
    assert list(table.to_frame()["candidate"].unique()) == ["2", "10"]


def test_a_setting_has_no_name_of_a_metric(tmp_path):
    result = ExperimentResult(
        terminal="ok", metrics={"seed": 1, "loss": 2}, other={"config": {"loss": 1}}
    )
    other = dataclasses.replace(result, other={"config": {"loss": 2}})
    with pytest.raises(ContractError, match="must not have the name of a metric; got 'loss'"):
        write_runs([result, other], tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_direction_is_that_of_the_name_where_none_is_given():
    arms = lambda metric: {
        name: RunsArm(
            runs=as_runs(
                [{"seed": s, "terminal": "ok", metric: 2 + s / 9 + step} for s in range(6)],
                name,
            )
        )
        for name, step in (("baseline", 0), ("new", 0.5))
    }
    for metric, claim in (
        ("val_loss", "regressed"),
        ("perplexity", "regressed"),
        ("error_rate", "regressed"),
        ("accuracy", "improved"),
        ("reward", "improved"),
        ("macro_f1", "improved"),
        ("BLEU", "improved"),
    ):
        by_name = study(arms(metric), metrics=metric)
        said = study(
            arms(metric),
            metrics=metric,
            better={metric: "lower" if claim == "regressed" else "higher"},
        )
        assert (
            by_name.claim == said.claim == claim
            and [len(by_name.notes), len(said.notes)] == [1, 0]
            and by_name.notes[0].startswith(f"{metric} is taken as ")
        )
    for metric in ("hours", "tokens", "accuracy_loss"):
        with pytest.raises(
            UsageError,
            match=f"whether higher {metric} is better; got nothing said. Say better=",
        ):
            study(arms(metric), metrics=metric)


# --- failed runs that are left out ------------------------------------------------------------------
@given(st.sets(st.integers(0, 9), max_size=9), st.sets(st.integers(0, 9), max_size=9))
@QUICK
def test_dropping_failed_seeds_is_leaving_them_out_of_both_arms(lost_b, lost_c):
    def arm(values, lost):
        return [
            r
            if r.seed not in lost
            else ExperimentResult(terminal="oom", metrics={"seed": r.seed})
            for r in runs(values)
        ]

    b, c, left = (
        arm(BASE * 2, lost_b),
        arm([*BETTER, *BASE], lost_c),
        [s for s in range(10) if s not in lost_b | lost_c],
    )
    asked = dict(baseline_runs=b, candidate_runs=c)
    assert pair_runs("m", **asked).failure is None or lost_b | lost_c
    found = pair_runs("m", **asked, drop_failed=True)
    if not left:
        assert found.failure and judge_runs(PPL, **asked, drop_failed=True).verdict == "failed"
        return
    by_hand = pair([b[s] for s in left], [c[s] for s in left])
    nothing = dict.fromkeys(("dropped", "baseline_failed", "candidate_failed"), ())
    assert dataclasses.replace(found, **nothing) == by_hand
    assert found.dropped == tuple(sorted(lost_b | lost_c))
    assert found.baseline_failed == tuple(sorted(lost_b))
    assert found.candidate_failed == tuple(sorted(lost_c))
    v, w = (
        judge_runs(PPL, **asked, drop_failed=True),
        compare_runs(
            PPL, baseline_runs=[b[s] for s in left], candidate_runs=[c[s] for s in left]
        ).verdict,
    )
    assert dataclasses.replace(v, rationale="") == dataclasses.replace(w, rationale="") and (
        "left out: " in v.rationale
    ) == bool(lost_b | lost_c)


def test_dropped_seeds_are_counted_where_the_answer_is_read(tmp_path):
    results = of_knob([1, 2, 3], range(12), {(2, 3): "oom", (3, 4): "crash", (3, 5): "oom"})
    arms = arms_of(results)
    assert study(arms, metrics="loss").failed == ["2", "3"]
    done = study(arms, metrics="loss", drop_failed=True)
    assert (
        not done.failed
        and [row.value.n for row in done] == [11, 10]
        and [row.about["dropped"] for row in done] == [[3], [4, 5]]
    )
    lines = summary(done.report().document())
    assert (
        "Left out: seed 3, whose run failed in 2." in " ".join(lines.split())
        and "Left out: seeds 4, 5, whose runs failed in 3." in " ".join(lines.split())
        and "2 of 12 candidate runs and 0 of 12 baseline runs failed" in done.notes[-1]
        and done.notes[-1].startswith("3: Seeds of which a run failed are left out: 4, 5.")
    )
    unknown = [*runs(BASE)[:4], ExperimentResult(terminal="oom", metrics={})]
    with pytest.raises(PairingError, match="candidate lacks 4"):
        pair(runs(BASE), unknown, drop_failed=True)
    assert pair(runs(BASE), unknown, drop_failed=True, intersect=True).left_out == (4,)
    with pytest.raises(PairingError, match="candidate repeats 4"):
        pair(
            runs(BASE),
            [*runs(BASE), ExperimentResult(terminal="oom", metrics={"seed": 4})],
            drop_failed=True,
        )
    with pytest.raises(UsageError, match="drop_failed"):
        study(arms, metrics="loss", drop_failed="yes")


# --- how many seeds ---------------------------------------------------------------------------------
def test_a_pilot_of_runs_plans_in_seeds():
    "The pilot decides only what the evaluator would; a change needs no ten seeds, an equivalence does; what shows no spread plans nothing."
    near, goal = (
        one(
            PPL,
            [x * f for x, f in zip(BASE, (1.001, 0.999, 1.0, 1.002, 0.998), strict=True)],
            BASE,
        ),
        Goal(margin=0.02),
    )
    plan = plan_comparison(near, goal=goal)
    assert (plan.units, plan.items, plan.needed["windows"], plan.decided, plan.pilot.dof) == (
        "seeds",
        "seeds",
        10,
        "",
        4,
    ) and "Equivalence needs 10 effective seeds" in str(plan)
    assert plan.pilot.sd == pytest.approx(
        np.std([math.log(f) for f in (1.001, 0.999, 1.0, 1.002, 0.998)], ddof=1), rel=1e-9
    )
    change = plan_comparison(near, goal=Goal(margin=0.02, expected=0.05))
    assert change.needed["windows"] < 10 and "A claim needs" not in str(change)
    twice = one(
        PPL,
        [x * f for x, f in zip(BASE * 2, (1.001, 0.999, 1.0, 1.002, 0.998) * 2, strict=True)],
        BASE * 2,
    )
    assert (
        twice.verdict.claim == "equivalent"
        and plan_comparison(twice, goal=goal).decided == "equivalent within 2 %"
    )
    sizes = [
        plan_comparison(near, goal=Goal(margin=m)).needed["windows"]
        for m in (0.004, 0.002, 0.001)
    ]
    assert sizes == sorted(sizes) and 3.5 < sizes[2] / sizes[1] < 4.5
    for pilot, says in (
        (one(PPL, [28.0], [30.0]), "at least 2 effective seeds; got 1"),
        (one(PPL, BASE, BASE), "some spread"),
        (
            compare_runs(
                PPL,
                baseline_runs=runs(BASE),
                candidate_runs=[
                    *runs(BASE)[:4],
                    ExperimentResult(terminal="oom", metrics={"seed": 4}),
                ],
            ),
            "must have ended well",
        ),
    ):
        with pytest.raises(ContractError, match=says):
            plan_comparison(pilot)


def test_rows_of_a_frame_are_chosen_as_those_of_a_file(tmp_path):
    "A frame gave the runs of all arms, whatever `rows` said."
    table = [
        {"arm": arm, "seed": seed, "loss": 3 + seed / 10 - (arm == "b")}
        for arm in "ab"
        for seed in range(3)
    ]
    (tmp_path / "runs.csv").write_text(
        "arm,seed,loss\n" + "".join(f"{r['arm']},{r['seed']},{r['loss']}\n" for r in table)
    )
    for arm in "ab":
        ways = [
            read_runs(source, terminal="ok", rows=("arm", arm))
            for source in (tmp_path / "runs.csv", table)
        ]
        assert [[(run.seed, run.metrics["loss"]) for run in runs] for runs in ways] == [
            [(r["seed"], r["loss"]) for r in table if r["arm"] == arm]
        ] * 2
    for rows in (("arm", "z"), ("nocol", "a")):
        with pytest.raises(ContractError, match="some row must have|there must be a column"):
            read_runs(tmp_path / "runs.csv", terminal="ok", rows=rows)
        with pytest.raises(ContractError, match="some row must have"):
            read_runs(table, terminal="ok", rows=rows)


def test_what_is_no_plan_and_no_study_is_told_what_is():
    for wrong in ((1, 2), None):
        with pytest.raises(
            UsageError,
            match="source must be a baseline with a candidate, a Pair, the result of",
        ):
            plan_comparison(wrong)
    with pytest.raises(UsageError, match="must exist"):
        plan_comparison("seeds.csv")
    with pytest.raises(UsageError, match="arms must be a mapping; got tuple"):
        study((1, 2))
    row = study(recipes(), Rules(metrics=("loss",), better={"loss": "lower"})).leading[0]
    assert (row.delta, row.interval, row.p_value, row.ratio) == (
        row.value.delta,
        row.value.interval,
        row.value.p_value,
        row.value.ratio,
    )


# --- what a table of runs says --------------------------------------------------------------------------------------------------------
def ablation():
    "Five seeds: muon is better on all of them by less than 2 %, lion worse; accuracy moves by points."
    base = [3.10, 3.12, 3.08, 3.11, 3.09]
    loss = {
        "baseline": base,
        "muon": [x * (0.9914 + 0.0004 * k) for k, x in enumerate(base)],
        "lion": [x * (1.005 + 0.0012 * k) for k, x in enumerate(base)],
    }
    hits = {
        "baseline": [0.607, 0.605, 0.611, 0.603, 0.608],
        "muon": [0.6430, 0.6450, 0.6440, 0.6400, 0.6455],
        "lion": [0.6071, 0.6049, 0.6112, 0.6028, 0.6083],
    }
    return {
        (name, ""): RunsArm(
            runs=tuple(
                read_row(
                    {
                        "seed": s,
                        "terminal": "ok",
                        "val_loss": loss[name][s],
                        "accuracy": hits[name][s],
                    }
                )
                for s in range(5)
            )
        )
        for name in loss
    }


@pytest.mark.parametrize("metrics", [("val_loss", "accuracy"), ("accuracy", "val_loss")])
def test_of_runs_every_metric_that_was_asked_for_is_in_the_table(metrics):
    "Only what regressed was shown of a second metric: the good half of the ablation was left out without a word."
    text = str(study(ablation(), Rules(metrics=metrics)))
    rows = [line for line in text.splitlines() if re.match(r" *(lion|muon|  )", line)]
    assert all(
        sum(f"{name}" in line and (second in line or metrics[0] not in line) for line in rows)
        >= 1
        for name in ("lion", "muon")
        for second in metrics
    )
    assert sum(bool(re.search(r"\(-?[\d.]+ to -?[\d.]+\)", line)) for line in rows) == 4, text


def test_a_gain_below_the_margin_is_said_in_the_table_and_beside_its_per_cent_stands_the_difference():
    "Muon is better on all five seeds, p = 0.0007: the table said `not worse`."
    done = study(ablation(), Rules(metrics=("val_loss", "accuracy")))
    (muon,) = done.select(candidate="muon", metric="val_loss")
    assert (
        muon.claim == "inconclusive"
        and muon.word == "better below margin"
        and done.report().exit.code == 0
    )
    text = str(done)
    assert (
        re.search(r"muon.* -0\.78 +\(.* better below margin", text)
        and re.search(r"\+3\.\d+ points", text)
        and "-0.02" in text
    )
    (lion,) = done.select(candidate="lion", metric="val_loss")
    assert (lion.claim, lion.word) == ("inconclusive", "worse below margin")
    for made in (
        compare_runs(
            MetricSpec("val_loss", LOWER),
            baseline_runs=ablation()["baseline", ""].runs,
            candidate_runs=ablation()["muon", ""].runs,
        ),
    ):
        assert made.verdict.word == "better below margin" and made.verdict.headline.startswith(
            "Better below margin: val_loss -0."
        )
    nothing = study(
        {
            ("baseline", ""): ablation()["baseline", ""],
            ("same", ""): ablation()["baseline", ""],
        },
        Rules(metrics="val_loss"),
    )
    assert nothing.row.word == "inconclusive"


def test_what_a_per_cent_of_runs_is_of_and_the_margin_of_a_loss_in_nats(tmp_path):
    "The help promised points of accuracy; 2 % of a loss of 3.1 nats is 6 % of the perplexity. The margin that the hint names is taken."
    said = str(study(ablation(), Rules(metrics=("accuracy", "val_loss"))))
    assert "per cent of the baseline's mean, shares too" in said.replace("\n  ", " ")
    cure = re.search(
        r"2 % of val_loss = 0\.062\. .* --margin (val_loss)=([\d.]+)%\.",
        said.replace("\n  ", " "),
    )
    assert cure and pytest.approx(float(cure[2]) / 100 * 3.1, rel=0.02) == 0.02
    again = study(
        ablation(),
        Rules(metrics=("accuracy", "val_loss"), margin={cure[1]: f"{cure[2]}%"}),
    )
    assert {row.margin for row in again if row.key.metric == "val_loss"} == {
        float(cure[2]) / 100
    } and "perplexity, on its" not in str(again)
    assert again.select(candidate="muon", metric="val_loss")[0].claim == "improved"
    logs = study(ablation(), Rules(metrics=("val_loss",), scale={"val_loss": "log"}))
    assert "per cent of the baseline's mean" not in str(logs)


# --- what users with seeds met ---
def state_of_trainer(folder, loss, steps=1000):
    folder.mkdir(parents=True)
    history = [{"step": steps, "loss": loss + 1}, {"step": steps, "eval_loss": loss}]
    state = {"global_step": steps, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def shell(*words):
    "(exit code, all that was printed, on one line)."
    code, *printed = commands.shell(*map(str, words))
    return code, " ".join(" ".join(printed).split())


def write_recipes(path, header="optimizer,seed,val_loss", shift=None, left_out=()):
    "Five seeds of three recipes: muon is better below the margin, lion worse below it."
    factors = {"adamw": 1, "muon": 0.991, "lion": 1.006}
    lines = [header]
    for name, factor in factors.items():
        for seed, loss in enumerate((2.50, 2.54, 2.53, 2.48, 2.49), 1):
            if (name, seed) not in left_out:
                number = seed + (shift or {}).get(name, 0)
                lines.append(f"{name},{number},{loss * factor + 0.001 * (seed % 3):.5f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def against_adamw(*names):
    return ("--column", f"arm=optimizer=adamw,{','.join(names)}", "--metric", "val_loss")


def write_trainer_runs(folder, **changes):
    "Six seeds of two arms at step 500; seed 2 of lion with its state changed."
    for arm, loss in (("adamw", 2.30), ("lion", 2.28)):
        for seed in range(6):
            steps = range(100, 600, 100)
            state = {
                "global_step": 500,
                "log_history": [
                    {
                        "step": s,
                        "eval_loss": loss
                        + (500 - s) / 1000
                        + seed % 3 / 50
                        + (arm == "lion") * seed / 900,
                    }
                    for s in steps
                ],
            }
            if (arm, seed) == ("lion", 2):
                last = changes.get("global_step", 500)
                last = changes.pop("last", last)
                kept = [row for row in state["log_history"] if row["step"] <= last]
                state |= {**changes, "log_history": kept}
            run = folder / arm / f"seed{seed}"
            run.mkdir(parents=True)
            (run / "trainer_state.json").write_text(json.dumps(state))
    return folder / "adamw", folder / "lion"


EARLY = {
    "EarlyStoppingCallback": {
        "args": {"early_stopping_patience": 3},
        "attributes": {"early_stopping_patience_counter": 3},
    }
}


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"global_step": 300}, "seed 2 stopped at step 300 of 500;"),
        ({"global_step": 300, "max_steps": 400}, "seed 2 stopped at step 300 of 400;"),
        ({"last": 300}, "seed 2 stopped writing eval_loss at step 300 of 500;"),
        ({"global_step": 300, "max_steps": 500, "stateful_callbacks": EARLY}, ""),
        ({"global_step": 500, "max_steps": 500}, ""),
    ],
)
def test_a_run_of_the_trainer_that_stopped_early_did_not_finish(tmp_path, changes, says):
    "Its last evaluation, at step 300, was compared with those of step 500."
    arms = write_trainer_runs(tmp_path, **changes)
    line = ("compare", *arms, "--metric", "eval_loss", "--out")
    code, text = shell(*line, tmp_path / "r")
    if not says:
        assert code in (0, 1) and "stopped" not in text and "over 6 seeds" in text, text
        return
    assert code == 5 and says in text and "1 of 6 candidate runs" in text, text
    assert "stopped_ok=true" in text and "drop_failed=true" in text, text
    code, text = shell(*line, tmp_path / "d", "--set", "drop_failed=true")
    assert code in (0, 1) and "over 5 seeds" in text and "Left out: seed 2" in text, text
    code, text = shell(*line, tmp_path / "s", "--set", "stopped_ok=true")
    assert code in (0, 1) and "over 6 seeds" in text, text
    document = json.loads((tmp_path / "s" / "report.json").read_text())
    assert any(
        "stopped early count as finished: seed 2 of candidate" in note
        for note in document["warnings"]
    ), document["warnings"]
    assert shell("verify", tmp_path / "s")[0] == 0
    evidence = (tmp_path / "r" / "candidate.jsonl").read_text().splitlines()
    assert json.loads(evidence[2])["other"]["last_steps"]["eval_loss"] == 300
    code, text = shell("plan", *arms, "--metric", "eval_loss", "--set", "stopped_ok=true")
    assert code == 0 and "Pilot: 6 seeds" in text, text
    with_python = {"metrics": "eval_loss", "better": "lower"}
    baseline, candidate = map(read_runs, arms)
    failed = study({"baseline": baseline, "candidate": candidate}, **with_python)
    assert "stopped" in str(failed) and failed.claim != "improved"
    assert (
        len(
            study(
                {"baseline": baseline, "candidate": candidate}, stopped_ok=True, **with_python
            ).rows
        )
        == 1
    )
    code, text = shell("evaluate", arms[1], "--metric", "eval_loss", "--out", tmp_path / "e")
    if "global_step" in changes and "max_steps" in changes:
        assert code == 3 and "--set stopped_ok=true" in text, text


def test_a_checkpoint_a_save_before_the_end_is_a_finished_run():
    from invar_nb.readers.forms import _end_of_state

    state = {"global_step": 500, "max_steps": 520, "save_steps": 100}
    assert _end_of_state(state, True)["terminal"] == "ok"
    assert _end_of_state(state, False)["terminal"] == "stopped"
    assert _end_of_state({**state, "global_step": 400}, True)["terminal"] == "stopped"


def test_checkpoints_of_one_run_are_no_seeds(tmp_path):
    "Two checkpoints of one run gave `Improved over 2 seeds`."
    for arm, loss in (("base", 2.1), ("new", 2.0)):
        for seed in range(3):
            for step, late in ((500, 0.2), (1000, 0.0)):
                folder = tmp_path / arm / f"seed_{seed}" / f"checkpoint-{step}"
                state_of_trainer(
                    folder, loss + seed / 50 + late + seed * (loss > 2) / 500, step
                )
    base, new = tmp_path / "base", tmp_path / "new"
    out = ("--out", tmp_path / "r", "--force", "--metric", "eval_loss")
    for words in (
        ("compare", base / "seed_0", new / "seed_0"),
        ("compare", base, new / "seed_0"),
        ("evaluate", base / "seed_0"),
        ("compare", base / "seed_0" / "checkpoint-500", new),
    ):
        code, text = shell(*words, *out)
        assert code == 3 and "give the folder that holds a folder for each seed" in text, text
    for folder in (base / "seed_0", base / "seed_0" / "checkpoint-500"):
        with pytest.raises(ContractError, match="must hold several runs; got one run"):
            read_runs(folder)
    assert [run.metrics["eval_loss"] for run in read_runs(base)] == [2.1, 2.122, 2.144]
    code, text = shell("compare", base, new, *out)
    assert code == 0 and "over 3 seeds" in text
    # a folder of arms has every seed twice, and none of its runs is left out without a word
    assert [run.seed for run in read_runs(tmp_path)] == [0, 1, 2] * 2
    # what a run holds besides belongs to it
    state_of_trainer(base / "seed_0" / "final", 1.9)
    assert sorted(run.metrics["eval_loss"] for run in read_runs(base)) == [1.9, 2.122, 2.144]


def test_a_result_over_seeds_has_one_word(tmp_path):
    "The headline said `Not worse`, the table `better below margin`, exit code 4 neither."
    path = write_recipes(tmp_path / "runs.csv")
    out = ("--out", tmp_path / "r", "--force")
    for name, word in (("muon", "Better below margin"), ("lion", "Worse below margin")):
        words = ("compare", path, *against_adamw(name), *out)
        code, text = shell(*words)
        assert code == 0 and f"{word}: val_loss" in text and word.lower() in text, text
        code, text = shell(*words, "--fail-inconclusive")
        assert code == 4 and "neither for equivalence within the margin nor for" in text, text
    code, text = shell("compare", path, *against_adamw("muon", "lion"), *out)
    assert "no loss of the margin or more was shown, and none was ruled out" in text, text


@given(
    st.lists(st.tuples(*[st.floats(-0.05, 0.05)] * 3), min_size=2, max_size=12),
    st.floats(-0.03, 0.03),
)
@settings(max_examples=40, deadline=None)
def test_rows_verdicts_and_headlines_of_runs_agree(noise, shift):
    "A row took its own p-value for the word, the verdict the one adjusted by Holm."
    arms = {
        (name, ""): RunsArm(
            runs=as_runs(
                [
                    {"seed": s, "terminal": "ok", "m": (3 + s / 9) * (1 + i * shift + x[i])}
                    for s, x in enumerate(noise)
                ],
                name,
            )
        )
        for i, name in enumerate(("baseline", "a", "b"))
    }
    rules = Rules(metrics="m", better={"m": "lower"})
    done = study(arms, rules)
    for row in done:
        verdict = done.verdicts[row.key.candidate]
        assert row.word == verdict.word and row.shows("not_worse") == verdict.not_worse
        if row.claim == "inconclusive":
            assert verdict.headline.lower().startswith(f"{row.word}:")


def test_the_word_of_a_row_over_seeds_rests_on_the_p_value_of_its_family():
    "Significant by Holm, not at the level of its interval: the row was inconclusive."
    base = [3.0 + s / 9 for s in range(5)]
    small = (-0.012, -0.002, -0.008, -0.014, -0.001)
    losses = {
        "baseline": base,
        "a": [x * (0.9 + s / 900) for s, x in enumerate(base)],
        "b": [x * (1 + change) for x, change in zip(base, small, strict=True)],
    }
    arms = {(name, ""): RunsArm(runs=runs(values)) for name, values in losses.items()}
    done = study(arms, Rules(metrics="m", better={"m": "lower"}))
    (row,) = done.select(candidate="b")
    assert 0.025 < row.adjusted_p < 0.05
    assert row.word == done.verdicts["b"].word == "better below margin"
    assert row.shows("not_worse") and done.verdicts["b"].not_worse


def test_runs_can_be_required_to_be_no_worse(tmp_path):
    path = write_recipes(tmp_path / "runs.csv")
    out = ("--out", tmp_path / "r", "--force", "--require")
    for name, rule, code, says in (
        ("muon", "not-worse", 0, "not worse was required and shown"),
        ("lion", "not-worse", 1, "not worse is required, and was not shown"),
        ("muon", "equivalent", 1, "equivalent is required, and was not shown"),
        ("muon", "not-beyond", 2, "it rests on the interval, which fewer than 10 seeds"),
        ("muon", "slices", 2, "runs have neither parts nor slices"),
    ):
        exit_code, text = shell("compare", path, *against_adamw(name), *out, rule)
        assert (exit_code, says in text) == (code, True), text


@pytest.mark.parametrize("n", [3, 5, 12])
def test_a_loss_of_the_margin_is_called_not_worse_in_one_of_forty_samples(n):
    "Behind --require not-worse: its error at a loss of the margin is alpha / 2 or less."
    rng = np.random.default_rng(n)
    repeats, margin = 1500, 0.02
    spec = MetricSpec("m", LOWER, improvement_threshold=margin)
    wrong = 0
    for _ in range(repeats):
        baseline = 3 * (1 + 0.02 * rng.standard_normal(n))
        candidate = baseline + 3 * (margin + 0.01 * rng.standard_normal(n))
        verdict = one(spec, candidate.tolist(), baseline.tolist()).verdict
        wrong += verdict.not_worse
    assert wrong / repeats <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / repeats)


def test_a_seed_that_is_left_out_is_named_with_its_arm(tmp_path):
    "The help promises it: only the number of seeds and of notes said so."
    path = write_recipes(tmp_path / "runs.csv", left_out=[("muon", 3), ("adamw", 5)])
    words = ("compare", path, "--intersect", "--out", tmp_path / "r", "--force")
    code, text = shell(*words, *against_adamw("muon"))
    assert code == 0, text
    assert "Left out: seed 5, which the baseline lacks; seed 3, which muon lacks." in text, (
        text
    )
    code, text = shell(*words, *against_adamw("muon", "lion"))
    assert "each. Left out: seed 5, which the baseline lacks. Left out: seed 5" in text, text


def test_a_column_of_seeds_is_the_one_that_was_named(tmp_path):
    "A misspelt column was ignored, and of two columns the last was taken."
    path = write_recipes(tmp_path / "runs.csv")
    table = [{"seed": 7, "trial": 1, "m": 2.0, "terminal": "ok"}]
    for source in (path, table):
        with pytest.raises(ContractError, match="a column 'sede'.* Did you mean 'seed'"):
            read_runs(source, seed="sede", terminal="ok")
    words = ("--column", "seed=sede", "--out", tmp_path / "r")
    code, text = shell("compare", path, *against_adamw("muon"), *words)
    assert code == 3 and "there must be a column 'sede'" in text, text
    for header in ("seed,trial", "trial,seed"):
        cells = {"seed,trial": "7,1", "trial,seed": "1,7"}[header]
        (tmp_path / "two.csv").write_text(f"{header},m\n{cells},2.0\n")
        assert read_runs(tmp_path / "two.csv", seed="trial", terminal="ok")[0].seed == 1
    assert read_runs(table, seed="trial")[0].seed == 1
    tracked = [{"config.seed": 4, "m": 2.0, "terminal": "ok"}]
    assert read_runs(tracked)[0].seed == 4
    state_of_trainer(tmp_path / "hf" / "seed_0", 2.0)
    state_of_trainer(tmp_path / "hf" / "seed_1", 2.0)
    with pytest.raises(ContractError, match="in the names of its folders"):
        read_runs(tmp_path / "hf", seed="trial")


def test_rows_of_one_word_are_refused_with_the_pair_that_was_meant(tmp_path):
    path = write_recipes(tmp_path / "runs.csv")
    for source in (path, [{"optimizer": "adamw", "seed": 1}]):
        with pytest.raises(ContractError, match=re.escape("Pass rows=('optimizer', 'adamw')")):
            read_runs(source, rows="optimizer=adamw")
    code, text = shell("evaluate", path, "--metric", "val_loss", "--out", tmp_path / "r")
    cure = re.search(r"(--column) (arm=COLUMN=NAME)", text)
    assert code == 2 and cure, text
    words = ("evaluate", path, "--metric", "val_loss", "--out", tmp_path / "r")
    words += ("--column", cure[2].replace("COLUMN=NAME", "optimizer=adamw"))
    assert shell(*words)[0] == 0


CURVES = {
    "TensorBoard": ("Wall time,Step,Value", "HParams"),
    "W&B": ('Step,"a - loss","a - loss__MIN","a - loss__MAX"', "table of runs"),
    "MLflow": ("key,value,timestamp,step", "list of runs"),
}


@pytest.mark.parametrize("tool", CURVES)
def test_curves_are_refused_with_the_table_that_is_needed(tmp_path, tool):
    "They were read as examples: `only 3 examples; add examples`."
    header, cure = CURVES[tool]
    path = tmp_path / "curves" / "a.csv"
    path.parent.mkdir()
    rows = [
        ",".join(str(step * (i + 1)) for i in range(header.count(",") + 1)) for step in (1, 2)
    ]
    path.write_text("\n".join([header, *rows]) + "\n")
    for words in (
        ("compare", path, path),
        ("compare", path.parent, path.parent, "--metric", "Value"),
        ("compare", path, path, "--column", "seed=Step", "--metric", "Value"),
        ("evaluate", path),
        ("evaluate", path.parent),
    ):
        code, text = shell(*words, "--out", tmp_path / "r")
        assert code in (2, 3) and tool in text and cure in text, text
        assert "one row a run" in text and "example" not in text
    for source in (path, path.parent):
        with pytest.raises(ContractError, match=f"{tool}.* one row a run.* {cure}"):
            read_runs(source)


def test_metrics_of_an_evaluation_are_proposed_before_the_training_loss(tmp_path):
    for arm in "ab":
        for seed in range(3):
            state_of_trainer(tmp_path / arm / f"seed_{seed}", 2.0 + seed / 50)
    code, text = shell("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "r")
    assert code == 2 and "columns: eval_loss, loss" in text, text
    assert "--metric eval_loss --better lower" in text, text


def test_a_direction_that_is_not_given_is_that_of_the_name():
    "`val_loss` was higher-is-better without a word."
    directions = [MetricSpec(name).better for name in ("val_loss", "accuracy", "perplexity")]
    assert directions == ["lower", "higher", "lower"]
    assert MetricSpec("val_loss", HIGHER).better == "higher"
    with pytest.raises(ContractError, match="whether higher foo is better; got no direction"):
        MetricSpec("foo")


def test_seeds_of_which_none_is_shared_are_not_to_be_numbered_anew(tmp_path):
    path = write_recipes(tmp_path / "runs.csv", shift={"muon": 10})
    code, text = shell("compare", path, *against_adamw("muon"), "--out", tmp_path / "r")
    assert code == 3 and "compared seed by seed" in text, text
    assert "unpaired comparison is not offered; Welch's t test" in text
    assert "Give each arm one run for each seed" not in text


def test_the_interval_of_a_ratio_over_seeds_is_called_as_it_is():
    words = "Fieller's interval of the ratio, from the paired t"
    for scale, has_words in (({}, True), ({"val_loss": "log"}, False)):
        done = study(ablation(), Rules(metrics=("val_loss",), scale=scale))
        text = render(done.report())["report.md"]
        text = text.decode() if isinstance(text, bytes) else text
        assert (words in text) == has_words and "paired t" in text


# --- DataFrames of runs are read as the same table in a file is ---
def frames_of_runs(seed="seed", **columns):
    pd = pytest.importorskip("pandas")
    rows = [
        {seed: i, "val_loss": 2 + arm / 10 + (i * 7 + arm) % 5 / 100, "hours": 1.5} | columns
        for arm in (0, 1)
        for i in range(12)
    ]
    return pd.DataFrame(rows[:12]), pd.DataFrame(rows[12:])


@pytest.mark.parametrize(
    "frames",
    [
        frames_of_runs,
        lambda: frames_of_runs("config.seed", State="finished", Name="run"),
        lambda: [frame.set_index("seed") for frame in frames_of_runs()],
        lambda: [frame[::-1] for frame in frames_of_runs()],
    ],
)
def test_dataframes_with_seeds_are_read_as_the_same_table_in_a_file_is(tmp_path, frames):
    frames = frames()
    files = [tmp_path / "old.csv", tmp_path / "new.csv"]
    for frame, file in zip(frames, files, strict=True):
        frame.to_csv(file, index=frame.index.name is not None)
    for options in ({"metrics": ["val_loss"]}, {"metrics": "val_loss", "margin": 0.1}):
        result = compare(*frames, **options)
        assert result.rows[0].value.units == "seeds"
        assert result.headline == compare(*files, **options).headline
    assert evaluate(frames[0], metrics=["val_loss"]).rows[0].value.estimate
    assert study({"baseline": frames[0], "lr": frames[1]}, metrics=["val_loss"]).rows
    with pytest.raises(UsageError, match="runs need a metric"):
        compare(*frames)


def test_a_failed_run_in_a_dataframe_fails_as_it_does_in_a_file(tmp_path):
    old, new = frames_of_runs()
    new.loc[3, "val_loss"] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    old.to_csv(tmp_path / "old.csv", index=False)
    result = compare(old, new, metrics=["val_loss"])
    files = compare(tmp_path / "old.csv", tmp_path / "new.csv", metrics=["val_loss"])
    for headline in (result.headline, files.headline):
        assert headline.startswith("Failed: the candidate run of seed 3"), headline
        assert "1 of 12 candidate runs" in headline


def test_a_score_of_runs_is_refused_with_the_call_that_works():
    "Rows would be paired by their places, whatever their seeds."
    old, new = frames_of_runs()
    call = r"compare\(old, new, metrics=\['val_loss'\]\)"
    for candidate in (new, new[::-1]):
        with pytest.raises(UsageError, match=f"by metrics.*score='val_loss'.*{call}"):
            compare(old, candidate, score="val_loss")
    ids = [f"q{i}" for i in range(12)]
    examples = [frame.assign(id=ids) for frame in (old, new)]
    assert compare(*examples, score="val_loss").rows[0].value.units == "items"
    with pytest.raises(UsageError, match="cluster is about"):
        compare(old, new, metrics=["val_loss"], cluster="hours")


def test_the_rationale_says_which_tests_were_adjusted_together():
    "'0.048 by holm over 4 tests' was Holm over two metrics, then over two candidates."
    from dataclasses import replace

    from invar_nb.runs.evaluator import judge_candidates

    rng = np.random.default_rng(4)
    arms = {}
    for arm, (loss, accuracy) in {"a": (0, 0), "b": (0.03, 0.01), "c": (0.1, 0.05)}.items():
        noise = rng.normal(0, 0.02, (6, 2))
        arms[arm] = [
            {"seed": s, "loss": 2 - loss + x, "accuracy": 0.7 + accuracy + y, "terminal": "ok"}
            for s, (x, y) in enumerate(noise)
        ]

    def compared(name, *metrics):
        kinds = {"loss": "lower", "accuracy": "higher"}
        return [
            compare_runs(
                MetricSpec(metric, kinds[metric]),
                baseline_runs=arms["a"],
                candidate_runs=arms[name],
            )
            for metric in metrics
        ]

    both = {name: compared(name, "loss", "accuracy") for name in "bc"}
    for procedure, words in (
        ("holm", "Holm over this candidate's 2 metrics, then over 2 candidates"),
        (
            "benjamini_hochberg",
            "Benjamini-Hochberg over this candidate's 2 metrics, then Holm over 2 candidates",
        ),
    ):
        for row in judge_candidates(both, procedure).values():
            assert {c.correction for c in row} == {words}
            assert words in row[0].verdict.rationale
    for c in judge_candidates(both)["b"]:  # as the words say: each list by Holm, then times 2
        own = holm([each.p_value for each in both["b"]])[
            both["b"].index(
                replace(
                    c,
                    adjusted_p_value=None,
                    multiplicity=None,
                    family=1,
                    n_metrics=1,
                    n_candidates=1,
                )
            )
        ]
        assert c.adjusted_p_value in (pytest.approx(own), pytest.approx(min(1, 2 * own)))
    one = judge_candidates({name: compared(name, "loss") for name in "bc"})
    assert one["b"][0].correction == "Holm over 2 candidates"
    alone = judge_candidates({"b": both["b"]})
    assert alone["b"][0].verdict.multiplicity == "Holm over 2 tests"
    mixed = judge_candidates({"b": both["b"], "c": compared("c", "loss")})
    assert "this candidate's one metric" in mixed["c"][0].correction


def test_a_table_of_several_arms_is_planned_and_compared_as_its_message_says(tmp_path):
    table = write_recipes(tmp_path / "w.csv", "optimizer,config.seed,eval/val_loss")
    rows = table.read_text().splitlines()
    more = [f"{rows[0]},Runtime,state"]
    more += [f"{row},{5000 + 7 * i},finished" for i, row in enumerate(rows[1:])]
    table.write_text("\n".join(more) + "\n")
    for command in ("compare", "plan"):
        code, text = shell(command, table)
        assert code == 2 and "has several arms" in text, text
        cure = re.search(rf"invar-nb {command} (.*?), the baseline first", text)[1]
        assert cure.endswith("--metric eval/val_loss"), cure
        code, text = shell(command, *cure.split(), "--out", tmp_path / f"of-{command}")
        assert code in (0, 1), text
    how = ("--column", "arm=optimizer=adamw,lion")
    code, text = shell("plan", table, *how)
    assert code == 2 and "(columns: eval/val_loss," in text, text
    cure = re.search(r"Write: invar-nb plan (.*?)\.(?: |$)", text)[1]
    assert cure.count(str(table)) == 1, cure
    code, text = shell("plan", *cure.split())
    assert code == 0 and re.search(r"Planned: \d+ seeds for eval/val_loss\.", text), text
    two = ("--metric", "eval/val_loss", "--metric=Runtime")
    code, text = shell("plan", table, *how, *two)
    assert code == 2 and "one metric" in text and "eval/val_loss and Runtime" in text, text


def test_frames_of_runs_that_are_not_two_lead_to_study():
    pandas = pytest.importorskip("pandas")
    rows = [
        {
            "optimizer": name,
            "config.seed": seed,
            "loss": 2 + shift + seed % 3 / 50 + seed * shift / 90,
        }
        for name, shift in (("adamw", 0), ("lion", 0.1), ("sgd", 0.2))
        for seed in range(6)
    ]
    table = pandas.DataFrame(rows)
    arms = dict(iter(table.groupby("optimizer")))
    with pytest.raises(
        UsageError, match=r"got 3\. Several candidates: study\(\{'baseline'"
    ) as error:
        compare(*arms.values(), metrics=["loss"])
    call = re.search(r"(study\(.*\))\.", str(error.value))[1]
    old, new, newer = arms.values()
    found = eval(call, {"study": study, "old": old, "new": new, "newer": newer})
    assert len(found.rows) == 2
    for column in ("optimizer", "method"):
        with pytest.raises(UsageError, match=rf"groupby\('{column}'\)"):
            compare(table.rename(columns={"optimizer": column}))
    with pytest.raises(UsageError, match=r"groupby\('COLUMN'\)"):
        compare(table.drop(columns="optimizer"))
    with pytest.raises(UsageError, match="none in argument 2 of 2"):
        compare(old, new.iloc[:0], metrics=["loss"])
    with pytest.raises(UsageError, match="must have rows; got none in lion"):
        study({"baseline": old, "lion": new.iloc[:0]}, metrics=["loss"])
