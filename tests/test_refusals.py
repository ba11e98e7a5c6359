"""What cannot be compared is refused: one command, one line with the culprit and the cure, nothing written.

x is a case below, in each form of the format: inspect as .json and .eval, tables as CSV, TSV, JSON Lines, JSON and Parquet, answers in three of
them, logs of both output types, our losses as JSON Lines and Parquet, `kept` our own file of answers. A letter says why there is none.

             lm-eval inspect logits log table answers EEE losses kept
    version     x       x      t     t    t      t     x    x     x     t  names no task; of EEE, losses and kept it is the format's version
    prompt      x       x      k     n    n      x     x    x     x     k  the prompts are the tokens: see there; n  holds none
    filters     x       x      o     o    x      x     x    o     o     o  one value for each item; elsewhere a scorer, a column, two models
    counts      x       x      x     x    x      x     x    x     x
    hash        x       h      h     h    h      h     x    d     x     h  the format has none; d  a file written by hand may leave it out
    truncated   x       x      x     x    x      x     x    x     x        within the last number of a CSV no reader can see it
    header      x       x      x     x    l      l     l    x     x     l  does not say how many rows follow: see counts
    status      s       x      s     s    s      s     s    s     s     s  says nothing of the run
    error       x       x      x     x    x      x     x    x     x        a sample that failed, or a value that is missing or no number
    tokens      x       x      x     x    x      a     a    x     a     a  an example counts once, whatever its tokens
    unknown     a folder and a file that are nothing known: no format

"""

import csv
import io
import json
import math
import re
import shutil
import struct
import zipfile
from hashlib import sha256
from pathlib import Path

import pyarrow
import pytest
from commands import main
from pyarrow import parquet

from invar_nb import page_data
from invar_nb.arms.pair import pair
from invar_nb.arms.predictions import Predictions
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.files.answers import predictions_bytes
from invar_nb.files.losses import losses_bytes
from invar_nb.readers.reader import Reading
from invar_nb.readers.recognise import read_together

DATA = Path(__file__).parent / "data"
TASKS = {"lm-eval": "invar_choices", "lm-eval losses": "invar_rolling"}
INSPECT, LOGS = (
    ("inspect.json", "inspect.eval"),
    ("inspect losses.json", "inspect losses.eval"),
)
LLAMA, TABLES, ANSWERS, LOSSES = (
    ("log", "type 1 log"),
    (".csv", ".tsv", ".jsonl", ".json", ".parquet"),
    ("answers.csv", "answers.jsonl", "answers.parquet"),
    ("losses.jsonl", "losses.parquet"),
)
KINDS = (*TASKS, *INSPECT, *LOGS, "logits", *LLAMA, *TABLES, *ANSWERS, "EEE", *LOSSES, "kept")


# --- a file of each format: what it holds, edited, then written -----------------------------------------------------------------------
def model(name):
    return "base" if name == "a" else "tuned"


def rows_of(kind):
    if kind in TABLES:
        return [dict(doc=f"d{i}", nll=2 + i * 7 % 10 / 10, tokens=15 + i) for i in range(12)]
    if kind in ANSWERS:
        return [
            dict(
                id=f"q{i}",
                label="yn"[i % 2],
                prediction="yn"[i % 3 % 2],
                prompt=f"What is {i}?",
                model="m",
            )
            for i in range(12)
        ]
    return [
        dict(
            schema_version="instance_level_eval_0.2.1",
            evaluation_id="GSM8K/m/1",
            model_id="m",
            evaluation_name="GSM8K",
            sample_id=f"q{i}",
            sample_hash=f"{i:064x}",
            error=None,
            evaluation={"score": float(i % 2), "is_correct": i % 2 == 1},
        )
        for i in range(12)
    ]


def write_rows(path, rows):
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(
                file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ","
            )
            out.writeheader()
            out.writerows(rows)


