"""Arms under rules: pairs, metrics, differences, claims, families, floors, pools and looks, as far as no page tries them one by one."""

import html
import importlib.metadata
import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from documents import document_of, exit_of
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from studies import (
    STUDIES,
    answers,
    arms_of,
    copies,
    everything,
    looked,
    losses,
    marks,
    recipes,
    three_texts,
)

from invar_nb import (
    METRICS,
    Metric,
    Pair,
    Predictions,
    Rules,
    Scores,
    Translations,
    UsageError,
    WindowLosses,
    brier_score,
    calibration_error,
    compare,
    compare_models,
    confusion_matrix,
    corpus_bleu,
    discordant_pairs,
    evaluate,
    expected_calibration_error,
    jackknife_interval,
    n_for_power,
    pair,
    pair_arrays,
    paired_t_test,
    perplexity,
    predictions_from_columns,
    read_plain,
    register_metric,
    smooth_calibration_error,
    study,
    verify,
    weighted_mean,
    write_losses,
)
from invar_nb.comparison.claim import as_margin
from invar_nb.comparison.claim_words import rationale
from invar_nb.comparison.difference import Settings, change_text, measure
from invar_nb.comparison.units import choose_units
from invar_nb.foundations.refuse import ContractError, PairingError, nearest
from invar_nb.foundations.store import content_digest
from invar_nb.metrics.metric import Registry
from invar_nb.statistics.jackknife import jackknife_statistic

MARK = Metric(
    name="mark",
    better="higher",
    kind="scores",
    margin=0.05,
    totals=lambda arm: (arm.values, np.ones(len(arm))),
)
PPL = ["perplexity"]


def scores(values, **more):
    return Scores(
        ids=[f"x{i:03d}" for i in range(len(values))], values=values, score="f1", **more
    )


def windows(n=60, seed=0, shift=0.01, sd=0.02, documents=None, tokens=None):
    "A pair of losses without bytes."
    rng = np.random.default_rng(seed)
    loss = rng.gamma(40, 0.07, n)
    return pair_arrays(
        loss,
        loss + rng.normal(shift, sd, n),
        np.full(n, 128) if tokens is None else tokens,
        document_ids=documents,
    )


def ends(row):
    return row.value.interval.low, row.value.interval.high


# --- studies of every kind ------------------------------------------------------------------------------------------------------------
SHAPES = {  # claim, exit code, rows by role
    "runs of several": ("regressed", 1, {"lead": 3, "rest": 3}),
    "losses": ("regressed", 1, {"lead": 1}),
    "bootstrap": ("regressed", 1, {"lead": 1}),
    "passages": ("regressed", 1, {"lead": 1, "rest": 2}),
    "control": ("equivalent", 0, {"lead": 1, "rest": 5, "control": 1}),
    "looks": ("equivalent", 0, {"lead": 1}),
    "answers": ("regressed", 1, {"lead": 1, "rest": 1, "described": 4}),
    "scores": ("equivalent", 0, {"lead": 1}),
    "shares": ("improved", 0, {"lead": 1, "described": 2}),
    "translations": ("regressed", 1, {"lead": 1}),
    "candidates": ("equivalent", 0, {"lead": 2, "contrast": 1}),
    "tasks": ("regressed", 1, {"lead": 2}),
    "text and questions": ("regressed", 1, {"lead": 2, "rest": 5}),
    "pooled": ("inconclusive", 1, {"lead": 3, "pooled": 1}),
    "everything": ("regressed", 1, {"lead": 9, "rest": 18, "control": 6, "contrast": 9}),
    "one arm's losses": (None, 0, {"level": 1}),
    "one arm's answers": (None, 0, {"level": 18}),
    "one arm's scores": (None, 0, {"level": 3}),
}


@pytest.mark.parametrize("kind", STUDIES)
def test_the_order_of_arms_changes_nothing_and_its_shape_is_the_one_of_its_kind(kind):
    one = STUDIES[kind]()
    two = study(dict(reversed(one.arms.items())), one.rules)
    assert content_digest(document_of(one)) == content_digest(document_of(two))
    assert (
        one.claim,
        document_of(one)["exit"]["code"],
        Counter(row.role for row in one),
    ) == SHAPES[kind]


# --- families -------------------------------------------------------------------------------------------------------------------------
def holm_of(rows, question="change"):
    return multipletests([row.p[question] for row in rows], method="holm")[1]


def test_what_decides_is_judged_by_its_own_shape_and_all_the_rest_is_one_family():
    parts = {"text": losses(0.03, n=60), "quiz": answers(30, n=60), "marks": marks()}
    joint = study(arms_of(parts), Rules(deciding="text", by="language"))
    lead, alone = joint.leading[0], compare(parts["text"])
    assert (
        joint.leading == [lead]
        and (lead.claim, ends(lead), lead.adjusted_p) == (alone.claim, ends(alone.row), None)
        and joint.headline == alone.headline
    )
    rest = [row for row in joint if row is not lead and row.adjusted_p is not None]
    np.testing.assert_allclose([row.adjusted_p for row in rest], holm_of(rest), rtol=1e-12)
    assert {"language en", "language es"} <= {row.key.slice for row in rest} and "marks" in {
        row.key.part for row in rest
    }


@pytest.mark.parametrize(
    "effect, margin, claim", [(-0.1, 0.05, "regressed"), (-0.02, 0.2, "equivalent")]
)
def test_slices_are_one_family(effect, margin, claim):
    rng, language = (
        np.random.default_rng(11),
        np.array(["en", "es", "fr", "de"])[np.arange(200) % 4],
    )
    old = rng.normal(0.5, 0.1, 200)
    new = old + rng.normal(0, 0.05, 200) + np.where(language == "fr", effect, 0)
    rows = compare(
        pair(*(scores(x, slices={"language": language}) for x in (old, new))),
        metrics=[MARK],
        margin=margin,
        by="language",
    ).select(role="rest")
    np.testing.assert_allclose([row.adjusted_p for row in rows], holm_of(rows), rtol=1e-12)
    assert {row.key.slice: row.claim for row in rows}["language fr"] == claim and all(
        row.claim != "regressed" for row in rows if row.key.slice != "language fr"
    )


def test_slices_that_nobody_asked_for_are_described():
    "They have no claim, are in no family and make no exit code; what asks for one judges it."
    rng, language = np.random.default_rng(11), np.array(["en", "fr"])[np.arange(200) % 2]
    old = rng.normal(0.5, 0.1, 200)
    new = old + rng.normal(0, 0.02, 200) + np.where(language == "fr", -0.05, 0.05)
    both = pair(*(scores(x, slices={"language": language}) for x in (old, new)))
    alone, asked = (
        compare(both, metrics=[MARK], margin=0.05, by=by) for by in (None, "language")
    )
    described = alone.select(role="described")
    assert {row.key.slice for row in described} == {"language en", "language fr"}
    assert {(row.claim, row.adjusted_p, row.word) for row in described} == {
        (None, None, "described")
    }
    assert [document_of(made)["exit"]["code"] for made in (alone, asked)] == [0, 1]
    assert document_of(alone)["described_by"] == ["language"] and not asked.select(
        role="described"
    )
    for asking in (
        {"required": "slices"},
        {"required": "all"},
        {"accepted": [{**ACCEPTED, "slice": "language fr"}]},
    ):
        made = compare(both, metrics=[MARK], margin=0.05, **asking)
        judged = {row.key.slice: row.claim for row in made.select(role="rest")}
        assert judged["language fr"] == "regressed"
        assert len(judged) == (1 if "accepted" in asking else 2)


ACCEPTED = {"up_to": 0.9, "reason": "known", "expires": "2099-12-31"}


def test_candidates_hold_together_and_equal_ones_are_one():
    made = study(copies(), Rules(metrics=PPL))
    alone = compare(pair(copies()["baseline", ""], copies()["q4", ""]), metrics=PPL)
    (q4,) = made.select(candidate="q4", role="lead")
    assert (
        q4.value.interval == alone.interval
        and alone.p_value <= q4.p["change"] <= q4.adjusted_p <= 4 * q4.p["change"]
        and made.claim == "regressed"
        and study(copies(), Rules(metrics=PPL, deciding="q8")).claim == "equivalent"
    )
    base = copies()["baseline", ""]
    for arm, claims in ((copies()["q4", ""], {"regressed"}), (base, {"equivalent"})):
        same = study(
            {("baseline", ""): base} | {(f"copy {i}", ""): arm for i in range(5)},
            Rules(metrics=PPL),
        )
        (ranking,) = document_of(same)["rankings"]
        assert min(ranking["may_be_best"].values()) >= 0.5
        assert {row.claim for row in same.leading} == claims
    best = document_of(made)["rankings"][0]["may_be_best"]
    assert {name for name, p in best.items() if p > 0.05} == {"same", "q8"}


def test_each_candidate_of_a_part_has_its_own_interval_and_is_adjusted_over_the_parts():
    "3 candidates on 3 parts: single intervals; p-values of every question no smaller than within their part."
    arms = everything()
    whole = study(arms, Rules(metrics=["perplexity", "accuracy"], by=()))
    for part in ("law", "news", "quiz"):
        own = study(
            {key: arm for key, arm in arms.items() if key[1] == part},
            Rules(by=(), metrics=["accuracy" if part == "quiz" else "perplexity"]),
        )
        for a, b in zip(
            whole.select(part=part, role="lead"), own.select(role="lead"), strict=True
        ):
            assert (
                ends(a) == ends(b)
                and a.p == b.p
                and all(a.adjusted[question] >= b.adjusted[question] for question in b.p)
            )
    none = [row for row in whole.leading if row.adjusted_p is None]
    assert not none


def quants(changes, seed=0, docs=120, parts=("",), spread=0.01):
    "A baseline and a candidate for each change, on documents of their own in each part."
    rng, arms = np.random.default_rng(seed), {}
    for part in parts:
        base, tokens, ids = (
            rng.gamma(40, 0.08, docs),
            rng.integers(100, 300, docs),
            [f"d{i}" for i in range(docs)],
        )
        for i, change in enumerate([None, *changes]):
            moved = base if change is None else base + rng.normal(change, spread, docs)
            arms["baseline" if change is None else f"cand{i - 1:02d}", part] = (
                WindowLosses.from_arrays(ids, tokens, moved, document_ids=ids)
            )
    return arms


@pytest.mark.parametrize(
    "sign, word, family",
    [(1, "worse within margin", "regressed"), (-1, "better within margin", "improved")],
)
def test_no_row_has_the_harsher_word_whose_own_interval_lies_inside_the_margin(
    sign, word, family
):
    "Alone +1.7 % is equivalent; beside twenty others equivalence is not shown after adjustment and a change is: it was called regressed."
    changes = [sign * x for x in np.r_[np.full(14, 0.0176), np.linspace(0.0, 0.06, 6)]]
    arms = quants(changes)
    made, count = study(arms), 0
    for row in made.leading:
        alone = compare(pair(arms["baseline", ""], arms[row.key.candidate, ""]))
        if alone.claim == "equivalent":
            assert row.claim in ("equivalent", "inconclusive", word), (row.key, row.claim)
        if row.claim == family:
            assert alone.claim == family
        if row.claim != word:
            continue
        count += 1
        low, high = sorted((row.value.worse.low, row.value.worse.high))
        assert (
            -row.margin < low
            and high < row.margin
            and row.word == word
            and row.alone == "equivalent"
            and row.adjusted["change"] <= 0.05 < row.adjusted["equivalent"]
        )
    assert count >= 3
    document = made.report().document()
    assert (
        f"{count} {word.removesuffix(' margin')} 2 %" in document["headline"]
        and f"{count} {word}" not in document["headline"]
    )
    assert (
        f"{word}*" not in made.report().to_markdown() and word in made.report().to_markdown()
    )
    row = next(row for row in made.leading if row.claim == word)
    assert row.summary().startswith(
        f"{word.capitalize().removesuffix(' margin')} 2 % ({row.key.candidate}): perplexity "
    ) and repr(row).startswith(
        f"Row({row.key.candidate}, {word.removesuffix(' margin')} 2 %: "
    )


def test_a_row_that_loses_not_worse_by_its_family_is_marked(tmp_path):
    made = study(quants(np.full(12, -0.012), spread=0.15))
    row = next(
        row
        for row in made.leading
        if row.value.worse.high < row.margin and row.word == "inconclusive"
    )
    assert row.alone == "not worse" and row.adjusted["not_worse"] > 0.05
    reason = (
        "the interval alone would say not worse, but adjusted for all rows judged together "
        f"p = {row.p_alone:.2g}"
    )
    assert reason in rationale(row.value, row.claim, row.margin, row.alone, row.p_alone)
    markdown = made.report().to_markdown()
    assert markdown.count("inconclusive\\*") == 1
    assert "the interval alone would claim more" in markdown
    assert verify(made.report().save(tmp_path / "r"))


def test_worse_within_the_margin_is_red_only_where_equivalence_is_required(tmp_path):
    arms = quants(np.full(16, 0.0176))
    kept = {
        row.key.candidate
        for row in study(arms).leading
        if row.claim in ("equivalent", "worse within margin")
    }
    arms = {key: arm for key, arm in arms.items() if key[0] in ("baseline", *kept)}
    made = study(arms)
    assert made.claim == "worse within margin" and {row.claim for row in made.leading} <= {
        "equivalent",
        "worse within margin",
    }, Counter(row.claim for row in made.leading)
    codes = {
        asked: exit_of(replace(made, rules=Rules(required=asked)))["code"]
        for asked in (None, "not-beyond", "not-worse", "equivalent")
    }
    assert (
        codes == {None: 0, "not-beyond": 0, "not-worse": 0, "equivalent": 1}
        and exit_of(replace(made, rules=Rules(fail_inconclusive=True)))["code"] == 0
    )
    report = made.report()
    assert (
        report.document()["claim"] == "worse within margin" and report.exit.rule == "not_worse"
    )
    report.save(tmp_path / "r")
    assert verify(tmp_path / "r")
    said = (
        "In 'worse within margin' only the direction is corrected: 'within margin' is by the"
    )
    pages = (tmp_path / "r" / name for name in ("summary.md", "report.md", "report.html"))
    texts = [report.summary(), *(html.unescape(page.read_text()) for page in pages)]
    assert all(said in text for text in texts)
    assert "only the direction" not in study(quants([0.0, 0.06])).summary()


@pytest.mark.parametrize("seed", [1, 6])
def test_more_candidates_never_turn_a_green_one_red(seed):
    "Who is green alone (exit 0) stays green whatever is tried beside it, in its row and among rows of several texts."
    rng = np.random.default_rng(seed)
    parts = ("law", "code")[: 1 + seed % 2]
    arms = quants(rng.uniform(-0.02, 0.02, 16), seed, docs=40, parts=parts, spread=0.01)
    green = lambda arms: exit_of(study(arms))["code"] == 0
    some = sorted({name for name, _ in arms} - {"baseline"})
    kept = [
        name
        for name in some
        if green({key: arm for key, arm in arms.items() if key[0] in ("baseline", name)})
    ]
    assert len(kept) > 4 and green(
        {key: arm for key, arm in arms.items() if key[0] in ("baseline", *kept)}
    )
    for row in study(arms).leading:
        assert row.key.candidate not in kept or row.claim != "regressed"


