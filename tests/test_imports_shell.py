"Files of other tools, folders of tasks and questions through the command, as a user types it."

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import main
from studies import losses, with_divergence

from invar_nb import page_data
from invar_nb.comparison.study import study
from invar_nb.foundations.refuse import UsageError
from invar_nb.report.card import model_card
from invar_nb.report.verify import verify
from invar_nb.shell.cli import read_document

DATA = Path(__file__).parent / "data"
LM = [str(page_data("lm_eval") / name) for name in ("base", "tuned")]


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    def run(*arguments, out="r"):
        monkeypatch.chdir(tmp_path)
        code = main([*map(str, arguments), *(["--out", out] if out else [])])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def rows(d, **key):
    "Rows of a report whose key or role has these values."
    return [
        row for row in d["rows"] if key.items() <= {**row["key"], "role": row["role"]}.items()
    ]


def test_two_lm_eval_folders_give_one_report_with_a_part_for_each_task(shell, tmp_path):
    code, out, _ = shell("compare", *LM, "--score", "shared", "columns.filter=first-word")
    d = json.loads((tmp_path / "r" / "report.json").read_text())
    assert (
        code == d["exit"]["code"]
        and len(d["parts"]) == 4
        and d["headline"] in out
        and "4 parts" in out
    )
    assert len(leads := rows(d, role="lead")) == 4 and all(
        "change" in row["adjusted"] for row in leads
    )
    assert (
        "invar_choices.candidate.reliability.svg" in verify(tmp_path / "r").files
        and len(list((tmp_path / "r").glob("*.baseline.*"))) == 4
    )
    page = (tmp_path / "r" / "report.html").read_text()
    assert (
        all(part["part"] in page for part in d["parts"]) and "The parts are one family" in page
    )
    assert shell("compare", *LM, "--score", "shared", "columns.filter=first-word", "--force")[
        0
    ] == code and verify(tmp_path / "r")
    hub, yaml = pytest.importorskip("huggingface_hub"), pytest.importorskip("yaml")
    code, out, _ = shell("card", "r", out=None)
    assert code == 0 and out.startswith("model-index:") and out.count("- task:") == 4
    read = hub.ModelCardData(**yaml.safe_load(out)).to_dict()["model-index"][0]
    assert (
        read["name"] == "tuned"
        and len(read["results"]) == 4
        and "invar_choices" in out
        and "/demo_models/" not in out
    )
    code, out, _ = shell("card", "r", "--results", "--dataset", "org/tasks", out=None)
    entries = hub.parse_eval_result_entries(yaml.safe_load(out))
    leads = {row["key"]["part"]: row["value"]["candidate"] for row in rows(d, role="lead")}
    assert {e.dataset_id for e in entries} == {"org/tasks"} and all(
        e.value == float(f"{leads[e.task_id]:.4g}") for e in entries[:1]
    )
    assert shell("card", "r", "--results", out=None)[0] == 2
    code, out, _ = shell("compare", *LM, "--task", "invar_rolling", "--json", out="one")
    assert json.loads(out)["primary_metric"]["metric"] == "perplexity" and [
        part["part"] for part in json.loads(out)["parts"]
    ] == [""]


