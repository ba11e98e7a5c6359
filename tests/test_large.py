"""Loss files that are compared in batches: as in memory, refused where pair refuses, through the shell, in bounded memory."""
import json
import subprocess
import sys

import numpy as np
import pytest

import invar_nb
from invar_nb import WindowLosses, compare_large, open_losses, pair, read_losses, write_losses
from invar_nb.comparison.compare import compare
from invar_nb.files.loss_writer import loss_writer
from invar_nb.foundations.numbers import ContractError
from test_shell import shell
from test_sketch import MOVES, pairs


def written(folder, n=600, documents=60, move=None, changes=({}, {}), suffix=".parquet", **more):
    "Paths of two files; `changes`: fields of each arm that are replaced."
    base, candidate, tokens, ids = pairs(n, 5, documents, move)
    paths = []
    for name, loss, new in zip(("baseline", "candidate"), (base, candidate), changes, strict=True):
        fields = dict(window_ids=[f"w{i}" for i in range(n)], tokens=tokens, log_loss=loss, document_ids=None if ids is None else [f"d{k}" for k in ids], model=name, data_id="sha256:ab", **more)
        paths.append(folder / f"{name}{suffix}")
        write_losses(WindowLosses.from_arrays(**fields | {k: v(fields[k]) if callable(v) else v for k, v in new.items()}), paths[-1])
    return paths


def opened(paths):
    "Files that come in batches of 128 windows."
    files = [open_losses(path) for path in paths]
    for file in files: file.batches = lambda rows=128, columns=None, own=file.batches: own(rows, columns)
    return files


@pytest.mark.parametrize("documents, units, suffix", [(60, "auto", ".parquet"), (60, "windows", ".jsonl"), (5, "auto", ".parquet"), (None, "auto", ".jsonl")])
def test_every_field_is_that_of_the_comparison_in_memory(tmp_path, documents, units, suffix):
    more = dict(n_bytes=np.arange(1, 601), split=["preview"] * 200 + ["final"] * 400, columns={"top1_changed": np.arange(600) % 3})
    paths = written(tmp_path, documents=documents, suffix=suffix, **more)
    made = [compare_large(*opened(paths), units=units), compare(pair(*map(read_losses, paths)), units=units)]
    assert list(made[0]) == list(made[1]) == ["perplexity", "top1_changed"] and made[0].units.because == made[1].units.because
    a, b = (one.report().document() for one in made)
    for d in (a, b):
        for name in ("digest", "environment", "warnings"): d.pop(name)
        d["dataset"]["windows"]["stats"].pop("bootstrap"), d["settings"].pop("streamed", None)
        d["passages"]["documents"] = None
        for part in (*d["passages"]["windows"]["lost"], *d["passages"]["windows"]["gained"]): part.update(bound=None, expected=None, beyond=None)
        d["passages"]["windows"].pop("sentence"), d["evaluation"].pop("baseline")
    assert invar_nb.foundations.document.first_difference(a, b) is None


@pytest.mark.parametrize("change", [
    {"tokens": lambda t: np.r_[t[:-1], t[-1] + 1]}, {"window_ids": lambda w: [*w[:-1], "other"]}, {"document_ids": lambda d: [*d[:-1], "other"]}, {"data_id": "sha256:cd"},
    {"provenance": {"windowing": "old"}}, {"split": lambda s: [*s[:-1], "preview"]}, {"n_bytes": lambda n: np.r_[n[:-1], 9999]}, {"weight_unit": "words"}])
def test_the_first_difference_is_named_as_pair_names_it(tmp_path, change):
    paths = written(tmp_path, changes=({}, change), split=["preview"] * 300 + ["final"] * 300, n_bytes=np.arange(1, 601), provenance={"windowing": "new"})
    said = []
    for call in (lambda: compare_large(*opened(paths)), lambda: pair(*map(read_losses, paths))):
        with pytest.raises(ContractError) as error: call()
        said.append((str(error.value), error.value.code))
    if "window_ids" in change: assert said[0][0].startswith("pair: ids must match in order; got 'w599' and 'other' at item 599.") and said[0][1] == said[1][1]
    else: assert said[0] == said[1]


def test_names_that_come_again_and_other_lengths(tmp_path):
    again = {"document_ids": lambda d: [*d[:-1], d[0]]}
    with pytest.raises(ContractError, match="row 600: windows of a document must stand together in a file of this size; got 'd0'"):
        compare_large(*opened(written(tmp_path, changes=(again, again))))
    files = opened(written(tmp_path))
    for file in files: file.header = file.header | {"windows": 601}
    with pytest.raises(ContractError, match="601 windows must follow the header; got 600"): compare_large(*files)
    with pytest.raises(ContractError, match="ids must match in order; got 601 and 600 items"): compare_large(files[0], opened(written(tmp_path))[1])
    for short in (0, 1):
        paths = written(tmp_path, suffix=".jsonl")
        paths[short].write_text("".join(paths[short].read_text().splitlines(True)[:-1]))
        with pytest.raises(ContractError, match=f"{paths[short].name}:600: 600 windows must follow the header; got 599"): compare_large(*opened(paths))
    for metric, said in (("accuracy", "metrics must read losses"), ("kl_divergence", "no column 'kl_divergence'")):
        with pytest.raises(ContractError, match=said): compare_large(*opened(written(tmp_path)), metrics=[metric])
    read = lambda **more: compare_large(*opened(written(tmp_path, documents=None)), **more)
    for more, said in (({"units": "documents"}, "units='documents' needs an id for every row"), ({"units": "items"}, "units must be one of"), ({"primary": "accuracy"}, "primary must be one of")):
        with pytest.raises(ContractError, match=said): read(**more)
    with pytest.raises(ContractError, match="slices need all windows in memory"): compare_large(*opened(written(tmp_path))).report(by=["position"])
    with pytest.raises(ContractError, match="tail needs all windows in memory"): compare_large(*opened(written(tmp_path))).report(tail={"q95": 0.1})


