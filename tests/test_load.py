"What is loaded is what was hashed: whole, causal, and of its own folder."

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from small_models import (
    DENSE,
    HYBRIDS,
    LONGROPE,
    ROBERTAS,
    TEXT,
    ZOO,
    byte_tokenizer,
    gpt2,
    llama,
    make,
    save,
    torch,
    transformers,
)

from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.models import load
from invar_nb.models.load import (
    checksum,
    config_digest,
    find_checkpoint,
    load_model,
    load_tokenizer,
    most_numbers,
    positions,
)
from invar_nb.models.score import score_text
from invar_nb.models.text import check_same_tokenizer

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in (("gpt2", gpt2(257)), ("llama", llama(257, tied=True))):
        save(model, root / name)
    return root


@pytest.fixture
def copied(saved, tmp_path):
    shutil.copytree(saved / "llama", tmp_path / "copy")
    return tmp_path / "copy"


def edit_config(folder, **change):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def refused(folder, words, **options):
    with pytest.raises(ContractError, match=words) as caught:
        load_model(folder, **options)
    assert "\n" not in str(caught.value)
    return caught.value


# --- digests --------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "edit",
    [
        lambda w: w[0].mul_(1.0001),
        lambda w: w.copy_(w.flip(0)),
        lambda w: w[1].zero_(),
        lambda w: w.neg_(),
    ],
)
def test_an_edit_after_loading_is_noticed(saved, edit):
    loaded = load_model(saved / "llama")
    loaded.check_unedited("here")
    edit(loaded.model.model.layers[0].mlp.up_proj.weight.data)
    with pytest.raises(ContractError, match="here: .*llama with changed tensors") as caught:
        loaded.check_unedited("here")
    assert caught.value.code == "edited" and checksum(loaded.model) != loaded.checksum


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrid_models_load_and_have_a_digest(tmp_path, name):
    "Their configs hold infinity (time_step_limit), which JSON does not have; another limit is another digest."
    model = make(name)
    assert (
        model.config.time_step_limit[1] == float("inf")
        if hasattr(model.config, "time_step_limit")
        else True
    )
    loaded = load_model(save(model, tmp_path / name))
    assert loaded.provenance["config_digest"] == config_digest(
        load_model(tmp_path / name).model.config
    )
    edit_config(tmp_path / name, time_step_limit=[0.0, 0.5])
    assert (
        load_model(tmp_path / name).provenance["config_digest"]
        != loaded.provenance["config_digest"]
    )