@pytest.mark.parametrize("kind", ["everything", "answers", "passages", "candidates", "pooled"])
def test_questions_are_dual_to_the_interval_and_adjusted_together(kind):
    "At any level: equivalent where the interval lies inside the margin, not worse and beyond likewise; p of the family no smaller."
    made = STUDIES[kind]()
    for row in (row for row in made if row.p and row.margin):
        d, m = row.value, row.margin
        for level in (0.5, 0.8, 0.95, 0.99):
            i = d.at(level)
            low, high = (i.low, i.high) if d.better == "lower" else (-i.high, -i.low)
            shown = {
                "equivalent": -m < low and high < m,
                "not_worse": high < m,
                "beyond": low > m or high < -m,
            }
            far = min(abs(end - edge) for end in (low, high) for edge in (-m, m)) > 1e-9
            if far:
                assert {
                    question: row.p[question] < 1 - level for question in shown
                } == shown, (row.key, level)
        assert row.p["change"] >= d.p_value * (1 - 1e-12) and all(
            row.adjusted[question] >= p * (1 - 1e-12) for question, p in row.p.items()
        )
        if row.alone is None and not row.floor:
            assert row.claim in ("equivalent", "inconclusive", "improved", "regressed")
    rest = [row for row in made.select(role="rest") if row.p]
    for question in ("change", "equivalent", "not_worse", "beyond"):
        asked = [row for row in rest if question in row.p]
        if asked:
            np.testing.assert_allclose(
                [row.adjusted[question] for row in asked], holm_of(asked, question), rtol=1e-12
            )


def test_slices_at_the_margin_are_rarely_called_equivalent():
    "20 slices of 40, all worse by exactly the margin of 5 standard errors: some is called equivalent in .40 of tables where the interval decides at the step of the other test."
    wrong, found, tables = 0, 0, 60
    names = np.repeat([f"s{i:02d}" for i in range(20)], 40)
    for seed in range(tables):
        rng, margin = np.random.default_rng(seed), 5 * 0.1 / math.sqrt(40)
        old = rng.normal(0.5, 0.1, 800)
        for shift in (-margin, 0.0):
            new = old + shift + rng.normal(0, 0.1, 800)
            rows = compare(
                pair(*(scores(x, slices={"part": names}) for x in (old, new))),
                metrics=[MARK],
                margin=margin,
                by="part",
            ).select(role="rest")
            if shift:
                wrong += any(row.claim == "equivalent" for row in rows)
            else:
                found += sum(row.claim == "equivalent" for row in rows)
    assert (
        wrong / tables <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / tables)
        and found / (20 * tables) > 0.97
    ), (wrong, found)


def test_fewer_discordant_answers_never_give_a_weaker_claim():
    "0 to 5 of 1000 answers turned from right to wrong, and as many turned right: Tango's interval does not rest on their spread."
    truth = np.arange(1000) % 10 > 0
    for worse in range(6):
        for better in (0, worse):
            new = truth.copy()
            new[10 : 10 + worse], new[0] = ~truth[10 : 10 + worse], truth[0]
            new[np.flatnonzero(~truth)[:better]] = True
            done = compare(
                pair(
                    *(
                        Scores(ids=range(1000), values=x.astype(float), score="exact")
                        for x in (truth, new)
                    )
                )
            )
            assert done.claim == "equivalent" and done.row.value.enough, (worse, better)


# --- pooled --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "rule, weights",
    [
        ("equal", [1, 1, 1]),
        ("tokens", [64 * 30, 64 * 30, 64 * 10]),
        ({"code": 2, "law": 1, "news": 0}, [2, 1, 0]),
    ],
)
def test_pooled_changes_are_weighted_means(rule, weights):
    parts = three_texts() | {"news": losses(0.1, n=10)}
    done = study(arms_of(parts), Rules(pooling=rule, metrics=PPL))
    delta = np.array([compare(parts[name], metrics=PPL).delta for name in sorted(parts)])
    assert (
        done.delta == pytest.approx(np.average(delta, weights=weights), rel=1e-12)
        and [row.role for row in done.leading] == ["pooled"]
        and done.headline.startswith(done.claim.capitalize())
    )


# --- claims -----------------------------------------------------------------------------------------------------------------------------
def test_words_of_a_row():
    worse, same, better = (
        compare(losses(shift, 0.02, 120), metrics=PPL) for shift in (0.05, 0.001, -0.05)
    )
    assert [s.claim for s in (worse, same, better)] == [
        "regressed",
        "equivalent",
        "improved",
    ] and worse.improvement < 0 < better.improvement
    near, far = (
        compare(losses(0.022, 0.05, 120), metrics=PPL),
        compare(losses(0.06, 0.02, 120), metrics=PPL),
    )
    assert (
        near.claim == "regressed"
        and "beyond" not in near.headline
        and "reaches into the margin" in near.rationale
    )
    assert (
        "beyond the margin of 2 %" in far.headline
        and "lies beyond the margin" in far.rationale
    )
    few, one = (compare(losses(0.5, 0.01, n), metrics=PPL) for n in (9, 1))
    assert (
        few.claim == one.claim == "inconclusive"
        and "a claim needs 10" in few.headline
        and one.p_value is None
        and "one unit" in one.headline
    )
    two = compare(
        windows(2, shift=5, sd=2)
    )  # an interval that reaches beyond what per cent can say
    assert "to x " in two.headline
    d = compare(losses(0.002, 0.004, 400), metrics=PPL).row.value
    assert len(change_text(d.delta, d).split(".")[1]) in (4, 5) and same.headline.startswith(
        "Equivalent within 2 %: perplexity "
    )


def test_one_dominating_unit_claims_nothing():
    loss, shift = np.full(40, 2.0), np.where(np.arange(40) == 3, 5.0, 0.0)
    done = compare(
        pair_arrays(loss, loss + shift, np.full(40, 100)), metrics=PPL, units="windows"
    )
    assert (
        done.row.value.nu < 4
        and done.claim == "inconclusive"
        and "one window alone decides" in done.headline
    )


def drift_by_hand(arm, out=()):
    "Log of final over preview perplexity without some windows, window by window."
    sums = {"preview": [0, 0], "final": [0, 0]}
    for i, (t, loss) in enumerate(
        zip(arm.tokens.tolist(), arm.log_loss.tolist(), strict=True)
    ):
        part = sums[
            arm.split[i] if arm.split is not None else ("preview", "final")[i >= len(arm) // 2]
        ]
        if i not in out:
            part[0] += t * loss
            part[1] += t
    return sums["final"][0] / sums["final"][1] - sums["preview"][0] / sums["preview"][1]


@pytest.mark.parametrize(
    "split", [None, [("final", "preview")[i % 3 > 0] for i in range(120)]]
)
def test_drift_is_leaving_out_documents_by_hand(split):
    both = windows(120, sd=0.03, documents=np.arange(120) // 6, tokens=np.arange(120) % 7 + 60)
    arms = [arm.changed(split=split) for arm in (both.baseline, both.candidate)]
    done = compare(pair(*arms), metrics=["drift"])
    found = np.array(
        [[drift_by_hand(arm, range(6 * u, 6 * u + 6)) for u in range(20)] for arm in arms]
    )
    values, left = [drift_by_hand(arm) for arm in arms], found[1] - found[0]
    assert done.delta == pytest.approx(
        values[1] - values[0], rel=1e-10
    ) and done.row.value.standard_error == pytest.approx(
        np.sqrt(((left.mean() - left) ** 2).sum()), rel=1e-10
    )
    level = evaluate(arms[0], metrics=["drift"]).row.value
    fit, (low, high) = jackknife_statistic(values[0], found[0]), level.interval
    assert level.estimate == pytest.approx(math.exp(values[0]), rel=1e-12) and np.log(
        [low, high]
    ) == pytest.approx([*fit.interval()], rel=1e-9)
    assert (
        "drift" not in compare(both)
        and "drift" not in evaluate(arms[0])
        and "drift" not in METRICS.of_arms(*arms)
    ), "only where it is asked for"
    assert (
        done.row.value.unit == "ratio"
        and document_of(done)["primary_metric"]["kind"] == "drift"
    )
    with pytest.raises(UsageError, match="gate needs perplexity"):
        document_of(compare(pair(*arms), metrics=["drift"], gate=1.1))
    for some in ([0], range(60, 120)) if split is None else ([2, 4],):
        with pytest.raises(ContractError, match="preview and final must each have two units"):
            evaluate(
                arms[0].take([*some]).changed(split=["final"] * len(some)), metrics=["drift"]
            )


def test_statistics_that_are_no_ratio_know_that_neighbouring_windows_agree():
    "The same mean as a ratio of sums and as a statistic without each window: one error, in text order and of independent windows."
    rng, noise = np.random.default_rng(4), np.zeros(400)
    for i in range(1, 400):
        noise[i] = 0.7 * noise[i - 1] + rng.normal(0, 0.02)
    both = pair_arrays(np.full(400, 3.0), 3 + noise, np.full(400, 64))

    def without(arm, codes, n):
        sums = np.bincount(codes, arm.log_loss, n)
        return arm.log_loss.mean(), (sums.sum() - sums) / (
            len(arm) - np.bincount(codes, minlength=n)
        )

    left, ratio = (
        Metric(name="left", leave_one_out=without),
        Metric(name="ratio", totals=lambda arm: (arm.log_loss, np.ones(len(arm)))),
    )
    errors = {
        (asked, m.name): measure(
            m, both, choose_units(both, asked=asked), Settings()
        ).standard_error
        for asked in ("serial", "windows")
        for m in (left, ratio)
    }
    for asked in ("serial", "windows"):
        assert errors[asked, "left"] == pytest.approx(errors[asked, "ratio"], rel=0.01)
    assert errors["serial", "left"] > 1.5 * errors["windows", "left"]
    one = [evaluate(both.candidate, metrics=[m]).row.value.interval for m in (left, ratio)]
    assert [*one[0]] == pytest.approx([*one[1]], rel=1e-3)


def test_macro_f1_of_one_model_has_an_interval():
    level = evaluate(answers().baseline, metrics=["macro_f1"]).row.value
    assert 0 < level.interval.low < level.estimate < level.interval.high < 1


def test_equal_losses_are_identical_and_equal_answers_are_no_proof_of_equivalence():
    loss, noise = (
        np.random.default_rng(0).gamma(40, 0.07, 50),
        1 + np.random.default_rng(1).choice([-1, 0, 1], 50) * 2.2e-16,
    )
    same = compare(pair_arrays(loss, loss * noise, np.full(50, 7)))
    assert (
        same.delta == 0 == same.interval.width
        and same.fallback.code == "all_equal"
        and same.headline.startswith("Identical")
        and same.claim == "equivalent"
    )
    few = compare(pair_arrays([3.0, 2.0, 4.0], [3.0, 2.0, 4.0], [9, 9, 9]))
    assert few.claim == "equivalent" and "same on every item" in few.rationale
    label, prediction = (["yes" if i % k else "no" for i in range(84)] for k in (3, 4))
    arm = Predictions(
        ids=[f"x{i:02d}" for i in range(84)],
        labels=("no", "yes"),
        label=label,
        prediction=prediction,
    )
    done = compare(
        pair(arm, arm), metrics=["accuracy", "macro_f1"]
    )  # Tango: z^2 / (n + z^2), wider than the margin of 2 points
    assert (
        done.interval.high == pytest.approx(1.959964**2 / (84 + 1.959964**2), rel=1e-4)
        and {row.claim for row in done} == {"inconclusive"}
        and "no example changed" in compare(pair(arm, arm), metrics=["macro_f1"]).headline
    )


@pytest.mark.parametrize("score", ["f1", "reward"], ids=["margin", "no margin"])
def test_graded_scores_that_agree_on_every_example_are_identical(score):
    "A file with itself was inconclusive, exit 4; what it cannot show is still said."
    values = np.random.default_rng(2).uniform(0.2, 0.9, 60)

    def arm(values, name):
        return Scores(
            model=name, ids=range(len(values)), values=values, score=score, better="higher"
        )

    rules = Rules(fail_inconclusive=True)
    for names in (["new"], ["new", "copy"]):
        arms = {"baseline": arm(values, "old")} | {name: arm(values, name) for name in names}
        report = study(arms, rules).report()
        assert report.exit_code == 0
        assert {row.claim for row in report.content.of_role("lead")} == {"equivalent"}
        assert "within 0" not in report.content.headline
    same = compare(pair(arm(values, "old"), arm(values, "new")), margin={"score": 0.02})
    assert same.headline == f"Identical: {score} is the same on every item."
    assert same.row.blind_spot is not None
    for by_chance in (values[:8], np.round(values)):
        arms = pair(arm(by_chance, "old"), arm(by_chance, "new"))
        done = compare(arms, margin={"score": 1e-3})
        assert done.claim == "inconclusive"


# --- metrics of anybody -------------------------------------------------------------------------------------------------------------------
ONES = np.ones(3)


def _fails(arm):
    raise KeyError("logits")


@pytest.mark.parametrize(
    "parts, words",
    [
        (dict(totals=lambda arm: (arm.values[:2], ONES)), "numerators must have shape (3,)"),
        (
            dict(totals=lambda arm: (arm.values, [1, np.nan, 1])),
            "weights must be finite; got nan at index 1",
        ),
        (dict(totals=lambda arm: (arm.values, -ONES)), "weights must not be negative"),
        (dict(totals=lambda arm: (arm.values, 0 * ONES)), "some item must have a weight"),
        (dict(totals=lambda arm: None), "totals must return two things; got NoneType"),
        (dict(totals=_fails), "totals must run; got KeyError: 'logits'"),
        (dict(totals=lambda arm: (1j * ONES, ONES)), "numerators must be numbers"),
        (
            dict(leave_one_out=lambda arm, codes, n: (1.0, ONES * np.nan)),
            "values without each unit must be finite",
        ),
        (
            dict(leave_one_out=lambda arm, codes, n: (np.inf, ONES)),
            "the value of leave_one_out must be finite",
        ),
        (dict(leave_one_out=_fails), "leave_one_out must run"),
        (dict(prepare=lambda *arms: None), "prepare must return a Metric"),
        (dict(prepare=_fails), "prepare must run; got TypeError"),
        (
            dict(totals=MARK.totals, exact=lambda a, b, level: (1, 2)),
            "exact must return an Interval",
        ),
        (dict(totals=MARK.totals, missing=_fails), "missing must run"),
    ],
)
def test_functions_from_anybody_are_checked(parts, words):
    "The original error stays attached."
    with pytest.raises(ContractError) as caught:
        compare(
            pair(scores([1.0, 2, 3]), scores([2.0, 2, 3])),
            metrics=[Metric(name="odd", kind="scores", **parts)],
        )
    assert str(caught.value).startswith(f"metric 'odd': {words}") and isinstance(
        caught.value.__context__, (KeyError, TypeError)
    ) == ("must run" in words or "numbers" in words)


def test_one_name_is_one_metric():
    "The same metric may be registered again; another one needs another name or replace=True; built-in names stay."
    square, cube = (
        Metric(
            name="twice",
            kind="scores",
            totals=lambda arm, power=power: (arm.values**power, np.ones(len(arm))),
        )
        for power in (2, 3)
    )
    with METRICS.registered(square):
        assert register_metric(square) is METRICS["twice"]
        with pytest.raises(
            UsageError, match="must not be that of another metric; got 'twice'.*replace=True"
        ):
            register_metric(cube)
        assert register_metric(cube, replace=True) is METRICS["twice"]
        with pytest.raises(ZeroDivisionError), METRICS.registered(MARK):
            1 / 0
        assert METRICS["twice"] is cube
    assert "twice" not in METRICS and "mark" not in METRICS
    for again in (False, True):
        with pytest.raises(UsageError, match="got 'accuracy'"):
            register_metric(
                Metric(name="accuracy", kind="answers", totals=MARK.totals), replace=again
            )


@pytest.mark.parametrize(
    "loaded",
    [
        Metric(name="theirs", kind="runs", totals=MARK.totals),
        Metric(name="ours", kind="scores", totals=abs),
        5,
    ],
)
def test_metrics_of_installed_packages_are_those_that_they_announce(monkeypatch, loaded):
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group: [type("Point", (), {"name": "theirs", "load": lambda self: loaded})()],
    )
    if getattr(loaded, "name", None) == "theirs":
        assert Registry()["theirs"] is loaded and [
            m.name for m in Registry().of_kind("runs")
        ] == ["theirs"]
    else:
        with pytest.raises(
            ContractError,
            match="entry point 'theirs' of invar_nb.metrics: it must be a Metric of that name",
        ):
            Registry()["theirs"]


def test_an_undefined_metric_is_listed_or_refused():
    never = Metric(
        name="never",
        kind="losses",
        totals=lambda arm: (np.zeros(len(arm)), np.zeros(len(arm))),
    )
    with pytest.raises(ContractError, match="some item must have a weight"):
        compare(windows(), metrics=[never])
    with METRICS.registered(never):
        done = compare(windows())
    assert (
        "never" in done.measured["candidate", ""].missing
        and [row.key.metric for row in done] == PPL
    )


def test_choices_are_compared_but_never_as_classes():
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.8, 0], [0.1, 0.1, 0.8], [0.6, 0.4, 0]])
    arms = [
        Predictions(
            ids=list("abcd"),
            label=list("0120"),
            labels=("0", "1", "2"),
            probabilities=q,
            labels_from=how,
        )
        for q, how in ((p, "choices"), (p[:, [1, 0, 2]], "choices"), (p, "given"))
    ]
    done = compare(pair(arms[0], arms[1]))
    assert (
        not done.select(metric="macro_f1")
        and "classes" in done.measured["candidate", ""].missing["macro_f1"]
        and done["accuracy"].value.candidate == 0.25
        and compare(pair(arms[2], arms[2]))["macro_f1"]
    )
    assert all("macro_f1" not in arm["details"] for arm in document_of(done)["arms"].values())


