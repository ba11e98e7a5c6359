"""Laws that every study obeys, from the arms to the verified report: what must follow when its arms are changed in a known way.

A law takes the arms of one kind of study (studies.py), changes them by a seed that hypothesis draws, and says what each row of the old report
must be in the new one. Numbers agree within rounding, derived from eps: a sum of n terms of at most `size` is known to n eps size; a p-value
to that over the standard error; a level, which is the exponential of such a sum or is one, to that in relation to itself."""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from studies import STUDIES, losses, recipes, with_passages

from invar_nb import Rules, compare, study, verify
from invar_nb.arms.arm import entries_at

EPS, ROUNDS = 2.0**-52, 8  # sums in a row: of the units, of the weights, of the squares, ...
PROBABLE = (
    "brier",
    "calibration",
    "ece",
    "smooth_calibration",
)  # metrics that read the probabilities
MIRROR = {"improved": "regressed", "regressed": "improved"}
VALUES = {"losses": "log_loss", "scores": "values"}
LOSS = {"metrics": ["loss"], "better": {"loss": "lower"}, "scale": {"loss": "log"}}
KINDS = STUDIES | {
    "runs": lambda: study(
        {key: arm for key, arm in recipes().items() if key[0] in ("baseline", "lion")},
        Rules(**LOSS),
    ),
    "documents": lambda: compare(with_passages(), metrics=["perplexity"]),
    "limit": lambda: compare(losses(0.03, n=40), metrics=["perplexity"], method="bca"),
}


@cache
def made(kind):
    return KINDS[kind]()


def walk(arms, rules, verified=True):
    "The report of a study; saved, verified and read again."
    report = study(arms, rules).report()
    if not verified:
        return report.document()
    with tempfile.TemporaryDirectory() as folder:
        assert verify(saved := report.save(Path(folder) / "r"))
        return json.loads((saved / "report.json").read_text())


@cache
def report_of(kind):
    return walk(made(kind).arms, made(kind).rules, False)


def rows_of(document):
    return {tuple(row["key"].values()): row for row in document["rows"]}


def dust_of(arms, once=False):
    "What rounding may do to a mean; `once`: each term was rounded once, to single precision."
    return ROUNDS * max(
        (2.0**-24 if once else len(arm) * EPS)
        * (1 + np.abs(getattr(arm, VALUES[arm.kind])).max() if arm.kind in VALUES else 10)
        for arm in arms.values()
    )


def check(expected, got, dust, family=True):
    "Two rows say the same; of another family, all but what is adjusted within it."
    a, b = expected["value"], got["value"]
    near = lambda x, y, size=1.0: (
        x == y or None not in (x, y) and abs(x - y) <= dust * max(1.0, abs(x)) * size
    )
    levels = (
        () if expected["role"] == "pooled" else ("baseline", "candidate")
    )  # a pool has none
    for name in ("delta", "standard_error", "value", *levels):
        assert near(a.get(name), b.get(name)), (expected["key"], name, a[name], b[name])
    for x, y in zip(a["ci"] or (), b["ci"] or (), strict=True):
        assert near(x, y) or a["units"] == "seeds" and not family, (
            expected["key"],
            a["ci"],
            b["ci"],
        )
    if "delta" not in a:
        return
    for x, y in [
        (a["p_value"], b["p_value"]),
        *(
            (expected[of][q], got[of][q])
            for of in ("p", "adjusted")
            if family
            for q in expected[of]
        ),
    ]:
        assert near(x, y, 1 / (a["standard_error"] or 1)), (expected["key"], x, y)
    if family:
        assert all(
            expected[name] == got[name] for name in ("claim", "alone", "role", "margin")
        ), (expected["key"], expected["claim"], got["claim"])


def of_losses(arms, change):
    return {key: change(arm) if arm.kind == "losses" else arm for key, arm in arms.items()}


def of_value(row, **fields):
    return row | {"value": row["value"] | fields}


def unchanged(row):
    return row


# --- the laws: arms, rules, rng -> other arms, other rules, and what becomes of a row --------------------------------------------------------
def swap(arms, rules, rng):
    "Baseline and candidate exchanged: differences change sign, and worse is better."
    other = next(name for name, _ in arms if name != "baseline")

    def mirrored(row):
        v, both = (
            row["value"],
            {
                "claim": MIRROR.get(row["claim"], row["claim"]),
                "alone": MIRROR.get(row["alone"], row["alone"]),
            },
        )
        asked = {
            of: {q: p for q, p in row[of].items() if q != "not_worse"}
            for of in ("p", "adjusted")
        }  # better by as much is a question of its own
        return (
            of_value(
                row,
                delta=-v["delta"],
                ci=[-x for x in v["ci"][::-1]],
                baseline=v["candidate"],
                candidate=v["baseline"],
            )
            | both
            | asked
        )

    return (
        {
            ({"baseline": other, other: "baseline"}[name], part): arm
            for (name, part), arm in arms.items()
        },
        rules,
        mirrored,
    )


