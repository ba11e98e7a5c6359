"""BLEU against sacreBLEU on thousands of generated pairs, against its definition by counters, and the two paired tests against listed exchanges."""
import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from invar_nb.foundations.numbers import ContractError
from invar_nb.probes import bleu as room
from invar_nb.probes.bleu import (SMOOTHINGS, TOKENIZERS, BleuRecipe, approximate_randomization, bleu, bleu_statistics, corpus_bleu, paired_bootstrap,
                                   segment_statistics, tokenize_lines)

sacrebleu = pytest.importorskip("sacrebleu")
from sacrebleu.metrics import BLEU  # noqa: E402
from sacrebleu.metrics.bleu import _get_tokenizer  # noqa: E402
from sacrebleu.significance import PairedTest  # noqa: E402

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
    "16 x 150 pairs, each scored alone, with one to three references and every other setting drawn."
    rng, positive = np.random.default_rng([SMOOTHINGS.index(smoothing), TOKENIZERS.index(tokenize)]), 0
    for _ in range(150):
        references = [text(rng) for _ in range(int(rng.integers(1, 4)))]
        candidate = edited(rng, references[int(rng.integers(len(references)))])
        max_n, effective, lower = int(rng.integers(1, 6)), bool(rng.integers(2)), bool(rng.integers(2))
        value = float(rng.choice([0.01, 0.1, 0.5, 1, 2 if smoothing == "add-k" else 0.9])) if smoothing in ("floor", "add-k") and rng.random() < 0.5 else None
        theirs = BLEU(smooth_method=smoothing, smooth_value=value, tokenize=tokenize, max_ngram_order=max_n, effective_order=effective, lowercase=lower, force=True)
        ours = bleu(candidate, references, smoothing=smoothing, smoothing_value=value, tokenize=tokenize, max_n=max_n, effective_order=effective, lowercase=lower)
        assert same(ours, theirs.corpus_score([candidate], [[r] for r in references]), smoothing) < 1e-10, (candidate, references)
        positive += 0 < ours.score < 1
    assert positive > 30  # the pairs are not all trivial


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_sacrebleu_corpora_with_any_number_of_references(tokenize):
    "Streams with holes there, lists of different lengths here."
    rng = np.random.default_rng(9)
    for smoothing in SMOOTHINGS:
        references = [[text(rng, 30) for _ in range(int(rng.integers(1, 4)))] for _ in range(80)]
        candidates = [edited(rng, r[0]) for r in references]
        streams = [[r[k] if k < len(r) else None for r in references] for k in range(3)]
        theirs = BLEU(smooth_method=smoothing, tokenize=tokenize, force=True).corpus_score(candidates, streams)
        ours = corpus_bleu(candidates, references, smoothing=smoothing, tokenize=tokenize)
        assert same(ours, theirs, smoothing) < 1e-10 and ours.score > 0.1
        assert ours.signature.endswith("|refs:1-3|segments:80") and f"|smooth:{smoothing}" in ours.signature and f"|tok:{tokenize}" in ours.signature


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_tokens_of_random_texts(tokenize):
    "Words, not only scores: 3000 texts from the nasty list and from printable ASCII, as one batch (where lines could leak into each other) and alone."
    rng, referee = np.random.default_rng(3), _get_tokenizer(tokenize)()
    lines = [text(rng, 25) for _ in range(1500)] + ["".join(chr(c) for c in rng.integers(32, 127, size=int(rng.integers(0, 30)))) for _ in range(1500)]
    expected = [referee(line.rstrip()).split() for line in lines]
    assert tokenize_lines(lines, tokenize=tokenize) == expected
    assert [tokenize_lines([line], tokenize=tokenize)[0] for line in lines[::50]] == expected[::50]
    assert tokenize_lines([], tokenize=tokenize) == []


