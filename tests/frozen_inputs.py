"""Small inputs of every kind, made from seeds with plain Python: nothing of invar_nb writes them, so that they stay what they are.

Five models: `base`, two that hardly differ (`q8`) or clearly do (`q4`, `q3`), and one that is better (`tuned`)."""

import csv
import json
import random
import shutil
from pathlib import Path

import invar_nb
from invar_nb import page_data

DATA = Path(__file__).parent / "data"
EDITS = {
    "base": (0, 0),
    "q8": (0.002, 0.004),
    "q4": (0.03, 0.04),
    "q3": (0.09, 0.08),
    "tuned": (-0.05, 0.05),
}  # shift of the losses, and its spread
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "one",
    "old",
    "dog",
    "came",
    "in",
    "from",
    "rain",
    "to",
    "see",
    "what",
    "they",
    "had",
]


def draws(*seed):
    rng = random.Random(" ".join(map(str, seed)))
    return rng, lambda scale: rng.gauss(0, scale)


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def loss_rows(model, text, n, each=5):
    "Windows of 64 tokens, a few in each document; neighbours have something in common, and so have their changes."
    (_, common), (_, edit), (shift, spread) = draws(text), draws(text, model), EDITS[model]
    for i in range(n):
        d, k = divmod(i, each)
        if k == 0:
            topic, effect = common(0.4), edit(0.6)
        loss = 2.5 + topic + common(0.3) + shift + spread * (effect + edit(1))
        yield {
            "window_id": f"{d}:{64 * k}-{64 * k + 64}",
            "document_id": f"d{d:03}",
            "tokens": 64 - i % 3,
            "n_bytes": 250 + i * 37 % 50,
            "log_loss": round(max(loss, 0.01), 6),
        }


def write_losses(path, rows, **header):
    path.parent.mkdir(exist_ok=True)
    write_lines(
        path,
        [
            {
                "schema": "invar_nb/losses/2",
                "windows": len(rows),
                "data_id": f"sha256:{path.parent.name}",
                "model": path.stem,
                **header,
            },
            *rows,
        ],
    )


def without(rows, *names):
    return [{key: value for key, value in row.items() if key not in names} for row in rows]


def write_texts(folder):
    "Loss files: of documents, of one long text, of few windows, of whole documents, for looks, and with what slices need."
    for model in EDITS:
        rows = list(loss_rows(model, "docs", 120))
        write_losses(folder / f"docs/{model}.jsonl", rows)
        for text, n in (("law", 60), ("news", 75), ("code", 90)):
            write_losses(folder / f"{text}/{model}.jsonl", list(loss_rows(model, text, n)))
        write_losses(
            folder / f"serial/{model}.jsonl",
            without(loss_rows(model, "serial", 400), "document_id", "n_bytes"),
        )
        halves = [
            {**row, "split": "preview" if i < 200 else "final"}
            for i, row in enumerate(without(loss_rows(model, "split", 400), "n_bytes"))
        ]
        write_losses(folder / f"split/{model}.jsonl", halves)
        write_losses(
            folder / f"few/{model}.jsonl", without(loss_rows(model, "few", 6), "document_id")
        )
        write_losses(folder / f"one/{model}.jsonl", list(loss_rows(model, "one", 1)))
        whole = [
            {
                **row,
                "window_id": row["document_id"],
                "tokens": row["n_bytes"],
                "log_loss": round(row["log_loss"] / 4, 6),
                "own_tokens": row["tokens"],
            }
            for row in loss_rows(model, "whole", 48, each=1)
        ]
        write_losses(
            folder / f"whole/{model}.jsonl", whole, weight_unit="bytes", columns=["own_tokens"]
        )
        sliced, names = [], [f"d{d:03}" for d in range(24)]
        for i, row in enumerate(rows):
            sums = {
                "frequency: 0 to 9 [tokens]": 20 + i % 4,
                "frequency: 10 to 99 [tokens]": row["tokens"] - 20 - i % 4,
            }
            nats = {"frequency: 0 to 9 [nats]": 1.5 * row["log_loss"] * (20 + i % 4)}
            nats["frequency: 10 to 99 [nats]"] = (
                row["tokens"] * row["log_loss"] - nats["frequency: 0 to 9 [nats]"]
            )
            sliced.append(
                {**row, **sums, **{name: round(value, 6) for name, value in nats.items()}}
            )
        facts = {
            "document_languages": {
                name: ("en", "es", "fr")[i % 3] for i, name in enumerate(names)
            },
            "document_files": {
                name: ("a.txt", "b.txt")[i % 2] for i, name in enumerate(names)
            },
        }
        write_losses(
            folder / f"sliced/{model}.jsonl", sliced, provenance=facts, columns=[*sums, *nats]
        )
        for target, each in (("text", 5), ("texts-like-this", 1)):
            looks = {
                "target": target,
                "looks": 4,
                "spending": "pocock",
                "seed": 7,
                "windows": 120,
                "tokens": sum(row["tokens"] for row in rows),
            }
            write_losses(
                folder / f"looks-{target}/{model}.jsonl",
                list(loss_rows(model, "docs", 120, each)),
                provenance={"looks": looks},
            )
    control = [
        {**row, "log_loss": round(row["log_loss"] + 0.004 * ((i * 29 % 11) / 11 - 0.4), 6)}
        for i, row in enumerate(loss_rows("base", "docs", 120))
    ]
    write_losses(folder / "docs/control.jsonl", control)
    shutil.copy(folder / "docs/base.jsonl", folder / "docs/same.jsonl")


