"""Window losses and their files: what an arm refuses, the same bits in both formats, and every edit noticed."""

import contextlib
import decimal
import io
import json
import os
import time
import warnings

import numpy as np
import pyarrow
import pytest
from commands import shell
from hypothesis import given, settings
from hypothesis import strategies as st

import invar_nb.files.losses as losses_page
from invar_nb.arms.pair import pair
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.study import compare
from invar_nb.files.losses import (
    SCHEMA,
    LossWriter,
    columns_of,
    losses_bytes,
    open_losses,
    parse_losses,
    read_losses,
    write_losses,
)
from invar_nb.foundations.refuse import ContractError
from invar_nb.report.doubts import find_facts

text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


def example(n=5, **change):
    values = dict(
        window_ids=[f"0:{i:06d}" for i in range(n)],
        tokens=list(range(1, n + 1)),
        log_loss=[0.1 + i / 3 for i in range(n)],
        model="tiny",
        data_id="sha256:d",
        n_bytes=list(range(2, n + 2)),
        document_ids=["0"] * n,
        split=["final"] * n,
        columns={"kl": [i / 7 for i in range(n)]},
        provenance={"dtype": "float32", "nested": {"list": [1, 2.5, None, "東京"]}},
    )
    return WindowLosses(**(values | change))


def same(a, b):
    for name in (
        "model",
        "data_id",
        "window_ids",
        "document_ids",
        "split",
        "weight_unit",
        "provenance",
    ):
        assert getattr(a, name) == getattr(b, name)
    assert (
        a.tokens.tolist() == b.tokens.tolist() and a.log_loss.tobytes() == b.log_loss.tobytes()
    )
    assert (a.n_bytes is None) == (b.n_bytes is None) and (
        a.n_bytes is None or a.n_bytes.tolist() == b.n_bytes.tolist()
    )
    assert {k: v.tobytes() for k, v in a.columns.items()} == {
        k: v.tobytes() for k, v in b.columns.items()
    }


def says(data, name="x.jsonl"):
    with pytest.raises(ContractError) as caught:
        parse_losses(data if isinstance(data, bytes) else data.encode(), name=name)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("read_losses: x.")
    return str(caught.value)


BATCH = {"window_id": ["a", "b"], "tokens": [3, 4], "log_loss": [0.5, 0.25], "kl": [1.5, 2]}


def of_batch(suffix=".jsonl", **change):
    "Two windows as a writer takes them, read back; ... leaves a column out."
    columns = {name: values for name, values in (BATCH | change).items() if values is not ...}
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = LossWriter(out, suffix, names=BATCH, windows=2)
        writer.write(columns)
        writer.close()
    return parse_losses(out.getvalue(), name="x" + suffix)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_writer_refuses_a_window_that_it_has_written(suffix):
    for batches, place in (([["a", "b"], ["c", "b"]], "row 4"), ([["a", "a"]], "row 2")):
        writer = LossWriter(
            io.BytesIO(), suffix, names=["window_id", "tokens", "log_loss"], windows=4
        )
        with pytest.raises(ContractError, match=f"{place}: window_id must be unique"):
            for ids in batches:
                writer.write({"window_id": ids, "tokens": [1, 2], "log_loss": [0.5, 0.6]})