def test_what_a_folder_leaves_open_is_taken_from_its_results_and_said(shell, tmp_path):
    code, _, err = shell("compare", *LM, out="first")
    assert (
        code == 0
        and "The filter of invar_words is first-word; the files also have first-letter (--set filter=first-letter)."
        in err
    )
    assert (
        "The score of invar_lengths is shared; the files also have missing (--score missing)."
        in err
    )
    code, _, err = shell("compare", *LM, "--task", "invar_rolling", "--column", "cluster=x")
    assert code == 2 and "a field must be one of 'target', 'text'" in err
    code, _, err = shell(
        "compare", *LM, "--margin", "2%", "--score", "shared", "columns.filter=first-word"
    )
    assert code == 2 and "--margin must name its metric" in err
    names = ("accuracy", "perplexity", "shared", "exact_match")
    one_piece = " ".join(f"--margin {name}=2%" for name in names)
    assert f"In its place write {one_piece}." in err
    options = [*one_piece.split(), "--score", "shared", "columns.filter=first-word"]
    code, out, _ = shell("compare", *LM, *options, out="p")
    assert (code, "Margins: " in out) == (0, True)
    code, out, _ = shell(
        "compare",
        *LM,
        "--margin",
        "perplexity=9%",
        "--margin",
        "accuracy=0.3",
        "--score",
        "shared",
        "columns.filter=first-word",
        "--json",
        out="m",
    )
    margins = {row["key"]["part"]: row["margin"] for row in rows(json.loads(out), role="lead")}
    assert margins["invar_rolling"] == 0.09 and margins["invar_choices"] == 0.3
    assert (
        shell(
            "compare",
            *LM,
            "--metric",
            "perplexity",
            "--score",
            "shared",
            "columns.filter=first-word",
            out="n",
        )[0]
        == 2
    )
    assert (
        shell(
            "compare",
            *LM,
            "--score",
            "shared",
            "columns.filter=first-word",
            "--force",
            out="m",
        )[0]
        == code
    )
    for more, words in (
        (("--by", "x"), "a field must be one of 'target', 'question'"),
        (("--stride", "5"), "--stride works only when models"),
        (("--task", "invar_choices", "--score", "nope"), "--score must be one of 'acc'"),
        (("columns.sums=true",), "sums is an option of table"),
    ):
        code, _, err = shell(
            "compare",
            *LM,
            *more,
            *(() if "--score" in more else ("--score", "shared", "columns.filter=first-word")),
            out="o",
        )
        assert code == 2 and words in err and not (tmp_path / "o").exists(), err


def test_a_task_of_inspect_has_a_scorer_of_its_own(shell, tmp_path):
    for name in ("base", "tuned"):
        (tmp_path / name).mkdir()
        for task in ("choices", "texts"):
            shutil.copy(DATA / "inspect" / name / f"{task}.json", tmp_path / name)
    code, out, _ = shell(
        "compare",
        "base",
        "tuned",
        "--score",
        "choice",
        "--score",
        "texts=perplexity",
        "--json",
    )
    parts = json.loads(out)["parts"]
    assert {part["part"]: part["kind"] for part in parts} == {
        "choices": "scores",
        "texts": "losses",
    } and verify(tmp_path / "r")
    for scores, code, words in (
        (
            (),
            3,
            "got choices: 'choice', 'letters', 'several/long', 'several/first'; texts: 'perplexity', 'match'. Say --score TASK=NAME of each, such as 'choices=choice', 'texts=perplexity'",
        ),
        (
            ("choice",),
            2,
            "texts.json: one scorer must be chosen; got 'choice' where there are 'perplexity', 'match'. Say --score texts=perplexity",
        ),
        (("choice", "letters"), 2, "each task must have one score"),
        (
            ("choice", "texts=perplexity", "tex=match"),
            2,
            "a task must be one of 'choices', 'texts'; got 'tex'",
        ),
    ):
        found, _, err = shell(
            "compare",
            "base",
            "tuned",
            *(text for score in scores for text in ("--score", score)),
            out="w",
        )
        assert found == code and words in err and not (tmp_path / "w").exists(), err


def test_a_gate_and_a_profile_name_the_part_that_fails(shell, tmp_path):
    asked = (
        "compare",
        *LM[::-1],
        "--score",
        "shared",
        "columns.filter=first-word",
        "--margin",
        "perplexity=0.9",
        "--margin",
        "accuracy=0.9",
    )
    code, out, _ = shell(*asked, "--gate", "1.01", "--json")
    assert (
        code == 1
        and json.loads(out)["exit"]["rule"] == "gate_failed"
        and "the upper end of the ratio on invar_rolling, 1.5"
        in json.loads(out)["exit"]["because"]
    )
    code, _, err = shell(*asked, "--profile", "ci", out="w")
    assert (
        code == 3
        and "invar_rolling: the profile ci with the balanced tier needs 360 windows" in err
        and not (tmp_path / "w").exists()
    )


