"help() of what `invar_nb` offers: every parameter with what it is, what comes back, errors, the page; and what type checkers see."

import inspect
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pages
import pytest

import invar_nb
from invar_nb.foundations import docstrings

PUBLIC = [
    name
    for name in invar_nb.__all__
    if inspect.isfunction(getattr(invar_nb, name)) or inspect.isclass(getattr(invar_nb, name))
]
OBVIOUS = {"path", "level"}  # a file; of the interval


def members(name):
    "(name, function, its definition, lines) of a name and of its public methods; a class stands for its fields."
    thing = getattr(invar_nb, name)
    found, lines = docstrings.definitions(thing.__module__)
    yield name, thing, found[name], lines
    for method, node in found.items():
        if re.fullmatch(rf"{name}\.[a-z]\w*", method):
            yield method, getattr(thing, method.partition(".")[2]), node, lines


def entry(doc, parameter):
    "What stands below Parameters of one: its type and, on a line of its own, what it is."
    return re.search(
        rf"^\*{{0,2}}{parameter}(?: : (?P<type>[^\n]*)| = .*)?(?:\n    (?P<says>.*))?$",
        doc,
        re.M,
    )


def unsaid(name):
    "Parameters of a name of which help says neither what they are, nor a type of this package, nor a word in the sentence."
    missing = []
    for who, thing, node, lines in members(name):
        if not thing.__doc__:
            continue
        sentence = thing.__doc__.split("\n\nParameters")[0]
        said = (
            docstrings.fields(thing)
            if inspect.isclass(thing)
            else docstrings.parameters(node, lines)
        )
        for parameter in said.keys() - {"self", "cls"} - OBVIOUS:
            if parameter[0] == "_":
                continue
            at = entry(thing.__doc__, parameter)
            types = re.findall(r"\w+", at["type"] or "") if at else ()
            own = any(inspect.isclass(getattr(invar_nb, word, None)) for word in types)
            if not at or not (at["says"] or own or re.search(rf"\b{parameter}\b", sentence)):
                missing.append(f"{who}: {parameter}")
    return sorted(missing)


@pytest.mark.parametrize("name", PUBLIC)
def test_help_says_what_every_parameter_is(name):
    assert not unsaid(name), "write a comment beside it"
    thing = getattr(invar_nb, name)
    assert all(
        entry(thing.__doc__, parameter) for parameter in inspect.signature(thing).parameters
    )


def test_a_parameter_without_a_word_is_seen(monkeypatch):
    "A comment that is taken away, and a parameter that help leaves out."
    assert unsaid("pair_arrays") == []
    doc = invar_nb.pair_arrays.__doc__
    monkeypatch.setattr(
        invar_nb.pair_arrays, "__doc__", doc.replace("\n    t_i, shape (n,), counts >= 1", "")
    )
    assert unsaid("pair_arrays") == ["pair_arrays: tokens"]
    monkeypatch.setattr(
        invar_nb.pair_arrays, "__doc__", doc.replace("document_ids = None", "ids = None")
    )
    assert unsaid("pair_arrays") == ["pair_arrays: document_ids"]


@pytest.mark.parametrize("name", PUBLIC)
def test_help_names_errors_and_the_page(name):
    thing = getattr(invar_nb, name)
    assert "@" not in re.sub(r"@\d", "", thing.__doc__)
    if inspect.isfunction(thing):
        assert (
            "Raises\n------\n" in thing.__doc__
            and "Error\n    " in thing.__doc__
            or name in ("n_for_power", "result_html")
        )  # which take any number, any result
        returns = inspect.signature(thing).return_annotation
        assert returns is None or "Returns\n-------\n" in thing.__doc__
    for method, member, *_ in list(members(name))[1:]:
        assert "Page: " not in (member.__doc__ or ""), method
    site, page = re.search(r"^Page: (\S+/invar_nb)/(\S+)\.html$", thing.__doc__, re.M).groups()
    ini = ConfigParser(delimiters=["="])
    ini.read(pages.root / "settings.ini")
    assert site == ini["DEFAULT"]["doc_host"] + ini["DEFAULT"]["doc_baseurl"]
    layer, stem = page.split("/")
    (found,) = pages.nbs.glob(f"{layer}/[0-9][0-9]_{stem}.ipynb")
    assert name in found.read_text(encoding="utf-8")


def test_equations_that_help_names_are_on_its_page():
    "But for the jackknife's, of which the default interval is made."
    elsewhere = set()
    for name in PUBLIC:
        thing = getattr(invar_nb, name)
        layer, stem = thing.__module__.split(".")[1:]
        (page,) = pages.nbs.glob(f"{layer}/[0-9][0-9]_{stem}.ipynb")
        labels = re.findall(r"Eq\. ([a-z][\w-]*[a-z])", thing.__doc__)
        elsewhere |= {
            (name, label)
            for label in labels
            if f"#eq-{label}}}" not in page.read_text(encoding="utf-8")
        }
    assert elsewhere == {("jackknife_interval", "jackknife-ends")}


