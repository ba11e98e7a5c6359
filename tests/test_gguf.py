"A GGUF beside its source: F16 loses nothing, the quantised types give a verdict, and what transformers would misread is refused."

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import llama, merged_tokenizer, save, write_gguf
from test_shell import shell

import invar_nb
from invar_nb import compare, pair
from invar_nb.files.losses import read_losses
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.models import load as load_page
from invar_nb.models.load import Stored, load_model, read_gguf
from invar_nb.models.score import score_text

pytest.importorskip("gguf")
BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"
TEXT = [
    "".join(f"Line {i * k} of the file is read before line {i + k}. " for k in range(9))
    for i in range(12)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("gguf")
    (root / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXT))
    for kind in ("F16", "Q8_0", "Q4_0"):
        write_gguf(BASE, root / f"{kind}.gguf", kind)
    return root


def scored(path, **options):
    return score_text(load_model(path, **options), TEXT, max_length=64)


def test_f16_is_its_source_and_fewer_bits_cost_more(made):
    source, got = (
        scored(BASE),
        {
            kind: scored(made / f"{kind}.gguf", tokenizer=BASE)
            for kind in ("F16", "Q8_0", "Q4_0")
        },
    )
    assert {g.data_id for g in got.values()} == {source.data_id}
    assert (got["F16"].log_loss == source.log_loss).all() and got["F16"].provenance[
        "weights_digest"
    ] != source.provenance["weights_digest"]
    change = {kind: np.abs(g.log_loss - source.log_loss).mean() for kind, g in got.items()}
    assert 0 < change["Q8_0"] < change["Q4_0"] / 3 < 0.1
    facts = got["Q4_0"].provenance
    assert (
        facts["weights_format"] == "gguf"
        and facts["gguf"]["types"] == {"F16": 4, "F32": 9, "Q4_0": 25}
        and "activations" in facts["gguf"]["note"]
    )


@pytest.mark.parametrize("kind, codes", [("F16", {0}), ("Q8_0", {0}), ("Q4_0", {0, 1})])
def test_the_shell_gives_a_verdict_on_a_gguf(made, tmp_path, kind, codes):
    "No option more than for a folder: the folder's tokenizer stands in, after its vocabulary is compared with the file's."
    code, out, err = shell(
        "compare",
        BASE,
        made / f"{kind}.gguf",
        "--text",
        made / "t.jsonl",
        "--max-length",
        64,
        "--out",
        tmp_path / "r",
        "--margin",
        "5%",
    )
    assert (
        code in codes
        and out.startswith(
            ("Identical: ",)
            if kind == "F16"
            else ("Equivalent within 5 %", "Worse", "Regressed")
        )
        and "it/s" not in err
    ), (out, err)
    said = (tmp_path / "r" / "summary.md").read_text()
    assert "GGUF weights were dequantised" in said
    assert shell("verify", tmp_path / "r")[0] == 0
    if kind == "F16":
        assert (
            shell(
                "score",
                made / "F16.gguf",
                "--tokenizer",
                BASE,
                "--text",
                made / "t.jsonl",
                "--max-length",
                64,
                "--out",
                tmp_path / "l.jsonl",
            )[0]
            == 0
        )
        assert (read_losses(tmp_path / "l.jsonl").log_loss == scored(BASE).log_loss).all()


def test_saved_quants_are_compared_as_the_models_they_hold(made, tmp_path):
    "Sizes, the smallest, and the bytes of each file as they were."
    line = ["--text", made / "t.jsonl", "--max-length", 64, "--margin", "5%", "--out"]
    sizes = {}
    for kind in ("Q8_0", "Q4_0"):
        model = made / f"{kind}.gguf"
        assert shell("compare", BASE, model, *line, tmp_path / f"gate-{kind}")[0] == 0
        sizes[kind] = f"{model.stat().st_size / 1e3:.3g} kB"
    files = [tmp_path / f"gate-{kind}" / "candidate.parquet" for kind in sizes]
    baseline = tmp_path / "gate-Q8_0" / "baseline.parquet"
    _, out, _ = shell("compare", baseline, *files, "--margin", "5%", "--out", tmp_path / "all")
    first, _, head, *rows = out.splitlines()
    assert f"Smallest that is not worse by the margin: Q4_0 ({sizes['Q4_0']})." in first, out
    assert head.split()[0] == "size" and rows[0].startswith("baseline"), out
    for row, kind in zip(rows[1:3], sizes, strict=True):
        assert row.startswith(kind) and sizes[kind] in row, out
    for file, kind in zip(files, sizes, strict=True):
        assert (tmp_path / "all" / f"{kind}.parquet").read_bytes() == file.read_bytes()
    assert shell("verify", tmp_path / "all")[0] == 0


