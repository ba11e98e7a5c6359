"The answer on a terminal, in a comment and as a badge: widths, sizes and words, whatever was compared."

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from documents import document_of, summary, summary_markdown
from rich.cells import cell_len
from scipy import stats
from studies import answers, arms_of, looked, losses, marks, recipes, with_divergence

from invar_nb import (
    METRICS,
    Metric,
    Predictions,
    Rules,
    Scores,
    WindowLosses,
    compare,
    evaluate,
    pair,
    pair_arrays,
    predictions_from_columns,
    study,
)
from invar_nb.report.answer import WIDTH, text_table
from invar_nb.report.figures import interval_figure
from invar_nb.report.pictures import figure_rows
from invar_nb.report.report import SUMMARY_COLUMNS, render, report_of
from invar_nb.report.shown import ShownChange, shown_change, shown_levels, two_digits
from invar_nb.report.tables import Column, Line, Table, answer_columns, answer_table
from invar_nb.report.wording import best_names, smallest_found
from invar_nb.runs.evaluator import RunsArm
from invar_nb.runs.runs import read_row
from invar_nb.statistics.multiplicity import holm


def grid(names, parts, n=24):
    "Losses of candidates on parts."
    rng = np.random.default_rng(len(names))
    base = {part: losses(n=n, seed=k).baseline for k, part in enumerate(parts)}
    arms = {("baseline", part): arm for part, arm in base.items()}
    return arms | {
        (name, part): base[part].changed(
            model=name, log_loss=base[part].log_loss + k / 50 + rng.normal(0, 0.02, n)
        )
        for k, name in enumerate(names)
        for part in parts
    }


def tasks(count, names=("q8", "q4"), n=20):
    "Scores of tasks with names that begin alike."
    rng = np.random.default_rng(2)
    arms = {}
    for k in range(count):
        base = Scores(ids=[f"e{i}" for i in range(n)], values=rng.random(n), score="acc")
        part = f"hendrycks_high_school_subject_number_{k:02d}"
        arms |= {("baseline", part): base} | {
            (name, part): base.changed(model=name, values=base.values + rng.normal(0, 0.1, n))
            for name in names
        }
    return arms


SHAPES = {
    "pair": lambda: compare(losses(0.01)),
    "answers": lambda: compare(answers()),
    "scores": lambda: compare(marks()),
    "kl": lambda: compare(with_divergence()),
    "looks": lambda: compare(looked()),
    "runs": lambda: study(recipes(), Rules(metrics=["loss"], better={"loss": "lower"})),
    "levels": lambda: evaluate(losses().baseline),
    "40 candidates": lambda: study(
        grid([f"llama-3.1-8b-instruct-q{k}-group128-actorder" for k in range(40)], [""])
    ),
    "20 x 3": lambda: study(grid([f"copy-{k}" for k in range(20)], ["news", "law", "docs"])),
    "2 x 57": lambda: study(tasks(57), Rules(margin={"score": 0.02}, required="equivalent")),
    "1 x 57": lambda: study(tasks(57, ["tuned"])),
    "wide": lambda: study(grid(["模型" * 6, "e\u0301" * 20, "<b>|`*`"], ["文", "law"])),
    "pooled": lambda: study(
        arms_of({"law": losses(0.01, seed=2), "news": losses(0.02, seed=3)}),
        Rules(pooling="equal"),
    ),
}


@pytest.fixture(scope="module")
def documents():
    return {name: report_of(make()) for name, make in SHAPES.items()}


def rows_of_table(text):
    "The lines of the table of an answer."
    parts = text.split("\n\n")
    return parts[1].split("\n") if len(parts) > 1 else []


@pytest.mark.parametrize("name", SHAPES)
def test_a_table_is_80_columns_wide_and_its_names_differ(documents, name):
    d = documents[name].document()
    lines = summary(d, width=WIDTH).splitlines()
    assert all(cell_len(line) <= WIDTH for line in lines), [
        line for line in lines if cell_len(line) > WIDTH
    ]
    table = rows_of_table(summary(d))
    firsts = [re.split(r"\s{2,}", line.strip())[0] for line in table[1:]]
    several = [r["part"] for r in d["rankings"]]
    if len(several) < 2:
        assert len({*firsts}) == len(firsts), firsts
    assert (
        summary(d)
        .splitlines()[0]
        .startswith(
            d["headline"]
            if d["exit"]["rule"] not in ("requirement_missed", "secondary_regressed")
            else "Exit code 1: "
        )
    )


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_posted_is_small_and_sound(documents, name):
    report = documents[name]
    files = render(report)
    assert (
        len(files["summary.md"].encode()) < 4096 and len(files["report.md"].encode()) < 60_000
    ), {k: len(v) for k, v in files.items()}
    table = [line for line in files["summary.md"].splitlines() if line.startswith("|")]
    assert len(table) > 2 or not report.document()["rows"]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) <= 1
    made = json.loads(files["badge.json"])
    assert (
        made["schemaVersion"] == 1
        and made["message"]
        and {*made} == {"schemaVersion", "label", "message", "color"}
    )
    assert (made["color"] == "red") == (report.exit_code in (1, 5))
    if "result.svg" in files:
        ElementTree.fromstring(files["result.svg"])


def test_numbers_of_a_table_are_those_of_the_report(documents):
    "Each change of a ranked table, back from the text."
    d = documents["20 x 3"].document()
    shown = re.findall(
        r"copy-\d+ +[\d.]+ +([+-]?[\d.]+) +\(([-\d.]+) to +([-\d.]+)\) +(.+)", summary(d)
    )
    leads = [
        row
        for r in d["rankings"]
        for name in r["order"]
        for row in d["rows"]
        if row["role"] == "lead"
        and (row["key"]["candidate"], row["key"]["part"]) == (name, r["part"])
    ]
    assert len(shown) == len(leads) == 60
    for (change, low, high, claim), row in zip(shown, leads, strict=True):
        assert f"{change} %" == row["words"]["change"] and claim == row["words"][
            "claim"
        ] + "*" * bool(row["alone"])
        assert [float(low), float(high)] == [
            float(x) for x in re.findall(r"[+-]?[\d.]+", row["words"]["interval"])
        ]