def test_intl_knows_every_character_of_the_interpreters_unicode():
    "Each assigned character, between letters, digits and at both ends of a line; characters newer than this interpreter's table are not promised."
    referee, wrong = _get_tokenizer("intl")(), []
    for plane in range(0, 0x30000, 0x800):
        signs = [chr(c) for c in range(plane, plane + 0x800) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        lines = [f"{c}a{c}1{c}2{c}" for c in signs]
        if lines: wrong += [c for c, ours, line in zip(signs, tokenize_lines(lines, tokenize="intl"), lines, strict=True) if ours != referee(line.rstrip()).split()]
    assert not wrong, [f"U+{ord(c):04X} {unicodedata.category(c)}" for c in wrong]


def by_counters(candidate, references, max_n):
    "One row from the definition."
    c, rs = candidate.split(), [r.split() for r in references]
    grams = lambda words, n: Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))
    matches = [sum(min(k, max(grams(r, n)[g] for r in rs)) for g, k in grams(c, n).items()) for n in range(1, max_n + 1)]
    return [len(c), min((abs(len(r) - len(c)), len(r)) for r in rs)[1], *matches, *(max(len(c) - n + 1, 0) for n in range(1, max_n + 1))]


sentence = st.lists(st.sampled_from("a b c d".split()), max_size=9).map(" ".join)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(segments, st.integers(1, 6))
def test_rows_are_the_definition(given_segments, max_n):
    candidates, references = [c for c, _ in given_segments], [r for _, r in given_segments]
    rows = segment_statistics(candidates, references, max_n=max_n)
    assert rows.tolist() == [by_counters(c, r, max_n) for c, r in given_segments] and rows.dtype == np.int64


@settings(max_examples=100, deadline=None)
@given(segments, segments, st.sampled_from(SMOOTHINGS))
def test_sums_add_and_order_is_nothing(one, other, smoothing):
    parts = [bleu_statistics([c for c, _ in x], [r for _, r in x], smoothing=smoothing) for x in (one, other)]
    joined = one + other
    whole = bleu_statistics([c for c, _ in joined], [r for _, r in joined], smoothing=smoothing)
    assert parts[0] + parts[1] == whole == parts[1] + parts[0] == sum(parts)
    back = joined[::-1]
    assert corpus_bleu([c for c, _ in back], [r[::-1] for _, r in back], smoothing=smoothing) == whole.score
    assert 0 <= whole.score.score <= 1 + 1e-12


@settings(max_examples=60, deadline=None)
@given(segments)
def test_renaming_words_and_doubling_the_corpus_change_nothing(given_segments):
    candidates, references = [c for c, _ in given_segments], [r for _, r in given_segments]
    once = corpus_bleu(candidates, references)
    rename = lambda line: line.translate(str.maketrans("abcd", "zyxw"))
    assert corpus_bleu([rename(c) for c in candidates], [[rename(x) for x in r] for r in references]) == once
    assert math.isclose(corpus_bleu(candidates * 2, references * 2).score, once.score, rel_tol=1e-12)
    same_text = [c for c in candidates if len(c.split()) >= 4]
    if same_text: assert corpus_bleu(same_text, same_text).score == pytest.approx(1, rel=1e-12)


def test_the_notes_pair_and_the_closest_length():
    assert round(bleu("The cat is on mat", "The cat is on the mat", max_n=2).score, 6) == 0.709042
    assert bleu("a b c", ["a b", "a b c d"], max_n=1).reference_length == 2  # a tie: the shorter
    assert bleu("a b c", ["a b c d", "a b"], max_n=1).brevity_penalty == 1.0
    assert bleu("", "a b").score == 0 and bleu("", "").score == 0 and bleu("a", "").score == 0
    assert bleu("", "a b").brevity_penalty == 0.0 and bleu("a b", "a b", max_n=1).brevity_penalty == 1.0  # c = r


