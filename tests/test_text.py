"Documents, tokens, bytes and windows: what is read is what is scored."

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import (
    END,
    Letters,
    byte_tokenizer,
    llama,
    merged_tokenizer,
    processors,
    save,
    transformers,
    unigram_tokenizer,
    word_tokenizer,
)

from invar_nb.arms.windows import plan_windows
from invar_nb.foundations.refuse import ContractError, PairingError, UsageError
from invar_nb.models import text as text_page
from invar_nb.models.load import load_model
from invar_nb.models.text import (
    Documents,
    check_same_tokenizer,
    encode_text,
    read_documents,
    tokenizer_digest,
)
from invar_nb.models.text_plan import data_digest, plan_text

TOKENIZERS = {
    "bytes": byte_tokenizer,
    "no bos": lambda: byte_tokenizer(bos=False),
    "merged": merged_tokenizer,
    "words": word_tokenizer,
    "unigram": unigram_tokenizer,
}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in TOKENIZERS.items()}


# --- documents ------------------------------------------------------------------------------------------------------------------------
def test_files_and_lines_are_documents(tmp_path):
    (tmp_path / "a.txt").write_bytes("Zürich\r\nŁódź\n".encode())
    (tmp_path / "b.jsonl").write_text(
        '{"text": "one\\n", "id": 7, "language": "en"}\n{"language": null, "text": "two"}\n'
    )
    found = read_documents([tmp_path / "a.txt", str(tmp_path / "b.jsonl")])
    assert found.texts == ("Zürich\r\nŁódź\n", "one\n", "two") and found.languages == (
        None,
        "en",
        None,
    )
    assert (
        found.text_ids == ("0", "1", "2")
        and found.documents is None
        and len(found) == 3
        and found.files == ("a.txt", "b.jsonl", "b.jsonl")
    )
    assert read_documents(tmp_path / "a.txt").texts == ("Zürich\r\nŁódź\n",)


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("c.txt", b"", "not empty"),
        ("d.txt", b"ab\xff", "plain UTF-8.*got byte 0xff at offset 2"),
        ("e.txt", b"\xef\xbb\xbfab", "got a byte order mark. Cut it off: tail -c"),
        ("f.txt", b"a\0b", "got byte 0x00 at offset 1"),
        ("f.jsonl", b"a\0b", "NUL"),
        ("e.jsonl", b'{"text": 3}\n', "e.jsonl, line 1"),
        ("f.jsonl", b'{"text": "a"}\n{"text"\n', "f.jsonl, line 2"),
        ("g.jsonl", b"\n", "g.jsonl"),
        ("h.jsonl", b'{"text": ""}\n', "not empty; got '' in .*h.jsonl, line 1"),
        ("i.jsonl", b'{"text": "\\ud800"}\n', "UTF-8"),
        ("j.jsonl", b'{"text": "x", "language": ["en"]}\n', "j.jsonl, line 1"),
        (
            "k.jsonl",
            b'{"text": "x", "language": ""}\n',
            "a language must be text.* got .. in .*k.jsonl, line 1",
        ),
        ("l.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "line 2"),
        ("missing.txt", None, "a text file must exist"),
        ("", None, "a text file must exist"),
        (
            os.fsdecode(b"m\xe9.txt"),
            b"ab",
            r"a text file's name must be UTF-8; got 'm\\udce9\.txt'",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path, name, data, words):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ContractError, match=words) as caught:
        read_documents(tmp_path / name)
    assert "\n" not in str(caught.value) and caught.value.code == "contract"


def test_equal_documents_are_refused_by_file_and_line(tmp_path):
    (tmp_path / "a.txt").write_text("same")
    (tmp_path / "b.jsonl").write_text('{"text": "other"}\n{"text": "same"}\n')
    (tmp_path / "c.jsonl").write_text('{"text": "other"}\n{"text": "same"}\n')
    for names, words in (
        ("a.txt b.jsonl", r"one text at .*a\.txt and at .*b\.jsonl, line 2"),
        ("a.txt a.txt", r"one text at .*a\.txt and at .*a\.txt"),
        ("b.jsonl c.jsonl", r"2 texts, .* out: .*c\.jsonl, line 1, .*c\.jsonl, line 2"),
    ):
        with pytest.raises(ContractError, match=words) as caught:
            read_documents([tmp_path / name for name in names.split()])
        assert caught.value.code == "equal_documents"
    with pytest.raises(ContractError, match="at least one file"):
        read_documents([])


