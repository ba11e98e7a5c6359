"""What a page folds: the source of the library, with what it defines and how long it is."""

import ast
import html
import re

END = "</details>"
SHOWN_NAMES = 4


def names(source):
    "The names that a cell defines: functions and classes, or else its constants."
    tree = ast.parse(re.sub(r"^[%!].*$", "pass", source, flags=re.M))
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = [node.name for node in tree.body if isinstance(node, definitions)]
    if found:
        return found
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def summary(sources):
    "The line of a fold: `Implementation: a, b (34 lines)`; public names come first."
    found = [name for source in sources for name in names(source)]
    found.sort(key=lambda name: name.startswith("_"))
    more = len(found) - SHOWN_NAMES
    told = ", ".join(found[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
    lines = sum(len(source.strip().splitlines()) for source in sources)
    length = "1 line" if lines == 1 else f"{lines} lines"
    return f"Implementation: {told} ({length})" if told else f"Implementation ({length})"


def begin(sources):
    "The HTML that begins the fold of these sources."
    said = html.escape(summary(sources))
    return f'<details class="code"><summary>{said}</summary>'


def equations(texts):
    "Label -> number of the equations of a page, in order, as Sphinx counts them."
    labels = re.findall(r"\$\$\s*\{#(eq-[\w-]+)\}", "\n\n".join(texts))
    return {label: number for number, label in enumerate(labels, 1)}


def numbered(source, page, numbers):
    """A shown source with `(2)` for `@eq-label`, the number that the formula has on its page.

    `numbers` has label -> (page, number); an equation of another page is named with it.
    """

    def number(match):
        "The number of one label."
        if match["label"] not in numbers:
            return match[0]
        home, found = numbers[match["label"]]
        return f"({found})" if home == page else f"({found}) of {home}"

    return re.sub(r"(?P<open>\()?@(?P<label>eq-[\w-]+)(?(open)\))", number, source)
