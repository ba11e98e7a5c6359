"""The rules of the house, read off the source: exports in sync, the stairs, forbidden patterns, honest prose, light imports, the site.

Each rule is a function that returns broken places; a test applies it to the project, another shows it a sin it must find."""

import ast
import builtins
import csv
import itertools
import os
import re
import shutil
import subprocess
import symtable
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import nbformat
import pages
import pyarrow
import pyarrow.parquet
import pytest
import ratchets
import yaml

ROOT, LIB = pages.root, pages.lib
ALL = pages.pages()
MODULE_OF = {p: module for p in ALL if (module := pages.exported_module(pages.read(p)))}
ROOMS = [*MODULE_OF]
BY_HAND = ("__init__.py", "__main__.py")
MODULES = sorted(p for p in LIB.rglob("*.py") if p.name not in (*BY_HAND, "_modidx.py"))
SOURCES = sorted(
    [
        *LIB.rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "tools").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]
)


def nothing(found, cure=""):
    "Fail with the broken places, and nothing else."
    if found:
        pytest.fail("\n".join([*map(str, found), cure]), pytrace=False)


def rel(p):
    return Path(p).relative_to(ROOT).as_posix()


MAGIC = re.compile(r"^[ \t]*[!%](?!=).*$|^[ \t]*[\w.]+\?{1,2}[ \t]*$", re.M)


def code_cells(path):
    return [(i, c) for i, c in enumerate(pages.read(path).cells) if c.cell_type == "code"]


def parse_cell(source):
    return ast.parse(MAGIC.sub("pass", source))


def trees():
    "(where, tree) of every Python file and every code cell of the project."
    for p in SOURCES:
        yield rel(p), ast.parse(p.read_text(encoding="utf-8"))
    for p in ALL:
        for i, c in code_cells(p):
            if not c.source.lstrip().startswith("%%"):
                yield f"{rel(p)} cell {i}", parse_cell(c.source)


# --- exports --------------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    "The library that nbdev makes from the pages alone, in an empty project of its own."
    project = tmp_path_factory.mktemp("project")
    for p in ALL:
        to = project / "nbs" / p.relative_to(pages.nbs)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(p, to)
    shutil.copy(ROOT / "settings.ini", project)
    (project / "invar_nb").mkdir()
    shutil.copy(LIB / "__init__.py", project / "invar_nb")
    code = "from nbdev.doclinks import nbdev_export; nbdev_export()"
    r = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True
    )
    assert r.returncode == 0, r.stderr[-3000:]
    return project / "invar_nb"


def test_exports_are_in_sync(exported):
    "Exporting every page to an empty project gives the modules that are there, byte for byte; none is missing, none is left over."
    made = {
        p.relative_to(exported).as_posix(): p.read_bytes()
        for p in exported.rglob("*.py")
        if p.name not in BY_HAND
    }
    here = {
        p.relative_to(LIB).as_posix(): p.read_bytes()
        for p in LIB.rglob("*.py")
        if p.name not in BY_HAND
    }
    nothing(
        [f"{k}: no page exports it" for k in here.keys() - made.keys()]
        + [f"{k}: not exported yet" for k in made.keys() - here.keys()]
        + [
            f"{k}: edited by hand, or not exported"
            for k in here.keys() & made.keys()
            if here[k] != made[k]
        ],
        "modules are made from pages: `make room R=NAME` exports one, `make fresh` all and the index",
    )


def test_one_page_one_module():
    exports = {pages.page_id(p): module for p, module in MODULE_OF.items()}
    for page, module in exports.items():
        floor, name = page.split("/")
        assert module == f"{floor}.{re.sub(r'^[0-9]+_', '', name)}", f"{page} exports {module}"
    numbers = Counter(number_of().values())
    assert not [n for n, k in numbers.items() if k > 1], (
        "a page number is used twice in one layer"
    )
    assert set(pages.rooms()) == set(ROOMS), (
        "a numbered page exports nothing, or an unnumbered one exports"
    )


def test_floors_are_packages():
    nothing(
        [p.parent for p in MODULES if not (p.parent / "__init__.py").exists()],
        "no __init__.py there",
    )


