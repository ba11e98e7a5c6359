"Answers that were green and false: one ruined window, topics longer than the interval sees, few documents, one text counted several times."

import json
from pathlib import Path

import numpy as np
import pytest
from test_shell import shell

from invar_nb import Rules, Scores, WindowLosses, compare, pair, study, verify

CASES = Path(__file__).parent / "data/cases"


def arms(base, change, tokens=64, **more):
    "A baseline and a candidate with windows w00, w01, ..."
    ids = [f"w{i:02d}" for i in range(len(base))]
    return [
        WindowLosses.from_arrays(ids, np.broadcast_to(tokens, len(base)), x, **more)
        for x in (base, np.asarray(base) + change)
    ]


# --- a few units alone decide --------------------------------------------------------------------------------------------------------
def test_one_ruined_window_is_named_and_red(tmp_path):
    "One window of 16 lost 300 nats per token: no claim, but its name, exit 1 and no sentence on power; verify computes the exit again, and the cure works."
    files = CASES / "exploded_base.csv", CASES / "exploded_new.csv"
    code, out, err = shell("compare", *files, "--out", tmp_path / "r")
    d = json.loads((tmp_path / "r/report.json").read_text())
    first = d["headline"]
    assert (
        code == d["exit"]["code"] == 1
        and d["claim"] == "inconclusive"
        and d["exit"]["rule"] == "few_units_decide"
    ), (code, d["exit"])
    assert (
        "one window alone decides: window w3 lost 300 nats per token" in first
        and "beyond the margin of 2 %" in first
        and out.startswith(first)
    )
    for text in (
        out,
        (tmp_path / "r/report.md").read_text(),
        (tmp_path / "r/summary.md").read_text(),
    ):
        assert (
            "80 % power" not in text
            and "would have been found" not in text
            and "w3 lost" in text
        )
    assert (
        "w3" in d["exit"]["because"]
        and d["exit"]["because"] in out
        and verify(tmp_path / "r")
        and "window" in d["rationale"]
    )
    code, out, _ = shell("compare", *files, "--json", "--out", tmp_path / "j")
    assert code == 1 and json.loads(out)["exit"]["rule"] == "few_units_decide"
    assert shell("compare", *files, "--require", "not-beyond", "--out", tmp_path / "n")[0] == 1
    for k, file in enumerate(files):
        (tmp_path / f"{k}.csv").write_text(
            "".join(
                line
                for line in file.read_text().splitlines(True)
                if not line.startswith("w3,")
            )
        )
    code, out, _ = shell(
        "compare", tmp_path / "0.csv", tmp_path / "1.csv", "--out", tmp_path / "cured"
    )
    assert code == 0 and out.startswith("Equivalent")


@pytest.mark.parametrize(
    "hit, named",
    [
        ({3: 4}, "one window alone decides: window w03 lost 4 nats per token"),
        (
            {3: 4, 7: 2},
            "2 windows alone decide: window w03 lost 4 and window w07 lost 2 nats per token",
        ),
        ({3: -4}, ""),
        ({3: 0.2}, ""),
    ],
)
def test_who_alone_decides_in_losses(hit, named):
    "One or two of 18; a gain of one window is no loss, and a loss within the margin is none that matters."
    change = np.random.default_rng(2).normal(0, 0.001, 18)
    for i, x in hit.items():
        change[i] += x
    found = compare(pair(*arms(6 + np.arange(18) / 10, change)))
    assert (
        found.claim == "inconclusive"
        and found.report().exit_code == bool(named)
        and named in found.headline
        and ("alone decide" in found.headline) == bool(named)
    )
    assert found.row.shows("beyond") is found.row.shows("not_worse") is False


@pytest.mark.parametrize(
    "n, by", [(8, "window"), (9, "window"), (3, "window"), (9, "document"), (9, "asked")]
)
def test_one_ruined_unit_below_ten_is_named_and_red(n, by, tmp_path):
    "One of 3 to 9 windows or documents lost 4 nats per token, the rest nothing: no claim, its name, exit 1, no power; without it green; a gain is none."
    change = np.random.default_rng(2).normal(0, 0.001, n)
    change[2] += 4
    m = 4 if by == "asked" else 1
    more = {} if by == "window" else {"document_ids": np.repeat(np.arange(n), m)}
    base, change, units = (
        6 + np.arange(n * m) / 10,
        np.repeat(change, m),
        "documents" if by == "asked" else "auto",
    )
    found = compare(pair(*arms(base, change, **more)), units=units)
    named = f"one {'document' if by == 'asked' else 'window'} alone decides: {'document 2' if by == 'asked' else 'window w02'} lost 4 nats per token"
    report = found.report()
    report.save(tmp_path / "r")
    assert (
        found.claim == "inconclusive"
        and report.exit_code == 1
        and report.exit.rule == "few_units_decide"
        and named in report.exit.because
    ), report.exit
    assert (
        named in found.headline
        and "beyond the margin of 2 %" in found.headline
        and f"only {n} effective" in found.headline
        and verify(tmp_path / "r")
    )
    for text in (str(found), str(report), report.to_markdown(), found.rationale):
        assert "80 % power" not in text and "would have been found" not in text
    assert not found.row.shows("beyond") and not found.row.shows("not_worse")
    keep = np.flatnonzero(np.repeat(np.arange(n), m) != 2)
    a, b = arms(base, change, **more)
    for quiet in (
        compare(pair(a.take(keep), b.take(keep)), units=units),
        compare(pair(b, a), units=units),
    ):
        assert (
            quiet.report().exit_code == 0
            and "alone decides" not in quiet.headline
            and "effective" in quiet.headline
        )
    known = {"up_to": 9, "reason": "ticket 1", "expires": "2999-01-01"}
    assert compare(pair(a, b), units=units, accepted=[known]).report().exit_code == 0


