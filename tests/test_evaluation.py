"""An evaluation report of 480 answers: every quantity that a source document names is on it, and equals what other libraries compute."""

import itertools
import math

import numpy as np
import pytest
import sacrebleu
from commands import shell
from documents import document_of, own_metrics, render_html, render_markdown, summary
from sklearn import metrics as sk
from statsmodels.stats.proportion import proportion_confint
from studies import losses

from invar_nb.arms.arm import Scores, Translations
from invar_nb.arms.predictions import Predictions
from invar_nb.comparison.claim import claim_alone, questions
from invar_nb.comparison.difference import conclude
from invar_nb.comparison.study import compare, evaluate, study
from invar_nb.files.answers import read_predictions
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.metrics.calibration import root_change, square_fit
from invar_nb.metrics.metric import METRICS, Detail, Metric
from invar_nb.readers.named_columns import read_plain
from invar_nb.report.tables import changed_answers
from invar_nb.report.verify import verify
from invar_nb.statistics.jackknife import jackknife_ratio

LABELS, N = ("correct", "incorrect", "ambiguous"), 480
rng = np.random.default_rng(11)
TRUTH = rng.choice(3, N, p=[0.5, 0.35, 0.15])
WORLD = rng.normal(size=(N, 3))


def model(strength, sharp=1.0, name="new", seed=3, **more):
    scores = sharp * (
        WORLD
        + strength * np.eye(3)[TRUTH]
        + 0.4 * np.random.default_rng(seed).normal(size=(N, 3))
    )
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return Predictions(
        ids=[f"q{i:03d}" for i in range(N)],
        labels=LABELS,
        label=[LABELS[t] for t in TRUTH],
        probabilities=p,
        model=name,
        slices={
            "verb": [
                ("ser", "ir", "haber")[min(i % 60, 2) if i < 475 else 0] for i in range(N)
            ],
            "rare": ["yes" if i < 7 else "no" for i in range(N)],
        },
        **more,
    )


def alone(arm, metric):
    return document_of(evaluate(arm))["arms"]["baseline"]["details"][metric]


def test_ece_its_bins_and_its_band():
    arm = model(1.2, 1.6)
    p, right = arm.confidence, arm.correct
    detail, bins = alone(arm, "ece"), np.minimum((p * 10).astype(int), 9)
    by_hand = sum(
        abs(right[bins == m].mean() - p[bins == m].mean()) * (bins == m).mean()
        for m in set(bins)
    )
    levels = {
        level["key"]["metric"]: level
        for level in document_of(evaluate(arm))["levels"]
        if not level["key"]["slice"]
    }
    assert math.isclose(levels["ece"]["value"], by_hand, rel_tol=1e-12)
    band = detail["values"]
    assert (
        band["n_bins"] == 10
        and band["populated"] == len(set(bins))
        and band["low"] < band["mean"] < band["high"]
    )
    draws = np.array(
        [
            [np.abs(np.bincount(bins, hits - p, 10)).sum() / N]
            for hits in np.random.default_rng(0).random((4000, N)) < p
        ]
    )
    assert (
        abs(draws.mean() - band["mean"]) < 5 * draws.std() / 63
        and abs((draws >= by_hand).mean() - band["p_value"]) < 0.02
    )
    head, *table = detail["tables"]["Reliability"]
    for (_, n, mean, accuracy, ends), m in zip(table, sorted(set(bins)), strict=True):
        inside = bins == m
        low, high = proportion_confint(right[inside].sum(), inside.sum(), method="wilson")
        assert (
            n == inside.sum()
            and math.isclose(mean, p[inside].mean(), rel_tol=1e-12)
            and math.isclose(accuracy, right[inside].mean(), rel_tol=1e-12)
        )
        assert ends == f"{low:.3f} to {high:.3f}"
    text = " ".join(detail["notes"])
    assert (
        "10 bins of equal width" in text
        and f"p = {band['p_value']:.2g}" in text
        and levels["ece"]["beside"].startswith("chance alone")
    )


