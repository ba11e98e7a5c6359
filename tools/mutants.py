"""Can the tests see a mistake? `python tools/mutants.py` plants mistakes, one at a time, and
looks whether a test fails.

The mistakes are those of tests/data/mutants.csv: a seeded sample of the places in TARGETS where
one operator, number, condition, returned value or statement can be another. One process imports
everything and collects the tests in FILES and the checks of the pages. One fork of it notes which
lines each test reaches, and its time; then one fork a mutant takes the changed code into the
functions in memory (no file is written) and runs the tests that reach the statement, those that
reach least else and have killed most first, until one fails. A page counts with its checks and
with the text stored under its cells. Not mutated: what is evaluated once at import (defaults,
decorators, fields), and what messages say. A command that a test starts as a process of its own
sees no mutant.

A mistake is known by its module, function, statement and by what becomes of which expression, as
`ast.unparse` writes them: neither a line number nor the layout of the code says where it is.

    --draw --n 300 --seed 1   a new sample: what is in the table and still in the code is kept,
                              the rest is drawn; nothing is run
    --sample 20 --seed 1      as many of the table's, drawn by the seed; of the pages, those of
                              their modules
    --again                   only those that no test of the table kills
    --files statistics looks  the tests of these files alone

The reason that is written beside a survivor is kept."""

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
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

TOOLS = Path(__file__).resolve().parent
TESTS = TOOLS.parent / "tests"
sys.path[:0] = [str(TESTS), str(TOOLS), str(TOOLS.parent)]
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
LONGEST_TEXT = 120  # of a statement in the table
NOT_RUN = "not yet run"
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
def test_page(page, monkeypatch, tmp_path):
    "Run the checks of a page on the library in memory; its outputs must be the stored ones."
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
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
    "The nodes that could stand in the place of a node: each is one planted mistake."
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
    "The dotted name of a module of the package."
    return "invar_nb." + ".".join(path.relative_to(LIB).with_suffix("").parts)


def first_line(node):
    "The first line of a node as code."
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0]


class Place(NamedTuple):
    "What identifies a mistake: its columns in the table."

    module: str
    function: str
    statement: str
    mutation: str


class Site(NamedTuple):
    """A place in the code where a mistake can be planted, and the mistake.

    What `owner` holds at `key` becomes `new`; `name` is the top-level name that the statement
    defines, None inside of a function.
    """

    path: Path
    tree: ast.Module
    owner: object
    key: object
    old: ast.AST
    new: ast.AST
    statement: ast.stmt
    function: str
    name: str | None

    @property
    def place(self):
        "The columns of this mistake in the table."
        return Place(
            str(self.path.relative_to(LIB)),
            self.function,
            first_line(self.statement)[:LONGEST_TEXT],
            f"{first_line(self.old)} -> {first_line(self.new)}",
        )

    def plant(self, functions):
        """Put the mistake into the functions in memory.

        The code of every function of the module is replaced, in whatever holds the function. A
        top-level name is defined anew, in each module that has imported it.
        """
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
            "Give each function its new code, those inside other functions too."
            for function in functions[code.co_filename, code.co_qualname, code.co_firstlineno]:
                function.__code__ = code
            for inner in code.co_consts:
                if isinstance(inner, types.CodeType):
                    swap(inner)

        swap(compile(ast.fix_missing_locations(self.tree), str(self.path), "exec"))


def sites(path):
    "Every possible mistake of a module: in functions, and in values of top-level names."

    def visit(node, statement, function, name):
        "The mistakes of one node and of all below it."
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}".lstrip(".")
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
                        function,
                        name,
                    )
                    for new in changes(part)
                )
                yield from visit(part, inside, function, name)

    for part in (tree := ast.parse(path.read_text())).body:
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            yield from visit(part, part, "", None)
        elif (
            isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Name)
            and not part.targets[0].id.startswith("__")
        ):
            yield from visit(part, part, "", part.targets[0].id)


def all_sites():
    "Place -> site, of all targets; equal mutations of one statement are numbered."
    found = {}
    for site in (site for path in TARGETS for site in sites(path)):
        place, count = site.place, 1
        while place in found:
            count += 1
            place = site.place._replace(mutation=f"{site.place.mutation} #{count}")
        found[place] = site
    return found