# --- folders that are refused -----------------------------------------------------------------------------------------------------------
def test_a_config_that_asks_for_more_than_the_files_hold(copied, monkeypatch):
    "Refused from the header's shapes: the weights are never allocated."
    edit_config(copied, hidden_size=8192, intermediate_size=28672, num_hidden_layers=4)
    monkeypatch.setattr(load, "_load_weights", lambda *a: pytest.fail("allocated"))
    assert (
        refused(
            copied,
            r"ask for more weights than the files hold; got 2,8\d\d,\d+,\d+ for \d+,\d+ in copy",
        ).code
        == "config_too_large"
    )
    (copied / "config.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    )  # the defaults: 6.7e9 numbers
    assert refused(copied, "than the files hold").code == "config_too_large"


@pytest.mark.parametrize("name", ["gpt2", *ZOO])
def test_no_architecture_looks_too_large(tmp_path, name):
    "Numbers counted on the meta device are at most twice those of the saved files, tied tables included."
    model = gpt2() if name == "gpt2" else make(name)
    model.save_pretrained(tmp_path)
    with torch.device("meta"):
        asked = sum(
            p.numel()
            for p in transformers.AutoModelForCausalLM.from_config(model.config).parameters()
        )
    held = most_numbers(find_checkpoint(tmp_path))
    assert asked <= 2 * held and held <= most_numbers(
        find_checkpoint(tmp_path), quantized=True
    )


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda d: (d / "config.json").unlink(), "must hold config.json"),
        (lambda d: (d / "config.json").write_text("{"), "the config in copy must load"),
        (lambda d: (d / "model.safetensors").unlink(), "must hold its weights"),
        (
            lambda d: (d / "model.safetensors").write_bytes(
                (d / "model.safetensors").read_bytes()[:-9]
            ),
            "in copy must load; got SafetensorError",
        ),
        (
            lambda d: (d / "model.safetensors").write_bytes(b""),
            "the weights in copy must load",
        ),
        (
            lambda d: (d / "model.safetensors").write_text(
                "version https://git-lfs.github.com/spec/v1\n"
            ),
            "the weights in copy must load.*a Git LFS pointer",
        ),
        (
            lambda d: ((d / "model.safetensors").unlink(), (d / "model.safetensors").mkdir()),
            r"copy/model.safetensors, a folder",
        ),
        (
            lambda d: (
                (d / "model.safetensors").unlink(),
                (d / "model.safetensors").symlink_to("nowhere"),
            ),
            r"the file must exist; got .*copy/model.safetensors",
        ),
        (
            lambda d: ((d / "model.safetensors").unlink(), os.mkfifo(d / "model.safetensors")),
            r"copy/model.safetensors, a pipe",
        ),
        (
            lambda d: (d / "tokenizer.json").unlink(),
            "the tokenizer in copy must load.*Name the folder that has its files",
        ),
        (
            lambda d: edit_config(d, num_hidden_layers=3),
            r"must hold every weight the config asks for; got missing model.layers.2.\S+ \(9 in all\)",
        ),
        (
            lambda d: edit_config(d, vocab_size=300),
            r"got mismatched model.embed_tokens.weight \[257, 24\] for \[300, 24\] \(1 in all\)",
        ),
        (
            lambda d: edit_config(d, max_position_embeddings="64"),
            "the config in copy must load",
        ),
        (
            lambda d: edit_config(d, transformers_weights="other.safetensors"),
            "must not name weights or code elsewhere; got 'other.safetensors'",
        ),
        (
            lambda d: edit_config(d, model_type="t5", is_encoder_decoder=True),
            "the model must be causal",
        ),
        (
            lambda d: edit_config(d, architectures=["LlamaForSequenceClassification"]),
            "the model must be causal; got LlamaForSequenceClassification",
        ),
        (
            lambda d: edit_config(d, model_type="clip", architectures=["CLIPModel"]),
            "the model must be causal",
        ),
        (
            lambda d: (d / "adapter_config.json").write_text("{}"),
            "adapter_config.json in copy. Merge the adapter",
        ),  # with peft installed, transformers would load another model
        (
            lambda d: (
                (d / "adapter_config.json").write_text("{}"),
                (d / "config.json").unlink(),
            ),
            "not an adapter.*Merge the adapter",
        ),
        (
            lambda d: (d / "model.safetensors.index.json").write_text(
                '{"weight_map": {"x": "model.safetensors"}}'
            ),
            "one layout.*Delete",
        ),
    ],
)
def test_damaged_folders_are_refused(copied, spoil, words):
    spoil(copied)
    error = refused(copied, words)
    assert not re.search(
        r"load_model\(|tokenizer=|force it", str(error)
    )  # a cure is words, not Python


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": {"x": "../model.safetensors"}},
        {"weight_map": {"x": "/etc/passwd"}},
        {"weight_map": {"x": ".."}},
        {"weight_map": {"x": 3}},
        {"weight_map": {"x": "sub\\m.safetensors"}},
        {"weight_map": {"x": "pytorch_model.bin"}},
        {"weight_map": ["model.safetensors"]},
        ["a"],
        {"weight_map": {}},
        {},
    ],
)
def test_an_index_names_plain_files_in_its_folder(copied, index):
    (copied / "model.safetensors").rename(copied / "m.safetensors")
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(copied, "index")


def test_shards(saved, tmp_path):
    model = load_model(saved / "llama").model
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    byte_tokenizer().save_pretrained(tmp_path / "shards")
    shards = sorted((tmp_path / "shards").glob("model-*.safetensors"))
    assert len(shards) > 1 and most_numbers(find_checkpoint(tmp_path / "shards")) == sum(
        p.numel() for p in model.parameters()
    )
    assert (
        score_text(load_model(tmp_path / "shards"), TEXT).log_loss.tolist()
        == score_text(load_model(saved / "llama"), TEXT).log_loss.tolist()
    )
    shards[1].unlink()
    refused(
        tmp_path / "shards", f"every shard named by the index must exist; got {shards[1].name}"
    )


@pytest.mark.parametrize(
    "path, words",
    [
        ("./nowhere", "a model must be a folder"),
        ("no such/id at all", "a model must be a folder"),
        ("", "a model must be a folder"),
        ("nobody/nothing", "hub id that can be reached"),
        (__file__, "Name the folder, not a file in it"),
    ],
)
def test_models_that_are_not_there(path, words):
    refused(path, words)
    with pytest.raises(UsageError, match="a tokenizer must be a folder"):
        load_tokenizer(path or __file__)


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "a model must be a folder")