# --- notebooks ------------------------------------------------------------------------------------------------------------------------
def unclean(nb):
    "Traces of a hand's run: execution counts, metadata, and outputs no reader should get."
    found = [f"notebook metadata {k}" for k in nb.metadata if k not in ("kernelspec",)]
    for i, c in enumerate(nb.cells):
        if c.metadata:
            found.append(f"cell {i}: metadata {dict(c.metadata)}")
        if c.cell_type != "code":
            continue
        if c.execution_count is not None:
            found.append(f"cell {i}: execution count")
        if sum(o.output_type == "stream" for o in c.outputs) > 1:
            found.append(f"cell {i}: printed text in several pieces")
        for o in c.outputs:
            if o.get("execution_count") is not None or o.get("metadata"):
                found.append(f"cell {i}: output metadata")
            if o.output_type == "error":
                found.append(f"cell {i}: an error is stored as output")
            if o.output_type == "stream" and o.name == "stderr":
                found.append(f"cell {i}: stderr is stored: {o.text[:80]!r}")
            for kind, data in o.get("data", {}).items():
                sizes = {"image/png": len(data) * 3 // 4, "image/svg+xml": len(data)}
                if sizes.get(kind, 0) > 100_000:
                    found.append(f"cell {i}: an image of {sizes[kind] // 1000} kB")
            text = o.get("text", "") + str(o.get("data", {}).get("text/plain", ""))
            if re.search(r"\b0x[0-9a-f]{6,}", text):
                found.append(f"cell {i}: a memory address in the output")
    return found


@pytest.mark.parametrize("path", ALL, ids=pages.page_id)
def test_notebook_is_clean(path):
    nothing(
        unclean(pages.read(path)),
        "nbdev_clean cleans; what a page shows is text without warnings and addresses",
    )


@pytest.mark.parametrize("path", ALL, ids=pages.page_id)
def test_outputs_are_stored(path):
    "A code cell that prints or ends on a value shows it: a page with no outputs at all was never run."
    nb = pages.read(path)
    code = [c for c in nb.cells if c.cell_type == "code" and not pages.skipped(c)]
    nothing(
        [] if not code or any(c.outputs for c in code) else ["no output is stored"],
        "make fresh R=" + path.stem,
    )


IDEA = ["Question", "Picture", "Claim", "Derivation", "Counter-example"]
# Whoever reads for the idea has its limits and exercises before the source of the library.
TAUGHT = [*IDEA, "Limits", "Exercises", "Implementation", "Check", "References"]
LOOKED_UP = [*IDEA, "Implementation", "Check", "Limits", "References"]


def listed(entries):
    "The pages of a part of the sidebar, those of its sections included."
    for entry in entries:
        if isinstance(entry, str):
            yield entry.removesuffix(".ipynb")
        else:
            yield from listed(entry.get("contents", ()))


def taught():
    "The pages of the book and of the method."
    sidebar = yaml.safe_load((ROOT / "_quarto.yml").read_text("utf-8"))["website"]["sidebar"]
    sections = [
        section
        for section in sidebar["contents"]
        if section.get("section") in ("The book", "The method")
    ]
    return set(listed(sections))


def page_pattern(nb, headings=LOOKED_UP):
    "What a page lacks of the pattern: title and lead, the sections it has in order, checks, a picture where it promises one."
    text = "\n\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    bare = re.sub(r"```.*?```", "", text, flags=re.S)
    found = (
        []
        if re.match(r"# .+\n+> .+", bare.lstrip())
        else ["it does not open with `# Title` and one `> line`"]
    )
    sections = [h.strip() for h in re.findall(r"^## (.+)$", bare, re.M)]
    known = [
        h for h in sections if h in headings and h != "Picture"
    ]  # a picture stands where it teaches
    if known != [h for h in headings if h in known]:
        found.append(f"sections out of order: {known}")
    question, inside = "", False
    for c in nb.cells:
        for block in (
            re.split(r"(?m)^(?=## )", c.source) if c.cell_type == "markdown" else [c.source]
        ):
            if c.cell_type == "markdown" and block.startswith("## "):
                inside = block.startswith("## Question")
            if inside:
                question += block + "\n"
    lead = (re.findall(r"^> .+", bare, re.M) or [""])[0]
    if question and "?" not in question + lead:
        found.append("the Question section asks nothing")
    if question and not re.search(r"\d", question):
        found.append("the Question section has no number")
    code = "\n".join(c.source for c in nb.cells if c.cell_type == "code")
    if not re.search(r"\bassert\b|assert_allclose|assert_array_equal", code):
        found.append("it checks nothing")
    if "Picture" in sections and not any(
        "image/" in k
        for c in nb.cells
        if c.cell_type == "code"
        for o in c.outputs
        for k in o.get("data", {})
    ):
        if not re.search(r"<svg|!\[|mermaid|```\n", text):
            found.append("the Picture section has no picture")
    return found


@pytest.mark.parametrize("path", ROOMS, ids=pages.page_id)
def test_page_pattern(path):
    is_taught = pages.page_id(path) in taught()
    nothing(page_pattern(pages.read(path), TAUGHT if is_taught else LOOKED_UP))


def joined_per_cent(nb):
    "Numbers that a page shows with a joined per cent sign, where it is not typed as code."
    found = []
    for i, c in enumerate(nb.cells):
        for o in c.get("outputs", ()):
            data = o.get("data", {})
            drawn = re.findall(r"<text[^>]*>([^<]*)", "".join(data.get("image/svg+xml", "")))
            shown = [*o.get("text", "").split("\n"), *drawn]
            shown += "".join(data.get("text/markdown", "")).split("\n")
            found += [
                f"cell {i}: {line.strip()[:80]}"
                for line in shown
                if re.search(r"\d%", re.sub(r"""--.*|".*"|'.*'|`.*`""", "", line))
            ]
    return found


READ = [
    path
    for path in ALL
    if pages.page_id(path) in taught() or path.parent.name in ("guides", "tutorials")
]


@pytest.mark.parametrize("path", READ, ids=pages.page_id)
def test_per_cent_has_one_form(path):
    "What a page shows has `2 %`; `2%` is what is typed."
    if path.stem != "train_demo":  # it runs for hours, and keeps what it printed
        nothing(joined_per_cent(pages.read(path)), "write {100 * share:.0f} %")


def test_a_joined_per_cent_is_found():
    output = nbformat.v4.new_output("stream", text="8.0% of all\n$ plan --margin 2%\n2 %\n")
    cell = nbformat.v4.new_code_cell("1", outputs=[output])
    assert joined_per_cent(nbformat.v4.new_notebook(cells=[cell])) == ["cell 0: 8.0% of all"]


def unnamed_pictures(nb):
    "Pictures without a caption or an alternative text (`#| fig-cap`, `#| fig-alt`), or whose texts are too short to say what to see."
    found = []
    for i, c in enumerate(nb.cells):
        if c.cell_type == "markdown":
            found += [
                f"cell {i}: {m[0]}"
                for m in re.finditer(r"!\[([^\]]*)\]\([^)]*\)", c.source)
                if len(m[1]) < 20
            ]
        data = [o.get("data", {}) for o in c.get("outputs", ())]
        if any(kind.startswith("image/") for d in data for kind in d):
            texts = dict(
                re.findall(r'^#\| (fig-(?:cap|alt)): "([^"\\]{40,})"$', c.source, re.M)
            )
            found += [
                f"cell {i}: no {name}" for name in ("fig-cap", "fig-alt") if name not in texts
            ]
            if len(texts) > len({*texts.values()}):
                found.append(f"cell {i}: the caption is the alternative text")
        drawn = [
            text
            for d in data
            for text in [
                d.get("text/html", ""),
                *([c.source] if c.cell_type == "markdown" else []),
            ]
            if "<svg" in text
        ]
        found += [
            f"cell {i}: a drawing without <title>" for text in drawn if "<title>" not in text
        ]
    return found


@pytest.mark.parametrize("path", ALL, ids=pages.page_id)
def test_pictures_say_what_to_see(path):
    nothing(
        unnamed_pictures(pages.read(path)),
        "in the first lines of the cell: what to see as fig-cap, what is drawn as fig-alt, each one line in double quotes",
    )


def test_pictures_without_words_are_found():
    picture = nbformat.v4.new_output("display_data", {"image/png": ""})
    words = '#| fig-cap: "The bar lies inside the band, so nothing changed."\n#| fig-alt: "One horizontal bar over a shaded band with a line at zero."\nplt.show()'
    cell = lambda source, output=picture: nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, outputs=[output])]
    )
    drawing = lambda inside: nbformat.v4.new_output(
        "display_data", {"text/html": f"<svg viewBox='0 0 1 1'>{inside}</svg>"}
    )
    assert not unnamed_pictures(cell(words)) and not unnamed_pictures(
        cell("x", drawing("<title>One bar</title>"))
    )
    assert (
        len(unnamed_pictures(cell("plt.show()"))) == 2
        and len(unnamed_pictures(cell("x", drawing("<path/>")))) == 1
    )
    assert (
        len(
            unnamed_pictures(
                cell(
                    words.replace(
                        "One horizontal bar over a shaded band with a line at zero.", "A bar."
                    )
                )
            )
        )
        == 1
    )
    assert unnamed_pictures(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("![](../images/a.svg)")])
    ) == ["cell 0: ![](../images/a.svg)"]


