"""BLEU against sacreBLEU on generated pairs, against its definition by counters, and its jackknife against resampling."""
import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from invar_nb.comparison.compare import compare
from invar_nb.comparison.pair import pair
from invar_nb.comparison.scores import Translations
from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.metrics.bleu import SMOOTHINGS, TOKENIZERS, bleu, bleu_statistics, bleu_without, corpus_bleu, matched_ngrams, tokenize_lines
from invar_nb.report.build import evaluate
from invar_nb.statistics.jackknife import jackknife_statistic

sacrebleu = pytest.importorskip("sacrebleu")
from sacrebleu.metrics import BLEU  # noqa: E402
from sacrebleu.metrics.bleu import _get_tokenizer  # noqa: E402

BITS = ("the The cat CAT Straße İ 3.14 1,000 10-12 -5 5- U.S. a.,5 a.,b ., ,. . , ... don't 'quoted' &quot; &amp;lt; &lt;b&gt; &nbsp; <skipped> <skip<skipped>ped> "
        "«oui» año ¿qué? €5 x=y+1 $5 ^ ~ ` 猫 です。 は、 ½ Ⅷ ² no. — – … (b) [c] {d} end. ٣. ٣,٤ e-mail 7-8-9 a\u00a0b \u200b \U0001f600 \u0301 %50 @x #y").split(" ") \
    + ["", " ", "  ", "\t", "\n", "-\n", "\u2028", "\x1c", "\x85", "\u3000", "\r"]


def text(rng, most=14):
    return "".join(BITS[j] + (" " if rng.random() < 0.6 else "") for j in rng.integers(len(BITS), size=int(rng.integers(0, most))))


def edited(rng, given):
    "A text that shares n-grams with the given one."
    if rng.random() < 0.15: return text(rng)
    words = [w for w in given.split(" ") if rng.random() > 0.12]
    for _ in range(int(rng.integers(0, 3))): words.insert(int(rng.integers(0, len(words) + 1)), BITS[int(rng.integers(len(BITS)))])
    return " ".join(words)


def same(ours, theirs, smoothing):
    "Largest difference of all that both report."
    apart = [abs(ours.score - theirs.score / 100), abs(ours.brevity_penalty - theirs.bp), *(abs(a - b / 100) for a, b in zip(ours.precisions, theirs.precisions, strict=True))]
    assert (ours.candidate_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)
    if smoothing != "add-k": assert list(ours.matches) == list(theirs.counts) and list(ours.totals) == list(theirs.totals)  # add-k writes its k into theirs
    return max(apart)


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_sacrebleu_pair_by_pair(smoothing, tokenize):
    "16 x 80 pairs, each scored alone, with one to three references and every other setting drawn."
    rng, positive = np.random.default_rng([SMOOTHINGS.index(smoothing), TOKENIZERS.index(tokenize)]), 0
    for _ in range(80):
        references = [text(rng) for _ in range(int(rng.integers(1, 4)))]
        candidate = edited(rng, references[int(rng.integers(len(references)))])
        max_n, effective, lower = int(rng.integers(1, 6)), bool(rng.integers(2)), bool(rng.integers(2))
        value = float(rng.choice([0.01, 0.1, 0.5, 1, 2 if smoothing == "add-k" else 0.9])) if smoothing in ("floor", "add-k") and rng.random() < 0.5 else None
        theirs = BLEU(smooth_method=smoothing, smooth_value=value, tokenize=tokenize, max_ngram_order=max_n, effective_order=effective, lowercase=lower, force=True)
        ours = bleu(candidate, references, smoothing=smoothing, smoothing_value=value, tokenize=tokenize, max_n=max_n, effective_order=effective, lowercase=lower)
        assert same(ours, theirs.corpus_score([candidate], [[r] for r in references]), smoothing) < 1e-10, (candidate, references)
        positive += 0 < ours.score < 1
    assert positive > 15


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_sacrebleu_corpora_with_any_number_of_references(tokenize):
    rng = np.random.default_rng(9)
    for smoothing in SMOOTHINGS:
        references = [[text(rng, 30) for _ in range(int(rng.integers(1, 4)))] for _ in range(60)]
        candidates = [edited(rng, r[0]) for r in references]
        streams = [[r[k] if k < len(r) else None for r in references] for k in range(3)]
        theirs = BLEU(smooth_method=smoothing, tokenize=tokenize, force=True).corpus_score(candidates, streams)
        ours = corpus_bleu(candidates, references, smoothing=smoothing, tokenize=tokenize)
        assert same(ours, theirs, smoothing) < 1e-10 and ours.score > 0.1
        assert ours.signature.endswith("|refs:1-3|segments:60") and f"|smooth:{smoothing}" in ours.signature and f"|tok:{tokenize}" in ours.signature


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_tokens_of_random_texts(tokenize):
    "As one batch, where lines could leak into each other, and alone."
    rng, theirs = np.random.default_rng(3), _get_tokenizer(tokenize)()
    lines = [text(rng, 25) for _ in range(800)] + ["".join(chr(c) for c in rng.integers(32, 127, size=int(rng.integers(0, 30)))) for _ in range(800)]
    expected = [theirs(line.rstrip()).split() for line in lines]
    assert tokenize_lines(lines, tokenize=tokenize) == expected
    assert [tokenize_lines([line], tokenize=tokenize)[0] for line in lines[::50]] == expected[::50]
    assert tokenize_lines([], tokenize=tokenize) == []


