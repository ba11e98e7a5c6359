"What Python prints and a notebook shows of each result: one line, a sentence with a table, a picture, axes, columns."

import json
import math
import re
import sys
from collections import Counter
from dataclasses import replace

import matplotlib
import msgspec
import numpy as np
import pyarrow
import pytest
from commands import shell
from documents import answer_table, summary
from studies import STUDIES, answers, arms_of, losses, marks, recipes
from test_report import EVIL, Tags

from invar_nb import (
    LOG,
    LOWER,
    ContractError,
    Interval,
    MetricSpec,
    Rules,
    compare,
    compare_runs,
    compare_weights,
    evaluate,
    mcnemar,
    paired_t_test,
    reliability_bins,
    result_html,
    study,
    verify,
)
from invar_nb.arms.pair import pair, pair_arrays
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.rows import Key, Level
from invar_nb.foundations.interval import Forest, Shown, ends_text, reach_of
from invar_nb.foundations.refuse import UsageError
from invar_nb.metrics.metric import METRICS
from invar_nb.report.build import document_of
from invar_nb.report.document import as_document
from invar_nb.report.pictures import answer_forest, other_rows
from invar_nb.report.plan import plan_comparison
from invar_nb.report.report import render
from invar_nb.report.tables import (
    Column,
    Line,
    Table,
    answer_rows,
    compact_table,
    rank_of_line,
)
from invar_nb.shell.demo import demo_model

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

SHAPES = STUDIES | {
    "one window": lambda: compare(losses(n=1)),
    "no change": lambda: compare(losses(0.0, noise=0)),
    "levels": lambda: evaluate({"a": losses().baseline, "b": losses(n=40).baseline}),
    "level": lambda: evaluate(answers().baseline),
    "failed": lambda: study(
        recipes({"lion": "oom"}), Rules(metrics=["loss"], better={"loss": "lower"})
    ),
}


def loss_runs(shift, seeds=5, status="completed"):
    return [
        dict(seed=i, status=status, metrics={"loss": 2.3 + 0.01 * i + shift * (1 + 0.1 * i)})
        for i in range(seeds)
    ]


def runs(shift=-0.07, **more):
    spec = MetricSpec("loss", direction=LOWER, scale=LOG)
    return compare_runs(
        spec, baseline_runs=loss_runs(0), candidate_runs=loss_runs(shift, **more)
    )


RESULTS = {
    "interval": lambda: Interval(low=1.000213, high=1.000497, level=0.95, method="bca"),
    "point": lambda: Interval(low=0, high=0, level=0.95, method="t"),
    "t": lambda: paired_t_test([1, 2, 4], [0, 1, 2]),
    "one pair": lambda: paired_t_test([1], [0]),
    "McNemar": lambda: mcnemar(3, 9, trials=40),
    "McNemar, counts": lambda: mcnemar(3, 9),
    "runs": runs,
    "failed runs": lambda: runs(status="oom"),
    "verdict": lambda: runs().verdict,
    "weights": lambda: compare_weights(demo_model("base"), demo_model("tuned")),
    "same weights": lambda: compare_weights(demo_model("base"), demo_model("base")),
    "plan": lambda: plan_comparison(losses()),
    "row": lambda: compare(losses()).row,
    "difference": lambda: compare(marks()).row.value,
    "level": lambda: evaluate(losses().baseline).rows[0].value,
    "bins": lambda: reliability_bins([0.55] * 10 + [0.95] * 30, [0, 1] * 20),
    "bins without a band": lambda: reliability_bins([0.55], [1], null=False),
    "no level": lambda: Level(
        metric=METRICS["perplexity"], estimate=None, n=3, missing="no losses"
    ),
}


def shown(result):
    "What holds for every result; its line, its text, its HTML."
    line, text, page = repr(result), str(result), result._repr_html_()
    assert (
        line.startswith(f"{type(result).__name__}(")
        and "\n" not in line
        and len(line) <= 102
        and line.isprintable()
    )
    assert text.startswith(result.summary()) and text.endswith(result.hint)
    tags = Tags()
    tags.feed(page)
    assert (
        not tags.open
        and not tags.wrong
        and {tag for tag, _ in tags.seen}
        <= {
            "div",
            "p",
            "b",
            "svg",
            "title",
            "text",
            "rect",
            "path",
            "circle",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "code",
        }
    )
    assert "\x1b" not in page and "{{" not in page
    return line, text, page


