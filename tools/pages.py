"""The notebooks of the project: find, run, compare with their stored outputs, and export them.

python tools/pages.py room 04_bootstrap      export one page, run it, run it again on the installed module
python tools/pages.py fresh [NAME...]  run pages in place, store the outputs, clean, export
"""

import argparse
import atexit
import difflib
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import zip_longest
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # stored outputs are a CPU's
caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("MPLCONFIGDIR", str(caches / "matplotlib"))  # its fonts are found once
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # what tests score is not this account's
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
root = Path(__file__).resolve().parent.parent
nbs, lib = root / "nbs", root / "invar_nb"
LAYERS = (
    "foundations",
    "statistics",
    "arms",
    "metrics",
    "comparison",
    "files",
    "readers",
    "models",
    "runs",
    "report",
    "shell",
    "ci",
)  # imports go down
TORCH_LAYERS = (
    "models",
    "report",
    "shell",
    "tutorials",
    "guides",
    "",
)  # the other layers never need torch
TORCH_PAGES = ("files/04_gguf_header",)  # it reads what the package gguf wrote
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*\|[ \t]*(\w+):?[ \t]*(.*)$", re.M)


class PageError(AssertionError):
    """A page stopped with an error.

    `needs_torch`: whether it stopped because PyTorch or a package that comes with it is
    missing.
    """

    def __init__(self, message, needs_torch=False):
        super().__init__(message)
        self.needs_torch = needs_torch


def pages():
    "Every notebook of the project, in reading order."
    found = [
        f
        for f in nbs.rglob("*.ipynb")
        if not any(p[0] in "._" for p in f.relative_to(nbs).parts)
    ]
    order = {layer: i for i, layer in enumerate(LAYERS)}
    return sorted(
        found, key=lambda f: (order.get(f.parent.name, -1 if f.stem == "index" else 9), f.name)
    )


def rooms():
    "The numbered notebooks, which export a module each."
    return [f for f in pages() if re.match(r"\d+_", f.name)]


def page_id(path):
    "The path of a page below nbs/ without suffix; for a copy elsewhere, its name."
    within = path.relative_to(nbs) if path.is_relative_to(nbs) else Path(path.name)
    return within.with_suffix("").as_posix()


def read(path):
    "A page as it is in its file now; a new copy for each caller."
    status = path.stat()
    return pickle.loads(_parsed(path, status.st_mtime_ns, status.st_size))


@cache
def _parsed(path, changed_at, size):
    """The parsed page of a file, pickled; remembered until the file changes.

    Unpickling takes a fifth of the time of parsing.
    """
    import nbformat

    return pickle.dumps(nbformat.read(path, 4))


def directives(cell):
    """Directive -> its text, of a code cell: `#| eval: false` is {"eval": "false"}."""
    return (
        {k: v.strip() for k, v in DIRECTIVE.findall(cell.source)}
        if cell.cell_type == "code"
        else {}
    )


def exported_module(nb):
    """The dotted name that a page exports to, after `#| default_exp`;

    None where it exports none.
    """
    return next(
        (d["default_exp"] for c in nb.cells if (d := directives(c)).get("default_exp")), None
    )


def skipped(cell, slow=False):
    "Whether a cell is not run: marked eval: false or notest, or slow unless asked for."
    d = directives(cell)
    return d.get("eval") == "false" or "notest" in d or ("slow" in d and not slow)


_INSTALLED = """import importlib as _il
_m = _il.import_module("invar_nb.{module}")
globals().update({{k: v for k, v in vars(_m).items() if not k.startswith("__")}})
del _il, _m"""


def as_installed(nb):
    """The page with its exported cells replaced by an import of the installed module.

    Its checks then check the library itself.
    """
    module = exported_module(nb)
    for c in nb.cells:
        d = directives(c)
        if "default_exp" in d:
            c.source = _INSTALLED.format(module=module)
        elif d.keys() & {"export", "exports", "exporti"}:
            c.source = ""
    return nb


