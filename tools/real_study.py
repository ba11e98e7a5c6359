"""SmolLM2 in eight types, by llama.cpp: the numbers of the guide *Which quant is good enough?*

    python tools/real_study.py FOLDER

FOLDER holds wikitext-2.test.txt, tinyshakespeare.txt and blimp_100.jsonl. `make real` comes first.
About two hours of processor time; what is there already is not made again. It writes into
tests/data:

- real_study.parquet: a row a type, text and chunk, by the engine;
- real_study.json: sizes, digests, what the engine printed;
- real_pairs.parquet: a row a type and minimal pair;
- real_documents.parquet: a row a type, text, document and piece, for simulations of coverage;
- real_noise.parquet: the same weights computed in other ways, a row a way and chunk or document;
- real_gemma.parquet: Gemma 3 270M, a row a type and chunk of one text: losses only, its terms
  forbid passing on the model.

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

DATA = real.ROOT / "invar_nb" / "data"
PARTS = ("texts", "pairs", "documents", "noise", "gemma")
TYPES = ("F16", *real.QUANTS)
N_CHUNKS = 24
N_PASSAGES = 45
PASSAGE = 1500  # characters
PAIRS_OF_KIND = 20
TOGETHER = 32  # sentences in a batch
TEXTS = {"encyclopedia": "wikitext-2.test.txt", "drama": "tinyshakespeare.txt"}
N_DOCUMENTS = 150
SHORTEST = 240  # characters of a document
MAX_TOKENS = 256  # of a document
N_NOISE = 8  # chunks; documents eight times as many
ENGINE_WAYS = {
    ("F16", "as it is"): (),
    ("F16", "64 tokens at once"): ("-ub", 64),
    ("F16", "no flash attention"): ("-fa", "off"),
    ("Q4_K_M", "as it is"): (),
    ("Q4_K_M", "64 tokens at once"): ("-ub", 64),
    ("Q4_K_M", "weights not rearranged"): ("--no-repack",),
}
PIECE = 64  # tokens
SIX_DECIMALS = ("--ppl-output-type", 1)
GEMMA_TYPES = ("F16", "Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K")  # Q4_K_M is the published file
DOCUMENT_TYPES = ("F16", "Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K")
COLUMNS = ("kl_divergence", "top1_changed", "probability_change")


def passages(text: str) -> str:
    "Passages of whole lines, evenly spread over a text, joined by blank lines."
    starts = np.linspace(0, len(text) - 2 * PASSAGE, N_PASSAGES).astype(int)
    chosen = []
    for start in starts:
        begin = text.index("\n", start) + 1
        end = text.rfind("\n", begin, begin + PASSAGE)
        chosen.append(text[begin:end].strip())
    return "\n\n".join(chosen)


def text_files(folder: Path) -> dict[str, Path]:
    "Name in the study -> file, of the three texts as the engine reads them."
    from invar_nb import demo_documents

    sources = {name: (folder / file).read_text("utf-8") for name, file in TEXTS.items()}
    sources["documentation"] = "\n\n".join(demo_documents()[1])
    files = {}
    for name, source in sources.items():
        files[name] = real.REAL / f"study-{name}.txt"
        files[name].write_text(passages(source), encoding="utf-8")
    return files


def logits(text: str, name: str) -> Path:
    "The path of the log-probabilities of one text under one type."
    return real.REAL / "logits" / f"study-{text}-{name}.kld"


def log(text: str, name: str) -> Path:
    "The path of the engine's log of one text under one type."
    return real.log(f"study-{text}-{name}")


def run_engine(text: str, file: Path, name: str) -> None:
    "Score one text under one type: losses go to the log, log-probabilities to a file."
    target = logits(text, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_suffix(".partial")
    words = ["-m", real.model(name), "-f", file, "-c", real.N_CTX, "--chunks", N_CHUNKS]
    options = [*SIX_DECIMALS, "--kl-divergence-base", beside]
    real.engine("llama-perplexity", *words, *options, log=log(text, name))
    beside.rename(target)


def rows_of(text: str, file: Path) -> pa.Table:
    "The windows of one text under every type; a type that is stored is not scored again."
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
    """The windows of one text under one type: losses, and divergence from F16.

    Losses come from the log, since log-probabilities in the logits files are cut off.
    """
    from invar_nb.readers.llama_cpp import read_logit_pair, read_perplexity_log

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


def pair_rows(file: Path) -> pa.Table:
    "For every type and pair of sentences: how much more it expects the good one, in nats."
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
    "For one type: how much more it expects each good sentence than the bad one, in nats."
    model = Reader(name)
    sentences = [pair[which] for which in ("good", "bad") for pair in pairs]
    by_length = sorted(range(len(sentences)), key=lambda k: len(sentences[k]))
    loss = np.zeros(len(sentences))
    for start in range(0, len(by_length), TOGETHER):
        batch = by_length[start : start + TOGETHER]
        losses = model.losses_together([sentences[k] for k in batch])
        loss[batch] = [values.sum() for values in losses]
    good, bad = np.split(loss, 2)
    preference = bad - good
    return {
        "type": [name] * len(pairs),
        "id": [pair["id"] for pair in pairs],
        "kind": [pair["kind"] for pair in pairs],
        "field": [pair["field"] for pair in pairs],
        "preference": np.asarray(preference, "f4"),
    }


class Reader:
    "One type of the model, loaded in transformers; every text is read behind a BOS token."

    def __init__(self, name: str, dtype: str = "float32") -> None:
        import torch

        from invar_nb import load_model

        self.loaded = load_model(real.model(name))
        self.model = self.loaded.model.to(getattr(torch, dtype))

    def losses(self, text: str, max_tokens: int | None = None) -> np.ndarray:
        "The loss of each token of a text, in nats."
        return self.losses_together([text], max_tokens)[0]

    def losses_together(
        self, texts: list[str], max_tokens: int | None = None
    ) -> list[np.ndarray]:
        "The losses of each of several texts, scored as one batch, padded at their ends."
        import torch

        bos = self.loaded.tokenizer.bos_token_id
        rows = [[bos, *self.loaded.tokenizer(text).input_ids[:max_tokens]] for text in texts]
        ids = torch.full((len(rows), max(map(len, rows))), bos)
        mask = torch.zeros_like(ids)
        for k, row in enumerate(rows):
            ids[k, : len(row)] = torch.tensor(row)
            mask[k, : len(row)] = 1
        with torch.inference_mode():
            logits = self.model(ids, attention_mask=mask).logits[:, :-1]
        log_p = logits.float().log_softmax(-1)
        losses = -log_p.gather(-1, ids[:, 1:, None])[..., 0].double().numpy()
        return [losses[k, : len(row) - 1] for k, row in enumerate(rows)]


def paragraphs(text: str) -> list[str]:
    "Paragraphs or speeches of some length, evenly spread over a text."
    long = [
        part.strip() for part in re.split(r"\n\s*\n|\n(?= \S)", text) if len(part) > SHORTEST
    ]
    chosen = np.linspace(0, len(long) - 1, N_DOCUMENTS).astype(int)
    return [long[k] for k in chosen]


def document_rows(folder: Path) -> pa.Table:
    "The pieces of paragraphs of two texts under five types."
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
    "The mean loss of each 64 tokens of each document, with the tokens before as context."
    model = Reader(name)
    document, tokens, log_loss = [], [], []
    for number, words in enumerate(documents):
        losses = model.losses(words, MAX_TOKENS)
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


def noise_rows(folder: Path) -> pa.Table:
    "The losses of the same weights on the same text, computed in several ways."
    from invar_nb.readers.llama_cpp import read_perplexity_log

    file = text_files(folder)["encyclopedia"]
    rows = []
    for (name, way), options in ENGINE_WAYS.items():
        kept = log(f"noise-{way.replace(' ', '-')}", name)
        if not kept.exists():
            words = ["-m", real.model(name), "-f", file, "-c", real.N_CTX, *SIX_DECIMALS]
            real.engine("llama-perplexity", *words, "--chunks", N_NOISE, *options, log=kept)
        losses = read_perplexity_log(kept)
        rows += noise_of("llama.cpp", name, way, losses.tokens, losses.log_loss)
        real.say(f"noise: {name}, {way}")
    documents = paragraphs((folder / TEXTS["encyclopedia"]).read_text("utf-8"))[: 8 * N_NOISE]
    for dtype in ("float32", "bfloat16"):
        model = Reader("F16", dtype)
        alone = [model.losses(words, MAX_TOKENS) for words in documents]
        eight = [
            losses
            for start in range(0, len(documents), 8)
            for losses in model.losses_together(documents[start : start + 8], MAX_TOKENS)
        ]
        for way, values in ((dtype, alone), (f"{dtype}, eight at once", eight)):
            tokens = [len(losses) for losses in values]
            means = [losses.mean() for losses in values]
            rows += noise_of("transformers", "F16", way, tokens, means)
            real.say(f"noise: transformers, {way}")
    return pa.Table.from_pylist(rows)


def noise_of(program: str, name: str, way: str, tokens: list, log_loss: list) -> list[dict]:
    "The rows of one way of computing: one for each chunk or document."
    shared = {"program": program, "type": name, "way": way}
    return [
        {**shared, "item": k, "tokens": int(t), "log_loss": float(loss)}
        for k, (t, loss) in enumerate(zip(tokens, log_loss, strict=True))
    ]


def gemma_model(name: str) -> Path:
    "The path of one type of Gemma 3 270M; all but the published one are made from it."
    published = real.fetch_gemma()
    if name == "Q4_K_M":
        return published
    path = published.with_name(f"gemma-3-270m-{name}.gguf")
    if not path.exists():
        source = published if name == "F16" else gemma_model("F16")
        beside = path.with_suffix(".partial")
        words = ["--allow-requantize", source, beside, name]
        real.engine("llama-quantize", *words, log=real.log(f"quantise-gemma-{name}"))
        beside.rename(path)
    return path


def gemma_rows(folder: Path) -> pa.Table:
    "The windows of the encyclopedia under types of Gemma, read from the engine's logs."
    from invar_nb.readers.llama_cpp import read_perplexity_log

    file = text_files(folder)["encyclopedia"]
    tables = []
    for name in GEMMA_TYPES:
        kept = log("encyclopedia", f"gemma-{name}")
        if not kept.exists():
            words = ["-m", gemma_model(name), "-f", file, "-c", real.N_CTX, *SIX_DECIMALS]
            real.engine("llama-perplexity", *words, "--chunks", N_CHUNKS, log=kept)
        losses = read_perplexity_log(kept)
        columns = {
            "type": [name] * len(losses),
            "window": np.arange(len(losses), dtype="i4"),
            "tokens": losses.tokens.astype("i4"),
            "log_loss": losses.log_loss,
        }
        tables.append(pa.table(columns))
        real.say(f"Gemma, {name}")
    return pa.concat_tables(tables)


def weights_moved(name: str) -> dict[str, float]:
    """How far quantising moved the weight matrices, relative to their size.

    weight_error is the norm of the change; weight_growth, how much they grew in their
    direction.
    """
    from invar_nb.models.load import dequantised, read_gguf

    after = {stored.name: stored for stored in read_gguf(real.model(name)).tensors}
    moved = 0.0
    along = 0.0
    size = 0.0
    for stored in read_gguf(real.model("F16")).tensors:
        if stored.name.startswith("blk.") and len(stored.shape) > 1:
            weights = dequantised(stored).astype(float).ravel()
            other = dequantised(after[stored.name]).astype(float).ravel()
            moved += ((other - weights) ** 2).sum()
            along += (other * weights).sum()
            size += (weights**2).sum()
    error = float(np.sqrt(moved / size))
    growth = float(along / size - 1)
    return {"weight_error": round(error, 5), "weight_growth": round(growth, 5)}


def facts(files: dict[str, Path]) -> dict:
    "Sizes and digests of models and texts, and the perplexities that the engine printed."
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
            **weights_moved(name),
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
    "Write a table into the package's data."
    pq.write_table(table, DATA / f"{name}.parquet", compression="zstd")


def main() -> int:
    "Make the chosen parts of the study."
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
    if "gemma" in parts:
        write("real_gemma", gemma_rows(chosen.folder))
    if "noise" in parts:
        write("real_noise", noise_rows(chosen.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
