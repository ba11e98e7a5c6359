"""What a file of rows may say: round trips through the writers of csv, json and pyarrow, and every kind of bad file."""
import csv
import io
import json
import math
import os
import sys

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import digest
from invar_nb.files.tables import as_number, parse_table, read_table

many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def says(data, name="x.csv"):
    "The one line with which these bytes are refused."
    with pytest.raises(ContractError) as error: parse_table(data if isinstance(data, bytes) else data.encode(), name=name)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"read_table: {name}")
    return str(error.value)


def grid(table): return [list(row) for row in zip(*(table.columns[name] for name in table.names), strict=True)]


# --- round trips --------------------------------------------------------------------------------------------------------------------------
cell = st.text(st.one_of(st.sampled_from('a7,;\t"\n\r \' .'), st.characters(codec="utf-8", exclude_characters="\0")), max_size=8)
name = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=1, max_size=6).filter(lambda text: text.strip())


@st.composite
def texts(draw, empty=True):
    "Names, and rows of text (or None) of equal length; more than one column, so that no semicolon can be taken for a separator."
    names = draw(st.lists(name, min_size=2, max_size=4, unique=True))
    return names, draw(st.lists(st.lists(st.none() | cell if empty else cell, min_size=len(names), max_size=len(names)), min_size=1, max_size=6))


def by_hand(names, rows, comma, end):
    "CSV as RFC 4180 has it: text in quotes, nothing for None."
    return end.join(comma.join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row) for row in [names, *rows]) + end


@many
@given(texts(), st.sampled_from([".csv", ".tsv"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_quoted_csv_comes_back(table, suffix, end, mark):
    names, rows = table
    back = parse_table((b"\xef\xbb\xbf" if mark else b"") + by_hand(names, rows, "," if suffix == ".csv" else "\t", end).encode(), name="x" + suffix)
    assert list(back.names) == names and grid(back) == rows


@many
@given(texts(empty=False), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]), st.sampled_from(["\n", "\r\n"]))
def test_what_the_csv_module_writes_comes_back(table, quoting, end):
    "The module writes an empty text without quotes when it may: then it is nothing."
    names, rows = table
    if quoting == csv.QUOTE_MINIMAL and end == "\n":  # then it leaves a carriage return without quotes, where it cannot be told from half of a line end
        names, rows = [text.replace("\r", "\n") for text in names], [[text.replace("\r", "\n") for text in row] for row in rows]
        assume(len(set(names)) == len(names))
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=end).writerows([names, *rows])
    back = parse_table(out.getvalue().encode(), name="x.csv")
    assert list(back.names) == names
    assert grid(back) == ([[c or None for c in row] for row in rows] if quoting == csv.QUOTE_MINIMAL else rows)


@many
@given(texts(), st.sampled_from(["\n", "\r\n"]))
def test_places_are_the_lines_where_records_begin(table, end):
    names, rows = table
    text, wanted = by_hand(names, [], ",", end), []
    for row in rows:
        wanted.append(f"line {text.count(chr(10)) + 1}")
        text += by_hand(row, [], ",", end) if None not in row else ",".join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row) + end
    assert parse_table(text.encode(), name="x.csv").places == tuple(wanted)


scalar = st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8"), max_size=8)
value = st.recursive(scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3), max_leaves=6)
objects = st.lists(st.dictionaries(name, value, max_size=4), min_size=1, max_size=8).filter(any)


@many
@given(objects, st.booleans(), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "\n \n"]))
def test_json_comes_back(rows, ascii, end, tail):
    for suffix, text in ((".jsonl", end.join(json.dumps(row, ensure_ascii=ascii) for row in rows) + tail), (".json", json.dumps(rows, ensure_ascii=ascii, indent=1) + tail)):
        data = text.encode()
        table = parse_table(data, name="x" + suffix)
        assert len(table) == len(rows) and table.digest == digest(data) and table.names == tuple(dict.fromkeys(key for row in rows for key in row))
        for i, row in enumerate(rows):
            for key in table.names: assert repr(table.columns[key][i]) == repr(row.get(key))  # repr: True is not 1, 1.0 is not 1
        assert table.places == tuple(f"{'line' if suffix == '.jsonl' else 'row'} {i + 1}" for i in range(len(rows)))