def packed_tensor(path, kind, shape, seed=0):
    "A file that holds one packed tensor behind 32 bytes, where it stands, and its numbers as the package gguf has them."
    import gguf

    numbers = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    packed = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    path.write_bytes(bytes(32) + packed.tobytes())
    stored = Stored(
        name="x", kind=kind, shape=shape, path=path, offset=32, n_bytes=packed.nbytes
    )
    return stored, gguf.dequantize(packed, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("shape", [(64,), (7, 64), (3, 5, 64)])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("at_once", [1, 128, 2**20])
def test_a_tensor_is_dequantised_in_parts_as_in_one(
    tmp_path, monkeypatch, kind, shape, at_once
):
    stored, whole = packed_tensor(tmp_path / "x.bin", kind, shape)
    monkeypatch.setattr(load_page, "DEQUANTISED", at_once)
    numbers = load_page.dequantised(stored)
    assert numbers.dtype == np.float32 and numbers.flags.writeable and numbers.shape == shape
    np.testing.assert_array_equal(numbers, whole.reshape(shape))


def test_a_large_tensor_stands_in_memory_once(tmp_path):
    "Its numbers, its packed bytes and little more; joining parts of it would take its numbers twice."
    import tracemalloc

    stored, _ = packed_tensor(tmp_path / "x.bin", "Q8_0", (8192, 1024))
    tracemalloc.start()
    numbers = load_page.dequantised(stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.25 * (numbers.nbytes + stored.n_bytes)


def test_the_files_own_tokenizer(tmp_path):
    "A byte-level BPE with merges needs no folder; ids are those of the source on text that its own splitting does not cut elsewhere."
    words = merged_tokenizer()
    save(llama(len(words), tied=True), tmp_path / "m", words)
    merges = [
        " ".join(m)
        for m in json.loads((tmp_path / "m" / "tokenizer.json").read_text())["model"]["merges"]
    ]
    loaded = load_model(write_gguf(tmp_path / "m", tmp_path / "m.gguf", "F32", merges))
    assert loaded.tokenizer("the cat sat")["input_ids"] == words("the cat sat")["input_ids"]
    assert loaded.max_length == 40 and loaded.name == "m.gguf"


def test_words_are_cut_as_the_merges_were_learned(tmp_path):
    "SmolLM2 learned its merges with every digit apart: '\\n\\n1' was one token more than llama.cpp reads, and every later one stood elsewhere."
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.trainers import BpeTrainer

    source = Tokenizer(models.BPE())
    source.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    source.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    source.train_from_iterator(
        ["the list:\n\n12. End\n\n34. "] * 4,
        BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False),
    )
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=source)
    save(llama(len(words), tied=True), tmp_path / "m", words)
    merges = [
        " ".join(m)
        for m in json.loads((tmp_path / "m" / "tokenizer.json").read_text())["model"]["merges"]
    ]
    text = "the list:\n\n12. End"
    read = {
        rule: load_model(
            write_gguf(tmp_path / "m", tmp_path / f"{rule}.gguf", "F16", merges, rule)
        )
        for rule in ("smollm", "gpt-2", "unheard-of")
    }
    ids = {rule: model.tokenizer(text)["input_ids"] for rule, model in read.items()}
    assert (
        ids["smollm"] == words(text)["input_ids"]
        and len(ids["gpt-2"]) == len(ids["unheard-of"]) == len(ids["smollm"]) + 1
    )
    assert {
        rule: model.provenance["gguf"].get("unknown_splitting") for rule, model in read.items()
    } == {"smollm": None, "gpt-2": None, "unheard-of": "unheard-of"}
    given = load_model(
        tmp_path / "unheard-of.gguf", tokenizer=tmp_path / "m"
    )  # the folder's words are cut by the folder's rule
    gpt2 = load_model(
        write_gguf(BASE, tmp_path / "base.gguf", "F16"), tokenizer=BASE
    )  # by name "default", which is not known either
    assert (
        "unknown_splitting" not in given.provenance["gguf"]
        and "unknown_splitting" not in gpt2.provenance["gguf"]
    )
    arms = [
        score_text(read["unheard-of"], [text * k for k in (2, 3, 4)], max_length=20)
        for _ in range(2)
    ]
    warnings = compare(pair(*arms)).report().document()["warnings"]
    assert [
        line.split(" file cuts words by 'unheard-of'")[0]
        for line in warnings
        if "cuts words" in line
    ] == ["The baseline's", "The candidate's"]


def test_what_is_refused(made, tmp_path):
    def refused(path, words, error=ContractError, **options):
        with pytest.raises(error, match=words) as caught:
            load_model(path, **options)
        assert "\n" not in str(caught.value)

    whole = (made / "Q4_0.gguf").read_bytes()
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(tmp_path / "pointer.gguf", "a GGUF file must be whole.*or no GGUF")
    refused(made / "Q4_0.gguf", "tokenizer in .* must load.*Name the folder")
    refused(tmp_path, "config.json.*Name the file in it, such as pointer.gguf")
    other = tmp_path / "other"
    shutil.copytree(BASE, other)
    words = json.loads((other / "tokenizer.json").read_text())
    words["model"]["vocab"] = {w: 255 - i for w, i in words["model"]["vocab"].items()}
    (other / "tokenizer.json").write_text(json.dumps(words))
    refused(
        made / "Q4_0.gguf",
        "the file's vocabulary; got 256 of 256 ids",
        PairingError,
        tokenizer=other,
    )
    short = whole.replace(b"blk.3.ffn_up.weight", b"blk.9.ffn_up.weight")
    (tmp_path / "short.gguf").write_bytes(short)
    refused(
        tmp_path / "short.gguf",
        "every weight the config asks for; got missing model.layers.3.mlp.up_proj.weight",
        tokenizer=BASE,
    )