def plotted(result):
    "Axes, in a figure that a caller made; or a refusal."
    _, axes = pyplot.subplots(1, 2)
    try:
        assert result.plot(ax=axes[1]) is axes[1] and axes[1].lines and not axes[0].lines
    except UsageError as error:
        assert error.code == "no_interval" and repr(result) in str(error)
        return None
    finally:
        pyplot.close("all")
    return axes[1]


@pytest.mark.parametrize("name", SHAPES)
def test_a_study_of_each_shape(name):
    done = SHAPES[name]()
    line, text, page = shown(done)
    report = done.report()
    assert (
        text == f"{report.summary()}\n\n{done.hint}"
        and ".report()" in text
        and ".save(folder)" in shown(report)[1]
    )
    assert not any("More: ." in str(content) for content in render(report).values())
    alone = len(report.document()["pairs"]) == 1
    assert (
        len(page) < (8000 if alone else 30_000)
        and page.count("<svg") <= 1
        and "<iframe" not in page
    )
    for row in done:
        shown(row)
    axes = plotted(done)
    assert (axes is None) == ("<svg" not in page)
    if axes:
        bars = report._forest().bars
        assert [
            re.split(r" [+-][\d.]", label.get_text())[0] for label in axes.get_yticklabels()
        ] == [bar[0] for bar in bars]
    table, frame, content = pyarrow.table(done), done.to_frame(), report.content
    assert (
        table.schema.names == [*frame.columns]
        and table.num_rows == len(frame) == len(content.rows) + len(content.levels)
        and table.equals(pyarrow.table(report))
    )
    assert table.column("claim").to_pylist() == [
        row.claim if row.value.judged else row.words.claim for row in content.rows
    ] + [None] * len(content.levels)


@pytest.mark.parametrize("name", RESULTS)
def test_each_other_result(name):
    if "weights" in name:
        pytest.importorskip(
            "safetensors", reason="weights are read by safetensors, which comes with torch"
        )
    result = RESULTS[name]()
    line, text, page = shown(result)
    assert (plotted(result) is None) == ("<svg" not in page) and len(page) < 8000
    if name not in ("no level", "same weights"):
        assert pyarrow.table(result).num_rows == len(result.to_frame()) >= 1


def test_the_line_is_in_the_readers_unit():
    one = repr(compare(losses(0.002, 0.005, seed=2), margin=0.02))
    assert one.startswith("Study(equivalent within 2 %: perplexity +0.") and one.endswith(
        " %], 96 documents)"
    )
    assert (
        repr(compare(answers(30), margin=0.01).row).startswith(
            "Row(regressed: accuracy -15.0 points [-"
        )
        and "points" not in repr(compare(answers(30)).row).partition("[")[2]
    )
    assert (
        repr(runs()).startswith("RunsComparison(improved: loss -")
        and repr(runs(status="oom").verdict) == "Verdict(failed: loss)"
    )
    assert repr(runs(0.0001).verdict).startswith("Verdict(worse below margin: loss +0.0")
    assert (
        repr(runs(0.07)).startswith("RunsComparison(regressed: loss +")
        and repr(paired_t_test([1], [0]))
        == "TTest(candidate - baseline: +1 [1, 1], no p-value, 1 pair (single_pair))"
    )
    several = study(
        {
            "baseline": losses().baseline,
            "q8": losses(0.001, 0.004).candidate,
            "q4": losses(0.06).candidate,
        },
        margin=0.02,
    )
    assert repr(several).startswith(
        "Study(2 candidates, perplexity: 1 regressed (q4 +5."
    ) and repr(several.select(candidate="q8", role="lead")[0]).startswith(
        "Row(q8, equivalent within 2 %: perplexity"
    )
    assert repr(evaluate(losses().baseline)).startswith("Study(old: perplexity 1")
    assert repr(SHAPES["failed"]()).startswith(
        "Study(3 candidates, loss: 1 failed (lion), 1 regr"
    ) and repr(compare(losses(n=1))).endswith("%, no interval, 1 window in text order)")
    assert (
        ends_text(0.1, 0.1) == "[0.1, 0.1]"
        and ends_text(1e5 + 0.001, 1e5 + 0.002) == "[100000.001, 100000.002]"
    )