def test_weights():
    candidate, reference = "a b c d e f x", "a b c d e f g h"
    p = bleu(candidate, reference).precisions
    bp = math.exp(1 - 8 / 7)
    for w in ((0.4, 0.3, 0.2, 0.1), (1, 0, 0, 0), (0, 0, 0, 1)):
        expected = bp * math.prod(x**k for x, k in zip(p, w, strict=True))
        assert bleu(candidate, reference, weights=w).score == pytest.approx(expected, rel=1e-13)
    short = bleu("a b", "a b", weights=(0.4, 0.4, 0.1, 0.1), effective_order=True)
    assert short.score == pytest.approx(1, rel=1e-13)


def noisy(rng, words, noise):
    out = [w if rng.random() > noise else f"x{rng.integers(50)}" for w in words if rng.random() > noise / 3]
    return " ".join(out)


def systems(seed, n, noise_a, noise_b):
    rng = np.random.default_rng(seed)
    gold = [[f"w{k}" for k in rng.zipf(1.6, size=int(rng.integers(4, 25))).clip(max=60)] for _ in range(n)]
    return [noisy(rng, g, noise_a) for g in gold], [noisy(rng, g, noise_b) for g in gold], [" ".join(g) for g in gold]


@pytest.mark.parametrize("seed", range(6))
def test_listed_exchanges_are_the_definition(seed, monkeypatch):
    a, b, gold = systems(seed, 7, 0.1, 0.3)
    real = abs(corpus_bleu(b, gold, smoothing="exp").score - corpus_bleu(a, gold, smoothing="exp").score)
    as_large = 0
    for mask in range(2**7):
        x, y = [b[k] if mask >> k & 1 else a[k] for k in range(7)], [a[k] if mask >> k & 1 else b[k] for k in range(7)]
        as_large += abs(corpus_bleu(y, gold, smoothing="exp").score - corpus_bleu(x, gold, smoothing="exp").score) >= real - 1e-12
    for cells in (1 << 21, 40):  # in one piece, and in many
        monkeypatch.setattr(room, "_CELLS", cells)
        found = approximate_randomization(a, b, gold, seed=0, smoothing="exp")
        assert found.engine == "enumeration" and found.p_value == pytest.approx(as_large / 2**7, rel=1e-12)


def test_drawn_exchanges_agree_with_listed_ones():
    a, b, gold = systems(4, 12, 0.1, 0.2)
    listed, drawn = (approximate_randomization(a, b, gold, seed=3, trials=t, smoothing="exp") for t in (5000, 4000))
    assert (listed.engine, drawn.engine) == ("enumeration", "monte_carlo")
    assert abs(listed.p_value - drawn.p_value) < 4 * math.sqrt(listed.p_value * (1 - listed.p_value) / 4000) + 1 / 4000


def test_sacrebleus_own_coins_give_sacrebleus_own_p_value():
    "Our rows under the referee's coins and its strict rule; 60 segments, where no exchange ties."
    a, b, gold = systems(5, 60, 0.12, 0.16)
    theirs = PairedTest([("A", a), ("B", b)], {"BLEU": BLEU(tokenize="none")}, [gold], test_type="ar", n_samples=500)()[1]["BLEU"][1].p_value
    A, B, score_a, score_b, recipe = room._both(a, b, gold, {"smoothing": "exp"}, "test")
    rows = [segment_statistics(x, gold).astype(float) for x in (a, b)]
    coins = np.random.default_rng(12345).integers(2, size=(500, 60), dtype=bool)
    swapped = [coins @ rows[0] + ~coins @ rows[1], ~coins @ rows[0] + coins @ rows[1]]
    as_large = np.sum(np.abs(room._difference(*swapped, recipe)) > abs(score_b.score - score_a.score))
    assert (as_large + 1) / 501 == pytest.approx(theirs, rel=1e-12) and 0.002 < theirs < 0.9


