"""One document kind for every study: its schema, its fields, its exit code, its pages and what saving leaves."""

import html
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import msgspec
import numpy as np
import pandas as pd
import pytest
import typer
from commands import shell
from documents import size_picture
from studies import (
    STUDIES,
    answers,
    arms_of,
    copies,
    looked,
    losses,
    marks,
    recipes,
    sized,
    with_passages,
)

from invar_nb.arms.pair import pair
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.rules import TIERS, Rules, overlap_fraction
from invar_nb.comparison.study import compare, study
from invar_nb.files.losses import write_losses
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.foundations.store import canonical_text, content_digest
from invar_nb.report.build import arm_files
from invar_nb.report.document import Document, report_schema
from invar_nb.report.figures import (
    interval_figure,
    markdown,
    show,
    size_figure,
    ticks,
    visible,
)
from invar_nb.report.junit import judged_rows, junit
from invar_nb.report.report import render, report_of
from invar_nb.report.shown import claim_text
from invar_nb.report.tables import answer_rows
from invar_nb.report.verify import verify
from invar_nb.shell.cli import app

EVIL = '<script>alert("1")</script>|`x`*[a](javascript:1)\x1b[31m\u202e'
VOID = {"meta", "rect", "circle", "path", "br"}


def two_by_two():
    "Two candidates on two texts in three languages; the size of one is known, and that of the baseline."
    arms, languages = (
        {},
        {
            "document_languages": {
                f"d{i}": ("en", "en", "en", "es", "fr", "es")[i % 6] for i in range(30)
            }
        },
    )
    for k, text in enumerate(("law", "news")):
        base = losses(
            n=30, seed=2 + k, provenance={"bits_per_weight": 16.0, **languages}
        ).baseline
        edited = lambda name, shift, **size: base.changed(
            model=name,
            provenance={**languages, **size},
            log_loss=losses(shift, n=30, seed=2 + k).candidate.log_loss,
        )  # noqa: B023
        arms |= {
            ("baseline", text): base,
            ("q8", text): edited("q8", 0.001, bits_per_weight=8.5),
            ("q4", text): edited("q4", 0.03 * k),
        }
    return arms


def one_dominates():
    both = losses(n=40)
    heavy = pair(
        both.baseline,
        both.candidate.changed(log_loss=both.baseline.log_loss + 5.0 * (np.arange(40) == 3)),
    )
    return study(arms_of({"a": losses(n=40), "b": heavy}))


def hardly_paired():
    both = losses(n=40)
    return compare(
        pair(
            both.baseline,
            both.candidate.changed(
                log_loss=np.abs(
                    both.baseline.log_loss + np.random.default_rng(7).normal(0.1, 3, 40)
                )
            ),
        ),
        margin=0.02,
    )


MADE = STUDIES | {
    "one window": lambda: compare(losses(n=1)),
    "one window, the same": lambda: compare(losses(noise=0, n=1)),
    "failed": lambda: study(
        recipes({"lion": "oom"}), Rules(metrics=["loss"], better={"loss": "lower"})
    ),
    "a run left out": lambda: study(
        recipes({"sgd": "oom"}),
        Rules(metrics=["loss"], better={"loss": "lower"}, drop_failed=True),
    ),
    "two by two": lambda: study(two_by_two(), Rules(margin=0.02)),
    "all metrics of answers": lambda: compare(answers(n=60), by=["language"]),
    "few": lambda: study(
        arms_of(
            {
                "one": losses(0.03, n=6),
                "two": losses(0.03, n=7, seed=3),
                "three": losses(0.1, n=8, seed=4),
            }
        ),
        Rules(by=()),
    ),
    "few examples": lambda: study(
        arms_of(
            {
                name: marks(n=6 + k, shift=0.3, seed=k)
                for k, name in enumerate(("one", "two", "three"))
            }
        )
    ),
    "hardly paired": hardly_paired,
    "one dominates": one_dominates,
    "scored": lambda: compare(
        losses(0.03, n=41, provenance={"weights_digest": "sha256:w"}), margin=0.02
    ),
    "looks at two": lambda: study(
        arms_of({"a": looked(0.5, n=150, looks=3), "b": looked(0.02, n=150, looks=3, seed=4)})
    ),
    "control, sliced": lambda: study(
        arms_of({"": with_passages()}, control=True), Rules(by=["source"])
    ),
}


class Tags(HTMLParser):
    "Open and close tags in order; what stands open at the end."

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module", params=MADE)
def report(request):
    return report_of(MADE[request.param]())


# --- what is said -----------------------------------------------------------------------------------------------------------------------
SAID = Path(__file__).parent / "data/reports"


def said(kind):
    "A study as printed, report.md, summary.md and result.svg, without digests and days."
    made = report_of(MADE[kind]())
    pages = {
        name: text.decode() if isinstance(text, bytes) else text
        for name, text in render(made).items()
    }
    parts = [str(made), pages["report.md"], pages["summary.md"], pages.get("result.svg", "")]
    text = re.sub("sha256:[0-9a-f]{64}", "sha256:...", "\n".join(parts)) + "\n"
    # rows to paste end 90 days after the report was made
    return re.sub(r"expires = \d{4}-\d\d-\d\d", "expires = YYYY-MM-DD", text)


def same(one, two):
    "Whether two lines are alike but for the last digit of a number, which processors may round to either side of a tie."
    parts, others = (re.split(r"(\d+(?:\.\d+)?)", line) for line in (one, two))
    return len(parts) == len(others) and all(
        a == b
        or i % 2
        and len(a) == len(b)
        and abs(float(a) - float(b)) < 1.5 * 10.0 ** -len(a.partition(".")[2])
        and "." in a
        for i, (a, b) in enumerate(zip(parts, others, strict=True))
    )


@pytest.mark.processor
@pytest.mark.parametrize("kind", MADE)
def test_a_report_says_what_it_said(kind):
    "After a change that is meant, `python tests/test_report.py` writes the files again: read their difference."
    now, then = (
        text.split("\n")
        for text in (said(kind), (SAID / f"{kind}.md").read_text(encoding="utf-8"))
    )
    assert (
        len(now) == len(then)
        and [pair for pair in zip(now, then, strict=True) if not same(*pair)] == []
    )


