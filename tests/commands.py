"""Command lines of tests. A word such as `rules.looks=3` is a key of a study file, which is written beside the run."""

import contextlib
import io
import json
import re
import tempfile
import tomllib
from hashlib import sha256
from pathlib import Path

from invar_nb.shell import cli

KEY = re.compile(r"(arms|texts|scoring|columns|rules)\.(\w+)=(.*)", re.S)
FOLDER = tempfile.TemporaryDirectory()


def as_value(text):
    "A value as TOML has it; else the text itself."
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def as_toml(value):
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(str(k))} = {as_toml(v)}" for k, v in value.items())
            + "}"
        )
    return (
        "[" + ", ".join(map(as_toml, value)) + "]"
        if isinstance(value, list)
        else json.dumps(value)
    )


def with_study(words):
    "The words, with their keys in a study file; a key that is given twice is a list."
    words, study = [*map(str, words)], {}
    if keys := [
        word for i, word in enumerate(words) if KEY.fullmatch(word) and words[i - 1] != "--set"
    ]:
        words = [word for word in words if word not in keys]
        if "--study" in words:
            place = words.index("--study")
            study = tomllib.loads(Path(words[place + 1]).read_text())
            del words[place : place + 2]
    for section, key, text in (KEY.fullmatch(word).groups() for word in keys):
        table, value = study.setdefault(section, {}), as_value(text)
        table[key] = (
            [*(table[key] if isinstance(table[key], list) else [table[key]]), value]
            if key in table
            else value
        )
    if not study:
        return words
    toml = "".join(
        f"[{section}]\n"
        + "".join(f"{key} = {as_toml(value)}\n" for key, value in table.items())
        for section, table in study.items()
    )
    file = Path(FOLDER.name) / f"{sha256(toml.encode()).hexdigest()[:12]}.toml"
    file.parent.mkdir(exist_ok=True)  # a forked child that ends removes it
    file.write_text(toml)
    return [*words, "--study", str(file)]


def main(arguments):
    "The exit code of a command line."
    return cli.main(with_study(arguments))


def shell(*words):
    "(code, stdout, stderr) of a command in this process."
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = cli.main([*map(str, words)])
    return code, out.getvalue(), err.getvalue()