def test_centred_absolute_values_are_sacrebleus_bootstrap():
    "The rule that the page calls tempting is the one in use: the same resamples give the same p-value."
    a, b, gold = systems(6, 60, 0.12, 0.16)
    theirs = PairedTest([("A", a), ("B", b)], {"BLEU": BLEU(tokenize="none")}, [gold], test_type="bs", n_samples=500)()[1]["BLEU"][1].p_value
    rows = [segment_statistics(x, gold).astype(float) for x in (a, b)]
    index = np.random.default_rng(12345).choice(60, size=(500, 60), replace=True)
    recipe = BleuRecipe(smoothing="exp")
    star = room._difference(rows[0][index].sum(1), rows[1][index].sum(1), recipe)
    d = abs(corpus_bleu(a, gold, smoothing="exp").score - corpus_bleu(b, gold, smoothing="exp").score)
    assert (np.sum(np.abs(star) - np.abs(star).mean() > d) + 1) / 501 == pytest.approx(theirs, abs=1 / 501 + 1e-12)


def test_randomization_keeps_its_level():
    "Exchangeable systems: a coin decides who said what. At most 5 per cent of 300 p-values may be at most 0.05, up to binomial noise."
    low = 0
    for seed in range(300):
        a, b, gold = systems(seed, 15, 0.1, 0.3)
        coin = np.random.default_rng(seed).integers(2, size=15)
        x, y = [[a[k], b[k]][coin[k]] for k in range(15)], [[b[k], a[k]][coin[k]] for k in range(15)]
        low += approximate_randomization(x, y, gold, seed=seed, trials=199, smoothing="exp").p_value <= 0.05
    assert 2 <= low <= 300 * 0.05 + 4 * math.sqrt(300 * 0.05 * 0.95)


@pytest.mark.parametrize("method", ["bca", "percentile", "expanded"])
def test_interval_and_p_value_are_one_statement(method):
    decided = set()
    for seed in range(12):
        a, b, gold = systems(seed, 40, 0.12, 0.12 + 0.015 * seed)
        found = paired_bootstrap(a, b, gold, seed=seed, replicates=400, method=method)
        outside = not found.interval.contains(0)
        if abs(found.p_value - 0.05) > 0.02: assert (found.p_value < 0.05) == outside
        decided.add(outside)
        assert found.interval.method == method and found.interval.engine == found.engine == "monte_carlo" and found.interval.contains(found.difference)
    assert decided == {True, False}


def test_bootstrap_is_reproducible_and_forgets_the_order_of_segments():
    a, b, gold = systems(1, 50, 0.1, 0.2)
    first = paired_bootstrap(a, b, gold, seed=5, replicates=300)
    turn = np.random.default_rng(0).permutation(50)
    again = paired_bootstrap(*([x[k] for k in turn] for x in (a, b, gold)), seed=5, replicates=300)
    assert again == first and paired_bootstrap(a, b, gold, seed=6, replicates=300).interval != first.interval
    se = first.interval.width / (2 * 1.96)
    A, B, *_, recipe = room._both(a, b, gold, {}, "test")
    left = room._difference(A.sum(0) - A, B.sum(0) - B, recipe)
    jackknife = math.sqrt(49 / 50 * np.sum((left - left.mean()) ** 2))
    assert abs(se / jackknife - 1) < 0.25