def test_no_digit_but_the_last_may_differ():
    assert {path.stem for path in SAID.iterdir()} == {*MADE}  # none is left over
    assert (
        same("| 16.88 | a 3 |", "| 16.87 | a 3 |")
        and not same("| 16.89 |", "| 16.87 |")
        and not same("3 units", "4 units")
        and not same("0.9 x", "0.9 y")
        and not same("9.99", "10.00")
    )


# --- the document ---------------------------------------------------------------------------------------------------------------------
def test_same_inputs_same_bytes_and_the_schema_holds(report, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    assert render(report) == render(report)
    d = report.document()
    msgspec.convert(d, Document)
    jsonschema.validate(d, report_schema())
    saved = report.save(tmp_path / "r")
    assert verify(saved).report.document()["rows"] == d["rows"] and {
        p.name for p in saved.iterdir()
    } >= {"report.json", "report.md", "report.html"}
    with pytest.raises(ContractError):
        report.save(saved)
    report.save(saved, force=True)


def test_the_source_systems_fields_are_there_with_their_values():
    both = losses(0.03)
    d = report_of(compare(both)).document()
    m, stats = d["primary_metric"], d["dataset"]["windows"]["stats"]
    assert m["kind"] == "ppl_causal" and m["display_ci"] == [math.exp(x) for x in m["ci"]]
    half = both.candidate.log_loss[:48]
    assert m["preview"] == pytest.approx(math.exp(half.mean()), rel=1e-12)
    assert (
        stats["window_match_fraction"] == 1.0
        and stats["paired_windows"] == 96
        and stats["window_overlap_fraction"] == 0
    )
    assert stats["paired_delta_summary"]["mean"] == pytest.approx(
        d["rows"][0]["value"]["delta"], rel=1e-12
    )
    low, high = stats["bootstrap"]["ci"]
    assert (
        low < d["rows"][0]["value"]["delta"] < high and stats["coverage"]["tier"] == "balanced"
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: arms_of({"": losses(0.03)}),
        two_by_two,
        lambda: arms_of({"law": losses(0.03), "news": losses(0.01, seed=2)}),
        lambda: arms_of({"law": losses(0.03), "quiz": answers()}, control=False),
        lambda: {
            "baseline": losses().baseline,
            "q8": losses(0.01).candidate,
            "q4": losses(0.05).candidate,
        },
    ],
)
def test_the_source_systems_fields_stand_under_each_pair_of_losses(made, tmp_path):
    "The same that the pair alone has; verify recomputes them, and the schema knows them."
    jsonschema = pytest.importorskip("jsonschema")
    arms = {(key, "") if isinstance(key, str) else key: arm for key, arm in made().items()}
    done = study(arms).report()
    d = done.document()
    jsonschema.validate(d, report_schema())
    for one in d["pairs"]:
        both = arms["baseline", one["part"]], arms[one["candidate"], one["part"]]
        alone = report_of(compare(pair(*both))).document()
        for name in ("primary_metric", "dataset"):
            assert one[name] == alone[name] and (one[name] is None) == (
                both[0].kind != "losses"
            )
    single = [one for one in d["pairs"] if one["dataset"]]
    assert (d["dataset"], d["primary_metric"]) == (
        (single[0]["dataset"], single[0]["primary_metric"])
        if len(single) == 1
        else (None, None)
    )
    changed = json.loads(done.save(tmp_path / "r").joinpath("report.json").read_text())
    assert verify(tmp_path / "r").report
    place = next(i for i, one in enumerate(changed["pairs"]) if one["dataset"])
    changed["pairs"][place]["dataset"]["windows"]["stats"]["window_overlap_fraction"] = 0.25
    (tmp_path / "r" / "report.json").write_text(
        canonical_text(changed | {"digest": content_digest(changed)})
    )
    with pytest.raises(ContractError, match=rf"pairs\W*{place}\W.*window_overlap_fraction"):
        verify(tmp_path / "r" / "report.json")


WORSE_IN_SPANISH = dict(margin={"accuracy": 0.3}, by=["language"], metrics=["accuracy"])
EXITS = [
    (lambda: losses(0.05), {}, "primary_regressed", 1),
    (lambda: losses(-0.05), {}, "not_worse", 0),
    (lambda: losses(0.0), {}, "not_worse", 0),
    (lambda: marks(shift=0.3, better="higher"), {}, "not_worse", 0),
    (lambda: marks(shift=0.3, better="lower"), {}, "primary_regressed", 1),
    (lambda: answers(flips=30), WORSE_IN_SPANISH, "secondary_regressed", 1),
    (lambda: losses(0.0, noise=0.5), {"margin": 1e-4}, "no_regression_shown", 0),
    (
        lambda: losses(0.0, noise=0.5),
        {"margin": 1e-4, "fail_inconclusive": True},
        "inconclusive",
        4,
    ),
    (lambda: losses(0.0), {"gate": 1.0001}, "gate_failed", 1),
]


@pytest.mark.parametrize("made, rules, rule, code", EXITS)
def test_which_rule_gives_the_exit_code(made, rules, rule, code):
    "What a shell reads of each kind; gates are there only where they were asked for."
    report = report_of(compare(made(), **rules))
    (first,) = report.document()["pairs"]
    assert (report.exit.rule, report.exit_code) == (rule, code)
    assert bool(first["gate"]) == ("gate" in rules)
    said, page = (
        str(report).splitlines(),
        html.unescape(html.unescape(render(report)["report.html"])),
    )
    decides = rule in ("secondary_regressed", "gate_failed")  # the first line is what decides
    assert (
        said[0]
        == (
            f"Exit code 1: {report.exit.because} {report.headline}"
            if decides
            else report.headline
        )
        and said[1] == ""
    )
    plain = re.sub(r"\s+", " ", page)  # no-break blanks stand between numbers and units
    assert plain.index(
        re.sub(r"\s+", " ", said[0].removesuffix(f" {report.headline}"))
    ) < plain.index("To check" if "To check" in plain else "The evidence was not saved")


def test_a_pooled_change_is_equivalent_and_a_divergence_small_enough():
    "Words of claims: the pooled row has no baseline of its own either, and is no divergence."
    report = study(
        arms_of(
            {
                "law": losses(0.001, 0.005, n=80, seed=2),
                "news": losses(0.002, 0.005, n=80, seed=3),
            }
        ),
        Rules(pooling="equal"),
    ).report()
    (row,) = report.content.of_role("pooled")
    assert (
        row.claim == "equivalent"
        and claim_text(row) == "equivalent"
        and "small enough" not in str(report)
    )
    assert "not worse" not in str(report)


