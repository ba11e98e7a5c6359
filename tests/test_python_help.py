"What `invar_nb` offers to help(), to the TAB key and to type checkers."

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pages
import pytest

import invar_nb
from invar_nb.comparison.study import OF_TABLES
from invar_nb.report.plan import plan_comparison
from invar_nb.shell.compare import SCORING
from invar_nb.statistics.planning import Goal

PUBLIC = [
    name
    for name in invar_nb.__all__
    if inspect.isfunction(getattr(invar_nb, name)) or inspect.isclass(getattr(invar_nb, name))
]
RULES = [  # of `compare`, typed most often
    *("margin", "metrics", "by", "level", "units"),
    *("method", "replicates", "seed", "resample", "primary"),
]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_that_reads_alone(name):
    docstring = inspect.getdoc(getattr(invar_nb, name))
    assert docstring and "@" not in re.sub(r"@\d", "", docstring)


def test_equations_that_docstrings_name_are_on_their_page():
    "But for the jackknife's, of which the default interval is made."
    elsewhere = set()
    for name in PUBLIC:
        thing = getattr(invar_nb, name)
        layer, stem = thing.__module__.split(".")[1:]
        (page,) = pages.nbs.glob(f"{layer}/[0-9][0-9]_{stem}.ipynb")
        text = page.read_text(encoding="utf-8")
        for label in re.findall(r"Eq\. ([a-z]+(?:-\w+)+)", inspect.getdoc(thing)):
            if f"#eq-{label}}}" not in text:
                elsewhere.add((name, label))
    assert elsewhere == {("jackknife_interval", "jackknife-ends")}


def test_help_of_compare_explains_its_rules():
    docstring = invar_nb.compare.__doc__
    explanation = " ".join(docstring.split())
    assert 'units="auto": documents where there are ten effective ones' in explanation
    assert "each metric has its own (2 % of perplexity, 2 points of accuracy)" in explanation
    for rule in ("margin", "metrics", "by", "units", "method", "replicates", "seed"):
        assert f"{rule}=" in docstring, rule


@pytest.mark.parametrize("name", ["compare", "study"])
def test_rules_in_a_signature_have_the_defaults_of_rules(name):
    parameters = inspect.signature(getattr(invar_nb, name)).parameters
    usual = invar_nb.Rules()
    for rule in RULES:
        assert parameters[rule].default == getattr(usual, rule), rule


@pytest.mark.parametrize("name", ["compare", "study", "evaluate", "compare_models"])
def test_names_that_a_type_checker_knows_are_those_that_are_taken(name):
    "The parameters and the keys of `**options`: every rule, and of paths every option."
    function = getattr(invar_nb, name)
    signature = inspect.signature(function)
    (options,) = (p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD)
    (keys,) = get_args(options.annotation)
    assert not keys.__annotations__.keys() & signature.parameters.keys()  # PEP 692
    known = {*signature.parameters, *keys.__annotations__}
    rules = {rule.name for rule in dataclasses.fields(invar_nb.Rules)}
    of_models = {*SCORING, "same_unit"}
    if name in ("compare", "study"):
        assert rules <= known
    if name == "compare":
        own = {"pair", "candidate", "others", "score", "rules"}
        assert known - own == rules | of_models | {*OF_TABLES}
    if name == "compare_models":
        own = {"baseline", "candidates", "rules", "scoring"}
        assert known - own == of_models | {*OF_TABLES, "better", "score", "part"}


def test_the_tab_key_offers_the_rules():
    "IPython offers the names of the signature behind `compare(both, un`."
    from IPython.core.completer import IPCompleter

    names = {"compare": invar_nb.compare, "study": invar_nb.study, "both": 0}
    completer = IPCompleter(namespace=names, use_jedi=False)
    assert "units=" in completer.complete(line_buffer="compare(both, un", cursor_pos=16)[1]
    assert "margin=" in completer.complete(line_buffer="study(both, mar", cursor_pos=15)[1]


