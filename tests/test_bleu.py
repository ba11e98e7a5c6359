"""BLEU against sacreBLEU's corpus score and against counters; its leave-one-out values, the level of its interval, its refusals."""

import math
import sys

import numpy as np
import pytest

from invar_nb.arms.arm import Translations
from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare, evaluate
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.metrics.bleu import SMOOTHINGS, bleu, bleu_metric, corpus_bleu
from invar_nb.statistics.jackknife import jackknife_statistic

BLEU = pytest.importorskip("sacrebleu.metrics").BLEU
TOKENIZERS = ("none", "13a", "char", "intl")

BITS = [
    "the",
    "The",
    "cat",
    "CAT",
    "Straße",
    "İ",
    "3.14",
    "1,000",
    "10-12",
    "-5",
    "5-",
    "U.S.",
    "a.,5",
    "a.,b",
    ".,",
    ",.",
    ".",
    ",",
    "...",
    "don't",
    "'quoted'",
    "&quot;",
    "&amp;lt;",
    "&lt;b&gt;",
    "&nbsp;",
    "<skipped>",
    "<skip<skipped>ped>",
    "«oui»",
    "año",
    "¿qué?",
    "€5",
    "x=y+1",
    "$5",
    "^",
    "~",
    "`",
    "猫",
    "です。",
    "は、",
    "½",
    "Ⅷ",
    "²",
    "no.",
    "—",
    "–",
    "…",
    "(b)",
    "[c]",
    "{d}",
    "end.",
    "٣.",
    "٣,٤",
    "e-mail",
    "7-8-9",
    "a\xa0b",
    "\u200b",
    "😀",
    "́",
    "%50",
    "@x",
    "#y",
] + ["", " ", "  ", "\t", "\n", "-\n", "\u2028", "\x1c", "\x85", "\u3000", "\r"]


def text(rng, most=14):
    return "".join(
        BITS[j] + (" " if rng.random() < 0.6 else "")
        for j in rng.integers(len(BITS), size=int(rng.integers(0, most)))
    )


def edited(rng, given):
    "A text that shares n-grams with the given one."
    if rng.random() < 0.15:
        return text(rng)
    words = [w for w in given.split(" ") if rng.random() > 0.12]
    for _ in range(int(rng.integers(0, 3))):
        words.insert(int(rng.integers(0, len(words) + 1)), BITS[int(rng.integers(len(BITS)))])
    return " ".join(words)


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_score_is_sacrebleus(smoothing, tokenize):
    "Corpora of 1 to 60 segments with one to three references each, and every other setting drawn."
    rng, positive = (
        np.random.default_rng([SMOOTHINGS.index(smoothing), TOKENIZERS.index(tokenize)]),
        0,
    )
    for n in [1] * 40 + [60, 60]:
        references = [
            [text(rng, 30) for _ in range(int(rng.integers(1, 4)))] for _ in range(n)
        ]
        candidates = [edited(rng, r[0]) for r in references]
        max_n, effective, lower = (
            int(rng.integers(1, 6)),
            bool(rng.integers(2)),
            bool(rng.integers(2)),
        )
        value = (
            float(rng.choice([0.01, 0.5, 2 if smoothing == "add-k" else 0.9]))
            if smoothing in ("floor", "add-k") and rng.random() < 0.5
            else None
        )
        scorer = BLEU(
            smooth_method=smoothing,
            smooth_value=value,
            tokenize=tokenize,
            max_ngram_order=max_n,
            effective_order=effective,
            lowercase=lower,
            force=True,
        )
        theirs = scorer.corpus_score(
            candidates,
            [
                [r[k] if k < len(r) else None for r in references]
                for k in range(max(map(len, references)))
            ],
        )
        ours = corpus_bleu(
            candidates,
            references,
            smoothing=smoothing,
            smoothing_value=value,
            tokenize=tokenize,
            max_n=max_n,
            effective_order=effective,
            lowercase=lower,
        )
        np.testing.assert_allclose(
            [ours.score, ours.brevity_penalty, *ours.precisions],
            [theirs.score / 100, theirs.bp, *(p / 100 for p in theirs.precisions)],
            rtol=1e-12,
            atol=1e-15,
        )
        assert (ours.candidate_length, ours.reference_length) == (
            theirs.sys_len,
            theirs.ref_len,
        )
        if smoothing != "add-k":
            assert (*ours.matches, *ours.totals) == (
                *theirs.counts,
                *theirs.totals,
            )  # there sacreBLEU's are those after smoothing
        assert ours.signature.startswith(
            f"{scorer.get_signature()}|order:{max_n}|"
        ) and ours.signature.endswith(f"|segments:{n}")
        positive += 0 < ours.score < 1
    assert positive > 8


