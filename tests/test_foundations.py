"""Numbers, intervals and the weighted mean under generated inputs: what a page cannot try one by one.

Referees: exact rational arithmetic (Fraction), and the interpreter's own list of imported modules."""

import json
import math
import pickle
import sqlite3
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from invar_nb.foundations.interval import Fallback, Interval
from invar_nb.foundations.refuse import (
    ContractError,
    PairingError,
    as_choice,
    as_count,
    as_counts,
    as_fraction,
    as_names,
    as_vector,
    refuse,
    shown_pair,
)
from invar_nb.foundations.store import canonical_json, strict_json
from invar_nb.statistics.totals import (
    as_pairs,
    effective_sample_size,
    spread_is_rounding,
    weighted_mean,
)

settings.register_profile(
    "fixed", deadline=None, derandomize=True
)  # the same examples on every machine, however busy
settings.load_profile("fixed")

WHERE = dict(where="test", name="x")
finite = st.floats(allow_nan=False, allow_infinity=False)
losses = st.floats(-20, 20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | finite
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def refused(act, *words):
    "One line, and the words in it."
    with pytest.raises(ContractError) as error:
        act()
    message = str(error.value)
    assert "\n" not in message and "; got " in message and message.endswith((".", "?")), (
        message
    )
    for word in words:
        assert word in message, message
    assert error.value.code and f"; got {error.value.culprit}. {error.value.cure}" in message
    return message


def reordered(value):
    "The same value with every mapping written in the opposite order."
    if isinstance(value, dict):
        return {k: reordered(value[k]) for k in reversed(list(value))}
    return [reordered(v) for v in value] if isinstance(value, list) else value


def identical(a, b):
    "Equal in type and value, the sign of zero included; mappings in any order."
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


# --- JSON -----------------------------------------------------------------------------------------------------------------------------
@given(values)
def test_json_returns_the_value_in_one_spelling(value):
    text = canonical_json(value)
    assert identical(strict_json(text, where="test"), value)
    assert identical(
        strict_json(canonical_json(value, indent=1).encode(), where="test"), value
    )
    assert (
        canonical_json(reordered(value)) == text
        and canonical_json(strict_json(text, where="test")) == text
    )
    if "\\u0000" not in text:
        assert sqlite3.connect(":memory:").execute(
            "select json_valid(?)", [text]
        ).fetchone() == (1,)  # SQLite ends text at NUL


@given(
    st.lists(st.sampled_from(["a", "b", 0, 1]), max_size=6),
    st.sampled_from(
        [math.nan, math.inf, -math.inf, np.float32("nan"), np.array([1.0, np.inf])]
    ),
)
def test_json_refuses_what_is_not_finite_wherever_it_is(path, culprit):
    value = culprit
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [0] * step + [value]
    shown = "$" + "".join(f".{s}" if isinstance(s, str) else f"[{s}]" for s in path)
    refused(lambda: canonical_json(value), "canonical_json", f" at {shown}")


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        '{"a":-Infinity}',
        "1e999",
        "-1e999",
        '{"a":1,"b":{"c":1,"c":1}}',
        "",
        "{",
        "[1,]",
        "1 2",
        b"\xff",
        b"\xef\xbb\xbf1",
        "'a'",
    ],
)
def test_strict_json_refuses(text):
    refused(lambda: strict_json(text, where="read_report"), "read_report")


@given(values, st.data())
def test_one_cut_is_noticed(value, data):
    text = canonical_json({"value": value})
    refused(
        lambda: strict_json(text[: data.draw(st.integers(0, len(text) - 1))], where="test"),
        "test",
    )


# --- admission ------------------------------------------------------------------------------------------------------------------------
anything = st.one_of(
    finite,
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.fractions(),
    st.just(1j),
    st.lists(st.integers(), max_size=1),
)


@given(st.lists(anything, max_size=6))
def test_vectors_are_admitted_exactly_when_they_are_finite_numbers(items):
    def is_number(v):
        if not isinstance(v, (int, float, Fraction)) or isinstance(v, bool):
            return False
        try:
            return math.isfinite(float(v))
        except OverflowError:
            return False

    if not all(map(is_number, items)):
        refused(lambda: as_vector(items, **WHERE), "test: x ")
    elif all(not isinstance(v, int) or abs(v) <= 2**53 for v in items):
        got = as_vector(items, **WHERE)
        assert (
            got.dtype == np.float64
            and not got.flags.writeable
            and got.tolist() == [float(v) for v in items]
        )


