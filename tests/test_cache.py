"The cache of losses: a second run scores nothing again, and takes only what is the same."

import json
import os
import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from test_shell import shell

from invar_nb.files.cache import LossCache, cache_folder
from invar_nb.files.losses import read_losses, write_losses
from invar_nb.models.batches import Scorer
from invar_nb.models.load import load_model
from invar_nb.models.score import score_plan
from invar_nb.models.text import read_documents
from invar_nb.models.text_plan import plan_text
from invar_nb.models.together import PairScorer
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

        def score(self, batch, *more, usual=kind.score):
            seen.extend(self.windows[i].window_id for i in batch)
            return usual(self, batch, *more)

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
            and "or give --force to replace it" in err
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
    assert not scored() and f"baseline: {n} windows reused from the cache" in err.replace(
        " (1 of 3)", ""
    ), err
    compare("base", *other, *more, "--out", "fresh", "--no-cache")
    assert scored() and alike(document("fresh"), document("again"))
    assert shell("verify", "again")[0] == 0


def test_a_report_that_somebody_sent_is_no_source_of_losses(scored):
    "Invented losses with the provenance of true ones, in a report that verifies."
    compare("base", "tuned", "--out", "own", "--no-cache")
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
    for out in ("sent/mine", "sent/report"):
        err = compare("base", "tuned", "--out", out, "--force", "--no-cache")
        assert len({*scored()}) == n and "reused" not in err, err
        assert np.allclose(
            arms(out)["candidate"].log_loss, true["candidate"].log_loss, atol=1e-4
        )
    assert not cache_folder().exists()  # what another account sends has no way into it


def test_a_further_candidate_is_the_only_one_that_is_scored(scored):
    compare("base", "tuned")
    n, err = len({*scored()}), compare("base", "tuned", "int8", "--force")
    assert (
        len(scored()) == n
        and f"baseline (1 of 3): {n} windows reused from the cache" in err
        and "int8 (3 of 3): scoring" in err
    )
    err = compare("base", "int8", "tuned")
    assert not scored() and err.count("reused from the cache") == 3
    shell("score", "int8", *HOW, "--out", "int8.parquet")
    assert not scored()
    shutil.rmtree("invar-nb-report")
    compare("base", "tuned", "int8")  # no report is needed for it
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


def cached():
    "The files of the cache."
    return sorted(cache_folder().glob("*.parquet"))


def test_weights_that_changed_in_place_are_scored(scored):
    "One bit, with the size and the time of the file as they were, in the same process."
    weights = Path("edited")
    shutil.copytree(os.path.realpath("tuned"), weights)
    compare("base", "edited")
    n = len(scored()) // 2
    file = weights / "model.safetensors"
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    with open(file, "r+b") as f:
        f.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    err = compare("base", "edited")
    assert len(scored()) == n and err.count("reused") == 1, err


