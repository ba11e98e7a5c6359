"""Shards: any cut gives the bytes of one process; what is missing, doubled, foreign, stale or damaged is refused by its name."""

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from test_shell import MODELS, ROOT, shell  # noqa: E402

from invar_nb.files.losses import read_losses, write_losses  # noqa: E402
from invar_nb.files.merge import Target  # noqa: E402
from invar_nb.models.shards import score_shard  # noqa: E402
from invar_nb.shell import settings as g  # noqa: E402
from invar_nb.shell.launchers import find_shard
from invar_nb.shell.work import load_work

BASE, TUNED = os.path.join(MODELS, "base"), os.path.join(MODELS, "tuned")
OPTIONS = ["--max-length", 64, "--batch-tokens", 32, "-q"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A text, the losses of one process, and the three parts of a run."
    here = tmp_path_factory.mktemp("shards")
    (here / "text.txt").write_text(
        "".join(f"The sentence after number {i} counts to {i * i}.\n" for i in range(60))
    )
    args = [BASE, "--text", here / "text.txt", *OPTIONS]
    for suffix in ("jsonl", "parquet"):
        assert shell("score", *args, "--out", here / f"one.{suffix}")[0] == 0
    for i in (1, 2, 3):
        assert shell("score", *args, "--out", here / "parts", "--shard", f"{i}/3")[0] == 0
    return here


@pytest.fixture
def parts(run, tmp_path):
    return Path(shutil.copytree(run / "parts", tmp_path / "parts"))


def score(run, out, shard, *more, model=BASE, env=None):
    return shell(
        "score",
        model,
        "--text",
        run / "text.txt",
        *OPTIONS,
        "--out",
        out,
        "--shard",
        shard,
        *more,
    )


@pytest.mark.processor
def test_the_merged_file_is_that_of_one_process(run, tmp_path):
    for suffix in ("jsonl", "parquet"):
        code, out, _ = shell(
            "merge", run / "parts", "--out", tmp_path / f"all.{suffix}", "--json"
        )
        assert code == 0 and json.loads(out)["shards"] == 3
        assert (tmp_path / f"all.{suffix}").read_bytes() == (
            run / f"one.{suffix}"
        ).read_bytes()


def test_a_launcher_and_a_url_give_the_same_bytes(run, tmp_path):
    "Forty tasks of an array write to a bucket; those without a batch say that they are empty."
    pytest.importorskip("fsspec")
    job = g.Scoring(text=[str(run / "text.txt")], max_length=64, batch_tokens=32)
    url, work = f"memory://{tmp_path.name}/parts", load_work(BASE, job)
    for i in range(40):
        task = {
            f"SLURM_ARRAY_TASK_{name}": str(value)
            for name, value in dict(ID=i, MIN=0, MAX=39, COUNT=40).items()
        }
        name = score_shard(work, url, find_shard("auto", task))
        assert name.endswith(".json") == (i >= len(work.scorer.batches))
    assert len(work.scorer.batches) < 40 and Target(url).names()[-1] == "part-40-of-40.json"
    assert (
        shell("merge", url)[0] == 2
        and shell("merge", url, "--out", tmp_path / "all.jsonl")[0] == 0
    )
    assert (tmp_path / "all.jsonl").read_bytes() == (run / "one.jsonl").read_bytes()


def rewritten(folder, change):
    "The second part with another content, and a digest that fits it."
    path = next(folder.glob("part-2*"))
    losses = read_losses(path)
    write_losses(change(losses), path)


def shard_of(losses, **change):
    return losses.changed(
        provenance={**losses.provenance, "shard": {**losses.provenance["shard"], **change}}
    )


HEADERS = {
    "no data": lambda x: x.pop("data_id"),
    "a list": lambda x: x.update(provenance=[1]),
    "no shard": lambda x: x["provenance"].update(shard=[]),
    "no rows": lambda x: x.update(windows=0),
}


def spoiled(name, folder, run):
    part = next(folder.glob("part-2*"))
    if name == "missing":
        part.unlink()
    if name == "doubled":
        write_losses(read_losses(part), folder / "part-2-of-3.jsonl")
    if name == "copied":
        shutil.copy(part, folder / f"part-1-of-3{part.suffix}")
    if name == "half":
        part.write_bytes(part.read_bytes()[: len(part.read_bytes()) // 2])
    if name == "digit":
        from pyarrow import parquet

        table = parquet.read_table(part)
        loss = table["log_loss"].to_pylist()
        loss[3] = math.nextafter(loss[3], 9)
        parquet.write_table(
            table.set_column(
                table.schema.get_field_index("log_loss"),
                table.schema.field("log_loss"),
                [loss],
            ),
            part,
        )
    if name == "model":
        part.unlink()
        score(run, folder, "2/3", model=TUNED)
    if name == "dtype":
        part.unlink()
        score(run, folder, "2/3", "--dtype", "bfloat16")
    if name == "plan":
        part.unlink()
        score(run, folder, "2/3", "--stride", 16)
    if name == "version":
        rewritten(
            folder, lambda x: x.changed(provenance={**x.provenance, "invar_nb": "0.0.9"})
        )
    if name == "batches":
        rewritten(folder, lambda x: shard_of(x, batches="sha256:0"))
    if name == "windows":
        rewritten(folder, lambda x: x.changed(columns={"window": x.columns["window"] + 1}))
    if name == "stale":
        score(run, folder / "old", "1/2")
        shutil.copy(next((folder / "old").iterdir()), folder)
    if name == "no part":
        shutil.copy(run / "one.parquet", part)
    if name in HEADERS:
        from pyarrow import parquet

        for path in folder.glob("part-*") if name == "no rows" else [part]:
            table = parquet.read_table(path)
            header = json.loads(table.schema.metadata[b"invar_nb"])
            HEADERS[name](header)
            table = table.slice(0, 0) if name == "no rows" else table
            parquet.write_table(
                table.replace_schema_metadata({"invar_nb": json.dumps(header)}), path
            )


@pytest.mark.parametrize(
    "name, says",
    [
        ("missing", "1 missing: 2/3. Run: invar-nb score "),
        ("doubled", "part-2-of-3.jsonl and part-2-of-3.parquet"),
        ("copied", "part-1-of-3.parquet, which holds shard 2/3"),
        ("half", "part-2-of-3.parquet ("),
        ("digit", "part-2-of-3.parquet ("),
        ("model", "model 'tuned' instead of 'base', in part-2-of-3"),
        ("dtype", "'bfloat16' instead of 'float32', in part-2-of-3"),
        ("plan", "stride 16 instead of 32, in part-2-of-3"),
        ("version", "invar_nb '0.0.9' instead of '0.1.0', in part-2-of-3"),
        ("batches", "shard.batches 'sha256:0'"),
        ("windows", "near part-"),
        ("stale", "part-1-of-2.parquet"),
        ("no part", "part-2-of-3.parquet (the file must be a part)"),
        ("no data", "part-2-of-3.parquet"),
        ("a list", "part-2-of-3.parquet"),
        ("no shard", "part-2-of-3.parquet"),
        ("no rows", "part-"),
    ],
)
def test_what_is_no_part_of_the_run_is_refused_by_name(name, says, run, parts):
    spoiled(name, parts, run)
    code, out, err = shell("merge", parts, "--out", parts / "all.jsonl")
    assert code == 3 and says in err and not (parts / "all.jsonl").exists(), err
    if "--shard 2/3" in err:  # what it says to type works
        again = err[err.index("Run: invar-nb ") + 14 :].strip().rstrip(".")
        code, _, err = shell(*shlex.split(again.replace(str(run / "parts"), str(parts))), "-q")
        assert code == 0, err
        assert shell("merge", parts, "--out", parts / "all.jsonl")[0] == 0
        assert (parts / "all.jsonl").read_bytes() == (run / "one.jsonl").read_bytes()


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--out", "{}/p", "--shard", "0/4"], "counted from 1"),
        (["--out", "{}/p", "--shard", "5/4"], "counted from 1"),
        (["--out", "{}/p", "--shard", "half"], "I/N"),
        (["--shard", "1/2"], "no --out"),
        (["--out", "{}/x.parquet", "--shard", "1/2"], "a folder"),
        (["--out", "{}/text.txt", "--shard", "1/2"], "must be a folder"),
        (["--out", "{}/p"], ".parquet or .jsonl"),
        (["--out", "s3://b/x.jsonl"], "A URL is for --shard"),
        (["--out", "{}/p", "--shard", "1/2", "--engine", "ray"], "splits the text itself"),
        (["--out", "{}/p.jsonl", "--workers", "2"], "--engine ray"),
        (["--out", "nosuch://b/x", "--shard", "1/2"], "fsspec can open"),
        (["--out", "{}/p", "--shard", "1/2", "--per-byte"], "--per-byte"),
        (["--out", "{}/p", "--shard", "auto"], "torchrun"),
        (["--out", "{}/parts", "--shard", "1/4"], "one split"),
    ],
)
def test_wrong_shards_are_refused_before_anything_is_loaded(arguments, says, run, monkeypatch):
    for name in list(os.environ):
        if name.startswith("SLURM") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    code, out, err = shell(
        "score", BASE, "--text", run / "text.txt", *[a.format(run) for a in arguments]
    )
    assert code in (2, 3) and says in err and "loading" not in err, err


def test_a_file_is_no_folder_of_parts(run):
    for more in ((), ("--out", run / "new" / "x.jsonl")):
        code, _, err = shell("merge", run / "one.jsonl", *more)
        assert (
            code == 2
            and "merge" in err
            and "folder" in err
            and "--out must" not in err
            and not (run / "new").exists()
        ), err


def test_an_empty_folder_has_nothing_to_merge(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, _, err = shell("merge", folder)
        assert code == 2 and "score" in err and not (tmp_path / "nowhere").exists()


def test_a_part_is_not_replaced_unasked(run, parts):
    before = {p.name: p.stat().st_mtime_ns for p in parts.iterdir()}
    assert score(run, parts, "2/3")[0] == 0 and before == {
        p.name: p.stat().st_mtime_ns for p in parts.iterdir()
    }
    code, _, err = score(run, parts, "2/3", "--dtype", "bfloat16")
    assert (
        code == 3
        and "dtype 'float32' instead of 'bfloat16'" in err
        and before == {p.name: p.stat().st_mtime_ns for p in parts.iterdir()}
    )
    assert (
        score(run, parts, "2/3", "--dtype", "bfloat16", "--force")[0] == 0
        and shell("merge", parts)[0] == 3
    )
    assert (
        score(run, parts, "2/3", "--force")[0] == 0
        and shell("merge", parts, "--out", parts / "all.jsonl")[0] == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("of", [2, 7])
def test_a_killed_shard_goes_on_and_the_bytes_are_the_same(run, tmp_path, of):
    "Every shard is killed twice, at moments spread over its run; two processes for one shard exclude each other."
    out = tmp_path / "parts"
    command = lambda i: [
        sys.executable,
        "-m",
        "invar_nb",
        "score",
        BASE,
        "--text",
        str(run / "text.txt"),
        *map(str, OPTIONS),
        "--out",
        str(out),
        "--shard",
        f"{i}/{of}",
    ]
    for i in range(1, of + 1):
        for wait in (2 + i / of, 4):
            process = subprocess.Popen(command(i), cwd=ROOT, stderr=subprocess.DEVNULL)
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.wait()
        assert subprocess.run(command(i), cwd=ROOT).returncode == 0
    assert not [p for p in out.iterdir() if p.name.startswith(".")]
    assert shell("merge", out, "--out", tmp_path / "all.jsonl")[0] == 0
    assert (tmp_path / "all.jsonl").read_bytes() == (run / "one.jsonl").read_bytes()