def test_classes_and_their_wilson_intervals():
    arm = model(1.2)
    values, (_, *table) = (
        alone(arm, "macro_f1")["values"],
        alone(arm, "macro_f1")["tables"]["Classes"],
    )
    cells = sk.confusion_matrix(arm.label, arm.prediction, labels=list(LABELS))
    assert values["confusion"] == cells.tolist() and values["labels"] == list(LABELS)
    precision, recall, f1, support = sk.precision_recall_fscore_support(
        arm.label, arm.prediction, labels=list(LABELS)
    )
    for c, row in enumerate(table):
        label, examples, predicted, p, p_ends, r, r_ends, f = row
        np.testing.assert_allclose([p, r, f], [precision[c], recall[c], f1[c]], rtol=1e-12)
        assert (label, examples, predicted) == (LABELS[c], support[c], cells[:, c].sum())
        for ends, trials in ((p_ends, predicted), (r_ends, examples)):
            assert ends == "{:.3f} to {:.3f}".format(
                *proportion_confint(cells[c, c], trials, method="wilson")
            )


def test_terms_and_convention_of_the_brier_score():
    arm = model(1.2)
    detail, y = alone(arm, "brier"), np.eye(3)[TRUTH]
    score = ((arm.probabilities - y) ** 2).sum(axis=1).mean()
    terms = detail["values"]
    by_hand = np.zeros(3)
    for c in range(3):
        bins, base = np.minimum((arm.probabilities[:, c] * 10).astype(int), 9), y[:, c].mean()
        for m in set(bins):
            inside = bins == m
            by_hand += [
                inside.mean()
                * (arm.probabilities[inside, c].mean() - y[inside, c].mean()) ** 2,
                inside.mean() * (y[inside, c].mean() - base) ** 2,
                0,
            ]
        by_hand[2] += base * (1 - base)
    np.testing.assert_allclose(
        [terms["reliability"], terms["resolution"], terms["uncertainty"]], by_hand, rtol=1e-12
    )
    assert math.isclose(
        terms["reliability"]
        - terms["resolution"]
        + terms["uncertainty"]
        + terms["within_bins"],
        score,
        rel_tol=1e-12,
    )
    assert "sum over the 3 classes" in detail["notes"][0] and "Murphy" in detail["notes"][1]
    sure = Predictions(
        ids=arm.ids,
        labels=LABELS,
        label=arm.label,
        prediction=arm.prediction,
        confidence=arm.confidence,
    )
    assert "no sum over classes" in alone(sure, "brier")["notes"][0]
    both = (
        study({"baseline": sure.changed(data_id=arm.data_id), "candidate": arm})
        .report()
        .document()
    )  # of one convention, that of the arm which says less
    assert {
        name: [one["levels"][name]["beside"] for one in both["arms"].values()]
        for name in ("brier", "calibration")
    } == {
        "brier": ["of the confidence"] * 2,
        "calibration": ["own bins, shared in compare"] * 2,
    }
    assert "no sum over classes" in both["arms"]["candidate"]["details"]["brier"]["notes"][
        0
    ] and "summed over the classes" in str(evaluate(arm))


def test_the_dangerous_cell_is_a_row_without_being_asked_for():
    done = evaluate(model(1.2))
    row, arm = done["mistake:incorrect:correct"].value, model(1.2)
    wrong = [p for t, p in zip(arm.label, arm.prediction, strict=True) if t == "incorrect"]
    assert row.estimate == wrong.count("correct") / len(wrong)
    np.testing.assert_allclose(
        [row.interval.low, row.interval.high],
        proportion_confint(wrong.count("correct"), len(wrong), method="wilson"),
        rtol=1e-12,
    )
    assert (
        "mistake:incorrect:correct" in compare(study_pair())
        and "mistake:unsafe:safe" not in done
    )


def study_pair():
    from invar_nb.arms.pair import pair

    return pair(model(1.0, name="old"), model(1.3, seed=4))


