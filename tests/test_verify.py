"""Every edit of what is computed from the evidence, and of the evidence, is refused by the checker, sealed again or not: for every kind of study."""

import functools
import json
import random
import re
import shutil
import subprocess

import numpy as np
import pytest
from commands import shell
from studies import STUDIES, losses, marks

import invar_nb
from invar_nb.arms.arm import Scores
from invar_nb.arms.pair import pair
from invar_nb.arms.predictions import Predictions
from invar_nb.comparison.study import compare, study
from invar_nb.files.losses import (
    losses_bytes,
    parse_losses,
    write_losses,
)
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.foundations.store import (
    canonical_json,
    canonical_text,
    content_digest,
    file_digest,
)
from invar_nb.metrics.metric import METRICS, Metric
from invar_nb.report import report as evidence
from invar_nb.report import verify as page
from invar_nb.report.verify import verify

# Columns of the evidence from which no number or word of such a report follows: kind -> (file's column).
UNUSED = {
    "one arm's scores": {"ids", "prompt_digests"},
    "translations": {"hypotheses"},
    "runs of several": {"detail", "experiment_id", "hypothesis_id"},
}  # one wrong word for another


def leaves(value, at=()):
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (dict, list)) and part:
            yield from leaves(part, (*at, name))
        else:
            yield (*at, name), part


def edits(part):
    "Changes of one leaf: a moved number, another word, another type, nothing."
    if isinstance(part, bool):
        return [not part, None]
    if isinstance(part, (int, float)):
        return [part + (1e-6 * abs(part) or 1e-6), -part - 1, None, str(part)]
    return [part + "x", "", None] if isinstance(part, str) else [0.5, "x"]


def changed(document, at, value, seal=True):
    "The document with another value in one place, sealed with a fresh digest; None where that is no change."
    new = json.loads(json.dumps(document))
    inner = new
    for name in at[:-1]:
        inner = inner[name]
    if inner[at[-1]] == value and type(inner[at[-1]]) is type(value):
        return None
    inner[at[-1]] = value
    if seal:
        new["digest"] = content_digest(new)
    return new


@pytest.fixture(scope="module", params=STUDIES)
def saved(request, tmp_path_factory):
    folder = STUDIES[request.param]().report().save(tmp_path_factory.mktemp("report") / "r")
    return folder, json.loads((folder / "report.json").read_text())


@pytest.fixture
def refused(tmp_path, monkeypatch):
    "Whether a report is refused; no page is there, which would show many an edit by itself. Equal inputs are computed once."
    computed, compute, bare = {}, page.compute_again, tmp_path / "bare"

    def once(folder, d, without):
        files = [
            [arm.name, arm.part, arm.kind, arm.file, arm.sha256]
            for _, arm in sorted(d.arms.items())
        ]
        key = canonical_json(
            [d.rules, d.version, sorted(page.metric_names(d)), files, sorted(without)]
        )
        if key not in computed:
            computed[key] = compute(folder, d, without)
        return computed[key]

    monkeypatch.setattr(page, "compute_again", once)

    def call(folder, document):
        if not bare.exists():
            shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("report.*", "*.svg"))
        (bare / "report.json").write_text(canonical_text(document), encoding="utf-8")
        try:
            verify(bare)
        except UsageError as error:
            pytest.fail(f"an edit is no misuse: {error}")
        except ContractError:
            return True
        return False

    return call


def test_it_verifies_and_says_what_it_does_not_cover(saved):
    folder, document = saved
    result = verify(folder)
    assert (
        {"report.json", "report.md", "report.html"}
        <= {*result.files}
        == {path.name for path in folder.iterdir()}
        - {arm["file"] for arm in document["arms"].values()}
    )
    assert result.not_covered == page.NOT_COVERED and not result.partly


def field_of(at):
    "A leaf's place without the numbers in lists: the same field of every row is one field."
    return tuple("*" if isinstance(name, int) else name for name in at)