def test_intl_knows_every_character_of_the_interpreters_unicode():
    theirs, wrong = _get_tokenizer("intl")(), []
    for plane in range(0, 0x30000, 0x800):
        signs = [chr(c) for c in range(plane, plane + 0x800) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        lines = [f"{c}a{c}1{c}2{c}" for c in signs]
        if lines: wrong += [c for c, ours, line in zip(signs, tokenize_lines(lines, tokenize="intl"), lines, strict=True) if ours != theirs(line.rstrip()).split()]
    assert not wrong, [f"U+{ord(c):04X} {unicodedata.category(c)}" for c in wrong]


def by_counters(candidate, references, max_n):
    "One row from the definition."
    c, rs = candidate.split(), [r.split() for r in references]
    grams = lambda words, n: Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))
    matches = [sum(min(k, max(grams(r, n)[g] for r in rs)) for g, k in grams(c, n).items()) for n in range(1, max_n + 1)]
    return [len(c), min((abs(len(r) - len(c)), len(r)) for r in rs)[1], *matches, *(max(len(c) - n + 1, 0) for n in range(1, max_n + 1))]


sentence = st.lists(st.sampled_from("a b c d".split()), max_size=9).map(" ".join)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(segments, st.integers(1, 6), st.sampled_from(SMOOTHINGS))
def test_rows_are_the_definition_and_add_up(given_segments, max_n, smoothing):
    candidates, references = [c for c, _ in given_segments], [r for _, r in given_segments]
    rows = bleu_statistics(candidates, references, max_n=max_n)
    assert rows.tolist() == [by_counters(c, r, max_n) for c, r in given_segments] and rows.dtype == np.int64
    whole = corpus_bleu(candidates, references, max_n=max_n, smoothing=smoothing)
    assert corpus_bleu(candidates[::-1], [r[::-1] for r in references[::-1]], max_n=max_n, smoothing=smoothing) == whole
    assert math.isclose(bleu_without(rows, np.arange(len(rows)), len(rows), max_n=max_n, smoothing=smoothing)[0], whole.score, rel_tol=1e-12)
    rename = lambda line: line.translate(str.maketrans("abcd", "zyxw"))
    assert corpus_bleu([rename(c) for c in candidates], [[rename(x) for x in r] for r in references], max_n=max_n, smoothing=smoothing) == whole
    assert 0 <= whole.score <= 1 + 1e-12


def test_known_pairs_and_the_closest_length():
    assert round(bleu("The cat is on mat", "The cat is on the mat", max_n=2).score, 6) == 0.709042
    assert bleu("a b c", ["a b", "a b c d"], max_n=1).reference_length == 2  # a tie: the shorter
    assert bleu("a b c", ["a b c d", "a b"], max_n=1).brevity_penalty == 1.0
    assert bleu("", "a b").score == 0 and bleu("", "").score == 0 and bleu("a", "").score == 0
    assert bleu("", "a b").brevity_penalty == 0.0 and bleu("a b", "a b", max_n=1).brevity_penalty == 1.0