def test_pass_at_k_over_problems():
    tries, right = (
        [5] * 200 + [None] * (N - 200),
        np.random.default_rng(2).binomial(5, 0.3, 200).tolist() + [None] * (N - 200),
    )
    arm = model(1.2, samples=tries, correct_samples=right)
    done = evaluate(arm)
    by_hand = [
        np.mean([any(j < c for j in some) for some in itertools.combinations(range(5), 3)])
        for c in right[:200]
    ]
    asked = evaluate(arm, metrics=["pass@3"])["pass@3"].value
    assert math.isclose(asked.estimate, np.mean(by_hand), rel_tol=1e-12) and {
        "pass@1",
        "pass@5",
    } <= {row.key.metric for row in done}
    error = (
        np.std(by_hand, ddof=1) / math.sqrt(200) / (np.mean(by_hand) * (1 - np.mean(by_hand)))
    )
    odds = np.log(np.mean(by_hand) / (1 - np.mean(by_hand)))
    width = [math.log(x / (1 - x)) - odds for x in (asked.interval.low, asked.interval.high)]
    np.testing.assert_allclose(
        np.diff(width), 2 * 1.97 * error, rtol=0.01
    )  # a t of about 199, its centre moved for skewness
    assert (
        own_metrics(
            compare(study_of(arm, arm.changed(correct_samples=[c and c - 1 for c in right])))
            .report()
            .document()
        )
        == []
    )  # made from a name: installed everywhere
    assert "fewer than 8" in METRICS["pass@8"].missing(arm)
    for name in ("pass@0", "pass@", "pass@x"):
        assert name not in METRICS
    with pytest.raises(ContractError, match="got example .q000. has 5 samples, fewer than 8"):
        compare(study_of(arm, arm), metrics=["pass@8"])


def study_of(a, b):
    from invar_nb.arms.pair import pair

    return pair(a, b)


def test_a_calibration_error_is_a_root_and_never_below_0():
    for strength, sharp in itertools.product((0.8, 1.2), (0.6, 1.0, 1.6)):
        done = compare(study_of(model(1.0, name="old"), model(strength, sharp)))
        d = done["calibration"].value
        assert (
            d.baseline >= 0 <= d.candidate
            and math.isclose(d.delta, d.candidate - d.baseline, abs_tol=1e-15)
            and d.interval.low <= d.delta <= d.interval.high
        )
        assert (
            d.interval.contains(0)
            if d.p_value >= 0.05
            else min(d.interval.low, d.interval.high, key=abs) * d.delta >= 0
        )
        wider = d.at(0.99)
        assert (
            wider.low <= d.interval.low
            and d.interval.high <= wider.high
            and d.standard_error > 0
        )
    same = compare(study_of(model(1.0), model(1.0)))["calibration"].value
    assert same.delta == 0 and same.p_value == 1 and tuple(same.interval) == (0, 0)


def sharp(factor, n=400, seed=11, right=None, **more):
    "Answers of a model that is sure by so many times too much."
    rng = np.random.default_rng(seed)
    logit = np.abs(rng.normal(size=n))
    right = rng.random(n) < 1 / (1 + np.exp(-logit))
    p = 1 / (1 + np.exp(-factor * logit))
    return Predictions(
        ids=range(n),
        label=np.where(right, "yes", "no").tolist(),
        prediction=["yes"] * n,
        labels=["yes", "no"],
        probabilities=np.column_stack([p, 1 - p]),
        **more,
    )


@pytest.mark.parametrize("more", [{}, {"clusters": [f"c{i // 2}" for i in range(1500)]}])
def test_a_change_of_calibration_is_claimed_by_its_test_alone(more):
    for factors, claim in (
        ((2, 1), "improved"),
        ((1, 2), "regressed"),
        ((1, 1.05), "inconclusive"),
    ):
        done = compare(
            study_of(*(sharp(f, 1500, **more) for f in factors)), primary="calibration"
        )
        row, d = done.row, done.row.value
        assert (row.claim, row.shows("not_worse"), row.shows("beyond")) == (
            claim,
            claim == "improved",
            False,
        ) and (d.p_value <= 0.05) == (claim != "inconclusive")
        assert claim_alone(d, 0.5) == claim  # no margin makes it equivalent
        assert (
            d.interval.width > 0.02
            and done.headline.startswith(claim.capitalize())
            and "perhaps" not in done.headline
            and "within" not in done.headline
        )
        assert (
            f"its test of no change shows {'none' if claim == 'inconclusive' else 'one'}"
            in done.rationale
        )
        for name in ("margin", "calibration"):
            with pytest.raises(
                UsageError,
                match=r"a margin must be for a metric that can be shown to be equivalent; got calibration = 0.5. Leave it out: whether the calibration error changed",
            ):
                compare(
                    study_of(*(sharp(f, 1500, **more) for f in factors)),
                    primary="calibration",
                    margin=0.5 if name == "margin" else {"calibration": 0.5},
                )
    both = [
        compare(
            study_of(sharp(a, 1500, **more), sharp(b, 1500, **more)), primary="calibration"
        ).row.value
        for a, b in ((2, 1), (1, 2))
    ]
    np.testing.assert_allclose(
        [both[0].delta, *both[0].interval],
        [-x for x in (both[1].delta, *tuple(both[1].interval)[::-1])],
        rtol=1e-9,
    )
    assert (
        both[0].interval.low < -both[0].baseline
    )  # a decrease may be larger than the error that was found


