"""Every edit of what is computed from the evidence, and of the evidence, is refused by the checker, sealed again or not."""
import json
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import invar_nb
from invar_nb.comparison.compare import compare
from invar_nb.comparison.joint import compare_parts
from invar_nb.comparison.metric import METRICS, Metric, register_metric
from invar_nb.comparison.pair import pair
from invar_nb.comparison.sweep import compare_many
from invar_nb.experiments.improvement import LOWER, MetricSpec
from invar_nb.foundations.document import canonical_text, content_digest, file_digest
from invar_nb.foundations.numbers import ContractError
from invar_nb.metrics.divergence import change_columns, change_counts
from invar_nb.report import evidence
from invar_nb.report.build import build_report, evaluate
from invar_nb.report.joint_report import build_joint
from invar_nb.report.passages import listed_passages
from invar_nb.report.runs_report import build_runs_report
from invar_nb.report.sweep_report import build_sweep
from invar_nb.report.verify import verify
from test_report import answers, looked, losses, marks, runs, said

def change():
    "Columns of a change of probability, with four values."
    n, rng = losses(n=40).candidate.tokens, np.random.default_rng(6)
    drawn = [rng.choice([-.3, -.01, 0, .02], t) for t in n]
    return change_columns(np.array([x.sum() for x in drawn]), np.array([change_counts(x) for x in drawn]))


CHANGE = change()


def again(pair):
    "The baseline scored twice: noise of a millionth of a nat, in other batches."
    base = pair.baseline
    return base.changed(log_loss=base.log_loss + np.random.default_rng(2).normal(0, 1e-6, len(base)), provenance={"batch_tokens": 2048, "order": "backwards"})


def sweep():
    "Two candidates with one baseline, sizes, and the candidates against each other."
    rng, base = np.random.default_rng(3), marks(better="lower").baseline
    arm = lambda k: base.changed(model=f"q{k}", values=base.values + .2 * k + rng.normal(0, .2, len(base)), provenance={"bits_per_weight": 8 - k})
    return build_sweep(compare_many({f"q{k}": pair(base, arm(k)) for k in range(2)}), gate_on=["q0"], margin=.1, between=True)


def several(pair):
    "Documents of two windows, from two files; the text of one passage is in the evidence."
    ids = [f"d{i // 2}" for i in range(len(pair))]
    facts = {"document_files": {name: "a.txt" if i % 3 else "b.txt" for i, name in enumerate(dict.fromkeys(ids))}, "windows_planned": 60}
    arms = [arm.changed(document_ids=tuple(ids), provenance=facts | {"passage_text": {f"windows {i}": f"text {i}" for i in listed_passages(pair)["windows"]}} if new else facts)
            for new, arm in enumerate((pair.baseline, pair.candidate))]
    return type(pair)(baseline=arms[0], candidate=arms[1])


def streamed():
    "Two files that are read in batches."
    both = several(losses(.03, n=48, columns={"kl_divergence": np.linspace(.1, 1, 48)}))
    paths = [Path(tempfile.mkdtemp()) / f"{name}.jsonl" for name in ("baseline", "candidate")]
    for arm, path in zip((both.baseline, both.candidate), paths, strict=True): invar_nb.write_losses(arm, path)
    return build_report(invar_nb.compare_large(*map(invar_nb.open_losses, paths)), gate=1.2)


