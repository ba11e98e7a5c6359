"""What does a loss cost, beyond the network itself? `python benchmarks/scoring.py`

Random weights, the same text for all. The limit: one window at a time without padding, the network below the head, and the head's
product with the scored rows in tiles, all into one buffer; no logit is ever read. The peers are the recipe of the Hugging Face
documentation (one window at a time, labels masked with -100) and the naive log-softmax over whole logits. `--memory` measures the
peak above the loaded model, each in a process of its own that forgets the peak of loading first. `--dtype bfloat16` and `--tokens 8192`
measure the same in half precision and on longer texts; `--device cuda --shape llama-1b --dtype bfloat16 --tokens 65536 --length 2048` on a GPU."""

import argparse
import subprocess
import sys

import numpy as np
from alternate import alternate, figures, machine, table

from invar_nb import plan_windows, score_windows

SHAPES = {
    "gpt2": dict(vocab=50257, hidden=256, layers=4),
    "llama": dict(vocab=128256, hidden=512, layers=4),
    "gpt2-wide": dict(vocab=50257, hidden=768, layers=2),
}
LARGE = {"llama-1b": dict(vocab=128256, hidden=2048, layers=16)}  # on a GPU
LIMIT, RECIPE = "limit: backbone, head in tiles", "documentation's recipe"


def build(a):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    none = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if a.shape.startswith("gpt2"):
        config = GPT2Config(
            vocab_size=a.vocab,
            n_positions=a.length,
            n_embd=a.hidden,
            n_layer=a.layers,
            n_head=a.hidden // 64,
            **none,
        )
        model = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(
            vocab_size=a.vocab,
            max_position_embeddings=a.length,
            hidden_size=a.hidden,
            intermediate_size=3 * a.hidden,
            num_hidden_layers=a.layers,
            num_attention_heads=a.hidden // 64,
            num_key_value_heads=max(1, a.hidden // 128),
            tie_word_embeddings=True,
            **none,
        )
        model = LlamaForCausalLM(config)
    ids = np.random.default_rng(0).integers(0, a.vocab, a.tokens)
    return (
        model.eval().to(a.device, getattr(torch, a.dtype)),
        ids,
        plan_windows(a.tokens, max_length=a.length, stride=a.stride),
    )


def ways(model, ids, windows, a):
    import torch
    import torch.nn.functional as F

    text, tile = torch.as_tensor(ids, device=a.device), 1008 * (1 if a.device == "cpu" else 16)

    @torch.inference_mode()
    def limit():
        matrix = model.lm_head.weight
        buffer = torch.empty(a.length * tile, dtype=matrix.dtype, device=a.device)
        for w in windows:
            hidden = model.base_model(
                input_ids=text[None, w.start : w.stop - 1], use_cache=False
            ).last_hidden_state[0, w.score_from - w.start - 1 :]
            for k in range(0, len(matrix), tile):
                part = matrix[k : k + tile]
                torch.mm(
                    hidden,
                    part.T,
                    out=buffer[: len(hidden) * len(part)].view(len(hidden), len(part)),
                )
        return buffer[0].item()  # a GPU has then done all of it

    @torch.inference_mode()
    def documentation():
        total = 0.0
        for w in windows:
            inputs = text[None, w.start : w.stop]
            labels = inputs.clone()
            labels[:, : w.score_from - w.start] = -100
            total += (
                float(model(input_ids=inputs, labels=labels, use_cache=False).loss) * w.tokens
            )
        return total

    @torch.inference_mode()
    def naive():
        total = 0.0
        for w in windows:
            logp = F.log_softmax(
                model(input_ids=text[None, w.start : w.stop], use_cache=False)
                .logits[0]
                .float(),
                -1,
            )
            rows = torch.arange(
                w.score_from - w.start - 1, w.stop - w.start - 1, device=a.device
            )
            total -= float(logp[rows, text[w.score_from : w.stop]].double().sum())
        return total

    loaded = as_loaded(model)

    def ours():
        losses = score_windows(loaded, ids, windows)
        return float((losses.log_loss * losses.tokens).sum())

    return {
        "this package": ours,
        LIMIT: limit,
        RECIPE: documentation,
        "naive log-softmax": naive,
    }


def as_loaded(model):
    "The model as `load_model` would return it, digests known, so that files are not part of what is timed."
    from invar_nb.models.load import LoadedModel, checksum, describe

    facts = {
        "model": "random",
        "weights_digest": "random",
        "config_digest": "random",
        "device": model.device.type,
        **describe(model),
    }
    return LoadedModel(
        model=model,
        tokenizer=None,
        name="random",
        weights_digest="random",
        max_length=None,
        provenance=facts,
        checksum=checksum(model),
    )


def resident(field):
    "Resident memory of this process, MiB: VmRSS now, VmHWM at its highest."
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(field))


