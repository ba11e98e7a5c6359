"""What does it cost to compare all next-token probabilities of two models? `python benchmarks/divergence.py`

Random weights and a slightly moved copy, one text. `score_together` (both losses, KL divergence, changed first choices, changed
probabilities) against scoring both arms one after the other, and against log_softmax of both, whole, a window at a time. Ratios of
alternating runs. `--memory` measures the peak above the loaded models, each in a process of its own; there scoring is of one model."""

import copy
from dataclasses import dataclass, field

import numpy as np
from alternate import alternate, figures, machine, table
from scoring import SHAPES, as_loaded, build, of_shape, options, peak, peaks, title

from invar_nb import score_together, score_windows


@dataclass
class Plan:
    "As much of a plan of a text as scoring needs, for token ids."

    token_ids: dict
    windows: list
    data_id: str = "ids"
    document_ids = n_bytes = None
    provenance: dict = field(default_factory=dict)
    classes: tuple = ()

    @property
    def window_ids(self):
        return [w.window_id for w in self.windows]

    @property
    def tokens(self):
        return [w.tokens for w in self.windows]


def ways(models, ids, windows):
    import torch

    bare = [model.model for model in models]
    plan, text = (
        Plan({windows[0].document_id: ids}, windows),
        torch.as_tensor(ids, device=bare[0].device),
    )

    def together():
        one, two = score_together(*models, plan)
        return one.totals[0].sum(), two.totals[0].sum(), two.columns["kl_divergence"].sum()

    def after_another():
        arms = [score_windows(model, plan.token_ids, windows) for model in models]
        return tuple(arm.totals[0].sum() for arm in arms)

    def one():
        return score_windows(models[0], plan.token_ids, windows)

    @torch.inference_mode()
    def whole():
        total = np.zeros(3)
        for w in windows:
            p, q = (
                m(input_ids=text[None, w.start : w.stop - 1], use_cache=False)
                .logits[0, w.score_from - w.start - 1 :]
                .float()
                .log_softmax(-1)
                for m in bare
            )
            at = torch.arange(w.tokens, device=text.device), text[w.score_from : w.stop]
            total += float(-p[at].sum()), float(-q[at].sum()), float((p.exp() * (p - q)).sum())
        return total

    return {
        "score_together": together,
        "both arms, one after the other": after_another,
        "log_softmax of both, a window at a time": whole,
        "one arm": one,
    }


def main():
    a = options(__doc__.split("\n")[0], rounds=5)
    if not a.one:
        machine("torch", "transformers", "numpy")
    for shape in [a.shape] if a.shape else SHAPES:
        measure(of_shape(a, shape))


def measure(a):
    import torch

    model, ids, windows = build(a)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for weight in moved.parameters():
            weight.mul_(1 + 0.01 * torch.randn_like(weight))
    chosen = ways([as_loaded(model), as_loaded(moved)], ids, windows)
    if a.one:
        return print(f"{peak(chosen[a.one], a.device):.1f}")
    mine, truth, n = (
        chosen["score_together"](),
        chosen["log_softmax of both, a window at a time"](),
        sum(w.tokens for w in windows),
    )
    print(
        f"\n{title(model, a)}\nmeans of both losses and of KL differ from log_softmax by",
        ", ".join(f"{abs(x - y) / n:.1e}" for x, y in zip(mine, truth, strict=True)),
        f"nats; KL {truth[2] / n:.2g}",
        end="",
    )
    one = chosen.pop("one arm")
    table(
        "ratio to both arms",
        alternate(chosen, a.rounds),
        "both arms, one after the other",
        {"score_together": "<= 1.15"},
    )
    if a.memory:
        chosen["one arm"] = one
        figures(
            "peak memory above the loaded models, MiB",
            {name: (value, "") for name, value in peaks(chosen, "--shape", a.shape).items()},
        )


if __name__ == "__main__":
    main()
