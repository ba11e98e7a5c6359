"""Runs lm-evaluation-harness on the shipped models, offline, and keeps what it wrote; the files in invar_nb/data/lm_eval were made so.

    python make_lm_eval.py MODELS OUT [--raw]      MODELS holds base/ and tuned/; run by a Python that has lm_eval and torch

Sample files are kept byte for byte. Results files lose the fields below, which describe the machine; --raw keeps them. Documents and questions are drawn from the lists below with a fixed seed; some letters have more than one byte."""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DROPPED = (
    "pretty_env_info",
    "git_hash",
    "upper_git_hash",
    "date",
    "total_evaluation_time_seconds",
)
NOUNS = [
    "file",
    "name",
    "value",
    "module",
    "class",
    "object",
    "number",
    "string",
    "function",
    "method",
    "argument",
    "error",
    "result",
    "test",
    "item",
    "list",
]
VERBS = [
    "returns",
    "reads",
    "writes",
    "holds",
    "changes",
    "finds",
    "needs",
    "calls",
    "makes",
    "keeps",
]
ADJECTIVES = [
    "new",
    "old",
    "empty",
    "given",
    "same",
    "first",
    "last",
    "whole",
    "small",
    "default",
]
COLOURS, OTHERS = (
    ("red", "green", "dark blue", "white"),
    ("of a list", "never", "the first of the values", "file", "größer", "that is not set"),
)
TASKS = {
    "rolling": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]""",
    "choices": """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]""",
    "words": """output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{next}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match}]
filter_list:
  - {name: first-word, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
  - {name: first-letter, filter: [{function: regex, regex_pattern: "([a-z])"}, {function: take_first}]}""",
    "lengths": """output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{next}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
process_results: !function own.process
metric_list: [{metric: shared, aggregation: mean, higher_is_better: true}, {metric: missing, aggregation: mean, higher_is_better: false}]""",
}
OWN = """def process(doc, results):
    said, true = set(results[0]), set(doc["next"])
    return {"shared": len(said & true) / len(said | true), "missing": len(true - said)}
"""


def documents():
    "Twenty documents of each data set."
    r = random.Random(15)
    sentence = lambda: (
        f"The {r.choice(ADJECTIVES)} {r.choice(NOUNS)} {r.choice(VERBS)} a {r.choice(NOUNS)} of the {r.choice(ADJECTIVES)} {r.choice(NOUNS)}."
    )
    rolling = [
        {"text": " ".join(sentence() for _ in range(r.randrange(1, 5)))} for _ in range(20)
    ]
    rolling[7]["text"] = "The file of the città is größer than 東京."
    choices = []
    for i in range(20):
        wrong = r.sample(OTHERS, r.randrange(1, 4))
        gold = r.randrange(len(wrong) + 1)
        choices.append(
            {
                "question": f"{i}. The {r.choice(NOUNS)} has the colour",
                "choices": [*wrong[:gold], r.choice(COLOURS), *wrong[gold:]],
                "gold": gold,
            }
        )
    words = [
        {
            "text": f"The {r.choice(ADJECTIVES)} {r.choice(NOUNS)} {r.choice(VERBS)}",
            "next": r.choice(("the", "of", "and", "t", "a")),
        }
        for _ in range(20)
    ]
    return {"rolling": rolling, "choices": choices, "words": words, "lengths": words}


def write_tasks(folder):
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    for name, rows in documents().items():
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
            encoding="utf-8",
        )
        (folder / f"{name}.yaml").write_text(
            f"task: invar_{name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: tasks/{name}.jsonl}}}}\ntest_split: test\n"
            f"{TASKS[name]}\nmetadata: {{version: 1.0}}\n",
            encoding="utf-8",
        )


def run(work, model, *more):
    "One run of the tool; the model is named by a relative path, so that no path of the machine gets into the files."
    env = dict(
        os.environ,
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_HOME=str(work / "cache"),
        HF_DATASETS_CACHE=str(work / "cache"),
        TOKENIZERS_PARALLELISM="false",
        OMP_NUM_THREADS="1",
    )
    command = [
        sys.executable,
        "-m",
        "lm_eval",
        "run",
        "--model",
        "hf",
        "--model_args",
        f"pretrained={model},prefix_token_id=10,dtype=float32",
        "--device",
        "cpu",
        "--batch_size",
        "4",
        "--tasks",
        ",".join(f"invar_{name}" for name in TASKS),
        "--include_path",
        "tasks",
        "--log_samples",
        "--output_path",
        f"out/{model}",
        *more,
    ]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument("models", type=Path)
    a.add_argument("out", type=Path)
    a.add_argument("--raw", action="store_true")
    a = a.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        write_tasks(work / "tasks")
        for model in ("base", "tuned"):
            shutil.copytree(a.models / model, work / model)
            words = json.loads((work / model / "tokenizer_config.json").read_text())
            (work / model / "tokenizer_config.json").write_text(
                json.dumps(words | {"eos_token": "\u010a"})
            )  # the line feed, id 10: generation needs an end
            run(work, model)
            to = a.out / model
            to.mkdir(parents=True, exist_ok=True)
            for file in (work / "out" / model).rglob("*.json*"):
                found = (
                    json.loads(file.read_text(encoding="utf-8"))
                    if file.suffix == ".json"
                    else None
                )
                if found is None or a.raw:
                    shutil.copy(file, to)
                else:
                    (to / file.name).write_text(
                        json.dumps(
                            {k: v for k, v in found.items() if k not in DROPPED}, indent=1
                        )
                        + "\n",
                        encoding="utf-8",
                    )


if __name__ == "__main__":
    main()
