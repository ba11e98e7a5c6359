"""Claims follow from intervals alone; families by Holm; sentences that keep their digits."""
import dataclasses

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from invar_nb.comparison.compare import compare
from invar_nb.comparison.metric import Metric
from invar_nb.comparison.pair import pair, pair_arrays
from invar_nb.comparison.scores import Scores
from invar_nb.comparison.verdict import CLAIMS, as_margin, change_text, claim_of, judge, judge_family
from invar_nb.foundations.numbers import ContractError, UsageError
from test_comparison import MARK, PERPLEXITY, losses, scores

TABLE = [(-0.01, 0.01, "equivalent"), (0.001, 0.019, "equivalent"), (0.001, 0.021, "regressed"), (0.03, 0.04, "regressed"), (-0.04, -0.001, "improved"),
         (-0.019, -0.001, "equivalent"), (-0.03, 0.01, "inconclusive"), (-0.01, 0.02, "inconclusive"), (0.0, 0.03, "inconclusive"), (-0.02, 0.01, "inconclusive")]


@pytest.mark.parametrize("low, high, word", TABLE)
def test_the_claim_follows_from_the_ends(low, high, word):
    assert claim_of(low, high, 0.02) == word and word in CLAIMS


def test_without_a_margin_nothing_is_equivalent():
    assert claim_of(-0.01, 0.01, 0.0) == "inconclusive" and claim_of(0.001, 0.01, 0.0) == "regressed"


def judged(shift, sd, n=120, seed=0, **options):
    return judge(compare(losses(n=n, seed=seed, shift=shift, sd=sd), metrics=[PERPLEXITY]), **options)


def test_words_and_fields():
    worse, same, better = judged(0.05, 0.02), judged(0.001, 0.02), judged(-0.05, 0.02)
    assert (worse.verdict, same.verdict, better.verdict) == ("regressed", "noise", "improved")
    assert (worse.claim, same.claim, better.claim) == ("regressed", "equivalent", "improved")
    assert worse.beyond_margin and not worse.not_worse and same.not_worse and better.not_worse and better.beyond_margin
    assert worse.improvement < 0 < better.improvement and worse.direction == "lower_is_better" and worse.significance_threshold == 0.05
    names = [f.name for f in dataclasses.fields(worse)][:12]
    assert names == ["hypothesis_id", "metric", "direction", "scale", "candidate_mean", "baseline_mean", "improvement", "p_value",
                     "significance_threshold", "improvement_threshold", "verdict", "rationale"]
    open_ = judged(0.009, 0.15)
    assert open_.claim == "inconclusive" and open_.n_for_power > 120 and str(open_.n_for_power) in open_.headline


def test_higher_is_better_turns_the_sign():
    rng = np.random.default_rng(0)
    old = rng.random(80)
    found = judge(compare(pair(scores(old), scores(old + 0.2 + rng.normal(0, 0.05, 80))), metrics=[MARK]))
    assert found.claim == "improved" and found.improvement > 0 and found.direction == "higher_is_better"


def test_beyond_the_margin_only_where_the_whole_interval_is():
    "Finding: 'beyond the margin' stood beside an interval that reached into it."
    found = judged(0.022, 0.02)
    assert found.claim == "regressed" and not found.beyond_margin and "beyond" not in found.headline and "reaches into the margin" in found.rationale
    far = judged(0.06, 0.02)
    assert far.beyond_margin and "beyond the margin of 2 %" in far.headline and "lies beyond the margin" in far.rationale


def test_few_units_claim_nothing():
    few = judged(0.5, 0.01, n=9)
    assert few.claim == "inconclusive" and few.verdict == "noise" and not few.not_worse and "a claim needs 10" in few.headline
    one = judge(compare(losses(n=1), metrics=[PERPLEXITY]))
    assert one.claim == "inconclusive" and one.p_value is None and "one unit" in one.headline


def test_one_dominating_unit_claims_nothing():
    loss, shift = np.full(40, 2.0), np.full(40, 0.0)
    shift[3] = 5.0
    found = compare(pair_arrays(loss, loss + shift, np.full(40, 100)), metrics=[PERPLEXITY], units="windows")
    assert found.primary.nu < 4 and judge(found).claim == "inconclusive" and "dominate" in judge(found).headline


def test_identical_models():
    loss = np.random.default_rng(0).gamma(40, 0.07, 30)
    found = judge(compare(pair_arrays(loss, loss, np.full(30, 9)), metrics=[PERPLEXITY]))
    assert found.claim == "equivalent" and found.headline == "Identical: perplexity is the same on every item." and found.p_value == 1.0


@pytest.mark.parametrize("margin", [-0.1, float("nan"), True, "2%", 20, 1.0])
def test_margins_that_mean_nothing_are_refused(margin):
    "Finding: judge(margin=20) was accepted."
    with pytest.raises(UsageError) as caught: as_margin(margin, PERPLEXITY)
    if margin == 20: assert "Did you mean 0.2, that is 20 %" in str(caught.value)
    if margin in (20, 1.0) and margin is not True: assert as_margin(margin, Metric(name="seconds", kind="scores", totals=abs)) == margin


