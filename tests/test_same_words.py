"""What several places say of one study: words, numbers and rows must agree."""

import re
from collections import Counter
from functools import cache

import numpy as np
import pandas as pd
import pytest

from invar_nb import Scores, UsageError, compare, study
from invar_nb.comparison.family import judged_families
from invar_nb.comparison.study import Study
from invar_nb.foundations.interval import reach_of
from invar_nb.report.pictures import MOST_BARS, answer_forest
from invar_nb.report.tables import Line, Table

TOPICS = ("code", "medicine", "law", "history")


def results(seed: int, *, passed: float, judge: float, latency: float) -> pd.DataFrame:
    "400 examples of a model: a share that passed, a judge's score and a latency."
    rng = np.random.default_rng(seed)
    of_item = np.random.default_rng(0)  # what both models find hard
    hard = of_item.random(400)
    grades = of_item.normal(3, 1, 400)
    return pd.DataFrame(
        {
            "item_id": [f"q{i:03d}" for i in range(400)],
            "topic": [TOPICS[i % 4] for i in range(400)],
            "document": [f"doc{i // 4}" for i in range(400)],
            "passed": (hard + 0.1 * rng.random(400) < passed).astype(int),
            "judge_score": grades + judge + 0.3 * rng.normal(size=400),
            "latency_ms": 300 + latency + 60 * rng.normal(size=400),
        }
    )


@cache
def tables() -> dict[str, pd.DataFrame]:
    "The results of three models; one of them lost much."
    return {
        "baseline": results(1, passed=0.75, judge=0, latency=0),
        "int8": results(2, passed=0.74, judge=0.05, latency=15),
        "int4": results(3, passed=0.58, judge=-0.3, latency=4),
    }


SCORES = {"passed": None, "judge_score": 0.1, "latency_ms": 20}


def study_of(*scores: str, **options: object) -> Study:
    "The three models compared by these scores, with the margins that users would choose."
    margin = {name: SCORES[name] for name in scores if SCORES[name]}
    return study(tables(), score=list(scores), cluster="document", margin=margin, **options)


@cache
def three_scores() -> Study:
    "Three scores of two candidates."
    return study_of(*SCORES)


@cache
def two_scores_by_topic() -> Study:
    "Two scores of two candidates, sliced by topic."
    return study_of("passed", "judge_score", by="topic")


@cache
def many_merges() -> Study:
    "30 merges on two texts, of which many are not worse and few are equivalent."
    rng = np.random.default_rng(5)
    texts = np.repeat(["chat", "code"], 60)
    documents = [f"{text}{i}" for i, text in enumerate(texts)]
    base = rng.normal(3, 0.5, 120)
    frames = {}
    for i in range(31):
        losses = base + 0.02 * rng.normal(size=120) + (i - 15) * 0.0012 * (i > 0)
        columns = {"text": texts, "document": documents, "loss": losses, "tokens": 256}
        frames[f"merge_{i:02d}" if i else "baseline"] = pd.DataFrame(columns)
    return study(frames, part="text", margin=0.01)


def latex_words(text: str) -> Counter:
    "How often each word for a claim stands in a LaTeX table of one row a line."
    body = text.partition(r"\midrule")[2]
    return Counter(re.findall(r"& ([a-z ]+?)\*? \\\\", body))


def test_frames_have_the_word_that_is_printed():
    "A row printed as 'not worse' was 'inconclusive' in both frames."
    done = three_scores()
    words = {row.value.title: row.word for row in done.select(candidate="int8")}
    assert "not worse" in words.values()
    summary = done.summary_frame()
    of_int8 = summary[summary.model == "int8"]
    assert dict(zip(of_int8.metric, of_int8.claim, strict=True)) == words
    frame = done.to_frame()
    assert [*frame.word] == [done[row.candidate, row.title].word for row in frame.itertuples()]
    assert {*frame.claim} <= {"inconclusive", "regressed", "equivalent", "improved"}
    assert latex_words(done.to_latex()) == Counter(summary.claim)
    assert "word" in type(done.row).word.__doc__


