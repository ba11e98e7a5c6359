"""What a file of rows may say: round trips through the writers of csv, json and pyarrow, and every kind of bad file."""

import csv
import datetime
import decimal
import io
import json
import math
import os
import re
import time

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from invar_nb.files.tables import as_number, column_named, parse_table, read_table
from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import digest

many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def says(data, name="x.csv"):
    "The one line with which these bytes are refused."
    with pytest.raises(ContractError) as error:
        print(
            parse_table(data if isinstance(data, bytes) else data.encode(), name=name).columns
        )
    assert "\n" not in str(error.value) and str(error.value).startswith(f"read_table: {name}")
    return str(error.value)


def parquet_bytes(columns, **options):
    out = io.BytesIO()
    parquet.write_table(
        columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns),
        out,
        **options,
    )
    return out.getvalue()


def grid(table):
    return [
        list(row) for row in zip(*(table.columns[name] for name in table.names), strict=True)
    ]


# --- round trips --------------------------------------------------------------------------------------------------------------------------
cell = st.text(
    st.one_of(
        st.sampled_from("a7,;\t\"\n\r ' ."),
        st.characters(codec="utf-8", exclude_characters="\0"),
    ),
    max_size=8,
)
name = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=1, max_size=6
).filter(lambda text: text.strip())


@st.composite
def texts(draw, empty=True):
    "Names, and rows of text (or None) of equal length; more than one column, so that no semicolon can be taken for a separator."
    names = draw(st.lists(name, min_size=2, max_size=4, unique=True))
    return names, draw(
        st.lists(
            st.lists(
                st.none() | cell if empty else cell, min_size=len(names), max_size=len(names)
            ),
            min_size=1,
            max_size=6,
        )
    )


def by_hand(names, rows, comma, end):
    "CSV as RFC 4180 has it: text in quotes, nothing for None."
    return (
        end.join(
            comma.join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row)
            for row in [names, *rows]
        )
        + end
    )


@many
@given(
    texts(), st.sampled_from([".csv", ".tsv"]), st.sampled_from(["\n", "\r\n"]), st.booleans()
)
def test_quoted_csv_comes_back(table, suffix, end, mark):
    names, rows = table
    back = parse_table(
        (b"\xef\xbb\xbf" if mark else b"")
        + by_hand(names, rows, "," if suffix == ".csv" else "\t", end).encode(),
        name="x" + suffix,
    )
    assert list(back.names) == names and grid(back) == rows


@many
@given(
    texts(empty=False),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_csv_module_writes_comes_back(table, quoting, end):
    "The module writes an empty text without quotes when it may: then it is nothing."
    names, rows = table
    if (
        quoting == csv.QUOTE_MINIMAL and end == "\n"
    ):  # then it leaves a carriage return without quotes, where it cannot be told from half of a line end
        names, rows = (
            [text.replace("\r", "\n") for text in names],
            [[text.replace("\r", "\n") for text in row] for row in rows],
        )
        assume(len(set(names)) == len(names))
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=end).writerows([names, *rows])
    back = parse_table(out.getvalue().encode(), name="x.csv")
    assert list(back.names) == names
    assert grid(back) == (
        [[c or None for c in row] for row in rows] if quoting == csv.QUOTE_MINIMAL else rows
    )


@many
@given(texts(), st.sampled_from(["\n", "\r\n"]))
def test_places_are_the_lines_where_records_begin(table, end):
    names, rows = table
    text, wanted = by_hand(names, [], ",", end), []
    for row in rows:
        wanted.append(f"line {text.count(chr(10)) + 1}")
        text += (
            by_hand(row, [], ",", end)
            if None not in row
            else ",".join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row)
            + end
        )
    assert parse_table(text.encode(), name="x.csv").places == tuple(wanted)


scalar = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
value = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.lists(st.dictionaries(name, value, max_size=4), min_size=1, max_size=8).filter(
    any
)


@many
@given(
    objects,
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n", "\n \n"]),
)
def test_json_comes_back(rows, ascii, end, tail):
    for suffix, text in (
        (".jsonl", end.join(json.dumps(row, ensure_ascii=ascii) for row in rows) + tail),
        (".json", json.dumps(rows, ensure_ascii=ascii, indent=1) + tail),
    ):
        data = text.encode()
        table = parse_table(data, name="x" + suffix)
        assert (
            len(table) == len(rows)
            and table.digest == digest(data)
            and table.names == tuple(dict.fromkeys(key for row in rows for key in row))
        )
        for i, row in enumerate(rows):
            for key in table.names:
                assert repr(table.columns[key][i]) == repr(
                    row.get(key)
                )  # repr: True is not 1, 1.0 is not 1
        assert table.places == tuple(
            f"{'line' if suffix == '.jsonl' else 'row'} {i + 1}" for i in range(len(rows))
        )


