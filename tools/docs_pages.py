"""What nbdev's documentation needs beside its own processors.

`procs` in settings.ini names it, for `nbdev_proc_nbs`, `nbdev_docs` and tools/build_site.py
alike. The editable install puts the root of the clone on the path (setup.py), so that nbdev
finds it."""

import re

SHOWN = {"export", "exports", "exporti", "default_exp"}
LINK = re.compile(r"\[`(\w+)`\]\((https?://[^()\s]+?/(\w+/\w+)\.html#\w+)\)")
EQUATION = re.compile(r"\bEq\. ([a-z]+(?:-\w+)+)")  # of a docstring, as help() shows it
CODE = re.compile(r"^```python\n.*?^```", re.M | re.S)
EXAMPLES = re.compile(r"(?:^>>> .*\n?)+", re.M)
HEADING = re.compile(r"(#{1,6}) ")
EXERCISES = re.compile(r"^(?:## Exercises|### Try this)\s*$", re.M)
ANSWER_BEGINS = '<details class="answer"><summary>Answer</summary>'
ANSWER_ENDS = "</details>"
NESTED = re.compile(r"\[([^\[\]]*)\[(`[^`\n]*`)\]\([^()\s]*\)([^\[\]]*)\]\(")


class Pages:
    """A processor of nbdev, called for each cell of a page before the page becomes HTML.

    No cell with checks is run, text behind the lead stays, answers of exercises are folded,
    and links that nbdev draws by mistake are taken out again.
    """

    def __init__(self, nb):
        "Mark cells that need no run; move text behind title and lead to a cell of its own."
        from execnb.nbio import mk_cell

        self.module = ""
        for cell in nb.cells:
            if cell.cell_type != "code":
                continue
            self.module = (
                "/".join(".".join(cell.directives_.get("default_exp", ())).split("."))
                or self.module
            )
            if not SHOWN & cell.directives_.keys() and "show_doc" not in cell.source:
                cell.directives_["eval:"] = ["false"]
        lead = re.match(r"(# [^\n]+\n+(?:> [^\n]+\n?)+)(.*)", nb.cells[0].source, re.S)
        if lead and lead[2].strip():
            nb.cells[0].source = lead[1].strip()
            nb.cells.insert(1, mk_cell(lead[2].strip(), "markdown"))
        nb.cells[:] = fold_answers(nb.cells, lambda text: mk_cell(text, "markdown"))

    def __call__(self, cell):
        "Mend the links and the references to equations in one cell and its outputs."
        if cell.cell_type == "markdown":
            cell.source = plain_links(cell.source, self.module)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/markdown" in data:
                text = plain_links("".join(data["text/markdown"]), self.module)
                text = CODE.sub(lambda code: unlink(code[0]), text)
                data["text/markdown"] = fence_examples(EQUATION.sub(r"@eq-\1", text))


def pieces(text):
    "A Markdown text cut before each of its headings; `#` in code is none."
    found, in_code = [[]], False
    for line in text.split("\n"):
        in_code ^= line.startswith("```")
        if not in_code and HEADING.match(line) and found[-1]:
            found.append([])
        found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def fold_answers(cells, make):
    """The cells of a page with the answers of its exercises in folds.

    An answer goes from a Markdown cell that begins with `**Answer.**`, below the heading
    `## Exercises` or `### Try this`, to the next heading, code and outputs included.
    `make(text)` makes a cell of Markdown.
    """
    done, is_open, in_exercises = [], False, False
    for cell in cells:
        if cell.cell_type != "markdown" or not (in_exercises or EXERCISES.search(cell.source)):
            done.append(cell)
            continue
        texts = pieces(cell.source)
        for text in texts:
            heading = HEADING.match(text)
            if heading and is_open:
                done.append(make(ANSWER_ENDS))
                is_open = False
            if heading and (len(heading[1]) <= len("##") or EXERCISES.match(text)):
                in_exercises = bool(EXERCISES.match(text))
            if in_exercises and not is_open and text.startswith("**Answer.**"):
                done.append(make(ANSWER_BEGINS))
                is_open = True
            done.append(cell if len(texts) == 1 else make(text.strip()))
    return done + ([make(ANSWER_ENDS)] if is_open else [])


def unlink(code):
    "The code of a signature without the links that nbdev puts into its comments."
    return re.sub(r"\[(`[^`\n]*`)\]\([^)\s]*\)", r"\1", code)


def fence_examples(text):
    "The text with `>>>` examples in a fence of code; Markdown would take them for quotations."
    return EXAMPLES.sub(lambda lines: f"```python\n{lines[0].rstrip()}\n```\n", text)


def plain_links(text, module=""):
    """The text without links inside a link, and without links of ordinary words.

    nbdev links every word in backticks that happens to be a name of the library.
    """
    unlinked = LINK.sub(lambda m: m[0] if is_meant(m[1], m[3], module) else f"`{m[1]}`", text)
    return NESTED.sub(r"[\1\2\3](", unlinked)


def is_meant(name, target, module):
    """Whether a linked word really means the function of that name.

    A public name, a command, a name of the same page, and any name that is no ordinary word.
    `raw` is a column and `release` a profile, although functions have these names.
    """
    import invar_nb
    from invar_nb.shell.cli import app

    commands = {command.name for command in app.registered_commands}
    by_chance = name.islower() and "_" not in name
    return (
        name in invar_nb.__all__
        or target == module
        or not by_chance
        or (target == "shell/cli" and name in commands)
    )
