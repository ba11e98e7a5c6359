"""False claims of families, by simulation: some row called equivalent where all lie at the margin, some row called changed where none did.
`make tables` writes invar_nb/data/families.csv; the fast suite holds the table against its rule, computes three cells again, and repeats one from the
formulas with code that shares nothing with the package."""

import csv
import math
import zlib
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter
from statsmodels.stats.multitest import multipletests

from invar_nb import page_data
from invar_nb.comparison.difference import conclude
from invar_nb.comparison.family import judge_by_holm, judge_together
from invar_nb.comparison.rows import Key, Row
from invar_nb.metrics.metric import METRICS
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import serial_ratio

TABLE = Path(__file__).parent.parent / "invar_nb" / "data" / "families.csv"
REAL = page_data("docstring_losses.npz")
OTHER = REAL.with_name(
    "text_losses.npz"
)  # tests of a language, licences of packages: 110 documents each, five edits of the demo's model
FIELDS = ("law", "rows", "units", "tables", "equivalent", "changed", "found")
ROWS, UNITS, TRIALS, ERRORS = (
    (5, 10, 20, 40),
    (18, 40, 100, 200),
    600,
    5,
)  # the margin, in standard errors
# mean 0, standard deviation 1
LAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "t3": lambda rng, size: rng.standard_t(3, size) / math.sqrt(3),
    "exponential": lambda rng, size: rng.standard_exponential(size) - 1,
    "lognormal .8": lambda rng, size: (
        (rng.lognormal(0, 0.8, size) - math.exp(0.32))
        / math.sqrt(math.exp(1.28) - math.exp(0.64))
    ),
    "one in ten": lambda rng, size: (
        ((rng.random(size) < 0.1) - 0.1 + 0.1 * rng.standard_normal(size)) / math.sqrt(0.1)
    ),
}
EDITS = (
    "int8",
    "int4",
    "tuned",
    *(
        f"{text}/{edit}"
        for text in ("tests", "licences")
        for edit in ("int8", "int4", "int3", "pruned", "tuned")
    ),
)


@cache
def documents(edit):
    "(numerators, weights) of real documents, centred at the truth, and the standard error of one."
    text, slash, _ = edit.rpartition("/")
    data = np.load(OTHER if slash else REAL)
    delta, tokens = (
        data[edit].astype(float) - data[f"{text}{slash}base"],
        data[f"{text}{slash}tokens"].astype(float),
    )
    numerators, weights = (
        np.bincount(data[f"{text}{slash}document"], x) for x in (delta * tokens, tokens)
    )
    numerators -= numerators.sum() / weights.sum() * weights
    return numerators, weights, math.sqrt((numerators**2).mean()) / weights.mean()


def draws(law, rows, units, tables):
    "For each table (numerators, weights), shape (rows, units), of rows that did not change, and the standard error of one unit."
    rng = np.random.default_rng(zlib.crc32(repr((law, rows, units)).encode()))
    if law in LAWS:
        for _ in range(tables):
            yield LAWS[law](rng, (rows, units)), np.ones((rows, units)), 1.0
        return
    numerators, weights, error = documents(law)
    for _ in range(tables):
        chosen = rng.integers(0, weights.size, (rows, units))
        yield numerators[chosen], weights[chosen], error


def row_of(n, w, margin):
    fit = jackknife_ratio(n, w)
    influence = lambda: np.array([(n - fit.estimate * w) / w.sum(), w / w.sum()])
    d = conclude(
        METRICS["perplexity"],
        [0.0, fit.estimate],
        (fit, None),
        w.size,
        "documents",
        0.95,
        influence=influence,
    )
    return Row(key=Key("x", "", "perplexity"), value=d, role="rest", margin=margin)


