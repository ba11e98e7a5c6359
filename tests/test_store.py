"""The store and the journal, beyond what their pages show: trees and values from hypothesis, races, torn files, places that cannot be used."""

import contextlib
import copy
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.arms.arm import Line
from invar_nb.foundations import journal as page
from invar_nb.foundations import store
from invar_nb.foundations.journal import Journal, clear_finished, discard_journals
from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import (
    as_file,
    canonical_json,
    canonical_text,
    content_digest,
    file_digest,
    first_difference,
    read_document,
    write_bytes,
    write_folder,
)

OLD, NEW = ({"report.json": text, "losses.jsonl": text} for text in (b"old", b"new" * 99))
KEY = {
    "data_id": "sha256:" + "0" * 64,
    "config": {"rope_theta": 10000.0, "layers": [1, 2]},
    "dtype": "float32",
}
ROOT = str(Path(store.__file__).parents[2])
text = st.text(st.characters(codec="utf-8"))
leaf = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-2, 2)
    | st.text("ab", max_size=2)
)
tree = st.recursive(
    leaf,
    lambda kids: (
        st.lists(kids, max_size=3)
        | st.dictionaries(st.text("xyz", max_size=2), kids, max_size=3)
    ),
    max_leaves=12,
)
value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda kids: st.lists(kids, max_size=3) | st.dictionaries(text, kids, max_size=3),
    max_leaves=6,
)


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def refused(act, *args, **options):
    with pytest.raises(ContractError) as caught:
        act(*args, **options)
    assert "\n" not in str(caught.value)
    return caught.value


# --- documents ------------------------------------------------------------------------------------------------------------------------
def leaves(value, path=""):
    "Every leaf with its path: a flattening that shares nothing with the walk."
    if isinstance(value, dict) and value:
        return [x for k in value for x in leaves(value[k], f"{path}.{k}")]
    if isinstance(value, list) and value:
        return [x for i, v in enumerate(value) for x in leaves(v, f"{path}[{i}]")]
    return [(path, type(value), value)]


@settings(max_examples=200, deadline=None)
@given(tree, tree)
def test_two_trees_differ_where_their_leaves_do(a, b):
    same = sorted(map(repr, leaves(a))) == sorted(map(repr, leaves(b)))
    assert (first_difference(a, b, close=0) is None) == same or "-0.0" in repr((a, b))
    assert first_difference(a, copy.deepcopy(a)) is None


def test_how_a_document_is_laid_out_is_no_content():
    doc = {"b": 1.5, "a": "é", "environment": {"host": "x"}, "digest": "y"}
    for text in (
        canonical_text(doc),
        canonical_text(doc).replace("\n", "\r\n"),
        json.dumps(doc),
        json.dumps(dict(reversed(doc.items())), indent=4) + "\n\n",
    ):
        read = read_document(text.encode(), where="verify")
        assert read == doc and content_digest(read) == content_digest({"a": "é", "b": 1.5})
    for bad, part in (
        ("[]\n", "one JSON object"),
        ('{"a": 1, "a": 1}', "keys must not repeat"),
        ('{"a": NaN}', "numbers must be finite"),
        ('{"a": 1} x', "must be UTF-8 JSON"),
    ):
        assert part in str(refused(read_document, bad.encode(), where="verify"))


# --- files and folders ----------------------------------------------------------------------------------------------------------------
def test_places_that_are_refused(tmp_path):
    "(call, code), one line each; nothing is left behind."
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    write_folder(tmp_path / "report", {**OLD, "sub": b""})
    os.unlink(tmp_path / "report/sub")
    (tmp_path / "report/sub").mkdir()
    before = sorted(os.listdir(tmp_path))
    for act, code in (
        *[
            (lambda bad=bad: as_file(bad, "read"), "contract")
            for bad in (tmp_path / "no", tmp_path, tmp_path / "pipe", "a" * 5000, "a\0b", 3)
        ],
        (lambda: write_bytes(tmp_path / ("n" * 254), b""), "contract"),
        (lambda: write_bytes(tmp_path / "no" / "x", b""), "contract"),
        (lambda: write_bytes(tmp_path, b""), "contract"),
        (lambda: write_bytes(tmp_path / "file", b"y", force=False), "exists"),
        (lambda: write_folder(tmp_path / "report", NEW), "exists"),
        (
            lambda: write_folder(tmp_path / "report", NEW, force=True, replaces=["sub"]),
            "exists",
        ),
        (lambda: write_folder(tmp_path / "file", NEW, force=True), "contract"),
        (lambda: write_folder("/proc", NEW, force=True), "contract"),
        *[
            (lambda name=name: write_folder(tmp_path / "x", {name: b""}), "contract")
            for name in ("a/b", "..", ".")
        ],
        *[
            (lambda path=path: Journal(path, KEY), "contract")
            for path in (tmp_path / "no" / "j", tmp_path)
        ],
    ):
        assert refused(act).code == code
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)  # root may read everything
        assert "file (Permission denied)" in str(refused(as_file, tmp_path / "file", "read"))
    assert sorted(os.listdir(tmp_path)) == before


