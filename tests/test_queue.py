"""A queue of hypotheses: order, what is settled, what fails, and the family at its end."""
import math

import numpy as np
import pytest

from invar_nb.experiments.evaluator import compare_runs
from invar_nb.experiments.improvement import LOG, LOWER, MetricSpec
from invar_nb.experiments.queue import Hypothesis, QueueRecord, judge_queue, run_queue
from invar_nb.experiments.runs import ExperimentResult
from invar_nb.foundations.numbers import ContractError, PairingError

PPL = MetricSpec("m", direction=LOWER, scale=LOG)


def arm(seed, shift, n=5):
    luck = np.random.default_rng(seed).normal(0, 0.02, n)
    return [ExperimentResult(terminal="ok", metrics={"seed": s, "m": 30 * math.exp(shift + x)}) for s, x in enumerate(luck)]


def make_queue(m=7):
    return [Hypothesis(id=10 * i, text=f"claim {i}", baseline_specs=[("baseline", i)], candidate_specs=[("candidate", i)]) for i in range(m)]


class World:
    "A runner and a literature that remember what they were asked, and fail when told to."
    def __init__(self, die_at=None): self.started, self.asked, self.die_at = [], [], die_at

    def run(self, specs):
        (name, i), = specs
        if len(self.started) == self.die_at: raise RuntimeError("killed")
        self.started.append((name, i))
        return arm(100 * i + (name == "candidate"), -0.1 * (name == "candidate" and i == 5))

    def settles(self, h):
        self.asked.append(h.id)
        return "known since 2019" if h.id in (20, 30) else None


def through(world, **more): return run_queue(make_queue(), run=world.run, spec=PPL, settles=world.settles, **more)


def test_the_queue_goes_through_in_order_one_at_a_time():
    world = World()
    queue = through(world)
    first = next(queue)
    assert world.asked == [0] and world.started == [("baseline", 0), ("candidate", 0)] and first.word == "noise"
    records = [first, *queue]
    assert [r.hypothesis.id for r in records] == [0, 10, 20, 30, 40, 50, 60]
    assert [r.word for r in records][2:4] == ["settled"] * 2 and records[2].settled == "known since 2019" and records[2].verdict is None
    assert records[5].word == "improved" and records[5].verdict.hypothesis_id == 50
    assert records[5].comparison == compare_runs(PPL, baseline_runs=arm(500, 0), candidate_runs=arm(501, -0.1), hypothesis_id=50)


def test_started_again_it_gives_the_same_records():
    whole = list(through(World()))
    for k in range(10):
        with pytest.raises(RuntimeError): list(through(World(die_at=k)))
    assert list(through(World())) == whole


def test_the_metric_may_depend_on_the_hypothesis():
    specs = lambda h: PPL if h.id else MetricSpec("m", LOWER)
    found = list(run_queue(make_queue(2), run=World().run, spec=specs))
    assert [r.verdict.scale for r in found] == ["linear", "log"]


def test_the_finished_queue_is_a_family_of_what_was_tested():
    records = list(through(World()))
    failed = QueueRecord(hypothesis=Hypothesis(id=70, text="x"), comparison=compare_runs(
        PPL, baseline_runs=arm(1, 0), hypothesis_id=70,
        candidate_runs=[ExperimentResult(terminal="oom", metrics={"seed": 0})]))
    judged = judge_queue([*records, failed])
    assert [j.hypothesis.id for j in judged] == [*(r.hypothesis.id for r in records), 70]
    assert judged[2] == records[2] and judged[7].word == "failed"
    assert {j.comparison.family for i, j in enumerate(judged) if i not in (2, 3, 7)} == {5}
    raw = sorted(r.verdict.p_value for r in records if r.verdict)
    assert judged[5].verdict.adjusted_p_value == pytest.approx(5 * raw[0]) and judged[5].word == "improved"


def test_what_the_queue_refuses():
    with pytest.raises(ContractError, match="unique"): list(run_queue(make_queue(1) * 2, run=World().run, spec=PPL))
    for bad in (dict(id=-1, text="x"), dict(id=1, text=" "), dict(id=True, text="x")):
        with pytest.raises(ContractError): Hypothesis(**bad)
    with pytest.raises(PairingError, match="candidate lacks 4"):
        list(run_queue(make_queue(1), spec=PPL, run=lambda specs: arm(1, 0, 4 if specs[0][0] == "candidate" else 5)))
