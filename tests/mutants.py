"""Can the tests see a mistake? `python tests/mutants.py --n 300 --seed 1` plants mistakes, one at a time, and looks whether a test fails.

A seeded sample of the places in TARGETS where one operator, number, condition, returned value or statement can be another. One process
imports everything and collects the tests in FILES and the checks of the pages. One fork of it notes which lines each test reaches, and its
time; then one fork a mutant takes the changed code into the functions in memory (no file is written) and runs the tests that reach the
statement, those that reach least else and have killed most first, until one fails. A page counts with its checks and with the text stored under its cells. Not mutated: what is evaluated once at import (defaults, decorators, fields), and what messages
say. A command that a test starts as a process of its own sees no mutant. The table is tests/data/mutants.csv; the reason that is written
there beside a survivor is kept."""

import argparse
import ast
import contextlib
import csv
import gc
import io
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
from collections import Counter, defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "tools"), str(TESTS.parent)]
import nbformat  # noqa: E402
import pages  # noqa: E402
import pytest  # noqa: E402
from coverage import Coverage  # noqa: E402
from IPython.core.displaypub import CapturingDisplayPublisher  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402

TABLE, LIB = TESTS / "data/mutants.csv", pages.lib
COMPARISON = (
    "claim",
    "few_units",
    "claim_words",
    "levels",
    "study_pairs",
    "ranking",
    "study_rows",
    "headline",
    "study",
)
TARGETS = [
    *sorted(LIB.glob("statistics/[a-z]*.py")),
    *(LIB / f"comparison/{name}.py" for name in COMPARISON),
    *sorted(LIB.glob("report/[a-z]*.py")),
]
FILES = [
    "statistics",
    "intervals",
    "families",
    "looks",
    "planning",
    "plan",
    "study",
    "laws",
    "verify",
    "report",
    "answer",
    "displays",
    "control",
    "passages",
    "gates",
    "large",
    "many",
    "evaluation",
    "frozen",
    "gate",
    "messages",
    "runs",
    "sweep",
    "questions",
    "python_help",
    "token_classes",
    "readme",
]
LONGEST, BUDGET = (
    25,
    150,
)  # seconds of the processor, as traced: of one test, and of all those run for one mutant
SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {
    a: b
    for pair in (("min", "max"), ("any", "all"), ("minimum", "maximum"))
    for a, b in (pair, pair[::-1])
}
PAGES = [p for p in pages.rooms() if p.parent.name in ("statistics", "comparison", "report")]


@pytest.mark.parametrize("page", PAGES, ids=pages.page_id)
def test_page(page, monkeypatch):
    "The checks of a page on the library in memory, and the text under its cells against what is stored."
    shell = InteractiveShell.instance()
    monkeypatch.setattr(shell, "display_pub", publisher := CapturingDisplayPublisher())
    monkeypatch.setattr(
        sys,
        "displayhook",
        lambda value: (
            value is None or publisher.publish(*shell.display_formatter.format(value))
        ),
    )
    for name in ("COLUMNS", "NO_COLOR", "MPLBACKEND"):
        monkeypatch.setenv(name, pages.environment()[name])
    monkeypatch.chdir(page.parent)
    module, stored = sys.modules["page"] = types.ModuleType("page"), pages.read(page)
    for cell, kept in zip(
        (ran := pages.as_installed(pages.read(page))).cells, stored.cells, strict=True
    ):
        if cell.cell_type != "code" or pages.skipped(cell):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as text:
            for part in (parts := ast.parse(cell.source).body):
                alone = part is parts[-1] and isinstance(part, ast.Expr)
                exec(
                    compile(
                        ast.Interactive([part]) if alone else ast.Module([part], []),
                        str(page),
                        "single" if alone else "exec",
                    ),
                    vars(module),
                )
        cell.outputs = [
            nbformat.v4.new_output("stream", text=text.getvalue()),
            *(
                nbformat.v4.new_output("display_data", data=output["data"])
                for output in publisher.outputs
            ),
        ]
        for one in (cell, kept):
            one.outputs = [
                output for output in one.outputs if "image/png" not in output.get("data", ())
            ]  # a kernel draws when a cell has run
        publisher.outputs.clear()
    assert not pages.differences(stored, ran)


