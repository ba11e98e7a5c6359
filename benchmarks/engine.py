"""What does scoring a GGUF cost, beside the plain loop of transformers and beside llama-perplexity? `python benchmarks/engine.py [FILE.gguf ...]`

The loop runs one window at a time through the same loaded model and takes the log-softmax of its logits; with labels, as the documentation of transformers
has it, that model computes the loss. Windows of 512 tokens that move on by 256. llama-perplexity scores chunks of its own, of which we score the same
tokens: its kernels multiply quantised weights with activations in 8 bits, ours float32 with float32. One thread; times are of the processor, since
ratios of those hold on a busy machine. Without a file: SmolLM2 and, where it was fetched, Gemma 3, from the folder that `make real` fills."""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from alternate import alternate, cpu_seconds, figures, machine, peak_memory, table
from scoring import resident

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import real  # noqa: E402

LENGTH, STRIDE = 512, 256
N_CHUNKS = 4
TILE = 1008  # columns
LOOP = "transformers, one window at a time, log-softmax"
LIMIT = "limit: layers, head's product with the scored rows"
LIBRARIES = "import torch, transformers; from transformers.models.llama import modeling_llama"


def usual_files():
    files = [real.model("Q4_K_M"), real.REAL / "models" / "gemma-3-270m-Q4_K_M.gguf"]
    return [file for file in files if file.exists()]


def loop(model, ids, windows):
    "The mean loss of each window, from logits of all its tokens."
    import torch

    losses = []
    with torch.inference_mode():
        for w in windows:
            logits = model(input_ids=ids[None, w.start : w.stop]).logits[0]
            log_p = torch.log_softmax(logits[w.score_from - w.start - 1 : -1].float(), -1)
            targets = ids[w.score_from : w.stop, None]
            losses.append(-float(log_p.gather(1, targets).double().mean()))
    return losses


def documentation(model, ids, windows):
    "The mean loss of each window, as the model computes it from labels."
    import torch

    losses = []
    with torch.inference_mode():
        for w in windows:
            labels = ids[None, w.start : w.stop].clone()
            labels[:, : w.score_from - w.start] = -100
            inputs = ids[None, w.start : w.stop]
            losses.append(float(model(input_ids=inputs, labels=labels).loss))
    return losses


def limit(model, ids, windows):
    "What cannot be left out: the layers below the head, and the head's product with the scored rows, in tiles that nobody reads."
    import torch

    matrix = model.get_output_embeddings().weight
    buffer = torch.empty(LENGTH, TILE)
    with torch.inference_mode():
        for w in windows:
            inputs = ids[None, w.start : w.stop - 1]
            hidden = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
            rows = hidden[0, w.score_from - w.start - 1 :]
            for begin in range(0, len(matrix), TILE):
                tile = matrix[begin : begin + TILE]
                torch.mm(
                    rows,
                    tile.T,
                    out=buffer.flatten()[: len(rows) * len(tile)].view(len(rows), -1),
                )


def perplexity_of_engine(file):
    "llama-perplexity on the first chunks; its time includes loading, under a second."
    command = [real.program("llama-perplexity"), "-m", file, "-f", real.text_file()]
    more = ["-t", "1", "-c", str(LENGTH), "--chunks", str(N_CHUNKS)]
    subprocess.run([*command, *more], capture_output=True, check=True)


def text():
    return real.text_file().read_text(encoding="utf-8")


def one(file, n_tokens):
    "The peak of this process, MiB, with a model loaded and a text scored."
    import torch

    from invar_nb import load_model, plan_windows, score_windows

    torch.set_num_threads(1)
    loaded = load_model(file)
    ids = np.array(loaded.tokenizer(text())["input_ids"][:n_tokens])
    windows = plan_windows(len(ids), max_length=LENGTH, stride=STRIDE)
    score_windows(loaded, ids, windows)
    print(resident("VmHWM"))


def measure(file, n_tokens, rounds):
    "Print the ratios of one file; the MiB of its weights in float32."
    import torch

    from invar_nb import load_model, plan_windows, score_windows
    from invar_nb.models.score import score_plan
    from invar_nb.models.text_plan import plan_text

    torch.set_num_threads(1)
    loaded = load_model(file)
    parameters = sum(p.numel() for p in loaded.model.parameters())
    vocabulary = loaded.model.get_input_embeddings().num_embeddings
    ids = np.array(loaded.tokenizer(text())["input_ids"][:n_tokens])
    windows = plan_windows(len(ids), max_length=LENGTH, stride=STRIDE)
    tensor = torch.as_tensor(ids)
    print(
        f"\n{file.name}: {parameters / 1e6:.0f} million weights, vocabulary {vocabulary:,}, "
        f"{len(ids):,} tokens in {len(windows)} windows"
    )
    ours = score_windows(loaded, ids, windows).log_loss
    others = {
        way.__name__: way(loaded.model, tensor, windows) for way in (loop, documentation)
    }
    distance = {name: float(np.abs(ours - x).max()) for name, x in others.items()}
    figures(
        "largest difference of a window's loss from ours, nats",
        {name: (value, "<= 1e-4") for name, value in distance.items()},
    )
    runs = {
        "this package": lambda: score_windows(loaded, ids, windows),
        LIMIT: lambda: limit(loaded.model, tensor, windows),
        LOOP: lambda: loop(loaded.model, tensor, windows),
        "transformers, one window at a time, its own loss": lambda: documentation(
            loaded.model, tensor, windows
        ),
    }
    seconds = alternate(runs, rounds, clock=cpu_seconds)
    table("scoring, seconds of the processor", seconds, LOOP, {"this package": "<= .65"})
    few = {name: seconds[name] for name in ("this package", LIMIT)}
    table("beside the limit", few, LIMIT, {"this package": "<= 1.1"})
    if real.program("llama-perplexity").exists():
        plan = plan_text(loaded, text(), windowing="llama.cpp", windows=f"first:{N_CHUNKS}")
        runs = {
            "this package, the same tokens": lambda: score_plan(loaded, plan),
            "llama-perplexity, its process": lambda: perplexity_of_engine(file),
        }
        seconds = alternate(runs, rounds, clock=cpu_seconds)
        title = f"{N_CHUNKS} chunks of {LENGTH} tokens, seconds of the processor"
        table(title, seconds, "llama-perplexity, its process")
    return 4 * parameters / 2**20


def measure_memory(file, n_tokens, weights):
    peak = peak_memory([__file__, file.resolve(), "--tokens", n_tokens, "--one"])
    libraries = peak_memory(
        ["-c", f"{LIBRARIES}; from scoring import resident; print(resident('VmHWM'))"]
    )
    most = f"<= {weights + 400:.0f}"
    figures(
        "memory of a process that loads and scores, MiB",
        {
            "its peak": (peak, most),
            "its peak without what the libraries take": (peak - libraries, most),
            "the libraries, imported": (libraries, ""),
            "weights in float32": (weights, ""),
        },
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    files = chosen.files or usual_files()
    if not files:
        print(
            "no GGUF is here: name one, or run `make real` first (INVAR_NB_REAL: another folder)"
        )
        return
    if chosen.one:
        one(files[0], chosen.tokens)
        return
    machine("torch", "transformers", "gguf")
    for file in files:
        weights = measure(file, chosen.tokens, chosen.rounds)
        measure_memory(file, chosen.tokens, weights)


if __name__ == "__main__":
    main()
