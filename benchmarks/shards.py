"""What does it cost to score a text in shards and to merge them? `python benchmarks/shards.py`

Shards run here one after another with the model loaded once, so that what is timed is the work that comes with a cut: choosing windows,
a journal and a part for each shard, the merge. Merging is also timed by itself, on parts of synthetic windows, against what it cannot do
without: reading every part and writing the merged file."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from alternate import alternate, figures, machine, table

import invar_nb
from invar_nb import WindowLosses, load_model, write_losses
from invar_nb.files.losses import open_losses
from invar_nb.files.merge import Shard, Target, merge_parts, write_part
from invar_nb.models.score import score_plan
from invar_nb.models.shards import place_journal, plan_shards, score_shard
from invar_nb.models.text_plan import plan_text


def scored(folder, sentences, cuts, threads):
    "Ways to come from a loaded model and a plan to the file of losses."
    import torch

    torch.set_num_threads(threads)
    model = load_model(Path(invar_nb.__file__).parent / "demo_models" / "base")
    text = " ".join(
        f"The sentence after number {i} counts to {i * i}." for i in range(sentences)
    )
    plan = plan_text(model, text, max_length=256, stride=128)
    print(f"\n{plan.counts}, {len(plan_shards(model, plan).scorer.batches)} batches")

    def alone():
        write_losses(
            score_plan(model, plan, journal=folder / "alone.journal"), folder / "alone.parquet"
        )
        (folder / "alone.journal").unlink()

    def cut(of):
        target, work = Target(folder / f"cut{of}"), plan_shards(model, plan)
        for i in range(1, of + 1):
            score_shard(work, target, (i, of), journal=place_journal(target, Shard(i, of)))
        merge_parts(target, folder / f"cut{of}.parquet")
        assert (folder / f"cut{of}.parquet").read_bytes() == (
            folder / "alone.parquet"
        ).read_bytes()
        for name in target.names():
            target.remove(name)

    return {"one process": alone} | {
        f"{of} shard{'s' * (of > 1)}, and merging": lambda of=of: cut(of) for of in cuts
    }


def merged(folder, n, of, suffix):
    "Ways to come from the parts of n windows to one file."
    rng, target = np.random.default_rng(0), Target(folder / f"synthetic{suffix}")
    whole = WindowLosses.from_arrays(
        [f"0:{128 * i}-{128 * i + 128}" for i in range(n)],
        np.full(n, 128),
        rng.gamma(9, 0.3, n),
        data_id="sha256:0",
        n_bytes=rng.integers(400, 600, n),
        document_ids=[str(i // 1000) for i in range(n)],
    )
    facts = {
        "model": "",
        "provenance": {
            "shard": {
                "windows": n,
                "data_id": "sha256:0",
                "batches": "",
                "command": "",
                "by": [],
            }
        },
    }
    batches = tuple(range(i, min(n, i + 8)) for i in range(0, n, 8))
    for shard in (Shard(i, of) for i in range(1, of + 1)):
        numbers = np.array([i for batch in shard.take(batches) for i in batch])
        write_part(target, shard, whole.take(numbers), numbers, facts)
    paths = [target.root / name for name in target.names()]

    def plain():
        for path in paths:
            for _ in open_losses(path).batches():
                pass
        write_losses(whole, folder / f"plain{suffix}")

    return {
        "read every part, write the file": plain,
        f"merge {of} parts": lambda: merge_parts(target, folder / f"merged{suffix}"),
    }, sum(p.stat().st_size for p in paths) / n


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--sentences", type=int, default=800)
    p.add_argument("--windows", type=int, default=100_000)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    machine("numpy", "torch", "pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        runs = scored(Path(folder), a.sentences, (1, 7, 16), a.threads)
        table(
            "a text scored",
            alternate(runs, a.rounds),
            "one process",
            {name: "<= 1.1" for name in runs if "shard" in name},
        )
        runs, size = merged(Path(folder), a.windows, 16, ".parquet")
        table(
            f"{a.windows} windows merged",
            alternate(runs, a.rounds),
            "read every part, write the file",
            {"merge 16 parts": "<= 2"},
        )
        figures("part files", {"bytes a window": (size, "<= 40")})


if __name__ == "__main__":
    main()