def drawn_of_each_field(document, draw):
    "One leaf of each field."
    fields = {}
    for at, part in leaves(document):
        fields.setdefault(field_of(at), []).append((at, part))
    return [draw.choice(some) for some in fields.values()]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_edited_leaf_is_refused(saved, refused, every, capsys):
    "Numbers, words, rules and names: of each field one leaf with one edit, drawn with a fixed seed; in the slow run all edits of all leaves."
    folder, document = saved
    draw, tried, survived = random.Random(7), 0, []
    assert not refused(folder, document)
    for at, part in leaves(document) if every else drawn_of_each_field(document, draw):
        if at[0] in ("environment", "digest", "version"):  # of another version: own test
            continue
        for value in edits(part) if every else [draw.choice(edits(part))]:
            if (new := changed(document, at, value)) is None:
                continue
            tried += 1
            if not refused(folder, new):
                survived.append((at, value))
    if every:
        with capsys.disabled():
            print(
                f"\n{document['signature']}: {tried} edits, {len(survived)} not refused",
                end="",
            )
    assert tried > 30 and not survived


def test_unsealed_edits_additions_and_deletions_are_refused(saved, refused):
    folder, document = saved
    assert refused(folder, changed(document, ("headline",), "All is well.", seal=False))
    if document["rows"]:  # the number is named, whether the digest was renewed or not
        at = (
            "rows",
            0,
            "value",
            "baseline" if "baseline" in document["rows"][0]["value"] else "value",
        )
        for seal in (True, False):
            (folder / "report.json").write_text(
                canonical_text(changed(document, at, 1.5, seal=seal))
            )
            with pytest.raises(
                ContractError,
                match=rf"rows\[0\].value.{at[-1]} must be what the evidence gives; got 1.5, computed",
            ):
                verify(folder)
        (folder / "report.json").write_text(canonical_text(document))
    for name in (*document, None):
        less = {k: v for k, v in document.items() if k != name} | (
            {} if name else {"note": "approved"}
        )
        assert (
            refused(
                folder, less | {"digest": content_digest(less)} if name != "digest" else less
            )
            or name == "environment"
        ), name
    for name in (
        name for name, value in document.items() if isinstance(value, list) and value
    ):
        assert refused(folder, changed(document, (name,), [])), name


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_edited_pages_are_refused_and_absent_ones_named(saved, name, tmp_path):
    folder = shutil.copytree(saved[0], tmp_path / "r")
    text = (folder / name).read_text(encoding="utf-8")
    (folder / name).write_text(text.replace(".", ",", 1), encoding="utf-8")
    with pytest.raises(ContractError, match=f"{name} must be what") as caught:
        verify(folder)
    assert caught.value.code == "page_differs"
    (folder / name).unlink()
    assert f"{name} is missing" in verify(folder).not_covered


@pytest.mark.parametrize(
    "name, put, said",
    [
        (
            "report.html",
            lambda path: path.symlink_to("nowhere"),
            "report.html must be a file beside report.json; got a link",
        ),
        ("result.svg", lambda path: path.symlink_to(path.name), "result.svg must be a file"),
        (
            "Report.html",
            lambda path: path.write_text("All is well."),
            "only what was made from report.json may lie beside it; got Report.html",
        ),
        ("SLICES.csv", lambda path: path.touch(), "only what was made"),
        (
            "baseline.parquet",
            lambda path: path.symlink_to(path.parents[1] / "away"),
            "baseline.parquet must be a file of the report's folder; got a link that leads out of it",
        ),
        ("candidate.parquet", lambda path: path.symlink_to("../away"), "leads out of it"),
        ("baseline.parquet", lambda path: path.symlink_to(path.name), "baseline.parquet"),
    ],
)
def test_links_and_pages_in_another_case_are_refused(name, put, said, tmp_path):
    folder = compare(losses(0.03)).report().save(tmp_path / "r")
    if (path := folder / name).exists():
        path.rename(tmp_path / "away")
    put(path)
    with pytest.raises((ContractError, OSError), match=said):
        verify(folder)