BOOK = "\n# One\r\n\r\nfirst\n \t\n\nsecond\n## Two\nthird\n\n\n"


@pytest.mark.parametrize(
    "pieces, found",
    [
        ("blank-lines", ["\n# One\r\n\r\n", "first\n \t\n\n", "second\n## Two\nthird\n\n\n"]),
        ("headings", ["\n# One\r\n\r\nfirst\n \t\n\nsecond\n", "## Two\nthird\n\n\n"]),
        (
            "^(second|third)$",
            ["\n# One\r\n\r\nfirst\n \t\n\n", "second\n## Two\n", "third\n\n\n"],
        ),
        ("nothing", [BOOK]),
    ],
)
def test_pieces_join_to_the_text(tmp_path, pieces, found):
    (tmp_path / "book.txt").write_bytes(BOOK.encode())
    cut = read_documents(tmp_path / "book.txt", pieces=pieces)
    assert list(cut.texts) == found and "".join(cut.texts) == BOOK
    assert cut.documents == ("0",) * len(found) and cut.text_ids == tuple(
        f"0.{k}" for k in range(len(found))
    )
    assert (
        read_documents(
            tmp_path / "book.txt", pieces=pieces, pieces_are_documents=True
        ).documents
        is None
    )
    with pytest.raises(UsageError, match="a regular expression"):
        read_documents(tmp_path / "book.txt", pieces="(")


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text("a# \n\t\r", min_size=1, max_size=40),
    pieces=st.sampled_from(["blank-lines", "headings", "a", r"\s"]),
)
def test_no_cut_loses_a_character(tmp_path, text, pieces):
    (tmp_path / "x.txt").write_bytes(text.encode())
    cut = read_documents(tmp_path / "x.txt", pieces=pieces).texts
    assert (
        "".join(cut) == text
        and all(part.strip() for part in cut[1:])
        and (len(cut) == 1 or cut[0].strip())
    )


def test_pieces_end_windows_and_keep_their_document():
    given = Documents(
        texts=("abcdef", "ghij", "klmnop"),
        documents=("0", "0", "1"),
        pieces="blank-lines",
        languages=("en", "en", None),
    )
    plan = plan_text(byte_tokenizer(), given, max_length=8, stride=8)
    assert (
        plan.window_ids == ("0.0:1-7", "0.1:1-5", "1.0:1-7")
        and plan.document_ids == ("0", "0", "1")
        and plan.counts["documents"] == 2
    )
    assert plan.provenance["pieces"] == "blank-lines" and plan.provenance["languages"] == {
        "en": {"documents": 1, "tokens": 10},
        "und": {"documents": 1, "tokens": 6},
    }
    with pytest.raises(
        ContractError, match="languages must have one entry for each text; got 1 for 2"
    ):
        Documents(texts=("a", "b"), languages=("en",))


# --- bytes ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from("the cat sat. ZüréŁ東京🙂\n\t  aé"), min_size=1, max_size=60),
    stride=st.integers(1, 9),
)
def test_bytes_telescope(tokenizers, name, text, stride):
    "Scored bytes plus the bytes of an unscored first token are the document's bytes, for any tokenizer and any cut."
    tokenizer = tokenizers[name]
    try:
        plan = plan_text(tokenizer, text, max_length=9, stride=stride)
    except ContractError as error:
        assert "a text must have a token to score" in str(error)
        return
    ids, sizes = encode_text(tokenizer, text, tuple(plan.provenance["bos_tokens"]))
    bounds = np.append(0, np.cumsum(sizes, dtype=int))
    np.testing.assert_array_equal(ids, plan.token_ids["0"])
    assert (
        len(bounds) == len(ids) + 1
        and bounds[0] == 0
        and bounds[-1] == len(text.encode())
        and (np.diff(bounds) >= 0).all()
    )
    if plan.n_bytes is not None:
        assert plan.n_bytes.sum() == len(text.encode()) - bounds[1]
    else:
        assert any(bounds[w.stop] == bounds[w.score_from] for w in plan.windows)
    if name in ("bytes", "no bos"):
        assert plan.n_bytes is not None and plan.n_bytes.tolist() == plan.tokens.tolist()


