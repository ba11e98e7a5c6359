"""Documents and pages, whatever text and whatever folder: canonical text, first difference, all-or-nothing folders, and dresses that read back.

The referees share no code with the rooms: `json`, `hashlib` and `jsonschema` for documents, `html.parser` and `markdown-it` for pages."""
import hashlib
import html.parser
import json
import math
import os
import re
from importlib import resources

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from invar_nb.foundations.numbers import ContractError
from invar_nb.statement import document as room
from invar_nb.statement import page

markdown_it = pytest.importorskip("markdown_it")
jsonschema = pytest.importorskip("jsonschema")

SCALARS = st.none() | st.booleans() | st.integers(-2**60, 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=12)
DOCUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)
CALM = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def leaves(value, path=()):
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [path] if not inner else [found for name, item in inner for found in leaves(item, path + (name,))]


def put(document, path, leaf):
    for step in path[:-1]: document = document[step]
    document[path[-1]] = leaf


# --- documents ------------------------------------------------------------------------------------------------------------------------
@CALM
@given(DOCUMENTS)
def test_the_text_of_a_document_is_what_the_json_module_sorts(document):
    text = room.canonical_text(document)
    assert text == json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n" and json.loads(text) == document
    told = room.sealed(document, {"host": "h"})
    body = json.dumps({k: v for k, v in document.items() if k not in ("digest", "environment")}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert told["digest"] == "sha256:" + hashlib.sha256(body.encode()).hexdigest() == room.sealed(told, {"host": "other"})["digest"]
    assert told["environment"]["digest"] == "sha256:" + hashlib.sha256(b'{"host":"h"}').hexdigest()


@CALM
@given(DOCUMENTS, st.data())
def test_the_first_difference_is_the_leaf_that_was_changed(document, data):
    assert room.first_difference(document, json.loads(json.dumps(document))) is None
    assume(document)
    path = data.draw(st.sampled_from(leaves(document)))
    changed = json.loads(json.dumps(document))
    put(changed, path, ["another"])
    found = room.first_difference(document, changed)
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    assert found is not None and found[0].lstrip(".") == where.lstrip(".") and room.first_difference(changed, document) is not None


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_close_is_what_the_claim_says(a, b):
    near = abs(a - b) <= max(1e-9 * max(abs(a), abs(b)), 1e-12)
    assume(not math.isclose(abs(a - b), 1e-9 * max(abs(a), abs(b)), rel_tol=1e-6) and not math.isclose(abs(a - b), 1e-12, rel_tol=1e-6))
    assert (room.first_difference({"x": a}, {"x": b}) is None) == near


def test_what_follows_from_others_is_compared_last_at_every_depth():
    one, two = ({"b": {"text": str(i), "z": i}, "a": [{"text": str(i), "z": i}]} for i in (1, 2))
    assert room.first_difference(one, two)[0] == "a[0].text" and room.first_difference(one, two, last=("text",))[0] == "a[0].z"
    assert room.first_difference({"text": 1, "z": 1}, {"text": 2, "z": 1}, last=("text",)) == ("text", 1, 2), "last, and still compared"


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"a": 1}', b'{\n  "a": 1\n}', b'{\n  "a": 1\n}\n\n', b'{\r\n  "a": 1\r\n}\r\n', b'\xef\xbb\xbf{\n  "a": 1\n}\n', b'{\n  "b": 1,\n  "a": 1\n}\n',
                                 b'{\n  "a": 1e0\n}\n', b'{\n  "a": "\\u00e9"\n}\n', b'{\n  "a": 1e999\n}\n', b"[]\n", b"null\n", b'{\n  "a": "\\ud800"\n}\n'])
def test_only_the_canonical_file_is_a_document(tmp_path, raw):
    (tmp_path / "d.json").write_bytes(raw)
    with pytest.raises(ContractError, match="^asked: |^canonical_json: text must be writable") as caught: room.read_canonical(tmp_path / "d.json", where="asked")
    assert "\n" not in str(caught.value)
    (tmp_path / "d.json").write_text('{\n  "a": 1\n}\n')
    assert room.read_canonical(tmp_path / "d.json") == ('{\n  "a": 1\n}\n', {"a": 1})


# --- schemas --------------------------------------------------------------------------------------------------------------------------
SHIPPED = sorted(f.name for f in resources.files("invar_nb.statement").iterdir() if f.name.endswith(".schema.json"))
KNOWN = {"$ref", "type", "const", "enum", "anyOf", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "items", "required", "properties",
         "additionalProperties"}


