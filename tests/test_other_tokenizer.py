"Models with tokenizers of their own, compared by whole documents through the shell, against sums that the library has no part in."

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import main

import invar_nb
from invar_nb.files.losses import read_losses
from invar_nb.models.demo_text import demo_documents
from invar_nb.report.verify import verify

torch = pytest.importorskip("torch")
TEXTS = [text[:300] for text in demo_documents()[1][:24]]
BASE, TUNED = (
    Path(invar_nb.__file__).parent / "demo_models" / name for name in ("base", "tuned")
)


@pytest.fixture
def run(tmp_path, capsys):
    file = tmp_path / "text.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def call(*arguments, out="report", text=file):
        code = main(
            [
                *map(str, arguments),
                "--text",
                str(text),
                "--out",
                str(tmp_path / out),
                "--dtype",
                "float32",
                "-q",
                "--json",
            ]
        )
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return call


def permuted(source, folder, seed=3):
    "The same model under other token ids: same pieces, another tokenizer."
    shutil.copytree(source, folder)
    from safetensors.numpy import load_file, save_file

    words = json.loads((folder / "tokenizer.json").read_text())
    new = np.random.default_rng(seed).permutation(len(words["model"]["vocab"]))
    words["model"]["vocab"] = {
        piece: int(new[i]) for piece, i in words["model"]["vocab"].items()
    }
    for token in words["added_tokens"]:
        token["id"] = int(new[token["id"]])
    (folder / "tokenizer.json").write_text(json.dumps(words))
    weights = load_file(folder / "model.safetensors")
    for name, rows in weights.items():
        if rows.shape[0] == len(new) and rows.ndim == 2:
            weights[name] = rows[np.argsort(new)].copy()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_other_ids_for_the_same_pieces_change_nothing(run, tmp_path):
    other = permuted(BASE, tmp_path / "permuted")
    code, found, _ = run("compare", BASE, other)
    assert code == 3 and "--per-byte" in found["error"]
    code, found, _ = run("compare", BASE, other, "--per-byte")
    row, value = found["rows"][0], found["rows"][0]["value"]
    assert (
        code == 0
        and row["key"]["metric"] == "bits_per_byte"
        and row["role"] == "lead"
        and abs(value["candidate"] / value["baseline"] - 1) < 1e-6
        and row["claim"] == "equivalent"
    )
    assert found["pairs"][0]["units"]["kind"] == "documents" and verify(tmp_path / "report")


def test_several_texts_and_questions_are_compared_per_byte(run, tmp_path):
    "Answers, and losses of another text, were held for losses of this one."
    quiz = tmp_path / "arc.jsonl"
    rows = [
        {"id": f"q{i}", "prompt": f"{i} and", "candidates": [" one", " two"], "label": " one"}
        for i in range(12)
    ]
    quiz.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, found, _ = run("compare", BASE, TUNED, "--per-byte", "--questions", f"arc={quiz}")
    assert code in (0, 1), found
    assert {row["key"]["metric"] for row in found["rows"]} >= {"bits_per_byte", "accuracy"}
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"text": text[::-1]}) + "\n" for text in TEXTS))
    texts = ("--text", f"news={tmp_path / 'text.jsonl'}")
    code, found, _ = run(
        "compare", BASE, TUNED, "--per-byte", *texts, out="two", text=f"law={other}"
    )
    assert code in (0, 1), found
    assert {row["key"]["part"] for row in found["rows"]} == {"news", "law"}


def test_one_tokenizer_gives_the_claim_per_token(run, tmp_path):
    per_token = run("compare", BASE, TUNED, out="token")[1]["rows"][0]
    code, found, _ = run("compare", BASE, TUNED, "--per-byte", out="byte")
    per_byte = found["rows"][0]
    assert per_byte["claim"] == per_token["claim"] == "improved" and code == 0
    assert (
        run("score", BASE, "--per-byte", out="base.jsonl")[0] == 0
    )  # a file in place of a model: the same report
    again = run("compare", tmp_path / "base.jsonl", TUNED, out="file")[1]
    assert again["rows"] == found["rows"] and again["dataset"] == found["dataset"]
    whole = read_losses(tmp_path / "base.jsonl")
    assert whole.weight_unit == "bytes" and whole.tokens.tolist() == [
        len(text.encode()) for text in TEXTS
    ]


def test_bits_of_a_document_equal_a_plain_loop(run, tmp_path):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float64)
    run("score", BASE, "--per-byte", "--max-length", 64, out="base.jsonl")
    whole, text = read_losses(tmp_path / "base.jsonl"), TEXTS[5]
    ids = [10, *text.encode()]  # a line break, then bytes: that is this tokenizer
    nats, step = 0.0, 32
    for first in range(0, max(len(ids) - step, 1), step):  # windows of 64, 32 new tokens each
        window = ids[first : first + 64]
        with torch.no_grad():
            logits = model(torch.tensor([window])).logits[0]
        scored = torch.arange(1 if first == 0 else 32, len(window))
        nats -= (
            torch.log_softmax(logits[scored - 1], -1)[
                torch.arange(len(scored)), torch.tensor(window)[scored]
            ]
            .sum()
            .item()
        )
    np.testing.assert_allclose(
        whole.log_loss[5], nats / whole.tokens[5], rtol=0, atol=16 * 2.0**-23 * 32
    )  # logits below 32, in float32


@pytest.mark.parametrize(
    "options, words",
    [
        (("--windows", "5"), "--per-byte scores whole documents"),
        (("scoring.windowing=gptq",), "--per-byte scores whole documents"),
        (("scoring.first_window=context-only",), "--per-byte scores whole documents"),
        (("scoring.documents=blank-lines",), "--per-byte scores whole documents"),
        (("--metric", "perplexity"), "split the text differently"),
    ],
)
def test_what_does_not_go_with_whole_documents(run, options, words, tmp_path):
    code, found, _ = run("compare", TUNED, BASE, "--per-byte", *options)
    assert code in (2, 3) and words in found["error"] and not (tmp_path / "report").exists()


def test_a_gate_limits_perplexity_per_token_of_the_baseline(run):
    "A worse model fails the gate per byte as it does per token; a difference in bits never stands for a ratio."
    for option in ((), ("--per-byte",)):
        code, found, _ = run(
            "compare", TUNED, BASE, *option, "--gate", "1.05", out=f"gate{len(option)}"
        )
        gate = found["pairs"][0]["gate"]
        assert code == 1 and gate["observed"] > 1.2 and not gate["passed"]