def test_weights():
    candidate, reference = "a b c d e f x", "a b c d e f g h"
    p = bleu(candidate, reference).precisions
    for w in ((0.4, 0.3, 0.2, 0.1), (1, 0, 0, 0), (0, 0, 0, 1)):
        expected = math.exp(1 - 8 / 7) * math.prod(x**k for x, k in zip(p, w, strict=True))
        assert bleu(candidate, reference, weights=w).score == pytest.approx(expected, rel=1e-13)
    assert bleu("a b", "a b", weights=(0.4, 0.4, 0.1, 0.1), effective_order=True).score == pytest.approx(1, rel=1e-13)


def systems(seed, n, noise_a, noise_b):
    rng = np.random.default_rng(seed)
    gold = [[f"w{k}" for k in rng.zipf(1.6, size=int(rng.integers(4, 25))).clip(max=60)] for _ in range(n)]
    def noisy(words, noise): return " ".join(w if rng.random() > noise else f"x{rng.integers(50)}" for w in words if rng.random() > noise / 3)
    return [noisy(g, noise_a) for g in gold], [noisy(g, noise_b) for g in gold], [" ".join(g) for g in gold]


@pytest.mark.parametrize("settings_", [{}, {"smoothing": "exp", "tokenize": "13a", "max_n": 3}])
def test_without_each_unit_and_the_interval(settings_):
    a, b, gold = systems(1, 90, 0.1, 0.14)
    codes, left_out = np.arange(90) % 30, lambda x, codes, n: bleu_without(bleu_statistics(x, gold, **settings_), codes, n, **settings_)
    value, without = left_out(a, codes, 30)
    for u in range(30):
        kept = np.flatnonzero(codes != u)
        assert without[u] == pytest.approx(corpus_bleu([a[i] for i in kept], [gold[i] for i in kept], **settings_).score, rel=1e-12)
    (A, A_u), (B, B_u) = (left_out(x, np.arange(90), 90) for x in (a, b))
    fit, rng = jackknife_statistic(B - A, B_u - A_u), np.random.default_rng(0)
    draws = [rng.integers(0, 90, 90) for _ in range(300)]
    star = [corpus_bleu([b[i] for i in d], [gold[i] for i in d], **settings_).score - corpus_bleu([a[i] for i in d], [gold[i] for i in d], **settings_).score for d in draws]
    assert fit.estimate == pytest.approx(B - A) and abs(fit.standard_error / np.std(star) - 1) < 4 / math.sqrt(600) + 0.1


def test_the_interval_keeps_its_level():
    "Exchangeable systems: a coin decides who said what; 0 must lie outside at most about 5 per cent of the intervals."
    outside = 0
    rows = [[bleu_statistics(x, gold) for x in (a, b)] for a, b, gold in [systems(7, 1500, 0.1, 0.3)]][0]
    rng = np.random.default_rng(8)
    for _ in range(400):
        pick, coin = rng.integers(1500, size=80), rng.integers(0, 2, (80, 1))
        x, y = (np.where(coin == k, rows[0][pick], rows[1][pick]) for k in (0, 1))
        (A, A_u), (B, B_u) = (bleu_without(r, np.arange(80), 80) for r in (x, y))
        found = jackknife_statistic(B - A, B_u - A_u).interval()
        outside += not found.contains(0)
    assert abs(outside / 400 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 400)


def translations(texts, gold, **more): return Translations(ids=range(len(texts)), hypotheses=texts, references=gold, **more)


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("case", ["mixed", "lc"])
def test_the_metric_is_sacrebleus_score(tokenize, case):
    a, b, gold = systems(3, 60, .1, .2)
    a = [x.replace("w1 ", "W1, ") for x in a]
    found = compare(pair(*[translations(x, gold, tokenize=tokenize, case=case) for x in (a, b)]))
    expected = [BLEU(tokenize=tokenize, lowercase=case == "lc").corpus_score(x, [gold]).score for x in (a, b)]
    assert [100 * found.baseline, 100 * found.candidate] == pytest.approx(expected, rel=1e-12)
    assert f"|nrefs:1|case:{case}|eff:no|tok:{tokenize}|smooth:exp|" in found.signature and found.units.name == "items"
    assert f"tok:{tokenize}" in evaluate(translations(a, gold, tokenize=tokenize)).document()["signature"]


@pytest.mark.parametrize("other, match", [({"tokenize": "char"}, "tokenize must match; got '13a' and 'char'"), ({"case": "lc"}, "case must match"), ({"references": ["x", ("y", "z")]}, "references must match.*at item 1"),
                                          ({"ids": [0, 2]}, "ids must match")])