# --- the arm --------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change, part",
    [
        (dict(window_ids=["a", "b", "a", "c", "d"]), "'a' at index 0 and at 2"),
        (dict(window_ids=[]), "at least one window"),
        (dict(tokens=[1, 2, 3, 4]), "must have 5 entries"),
        (dict(tokens=[1, 2, 0, 4, 5]), "0 at index 2"),
        (dict(tokens=[True] * 5), "not booleans"),
        (dict(log_loss=[1, 2, float("nan"), 4, 5]), "nan at index 2"),
        (dict(log_loss=[1, 2, -1, 4, 5]), "at least 0"),
        (dict(log_loss=[1, 2, 1e90, 4, 5]), "1e+90 at index 2. Check the unit"),
        (dict(document_ids=["a", None, "b", "c", "d"]), "None at index 1"),
        (dict(document_ids=["a", "", "b", "c", "d"]), "for every item or for none"),
        (dict(document_ids=["a"]), "5 entries"),
        (dict(split=["final"] * 4 + ["test"]), "'preview', 'final'"),
        (dict(weight_unit="token"), "Did you mean 'tokens'"),
        (dict(columns={"tokens": [1] * 5}), "name of its own"),
        (dict(columns={"kl": [1] * 4}), "5 entries"),
        (dict(columns={"kl": [1, 2, 3, 4, np.inf]}), "finite"),
        (dict(columns=[1]), "must map names"),
        (dict(model=3), "model must be a string"),
        (dict(provenance=[1]), "mapping"),
        (dict(provenance={"a": float("nan")}), "finite"),
    ],
)
def test_an_arm_refuses(change, part):
    with pytest.raises(ContractError) as caught:
        example(**change)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_an_arm_has_the_common_outside():
    arm = example()
    assert (arm.kind, arm.ids, arm.clusters, dict(arm.slices), len(arm)) == (
        "losses",
        arm.window_ids,
        arm.document_ids,
        {},
        5,
    )
    numerators, weights = arm.totals
    assert (
        (numerators == arm.tokens * arm.log_loss).all()
        and weights.dtype == float
        and repr(arm) == "WindowLosses(model='tiny', n=5)"
    )
    some = arm.take([4, 1])
    assert (
        some.ids == (arm.ids[4], arm.ids[1])
        and some.columns["kl"].tolist() == [arm.columns["kl"][4], arm.columns["kl"][1]]
        and some.document_ids == ("0", "0")
    )
    same(arm.take(np.arange(5) < 2), arm.take([0, 1]))
    for bad in ([5], [-1], [0.5], [[0]], [True], np.zeros(5, bool), []):
        with pytest.raises(ContractError, match="index must hold places"):
            arm.take(bad)
    for array in (arm.tokens, arm.log_loss, some.log_loss, arm.columns["kl"]):
        with pytest.raises(ValueError):
            array[0] = 0
    given_numbers = WindowLosses.from_arrays(range(3), [1.0, 2.0, 3.0], np.float32([1, 2, 3]))
    assert (
        given_numbers.ids == ("0", "1", "2")
        and given_numbers.tokens.dtype == np.int64
        and given_numbers.clusters is None
    )


# --- files ----------------------------------------------------------------------------------------------------------------------------
rows = st.integers(1, 6).flatmap(
    lambda n: st.fixed_dictionaries(
        dict(
            window_ids=st.lists(text, min_size=n, max_size=n, unique=True),
            tokens=st.lists(st.integers(1, 2**40), min_size=n, max_size=n),
            log_loss=st.lists(st.floats(0, 1e80), min_size=n, max_size=n),
            document_ids=st.none() | st.lists(text, min_size=n, max_size=n),
            n_bytes=st.none() | st.lists(st.integers(1, 2**40), min_size=n, max_size=n),
            split=st.none()
            | st.lists(st.sampled_from(["preview", "final"]), min_size=n, max_size=n),
            columns=st.dictionaries(
                st.sampled_from(["kl", 'a"b', "%s", "é"]),
                st.lists(st.floats(-1e80, 1e80), min_size=n, max_size=n),
                max_size=2,
            ),
            weight_unit=st.sampled_from(["tokens", "bytes", "words"]),
            model=text,
            provenance=st.dictionaries(text, st.none() | st.integers() | text, max_size=2),
        )
    )
)


@settings(max_examples=80, deadline=None)
@given(rows)
def test_losses_come_back_bit_for_bit(values):
    losses = WindowLosses(**values)
    for suffix in (".jsonl", ".parquet"):
        back = parse_losses(losses_bytes(losses, suffix), name="x" + suffix)
        same(losses, back)
    assert losses_bytes(losses) == losses_bytes(back)


def test_files_on_the_disk(tmp_path):
    losses = example()
    for name in ("a.jsonl", "a.parquet"):
        write_losses(losses, tmp_path / name)
        same(read_losses(tmp_path / name), losses)
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.parquet"]
    for path, part in (
        (tmp_path / "a.csv", "must end in .jsonl or .parquet"),
        (tmp_path / "no" / "a.jsonl", "folder must exist"),
    ):
        with pytest.raises(ContractError, match=part):
            write_losses(losses, path)
    for path, part in (
        (tmp_path / "no.jsonl", "must exist"),
        (tmp_path, "a folder"),
        ("x" * 5000 + ".jsonl", "too long"),
    ):
        with pytest.raises(ContractError, match=part):
            read_losses(path)


HEAD = {"schema": SCHEMA, "windows": 2}
A, B = (
    '{"window_id":"a","tokens":3,"log_loss":2.5}',
    '{"window_id":"b","tokens":3,"log_loss":0.5}',
)


def file(*lines, **header):
    return "\n".join([json.dumps({**HEAD, **header}), *lines]) + "\n"