def test_ten_thousand_documents_and_names_that_would_steer_a_terminal():
    n, rng = 10_000, np.random.default_rng(0)
    base = rng.gamma(9, 0.3, n)
    arm = lambda values, name: WindowLosses.from_arrays(
        range(n),
        [64] * n,
        values,
        model=name,
        document_ids=range(n),
        provenance={
            "text_digests": [f"sha256:{i:064x}" for i in range(n)],
            "text_bytes": [1] * n,
        },
    )
    arms = {
        ("baseline", ""): arm(base, "base"),
        ("a\nEquivalent within 2 %: all", ""): arm(base + 0.01, "a"),
        ("\x1b[31mred", ""): arm(base + rng.normal(0, 0.1, n), "b"),
    }
    report = report_of(study(arms))
    files, text = render(report), str(report)
    assert (
        len(files["report.md"].encode()) < 60_000 and len(files["summary.md"].encode()) < 4096
    )
    assert "\x1b" not in text and not any(
        line.startswith("Equivalent within") for line in text.splitlines()[1:]
    )
    assert "\x1b" not in summary_markdown(report.document())


@pytest.mark.parametrize(
    "claim, words",
    [
        ("equivalent", "equivalent"),
        ("improved", "improved"),
        ("regressed", "regressed"),
        ("inconclusive", "inconclusive"),
        ("not worse", "not worse"),
    ],
)
def test_the_words_of_the_grammar(claim, words):
    "Each claim by a pair that has it: in the first line, in the table and in the document."
    shift, noise = {
        "equivalent": (0.0, 0.02),
        "improved": (-0.05, 0.02),
        "regressed": (0.05, 0.02),
        "inconclusive": (0.04, 0.2),
        "not worse": (0.0, 0.2),
    }[claim]
    d = report_of(compare(losses(shift, noise))).document()
    first, row = summary(d).splitlines()[0], d["rows"][0]
    assert (
        first.lower().startswith(claim)
        and row["words"]["claim"] == words
        and summary(d).split("\n\n")[1].endswith(words)
    )
    if claim == "not worse":
        assert (
            first.endswith("; a loss of 2 % or more is ruled out.")
            and d["exit"]["rule"] == "not_worse"
        )
    if claim == "inconclusive":
        assert re.search(r"about [1-9],\d{3} documents would show", first)


def test_before_and_after_have_the_same_decimals_and_counts_their_commas():
    ends = np.log([19.38, 19.9])
    done = compare(
        pair_arrays(np.full(4000, ends[0]), np.full(4000, ends[1]), np.full(4000, 9))
    )
    assert re.search(r"19\.38 +19\.90 ", str(done)) and "over 4,000 windows" in str(done)


@pytest.mark.parametrize("seed", range(20))
def test_before_and_after_do_not_contradict_the_change(seed):
    "Where a wide interval leaves the change few digits, as in 14, 17 and +2."
    base, change = np.random.default_rng(seed).normal([50, 0], [10, 40], (12, 2)).T
    arms = [
        Scores(ids=range(12), values=values, score="points", model=f"m{seed}")
        for values in (base, base + change)
    ]
    done = compare(pair(*arms))
    (row,) = done.report().content.of_role("lead")
    before, after = map(float, shown_levels(row.value))
    shown = shown_change(row.value).number
    half_of_last_digit = 0.5 * 10.0 ** -len(shown.partition(".")[2])
    allowed = max(0.1 * abs(float(shown)), 1.2 * half_of_last_digit)  # .5 of either level
    assert abs(after - before - float(shown)) <= allowed
    assert f"{shown_levels(row.value)[0]} " in str(done)


def test_a_baseline_has_the_digits_that_any_candidate_needs():
    base = np.linspace(10, 18.6, 12)
    noise = np.resize([20, -20], 12)
    values = {"baseline": base, "q8": base + 1.0 + noise, "q4": base + 2.3 + noise}
    arms = {
        (name, ""): Scores(ids=range(12), values=x, score="points", model=name)
        for name, x in values.items()
    }
    text = str(study(arms))
    assert re.search(r"baseline +14\.3\n", text) and re.search(r"q4 +16\.6 +\+2 ", text)


def test_what_a_star_means_is_said_of_every_row():
    d = report_of(compare(answers(60), margin=0.05, by="language")).document()
    assert "*" not in summary(d)
    next(row for row in d["rows"] if row["role"] == "rest" and row["claim"] == "regressed")[
        "alone"
    ] = "regressed"
    assert "regressed*" in summary(d) and summary(d).endswith(
        " *: the interval alone would claim more."
    )


@pytest.mark.parametrize(
    "method, each, line",
    [
        ("bca", 4, "BCa over windows, as the source systems do; documents are ignored."),
        ("bca", 1, ""),
        ("jackknife", 4, ""),
        (
            "percentile",
            2,
            "Percentile bootstrap over windows, as the source systems do; documents are ignored.",
        ),
    ],
)
def test_a_bootstrap_that_ignores_documents_says_so_on_the_second_line(method, each, line):
    report = report_of(
        compare(losses(n=80, document_ids=[f"d{i // each}" for i in range(80)]), method=method)
    )
    assert report.summary().split("\n")[1] == line and (
        not line or line in summary_markdown(report.document())
    )


def test_a_summary_names_the_models():
    assert "\nBaseline: old. Candidate: new. On " in summary_markdown(
        compare(losses()).report().document()
    )
    assert "\nBaseline: old. Candidates: q4, q8. On " in summary_markdown(
        study(
            {
                "baseline": losses().baseline,
                "q8": losses().candidate.changed(model="./a/q8"),
                "q4": losses(0.1).candidate.changed(model="/x/y/q4"),
            }
        )
        .report()
        .document()
    )
    assert "\nMeasured: old. On " in summary_markdown(
        evaluate(losses().baseline).report().document()
    )