near_the_bounds = st.sampled_from(
    [
        -1,
        0,
        1,
        2,
        2**53 - 1,
        2**53,
        2**53 + 1,
        2**54,
        2**63,
        0.5,
        1.0,
        1.5,
        2.0**53,
        2.0**54,
        1e19,
        Fraction(3, 2),
        Fraction(4, 2),
    ]
)


@given(
    st.lists(anything, max_size=6)
    | st.lists(near_the_bounds, min_size=1, max_size=1)
    | st.lists(near_the_bounds | st.integers(1, 9), min_size=2, max_size=2)
)
def test_counts_are_admitted_exactly_when_they_are_counts(items):
    def is_count(v):
        return (
            isinstance(v, (int, float, Fraction))
            and not isinstance(v, bool)
            and math.isfinite(v)
            and Fraction(v).denominator == 1
            and 1 <= v <= 2**53
        )

    if all(map(is_count, items)) and sum(map(Fraction, items)) <= 2**53:
        got = as_counts(items, **WHERE)
        assert (
            got.dtype == np.int64
            and not got.flags.writeable
            and got.tolist() == [int(v) for v in items]
        )
    else:
        refused(lambda: as_counts(items, **WHERE), "test: ")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u8", "f2", "f4", "f8", "g"])
def test_every_dtype_of_numbers_is_admitted_without_a_warning(dtype, recwarn):
    assert (
        as_vector(np.array([1, 2], dtype), **WHERE).tolist()
        == [1, 2]
        == as_counts(np.array([1, 2], dtype), **WHERE).tolist()
    )
    assert not recwarn.list


@pytest.mark.parametrize(
    "array",
    [
        np.array(["1"]),
        np.array([b"1"]),
        np.array([1j]),
        np.array([True]),
        np.array(["2020"], "M8[Y]"),
        np.array([1], "M8[ns]"),
        np.array([1], "m8[ns]"),
        np.array([1], "m8[s]"),
        [np.timedelta64(1, "ns")],
        np.array([np.timedelta64(1, "ns"), 1.0], object),
        np.array(1.0),
        np.ones((1, 1)),
        np.ma.array([1.0], mask=[True]),
    ],
)
def test_other_arrays_are_refused(array):
    refused(lambda: as_vector(array, **WHERE), "test: x")
    refused(lambda: as_counts(array, **WHERE), "test: x")


@pytest.mark.parametrize("kind", ["M8[ns]", "m8[ns]", "m8[s]"])
def test_times_are_no_names(kind):
    for values in (np.array([1, 2], kind), [*np.array([1, 2], kind)]):
        refused(lambda: as_names(values, **WHERE), "test: x must")


@pytest.mark.parametrize("items", [[2**53, 1], [2**52, 2**52, 1], [2**53] * 2000])
def test_a_total_that_float64_cannot_hold_is_refused(items):
    refused(lambda: as_counts(items, **WHERE), "the total of x", str(sum(items)))
    assert as_counts([2**52, 2**52 - 1, 1], **WHERE).sum() == 2**53


@given(
    st.lists(finite, min_size=1, max_size=20),
    st.data(),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_the_first_culprit_is_named(items, data, culprit):
    at = data.draw(st.integers(0, len(items) - 1))
    items[at] = culprit
    refused(
        lambda: as_vector(np.array(items), **WHERE),
        f"got {culprit!r} at index {at} (1 of {len(items)})",
    )


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.integers(),
        max_size=6,
    )
)
def test_names(items):
    assert as_names(items, **WHERE) == tuple(str(v) for v in items) and as_names(
        iter(items), **WHERE
    ) == as_names(tuple(items), **WHERE)


@pytest.mark.parametrize(
    "got, shown",
    [
        ("a sentence of another library.", "a sentence of another library. Do"),
        ("1, 2, ...", "1, 2, .... Do"),
        (".", ".. Do"),
    ],
)
def test_a_refusal_ends_in_one_full_stop(got, shown):
    with pytest.raises(ContractError) as error:
        refuse("f", "it must hold", got, "Do that")
    assert str(error.value) == f"f: it must hold; got {shown} that."