def test_the_claim_is_in_colour_and_the_picture_has_the_margin():
    worse, better = (
        compare(losses(0.06), margin=0.02)._repr_html_(),
        compare(losses(-0.06), margin=0.02)._repr_html_(),
    )
    assert (
        '<b style="color:var(--worse,' in worse
        and ">Regressed</b>" in worse
        and ">regressed</b>" in worse
        and "var(--better" not in worse.partition("<svg")[0].partition(">")[2]
    )
    assert '<b style="color:var(--better,' in better and worse.count("var(--band") == 1
    done = compare(losses(0.06), margin=0.02)
    axes = plotted(done)
    low, estimate, high = (
        100 * math.expm1(x) for x in (done.interval.low, done.delta, done.interval.high)
    )
    assert {x for line in axes.lines for x in line.get_xdata()} >= {
        low,
        estimate,
        high,
    } and axes.get_xlabel() == "change of perplexity [%]"
    assert (
        axes.patches[0].get_x() == pytest.approx(100 * math.expm1(-0.02))
        and axes.get_ylim()[0] > axes.get_ylim()[1]
    )
    assert (
        plotted(evaluate(losses().baseline)).get_xlabel() == "perplexity"
    )  # a level has no margin and no line of 0
    assert not plotted(evaluate(losses().baseline)).patches


def test_a_plan_names_its_metric_by_title():
    assert plan_comparison(answers(30), metric="brier").to_dict()["metric"] == "Brier score"


def test_one_far_bar_does_not_squeeze_the_others():
    forest = Forest(
        margin=(-2, 2), bars=[("a", 0, -1, 1, None), ("far", 50, 40, 60, "regressed")]
    )
    assert (
        reach_of(forest.bars, forest.margin) == 4
        and reach_of(forest.bars[:1], None) == math.inf
    )
    axes = forest.plot()
    assert (
        axes.get_xlim()[1] < 6
        and ">" in {line.get_marker() for line in axes.lines}
        and axes.get_yticklabels()[1].get_text() == "far +50"
    )
    pyplot.close("all")


def test_hostile_names_are_text():
    arms = {
        "baseline": losses().baseline,
        EVIL: losses(0.06).candidate,
        "b": losses(0.01).candidate,
    }
    done = study(arms, margin=0.02)
    page = shown(done)[2]
    assert "<script" not in page and "&lt;script&gt;" in page and "\u202e" not in page
    shown(done.select(candidate=EVIL, role="lead")[0])
    shown(replace(runs().verdict, metric=EVIL, headline="", rationale=EVIL))
    assert done.plot().get_yticklabels()
    pyplot.close("all")


def test_a_name_that_a_study_does_not_have_is_said():
    with pytest.raises(AttributeError, match="Study has no attribute 'unit_eff'"):
        compare(losses()).unit_eff  # noqa: B018
    with pytest.raises(AttributeError, match="Study has no attribute 'influence'"):
        compare(losses()).influence  # of its row's value, and no name of a table  # noqa: B018


def test_a_line_never_fails():
    done = compare(losses())
    for rows in (
        (),
        done.rows,
        [replace(done.row, key=Key(EVIL, "x" * 200, "m"))],
        [replace(done.row, claim=None)],
    ):
        assert repr(replace(done, rows=tuple(rows), measured={}))
    d = done.row.value
    for size in (0.0, 1e-300, 1e-9, 700.0, 1.7e308):
        for scale, unit in (
            ("log", ""),
            ("linear", "nats"),
            ("linear", "share"),
            ("linear", "relative"),
        ):
            far = replace(
                d,
                metric=replace(d.metric, scale=scale, unit=unit),
                fit=replace(d.fit, estimate=size),
                interval=replace(d.interval, low=-size, high=size),
            )
            assert (
                repr(far)
                and repr(replace(done.row, value=far))
                and repr(replace(d.interval, low=-size, high=size))
            )
    verdict = runs().verdict
    for value in (None, 0.0, -1.0, 1e300):
        assert repr(replace(verdict, improvement=value)) and repr(
            replace(verdict, improvement=value, scale="linear")
        )


def test_columns_are_read_from_left_to_right():
    frame = compare(answers(30), metrics=["accuracy", "brier"]).to_frame()
    assert [*frame.columns[:14]] == [
        "candidate",
        "part",
        "metric",
        "slice",
        "claim",
        "word",
        "change",
        "change_low",
        "change_high",
        "change_unit",
        "baseline",
        "value",
        "n",
        "p_value",
    ]
    first = frame.iloc[0]
    assert (
        first.change == pytest.approx(100 * first.delta)
        and first.change_unit == "points"
        and first.change_low < first.change < first.change_high
    )
    log = compare(losses()).to_frame().iloc[0]
    assert (
        log.change == pytest.approx(100 * (log.value / log.baseline - 1))
        and log.change_unit == "%"
    )
    assert evaluate(losses().baseline).to_frame().change.isna().all()


