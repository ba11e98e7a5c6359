"Small models and tokenizers that the tests of the models layer make themselves, and referees that share no code with it."

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors  # noqa: E402
from tokenizers import models as token_models  # noqa: E402

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
EPS32 = 2.0**-23
TOLERANCE = 1e-5  # nats per token: what the pages promise; tolerance(5), and these models' logits are smaller


def tolerance(*models, ids, windows=()):
    """What two orders of summation may move a float32 loss by, in nats a token: 16 eps of the largest logit. A loss is a difference of two logits, each a sum of 24 to 40 products
    of which every order is within 12 to 20 eps; seen under all kernel sets of `make processors`: at most 8."""
    parts = [ids[w.start : w.stop - 1] for w in windows] or [ids]
    with torch.no_grad():
        logits = [
            model(input_ids=torch.as_tensor(part)[None]).logits
            for model in models
            for part in parts
        ]
    return 16 * EPS32 * max(float(z[z.isfinite()].abs().max()) for z in logits)


END = "<|end|>"
TEXT = "The slow way beside the fast way, in Zürich, Łódź and 東京. " * 3


def fill(model, seed, scale=0.25):
    "Weights from numpy, so that every machine tests the same model."
    rng = np.random.default_rng(seed)
    for name, p in model.named_parameters():
        z = rng.normal(size=p.shape)
        if "A_log" in name or "dt_bias" in name or name.endswith(".D"):
            continue  # of state-space layers
        p.data = torch.tensor(
            1 + 0.1 * z
            if p.dim() == 1 and "weight" in name
            else 0.1 * z
            if p.dim() == 1
            else scale * z,
            dtype=torch.float32,
        )
    return model.eval()


def gpt2(vocab_size=97, tied=True, seed=1, **more):
    return fill(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=vocab_size,
                n_positions=40,
                n_embd=24,
                n_layer=2,
                n_head=3,
                bos_token_id=None,
                eos_token_id=None,
                tie_word_embeddings=tied,
                **more,
            )
        ),
        seed,
    )


def llama(vocab_size=97, tied=False, seed=2, **more):
    return fill(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=24,
                intermediate_size=40,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=40,
                bos_token_id=None,
                eos_token_id=None,
                tie_word_embeddings=tied,
                **more,
            )
        ),
        seed,
    )


SMALL = dict(vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=4)
DENSE = SMALL | dict(intermediate_size=40, num_key_value_heads=2, max_position_embeddings=40)
ROBERTA = SMALL | dict(
    intermediate_size=40, max_position_embeddings=42, pad_token_id=1, is_decoder=True
)
MAMBA = dict(
    mamba_n_heads=6, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=2, mamba_chunk_size=16
)
LONGROPE = dict(
    original_max_position_embeddings=16,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
    rope_scaling={
        "rope_type": "longrope",
        "short_factor": [1.0] * 3,
        "long_factor": [1.5, 3.0, 8.0],
        "original_max_position_embeddings": 16,
    },
)
ROBERTAS = {
    name: lambda t, kind=kind: getattr(t, kind + "ForCausalLM")(
        getattr(t, kind + "Config")(**ROBERTA)
    )
    for name, kind in {
        "roberta": "Roberta",
        "camembert": "Camembert",
        "xlm-roberta": "XLMRoberta",
        "xlm-roberta-xl": "XLMRobertaXL",
        "data2vec-text": "Data2VecText",
        "roberta-prelayernorm": "RobertaPreLayerNorm",
    }.items()
}
HYBRIDS = {
    "mamba2": lambda t: t.Mamba2ForCausalLM(
        t.Mamba2Config(
            vocab_size=97,
            hidden_size=24,
            num_hidden_layers=2,
            state_size=8,
            num_heads=6,
            head_dim=8,
            n_groups=2,
            chunk_size=16,
        )
    ),
    "granitemoehybrid": lambda t: t.GraniteMoeHybridForCausalLM(
        t.GraniteMoeHybridConfig(
            **DENSE,
            **MAMBA,
            num_local_experts=2,
            num_experts_per_tok=1,
            layer_types=["mamba", "attention"],
            shared_intermediate_size=24,
        )
    ),
    "bamba": lambda t: t.BambaForCausalLM(
        t.BambaConfig(**DENSE, **MAMBA, attn_layer_indices=[1])
    ),
    "nemotron_h": lambda t: t.NemotronHForCausalLM(
        t.NemotronHConfig(
            vocab_size=97,
            hidden_size=24,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=40,
            head_dim=6,
            mamba_num_heads=6,
            mamba_head_dim=8,
            ssm_state_size=8,
            n_groups=2,
            chunk_size=16,
            hybrid_override_pattern="M*",
        )
    ),
}
OTHERS = {
    "longrope": lambda t: t.Phi3ForCausalLM(t.Phi3Config(**DENSE, **LONGROPE)),
    "mamba": lambda t: t.MambaForCausalLM(
        t.MambaConfig(vocab_size=97, hidden_size=24, num_hidden_layers=2, state_size=8)
    ),
    "gemma2": lambda t: t.Gemma2ForCausalLM(
        t.Gemma2Config(**DENSE, head_dim=8, sliding_window=8, final_logit_softcapping=2.0)
    ),
    "cohere": lambda t: t.CohereForCausalLM(t.CohereConfig(**DENSE, logit_scale=0.25)),
    "granite": lambda t: t.GraniteForCausalLM(t.GraniteConfig(**DENSE, logits_scaling=3.0)),
    "mistral": lambda t: t.MistralForCausalLM(t.MistralConfig(**DENSE, sliding_window=6)),
    "opt": lambda t: t.OPTForCausalLM(
        t.OPTConfig(**SMALL, ffn_dim=40, max_position_embeddings=40, word_embed_proj_dim=16)
    ),
    "bloom": lambda t: t.BloomForCausalLM(
        t.BloomConfig(vocab_size=97, hidden_size=24, n_layer=1, n_head=4)
    ),
    "falcon": lambda t: t.FalconForCausalLM(t.FalconConfig(**SMALL)),
    "mixtral": lambda t: t.MixtralForCausalLM(t.MixtralConfig(**DENSE, num_local_experts=4)),
}
ZOO = ROBERTAS | HYBRIDS | OTHERS