def test_help_lists_every_option_as_a_message_says():
    for function in (invar_nb.compare, invar_nb.compare_models):
        (rest,) = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.VAR_KEYWORD
        ]
        (keys,) = get_args(rest.annotation)
        words = {*re.findall(r"\w+", inspect.getdoc(function))}
        assert keys.__annotations__.keys() <= words, function
    words = {*re.findall(r"\w+", inspect.getdoc(plan_comparison))}
    assert {field.name for field in dataclasses.fields(Goal)} <= words


def test_tokens_are_no_units():
    with pytest.raises(
        invar_nb.UsageError,
        match='Tokens of a text depend on each other; say units="documents"',
    ):
        invar_nb.Rules(units="tokens")


def test_names_come_without_docstrings():
    "`python -OO`."
    code = "import invar_nb; print(invar_nb.compare.__doc__)"
    run = subprocess.run(
        [sys.executable, "-OO", "-B", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=pages.root,
    )
    assert run.stdout.strip() == "None"


def test_tab_offers_the_names_and_nothing_of_ours():
    names = [
        name for name in dir(invar_nb) if name.isidentifier() and name[0] != "_"
    ]  # pytest adds @py_builtins to what it rewrites
    assert set(invar_nb.__all__) <= set(names)
    assert len(names) == len(set(names)), "a name that was imported is listed once"
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
    wrong.write_text(
        "from invar_nb import compare, compare_models, comparee, study\n"
        "x: str = compare(None, margin=[2]).delta\n"
        "compare(None, marginn=0.02)\nstudy({}, levell=0.9)\n"
        "compare_models('a', 'b', max_lenght=3)\n"
        "compare(None).headlin\ncompare(None).report().headlin\n"
        "compare(None)['f1'].value.headlin\n"
    )
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
        'Argument "margin" to "compare" has incompatible type "list[int]"',
        'expression has type "float", variable has type "str"',
        'Unexpected keyword argument "marginn" for "compare"',
        'Unexpected keyword argument "levell"',
        'Unexpected keyword argument "max_lenght" for "compare_models"',
        '"Study" has no attribute "headlin"',
        '"Report" has no attribute "headlin"',
        'Item "Difference" of "Difference | Level" has no attribute "headlin"',
    ):
        assert said in run.stdout


PUBLIC_FUNCTIONS = sorted(
    name for name in invar_nb.__all__ if inspect.isfunction(getattr(invar_nb, name))
)


def has_options(name):
    parameters = inspect.signature(getattr(invar_nb, name)).parameters
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@pytest.mark.parametrize(
    "name",
    [name for name in PUBLIC_FUNCTIONS if name != "page_style" and not has_options(name)],
)
def test_a_keyword_that_no_function_has_is_refused_with_the_nearest(name):
    function = getattr(invar_nb, name)
    parameters = [*inspect.signature(function).parameters]
    with pytest.raises(invar_nb.UsageError, match=f"^{name}: an argument must be known"):
        function(**{f"{parameters[-1]}x": 1})


def test_what_others_call_a_parameter_leads_to_its_name():
    losses = [3.0, 3.1], [3.0, 3.2], [10, 10]
    for call, words in (
        (lambda: invar_nb.pair_arrays(*losses, documents=["a", "b"]), "mean 'document_ids'"),
        (lambda: invar_nb.pair_arrays(*losses, ["a", "b"]), r"others: document_ids=\.\.\.$"),
        (
            lambda: invar_nb.pair_arrays(*losses, 1, 2, 3),
            "got 6 without names. Leave the others out",
        ),
        (lambda: invar_nb.wilson_interval(8, 10, confidence=0.9), "mean 'level'"),
        (
            lambda: invar_nb.jackknife_interval(losses[0], losses[2], document_id=1),
            "document_ids",
        ),
    ):
        with pytest.raises(invar_nb.UsageError, match=words):
            call()


