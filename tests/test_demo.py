"The demo across rooms: shipped files, held-out text, the quantiser against torch, a whole run, its rerun and its refusals."
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import invar_nb
from invar_nb import ContractError, pair, compare, judge, read_losses, verify
from invar_nb.foundations.numbers import digest
from invar_nb.statement import demo

shipped = Path(invar_nb.__file__).parent / "demo_models"
needs_torch = pytest.mark.skipif(not all(__import__("importlib.util").util.find_spec(name) for name in ("torch", "transformers")),
                                 reason="scoring needs torch and transformers")


# ---- what is shipped

def test_shipped_files_are_the_recorded_ones_and_small():
    record = demo.training_record()
    files = {f"{path.parent.name}/{path.name}": digest(path.read_bytes()) for path in sorted(shipped.glob("*/*"))}
    assert files == record["files"]
    assert {name.split("/")[0] for name in files} == {"early", "late"}
    assert sum(path.stat().st_size for path in shipped.rglob("*") if path.is_file()) < 1.5e6
    assert len(record["lines"]) == len(set(record["lines"])) and record["lines"] == sorted(record["lines"])


def test_weights_are_half_precision_and_readable_by_all():
    for name in ("early", "late"):
        path = demo.demo_model(name) / "model.safetensors"
        head = path.read_bytes()
        size = int.from_bytes(head[:8], "little")
        tensors = {key: value for key, value in json.loads(head[8 : 8 + size]).items() if key != "__metadata__"}
        assert {value["dtype"] for value in tensors.values()} == {"F16"}
        assert sum(int(np.prod(value["shape"])) for value in tensors.values()) == demo.training_record()["parameters"] == 201280
        assert path.stat().st_mode & 0o444 == 0o444


def test_package_data_reaches_the_manifest():
    manifest = Path(invar_nb.__file__).parent.parent / "MANIFEST.in"
    if not manifest.is_file():
        pytest.skip("installed, not a checkout")
    suffixes = {path.suffix for path in shipped.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}
    assert all(f"*{suffix}" in manifest.read_text() for suffix in suffixes)


def test_demo_model_names_the_nearest():
    with pytest.raises(ContractError, match="late"):
        demo.demo_model("latest")


# ---- the held-out text

def test_no_line_of_the_held_out_text_was_trained_on():
    held_out, trained = demo.held_out_text(), set(demo.training_record()["lines"])
    lines = {line for text in held_out.texts for block in demo.paragraphs(text) for line in demo.text_lines(block)}
    assert len(lines) > 1000 and trained.isdisjoint(map(demo.line_digest, lines))
    assert held_out.n_bytes > 70_000 and all(map(demo.is_held_out, held_out.names))


def test_the_rule_would_have_found_a_leak():
    line = demo.text_lines(demo.held_out_text().texts[0])[0]
    with_leak = frozenset([*demo.training_record()["lines"], demo.line_digest(line)])
    assert demo.held_out_text(trained=with_leak).trained_on >= 1


def test_held_out_text_is_the_same_twice_and_no_paragraph_stands_twice():
    once = demo.held_out_text()
    assert once == demo.held_out_text()
    blocks = [demo.text_lines(block) for text in once.texts for block in demo.paragraphs(text)]
    assert len(blocks) == len(set(blocks))


def test_held_out_names_do_not_depend_on_the_text():
    from pydoc_data.topics import topics
    assert [name for name in sorted(topics) if demo.is_held_out(name)] == [
        name for name in sorted({name: "other words" for name in topics}) if demo.is_held_out(name)]
    share = np.mean([demo.is_held_out(f"name {k}") for k in range(4000)])
    assert abs(share - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 4000)
    assert not any(demo.is_held_out(f"name {k}", 0.0) for k in range(100))


# ---- the quantiser

@pytest.mark.parametrize("bits", range(2, 9))
def test_quantise_is_the_nearest_level(bits):
    weight = np.random.default_rng(bits).standard_t(3, size=(7, 50))
    got = demo.quantise(weight, bits=bits)
    top = 2 ** (bits - 1) - 1
    levels = np.arange(-top, top + 1)
    for row, step, values in zip(weight, got.step, got.values, strict=True):  # brute force: try every level
        best = np.abs(row[:, None] - levels * step).min(axis=1)
        np.testing.assert_allclose(np.abs(row - values), best, atol=1e-15)
    assert got.integers.dtype == np.int8 and np.abs(got.integers).max() == top


