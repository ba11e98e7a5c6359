"""The terms of the glossary, and the links to them in the prose of other pages.

`link_terms` is a part of Sphinx's build: the first use of a term on a page leads to the
glossary, and shows the first sentence of its definition when the pointer rests on it."""

import re
from typing import NamedTuple

from docutils import nodes

PAGE = "glossary"
MOST = 12  # links of this kind on a page
# Headings of the glossary that are also everyday words: pages use them in other senses.
EVERYDAY = {
    *("arm", "item", "edit", "control", "look", "slice", "report", "verify", "identical"),
    *("improved", "profile", "power", "stride", "baseline", "candidate", "flips", "coverage"),
}
KEPT_OUT = (nodes.reference, nodes.literal, nodes.math, nodes.strong, nodes.raw, nodes.image)
NO_PROSE = (nodes.table, nodes.footnote, nodes.caption, nodes.legend)


class Term(NamedTuple):
    "An entry of the glossary."

    name: str
    anchor: str
    first: str  # sentence of its definition
    related: tuple[str, ...]  # what else people call it, or search for
    page: str  # where it is derived, as an address below nbs/, with suffix


def plain(text):
    "Markdown as plain text: no emphasis, no code, of links their words."
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "").replace("`", "")


def entries(cells):
    "The terms of the glossary's Markdown cells, in their order."
    for source in cells:
        match = re.match(r"### (.+)\n+(.+)", source, re.S)
        if match:
            name, text = match[1].strip(), match[2].strip()
            text, _, rest = text.partition("*Related:*")
            related, _, seen = rest.partition(" See ")
            words = [word.strip(" .\n") for word in related.split(",")]
            page = re.search(r"\]\(([^)#]+)", seen or rest)
            yield Term(
                name=name,
                anchor=nodes.make_id(name),
                first=re.match(r".+?[.?!](?=\s|$)", plain(text), re.S)[0].replace("\n", " "),
                related=tuple(filter(None, words)),
                page=page[1] if page else "",
            )


def spellings(term):
    "How a term is written in prose, in British and American; `Profile and tier` are two."
    for name in term.name.split(" and "):
        found = name.lower()
        if found not in EVERYDAY:
            yield found
            if "isation" in found:
                yield found.replace("isation", "ization")


def pattern(names):
    "A pattern that finds the names as whole words, in the plural too; longer names first."
    ordered = sorted(names, key=len, reverse=True)
    return re.compile(
        rf"(?<![\w@/-])({'|'.join(map(re.escape, ordered))})(?:e?s)?(?![\w@/-])", re.I
    )


def is_prose(text):
    "Whether a text of a document is running prose: no link, code, heading or card."
    node = text.parent
    inline = True
    while node is not None and node.parent is not None:
        if isinstance(node, nodes.paragraph):
            inline = False
        is_card = isinstance(node, nodes.container) and {"api", "lead"} & {*node["classes"]}
        if is_card or isinstance(node, NO_PROSE) or (inline and isinstance(node, KEPT_OUT)):
            return False
        node = node.parent
    return not inline


def mark(doctree, terms, address):
    """Link the first use of each term in a document, at most `MOST` of them.

    `terms` has lower-case spelling -> Term; `address(anchor)` is the target of a link.
    """
    wanted, used = pattern(terms), set()
    for text in [t for t in doctree.findall(nodes.Text) if is_prose(t)]:
        done, end, said = [], 0, text.astext()
        for match in wanted.finditer(said):
            term = terms[match[1].lower()]
            if term.name in used or len(used) == MOST:
                continue
            used.add(term.name)
            done.append(nodes.Text(said[end : match.start()]))
            link = nodes.reference(
                "", match[0], refuri=address(term.anchor), reftitle=term.first, internal=True
            )
            link["classes"].append("term")
            done.append(link)
            end = match.end()
        if done:
            text.parent.replace(text, [*done, nodes.Text(said[end:])])


def link_terms(cells, pages):
    "A handler of Sphinx's `doctree-resolved` that marks the terms on these pages."
    terms = {name: term for term in entries(cells) for name in spellings(term)}

    def resolved(app, doctree, page):
        "Mark the terms of one page."
        if page in pages:
            home = app.builder.get_relative_uri(page, PAGE)
            mark(doctree, terms, lambda anchor: f"{home}#{anchor}")

    return resolved