def keywords(schema):
    if not isinstance(schema, dict): return set()
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", []), schema.get("items"), schema.get("additionalProperties")]
    return set(schema).union(*map(keywords, inner))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_schemas_use_the_sixteen_keywords(name):
    schema = room.load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert len(KNOWN) == 16 and keywords(schema) - {"$schema", "$id", "$defs", "title", "description"} <= KNOWN
    assert list(room.structure_errors([], schema, what="this"))[0].startswith("this must")


def test_each_of_the_sixteen_is_known_and_no_other():
    rules = {"$ref": "#/$defs/a", "type": "object", "const": 1, "enum": [1], "anyOf": [{}], "pattern": "x", "required": [], "properties": {}, "items": {}, "additionalProperties": True,
             **{name: 1 for name in KNOWN if name.startswith(("min", "max", "exclusive"))}}
    assert rules.keys() == KNOWN
    for keyword, rule in rules.items(): list(room.structure_errors({}, {keyword: rule, "$defs": {"a": {}}}))
    for keyword in ("multipleOf", "format", "oneOf", "not", "uniqueItems", "minLength", "if", "patternProperties"):
        with pytest.raises(ContractError, match=f"known keywords only; got {keyword}"): list(room.structure_errors({}, {keyword: 1}))


# --- folders --------------------------------------------------------------------------------------------------------------------------
NAMES = ("a.jsonl", "b.md", "seal.json")


def fill(text, names=NAMES):
    def write(folder):
        for name in names: (folder / name).write_text(text)
        return text
    return write


def state(folder): return {p.name: p.read_text() for p in folder.iterdir()}


def test_a_folder_is_made_with_its_parents_and_the_answer_given_back(tmp_path, monkeypatch):
    assert room.save_folder(tmp_path / "deep" / "er", fill("1"), names=NAMES) == "1" and state(tmp_path / "deep" / "er") == dict.fromkeys(NAMES, "1")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["er"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder in (".", "x", "./y/z"):
        assert room.save_folder(folder, fill("2"), names=NAMES) == "2" and (tmp_path / "here" / folder / "seal.json").read_text() == "2"
    assert sorted(p.name for p in (tmp_path / "here").iterdir()) == sorted([*NAMES, "x", "y"]) and not list(tmp_path.rglob(".*"))


def test_a_linked_folder_is_written_where_it_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    room.save_folder(tmp_path / "link", fill("1"), names=NAMES)
    assert state(tmp_path / "real") == dict.fromkeys(NAMES, "1") and (tmp_path / "link").is_symlink()


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out" / "seal.json").symlink_to(tmp_path / "precious")
    with pytest.raises(ContractError, match="never overwritten"): room.save_folder(tmp_path / "out", fill("1"), names=NAMES)
    room.save_folder(tmp_path / "out", fill("1"), names=NAMES, force=True)
    assert (tmp_path / "precious").read_text() == "mine" and state(tmp_path / "out") == dict.fromkeys(NAMES, "1") and not (tmp_path / "out" / "seal.json").is_symlink()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(28, "full"), SystemExit(3)])
@pytest.mark.parametrize("there", [False, True])
def test_a_writer_that_ends_early_leaves_what_was_there(tmp_path, error, there):
    if there: room.save_folder(tmp_path / "out", fill("old"), names=NAMES)

    def half(folder):
        (folder / "a.jsonl").write_text("new")
        raise error
    with pytest.raises(BaseException) as caught: room.save_folder(tmp_path / "out", half, names=NAMES, force=True)
    assert isinstance(caught.value, error if isinstance(error, type) else type(error))
    assert [p.name for p in tmp_path.iterdir()] == ["out"] * there and (not there or state(tmp_path / "out") == dict.fromkeys(NAMES, "old"))


def test_files_of_the_former_kind_go_and_others_stay(tmp_path):
    names = ("a.parquet", *NAMES)
    room.save_folder(tmp_path / "out", fill("old", ("a.parquet", "b.md", "seal.json")), names=names)
    (tmp_path / "out" / "notes").write_text("mine")
    room.save_folder(tmp_path / "out", fill("new"), names=names, force=True)
    assert state(tmp_path / "out") == {**dict.fromkeys(NAMES, "new"), "notes": "mine"}


@pytest.mark.parametrize("written, got", [((), "nothing"), (("a.jsonl",), "a.jsonl"), ((*NAMES, "notes"), "a.jsonl, b.md, notes, seal.json")])
def test_a_writer_that_does_not_keep_its_word_replaces_nothing(tmp_path, written, got):
    room.save_folder(tmp_path / "out", fill("old"), names=NAMES)
    (tmp_path / "out" / "notes").write_text("mine")
    with pytest.raises(ContractError, match=f"^mine: the writer must leave seal.json and nothing beyond its names; got {got}"):
        room.save_folder(tmp_path / "out", fill("new", written), names=NAMES, force=True, where="mine")
    assert state(tmp_path / "out") == {**dict.fromkeys(NAMES, "old"), "notes": "mine"}


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "a\\b", "c:x", "x\0", "", ".", "..", "folder", "absent"])
def test_evidence_is_a_file_beside_the_document(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ContractError, match="plain name|lie beside"): room.find_evidence(tmp_path, {"file": name, "sha256": "sha256:0"}, arm="candidate")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
def test_a_fifo_is_no_evidence_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ContractError, match="the answers of the baseline must lie beside"):
        room.find_evidence(tmp_path, {"file": "pipe", "sha256": "sha256:0"}, arm="baseline", what="answers")


