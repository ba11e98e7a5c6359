"Every command on the page 'I have ... files' is run as it stands there, on files of the kind that its row names."

import gzip
import itertools
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import main
from test_lm_eval import noted
from test_sources import row, write

import invar_nb
from invar_nb import page_data
from invar_nb.foundations.refuse import UsageError
from invar_nb.readers.reader import Reading
from invar_nb.readers.recognise import READERS, find_source

ROOT, DATA = Path(__file__).parents[1], Path(__file__).parent / "data"
BASE, TUNED = (
    Path(invar_nb.__file__).parent / "demo_models" / name for name in ("base", "tuned")
)
TASKS = {
    "wikitext": "invar_rolling",
    "arc_easy": "invar_choices",
    "gsm8k": "invar_words",
    "filter=strict-match": "filter=first-word",
}  # on the page, in the fixtures
ELSEWHERE = {"openai:": "test_servers.py"}  # needs a server: run there


def commands():
    cells = json.loads((ROOT / "nbs" / "i-have-files.ipynb").read_text())["cells"]
    return re.findall(
        r"`(invar-nb [^`]+)`",
        "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"),
    )


def units(command):
    "What the interval is over, in the words of a report, from the row of a command."
    page = (ROOT / "nbs" / "i-have-files.ipynb").read_text()
    said = page.partition(f"`{command}` | ")[2].split()[0].strip(",;")
    return {
        "chunks": "windows in text order",
        "rows": "windows in text order",
        "questions": "examples",
        "samples": "examples",
        "sentences": "examples",
    }.get(said, said)


def rows(path, make, n=36):
    "Rows 0 to n of one model as JSON Lines, CSV or Parquet."
    found = [make(i) for i in range(n)]
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(found), path)
    elif path.suffix == ".csv":
        path.write_text(
            "\n".join(
                [",".join(found[0]), *(",".join(map(str, one.values())) for one in found)]
            )
            + "\n"
        )
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in found))


