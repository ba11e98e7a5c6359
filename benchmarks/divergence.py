"""What does it cost to compare all next-token probabilities of two models? `python benchmarks/divergence.py`

Random weights and a slightly moved copy, one text. `score_together` (both losses, KL divergence, changed first choices, changed
probabilities) against scoring both arms one after the other, and against log_softmax of both, whole, a window at a time. Ratios of
alternating runs. `--memory` measures the peak above the loaded models, each in a process of its own; there scoring is of one model."""
import argparse
import copy
from dataclasses import dataclass, field

import numpy as np
from alternate import alternate, machine, table
from scoring import build, peak, peaks

from invar_nb import score_together, score_windows


@dataclass
class Plan:
    "As much of a plan of a text as scoring needs, for token ids."
    token_ids: dict
    windows: list
    data_id: str = "ids"
    document_ids = n_bytes = None
    provenance: dict = field(default_factory=dict)

    @property
    def window_ids(self): return [w.window_id for w in self.windows]

    @property
    def tokens(self): return [w.tokens for w in self.windows]


def ways(models, ids, windows, a):
    import torch
    plan, text = Plan({windows[0].document_id: ids}, windows), torch.as_tensor(ids)

    def together():
        one, two = score_together(*models, plan, batch_tokens=a.batch_tokens)
        return one.totals[0].sum(), two.totals[0].sum(), two.columns["kl_divergence"].sum()

    def after_another():
        arms = [score_windows(model, plan.token_ids, windows, batch_tokens=a.batch_tokens) for model in models]
        return tuple(arm.totals[0].sum() for arm in arms)

    def one(): return score_windows(models[0], plan.token_ids, windows, batch_tokens=a.batch_tokens)

    @torch.inference_mode()
    def whole():
        total = np.zeros(3)
        for w in windows:
            p, q = (m(input_ids=text[None, w.start:w.stop - 1], use_cache=False).logits[0, w.score_from - w.start - 1:].float().log_softmax(-1) for m in models)
            at = torch.arange(w.tokens), text[w.score_from:w.stop]
            total += float(-p[at].sum()), float(-q[at].sum()), float((p.exp() * (p - q)).sum())
        return total
    return {"score_together": together, "both arms, one after the other": after_another, "log_softmax of both, a window at a time": whole, "one arm": one}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    for name, value in dict(tokens=2048, length=512, stride=512, vocab=50257, hidden=256, layers=4, rounds=5, threads=1, batch_tokens=2048).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--arch", choices=["gpt2", "llama"], default="gpt2")
    p.add_argument("--memory", action="store_true")
    p.add_argument("--one", help=argparse.SUPPRESS)
    a = p.parse_args()
    import torch
    model, ids, windows = build(a)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for weight in moved.parameters(): weight.mul_(1 + .01 * torch.randn_like(weight))
    chosen = ways((model, moved), ids, windows, a)
    if a.one:
        print(f"{peak(chosen[a.one]):.0f}")
        return
    machine("torch", "transformers", "numpy")
    title = f"{a.arch}, {sum(q.numel() for q in model.parameters()) / 1e6:.0f} M parameters, V = {a.vocab}, N = {a.tokens}, L = {a.length}"
    if a.memory:
        print(f"\n{title}: peak resident memory above the loaded models, MiB")
        peaks(chosen)
        return
    mine, truth, n = chosen["score_together"](), chosen["log_softmax of both, a window at a time"](), sum(w.tokens for w in windows)
    print("means of both losses and of KL differ from log_softmax by", ", ".join(f"{abs(x - y) / n:.1e}" for x, y in zip(mine, truth, strict=True)), f"nats; KL {truth[2] / n:.2g}")
    chosen.pop("one arm")
    table(title, alternate(chosen, a.rounds), "both arms, one after the other", {"score_together": "<= 1.15"})


if __name__ == "__main__": main()
