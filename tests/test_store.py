"""Can a loss file be trusted? Round trips, damage at every byte, kills at every moment."""
import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from invar_nb.evidence.windows import WindowLosses
from invar_nb.foundations.numbers import ContractError
from invar_nb.machine import store
from invar_nb.machine.store import Ledger, file_digest, losses_digest, parse_losses, read_losses, write_bytes, write_losses

try:
    import pyarrow
    import pyarrow.parquet as parquet
    FORMATS = [".jsonl", ".parquet"]
except ImportError:
    pyarrow, FORMATS = None, [".jsonl"]
needs_arrow = pytest.mark.skipif(pyarrow is None, reason="needs pyarrow")


def example(n=5, **change):
    values = dict(window_ids=[f"0:{i:06d}" for i in range(n)], tokens=list(range(1, n + 1)), log_loss=[0.1 + i / 3 for i in range(n)],
                  model="tiny", data_id="sha256:d", n_bytes=list(range(2, n + 2)), document_ids=["0"] * n, split=["final"] * n,
                  provenance={"dtype": "float32", "nested": {"list": [1, 2.5, None, "東京"]}})
    values.update(change)
    return WindowLosses.from_arrays(values.pop("window_ids"), values.pop("tokens"), values.pop("log_loss"), **values)


def same(a, b):
    assert a.log_loss.tobytes() == b.log_loss.tobytes() and a.tokens.tobytes() == b.tokens.tobytes()
    assert (a.window_ids, a.model, a.data_id, a.document_ids, a.split) == (b.window_ids, b.model, b.data_id, b.document_ids, b.split)
    assert (a.n_bytes is None) == (b.n_bytes is None) and (a.n_bytes is None or a.n_bytes.tobytes() == b.n_bytes.tobytes())
    assert json.dumps(a.provenance, sort_keys=True) == json.dumps(b.provenance, sort_keys=True)


def encoded(losses, suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    write_losses(losses, path)
    return path.read_bytes()


# --- round trip -----------------------------------------------------------------------------------------------------------------------
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
plain = st.recursive(st.none() | st.booleans() | st.integers(-2**60, 2**60) | st.floats(allow_nan=False, allow_infinity=False) | names,
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6)


@st.composite
def any_losses(draw):
    ids = draw(st.lists(names, unique=True, min_size=1, max_size=6))
    n = len(ids)
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))
    maybe = lambda values: draw(st.none() | st.lists(values, min_size=n, max_size=n))
    return WindowLosses.from_arrays(ids, column(st.integers(1, 2**40)), column(st.floats(0, allow_infinity=False, allow_nan=False)), model=draw(names),
                                    data_id=draw(names), document_ids=maybe(names), n_bytes=maybe(st.integers(1, 2**40)),
                                    split=maybe(st.sampled_from(["preview", "final"])), provenance=draw(st.dictionaries(names, plain, max_size=4)))


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(losses=any_losses())
def test_round_trip_is_exact(losses, suffix, tmp_path):
    data = encoded(losses, suffix, tmp_path)
    back = parse_losses(data, name="x" + suffix)
    same(losses, back)
    assert losses_digest(back) == losses_digest(losses)
    assert encoded(back, suffix, tmp_path) == data