def test_scores_of_0_and_1_are_judged_as_accuracy_is():
    a, b = (getattr(marks(binary=True), name) for name in ("baseline", "candidate"))
    said = lambda arm: Predictions(
        ids=arm.ids,
        label=["yes"] * 60,
        labels=("no", "yes"),
        prediction=np.where(arm.values == 1, "yes", "no").tolist(),
    )
    one, two = (
        compare(pair(a, b), metrics=["score"]).row,
        compare(pair(said(a), said(b)), metrics=["accuracy"]).row,
    )
    assert (ends(one), one.value.p_value, one.claim) == (
        ends(two),
        two.value.p_value,
        two.claim,
    )
    clustered = compare(marks(binary=True, clusters=np.repeat(range(20), 3).tolist()))
    assert (
        clustered.method == "jackknife"
        and clustered.row.value.unit == "share"
        and clustered.n_units == 20
    )


# --- differences ------------------------------------------------------------------------------------------------------------------------
def test_ratio_of_two_windows():
    done = compare(pair_arrays(np.log([40.0, 220.0]), np.log([38.0, 260.0]), [512, 256]))
    assert done.ratio == pytest.approx(1.02172172, abs=5e-9) and (
        done.ratio_interval.low,
        done.ratio_interval.high,
    ) == (math.exp(done.interval.low), math.exp(done.interval.high))


@pytest.mark.parametrize("documents", [None, np.repeat(np.arange(20), 3)])
def test_exchanging_the_arms_turns_the_sign(documents):
    data = windows(documents=documents)
    there, back = (
        compare(data),
        compare(Pair(baseline=data.candidate, candidate=data.baseline)),
    )
    assert (
        back.delta == pytest.approx(-there.delta, rel=1e-12)
        and back.p_value == pytest.approx(there.p_value, rel=1e-9)
        and ends(back.row) == pytest.approx([-x for x in ends(there.row)[::-1]], rel=1e-9)
    )


def test_a_bootstrap_by_name():
    data, drawn = (
        windows(documents=np.repeat(np.arange(20), 3)),
        dict(method="bca", replicates=1200, seed=7),
    )
    one, two = (compare(data, **drawn) for _ in range(2))
    assert (
        one.interval == two.interval
        and one.units == "windows"
        and ":1200@7" in document_of(one)["signature"]
        and compare(data, method="percentile", units="documents").n_units == 20
    )
    assert (
        "too short" in compare(data, **drawn, resample="tokens").row.value.note
        and one.row.value.note is None
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 2**31),
    st.sampled_from([1e-9, 1e-3, 1.0, 30.0]),
    st.booleans(),
)
def test_any_pair_gives_an_answer(n, seed, size, grouped):
    rng = np.random.default_rng(seed)
    loss = rng.gamma(2, 1, n)
    data = pair_arrays(
        loss,
        np.maximum(loss + size * rng.standard_t(2, n), 1e-12),
        rng.integers(1, 300, n),
        document_ids=rng.integers(0, 5, n) if grouped else None,
        sums=False,
    )
    for units in ("auto", "windows", "serial"):
        done = compare(data, units=units)
        assert done.interval.low <= done.delta <= done.interval.high and (
            done.p_value is None if done.n_units == 1 else 0 <= done.p_value <= 1
        )


@pytest.mark.parametrize("units", ["documents", "serial", "windows"])
def test_compare_gives_the_interval_whose_coverage_is_measured(units):
    "The coverage tables call the statistics; `compare` must give their ends, by its own road from losses to units."
    documents, tokens = (
        np.repeat(np.arange(20), 3),
        np.random.default_rng(0).integers(20, 300, 60),
    )
    data = windows(documents=documents, tokens=tokens)
    theirs = jackknife_interval(
        data.candidate.log_loss - data.baseline.log_loss,
        tokens,
        units=units,
        document_ids=documents if units == "documents" else None,
    )
    assert ends(compare(data, units=units).row) == pytest.approx(
        (theirs.low, theirs.high), rel=1e-9
    )


def test_tasks_are_a_family_of_their_own():
    tasks = study(
        arms_of(
            {
                "a": marks(shift=-0.5, seed=1),
                "b": marks(shift=0, seed=2),
                "c": marks(shift=0.01, seed=3),
                "d": marks(shift=0.4, seed=4),
            }
        )
    )
    np.testing.assert_allclose(
        [row.adjusted_p for row in tasks.leading], holm_of(tasks.leading), rtol=1e-12
    )
    assert {row.key.part: row.claim for row in tasks.leading} | {"b": 0, "c": 0} == {
        "a": "regressed",
        "b": 0,
        "c": 0,
        "d": "improved",
    } and tasks.claim == "regressed"


def test_families_alarm_rarely():
    "No effect anywhere: some regressed or improved among six slices in at most .05 of families (seeds fixed)."
    alarms, trials = 0, 150
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        old = rng.normal(0, 1, 120)
        both = pair(
            *(
                Scores(ids=range(120), values=v, slices={"group": tuple(np.arange(120) % 6)})
                for v in (old, old + rng.normal(0, 1, 120))
            )
        )
        alarms += any(
            row.claim in ("regressed", "improved")
            for row in compare(both, metrics=[replace(MARK, margin=0.0)]).select(role="rest")
        )
    assert alarms / trials < 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


def test_effective_sample_size_is_a_ratio_of_variances():
    rng, documents, loss = (
        np.random.default_rng(2),
        np.repeat(np.arange(40), 10),
        np.full(400, 2.0),
    )
    data = pair_arrays(
        loss,
        loss + rng.normal(0, 0.01, 40)[documents],
        np.full(400, 100),
        document_ids=documents,
    )
    done, alone = (
        compare(data),
        measure(METRICS["perplexity"], data, choose_units(data, asked="windows"), Settings()),
    )
    assert (
        done.n == 400 == alone.n_eff
        and done.n_units == 40
        and 35 < done.n_eff < 45
        and done.interval.width > 2.5 * alone.interval.width
    )  # the windows of a document agree


def test_one_long_document_beside_eleven_short_ones_is_a_text_in_order():
    assert (
        choose_units(windows(documents=np.r_[np.zeros(49, int), np.arange(11) + 1])).name
        == "serial"
        and choose_units(windows(documents=np.repeat(np.arange(12), 5))).name == "documents"
    )


def test_what_one_arm_lacks_is_no_contradiction():
    one, two = (
        WindowLosses.from_arrays(
            [f"w{i}" for i in range(5)], [10] * 5, [x] * 5, document_ids=ids
        )
        for x, ids in ((2.0, list("aabbb")), (2.1, None))
    )
    assert pair(one, two).clusters == pair(two, one).clusters == tuple("aabbb")
    a, b = (
        Scores(ids=["b", "a"], values=[1, 2], clusters=["y", "x"]),
        Scores(ids=["a", "b"], values=[5, 6], prompt_digests=["p", "q"]),
    )
    assert pair(a, b).clusters == ("x", "y") and a.values.tolist() == [2, 1]


# --- refusals ---------------------------------------------------------------------------------------------------------------------------
def window_arm(n=5, **changes):
    columns = (
        dict(
            window_ids=[f"w{i}" for i in range(n)],
            tokens=[10] * n,
            log_loss=[2.0] * n,
            document_ids=list("aabbb")[:n],
            data_id="d:1",
        )
        | changes
    )
    return WindowLosses.from_arrays(
        columns.pop("window_ids"), columns.pop("tokens"), columns.pop("log_loss"), **columns
    )


def two_scores(**other):
    common = dict(
        ids=["a", "b"],
        values=[1, 0],
        score="f1",
        prompt_digests=["p", "q"],
        data_id="squad@2",
        slices={"language": ("en", "es")},
    )
    return pair(Scores(**common), Scores(**common | other))


BASE, SLICED = (
    ("baseline", ""),
    lambda **rules: compare(pair(*[scores([1.0, 2.0], slices={"a": (1, 2)})] * 2), **rules),
)
REFUSALS = [
    # pairs
    *[
        (lambda other=other: pair(window_arm(), window_arm(**other)), "pairing")
        for other in (
            dict(n=4),
            dict(data_id="d:2"),
            dict(document_ids=list("aabba")),
            dict(weight_unit="bytes"),
        )
    ],
    (
        lambda: compare(
            pair(
                *(
                    window_arm(document_ids=None, window_ids=ids)
                    for ids in (["w0", "w1", "w2", "w3", "w4"], ["w1", "w0", "w2", "w3", "w4"])
                )
            )
        ),
        "pairing",
    ),
    *[
        (lambda other=other: two_scores(**other), "pairing")
        for other in (
            {"better": "lower"},
            {"prompt_digests": ["p", "r"]},
            {"score": "exact"},
            {"data_id": "squad@3"},
            {"slices": {"language": ("en", "en")}},
        )
    ],
    (lambda: pair(scores([1.0]), window_arm()), "pairing"),
    (lambda: pair([1, 2], [1, 2]), "pairing"),
    (lambda: pair_arrays([1, 2], [1, 2], [1]), "pairing"),
    (lambda: pair_arrays([1, float("nan")], [1, 2], [1, 1]), "contract"),
    *[
        (lambda bad=bad: pair_arrays(*bad), "contract")
        for bad in ((1.0, 1.0, 5), (None, None, None), ([1.0], [1.0], 5))
    ],
    *[
        (lambda ids=ids: pair_arrays([1.0, 2], [1.0, 2], [5, 5], document_ids=ids), "contract")
        for ids in (5, "ab")
    ],
    *[
        (lambda wrong=wrong: Scores(ids=["a", "b"], values=[1, 2], **wrong), "contract")
        for wrong in (
            {"better": "faster"},
            {"clusters": ["x", None]},
            {"provenance": 3},
            {"prompt_digests": ["x"]},
        )
    ],
    (
        lambda: Predictions(
            ids=["a"], label=["x"], labels=["x", "y"], prediction=["y"], slices=5
        ),
        "contract",
    ),
    # rules
    *[
        (lambda rules=rules: Rules(**rules), "usage")
        for rules in (
            dict(level=95),
            dict(method="bootstrap"),
            dict(replicates=100),
            dict(seed=1),
            dict(resample="tokens"),
            dict(method="bca", units="serial"),
            dict(margin={"perplexity": 20}),
            dict(method="bca", replicates=1e12, seed=1),
            dict(method="bca", replicates=0, seed=1),
            dict(gate=0.5),
            dict(gate=20.0),
            dict(gate="1.1"),
            dict(gate=True),
            dict(profile="prod"),
            dict(profile=None),
            dict(margin="two"),
            dict(margin={"mine": -1}),
            dict(pooling="all"),
            dict(pooling={"law": "x"}),
            dict(pooling=3),
            dict(better={"loss": "less"}),
            dict(better="lower"),
            dict(scale={"loss": 2}),
            dict(multiplicity="none"),
            dict(intersect=1),
            dict(fail_inconclusive=None),
            dict(metrics=[3]),
            dict(by={"language": 1}),
            dict(deciding=5),
        )
    ],
    *[
        (lambda tier=tier: Rules(tier=tier), "usage")
        for tier in ("tight", None, 5, {"name": "balanced"})
    ],
    *[
        (lambda rules=rules: compare(answers(), **rules), "usage")
        for rules in (
            dict(gate=1.1),
            dict(tier="aggressive"),
            dict(better={"accuracy": "higher"}),
        )
    ],
    *[
        (lambda margin=margin: as_margin(margin, METRICS["perplexity"]), "usage")
        for margin in (-0.1, math.nan, True, "two", 20, 1.0)
    ],
    *[
        (lambda rules=rules: compare(windows(), **rules), "usage")
        for rules in (
            dict(units="documents"),
            dict(units="clusters"),
            dict(metrics=["perplexty"]),
            dict(metrics=["accuracy"]),
            dict(metrics=[MARK]),
            dict(metrics=["perplexity"] * 2),
            dict(margin={"accuracy": 0.1}),
            dict(margin={"mrk": 0.1}),
            dict(by="nope"),
            dict(by=["language"]),
            dict(deciding="x"),
        )
    ],
    (lambda: SLICED(by="b"), "usage"),
    (lambda: SLICED(by=5), "usage"),
    (lambda: compare(None), "usage"),
    (lambda: compare([windows()]), "usage"),
    (lambda: compare(windows(), metrics=5), "usage"),
    *[
        (lambda parts=parts: Metric(name="x", **parts), "usage")
        for parts in (
            dict(),
            dict(totals=abs, leave_one_out=abs),
            dict(totals=5),
            dict(totals=abs, margin=-1),
        )
    ],
    *[
        (lambda parts=parts: Metric(name="x", totals=abs, **parts), "contract")
        for parts in (dict(better="bigger"), dict(scale="log2"), dict(kind="score"))
    ],
    (lambda: compare(pair_arrays([800.0] * 12, [801.0] * 12, [9] * 12)), "contract"),
    # studies
    (lambda: study({}), "usage"),
    (lambda: study({("x", ""): losses().baseline}), "usage"),
    (lambda: study(arms_of({"pooled": losses()})), "usage"),
    (lambda: study(arms_of({"": losses()}), Rules(pooling="equal")), "usage"),
    (lambda: study(arms_of(three_texts()), Rules(pooling={"law": 1})), "usage"),
    (lambda: study(arms_of(three_texts()), Rules(pooling="all")), "usage"),
    (
        lambda: study(arms_of(three_texts() | {"one": losses(n=1)}), Rules(pooling="equal")),
        "single_pair",
    ),
    (lambda: study(arms_of({"a": losses(), "b": answers()}), Rules(margin=0.1)), "usage"),
    (lambda: study(arms_of({"a": losses(), "b": answers()}), Rules(units="serial")), "usage"),
    (lambda: study(arms_of({"a": losses(), "b": answers()}), Rules(pooling="equal")), "usage"),
    (
        lambda: study(
            copies()
            | {
                BASE: copies()[BASE].changed(provenance={"weights_digest": "a"}),
                ("control", ""): copies()[BASE].changed(provenance={"weights_digest": "b"}),
            }
        ),
        "not_the_baseline",
    ),
    (lambda: study(copies() | {("control", ""): window_arm()}), "pairing"),
    (lambda: study(copies() | {("other", ""): window_arm()}), "pairing"),
    (lambda: compare(looked().take(np.arange(30))), "not_a_look"),
    (
        lambda: compare(
            Pair(baseline=looked().baseline, candidate=looked(seed=1, looks=3).candidate)
        ),
        "looks_differ",
    ),
    # one arm
    *[
        (lambda arm=arm, rules=rules: study({BASE: arm}, Rules(**rules)), "usage")
        for arm, rules in (
            (losses().baseline, {"by": "nope"}),
            (answers().baseline, {"by": "nope"}),
            (losses().baseline, {"metrics": ["perplexity"] * 2}),
            (losses().baseline, {"metrics": "accuracy"}),
        )
    ],
]


