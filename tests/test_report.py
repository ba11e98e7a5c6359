"""One document kind for every study: its schema, its fields, its exit code, its pages and what saving leaves."""
import html
import math
import re
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

from invar_nb.arms.pair import pair
from invar_nb.arms.predictions import Predictions
from invar_nb.arms.arm import Scores, Translations
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.study import Rules, compare, evaluate, study
from invar_nb.experiments.improvement import RunsArm, study_runs
from invar_nb.experiments.runs import read_row
from invar_nb.foundations.refuse import ContractError
from invar_nb.report.document import Document, report_schema
from invar_nb.report.figures import interval_figure, markdown, ticks, visible
from invar_nb.report.report import render, report_of
from invar_nb.report.verify import verify

EVIL = '<script>alert("1")</script>|`x`*[a](javascript:1)\x1b[31m\u202e'
VOID = {"meta", "rect", "circle", "path", "br"}
LOSS = dict(metrics=["loss"], better={"loss": "lower"})


def losses(shift=0.0, noise=0.03, n=96, seed=1, **more):
    "A pair of loss arms, one document a window."
    rng = np.random.default_rng(seed)
    base = rng.gamma(9, .3, n)
    made = lambda values, name: WindowLosses.from_arrays(
        [f"{i}:0-64" for i in range(n)], [64] * n, values, model=name, data_id="sha256:abc",
        document_ids=[f"d{i}" for i in range(n)], n_bytes=[200] * n, **more)
    return pair(made(base, "old"), made(base + shift + rng.normal(0, noise, n), "new"))


def answers(flips=6, n=200, worse="es"):
    "A pair of answers; the candidate is wrong on the first examples of one language."
    rng = np.random.default_rng(5)
    label = ["yes" if x else "no" for x in rng.integers(0, 2, n)]
    other = {"yes": "no", "no": "yes"}
    wrong = rng.random(n) < .2
    base = [other[t] if w else t for t, w in zip(label, wrong, strict=True)]
    language = ["es" if i % 4 == 0 else "en" for i in range(n)]
    hit = [i for i in range(n) if language[i] == worse and not wrong[i]][:flips]
    new = [other[t] if i in hit else p for i, (t, p) in enumerate(zip(label, base, strict=True))]
    made = lambda said, name: Predictions(
        model=name, data_id="", ids=[f"q{i}" for i in range(n)], labels=("no", "yes"), label=label,
        prediction=said, confidence=np.full(n, .8), slices={"language": language})
    return pair(made(base, "old"), made(new, "new"))


def marks(n=60, shift=.05, binary=False, **more):
    "A pair of scores, with prompts; 0 or 1 where asked."
    rng = np.random.default_rng(8)
    base = rng.random(n)
    values = [x.round() if binary else x for x in (base, base + shift + rng.normal(0, .05, n))]
    made = lambda x, name: Scores(ids=[f"q{i:03d}" for i in range(n)], values=x if not binary else x.clip(0, 1), model=name, score="f1",
                                  data_id="squad@2", prompt_digests=[f"sha256:{i}" for i in range(n)], **more)
    return pair(made(values[0], "old"), made(values[1], "new"))


def said(n=40, **more):
    "A pair of translations; the candidate loses the last word of every other sentence."
    gold = [" ".join(f"w{(7 * i + k * k) % 11}" for k in range(5 + i % 7)) for i in range(n)]
    made = lambda texts, name: Translations(ids=range(n), hypotheses=texts, references=gold, model=name, **more)
    old = [g.replace("w3", "w4") for g in gold]
    return pair(made(old, "old"), made([x.rsplit(" ", 1 + i % 2)[0] + " w1" for i, x in enumerate(old)], "new"))


def runs(shift=-.05, n=5, end="ok"):
    rows = [{"seed": s, "terminal": "ok", "loss": 2.3 + .01 * s, "hours": 3 + s % 3} for s in range(n)]
    new = [{**r, "loss": r["loss"] + shift + .002 * (r["seed"] % 2), "hours": 3 + r["seed"] % 2} for r in rows]
    new[-1]["terminal"] = end
    made = lambda part: tuple(map(read_row, part))
    return {("baseline", ""): RunsArm(runs=made(rows), model="a"), ("candidate", ""): RunsArm(runs=made(new), model="b")}


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