def test_other_files_of_the_folder_are_named(tmp_path):
    folder = compare(losses(0.03)).report().save(tmp_path / "r")
    for name in ("index.html", "README.md"):
        (folder / name).write_text("No regression.")
    result = verify(folder)
    assert result.not_covered == (
        *page.NOT_COVERED,
        "other files in the folder: README.md, index.html",
    ) and "- other files in the folder: README.md, index.html" in str(result)
    for name in ("a\x1b[2J\u202e", "b", "c", "d"):
        (folder / name).touch()
    assert (
        verify(folder).not_covered[-1]
        == "other files in the folder: README.md, a\\x1b[2J\\u202e, b, c, d and 1 more"
    )


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", STUDIES)
def test_edited_evidence_is_refused_even_with_fresh_digests(
    kind, every, tmp_path, monkeypatch
):
    "Two cells of each column of each file (of the largest study of every fourth, but in the slow run), one at a time; what no number follows from is listed in UNUSED."
    monkeypatch.setitem(
        evidence.FORMS,
        "losses",
        evidence.Form(
            ending=".jsonl",
            to_bytes=lambda arm: losses_bytes(arm, ".jsonl"),
            parse=lambda data, name: parse_losses(data, name=name),
        ),
    )
    folder, draw, kept = STUDIES[kind]().report().save(tmp_path / "r"), random.Random(5), set()
    document = json.loads((folder / "report.json").read_text())
    for name in ("report.md", "report.html"):
        (folder / name).unlink()
    for stem, arm in list(document["arms"].items())[
        :: 4 if len(document["rows"]) > 20 and not every else 1
    ]:
        path, columns = folder / arm["file"], {}
        text = path.read_text()
        lines = text.splitlines()
        for i, line in enumerate(lines):
            for at, part in leaves(json.loads(line)):
                columns.setdefault(
                    (i == 0, *(x for x in at if isinstance(x, str))), []
                ).append((i, at, part))
        for name, cells in columns.items():
            for i, at, part in draw.sample(cells, min(2, len(cells))):
                new = changed(
                    json.loads(lines[i]),
                    at,
                    draw.choice([x for x in edits(part) if str(x) != str(part)]),
                    seal=False,
                )
                if new is None:
                    continue
                path.write_text(
                    "\n".join([*lines[:i], json.dumps(new), *lines[i + 1 :]])
                    + "\n" * text.endswith("\n")
                )
                (folder / "report.json").write_text(canonical_text(document))
                with pytest.raises(ContractError) as caught:
                    verify(folder)
                assert caught.value.code == "evidence_changed"
                (folder / "report.json").write_text(
                    canonical_text(
                        changed(document, ("arms", stem, "sha256"), file_digest(path))
                    )
                )
                try:
                    verify(folder)
                except ContractError:
                    continue
                kept.add(name[-1])
        path.write_text(text)
    assert kept <= UNUSED.get(kind, set())


@pytest.mark.parametrize("kind", ["losses", "candidates", "everything"])
def test_exchanged_evidence_is_refused(kind, tmp_path):
    "The files of two arms, exchanged with their digests: another study."
    folder = STUDIES[kind]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    one, two = list(document["arms"])[:2]
    for name in ("file", "sha256"):
        document["arms"][one][name], document["arms"][two][name] = (
            document["arms"][two][name],
            document["arms"][one][name],
        )
    document["digest"] = content_digest(document)
    (folder / "report.json").write_text(canonical_text(document))
    with pytest.raises(ContractError):
        verify(folder)


def test_evidence_that_is_exchanged_once_it_was_hashed_is_not_read(tmp_path, monkeypatch):
    "Hashed as one file and read as another, it let a report pass that the recorded file does not give."
    folder, other = (
        compare(marks(shift=shift, better="lower"), margin=0.1)
        .report()
        .save(tmp_path / str(shift))
        for shift in (0.05, -0.2)
    )
    true, forged = (
        json.loads((place / "report.json").read_text()) for place in (folder, other)
    )
    (folder / "report.json").write_text(
        canonical_text(
            changed(
                forged, ("arms", "candidate", "sha256"), true["arms"]["candidate"]["sha256"]
            )
        )
    )
    exchanged = []

    def hashed(data, read=page.digest):
        found = read(data)
        if found == true["arms"]["candidate"]["sha256"]:
            exchanged.append(shutil.copy(other / "candidate.json", folder))
        return found

    monkeypatch.setattr(page, "digest", hashed)
    for name in ("report.md", "report.html", "summary.md", "badge.json", "result.svg"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ContractError, match="must be what the evidence gives"):
        verify(folder)
    assert exchanged


OTHER_NAMES = [
    "index.html",
    "README.md",
    "report.htm",
    "a.svg",
    "run.sh",
    "conftest.py",
    "-rf",
    "$(id).json",
    "a\nb.jsonl",
    "a\u202eb.parquet",
    "{}",
    "{}.html",
    "{}.parquet.html",
    "{}.PARQUET",
    "x{}.json",
    "x{}.parquet",
    "x{}.jsonl",
    "{}.csv",
]


