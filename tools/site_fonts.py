"""The fonts of the site as WOFF2, with the letters it needs, from packages that bring them.

Their licence (OFL) reserves the names of the originals for unchanged files, so that these have
names of their own."""

import importlib.util
import shutil
from pathlib import Path
from typing import NamedTuple


class Font(NamedTuple):
    "A font file of a package, and what it is for."

    package: str
    file: str
    family: str  # on the site
    style: str = "normal"
    weights: str = "200 900"


FONTS = (
    Font("fontpkg_source_sans_3", "SourceSans3[wght].ttf", "Site Sans"),
    Font("fontpkg_source_sans_3", "SourceSans3-Italic[wght].ttf", "Site Sans", "italic"),
    Font("fontpkg_jetbrains_mono", "JetBrainsMono[wght].ttf", "Site Mono", weights="100 800"),
)
LETTERS = [
    *range(0x20, 0x180),  # Latin
    *range(0x370, 0x400),  # Greek
    *range(0x2010, 0x2070),  # dashes, quotation marks, spaces
    *range(0x2070, 0x20A0),  # raised and lowered digits
    *range(0x2190, 0x2200),  # arrows
    *range(0x2200, 0x2300),  # operators
    *range(0x2500, 0x2600),  # frames and blocks
    *(0x2713, 0x2717, 0x20AC, 0x2122),
]
FACE = """@font-face {{
  font-family: '{family}'; font-style: {style}; font-weight: {weights}; font-display: swap;
  src: url('{name}') format('woff2');
}}
"""
FAMILY_NAMES = (1, 3, 4, 6, 16)  # records of the `name` table


def found(font):
    "The file of a font in its installed package."
    package = importlib.util.find_spec(font.package)
    if package is None:
        raise ModuleNotFoundError(f"{font.package} is missing: install the extra `docs`")
    return Path(package.submodule_search_locations[0]) / "files" / font.file


def reduced(path, family, into):
    "Write the letters of the site from a font file, under the name of a family."
    from fontTools import subset

    options = subset.Options(flavor="woff2", layout_features=["kern", "liga", "mark", "tnum"])
    font = subset.load_font(str(path), options)
    chosen = subset.Subsetter(options)
    chosen.populate(unicodes=LETTERS)
    chosen.subset(font)
    for record in font["name"].names:
        if record.nameID in FAMILY_NAMES:
            record.string = family
    subset.save_font(font, str(into), options)


def write_fonts(into):
    "Write the fonts, their licences and `fonts.css` into a folder."
    into.mkdir(parents=True)
    faces = []
    for number, font in enumerate(FONTS):
        path = found(font)
        name = f"{font.family.replace(' ', '-').lower()}-{number}.woff2"
        reduced(path, font.family, into / name)
        shutil.copy(path.parents[1] / "LICENSE", into / f"{font.package}.LICENSE")
        faces.append(
            FACE.format(family=font.family, style=font.style, weights=font.weights, name=name)
        )
    (into / "fonts.css").write_text("".join(faces), encoding="utf-8")