class Runner:
    "A plugin of pytest that runs the collected tests in forks, one for each mistake."

    def __init__(self, sites, jobs, kills, done):
        self.sites, self.jobs, self.kills, self.done, self.failed = (
            sites,
            jobs,
            kills,
            done,
            None,
        )

    def pytest_runtest_logreport(self, report):
        "Remember the test that did not pass; pytest calls this."
        if not report.passed:
            self.failed = report.nodeid

    def name(self, t):
        "The name of a test in the table."
        return self.items[t].nodeid.removeprefix("tests/").removeprefix("tools/")

    def passes(self, item):
        "Run one test in this process; whether it passed."
        self.failed = None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def each(self, seconds, work, over):
        """(item, work(item)) for each item, computed in forks, several at a time.

        A fork has some seconds of processor time; where it ends without an answer, that is
        None.
        """
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
        """(seconds, lines) of a test:

        the (file, line) that it runs; None where it does not pass.
        """
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
        """Plant a mistake and run the tests that reach it;

        the name of the first that fails, or "".
        """
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
        "Note what each test reaches, then judge every mistake; pytest calls this."
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
        judge = lambda place: self.judge(self.sites[place])
        for place, by in self.each(4 * BUDGET, judge, self.sites):
            self.done(place, "timeout" if by is None else by)
        return True


def read_table():
    "Place -> [killed by, why it changes nothing]."
    with open(TABLE, newline="") as file:
        return {Place(*row[:4]): row[4:] for row in [*csv.reader(file)][1:]}


def write_table(table):
    "Write the table, sorted by place."
    with open(TABLE, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*Place._fields, "killed by", "why it changes nothing"])
        out.writerows([*place, *result] for place, result in sorted(table.items()))


def draw(table, n, seed):
    """A new sample of mistakes: those of the table that the code still has, and new ones.

    The new ones are as many as are missing to `n`.
    """
    places = all_sites()
    kept = {place: result for place, result in table.items() if place in places}
    others = [place for place in places if place not in kept]
    more = random.Random(seed).sample(others, n - len(kept))
    print(f"{len(kept)} of {len(table)} are still there; {len(more)} of {len(others)} drawn")
    return kept | {place: [NOT_RUN, ""] for place in more}


def chosen_of(table, a):
    "Place -> site, of the mistakes that are to be run."
    places = all_sites()
    gone = [place for place in table if place not in places]
    for place in gone:
        del table[place]
        print("no longer in the code", *place, sep=" | ", file=sys.stderr)
    if 10 * len(gone) > len(table):
        sys.exit("more than a tenth of the table is no longer in the code: --draw it anew")
    chosen = [
        place
        for place, (by, _) in table.items()
        if not a.again or by in ("", NOT_RUN, "timeout")
    ]
    if a.sample:
        chosen = random.Random(a.seed).sample(chosen, a.sample)
    return {place: places[place] for place in chosen}


def pages_of(places):
    "The pages that export the modules of some places."
    modules = {place.module.removesuffix(".py").replace("/", ".") for place in places}
    return [
        pages.page_id(page)
        for page in PAGES
        if pages.exported_module(pages.read(page)) in modules
    ]


def arguments(argv):
    "The options of the command line."
    p = argparse.ArgumentParser()
    for name, value in (("--n", 300), ("--seed", 1), ("--jobs", 2), ("--sample", 0)):
        p.add_argument(name, type=int, default=value)
    p.add_argument("--files", nargs="+", default=FILES, metavar="NAME")
    p.add_argument("--again", action="store_true")
    p.add_argument("--draw", action="store_true")
    return p.parse_args(argv)


def main(argv=None):
    """The share of planted mistakes that the tests notice, without those that change nothing.

    After --draw nothing is run, and it is 1.
    """
    a, table = arguments(argv), read_table()
    if a.draw:
        write_table(draw(table, a.n, a.seed))
        return 1

    def done(place, by):
        "Write one result into the table, and print it."
        table[place] = [by, "" if by else table[place][1]]
        print(*place, *table[place], sep=" | ", flush=True, file=sys.__stdout__)

    from hypothesis import settings

    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
    chosen = chosen_of(table, a)
    runner = Runner(chosen, a.jobs, Counter(by for by, _ in table.values()), done)
    options = ["-q", "-p", "no:cacheprovider", "-n0", "--capture=sys"]
    files = [str(TESTS / f"test_{name}.py") for name in a.files]
    chapters = [f"{__file__}::test_page[{name}]" for name in pages_of(chosen)]
    pytest.main([*options, *files, *(chapters if a.sample else [__file__])], plugins=[runner])
    write_table(table)
    ran = [table[place] for place in chosen]
    killed, equal = (sum(bool(row[k]) for row in ran) for k in (0, 1))
    print(
        f"{killed} of {len(ran)} killed, {killed / len(ran):.1%}; "
        f"without the {equal} that change nothing {killed / (len(ran) - equal):.1%}"
    )
    return killed / (len(ran) - equal)


if __name__ == "__main__":
    sys.exit(main() < 0.9)
