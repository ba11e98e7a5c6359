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
ARGUED = {"docutils": "its Emacs mode alone is under the GPL, and it builds the site only"}


def recorded(package):
    "(path, hash) of each line of RECORD; from Python 3.13 the `files` of a package leave out those that are gone."
    return [
        (package.locate_file(path), seal)
        for path, seal, _ in csv.reader((package.read_text("RECORD") or "").splitlines())
    ]


def changed_files(found):
    "Files that are gone or not what their package's RECORD says, and how many are as recorded."
    lines, same = [], 0
    for package in found:
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
                    same += 1
                else:
                    lines.append(f"{named} is not what was installed")
    return lines, same


def unlisted_files(found, folder):
    "Files beside the packages that no package lists: what a `.pth` or a module there says runs with every Python."
    listed = {os.path.normpath(path) for package in found for path, _ in recorded(package)}
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


def outside_bounds(found, settings):
    "Packages whose version settings.ini does not admit."
    ini = ConfigParser(delimiters=["="])
    ini.read(settings, encoding="utf-8")
    versions = {canonicalize_name(package.name): package.version for package in found}
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
    "An SPDX expression, else the classifiers, else the first line of the old field."
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
    "Whether it goes with Apache-2.0: all that holds together, and of a choice one; within parentheses a choice counts as all of its parts."
    choices = [licence] if "(" in licence else licence.split(" OR ")
    return any(
        all(
            FITTING.search(part) and not re.search(r"(?<![A-Z])[AL]?GPL", part)
            for part in re.split(" AND | OR ", choice)
        )
        for choice in choices
    )


def main():
    found, folder = [*distributions()], sysconfig.get_path("purelib")
    inside = [package for package in found if Path(package.locate_file("")) == Path(folder)]
    licences = {package.name: licence_of(package) for package in found}
    changed, same = changed_files(found)
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True
    )
    lines = [
        *changed,
        *unlisted_files(inside, folder),
        *outside_bounds(found, root / "settings.ini"),
        *(pip.stdout.splitlines() if pip.returncode else ()),
        *(
            f"{name}: look at its licence ({licence})"
            for name, licence in licences.items()
            if not fits(licence) and name not in ARGUED
        ),
    ]
    print(
        f"audit: {len(found)} packages, {same:,} files as recorded; licences: "
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
