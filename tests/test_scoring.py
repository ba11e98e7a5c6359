"""Does the machine's loss equal the chain rule? The referees here are GPT-2 and Llama written out in numpy, float64, one token at a time."""
import copy
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors  # noqa: E402
from tokenizers import models as token_models  # noqa: E402

from invar_nb.evidence.windows import Window, perplexity, plan_windows  # noqa: E402
from invar_nb.foundations.numbers import ContractError, PairingError  # noqa: E402
from invar_nb.machine import scoring  # noqa: E402
from invar_nb.machine.scoring import (ProgressLine, check_same_tokenizer, data_digest, load_model, plan_text, read_documents, read_texts, score_plan,  # noqa: E402
                                      score_text, score_windows, token_log_losses, tokenizer_digest, weights_digest)
from invar_nb.machine.store import Ledger  # noqa: E402

torch.set_num_threads(1)
TOLERANCE = 1e-5      # nats per token: what the room promises


# --- models and referees --------------------------------------------------------------------------------------------------------------
def fill(model, seed, scale=0.25):
    "Weights from numpy, so that every machine tests the same model."
    rng = np.random.default_rng(seed)
    for name, p in model.named_parameters():
        z = rng.normal(size=p.shape)
        p.data = torch.tensor(1 + 0.1 * z if p.dim() == 1 and "weight" in name else 0.1 * z if p.dim() == 1 else scale * z, dtype=torch.float32)
    return model.eval()


def gpt2(vocab_size=97, tied=True, seed=1, **more):
    return fill(transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=vocab_size, n_positions=40, n_embd=24, n_layer=2, n_head=3, bos_token_id=None,
                                                                     eos_token_id=None, tie_word_embeddings=tied, **more)), seed)


def llama(vocab_size=97, tied=False, seed=2, **more):
    return fill(transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocab_size, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=40, bos_token_id=None, eos_token_id=None, tie_word_embeddings=tied, **more)), seed)


def weights(model):
    return {k: v.double().numpy() for k, v in model.state_dict().items()}


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v):
    "(heads, tokens, size) each; token i sees tokens 0..i."
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    scores[:, np.triu_indices(q.shape[1], 1)[0], np.triu_indices(q.shape[1], 1)[1]] = -np.inf
    return softmax(scores) @ v


