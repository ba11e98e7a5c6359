"""The drawings of tutorials/touch: their scripts, run in a JavaScript engine.

The scripts are those that the page stores in its outputs: what a browser runs is tested."""

import base64
import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pages
import pytest
from py_mini_racer import MiniRacer
from scipy.stats import t

from invar_nb.comparison.claim import claim_of

PAGE = pages.read(pages.nbs / "tutorials" / "touch.ipynb")
PICTURE = "data:image/svg+xml;base64,"
SHARED_PART = 0.3  # of the slider, as the page is opened


class Output(HTMLParser):
    "An HTML output: its text, script and pictures, and the data of its outermost element."

    def __init__(self, text):
        super().__init__()
        self.size = len(text)
        self.data, self.script, self.pictures, self.tags = {}, "", [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if not self.tags:
            self.kind = attributes["class"].split("-")[-1]
            self.data = {
                name.removeprefix("data-"): json.loads(value)
                for name, value in attrs
                if name.startswith("data-")
            }
        self.tags.append(tag)
        if tag == "img":
            self.pictures.append(attributes)
        assert not {"href", "onclick"} & attributes.keys()
        assert attributes.get("src", PICTURE).startswith(PICTURE)

    def handle_data(self, data):
        if self.tags[-1] == "script":
            self.script += data


OUTPUTS = {
    output.kind: output
    for cell in PAGE.cells
    for stored in cell.get("outputs", ())
    if "text/html" in stored.get("data", {})
    for output in [Output(stored.data["text/html"])]
}
DRAWINGS = ("sliders", "drag", "draws")
GRID = OUTPUTS["grid"].data["grid"]
STORED_TEXT = "".join(
    stored.text
    for cell in PAGE.cells
    for stored in cell.get("outputs", ())
    if stored.output_type == "stream"
)


def engine(script):
    "A JavaScript engine without a browser, in which a script of the page has been run."
    context = MiniRacer()
    context.eval(script)
    return context


def words_of(script, cases):
    "The words that a script of the page has for (low, high, margin)."
    call = f"JSON.stringify({json.dumps(cases)}.map((one) => touch.wordOf(...one)))"
    return json.loads(engine(script).eval(call))


def word_of_library(low, high, margin):
    "The word of the library for an interval, as comparison/02_claim defines it."
    word = claim_of(low, high, margin)
    if word == "inconclusive" and high < margin:
        word = "not worse"
    beyond = low > margin or high < -margin
    return f"{word}, beyond the margin" if beyond else word


# Every order of two ends and the margins, ends on 0 and on a margin among them
EDGES = [
    (low, high, margin)
    for margin in (0.5, 1, 2)
    for low, high in itertools.combinations_with_replacement(
        [-3, -2, -1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2, 3], 2
    )
]


def test_the_page_has_three_drawings_and_a_grid():
    assert {*OUTPUTS} == {*DRAWINGS, "grid"}
    assert len(GRID) == len({(e, h, m) for e, h, m, _ in GRID}) >= 100
    words = {word for *_, word in GRID}
    assert {word.split(",")[0] for word in words} == {
        "equivalent",
        "regressed",
        "improved",
        "not worse",
        "inconclusive",
    }
    assert {"regressed, beyond the margin", "improved, beyond the margin"} <= words


@pytest.mark.parametrize("kind", DRAWINGS)
def test_a_drawing_is_small_and_has_a_still_picture(kind):
    output = OUTPUTS[kind]
    assert output.size < 30_000
    assert max(map(len, output.script.splitlines())) <= 95, "the script is not for readers"
    [still] = output.pictures
    assert len(still["alt"]) > 60
    drawn = base64.b64decode(still["src"].partition(",")[2]).decode()
    assert drawn.count("<path") >= 3 and drawn.count("<text") >= 2


@pytest.mark.parametrize("kind", DRAWINGS)
def test_the_words_of_a_drawing_are_the_library_s(kind):
    cases = [(e - h, e + h, m) for e, h, m, _ in GRID]
    stored = [word for *_, word in GRID]
    assert words_of(OUTPUTS[kind].script, cases) == stored
    assert [*itertools.starmap(word_of_library, cases)] == stored
    found = words_of(OUTPUTS[kind].script, EDGES)
    assert found == [*itertools.starmap(word_of_library, EDGES)]


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("-margin < low && high < margin", "-margin <= low && high <= margin"),
        ("(low) => low > 0", "(low) => low >= 0"),
        ("(low, high) => high < 0", "(low, high) => high <= 0"),
        ("(low, high, margin) => high < margin]", "(low, high, margin) => high <= margin]"),
        ("low > margin || high < -margin", "low > margin"),
        ('["regressed", ', '["worse", '),
    ],
)
def test_a_wrong_rule_is_found(right, wrong):
    script = OUTPUTS["drag"].script
    assert script.count(right) == 1
    expected = [*itertools.starmap(word_of_library, EDGES)]
    assert words_of(script.replace(right, wrong), EDGES) != expected