KINDS = {
    "streamed": streamed,
    "losses": lambda: build_report(compare(losses(.03, n=40)), gate=1.2),
    "tail": lambda: build_report(compare(several(losses(.03, n=48)), metrics=["perplexity"]), tail={"q90": .2, "tokens": 100, "fraction": .5}, by=["source"]),
    "divergence": lambda: build_report(compare(p := losses(.01, n=40, columns={"kl_divergence": np.linspace(.1, 1, 40), "top1_changed": [0] * 40, **CHANGE})), control=again(p)),
    "answers": lambda: build_report(compare(answers(n=60), metrics=["accuracy", "brier"])),
    "scores": lambda: build_report(compare(marks(better="lower", clusters=np.repeat(range(20), 3).tolist())), margin=.1),
    "shares": lambda: build_report(compare(marks(binary=True, slices={"language": ["en", "es"] * 30}))),
    "one arm's scores": lambda: evaluate(marks().candidate),
    "translations": lambda: build_report(compare(said())),
    "runs": lambda: build_runs_report([MetricSpec("loss", direction=LOWER)], **runs()),
    "two metrics": lambda: build_runs_report([MetricSpec("loss", direction=LOWER), MetricSpec("hours", direction=LOWER)], **runs()),
    "one arm": lambda: evaluate(losses(n=40).baseline),
    "joint": lambda: build_joint(compare_parts({"text": losses(.03, n=40), "a/b": answers(n=60)}, primary="text"), by=()),
    "tasks": lambda: build_joint(compare_parts({"one": marks(better="lower"), "two": marks(binary=True)})),
    "sweep": sweep,
    "looks": lambda: build_report(looked(.015, n=60, looks=3), gate=1.2),
    "one arm's answers": lambda: evaluate(answers(n=60).candidate),
}
INPUTS = ("settings", "environment", "digest", "version")      # what is chosen, not computed
# What may be edited because no number or word of such a report follows from it: settings, then columns of the evidence.
SETTINGS = {**dict.fromkeys(("losses", "joint", "tasks", "tail", "divergence", "looks", "sweep", "streamed"), {"fail_inconclusive"}), **dict.fromkeys(("answers", "scores", "shares", "translations"), {"fail_inconclusive", "tier"}),
            "runs": {"fail_inconclusive", "intersect"}, "two metrics": {"fail_inconclusive", "intersect"}, "one arm": {"level"}}
COLUMNS = {"runs": {"experiment_id", "detail", "hours"}, "two metrics": {"experiment_id", "detail"}, "one arm's scores": {"ids", "prompt_digests"}}


def leaves(value, at=()):
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (dict, list)) and part: yield from leaves(part, (*at, name))
        else: yield (*at, name), part


def edits(part):
    "Changes of one leaf: a moved number, another word, another type, nothing."
    if isinstance(part, bool): return [not part, None]
    if isinstance(part, (int, float)): return [part + (1e-6 * abs(part) or 1e-6), -part - 1, None, str(part)]
    return [part + "x", "", None] if isinstance(part, str) else [0.5, "x"]


def changed(document, at, value, seal=True):
    new = json.loads(json.dumps(document))
    inner = new
    for name in at[:-1]: inner = inner[name]
    if inner[at[-1]] == value and type(inner[at[-1]]) is type(value): return None
    inner[at[-1]] = value
    if seal: new["digest"] = content_digest(new)
    return new


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    folder = KINDS[request.param]().save(tmp_path_factory.mktemp(request.param.replace(" ", "_").replace("'", "_")) / "r")
    return folder, json.loads((folder / "report.json").read_text())


def refused(folder, document):
    "Without report.md and report.html, which show many an edit by themselves."
    bare = folder.with_name("bare")
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("report.*"), dirs_exist_ok=True)
    (bare / "report.json").write_text(canonical_text(document), encoding="utf-8")
    try: verify(bare)
    except ContractError: return True
    return False


def test_it_verifies_and_says_what_it_does_not_cover(saved):
    found = verify(saved[0])
    evidence = {entry["file"] for entry in saved[1]["evidence"].values()}
    assert {"report.json", "report.md", "report.html"} <= {*found.files} == {path.name for path in saved[0].iterdir()} - evidence
    assert any("models were run" in line for line in found.not_covered) and any("environment" in line for line in found.not_covered)


def test_an_absent_page_and_a_cut_report_are_named(saved, tmp_path):
    folder = shutil.copytree(saved[0], tmp_path / "report")
    (folder / "report.html").unlink()
    assert "report.html: it is not there" in verify(folder).not_covered
    (folder / "report.json").write_bytes((folder / "report.json").read_bytes()[:-20])
    with pytest.raises(ContractError, match="verify: report.json: the text must be UTF-8 JSON"): verify(folder)


