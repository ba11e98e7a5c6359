"""The site: built once without a warning, then read as a reader meets it.

Drawings, folds, the book, terms of the glossary, and a search that is asked questions."""

import csv
import html
import json
import os
import posixpath
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import build_site
import docs_pages
import drawings
import folds
import glossary_terms
import pages
import pytest
import site_fonts
import yaml
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document
from filelock import FileLock
from test_house import foreign, nothing

from invar_nb.foundations.interval import BETTER, WORSE
from invar_nb.foundations.page_style import PALETTE
from invar_nb.report.figures import COLOURS, size_figure

ROOT = pages.root
ALL = pages.pages()
NAMES = [re.sub(r"(^|/)\d+_", r"\1", pages.page_id(p)) for p in ALL]
PAGE_OF_OPTIONS = "reference/command_line"
QUERIES = ROOT / "tests" / "data" / "queries.csv"
BOOK = [
    build_site.address(chapter)
    for section in yaml.safe_load((ROOT / "_quarto.yml").read_text("utf-8"))["website"][
        "sidebar"
    ]["contents"]
    if section.get("section") == build_site.BOOK
    for chapter in section["contents"]
]


def without_code(text):
    "The HTML of a page without what it shows as code."
    return re.sub(r"<(pre|code).*?</\1>", "", text, flags=re.S)


# --- the built site -------------------------------------------------------------------------
@pytest.fixture(scope="session")
def site(tmp_path_factory):
    "The built site: `out`, its folder; `html`, page -> text. One worker builds it for all."
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    out, log = shared / "site", shared / "site.log"
    with FileLock(shared / "site.lock"):
        if not log.exists():
            command = [sys.executable, "tools/build_site.py", "--out", str(out)]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=False
            )
            said = f"{done.stdout}{done.stderr}"
            log.write_text("" if done.returncode == 0 else said or "no word", "utf-8")
    if log.read_text("utf-8"):
        pytest.fail(log.read_text("utf-8")[-4000:], pytrace=False)
    html = {p.relative_to(out).as_posix(): p.read_text("utf-8") for p in out.rglob("*.html")}
    return SimpleNamespace(out=out, html=html)


def test_site_builds_without_a_warning(site):
    "Sphinx turns every warning into an error; all that a page needs lies beside it."
    nothing([f"{n}.html" for n in NAMES if f"{n}.html" not in site.html], "not built")
    tag = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)"')
    found = {m for text in site.html.values() for m in tag.findall(text)}
    outside = sorted(m for m in found if "invar-nb.github.io" not in m)
    nothing(outside, "the site needs the network")
    styles = "".join(p.read_text("utf-8") for p in (site.out / "_static").rglob("*.css"))
    assert "url(http" not in styles and "searchindex.js" in {
        p.name for p in site.out.iterdir()
    }


def test_each_page_has_its_other_forms(site):
    llms = (site.out / "llms.txt").read_text("utf-8")
    lost = [
        f"{n}.{kind}" for n in NAMES for kind in ("md", "ipynb")
        if not (site.out / f"{n}.{kind}").exists()
    ]  # fmt: skip
    nothing(lost, "not beside the page")
    nothing(
        [n for n in NAMES if n != "index" and f"/{n}.md): " not in llms], "not in llms.txt"
    )
    for name in NAMES:
        text = (site.out / f"{name}.md").read_text("utf-8")
        prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        places = [
            posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            for target in re.findall(r"\]\(([\w./-]+\.md)", prose)
        ]
        gone = [p for p in places if not p.startswith("..") and not (site.out / p).exists()]
        nothing(gone, f"links of {name}.md that lead nowhere")
        assert "<details" not in prose, f"{name}.md: a fold in a text for programs"


def test_no_markdown_is_left_in_a_page(site):
    for name, text in site.html.items():
        plain = re.sub(r"<pre.*?</pre>|<[^>]+>", "", text, flags=re.S)
        nothing(
            re.findall(r"[^\n]{,60}\]\([^)\s]*\.ipynb", plain), f"{name}: a link as Markdown"
        )
        nothing(re.findall(r"@eq-\w|\{#eq-|\{eq\}`", without_code(text)), f"{name}: a label")
        code = re.sub(r"<[^>]+>", "", "".join(re.findall(r"<pre.*?</pre>", text, re.S)))
        nothing(re.findall(r"@eq-[\w-]+", code), f"{name}: a label in shown source")
        assert "#LNone" not in text
        tags = "".join(re.findall(r"<a [^>]*>", text))
        nothing(
            re.findall(r'href="[\w./-]*\.ipynb"(?! download)', tags), "leads to a notebook"
        )