def simulate(law, rows, units, tables=TRIALS):
    "Shares of tables with a false claim, and of rows without a change that are called equivalent."
    equivalent, changed, found = 0, 0, 0
    for numerators, weights, error in draws(law, rows, units, tables):
        margin = ERRORS * error / math.sqrt(units)
        for shift in (0.0, margin):
            judged = judge_by_holm(
                [
                    row_of(n + shift * w, w, margin)
                    for n, w in zip(numerators, weights, strict=True)
                ]
            )
            same = sum(row.claim == "equivalent" for row in judged)
            if shift:
                equivalent += same > 0
            else:  # a change within the margin is called equivalent: what the change itself shows is its adjusted p
                changed += any(row.adjusted.get("change", 1) <= 0.05 for row in judged)
                found += same
    return dict(
        zip(
            FIELDS,
            (
                law,
                rows,
                units,
                tables,
                equivalent / tables,
                changed / tables,
                found / tables / rows,
            ),
            strict=True,
        )
    )


def slack(tables, p=0.05):
    return p + 3 * math.sqrt(p * (1 - p) / tables)


def broken(table, found=0.99):
    "Cells that break a promise: no false 'equivalent' where laws are symmetric, from 40 units, and else from 200; no false change where they are symmetric."
    symmetric, lines = ("normal", "t3"), []
    for r in table:
        law, units, tables = r["law"], int(r["units"]), int(r["tables"])
        promised = (
            law in symmetric and units >= 40 or law in ("exponential", *EDITS) and units >= 200
        )
        if (
            promised
            and float(r["equivalent"]) > slack(tables)
            or law in symmetric
            and float(r["changed"]) > slack(tables)
        ):
            lines.append(r)
        if law == "normal" and units >= 40 and float(r["found"]) < found:
            lines.append(r)
    return lines


@pytest.mark.tables
def test_write_families():
    table = [simulate(*cell) for cell in product((*LAWS, *EDITS), ROWS, UNITS)]
    with open(TABLE, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, FIELDS, lineterminator="\n")
        out.writeheader()
        out.writerows(
            {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()}
            for row in table
        )
    assert not broken(table)


def test_families_keep_the_rule():
    table = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    assert len(table) == 18 * 16 and not broken(table)
    assert np.mean([float(r["changed"]) for r in table if r["law"] in EDITS]) <= 0.07
    for cell in (("normal", 20, 40), ("one in ten", 10, 18), ("int8", 5, 40)):
        stored, again = (
            next(r for r in table if (r["law"], int(r["rows"]), int(r["units"])) == cell),
            simulate(*cell, tables=60),
        )
        for name in ("equivalent", "changed"):
            p = float(stored[name])
            assert abs(again[name] - p) < 4 * math.sqrt(max(p * (1 - p), 0.01) / 60)


def by_formula(n, w, margin, rng):
    "(p of change, p of equivalence) from the pages' formulas, the signs by draws: an independent reading of the rule."
    W, D, units = w.sum(), n.sum() / w.sum(), w.size
    y = n - D * w
    error = math.sqrt(((y / (W - w)) ** 2).sum())
    s = {k: (y**k).sum() for k in range(2, 7)}
    kurtosis, scaled = (
        units * s[4] / s[2] ** 2,
        {k: s[k] / units * (units / s[2]) ** (k / 2) for k in (3, 5, 6)},
    )
    nu, g = min(units - 1, max(2, 2 * units / (kurtosis - 1))), scaled[3]
    noise = (
        max(
            0,
            scaled[6]
            - 6 * kurtosis
            + 9
            + g * (11 * g - 3 * scaled[5] + 2.25 * g * (kurtosis - 1)),
        )
        / units
    )
    c = (g - noise / g if g * g > noise else 0) / (2 * math.sqrt(units))

    def p(null):
        t = (D - null) / error
        return 2 * stats.t.sf(abs(t + c * t**2 / 3 + c**2 * t**3 / 27 + c / 6), nu)

    if nu < 4 or W**2 / (w**2).sum() < 10:
        return None
    change = p(0)
    if change <= 0.05:
        sums = rng.choice((-1.0, 1.0), (3999, units)) @ n
        change = max(change, (1 + (abs(sums) >= abs(n.sum()) * (1 - 1e-12)).sum()) / 4000)
    return change, max(p(margin), p(-margin)) if abs(D) < margin else 1.0