def mixed_imports(nb):
    "Cells that import and do more: `nbdev_proc_nbs` runs every cell with an import, and of the others only exported ones. Warnings may be silenced around them."
    found = []
    for i, c in enumerate(nb.cells):
        if c.cell_type != "code" or pages.directives(c).keys() & {
            "export",
            "exports",
            "exporti",
        }:
            continue
        tree = parse_cell("" if c.source.startswith("%%") else c.source)
        imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
        body = [
            s
            for n in tree.body
            for s in (
                n.body[1:]
                if isinstance(n, ast.With)
                and ast.unparse(n.body[0]).startswith("warnings.simplefilter(")
                else [n]
            )
        ]
        if imports and not all(isinstance(s, (ast.Import, ast.ImportFrom)) for s in body):
            found.append(f"cell {i}: line {imports[0].lineno}")
    return found


@pytest.mark.parametrize("path", ALL, ids=pages.page_id)
def test_imports_have_cells_of_their_own(path):
    nothing(
        mixed_imports(pages.read(path)),
        "nbdev runs cells with imports by themselves: put the imports into the page's first cell of imports",
    )


def test_mixed_imports_are_found():
    page = lambda *sources: nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(s) for s in sources]
    )
    assert (
        len(
            mixed_imports(
                page(
                    "import os\nx = 1",
                    "def f():\n    import os",
                    "#| export\nimport os\nx = 1",
                    "import os\nfrom re import sub",
                    "with open(f) as x:\n    import os",
                    "with w():\n    warnings.simplefilter(1)\n    import os",
                )
            )
        )
        == 3
    )


def test_nbdev_clean_changes_nothing(tmp_path):
    "With nbdev's git hooks, or `nbdev_clean` run in a clone, no page is rewritten: keys, indents and line ends are nbdev's own."
    copies = {tmp_path / p.relative_to(pages.nbs): p for p in ALL}
    for to, p in copies.items():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(p, to)
    code = f"from nbdev.clean import nbdev_clean; nbdev_clean({str(tmp_path)!r})"
    r = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert r.returncode == 0 and not r.stderr, r.stderr[-2000:]
    nothing(
        [rel(p) for to, p in copies.items() if to.read_bytes() != p.read_bytes()],
        "run `nbdev_clean`",
    )