def test_pictures_are_said_in_words(site):
    for name, text in site.html.items():
        found = re.findall(r"<img [^>]*>", re.sub(r"<pre.*?</pre>", "", text, flags=re.S))
        wordless = [
            tag for tag in found
            if not re.search(r'alt="[^"]{15,}"', tag) or re.search(r'alt="[^" ]*_images', tag)
        ]  # fmt: skip
        nothing(wordless, f"{name}: a picture without a text in its place")
    for path, name in zip(ALL, NAMES, strict=True):
        sources = "\n".join(cell.source for cell in pages.read(path).cells)
        words = re.findall(r'^#\| fig-(?:cap|alt): "(.*)"$', sources, re.M)
        assert site.html[f"{name}.html"].count("<figcaption") * 2 == len(words), name
        twin = (site.out / f"{name}.md").read_text("utf-8")
        nothing([said for said in words if said not in twin], f"{name}.md lacks a picture")


def words_in(svg):
    "What a picture says, without spaces, which its markup may add."
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.S)
    plain = [re.sub(r"<[^>]*>", "", text).replace("\u2212", "-") for text in texts]
    return ["".join(text.split()) for text in plain]


def drawings_of(cell):
    "The pictures of a cell that stand inline in its page: of Matplotlib and of reports."
    for output in cell.get("outputs", ()):
        svg = "".join(output.get("data", {}).get("image/svg+xml", ""))
        is_captioned = "fig-cap" in "".join(cell["source"])
        if drawings.is_drawing(svg) or (is_captioned and drawings.is_of_report(svg)):
            yield svg


def test_drawings_stand_in_their_pages(site):
    "Each drawing is inline in its page, says what it said, and no id occurs twice."
    for path, name in zip(ALL, NAMES, strict=True):
        drawn = [svg for cell in pages.read(path).cells for svg in drawings_of(cell)]
        if name == "index":
            drawn = [(ROOT / "nbs" / "images" / "verdicts.svg").read_text("utf-8")]
        text = site.html[f"{name}.html"]
        shown = re.findall(r'<svg class="drawing".*?</svg>', text, re.S)
        assert [*map(words_in, shown)] == [*map(words_in, drawn)], name
        for svg in shown:
            assert 'role="img" aria-label="' in svg
            nothing(re.findall(r"#(?:000000|ffffff)|<metadata|<!DOCTYPE|<\?xml", svg), name)
        ids = re.findall(
            r'<[^<>]*\sid="(?!equation-)([^"]+)"', text
        )  # those Sphinx writes twice
        twice = Counter(ids)
        nothing([i for i, n in twice.items() if n > 1], f"{name}: ids that occur twice")


def test_the_line_over_a_title_says_what_a_page_is(site):
    kinds = {
        "guides/which_quant": "Guide",
        "statistics/bootstrap": "Method",
        "readers/lm_eval": "Library",
        "which-method": "Reference",
        "tutorials/seeds_decide": "Tutorial",
        "install": "Start",
        BOOK[2]: f"Chapter 3 of {len(BOOK)}",
    }
    for name, kind in kinds.items():
        text = site.html[f"{name}.html"]
        over = re.search(r'<div class="beside"><a href="([^"]+)">([^<]+)</a>', text)
        up = posixpath.normpath(posixpath.join(posixpath.dirname(name), over[1]))
        assert over[2] == kind and up in site.html
        copy = f"colab.research.google.com/github/invar-nb/invar_nb/blob/gh-pages/{name}.ipynb"
        assert copy in text


def test_the_book_is_read_from_chapter_to_chapter(site):
    assert 9 <= len(BOOK) <= 10 and BOOK[0] == "tutorials/five_minutes"
    for number, name in enumerate(BOOK):
        text = site.html[f"{name}.html"]
        to = dict(re.findall(r'class="(next|prev)-page" href="([^"]*)"', text))
        there = {
            way: posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            for way, target in to.items()
        }
        before = BOOK[number - 1] if number else "the-book"
        assert there["prev"] == f"{before}.html"
        if number + 1 < len(BOOK):
            assert there["next"] == f"{BOOK[number + 1]}.html"
    contents = re.search(r'<ol class="[^"]*\bpages.*?</ol>', site.html["the-book.html"], re.S)
    listed = re.findall(r'<li><p><a class="[^"]*" href="([^"]+)\.html"', contents[0])
    assert listed == BOOK


def test_chapters_are_listed_with_their_question():
    lead = "Turns an interval into a claim. Which word follows?"
    assert build_site.without_docstring(lead, "comparison/claim") == "Which word follows?"
    assert build_site.without_docstring(lead, "tutorials/stop_early") == lead
    only = "How far from the truth?"
    assert build_site.without_docstring(only, "comparison/claim") == only
    facts = {"comparison/claim": ("A title", lead), "tutorials/stop_early": ("Stop", lead)}
    branches = [(at, None, None) for at in facts]
    text = "\n".join(build_site.listing(branches, facts, bullet="1."))
    assert text.count("Turns an interval") == 1
    assert "Turns" in "\n".join(build_site.listing(branches[:1], facts))