def test_bca_by_hand_from_resampled_texts():
    "Texts resampled with the same indices and scored whole; bias, acceleration and cuts written out from Efron's formulas."
    a, b, gold = systems(8, 18, 0.05, 0.35)
    rows = [segment_statistics(x, gold) for x in (a, b)]
    turn = np.lexsort(np.hstack(rows).T)
    a, b, gold = ([x[k] for k in turn] for x in (a, b, gold))
    score = lambda x, index: corpus_bleu([x[i] for i in index], [gold[i] for i in index], smoothing="exp").score
    star = np.array([score(b, i) - score(a, i) for i in np.random.default_rng(2).integers(0, 18, size=(200, 18))])
    d = score(b, range(18)) - score(a, range(18))
    left = np.array([score(b, i) - score(a, i) for i in ([k for k in range(18) if k != out] for out in range(18))])
    u = left.mean() - left
    acceleration = np.sum(u**3) / (6 * np.sum(u**2) ** 1.5)
    bias = norm.ppf(np.mean(star < d))
    assert abs(acceleration) > 0.01  # otherwise its sign would not show
    cuts = [norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in norm.ppf([0.05, 0.95])]
    found = paired_bootstrap(a, b, gold, seed=2, replicates=200, level=0.9, smoothing="exp")
    assert found.difference == pytest.approx(d, abs=1e-14)
    np.testing.assert_allclose([found.interval.low, found.interval.high], np.quantile(star, cuts), rtol=0, atol=1e-10)


def test_no_difference_and_one_segment():
    a, _, gold = systems(2, 30, 0.1, 0.1)
    nothing = paired_bootstrap(a, a, gold, seed=0)
    assert nothing.p_value == 1.0 and nothing.interval.low == nothing.interval.high == 0 and nothing.interval.fallback.code == "all_equal"
    assert approximate_randomization(a, a, gold, seed=0).p_value == 1.0
    alone = paired_bootstrap(a[:1], gold[:1], gold[:1], seed=0)
    assert alone.p_value is None and alone.interval.fallback.code == "single_pair"
    twins = paired_bootstrap(["a b c x"] * 6, ["a b c d"] * 6, ["a b c d"] * 6, seed=0, smoothing="exp")
    assert twins.interval.fallback.code == "all_equal" and twins.p_value == 2.0**-5
    assert approximate_randomization(["a b c x"] * 6, ["a b c d"] * 6, ["a b c d"] * 6, seed=0, smoothing="exp").p_value == 2.0**-5


@pytest.mark.parametrize("call, words", [
    (lambda: corpus_bleu(["a", "b"], [["a", "b"]]), "corpus_bleu.*streams"),
    (lambda: corpus_bleu((c for c in "ab"), ["a", "b"]), "list of texts"),
    (lambda: corpus_bleu(["a"], "a"), "one entry per candidate"),
    (lambda: corpus_bleu(["a", 3], ["a", "b"]), "3 at index 1"),
    (lambda: corpus_bleu(["a", "b"], ["a", None]), "None at index 1"),
    (lambda: corpus_bleu(["a", "b"], ["a", ["b", None]]), "at index 1"),
    (lambda: bleu(["a"], ["a"]), "candidate must be a text"),
    (lambda: bleu("a", []), "at index 0"),
    (lambda: bleu("a", "a", max_n=0), "at least 1"),
    (lambda: bleu("a", "a", weights=(0.5, 0.5, 0.5, -0.5)), "at least 0"),
    (lambda: bleu("a", "a", weights=(0, 1, 0, 0), effective_order=True), "positive weight on order 1"),
    (lambda: bleu("a", "a", smoothing="floor", smoothing_value=0), "positive"),
    (lambda: bleu("a", "a", smoothing="floor", smoothing_value=math.nan), "finite"),
    (lambda: bleu("a", "a", tokenize="13A"), "'13a'"),
    (lambda: bleu("a", "a", lowercase=1), "True or False"),
    (lambda: approximate_randomization(["a"], ["b"], ["a"], seed=-1), "seed"),
    (lambda: paired_bootstrap(["a"], ["b"], ["a"], seed=0, replicates=10), "replicates"),
    (lambda: bleu_statistics(["a"], ["a"], smooth="exp"), "'smoothing'"),
    (lambda: bleu_statistics(["a"], ["a"]) + bleu_statistics(["a"], ["a"], max_n=2), "one recipe"),
])
def test_refusals_name_the_culprit(call, words):
    with pytest.raises(ContractError, match=words): call()