@pytest.mark.parametrize("law, rows, units", [("exponential", 10, 18), ("int4", 20, 40)])
def test_the_rule_read_again(law, rows, units):
    "Claims by code of its own against the package's: they differ only where p lies near .05, by the draws of the signs."
    rng, differ, claims = np.random.default_rng(0), 0, []
    for numerators, weights, error in draws(law, rows, units, 40):
        margin = ERRORS * error / math.sqrt(units)
        shift = np.where(
            np.arange(rows) % 3 == 0,
            0.0,
            np.where(np.arange(rows) % 3 == 1, margin, 2 * margin),
        )[:, None]
        tables = numerators + shift * weights
        changed = {
            "worse within margin": "regressed",
            "better within margin": "improved",
        }  # by the row's own interval
        ours = [
            changed.get(row.claim, row.claim)
            for row in judge_by_holm(
                [row_of(n, w, margin) for n, w in zip(tables, weights, strict=True)]
            )
        ]
        asked = [by_formula(n, w, margin, rng) for n, w in zip(tables, weights, strict=True)]
        tested = [i for i, p in enumerate(asked) if p]
        theirs = ["inconclusive"] * rows
        change, same = (
            multipletests([asked[i][k] for i in tested], method="holm")[1] for k in (0, 1)
        )
        for i, p_change, p_same in zip(tested, change, same, strict=True):
            if p_same <= 0.05:
                theirs[i] = "equivalent"
            elif p_change <= 0.05:
                theirs[i] = "regressed" if tables[i].sum() > 0 else "improved"
        differ += sum(a != b for a, b in zip(ours, theirs, strict=True))
        claims += ours
    assert (
        differ <= 0.005 * len(claims)
        and min(map(claims.count, ("equivalent", "regressed", "inconclusive"))) > 20
    ), differ


# --- candidates on one long text ------------------------------------------------------------------------------------------------------
SERIAL = TABLE.with_name("families_serial.csv")
SERIAL_FIELDS = ("correlation", "candidates", "windows", "tables", "changed")


def simulate_serial(correlation, candidates, windows, tables):
    "Share of sweeps over one long text with a false change: white noise in common, slow noise of each candidate's own."
    rng, wrong, weights = (
        np.random.default_rng([int(10 * correlation), candidates, windows]),
        0,
        np.ones(windows),
    )
    for _ in range(tables):
        own = lfilter(
            [math.sqrt(1 - correlation**2)],
            [1, -correlation],
            rng.normal(size=(candidates, windows + 60)),
            axis=1,
        )[:, 60:]
        rows = []
        for k, d in enumerate(math.sqrt(0.5) * (rng.normal(size=windows) + own)):
            fit, y = (
                serial_ratio(d.copy(), weights),
                np.array([(d - d.mean()) / windows, weights / windows]),
            )
            value = conclude(
                METRICS["perplexity"],
                [0.0, fit.estimate],
                (fit, None),
                windows,
                "serial",
                0.95,
                influence=lambda y=y: y,
            )
            rows.append(Row(key=Key(f"c{k}", "", "perplexity"), value=value, role="lead"))
        wrong += any(row.claim != "inconclusive" for row in judge_together(rows))
    return dict(
        zip(
            SERIAL_FIELDS,
            (correlation, candidates, windows, tables, wrong / tables),
            strict=True,
        )
    )


