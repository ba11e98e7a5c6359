"""What users saw before the redesign, and see after it: rows of studies equal at 1e-12, ends of bootstraps within 1e-3 of the interval's width;
what importers read, and plans, equal at 1e-12; refusals by exit code and error code."""

import csv
import json
import math
import re

import pytest
from frozen_cases import (
    BY_PYTHON,
    FROZEN,
    IMPORTS,
    PLANS,
    STUDIES,
    answer,
    arms_of,
    frozen_study,
    plan_of,
)
from frozen_inputs import DATA, write_inputs

FROZEN_NOW = json.loads(FROZEN.read_text())
# A rule that the redesign changes on purpose: study -> the values of its rows that it moves, and why.
CHANGED = {
    "losses: 4 candidates, one decides": (
        "low",
        "high",
        "adjusted p",
        "level",
        "each",
    ),  # what decides is a family by its own shape: here one row, alone
    **dict.fromkeys(
        (
            "one arm: losses",
            "one arm: answers",
            "one arm: predictions",
            "one arm: lm-eval",
            "one arm: translations",
            "one arm: scores",
        ),
        ("candidate", "delta"),
    ),  # ends of intervals: every ratio has one, over clusters where there are some
    "scores: 4 candidates": (
        "margin",
    ),  # an F1 of fractions is a share: 2 points, as of answers that are right or wrong
}
FLOAT32 = dict.fromkeys(
    ("llama.cpp: divergence", "llama.cpp: binary"), 2e-6
)  # probabilities are sums in float32: 16 eps of it, relative
# A slice of which no answer changed had no interval and no claim; it is one more row of these
# families now, so that adjusted p-values rise, and one claim of an improvement is withdrawn.
GREW = ("text with questions", "answers: 4 candidates")
# Slices that nobody asked for (no --by) are described and not judged: they have no adjusted
# p-value and no claim, and the family of the other metrics is smaller without them.
DESCRIBED = ("bootstrap: bca of answers", "answers: items", "answers: labels alone")
REFUSALS = [
    row.values() for row in csv.DictReader((DATA / "refusals.csv").read_text().splitlines())
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def differences(was, now, path="", far=0.0, relative=1e-12):
    "Where two documents differ: numbers by more than `relative` of themselves, and than `far` besides."
    if isinstance(was, dict) and isinstance(now, dict):
        wide = (
            (far or 1e-3) * (was["ci"][1] - was["ci"][0])
            if path.endswith("/bootstrap") and was["ci"]
            else far
        )
        return [
            line
            for key in sorted({*was, *now})
            for line in differences(
                was.get(key), now.get(key), f"{path}/{key}", wide, relative
            )
        ]
    if isinstance(was, list) and isinstance(now, (list, tuple)) and len(was) == len(now):
        return [
            line
            for i, (a, b) in enumerate(zip(was, now, strict=True))
            for line in differences(a, b, f"{path}/{i}", far, relative)
        ]
    numbers = all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in (was, now)
    )
    same = (
        math.isclose(was, now, rel_tol=relative, abs_tol=1e-12 + far)
        if numbers
        else was == now
    )
    return [] if same else [f"{path}: {was!r} became {now!r}"]


def as_roots(row):
    "A calibration error is shown as a root now, and so is its change, with the interval of two roots; the claim stays."
    root, value = (
        lambda x: max(x, 0.0) ** 0.5,
        dict(zip(FROZEN_NOW["row"][: len(row)], row, strict=True)),
    )
    if "delta" not in value or value["delta"] is None:
        return [None if x is None else root(x) for x in row[:1]] + row[1:]
    a, b = root(value["baseline"]), root(value["candidate"])
    return [*(value | {"delta": b - a, "baseline": a, "candidate": b}).values()]


def row_differences(name, was, now):
    "The rows by the names of their values; a bootstrap's ends may move by 1e-3 of the width, and its p with them."
    now = {
        key: row for key, row in now.items() if " | ece | " not in key
    }  # a metric of its own now
    was = {
        key: as_roots(row) if " | calibration | " in key else row for key, row in was.items()
    }
    lines = [f"{key}: {'new' if key in now else 'lost'}" for key in sorted({*was} ^ {*now})]
    names = FROZEN_NOW["row"]
    for key in {*was} & {*now}:
        values = [
            dict(zip(names[: len(row)], row, strict=True)) for row in (was[key], now[key])
        ]
        for end in {"low", "high"} & values[
            1
        ].keys():  # no share changes by more than 100 points
            if values[1][end] in (-1.0, 1.0):
                values[0][end] = min(max(values[0][end], -1.0), 1.0)
        if (
            " | calibration | " in key and "delta" in values[0]
        ):  # of the change of roots: tests/test_coverage.py holds it against simulations
            assert (
                values[0]["low"] is None
                or values[1]["high"] - values[1]["low"] >= values[0]["high"] - values[0]["low"]
            ), key
            values[0] |= {end: values[1][end] for end in ("low", "high")}
        if " | probability_change_p" in key:  # on a finer grid: see tests/test_divergence.py
            values[0] |= {n: values[1][n] for n in ("candidate", "delta", "low", "high")}
        if name in GREW:
            follow_the_family(key, *values)
        if name in DESCRIBED:
            leave_the_family(key, *values)
        width = values[0]["high"] - values[0]["low"] if name.startswith("bootstrap") else 0.0
        far = {
            "low": 1e-3 * width,
            "high": 1e-3 * width,
            "p": 0.005 * bool(width),
            "adjusted p": 0.005 * bool(width),
        }
        lines += [
            line
            for n in names
            if n not in CHANGED.get(name, ())
            for line in differences(
                values[0].get(n),
                values[1].get(n),
                f"{key}: {n}",
                far.get(n, 0.0),
                FLOAT32.get(name, 1e-12),
            )
        ]
    return lines