@pytest.mark.parametrize("kind, head", [("Chapter 5", "Which"), ("Library", "Turns an")])
def test_a_chapter_begins_with_its_question(kind, head):
    at = "comparison/claim"
    site = SimpleNamespace(kinds={at: (kind, "the-book")})
    page = SimpleNamespace(at=at, rel=f"{at}.ipynb", site=site, links=lambda text: text)
    source = "---\ntitle: A title\ndescription: Turns an interval. Which word?\n---\n"
    text = "".join(build_site.title_cell(source, page, False)["source"])
    assert f"lead\n{head}" in text, text


def test_the_method_names_the_chapters_that_derive_its_core():
    about = build_site.SECTIONS["The method"][2]
    named = re.findall(r"\(/([\w/]+)\) \(chapter (\d+)\)", about)
    assert [BOOK.index(at) + 1 for at, _ in named] == [int(number) for _, number in named]
    assert len(named) == 5


def test_the_sidebar_has_the_sections(site):
    entry = r'toctree-l1[^>]*><a class="reference internal" href="([^"#]*)">([^<]*)'
    titles = [title for _, title in re.findall(entry, site.html["index.html"])]
    assert titles == [*build_site.SECTIONS]
    assert titles[0] == build_site.BOOK and titles[-1] == "The library by layer"


def test_reference_pages_are_whole(site):
    from invar_nb.shell.cli import app

    toc = r'<div class="toc-tree">.*?</div>'
    contents = re.search(toc, site.html["reference/command_line.html"], re.S)[0]
    names = [command.name for command in app.registered_commands]
    nothing([n for n in names if f'href="#{n}"' not in contents], "not in the contents")
    for row in foreign():
        at = re.sub(r"(^|/)[0-9]+_", r"\1", row["page"]) + ".html"
        code = r"<a [^>]*href=[^>]*><code[^>]*>(?:<span[^>]*>)?(\w+)<"
        assert row["cited"] not in re.findall(code, site.html[at]), f"{at}: {row['cited']}"
    api = re.sub(r"<[^>]+>", "", site.html["reference/python_api.html"]).replace("\xa0", " ")
    assert "](" not in api and "Derived and checked in" in api
    for said in (
        "independent ones: documents, clusters",
        "2 points of accuracy",
        "compare(f1_old, f1_new",
    ):
        assert said in api, "the API page lacks a comment or an example"


def test_source_of_the_library_is_folded(site):
    "On pages of the method; the switch stands where there is something to open."
    text = site.html["statistics/jackknife.html"]
    found = re.findall(r"<summary>Implementation: ([^<]*)</summary>", text)
    assert found[0].startswith("Jackknife (") and found[0].endswith(" lines)")
    assert 'class="show-code" aria-pressed="false"' in text
    assert text.count("<details") == text.count("</details>")
    assert "Derived and checked in" not in text
    open_page = site.html["comparison/study.html"]
    assert "<details" not in open_page and "show-code" not in open_page
    assert "(5)" in re.search(r'<details class="code">.*?</details>', text, re.S)[0]
    for name, page in site.html.items():
        own = f"Derived and checked in {name.removesuffix('.html')}"
        assert own not in re.sub(r"<[^>]+>", "", page), f"{name}: a card leads to its own page"


def test_no_picture_is_folded_away_with_its_code(site):
    for name, text in site.html.items():
        for fold in BeautifulSoup(text, "html.parser").select("details.code"):
            nothing(fold.select("figure, svg, div.cell_output"), f"{name}: in a fold of code")


def test_answers_are_folded(site):
    for path, name in zip(ALL, NAMES, strict=True):
        cells = [c.source for c in pages.read(path).cells if c.cell_type == "markdown"]
        answers = sum(source.startswith("**Answer.**") for source in cells)
        text = site.html[f"{name}.html"]
        assert text.count('<details class="answer"><summary>Answer</summary>') == answers, name
        assert text.count("<details") == text.count("</details>"), name


def test_terms_lead_to_the_glossary(site):
    glossary = site.html["glossary.html"]
    used = 0
    for name in NAMES:
        found = re.findall(r'<a class="term[^>]*>', site.html[f"{name}.html"])
        used += len(found)
        anchors = [
            re.search(r'href="[^"]*glossary\.html#([^"]+)" title="..+"', t) for t in found
        ]
        assert all(anchors) and len(found) <= glossary_terms.MOST, name
        nothing([a[1] for a in anchors if f'id="{a[1]}"' not in glossary], f"{name}: no term")
        assert len({a[1] for a in anchors}) == len(found), f"{name}: a term twice"
    assert used > 200
    assert 'class="term' not in site.html["readers/lm_eval.html"] + glossary