@pytest.mark.parametrize(
    "name, call", [("pandas", lambda x: x.to_frame()), ("matplotlib", lambda x: x.plot())]
)
def test_a_missing_package_is_one_refusal(monkeypatch, name, call):
    done = compare(losses())
    for module in (name, f"{name}.pyplot"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        UsageError, match=f"{name} must be installed; got no such package. pip install {name}"
    ) as caught:
        call(done)
    assert caught.value.code == "not_installed"
    shown(done)
    assert pyarrow.table(done).num_rows == 1


def test_a_long_table_is_cut_and_a_class_without_a_picture_has_none():
    class Long(Shown):
        def summary(self):
            return "Failed: everything\nsecond <line>"

        def _table(self):
            return [["a", "b"], *([str(i), "improved"] for i in range(100))]

    page = shown(Long())[2]
    assert (
        page.count("<tr>") == 42
        and "and 60 more" in page
        and "second &lt;line&gt;" in page
        and "<svg" not in page
    )
    assert result_html(Long(), hint="<x>").count("&lt;x&gt;") == 1


def test_an_arrow_table_has_every_column_of_every_row():
    class Two(Shown):
        def _records(self):
            return [{"a": 1}, {"b": "x"}]

    assert pyarrow.table(Two()).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    done = study(
        {
            ("baseline", "text"): losses().baseline,
            ("new", "text"): losses(0.01).candidate,
            ("baseline", "quiz"): answers().baseline,
            ("new", "quiz"): answers().candidate,
        }
    )
    table = pyarrow.table(done)
    assert {"change", "ratio", "units"} <= {*table.schema.names} and table.to_pylist() == [
        {name: row.get(name) for name in table.schema.names} for row in done._records()
    ]
    assert (
        np.isfinite(table.column("change").to_numpy()).all()
        and pair(losses().baseline, losses().candidate).n == 96
    )


def test_runs_and_arrays_are_taken_or_refused_by_name(tmp_path):
    "evaluate, pair, study of what read_runs gives, and of arrays."
    old, new = (recipes()[name, "runs"].runs for name in ("baseline", "lion"))
    assert [row.key.metric for row in evaluate(old)] == ["loss", "hours"] and evaluate(
        [{"seed": 1, "terminal": "ok", "loss": 2.0}]
    )["loss"].value.estimate == 2
    assert {row.key.part for row in evaluate({"a": old, "b": new}, metrics=["loss"])} == {
        "a",
        "b",
    }
    done = study({"baseline": old, "new": list(new)}, better={"loss": "lower"})
    assert done.claim == "improved" and str(verify(done.report().save(tmp_path / "r")))
    for call, name in (
        (lambda: pair(old, new), "compare_runs"),
        (lambda: pair(*[recipes()["lion", "runs"]] * 2), "compare_runs"),
        (lambda: pair(np.ones(3), [1.0, 2.0, 3.0]), "pair_arrays"),
        (lambda: evaluate(np.ones(3)), "WindowLosses.from_arrays"),
        (
            lambda: study({"baseline": np.ones(3), "new": np.ones(3)}),
            "WindowLosses.from_arrays",
        ),
        (lambda: pair(losses().baseline, answers().baseline), "Pair losses with losses"),
    ):
        with pytest.raises(ContractError, match=name.replace(".", r"\.")) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_runs_print_a_table_and_why_no_claim_is_made():
    assert (
        MetricSpec("loss", "lower") == MetricSpec("loss", LOWER)
        and MetricSpec("loss", "higher").better == "higher"
    )
    head, row, below = [line for line in str(runs()).splitlines() if line][1:4]
    assert (
        head.split() == ["before", "after", "change", "(95", "%", "CI)", "claim"]
        and row.split()[:3] == ["loss", "2.32", "2.236"]
        and row.endswith(" to -3.06 %)  improved")
    )
    assert (
        below.startswith(
            "5 seeds: above the 2 % threshold and significant (paired t test, p <"
        )
        and "takes a change" not in below
    )
    small = runs(-0.02)
    assert small.verdict.claim == "inconclusive" and not small.difference.interval.contains(0)
    assert (
        "0 lies outside the interval, and a claim also takes a change of at least 2 %."
        in small.summary()
        and small._repr_html_().count("<td") == 5
    )
    assert runs(status="oom").summary() == runs(status="oom").verdict.headline