def test_help_of_compare_lists_every_rule():
    import dataclasses

    for field in dataclasses.fields(invar_nb.Rules):
        assert entry(invar_nb.compare.__doc__, field.name), field.name
    assert "one of jackknife, bca, percentile" in invar_nb.compare.__doc__


def test_help_says_what_auto_and_none_mean_and_tab_offers_the_rules():
    "IPython offers the names of the signature behind `compare(both, un`."
    import dataclasses

    from IPython.core.completer import IPCompleter

    doc = invar_nb.compare.__doc__
    assert (
        "auto: documents where there are ten effective ones, else serial"
        in entry(doc, "units")["says"]
        and "serial: windows in text order" in entry(doc, "units")["says"]
    )
    assert (
        "None: the metric's own (2 % of perplexity, 2 points of accuracy)"
        in entry(doc, "margin")["says"]
    )
    names = {field.name for field in dataclasses.fields(invar_nb.Rules)}
    for function in (invar_nb.compare, invar_nb.study, invar_nb.evaluate):
        assert names <= {*inspect.signature(function).parameters}
    completer = IPCompleter(namespace={"compare": invar_nb.compare, "both": 0}, use_jedi=False)
    assert "units=" in completer.complete(line_buffer="compare(both, un", cursor_pos=16)[1]
    with pytest.raises(
        invar_nb.UsageError,
        match='Tokens of a text depend on each other; say units="documents"',
    ):
        invar_nb.Rules(units="tokens")


def test_methods_and_results_of_a_module_have_their_help_too():
    "`compare(...).select?` after `from invar_nb import compare` alone; a second look changes nothing."
    code = "from invar_nb import compare; from invar_nb.comparison.study import Study; print(Study.select.__doc__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=pages.root,
    ).stdout
    assert "Parameters\n----------\n**key" in said
    before = invar_nb.compare.__doc__
    docstrings.complete_docstrings(invar_nb.compare.__module__)
    assert invar_nb.compare.__doc__ == before


def test_without_source_and_without_docstrings_names_still_come(tmp_path):
    "An installation of bytecode alone, and `python -OO`."
    code = "import inspect\ndef no(*a): raise OSError('no source')\ninspect.getsource = no\nimport invar_nb; print(invar_nb.compare.__doc__.splitlines()[0])"
    run = lambda *words: (
        subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=pages.root,
        ).stdout
    )
    assert run("-c", code).startswith("Two arms, judged")
    assert (
        run("-OO", "-B", "-c", "import invar_nb; print(invar_nb.compare.__doc__)").strip()
        == "None"
    )


def test_the_shell_pays_nothing_for_help():
    code = "import sys, invar_nb.shell.cli; print('invar_nb.foundations.docstrings' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=pages.root,
    )
    assert run.stdout.strip() == "False"


def test_tab_offers_the_names_and_nothing_of_ours():
    names = [
        name for name in dir(invar_nb) if name.isidentifier() and name[0] != "_"
    ]  # pytest adds @py_builtins to what it rewrites
    assert set(invar_nb.__all__) <= set(names)
    for name in set(names) - set(invar_nb.__all__):
        assert import_module(f"invar_nb.{name}"), name  # layers that were imported


def test_the_stub_has_every_name_once():
    text = Path(invar_nb.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    pairs = re.findall(r"(\w+) as (\w+)", text)
    for file in ("setup.py", "MANIFEST.in"):
        assert (
            ".pyi" in (pages.root / file).read_text()
            and "py.typed" in (pages.root / file).read_text()
        )
    assert (
        all(a == b for a, b in pairs)
        and len(pairs) == len(set(pairs)) == len(invar_nb.__all__) > 100
    )


@pytest.mark.slow
def test_a_file_of_a_user_passes_mypy_strict(tmp_path):
    "And a wrong type and an unknown name in it are seen."
    pytest.importorskip("mypy")
    user = Path(__file__).with_name("typed_user.py")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from invar_nb import compare, comparee\nx: str = compare(None).delta\n")
    environment = {**os.environ, "PYTHONPATH": str(pages.root)}
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path),
            str(user),
            str(wrong),
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert run.stdout.count("typed_user.py") == 0 and run.returncode == 1, run.stdout
    for said in (
        'has no attribute "comparee"',
        '"compare" has incompatible type "None"',
        'expression has type "float", variable has type "str"',
    ):
        assert said in run.stdout