def peak(call, device):
    "MiB that a call adds to the resident memory of this process, or of the GPU; the peak of loading is forgotten first."
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def peaks(names, *more):
    "{name: MiB}: the peak of each, each in a process of its own."

    def run(name):
        return float(
            subprocess.run(
                [sys.executable, *sys.argv, *more, "--one", name],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()[-1]
        )

    return {name: run(name) for name in names}


def options(description, **defaults):
    p = argparse.ArgumentParser(description=description)
    for name, value in {
        **dict(tokens=2048, length=512, stride=512, rounds=3, threads=1),
        **defaults,
    }.items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument(
        "--shape", choices=SHAPES | LARGE, help="default: each of " + ", ".join(SHAPES)
    )
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--device", default="cpu")
    p.add_argument("--memory", action="store_true")
    p.add_argument("--one", help=argparse.SUPPRESS)
    return p.parse_args()


def of_shape(a, shape):
    return argparse.Namespace(**{**vars(a), **(SHAPES | LARGE)[shape], "shape": shape})


def title(model, a):
    return f"{a.shape}, {sum(q.numel() for q in model.parameters()) / 1e6:.0f} M parameters, {a.dtype}, V = {a.vocab}, hidden {a.hidden}, N = {a.tokens}, L = {a.length}, S = {a.stride}"


def measure(a):
    model, ids, windows = build(a)
    chosen = ways(model, ids, windows, a)
    if a.one:
        return print(f"{peak(chosen[a.one], a.device):.1f}")
    sums = {name: call() for name, call in chosen.items() if name != LIMIT}
    print(
        f"\n{title(model, a)}\nsums of losses agree to {max(abs(v / sums['naive log-softmax'] - 1) for v in sums.values()):.1e} of the naive one",
        end="",
    )
    seconds = alternate(chosen, a.rounds)
    asked = a.dtype == "float32" and a.tokens >= 2048
    table("ratio to the limit", seconds, LIMIT, {"this package": "<= 1.1"} if asked else {})
    table(
        "ratio to the recipe",
        {name: seconds[name] for name in ("this package", RECIPE)},
        RECIPE,
        {"this package": "<= .75"} if asked else {},
    )
    print(
        f"\n  tokens a second: {', '.join(f'{name} {a.tokens / min(times):,.0f}' for name, times in seconds.items())}"
    )
    if a.memory:
        found = peaks(chosen, "--shape", a.shape)
        figures(
            "peak memory above the loaded model, MiB",
            {name: (value, "") for name, value in found.items()},
        )
        figures(
            "share of the recipe's",
            {
                "this package": (
                    found["this package"] / found[RECIPE],
                    "<= .3" if asked else "",
                )
            },
        )


def main():
    a = options(__doc__.split("\n")[0])
    if not a.one:
        machine("torch", "transformers", "numpy")
    for shape in [a.shape] if a.shape else SHAPES:
        measure(of_shape(a, shape))


if __name__ == "__main__":
    main()
