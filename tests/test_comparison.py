"""Pairs, metrics, units, differences, slices: what the pages cannot try one by one."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.comparison.compare import compare
from invar_nb.comparison.difference import Settings, measure
from invar_nb.comparison.metric import METRICS, Metric, Registry, register_metric, value_of
from invar_nb.comparison.pair import Pair, pair, pair_arrays
from invar_nb.comparison.predictions import Predictions
from invar_nb.comparison.scores import Runs, Scores
from invar_nb.comparison.units import choose_units
from invar_nb.comparison.window_losses import WindowLosses
from invar_nb.foundations.numbers import ContractError, PairingError, UsageError

PERPLEXITY = Metric(name="perplexity", scale="log", margin=0.02,
                    totals=lambda arm: (arm.tokens * arm.log_loss, arm.tokens.astype(float)))
MARK = Metric(name="mark", better="higher", kind="scores", margin=0.05, totals=lambda arm: (arm.values, np.ones(len(arm))))


def losses(n=60, seed=0, shift=0.01, sd=0.02, documents=None, tokens=None):
    rng = np.random.default_rng(seed)
    loss = rng.gamma(40, 0.07, n)
    tokens = np.full(n, 128) if tokens is None else tokens
    return pair_arrays(loss, loss + rng.normal(shift, sd, n), tokens, document_ids=documents)


def scores(values, **more): return Scores(ids=[f"x{i}" for i in range(len(values))], values=values, score="f1", **more)


# --- pairs ----------------------------------------------------------------------------------------------------------------------------
def arm(n=5, **changes):
    fields = dict(window_ids=[f"w{i}" for i in range(n)], tokens=[10] * n, log_loss=[2.0] * n, document_ids=list("aabbb")[:n], data_id="d:1") | changes
    return WindowLosses.from_arrays(fields.pop("window_ids"), fields.pop("tokens"), fields.pop("log_loss"), **fields)


@pytest.mark.parametrize("other, said", [
    (dict(n=4), "5 and 4 items, candidate lacks 1 of 5: 'w4'"), (dict(data_id="d:2"), "data_id must match; got 'd:1' and 'd:2'"),
    (dict(document_ids=list("aabba")), "document_ids must match; got 'b' and 'a' at item 4 ('w4')"), (dict(weight_unit="bytes"), "weight_unit must match")])
def test_the_first_difference_is_named(other, said):
    with pytest.raises(PairingError) as caught: pair(arm(), arm(**other))
    assert said in str(caught.value) and caught.value.code == "pairing" and caught.value.cure


def test_what_one_arm_lacks_is_no_contradiction():
    one, two = arm(), WindowLosses.from_arrays([f"w{i}" for i in range(5)], [10] * 5, [2.1] * 5)
    assert pair(one, two).clusters == pair(two, one).clusters == tuple("aabbb")


def test_other_orders_other_kinds_and_nothing_are_refused():
    same = WindowLosses.from_arrays(["b", "a"], [1, 1], [1, 1]), WindowLosses.from_arrays(["a", "b"], [1, 1], [1, 1])
    with pytest.raises(PairingError, match="write both in one order"): pair(*same)
    with pytest.raises(PairingError, match="of one kind; got Scores and WindowLosses"): pair(scores([1.0]), same[0])
    with pytest.raises(PairingError, match="of one kind"): pair([1, 2], [1, 2])
    with pytest.raises(PairingError, match="one entry for each window"): pair_arrays([1, 2], [1, 2], [1])
    with pytest.raises(ContractError, match="nan at index 1"): pair_arrays([1, float("nan")], [1, 2], [1, 1])


def test_slices_that_contradict_are_refused():
    a, b = scores([1.0, 2.0], slices={"language": ("en", "es")}), scores([1.0, 2.0], slices={"language": ("en", "en")})
    with pytest.raises(PairingError, match="language must match; got 'es' and 'en' at item 1"): pair(a, b)


@pytest.mark.parametrize("other, match", [({"better": "lower"}, "better must match; got 'higher' and 'lower'"), ({"prompt_digests": ["p", "r"]}, "prompt_digests must match; got 'q' and 'r' at item 1"),
                                          ({"score": "exact"}, "score must match"), ({"data_id": "squad@3"}, "data_id must match")])
def test_scores_of_another_test_or_direction_are_refused(other, match):
    common = dict(ids=["a", "b"], values=[1, 0], score="f1", prompt_digests=["p", "q"], data_id="squad@2")
    with pytest.raises(PairingError, match=match): pair(Scores(**common), Scores(**common | other))


def test_scores_stand_in_the_order_of_their_ids():
    a, b = Scores(ids=["b", "a"], values=[1, 2], clusters=["y", "x"]), Scores(ids=["a", "b"], values=[5, 6], prompt_digests=["p", "q"])
    assert pair(a, b).clusters == ("x", "y") and a.values.tolist() == [2, 1]
    for wrong in ({"better": "faster"}, {"clusters": ["x", None]}, {"provenance": 3}, {"prompt_digests": ["x"]}):
        with pytest.raises(ContractError): Scores(ids=["a", "b"], values=[1, 2], **wrong)


# --- units ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("documents, name", [(None, "serial"), (np.arange(60), "documents"), (np.repeat(np.arange(12), 5), "documents"),
                                             (np.repeat(np.arange(6), 10), "serial"), (np.r_[np.zeros(49, int), np.arange(11) + 1], "serial")])
def test_units_of_losses(documents, name):
    assert choose_units(losses(documents=documents)).name == name


def test_an_explicit_choice_is_followed_or_refused():
    data = losses(documents=np.repeat(np.arange(6), 10))
    assert [choose_units(data, asked=a).n_units for a in ("documents", "windows", "serial")] == [6, 60, 60]
    with pytest.raises(UsageError, match="needs an id for every row"): choose_units(losses(), asked="documents")
    with pytest.raises(UsageError, match="units must be one of"): choose_units(losses(), asked="clusters")
    answers = pair(scores(np.arange(4.0), clusters=list("aabb")), scores(np.arange(4.0), clusters=list("aabb")))
    assert (choose_units(answers).name, choose_units(answers, asked="items").name) == ("clusters", "items")


# --- metrics --------------------------------------------------------------------------------------------------------------------------
def precision_totals(arm): return (arm.values > 0.5).astype(float) * (arm.values > 0.2), (arm.values > 0.2).astype(float)


def leave_one_out_median(arm, codes, n_units):
    "The mean of squares, as a statistic that is recomputed without each unit."
    value = lambda keep: float(np.mean(arm.values[keep] ** 2))
    return value(np.ones(len(arm), bool)), np.array([value(codes != u) for u in range(n_units)])


def test_a_metric_from_outside_appears_everywhere():
    "Ten lines outside the package: a ratio of sums whose weights differ between the arms, and a leave-one-out statistic."
    rng = np.random.default_rng(3)
    language = tuple(np.where(np.arange(80) < 50, "en", "es"))
    a, b = (scores(rng.random(80), slices={"language": language}) for _ in range(2))
    ratio = register_metric(Metric(name="share_above", better="higher", kind="scores", totals=precision_totals))
    squares = register_metric(Metric(name="mean_square", kind="scores", leave_one_out=leave_one_out_median))
    found = compare(pair(a, b), metrics=["share_above", squares])
    assert list(found) == ["share_above", "mean_square"] and found.primary_metric == "share_above"
    for name, value in (("share_above", lambda x: precision_totals(x)[0].sum() / precision_totals(x)[1].sum()), ("mean_square", lambda x: np.mean(x.values**2))):
        assert found[name].baseline == pytest.approx(value(a)) and found[name].delta == pytest.approx(value(b) - value(a))
        assert found[name].interval.low < found[name].delta < found[name].interval.high
    assert {(s.slice, s.value, s.metric) for s in found.slices()} == {("language", v, m) for v in ("en", "es") for m in found}
    assert [row["metric"] for row in found.to_dict()["metrics"]] == list(found)
    assert ratio in METRICS.of_kind("scores") and METRICS["mean_square"] is squares
    for name in ("share_above", "mean_square"): METRICS._found.pop(name)


def test_metrics_of_installed_packages_are_found(monkeypatch):
    import invar_nb.comparison.metric as page
    class Point:
        def load(self): return Metric(name="theirs", kind="runs", totals=lambda arm: (arm.values, np.ones(len(arm))))
    monkeypatch.setattr(page, "_entry_points", lambda: {"theirs": Point()})
    registry = Registry()
    assert "theirs" in list(registry) and registry["theirs"].name == "theirs" and [m.name for m in registry.of_kind("runs")] == ["theirs"]


ONES = np.ones(3)
def _fails(arm): raise KeyError("logits")


@pytest.mark.parametrize("parts, said", [
    (dict(totals=lambda arm: (arm.values[:2], ONES)), "numerators must have shape (3,)"), (dict(totals=lambda arm: (arm.values, [1, np.nan, 1])), "weights must be finite; got nan at index 1"),
    (dict(totals=lambda arm: (arm.values, -ONES)), "weights must not be negative"), (dict(totals=lambda arm: (arm.values, 0 * ONES)), "some item must have a weight"),
    (dict(totals=lambda arm: None), "totals must return two things; got NoneType"), (dict(totals=_fails), "totals must run; got KeyError: 'logits'"), (dict(totals=lambda arm: (1j * ONES, ONES)), "numerators must be numbers"),
    (dict(leave_one_out=lambda arm, codes, n: (1.0, ONES * np.nan)), "values without each unit must be finite"), (dict(leave_one_out=lambda arm, codes, n: (np.inf, ONES)), "the value of leave_one_out must be finite"),
    (dict(leave_one_out=_fails), "leave_one_out must run"), (dict(prepare=lambda *arms: None), "prepare must return a Metric"), (dict(prepare=_fails), "prepare must run; got TypeError"),
    (dict(totals=MARK.totals, exact=lambda a, b, level: (1, 2)), "exact must return an Interval"), (dict(totals=MARK.totals, missing=_fails), "missing must run")])
def test_functions_from_anybody_are_checked(parts, said):
    "A metric whose function raises gave a bare error from inside compare. The original error stays attached."
    with pytest.raises(ContractError) as caught: compare(pair(scores([1.0, 2, 3]), scores([2.0, 2, 3])), metrics=Metric(name="odd", kind="scores", **parts))
    assert str(caught.value).startswith(f"metric 'odd': {said}")
    assert isinstance(caught.value.__context__, (KeyError, TypeError)) == ("must run" in said or "numbers" in said)


def test_one_name_is_one_metric():
    "A definition that is run again is the same metric; another one needs another name or replace=True; built-in names stay."
    of = lambda power: Metric(name="twice", kind="scores", totals=lambda arm: (arm.values**power, np.ones(len(arm))))
    square, cube = of(2), of(3)
    try:
        register_metric(square)
        assert register_metric(of(2)) is METRICS["twice"]
        with pytest.raises(UsageError, match="must not be that of another metric; got 'twice'.*replace=True"): register_metric(cube)
        assert register_metric(cube, replace=True) is METRICS["twice"]
    finally: METRICS._found.pop("twice")
    for replace in (False, True):
        with pytest.raises(UsageError, match="got 'accuracy'"): register_metric(Metric(name="accuracy", kind="answers", totals=MARK.totals), replace=replace)
    assert register_metric(METRICS["accuracy"]) is METRICS["accuracy"]


@pytest.mark.parametrize("loaded", [Metric(name="ours", kind="scores", totals=abs), 5])
def test_an_entry_point_must_give_the_metric_it_announces(monkeypatch, loaded):
    import invar_nb.comparison.metric as page
    monkeypatch.setattr(page, "_entry_points", lambda: {"theirs": type("Point", (), {"load": lambda self: loaded})()})
    with pytest.raises(ContractError, match="entry point 'theirs' of invar_nb.metrics: it must be a Metric of that name"): Registry()["theirs"]


def test_a_metric_must_say_how():
    for bad in (dict(), dict(totals=abs, leave_one_out=abs), dict(totals=abs, better="bigger"), dict(totals=abs, scale="log2"), dict(totals=5), dict(totals=abs, margin=-1), dict(totals=abs, kind="score")):
        with pytest.raises(ContractError): Metric(name="x", **bad)
    with pytest.raises(ContractError, match="Did you mean 'perplexity'"): compare(losses(), metrics=["perplexty"])
    with pytest.raises(UsageError, match="must read losses; got 'mark', which reads scores"): compare(losses(), metrics=[MARK])


def test_an_undefined_metric_is_listed_or_refused():
    never = Metric(name="never", kind="losses", totals=lambda arm: (np.zeros(len(arm)), np.zeros(len(arm))))
    with pytest.raises(ContractError, match="some item must have a weight"): compare(losses(), metrics=[PERPLEXITY, never])
    register_metric(never)
    found = compare(losses())
    METRICS._found.pop("never")
    assert "never" in found.missing and list(found) == ["perplexity"]


# --- differences ----------------------------------------------------------------------------------------------------------------------
def test_ratio_of_two_windows():
    found = compare(pair_arrays(np.log([40.0, 220.0]), np.log([38.0, 260.0]), [512, 256]), metrics=[PERPLEXITY])
    assert found.ratio == pytest.approx(1.02172172, abs=5e-9)
    assert (found.ratio_interval.low, found.ratio_interval.high) == (math.exp(found.interval.low), math.exp(found.interval.high))


@pytest.mark.parametrize("documents", [None, np.repeat(np.arange(20), 3)])
def test_log_and_sign_invariances(documents):
    data = losses(documents=documents)
    flipped = compare(Pair(baseline=data.candidate, candidate=data.baseline), metrics=[PERPLEXITY])
    found = compare(data, metrics=[PERPLEXITY])
    assert flipped.delta == pytest.approx(-found.delta, rel=1e-12) and flipped.p_value == pytest.approx(found.p_value, rel=1e-9)
    assert (flipped.interval.low, flipped.interval.high) == pytest.approx((-found.interval.high, -found.interval.low), rel=1e-9)


def test_documents_may_come_in_any_order():
    rng = np.random.default_rng(5)
    documents, order = np.repeat(np.arange(20), 3), rng.permutation(60)
    data = losses(documents=documents)
    one, two = (compare(p, metrics=[PERPLEXITY]) for p in (data, data.take(order)))
    assert (two.interval.low, two.interval.high, two.p_value) == pytest.approx((one.interval.low, one.interval.high, one.p_value), rel=1e-9)


def test_equal_within_rounding_is_no_change():
    loss, tokens = np.random.default_rng(0).gamma(40, 0.07, 50), np.full(50, 7)
    noise = 1 + np.random.default_rng(1).choice([-1, 0, 1], 50) * 2.2e-16
    same = compare(pair_arrays(loss, loss * noise, tokens), metrics=[PERPLEXITY])
    assert same.delta == 0 and same.interval.width == 0 and same.fallback.code == "all_equal"
    shifted = compare(pair_arrays(loss, loss + 0.25, tokens), metrics=[PERPLEXITY])
    assert shifted.delta == pytest.approx(0.25, rel=1e-12) and shifted.interval.width < 1e-12


def test_effective_sample_size_is_a_ratio_of_variances():
    rng = np.random.default_rng(2)
    documents = np.repeat(np.arange(40), 10)
    loss = np.full(400, 2.0)
    data = pair_arrays(loss, loss + rng.normal(0, 0.01, 40)[documents], np.full(400, 100), document_ids=documents)
    found = compare(data, metrics=[PERPLEXITY])
    assert found.n == 400 and found.n_units == 40 and 35 < found.n_eff < 45            # the windows of a document agree
    alone = measure(PERPLEXITY, data, choose_units(data, asked="windows"), Settings())
    assert alone.n_eff == 400 and found.interval.width > 2.5 * alone.interval.width


def test_bootstrap_by_name():
    data = losses(documents=np.repeat(np.arange(20), 3))
    drawn = [compare(data, metrics=[PERPLEXITY], method="bca", replicates=1200, seed=7) for _ in range(2)]
    assert drawn[0].interval == drawn[1].interval and drawn[0].units.name == "windows" and ":1200@7" in drawn[0].signature
    clusters = compare(data, metrics=[PERPLEXITY], method="percentile", units="documents")
    assert clusters.n_units == 20 and clusters.method == "percentile"
    tokens = compare(data, metrics=[PERPLEXITY], method="bca", replicates=1200, seed=7, resample="tokens")
    assert "too short" in tokens.primary.note and drawn[0].primary.note is None
    for bad in (dict(method="bca", units="serial"), dict(replicates=100), dict(seed=1), dict(resample="tokens"), dict(method="bootstrap")):
        with pytest.raises(ContractError): compare(data, metrics=[PERPLEXITY], **bad)


def test_seeds_are_a_plain_paired_t_test():
    from scipy.stats import ttest_rel
    a, b = [31.9, 32.3, 32.1, 31.6, 32.4], [28.4, 27.9, 28.8, 28.1, 28.6]
    metric = Metric(name="perplexity", kind="runs", totals=lambda arm: (arm.values, np.ones(len(arm))))
    found = compare(pair(Runs(ids=range(5), values=a), Runs(ids=range(5), values=b)), metrics=[metric])
    theirs = ttest_rel(b, a)
    assert found.units.name == "seeds" and found.primary.method == "t" and found.p_value == pytest.approx(theirs.pvalue, rel=1e-10)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(theirs.confidence_interval()), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**31), st.sampled_from([1e-9, 1e-3, 1.0, 30.0]), st.booleans())
def test_any_pair_gives_an_answer(n, seed, size, grouped):
    rng = np.random.default_rng(seed)
    loss = rng.gamma(2, 1, n)
    other = np.maximum(loss + size * rng.standard_t(2, n), 0)
    data = pair_arrays(loss, other, rng.integers(1, 300, n), document_ids=rng.integers(0, 5, n) if grouped else None)
    for units in ("auto", "windows", "serial"):
        found = compare(data, metrics=[PERPLEXITY], units=units)
        assert found.interval.low <= found.delta <= found.interval.high
        assert found.p_value is None if found.n_units == 1 else 0 <= found.p_value <= 1


def test_value_of_one_arm():
    assert value_of(PERPLEXITY, losses().baseline) == pytest.approx(losses().baseline.perplexity, rel=1e-12)
    assert value_of(MARK, scores([0.25, 0.75])) == 0.5


@pytest.mark.parametrize("units", ["documents", "serial", "windows"])
def test_compare_gives_the_interval_whose_coverage_is_measured(units):
    "The coverage tables call the statistics; `compare` must give their ends, by its own road from losses to units."
    from invar_nb.statistics.serial import jackknife_interval
    documents, tokens = np.repeat(np.arange(20), 3), np.random.default_rng(0).integers(20, 300, 60)
    data = losses(documents=documents, tokens=tokens)
    found = compare(data, metrics=[PERPLEXITY], units=units).interval
    delta = data.candidate.log_loss - data.baseline.log_loss
    theirs = jackknife_interval(delta, tokens, units=units, document_ids=documents if units == "documents" else None)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_results_show_themselves():
    "Finding: no short repr, no table for notebooks, no data frame, no picture."
    found = compare(losses(documents=np.repeat(np.arange(20), 3)), metrics=[PERPLEXITY])
    assert len(repr(found)) < 200 and len(repr(found.primary)) < 120 and repr(found.primary).startswith("Difference(perplexity +0.0")
    assert found._repr_html_().count("<tr>") == 2 and "perplexity" in found._repr_html_()
    assert found.plot(margin=0.05)._repr_svg_().startswith("<svg")
    pandas = pytest.importorskip("pandas")
    assert isinstance(found.to_frame(), pandas.DataFrame) and found.to_frame().loc["perplexity", "n_units"] == 20


def test_two_metrics_of_one_name_and_endless_draws_are_refused():
    with pytest.raises(UsageError, match="a name of its own; got 'perplexity'"): compare(losses(), metrics=[PERPLEXITY, PERPLEXITY])
    with pytest.raises(UsageError, match="at most 10000000"): compare(losses(), metrics=[PERPLEXITY], method="bca", replicates=10**12, seed=1)
    sliced = compare(pair(*[scores([1.0, 2.0], slices={"a": (1, 2)})] * 2), metrics=MARK)
    with pytest.raises(UsageError, match="by must be one of"): sliced.slices("b")
    with pytest.raises(UsageError, match="by must be names of columns"): sliced.slices(5)
    assert len(sliced.slices(["a", "a"])) == 2


@pytest.mark.parametrize("options, said", [
    (dict(level=95), "level must lie"), (dict(primary="mark"), "primary must be one of"), (dict(method="bca", replicates=1e12, seed=1), "at most 10000000"), (dict(method="bca", replicates=0, seed=1), "at least 1"),
    (dict(metrics=5), "a metric must be one of")])
def test_options_that_cannot_be_are_usage_errors(options, said):
    with pytest.raises(UsageError, match=said): compare(losses(), **options)


def test_arrays_of_one_number_or_of_none_are_refused():
    "Found: a bare TypeError where an array, the documents or the slices were a number; one answer alone could not be compared."
    for bad in ((1.0, 1.0, 5), (None, None, None), ([1.0], [1.0], 5)):
        with pytest.raises(ContractError, match="^pair_arrays: "): pair_arrays(*bad)
    for documents in (5, "ab"):
        with pytest.raises(ContractError, match="document_ids must be a sequence"): pair_arrays([1.0, 2], [1.0, 2], [5, 5], document_ids=documents)
    asked = dict(ids=["a"], label=["x"], labels=["x", "y"])
    with pytest.raises(ContractError, match="slices must map"): Predictions(**asked, prediction=["y"], slices=5)
    alone = compare(pair(Predictions(**asked, prediction=["y"]), Predictions(**asked, prediction=["x"])))
    assert alone["macro_f1"].fallback.code == "single_pair" and alone["macro_f1"].p_value is None


def test_choices_are_compared_but_never_as_classes():
    p = np.array([[.7, .2, .1], [.2, .8, 0], [.1, .1, .8], [.6, .4, 0]])
    arms = [Predictions(ids=list("abcd"), label=list("0120"), labels=("0", "1", "2"), probabilities=q, labels_from=how) for q, how in
            ((p, "choices"), (p[:, [1, 0, 2]], "choices"), (p, "given"))]
    found = compare(pair(arms[0], arms[1]))
    assert "macro_f1" not in found and "classes" in found.missing["macro_f1"] and found["accuracy"].candidate == 0.25
    assert "macro_f1" in compare(pair(arms[2], arms[2]))
    assert found.report().document()["classes"] is None