def numpy_gpt2(model, ids):
    "Logits for the token after `ids`: Radford et al. 2019, as plain matrix algebra."
    w, c = weights(model), model.config
    def norm(x, name):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + c.layer_norm_epsilon) * w[name + ".weight"] + w[name + ".bias"]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:len(ids)]
    for i in range(c.n_layer):
        at = f"transformer.h.{i}."
        qkv = norm(x, at + "ln_1") @ w[at + "attn.c_attn.weight"] + w[at + "attn.c_attn.bias"]
        q, k, v = (part.reshape(len(ids), c.n_head, -1).swapaxes(0, 1) for part in np.split(qkv, 3, axis=1))
        x = x + attend(q, k, v).swapaxes(0, 1).reshape(len(ids), -1) @ w[at + "attn.c_proj.weight"] + w[at + "attn.c_proj.bias"]
        h = norm(x, at + "ln_2") @ w[at + "mlp.c_fc.weight"] + w[at + "mlp.c_fc.bias"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ w[at + "mlp.c_proj.weight"] + w[at + "mlp.c_proj.bias"]
    return norm(x, "transformer.ln_f")[-1] @ w["lm_head.weight"].T


def numpy_llama(model, ids):
    "Logits for the token after `ids`: Touvron et al. 2023, with rotary positions and grouped keys."
    w, c = weights(model), model.config
    def norm(x, name): return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.rms_norm_eps) * w[name + ".weight"]
    size = c.hidden_size // c.num_attention_heads
    angle = np.arange(len(ids))[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    cos, sin = (np.concatenate([f(angle)] * 2, axis=1) for f in (np.cos, np.sin))
    def turn(x): return x * cos + np.concatenate([-x[..., size // 2:], x[..., :size // 2]], axis=-1) * sin
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c.num_hidden_layers):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm")
        q, k, v = ((h @ w[at + f"self_attn.{n}_proj.weight"].T).reshape(len(ids), -1, size).swapaxes(0, 1) for n in "qkv")
        k, v = (np.repeat(t, c.num_attention_heads // c.num_key_value_heads, axis=0) for t in (k, v))
        x = x + attend(turn(q), turn(k), v).swapaxes(0, 1).reshape(len(ids), -1) @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, at + "post_attention_layernorm")
        gate = h @ w[at + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm")[-1] @ w["lm_head.weight"].T


def own_float64(model, ids):
    "For architectures not written out here: the model's own float64 copy, still one prefix at a time."
    if not hasattr(model, "_exact"): object.__setattr__(model, "_exact", copy.deepcopy(model).double())
    with torch.no_grad(): return model._exact(input_ids=torch.tensor(np.array(ids)[None])).logits[0, -1].double().numpy()


def chain_rule(forward, model, ids, windows):
    "-log p of each scored token from nothing but the tokens before it in its window."
    found = []
    for w in windows:
        row = []
        for j in range(w.score_from, w.stop):
            z = forward(model, ids[w.start:j])
            assert z.dtype == np.float64
            row.append(np.log(np.exp(z - z.max()).sum()) + z.max() - z[ids[j]])
        found.append(np.array(row))
    return found


def text_ids(vocab_size, n=101, seed=0):
    ids = np.random.default_rng(seed).integers(0, vocab_size, n)
    ids[[0, 5, 6, n // 2, -1]] = 0, 0, vocab_size - 1, 0, 0      # 0 is what padding is filled with: here it is real text too
    return ids


PLANS = {"overlapping": dict(max_length=32, stride=12), "disjoint": dict(max_length=32, stride=32), "seed 003": dict(max_length=32, stride=12, first_window="context_only"),
         "full length": dict(max_length=40, stride=40), "pairs": dict(max_length=2, stride=1)}
MODELS = {"gpt2 tied 97": (gpt2, numpy_gpt2, dict(vocab_size=97, tied=True)), "gpt2 untied 131": (gpt2, numpy_gpt2, dict(vocab_size=131, tied=False)),
          "llama untied 97": (llama, numpy_llama, dict(vocab_size=97, tied=False)), "llama tied 33": (llama, numpy_llama, dict(vocab_size=33, tied=True))}


@pytest.fixture(scope="module")
def truth():
    "model name, plan name -> (model, ids, windows, losses by the numpy referee), computed when first asked for."
    kept = {}
    def get(name, plan):
        if (name, plan) not in kept:
            make, forward, options = MODELS[name]
            model = make(**options)
            ids = text_ids(model.config.vocab_size)
            windows = plan_windows(len(ids), **PLANS[plan])
            kept[name, plan] = model, ids, windows, chain_rule(forward, model, ids, windows)
        return kept[name, plan]
    return get


# --- the chain rule -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_equal_the_chain_rule(truth, name, plan):
    model, ids, windows, exact = truth(name, plan)
    for batch_tokens in (1, 70, 100_000):
        for side in ("right", "left"):
            for chunk in (1, 7, None):
                found = dict(token_log_losses(model, ids, windows, batch_tokens=batch_tokens, padding_side=side, chunk_tokens=chunk))
                assert sorted(found) == list(range(len(windows)))
                for i, losses in found.items():
                    assert losses.dtype == np.float32 and losses.shape == exact[i].shape
                    np.testing.assert_allclose(losses, exact[i], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["gpt2 tied 97", "llama untied 97"])
def test_windows_in_any_order_and_any_company(truth, name):
    "A window alone, among all, among a few in another order: the same losses."
    model, ids, windows, exact = truth(name, "overlapping")
    rng = np.random.default_rng(3)
    for _ in range(6):
        order = rng.permutation(len(windows))[:rng.integers(1, len(windows) + 1)]
        side = str(rng.choice(["left", "right"]))
        for k, losses in token_log_losses(model, ids, [windows[i] for i in order], batch_tokens=int(rng.integers(1, 300)), padding_side=side):
            np.testing.assert_allclose(losses, exact[order[k]], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["gpt2 tied 97", "llama untied 97"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_short_beside_long(truth, name, side):
    "The test that other harnesses lacked: a batch of very unequal windows equals each of them alone."
    model, ids, _, _ = truth(name, "overlapping")
    windows = [Window(start=0, score_from=1, stop=40), Window(start=3, score_from=4, stop=5), Window(start=10, score_from=30, stop=31), Window(start=50, score_from=52, stop=77)]
    together = dict(token_log_losses(model, ids, windows, padding_side=side))
    for i, window in enumerate(windows):
        alone = dict(token_log_losses(model, ids, [window]))[0]
        np.testing.assert_allclose(together[i], alone, rtol=0, atol=TOLERANCE)


def test_window_means_are_summed_in_float64(truth):
    model, ids, windows, exact = truth("llama untied 97", "overlapping")
    losses, by_token = score_windows(model, ids, windows), dict(token_log_losses(model, ids, windows))
    assert losses.log_loss.tolist() == [by_token[i].astype(np.float64).sum() / len(by_token[i]) for i in range(len(windows))]
    assert losses.tokens.tolist() == [len(x) for x in exact] and losses.tokens.sum() == len(ids) - 1
    assert losses.window_ids == tuple(f"0:{w.score_from}-{w.stop}" for w in windows) and losses.document_ids == ("0",) * len(windows)
    assert losses.perplexity == pytest.approx(np.exp(np.concatenate(exact).mean()), rel=1e-5)


def test_the_referee_would_notice(truth):
    "Losses of the neighbouring token, or of a window with one token less context, are far outside the tolerance."
    model, ids, windows, exact = truth("gpt2 tied 97", "overlapping")
    early = [dataclasses.replace(w, start=w.start + 1) for w in windows[1:]]
    off = [np.abs(x - exact[i + 1]).max() for i, x in token_log_losses(model, ids, early)]
    assert min(off) > 1000 * TOLERANCE


SMALL = dict(vocab_size=97, hidden_size=24, num_hidden_layers=1, num_attention_heads=4)
DENSE = SMALL | dict(intermediate_size=40, num_key_value_heads=2, max_position_embeddings=40)
ZOO = {
    "gemma2": ("head+softcap", lambda t: t.Gemma2ForCausalLM(t.Gemma2Config(**DENSE, head_dim=8, sliding_window=8, final_logit_softcapping=2.0))),
    "gemma2 without cap": ("head", lambda t: t.Gemma2ForCausalLM(t.Gemma2Config(**DENSE, head_dim=8, sliding_window=8, final_logit_softcapping=None))),
    "cohere": ("head*scale", lambda t: t.CohereForCausalLM(t.CohereConfig(**DENSE, logit_scale=0.25))),
    "granite": ("head/scale", lambda t: t.GraniteForCausalLM(t.GraniteConfig(**DENSE, logits_scaling=3.0))),
    "mistral sliding": ("head", lambda t: t.MistralForCausalLM(t.MistralConfig(**DENSE, sliding_window=6))),
    "qwen2": ("head", lambda t: t.Qwen2ForCausalLM(t.Qwen2Config(**DENSE))),
    "opt": ("head", lambda t: t.OPTForCausalLM(t.OPTConfig(**SMALL, ffn_dim=40, max_position_embeddings=40, word_embed_proj_dim=16))),
    "bloom": ("head", lambda t: t.BloomForCausalLM(t.BloomConfig(vocab_size=97, hidden_size=24, n_layer=1, n_head=4))),
    "neox": ("head", lambda t: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**SMALL, intermediate_size=40, max_position_embeddings=40))),
    "falcon": ("head", lambda t: t.FalconForCausalLM(t.FalconConfig(**SMALL))),
    "mpt": ("head", lambda t: t.MptForCausalLM(t.MptConfig(vocab_size=97, d_model=24, n_layers=1, n_heads=4, max_seq_len=40))),
}


@pytest.mark.parametrize("name", ZOO)
def test_other_architectures(name):
    path, make = ZOO[name]
    model = fill(make(transformers), 5)
    ids = text_ids(97, n=50)
    windows = plan_windows(len(ids), max_length=20, stride=15)
    exact = chain_rule(own_float64, model, ids, windows)
    for side in ("right", "left"):
        losses = score_windows(model, ids, windows, padding_side=side, chunk_tokens=9)
        assert losses.provenance["head"] == path
        np.testing.assert_allclose(losses.log_loss, [x.mean() for x in exact], rtol=0, atol=TOLERANCE)


def test_mixture_of_experts_is_causal_and_right():
    "Routing regroups tokens when a later one changes: rounding moves, which must not be called a leak."
    model = fill(transformers.MixtralForCausalLM(transformers.MixtralConfig(**DENSE, num_local_experts=4)), 6)
    ids = text_ids(97, n=40)
    losses = score_windows(model, ids, plan_windows(40, max_length=20, stride=20))
    with torch.no_grad():
        logp = model(input_ids=torch.tensor(ids[None, :20])).logits[0].double().log_softmax(-1)
    assert losses.log_loss[0] == pytest.approx(-logp[range(19), ids[1:20]].mean().item(), abs=TOLERANCE)


class Sloped(transformers.LlamaForCausalLM):
    "Adds to its logits what no config tells of."
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + torch.linspace(0, 3, out.logits.shape[-1], dtype=out.logits.dtype)
        return out


class Shifted(transformers.LlamaForCausalLM):
    "Changes what its stack is given; the head alone would look right."
    def forward(self, input_ids=None, **kwargs):
        return super().forward(inputs_embeds=2 * self.model.embed_tokens(input_ids), **kwargs)


class Bare(torch.nn.Module):
    "No Hugging Face at all: a bigram table."
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.tensor(np.random.default_rng(8).normal(size=(97, 97)), dtype=torch.float32))

    def forward(self, input_ids):
        return self.table[input_ids]


@pytest.mark.parametrize("make", [lambda: fill(Sloped(transformers.LlamaConfig(**DENSE)), 7), lambda: fill(Shifted(transformers.LlamaConfig(**DENSE)), 7)])
@pytest.mark.parametrize("batch_tokens", [1, 64, 4096])
def test_the_general_path(make, batch_tokens):
    model, ids = make(), text_ids(97, n=60)
    windows = plan_windows(len(ids), max_length=20, stride=12)
    exact = chain_rule(own_float64, model, ids, windows)
    for side in ("right", "left"):
        losses = score_windows(model, ids, windows, batch_tokens=batch_tokens, padding_side=side, chunk_tokens=50)
        assert losses.provenance["head"] == "logits"
        np.testing.assert_allclose(losses.log_loss, [x.mean() for x in exact], rtol=0, atol=TOLERANCE)


def test_a_plain_module():
    model, ids = Bare(), text_ids(97)
    windows = plan_windows(len(ids), max_length=20, stride=7)
    z = model.table.detach().double().log_softmax(-1).numpy()
    losses = score_windows(model, ids, windows)
    np.testing.assert_allclose(losses.log_loss, [-z[ids[w.score_from - 1:w.stop - 1], ids[w.score_from:w.stop]].mean() for w in windows], rtol=0, atol=TOLERANCE)
    with pytest.raises(ContractError, match="padding on the left needs a model that takes an attention mask"): score_windows(model, ids, windows, padding_side="left")


# --- memory, modes, numbers ------------------------------------------------------------------------------------------------------------
def test_only_scored_rows_reach_the_head_a_chunk_at_a_time(truth):
    model, ids, windows, _ = truth("llama untied 97", "overlapping")
    rows = []
    hook = model.lm_head.register_forward_hook(lambda module, given, out: rows.append(out.numel() // out.shape[-1]))
    try: dict(token_log_losses(model, ids, windows, chunk_tokens=30, batch_tokens=64))
    finally: hook.remove()
    looks = [n for n in rows[:3]]      # the model's own logits twice, the head once more on the same rows
    assert looks == [24] * 3 and max(rows[3:]) <= 30 and sum(rows[3:]) == len(ids) - 1


def test_memory_does_not_grow_with_the_text():
    "Ten times the text: never more tokens in a batch, never more rows at the head."
    model, most = llama(), {}
    for n in (100, 1000):
        ids, sizes = text_ids(97, n=n), []
        hook = model.model.register_forward_hook(lambda module, given, out: sizes.append(out.last_hidden_state.shape[:2].numel()))
        try: score_windows(model, ids, plan_windows(n, max_length=32, stride=16), batch_tokens=128)
        finally: hook.remove()
        most[n] = max(sizes)
    assert most[100] == most[1000] <= 128


def test_default_chunk_has_at_least_256_rows_and_64_mib():
    model = llama()
    with torch.no_grad(): engine = scoring._engine(model, text_ids(97), None, None, "here")
    assert engine.chunk_rows == 64 * 2**20 // (4 * 97)
    with torch.no_grad(): assert scoring._engine(fill(transformers.LlamaForCausalLM(transformers.LlamaConfig(**DENSE | {"vocab_size": 70_001})), 1), text_ids(97), None, None, "here").chunk_rows == 256


def test_half_precision_models_get_a_float32_softmax():
    model = llama().to(torch.bfloat16)
    ids = text_ids(97)
    windows = plan_windows(len(ids), max_length=32, stride=16)
    for i, losses in token_log_losses(model, ids, windows, batch_tokens=1):
        w = windows[i]
        with torch.no_grad(): logits = model(input_ids=torch.tensor(ids[None, w.start:w.stop - 1])).logits[0, w.score_from - 1 - w.start:]
        assert logits.dtype == torch.bfloat16
        exact = -logits.double().log_softmax(-1)[range(w.tokens), ids[w.score_from:w.stop]].numpy()
        np.testing.assert_allclose(losses, exact, rtol=0, atol=TOLERANCE)


def test_dropout_is_off_and_the_mode_is_given_back():
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5)
    ids = text_ids(97)
    windows = plan_windows(len(ids), max_length=32, stride=16)
    calm = score_windows(model, ids, windows).log_loss
    model.train()
    assert np.array_equal(score_windows(model, ids, windows).log_loss, calm) and model.training
    model.train()
    with pytest.raises(ContractError): score_windows(model, np.array([1, 97]), plan_windows(2, max_length=2, stride=1))
    assert model.training
    assert not any(p.grad is not None for p in model.parameters())


class Forbidding(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits[..., 13] = -torch.inf
        return out


def test_an_infinite_loss_names_window_and_token():
    model = fill(Forbidding(transformers.LlamaConfig(**DENSE)), 9)
    ids = np.where(text_ids(97) == 13, 14, text_ids(97))
    windows = plan_windows(len(ids), max_length=20, stride=10)
    assert np.isfinite(score_windows(model, ids, windows).log_loss).all()
    ids[57] = 13
    with pytest.raises(ContractError, match=r"every loss must be finite; got inf at window '0:\d+-\d+', token 57 \(id 13\)"): score_windows(model, ids, windows)


def test_a_nan_loss_names_window_and_token():
    model = llama()
    model.model.norm.weight.data[3] = float("nan")
    with pytest.raises(ContractError, match=r"got nan at window '0:\d+-\d+', token \d+ \(id \d+\).*float32"): score_windows(model, text_ids(97), plan_windows(101, max_length=20, stride=10))


@pytest.mark.parametrize("make", [
    lambda: fill(transformers.BertLMHeadModel(transformers.BertConfig(**SMALL, intermediate_size=40, max_position_embeddings=40)), 3),
    lambda: transformers.BertLMHeadModel(transformers.BertConfig(**SMALL, intermediate_size=40, max_position_embeddings=40)).eval(),
    lambda: fill(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**SMALL, intermediate_size=40, max_position_embeddings=60)), 3)])
def test_a_model_that_sees_the_future_is_refused(make):
    with pytest.raises(ContractError, match="the model must be causal: a later token must not change an earlier loss"):
        score_windows(make(), text_ids(97), plan_windows(101, max_length=20, stride=10))


@pytest.mark.parametrize("ids, windows, options, words", [
    ([1, 2, 97], None, {}, "token ids must be below the model's vocabulary of 97; got 97 at token 2"),
    ([1, -100, 3], None, {}, "token ids must not be negative; got -100 at token 1"),
    ([1.0, 2.0, 3.0], None, {}, "token ids must be integers"),
    ([[1, 2, 3]], None, {}, "one dimension"),
    ([1, 2, 3], (), {}, "there must be a window to score"),
    ([1, 2, 3], (Window(start=0, score_from=1, stop=4),), {}, "a window must end inside its document; got stop 4 of 3 tokens at window 0"),
    (list(range(60)), (Window(start=0, score_from=1, stop=41),), {}, "max_length must not exceed .* got max_length 41, model 40"),
    ([1, 2, 3], None, dict(batch_tokens=0), "batch_tokens must be"),
    ([1, 2, 3], None, dict(chunk_tokens=0), "chunk_tokens must be"),
    ([1, 2, 3], None, dict(padding_side="middle"), "padding_side must be one of 'right', 'left'"),
])
def test_bad_input_is_refused(ids, windows, options, words):
    windows = plan_windows(3, max_length=3, stride=3) if windows is None else windows
    with pytest.raises(ContractError, match=words) as caught: score_windows(llama(), np.array(ids), windows, **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(ContractError): iter(token_log_losses(llama(), np.array(ids), windows, **options)).__next__()


def test_arguments_are_checked_before_the_first_loss_is_asked_for():
    with pytest.raises(ContractError, match="batch_tokens must be"): token_log_losses(llama(), text_ids(97), plan_windows(101, max_length=9, stride=9), batch_tokens=0)


def test_running_out_of_memory_names_the_knob(monkeypatch):
    def full(*_): raise torch.OutOfMemoryError("CUDA out of memory")
    monkeypatch.setattr(scoring, "_score_batch", full)
    with pytest.raises(ContractError, match="a batch must fit into memory; got 3 windows of 40 tokens. Say a smaller batch_tokens than 4096"):
        score_windows(llama(), text_ids(97), plan_windows(101, max_length=40, stride=40))


# --- text -----------------------------------------------------------------------------------------------------------------------------
END = "<|end|>"


def byte_tokenizer(bos=True, extra=(), pad=END):
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {END: 256}
    words = Tokenizer(token_models.BPE(vocab=vocab, merges=[]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if bos: words.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 256)])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token=END, eos_token=END, **({"pad_token": pad} if pad else {}))
    if extra: made.add_tokens(list(extra))
    return made


def merged_tokenizer():
    "BPE with merges, so that tokens are longer than bytes and some are parts of characters."
    from tokenizers.trainers import BpeTrainer
    words = Tokenizer(token_models.BPE())
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words.train_from_iterator(["the cat sat on the mat, Zürich Łódź 東京 東京 "] * 4, BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words)


def word_tokenizer():
    "Lowercases, strips accents, drops white space: offsets have gaps and the text's own bytes are not its tokens' bytes."
    vocab = {w: i for i, w in enumerate(["[UNK]", "the", "cat", "sat", "zurich", "a", "e", "##a", "##e", "##t", "b", "."])}
    words = Tokenizer(token_models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")


def unigram_tokenizer():
    "SentencePiece style: a space becomes a visible mark, and one is put before the text."
    words = Tokenizer(token_models.Unigram([("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("a", -3.0), ("t", -3.0), ("c", -3.0), ("é", -4.0)], unk_id=0, byte_fallback=False))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


TOKENIZERS = {"bytes": byte_tokenizer, "no bos": lambda: byte_tokenizer(bos=False), "merged": merged_tokenizer, "words": word_tokenizer, "unigram": unigram_tokenizer}


@pytest.fixture(scope="module")
def tokenizers():
    return {name: make() for name, make in TOKENIZERS.items()}


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("the cat sat. ZüréŁ東京🙂\n\t  aé"), min_size=1, max_size=60), stride=st.integers(1, 9))
def test_bytes_telescope(tokenizers, name, text, stride):
    "Scored bytes plus the bytes of an unscored first token are the document's bytes, for any tokenizer and any cut."
    tokenizer = tokenizers[name]
    try: plan = plan_text(tokenizer, text, max_length=9, stride=stride)
    except ContractError as error:
        assert "a document must have a token to score" in str(error)
        return
    ids, bounds = scoring._encode(tokenizer, text, list(plan.bos_tokens))
    np.testing.assert_array_equal(ids, plan.token_ids[0])
    assert len(bounds) == len(ids) + 1 and bounds[0] == 0 and bounds[-1] == len(text.encode()) and (np.diff(bounds) >= 0).all()
    if plan.bos_tokens: assert bounds[1] == 0
    if plan.n_bytes is not None:
        assert plan.n_bytes.sum() == len(text.encode()) - bounds[1]
    else:
        assert any(bounds[w.stop] == bounds[w.score_from] for w in plan.windows)
    if name in ("bytes", "no bos"): assert plan.n_bytes is not None and plan.n_bytes.tolist() == plan.tokens.tolist()


def test_bytes_of_a_known_cut():
    tokenizer = byte_tokenizer()
    assert plan_text(tokenizer, "aé東🙂b", max_length=6, stride=4).n_bytes.tolist() == [5, 4, 2]
    words = word_tokenizer()
    ids, bounds = scoring._encode(words, "  the  Zürich cat\n", [])
    assert bounds.tolist() == [0, 7, 15, 19]      # blanks in front go to the first token, later ones to the token before


def test_bos_policies():
    with_bos, without = byte_tokenizer(), byte_tokenizer(bos=False)
    assert plan_text(with_bos, "ab", max_length=8).bos_tokens == (256,)
    assert plan_text(without, "ab", max_length=8).bos_tokens == ()
    assert plan_text(without, "ab", max_length=8, bos="add").bos_tokens == (256,)
    assert plan_text(with_bos, "ab", max_length=8, bos="none").bos_tokens == ()
    plan = plan_text(with_bos, ["abcdefghij", "kl"], max_length=4, stride=2)
    assert [ids[0] for ids in plan.token_ids] == [256, 256] and all(256 not in ids[1:] for ids in plan.token_ids)      # document start only
    with pytest.raises(ContractError, match="bos='add' needs a tokenizer with a BOS token"): plan_text(merged_tokenizer(), "abc", max_length=8, bos="add")
    with pytest.raises(ContractError, match="bos must be one of 'auto', 'add', 'none'"): plan_text(with_bos, "abc", max_length=8, bos="both")


def test_what_a_tokenizer_appends_is_not_text():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A {END}", special_tokens=[(END, 256)])
    plan = plan_text(tokenizer, "abc", max_length=8)
    assert plan.bos_tokens == (256,) and plan.token_ids[0].tolist()[1:] == tokenizer("abc", add_special_tokens=False)["input_ids"]


def test_a_text_that_begins_with_blanks_keeps_its_opening_token():
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="a $A b", special_tokens=[("a", 5), ("b", 10)])
    assert plan_text(tokenizer, " " * 100 + "the cat", max_length=8).token_ids[0].tolist() == [5, 1, 2]


def test_truncation_and_padding_saved_with_a_tokenizer_do_not_cut_the_text():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=32, pad_id=256, pad_token=END)
    tokenizer.model_max_length = 4
    assert tokenizer_digest(tokenizer) == tokenizer_digest(byte_tokenizer())
    assert len(plan_text(tokenizer, "abcdefghij", max_length=8).token_ids[0]) == 11


class Letters:
    "A tokenizer of the plainest kind: no offsets, no backend."
    bos_token_id = None

    def get_vocab(self): return {chr(97 + i): i for i in range(26)}

    def __call__(self, text, add_special_tokens=True, **_): return {"input_ids": [ord(c) - 97 for c in text]}


def test_a_tokenizer_without_offsets_gives_no_bytes():
    plan = plan_text(Letters(), "abcdefghij", max_length=6, stride=3)
    assert plan.n_bytes is None and plan.token_ids[0].tolist() == list(range(10)) and plan.bos_tokens == ()
    losses = score_plan(llama(), plan)
    assert losses.n_bytes is None and np.isfinite(losses.log_loss).all()


def test_a_plan_and_its_splits():
    plan = plan_text(byte_tokenizer(), ["a" * 50, "b" * 20], max_length=8, stride=8)
    assert plan.window_ids[0] == "0:1-8" and plan.window_ids[-1] == "1:15-21" and plan.document_ids == ("0", "1")
    assert plan.total_tokens == 70 and [w.split for w in plan.windows].count("preview") == len(plan.windows) // 2
    few = plan_text(byte_tokenizer(), ["a" * 50, "b" * 20], max_length=8, stride=8, windows=6, preview=2, final=3)
    assert len(few.windows) == 5 and [w.split for w in few.windows] == ["preview"] * 2 + ["final"] * 3 and few.n_windows_planned == len(plan.windows)
    assert few.provenance["windows_scored"] == 5
    with pytest.raises(ContractError, match="windows must not ask for more than the text holds"): plan_text(byte_tokenizer(), "abcdef", max_length=8, windows=99)
    assert plan_text(byte_tokenizer(), "abcdefgh", max_length=8).stride == 4


def test_data_id_says_what_is_compared():
    base = dict(max_length=8, stride=4)
    same = plan_text(byte_tokenizer(), "abcdefghij", **base).data_id
    assert same == plan_text(byte_tokenizer(), "abcdefghij", **base).data_id
    others = [plan_text(byte_tokenizer(), "abcdefghiJ", **base), plan_text(byte_tokenizer(), "abcdefghij", max_length=8, stride=5), plan_text(byte_tokenizer(), "abcdefghij", **base, bos="none"),
              plan_text(byte_tokenizer(), ["abcde", "fghij"], **base), plan_text(byte_tokenizer(), "abcdefghij", **base, preview=0), plan_text(byte_tokenizer(), "abcdefghij", **base, first_window="context_only")]
    assert len({same, *(p.data_id for p in others)}) == len(others) + 1
    ids = np.arange(10)
    windows = plan_windows(10, max_length=8, stride=4)
    assert data_digest([ids], windows) == data_digest([ids.astype(np.int32)], windows) == score_windows(llama(), ids, windows).data_id == score_windows(gpt2(), torch.tensor(ids), windows).data_id


@pytest.mark.parametrize("text, options, words", [
    ("", {}, "a text must not be empty; got '' as document 0"), (["ab", ""], {}, "a text must not be empty; got '' as document 1"), ([], {}, "there must be at least one text"),
    ("x", dict(bos="none"), "a document must have a token to score after its first; got 1 token as document 0"), (b"abc", {}, "a text must be a string"),
    (["ab", 3], {}, "a text must be a string; got int as document 1"), ("ab\ud800", {}, "a text must be writable as UTF-8; got .* at character 2 of document 0"),
    ("abcdef", dict(stride=9), "stride must not exceed max_length"), ("abcdef", dict(stride=0), "stride must be"), ("abcdef", dict(max_length=1), "max_length must be"),
    ("abcdef", dict(max_length=None), "max_length must be given with a bare tokenizer"), ("abcdef", dict(first_window="some"), "first_window must be one of"),
    ("abcdef", dict(preview=50), "preview and final must not ask for more"),
])
def test_bad_text_is_refused(text, options, words):
    with pytest.raises(ContractError, match=words) as caught: plan_text(byte_tokenizer(), [text] if isinstance(text, bytes) else text, **{"max_length": 8, **options})
    assert "\n" not in str(caught.value)


def test_read_texts(tmp_path):
    (tmp_path / "a.txt").write_bytes("Zürich\r\nŁódź\n".encode())
    (tmp_path / "b.jsonl").write_text('{"text": "one\\n", "id": 7}\n\n{"text": "two"}\n')
    assert read_texts([tmp_path / "a.txt", str(tmp_path / "b.jsonl")]) == ("Zürich\r\nŁódź\n", "one\n", "two")
    assert read_texts(tmp_path / "a.txt") == ("Zürich\r\nŁódź\n",)
    for name, data, words in (("c.txt", b"", "a text must not be empty"), ("d.txt", b"ab\xff", "text must be UTF-8; got byte 0xff at offset 2"), ("e.jsonl", b'{"text": 3}\n', r"e.jsonl:1: a line must be an object with a string"),
                              ("f.jsonl", b'{"text": "a"}\n{"text"\n', r"f.jsonl:2: "), ("g.jsonl", b"\n", "there must be at least one line"), ("h.jsonl", b'{"text": ""}\n', "a text must not be empty"),
                              ("i.jsonl", b'{"text": "\\ud800"}\n', "UTF-8")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ContractError, match=words): read_texts([tmp_path / name])
    with pytest.raises(ContractError, match="a text file must exist"): read_texts([tmp_path / "none.txt"])
    with pytest.raises(ContractError, match="a text file must exist"): read_texts([tmp_path])
    with pytest.raises(ContractError, match="at least one file"): read_texts([])


def test_languages_are_read_line_by_line(tmp_path):
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.jsonl").write_text('{"text": "one", "language": "en"}\n{"language": "es", "text": "dos"}\n{"text": "?", "language": null, "lang": "fr"}\n')
    found = read_documents([tmp_path / "a.txt", tmp_path / "b.jsonl"])
    assert found.texts == ("plain", "one", "dos", "?") == read_texts([tmp_path / "a.txt", tmp_path / "b.jsonl"]) and found.languages == (None, "en", "es", None) and len(found) == 4
    for value in ("3", '""', "true", '["en"]', '{"en": 1}'):
        (tmp_path / "c.jsonl").write_text('{"text": "one", "language": "en"}\n\n{"text": "x", "language": ' + value + "}\n")
        with pytest.raises(ContractError, match=r'c.jsonl:3: a "language" must be text'): read_documents(tmp_path / "c.jsonl")


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text("abc é", min_size=2, max_size=40), min_size=1, max_size=8), told=st.lists(st.sampled_from(["en", "es", None]), min_size=8, max_size=8), keep=st.integers(1, 100))
def test_languages_count_what_is_scored(texts, told, keep):
    "Each scored token and each document with a scored token once; the plan itself is not moved."
    told, tokenizer = told[:len(texts)], byte_tokenizer()
    whole = plan_text(tokenizer, texts, max_length=8, stride=5)
    plan = plan_text(tokenizer, texts, max_length=8, stride=5, languages=iter(told), windows=min(keep, len(whole.windows)))
    counted = {}
    for document in {w.document_id for w in plan.windows}:
        name, tokens = told[int(document)] or "und", sum(w.stop - w.score_from for w in plan.windows if w.document_id == document)
        old = counted.get(name, (0, 0))
        counted[name] = (old[0] + 1, old[1] + tokens)
    if any(told):
        assert plan.languages == {name: {"documents": d, "tokens": t} for name, (d, t) in counted.items()} and list(plan.languages) == sorted(plan.languages)
        assert plan.provenance["document_languages"] == {str(i): name or "und" for i, name in enumerate(told)} and plan.provenance["languages"] == plan.languages
    else:
        assert plan.languages is None and not {"languages", "document_languages"} & plan.provenance.keys()
    assert plan.data_id == plan_text(tokenizer, texts, max_length=8, stride=5, windows=min(keep, len(whole.windows))).data_id


def test_languages_must_fit_their_texts():
    for bad, says in ((["en"], "1 for 2"), (["en", "es", None], "3 for 2"), ("en", "1 for 2"), (["en", 3.5], "non-empty strings"), (["en", ""], "non-empty strings")):
        with pytest.raises(ContractError, match=says): plan_text(byte_tokenizer(), ["abc", "def"], max_length=8, languages=bad)


def test_losses_carry_the_languages_of_their_text(saved):
    loaded = load_model(saved / "llama")
    losses = score_text(loaded, None, [TEXT, "short"], max_length=32, stride=16, languages=["en", None])
    assert losses.provenance["languages"] == {"en": {"documents": 1, "tokens": int(losses.tokens.sum()) - 5}, "und": {"documents": 1, "tokens": 5}}
    assert losses.provenance["document_languages"] == {"0": "en", "1": "und"}


# --- tokenizers of two arms -----------------------------------------------------------------------------------------------------------
def test_the_same_tokenizer_twice(tmp_path):
    "Saved, loaded and re-indented it is still the same; with another padding token too."
    byte_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    check_same_tokenizer(byte_tokenizer(), loaded, texts=["東京"])
    check_same_tokenizer(byte_tokenizer(), byte_tokenizer(pad=None))


@pytest.mark.parametrize("other, words", [
    (lambda: byte_tokenizer(bos=False), "cut the text into the same tokens; got 55 and 54 tokens, first different at 0"),
    (merged_tokenizer, "cut the text into the same tokens"),
    (lambda: byte_tokenizer(extra=["unseen"]), "must have one tokenizer; got sha256:.* with 257 tokens and sha256:.* with 258 tokens")])
def test_different_tokenizers_are_refused(other, words):
    for a, b in ((byte_tokenizer(), other()), (other(), byte_tokenizer())):
        with pytest.raises(PairingError, match="check_same_tokenizer: both arms must") as caught: check_same_tokenizer(a, b)
    assert "\n" not in str(caught.value)
    with pytest.raises(PairingError, match=words): check_same_tokenizer(byte_tokenizer(), other())


def test_tokenizers_that_differ_on_the_text_only():
    a, b = byte_tokenizer(), byte_tokenizer(extra=["zebra"])
    with pytest.raises(PairingError, match="cut the text into the same tokens"): check_same_tokenizer(a, b, texts=["a zebra"])


# --- directories ----------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    transformers.utils.logging.disable_progress_bar()
    for name, model in (("gpt2", gpt2(257)), ("llama", llama(257, tied=True))):
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    return root


@pytest.fixture
def copied(saved, tmp_path):
    shutil.copytree(saved / "llama", tmp_path / "copy")
    return tmp_path / "copy"


TEXT = "The slow way beside the fast way, in Zürich, Łódź and 東京. " * 3


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_from_directory_to_losses(saved, name):
    loaded = load_model(saved / name)
    assert (loaded.name, loaded.max_length, loaded.dtype, loaded.device) == (name, 40, "float32", "cpu")
    plan = plan_text(loaded, [TEXT, "short"], max_length=32, stride=16)
    losses = score_plan(loaded, plan)
    forward = numpy_gpt2 if name == "gpt2" else numpy_llama
    exact = [chain_rule(forward, loaded.model, plan.token_ids[int(w.document_id)], [w])[0].mean() for w in plan.windows]
    np.testing.assert_allclose(losses.log_loss, exact, rtol=0, atol=TOLERANCE)
    assert losses.window_ids == plan.window_ids and losses.data_id == plan.data_id and losses.document_ids[-1] == "1" and losses.split[-1] == "final"
    assert losses.n_bytes.sum() == sum(plan.text_bytes) == len(TEXT.encode()) + 5
    facts = losses.provenance
    assert facts["weights_digest"] == loaded.weights_digest and facts["head"] == "head" and facts["weights_format"] == "safetensors"
    assert facts["bos"] == "auto" and facts["bos_tokens"] == [256] and facts["stride"] == 16 and facts["trust_remote_code"] is False and facts["allow_pickle"] is False
    assert score_text(loaded, None, [TEXT, "short"], max_length=32, stride=16).log_loss.tolist() == losses.log_loss.tolist()
    bare = score_text(loaded.model, loaded.tokenizer, [TEXT, "short"], max_length=32, stride=16)
    assert bare.log_loss.tolist() == losses.log_loss.tolist() and bare.provenance["weights_digest"] == weights_digest(loaded.model)


def test_digests_follow_content(saved, copied, tmp_path):
    one, two = load_model(saved / "llama"), load_model(copied)
    assert one.weights_digest == two.weights_digest and one.config_digest == two.config_digest and one.tokenizer_digest == two.tokenizer_digest
    with torch.no_grad(): two.model.model.norm.weight[0] += 1e-3
    two.model.save_pretrained(tmp_path / "edited")
    byte_tokenizer().save_pretrained(tmp_path / "edited")
    assert load_model(tmp_path / "edited").weights_digest != one.weights_digest and weights_digest(two.model) != weights_digest(one.model)
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))
    assert load_model(copied).config_digest != one.config_digest


@pytest.mark.parametrize("edit", [lambda w: w[0].mul_(1.0001), lambda w: w.copy_(w.flip(0)), lambda w: w[1].zero_(), lambda w: w.neg_()])
def test_a_model_edited_after_loading_is_not_scored_under_its_files_name(saved, edit):
    loaded = load_model(saved / "llama")
    plan = plan_text(loaded, TEXT, max_length=32, stride=16)
    score_plan(loaded, plan)
    edit(loaded.model.model.layers[0].mlp.up_proj.weight.data)
    with pytest.raises(ContractError, match="must be as it was loaded.*llama with changed tensors. Pass loaded.model itself"): score_plan(loaded, plan)
    with pytest.raises(ContractError, match="must be as it was loaded"): score_windows(loaded, plan.token_ids[0], plan.windows)
    assert score_plan(loaded.model, plan).provenance["weights_digest"] == weights_digest(loaded.model)


def test_dtypes(saved):
    assert load_model(saved / "llama", dtype="bfloat16").dtype == "bfloat16"
    with pytest.raises(ContractError, match="dtype must be one of"): load_model(saved / "llama", dtype="int8")
    with pytest.raises(ContractError, match="the device must be there"): load_model(saved / "llama", device="cuda:77")
    with pytest.raises(ContractError, match="the device must be there"): load_model(saved / "llama", device="toaster")


def test_half_precision_checkpoints_are_widened_on_a_cpu(saved, tmp_path):
    half = load_model(saved / "llama", dtype="float16")
    half.model.save_pretrained(tmp_path / "half")
    byte_tokenizer().save_pretrained(tmp_path / "half")
    loaded = load_model(tmp_path / "half")
    assert loaded.dtype == "float32"
    assert torch.equal(loaded.model.model.embed_tokens.weight, half.model.model.embed_tokens.weight.float())


def test_shards(saved, tmp_path):
    model = load_model(saved / "llama").model
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    byte_tokenizer().save_pretrained(tmp_path / "shards")
    shards = sorted((tmp_path / "shards").glob("model-*.safetensors"))
    assert len(shards) > 1
    loaded = load_model(tmp_path / "shards")
    assert score_text(loaded, None, TEXT).log_loss.tolist() == score_text(load_model(saved / "llama"), None, TEXT).log_loss.tolist()
    shards[1].unlink()
    with pytest.raises(ContractError, match=f"every shard named by the index must exist; got {shards[1].name}"): load_model(tmp_path / "shards")


def test_a_pickle_is_not_opened(copied):
    "The file would leave a mark if it were."
    (copied / "model.safetensors").unlink()
    mark = copied / "mark"
    (copied / "pytorch_model.bin").write_bytes(b"cbuiltins\nopen\n(V" + str(mark).encode() + b"\nVw\ntR.")
    with pytest.raises(ContractError, match=r"weights must be safetensors, since reading a pickle can run any code; got pytorch_model.bin.*allow_pickle=True"): load_model(copied)
    assert not mark.exists()


def test_a_pickle_is_read_when_asked(saved, copied):
    state = load_model(saved / "llama").model.state_dict()
    (copied / "model.safetensors").unlink()
    torch.save(state, copied / "pytorch_model.bin")
    loaded = load_model(copied, allow_pickle=True)
    assert loaded.provenance["weights_format"] == "pickle" and loaded.provenance["allow_pickle"] is True
    assert score_text(loaded, None, TEXT).log_loss.tolist() == score_text(load_model(saved / "llama"), None, TEXT).log_loss.tolist()


@pytest.mark.parametrize("content", [b"", b"\x80\x02}q\x00", b"PK\x03\x04"])
def test_a_damaged_pickle_is_one_line(copied, content):
    (copied / "model.safetensors").unlink()
    (copied / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ContractError, match="the weights in copy must load") as caught: load_model(copied, allow_pickle=True)
    assert "\n" not in str(caught.value)


def test_a_hub_id_from_the_local_cache(saved, tmp_path, monkeypatch):
    "A snapshot that was downloaded before: found offline, its commit recorded."
    import huggingface_hub
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789" * 4
    shutil.copytree(saved / "llama", tmp_path / "models--someone--something" / "snapshots" / commit)
    (tmp_path / "models--someone--something" / "refs").mkdir()
    (tmp_path / "models--someone--something" / "refs" / "main").write_text(commit)
    loaded = load_model("someone/something")
    assert loaded.name == "someone/something" and loaded.provenance["commit"] == commit and loaded.weights_digest == load_model(saved / "llama").weights_digest
    with pytest.raises(ContractError, match="hub id that can be reached"): load_model("someone/something", revision="v2")


def edit_config(folder, **change):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_remote_code_is_not_run(copied):
    (copied / "evil.py").write_text(f"open({str(copied / 'mark')!r}, 'w')\n")
    edit_config(copied, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    with pytest.raises(ContractError, match="say trust_remote_code=True") as caught: load_model(copied)
    assert "\n" not in str(caught.value) and not (copied / "mark").exists()


@pytest.mark.parametrize("spoil, words", [
    (lambda d: (d / "config.json").unlink(), "must hold config.json"),
    (lambda d: ((d / "config.json").unlink(), (d / "adapter_config.json").write_text("{}")), "merge it into its base model"),
    (lambda d: (d / "config.json").write_text("{"), "the config in copy must load"),
    (lambda d: (d / "model.safetensors").unlink(), "must hold its weights"),
    (lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-9]), "the weights in copy must load; got SafetensorError"),
    (lambda d: (d / "model.safetensors").write_bytes(b""), "the weights in copy must load"),
    (lambda d: (d / "tokenizer.json").unlink(), "the tokenizer in copy must load.*tokenizer=DIR"),
    (lambda d: edit_config(d, num_hidden_layers=3), r"must hold every weight the config asks for; got missing model.layers.2.\S+ \(9 in all\)"),
    (lambda d: edit_config(d, vocab_size=300), "copy"),
    (lambda d: edit_config(d, model_type="t5", is_encoder_decoder=True), "the model must be causal"),
    (lambda d: edit_config(d, model_type="bert"), "the model must be causal; got model type 'bert' with is_decoder=False"),
    (lambda d: edit_config(d, architectures=["LlamaForSequenceClassification"]), "the model must be causal; got LlamaForSequenceClassification"),
    (lambda d: edit_config(d, model_type="clip", architectures=["CLIPModel"]), "the model must be causal"),
])
def test_damaged_directories_are_refused(copied, spoil, words):
    spoil(copied)
    with pytest.raises(ContractError, match=words) as caught: load_model(copied)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path, words", [("./nowhere", "a model is a directory"), ("nobody/nothing", "hub id that can be reached"), ("no such/id at all", "a model is a directory"), ("", "a model is a directory")])
def test_models_that_are_not_there(path, words):
    with pytest.raises(ContractError, match=words) as caught: load_model(path)
    assert "\n" not in str(caught.value)


def test_a_file_is_not_a_model(copied):
    with pytest.raises(ContractError, match="Pass the directory that holds config.json"): load_model(copied / "model.safetensors")
    with pytest.raises(ContractError, match="a model is a directory"): load_model(copied.parent / "none")


def test_extra_weights_are_recorded(copied):
    edit_config(copied, num_hidden_layers=1)
    loaded = load_model(copied)
    assert loaded.provenance["unexpected_weights"] and loaded.provenance["unexpected_weights"][0].startswith("model.layers.1.")


def test_one_tokenizer_for_both_arms(saved, copied):
    (copied / "tokenizer.json").unlink()
    check_same_tokenizer(load_model(saved / "llama"), load_model(copied, tokenizer=saved / "gpt2"))


def test_lengths_are_the_models(saved):
    loaded = load_model(saved / "llama")
    assert plan_text(loaded, TEXT).max_length == 40 and plan_text(loaded, TEXT).stride == 20
    for act in (lambda: plan_text(loaded, TEXT, max_length=41), lambda: score_text(loaded.model, loaded.tokenizer, TEXT, max_length=41),
                lambda: score_plan(loaded, plan_text(loaded.tokenizer, TEXT, max_length=41))):
        with pytest.raises(ContractError, match="max_length must not exceed the positions the model was built for; got max_length 41, model 40. Choose max_length=40"): act()
    with pytest.raises(ContractError, match="a bare model needs its tokenizer"): score_text(loaded.model, None, TEXT)


def test_a_tokenizer_with_more_tokens_than_the_model(saved):
    loaded = load_model(saved / "llama")
    loaded.tokenizer.add_tokens(["beside"])
    with pytest.raises(ContractError, match="token ids must be below the model's vocabulary of 257; got 257 at token"): score_text(loaded, None, TEXT)


def test_loading_is_quiet_and_restores_what_it_changed(saved, capfd):
    log = transformers.utils.logging
    log.set_verbosity_warning()
    log.enable_progress_bar()
    try:
        load_model(saved / "llama")
        assert log.get_verbosity() == log.WARNING and log.is_progress_bar_enabled()
    finally: log.disable_progress_bar()
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


def test_a_directory_needs_no_network(saved):
    code = ("import socket, sys\ndef no(*a, **k): raise SystemExit('network')\nsocket.getaddrinfo = no; socket.socket.connect = no\n"
            "from invar_nb.machine.scoring import load_model; print(load_model(sys.argv[1]).name)")
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    done = subprocess.run([sys.executable, "-c", code, saved / "llama"], capture_output=True, text=True, env=env)
    assert done.stdout == "llama\n", done.stderr[-2000:]


# --- resuming -------------------------------------------------------------------------------------------------------------------------
def test_resuming_after_every_window_gives_the_same_bits(saved, tmp_path):
    loaded = load_model(saved / "llama")
    plan = plan_text(loaded, [TEXT, "short"], max_length=24, stride=12)
    whole = score_plan(loaded, plan, batch_tokens=60)
    for stop in range(1, len(plan.windows)):
        with Ledger(tmp_path / f"{stop}", key={"data_id": plan.data_id}) as ledger:
            def record(*values):
                ledger.append(*values)
                if len(ledger.finished) == stop: raise KeyboardInterrupt
            with pytest.raises(KeyboardInterrupt): score_plan(loaded, plan, batch_tokens=60, record=record)
        with Ledger(tmp_path / f"{stop}", key={"data_id": plan.data_id}) as ledger:
            assert len(ledger.finished) == stop
            again = score_plan(loaded, plan, batch_tokens=60, finished=dict(ledger.finished), record=ledger.append)
            assert again.log_loss.tobytes() == whole.log_loss.tobytes() and set(ledger.finished) == set(plan.window_ids)
    finished = dict(zip(plan.window_ids, zip(plan.tokens.tolist(), whole.log_loss.tolist(), strict=True), strict=True))
    assert score_plan(loaded, plan, finished=finished).log_loss.tobytes() == whole.log_loss.tobytes()


def test_a_record_of_another_plan_is_refused(saved):
    loaded = load_model(saved / "llama")
    plan = plan_text(loaded, TEXT, max_length=24, stride=12)
    with pytest.raises(ContractError, match="finished windows must belong to the plan; got '7:000000'"): score_plan(loaded, plan, finished={"7:000000": (3, 1.0)})
    with pytest.raises(ContractError, match="the plan's number of tokens; got 3 for 23 at '0:1-24'"): score_plan(loaded, plan, finished={"0:1-24": (3, 1.0)})


# --- progress -------------------------------------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self): return True


def test_progress_counts_scored_tokens(saved):
    loaded, calls = load_model(saved / "llama"), []
    plan = plan_text(loaded, TEXT, max_length=24, stride=12)
    score_plan(loaded, plan, batch_tokens=24, progress=lambda *x: calls.append(x))
    assert calls[0] == (0, plan.total_tokens) and calls[-1] == (plan.total_tokens, plan.total_tokens)
    assert [d for d, _ in calls] == sorted(d for d, _ in calls) and len(calls) == len(plan.windows) + 1
    done = {plan.window_ids[0]: (int(plan.tokens[0]), 1.0)}
    calls.clear()
    score_plan(loaded, plan, finished=done, progress=lambda *x: calls.append(x))
    assert calls[0][0] == plan.tokens[0]


def test_progress_line():
    now, stream = [0.0], Terminal()
    line = ProgressLine("baseline", stream=stream, every=1.0, clock=lambda: now[0])
    for t, done in ((0.0, 2000), (2.0, 4000), (2.5, 5000), (10.0, 12000), (3700.0, 1_002_000)):
        now[0] = t
        line(done, 1_002_000)
    shown = [part.strip() for part in stream.getvalue().split("\r") if part]
    assert shown == ["baseline: 2,000 of 1,002,000 tokens, 0 tokens/s, starting", "baseline: 4,000 of 1,002,000 tokens, 1,000 tokens/s, 16:38 left",
                     "baseline: 12,000 of 1,002,000 tokens, 1,000 tokens/s, 16:30 left", "baseline: 1,002,000 of 1,002,000 tokens, 270 tokens/s, in 1:01:40"]
    assert stream.getvalue().endswith("\n")


def test_progress_is_silent_off_a_terminal(saved, capfd):
    for line in (ProgressLine(stream=io.StringIO()), ProgressLine(stream=Terminal(), quiet=True)):
        line(1, 2), line(2, 2)
        assert line.stream.getvalue() == ""
    loaded = load_model(saved / "llama")
    score_text(loaded, None, TEXT, progress=ProgressLine("x"))
    said = capfd.readouterr()
    assert said.out == said.err == ""


# --- without torch ---------------------------------------------------------------------------------------------------------------------
def test_the_room_loads_without_torch():
    code = "import sys; sys.modules['torch'] = None; import invar_nb.machine.scoring as s; assert 'transformers' not in sys.modules\ntry: s.load_model('x')\nexcept ValueError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "load_model: scoring needs torch and transformers; got no torch. pip install 'invar_nb[hf]'.\n"


def test_perplexity_of_known_text():
    "A model that knows nothing: every token costs log V."
    model = llama()
    for p in model.parameters(): p.data.zero_()
    losses = score_windows(model, text_ids(97), plan_windows(101, max_length=20, stride=10))
    assert perplexity(losses.log_loss, losses.tokens) == pytest.approx(97, rel=1e-6)


# --- found by attack -------------------------------------------------------------------------------------------------------------------
def test_both_layouts_of_weights_are_refused(copied):
    "transformers loads the single file and the index names others: a digest could name weights that were not loaded."
    shutil.copy(copied / "model.safetensors", copied / "other.safetensors")
    (copied / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"x": "other.safetensors"}}))
    with pytest.raises(ContractError, match="one layout.*Delete"): load_model(copied)