def test_bytes_of_a_known_cut():
    assert plan_text(byte_tokenizer(), "aé東🙂b", max_length=6, stride=4).n_bytes.tolist() == [
        5,
        4,
        2,
    ]
    assert encode_text(word_tokenizer(), "  the  Zürich cat\n")[1].tolist() == [
        7,
        8,
        4,
    ]  # blanks in front go to the first token
    assert plan_text(Letters(), "abcdefghij", max_length=6, stride=3).n_bytes is None


# --- long texts -----------------------------------------------------------------------------------------------------------------------
def by_pieces(tokenizer, text, piece=1024, beside=256):
    "(ids and bytes of the whole, of its pieces); None for pieces where the text must stay whole."
    try:
        parts = [*text_page._pieces(tokenizer, text, piece, beside)]
    except text_page.StaysWhole:
        return encode_text(tokenizer, text), None
    return encode_text(tokenizer, text), [
        np.concatenate(each) for each in zip(*parts, strict=True)
    ]


class Watched:
    "A tokenizer that keeps what it is called with; it may give another id where a text begins."

    is_fast = True

    def __init__(self, tokenizer, forgets=False):
        self.tokenizer, self.forgets, self.calls = tokenizer, forgets, []

    def __call__(self, texts, **options):
        self.calls.append(texts)
        got = self.tokenizer(texts, **options)
        if self.forgets:
            got["input_ids"] = [[i + len(self.calls) for i in ids] for ids in got["input_ids"]]
        return got


def test_what_cannot_be_cut_stays_whole(monkeypatch):
    tokenizer = merged_tokenizer()
    assert by_pieces(tokenizer, "東京" * 3000)[1] is None  # nowhere a blank
    text = "the cat sat on the mat " * 800
    neighbours_disagree = Watched(tokenizer, forgets=True)
    with pytest.raises(text_page.StaysWhole):
        [*text_page._pieces(neighbours_disagree, text, 1024, 256)]
    monkeypatch.setattr(text_page, "LONGEST_UNCUT", 1024)
    monkeypatch.setattr(text_page._pieces, "__defaults__", (1024, 256))
    shown = []
    ids, sizes = encode_text(Watched(tokenizer, forgets=True), text, progress=shown.append)
    assert len(ids) == len(tokenizer(text)["input_ids"])
    assert sizes.sum() == len(text) == shown[-1]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_short_texts_are_tokenised_together_as_each_alone(tokenizers, name, monkeypatch):
    "5,000 documents were 5,000 calls of the tokenizer, which cost more than short texts."
    monkeypatch.setattr(text_page, "TOGETHER", 400)
    tokenizer = tokenizers[name]
    texts = [*WORDS[:90].tolist(), "".join(WORDS[:200]), "a", *WORDS[90:120].tolist()]
    watched = Watched(tokenizer)
    shown = []
    rows = [*text_page.encode_texts(watched, texts, (7,), shown.append)]
    for text, (ids, sizes) in zip(texts, rows, strict=True):
        alone = encode_text(tokenizer, text, (7,))
        np.testing.assert_array_equal(ids, alone[0])
        np.testing.assert_array_equal(sizes, alone[1])
    assert len(watched.calls) < 8 and len(texts) == 122
    assert len(shown) == 122 and shown == sorted(shown)
    assert shown[-1] == sum(len(text.encode()) for text in texts)


def test_a_long_text_is_read_several_pieces_at_a_time_and_shows_how_far(monkeypatch):
    monkeypatch.setattr(text_page, "LONGEST_UNCUT", 1024)
    monkeypatch.setattr(text_page._pieces, "__defaults__", (1024, 256))
    watched, text = Watched(merged_tokenizer()), "".join(WORDS) * 3
    shown = []
    ids, sizes = encode_text(watched, text, prefix=(7,), progress=shown.append)
    whole = by_pieces(merged_tokenizer(), text)[0]
    assert ids.tolist() == [7, *whole[0]] and sizes.tolist() == [0, *whole[1]]
    assert max(map(len, watched.calls)) >= 4 and len(watched.calls) < 9
    assert max(sum(map(len, texts)) for texts in watched.calls) < 16 * 1024  # of memory
    assert shown == sorted(shown) and len(shown) > 8 and shown[-1] == len(text.encode())