def test_a_change_of_calibration_goes_the_same_way_in_slices_families_and_files(tmp_path):
    half = ["a", "b"] * 750
    done = study(
        {
            ("baseline", ""): sharp(2, 1500, slices={"half": half}),
            ("cool", ""): sharp(1, 1500, slices={"half": half}),
            ("hot", ""): sharp(2.4, 1500, slices={"half": half}),
        },
        by="half",
    )
    rows = [row for row in done.rows if row.key.metric == "calibration" and row.role == "rest"]
    assert (
        len(rows) == 6
        and {row.value.interval.method for row in rows} == {"mover"}
        and all(not row.margin and {*row.p} <= {"change"} for row in rows)
    )
    assert {row.key.candidate: row.claim for row in rows if not row.key.slice} == {
        "cool": "improved",
        "hot": "regressed",
    }
    alone = compare(
        study_of(sharp(2, 1500), sharp(1, 1500)), metrics=["calibration"]
    ).row.value
    assert (alone.delta, *alone.interval) == next(
        (r.value.delta, *r.value.interval)
        for r in rows
        if r.key.candidate == "cool" and not r.key.slice
    )
    assert not verify(done.report().save(tmp_path / "r")).partly


def test_where_an_arm_may_be_calibrated_the_whole_end_of_the_other_counts():
    "Its error is found above 0 and may be 0: then the other one's is the change, as large as it may be."
    for seed in range(40):
        rng = np.random.default_rng(seed)
        logit = np.abs(rng.normal(size=600))
        right = rng.random(600) < 1 / (1 + np.exp(-logit))
        said = [1 / (1 + np.exp(-factor * logit)) for factor in (2, 1)]
        hot, calm = (
            square_fit(
                p - right,
                np.searchsorted(np.quantile(p, np.arange(0.1, 1, 0.1)), p),
                np.arange(600),
                600,
                10,
            )
            for p in said
        )
        if calm.estimate > 1e-4 and calm.interval().low <= 0 < hot.interval().low:
            break
    most = math.sqrt(hot.interval().high)
    assert math.isclose(root_change(hot, calm)[0], -most, rel_tol=1e-9) and math.isclose(
        root_change(calm, hot)[1], most, rel_tol=1e-9
    )
    assert (
        hot.interval(0.8).high < hot.interval().high and root_change(hot, calm, 0.8)[0] > -most
    )


def test_a_metric_of_ones_own_with_an_inverse_claims_no_margin():
    fields = dict(
        name="rmse",
        kind="scores",
        totals=lambda arm: (arm.values**2, np.ones(len(arm))),
        inverse=lambda x: max(x, 0.0) ** 0.5,
    )
    with pytest.raises(
        UsageError,
        match=r"a metric of two arms with an inverse must have no margin; got 0.1. Leave it out: claims rest on the test of no change",
    ):
        Metric(**fields, margin=0.1)
    rng = np.random.default_rng(0)
    errors = rng.normal(size=300)
    made = [
        Scores(ids=range(300), values=x, score="error", better="lower")
        for x in (errors, 1.3 * errors)
    ]
    with METRICS.registered(Metric(**fields)):
        row = compare(study_of(*made), metrics=["rmse"]).row
        assert (
            math.isclose(row.value.delta, 0.3 * math.sqrt(np.mean(errors**2)), rel_tol=1e-9)
            and row.claim == "regressed"
            and row.value.interval.low < row.value.delta < row.value.interval.high
        )
        old, new = (evaluate(arm, metrics=["rmse"]).rows[0].value.interval for arm in made)
        np.testing.assert_allclose(
            [*row.value.interval], [max(new.low - old.high, 0), new.high - old.low], rtol=1e-9
        )
        with pytest.raises(
            UsageError, match="a margin must be for a metric that can be shown"
        ):
            compare(study_of(*made), metrics=["rmse"], margin=0.1)