@pytest.mark.parametrize("call, code", REFUSALS, ids=map(str, range(len(REFUSALS))))
def test_refusals(call, code):
    with pytest.raises(ContractError) as caught:
        call()
    assert caught.value.code == code and caught.value.cure and "\n" not in str(caught.value), (
        str(caught.value)
    )


# --- how often a word is wrong ------------------------------------------------------------------------------------------------------------
LAWS = {  # mean 0, variance 1, and whether they are symmetric
    "normal": (lambda rng, n: rng.normal(size=n), True),
    "laplace": (lambda rng, n: rng.laplace(size=n) / math.sqrt(2), True),
    "t3": (lambda rng, n: rng.standard_t(3, n) / math.sqrt(3), True),
    "mixture": (
        lambda rng, n: (
            rng.normal(size=n) * np.where(rng.random(n) < 0.9, 1, 5) / math.sqrt(3.4)
        ),
        True,
    ),
    "gamma": (lambda rng, n: rng.gamma(1, 1, n) - 1, False),
    "lognormal": (
        lambda rng, n: (
            (np.exp(0.8 * rng.normal(size=n)) - math.exp(0.32))
            / math.sqrt((math.exp(0.64) - 1) * math.exp(0.64))
        ),
        False,
    ),
}


def simulated(law, trials, *, centre, sd, n, seed, sign=1, units="auto", margin=0.02):
    "Studies of pairs of n windows whose differences have this mean, standard deviation and law."
    rng, draw = np.random.default_rng(seed), LAWS[law][0]
    for _ in range(trials):
        loss = np.full(n, 90.0) + rng.random(n)
        yield compare(
            pair_arrays(
                loss, loss + centre + sign * sd * draw(rng, n), np.full(n, 100), sums=False
            ),
            metrics=PPL,
            units=units,
            margin=margin,
        )


SLOW = [
    pytest.param(law, n, units, 2000, marks=pytest.mark.slow)
    for law in LAWS
    for n in (60, 180, 600)
    for units in ("windows", "serial")
]


@pytest.mark.parametrize(
    "law, n, units, trials",
    [("normal", 60, "windows", 400), ("gamma", 60, "windows", 400), *SLOW],
)
def test_words_are_wrong_as_rarely_as_promised(law, n, units, trials):
    "Each word at its edge; skewed laws in both directions."
    limit, both = (0.04, 0.06) if LAWS[law][1] else (0.08, 0.085)
    noise = lambda p: 3 * math.sqrt(p * (1 - p) / trials)
    for sign in (1,) if LAWS[law][1] else (1, -1):
        how = dict(
            sd=0.012 * math.sqrt(n) / 1.96 / 1.2, n=n, sign=sign, units=units
        )  # the interval fits into the margin
        edge = [
            (
                "equivalent"
                if s.claim == "equivalent"
                else "beyond"
                if s.interval.low > 0.02
                else ""
            )
            for s in simulated(law, trials, centre=0.02, seed=5, **how)
        ]
        zero = [
            s.claim in ("improved", "regressed")
            for s in simulated(law, trials, centre=0.0, seed=6, margin=0.0, **how)
        ]
        assert max(edge.count("equivalent"), edge.count("beyond")) / trials <= limit + noise(
            limit
        ) and np.mean(zero) <= both + noise(both), (law, sign, n)


POWER = [
    pytest.param(law, c, 0.02, 2000, marks=pytest.mark.slow)
    for law in ("normal", "laplace", "t3", "gamma")
    for c in (0.03, 0.05, 0.0, 0.01)
]


@pytest.mark.parametrize(
    "law, centre, margin, trials",
    [
        ("normal", 0.03, 0.02, 600),
        ("normal", 0.05, 0.02, 600),
        ("normal", 0.02, 0.02, 600),
        *POWER,
    ],
)
def test_n_for_power_gives_the_power(law, centre, margin, trials):
    "The claim comes in .75 to .85 of simulations; for symmetric laws where n is not small, as page planning promises."
    n, claim = (
        n_for_power(0.1, centre, margin),
        "regressed" if centre >= margin else "equivalent",
    )
    rate = np.mean(
        [
            s.claim == claim
            for s in simulated(
                law, trials, centre=centre, sd=0.1, n=n, seed=1, units="windows", margin=margin
            )
        ]
    )
    print(f"power, {law}, D {centre}, margin {margin}: n {n}, {claim} in {rate:.3f}")
    if law == "normal" or LAWS[law][1] and n >= 60:
        assert abs(rate - 0.8) < 0.05 + 3 * math.sqrt(0.8 * 0.2 / trials) * (trials < 1000), (
            n,
            rate,
        )


def test_a_document_that_decides_the_units_is_said(tmp_path):
    "Nine documents and a book: in memory, and added up from files."
    from invar_nb.comparison.units import units_rule

    ids = ["book"] * 60 + [f"d{i}" for i in range(9)]
    tokens = np.full(69, 64)
    rng, base = np.random.default_rng(1), np.linspace(2, 3, 69)
    d = compare(pair_arrays(base, base + rng.normal(0, 0.02, 69), tokens, document_ids=ids))
    (because,) = {m.units.because for m in d.measured.values()}
    assert (
        d.units == "serial"
        and because.startswith("10 documents (1.3 effective; ")
        and "one has 87 % of the tokens" in because
    )
    assert "one has" not in units_rule("auto", 9, 9, 9.0, 1 / 9 - 0.02)[1]


def test_one_arm_has_an_interval_over_its_units():
    "Clustered shares by their clusters, inside 0 and 1; losses by documents; one unit has none."
    rng = np.random.default_rng(6)
    right = np.repeat(rng.random(40) < 0.9, 5)
    label, said = ["y"] * 200, np.where(right, "y", "n").tolist()
    arm = lambda clusters: Predictions(
        ids=range(200), label=label, prediction=said, labels=("y", "n"), clusters=clusters
    )
    alone, groups = (
        evaluate(arm(c), metrics=["accuracy"])["accuracy"]
        for c in (None, [f"c{i // 5}" for i in range(200)])
    )
    assert (
        groups.value.interval.width > 1.8 * alone.value.interval.width
        and 0 < groups.value.interval.low < groups.value.interval.high < 1
    )
    assert (alone.about, groups.about) == (
        {"over": "200 examples"},
        {"over": "40 clusters"},
    ) and alone.value.interval.method == "wilson"
    text = evaluate(losses(n=60).baseline)["perplexity"]
    assert text.value.interval.low < text.value.estimate < text.value.interval.high
    lone = evaluate(losses(n=60).baseline.take([0]))["perplexity"]
    assert lone.value.interval is None and not lone.about
    assert (
        "2 parts, each measured by itself."
        in evaluate({"a": arm(None), "b": losses(n=60).baseline}).headline
    )


def test_what_a_newcomer_types_in_python():
    "Candidates by name, rules as options, a printed table, and refusals that say what to write."
    both = losses()
    arms = {"baseline": both.baseline, "q8": both.candidate, "q4": both.candidate}
    ranked, same = (
        study(arms, margin=0.02),
        study({(name, ""): arm for name, arm in arms.items()}, Rules(margin=0.02)),
    )
    assert (
        ranked.headline == same.headline
        and ranked.summary() == same.report().summary()
        and str(ranked).splitlines()[0] == ranked.headline
    )
    assert {"ratio", "interval", "n_eff", "select"} <= {*dir(ranked)} and repr(
        compare(both)
    ).endswith("96 documents)")
    own = Metric(
        name="own", unit="nats", better="lower", scale="linear", totals=lambda arm: arm.totals
    )
    assert study(arms, metrics=[own]).row.value.metric is own
    assert compare(both.baseline, both.candidate).headline == compare(both).headline
    for wrong, said in (
        (lambda: compare(both.baseline), "compare(a, b) of two arms"),
        (lambda: compare([both, both]), 'study({"baseline": arm'),
        (lambda: compare(both, margn=0.02), "Did you mean 'margin'?"),
        (lambda: compare(both, metric="x"), "Did you mean 'metrics'?"),
        (lambda: study({"base": both.baseline}), "an arm called 'baseline'; got 'base'"),
    ):
        with pytest.raises(UsageError) as caught:
            wrong()
        assert said in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(KeyError, match=r"write study\['q4', 'perplexity'\]"):
        ranked["perplexity"]
    scores = [
        Scores(
            ids=[f"e{i}" for i in range(40)],
            values=[(i * 7 + 3 * k) % 10 / 10 for i in range(40)],
            score="f1",
            better="higher",
        )
        for k in range(2)
    ]
    assert compare(pair(*scores), margin={"f1": 0.05})["score"].margin == 0.05


def test_a_frame_has_keys_claim_and_ends_first():
    pandas = pytest.importorskip("pandas")
    frame = compare(losses()).to_frame()
    assert [*frame.columns[:5]] == [
        "candidate",
        "part",
        "metric",
        "slice",
        "claim",
    ] and isinstance(frame, pandas.DataFrame)
    assert (frame.low < frame.delta).all() and (frame.delta < frame.high).all()


# --- what an arm is given -------------------------------------------------------------------------------------------------------------
N, LETTERS = 20, [f"x{i:02d}" for i in range(20)]


def arm_of(kind, slices):
    "An arm of one kind with columns to slice by, which losses have in their provenance."
    if kind == "scores":
        return Scores(ids=LETTERS, values=range(N), slices=slices)
    if kind == "answers":
        return Predictions(
            ids=LETTERS, label=["y", "n"] * 10, prediction=["y"] * N, slices=slices
        )
    if kind == "translations":
        return Translations(
            ids=LETTERS, hypotheses=["a"] * N, references=["a"] * N, slices=slices
        )
    return WindowLosses.from_arrays(
        LETTERS,
        [9] * N,
        [1] * N,
        document_ids=LETTERS,
        provenance={
            "document_slices": {
                name: dict(zip(LETTERS, values, strict=True))
                for name, values in slices.items()
            }
        },
    )


KINDS = ("scores", "answers", "translations", "losses")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_a_slice_without_a_name_would_stand_for_all_items(kind, name):
    with pytest.raises(ContractError, match="name of a slice must be text that is not blank"):
        arm_of(kind, {name: ["rest"] * 16 + ["z"] * 4})


@pytest.mark.parametrize("kind", KINDS)
def test_two_slices_of_one_name_are_refused_and_none_is_lost(kind):
    arm = arm_of(
        kind,
        {"region": ["north east", "south"] * 10, "region north": ["west"] * 12 + ["east"] * 8},
    )
    both = Pair(baseline=arm, candidate=arm)
    with pytest.raises(
        ContractError,
        match="got 'north east' of 'region' and 'east' of 'region north', both 'region north east'",
    ):
        compare(both, by=["region", "region north"])
    assert {row.key.slice for row in compare(both, by=["region"])} == {
        None,
        "region north east",
        "region south",
    }


@pytest.mark.parametrize("kind", ("scores", "answers"))
def test_a_missing_value_and_the_text_that_says_so_are_not_one_slice(kind):
    with pytest.raises(ContractError, match="value that is missing in 'a'"):
        evaluate(arm_of(kind, {"a": [None, "(none)"] * 10}), by="a")
    assert {
        row.key.slice for row in evaluate(arm_of(kind, {"a": [math.nan, "b"] * 10}), by="a")
    } == {None, "a (none)", "a b"}


@pytest.mark.parametrize("values", [[[1]] * N, "ab" * 10, {*LETTERS}, dict.fromkeys(LETTERS)])
def test_a_slice_is_a_list_of_plain_values(values):
    for kind in KINDS[:3]:
        with pytest.raises(ContractError, match="slice 'a'"):
            arm_of(kind, {"a": values})
    with pytest.raises(ContractError, match="slices must map names"):
        arm_of("scores", ["a"])


def test_the_direction_of_a_further_score_is_the_one_that_was_said():
    slow = lambda shift, lower: Scores(
        ids=LETTERS, values=range(N), others={"seconds": np.arange(N) + shift}, lower=lower
    )
    for lower in ("seconds", ("seconds",)):
        assert (
            study({"baseline": slow(0, lower), "x": slow(2, lower)})["score:seconds"].claim
            == "regressed"
        )
    for lower in ("second", ("second",), ("score",)):
        with pytest.raises(
            ContractError, match="lower must name scores of others, here 'seconds'; got '"
        ):
            slow(0, lower)


BY_CHANCE = [
    {*LETTERS},
    frozenset(LETTERS),
    dict.fromkeys(LETTERS),
    dict.fromkeys(LETTERS).keys(),
]


@pytest.mark.parametrize("names", BY_CHANCE, ids=lambda names: type(names).__name__)
def test_what_has_no_order_is_refused_wherever_order_matters(names):
    answers = dict(ids=LETTERS, label=["y", "n"] * 10, prediction=["y"] * N)
    rows = {"id": LETTERS, "label": ["y", "n"] * 10, "prediction": ["y"] * N}
    acts = [
        lambda: Scores(ids=names, values=range(N)),
        lambda: Scores(ids=LETTERS, values=names),
        lambda: Scores(ids=LETTERS, values=range(N), clusters=names),
        lambda: Translations(ids=LETTERS, hypotheses=names, references=["a"] * N),
        lambda: Translations(ids=LETTERS, hypotheses=["a"] * N, references=names),
        lambda: Translations(ids=LETTERS, hypotheses=["a"] * N, references=[{"a", "b"}] * N),
        lambda: corpus_bleu(LETTERS, names),
        *(
            lambda field=field: Predictions(**answers | {field: names})
            for field in ("ids", "label", "prediction", "labels", "confidence", "clusters")
        ),
        lambda: predictions_from_columns(rows | {"id": names}),
        lambda: predictions_from_columns(rows, labels=names),
        lambda: WindowLosses.from_arrays(names, [9] * N, [1] * N),
        lambda: pair_arrays([1] * N, names, [9] * N),
        lambda: pair_arrays([1] * N, [1] * N, [9] * N, document_ids=names),
        lambda: confusion_matrix(LETTERS, LETTERS, names),
        lambda: confusion_matrix(names, LETTERS, LETTERS),
    ]
    for act in acts:
        with pytest.raises(ContractError, match=r"^[^\n]+; got [^\n]+$"):
            act()