def changes(node):
    "What could stand in the place of a node: each is one mistake."
    other = lambda **parts: ast.copy_location(
        type(node)(**dict(ast.iter_fields(node)) | parts), node
    )
    kind, op, value = type(node), getattr(node, "op", None), getattr(node, "value", None)
    if type(op) in SWAPS:
        yield other(op=SWAPS[type(op)]())
    if kind is ast.Compare:
        yield from (
            other(ops=[*node.ops[:i], SWAPS[type(o)](), *node.ops[i + 1 :]])
            for i, o in enumerate(node.ops)
        )
    if kind is ast.Constant and isinstance(value, (bool, int, float)):
        yield other(
            value=not value
            if isinstance(value, bool)
            else value + 1
            if isinstance(value, int)
            else value * 1.5 or 1.0
        )
    if kind is ast.Name and node.id in NAMES:
        yield other(id=NAMES[node.id])
    if kind is ast.Attribute and node.attr in NAMES:
        yield other(attr=NAMES[node.attr])
    if kind is ast.UnaryOp and isinstance(op, (ast.Not, ast.USub)):
        yield node.operand
    if kind in (ast.If, ast.IfExp, ast.While):
        yield other(test=ast.UnaryOp(ast.Not(), node.test))
    if kind is ast.Return and value and not isinstance(value, ast.Constant):
        yield other(value=ast.Constant(None))
    if (
        kind in (ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
        or kind is ast.Expr
        and not isinstance(value, ast.Constant)
    ):
        yield ast.copy_location(ast.Pass(), node)


def module_of(path):
    return "invar_nb." + ".".join(path.relative_to(LIB).with_suffix("").parts)


@cache
def text_of(path):
    return path.read_text().splitlines()


class Site(NamedTuple):
    "Where a mistake can be planted: what `owner` holds at `key` becomes `new`; `name`: the top-level name that this makes."

    path: Path
    tree: ast.Module
    owner: object
    key: object
    old: ast.AST
    new: ast.AST
    statement: ast.stmt
    name: str | None

    @property
    def row(self):
        "Module, text of the line, and mutation."
        first = lambda node: ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]
        return (
            str(self.path.relative_to(LIB)),
            text_of(self.path)[self.old.lineno - 1].strip(),
            f"{first(self.old)} -> {first(self.new)}",
        )

    def plant(self, functions):
        "Change the functions in memory: each code object of the module, whoever holds it; or a top-level name, in each module that has it."
        self.owner.__setitem__(self.key, self.new) if isinstance(
            self.owner, list
        ) else setattr(self.owner, self.key, self.new)
        if self.name:
            module = sys.modules[module_of(self.path)]
            old = vars(module)[self.name]
            exec(
                compile(
                    ast.fix_missing_locations(ast.Module([self.statement], [])),
                    str(self.path),
                    "exec",
                ),
                vars(module),
            )
            for one in [*sys.modules.values()]:
                if vars(one).get(self.name) is old:
                    setattr(one, self.name, vars(module)[self.name])
            return

        assert any(path == str(self.path) for path, *_ in functions), (
            f"no function of {self.path} is in memory"
        )

        def swap(code):
            for function in functions[code.co_filename, code.co_qualname, code.co_firstlineno]:
                function.__code__ = code
            for inner in code.co_consts:
                if isinstance(inner, types.CodeType):
                    swap(inner)

        swap(compile(ast.fix_missing_locations(self.tree), str(self.path), "exec"))


def sites(path):
    "Every possible mistake of a module: in the bodies of its functions, and in what its top-level names are."

    def visit(node, statement, name):
        for field, child in ast.iter_fields(node):
            if field in ("decorator_list", "args", "annotation", "returns") and isinstance(
                node, (ast.FunctionDef, ast.Lambda, ast.AnnAssign)
            ):
                continue
            for key, part in enumerate(child) if isinstance(child, list) else [(field, child)]:
                inside = part if isinstance(part, ast.stmt) else statement
                if (
                    not isinstance(part, ast.AST)
                    or isinstance(part, ast.JoinedStr)
                    or isinstance(node, ast.ClassDef)
                    and not isinstance(part, ast.FunctionDef)
                ):
                    continue
                yield from (
                    Site(
                        path,
                        tree,
                        child if isinstance(child, list) else node,
                        key,
                        part,
                        new,
                        inside,
                        name,
                    )
                    for new in changes(part)
                )
                yield from visit(part, inside, name)

    for part in (tree := ast.parse(path.read_text())).body:
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            yield from visit(part, part, None)
        elif (
            isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Name)
            and not part.targets[0].id.startswith("__")
        ):
            yield from visit(part, part, part.targets[0].id)