def test_every_edited_leaf_is_refused(saved):
    "One edit of each leaf, sealed with a fresh digest; which of the edits is drawn with a fixed seed."
    folder, document = saved
    draw, tried = random.Random(7), 0
    for at, part in leaves(document):
        if "tail" in document["settings"] and at[0] not in ("passages", "policy", "slices"): continue  # the rest as in "losses"
        if at[0] in INPUTS or "passages" in at and {*at} & {1, 2, 3} or at[0] in ("parts", "comparison") and document["kind"] == "sweep" and draw.random() > .1: continue  # parts as in "joint"
        if kind_of(folder) == "streamed" and at[0] not in ("dataset", "passages", "facts") and draw.random() > .1: continue  # the others as in "losses"
        if kind_of(folder) == "divergence" and at[0] not in ("comparison", "control") and draw.random() > .1: continue  # the others as in "losses"
        new = changed(document, at, draw.choice(edits(part)))
        if new is None: continue
        tried += 1
        assert refused(folder, new), f"an edit of {at} was not found: {new}"
    assert tried > 10


def test_unsealed_edits_additions_and_deletions_are_refused(saved):
    folder, document = saved
    assert refused(folder, changed(document, ("headline",), "All is well.", seal=False))
    for name in list(document):
        if name == "environment": continue
        less = {k: v for k, v in document.items() if k != name}
        assert refused(folder, {**less, "digest": less.get("digest") and content_digest(less)} if name != "digest" else less), name
    more = {**document, "note": "approved"}
    assert refused(folder, more | {"digest": content_digest(more)})


def kind_of(folder): return folder.parent.name.rstrip("0").replace("_s", "'s").replace("_", " ")