def test_levels_without_an_interval_say_why_and_long_notes_leave_names_whole():
    text = str(evaluate(answers(80).candidate))
    assert "None for ECE and smooth calibration error: it would cover too little." in text
    table = Table(
        columns=[
            Column(),
            Column(head="value", kind="change"),
            Column(head="note", kind="note"),
        ],
        lines=[
            Line(cells=["smooth calibration error", ShownChange(number="0.1"), "word " * 20])
        ],
    )
    lines = text_table(table, 60)
    assert (
        lines[1].startswith("smooth calibration error  0.1")
        and len(lines) == 5
        and max(map(len, lines)) <= 60
        and lines[2].startswith(" " * 20)
    )


def test_names_of_rows_are_whole_while_there_is_room():
    "The answer of most danger to a learner fits 80 columns; of a name that does not, as much as the terminal has room for."
    labels, n, rng = ("correct", "incorrect", "ambiguous"), 200, np.random.default_rng(1)
    truth = [labels[i] for i in rng.integers(0, 3, n)]
    arm = lambda name: Predictions(
        model=name,
        ids=[f"q{i}" for i in range(n)],
        labels=labels,
        label=truth,
        confidence=rng.uniform(0.4, 1, n),
        slices={"language": ["en" if i % 2 else "es" for i in range(n)]},
        prediction=[t if rng.random() < 0.8 else labels[rng.integers(0, 3)] for t in truth],
    )
    d = compare(pair(arm("old"), arm("new")), by=["language"]).report().document()
    for width in (80, 100, 120):
        lines = summary(d, width).split("\n")
        assert (
            any(line.startswith("incorrect called correct  ") for line in lines)
            and sum(line.startswith("  incorrect called correct  ") for line in lines) == 2
        )
        assert max(
            len(line) for line in lines if line.endswith(("inconclusive", "regressed"))
        ) <= width and ".." not in "".join(lines[2:-2]), lines
    assert "before" not in summary(d) and "before" in summary(
        d, 100
    )  # what the change says goes first
    change = ShownChange(number="+1.0", low="0.5", high="1.5")
    name = "a name of no less than forty characters"
    columns = answer_columns(None, "change (95 % CI)")
    columns = [columns[field] for field in ("name", "before", "after", "change", "claim")]
    long = Table(
        columns=columns, lines=[Line(cells=[name, "1.0", "2.0", change, "regressed"])]
    )
    assert text_table(long, 90)[1].startswith(
        "a name of no less than forty characters     1.0 "
    )
    cut = text_table(long, 60)
    assert ".." in cut[1] and len(cut[1]) <= 60 and "before" not in cut[0]


def test_per_cent_beside_a_factor_says_that_it_is_one():
    base = losses(n=60, seed=1).baseline
    noise = np.abs(np.random.default_rng(2).normal(size=60))
    far = base.changed(log_loss=base.log_loss + 1 + 10.5 * noise)
    report = compare(pair(base, far)).report()
    row = report.content.of_role("lead")[0]
    low, high = row.value.ci
    assert low < np.log(1e4) < high and row.value.delta < 709  # per cent, and a factor
    shown = re.search(r"\(([\d.]+) % to x [\d.e+]+\)", report.summary())
    assert shown and f"+{shown[1]} % to x" in row.words.interval
    assert "change (" in report.summary() and "change, %" not in report.summary()


def test_every_row_that_was_asked_for_is_in_the_table():
    rng = np.random.default_rng(4)
    base = rng.random(80)
    arms = {
        (name, ""): Scores(
            ids=range(80),
            values=base + change,
            score="f1",
            others={"exact": base - change, "length": 10 + base + rng.normal(0, 0.1, 80)},
        )
        for name, change in (("baseline", 0.0), ("q8", 0.0), ("q4", -0.1))
    }
    report = study(arms).report()
    for text in (report.summary(), report.to_markdown()):
        for name in ("q8: exact", "q8: length", "q4: exact", "q4: length"):
            assert name in text, (name, text)


def test_a_metric_of_ones_own_can_be_left_out_of_a_check():
    own = Metric(
        name="long_losses",
        unit="share",
        totals=lambda arm: ((arm.log_loss > 3).astype(float), np.ones(len(arm))),
    )
    page = lambda metrics: render(compare(losses(), metrics=metrics).report())["report.md"]
    with METRICS.registered(own):
        assert "\ninvar-nb verify report.json --without long_losses\n" in page(
            ["perplexity", own]
        )
    assert "--without" not in page(["perplexity"])


def test_what_could_have_been_found_and_what_pairing_did_not_help():
    marks = np.random.default_rng(3).normal(size=100)
    arms = lambda values: {
        (name, ""): Scores(ids=range(100), values=v, score="mark")
        for name, v in (("baseline", marks), ("candidate", values))
    }
    crossed, mixed = (
        document_of(study(arms(v), Rules(margin=0.1)))
        for v in (-marks, np.random.default_rng(4).normal(size=100))
    )
    assert (
        "Pairing did not help: where one model does better, the other does worse. Unpaired, the interval would be 0.71 times as wide; check that equal ids are equal items."
        in summary(crossed)
    )
    assert "Pairing" not in summary(mixed)  # by chance either way
    d = crossed["rows"][0]["value"]
    size = float(
        re.search(
            r"A change of ([\d.]+) would have been found with 80 % power", summary(crossed)
        )[1]
    )
    assert size == pytest.approx(
        (stats.t.ppf(0.975, 99) + stats.norm.ppf(0.8)) * d["standard_error"], rel=0.05
    )
    clear = document_of(study(arms(marks - 3), Rules(margin=0.1)))
    assert "80 % power" not in summary(clear)