def follow_the_family(key, was, now):
    "Take what a larger family makes of a row: a larger adjusted p-value, a weaker claim."
    if was.get("low") == was.get("high") == 0.0 and " | accuracy | " in key:
        assert now["low"] == -now["high"] < 0 and was["adjusted p"] is None, key
        was |= {n: now[n] for n in ("low", "high", "adjusted p")}
    elif was.get("adjusted p") is not None:
        growth = now["adjusted p"] - was["adjusted p"]
        if growth:  # Holm multiplies by the rows that remain: by one more of them
            n_remaining = was["adjusted p"] / growth
            assert n_remaining == pytest.approx(round(n_remaining), rel=1e-9), key
        was["adjusted p"] = now["adjusted p"]
        if was["claim"] == "improved" and now["adjusted p"] > 0.05:
            was["claim"] = "inconclusive"


def leave_the_family(key, was, now):
    "Take that a slice is not judged, and that the others are a smaller family without it."
    if not key.endswith(" | "):  # a row of a slice
        assert now["claim"] is None and now["adjusted p"] is None, key
        was |= {"claim": None, "adjusted p": None}
    elif was.get("adjusted p") is not None:
        assert now["adjusted p"] <= was["adjusted p"] + 0.005, key  # of a bootstrap: as below
        was["adjusted p"] = now["adjusted p"]


def rule_of(name, was):
    "A loss of which no row is shown beyond its margin has a rule of its own now; of three tasks none is shown after Holm."
    rows = [
        dict(zip(FROZEN_NOW["row"], row, strict=True))
        for row in was["rows"].values()
        if len(row) == len(FROZEN_NOW["row"])
    ]
    beyond = any(
        min(abs(row["low"]), abs(row["high"])) > (row["margin"] or 0.0)
        for row in rows
        if row["claim"] == "regressed"
    )
    within = was["rule"] == "primary_regressed" and (
        not beyond or name == "parts: Every Eval Ever"
    )
    return "perhaps_within_margin" if within else was["rule"]


@pytest.mark.parametrize("name", [*STUDIES, *BY_PYTHON])
def test_rows_are_what_they_were(name, there, tmp_path):
    was, now = (
        FROZEN_NOW["studies"][name],
        json.loads(json.dumps(frozen_study(name, tmp_path / "r"))),
    )
    was["rule"] = rule_of(name, was)
    if name == "runs: failed":
        was["rows"] = {}  # a comparison that failed has no row of zeros any more
    # candidates against each other are no rows of a report any more, and have no letters
    was["rows"] = {key: row for key, row in was["rows"].items() if "| contrast |" not in key}
    was.get("sweep", {}).pop("groups", None)
    lines = row_differences(name, was.pop("rows"), now.pop("rows"))
    if "passages" in CHANGED.get(name, ()):
        assert was.pop("passages") and "passages" not in now
    if "each" in CHANGED.get(name, ()):
        was["sweep"]["each"] = now["sweep"]["each"]
    source = was.pop("source", None), now.pop("source", None)
    if source[0] is not None:
        for split in ("preview", "final"):  # windows asked for beside those that are there
            for word in ("requested", "actual"):
                source[1]["stats"].pop(f"{word}_{split}")
        wide = (
            1e-3
            * (source[0]["primary_metric"]["ci"][1] - source[0]["primary_metric"]["ci"][0])
            if name.startswith("bootstrap")
            else 0.0
        )
        lines += differences(*source, "source", wide)
    assert not (lines := lines + differences(was, now)), "\n".join(lines)


@pytest.mark.parametrize("name", IMPORTS)
def test_files_are_read_as_they_were(name, there):
    was, now = FROZEN_NOW["imports"][name], arms_of(name)
    for part in was:
        if was[part]["kind"] == "translations":
            was[part]["data_id"] = now[part]["data_id"]  # a digest of the references now
    assert not (lines := differences(was, now, relative=FLOAT32.get(name, 1e-12))), "\n".join(
        lines
    )


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_what_they_were(name, there):
    assert not (lines := differences(FROZEN_NOW["plans"][name], plan_of(name))), "\n".join(
        lines
    )


@pytest.mark.parametrize("line, exit, code", REFUSALS)
def test_refusals_have_the_codes_they_had(line, exit, code, there, tmp_path):
    found, _, refused, words = answer(line, tmp_path / "r")
    assert (found, refused) == (int(exit), code or None) and not (tmp_path / "r").exists()
    assert not re.search(
        r"Traceback|build_report|load_model\(|force it|\bnp\.|ContractError|(?<!--set )replicates=|significance_threshold",
        words,
    ), words  # no Python names
