"""What is frozen, as command lines of today, and the adapters that map today's answers to what is frozen.

When commands, options or the shape of report.json change, the lines and the adapters follow; tests/data/frozen.json never does.
`python tests/frozen_cases.py` wrote that file from the commands as they were before the redesign."""

import contextlib
import io
import json
import math
import os
import shlex
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from commands import main
from frozen_inputs import write_inputs

from invar_nb.arms.pair import pair
from invar_nb.comparison import looks
from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import study
from invar_nb.files.answers import read_predictions
from invar_nb.files.losses import read_losses
from invar_nb.readers.reader import Reading
from invar_nb.readers.recognise import read_arms
from invar_nb.report.report import report_of
from invar_nb.shell import run_app

FROZEN = Path(__file__).parent / "data/frozen.json"
FOUR = lambda folder, end: " ".join(
    f"{folder}/{model}.{end}" for model in ("base", "q8", "q4", "q3", "tuned")
)
TWO = lambda folder, end: f"compare {folder}/base.{end} {folder}/q4.{end}"
LM, INSPECT = "compare lm/base lm/tuned", "compare inspect/base inspect/tuned"

STUDIES = {
    "losses": TWO("docs", "jsonl"),
    "losses: hardly a change": "compare docs/base.jsonl docs/q8.jsonl --margin 1%",
    "losses: improved": "compare docs/base.jsonl docs/tuned.jsonl --level 0.9",
    "losses: identical": "compare docs/base.jsonl docs/same.jsonl",
    "losses: one text": TWO("serial", "jsonl"),
    "losses: windows": f"{TWO('docs', 'jsonl')} --units windows --metric perplexity",
    "losses: few windows": TWO("few", "jsonl"),
    "losses: one window": TWO("one", "jsonl"),
    "losses: not decided": "compare few/base.jsonl few/q8.jsonl --fail-inconclusive --margin 0.1%",
    "losses: slices": f"{TWO('sliced', 'jsonl')} --by language --by source --by position --by frequency",
    "losses: whole documents": TWO("whole", "jsonl"),
    "losses: whole documents per byte": f"{TWO('whole', 'jsonl')} --metric bits_per_byte --margin bits_per_byte=0.001 --gate 1.2",
    "losses: 4 candidates per byte": f"compare {FOUR('whole', 'jsonl')} --metric bits_per_byte",
    "losses: noise floor": "compare docs/base.jsonl docs/q8.jsonl arms.control=docs/control.jsonl --by position",
    "losses: profile ci": f"{TWO('split', 'jsonl')} --profile ci rules.tier=aggressive --metric perplexity",
    "losses: gate fails": "compare docs/base.jsonl docs/q8.jsonl --gate 1.001 --metric perplexity",
    "bootstrap: bca": f"{TWO('docs', 'jsonl')} --method bca --metric perplexity",
    "bootstrap: percentile, documents": f"{TWO('docs', 'jsonl')} --method percentile --units documents",
    "bootstrap: bca of answers": f"{TWO('answers', 'csv')} --method bca --metric accuracy --metric brier --units items",
    "bootstrap: drawn": f"{TWO('docs', 'jsonl')} --method bca rules.replicates=2000 --seed 7 --metric perplexity",
    "bootstrap: drawn by tokens": f"{TWO('docs', 'jsonl')} --method percentile rules.resample=tokens rules.replicates=2000 --seed 7 --metric perplexity",
    "losses: 4 candidates": f"compare {FOUR('docs', 'jsonl')} --size q8=8.5 --size q4=4.5 --size q3=3.4 --size tuned=16 --size baseline=16",
    "losses: 4 candidates, one decides": f"compare {FOUR('sliced', 'jsonl')} rules.deciding=q8 --by language --gate 1.05 --metric perplexity",
    "answers": f"{TWO('answers', 'csv')} --by language",
    "answers: mistakes": "compare answers/base.csv answers/q4.csv rules.mistakes=yes:no rules.mistakes=no:maybe --study labels.toml --margin 5% --by language",
    "answers: items": f"{TWO('answers', 'csv')} --units items --metric accuracy --metric macro_f1 --margin macro_f1=0.05",
    "answers: labels alone": TWO("plain", "jsonl"),
    "answers: 4 candidates": f"compare {FOUR('answers', 'csv')} --metric brier --metric accuracy --by language --fail-inconclusive",
    "scores": f"{TWO('scores', 'csv')} --score f1 --column id=doc --column cluster=subject --by topic --margin score=0.05",
    "scores: lower is better": f"{TWO('scores', 'csv')} --score seconds --better lower --column id=doc",
    "scores: 4 candidates": f"compare {FOUR('scores', 'csv')} --score f1 --column id=doc --column cluster=subject",
    "translations": f"{TWO('texts', 'txt')} columns.references=texts/right1.txt columns.references=texts/right2.txt",
    "translations: 4 candidates": f"compare {FOUR('texts', 'txt')} columns.references=texts/right1.txt columns.tokenize=intl",
    "parts: lm-eval": f"{LM} --score shared columns.filter=first-word --by gold --margin accuracy=5%",
    "parts: inspect": f"{INSPECT} --score choice --score texts=perplexity",
    "parts: Every Eval Ever": TWO("eee", "jsonl"),
    "parts: lm-eval, gate on losses": "compare lm/tuned lm/base --score shared columns.filter=first-word --gate 1.01 --margin perplexity=90% --margin accuracy=90%",
    "lm-eval: one task": f"{LM} --task invar_choices --by gold",
    "lm-eval: losses": f"{LM} --task invar_rolling",
    "llama.cpp: divergence": "compare llama/base.kld llama/tuned.kld",
    "llama.cpp: logs": "compare llama/base.default.log llama/tuned.default.log",
    "table: renamed": f"{TWO('tables', 'csv')} --column id=item --column loss=nll --column tokens=n --column bytes=size --column cluster=group",
    "table: repeated ids": f"{TWO('tables', 'jsonl')} --column id=doc columns.repeats=mean --score nll --better lower",
    "table: sums": "compare tables/base-sums.csv tables/q4-sums.csv --column id=item --column loss=nll --column tokens=n columns.sums=true",
    "runs": "compare runs/base.csv runs/q4.csv --metric loss --better lower",
    "runs: improved": "compare runs/base.csv runs/tuned.csv --metric loss --metric accuracy --study runs.toml --margin accuracy=1%",
    "runs: failed": "compare runs/base-oom.csv runs/q4-oom.csv --metric loss --better lower",
    "runs: fewer seeds": "compare runs/base-fewer.csv runs/q3-fewer.csv --metric accuracy --metric loss --study fewer.toml --level 0.99",
    "runs: nothing to see": "compare runs/base-bare.csv runs/q8-bare.csv --metric loss --better lower --fail-inconclusive --margin 0.1%",
    "one arm: losses": "evaluate sliced/q4.jsonl --by language",
    "one arm: answers": "evaluate answers/q4.csv --by language rules.mistakes=yes:no --level 0.9",
    "one arm: predictions": "evaluate answers/base.csv --metric accuracy --metric brier",
    "one arm: scores": "evaluate scores/q4.csv --score f1 --column id=doc --by topic",
    "one arm: translations": "evaluate texts/q4.txt columns.references=texts/right1.txt",
    "one arm: lm-eval": "evaluate lm/base --task invar_choices",
}