@pytest.mark.parametrize(
    "n, only_a, only_b", [(109, 1, 1), (164, 1, 0), (80, 3, 2), (200, 9, 5), (1000, 40, 33)]
)
def test_what_paired_answers_would_have_shown_is_what_they_show(n, only_a, only_b):
    "One against one of 109: 3.7 points are found in .56 of studies, and were said to be in .8."
    right = np.arange(n) >= only_b
    after = np.arange(n) < only_b + n
    after[only_b : only_b + only_a] = False
    report = compare(
        pair(
            *(
                Predictions(
                    ids=range(n),
                    labels=("a", "b"),
                    label=["a"] * n,
                    prediction=np.where(x, "a", "b").tolist(),
                    data_id="",
                )
                for x in (right, after)
            )
        )
    ).report()
    row, text = report.document()["rows"][0], summary(report.document())
    assert row["claim"] == "inconclusive" and row["value"]["method"] == "tango"
    draws = 40_000

    def rate_of_finding(size):
        shares = max((only_a + only_b) / n, size)
        better, worse, _ = (
            np.random.default_rng(0)
            .multinomial(n, [(shares + size) / 2, (shares - size) / 2, 1 - shares], size=draws)
            .T
        )
        return np.mean(better - worse > stats.norm.ppf(0.975) * np.sqrt(better + worse))

    noise = 3 * np.sqrt(0.2 * 0.8 / draws)
    size = (
        float(
            re.search(
                r"A change of ([\d.]+) points would have been found with 80 % power", text
            )[1]
        )
        / 100
    )
    step = 0.05 * 10 ** np.floor(np.log10(size))  # of the two digits that are shown
    assert (
        rate_of_finding(size + step) >= 0.8 - noise
        and rate_of_finding(size - step) <= 0.8 + noise
    )
    if found := re.search(
        r"worse by the margin is found in about (\d+)", report.to_markdown()
    ):
        assert abs(rate_of_finding(row["margin"]) - int(found[1]) / 100) <= 0.005 + noise


def test_where_all_changed_alike_there_is_no_interval_and_the_sign_test_is_named():
    "-5.71 (-5.71 to -5.71) pretends to be certain; of runs the text named the paired t test where the signs were tested."
    base = np.random.default_rng(0).integers(1, 9, 40) / 8
    mark = lambda values: Scores(ids=range(40), values=values, score="mark")
    same = losses(0, 0).baseline
    for result, why in (
        (
            compare(pair(mark(base), mark(base - 0.5)), margin=0.1),
            "no interval: all 40 examples changed alike",
        ),
        (
            compare(pair(same, same.changed(log_loss=same.log_loss + 0.01))),
            "no interval: all 96 documents changed alike",
        ),
    ):
        text = "\n".join(
            [
                summary(result.report().document()),
                result.report().to_markdown(),
                repr(result),
                str(result),
                result.rationale,
            ]
        )
        assert why in text and "interval lies" not in text and "interval excludes" not in text
        assert (
            not re.search(r"\(([-+]?[\d.]+)(?: %)? to \1", text)
            and "there is no interval" in text
        )
    right = Predictions(
        ids=range(40),
        labels=("a", "b"),
        label=["a", "b"] * 20,
        prediction=["a"] * 20 + ["b"] * 20,
        data_id="",
    )
    text = summary(
        compare(pair(right, right.changed(model="new")), metrics=["accuracy", "macro_f1"])
        .report()
        .document()
    )
    assert (
        "(0.00 to 0.00)" not in text
        and "(-8.8 to 8.8)" in text
        and "there is no interval" in text
    )
    assert "there is no interval" not in summary(compare(losses()).report().document())
    arm = lambda losses, name: RunsArm(
        runs=tuple(
            read_row({"seed": seed, "terminal": "ok", "loss": float(loss)})
            for seed, loss in enumerate(losses)
        ),
        model=name,
    )
    runs = lambda drop: document_of(
        study(
            {
                ("baseline", "runs"): arm(np.full(6, 3.5), "old"),
                ("new", "runs"): arm(3.5 - np.asarray(drop), "new"),
            },
            Rules(metrics=["loss"], better={"loss": "lower"}),
        )
    )
    alike, spread = summary(runs(np.full(6, 0.2))), summary(runs(0.2 + np.arange(6) / 100))
    assert (
        "; sign test, p = 0.031" in alike
        and "paired t" not in alike
        and "(-5.71 to" not in alike
    )
    assert "; paired t test, p = " in spread and "sign test" not in spread


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_examples_lost_and_won_are_counted_and_listed(better):
    "Of 400 examples 38 were lost and 21 won, which a net change of -4.25 points hides."
    before = np.arange(400) % 4 > 0
    after = before.copy()
    lost = np.flatnonzero(before)[:38]
    won = np.flatnonzero(~before)[:21]
    after[lost] = False
    after[won] = True
    arms = [
        Scores(
            ids=range(400),
            values=(right if better == "higher" else ~right).astype(int),
            score="hits" if better == "higher" else "misses",
            better=better,
        )
        for right in (before, after)
    ]
    made = compare(pair(*arms)).report()
    assert re.search(r"before +after +change, points \(95 % CI\) +lost, won +claim", str(made))
    change = "-4.2" if better == "higher" else "+4.2"
    assert re.search(re.escape(change) + r"\S* .* 38, 21 ", str(made))
    page = render(made)["report.md"]
    assert "38 became wrong and 21 became right of 400." in page
    assert f"| became wrong | {lost[0]} |" in page
    assert f"| became right | {won[0]} |" in page


def test_a_claim_by_its_test_says_so_beside_an_interval_that_ends_at_zero():
    rng = np.random.default_rng(2)
    right = rng.random(300) < 0.7
    answer = lambda sure, name: Predictions(
        ids=range(300),
        labels=("a", "b"),
        label=["a"] * 300,
        prediction=np.where(right, "a", "b").tolist(),
        confidence=sure,
        data_id="",
        model=name,
    )
    found = compare(
        pair(
            answer(np.full(300, 0.99), "old"),
            answer(np.clip(0.7 + rng.normal(0, 0.01, 300), 0, 1), "new"),
        ),
        metrics=["calibration"],
    )
    assert found.claim == "improved" and "by its test of no change" in found.headline
    worse = compare(
        pair(
            answer(np.clip(0.7 + rng.normal(0, 0.01, 300), 0, 1), "old"),
            answer(np.full(300, 0.99), "new"),
        ),
        metrics=["calibration"],
    )
    assert worse.claim == "regressed" and "by its test of no change" in worse.headline


@pytest.mark.parametrize(
    "documents, said",
    [
        (["d"] * 8, "1 document is too few to be the units"),
        (["d1"] * 4 + ["d2"] * 4, "2 documents are too few to be the units"),
    ],
)
def test_why_windows_are_the_units_is_said_in_one_clause(documents, said):
    text = summary(compare(losses(n=8, document_ids=documents)).report().document(), 200)
    assert (
        f"Intervals over 8 windows in text order. {said}; the interval speaks of other passages of this text."
        in text
    )


