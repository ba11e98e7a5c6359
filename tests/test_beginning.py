"The first windows of a long text: what is read of it, and that the plan is that of who read it whole."

import json

import numpy as np
import pytest
from test_shell import shell

from invar_nb import read_losses
from invar_nb.foundations.refuse import ContractError
from invar_nb.models import text as text_page
from invar_nb.models import text_plan as windows_page
from invar_nb.models.text import Documents, read_documents
from invar_nb.models.text_plan import plan_text

pytest.importorskip("torch")
from test_shards import BASE  # noqa: E402

LEAST = 2**12  # bytes, in the place of a MiB


@pytest.fixture(autouse=True)
def short_beginnings(monkeypatch):
    monkeypatch.setattr(windows_page, "LEAST_READ", LEAST)
    monkeypatch.setattr(windows_page, "BYTES_A_WINDOW", 64)


@pytest.fixture(scope="module")
def tokenizer():
    from invar_nb.models.load import load_tokenizer

    return load_tokenizer(BASE)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beginning")
    lines = [f"Line {i} é of the text counts to {i * i}.\n" for i in range(20_000)]
    (folder / "one.txt").write_text("".join(lines))
    rows = [
        json.dumps({"text": "".join(lines[i : i + 9]), "n": i}) for i in range(0, 20_000, 9)
    ]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "other.txt").write_text("".join(lines[:10_000]).upper())
    return folder


@pytest.mark.parametrize("windowing", ["invar", "hf", "llama.cpp", "gptq", "lm-eval"])
@pytest.mark.parametrize(
    "names", [["one.txt"], ["rows.jsonl"], ["rows.jsonl", "one.txt"], ["one.txt", "other.txt"]]
)
def test_who_reads_less_plans_the_same(files, tokenizer, windowing, names):
    paths = [files / name for name in names]
    more = {"prefix_token": 10} if windowing == "lm-eval" else {}
    plans = [
        plan_text(
            tokenizer, documents, windows="first:7", windowing=windowing, max_length=64, **more
        )
        for documents in (
            read_documents(paths),
            *(read_documents(paths, first_bytes=n) for n in (1, LEAST, 99_999)),
        )
    ]
    for plan in plans[1:]:
        assert plan.data_id == plans[0].data_id and plan.window_ids == plans[0].window_ids
        np.testing.assert_array_equal(plan.n_bytes, plans[0].n_bytes)
        assert plan.provenance["text_digests"] == plans[0].provenance["text_digests"]
        assert (
            plan.provenance["text_read"]["bytes"] == plans[0].provenance["text_read"]["bytes"]
        )
    every = plan_text(
        tokenizer, read_documents(paths), windowing=windowing, max_length=64, **more
    )
    assert every.window_ids[:7] == plans[0].window_ids
    for window in plans[0].windows:  # the tokens are those of the whole text
        ids, all_ids = (
            plan.token_ids[window.document_id][window.start : window.stop]
            for plan in (plans[0], every)
        )
        np.testing.assert_array_equal(ids, all_ids)


def test_a_beginning_grows_until_it_holds_more_windows(files, tokenizer):
    plans = [
        plan_text(
            tokenizer,
            read_documents(files / "one.txt", first_bytes=1),
            windows=f"first:{n}",
            max_length=64,
        )
        for n in (7, 64, 700)
    ]
    read = [plan.provenance["text_read"]["bytes"] for plan in plans]
    assert read == [LEAST, LEAST, 16 * LEAST] and [len(plan.windows) for plan in plans] == [
        7,
        64,
        700,
    ]
    size = (files / "one.txt").stat().st_size
    assert plans[0].provenance["text_read"]["of"] == size
    with pytest.raises(ContractError, match="windows must not exceed what the text holds"):
        plan_text(
            tokenizer,
            read_documents(files / "one.txt", first_bytes=1),
            windows="first:900000",
            max_length=64,
        )


def test_a_text_that_is_short_is_whole_as_before(tokenizer):
    texts = Documents(texts=("the cat sat on the mat " * 9,))
    first, every = (
        plan_text(tokenizer, texts, windows=n, max_length=64) for n in ("first:3", None)
    )
    assert (
        "text_read" not in first.provenance
        and first.provenance["text_digests"] == every.provenance["text_digests"]
    )
    assert first.provenance["windows_planned"] == len(every.windows)