@many
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(*(st.lists(st.none() | kind, min_size=n, max_size=n) for kind in (
    st.text(st.characters(codec="utf-8"), max_size=5), st.integers(-2**63, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
    st.tuples(st.none() | st.floats(0, 1), st.floats(0, 1)).map(lambda pair: {"en": pair[0], "de": pair[1]}), st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), st.none() | st.floats(0, 1), max_size=3),
    st.lists(st.none() | st.integers(0, 9), max_size=3))))))
def test_parquet_comes_back(columns):
    f = pyarrow.float64()
    kinds = [pyarrow.string(), pyarrow.int64(), f, pyarrow.bool_(), pyarrow.struct([("en", f), ("de", f)]), pyarrow.map_(pyarrow.string(), f), pyarrow.list_(pyarrow.int64())]
    arrays = [pyarrow.array([list(v.items()) if isinstance(v, dict) and pyarrow.types.is_map(kind) else v for v in cells], kind) for cells, kind in zip(columns, kinds, strict=True)]
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, names=list("abcdefg")), out)
    table = parse_table(out.getvalue(), name="x.parquet")
    assert [repr(table.columns[name]) for name in "abcdefg"] == [repr(tuple(cells)) for cells in columns] and table.places[-1] == f"row {len(columns[0])}"


# --- many lines -----------------------------------------------------------------------------------------------------------------------------
def test_a_bad_line_is_named_wherever_it_is():
    good = [json.dumps({"i": i, "p": {"a": 0.5, "b": i / 7}}) for i in range(1203)]
    assert parse_table("\n".join(good).encode(), name="x.jsonl").columns["i"] == tuple(range(1203))
    for at in (0, 1, 499, 500, 501, 999, 1000, 1202):
        for bad in ("{", "[1]", "3", "null", '{"i": 1} {"i": 2}', '{"i": 1},{"i": 2}', '{"i": NaN}', '{"i": 1, "i": 1}', '{"i": 1e999}', '{"i": "\\udc00"}', '{"": 1}', '{"i": tru}'):
            message = says("\n".join([*good[:at], bad, *good[at + 1:]]), "x.jsonl")
            assert message.startswith(f"read_table: x.jsonl, line {at + 1}: "), message
    assert "line 1202: every line must be a JSON object; got a blank line" in says("\n".join([*good[:-2], " ", good[-1]]), "x.jsonl")


@pytest.mark.parametrize("text", ['{"a":[{}\n{}]}\n{"b":1},{"c":2}\n', '{"a":[{}\n{}]}\n{"b":1},"mark",{"c":2}\n', '{"a":1\n"b":2}\n{"c":1},{"d":1}', '{"a":\n{"b":1}}\n{"c":1},{"d":1}'])
def test_broken_lines_do_not_mend_each_other(text):
    assert ", line 1: the text must be UTF-8 JSON" in says(text, "x.jsonl")


def test_columns_that_come_late_or_go():
    rows = [{"a": i} for i in range(700)] + [{"b": i} for i in range(700)] + [{}] * 3
    table = parse_table("\n".join(map(json.dumps, rows)).encode(), name="x.jsonl")
    assert table.columns["a"] == (*range(700), *[None] * 703) and table.columns["b"] == (*[None] * 700, *range(700), None, None, None)
    with pytest.raises(ContractError, match="^read_table: x.jsonl, line 701: every row must have 'a'; got no value"): table.column("a")
    assert table.column("a", required=False)[700] is None


def test_escaped_pairs_are_whole_characters():
    rows = [{"t": "🙂" * i} for i in range(1000)]
    assert parse_table("\n".join(map(json.dumps, rows)).encode(), name="x.jsonl").columns["t"] == tuple(row["t"] for row in rows)


# --- nothing is guessed -----------------------------------------------------------------------------------------------------------------------
def test_cells_of_csv_are_text():
    cells = ["NA", "NO", "007", "1e5", "true", "None", "nan", " a ", "1_000", "0,75", "#N/A", "=1+1", "٣", "'", "NULL", "-"]
    table = parse_table(("a,b\n" + "".join(f'"{c}",{i}\n' for i, c in enumerate(cells))).encode(), name="X.CSV")
    assert table.column("a") == tuple(cells) and table.column("b") == tuple(map(str, range(len(cells))))