def test_known_pairs_and_weights():
    assert (
        round(bleu("The cat is on mat", "The cat is on the mat", weights=(0.5, 0.5)).score, 6)
        == 0.709042
    )
    assert (
        bleu("a b c", ["a b", "a b c d"], max_n=1).reference_length == 2
    )  # a tie: the shorter
    assert bleu("a b c", ["a b c d", "a b"], max_n=1).brevity_penalty == 1.0
    assert (
        bleu("", "a b").score == 0
        and bleu("", "").score == 0
        and bleu("a", "").score == 0
        and bleu("", "", effective_order=True).score == 0
    )
    assert (
        bleu("", "a b").brevity_penalty == 0.0
        and bleu("a b", "a b", max_n=1).brevity_penalty == 1.0
    )
    candidate, reference = "a b c d e f x", "a b c d e f g h"
    p = bleu(candidate, reference).precisions
    for w in ((0.4, 0.3, 0.2, 0.1), (1, 0, 0, 0), (0, 0, 0, 1)):
        expected = math.exp(1 - 8 / 7) * math.prod(x**k for x, k in zip(p, w, strict=True))
        assert bleu(candidate, reference, weights=w).score == pytest.approx(
            expected, rel=1e-13
        )
    assert bleu(
        "a b", "a b", weights=(0.4, 0.4, 0.1, 0.1), effective_order=True
    ).score == pytest.approx(1, rel=1e-13)


# --- the metric -----------------------------------------------------------------------------------------------------------------------
def translations(texts, gold, **more):
    return Translations(ids=range(len(texts)), hypotheses=texts, references=gold, **more)


def systems(seed, n, noise_a, noise_b):
    rng = np.random.default_rng(seed)
    gold = [
        [f"w{k}" for k in rng.zipf(1.6, size=int(rng.integers(4, 25))).clip(max=60)]
        for _ in range(n)
    ]

    def noisy(words, noise):
        return " ".join(
            w if rng.random() > noise else f"x{rng.integers(50)}"
            for w in words
            if rng.random() > noise / 3
        )

    return (
        [noisy(g, noise_a) for g in gold],
        [noisy(g, noise_b) for g in gold],
        [" ".join(g) for g in gold],
    )


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("case", ["mixed", "lc"])
def test_the_metric_is_sacrebleus_score(tokenize, case):
    a, b, gold = systems(3, 60, 0.1, 0.2)
    a = [x.replace("w1 ", "W1, ") for x in a]
    found = compare(
        pair(*[translations(x, gold, tokenize=tokenize, case=case) for x in (a, b)])
    )
    expected = [
        BLEU(tokenize=tokenize, lowercase=case == "lc").corpus_score(x, [gold]).score
        for x in (a, b)
    ]
    assert [100 * found.baseline, 100 * found.candidate] == pytest.approx(expected, rel=1e-12)
    assert (
        f"|nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|"
        in found.report().document()["signature"]
        and found.units == "items"
    )
    assert (
        f"tok:{tokenize}"
        in evaluate(translations(a, gold, tokenize=tokenize)).report().document()["signature"]
    )