@pytest.mark.parametrize("suffix", FORMATS)
def test_bytes_are_deterministic_over_processes(suffix, tmp_path):
    code = ("import sys; from invar_nb.evidence.windows import WindowLosses; from invar_nb.machine.store import write_losses;"
            "write_losses(WindowLosses.from_arrays(['b', 'a'], [2, 3], [0.1 + 0.2, 1/3], provenance={'z': 1, 'a': {'y': 2, 'b': 3}}), sys.argv[1])")
    found = set()
    for seed in ("0", "1"):
        path = tmp_path / f"{seed}{suffix}"
        subprocess.run([sys.executable, "-c", code, path], check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        found.add(file_digest(path))
    assert len(found) == 1


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_windows_no_file(suffix, tmp_path):
    with pytest.raises(ContractError, match="write_losses: there must be a window to write"): write_losses(example(0), tmp_path / f"x{suffix}")
    with pytest.raises(ContractError, match="x.jsonl:1: a loss file must hold at least one window; got 0"): parse_losses(lines(header=HEADER | {"windows": 0}), name="x.jsonl")
    assert not list(tmp_path.iterdir())


def test_both_formats_share_one_digest(tmp_path):
    assert {losses_digest(parse_losses(encoded(example(), s, tmp_path), name="x" + s)) for s in FORMATS} == {losses_digest(example())}


@pytest.mark.parametrize("change", [dict(model="other"), dict(data_id="other"), dict(log_loss=[0.1, 0.2, 0.3, 0.4, 0.5]), dict(tokens=[9, 2, 3, 4, 5]), dict(split=None),
                                    dict(n_bytes=None), dict(provenance={}), dict(window_ids=list("abcde")), dict(window_ids=[f"0:{i:06d}" for i in (1, 0, 2, 3, 4)])])
def test_digest_sees_every_field(change):
    assert losses_digest(example(**change)) != losses_digest(example())


def test_file_digest_is_sha256sum(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert file_digest(path) == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"      # FIPS 180-2, appendix B.1


# --- damage ---------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_beginning_is_refused(suffix, tmp_path):
    data = encoded(example(), suffix, tmp_path)
    for k in range(len(data)):
        with pytest.raises(ContractError): parse_losses(data[:k], name="x" + suffix)


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_changed_byte_gives_other_losses(suffix, tmp_path):
    "Each byte becomes two others: refused, or the very same losses."
    good = example(3)
    data, harmless = encoded(good, suffix, tmp_path), 0
    for k in range(len(data)):
        for flip in (0x01, 0x10):
            changed = data[:k] + bytes([data[k] ^ flip]) + data[k + 1:]
            try: back = parse_losses(changed, name="x" + suffix)
            except ContractError: continue
            same(good, back)
            harmless += 1
    assert harmless < len(data)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300))
def test_noise_is_refused(data, suffix):
    with pytest.raises(ContractError): parse_losses(data, name="x" + suffix)
    with pytest.raises(ContractError): parse_losses(b'{"schema":"invar_nb/losses/1","windows":1}\n' + data, name="x.jsonl")


HEADER = {"schema": "invar_nb/losses/1", "windows": 2}
ROW = {"window_id": "a", "tokens": 3, "log_loss": 2.5}


def lines(*rows, header=HEADER):
    return ("\n".join(x if isinstance(x, str) else json.dumps(x) for x in [header, *rows]) + "\n").encode()


def test_a_file_written_by_hand_is_read():
    losses = parse_losses(lines(ROW, ROW | {"window_id": "b", "log_loss": 2}), name="x.jsonl")
    assert losses.window_ids == ("a", "b") and losses.log_loss.tolist() == [2.5, 2.0] and losses.split is None and losses.model == ""


B = ROW | {"window_id": "b"}