def test_evidence_must_have_the_name_of_its_arm_and_kind(saved, tmp_path):
    "A file of any name that is evidence is shown by nobody as *another file*: index.html, with a script as the name of its model, was a verified report's first page."
    folder, document = saved
    stem, arm = next(iter(document["arms"].items()))
    place = shutil.copytree(
        folder,
        tmp_path / "r",
        ignore=shutil.ignore_patterns("*.md", "*.html", "*.svg", "badge.json", "*.csv"),
    )
    names = [name.format(stem) for name in OTHER_NAMES] + [
        f"{stem}{end}" for end in (".json", ".jsonl", ".parquet")
    ]
    for name in names:
        if name == arm["file"]:
            continue
        shutil.copy(place / arm["file"], place / name)
        (place / "report.json").write_text(
            canonical_text(changed(document, ("arms", stem, "file"), name))
        )
        with pytest.raises(
            ContractError, match=rf"arms\.{stem}\.file must be (named|a plain name)"
        ) as caught:
            verify(place)
        assert len(str(caught.value).splitlines()) == 1 and str(caught.value).isprintable()
        (place / name).unlink()


@pytest.mark.parametrize("name", ["report", "badge", "Badge", "plan", "summary"])
def test_a_candidate_with_the_name_of_a_page_keeps_its_file(name, tmp_path):
    "The scores of a candidate called *report* were written over report.json."
    pair = marks()
    folder = (
        study(
            {
                ("baseline", ""): pair.baseline,
                (name, ""): pair.candidate,
                ("b", ""): pair.candidate,
            }
        )
        .report()
        .save(tmp_path / "r")
    )
    assert verify(folder).report.document()["arms"].keys() >= {"baseline", "b"}