def lm_eval(folder, kind, name, edit):
    source = page_data("lm_eval") / model(name)
    samples, results = (
        next(source.glob(f"samples_{TASKS[kind]}_*")),
        next(source.glob("results_*")),
    )
    rows, said = (
        [json.loads(line) for line in samples.read_text().splitlines()],
        json.loads(results.read_text()),
    )
    edit(
        found := dict(
            rows=rows,
            said={
                key: value.get(TASKS[kind]) if isinstance(value, dict) else value
                for key, value in said.items()
            },
        )
    )
    folder.mkdir()
    (folder / results.name).write_text(
        json.dumps(
            {
                key: {TASKS[kind]: value} if isinstance(said.get(key), dict) else value
                for key, value in found["said"].items()
            }
        )
    )
    write_rows(folder / samples.name, rows)
    return folder / samples.name


def inspect(path, kind, name, edit):
    log = json.loads(
        (
            DATA / "inspect" / model(name) / f"{'texts' if kind in LOGS else 'choices'}.json"
        ).read_text()
    )
    edit(log)
    if path.suffix == ".json":
        path.write_text(json.dumps(log))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for sample in log["samples"]:
                archive.writestr(
                    f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample)
                )
            archive.writestr(
                "header.json",
                json.dumps({key: value for key, value in log.items() if key != "samples"}),
            )


def kept(path, kind, name, edit):
    n = range(12)
    given = (
        dict(
            window_ids=[f"w{i}" for i in n],
            tokens=[5 + i for i in n],
            log_loss=[2 + i / 10 for i in n],
            data_id="sha256:text",
            model=name,
        )
        if kind in LOSSES
        else dict(
            ids=[f"q{i}" for i in n],
            label=list("yn" * 6),
            prediction=list("yny" * 4),
            prompt_digests=[f"sha256:{i}" for i in n],
            model=name,
        )
    )
    edit(given)
    path.write_bytes(
        losses_bytes(WindowLosses(**given), path.suffix)
        if kind in LOSSES
        else predictions_bytes(Predictions(**given))
    )


def write(folder, kind, name, edit):
    "One arm; the file that holds its rows."
    if kind in TASKS:
        return lm_eval(folder / name, kind, name, edit)
    path = (
        folder
        / f"{name}{Path(kind).suffix or kind if kind in TABLES else Path(kind).suffix or ('.jsonl' if kind in ('EEE', 'kept') else '')}"
    )
    if kind in (*INSPECT, *LOGS):
        inspect(path, kind, name, edit)
    elif kind in (*LOSSES, "kept"):
        kept(path, kind, name, edit)
    elif kind in ("logits", *LLAMA):
        shutil.copy(
            DATA
            / "llama_cpp"
            / f"{model(name)}.{dict(zip(('logits', *LLAMA), ('kld', 'default.log', 'type1.log'), strict=True))[kind]}",
            path,
        )
    else:
        edit(rows := rows_of(kind))
        write_rows(path, rows)
    return path


OPTIONS = (
    {kind: ["--task", task] for kind, task in TASKS.items()}
    | dict.fromkeys(INSPECT, ["--score", "choice"])
    | dict.fromkeys(LOGS, ["--score", "perplexity"])
)
OPTIONS |= dict.fromkeys(TABLES, ["--column", "id=doc"])


# --- edits ----------------------------------------------------------------------------------------------------------------------------
def put(*path):
    "Set one value deep inside."
    *path, last, value = path

    def edit(found):
        for key in path:
            found = found[key]
        found[last] = value

    return edit


def drop(*path):
    *path, last = path

    def edit(found):
        for key in path:
            found = found[key]
        found.pop(last)

    return edit


def without_digest(column, value):
    "Parquet of ours in which one value of a column is another, and no digest says so."

    def edit(data):
        table, out = parquet.read_table(io.BytesIO(data)), io.BytesIO()
        values, said = (
            table[column].to_pylist(),
            json.loads(table.schema.metadata[b"invar_nb"]),
        )
        values[3], at, _ = value, table.column_names.index(column), said.pop("digest")
        made = table.set_column(
            at, table.schema.field(column), pyarrow.array(values)
        ).replace_schema_metadata({"invar_nb": json.dumps(said)})
        parquet.write_table(made, out)
        return out.getvalue()

    return edit