def test_home_asks_and_answers(site):
    text = site.html["index.html"]
    ways = re.search(r'<div class="ways">.*?</div>', text, re.S)[0]
    asked = re.search(r'<ul class="asked">.*?</ul>', text, re.S)[0]
    teachers = re.search(r'<p class="teachers">.*?</p>', text, re.S)[0]
    assert ways.count("<a ") == 3 and asked.count("<li><a ") == asked.count("<a ") == 17
    links = re.findall(r'href="([^"#]+)#?([^"]*)"', ways + teachers + asked)
    gone = [
        page for page, at in links if f'id="{at}"' not in f'id=""{site.html.get(page, "")}'
    ]
    nothing([*gone, *(page for page, _ in links if page not in site.html)], "leads nowhere")
    assert text.count('<svg class="hero') == 0 and text.count("<img ") == 0


def test_home_says_what_it_is_before_it_asks():
    "The picture in the site's font, then what the package does, then the ways in."
    path = ROOT / "nbs" / "index.ipynb"
    cells = [{"source": c.source} for c in pages.read(path).cells if c.cell_type == "markdown"]
    text = "\n".join(c["source"] for c in build_site.home_cells(cells))
    order = ("<svg", "picture-note", "puts a confidence interval", "git clone", 'class="ways"')
    places = [text.index(words) for words in (*order, "## What do you have?")]
    assert places == sorted(places)
    drawn = text[places[0] : places[1]]
    assert "\u22120.01 to 0.64" in drawn and "<style" not in drawn and "![" not in text


def test_fonts_are_shipped(site):
    fonts = site.out / "_static" / "fonts"
    sizes = {p.name: p.stat().st_size for p in fonts.glob("*.woff2")}
    assert len(sizes) == len(site_fonts.FONTS) and max(sizes.values()) < 60_000
    css = (fonts / "fonts.css").read_text("utf-8")
    assert all(name in css for name in sizes) and len([*fonts.glob("*.LICENSE")]) == 2
    variables = (site.html["index.html"]).partition("</style>")[0]
    for font in site_fonts.FONTS:
        assert f"'{font.family}'" in variables


# --- the search -----------------------------------------------------------------------------
BROWSER = """
var document = {addEventListener() {}, getElementById() { return null; }};
var window = globalThis, localStorage = {setItem() {}};
var SPHINX_HIGHLIGHT_ENABLED = false, _ready = () => {}, _ = (text) => text;
"""
ASK = """
((query) => {
  const hits = Search._performSearch(...Search._parseQuery(query)).reverse();
  return JSON.stringify(hits.map(([page, title, anchor]) => PLACE));
})
"""


@pytest.fixture(scope="module")
def search(site):
    "The search of the site, run by its own files: query -> pages, the best first."
    from py_mini_racer import MiniRacer

    engine = MiniRacer()
    engine.eval(BROWSER)
    for file in ("_static/searchtools.js", "_static/language_data.js", "searchindex.js"):
        engine.eval((site.out / file).read_text("utf-8"))

    def hits(query, place="page"):
        ask = ASK.replace("PLACE", place)
        return json.loads(engine.eval(f"{ask}({json.dumps(query)})"))

    return hits


def test_a_search_result_shows_how_a_page_begins():
    "A whole sentence, or one that is cut at a word; nothing for a page without a sentence."
    from py_mini_racer import MiniRacer

    engine = MiniRacer()
    source = (build_site.PIECES / "scorer.js").read_text("utf-8")
    engine.eval(re.sub(r"= (WEIGHTS|QUESTIONS|TERMS|OPTIONS);", "= {};", source))

    def excerpt(*texts):
        return engine.eval(f"excerptOf({json.dumps(texts)})")

    question = "Two models split a text\n differently. What do both score?"
    assert excerpt("", "Note", question, "More.") == " ".join(question.split())
    assert excerpt("word " * 60).endswith("word …") and len(excerpt("word " * 60)) < 245
    assert excerpt("Note") == excerpt() == ""


def queries():
    "(what somebody types, pages or anchors of which one must be first or second)."
    with QUERIES.open(encoding="utf-8", newline="") as file:
        return [(row["query"], row["pages"].split()) for row in csv.DictReader(file)]


def test_questions_find_their_pages(search):
    missed = []
    for query, wanted in queries():
        found = search(query, "page + anchor")[:2]
        pages_found = [place.partition("#")[0] for place in found]
        if not {*wanted} & {*found, *pages_found}:
            missed.append(f"{query}: {found}, not {wanted}")
    nothing(missed, "name the question in tools/site/search.yml")
    assert len(queries()) >= 60