@cache
def account():
    """A folder that stands in for what the package keeps in a user's home.

    It exists, as on a machine where another page ran before; tests/offline stops whoever opens
    it.
    """
    kept = Path(tempfile.mkdtemp(prefix="account-"), "invar-nb")
    kept.mkdir(mode=0o700)
    atexit.register(shutil.rmtree, kept.parent, ignore_errors=True)
    return str(kept.parent)


def environment():
    """The environment variables of a page: one core, no display, no model hub, no network.

    tests/offline, which is put on the path, blocks the network and the user's home.
    """
    env = dict(os.environ, XDG_CACHE_HOME=account())
    env["INVAR_NB_ACCOUNT"] = str(Path(account(), "invar-nb"))
    env.update(
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        TQDM_DISABLE="1",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        TOKENIZERS_PARALLELISM="false",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
        PYTHONHASHSEED="0",
        COLUMNS="100",
        NO_COLOR="1",
    )
    env.pop("FORCE_COLOR", None)
    env["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(root / "tests" / "offline"), env.get("PYTHONPATH")])
    )
    return env


@cache
def warm_server():
    "Start the process that forks kernels; its address. It ends with this process."
    address = os.path.join(tempfile.mkdtemp(prefix="warm-"), "s")
    server = subprocess.Popen(
        [sys.executable, root / "tools/warm.py", "serve", address],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(
        lambda: (server.stdin.close(), server.wait(), shutil.rmtree(os.path.dirname(address)))
    )
    if server.stdout.readline() != b"ready\n":
        raise RuntimeError("pages: tools/warm.py did not start; its message is above")
    return address


async def ready(client, timeout):
    """Wait until a kernel answers and its outputs arrive; RuntimeError where it does not.

    jupyter_client's own function listens for a fifth of a second longer, on every page.
    """
    from queue import Empty

    async def answered(get, sent, seconds):
        "Wait for the answer to a message that was sent."
        while (await get(timeout=seconds))["parent_header"].get("msg_id") != sent:
            pass

    until = time.monotonic() + (timeout or 60)
    while time.monotonic() < until and await client._async_is_alive():
        sent = client.kernel_info()
        try:
            await answered(client.get_shell_msg, sent, 1)
            return await answered(client.get_iopub_msg, sent, 0.05)
        except Empty:
            pass  # it is being started, or is not yet heard
    raise RuntimeError("the kernel ended before it answered, or did not answer")


def run(path, installed=False, slow=False, timeout=900, warm=False):
    """Run a page from top to bottom in a kernel of its own; (notebook as it ran, seconds).

    A failing cell raises PageError. A warm kernel has NumPy, SciPy, PyTorch and others
    imported already (tools/warm.py).
    """
    import nbformat
    from jupyter_client import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    class Warm(AsyncKernelManager):
        "A manager of kernels that are forked by the server of tools/warm.py."

        def format_kernel_cmd(self, extra_arguments=None):
            return [
                sys.executable,
                "-S",
                "-E",
                str(root / "tools/warm.py"),
                "kernel",
                warm_server(),
                self.connection_file,
            ]

        def client(self, **more):
            made = super().client(**more)
            made.wait_for_ready = lambda timeout=None: ready(made, timeout)
            return made

        async def _async_wait(self, pollinterval=0.1):
            await super()._async_wait(0.01)

    whole = read(path)
    if installed:
        as_installed(whole)
    ran = nbformat.v4.new_notebook(
        cells=[c for c in whole.cells if not skipped(c, slow)], metadata=whole.metadata
    )
    if not any(c.cell_type == "code" for c in ran.cells):
        return whole, 0.0
    for c in ran.cells:
        if c.cell_type == "code":
            c.outputs, c.execution_count = [], None
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(
        prefix="page-"
    ) as sockets:  # the kernel is talked to over sockets in here: no port is opened
        ipc = (
            Config()
            if os.name == "nt"
            else Config(KernelManager=dict(transport="ipc", ip=f"{sockets}/k"))
        )
        client = NotebookClient(
            ran,
            timeout=timeout,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            config=ipc,
            kernel_manager_class=Warm if warm else AsyncKernelManager,
            coalesce_streams=True,
        )  # else the pipe's moods decide into how many pieces a text is stored
        try:
            client.execute(env=environment())
        except CellExecutionError as e:
            text = re.sub(r"\x1b\[[0-9;]*m", "", str(e))
            shown = "".join(
                str(out.get("text", "")) for c in ran.cells for out in c.get("outputs", ())
            )  # a command says it, and a later cell fails
            missing = re.search(
                r"No module named '(torch|transformers|safetensors|tokenizers|gguf|tqdm)\b|models need torch",
                text + shown,
            )
            raise PageError(
                f"{page_id(path)}{' on the installed module' if installed else ''} stopped:\n{text[-4000:]}",
                bool(missing),
            ) from None
    return whole, time.perf_counter() - began


_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_NUMBER = re.compile(
    r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)"
)  # also before the stop of a sentence, not in 2.13.0