def test_names_in_arrays_and_what_is_no_name():
    for values in (
        np.array([3, 1, 3]),
        np.array(["3", "1", "3"]),
        np.array([3, 1, 3], dtype=object),
        [np.int64(3), np.str_("1"), 3],
    ):
        assert as_names(values, **WHERE) == ("3", "1", "3")
    for values, message in (
        ([True], "got True at index 0. Write 0 and 1, or 'false' and 'true'"),
        ([1, True], "got True at index 1"),
        (["a", ["b"]], r"got \['b'\] at index 1"),
        (["a", ""], "got '' at index 1"),
        ([0, 0.5], "got 0.5 at index 1"),
        (["a", "\ud800"], "UTF-8 can write"),
    ):
        with pytest.raises(ContractError, match=message):
            as_names(values, **WHERE)
    torch = pytest.importorskip(
        "torch", reason="names in tensors are tried where torch is installed"
    )
    assert as_names(torch.tensor([3, 1]), **WHERE) == ("3", "1")


@given(st.text(), st.text(), st.text(), st.text())
def test_a_refusal_is_one_line_whatever_it_is_about(where, must, got, cure):
    with pytest.raises(PairingError) as error:
        refuse(where, must, got, cure, error=PairingError)
    assert error.value.code == "pairing"
    assert (
        len(str(error.value).splitlines()) == 1
        and str(error.value).isprintable()
        and len(str(error.value)) < 4 * 165 + 20
    )
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@given(st.text(), st.text(), st.text(), st.text())
def test_two_values_are_shown_where_they_differ(start, first, second, end):
    assume(first != second)
    texts = start + first + end, start + second + end
    both = shown_pair(*texts)
    assert both[0] != both[1]
    assert max(map(len, both)) <= 60 + len("'......'")
    assert all(text.isprintable() for text in both)


def test_the_passage_that_differs_has_its_context():
    same = "x" * 100
    got, computed = shown_pair(f"{same} got 32.1 %, {same}", f"{same} got 33.1 %, {same}")
    for text, number in ((got, "32.1"), (computed, "33.1")):
        before, _, after = text.partition(number)
        assert before.startswith("'...xx") and before.endswith("x got ")
        assert after.startswith(" %, xx") and after.endswith("xx...'")
    assert shown_pair([*range(99), 1], [*range(99), 2])[0].endswith(", 98, 1]")
    assert shown_pair("short", 5) == ("'short'", "5")


def test_single_values():
    assert (
        as_count(np.int32(3), **WHERE) == 3
        and type(as_count(1200.0, **WHERE)) is int
        and as_count(2**70, **WHERE) == 2**70
        and as_count(0, minimum=0, **WHERE) == 0
    )
    assert (
        as_fraction(np.float64(0.95), **WHERE) == 0.95
        and type(as_fraction(Fraction(1, 2), **WHERE)) is float
    )
    assert as_choice("bca", iter(["bca"]), **WHERE) == "bca"
    refused(
        lambda: as_choice("percentil", ["bca", "percentile"], **WHERE),
        "'bca', 'percentile'",
        "Did you mean 'percentile'?",
    )


# --- interval -------------------------------------------------------------------------------------------------------------------------
ends = st.tuples(st.floats(-30, 30), st.floats(-30, 30)).map(sorted)
intervals = st.builds(
    lambda e, level, engine: Interval(
        low=e[0], high=e[1], level=level, method="bca", engine=engine
    ),
    ends,
    st.floats(0.01, 0.99),
    st.sampled_from(["given", "inversion"]),
)


@given(intervals, st.floats(-31, 31))
def test_membership_survives_the_exponential(interval, x):
    ratio = interval.exp()
    assert (ratio.low, ratio.high) == (math.exp(interval.low), math.exp(interval.high))
    if interval.contains(x):
        assert ratio.contains(math.exp(x))
    elif math.exp(x) not in (ratio.low, ratio.high):
        assert not ratio.contains(math.exp(x))  # two floats may share one exponential
    assert (ratio.level, ratio.method, ratio.engine, ratio.fallback) == (
        interval.level,
        interval.method,
        interval.engine,
        interval.fallback,
    )


@given(intervals)
def test_maps_compose_and_the_wire_is_plain(interval):
    double, cube = lambda x: 2 * x, lambda x: x**3
    both, once = interval.map(double).map(cube), interval.map(lambda x: cube(double(x)))
    assert (both.low, both.high) == (once.low, once.high)
    wire = interval.to_dict()
    assert identical(
        strict_json(canonical_json(wire), where="test"), json.loads(json.dumps(wire))
    )
    again = Interval(**wire)
    assert again == interval and hash(again) == hash(interval)


