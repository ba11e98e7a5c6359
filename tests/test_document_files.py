"""Documents: the spelling, the difference walk against a flattening one, and folders under kills, races and foreign files."""
import copy
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from invar_nb.foundations import document
from invar_nb.foundations.document import (as_file, canonical_text, content_digest, file_digest, first_difference,
                                           read_canonical, write_bytes, write_folder)
from invar_nb.foundations.numbers import ContractError

OLD, NEW = ({"report.json": text, "losses.jsonl": text} for text in (b"old", b"new" * 99))
leaf = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.text("ab", max_size=2)
tree = st.recursive(leaf, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), kids, max_size=3), max_leaves=12)


def content(folder): return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def leaves(value, path=""):
    "Every leaf with its path: a flattening that shares nothing with the walk."
    if isinstance(value, dict) and value: return [x for k in value for x in leaves(value[k], f"{path}.{k}")]
    if isinstance(value, list) and value: return [x for i, v in enumerate(value) for x in leaves(v, f"{path}[{i}]")]
    return [(path, type(value), value)]


@settings(max_examples=200, deadline=None)
@given(tree, tree)
def test_two_trees_differ_where_their_leaves_do(a, b):
    same = sorted(map(repr, leaves(a))) == sorted(map(repr, leaves(b)))
    assert (first_difference(a, b, relative=0, absolute=0) is None) == same or "-0.0" in repr((a, b))
    assert first_difference(a, copy.deepcopy(a)) is None


def test_difference_names_the_place():
    doc = {"a": [{"x": 1.0}, {"x": 2.0}], "z": True}
    assert first_difference(doc, {**doc, "a": [{"x": 1.0}, {"x": 2.5}]}) == ("a[1].x", 2.0, 2.5)
    assert first_difference(doc, {**doc, "z": 1}) == ("z", True, 1)
    assert first_difference({"digest": 1, "x": 2}, {"digest": 3, "x": 4}, last=("digest",))[0] == "x"
    assert first_difference({"a": [1]}, {"a": [1, 2]})[0] == "a"
    assert first_difference(1.0, 1.0 + 1e-10) is None and first_difference(1.0, 1.0 + 1e-10, relative=0, absolute=0)


def test_only_the_canonical_spelling_is_read():
    doc = {"b": 1.5, "a": "é", "environment": {"host": "x"}, "digest": "y"}
    text = canonical_text(doc)
    assert read_canonical(text.encode(), where="verify") == doc
    assert content_digest(doc) == content_digest({"a": "é", "b": 1.5})
    for bad, part in ((json.dumps(doc, ensure_ascii=False), "line 1"), (text.replace("1.5", "1.50"), "line 3"), ("[]\n", "one JSON object"), (text + "\n", "line 10")):
        with pytest.raises(ContractError, match=part): read_canonical(bad.encode(), where="verify")


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, part in ((tmp_path / "no", "must exist"), (tmp_path, "a folder"), (tmp_path / "pipe", "a pipe"), ("a" * 5000, "too long"), ("a\0b", "null byte"), (3, "name of a file")):
        with pytest.raises(ContractError, match=part): as_file(path, "read")


def test_one_file_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.bin"
    (tmp_path / ".x.bin.tmp").write_bytes(b"left by a killed writer")
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert content(tmp_path) == {"x.bin": b"two"}
    assert file_digest(path) == "sha256:" + subprocess.run(["sha256sum", path], capture_output=True, text=True).stdout.split()[0]
    with pytest.raises(ContractError, match="too long"): write_bytes(tmp_path / ("n" * 254), b"")
    with pytest.raises(ContractError, match="folder must exist"): write_bytes(tmp_path / "no" / "x", b"")
    with open(tmp_path / ".x.bin.tmp", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ContractError, match="one process at a time") as caught: write_bytes(path, b"three")
    assert caught.value.code == "locked" and path.read_bytes() == b"two"


CHILD = """
import os, signal, sys
sys.path.insert(0, {root!r})
from invar_nb.foundations import document
new = {{"report.json": b"new" * 99, "losses.jsonl": b"new" * 99}}
if {plain}: document._exchange = lambda a, b: False
for k in range(200):
    if os.fork() == 0:
        seen = [0]
        def look(event, args):
            if event.startswith(("open", "os.", "shutil", "ctypes")):
                seen[0] += 1
                if seen[0] == k + 1: os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(look)
        try: document.write_folder(sys.argv[1], new, force=True)
        finally: os._exit(0)
    killed = os.WIFSIGNALED(os.wait()[1])
    print(k, killed, flush=True)
    if input() == "stop" or not killed: break
"""