def test_empty_text_is_not_nothing():
    table = parse_table(b'a,b,c\n,"",x\n"",,\n"a,""b""",,""\n"","",""\n', name="x.csv")
    assert grid(table) == [[None, "", "x"], ["", None, None], ['a,"b"', None, ""], ["", "", ""]]
    assert parse_table(b'a,b\n"x""",\n a"",""\n', name="x.csv").columns == {"a": ('x"', ' a""'), "b": (None, "")}
    assert parse_table(b'a\n""\nx\n', name="x.csv").column("a") == ("", "x")
    assert parse_table(b'a\tb\n""\t\n', name="x.tsv").columns == {"a": ("",), "b": (None,)}


@pytest.mark.parametrize("text, value", [("1e5", 1e5), ("007", 7), ("-3", -3), ("+3", 3), (".5", 0.5), ("5.", 5.0), ("1E-3", 0.001), ("0.1", 0.1), ("-0.0", -0.0), ("123456789012345678901", 123456789012345678901),
                                         (3, 3), (0.25, 0.25), (np.float32(0.5), 0.5), (np.int64(7), 7), (10**300, 10**300), (np.array(2.5), 2.5)])
def test_numbers(text, value):
    found = as_number(text, place="line 2", name="p", where="f")
    assert found == value and type(found) is type(value) and math.copysign(1, found) == math.copysign(1, value)


@pytest.mark.parametrize("bad, cure", [("0,75", "0.75"), ("1,234", "thousands"), ("75%", "share"), (" 1", "blanks"), ("1\n", "blanks"), ("nan", "Measure it again, or take its row out"), ("NaN", "Measure it again, or take its row out"), ("inf", "Measure it again, or take its row out"), ("-Infinity", "Measure it again, or take its row out"), ("NA", "Measure it again, or take its row out"), ("", "Measure it again, or take its row out"),
                                       ("1e999", "float64"), ("-1e999", "float64"), ("1_000", "right column"), ("٣", "right column"), ("0x10", "right column"), ("1e", "right column"), (".", "right column"), ("en", "right column"), ("9" * 5000, "digits"), (10**400, "float64"),
                                       (True, "1 or 0"), (np.bool_(True), "1 or 0"), (None, "Fill it in"), (float("nan"), "float64"), (float("inf"), "float64"), ("1e-400", "become 0"), ("-0.01e-330", "become 0"),
                                       ("1,000", "thousands separators: 1000"), ("0,5", "decimal point: 0.5"), ("1,234,567", "1234567"), ([1], "right column"), ({}, "right column"), (1j, "right column"), (b"1", "right column")])
def test_no_numbers(bad, cure):
    with pytest.raises(ContractError) as error: as_number(bad, place="line 17", name="confidence", where="f")
    assert str(error.value).startswith("f: confidence must be a finite number; got ") and cure in str(error.value) and "\n" not in str(error.value)
    assert "(line 17)" in str(error.value)


@many
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-10**300, 10**300))
def test_numbers_come_back(x):
    assert repr(as_number(str(x), place="", name="", where="")) == repr(x) and repr(as_number(x, place="", name="", where="")) == repr(x)


# --- bad files ----------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data, parts", [
    ("a,b\n1\n", ("line 2", "must have 2 cells; got 1", "quotes")), ("a,b\n1,2\n1,2,3\n", ("line 3", "got 3")), ("a,b\n1,2\n   \n", ("line 3", "got 1")), ("a,a\n1,2\n", ("line 1", "'a' as columns 1 and 2")),
    ("a,\n1,2\n", ("line 1", "'' as column 2")), ("a, \n1,2\n", ("line 1", "' ' as column 2")), ("a,b\n1,2\n\n3,4\n", ("line 3", "a blank line")), ("a,b\n1,2\n\n\n3,4\n", ("line 3", "a blank line")), ("\na,b\n1,2\n", ("line 1", "a blank line")),
    ("a\n1\n\n", ("line 3", "a blank line", '""')), ('a,b\n1,"2\n3,4\n', ("line 2", "inside a cell", "Close the quote")), ('a,b\n1,"2"x\n', ("line 2", "expected after", "whole cell in quotes")), ('a,b\n"1\n2",3\n"4"x,5\n', ("line 4", "expected after")),
    ("a;b\n1;2\n", ("line 1", "';' in 'a;b'", "decimal point")), ("a\tb\n1\t2\n", ("line 1", ".tsv")), ("a|b\n1|2\n", ("'|' in 'a|b'",)), ("a,b\n", ("must hold rows", "none")), ("", ("an empty file",)), ("\n", ("blank line",)),
    ("a,b\r1,2\r", ("line 1", "carriage return")), (b"a,b\n1,\xe9\n", ("line 2", "0xe9 at byte 3", "Latin-1")), (b"a,b\n1,2\0\n", ("line 2", "a NUL byte at byte 4")), ("a,b\n1,2\n".encode("utf-16"), ("UTF-16", "Save it as UTF-8")),
    ("a,b\n1,2\n".encode("utf-16-le"), ("a NUL byte", "UTF-16")), (b"\xef\xbb\xbf", ("must hold rows",)), ('a,b\n1,"' + "x" * 200_000 + '"\n', ("line 2", "131072 characters", "JSONL")), ("sep=;\na;b\n1;2\n", ("line 1", "';'"))])
