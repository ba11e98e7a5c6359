"""What does it cost to read other programs' files? `python benchmarks/importers.py [--rows 200000] [table ...]`

Each format against the plainest correct reader of the same bytes: csv.DictReader and float, json.loads of each line, columns of pyarrow. Ratios of
medians of alternating runs, at most 3 is asked for. Each function below writes its files into a folder and returns
{name: (our reader, the plain one)}; `python benchmarks/importers.py plain` runs one of them."""

import argparse
import csv
import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path

from invar_nb import page_data

os.environ.update(
    OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"
)  # before numpy is imported

import numpy as np  # noqa: E402
from alternate import alternate, machine, table  # noqa: E402


def plain(folder, n):
    "Tables without a header of ours: losses with tokens and documents."
    import pyarrow
    from pyarrow import parquet

    from invar_nb.readers.named_columns import read_plain

    rng = np.random.default_rng(0)
    order = rng.permutation(n)  # ids in no order, as hashes are
    rows = [
        {"id": f"q{order[i]:06d}", "loss": x, "tokens": t, "document_id": f"d{i % 57}"}
        for i, (x, t) in enumerate(
            zip(rng.gamma(9, 0.3, n).tolist(), rng.integers(20, 200, n).tolist(), strict=True)
        )
    ]
    with open(folder / "x.csv", "w", newline="") as file:
        out = csv.DictWriter(file, rows[0])
        out.writeheader()
        out.writerows(rows)
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "x.parquet")

    def columns(rows):
        return (
            [r["id"] for r in rows],
            [r["document_id"] for r in rows],
            np.array([float(r["loss"]) for r in rows]),
            np.array([int(r["tokens"]) for r in rows]),
        )

    def from_csv():
        with open(folder / "x.csv", newline="") as file:
            return columns(list(csv.DictReader(file)))

    def from_jsonl():
        with open(folder / "x.jsonl") as file:
            return columns([json.loads(line) for line in file])

    def from_parquet():
        t = parquet.read_table(folder / "x.parquet")
        return (
            t["id"].to_pylist(),
            t["document_id"].to_pylist(),
            t["loss"].to_numpy(),
            t["tokens"].to_numpy(),
        )

    ours = lambda suffix: lambda: read_plain(folder / f"x{suffix}")
    return {
        "plain table, CSV": (ours(".csv"), from_csv),
        "plain table, JSONL": (ours(".jsonl"), from_jsonl),
        "plain table, Parquet": (ours(".parquet"), from_parquet),
    }


DATA = Path(__file__).parent.parent / "tests" / "data"


def lm_eval(folder, n):
    "Sample files of lm-evaluation-harness: the twenty rows of the fixture again and again, so that its means stay right."
    from invar_nb.readers.lm_eval import read_lm_eval

    says = json.loads(next((page_data("lm_eval") / "base").glob("results_*")).read_text())
    out, time = {}, "2026-01-01T00-00-00"
    for task in ("invar_rolling", "invar_choices"):
        rows, hashed = (
            list(
                map(
                    json.loads,
                    next((page_data("lm_eval") / "base").glob(f"samples_{task}_*"))
                    .read_text()
                    .splitlines(),
                )
            ),
            hashlib.sha256(),
        )
        with open(folder / f"samples_{task}_{time}.jsonl", "w") as file:
            for i in range(n):
                row = rows[i % 20] | {"doc_id": i}
                hashed.update(
                    "".join(
                        row[key] for key in ("doc_hash", "prompt_hash", "target_hash")
                    ).encode()
                )
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        says["task_hashes"][task], says["n-samples"][task] = (
            hashed.hexdigest(),
            {"original": n, "effective": n},
        )

        def plainest(task=task):
            with open(folder / f"samples_{task}_{time}.jsonl") as file:
                return [json.loads(line)["filtered_resps"] for line in file]

        out[f"lm-eval, {task.removeprefix('invar_')}"] = (
            lambda task=task: read_lm_eval(folder, tasks=task),
            plainest,
        )
    (folder / f"results_{time}.json").write_text(json.dumps(says))
    return out