# --- studies that no command on files reaches -----------------------------------------------------------------------------------------
def arms_on(model, folders, read=read_losses, end="jsonl", part=True):
    "(name, part) -> arm: a baseline and one candidate in each folder."
    return {
        (name, folder if part else ""): read(f"{folder}/{m}.{end}")
        for folder in folders
        for name, m in (("baseline", "base"), ("candidate", model))
    }


def texts_compared(weights=None, primary=None, model="q4"):
    "Three texts, or one that decides; pooled where weights are given."
    return report_of(
        study(
            arms_on(model, ("law", "news", "code")),
            Rules(pooling=weights, deciding=primary or ()),
        )
    )


def with_questions():
    "A text that decides, and questions beside it."
    arms = {(name, "text"): arm for (name, _), arm in arms_on("q8", ["docs"]).items()} | {
        (name, "examples"): arm
        for (name, _), arm in arms_on("q8", ["answers"], read_predictions, "csv").items()
    }
    return report_of(
        study(
            arms,
            Rules(deciding="text", by="language", metrics=("perplexity", "accuracy", "brier")),
        )
    )


def stopped(target, model):
    "Looks at both models until one decides."
    arms = arms_on(model, [f"looks-{target}"], part=False)
    whole = pair(*arms.values())
    with pytest.MonkeyPatch.context() as then:
        then.setattr(looks, "FIRST", 40)  # where the first look was then; now it waits for 100
        for k in (order := looks.order_units(whole.baseline)).at:
            seen = whole.take(order.rows(k))
            if looks.look_at(seen).looks.decided:
                break
        return report_of(study(dict(zip(arms, (seen.baseline, seen.candidate), strict=True))))