def scale_weights(arms, rules, rng):
    "Each window has as many times the tokens: nothing changes."
    c = 2 ** int(rng.integers(1, 9))
    return (
        of_losses(
            arms,
            lambda arm: arm.changed(
                tokens=c * arm.tokens,
                n_bytes=None if arm.n_bytes is None else c * arm.n_bytes,
                columns={k: c * x for k, x in arm.columns.items()},
            ),
        ),
        rules,
        unchanged,
    )


def scale_values(arms, rules, rng):
    "Marks in another unit, with their margin: the numbers are in that unit, to the last bit."
    c = 2.0 ** int(rng.integers(-9, 9))
    turned = lambda row: (
        of_value(
            row,
            **{
                x: c * row["value"][x]
                for x in ("delta", "standard_error", "baseline", "candidate")
            },
            ci=[c * x for x in row["value"]["ci"]],
        )
        | {"margin": c * row["margin"]}
    )
    return (
        {key: arm.changed(values=c * arm.values) for key, arm in arms.items()},
        replace(rules, margin=c * rules.margin),
        turned,
    )


def add_constant(arms, rules, rng):
    "As much harder for both: perplexities grow by a factor, marks by a sum; differences stay."
    c = float(rng.integers(1, 2**9)) / 2**8
    kinds = {part: arm.kind for (_, part), arm in arms.items()}
    harder = lambda arm: (
        arm.changed(**{name: getattr(arm, name) + c})
        if (name := VALUES.get(arm.kind))
        else arm
    )

    def moved(row):
        kind, v = kinds.get(row["key"]["part"], "losses"), row["value"]
        level = lambda x: x and (x * np.exp(c) if kind == "losses" else x + c)
        if row["key"]["metric"] not in ("perplexity", "score"):
            return row
        return (
            of_value(row, baseline=level(v["baseline"]), candidate=level(v["candidate"]))
            if "delta" in v
            else of_value(row, value=level(v["value"]), ci=[*map(level, v["ci"])])
        )

    return {key: harder(arm) for key, arm in arms.items()}, rules, moved


def permute(arms, rules, rng):
    "Items in another order."
    order = {part: rng.permutation(len(arm)) for (_, part), arm in arms.items()}
    again = lambda arm, at: replace(
        arm,
        **{
            name: entries_at(getattr(arm, name), at)
            for name in (["runs"] if arm.kind == "runs" else arm.per_item)
        },
    )
    turned = lambda name, arm, at: (
        again(arm, at)
        if arm.kind == "runs" or arm.by_id and name == "baseline"
        else arm.take(at)
    )
    return (
        {(name, part): turned(name, arm, order[part]) for (name, part), arm in arms.items()},
        rules,
        unchanged,
    )


def split_windows(arms, rules, rng):
    "Each window in two of its document, whose sums are the sums of the one: read backwards, windows merged."
    share = {
        part: (rng.integers(1, arm.tokens), rng.integers(0, 256, len(arm)) / 2**12)
        for (_, part), arm in arms.items()
        if arm.kind == "losses"
    }

    def halves(arm, first, more):
        two = lambda left, right: np.ravel(np.column_stack([left, right]))
        ids = lambda names: [name for name in names for _ in range(2)]
        k, rest = first, arm.tokens - first
        part = lambda x: two(
            less := np.floor(x / 2) if (x == np.floor(x)).all() else x / 2, x - less
        )
        return arm.changed(
            window_ids=tuple(f"{name}/{i % 2}" for i, name in enumerate(ids(arm.window_ids))),
            tokens=two(k, rest),
            log_loss=two(
                arm.log_loss * (1 + more * rest / arm.tokens),
                arm.log_loss * (1 - more * k / arm.tokens),
            ),
            document_ids=tuple(ids(arm.document_ids)),
            n_bytes=None if arm.n_bytes is None else part(arm.n_bytes),
            columns={name: part(x) for name, x in arm.columns.items()},
        )

    return (
        {
            (name, part): halves(arm, *share[part]) if part in share else arm
            for (name, part), arm in arms.items()
        },
        rules,
        unchanged,
    )


def duplicate(arms, rules, rng):
    "A candidate that is there twice has the same numbers twice; what it is the copy of, it equals."
    name = str(rng.choice(sorted({name for name, _ in arms} - {"control"})))
    arms = arms | {("twin", part): arm for (other, part), arm in arms.items() if other == name}
    return arms, rules, unchanged


def rename(arms, rules, rng):
    "Other names of models, candidates and parts, in another order: nothing but the names changes."
    names = [
        {
            old: f"n{i}"
            for old, i in zip(sorted(some), rng.permutation(len(some)).tolist(), strict=True)
        }
        for some in zip(*arms, strict=True)
    ]
    named = lambda name: (
        name if name in ("baseline", "control", None) else names[0].get(name, name)
    )
    parted = lambda part: part and names[1].get(part, part)
    turned = lambda row: (
        row
        | {
            "key": row["key"]
            | {
                "candidate": named(row["key"]["candidate"]),
                "part": parted(row["key"]["part"]),
            }
        }
    )
    deciding = rules.deciding and [named(parted(name)) for name in rules.deciding]
    again = lambda arm: (
        replace(arm, model=f"m {arm.model}")
        if arm.kind == "runs"
        else arm.changed(model=f"m {arm.model}")
    )
    return (
        {(named(name), parted(part)): again(arm) for (name, part), arm in arms.items()},
        replace(rules, deciding=deciding),
        turned,
    )