def test_a_changed_config_is_scored(scored):
    shutil.copytree(os.path.realpath("tuned"), "edited")
    compare("base", "edited")
    n = len(scored()) // 2
    config = Path("edited/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 0.01}))
    err = compare("base", "edited")
    assert len(scored()) == n and err.count("reused") == 1, err


@pytest.mark.parametrize("change", ["last letter", "order", "one document more"])
def test_a_changed_text_is_scored(scored, change):
    compare("base", "tuned")
    n = len(scored())
    lines = Path("t.jsonl").read_text().splitlines(keepends=True)
    if change == "last letter":
        lines[-1] = lines[-1].replace("line.", "line!")
    elif change == "order":
        lines = lines[::-1]
    else:
        lines.append('{"text": "One more document."}\n')
    Path("u.jsonl").write_text("".join(lines))
    err = compare("base", "tuned", how=("--text", "u.jsonl", *HOW[2:]))
    assert len(scored()) >= n and "reused" not in err


def test_a_text_under_another_name_is_the_same_text(scored):
    compare("base", "tuned")
    assert scored()
    shutil.copy("t.jsonl", "u.jsonl")
    compare("base", "tuned", how=("--text", "u.jsonl", *HOW[2:]))
    assert not scored() and document("invar-nb-report-2")["arms"]["baseline"]["provenance"]


@pytest.mark.parametrize("change", ["a bit", "cut off", "empty", "not Parquet", "another's"])
def test_a_damaged_file_is_scored_anew_with_a_note(scored, change):
    compare("base", "tuned")
    n = len(scored()) // 2
    first, second = cached()
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1  # of a loss
    wrong = {
        "a bit": data,
        "cut off": data[:-9],
        "empty": b"",
        "not Parquet": b"no losses",
        "another's": second.read_bytes(),
    }
    first.write_bytes(wrong[change])
    err = compare("base", "tuned")
    assert len(scored()) == n and err.count("reused from the cache") == 1, err
    assert f"a file of the cache is damaged and was removed: {first}" in err
    err = compare("base", "tuned")
    assert not scored() and "damaged" not in err and cached() == [first, second]


def test_no_cache_neither_reads_nor_writes(scored):
    compare("base", "tuned", "--no-cache")
    assert scored() and not cache_folder().exists()
    compare("base", "tuned")
    assert scored() and len(cached()) == 2
    before = [path.stat().st_mtime_ns for path in cached()]
    err = compare("base", "tuned", "--no-cache")
    assert scored() and "reused" not in err
    assert [path.stat().st_mtime_ns for path in cached()] == before
    Path("s.toml").write_text("[scoring]\nno_cache = true\n")
    assert "reused" not in compare("base", "tuned", "--study", "s.toml")
    shell("score", "base", *HOW, "--out", "a.jsonl", "--no-cache")
    assert scored()


def test_python_leaves_the_cache_alone(scored):
    from invar_nb import compare_models

    for _ in range(2):
        compare_models("base", "tuned", text="t.jsonl", max_length=64, device="cpu")
        assert scored() and not cache_folder().exists()


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(scored):
    compare("base", "tuned")
    assert scored() and cache_folder().stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o707, 0o777):
        cache_folder().chmod(mode)
        err = compare("base", "tuned")
        assert scored() and "the cache is not used: others can write into" in err
    cache_folder().chmod(0o755)  # read they may
    compare("base", "tuned")
    assert not scored()


def test_no_folder_for_a_cache_stops_nothing(scored, monkeypatch):
    Path("taken").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("taken").resolve()))
    err = compare("base", "tuned")
    assert scored() and "losses are not kept: there is no folder for the cache" in err
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not valid, says the convention
    monkeypatch.setenv("HOME", str(Path("home").resolve()))
    compare("base", "tuned")
    assert (
        cache_folder() == Path("home/.cache/invar-nb").resolve()
        and not Path("relative").exists()
    )


def test_a_cache_that_cannot_be_written_stops_nothing(scored, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("invar_nb.files.cache.write_losses", full)
    err = compare("base", "tuned")
    assert "losses are not kept in the cache" in err and "No space left" in err
    assert shell("verify", "invar-nb-report")[0] == 0


def test_what_is_used_least_goes_first(scored, monkeypatch):
    def use(name):
        shell("score", name, *HOW, "--out", "x.jsonl", "--force")
        return bool(scored())

    assert use("base") and use("tuned")
    room = sum(path.stat().st_size for path in cached()) + 100
    small = partial(LossCache, folder=cache_folder(), most_bytes=room)
    monkeypatch.setattr("invar_nb.shell.open_models.open_cache", lambda note: small(note=note))
    assert not use("base") and use("int8") and len(cached()) == 2
    assert not use("base") and use("tuned")


def test_a_name_of_a_model_or_text_is_not_kept(scored):
    compare("base", "tuned")
    for path in cached():
        losses = read_losses(path)
        assert losses.model == "" and losses.document_ids is None
        assert {*losses.provenance} == {"key"}, losses.provenance


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
            and err.count("20 of 40 windows reused from the cache") == 2
        )
        compare("base", "tuned", "--windows", 20, *at("less"))
        assert not scored()
        compare("base", "tuned", "--windows", 40, *at("fresh"), "--no-cache")
        scored()
        for stem, fresh in arms(f"fresh{size}").items():
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
    assert len(scored()) == n and "reused" not in err  # the last digits are others
    err = compare("base", "tuned", "--divergence", "--margin", "1%", "--out", "again")
    assert not scored() and f"both: {n} windows reused from the cache" in err
    compare("base", "tuned", "int8", "--divergence", "--out", "three")
    assert len(scored()) == n
    compare("base", "tuned", "--divergence", "--margin", "1%", "--out", "fresh", "--no-cache")
    assert scored() and alike(document("fresh"), document("again"))


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
        assert not scored() and "reused from the cache" in err, (more, err)
        assert shell("verify", f"two{more[0]}")[0] == 0
    compare(
        "base", "tuned", "--questions", "q.jsonl", "--out", "other", "--set", "normalize=bytes"
    )
    assert not scored()  # the losses of the candidates are the same
    Path("r.jsonl").write_text(Path("q.jsonl").read_text().replace("not there", "not here"))
    compare("base", "tuned", "--questions", "r.jsonl", "--out", "changed")
    assert len(scored()) == 80