@pytest.mark.parametrize("data, words", [
    (b"", "x.jsonl:1: .* an empty file"),
    (lines(ROW, B)[:-1], "x.jsonl:3: every line must end with a line break"),
    (lines(ROW), "x.jsonl:2: 2 windows must follow the header; got 1"),
    (lines(ROW, B, B), "x.jsonl:4: 2 windows must follow"),
    (lines(ROW, B, header={"schema": "invar_nb/losses/2", "windows": 2}), "x.jsonl:1: the schema must be .*invar_nb/losses/2"),
    (lines(ROW, B, header={"windows": 2}), 'x.jsonl:1: the header must be an object with "schema"'),
    (lines(ROW, B, header={"schema": "invar_nb/losses/1"}), "x.jsonl:1: .* no 'windows'"),
    (lines(ROW, B, header=HEADER | {"note": 1}), "x.jsonl:1: .* 'note'"),
    (lines(ROW, B, header=HEADER | {"model": 3}), "x.jsonl:1: the header's model must be str; got 3"),
    (lines(ROW, B, header=HEADER | {"windows": True}), "the header's windows must be int"),
    (lines(ROW, B, header=[1]), "x.jsonl:1: the header must be an object"),
    (lines(ROW, ROW), "x.jsonl:3: window ids must be unique; got 'a' again .first x.jsonl:2"),
    (lines(ROW, '{"window_id":"b","tokens":3,"log_loss":NaN}'), "x.jsonl:3: JSON numbers must be finite; got NaN"),
    (lines(ROW, '{"window_id":"b","tokens":3,"log_loss":1e999}'), "x.jsonl:3: JSON numbers must be finite"),
    (lines(ROW, '{"window_id":"b","tokens":3,"log_loss":2.5,"log_loss":2.5}'), "x.jsonl:3: JSON keys must not repeat; got 'log_loss'"),
    (lines(ROW, B | {"extra": 1}), "x.jsonl:3: .* 'extra', which is no field"),
    (lines(ROW, B | {"split": "final"}), "x.jsonl:3: .* 'split', which is not in every line"),
    (lines(ROW | {"n_bytes": 4}, B), "x.jsonl:3: .* 'n_bytes', which is not in every line"),
    (lines(ROW, {"window_id": "b", "log_loss": 2.5}), "x.jsonl:3: a window needs .* no 'tokens'"),
    (lines(ROW, B | {"tokens": 0}), "x.jsonl:3: tokens must be a whole number of at least 1; got 0"),
    (lines(ROW, B | {"tokens": 3.0}), "x.jsonl:3: tokens must be a whole number"),
    (lines(ROW, B | {"tokens": True}), "x.jsonl:3: tokens must be a whole number"),
    (lines(ROW, B | {"tokens": 2**60}), "x.jsonl:3: tokens must be"),
    (lines(ROW, B | {"log_loss": -1e-9}), "x.jsonl:3: log_loss must be a finite number of at least 0"),
    (lines(ROW, B | {"log_loss": "2.5"}), "x.jsonl:3: log_loss must be a finite number"),
    (lines(ROW, B | {"log_loss": None}), "x.jsonl:3: log_loss must be a finite number"),
    (lines(ROW, B | {"log_loss": False}), "x.jsonl:3: log_loss must be a finite number"),
    (lines(ROW, B | {"window_id": ""}), "x.jsonl:3: window_id must be a non-empty string"),
    (lines(ROW, B | {"window_id": 7}), "x.jsonl:3: window_id must be a non-empty string"),
    (lines(ROW | {"split": "final"}, B | {"split": "last"}), "x.jsonl:3: split must be 'preview' or 'final'; got 'last'"),
    (lines(ROW | {"n_bytes": 4}, B | {"n_bytes": 0}), "x.jsonl:3: n_bytes must be"),
    (lines(ROW, "[1, 2]"), "x.jsonl:3: a line must be a JSON object"),
    (lines(ROW, ""), "x.jsonl:3: the text must be UTF-8 JSON"),
    (lines(ROW, "[" * 100_000), "x.jsonl:3: "),
    (lines(ROW, '{"window_id":"b","tokens":3,"log_loss":' + "9" * 5000 + "}"), "x.jsonl:3: "),
    (lines(ROW, B).replace(b"2.5", b"2.\xff5", 1), "x.jsonl:2: the text must be UTF-8 JSON"),
    (b"\x80\x04K\x01.\n", "x.jsonl:1: the text must be UTF-8 JSON"),
    (b"\xef\xbb\xbf" + lines(ROW, B), "x.jsonl:1: the text must be UTF-8 JSON"),
])
def test_each_malformed_line_is_named(data, words):
    with pytest.raises(ContractError, match=words) as caught: parse_losses(data, name="x.jsonl")
    assert "\n" not in str(caught.value) and str(caught.value).startswith("read_losses: ") and str(caught.value).endswith(".")


