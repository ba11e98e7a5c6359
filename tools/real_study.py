"""SmolLM2 in eight types on three texts, by llama.cpp, and on minimal pairs: the numbers of the guide *Which quant is good enough?*

    python tools/real_study.py FOLDER     wikitext-2.test.txt, tinyshakespeare.txt and blimp_100.jsonl are in FOLDER

`make real` comes first. About an hour and a half on two cores; what is there already is not made again. It writes into tests/data:

- real_study.parquet: a row a type, text and chunk, by the engine;
- real_study.json: sizes, digests, what the engine printed;
- real_pairs.parquet: a row a type and minimal pair;
- real_documents.parquet: a row a type, text, document and piece, for simulations of coverage.

The texts themselves are not kept.
"""

import argparse
import json
import re
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import real

DATA = real.ROOT / "tests" / "data"
PARTS = ("texts", "pairs", "documents")
TYPES = ("F16", *real.QUANTS)
N_CHUNKS = 24
N_PASSAGES = 45
PASSAGE = 1500  # characters
PAIRS_OF_KIND = 20
TEXTS = {"encyclopedia": "wikitext-2.test.txt", "drama": "tinyshakespeare.txt"}
N_DOCUMENTS = 250
SHORTEST = 240  # characters of a document
MAX_TOKENS = 256  # of a document
PIECE = 64  # tokens
DOCUMENT_PARTS = ("texts", "pairs", "documents")
TYPES = ("F16", "Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K")
COLUMNS = ("kl_divergence", "top1_changed", "probability_change")


def passages(text: str) -> str:
    "Passages of whole lines from all over a text, a blank line between them."
    starts = np.linspace(0, len(text) - 2 * PASSAGE, N_PASSAGES).astype(int)
    chosen = []
    for start in starts:
        begin = text.index("\n", start) + 1
        end = text.rfind("\n", begin, begin + PASSAGE)
        chosen.append(text[begin:end].strip())
    return "\n\n".join(chosen)


def text_files(folder: Path) -> dict[str, Path]:
    "The three texts as the engine reads them, by their names in the study."
    from invar_nb import demo_documents

    sources = {name: (folder / file).read_text("utf-8") for name, file in TEXTS.items()}
    sources["documentation"] = "\n\n".join(demo_documents()[1])
    files = {}
    for name, source in sources.items():
        files[name] = real.REAL / f"study-{name}.txt"
        files[name].write_text(passages(source), encoding="utf-8")
    return files


def logits(text: str, name: str) -> Path:
    return real.REAL / "logits" / f"study-{text}-{name}.kld"


def log(text: str, name: str) -> Path:
    return real.log(f"study-{text}-{name}")