BY_PYTHON = {
    "texts: each by itself": lambda: texts_compared(),
    "texts: one decides": lambda: texts_compared(primary="law"),
    "text with questions": lambda: with_questions(),
    "texts: pooled, equal": lambda: texts_compared("equal"),
    "texts: pooled by tokens": lambda: texts_compared("tokens", model="q8"),
    "texts: pooled, texts like these": lambda: texts_compared("random"),
    "texts: pooled, given": lambda: texts_compared(
        {"law": 1, "news": 2, "code": 5}, model="tuned"
    ),
    "stopped: this text": lambda: stopped("text", "q3"),
    "stopped: texts like this": lambda: stopped("texts-like-this", "tuned"),
    "stopped: equivalent": lambda: stopped("text", "q8"),
    "stopped: not before the end": lambda: stopped("text", "q4"),
}


# --- what reading a file gives: path and options of the reader ------------------------------------------------------------------------
IMPORTS = {
    "lm-eval: choices": ("lm/base", {"tasks": ("invar_choices",)}),
    "lm-eval: a field to slice by": (
        "lm/tuned",
        {"tasks": ("invar_choices",), "slices": ("gold",)},
    ),
    "lm-eval: losses": ("lm/base", {"tasks": ("invar_rolling",)}),
    "lm-eval: a filter": ("lm/base", {"tasks": ("invar_words",), "filter": "first-word"}),
    "lm-eval: another filter": (
        "lm/base",
        {"tasks": ("invar_words",), "filter": "first-letter"},
    ),
    "lm-eval: all": ("lm/tuned", {"score": "shared", "filter": "first-word"}),
    "inspect: a scorer": ("inspect/base/choices.json", {"score": "choice"}),
    "inspect: another": ("inspect/tuned/choices.json", {"score": "letters"}),
    "inspect: archive": ("choices.eval", {"score": "choice"}),
    "inspect: losses": ("inspect/base/texts.json", {"score": "perplexity"}),
    "inspect: a folder": ("inspect/tuned", {"score": ("choice", "texts=perplexity")}),
    "llama.cpp: log": ("llama/base.type1.log", {}),
    "llama.cpp: binary": ("llama/tuned.kld", {}),
    "Every Eval Ever": ("eee/q4-ARC.jsonl", {}),
    "Every Eval Ever: three tasks": ("eee/q4.jsonl", {}),
    "table: CSV": (
        "tables/base.csv",
        {"id": "item", "loss": "nll", "tokens": "n", "n_bytes": "size", "cluster": "group"},
    ),
    "table: JSON Lines, renamed": (
        "tables/base.jsonl",
        {"id": "item", "rename": {"nll": "loss", "n": "tokens"}},
    ),
    "table: JSON": ("tables/base.json", {"id": "item", "loss": "nll", "tokens": "n"}),
    "table: Parquet": ("tables/base.parquet", {"id": "item", "loss": "nll", "tokens": "n"}),
    "table: sums": (
        "tables/base-sums.csv",
        {"id": "item", "loss": "nll", "tokens": "n", "sums": True},
    ),
    "table: scores": (
        "scores/q4.csv",
        {"id": "doc", "score": "f1", "cluster": "subject", "slices": ("topic",)},
    ),
    "table: lower is better": (
        "scores/q4.csv",
        {"id": "doc", "score": "seconds", "better": "lower"},
    ),
    "table: averaged": (
        "tables/base.csv",
        {"id": "doc", "score": "nll", "better": "lower", "repeats": "mean"},
    ),
    "answers: CSV": ("answers/q4.csv", {}),
    "answers: JSON Lines": ("plain/q4.jsonl", {}),
    "answers: Parquet": ("plain/base.parquet", {}),
    "losses: documents": ("docs/q4.jsonl", {}),
    "losses: Parquet": ("docs/base.parquet", {}),
    "losses: splits": ("split/q4.jsonl", {}),
    "losses: sums of classes": ("sliced/q4.jsonl", {}),
    "losses: bytes": ("whole/q4.jsonl", {}),
    "translations": ("texts/q4.txt", {"references": ("texts/right1.txt",)}),
    "translations: two right": (
        "texts/q3.txt",
        {"references": ("texts/right1.txt", "texts/right2.txt")},
    ),
}
PLANS = {
    "sd": "--sd 0.05",
    "sd: a change": "--sd 0.05 --margin 1% --expect 2% --power 0.9 --level 0.9",
    "sd: half-width": "--sd 0.05 --half-width 1% --assurance 0.9",
    "documents": "docs/base.jsonl docs/q8.jsonl --margin 1%",
    "one text": "serial/base.jsonl serial/q4.jsonl --margin 2% --expect 4%",
    "windows": "docs/base.jsonl docs/q8.jsonl --units windows --half-width 0.1%",
    "one file": "docs/base.jsonl --correlation 0.999",
    "answers": "answers/base.csv answers/q8.csv --margin 5% --metric accuracy",
    "scores": "scores/base.csv scores/q8.csv --column id=doc --score f1 --column cluster=subject --margin 0.01",
    "translations": "texts/base.txt texts/q8.txt columns.references=texts/right1.txt --margin 0.05",
    "bits per byte": "whole/base.jsonl whole/q8.jsonl --metric bits_per_byte --margin 0.01",
}