# --- code and pickles -------------------------------------------------------------------------------------------------------------------
def test_a_pickle_is_not_opened(copied):
    "The file would leave a mark if it were."
    (copied / "model.safetensors").unlink()
    mark = copied / "mark"
    (copied / "pytorch_model.bin").write_bytes(
        b"cbuiltins\nopen\n(V" + str(mark).encode() + b"\nVw\ntR."
    )
    assert (
        refused(
            copied,
            "a pickle can run any program; got pytorch_model.bin.*say allow_pickle=True",
        ).code
        == "pickle"
    )
    assert not mark.exists()
    (copied / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(40_000))
    refused(copied, "the weights in copy must load", allow_pickle=True)


def test_a_pickle_is_read_when_allowed(saved, copied):
    state = load_model(saved / "llama").model.state_dict()
    (copied / "model.safetensors").unlink()
    torch.save(state, copied / "pytorch_model.bin")
    loaded = load_model(copied, allow_pickle=True)
    assert (
        loaded.provenance["weights_format"] == "pickle"
        and loaded.provenance["allow_pickle"] is True
    )
    assert (
        score_text(loaded, TEXT).log_loss.tolist()
        == score_text(load_model(saved / "llama"), TEXT).log_loss.tolist()
    )


REMOTE = "from transformers import {0}Config, {0}ForCausalLM\nclass MyConfig({0}Config): model_type = 'mine'\nclass MyModel({0}ForCausalLM): config_class = MyConfig\n"