def candidates(**rules):
    "Two candidates with one baseline, in the order that is not that of their estimates."
    base = losses(.03, n=30).baseline.changed(model="m")
    arms = {(name, ""): base.changed(model=name, log_loss=base.log_loss + k / 100 * np.arange(30)) for k, name in ((1, "a"), (2, "b"))}
    return study({("baseline", ""): base} | arms, Rules(contrasts=True, **rules))


MADE = {"losses": lambda: compare(losses(.03), gate=1.2), "answers": lambda: compare(answers()), "scores": lambda: compare(marks()), "translations": lambda: compare(said()),
        "runs": lambda: study_runs(runs(), Rules(**LOSS)), "failed": lambda: study_runs(runs(end="oom"), Rules(**LOSS)),
        "one arm": lambda: evaluate(answers().candidate), "one window": lambda: compare(losses(n=1)), "candidates": candidates,
        "parts": lambda: study({(name, part): arm for part, both in (("web", losses(.03)), ("quiz", answers())) for name, arm in (("baseline", both.baseline), ("candidate", both.candidate))})}


@pytest.fixture(scope="module", params=MADE)
def report(request): return report_of(MADE[request.param]())


# --- the document ---------------------------------------------------------------------------------------------------------------------
def test_same_inputs_same_bytes_and_the_schema_holds(report, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    assert render(report) == render(report)
    d = report.document()
    msgspec.convert(d, Document)
    jsonschema.validate(d, report_schema())
    saved = report.save(tmp_path / "r")
    assert verify(saved).report.document()["rows"] == d["rows"] and {p.name for p in saved.iterdir()} >= {"report.json", "report.md", "report.html"}
    with pytest.raises(ContractError): report.save(saved)
    report.save(saved, force=True)


def test_the_source_systems_fields_are_there_with_their_values():
    both = losses(.03)
    d = report_of(compare(both)).document()
    m, stats = d["primary_metric"], d["dataset"]["windows"]["stats"]
    assert m["kind"] == "ppl_causal" and m["display_ci"] == [math.exp(x) for x in m["ci"]]
    half = both.candidate.log_loss[:48]
    assert m["preview"] == pytest.approx(math.exp(half.mean()), rel=1e-12)
    assert stats["window_match_fraction"] == 1.0 and stats["paired_windows"] == 96 and stats["window_overlap_fraction"] == 0
    assert stats["paired_delta_summary"]["mean"] == pytest.approx(d["rows"][0]["value"]["delta"], rel=1e-12)
    low, high = stats["bootstrap"]["ci"]
    assert low < d["rows"][0]["value"]["delta"] < high and stats["coverage"]["tier"] == "balanced"


WORSE_IN_SPANISH = dict(margin={"accuracy": .3}, by=["language"], metrics=["accuracy"])
EXITS = [(lambda: losses(.05), {}, "primary_regressed", 1), (lambda: losses(-.05), {}, "not_worse", 0), (lambda: losses(0.0), {}, "not_worse", 0),
         (lambda: marks(shift=.3, better="higher"), {}, "not_worse", 0), (lambda: marks(shift=.3, better="lower"), {}, "primary_regressed", 1),
         (lambda: answers(flips=30), WORSE_IN_SPANISH, "secondary_regressed", 1), (lambda: losses(0.0, noise=.5), {"margin": 1e-4}, "no_regression_shown", 0),
         (lambda: losses(0.0, noise=.5), {"margin": 1e-4, "fail_inconclusive": True}, "inconclusive", 4), (lambda: losses(0.0), {"gate": 1.0001}, "gate_failed", 1),
         (lambda: losses(), {"tail": {"q95": .5}}, "not_worse", 0), (lambda: losses(), {"tail": {"q95": 1e-4}}, "gate_failed", 1)]


@pytest.mark.parametrize("made, rules, rule, code", EXITS)
def test_which_rule_gives_the_exit_code(made, rules, rule, code):
    "What a shell reads of each kind; gates are there only where they were asked for."
    report = report_of(compare(made(), **rules))
    first, = report.document()["pairs"]
    assert (report.exit["rule"], report.exit_code) == (rule, code) and [bool(first[name]) for name in ("gate", "tail")] == [name in rules for name in ("gate", "tail")]


def test_profiles_refuse_and_dev_warns():
    assert any("at least 360" in line for line in report_of(compare(losses())).document()["warnings"])
    with pytest.raises(ContractError, match="360 windows of tier balanced") as error: report_of(compare(losses(), profile="ci"))
    assert error.value.code == "too_few_windows"
    lenient = {"name": "aggressive", "preview": 4, "final": 4, "note": "a test of ours"}
    assert report_of(compare(losses(), profile="ci", tier=lenient)).document()["pairs"][0]["gate"]["limit"] == 1.2


def test_identical_models_are_said_once():
    both = losses()
    text = str(report_of(compare(pair(both.baseline, both.baseline.changed(model="copy")))))
    assert text.startswith("Identical: perplexity is the same on every item.") and text.count("exactly the same") == 1


def test_replicates_and_seed_reproduce_the_interval():
    drawn = dict(method="bca", replicates=400, units="windows")
    ends = [report_of(compare(losses(.03), seed=seed, **drawn)).document()["rows"][0]["value"]["ci"] for seed in (1, 1, 2)]
    assert ends[0] == ends[1] != ends[2]


def test_slices_are_a_table_and_reliability_a_picture():
    files = render(report_of(compare(answers())))
    assert files["slices.csv"].splitlines()[0].startswith("candidate,part,slice,metric") and files["candidate.reliability.svg"].startswith("<svg")
    assert "slices.csv" not in render(report_of(compare(losses())))


# --- the gate on the tail -------------------------------------------------------------------------------------------------------------
def test_a_tail_that_cannot_be_shown_is_refused():
    with pytest.raises(ContractError, match="q99 needs at least 299 windows; got 96"): report_of(compare(losses(n=96), tail={"q99": .1}))
    short = report_of(compare(losses(n=96), tail={"q95": .5, "tokens": 10**6}))
    assert short.exit_code == 1 and "1e+06 asked for" in short.exit["because"]


# --- the page -------------------------------------------------------------------------------------------------------------------------
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
    text = re.sub(r"<[^>]+>", "", files["report.html"].partition("<details")[0])
    assert d["headline"] in html.unescape(text) and f"Exit code {d['exit']['code']}" in text and "invar-nb verify report.json" in text
    assert files["report.md"].startswith("# ") and files["report.md"].count(markdown(d["headline"])) == 1


def test_titles_say_which_models():
    both = losses(.03, n=30)
    named = pair(*(arm.changed(model="m", provenance={"weights_digest": "sha256:1"}) for arm in (both.baseline, both.candidate)))
    text = render(report_of(compare(named)))["report.md"]
    assert text.startswith("# m: candidate against baseline\n") and "weights hashed above" in text
    assert render(report_of(candidates()))["report.md"].startswith("# 2 candidates against m\n")


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
    files = render(report_of(compare(pair(both.baseline.changed(model=EVIL), both.candidate.changed(model=EVIL + "2")))))
    tags = Tags()
    tags.feed(files["report.html"])
    assert "script" not in {name for name, _ in tags.seen} and not tags.wrong
    for text in (files["report.html"], files["report.md"]):
        assert "\x1b" not in text and "\u202e" not in text and "<script" not in text


def test_figures_know_every_case():
    assert "<svg" in interval_figure([("a", 0.0, 0.0, 0.0, "equivalent")])
    assert "<svg" in interval_figure([("a", 1e-9, -1e-9, 2e-9, "x"), ("b", 1e9, 1e8, 2e9, "regressed")], margin=(-1, 1), limit=5)
    assert ticks(0, 1) == [0, .2, .4, .6, .8, 1.0] and visible("a\x00b") == "a\\x00b" and markdown("a\nb") == "a b"