@pytest.mark.parametrize("texts", ["the cat sat", ["a cat", "Zürich", "東京 mat"]])
def test_a_plan_shows_bytes_of_all_its_texts(texts):
    shown = []
    for tokenizer in (merged_tokenizer(), Letters()):
        plan_text(tokenizer, texts, max_length=4, progress=lambda *row: shown.append(row))
    total = len("".join(texts).encode())
    assert [row for row in shown if row[0] == row[1]] == [(total, total)] * 2
    assert {row[1] for row in shown} == {total} and shown[: len(shown) // 2] == sorted(
        shown[: len(shown) // 2]
    )


WORDS = np.random.default_rng(3).choice(
    ["the ", "cat  ", "sat, ", "Zürich ", "東京\n\n", "🙂   ", "zurich. ", "a "], 2000
)


@pytest.mark.parametrize(
    "text",
    [
        "".join(WORDS),
        "a " * 4000,
        "\n" * 500 + "the cat\n",
        " \n" * 2000,
        "a\n\n" * 3000,
        "the cat " * 100 + " " * 3001 + "sat " * 900,
    ],
)
def test_pieces_have_the_tokens_of_the_whole(tokenizers, text):
    for name in TOKENIZERS if "Z" in text else ("merged",):
        whole, parts = by_pieces(tokenizers[name], text)
        assert whole[1].sum() == len(text.encode()) and ("Z" not in text or parts is not None)
        for k in (0, 1):
            assert parts is None or np.array_equal(whole[k], parts[k])


PEAK = """
import sys
from small_models import merged_tokenizer
from invar_nb.models.text import read_documents
from invar_nb.models.text_plan import plan_text
plan_text(merged_tokenizer(), read_documents(sys.argv[1]), max_length=1024)
print(next(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmHWM')))      # ru_maxrss would begin at the parent's
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix, most", [(".txt", 8), (".jsonl", 8)])
def test_memory_of_a_long_text(tmp_path, suffix, most):
    """Bytes of peak memory for each further byte of text; all tokens as Python objects would be about 200.

    A text is tokenised in pieces: from 8 MB on, what a piece takes no longer grows."""

    def peak(n_bytes):
        rng, paragraphs, size = np.random.default_rng(0), [], 0
        while size < n_bytes:
            paragraphs.append(
                f"{len(paragraphs)} "
                + "".join(
                    np.array(["the cat ", "sat on ", "the mat, ", "Zürich ", "“東京” "])[
                        rng.integers(0, 5, rng.integers(20, 400))
                    ]
                )
            )
            size += len(paragraphs[-1].encode()) + 2
        text = (
            "\n\n".join(paragraphs)
            if suffix == ".txt"
            else "\n".join(json.dumps({"text": x}, ensure_ascii=False) for x in paragraphs)
        )
        (tmp_path / f"x{suffix}").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", PEAK, tmp_path / f"x{suffix}"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
        return int(done.stdout.split()[-1])

    slope = (peak(24_000_000) - peak(8_000_000)) / 16_000_000
    assert slope < most, f"{slope:.1f} bytes of memory for a byte of text"


# --- plans ----------------------------------------------------------------------------------------------------------------------------
def test_bos_policies():
    with_bos, without = byte_tokenizer(), byte_tokenizer(bos=False)
    start = lambda tokenizer, **more: plan_text(
        tokenizer, "ab", max_length=8, **more
    ).provenance["bos_tokens"]
    assert (
        start(with_bos) == start(without, bos="add") == [256]
        and start(without) == start(with_bos, bos="none") == []
    )
    plan = plan_text(with_bos, ["abcdefghij", "kl"], max_length=4, stride=2)
    assert [ids[0] for ids in plan.token_ids.values()] == [256, 256] and all(
        256 not in ids[1:] for ids in plan.token_ids.values()
    )
    with pytest.raises(ContractError, match="needs a tokenizer with a BOS token"):
        start(merged_tokenizer(), bos="add")
    appending = byte_tokenizer()
    appending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A {END}", special_tokens=[(END, 256)]
    )
    assert plan_text(appending, "abc", max_length=8).token_ids["0"].tolist() == [
        256,
        *byte_tokenizer(bos=False)("abc")["input_ids"],
    ]
    blanks = word_tokenizer()
    blanks.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="a $A b", special_tokens=[("a", 5), ("b", 10)]
    )
    assert plan_text(blanks, " " * 100 + "the cat", max_length=8).token_ids["0"].tolist() == [
        5,
        1,
        2,
    ]


def test_truncation_and_padding_saved_with_a_tokenizer_do_not_cut_the_text():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=32, pad_id=256, pad_token=END)
    tokenizer.model_max_length = 4
    assert tokenizer_digest(tokenizer) == tokenizer_digest(byte_tokenizer())
    assert len(plan_text(tokenizer, "abcdefghij", max_length=8).token_ids["0"]) == 11


def test_a_plan_and_its_splits():
    texts, cut = ["a" * 50, "b" * 20], dict(max_length=8, stride=8)
    plan = plan_text(byte_tokenizer(), texts, **cut)
    assert (
        plan.window_ids[0] == "0:1-8"
        and plan.window_ids[-1] == "1:15-21"
        and plan.document_ids[-1] == "1"
    )
    assert plan.counts == {
        "windows": 11,
        "preview": 5,
        "final": 6,
        "tokens": 70,
        "documents": 2,
    }
    few = plan_text(byte_tokenizer(), texts, **cut, windows=5)
    assert [w.split for w in few.windows] == ["preview"] * 2 + ["final"] * 3
    assert (few.provenance["windows_planned"], few.provenance["windows_scored"]) == (11, 5)
    assert plan_text(byte_tokenizer(), "abcdefgh", max_length=8).provenance["stride"] == 4


def test_data_id_says_what_is_compared():
    plan = lambda text="abcdefghij", **more: (
        plan_text(byte_tokenizer(), text, **{"max_length": 8, "stride": 4, **more}).data_id
    )
    others = [
        plan("abcdefghiJ"),
        plan(stride=5),
        plan(bos="none"),
        plan(["abcde", "fghij"]),
        plan(first_window="context_only"),
    ]
    assert plan() == plan() and len({plan(), *others}) == len(others) + 1
    windows = plan_windows(10, max_length=8, stride=4)
    assert data_digest([np.arange(10)], windows) == data_digest(
        [np.arange(10, dtype=np.int32)], windows
    )


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.text("abc é", min_size=2, max_size=40), min_size=1, max_size=8),
    names=st.lists(st.sampled_from(["en", "es", None]), min_size=8, max_size=8),
    keep=st.integers(1, 100),
)
def test_languages_count_what_is_scored(texts, names, keep):
    names, tokenizer = names[: len(texts)], byte_tokenizer()
    keep = min(keep, len(plan_text(tokenizer, texts, max_length=8, stride=5).windows))
    plan = plan_text(
        tokenizer,
        Documents(texts=tuple(texts), languages=tuple(names)),
        max_length=8,
        stride=5,
        windows=keep,
    )
    counted = {}
    for document in {w.document_id for w in plan.windows}:
        row = counted.setdefault(names[int(document)] or "und", {"documents": 0, "tokens": 0})
        row["documents"] += 1
        row["tokens"] += sum(
            w.stop - w.score_from for w in plan.windows if w.document_id == document
        )
    if any(names):
        assert plan.provenance["languages"] == counted and plan.provenance[
            "document_languages"
        ] == {str(i): name or "und" for i, name in enumerate(names)}
    else:
        assert "languages" not in plan.provenance
    assert (
        plan.data_id
        == plan_text(tokenizer, texts, max_length=8, stride=5, windows=keep).data_id
    )


@pytest.mark.parametrize(
    "text, options, words",
    [
        ("", {}, "not empty; got '' as text 0"),
        (["ab", ""], {}, "not empty; got '' as text 1"),
        ([], {}, "there must be at least one text"),
        (
            "x",
            dict(bos="none"),
            "a token to score after its first; got at most 1 token as text 0",
        ),
        ([b"abc"], {}, "a text must be a string"),
        (["ab", 3], {}, "got 3 as text 1"),
        ("ab\ud800", {}, "that UTF-8 can write.* as text 0"),
        ("abcdef", dict(stride=9), "stride must not exceed max_length"),
        ("abcdef", dict(stride=0), "stride must be"),
        ("abcdef", dict(max_length=1), "max_length must be"),
        ("abcdef", dict(max_length=None), "max_length must be given with a bare tokenizer"),
        ("abcdef", dict(first_window="some"), "first_window must be one of"),
        ("abcdef", dict(bos="both"), "bos must be one of"),
        (
            "abcdef",
            dict(windows=99),
            "windows must not exceed what the text holds; got windows 99, 1 planned",
        ),
    ],
)
def test_bad_plans_are_refused(text, options, words):
    with pytest.raises(ContractError, match=words) as caught:
        plan_text(byte_tokenizer(), text, **{"max_length": 8, **options})
    assert "\n" not in str(caught.value)


def test_a_loaded_model_knows_its_length(tmp_path):
    loaded = load_model(save(llama(257), tmp_path))
    assert (
        plan_text(loaded, "abc" * 20).max_length == 40
        and plan_text(loaded, "abc" * 20).provenance["stride"] == 20
    )
    with pytest.raises(
        ContractError,
        match="must not exceed the positions the model was built for; got 41 tokens, model 40",
    ):
        plan_text(loaded, "abc", max_length=41)


# --- tokenizers of two arms -----------------------------------------------------------------------------------------------------------
def test_the_same_tokenizer_twice(tmp_path):
    "Saved, loaded and re-indented it is still the same; with another padding token too."
    byte_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    check_same_tokenizer(
        byte_tokenizer(), transformers.AutoTokenizer.from_pretrained(tmp_path)
    )
    check_same_tokenizer(byte_tokenizer(), byte_tokenizer(pad=None))


@pytest.mark.parametrize(
    "other, words",
    [
        (
            lambda: byte_tokenizer(bos=False),
            r"the same tokens; got .*\[256, 51, 71, 68\] and \[51, 71, 68, 220\] at token 0 of an example",
        ),
        (merged_tokenizer, "the same tokens"),
        (
            lambda: byte_tokenizer(extra=["unseen"]),
            "the same tokens; got sha256:.* with 257 tokens and sha256:.* with 258 tokens",
        ),
    ],
)
def test_different_tokenizers_are_refused(other, words):
    with pytest.raises(PairingError, match=words) as caught:
        check_same_tokenizer(byte_tokenizer(), other())
    assert "\n" not in str(caught.value) and caught.value.code == "tokenizers_differ"
    with pytest.raises(PairingError):
        check_same_tokenizer(other(), byte_tokenizer())


@pytest.mark.parametrize("kind", ["utf-16", "utf-8-sig", "latin-1"])
def test_the_cure_of_another_encoding_works_as_it_is_printed(kind, tmp_path, monkeypatch):
    "`iconv -t utf-8` was advised, which fails on all three."
    monkeypatch.chdir(tmp_path)
    text = "Café, naïve, größer.\n" * 3
    Path("a.txt").write_bytes(text.encode(kind))
    with pytest.raises(ContractError, match="plain UTF-8") as caught:
        read_documents("a.txt")
    command = re.search(r"((iconv|tail) .*) > NEW", str(caught.value))[1]
    done = subprocess.run(shlex.split(command), capture_output=True, check=True)
    assert done.stdout.decode("utf-8") == text


@pytest.mark.parametrize("text", [{"x": 1}, [], ["a"], 7, b"abc", None])
def test_a_text_that_is_no_string_is_refused(text):
    "A dict was a KeyError from Python 3.12 on, where a slice can be its key."
    with pytest.raises(ContractError, match="a text must be a string that UTF-8 can write"):
        Documents(texts=("one", text))