def test_every_option_has_an_address_that_the_search_finds(site, search):
    "`--margin` leads to its entry below `compare`; the entry of each command can be linked."
    import typer

    from invar_nb.shell.cli import app

    text = site.html["reference/command_line.html"]
    anchors = re.findall(r'<span id="([\w-]+)"><code', text)
    assert len(anchors) == len({*anchors}) > 100
    for name, command in typer.main.get_command(app).commands.items():
        options = [o for p in command.params for o in p.opts if o.startswith("--")]
        missing = [o for o in options if f"{name}-{o.strip('-')}" not in anchors]
        nothing(missing, f"{name}: no address")
    assert search("--margin")[0] == search("what does --level mean")[0] == PAGE_OF_OPTIONS
    assert "{#" not in (site.out / "reference/command_line.md").read_text("utf-8")


def test_a_term_leads_to_its_entry_in_the_glossary(site, search):
    "Also in the other spelling, and where a page answers first."
    for term, anchor in (
        ("effective sample size", "effective-sample-size"),
        ("flips", "flips"),
        ("non-inferiority margin", ""),
    ):
        entries = [p for p in search(term, "page + anchor") if p.startswith("glossary#")]
        assert (f"glossary#{anchor}" in entries) == bool(anchor), (term, entries)
        assert not anchor or f'id="{anchor}"' in site.html["glossary.html"]


def test_both_spellings_find_the_same(search):
    for british, american in (
        ("quantised model", "quantized model"),
        ("neighbouring windows", "neighboring windows"),
        ("noninferiority", "non-inferiority"),
        ("colour-blind", "colorblind"),
        ("p value", "p-value"),
    ):
        assert search(british)[0] == search(american)[0], british


def test_places_that_the_search_names_are_there(site):
    gone = [
        place
        for place in build_site.search_terms
        if "#" in place
        and f'id="{place.partition("#")[2]}"'
        not in site.html[place.partition("#")[0] + ".html"]
    ]
    nothing(gone, "no such section")


def test_small_words_do_not_count_and_pages_come_once(search):
    assert search("how do I compute my bootstrap")[0] == search("bootstrap")[0]
    assert search("compare") and not search("zyzzyva")
    assert search("multiple comparisons")[0] == "statistics/multiplicity"
    assert search("multiple comparisons with the best")[0] == "comparison/ranking"
    for query in ("perplexity", "confidence interval", "margin"):
        found = search(query)
        assert len({*found}) == len(found)
        assert "reference/python_api" not in found[:2]
        assert found[0].split("/")[0] not in ("the-method", "the-library-by-layer")


# --- drawings, without a site ---------------------------------------------------------------
def stored_drawing():
    "A drawing as Matplotlib leaves it in a notebook."
    cells = pages.read(pages.nbs / "foundations" / "07_page_style.ipynb").cells
    data = [o.get("data", {}) for c in cells for o in c.get("outputs", ())]
    return next(d["image/svg+xml"] for d in data if "image/svg+xml" in d)


WORDS = {
    "fig-alt": 'Bars <of> "forty" samples',
    "fig-cap": "Three of `n` bars miss & are orange.",
}


def test_a_drawing_takes_colours_and_font_of_its_page():
    svg = stored_drawing()
    drawn = drawings.figure(svg, WORDS, "d1")
    assert drawn.startswith('<figure class="drawing"><svg') and drawn.endswith("</figure>")
    assert 'aria-label="Bars &lt;of&gt; &quot;forty&quot; samples"' in drawn
    assert (
        "<figcaption>Three of <code>n</code> bars miss &amp; are orange.</figcaption>" in drawn
    )
    gone = (
        "<?xml",
        "<!DOCTYPE",
        "metadata",
        "<style",
        "font-family",
        "xlink",
        *PALETTE.values(),
    )
    nothing([word for word in (*gone, "#ffffff", "#000000") if word in drawn])
    assert "var(--draw-teal)" in drawn and "var(--draw-orange)" in drawn
    assert "currentColor" in drawn and drawn.count("<text") == svg.count("<text")
    assert svg.count("fill: #ffffff") == 2 and "background-primary" not in drawn  # no paper


@pytest.mark.parametrize("said", ["standard error 0.0044", "1.0375", "<0.00001>"])
def test_a_drawing_says_its_numbers_whole(said):
    "Coordinates lose their third decimal, what the picture says does not."
    text = html.escape(said)
    svg = stored_drawing().replace("</svg>", f'<text x="1.23456">{text}</text></svg>')
    assert f'<text x="1.23">{text}</text>' in drawings.inline(svg, "alt", "d1")


def test_a_drawing_has_the_minus_of_prose():
    svg = stored_drawing().replace("</svg>", '<text x="-1.2">one look: -1.96</text></svg>')
    assert '<text x="-1.2">one look: \u22121.96</text>' in drawings.inline(svg, "alt", "d1")
    svg = size_figure([("a", 4, 0.1, -0.1, 0.3, "equivalent")], margin=(-2, 2))
    drawn = drawings.inline_of_report(svg, "alt")
    assert ">-" not in drawn and ">\u2212" in drawn