def test_columns_of_pandas_are_paired_by_their_places_or_not_at_all():
    pandas = pytest.importorskip("pandas")
    a = pandas.Series(np.linspace(0.1, 0.9, N), index=LETTERS)
    b, ones = a.sample(frac=1, random_state=0), pandas.Series([9] * N)
    right = lambda series: pandas.Series([1, 0] * 10, index=series.index)
    pairs = {
        pair_arrays: (a, b, [9] * N),
        paired_t_test: (a, b),
        Scores: None,
        discordant_pairs: (right(a), right(b)),
        brier_score: (a, right(b)),
        expected_calibration_error: (a, right(b)),
        smooth_calibration_error: (a, right(b)),
        calibration_error: (a, right(b)),
        weighted_mean: (a, ones),
        perplexity: (a, ones),
        jackknife_interval: (a, ones),
        predictions_from_columns: ({"id": right(a), "label": right(b)},),
        confusion_matrix: (right(a), right(b), [0, 1]),
    }
    for act, columns in pairs.items():
        with pytest.raises(
            ContractError, match=r"must have one index.*reindex.*\.to_numpy\(\)"
        ):
            act(*columns) if columns else act(ids=ones, values=a)
    with pytest.raises(ContractError, match="ids and slices 'a' must have one index"):
        Scores(ids=pandas.Series(LETTERS), values=range(N), slices={"a": b})
    with pytest.raises(ContractError, match="label and confidence must have one index"):
        Predictions(ids=LETTERS, label=right(a), prediction=right(a), confidence=b)
    aligned = b.reindex(a.index)
    assert (
        paired_t_test(a, aligned).mean == 0 == paired_t_test(a.to_numpy(), aligned).mean
        and compare(pair_arrays(a, aligned, [9] * N)).delta == 0
    )


def test_probabilities_of_a_frame_are_refused_since_its_columns_have_an_order_of_their_own():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [0.3] * N, "y": [0.7] * N})
    made = lambda p: Predictions(
        ids=LETTERS, label=["y"] * N, labels=("y", "n"), probabilities=p
    )
    with pytest.raises(ContractError, match="got DataFrame. Pass frame"):
        made(frame)
    assert made(frame[["y", "n"]].to_numpy()).correct.all()


@pytest.mark.parametrize(
    "option", [{"margin": 0.001}, {"level": 0.5}, {"metrics": ["perplexity"]}]
)
def test_rules_are_given_once(option):
    "A margin typed beside rules was ignored: the answer was that of 2 %."
    arms = arms_of({"": losses(1)})
    (name,) = option
    with pytest.raises(UsageError, match=f"rules must be given once; got {name} beside rules"):
        study(arms, Rules(), **option)
    assert study(arms, Rules(**option), **{name: getattr(Rules(), name)}).rules.to_dict()


@pytest.mark.parametrize("names", [("control",), ()])
def test_every_part_of_a_study_has_a_candidate(names):
    "A part of a baseline and its control ended in a KeyError of the report."
    arms = arms_of({"": losses(1)})
    base = next(arm for (name, _), arm in arms.items() if name == "baseline")
    beside = {("baseline", "law"): base} | {(name, "law"): base for name in names}
    with pytest.raises(UsageError, match="every part must have a candidate; got .* in 'law'"):
        study({(name, "news"): arm for (name, _), arm in arms.items()} | beside)
    if names:
        with pytest.raises(UsageError, match="every part must have a candidate"):
            study({"baseline": base, "control": base})


@pytest.mark.parametrize("name", ["", " ", "baseline ", "x\n", 5])
def test_a_candidate_has_a_name_that_can_be_told_apart(name):
    arm = arm_of("scores", {})
    with pytest.raises(
        UsageError, match="a candidate must have a name without blanks around it"
    ):
        study({("baseline", ""): arm, (name, ""): arm})


@pytest.mark.parametrize("margin", [Fraction(1, 50), {"score": Fraction(1, 50)}])
def test_a_margin_that_is_a_fraction_reaches_the_report(margin):
    arm = arm_of("scores", {})
    assert (
        document_of(study({"baseline": arm, "x": arm}, margin=margin))["rows"][0]["margin"]
        == 0.02
    )


# --- compare takes what a newcomer has ------------------------------------------------------------------------------------------------
def f1_columns(n=600, fall=0.03):
    rng = np.random.default_rng(3)
    old = rng.beta(6, 2, n)
    return old, np.clip(old - fall + rng.normal(0, 0.05, n), 0, 1)


def test_compare_takes_two_paths_two_arms_and_two_arrays_with_a_score(tmp_path):
    "A fall of F1 was sent to pair_arrays, and came back as `Equivalent: perplexity -0.87 %`."
    import pandas as pd

    old, new = f1_columns()
    arms = [scores(x) for x in (old, new)]
    want = compare(pair(*arms))
    assert (
        want.claim == "regressed"
        and want.headline.startswith("Regressed: f1 -")
        and " points" in want.headline
    )
    for name, values in (("old", old), ("new", new)):
        pd.DataFrame({"id": range(600), "f1": values, "other": values}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    paths = [tmp_path / "old.csv", str(tmp_path / "new.csv")]
    for made in (
        compare(*arms),
        compare(old, new, score="f1"),
        compare(old.tolist(), tuple(new.tolist()), score="f1"),
        compare(pd.Series(old), pd.Series(new)[::-1], score="f1"),
        compare(*paths, score="f1"),
    ):
        assert (made.claim, made.headline, made.delta) == (
            want.claim,
            want.headline,
            pytest.approx(want.delta, rel=1e-12),
        )
        assert (
            made["f1"] is made.row
            and "f1" in made
            and made["score"] is made.row
            and [*made.to_frame().metric][0] == "f1"
        )
    with pytest.raises(KeyError, match="F1; .*'?f1"):
        want["F1"]
    assert (
        compare(old, new, score="seconds").claim
        == "improved"
        == compare(old, new, score="hours", better="lower").claim
        and compare(old, new, score="f1", margin=0.05).claim == "equivalent"
    )
    right = (np.arange(400) % 3 > 0).astype(int)
    assert compare(right, right, score="correct").headline.startswith(
        ("Inconclusive: correct", "Equivalent within 2 points: correct")
    )
    text = windows(120, documents=[f"d{i // 2}" for i in range(120)])
    (
        write_losses(text.baseline, tmp_path / "a.jsonl"),
        write_losses(text.candidate, tmp_path / "b.jsonl"),
    )
    assert (
        compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", margin=0.02).headline
        == compare(text, margin=0.02).headline
        == compare(text.baseline, text.candidate, margin=0.02).headline
    )


def test_what_compare_does_not_take_is_sent_to_what_it_takes(tmp_path):
    "Scores are never sent to pair_arrays, and each cure works."
    import pandas as pd

    old, new = f1_columns()
    frame = pd.DataFrame({"f1": old})
    for values in ((old, new), (old.tolist(), new.tolist()), (pd.Series(old), pd.Series(new))):
        with pytest.raises(
            UsageError,
            match=r'Say what the numbers are: compare\(old, new, score="f1"\)\. Log-losses of windows need',
        ):
            compare(*values)
    for values, windows_named in (
        ((frame, frame), False),
        ((frame,), False),
        ((3,), False),
        (("old.csv",), False),
        ((scores(old), "new.csv"), False),
        ((old,), True),
        ((None,), False),
    ):
        with pytest.raises(
            UsageError, match="^compare: it must have a Pair, two paths"
        ) as error:
            compare(*values)
        assert ("pair_arrays" in str(error.value)) == windows_named, error.value
    with pytest.raises(UsageError, match="Several candidates: study"):
        compare(scores(old), scores(new), scores(new))
    with pytest.raises(UsageError, match="Several candidates: study"):
        compare([windows(), windows()], windows())
    with pytest.raises(
        UsageError,
        match="known whether higher 'hours' is better; got nothing said. Say better='higher'",
    ):
        compare(old, new, score="hours")
    with pytest.raises(ContractError, match="must have a number"):
        compare([*old[1:], math.nan], new, score="f1")
    with pytest.raises(PairingError, match="equally long"):
        compare(old[1:], new, score="f1")
    with pytest.raises(UsageError, match="Pair, two paths"):
        compare(windows(), score="f1")
    for arm in (scores(old), [*recipes()["lion", "runs"].runs]):
        with pytest.raises(UsageError, match="Pair, two paths"):
            compare(arm, arm, score="f1")  # was ignored


# --- scores that are shares, and intervals of one unit --------------------------------------------------------------------------------------
def scored(values, score="f1", better="higher", **more):
    return Scores(
        ids=range(len(values)),
        values=np.asarray(values, float),
        score=score,
        better=better,
        **more,
    )


@pytest.mark.parametrize(
    "score", ["f1", "acc", "acc_norm", "exact_match", "rougeL", "mc2", "passed", "correct"]
)
def test_fractions_under_the_name_of_a_share_are_one(score):
    rng = np.random.default_rng(1)
    old = rng.uniform(0.2, 0.98, 400)
    new = old - 0.004 + rng.normal(0, 0.005, 400)
    done = compare(pair(scored(old, score), scored(new, score)))
    assert (
        done.claim == "equivalent"
        and done.headline.startswith(f"Equivalent within 2 points: {score} -0.4")
        and " points" in done.headline
    )
    assert (
        done.row.value.interval.method == "jackknife"
        and done.row.margin == 0.02
        and "No margin" not in done.summary()
    )
    clustered = compare(
        pair(
            *(
                scored(x, score, clusters=[f"c{i // 4}" for i in range(400)])
                for x in (old, new)
            )
        )
    )
    assert clustered.row.margin == 0.02 and clustered.row.value.units == "clusters"
    for other in (new + 0.5, new - 0.5):  # one value of one arm lies outside: it is no share
        assert compare(pair(scored(old, score), scored(other, score))).row.margin == 0


@pytest.mark.parametrize(
    "score", ["brier", "latency", "reward", "quality", "error", "match_seconds"]
)
def test_other_names_stay_what_they_are_and_the_answer_says_how_to_give_a_margin(score):
    rng = np.random.default_rng(1)
    old = rng.uniform(0.2, 0.98, 400)
    arms = [scored(x, score) for x in (old, old - 0.004 + rng.normal(0, 0.005, 400))]
    done = compare(pair(*arms))
    assert done.claim == "regressed" and "points" not in done.headline
    assert (
        f"No margin applies to {score}: say --margin NUMBER (margin= in Python) in its unit."
        in " ".join(done.summary().split())
    )
    followed = compare(pair(*arms), margin=0.02)
    assert followed.claim == "equivalent" and "No margin" not in followed.summary()


def test_repeated_rows_of_0_and_1_keep_the_unit_of_a_share(tmp_path):
    from invar_nb.readers.named_columns import read_plain

    rng, paths = np.random.default_rng(2), []
    for name, share in (("old", 0.8), ("new", 0.8)):
        rows = [(i, int(rng.random() < share)) for i in range(60) for _ in range(4)]
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text("id,score\n" + "".join(f"{i},{y}\n" for i, y in rows))
    done = compare(
        pair(*(read_plain(path, repeats="mean", better="higher") for path in paths))
    )
    assert (
        done.row.margin == 0.02
        and done.row.value.unit == "share"
        and "points" in done.headline
    )


def test_one_unit_has_no_interval_wherever_it_is_printed(tmp_path):
    from invar_nb import bootstrap_interval

    for one in (
        bootstrap_interval([0.1], [5]),
        jackknife_interval([0.1], [5]),
        jackknife_interval([0.1, 0.3], [5, 5], units="documents", document_ids=["a", "a"]),
    ):
        assert (
            one.low == one.high and one.fallback.code == "single_pair"
        )  # the value that the sources ask for
        for text in (repr(one), str(one), one.summary(), one._repr_html_()):
            assert "no interval from one unit" in text and "95 %" not in text
        with pytest.raises(UsageError, match="the result must have an interval"):
            one.plot()
    alone = compare(pair_arrays([2.0], [2.1], [50]))
    assert (
        "no interval from one unit" in alone.headline
        and "95 %" not in alone.summary()
        and "no interval" in repr(alone.row.value)
    )
    with pytest.raises(UsageError, match="the result must have an interval"):
        alone.row.plot()


def test_the_interval_of_one_arm_stays_where_its_metric_lies():
    for values, low, high in (
        ([0.5, 1.0], 0, 1),
        ([0.01, 0.02, 0.99], 0, 1),
        ([0.0, 1.0], 0, 1),
    ):
        for score in ("match", "f1"):
            (row,) = evaluate(scored(values, score)).rows
            assert (
                low
                <= row.value.interval.low
                < row.value.estimate
                < row.value.interval.high
                <= high
            )
    for n, label in itertools.product(
        (2, 3, 5), (["yes", "no", "yes", "no", "no"], ["no"] * 5)
    ):  # also nearly all wrong, and sure of it
        p = np.array([0.9, 0.99, 0.6, 0.7, 0.8])[:n]
        arm = Predictions(
            ids=range(n),
            label=label[:n],
            labels=["yes", "no"],
            probabilities=np.column_stack([p, 1 - p]),
        )
        for row in evaluate(arm).rows:
            most = 2 if row.key.metric == "brier" else 1
            if row.value.interval:
                assert (
                    0
                    <= row.value.interval.low
                    <= row.value.estimate
                    <= row.value.interval.high
                    <= most
                ), row


@pytest.mark.parametrize(
    "shift, needs_nats", [(0.0199, True), (-0.0199, False), (0.0195, False), (0.0005, False)]
)
def test_a_change_above_two_per_cent_is_not_within_two_per_cent(shift, needs_nats):
    "The margin of 2 % is 0.02 nats, which is 2.02 % of the perplexity: +2.0099 % stood beside `within 2 %`."
    base, noise = (
        np.random.default_rng(0).gamma(9, 0.3, 200),
        np.random.default_rng(1).normal(0, 5e-5, 200),
    )
    found = compare(
        pair_arrays(base, base + shift + noise, np.full(200, 64), document_ids=np.arange(200))
    )
    assert found.claim == "equivalent"
    for text in (found.headline, found.rationale, repr(found.row)):
        assert ("0.02 nats, 2.02 %" in text) == needs_nats and (
            "within 2 %" in text or "margin of 2 %" in text
        ) != needs_nats


# --- what is no evidence and no rule
LONG = 10**5000  # an integer of more digits than Python writes
TWO = ["a", "b"]


def _scores(**fields):
    return Scores(**{"ids": TWO, "values": [0, 1]} | fields)


def _answers(**fields):
    return Predictions(
        **{"ids": TWO, "label": ["x", "y"], "prediction": ["x", "x"], "labels": ["x", "y"]}
        | fields
    )


class NAType:
    "As pandas.NA: no comparison of it is true or false."

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self):
        return "<NA>"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: _scores(clusters=[np.array([1, 2]), "a"]), "non-empty strings or integers"),
        (lambda: _scores(clusters=[NAType(), "a"]), "item or for none; got <NA> at index 0"),
        (lambda: _answers(slices={"a": [[1], NAType()]}), "text or a whole number; got"),
        (lambda: _answers(labels=np.array("x")), "labels must be a sequence; got 'x'"),
        (lambda: _answers(labels=LONG), "labels must be a sequence; got int with more than"),
        (lambda: _answers(ids=[LONG, 1]), "id must be short enough to be written; got int"),
        (lambda: _answers(confidence=[1, LONG]), "lie in .0, 1.; got int with more than 4300"),
        (lambda: _answers(samples=[LONG, 1], correct_samples=[LONG + 1, 1]), "samples int"),
        (lambda: _scores(ids=[LONG, 1]), "ids must be short enough to be written; got int"),
        (lambda: _scores(clusters=["a", LONG]), "clusters must be short enough"),
        (lambda: _scores(values=[0, LONG]), "values must fit float64; got int"),
        (lambda: _scores(slices={"a": [[LONG], 1]}), "got list with more than 4300 digits"),
        (lambda: _scores(model=LONG), "model must be a string; got int"),
        (lambda: Rules(margin=LONG), "margin must be a number of at least 0; got int"),
        (lambda: Rules(level=LONG), "level must lie strictly between 0 and 1; got int"),
        (lambda: Rules(better={"loss": LONG}), "better of loss must be one of"),
        (lambda: Rules(method="bca", replicates=LONG, seed=1), "replicates must be at most"),
        (lambda: Rules(accepted=5), "accepted must be a list; got 5"),
        (lambda: Rules(accepted=[5]), "accepted loss must be its fields; got 5"),
        (lambda: Rules(accepted=[{"upto": 1}]), "Did you mean 'up_to'"),
        (lambda: Rules(accepted=[{"up_to": 1}]), "must have up_to, reason and expires"),
        (lambda: study({"baseline": _scores(), 5: _scores()}), "its name, or by .name, part."),
    ],
)
def test_what_is_no_evidence_and_no_rule_is_refused_in_one_line(call, message):
    "Arrays and missing values among names, integers too long to print, and what is no list."
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert hasattr(caught.value, "cure") and len(str(caught.value).splitlines()) == 1


