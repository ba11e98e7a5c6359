"""What stands against the rules of the house, counted; each count may only shrink.

    python tools/ratchets.py            the counts that differ from tests/data/ratchets.json
    python tools/ratchets.py --write    keep smaller counts; a larger one is refused

A rule that is new here takes its counts as they are: --write --new RULE.
"""

import argparse
import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "tests" / "data" / "ratchets.json"
LIMIT = 10  # branches of a function, those in expressions included
Function = ast.FunctionDef | ast.AsyncFunctionDef
Counts = dict[str, dict[str, int]]  # rule -> place -> count


# --- what is counted ------------------------------------------------------------------------------
def branches(node: ast.AST) -> int:
    "How many further ways lead on from one node, those hidden in expressions included."
    match node:
        case (
            ast.If()
            | ast.For()
            | ast.While()
            | ast.ExceptHandler()
            | ast.Assert()
            | ast.IfExp()
        ):
            return 1
        case ast.match_case():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
    return 0


def complexity(function: Function) -> int:
    "The number of ways through a function (McCabe), those in expressions included."
    return 1 + sum(map(branches, ast.walk(function)))


def is_text_or_list(node: ast.AST) -> bool:
    "Whether a node is a text, a list or a tuple as written in the code."
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def is_times_a_condition(node: ast.AST) -> bool:
    """Whether a node is `[x] * condition` or `text * condition`, an `if` in disguise.

    A factor that is a number but has a name counts too: the code does not show what it is.
    """
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = ((node.left, node.right), (node.right, node.left))
    return any(
        is_text_or_list(one) and not isinstance(other, ast.Constant) for one, other in sides
    )


def is_named_lambda(node: ast.AST) -> bool:
    "Whether a node is `name = lambda ...`."
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)


def is_tuple_of_values(node: ast.AST) -> bool:
    "Whether a node is `a, b = x, y`: several assignments in one."
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def is_nested_comprehension(node: ast.AST) -> bool:
    "Whether a node is a comprehension with more than one `for`."
    loops = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    return isinstance(node, loops) and len(node.generators) > 1


def is_call_upward(node: ast.AST) -> bool:
    "Whether a node imports the package's root, which loads every layer."
    if isinstance(node, ast.Import):
        return any(alias.name == "invar_nb" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module == "invar_nb" and node.level == 0


RULES = {
    "text or list times a condition": is_times_a_condition,
    "lambda with a name": is_named_lambda,
    "several values in one assignment": is_tuple_of_values,
    "comprehension with two for": is_nested_comprehension,
    "import of the package's root": is_call_upward,
}
COMPLEX = f"complexity above {LIMIT}"


def modules() -> Iterator[tuple[str, ast.Module]]:
    "(layer/name, syntax tree) of each generated module."
    for path in sorted((ROOT / "invar_nb").glob("*/*.py")):
        name = f"{path.parent.name}/{path.stem}"
        yield name, ast.parse(path.read_text("utf-8"))


def counts_of_modules() -> Counts:
    "Rule -> place -> how often the rule is broken there, for the rules of this file."
    counts: Counts = {rule: {} for rule in (COMPLEX, *RULES)}
    for name, tree in modules():
        nodes = list(ast.walk(tree))
        for rule, breaks in RULES.items():
            number = sum(map(breaks, nodes))
            if number:
                counts[rule][name] = number
        functions = [node for node in nodes if isinstance(node, Function)]
        for function in functions:
            number = complexity(function)
            if number > LIMIT:
                counts[COMPLEX][f"{name} {function.name}"] = number
    return counts


def is_caption(row: dict) -> bool:
    """Whether a line that is too long is a caption or alternative text of a picture.

    Such a line cannot be broken.
    """
    path = Path(row["filename"])
    if row["code"] != "E501" or path.suffix != ".ipynb":
        return False
    cell = json.loads(path.read_text("utf-8"))["cells"][row["cell"] - 1]
    line = "".join(cell["source"]).split("\n")[row["location"]["row"] - 1]
    return line.startswith("#| fig-")


def ruff_counts() -> Counts:
    "Rule -> notebook or file -> how often `ruff check` finds it broken."
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--output-format",
        "json",
        ".",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    places = Counter(
        (row["code"] or "syntax", Path(row["filename"]).relative_to(ROOT).as_posix())
        for row in json.loads(done.stdout)
        if not is_caption(row)
    )
    counts: Counts = {}
    for (rule, place), number in sorted(places.items()):
        counts.setdefault(f"ruff {rule}", {})[place] = number
    return counts


def all_counts() -> Counts:
    "The counts of this file's rules and of ruff's."
    return counts_of_modules() | ruff_counts()


# --- the baseline ---------------------------------------------------------------------------------
def changes(counts: Counts, baseline: Counts) -> Iterator[tuple[str, str, int, int]]:
    "(rule, place, count before, count now) where the two differ."
    for rule in sorted(counts.keys() | baseline.keys()):
        now = counts.get(rule, {})
        before = baseline.get(rule, {})
        for place in sorted(now.keys() | before.keys()):
            if now.get(place, 0) != before.get(place, 0):
                yield rule, place, before.get(place, 0), now.get(place, 0)


def read_baseline() -> Counts:
    "The counts that are allowed; {} where none are stored yet."
    return json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}


def main() -> int:
    "Print or store changed counts; 1 where one has grown, else 0."
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep what became smaller")
    parser.add_argument("--new", action="append", default=[], help="take this rule as it is")
    chosen = parser.parse_args()
    counts = all_counts()
    is_first = not BASELINE.exists()
    rows = [
        row
        for row in changes(counts, read_baseline())
        if not is_first and row[0] not in chosen.new
    ]
    larger = [row for row in rows if row[3] > row[2]]
    for rule, place, before, now in larger if chosen.write else rows:
        print(f"{rule}: {place}: {before} before, {now} now")
    if larger:
        return 1
    if chosen.write:
        text = json.dumps(counts, indent=1, sort_keys=True)
        BASELINE.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