def covered(n, repeats, seed):
    "How often the paired interval over n sentences holds the difference of the whole population."
    a, b, gold = systems(seed, 1000, 0.12, 0.18)
    rng, hit = np.random.default_rng(seed), 0
    truth = np.diff(
        [corpus_bleu(x, gold, smoothing="exp", tokenize="13a").score for x in (a, b)]
    )[0]
    for _ in range(repeats):
        pick = rng.integers(1000, size=n)
        (A, A_u), (B, B_u) = (
            bleu_metric.leave_one_out(
                translations([x[i] for i in pick], [gold[i] for i in pick]), np.arange(n), n
            )
            for x in (a, b)
        )
        hit += jackknife_statistic(B - A, B_u - A_u).interval().contains(truth)
    return hit / repeats


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100, 300])
def test_coverage_over_sentences(n):
    assert abs(covered(n, 800, n) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 800)


# --- refusals -------------------------------------------------------------------------------------------------------------------------
TWO = dict(ids=[0, 1], hypotheses=["a", "b"], references=["x", "y"])


@pytest.mark.parametrize(
    "other",
    [{"tokenize": "char"}, {"case": "lc"}, {"references": ["x", ("y", "z")]}, {"ids": [0, 2]}],
)
def test_other_texts_and_recipes_do_not_pair(other):
    with pytest.raises(PairingError):
        pair(Translations(**TWO), Translations(**TWO | other))


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda wrong=wrong: Translations(**TWO | wrong)
            for wrong in (
                {"hypotheses": ["a"]},
                {"references": ["a", []]},
                {"hypotheses": ["a", None]},
                {"tokenize": "zh"},
                {"references": ["a"]},
            )
        ),
        *(
            lambda texts=texts: corpus_bleu(*texts)
            for texts in (
                (["a", "b"], [["a", "b"]]),
                ([], []),
                (["a"], "a"),
                (["a", 3], ["a", "b"]),
                (["a", "b"], ["a", None]),
                (["a", "b"], ["a", ["b", None]]),
            )
        ),
        lambda: bleu(["a"], ["a"]),
        lambda: bleu("a", []),
        *(
            lambda wrong=wrong: bleu("a", "a", **wrong)
            for wrong in (
                dict(max_n=0),
                dict(weights=(0.5, 0.5, 0.5, -0.5)),
                dict(weights=(0.5, 0.5), max_n=4),
                dict(weights=(0.5, 0.4)),
                dict(weights=(0, 1, 0, 0), effective_order=True),
                dict(tokenize="13A"),
                dict(smooth="exp"),
                dict(smoothing="floor", smoothing_value=0),
                dict(smoothing="floor", smoothing_value=2),
                dict(smoothing="exp", smoothing_value=1),
                dict(smoothing="add-k", smoothing_value="1"),
            )
        ),
    ],
)
def test_refusals(call):
    with pytest.raises(ContractError) as refused:
        call()
    assert refused.value.code == "contract"


def test_without_sacrebleu_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sacrebleu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    for call in (
        lambda: bleu("a", "a"),
        lambda: compare(pair(Translations(**TWO), Translations(**TWO))),
    ):
        with pytest.raises(ContractError, match="pip install") as refused:
            call()
        assert refused.value.code == "not_installed"


def test_references_in_the_layout_of_sacrebleu_are_refused_with_what_turns_them():
    candidates = ["a cat sat on the mat", "one dog ran away today", "the bird flew"]
    sets = [["a cat sat on a mat", "a dog ran away today", "a bird flew"]] * 2
    with pytest.raises(
        ContractError, match=r"layout of sacreBLEU. Write \[\*zip\(\*references"
    ):
        corpus_bleu(candidates, sets)
    assert corpus_bleu(candidates, [*zip(*sets, strict=True)]).score > 0