def inspect(folder, n):
    "Logs of inspect_ai, the twenty samples of the fixture again and again; the archive is deflated, since the plain reader needs no other package then."
    from invar_nb.readers.inspect_logs import read_inspect_log

    log, out = json.loads((DATA / "inspect" / "base" / "texts.json").read_text()), {}
    samples = [log["samples"][i % 20] | {"id": i} for i in range(n)]
    log["results"] |= {"total_samples": n, "completed_samples": n}
    (folder / "x.json").write_text(json.dumps(log | {"samples": samples}))
    with zipfile.ZipFile(folder / "x.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "header.json", json.dumps({k: v for k, v in log.items() if k != "samples"})
        )
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))

    def from_archive():
        with zipfile.ZipFile(folder / "x.eval") as archive:
            return [
                json.loads(archive.read(name))["scores"] for name in archive.namelist()[1:]
            ]

    plainest = {
        "x.json": lambda: [
            sample["scores"]
            for sample in json.loads((folder / "x.json").read_bytes())["samples"]
        ],
        "x.eval": from_archive,
    }
    for name, reader in plainest.items():
        for scorer in ("perplexity", "match"):
            out[f"inspect, {name.removeprefix('x')}, {scorer}"] = (
                lambda name=name, scorer=scorer: read_inspect_log(folder / name, score=scorer),
                reader,
            )
    return out


def every_eval(folder, n):
    "Samples of Every Eval Ever."
    from invar_nb.readers.every_eval import read_every_eval

    with open(folder / "x.jsonl", "w") as file:
        for i in range(n):
            file.write(
                json.dumps(
                    {
                        "schema_version": "instance_level_eval_0.2.1",
                        "evaluation_id": "e",
                        "model_id": "m",
                        "evaluation_name": "GSM8K",
                        "sample_id": f"q{i}",
                        "sample_hash": f"{i:064x}",
                        "interaction_type": "single_turn",
                        "input": {"raw": f"What is {i} + 1?" * 5, "reference": [f"{i + 1}"]},
                        "output": {"raw": ["It is a number." * 9]},
                        "answer_attribution": [],
                        "evaluation": {"score": i % 2, "is_correct": i % 2 == 1},
                    }
                )
                + "\n"
            )

    def lines():
        with open(folder / "x.jsonl") as file:
            rows = [json.loads(line) for line in file]
        return (
            [r["sample_id"] for r in rows],
            [r["sample_hash"] for r in rows],
            np.array([r["evaluation"]["score"] for r in rows], dtype=float),
        )

    return {"Every Eval Ever": (lambda: read_every_eval(folder / "x.jsonl"), lines)}


def llama_cpp(folder, n):
    "Two files of log-probabilities with a vocabulary of 32 000, n/100 rows each; the plain reader adds up what is stored."
    from invar_nb.readers.llama_cpp import read_logit_pair

    rng, n_ctx, n_vocab = np.random.default_rng(0), 512, 32_000
    n_chunk = max(1, n // 100 // 255)
    rows = rng.integers(0, 65536, (255, n_vocab + 4), dtype=np.uint16)
    rows[:, :4].view("<f4")[:] = 10 / 65535, -20.0
    tokens = rng.integers(0, n_vocab, n_ctx * n_chunk).astype("<i4")
    for name in "ab":
        with open(folder / name, "wb") as file:
            file.write(
                b"_logits_"
                + np.array([n_ctx, n_vocab, n_chunk], "<i4").tobytes()
                + tokens.tobytes()
            )
            for _ in range(n_chunk):
                rows.tofile(file)

    def plain_sums():
        total = 0
        for name in "ab":
            with open(folder / name, "rb") as file:
                file.seek(20 + tokens.nbytes)
                for _ in range(n_chunk):
                    q = np.fromfile(file, "<u2", rows.size).reshape(rows.shape)
                    p = (
                        q[:, 4:] * q[:, :4].copy().view("<f4")[:, :1]
                        + q[:, :4].copy().view("<f4")[:, 1:]
                    )
                    total += np.exp(p).sum()
        return total

    return {
        f"llama.cpp, two files of {n_chunk * rows.nbytes / 2**20:.0f} MiB (KL divergence too)": (
            lambda: read_logit_pair(folder / "a", folder / "b"),
            plain_sums,
        )
    }


FORMATS = {
    "plain": plain,
    "lm_eval": lm_eval,
    "inspect": inspect,
    "every_eval": every_eval,
    "llama_cpp": llama_cpp,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("formats", nargs="*", default=list(FORMATS), help=", ".join(FORMATS))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    machine("numpy", "pyarrow")
    for name in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            for title, (ours, reference) in FORMATS[name](Path(folder), options.rows).items():
                table(
                    f"{title}, {options.rows} rows",
                    alternate(
                        {"plainest reader": reference, "this package": ours}, options.rounds
                    ),
                    "plainest reader",
                    {"this package": "<= 3"},
                )


if __name__ == "__main__":
    main()
