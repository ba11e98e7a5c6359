"Each tool's rule played out on lists of tokens, as its source does it, and the losses beside a model asked chunk by chunk; the page goes through all lengths, token by token."

import json

import numpy as np
import pytest
from small_models import byte_tokenizer, gpt2, llama, one_window, save, torch
from test_shell import MODELS, shell

from invar_nb.arms.pair import pair
from invar_nb.arms.windows import Window
from invar_nb.files.losses import read_losses
from invar_nb.foundations.refuse import ContractError, PairingError, UsageError
from invar_nb.models.load import load_model
from invar_nb.models.score import score_text
from invar_nb.models.text import Documents
from invar_nb.models.text_plan import WINDOWINGS, plan_text


def play_hf(x, length, stride):
    "Labels of context are -100; the model compares the output at i with label i + 1."
    said, before = [], 0
    for begin in range(0, len(x), stride):
        end = min(begin + length, len(x))
        labels = [-100] * (end - begin - (end - before)) + list(x[max(before, begin) : end])
        said += [
            (labels[i], x[begin : begin + i])
            for i in range(1, end - begin)
            if labels[i] != -100
        ]
        before = end
        if end == len(x):
            return said


def play_gptq(x, length, _):
    chunks = [x[k * length : (k + 1) * length] for k in range(len(x) // length)]
    return [(chunk[i], chunk[:i]) for chunk in chunks for i in range(1, length)]


def play_llama_cpp(x, length, _):
    chunks = [x[k * length : (k + 1) * length] for k in range(len(x) // length)]
    first = length // 2  # outputs first .. length - 2 are compared with the token behind them
    return [
        (chunk[first + i + 1], chunk[: first + i + 1])
        for chunk in chunks
        for i in range(length - 1 - first)
    ]


def play_lm_eval(x, length, _):
    "x[0] is the prefix. Inputs end one before the targets do, and are cut to `length` from the left; only what must be is asked of them."
    tokens, said, done = list(x[1:]), [], 0
    while done < len(tokens):
        targets = tokens[done : done + length]
        whole = [x[0], *tokens[: done + len(targets)]]
        whole = whole[-(length + 1) :]
        said += [(t, whole[: len(whole) - len(targets) + i]) for i, t in enumerate(targets)]
        done += len(targets)
    return said


PLAY = {"hf": play_hf, "gptq": play_gptq, "llama.cpp": play_llama_cpp, "lm-eval": play_lm_eval}


TEXTS = [
    "The slow way beside the fast way, in Łódź. ",
    "Another document, somewhat longer than the first one is.\n",
    "0123456789 " * 7 + "\n",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return {
        name: load_model(save(model, tmp_path_factory.mktemp(name) / name))
        for name, model in (("gpt2", gpt2(257)), ("llama", llama(257)))
    }


@pytest.mark.parametrize("model", ["gpt2", "llama"])
@pytest.mark.parametrize("name", PLAY)
def test_losses_are_those_of_the_chunks(loaded, name, model):
    "The model is asked about each token by itself, with the tokens that the tool's loop puts before it."
    m, end = loaded[model], 256
    text = {
        "hf": ["\n\n".join(TEXTS)],
        "gptq": ["\n\n".join(TEXTS)],
        "llama.cpp": ["\n\n".join(TEXTS)[:-1]],
        "lm-eval": TEXTS,
    }[name]
    want, tokens = 0.0, 0
    for one in text:
        x = [end] * (1 + (name == "lm-eval")) + m.tokenizer(one, add_special_tokens=False)[
            "input_ids"
        ]
        for target, before in PLAY[name](x, 16, 8 if name == "hf" else 16):
            before = [end, *before[1:]] if name == "llama.cpp" else before
            with torch.no_grad():
                logp = (
                    m.model(input_ids=torch.tensor([before]))
                    .logits[0, -1]
                    .double()
                    .log_softmax(-1)
                )
            want, tokens = want - float(logp[target]), tokens + 1
    got = score_text(
        m, TEXTS, windowing=name, max_length=16, stride=8 if name == "hf" else None
    )
    assert got.tokens.sum() == tokens and set(got.document_ids) == (
        {"0", "1", "2"} if name == "lm-eval" else {"0"}
    )
    np.testing.assert_allclose(got.totals[0].sum(), want, rtol=2e-6)
    facts = got.provenance
    assert (facts["windowing"], facts["stride"], facts["prefix_token"]) == (
        name,
        8 if name == "hf" else 16,
        end if name == "lm-eval" else None,
    )


def test_a_window_may_have_as_many_inputs_as_the_model_has_positions(loaded):
    "lm-eval's windows are one token longer than the model: the last one is only a target."
    m = loaded["gpt2"]
    got = score_text(m, TEXTS[2] * 2, windowing="lm-eval", max_length=40)
    ids = plan_text(m, TEXTS[2] * 2, windowing="lm-eval", max_length=40).token_ids["0"]
    np.testing.assert_allclose(
        got.log_loss[0],
        one_window(m.model, ids, Window(start=0, score_from=1, stop=41)).mean(),
        atol=1e-5,
    )


def test_other_cuts_are_other_data(loaded):
    arms = {
        name: score_text(loaded["gpt2"], TEXTS, windowing=name, max_length=16)
        for name in WINDOWINGS
    }
    assert len({arm.data_id for arm in arms.values()}) == len(arms)
    with pytest.raises(
        PairingError,
        match="both models must be scored with one windowing; got 'gptq' and 'lm-eval'",
    ):
        pair(arms["gptq"], arms["lm-eval"])
    with pytest.raises(PairingError, match="data_id must match"):
        pair(
            arms["gptq"],
            score_text(loaded["gpt2"], TEXTS[:2], windowing="gptq", max_length=16),
        )
    plan = lambda languages: (
        plan_text(
            byte_tokenizer(),
            Documents(texts=("a" * 40, "b" * 40), languages=languages),
            max_length=8,
            windowing="gptq",
        ).provenance
    )
    assert plan(("pl", "pl"))["languages"]["pl"]["documents"] == 1 and "languages" not in plan(
        ("pl", "en")
    )


@pytest.mark.parametrize(
    "options, error, words",
    [
        (dict(windowing="wikitext"), UsageError, "windowing must be one of 'invar'"),
        (
            dict(windowing="hf", first_window="context_only"),
            UsageError,
            "first_window must be 'all'",
        ),
        (dict(windowing="llama.cpp", max_length=1000), ContractError, "model 40"),
        (dict(windowing="llama.cpp", max_length=2), ContractError, "3 tokens or more"),
    ],
)
def test_what_is_refused(loaded, options, error, words):
    with pytest.raises(error, match=words) as caught:
        plan_text(loaded["gpt2"], TEXTS, **{"max_length": 16, **options})
    assert "\n" not in str(caught.value)


def test_short_and_strange_texts(loaded):
    m = loaded["gpt2"]
    for name, text, words in (
        ("llama.cpp", "a" * 20, "needs 32 tokens; got 21"),
        ("gptq", "a" * 9, "needs 16 tokens; got 10"),
        ("llama.cpp", "\n", "not empty"),
    ):
        with pytest.raises(ContractError, match=words):
            plan_text(m, text, max_length=16, windowing=name)
    bare = byte_tokenizer(bos=False)
    bare.bos_token = bare.eos_token = None
    with pytest.raises(UsageError, match="windowing='lm-eval' needs a token before the text"):
        plan_text(bare, "abc", max_length=16, windowing="lm-eval")
    assert (
        plan_text(bare, "abc", max_length=16, windowing="lm-eval", prefix_token=7)
        .token_ids["0"]
        .tolist()[0]
        == 7
    )
    with pytest.raises(UsageError, match="joined must not be cut into pieces"):
        plan_text(
            m,
            Documents(texts=("a", "b"), documents=("0", "0"), pieces="headings"),
            max_length=16,
            windowing="gptq",
        )


def test_the_shell_cuts_as_asked_and_follows_a_file(tmp_path):
    text, base = tmp_path / "t.txt", f"{MODELS}/base"
    text.write_text("A line of the text is read after the line before it.\n" * 30)
    cut = ("--text", text, "--max-length", 64, "scoring.windowing=llama.cpp")
    assert shell("score", base, *cut, "--out", tmp_path / "a.jsonl")[0] == 0
    losses = read_losses(tmp_path / "a.jsonl")
    assert losses.provenance["windowing"] == "llama.cpp" and set(losses.tokens.tolist()) == {
        31
    }
    code, out, err = shell(
        "compare", tmp_path / "a.jsonl", base, "--text", text, "--out", tmp_path / "r"
    )
    assert code == 0 and out.startswith("Identical"), err
    code, _, err = shell(
        "compare",
        tmp_path / "a.jsonl",
        base,
        "--text",
        text,
        "scoring.windowing=gptq",
        "--max-length",
        64,
        "--out",
        tmp_path / "q",
    )
    assert code == 3 and "windowing" in err and not (tmp_path / "q").exists()
    assert (
        shell(
            "score",
            base,
            "--text",
            text,
            "--max-length",
            64,
            "scoring.first_window=context-only",
            "--out",
            tmp_path / "b.jsonl",
        )[0]
        == 0
    )
    first = json.loads((tmp_path / "b.jsonl").read_text().splitlines()[1])
    assert (
        read_losses(tmp_path / "b.jsonl").provenance["first_window"] == "context_only"
        and first["window_id"] == "0:32-64"
    )
    code, _, err = shell(
        "score",
        base,
        "--text",
        text,
        "scoring.windowing=lm-eval",
        "--out",
        tmp_path / "c.jsonl",
    )
    assert code == 2 and "--set windowing=lm-eval" in err