def test_only_settings_that_change_nothing_may_be_edited(saved):
    folder, document = saved
    kept = {at[0] for at, part in leaves(document["settings"]) for new in edits(part)
            if (made := changed(document, ("settings", *at), new)) and not refused(folder, made)}
    assert kept == SETTINGS.get(kind_of(folder), set())
    assert any("settings" in line and "changed nothing" in line for line in verify(folder).not_covered)


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_edited_pages_are_refused(saved, name):
    path = saved[0] / name
    kept = path.read_text(encoding="utf-8")
    try:
        path.write_text(kept.replace(".", ",", 1), encoding="utf-8")
        with pytest.raises(ContractError, match=f"{name} must be what"): verify(saved[0])
    finally: path.write_text(kept, encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_edited_evidence_is_refused_even_with_fresh_digests(kind, tmp_path, monkeypatch):
    "Three values of each column of each file, one at a time; what no number follows from is listed in COLUMNS."
    monkeypatch.setitem(evidence._ENDING, "losses", ".jsonl")
    folder, draw, kept = KINDS[kind]().save(tmp_path / "r"), random.Random(5), set()
    document = json.loads((folder / "report.json").read_text())
    for arm, entry in document["evidence"].items():
        path, columns = folder / entry["file"], {}
        lines = path.read_text().splitlines()
        for i, line in enumerate(lines):
            for at, part in leaves(json.loads(line)): columns.setdefault((i == 0, *(x for x in at if isinstance(x, str))), []).append((i, at, part))
        for name, places in columns.items():
            for i, at, part in draw.sample(places, min(3, len(places))):
                new = changed(json.loads(lines[i]), at, draw.choice([x for x in edits(part) if str(x) != str(part)]), seal=False)
                if new is None: continue
                path.write_text("\n".join([*lines[:i], json.dumps(new), *lines[i + 1:]]) + "\n")
                with pytest.raises(ContractError, match="must have the digest"): verify(folder)
                if not refused(folder, changed(document, ("evidence", arm, "sha256"), file_digest(path))): kept.add(name[-1])
        path.write_text("\n".join(lines) + "\n")
    assert kept == COLUMNS.get(kind, set())


def test_what_is_missing_or_elsewhere_is_refused(tmp_path):
    folder = KINDS["runs"]().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    for file in ("../r/baseline.jsonl", "nothing.jsonl", "", ".hidden"):
        new = changed(document, ("evidence", "baseline", "file"), file)
        assert refused(folder, new)
    (folder / "baseline.jsonl").unlink()
    with pytest.raises(ContractError): verify(folder)
    with pytest.raises(ContractError): verify(tmp_path / "nowhere")


def test_another_version_and_another_environment_are_not_covered_and_said_to_be(tmp_path):
    "Finding 21."
    folder = KINDS["losses"]().save(tmp_path / "r")
    document = json.loads((folder / "report.json").read_text())
    document["environment"]["host"] = "elsewhere"
    (folder / "report.json").write_text(canonical_text(document), encoding="utf-8")
    assert any("environment" in line for line in verify(folder).not_covered)
    document["version"] = "0.0.9"
    document["signature"] = document["signature"].replace(invar_nb.__version__, "0.0.9")
    document["digest"] = content_digest(document)
    (folder / "report.json").write_text(canonical_text(document), encoding="utf-8")
    for name in ("report.md", "report.html"): (folder / name).unlink()      # they name the version
    assert any("invar_nb 0.0.9 wrote it" in line for line in verify(folder).not_covered)
    document["headline"] += " "
    document["digest"] = content_digest(document)
    (folder / "report.json").write_text(canonical_text(document), encoding="utf-8")
    with pytest.raises(ContractError, match="Verify it with invar_nb 0.0.9"): verify(folder)


def test_a_metric_that_is_not_installed_is_listed(tmp_path):
    mine = register_metric(Metric(name="half_loss", unit="nats", margin=.01, totals=lambda arm: (arm.log_loss * .5, arm.tokens * 0 + 1.0)))
    try:
        folder = build_report(compare(losses(n=40), metrics=["perplexity", "half_loss"])).save(tmp_path / "r")
        assert not any("half_loss" in line for line in verify(folder).not_covered)
    finally: METRICS._found.pop(mine.name)
    found = verify(folder)
    assert any("half_loss" in line for line in found.not_covered)
    document = json.loads((folder / "report.json").read_text())
    assert refused(folder, changed(document, ("primary_metric", "delta"), .5))
    edited = json.loads(json.dumps(document))
    next(r for r in edited["comparison"] if r["metric"] == "half_loss")["delta"] = 9.0
    edited["digest"] = content_digest(edited)
    assert isinstance(refused(folder, edited), bool)      # cannot be known here


def test_hostile_numbers_are_refused_not_crashed(tmp_path):
    "Finding 20: integers beyond float64 in report.json."
    folder = KINDS["losses"]().save(tmp_path / "r")
    text = (folder / "report.json").read_text()
    for old, new in (('"code": 0', '"code": 1' + "0" * 400), ('"level": 0.95', '"level": NaN'), ('"n": 40', '"n": 1e999')):
        if old not in text: continue
        (folder / "report.json").write_text(text.replace(old, new, 1))
        with pytest.raises(ContractError): verify(folder)


def test_saving_keeps_an_older_report_until_forced(tmp_path):
    one, two = build_report(compare(losses(.03, n=40))), build_report(compare(losses(.06, n=40)))
    folder = one.save(tmp_path / "r")
    with pytest.raises(ContractError): two.save(folder)
    assert verify(folder).report.headline == one.headline
    two.save(folder, force=True)
    assert verify(folder).report.headline == two.headline
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ContractError): one.save(folder, force=True)
    assert (folder / "notes.txt").exists() and pair is not None


def test_structures_that_nobody_writes_are_refused_and_never_a_crash(saved):
    "Inputs of the report are free in the schema: another shape crashed, or was told as misuse (exit 2)."
    folder, document = saved
    from invar_nb.foundations.numbers import UsageError
    first = next(iter(document["evidence"]))
    spots = [("evidence",), ("evidence", first), ("evidence", first, "file"), ("evidence", first, "sha256"), ("settings",)]
    spots += [("settings", name) for name in document["settings"]]
    kept = (folder / "report.json").read_bytes()
    try:
        for at in spots:
            for new in ({}, [], [1], 7, "zz", {"a": 1}):
                (folder / "report.json").write_text(canonical_text(changed(document, at, new)), encoding="utf-8")
                try: verify(folder)
                except ContractError as error: assert not isinstance(error, UsageError), (at, new)
    finally: (folder / "report.json").write_bytes(kept)