def test_what_is_required_of_parts_and_slices():
    "Each row at full level by its own interval; a slice with too few units cannot be shown; exit 1 says which."
    arms = arms_of(
        {"law": losses(0.001, 0.005, n=80, seed=2), "news": losses(0.001, 0.05, n=80, seed=3)}
    )
    ask = lambda required, some=arms, **more: report_of(
        study(some, Rules(metrics=["perplexity"], margin=0.01, required=required, **more))
    )
    passed, failed = (
        ask("parts", {key: arm for key, arm in arms.items() if key[1] == "law"}),
        ask("parts"),
    )
    assert (passed.exit_code, failed.exit_code, failed.exit.rule) == (0, 1, "gate_failed")
    assert (
        "1 of 2 parts" in failed.exit.because
        and "news may be worse by 1." in failed.exit.because
        and failed.exit.because in str(failed)
    )
    single = study(
        {key: arm for key, arm in arms.items() if key[1] == "law"},
        Rules(metrics=["perplexity"], margin=0.01),
    ).row.value.interval
    assert passed.document()["required"][0]["because"].endswith(
        f"by more than {100 * math.expm1(single.high):.2g} % (97.5 %)."
    )
    languages = {
        key: arm.changed(
            provenance={
                "document_languages": {f"d{i}": "en" if i < 74 else "es" for i in range(80)}
            }
        )
        for key, arm in arms.items()
    }
    small = ask("slices", {key: arm for key, arm in languages.items() if key[1] == "law"})
    assert (
        small.exit_code == 1
        and "1 of 2 slices" in small.exit.because
        and "language es has too few units" in small.exit.because
    )
    everything = ask("all", languages).document()["required"][0]
    assert len(everything["missed"]) >= 3 and "of 6 parts and slices" in everything["because"]
    with pytest.raises(UsageError, match="needs slices of the primary metric"):
        ask("slices")
    with pytest.raises(UsageError, match="required must be one of"):
        ask("documents")


def test_profiles_refuse_and_dev_warns():
    assert any(
        "at least 440" in line
        for line in report_of(compare(losses(), tier="conservative")).document()["warnings"]
    )
    assert not any(
        "tier" in line for line in report_of(compare(losses())).document()["warnings"]
    )  # no tier was asked for
    help_of = next(
        param
        for param in typer.main.get_command(app).commands["compare"].params
        if "--profile" in param.opts
    ).help
    for tier in TIERS:  # what the help says of dev
        warned = any(
            "tier asks for" in line
            for line in report_of(compare(losses(), tier=tier)).document()["warnings"]
        )
        assert (
            warned == (tier != "balanced")
            and "dev warns of too few where a tier other than balanced is set" in help_of
        )
    with pytest.raises(ContractError, match="balanced tier needs 360 windows") as error:
        report_of(compare(losses(), profile="ci"))
    assert error.value.code == "too_few_windows"
    enough = compare(losses(n=400), profile="ci", tier="aggressive")
    assert report_of(enough).document()["pairs"][0]["gate"]["limit"] == 1.2


def test_profiles_ask_for_equal_parts_and_enough_draws():
    "401 windows are 200 and 201; 100 and 300 are 400, and that is not the reason; in dev both are compared."
    named = lambda arm, n: arm.changed(
        split=["preview" if i < n else "final" for i in range(len(arm))]
    )
    for n, preview, got, cure in (
        (401, None, "200 and 201", "--windows 400"),
        (400, 100, "100 and 300", "column split"),
    ):
        both = losses(0.001, n=n)
        if preview:
            both = type(both)(
                **{
                    name: named(getattr(both, name), preview)
                    for name in ("baseline", "candidate")
                }
            )
        for profile in ("ci", "release"):
            with pytest.raises(
                ContractError, match=f"as many preview as final windows; got {got}"
            ) as caught:
                report_of(compare(both, profile=profile))
            assert (
                caught.value.code == "preview_and_final_counts_agree"
                and cure in caught.value.cure
            )
        assert report_of(compare(both)).exit_code == 0
    for profile, tier, drawn, good in (
        ("ci", "balanced", 1199, False),
        ("release", "conservative", 1200, False),
        ("dev", "balanced", 40, True),
        ("ci", "balanced", 1200, True),
        ("release", "conservative", None, True),
    ):
        asked = dict(
            profile=profile,
            tier=tier,
            method="bca",
            replicates=drawn,
            seed=42 if drawn else None,
        )
        if good:
            assert compare(losses(0.001, n=440), **asked).claim
        else:
            with pytest.raises(UsageError, match="replicates must be at least 1[25]00"):
                compare(losses(0.001, n=440), **asked)


def random_losses(shift, *provenance, n=400):
    "Losses that no float adds exactly to, and the same with one change everywhere; equal for 0, bit for bit."
    base = np.random.default_rng(0).normal(3.2, 0.4, n)
    arms = [
        WindowLosses.from_arrays(
            [f"{i}:0-64" for i in range(n)], [64] * n, values, data_id="sha256:abc"
        )
        for values in (base, base + shift)
    ]
    return pair(
        *(
            arm.changed(provenance=known)
            for arm, known in zip(arms, provenance or ({}, {}), strict=True)
        )
    )


ONE_MODEL, OTHER_MODEL = ({"weights_digest": f"sha256:{i}"} for i in (1, 2))


@pytest.mark.parametrize("shift", [0.01, -0.05, 0.3, 1e-4])
@pytest.mark.parametrize("known", [(), (ONE_MODEL, ONE_MODEL), (ONE_MODEL, OTHER_MODEL)])
def test_one_change_on_every_window_is_degenerate_in_interval_fields_and_contracts(
    shift, known
):
    "Up to rounding: the differences of real losses are not equal to the last bit."
    both = random_losses(shift, *known)
    assert np.ptp(both.candidate.log_loss - both.baseline.log_loss) > 0
    d = report_of(compare(both)).document()
    deltas = d["dataset"]["windows"]["stats"]["paired_delta_summary"]
    assert (
        d["rows"][0]["value"]["fallback"]["code"] == "all_equal"
        and d["rows"][0]["value"]["ci"][0] == d["rows"][0]["value"]["ci"][1]
    )
    assert (deltas["degenerate"], deltas["degenerate_reason"], deltas["std"]) == (
        True,
        "no_variation",
        0.0,
    )
    assert "All windows changed by the same amount." in d["warnings"]
    for profile in ("ci", "release"):
        with pytest.raises(ContractError, match="got windows_differ") as caught:
            compare(both, profile=profile)
        assert caught.value.code == "windows_differ"