class Runner:
    "A plugin of pytest: what was collected is run in forks."

    def __init__(self, sites, jobs, kills, done):
        self.sites, self.jobs, self.kills, self.done, self.failed = (
            sites,
            jobs,
            kills,
            done,
            None,
        )

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.failed = report.nodeid

    def name(self, t):
        return self.items[t].nodeid.removeprefix("tests/")

    def passes(self, item):
        self.failed = None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def each(self, seconds, work, over):
        "(one, work(one)) for each, in forks that have some seconds of the processor; where they end otherwise, None."
        waiting, running = list(over)[::-1], {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                one, folder = waiting.pop(), Path(tempfile.mkdtemp(prefix="mutant-"))
                if pid := os.fork():
                    running[pid] = one, folder
                    continue
                try:
                    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
                    signal.alarm(60 * seconds)  # of the clock
                    self.temporary._basetemp = folder
                    (folder / "answer").write_bytes(pickle.dumps(work(one)))
                finally:  # whatever it was, the child ends here
                    if broken := bool(sys.exc_info()[0]):
                        traceback.print_exc(file=sys.__stderr__)
                    os._exit(broken)
            pid, status = os.wait()
            one, folder = running.pop(pid)
            if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                sys.exit("a fork broke, which kills no mutant")
            yield (
                one,
                pickle.loads((folder / "answer").read_bytes())
                if (folder / "answer").exists()
                else None,
            )
            shutil.rmtree(folder)

    def reach(self, t):
        "Seconds of a test, and (file, line) that it reaches; None where it fails or is skipped."
        cover, began = (
            Coverage(data_file=None, config_file=False, include=[*map(str, TARGETS)]),
            time.process_time(),
        )
        cover.start()
        if not self.passes(self.items[t]):
            return None
        cover.stop()
        return time.process_time() - began, [
            (path, line)
            for path in cover.get_data().measured_files()
            for line in cover.get_data().lines(path)
        ]

    def judge(self, site):
        "The test that fails, or nothing."
        last = site.old.lineno if hasattr(site.old, "body") else site.old.end_lineno
        tests = {
            t
            for (path, line), some in self.lines.items()
            if path == str(site.path) and (site.name or site.statement.lineno <= line <= last)
            for t in some
        }
        site.plant(self.functions)
        spent = 0
        for t in sorted(tests, key=lambda t: self.width[t] / (1 + self.kills[self.name(t)])):
            if (spent := spent + self.seconds[t]) > BUDGET:
                break
            if not self.passes(self.items[t]):
                return self.name(t)
        return ""

    def pytest_runtestloop(self, session):
        self.items, self.temporary, self.functions, self.lines, self.seconds, self.width = (
            session.items,
            session.config._tmp_path_factory,
            defaultdict(list),
            defaultdict(list),
            {},
            {},
        )
        for path in TARGETS:
            import_module(module_of(path))  # also those that commands import late
        gc.unfreeze()  # conftest.py froze what was collected
        for f in gc.get_objects():
            if isinstance(f, types.FunctionType):
                self.functions[
                    f.__code__.co_filename, f.__code__.co_qualname, f.__code__.co_firstlineno
                ].append(f)
        gc.collect()
        gc.freeze()  # now: what is frozen is not listed
        for t, answer in self.each(LONGEST, self.reach, range(len(self.items))):
            if answer is None:
                print("not used:", self.items[t].nodeid, file=sys.__stderr__, flush=True)
            else:
                self.seconds[t], self.width[t] = answer[0], len(answer[1])
                for line in answer[1]:
                    self.lines[line].append(t)
        print(
            f"{len(self.seconds)} of {len(self.items)} tests are used; they take {sum(self.seconds.values()):.0f} s",
            file=sys.__stderr__,
            flush=True,
        )
        for site, by in self.each(4 * BUDGET, self.judge, self.sites):
            self.done(site.row, "timeout" if by is None else by)
        return True


def main(argv=None):
    p = argparse.ArgumentParser()
    for name, value in (("--n", 300), ("--seed", 1), ("--jobs", 2)):
        p.add_argument(name, type=int, default=value)
    p.add_argument(
        "--again", action="store_true", help="only those that no test of the table kills"
    )
    a = p.parse_args(argv)
    table = {
        tuple(row[:3]): row
        for row in csv.reader(TABLE.read_text().splitlines() if TABLE.exists() else ())
    }
    everywhere = {site.row: site for path in TARGETS for site in sites(path)}
    chosen = random.Random(a.seed).sample(list(everywhere), a.n)

    def done(row, by):
        table[row] = [*row, by, "" if by or row not in table else table[row][4]]
        print(*table[row], sep=" | ", flush=True, file=sys.__stdout__)

    from hypothesis import settings

    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
    runner = Runner(
        [
            everywhere[row]
            for row in chosen
            if not (a.again and row in table and table[row][3])
        ],
        a.jobs,
        Counter(row[3] for row in table.values()),
        done,
    )
    pytest.main(
        [
            "-q",
            "-p",
            "no:cacheprovider",
            "-n0",
            "--capture=sys",
            *(str(TESTS / f"test_{name}.py") for name in FILES),
            __file__,
        ],
        plugins=[runner],
    )
    rows = sorted(table[row] for row in chosen if row in table)
    with open(TABLE, "w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(
            [["module", "line", "mutation", "killed by", "why it changes nothing"], *rows]
        )
    killed, equal = (sum(bool(row[k]) for row in rows) for k in (3, 4))
    print(
        f"{killed} of {len(rows)} killed, {killed / len(rows):.1%}; without the {equal} that change nothing {killed / (len(rows) - equal):.1%}"
    )
    return killed / (a.n - equal)


if __name__ == "__main__":
    sys.exit(main() < 0.9)