@pytest.fixture
def evidence(tmp_path, monkeypatch):
    "One folder with every file that the page names."
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(("base", "tuned")):
        for folder, tasks in (("results", ("rolling", "choices")), ("generation", ("words",))):
            for file in (page_data("lm_eval") / name).iterdir():
                if file.name.startswith("results") or any(task in file.name for task in tasks):
                    (Path(folder) / name).mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, Path(folder) / name)
        noted(
            Path("reading"),
            name,
            [{"subject": ["law", "art"][i % 2], "passage": i // 3} for i in range(60)],
        )
        Path("logs", name).mkdir(parents=True)
        for task in ("choices", "texts"):
            shutil.copy(DATA / "inspect" / name / f"{task}.json", Path("logs", name))
        shutil.copy(DATA / "llama_cpp" / f"{name}.kld", f"{name}.kld")
        shutil.copy(DATA / "llama_cpp" / f"{name}.type1.log", f"{name}.log")
        for text in ("news", "code"):
            Path(f"{name}-folder").mkdir(exist_ok=True)
            shutil.copy(f"{name}.log", Path(f"{name}-folder", f"{text}.log"))
        write(
            Path(f"{name}_samples.jsonl"),
            [row(i, float((i * 7 + k) % 3 > 0), f"org/{name}") for i in range(36)],
        )
        rows(
            Path(f"{name}-losses.csv"),
            lambda i: {
                "doc": i,
                "nll": 3 + i % 7 / 10 + k * (i % 3) / 100,
                "n_tokens": 50 + i,
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-texts.csv"),
            lambda i, k=k: {
                "doc_id": i,
                "text": ["news", "code"][i % 2],
                "nll": 3 + i % 7 / 10 + k * (i % 3) / 100,
                "n_tokens": 50 + i,
            },
        )
        rows(
            Path(f"{name}-f1.jsonl"),
            lambda i: {
                "doc_id": i,
                "f1": (i * 7 % 10 + k * (i % 3)) / 12,
                "subject": f"s{i % 12}",
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-scores.csv"),
            lambda i: {
                "id": i,
                "f1": (i * 7 % 10 + k * (i % 3)) / 12,
                "seconds": 1 + i % 5 / 10 + k * (i % 3) / 10,
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-counts.jsonl"),
            lambda i: {
                "task_id": f"t{i}",
                "samples": 20,
                "correct_samples": (7 * i + k * (i % 2)) % 20,
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-tokens.jsonl"),
            lambda i: {
                "id": i,
                "token_logprobs": [
                    None,
                    *(-1 - (i + j) % 5 / 4 - k * (j % 3) / 90 for j in range(30 + i % 4)),
                ],
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-seconds.parquet"),
            lambda i: {"id": f"q{i}", "seconds": 1 + i % 5 / 10 + k * (i % 3) / 10},
        )  # noqa: B023
        rows(
            Path(f"{name}-answers.jsonl"),
            lambda i: {
                "id": i,
                "label": "yn"[i % 2],
                "probabilities": {"y": (i % 9 + 1 + k) / 12, "n": 1 - (i % 9 + 1 + k) / 12},
            },
        )  # noqa: B023
        rows(
            Path(f"{name}-runs.csv"),
            lambda i: {"seed": i, "terminal": "ok", "loss": 2 + i % 4 / 10 + k * (i % 3) / 10},
            12,
        )  # noqa: B023
        Path(f"{name}.txt").write_text(
            ("the cat sat on a mat\n" if k else "the cat sat on the mat today\n") * 4
            + "a dog came in from the rain\n" * 12
        )
    rows(
        Path("runs.csv"),
        lambda i: {
            "seed": i // 2,
            "optimizer": ("adamw", "muon")[i % 2],
            "terminal": "ok",
            "loss": 2 + i % 4 / 10 + i % 2 * (i % 3) / 10,
        },
        24,
    )
    rows(
        Path("seeds.csv"),
        lambda i: {
            "arm": ("adamw", "muon")[i % 2],
            "seed": i // 2,
            "loss": 2 + i % 4 / 10 + i % 2 * (i % 3) / 10,
        },
        24,
    )
    rows(
        Path("wandb.csv"),
        lambda i: {
            "Name": f"run-{i}",
            "State": "finished",
            "optimizer": ("adamw", "muon")[i % 2],
            "seed": i // 2,
            "val/loss": 2 + i % 4 / 10 + i % 2 * (i % 3) / 10,
        },
        24,
    )
    Path("references.txt").write_text(
        "the cat sat on the mat\n" * 4 + "a dog came in from the rain\n" * 12
    )
    rows(
        Path("docs.jsonl"),
        lambda i: {
            "text": f"Line {i} of the file is read before line {i + 1}. " * (1 + i % 3)
        },
        12,
    )
    rows(
        Path("questions.jsonl"),
        lambda i: {
            "id": i,
            "prompt": f"{i} is",
            "candidates": [" odd", " even"],
            "label": " odd" if i % 2 else " even",
        },
        12,
    )
    return tmp_path


LISTED = [
    c for c in commands() if not any(word in c for word in ELSEWHERE) and " help " not in c
]
CHECK = "invar-nb verify REPORT"


@pytest.mark.parametrize("command", [c for c in LISTED if c != CHECK])
def test_the_command_of_a_row_answers(command, evidence, capsys):
    if "models/" in command:
        pytest.importorskip("torch")
        for model in (BASE, TUNED):
            shutil.copytree(model, Path("models", model.name))
    if ".gguf" in command:
        pytest.importorskip("gguf")
        from small_models import write_gguf

        write_gguf(BASE, Path("base-Q4_0.gguf"), "Q4_0")
    code = main([TASKS.get(word, word) for word in shlex.split(command)[1:]])
    said = capsys.readouterr()
    assert code in (0, 1), said.err
    if "--out" in command:
        return
    assert re.match(
        r"\d (parts: |texts, )|Improved|Regressed|Worse|Equivalent|Inconclusive|Identical|Undecided|No regression",
        said.out,
    ), said.out
    assert (
        re.search(rf"Intervals over \d+ {units(command)}", said.out) or " parts: " in said.out
    ), said.out
    report = next(evidence.glob("invar-nb-*"))
    assert (
        CHECK in LISTED
        and main([str(report) if word == "REPORT" else word for word in CHECK.split()[1:]])
        == 0
    )


def test_the_python_of_a_row_answers(evidence):
    cells = [
        c
        for page in ("i-have-files", "which-method")
        for c in json.loads((ROOT / "nbs" / f"{page}.ipynb").read_text())["cells"]
    ]
    calls = set(
        re.findall(
            r"`((?:newcombe_interval|fisher_exact|read_runs)\([^`]+\))`",
            "\n".join("".join(c["source"]) for c in cells),
        )
    )
    found = {
        call: eval(call, {name: getattr(invar_nb, name) for name in invar_nb.__all__})
        for call in calls
    }
    assert len(found) == 3 and all(
        len(value) == 12 for call, value in found.items() if call.startswith("read_runs")
    )


def test_a_server_row_is_run_where_a_server_is():
    served = [c for c in commands() if c not in LISTED and " help " not in c]
    assert len(served) == 1 and re.search(
        r'"compare",\s+address,\s+BASE',
        (ROOT / "tests" / ELSEWHERE["openai:"]).read_text(),
    )


READ = [reader for reader in READERS if reader.read]


@pytest.fixture
def example(request, tmp_path, monkeypatch):
    "The folder with the example of a reader, or where it has no files with real ones."

    def written(reader):
        if reader.example.files is None:
            return request.getfixturevalue("evidence")
        monkeypatch.chdir(tmp_path)
        for arm in (0, 1):
            for name, content in reader.example.files(arm).items():
                path = Path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return written


@pytest.mark.parametrize("reader", READ, ids=lambda reader: reader.name)
def test_the_example_of_a_reader_is_recognised_and_compared(reader, example, capsys):
    folder = example(reader)
    _, _, baseline, candidate, *options = shlex.split(reader.example.command)
    references = tuple(word for word in options if word.startswith("references="))
    for file in (baseline, candidate):
        assert find_source(file, Reading(references=references)) is reader
    code = main([TASKS.get(word, word) for word in shlex.split(reader.example.command)[1:]])
    answer = capsys.readouterr()
    assert code in (0, 1), answer.err
    assert " parts: " in answer.out or re.search(r"Intervals over \d+ ", answer.out), (
        answer.out
    )
    assert main(["verify", str(next(folder.glob("invar-nb-*")))]) == 0


def test_the_guide_and_the_help_list_every_kind(capsys):
    page = json.loads((ROOT / "nbs" / "i-have-files.ipynb").read_text())["cells"]
    shown = json.dumps([cell.get("outputs") for cell in page])
    assert main(["help", "files"]) == 0
    listed = capsys.readouterr().out
    for reader in READ:
        for text in (shown, listed):
            assert reader.known_by in text and reader.example.command in text, reader.name


def test_the_help_says_what_the_label_of_a_question_is(capsys):
    "A user guessed that it is an index; the text of the right candidate is read too."
    answer = "the right one: its text, or its place from 0"
    guide = (ROOT / "nbs" / "i-have-files.ipynb").read_text()
    assert "its text, or its place from 0" in guide
    for words in (["help", "files"], ["help", "compare"], ["help", "answer"]):
        assert main(words) == 0
        shown = " ".join(re.sub(r"[│\n]", " ", capsys.readouterr().out).split())
        assert answer in shown or answer.replace("one", "candidate") in shown, words


def test_a_kind_that_is_not_read_says_what_to_do_instead():
    assert all(reader.cure for reader in READERS if not reader.read)
    assert all(reader.example for reader in READ)


def test_every_format_has_a_row(evidence):
    "A format that the package learns to read is missed here until the page shows it."
    named = {
        word
        for c in LISTED
        for word in shlex.split(c)
        if Path(word).exists() and not word.startswith("models/")
    }
    texts = {"base.txt", "tuned.txt", "references.txt"}
    found = {
        find_source(path, Reading(references=("x",) if path in texts else ())).name
        for path in named - {"docs.jsonl", "questions.jsonl"}
    }
    by_hand = {"losses"}  # made by `score`
    assert found | by_hand <= {reader.name for reader in READ} and found


def test_a_column_that_is_asked_for_slices_though_it_has_many_values(tmp_path, capsys):
    "The 67 kinds of BLiMP were refused, with no way to have them."
    kinds = [f"kind {i}" for i in range(67)]
    for name, wrong in (("a", 5), ("b", 3)):
        rows = [
            {"id": f"{kind}-{i}", "label": "good", "kind": kind}
            | {"prediction": "bad" if (i + len(kind)) % wrong == 0 else "good"}
            for kind in kinds
            for i in range(4)
        ]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    paths = [str(tmp_path / f"{name}.jsonl") for name in "ab"]
    out = tmp_path / "r"
    assert main(["compare", *paths, "--by", "kind", "--out", str(out)]) < 2, (
        capsys.readouterr()
    )
    slices = {
        row["key"].get("slice")
        for row in json.loads((out / "report.json").read_text())["rows"]
    }
    assert sum("kind 66" in str(slice) for slice in slices) == 1


# --- folders that hold one file of results, and reports of ours ---
def helm_rows(arm, splits=("test",), trials=1):
    "Rows of HELM: of each instance the original and a perturbed copy with the opposite score."
    rows = []
    for trial, i in itertools.product(range(trials), range(40)):
        is_right = float((i * 7 + arm + trial) % 3 > 0)
        name = {"name": "exact_match", "split": splits[i % len(splits)]}
        instance = {"instance_id": f"id{i}", "train_trial_index": trial}
        rows.append({**instance, "stats": [{"name": name, "mean": is_right}]})
        kind = {"name": "typos", "robustness": True}
        stats = [{"name": {**name, "perturbation": kind}, "mean": 1 - is_right}]
        rows.append({**instance, "perturbation": kind, "stats": stats})
        other = {"name": {**name, "name": "toxicity"}, "mean": 0.5}
        rows.append({**instance, "stats": [other]})  # of another class of metrics
    return rows


@pytest.fixture
def answered(tmp_path, monkeypatch, capsys):
    "(exit code, all that was printed in one line) of a command in an empty folder."
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main([*map(str, words)])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


def write_helm(**options):
    for arm, name in enumerate(("base", "tuned")):
        Path(name).mkdir()
        rows = helm_rows(arm, **options)
        Path(name, "per_instance_stats.json").write_text(json.dumps(rows))
        Path(name, "stats.json").write_text(json.dumps([{"name": {"name": "x"}, "mean": 1}]))
        state = {"adapter_spec": {}, "request_states": []}
        Path(name, "scenario_state.json").write_text(json.dumps(state))


def test_perturbed_instances_of_helm_are_left_out_and_counted(answered):
    write_helm()
    code, text = answered("compare", "base", "tuned", "--json")
    assert code == 0
    assert "40 rows of perturbed instances left out, as in the main scores of HELM." in text
    originals = {
        row["instance_id"]: row["stats"][0]["mean"]
        for row in helm_rows(0)
        if "perturbation" not in row and row["stats"][0]["name"]["name"] == "exact_match"
    }
    arm = json.loads(Path("invar-nb-report", "baseline.json").read_text())
    assert dict(zip(arm["ids"], arm["values"], strict=True)) == originals


def test_trials_of_helm_are_refused_or_averaged(answered):
    write_helm(trials=3)
    code, text = answered("compare", "base", "tuned")
    assert code == 3 and "'id0' again" in text and "--set repeats=mean" in text
    code, text = answered("compare", "base", "tuned", "--set", "repeats=mean")
    assert code == 0 and "120 rows of perturbed" in text and "over 40 examples" in text


def test_splits_of_helm_are_parts_of_which_one_can_be_chosen(answered):
    write_helm(splits=("valid", "test"))
    code, text = answered("compare", "base", "tuned")
    assert code == 0 and "valid" in text and "2 parts, " in text, text
    code, text = answered("compare", "base", "tuned", "--task", "test", "--out", "one")
    assert code == 0 and "over 20 examples" in text and "valid" not in text, text
    code, text = answered("compare", "base", "tuned", "--task", "dev", "--out", "none")
    assert code == 2 and "a split must be one of 'valid', 'test'" in text, text


def write_folders(models, texts, ending=".log"):
    "A folder for each model with a file for each text, all of llama.cpp."
    for model in models:
        Path(model).mkdir()
        name = "base" if model == "f16" else "tuned"
        file = DATA / "llama_cpp" / f"{name}{'.type1.log' if ending == '.log' else '.kld'}"
        for text in texts:
            shutil.copy(file, Path(model, f"{text}{ending}"))


def keys_of_rows(report):
    rows = json.loads(Path(report, "report.json").read_text())["rows"]
    return {(row["key"]["candidate"], row["key"]["part"]) for row in rows}


@pytest.mark.parametrize("ending", [".log", ".kld", ".bin"])
def test_folders_with_one_file_for_each_text_are_models_on_several_texts(answered, ending):
    "Logs of three models on two texts could not be given in one command."
    write_folders(["f16", "q4", "q2"], ["wiki", "code"], ending)
    margins = ("--margin", "wiki=1%", "--margin", "2%")
    code, text = answered("compare", "f16/", "q4/", "q2", *margins)
    assert code == 0 and "2 candidates on 2 texts, perplexity" in text, text
    assert "1 % for perplexity of wiki" in text and ("flips" in text) == (ending != ".log")
    assert keys_of_rows("invar-nb-report") >= set(
        itertools.product(["q4", "q2"], ["wiki", "code"])
    )
    arms = json.loads(Path("invar-nb-report", "report.json").read_text())["arms"]
    assert {arm["model"] for arm in arms.values()} == {"f16", "q4", "q2"}
    assert answered("verify", "invar-nb-report")[0] == 0
    code, text = answered("compare", "f16", "q4", "--task", "wiki", "--out", "one")
    assert code == 0 and "texts" not in text and "code" not in text, text
    code, text = answered("compare", "f16", "q4", "--task", "wikis")
    assert code == 2 and "'code', 'wiki'" in text and "Did you mean 'wiki'?" in text, text


def test_folders_of_texts_mean_the_same_in_python_and_in_a_study_file(answered):
    write_folders(["f16", "q4"], ["wiki", "code"])
    result = invar_nb.compare("f16/", "q4")
    assert {part for _, part in result.arms} == {"wiki", "code"}
    Path("s.toml").write_text('[arms]\nbaseline = "f16/"\ncandidate = "q4"\n')
    code, text = answered("compare", "--study", "s.toml")
    assert code == 0 and result.headline in text, text
    code, text = answered("evaluate", "f16")
    assert code == 0 and "2 parts" in text and "wiki: perplexity" in text, text


def test_study_of_folders_leads_to_the_function_that_reads_them(answered):
    write_folders(["f16", "q4", "q2"], ["wiki", "code"])
    with pytest.raises(UsageError, match=r'compare_models\("base", \["q8", "q4"\]\)'):
        invar_nb.study("f16/")
    named = invar_nb.study({"baseline": "f16", "q4": "q4"})
    names = ("baseline", "q4")
    assert {*named.arms} == {(name, text) for name in names for text in ("wiki", "code")}
    result = invar_nb.compare_models("f16", ["q4", "q2"])
    assert {*result.arms} == {
        (name, text) for name in ("baseline", "q4", "q2") for text in ("wiki", "code")
    }


def test_tables_in_folders_are_texts_too(answered):
    for model, change in (("base", 0), ("tuned", 1)):
        Path(model).mkdir()
        for text in ("arc", "gsm8k"):
            rows(
                Path(model, f"{text}.csv"),
                lambda i, c=change: {"id": i, "score": (i * 7 + c) % 3 / 2},
            )
    code, text = answered("compare", "base", "tuned", "--better", "higher")
    assert code < 2 and "2 parts" in text and "arc" in text and "gsm8k" in text, text


def test_a_text_that_one_folder_lacks_is_named_and_both_cures_work(answered):
    write_folders(["f16", "q4"], ["wiki", "code"])
    lost = Path("q4", "wiki.log")
    kept = lost.read_bytes()
    lost.unlink()
    for arms in (("f16", "q4"), ("q4", "f16")):
        code, text = answered("compare", *arms)
        assert code == 3 and "no 'wiki' in q4, which has 'code'" in text, text
        assert "Add q4/wiki.log, or say --intersect to compare what all have: 'code'" in text
    code, text = answered("compare", "f16", "q4", "--intersect")
    assert code == 0 and "Left out, since not all have them: wiki." in text, text
    lost.write_bytes(kept)
    assert answered("compare", "f16", "q4", "--out", "again")[0] == 0
    Path("q4", "wiki.log").rename("q4/wiki.q4.log")
    Path("q4", "code.log").rename("q4/code.q4.log")
    code, text = answered("compare", "f16", "q4")
    assert code == 3 and "Call the files of one text alike in all folders" in text, text


def test_a_file_beside_a_folder_of_texts_is_refused(answered):
    write_folders(["f16", "q4"], ["wiki", "code"])
    code, text = answered("compare", "f16", "q4/code.log")
    assert code == 2 and "q4/code.log must be a folder with one file for each text" in text
    assert "Name the file of the same text, such as f16/code.log" in text, text
    assert answered("compare", "f16/code.log", "q4/code.log")[0] == 0
    shutil.copytree(page_data("lm_eval") / "base", "results")
    code, text = answered("compare", "f16", "results")
    assert code == 2 and "got lm-eval. Compare the files of one tool" in text, text
    pytest.importorskip("torch")
    code, text = answered("compare", str(BASE), "f16")
    assert code == 2 and "both arms must be of the same kind" in text, text


def test_a_file_of_all_texts_beside_a_folder_of_texts_says_what_to_do(answered):
    "It said that the file must be called after the one text of the folder."
    write_parts("base.csv", 3)
    write_parts("new.csv", 3)
    head, *rows = Path("new.csv").read_text().splitlines()
    Path("new").mkdir()
    for text in ("web", "code"):
        lines = [head, *(row for row in rows if row.startswith(text))]
        Path("new", f"{text}.csv").write_text("\n".join(lines) + "\n")
    for options in ((), ("--column", "part=text")):
        code, text = answered("compare", "base.csv", "new", *options)
        assert code == 2 and "got a file of several texts, in its column 'text'" in text, text
        assert "such as code.csv, in a folder of its model; or give one such file" in text, (
            text
        )
        assert "say --column part=text" in text, text
    assert answered("compare", "base.csv", "new.csv", "--column", "part=text")[0] == 0


@pytest.mark.parametrize("content", [b"", b"llama_model_quantize: quantizing to Q4_K"])
def test_a_damaged_file_among_the_texts_is_no_silent_gap(answered, content):
    write_folders(["f16", "q4"], ["wiki", "code"])
    for model in ("f16", "q4"):
        Path(model, "drama.log").write_bytes(content)
        Path(model, ".drama.log").write_bytes(content)
    Path("f16", "README.md").write_text("notes")
    code, text = answered("compare", "f16", "q4")
    assert (
        code == 3 and "got f16/drama.log, which is none of the llama-perplexity logs" in text
    )
    for model in ("f16", "q4"):
        Path(model, "drama.log").unlink()
    assert answered("compare", "f16", "q4")[0] == 0


def test_two_files_of_one_text_and_two_kinds_are_refused(answered):
    write_folders(["f16", "q4"], ["wiki", "code"])
    shutil.copy("q4/wiki.log", "q4/wiki.txt")
    code, text = answered("compare", "f16", "q4")
    assert code == 2 and "q4/wiki.log and q4/wiki.txt. Keep one, or rename one" in text, text
    Path("q4/wiki.txt").unlink()
    shutil.copy(DATA / "llama_cpp" / "tuned.kld", "q4/wiki.kld")
    code, text = answered("compare", "f16", "q4")
    assert code in (2, 3) and "Name one file of it, such as q4/wiki.log" in text, text
    assert "keep one kind in it, a file for each text: it has" in text, text


def test_more_files_than_are_looked_at_are_refused(answered):
    write_folders(["f16", "q4"], [f"t{i:03}" for i in range(101)])
    code, text = answered("compare", "f16", "q4")
    assert code == 2 and "at most 100 files; got 101 in f16" in text, text
    code, text = answered("compare", "f16", "q4", "--task", "t000")
    assert code == 2 and "at most 100 files" in text, text


def test_a_pilot_and_runs_of_seeds_are_no_texts(answered):
    for model in ("a", "b"):
        Path(model).mkdir()
        for name in ("one", "two"):
            rows(Path(model, f"{name}.csv"), lambda i: {"seed": i, "loss": i / 7}, 12)
    code, text = answered("compare", "a", "b", "--metric", "loss")
    assert code == 2 and "Name one file of it" in text, text
    write_folders(["f16", "q4"], ["baseline", "candidate"])
    for model in ("f16", "q4"):
        Path(model, "plan.json").write_text("{}")
    code, text = answered("compare", "f16", "q4")
    assert code == 2 and "Name one file of it, such as f16/candidate.log" in text, text


def test_a_copy_of_results_in_one_of_two_folders_is_refused(answered):
    write_helm()
    shutil.copy("base/per_instance_stats.json", "base/second.json")
    code, text = answered("compare", "base", "tuned")
    assert code == 3 and "name one file of each folder" in text, text
    for model in ("base", "tuned"):
        for name in ("scenario_state", "stats"):
            Path(model, f"{name}.json").unlink()
    code, text = answered("compare", "base", "tuned")
    assert code == 3 and "no 'second' in tuned, which has 'per_instance_stats'" in text, text


def test_a_checkpoint_of_the_trainer_is_named(answered):
    Path("run").mkdir()
    state = {"global_step": 1, "log_history": [{"step": 1, "loss": 2.0}]}
    Path("run", "trainer_state.json").write_text(json.dumps(state))
    code, text = answered("compare", "run", "run")
    assert code == 3 and "as the Trainer writes it" in text, text


def test_a_report_is_no_evidence_but_what_it_was_made_from_is(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        rows = [f"{i},{(i * 7 + arm) % 10 / 10}" for i in range(30)]
        Path(name).write_text("id,f1\n" + "\n".join(rows) + "\n")
    assert answered("compare", "a.csv", "b.csv")[0] in (0, 1)
    for given in ("invar-nb-report", "invar-nb-report/report.json"):
        code, text = answered("compare", given, "b.csv", "--out", "no")
        assert code == 2 and "a report of invar-nb on 'a.csv', 'b.csv'" in text, text
    write_rows = [{"seed": i, "loss": 2 + i / 10} for i in range(6)]
    Path("runs.csv").write_text(
        "seed,loss\n" + "".join(f"{row['seed']},{row['loss']}\n" for row in write_rows)
    )
    assert answered("evaluate", "runs.csv", "--out", "runs")[0] == 0
    code, text = answered("evaluate", "runs")
    assert code == 2 and "Give the evidence in it: runs/baseline.jsonl." in text, text
    assert answered("evaluate", "runs/baseline.jsonl")[0] == 0


def test_the_evidence_of_a_report_on_several_candidates_begins_with_the_baseline(answered):
    for arm, name in enumerate(("ship", "Q4", "Q6")):
        rows = [f"{i},{2 + (i * 7 + arm * i) % 10 / 1000},100" for i in range(30)]
        Path(f"{name}.csv").write_text("id,loss,tokens\n" + "\n".join(rows) + "\n")
    assert answered("compare", "ship.csv", "Q4.csv", "Q6.csv", "--out", "r")[0] in (0, 1)
    code, text = answered("plan", "r", "--margin", "0.5%")
    files = text.split("Give the evidence in it: ")[1].strip().removesuffix(".").split()
    assert code == 2 and [Path(file).stem for file in files] == ["baseline", "Q4", "Q6"], text
    assert answered("plan", *files, "--margin", "0.5%")[0] == 0


# --- documents of several rows, and columns without a role ---
def write_table(name, columns, rows):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path(name).write_text("\n".join(lines) + "\n")


def document_rows(arm, n=40):
    "Rows of id, document, f1: five rows of each document."
    return [(f"q{i:02}", f"d{i // 5}", (i * 7 + arm) % 10 / 10) for i in range(n)]


def without_id(rows):
    return [row[1:] for row in rows]


COLUMNS = ("example_id", "document", "f1")
SCORE = ("--score", "f1")


def test_a_document_taken_as_the_id_is_named_with_what_to_type(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_table(name, COLUMNS[1:], without_id(document_rows(arm)))
        write_table(f"row-{name}", ("row", *COLUMNS[1:]), document_rows(arm))
    code, text = answered("compare", "a.csv", "b.csv", *SCORE)
    assert (
        code == 3 and "got 'd0' again in column 'document', as in line 2. Add a column" in text
    ), text
    assert "--column cluster=document" in text and "--set repeats=mean" in text, text
    assert answered("compare", "a.csv", "b.csv", *SCORE, "--set", "repeats=mean")[0] in (0, 1)
    code, text = answered("compare", "row-a.csv", "row-b.csv", *SCORE)
    cure = "--column id=row and --column cluster=document"
    assert code == 3 and f"Say {cure}." in text, text
    words = cure.replace(" and", "").split()
    code, text = answered("compare", "row-a.csv", "row-b.csv", *SCORE, *words)
    assert code in (0, 1) and "over 8 clusters" in text, text


def test_a_column_of_ids_that_one_file_lacks_is_named_with_both_files(answered):
    write_table("a.csv", COLUMNS, document_rows(0))
    write_table("b.csv", COLUMNS[1:], without_id(document_rows(1)))
    write_table("c.csv", ("Example", *COLUMNS[1:]), document_rows(1))
    code, text = answered("compare", "a.csv", "b.csv", *SCORE)
    assert code == 3 and "got 'example_id' in a.csv and 'document' in b.csv" in text, text
    assert "Write a column 'example_id' into b.csv." in text, text
    code, text = answered("compare", "c.csv", "a.csv", *SCORE)
    assert code == 3 and "Rename the column 'Example' of c.csv to 'example_id'." in text, text


@pytest.mark.parametrize("column", ["document", "conversation_id", "user"])
def test_scores_of_several_rows_a_document_say_how_documents_are_counted(answered, column):
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_table(name, ("id", column, "f1"), document_rows(arm))
    code, text = answered("compare", "a.csv", "b.csv")
    cure = f"--column cluster={column}"
    assert f"only 8 values of {column} occur: {cure} counts these" in text, text
    assert code in (0, 1) and "over 40 examples" in text, text
    for units in ("clusters", "documents"):
        code, text = answered("compare", "a.csv", "b.csv", "--units", units)
        assert code == 2 and f"Say {cure}, or leave units out" in text, text
        code, text = answered(
            *("compare", "a.csv", "b.csv", "--units", units, *cure.split(), "--out", units)
        )
        assert code in (0, 1) and "over 8 clusters" in text and "occur:" not in text, text


def test_a_column_with_other_values_in_every_row_groups_nothing(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        rows = [(name, name, f1) for name, _, f1 in document_rows(arm)]
        write_table(name, ("id", "document", "f1"), rows)
    code, text = answered("compare", "a.csv", "b.csv")
    assert code in (0, 1) and "cluster=" not in text, text
    assert (
        "Say --column cluster=NAME of a table"
        in (answered("compare", "a.csv", "b.csv", "--units", "clusters")[1])
    )


@pytest.mark.parametrize(
    "typed, cure",
    [
        ("group=document", "cluster=document"),
        ("cluster:document", "cluster=document"),
        ("document", "cluster=document"),
        ("loss", "loss=COLUMN"),
        ("pred=x", "prediction=x"),
        ("q=x", "score=x"),
    ],
)
def test_a_role_that_does_not_exist_is_answered_with_one_that_does(answered, typed, cure):
    code, text = answered("compare", "a.csv", "b.csv", "--column", typed)
    assert code == 2 and "ROLE=COLUMN with one of id, loss" in text, text
    assert f"--column {cure}." in text, text


# --- two models in one file ---
def test_two_models_side_by_side_are_split_by_the_commands_of_the_refusal(answered):
    rows = [(i, i * 7 % 10 / 10, i * 3 % 10 / 10) for i in range(30)]
    write_table("wide.csv", ("id", "f1_base", "f1_tuned"), rows)
    for words in (
        ("wide.csv",),
        ("wide.csv", "wide.csv"),
        ("wide.csv", "wide.csv", "--score", "f1_base,f1_tuned"),
    ):
        code, text = answered("compare", *words)
        assert code in (2, 3) and "'f1_base' and 'f1_tuned' are of two models" in text, text
    *edits, command = re.search(r"make two files: (.*)\.", text)[1].split("; ")
    for edit in edits:
        subprocess.run(edit, shell=True, check=True)
    assert shlex.split(command)[:2] == ["invar-nb", "compare"]
    code, text = answered(*shlex.split(command)[1:])
    assert code in (0, 1) and "over 30 examples" in text, text


def test_scores_typed_with_a_comma_or_in_capitals_are_named(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        rows = [(i, (i * 7 + arm) % 10 / 10, 1 + i % 3) for i in range(30)]
        write_table(name, ("id", "f1", "latency"), rows)
    code, text = answered("compare", "a.csv", "b.csv", "--score", "f1,latency")
    assert code == 2 and "Give each by itself: --score f1 --score latency." in text, text
    words = ("--score", "f1", "--score", "latency")
    assert answered("compare", "a.csv", "b.csv", *words)[0] in (0, 1)
    code, text = answered("compare", "a.csv", "b.csv", "--score", "F1")
    assert code == 3 and text.endswith("Did you mean 'f1'?"), text


def test_models_in_one_file_of_a_tool_are_found(answered):
    (content,) = next(r for r in READERS if r.name == "promptfoo").example.files(0).values()
    both = json.loads(content)
    rows = both["results"]["results"]
    rows += [{**row, "provider": {"id": "n"}, "score": 1.0} for row in rows]
    Path("both.json").write_text(json.dumps(both))
    command = ["compare", "both.json", "--column", "arm=provider.id=m,n"]
    for words in (["both.json"], ["both.json", "both.json"], [*command[1:2], *command[1:]]):
        code, text = answered("compare", *words)
        assert code == 2 and f"invar-nb {shlex.join(command)}" in text, text
    assert answered(*command)[0] in (0, 1)


def test_runs_of_a_tracker_and_long_tables_name_the_whole_command(answered):
    rows = [(("adamw", "muon")[i % 2], i // 2, 2 + i % 4 / 10) for i in range(24)]
    write_table("wandb.csv", ("config.optimizer", "config.seed", "val/loss"), rows)
    write_table("long.csv", ("model", "id", "f1"), rows)
    command = ["compare", "wandb.csv", "--column", "arm=config.optimizer=adamw,muon"]
    command += ["--metric", "val/loss"]
    code, text = answered("compare", "wandb.csv")
    assert code == 2 and f"invar-nb {shlex.join(command)}, the baseline first" in text, text
    assert answered(*command)[0] in (0, 1)
    command = ["compare", "long.csv", "--column", "arm=model=adamw,muon"]
    for words in (["long.csv"], ["long.csv", "long.csv"]):
        code, text = answered("compare", *words, "--out", "r")
        assert code == 2 and f"invar-nb {shlex.join(command)}, the baseline first" in text, (
            text
        )
    assert answered(*command, "--out", "long")[0] in (0, 1)


# --- what programs write into tables ---
def test_the_index_of_pandas_is_the_id_only_where_nothing_else_is(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        rows = [(i, (i * 7 + arm) % 10 / 10) for i in range(30)]
        write_table(name, ("", "f1"), rows)
        write_table(f"id-{name}", ("", "id", "f1"), [(*row[:1], *row) for row in rows])
        write_table(f"document-{name}", ("", *COLUMNS[1:]), document_rows(arm))
    code, text = answered("compare", "a.csv", "b.csv")
    assert code in (0, 1) and "has no name and is the id by which rows are matched" in text, (
        text
    )
    code, text = answered("compare", "id-a.csv", "id-b.csv", "--out", "id")
    assert code in (0, 1) and "has no name and is not read" in text, text
    code, text = answered("compare", "document-a.csv", "document-b.csv", "--out", "d")
    assert (
        code == 3 and "Say --column id='Unnamed: 0' and --column cluster=document" in text
    ), text
    words = ("--column", "id=Unnamed: 0", "--column", "cluster=document", "--out", "d")
    code, text = answered("compare", "document-a.csv", "document-b.csv", *words)
    assert code in (0, 1) and "over 8 clusters" in text, text


@pytest.mark.parametrize("right, wrong", [("yes", "no"), ("Y", "N"), ("correct", "incorrect")])
def test_words_for_right_and_wrong_are_scores(answered, right, wrong):
    for arm, name in enumerate(("a.csv", "b.csv")):
        rows = [(i, right if (i * 7 + arm) % 3 else wrong) for i in range(30)]
        write_table(name, ("id", "exact_match"), rows)
    code, text = answered("compare", "a.csv", "b.csv")
    assert code in (0, 1) and "over 30 examples" in text, text
    Path("b.csv").write_text(Path("b.csv").read_text().replace(right, "maybe"))
    code, text = answered("compare", "a.csv", "b.csv")
    assert code == 3 and "For right and wrong write 1 and 0." in text, text


def test_a_table_packed_by_gzip_is_read_whatever_its_name(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_table(name, ("id", "f1"), [(i, (i * 7 + arm) % 10 / 10) for i in range(30)])
    Path("packed.csv").write_bytes(gzip.compress(Path("a.csv").read_bytes()))
    code, text = answered("compare", "packed.csv", "a.csv")
    assert code == 0 and text.startswith("Identical: f1"), text


# --- every metric that is asked for is shown, or refused ---
def write_two_metrics(name, arm=0):
    "Runs of twelve seeds with two metrics, of which one has the name of a metric of ours."
    rows = [(i, 0.7 + (i * 5 + arm) % 7 / 100, 2 + (i * 3 + arm) % 7 / 100) for i in range(12)]
    write_table(name, ("seed", "accuracy", "loss"), rows)


@pytest.mark.parametrize("names", [("accuracy", "loss"), ("loss", "accuracy")])
def test_every_metric_of_runs_that_is_asked_for_is_in_the_table(answered, names):
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_two_metrics(name, arm)
    metrics = [word for name in names for word in ("--metric", name)]
    commands = (
        ("evaluate", "a.csv"),
        ("evaluate", "a.csv", "b.csv"),
        ("compare", "a.csv", "b.csv"),
    )
    for number, command in enumerate(commands):
        code, text = answered(*command, *metrics, "--out", f"out{number}", "--json")
        assert code in (0, 1), text
        document = json.loads(Path(f"out{number}", "report.json").read_text())
        shown = [row["key"]["metric"] for row in document["levels"] or document["rows"]]
        assert list(dict.fromkeys(shown)) == [*names], (command, shown)


def test_a_metric_that_no_file_has_is_refused_beside_one_that_it_has(answered):
    write_two_metrics("runs.csv")
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_table(name, ("id", "f1"), [(i, (i * 7 + arm) % 10 / 10) for i in range(30)])
    code, text = answered("evaluate", "runs.csv", "--metric", "loss", "--metric", "perplexity")
    assert code == 2 and "one of 'accuracy', 'loss'; got 'perplexity'" in text, text
    for command in (("evaluate", "a.csv"), ("compare", "a.csv", "b.csv")):
        code, text = answered(*command, "--metric", "score", "--metric", "accuracy")
        assert code == 2 and "got 'accuracy', which reads answers" in text, text


def test_runs_are_evaluated_apart_from_other_files(answered):
    write_two_metrics("runs.csv")
    write_table("f1.csv", ("id", "f1"), [(i, i % 7 / 10) for i in range(30)])
    for words in ((), ("--metric", "loss")):
        code, text = answered("evaluate", "f1.csv", "runs.csv", *words)
        assert code == 2 and "runs over seeds must be evaluated by themselves" in text, text


# --- an id that was written twice in a file of losses ---
def loss_rows(arm, twice=None, n=30):
    "Rows of id, loss, tokens; the row of one id may stand twice, in place of a later one."
    names = [f"d{twice if i == 12 and twice is not None else i}" for i in range(n)]
    return [(name, 2 + (i * 7 + arm) % 10 / 10, 40) for i, name in enumerate(names)]


@pytest.mark.parametrize("column", ["id", "doc_id", "document"])
@pytest.mark.parametrize("options", [(), ("--intersect",)])
@pytest.mark.parametrize("twice_in_baseline", [False, True])
def test_an_id_written_twice_in_one_file_of_losses_is_named_with_its_lines(
    answered, column, options, twice_in_baseline
):
    write_table("a.csv", (column, "loss", "tokens"), loss_rows(0))
    write_table("b.csv", (column, "loss", "tokens"), loss_rows(1, twice=5))
    files = ("b.csv", "a.csv") if twice_in_baseline else ("a.csv", "b.csv")
    code, text = answered("compare", *files, *options)
    words = "'d5' 2 times (lines 7 and 14), and once in a.csv (line 7)"
    assert (
        code == 3
        and f"b.csv, line 14: both files must have as many rows of an id; got {words}" in text
    ), text
    assert "repeats" not in text and "Remove the row that was written twice" in text, text
    rows = loss_rows(1, twice=5)
    del rows[12]
    write_table("b.csv", (column, "loss", "tokens"), rows)
    assert "On the 29 that all have" in answered("compare", *files, "--intersect")[1]


def test_an_id_written_twice_in_both_files_is_named_with_both_lines(answered):
    for arm, name in enumerate(("a.csv", "b.csv")):
        write_table(name, ("id", "loss", "tokens"), loss_rows(arm, twice=5))
    for command in (("compare", "a.csv", "b.csv"), ("evaluate", "a.csv")):
        code, text = answered(*command)
        assert code == 3 and "a.csv, line 14: every id must occur once" in text, text
        assert "got 'd5' again, as in line 7. If 'id' names documents" in text, text


def test_documents_of_other_numbers_of_windows_in_memory_are_named():
    pd = pytest.importorskip("pandas")
    columns = ("doc_id", "loss", "tokens")
    old = pd.DataFrame(loss_rows(0), columns=columns)
    new = pd.DataFrame(loss_rows(1, twice=5), columns=columns)
    for tables in ((old, new), (new, old)):
        for options in ({}, {"intersect": True}):
            with pytest.raises(invar_nb.PairingError, match="2 windows? of 'd5' in the"):
                invar_nb.compare(*tables, **options)


def test_each_of_several_texts_in_one_table_has_a_row(evidence, capsys):
    command = "compare base-texts.csv tuned-texts.csv"
    assert main([*command.split(), "--column", "part=text"]) in (0, 1)
    out = capsys.readouterr().out
    assert "2 texts, perplexity: " in out and all(
        re.search(rf"^{name} +\d", out, re.M) for name in ("news", "code")
    ), out
    assert main([*command.split(), "--by", "text", "--out", "slices"]) in (0, 1)
    out = capsys.readouterr().out
    assert all(f"text {name}: perplexity" in out for name in ("news", "code")), out


# --- parts: texts or tasks of one table, each with a claim of its own
def write_parts(name, losses, shift=0.0, on=()):
    "A table of 24 documents in each text; `shift` is added on the texts named."
    rows = [
        (text, f"d{i}", losses + (i * 7 + k) % 10 / 10 + shift * (text in on), 40)
        for k, text in enumerate(("web", "code"))
        for i in range(24)
    ]
    write_table(name, ("text", "document_id", "loss", "tokens"), rows)


def test_a_loss_on_one_text_of_a_table_is_seen_and_can_be_allowed_there_alone(answered):
    "All rows were one text: a merge that lost 3 % on code was equivalent."
    write_parts("base.csv", 3)
    write_parts("hurt.csv", 3, 0.03, on=("code",))
    write_parts("fine.csv", 3)
    parts = ("--column", "part=text")
    code, text = answered("compare", "base.csv", "hurt.csv", "--margin", "5%")
    assert (
        code == 0 and text.count("2 values of text occur: --column part=text (part=") == 1
    ), text
    code, text = answered("compare", "base.csv", "fine.csv", "hurt.csv", *parts, "--out", "r")
    assert code == 1 and "Exit code 1: perplexity regressed for hurt on code." in text, text
    assert "Not worse by 2 % on both texts: fine." in text and main(["verify", "r"]) == 0
    code, text = answered("compare", "base.csv", "hurt.csv", *parts, "--margin", "code=5%")
    assert code == 0 and "5 % for perplexity of code" in text, text
    accepted = """[[accepted]]
candidate = "hurt"
metric = "perplexity"
part = "{}"
up_to = "5%"
expires = 2099-01-01
reason = "ticket 1"
"""
    for part, expected in (("code", 0), ("web", 1)):
        Path("gate.toml").write_text(accepted.format(part))
        line = ("compare", "base.csv", "fine.csv", "hurt.csv", *parts, "--study", "gate.toml")
        code, text = answered(*line)
        assert code == expected, text
    code, text = answered("compare", "base.csv", "hurt.csv", *parts, "--task", "web")
    assert code == 0 and "code" not in text.replace("Exit code", ""), text


WEIGHTS = ("pooling={web=1,code=3}", "pooling=equal", "pooling=tokens")


@pytest.mark.parametrize("pooling", WEIGHTS)
def test_texts_of_a_table_or_of_folders_are_pooled(answered, pooling):
    "Only models that score several texts could be; files were refused as one text."
    write_parts("base.csv", 3)
    write_parts("new.csv", 3, 0.03, on=("code",))
    for arm in ("base", "new"):
        Path(arm).mkdir()
        head, *rows = Path(f"{arm}.csv").read_text().splitlines()
        for part in ("web", "code"):
            lines = [head, *(row for row in rows if row.startswith(part))]
            Path(arm, f"{part}.csv").write_text("\n".join(lines) + "\n")
    rules = ("--set", pooling)
    for command in (
        ("base.csv", "new.csv", "--column", "part=text", *rules),
        ("base", "new", *rules),
    ):
        code, text = answered("compare", *command)
        assert re.search(r" pooled \+[12]", text), text
        assert "on 2 texts" in text, text


def test_pooling_in_a_study_file_and_of_one_text_in_a_file(answered):
    write_parts("base.csv", 3)
    write_parts("new.csv", 3, 0.03, on=("code",))
    Path("gate.toml").write_text('[rules]\npooling = "equal"\n')
    line = ("compare", "base.csv", "new.csv", "--study", "gate.toml")
    text = answered(*line, "--column", "part=text")[1]
    assert re.search(r" pooled \+[12]", text), text
    code, text = answered(*line)
    assert code == 2 and "pooling needs at least 2 texts; got 1. Leave it out" in text, text


@pytest.mark.parametrize(
    "options, said",
    [
        (("--column", "part=txt"), "Did you mean 'text'?"),
        (("--column", "part=loss"), "a column of parts must have at most 100 values"),
        (("--column", "dataset=text"), "Write --column part=text"),
        (("--task", "web"), "Say --column part=NAME, or leave tasks out"),
        (("--column", "part=text", "--task", "wbe"), "Did you mean 'web'?"),
    ],
)
def test_a_column_of_parts_is_checked(options, said, answered):
    rows = [("web", f"d{i}", 3 + i / 200, 40) for i in range(120)]
    for name in ("a.csv", "b.csv"):
        write_table(name, ("text", "document_id", "loss", "tokens"), rows)
    code, text = answered("compare", "a.csv", "b.csv", *options)
    assert code in (2, 3) and said in text, text


def test_a_text_that_one_table_lacks_is_named_and_can_be_left_out(answered):
    write_parts("base.csv", 3)
    write_parts("new.csv", 3)
    lines = Path("new.csv").read_text().splitlines()
    Path("new.csv").write_text("\n".join(x for x in lines if not x.startswith("code")) + "\n")
    line = ("compare", "base.csv", "new.csv", "--column", "part=text")
    code, text = answered(*line)
    assert (
        code == 3
        and "both must have the same texts; got no text 'code' in new.csv (candidate)" in text
    ), text
    code, text = answered(*line, "--intersect", "--out", "r")
    assert code in (0, 1) and text.count("Left out, since not all have them: code.") == 1, text
    for name in ("summary.md", "report.md"):
        assert "Left out, since not all have them: code." in Path("r", name).read_text()


def test_items_that_all_have_are_counted_over_all_texts(answered):
    "Only the text that lacked items was counted: 22 of 24."
    write_parts("base.csv", 3)
    write_parts("new.csv", 3)
    lines = Path("new.csv").read_text().splitlines()
    Path("new.csv").write_text("\n".join(lines[:-2]) + "\n")
    line = ("compare", "base.csv", "new.csv", "--column", "part=text", "--intersect")
    text = answered(*line)[1]
    assert "On the 46 that all have, of 48 (baseline) and 46 (candidate)." in text, text


def test_scores_of_several_tasks_and_models_in_one_table(answered):
    from invar_nb import compare_models

    rows = [
        (model, task, f"e{i}", (i * 7 + k) % 10 / 10 + 0.1 * (model == "new"))
        for model in ("old", "new")
        for k, task in enumerate(("law", "art"))
        for i in range(30)
    ]
    write_table("all.csv", ("model", "task", "id", "f1"), rows)
    columns = ("--column", "arm=model=old,new", "--column", "part=task")
    code, text = answered("compare", "all.csv", *columns, "--score", "f1")
    assert code == 0 and all(name in text for name in ("law", "art")), text
    for name in ("old", "new"):
        write_parts(f"{name}.csv", 3)
    assert len([*compare_models("old.csv", "new.csv", part="text").leading]) == 2