def arms_of(name):
    "Part -> what is known of the arm that was read: names by their digest, numbers by their sum."
    path, options = IMPORTS[name]
    return {part: facts_of(arm) for part, arm in read_arms(path, Reading(**options)).items()}


def facts_of(arm):
    facts = {
        "kind": arm.kind,
        "model": arm.model,
        "data_id": arm.data_id,
        "n": len(arm),
        "unit": getattr(arm, "weight_unit", None),
        "better": getattr(arm, "better", None),
    }
    texts = {
        name: getattr(arm, name, None)
        for name in (
            "ids",
            "label",
            "prediction",
            "clusters",
            "split",
            "hypotheses",
            "references",
            "labels",
        )
    } | {f"slice {name}": values for name, values in getattr(arm, "slices", {}).items()}
    numbers = {
        name: getattr(arm, name, None)
        for name in (
            "tokens",
            "log_loss",
            "n_bytes",
            "values",
            "confidence",
            "probabilities",
            "repeats",
        )
    } | dict(getattr(arm, "columns", {}))
    facts |= {
        name: sha256(
            json.dumps(
                [
                    value if value is None or isinstance(value, tuple) else str(value)
                    for value in values
                ]
            ).encode()
        ).hexdigest()[:16]
        for name, values in texts.items()
        if values is not None
    }
    return facts | {
        name: math.fsum(values.ravel().tolist())
        for name, values in numbers.items()
        if values is not None
    }