def test_slices_of_one_arm():
    done = evaluate(model(1.2), by=["rare", "verb"])
    few = done.select(slice="rare yes")
    assert [row.key.metric for row in few] == [
        "accuracy",
        "mistake:incorrect:correct",
    ] and all(
        row.value.interval is None and "too few for an interval" in row.about["beside"]
        for row in few
    )
    row = done.select(slice="verb haber", metric="accuracy")[0].value
    mine = [
        a == b
        for a, b, v in zip(
            model(1.2).label, model(1.2).prediction, model(1.2).slices["verb"], strict=True
        )
        if v == "haber"
    ]
    assert len(mine) > 400
    np.testing.assert_allclose(
        [row.interval.low, row.interval.high],
        proportion_confint(sum(mine), len(mine), method="wilson"),
        rtol=1e-12,
    )
    text = summary(document_of(done))
    assert (
        "accuracy of\n" in text
        and "  rare no" in text
        and " of 7, too few" in text
        and text.count("ECE") == 2
    )  # its row, and why it has no interval


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_a_joint_report_names_all_that_the_sources_name(render):
    arms = {
        ("baseline", "text"): losses().baseline,
        ("candidate", "text"): losses(0.02).candidate,
        ("baseline", "quiz"): model(1.0, name="old"),
        ("candidate", "quiz"): model(1.3, seed=4),
    }
    done = study(arms)
    d = done.report().document()
    page = render(d, done.arms)
    for words in (
        "perplexity",
        "accuracy",
        "Brier score",
        "ECE",
        "calibration error",
        "macro F1",
        "incorrect called correct",
        "precision",
        "recall",
        "reliability, 0 where calibrated",
        "sum over the 3 classes",
        "10 bins of equal width",
        "CI (Wilson)",
        "dataset hash",
        "Confusion matrix",
    ):
        assert words in page, words
    assert d["arms"]["quiz.candidate"]["details"].keys() == {
        "brier",
        "ece",
        "calibration",
        "macro_f1",
    }


def test_counts_of_samples_alone_are_pass_at_k(tmp_path):
    right = np.random.default_rng(2).binomial(20, 0.3, 60).tolist()
    (tmp_path / "he.csv").write_text(
        "task_id,samples,correct_samples\n"
        + "".join(f"t{i},20,{c}\n" for i, c in enumerate(right))
    )
    arm = read_plain(tmp_path / "he.csv")
    by_hand = [1 - math.comb(20 - c, 10) / math.comb(20, 10) for c in right]
    np.testing.assert_allclose(
        [arm.others["pass@10"].mean(), arm.values.mean()],
        [np.mean(by_hand), np.mean(right) / 20],
        rtol=1e-12,
    )
    row = evaluate(arm)["score:pass@10"].value
    assert (
        0 < row.interval.low < row.estimate < row.interval.high < 1
        and evaluate(arm)["score"].value.metric.unit == "share"
    )
    asked = read_plain(tmp_path / "he.csv", score=["pass@5", "pass@1"])
    assert asked.score == "pass@5" and [*asked.others] == ["pass@1"]
    by_id = {f"t{i}": 1 - math.comb(20 - c, 5) / math.comb(20, 5) for i, c in enumerate(right)}
    np.testing.assert_allclose(asked.values, [by_id[name] for name in asked.ids], rtol=1e-12)
    with pytest.raises(
        UsageError, match="as many samples as tries; got pass@21, and a problem with 20"
    ):
        read_plain(tmp_path / "he.csv", score="pass@21")
    with pytest.raises(ContractError, match="'f1'"):
        read_plain(tmp_path / "he.csv", score=["pass@5", "f1"])
    with pytest.raises(
        UsageError, match="which reads answers. For a table of counts say score='pass@5'"
    ):
        evaluate(arm, metrics=["pass@5"])
    (tmp_path / "he.csv").write_text("task_id,samples,correct_samples\nt0,20,21\n")
    with pytest.raises(
        ContractError, match="line 2: the samples that are right must be .*got 21 of 20"
    ):
        read_plain(tmp_path / "he.csv")