@pytest.mark.tables
def test_write_sweeps_of_one_long_text():
    table = [
        simulate_serial(*cell, tables=600)
        for cell in product((0.6, 0.8), (6, 12), (300, 1000))
    ]
    with open(SERIAL, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, SERIAL_FIELDS, lineterminator="\n")
        out.writeheader()
        out.writerows(
            {k: f"{v:.4f}" if k == "changed" else v for k, v in row.items()} for row in table
        )
    assert all(row["changed"] <= slack(600, 0.10) for row in table)


def test_a_sweep_of_one_long_text_is_rarely_wrong():
    table = list(csv.DictReader(SERIAL.read_text(encoding="utf-8").splitlines()))
    assert len(table) == 8 and all(float(row["changed"]) <= slack(600, 0.10) for row in table)
    (stored,) = (
        float(row["changed"])
        for row in table
        if (row["correlation"], row["candidates"], row["windows"]) == ("0.8", "6", "300")
    )
    assert abs(simulate_serial(0.8, 6, 300, 100)["changed"] - stored) < 4 * math.sqrt(
        0.06 * 0.94 / 100
    )


# --- candidates on several texts, and slices of several candidates --------------------------------------------------------------------
GRID = TABLE.with_name("families_grid.csv")
GRID_FIELDS = ("law", "shape", "units", "tables", "equivalent", "changed", "found")
SHAPES = {
    "6 candidates on 3 texts": (3, judge_together),
    "8 slices of 6 candidates": (8, judge_by_holm),
}


def simulate_grid(law, shape, units, tables):
    "Shares of studies with a false claim: half of the variance of a part's candidates is common to them."
    (parts, judge), margin = SHAPES[shape], ERRORS / math.sqrt(units)
    rng, equivalent, changed, found = (
        np.random.default_rng(zlib.crc32(repr((law, shape, units)).encode())),
        0,
        0,
        0,
    )
    draw = LAWS[law]
    for _ in range(tables):
        moves = [
            math.sqrt(0.5) * (common + draw(rng, (6, units)))
            for common in draw(rng, (parts, 1, units))
        ]
        for shift in (0.0, margin):
            rows = [
                replace(
                    row_of(d + shift, np.ones(units), margin),
                    key=Key(f"c{k}", f"t{part}", "perplexity"),
                )
                for part, own in enumerate(moves)
                for k, d in enumerate(own)
            ]
            judged = judge(rows)
            same = sum(row.claim == "equivalent" for row in judged)
            if shift:
                equivalent += same > 0
            else:
                changed += any(row.adjusted.get("change", 1) <= 0.05 for row in judged)
                found += same
    return dict(
        zip(
            GRID_FIELDS,
            (
                law,
                shape,
                units,
                tables,
                equivalent / tables,
                changed / tables,
                found / tables / len(rows),
            ),
            strict=True,
        )
    )


@pytest.mark.tables
def test_write_families_of_several_texts_and_slices():
    table = [
        simulate_grid(*cell, tables=400)
        for cell in product(
            ("normal", "t3", "exponential", "one in ten"), SHAPES, (40, 100, 200)
        )
    ]
    with open(GRID, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, GRID_FIELDS, lineterminator="\n")
        out.writeheader()
        out.writerows(
            {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()}
            for row in table
        )
    assert not broken(table, found=0.98)


def test_families_of_several_texts_and_slices_keep_the_rule():
    table = list(csv.DictReader(GRID.read_text(encoding="utf-8").splitlines()))
    assert len(table) == 24 and not broken(table, found=0.98)
    for cell in (
        ("normal", "6 candidates on 3 texts", 40),
        ("exponential", "8 slices of 6 candidates", 100),
        ("t3", "6 candidates on 3 texts", 200),
    ):
        stored, again = (
            next(r for r in table if (r["law"], r["shape"], int(r["units"])) == cell),
            simulate_grid(*cell, tables=30),
        )
        for name in ("equivalent", "changed"):
            p = float(stored[name])
            assert abs(again[name] - p) < 4 * math.sqrt(max(p * (1 - p), 0.01) / 30)