def _settle(match):
    """A number in an output, written so that two machines agree on it.

    More than twelve significant digits are cut to twelve, since the last bits differ between
    machines. Below 1e-12 it is rounding dust and reads ~0; zeros of a longer text stay.
    """
    s = match[0]
    digits = re.sub(r"e.*|[-.]", "", s).lstrip("0")
    if not re.search(r"[.e]", s):
        return s
    if 0 < abs(float(s)) < 1e-12 or (float(s) == 0 and "e" in s):
        return "~0"
    return f"{float(s):.11e}" if len(digits) > 12 else s


def shown(nb):
    """The text that a reader sees below each code cell: [(index of the cell, text)].

    Drawings of ours count with their full text; other images only by being there.
    """
    out = []
    for i, c in enumerate(nb.cells):
        if c.cell_type != "code":
            continue
        parts, stream = [], {}
        for o in c.outputs:
            if o.output_type == "stream":
                stream[o.name] = stream.get(o.name, "") + o.text
            elif o.output_type == "error":
                parts.append(f"{o.ename}: {o.evalue}")
            else:
                data = o.data
                images = sorted(k for k in data if k.startswith("image/"))
                text = (
                    data.get("image/svg+xml")
                    or data.get("text/markdown")
                    or data.get("text/html")
                    or data.get("text/plain")
                    or ""
                )
                is_plot = images and '<g id="figure_1">' in text
                if is_plot or "image/png" in images:
                    text = f"<{', '.join(images)}>"
                parts.append(text)
        whole = "\n".join(
            [
                *(
                    f"[{k}] {v}" if k == "stderr" else v
                    for k, v in sorted(stream.items(), reverse=True)
                ),
                *parts,
            ]
        )
        whole = _NUMBER.sub(
            _settle, _ADDRESS.sub("0x...", re.sub(r"\x1b\[[0-9;]*m", "", whole))
        )
        out.append((i, "\n".join(line.rstrip() for line in whole.strip().split("\n"))))
    return out


def differences(stored, fresh):
    "A readable line for each cell whose stored text a new run does not repeat."
    lines = []
    for (i, old), (_, new) in zip(shown(stored), shown(fresh), strict=True):
        if old == new:
            continue
        a, b = next(
            pair
            for pair in zip_longest(old.split("\n"), new.split("\n"), fillvalue="")
            if pair[0] != pair[1]
        )
        lines.append(f"cell {i}: stored  {a[:300]!r}\n        fresh   {b[:300]!r}")
    return lines


def export(paths, lib_path, index=False):
    "Export pages as nbdev does, into the folder `lib_path`."
    from nbdev.doclinks import _build_modidx
    from nbdev.export import nb_export

    for p in paths:
        nb_export(p, lib_path=Path(lib_path))
    if index:
        _build_modidx(Path(lib_path))