@pytest.mark.parametrize("move", ["t3", "none", "equal"])
def test_through_the_shell_and_verified(tmp_path, monkeypatch, move):
    paths, out = written(tmp_path, move=MOVES[move]), tmp_path / "report"
    usual = shell("compare", *paths, "--out", tmp_path / "usual", "--json")
    monkeypatch.setattr("invar_nb.shell.jobs.LARGE", 500)
    code, said, progress = shell("compare", *paths, "--out", out, "--json")
    assert code == usual[0] and "read in batches" in progress and json.loads(said)["headline"] == json.loads(usual[1])["headline"]
    assert shell("verify", out)[0] == 0 and (out / "baseline.parquet").read_bytes() == paths[0].read_bytes()
    if move != "t3": return
    for wrong in (["--by", "position"], ["--method", "bca"], ["--control", "--control-file", paths[0]], ["--tail-gate", "q95=10%"]):
        assert shell("compare", *paths, "--out", tmp_path / "no", *wrong)[0] == 2, wrong
    (out / "baseline.parquet").write_bytes(paths[1].read_bytes())
    assert shell("verify", out)[0] == 3


# --- ten million, a hundred million ---------------------------------------------------------------------------------------------------
def names(start, stop, mark, step=1):
    "w0000000, w0000001 ... without a string each."
    from invar_nb.foundations.text_column import TextColumn
    v = np.arange(start, stop) // step
    digits = v[:, None] // 10 ** np.arange(8, -1, -1) % 10 + 48
    data = np.concatenate([np.full((v.size, 1), ord(mark)), digits], axis=1).astype(np.uint8).ravel()
    return TextColumn(data, np.arange(v.size + 1) * 10)


PEAK = """
import sys
from invar_nb.shell.cli import main
code = main(sys.argv[1:])
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), "code", code)
"""


@pytest.mark.slow
def test_ten_million_windows_below_a_gigabyte(tmp_path):
    n = 10**7
    for k, arm in enumerate(("baseline", "candidate")):
        rng, move = np.random.default_rng(1), np.random.default_rng(2)
        with loss_writer(tmp_path / f"{arm}.parquet", names=["window_id", "tokens", "log_loss", "document_id"], windows=n, model=arm) as out:
            for a in range(0, n, 2**16):
                b = min(n, a + 2**16)
                loss = rng.gamma(30, 0.1, b - a)
                if k: loss = np.maximum(loss + 0.001 + 0.05 * move.standard_t(4, b - a), 0)
                out.write({"window_id": names(a, b, "w"), "document_id": names(a, b, "d", 16), "tokens": rng.integers(64, 513, b - a), "log_loss": loss})
    for command in (["compare", tmp_path / "baseline.parquet", tmp_path / "candidate.parquet", "--out", tmp_path / "r"], ["verify", tmp_path / "r"]):
        done = subprocess.run([sys.executable, "-c", PEAK, *map(str, command)], capture_output=True, text=True)
        peak, code = done.stdout.split()[-3], done.stdout.split()[-1]
        print(command[0], int(peak) // 1024, "MiB")
        assert code == "0" and int(peak) < 2**20, done.stderr


HUGE = """
import numpy as np
from invar_nb import Pair, Sketch, WindowLosses
sketch, rng = Sketch(start=0), np.random.default_rng(1)
one = WindowLosses.from_arrays(["-"], [1], [0.0], document_ids=["-"])
for a in range(0, 10**8, 2**19):
    n = min(10**8, a + 2**19) - a
    loss, moved = 3 + rng.random(n), 0.02 + 0.05 * rng.standard_normal(n, dtype="f4")
    codes = np.arange(a, a + n) // 20
    names = [str(k) for k in range(codes[0], codes[-1] + 1)]
    arms = [one.changed(window_ids=range(n), tokens=rng.integers(64, 513, 1).repeat(n), log_loss=loss, document_ids=names) for loss in (loss, loss + moved)]
    sketch.add(Pair(baseline=arms[0], candidate=arms[0].changed(log_loss=arms[1].log_loss)), (names, codes - codes[0]))
for units in ("windows", "documents", "serial"):
    found = sketch.difference(units=units)
    print(units, found.n, found.n_units, found.interval.low, found.interval.high)
print(len(sketch.to_json()), "bytes of JSON with blocks")
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_a_hundred_million_windows_stream_through_a_sketch():
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True)
    print(done.stdout)
    assert int(done.stdout.split()[-1]) < 2**20, done.stderr