def write_answers(folder):
    "Answers with probabilities of three labels, and plain ones; scores of two kinds; translations; runs."
    for kind in ("answers", "plain", "scores", "texts", "runs", "eee", "tables"):
        (folder / kind).mkdir()
    for model, (shift, _) in EDITS.items():
        (truth, _), (rng, edit) = draws("truth"), draws("answers", model)
        answers, scores, tasks, lines = [], [], [], []
        for i in range(160):
            label, topic = truth.choice(("yes", "no", "maybe")), truth.random()
            weights = {
                name: 0.1
                + truth.random()
                + (0.6 - 5 * shift) * (name == label)
                + abs(edit(0.2))
                for name in ("yes", "no", "maybe")
            }
            parts = {
                name: round(1000 * weight / sum(weights.values()))
                for name, weight in weights.items()
            }
            parts["yes"] += 1000 - sum(parts.values())
            said, subject, language = (
                max(parts, key=parts.get),
                f"s{i % 32}",
                ("en", "es", "fr")[i % 3],
            )
            answers.append(
                {
                    "id": f"q{i:03}",
                    "label": label,
                    **{f"p:{name}": f"{value / 1000:.3f}" for name, value in parts.items()},
                    "cluster": subject,
                    "language": language,
                    "model": model,
                }
            )
            f1 = round(min(1, max(0, topic - shift + edit(0.1))), 4)
            scores.append(
                {
                    "doc": f"q{i:03}",
                    "f1": f1,
                    "seconds": round(3 * topic + 20 * shift + abs(edit(0.5)), 4),
                    "subject": subject,
                    "topic": ("art", "law")[i % 2],
                }
            )
            tasks.append(
                {
                    "schema_version": "instance_level_eval_0.2.1",
                    "evaluation_id": f"{i % 3}/{model}/1",
                    "model_id": model,
                    "evaluation_name": ("GSM8K", "ARC", "MMLU")[i % 3],
                    "sample_id": f"q{i}",
                    "sample_hash": f"{i:064x}",
                    "error": None,
                    "evaluation": {"score": float(said == label), "is_correct": said == label},
                }
            )
            lines.append(
                " ".join(
                    rng.choice(WORDS) if rng.random() < 0.1 + 2 * abs(shift) else word
                    for word in WORDS[i % 7 : i % 7 + 6 + i % 5]
                )
            )
        write_csv(folder / f"answers/{model}.csv", answers)
        write_lines(
            folder / f"plain/{model}.jsonl",
            [
                {
                    "id": row["id"],
                    "label": row["label"],
                    "prediction": max(
                        ("yes", "no", "maybe"), key=lambda name: row[f"p:{name}"]
                    ),
                    "topic": ("art", "law")[i % 2],
                }
                for i, row in enumerate(answers)
            ],
        )
        write_csv(folder / f"scores/{model}.csv", scores)
        for task in ("GSM8K", "ARC", "MMLU"):
            write_lines(
                folder / f"eee/{model}-{task}.jsonl",
                [row for row in tasks if row["evaluation_name"] == task],
            )
        write_lines(
            folder / f"eee/{model}.jsonl",
            sorted(tasks, key=lambda row: row["evaluation_name"]),
        )
        (folder / f"texts/{model}.txt").write_text("\n".join(lines[:60]) + "\n")
        runs = [
            {
                "seed": s,
                "terminal": "ok",
                "loss": round(2 + s / 50 + shift + edit(0.02), 5),
                "accuracy": round(0.7 + s / 100 - shift + edit(0.01), 5),
            }
            for s in range(8)
        ]
        write_csv(folder / f"runs/{model}.csv", runs)
        write_csv(folder / f"runs/{model}-bare.csv", without(runs[:6], "terminal"))
        write_csv(
            folder / f"runs/{model}-oom.csv",
            [
                {**row, "terminal": "oom" if row["seed"] == 2 and model != "base" else "ok"}
                for row in runs
            ],
        )
        write_csv(folder / f"runs/{model}-fewer.csv", runs if model == "base" else runs[:6])
        rows = [
            {
                "doc": f"d{i // 3}",
                "item": f"i{i}",
                "nll": row["log_loss"],
                "n": row["tokens"],
                "size": row["n_bytes"],
                "group": row["document_id"],
            }
            for i, row in enumerate(loss_rows(model, "tables", 90))
        ]
        write_csv(folder / f"tables/{model}.csv", rows)
        write_lines(folder / f"tables/{model}.jsonl", rows)
        (folder / f"tables/{model}.json").write_text(json.dumps(rows))
        write_csv(
            folder / f"tables/{model}-sums.csv",
            [{**row, "nll": round(row["nll"] * row["n"], 6)} for row in rows],
        )
        write_csv(folder / f"tables/{model}-even.csv", [{**row, "n": 64} for row in rows])
    for i in (1, 2):
        (folder / f"texts/right{i}.txt").write_text(
            "\n".join(
                " ".join(WORDS[j % 7 : j % 7 + 6 + j % 5 - (i - 1) * (j % 3)])
                for j in range(60)
            )
            + "\n"
        )


