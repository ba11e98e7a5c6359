"""What does a loss cost, beyond the network itself? `python benchmarks/scoring.py`

Random weights, the same text for all. The limit is the backbone plus one product with the head for the scored positions, in the same
batches. The peers are the recipe of the Hugging Face documentation (one window at a time, labels masked with -100) and the naive
log-softmax over whole logits. `--memory` measures the peak above the loaded model, each in a process of its own."""
import argparse
import subprocess
import sys

import numpy as np
from alternate import alternate, machine, table

from invar_nb import plan_windows, score_windows


def build(a):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    none = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if a.arch == "gpt2":
        config = GPT2Config(vocab_size=a.vocab, n_positions=a.length, n_embd=a.hidden, n_layer=a.layers, n_head=a.hidden // 64, **none)
        model = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(vocab_size=a.vocab, max_position_embeddings=a.length, hidden_size=a.hidden, intermediate_size=3 * a.hidden, num_hidden_layers=a.layers,
                             num_attention_heads=a.hidden // 64, num_key_value_heads=max(1, a.hidden // 128), tie_word_embeddings=True, **none)
        model = LlamaForCausalLM(config)
    ids = np.random.default_rng(0).integers(0, a.vocab, a.tokens)
    return model.eval(), ids, plan_windows(a.tokens, max_length=a.length, stride=a.stride)


def ways(model, ids, windows, a):
    import torch
    import torch.nn.functional as F
    text = torch.as_tensor(ids)
    rows = max(1, a.batch_tokens // a.length)

    @torch.inference_mode()
    def limit():
        for k in range(0, len(windows), rows):
            batch = windows[k:k + rows]
            width = max(w.stop - w.start for w in batch)
            inputs = torch.zeros(len(batch), width, dtype=torch.long)
            for i, w in enumerate(batch): inputs[i, :w.stop - w.start] = text[w.start:w.stop]
            hidden = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
            kept = torch.cat([hidden[i, w.score_from - w.start - 1:w.stop - w.start - 1] for i, w in enumerate(batch)])
            for part in kept.split(512): part @ model.lm_head.weight.T

    @torch.inference_mode()
    def documentation():
        total = 0.0
        for w in windows:
            inputs = text[None, w.start:w.stop]
            labels = inputs.clone()
            labels[:, :w.score_from - w.start] = -100
            total += float(model(input_ids=inputs, labels=labels, use_cache=False).loss) * w.tokens
        return total

    @torch.inference_mode()
    def naive():
        total = 0.0
        for w in windows:
            logp = F.log_softmax(model(input_ids=text[None, w.start:w.stop], use_cache=False).logits[0].float(), -1)
            rows_ = torch.arange(w.score_from - w.start - 1, w.stop - w.start - 1)
            total -= float(logp[rows_, text[w.score_from:w.stop]].sum())
        return total

    def ours():
        losses = score_windows(model, ids, windows, batch_tokens=a.batch_tokens)
        return float((losses.log_loss * losses.tokens).sum())
    return {"this package": ours, "limit: backbone and head product": limit, "documentation's recipe": documentation, "naive log-softmax": naive}


def resident(field):
    "Resident memory of this process, MiB: VmRSS now, VmHWM at its highest."
    with open("/proc/self/status", encoding="ascii") as f: return next(int(line.split()[1]) / 1024 for line in f if line.startswith(field))


def peak(call):
    "MiB that a call adds to the resident memory of this process; the peak of loading is forgotten first."
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f: f.write("5")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def peaks(names):
    "Print the peak of each run, each in a process of its own."
    for name in names:
        r = subprocess.run([sys.executable, *sys.argv, "--one", name], capture_output=True, text=True, check=True)
        print(f"  {name:44s} {r.stdout.split()[-1]:>8s}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    for name, value in dict(tokens=1024, length=512, stride=512, vocab=50257, hidden=256, layers=4, rounds=3, threads=1, batch_tokens=2048).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--arch", choices=["gpt2", "llama"], default="gpt2")
    p.add_argument("--memory", action="store_true")
    p.add_argument("--one", help=argparse.SUPPRESS)
    a = p.parse_args()
    model, ids, windows = build(a)
    chosen = ways(model, ids, windows, a)
    if a.one:
        print(f"{peak(chosen[a.one]):.0f}")
        return
    machine("torch", "transformers", "numpy")
    sums = {name: call() for name, call in chosen.items() if not name.startswith("limit")}
    print("sums of losses agree to", f"{max(abs(v / sums['naive log-softmax'] - 1) for v in sums.values()):.1e}", "of the naive one")
    table(f"{a.arch}, {sum(q.numel() for q in model.parameters()) / 1e6:.0f} M parameters, V = {a.vocab}, N = {a.tokens}, L = {a.length}, S = {a.stride}: ratio to the limit",
          alternate(chosen, a.rounds), "limit: backbone and head product", {"this package": "<= 1.05 where the model is large"})
    if a.memory:
        print("\npeak resident memory above the loaded model, MiB")
        peaks(chosen)


if __name__ == "__main__": main()