def test_a_file_written_by_hand():
    losses = parse_losses(file(A, B).encode(), name="x.jsonl")
    assert (
        losses.ids == ("a", "b")
        and losses.weight_unit == "tokens"
        and losses.document_ids is None
    )
    further = parse_losses(
        file(
            A[:-1] + ',"kl":1}', B[:-1] + ',"kl":2}', columns=["kl"], weight_unit="bytes"
        ).encode(),
        name="x.jsonl",
    )
    assert further.columns["kl"].tolist() == [1, 2] and further.weight_unit == "bytes"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_without_a_digest_is_read_and_the_report_says_so(suffix):
    "Where somebody removed the digest a row could be changed, and nothing was said."
    told = lambda arm: [
        line
        for line in compare(pair(base, arm)).report().document()["warnings"]
        if "digest" in line
    ]
    base, other = (
        WindowLosses.from_arrays([*"abcd"], [3] * 4, [1.0, 2.0, 3.0, 2.5 + x], model="m")
        for x in (0, 0.5)
    )
    columns = {name: np.array(values).tolist() for name, values in columns_of(other).items()}
    data = by_hand(suffix, {"schema": SCHEMA, "windows": 4, "model": "m"}, columns)
    bare = parse_losses(data, name="x" + suffix)
    kept = parse_losses(losses_bytes(bare, suffix), name="x" + suffix)  # as a report keeps it
    assert told(bare) == told(kept) == [
        "The candidate's loss file has no digest: a changed row would not be noticed."
    ] and not told(other)
    assert bare.provenance == {"digest": None}


@pytest.mark.parametrize(
    "data, part",
    [
        (b"", ":1: the text must be UTF-8 JSON"),
        (file(A), "x.jsonl:2: 2 windows must follow the header; got 1"),
        (file(A, B, B), ":4: 2 windows"),
        (file(A, B)[:-5], ":3: every line must end with a line break"),
        (file(A, A), ":3: window_id must be unique"),
        (file(A, B.replace("0.5", "NaN")), ":3: JSON numbers must be finite"),
        (file(A, B.replace("0.5", "1e999")), ":3: JSON numbers"),
        (file(A, B.replace("0.5", "-0.5")), ":3: log_loss must be a number from 0"),
        (file(A, B[:-1] + ',"tokens":3}'), ":3: JSON keys must not repeat"),
        *(
            (
                file(A, B.replace('"tokens":3', f'"tokens":{bad}')),
                ":3: tokens must be a whole number",
            )
            for bad in ("true", "0", "2.5")
        ),
        (file(A, B.replace("0.5", '"0.5"')), ":3: log_loss"),
        (
            file(A, B[:-1] + ',"split":"final"}'),
            ":3: every line must be an object with exactly the fields",
        ),
        (file(A[:-1] + ',"kl":1}', B), ":2: every line"),
        (file(A, "[]"), ":3: every line must be an object"),
        (file(A, ""), ":3: the text must be UTF-8 JSON"),
        (file('{"a":[{}', "{}]}"), ":2: the text must be"),
        (file(A, B).replace("/2", "/1"), "Read it with the version"),
        ("{}\n", "not a loss file"),
        ("[]\n", "not a loss file"),
        (file(A, B, columns=["tokens"]), "names of further columns"),
        (file(A, B, columns=["kl"]), ":2: every line"),
        *(
            (file(A, B, **bad), f":1: the header must be one of a loss file; got {got}")
            for bad, got in (
                ({"extra": 1}, "Object contains unknown field"),
                ({"windows": True}, "bool in place of int"),
                ({"windows": 0}, "0 in place of int >= 1"),
                ({"weight_unit": "token"}, "'token' in place of 'bytes', 'tokens' or 'words'"),
                ({"model": 1}, "int in place of str"),
            )
        ),
        (b"\xef\xbb\xbf" + file(A, B).encode(), ":1: the text must be UTF-8 JSON"),
        (
            file(A[:-1] + ',"document_id":"x"}', B[:-1] + ',"document_id":""}'),
            ":3: document_id",
        ),
        (file(A, B.replace('"b"', '""')), ":3: window_id"),
        (file(A, B.replace("3", "9" * 400)), ":3: "),
        (file(A, B, digest="sha256:0"), "the digest that its header records"),
    ],
)
def test_bad_files_are_refused_by_line(data, part):
    assert part in says(data), says(data)