def test_what_stands_beside_is_not_followed(tmp_path):
    "A link under a hidden name of ours, or a file that a killed writer left: neither is written through."
    (tmp_path / "victim").write_bytes(b"mine")
    for name in ("x.bin", "report"):
        (tmp_path / f".{name}.new").symlink_to(tmp_path / "victim")
    write_bytes(tmp_path / "x.bin", b"one")
    write_bytes(tmp_path / "x.bin", b"two")
    write_folder(tmp_path / "report", NEW)
    assert (tmp_path / "victim").read_bytes() == b"mine" and sorted(os.listdir(tmp_path)) == [
        "report",
        "victim",
        "x.bin",
    ]
    assert (
        file_digest(tmp_path / "x.bin")
        == "sha256:"
        + subprocess.run(
            ["sha256sum", tmp_path / "x.bin"], capture_output=True, text=True
        ).stdout.split()[0]
    )


def test_links_to_folders_and_empty_folders(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_folder(tmp_path / "link", OLD)
    write_folder(tmp_path / "link", NEW, force=True)
    assert (
        (tmp_path / "link").is_symlink()
        and content(tmp_path / "real") == NEW
        and sorted(os.listdir(tmp_path)) == ["link", "real"]
    )


def test_of_two_writers_one_wins(tmp_path):
    "Many processes at once, none forced: exactly one report is there, whole, and the others say why."
    code = (
        "import sys; sys.path.insert(0, sys.argv[3])\nfrom invar_nb.foundations.store import write_folder\n"
        "from invar_nb.foundations.refuse import ContractError\nsys.stdin.readline()\n"
        "try: write_folder(sys.argv[1], {'a': sys.argv[2].encode() * 10**5, 'b': sys.argv[2].encode()})\n"
        "except ContractError as error: sys.exit(3)"
    )
    folder = tmp_path / "result"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(i), ROOT], stdin=subprocess.PIPE
        )
        for i in range(6)
    ]
    for w in writers:
        w.stdin.write(b"go\n")
        w.stdin.flush()
    codes = [w.wait(60) for w in writers]
    for w in writers:
        w.stdin.close()
    winner = str(codes.index(0)).encode()
    assert sorted(codes) == [0, 3, 3, 3, 3, 3]
    assert content(folder) == {"a": winner * 10**5, "b": winner} and os.listdir(tmp_path) == [
        "result"
    ]


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    "Another program makes it while the report is written: refused at the last moment."
    folder, written = tmp_path / "result", store._write_new
    monkeypatch.setattr(
        store,
        "_write_new",
        lambda path, data: (
            folder.mkdir(exist_ok=True),
            (folder / "theirs").touch(),
            written(path, data),
        ),
    )
    with pytest.raises(OSError):
        write_folder(folder, NEW)
    assert content(folder) == {"theirs": b""} and os.listdir(tmp_path) == ["result"]