def test_no_label_of_an_axis_is_clipped():
    page = Interval(low=-0.00187, high=0.0001, level=0.95, method="jackknife")._repr_html_()
    texts = [(float(tag["x"]), text) for tag, text in svg_texts(page)]
    assert any(text == "-0.002" for _, text in texts) and all(
        3.9 * len(text) <= x <= 420 - 3.9 * len(text)
        for x, text in texts
        if text.strip("+-.0123456789") == ""
    )
    assert "95 % interval, jackknife, in the unit of the estimate" in page


def test_long_names_stay_different_in_a_figure_and_in_a_terminal():
    names = [
        f"meta-llama-3.1-8b-{word}-instruct-int4-awq-actorder" for word in ("tune", "try")
    ]
    made = study(arms_of({name: marks(seed=len(name)) for name in names})).report()
    labels = [text for _, text in svg_texts(render(made)["result.svg"]) if "llama" in text]
    assert len({*labels}) == 2 and max(map(len, labels)) < len(names[1])
    lines = [line for line in str(made).splitlines() if line.startswith("meta-llama")]
    assert len({line.split()[0] for line in lines}) == len(lines) == 2


def svg_texts(page):
    "(attributes, text) of each text of a picture."
    found = re.findall(r"<text ([^>]*)>([^<]*)</text>", page)
    return [(dict(re.findall(r'(\w[\w-]*)="([^"]*)"', tag)), text) for tag, text in found]


def test_the_frame_has_the_order_of_what_is_printed():
    done = study(
        {
            "baseline": losses().baseline,
            "q8": losses(0.001, 0.004).candidate,
            "q4": losses(0.06).candidate,
            "a9": losses(0.03).candidate,
        },
        margin=0.02,
    )
    printed = [
        line.split()[0] for line in str(done).splitlines() if line[:3] in ("q8 ", "q4 ", "a9 ")
    ]
    assert printed == ["q8", "a9", "q4"] == list(done.to_frame().candidate)


def test_python_prints_no_options_of_the_shell():
    done = compare(losses(n=40, noise=0.3))
    assert (
        done.claim == "inconclusive"
        and "\nNo regression was shown, and none was ruled out. A change of" in str(done)
    )
    assert "xit code" not in str(done) + done._repr_html_() and "--" not in str(done)
    assert (
        "Exit code 0: no regression was shown, and none was ruled out; with --fail-inconclusive this is exit 4."
        in summary(done.report().document())
    )
    lost = study({"baseline": losses().baseline, "new": losses(0.02).candidate}, margin=0.02)
    assert (
        "--require" in lost.report().exit.because
        and "--" not in str(lost)
        and "perhaps by less than the margin" in str(lost)
    )


def test_zeros_and_ones_are_no_losses():
    "Accuracy that falls would be a perplexity that improves."
    right = np.arange(40) % 2
    for both in ((right, 1 - right), (right, np.ones(40))):
        with pytest.raises(
            ContractError,
            match="got only 0 and 1. These look like answers, wrong or right: pair two Scores",
        ):
            pair_arrays(*both, np.ones(40, int))
    for a, b in (
        (right, np.full(40, 0.5)),
        (right, right + 1),
        (np.full(40, 2.0), np.ones(40)),
    ):
        assert len(pair_arrays(a, b, np.ones(40, int))) == 40


def test_a_notebook_shows_one_line_of_a_refusal():
    from IPython.core.interactiveshell import InteractiveShell

    shell, seen = InteractiveShell(), []
    shell._showtraceback = lambda kind, error, lines: seen.append(lines)
    shell.run_cell("import invar_nb; invar_nb.pair([1.], [2.])")
    assert (
        len(seen) == 1
        and len(seen[0]) == 1
        and seen[0][0].startswith("PairingError: pair: the arms must be losses")
    )
    shell.run_cell("1 / 0")
    assert len(seen[1]) > 3


# --- the figure and the short tables show what decided --------------------------------------------------------------------------------
def many(candidates=40, parts=("code", "law", "wiki")):
    "Candidates that get worse on three texts; the best ones of the alphabetically first text were all that a figure showed."
    rng, arms = np.random.default_rng(0), {}
    for part in parts:
        base, tokens, ids = (
            rng.gamma(40, 0.08, 30),
            rng.integers(100, 300, 30),
            [f"d{i}" for i in range(30)],
        )
        for i in range(-1, candidates):
            moved = base + (
                rng.normal(0.0012 * i + 0.01 * (part == "wiki"), 0.004, 30) if i >= 0 else 0
            )
            arms[f"cand{i:02d}" if i >= 0 else "baseline", part] = WindowLosses.from_arrays(
                ids, tokens, moved, document_ids=ids
            )
    return study(arms)