def test_the_examples_of_the_buttons_are_what_the_buttons_say():
    examples = OUTPUTS["drag"].data["examples"]
    cases = [(*ends, 2) for ends in examples.values()]
    assert words_of(OUTPUTS["drag"].script, cases) == [*examples]


def test_the_rules_are_listed_in_their_order():
    rules = engine(OUTPUTS["drag"].script).eval(
        "JSON.stringify(touch.RULES.map(([word]) => word))"
    )
    html = next(
        stored.data["text/html"]
        for cell in PAGE.cells
        for stored in cell.get("outputs", ())
        if "touch-drag" in stored.get("data", {}).get("text/html", "")
    )
    assert json.loads(rules) == re.findall(r"<li><b>([\w ]+)</b>", html)


def test_the_sliders_draw_t_intervals():
    output = OUTPUTS["sliders"]
    sizes, quantiles = output.data["sizes"], output.data["quantiles"]
    assert {*map(int, quantiles)} == {*sizes, *(4 * n for n in sizes)}
    for n, quantile in quantiles.items():
        assert abs(quantile - t.ppf(0.975, int(n) - 1)) < 1e-4
    half = engine(output.script).eval("touch.halfWidth(2, 6, 36)")
    assert half == pytest.approx(2.0)


def hits_of(times):
    "How many of so many times forty intervals hold the true change, for each unit."
    output = OUTPUTS["draws"]
    context = engine(output.script)
    quantiles = json.dumps(output.data["quantiles"])
    call = f"""(() => {{
      const uniform = touch.generator({output.data["seed"]});
      const hits = {{ windows: 0, documents: 0 }};
      for (let i = 0; i < {times}; i++) {{
        const forty = touch.drawForty(uniform, {SHARED_PART}, {quantiles});
        for (const units in hits) hits[units] += forty[units].filter(touch.holdsZero).length;
      }}
      return JSON.stringify(hits);
    }})()"""
    return json.loads(context.eval(call))


def test_the_first_forty_are_those_of_the_still_picture():
    first = hits_of(1)
    assert f"first forty: {first}" in STORED_TEXT
    still = base64.b64decode(OUTPUTS["draws"].pictures[0]["src"].partition(",")[2]).decode()
    for units, hits in first.items():
        assert f"{units.capitalize()} as units: {hits} of 40 " in still


def test_the_coverage_is_that_of_the_page():
    samples = 10_000
    hits = hits_of(samples // 40)
    documents, windows = (hits[units] / samples for units in ("documents", "windows"))
    assert abs(documents - 0.95) < 4 * np.sqrt(0.95 * 0.05 / samples)
    shares = f"windows {100 * windows:.1f} %, documents {100 * documents:.1f} %"
    assert f" 30 % shared: {shares}" in STORED_TEXT
    assert windows < 0.75
