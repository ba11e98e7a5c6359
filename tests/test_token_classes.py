"Classes of tokens against a referee that goes through the text token by token, with fractions."

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from invar_nb.arms.windows import Window, plan_windows
from invar_nb.comparison.units import CLASSES
from invar_nb.foundations.refuse import UsageError
from invar_nb.models.text_plan import class_sums, find_classes, sum_columns

WORDS = ("rare", "uncommon", "common", "very common")


def referee(documents, windows, losses, by):
    "{class in words: (tokens of each window, nats of each window)}, in rising order."
    seen = [
        [(int(documents[w.document_id][j]), j - w.start) for j in range(w.score_from, w.stop)]
        for w in windows
    ]
    often, longest = (
        Counter(kind for row in seen for kind, _ in row),
        max(w.stop - w.start - 1 for w in windows),
    )
    total, below = sum(often.values()), Counter(often.values())

    def quarter(kind, context):
        if by == "context":
            return 4 * (context - 1) // longest, context
        c = often[kind]
        under, equal = (
            sum(k * n for k, n in below.items() if test(k))
            for test in (lambda k: k < c, lambda k: k == c)
        )
        return int(4 * (Fraction(under, total) + Fraction(under + equal, total)) / 2), c

    members = {}
    for i, row in enumerate(seen):
        for (kind, context), x in zip(row, losses[i], strict=True):
            k, limit = quarter(kind, context)
            members.setdefault(k, []).append((i, limit, float(x)))
    if by == "context":
        ends = {
            k: [n for n in range(1, longest + 1) if 4 * (n - 1) // longest == k]
            for k in members
        }
    else:
        ends = {k: [limit for _, limit, _ in found] for k, found in members.items()}
    named = {}
    for k, found in sorted(members.items()):
        low, high, unit = min(ends[k]), max(ends[k]), "time" if by == "frequency" else "token"
        text = (
            f"{low} {unit}"
            if low == high == 1
            else f"{low} {unit}s"
            if low == high
            else f"{low} to {high} {unit}s"
        )
        named[f"{WORDS[k]}, {text}" if by == "frequency" else text] = [
            [sum(i == j for j, *_ in found) for i in range(len(windows))],
            [sum(x for j, _, x in found if i == j) for i in range(len(windows))],
        ]
    return named


def zipf(n, kinds, seed, documents=4):
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, kinds + 1)
    return {
        f"d{i}": rng.choice(kinds, n + 3 * i, p=p / p.sum()) + 2 * i for i in range(documents)
    }


TEXTS = {
    "a few documents": zipf(90, 60, 1),
    "many kinds": zipf(40, 4000, 2),
    "one kind": {"0": np.full(50, 7)},
    "every token another": {"0": np.arange(3, 60)[::-1]},
    "two kinds, once and often": {"0": np.array([9, *[4] * 30, 1, *[4] * 30])},
    "quarters that end between kinds": {
        "0": np.array([0, 1, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0, 4, 4, 4, 4, 4])
    },
    "largest id last": {"0": np.arange(12), "1": np.array([5, 900, 900, 5] * 3)},
}
PLANS = {
    "disjoint": dict(max_length=16, stride=16),
    "overlapping": dict(max_length=16, stride=5),
    "context only": dict(max_length=11, stride=4, first_window="context_only"),
    "pairs": dict(max_length=2, stride=1),
    "whole": dict(max_length=100, stride=100),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("text", TEXTS)
def test_classes_equal_a_count_token_by_token(text, plan):
    documents, rng = TEXTS[text], np.random.default_rng(3)
    windows = [
        w
        for name, ids in documents.items()
        if len(ids) > 7
        for w in plan_windows(len(ids), **PLANS[plan], document_id=name)
    ]
    losses = [rng.gamma(2, 1.5, w.tokens).astype(np.float32) for w in windows]
    classes = find_classes(documents, iter(windows), [*CLASSES, "frequency"])
    assert [one.by for one in classes] == [*CLASSES]
    columns = sum_columns(
        classes,
        [
            class_sums(classes, documents[w.document_id], w, x)
            for w, x in zip(windows, losses, strict=True)
        ],
    )
    wanted = {
        f"{by}: {name} [{unit}]": values
        for by in CLASSES
        for name, both in referee(documents, windows, losses, by).items()
        for unit, values in zip(("tokens", "nats"), both, strict=True)
    }
    assert {*columns} >= {*wanted} and all(
        not columns[name].any() for name in {*columns} - {*wanted}
    )  # no token has so little context
    for name, values in wanted.items():
        np.testing.assert_allclose(columns[name], values, rtol=1e-13)
    for by in CLASSES:
        assert [
            name
            for one in classes
            if one.by == by
            for name in one.values
            if f"{by}: {name} [tokens]" in wanted
        ] == [*referee(documents, windows, losses, by)]


def test_a_class_by_another_name_is_refused():
    with pytest.raises(
        UsageError, match="by must be one of 'frequency', 'context'; got 'length'"
    ):
        find_classes({"0": np.arange(9)}, [Window(start=0, score_from=1, stop=9)], ["length"])