def as_stored(loss, how):
    "A loss as a file keeps it: float64, float32, or float32 in as few digits as say which."
    single = np.asarray(loss).astype(np.float32)
    return {
        "float64": loss,
        "float32": single.astype(float),
        "printed": np.array([float(str(x)) for x in single]),
    }[how]


@pytest.mark.parametrize("how", ["float64", "float32", "printed"])
@pytest.mark.parametrize(
    "shift, documents",
    [(0.01, None), (-0.05, None), (0.3, range(400)), (1e-4, np.arange(400) // 4)],
)
def test_a_constant_shift_is_suspect_whatever_it_is_stored_in(how, shift, documents, tmp_path):
    "Degenerate in the interval and in the fields, said on the first screen under dev, refused by the others; the rounding of float32 is no spread."
    base = np.random.default_rng(0).normal(3.2, 0.4, 400)
    both = pair(
        *(
            WindowLosses.from_arrays(
                [f"{i}:0-64" for i in range(400)],
                [64] * 400,
                as_stored(x, how),
                data_id="sha256:abc",
                document_ids=documents,
            )
            for x in (base, base + shift)
        )
    )
    assert how == "float64" or np.ptp(both.candidate.log_loss - both.baseline.log_loss) > 1e-8
    report = compare(both, profile="dev").report()
    d = report.document()
    assert (
        d["rows"][0]["value"]["fallback"]["code"] == "all_equal"
        and d["rows"][0]["value"]["ci"][0] == d["rows"][0]["value"]["ci"][1]
    )
    assert (
        d["dataset"]["windows"]["stats"]["paired_delta_summary"]["degenerate_reason"]
        == "no_variation"
    )
    (suspect,) = (
        line
        for line in d["doubts"]
        if line.startswith("Suspect: all windows changed by the same amount")
    )
    assert (
        suspect in str(report)
        and suspect in report.to_markdown()
        and "Score the candidate again" in suspect
    )
    assert (
        "All windows changed by the same amount." in d["warnings"]
        and report.save(tmp_path / "r")
        and verify(tmp_path / "r")
    )
    for profile in ("ci", "release"):
        with pytest.raises(ContractError, match="got windows_differ"):
            compare(both, profile=profile)


@pytest.mark.parametrize("how", ["float32", "printed"])
@pytest.mark.parametrize(
    "change",
    [lambda i: 0.01 + 3e-6 * (i % 2), lambda i: 1e-6 * (i % 3), lambda i: 1e-6 + 0 * i],
)
def test_a_spread_above_the_rounding_of_float32_is_one(how, change):
    "A change that varies by some roundings of float32, and one that is no larger than its rounding, pass every profile."
    base = np.random.default_rng(0).normal(3.2, 0.4, 400)
    both = pair(
        *(
            WindowLosses.from_arrays(range(400), [64] * 400, as_stored(x, how))
            for x in (base, base + change(np.arange(400)))
        )
    )
    d = compare(both, profile="release").report().document()
    assert d["rows"][0]["value"]["fallback"] is None and not [
        line for line in d["doubts"] if "Suspect" in line
    ]


def test_coarse_decimals_that_moved_by_one_step_are_not_suspect():
    "Of losses with two decimals, twelve may well change by 0.01 each."
    base = np.round(np.random.default_rng(0).normal(3.2, 0.4, 12), 2)
    d = (
        compare(
            pair(
                *(
                    WindowLosses.from_arrays(range(12), [64] * 12, np.round(x, 2))
                    for x in (base, base + 0.01)
                )
            )
        )
        .report()
        .document()
    )
    assert not [line for line in d["doubts"] if "Suspect" in line]


def test_a_change_that_is_not_the_same_everywhere_is_not_degenerate():
    both = random_losses(0.01)
    some = both.candidate.changed(
        log_loss=both.candidate.log_loss + 1e-12 * (np.arange(400) % 2)
    )
    d = report_of(compare(pair(both.baseline, some), profile="release")).document()
    assert (
        not d["dataset"]["windows"]["stats"]["paired_delta_summary"]["degenerate"]
        and d["rows"][0]["value"]["fallback"] is None
    )


@pytest.mark.parametrize(
    "known",
    [
        (),
        (ONE_MODEL, ONE_MODEL),
        (ONE_MODEL, {}),
        (
            ONE_MODEL,
            OTHER_MODEL
            | {
                "weights": {
                    "digests": {"baseline": "sha256:1", "candidate": "sha256:2"},
                    "state": "rearranged",
                    "settings": (),
                }
            },
        ),
    ],
)
@pytest.mark.parametrize("profile", ["dev", "ci", "release"])
def test_an_edit_that_changes_nothing_is_identical_and_passes(known, profile):
    "No change at all is no broken evidence, and nothing beside it says that windows changed."
    both = random_losses(0.0, *known)
    d = report_of(compare(both, profile=profile)).document()
    assert (
        d["exit"]["code"] == 0
        and d["headline"].startswith("Identical")
        and "the same result on all 400 items" in d["pairs"][0]["facts"]["sentence"]
    )
    assert not [line for line in d["warnings"] + d["doubts"] if "changed by the same" in line]
    assert d["dataset"]["windows"]["stats"]["paired_delta_summary"][
        "degenerate"
    ]  # as the source has it: all are equal


def test_other_weights_and_the_very_same_losses_are_broken_evidence():
    "Nobody scored the candidate, perhaps."
    both = random_losses(0.0, ONE_MODEL, OTHER_MODEL)
    (line,) = (
        line
        for line in report_of(compare(both)).document()["warnings"]
        if "weights differ" in line
    )
    assert line == "The weights differ, yet every loss is the same: was the candidate scored?"
    for profile in ("ci", "release"):
        with pytest.raises(ContractError, match="got windows_differ") as caught:
            compare(both, profile=profile)
        assert (
            caught.value.code == "windows_differ"
            and "Score the candidate again" in caught.value.cure
        )


def test_two_loss_files_in_the_shell_are_identical_or_degenerate(tmp_path):
    "Parquet files: a copy passes every profile, and a constant shift neither of the strict ones."
    both = random_losses(0.01)
    for name, arm in (("a", both.baseline), ("b", both.candidate)):
        write_losses(arm, tmp_path / f"{name}.parquet")
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    for i, (candidate, profile, code) in enumerate(
        (c, p, e) for c, e in (("a", 0), ("copy", 0), ("b", 3)) for p in ("ci", "release")
    ):
        found, out, err = shell(
            "compare",
            tmp_path / "a.parquet",
            tmp_path / f"{candidate}.parquet",
            "--profile",
            profile,
            "--out",
            tmp_path / f"r{i}",
        )
        assert found == code and (
            "windows_differ" in err if code else out.startswith("Identical: perplexity")
        ), (out, err)
        if not code:
            assert verify(tmp_path / f"r{i}").report.exit_code == 0
    assert (
        shell(
            "compare",
            tmp_path / "a.parquet",
            tmp_path / "b.parquet",
            "--out",
            tmp_path / "dev",
        )[0]
        == 0
    )


# --- a profile binds where a claim is made ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "made, code, words",
    [
        (lambda: losses(0.001, n=24), "too_few_windows", "360 windows; got 24"),
        (lambda: losses(0.001, n=401), "preview_and_final_counts_agree", "got 200 and 201"),
        (lambda: losses(0.001, n=400, document_ids=None), None, ""),
        (lambda: random_losses(0.01), "windows_differ", "windows_differ"),
    ],
)
@pytest.mark.parametrize("profile", ["ci", "release"])
def test_a_profile_refuses_before_there_is_a_claim(made, code, words, profile):
    "In Python as in the shell: no headline, no claim, no interval of evidence that the profile does not accept."
    if code is None:
        assert compare(made(), profile=profile).claim
    else:
        with pytest.raises(ContractError, match=words) as caught:
            compare(made(), profile=profile)
        assert caught.value.code == code and compare(made()).claim
        with pytest.raises(ContractError, match=words) as again:
            study(
                {"baseline": made().baseline, "q8": made().candidate}, Rules(profile=profile)
            )
        assert (str(again.value), again.value.cure) == (str(caught.value), caught.value.cure)


@pytest.mark.parametrize("profile", ["ci", "release"])
def test_a_profile_of_answers_alone_is_refused(tmp_path, profile):
    "What it requires is of windows: beside answers nothing was enforced, and the report said `profile ci`."
    for made, kind in ((answers, "answers"), (marks, "scores")):
        with pytest.raises(
            UsageError, match=f"study: profile needs losses; got {kind}. Leave it out."
        ):
            compare(made(), profile=profile)
        assert compare(made(), profile="dev").claim
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(
            "id,correct\n"
            + "".join(
                f"{i},{i % 3 != (name == 'b') * (i % 7)}\n".replace("True", "1").replace(
                    "False", "0"
                )
                for i in range(40)
            )
        )
    asked = "compare", tmp_path / "a.csv", tmp_path / "b.csv", "--out", tmp_path / "r"
    code, _, err = shell(*asked, "--profile", profile)
    assert (
        code == 2
        and "profile needs losses; got scores. Leave it out" in err
        and not (tmp_path / "r").exists()
    ), err
    assert shell(*asked)[0] in (0, 1)


def test_a_profile_names_the_candidate_or_the_text_that_lacks_windows():
    both, few = losses(0.001, n=400), losses(0.001, n=20)
    with pytest.raises(
        ContractError, match="study: news: the profile ci .* 360 windows; got 20"
    ):
        study(arms_of({"law": both, "news": few}), profile="ci")
    shifted = both.baseline.changed(log_loss=both.baseline.log_loss + 0.01)
    with pytest.raises(
        ContractError, match="study: q4: the profile release .* windows_differ"
    ):
        study(
            {"baseline": both.baseline, "q8": both.candidate, "q4": shifted}, profile="release"
        )
    with pytest.raises(UsageError, match="got profile"):
        compare(looked(0.5, n=60, looks=3), profile="release")  # as the shell


def test_what_was_asked_for_stands_beside_what_is_there():
    both, known = losses(0.01, n=30), {"windows_planned": 90, "windows_scored": 41}
    stats = lambda **p: report_of(
        compare(pair(*(arm.changed(provenance=p) for arm in (both.baseline, both.candidate))))
    ).document()["dataset"]["windows"]["stats"]
    assert {
        name: stats(**known)[name]
        for name in ("requested_preview", "requested_final", "actual_preview", "actual_final")
    } == {
        "requested_preview": 20,
        "requested_final": 21,
        "actual_preview": 15,
        "actual_final": 15,
    }
    assert stats()["requested_preview"] is None


def test_the_environment_names_seeds_rules_run_and_cost(monkeypatch):
    both = losses(0.01)
    one, two, drawn = (
        report_of(compare(both, **asked)).document()["environment"]
        for asked in ({}, {"margin": 0.05}, {"method": "bca", "replicates": 50, "seed": 7})
    )
    assert (
        one["policy"] != two["policy"]
        and one["run_id"] != two["run_id"]
        and re.fullmatch("[0-9a-f]{16}", one["run_id"])
    )
    assert (
        one["seeds"] == {"bootstrap": None, "windows": None, "looks": None}
        and drawn["seeds"]["bootstrap"] == 7
    )
    assert (
        0 < one["seconds"] < 1e6
        and 10 < one["peak_memory_mb"] < 1e6
        and {"scored_tokens", "scored_tokens_per_second"} < {*one}
    )
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    fixed = [report_of(compare(both)) for _ in range(2)]
    assert (
        fixed[0].text == fixed[1].text and "seconds" not in fixed[0].document()["environment"]
    )


def test_identical_models_are_said_once():
    both = losses()
    text = str(report_of(compare(pair(both.baseline, both.baseline.changed(model="copy")))))
    assert (
        text.startswith("Identical: perplexity is the same on every item.")
        and "exactly the same" not in text
    )


def test_replicates_and_seed_reproduce_the_interval():
    drawn = dict(method="bca", replicates=400, units="windows")
    ends = [
        report_of(compare(losses(0.03), seed=seed, **drawn)).document()["rows"][0]["value"][
            "ci"
        ]
        for seed in (1, 1, 2)
    ]
    assert ends[0] == ends[1] != ends[2]


def test_slices_are_a_table_and_reliability_a_picture():
    files = render(report_of(compare(answers())))
    assert files["slices.csv"].splitlines()[0].startswith(
        "candidate,part,slice,metric"
    ) and files["candidate.reliability.svg"].startswith("<svg")
    assert "slices.csv" not in render(report_of(compare(losses())))


# --- the page -------------------------------------------------------------------------------------------------------------------------
def test_html_is_well_formed_and_needs_nothing_but_itself(report):
    page = render(report)["report.html"]
    tags = Tags()
    tags.feed(page)
    assert not tags.open and not tags.wrong
    names = {name for name, _ in tags.seen}
    assert (
        not names & {"script", "link", "img", "iframe", "object"}
        and "default-src 'none'" in page
    )
    assert not [
        v
        for _, attrs in tags.seen
        for k, v in attrs.items()
        if k.startswith("on") or k in ("src", "href") and not v.startswith("#")
    ]
    assert "prefers-color-scheme:dark" in page and 'name="viewport"' in page


def test_the_first_screen_has_the_answer_and_how_to_check_it(report):
    files, d = render(report), report.document()
    text = re.sub(r"<[^>]+>", "", files["report.html"].partition("<details")[0])
    assert (
        d["headline"] in html.unescape(text)
        and f"Exit code {d['exit']['code']}" in text
        and "invar-nb verify report.json" in text
    )
    assert (
        files["report.md"].startswith("# ")
        and files["report.md"].count(markdown(d["headline"])) == 1
    )


def test_titles_say_which_models():
    both = losses(0.03, n=30)
    named = pair(
        *(
            arm.changed(model="m", provenance={"weights_digest": "sha256:1"})
            for arm in (both.baseline, both.candidate)
        )
    )
    text = render(report_of(compare(named)))["report.md"]
    assert (
        text.startswith("# m: candidate against baseline\n") and "weights hashed above" in text
    )
    assert render(report_of(study(sized())))["report.md"].startswith(
        "# 2 candidates against old\n"
    )


def test_markdown_tables_are_whole(report):
    lines = render(report)["report.md"].split("\n")
    for i, line in enumerate(lines):
        if line.startswith("| --- "):
            width = len(re.findall(r"(?<!\\)\|", line))
            j = i + 1
            while j < len(lines) and lines[j].startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", lines[j])) == width, lines[j]
                j += 1
            assert j > i + 1 and len(re.findall(r"(?<!\\)\|", lines[i - 1])) == width


def sections_without_content(made):
    "The titles of sections of report.md and report.html below which nothing stands."
    files = render(made)
    parts = re.split(r"^## (.*)$", files["report.md"], flags=re.M)[1:]
    titles = [
        title for title, text in zip(parts[::2], parts[1::2], strict=True) if not text.strip()
    ]
    empty = r"<summary>([^<]*)</summary>\s*(?:<span[^>]*></span>)?\s*</details>"
    return titles + re.findall(empty, files["report.html"])


def test_no_section_is_empty(report):
    assert sections_without_content(report) == []


def test_two_candidates_of_few_windows_have_no_section_without_content():
    "As of logits files of llama.cpp."
    base = losses(n=8, document_ids=None).baseline
    arms = {("baseline", ""): base} | {
        (name, ""): base.changed(model=name, log_loss=base.log_loss + shift * np.arange(8))
        for name, shift in (("q4", 0.01), ("q2", 0.05))
    }
    made = report_of(study(arms))
    assert sections_without_content(made) == []
    assert "## Test set" in render(made)["report.md"]


def test_names_print_as_the_text_they_are():
    both = losses(0.03, n=30)
    files = render(
        report_of(
            compare(
                pair(
                    both.baseline.changed(model=EVIL), both.candidate.changed(model=EVIL + "2")
                )
            )
        )
    )
    tags = Tags()
    tags.feed(files["report.html"])
    assert "script" not in {name for name, _ in tags.seen} and not tags.wrong
    for text in (files["report.html"], files["report.md"]):
        assert "\x1b" not in text and "\u202e" not in text and "<script" not in text


def test_figures_know_every_case():
    assert "<svg" in interval_figure([("a", 0.0, 0.0, 0.0, "equivalent")])
    assert "<svg" in interval_figure(
        [("a", 1e-9, -1e-9, 2e-9, "x"), ("b", 1e9, 1e8, 2e9, "regressed")],
        margin=(-1, 1),
        limit=5,
    )
    assert (
        ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
        and visible("a\x00b") == "a\\x00b"
        and markdown("a\nb") == "a b"
    )


def test_labels_beside_sizes_do_not_cover_each_other():
    "Random candidates: no label leaves the picture or lies over another."
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = [
            (
                f"model-{k}" + "x" * int(rng.integers(0, 14)),
                size,
                change,
                change - 0.2,
                change + 0.2,
                "",
            )
            for k, (size, change) in enumerate(
                zip(rng.uniform(4, 16, 5), rng.uniform(0, 1, 5), strict=True)
            )
        ]
        drawn = size_figure(rows, margin=(-0.5, 0.5), axis="change", size="size")
        labels = [
            (float(x), float(y), end, text)
            for x, y, end, text in re.findall(
                r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*text-anchor="(start|end)"[^>]*>(model-[^<]*)<',
                drawn,
            )
        ]
        assert len(labels) == 5, drawn
        spans = [
            (
                x - 7.2 * len(text) if end == "end" else x,
                x if end == "end" else x + 7.2 * len(text),
                y,
            )
            for x, y, end, text in labels
        ]
        assert all(a >= 0 and b <= 420 for a, b, _ in spans)
        assert not any(
            a < d and c < b and abs(y - z) < 13.9
            for i, (a, b, y) in enumerate(spans)
            for c, d, z in spans[:i]
        ), (seed, spans)


def test_a_point_beyond_the_axis_is_an_arrow_with_its_number():
    near = [("a", 4, 0.1, -0.1, 0.3, ""), ("b", 5, 0.2, 0.1, 0.3, "")]
    far = [("up", 6, 30.0, 20.0, 40.0, ""), ("down", 7, -30.0, -40.0, 0.2, "")]
    drawn = size_figure([*near, *far], margin=(-1, 1), axis="change", size="size")
    assert drawn.count("<circle") == len(near) and "up +30" in drawn and "down -30" in drawn
    arms = re.findall(r'<path d="M\S+ (\S+)L\S+ (\S+)" style="[^"]*stroke-width:2"', drawn)
    below = [float(start) > float(tip) for start, tip in arms]
    assert below == [True, True, False, False]


@pytest.mark.parametrize("n", [12, 13, 45])
def test_tables_of_many_candidates_are_cut_whole(n):
    "Details of 12 are in report.md, of more none; a summary and a notebook say how many are left out, in rows as long as the others."
    base = losses(n=12).baseline
    made = study(
        {("baseline", ""): base}
        | {
            (f"candidate-number-{k:02d}", ""): base.changed(
                model=f"c{k}",
                log_loss=base.log_loss
                + 0.01 * k
                + np.random.default_rng(k).normal(0, 0.01, 12),
            )
            for k in range(n)
        }
    )
    pages, shown = render(report_of(made)), made._repr_html_()
    assert pages["report.md"].count("\n## candidate-number-") == 12 * (n == 12) and (
        f"Details of {n} pairs are in report.html" in pages["report.md"]
    ) == (n > 12)
    cells = [
        line.count(" | ") for line in pages["summary.md"].splitlines() if line.startswith("| ")
    ]
    assert len({*cells}) == 1 and ("more in report.html" in pages["summary.md"]) == (n == 45)
    rows = [
        row.count("<td") + row.count("<th")
        for row in re.findall("<tr.*?</tr>", shown, re.S)
        if "left out here" not in row
    ]
    left_out = sum(map(int, re.findall(r">and (\d+) more", shown)))
    assert (
        len({*rows}) == 1
        and len(rows) - 1 - (left_out > 0) + left_out == n + 1
        and (left_out > 0) == (n == 45)
    )


def test_the_changes_are_those_of_the_units():
    page = lambda kind: render(report_of(MADE[kind]()))["report.html"]
    assert (
        "documents, smallest change first" in page("losses")
        and "windows in text order; dashed" not in page("losses")
        and "windows in text order; dashed" in page("few")
    )


def test_so_few_units_that_no_row_of_many_can_be_called_changed_are_a_warning():
    "Thirty slices of ten: the smallest p-value of a sign test is 2 ** -9, and Holm takes it thirty times."
    said = report_of(
        compare(
            marks(n=300, slices={"topic": [f"t{i % 30}" for i in range(300)]}), by=["topic"]
        )
    ).document()["warnings"]
    assert any(
        "With 10 examples no p-value of a change can fall below 0.002, so no row can be called changed among 30"
        in line
        for line in said
    ), said


def test_numbers_and_sizes_change_their_form_where_the_longer_one_is_not_shorter():
    assert [show(x) for x in (9999.0, 10_000.0, 12_345.0, 0.5, 12_345)] == [
        "9999",
        "10,000",
        "12,345",
        "0.5",
        "12,345",
    ]
    arms = sized()

    def of(size):
        d = (
            study(
                {
                    key: arm.changed(
                        provenance={"weight_bytes": size * (2 - (key[0] == "q1"))}
                    )
                    for key, arm in arms.items()
                }
            )
            .report()
            .document()
        )
        return size_picture(d, 0)

    assert "[GB]" in of(0.6e9) and "[MB]" in of(0.4e9)


def test_what_scoring_took_is_tokens_by_seconds(monkeypatch):
    monkeypatch.setitem(
        sys.modules,
        "invar_nb.models.score",
        SimpleNamespace(SPENT={"tokens": 1000, "seconds": 4.0}),
    )
    cost = report_of(compare(losses(0.01))).document()["environment"]
    assert (cost["scored_tokens"], cost["scored_tokens_per_second"]) == (1000, 250.0)


def test_the_final_windows_are_marked_where_a_preview_was_scored_first():
    cut = lambda split: (
        "stroke-dasharray:2 3"
        in render(report_of(compare(losses(0.03, n=40, document_ids=None, split=split))))[
            "report.html"
        ]
    )
    assert cut(["preview"] * 20 + ["final"] * 20) and not cut(["final"] * 40)


def test_overlap_is_the_share_of_tokens_that_are_seen_again():
    rng = np.random.default_rng(4)
    for _ in range(20):
        ranges = [
            (f"d{rng.integers(0, 4)}", start, start + rng.integers(1, 40))
            for start in rng.integers(0, 60, 12)
        ]
        ids, tokens = (
            [f"{d}:{a}-{b}" for d, a, b in ranges],
            np.array([b - a for _, a, b in ranges]),
        )
        if len({*ids}) < 12:
            continue
        seen = {(d, i) for d, a, b in ranges for i in range(a, b)}
        assert overlap_fraction(ids, tokens) == (
            pytest.approx(1 - len(seen) / tokens.sum(), abs=1e-12),
            "token_ranges",
        )


def test_files_of_arms_are_short_and_differ_without_case():
    stems = arm_files([("q 4", ""), ("q_4", ""), ("Q/4", ""), ("x" * 80, ""), ("..", "")])
    assert (
        len({stem.lower() for stem in stems.values()}) == 5
        and max(map(len, stems.values())) == 60
        and stems["..", ""] == "arm"
    )
    assert all(re.fullmatch("[A-Za-z0-9_-]+", stem) for stem in stems.values())


@pytest.mark.parametrize(
    "shift, noise, required, code, rule",
    [
        (0.0, 0.02, "equivalent", 0, "not_worse"),
        (0.0, 0.02, "not-worse", 0, "not_worse"),
        (-0.05, 0.02, "equivalent", 1, "requirement_missed"),
        (-0.05, 0.02, "not-worse", 0, "not_worse"),
        (0.04, 0.2, "not-worse", 1, "requirement_missed"),
        (0.04, 0.2, None, 0, "no_regression_shown"),
        (0.03, 0.03, None, 1, "perhaps_within_margin"),
        (0.03, 0.03, "not-beyond", 0, "no_loss_beyond_shown"),
        (0.06, 0.03, "not-beyond", 1, "primary_regressed"),
    ],
)
def test_what_exit_0_takes(shift, noise, required, code, rule):
    "A requirement is stricter or milder than the usual rule, and the first line says which one failed."
    report = report_of(compare(losses(shift, noise), required=required))
    assert (report.exit_code, report.exit.rule) == (code, rule), report.exit
    first = str(report).splitlines()[0]
    assert first == (
        f"Exit code 1: {report.exit.because} {report.headline}"
        if rule == "requirement_missed"
        else report.headline
    )
    assert (
        rule != "requirement_missed"
        or report.exit.because
        == f"{required.replace('-', ' ')} is required, and was not shown."
    )


def test_a_copy_that_was_only_rounded_and_improved_is_doubted():
    "Two claims of one kind of edit; the sentence is the doubt that the terminal shows, and nothing is said where nothing improved or the edit is another."

    def edited(shift, edit=None):
        "Losses of models whose weights are known to differ by an edit of this kind."
        both = losses(shift, 0.02)
        digests = {"baseline": "sha256:1", "candidate": "sha256:2"}
        weights = {"state": "different", "settings": (), "edit": edit, "digests": digests}
        baseline = both.baseline.changed(
            provenance=both.baseline.provenance | {"weights_digest": "sha256:1"}
        )
        candidate = both.candidate.changed(
            provenance=both.candidate.provenance
            | {"weights_digest": "sha256:2", "weights": weights}
        )
        return report_of(compare(pair(baseline, candidate)))

    def said(shift, edit=None):
        return edited(shift, edit).document()["doubts"]

    (doubt,) = said(-0.05, "quantised")
    assert doubt.startswith(
        "Weights were only rounded, which adds nothing to a model: a gain on this text is a warning"
    )
    assert doubt in str(edited(-0.05, "quantised"))
    assert "set to zero" in said(-0.05, "pruned")[0]
    assert said(-0.05) == said(0.0, "quantised") == said(0.05, "quantised") == []


def test_required_of_slices_is_not_met_by_a_part_that_has_none():
    "A part without slices may be worse by anything; not-beyond says what it let pass, also of a metric that does not lead."
    rng = np.random.default_rng(4)
    whole = answers(flips=0, n=200)
    bare = pair(*(arm.changed(slices={}) for arm in (whole.baseline, whole.candidate)))
    both = report_of(
        study(
            arms_of({"a": whole, "b": bare}),
            Rules(required="slices", margin={"accuracy": 0.2}),
        )
    )
    alone = report_of(
        study(arms_of({"a": whole}), Rules(required="slices", margin={"accuracy": 0.2}))
    )
    assert (alone.exit_code, both.exit_code) == (
        0,
        1,
    ) and "b has no slices" in both.exit.because
    columns = {"kl_divergence": rng.gamma(4, 0.02, 96) * 64, "top1_changed": np.zeros(96)}
    d = study(
        arms_of({"": losses(0.001, 0.01, columns=columns)}),
        Rules(margin={"kl_divergence": 0.01}, required="not-beyond"),
    ).report()
    assert d.exit.rule == "secondary_regressed" and d.exit_code == 1


def test_the_smallest_is_smaller_than_the_baseline():
    "Of equal sizes the better estimate; none that is as large as the baseline."

    def said(sizes):
        arms = {
            key: arm.changed(provenance={"weight_bytes": sizes[key[0]]})
            for key, arm in copies().items()
        }
        return str(study(arms, Rules()).report()).splitlines()[0]

    sizes = {"baseline": 16e9, "same": 8e9, "q8": 8e9, "q4": 4e9, "q2": 2e9}
    assert "Smallest that is not worse: same (8 GB)." in said(sizes)
    assert "Smallest" not in said(dict.fromkeys(sizes, 16e9))


def test_the_smallest_that_is_worse_within_the_margin_is_called_that():
    "Its interval lies above 0, so that it is not worse only by the margin."
    base = losses(n=60).baseline
    worse = base.changed(log_loss=base.log_loss + 0.01 + 1e-4 * np.arange(60) % 3e-3)
    arms = {("baseline", ""): base, ("q4", ""): worse, ("q8", ""): worse}
    sizes = {"baseline": 16e9, "q4": 4e9, "q8": 8e9}
    arms = {
        key: arm.changed(provenance={"weight_bytes": sizes[key[0]]})
        for key, arm in arms.items()
    }
    made = study(arms, Rules(margin=0.02))
    said = str(made.report())
    assert "Smallest that is not worse by the margin: q4 (4 GB)." in said, said


def test_a_loss_that_not_beyond_lets_pass_is_said_also_of_a_metric_that_does_not_lead():
    "The Brier score is shown to be worse, perhaps by less than its margin; accuracy is equivalent within its own."
    rules = dict(metrics=["accuracy", "brier"], margin={"accuracy": 0.2, "brier": 0.02}, by=[])
    usual, mild = (
        report_of(compare(answers(), **rules, required=asked))
        for asked in (None, "not-beyond")
    )
    (row,) = (
        row
        for row in mild.document()["rows"]
        if row["key"]["metric"] == "brier" and not row["key"]["slice"]
    )
    assert (
        row["claim"] == "regressed"
        and row["value"]["ci"][0] < row["margin"]
        and usual.exit.rule == "secondary_regressed"
    )
    assert (mild.exit.code, mild.exit.rule) == (0, "no_loss_beyond_shown")
    assert mild.exit.because == "a loss was shown, but none beyond the margin."


@pytest.mark.parametrize("kind", [*MADE, "better below margin", "worse below margin"])
def test_terminal_json_junit_and_pages_say_one_word_of_a_row(kind):
    "The word of each row that the answer shows, and that of the whole study."
    shift = {"better below margin": -0.01, "worse below margin": 0.01}
    if kind in shift:
        seeds = [
            [{"seed": i, "loss": 2 + 0.05 * (i % 5) + d * (1 + i % 3 / 10)} for i in range(12)]
            for d in (0.0, shift[kind])
        ]
        arms = dict(zip(("baseline", "new"), map(pd.DataFrame, seeds), strict=True))
        made = report_of(study(arms, Rules(metrics="loss", margin={"loss": 0.0055})))
    else:
        made = report_of(MADE[kind]())
    document, pages = made.content, render(made)
    rows = answer_rows(document)
    texts = [str(made), *(str(pages[name]) for name in ("report.md", "report.html"))]
    of_junit = {
        case.get("name"): case.find("properties/property[@name='claim']").get("value")
        for case in ElementTree.fromstring(junit(document)).iter("testcase")
        if case.get("name") != "gate"
    }
    for judged in judged_rows(document):
        word = of_junit[f"{judged.name}: {judged.row.value.title}"]
        assert word == judged.row.words.claim
    for row in rows:
        assert all(row.words.claim in text for text in texts), row.key
    leads = [row for row in document.leads if row.claim == document.claim]
    assert not leads or document.word in {row.words.claim for row in leads}
    if kind in shift:
        (row,) = rows
        assert document.word == row.words.claim == kind and row.claim == "inconclusive"
        assert row.direction == kind.split()[0] and kind.capitalize() in document.headline


if __name__ == "__main__":
    for kind in MADE:
        (SAID / f"{kind}.md").write_text(said(kind), encoding="utf-8")