def test_other_texts_and_recipes_do_not_pair(other, match):
    arm = dict(ids=[0, 1], hypotheses=["a", "b"], references=["x", "y"])
    with pytest.raises(PairingError, match=match): pair(Translations(**arm), Translations(**arm | other))


@pytest.mark.parametrize("wrong, match", [({"hypotheses": ["a"]}, "hypotheses must have one entry for each of the 2 sentences; got 1"), ({"references": ["a", []]}, "must have a reference; got none at index 1"),
                                          ({"hypotheses": ["a", None]}, "must be texts; got None at index 1"), ({"tokenize": "zh"}, "tokenize must be one of"), ({"references": ["a"]}, "references must have one entry")])
def test_translations_are_checked(wrong, match):
    with pytest.raises(ContractError, match=match): Translations(**dict(ids=[0, 1], hypotheses=["a", "b"], references=["x", "y"]) | wrong)


def test_matched_ngrams_are_the_counts_behind_the_score():
    rng = np.random.default_rng(9)
    for _ in range(60):
        golds = [text(rng) for _ in range(2)]
        said = edited(rng, golds[0])
        for tokenize in TOKENIZERS:
            found = matched_ngrams(said, golds, tokenize=tokenize)
            assert [sum(grams.values()) for grams in found] == bleu_statistics([said], [golds], tokenize=tokenize)[0, 2:6].tolist()
    assert matched_ngrams("the the cat", ["the cat", "a the"])[:2] == ({"the": 1, "cat": 1}, {"the cat": 1})


def covered(n, repeats, seed):
    "How often the paired interval over n sentences holds the difference of the whole population."
    a, b, gold = systems(seed, 3000, .12, .18)
    rows, rng, hit = [bleu_statistics(x, gold) for x in (a, b)], np.random.default_rng(seed), 0
    scores = [bleu_without(r, np.zeros(3000, int), 2)[0] for r in rows]
    for _ in range(repeats):
        pick = rng.integers(3000, size=n)
        (A, A_u), (B, B_u) = (bleu_without(r[pick], np.arange(n), n) for r in rows)
        hit += jackknife_statistic(B - A, B_u - A_u).interval().contains(scores[1] - scores[0])
    return hit / repeats


def test_the_interval_over_sentences_covers():
    assert abs(covered(100, 400, 5) - .95) < 4 * math.sqrt(.95 * .05 / 400)


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 100, 300])
def test_coverage_over_sentences(n):
    share = covered(n, 4000, n)
    print(f"{n} sentences: {share:.4f}")
    assert .93 <= share <= .97


@pytest.mark.parametrize("call, words", [
    (lambda: corpus_bleu(["a", "b"], [["a", "b"]]), "corpus_bleu.*streams"),
    (lambda: corpus_bleu((c for c in "ab"), ["a", "b"]), "list of texts"),
    (lambda: corpus_bleu([], []), "a segment"),
    (lambda: corpus_bleu(["a"], "a"), "one entry per candidate"),
    (lambda: corpus_bleu(["a", 3], ["a", "b"]), "3 at index 1"),
    (lambda: corpus_bleu(["a", "b"], ["a", None]), "None at index 1"),
    (lambda: corpus_bleu(["a", "b"], ["a", ["b", None]]), "at index 1"),
    (lambda: bleu(["a"], ["a"]), "candidate must be a text"),
    (lambda: bleu("a", []), "at index 0"),
    (lambda: bleu("a", "a", max_n=0), "at least 1"),
    (lambda: bleu("a", "a", weights=(0.5, 0.5, 0.5, -0.5)), "at least 0"),
    (lambda: bleu("a", "a", weights=(0.5, 0.5)), "4 numbers"),
    (lambda: bleu("a", "a", weights=(0, 1, 0, 0), effective_order=True), "positive weight on order 1"),
    (lambda: bleu("a", "a", smoothing="floor", smoothing_value=0), "positive"),
    (lambda: bleu("a", "a", smoothing="exp", smoothing_value=1), "no value"),
    (lambda: bleu("a", "a", tokenize="13A"), "'13a'"),
    (lambda: bleu("a", "a", lowercase=1), "True or False"),
    (lambda: bleu_statistics(["a"], ["a"], smooth="exp"), "'smoothing'"),
])
def test_refusals_name_the_culprit(call, words):
    with pytest.raises(ContractError, match=words): call()