@pytest.mark.parametrize(
    "level, shown",
    [(0.95, "95"), (0.9999, "99.99"), (0.99995, "99.995"), (0.9999999, "99.99999")],
)
def test_no_interval_is_at_a_hundred_per_cent(level, shown):
    found = compare(losses(0.01), level=level)
    for text in (
        summary(found.report().document()),
        found.report().to_markdown(),
        repr(found.row.value.interval),
    ):
        assert re.search(rf"\b{re.escape(shown)} %", text) and "100 % CI" not in text


def test_of_a_loss_in_nats_the_hint_names_the_margin_of_its_perplexity():
    arm = lambda shift, name: RunsArm(
        runs=tuple(
            read_row({"seed": seed, "terminal": "ok", "val_loss": 3.1 + shift + seed / 1000})
            for seed in range(6)
        ),
        model=name,
    )
    text = summary(
        document_of(
            study(
                {("baseline", "runs"): arm(0, "old"), ("new", "runs"): arm(-0.01, "new")},
                Rules(metrics=["val_loss"], better={"val_loss": "lower"}),
            )
        ),
        500,
    )
    assert (
        "Changes are in per cent of the baseline's mean, shares too. Margin: 2 % of val_loss = 0.0621. Of a loss in nats 0.02 is 2 % of the perplexity, on its log scale: --margin val_loss=0.64%."
        in text
    )


@pytest.mark.parametrize(
    ("margins", "is_shown"),
    [((), True), (("accuracy=1%",), True), (("val_loss=2%",), False)],
)
def test_the_shell_too_names_the_margin_of_a_perplexity(tmp_path, margins, is_shown):
    "Its rules held 0.02 for every metric, as if the user had chosen it."
    from test_shell import shell

    for name, shift in (("old", 0), ("new", -0.01)):
        rows = [f"{seed},{3.1 + shift + seed / 1000},0.6" for seed in range(6)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["seed,val_loss,accuracy", *rows]))
    options = ["--metric", "val_loss", "--metric", "accuracy"]
    for margin in margins:
        options += ["--margin", margin]
    out = tmp_path / "out"
    code, text, err = shell(
        "compare", tmp_path / "old.csv", tmp_path / "new.csv", *options, "--out", out
    )
    assert code == 0 and ("--margin val_loss=0.64%" in " ".join(text.split())) == is_shown, err
    rules = json.loads((out / "report.json").read_text())["rules"]
    assert [*rules.get("margin", {})] == [margin.partition("=")[0] for margin in margins]


def test_a_copy_that_breaks_a_limit_is_not_recommended():
    "int4 was called the smallest that is not worse beside its broken limits on KL and flips."
    both = with_divergence()
    sized = {
        "baseline": both.baseline.changed(
            provenance=both.baseline.provenance | {"bits_per_weight": 16}
        )
    } | {
        name: both.candidate.changed(
            provenance=both.candidate.provenance | {"bits_per_weight": bits}
        )
        for name, bits in (("q4", 4), ("q3", 3))
    }
    kl = compare(both)["kl_divergence"].value.delta

    def smallest(**margin):
        found = report_of(study(sized, margin={"perplexity": 0.5} | margin))
        return found.document()["rankings"][0]["smallest"]

    assert smallest() == "q3"  # no limit was set
    assert smallest(kl_divergence=kl / 10) is None
    assert smallest(kl_divergence=kl * 10) == "q3"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0503, "0.050"), (0.066, "0.066"), (4, "4.0"), (13.3, "13"), (0.0996, "0.10")]
    + [(99.4, "99"), (99.6, "100"), (140.2, "140"), (0, "0"), (2e-5, "2.0e-05")],
)
def test_numbers_of_one_column_have_equally_many_digits(number, text):
    "KL said 0.05 beside 0.066, and flips of all tokens 1e+02."
    assert two_digits(number) == text


def test_a_divergence_is_a_row_or_a_column_of_the_answer():
    "A row with its interval where it is judged; a column where a pair has no such row."

    def shown(result):
        table = answer_table(report_of(result).content)
        heads = [head.removesuffix(" (95 % CI)") for head in table.heads]
        return [head for head in heads if head in ("KL", "flips, %")]

    both = with_divergence()
    kl = compare(both)["kl_divergence"].value.delta
    assert shown(compare(both)) == ["KL", "flips, %"]
    judged = compare(both, margin={"kl_divergence": 10 * kl})
    assert shown(judged) == ["flips, %"]
    assert re.search(r"^KL .*equivalent|^KL .*small", str(judged), re.M)
    assert shown(compare(both, margin={"kl_divergence": 9, "top1_changed": 0.5})) == []

    smaller = both.candidate.columns["kl_divergence"] / 100
    better = both.candidate.changed(
        columns={**both.candidate.columns, "kl_divergence": smaller}
    )
    several = {"baseline": both.baseline, "q4": both.candidate, "q8": better}
    limit = {"kl_divergence": kl / 10}
    assert shown(study(several, margin=limit)) == ["KL", "flips, %"]
    assert "q4: KL " in str(study(several, margin=limit))
    assert shown(study({**several, "q8": both.candidate}, margin=limit)) == ["flips, %"]