def test_columns_to_slice_by_are_those_of_the_files(shell, tmp_path):
    for name, step in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.csv").write_text(
            "id,f1,nll,hours,topic\n"
            + "".join(f"{i},{(i * 7) % 10 - step * (i % 3)},1,2,t{i % 3}\n" for i in range(48))
        )
    for files, asked, slices in (
        (
            ("a.csv", "b.csv"),
            ("--score", "f1", "--by", "topic"),
            {"topic t0", "topic t1", "topic t2"},
        ),
        (LM, ("--task", "invar_choices", "--by", "gold"), {f"gold {i}" for i in range(4)}),
    ):
        code, out, _ = shell("compare", *files, *asked, "--json", "--force")
        assert slices >= {row["key"]["slice"] for row in json.loads(out)["rows"]} - {
            None
        } != set() and verify(tmp_path / "r")
    for asked, words in (
        (("--score", "f1", "--margin", "2%"), "such as --margin f1=0.02"),
        (
            ("--score", "f1", "--column", "loss=nll"),
            "losses or a score, not both; got --column loss=nll and --score f1",
        ),
        (
            ("--score", "f1", "--score", "hours"),
            "it must be known whether higher 'hours' is better",
        ),
        (("--score", "f1", "--by", "topics"), "Did you mean 'topic'?"),
    ):
        code, _, err = shell("compare", "a.csv", "b.csv", *asked, out="w")
        assert code in (2, 3) and words in err and not (tmp_path / "w").exists(), err


@pytest.mark.parametrize(
    "task, kind, change",
    [
        *[
            (
                "invar_choices",
                "results",
                lambda d, key=key, value=value: d[key].__setitem__("invar_choices", value),
            )
            for key in ("results", "configs", "n-samples")
            for value in (None, [], "x")
        ],
        (
            "invar_choices",
            "results",
            lambda d: d["n-samples"]["invar_choices"].pop("effective"),
        ),
        *[
            (
                "invar_choices",
                "samples",
                lambda d, key=key, value=value: d.__setitem__(key, value),
            )
            for key, value in (
                ("target", None),
                ("acc", 10**400),
                ("filtered_resps", []),
                ("filtered_resps", [["nan", "x"]]),
                ("arguments", None),
                ("arguments", {}),
            )
        ],
        ("invar_rolling", "samples", lambda d: d.__setitem__("word_perplexity", [10**400, 5])),
    ],
)
def test_damaged_folders_are_refused_in_one_line(shell, tmp_path, task, kind, change):
    shutil.copytree(LM[1], tmp_path / "b")
    file = next(
        (tmp_path / "b").glob("results_*" if kind == "results" else f"samples_{task}_*")
    )
    first, *rest = [file.read_text()] if kind == "results" else file.read_text().splitlines()
    change(d := json.loads(first))
    file.write_text("".join(line + "\n" for line in (json.dumps(d), *rest)))
    code, _, err = shell("compare", LM[0], "b", "--task", task, "--quiet")
    assert (
        code == 3
        and len(err.splitlines()) == 1
        and (f"samples_{task}" in err or "results_" in err)
        and "=" not in err
        and not (tmp_path / "r").exists()
    ), err