def test_every_cut_and_every_changed_byte_of_a_header_is_read_or_refused(made, tmp_path):
    whole, rng, path = (
        (made / "Q4_0.gguf").read_bytes(),
        np.random.default_rng(3),
        tmp_path / "x.gguf",
    )
    head = whole.index(b"blk.3.") + 600
    for k in range(300):
        data = bytearray(whole)
        if k % 3:
            data[rng.integers(4, head)] = rng.integers(256)
        else:
            data = data[: rng.integers(4, head)]
        path.write_bytes(data)
        try:
            read_gguf(path)
        except ContractError as error:
            assert str(error).startswith("read_gguf: x.gguf: ") and error.code == "damaged"


def test_accelerate_is_not_needed(made):
    "transformers refuses to open a GGUF without it; ours loads, and compares weights, without it."
    lines = (
        "import sys",
        "sys.modules['accelerate'] = None",
        "from invar_nb import compare_weights, load_model",
        "files = sys.argv[1:3]",
        "print(load_model(files[0], tokenizer=sys.argv[3]).name, compare_weights(*files).state)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), made / "Q4_0.gguf", made / "Q8_0.gguf", BASE],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["Q4_0.gguf", "different"], done.stderr


def test_other_libraries_read_a_short_header_only(tmp_path, monkeypatch):
    "The package gguf makes arrays of each word of a vocabulary: it gets a copy without them, and the model is that of the whole file."
    import gguf
    import transformers

    words = merged_tokenizer()
    save(llama(len(words), tied=True), tmp_path / "m", words)
    merges = [
        " ".join(m)
        for m in json.loads((tmp_path / "m" / "tokenizer.json").read_text())["model"]["merges"]
    ]
    path = write_gguf(tmp_path / "m", tmp_path / "m.gguf", "F16", merges)
    monkeypatch.setattr(
        "transformers.modeling_utils.is_accelerate_available", lambda: True
    )  # it asks, and uses nothing of it
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype="float32"
    )
    their_words = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)

    read, reader = [], gguf.GGUFReader

    class Watched(reader):
        def __init__(self, name, *more):
            read.append(Path(name).resolve())
            super().__init__(name, *more)

    monkeypatch.setattr(gguf, "GGUFReader", Watched)
    monkeypatch.setattr("invar_nb.files.gguf_header.LONG_LIST", 10)
    loaded = load_model(path)
    assert path.resolve() not in read, read
    ours, tensors = loaded.model.state_dict(), theirs.state_dict()
    assert ours.keys() == tensors.keys() and all(
        (ours[name] == tensors[name]).all() for name in tensors
    )
    assert loaded.model.config.vocab_size == theirs.config.vocab_size
    assert (
        type(loaded.tokenizer) is type(their_words)
        and loaded.tokenizer.get_vocab() == their_words.get_vocab()
    )
    assert loaded.tokenizer("the cat sat").input_ids == their_words("the cat sat").input_ids


@pytest.mark.parametrize(
    "edit, words",
    [
        (lambda data: data[:4] + b"\0\0\0\3" + data[8:], "it is big-endian"),
        (
            lambda data: data[:16] + (2**62).to_bytes(8, "little") + data[24:],
            "the file ends where byte",
        ),
        (
            lambda data: data.replace(b"blk.3.ffn_up.weight", b"blk.2.ffn_up.weight"),
            "'blk.2.ffn_up.weight' occurs twice",
        ),
    ],
    ids=["order", "count", "twice"],
)
def test_a_header_that_lies_is_refused(made, tmp_path, edit, words):
    (tmp_path / "x.gguf").write_bytes(edit((made / "Q4_0.gguf").read_bytes()))
    with pytest.raises(ContractError, match=words):
        read_gguf(tmp_path / "x.gguf")


def test_an_empty_prompt_is_refused_before_a_gguf_is_loaded(tmp_path):
    "The tokenizer of a GGUF was known only with its model, which takes a minute to load."
    words = merged_tokenizer()
    save(llama(len(words), tied=True), tmp_path / "m", words)
    stored = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    merges = [" ".join(pair) for pair in stored["model"]["merges"]]
    path = write_gguf(tmp_path / "m", tmp_path / "m.gguf", "F16", merges)
    row = {"id": 1, "prompt": "", "candidates": ["a", "b"], "label": 0}
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n")
    code, _, err = shell("compare", path, path, "--questions", tmp_path / "q.jsonl")
    assert code == 3 and "token to start from" in err and "loading" not in err, err