def test_a_number_and_its_per_cent_sign_stand_on_one_line():
    assert drawings.caption("above 2 % of `n` % `5`") == (
        "above 2\u00a0% of <code>n</code> % <code>5</code>"
    )


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("from 145 MB down to 88 MB", "from 145\u00a0MB down to 88\u00a0MB"),
        ("0.7 nats, 6.2 bits, 2 points", "0.7\u00a0nats, 6.2\u00a0bits, 2\u00a0points"),
        ("in 12 s or 8 GiB", "in 12\u00a0s or 8\u00a0GiB"),
        ("8 steps, 3 pointers", "8 steps, 3 pointers"),
        ("is -0.4 % to -.1", "is \u22120.4\u00a0% to \u2212.1"),
        ("(-0.2, -1/600), -0.0018", "(\u22120.2, \u22121/600), \u22120.0018"),
        ("0 - 0.09 + 0.25", "0 \u2212 0.09 + 0.25"),
        ("GPT-2, 2026-11-30, 1-2, 10.1-3", "GPT-2, 2026-11-30, 1-2, 10.1-3"),
        (
            "`-1` $x^{-1}$ [a](b/-2.html) <a href='-3'>",
            "`-1` $x^{-1}$ [a](b/-2.html) <a href='-3'>",
        ),
        ("- 5 of 7\n- 1 of 2", "- 5 of 7\n- 1 of 2"),
        ("| -- | -0.5 |", "| -- | \u22120.5 |"),
    ],
)
def test_numbers_in_prose_have_a_minus_and_keep_their_units(typed, shown):
    "A hyphen stood before numbers, and 88 MB was broken between two lines."
    assert drawings.joined(typed) == shown


def test_a_printed_text_shows_that_it_can_be_scrolled():
    "On a telephone the column with the claim was cut off without a sign of it."
    css = (ROOT / "tools/site/site.css").read_text("utf-8")
    rules = dict(re.findall(r"^([^{}@]*?) ?\{ (.*) \}", css, re.M))
    for box in ("div.cell div.cell_output pre", ".table-wrapper"):
        cue = next(rule for names, rule in rules.items() if box in names and "--edge" in rule)
        assert "local" in cue and "scroll" in cue and "overflow-x: auto" in cue


def test_the_page_of_the_tutorials_lists_all_of_them():
    there = {n for n in NAMES if n.startswith("tutorials/")}
    assert {*build_site.TUTORIALS} == there and len(there) == 9
    facts = {name: (f"Title of {name}", "To 88 MB.") for name in NAMES}
    inside = [(name, None, None) for name in build_site.TUTORIALS[:3]]
    text = build_site.section_page("tutorials", "Tutorials", inside, facts)
    shown = text.partition("```{toctree}")[0]
    nothing([name for name in there if f"](/{name})" not in shown], "not listed")
    assert text.partition("```{toctree}")[2].count("/tutorials/") == 3
    assert text.count("88\u00a0MB") == 9


def test_thumbnails_stand_in_the_page_with_its_font():
    picture = (
        '<svg xmlns="x" viewBox="0 0 2 1" font-family="Arial" fill="#737f87"><title>A</title>'
        '<text>A</text><path id="p"/><use xlink:href="#p" stroke="#b34e15"/></svg>'
    )
    drawn = drawings.thumbnail(picture, "Two bars", "g1")
    assert drawn.startswith('<svg class="thumbnail" viewBox="0 0 2 1"')
    assert 'aria-label="Two bars"' in drawn and "<title" not in drawn
    assert "font-family" not in drawn and "var(--draw-orange)" in drawn
    assert 'id="g1-p"' in drawn and 'href="#g1-p"' in drawn


def test_a_picture_of_a_report_takes_colours_and_font_of_its_page():
    svg = size_figure([("a", 4, 0.1, -0.1, 0.3, "equivalent")], margin=(-2, 2))
    assert drawings.is_of_report(svg) and not drawings.is_drawing(svg)
    drawn = drawings.figure(svg, WORDS, "d1")
    assert drawn.startswith(
        '<figure class="drawing"><svg class="drawing" viewBox="0 0 420 296"'
    )
    assert 'aria-label="Bars &lt;of&gt; &quot;forty&quot; samples"' in drawn
    nothing([word for word in ("<title", "system-ui") if word in drawn])
    assert drawn.count("<text") == svg.count("<text") and drawn.endswith("</figure>")
    used = {*re.findall(r"var\(--([a-z]+),", drawn)}
    assert used and used <= {*drawings.NAMES_OF_REPORTS}


def test_every_colour_of_reports_follows_the_theme():
    assert {*COLOURS} <= {*drawings.NAMES_OF_REPORTS}


