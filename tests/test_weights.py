"What differs between two checkpoints: one element is named, copies are recognised, nothing large is held; referees read with torch and safetensors."

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import llama, write_gguf
from test_shell import shell

import invar_nb
from invar_nb.foundations.refuse import ContractError
from invar_nb.foundations.store import canonical_text, content_digest
from invar_nb.models import numbers as numbers_page
from invar_nb.models import weights as weights_page
from invar_nb.models.load import find_checkpoint, load_model, read_gguf
from invar_nb.models.settings_diff import compare_settings
from invar_nb.models.weights import compare_weights, not_comparable
from invar_nb.shell.model_checks import fit_models
from invar_nb.shell.settings import Comparing, Scoring

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"
UP = "model.layers.2.mlp.up_proj.weight"
COMPARE_TENSORS = weights_page.compare_tensors


@pytest.fixture
def copied(tmp_path):
    "name, tensors -> a copy of the shipped model with these tensors."

    def made(name, tensors, **config):
        folder = Path(shutil.copytree(BASE, tmp_path / name))
        safetensors.save_file(
            {k: x.contiguous() for k, x in tensors.items()},
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
        (folder / "config.json").write_text(
            json.dumps(json.loads((BASE / "config.json").read_text()) | config)
        )
        return folder

    made.tensors = safetensors.load_file(BASE / "model.safetensors")
    return made


def test_a_head_that_is_stored_once_or_twice_is_the_same_model(copied):
    "Tied weights: an embedding stands in a file once or twice. Another head is a change."
    embedding = next(x for k, x in copied.tensors.items() if "embed" in k)
    twice = copied("twice", copied.tensors | {"lm_head.weight": embedding.clone()})
    for pair in ((BASE, twice), (twice, BASE)):
        d = compare_weights(*pair)
        assert (d.state, d.tensors_changed) == ("rearranged", 0), d.sentence
    other = copied("other", copied.tensors | {"lm_head.weight": embedding + 1})
    assert compare_weights(BASE, other).only_candidate == ("lm_head.weight",)


def test_one_changed_element_is_found(copied, monkeypatch):
    monkeypatch.setattr(numbers_page, "PIECE", 1024)  # UP is read in eleven pieces
    tensors = copied.tensors
    tensors[UP] = tensors[UP].clone()
    before = float(tensors[UP][17, 4])
    tensors[UP][17, 4] = float(np.nextafter(np.float16(before), np.float16(9)))
    d = compare_weights(
        BASE, copied("one", tensors, rope_theta=5e5, limits=[0, math.inf])
    )  # as Mamba's config has it, and transformers reads it
    (change,) = d.changed
    assert (d.state, d.tensors_changed, d.tensors) == ("different", 1, len(tensors))
    assert (change.name, change.changed, change.elements) == (UP, 1, tensors[UP].numel())
    assert change.relative == pytest.approx(
        abs(float(tensors[UP][17, 4]) - before) / float(tensors[UP].double().norm()), rel=1e-3
    )
    assert f"\n  {UP} (1 of 11,264 elements, relative change " in str(d)
    assert (
        any(
            line.startswith("config.json: rope_theta was") and line.endswith("is 500000.0")
            for line in d.settings
        )
        and 'config.json: limits was absent, is [0, "Infinity"]' in d.settings
    )
    json.dumps(d.to_dict(), allow_nan=False)


def test_casts_are_told_and_renamed_tensors_differ(copied):
    tensors = copied.tensors
    wide = copied("wide", {k: x.float() for k, x in tensors.items()})
    half = copied(
        "half", {k: x.float().bfloat16() for k, x in tensors.items()}, dtype="bfloat16"
    )
    back = copied("back", {k: x.float().bfloat16().float() for k, x in tensors.items()})
    assert compare_weights(half, wide).state == "different", "it has digits that half lost"
    for pair, kinds in (
        ((BASE, wide), "F16 to F32"),
        ((wide, BASE), "F32 to F16"),
        ((wide, half), "F32 to BF16"),
        ((half, back), "BF16 to F32"),
    ):
        d = compare_weights(*pair)
        assert (
            d.state == "recast"
            and f"({len(tensors)} from {kinds})" in d.sentence
            and not d.changed
        )
    cut = compare_weights(
        wide,
        copied(
            "cut",
            {
                k: (x.float().view(torch.int32) & -65536).view(torch.float32).bfloat16()
                for k, x in tensors.items()
            },
        ),
    )
    assert cut.state == "different", "bfloat16 cut off, not rounded, is no cast"
    short = {k.removeprefix("model."): x for k, x in tensors.items()}
    d = compare_weights(BASE, copied("named", short))
    assert d.state == "different" and d.tensors_changed == 2 * len(tensors)
    assert "only in the baseline, such as model.embed_tokens.weight" in d.sentence


def test_shapes_single_tensors_and_numbers_that_are_none(copied):
    tensors = copied.tensors
    norm = "model.norm.weight"
    odd = {
        **tensors,
        norm: tensors[norm][:-1],
        "extra": torch.zeros(3),
        UP: tensors[UP].clone(),
    }
    odd[UP][3, 5] = float("nan")
    del odd["model.layers.0.mlp.down_proj.weight"]
    d = compare_weights(BASE, copied("odd", odd))
    by_name = {t.name: t for t in d.changed}
    assert by_name[norm].changed == 64 and by_name[norm].relative is None
    assert by_name[UP].changed == 1 and by_name[UP].relative is None
    assert (d.only_baseline, d.only_candidate, d.tensors_changed) == (
        ("model.layers.0.mlp.down_proj.weight",),
        ("extra",),
        4,
    )
    assert json.dumps(d.to_dict(), allow_nan=False)
    more = {**odd, UP: odd[UP].clone()}
    more[UP][0, 0] += 1
    (same,) = compare_weights(copied("nan", odd), copied("nans", more)).changed
    assert (same.name, same.changed) == (UP, 1), "two NaNs are equal"


@pytest.mark.parametrize("kind, edit", [("F16", ""), ("Q8_0", "quantised")])
def test_a_gguf_beside_a_folder_is_known_by_its_types(tmp_path, kind, edit):
    "Its tensors are not compared; packed ones are those of a quantised copy."
    pytest.importorskip("gguf")
    path = write_gguf(BASE, tmp_path / "m.gguf", kind)
    d = compare_weights(BASE, path)
    assert (d.state, d.edit, d.tensors) == ("unknown", edit, None)
    assert "names and a layout of its own" in d.sentence
    assert "GGUF has its own fields" in d.settings[0]
    assert compare_weights(path, BASE).edit == ""


def test_two_ggufs_are_compared_as_transformers_reads_them(tmp_path):
    "The referee is transformers, which dequantises whole tensors."
    pytest.importorskip("gguf")
    paths = [write_gguf(BASE, tmp_path / f"{kind}.gguf", kind) for kind in ("F32", "Q4_0")]
    d = compare_weights(*paths)
    assert d.state == "different" and "(25 from F32 to Q4_0)" in d.sentence
    whole, packed = (
        load_model(path, dtype="float32", tokenizer=BASE).model.state_dict() for path in paths
    )
    theirs = sorted(
        float((packed[k].double() - whole[k].double()).norm() / whole[k].double().norm())
        for k in whole
        if k != "lm_head.weight" and not torch.equal(whole[k], packed[k])
    )
    assert sorted(t.relative for t in d.changed) == pytest.approx(theirs, rel=1e-9)
    assert {t.edit for t in d.changed} == {"quantised"} == {d.edit}


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": []},
        {"data_offsets": "x"},
        {"data_offsets": [0, 1e3]},
        {"dtype": {}},
        {"dtype": 5},
        {"shape": "x"},
        {"shape": [[2]]},
        {"shape": [-1, 2]},
    ],
    ids=str,
)
def test_a_header_of_another_shape_is_refused(change, tmp_path):
    folder = Path(shutil.copytree(BASE, tmp_path / "m"))
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header[next(name for name in header if name != "__metadata__")] |= change
    new = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        len(new).to_bytes(8, "little") + new + data[8 + size :]
    )
    with pytest.raises(ContractError, match="a safetensors file must be whole; got m"):
        compare_weights(folder, BASE)