def test_bad_csv(data, parts):
    message = says(data)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("data, parts", [
    (b"\xef\xbb\xbf{}\n", ("line 1", "byte order mark", "without BOM")), ("", ("an empty file",)), ("\n\n", ("blank line",)), ("{}\n{}\n", ("must hold rows",)), ('{"a": 1}\n{" ": 1}\n', ("line 2", "every key must be a name")),
    ('{"a": 1}\n{"a": ', ("line 2", "UTF-8 JSON")), ('{\n"a": 1\n}\n', ("line 1",)), (b'{"a": 1}\n{"a": "\xff"}\n', ("line 2", "0xff")), (b'{"a": 1}\n\0\n', ("line 2", "NUL")), ('{"a": {"b": 1, "b": 2}}\n', ("line 1", "'b'", "must not repeat")),
    ('{"a": ' + "[" * 100_000 + "\n", ("line 1", "nested")), ('{"a": ' + "9" * 5000 + "}\n", ("line 1",)), ('[{"a": 1}]\n', ("line 1", ".json")), ('a,b\n1,2\n', ("line 1",)), ('{"a": "\\ud800"}', ("line 1", "U+D800")), ('{"\\ud800": 1}', ("line 1", "U+D800"))])
def test_bad_jsonl(data, parts):
    message = says(data, "x.jsonl")
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("data, parts", [("{}", ("list of objects", "dict")), ('{"a": 1}\n{"a": 2}', ("Extra data",)), ("[]", ("must hold rows",)), ("[{}]", ("must hold rows",)), ('[{"a": 1}, 2]', ("row 2", "got int 2")), ('[{"a": NaN}]', ("NaN",)),
                                         ('[{"a": 1}', ("UTF-8 JSON",)), ('[{"a": 1}, {"": 2}]', ("row 2", "a name")), ('[{"a": "\\ud800"}]', ("row 1", "U+D800")), ("", ("an empty file",)), ("3", ("got int",))])
def test_bad_json(data, parts):
    message = says(data, "x.json")
    assert all(part in message for part in parts), message


def test_bad_parquet():
    def write(table):
        out = io.BytesIO()
        parquet.write_table(table, out)
        return out.getvalue()
    f = pyarrow.float64()
    for table, parts in ((pyarrow.table({"a": [0.5, math.nan]}), ("row 2, column 'a'", "got nan", "null")), (pyarrow.table({"a": pyarrow.array([[0.5], [0.5, -math.inf]])}), ("row 2", "got -inf")),
                         (pyarrow.table({"a": pyarrow.array([{"x": math.nan}])}), ("row 1", "got nan")), (pyarrow.table({"a": pyarrow.array([[("x", 1.0), ("x", 2.0)]], pyarrow.map_(pyarrow.string(), f))}), ("column 'a'", "values must be ones that Python knows")),
                         (pyarrow.table([[1], [2]], names=["a", "a"]), ("'a' as columns 1 and 2",)), (pyarrow.table([[1], [2]], names=["a", ""]), ("'' as column 2",)), (pyarrow.table({"a": []}), ("must hold rows",)),
                         (pyarrow.table({}), ("must have a column",)), (pyarrow.table({"a": pyarrow.array([math.inf], pyarrow.float32())}), ("got inf",))):
        message = says(write(table), "x.parquet")
        assert all(part in message for part in parts), message
    good = write(pyarrow.table({"a": pyarrow.array(["x", None, "x"]).dictionary_encode(), "h": pyarrow.array([0.5, None, 2.0], pyarrow.float32())}))
    assert parse_table(good, name="x.parquet").columns == {"a": ("x", None, "x"), "h": (0.5, None, 2.0)}
    for k in range(0, len(good), 7): assert "must be Parquet" in says(good[:k], "x.parquet") if k else "empty" in says(b"", "x.parquet")