class Counted:
    "A file that notes how much was read of it."

    def __init__(self, file, counts):
        self.file, self.counts = file, counts

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def read(self, *size):
        data = self.file.read(*size)
        self.counts.append(len(data))
        return data

    def readline(self, *size):
        data = self.file.readline(*size)
        self.counts.append(len(data))
        return data


@pytest.mark.parametrize("name, most", [("one.txt", LEAST), ("rows.jsonl", 3 * LEAST)])
def test_no_more_is_read_than_is_needed(files, name, most, monkeypatch):
    counts, opened = [], text_page.open_file
    monkeypatch.setattr(text_page, "open_file", lambda *names: Counted(opened(*names), counts))
    for reader in ("read_file", "read_table"):
        monkeypatch.setattr(text_page, reader, lambda *_: pytest.fail("read whole"))
    read_documents(files / name, first_bytes=LEAST)
    assert LEAST <= sum(counts) <= most


def test_what_is_broken_further_on_is_not_looked_at(files, tmp_path):
    good = (files / "one.txt").read_bytes()
    (tmp_path / "t.txt").write_bytes(good + b"\xff\x00")
    assert (
        read_documents(tmp_path / "t.txt", first_bytes=LEAST).texts[0].encode() == good[:LEAST]
    )
    with pytest.raises(ContractError, match="plain UTF-8"):
        read_documents(tmp_path / "t.txt")
    (tmp_path / "t.txt").write_bytes(good[:LEAST] + b"\xff" + good)
    with pytest.raises(ContractError, match="plain UTF-8"):
        read_documents(tmp_path / "t.txt", first_bytes=LEAST + 9)
    at = next(n for n in range(LEAST, len(good)) if good[n] == 0xA9)  # inside a character
    assert (
        read_documents(files / "one.txt", first_bytes=at).texts[0].encode() == good[: at - 1]
    )


def test_the_shell_reads_the_beginning_and_says_so(files, tmp_path):
    text = files / "one.txt"
    more = ("--text", text, "--max-length", 64, "--windows")
    code, _, err = shell("score", BASE, *more, "first:7", "--out", tmp_path / "a.jsonl")
    assert code == 0 and "of the first 0.0041 MB of a text of" in err, err
    code, _, err = shell(
        "score", BASE, *more, "first:14", "--out", tmp_path / "a.jsonl", "--force"
    )
    assert code == 0 and "7 of 14 windows reused from the cache" in err, err
    losses = read_losses(tmp_path / "a.jsonl")
    assert losses.provenance["text_read"]["bytes"] == LEAST
    code, _, err = shell(
        "compare", tmp_path / "a.jsonl", BASE, "--text", text, "--out", tmp_path / "r", "-q"
    )
    assert code in (0, 1), err
    assert shell("verify", tmp_path / "r")[0] == 0


@pytest.mark.parametrize("quiet", [False, True])
def test_a_long_text_is_announced_and_its_progress_shown(files, tmp_path, monkeypatch, quiet):
    from functools import partial

    from invar_nb.shell import text_plans

    monkeypatch.setattr(text_plans, "LONG_TEXT", 10_000)
    monkeypatch.setattr(text_plans, "VERY_LONG_TEXT", 10_000)
    at_once = partial(text_plans.Progress, first=0.0, every=0.0)
    monkeypatch.setattr(text_plans, "Progress", at_once)
    monkeypatch.setattr(text_page, "LONGEST_UNCUT", 2**16)
    monkeypatch.setattr(text_page._pieces, "__defaults__", (2**14, 2**10))
    score = ("score", BASE, "--text", files / "one.txt", "--max-length", 64, "--windows", 7)
    code, _, err = shell(*score, "--out", tmp_path / "a.jsonl", *["-q"] * quiet)
    lines = [line for line in err.splitlines() if line.startswith(("text:", "score:"))]
    assert code == 0, err
    if quiet:
        assert lines == []
        return
    begun = next(i for i, line in enumerate(lines) if "text: tokenising" in line)
    assert lines[begun].endswith("; --windows first:7 reads only the beginning")
    scored = next(i for i, line in enumerate(lines) if "scoring 7 windows" in line)
    shares = [float(line.split()[1].rstrip("%,")) for line in lines[begun + 1 : scored]]
    assert len(shares) > 9 and shares == sorted(shares) and 80 < shares[-1] < 100
    few = tmp_path / "few.txt"
    few.write_text("a short text, of which nothing is said " * 9)
    code, _, err = shell(*score[:3], few, *score[4:-1], 1, "--out", tmp_path / "b.jsonl")
    assert code == 0 and "tokenising" not in err
