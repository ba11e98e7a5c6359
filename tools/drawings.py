"""Drawings of Matplotlib (`page_style`) and pictures of reports as a part of their page.

Inline SVG, in the colours and the font of the page."""

import html
import re

from invar_nb.foundations.page_style import PALETTE

# A colour of a drawing -> what it is on the site, where light and dark themes set it.
COLOURS = {
    "#000000": "currentColor",
    "#ffffff": "var(--color-background-primary)",
    "#999999": "var(--draw-grey)",  # a diagonal
    **{colour: f"var(--draw-{name})" for name, colour in PALETTE.items()},
}
PAPER = re.compile(r'<path d="[^"]*"\s+style="fill: #ffffff"/>')  # of figure and axes
FAMILIES = re.compile(r"font-family: [^;\"]*;? ?")
SHORTHAND = re.compile(r"(\bfont: [^;\"]*?\d(?:\.\d+)?px) [^;\"]*")  # of a formula's letters
REFERENCE = re.compile(r'(url\(#|\bhref="#)([^)"]+)')
TAG = re.compile(r"<[^>]*>")  # what is between tags is what the picture says
POINT = 96 / 72  # pixels of a point
NO_PROSE = re.compile(r"(`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)]*\)|<[^>]*>)", re.S)
# What the pictures of reports call their colours -> what these are on the site.
NAMES_OF_REPORTS = {
    "ink": "currentColor",
    "soft": "var(--color-foreground-muted)",
    "rule": "var(--color-background-border)",
    "paper": "var(--color-background-primary)",
    "worse": "var(--draw-orange)",
    "better": "var(--draw-teal)",
    "band": "color-mix(in srgb, var(--draw-teal) 14%, transparent)",
}


def is_drawing(svg):
    "Whether an SVG was made by Matplotlib, whose background and ids do not suit a page."
    return '<g id="figure_1">' in svg


def is_of_report(svg):
    "Whether an SVG is a picture of a report."
    return 'class="figure"' in svg.partition(">")[0]


def inline_of_report(svg, alt):
    """The picture of a report as an element of a page, in its colours and its font.

    It is as large as it is drawn, so its words have the size of other drawings.
    """
    box = re.search(r'viewBox="0 0 (\S+) \S+"', svg)
    colours = ";".join(f"--{name}:{colour}" for name, colour in NAMES_OF_REPORTS.items())
    size = f"max-width:{box[1]}px;width:100%;height:auto"
    head = (
        f'<svg class="drawing" {box[0]} role="img" '
        f'aria-label="{html.escape(alt)}" style="{size};font-size:13px;{colours}">'
    )
    inside = _with_minus(svg[svg.index(">") + 1 :])
    return head + re.sub(r"<title>.*?</title>|<style>.*?</style>", "", inside, flags=re.S)


def unique_ids(svg, mark):
    "The drawing with ids only where something refers to them, each with `mark` before it."
    wanted = {m[2] for m in REFERENCE.finditer(svg)}
    svg = re.sub(
        r' id="([^"]*)"', lambda m: f' id="{mark}-{m[1]}"' if m[1] in wanted else "", svg
    )
    return REFERENCE.sub(rf"\1{mark}-\2", svg.replace("xlink:href", "href"))


def _with_short_coordinates(tag):
    "A tag with two decimals in its numbers, since a hundredth of a point is not seen."
    return re.sub(r"(\.\d\d)\d+", r"\1", tag[0])


def _with_minus(svg):
    "The drawing with its numbers written as those of prose."
    return re.sub(r"(?<=>)[^<>]+(?=<)", lambda words: joined(words[0]), svg)


def inline(svg, alt, mark):
    """The SVG as an element of a page.

    No prologue, no paper; black, white and the four colours of `PALETTE` follow the theme; all
    ids begin with `mark`.
    """
    box = re.search(r'viewBox="0 0 (\S+) (\S+)"', svg)
    width, height = (float(length) * POINT for length in box.groups())
    inside = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inside = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", inside, flags=re.S)
    inside = PAPER.sub("", inside)
    for colour, ours in COLOURS.items():
        inside = re.sub(colour, ours, inside, flags=re.I)
    inside = SHORTHAND.sub(r"\1 var(--font-stack)", FAMILIES.sub("", inside))
    inside = _with_minus(TAG.sub(_with_short_coordinates, inside))
    inside = re.sub(r"<g>\s*</g>|<defs>\s*</defs>", "", unique_ids(inside, mark))
    inside = re.sub(r"\s*\n\s*", " ", inside).replace("> <", "><").strip()
    return (
        f'<svg class="drawing" {box[0]} width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{html.escape(alt)}">{inside}</svg>'
    )


def thumbnail(svg, alt, mark):
    "A small picture of the gallery as an element of a page, in its colours and its font."
    head, _, inside = svg[svg.index("<svg") :].partition(">")
    box = re.search(r'viewBox="[^"]*"', head)[0]
    inside = re.sub(r"<title>.*?</title>", "", inside, flags=re.S)
    inside = re.sub(
        r'\bfont-family="(?!monospace)[^"]*"', "", inside.replace("#737f87", "currentColor")
    )
    for colour, ours in COLOURS.items():
        inside = re.sub(f"{colour}(?![0-9a-f])", ours, inside, flags=re.I)
    label = html.escape(alt)
    opening = f'<svg class="thumbnail" {box} role="img" aria-label="{label}" font-size="13">'
    return opening + unique_ids(inside, mark)


def joined(text):
    """Prose with a number's sign as a minus, and its unit on its line.

    Code, formulas, targets of links and tags stay as they are.
    """
    parts = NO_PROSE.split(text)
    for k in range(0, len(parts), 2):
        part = re.sub(
            r"(?<=\d) (?=%|(?:[kMGT]i?B|m?s|nats|bits|points)\b)", "\u00a0", parts[k]
        )
        part = re.sub(r"(?<![\w.\]/#&=-])-(?=\.?\d)", "\u2212", part)
        parts[k] = re.sub(r"(?<=\d) - (?=\d)", " \u2212 ", part)
    return "".join(parts)


def caption(text):
    "A caption as HTML: `code` and plain text."
    text = html.escape(joined(text), quote=False)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def figure(svg, words, mark):
    "A drawing with its caption; `words` has `fig-alt` and `fig-cap`."
    alt = words["fig-alt"]
    drawn = inline_of_report(svg, alt) if is_of_report(svg) else inline(svg, alt, mark)
    return (
        f'<figure class="drawing">{drawn}\n'
        f"<figcaption>{caption(words['fig-cap'])}</figcaption></figure>"
    )