def test_quantise_is_symmetric_scales_and_treats_rows_alone():
    weight = np.random.default_rng(0).normal(size=(5, 40))
    one = demo.quantise(weight, bits=4)
    np.testing.assert_array_equal(demo.quantise(-weight, bits=4).integers, -one.integers)
    np.testing.assert_array_equal(demo.quantise(8 * weight, bits=4).integers, one.integers)
    np.testing.assert_array_equal(demo.quantise(weight[2:3], bits=4).integers[0], one.integers[2])
    np.testing.assert_array_equal(demo.quantise(one.values, bits=4).integers, one.integers)


@pytest.mark.parametrize("weight, bits, words", [
    (np.ones((2, 2)), 9, "bits must be 2 to 8"), (np.ones((2, 2)), 1, "bits"), (np.ones((2, 2)), True, "bits"),
    (np.ones(3), 8, "matrix"), (np.ones((0, 3)), 8, "matrix"), (np.array([[1, np.inf]]), 8, r"inf at \[0, 1\]")])
def test_quantise_refuses(weight, bits, words):
    with pytest.raises(ContractError, match=words):
        demo.quantise(weight, bits=bits)


@needs_torch
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_quantised_copy_rounds_linear_weights_only(kind, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
    source = demo.demo_model("late")
    if kind == "gpt2":
        torch.manual_seed(0)
        small = GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
        GPT2LMHeadModel(small).save_pretrained(tmp_path / "source")
        AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "source")
        source = tmp_path / "source"
    error = demo.quantised_copy(source, tmp_path / "copy", bits=4)
    old, new = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict() for path in (source, tmp_path / "copy"))
    assert old.keys() == new.keys() and error.moved > 0.8 * error.weights
    rounded = 0
    for name, before in old.items():
        linear = ("proj" in name or "c_attn" in name or "c_fc" in name) and name.endswith("weight")
        if linear:
            axis = 1 if kind == "llama" else 0  # GPT-2 stores inputs x outputs
            step = before.abs().amax(dim=axis, keepdim=True).double() / 7
            torch.testing.assert_close(new[name], (torch.round(before.double() / step) * step).float(), rtol=1e-6, atol=0)
            rounded += before.numel()
        else:
            assert torch.equal(before, new[name]), name
    assert rounded == error.weights


# ---- a whole run