def monotone(arms, rules, rng):
    "Answers with other probabilities of the same order, and candidates of other sizes of the same order: what does not read them stays."
    bent = lambda arm: (
        arm.changed(confidence=0.5 + arm.confidence**2 / 4, probabilities=None)
        if arm.kind == "answers"
        else arm.changed(provenance={k: np.exp(x) for k, x in arm.provenance.items()})
    )
    return (
        {key: bent(arm) for key, arm in arms.items()},
        rules,
        lambda row: None if row["key"]["metric"] in PROBABLE else row,
    )


def single(arms, rules, rng):
    "Kept in single precision: each value moves by half a unit in its last place."
    return (
        {
            key: arm.changed(**{name: getattr(arm, name).astype(np.float32).astype(float)})
            if (name := VALUES.get(arm.kind))
            else arm
            for key, arm in arms.items()
        },
        rules,
        unchanged,
    )


TEXTS = [
    "losses",
    "documents",
    "control",
    "pooled",
    "text and questions",
    "everything",
    "one arm's losses",
]
PAIRS = [
    "losses",
    "documents",
    "limit",
    "looks",
    "answers",
    "scores",
    "shares",
    "translations",
    "tasks",
    "text and questions",
    "pooled",
    "runs",
]
ANY_ORDER = [kind for kind in KINDS if kind != "passages"]  # whose slices are serial
LAWS = {
    swap: PAIRS,
    scale_weights: [*TEXTS, "bootstrap"],
    scale_values: ["scores", "candidates"],
    add_constant: [
        *TEXTS,
        "bootstrap",
        "passages",
        "looks",
        "scores",
        "candidates",
        "one arm's scores",
    ],
    permute: ANY_ORDER,
    split_windows: [kind for kind in TEXTS if kind != "control"],
    duplicate: [kind for kind in KINDS if kind != "looks" and "one arm" not in kind],
    rename: list(KINDS),
    monotone: ["answers", "one arm's answers", "candidates"],
    single: [*TEXTS, "bootstrap", "passages", "scores", "candidates", "one arm's scores"],
}


def holds(law, kind, seed, verified):
    one, before = made(kind), report_of(kind)
    arms, rules, becomes = law(dict(one.arms), one.rules, np.random.default_rng(seed))
    after = walk(arms, rules, verified)
    dust, got, alone = (
        dust_of(dict(one.arms) | arms, law is single),
        rows_of(after),
        law not in (duplicate, monotone),
    )
    expected = [row for row in map(becomes, before["rows"]) if row]
    for row in expected:
        check(row, got.pop(tuple(row["key"].values())), dust, family=alone)
    if law is duplicate:
        assert {row["key"]["candidate"] for row in got.values()} == {"twin"}
        return
    assert len(got) == len(before["rows"]) - len(expected)
    if law is not swap:
        assert (before["claim"], before["exit"]["code"], before["exit"]["rule"]) == (
            after["claim"],
            after["exit"]["code"],
            after["exit"]["rule"],
        )


CASES = [
    pytest.param(law, kind, id=f"{law.__name__}-{kind}")
    for law, kinds in LAWS.items()
    for kind in kinds
]


def drawn(n):
    return lambda test: settings(
        max_examples=n, deadline=None, derandomize=True, phases=[Phase.generate]
    )(given(seed=st.integers(0, 2**32))(test))


@pytest.mark.parametrize("law, kind", CASES)
@drawn(1)
def test_law(law, kind, seed):
    holds(law, kind, seed, verified=law in (permute, split_windows))


@pytest.mark.slow
@pytest.mark.parametrize("law, kind", CASES)
@drawn(5)
def test_laws_of_verified_reports(law, kind, seed):
    holds(law, kind, seed, verified=True)


def test_a_mistake_is_known_whatever_the_layout_of_the_code(tmp_path, monkeypatch):
    import mutants

    monkeypatch.setattr(mutants, "LIB", tmp_path)
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("def f(x):\n    return [x + 1, x + 1]\n")
    other.write_text(
        "\n\ndef f(\n    x,\n):\n    return [\n        x + 1,\n"
        "        x + 1,  # twice\n    ]\n"
    )
    places = {}
    for path in (one, other):
        monkeypatch.setattr(mutants, "TARGETS", [path])
        places[path] = [place._replace(module="") for place in mutants.all_sites()]
    assert places[one] == places[other]
    assert {place.function for place in places[one]} == {"f"}
    assert [place.mutation for place in places[one] if "1 -> 2" in place.mutation] == [
        "1 -> 2",
        "1 -> 2 #2",
    ]


@pytest.mark.tables
def test_nine_of_ten_mistakes_are_seen():
    "Half an hour on two cores; see tools/mutants.py."
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "tools/mutants.py"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