def test_help_says_what_is_meant_by_each_argument():
    texts = {name: inspect.getdoc(getattr(invar_nb, name)) for name in PUBLIC_FUNCTIONS}
    assert "means per token in nats" in texts["pair_arrays"]
    assert "divide sums over a window by its\ntokens" in texts["pair_arrays"]
    assert '"half" halves' in texts["brier_score"]
    assert (
        texts["paired_t_test"].splitlines()[0].endswith("the first argument minus the second.")
    )
    assert "the second share minus the first" in texts["newcombe_interval"].splitlines()[0]
    for name in ("paired_t_test", "newcombe_interval"):
        assert "compare(old, new)" in texts[name]
    about = inspect.getdoc(invar_nb.Metric)
    assert "leave_one_out(arm, codes, n_units) -> (value, values)" in about
    assert "arm.values" in about and ">>> low = Metric(" in about


def test_the_examples_of_the_help_run():
    import numpy as np

    frame = {"f1": np.linspace(0.2, 0.9, 60)}
    low = invar_nb.Metric(
        name="low",
        kind="scores",
        totals=lambda arm: ((arm.values < 0.5).astype(float), np.ones(len(arm))),
    )
    result = invar_nb.compare(frame["f1"], frame["f1"] / 2, score="f1", metrics=[low])
    assert result["low"].claim == "regressed"


@pytest.mark.parametrize("n_tokens", [16, 256, 2048])
def test_sums_in_the_place_of_means_are_answered_with_what_to_divide_by(n_tokens):
    "Also below 709 nats, where a sum has a perplexity that fits a number: nothing warned."
    pandas = pytest.importorskip("pandas")
    means = [2.7 + i / 100 for i in range(30)]
    tokens = [n_tokens] * 30
    before = [n_tokens * x for x in means]
    after = [n_tokens * (x + 0.01) for x in means]
    old = pandas.DataFrame({"log_loss": before, "tokens": tokens})
    new = old.assign(log_loss=after)
    arms = {"baseline": old, "q8": new}
    ids = [*map(str, range(30))]
    doors = [
        lambda **kw: invar_nb.compare(invar_nb.pair_arrays(before, after, tokens, **kw)),
        lambda **kw: invar_nb.compare(old, new, **kw),
        lambda **kw: invar_nb.study(arms, **kw),
        lambda **kw: invar_nb.compare(
            *(
                invar_nb.WindowLosses.from_arrays(ids, tokens, values, **kw)
                for values in (before, after)
            )
        ),
    ]
    for door in doors:
        with pytest.raises(invar_nb.ContractError, match="must be a mean in nats per token"):
            door()
        assert door(sums=True).row.delta == pytest.approx(0.01)
    with pytest.raises(invar_nb.ContractError, match="must be a mean in nats per token"):
        invar_nb.evaluate(old)


def test_large_means_of_a_ruined_model_are_taken():
    "2 bits cost 10 to 15 nats; a model that is confident and wrong more, if it is said so."
    before, tokens = [3.0 + i / 100 for i in range(30)], [64] * 30
    ruined = [15.0 + i / 90 for i in range(30)]
    assert invar_nb.compare(invar_nb.pair_arrays(before, ruined, tokens)).row.delta > 11
    wrong = [10 * x for x in before]
    both = invar_nb.pair_arrays(before, wrong, tokens, sums=False)
    assert invar_nb.compare(both).row.delta > 20
    sums = [700.0 + i for i in range(30)]
    both = invar_nb.pair_arrays(sums, [x + 1 for x in sums], tokens, sums=False)
    with pytest.raises(invar_nb.ContractError, match=r"divide sums by tokens"):
        invar_nb.compare(both)


@pytest.mark.parametrize(
    "functions, words",
    [
        ({"leave_one_out": lambda arm: 0.0}, r"leave_one_out\(arm, codes, n_units\) -> "),
        ({"totals": lambda arm: 0.5}, r"totals\(arm\) -> \(numerators, weights\)"),
    ],
)
def test_a_function_of_a_metric_is_answered_with_its_signature(functions, words):
    metric = invar_nb.Metric(name="own", kind="scores", **functions)
    with pytest.raises(invar_nb.ContractError, match=words):
        invar_nb.compare([0.1] * 20, [0.2] * 20, score="f1", metrics=[metric])