def clean(path):
    "Strip a notebook of what changes from run to run, as nbdev does."
    from nbdev.clean import nbdev_clean

    nbdev_clean(str(path))


def store(path, slow=False):
    """Run a page and keep its outputs in its file; the seconds that it took.

    Cells marked slow keep the outputs that they have, unless `slow`.
    """
    import nbformat

    nb, seconds = run(path, slow=slow)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".", suffix=".ipynb", delete=False, encoding="utf-8"
    ) as f:
        nbformat.write(nb, f)
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)
    clean(path)
    return seconds


def find(name):
    """The page of a name: `04_bootstrap`, `statistics/04_bootstrap`, `bootstrap` or `index`.

    Ends the program where no page, or more than one, is called so.
    """
    name = name.removesuffix(".ipynb").removeprefix("nbs/")
    hits = [p for p in pages() if name in (page_id(p), p.stem, re.sub(r"^\d+_", "", p.stem))]
    if len(hits) != 1:
        near = hits or difflib.get_close_matches(name, map(page_id, pages()), n=5, cutoff=0.4)
        shown = ", ".join(p if isinstance(p, str) else page_id(p) for p in near)
        found = "several pages are" if hits else "no page is"
        sys.exit(f"pages: {found} called {name!r}. Did you mean: {shown or 'index'}")
    return hits[0]


def room(name):
    """Export one page and run it twice, as it is and on the installed module.

    1 where a cell fails or stored outputs are stale, else 0.
    """
    path = find(name)
    began = time.perf_counter()
    clean(path)
    export([path], lib)
    print(f"{page_id(path)}: exported", flush=True)
    try:
        stored = read(path)
        fresh, seconds = run(path)
        print(f"{page_id(path)}: ran in a fresh kernel, {seconds:.1f} s", flush=True)
        if exported_module(stored):
            print(
                f"{page_id(path)}: ran on the installed module, {run(path, installed=True)[1]:.1f} s",
                flush=True,
            )
    except PageError as e:
        print(e, file=sys.stderr)
        return 1
    stale = differences(stored, fresh)
    if stale:
        print(
            "\n".join(
                [
                    "stored outputs are not what a fresh run gives (make fresh R="
                    + path.stem
                    + " stores them):",
                    *stale,
                ]
            )
        )
    print(
        f"{page_id(path)}: {'STALE OUTPUTS' if stale else 'ok'} in {time.perf_counter() - began:.1f} s"
    )
    return int(bool(stale))


def fresh(names, workers, slow=False):
    "Run pages and store their outputs, then export them; 1 where one fails, else 0."
    chosen = [find(n) for n in names] or pages()
    rc = 0

    def one(path):
        try:
            return path, store(path, slow), None
        except PageError as e:
            return path, 0.0, e

    with ThreadPoolExecutor(workers) as pool:
        for path, seconds, error in pool.map(one, chosen):
            rc |= bool(error)
            print(f"{page_id(path)}: {error or f'stored, {seconds:.1f} s'}", flush=True)
    export([p for p in chosen if exported_module(read(p))], lib, index=not names)
    return rc


def main(argv=None):
    "Do what the command line says."
    p = argparse.ArgumentParser(description="Run the pages of the house.")
    sub = p.add_subparsers(dest="what", required=True)
    sub.add_parser("list")
    sub.add_parser("room").add_argument("name")
    f = sub.add_parser("fresh")
    f.add_argument("names", nargs="*")
    f.add_argument("--workers", type=int, default=2)
    f.add_argument("--slow", action="store_true", help="run the cells marked slow too")
    a = p.parse_args(argv)
    if a.what == "list":
        print("\n".join(page_id(q) for q in pages()))
    if a.what == "room":
        return room(a.name)
    if a.what == "fresh":
        return fresh(a.names, a.workers, a.slow)
    return 0


if __name__ == "__main__":
    sys.exit(main())