def make(name, seed=5):
    return fill(ZOO[name](transformers), seed)


# --- referees: one token at a time, no batch, no padding, no mask -----------------------------------------------------------------------
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
    "Logits for the token after `ids`: Radford et al. 2019, as plain matrix algebra in float64."
    w, c = weights(model), model.config

    def norm(x, name):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + c.layer_norm_epsilon) * w[name + ".weight"] + w[
            name + ".bias"
        ]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    for i in range(c.n_layer):
        at = f"transformer.h.{i}."
        qkv = norm(x, at + "ln_1") @ w[at + "attn.c_attn.weight"] + w[at + "attn.c_attn.bias"]
        q, k, v = (
            part.reshape(len(ids), c.n_head, -1).swapaxes(0, 1)
            for part in np.split(qkv, 3, axis=1)
        )
        x = (
            x
            + attend(q, k, v).swapaxes(0, 1).reshape(len(ids), -1)
            @ w[at + "attn.c_proj.weight"]
            + w[at + "attn.c_proj.bias"]
        )
        h = norm(x, at + "ln_2") @ w[at + "mlp.c_fc.weight"] + w[at + "mlp.c_fc.bias"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ w[at + "mlp.c_proj.weight"] + w[at + "mlp.c_proj.bias"]
    return norm(x, "transformer.ln_f")[-1] @ w["lm_head.weight"].T


def numpy_llama(model, ids):
    "Logits for the token after `ids`: Touvron et al. 2023, with rotary positions and grouped keys, in float64."
    w, c = weights(model), model.config

    def norm(x, name):
        return (
            x / np.sqrt((x**2).mean(-1, keepdims=True) + c.rms_norm_eps) * w[name + ".weight"]
        )

    size = c.hidden_size // c.num_attention_heads
    angle = np.arange(len(ids))[:, None] / 10000.0 ** (np.arange(0, size, 2) / size)
    cos, sin = (np.concatenate([f(angle)] * 2, axis=1) for f in (np.cos, np.sin))

    def turn(x):
        return (
            x * cos
            + np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], axis=-1) * sin
        )

    x = w["model.embed_tokens.weight"][ids]
    for i in range(c.num_hidden_layers):
        at = f"model.layers.{i}."
        h = norm(x, at + "input_layernorm")
        q, k, v = (
            (h @ w[at + f"self_attn.{n}_proj.weight"].T)
            .reshape(len(ids), -1, size)
            .swapaxes(0, 1)
            for n in "qkv"
        )
        k, v = (
            np.repeat(t, c.num_attention_heads // c.num_key_value_heads, axis=0)
            for t in (k, v)
        )
        x = (
            x
            + attend(turn(q), turn(k), v).swapaxes(0, 1).reshape(len(ids), -1)
            @ w[at + "self_attn.o_proj.weight"].T
        )
        h = norm(x, at + "post_attention_layernorm")
        gate = h @ w[at + "mlp.gate_proj.weight"].T
        x = (
            x
            + (gate / (1 + np.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T))
            @ w[at + "mlp.down_proj.weight"].T
        )
    return norm(x, "model.norm")[-1] @ w["lm_head.weight"].T


def own_float64(model, ids):
    "For architectures not written out here: the model's own float64 copy, still one prefix at a time."
    if not hasattr(model, "_exact"):
        object.__setattr__(model, "_exact", copy.deepcopy(model).double())
    with torch.no_grad():
        return (
            model._exact(input_ids=torch.tensor(np.array(ids)[None]))
            .logits[0, -1]
            .double()
            .numpy()
        )


def chain_rule(forward, model, ids, windows):
    "-log p of each scored token from nothing but the tokens before it in its window."
    found = []
    for w in windows:
        row = []
        for j in range(w.score_from, w.stop):
            z = forward(model, ids[w.start : j])
            row.append(np.log(np.exp(z - z.max()).sum()) + z.max() - z[ids[j]])
        found.append(np.array(row))
    return found


def one_window(model, ids, w):
    "-log p of each scored token from one pass over this window alone, in the model's own precision."
    x = torch.tensor(np.asarray(ids)[w.start : w.stop])
    with torch.no_grad():
        out = model(input_ids=x[None, :-1])
    logp = getattr(out, "logits", out)[0].double().log_softmax(-1)
    return -logp[
        torch.arange(w.score_from - 1 - w.start, w.stop - 1 - w.start),
        x[w.score_from - w.start :],
    ].numpy()


def text_ids(vocab_size, n=101, seed=0):
    ids = np.random.default_rng(seed).integers(0, vocab_size, n)
    ids[[0, 5, 6, n // 2, -1]] = 0, 0, vocab_size - 1, 0, 0  # 0 is a real token here
    return ids


# --- tokenizers ------------------------------------------------------------------------------------------------------------------------
def byte_tokenizer(bos=True, extra=(), pad=END):
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {
        END: 256
    }
    words = Tokenizer(token_models.BPE(vocab=vocab, merges=[]))
    words.pre_tokenizer, words.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    if bos:
        words.post_processor = processors.TemplateProcessing(
            single=f"{END} $A", special_tokens=[(END, 256)]
        )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token=END,
        eos_token=END,
        **({"pad_token": pad} if pad else {}),
    )
    if extra:
        made.add_tokens(list(extra))
    return made


def merged_tokenizer():
    "BPE with merges, so that tokens are longer than bytes and some are parts of characters."
    from tokenizers.trainers import BpeTrainer

    words = Tokenizer(token_models.BPE())
    words.pre_tokenizer, words.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    words.train_from_iterator(
        ["the cat sat on the mat, Zürich Łódź 東京 東京 "] * 4,
        BpeTrainer(
            vocab_size=300,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words)


def word_tokenizer():
    "Lowercases, strips accents, drops white space: offsets have gaps and the text's own bytes are not its tokens' bytes."
    vocab = {
        w: i
        for i, w in enumerate(
            ["[UNK]", "the", "cat", "sat", "zurich", "a", "e", "##a", "##e", "##t", "b", "."]
        )
    }
    words = Tokenizer(token_models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")


def unigram_tokenizer():
    "SentencePiece style: a space becomes a visible mark, and one is put before the text."
    words = Tokenizer(
        token_models.Unigram(
            [
                ("<unk>", 0.0),
                ("▁", -2.0),
                ("▁the", -1.0),
                ("a", -3.0),
                ("t", -3.0),
                ("c", -3.0),
                ("é", -4.0),
            ],
            unk_id=0,
            byte_fallback=False,
        )
    )
    words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


class Letters:
    "A tokenizer of the plainest kind: no offsets, no backend."

    bos_token_id = None

    def get_vocab(self):
        return {chr(97 + i): i for i in range(26)}

    def __call__(self, text, add_special_tokens=True, **_):
        return {"input_ids": [ord(c) - 97 for c in text]}


def save(model, folder, tokenizer=None):
    model.save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return folder


# --- GGUF ------------------------------------------------------------------------------------------------------------------------------
def write_gguf(folder, path, kind, merges=None, splitting="default"):
    "A Llama-type folder as llama.cpp's converter writes it: rows of q and k permuted, rows that no block divides in F16, norms in F32."
    import json

    import gguf
    from safetensors.numpy import load_file

    c = json.loads((folder / "config.json").read_text())
    heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
    w, asked = gguf.GGUFWriter(path, "llama"), gguf.GGMLQuantizationType[kind]
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(groups)
    w.add_vocab_size(c["vocab_size"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    w.add_rope_dimension_count(c["head_dim"])
    words = json.loads((folder / "tokenizer.json").read_text())["model"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(splitting)
    w.add_token_list(sorted(words["vocab"], key=words["vocab"].get))
    if merges is not None:
        w.add_token_merges(merges)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c["num_hidden_layers"])
    for name, x in load_file(folder / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            n = heads if "q_proj" in name else groups
            x = x.reshape(n, 2, len(x) // n // 2, -1).swapaxes(1, 2).reshape(x.shape)
        fits = x.shape[-1] % gguf.GGML_QUANT_SIZES[asked][0] == 0
        to = (
            gguf.GGMLQuantizationType.F32
            if x.ndim == 1
            else asked
            if fits
            else gguf.GGMLQuantizationType.F16
        )
        w.add_tensor(
            names.get_name(name, (".weight",)),
            gguf.quants.quantize(x.astype(np.float32), to),
            raw_dtype=to,
        )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
