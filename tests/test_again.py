"The second run: where it writes, and that it scores nothing which a run before it scored."

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from test_shell import shell

from invar_nb.files.losses import read_losses, write_losses
from invar_nb.models.batches import Scorer
from invar_nb.models.together import PairScorer
from invar_nb.shell.arms import earlier_arms
from invar_nb.shell.demo import demo_model, quantised_copy

HOW = ("--text", "t.jsonl", "--max-length", 64, "--device", "cpu")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    "Two shipped models, two copies, a text of 24 documents and questions."
    here = tmp_path_factory.mktemp("models")
    for name in ("base", "tuned"):
        (here / name).symlink_to(demo_model(name))
    quantised_copy(demo_model("base"), here / "int8", bits=8)
    words = ("first", "second", "third", "last")
    lines = [
        f"Document {i}. "
        + " ".join(f"The {w} number {i * k} is read by line." for k, w in enumerate(words))
        for i in range(24)
    ]
    (here / "t.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    rows = [
        {
            "id": f"q{i}",
            "prompt": f"The file number {i} is ",
            "candidates": ["read.", "not there."],
            "label": i % 2,
        }
        for i in range(20)
    ]
    (here / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return here


@pytest.fixture
def scored(models, tmp_path, monkeypatch):
    "A folder with the models; the windows that a forward pass was run for since the last look."
    for path in models.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    seen = []
    for kind in (Scorer, PairScorer):

        def score(self, batch, usual=kind.score):
            seen.extend(self.windows[i].window_id for i in batch)
            return usual(self, batch)

        monkeypatch.setattr(kind, "score", score)

    def look():
        some = [*seen]
        seen.clear()
        return some

    return look


def compare(*arguments, code=(0, 1), how=HOW):
    got, out, err = shell("compare", *arguments, *how)
    assert got in code, err
    return err


def alike(x, y):
    "Whether two reports say the same, but for the last digits of a scoring: the order of sums in a pass may differ on some processors."
    if isinstance(x, dict):
        return (
            isinstance(y, dict)
            and x.keys() == y.keys()
            and all(
                alike(x[k], y[k])
                for k in x
                if k not in ("sha256", "digest", "p_value", "adjusted", "p")
            )
        )
    if isinstance(x, list):
        return isinstance(y, list) and len(x) == len(y) and all(map(alike, x, y))
    if isinstance(x, float) or isinstance(y, float):
        return x == pytest.approx(y, rel=1e-3, abs=1e-5)
    return (
        re.sub(r"[-+\d.]+(e-\d+)?", "#", x) == re.sub(r"[-+\d.]+(e-\d+)?", "#", y)
        if isinstance(x, str) and isinstance(y, str)
        else x == y
    )


def document(folder):
    return json.loads(Path(folder, "report.json").read_text())


def arms(folder):
    return {p.stem: read_losses(p) for p in Path(folder).glob("*.parquet")}


def test_the_second_run_goes_to_a_numbered_folder_and_an_explicit_one_is_refused(scored):
    for i, name in enumerate(("invar-nb-report", "invar-nb-report-2", "invar-nb-report-3")):
        code, out, err = shell("compare", "base", "tuned", *HOW)
        assert code in (0, 1) and f"Report: {name}/report.html" in out, err
        assert bool(scored()) == (i == 0)
    for name in ("invar-nb-report", "invar-nb-report-2"):
        code, _, err = shell("compare", "base", "tuned", *HOW, "--out", name)
        assert (
            code == 2
            and "--out must be a new or an empty folder" in err
            and "numbered" in err
            and "--force to replace it; what it holds of the same model, text and settings is not scored again"
            in err
        )
    Path("invar-nb-report-4").mkdir()
    compare("base", "tuned", "--force")
    assert (
        not os.listdir("invar-nb-report-4")
        and not scored()
        and not Path("invar-nb-report-5").exists()
    )
    assert (
        "invar-nb-report-4" in shell("compare", "base", "tuned", *HOW)[1]
        and shell("verify", "invar-nb-report-4")[0] == 0
    )
    for kind in ("answers", "plan"):
        given = (
            ("evaluate", "invar-nb-report/baseline.parquet")
            if kind == "answers"
            else ("plan", "base", "tuned", *HOW)
        )
        names = [
            re.search(r"[\w-]+(?=/(report\.html|plan\.json))", shell(*given)[1])[0]
            for _ in range(2)
        ]
        assert names[1] == f"{names[0]}-2"


@pytest.mark.parametrize(
    "more",
    [
        ("--margin", "1%"),
        ("--level", "0.9"),
        ("--metric", "perplexity"),
        ("--size", "candidate=8"),
        ("--units", "windows"),
        ("--by", "position"),
    ],
)
def test_what_moves_no_loss_scores_nothing_again_and_the_report_is_that_of_a_fresh_run(
    scored, monkeypatch, more
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    more = tuple(word.replace("candidate=8", "int8=8") for word in more)
    other = ("int8",) if "--size" not in more else ("int8", "tuned", "--size", "tuned=16")
    compare("base", "int8", "--out", "one")
    n = len(arms("one")["baseline"])
    if len(other) > 1:
        compare("base", "tuned", "--out", "two")
    assert scored()
    err = compare("base", *other, *more, "--out", "again")
    assert not scored() and f"baseline: {n} windows reused from one/" in err.replace(
        " (1 of 3)", ""
    ), err
    Path("alone").mkdir()
    compare("base", *other, *more, "--out", "alone/fresh")
    assert scored() and alike(document("alone/fresh"), document("again"))
    assert shell("verify", "again")[0] == 0


def test_a_report_that_somebody_sent_is_not_taken_for_a_scoring(scored):
    "Invented losses with the provenance of true ones, in a report that verifies."
    compare("base", "tuned", "--out", "own")
    true, n = arms("own"), len({*scored()})
    os.mkdir("sent")
    forged = true["candidate"].changed(log_loss=true["baseline"].log_loss - 0.1)
    (
        write_losses(true["baseline"], "sent/base.parquet"),
        write_losses(forged, "sent/new.parquet"),
    )
    assert (
        shell("compare", "sent/base.parquet", "sent/new.parquet", "--out", "sent/report")[0]
        == 0
    )
    err = compare("base", "tuned", "--out", "sent/mine")
    assert (
        len({*scored()}) == n
        and "candidate: 96 windows reused" not in err
        and "candidate: nothing of sent/report/ (not written here, or changed since) can be kept"
        in err
    ), err
    assert np.allclose(
        arms("sent/mine")["candidate"].log_loss, true["candidate"].log_loss, atol=1e-4
    )


def test_a_further_candidate_is_the_only_one_that_is_scored(scored):
    compare("base", "tuned")
    n, err = len({*scored()}), compare("base", "tuned", "int8", "--force")
    assert (
        len(scored()) == n
        and f"baseline (1 of 3): {n} windows reused from invar-nb-report/" in err
        and "int8 (3 of 3): scoring" in err
    )
    err = compare("base", "int8", "tuned")
    assert not scored() and err.count("reused from invar-nb-report/") == 3
    shell("score", "int8", *HOW, "--out", "int8.parquet")
    assert not scored()


@pytest.mark.parametrize(
    "more",
    [("--batch-tokens", 128), ("--stride", 16), ("--max-length", 48), ("--dtype", "bfloat16")],
)
def test_another_setting_is_scored(scored, more):
    compare("base", "tuned")
    n = len({*scored()})
    err = shell("compare", "base", "tuned", *HOW, *more)[2]
    assert len({*scored()}) >= min(n, 24) and "reused" not in err, err


def test_a_changed_byte_of_weights_text_or_evidence_is_scored(scored):
    compare("base", "tuned")
    n = len(scored()) // 2
    weights = Path("edited")
    shutil.copytree(os.path.realpath("tuned"), weights)
    file = weights / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)
    err = compare("base", "edited")
    assert len(scored()) == n and err.count("reused") == 1
    shutil.copy("t.jsonl", "u.jsonl")
    text = Path("u.jsonl").read_text()
    Path("u.jsonl").write_text(text[:-5] + "!" + text[-4:])
    err = compare("base", "tuned", how=("--text", "u.jsonl", *HOW[2:]))
    assert len(scored()) >= 2 * n and "reused" not in err
    for folder in Path().glob("invar-nb-report*"):
        for path in folder.glob("*.parquet"):
            path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
    err = compare("base", "tuned")
    assert len(scored()) == 2 * n and "reused" not in err


@pytest.mark.processor
def test_windows_nest_and_only_the_others_are_scored(scored):
    "The losses are those of a fresh run up to rounding: passes have other shapes, and on some processors another order of sums."
    for size in (64, 512):
        at = lambda name, size=size: ("--batch-tokens", size, "--out", f"{name}{size}")
        compare("base", "tuned", "--windows", 20, *at("few"))
        few = {*scored()}
        err = compare("base", "tuned", "--windows", 40, *at("more"))
        assert (
            len(few) == 20
            and len(now := scored()) == 40
            and not few & {*now}
            and err.count(f"20 of 40 windows reused from few{size}/") == 2
        )
        compare("base", "tuned", "--windows", 20, *at("less"))
        assert not scored()
        Path(f"alone{size}").mkdir()
        compare("base", "tuned", "--windows", 40, *at(f"alone{size}/fresh"))
        scored()
        for stem, fresh in arms(f"alone{size}/fresh{size}").items():
            merged = arms(f"more{size}")[stem]
            assert (
                merged.provenance["windows_known"] == 20
                and merged.data_id == fresh.data_id
                and merged.window_ids == fresh.window_ids
            )
            np.testing.assert_allclose(merged.log_loss, fresh.log_loss, rtol=1e-5)
        assert shell("verify", f"more{size}")[0] == 0


def test_both_models_side_by_side_are_scored_again_only_where_the_columns_are_missing(
    scored, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    compare("base", "tuned", "--out", "alone")
    n = len(scored()) // 2
    err = compare("base", "tuned", "--divergence", "--out", "both")
    assert len(scored()) == n and "reused" not in err
    err = compare("base", "tuned", "--divergence", "--margin", "1%", "--out", "again")
    assert not scored() and f"both: {n} windows reused from both/" in err
    compare("base", "tuned", "int8", "--divergence", "--out", "three")
    assert len(scored()) == n
    Path("new").mkdir()
    compare("base", "tuned", "--divergence", "--margin", "1%", "--out", "new/fresh")
    assert scored() and alike(document("new/fresh"), document("again"))
    shutil.rmtree("alone")
    err = compare(
        "base", "tuned", "--out", "single"
    )  # of tiles for two models the last digits are others
    assert len(scored()) == 2 * n


def test_answers_slices_whole_documents_and_looks_are_taken_again(scored):
    for more in (
        ("--questions", "q.jsonl"),
        ("--by", "frequency"),
        ("--per-byte",),
        ("--until-decided",),
        ("--control",),
    ):
        compare("base", "tuned", *more, "--out", f"one{more[0]}")
        scored()
        err = compare("base", "tuned", *more, "--level", "0.9", "--out", f"two{more[0]}")
        assert not scored() and "reused from one" in err, (more, err)
        assert shell("verify", f"two{more[0]}")[0] == 0
    for path in (path for path in Path().glob("*--questions/*.jsonl")):
        path.write_bytes(path.read_bytes() + b"\n")
    err = compare("base", "tuned", "--questions", "q.jsonl", "--out", "edited")
    assert (
        len(scored()) == 80 and "baseline: answering" in err and "examples reused" not in err
    )


def test_an_offered_command_takes_the_pilot(scored):
    code, out, err = shell(
        "plan", "base", "tuned", *HOW, "--pilot", 40, "--json", "--margin", "3%"
    )
    d, _ = json.loads(out), scored()
    code, _, err = shell(*shlex.split(d["next"])[1:])
    assert code in (0, 1) and "reused from invar-nb-plan/" in err, err


def test_a_run_that_was_interrupted_resumes_though_a_smaller_one_was_saved_meanwhile(
    scored, monkeypatch
):
    "The journal is of all windows, and the other report knows some of them."
    usual, passes = Scorer.score, []

    def stop(self, batch):
        if len(passes) == 1:
            raise KeyboardInterrupt
        passes.append(batch)
        return usual(self, batch)

    at = ("--windows", 40, "--batch-tokens", 64, "--out", "r")
    with monkeypatch.context() as m:
        m.setattr(Scorer, "score", stop)
        compare("base", "tuned", *at, code=(130,))
    scored()
    compare("base", "tuned", "--windows", 10, "--batch-tokens", 64, "--out", "small")
    first = scored()
    err = compare("base", "tuned", *at)
    assert (
        "what the last run scored is kept" in err
        and err.count("reused from small/") == 1
        and len(scored()) < 80
        and len(first) == 20
        and not [*Path().glob(".*.journal")]
    )


def test_force_clears_a_journal_of_other_inputs_and_keeps_one_of_the_same(scored, monkeypatch):
    usual = Scorer.score

    def stopped(*more):
        passes = []

        def stop(self, batch):
            if len(passes) == 1:
                raise KeyboardInterrupt
            passes.append(batch)
            return usual(self, batch)

        with monkeypatch.context() as m:
            m.setattr(Scorer, "score", stop)
            compare("base", "tuned", *more, code=(130,))

    at = ("--batch-tokens", 64, "--out", "r")
    stopped(*at)
    other = (*at, "--windows", 30)
    assert (
        "Delete .r.baseline.journal to start again"
        in compare("base", "tuned", *other, code=(3,))
        and Path(".r.baseline.journal").exists()
    )
    scored()
    err = compare("base", "tuned", *other, "--force")
    assert (
        ".r.baseline.journal is of other inputs and is deleted" in err
        and len(scored()) == 60
        and not [*Path().glob(".*.journal*")]
    )
    stopped(*other, "--force", "--dtype", "bfloat16")
    err = compare("base", "tuned", *other, "--force", "--dtype", "bfloat16")
    assert (
        "what the last run scored is kept" in err
        and "deleted" not in err
        and len(scored()) < 61
    )


def test_an_unedited_model_is_identical_before_anything_is_scored(scored):
    """In every profile, on a text that is too short for it; with another config it is scored, and so is a control.
    The report of it is what the next step of a pipeline looks for: there was none, and `export` ended with exit code 2."""
    shutil.copytree("base", "copy")
    said = "Identical: the weights, config and tokenizer of copy are those of base. Nothing was scored."
    for i, more in enumerate(
        (
            (),
            ("--profile", "release"),
            ("--profile", "ci", "--json"),
            ("--until-decided",),
            ("--divergence",),
        )
    ):
        code, out, err = shell("compare", "base", "copy", *HOW, *more, "--out", f"same{i}")
        assert (
            code == 0
            and said in out
            and not scored()
            and Path(f"same{i}", "report.json").exists()
        ), err
    d = json.loads(Path("same0/report.json").read_text())
    assert (d["claim"], d["exit"], d["rows"], d["pairs"]) == (
        "equivalent",
        {"code": 0, "rule": "not_worse", "because": "the weights are identical."},
        [],
        [],
    ) and d["headline"] == said
    digests = {arm["provenance"]["weights_digest"] for arm in d["arms"].values()}
    assert (
        len(digests) == 1
        and digests.pop().startswith("sha256:")
        and {arm["kind"] for arm in d["arms"].values()} == {"weights"}
    )
    code, out, _ = shell("verify", "same0")
    assert (
        code == 0
        and "nothing was scored, and the report rests on the digests alone"
        in " ".join(out.split())
    ), out
    code, out, _ = shell("export", "same0")
    assert (
        code == 0 and 'tests="1" failures="0" skipped="0"' in out and 'name="gate"' in out
    ), out
    assert "the baseline's report" in " ".join(shell("card", "same0")[2].split())
    assert (
        json.loads(Path("same0/badge.json").read_text())["message"] == "identical"
        and said.replace("_", "\\_") in Path("same0/summary.md").read_text()
        and "None" not in Path("same0/report.html").read_text()
    )
    other = json.loads(Path("same0/candidate.json").read_text())
    Path("same0/candidate.json").write_text(
        json.dumps(other | {"weights_digest": "sha256:" + 64 * "0"})
    )
    assert shell("verify", "same0")[0] == 3
    code, _, err = shell("compare", "base", "copy", "--text", "nowhere.jsonl")
    assert code == 2 and "nowhere.jsonl" in err
    for arms, more in ((("copy",), ("--control",)), (("copy", "tuned"), ())):
        compare("base", *arms, *more, "--out", "r", "--force")
        assert scored()
    config = Path("copy/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 0.01}))
    assert (
        "Nothing was scored" not in shell("compare", "base", "copy", *HOW, "--out", "other")[1]
        and scored()
    )


def test_only_sound_reports_of_ours_are_looked_at(scored):
    for name, text in (
        ("a", "{"),
        ("b", "[]"),
        ("c", '{"schema": 1}'),
        (
            "d",
            '{"schema": "invar_nb/report/3", "arms": {"x": {"file": "../x", "sha256": "0"}}}',
        ),
        ("e", "\xff"),
    ):
        Path(name).mkdir()
        Path(name, "report.json").write_text(text, encoding="latin-1")
        Path(name, "plan.json").write_text("{}")
    assert earlier_arms(Path("new")) == [] == earlier_arms(Path("nowhere/new"))


def test_an_edited_report_is_no_source_of_losses_and_an_odd_one_stops_nothing(scored):
    "Evidence of somebody else with a sha256 that fits it, in a report whose digest does not; a pipe, deep JSON, fields of other types."
    from invar_nb import write_losses
    from invar_nb.foundations.store import file_digest

    compare("base", "tuned", "--out", "theirs")
    n = len(scored())
    sound = read_losses("theirs/candidate.parquet")
    write_losses(sound.changed(log_loss=sound.log_loss / 2), "theirs/candidate.parquet")
    d = json.loads(Path("theirs/report.json").read_text())
    d["arms"]["candidate"]["sha256"] = file_digest(Path("theirs/candidate.parquet"))
    Path("theirs/report.json").write_text(json.dumps(d))
    for name, text in (
        ("deep", "[" * 100_000),
        (
            "null",
            json.dumps(d | {"arms": {"x": d["arms"]["candidate"] | {"provenance": None}}}),
        ),
        ("number", json.dumps(d | {"arms": {"x": d["arms"]["candidate"] | {"n": "x"}}})),
    ):
        Path(name).mkdir()
        (Path(name) / "report.json").write_text(text)
    Path("pipe").mkdir()
    os.mkfifo("pipe/report.json")
    err = compare("base", "tuned", "--out", "mine")
    assert len(scored()) == n and "reused" not in err and "defect" not in err, err