BAD = {
    "cut.jsonl": '{"schema": "invar_nb/losses/2", "windows": 2}\n{"window_id": "a", "tokens": 5, "log_loss": 2.1}\n{"window_id": "b", "tok',
    "fewer.jsonl": '{"schema": "invar_nb/losses/2", "windows": 2}\n{"window_id": "a", "tokens": 5, "log_loss": 2.1}\n',
    "negative.jsonl": '{"schema": "invar_nb/losses/2", "windows": 1}\n{"window_id": "a", "tokens": 5, "log_loss": -1}\n',
    "none.jsonl": '{"schema": "invar_nb/losses/2", "windows": 1}\n{"window_id": "a", "tokens": 0, "log_loss": 1}\n',
    "older.jsonl": '{"schema": "invar_nb/losses/1", "windows": 1}\n{"window_id": "a", "tokens": 5, "log_loss": 1}\n',
    "digest.jsonl": '{"schema": "invar_nb/losses/2", "windows": 1, "digest": "sha256:0"}\n{"window_id": "a", "tokens": 5, "log_loss": 1}\n',
    "twice.jsonl": '{"schema": "invar_nb/losses/2", "windows": 2}\n{"window_id": "a", "tokens": 5, "log_loss": 1}\n{"window_id": "a", "tokens": 5, "log_loss": 1}\n',
    "key.jsonl": '{"id": "a", "id": "b", "label": "x", "prediction": "x"}\n',
    "empty.csv": "",
    "notes.csv": "a,b\n1,2\n",
    "ragged.csv": "id,f1\n1,0.5\n2\n",
    "text.csv": "id,f1\n1,good\n",
    "sums.csv": "id,label,p:a,p:b\n1,a,0.9,0.4\n",
    "gap.csv": "id,label,prediction\n1,a,\n",
    "model.csv": "id,label,prediction,model\n1,a,a,x\n2,a,a,y\n",
    "seedless.csv": "seed,loss\n1,2.0\n",
    "info.json": "[1]",
    "short.txt": "the cat\n",
}
GOOD = {  # what the refusals of BAD ask for
    "key.jsonl": '{"id": "a", "label": "x", "prediction": "x"}\n{"id": "b", "label": "y", "prediction": "x"}\n',
    "ragged.csv": "id,f1\n1,0.5\n2,0.7\n",
    "sums.csv": "id,label,p:a,p:b\n1,a,0.9,0.1\n2,b,0.6,0.4\n",
    "gap.csv": "id,label,prediction\n1,a,a\n2,b,a\n",
    "x.csv": "id,label,prediction,model\n1,a,a,x\n2,b,b,x\n",
    "y.csv": "id,label,prediction,model\n1,a,a,y\n2,b,a,y\n",
    "both.csv": "doc,topic,f1\n"
    + "".join(
        f"q{i},{topic},0.{(3 * i + k) % 10}\n"
        for k, topic in enumerate(("art", "law"))
        for i in range(12)
    ),
}