def test_missing_values_of_a_slice_are_no_texts():
    sliced = _answers(slices={"language": [NAType(), "es"]})
    assert sliced.slices == {"language": (None, "es")}


@pytest.mark.parametrize("kind", ["answers", "scores"])
def test_tasks_are_pooled_in_equal_shares_and_not_by_tokens(kind):
    "The pooled change is the mean of the tasks' changes; a task of questions has no tokens."
    rng = np.random.default_rng(3)

    def arm():
        if kind == "scores":
            return Scores(ids=range(60), values=rng.normal(0, 1, 60), score="f1")
        words = [*rng.choice(["x", "y"], 60)]
        return Predictions(ids=range(60), label=list("xy" * 30), prediction=words)

    arms = {(name, part): arm() for name in ("baseline", "q8") for part in ("one", "two")}
    pooled = study(arms, Rules(pooling="equal"))
    (row,) = [row for row in pooled if row.role == "pooled"]
    alone = [row for row in pooled if row.role == "lead"]
    assert row.value.delta == pytest.approx(np.mean([row.value.delta for row in alone]))
    assert pooled.headline.endswith("on 2 parts weighted equally.")
    assert row.about["speaks_of"] == "these parts in these shares"
    with pytest.raises(
        UsageError, match=rf"tokens needs losses; got {kind}\. Say pooling='eq"
    ):
        study(arms, Rules(pooling="tokens"))


def test_an_arm_without_a_source_does_not_contradict_prompts():
    "Nothing is known of how it was asked; of two sources other prompts are refused."
    source = {"source": {"format": "lm-eval", "chat_template": "sha", "num_fewshot": 5}}
    digests = ["p", "q"]
    known = _answers(provenance=source, prompt_digests=digests)
    unknown = _answers(data_id=known.data_id)
    assert len(pair(known, unknown)) == len(pair(unknown, known)) == 2
    other = _answers(provenance={"source": {"format": "lm-eval"}}, prompt_digests=["r", "s"])
    with pytest.raises(ValueError, match="asked with the same prompts; got chat template sha"):
        pair(known, other)


def test_only_units_that_may_be_copies_are_sorted(monkeypatch):
    "Of 4,000 documents two are others in another order: no sort takes many windows."
    from invar_nb.comparison.units import find_near_copies

    rng = np.random.default_rng(5)
    n, m = 4_000, 10
    a = rng.normal(3, 0.5, n * m)
    b = a + rng.normal(0, 0.02, n * m)
    codes = np.repeat(np.arange(n), m)
    for copy, first in ((n - 1, 0), (n - 2, 1)):
        for loss in (a, b):
            loss[copy * m : copy * m + m] = loss[first * m : first * m + m][::-1] * (1 + 1e-7)
    sizes = []
    lexsort = np.lexsort

    def counted(keys):
        sizes.append(len(keys[0]))
        return lexsort(keys)

    monkeypatch.setattr(np, "lexsort", counted)
    copies = find_near_copies(np.full(n * m, 512), a, b, codes)
    assert copies.tolist() == [[n - 2, 1], [n - 1, 0]]
    assert max(sizes) < n


# what each call does that a message advises, or that the same word does in the shell
FEWER = pd.Series(np.linspace(0.4, 0.9, 60), index=[f"q{i}" for i in range(60)])


def both_kinds(folder, old, new, name="f1"):
    "The same scores as Series, DataFrames, files and arms."
    frames = [values.rename(name).rename_axis("id").reset_index() for values in (old, new)]
    files = []
    for side, frame in zip(("old", "new"), frames, strict=True):
        files.append(folder / f"{side}.csv")
        frame.to_csv(files[-1], index=False)
    return {
        "series": ((old, new), {"score": name}),
        "frames": (frames, {"score": name}),
        "indexed": ([frame.set_index("id") for frame in frames], {"score": name}),
        "file and frame": ((files[0], frames[1]), {"score": name}),
        "files": (files, {}),
        "files of a score": (files, {"score": name}),
        "arms": ([*map(read_plain, files)], {}),
    }


FORMS_OF_ARRAYS = [
    "series",
    "frames",
    "indexed",
    "file and frame",
    "files",
    "files of a score",
    "arms",
]


@pytest.mark.parametrize("kind", FORMS_OF_ARRAYS)
def test_intersect_leaves_out_what_one_arm_lacks_as_the_message_says(tmp_path, kind):
    noise = np.random.default_rng(1).normal(0, 0.01, 60)
    values, score = both_kinds(tmp_path, FEWER, (FEWER + noise)[5:][::-1])[kind]
    with pytest.raises(PairingError, match="lacks: intersect=True"):
        compare(*values, **score)
    result = compare(*values, **score, intersect=True)
    assert result.n == 55 and "On the 55 that all have, of 60 (baseline)" in result.headline
    assert result.delta == pytest.approx(noise[5:].mean())


@pytest.mark.parametrize("kind", FORMS_OF_ARRAYS)
def test_same_unit_takes_scores_as_they_are_as_the_message_says(tmp_path, kind):
    values, score = both_kinds(tmp_path, 100 * FEWER, FEWER)[kind]
    with pytest.raises(PairingError, match=r"say same_unit=True\.$"):
        compare(*values, **score)
    result = compare(*values, **score, same_unit=True)
    assert result.delta == pytest.approx((FEWER - 100 * FEWER).mean())


def test_pair_and_study_leave_out_what_one_arm_lacks():
    old, new = (read_plain(frame.to_frame("f1")) for frame in (FEWER, FEWER[:50]))
    assert pair(old, new, intersect=True).n == 50
    with pytest.raises(PairingError):
        pair(old, new)
    result = study({"baseline": old, "short": new, "all": old}, intersect=True)
    assert {row.value.n for row in result.rows} == {50}
    report = result.report()
    assert report.content.rules["intersect"] is True


def test_arrays_without_ids_are_not_cut_to_one_length():
    "Which of them lacks its number no array says, so that pairs in order would be wrong."
    values = FEWER.to_numpy()
    for options in ({}, {"intersect": True}):
        with pytest.raises(PairingError, match="or pass Series with ids as their index"):
            compare(values, values[1:], score="f1", **options)


def test_an_index_that_only_one_of_two_arrays_has_does_not_pair_them():
    "Sorted by another column, index and place differ; the array has places alone."
    rng = np.random.default_rng(2)
    order = rng.permutation(60)
    before = pd.Series(rng.random(60), index=range(60)).iloc[order]
    after = before + rng.normal(0.05, 0.02, 60)
    by_index = compare(before, after, score="f1")
    for old, new in (
        (before, after.to_numpy()),
        (before.to_numpy(), after),
        (before.tolist(), after),
    ):
        result = compare(old, new, score="f1")
        assert result.delta == pytest.approx((after - before).mean())
        assert result.interval.low == pytest.approx(by_index.interval.low)
    with pytest.raises(PairingError, match="equally long"):
        compare(before, after.to_numpy()[1:], score="f1")


def test_answers_of_which_no_cluster_changed_are_bounded_by_the_clusters_that_could():
    passed = pd.Series(np.arange(600) % 4 > 0)
    pages = np.repeat(np.arange(200), 3)
    result = compare(passed, passed.copy(), score="passed", cluster=pages, margin=0.05)
    bound = 1 - 0.025 ** (1 / 200)  # of a share of which 0 of 200 were seen
    assert result.units == "clusters" and result.delta == 0
    assert tuple(result.interval)[:2] == pytest.approx((-bound, bound))
    assert result.claim == "equivalent"
    narrow = compare(passed, passed.copy(), score="passed", cluster=pages, margin=0.01)
    assert narrow.claim == "inconclusive"
    few = compare(passed[:21], passed[:21].copy(), score="passed", cluster=pages[:21])
    assert few.claim == "inconclusive"


def test_arrays_are_studied_and_evaluated_as_they_are_compared():
    rng = np.random.default_rng(4)
    old = pd.Series(rng.random(80))
    new, newer = old - 0.1, old + rng.normal(0, 0.3, 80)
    pages = np.repeat(np.arange(20), 4)
    both = compare(old, new, score="f1", cluster=pages)
    several = study(
        {"baseline": old, "new": new, "newer": newer.to_numpy()}, score="f1", cluster=pages
    )
    assert several["new"].value.delta == both.delta
    assert several["new"].value.units == both.units == "clusters"
    alone = evaluate(old, score="f1")
    assert alone["f1"].value.estimate == pytest.approx(old.mean())
    with pytest.raises(UsageError, match=r"one dimension; got shape \(80, 1\)"):
        compare(old.to_numpy()[:, None], new.to_numpy()[:, None], score="f1")
    with pytest.raises(UsageError, match="Pass DataFrames in their place"):
        study({"baseline": old, "new": new}, score="f1", by="topic")


def test_of_a_frame_the_column_is_taken_by_its_ids(tmp_path):
    frame = pd.DataFrame({"question_id": FEWER.index, "f1": FEWER.to_numpy(), "em": 1.0})
    shuffled = frame.sample(frac=1, random_state=3)
    assert compare(frame, shuffled, score="f1").delta == 0
    plain = frame[["f1"]]  # its index numbers the rows
    assert compare(plain, plain + 0.01, score="f1").delta == pytest.approx(0.01)
    with pytest.raises(
        UsageError, match=r'Say which column .* compare\(old, new, score="f1"\)'
    ):
        compare(frame, shuffled)
    with pytest.raises(ContractError, match="there must be a column 'f2'"):
        compare(frame, shuffled, score="f2")
    with pytest.raises(ContractError, match="every row must have 'f1'; got no value"):
        compare(frame, frame.assign(f1=np.nan), score="f1")


@pytest.mark.parametrize(
    ("high", "tokens", "is_warned"),
    [(1.0, 1, True), (1.0, 2, False), (1.3, 1, False)],
)
def test_losses_that_look_like_scores_are_warned_of(high, tokens, is_warned):
    "Scores of 0 and 1 are refused; an f1 between them was compared as a perplexity."
    before = np.linspace(0.3, high, 60)
    after = before * np.random.default_rng(2).uniform(0.9, 1, 60)
    text = compare(pair_arrays(before, after, np.full(60, tokens))).summary()
    assert ('compare(old, new, score="f1")' in text) == is_warned, text
    assert text.count("These look like scores") == is_warned


# --- what Python users wrote, and was refused with a wrong cure -----------------
def table_of_scores(n=60, seed=5):
    "Two DataFrames of f1: three items of a document, and two topics."
    rng = np.random.default_rng(seed)
    old = rng.uniform(0.4, 0.9, n)
    frame = pd.DataFrame(
        {
            "id": range(n),
            "f1": old,
            "document": [f"d{i // 3}" for i in range(n)],
            "topic": [("a", "b")[i % 2] for i in range(n)],
        }
    )
    return frame, frame.assign(f1=np.clip(old + rng.normal(0, 0.02, n), 0, 1))


def as_files(folder, *frames):
    "The frames as CSV files."
    paths = []
    for i, frame in enumerate(frames):
        paths.append(folder / f"{i}.csv")
        frame.to_csv(paths[-1], index=False)
    return paths


def refusal(call, error=UsageError):
    "The one line that refuses a call."
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_compare_takes_clusters_of_arrays_frames_and_files(tmp_path):
    old, new = table_of_scores()
    files = as_files(tmp_path, old, new)
    documents = old.document.tolist()
    want = compare(
        *(
            Scores(ids=frame.id, values=frame.f1, score="f1", clusters=documents)
            for frame in (old, new)
        )
    )
    assert want.units == "clusters" and want.n_units == 20
    before, after = old.f1.to_numpy(), new.f1.to_numpy()
    reversed_series = pd.Series(after)[::-1]
    for made in (
        compare(before, after, score="f1", cluster=documents),
        compare(before, after, score="f1", cluster=np.array(documents)),
        compare(before, after, score="f1", cluster=old.document),
        compare(old.f1, new.f1, score="f1", cluster=documents),
        compare(old.f1, reversed_series, score="f1", cluster=old.document),
        compare(old, new, score="f1", cluster="document"),
        compare(*files, score="f1", cluster="document"),
        compare(*files, cluster="document"),
        compare(files[0], new, score="f1", cluster="document"),
    ):
        assert (made.units, made.n_units) == ("clusters", 20)
        assert made.headline == want.headline
    for call, words in (
        (lambda: compare(before, after, score="f1", clusters=documents), "mean 'cluster'?"),
        (lambda: compare(old, new, score="f1", clusters="document"), "mean 'cluster'?"),
        (lambda: compare(*files, clusters="document"), "mean 'cluster'?"),
        (lambda: compare(before, after, score="f1", cluster="document"), "Pass a list"),
        (lambda: compare(losses(), cluster=documents), "read_plain(table, cluster="),
        (lambda: study({"baseline": losses().baseline}, cluster=documents), "read_plain("),
    ):
        assert words in refusal(call)
    assert "Pass a Series with the same index" in refusal(
        lambda: compare(old.f1, reversed_series, score="f1", cluster=documents), PairingError
    )
    assert "none for 59" in refusal(
        lambda: compare(old.f1, new.f1, score="f1", cluster=old.document[:59]), PairingError
    )
    assert "60 entries; got 59" in refusal(
        lambda: compare(before, after, score="f1", cluster=documents[:59]), ContractError
    )
    assert "Did you mean 'document'?" in refusal(
        lambda: compare(old, new, score="f1", cluster="documnt"), ContractError
    )


@pytest.mark.parametrize("name", ["columns", "id", "repeats", "documents", "cluster", "ids"])
def test_what_is_far_from_every_option_is_not_taken_for_one(name):
    for call in (
        lambda: compare(losses(), **{name: "x"}),
        lambda: study({"baseline": losses().baseline}, **{name: "x"}),
    ):
        text = refusal(call)
        for absurd in ("units", "deciding", "replicates", "tokens'", "tier", "stride"):
            assert f"mean {absurd!r}?" not in text and "mean 'tokens'" not in text, text


@pytest.mark.parametrize(
    "text, names, nearest_name",
    [
        ("cluster", ["tier", "units"], None),
        ("columns", ["units"], None),
        ("id", ["deciding", "stride"], None),
        ("repeats", ["replicates"], None),
        ("documents", ["windows", "tokens"], None),
        ("a", ["b"], None),
        ("levle", ["level"], "level"),
        ("onw", ["own"], "own"),
        ("upto", ["up_to"], "up_to"),
        ("decide", ["deciding"], "deciding"),
        ("golden", ["gold"], "gold"),
        ("ppl", ["accuracy", "perplexity"], "perplexity"),
        ("f1", ["m.f1"], "m.f1"),
        ("acc", ["brier", "accuracy"], "accuracy"),
        ("AA", ["a", "b"], "a"),
    ],
)
def test_a_name_is_suggested_where_few_letters_differ(text, names, nearest_name):
    assert nearest(text, names) == nearest_name