@pytest.mark.parametrize("low, high", [(0, 709.79), (-745.2, 0), (-800, 800)])
def test_a_ratio_is_positive_and_finite(low, high):
    refused(
        Interval(low=low, high=high, level=0.9, method="bca").exp,
        "Interval.exp: exp of an endpoint",
        "measure more units",
    )
    assert Interval(low=-745.1, high=709.78, level=0.9, method="bca").exp().low > 0


def test_an_interval_unpacks_into_its_ends():
    low, high = Interval(low=-1, high=2, level=0.9, method="bca")
    assert (low, high) == (-1, 2)


def test_map_refuses_what_does_not_increase():
    interval = Interval(low=-1, high=2, level=0.9, method="bca")
    refused(
        lambda: interval.map(lambda x: -x),
        "Interval.map: f must be increasing; got [1.0, -2.0]",
    )
    refused(
        lambda: interval.map(lambda x: 1 / (x + 1) if x > -1 else math.inf),
        "Interval.map: the mapped endpoint",
    )


@given(intervals, ends)
def test_inside_is_strict(interval, margin):
    low, high = margin
    if low < high:
        assert interval.inside(low, high) == (low < interval.low and interval.high < high)
        assert not interval.inside(interval.low, high + 100) and not interval.inside(
            low - 100, interval.high
        )


def test_fallback_travels():
    code = "bca_pole"
    interval = Interval(
        low=0, high=1, level=0.9, method="bca", fallback=Fallback(code=code, reason="because")
    )
    assert interval.exp().fallback == interval.fallback and interval.to_dict()["fallback"] == {
        "code": code,
        "reason": "because",
    }


# --- weighted mean --------------------------------------------------------------------------------------------------------------------


@given(losses, st.lists(st.integers(1, 10**9), min_size=1, max_size=9))
def test_equal_values_are_returned_untouched(value, t):
    assert weighted_mean([value] * len(t), t) == value and spread_is_rounding([value] * len(t))


@given(st.lists(st.floats(0.01, 20), min_size=2, max_size=20), st.floats(-3, 3))
def test_a_shift_is_rounding_and_a_real_difference_is_not(base, shift):
    base = np.array(base)
    delta = (base + shift) - base
    scale = max(base.max(), np.abs(base + shift).max())
    assert spread_is_rounding(delta, scale=scale)
    delta[0] += 100 * np.finfo(float).eps * (scale + abs(shift))
    assert not spread_is_rounding(delta, scale=scale)


def test_no_pairs_is_a_pairing_error():
    for act in (
        lambda: as_pairs([], [], where="f"),
        lambda: weighted_mean([], []),
        lambda: effective_sample_size([]),
        lambda: spread_is_rounding([]),
    ):
        with pytest.raises(PairingError, match="at least one"):
            act()
    refused(
        lambda: as_pairs([0.1, 0.2], [1], where="compare"),
        "compare: delta must have 1 entries; got 2",
    )


# --- what an import loads --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "module, banned",
    [
        ("foundations.refuse", ("scipy", "torch", "matplotlib", "pyarrow")),
        ("foundations.interval", ("scipy", "torch", "matplotlib", "pyarrow")),
        ("statistics.totals", ("scipy", "torch", "matplotlib", "pyarrow")),
    ],
)
def test_the_foundations_load_only_numpy(module, banned):
    code = f"import sys, invar_nb.{module}; print([m for m in {banned!r} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


# --- reading strictly -----------------------------------------------------------------------------------------------------
def test_numbers_that_vanish_are_refused_like_those_that_overflow():
    for literal in ("1e-400", "-0.001e-330", "123.456E-999"):
        with pytest.raises(ContractError, match="would become 0"):
            strict_json(f'{{"a": [{literal}]}}', where="f")
    assert strict_json("[0e-400, -0.0, 0.000E9, 5e-324]", where="f") == [
        0.0,
        -0.0,
        0.0,
        5e-324,
    ]


def test_repeated_keys_are_found_in_one_pass():
    import time

    start = time.perf_counter()
    with pytest.raises(ContractError, match="got 'k199999'"):
        strict_json(
            "{" + ",".join(f'"k{i}":1' for i in range(200_000)) + ',"k199999":2}', where="f"
        )
    assert time.perf_counter() - start < 5


def test_the_cure_is_the_true_one():
    for text, part in (
        ('{"a":1},', "Remove what follows"),
        ("9" * 5000, "JSON integers must fit float64"),
        ('{"a":', "cut off"),
        (b"\xff", "cut off"),
    ):
        with pytest.raises(ContractError) as error:
            strict_json(text, where="f")
        assert part in str(error.value) and "\n" not in str(error.value)
