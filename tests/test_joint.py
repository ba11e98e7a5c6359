"Several parts judged together: families, the part that decides, margins and slices by name."
import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.joint import compare_parts, judge_parts
from invar_nb.comparison.pair import pair, pair_arrays
from invar_nb.comparison.predictions import Predictions
from invar_nb.comparison.scores import Scores
from invar_nb.comparison.verdict import judge, judge_family
from invar_nb.foundations.numbers import UsageError
from invar_nb.report.joint_report import build_joint
from invar_nb.report.sections import part_keys


def marks(shift=0.0, seed=0, n=80, **more):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    arm = lambda values: Scores(ids=[str(i) for i in range(n)], values=values, score="mark", **more)
    return pair(arm(a), arm(a + rng.normal(shift, 0.5, n)))


def text(shift=0.03, n=60):
    rng = np.random.default_rng(5)
    a = rng.gamma(40, 0.06, n)
    return pair_arrays(a, a + rng.normal(shift, 0.01, n), np.full(n, 64))


def questions(wrong=4, n=60):
    arm = lambda k: Predictions(ids=[f"{i:02}" for i in range(n)], label=["a", "b"] * (n // 2), prediction=[("b" if i < k and not i % 2 else "a" if i < k else "ab"[i % 2]) for i in range(n)],
                                slices={"language": ["en", "es"] * (n // 2)})
    return pair(arm(0), arm(wrong))


def test_one_part_that_decides_is_judged_as_alone_and_the_rest_is_one_family():
    joint = compare_parts({"text": text(), "examples": questions(30), "marks": marks()}, primary="text")
    found = judge_parts(joint)
    assert found.verdict == judge(compare(text())) and found.claim == "regressed" == found.leading["text"].claim and found.leading["text"].adjusted_p_value is None
    rest = [found.leading["examples"], found.leading["marks"], *(c for claims in found.others.values() for c in claims)]
    by_hand = sorted((c.difference.p_value, c.adjusted_p_value) for c in rest if c.adjusted_p_value is not None)
    running = 0.0
    for k, (p, adjusted) in enumerate(by_hand):
        running = max(running, min(1, (len(by_hand) - k) * p))
        assert adjusted == pytest.approx(running, rel=1e-12)
    assert {c.slice for c in found.others["examples"]} >= {"language en", "language es"} and not found.others["text"]


def test_without_one_the_tasks_are_a_family_of_their_own():
    parts = {"a": marks(-0.5, 1), "b": marks(0, 2), "c": questions(2), "d": marks(0.4, 4)}
    found = judge_parts(compare_parts(parts))
    p = np.array([compare(x).p_value for x in parts.values()])
    order = np.argsort(p)
    holm = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]).clip(max=1)
    assert [found.leading[list(parts)[i]].adjusted_p_value for i in order] == pytest.approx(list(holm), rel=1e-12)
    assert found.leading["a"].claim == "regressed" and found.leading["d"].claim == "improved" and found.claim == "regressed" and found.verdict is None
    assert found.headline.startswith("Regressed on 1 of 4 tasks: a, ") and "1 improved" in found.headline
    alone = judge_family(compare(questions(2)), margins={})
    assert len(found.others["c"]) == len(alone)
    calm = judge_parts(compare_parts({"b": marks(0, 2), "x": marks(0, 7)}), by=())
    assert calm.headline.startswith("Undecided on 2 of 2 tasks; none shown") and calm.claim in ("inconclusive", "equivalent")


def test_margins_go_by_metric_and_slices_only_where_they_are():
    joint = compare_parts({"text": text(0.001), "examples": questions(30)}, primary="text")
    assert judge_parts(joint, margins={"perplexity": 0.05}).leading["text"].margin == 0.05
    assert judge_parts(joint, margins={"accuracy": 0.9}, by="language").leading["examples"].claim == "equivalent"
    with pytest.raises(UsageError, match="nope"): judge_parts(joint, margins={"nope": 1})
    with pytest.raises(UsageError, match="nope"): judge_parts(joint, by="nope")
    with pytest.raises(UsageError, match="at least one"): compare_parts({})
    with pytest.raises(UsageError, match="primary"): compare_parts({"a": marks()}, primary="b")
    assert "text: perplexity" in repr(joint) and "<b>examples</b>" in joint._repr_html_() and list(joint) == ["text", "examples"]


def test_every_part_with_losses_has_the_gate():
    parts = {"a": text(-0.02), "b": text(0.004, 20)}
    for names in (["a", "b"], ["b", "a"]):
        found = build_joint(compare_parts({n: parts[n] for n in names}), margin=0.2, gate=1.002).exit
        assert found["code"] == 1 and found["rule"] == "gate_failed" and build_joint(compare_parts({n: parts[n] for n in names}), margin=0.2, gate=1.05).exit["code"] == 0


def test_files_of_parts_have_names_of_their_own_whatever_the_case():
    names = ["A", "a", "a.", "a-1", "a-2", "a-3", "日本", "", "é"]
    assert len({key.lower() for key in part_keys(names).values()}) == len(names) and part_keys(["a b", "c"]) == {"a b": "a_b", "c": "c"}


def test_the_exit_of_tasks_names_those_that_regressed():
    worse = build_joint(compare_parts({"a": marks(-0.9, 1), "b": marks(0, 2), "c": marks(-0.9, 3)})).document()
    assert worse["exit"] == {"code": 1, "rule": "primary_regressed", "because": "a, c regressed."} and worse["verdict"]["verdict"] == "regressed"
    assert build_joint(compare_parts({"a": marks(0.9, 1), "b": marks(0, 2)})).exit_code == 0