@many
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            *(
                st.lists(st.none() | kind, min_size=n, max_size=n)
                for kind in (
                    st.text(st.characters(codec="utf-8"), max_size=5),
                    st.integers(-(2**63), 2**63 - 1),
                    st.floats(allow_nan=False, allow_infinity=False),
                    st.booleans(),
                    st.tuples(st.none() | st.floats(0, 1), st.floats(0, 1)).map(
                        lambda pair: {"en": pair[0], "de": pair[1]}
                    ),
                    st.dictionaries(
                        st.text(st.characters(codec="utf-8"), max_size=3),
                        st.none() | st.floats(0, 1),
                        max_size=3,
                    ),
                    st.lists(st.none() | st.integers(0, 9), max_size=3),
                )
            )
        )
    )
)
def test_parquet_comes_back(columns):
    f = pyarrow.float64()
    kinds = [
        pyarrow.string(),
        pyarrow.int64(),
        f,
        pyarrow.bool_(),
        pyarrow.struct([("en", f), ("de", f)]),
        pyarrow.map_(pyarrow.string(), f),
        pyarrow.list_(pyarrow.int64()),
    ]
    arrays = [
        pyarrow.array(
            [
                list(v.items()) if isinstance(v, dict) and pyarrow.types.is_map(kind) else v
                for v in cells
            ],
            kind,
        )
        for cells, kind in zip(columns, kinds, strict=True)
    ]
    table = parse_table(
        parquet_bytes(pyarrow.table(arrays, names=list("abcdefg"))), name="x.parquet"
    )
    assert [repr(table.columns[name]) for name in "abcdefg"] == [
        repr(tuple(cells)) for cells in columns
    ] and table.places[-1] == f"row {len(columns[0])}"


# --- nothing is guessed -----------------------------------------------------------------------------------------------------------------------
def test_columns_that_come_late_or_go():
    rows = [{"a": i} for i in range(700)] + [{"b": "🙂" * i} for i in range(700)] + [{}] * 3
    table = parse_table(
        "\n".join(map(json.dumps, rows)).encode(), name="x.jsonl"
    )  # escaped pairs are whole characters
    assert table.columns["a"] == (*range(700), *[None] * 703) and table.columns["b"] == (
        *[None] * 700,
        *("🙂" * i for i in range(700)),
        None,
        None,
        None,
    )
    with pytest.raises(
        ContractError,
        match="^read_table: x.jsonl, line 701: every row must have 'a'; got no value",
    ):
        table.column("a")
    with pytest.raises(
        ContractError, match="column 'aa'; got columns 'a', 'b'. Did you mean 'a'"
    ):
        table.column("aa")
    assert table.column("a", missing=())[700] is None


def test_cells_of_csv_are_text_and_empty_text_is_not_nothing(tmp_path):
    cells = [
        "NA",
        "NO",
        "007",
        "1e5",
        "true",
        "None",
        "nan",
        " a ",
        "1_000",
        "0,75",
        "#N/A",
        "=1+1",
        "٣",
        "'",
        "NULL",
        "-",
        "\ufeff0",
    ]
    (tmp_path / "X.CSV").write_text(
        "a,b\n" + "".join(f'"{c}",{i}\n' for i, c in enumerate(cells))
    )
    table = read_table(tmp_path / "X.CSV")
    assert table.column("a") == tuple(cells) and table.column("b") == tuple(
        map(str, range(len(cells)))
    )
    table = parse_table(
        b'a,b,c\n,"",x\n"",,\n"a,""b""",,""\n"","",""\n"x""", a"",""\n', name="x.csv"
    )
    assert grid(table) == [
        [None, "", "x"],
        ["", None, None],
        ['a,"b"', None, ""],
        ["", "", ""],
        ['x"', ' a""', ""],
    ]
    assert parse_table(b'a\n""\nx\n', name="x.csv").column("a") == ("", "x") and parse_table(
        b'a\tb\n""\t\n', name="x.tsv"
    ).columns == {"a": ("",), "b": (None,)}
    assert (
        len(parse_table(b"a,b\n1,2\n\n\n", name="x.csv"))
        == len(parse_table(b'{"a":1}\n\n \n', name="x.jsonl"))
        == 1
    )  # blank lines at the end


