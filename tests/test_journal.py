"""The journal: what was put survives kills at any moment, and nothing goes on under another key."""
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from invar_nb.foundations import journal as page
from invar_nb.foundations.journal import Journal
from invar_nb.foundations.numbers import ContractError, canonical_json

KEY = {"data_id": "sha256:" + "0" * 64, "config": {"rope_theta": 10000.0, "layers": [1, 2]}, "dtype": "float32"}
value = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
                     lambda kids: st.lists(kids, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), kids, max_size=3), max_leaves=6)


def refused(path, key=KEY):
    with pytest.raises(ContractError) as caught: Journal(path, key)
    assert "\n" not in str(caught.value)
    return caught.value


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), value, max_size=5))
def test_values_come_back_exactly(tmp_path_factory, records):
    tmp_path = tmp_path_factory.mktemp("records")
    path = tmp_path / "j"
    with Journal(path, KEY) as journal:
        for name, item in records.items(): journal.put(name, item)
    with Journal(path, KEY) as journal:
        assert list(journal.items()) == list(records.items()) and len(journal) == len(records)
        assert [canonical_json(v) for _, v in journal.items()] == [canonical_json(v) for v in records.values()]  # -0.0 too
        journal.discard()
    assert not os.listdir(tmp_path)


def test_killed_at_random_moments(tmp_path):
    "Records that were flushed are there; the others are the first so many of the rest, in order."
    path, done = tmp_path / "j", 0
    code = ("import sys; sys.path.insert(0, sys.argv[2])\nfrom invar_nb.foundations.journal import Journal\n"
            "journal = Journal(sys.argv[1], {'a': 1})\nn = len(journal)\nprint('begun', flush=True)\n"
            "while True:\n    journal.put(f'w{n}', {'n': n, 'x': 1 / (n + 1)})\n    n += 1\n    if n % 7 == 0: journal.flush(); print(n, flush=True)\n")
    for moment in (0.0, 0.005, 0.02, 0.05, 0.1):
        child = subprocess.Popen([sys.executable, "-c", code, path, str(Path(page.__file__).parents[2])], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "begun\n"
        time.sleep(moment)
        child.kill()
        told = [int(line) for line in child.stdout.read().split("\n")[:-1]]
        child.wait()
        with Journal(path, {"a": 1}) as journal:
            records = dict(journal.items())
            assert len(records) >= max([done, *told])
            assert records == {f"w{i}": {"n": i, "x": 1 / (i + 1)} for i in range(len(records))}
            done = len(records)
    assert done > 0


def test_every_byte_of_a_torn_beginning(tmp_path):
    "A file cut off anywhere is refused with its cure, or it is empty and begun anew."
    path = tmp_path / "j"
    with Journal(path, KEY) as journal: journal.put("a", 0.1)
    whole = path.read_bytes()
    for n in range(1, len(whole), 97):
        path.write_bytes(whole[:n])
        error = refused(path)
        assert error.code == "damaged" and "elete" in error.cure
    path.write_bytes(b"")
    with Journal(path, KEY) as journal: assert len(journal) == 0


def test_a_damaged_record_is_noticed(tmp_path):
    path = tmp_path / "j"
    with Journal(path, KEY) as journal: journal.put("a", 0.25)
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75"))
    assert refused(path).code == "damaged"


def test_another_key_is_named(tmp_path):
    path = tmp_path / "j"
    Journal(path, KEY).close()
    error = refused(path, {**KEY, "config": {"rope_theta": 5e5, "layers": [1, 2]}})
    assert error.code == "key" and "config.rope_theta 10000.0 -> 500000.0" in str(error) and f"Delete {path}" in error.cure
    assert "batch '(absent)' -> 8" in str(refused(path, {**KEY, "batch": 8}))
    assert "config, data_id, dtype" in str(refused(path, {"config": 1, "data_id": 2, "dtype": 3}))
    assert "layers[1] 2 -> 3" in str(refused(path, {**KEY, "config": {"rope_theta": 10000.0, "layers": [1, 3]}}))
    Journal(path, dict(reversed(KEY.items()))).close()  # the order of fields is no difference


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "j"
    with Journal(path, KEY) as journal:
        journal.put("a", 1)
        journal.flush()
        assert refused(path).code == "locked"
    Journal(path, KEY).close()


def test_of_several_that_begin_at_once_one_goes_on(tmp_path):
    "SQLite lets a loser read for a moment, so that the winner's first commit can meet it: neither may give up for that."
    for turn in range(60):
        begin, end, held, refusals = threading.Barrier(5), threading.Barrier(5), [], []

        def open_at_once(path=tmp_path / f"{turn}.journal"):
            begin.wait()
            try: held.append(Journal(path, KEY))
            except ContractError as error: refusals.append(error.code)
            end.wait()
        threads = [threading.Thread(target=open_at_once) for _ in range(5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        for journal in held: journal.close()
        assert len(held) == 1 and refusals == ["locked"] * 4


def test_a_name_is_put_once(tmp_path):
    with Journal(tmp_path / "j", KEY) as journal:
        journal.put("a", {"x": (1, 2)})
        assert journal.get("a") == {"x": [1, 2]} and journal.get("b") is None and "a" in journal and "b" not in journal
        for name in ("a", 3):
            with pytest.raises(ContractError, match="new name"): journal.put(name, 1)
        for bad in (math.nan, {1: 2}, {"a": {1}}):
            with pytest.raises(ContractError): journal.put("c", bad)
        assert "c" not in journal
    with pytest.raises(ContractError, match="closed"): journal.put("d", 1)


def test_places_that_cannot_be_used(tmp_path):
    for path, part in ((tmp_path / "no" / "j", "folder must exist"), (tmp_path, "must name a file")):
        with pytest.raises(ContractError, match=part): Journal(path, KEY)
    link = sqlite3.connect(tmp_path / "other.db")
    link.execute("CREATE TABLE key (format TEXT, key TEXT)")
    link.commit()
    link.close()
    assert refused(tmp_path / "other.db").code == "damaged"
    for text in ("hello", "hello, this is no database" * 50):
        (tmp_path / "text").write_text(text)
        assert refused(tmp_path / "text").code == "damaged" and (tmp_path / "text").read_text() == text


def test_a_thousand_records_do_not_wait_a_thousand_times(tmp_path, monkeypatch):
    commits, flush = [], Journal.flush
    monkeypatch.setattr(Journal, "flush", lambda self: (commits.append(len(self._waiting)), flush(self))[1])
    with Journal(tmp_path / "j", KEY) as journal:
        for i in range(1000): journal.put(str(i), i)
    assert len(commits) < 100 and sum(commits) == 1000