def test_one_palette_for_pages_plots_and_reports():
    "Orange was a loss everywhere, but a gain blue in reports and teal in guides."
    assert PALETTE["orange"] == WORSE and PALETTE["teal"] == BETTER
    assert WORSE in COLOURS["worse"] and BETTER in COLOURS["better"]
    style = (ROOT / "invar_nb/report/templates/colours.css").read_text("utf-8")
    light, dark = style.splitlines()[:2]
    for name, colour in (("worse", "orange"), ("better", "teal")):
        assert f"--{name}:{build_site.light[f'draw-{colour}']}" in light
        assert f"--{name}:{build_site.dark[f'draw-{colour}']}" in dark
        assert drawings.NAMES_OF_REPORTS[name] == f"var(--draw-{colour})"


def test_ids_of_drawings_are_their_own():
    one, two = (drawings.inline(stored_drawing(), "alt", mark) for mark in ("a", "b"))
    ids = [re.findall(r' id="([^"]+)"', drawn) for drawn in (one, two)]
    assert ids[0] and not {*ids[0]} & {*ids[1]}
    for drawn, own in ((one, ids[0]), (two, ids[1])):
        assert {name for _, name in drawings.REFERENCE.findall(drawn)} == {*own}


def luminance(colour):
    "The relative luminance of a colour, as WCAG has it."
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    lit = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * lit[0] + 0.7152 * lit[1] + 0.0722 * lit[2]


@pytest.mark.parametrize("theme", [build_site.light, build_site.dark], ids=["light", "dark"])
@pytest.mark.parametrize("name", PALETTE)
def test_colours_of_drawings_can_be_read(name, theme):
    paper = luminance(theme.get("color-background-primary", "#ffffff"))
    ink = luminance(theme[f"draw-{name}"])
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) >= 4.5


# --- folds, without a site ------------------------------------------------------------------
def folded(*sources):
    "The cells after their answers were folded; a source that begins with `>>>` is code."
    kind = {True: "code", False: "markdown"}
    cells = [SimpleNamespace(cell_type=kind[s.startswith(">>>")], source=s) for s in sources]
    make = lambda text: SimpleNamespace(cell_type="markdown", source=text)  # noqa: E731
    return [cell.source for cell in docs_pages.fold_answers(cells, make)]


def test_an_answer_is_folded_up_to_the_next_heading():
    begin, end = docs_pages.ANSWER_BEGINS, docs_pages.ANSWER_ENDS
    page = ("**Answer.** Not an exercise.", "## Exercises", "### 1. A\n\nHow many?")
    answer = ("**Answer.** Two.", ">>> 1 + 1", "So it is.")
    rest = (
        "### 2. B\n\nAnd now?",
        "**Answer.** Three.\n\n```\n# no heading\n```",
        "## Limits",
    )
    assert folded(*page, *answer, *rest) == [
        *page, begin, *answer, end, rest[0], begin, rest[1], end, rest[2],
    ]  # fmt: skip
    assert folded(*page, "**Answer.** Two.\n\n## Limits\n\nNone.") == [
        *page, begin, "**Answer.** Two.", end, "## Limits\n\nNone.",
    ]  # fmt: skip
    assert folded("## Exercises", "**Answer.** Last.")[-1] == end
    tasks = ("## A", "### Try this\n\n1. Drag it.", "**Answer.** So.", "## B")
    assert folded(*tasks, *page[:1]) == [*tasks[:2], begin, tasks[2], end, tasks[3], page[0]]
    assert folded("**Answer.** Before.\n\n## Exercises")[0].startswith("**Answer.**")
    assert folded("# A\n\n## B", "text\n\n### C") == ["# A\n\n## B", "text\n\n### C"]


def test_a_fold_says_what_it_holds():
    source = "_A = 1\n\n\ndef _help():\n    return _A\n\n\nclass Shown:\n    pass\n"
    assert (
        folds.summary([source, "def f(): pass"])
        == "Implementation: Shown, f, _help (10 lines)"
    )
    assert folds.summary(["LIMIT = 3"]) == "Implementation: LIMIT (1 line)"
    many = "\n".join(f"def f{i}(): pass" for i in range(6))
    assert folds.summary([many]).endswith("f3 and 2 more (6 lines)")


def test_shown_source_has_the_numbers_of_equations():
    found = folds.equations(["$$ a $$ {#eq-first}\n\n$$ b $$", "$$ c $$ {#eq-second}"])
    assert found == {"eq-first": 1, "eq-second": 2}
    numbers = {"eq-first": ("here", 1), "eq-second": ("there/page", 2)}
    text = '"As (@eq-first), @eq-second; not @eq-third."  # @eq-first'
    said = folds.numbered(text, "here", numbers)
    assert said == '"As (1), (2) of there/page; not @eq-third."  # (1)'