def test_a_pilot_serves_a_run_of_the_whole_text(scored):
    shell("plan", "base", "int8", *HOW, "--pilot", 12, "--margin", "3%")  # of 24 documents
    n = len(scored()) // 2
    err = compare("base", "int8", "--out", "planned")
    assert 0 < n < 96 and f"candidate: {n} of 96 windows reused from the cache" in err, err
    assert len(scored()) == 2 * (96 - n)


def test_parts_of_a_text_serve_the_whole_of_it(scored, tmp_path):
    "As the rounds of looks do, each in a file of its own; of two that have a window, either."
    loaded = load_model(os.path.realpath("base"), device="cpu")
    text = read_documents(["t.jsonl"])
    whole = plan_text(loaded, text, max_length=64, stride=32)
    fresh, n = score_plan(loaded, whole, batch_tokens=64), len(whole.windows)
    assert len(scored()) == n
    notes, seen = [], []
    cache = LossCache(folder=tmp_path, note=notes.append)
    how = {"batch_tokens": 64, "cache": cache, "on_known": seen.append}
    for places in (range(0, n, 3), range(1, n, 3), range(0, n, 2)):
        score_plan(loaded, whole.take(places), **how)
    assert len(scored()) == len({*range(0, n, 3), *range(1, n, 3), *range(0, n, 2)})
    rest = [i for i in range(n) if i % 3 == 2 and i % 2]
    again = score_plan(loaded, whole, **how)
    assert sorted(scored()) == sorted(whole.window_ids[i] for i in rest)
    assert seen[-1] == n - len(rest) == again.provenance["windows_known"]
    np.testing.assert_allclose(again.log_loss, fresh.log_loss, rtol=1e-5)
    last = score_plan(loaded, whole, **how)
    assert last.log_loss.tobytes() == again.log_loss.tobytes() and not scored() and not notes
    assert last.provenance == again.provenance