def test_a_page_that_is_not_there_is_not_rendered(tmp_path):
    room.check_pages(tmp_path, {"a.html": lambda: pytest.fail("rendered")})
    (tmp_path / "a.html").write_bytes(b"x\xff\n")
    with pytest.raises(ContractError, match="^asked: a.html must be what report.json renders to; got line 1"): room.check_pages(tmp_path, {"a.html": lambda: "x\n"}, where="asked")


# --- pages ----------------------------------------------------------------------------------------------------------------------------
class Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes): self.tags.append(tag)
    def handle_data(self, data): self.text += data


REFEREE = markdown_it.MarkdownIt().enable(["table", "strikethrough"])
TEXTS = st.text(max_size=20) | st.text("<>&\"'`*_[]()#|!~\\-+=.: 1a\n$", max_size=12)


def squeeze(text): return re.sub(r"[ \n]+", " ", text).strip()


@CALM
@given(TEXTS, st.sampled_from(["h1", "h2", "p", "lead", "code"]))
def test_any_text_reads_back_from_html(text, kind):
    seen = Reader(page.render_page([(kind, text)], title="t").split("<body>")[1])
    assert squeeze(seen.text) == squeeze("\n".join(map(page.visible, text.split("\n")))) and len(seen.tags) == (2 if kind == "code" else 1)


@CALM
@given(TEXTS, st.sampled_from(["h1", "h2", "p", "lead", "list", "table", "figure"]))
def test_any_text_reads_back_from_markdown(text, kind):
    told = squeeze(page.visible(" ".join(text.split()) if "\n" in text or "\r" in text else text))
    assume(told)
    block = {"list": ("list", [text]), "table": ("table", ("h", "i"), [(text, "1.09")]), "figure": ("figure", "<svg/>", text)}.get(kind, (kind, text))
    seen = Reader(REFEREE.render(page.render_page_markdown([block])))
    assert squeeze(seen.text) == {"table": f"h i {told} 1.09", "figure": f"(report.html shows this.) {told}"}.get(kind, told)
    assert seen.tags == {"h1": ["h1"], "h2": ["h2"], "p": ["p"], "lead": ["p", "strong"], "list": ["ul", "li"], "figure": ["p"],
                         "table": ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]}[kind]


@CALM
@given(st.text(max_size=30))
def test_what_is_visible_is_printable_and_stays(text):
    seen = page.visible(text)
    assert seen.isprintable() and page.visible(seen) == seen and (seen == text) == text.isprintable()


@CALM
@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6), st.integers(1, 20))
def test_ticks_are_round_and_none_is_left_out(low, width, wanted):
    high = low + width
    assume(width > 1e-9 * max(abs(low), abs(high)))
    found, slack = page.ticks(low, high, wanted), 1e-8 * width + math.ulp(max(abs(low), abs(high)))  # high itself and each tick are rounded once
    assert found == sorted(set(found)) and len(found) <= wanted + 1 and all(low - slack <= t <= high + slack for t in found)
    for t in found: assert len(f"{t:.15g}") <= 18
    if len(found) > 1:
        step = found[1] - found[0]
        assert all(math.isclose(b - a, step, rel_tol=1e-3) for a, b in zip(found[:-1], found[1:], strict=True))


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (float("nan"), 1), (0, float("inf"))])
def test_an_axis_needs_two_ends(ends):
    with pytest.raises(ContractError, match="two finite ends"): page.ticks(*ends)


@pytest.mark.parametrize("value, shown", [(None, "-"), (True, "yes"), (False, "no"), (1234567, "1,234,567"), (0.1 + 0.2, "0.3"), (-0.0, "-0"), (float("nan"), "nan"), ("x", "x"), (0, "0")])
def test_values_are_shown_in_one_way(value, shown): assert page.show(value) == shown


@pytest.mark.parametrize("p, shown", [(None, "none"), (0.0, "at most 1e-12"), (1e-12, "at most 1e-12"), (1.01e-12, "1.01e-12"), (0.04999, "0.05"), (1.0, "1")])
def test_p_values_below_the_floor_are_a_bound(p, shown): assert page.show_p(p) == shown