# --- the journal ----------------------------------------------------------------------------------------------------------------------
@settings(max_examples=30, deadline=None)
@given(st.dictionaries(text.filter(len), value, max_size=5))
def test_values_come_back_exactly(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("records") / "j"
    with Journal(path, KEY) as journal:
        for name, item in records.items():
            journal.put(name, item)
    with Journal(
        path, dict(reversed(KEY.items()))
    ) as journal:  # the order of fields is no difference
        assert list(journal.items()) == list(records.items()) and len(journal) == len(records)
        assert [canonical_json(v) for _, v in journal.items()] == [
            canonical_json(v) for v in records.values()
        ]  # -0.0 too
    discard_journals([path])
    assert not os.listdir(path.parent)


def test_killed_at_random_moments(tmp_path):
    "What was put is there, and at most one more."
    code = (
        "import sys\nfrom invar_nb.foundations.journal import Journal\njournal = Journal(sys.argv[1], {'a': 1})\nn = len(journal)\nprint('begun', flush=True)\n"
        "while True: journal.put(f'w{n}', {'n': n, 'x': 1 / (n + 1)}); print(n + 1, flush=True); n += 1"
    )
    path, done = tmp_path / "j", 0
    for moment in (0.0, 0.01, 0.05, 0.1, 0.2):
        child = subprocess.Popen(
            [sys.executable, "-c", code, path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ROOT},
        )
        assert child.stdout.readline() == "begun\n"
        time.sleep(moment)
        child.kill()
        seen = [int(line) for line in child.communicate()[0].split("\n")[:-1]]
        with Journal(path, {"a": 1}) as journal:
            records = dict(journal.items())
        assert (
            records == {f"w{i}": {"n": i, "x": 1 / (i + 1)} for i in range(len(records))}
            and 0 <= len(records) - max([done, *seen]) <= 1
        )
        done = len(records)
    assert done > 0 and {*os.listdir(tmp_path)} <= {
        "j",
        "j-journal",
    }  # of a transaction that wrote nothing yet


def test_every_byte_of_a_torn_beginning(tmp_path):
    "A file cut off anywhere is refused with its cure, or it is empty and begun anew."
    path = tmp_path / "j"
    with Journal(path, KEY) as journal:
        journal.put("a", 0.1)
    whole = path.read_bytes()
    for n in range(1, len(whole), 97):
        path.write_bytes(whole[:n])
        error = refused(Journal, path, KEY)
        assert error.code == "damaged" and "elete" in error.cure
    path.write_bytes(b"")
    with Journal(path, KEY) as journal:
        assert len(journal) == 0
    path.unlink()
    link = sqlite3.connect(path)
    link.execute("CREATE TABLE key (format TEXT, key TEXT)")
    link.commit()
    link.close()
    assert refused(Journal, path, KEY).code == "damaged"  # a database of somebody else


def test_another_key_is_named(tmp_path):
    path = tmp_path / "j"
    Journal(path, KEY).close()
    for key, part in (
        (
            {**KEY, "config": {"rope_theta": 5e5, "layers": [1, 2]}},
            "config.rope_theta 10000.0 -> 500000.0",
        ),
        ({**KEY, "batch": 8}, "batch (absent) -> 8"),
        ({**KEY, "data_id": "sha256:1"}, "got another text, or other windows of it"),
        ({"config": 1, "data_id": 2, "dtype": 3}, "config, data_id, dtype"),
        ({**KEY, "config": {"rope_theta": 10000.0, "layers": [1, 3]}}, "layers[1] 2 -> 3"),
    ):
        error = refused(Journal, path, key)
        assert error.code == "key" and part in str(error) and f"Delete {path}" in error.cure


def test_of_several_that_begin_at_once_one_goes_on(tmp_path):
    def open_at_once(path, begin, held, refusals):
        begin.wait()
        try:
            held.append(Journal(path, KEY))
        except ContractError as error:
            refusals.append(error.code)

    turns = [
        (tmp_path / f"{turn}.journal", threading.Barrier(5), [], []) for turn in range(10)
    ]
    threads = [
        threading.Thread(target=open_at_once, args=turn) for turn in turns for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, _, held, refusals in turns:
        assert len(held) == 1 and refusals == ["locked"] * 4
        held[0].close()


def test_a_lock_that_outlives_its_holder_by_a_moment_is_waited_for(tmp_path):
    "A process killed while it starts another leaves its lock to it until that one runs."
    code = """
import fcntl, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(flush=True)
    time.sleep(float(sys.argv[2]))"""
    for seconds in ("0.2", "30"):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(store.lock_file(tmp_path / seconds)), seconds],
            stdout=subprocess.PIPE,
        ) as p:
            assert p.stdout.readline()
            if seconds == "30":
                assert refused(Journal, tmp_path / seconds, KEY).code == "locked"
            else:
                Journal(tmp_path / seconds, KEY).close()
            p.kill()


def test_what_is_put(tmp_path):
    with Journal(tmp_path / "j", KEY) as journal:
        journal.put("a", {"x": (1, 2)})
        assert (
            journal.get("a") == {"x": [1, 2]}
            and journal.get("b") is None
            and "a" in journal
            and "b" not in journal
        )
        for name, bad in (("a", 1), (3, 1), ("c", math.nan), ("c", {1: 2}), ("c", {"a": {1}})):
            refused(journal.put, name, bad)
        assert "c" not in journal
    refused(journal.put, "d", 1)  # closed


def test_no_clock_decides(tmp_path, monkeypatch):
    "A clock set back by a day, or forward by a year, changes nothing."
    for jump in (-86_400, 3e7):
        monkeypatch.setattr(time, "time", lambda jump=jump: jump)
        with Journal(tmp_path / "j", KEY) as journal:
            journal.put(f"w{len(journal)}", 1)
    with Journal(tmp_path / "j", KEY) as journal:
        assert len(journal) == 2
    package = Path(page.__file__).parents[1]
    clocks = {
        p.relative_to(package).as_posix()
        for p in package.rglob("*.py")
        if re.search(r"time\.time\(|datetime\.now|st_mtime", p.read_text())
    }
    assert (
        clocks
        <= {
            "models/load.py",  # a file that changed within the last second, or in the future, is read again
            "models/servers.py",  # a server's Retry-After may be a date; more than five minutes are refused
            "files/cache.py",  # which file was used least recently: the first to go
            "foundations/store.py",  # `now`: when a report was made, and whether the last day of an accepted loss has passed
            "report/report.py",
        }
    )  # what a run cost