def test_a_slice_too_small_for_a_metric_has_no_row_of_it():
    done = compare(study_pair(), by=["rare"])
    assert "accuracy" in {row.key.metric for row in done.select(slice="rare yes")}
    assert not {"calibration", "smooth_calibration"} & {
        row.key.metric for row in done.select(slice="rare yes")
    } and done.select(slice="rare no", metric="calibration")


def test_what_a_detail_is_made_of():
    for wrong in ({"brief": 3}, {"notes": "one"}, {"tables": [1]}, {"values": None}):
        with pytest.raises(ContractError, match="Detail: brief must be a text"):
            Detail(**wrong)


def test_labels_with_blanks_columns_of_probabilities_and_answers_that_changed(tmp_path):
    spaced = Predictions(
        ids=list("abc"),
        labels=(" Correct", " incorrect"),
        label=[" incorrect"] * 3,
        prediction=[" Correct", " incorrect", " incorrect"],
    )
    assert evaluate(spaced)["mistake: incorrect: Correct"].value.estimate == 1 / 3
    (tmp_path / "a.csv").write_text(
        "id,label,p_yes,p_no,p_other\n1,yes,.75,.25,x\n2,no,.5,.5,y\n"
    )
    arm = read_predictions(tmp_path / "a.csv")
    assert arm.probabilities.tolist() == [
        [0.75, 0.25],
        [0.5, 0.5],
    ] or arm.probabilities.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    a, b = model(1.0), model(0.2, seed=4)
    changed = changed_answers(a, b)
    rows, said = changed.rows, changed.sentence
    lost, gained = (a.correct & ~b.correct).sum(), (~a.correct & b.correct).sum()
    assert (
        said
        == f"{lost} became wrong and {gained} became right of 480. The first 15 of each are "
        "listed; invar-nb export REPORT --examples writes all."
        and len(rows) == min(15, lost) + min(15, gained)
        and [r[1] for r in rows[:15]] == sorted(r[1] for r in rows[:15])
    )
    detail = alone(model(1.2, 2.5), "ece")
    assert (
        detail["brief"].endswith(": overconfident")
        and "fewest answers in one" in detail["notes"][0]
        and "confident"
        not in alone(model(1.2, 0.9), "ece")["brief"].replace("underconfident", "")
    )


def test_drift_needs_one_split():
    both = losses()
    split = both.baseline.changed(split=["preview"] * 40 + ["final"] * 56)
    with pytest.raises(ContractError, match="a split into preview and final, or neither"):
        compare(study_of(split, both.candidate), metrics=["drift"])


def test_bleu_says_what_it_is_made_of():
    hypotheses, references = (
        ["the cat is on mat", "a dog came in from the rain"],
        ["the cat is on the mat", "a dog came in from the rain"],
    )
    arm = Translations(
        ids=range(2), hypotheses=hypotheses, references=[[r] for r in references]
    )
    head, row = alone(arm, "bleu")["tables"]["BLEU"]
    theirs = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none")
    np.testing.assert_allclose(
        row,
        [
            *(p / 100 for p in theirs.precisions),
            theirs.bp,
            theirs.sys_len,
            theirs.ref_len,
            theirs.score / 100,
        ],
        rtol=1e-12,
    )