def test_a_journal_of_all_windows_is_finished_although_some_are_known(scored, tmp_path):
    loaded = load_model(os.path.realpath("base"), device="cpu")
    whole = plan_text(loaded, read_documents(["t.jsonl"]), max_length=64, stride=32)
    fresh = score_plan(loaded, whole, batch_tokens=64)
    cache = LossCache(folder=tmp_path / "cache", note=print)
    cache.folder.mkdir()
    how = {"batch_tokens": 64, "cache": cache, "journal": tmp_path / "j"}

    def stop(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_plan(loaded, whole, progress=stop, **how)
    before = len(scored())
    score_plan(loaded, whole.take(range(10)), batch_tokens=64, cache=cache)
    scored()
    again = score_plan(loaded, whole, **how)
    assert 0 < len(scored()) < len(whole.windows) < before
    assert again.log_loss.tobytes() == fresh.log_loss.tobytes()
    assert "windows_known" not in again.provenance


def test_slices_by_class_of_token_are_of_one_choice_of_windows(scored):
    compare("base", "tuned", "--out", "plain")
    n = len(scored())
    err = compare("base", "tuned", "--by", "frequency", "--out", "classes")
    assert len(scored()) == n and "reused" not in err  # sums of classes were not kept
    for more in (("--by", "frequency"), ()):
        compare("base", "tuned", *more, "--out", f"again{len(more)}")
        assert not scored()
    compare("base", "tuned", "--by", "frequency", "--windows", 40, "--out", "fewer")
    assert len(scored()) == 80  # a token is rare among those that are scored


def test_an_offered_command_takes_the_pilot(scored):
    code, out, err = shell(
        "plan", "base", "tuned", *HOW, "--pilot", 40, "--json", "--margin", "3%"
    )
    d, _ = json.loads(out), scored()
    code, _, err = shell(*shlex.split(d["next"])[1:])
    assert code in (0, 1) and "windows reused from the cache" in err, err


def interrupt(monkeypatch, *options):
    "Compare with these options, and press Ctrl-C in the second pass through the model."
    usual, passes = Scorer.score, []

    def stop(self, batch, *more):
        if len(passes) == 1:
            raise KeyboardInterrupt
        passes.append(batch)
        return usual(self, batch, *more)

    with monkeypatch.context() as m:
        m.setattr(Scorer, "score", stop)
        compare("base", "tuned", *options, code=(130,))


def test_a_run_that_was_interrupted_resumes_though_a_smaller_one_was_saved_meanwhile(
    scored, monkeypatch
):
    "The journal is of all windows, and the other report knows some of them."
    at = ("--windows", 40, "--batch-tokens", 64, "--out", "r")
    interrupt(monkeypatch, *at)
    scored()
    compare("base", "tuned", "--windows", 10, "--batch-tokens", 64, "--out", "small")
    first = scored()
    err = compare("base", "tuned", *at)
    assert (
        "what the last run scored is kept" in err
        and err.count("reused from the cache") == 1
        and len(scored()) < 80
        and len(first) == 20
        and not [*Path().glob(".*.journal")]
    )


def test_force_clears_a_journal_of_other_inputs_and_keeps_one_of_the_same(scored, monkeypatch):
    at = ("--batch-tokens", 64, "--out", "r")
    interrupt(monkeypatch, *at)
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
    interrupt(monkeypatch, *other, "--force", "--dtype", "bfloat16")
    err = compare("base", "tuned", *other, "--force", "--dtype", "bfloat16")
    assert (
        "what the last run scored is kept" in err
        and "deleted" not in err
        and len(scored()) < 61
    )


def test_an_interrupted_run_keeps_its_default_folder_and_another_takes_the_next(
    scored, monkeypatch
):
    "Resumed later: the other run has neither deleted its journal nor been refused for it."
    at = ("--batch-tokens", 64)
    interrupt(monkeypatch, *at)
    err = compare("base", "tuned", *at, "--windows", 30)
    assert "invar-nb-report is kept for the run that was interrupted there" in err
    assert Path("invar-nb-report-2/report.json").is_file()
    assert Path(".invar-nb-report.baseline.journal").is_file()
    assert not Path("invar-nb-report").exists()
    compare("base", "tuned", *at)
    assert Path("invar-nb-report/report.json").is_file()
    assert not [*Path().glob(".*.journal*")]


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
    end = d["exit"]["code"], d["exit"]["rule"], d["exit"]["because"]
    assert (d["claim"], end, d["rows"], d["pairs"]) == (
        "equivalent",
        (0, "not_worse", "the weights are identical."),
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
    rules = ("--margin", "1%", "--require", "not-worse", "--fail-inconclusive")
    code, out, err = shell("compare", "base", "copy", *HOW, *rules, "--out", "ruled")
    with_rules = json.loads(Path("ruled/report.json").read_text())
    assert code == 0 and with_rules["rules"] == {
        "fail_inconclusive": True,
        "margin": {"perplexity": 0.01},
        "required": "not-worse",
    }, (err, with_rules["rules"])
    assert "Exit code 0: the weights are identical." in Path("ruled/summary.md").read_text()
    assert shell("verify", "ruled")[0] == 0
    released = json.loads(Path("same1/report.json").read_text())
    assert released["rules"] == {"profile": "release"}
    assert "release" in Path("same1/report.html").read_text()
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