def test_sentences_keep_the_digits_that_the_interval_tells_apart():
    d = compare(losses(n=400, shift=0.002, sd=0.004), metrics=[PERPLEXITY]).primary
    assert change_text(d.delta, d).endswith(" %") and len(change_text(d.delta, d).split(".")[1]) in (4, 5)
    assert change_text(0.0, d) in ("0.00 %", "0.000 %")
    assert judge(compare(losses(shift=0.002, sd=0.004), metrics=[PERPLEXITY])).headline.startswith("Equivalent within 2 %: perplexity +0.")


# --- families -------------------------------------------------------------------------------------------------------------------------
def family_data(effect, n=200):
    rng = np.random.default_rng(11)
    language = tuple(np.array(["en", "es", "fr", "de"])[np.arange(n) % 4])
    old = rng.normal(0.5, 0.1, n)
    new = old + rng.normal(0, 0.05, n) + np.where(np.array(language) == "fr", effect, 0)
    columns = {"language": language}
    return pair(scores(old, slices=columns), scores(new, slices=columns))


def test_slices_are_one_family():
    found = judge_family(compare(family_data(-0.1), metrics=[MARK]))
    theirs = multipletests([c.difference.p_value for c in found], method="holm")[1]
    np.testing.assert_allclose([c.adjusted_p_value for c in found], theirs, rtol=1e-12)
    assert {c.slice: c.claim for c in found}["language fr"] == "regressed"
    assert all(c.claim != "regressed" for c in found if c.slice != "language fr")
    assert judge_family(compare(family_data(-0.1), metrics=[MARK]), by=()) == ()


def test_a_small_worse_slice_inside_the_margin_is_no_claim():
    found = {c.slice: c for c in judge_family(compare(family_data(-0.02), metrics=[MARK]), margins={"mark": 0.2})}
    assert found["language fr"].claim == "equivalent" and found["language fr"].margin == 0.2


@pytest.mark.parametrize("margins, said", [(0.1, "margins must map metrics to numbers; got 0.1"), ({"mrk": 0.1}, "margins must be one of 'mark'"), ({"mark": -1}, "margin must be a number")])
def test_margins_of_a_family_name_its_metrics(margins, said):
    "Found: a margin for a misspelt metric was ignored in silence."
    with pytest.raises(UsageError, match=said): judge_family(compare(family_data(0.0), metrics=[MARK]), margins=margins)
    with pytest.raises(UsageError, match="comparison must be a Comparison"): judge_family(None)


def test_families_alarm_rarely():
    "No effect anywhere: some regressed or improved among six slices in at most .05 of families (seeds fixed)."
    alarms, trials = 0, 150
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        columns = {"group": tuple(np.arange(120) % 6)}
        old = rng.normal(0, 1, 120)
        a, b = (Scores(ids=range(120), values=v, slices=columns) for v in (old, old + rng.normal(0, 1, 120)))
        found = judge_family(compare(pair(a, b), metrics=[dataclasses.replace(MARK, margin=0.0)]))
        alarms += any(c.claim in ("regressed", "improved") for c in found)
    assert alarms / trials < 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


def test_judge_takes_comparisons_only():
    with pytest.raises(ContractError, match="Call compare"): judge(losses())


def test_equal_answers_are_no_proof_of_equivalence():
    "No discordant answer among 84 gave [0, 0] and 'equivalent' for every metric without an exact interval."
    from invar_nb.comparison.predictions import Predictions
    labels = ["yes" if i % 3 else "no" for i in range(84)]
    said = ["yes" if i % 4 else "no" for i in range(84)]
    arm = Predictions(ids=[f"x{i:02d}" for i in range(84)], labels=("no", "yes"), label=labels, prediction=said)
    found = judge(compare(pair(arm, arm), metrics=["macro_f1"]))
    assert found.claim == "inconclusive" and "no example changed" in found.headline
    exact = compare(pair(arm, arm), metrics=["accuracy"])          # Tango: z^2 / (n + z^2) = 0.044, wider than the margin of 2 points
    assert exact.interval.high == pytest.approx(1.959964**2 / (84 + 1.959964**2), rel=1e-4) and judge(exact).claim == "inconclusive"
    assert all(c.claim == "inconclusive" for c in judge_family(compare(pair(arm, arm), metrics=["accuracy", "macro_f1"])))


def test_a_mean_loss_beyond_float64_is_refused_and_identical_gives_its_reason():
    from invar_nb import compare, judge, pair_arrays
    from invar_nb.foundations.numbers import ContractError
    few = judge(compare(pair_arrays([3., 2., 4.], [3., 2., 4.], [9, 9, 9])))
    assert few.claim == "equivalent" and "same on every item" in few.rationale and "needs 10" not in few.rationale
    with pytest.raises(ContractError, match="fit float64"):
        compare(pair_arrays([800.] * 12, [801.] * 12, [9] * 12))