@pytest.mark.slow
def test_the_commands_of_nbdev_pass_twice_in_a_clone(tmp_path):
    """`nbdev_export`, `nbdev_clean`, `nbdev_test`, and `nbdev_proc_nbs` without the Quarto that it would install, change nothing that is tracked,
    also where they ran before; what the package keeps for the account is neither read nor changed."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    kept = home / ".cache" / "invar-nb" / "losses.parquet"
    kept.parent.mkdir(mode=0o700, parents=True)
    kept.write_text("what was scored on this account\n")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "offline"), str(clone)]),
        "HOME": str(home),
        "INVAR_NB_ACCOUNT": str(kept.parent),
    }
    env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    commands = (
        "from nbdev.doclinks import nbdev_export; nbdev_export()",
        "from nbdev.clean import nbdev_clean; nbdev_clean()",
        "if __name__ == '__main__': from nbdev.serve import proc_nbs; proc_nbs('nbs', n_workers=2, force=True)",
        "if __name__ == '__main__': from nbdev.test import nbdev_test; nbdev_test(n_workers=2, do_print=False)",
    )
    for code in 2 * commands:
        (tmp_path / "command.py").write_text(code)
        r = subprocess.run(
            [sys.executable, tmp_path / "command.py"],
            cwd=clone,
            env=env,
            capture_output=True,
            text=True,
        )
        assert r.returncode == 0, f"{code}\n{r.stdout[-2000:]}\n{r.stderr[-3000:]}"
        assert not subprocess.run(
            ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True
        ).stdout, code
    assert kept.read_text() == "what was scored on this account\n"
    assert [*kept.parent.rglob("*")] == [kept]


def test_a_page_that_opens_what_the_account_keeps_is_stopped():
    "Tests and pages have caches of their own; a page that has none is stopped as it opens the account's."
    assert (
        os.environ["XDG_CACHE_HOME"] != pages.account()
        and "INVAR_NB_ACCOUNT" not in os.environ
    )
    code = (
        "from invar_nb.files.cache import open_cache; open_cache(print).find({}, 'sha256:0')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=pages.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode and "nothing of the account" in done.stderr, done.stderr[-500:]
    assert not [*Path(pages.account(), "invar-nb").iterdir()]


def test_nbdev_3_finds_what_it_needs():
    "It reads pyproject.toml in the place of settings.ini: the same folders, flags and sidebar stand in both."
    from configparser import ConfigParser

    ini = ConfigParser(delimiters=["="])
    ini.read(ROOT / "settings.ini", encoding="utf-8")
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "nbdev"
    ]
    assert {"nbs_path", "lib_path", "tst_flags", "custom_sidebar"} == table.keys()
    nothing(
        [
            f"{key}: {value!r}, {ini['DEFAULT'][key]!r}"
            for key, value in table.items()
            if str(value) != ini["DEFAULT"][key]
        ],
        "pyproject.toml and settings.ini differ there",
    )


def test_signatures_are_drawn_without_running_checks(tmp_path):
    "nbdev's own documentation runs exported cells only: a check that would fail is not run; text below the lead is kept; a link within a link is one."
    text = "Text below. [see `refuse` there](page.ipynb), the column `raw`, `compare` and the command `init`."
    cells = [
        nbformat.v4.new_markdown_cell(f"# Page\n> Lead?\n\n{text}"),
        nbformat.v4.new_code_cell("#| default_exp page"),
        nbformat.v4.new_code_cell("#| exports\ndef f(\n    x: int,  # a number\n): 'Doc.'"),
        nbformat.v4.new_code_cell("import not_there"),
    ]
    (tmp_path / "nbs").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "nbs" / "page.ipynb")
    shutil.copy(ROOT / "settings.ini", tmp_path)
    (tmp_path / "run.py").write_text(
        "if __name__ == '__main__': from nbdev.serve import proc_nbs; proc_nbs('nbs', n_workers=0)"
    )
    r = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    page = (
        (tmp_path / "_proc" / "page.ipynb").read_text()
        if r.returncode == 0
        else r.stderr[-2000:]
    )
    assert "x:int, # a number" in page, page
    at = "https://invar-nb.github.io/invar_nb/"
    assert (
        f"Text below. [see `refuse` there](page.ipynb), the column `raw`, [`compare`]({at}comparison/study.html#compare) "
        f"and the command [`init`]({at}shell/cli.html#init)."
    ) in page, page


def test_an_editable_install_finds_the_processor_of_the_pages(tmp_path):
    "`nbdev_proc_nbs` imports what `procs` names: a module of tools/, which no user's `import invar_nb` sees. So a clone that is installed with `-e` is on the path."
    import invar_nb

    nothing(
        [
            n
            for n, v in vars(invar_nb).items()
            if isinstance(v, type) and v.__module__ == "invar_nb"
        ],
        "a class in the users' __init__.py",
    )
    project = tmp_path / "project"
    (project / "invar_nb").mkdir(parents=True)
    (project / "invar_nb" / "__init__.py").touch()
    for name in ("setup.py", "pyproject.toml", "settings.ini", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    code = (
        f"from setuptools.build_meta import build_editable; build_editable({str(tmp_path)!r})"
    )
    r = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True
    )
    assert r.returncode == 0, r.stderr[-2000:]
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        paths = [
            wheel.read(n).decode().strip() for n in wheel.namelist() if n.endswith(".pth")
        ]
    assert [Path(p).resolve() for p in paths] == [project.resolve()]
    module, name = re.search(
        r"^procs = (\S+):(\w+)$", (ROOT / "settings.ini").read_text(), re.M
    ).groups()
    found = subprocess.run(
        [sys.executable, "-c", f"from {module} import {name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert module.startswith("tools.") and found.returncode == 0, found.stderr


_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.S)
_DECIMAL = re.compile(r"(?<![\w./-])[-−+]?(\d+\.\d+)(?![\w/]|\.\d)")
_ANY = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)", re.I)


def unbacked_decimals(nb):
    "Decimals in prose that neither the page's code nor its outputs know (rounding to the prose's digits and per cent are fine)."
    known = set()
    for c in nb.cells:
        if c.cell_type != "code":
            continue
        text = (
            c.source
            + "\n"
            + "\n".join(t for _, t in pages.shown(nbformat.from_dict({"cells": [c]})))
        )
        known |= {float(m) for m in _ANY.findall(text.replace("_", ""))}
    found, section = [], ""
    for i, c in enumerate(nb.cells):
        if c.cell_type != "markdown":
            continue
        for block in re.split(r"(?m)^(?=## )", c.source):
            head = re.match(r"## (.+)", block)
            if head:
                section = head[1].strip()
            if section == "References":
                continue
            prose = re.sub(
                r"```.*?```|`[^`]*`|<svg.*?</svg>", " ", _LINK.sub("] ", block), flags=re.S
            )
            prose = "\n".join(
                re.sub(r"3\.1\d\b", " ", line) if "ython" in line else line
                for line in prose.split("\n")
            )  # Python's own versions
            prose = re.sub(
                r"https?://\S+|doi:\S+|\b10\.\d{4,}/\S+|\((\d+\.\d+)\)|(?:Eq|eq|equation|section|Section|§|[Pp]ython|torch|PyTorch|nbdev|Apache[- ]|v)\.?\s*\(?\d+\.\d+\)?|\d+\.\d+\.\d+",
                " ",
                prose,
            )
            for m in _DECIMAL.finditer(prose):
                digits, places = float(m[1]), len(m[1].split(".")[1])
                if any(
                    abs(round(x, places) - digits) < 1e-12
                    or abs(round(100 * x, places) - digits) < 1e-9
                    for x in known
                ):
                    continue
                found.append(f"cell {i}: {m[0]}")
    return found


@pytest.mark.parametrize("path", ALL, ids=pages.page_id)
def test_numbers_in_prose_are_computed(path):
    nothing(
        unbacked_decimals(pages.read(path)),
        "these decimals are typed in the prose, and the page computes no such number",
    )


def test_equations_are_labelled_once_and_found():
    labels, uses = Counter(), {}
    for p in ALL:
        text = "\n\n".join(c.source for c in pages.read(p).cells if c.cell_type == "markdown")
        labels.update(re.findall(r"\$\$\s*\{#(eq-[\w-]+)\}", text))
        uses[rel(p)] = set(re.findall(r"(?<![\w@])@(eq-[\w-]+)", re.sub(r"`[^`]*`", "", text)))
    nothing([k for k, n in labels.items() if n > 1], "a label is used twice over the site")
    lost = {p: sorted(u - labels.keys()) for p, u in uses.items() if u - labels.keys()}
    nothing(list(lost.items()), "no such equation")


def test_links_between_pages_resolve():
    broken = []
    for p in ALL:
        for c in pages.read(p).cells:
            if c.cell_type != "markdown":
                continue
            for target in _LINK.findall(re.sub(r"`[^`]*`", "", c.source)):
                if re.match(r"[a-z]+:|#|mailto", target):
                    continue
                if not (p.parent / target.split("#")[0]).exists():
                    broken.append(f"{rel(p)}: {target}")
    nothing(broken, "links that lead nowhere")


def foreign():
    "What the pages cite of other projects, as typed: a path, or a name that one of ours has, too."
    with (ROOT / "tests/data/foreign.csv").open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


FOREIGN_PATH = re.compile(
    r"`((?:[\w.-]+/)*[\w-]+\.(?:py|cpp|h|sh|md|rs)|[\w-]+(?:/[\w.-]+)+)`"
)


def cited_paths(nb, projects):
    "Paths in back-ticks in lines that name one of the projects or a commit; files of our own aside: [(path, line)]."
    text = "\n".join(
        re.sub(r"```.*?```", "", c.source, flags=re.S)
        for c in nb.cells
        if c.cell_type == "markdown"
    )
    lines = [
        line
        for line in text.split("\n")
        if re.search(r"\bcommit [0-9a-f]{7}", line)
        or any(project in line for project in projects)
    ]
    return [
        (path, line)
        for line in lines
        for path in FOREIGN_PATH.findall(line)
        if not (ROOT / path).exists()
    ]


def test_paths_of_others_are_as_they_were_typed():
    "A page of ours may be renamed, and whatever renames it must not touch a citation. Each path was looked up in its repository."
    rows = [row for row in foreign() if row["path"]]
    cited = {
        pages.page_id(p): cited_paths(pages.read(p), {row["project"] for row in rows})
        for p in ALL
    }
    known = {(row["page"], row["cited"]) for row in rows}
    nothing(
        [
            f"{page}: {path}"
            for page, found in cited.items()
            for path, _ in found
            if (page, path) not in known
        ],
        "look it up in its repository and add it to tests/data/foreign.csv",
    )
    nothing(
        [
            f"{row['page']}: `{row['cited']}`, {row['version']}"
            for row in rows
            if not any(
                path == row["cited"] and row["project"] in line and row["version"] in line
                for path, line in cited[row["page"]]
            )
        ],
        "no page cites that",
    )
    nothing(
        [row["cited"] for row in rows if row["cited"] not in row["path"]],
        "not the path in the repository",
    )


# --- the stairs -----------------------------------------------------------------------------------------------------------------------
def number_of():
    "(layer, number) of each module: imports go to smaller ones only."
    return {
        f"invar_nb.{MODULE_OF[p]}": (
            pages.LAYERS.index(p.parent.name),
            int(re.match(r"\d+", p.name)[0]),
        )
        for p in ROOMS
    }


def imported(tree, module):
    "Names that a module imports, at top or inside functions; not for type checkers alone."
    of_types = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inside in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in of_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            name = ".".join(base + ([node.module] if node.module else []))
            yield name, node.lineno
            yield from ((f"{name}.{a.name}", node.lineno) for a in node.names)


def upward(tree, module, numbers):
    "Imports that do not go down: of a room with the same or a larger number, of a room that is none, of the package root."
    found = []
    for name, line in imported(tree, module):
        if not name.startswith("invar_nb"):
            continue
        room = next((m for m in numbers if name == m or name.startswith(m + ".")), None)
        if room:
            numbers[room] < numbers[module] or found.append(f"{module}:{line} imports {name}")
        elif name == "invar_nb" or name.startswith("invar_nb."):
            is_prefix = any(m.startswith(name + ".") for m in numbers) and name != "invar_nb"
            if not is_prefix and name not in ("invar_nb", "invar_nb.__version__"):
                found.append(f"{module}:{line} imports {name}")
    return found


def test_the_stairs():
    numbers, found = number_of(), []
    for m in MODULES:
        name = "invar_nb." + m.relative_to(LIB).with_suffix("").as_posix().replace("/", ".")
        if name in numbers:
            found += upward(ast.parse(m.read_text()), name, numbers)
    nothing(found, "a room imports only rooms with a smaller number")


def test_the_stairs_can_be_broken():
    numbers = {
        "invar_nb.foundations.a": 0,
        "invar_nb.comparison.b": 30,
        "invar_nb.report.c": 50,
    }
    for source in (
        "from ..report.c import x",
        "def f():\n    from invar_nb.report import c",
        "import invar_nb.report.c",
        "from .b import x",
        "from invar_nb import compare",
        "from ..nowhere import y",
    ):
        assert upward(ast.parse(source), "invar_nb.comparison.b", numbers), source
    assert not upward(
        ast.parse(
            "from ..foundations.a import x\nimport numpy\nfrom invar_nb import __version__"
        ),
        "invar_nb.comparison.b",
        numbers,
    )


# --- forbidden patterns ---------------------------------------------------------------------------------------------------------------
GENERATORS = {
    "default_rng",
    "Generator",
    "SeedSequence",
    "BitGenerator",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "MT19937",
    "SFC64",
}


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def sins(tree, library=False):
    "Patterns that hide errors or make results depend on more than the arguments."
    found = []

    def say(node, what):
        found.append(f"line {getattr(node, 'lineno', 0)}: {what}")

    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names):
            say(n, "star import")
        if isinstance(n, ast.ExceptHandler):
            kinds = (
                [
                    dotted(k)
                    for k in (n.type.elts if isinstance(n.type, ast.Tuple) else [n.type])
                ]
                if n.type
                else [""]
            )
            again = (
                isinstance(n.body[-1], ast.Raise) and n.body[-1].exc is None
            )  # tidying up, then the same error goes on
            if {"", "Exception", "BaseException"} & set(kinds) and not again:
                say(n, "broad except")
        if isinstance(n, ast.Call):
            name = dotted(n.func)
            if (
                name == "zip"
                and not any(
                    k.arg == "strict" and getattr(k.value, "value", None) is True
                    for k in n.keywords
                )
                and len(n.args) > 1
            ):
                say(n, "zip without strict=True")
            if (
                re.match(r"(np|numpy)\.random\.\w+$", name)
                and name.split(".")[-1] not in GENERATORS
            ):
                say(n, f"global random state: {name}")
            if library and name == "print":
                say(n, "print in the library")
            if (
                library
                and name == "setattr"
                and not (n.args and isinstance(n.args[0], ast.Name) and n.args[0].id == "self")
            ):
                say(n, "patching with setattr")
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            for d in n.decorator_list:
                if re.match(
                    r"(fastcore\.\w+\.)?patch(_to|_property)?$",
                    dotted(d.func if isinstance(d, ast.Call) else d),
                ):
                    say(n, "patching")
        if isinstance(n, ast.Assert):
            if isinstance(n.test, ast.Constant) or (
                isinstance(n.test, ast.Tuple) and n.test.elts
            ):
                say(n, "an assert that cannot fail")
            elif library:
                say(n, "assert in the library")
        if isinstance(n, (ast.Import, ast.ImportFrom)):
            names = (
                [a.name for a in n.names] if isinstance(n, ast.Import) else [n.module or ""]
            )
            if any(
                x.split(".")[0] in ("mock", "nose") or x.startswith("unittest.mock")
                for x in names
            ):
                say(n, "mocking")
            if library and any(
                x.split(".")[0] in ("nbdev", "fastcore", "IPython", "pytest", "hypothesis")
                for x in names
            ):
                say(n, f"the library imports {names}")
            wide = names + (
                [f"{n.module}.{a.name}" for a in n.names]
                if isinstance(n, ast.ImportFrom)
                else []
            )
            if (
                library
                and n.col_offset == 0
                and any(
                    x.startswith("scipy.")
                    and x.split(".")[1] not in ("special", "optimize", "fft", "sparse")
                    and "." in x
                    for x in wide
                    if x.count(".") and x.split(".")[0] == "scipy"
                )
            ):
                say(
                    n,
                    f"scipy beyond special, optimize, fft, sparse, and not inside a function: {wide}",
                )
    return found


def test_no_forbidden_pattern():
    found = {
        where: s
        for where, tree in trees()
        if (s := sins(tree, library=where.startswith("invar_nb/") and "_modidx" not in where))
    }
    plugin = (
        "invar_nb/ci/plugin.py",
        "imports ['pytest']",
    )  # which pytest itself imports
    nothing(
        [
            f"{where}: {x}"
            for where, xs in found.items()
            for x in xs
            if not (where == plugin[0] and x.endswith(plugin[1]))
        ]
    )


@pytest.mark.parametrize(
    "sin",
    [
        "from math import *",
        "try: f()\nexcept Exception: pass",
        "try: f()\nexcept: pass",
        "try: f()\nexcept (ValueError, BaseException) as e: pass",
        "for a, b in zip(x, y): pass",
        "zip(x, y, strict=False)",
        "np.random.normal(3)",
        "numpy.random.seed(0)",
        "print(1)",
        "setattr(Other, 'f', g)",
        "@patch\ndef f(self: Other): pass",
        "assert True",
        "assert (x == 1, 'never')",
        "assert x == 1",
        "from unittest.mock import patch",
        "import scipy.stats",
        "from scipy import stats",
        "from nbdev.showdoc import show_doc",
    ],
)
def test_each_forbidden_pattern_is_found(sin):
    assert sins(ast.parse(sin), library=True)


def test_allowed_patterns_are_not_called_sins():
    fine = "try: f()\nexcept BaseException:\n    tidy()\n    raise\nfrom scipy.special import ndtri\nfrom scipy import special\ndef f():\n    from scipy import stats\nrng = np.random.default_rng(0)\nfor a, b in zip(x, y, strict=True): pass\ntry: f()\nexcept (ValueError, OSError): pass"
    assert not sins(ast.parse(fine), library=True)


HEAVY = ("torch", "transformers", "safetensors", "tokenizers", "pyarrow", "matplotlib", "ray")


def heavy_at_top(tree):
    return [
        f"line {n.lineno}: {a}"
        for n in tree.body
        if isinstance(n, (ast.Import, ast.ImportFrom))
        for a in ([x.name for x in n.names] if isinstance(n, ast.Import) else [n.module or ""])
        if a.split(".")[0] in HEAVY
    ]


def test_heavy_packages_are_imported_inside_functions():
    found = {rel(m): h for m in MODULES if (h := heavy_at_top(ast.parse(m.read_text())))}
    assert not found, found
    assert heavy_at_top(ast.parse("import numpy\nimport torch.nn as nn"))


def hidden_public(nb):
    "Public functions and classes of a cell whose source the page does not show."
    found = []
    for i, c in enumerate(nb.cells):
        d = pages.directives(c)
        if c.cell_type == "code" and ("export" in d or "exporti" in d):
            found += [
                f"cell {i}: {n.name}"
                for n in parse_cell(c.source).body
                if isinstance(n, (ast.FunctionDef, ast.ClassDef))
                and not n.name.startswith("_")
            ]
    return found


def undocumented(nb):
    return [
        f"cell {i}: {n.name}"
        for i, c in enumerate(nb.cells)
        if "exports" in pages.directives(c)
        for n in parse_cell(c.source).body
        if isinstance(n, (ast.FunctionDef, ast.ClassDef))
        and not n.name.startswith("_")
        and not ast.get_docstring(n)
    ]


@pytest.mark.parametrize("path", ROOMS, ids=pages.page_id)
def test_public_definitions_are_shown(path):
    nothing(hidden_public(pages.read(path)), "use `#| exports`")
    nothing(undocumented(pages.read(path)), "a public definition has no docstring")


# --- words and paths ------------------------------------------------------------------------------------------------------------------
FORBIDDEN = [
    r"(?<![\w.~)])/(?:work|root|home|Users|farm)/[\w.]",
    r"(?<![\w.])/tmp/[\w.]",
    r"index[-_]url",
    r"pythonhosted",
    r"(?:download|index)\.pytorch\.org",
    r"(?<![\w.])pypi\.(?:org|python)",
    r"[A-Z]:\\\\?Users",
]


def own_text():
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    for f in filter(None, files):
        p = ROOT / f
        if (
            p.is_file()
            and not p.is_symlink()
            and p.suffix not in (".safetensors", ".png", ".parquet")
            and p.name != Path(__file__).name
        ):
            yield f, p.read_text(encoding="utf-8", errors="replace")


def test_no_machine_paths_and_no_index_hosts():
    found = [
        f"{name}: {m[0]!r}"
        for name, text in own_text()
        for pattern in FORBIDDEN
        for m in re.finditer(pattern, text)
    ]
    nothing(found)
    assert all(
        any(re.search(p, sin) for p in FORBIDDEN)
        for sin in (
            "see /" + "home/me/x",
            "'/tmp" + "/x.json'",
            "--index" + "-url x",
            "https://pypi" + ".org/simple",
        )
    )


# --- import budget --------------------------------------------------------------------------------------------------------------------
def loaded(statement):
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.parametrize("cell", ["text", "number"])
def test_a_compare_of_two_tables_does_not_import_pandas(cell, tmp_path):
    "pyarrow imports it in `to_numpy` where it is installed: half a second of each comparison."
    name, rows = {"text": ("csv", "{},{}"), "number": ("parquet", None)}[cell]
    paths = [tmp_path / f"{arm}.{name}" for arm in ("old", "new")]
    for i, path in enumerate(paths):
        scores = [((7 * row + i) % 10) / 10 for row in range(40)]
        if rows:
            lines = [rows.format(row, score) for row, score in enumerate(scores)]
            path.write_text("\n".join(["id,f1", *lines]) + "\n")
        else:
            ids = [str(row) for row in range(40)]
            pyarrow.parquet.write_table(pyarrow.table({"id": ids, "f1": scores}), path)
    options = ["--score", "f1", "--better", "higher", "--out", str(tmp_path / "report")]
    command = ["compare", *map(str, paths), *options]
    found = loaded(f"import invar_nb.shell.cli as cli; assert cli.main({command}) < 2")
    assert "pyarrow" in found and not found & {"pandas", "scipy.optimize"}


@pytest.mark.parametrize(
    "statement",
    ["import invar_nb", "import invar_nb; dir(invar_nb)", "import invar_nb.shell.cli"],
)
def test_import_is_light(statement):
    found = loaded(statement) & {
        "torch",
        "transformers",
        "scipy",
        "scipy.stats",
        "matplotlib",
        "pyarrow",
        "numpy",
        "IPython",
        "nbdev",
        "fastcore",
    }
    assert not found, f"{statement} loads {sorted(found)}"


def test_light_imports_are_measured_at_all():
    assert "numpy" in loaded("import numpy") and "invar_nb" in loaded("import invar_nb")


def test_public_names_resolve():
    import invar_nb

    missing = [n for n in invar_nb.__all__ if not hasattr(invar_nb, n)]
    assert not missing
    with pytest.raises(AttributeError, match="no attribute"):
        invar_nb.not_a_name
    page_of = {module: p for p, module in MODULE_OF.items()}
    for room in set(invar_nb._module_of.values()):
        names = {n for n, module in invar_nb._module_of.items() if module == room}
        nb = pages.read(page_of[room])
        shown = {
            n
            for c in nb.cells
            if "exports" in pages.directives(c)
            for s in parse_cell(c.source).body
            for n in (
                [s.name]
                if hasattr(s, "name")
                else [
                    n.id
                    for t in getattr(s, "targets", [])
                    for n in ast.walk(t)
                    if isinstance(n, ast.Name)
                ]
            )
        }
        assert names <= shown, f"{room} does not export {sorted(names - shown)}"


def deep_imports(nb):
    "Imports from inside the package that a reader of a page sees."
    return [
        f"cell {i}: {n.module}"
        for i, c in enumerate(nb.cells)
        if c.cell_type == "code"
        and "hide" not in pages.directives(c)
        and not c.source.startswith("%%")
        for n in ast.walk(parse_cell(c.source))
        if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("invar_nb.")
    ]


@pytest.mark.parametrize(
    "page",
    [p for p in ALL if p not in ROOMS and p.stem not in ("train_demo", "what_your_gate_sees")],
    ids=pages.page_id,
)  # one makes files of the package, one rates a test without a public name
def test_tutorials_and_guides_import_from_the_package_alone(page):
    nothing(
        deep_imports(pages.read(page)),
        "import it from invar_nb, or from a cell with `#| hide` where readers need not see it",
    )


def test_an_import_from_inside_is_seen():
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                "from invar_nb import pair\nfrom invar_nb.arms.pair import pair"
            )
        ]
    )
    assert deep_imports(nb) == ["cell 0: invar_nb.arms.pair"]


def unseen_names(nb):
    "Names that a cell which readers see uses, and no cell before it that they see defines or imports."
    found, seen = [], set(dir(builtins)) | {"__name__", "__file__"}
    for i, c in enumerate(nb.cells):
        d = pages.directives(c)
        if (
            c.cell_type != "code"
            or "hide" in d
            or d.get("echo") == "false"
            or c.source.startswith("%%")
        ):
            continue
        top = symtable.symtable(MAGIC.sub("pass", c.source), "cell", "exec")
        tables = [top]
        for table in tables:
            tables += table.get_children()
        seen |= {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
        used = {
            s.get_name()
            for table in tables
            for s in table.get_symbols()
            if s.is_referenced() and (table is top or s.is_global())
        }
        found += [f"cell {i}: {name}" for name in sorted(used - seen)]
    return found


@pytest.mark.parametrize(
    "page", [p for p in ALL if p.parent.name in ("tutorials", "guides")], ids=pages.page_id
)
def test_visible_cells_need_no_hidden_ones(page):
    nothing(
        unseen_names(pages.read(page)),
        "a reader cannot run that: import or define it in a cell that is shown, or hide the input, too",
    )


TAUGHT = {
    "statistics": (
        "01_jackknife",
        "02_serial",
        "05_paired_test",
        "06_proportions",
        "07_multiplicity",
        "08_simultaneous",
        "09_sequential",
    ),
    "comparison": ("00_units", "02_claim"),
    "metrics": ("04_calibration",),
}  # pages of the book and its methods, from which students paste cells


def taught_part(nb):
    "The cells before the implementation, without the library's own, which are not shown."
    cells = itertools.takewhile(lambda c: "## Implementation" not in c.source, nb.cells)
    shown = [c for c in cells if "export" not in pages.directives(c)]
    return nbformat.v4.new_notebook(cells=shown)


@pytest.mark.parametrize(
    "page",
    [p for p in ALL if p.stem in TAUGHT.get(p.parent.name, ())],
    ids=pages.page_id,
)
def test_pasted_cells_of_the_book_need_no_hidden_import(page):
    nothing(
        unseen_names(taught_part(pages.read(page))),
        "import it in the folded cell `Imports of the cells below`",
    )


def test_a_name_from_a_hidden_cell_is_seen():
    cells = [
        "#| hide\nimport os\nimport re",
        "import re",
        "def f(x, y=re): return [os.sep + z for z in x if (w := z)]",
        "#| echo: false\ng = 1\nprint(os.sep)",
        "print(f(['a']), g)",
    ]
    assert unseen_names(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in cells])
    ) == ["cell 2: os", "cell 4: g"]


def ruff(*words):
    return subprocess.run(
        [sys.executable, "-m", "ruff", *words], cwd=ROOT, capture_output=True, text=True
    )


def test_everything_is_formatted():
    done = ruff("format", "--no-cache", "--check", ".")
    nothing(done.stdout.splitlines()[:20] if done.returncode else [], "run make format")


def test_no_exported_cell_takes_a_name_from_one_that_is_not():
    done = ruff(
        "check", "--no-cache", "--select", "F", "--output-format", "concise", "invar_nb"
    )
    nothing(done.stdout.splitlines()[:20] if done.returncode else [])


def test_what_stands_against_a_rule_only_shrinks():
    rows = [*ratchets.changes(ratchets.all_counts(), ratchets.read_baseline())]
    nothing(
        [f"{rule}: {place}: {before} before, {now} now" for rule, place, before, now in rows],
        "mend what grew; what became smaller is kept by python tools/ratchets.py --write",
    )


@pytest.mark.parametrize(
    "rule, source",
    [
        ("text or list times a condition", "rows = [1] * is_long"),
        ("lambda with a name", "f = lambda x: x"),
        ("several values in one assignment", "a, b = 1, 2"),
        ("comprehension with two for", "z = [x for y in z for x in y]"),
        ("import of the package's root", "from invar_nb import compare"),
    ],
)
def test_each_rule_sees_its_example(rule, source):
    assert sum(map(ratchets.RULES[rule], ast.walk(ast.parse(source)))) == 1
    clean = "a = 2 * b\n(low, high) = ends\nz = [x for x in y]\nfrom invar_nb.arms import arm"
    assert not any(map(ratchets.RULES[rule], ast.walk(ast.parse(clean))))


def test_branches_in_expressions_count():
    source = "def f(x):\n    if x and y or z:\n        return [a for a in b if a]\n    return 1 if x else 2"
    assert ratchets.complexity(ast.parse(source).body[0]) == 7


# --- packaging and the site -----------------------------------------------------------------------------------------------------------
def test_versions_agree():
    from configparser import ConfigParser

    import invar_nb

    ini = ConfigParser(delimiters=["="])
    ini.read(ROOT / "settings.ini")
    version = ini["DEFAULT"]["version"]
    assert invar_nb.__version__ == version
    assert re.search(
        rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M
    )
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_page_is_in_the_sidebar():
    yaml = pytest.importorskip("yaml")

    def walk(items):
        for i in items:
            if isinstance(i, str):
                yield i
            elif "section" in i:
                yield from walk(i["contents"])
            else:
                yield i["href"]

    listed = list(
        walk(
            yaml.safe_load((ROOT / "_quarto.yml").read_text())["website"]["sidebar"][
                "contents"
            ]
        )
    )
    here = {p.relative_to(pages.nbs).as_posix() for p in ALL}
    nothing(
        sorted(set(listed) ^ here) + [x for x, n in Counter(listed).items() if n > 1],
        "_quarto.yml and nbs/ differ there",
    )


def test_readme_is_rendered_from_index():
    import build_readme

    nothing(
        []
        if (ROOT / "README.md").read_text() == build_readme.render()
        else ["README.md is not what nbs/index.ipynb says"],
        "run `python tools/build_readme.py`",
    )
