"The audit of installed packages: a changed, missing or unlisted file, a version out of bounds and a licence to look at are found."

import base64
import hashlib
from importlib.metadata import distributions

import audit
import pytest


def install(folder, name="tiny", version="1.0", about="License-Expression: MIT"):
    "A package of two files, as pip leaves it."
    files = {
        f"{name}/__init__.py": b"x = 1\n",
        f"{name}/data.txt": b"text\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{about}\n".encode(),
    }
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    digest = lambda data: (
        base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    )
    record = f"{name}-{version}.dist-info/RECORD"
    (folder / record).write_text(
        "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items())
        + f"{record},,\n"
    )
    return [*distributions(path=[str(folder)])]


def test_files_are_held_against_their_record(tmp_path):
    found = install(tmp_path)
    assert (
        audit.changed_files(found) == ([], 3) and audit.unlisted_files(found, tmp_path) == []
    )
    (tmp_path / "tiny/__init__.py").write_bytes(b"x = 2\n")
    (tmp_path / "tiny/data.txt").unlink()
    (tmp_path / "start.pth").write_text("import os\n")
    lines, same = audit.changed_files(found)
    assert same == 1 and lines == [
        "tiny: tiny/__init__.py is not what was installed",
        "tiny: tiny/data.txt is gone",
    ]
    assert audit.unlisted_files(found, tmp_path) == ["no package lists start.pth"]


def test_versions_are_held_against_the_bounds(tmp_path):
    settings = tmp_path / "settings.ini"
    settings.write_text(
        "[DEFAULT]\nrequirements = Tiny>=1,<2 absent>=5\ndev_requirements = tiny!=1.5\n"
    )
    assert audit.outside_bounds(install(tmp_path / "a"), settings) == []
    assert audit.outside_bounds(install(tmp_path / "b", version="2.1"), settings) == [
        "Tiny 2.1 is outside <2,>=1"
    ]
    assert audit.outside_bounds(install(tmp_path / "c", version="1.5"), settings) == [
        "tiny 1.5 is outside !=1.5"
    ]


@pytest.mark.parametrize(
    "about, licence, good",
    [
        (
            "License-Expression: Apache-2.0 AND (MIT OR BSD-3-Clause)",
            "Apache-2.0 AND (MIT OR BSD-3-Clause)",
            True,
        ),
        ("License-Expression: GPL-3.0-only OR MIT", "GPL-3.0-only OR MIT", True),
        ("License-Expression: MIT AND GPL-2.0-or-later", "MIT AND GPL-2.0-or-later", False),
        ("License: Limited use", "Limited use", False),
        ("Author: x", "no licence given", False),
        (
            "License-Expression: (MIT OR ISC) AND GPL-3.0-only",
            "(MIT OR ISC) AND GPL-3.0-only",
            False,
        ),
        (
            "Classifier: License :: OSI Approved\nClassifier: License :: OSI Approved :: BSD License",
            "BSD License",
            True,
        ),
        ("License-Expression: AGPL-3.0-only", "AGPL-3.0-only", False),
    ],
)
def test_licences_that_need_a_look(about, licence, good, tmp_path):
    [package] = install(tmp_path, about=about)
    assert audit.licence_of(package) == licence and audit.fits(licence) is good


def test_what_is_installed_here_keeps_the_bounds_and_has_licences_that_fit():
    found = [*distributions()]
    assert audit.outside_bounds(found, audit.root / "settings.ini") == []
    assert [
        p.name
        for p in found
        if not audit.fits(audit.licence_of(p)) and p.name not in audit.ARGUED
    ] == []