def run_engine(text: str, file: Path, name: str) -> None:
    "One pass of the engine: losses of windows in the log, log-probabilities in the logits."
    target = logits(text, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_suffix(".partial")
    words = ["-m", real.model(name), "-f", file, "-c", real.N_CTX, "--chunks", N_CHUNKS]
    options = ["--ppl-output-type", 1, "--kl-divergence-base", beside]
    real.engine("llama-perplexity", *words, *options, log=log(text, name))
    beside.rename(target)


def rows_of(text: str, file: Path) -> pa.Table:
    "Windows of one text under every type; what is kept of a type is not made again."
    tables = []
    for name in TYPES:
        kept = real.REAL / f"study-{text}-{name}.parquet"
        if not kept.exists():
            for needed in dict.fromkeys(("F16", name)):
                if not logits(text, needed).exists():
                    run_engine(text, file, needed)
            pq.write_table(windows(text, name), kept)
            if name != "F16":
                logits(text, name).unlink()
        tables.append(pq.read_table(kept))
        real.say(f"{text}, {name}")
    logits(text, "F16").unlink(missing_ok=True)
    return pa.concat_tables(tables)


def windows(text: str, name: str) -> pa.Table:
    "Losses from the log, which are not cut off; the distance from F16 from both logits files."
    from invar_nb.files.llama_cpp import read_logit_pair, read_perplexity_log

    losses = read_perplexity_log(log(text, name))
    if name == "F16":
        distance = dict.fromkeys(COLUMNS, np.zeros(len(losses)))
    else:
        both = read_logit_pair(logits(text, "F16"), logits(text, name))
        distance = {column: both.candidate.columns[column] for column in COLUMNS}
    return pa.table(
        {
            "text": [text] * len(losses),
            "type": [name] * len(losses),
            "window": np.arange(len(losses), dtype="i4"),
            "tokens": losses.tokens.astype("i4"),
            "log_loss": losses.log_loss,
            **{column: np.asarray(values, "f4") for column, values in distance.items()},
        }
    )


class Reader:
    "A type of the model, its weights in single precision; a text begins behind the model's BOS."

    def __init__(self, name: str) -> None:
        from invar_nb import load_model

        self.loaded = load_model(real.model(name))

    def losses(self, text: str, max_tokens: int | None = None) -> np.ndarray:
        "Of each token of a text, in nats."
        import torch

        bos = self.loaded.tokenizer.bos_token_id
        token_ids = self.loaded.tokenizer(text).input_ids[:max_tokens]
        ids = torch.tensor([[bos, *token_ids]])
        with torch.inference_mode():
            log_p = self.loaded.model(ids).logits[0, :-1].log_softmax(-1)
        return -log_p.gather(-1, ids[0, 1:, None])[:, 0].double().numpy()


def pair_rows(file: Path) -> pa.Table:
    "How much more a type expects the good sentence of a pair than the bad one, in nats."
    pairs = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    taken = [pair for k, pair in enumerate(pairs) if k % 100 < PAIRS_OF_KIND]
    tables = []
    for name in TYPES:
        kept = real.REAL / f"study-pairs-{name}.parquet"
        if not kept.exists():
            pq.write_table(pa.table(preferences(taken, name)), kept)
        tables.append(pq.read_table(kept))
        real.say(f"minimal pairs, {name}")
    return pa.concat_tables(tables)


def preferences(pairs: list[dict], name: str) -> dict[str, object]:
    "How much more each good sentence is expected than its bad one, under one type."
    loaded = Reader(name)

    def total(sentence: str) -> float:
        return -float(loaded.losses(sentence).sum())

    preference = [total(pair["good"]) - total(pair["bad"]) for pair in pairs]
    return {
        "type": [name] * len(pairs),
        "id": [pair["id"] for pair in pairs],
        "kind": [pair["kind"] for pair in pairs],
        "field": [pair["field"] for pair in pairs],
        "preference": np.asarray(preference, "f4"),
    }


def paragraphs(text: str) -> list[str]:
    "Paragraphs or speeches from all over a text."
    long = [
        part.strip() for part in re.split(r"\n\s*\n|\n(?= \S)", text) if len(part) > SHORTEST
    ]
    chosen = np.linspace(0, len(long) - 1, N_DOCUMENTS).astype(int)
    return [long[k] for k in chosen]


def document_rows(folder: Path) -> pa.Table:
    "Paragraphs of two texts under five types."
    tables = []
    for text, file in TEXTS.items():
        documents = paragraphs((folder / file).read_text("utf-8"))
        for name in DOCUMENT_TYPES:
            kept = real.REAL / f"study-documents-{text}-{name}.parquet"
            if not kept.exists():
                pq.write_table(pa.table(pieces(text, documents, name)), kept)
            tables.append(pq.read_table(kept))
            real.say(f"documents of {text}, {name}")
    return pa.concat_tables(tables)


def pieces(text: str, documents: list[str], name: str) -> dict[str, object]:
    "The mean loss of each 64 tokens of a document; what stands before them is their context."
    loaded = Reader(name)
    document, tokens, log_loss = [], [], []
    for number, words in enumerate(documents):
        losses = loaded.losses(words, MAX_TOKENS)
        for start in range(0, len(losses), PIECE):
            piece = losses[start : start + PIECE]
            document.append(number)
            tokens.append(len(piece))
            log_loss.append(piece.mean())
    return {
        "text": [text] * len(tokens),
        "type": [name] * len(tokens),
        "document": np.asarray(document, "i2"),
        "tokens": np.asarray(tokens, "i2"),
        "log_loss": np.asarray(log_loss, "f8"),
    }


def facts(files: dict[str, Path]) -> dict:
    "What a reader must know of the models and texts, and what the engine printed."
    from invar_nb.models.load import read_gguf

    printed = r"Final estimate: PPL = ([0-9.]+) \+/- ([0-9.]+)"
    engine = {
        text: {
            name: [float(x) for x in re.search(printed, log(text, name).read_text()).groups()]
            for name in TYPES
        }
        for text in files
    }
    models = {}
    for name in TYPES:
        tensors = read_gguf(real.model(name)).tensors
        bits = 8 * sum(t.n_bytes for t in tensors) / sum(t.n for t in tensors)
        data = real.model(name).read_bytes()
        models[name] = {
            "bytes": len(data),
            "bits_per_weight": round(bits, 4),
            "sha256": sha256(data).hexdigest(),
        }
    texts = {name: sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    return {
        "model": f"{real.SMOLLM2}, F16 made from the published Q4_1",
        "engine": "llama.cpp, build 11434",
        "n_ctx": real.N_CTX,
        "models": models,
        "texts_sha256": texts,
        "perplexity_and_sigma": engine,
    }


def write(name: str, table: pa.Table) -> None:
    pq.write_table(table, DATA / f"{name}.parquet", compression="zstd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the two texts and the minimal pairs")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    chosen = parser.parse_args()
    if not real.is_ready():
        real.stop("run make real first")
    parts = PARTS if chosen.only is None else (chosen.only,)
    if "texts" in parts:
        files = text_files(chosen.folder)
        write(
            "real_study",
            pa.concat_tables([rows_of(text, file) for text, file in files.items()]),
        )
        known = json.dumps(facts(files), indent=1)
        (DATA / "real_study.json").write_text(known + "\n", encoding="utf-8")
    if "pairs" in parts:
        write("real_pairs", pair_rows(chosen.folder / "blimp_100.jsonl"))
    if "documents" in parts:
        write("real_documents", document_rows(chosen.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
