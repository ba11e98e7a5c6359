"""What a report says does not depend on locale, time zone, file mask, hash seed or the names of folders."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = dict(LC_ALL="C.UTF-8", TZ="UTC", PYTHONHASHSEED="0")
BARE = dict(PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", TZ="Asia/Kathmandu", PYTHONHASHSEED="7")
CODE = "import sys; from invar_nb.shell.cli import main; a, b, out = sys.argv[1:]; print(main(['compare', a, b, '--out', out]), main(['verify', out]))"


def table(step):
    "Answers with letters that neither ASCII nor one byte a letter can write."
    rows = [f"ı{i},{i % step != 0:d},{'Türkçe' if i % 2 else '文'}" for i in range(60)]
    return "\n".join(["id,correct,dil", *rows, ""])


def report_of(folder, surroundings, mask):
    "Names and bytes of a report that was written and verified in a process of these surroundings, without its time, host and names of runs."
    folder.mkdir()
    for name, step in (("old", 9), ("new", 2)):
        (folder / f"{name}.csv").write_text(table(step), encoding="utf-8")
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            CODE,
            *(os.fsencode(folder / name) for name in ("old.csv", "new.csv", "out")),
        ],
        capture_output=True,
        umask=mask,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | surroundings,
    )
    assert run.stdout.decode("ascii", "replace").split()[-2:] == ["1", "0"], run.stderr
    files = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    document = json.loads(files.pop("report.json"))
    del document["environment"]
    return document, files, (folder / "out" / "report.json").stat().st_mode & 0o777


@pytest.mark.parametrize("locale", ["C", "tr_TR"])
def test_surroundings_change_nothing(tmp_path, locale):
    if locale != "C":
        if not shutil.which("localedef"):
            pytest.skip("no localedef makes a locale of one byte a letter here")
        made = subprocess.run(
            ["localedef", "-i", locale, "-f", "ISO-8859-9", tmp_path / locale],
            capture_output=True,
        )
        if made.returncode:
            pytest.skip(f"localedef: {made.stderr.decode()}")
    document, files, mode = report_of(tmp_path / "plain", PLAIN, 0o022)
    other, others, private = report_of(
        tmp_path / os.fsdecode(b"g\xfcnl\xfck"),
        BARE | dict(LC_ALL=locale, LOCPATH=str(tmp_path)),
        0o077,
    )
    assert other == document and others == files and (mode, private) == (0o644, 0o600)