def test_of_many_rows_the_figure_and_tables_show_those_that_made_it_red_and_count_the_others(
    monkeypatch,
):
    made = many(12)
    report = made.report()
    d, forest = report.document(), report._forest()
    leads = [row for row in d["rows"] if row["role"] == "lead"]
    claims = Counter(row["claim"] for row in leads)
    assert (
        3 < claims["regressed"] < 20 < len(leads)
        and len(forest.bars) == 20
        and not forest.more
    )
    shown = Counter(bar[4] for bar in forest.bars)
    words = Counter(row["words"]["claim"] for row in leads)
    assert shown["regressed"] == claims["regressed"] and forest.bars[0][4] == "regressed"
    counts = {
        word: int(n)
        for n, word in re.findall(r"(\d+) ([a-z ]+?)(?=, |\.)", forest.note.partition(": ")[2])
    }
    assert (
        forest.note.startswith("16 of 36 rows not shown: ")
        and sum(counts.values()) == 16
        and all(counts[word] <= words[word] for word in counts)
        and "regressed" not in counts
    )
    sizes = [bar[1] for bar in forest.bars if bar[4] == "regressed"]
    assert sizes == sorted(sizes, reverse=True)
    axes = plotted(made)
    for text in (
        render(report)["result.svg"],
        render(report)["report.html"],
        made._repr_html_(),
        axes.get_xlabel().replace("\n", " "),  # a long note has several lines
    ):
        assert forest.note in text
    lost = {row["key"]["candidate"] for row in leads if row["claim"] == "regressed"}
    monkeypatch.setattr("invar_nb.report.answer.MOST_BYTES", 2500)
    page = render(report)["summary.md"]
    listed = set(re.findall(r"^\| (cand\d\d) ", page, re.M))
    assert (
        len(page.encode()) <= 2500
        and listed < {row["key"]["candidate"] for row in leads}
        and (lost <= listed or listed <= lost)
    ), (lost - listed, listed - lost)
    assert re.search(r"^\| and \d+ more in report\.html: \d+ [a-z]+", page, re.M)
    table = answer_table(d).first(len(lost) + 1).rows
    names = {row[0] for row in table[1:-1] if "left out here" not in row[0]}
    best = {line.cells[0] for line in answer_table(d).lines if line.is_best}
    assert (
        len(names) == len(lost)  # the best take at most a quarter of the lines
        and names <= lost | best
        and len(names - lost) <= (len(lost) + 1) // 4
        and table[-1][0].startswith(f"and {12 - len(lost)} more: ")
        and not any(table[-1][1:])
    )


@pytest.mark.parametrize("parts", [("law", "wiki"), ("wiki",)], ids=["matrix", "ranking"])
def test_a_table_that_is_cut_keeps_the_largest_losses(parts):
    "summary.md had 19 of 25 candidates that regressed, not the worst, which headed it."
    document = many(12, parts).report().content
    losses_of = {}
    for row in document.of_role("lead"):
        if row.claim == "regressed":
            name = row.key.candidate
            losses_of[name] = max(losses_of.get(name, 0), row.value.delta)
    worst = sorted(losses_of, key=losses_of.get)[-2:]
    assert len(losses_of) > 2
    table = compact_table(document).first(3)  # with the line of the baseline
    names = {row[0] for row in table.rows[1:-1]}
    assert {name for name in names if "left out here" not in name} == {*worst}


def test_what_equivalence_leaves_open_is_a_sentence_once_and_numbers_for_each_pair():
    "The sentence stood 48 times in the report of 40 candidates on three texts."
    report = many(3).report()
    page = render(report)["report.html"]
    n_open = sum(bool(row.blind_spot) for row in report.content.of_role("lead"))
    assert n_open > 2 and page.count("claim would survive") == 1
    assert len(re.findall(r"<td>rarer than [\d.]+ %, up to", page)) == n_open
    text = render(compare(losses(0.001)).report())["report.html"]
    assert "claim would survive" in text and "how rare a kind" not in text