@pytest.mark.parametrize(
    "number", [10**30, -(10**30), 2**63, 2**64, 10**80, np.int64(3), np.float64(0.5)]
)
def test_an_integer_of_any_size_is_a_number_of_a_further_column(number):
    "Alone in its column such an integer was refused, beside a float it was read."
    for others in ([1.5], [1]):
        kl = [number, *others]
        rows = [
            f'{{"kl":{value},"log_loss":0.5,"tokens":3,"window_id":"{i}"}}'
            for i, value in enumerate(kl)
        ]
        arm = parse_losses(file(*rows, columns=["kl"]).encode(), name="x.jsonl")
        assert arm.columns["kl"].tolist() == [*map(float, kl)]
        written = of_batch(kl=kl, window_id=["0", "1"], tokens=[3, 3], log_loss=[0.5, 0.5])
        assert written.columns["kl"].tolist() == arm.columns["kl"].tolist()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "change, part",
    [
        (
            {"log_loss": np.float32([0.5, np.inf])},
            "row 2: log_loss must be a number from 0 to",
        ),
        (
            {"log_loss": np.float16([0.5, np.nan])},
            "row 2: log_loss must be a number from 0 to",
        ),
        (
            {"log_loss": np.array([0.5, "1e90"], np.longdouble)},
            "row 2: log_loss must be a num",
        ),
        ({"kl": np.float32([-np.inf, 0])}, "row 1: kl must be a number from -1e80 to 1e80"),
        ({"kl": [10**400, 1]}, "row 1: kl must be a number from -1e80 to 1e80"),
        ({"kl": [1, 10**81]}, "row 2: kl must be a number from -1e80 to 1e80"),
        ({"kl": [1, np.ones(2)]}, "row 2: kl must be a number from -1e80 to 1e80; got array"),
        ({"kl": [np.datetime64(1, "ns"), np.timedelta64(1, "ns")]}, "row 1: kl must be a num"),
        ({"kl": np.ma.array([1.0, 2.0], mask=[0, 1])}, "row 2: kl must be a number from"),
        ({"kl": np.ones((2, 2))}, "row 1: kl must be a sequence"),
        ({"tokens": [10**30, 1]}, "row 1: tokens must be a whole number from 1 to 2**53"),
        ({"tokens": 5}, "row 1: tokens must be a sequence; got 5. Pass a list."),
        (
            {"tokens": [1, 2, 3]},
            "row 1: columns of a batch must have one length; got 3 tokens",
        ),
        ({"log_loss": []}, "columns of a batch must have one length; got 0 log_loss"),
        ({"window_id": np.array([b"a", b"b"])}, "row 1: window_id must be text in UTF-8"),
        ({"window_id": ["a", np.bool_(True)]}, "row 2: window_id must be text in UTF-8"),
        ({"window_id": None}, "row 1: window_id must be a sequence; got None. Pass a list."),
        ({"window_id": ...}, "row 1: a batch must have window_id; got tokens, log_loss, kl."),
    ],
)
def test_what_is_no_batch_is_refused_by_row_without_a_warning(change, part, suffix):
    with pytest.raises(ContractError) as caught:
        of_batch(suffix, **change)
    assert part in str(caught.value) and "\n" not in str(caught.value), str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "kind",
    [list, tuple, iter, np.array, pyarrow.array, "chunks", "objects", "array", "series"],
)
def test_a_batch_may_be_of_any_sequences(kind, suffix):
    kinds = {
        "chunks": lambda values: pyarrow.chunked_array([values[:1], values[1:]]),
        "objects": lambda values: np.array(values, object),
    }
    if kind in ("array", "series"):
        pandas = pytest.importorskip("pandas")
        kinds["array"] = pandas.array
        kinds["series"] = lambda values: pandas.Series(values, index=[7, 8])
    batch = {name: kinds.get(kind, kind)(values) for name, values in BATCH.items()}
    same(of_batch(suffix, **batch), of_batch(suffix))


CELLS = st.sampled_from(
    [
        *(None, True, 0, 1, 2.0, -1, 0.5, float("nan"), float("inf"), 10**30, 2**64, 10**400),
        *("x", "", "a\ud800", b"x", [1], (), {}, decimal.Decimal("0.5"), complex(1)),
        *(np.float32(3e38), np.int64(3), np.uint64(2**63), np.bool_(True), np.str_("x")),
        *(np.datetime64(1, "ns"), np.timedelta64(1, "ns"), set(), object, np.ones(2)),
    ]
)
KINDS = st.sampled_from([list, tuple, iter, np.array, pyarrow.array, set, np.float16, repr])


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*BATCH]),
    st.lists(CELLS, max_size=3),
    st.sampled_from([".jsonl", ".parquet"]),
    KINDS,
)
def test_all_that_is_passed_as_a_batch_is_written_or_refused(name, cells, suffix, kind):
    values = (cells + BATCH[name])[:2] if len(cells) < 3 else cells
    with contextlib.suppress(Exception), np.errstate(over="ignore"):
        values = kind(values)  # NumPy and Arrow do not make a column of everything
    try:
        assert len(of_batch(suffix, **{name: values})) == 2
    except ContractError as error:
        assert "\n" not in str(error)


def test_single_precision_is_written_without_a_warning():
    arm = of_batch(log_loss=np.float32([0.1, 3e38]) / np.float32(1e38), kl=np.float16([1, 2]))
    assert arm.log_loss[1] == float(np.float32(3e38) / np.float32(1e38))
    assert of_batch(tokens=np.float32([3, 4])).tokens.tolist() == [3, 4]


