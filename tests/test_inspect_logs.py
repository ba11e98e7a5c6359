"""Logs of inspect_ai: files of the real tool (tests/data/inspect, made by make_inspect.py), both formats, and every refusal."""

import importlib.util
import io
import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import main
from real_tools import python_with

from invar_nb.arms.pair import pair
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.readers.inspect_logs import is_inspect_log, read_inspect_log

DATA = Path(__file__).parent / "data" / "inspect"
MODELS, ROOT = (
    Path(__file__).parent.parent / "invar_nb" / "demo_models",
    Path(__file__).parent.parent,
)
ZSTD = sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None
NAMES = {
    "choices": ("choice", "letters", "several/long", "several/first"),
    "texts": ("perplexity", "match"),
}


def log_of(model, task):
    return json.loads((DATA / model / f"{task}.json").read_text(encoding="utf-8"))


def check_log(path, log):
    "Each value from the samples of the log, each mean inspect's own; loops of its own, no function of the reader."
    task, count, epochs = log["eval"]["task"], 0, log["eval"]["config"]["epochs"]
    for name in NAMES[task]:
        arm = read_inspect_log(path, score=name)[task]
        scorer, _, key = name.partition("/")
        says = next(
            e["metrics"]
            for e in log["results"]["scores"]
            if (e["scorer"], e["name"]) == (scorer, key or scorer)
        )
        of = {}
        for sample in log["samples"]:
            of.setdefault(str(sample["id"]), []).append(sample["scores"][scorer])
        assert (
            len(arm) == len(of) == 20
            and all(len(drawn) == epochs for drawn in of.values())
            and arm.model == log["eval"]["model"]
        )
        if arm.kind == "losses":
            drawn = {
                i.split()[0]: (t, t * loss)
                for i, t, loss in zip(
                    arm.ids, arm.tokens.tolist(), arm.log_loss.tolist(), strict=True
                )
            }
            for i, (score,) in of.items():
                assert drawn[i] == (
                    score["metadata"]["num_tokens"],
                    pytest.approx(-score["metadata"]["sum_log_probs"], rel=1e-14),
                )
            assert arm.perplexity == pytest.approx(
                says["perplexity_per_token"]["value"], rel=1e-9
            )
        else:
            for i, value in zip(arm.ids, arm.values.tolist(), strict=True):
                drawn = [
                    {"C": 1, "I": 0}.get(v, v)
                    for score in of[i]
                    for v in [score["value"][key] if key else score["value"]]
                ]
                assert value == pytest.approx(sum(drawn) / epochs, rel=1e-14)
            assert arm.values.mean() == pytest.approx(
                (says.get("accuracy") or says["mean"])["value"], rel=1e-9
            )
        count += 1
    return count


@pytest.mark.parametrize("model", ["base", "tuned"])
@pytest.mark.parametrize("task", NAMES)
def test_every_number_is_the_tools_own(model, task):
    assert check_log(DATA / model / f"{task}.json", log_of(model, task)) == len(NAMES[task])


def test_losses_are_those_of_our_own_scorer():
    pytest.importorskip("torch")
    from invar_nb.models.load import load_model
    from invar_nb.models.score import score_text

    for model in ("base", "tuned"):
        read = read_inspect_log(DATA / model / "texts.json", score="perplexity")["texts"]
        texts = {
            str(sample["id"]): "\n" + sample["input"]
            for sample in log_of(model, "texts")["samples"]
        }
        own = score_text(
            load_model(MODELS / model, dtype="float32"),
            [texts[i.split()[0]] for i in read.ids],
        )
        assert own.tokens.tolist() == read.tokens.tolist()
        np.testing.assert_allclose(own.log_loss, read.log_loss, rtol=2e-6)