def test_each_unit_has_its_panel_and_the_task_that_decides_is_in_the_first():
    "With tasks in points and in per cent the figure showed the alphabetically first one."
    made = study(
        arms_of(
            {"quiz": answers(6), "roll": losses(0.05), "again": answers(4), "marks": marks()}
        )
    )
    report = made.report()
    forest = report._forest()
    panels = [forest, *forest.more]
    assert (
        sum(len(panel.bars) for panel in panels) == 4
        and len(panels) == 3
        and not any(panel.note for panel in panels)
    )
    assert "perplexity [%]" in forest.axis and [bar[4] for bar in forest.bars] == ["regressed"]
    (points,) = (panel for panel in panels if "points" in panel.axis)
    assert {bar[0] for bar in points.bars} == {"quiz", "again"} or all(
        "accuracy" in bar[0] for bar in points.bars
    )
    svg = render(report)["result.svg"]
    assert (
        all(part in svg for part in ("roll", "quiz", "again", "marks"))
        and svg.count("no change") == 3
    )
    axes = made.plot()
    assert len(axes.figure.axes) == 3 and axes.get_xlabel() == forest.axis
    pyplot.close(axes.figure)


def test_bars_of_one_unit_and_two_margins_have_two_panels():
    "A band has one margin: points within 5 of accuracy, within 2 of the score."
    forest = (
        study(
            arms_of({"quiz": answers(6), "marks": marks(binary=True)}),
            margin={"accuracy": 0.05},
        )
        .report()
        ._forest()
    )
    panels = [forest, *forest.more]
    assert all("points" in panel.axis and len(panel.bars) == 1 for panel in panels)
    # macro F1 regressed, too, and has no margin
    assert sorted(panel.margin for panel in panels if panel.margin) == [(-5, 5), (-2, 2)]


def test_a_slice_that_made_it_red_is_in_the_figure():
    "The answers as a whole are within their margin; those in Spanish regressed, and decide the exit code."
    report = compare(
        answers(flips=30), margin={"accuracy": 0.3}, by=["language"], metrics=["accuracy"]
    ).report()
    forest = report._forest()
    bars = [bar for panel in (forest, *forest.more) for bar in panel.bars]
    assert (
        report.exit.rule == "secondary_regressed"
        and any("es" in bar[0] and bar[4] == "regressed" for bar in bars)
        and {bar[0] for bar in bars} == {"accuracy", "language es", "language en"}
    )


def test_reliability_bins_are_shown_as_a_table_and_a_picture():
    "A notebook showed ten lines of arrays."
    bins = RESULTS["bins"]()
    first_bin = str(bins).splitlines()[3]
    assert " ".join(first_bin.split()) == "0.5 to 0.6 10 0.550 0.500 (0.237 to 0.763)"
    page = bins._repr_html_()
    assert page.count("<tr") == 3 and "<svg" in page and "array(" not in page
    frame = bins.to_frame()
    assert len(frame) == 10 and frame["count"].tolist() == bins.count.tolist()
    assert frame["accuracy"].isna().sum() == 8


def three_scores(path, *, shift):
    "A CSV of three scores of 90 examples on two subjects; `shift` makes two of them worse."
    rng = np.random.default_rng(5)
    lines = ["id,subject,f1,latency_ms,correct"]
    for i in range(90):
        f1, latency = rng.uniform(0.2, 0.8), rng.uniform(90, 130)
        noise, is_wrong = shift * rng.normal(0, 0.002), i % 6 == 0 and shift
        lines.append(
            f"{i},{'ab'[i % 2]},{f1 + noise:.4f},{latency + shift * rng.uniform(3, 5):.2f},"
            f"{int(not is_wrong)}"
        )
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("names", ["f1 latency_ms correct", "correct f1 latency_ms"])
@pytest.mark.parametrize("by", [[], ["--by", "subject"]], ids=["whole", "slices"])
def test_each_row_of_the_answer_is_in_the_figure_the_headline_and_the_test_cases(
    names, by, tmp_path
):
    "The figure had 6 of 12 rows without a word, the headline one metric, JUnit one score."
    files = [
        three_scores(tmp_path / f"{name}.csv", shift=shift)
        for shift, name in enumerate(("base", "new"))
    ]
    scores = [word for name in names.split() for word in ("--score", name)]
    folder = tmp_path / "report"
    code, text, _ = shell(
        *("compare", *files, *scores, "--better", "latency_ms=lower", *by, "--out", folder)
    )
    assert code == 1
    document = as_document(json.loads((folder / "report.json").read_text()))
    shown = answer_rows(document)
    assert len(shown) == (9 if by else 3)
    forest = answer_forest(document)
    panels = [forest, *forest.more]
    assert sum(len(panel.bars) for panel in panels) == len(shown) and not forest.note
    assert forest.bars[0][4] == "regressed"
    regressed = {row.value.title for row in shown if row.claim == "regressed"}
    assert regressed >= {"latency_ms", "correct"}
    if names.startswith("f1"):
        assert all(f"{title} regressed" in text.partition("\n\n")[0] for title in regressed)
    cases = re.findall('classname="invar_nb" name="(.*?)"', shell("export", folder)[1])
    titles = [name.rpartition(": ")[2] for name in cases if name != "gate"]
    assert Counter(titles) == Counter(row.value.title for row in document.rows if row.claim)