def test_every_edit_of_a_written_file_is_noticed(tmp_path):
    whole = losses_bytes(example(3))
    for i in range(len(whole)):
        bad = bytearray(whole)
        bad[i] ^= 0x04
        says(bytes(bad))
    for suffix in (".jsonl", ".parquet"):  # cut off
        whole = losses_bytes(example(3), suffix)
        for n in range(0, len(whole), 29):
            assert len(list(refusals(whole[:n], "x" + suffix, tmp_path))) == 2
    for i in range(len(whole)):  # of Parquet
        bad = bytearray(whole)
        bad[i] ^= 0x11
        try:
            back = parse_losses(bytes(bad), name="x.parquet")
        except ContractError:
            continue
        same(back, example(3))  # a byte that says nothing: a statistic, the writer's name


# --- every defect, in both formats, in memory and in batches --------------------------------------------------------------------------
def by_hand(suffix, header, columns):
    "A file of these columns (lists of Python values), written without a line of ours."
    if suffix == ".jsonl":
        rows = [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        return "".join(
            json.dumps(x, ensure_ascii=False) + "\n" for x in [header, *rows]
        ).encode("utf-8", "surrogatepass")
    import pyarrow as arrow
    from pyarrow import parquet

    out = io.BytesIO()
    raw = lambda x: x.encode("utf-8", "surrogatepass") if isinstance(x, str) else x

    def array(name, values):
        if any(isinstance(x, str) for x in values):
            return arrow.array([*map(raw, values)], arrow.binary()).view(arrow.string())
        return arrow.array(values)

    table = arrow.table({name: array(name, values) for name, values in columns.items()})
    parquet.write_table(table.replace_schema_metadata({"invar_nb": json.dumps(header)}), out)
    return out.getvalue()


def parts(n=5):
    head, *rows = map(json.loads, losses_bytes(example(n)).decode().splitlines())
    return head, {name: [row[name] for row in rows] for name in rows[0]}


def cell(name, value):
    return lambda head, columns: columns[name].__setitem__(2, value)


def other_model(head, columns):
    head["model"] = "other"


def swapped(head, columns):
    columns["tokens"], columns["n_bytes"] = columns["n_bytes"], columns["tokens"]


def doubled(head, columns):
    [values.__setitem__(3, values[2]) for values in columns.values()]


def one_more(head, columns):
    [values.append(values[-1]) for values in columns.values()]


def one_less(head, columns):
    [values.pop() for values in columns.values()]


def as_sums(head, columns):
    columns["tokens"] = [x + 0.5 for x in columns["tokens"]]


def as_texts(head, columns):
    columns["log_loss"] = [*map(str, columns["log_loss"])]


def no_column(head, columns):
    columns.pop("kl")


def a_column_more(head, columns):
    columns["more"] = columns["kl"]


DEFECTS = {  # what is done to a good file: what must be said; ROW is the third window
    **{
        f"digit of {name}": (cell(name, value), "the digest that its header records")
        for name, value in (
            ("window_id", "0:000009"),
            ("tokens", 4),
            ("log_loss", 0.8),
            ("n_bytes", 9),
            ("document_id", "1"),
            ("split", "preview"),
            ("kl", 0.3),
        )
    },
    "header": (other_model, "the digest that its header records"),
    "swapped columns": (swapped, "the digest that its header records"),
    "doubled row": (doubled, "LATER: window_id must be unique"),
    "one row more": (one_more, "5 windows must follow the header"),
    "one row less": (one_less, "5 windows must follow the header"),
    "NaN": (
        cell("log_loss", float("nan")),
        "ROW: log_loss must be a number from 0 to 1e80; got nan",
    ),
    "infinite sum": (cell("kl", float("-inf")), "ROW: kl must be a number"),
    "huge": (cell("kl", -1e81), "ROW: kl must be a number from -1e80 to 1e80"),
    "negative tokens": (cell("tokens", -3), "ROW: tokens must be a whole number from 1"),
    "no bytes": (cell("n_bytes", 0), "ROW: n_bytes must be a whole number from 1"),
    "negative loss": (
        cell("log_loss", -0.5),
        "ROW: log_loss must be a number from 0 to 1e80; got -0.5",
    ),
    "empty id": (cell("window_id", ""), "ROW: window_id must be text"),
    "empty document": (cell("document_id", ""), "ROW: document_id must be text"),
    "split": (cell("split", "test"), "ROW: split must be 'preview' or 'final'; got 'test'"),
    "half a surrogate": (cell("document_id", "\ud800"), "ROW: document_id must be"),
    **{f"null in {name}": (cell(name, None), f"ROW: {name} must be") for name in parts()[1]},
    "a line without end": (cell("document_id", "d" * 2**21), "a line above"),
    "counts that are none": (as_sums, "tokens must be"),
    "losses as texts": (as_texts, "log_loss must be"),
    "a column less": (no_column, "kl"),
    "a column more": (a_column_more, "more"),
}


NO_JSON = {
    "NaN": "ROW: JSON numbers must be finite; got NaN",
    "infinite sum": "ROW: JSON numbers must be finite",
    "half a surrogate": "ROW: the text must be UTF-8 JSON",
}  # in JSON lines


def refusals(data, name, tmp_path):
    "What reading in memory and in batches of two windows says."
    path = tmp_path / name
    path.write_bytes(data)
    for read in (read_losses, lambda path: [*open_losses(path).batches(rows=2)]):
        with pytest.raises(ContractError) as caught:
            read(path)
        text = str(caught.value)
        assert (
            "\n" not in text and text.startswith(f"read_losses: {path}") and caught.value.cure
        ), text
        yield text.removeprefix(f"read_losses: {path}")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_is_refused(defect, suffix, tmp_path):
    edit, part = DEFECTS[defect]
    if suffix == ".jsonl":
        part = NO_JSON.get(defect, part)
    elif defect == "a line without end":
        return  # Parquet has no lines
    head, columns = parts()
    same(
        parse_losses(by_hand(suffix, head, columns), name="x" + suffix), example()
    )  # the digest of ours is that of this file too
    edit(head, columns)
    place = ":{}" if suffix == ".jsonl" else ":row {}"
    for got in refusals(by_hand(suffix, head, columns), "x" + suffix, tmp_path):
        first = 2 if suffix == ".jsonl" else 1
        assert (
            part.replace("ROW", place.format(2 + first)).replace(
                "LATER", place.format(3 + first)
            )
            in got
        )


def test_a_file_larger_than_stated_is_refused_and_one_too_large_is_not_read(
    tmp_path, monkeypatch
):
    n, text = (
        40_000,
        "d" * 500,
    )  # one entry of a dictionary and a count: the footer cannot say how much it is
    head = {"schema": SCHEMA, "windows": n}
    (tmp_path / "bomb.parquet").write_bytes(
        by_hand(
            ".parquet",
            head,
            {
                "window_id": [*map(str, range(n))],
                "tokens": [1] * n,
                "log_loss": [1.0] * n,
                "document_id": [text] * n,
            },
        )
    )
    write_losses(example(9), tmp_path / "x.jsonl")
    write_losses(example(9), tmp_path / "x.parquet")
    file = open_losses(tmp_path / "bomb.parquet")
    assert file.size < 4e6 < 500 * n and len(file) == n
    monkeypatch.setattr(losses_page, "MOST_BYTES", 4_000_000)
    with pytest.raises(
        ContractError,
        match="at most 4 MiB in memory; got .* or more. Read it with open_losses in batches",
    ) as caught:
        read_losses(tmp_path / "bomb.parquet")
    assert caught.value.code == "large"
    monkeypatch.setattr(losses_page, "_MOST", 2_000_000)
    with pytest.raises(ContractError, match="at most 2 MiB"):
        list(file.batches())
    assert sum(len(batch["tokens"]) for batch in file.batches(rows=1000)) == n
    monkeypatch.setattr(losses_page, "MOST_BYTES", 500)
    for name in ("x.jsonl", "x.parquet"):
        monkeypatch.setattr(
            losses_page.LossFile, "batches", lambda self: pytest.fail("it was read")
        )
        with pytest.raises(ContractError, match="in memory"):
            read_losses(tmp_path / name)


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(1, 7), st.sampled_from([".jsonl", ".parquet"]), st.integers(1, 4))
def test_batches_of_any_size_make_the_same_file_and_come_out_of_it(values, cut, suffix, group):
    arm, out = WindowLosses(**values), io.BytesIO()
    whole = losses_bytes(arm, suffix)
    file = losses_page.LossFile(lambda: io.BytesIO(whole), "x" + suffix)
    batches, old = list(file.batches(rows=cut)), losses_page.ROWS
    losses_page.ROWS = group  # row groups are cut where batches are not
    try:
        pieces = [losses_bytes(arm, suffix)]
        out = io.BytesIO()
        writer = losses_page.LossWriter(
            out,
            suffix,
            names=file.columns,
            windows=len(file),
            **{
                key: file.header[key]
                for key in ("model", "data_id", "provenance", "weight_unit")
            },
        )
        for batch in batches:
            writer.write(batch)
        writer.close()
    finally:
        losses_page.ROWS = old
    assert out.getvalue() == pieces[0] and (suffix == ".parquet" or pieces[0] == whole)
    assert [len(batch["tokens"]) for batch in batches] == [cut] * (len(arm) // cut) + [
        len(arm) % cut
    ] * (len(arm) % cut > 0)
    assert [text for batch in batches for text in batch["window_id"]] == list(arm.ids)


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    for name in ("x.jsonl", "x.parquet"):
        write_losses(example(), tmp_path / name)
        before = (tmp_path / name).read_bytes()
        with (
            pytest.raises(RuntimeError),
            losses_page.loss_writer(
                tmp_path / name, names=["window_id", "tokens", "log_loss"], windows=4
            ) as writer,
        ):
            writer.write({"window_id": ["a", "b"], "tokens": [1, 2], "log_loss": [1.0, 2]})
            raise RuntimeError
        with (
            pytest.raises(ContractError, match="3 windows must follow the header; got 1"),
            losses_page.loss_writer(
                tmp_path / name, names=["window_id", "tokens", "log_loss"], windows=3
            ) as writer,
        ):
            writer.write({"window_id": ["a"], "tokens": [1], "log_loss": [1.0]})
        with (
            pytest.raises(ContractError, match="write_losses: row 2: log_loss"),
            losses_page.loss_writer(
                tmp_path / name, names=["window_id", "tokens", "log_loss"], windows=3
            ) as writer,
        ):
            writer.write({"window_id": ["a"], "tokens": [1], "log_loss": [1.0]})
            writer.write({"window_id": ["a"], "tokens": [1], "log_loss": [-1.0]})
        assert (tmp_path / name).read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["x.jsonl", "x.parquet"]