def test_remote_code_is_not_run_unless_allowed_and_then_hashed(copied, monkeypatch, tmp_path):
    monkeypatch.setattr(
        transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    mark = copied / "mark"
    (copied / "mine.py").write_text(
        REMOTE.format("Llama") + f"open({str(mark)!r}, 'w').close()\n"
    )
    edit_config(
        copied,
        model_type="mine",
        auto_map={"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"},
    )
    assert (
        refused(copied, "read it, then give --trust-remote-code").code == "remote_code"
        and not mark.exists()
    )
    loaded = load_model(copied, trust_remote_code=True)
    assert (
        mark.exists()
        and loaded.provenance["code_digest"] == find_checkpoint(copied).code_digest
        and loaded.provenance["trust_remote_code"] is True
    )
    before = loaded.provenance["code_digest"]
    (copied / "mine.py").write_text(REMOTE.format("Llama"))
    assert find_checkpoint(copied).code_digest != before
    edit_config(
        copied,
        auto_map={
            "AutoConfig": "mine.MyConfig",
            "AutoModelForCausalLM": "else/where--mine.MyModel",
        },
    )
    refused(copied, "must not name weights or code elsewhere", trust_remote_code=True)


# --- the rest of it ---------------------------------------------------------------------------------------------------------------------
def test_positions():
    assert (
        positions(gpt2()) == positions(llama()) == positions(make("longrope")) == 40
        and positions(make("mamba")) is positions(make("bloom")) is None
    )
    assert {name: positions(make(name)) for name in ROBERTAS} == dict.fromkeys(
        ROBERTAS, 40
    )  # of 42 rows
    bert = transformers.BertLMHeadModel(
        transformers.BertConfig(**DENSE | {"num_key_value_heads": None}, is_decoder=True)
    )
    assert positions(bert) == 40 and LONGROPE["original_max_position_embeddings"] == 16


def test_dtypes_and_devices(saved, tmp_path):
    half = load_model(saved / "llama", dtype="float16")
    assert half.provenance["dtype"] == "float16"
    loaded = load_model(
        save(half.model, tmp_path / "half")
    )  # half-precision checkpoints are widened on a CPU
    assert loaded.provenance["dtype"] == "float32" and torch.equal(
        loaded.model.model.embed_tokens.weight, half.model.model.embed_tokens.weight.float()
    )
    refused(saved / "llama", "dtype must be one of", dtype="int8")
    for device in ("cuda:77", "toaster"):
        with pytest.raises(UsageError, match="the device must be available"):
            load_model(saved / "llama", device=device)


def test_extra_weights_are_recorded_and_said(copied):
    "A head of another task is no part of the model; a report says that it is there."
    from safetensors.torch import load_file, save_file

    state = load_file(copied / "model.safetensors") | {
        "score.weight": torch.zeros(2, 24),
        "vision.layers.7.weight": torch.zeros(2),
    }
    save_file(state, copied / "model.safetensors", {"format": "pt"})
    loaded = load_model(copied)
    assert loaded.provenance["unexpected_weights"] == [
        "score.weight",
        "vision.layers.7.weight",
    ]
    said = (
        compare(pair(score_text(loaded, TEXT), score_text(loaded, TEXT)))
        .report()
        .document()["warnings"]
    )
    assert [
        f"The {name}'s files hold weights that the model does not use, as score.weight."
        for name in ("baseline", "candidate")
    ] == [line for line in said if "does not use" in line]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(
    "layers, said",
    [
        (
            1,
            r"ask for every layer that the files hold; got \d+ tensors of more layers, first \S+\.1\.\S+, in copy",
        ),
        (0, "at least 1; got 0 in copy"),
        (-1, "at least 1; got -1 in copy"),
    ],
)
def test_layers_that_would_be_left_out_are_refused(saved, tmp_path, kind, layers, said):
    "A config with fewer layers was scored, with the other layers' weights ignored."
    copied = tmp_path / "copy"
    shutil.copytree(saved / kind, copied)
    edit_config(copied, **{"n_layer" if kind == "gpt2" else "num_hidden_layers": layers})
    assert refused(copied, said).code == "config_too_small"


def test_a_package_that_is_missing_is_not_damage(copied):
    edit_config(copied, quantization_config={"quant_method": "gptq", "bits": 4})
    if importlib.util.find_spec("optimum") is None:
        assert (
            refused(copied, "requires optimum .*Install the package that the line names").code
            == "not_installed"
        )


def test_layers_for_later_tokens_are_no_part_of_the_model(copied):
    edit_config(copied, num_hidden_layers=1, num_nextn_predict_layers=1)
    assert load_model(copied).provenance["unexpected_weights"][0].startswith("model.layers.1.")


def test_one_tokenizer_for_both_arms(saved, copied):
    (copied / "tokenizer.json").unlink()
    check_same_tokenizer(
        load_model(saved / "llama"), load_model(copied, tokenizer=saved / "gpt2")
    )


def test_a_hub_id_from_the_local_cache(saved, tmp_path, monkeypatch):
    "A snapshot that was downloaded before: found offline, its commit recorded."
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789" * 4
    shutil.copytree(
        saved / "llama", tmp_path / "models--someone--something" / "snapshots" / commit
    )
    (tmp_path / "models--someone--something" / "refs").mkdir()
    (tmp_path / "models--someone--something" / "refs" / "main").write_text(commit)
    loaded = load_model("someone/something")
    assert (
        loaded.name == "someone/something"
        and loaded.provenance["commit"] == commit
        and loaded.weights_digest == load_model(saved / "llama").weights_digest
    )
    assert refused(
        "nobody/nothing", "it was not downloaded before, and the hub was not reached"
    )
    assert (
        refused("someone/something", "hub id that can be reached", revision="v2").code
        == "unreachable"
    )


def test_loading_is_quiet_and_restores_what_it_changed(saved, capfd):
    log = transformers.utils.logging
    log.set_verbosity_warning()
    log.enable_progress_bar()
    try:
        load_model(saved / "llama")
        assert log.get_verbosity() == log.WARNING and log.is_progress_bar_enabled()
    finally:
        log.disable_progress_bar()
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


def test_too_little_memory_is_said_so(saved, monkeypatch):
    def full(*a, **k):
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 24 GB"
        )

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", full)
    assert refused(saved / "llama", "Use a machine with more memory").code == "memory"


def test_a_folder_needs_no_network(saved):
    code = (
        "import socket, sys\ndef no(*a, **k): raise SystemExit('network')\nsocket.getaddrinfo = no; socket.socket.connect = no\n"
        "from invar_nb.models.load import load_model; print(load_model(sys.argv[1]).name)"
    )
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    }
    done = subprocess.run(
        [sys.executable, "-c", code, saved / "llama"], capture_output=True, text=True, env=env
    )
    assert done.stdout == "llama\n", done.stderr[-2000:]


def test_the_pages_load_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import invar_nb.models.score; from invar_nb.models.load import load_model; assert 'transformers' not in sys.modules\n"
        "try: load_model('x')\nexcept ValueError as e: print(e.code, e)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert (
        said
        == "not_installed load_model: models need torch and transformers; got no torch. In the clone: pip install '.[hf]'.\n"
    )
