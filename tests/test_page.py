"""The page of a report: self-contained, escaped, complete, the same bytes, the answer first."""
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.pair import pair
from invar_nb.comparison.sweep import compare_many
from invar_nb.experiments.improvement import LOWER, MetricSpec
from invar_nb.report.build import build_report, evaluate
from invar_nb.report.figures import interval_figure, markdown, ticks, visible
from invar_nb.report.report import render
from invar_nb.report.runs_report import build_runs_report
from invar_nb.report.sweep_report import build_sweep
from test_report import answers, losses, runs

EVIL = '<script>alert("1")</script>|`x`*[a](javascript:1)\x1b[31m\u202e'
VOID = {"meta", "rect", "circle", "path", "br"}


class Tags(HTMLParser):
    "Open and close tags in order; what stands open at the end."
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID: self.open.append(tag)

    def handle_startendtag(self, tag, attrs): self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: self.wrong.append(tag)


MADE = {"losses": lambda: build_report(compare(losses(.03)), gate=1.2), "answers": lambda: build_report(compare(answers())),
        "runs": lambda: build_runs_report([MetricSpec("loss", direction=LOWER)], **runs()),
        "failed": lambda: build_runs_report([MetricSpec("loss", direction=LOWER)], **runs(end="oom")),
        "one arm": lambda: evaluate(answers().candidate), "one window": lambda: build_report(compare(losses(n=1)))}


@pytest.fixture(scope="module", params=MADE)
def report(request): return MADE[request.param]()


def test_html_is_well_formed_and_needs_nothing_but_itself(report):
    page = render(report)["report.html"]
    tags = Tags()
    tags.feed(page)
    assert not tags.open and not tags.wrong
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object"} and "default-src 'none'" in page
    assert not [v for _, attrs in tags.seen for k, v in attrs.items() if k.startswith("on") or k in ("src", "href")]
    assert "prefers-color-scheme:dark" in page and 'name="viewport"' in page


def test_the_first_screen_has_the_answer_and_how_to_check_it(report):
    files, d = render(report), report.document()
    first = files["report.html"].partition("<details")[0]
    text = re.sub(r"<[^>]+>", "", first)
    import html
    assert d["headline"] in html.unescape(text) and f"Exit code {d['exit']['code']}" in text and "invar-nb verify report.json" in text
    assert ("<svg" in first) == bool(d["comparison"] and d["comparison"][0]["words"]["interval"] != "-")
    assert files["report.md"].startswith("# ") and "**" in files["report.md"].split("\n")[2]


def test_the_first_screen_says_it_once_and_sends_to_digests_that_are_there(report):
    d, text = report.document(), render(report)["report.md"]
    for sentence in filter(None, (d["headline"], d["verdict"] and d["verdict"]["rationale"])): assert text.count(markdown(sentence)) == 1
    assert ("hashed above" in text) == ("weights_digest" in text)


def test_models_of_one_name_are_told_apart():
    both = losses(.03, n=30)
    named = pair(*(arm.changed(model="m", provenance={"weights_digest": "sha256:1"}) for arm in (both.baseline, both.candidate)))
    text = render(build_report(compare(named)))["report.md"]
    assert text.startswith("# m: candidate against baseline\n") and "weights hashed above" in text


def test_a_sweep_is_against_its_baseline():
    "The first arm by name is a candidate's."
    base = losses(.03, n=30).baseline.changed(model="m")
    arms = {name: pair(base, base.changed(model=name, log_loss=base.log_loss + k / 100 * np.arange(30))) for k, name in ((1, "a"), (2, "b"))}
    assert render(build_sweep(compare_many(arms)))["report.md"].startswith("# 2 candidates against m\n")


def test_same_report_same_pages(report):
    assert render(report) == render(report)


def test_markdown_tables_are_whole(report):
    lines = render(report)["report.md"].split("\n")
    for i, line in enumerate(lines):
        if line.startswith("| --- "):
            width = len(re.findall(r"(?<!\\)\|", line))
            j = i + 1
            while j < len(lines) and lines[j].startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", lines[j])) == width, lines[j]
                j += 1
            assert j > i + 1 and len(re.findall(r"(?<!\\)\|", lines[i - 1])) == width


def test_names_print_as_the_text_they_are():
    both = losses(.03, n=30)
    report = build_report(compare(pair(both.baseline.changed(model=EVIL), both.candidate.changed(model=EVIL + "2"))))
    files = render(report)
    tags = Tags()
    tags.feed(files["report.html"])
    assert "script" not in {name for name, _ in tags.seen} and not tags.wrong
    for text in (files["report.html"], files["report.md"]):
        assert "\x1b" not in text and "\u202e" not in text and "<script" not in text


def test_figures_know_every_case():
    assert "<svg" in interval_figure([("a", 0.0, 0.0, 0.0, "equivalent")])
    assert "<svg" in interval_figure([("a", 1e-9, -1e-9, 2e-9, "x"), ("b", 1e9, 1e8, 2e9, "regressed")], margin=(-1, 1), limit=5)
    assert ticks(0, 1) == [0, .2, .4, .6, .8, 1.0] and visible("a\x00b") == "a\\x00b" and markdown("a\nb") == "a b"
