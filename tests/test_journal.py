"""The journal: what was put survives kills at any moment, and nothing goes on under another key."""
import math
import os
import re
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
from invar_nb.foundations.numbers import ContractError, canonical_json, digest

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


PUTS = ("import os, signal, sys, resource\nfrom invar_nb.foundations.journal import Journal\n"
        "journal = Journal(sys.argv[1], {'a': 1})\nn = len(journal)\nprint('begun', flush=True)\n"
        "def put(n): journal.put(f'w{n}', {'n': n, 'x': 1 / (n + 1)}); print(n + 1, flush=True)\n")


def putting(path, code):
    "A process that puts records as `code` says, printing their number after each."
    root = str(Path(page.__file__).parents[2])
    return subprocess.Popen([sys.executable, "-c", PUTS + code, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})


def recorded(path):
    "Records of a journal, which are the first so many."
    with Journal(path, {"a": 1}) as journal: records = dict(journal.items())
    assert records == {f"w{i}": {"n": i, "x": 1 / (i + 1)} for i in range(len(records))}
    return len(records)


def test_killed_at_random_moments(tmp_path):
    "What was put is there, and at most one more."
    path, done = tmp_path / "j", 0
    for moment in (0.0, 0.005, 0.02, 0.05, 0.1):
        child = putting(path, "while True: put(n); n += 1; n % 7 or journal.flush()")
        assert child.stdout.readline() == "begun\n"
        time.sleep(moment)
        child.kill()
        seen = [int(line) for line in child.communicate()[0].split("\n")[:-1]]
        assert 0 <= recorded(path) - max([done, *seen]) <= 1
        done = recorded(path)
    assert done > 0


def test_every_torn_end_of_the_log_gives_the_first_records(tmp_path):
    "After a power cut the log ends anywhere, or holds what was never written."
    path, copy = tmp_path / "j", tmp_path / "copy"
    child = putting(path, "for n in range(30): n == 12 and journal.flush(); put(n)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert child.communicate()[0].endswith("30\n")
    main, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    found = set()
    for n in range(0, len(log), 4519):
        for torn in (log[:n], log[:n] + b"\0" * (len(log) - n), log[:n] + bytes([log[n] ^ 1]) + log[n + 1:]):
            copy.write_bytes(main)
            Path(f"{copy}-wal").write_bytes(torn)
            found.add(recorded(copy))
            for end in ("", "-wal"): Path(f"{copy}{end}").unlink(missing_ok=True)
    assert min(found) == 12 and len(found) > 9 and recorded(path) == 30


def test_a_full_disk_loses_nothing_that_was_put(tmp_path):
    path = tmp_path / "j"
    child = putting(path, "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\nwhile True: put(n); n += 1")
    out, error = child.communicate()
    assert child.returncode == 1 and "journal cannot be written" in error.splitlines()[-1] and str(path) in error.splitlines()[-1]
    put = int(out.split()[-1])
    assert put > 5 and recorded(path) == put
    assert os.listdir(tmp_path) == ["j"]


def test_a_deleted_journal_is_not_brought_back_by_its_log(tmp_path):
    path = tmp_path / "j"
    putting(path, "put(0); os.kill(os.getpid(), signal.SIGKILL)").communicate()
    assert os.path.getsize(f"{path}-wal")
    path.unlink()
    assert recorded(path) == 0


def test_no_clock_decides(tmp_path, monkeypatch):
    "A clock set back by a day, or forward by a year, changes nothing."
    for jump in (-86_400, 3e7):
        monkeypatch.setattr(time, "time", lambda jump=jump: jump)
        with Journal(tmp_path / "j", {"a": 1}) as journal: journal.put(f"w{len(journal)}", {"n": len(journal), "x": 1 / (len(journal) + 1)})
    assert recorded(tmp_path / "j") == 2
    package = Path(page.__file__).parents[1]
    asked = [p.relative_to(package).as_posix() for p in package.rglob("*.py") if re.search(r"time\.time\(|datetime\.now|st_mtime", p.read_text())]
    assert sorted(asked) == ["models/checkpoint.py",  # a file that changed within the last second, or in the future, is read again
                             "models/servers.py",  # a server's Retry-After may be a date; more than five minutes are refused
                             "report/report.py"]  # the environment says when


def test_a_journal_is_deleted_with_the_result_it_was_made_for(tmp_path):
    out = tmp_path / "x.jsonl"
    for made, there, left in ((b"1", b"1", 0), (b"1", b"2", 1), (b"1", None, 1)):
        path = tmp_path / ".x.jsonl.journal"
        with Journal(path, KEY) as journal: journal.put("a", 1)

        def killed(made=made, there=there):
            if there is not None: out.write_bytes(there)
            raise KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt): page.finish([path], digest(made), killed)
        with Journal(path, KEY) as journal: assert journal.get("a") == 1  # another run goes on with it
        page.clear_finished(out)
        assert len(list(tmp_path.glob(".*"))) == left
        page.discard_journals([path])
        out.unlink(missing_ok=True)
    page.finish([path], digest(b"1"), lambda: out.write_bytes(b"1"))
    assert os.listdir(tmp_path) == ["x.jsonl"]


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
    for turn in range(25):
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
    for path, part in ((tmp_path / "no" / "j", "folder must exist"), (tmp_path, "must name a file"), (Path("/proc/j"), "can be written")):
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
    waits, flush = [], Journal.flush
    monkeypatch.setattr(Journal, "flush", lambda self: (waits.append(len(self)), flush(self))[1])
    with Journal(tmp_path / "j", KEY) as journal:
        for i in range(1000): journal.put(str(i), i)
    assert len(waits) < 50
