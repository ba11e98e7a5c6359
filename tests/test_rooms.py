"""Every page is a test, twice: as the reader runs it, and in the slow suite on the installed library.

1. In a fresh kernel, offline, top to bottom: it must not stop, and the text stored under its cells must be what this run shows.
2. Again with every exported cell replaced by the installed module: its checks then judge the library itself, not notebook cells. What only
   this can find, a name that an exported cell takes from one that is not exported, ruff finds in the module; `make room` runs both.
Both kernels are forked from a process that has imported NumPy, SciPy, PyTorch and the like, and nothing of ours. `make fresh`, which stored
the outputs, starts each interpreter from nothing: a page that showed something else there is stale here."""

import platform
import re

import nbformat
import pages
import pytest
from conftest import WANTED

ALL = pages.pages()
ROOMS = [p for p in ALL if pages.exported_module(pages.read(p))]
ids = pages.page_id
MARKED = [
    p for p in ALL if any("processor" in pages.directives(c) for c in pages.read(p).cells)
]  # `#| processor: true` in a cell


def run_or_say(path, record_property, **kw):
    "Run; a page of a floor that may use PyTorch is reported as not run where there is none."
    error = None
    try:
        nb, seconds = pages.run(path, **kw)
    except pages.PageError as e:
        error = e
    if error:
        floor = path.parent.name if path.parent != pages.nbs else ""
        may_need = floor in pages.TORCH_LAYERS or ids(path) in pages.TORCH_PAGES
        if error.needs_torch and WANTED == "no" and may_need:
            pytest.skip(f"needs torch: {ids(path)}")
        pytest.fail(str(error), pytrace=False)
    record_property(
        f"page {ids(path)}{' (installed)' if kw.get('installed') else ''}", f"{seconds:.2f}"
    )
    return nb


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.processor if p in MARKED else ()) for p in ALL],
    ids=ids,
)
def test_page_shows_what_a_fresh_run_shows(path, record_property):
    fresh = run_or_say(path, record_property, warm=True)
    shown = [
        v
        for _, t in pages.shown(pages.read(path))
        for v in re.findall(r"\bPython (\d+\.\d+(?:\.\d+)?)\b", t)
    ]
    other = {v for v in shown if not f"{platform.python_version()}.".startswith(f"{v}.")}
    if other:
        pytest.skip(
            f"ran, but not compared: the stored outputs are those of Python {', '.join(sorted(other))}, whose own text this page reads: {ids(path)}"
        )
    stale = pages.differences(pages.read(path), fresh)
    if stale:
        pytest.fail(
            "\n".join(
                [
                    f"{ids(path)}: outputs are stale; `make fresh R={path.stem}` stores them again",
                    *stale,
                ]
            ),
            pytrace=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize("path", ROOMS, ids=ids)
def test_page_holds_on_the_installed_module(path, record_property):
    run_or_say(path, record_property, installed=True, warm=True)


@pytest.mark.slow
def test_slow_cells(record_property):
    for path in ALL:
        if not any("slow" in pages.directives(c) for c in pages.read(path).cells):
            continue
        stored, fresh = (
            pages.read(path),
            run_or_say(path, record_property, slow=True, timeout=7200),
        )
        for old, new in zip(stored.cells, fresh.cells, strict=True):
            if old.cell_type == "code" and not old.outputs:
                new.outputs = []  # a slow cell whose output nobody keeps
        if stale := pages.differences(stored, fresh):
            pytest.fail("\n".join(stale), pytrace=False)


# --- the checks above can fail: each is shown a page it must refuse -----------------------------------------------------------------
@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "nbs", tmp_path)

    def write(*sources):
        path = tmp_path / "scratch.ipynb"
        nbformat.write(
            nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources]),
            path,
        )
        return path

    return write


def test_a_failing_cell_is_caught(scratch):
    with pytest.raises(pages.PageError, match="scratch stopped(.|\n)*AssertionError"):
        pages.run(scratch("assert 1 + 1 == 3"))


def test_the_network_is_out_of_reach(scratch):
    for source in (
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)",
        "import urllib.request as u; u.urlopen('http://example.org')",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', \"import socket; socket.getaddrinfo('example.org', 80)\"], check=True)",
    ):
        with pytest.raises(pages.PageError, match="pages run offline|non-zero exit"):
            pages.run(scratch(source))


def test_a_stale_output_is_caught(scratch):
    fresh, _ = pages.run(scratch("print('0.0217')", "1 / 3"))
    for cell, old in ((0, "0.0218"), (1, "0.3333333333339")):
        stored = nbformat.reads(nbformat.writes(fresh), 4)
        output = stored.cells[cell].outputs[0]
        if cell == 0:
            output.text = old + "\n"
        else:
            output.data["text/plain"] = old
        assert pages.differences(stored, fresh)
    same = nbformat.reads(nbformat.writes(fresh), 4)
    same.cells[1].outputs[0].data["text/plain"] = (
        "0.3333333333333334"  # the last bit is the machine's business
    )
    assert not pages.differences(same, fresh)


def test_who_reads_a_page_has_a_copy_of_what_it_is_now(scratch):
    path = scratch("x = 1")
    pages.read(path).cells.clear()
    assert len(pages.read(path).cells) == 1
    assert len(pages.read(scratch("x = 1", "x + 1")).cells) == 2


@pytest.mark.parametrize(
    "stored, fresh, alike",
    [
        ("got 1.0013921727347321. Let", "got 1.001392172734732. Let", True),
        ("got 1.00139217273. Let", "got 1.00139217274. Let", False),
        ("numpy 2.13.0", "numpy 2.13.1", False),
        ("1.2.0000000000001", "1.2.0000000000002", False),
    ],
)
def test_what_counts_as_the_last_bit_of_a_number(stored, fresh, alike):
    page = lambda text: nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                "", outputs=[nbformat.v4.new_output("stream", text=text)]
            )
        ]
    )
    assert bool(pages.differences(page(stored), page(fresh))) is not alike


def test_a_broken_library_is_caught_even_where_the_page_is_whole(
    scratch, tmp_path, monkeypatch
):
    "The page's own cell is right; the installed module has been edited by hand: only the second kind of run can see it."
    page = scratch(
        "#| default_exp broken",
        "#| exports\ndef double(x): return 2 * x",
        "assert double(2) == 4",
    )
    package = tmp_path / "site" / "invar_nb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("def double(x): return 2 * x + 1\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    pages.run(page)
    with pytest.raises(pages.PageError, match="AssertionError"):
        pages.run(page, installed=True)