def test_logit_files_tables_and_translations(shell, tmp_path):
    code, out, _ = shell(
        "compare", DATA / "llama_cpp" / "base.kld", DATA / "llama_cpp" / "tuned.kld", "--json"
    )
    d = json.loads(out)
    assert {"perplexity", "kl_divergence", "top1_changed"} <= {
        row["key"]["metric"] for row in d["rows"]
    } and verify(tmp_path / "r")
    for name, step in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.csv").write_text(
            "doc,f1,subject\n"
            + "".join(f"{i},{(i * 7) % 10 - step * (i % 3)},s{i % 12}\n" for i in range(48))
        )
    code, out, _ = shell(
        "compare",
        "a.csv",
        "b.csv",
        "--score",
        "f1",
        "--column",
        "id=doc",
        "--column",
        "cluster=subject",
        "--better",
        "higher",
        out="t",
    )
    assert code == 1 and "Regressed" in out and "clusters" in out and verify(tmp_path / "t")
    assert (
        shell("compare", "a.csv", "b.csv", "--score", "f2", "--column", "id=doc", out="u")[0]
        == 3
    )
    for name, text in (
        ("x", "the cat sat on the mat today\n"),
        ("y", "the cat sat on a mat\n"),
        ("ref", "the cat sat on the mat\n"),
    ):
        (tmp_path / name).write_text(text * 3 + "a dog came in from the rain\n" * 12)
    code, out, _ = shell(
        "compare",
        "x",
        "y",
        "columns.references=ref",
        "columns.tokenize=none",
        "--json",
        out="v",
    )
    d = json.loads(out)
    assert (
        d["parts"][0]["kind"] == "translations"
        and "tok:none" in d["signature"]
        and verify(tmp_path / "v")
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    pytest.importorskip("torch")
    from small_models import gpt2, save

    root = tmp_path_factory.mktemp("models")
    for name, seed in (("base", 1), ("tuned", 7)):
        save(gpt2(257, seed=seed), root / name)
    return root


def questions(path, n=24):
    rows = [
        dict(
            id=i,
            prompt=f"{i} is",
            candidates=[" odd", " even"],
            label=" odd" if i % 2 else " even",
            size="big" if i > 11 else "small",
        )
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_report_on_text_and_questions(shell, tmp_path, models):
    examples, text = questions(tmp_path / "e.jsonl"), tmp_path / "t.txt"
    text.write_text("One is odd and two is even. " * 40)
    (tmp_path / "book.txt").write_text("they say that 3  IS\nodd, and 4 is odd too")
    asked = (
        "compare",
        models / "base",
        models / "tuned",
        "--questions",
        examples,
        f"scoring.leak_text={tmp_path / 'book.txt'}",
    )
    code, out, err = shell(*asked, "--text", text)
    d = json.loads((tmp_path / "r" / "report.json").read_text())
    assert (
        code == d["exit"]["code"]
        and [part["part"] for part in d["parts"]] == ["text", "examples"]
        and d["primary_metric"]["metric"] == "perplexity"
        and d["dataset"]["windows"]
    )
    assert d["rows"][0]["key"]["part"] == "text" and {"accuracy", "brier"} <= {
        row["key"]["metric"] for row in rows(d, part="examples")
    }
    assert {row["key"]["slice"] for row in rows(d, part="examples")} >= {
        "size big",
        "size small",
        "leaked yes",
        "leaked no",
    } and "1 of 24 examples occur in the training text" in err
    assert verify(tmp_path / "r")
    assert not list(tmp_path.glob(".*journal*"))
    code, out, _ = shell(*asked, "--json", out="only")
    assert json.loads(out)["parts"][0]["kind"] == "answers" and verify(tmp_path / "only")
    for name in ("base", "tuned"):
        assert shell("answer", models / name, examples, out=f"{name}.jsonl")[0] == 0
    code, out, _ = shell("compare", "base.jsonl", "tuned.jsonl", "--json", out="files")
    only = json.loads((tmp_path / "only" / "report.json").read_text())
    assert [row["value"]["delta"] for row in rows(json.loads(out), slice=None)] == [
        row["value"]["delta"] for row in rows(only, slice=None)
    ]


def test_questions_are_refused_before_a_model_is_loaded(shell, tmp_path, models):
    bad = questions(tmp_path / "e.jsonl")
    bad.write_text(
        bad.read_text() + '{"id": 99, "prompt": "x", "candidates": ["a", ""], "label": "a"}\n'
    )
    both = (models / "base", models / "tuned")
    for arguments, code, words in (
        (("compare", *both, "--questions", bad), 3, "line 25"),
        (("answer", both[0], bad), 2, "--out FILE, .jsonl"),
        (("compare", *LM, "--questions", bad), 2, "two models"),
        (
            ("compare", *both, "--text", bad, "scoring.normalize=bytes"),
            2,
            "normalize of the study file needs --questions",
        ),
        (
            ("compare", *both, "--text", bad, "--score", "f1"),
            2,
            "--score works only with files",
        ),
        (("compare", *both), 2, "--text FILE, or --questions FILE"),
        (
            (
                "compare",
                *both,
                "--questions",
                questions(tmp_path / "few.jsonl"),
                "--stride",
                "9",
            ),
            2,
            "--stride works only when models score a text",
        ),
    ):
        found, _, err = shell(*arguments)
        assert found == code and words in err and "loading" not in err, err
    assert not (tmp_path / "r").exists()
    shutil.rmtree(tmp_path / "r", ignore_errors=True)


def test_the_critical_mistake_is_a_metric_of_the_command(shell, tmp_path):
    for name, bad in (("a", 1), ("b", 9)):
        lines = [
            dict(
                id=i,
                label="no" if i < 30 else "yes",
                prediction="yes" if i < bad or i >= 30 else "no",
            )
            for i in range(60)
        ]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    code, out, _ = shell(
        "compare",
        "a.jsonl",
        "b.jsonl",
        "rules.mistakes=no:yes",
        "--margin",
        "mistake:no:yes=0.05",
        "--json",
    )
    d = json.loads(out)
    (row,) = rows(d, metric="mistake:no:yes")
    assert (
        row["value"]["baseline"],
        row["value"]["candidate"],
        row["margin"],
        row["value"]["title"],
    ) == (1 / 30, 9 / 30, 0.05, "no called yes") and rows(d, role="lead")[0]["key"][
        "metric"
    ] == "accuracy"
    assert verify(tmp_path / "r")
    assert (
        shell("evaluate", "b.jsonl", "rules.mistakes=no:yes", out="one")[0] == 0
        and "no called yes" in (tmp_path / "one" / "report.md").read_text()
    )
    for wrong in ("no", "no:yes:x", "no:no"):
        assert shell("compare", "a.jsonl", "b.jsonl", f"rules.mistakes={wrong}", out="w")[
            0
        ] in (2, 3)
    code, _, err = shell(
        "compare", *LM, "--task", "invar_rolling", "rules.mistakes=a:b", out="v"
    )
    assert code == 2 and "mistakes can be counted for answers only" in err


def test_one_file_of_any_tool_is_evaluated(shell, tmp_path):
    (tmp_path / "ref").write_text("the cat sat on the mat\na dog came in\n")
    (tmp_path / "said").write_text("the cat sat on a mat\na dog came in\n")
    for k, (arguments, metric) in enumerate(
        {
            (LM[0], "--task", "invar_rolling"): "perplexity",
            (LM[0], "--task", "invar_choices"): "accuracy",
            (DATA / "llama_cpp" / "base.kld",): "perplexity",
            ("said", "columns.references=ref", "columns.tokenize=char"): "bleu",
        }.items()
    ):
        code, out, err = shell("evaluate", *arguments, "--json", out=f"e{k}")
        assert code == 0, err
        levels = {
            level["key"]["metric"]: level["value"] for level in json.loads(out)["levels"]
        }
        assert levels[metric] > 0 and verify(tmp_path / f"e{k}")
    for arguments, words in (
        (
            ("said", "columns.references=ref", "--margin", "2%"),
            "evaluate has no option --margin; compare, plan and init have it. Leave it out.",
        ),
        (("org/name",), "needs a file"),
    ):
        code, _, err = shell("evaluate", *arguments)
        assert code == 2 and words in err and not (tmp_path / "r").exists()
    assert shell("card", "nowhere", out=None)[0] == 2


def test_an_older_run_in_the_folder_is_said(shell, tmp_path):
    folder = tmp_path / "again"
    shutil.copytree(LM[1], folder)
    for file in list(folder.glob("*invar_rolling*")) + list(folder.glob("results*")):
        shutil.copy(file, folder / file.name.replace("2026-11-22", "2026-11-21"))
    code, out, _ = shell("compare", LM[0], folder, "--task", "invar_rolling")
    said = (tmp_path / "r" / "report.md").read_text()
    assert (
        "The candidate's folder holds 2 runs; the newest is used." in said
        and "baseline's folder" not in said
    )


def test_several_candidates_on_several_tasks_of_another_tool(shell, tmp_path):
    for name in ("tuned", "again"):
        shutil.copytree(LM[1], tmp_path / name)
    tasks = [x for name in ("invar_rolling", "invar_choices") for x in ("--task", name)]
    code, out, _ = shell(
        "compare", LM[0], tmp_path / "tuned", tmp_path / "again", *tasks, "--json"
    )
    d = json.loads(out)
    leads = {
        (row["key"]["candidate"], row["key"]["part"]): row for row in rows(d, role="lead")
    }
    assert {*leads} == {
        (name, task)
        for name in ("tuned", "again")
        for task in ("invar_rolling", "invar_choices")
    } and code == d["exit"]["code"]
    assert leads["tuned", "invar_rolling"]["value"]["delta"] == leads[
        "again", "invar_rolling"
    ]["value"]["delta"] and [r["part"] for r in d["rankings"]] == [
        "invar_choices",
        "invar_rolling",
    ]
    assert verify(tmp_path / "r")


def test_a_card_is_of_one_candidate_with_its_name_and_the_words_of_the_terminal(
    shell, tmp_path
):
    "Of a ranking: a candidate must be named; its card has its own name, four digits, no path, and says of a divergence what the terminal says."
    hub, yaml = pytest.importorskip("huggingface_hub"), pytest.importorskip("yaml")
    both = with_divergence()
    study(
        {
            ("baseline", "news"): both.baseline,
            ("int8", "news"): both.candidate,
            ("int4", "news"): both.candidate,
        }
    ).report().save(tmp_path / "k")
    code, _, err = shell("card", "k", out=None)
    assert (
        code == 2
        and "a card describes one candidate; got int4, int8. Give --candidate int4" in err
    )
    assert (
        "--candidate must be in the report; got 'int3'"
        in shell("card", "k", "--candidate", "int3", out=None)[2]
    )
    code, out, _ = shell("card", "k", "--candidate", "int8", "--dataset", "my", out=None)
    index = yaml.safe_load(out)["model-index"]
    results = hub.repocard_data.model_index_to_eval_results(index)[1]
    assert (
        index[0]["name"] == "int8"
        and {r.dataset_name for r in results} == {"my news"}
        and all(r.metric_value == float(f"{r.metric_value:.4g}") for r in results)
    )
    assert {r.metric_type: r.metric_args["claim"] for r in results}[
        "kl_divergence"
    ] == "not judged"


def test_the_second_scoring_of_the_baseline_is_no_candidate_of_a_card(shell, tmp_path):
    "It was offered, and its card was empty."
    both = losses(0.05)
    arms = {("baseline", ""): both.baseline, ("control", ""): both.baseline}
    study(arms | {("int4", ""): both.candidate}).report().save(tmp_path / "k")
    code, out, err = shell("card", "k", out=None)
    assert code == 0 and "name: int4" in out, (out, err)
    code, _, err = shell("card", "k", "--candidate", "control", out=None)
    assert code == 2 and "Choose from int4" in err


def test_a_card_names_the_file_of_the_text_where_nothing_else_names_the_data(shell, tmp_path):
    "One text and several; the folder of the file is nowhere in the report."
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("torch")
    import invar_nb
    from invar_nb.models.demo_text import demo_documents

    models = [
        str(Path(invar_nb.__file__).parent / "demo_models" / name)
        for name in ("base", "tuned")
    ]
    for k, name in enumerate(("docs", "law")):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(
                json.dumps({"text": t[:200]}) + "\n"
                for t in demo_documents()[1][12 * k : 12 * k + 12]
            )
        )
    one, two = (
        ["--text", str(tmp_path / "docs.jsonl")],
        [
            part
            for name in ("docs", "law")
            for part in ("--text", f"{name[0]}={tmp_path / name}.jsonl")
        ],
    )
    for texts, names in ((one, ["docs.jsonl"]), (two, ["docs.jsonl", "law.jsonl"])):
        assert (
            shell(
                "compare",
                *models,
                *texts,
                "--max-length",
                "64",
                "--dtype",
                "float32",
                "--out",
                "k",
                "--force",
                "-q",
                out=None,
            )[0]
            == 0
        )
        index = yaml.safe_load(shell("card", "k", out=None)[1])["model-index"][0]["results"]
        assert [result["dataset"]["name"] for result in index] == names and str(
            tmp_path
        ) not in (tmp_path / "k" / "report.json").read_text()


def test_each_text_of_a_card_has_a_dataset_of_its_own(shell, tmp_path):
    "The name of one dataset was written beside every text of the report."
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("huggingface_hub")
    both = with_divergence()
    arms = {("baseline", text): both.baseline for text in ("drama", "wiki")} | {
        ("int8", text): both.candidate for text in ("drama", "wiki")
    }
    study(arms).report().save(tmp_path / "k")
    code, _, err = shell("card", "k", "--dataset", "wikitext-2", out=None)
    assert code == 2 and "of each text or task of the report; got 'wikitext-2'" in err, err
    assert "Write --dataset drama=NAME --dataset wiki=NAME." in err
    cure = ("--dataset", "drama=plays", "--dataset", "wiki=wikitext-2")
    index = yaml.safe_load(shell("card", "k", *cure, out=None)[1])["model-index"]
    found = {(r["dataset"]["config"], r["dataset"]["name"]) for r in index[0]["results"]}
    assert found == {("drama", "plays"), ("wiki", "wikitext-2")}
    with pytest.raises(UsageError, match="got 'news'"):
        model_card(read_document(tmp_path / "k"), candidate="int8", dataset={"news": "a"})
    for words, said in (("news=a",), "got 'news'"), (("wiki=a", "wiki=b"), "got a and b"):
        more = [word for name in words for word in ("--dataset", name)]
        code, _, err = shell("card", "k", *more, out=None)
        assert code == 2 and said in err, err


def _card_beside_its_report(shell, tmp_path):
    "A folder `k` with a report of two candidates, and the text of the card of int8."
    pytest.importorskip("huggingface_hub")
    both = with_divergence()
    base, candidate = both.baseline, both.candidate
    worse = candidate.changed(log_loss=candidate.log_loss + 0.02)
    arms = {("baseline", ""): base, ("int8", ""): candidate, ("int4", ""): worse}
    study(arms).report().save(tmp_path / "k")
    return shell("card", "k", "--candidate", "int8", out=None)[1]


@pytest.mark.parametrize("form", ["card.yaml", "front.md", "fenced.md", "results.yaml"])
def test_the_numbers_of_a_card_are_compared_with_those_of_its_report(shell, tmp_path, form):
    "`verify card.yaml` said that a card is no report."
    text = _card_beside_its_report(shell, tmp_path)
    words = ("card", "k", "--candidate", "int8", "--results", "--dataset", "org/x")
    results = shell(*words, out=None)[1]
    assert "baseline None" not in results
    texts = {
        "card.yaml": text,
        "front.md": f"---\nlicense: mit\n{text}---\n# A model\n",
        "fenced.md": f"# A model\n\n```yaml\n{text}```\n",
        "results.yaml": results,
    }
    card = tmp_path / form
    card.write_text(texts[form])
    code, out, err = shell("verify", form, out=None)
    assert code == 0 and "Verified: " in out and "int8" in out.splitlines()[0], out + err
    facts = json.loads(shell("verify", form, "--json", out=None)[1])
    assert facts["verified"] and [*facts["reports"].values()] == ["int8"]
    assert ("outside the block of metrics" in out) == form.endswith(".md")

    value = re.search(r"value: (\d+\.\d+)", texts[form])[1]
    digit = "1" if value[-1] != "1" else "2"
    card.write_text(texts[form].replace(value, value[:-1] + digit))
    code, _, err = shell("verify", form, out=None)
    line = " ".join(err.split())
    assert code == 3 and f"value {value[:-1] + digit}, which is {value} in the report" in line
    card.write_text(
        texts[form]
        .replace("claim equiv", "claim improv")
        .replace("claim: equiv", "claim: improv")
    )
    assert "claim improvalent within 2 %, which is" in " ".join(
        shell("verify", form, out=None)[2].split()
    )
    # a claim that was taken out is not one that was compared
    shorter = re.sub(r"\n +claim: .*|, claim [^,]*", "", texts[form])
    assert shorter != texts[form]
    card.write_text(shorter)
    code, _, err = shell("verify", form, out=None)
    assert code == 3 and "no claim, which is" in " ".join(err.split()), err


def test_a_card_needs_the_report_that_it_names(shell, tmp_path):
    "Beside it or given; a card without one and a second argument of a report are refused."
    text = _card_beside_its_report(shell, tmp_path)
    (tmp_path / "away").mkdir()
    away = tmp_path / "away/card.yaml"
    away.write_text(text)
    code, _, err = shell("verify", away, out=None)
    assert code == 2 and "got no report. Name its report: invar-nb verify" in " ".join(
        err.split()
    )
    assert shell("verify", away, "k", out=None)[0] == 0
    assert shell("verify", away, "k/report.json", out=None)[0] == 0
    other = re.sub("sha256:[0-9a-f]{64}$", f"sha256:{'0' * 64}", text, flags=re.M)
    away.write_text(other)
    assert shell("verify", away, "k", out=None)[0] == 2
    # a number of another source, and a model with a name of its own
    extra = "    - type: acc\n      value: 0.5\n    - type: perplexity"
    renamed = text.replace("name: int8", "name: my-model")
    away.write_text(renamed.replace("    - type: perplexity", extra, 1))
    code, out, err = shell("verify", away, "k", out=None)
    assert code == 0 and "1 metric without a report" in out and "of int8" in out, out + err
    for name, content in (("no.md", "# hi\n"), ("no.yaml", "a: 1\n"), ("list.yml", "[1, {}]")):
        (tmp_path / name).write_text(content)
        code, _, err = shell("verify", name, out=None)
        assert code == 2 and "a card must have numbers that name their report" in " ".join(
            err.split()
        )
    (tmp_path / "bad.yaml").write_text("a: [\n")
    code, _, err = shell("verify", "bad.yaml", out=None)
    assert code == 3 and "must be YAML" in err
    code, _, err = shell("verify", "k", "k", out=None)
    assert code == 2 and "only a card has a second argument" in " ".join(err.split())
