"""Attacks on what invar_nb promises: `python tools/attacks.py edits|race|kills|faults|servers|limits --n 50000 --seed 1`

They share no code with the tests: public commands and functions, and edits of plain files. nbs/reference/attacks.csv keeps what was
tried and what held; `differs` says what was accepted, and why it may be. An attack that is not held ends the program with code 1."""

import argparse
import contextlib
import copy
import csv
import ctypes
import errno
import hashlib
import html
import io
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import invar_nb
from invar_nb import Predictions, Rules, Scores, Translations, WindowLosses, study
from invar_nb.shell.cli import main

TABLE = Path(__file__).parents[1] / "nbs/reference/attacks.csv"
DEMO = Path(invar_nb.__file__).parent / "demo_models"
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
    "the",
    "rain",
    "to",
    "see",
    "what",
    "they",
    "had",
]


def compact(value):
    "A value as JSON in one spelling: sorted keys, no blanks."
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def sha(data):
    "The digest of bytes or a text as reports write it."
    return (
        "sha256:"
        + hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()
    )


def lines(rows):
    "Rows as JSON Lines."
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def quietly(words):
    "Run a command in this process: (exit code, stdout, stderr)."
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main([*map(str, words)])
    return code, out.getvalue(), err.getvalue()


def keep(rows, seed, path):
    """Write rows of (attack, tried, held, differs) into the table;

    whether all attacks were held.
    """
    head, old = ["attack", "tried", "held", "differs", "seed"], {}
    if path.exists():
        old = {row["attack"]: row for row in csv.DictReader(path.open())}
    for row in rows:
        old[row[0]] = dict(zip(head, [*row, seed], strict=True))
        print(*row, sep=" | ", flush=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, head, lineterminator="\n")
        table.writeheader()
        table.writerows(old[name] for name in sorted(old))
    return all(tried == held for _, tried, held, _ in rows)


# --- reports of every kind, small ----------------------------------------------------------------------------------------------------
SHIFT = {"baseline": 0, "control": 0, "candidate": 0.03, "q8": 0.004, "q4": 0.06, "q2": 0.2}
TWO, THREE = ("baseline", "candidate"), ("baseline", "q8", "q4", "q2")


def draw(*seed):
    "A random generator that is seeded by words."
    return np.random.default_rng([ord(c) for c in " ".join(map(str, seed))])