def test_clusters_are_not_taken_for_independent_in_words():
    arm = model(1.2, 2.5, clusters=[f"c{i % 40}" for i in range(N)])
    ece, classes = alone(arm, "ece"), alone(arm, "macro_f1")
    assert (
        "confident" not in ece["brief"]
        and "not independent" in " ".join(ece["notes"])
        and "not" in classes["notes"][-1]
    )
    assert (
        "overconfident" in alone(model(1.2, 2.5), "ece")["brief"]
        and not alone(model(1.2, 2.5), "macro_f1")["notes"]
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "p, ends, shown",
    [
        (0.01, (-0.05, 0.25), (0, 0.25)),
        (0.01, (0.02, 0.25), (0.02, 0.25)),
        (0.2, (0.02, 0.25), (0, 0.25)),
        (0.2, (-0.05, 0.25), (-0.05, 0.25)),
        (0.05, (-0.05, 0.25), (0, 0.25)),
    ],
)
def test_an_interval_lies_on_the_side_of_zero_that_its_test_shows(p, ends, shown, sign):
    "Ends that say something else than the test are cut at 0, or reach it; the only question of such a metric is of a change."
    squares = (0.04, 0.09)[::sign]  # the calibration error goes from .2 to .3, or back
    moves = np.random.default_rng(0).normal(squares[1] - squares[0], 0.1, 40)
    turned = lambda pair: tuple(sorted(sign * end for end in pair))
    d = conclude(
        METRICS["calibration"],
        list(squares),
        (jackknife_ratio(moves, np.ones(40)), None),
        40,
        "items",
        0.95,
        (lambda level: None, lambda null: p),
        None,
        lambda level: turned(ends),
    )
    assert d.delta == pytest.approx(sign * 0.1) and tuple(d.interval) == pytest.approx(
        turned(shown)
    )
    assert questions(d, 0.02) == {"change": p} and questions(d, 0) == {"change": p}
    assert claim_alone(d, 0.5) == (
        "inconclusive" if p > 0.05 else "regressed" if sign > 0 else "improved"
    )


def test_changed_examples_are_those_of_any_mark_with_slice_and_cluster(tmp_path, monkeypatch):
    "They were listed where the mark was the leading score and no clusters were named."
    monkeypatch.chdir(tmp_path)
    for name, wrong in (("a", ()), ("b", (3, 7))):
        rows = [
            f"e{i},{'de' if i % 2 else 'en'},d{i // 2},{i / 40},{int(i not in wrong)}"
            for i in range(40)
        ]
        text = "id,language,document,f1,correct\n" + "\n".join(rows) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
    scores = ("--score", "f1", "--score", "correct", "--by", "language")
    for more in ((), ("--column", "cluster=document")):
        out = shell("compare", "a.csv", "b.csv", *scores, *more, "--out", "r", "--force")[1]
        assert "Examples lost and won: invar-nb export r --examples" in out
        cluster = ["", "", ""] if not more else [",cluster", ",d1", ",d3"]
        assert shell("export", "r", "--examples")[1].splitlines() == [
            f"candidate,part,score,change,id,label,before,after,language{cluster[0]}",
            f"candidate,,correct,became wrong,e3,,1,0,de{cluster[1]}",
            f"candidate,,correct,became wrong,e7,,1,0,de{cluster[2]}",
        ]
        page = (tmp_path / "r/report.md").read_text(encoding="utf-8")
        assert "2 became wrong and 0 became right of 40, by correct." in page


def test_every_changed_example_can_be_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    n = 60
    ids = ["=HYPERLINK(1)", *(f"q{i}" for i in range(1, n))]
    before = [1] * 40 + [0] * 20
    after = [0] * 35 + [1] * 25
    for name, marks in (("a", before), ("b", after)):
        lines = [f"{one},{mark}" for one, mark in zip(ids, marks, strict=True)]
        (tmp_path / f"{name}.csv").write_text("id,score\n" + "\n".join(lines) + "\n")
    assert shell("compare", "a.csv", "b.csv", "--out", "r")[0] in (0, 1)
    code, out, _ = shell("export", "r", "--examples")
    lines = out.strip().splitlines()
    assert code == 0
    assert lines[0] == "candidate,part,score,change,id,label,before,after"
    assert "candidate,,score,became right,q40,,0,1" in lines
    assert sum("became wrong" in line for line in lines) == 35
    assert sum("became right" in line for line in lines) == 20
    assert "'=HYPERLINK(1)" in out  # a spreadsheet does not run it
    losses = "id,log_loss,tokens\n" + "".join(f"w{i},{2 + i / 100},9\n" for i in range(n))
    (tmp_path / "c.csv").write_text(losses)
    assert shell("compare", "c.csv", "c.csv", "--out", "r2", "--force")[0] == 0
    code, _, err = shell("export", "r2", "--examples")
    assert code == 2
    assert "--examples needs answers that are right or wrong" in err