def test_single_precision_is_read_as_it_is_printed_and_other_types_as_text():
    f, sure = pyarrow.float32(), [0.7, 0.1, 1 / 3, 1e-30, 16384.0]
    printed = (0.7, 0.1, 0.33333334, 1e-30, 16384.0)
    table = parse_table(
        parquet_bytes(
            {
                "p": pyarrow.array(sure, f),
                "list": pyarrow.array([sure] * 5, pyarrow.list_(f)),
                "map": pyarrow.array([{"x": 0.7}] * 5, pyarrow.struct([("x", f)])),
                "half": pyarrow.array(np.float16(sure)),
                "double": pyarrow.array(np.float32(sure).astype(float)),
                "seed": pyarrow.array([2.0**28] * 5, f),
                "keyed": pyarrow.array(
                    [[(0.7, 0.7)], [(0.5, None)]] + [[]] * 3, pyarrow.map_(f, f)
                ),
                "day": [datetime.date(2026, 1, 2), None] + [None] * 3,
                "d": [decimal.Decimal("0.10")] * 5,
                "code": pyarrow.array(["x", None, "x", "x", "x"]).dictionary_encode(),
            }
        ),
        name="x.parquet",
    )
    columns = table.columns
    assert (
        table.numbers("p").tolist() == [*printed]
        and table.numbers("double").tolist() == np.float32(sure).astype(float).tolist()
    )
    assert (
        columns["p"] == printed
        and columns["list"] == (list(printed),) * 5
        and columns["map"] == ({"x": 0.7},) * 5
        and columns["seed"][0] == 2.0**28
        and columns["keyed"][:2] == ({0.7: 0.7}, {0.5: None})
    )
    assert columns["half"] == tuple(np.float16(sure).tolist()) and columns["double"] == tuple(
        np.float32(sure).tolist()
    )
    assert (
        columns["day"][:2] == ("2026-01-02", None)
        and columns["d"][0] == "0.10"
        and columns["code"][:2] == ("x", None)
    )


# --- numbers ------------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, value",
    [
        ("1e5", 1e5),
        ("007", 7),
        ("-3", -3),
        ("+3", 3),
        (".5", 0.5),
        ("5.", 5.0),
        ("1E-3", 0.001),
        ("0.1", 0.1),
        ("-0.0", -0.0),
        ("123456789012345678901", 123456789012345678901),
        ("0e-400", 0.0),
        ("5e-324", 5e-324),
        (3, 3),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (10**300, 10**300),
        (np.array(2.5), 2.5),
    ],
)
def test_numbers(text, value):
    number = as_number(text, place="line 2", name="p", where="f")
    assert (
        number == value
        and type(number) is type(value)
        and math.copysign(1, number) == math.copysign(1, value)
    )


AGAIN, WHICH = "Measure it again, or remove its row", "right column"
CURES = {
    "0.75": ("0,75",),
    "thousands": ("1,234",),
    "share": ("75%",),
    "blanks": (" 1", "1\n"),
    AGAIN: ("nan", "NaN", "inf", "-Infinity", "NA", ""),
    WHICH: ("1_000", "٣", "0x10", "1e", ".", "en", [1], {}, 1j, b"1"),
    "float64": ("1e999", "-1e999", 10**400, float("nan"), float("inf")),
    "digits": ("9" * 5000,),
    "1 or 0": (True, np.bool_(True)),
    "Fill it in": (None,),
    "become 0": ("1e-400", "-0.01e-330"),
    "separators: 1234567": ("1,234,567",),
}


@pytest.mark.parametrize("cure", CURES)
def test_no_numbers(cure):
    for bad in CURES[cure]:
        with pytest.raises(ContractError) as error:
            as_number(bad, place="line 17", name="confidence", where="f")
        assert (
            str(error.value).startswith("f: every 'confidence' must be a finite number; got ")
            and cure in str(error.value)
            and "(line 17)" in str(error.value)
            and "\n" not in str(error.value)
        )


@many
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**300), 10**300))
def test_numbers_come_back(x):
    assert repr(as_number(str(x), place="", name="", where="")) == repr(x) and repr(
        as_number(x, place="", name="", where="")
    ) == repr(x)