def test_two_architectures_have_little_in_common_and_no_number_is_read(
    tmp_path, copied, monkeypatch
):
    small = tmp_path / "small"
    llama().save_pretrained(small)
    half = {k: x[..., ::2] if x.ndim > 1 else x for k, x in copied.tensors.items()}
    half = copied("half", half)
    monkeypatch.setattr(weights_page, "decode", lambda *_: pytest.fail("numbers were read"))
    d = compare_weights(BASE, small)
    assert d.state == "different" and d.changed and all(t.relative is None for t in d.changed)
    d = compare_weights(BASE, half)
    assert d.state == "different" and "F16" not in d.sentence
    matrices = [x for x in copied.tensors.values() if x.ndim > 1]
    assert d.tensors_changed == len(matrices) < d.tensors


def refuse_type(data, kind):
    raise NotImplementedError("Q8_K")  # as the package gguf says it


def test_what_cannot_be_compared_is_said(tmp_path, monkeypatch):
    pickled = Path(shutil.copytree(BASE, tmp_path / "pickled"))
    (pickled / "model.safetensors").unlink()
    torch.save(llama().state_dict(), pickled / "pytorch_model.bin")
    d = compare_weights(BASE, pickled)
    assert (
        d.state == "unknown" and d.tensors is None and d.to_dict()["tensors_changed"] is None
    )
    assert (
        d.sentence
        == "The weight files differ; pytorch_model.bin is a pickle, whose tensors are not compared: save it as safetensors."
    )
    assert compare_weights(pickled, pickled).state == "identical"
    path = write_gguf(BASE, tmp_path / "m.gguf", "F16")
    whole = read_gguf(path)
    for parts in (3, "x", [2]):
        part = replace(whole, metadata={**whole.metadata, "split.count": parts})
        assert f"m.gguf is one of {parts} parts: join them" in not_comparable([part, part])
    other = write_gguf(BASE, tmp_path / "q.gguf", "Q8_0")
    with monkeypatch.context() as patched:
        patched.setattr(weights_page, "decode", refuse_type)
        d = compare_weights(path, other)
        assert d.state == "unknown" and "a packed type is not read (Q8_K)" in d.sentence
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(ContractError, match="not an adapter; got .*Merge the adapter"):
        compare_weights(BASE, adapter)
    cut = Path(shutil.copytree(BASE, tmp_path / "cut"))
    data = (BASE / "model.safetensors").read_bytes()
    for wrong in (data[:-5], data[:4], b"version https://git-lfs", data[:8] + b"[" + data[9:]):
        (cut / "model.safetensors").write_bytes(wrong)
        with pytest.raises(ContractError):
            compare_weights(BASE, cut)
    for name in (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        for wrong in (b"", b'{"a": 1', b"\0\0", b'{"a": "\xe9"}', b"[" * 50_000, b"9" * 5000):
            other = Path(shutil.copytree(BASE, tmp_path / f"{name}{len(wrong)}"))
            (other / name).write_bytes(wrong)
            with pytest.raises(
                ContractError,
                match=f"^compare_weights: {re.escape(str(other / name))}: .*JSON",
            ):
                compare_weights(BASE, other)
    for other in ("config.json50000", "config.json0"):  # refused when they are loaded
        assert fit_models(Scoring(), [str(BASE), str(tmp_path / other)]).max_length is None
    (tmp_path / other / "config.json").unlink()
    os.mkfifo(tmp_path / other / "config.json")
    assert fit_models(Scoring(), [str(BASE), str(tmp_path / other)]).max_length is None


@pytest.mark.slow
def test_two_gigabytes_in_bounded_memory(tmp_path):
    "Two checkpoints of 2 GB, one tensor changed throughout, one in one element, one recast: peak resident memory of a process of its own."
    rows, names = 2**13, [f"layers.{k}.weight" for k in range(15)]
    piece = np.random.default_rng(0).normal(size=(2**10, 2**12)).astype("f4")
    for arm in ("a", "b"):
        (tmp_path / arm).mkdir()
        (tmp_path / arm / "config.json").write_text("{}")
        header, end = {}, 0
        for k, name in enumerate(names):
            half = arm == "b" and k == 3
            size = rows * 2**12 * (2 if half else 4)
            header[name], end = (
                {
                    "dtype": "F16" if half else "F32",
                    "shape": [rows, 2**12],
                    "data_offsets": [end, end + size],
                },
                end + size,
            )
        text = json.dumps(header).encode()
        with open(tmp_path / arm / "model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for k, name in enumerate(names):
                for part in range(8):
                    x = piece + np.float32(k)
                    if (arm, k) == ("b", 5):
                        x *= np.float32(1.5)
                    if (arm, k, part) == ("b", 9, 5):
                        x[700, 33] += 1
                    file.write(
                        (x.astype("f2") if header[name]["dtype"] == "F16" else x).tobytes()
                    )
    code = (
        "import json, sys; from invar_nb.models.weights import compare_weights; d = compare_weights(*sys.argv[1:]).to_dict(); "
        "d['peak'] = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) / 1024; print(json.dumps(d))"
    )
    r = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a", tmp_path / "b"],
        capture_output=True,
        text=True,
        check=True,
    )
    d = json.loads(r.stdout)
    print(
        f"peak {d['peak']:.0f} MiB for {(tmp_path / 'a' / 'model.safetensors').stat().st_size / 2**30:.2f} GiB"
    )
    shutil.rmtree(tmp_path)
    assert (d["tensors_changed"], d["recast"]) == (2, 1) and d["largest"][0][
        "relative"
    ] == pytest.approx(0.5)
    assert (d["largest"][1]["name"], d["largest"][1]["changed"]) == (names[9], 1)
    assert d["peak"] < 300


def test_the_command_and_the_first_line_of_a_comparison(copied, tmp_path):
    "What the files differ in is said before scoring, kept with the candidate, verified, and not taken for another pair's."
    one = copied("one", copied.tensors | {UP: copied.tensors[UP] * 2}, rope_theta=5e5)
    said = f"The weights differ in 1 of {len(copied.tensors)} tensors.\n  {UP} ("
    code, out, err = shell("diff", BASE, one)
    assert (
        code == 0
        and out.startswith(said)
        and "  config.json: rope_theta was" in out
        and "defect" not in err
    )
    assert (
        shell("diff", BASE, one, "--fail-different", "--quiet")[0] == 1
        and shell("diff", BASE, BASE, "--fail-different")[0] == 0
    )
    assert json.loads(shell("diff", BASE, one, "--json")[1])["largest"][0]["name"] == UP
    assert all(
        shell("diff", BASE, *more)[0] == 2
        for more in (
            [tmp_path / "none"],
            [BASE, "--windows", 3],
            [one / "config.json"],
            ["openai:http://x"],
        )
    )
    (tmp_path / "t.txt").write_text("Each line of the file is read before the next one. " * 30)
    code, out, err = shell(
        "compare",
        BASE,
        one,
        "--text",
        tmp_path / "t.txt",
        "--max-length",
        64,
        "--out",
        tmp_path / "r",
    )
    said = f"The weights differ in 1 of {len(copied.tensors)} tensors.\n"
    assert (
        said in err
        and err.index(said) < err.index("scoring")
        and "The weights differ" not in out
    )
    facts = json.loads((tmp_path / "r" / "report.json").read_text())["pairs"][0]["facts"]
    assert (
        facts["weights"] == "different"
        and facts["tensors_changed"] == 1
        and facts["details"][0].startswith("config.json: rope_theta")
    )
    assert (
        "theta was" in (tmp_path / "r" / "report.md").read_text()
        and shell("verify", tmp_path / "r")[0] == 0
    )
    for name, old, new in (
        ("details", "rope_theta", "rope_scale"),
        ("tensors", f'"tensors": {len(copied.tensors)}', '"tensors": 9'),
        ("sentence", "differ in 1 of", "differ in 0 of"),
    ):
        edited = (tmp_path / "r" / "report.json").read_text().replace(old, new)
        d = json.loads(edited)
        d["digest"] = content_digest(d)
        (tmp_path / "e").mkdir(exist_ok=True)
        for file in (tmp_path / "r").glob("*.*"):
            shutil.copy(file, tmp_path / "e")
        (tmp_path / "e" / "report.json").write_text(canonical_text(d), encoding="utf-8")
        for page in ("report.md", "report.html"):
            (tmp_path / "e" / page).unlink()
        assert shell("verify", tmp_path / "e")[0] == 3, name
    found = next(path for path in (tmp_path / "r").glob("candidate.*"))
    assert (
        "1 of" not in shell("compare", found, found, "--out", tmp_path / "s")[1].split("\n")[1]
    ), "it speaks of another pair"


def test_a_file_is_hashed_once_as_long_as_it_stays(copied, tmp_path, monkeypatch):
    folders = [
        copied(name, copied.tensors | {UP: copied.tensors[UP] + k})
        for k, name in enumerate("ab")
    ]
    (tmp_path / "t.txt").write_text("One is odd and two is even. " * 200)
    for path in (files := [folder / "model.safetensors" for folder in folders]):
        os.utime(path, ns=(10**18, 10**18))
    while time.time_ns() - max(path.stat().st_ctime_ns for path in files) < 1.1e9:
        time.sleep(0.1)  # a file that was just written is hashed each time
    read, real = [], hashlib.file_digest
    monkeypatch.setattr(
        hashlib,
        "file_digest",
        lambda file, kind: (read.append(Path(file.name)), real(file, kind))[1],
    )
    shell(
        "compare",
        *folders,
        "--text",
        tmp_path / "t.txt",
        "--max-length",
        64,
        "--device",
        "cpu",
        "--out",
        tmp_path / "r",
    )
    assert sorted(path for path in read if path.suffix == ".safetensors") == files
    before = find_checkpoint(folders[0]).weights_digest
    data = files[0].read_bytes()
    files[0].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(files[0], ns=(10**18, 10**18))
    assert find_checkpoint(folders[0]).weights_digest != before


def test_an_edit_that_can_only_lose_is_recognised(copied):
    "Rounded rows, rounded groups, zeroed elements; not a training step, not one tensor among them that was trained."
    rng = np.random.default_rng(3)

    def rounded(x, bits, size=None):
        rows = x.astype("f4").reshape(-1, size or x.shape[-1])
        step = np.abs(rows).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
        return (np.round(rows / step) * step).reshape(x.shape).astype(x.dtype)

    import torch

    matrices = [
        name
        for name, x in copied.tensors.items()
        if x.ndim == 2 and "proj" in name and x.shape[1] % 32 == 0
    ]

    def edit_of(change, names=matrices):
        return compare_weights(
            BASE,
            copied(
                f"m{rng.integers(1 << 40)}",
                copied.tensors
                | {
                    name: torch.from_numpy(change(copied.tensors[name].numpy()))
                    for name in names
                },
            ),
        ).edit

    assert (
        edit_of(lambda x: rounded(x, 8)) == edit_of(lambda x: rounded(x, 4, 32)) == "quantised"
    )
    assert edit_of(lambda x: np.where(np.abs(x) < 0.02, 0, x).astype(x.dtype)) == "pruned"
    trained = lambda x: (x + rng.normal(0, 1e-3, x.shape)).astype(x.dtype)
    assert (
        edit_of(trained) == ""
        and edit_of(lambda x: rounded(x, 8) if x.shape[0] < 65 else trained(x)) == ""
    )


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_weights_of_large_models_are_compared_only_beside_much_scoring(
    kind, tmp_path, copied, monkeypatch
):
    """Sizes decide, no clock: small models are compared; large ones where a tenth of the scoring suffices; else no tensor is read, which one line says and names the command
    that lists them. Equal weights are found all the same, the report verifies, and `diff` compares as before."""
    from invar_nb.shell import weight_differences as arms_page

    moved = copied("moved", {k: x * 1.01 for k, x in copied.tensors.items()})
    text = tmp_path / "text.jsonl"
    text.write_text(
        "".join(
            json.dumps({"text": f"{k} once upon a time, there were {k} small words. " * 4})
            + "\n"
            for k in range(12)
        )
    )
    base, other = BASE, moved
    if kind == "gguf":
        base, other = (
            write_gguf(folder, tmp_path / f"{name}.gguf", "Q8_0")
            for name, folder in (("base", BASE), ("moved", moved))
        )
    length = text.stat().st_size / 4
    weights_of = lambda *more: arms_page.find_weights(
        {"baseline": str(base), "candidate": str(other)},
        Scoring(text=[str(text)], device="cpu", **dict(more)),
        quiet=True,
    )["candidate"]
    assert (
        weights_of()["state"] == "different" and weights_of()["tensors_changed"] > 0
    )  # small
    monkeypatch.setattr(arms_page, "ALWAYS_COMPARED", 1000)
    fewest = length / (arms_page.PACKED if kind == "gguf" else 1)
    monkeypatch.setattr(arms_page, "FEWEST_TOKENS", fewest)
    assert weights_of()["state"] == "different"
    assert (
        weights_of(("windows", "first:1"), ("max_length", 32))["state"] == "unknown"
    )  # few windows of a long text
    monkeypatch.setattr(arms_page, "FEWEST_TOKENS", fewest * 1.01)
    monkeypatch.setattr(
        weights_page, "compare_tensors", lambda *_: pytest.fail("tensors were compared")
    )
    d = weights_of()
    assert (
        d["state"] == "unknown"
        and d["tensors_changed"] is None
        and d["digests"]["baseline"] != d["digests"]["candidate"]
    )
    assert d["sentence"].endswith(
        "weights were not compared, since that would take long beside the scoring."
    )
    assert str(tmp_path) not in d["sentence"] and "\n" not in d["sentence"]
    same = arms_page.find_weights(
        {"baseline": str(base), "candidate": str(base)},
        Scoring(text=[str(text)], device="cpu"),
        quiet=True,
    )["candidate"]
    assert same["state"] == "identical"
    if kind == "safetensors":
        code, out, err = shell(
            "compare", base, other, "--text", text, "--max-length", 64, "--out", tmp_path / "r"
        )
        assert (
            code in (0, 1)
            and "their tensors were not compared. invar-nb diff BASELINE CANDIDATE lists"
            in (tmp_path / "r/report.md").read_text()
            and shlex.join(["invar-nb", "diff", str(base), str(other)]) in err
        ), (code, out, err)
        assert invar_nb.verify(tmp_path / "r")
    monkeypatch.setattr(weights_page, "compare_tensors", COMPARE_TENSORS)
    assert compare_weights(base, other).state == "different"
    code, out, _ = shell("diff", base, other)
    assert code == 0 and "The weights differ in" in out


def test_that_weights_were_not_compared_is_said_once(tmp_path, monkeypatch, capsys):
    "For all candidates at once, with the command that compares them."
    from invar_nb.shell import weight_differences as arms_page

    (text := tmp_path / "text.txt").write_text("A short text.")
    monkeypatch.setattr(arms_page, "ALWAYS_COMPARED", 1000)
    models = {"baseline": str(BASE)}
    for name in ("q4", "q8", "q2"):
        models[name] = str(shutil.copytree(BASE.parent / "tuned", tmp_path / name))
    scoring = Scoring(text=[str(text)], device="cpu")
    weights = arms_page.find_weights(models, scoring)
    assert {w["state"] for w in weights.values()} == {"unknown"} and len(weights) == 3
    said, command = capsys.readouterr().err.splitlines()
    assert said.startswith("q4, q8, q2: The weight files differ; their ")
    assert said.endswith(" were not compared, since that would take long beside the scoring.")
    pair = shlex.join(["invar-nb", "diff", models["baseline"], models["q4"]])
    assert command == f"{pair} lists what differs, or why not"
    arms_page.find_weights({name: models[name] for name in ("baseline", "q8")}, scoring)
    assert capsys.readouterr().err.startswith("The weight files differ; their ")


def test_scoring_on_a_gpu_buys_less_comparing(monkeypatch):
    "The same text on a device that scores a hundred times faster."
    from invar_nb.shell import weight_differences as arms_page

    monkeypatch.setattr(arms_page, "ALWAYS_COMPARED", 1000)
    monkeypatch.setattr(arms_page, "tokens_to_score", lambda o: 10 * arms_page.FEWEST_TOKENS)
    both = [find_checkpoint(BASE)] * 2
    assert arms_page.reason_to_leave_out(Scoring(device="cpu"), both) == ""
    monkeypatch.setattr(arms_page, "as_device", lambda device: torch.device("cuda"))
    assert "were not compared" in arms_page.reason_to_leave_out(Scoring(device="cpu"), both)


# --- what is looked at only as far as it decides -------------------------------------------------------------------------------------
def stored_tensor(path, values, kind):
    from invar_nb.models.load import Stored

    data = np.asarray(values, {"F16": "<f2", "F32": "<f4"}[kind])
    path.write_bytes(data.tobytes())
    return Stored(
        name="x", kind=kind, shape=data.shape, path=path, offset=0, n_bytes=data.nbytes
    )


@pytest.mark.parametrize("place", [None, 0, 9_999])
@pytest.mark.parametrize("kinds", [("F16", "F32"), ("F32", "F16")])
def test_a_recast_is_told_from_a_change_of_its_last_element(tmp_path, kinds, place):
    "Rounded to half precision all agree; one element that does not, wherever it stands, makes a change."
    fine = np.linspace(1, 2, 10_000, dtype="f4")
    coarse = fine.astype("<f2")
    if kinds[0] == "F16":
        fine = coarse.astype("f4")
    values = {"F32": fine, "F16": coarse}
    other = values[kinds[1]].copy()
    if place is not None:
        other[place] += 0.5
    a = stored_tensor(tmp_path / "a", values[kinds[0]], kinds[0])
    change = COMPARE_TENSORS(a, stored_tensor(tmp_path / "b", other, kinds[1]))
    assert change.recast == (place is None)
    assert change.changed == (place is not None)


@pytest.mark.parametrize("at", [0, 2**20 + 5])
def test_pruned_is_said_only_where_every_change_is_a_zero(tmp_path, at):
    "The first change that is none decides; a later piece cannot make it pruned again."
    x = np.ones(2**20 + 10, "f4")
    y = x.copy()
    y[[1, 2**20 + 1]] = 0
    a = stored_tensor(tmp_path / "a", x, "F32")
    assert COMPARE_TENSORS(a, stored_tensor(tmp_path / "b", y, "F32")).edit == "pruned"
    y[at] = 7
    changed = COMPARE_TENSORS(a, stored_tensor(tmp_path / "b", y, "F32"))
    assert changed.edit != "pruned" and changed.changed == 3


def test_two_nans_are_equal_and_one_is_not(tmp_path):
    x = np.array([1, np.nan, 3], "f4")
    a = stored_tensor(tmp_path / "a", x, "F32")
    assert COMPARE_TENSORS(a, stored_tensor(tmp_path / "b", x.astype("<f2"), "F16")).recast
    b = stored_tensor(tmp_path / "b", [np.nan, np.nan, 3], "F32")
    assert COMPARE_TENSORS(a, b).changed == 1


def test_a_word_that_differs_is_named_and_equal_vocabularies_are_not(tmp_path):
    made = {
        kind: read_gguf(write_gguf(BASE, tmp_path / f"{kind}.gguf", kind))
        for kind in ("F16", "Q8_0")
    }
    assert compare_settings(*made.values()) == []
    other = dict(made["Q8_0"].metadata)
    other["tokenizer.ggml.tokens"] = [*other["tokenizer.ggml.tokens"][:-1], "new"]
    (line,) = compare_settings(made["F16"], replace(made["Q8_0"], metadata=other))
    assert "tokenizer.ggml.tokens" in line and 'is "new"' in line


@pytest.mark.parametrize("typed", ["a=b.jsonl", "quiz=q.jsonl", "q.jsonl"])
def test_a_file_of_questions_may_have_an_equals_sign_in_its_name(tmp_path, monkeypatch, typed):
    from invar_nb.shell import weight_differences as arms_page

    monkeypatch.chdir(tmp_path)
    for name in ("a=b.jsonl", "q.jsonl"):
        Path(name).write_text("x" * 400)
    scoring = Comparing(questions=typed)
    assert arms_page.tokens_to_score(scoring) == 400 / arms_page.BYTES_A_TOKEN