@pytest.mark.parametrize("n, m", [(9, 2), (9, 4), (8, 10), (5, 30)])
def test_one_ruined_document_of_few_is_named_though_windows_are_the_units(n, m, tmp_path):
    "The windows of 5 to 9 documents are the units, and one document lost 4 nats per token: its name and exit 1, alone and beside another candidate."
    change = np.random.default_rng(2).normal(0, 0.001, n)
    change[2] += 4
    base, more = 6 + np.arange(n * m) / 10 % 5, {"document_ids": np.repeat(np.arange(n), m)}
    a, b = arms(base, np.repeat(change, m), **more)
    found, named = (
        compare(pair(a, b)),
        "one document alone decides: document 2 lost 4 nats per token",
    )
    report = found.report()
    report.save(tmp_path / "r")
    assert (
        found.units == "serial"
        and found.claim == "inconclusive"
        and report.exit.rule == "few_units_decide"
        and report.exit_code == 1
    ), report.exit
    assert (
        named in found.headline
        and named in report.exit.because
        and named in found.rationale
        and verify(tmp_path / "r")
    )
    for text in (str(found), str(report), report.to_markdown()):
        assert "80 % power" not in text and "would have been found" not in text
    keep = np.flatnonzero(np.repeat(np.arange(n), m) != 2)
    assert all(
        one.report().exit_code == 0
        for one in (compare(pair(a.take(keep), b.take(keep))), compare(pair(b, a)))
    )
    two = study(
        {
            "baseline": a,
            "bad": b,
            "good": b.changed(
                model="good",
                log_loss=a.log_loss + np.random.default_rng(3).normal(0, 0.001, n * m),
            ),
        }
    )
    assert (
        two.report().exit.rule == "few_units_decide"
        and "document 2 lost 4" in two.headline
        and "bad" in two.report().exit.because
    )
    known = {"up_to": 9, "reason": "ticket 1", "expires": "2999-01-01"}
    assert compare(pair(a, b), accepted=[known]).report().exit_code == 0


def ruined(n, hit, by="window", spread=0.1):
    "n windows or documents whose change has this spread, and those of `hit` changed by so much more."
    change = np.random.default_rng(5).normal(0, spread, n)
    change -= change.mean()
    for i, x in hit.items():
        change[i] += x
    more = {} if by == "window" else {"document_ids": np.repeat(np.arange(n), 4)}
    m = 1 if by == "window" else 4
    return arms(6 + np.arange(n * m) / 10 % 7, np.repeat(change, m), **more)


def test_the_card_of_a_row_that_a_few_units_decide_says_so(tmp_path):
    "The same words as the headline, alone and of one candidate of two; an accepted loss says them too, and a row that is only unclear has none."
    pytest.importorskip("huggingface_hub")
    yaml = pytest.importorskip("yaml")
    claim_of = lambda *words: yaml.safe_load(shell("card", tmp_path / "r", *words)[1])[
        "model-index"
    ][0]["results"][0]["metrics"][0]["args"]["claim"]
    a, b = ruined(13, {3: 5.5, 7: 5}, spread=0.02)
    known = {"up_to": 9, "reason": "ticket 1", "expires": "2999-01-01"}
    for accepted in ([], [known]):
        compare(pair(a, b), accepted=accepted).report().save(tmp_path / "r", force=True)
        assert (
            claim_of()
            == f"inconclusive{' (accepted)' if accepted else ''}, worse by more than 2 %: 2 windows alone decide: window w03 lost 5.51 and window w07 lost 4.99 nats per token"
        )
    compare(pair(*ruined(8, {3: 5}, spread=0.02))).report().save(tmp_path / "r", force=True)
    assert claim_of().startswith(
        "inconclusive, worse by more than 2 %: one window alone decides: window w03 lost 5"
    )
    good = b.changed(
        model="good", log_loss=a.log_loss + np.random.default_rng(3).normal(0, 0.001, 13)
    )
    study({"baseline": a, "bad": b, "good": good}).report().save(tmp_path / "r", force=True)
    assert (
        "w03 lost 5.51" in claim_of("--candidate", "bad")
        and "equivalent" in claim_of("--candidate", "good")
        and verify(tmp_path / "r")
    )
    compare(pair(*ruined(13, {}, spread=0.5))).report().save(tmp_path / "r", force=True)
    assert claim_of() == "inconclusive"


FEW_RUINED = [
    (13, {3: 5, 7: 5}, "2 {s} alone decide: {} 3 lost"),
    (40, {3: 5, 7: 5, 9: 4}, "3 {s} alone decide: {} 3 lost"),
    (80, {1: 9, 2: 3, 3: 2, 4: 2}, "4 {s} alone decide: {} 1 lost"),
]