def test_metadata_slice_and_cluster(tmp_path):
    for model in ("base", "tuned"):
        log = log_of(model, "choices")
        for sample in log["samples"]:
            sample["metadata"] = {
                "level": int(sample["id"][1:]) % 2,
                "source": {"page": int(sample["id"][1:]) // 2},
                "epoch_note": sample["epoch"],
                "tags": [],
            }
        (tmp_path / f"{model}.json").write_text(json.dumps(log))
    line = [
        "compare",
        tmp_path / "base.json",
        tmp_path / "tuned.json",
        "--score",
        "letters",
        "--by",
        "level",
        "--by",
        "target",
        "--column",
        "cluster=source.page",
        "--out",
        tmp_path / "out",
        "--quiet",
    ]
    assert main(line) in (0, 1) and main(["verify", tmp_path / "out", "--quiet"]) == 0
    d = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {"level 0", "level 1", "target A"} <= {
        row["key"]["slice"] for row in d["rows"]
    } and d["pairs"][0]["units"]["n"] == 10
    assert b"epoch_note" not in b"".join(
        file.read_bytes() for file in (tmp_path / "out").iterdir()
    )
    for options, part, error in (
        (dict(slices="levle"), "Did you mean 'level'?", UsageError),
        (
            dict(slices=["epoch_note"]),
            "all epochs of a sample must agree on 'epoch_note'; got '1', '2' for 'q00'",
            ContractError,
        ),
        (
            dict(cluster="tags"),
            "a field must be one of 'input', 'target', 'level', 'source.page', 'epoch_note'; got 'tags'",
            UsageError,
        ),
    ):
        with pytest.raises(error) as caught:
            read_inspect_log(tmp_path / "base.json", score="letters", **options)
        assert part in str(caught.value)


# --- the archive ----------------------------------------------------------------------------------------------------------------------
def as_archive(path, log, method=zipfile.ZIP_DEFLATED, leave=()):
    with zipfile.ZipFile(path, "w", method) as archive:
        for sample in reversed(log["samples"]):
            archive.writestr(
                f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample)
            )
        for name in ("_journal/start.json", "header.json"):
            if name not in leave:
                archive.writestr(
                    name, json.dumps({k: v for k, v in log.items() if k != "samples"})
                )
    return path


def same(a, b):
    assert (
        a.kind == b.kind
        and a.ids == b.ids
        and a.data_id == b.data_id
        and a.clusters == b.clusters
    )
    for name in ("log_loss", "tokens") if a.kind == "losses" else ("values",):
        assert getattr(a, name).tolist() == getattr(b, name).tolist()
    assert len(pair(a, b)) == 20


@pytest.mark.parametrize("task, scorer", [("choices", "letters"), ("texts", "perplexity")])
def test_both_formats_give_one_arm(tmp_path, task, scorer):
    "The tool's own archive where Zstandard is at hand, and one packed in the old way, its members in another order."
    plain = read_inspect_log(DATA / "base" / f"{task}.json", score=scorer)[task]
    same(
        plain,
        read_inspect_log(as_archive(tmp_path / "x.eval", log_of("base", task)), score=scorer)[
            task
        ],
    )
    packed = DATA / "base" / f"{task}.eval"
    assert is_inspect_log(packed)
    if ZSTD:
        same(plain, read_inspect_log(packed, score=scorer)[task])


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python reads Zstandard itself")
def test_an_archive_of_zstandard_is_refused_where_nothing_unpacks_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        ContractError,
        match=r"needs Python 3.14 or the package zstandard; got neither. In the clone: pip "
        r"install '.\[inspect\]', or inspect log dump FILE > FILE.json.$",
    ) as caught:
        read_inspect_log(DATA / "base" / "texts.eval", score="match")
    assert caught.value.code == "not_installed"


def test_damaged_archives_are_refused(tmp_path, monkeypatch):
    whole = as_archive(tmp_path / "x.eval", log_of("base", "texts"), zipfile.ZIP_STORED)
    data = whole.read_bytes()
    for name, change, part in (
        ("cut", data[:-100], "must be a whole archive"),
        (
            "bit",
            data.replace(b'"epoch": 1', b'"epoch": 7', 1),
            "every member of the archive must be whole; got samples/20_epoch_1.json",
        ),
    ):
        path = tmp_path / f"{name}.eval"
        path.write_bytes(change)
        assert is_inspect_log(path)
        with pytest.raises(ContractError, match=part):
            read_inspect_log(path, score="match")

    class Reader:  # in the place of zstandard: it unpacks to something else
        def stream_reader(self, packed, read_across_frames):
            return io.BytesIO(b"{}" if packed.startswith(b"\x28\xb5\x2f\xfd") else b"")

    monkeypatch.setitem(
        sys.modules, "zstandard", SimpleNamespace(ZstdDecompressor=Reader, ZstdError=OSError)
    )
    if sys.version_info < (3, 14):
        with pytest.raises(
            ContractError, match="every member of the archive must be whole; got header.json"
        ):
            read_inspect_log(DATA / "base" / "texts.eval")
    unfinished = as_archive(
        tmp_path / "u.eval", log_of("base", "texts"), leave=("header.json",)
    )
    assert is_inspect_log(unfinished)
    with pytest.raises(
        ContractError,
        match="status of the log must be success; got an unfinished log. Finish it with inspect eval-retry",
    ):
        read_inspect_log(unfinished)