def test_words_of_a_sweep_are_counted_alike():
    "Of 51 rows, inconclusive in the frames, print called 32 not worse."
    done = many_merges()
    words = Counter(row.word for row in done.leading)
    assert words["not worse"] > 3
    assert Counter(done.to_frame().word) == words
    assert Counter(done.summary_frame().claim) == words
    table = str(done).partition("claim\n")[2]
    printed = Counter(re.findall(r"\)\s+([a-z ]+?)\*?$", table, re.M))
    assert printed == words


def test_a_cut_table_counts_the_words():
    lines = [
        Line(cells=[f"row {i}"], rank=2, word="not worse" if i else "inconclusive")
        for i in range(5)
    ]
    cut = Table.of([""], []).__class__(columns=Table.of([""], []).columns, lines=lines)
    assert cut.first(2).lines[-1].cells[0] == "and 3 more: 3 not worse"


def test_latex_explains_its_star():
    text = two_scores_by_topic().to_latex()
    assert "*" in text
    note = r"\multicolumn{5}{l}{\footnotesize *: the interval alone would claim more.} \\"
    *_, note_line, end = text.splitlines()
    assert (note_line, end) == (note, r"\end{tabular}")
    assert (
        "footnotesize"
        not in compare(
            tables()["baseline"], tables()["int4"], score="judge_score", margin=0.1
        ).to_latex()
    )


def numbers_used(done: Study) -> list[int]:
    "How many rows each family has by the adjustment itself: Holm multiplies the smallest p."
    leading = {row.key for row in done.leading}
    sizes = []
    for is_leading in (True, False):
        rows = [row for row in done.rows if row.p and (row.key in leading) == is_leading]
        sizes.append(max((sum(q in row.p for row in rows) for q in ("change",)), default=0))
        smallest = min(rows, key=lambda row: row.p["change"], default=None)
        if smallest is not None and not is_leading:
            ratio = smallest.adjusted["change"] / smallest.p["change"]
            assert round(ratio) == sizes[-1]
    return sizes


@pytest.mark.parametrize("make", [three_scores, two_scores_by_topic])
def test_the_families_that_are_said_are_those_that_are_adjusted(make):
    "'claims are corrected for 2 rows' stood below rows that were corrected for 18."
    done = make()
    n_leading, n_others = numbers_used(done)
    assert [*map(len, judged_families(done.rows, done.rules.deciding))] == [
        n_leading,
        n_others,
    ]
    sentence = (
        "Intervals are individual; claims are corrected for the rows judged together: "
        f"{n_leading} that lead, {n_others} others."
    )
    for text in (str(done), done.to_markdown(), done.report().to_markdown()):
        assert sentence in text


def test_one_family_is_said_as_one():
    done = study_of("passed")
    assert "claims are corrected for 2 rows." in str(done)


def test_the_axis_shows_the_leading_row_whole():
    "A loss of 17 points with a margin of 2 was an arrow at the edge."
    bars = [("int8", -2, -5.2, 1.2, None), ("int4", -16.7, -20.2, -13.1, "regressed")]
    assert reach_of(bars, (-2, 2)) >= 20.2  # two bars that differ by a factor of four
    lone = [("all", -50, -60, -40, "regressed"), ("a", 0, -1, 1, None), ("b", 0, -1, 1, None)]
    assert reach_of(lone, (-2, 2)) == 4 and reach_of(lone, (-2, 2), leads=[0]) >= 60
    several = [("q2", 900, 800, 950, "regressed"), *lone]
    assert reach_of(several, (-2, 2), leads=[0, 1]) == 4 and reach_of(lone[1:], None) > 60
    for done in (three_scores(), two_scores_by_topic(), study_of("passed", by="topic")):
        axes = done.plot()
        low, high = axes.get_xlim()
        interval = done["int4", "passed"].interval
        assert low < 100 * interval.low < 100 * interval.high < high
        assert "int4" in " ".join(label.get_text() for label in axes.get_yticklabels())
        assert "points" in axes.get_xlabel()