def test_a_journal_that_a_kill_left_without_a_table_stops_nothing(tmp_path):
    "Killed after the file was made and before the table: a command that replaces a result goes on."
    (tmp_path / "x.jsonl").write_text("{}\n")
    for content in ("", "PRAGMA user_version = 1"):
        place = tmp_path / ".x.jsonl.journal"
        place.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(place)) as link:
            link.executescript(content)
        place.touch()
        clear_finished(tmp_path / "x.jsonl")
        with Journal(place, KEY) as journal:
            journal.put("a", 1)


@pytest.mark.parametrize("then", ["finish", "clear_finished"])
def test_a_journal_that_another_process_ends_meanwhile_is_no_damaged_one(
    tmp_path, monkeypatch, then
):
    "Of two that scored the same, the second said 'no such table: work' and asked for a file to be deleted that was not there."
    out, place = tmp_path / "x.jsonl", tmp_path / ".x.jsonl.journal"
    out.write_text("{}\n")
    Journal(place, KEY).close()
    holds, saved = page.locked, []

    @contextlib.contextmanager
    def taken_first(path, where):
        place.unlink(missing_ok=True)
        with holds(path, where):
            yield

    monkeypatch.setattr(page, "locked", taken_first)
    if then == "finish":
        page.finish([place], "sha256:0", lambda: saved.append(1))
    else:
        clear_finished(out)
    assert [*tmp_path.iterdir()] == [out] and saved == [1] * (then == "finish")


class Facts(msgspec.Struct):
    version: Literal[2] = 2
    schema: Annotated[str, msgspec.Meta(pattern=r"^losses/\d+$")] = "losses/1"
    name: Line = ""
    state: Literal["right", "wrong"] | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    rows: list[Annotated[str, msgspec.Meta(min_length=1)]] = []
    inner: list["Facts"] = []
    by_name: dict[str, Literal["a"]] = {}
    two: tuple[float, int] = (1.0, 2)


@pytest.mark.parametrize(
    "known, got",
    [
        ({"version": 3}, "3 in place of 2 at version"),
        (
            {"schema": "losses/x"},
            r"'losses/x' in place of a text that matches '^losses/\\d+$' at schema",
        ),
        ({"schema": ""}, "'' in place of a text that matches"),
        (
            {"name": "a\nb"},
            "'a\\nb', a text of several lines or with control characters at name",
        ),
        ({"state": "maybe"}, "'maybe' in place of 'right' or 'wrong' at state"),
        ({"count": 0}, "0 in place of int >= 1 at count"),
        ({"count": 10}, "10 in place of int <= 9 at count"),
        ({"rows": ["a", ""]}, "'' in place of str of length >= 1 at rows[1]"),
        ({"inner": [{}, {"version": 7}]}, "7 in place of 2 at inner[1].version"),
        (
            {"inner": [{"inner": [{"state": "x"}]}]},
            "'x' in place of 'right' or 'wrong' at inner[0].inner[0].state",
        ),
        ({"by_name": {"k": "b"}}, "'b' in place of 'a' at by_name[...]"),
        ({"two": [1.0]}, "a length of 1 in place of array of length 2 at two"),
        ({"count": "1"}, "str in place of int at count"),
        ({"schema": "x" * 999}, "xxx' in place of a text that matches"),
    ],
    ids=str,
)
def test_a_value_that_is_not_allowed_is_shown_with_what_is(known, got):
    "Whether plain or spelled in JSON; the reason is never another one."
    for value in (known, json.dumps(known).encode()):
        with pytest.raises(ContractError) as caught:
            store.as_shape(value, Facts, "read", "it must be so", "Write it again")
        assert got in str(caught.value) and ("several lines" in got) == (
            "several lines" in str(caught.value)
        ), caught.value


def test_a_value_without_a_field_is_shown_too():
    for value, shape, got in (
        (
            "b",
            Annotated[str, msgspec.Meta(pattern="^a$")],
            "'b' in place of a text that matches '^a$'",
        ),
        (3, Literal[1, 2], "3 in place of 1 or 2"),
        (5, str, "int in place of str: 5"),
    ):
        with pytest.raises(ContractError) as caught:
            store.as_shape(value, shape, "read", "it must be so", "Write it again")
        assert f"got {got}. Write" in str(caught.value), caught.value