@pytest.mark.parametrize("index", [{"weight_map": {"x": "../model.safetensors"}}, {"weight_map": {"x": "/etc/passwd"}}, {"weight_map": {"x": ".."}}, {"weight_map": {"x": 3}},
                                   {"weight_map": {"x": "sub\\m.safetensors"}}, {"weight_map": {"x": "pytorch_model.bin"}}, {"weight_map": ["model.safetensors"]}, ["a"], {"weight_map": {}}, {}, {"weight_map": None}])
def test_an_index_names_plain_files_in_its_folder(copied, index):
    (copied / "model.safetensors").rename(copied / "m.safetensors")
    (copied / "sub").mkdir()
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ContractError, match="index"): load_model(copied)


def test_pickles_are_named_as_they_are_loaded(copied):
    (copied / "model.safetensors").unlink()
    (copied / "pytorch_model.bin").write_bytes(b"x")
    (copied / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"x": "other.bin"}}))
    with pytest.raises(ContractError, match="one layout"): load_model(copied, allow_pickle=True)
    (copied / "pytorch_model.bin").unlink()
    with pytest.raises(ContractError, match="every shard named by the index must exist; got other.bin"): load_model(copied, allow_pickle=True)


def test_a_config_does_not_name_other_weights(copied):
    shutil.copy(copied / "model.safetensors", copied / "other.safetensors")
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "transformers_weights": "other.safetensors"}))
    with pytest.raises(ContractError, match="transformers_weights"): load_model(copied)


def test_positions_that_are_text_are_refused_in_one_line(copied):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "max_position_embeddings": "64"}))
    with pytest.raises(ContractError, match="config in .* must load") as caught: load_model(copied)
    assert "\n" not in str(caught.value)


def test_left_padding_is_refused_where_the_mask_is_ignored():
    "RWKV takes an attention mask and does not look at it."
    model = fill(transformers.RwkvForCausalLM(transformers.RwkvConfig(vocab_size=97, context_length=40, hidden_size=24, attention_hidden_size=24, intermediate_size=48,
                                                                     num_hidden_layers=2, bos_token_id=0, eos_token_id=0)), 3)
    ids = np.random.default_rng(0).integers(1, 97, 60)
    windows = plan_windows(60, max_length=24, stride=17)
    right = score_windows(model, ids, windows, padding_side="right")
    alone = score_windows(model, ids, windows, batch_tokens=1, padding_side="right")
    np.testing.assert_allclose(right.log_loss, alone.log_loss, atol=TOLERANCE)
    with pytest.raises(ContractError, match="left.*padding_side='right'"): score_windows(model, ids, windows, padding_side="left")
