"""Run records, rows, files and pairing: what is read, what is refused, and what survives JSON."""
import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.experiments.runs import (ExperimentResult, find_failure, find_failures, metric_value,
                                       pair_runs, read_runs, runs_arm)
from invar_nb.foundations.numbers import ContractError, PairingError, canonical_json

from_row = ExperimentResult.from_row


def runs(values, seeds=None):
    return [from_row({"seed": s, "terminal": "ok", "m": v})
            for s, v in zip(seeds or range(len(values)), values, strict=True)]


@pytest.mark.parametrize("seed", [2.7, True, "3x", "2.7", "", math.nan, math.inf, None, [3], 2.0**60,
                                  "1_0", "³", 2**64])
def test_seeds_that_are_refused(seed):
    with pytest.raises(ContractError, match="seed"): from_row({"seed": seed, "terminal": "ok"})


@pytest.mark.parametrize("seed", [3, 3.0, "3", " 3 ", "3.0", "+3", "3e0", np.int64(3), np.float32(3)])
def test_seeds_that_are_three(seed):
    run = from_row({"seed": seed, "terminal": "ok", "m": 1.0})
    assert run.seed == 3 and type(run.seed) is int


def test_cells_that_spell_numbers_are_metrics_and_the_rest_is_kept():
    row = {"seed": "3", "terminal": "ok", "m": "28.1", "host": "a7", "note": "", "gone": None,
           "hypothesis_id": "12", "experiment_id": "a", "nested": [1], "flag": True}
    run = from_row(row)
    assert run.metrics == {"m": 28.1, "seed": 3, "gone": None}
    assert run.other == {"host": "a7", "note": "", "nested": [1], "flag": True}
    assert (run.hypothesis_id, run.experiment_id) == (12, "a")
    for text in ("0,75", "28.1 s", "0x1p3", "1_0", "--1"):
        with pytest.raises(ContractError, match=f"got '{text}' in the run of seed 3"):
            metric_value(from_row(row | {"m": text}), "m")
    assert find_failure(from_row(row | {"m": "NaN"}), "m") == "reported m = nan"
    assert find_failure(from_row(row | {"m": "1e999"}), "m") == "reported m = inf"


def test_a_row_says_how_it_ended():
    for row in ({"seed": 1, "m": 1.0}, {"seed": 1, "m": 1.0, "terminal": None}):
        with pytest.raises(ContractError, match="line 5: a row must say how its run ended"):
            from_row(row, place="line 5")
        assumed = from_row(row, terminal="ok")
        assert assumed.ok and "taken as 'ok'" in assumed.detail
    assert from_row({"seed": 1, "terminal": "oom"}, terminal="ok").terminal == "oom"
    for word in ("", " ", True, 0, "OK", "Ok "):
        with pytest.raises(ContractError, match="terminal"):
            from_row({"seed": 1, "m": 1.0, "terminal": word})


def test_what_a_record_must_be():
    good = dict(terminal="ok", metrics={"seed": 1, "m": 2.0})
    for bad in ({"metrics": [1]}, {"metrics": {"": 1}}, {"metrics": {"m": True, "seed": 1}},
                {"metrics": {"m": "x", "seed": 1}}, {"metrics": {"m": 1.0}}, {"other": {"m": 1}},
                {"metrics": {"seed": 1, "detail": 2}}, {"detail": None}, {"hypothesis_id": -1}):
        with pytest.raises(ContractError): ExperimentResult(**good | bad)
    with pytest.raises(ContractError, match="written once"):
        from_row({"seed": 1, "terminal": "ok", "m": 1, "metrics": {"m": 1}})
    with pytest.raises(dataclasses.FrozenInstanceError): ExperimentResult(**good).terminal = "x"
    with pytest.raises(TypeError): ExperimentResult(**good).metrics["m"] = 1.0


def test_a_missing_metric_names_seed_and_neighbour():
    run = from_row({"seed": 3, "terminal": "ok", "perplexity": 1.0, "loss": 2.0})
    with pytest.raises(ContractError, match=r"in the run of seed 3. Did you mean 'perplexity'\?"):
        metric_value(run, "perplexty")
    with pytest.raises(ContractError, match="must have the metric 'seed'"): metric_value(run, "seed")


cells = st.one_of(st.none(), st.floats(), st.integers(-10**6, 10**6))
names = st.text("abmxyz é", min_size=1, max_size=6)