def test_what_is_missing_elsewhere_or_cut_is_refused(tmp_path, refused):
    folder = STUDIES["scores"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    for file in ("../r/baseline.json", "nothing.json", "", ".hidden"):
        assert refused(folder, changed(document, ("arms", "baseline", "file"), file))
    (folder / "baseline.json").unlink()
    for path in (folder, tmp_path / "nowhere"):
        with pytest.raises(ContractError):
            verify(path)
    whole = (folder / "report.json").read_bytes()
    for text in (
        whole[:-20],
        whole.replace(b'"n": 60', b'"n": 1' + b"0" * 400),
        whole.replace(b'"n": 60', b'"n": 1e999'),
        whole.replace(b'"margin": 0.1', b'"margin": NaN'),
    ):
        assert text != whole
        (folder / "report.json").write_bytes(text)
        with pytest.raises(ContractError):
            verify(folder)


def test_structures_that_nobody_writes_are_refused_and_never_a_crash(saved, refused):
    "Rules and arms are free in the schema: another shape crashed, or was said to be misuse (exit 2)."
    folder, document = saved
    first = next(iter(document["arms"]))
    spots = [
        ("arms",),
        *(("arms", first, name) for name in ("file", "sha256", "provenance", "kind", "part")),
        ("rules",),
        *(("rules", name) for name in document["rules"]),
    ]
    rules = [
        ("rules", name, value)
        for name, value in (
            ("level", 95),
            ("by", "nope"),
            ("deciding", ["x"]),
            ("pooling", "all"),
            ("metrics", ["x"]),
            ("method", "x"),
            ("x", 1),
            ("margin", {"x": 1}),
        )
    ]
    for at, new in [(at, new) for at in spots for new in ({}, [], [1], 7, "zz", {"a": 1})]:
        if (made := changed(document, at, new)) is not None:
            refused(folder, made)
    for _, name, value in rules:
        refused(
            folder,
            changed(
                document | {"rules": document["rules"] | {name: None}}, ("rules", name), value
            ),
        )


def written(folder, document, **changes):
    "What verify says of a report with other values, sealed again."
    document = document | changes
    document["digest"] = content_digest(document)
    (folder / "report.json").write_text(canonical_text(document), encoding="utf-8")
    return verify(folder)


def test_the_environment_is_free_and_a_schema_of_before_is_refused(tmp_path):
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    for name in ("report.md", "report.html", "summary.md"):
        (folder / name).unlink()  # they have the host
    assert written(
        folder, document, environment=document["environment"] | {"host": "elsewhere"}
    )
    with pytest.raises(ContractError, match="invar_nb 0.0.9, which wrote it"):
        written(folder, document, version="0.0.9", schema="invar_nb/report/1")


SENTENCES = {  # last names of fields that hold words
    *("because", "sentence", "sentences", "headline", "rationale", "signature", "details"),
    *("doubts", "warnings", "conventions", "words", "beside", "over", "speaks_of", "reason"),
    *("missing", "note", "notes", "title", "brief", "word"),
}


def is_sentence(at):
    "Whether a leaf is one, by the name of its field or of what holds it."
    names = [name for name in at if isinstance(name, str)]
    return bool(SENTENCES & {*names[-2:]}) and not {"rules", "provenance"} & {*names}


def test_of_another_version_every_number_is_compared_and_no_sentence(saved, refused):
    "The version is what the report says of itself, so it switches off words alone."
    folder, document = saved
    document = changed(document, ("version",), "0.0.9")
    assert not refused(folder, document)
    draw, survived = random.Random(11), set()
    share = 0.05 if len(document["rows"]) > 20 else 0.2
    for at, part in leaves(document):
        if at[0] in ("environment", "digest", "version"):
            continue
        if at != ("headline",) and draw.random() > share:
            continue
        if not refused(folder, changed(document, at, edits(part)[0])):
            survived.add(at)
            assert (not part or isinstance(part, str)) and is_sentence(at), at
    assert ("headline",) in survived


def test_of_another_version_words_and_pages_are_not_compared_and_verify_says_so(tmp_path):
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    (folder / "report.html").write_text("<script>all is well</script>")
    with pytest.raises(ContractError, match="report.html must be what report.json renders"):
        verify(folder)
    found = written(folder, document, version="0.0.9", headline="All is well.")
    assert found.headline == document["headline"] and found.files == ("report.json",)
    assert str(found).startswith(
        "Verified: every number of report.json. Words and pages are of invar_nb 0.0.9 and "
        "were not compared.\n"
    )
    assert "All is well" not in str(found)
    assert found.not_covered[0].startswith("words and pages, which invar_nb 0.0.9 wrote")
    assert "report.html" in found.not_covered[-1]
    rows = json.loads(json.dumps(document["rows"]))
    rows[0]["claim"] = "equivalent"
    with pytest.raises(ContractError, match=r"rows\[0\].claim must be what the evidence"):
        written(folder, document, version="0.0.9", rows=rows)


def test_a_report_that_went_through_git_on_windows_or_jq_verifies(saved, tmp_path):
    "Line ends, indentation and the order of keys are no content, in the evidence and pages neither."
    folder = shutil.copytree(saved[0], tmp_path / "r")
    git = ["git", "-C", folder, "-c", "core.autocrlf=true", "-c", "user.name=a"]
    git += ["-c", "user.email=a@example.org"]
    for words in ("init -q", "add .", "commit -qm report", "rm -qrf --cached ."):
        subprocess.run([*git, *words.split()], check=True, capture_output=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    subprocess.run([*git, "reset", "-q", "--hard"], check=True, capture_output=True)
    shutil.rmtree(folder / ".git")
    assert b"\r\n" in (folder / "report.json").read_bytes()
    assert verify(folder).files == verify(saved[0]).files
    document = json.loads((folder / "report.json").read_text())
    backwards = json.dumps(turned(document), indent="\t")
    (folder / "report.json").write_text(backwards, newline="\r\n")
    assert verify(folder).files == verify(saved[0]).files


def turned(value):
    "The same JSON with the keys of each object in the other order, and 1.0 as jq writes it."
    if isinstance(value, list):
        return [turned(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    return {name: turned(item) for name, item in reversed(value.items())}


@pytest.mark.parametrize("version", ["0.1`\n\n## Approved by @everyone", "", "1 2", "x" * 99])
def test_a_version_is_no_place_for_words(version, tmp_path, refused):
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    signature = document["signature"].replace(invar_nb.__version__, version)
    (folder / "summary.md").unlink()  # which would show it
    assert refused(folder, changed(document | {"signature": signature}, ("version",), version))


@pytest.mark.parametrize(
    "at",
    [
        ("rows", 0, "words"),
        ("rows", 0, "p"),
        ("arms", "baseline", "provenance"),
        ("arms", "baseline", "levels"),
        ("arms", "baseline", "details"),
        ("rules",),
    ],
)
def test_a_field_that_says_it_is_absent_is_there(at, tmp_path, refused):
    "`(absent)` is how a missing field is shown: as a text it was equal to none."
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    functools.reduce(lambda part, name: part[name], at, document)["accepted"] = (
        "of another kind"
    )
    assert refused(folder, document) and refused(
        folder, changed(document, (*at, "accepted"), "(absent)")
    )


def precision(arm):
    return (arm.values > 0.5) * (arm.values > 0.2) * 1.0, (arm.values > 0.2) * 1.0


def test_a_metric_from_outside_goes_through_everything(tmp_path, refused):
    "Ten lines of a stranger: a ratio whose weights differ between the arms. Where it is not installed, the rest is verified on request."
    mine = Metric(
        name="share_above",
        title="Share above",
        unit="share",
        better="higher",
        kind="scores",
        margin=0.05,
        totals=precision,
    )
    with METRICS.registered(mine):
        both = marks(shift=-0.2, slices={"language": ["en", "es"] * 30})
        done = compare(both, metrics=["share_above", "score"], margin={"share_above": 0.01})
        assert done["share_above"].value.baseline == pytest.approx(
            precision(both.baseline)[0].sum() / precision(both.baseline)[1].sum()
        )
        assert {row.key.slice for row in done.select(metric="share_above")} == {
            None,
            "language en",
            "language es",
        }
        report = done.report()
        folder = report.save(tmp_path / "r")
        document = json.loads((folder / "report.json").read_text())
        rows = [
            i
            for i, row in enumerate(document["rows"])
            if row["key"]["metric"] == "share_above"
        ]
        assert (
            len(rows) == 3
            and "Share above" in (folder / "report.html").read_text()
            and "Share above" in str(report)
            and "share_above" in (folder / "slices.csv").read_text()
        )
        assert verify(folder).not_covered == page.NOT_COVERED
        assert all(
            refused(folder, changed(document, ("rows", i, "value", "delta"), 0.5))
            for i in rows
        )
    with pytest.raises(ContractError, match="share_above") as caught:
        verify(folder)
    assert caught.value.code == "metric_not_installed"
    partly = verify(folder, without=["share_above"])
    assert (
        partly.partly
        and any("share_above" in line for line in partly.not_covered)
        and str(partly).startswith("Partly verified")
    )
    forged = changed(document, ("headline",), "Equivalent within 2 %.", seal=True)
    (folder / "report.json").write_text(canonical_text(forged))
    for name in ("report.md", "report.html", "summary.md", "badge.json", "result.svg"):
        (folder / name).unlink(missing_ok=True)
    assert "Equivalent" not in str(
        verify(folder, without=["share_above"])
    ) and "says: Regressed" in str(verify(folder, without=["share_above"]))
    with METRICS.registered(mine):
        alike = (
            compare(both, metrics=["score", "share_above"], margin=0.01)
            .report()
            .save(tmp_path / "alike")
        )
    assert verify(alike, without=["share_above"]).partly
    other = next(
        i for i, row in enumerate(document["rows"]) if row["key"]["metric"] == "score"
    )
    (folder / "report.json").write_text(
        canonical_text(changed(document, ("rows", other, "value", "delta"), 0.5))
    )
    with pytest.raises(ContractError):
        verify(folder, without=["share_above"])


def test_what_is_equal_up_to_rounding_verifies_and_what_is_not_does_not(tmp_path, refused):
    "Another processor's last digits, and a change of 1e-6 of the interval's width."
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    at = ("rows", 0, "value", "ci", 0)
    low, high = document["rows"][0]["value"]["ci"]
    assert not refused(folder, changed(document, at, np.nextafter(low, 1))) and refused(
        folder, changed(document, at, low + 1e-6 * (high - low))
    )


def test_a_number_in_a_long_line_is_shown_beside_the_right_one(tmp_path):
    folder = STUDIES["everything"]().report().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    headline = document["headline"]
    number = re.findall(r"[+-]\d+\.\d+", headline)[-1]
    wrong = headline.replace(number, f"{number}9")
    forged = canonical_text(changed(document, ("headline",), wrong))
    line = (folder / "summary.md").read_text().split("\n")[1]
    page = (
        (folder / "summary.md").read_text().replace(line, line.replace(number, f"{number}9"))
    )
    for name, text, word in (
        ("summary.md", page, "rendered"),
        ("report.json", forged, "computed"),
    ):
        (folder / name).write_text(text)
        with pytest.raises(ContractError) as error:
            verify(folder)
        got, _, right = error.value.culprit.partition(f", {word} ")
        assert f"news {number}9 %" in got and f"news {number} %" in right


@pytest.mark.parametrize(
    "name", ["report.md", "report.html", "summary.md", "badge.json", "result.svg"]
)
def test_a_line_that_was_added_to_a_page_is_found(tmp_path, name):
    folder = STUDIES["losses"]().report().save(tmp_path / "r")
    page = folder / name
    for extra in ("x\n", "\n\nx", "\r"):
        text = page.read_text()
        page.write_text(text + extra, newline="")
        with pytest.raises(ContractError, match=f"{name} must be what report.json renders to"):
            verify(folder)
        page.write_text(text)
    assert verify(folder)


@pytest.mark.parametrize("path", [None, 5, b"report.json"])
def test_a_report_is_named_by_a_path(path):
    with pytest.raises(UsageError, match="verify: the report must be a path; got "):
        verify(path)


def test_a_profile_is_checked_on_files(tmp_path):
    "Here nearly every token is scored twice."
    for name, values in (
        ("baseline", np.linspace(2, 3, 400)),
        ("candidate", np.linspace(2, 3.01, 400)),
    ):
        write_losses(
            invar_nb.WindowLosses.from_arrays(
                [f"0:{64 * i}-{64 * i + 128}" for i in range(400)], [128] * 400, values
            ),
            tmp_path / f"{name}.jsonl",
        )
    arms = {
        name: invar_nb.read_losses(tmp_path / f"{name}.jsonl")
        for name in ("baseline", "candidate")
    }
    assert study(arms).report()
    with pytest.raises(
        ContractError,
        match="the profile ci needs every contract to hold; got no_token_is_scored_twice",
    ):
        study(arms, profile="ci").report()


def test_the_report_that_was_named_is_verified_and_another_beside_it_is_said(tmp_path):
    compare(marks()).report().save(tmp_path / "r")
    (tmp_path / "r" / "honest.json").write_bytes((tmp_path / "r" / "report.json").read_bytes())
    (tmp_path / "r" / "report.json").write_text("{}")
    found = verify(tmp_path / "r" / "honest.json")
    assert (
        "report.json beside it: honest.json was named and verified, report.json was not"
        in found.not_covered
        and "honest.json" in found.files
    )
    with pytest.raises(ContractError):
        verify(tmp_path / "r")


def test_a_report_verifies_in_whatever_order_scores_and_columns_were_named(tmp_path):
    "Rows followed the order in memory, and files of evidence keep that of the names."
    rng = np.random.default_rng(0)
    arms = [
        Scores(
            ids=[f"e{i}" for i in range(80)],
            values=rng.random(80) + shift,
            score="f1",
            others={name: rng.random(80) + shift for name in ("zeta", "alpha", "mid")},
            slices={"zone": ["a", "b"] * 40, "author": ["x", "y", "y", "z"] * 20},
        )
        for shift in (0, 0.02)
    ]
    folder = compare(pair(*arms)).report().save(tmp_path / "r")
    assert verify(folder / "report.json")


def test_a_report_of_answers_verifies_in_whatever_order_columns_were_named(tmp_path):
    rng = np.random.default_rng(0)
    arms = [
        Predictions(
            ids=[f"e{i}" for i in range(80)],
            label=["yes", "no"] * 40,
            prediction=[str(word) for word in rng.choice(["yes", "no"], 80)],
            slices={"zone": ["a", "b"] * 40, "author": ["x", "y", "y", "z"] * 20},
        )
        for _ in range(2)
    ]
    folder = compare(pair(*arms)).report().save(tmp_path / "r")
    assert verify(folder / "report.json")


def test_a_score_has_a_name_of_text():
    "Names of scores are in order, so a number among them is one as text."
    ids, values = ["a", "b"], [0.5, 0.25]
    arm = Scores(ids=ids, values=values, score="f1", others={"z": values, 2: values})
    assert [*arm.others] == ["2", "z"]


def test_a_report_of_runs_verifies_whatever_its_arms_are_called(tmp_path):
    "The arms whose end nothing says were named in the order of the command."
    rows = [
        f"{name},{seed},{3 + shift + seed / 1000}"
        for name, shift in (("sgd", 0), ("muon", 0.01), ("adamw", -0.01))
        for seed in range(6)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["optimizer,seed,val_loss", *rows]))
    arms = ("--column", "arm=optimizer=sgd,muon,adamw", "--metric", "val_loss")
    code, _, err = shell("compare", tmp_path / "runs.csv", *arms, "--out", tmp_path / "r")
    assert code in (0, 1), err
    assert shell("verify", tmp_path / "r")[0] == 0