@pytest.mark.parametrize(
    "by, n, hit, named",
    [
        ("window", 6, {3: 5.5, 4: 5}, "2 {s} alone decide: {} 3 lost"),
        ("window", 9, {0: 5, 8: 3}, "2 {s} alone decide: {} 0 lost"),
        *((by, *case) for by in ("window", "document") for case in FEW_RUINED),
    ],
)
def test_a_few_ruined_units_are_named_and_red(by, n, hit, named, tmp_path):
    "Two or more, up to a tenth of all, lost 5 nats per token and the rest next to nothing: no claim, their names, exit 1, no power; without them green, gains are none, and the loss can be accepted."
    a, b = ruined(n, hit, by, 0.02)
    found = compare(pair(a, b))
    report = found.report()
    report.save(tmp_path / "r")
    first = named.replace("{s}", f"{by}s").replace(
        "{} ", f"{by} w0" if by == "window" else f"{by} "
    )
    assert (
        found.claim == "inconclusive"
        and report.exit_code == 1
        and report.exit.rule == "few_units_decide"
        and first in report.exit.because
    ), (report.exit, found.headline)
    assert (
        first in found.headline
        and "beyond the margin of 2 %" in found.headline
        and verify(tmp_path / "r")
    )
    assert (len(hit) <= 3) == (
        "more" not in found.headline.partition("decide: ")[2]
    ) and found.headline.count(" lost ") == min(3, len(hit))
    for text in (str(found), str(report), report.to_markdown(), found.rationale):
        assert "80 % power" not in text and "would have been found" not in text
    m = len(a) // n
    keep = np.flatnonzero(~np.isin(np.arange(len(a)) // m, [*hit]))
    for quiet in (compare(pair(a.take(keep), b.take(keep))), compare(pair(b, a))):
        assert quiet.report().exit_code == 0 and "alone decide" not in quiet.headline
    known = {"up_to": 9, "reason": "ticket 1", "expires": "2999-01-01"}
    assert compare(pair(a, b), accepted=[known]).report().exit_code == 0


@pytest.mark.parametrize(
    "hit, spread",
    [
        ({3: 5, 7: 5}, 0.6),
        ({3: 0.15, 7: 0.15}, 0.001),
        ({3: 5, 7: 5, 9: 5}, 0.1),
        ({3: 5, 7: 5, 9: -5}, 0.1),
    ],
)
def test_what_is_no_matter_of_a_few_units_stays_inconclusive(hit, spread):
    "Noise that is no tenth of the loss, losses of few margins, more than two of 13, and a gain among them."
    found = compare(pair(*ruined(13, hit, spread=spread)))
    assert (
        found.claim == "inconclusive"
        and "alone decide" not in found.headline
        and found.report().exit.rule == "no_regression_shown"
    )


@pytest.mark.parametrize(
    "n, hit, line",
    [
        (600, {33: 5}, "Look at this: window w33 lost"),
        (60, {3: 5, 7: -5}, "Look at this: window w03 lost"),
        (60, {3: 5, 7: -6}, "Look at this: window w03 lost"),
        (9, {3: 5, 7: -5}, "Look at this: window w03 lost"),
        (600, {33: 5, 44: 4, 50: -8}, "Look at these: window w33 lost"),
    ],
)
def test_a_ruined_unit_that_the_mean_hides_is_named(n, hit, line, tmp_path):
    "One or two lost 5 nats per token, and a gain elsewhere or hundreds of others hide it: said on the first screen, with no other exit code."
    a, b = ruined(n, hit, spread=0.05)
    found = compare(pair(a, b))
    report = found.report()
    report.save(tmp_path / "r")
    (said,) = (one for one in report.document()["doubts"] if one.startswith(line))
    assert (
        report.exit_code == 0
        and said in str(report)
        and said in report.to_markdown()
        and verify(tmp_path / "r")
    )
    assert (
        f"{n - len(hit)} of {n} windows moved by less than a tenth of that" in said
        and "w07" not in said
    )
    keep = np.setdiff1d(np.arange(n), [*hit])
    for quiet in (
        compare(pair(a.take(keep), b.take(keep))),
        compare(pair(*ruined(n, {i: -x for i, x in hit.items() if x > 0}, spread=0.05))),
    ):
        assert "Look at" not in str(quiet.report())


def test_a_ruined_document_that_the_mean_hides_is_named():
    "Of five documents, whose windows are the units, one lost 5 and one gained 5 nats per token; of sixty, one lost, and a short one does not count."
    a, b = ruined(5, {1: 5, 3: -5}, "document", 0.001)
    report = compare(pair(a, b)).report()
    assert report.exit_code == 0 and "Look at this: document 1 lost 5" in str(report)
    a, b = ruined(60, {1: 1}, "document", 0.001)
    assert "Look at this: document 1 lost " in str(compare(pair(a, b), margin=0.05).report())
    tokens = np.where(np.asarray(a.document_ids).astype(int) == 1, 1, 64)
    assert "Look at" not in str(
        compare(pair(*(arm.changed(tokens=tokens) for arm in (a, b))), margin=0.05).report()
    )


@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
@pytest.mark.parametrize("n", [3, 5, 9])
def test_small_studies_without_a_change_are_seldom_red(law, n):
    "At most 5 of 100 studies of 3 to 9 units, whatever their spread is beside the margin, plus two standard errors."
    from invar_nb.comparison.few_units import is_decided_by_few

    rng = np.random.default_rng([n, len(law)])
    draw = {
        "normal": lambda: rng.normal(0, 1, n),
        "exponential": lambda: rng.exponential(1, n) - 1,
        "lognormal": lambda: rng.lognormal(0, 1, n) - np.exp(0.5),
    }[law]
    for spread in (0.02, 0.3, 2):
        red = [
            is_decided_by_few(
                compare(pair(*arms(np.full(n, 8.0), spread * draw()))).row.value, 0.0198
            )
            for _ in range(60)
        ]
        assert np.mean(red) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60), (spread, np.mean(red))


def test_who_alone_decides_in_a_family_of_scores_and_what_is_accepted():
    "One of 40 scores fell by 1000: named beside the other candidate, by its id; documents by theirs; a loss up to its size may be accepted."
    rng = np.random.default_rng(3)
    base = Scores(
        ids=[f"q{i:02d}" for i in range(40)],
        values=50 + rng.random(40),
        score="points",
        better="higher",
    )
    good, bad = (
        base.changed(
            model=name,
            values=base.values + rng.normal(0, 0.01, 40) - lost * (np.arange(40) == 11),
        )
        for name, lost in (("good", 0), ("bad", 1000))
    )
    found = study({"baseline": base, "good": good, "bad": bad}, margin=1.0)
    exit = found.report().exit
    assert (
        exit.code == 1
        and exit.rule == "few_units_decide"
        and "q11" in exit.because
        and "bad" in exit.because
        and "q11 lost 1,000" in found.headline
        and "bad" in found.headline
    )
    assert study({"baseline": base, "good": good}, margin=1.0).report().exit_code == 0
    lost = np.random.default_rng(2).normal(0, 0.001, 40) + 4 * (np.arange(40) >= 38)
    found = compare(pair(*arms(2 + np.arange(40) / 10, lost, document_ids=np.arange(40) // 2)))
    assert (
        "one document alone decides: document 19 lost 4 nats per token" in found.headline
        and found.report().exit_code == 1
    )
    known = {"up_to": 0.5, "reason": "ticket 1", "expires": "2999-01-01"}
    assert (
        compare(
            pair(*arms(2 + np.arange(40) / 10, lost, document_ids=np.arange(40) // 2)),
            accepted=[known],
        )
        .report()
        .exit_code
        == 0
    )
    assert (
        compare(
            pair(*arms(2 + np.arange(40) / 10, lost, document_ids=np.arange(40) // 2)),
            accepted=[known | {"up_to": 0.1}],
        )
        .report()
        .exit_code
        == 1
    )


@pytest.mark.parametrize("n", [8, 16])
@pytest.mark.parametrize(
    "pooling, by",
    [("equal", "window"), ("equal", "document"), ({"law": 3, "code": 1}, "window")],
)
def test_a_pooled_row_names_the_unit_that_decides_and_its_text(n, pooling, by, tmp_path):
    "One unit of one of two texts lost 30 nats per token: its name, its text, what it lost; without it the pool is within the margin."
    rng, parts, m = np.random.default_rng(8), {}, 2 if by == "document" else 1
    for part, hit in (("code", 0), ("law", 30)):
        change = rng.normal(0, 0.001, n) + hit * (np.arange(n) == 5)
        more = {"document_ids": np.repeat(np.arange(n), m)} if m > 1 else {}
        parts |= {
            (name, part): arm
            for name, arm in zip(
                ("baseline", "new"),
                arms(3 + rng.random(n * m), np.repeat(change, m), **more),
                strict=True,
            )
        }
    found = study(parts, pooling=pooling, units="documents" if by == "document" else "auto")
    named = (
        "one document alone decides: document 5 of law lost 30 nats per token"
        if m > 1
        else "one window alone decides: window w05 of law lost 30 nats per token"
    )
    report = found.report()
    report.save(tmp_path / "r")
    assert (
        found.row.role == "pooled"
        and report.exit_code == 1
        and report.exit.rule == "few_units_decide"
    )
    assert named in found.headline and named in report.exit.because and verify(tmp_path / "r")


# --- topics longer than the interval sees ---------------------------------------------------------------------------------------------
def test_under_an_alarm_nothing_is_claimed(tmp_path):
    "Half of a text as before, half worse by 10 %: no word, no exit 1, no power; the headline says why; counted over documents the words are back."
    rng, n = np.random.default_rng(4), 600
    change, base = (
        0.1 * (np.arange(n) >= n // 2) + rng.normal(0, 0.02, n),
        3 + 0.3 * rng.random(n),
    )
    found = compare(pair(*arms(base, change)))
    assert (
        found.row.value.interval.alarm
        and found.claim == "inconclusive"
        and not found.row.shows("beyond")
        and not found.row.shows("not_worse")
    )
    assert (
        found.headline.startswith(
            "Inconclusive, although the interval excludes 0: perplexity +5"
        )
        and "topics longer than its interval can see" in found.headline
        and "documents" in found.headline
        and "power" not in found.headline
    )
    report = found.report()
    report.save(tmp_path / "r")
    assert (
        report.exit_code == 0
        and report.exit.rule == "no_regression_shown"
        and verify(tmp_path / "r")
    )
    assert (
        "would have been found" not in str(report)
        and "called regressed in at most" not in report.to_markdown()
        and "topics" in found.rationale
    )
    calm = compare(pair(*arms(base, change - np.where(np.arange(n) >= n // 2, 0.1, 0))))
    assert calm.claim == "equivalent"
    several = study(
        {
            "baseline": arms(base, change)[0],
            "topics": arms(base, change)[1],
            "calm": arms(base, change - np.where(np.arange(n) >= n // 2, 0.1, 0))[1],
        }
    )
    assert {row.key.candidate: row.claim for row in several.leading} == {
        "topics": "inconclusive",
        "calm": "equivalent",
    } and several.report().exit_code == 0
    cured = compare(pair(*arms(base, change, document_ids=np.arange(n) // 10)))
    assert cured.claim == "regressed" and "topics" not in str(cured.report())


def test_an_alarm_of_a_text_is_one_of_the_pool():
    rng, n = np.random.default_rng(4), 600
    change, base = (
        0.1 * (np.arange(n) >= n // 2) + rng.normal(0, 0.02, n),
        3 + 0.3 * rng.random(n),
    )
    texts = {}
    for part, moved in (("law", change), ("code", 0.1 + rng.normal(0, 0.02, n))):
        texts |= {
            (name, part): arm
            for name, arm in zip(
                ("baseline", "new"), arms(base + rng.normal(0, 0.1, n), moved), strict=True
            )
        }
    found = study(texts, Rules(pooling="equal"))
    assert (
        found.row.role == "pooled"
        and found.claim == "inconclusive"
        and "topics" in found.headline
    )


# --- fewer than ten documents ---------------------------------------------------------------------------------------------------------
def test_few_documents_are_named_in_the_headline(tmp_path):
    "Of 3 marked documents the interval speaks of other passages of these; nobody is told to mark them."
    rng, n = np.random.default_rng(5), 120
    base, documents = 3 + 0.3 * rng.random(n), np.arange(n) // 40
    for change, word in (
        (0.05, "Regressed"),
        (0, "Equivalent"),
        (-0.05, "Improved"),
        (0.02, "Regressed"),
    ):
        found = compare(
            pair(*arms(base, change + rng.normal(0, 0.02, n), document_ids=documents))
        )
        assert found.headline.startswith(word) and "on these 3 documents" in found.headline, (
            found.headline
        )
        for text in (str(found), found.report().to_markdown(), found.rationale):
            assert "these 3 documents" in text
    slow = compare(
        pair(
            *arms(
                base,
                0.1 * (np.arange(n) >= 60) + rng.normal(0, 0.01, n),
                document_ids=documents,
            )
        )
    )
    assert (
        slow.headline.endswith("no claim is made; add documents.")
        and "over its documents" not in slow.headline
    )
    assert (
        slow.row.value.interval.alarm
        and "Mark its documents" not in str(slow.report())
        and "ore documents" in str(slow.report())
    )
    unmarked = compare(pair(*arms(base, 0.1 * (np.arange(n) >= 60) + rng.normal(0, 0.01, n))))
    assert unmarked.headline.endswith("no claim is made; compare over its documents.")
    assert "Mark its documents" in str(unmarked.report()) and "these" not in unmarked.headline
    one = compare(
        pair(*arms(base, 0.05 + rng.normal(0, 0.02, n), document_ids=np.zeros(n, int)))
    )
    assert "on these" not in one.headline and "on this document" not in one.headline
    many = compare(
        pair(*arms(base, 0.05 + rng.normal(0, 0.02, n), document_ids=np.arange(n) // 4))
    )
    assert "on these" not in many.headline
    a, b = arms(base, 0.05 + rng.normal(0, 0.02, n), document_ids=documents)
    two = study(
        {
            "baseline": a,
            "q4": b,
            "q8": b.changed(model="q8", log_loss=a.log_loss + rng.normal(0, 0.02, n)),
        }
    )
    assert "on these 3 documents" in two.headline


# --- one text counted several times -----------------------------------------------------------------------------------------------------
def twelve(times=1, m=1, seed=6, step=None, **more):
    "Twelve documents of m windows, each under so many ids; losses in steps of `step`."
    rng, n = np.random.default_rng(seed), 12 * m
    tokens, base = rng.integers(20, 60, n), rng.gamma(9, 0.3, n)
    new = base + 0.04 + rng.normal(0, 0.03, n)
    if step:
        base, new = (np.round(x / step) * step for x in (base, new))
    if step:
        base, new = (np.round(x, 6) for x in (base, new))
    tile = lambda x: np.tile(x, times)
    ids = [f"{k}:{i}" for k in range(times) for i in range(n)]
    names = [f"d{i // m}-{k}" for k in range(times) for i in range(n)]
    return [
        WindowLosses.from_arrays(ids, tile(tokens), tile(x), document_ids=names, **more)
        for x in (base, new)
    ]


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("step", [None, 1e-4])
def test_copies_of_documents_count_as_one_and_are_said(m, step, tmp_path):
    "Twelve documents ten times say what they say once: change, interval, claim; how many are copies stands on the first screen, in the report and the JSON."
    once, often = (
        compare(pair(*twelve(m=m, step=step))),
        compare(pair(*twelve(10, m=m, step=step))),
    )
    np.testing.assert_allclose(
        [*often.interval, often.delta, often.p_value],
        [*once.interval, once.delta, once.p_value],
        rtol=1e-9,
    )
    assert (often.n_units, often.units, often.claim) == (12, "documents", once.claim)
    report = often.report()
    report.save(tmp_path / "r")
    said = "108 of 120 documents are copies of others, bit for bit in tokens and losses, as d0-1 of d0-0"
    assert (
        said in str(report)
        and said in report.to_markdown()
        and said in report.document()["doubts"][0]
        and verify(tmp_path / "r")
    )
    assert "copies" not in str(once.report()) and not once.report().document()["doubts"]


def test_copies_in_arrays_files_windows_and_one_arm(tmp_path):
    "The same without documents, from files, of one arm alone, of equal arms."
    rng = np.random.default_rng(7)
    loss, tokens = rng.gamma(9, 0.3, 60), rng.integers(20, 60, 60)
    new = loss + 0.04 + rng.normal(0, 0.03, 60)
    tile = lambda x: np.tile(x, 10)
    from invar_nb import evaluate, pair_arrays

    once, often = (
        compare(pair_arrays(loss, new, tokens)),
        compare(pair_arrays(tile(loss), tile(new), tile(tokens))),
    )
    np.testing.assert_allclose([*often.interval], [*once.interval], rtol=1e-9)
    assert often.n_units == 60 and "540 of 600 windows are copies" in str(often.report())
    for name, x in (("a", loss), ("b", new)):
        (tmp_path / f"{name}.csv").write_text(
            "id,document_id,loss,tokens\n"
            + "".join(
                f"{k},x{k // 2},{v!r},{t}\n"
                for k, (v, t) in enumerate(
                    zip(tile(x).tolist(), tile(tokens).tolist(), strict=True)
                )
            )
        )
    code, out, _ = shell(
        "compare", tmp_path / "a.csv", tmp_path / "b.csv", "--out", tmp_path / "r"
    )
    assert "270 of 300 documents are copies" in out and "over 30 documents" in out
    code, out, _ = shell("evaluate", tmp_path / "a.csv", "--out", tmp_path / "e")
    assert "270 of 300 documents are copies" in out and "over 30 documents" in out
    same = compare(pair_arrays(tile(loss), tile(loss), tile(tokens)))
    assert (
        same.headline.startswith("Identical")
        and "540 of 600 windows are copies" in str(same.report())
        and evaluate(pair(*twelve(10)).baseline)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"units": "windows"},
        {"method": "bca", "units": "windows"},
        {"method": "bca", "units": "windows", "replicates": 999, "seed": 1},
        {
            "method": "bca",
            "units": "windows",
            "resample": "windows",
            "replicates": 999,
            "seed": 1,
        },
    ],
)
def test_copies_of_windows_do_not_narrow_an_interval_that_is_asked_for(options, tmp_path):
    "Twelve windows ten times, taken as independent or drawn by a bootstrap: the interval and the claim of twelve, and the copies are said."
    once, often = (
        compare(pair(*(arm.changed(document_ids=None) for arm in twelve(times))), **options)
        for times in (1, 10)
    )
    np.testing.assert_allclose(
        [*often.interval, often.delta],
        [*once.interval, once.delta],
        rtol=1e-9 if "replicates" not in options else 0.25,
    )
    assert (often.n_units, often.units, often.claim) == (12, "windows", once.claim)
    often.report().save(tmp_path / "r")
    assert (
        "108 of 120 windows are copies of others" in str(often.report())
        and "too narrow" not in str(often.report())
        and verify(tmp_path / "r")
    )


@pytest.mark.parametrize(
    "base, new",
    [
        (np.full(120, 3.0), np.full(120, 3.03)),
        (np.full(120, np.log(20)), np.where(np.arange(120) % 3, np.log(20), np.log(20) + 0.3)),
        (
            np.round(np.random.default_rng(1).gamma(9, 0.3, 120), 1),
            np.round(np.random.default_rng(2).gamma(9, 0.3, 120), 1),
        ),
        (
            np.random.default_rng(1).choice([np.log(3), np.log(4)], 120),
            np.random.default_rng(2).choice([np.log(3), np.log(4)], 120),
        ),
    ],
)
def test_what_agrees_by_chance_is_no_copy(base, new):
    "Constant losses, few values, one decimal: nothing is merged."
    a, b = (
        WindowLosses.from_arrays(range(120), np.full(120, 64), x, document_ids=range(120))
        for x in (base, new)
    )
    found = compare(pair(a, b))
    assert found.n_units == 120 and "copies" not in str(found.report())


def rearranged(arms, n_documents, noise=0.0, shuffle=True):
    "The same arms, the windows of each document in another order in all documents after the first ones, with so much noise in each loss."
    rng, (a, b) = np.random.default_rng(12), arms
    m = len(a) // len({*a.document_ids})
    order = np.concatenate(
        [
            m * k + (rng.permutation(m) if shuffle and k >= n_documents else np.arange(m))
            for k in range(len(a) // m)
        ]
    )
    losses = [
        x[order] * (1 + rng.uniform(-noise, noise, len(x))) for x in (a.log_loss, b.log_loss)
    ]
    names = [a.document_ids[i] for i in order]
    return [
        WindowLosses.from_arrays(range(len(a)), a.tokens[order], x, document_ids=names)
        for x in losses
    ]


@pytest.mark.parametrize(
    "m, step, noise, shuffle",
    [
        (3, None, 0, True),
        (8, None, 0, True),
        (3, 1e-4, 0, True),
        (40, 1e-3, 0, True),
        (1, None, 1e-9, False),
        (3, None, 1e-9, False),
        (3, None, 1e-6, False),
        (3, None, 1e-9, True),
        (8, None, 1e-6, True),
        (600, None, 1e-9, True),
    ],
)
def test_copies_in_another_order_or_of_another_batch_count_as_one(
    m, step, noise, shuffle, tmp_path
):
    "Twelve documents ten times, their windows in another order each time, or as another batch gives them: the interval and the claim of twelve, said as what they are."
    once, often = (
        compare(pair(*twelve(m=m, step=step))),
        compare(pair(*rearranged(twelve(10, m=m, step=step), 12, noise, shuffle))),
    )
    np.testing.assert_allclose(
        [*often.interval, often.delta, often.p_value],
        [*once.interval, once.delta, once.p_value],
        rtol=1e-3 if noise else 1e-9,
        atol=1e-12,
    )
    assert (often.n_units, often.units, often.claim) == (12, "documents", once.claim)
    report = often.report()
    report.save(tmp_path / "r")
    (line,) = (
        line
        for line in report.document()["doubts"]
        if "108 of 120 documents are copies of others" in line
    )
    assert (
        "in tokens and losses, up to the order of their windows and the rounding of another batch"
        in line
        and "bit for bit" not in line
    )
    assert (
        line in str(report)
        and "Copies count as one: 12 documents differ." in line
        and verify(tmp_path / "r")
    )


def test_a_regression_of_thirty_documents_is_one_ten_times_over():
    "It became equivalent: with 300 units the interval lay within the margin, with the 30 that there are it does not."
    rng, n, m = np.random.default_rng(4), 30, 4
    change = rng.normal(0, 1, n)
    change = np.repeat(0.0125 + 0.0245 * (change - change.mean()) / change.std(), m)
    tokens, base = np.full(n * m, 64), rng.gamma(9, 0.3, n * m)
    names = lambda times: [f"d{i // m}-{k}" for k in range(times) for i in range(n * m)]
    made = lambda times: [
        WindowLosses.from_arrays(
            range(times * n * m),
            np.tile(tokens, times),
            np.tile(x, times),
            document_ids=names(times),
        )
        for x in (base, base + change)
    ]
    once = compare(pair(*made(1)))
    for noise, shuffle in ((0, False), (0, True), (1e-9, False)):
        often = compare(pair(*rearranged(made(10), n, noise, shuffle)))
        assert (often.claim, often.n_units) == (once.claim, 30) == ("regressed", 30), (
            noise,
            shuffle,
            often,
        )


@pytest.mark.parametrize("how", ["exact and rearranged", "windows", "arrays", "one arm"])
def test_near_copies_elsewhere(how):
    "Beside exact ones, of windows alone, in arrays, of one arm."
    from invar_nb import evaluate

    if how == "exact and rearranged":
        a, b = twelve(10, m=3)
        order = np.r_[
            np.arange(200), np.arange(200, 360)[::-1]
        ]  # the last ones backwards, one of them cut in two by that
        made = [
            WindowLosses.from_arrays(
                range(360),
                arm.tokens[order],
                arm.log_loss[order],
                document_ids=[arm.document_ids[i] for i in order],
            )
            for arm in (a, b)
        ]
        assert compare(pair(*made)).n_units == 12
    elif how == "one arm":
        assert "108 of 120 documents are copies" in str(
            evaluate(rearranged(twelve(10, m=3), 12)[0]).report()
        )
    else:
        made = rearranged(twelve(10), 12, 1e-9, False)
        if how == "arrays":
            made = [arm.changed(document_ids=None) for arm in made]
        found = compare(pair(*made), units="auto" if how == "arrays" else "windows")
        assert (
            found.n_units == 12
            and "108 of 120 windows are copies of others in tokens and losses, up to the rounding of another batch"
            in str(found.report())
        )


def test_one_of_two_near_losses_in_hundreds_of_texts_is_no_copy():
    "Thirty documents of one window and one model: some two agree within the rounding of a batch in five of a thousand texts, and none is called a copy; a copy of two windows is one."
    from invar_nb.comparison.units import choose_units

    rng, near = np.random.default_rng(8), 0
    for _ in range(600):
        loss = rng.normal(3, 0.5, 30)
        near += np.diff(np.sort(loss)).min() < 1e-5
        arm = WindowLosses.from_arrays(
            range(30), np.full(30, 64), loss, document_ids=range(30)
        )
        assert choose_units(pair(arm, arm)).n_units == 30
    assert near > 0
    a, b = twelve(3, m=2)
    once = [
        arm.take(np.arange(26)) for arm in rearranged((a, b), 12, 1e-7)
    ]  # twelve, and the first of them again
    assert compare(pair(*once)).n_units == 12


@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n, m: (
            np.round(rng.gamma(9, 0.3, n * m), 1),
            np.round(rng.gamma(9, 0.3, n * m), 1),
        ),
        lambda rng, n, m: (np.full(n * m, 3.0), np.full(n * m, 3.03)),
        lambda rng, n, m: 2 * (rng.choice([2.0, 3.0], n * m),),
        lambda rng, n, m: (x := rng.gamma(9, 0.3, n * m), x + rng.normal(0, 1e-7, n * m)),
        lambda rng, n, m: (
            x := 3 + rng.normal(0, 1e-5, n * m),
            x + rng.normal(0, 1e-5, n * m),
        ),
        lambda rng, n, m: (
            x := np.round(rng.gamma(9, 0.3, n * m), 2),
            np.round(x + rng.choice([0, 0.01], n * m), 2),
        ),
    ],
)
@pytest.mark.parametrize("n, m", [(400, 1), (400, 2), (3000, 1)])
def test_what_is_near_by_chance_is_no_copy(make, n, m):
    "Coarse losses in any order, constant ones, models of equal losses up to noise, losses that hardly vary: nothing is merged."
    base, new = make(np.random.default_rng(n + m), n, m)
    a, b = (
        WindowLosses.from_arrays(
            range(n * m), np.full(n * m, 64), x, document_ids=np.arange(n * m) // m
        )
        for x in (base, new)
    )
    found = compare(pair(a, b))
    assert found.n_units in (n, n * m) and "copies" not in str(found.report())


def test_documents_of_equal_sums_are_no_copies():
    "Two documents whose windows differ and add up to the same, under both models."
    a, b = twelve(m=2)
    base, new = (np.r_[arm.log_loss, 1.25, 2.75, 1.5, 2.5] for arm in (a, b))
    tokens, names = np.r_[a.tokens, 4 * [40]], [*a.document_ids, "x", "x", "y", "y"]
    found = compare(
        pair(
            *(
                WindowLosses.from_arrays(range(28), tokens, x, document_ids=names)
                for x in (base, new)
            )
        )
    )
    assert found.n_units == 14 and "copies" not in str(found.report())


def test_eight_documents_under_eighty_names_are_eight():
    "Too few to speak of others, however often each is there: the passages of these are what is counted, and the headline says so."
    once, often = (
        compare(
            pair(
                *(
                    arm.take(
                        np.flatnonzero(
                            [int(name[1:].partition("-")[0]) < 8 for name in arm.document_ids]
                        )
                    )
                    for arm in twelve(times, m=4)
                )
            )
        )
        for times in (1, 10)
    )
    assert (once.units, once.n_units) == (often.units, often.n_units) == (
        "serial",
        32,
    ) and "on these 8 documents" in often.headline
    np.testing.assert_allclose([*often.interval], [*once.interval], rtol=1e-9)


def test_candidates_of_which_one_has_no_equal_losses_share_a_family():
    "A candidate that was scored with noise has no copies; the table is judged all the same."
    a, b = twelve(10)
    noisy = b.changed(
        model="noisy", log_loss=b.log_loss + np.random.default_rng(1).normal(0, 1e-3, len(b))
    )
    found = study({"baseline": a, "q4": b.changed(model="q4"), "noisy": noisy})
    assert {row.key.candidate: row.value.n_units for row in found.leading} == {
        "q4": 12,
        "noisy": 120,
    } and found.report().document()["rankings"]


def test_a_text_is_not_pooled_with_itself():
    "Equal arms in two parts are refused where they are pooled and named where they are not; so are parts that overlap, and documents of one name and length."
    from invar_nb import UsageError

    a, b = twelve(m=3)
    other = twelve(m=3, seed=8)
    both = {("baseline", "x"): a, ("new", "x"): b, ("baseline", "y"): a, ("new", "y"): b}
    with pytest.raises(
        UsageError, match="texts that are pooled must differ; got equal losses of 'x' and 'y'"
    ):
        study(both, pooling="equal")
    assert "x and y have 36 windows in common, bit for bit" in str(study(both).report())
    apart = both | {("baseline", "y"): other[0], ("new", "y"): other[1]}
    assert study(apart, pooling="equal").row.role == "pooled" and "in common" not in str(
        study(apart).report()
    )
    part = both | {
        ("baseline", "y"): a.take(np.arange(12, 36)),
        ("new", "y"): b.take(np.arange(12, 36)),
    }
    assert "x and y have 24 windows in common" in str(study(part, pooling="equal").report())
    inside = both | {
        ("baseline", "y"): twelve(2, m=3, seed=8)[0],
        ("new", "y"): twelve(2, m=3, seed=8)[1],
    }  # copies within y are none of x
    assert (
        "in common" not in str(study(inside).report())
        and study(inside, pooling="equal").row.role == "pooled"
    )
    near = [
        arm.changed(
            log_loss=arm.log_loss
            * (1 + np.random.default_rng(3).uniform(-1e-7, 1e-7, len(arm)))
        )
        for arm in (a, b)
    ]
    noisy = both | {("baseline", "y"): near[0], ("new", "y"): near[1]}
    with pytest.raises(
        UsageError, match="texts that are pooled must differ; got equal losses of 'x' and 'y'"
    ):
        study(noisy, pooling="equal")
    bare = {key: arm.changed(document_ids=None) for key, arm in noisy.items()}
    assert "x and y have 36 windows in common, up to the rounding of another batch" in str(
        study(bare).report()
    )
    again = [
        arm.changed(log_loss=arm.log_loss + np.random.default_rng(3).normal(0, 1e-5, len(arm)))
        for arm in (a, b)
    ]
    named = both | {("baseline", "y"): again[0], ("new", "y"): again[1]}
    assert "x and y have 12 documents in common, by name and number of tokens, as d0-0" in str(
        study(named).report()
    )
    from studies import answers

    quiz = answers()
    other = answers(flips=9)  # the same ids, other answers
    apart = {
        ("baseline", "x"): quiz.baseline,
        ("candidate", "x"): quiz.candidate,
        ("baseline", "y"): other.baseline,
        ("candidate", "y"): other.candidate,
    }
    assert quiz.ids == other.ids and "in common" not in str(study(apart).report())
    assert "x and y have 200 examples in common" in str(
        study(
            {
                (name, part): getattr(quiz, name)
                for name in ("baseline", "candidate")
                for part in "xy"
            }
        ).report()
    )


# --- one document that moves the change ------------------------------------------------------------------------------------------------
def test_counted_alike_is_shown_where_one_influence_is_large():
    "60 documents, one of 8 % of the tokens that lost much: seven standard deviations; a heavy one as before; none where all are alike."
    rng, sizes = np.random.default_rng(9), [5] + [1] * 59
    owners, n = np.repeat(np.arange(60), sizes), 64
    change = np.where(owners == 0, 0.12, 0.01) + rng.normal(0, 0.01, n)
    make = lambda change: compare(
        pair(
            *[
                WindowLosses.from_arrays(range(n), np.full(n, 64), x, document_ids=owners)
                for x in (3 + np.arange(n) / 50, 3 + np.arange(n) / 50 + change)
            ]
        )
    )
    found = make(change).report()
    alike = found.document()["pairs"][0]["units"]
    assert (
        alike["alike"]
        and alike["alike"]["heaviest"] < 0.1
        and "Document 0 alone moves the change by +" in alike["words"]["alike"]
        and "counted equally" in alike["words"]["alike"]
    )
    assert (
        make(0.01 + rng.normal(0, 0.01, n)).report().document()["pairs"][0]["units"]["alike"]
        is None
    )
    owners, n = (
        np.arange(60),
        60,
    )  # one of 60 alike moves it far: counted alike it is the same change
    assert (
        make(np.where(owners == 0, 0.3, 0.01) + rng.normal(0, 0.01, n))
        .report()
        .document()["pairs"][0]["units"]["alike"]
        is None
    )
    owners, n = (
        np.repeat(np.arange(60), [20] + [1] * 59),
        79,
    )  # a heavy one that changed as the others do
    change = 0.01 + rng.normal(0, 0.01, n)
    change[owners == 0] = change[owners > 0].mean()
    alike = make(change).report().document()["pairs"][0]["units"]
    assert alike["alike"]["heaviest"] == pytest.approx(20 / 79) and alike["words"][
        "alike"
    ].startswith("One of the 60 documents has 25 % of the tokens.")
