"""Damaged inputs of every reader, by a seed: values of another type, keys that are missing or twice, bytes cut off, flipped or repeated.

A case ends well in two ways: the reader takes it, or it raises ContractError or UsageError. Everything else is a defect of ours."""

import copy
import io
import json
import random
import shutil
import struct
import zipfile
from pathlib import Path

import pyarrow
from pyarrow import parquet

ODD = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    10**400,
    -0.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    "",
    "x",
    "0",
    "1",
    "nan",
    "NaN",
    "inf",
    "a" * 5000,
    "\x00",
    "\ud800",
    "é",
    "=1+1",
    "../../x",
    "-9999",
    "1e999",
    "9" * 5000,
    [],
    {},
    [[]],
    [{}],
    {"": {}},
    {"a": {"b": [1, "x", None]}},
    [1, 2, 3],
    ["a", "b"],
    [0.5, 0.5],
    {"x": 1, "y": 0},
]
TEXTS = [
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "[" * 3000,
    '{"a":' * 3000,
    '""',
    "null",
    ",",
    ":",
    "}",
    "]",
    "\\u0000",
    "\\ud800",
    "\x00",
    "\r",
    "\ufeff",
    "\u2028",
    "-",
    "+",
    "0x10",
    "1_000",
    "'",
    '"',
]


def places(value, path=()):
    "Every path into a tree of lists and mappings."
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def change_tree(rng, value):
    "A copy of a JSON value with one change: a part replaced, removed, doubled or moved."
    value = copy.deepcopy(value)
    path = rng.choice(list(places(value)))
    if not path:
        return rng.choice(ODD)
    *above, last = path
    parent = value
    for key in above:
        parent = parent[key]
    kind = rng.randrange(6)
    if kind < 3:
        parent[last] = rng.choice(ODD)
    elif kind == 3:
        parent.pop(last)
    elif kind == 4:
        parent[last] = [parent[last]] if rng.random() < 0.5 else {"x": parent[last]}
    elif isinstance(parent, list):
        parent.insert(last, copy.deepcopy(parent[last]))
    else:
        parent[rng.choice(["x", "", "id", "label", "loss", "tokens", str(last).upper()])] = (
            parent[last]
        )
    return value


def change_bytes(rng, data):
    "The bytes with one change: cut off, flipped, repeated or replaced."
    at, n = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 64, 1000])
    return rng.choice(
        [
            lambda: data[:at],
            lambda: data[at:],
            lambda: data[:at] + data[at + n :],
            lambda: data[:at] + rng.randbytes(n) + data[at + n :],
            lambda: data[:at] + data[max(0, at - n) :],
            lambda: (
                data[:at]
                + rng.choice(TEXTS).encode("utf-8", "surrogatepass")
                + data[at + rng.choice([0, n]) :]
            ),
            lambda: (
                data[:at]
                + bytes([data[at - 1] ^ 1 << rng.randrange(8)] if data else [])
                + data[at + 1 :]
            ),
            lambda: (
                data[:at]
                + struct.pack("<q", rng.choice([-1, 0, 2**31, 2**62]))
                + data[at + 8 :]
            ),
            lambda: data.replace(b"1", rng.choice(TEXTS).encode("utf-8", "surrogatepass"), 1),
        ]
    )()


def spell(value):
    "A value as JSON; half characters, which UTF-8 cannot hold, are escaped."
    text = json.dumps(value)
    return text if "\\ud8" in text else json.dumps(value, ensure_ascii=False)


def change_lines(rng, data):
    "A file of JSON Lines with one changed line."
    lines = data.decode().split("\n")
    i = rng.randrange(len(lines))
    try:
        lines[i] = spell(change_tree(rng, json.loads(lines[i])))
    except ValueError:
        lines[i] = rng.choice(TEXTS)
    if rng.random() < 0.05:
        lines.insert(i, lines[i])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def change_json(rng, data):
    "A file of JSON with one changed part."
    return spell(change_tree(rng, json.loads(data))).encode("utf-8", "surrogatepass")


def change_cells(rng, data):
    "A CSV file with one changed cell."
    lines = [line.split(",") for line in data.decode().split("\n")]
    row = rng.choice(lines)
    row[rng.randrange(len(row))] = str(rng.choice(ODD))
    return "\n".join(map(",".join, lines)).encode("utf-8", "surrogatepass")


def change_parquet(rng, data):
    "A Parquet file with one column of another type or with gaps, or with changed metadata."
    table, out = parquet.read_table(io.BytesIO(data)), io.BytesIO()
    facts, name = dict(table.schema.metadata or {}), rng.choice(table.column_names)
    at = table.column_names.index(name)
    if facts and rng.random() < 0.5:
        key = rng.choice([*facts])
        facts[key] = (
            change_json(rng, facts[key])
            if rng.random() < 0.7
            else change_bytes(rng, facts[key])
        )
        table = table.replace_schema_metadata(facts)
    else:
        kinds = [
            pyarrow.string(),
            pyarrow.binary(),
            pyarrow.float32(),
            pyarrow.int8(),
            pyarrow.bool_(),
            pyarrow.list_(pyarrow.int64()),
            pyarrow.timestamp("s"),
            pyarrow.decimal128(9, 2),
            pyarrow.null(),
            pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        ]
        values = {
            "string": "x",
            "binary": b"\xff\xfe",
            "float": float("nan"),
            "int8": -1,
            "bool": True,
        }
        kind = rng.choice(kinds)
        column = (
            pyarrow.array(
                [
                    rng.choice([None, values.get(str(kind), 0 if kind != kinds[5] else [1])])
                    if kind not in kinds[-2:]
                    else None
                    for _ in range(len(table))
                ],
                type=kind,
            )
            if kind not in (kinds[6], kinds[7])
            else pyarrow.nulls(len(table), kind)
        )
        table = table.set_column(at, rng.choice([name, name, "id", ""]), column)
    parquet.write_table(table, out)
    return out.getvalue()


def change_zip(rng, data):
    "An archive with one member changed or left out."
    out, members = io.BytesIO(), zipfile.ZipFile(io.BytesIO(data))
    names, hit = members.namelist(), rng.choice(members.namelist())
    with zipfile.ZipFile(
        out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as archive:
        for name in names:
            content, kind = members.read(name), rng.randrange(5)
            if name == hit and kind == 0:
                continue
            if name == hit:
                content = change_json(rng, content) if kind < 4 else change_bytes(rng, content)
            archive.writestr(name, content)
    return out.getvalue()


def change_header(rng, data):
    "A file of safetensors with a changed JSON header; mostly its length is adapted."
    n = int.from_bytes(data[:8], "little")
    head = change_json(rng, data[8 : 8 + n])
    return (
        (struct.pack("<Q", len(head)) + head + data[8 + n :])
        if rng.random() < 0.9
        else data[:8] + head + data[8 + n :]
    )


def damaged(seed, data, change):
    "Damaged bytes; one seed always gives the same ones."
    rng = random.Random(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            data = (change_bytes if change is None or rng.random() < 0.3 else change)(
                rng, data
            )
        except (
            ValueError,
            RecursionError,
            KeyError,
            TypeError,
            OverflowError,
            NotImplementedError,
            OSError,
            pyarrow.ArrowException,
            zipfile.BadZipFile,
        ):
            data = change_bytes(rng, data)
    return data


def write_case(source: Path, target: Path, seed, change, file: str = "") -> Path:
    "Write a damaged copy of a file, or a copy of a folder with one damaged file."
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        at = target / file
    else:
        at = target
    at.write_bytes(
        damaged(seed, (source / file if source.is_dir() else source).read_bytes(), change)
    )
    return target