@pytest.mark.parametrize("n_candidates", [1, 2])
@pytest.mark.parametrize("parts", [("",), ("wiki", "code")])
def test_a_terminal_shows_the_intervals_of_divergence_and_flips(n_candidates, parts):
    "A terminal showed KL and flips without intervals, which the report had."
    both = with_divergence()
    names = [f"q{k}" for k in range(n_candidates)]
    arms = {("baseline", part): both.baseline for part in parts} | {
        (name, part): both.candidate for name in names for part in parts
    }
    document = report_of(study(arms)).content
    heads = r"KL \(95 % CI\) +flips, % \(95 % CI\)"
    number = r"\d\S* \(\S+ to \S+\)"
    both_intervals = rf"{number} +{number}$"
    wide = summary(document, width=120)
    assert re.search(rf"change, % \(95 % CI\) +{heads} +claim", wide), wide
    for width in (80, 60):
        text = summary(document, width=width)
        table, below = text.split("\n\n")[1:3]
        assert "KL" not in table and "claim" in table, text
        head, *lines = below.split("\n")
        assert re.search(f"{heads}$", head), text
        assert max(map(len, [*table.split("\n"), *below.split("\n")])) <= width
        rows = [line for line in lines if re.search(both_intervals, line)]
        assert len(rows) == n_candidates * len(parts), text
        if len(parts) > 1:  # without the metric of the table above
            assert not re.search("perplexity", below), text
            assert all(re.search(rf"\b{part}\b", below) for part in parts), text
    assert (
        re.search(heads.replace(" +", r" \| "), summary_markdown(document)) or len(parts) > 1
    )


def test_flips_keep_their_line_where_the_divergence_is_judged():
    "A table of one comparison had a head and no line."
    document = report_of(compare(with_divergence(), margin={"kl_divergence": 0.1})).content
    below = summary(document, width=60).split("\n\n")[2]
    assert re.search(r"flips, % \(95 % CI\)\nperplexity +\d\S* \(", below), below


@pytest.mark.parametrize("n_clusters, each", [(60, ""), (30, "2"), (13, "4.62")])
def test_needed_clusters_are_counted_in_examples_too(n_clusters, each):
    "A benchmark may have 67 kinds of questions: nobody can add 347 of them."
    rng = np.random.default_rng(5)
    names = np.arange(60) * n_clusters // 60
    base = rng.random(60)
    arms = [
        Scores(ids=range(60), values=values, score="f1", clusters=names.tolist())
        for values in (base, base + 0.02 + rng.normal(0, 0.2, 60))
    ]
    text = str(compare(pair(*arms))).split("\n")[0]
    if n_clusters == 60:
        assert re.search(r"about [\d,]+ (clusters|examples) would", text)
        return
    pattern = rf"about ([\d,]+) clusters \(([\d,]+) examples at {each} each, as here\) would"
    needed, n = re.search(pattern, text).groups()
    clusters, examples = (int(number.replace(",", "")) for number in (needed, n))
    assert examples == round(clusters * 60 / n_clusters) > 0


def test_power_of_windows_in_text_order_is_that_of_their_few_degrees_of_freedom():
    "Of 12 windows a change of 1.7 % was said to be found with 80 % power beside an interval of 2.9 % each way; it is found in 2 of 10."
    rng, n, trials = np.random.default_rng(1), 24, 120
    losses_of = rng.normal(3, 0.3, n)

    def row(change):
        moved = losses_of + change + 0.03 * rng.normal(size=n)
        both = pair_arrays(losses_of, moved, [64] * n)
        return compare(both, metrics=["perplexity"]).report().content.rows[0].value

    said = np.median([smallest_found(row(0)) for _ in range(trials)])
    found = np.mean([row(said).ci[0] > 0 for _ in range(trials)])
    assert 0.6 <= found <= 0.95, (said, found)


def test_slices_that_were_asked_for_are_shown():
    column = [*answers().slices][0]
    asked, usual = str(compare(answers(), by=[column])), str(compare(answers()))
    values = {*answers().slices[column]}
    assert (
        len(values) > 1
        and all(f"\n{column} {value}" in asked for value in values)
        and not any(f"\n{column} {value}" in usual for value in values)
    )
    said = "Slices by language are described, not judged, as nobody asked for them ("
    assert (
        f"{said}clearest loss: " in usual and usual.count("by=['language'] judges them.") == 1
    )
    assert said not in asked


def test_a_loss_perhaps_within_the_margin_says_how_it_passes():
    small = next(
        s
        for k in range(1, 60)
        if "perhaps by less" in (s := compare(losses(k / 2000))).headline
    )
    assert (
        small.report().exit.rule == "perhaps_within_margin"
        and small.report().exit_code == 1
        and "--require not-beyond lets such a loss pass" in small.report().exit.because
        and "--require" not in str(small)
    )
    assert (
        compare(small.measured["candidate", ""].pair, required="not-beyond").report().exit_code
        == 0
    )
    far = compare(losses(0.1))
    assert far.report().exit.rule == "primary_regressed" and "--require" not in str(far)


@pytest.mark.parametrize("limit", [None, 1e-4])
def test_the_option_that_lets_a_small_loss_pass_is_named_only_where_it_does(limit):
    "It was named beside a divergence beyond its margin, and the exit stayed 1."
    margin = {"perplexity": 0.01}
    if limit:
        margin["kl_divergence"] = limit
    both = with_divergence()
    end = compare(both, margin=margin).report().exit
    assert end.rule == "perhaps_within_margin" and end.code == 1
    assert ("KL divergence regressed" in end.reason) == bool(limit)
    is_named = "--require not-beyond" in end.because
    followed = compare(both, margin=margin, required="not-beyond").report().exit
    assert is_named == (not limit) == (followed.code == 0)


def test_a_comment_says_what_was_compared_why_it_is_red_and_how_to_check():
    said = summary_markdown(report_of(compare(losses(0.05))).document())
    assert re.search(r" On (\d+ documents, )?\d+ windows\.$", said, re.M), said
    assert (
        "Exit code 1: perplexity regressed. To accept a known loss, add its row to the study file:"
        in said
    )
    assert '```toml\n[[accepted]]\nup_to = "' in said
    assert "in the folder of this report: `invar-nb verify .`" in said
    fine = summary_markdown(report_of(compare(losses(0))).document())
    assert "Exit code" not in fine and "[[accepted]]" not in fine