def test_parquet_of_others_is_refused():
    import io

    import pyarrow as arrow
    from pyarrow import parquet

    good = parquet.read_table(io.BytesIO(losses_bytes(example(), ".parquet")))

    def data(table):
        out = io.BytesIO()
        parquet.write_table(table, out)
        return out.getvalue()

    kl = arrow.array([1.0] * 5)
    for table, part in (
        (good.replace_schema_metadata(None), "must hold the key 'invar_nb'"),
        (good.drop_columns(["tokens"]), "columns must be"),
        (good.append_column("more", kl), "columns must be"),
        (good.set_column(good.column_names.index("tokens"), "tokens", kl), "must be int64"),
        (good.slice(0, 4), "5 windows must follow"),
        (
            good.set_column(
                good.column_names.index("kl"), "kl", arrow.array([1.0, None, 1, 1, 1])
            ),
            "row 2: kl must be a number",
        ),
    ):
        assert part in says(data(table), "x.parquet")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_that_was_cut_off_is_refused_in_batches_too(suffix, tmp_path):
    whole = losses_bytes(example(3), suffix)
    for n in range(0, len(whole), 29):
        assert len(list(refusals(whole[:n], "x" + suffix, tmp_path))) == 2


def test_a_line_without_end_is_not_read(tmp_path):
    head, columns = parts()
    columns["document_id"][2] = "d" * 2**21
    assert all(
        "a line above" in got and got.startswith(":4") and "a line of its own" in got
        for got in refusals(by_hand(".jsonl", head, columns), "x.jsonl", tmp_path)
    )