def test_it_is_known_by_its_content(tmp_path):
    renamed, other = tmp_path / "x.txt", tmp_path / "other.zip"
    shutil.copy(DATA / "base" / "texts.json", renamed)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a", "b")
    (tmp_path / "odd.json").write_bytes(b'\xff{"version": 2, "status"')
    (tmp_path / "list.json").write_text('{"version": 2, "results": {}}')
    assert all(map(is_inspect_log, (DATA / "base", DATA / "tuned" / "texts.json", renamed)))
    assert not any(
        map(
            is_inspect_log,
            (
                tmp_path,
                other,
                tmp_path / "odd.json",
                tmp_path / "list.json",
                tmp_path / "none",
                MODELS / "base",
                "a\0b",
            ),
        )
    )


# --- epochs and values ----------------------------------------------------------------------------------------------------------------
def test_a_log_without_its_samples_or_its_version_is_known(tmp_path):
    "As inspect writes it where defaults are left out, and with the header alone."
    log = log_of("base", "choices")
    del log["version"]
    (tmp_path / "whole.json").write_text(json.dumps(log))
    assert is_inspect_log(tmp_path / "whole.json")
    same(
        *(
            read_inspect_log(path, score="choice")["choices"]
            for path in (tmp_path / "whole.json", DATA / "base" / "choices.json")
        )
    )
    del log["samples"]
    (tmp_path / "header.json").write_text(json.dumps(log, indent=4))
    assert is_inspect_log(
        tmp_path / "header.json"
    ) and "must hold its samples; got its header alone. Name the .eval file" in refused(
        tmp_path / "header.json"
    )


def edited(tmp_path, task, change):
    log = log_of("base", task)
    change(log)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    return path