def test_candidates_on_several_texts_are_counted_once_and_the_one_to_ship_is_named():
    base = {part: losses(n=120, seed=k).baseline for k, part in enumerate(("news", "law"))}
    worse = {"q8": (0, 0), "q6": (0, 0), "q4": (0, 0.06)}

    def ranked(fact="weight_bytes", **sizes):
        facts = lambda name: {fact: sizes[name]} if name in sizes else {}
        arms = {
            ("baseline", part): arm.changed(provenance=facts("baseline"))
            for part, arm in base.items()
        } | {
            (name, part): base[part].changed(
                model=name,
                log_loss=base[part].log_loss
                + shift
                + np.random.default_rng(3).normal(0, 0.002, 120),
                provenance=facts(name),
            )
            for name, shifts in worse.items()
            for part, shift in zip(base, shifts, strict=True)
        }
        return report_of(study(arms)).document()

    d = ranked()
    assert (
        d["headline"].startswith(
            "3 candidates on 2 texts, perplexity: 1 regressed (q4 on law "
        )
        and "2 equivalent" in d["headline"]
        and d["headline"].endswith(" Not worse by 2 % on both texts: q6, q8.")
    )
    assert ranked(q8=8, q6=6, q4=4)["headline"].endswith(
        " Smallest that is not worse by 2 % on both texts: q6."
    )
    assert ranked(q8=6, q6=6, q4=4)["headline"].endswith(
        " Smallest that is not worse by 2 % on both texts: q6, q8."
    )
    assert ranked(baseline=6, q8=6, q6=6, q4=4)["headline"].endswith(
        " Not worse by 2 % on both texts: q6, q8."
    )  # none is smaller than the baseline
    assert ranked(fact="bits_per_weight", baseline=16, q8=8, q6=6, q4=4)["headline"].endswith(
        " Smallest that is not worse by 2 % on both texts: q6."
    )
    assert "| baseline | " in summary_markdown(d)
    worse["q8"] = worse["q6"] = 0.06, 0
    assert ranked()["headline"].endswith(" Not worse by 2 % on both texts: none.")


def test_few_units_under_a_family_are_a_doubt_that_a_terminal_shows():
    base = {part: losses(n=14, seed=k).baseline for k, part in enumerate(("news", "law"))}
    arms = {("baseline", part): arm for part, arm in base.items()} | {
        ("q8", part): arm.changed(
            log_loss=arm.log_loss + np.random.default_rng(1).normal(0, 0.01, 14)
        )
        for part, arm in base.items()
    }
    d = report_of(study(arms)).document()
    assert any(
        "would be too few" in line for line in d["doubts"]
    ) and "would be too few" in summary(d)


def overconfident(n=400, shift=0.0):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, n)
    right = rng.uniform(size=n) < p**1.4
    return predictions_from_columns(
        {
            "id": range(n),
            "label": [1] * n,
            "prediction": right.astype(int),
            "confidence": np.clip(p + shift, 0, 0.999),
        }
    )


def test_a_metric_that_is_not_judged_says_why_and_has_no_power():
    result = compare(overconfident(), overconfident(shift=0.04), metrics=["ece"])
    reason = "the noise of an ECE never cancels, so its interval covers too little"
    assert reason in result.headline and "power" not in result.summary()
    assert "ECE and smooth calibration error: it would cover too" in (
        evaluate(overconfident()).summary()
    )
    smooth = compare(
        overconfident(), overconfident(shift=0.04), metrics=["smooth_calibration"]
    )
    assert "; its interval covers too little where a model is calibrated" in smooth.headline


def test_a_notebook_begins_with_the_headline_and_ends_with_the_exit_code():
    result = compare(overconfident(), overconfident(shift=0.04))
    report = result.report()
    assert report.exit.rule == "secondary_regressed"
    first, *_, last = report._sentences()
    assert first == result.headline and last.startswith("Exit code 1: Brier score regressed")
    assert str(result).startswith("Exit code 1: ")


def test_a_margin_of_one_is_one_point():
    old = np.linspace(0.3, 0.9, 60)
    noise = np.random.default_rng(1).normal(0, 0.02, 60)
    result = compare(old, old - 0.012 + noise, score="f1", margin=0.01)
    assert "perhaps by less than 1 point." in result.headline
    assert "1 points" not in result.rationale + result.summary()


def test_rows_that_count_tries_are_problems():
    def counts(shift):
        right = [(i * 7 + shift) % 11 for i in range(60)]
        frame = {"id": range(60), "samples": [10] * 60, "correct_samples": right}
        return pd.DataFrame(frame)

    result = compare(counts(0), counts(1), score="pass@5")
    text = " ".join(
        [result.headline, result.summary(), result.rationale, result.to_markdown()]
    )
    assert "over 60 problems" in text and "On 60 problems" in text and "examples" not in text
    alone = evaluate(counts(0), score="pass@5")
    assert "on 60 problems" in alone.headline and "over 60 problems" in alone.summary()


@pytest.mark.parametrize("method", ["jackknife", "bca"])
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_lost_and_won_are_counted_whatever_the_units_and_for_every_mark(method, better):
    "By brute force: of clusters, by a bootstrap, beside the leading score, on slices."
    rng = np.random.default_rng(3)
    n = 240
    kinds = np.array(["law", "code"])[rng.integers(0, 2, n)]
    clusters = [f"c{i // 4}" for i in range(n)]
    marks = {name: rng.integers(0, 2, n) for name in ("old", "new")}
    arms = {
        name: Scores(
            ids=range(n),
            values=rng.random(n),
            score="f1",
            better="higher",
            others={"flag": values},
            lower=("flag",) if better == "lower" else (),
            clusters=clusters,
            slices={"kind": kinds.tolist()},
        )
        for name, values in marks.items()
    }
    document = (
        compare(arms["old"], arms["new"], by=["kind"], method=method).report().document()
    )
    rows = {
        (row["key"]["metric"], row["key"]["slice"]): row["value"] for row in document["rows"]
    }
    fell, rose = marks["old"] > marks["new"], marks["new"] > marks["old"]
    lost, won = (fell, rose) if better == "higher" else (rose, fell)
    for where, among in ((None, np.ones(n, bool)), ("kind law", kinds == "law")):
        value = rows["score:flag", where]
        assert value["units"] == "clusters"
        assert (value["lost"], value["won"]) == ((lost & among).sum(), (won & among).sum())
        assert rows["score", where]["lost"] is None