@pytest.mark.parametrize("name, words", [("nowhere.jsonl", "the file must exist"), ("folder.jsonl", "must name a file"), ("x.csv", "must end in .jsonl or .parquet")])
def test_paths_that_hold_no_losses(name, words, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(ContractError, match=words): read_losses(tmp_path / name)


def foreign(columns, header=HEADER | {"windows": 1}, metadata=True):
    import io
    table = pyarrow.table(columns)
    table = table.replace_schema_metadata({"invar_nb": header if isinstance(header, (str, bytes)) else json.dumps(header)} if metadata else None)
    parquet.write_table(table, out := io.BytesIO())
    return out.getvalue()


@needs_arrow
@pytest.mark.parametrize("change, words", [
    (dict(metadata=False), "metadata must hold the key 'invar_nb'"),
    (dict(header="{"), "x.parquet:header: the text must be UTF-8 JSON"),
    (dict(header=b"\xff"), "x.parquet:header"),
    (dict(header=HEADER), "2 rows must follow the header; got 1"),
    (dict(header=HEADER | {"windows": 1, "schema": "other"}), "schema must be"),
    (dict(tokens=[3.0]), "column tokens must be int64; got double"),
    (dict(log_loss=["2.5"]), "column log_loss must be double; got string"),
    (dict(window_id=[1]), "column window_id must be string"),
    (dict(log_loss=[float("nan")]), "x.parquet:row 1: log_loss must be a finite number"),
    (dict(log_loss=[float("inf")]), "x.parquet:row 1: log_loss must be a finite number"),
    (dict(log_loss=[-1.0]), "x.parquet:row 1: log_loss must be a finite number"),
    (dict(tokens=[0]), "x.parquet:row 1: tokens must be"),
    (dict(note=["x"]), "columns must be .* note"),
    (dict(drop="log_loss"), "columns must be .* got window_id, tokens"),
])
def test_each_malformed_parquet_is_named(change, words):
    columns = {"window_id": ["a"], "tokens": [3], "log_loss": [2.5]}
    options = {k: change[k] for k in ("header", "metadata") if k in change}
    columns |= {k: v for k, v in change.items() if k not in ("header", "metadata", "drop")}
    columns.pop(change.get("drop"), None)
    with pytest.raises(ContractError, match=words) as caught: parse_losses(foreign(columns, **options), name="x.parquet")
    assert "\n" not in str(caught.value)


@needs_arrow
def test_nulls_and_repeated_ids_in_parquet():
    for column, kind in (("window_id", pyarrow.string()), ("tokens", pyarrow.int64()), ("log_loss", pyarrow.float64())):
        columns = {"window_id": ["a"], "tokens": [3], "log_loss": [2.5]} | {column: pyarrow.array([None], kind)}
        with pytest.raises(ContractError, match=f"row 1: {column} must be .*None"): parse_losses(foreign(columns), name="x.parquet")
    with pytest.raises(ContractError, match="row 2: window ids must be unique"):
        parse_losses(foreign({"window_id": ["a", "a"], "tokens": [3, 3], "log_loss": [2.5, 2.5]}, header=HEADER), name="x.parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ContractError, match=r"pip install 'invar_nb\[arrow\]'"): write_losses(example(), tmp_path / "x.parquet")
    with pytest.raises(ContractError, match=r"pip install 'invar_nb\[arrow\]'"): parse_losses(b"PAR1", name="x.parquet")
    assert not list(tmp_path.iterdir())


def test_nothing_here_reads_pickles():
    tree = ast.parse(Path(store.__file__).read_text())
    found = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names} | {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not found & {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}
    assert "allow_pickle" not in Path(store.__file__).read_text() and "eval(" not in Path(store.__file__).read_text()


# --- writing --------------------------------------------------------------------------------------------------------------------------
def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.jsonl"
    write_losses(example(), path)
    before = path.read_bytes()
    with pytest.raises(TypeError): write_bytes(path, ["not bytes"])
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["x.jsonl"]


@pytest.mark.parametrize("target, words", [("no/x.jsonl", "the folder must exist"), ("", "must name a file"), ("x.pkl", "must end in .jsonl or .parquet")])
def test_bad_targets_are_refused(target, words, tmp_path):
    if target == "":
        with pytest.raises(ContractError, match=words): write_bytes(tmp_path, b"x")
    else:
        with pytest.raises(ContractError, match=words): write_losses(example(), tmp_path / target)
    assert not list(tmp_path.iterdir())


def run(code, *args):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name != "posix", reason="limits are a POSIX thing")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    code = ("import resource, signal, sys; from invar_nb.machine.store import write_bytes; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); write_bytes(sys.argv[1], b'x' * 5000)")
    _, said = (p := run(code, path)).communicate()
    assert p.returncode != 0 and "File too large" in said
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["x"]


WRITER = """
import sys
from invar_nb.machine.store import write_bytes
print("ready", flush=True)
i = 0
while True:
    i += 1
    write_bytes(sys.argv[1], (b"%d" % (i % 10)) * 200_000)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    "Killed at a dozen moments: the path holds one complete version, never a mixture and never half."
    path = tmp_path / "x"
    write_bytes(path, b"0" * 200_000)
    for i in range(6):
        p = run(WRITER, path)
        assert p.stdout.readline() == "ready\n"
        time.sleep(0.01 + 0.013 * i)
        p.kill()
        p.communicate()
        data = path.read_bytes()
        assert len(data) == 200_000 and len(set(data)) == 1


# --- the ledger -----------------------------------------------------------------------------------------------------------------------
KEY = {"data_id": "sha256:d", "weights": "sha256:w", "settings": {"batch_tokens": 4096, "stride": 512}}
RECORDS = [("a", 3, 0.1 + 0.2), ("東", 4, 5e-324), ("c\n\"d", 5, 0.0)]


def test_ledger_round_trip(tmp_path):
    path = tmp_path / "l"
    with Ledger(path, key=KEY) as ledger:
        for record in RECORDS: ledger.append(*record)
    with Ledger(path, key={**KEY}) as ledger:
        assert ledger.finished == {name: (t, x) for name, t, x in RECORDS}
        ledger.discard()
    assert not path.exists()


def test_ledger_torn_at_every_byte(tmp_path):
    path = tmp_path / "l"
    with Ledger(path, key=KEY) as ledger:
        for record in RECORDS: ledger.append(*record)
    whole, seen = path.read_bytes(), []
    for k in range(len(whole) + 1):
        path.write_bytes(whole[:k])
        with Ledger(path, key=KEY) as ledger:
            seen.append(len(ledger.finished))
            assert list(ledger.finished.items()) == [(name, (t, x)) for name, t, x in RECORDS[:seen[-1]]]
            assert len(ledger.finished) == max(0, whole[:k].count(b"\n") - 1)
            for record in RECORDS[seen[-1]:]: ledger.append(*record)
        assert path.read_bytes() == whole
    assert seen == sorted(seen) and set(seen) == {0, 1, 2, 3}


def test_ledger_damaged_in_the_middle_is_refused_or_read_as_it_was(tmp_path):
    path = tmp_path / "l"
    with Ledger(path, key=KEY) as ledger:
        for record in RECORDS: ledger.append(*record)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"tokens":3', b'"tok'))
    with pytest.raises(ContractError, match=":2: the text must be UTF-8 JSON"): Ledger(path, key=KEY)
    path.write_bytes(whole.replace(b'"tokens":3', b'"tokens":0'))
    with pytest.raises(ContractError, match=":2: tokens must be a whole number"): Ledger(path, key=KEY)
    path.write_bytes(whole + whole.split(b"\n")[1] + b"\n")
    with pytest.raises(ContractError, match=":5: window ids must be unique"): Ledger(path, key=KEY)


@pytest.mark.parametrize("key", [{}, KEY | {"weights": "sha256:other"}, KEY | {"settings": {"batch_tokens": 1, "stride": 512}}, KEY | {"more": 1}])
def test_ledger_of_other_work_is_refused_and_left_alone(key, tmp_path):
    path = tmp_path / "l"
    with Ledger(path, key=KEY) as ledger: ledger.append("a", 3, 1.5)
    before = path.read_bytes()
    with pytest.raises(ContractError, match="only with the work it was begun for; got another "): Ledger(path, key=key)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"precious notes", b"precious\nnotes\n", b"\x00" * 50, b'{"schema":"invar_nb/losses/1"}\n', b'{"key":{},"schema":"invar_nb/ledger/1"}'])
def test_ledger_never_overwrites_a_file_that_is_none(content, tmp_path):
    path = tmp_path / "l"
    path.write_bytes(content)
    with pytest.raises(ContractError, match="Ledger: "): Ledger(path, key=KEY)
    assert path.read_bytes() == content


def test_ledger_refuses_bad_records(tmp_path):
    with Ledger(tmp_path / "l", key=KEY) as ledger:
        before = (tmp_path / "l").read_bytes()
        for record, words in ((("a", 0, 1.0), "tokens must be a whole number"), (("a", 3, float("nan")), "log_loss must be finite"),
                              (("a", 3, -1.0), "log_loss must be at least 0"), (("", 3, 1.0), "window_id must be non-empty")):
            with pytest.raises(ContractError, match=words): ledger.append(*record)
        assert (tmp_path / "l").read_bytes() == before and not ledger.finished
        ledger.append("a", 3, 1.0)
        with pytest.raises(ContractError, match="a window is recorded once; got 'a'"): ledger.append("a", 3, 1.0)
    with pytest.raises(ContractError, match="must be open"): ledger.append("b", 3, 1.0)
    with pytest.raises(ContractError, match="folder must exist"): Ledger(tmp_path / "no" / "l", key=KEY)
    with pytest.raises(ContractError, match="must name a file"): Ledger(tmp_path, key=KEY)


@pytest.mark.skipif(os.name != "posix", reason="file locks of this kind are POSIX")
def test_ledger_has_one_writer(tmp_path):
    path = tmp_path / "l"
    code = ("import sys; from invar_nb.machine.store import Ledger\n"
            "with Ledger(sys.argv[1], key={'a': 1}) as l:\n    print('ready', flush=True); sys.stdin.read()")
    p = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    with pytest.raises(ContractError, match="one process at a time"): Ledger(path, key={"a": 1})
    p.send_signal(signal.SIGKILL)      # the lock dies with its holder
    p.communicate()
    Ledger(path, key={"a": 1}).close()


APPENDER = """
import sys
from invar_nb.machine.store import Ledger
with Ledger(sys.argv[1], key={"run": 1}) as ledger:
    n = len(ledger.finished)
    print(n, flush=True)
    for i in range(n, 10**9):
        ledger.append(f"0:{i:09d}", 1 + i % 7, i / 3)
        if i == n + 20: print("ready", flush=True)
"""


def test_ledger_survives_kill_9(tmp_path):
    "Killed again and again at odd moments: every start finds what the last one wrote, in order, to the bit."
    path, found = tmp_path / "l", 0
    for i in range(4):
        p = run(APPENDER, path)
        assert int(p.stdout.readline()) >= found, p.communicate()
        assert p.stdout.readline() == "ready\n"
        time.sleep(0.005 * i)
        p.send_signal(signal.SIGKILL)
        p.communicate()
        with Ledger(path, key={"run": 1}) as ledger:
            assert len(ledger.finished) > found + 20
            found = len(ledger.finished)
            assert all(ledger.finished[f"0:{j:09d}"] == (1 + j % 7, j / 3) for j in range(found))


def test_numpy_scalars_are_recorded_exactly(tmp_path):
    with Ledger(tmp_path / "l", key=KEY) as ledger: ledger.append("a", np.int64(3), np.float64(1 / 3))
    with Ledger(tmp_path / "l", key=KEY) as ledger: assert ledger.finished == {"a": (3, 1 / 3)}


@needs_arrow
def test_parquet_text_that_is_not_utf8_is_refused(tmp_path):
    good = encoded(example(), ".parquet", tmp_path)
    table = parquet.read_table(tmp_path / "x.parquet")
    raw = pyarrow.array([b"\xff\xfe"] + [f"0:{i}".encode() for i in range(1, 5)], pyarrow.binary())
    bad = pyarrow.StringArray.from_buffers(5, raw.buffers()[1], raw.buffers()[2])
    parquet.write_table(pyarrow.table([bad, *table.columns[1:]], schema=table.schema), tmp_path / "bad.parquet")
    assert parse_losses(good, name="x.parquet")
    with pytest.raises(ContractError, match="UTF-8"): read_losses(tmp_path / "bad.parquet")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
@pytest.mark.parametrize("name", ["pipe.jsonl", "null.jsonl"])
def test_what_is_no_regular_file_is_refused(tmp_path, name):
    if name.startswith("pipe"): os.mkfifo(tmp_path / name)
    else: (tmp_path / name).symlink_to("/dev/null")
    code = "import sys; from invar_nb.machine.store import read_losses, file_digest; [read_losses, file_digest][int(sys.argv[2])](sys.argv[1])"
    for which in "01":
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / name), which], capture_output=True, text=True, timeout=20)
        assert "ContractError" in done.stderr and "regular file" in done.stderr