def kills(folder, plain):
    "What stands in the folder after a kill at each operation of a replacement; the old report is restored in between."
    code = CHILD.format(root=str(Path(document.__file__).parents[2]), plain=plain)
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while line := child.stdout.readline():
        if line.endswith("False\n"): break
        yield {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        write_folder(folder, OLD, force=True)
        assert os.listdir(folder.parent) == [folder.name] and content(folder) == OLD
        child.stdin.write("on\n")
        child.stdin.flush()
    child.stdin.write("stop\n")
    child.stdin.close()
    child.wait()


def test_a_killed_writer_leaves_the_old_report_or_the_new_one(tmp_path):
    folder = tmp_path / "result"
    write_folder(folder, OLD)
    states = list(kills(folder, plain=False))
    assert all(state in (OLD, NEW) for state in states)
    assert states.count(OLD) > 10 and states.count(NEW) >= 2


def test_without_the_exchange_nothing_is_lost(tmp_path):
    "One by one: whatever is killed, every file of the old or of the new report is somewhere under the folder's name."
    folder = tmp_path / "result"
    write_folder(folder, OLD)
    states = list(kills(folder, plain=True))
    for state in states:
        new = all(state.get(f".incoming/{name}", state.get(name)) == data for name, data in NEW.items()) and (".incoming/complete.json" in state or NEW.items() <= state.items())
        assert new or OLD.items() <= state.items(), sorted(state)
    assert sum(NEW.items() <= state.items() for state in states) >= 1 and len(states) > 20


def test_what_a_killed_writer_left_is_finished_first(tmp_path):
    folder = tmp_path / "result"
    write_folder(folder, {**OLD, "extra.md": b"old"})
    document._fill(folder / ".incoming", NEW)
    write_bytes(folder / ".incoming" / "complete.json", b'["extra.md"]')
    with pytest.raises(ContractError, match="never overwritten"): write_folder(folder, OLD)
    assert content(folder) == NEW


def test_only_reports_are_replaced(tmp_path):
    folder = tmp_path / "a" / "result"
    write_folder(folder, OLD)
    with pytest.raises(ContractError, match="never overwritten unasked") as caught: write_folder(folder, NEW)
    assert caught.value.code == "exists"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ContractError, match="notes.txt"): write_folder(folder, NEW, force=True)
    assert content(folder) == {**OLD, "notes.txt": b"mine"}
    write_folder(folder, NEW, force=True, replaces=lambda there: os.listdir(there))
    assert content(folder) == NEW and os.listdir(tmp_path / "a") == ["result"]
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", NEW)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ContractError, match="goes into a folder"): write_folder(tmp_path / "file", NEW, force=True)
    (tmp_path / "empty" / "sub").mkdir()
    with pytest.raises(ContractError, match="sub"): write_folder(tmp_path / "empty", NEW, force=True, replaces=["sub"])
    for name in ("a/b", "..", ".incoming"):
        with pytest.raises(ContractError, match="plain names"): write_folder(tmp_path / "x", {name: b""})


def test_the_current_folder_and_links(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_folder(tmp_path / "link", OLD)
    assert (tmp_path / "link").is_symlink() and content(tmp_path / "real") == OLD
    monkeypatch.chdir(tmp_path / "real")
    write_folder(".", NEW, force=True)
    assert content(".") == NEW and sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_of_two_writers_one_wins(tmp_path):
    "Many processes at once, none forced: exactly one report is there, whole, and the others say why."
    code = ("import sys; sys.path.insert(0, sys.argv[3])\nfrom invar_nb.foundations.document import write_folder\n"
            "from invar_nb.foundations.numbers import ContractError\nsys.stdin.readline()\n"
            "try: write_folder(sys.argv[1], {'a': sys.argv[2].encode() * 10**5, 'b': sys.argv[2].encode()})\n"
            "except ContractError as error: sys.exit(3)")
    root, folder = str(Path(document.__file__).parents[2]), tmp_path / "result"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(folder), str(i), root], stdin=subprocess.PIPE) for i in range(6)]
    for w in writers: w.stdin.write(b"go\n"); w.stdin.flush()
    codes = [w.wait(60) for w in writers]
    for w in writers: w.stdin.close()
    winner = str(codes.index(0)).encode()
    assert sorted(codes) == [0, 3, 3, 3, 3, 3]
    assert content(folder) == {"a": winner * 10**5, "b": winner} and os.listdir(tmp_path) == ["result"]