def typed(line, out):
    "The words of a command line, with a folder for the report where the command writes one."
    words = shlex.split(line)
    return [
        *words,
        "--quiet",
        *(
            ["--out", str(out)]
            if words[0] in ("compare", "evaluate") and "--out" not in words
            else []
        ),
    ]


def answer(line, out=None):
    "(exit code, what is printed on stdout, the code of what was refused, what is printed on stderr) of a command line."
    codes, printed, errors, describe = (
        [],
        io.StringIO(),
        io.StringIO(),
        run_app.describe_error,
    )
    run_app.describe_error = lambda error: (
        codes.append(getattr(error, "code", None)) or describe(error)
    )
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code = main(typed(line, out))
    finally:
        run_app.describe_error = describe
    return code, printed.getvalue(), codes[0] if codes else None, errors.getvalue()


def plan_of(name):
    "The numbers of a plan."
    code, printed, *_ = answer(f"plan {PLANS[name]} --json")
    plan = json.loads(printed)
    return {
        key: plan[key]
        for key in ("goal", "needed", "at_pilot", "table", "units", "enough", "scale")
    } | {
        # a loss perhaps within the margin was not said to be decided
        "decided": plan["decided"] is not None and "perhaps" not in plan["decided"],
        "code": code,
    }


# --- adapters: report.json of today -> what is frozen ---------------------------------------------------------------------------------
WORDS = (
    "Regressed",
    "Improved",
    "Equivalent",
    "Identical",
    "Inconclusive",
    "Undecided",
    "No regression shown",
    "Failed",
)
ROW = (
    "baseline",
    "candidate",
    "delta",
    "low",
    "high",
    "p",
    "adjusted p",
    "level",
    "margin",
    "claim",
)


def rows_of(d):
    "Key (candidate, part, metric, slice) -> the values named ROW; of one arm alone its value, and its interval where there is one."
    rows, several = {}, len(d["parts"]) > 1
    for level in d["levels"]:
        key = level["key"]
        where = key["part"] if several else "", key["metric"], key["slice"] or ""
        rows[" | ".join(("candidate", *where))] = level["value"], *(level["ci"] or ())
    for row in d["rows"]:
        key, value, role = row["key"], row["value"], row["role"]
        where = key["part"] if several else "", key["metric"], key["slice"] or ""
        values = {
            "baseline": value["baseline"],
            "candidate": value["candidate"],
            "delta": value["delta"],
            "low": value["ci"][0],
            "high": value["ci"][1],
            "p": value["p_value"],
            "adjusted p": row["adjusted"].get("change"),
            "level": value["level"],
            "margin": row["margin"],
            "claim": row["claim"],
        }
        if value["units"] == "seeds" and value["fallback"]:
            values |= {"low": None, "high": None}
        if role == "pooled":
            values |= {"baseline": None, "candidate": None, "adjusted p": None}
        if role == "control":
            if (
                key["slice"]
                or key["metric"]
                != next(r for r in d["rows"] if r["role"] == "lead")["key"]["metric"]
            ):
                continue
            values |= dict.fromkeys(
                ("baseline", "candidate", "p", "adjusted p", "level", "margin", "claim")
            )
        rows[" | ".join((key["candidate"], *where))] = tuple(values.values())
        if role == "rest" and row["floor"] is not None:
            rows[" | ".join(("floor", *where))] = (
                row["floor"],
                abs(value["delta"]) <= row["floor"],
            )
    return rows