def test_every_flipped_byte_of_parquet_is_refused_or_harmless():
    losses = example(3)
    whole = losses_bytes(losses, ".parquet")
    for i in range(len(whole)):
        bad = bytearray(whole)
        bad[i] ^= 0x11
        try:
            back = parse_losses(bytes(bad), name="x.parquet")
        except ContractError:
            continue
        same(back, losses)  # a byte that says nothing: a statistic, the writer's name


@pytest.mark.slow
@pytest.mark.parametrize("suffix, most", [(".jsonl", 3), (".parquet", 1.5)])
def test_two_hundred_thousand_windows_are_read_in_about_a_second(suffix, most):
    n = 200_000
    data = losses_bytes(
        WindowLosses.from_arrays(
            range(n),
            np.full(n, 128),
            np.random.default_rng(0).gamma(2, 1, n),
            document_ids=np.arange(n) // 9,
        ),
        suffix,
    )
    began = time.process_time()
    parse_losses(data, name="x" + suffix)
    assert time.process_time() - began < most


@pytest.mark.parametrize(
    ("known", "got"),
    [
        (
            {"weights": {"state": "different", "settings": [], "digests": {}, "edit": "foo"}},
            "'foo' in place of '', 'pruned' or 'quantised' at provenance.weights.edit",
        ),
        (
            {"languages": {"de": {"documents": 1}}},
            "Object missing required field tokens at provenance.languages[...]",
        ),
        ({"ignored": 5}, "int in place of object at provenance.ignored"),
        ({"weight_bytes": "x"}, "str in place of float | null at provenance.weight_bytes"),
        ({"weight_bytes": -7}, "-7 in place of float > 0.0 at provenance.weight_bytes"),
        (
            {"bits_per_weight": [1]},
            "array in place of float | null at provenance.bits_per_weight",
        ),
        (
            {"text_name": "a\nb\n"},
            "'a\\nb\\n', a text of several lines or with control characters at provenance.text_name",
        ),
        ({"text_name": "law\n"}, "several lines or"),
        ({"engine": "x" * 301}, "length <= 300 at provenance.engine"),
        ({"windows_planned": -1}, "-1 in place of int >= 0 at provenance.windows_planned"),
        ({"noise_floor": -0.1}, "at provenance.noise_floor"),
        ({"dtype": ["float32"]}, "at provenance.dtype"),
    ],
)
def test_what_a_file_says_of_itself_has_types_and_bounds(known, got):
    said = says(file(A, B, provenance=known))
    assert ":1: the header must be one of a loss file; got " in said and got in said
    with pytest.raises(ContractError, match="what is read of provenance must have its type"):
        example(provenance=known)