def write_parquet(folder):
    "The same rows as Parquet: a plain table, answers, and losses of ours."
    import pyarrow
    from pyarrow import parquet

    for name in ("tables/base", "plain/base"):
        parquet.write_table(
            pyarrow.Table.from_pylist(
                [
                    json.loads(line)
                    for line in (folder / f"{name}.jsonl").read_text().splitlines()
                ]
            ),
            folder / f"{name}.parquet",
        )
    header, *rows = [
        json.loads(line) for line in (folder / "docs/base.jsonl").read_text().splitlines()
    ]
    parquet.write_table(
        pyarrow.Table.from_pylist(rows).replace_schema_metadata(
            {"invar_nb": json.dumps(header)}
        ),
        folder / "docs/base.parquet",
    )


def write_models(folder):
    "The shipped models, two texts of documents and questions, for lines of the ledger of options that need a model."
    (folder / "models").symlink_to(Path(invar_nb.__file__).parent / "demo_models")
    (folder / "text").mkdir()
    rng, _ = draws("text")
    for name in ("a", "b"):
        lines = [" ".join(rng.choice(WORDS) for _ in range(40)) for _ in range(14)]
        write_lines(
            folder / f"text/{name}.jsonl",
            [{"text": line, "language": ("en", "es")[i % 2]} for i, line in enumerate(lines)],
        )
        (folder / f"text/{name}.txt").write_text("\n\n".join(lines) + "\n")
    write_lines(
        folder / "text/questions.jsonl",
        [
            {
                "id": f"q{i}",
                "prompt": f"the {WORDS[i]}",
                "candidates": [" cat", " dog", " rain"],
                "label": (" cat", " dog", " rain")[i % 3],
            }
            for i in range(16)
        ],
    )
    (folder / "text/info.json").write_text('{"step": 1000}')


STUDIES_TOML = {  # what was an option of `predictions` and `runs`
    "labels.toml": '[columns]\nlabels = ["maybe", "yes", "no"]\n',
    "strict.toml": "[rules]\ngate = 1.02\n",
    "columns.toml": '[columns]\nid = "item"\nloss = "nll"\ntokens = "n"\n',
    "windows.toml": '[scoring]\nmax_length = 48\nbos = "none"\nnormalize = "bytes"\n',
    "two.toml": '[columns]\nlabels = ["yes", "no"]\n',
    "runs.toml": '[rules]\nbetter = {loss = "lower", accuracy = "higher"}\nscale = {loss = "log"}\n',
    "fewer.toml": '[columns]\nintersect = true\n[rules]\nmultiplicity = "benjamini_hochberg"\nbetter = {loss = "lower", accuracy = "higher"}\n',
    "all.toml": '[columns]\nintersect = true\n[rules]\nmultiplicity = "benjamini_hochberg"\nbetter = {loss = "lower", accuracy = "higher"}\nscale = {loss = "log"}\n',
}


def write_inputs(folder):
    "Everything, in an empty folder; outputs of other tools are the stored ones."
    write_texts(folder)
    write_answers(folder)
    shutil.copytree(page_data("lm_eval"), folder / "lm")
    shutil.copytree(DATA / "llama_cpp", folder / "llama")
    shutil.copytree(
        DATA / "inspect", folder / "inspect", ignore=shutil.ignore_patterns("*.eval")
    )
    shutil.copy(DATA / "inspect/base/choices.eval", folder / "choices.eval")
    write_models(folder)
    (folder / "bad").mkdir()
    (folder / "good").mkdir()
    for name, text in BAD.items():
        (folder / "bad" / name).write_text(text)
    for name, text in GOOD.items():
        (folder / "good" / name).write_text(text)
    write_parquet(folder)
    (folder / "study.toml").write_text(
        '[arms]\nbaseline = "docs/base.jsonl"\nq8 = "docs/q8.jsonl"\nq4 = "docs/q4.jsonl"\n[rules]\nmargin = "1%"\ndeciding = ["q4"]\n'
    )
    for name, text in STUDIES_TOML.items():
        (folder / name).write_text(text)
