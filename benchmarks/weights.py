"""What does comparing the weights of two models cost, beside scoring both? `python benchmarks/weights.py`

Random Llamas of three sizes, the candidate rounded to 8 bits; `--kind gguf` packs both as Q8_0. The last column is how many processed tokens make the comparison a
tenth of the scoring, which `TOKENS` of the page on weights bounds."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from alternate import figures, machine

from invar_nb import compare_weights, plan_windows, score_windows

SHAPES = {
    "5 million": (256, 4, 8000),
    "30 million": (512, 6, 16000),
    "90 million": (768, 10, 32000),
}


def build(hidden, layers, vocab):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 64,
            num_key_value_heads=hidden // 64,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()


def saved(folder, tensors, model, kind):
    from safetensors.numpy import save_file

    folder.mkdir()
    model.config.save_pretrained(folder)
    if kind == "safetensors":
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    import gguf

    w = gguf.GGUFWriter(folder / "m.gguf", "llama")
    for name, x in tensors.items():
        to = gguf.GGMLQuantizationType.F32 if x.ndim == 1 else gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(name, gguf.quants.quantize(x, to), raw_dtype=to)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return folder / "m.gguf"


def took(call):
    began = time.process_time()
    call()
    return time.process_time() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=("safetensors", "gguf"), default="safetensors")
    parser.add_argument("--tokens", type=int, default=2048)
    a = parser.parse_args()
    machine("torch", "transformers", "safetensors")
    rows = {}
    for name, shape in SHAPES.items():
        model = build(*shape)
        tensors = {k: x.detach().numpy() for k, x in model.named_parameters()}
        rounded = {
            k: (np.round(x * 64) / 64).astype(np.float32) if x.ndim > 1 else x
            for k, x in tensors.items()
        }
        numbers = sum(x.size for x in tensors.values())
        with tempfile.TemporaryDirectory() as folder:
            both = [
                saved(Path(folder) / arm, x, model, a.kind)
                for arm, x in (("a", tensors), ("b", rounded))
            ]
            compare_weights(both[0], both[0])  # imports
            comparing = took(lambda: compare_weights(*both))
        ids = np.random.default_rng(0).integers(0, shape[2], a.tokens)
        windows = plan_windows(a.tokens, max_length=512, stride=512)
        scoring = 2 * took(lambda: score_windows(model, ids, windows))
        rows[
            f"{name}: {numbers:,} weights, comparing {comparing:.2f} s, a thousand tokens {1000 * scoring / a.tokens:.2f} s"
        ] = (round(10 * comparing / scoring * a.tokens), "")
    figures(f"{a.kind}: processed tokens of which comparing is a tenth", rows)


if __name__ == "__main__":
    main()