def test_single_precision_is_read_as_it_is_printed():
    "A table of float32 says the same as the CSV file of it, at any depth; other precisions are widened."
    f, sure = pyarrow.float32(), [0.7, 0.1, 1 / 3, 1e-30, 16384.0]
    table = pyarrow.table({"p": pyarrow.array(sure, f), "list": pyarrow.array([sure] * 5, pyarrow.list_(f)), "map": pyarrow.array([{"x": 0.7}] * 5, pyarrow.struct([("x", f)])),
                           "half": pyarrow.array(np.float16(sure)), "double": pyarrow.array(np.float32(sure).astype(float))})
    out, text = io.BytesIO(), io.StringIO()
    parquet.write_table(table, out)
    csv.writer(text).writerows([["p"], *([x] for x in np.float32(sure).astype(str))])
    columns = parse_table(out.getvalue(), name="x.parquet").columns
    printed = tuple(float(cell) for cell in parse_table(text.getvalue().encode(), name="x.csv").column("p"))
    assert columns["p"] == printed == (0.7, 0.1, 0.33333334, 1e-30, 16384.0)
    assert columns["list"] == (list(printed),) * 5 and columns["map"] == ({"x": 0.7},) * 5
    whole = pyarrow.table({"seed": pyarrow.array([2.0**28, 2.0**30], f), "keyed": pyarrow.array([[(0.7, 0.7)], [(0.5, None)]], pyarrow.map_(f, f))})
    out = io.BytesIO()
    parquet.write_table(whole, out)
    assert parse_table(out.getvalue(), name="x.parquet").columns == {"seed": (2.0**28, 2.0**30), "keyed": ({0.7: 0.7}, {0.5: None})}  # whole numbers stay
    assert columns["half"] == tuple(np.float16(sure).tolist()) and columns["double"] == tuple(np.float32(sure).tolist())


def test_no_files(tmp_path):
    os.mkdir(tmp_path / "d.csv")
    cases = {"absent.csv": "must exist", "d.csv": "a folder", "x.csv.gz": "Unpack", "x.xlsx": "CSV", "x": "must end in", "x.txt": "'.txt'", ".csv": "must end in"}
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "p.jsonl")
        cases["p.jsonl"] = "a pipe"
    for file, part in cases.items():
        with pytest.raises(ContractError, match="^read_table: ") as error: read_table(tmp_path / file)
        assert part in str(error.value) and "\n" not in str(error.value)
    (tmp_path / "ok.CSV").write_text("a,b\n1,2")
    assert read_table(str(tmp_path / "ok.CSV")).column("b") == ("2",)


def test_trailing_blank_lines_hold_nothing():
    assert len(parse_table(b"a,b\n1,2\n\n\n", name="x.csv")) == len(parse_table(b'{"a":1}\n\n \n', name="x.jsonl")) == 1


# --- the table itself ------------------------------------------------------------------------------------------------------------------------------
# --- what an adversarial reader found -----------------------------------------------------------------------------------------------------------
def test_zeros_are_zeros_however_written():
    for text in ("0e-400", "-0.000e5", "0", "0.0"): assert as_number(text, place="line 1", name="p", where="f") == 0
    assert as_number("5e-324", place="line 1", name="p", where="f") == 5e-324


def test_names_no_system_takes():
    for name in ("x" * 5000 + ".csv", "a\0b.csv"):
        with pytest.raises(ContractError, match="^read_table: ") as error: read_table(name)
        assert "\n" not in str(error.value) and "\0" not in str(error.value)


@pytest.mark.parametrize("bad, parts", [('{"a": 1},', ("a comma after the object. Remove the comma",)), ('{"a": 1} ,  ', ("Remove the comma",)), ('{"a": 1}{"a": 2}', ("Extra data", "Remove what follows")), ('{"a": ' + "9" * 5000 + "}", ("must fit float64",)),
                                        ('{"a": 1e-400}', ("1e-400, which would become 0",)), ('{"a": tru}', ("Expecting value",))])
def test_one_line_number_and_the_true_cure(bad, parts):
    message = says('{"a": 1}\n' + bad + '\n{"a": 3}\n', "x.jsonl")
    assert message.startswith("read_table: x.jsonl, line 2: ") and all(part in message for part in parts), message
    assert ("cut off" in message) == ("tru" in bad)


