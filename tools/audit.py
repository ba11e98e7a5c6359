"""Look at the packages of the environment that runs this, without a network: files against the hashes of their RECORD, files that no package lists,
versions against settings.ini, what `pip check` says, licences. Each finding is a line; the exit code is 1 where there is one."""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from configparser import ConfigParser
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

root = Path(__file__).resolve().parent.parent
# What software under Apache-2.0 may depend on: permissive licences, and the MPL, whose terms end at its own files.
FITTING = re.compile(
    r"\b(?:MIT|0?BSD|Apache|ISC|CNRI|Python|PSF|Zlib|CC0|BSL-1|NCSA|HPND|Unlicense|MPL|Mozilla Public)",
    re.I,
)
_FONT = "a font under the OFL, whose package says no licence; it is for the site only"
ARGUED = {
    "docutils": "its Emacs mode alone is under the GPL, and it builds the site only",
    "fontpkg-jetbrains-mono": _FONT,
    "fontpkg-source-sans-3": _FONT,
}


def recorded(package):
    """(path, hash) of each file that a package's RECORD lists.

    Read here because, from Python 3.13, `files` of a package leaves out those that are gone.
    """
    return [
        (package.locate_file(path), seal)
        for path, seal, _ in csv.reader((package.read_text("RECORD") or "").splitlines())
    ]


def changed_files(packages):
    """Compare installed files with the hashes of their RECORD.

    Returns a line for each file that is gone or differs, and how many are as recorded.
    """
    lines = []
    n_unchanged = 0
    for package in packages:
        for path, seal in recorded(package):
            kind, _, right = seal.partition("=")
            if not right:
                continue  # RECORD itself, and what Python compiles
            named = f"{package.name}: {os.path.relpath(path, package.locate_file(''))}"
            try:
                with open(path, "rb") as f:
                    digest = hashlib.file_digest(f, kind).digest()
            except FileNotFoundError:
                lines.append(f"{named} is gone")
            else:
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") == right:
                    n_unchanged += 1
                else:
                    lines.append(f"{named} is not what was installed")
    return lines, n_unchanged


def unlisted_files(packages, folder):
    """A line for each file in the packages' folder that no package lists.

    Such a file may have been put there by somebody; a `.pth` among them runs with every
    Python.
    """
    listed = {os.path.normpath(path) for package in packages for path, _ in recorded(package)}
    there = (
        os.path.join(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if not at.endswith("__pycache__")
    )
    return [
        f"no package lists {os.path.relpath(path, folder)}"
        for path in sorted(there)
        if path not in listed
    ]


def outside_bounds(packages, settings):
    "A line for each installed package whose version settings.ini does not allow."
    ini = ConfigParser(delimiters=["="])
    ini.read(settings, encoding="utf-8")
    versions = {canonicalize_name(package.name): package.version for package in packages}
    wanted = {
        Requirement(text)
        for key, value in ini["DEFAULT"].items()
        if key.endswith("requirements")
        for text in value.split()
    }
    return [
        f"{r.name} {versions[name]} is outside {r.specifier}"
        for r in sorted(wanted, key=str)
        if (name := canonicalize_name(r.name)) in versions
        and not r.specifier.contains(versions[name], prereleases=True)
    ]


def licence_of(package):
    "The licence that a package states: SPDX expression, else classifiers, else the old field."
    about = package.metadata
    old = [
        c.split(" :: ")[-1]
        for c in about.get_all("Classifier") or ()
        if c.startswith("License ::") and not c.endswith("OSI Approved")
    ]
    return (
        about["License-Expression"]
        or " AND ".join(old)
        or ((about["License"] or "").strip().split("\n")[0])
        or "no licence given"
    )


def fits(licence):
    """Whether a licence expression allows use in software under Apache-2.0.

    Of parts joined by AND all must fit, of a choice by OR one. In an expression with
    parentheses, which is not parsed, all parts must fit.
    """
    choices = [licence] if "(" in licence else licence.split(" OR ")
    return any(
        all(
            FITTING.search(part) and not re.search(r"(?<![A-Z])[AL]?GPL", part)
            for part in re.split(" AND | OR ", choice)
        )
        for choice in choices
    )


def main():
    "Print all findings; 1 where there are any, else 0."
    packages = [*distributions()]
    folder = sysconfig.get_path("purelib")
    inside = [package for package in packages if Path(package.locate_file("")) == Path(folder)]
    licences = {package.name: licence_of(package) for package in packages}
    changed, n_unchanged = changed_files(packages)
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True
    )
    lines = [
        *changed,
        *unlisted_files(inside, folder),
        *outside_bounds(packages, root / "settings.ini"),
        *(pip.stdout.splitlines() if pip.returncode else ()),
        *(
            f"{name}: look at its licence ({licence})"
            for name, licence in licences.items()
            if not fits(licence) and name not in ARGUED
        ),
    ]
    print(
        f"audit: {len(packages)} packages, {n_unchanged:,} files as recorded; licences: "
        + ", ".join(
            f"{licence} {n}" for licence, n in Counter(licences.values()).most_common()
        )
    )
    for name in ARGUED.keys() & licences.keys():
        print(f"audit: {name}: {licences[name]}; {ARGUED[name]}")
    for line in lines:
        print(f"audit: {line}")
    print(f"audit: {len(lines) or 'no'} findings")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