def test_tables_are_sliced_by_their_columns(tmp_path):
    old, new = table_of_scores()
    files = as_files(tmp_path, old, new)
    for values, options in (
        ((old, new), {"score": "f1"}),
        (files, {"score": "f1"}),
        (files, {}),
        ((files[0], new), {"score": "f1"}),
    ):
        made = compare(*values, **options, by="topic")
        assert {row.key.slice for row in made} == {None, "topic a", "topic b"}
        half = old.topic == "a"
        (row,) = made.select(slice="topic a")
        assert row.value.delta == pytest.approx((new.f1 - old.f1)[half].mean())
        assert made.report().content.rules["by"] == ["topic"]
        text = refusal(
            lambda v=values, o=options: compare(*v, **o, by="topics"), ContractError
        )
        assert "Did you mean 'topic'?" in text
    text = refusal(lambda: compare(old.f1, new.f1, score="f1", by="topic"))
    assert "Pass DataFrames in their place" in text


def test_repeated_ids_are_averaged_and_ids_named_as_the_message_says(tmp_path):
    old, new = table_of_scores()
    frames = [
        frame.assign(question=np.arange(60) // 2).drop(columns=["id", "topic"])
        for frame in (old, new)
    ]
    frames = [frame.drop(columns="document") for frame in frames]
    files = as_files(tmp_path, *frames)
    for values in (frames, files):
        text = refusal(lambda v=values: compare(*v, score="f1"), ContractError)
        assert "Say repeats='mean'" in text
        made = compare(*values, score="f1", repeats="mean", id="question")
        assert made.n == 30
        assert made.delta == pytest.approx((new.f1 - old.f1).mean())
    assert compare(*files, repeats="mean").n == 30
    assert "repeats='unequal'" in refusal(
        lambda: compare(frames[0], frames[1][1:], score="f1", repeats="mean"), PairingError
    )
    assert "'refuse', 'mean', 'unequal'" in refusal(
        lambda: compare(*frames, score="f1", repeats="avg")
    )
    own = [frame.rename(columns={"question": "q"}) for frame in frames]
    assert compare(*own, score="f1", repeats="mean", id="q").n == 30
    assert "id is about columns of a table" in refusal(
        lambda: compare(old.f1, new.f1, score="f1", id="id")
    )


def test_the_named_index_of_a_frame_has_its_ids():
    "Beside a column `document` the index was ignored, and documents became the ids."
    old, _ = table_of_scores()
    ids = sorted(str(i) for i in range(60))
    for name in ("example_id", "id", "row"):
        frame = old.rename(columns={"id": name}).set_index(name)
        arm = read_plain(frame, score="f1")
        assert sorted(arm.ids) == ids
        assert sorted(read_plain(frame, score="f1", id=name).ids) == ids
        assert compare(frame, frame[::-1], score="f1").delta == 0
    beside = old.rename(columns={"id": "example_id"}).assign(question="What?")
    assert sorted(read_plain(beside.set_index("example_id"), score="f1").ids) == ids
    by_document = old.set_index("document")
    assert sorted(read_plain(by_document, score="f1", cluster="document").ids) == ids
    texts = old.assign(loss=old.f1 + 2, tokens=100)[["document", "loss", "tokens"]]
    assert len(read_plain(texts.set_index("document"))) == 60


def test_frames_of_losses_and_of_answers_are_read_as_their_files_are(tmp_path):
    old, new = table_of_scores()
    losses_of = [
        pd.DataFrame({"doc_id": frame.document, "loss": frame.f1 + 2, "tokens": 100})
        for frame in (old, new)
    ]
    answers_of = [
        pd.DataFrame(
            {
                "id": old.id,
                "label": old.topic,
                "prediction": [("a", "b")[i % step % 2] for i in range(60)],
                "topic": old.document,
                "page": old.document,
            }
        )
        for step in (7, 5)
    ]
    for frames, title in ((losses_of, "perplexity"), (answers_of, "accuracy")):
        folder = tmp_path / title
        folder.mkdir()
        files = as_files(folder, *frames)
        want = compare(*files)
        assert title in want.headline
        assert compare(*frames).headline == want.headline
        assert compare(files[0], frames[1]).headline == want.headline
    made = compare(*answers_of, cluster="page", by="topic")
    assert made.units == "clusters" and "topic d1" in {row.key.slice for row in made}
    named = [frame.rename(columns={"id": "q"}) for frame in answers_of]
    assert compare(*named, id="q").headline == compare(*answers_of).headline
    indexed = [frame.set_index("id") for frame in answers_of]
    assert compare(*indexed).headline == compare(*answers_of).headline
    assert compare(*losses_of, by="position").units == "documents"
    assert "a column must be the tokens" in refusal(
        lambda: compare(*(frame.drop(columns="tokens") for frame in losses_of)), ContractError
    )
    assert "repeats is about scores; got answers" in refusal(
        lambda: compare(*answers_of, repeats="mean")
    )


def test_a_direction_in_one_word_is_that_of_scores_or_of_the_one_metric(tmp_path):
    both = losses()
    for word in ("lowr", "lower"):
        assert refusal(lambda w=word: compare(both, better=w)) == (
            "study: better needs runs; got losses. Leave it out."
        )
    baseline, lion = (recipes()[name, "runs"] for name in ("baseline", "lion"))
    seconds = [
        [
            replace(run, metrics={**run.metrics, "cost": run.metrics["loss"], "x": 1.0})
            for run in arm.runs
        ]
        for arm in (baseline, lion)
    ]
    made = compare(*seconds, metrics="cost", better="lower")
    assert made.headline == compare(*seconds, better={"cost": "lower"}).headline
    for call, words in (
        (lambda: compare(*seconds, metrics="cost", better="lowr"), "Did you mean 'lower'?"),
        (lambda: compare(*seconds, metrics=["cost", "x"], better="lower"), "{'cost': 'lower'"),
    ):
        assert words in refusal(call)
    old, new = table_of_scores()
    files = as_files(tmp_path, old, new)
    assert compare(*files, better="lower")["f1"].value.improvement == pytest.approx(
        (old.f1 - new.f1).mean()
    )
    assert "better='lower'" in refusal(
        lambda: compare(Scores(ids=old.id, values=old.f1), scored(new.f1), better="lower")
    )


def test_a_study_of_several_candidates_is_asked_by_candidate_metric_or_key():
    both = losses()
    arms = {"baseline": both.baseline, "c3": both.candidate, "c4": both.candidate}
    made = study(arms, margin=0.02)
    assert made["c3"] is made.select(candidate="c3", role="lead")[0]
    assert made[made.row.key] is made.row and made.row.key in made and "c3" in made
    for name, words in (
        ("perplexity", "of several candidates, 'c3', 'c4'; write study['c3', 'perplexity']"),
        ("c33", "Did you mean 'c3'?"),
        ("brier", "there are 'c3', 'c4', 'perplexity'"),
    ):
        with pytest.raises(KeyError) as caught:
            made[name]
        assert words in str(caught.value)
    assert compare(both)["perplexity"].key.candidate == "candidate"
    same_name = study({"baseline": both.baseline, "perplexity": both.candidate})
    with pytest.raises(KeyError, match="is a candidate and a metric"):
        same_name["perplexity"]
    for key, words in (
        ({"candidate": "c33"}, "Did you mean 'c3'?"),
        ({"metric": "perplexty"}, "Did you mean 'perplexity'?"),
        ({"candidat": "c3"}, "'candidate', 'part', 'metric', 'slice', 'against', 'role'; got"),
    ):
        assert words in refusal(lambda k=key: made.select(**k))
    assert made.select(metric="brier") == [] == made.select(part="pooled")


def test_the_leading_row_of_a_candidate_has_its_worst_claim():
    web, near = losses(), losses(seed=3)
    arms = {
        ("baseline", "web"): web.baseline,
        ("q4", "web"): web.candidate,
        ("baseline", "near"): near.baseline,
        ("q4", "near"): near.candidate.changed(log_loss=near.candidate.log_loss + 0.5),
    }
    made = study(arms, margin=0.02)
    assert made["q4"].claim == "regressed" == made.claim and made["q4"].key.part == "near"


def test_true_and_false_are_scores_of_1_and_0():
    right = np.random.default_rng(3).random(200) > 0.4
    less = right & (np.arange(200) % 9 > 0)
    want = compare(right.astype(float), less.astype(float), score="exact_match")
    frames = [pd.DataFrame({"id": range(200), "em": values}) for values in (right, less)]
    for made in (
        compare(right, less, score="exact_match"),
        compare(right.tolist(), less.tolist(), score="exact_match"),
        compare(pd.Series(right), pd.Series(less, dtype=object), score="exact_match"),
        compare(pd.Series(right, dtype="boolean"), pd.Series(less), score="exact_match"),
        compare(*frames, score="em"),
    ):
        assert made.delta == want.delta and made.interval == want.interval
    every_answer_differs = compare(right, ~right, score="exact_match")
    assert every_answer_differs.summary()  # the share of them, as a sum, exceeded 1


def test_a_path_in_the_place_of_axes_and_an_unknown_metric_are_refused():
    pytest.importorskip("matplotlib")
    made = compare(losses())
    for plot in (made.plot, made.interval.plot, made.report().plot):
        assert "write .plot().figure.savefig(" in refusal(lambda draw=plot: draw("x.png"))
    assert "Write .report().save('x')" in refusal(lambda: made.report("x"))
    assert "register_metric" in refusal(lambda: compare(losses(), metrics="hard"))
    assert "pass a Metric" in refusal(lambda: compare(losses(), metrics=len))


@pytest.mark.parametrize("options", [{}, {"method": "bca"}])
def test_what_a_bootstrap_may_draw_is_listed(options):
    text = refusal(lambda: compare(losses(), resample="documents", **options))
    assert text.startswith("compare: resample must be one of 'windows', 'tokens'; got")
    assert 'units="documents"' in text and "mean" not in text


def two_frames(kind, tmp_path):
    "Two DataFrames of one kind with the name of the column that may lack a value."
    pd = pytest.importorskip("pandas")
    numbers = [[(i * (7 + arm)) % 11 / 10 + 1 for i in range(50)] for arm in (0, 1)]
    ids = [f"q{i}" for i in range(50)]
    if kind == "scores":
        return [pd.DataFrame({"id": ids, "f1": column}) for column in numbers], "f1"
    return [pd.DataFrame({"id": ids, "loss": v, "tokens": [40] * 50}) for v in numbers], "loss"


@pytest.mark.parametrize("kind", ["scores", "losses"])
@pytest.mark.parametrize("as_file", [False, True])
def test_the_cure_for_a_missing_value_in_two_tables_compares_them(tmp_path, kind, as_file):
    (old, new), column = two_frames(kind, tmp_path)
    score = {"score": column} if kind == "scores" else {}
    new.loc[4, column] = np.nan
    if as_file:
        tables = [tmp_path / "old.csv", tmp_path / "new.csv"]
        for frame, path in zip((old, new), tables, strict=True):
            frame.to_csv(path, index=False)
    else:
        tables = [old, new]
    with pytest.raises(ContractError, match="compare the rows that have one: intersect=True"):
        compare(*tables, **score)
    result = compare(*tables, **score, intersect=True)
    assert result.rows[0].value.n == 49
    assert "On the 49 that all have, of 50" in result.headline


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_intersect_leaves_out_missing_numbers_of_arrays_and_series(missing):
    pd = pytest.importorskip("pandas")
    (old, new), _ = two_frames("scores", None)
    old, new = (list(frame.f1) for frame in (old, new))
    topics = [f"t{i // 3}" for i in range(50)]
    new[4] = missing
    ids = [f"q{i}" for i in range(50)]
    series = [pd.Series(values, index=ids) for values in (old, new)]
    for pair_of in (old, new), series:
        for clusters in ({}, {"cluster": topics}):
            with pytest.raises(
                ContractError, match="at index 4.*compare the others: intersect=True"
            ):
                compare(*pair_of, score="f1", **clusters)
            result = compare(*pair_of, score="f1", intersect=True, **clusters)
            assert "On the 49 that all have, of 50" in result.headline
    with pytest.raises(ContractError, match=r"50 of 50 missing\). Fill it in[.]$"):
        compare([missing] * 50, new, score="f1", intersect=True)


def test_pair_of_dataframes_names_the_call_that_compares_them():
    (old, new), _ = two_frames("scores", None)
    for options in ({}, {"intersect": True}):
        with pytest.raises(PairingError, match=r"read_plain\(frame, score=\"f1\"\)"):
            pair(old, new, **options)
    arms = [read_plain(frame, score="f1") for frame in (old, new)]
    assert pair(*arms).n == 50


def with_other_ids(folder, kind):
    "Two tables without a common id, which share the column `key`; two calls' options."
    columns = {"key": [f"k{i}" for i in range(30)]}
    if kind == "losses":
        columns |= {"loss": np.linspace(2, 3, 30), "tokens": 40}
    elif kind == "answers":
        columns |= {"label": ["a", "b"] * 15, "prediction": ["a", "b", "b"] * 10}
    else:
        columns |= {"f1": FEWER.to_numpy()[:30]}
    frames = [
        pd.DataFrame({"id": [f"{letter}{i}" for i in range(30)], **columns}) for letter in "ab"
    ]
    files = [folder / "old.csv", folder / "new.csv"]
    for frame, file in zip(frames, files, strict=True):
        frame.to_csv(file, index=False)
    return frames, files


@pytest.mark.parametrize("kind", ["scores", "losses", "answers"])
@pytest.mark.parametrize("options", [{}, {"intersect": True}])
def test_tables_without_a_common_id_are_refused_with_a_cure_that_works(
    tmp_path, kind, options
):
    frames, files = with_other_ids(tmp_path, kind)
    must = (
        "30 ids such as 'a0' in the baseline and 30 such as 'b0' in .*, none in common.*id='NA"
    )
    score = {"score": "f1"} if kind == "scores" else {}
    for tables in frames, files:
        with pytest.raises(PairingError, match=must):
            compare(*tables, **score, **options)
        assert compare(*tables, **score, **options, id="key").rows[0].value.n == 30


def test_arms_without_an_id_in_all_of_them_are_refused_also_with_intersect():
    old, half, rest = (read_plain(FEWER[part].to_frame("f1")) for part in THIRDS)
    with pytest.raises(PairingError, match=r"some ids in common; got none in all 3.*one at a"):
        study({"baseline": old, "half": half, "rest": rest}, intersect=True)
    for candidate in (half, rest):
        assert study({"baseline": old, "half": candidate}, intersect=True).rows


THIRDS = (slice(10, 50), slice(0, 30), slice(30, 60))


# --- tables in memory, as a teacher tries them ---
def graded(shift=0.0, n=60):
    rng = np.random.default_rng(3)
    f1 = rng.uniform(0.1, 0.98, n) + shift + rng.normal(0, 0.01, n)
    return pd.DataFrame(
        {
            "id": [f"e{i}" for i in range(n)],
            "document": [f"d{i // 5}" for i in range(n)],
            "f1": f1,
        }
    )


def test_a_score_has_one_unit_in_all_arms_of_a_study(tmp_path):
    old, low = graded(), graded(-0.05)
    high = low.assign(f1=low.f1 + 0.2)
    assert old.f1.max() <= 1 < high.f1.max()
    arms = {
        name: read_plain(frame, score="f1", cluster="document")
        for name, frame in {"baseline": old, "low": low, "high": high}.items()
    }
    result = study(arms)
    assert {row.value.unit for row in result.rows} == {""}
    assert "points" not in result.summary()
    assert study({**arms, "high": arms["low"]}).row.value.unit == "share"
    result.report().save(tmp_path / "report")
    assert verify(tmp_path / "report").report.headline == result.headline


def test_tables_are_read_by_study_and_evaluate_as_by_compare(tmp_path):
    old, new = graded(), graded(-0.05)
    two = compare(old, new, score="f1", cluster="document")
    paths = {name: tmp_path / f"{name}.csv" for name in ("old", "new")}
    for name, frame in (("old", old), ("new", new)):
        frame.to_csv(paths[name], index=False)
    for arms in ({"baseline": old, "q8": new}, {"baseline": paths["old"], "q8": paths["new"]}):
        several = study({**arms, "q4": new}, score="f1", cluster="document")
        assert several["q8"].value.interval == two.interval and several.n_units == 12
    with pytest.raises(UsageError, match="Several candidates: (.*)[.]$") as error:
        compare(old, new, new, score="f1")
    cure = str(error.value).partition("candidates: ")[2].removesuffix(".")
    names = {"study": study, "old": old, "new": new, "newer": new}
    assert len(eval(cure, names).rows) >= 2
    for source in (old, paths["old"], str(paths["old"])):
        alone = evaluate(source, score="f1", cluster="document")
        assert alone["f1"].value.estimate == pytest.approx(old.f1.mean())
    minutes = {"baseline": old.rename(columns={"f1": "hours"})}
    lower = study(
        minutes | {"q8": new.rename(columns={"f1": "hours"})}, score="hours", better="lower"
    )
    assert lower.claim == "improved"
    losses = pd.DataFrame({"id": range(30), "loss": 3.0 + old.f1[:30], "tokens": 100})
    assert evaluate(losses)["perplexity"].value.estimate > 1
    for wrong, words in (
        (lambda: evaluate(old), r"^evaluate: .*score=\"f1\"\.$"),
        (lambda: evaluate(old, score="f1", clusters="x"), "^evaluate: .*'cluster'"),
        (lambda: study({"baseline": old, "q8": new}), r"^study: .*score=\"f1\"\.$"),
        (
            lambda: study({"baseline": paths["old"], "q8": new}),
            "^study: .*Of a table say score",
        ),
        (lambda: evaluate(read_plain(old), score="f1"), "^evaluate: score is about tables"),
        (lambda: evaluate(read_plain(old), cluster="document"), "^evaluate: cluster is about"),
    ):
        with pytest.raises(UsageError, match=words):
            wrong()


def test_a_score_goes_by_its_name_among_the_metrics():
    old, new = graded(), graded(-0.05)
    two = compare(old, new, score="f1")
    for frames in (
        compare(old, new, metrics=["f1"]),
        compare(old, new, score="f1", metrics="f1"),
        study({"baseline": old, "q8": new}, metrics=["f1"]),
        compare(read_plain(old), read_plain(new), metrics=["f1"]),
        compare(
            old.assign(seconds=1),
            new.assign(seconds=2),
            score=["f1", "seconds"],
            metrics=["f1"],
        ),
    ):
        assert frames.interval == two.interval and len(frames.rows) == 1
    assert evaluate(old, metrics=["f1"])["f1"].value.estimate == pytest.approx(old.f1.mean())
    counts = pd.DataFrame(
        {"id": range(30), "samples": 10, "correct_samples": [i % 7 for i in range(30)]}
    )
    tries = compare(counts, counts.assign(correct_samples=9), metrics=["pass@5"])
    assert tries.row.value.title == "pass@5" and tries.claim == "improved"
    own = Metric(
        name="low",
        kind="scores",
        totals=lambda arm: ((arm.values < 0.5).astype(float), np.ones(len(arm))),
    )
    assert len(compare(old, new, score="f1", metrics=["f1", own]).rows) == 2


def test_the_answer_names_a_column_whose_values_repeat(tmp_path):
    old, new = graded(), graded(-0.05)
    sentence = (
        "Examples count as independent, but only 12 values of document occur: --column "
        'cluster=document counts these (in Python cluster="document").'
    )
    result = compare(old, new, score="f1")
    for text in (result.summary(), result.to_markdown(), evaluate(old, score="f1").summary()):
        assert text.replace("\\", "").count(sentence) == 1, text
    assert "document occur" in result._repr_html_()
    for done in (
        compare(old, new, score="f1", cluster="document"),
        compare(old.drop_duplicates("document"), new.drop_duplicates("document"), score="f1"),
    ):
        assert "occur" not in done.summary() and "occur" not in done.to_markdown()
    twice = [pd.concat([frame.drop_duplicates("document")] * 2) for frame in (old, new)]
    averaged = compare(*twice, score="f1", id="id", repeats="mean")
    assert "occur" not in averaged.summary()


def test_scores_go_by_their_own_names_in_a_study():
    rng = np.random.default_rng(7)
    frames = {
        name: pd.DataFrame(
            {
                "id": range(80),
                "topic": ["law", "code"] * 40,
                "f1": rng.random(80),
                "em": rng.random(80),
            }
        )
        for name in ("baseline", "q8", "q4")
    }
    done = study(frames, score=["f1", "em"], by="topic")
    (row,) = done.select(candidate="q4", metric="em", slice=None)
    assert row == done["q4", "em"] and row.key.metric == "score:em"
    assert done["q4", "f1"] == done["q4"]
    assert len(done.select(metric="f1", slice=None, against=None)) == 2
    with pytest.raises(UsageError, match="some row must have the slice; got 'code'"):
        done.select(slice="code")
    with pytest.raises(UsageError, match="there are|There are"):
        done.select(metric="judg")
    with pytest.raises(KeyError):
        done["q5", "em"]
    loss = {"metric": "em", "up_to": 0.5, "reason": "ticket 1", "expires": "2099-01-01"}
    accepting = study(frames, score=["f1", "em"], accepted=[loss])
    assert accepting.rules.accepted[0].metric == "em"
    with pytest.raises(UsageError, match="metric of accepted must be one of"):
        study(frames, score=["f1", "em"], accepted=[{**loss, "metric": "emm"}])


# --- texts of one table in memory, and several tables
def frame_of_texts(shift=0.0, n=24):
    "Losses of two texts in one DataFrame; `shift` is added on code."
    rows = [
        (text, f"{text}{i}", 3 + (i * 7 + k) % 10 / 10 + shift * (text == "code"), 40)
        for k, text in enumerate(("web", "code"))
        for i in range(n)
    ]
    return pd.DataFrame(rows, columns=["text", "document", "loss", "tokens"])


def test_a_column_of_texts_divides_tables_in_compare_study_and_evaluate(tmp_path):
    old, new = frame_of_texts(), frame_of_texts(0.03)
    paths = [tmp_path / name for name in ("old.csv", "new.csv")]
    for frame, path in zip((old, new), paths, strict=True):
        frame.to_csv(path, index=False)
    shuffled = new.sample(frac=1, random_state=1)
    for both in ((old, new), [*map(str, paths)], (old, shuffled)):
        made = compare(*both, part="text")
        claims = {row.key.part: row.claim for row in made.leading}
        assert claims == {"web": "equivalent", "code": "regressed"}, both
    assert compare(old, new, part="text", margin={"code": 0.05}).claim == "equivalent"
    several = study({"baseline": old, "q8": new, "q4": old}, part="text", pooling="equal")
    assert {row.key.candidate for row in several.leading} == {"q8", "q4"}
    assert {part for _, part in several.arms} == {"web", "code"}
    assert {part for _, part in evaluate(old, part="text").arms} == {"web", "code"}
    scored = compare(*map(str, paths), part="text", score="loss")
    assert {row.key.part for row in scored.leading} == {"web", "code"}
    by_frame = compare(old, new, part="text", score="loss", id="document")
    assert [row.value.delta for row in scored.leading] == pytest.approx(
        [row.value.delta for row in by_frame.leading]
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda a, b: compare(a, b, part="txt"), "part must be one of .*Did you mean 'text'"),
        (
            lambda a, b: compare(a, b[:24], part="text"),
            "no 'code' in candidate. .*intersect=T",
        ),
        (lambda a, b: compare([1, 2], [2, 3], score="f1", part="text"), "columns of a table"),
        (
            lambda a, b: study({"baseline": a, "q8": "b.csv"}, part="text"),
            "part is about DataFrames here; got str. Of files write compare_models",
        ),
        (
            lambda a, b: study({("baseline", "x"): a, ("q8", "x"): b}, part="text"),
            "by a name alone; got .'baseline', 'x'.. Leave part out",
        ),
        (lambda a, b: compare(a.replace("web", ""), b, part="text"), "'text' at row 0. Fill"),
        (lambda a, b: compare(a, b, a), r'"q4": newer}\)\.$'),
        (lambda a, b: compare("a.csv", "b.csv", "c.csv"), r"compare_models\("),
        (compare_models, "got DataFrame. Of DataFrames write study"),
        (lambda a, b: compare_models("a.csv", {"q8": b}), "got DataFrame. Of DataFrames"),
        (lambda a, b: compare_models("a.csv", [b]), "got DataFrame. Of DataFrames"),
    ],
)
def test_what_tables_of_several_texts_and_models_lack_is_said(call, message):
    with pytest.raises((UsageError, PairingError, ContractError), match=message) as error:
        call(frame_of_texts(), frame_of_texts(0.03))
    assert "\n" not in str(error.value)