@pytest.mark.parametrize("bad, part", [("NaN", "got NaN"), ("1e999", "got 1e999"), ("1e-999", "become 0"), ('{"b": 1, "b": 2}', "'b'"), ("[[-Infinity]]", "-Infinity"), ("9" * 5000, "must fit float64"), ("1" + "0" * 309, "must fit float64")])
@pytest.mark.parametrize("space", ["", " \n\t" * 700])
def test_rows_of_a_json_list_are_named(bad, part, space):
    rows = ['{"a": "], ["}', '{"a": [1, {"b": "\\""}]}', '{"a": %s}' % bad, '{"a": NaN}' if bad == "NaN" else "{}"]
    message = says(space + "[" + space + f"{space},{space}".join(rows) + space + "]" + space, "x.json")
    assert message.startswith("read_table: x.json, row 3: ") and part in message, message
    assert "row" not in says("[" + ",".join(rows[:2]) + ', {"a" 1}]', "x.json")


def test_keys_of_their_own():
    import time
    start = time.perf_counter()
    for name, data in (("x.jsonl", "\n".join(f'{{"k{i}": 1}}' for i in range(20_000))), ("x.jsonl", "{" + ",".join(f'"k{i}": 1' for i in range(4096)) + "}\n" + "{}\n" * 300_000), ("x.json", "[" + ",".join(f'{{"k{i}": 1}}' for i in range(20_000)) + "]")):
        assert "rows must share their keys" in says(data, name)
    assert time.perf_counter() - start < 10
    wide = json.dumps({f"k{i}": i for i in range(6000)})
    assert len(parse_table(((wide + "\n") * 4).encode(), name="x.jsonl").names) == 6000
    assert len(parse_table("\n".join(f'{{"k{i}": 1}}' for i in range(1000)).encode(), name="x.jsonl").names) == 1000




def test_absent_columns_are_named_with_their_neighbours():
    table = parse_table(b"id,Label, confidence\n1,x,0.5\n", name="t.csv")
    with pytest.raises(ContractError, match=r"there must be a column 'confidence'; got columns 'id', 'Label', ' confidence'. Did you mean ' confidence'\?"): table.column("confidence")
    with pytest.raises(ContractError, match="Add it"): table.column("zebra", required=False)


def test_parquet_that_would_fill_the_memory_is_refused(monkeypatch):
    "The first by its footer, the second (texts, few cells) while it is read."
    rows = pyarrow.DictionaryArray.from_arrays(np.zeros(10**6, np.int8), [1.5]).cast(pyarrow.float64())
    text = pyarrow.DictionaryArray.from_arrays(np.zeros(10**4, np.int8), ["x" * 10**5])
    for table, part in (({name: rows for name in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"}, "275 MiB"), ({"a": text.cast(pyarrow.large_string())}, "MiB or more")):
        out = io.BytesIO()
        parquet.write_table(pyarrow.table(table), out, compression="zstd")
        assert len(out.getvalue()) < 10**6
        message = says(out.getvalue(), "x.parquet")
        assert "at most 256 MiB" in message and part in message


def test_every_flipped_byte_is_refused_or_read():
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": ["a", "b", "c"], "x": [0.5, 1.0, 2.0], "m": [{"k": 1}, {"k": 2}, None]}), out)
    good = out.getvalue()
    for i in range(len(good)):
        for bit in (0x01, 0x80):
            bad = bytearray(good)
            bad[i] ^= bit
            try: table = parse_table(bytes(bad), name="x.parquet")
            except ContractError: continue
            assert all(math.isfinite(x) for x in table.columns.get("x", ()) if isinstance(x, float))


def test_other_types_are_read_as_text():
    out = io.BytesIO()
    import datetime, decimal
    parquet.write_table(pyarrow.table({"day": [datetime.date(2026, 1, 2), None], "d": [decimal.Decimal("0.10"), decimal.Decimal("2.00")]}), out)
    assert parse_table(out.getvalue(), name="x.parquet").columns == {"day": ("2026-01-02", None), "d": ("0.10", "2.00")}


@pytest.mark.parametrize("rows", [["\ufeff0", "1"], ["0", "\ufeff1", "2"]])
def test_a_byte_order_mark_inside_a_table_is_part_of_its_cell(tmp_path, rows):
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{name},1\n" for name in rows))
    assert list(read_table(tmp_path / "a.csv").columns["id"]) == rows