def resigned(data):
    "Kept answers whose digest is that of what they now say."
    first, *lines = data.decode().splitlines()
    said = json.loads(first)
    said.pop("digest")
    spell = lambda found: json.dumps(
        found, sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    said["digest"] = "sha256:" + sha256("\n".join([spell(said), *lines]).encode()).hexdigest()
    return "\n".join([spell(said), *lines, ""]).encode()


def fewer_rows(found):
    sealed(drop(-1))(found)
    found["said"]["results"]["acc,none"] = sum(row["acc"] for row in found["rows"]) / 19


def sealed(edit):
    "An edit of rows of lm-eval that its results file agrees with: another run, not a damaged one."

    def both(found):
        edit(found["rows"])
        found["said"]["task_hashes"] = sha256(
            "".join(
                row[f"{part}_hash"]
                for row in found["rows"]
                for part in ("doc", "prompt", "target")
            ).encode()
        ).hexdigest()
        found["said"]["n-samples"]["effective"] = len(found["rows"])

    return both


def each(edit):
    return lambda rows: [edit(row) for row in rows] and None


def of_sample(name, edit):
    return lambda log: (
        [edit(sample) for sample in log["samples"] if sample["id"] == name] and None
    )


def cut(n):
    return lambda data: data[:-n]


def swap(old, new):
    return lambda data: data.replace(old, new, 1)


def header(old, new):
    "In the first line, or in what Parquet says about the table."

    def edit(data):
        if data[:4] != b"PAR1":
            return data.replace(old, new, 1)
        table, out = parquet.read_table(io.BytesIO(data)), io.BytesIO()
        parquet.write_table(
            table.replace_schema_metadata(
                {"invar_nb": table.schema.metadata[b"invar_nb"].replace(old, new)}
            ),
            out,
        )
        return out.getvalue()

    return edit


def other_filter(found):
    for row in found["rows"]:
        row["filter"] = "strict"
    found["said"]["results"] = {
        key.replace(",none", ",strict"): value
        for key, value in found["said"]["results"].items()
    }


def fewer_samples(log):
    log["samples"] = [sample for sample in log["samples"] if sample["id"] != "q03"]
    log["results"] |= dict(total_samples=38, completed_samples=38)
    for entry in log["results"]["scores"]:
        entry["metrics"] = {}


def other_bytes(found):
    found["rows"][3]["word_perplexity"][1] += 1
    pairs = [row["word_perplexity"] for row in found["rows"]]
    found["said"]["results"]["word_perplexity,none"] = math.exp(
        -math.fsum(ll for ll, _ in pairs) / sum(n for _, n in pairs)
    )


def other_tokens(log):
    log["samples"][3]["scores"]["perplexity"]["metadata"]["num_tokens"] += 1
    for entry in log["results"]["scores"]:
        entry["metrics"].get("perplexity_per_token", {})["params"] = {"x": 1}


def fewer_chunks(data):
    n_ctx, n_vocab, n_chunk = struct.unpack_from("<iii", data, 8)
    row = 4 * ((n_vocab + 1) // 2) + 8
    rows = data[20 + 4 * n_ctx * n_chunk :]
    return (
        data[:16]
        + struct.pack("<i", n_chunk - 1)
        + data[20 : 20 + 4 * n_ctx * (n_chunk - 1)]
        + rows[: -(n_ctx - 1 - n_ctx // 2) * row]
    )


def fewer_lines(data):
    text = data.decode().replace("over 20 chunks", "over 19 chunks").replace("Final", "")
    return re.sub(r"\[20\][\d.]+,|\n +\d+  14\.5278.*", "", text).encode()


def at(offset, data):
    return lambda old: old[:offset] + data + old[offset + len(data) :]


CASES = [
    # reason, formats, edit of what the file holds or of its bytes, words of the line
    (
        "version",
        "lm-eval",
        put("said", "versions", 2.0),
        "invar_choices: task_version",
        "1.0 and 2.0",
    ),
    ("version", INSPECT, put("eval", "task_version", 2), "choices: task_version", "1 and 2"),
    (
        "version",
        INSPECT,
        put("version", 1),
        "format 2; got format 1. It is older: inspect log convert",
    ),
    (
        "version",
        INSPECT,
        put("version", 3),
        "format 2; got format 3. It is newer:",
        "table with id and score",
    ),
    (
        "version",
        INSPECT,
        put("eval", "dataset", "name", "other"),
        "dataset must match",
        "'picked' and 'other'",
    ),
    (
        "version",
        "lm-eval losses",
        put("said", "max_length", 128),
        "max-length must match",
        "256 and 128",
    ),
    (
        "version",
        "EEE",
        put(3, "schema_version", "0.4.0"),
        "line 4",
        "'0.4.0' at schema_version",
        "0.2 or 0.3",
    ),
    (
        "version",
        "EEE",
        each(put("evaluation_name", "GSM8K-2")),
        "no task 'GSM8K-2' in ",
    ),
    ("version", LOSSES, b"", header(b"losses/2", b"losses/1"), "losses/2", "losses/1"),
    (
        "version",
        "kept",
        b"",
        header(b"predictions/2", b"predictions/1"),
        "predictions/2",
        "predictions/1",
    ),
    (
        "prompt",
        ("lm-eval", "lm-eval losses"),
        sealed(put(7, "prompt_hash", "f" * 64)),
        "prompt ffffffffffff",
    ),
    ("prompt", "lm-eval", sealed(put(7, "target_hash", "f" * 64)), "target ffffffffffff"),
    ("prompt", "lm-eval", sealed(put(7, "doc_hash", "f" * 64)), "7:ffffffffffff"),
    (
        "prompt",
        "lm-eval",
        sealed(put(7, "arguments", "gen_args_0", "arg_1", " else")),
        "prompt_digests must match",
    ),
    *[
        ("prompt", INSPECT, of_sample("q03", put(*change)), "q03")
        for change in (
            ("input", "Else?"),
            ("target", "Z"),
            ("input", [{"role": "user", "content": "?"}]),
        )
    ],
    ("prompt", INSPECT, put("plan", "steps", 0, "params", "cot", True), "data_id must match"),
    ("prompt", "EEE", put(3, "sample_hash", "f" * 64), "q3"),
    ("prompt", ANSWERS, put(3, "prompt", "What is 4?"), "q3"),
    ("prompt", "kept", put("prompt_digests", 3, "sha256:4"), "q3"),
    ("prompt", LOSSES, put("data_id", "sha256:other"), "sha256:text", "sha256:other"),
    ("filters", "lm-eval", other_filter, "filter must match", "'none' and 'strict'"),
    (
        "filters",
        "lm-eval",
        put("rows", 3, "filter", "strict"),
        "20 rows of filter 'none'",
        "got 19",
    ),
    ("filters", INSPECT, lambda log: None, [], "one scorer", "letters", "--score choice"),
    (
        "filters",
        TABLES,
        each(put("f1", 0.5)),
        "loss or the score",
        "'nll'",
        "'f1'",
        "--column loss=NAME",
    ),
    ("filters", ANSWERS, put(3, "model", "n"), "model", "'m' and 'n'"),
    ("filters", "EEE", put(3, "model_id", "n"), "model_id", "'m', 'n'"),
    ("counts", "lm-eval", fewer_rows, "20 and 19 items", "candidate lacks 1 of 20: '19:"),
    ("counts", INSPECT, fewer_samples, "20 and 19 items", "q03"),
    ("counts", "logits", b"", fewer_chunks, "20 and 19"),
    ("counts", LLAMA, b"", fewer_lines, "n_chunk", "20 and 19"),
    ("counts", (*TABLES, *ANSWERS, "EEE"), drop(-1), "12 and 11 items"),
    (
        "counts",
        (*LOSSES, "kept"),
        lambda given: (
            [values.pop() for values in given.values() if isinstance(values, list)] and None
        ),
        "12 and 11 items",
    ),
    *[
        (
            "hash",
            "lm-eval",
            drop("rows", 3, f"{part}_hash"),
            "line 4",
            f"missing required field {part}_hash",
        )
        for part in ("doc", "prompt", "target")
    ],
    ("hash", "lm-eval", drop("said", "task_hashes"), "task_hashes"),
    (
        "hash",
        "EEE",
        put(3, "sample_hash", None),
        "candidate: b.jsonl, line 4",
        "sample_hash",
        "with hashes",
    ),
    (
        "hash",
        "EEE",
        drop(3, "sample_hash"),
        "candidate: b.jsonl, line 4",
        "sample_hash",
        "with hashes",
    ),
    ("hash", "kept", b"", lambda data: re.sub(rb'"digest":"[^"]*",', b"", data), "digest"),
    (
        "truncated",
        ("lm-eval", "lm-eval losses"),
        b"",
        cut(40),
        "line 20",
        "must be a JSON object",
        "Copy the file again",
    ),
    ("truncated", (*INSPECT, *LOGS), b"", cut(40), "a part of"),
    ("truncated", "logits", b"", cut(40), "31860 bytes", "got 31820"),
    ("truncated", "log", b"", cut(150), "20 chunks"),
    ("truncated", "type 1 log", b"", cut(150), "20 chunks"),
    ("truncated", (*TABLES, *ANSWERS), b"", cut(5), "cut off"),
    ("truncated", "EEE", b"", cut(40), "line 12", "truncated"),
    ("truncated", (*LOSSES, "kept"), b"", cut(40), "cut off"),
    ("header", "lm-eval", put("said", "n-samples", "effective", 25), "25 rows", "got 20"),
    ("header", INSPECT, put("results", "total_samples", 41), "41 samples", "got 40"),
    ("header", "logits", b"", at(16, b"\x13"), "size", "31860"),
    ("header", "logits", b"", at(12, b"\x13"), "size", "31860"),
    ("header", "logits", b"", at(8, b"\x02"), "n_ctx 2"),
    ("header", LLAMA, b"", swap(b"20 chunks", b"21 chunks"), "21 chunks", "got 20"),
    ("header", LOSSES, b"", header(b'"windows":12', b'"windows":13'), "13 windows", "got 12"),
    (
        "header",
        "kept",
        b"",
        header(b'"examples":12', b'"examples":13'),
        "13 examples",
        "got 12",
    ),
    *[
        ("status", INSPECT, put("status", status), "success", f"'{status}'", "eval-retry")
        for status in ("error", "cancelled", "started")
    ],
    ("status", INSPECT, put("invalidated", True), "invalidated"),
    (
        "error",
        INSPECT,
        put("samples", 3, "error", {"message": "timeout"}),
        "sample 'q0",
        "timeout",
        "eval-retry",
    ),
    (
        "error",
        INSPECT,
        put("samples", 3, "invalidation", {"reason": "leaked"}),
        "sample 'q0",
        "leaked",
    ),
    (
        "error",
        INSPECT,
        put("samples", 3, "scores", "choice", "value", float("nan")),
        "sample 'q0",
        "nan",
    ),
    ("error", "lm-eval", put("rows", 3, "acc", float("nan")), "line 4", "nan"),
    (
        "error",
        "lm-eval losses",
        put("rows", 3, "word_perplexity", 0, float("nan")),
        "line 4",
        "nan",
    ),
    (
        "error",
        "EEE",
        put(3, "error", "timeout"),
        "candidate: b.jsonl, line 4",
        "at error",
        "without failed samples",
    ),
    ("error", TABLES, put(3, "nll", None), "nll"),
    ("error", ANSWERS, put(3, "prediction", None), "prediction"),
    (
        "error",
        "logits",
        b"",
        at(20 + 4 * 160, struct.pack("<f", math.nan)),
        "nan",
        "row 0 of chunk 0",
    ),
    (
        "error",
        LLAMA,
        b"",
        lambda data: re.sub(
            rb"(?<=\[5\])[\d.]+|(?<=  )8\.9592  +\S+",
            lambda m: re.sub(rb"[\d.]+", b"nan", m[0]),
            data,
        ),
        "chunk 5",
    ),
    (
        "error",
        "losses.jsonl",
        b"",
        lambda data: re.sub(
            rb'"digest":"[^"]*",|2\.3(?=,)', lambda m: b"null" if m[0] == b"2.3" else b"", data
        ),
        "log_loss",
        "None",
    ),
    ("error", "losses.parquet", b"", without_digest("log_loss", math.nan), "log_loss", "nan"),
    (
        "error",
        "kept",
        b"",
        lambda data: resigned(data.replace(b'"prediction":"n"', b'"prediction":null', 1)),
        "prediction",
        "None",
    ),
    (
        "tokens",
        "logits",
        b"",
        at(20 + 4 * 11, b"\x01"),
        "tokens must match",
        "token 3 of chunk 1",
    ),
    ("tokens", "logits", b"", at(20 + 4 * 11, struct.pack("<i", 10**6)), "below n_vocab"),
    ("tokens", LLAMA, b"", swap(b"n_ctx=8", b"n_ctx=9"), "n_ctx"),
    ("tokens", TABLES, put(3, "tokens", 7), "tokens must match", "18 and 7", "'d3'"),
    ("tokens", LOSSES, put("tokens", 3, 7), "tokens must match", "8 and 7", "'w3'"),
    ("tokens", "lm-eval losses", other_bytes, "tokens must match"),
    ("tokens", LOGS, other_tokens, "tokens must match"),
]


def spread(cases):
    for reason, kinds, edit, *words in cases:
        raw = words.pop(0) if edit == b"" else None
        options = words.pop(0) if isinstance(words[0], list) else None
        for kind in (kinds,) if isinstance(kinds, str) else kinds:
            yield pytest.param(
                kind,
                (lambda found: None) if raw else edit,
                raw,
                options,
                words,
                id=f"{reason}-{kind}",
            )


def refused(capsys, monkeypatch, folder, arguments, code=3):
    "The line, after checking that it is one, names a cure, and that no file was written."
    monkeypatch.chdir(folder)
    listing = lambda: {
        path.relative_to(folder): path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }
    before = listing()
    found = main(["compare", *arguments, "--quiet", "--out", "r"])
    said = capsys.readouterr()
    assert found == code and not said.out and listing() == before, said.err
    assert re.fullmatch(
        r"invar-nb: \S[^\n]*; got [^\n]*\S\. \S[^\n]*\w[.?]\n", said.err
    ) and not re.search(r"(?<!--column )\b\w+=['\"A-Z]", said.err), said.err
    return said.err


@pytest.mark.parametrize("kind, edit, raw, options, words", list(spread(CASES)))
def test_refused(tmp_path, capsys, monkeypatch, kind, edit, raw, options, words):
    first, second = (
        write(tmp_path, kind, name, how)
        for name, how in (("a", lambda found: None), ("b", edit))
    )
    if raw:
        changed = raw(second.read_bytes())
        assert changed != second.read_bytes()
        second.write_bytes(changed)
    names = "ab" if kind in TASKS else (first.name, second.name)
    line = refused(
        capsys,
        monkeypatch,
        tmp_path,
        [*names, *(OPTIONS.get(kind, ()) if options is None else options)],
    )
    assert all(word in line for word in words), line


def family(kind):
    return (
        "table" if kind in TABLES else "log" if kind in LLAMA else re.split(r"[ .]", kind)[0]
    )


def test_the_table_above_is_what_is_tested():
    columns, *rows, _ = [
        line.split() for line in __doc__.splitlines() if line.startswith("    ")
    ]
    marked = {
        (reason, column)
        for reason, *marks in rows
        for column, mark in zip(columns, marks[: len(columns)], strict=True)
        if mark == "x"
    }
    tested = {
        (case[0], family(kind))
        for case in CASES
        for kind in ([case[1]] if isinstance(case[1], str) else case[1])
    }
    assert marked == tested


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_good_before_they_are_edited(tmp_path, kind):
    first, second = (write(tmp_path, kind, name, lambda found: None) for name in "ab")
    given, words = {}, iter(OPTIONS.get(kind, ()))
    for word in words:
        if word == "--task":
            given["tasks"] = (next(words),)
        elif word == "--score":
            given["score"] = next(words)
        else:
            name, _, value = (
                next(words) if word == "--column" else word.removeprefix("columns.")
            ).partition("=")
            given[name] = value
    arms = read_together({"baseline": first, "candidate": second}, Reading(**given))
    assert len({task for _, task in arms}) == 1 and pair(*arms.values())


def test_what_is_no_known_thing_is_refused_and_led_to_the_list(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("nothing")
    (tmp_path / "odd").write_bytes(b"\x00\x01\x02")
    for names, code in ((("notes", "notes"), 2), (("odd", "odd"), 3)):
        line = refused(capsys, monkeypatch, tmp_path, names, code=code)
        assert repr(names[0]) in line and "invar-nb help files" in line