def test_a_text_that_one_table_in_memory_lacks_is_left_out_and_named():
    old, new = frame_of_texts(), frame_of_texts()[:22]
    headline = compare(old, new, part="text", intersect=True).headline
    assert "On the 22 that all have, of 24 (baseline) and 22 (candidate)." in headline
    assert "Left out, since not all have them: code." in headline


def test_a_column_of_texts_that_is_not_used_is_named_beside_the_table():
    made = compare(frame_of_texts(), frame_of_texts(0.03))
    said = "All rows are judged together, but 2 values of text occur: --column part=text"
    for text in (made.summary(), made.to_markdown()):
        assert said in text and "part='text' in Python" in text, text


def test_study_and_evaluate_of_paths_recognise_what_compare_and_the_shell_do(tmp_path):
    "Without a score they took no path at all."
    rng = np.random.default_rng(3)
    files = {name: tmp_path / f"{name}.csv" for name in ("baseline", "q8", "q4")}
    for place, file in enumerate(files.values()):
        scores = rng.random(60) - place / 100
        rows = [f"{i},{x:.6f},{x / 2:.6f}" for i, x in enumerate(scores)]
        file.write_text("\n".join(["id,f1,judge", *rows]) + "\n")
    of_all = study(files)
    assert {row.value.title for row in of_all.rows} == {"f1"}
    one = study({"baseline": files["baseline"], "q8": files["q8"]}, margin=0.05)
    assert one.row.delta == compare(files["baseline"], files["q8"]).row.delta
    assert one.row.margin == study(files, Rules(margin=0.05)).row.margin == 0.05
    alone = evaluate(files["q8"])
    assert alone.rows[0].value.title == "f1"
    assert evaluate({"a": files["q8"], "b": files["q4"]}).rows[1].key.part == "b"
    with pytest.raises(UsageError, match="study: an option must be known.*'score'"):
        study(files, scor="f1")
    with pytest.raises(UsageError, match="must exist"):
        study({"baseline": files["baseline"], "q8": tmp_path / "none.csv"})


def test_study_and_evaluate_of_folders_take_each_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    for name in ("base", "q8"):
        (tmp_path / name).mkdir()
        for text in ("wiki", "code"):
            losses_of_text = rng.normal(3, 0.1, 40)
            documents = [f"{text}{i}" for i in range(40)]
            columns = {
                "document": documents,
                "loss": losses_of_text,
                "tokens": 64,
                "text": text,
            }
            frame = pandas.DataFrame(columns)
            frame.drop(columns="text").to_csv(tmp_path / name / f"{text}.csv", index=False)
            frame.to_csv(
                tmp_path / f"{name}.csv", mode="a", header=text == "wiki", index=False
            )
    folders = {"baseline": tmp_path / "base", "q8": tmp_path / "q8"}
    files = {"baseline": tmp_path / "base.csv", "q8": tmp_path / "q8.csv"}
    deltas = {row.key.part: row.value.delta for row in study(folders).rows}
    assert deltas.keys() == {"wiki", "code"}
    assert {row.key.part: row.value.delta for row in study(files, part="text").rows} == deltas
    assert {row.key.part for row in evaluate(tmp_path / "q8").rows} == deltas.keys()
    assert {row.key.part for row in evaluate(files["q8"], part="text").rows} == deltas.keys()
    beside = {"baseline": pandas.read_csv(files["baseline"]), "q8": files["q8"]}
    assert study(beside).row.delta == pytest.approx(compare(*files.values()).row.delta)


def _shuffled_tables(column):
    "Two frames of the same 40 examples, whose rows are in another order, and the ids."
    pandas = pytest.importorskip("pandas")
    ids = [f"p{k}" for k in range(40)] if column == "prompt_id" else [*range(700, 740)]
    old = pandas.DataFrame({column: ids, "correct": [k % 3 > 0 for k in range(40)]})
    return old, old.sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.mark.parametrize("column", ["prompt_id", "qid"])
def test_rows_are_not_paired_by_number_where_a_column_could_name_them(column):
    "A model and its shuffled copy differed in every other answer, without a word."
    old, shuffled = _shuffled_tables(column)
    with pytest.raises(ContractError, match=f"beside column '{column}'. Say id='{column}'"):
        compare(old, shuffled, score="correct")
    assert compare(old, shuffled, score="correct", id=column).row.value.delta == 0
    new = old.assign(correct=[k % 4 > 0 for k in range(40)])
    named = [frame.reset_index(names="id") for frame in (old, new)]  # the other cure
    assert compare(*named, score="correct").row.value.delta == pytest.approx(0.1, abs=0.03)
    alone = [frame[["correct"]] for frame in (old, new)]  # nothing could name the rows
    assert compare(*alone, score="correct").row.value.n == 40


def test_a_metric_of_several_parts_is_no_single_row():
    "study['b', 'correct'] was the row of the first part."
    old, _ = _shuffled_tables("prompt_id")
    new = old.assign(correct=[k % 4 > 0 for k in range(40)])
    frames = {"baseline": old, "b": new}
    frames = {name: frame.assign(task=["x", "y"] * 20) for name, frame in frames.items()}
    options = {"score": "correct", "part": "task", "id": "prompt_id"}
    found = study(frames, **options)
    for name in ("correct", ("b", "correct")):
        with pytest.raises(KeyError, match="several parts, 'x', 'y'; write select"):
            found[name]
    (row,) = found.select(candidate="b", part="x", metric="correct", slice=None)
    assert row.key.part == "x"
    pooled = study(frames, pooling="equal", **options)
    assert pooled["b", "correct"].role == "pooled"


def test_options_are_taken_as_a_person_would_write_them():
    "A Series in by= was a ValueError, a mapping in better= refused."
    pandas = pytest.importorskip("pandas")
    old = pandas.DataFrame({"id": range(30), "ms": range(30), "kind": ["a", "b"] * 15})
    new = old.assign(ms=old.ms + 1)
    with pytest.raises(UsageError, match="by is about columns of a table"):
        compare(old.ms, new.ms, score="ms", by=old.kind)
    found = compare(old, new, score="ms", better={"ms": "lower"})
    assert found.row.value.better == "lower" and found.row.value.delta == 1
    assert compare(old.ms, new.ms, score="ms", better={"ms": "lower"}).row.value.delta == 1