def losses(name, part="", n=24):
    "Losses of a small invented model, with documents and languages."
    values = draw(part).gamma(9, 0.3, n) + (
        0
        if name == "baseline"
        else SHIFT[name]
        + (1e-6 if name == "control" else 0.02) * draw(name, part).normal(size=n)
    )
    facts = {
        "dtype": "float32",
        "document_languages": {f"d{i}": ("en", "es")[i % 2] for i in range(n // 2)},
        "batch_tokens": 512 if name == "control" else 64,
    }
    return WindowLosses.from_arrays(
        [f"{i // 2}:{i % 2}" for i in range(n)],
        [64 - i % 3 for i in range(n)],
        values,
        model=f"models/{name}",
        data_id=f"text {part}",
        document_ids=[f"d{i // 2}" for i in range(n)],
        n_bytes=[200 + i for i in range(n)],
        provenance=facts,
    )


def answers(name, part="", n=40):
    "Answers of a small invented model to yes-no questions."
    label = ["ny"[i % 2] for i in range(n)]
    sure = np.clip(
        0.8 + 0.25 * draw(part).normal(size=n) - 2 * SHIFT[name] * draw(name, part).random(n),
        0.05,
        0.95,
    )
    rows = [
        [p, 1 - p] if word == "n" else [1 - p, p] for p, word in zip(sure, label, strict=True)
    ]
    return Predictions(
        ids=[f"q{i}" for i in range(n)],
        label=label,
        labels=("n", "y"),
        probabilities=np.array(rows),
        model=f"models/{name}",
        slices={"language": [("en", "es")[i % 4 == 0] for i in range(n)]},
    )


def scores(name, part="", n=30, better="lower"):
    "Scores of a small invented model on a task."
    values = draw(part).random(n) + SHIFT[name] + 0.05 * draw(name, part).normal(size=n)
    return Scores(
        ids=[f"q{i}" for i in range(n)],
        values=values,
        score="seconds",
        better=better,
        model=f"models/{name}",
        data_id=f"task {part}",
        clusters=[f"c{i // 2}" for i in range(n)],
        prompt_digests=[f"p{i}" for i in range(n)],
        slices={"level": ["easy" if i % 3 else "hard" for i in range(n)]},
    )


def translations(name, part="", n=20):
    "Translations by a small invented model."
    right = [" ".join(WORDS[(7 * i + k * k) % 19] for k in range(6 + i % 5)) for i in range(n)]
    worse = lambda text, i: (
        text.rsplit(" ", 1 + i % 2)[0] + " fish"
        if name != "baseline" and i % 2
        else text.replace("cat", "hat")
    )
    return Translations(
        ids=[f"s{i}" for i in range(n)],
        hypotheses=[worse(text, i) for i, text in enumerate(right)],
        references=right,
        model=f"models/{name}",
    )


def grid(make, names, parts=("",)):
    "(name, part) -> arm, for every name and part."
    return {(name, part): make(name, part) for part in parts for name in names}


def tables(folder):
    "Write texts, questions and tables that commands read."
    rng = draw("tables")
    (folder / "t.jsonl").write_text(
        lines({"text": " ".join(rng.choice(WORDS, 30))} for _ in range(8))
    )
    (folder / "q.jsonl").write_text(
        lines(
            {
                "id": f"q{i}",
                "prompt": " ".join(rng.choice(WORDS, 4)),
                "candidates": [" cat", " mat"],
                "label": " cat",
            }
            for i in range(16)
        )
    )
    for k, name in enumerate(THREE):
        rows = [
            f"{s},{2 + 0.1 * (s % 3) + 0.2 * k + 0.01 * ((7 * s + k) % 5)},{3 + (s + k) % 2},ok"
            for s in range(6)
        ]
        (folder / f"runs-{name}.csv").write_text(
            "seed,loss,hours,terminal\n" + "\n".join(rows) + "\n"
        )
        rows = [f"{i},d{i // 2},{losses(name).log_loss[i]},{64 - i % 3}" for i in range(24)]
        (folder / f"{name}.csv").write_text(
            "id,document,loss,tokens\n" + "\n".join(rows) + "\n"
        )
    return folder


MODELS = [DEMO / "base", DEMO / "tuned", "--max-length", 48, "--device", "cpu"]
KINDS = {  # shape -> arms and rules, or the words of a command
    "losses 1 x 1": lambda f: (grid(losses, TWO), {"gate": 1.2, "by": ("language",)}),
    "losses, bootstrap": lambda f: (
        grid(losses, TWO),
        {"method": "bca", "replicates": 99, "seed": 3},
    ),
    "k x 1": lambda f: (grid(losses, THREE), {"deciding": "q8"}),
    "1 x m": lambda f: (grid(losses, TWO, ("code", "law", "news")), {"required": "parts"}),
    "k x m": lambda f: (grid(losses, THREE, ("law", "news")), {"metrics": ["perplexity"]}),
    "pooled": lambda f: (grid(losses, TWO, ("code", "law", "news")), {"pooling": "random"}),
    "noise floor": lambda f: (grid(losses, (*TWO, "control")), {}),
    "wide": lambda f: (grid(scores, TWO, "abcdefgh"), {"by": ()}),
    "answers": lambda f: (grid(answers, TWO), {"metrics": ["accuracy", "brier"]}),
    "scores": lambda f: (grid(scores, TWO), {"margin": 0.1, "by": ("level",)}),
    "translations": lambda f: (grid(translations, TWO), {}),
    "text and questions": lambda f: (
        grid(losses, THREE[:3], ("text",)) | grid(answers, THREE[:3], ("questions",)),
        {"metrics": ["perplexity", "accuracy"]},
    ),
    "one arm": lambda f: (grid(losses, TWO[:1]), {}),
    "evaluate": lambda f: ["evaluate", f / "q8.csv", f / "q4.csv"],
    "runs": lambda f: [
        "compare",
        *(f / f"runs-{name}.csv" for name in THREE),
        "--metric",
        "loss",
        "--metric",
        "hours",
        "--better",
        "loss=lower",
        "--better",
        "hours=lower",
    ],
    "stopped by looks": lambda f: [
        "compare",
        *MODELS,
        "--text",
        f / "t.jsonl",
        "--until-decided",
        "--margin",
        "0.5",
    ],
    "models, spread": lambda f: [
        "compare",
        *MODELS,
        "--text",
        f / "t.jsonl",
        "--questions",
        f / "q.jsonl",
        "--windows",
        12,
    ],
}


def make(kind, folder):
    "Make a report of one kind; its folder."
    made = KINDS[kind](tables(folder))
    if isinstance(made, list):
        code, _, err = quietly([*made, "--out", folder / "r", "-q"])
        assert code in (0, 1), (kind, code, err)
    else:
        study(made[0], Rules(**made[1])).report().save(folder / "r")
    return folder / "r"


# --- edits ---------------------------------------------------------------------------------------------------------------------------
def seal(d):
    "A document as the bytes of a file, with its digest computed anew."
    d["digest"] = sha(
        compact(
            {name: part for name, part in d.items() if name not in ("digest", "environment")}
        )
    )
    return spell(d)


def spell(d):
    "A document as the bytes of a file."
    return (json.dumps(d, sort_keys=True, ensure_ascii=False, indent=2) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def spots(value, at=()):
    "The path of every value inside a JSON value, its own () first."
    yield at
    for name, part in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from spots(part, (*at, name))


def reach(value, at):
    "The value at a path."
    for name in at:
        value = value[name]
    return value


def other_leaf(rng, x, texts):
    "Another value in the place of one, drawn at random."
    if isinstance(x, bool):
        return rng.choice([not x, None, int(x), str(x).lower()])
    if isinstance(x, (dict, list)):
        return rng.choice([None, {"zz": 1}, ["zz"], [0.5], "zz"])
    if x is None:
        return rng.choice([0.0, "", False, [], "x", 1])
    if isinstance(x, str):
        return rng.choice(
            [
                x + "x",
                x[:-1],
                "",
                x.swapcase(),
                x[::-1],
                None,
                " " + x,
                rng.choice(texts),
                x.replace("0", "1"),
                0,
            ]
        )
    return rng.choice(
        [
            x * (1 + 1e-6) or 1e-6,
            x * (1 + 1e-12),
            -x,
            x + 1,
            x * 10,
            None,
            str(x),
            0,
            float(x) if isinstance(x, int) else int(x),
            [x],
        ]
    )


def edit(rng, value, texts):
    "One random edit of a copy: (copy, path, before, after, whether a container was edited)."
    value = copy.deepcopy(value)
    places = [*spots(value)][1:]
    at = rng.choice(places)
    inner, x = reach(value, at[:-1]), reach(value, at)
    group = isinstance(x, (dict, list)) and bool(x)
    before = copy.deepcopy(x)
    if group and isinstance(x, dict):
        name, way = rng.choice(sorted(x)), rng.randrange(4)
        if way == 0:
            x[rng.choice(["approved", "zz", "note"])] = rng.choice(
                [True, "approved by an auditor", copy.deepcopy(x[name])]
            )
        elif way == 1:
            del x[name]
        elif way == 2:
            x[name + "x"] = x.pop(name)
        else:
            two = rng.choice(sorted(x))
            x[name], x[two] = x[two], x[name]
    elif group:
        i, way = rng.randrange(len(x)), rng.randrange(5)
        if way == 0:
            del x[i]
        elif way == 1:
            x.insert(i, copy.deepcopy(x[i]))
        elif way == 2:
            x.reverse()
        elif way == 3:
            x.append(rng.choice([None, "approved", 0]))
        else:
            x.clear()
    else:
        inner[at[-1]] = other_leaf(rng, x, texts)
    return value, at, before, reach(value, at), group


def width_beside(d, at):
    "The width of the interval that a number is an end of, or that belongs to it; else 0."
    wide = lambda x: (
        abs(x[1] - x[0])
        if isinstance(x, list) and len(x) == 2 and all(isinstance(y, float) for y in x)
        else 0
    )
    inner = reach(d, at[:-1])
    if isinstance(inner, list):
        return wide(inner)
    return (
        max(
            wide(inner.get("ci")),
            wide(inner.get("interval")),
            wide([inner.get("low"), inner.get("high")]),
        )
        if isinstance(inner, dict)
        else 0
    )


def below(x, y, width=0.0):
    "Whether two numbers differ by less than the tolerance of verify."
    return (
        isinstance(x, float)
        and isinstance(y, float)
        and abs(x - y) <= 1e-9 * max(abs(x), abs(y), width)
    )


def load(path):
    "The content of an evidence file as a JSON value."
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".jsonl":
        return {"rows": [json.loads(line) for line in path.read_text().splitlines()]}
    table = pq.read_table(path)
    return {
        "header": json.loads(table.schema.metadata[b"invar_nb"]),
        "columns": table.to_pydict(),
    }


def store(path, value, like):
    """Write such a value as an evidence file, its inner digest computed anew or left out.

    ValueError, TypeError where no file can hold it.
    """
    if path.suffix == ".json":
        return path.write_text(compact(value))
    if path.suffix == ".jsonl":
        first, rows = value["rows"][0], [compact(row) for row in value["rows"][1:]]
        if isinstance(first, dict) and first.pop("digest", None) and "examples" in first:
            first["digest"] = sha("\n".join([compact(first), *rows]))
        return path.write_text("\n".join([compact(first), *rows]) + "\n")
    value["header"].pop("digest", None)
    columns = {}
    for name, values in value["columns"].items():
        try:
            columns[name] = pa.array(values, like.field(name).type)
        except (pa.ArrowException, TypeError, KeyError):
            columns[name] = pa.array(values)
    pq.write_table(
        pa.table(columns).replace_schema_metadata({"invar_nb": compact(value["header"])}), path
    )


def content(value):
    "An evidence file as text without its inner digest, to see whether it changed."
    value = copy.deepcopy(value)
    first = value.get("header") or value.get("rows", [{}])[0]
    if isinstance(first, dict):
        first.pop("digest", None)
    return compact(value)


def verdict(folder):
    """What verify says of a report:

    None if it refuses, "bug ..." if it breaks, else its result.
    """
    try:
        return invar_nb.verify(folder)
    except ValueError as error:
        return (
            None
            if isinstance(error, invar_nb.ContractError)
            and not isinstance(error, invar_nb.UsageError)
            else f"bug {error!r}"
        )
    except (
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        OSError,
        AssertionError,
        pa.ArrowException,
    ) as error:
        return f"bug {error!r}"


UNREAD = {
    "ids",
    "window_id",
    "id",
    "document_id",
    "n_bytes",
    "prompt_digests",
    "prompt_digest",
    "repeats",
    "others",
    "slices",
    "clusters",
    "cluster",
    "confidence",
    "labels_from",
    "ambiguous_label",
    "detail",
    "experiment_id",
    "hypothesis_id",
    "other",
}


def same_bleu(d, at, after):
    "Whether sacrebleu counts the same with another text at one place."
    import sacrebleu

    new = copy.deepcopy(d)
    reach(new, at[:-1])[at[-1]] = after
    if not isinstance(after, str):
        return False
    facts = [
        [
            str(sacrebleu.corpus_bleu([h], [[r[0]]]))
            for h, r in zip(x["hypotheses"], x["references"], strict=True)
        ]
        for x in (d, new)
    ]
    return facts[0] == facts[1]


def same_layout(what, data, new):
    "Whether two files differ only in blanks, line ends and the spelling of numbers."
    if what == "pages":
        return data.replace(b"\r\n", b"\n").rstrip(b"\n") == new.replace(
            b"\r\n", b"\n"
        ).rstrip(b"\n")
    with contextlib.suppress(ValueError):
        return json.loads(data) == json.loads(new)
    return False


def why(what, at, before, after, d):
    """Why an accepted edit may be accepted, by the list that verify prints;

    None where it may not.
    """
    if what.startswith("report"):
        if at[0] == "environment":
            return "the environment"
        if at == ("version",):
            return "another version: its words are not compared"
        other = (
            {name for name in {*before, *after} if before.get(name) != after.get(name)}
            if isinstance(before, dict) and isinstance(after, dict)
            else ()
        )
        if at == ("rules",) and other == {"by"}:
            return "rules that give the same report"  # left out, where it is what is usual
        return "below the tolerance" if below(before, after, width_beside(d, at)) else None
    if (
        at[0] == "header"
        or at[:2] == ("rows", 0)
        and "examples" in d["rows"][0]
        or at[0] in ("model", "provenance", "data_id")
    ):
        return "labels"
    if at[:3] == ("rows", 0, "provenance"):
        return "labels"  # what a file says of its own origin
    if (
        at == ("rows",)
        and "metrics" in before[0]
        and sorted(map(compact, before)) == sorted(map(compact, after))
    ):
        return "the order of runs"  # they pair by seed
    with contextlib.suppress(ValueError):  # a number spelled otherwise is the same
        if below(float(str(before)), float(str(after))):
            return "below the tolerance"
    in_floats = lambda value: compact(json.loads(json.dumps(value), parse_int=float))
    if in_floats(before) == in_floats(after):
        return "below the tolerance"
    names = {name for name in at if isinstance(name, str)}
    if isinstance(before, dict) and isinstance(after, dict):
        if {*before} < {*after}:
            return "unread columns"  # an added one
        names |= (
            {name for name in before if before[name] != after.get(name)}
            if {*before} == {*after} and len(before)
            else {*before} - {*after}
        )
    if names & {"hypotheses", "references"} and same_bleu(d, at, after):
        return "unread columns"
    return "unread columns" if names & UNREAD else None


def attack_kind(kind, n, seed):
    """Attack one kind of report with random edits.

    Returns how often (attack, outcome) happened, and the edits accepted without a reason.
    """
    rng, found, odd = random.Random(f"{seed} {kind}"), Counter(), []
    with tempfile.TemporaryDirectory() as place:
        whole, bare = make(kind, Path(place)), Path(place) / "bare"
        assert verdict(whole)
        d, original = (
            json.loads((whole / "report.json").read_bytes()),
            (whole / "report.json").read_bytes(),
        )
        shutil.copytree(
            whole,
            bare,
            ignore=lambda _, names: [
                name
                for name in names
                if name.startswith(("report.", "summary", "badge", "result", "slices"))
                or name.endswith(".svg")
            ],
        )
        texts = [x for at in spots(d) if isinstance(x := reach(d, at), str)]
        evidence = {
            name: load(bare / name)
            for name in sorted({arm["file"] for arm in d["arms"].values()})
        }
        bytes_of = {name: (bare / name).read_bytes() for name in evidence}
        pages = sorted({p.name for p in whole.iterdir()} - {*evidence, "report.json"})
        while sum(found.values()) < n:
            what = rng.choices(
                [
                    "report, digest stale",
                    "report, digest renewed",
                    "report, bytes",
                    "evidence, hash stale",
                    "evidence, hash renewed",
                    "pages",
                ],
                [3, 52, 4, 3, 28, 10],
            )[0]
            folder, reason, at, before, after = bare, None, (), None, None
            (bare / "report.json").write_bytes(original)
            if what in ("report, digest stale", "report, digest renewed"):
                new, at, before, after, group = edit(rng, d, texts)
                if (
                    compact(new) == compact(d)
                    or at == ("digest",)
                    and what.endswith("renewed")
                ):
                    continue
                (bare / "report.json").write_bytes(
                    seal(new) if what.endswith("renewed") else spell(new)
                )
                if group and what.endswith("renewed"):
                    what = "report, containers"
            elif what in ("report, bytes", "pages"):
                name = "report.json" if what == "report, bytes" else rng.choice(pages)
                folder, data = whole, (whole / name).read_bytes()
                i, way, at = rng.randrange(len(data)), rng.randrange(4), (name,)
                new = [
                    data[:i] + data[i + 1 :],
                    data[:i] + bytes([rng.randrange(256)]) + data[i:],
                    data[:i] + bytes([data[i] ^ 1 << rng.randrange(8)]) + data[i + 1 :],
                    data + b"\n",
                ][way]
                if (
                    what == "report, bytes"
                    and b'"environment"' in new
                    and new[: new.find(b'"environment"')]
                    == data[: data.find(b'"environment"')]
                ):
                    at = ("environment",)
                if new == data:
                    continue
                (whole / name).write_bytes(new)
            else:
                name = rng.choice([*evidence])
                new, at, before, after, _ = edit(rng, evidence[name], texts)
                try:
                    store(
                        bare / name,
                        new,
                        pq.read_schema(whole / name) if name.endswith(".parquet") else None,
                    )
                except (ValueError, TypeError, LookupError, AttributeError, pa.ArrowException):
                    continue
                if content(load(bare / name)) == content(evidence[name]):
                    continue
                if what.endswith("renewed"):
                    sealed = copy.deepcopy(d)
                    for arm in sealed["arms"].values():
                        arm["sha256"] = (
                            sha((bare / name).read_bytes())
                            if arm["file"] == name
                            else arm["sha256"]
                        )
                    (bare / "report.json").write_bytes(seal(sealed))
            result = verdict(folder)
            if what == "report, bytes" or what == "pages":
                (whole / name).write_bytes(data)
                if result and at == ("environment",):
                    reason = "the environment"
                elif result and same_layout(what, data, new):
                    reason = "the layout"
            elif result and not isinstance(result, str):
                reason = why(
                    what,
                    at,
                    before,
                    after,
                    evidence[name] if what.startswith("evidence") else d,
                )
            if what.startswith("evidence"):
                (bare / name).write_bytes(bytes_of[name])
                if what.endswith("stale"):
                    reason = None
            found[what, "refused" if result is None else reason or "NOT HELD"] += 1
            if result and not reason:
                odd.append(
                    (
                        kind,
                        what,
                        at,
                        str(before)[:160],
                        str(after)[:160],
                        result if isinstance(result, str) else "accepted",
                    )
                )
    return found, odd


def edits(n, seed):
    "Attack reports and evidence of every kind with edits, two processes at a time."
    found, odd = Counter(), []
    weight = {
        kind: 1 if " x m" in kind or " and " in kind or kind == "models, spread" else 3
        for kind in KINDS
    }  # the large ones take longest
    shares = {kind: -(-n * weight[kind] // sum(weight.values())) for kind in KINDS}
    run = lambda kind: subprocess.run(
        [
            sys.executable,
            __file__,
            "edits",
            "--kind",
            kind,
            "--n",
            str(shares[kind]),
            "--seed",
            str(seed),
        ],
        capture_output=True,
        text=True,
    )
    with ThreadPoolExecutor(2) as pool:
        for kind, done in zip(KINDS, pool.map(run, KINDS), strict=True):
            assert done.returncode == 0, (kind, done.stderr)
            counts, strange = json.loads(done.stdout)
            found, odd = (
                found + Counter({tuple(name): count for name, count in counts}),
                odd + strange,
            )
            print(kind, counts, flush=True)
    for line in odd[:200]:
        print("NOT HELD", *line, sep=" | ")
    rows = []
    for what in sorted({what for what, _ in found}):
        each = {reason: count for (name, reason), count in found.items() if name == what}
        tried = sum(each.values())
        rows.append(
            (
                what,
                tried,
                tried - each.get("NOT HELD", 0),
                "; ".join(
                    f"{reason} {count}"
                    for reason, count in sorted(each.items())
                    if reason not in ("refused", "NOT HELD")
                ),
            )
        )
    return rows


# --- kills and faults ------------------------------------------------------------------------------------------------------------------
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
long at, seen, how, forever, done; char root[1024]; /* how: an errno, or minus a signal */
__attribute__((constructor)) static void begin(void) { char *e = getenv("ATTACK"); if (e) sscanf(e, "%ld %ld %ld %1000s", &at, &how, &forever, root); unsetenv("ATTACK"); }
static int hit(const char *path, int fd, int undoes, int data) { /* an operation that writes below the root: must it fail? */
    char link[64], real[4096];
    if (!root[0]) return 0;
    if (!path) { snprintf(link, 64, "/proc/self/fd/%d", fd); ssize_t n = readlink(link, real, 4095); if (n < 0) return 0; real[n] = 0; path = real; }
    if (path[0] == '/' && strncmp(path, root, strlen(root))) return 0;
    if (++seen < at || !at || (how == ENOSPC && undoes) || (how == EACCES && data) || (done && !forever)) return 0;
    done = 1; if (how < 0) kill(getpid(), -how); else errno = how;
    return how > 0; }
#define OP(type, name, args, call, path, fd, undoes, data) type name args { static type (*real) args; if (!real) real = dlsym(RTLD_NEXT, #name); return hit(path, fd, undoes, data) ? -1 : real call; }
OP(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), 0, f, 0, 1)
OP(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o), 0, f, 0, 1)
OP(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o), 0, f, 0, 1)
OP(int, fsync, (int f), (f), 0, f, 0, 1)
OP(int, fdatasync, (int f), (f), 0, f, 0, 1)
OP(int, ftruncate, (int f, off_t o), (f, o), 0, f, 0, 1)
OP(int, ftruncate64, (int f, off64_t o), (f, o), 0, f, 0, 1)
OP(int, unlink, (const char *p), (p), p, 0, 1, 0)
OP(int, unlinkat, (int d, const char *p, int f), (d, p, f), p, 0, 1, 0)
OP(int, rmdir, (const char *p), (p), p, 0, 1, 0)
OP(int, mkdir, (const char *p, mode_t m), (p, m), p, 0, 0, 0)
OP(int, rename, (const char *p, const char *q), (p, q), p, 0, 0, 0)
#define OPEN(name, first, pass) int name(first const char *p, int f, ...) { static int (*real)(first const char *, int, ...); if (!real) real = dlsym(RTLD_NEXT, #name); \
    va_list v; va_start(v, f); int m = va_arg(v, int); va_end(v); return (f & (O_WRONLY | O_RDWR | O_CREAT)) && hit(p, 0, 0, 0) ? -1 : real(pass p, f, m); }
#define COMMA ,
OPEN(open, , )
OPEN(open64, , )
OPEN(openat, int d COMMA, d COMMA)
OPEN(openat64, int d COMMA, d COMMA)
"""
LIMITS = ["--max-length", 40, "--batch-tokens", 120, "--device", "cpu", "-q"]


def scenarios(data):
    "Name -> (commands that are disturbed, commands that are run before them)."
    base, tuned, text, ask, csvs = (
        DEMO / "base",
        DEMO / "tuned",
        data / "t.jsonl",
        data / "q.jsonl",
        [data / "baseline.csv", data / "q8.csv"],
    )
    score = lambda *more: ["score", base, "--text", text, *LIMITS, *more]
    models = lambda *more: [
        "compare",
        base,
        tuned,
        "--text",
        text,
        *LIMITS,
        "--out",
        "out/r",
        *more,
    ]
    files = lambda *more: ["compare", *csvs, "-q", "--out", "out/r", *more]
    older = ["compare", csvs[0], csvs[0], "-q", "--out", "out/r"]
    return {
        "score": ([score("--out", "out/x.parquet")], []),
        "score, replaced": (
            [score("--out", "out/x.jsonl", "--force")],
            [score("--max-length", 30, "--out", "out/x.jsonl")],
        ),
        "score in shards, merge": (
            [
                *(score("--out", "out", "--shard", f"{i}/2") for i in (1, 2)),
                ["merge", "out", "-q"],
            ],
            [],
        ),
        "answer": ([["answer", base, ask, *LIMITS[2:], "--out", "out/a.jsonl"]], []),
        "compare models": ([models()], []),
        "compare models, replaced": ([models("--force")], [older]),
        "compare, divergence": ([models("--divergence")], []),
        "compare, control": ([models("--control")], []),
        "compare, questions": ([models("--questions", ask)], []),
        "compare, until decided": (
            [
                models(
                    "--until-decided",
                    "--margin",
                    "0.5",
                )
            ],
            [],
        ),
        "compare files": ([files()], []),
        "compare files, replaced": ([files("--force")], [older]),
        "update the baseline": (
            [
                [
                    "compare",
                    "out/b.jsonl",
                    "out/c.jsonl",
                    "--out",
                    "out/r",
                    "-q",
                    "--update-baseline",
                    "--force",
                ]
            ],
            [
                score("--out", "out/b.jsonl"),
                score("--out", "out/c.jsonl"),
                ["compare", "out/b.jsonl", "out/c.jsonl", "--out", "out/r", "-q"],
            ],
        ),
        "evaluate": ([["evaluate", *csvs, "--out", "out/r", "-q"]], []),
        "evaluate, replaced": (
            [["evaluate", *csvs, "--out", "out/r", "-q", "--force"]],
            [older],
        ),
        "plan": ([["plan", *csvs, "--margin", "1%", "--out", "out/p", "-q"]], []),
        "init": ([["init", "-q"]], []),
        "export": ([["export", "out/r"]], [older]),
        "card": ([["card", "out/r"]], [older]),
        "runs": ([["runs", "out/runs.jsonl"]], []),
    }


def runs(path):
    "Run six experiments whose results a file keeps, and write their runs; the exit code."
    from invar_nb import ExperimentSpec, run_all, write_runs

    specs = [
        ExperimentSpec(
            experiment_id=f"e{seed}",
            command=("/bin/sh", "-c", "echo '{\"loss\": 2.5}'"),
            seed=seed,
            metric_keys=("loss",),
        )
        for seed in range(6)
    ]
    try:
        write_runs(run_all(specs, results_file=f"{path}.results", workers=2), path)
    except (OSError, invar_nb.ContractError) as error:
        return print(f"{type(error).__name__}: {error}", file=sys.stderr) or 5
    return 0


class Command:
    "Runs commands in forks of this process, which has all modules, or in new processes."

    def __init__(self, scratch, shim):
        self.scratch, self.shim = Path(scratch), shim

    def run(self, folder, words, at=0, how=0, forever=0, after=None, own=False):
        """Run one command, disturbed at an operation or after some seconds.

        Returns (exit code, None where it was killed; seconds; operations that write).
        """
        words, began = [*map(str, words)], time.monotonic()
        (folder / "tmp").mkdir(exist_ok=True)
        if own:
            env = {
                **os.environ,
                "ATTACK": f"{at} {how} {forever} {folder}",
                "TMPDIR": str(folder / "tmp"),
                "PYTHONPATH": str(TABLE.parents[2]),
            }
            with (
                open(self.scratch / "out", "wb") as out,
                open(self.scratch / "err", "wb") as err,
            ):
                status = subprocess.run(
                    [sys.executable, "-m", "invar_nb", *words],
                    cwd=folder,
                    env=env,
                    stdout=out,
                    stderr=err,
                ).returncode
            return (None if status < 0 else status), time.monotonic() - began, 0
        told = self.scratch / "seen"
        if not (pid := os.fork()):
            try:
                self.begin(folder, at, how, forever)
            except KeyboardInterrupt:
                os._exit(
                    (self.scratch / "err").write_text("interrupted\n") and 130
                )  # before a command was there
            try:
                self.child(folder, words, told)
            finally:
                os._exit(99)
        if after is not None:
            while (
                time.monotonic() - began < after
                and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            ):
                time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, -how)
        status = os.waitpid(pid, 0)[1]
        return (
            (None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)),
            time.monotonic() - began,
            int(told.read_text() or 0) if told.exists() else 0,
        )

    def begin(self, folder, at, how, forever):
        "Prepare a fork: its folder, its streams, and the disturbance."
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(
                os.open(self.scratch / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream
            )
        sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))
        for name, value in (("at", at), ("how", how), ("forever", forever), ("seen", 0)):
            ctypes.c_long.in_dll(self.shim, name).value = value
        (ctypes.c_char * 1024).in_dll(self.shim, "root").value = str(folder).encode()

    def child(self, folder, words, told):
        "Run the command in the fork, note the operations that it did, and exit."
        try:
            code = runs(words[1]) if words[0] == "runs" else main(words)
        except KeyboardInterrupt as error:  # of a function, or before the command had begun
            inside = any(
                frame.f_code.co_name == "run_app"
                for frame, _ in traceback.walk_tb(error.__traceback__)
            )
            code = 99 if inside else print("interrupted", file=sys.stderr) or 130
        (ctypes.c_char * 1024).in_dll(self.shim, "root").value = b""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        told.write_text(str(ctypes.c_long.in_dll(self.shim, "seen").value))
        os._exit(code)

    def said(self):
        "What the last command wrote to stderr."
        return (self.scratch / "err").read_text(errors="replace")


def visible(folder):
    "Path -> content, of the files that a user sees in a folder."
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not unseen(p, folder)
    }


def unseen(p, folder):
    "Whether a file is hidden or temporary, so that a user does not see it."
    return any(
        part.startswith(".")
        and part != ".github"
        or part == "tmp"
        or "runs.jsonl.results" in part
        for part in p.relative_to(folder).parts
    )


def left(folder):
    "Hidden and temporary files that a command left, but not those of killed experiments."
    return sorted(
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.name != "tmp"
        and unseen(p, folder)
        and not p.name.endswith("runs.jsonl.results")
        and not (p.parent.name == "tmp" and p.name.startswith("run-"))
    )


def disturb(scratch, shim, name, plan, rng, n, faults):
    """Disturb the commands of one scenario many times.

    Returns how often each kind of disturbance happened, and what was not held.
    """
    run, (commands, first), found, odd = Command(scratch, shim), plan, Counter(), []
    start, steps = Path(scratch) / "start", []
    (start / "out").mkdir(parents=True)
    for words in first:
        assert run.run(start, words)[0] in (0, 1), run.said()
    shutil.copytree(start, whole := Path(scratch) / "whole")
    for words in commands:
        before = visible(whole)
        code, seconds, operations = run.run(whole, words)
        assert code in (0, 1) and not left(whole), (name, code, run.said(), left(whole))
        steps.append(
            (
                words,
                code,
                seconds,
                operations,
                before,
                visible(whole),
                (Path(scratch) / "out").read_bytes(),
            )
        )
    while sum(found.values()) < n:
        folder, log = Path(scratch) / "turn", []
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        for words, code, seconds, operations, old, new, shown in steps:
            own, ended = (
                rng.random() < 0.08
                and words[0] in ("compare", "evaluate", "export", "init", "plan")
                and "--text" not in words,
                None,
            )
            for _ in range(1 if faults else rng.randrange(1, 3)):
                if faults:
                    what = rng.choice(
                        [
                            "no space, once",
                            "no space",
                            "I/O error",
                            "no access",
                            "SIGINT",
                            "SIGTERM",
                        ]
                    )
                else:
                    what = rng.choice(["killed at an operation", "killed at a time"])
                how = {
                    "no space": errno.ENOSPC,
                    "no space, once": errno.ENOSPC,
                    "I/O error": errno.EIO,
                    "no access": errno.EACCES,
                    "SIGINT": -signal.SIGINT,
                    "SIGTERM": -signal.SIGTERM,
                }.get(what, -signal.SIGKILL)
                timed = not own and (
                    what == "killed at a time" or how < 0 and faults and rng.random() < 0.5
                )
                at = 0 if timed else rng.randrange(1, max(operations, 1) + 1)
                ended, *_ = run.run(
                    folder,
                    words,
                    at=at,
                    how=how,
                    forever=what == "no space",
                    after=rng.uniform(0, seconds) if timed else None,
                    own=own,
                )
                here, said = visible(folder), run.said()
                log = [name, what, at, words[0], "own process" if own else "", f"code {ended}"]
                report = lambda state: {
                    k: v for k, v in state.items() if k.startswith("out/r/")
                }
                between = not report(here) and {"out/.r.old", "out/.r.new"} <= {*left(folder)}
                if not (between or report(here) in (report(old), report(new))) or any(
                    v not in (old.get(k), new.get(k)) for k, v in here.items()
                ):
                    odd.append(
                        [
                            *log,
                            "neither old nor new:",
                            [k for k, v in here.items() if v not in (old.get(k), new.get(k))],
                        ]
                    )
                if ended == 2 and "give --force" in said and here == new:
                    break  # the first kill came when all was done
                if ended is not None:
                    right = {130, code} if how < 0 else {2, 3, 5, code}
                    if (
                        ended not in right
                        or "Traceback" in said
                        or "bug" in said
                        or faults
                        and ended != code
                        and len(said.strip().splitlines()) != 1
                    ):
                        odd.append([*log, "ended badly:", said[-300:]])
                    if (
                        ended == code
                        and faults
                        and (
                            here != new or [x for x in left(folder) if not x.endswith(".lock")]
                        )
                        and words[0] not in ("export", "card")
                    ):
                        odd.append([*log, "a success that left:", left(folder), said[-200:]])
                if faults or ended is None:
                    found[what] += 1
                if ended is not None:
                    break
            again, *_ = run.run(folder, words)
            refused = (
                again == 2
                and visible(folder) == new
                and any(
                    word in run.said()
                    for word in ("give --force", "new files only", "must be a new")
                )
            )
            if again != code and not refused:
                odd.append([*log, f"run again: {again}", run.said()[-300:]])
            elif visible(folder) != new:
                odd.append(
                    [
                        *log,
                        "another result:",
                        [
                            k
                            for k in {**new, **visible(folder)}
                            if new.get(k) != visible(folder).get(k)
                        ],
                    ]
                )
            elif left(folder):
                odd.append([*log, "left:", left(folder)])
            elif (
                words[0] in ("export", "card")
                and (Path(scratch) / "out").read_bytes() != shown
            ):
                odd.append([*log, "another text"])
    return found, odd


def disturb_all(n, seed, faults=False, only=""):
    "Disturb the commands of every scenario, by kills or by faults of the file system."
    os.environ |= {"SOURCE_DATE_EPOCH": "1700000000", "INVAR_NB_API_KEY": ""}
    found, odd = Counter(), []
    with tempfile.TemporaryDirectory() as place:
        library, data = Path(place) / "shim.so", Path(place) / "data"
        if not os.environ.get("LD_PRELOAD"):
            library = Path(tempfile.gettempdir()) / f"invar-shim-{os.getpid()}.so"
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", library, "-ldl"],
                input=SHIM.encode(),
                check=True,
            )
            os.execve(
                sys.executable,
                [sys.executable, *sys.argv],
                {**os.environ, "LD_PRELOAD": str(library)},
            )
        shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
        data.mkdir()
        plans = {
            name: plan
            for name, plan in scenarios(tables(data)).items()
            if re.search(only, name)
        }
        models = (
            [*MODELS, "--text", data / "t.jsonl", "--divergence"]
            if any("--text" in words for plan in plans.values() for words in plan[0])
            else [data / "q8.csv", data / "q4.csv"]
        )
        for words in (
            ["compare", *models, "-q", "--out", Path(place) / "warm"],
            ["card", Path(place) / "warm"],
        ):
            assert quietly(words)[0] in (0, 1)  # imports everything
        weight = {
            name: 1
            if any("--text" in words for words in sum(plan, [])) or name == "answer"
            else 3
            for name, plan in plans.items()
        }
        for name, plan in plans.items():
            began, share = time.monotonic(), -(-n * weight[name] // sum(weight.values()))
            with tempfile.TemporaryDirectory() as scratch:
                more, strange = disturb(
                    scratch, shim, name, plan, random.Random(f"{seed} {name}"), share, faults
                )
            found, odd = found + more, odd + strange
            print(
                f"{name}: {dict(more)}, {time.monotonic() - began:.0f} s, {len(strange)} not held",
                *strange,
                sep="\n  ",
                flush=True,
            )
        Path(os.environ["LD_PRELOAD"]).unlink()
    bad = Counter(line[1] for line in odd)
    return [
        (f"{'faults' if faults else 'kills'}: {what}", count, count - bad[what], "")
        for what, count in sorted(found.items())
    ]


# --- forgeries and races ---------------------------------------------------------------------------------------------------------------
def forge(d, name):
    "Documents that carry a metric that does not exist, and what it may hide: a better headline, an exit, claims, rows, conventions."
    row = copy.deepcopy(d["rows"][0])
    row["key"]["metric"], row["role"], row["claim"] = name, "rest", "improved"
    lies = {
        "headline": f"Improved: {name} +40 points.",
        "claim": "improved",
        "exit": {"code": 0, "rule": "not_worse", "because": "Every metric is fine."},
        "conventions": ["Audited."],
        "warnings": [],
    }
    places = {
        "rules": lambda x: x["rules"].update(metrics=[name]),
        "margin": lambda x: x["rules"].update(margin={name: 0.1}),
        "better": lambda x: x["rules"].update(better={name: "lower"}),
        "row": lambda x: x["rows"].append(row),
        "missing": lambda x: [
            pair["missing"].update({name: "not measured"}) for pair in x["pairs"]
        ],
        "runs": lambda x: [x["rows"].append(row), x["parts"][0].update(kind="runs")],
        "levels": lambda x: [
            arm["levels"].update({name: {"value": 1.0, "ci": None, "title": name, "unit": ""}})
            for arm in x["arms"].values()
        ],
        "arms": lambda x: [
            x["rows"].append(row),
            [arm.update(kind="runs") for arm in x["arms"].values()],
        ],
    }
    for where in places:
        for lie in (None, *lies):
            new = copy.deepcopy(d)
            places[where](new)
            if lie:
                new[lie] = lies[lie]
            elif where not in ("row", "runs", "arms"):
                continue
            if compact(new) != compact(d):
                yield new  # without pairs nothing can be missing


def forgeries(n, seed):
    "A metric that does not exist, in every kind of report that tables give: verified never, partly only without a lie that is not listed."
    tried = held = 0
    with tempfile.TemporaryDirectory() as place:
        for kind in [
            kind for kind in KINDS if kind not in ("stopped by looks", "models, spread")
        ]:
            (folder := Path(place) / kind.replace(" ", "")).mkdir()
            d = json.loads((make(kind, folder) / "report.json").read_bytes())
            for p in (folder / "r").iterdir():
                if p.name not in {arm["file"] for arm in d["arms"].values()}:
                    p.unlink()
            for name in ("zz", "human preference"):
                for new in forge(d, name):
                    (folder / "r/report.json").write_bytes(seal(new))
                    tried, held = tried + 1, held + (verdict(folder / "r") is None)
                    if tried % 40:
                        continue
                    codes = [
                        quietly(["verify", folder / "r", *more])[0]
                        for more in ([], ["--without", name])
                    ]
                    tried, held = tried + 2, held + sum(code in (2, 3) for code in codes)
    return [("forged: a metric that does not exist", tried, held, "")]


def races(n, seed):
    "Calls of verify while another process exchanges a file that is read."
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder, place = make("scores", Path(place)), Path(place)
        report, files, later = (
            folder / "report.json",
            ("baseline.json", "candidate.json"),
            grid(scores, TWO)
            | {
                ("candidate", ""): scores("candidate", better="lower").changed(
                    values=scores("candidate").values / 2
                )
            },
        )
        study(later, Rules(margin=0.1, by=("level",))).report().save(place / "other")
        d, other = (
            json.loads((where / "report.json").read_bytes())
            for where in (folder, place / "other")
        )
        for p in (*folder.iterdir(),):
            p.unlink() if p.name not in (*files, "report.json") else None
        for stem in other["arms"]:
            other["arms"][stem]["sha256"] = d["arms"][stem]["sha256"]
        cases = {
            "report.json": (
                report,
                [spell(d), seal(copy.deepcopy(d) | {"headline": "Improved by 20 %."})],
                spell(d),
                d["headline"],
            ),
            "evidence": (
                folder / "candidate.json",
                [(x / "candidate.json").read_bytes() for x in (folder, place / "other")],
                seal(other),
                None,
            ),
        }
        for what, (path, versions, start, right) in cases.items():
            report.write_bytes(start)
            counter, count, calls, right_ones, wrong = mmap.mmap(-1, 8), 0, 0, 0, 0
            if not (pid := os.fork()):
                for count in range(1, 10**9):
                    (place / "next").write_bytes(versions[count % 2])
                    os.replace(place / "next", path)
                    counter[:8] = struct.pack("q", count)
                    time.sleep(random.uniform(0, 0.004))
            while calls < n:
                count, result = struct.unpack("q", counter[:8])[0], verdict(folder)
                calls += struct.unpack("q", counter[:8])[0] > count
                if isinstance(result, str) or result and result.report.headline != right:
                    wrong += 1
                elif result:
                    right_ones += 1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            print(
                f"race on {what}: {count} exchanges, {calls} calls, {right_ones} verified, {wrong} wrongly",
                flush=True,
            )
            rows.append((f"race: {what} exchanged", n, n - min(wrong, n), ""))
    return rows


# --- servers ---------------------------------------------------------------------------------------------------------------------------
NAMES = [
    "data",
    "id",
    "object",
    "owned_by",
    "root",
    "parent",
    "max_model_len",
    "version",
    "model_path",
    "weight_version",
    "choices",
    "logprobs",
    "tokens",
    "token_logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "prompt_token_ids",
    "text",
    "usage",
    "completion_tokens",
    "prompt_tokens",
    "meta_info",
    "input_token_logprobs",
    "model",
    "error",
    "message",
    "detail",
    "n_ctx",
    "default_generation_settings",
]


def odd_key(rng):
    "A key with characters that are hard to find again in an output."
    plain = "sk-" + "".join(rng.choices("abcdefghijkmnpqrstuvwxyzABCDEF0123456789", k=24))
    middle = rng.choice(
        [
            "",
            "",
            "\n",
            "\r\n",
            "\t",
            "\x1b[31m",
            "\x7f",
            "\x01",
            "ключ",
            "é",
            "東京",
            " ",
            '"',
            "\\",
            "'",
            "%41",
            "&amp;",
            "<b>",
            "+/=",
            "\\n",
            "\\u0041",
            "{}",
            "[key]",
            "\u2028",
            "x" * 9000,
        ]
    )
    return plain[:14] + middle + plain[14:] if rng.random() < 0.97 else "ab12"


def spelled(rng, key):
    "The key as a server may repeat it: escaped, quoted, or inside other text."
    return rng.choice(
        [
            key,
            key,
            f"Bearer {key}",
            json.dumps(key)[1:-1],
            quote(key, safe=""),
            f"<p>{key}</p>",
        ]
    )


def junk(rng, key, depth=0):
    "A JSON value of any shape, with names that servers use."
    way = rng.randrange(10 if depth < 5 else 6)
    if way < 6:
        return [
            None,
            rng.choice([True, False]),
            rng.choice([0, -1, 5, 1e308, -9999.0, 0.5, 10**400, -0.25]),
            "",
            spelled(rng, key),
            rng.choice(["gpt", "vllm", "sglang", "llamacpp", "\ud800", "\x1b[2J", "0.11"]),
        ][way]
    if way < 8:
        return [junk(rng, key, depth + 1) for _ in range(rng.randrange(6))]
    return {
        rng.choice([*NAMES, spelled(rng, key)]): junk(rng, key, depth + 1)
        for _ in range(rng.randrange(5))
    }


def body(rng, key):
    "A value that a server answers with, mostly of the shape that is expected."
    way = rng.randrange(12)
    text = json.dumps(junk(rng, key)).encode()
    return [
        text,
        text,
        text,
        text[:-1],
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"<html>" + spelled(rng, key).encode("utf-8", "replace") + b"<" * 50_000,
        bytes(rng.randrange(256) for _ in range(300)),
        b"NaN",
        b"[[],[]," * 400_000,
        b"",
        json.dumps(
            {
                "data": [
                    {"id": spelled(rng, key), "owned_by": rng.choice(["vllm", "sglang", "x"])}
                ]
                * rng.randrange(1, 3)
            }
        ).encode(),
    ][way]


def reply(rng, key, path, fits):
    "Bytes of an answer, and how they are sent: at once, dripping, for ever, or never."
    if path == b"/v1/models" and fits:
        data, status, extra = (
            json.dumps({"data": [{"id": "m", "owned_by": fits}]}).encode(),
            "200 OK",
            "",
        )
    else:
        data = body(rng, key)
        status = rng.choice(
            ["200 OK"] * 6
            + [
                f"200 {spelled(rng, key)}",
                f"401 {key}",
                "403 No",
                "404 Not Found",
                "429 Later",
                "500 Broken",
                "503",
                "301 Moved",
                "999 What",
                "100 Continue",
                "204 Empty",
                f"{spelled(rng, key)}",
                "",
            ]
        )
        extra = rng.choice(
            [
                "",
                "",
                f"X-Echo: {spelled(rng, key)}\r\n",
                f"Retry-After: {rng.choice([spelled(rng, key), '0.1', '-1', '1e9', '999'])}\r\n",
                f"Location: http://127.0.0.1:9/{spelled(rng, key)}\r\n",
                "no colon\r\n",
                "Content-Length: -5\r\n",
                "Content-Encoding: gzip\r\n",
                f"{spelled(rng, key)}: x\r\n",
                "X: " + "y" * 100_000 + "\r\n",
                "Transfer-Encoding: chunked\r\n",
                "\x00\r\n",
            ]
        )
    length = (
        rng.choice(
            [f"Content-Length: {len(data)}\r\n"] * 5
            + ["", f"Content-Length: {10**12}\r\n", "Content-Length: x\r\n"]
        )
        if not (path == b"/v1/models" and fits)
        else f"Content-Length: {len(data)}\r\n"
    )
    head = rng.choice(["HTTP/1.1"] * 9 + ["HTTP/9.9", key]) if not fits else "HTTP/1.1"
    return (
        f"{head} {status}\r\nContent-Type: application/json\r\n{extra}{length}Connection: close\r\n\r\n".encode(
            "utf-8", "surrogatepass"
        ),
        data,
    )


def hostile(rng, key, sock):
    "Serve until killed."
    fits, how = (
        rng.choice(["vllm", "sglang", "openai", ""]),
        rng.choice(
            ["send"] * 12
            + ["100 Continue", "drip", "drip head", "huge", "close", "silent", "reset"]
        ),
    )
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def one(link):
        "Answer one connection."
        with contextlib.suppress(OSError), link:
            asked = link.recv(65536)
            head, data = reply(rng, key, asked.split(b" ")[1] if b" " in asked else b"", fits)
            if (
                asked.startswith(b"POST")
                and b"\r\n\r\n" in asked
                and len(asked.split(b"\r\n\r\n", 1)[1]) < 10
            ):
                link.recv(65536)
            if how == "send" or fits and b"/v1/models" in asked:
                return link.sendall(head + data)
            if how == "reset":
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how in ("close", "reset"):
                return None
            if how == "huge":
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
            while True:
                if how == "100 Continue":
                    link.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                elif how == "drip head":
                    link.sendall(b"X")
                elif how == "drip":
                    link.sendall(head if not data else b" ")
                elif how == "huge":
                    link.sendall(b"[]," * 300_000)
                if how != "huge":
                    time.sleep(0.05)

    while True:
        threading.Thread(target=one, args=(sock.accept()[0],), daemon=True).start()


def leaks(text, key):
    "Whether a text shows the key, or a line of it, however it is spelled."
    seen = {
        text,
        html.unescape(text),
        unquote(text),
        re.sub(r"\\+u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text),
        text.replace("\\", ""),
    }
    seen |= {unquote(html.unescape(x)) for x in seen}
    parts = [key, *re.split(r"[^\x21-\x7e]+", key)]
    return any(
        part.lower() in x.lower()
        for part in parts
        if len(part) > 6 and part != "x" * 9000
        for x in seen
    )


def servers(n, seed):
    "Servers that answer anything, and keys of any kind: what a command prints or writes."
    from invar_nb.models import servers as asked

    asked.Requests.__init__.__kwdefaults__.update(timeout=1.0, retries=1, backoff=0.05)
    bad, longest, rng = Counter(), 0, random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        tables(place)
        quietly(
            [
                "score",
                DEMO / "base",
                "--text",
                place / "t.jsonl",
                *LIMITS,
                "--out",
                place / "warm.jsonl",
            ]
        )  # imports everything
        for turn in range(n):
            (folder := place / "turn").mkdir()
            key, sock = odd_key(rng), socket.create_server(("127.0.0.1", 0), backlog=64)
            words = [
                "score",
                f"{rng.choice(['openai', 'vllm', 'sglang'])}:http://127.0.0.1:{sock.getsockname()[1]}"
                + rng.choice(["#m", "", "/v1"]),
                "--text",
                place / "t.jsonl",
                "--max-length",
                40,
                "--tokenizer",
                DEMO / "base",
                "--out",
                folder / "x.jsonl",
                *rng.choice([[], ["--json"], ["--debug"], ["--json", "--debug"]]),
            ]
            if not (serving := os.fork()):
                try:
                    hostile(random.Random(f"{seed} {turn}"), key, sock)
                finally:
                    os._exit(0)
            sock.close()
            began = time.monotonic()
            if not (pid := os.fork()):
                os.environ["INVAR_NB_API_KEY"] = key
                for stream, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), stream)
                sys.stdout, sys.stderr = (
                    open(stream, "w", closefd=False) for stream in (1, 2)
                )
                code = 99
                try:
                    code = main([*map(str, words)])
                finally:
                    for stream in (sys.stdout, sys.stderr):
                        stream.flush()
                    os._exit(code)
            while (
                not (status := os.waitpid(pid, os.WNOHANG))[0]
                and time.monotonic() - began < 120
            ):
                time.sleep(0.01)
            spent, late = time.monotonic() - began, not status[0]
            for one in (*[pid] * late, serving):
                os.kill(one, signal.SIGKILL)
            for one in (*[pid] * late, serving):
                os.waitpid(one, 0)
            longest = max(longest, spent)
            text = "\n".join(
                p.read_bytes().decode("utf-8", "replace")
                for p in folder.rglob("*")
                if p.is_file()
            )
            code = os.waitstatus_to_exitcode(status[1])
            for what, fails in (
                ("a key shown", leaks(text, key)),
                ("a bug", "This is a bug" in text or code not in (0, 2, 3, 5)),
                ("no end in time", late),
            ):
                bad[what] += fails
                if fails:
                    print(
                        "NOT HELD",
                        what,
                        turn,
                        repr(key)[:60],
                        code,
                        f"{spent:.1f} s",
                        text[-400:],
                        sep=" | ",
                        flush=True,
                    )
            shutil.rmtree(folder)
            if turn % 20 == 19:
                print(f"{turn + 1} servers, {dict(bad)}", flush=True)
    print(f"longest: {longest:.1f} s, with a time limit of 1 s a request and one repetition")
    return [
        (f"servers: {what}", n, n - bad[what], "")
        for what in ("a bug", "a key shown", "no end in time")
    ]


# --- limits ----------------------------------------------------------------------------------------------------------------------------
def measure(words, folder, env=(), seconds=600):
    "(exit code or None where it was ended, seconds of the processor, peak MiB, last line) of a command."
    with open(folder / "said", "wb") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "invar_nb", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TABLE.parents[2]), **dict(env)},
        )
    timer = threading.Timer(seconds, run.kill)
    timer.start()
    _, status, used = os.wait4(run.pid, 0)
    timer.cancel()
    code = os.waitstatus_to_exitcode(status)
    return (
        None if code < 0 else code,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        ((folder / "said").read_text(errors="replace").strip().splitlines() or [""])[-1],
    )


def endless(folder):
    "Name -> (words of a command, files that become a FIFO or a link to /dev/zero)."
    report = make("scores", folder)
    shutil.copytree(DEMO / "base", folder / "model")
    (folder / "eval").mkdir()
    (folder / "parts").mkdir()
    files = {
        name: folder / name
        for name in (
            "t.jsonl",
            "q.jsonl",
            "baseline.csv",
            "model/model.safetensors",
            "model/config.json",
            "model/tokenizer.json",
            "eval/samples_a.jsonl",
            "eval/results_a.json",
            "parts/part-00001-of-00002.parquet",
            "study.toml",
            "one",
        )
    }
    score = [
        "score",
        "model",
        "--text",
        "t.jsonl",
        "--out",
        "o.jsonl",
        "--max-length",
        40,
        "-q",
    ]
    for name, words in {
        "t.jsonl": score,
        "model/model.safetensors": score,
        "model/config.json": score,
        "model/tokenizer.json": score,
        "baseline.csv": ["compare", "baseline.csv", "q8.csv"],
        "one": ["score", "one", *score[2:]],
        "q.jsonl": ["answer", "model", "q.jsonl", "--out", "a.jsonl"],
        "eval/samples_a.jsonl": ["evaluate", "eval"],
        "eval/results_a.json": ["evaluate", "eval"],
        "parts/part-00001-of-00002.parquet": ["merge", "parts"],
        "study.toml": [*score, "--study", "study.toml"],
    }.items():
        yield name, words, files[name]
    for name in ("report.json", "baseline.json", "report.md", "slices.csv"):
        yield f"verify, {name}", ["verify", "r"], report / name
    yield "diff", ["diff", "model", DEMO / "tuned"], files["model/model.safetensors"]
    yield "card", ["card", "r"], report / "report.json"


def archives(folder):
    "An archive of inspect with a member of 2.6 GB, by Zstandard and by deflate."
    import zstandard

    head = json.dumps(
        {
            "version": 2,
            "status": "success",
            "eval": {"task": "t", "model": "m", "dataset": {}},
            "results": {
                "total_samples": 1,
                "completed_samples": 1,
                "scores": [{"name": "match", "scorer": "match", "metrics": {}}],
            },
        }
    )
    for name in ("zstd.eval", "deflate.eval"):
        zeros = b"a" * 2**20
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", head)
            if name == "deflate.eval":
                with archive.open("samples/1_epoch_1.json", "w", force_zip64=True) as member:
                    for _ in range(2600):
                        member.write(zeros)
            else:
                packer = zstandard.ZstdCompressor(level=3).compressobj(size=2600 * 2**20)
                data = b"".join(packer.compress(zeros) for _ in range(2600)) + packer.flush()
                info = zipfile.ZipInfo("samples/1_epoch_1.json")
                archive.writestr(info, data, zipfile.ZIP_STORED)
                info.compress_type, info.file_size = 93, 2600 * 2**20
        yield f"{name}, {(folder / name).stat().st_size // 1000} kB", ["evaluate", name]


def big_reply(sock, post):
    "250 MB of brackets, as the list of models or as log-probabilities."
    while True:
        link = sock.accept()[0]
        with contextlib.suppress(OSError), link:
            listing = b"/v1/models" in link.recv(65536)
            data = (
                json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]}).encode()
                if post and listing
                else b"[[]" + b",[]" * 83_000_000 + b"]"
            )
            link.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                % len(data)
                + data
            )


def limits(n, seed):
    "Inputs without an end or of gigabytes: a minute of the processor and 1 GiB are enough for each to be refused."
    bad, tried = Counter(), Counter()

    def look(group, name, words, folder, env=()):
        "Measure one command, and count whether it was refused within the limits."
        code, seconds, peak, said = measure(words, folder, env)
        held = (
            code in (2, 3, 5)
            and seconds < 60
            and peak < 1024
            and "bug" not in said
            and "Traceback" not in said
        )
        tried[group], bad[group] = tried[group] + 1, bad[group] + (not held)
        print(
            f"{'' if held else 'NOT HELD '}{group}: {name}: code {code}, {seconds:.1f} s, {peak:.0f} MiB: {said[:150]}",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for name, words, path in [*endless(place)]:
            kept = path.with_name(path.name + ".kept")
            if path.exists():
                path.rename(kept)
            for group, put in (
                ("a pipe", os.mkfifo),
                ("/dev/zero", lambda p: p.symlink_to("/dev/zero")),
            ):
                put(path)
                look(f"limits: {group}", name, words, place)
                path.unlink()
            if kept.exists():
                kept.rename(path)
        for name, words in archives(place):
            look("limits: an archive of 2.6 GB", name, words, place)
        config = json.loads((place / "model/config.json").read_text())
        (place / "model/config.json").write_text(
            json.dumps(config | {"num_hidden_layers": 100_000})
        )
        for words in (
            ["score", "model", "--text", "t.jsonl", "--out", "o.jsonl"],
            ["compare", "model", DEMO / "tuned", "--text", "t.jsonl"],
        ):
            look("limits: 100,000 layers", words[0], words, place)
        for post in (False, True):
            sock = socket.create_server(("127.0.0.1", 0))
            if not (pid := os.fork()):
                big_reply(sock, post)
            address = f"vllm:http://127.0.0.1:{sock.getsockname()[1]}"
            look(
                "limits: a reply of 250 MB",
                "log-probabilities" if post else "models",
                [
                    "score",
                    address,
                    "--text",
                    "t.jsonl",
                    "--tokenizer",
                    DEMO / "base",
                    "--max-length",
                    40,
                    "--out",
                    "o.jsonl",
                ],
                place,
            )
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [(what, tried[what], tried[what] - bad[what], "") for what in sorted(tried)]


ATTACKS = {
    "edits": (edits, 50_000),
    "forgeries": (forgeries, 0),
    "race": (races, 200),
    "kills": (disturb_all, 250),
    "faults": (partial(disturb_all, faults=True), 500),
    "servers": (servers, 300),
    "limits": (limits, 0),
}

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("attack", choices=ATTACKS)
    p.add_argument("--n", type=int)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument(
        "--only", help="kills and faults of commands whose names this expression matches"
    )
    p.add_argument("--table", type=Path, default=TABLE)
    p.add_argument(
        "--kind", choices=KINDS, help="edits of this kind of report alone, printed as JSON"
    )
    a = p.parse_args()
    if a.kind:
        found, odd = attack_kind(a.kind, a.n, a.seed)
        sys.exit(print(json.dumps([[*found.items()], odd])))
    attack, usual = ATTACKS[a.attack]
    sys.exit(
        not keep(
            attack(a.n or usual, a.seed, **{"only": a.only} if a.only else {}), a.seed, a.table
        )
    )