@given(st.dictionaries(names, cells, max_size=4), st.integers(1 - 2**64, 2**64 - 1),
       st.sampled_from(["ok", "oom", "other"]), st.text(max_size=8).map(str.strip))
@settings(max_examples=60, deadline=None)
def test_a_run_survives_json_and_pickle(metrics, seed, terminal, detail):
    run = ExperimentResult(terminal=terminal, metrics=metrics | {"seed": seed}, detail=detail)
    saved = run.to_dict()
    again = from_row(json.loads(canonical_json(saved)))
    assert again.to_dict() == saved == pickle.loads(pickle.dumps(run)).to_dict()
    assert again.seed == seed


def test_pairing_lists_everything():
    def pair(b, c, **more): return pair_runs(baseline_runs=b, candidate_runs=c, **more)
    one = runs([1.0] * 3, [0, 1, 1])
    for b, c, says in (
            (runs([1.0] * 3, [4, 4, 0]), one, "baseline repeats 4; candidate repeats 1"),
            (runs([1.0] * 3, [1, 7, 8]), runs([1.0] * 2, [0, 1]),
             "baseline lacks 0; candidate lacks 7, 8"),
            ([], one[:1], "baseline has no runs"),
            (runs([1.0], [500]), runs([1.0] * 100), "and 94 more"),
            ([from_row({"terminal": "oom"})], one[:1], "1 runs without a seed")):
        with pytest.raises(PairingError, match=says): pair(b, c)
    with pytest.raises(PairingError, match="no seed in common"):
        pair(runs([1.0]), runs([1.0], [1]), intersect=True)
    with pytest.raises(TypeError): pair_runs(runs([1.0]), runs([1.0]))  # arms by keyword only
    both = pair(runs([1.0, 2.0, 3.0], [2, 0, 9]), runs([4.0, 5.0, 6.0], [0, 2, 1]), intersect=True)
    assert both.seeds == (0, 2) and [r.metrics["m"] for r in both.candidate] == [4.0, 5.0]
    assert both.left_out == (1, 9)


def test_arms_that_are_no_lists_of_runs():
    for bad in ("runs.jsonl", {"seed": 1}, 7, [3], None):
        with pytest.raises(ContractError, match="candidate must"):
            pair_runs(baseline_runs=runs([1.0]), candidate_runs=bad)


def test_failures_are_counted_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    for x, y, n in ((0, 3, 5), (2, 2, 4), (1, 6, 6)):
        arms = [[from_row({"seed": s, "terminal": "oom" if s < k else "ok", "m": 1.0})
                 for s in range(n)] for k in (x, y)]
        found = find_failures(baseline_runs=arms[0], candidate_runs=arms[1], metric="m")
        assert (found.baseline, found.candidate, len(found.lines), bool(found)) == (x, y, x + y, True)
        assert found.p_value == pytest.approx(stats.fisher_exact([[x, n - x], [y, n - y]])[1], rel=1e-9)
    assert not find_failures(baseline_runs=runs([1.0]), candidate_runs=runs([1.0]), metric="m")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "json"])
def test_files(tmp_path, suffix):
    path, rows = tmp_path / f"runs.{suffix}", [{"seed": 1, "terminal": "ok", "m": 2.5},
                                               {"seed": 2, "terminal": "oom", "m": None}]
    text = {"jsonl": "".join(json.dumps(r) + "\n" for r in rows), "json": json.dumps(rows),
            "csv": "seed,terminal,m\n1,ok,2.5\n2,oom,\n"}[suffix]
    path.write_text(text)
    found = read_runs(path)
    assert [(r.seed, r.terminal, r.metrics["m"]) for r in found] == [(1, "ok", 2.5), (2, "oom", None)]
    path.write_text(text.replace("2,oom", "2.5,oom").replace('"seed": 2', '"seed": 2.5'))
    place = {"jsonl": "line 2", "csv": "line 3", "json": "row 2"}[suffix]
    with pytest.raises(ContractError, match=f"{place}: seed must be a whole number; got '?2.5"):
        read_runs(path)


def test_the_arm_of_compare():
    arm = runs_arm(runs([3.0, 1.0], [7, -2]), "m", model="x")
    assert (arm.ids, arm.values.tolist(), arm.kind, arm.metric) == (("-2", "7"), [1.0, 3.0], "runs", "m")
    with pytest.raises(ContractError, match="seed 1 ended in 'oom'"):
        runs_arm([from_row({"seed": 1, "terminal": "oom"})], "m")