def refused(path, error=ContractError, **options):
    with pytest.raises(error) as caught:
        read_inspect_log(path, **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("read_inspect_log")
    return str(caught.value)


def test_epochs_are_reduced_by_id_first(tmp_path):
    def doubled(log):
        (
            log["eval"]["config"]["epochs"],
            log["results"]["total_samples"],
            log["results"]["completed_samples"],
        ) = 2, 40, 40
        again = json.loads(json.dumps(log["samples"]))
        for sample in again:
            sample["epoch"] = 2
            sample["scores"]["perplexity"]["metadata"]["sum_log_probs"] -= sample["scores"][
                "perplexity"
            ]["metadata"]["num_tokens"]
        log["samples"] += again

    one, two = (
        read_inspect_log(path, score="perplexity")["texts"]
        for path in (DATA / "base" / "texts.json", edited(tmp_path, "texts", doubled))
    )
    assert one.ids == two.ids and one.tokens.tolist() == two.tokens.tolist()
    np.testing.assert_allclose(two.log_loss, one.log_loss + 0.5, rtol=1e-14)
    assert two.provenance["source"]["epochs"] == 2

    def other_tokens(log):
        doubled(log)
        log["samples"][-1]["scores"]["perplexity"]["metadata"]["num_tokens"] += 1

    assert "all epochs of a sample must have the same tokens" in refused(
        edited(tmp_path, "texts", other_tokens), score="perplexity"
    )


@pytest.mark.parametrize(
    "value, number",
    [
        ("C", 1),
        ("I", 0),
        ("P", 0.5),
        ("N", 0),
        (True, 1),
        ("yes", 1),
        ("False", 0),
        ("0.25", 0.25),
        (-3, -3),
    ],
)
def test_values_count_as_inspect_counts_them(tmp_path, value, number):
    def change(log):
        for sample in log["samples"]:
            sample["scores"]["match"]["value"] = value
        log["results"]["scores"][1]["metrics"]["accuracy"]["value"] = number

    assert set(
        read_inspect_log(edited(tmp_path, "texts", change), score="match", better="lower")[
            "texts"
        ].values.tolist()
    ) == {number}


def test_order_and_direction():
    texts = read_inspect_log(DATA / "base" / "texts.json", score="perplexity")["texts"]
    assert [i.split()[0] for i in texts.ids] == [str(i) for i in range(1, 21)]
    assert [
        read_inspect_log(DATA / "base" / "texts.json", score="match", **more)["texts"].better
        for more in ({}, dict(better="lower"))
    ] == ["higher", "lower"]


def test_another_reducer_is_said_and_not_checked(tmp_path):
    def change(log):
        (
            log["eval"]["config"]["epochs_reducer"],
            log["results"]["scores"][0]["reducer"],
            log["results"]["scores"][0]["metrics"]["accuracy"]["value"],
        ) = ["mode"], "mode", 0.9

    arm = read_inspect_log(edited(tmp_path, "choices", change), score="choice")["choices"]
    assert arm.provenance["source"]["log_reduced_by"] == [
        "mode"
    ] and arm.values.mean() == pytest.approx(0.425)


# --- refusals -------------------------------------------------------------------------------------------------------------------------
def sample(i, **change):
    return lambda log: log["samples"][i].update(change)


def score(value):
    return lambda log: log["samples"][4]["scores"]["match"].update(value=value)


def test_intersect_leaves_out_samples_that_failed_or_are_missing(tmp_path, capsys):
    "Whole samples: of two epochs both are left out where one failed."
    whole = read_inspect_log(edited(tmp_path, "texts", lambda log: None), score="match")[
        "texts"
    ]

    def failed(log):
        log["samples"][0]["error"] = {"message": "boom"}
        del log["samples"][1]["scores"], log["samples"][2]
        log["samples"][1]["error"] = {"message": "boom"}

    path = edited(tmp_path, "texts", failed)
    assert "or compare without it: intersect=True" in refused(path, score="match")
    (arm,) = read_inspect_log(path, score="match", intersect=True).values()
    assert len(arm) == len(whole) - 3 and arm.provenance["intersected"] == len(whole)
    assert {*arm.ids} < {*whole.ids}
    missing = edited(tmp_path, "texts", lambda log: log["samples"].pop())
    assert "compare those that are there: intersect=True" in refused(missing, score="match")
    (tmp_path / "base.json").write_text(json.dumps(log_of("base", "texts")))
    arms = [str(tmp_path / "base.json"), str(missing)]
    how = ["--score", "match", "--intersect", "--out", str(tmp_path / "r")]
    assert main(["compare", *arms, *how]) == 0
    n = len(whole)
    counted = f"On the {n - 1} that all have, of {n} (baseline) and {n} (candidate)"
    assert counted in " ".join(capsys.readouterr().out.split())

    def one_epoch(log):
        log["samples"][1]["error"] = {"message": "boom"}

    (two,) = read_inspect_log(
        edited(tmp_path, "choices", lambda log: None), score="choice"
    ).values()
    path = edited(tmp_path, "choices", one_epoch)
    (arm,) = read_inspect_log(path, score="choice", intersect=True).values()
    assert len(arm) == len(two) - 1

    def all_failed(log):
        for row in log["samples"]:
            row["error"] = "boom"

    assert "some sample must be whole" in refused(
        edited(tmp_path, "texts", all_failed), score="match", intersect=True
    )


@pytest.mark.parametrize(
    "task, scorer, change, part",
    [
        (
            "texts",
            "match",
            lambda log: log.update(results=None),
            "the log must have a header of inspect's format 2; got null in place of object at results. Copy the log again",
        ),
        (
            "texts",
            "match",
            lambda log: log.update(samples=None),
            "got 0. Was the log written without its samples",
        ),
        (
            "texts",
            "match",
            sample(0, scores=None),
            "every sample must have id, epoch, input, target and the score; got null in place of object at scores",
        ),
        (
            "texts",
            "match",
            lambda log: log["results"].update(completed_samples=19),
            "20 samples must be there, all completed; got 20",
        ),
        ("texts", "match", sample(0, scores={}), "got null in place of object"),
        ("texts", "match", score("maybe"), "got 'maybe'"),
        ("texts", "match", score({"a": 1}), "Choose a part of it as score='name/key'"),
        (
            "texts",
            "match",
            score("C"),
            "accuracy of the log must be that of its samples; got 0.1, and 0.15 from the samples",
        ),
        (
            "texts",
            "perplexity",
            lambda log: log["samples"][0]["scores"]["perplexity"]["metadata"].update(
                sum_log_probs=-1.0
            ),
            "perplexity_per_token of the log must be that of its samples",
        ),
        (
            "texts",
            "perplexity",
            lambda log: log["samples"][0]["scores"]["perplexity"].pop("metadata"),
            "got Object missing required field metadata",
        ),
        *[
            (
                "texts",
                "match",
                change,
                "the log must have a header of inspect's format 2; got ",
            )
            for change in (
                lambda log: log["results"].update(scores=[5]),
                lambda log: log["results"]["scores"][0].pop("name"),
                lambda log: log["results"]["scores"][0].update(metrics=None),
                lambda log: log["eval"].update(config=None),
            )
        ],
        (
            "texts",
            "match",
            lambda log: [
                metric.update(value="x")
                for entry in log["results"]["scores"]
                for metric in entry["metrics"].values()
            ],
            "of the log must be that of its samples; got 'x'",
        ),
        ("texts", "match", sample(3, epoch="1"), "every sample must have id, epoch"),
        ("texts", "match", score(10**400), "a finite number; got 1000"),
        (
            "texts",
            "acuracy",
            lambda log: None,
            "score must be one of 'perplexity', 'match'; got 'acuracy'",
        ),
        (
            "choices",
            "choice",
            sample(1, epoch=5),
            "every sample must have epochs 1 to 2; got ",
        ),
        ("choices", "choice", sample(1, id="q99"), "got [2] for 'q01'"),
        (
            "choices",
            "choice",
            sample(1, input="?"),
            "all epochs of a sample must ask the same",
        ),
    ],
)
def test_refusals(tmp_path, task, scorer, change, part):
    assert part in refused(
        edited(tmp_path, task, change),
        UsageError if scorer == "acuracy" else ContractError,
        score=scorer,
    )


def test_refusals_of_paths(tmp_path):
    assert (
        "must hold logs (.eval or .json); got none. Name the folder that inspect wrote"
        in refused(tmp_path)
        and "must exist" in refused(tmp_path / "none")
    )
    (tmp_path / "cut.json").write_bytes((DATA / "base" / "texts.json").read_bytes()[:-50])
    assert is_inspect_log(
        tmp_path / "cut.json"
    ) and "cut.json: the log must be JSON of inspect; got Expecting property name" in refused(
        tmp_path, score="match"
    )
    for name in ("a", "cut"):
        shutil.copy(DATA / "base" / "texts.json", tmp_path / f"{name}.json")
    assert "one log for each task; got a second of 'texts'" in refused(tmp_path, score="match")


# --- the tool itself ------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_real_tool_today(tmp_path):
    "Runs inspect on its mock model and reads both formats; INVAR_NB_INSPECT names a Python that has inspect_ai, torch and transformers, else they are installed."
    python = python_with(
        "INVAR_NB_INSPECT",
        tmp_path / "venv",
        "inspect_ai==0.3.285",
        "transformers>=5,<6",
        str(ROOT),
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [python, Path(__file__).parent / "data" / "make_inspect.py", MODELS, tmp_path / "out"],
        check=True,
        env=env,
        capture_output=True,
    )
    read = "import sys, json; from invar_nb.readers.inspect_logs import read_inspect_log as r; print(json.dumps(r(sys.argv[1], score='letters')['choices'].values.tolist()))"
    for model in ("base", "tuned"):
        for task in NAMES:
            path = tmp_path / "out" / model / f"{task}.json"
            assert check_log(path, json.loads(path.read_text())) == len(NAMES[task])
    packed = subprocess.run(
        [python, "-c", read, tmp_path / "out" / "base" / "choices.eval"],
        env=env | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert (
        json.loads(packed.stdout)
        == read_inspect_log(tmp_path / "out" / "base" / "choices.json", score="letters")[
            "choices"
        ].values.tolist()
    )
    old, new = (
        read_inspect_log(folder / "base" / "texts.json", score="perplexity")["texts"]
        for folder in (DATA, tmp_path / "out")
    )
    assert len(pair(old, new)) == 20 and math.isclose(
        old.perplexity, new.perplexity, rel_tol=1e-5
    )