def test_what_is_required_is_said_of_each_candidate():
    rng = np.random.default_rng(1)
    n = 900
    old = (rng.random(n) < 0.7).astype(float)
    kinds = {"kind": [("law", "code", "math")[i % 3] for i in range(n)]}
    arms = {}
    for name, share in (("baseline", 0), ("q8", 0), ("q6", 0.004), ("q2", 0.2)):
        values = np.where(rng.random(n) < share, 0.0, old)
        arms[name] = Scores(ids=range(n), values=values, score="f1", slices=kinds)
    report = study(arms, by=["kind"], required="slices").report()
    text = summary(report.document())
    for name in ("q8", "q6", "q2"):
        assert text.count(f"equired of {name}: ") == 1, text
    assert "May be the best: q8" in text


def test_who_may_be_the_best_is_said_of_each_text_or_of_the_pooled_change():
    made = study(grid(["q8", "q6", "q4"], ["law", "wiki"]))
    text = str(made)
    assert re.search(
        r"May be the best, judged on each by itself: on law .*; on wiki .*\.", text
    )
    for ranking in made.report().content.rankings:
        names = best_names(made.report().content, ranking)
        clause = ", ".join(names) if len(names) < 3 else "any of the 3"
        assert f"on {ranking.part} {clause}" in text
    pooled = str(study(grid(["q8", "q6", "q4"], ["law", "wiki"]), pooling="equal"))
    assert pooled.count("May be the best over all: ") == 1 and "on law q" not in pooled
    many = str(study(grid(["q8", "q4"], [f"text {k}" for k in range(5)])))
    assert "The report says it of 2 more." in many


def test_pooled_rows_of_a_picture_stand_in_the_order_of_the_rows_of_each_text():
    "They stood by name, so that the order flipped between them and the texts below."
    made = study(grid(["q8", "q6", "q4"], ["law", "wiki"]), pooling="equal")
    rows, _ = figure_rows(report_of(made).content)
    assert [row.key.candidate for row in rows] == ["q8", "q6", "q4"] * 3


def test_a_cut_table_keeps_the_best_rows_and_says_where_rows_are_left_out(documents):
    "Rows in the middle were dropped while those around them stood as if complete."
    d = documents["40 candidates"]
    files = render(d)
    lines = [line for line in files["summary.md"].splitlines() if line.startswith("| ")]
    best = d.content.rankings[0].order[0]
    assert any(re.sub(r"\\", "", line).startswith(f"| {best} ") for line in lines)
    table = Table.of(["name"], [[f"row {i}"] for i in range(10)])
    ranks = [3, 3, 0, 3, 3, 0, 3, 3, 3, 3]
    rows = [replace(row, rank=k) for row, k in zip(table.lines, ranks, strict=True)]
    rows[9] = replace(rows[9], is_best=True)
    cut_table = replace(table, lines=rows).first(4)  # of which the best may take a quarter
    assert [line.cells[0] for line in cut_table.lines] == [
        "row 0",
        "(1 left out here)",
        "row 2",
        "(2 left out here)",
        "row 5",
        "(3 left out here)",
        "row 9",
        "and 6 more: 6 equivalent",
    ]


def test_summary_names_all_that_may_be_the_best(documents):
    d = documents["40 candidates"].content
    names = best_names(d, d.rankings[0])
    said = re.sub(r"\\(.)", r"\1", render(documents["40 candidates"])["summary.md"])
    whole = f"May be the best: {', '.join(names)}." in said
    assert whole or f"May be the best: any of the {len(names)}." in said


def test_a_long_note_of_a_picture_is_wrapped():
    "It was one line, cut off at both sides of the picture."
    note = "100 of 120 rows not shown: 6 worse within margin, 84 equivalent, 9 better."
    bars = [("q4", 0.0, -1.0, 1.0, "equivalent")]
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", str(interval_figure(bars, note=note)))
    lines = [text for text in texts if text in note]
    assert " ".join(lines[-2:]) == note and max(map(len, lines)) <= 58
    heights = [
        float(
            re.search(r'viewBox="0 0 \S+ ([\d.]+)"', str(interval_figure(bars, note=text)))[1]
        )
        for text in ("short", note)
    ]
    assert heights[1] == heights[0] + 16


def test_a_table_for_a_paper_is_latex_that_compiles_and_a_frame_of_few_columns():
    "Names with marks that LaTeX reads as commands are escaped; every line has all cells."
    rng = np.random.default_rng(6)
    before = 0.1 + 0.8 * rng.random(80)
    names = ["q8_0 & 50 %", r"a\b{c}~^#$<|>"]
    arms = {name: before - 0.05 + 0.01 * rng.random(80) for name in names}
    done = study({"baseline": before, **arms}, score="f_1%", better="higher")
    for result in (done, done.report()):
        text = result.to_latex()
        body = [line for line in text.splitlines() if not line.startswith("%")]
        plain = re.sub(r"\\(text\w+\{\}|[&%$#_{}])|\$-\$", "", "\n".join(body[2:-2]))
        assert not re.search(r"[%$#_{}~^<>|]", plain)
        cells = [line.count(" & ") for line in plain.splitlines() if line.endswith(r"\\")]
        assert len(set(cells)) == 1 and len(cells) == 4  # heads, baseline, two candidates
        assert body[0] == rf"\begin{{tabular}}{{l{(cells[0] - 1) * 'r'}l}}"
        assert [body[1], body[3], body[-2]] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert r"q8\_0 \& 50 \%" in text and r"\textbackslash{}b\{c\}" in text
    assert "$-$" in text
    frame = done.summary_frame()
    assert [*frame.columns] == [*SUMMARY_COLUMNS]
    assert [*frame.model] == names and {*frame.metric} == {"f_1%"} and {*frame.unit} == {""}
    row = frame.iloc[0]
    assert row.after - row.before == pytest.approx(row.change)
    assert row.low < row.change < row.high


def test_adjusted_p_of_a_frame_follows_from_its_family_p():
    "From `p_value`, that of the row's own test, it could not be computed."
    frame = compare(answers(), by=["language"]).to_frame()
    rest = frame[frame.adjusted_p.notna() & frame.family_p.notna()]
    assert len(rest) > 1
    np.testing.assert_allclose(rest.adjusted_p, holm(rest.family_p), rtol=1e-12)