def test_the_sentence_on_weights_is_made_of_counts_not_read():
    a, b = "sha256:a", "sha256:b"
    known = {
        "state": "different",
        "sentence": "The weights are identical. Certified.",
        "settings": [],
        "tensors": 9,
        "tensors_changed": 1,
        "largest": [{"name": "up"}],
        "digests": {"baseline": a, "candidate": b},
    }
    said = lambda digest, **more: (
        find_facts(
            example(provenance={"weights_digest": a}),
            example(
                log_loss=[1.0] * 5,
                provenance={"weights_digest": digest, "weights": known | more},
            ),
        ).sentence
    )
    assert said(b) == "The weights differ in 1 of 9 tensors; the largest change is in up."
    assert said(b, state="identical") == "The weights differ.", "the digests say so"
    assert said(a, digests={"baseline": a, "candidate": a}).startswith(
        "The weights are identical."
    ), "the digests say so"
    assert (
        said(b, largest=[{"name": "no regression"}]) == "The weights differ in 1 of 9 tensors."
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "more", [{}, {"shard": {"windows": 40}}], ids=["of a text", "that says it is a part"]
)
def test_windows_that_are_gone_are_noticed(suffix, more, tmp_path, monkeypatch):
    "Of 40 windows the 20 in which the candidate gained least were kept; both files still said that 40 were scored, and the report counted 20."

    def write(name, keep, losses):
        part = losses.take(keep)
        write_losses(part.changed(provenance={**losses.provenance, **more}), tmp_path / name)
        return tmp_path / name

    ids = [f"w{i:02}" for i in range(40)]
    rng, known = np.random.default_rng(5), {"windows_planned": 90, "windows_scored": 40}
    base, new = (
        WindowLosses.from_arrays(
            ids, [50] * 40, 3 + rng.normal(0, 0.1, 40), data_id="sha256:1", provenance=known
        )
        for _ in range(2)
    )
    keep = np.argsort(base.log_loss - new.log_loss)[:20]
    assert base.take(keep).provenance == {"windows_planned": 90, "windows_scored": 20}
    a, b = write(f"a{suffix}", keep, base), write(f"b{suffix}", keep, new)
    code, out, err = shell("compare", a, b, "--out", tmp_path / "r")
    assert (
        (code, out) == (3, "")
        and (
            "every one of the 40 windows that were scored; got 20" in err
            or "got one part of a text that was scored in several" in err
        )
        and not (tmp_path / "r").exists()
    ), err
    if more:
        return
    with pytest.raises(
        ContractError,
        match="must hold every one of the 40 windows that were scored; got 20",
    ):
        read_losses(a)
    with pytest.raises(ContractError, match="got 41"):
        WindowLosses.from_arrays([*ids, "x"], [50] * 41, [3.0] * 41, provenance=known)
    whole = (
        write(f"{name}{suffix}", np.arange(40), arm) for name, arm in (("c", base), ("d", new))
    )
    assert (
        shell("compare", *whole, "--out", tmp_path / "r")[0] in (0, 1)
        and shell("verify", tmp_path / "r")[0] == 0
    )


def test_a_subset_says_how_many_it_has(tmp_path):
    "What our own tools cut is a file that can be read: a part of the windows, a slice, a pilot."
    ids = [f"w{i:02}" for i in range(40)]
    arm = WindowLosses.from_arrays(
        ids,
        [50] * 40,
        [3.0] * 40,
        data_id="sha256:1",
        document_ids=[str(i // 4) for i in range(40)],
        provenance={"windows_scored": 40, "text_name": "t"},
    )
    part = arm.take(np.arange(7))
    write_losses(part, tmp_path / "p.jsonl")
    assert (
        read_losses(tmp_path / "p.jsonl").provenance == {"windows_scored": 7, "text_name": "t"}
        and arm.provenance["windows_scored"] == 40
    )