def test_a_picture_of_many_rows_keeps_the_best_and_says_what_it_leaves_out():
    done = many_merges()
    document = done.report().content
    forest = answer_forest(document)
    labels = [bar[0] for bar in forest.bars]
    assert len(labels) == MOST_BARS
    for ranking in document.rankings:
        assert f"{ranking.order[0]}, {ranking.part}" in labels
    worst = min(done.leading, key=lambda row: row.value.improvement)
    assert f"{worst.key.candidate}, {worst.key.part}" in labels
    assert forest.note.startswith("40 of 60 rows not shown: ")


def test_slices_that_were_asked_for_and_are_not_shown_are_counted():
    "10 of 20 rows were missing without a word."
    done = two_scores_by_topic()
    text = str(done)
    shown = len(re.findall(r"^.* [+-]\S+ +\(.* to .*\) .*[a-z*]$", text, re.M))
    n_missing = len(done.select(role="lead")) + len(done.select(role="rest")) - shown
    assert n_missing > 0
    assert f"and {n_missing} more in the report" in text
    assert f"{n_missing} rows are not shown: .to_frame() has them." in text


def test_a_study_makes_its_report_once(monkeypatch):
    "Each display of 120 rows took five seconds, as each made the report anew."
    from invar_nb.report import report as module

    calls = []
    build = module.document_of

    def counted(*values: object, **named: object) -> object:
        calls.append(1)
        return build(*values, **named)

    monkeypatch.setattr(module, "document_of", counted)
    done = study_of("passed")
    for show in (done.to_frame, done.summary_frame, done.to_latex, done.to_markdown):
        show()
    assert str(done) and done._repr_html_() and len(calls) == 1
    assert done.report() is not done.report()  # each has the time at which it was made


def test_a_summary_names_scores_and_has_the_order_of_print():
    frame = three_scores().summary_frame()
    assert {*frame.metric} == {*SCORES}
    lines = str(three_scores()).splitlines()
    printed = [line.split("  ")[0] for line in lines if re.search(r"\(.* to .*\)", line)]
    names = [
        row.model if row.metric == "passed" else f"{row.model}: {row.metric}"
        for row in frame.itertuples()
    ]
    assert names == printed[: len(names)]


def test_a_metric_of_several_candidates_names_a_cure_that_works():
    done = three_scores()
    with pytest.raises(KeyError, match="several candidates") as error:
        done["passed"]
    cure = re.search(r"write study(\[.*?\])", str(error.value))[1]
    assert eval(f"done{cure}", {"done": done}).value.title == "passed"


def test_a_margin_for_an_unknown_name_names_scores_as_users_do():
    with pytest.raises(UsageError, match="'passed'") as error:
        study_of("passed", by="topic") and study(
            tables(), score="passed", cluster="document", margin={"topic code": 0.05}
        )
    assert "'score'" not in str(error.value)


def test_markdown_of_a_study_in_memory_speaks_of_no_folder(tmp_path):
    report = three_scores().report()
    text = report.to_markdown()
    for words in ("in the folder of this report", "Exit code", "study file", "report.md"):
        assert words not in text
    assert "Check: `.report().save(folder)`, then `invar-nb verify folder`" in text
    assert "`accepted=`" in text
    report.save(tmp_path / "saved")
    saved = (tmp_path / "saved/summary.md").read_text()
    assert "Check, in the folder of this report: `invar-nb verify .`" in saved
    assert "Exit code 1" in saved and "study file" in saved


def test_the_promise_of_pooled_rows_is_said_of_them_alone(tmp_path):
    "Pooled rows and rows of texts are two families, which err apart: 7.8 of 100 reports."
    rng = np.random.default_rng(2)
    arms = {}
    for name in ("baseline", "b", "c"):
        for text in ("x", "y"):
            values = rng.gamma(30, 0.1, 60)
            arms[name, text] = Scores(
                ids=range(60), values=values, score="loss", better="lower"
            )
    options = {"margin": 0.2}
    texts = []
    for name, more in (("pooled", {"pooling": "equal"}), ("apart", {})):
        study(arms, **options, **more).report().save(tmp_path / name)
        texts.append((tmp_path / name / "report.md").read_text())
    said = "in the pooled rows; rows of single texts may add as many"
    assert said in texts[0] and "in the pooled rows" not in texts[1]
    assert all("call any edit without effect changed" in text for text in texts)