def study_of(d):
    "What is frozen of one report."
    kept = {
        "rows": rows_of(d),
        "exit": d["exit"]["code"],
        "rule": d["exit"]["rule"],
        "word": next((word for word in WORDS if d["headline"].startswith(word)), None),
    }
    if d["exit"]["rule"] == "failed_runs":
        return kept | {"claim": None, "verdict": "failed"}
    leads = [row for row in d["rows"] if row["role"] == "lead"]
    names, parts = ({row["key"][name] for row in leads} for name in ("candidate", "part"))
    pooled = [row for row in d["rows"] if row["role"] == "pooled"]
    alone = len(leads) == 1 or pooled or d["rules"].get("deciding")
    if len(names) < 2 < 1 + len(parts) and not alone:
        kept["word"] = {"regressed": "Regressed", "inconclusive": "Undecided"}.get(
            d["claim"], "No regression shown"
        )
    if len(names) > 1:
        kept["word"] = None
    words = (
        ("regressed", "improved")
        if len(names) == 1 and (len(leads) == 1 or d["rules"].get("deciding"))
        else ("regressed",)
    )
    kept |= {
        "claim": d["claim"],
        "verdict": None
        if d["claim"] is None
        else d["claim"]
        if d["claim"] in words
        else "noise",
    }
    first = next(
        (
            pair
            for pair in d["pairs"]
            if pair["part"] in (d["rules"].get("deciding") or [pair["part"]])
        ),
        None,
    )
    if first and len(names) == 1 and (len(parts) == 1 or d["rules"].get("deciding")):
        if first["gate"]:
            kept["gate"] = {
                name: first["gate"][name] for name in ("limit", "observed", "passed")
            }
        if first["passages"] and len(parts) == 1:
            kept["passages"] = {
                kind: [
                    [p["id"], p["delta"], p["beyond"]]
                    for p in (*ranked["lost"], *ranked["gained"])
                ]
                for kind, ranked in first["passages"].items()
                if ranked
            }
    if d["looks"]:
        kept["looks"] = [
            [
                look["windows"],
                look["tokens"],
                look["delta"],
                look["low"],
                look["high"],
                look["bound"],
                *look["z"],
                look["decided"],
            ]
            for pair in d["looks"]["pairs"]
            for look in pair["rows"]
        ]
    for ranking in d["rankings"]:
        kept["sweep"] = {
            "level": d["rules"].get("level", 0.95),
            "gate_on": [
                name
                for name in ranking["order"]
                if name in d["rules"].get("deciding", ranking["order"])
            ],
            "each": leads[0]["value"]["level"],
            **{name: ranking[name] for name in ("order", "size_unit", "sizes")},
        }
    for row in pooled:
        kept["pooled"] = {
            name: row["pooled"][name] for name in ("weights", "spread", "prediction")
        }
    return kept


def source_of(d):
    "The source systems' fields of report.json, of losses of one candidate."
    if not d["dataset"] or d["parts"][1:]:
        return None
    stats = d["dataset"]["windows"]["stats"]
    return {
        "primary_metric": {
            name: d["primary_metric"][name]
            for name in ("kind", "preview", "final", "ci", "display_ci")
        },
        "stats": stats,
    }


def frozen_of(d):
    kept = study_of(d)
    if source := source_of(d):
        kept["source"] = source
    return kept


# --- writing what is frozen -----------------------------------------------------------------------------------------------------------
def frozen_study(name, out):
    "What a study gives now."
    if name in BY_PYTHON:
        return frozen_of(json.loads(json.dumps(BY_PYTHON[name]().document())))
    code = answer(STUDIES[name], out)[0]
    report = json.loads((out / "report.json").read_text())
    assert code == report["exit"]["code"]
    return frozen_of(report)


def write_frozen(folder):
    "All of it, from the code as it is now: only before the redesign."
    os.chdir(folder)
    write_inputs(folder)
    frozen = {
        "row": ROW,
        "studies": {
            name: frozen_study(name, folder / f"out{i}")
            for i, name in enumerate([*STUDIES, *BY_PYTHON])
        },
        "imports": {name: arms_of(name) for name in IMPORTS},
        "plans": {name: plan_of(name) for name in PLANS},
    }
    lines = [
        f" {json.dumps(section)}: "
        + (
            json.dumps(value)
            if isinstance(value, (list, tuple))
            else "{\n"
            + ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}"
                for name, entry in value.items()
            )
            + "\n }"
        )
        for section, value in frozen.items()
    ]
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_frozen(Path(sys.argv[1]))