@many
@given(
    st.lists(
        st.sampled_from(
            [
                "1",
                "0",
                "0.0",
                "-2.5",
                "1e-3",
                "+3",
                "007",
                "1e-999",
                "nan",
                "1_0",
                " 1",
                "",
                "true",
                "0e9",
                "1e999",
                "x",
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_columns_of_numbers_are_their_cells_one_by_one(cells, mark):
    table = parse_table(
        ("a,b\n" + "".join(f'{c},"x"\n' if mark else f"{c},x\n" for c in cells)).encode(),
        name="x.csv",
    )
    try:
        wanted = [
            float(as_number(cell or None, place="", name="a", where="")) for cell in cells
        ]
    except ContractError:
        with pytest.raises(
            ContractError,
            match=f"line {2 + next(i for i, c in enumerate(cells) if c in ('1e-999', 'nan', '1_0', ' 1', '', 'true', '1e999', 'x'))}\\b"
            if "" not in cells
            else "x.csv",
        ):
            table.numbers("a")
    else:
        assert table.numbers("a").tolist() == wanted


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_a_number_of_parquet_that_is_not_finite_is_refused_with_its_row(bad, kind):
    column = pyarrow.array(np.array([1, 2, 0.5, bad], kind))
    data = parquet_bytes({"arm": [*"abab"], "loss": column})
    where = f"x.parquet, row 4, column 'loss': numbers must be finite; got {bad!r}. "
    table = parse_table(data, name="x.parquet")
    with pytest.raises(ContractError, match=re.escape(where + "Measure it again, or remove")):
        table.numbers("loss")
    for act in (
        lambda: table.columns,
        lambda: parse_table(data, name="x.parquet", rows=("arm", "b")).columns,
    ):
        with pytest.raises(ContractError, match=re.escape(where + "Write null")):
            act()
    other_arm = parse_table(data, name="x.parquet", rows=("arm", "a"))
    assert other_arm.columns["loss"] == (1, 0.5)
    cured = parquet_bytes({"loss": column.slice(0, 3)})
    assert parse_table(cured, name="x.parquet").numbers("loss").tolist() == [1, 2, 0.5]


def test_columns_are_named_by_text():
    cure = r"got 0\. In a data frame: frame\.rename\(columns=str\)\."
    for names in ([0, 1], ["id", 0], {0: [], "x": []}):
        with pytest.raises(ContractError, match="^f: column names must be text; " + cure):
            column_named("label", names, "f")
    assert column_named("id", ["id", 0], "f") == "id"
    for name in (["id"], 5, None):
        with pytest.raises(ContractError, match="^f: a column must be named by text; got "):
            column_named(name, ["id"], "f")


# --- bad files ----------------------------------------------------------------------------------------------------------------------------------
BAD = [  # name, bytes, words of the refusal
    *[
        ("x.csv", data, words)
        for data, *words in (
            ("a,b\n1\n", "line 2", "must have 2 cells; got 1"),
            ("a,b\n1,2\n1,2,3\n", "line 3", "got 3"),
            ("a,b\n1,2\n   \n", "line 3", "got 1"),
            ("a,a\n1,2\n", "line 1", "'a' as columns 1 and 2"),
            ("a,\n1,2\n", "line 1", "'' as column 2"),
            ("a, \n1,2\n", "line 1", "' ' as column 2"),
            ("a,b\n1,2\n\n3,4\n", "line 3", "a blank line"),
            ("a,b\n1,2\n\n\n3,4\n", "line 3", "a blank line"),
            ("\na,b\n1,2\n", "line 1", "a blank line"),
            ("a\n1\n\n", "line 3", "a blank line", '""'),
            ('a,b\n1,"2\n3,4\n', "line 2", "inside a cell"),
            ('a,b\n1,"2"x\n', "line 2", "a quote inside a cell"),
            ('a,b\n"1\n2",3\n"4"x,5\n', "line 4", "a quote"),
            ("a;b\n1;2\n", "line 1", "';' in 'a;b'", "decimal point"),
            ("a\tb\n1\t2\n", "line 1", ".tsv"),
            ("a|b\n1|2\n", "'|' in 'a|b'"),
            ("a,b\n", "must hold rows", "none"),
            ("", "an empty file"),
            ("\n", "blank line"),
            ("a,b\r1,2\r", "line 1", "carriage return"),
            (b"a,b\n1,\xe9\n", "line 2", "0xe9 at byte 3", "Latin-1"),
            (b"a,b\n1,2\0\n", "line 2", "a NUL byte at byte 4"),
            ("a,b\n1,2\n".encode("utf-16"), "line 1", "UTF-16"),
            ("a,b\n1,2\n".encode("utf-16-le"), "a NUL byte"),
            (b"\xef\xbb\xbf", "must hold rows"),
            ('a,b\n1,"' + "x" * 200_000 + '"\n', "line 2", "131072 characters"),
            ("sep=;\na;b\n1;2\n", "line 1", "';'"),
        )
    ],
    *[
        ("x.jsonl", data, words)
        for data, *words in (
            (b"\xef\xbb\xbf{}\n", "line 1", "BOM"),
            ("", "an empty file"),
            ("\n\n", "blank line"),
            ("{}\n{}\n", "must hold rows"),
            ('{"a": 1}\n{" ": 1}\n', "line 2", "every key must be a name"),
            ('{"a": 1}\n{"a": ', "line 2", "UTF-8 JSON"),
            ('{\n"a": 1\n}\n', "line 1"),
            (b'{"a": 1}\n{"a": "\xff"}\n', "line 2", "0xff"),
            (b'{"a": 1}\n\0\n', "line 2", "NUL"),
            ('{"a": {"b": 1, "b": 2}}\n', "line 1", "'b'", "must not repeat"),
            ('{"a": ' + "[" * 100_000 + "\n", "line 1", "nested"),
            ('{"a": ' + "9" * 5000 + "}\n", "line 1"),
            ('[{"a": 1}]\n', "line 1", ".json"),
            ("a,b\n1,2\n", "line 1"),
            ('{"a": "\\ud800"}', "line 1", "half a character"),
            ('{"\\ud800": 1}', "line 1", "half a character"),
            ('{"a": 1}\n{"a": 1},\n', "line 2", "Remove what follows"),
            ('{"a": 1}\n{"a": 1e-400}\n', "line 2", "become 0"),
            ('{"a":[{}\n{}]}\n{"b":1},{"c":2}\n', "line 1: the text must be UTF-8 JSON"),
            ('{"a":[{}\n{}]}\n{"b":1},"mark",{"c":2}\n', "line 1: the text"),
            ('{"a":1\n"b":2}\n{"c":1},{"d":1}', "line 1: the text"),
            ('{"a":\n{"b":1}}\n{"c":1},{"d":1}', "line 1: the text"),
        )
    ],
    *[
        ("x.json", data, words)
        for data, *words in (
            ("{}", "list of objects", "dict"),
            ('{"a": 1}\n{"a": 2}', "Extra data"),
            ("[]", "must hold rows"),
            ("[{}]", "must hold rows"),
            ('[{"a": 1}, 2]', "row 2", "got int in place of object: 2"),
            ('[{"a": 1}', "UTF-8 JSON"),
            ('[{"a": 1}, {"": 2}]', "row 2", "a name"),
            ('[{"a": "\\ud800"}]', "row 1", "half a character"),
            ("", "JSON"),
            ("3", "got int"),
            *(
                (f'[{{"a": "], [}}"}}, {{}},  {{"a": {bad}}}, {{"a": 1}}]', "row 3", part)
                for bad, part in (
                    ("NaN", "NaN"),
                    ("1e999", "1e999"),
                    ("1e-999", "become 0"),
                    ('{"b": 1, "b": 2}', "'b'"),
                    ("[[-Infinity]]", "-Infinity"),
                    ("9" * 5000, "fit float64"),
                    ("1" + "0" * 309, "fit float64"),
                )
            ),
        )
    ],
    *[
        ("x.parquet", columns, words)
        for columns, *words in (
            ({"a": [0.5, math.nan]}, "row 2, column 'a'", "got nan", "null"),
            ({"a": [[0.5], [0.5, -math.inf]]}, "row 2", "got -inf"),
            ({"a": [{"x": math.nan}]}, "row 1", "got nan"),
            ({"a": pyarrow.array([math.inf], pyarrow.float32())}, "got inf"),
            (
                {
                    "a": pyarrow.array(
                        [[("x", 1.0), ("x", 2.0)]],
                        pyarrow.map_(pyarrow.string(), pyarrow.float64()),
                    )
                },
                "column 'a'",
                "values must be ones that Python knows",
            ),
            (pyarrow.table([[1], [2]], names=["a", "a"]), "'a' as columns 1 and 2"),
            (pyarrow.table([[1], [2]], names=["a", ""]), "'' as column 2"),
            ({"a": []}, "must hold rows"),
            ({}, "must have a column"),
            (pyarrow.table({"a": pyarrow.array([b"\xff"]).view(pyarrow.string())}), "UTF-8"),
        )
    ],
]


@pytest.mark.parametrize(
    "name, data, words", BAD, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(BAD)]
)
def test_bad_files(name, data, words):
    message = says(parquet_bytes(data) if name == "x.parquet" else data, name)
    assert all(word in message for word in words), message


def test_a_bad_line_is_named_wherever_it_is():
    good = [
        json.dumps({"i": i, "p": {"a": 0.5, "b": i / 7}}) for i in range(9000)
    ]  # more than a block
    for at in (0, 1, 4999, 8998, 8999):
        for bad in (
            "{",
            "[1]",
            "null",
            '{"i": 1} {"i": 2}',
            '{"i": NaN}',
            '{"i": 1, "i": 1}',
            '{"i": "\\udc00"}',
            '{"": 1}',
        ):
            assert says("\n".join([*good[:at], bad, *good[at + 1 :]]), "x.jsonl").startswith(
                f"read_table: x.jsonl, line {at + 1}: "
            )
    assert "line 8999: every line must be a JSON object; got a blank line" in says(
        "\n".join([*good[:-2], " ", good[-1]]), "x.jsonl"
    )


def test_no_files(tmp_path):
    os.mkdir(tmp_path / "d.csv")
    cases = {
        "absent.csv": "must exist",
        "d.csv": "a folder",
        "x.csv.zip": "unpack",
        "x.xlsx": "CSV",
        "x": "must end in",
        "x.txt": "'.txt'",
        ".csv": "must end in",
        "x" * 5000 + ".csv": "readable",
        "a\0b.csv": "readable",
    }
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "p.jsonl")
        cases["p.jsonl"] = "a pipe"
    for file, part in cases.items():
        with pytest.raises(ContractError, match="^read_table: ") as error:
            read_table(f"{tmp_path}/{file}")
        assert part in str(error.value) and not {"\n", "\0"} & {*str(error.value)}


# --- what fills the memory ----------------------------------------------------------------------------------------------------------------------
def test_keys_of_their_own():
    start = time.perf_counter()
    for name, data in (
        ("x.jsonl", "\n".join(f'{{"k{i}": 1}}' for i in range(20_000))),
        (
            "x.jsonl",
            "{" + ",".join(f'"k{i}": 1' for i in range(4096)) + "}\n" + "{}\n" * 300_000,
        ),
        ("x.json", "[" + ",".join(f'{{"k{i}": 1}}' for i in range(20_000)) + "]"),
    ):
        assert "rows must share their keys" in says(data, name)
    assert time.perf_counter() - start < 10
    wide = json.dumps({f"k{i}": i for i in range(6000)})
    assert len(parse_table(((wide + "\n") * 4).encode(), name="x.jsonl").names) == 6000
    assert (
        len(
            parse_table(
                "\n".join(f'{{"k{i}": 1}}' for i in range(1000)).encode(), name="x.jsonl"
            ).names
        )
        == 1000
    )


def test_parquet_that_would_fill_the_memory_is_refused():
    "Files of less than a megabyte: ten million equal numbers, and long texts, each stored once."
    rows = pyarrow.DictionaryArray.from_arrays(np.zeros(10**6, np.int8), [1.5]).cast(
        pyarrow.float64()
    )
    text = pyarrow.DictionaryArray.from_arrays(np.zeros(10**4, np.int8), ["x" * 10**5])
    for columns in (
        {name: rows for name in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"},
        {"a": text.cast(pyarrow.large_string())},
    ):
        data = parquet_bytes(columns, compression="zstd")
        assert len(data) < 10**6 and re.search(
            "at most 256 MiB in memory; got [0-9]+ MiB or more", says(data, "x.parquet")
        )


def test_every_cut_and_flipped_byte_is_refused_or_read():
    good = parquet_bytes(
        {"id": ["a", "b", "c"], "x": [0.5, 1.0, 2.0], "m": [{"k": 1}, {"k": 2}, None]}
    )
    for k in range(1, len(good), 7):
        assert "must be Parquet" in says(good[:k], "x.parquet")
    for i in range(len(good)):
        for bit in (0x01, 0x80):
            bad = bytearray(good)
            bad[i] ^= bit
            try:
                table = parse_table(bytes(bad), name="x.parquet").columns
            except ContractError:
                continue
            assert all(math.isfinite(x) for x in table.get("x", ()) if isinstance(x, float))