@pytest.fixture(scope="module")
def result(tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    lines, seen = [], {}
    def progress(label):
        return lambda done, total: seen.__setitem__(label.strip(), (done, total))
    found = demo.run_demo(tmp_path_factory.mktemp("demo") / "out", echo=lines.append, progress=progress)
    found.__dict__["lines"], found.__dict__["seen"] = lines, seen
    return found


def test_every_row_follows_from_its_loss_files(result):
    assert [row.name for row in result.rows] == list(demo.PAIRS)
    for row in result.rows:
        arms = [read_losses(next(row.report.parent.glob(f"{arm}.*"))) for arm in ("baseline", "candidate")]
        assert (arms[0].model, arms[1].model) == demo.PAIRS[row.name] == (row.baseline, row.candidate)
        comparison = compare(pair(*arms))
        assert (comparison.ratio, comparison.ratio_interval) == (row.ratio, row.interval)
        assert (judge(comparison).verdict, judge(comparison).noise_kind) == (row.verdict, row.noise_kind)
        assert verify(row.report).comparison.ratio == row.ratio
        assert sum(split == "preview" for split in arms[0].split) == sum(split == "final" for split in arms[0].split) >= 180


def test_each_window_scores_each_byte_once(result):
    losses = read_losses(next(result.rows[0].report.parent.glob("baseline.*")))
    total = sum(len(text.encode()) - 1 for text in result.held_out.texts)
    assert total - 256 < int(np.sum(losses.tokens)) <= total  # an odd last window stays out


def test_every_byte_after_the_first_window_has_half_a_window_of_context(result):
    losses = read_losses(next(result.rows[0].report.parent.glob("baseline.*")))
    first = [i == 0 or losses.document_ids[i] != losses.document_ids[i - 1] for i in range(len(losses))]
    length = {"max_length": losses.provenance["max_length"], "stride": losses.provenance["stride"]}
    assert length == {"max_length": 256, "stride": 128}
    assert all(t <= (255 if start else 128) for t, start in zip(losses.tokens, first, strict=True))


def test_perplexity_is_the_recorded_one(result):
    "The training page scored without overlap and found more; context can only help, and not by much."
    record, row = demo.training_record(), result.rows[0]
    if digest(json.dumps(__import__("pydoc_data.topics").topics.topics, sort_keys=True)) != record["topics"]:
        pytest.skip("another Python's manual")
    gain = record["held_out_loss"]["late"] - np.log(row.baseline_perplexity)
    assert 0 < gain < 0.1


def test_progress_and_lines_are_told(result):
    assert set(result.seen) == {"early", "late", "late-int8", "late-int4"}
    assert all(done == total > 0 for done, total in result.seen.values())
    assert all("\n" not in line for line in result.lines) and "verified" in result.lines[-1]


def test_table_sentences_and_json(result):
    table = result.table().splitlines()
    assert len(table) == 1 + len(result.rows) and all(line == line.rstrip() for line in table)
    for row, line, sentence in zip(result.rows, table[1:], result.sentences, strict=True):
        assert f"{row.ratio:.5f}" in line and row.verdict in line and sentence.startswith(row.name) and sentence.endswith(".")
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert "texts" not in document["held_out"]
    assert all((result.out / row["report"]).is_file() for row in document["rows"])
    assert (result.out / "demo.txt").read_text().startswith(result.table())
    assert sorted(path.name for path in result.out.parent.iterdir()) == ["out"]  # no scratch folder is left


def test_a_rerun_gives_the_same_bytes(result, tmp_path):
    again = demo.run_demo(tmp_path / "again")
    files = sorted(path.relative_to(result.out) for path in result.out.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again.out) for path in again.out.rglob("*") if path.is_file())
    for name in files:
        old, new = (result.out / name).read_bytes(), (again.out / name).read_bytes()
        if name.name == "report.json":
            assert {**json.loads(old), "environment": 0} == {**json.loads(new), "environment": 0}
        else:
            assert old == new, name


def test_an_edited_report_is_refused(result, tmp_path):
    import shutil
    folder = tmp_path / "edited"
    shutil.copytree(result.rows[1].report.parent, folder)
    report = folder / "report.json"
    text = report.read_text()
    report.write_text(text.replace(repr(result.rows[1].ratio), repr(result.rows[1].ratio - 0.04)))
    assert report.read_text() != text
    with pytest.raises(ContractError):
        verify(report)


@pytest.mark.parametrize("kind, ratio, word", [
    ("improved", 0.9, "better"), ("regressed", 1.1, "worse"), ("equivalent", 1.0001, "no change that matters"), ("inconclusive", 1.01, "undecided")])
def test_the_sentence_says_whatever_the_verdict_says(kind, ratio, word):
    from types import SimpleNamespace
    from invar_nb import pair_arrays
    rng = np.random.default_rng(5)
    base, noise = rng.gamma(30, 0.1, 60), rng.normal(0, 0.08 if kind == "inconclusive" else 0.005, 60)
    tokens = np.full(60, 128)
    comparison = compare(pair_arrays(base, base + np.log(ratio) + noise - noise.mean(), tokens))
    verdict = judge(comparison)
    assert kind in (verdict.verdict, verdict.noise_kind)
    sentence = demo.plain_sentence("edit", SimpleNamespace(comparison=comparison, verdict=verdict))
    assert word in sentence and f"perplexity {100 * (comparison.ratio - 1):+.1f}"[:14] in sentence


# ---- where it writes

def test_a_taken_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine").write_text("kept")
    for out in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ContractError, match="must not exist or must be empty"):
            demo.run_demo(out)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"] and (tmp_path / "mine").read_text() == "kept"


def test_the_default_folder_is_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert demo._fresh_folder(None) == tmp_path / "invar-demo"
    (tmp_path / "invar-demo").mkdir()
    (tmp_path / "invar-demo-2").write_text("")
    assert demo._fresh_folder(None) == tmp_path / "invar-demo-3"


@needs_torch
def test_a_run_that_fails_leaves_nothing(tmp_path):
    def progress(label):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(tmp_path / "out", progress=progress)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_demo_loads_no_torch():
    code = "import sys, invar_nb.statement.demo; print([m for m in ('torch', 'transformers', 'matplotlib', 'pyarrow') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True).stdout.strip() == "[]"