def test_a_shown_score_without_a_margin_is_named_with_an_option_that_gives_it_one(tmp_path):
    "latency_ms made exit code 1, and only the first score's missing margin was told."
    files = [
        three_scores(tmp_path / f"{name}.csv", shift=shift)
        for shift, name in enumerate(("base", "new"))
    ]
    scores = ["--score", "f1", "--score", "latency_ms", "--better", "latency_ms=lower"]
    words = ["compare", *files, *scores, "--out", tmp_path / "report", "--force"]
    code, text, _ = shell(*words)
    (option,) = re.findall(
        "No margin applies to latency_ms: say (.*) \\(margin=", " ".join(text.split())
    )
    assert code == 1 and option == "--margin latency_ms=NUMBER"
    code, text, _ = shell(*words, *option.replace("NUMBER", "20").split())
    assert code == 0 and "No margin" not in text


def test_a_ranking_says_which_candidates_may_have_lost_less_than_the_margin():
    "+2.05 % (1.72 to 2.39) and +798 % were both just regressed."
    rng = np.random.default_rng(3)
    base = rng.gamma(40, 0.05, 60)
    noise = rng.normal(0, 0.01, 60)
    arms = {
        (name, ""): WindowLosses.from_arrays(range(60), np.full(60, 9), base + change)
        for name, change in (
            ("baseline", 0),
            ("near", 0.021 + noise),
            ("far", 1 + noise),
        )
    }
    sentence = "near is worse, but after correction the loss may be below the margin."
    assert sentence in str(study(arms))
    del arms["far", ""]
    assert sentence not in str(study(arms))


def test_rows_for_which_the_answer_has_no_room_are_counted_below_the_figure(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("invar_nb.report.pictures.MOST_OTHERS", 1)
    files = [
        three_scores(tmp_path / f"{name}.csv", shift=shift)
        for shift, name in enumerate(("base", "new"))
    ]
    scores = ["--score", "f1", "--score", "latency_ms", "--better", "latency_ms=lower"]
    shell("compare", *files, *scores, "--by", "subject", "--out", tmp_path / "report")
    document = as_document(json.loads((tmp_path / "report/report.json").read_text()))
    rows, hidden = other_rows(document)
    assert len(rows) == 3 and {row.claim for row in rows} == {"regressed"}
    deltas = [row.value.delta for row in rows]
    assert deltas == sorted(deltas, reverse=True)
    *_, last = [answer_forest(document), *answer_forest(document).more]
    assert hidden and last.note.startswith("2 of 6 rows not shown: 2 equivalent")


def test_scores_with_an_interval_are_drawn_where_the_first_has_none(tmp_path):
    "f1 fell by the same amount everywhere, so it has no interval; there was no figure at all."
    for shift, name in enumerate(("base", "new")):
        lines = [f"{i},{0.5 - 0.01 * shift},{(i + shift) % 7 > 1:d}" for i in range(80)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,f1,correct", *lines]))
    files = [tmp_path / "base.csv", tmp_path / "new.csv"]
    folder = tmp_path / "report"
    shell("compare", *files, "--score", "f1", "--score", "correct", "--out", folder)
    assert "change of correct" in (folder / "result.svg").read_text()


def test_a_cut_table_counts_no_claim_for_a_metric_that_is_never_judged():
    "KL divergence and flips were counted as improved."
    row = document_of(study(arms_of({"": marks()}))).of_role("lead")[0]
    never_judged = msgspec.structs.replace(
        row, value=msgspec.structs.replace(row.value, judged=False)
    )
    lines = [
        Line(cells=[name], rank=rank_of_line(of_line))
        for name, of_line in (("f1", row), ("again", row), ("KL divergence", never_judged))
    ]
    (_, last) = Table(columns=[Column(head="")], lines=lines).first(1).lines
    assert last.cells[0].startswith("and 2 more") and last.cells[0].endswith(
        f": 1 {row.claim}"
    )