def library_page(is_folded):
    "The cells for Sphinx of a page with a card before and one after the source of both."
    card = lambda name: {  # noqa: E731
        "cell_type": "code",
        "source": f"#| echo: false\n#| output: asis\nshow_doc({name})",
        "outputs": [
            {
                "data": {
                    "text/markdown": "---\n\n[source](https://x/invar_nb/a/b.py#L1)\n\n"
                    f"### {name}\n\n```python\ndef {name}(\n    x:int\n)\n```\n\n*Doc.*"
                }
            }
        ],
    }
    source = {
        "cell_type": "code",
        "metadata": {},
        "source": "#| code-fold: show\ndef helper(x: int):\n    pass\n\n\n"
        "def compare(x: int):\n    pass",
        "outputs": [],
    }
    known = build_site.Site("https://x/", {"a/b"}, {}, {"a/b"} if is_folded else set(), {})
    page = build_site.Page("a/00_b.ipynb", "a/b", known)
    cells = build_site.page_cells([card("helper"), source, card("compare")], page)
    return "\n".join(cell["source"] for cell in cells)


def test_a_signature_is_shown_once():
    in_fold = library_page(is_folded=True)
    in_full = library_page(is_folded=False)
    assert in_fold.count("x:int") == 1 and "Derived and checked" not in in_fold
    assert "Implementation: helper, compare (6 lines)" in in_fold
    assert in_fold.index("### compare") < in_fold.index("<details")
    assert "def compare(\n    x:int" in in_fold  # a public name; a helper's is in the fold
    assert (
        in_full.count("x:int") == 0 and "Derived" not in in_full and "<details" not in in_full
    )


# --- terms, without a site ------------------------------------------------------------------
def glossary():
    "The terms of the glossary."
    cells = pages.read(pages.nbs / "glossary.ipynb").cells
    return [*glossary_terms.entries(cell.source for cell in cells)]


def test_terms_are_read():
    terms = {term.name: term for term in glossary()}
    assert len(terms) > 60
    assert terms["n_eff"].anchor == "n-eff" and "independent windows" in terms["n_eff"].related
    nothing([t for t in terms.values() if not t.first.endswith((".", "?"))], "no sentence")
    nothing([t for t in terms.values() if not (pages.nbs / t.page).exists()], "no such page")
    nothing(glossary_terms.EVERYDAY - {
        name for term in terms.values() for name in term.name.lower().split(" and ")
    }, "no such term")  # fmt: skip


def test_a_term_is_linked_at_its_first_use_in_prose():
    document = new_document("page", get_default_settings())
    title = nodes.title("", "Margin")
    link = nodes.reference("", "margin", refuri="x")
    first = nodes.paragraph(
        "", "", link, nodes.literal("", "margin"), nodes.Text(" Two margins.")
    )
    second = nodes.paragraph("", "The margin, and premargin.")
    document += [nodes.section("", title, first, second)]
    terms = {"margin": next(term for term in glossary() if term.name == "Margin")}
    glossary_terms.mark(document, terms, lambda anchor: f"g.html#{anchor}")
    marked = [n for n in document.findall(nodes.reference) if "term" in n["classes"]]
    assert [n.astext() for n in marked] == ["margins"] and marked[0].parent is first
    assert marked[0]["refuri"] == "g.html#margin" and "act on" in marked[0]["reftitle"]
    assert document.astext().count("argin") == 6


def test_a_page_has_few_links_to_terms():
    terms = {t.name.lower(): t for t in glossary()}
    document = new_document("page", get_default_settings())
    document += nodes.paragraph("", "; ".join(terms))
    glossary_terms.mark(document, terms, str)
    assert len([*document.findall(nodes.reference)]) == glossary_terms.MOST


@pytest.mark.parametrize(
    "rows, is_of_numbers",
    [
        (
            [["Q8_0", "+0.5 (0.3 to 0.7)", "equivalent", "+0.3"], ["Q6_K", "−1.3", "", "±2"]],
            True,
        ),
        ([["equivalent", "-m < L", "the change is small", "no"]], False),
        ([["1", "A first comparison", "Margin and five words", "4"]], False),
    ],
)
def test_on_a_phone_a_table_of_numbers_stays_a_table(rows, is_of_numbers):
    "Its columns are compared, so that it is scrolled; a table of words becomes a list."
    from py_mini_racer import MiniRacer

    script = (build_site.PIECES / "site.js").read_text("utf-8")
    function = re.search(r"^const isOfNumbers = .*?^};$", script, re.S | re.M)[0]
    engine = MiniRacer()
    engine.eval(function.replace("const isOfNumbers", "var isOfNumbers"))
    assert engine.eval(f"isOfNumbers({json.dumps(rows)})") is is_of_numbers
