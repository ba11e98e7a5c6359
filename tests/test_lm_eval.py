"""lm-evaluation-harness: files of the real tool (invar_nb/data/lm_eval, made by make_lm_eval.py) and runs written here by the tool's description."""

import gzip
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import main
from real_tools import python_with

from invar_nb import page_data
from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.readers.lm_eval import is_lm_eval, read_lm_eval
from invar_nb.readers.recognise import find_source

DATA, TIME = page_data("lm_eval"), "2026-11-22T22-05-50.271119"
MODELS = Path(__file__).parent.parent / "invar_nb" / "demo_models"
sha = lambda text: hashlib.sha256(text.encode()).hexdigest()


def lines(folder, task):
    return [
        json.loads(line)
        for line in next(Path(folder).glob(f"samples_{task}_*"))
        .read_text(encoding="utf-8")
        .splitlines()
    ]


def results(folder):
    return json.loads(next(Path(folder).glob("results_*")).read_text())


# --- the tool's own files -------------------------------------------------------------------------------------------------------------
def check_folder(folder):
    "Every task, metric and filter of the folder: each value from the lines of the file, each mean the tool's own."
    says, seen = results(folder), 0
    for task, numbers in says["results"].items():
        for key in [k for k in numbers if "," in k and "_stderr" not in k]:
            metric, name = key.split(",")
            arm = read_lm_eval(folder, tasks=task, score=metric, filter=name)[task]
            rows = {
                f"{row['doc_id']}:{row['doc_hash'][:12]}": row
                for row in lines(folder, task)
                if row["filter"] == name
            }
            assert (
                len(arm) == len(rows) == says["n-samples"][task]["effective"]
                and arm.model == says["model_name"]
            )
            if arm.kind == "losses":
                rows = list(rows.values())
                np.testing.assert_allclose(
                    arm.tokens * arm.log_loss, [-row[metric][0] for row in rows], rtol=1e-14
                )
                assert arm.tokens.tolist() == [row[metric][1] for row in rows] and len(
                    set(arm.document_ids)
                ) == len(arm)
                ours = (
                    math.log2(arm.perplexity) if metric.startswith("bits") else arm.perplexity
                )
            else:
                values = arm.correct if arm.kind == "answers" else arm.values
                assert values.tolist() == [rows[i][metric] for i in arm.ids]
                assert (
                    arm.kind == "answers"
                    or (arm.better == "higher") == says["higher_is_better"][task][metric]
                )
                ours = float(np.mean(values))
            assert ours == pytest.approx(numbers[key], rel=1e-9)
            seen += 1
    return seen


@pytest.mark.parametrize("model", ["base", "tuned"])
def test_every_number_is_the_tools_own(model):
    assert check_folder(DATA / model) == 9


@pytest.mark.parametrize("metric, size", [("acc", lambda text: 1), ("acc_norm", len)])
def test_confidence_is_the_softmax_of_what_was_compared(metric, size):
    arm, rows = (
        read_lm_eval(DATA / "base", tasks="invar_choices", score=metric)["invar_choices"],
        lines(DATA / "base", "invar_choices"),
    )
    assert arm.choices and arm.labels == ("0", "1", "2", "3") and set(arm.label) > {"0"}
    for row in rows:
        i = arm.ids.index(f"{row['doc_id']}:{row['doc_hash'][:12]}")
        choices = row["doc"]["choices"]
        powers = [
            math.exp(float(ll) / size(text))
            for (ll, _), text in zip(row["filtered_resps"], choices, strict=True)
        ]
        expected = [x / math.fsum(powers) for x in powers] + [0.0] * (4 - len(powers))
        np.testing.assert_allclose(arm.probabilities[i], expected, rtol=1e-12, atol=0)
        assert arm.label[i] == row["target"] and int(arm.prediction[i]) == int(
            np.argmax(expected)
        )
    found = compare(
        pair(
            arm,
            read_lm_eval(DATA / "tuned", tasks="invar_choices", score=metric)["invar_choices"],
        )
    )
    assert "accuracy" in found and "macro_f1" not in found


def test_the_comparison_is_that_of_our_own_scorer():
    "The shipped models, the same documents after a line feed: each loss and the interval within the rounding of float32."
    pytest.importorskip("torch")
    from invar_nb.models.load import load_model
    from invar_nb.models.score import score_text

    read, own = [], []
    for model in ("base", "tuned"):
        read.append(
            read_lm_eval(DATA / model, tasks="invar_rolling", score="byte_perplexity")[
                "invar_rolling"
            ]
        )
        texts = ["\n" + row["doc"]["text"] for row in lines(DATA / model, "invar_rolling")]
        own.append(score_text(load_model(MODELS / model, dtype="float32"), texts))
        assert own[-1].tokens.tolist() == read[-1].tokens.tolist()
        np.testing.assert_allclose(own[-1].log_loss, read[-1].log_loss, rtol=2e-6)
    theirs, ours = compare(pair(*read)), compare(pair(*own))
    assert theirs.units == ours.units == "documents" and theirs.n == ours.n == 20
    for name in ("low", "high"):
        assert getattr(theirs.interval, name) == pytest.approx(
            getattr(ours.interval, name), rel=1e-4
        )
    assert theirs.ratio == pytest.approx(ours.ratio, rel=1e-6)


# --- runs written here ----------------------------------------------------------------------------------------------------------------
def write_run(folder, rows, kind, time=TIME, task="own", metric="acc", change=(), **said):
    "A run of one task as the tool writes it; `rows` are (target, choices, log-likelihoods, value) or partial rows."
    full = []
    for i, row in enumerate(rows):
        if isinstance(row, tuple):
            target, choices, lls, value = row
            row = {
                "target": target,
                "arguments": {
                    f"gen_args_{k}": {"arg_0": f"Q{i}", "arg_1": f" {c}"}
                    for k, c in enumerate(choices)
                },
                metric: value,
                "filtered_resps": [[repr(ll), "False"] for ll in lls],
            }
        full.append(
            {
                "doc_id": i,
                "doc": {},
                "filter": "none",
                "doc_hash": sha(f"doc {i}"),
                "prompt_hash": sha(f"Q{i}"),
                "target_hash": sha("t"),
                **row,
            }
        )
    values = [row[metric] for row in full]
    mean = (
        math.fsum(values) / len(values)
        if all(isinstance(v, (int, float)) for v in values)
        else None
    )
    found = {
        "results": {task: {f"{metric},none": mean, f"{metric}_stderr,none": "N/A"}},
        "configs": {task: {"output_type": kind, "target_delimiter": " "}},
        "versions": {task: 1.0},
        "n-shot": {task: 0},
        "higher_is_better": {task: {metric: True}},
        "n-samples": {task: {"original": len(full), "effective": len(full)}},
        "model_name": "m",
        "task_hashes": {
            task: sha(
                "".join(
                    row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in full
                )
            )
        },
        "max_length": 256,
        **said,
    }
    for path, value in dict(change).items():
        at, *keys = path
        inner = found[at]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"samples_{task}_{time}.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in full), encoding="utf-8"
    )
    (folder / f"results_{time}.json").write_text(json.dumps(found))
    return folder


ROWS = [
    ("0", ["aa", "ü"], [-2.0, -1.5], 0.0),
    ("1", ["b", "ccc", "dd"], [-3.0, -1.0, -2.0], 1.0),
    ("1", ["no", "yes"], [-1.0, -1.0], 0.0),
]


def test_a_text_can_be_the_target_and_bytes_the_size(tmp_path):
    texts = [(choices[int(t)], choices, lls, v) for t, choices, lls, v in ROWS]
    arm = read_lm_eval(write_run(tmp_path / "a", texts, "multiple_choice"))["own"]
    assert (arm.label, arm.prediction) == (
        ("0", "1", "1"),
        ("1", "1", "0"),
    )  # a tie goes to the first, as the tool has it
    rows = [
        ("1", ["aa", "üü"], [-2.0, -3.0], 1.0),
        ("0", ["bb", "dd"], [-3.0, -4.0], 1.0),
    ]  # per byte -1 and -0.75, per character -1 and -1.5
    arm = read_lm_eval(write_run(tmp_path / "b", rows, "multiple_choice", metric="acc_bytes"))[
        "own"
    ]
    assert arm.prediction == ("1", "0") and arm.probabilities[0, 1] == pytest.approx(
        1 / (1 + math.exp(-0.25)), rel=1e-14
    )
    chat = [
        {
            **{
                "target": "1",
                "acc_norm": 1.0,
                "filtered_resps": [["-2.0", "x"], ["-2.0", "x"]],
                "arguments": {
                    f"gen_args_{k}": {"arg_1": c} for k, c in enumerate(["a", " b"])
                },
            }
        }
    ] * 2
    assert (
        read_lm_eval(
            write_run(
                tmp_path / "c",
                chat,
                "multiple_choice",
                metric="acc_norm",
                chat_template_sha="x",
            )
        )["own"].kind
        == "answers"
    )


def test_unconditional_likelihoods_are_no_choices(tmp_path):
    rows = []
    for target, choices, lls, value in ROWS[:2]:
        texts = [f" {c}" for c in choices * 2]
        rows.append(
            {
                "target": target,
                "acc": value,
                "acc_mutual_info": 1.0,
                "filtered_resps": [[repr(x), "False"] for x in [*lls, *[-0.1] * len(lls)]],
                "arguments": {
                    f"gen_args_{k}": {"arg_0": "", "arg_1": c} for k, c in enumerate(texts)
                },
            }
        )
    arm = read_lm_eval(write_run(tmp_path, rows, "multiple_choice"))["own"]
    assert arm.labels == ("0", "1", "2") and arm.correct.tolist() == [False, True]


@pytest.mark.parametrize(
    "rows",
    [
        [
            ("[0, 1]", ["a", "b"], [-1.0, -2.0], 1.0),
            ("[1]", ["a", "b"], [-1.0, -2.0], 0.0),
        ],  # several right choices
        [
            ("0", ["a", "b"], [-1.0, -2.0], 1.0),
            ("0", ["a", "b"], [-1.0, -2.0], 0.0),
        ],  # not the likeliest
        [("0", ["a", "b"], [-1.0, -2.0], 0.73), ("1", ["a", "b"], [-1.0, -2.0], 0.2)],
    ],
)  # a probability
def test_a_task_that_counts_in_another_way_gives_scores(tmp_path, rows):
    arm = read_lm_eval(write_run(tmp_path, rows, "multiple_choice"))["own"]
    assert (arm.kind, arm.score, arm.better, arm.values.tolist()) == (
        "scores",
        "acc",
        "higher",
        [row[-1] for row in rows],
    )


def test_a_single_target_is_a_word(tmp_path):
    rows = [
        {"target": "x", "perplexity": ll, "acc": 0, "filtered_resps": [[repr(ll), "False"]]}
        for ll in (-2.5, -0.25, -7.0)
    ]
    run = write_run(
        tmp_path,
        rows,
        "loglikelihood",
        metric="perplexity",
        results={"own": {"perplexity,none": math.exp(9.75 / 3), "acc,none": 0.0}},
    )
    arm = read_lm_eval(run, score="perplexity")["own"]
    assert (arm.weight_unit, arm.tokens.tolist(), arm.log_loss.tolist()) == (
        "words",
        [1, 1, 1],
        [2.5, 0.25, 7.0],
    )
    first = read_lm_eval(run)["own"]  # the first of the results file, the other one named
    assert first.weight_unit == "words" and first.provenance["source"]["other_metrics"] == [
        "acc"
    ]


def test_rows_of_several_processes_come_in_any_order(tmp_path):
    shuffled = [{**row} for row in lines(DATA / "tuned", "invar_rolling")]
    random.Random(0).shuffle(shuffled)
    says = results(DATA / "tuned")
    write_run(
        tmp_path,
        shuffled,
        "loglikelihood_rolling",
        task="invar_rolling",
        metric="byte_perplexity",
        results=says["results"],
    )
    a, b = (
        read_lm_eval(folder, tasks="invar_rolling")["invar_rolling"]
        for folder in (tmp_path, DATA / "tuned")
    )
    assert (
        a.ids == b.ids and a.log_loss.tolist() == b.log_loss.tolist() and len(pair(a, b)) == 20
    )


def test_the_newest_run_is_read_and_older_ones_are_said(tmp_path):
    for time, value in (("2026-01-02T00-00-00.5", 1.0), ("2026-01-01T00-00-00", 0.0)):
        write_run(tmp_path / "m", [{"x": value}] * 2, "generate_until", time=time, metric="x")
    arm = read_lm_eval(tmp_path)["own"]
    assert arm.values.tolist() == [1, 1] and arm.provenance["source"]["older_files"] == 1
    for file in (
        next((tmp_path / "m").glob("samples_*01-01*")),
        next((tmp_path / "m").glob("results_*01-01*")),
    ):
        assert read_lm_eval(file)["own"].values.tolist() == [0, 0]
    write_run(tmp_path / "n", [{"x": 1.0}] * 2, "generate_until", metric="x")
    assert "must lie in one folder; got" in refused(tmp_path)
    shutil.rmtree(tmp_path / "n")
    write_run(
        tmp_path / "n",
        [{"x": 1.0}] * 2,
        "generate_until",
        task="other",
        metric="x",
        model_name="k",
    )
    assert "of one model; got 'k', 'm'" in refused(tmp_path)


def noted(folder, model, fields, kind="generate_until", **more):
    "A run of which each document has fields of its own."
    rows = [
        {"acc": float((7 * i + len(model)) % 5 > 1), "doc": doc, "target": str(i % 2)}
        for i, doc in enumerate(fields)
    ]
    return write_run(folder / model, rows, kind, model_name=model, **more)


def test_fields_of_documents_slice_and_cluster(tmp_path):
    docs = [
        {
            "subject": ["law", "art"][i % 2],
            "meta": {"level": i % 3, "tags": ["x"]},
            "passage": f"p{i // 3}",
            "private": f"letter {i}",
        }
        for i in range(60)
    ]
    for model in ("base", "tuned"):
        noted(tmp_path, model, docs)
    arm = read_lm_eval(
        tmp_path / "base", slices=["subject", "meta.level", "target"], cluster="passage"
    )["own"]
    order = [int(name.partition(":")[0]) for name in arm.ids]
    assert arm.slices == {
        "subject": tuple(docs[i]["subject"] for i in order),
        "meta.level": tuple(str(i % 3) for i in order),
        "target": tuple(str(i % 2) for i in order),
    }
    assert arm.clusters == tuple(docs[i]["passage"] for i in order)
    out = tmp_path / "out"
    line = [
        "compare",
        tmp_path / "base",
        tmp_path / "tuned",
        "--by",
        "subject",
        "--column",
        "cluster=passage",
        "--out",
        out,
        "--quiet",
    ]
    assert main(line) in (0, 1) and main(["verify", out, "--quiet"]) == 0
    d = json.loads((out / "report.json").read_text())
    assert {row["key"]["slice"] for row in d["rows"]} == {
        None,
        "subject law",
        "subject art",
    } and (d["pairs"][0]["units"]["kind"], d["pairs"][0]["units"]["n"]) == ("clusters", 20)
    kept = b"".join(file.read_bytes() for file in out.iterdir())
    assert (
        b"p19" in kept and b"letter" not in kept and b"meta.level" not in kept
    )  # of a document, what was asked for


def test_fields_that_are_missing(tmp_path, capsys):
    docs = [
        {"subject": "law" if i % 4 else ("", None)[i % 8 > 0], "passage": f"p{i}"}
        for i in range(40)
    ]
    for model in ("base", "tuned"):
        noted(tmp_path, model, docs)
        noted(tmp_path, model, [{"other": 1.5}] * 3, task="second", time="2026-01-02T10-00-01")
    assert read_lm_eval(tmp_path / "base", slices=["subject"])["own"].slices["subject"][
        :3
    ] == (None, "law", "law")
    both = read_lm_eval(
        tmp_path / "base", slices=["subject"], cluster="passage"
    )  # the second task has neither
    assert (
        both["second"].slices == {}
        and both["second"].clusters is None
        and both["own"].clusters
    )
    assert (
        both["second"].provenance["unclustered"] == "passage"
        and "unclustered" not in both["own"].provenance
    )
    assert main(
        [
            "compare",
            tmp_path / "base",
            tmp_path / "tuned",
            "--column",
            "cluster=passage",
            "--out",
            tmp_path / "noted",
            "--quiet",
        ]
    ) in (0, 1)
    assert (
        "There is no field 'passage': nothing is clustered by it."
        in (tmp_path / "noted" / "report.md").read_text()
    )
    for options, part, error in (
        (
            dict(cluster="subject"),
            "every document must have the field 'subject' to be clustered by it; got 10 of 40 without it, the first is document 0",
            ContractError,
        ),
        (
            dict(slices="subjekt"),
            "a field must be one of 'target', 'passage', 'subject', 'other'; got 'subjekt'. Did you mean 'subject'?",
            UsageError,
        ),
        (dict(cluster="pasage"), "got 'pasage'. Did you mean 'passage'?", UsageError),
        (
            dict(slices=["other"]),
            "field 'other' must be text or a whole number; got 1.5",
            ContractError,
        ),
    ):
        assert part in refused(tmp_path / "base", error, **options)
    for words, said in (
        (("--by", "subjekt"), "got 'subjekt'. Did you mean 'subject'?"),
        (("--column", "cluster=subject"), "10 of 40 without it"),
    ):
        out = tmp_path / "out"
        assert (
            main(
                [
                    "compare",
                    tmp_path / "base",
                    tmp_path / "tuned",
                    *words,
                    "--out",
                    out,
                    "--quiet",
                ]
            )
            in (2, 3)
            and not out.exists()
        )
        last = capsys.readouterr().err
        assert said in last and last.count("\n") == 1
    many = noted(tmp_path / "many", "base", [{"word": f"w{i}"} for i in range(401)])
    assert "few different values; got field 'word', which has 401" in refused(
        many, slices=["word"]
    )
    assert len({*read_lm_eval(many, cluster="word")["own"].clusters}) == 401


def test_a_passage_is_the_document_of_its_losses():
    own = [row["target"] for row in lines(DATA / "base", "invar_rolling")]
    arm = read_lm_eval(DATA / "base", tasks="invar_rolling", cluster="target")["invar_rolling"]
    assert list(arm.clusters) == own


# --- what it is -----------------------------------------------------------------------------------------------------------------------
def test_it_is_known_by_its_content(tmp_path):
    sample = next((DATA / "base").glob("samples_invar_words_*"))
    renamed = tmp_path / "words.jsonl"
    shutil.copy(sample, renamed)
    assert all(
        map(is_lm_eval, (DATA, DATA / "base", sample, next((DATA / "base").glob("results_*"))))
    )
    assert find_source(renamed).name == "lm-eval"
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "x.jsonl").write_bytes(b"\xff\xfe\x00{")
    assert not any(
        map(
            is_lm_eval,
            (
                tmp_path / "odd",
                tmp_path / "odd" / "x.jsonl",
                tmp_path / "none",
                MODELS / "base",
                MODELS / "base" / "config.json",
                "a\0b",
            ),
        )
    )


def test_a_release_without_hashes_is_read_with_a_note(tmp_path, capsys):
    "As lm-eval 0.4.2 wrote them: results without task_hashes, rows without hashes."
    for name in ("base", "tuned"):
        folder = tmp_path / name
        folder.mkdir()
        for file in (DATA / name).glob("*invar_choices*"):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            for row in rows:
                for hash_name in ("doc_hash", "prompt_hash", "target_hash"):
                    del row[hash_name]
                row["arguments"] = [
                    [*request.values()] for request in row["arguments"].values()
                ]
            (folder / file.name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        says = results(DATA / name)
        del says["task_hashes"], says["n-samples"], says["higher_is_better"]
        says["lm_eval_version"] = "0.4.2"
        (folder / next((DATA / name).glob("results_*")).name).write_text(json.dumps(says))
    arm = read_lm_eval(tmp_path / "base")["invar_choices"]
    whole = read_lm_eval(DATA / "base", tasks="invar_choices")["invar_choices"]
    assert arm.kind == "scores" and arm.better == "higher"
    assert arm.values.tolist() == whole.correct.tolist()
    out = str(tmp_path / "r")
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "tuned"), "--out", out]) < 2
    assert "has no hashes of the samples" in capsys.readouterr().err
    file = next((tmp_path / "base").glob("samples_*"))
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    assert "the mean of the rows must be acc,none" in refused(tmp_path / "base")


def test_a_folder_of_samples_without_a_time_in_their_names(tmp_path):
    sample = next((DATA / "base").glob("samples_invar_words_*"))
    (tmp_path / "base").mkdir()
    shutil.copy(sample, tmp_path / "base" / "samples_words.jsonl")
    assert find_source(tmp_path / "base").name == "lm-eval"
    (arm,) = read_lm_eval(tmp_path / "base").values()
    (alone,) = read_lm_eval(tmp_path / "base" / "samples_words.jsonl").values()
    assert arm.source["unchecked"] and [*arm.ids] == [*alone.ids]
    assert [*read_lm_eval(tmp_path / "base")] == ["words"]


# --- files that lack something ---
def copied(tmp_path, choose=lambda file: True, rename=lambda model, name: name):
    "Copies of both folders with the files that are chosen, under new names."
    for model in ("base", "tuned"):
        (tmp_path / model).mkdir(parents=True)
        for file in (DATA / model).iterdir():
            if choose(file):
                shutil.copy(file, tmp_path / model / rename(model, file.name))
    return tmp_path / "base", tmp_path / "tuned"


def is_sample(file):
    return file.name.startswith("samples_")


def compared(capsys, base, tuned, *words):
    "The exit code and both outputs of a comparison; its report stands in `out`."
    out = base.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    code = main(["compare", base, tuned, *words, "--out", out])
    found = capsys.readouterr()
    if code < 2:
        assert main(["verify", out]) == 0
        capsys.readouterr()
    return code, found.out, found.err


def test_samples_alone_take_the_direction_that_the_message_names(tmp_path, capsys):
    arms = copied(tmp_path, is_sample)
    code, _, error = compared(capsys, *arms)
    assert code > 1 and "Say --better shared=higher, or lower" in error
    for words in (["--better", "shared=higher"], ["--better", "higher"]):
        code, text, _ = compared(capsys, *arms, *words)
        assert code < 2 and "4 parts" in text and "shared" in text
    lower = read_lm_eval(arms[0], tasks="invar_lengths", better="shared=lower")
    assert lower["invar_lengths"].better == "lower"
    assert (
        main(["evaluate", arms[0], "--better", "shared=higher", "--out", tmp_path / "e"]) == 0
    )
    capsys.readouterr()
    for words, part in (
        (["--better", "shard=higher"], "Did you mean 'shared'?"),
        (["--better", "acc=up"], "--better must be higher or lower"),
    ):
        code, _, error = compared(capsys, *arms, *words)
        assert code == 2 and part in error
    for word in ("lower", "shared=lower"):
        error = refused(DATA / "base", UsageError, better=word)
        assert "what is better must be as the files say; got 'lower'" in error
    assert (
        read_lm_eval(DATA / "base", better="higher").keys()
        == read_lm_eval(DATA / "base").keys()
    )


def test_losses_are_read_from_samples_alone(tmp_path):
    base, _ = copied(tmp_path, is_sample)
    alone = read_lm_eval(base, tasks="invar_rolling")["invar_rolling"]
    whole = read_lm_eval(DATA / "base", tasks="invar_rolling")["invar_rolling"]
    assert (alone.kind, alone.weight_unit, alone.ids) == ("losses", "words", whole.ids)
    assert alone.log_loss.tolist() == whole.log_loss.tolist()
    assert (
        read_lm_eval(base, tasks="invar_rolling", score="bits_per_byte")[
            "invar_rolling"
        ].weight_unit
        == "bytes"
    )


def test_the_log_likelihood_of_a_target_is_no_perplexity(tmp_path):
    "Such as of lambada: `perplexity` of a row is a log-likelihood."
    rows = [
        {"target": "x", "perplexity": ll, "acc": 0, "metrics": ["perplexity", "acc"]}
        for ll in (-2.5, -0.25, -7.0)
    ]
    write_run(tmp_path, rows, "loglikelihood", metric="perplexity")
    next(tmp_path.glob("results_*")).unlink()
    arm = read_lm_eval(tmp_path)["own"]
    assert (arm.kind, arm.log_loss.tolist()) == ("losses", [2.5, 0.25, 7.0])


def test_a_task_without_numbers_names_those_that_have_some(tmp_path, capsys):
    base, tuned = copied(tmp_path, is_sample)
    for folder in (base, tuned):
        for file in folder.glob("*invar_rolling*"):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            names = ("word_perplexity", "byte_perplexity", "bits_per_byte")
            file.write_text(
                "".join(json.dumps(row | dict.fromkeys(names, "x")) + "\n" for row in rows)
            )
        next(folder.glob("*lengths*")).unlink()
    code, _, error = compared(capsys, base, tuned)
    assert code == 3 and "--task invar_choices --task invar_words" in error
    assert "doc_id" not in error  # a table would need a column of numbers
    tasks = ["--task", "invar_choices", "--task", "invar_words"]
    assert compared(capsys, base, tuned, *tasks)[0] < 2


def test_an_arm_without_its_results_file_is_compared_by_samples(tmp_path, capsys):
    tuned = copied(tmp_path, is_sample)[1]
    full = tmp_path / "full"
    shutil.copytree(DATA / "base", full)
    code, text, error = compared(capsys, full, tuned)
    assert (
        code < 2 and "4 parts" in text and "shared" in text
    )  # its direction is in the other file
    note = "No results_*.json lies beside the samples of the candidate"
    assert note in error and error.count(note) == 1
    assert note in (tmp_path / "out" / "report.md").read_text().replace("\\", "")
    code, _, error = compared(capsys, tuned, full, "--task", "invar_choices")
    assert code < 2 and "samples of the baseline" in error
    arms = [
        read_lm_eval(path, tasks="invar_choices")["invar_choices"] for path in (full, tuned)
    ]
    with pytest.raises(
        ContractError, match=r"no results_\*\.json beside 'samples_.*of the candidate"
    ):
        pair(*arms)


def test_samples_packed_by_gzip(tmp_path, capsys):
    base, tuned = copied(tmp_path)
    for folder in (base, tuned):
        for file in [*folder.iterdir()]:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    code, text, error = compared(capsys, base, tuned)
    assert code < 2 and "4 parts" in text and "without their results" not in error
    packed = [next(folder.glob("*invar_choices*")) for folder in (base, tuned)]
    code, text, _ = compared(capsys, *packed)
    assert code < 2 and "accuracy (acc)" in text
    whole = read_lm_eval(DATA / "base")
    for task, arm in read_lm_eval(base).items():
        assert arm.ids == whole[task].ids and arm.kind == whole[task].kind
    packed[0].with_suffix("").write_bytes(gzip.decompress(packed[0].read_bytes()))
    assert read_lm_eval(base)["invar_choices"].source["older_files"] == 0
    renamed = tmp_path / "renamed" / "words.jsonl.gz"
    renamed.parent.mkdir()
    shutil.copy(next(base.glob("*invar_words*")), renamed)
    assert [*read_lm_eval(renamed.parent)] == ["words"] and find_source(
        renamed
    ).name == "lm-eval"


@pytest.mark.parametrize("with_results", [True, False])
def test_files_behind_a_prefix(tmp_path, with_results):
    base, _ = copied(
        tmp_path,
        lambda file: with_results or is_sample(file),
        lambda model, name: f"{model}_{name}" if name.startswith("samples_") else name,
    )
    arms = read_lm_eval(base, better=None if with_results else "shared=higher")
    assert {*arms} == {*read_lm_eval(DATA / "base")} and find_source(base).name == "lm-eval"
    assert arms["invar_choices"].kind == ("answers" if with_results else "scores")
    alone = read_lm_eval(next(base.glob("*invar_choices*")))["invar_choices"]
    assert alone.ids == arms["invar_choices"].ids
    if with_results:
        assert {*read_lm_eval(next(base.glob("results_*")))} == {*arms}
    other = next((DATA / "tuned").glob("samples_invar_words*"))
    shutil.copy(other, base / f"tuned_{other.name}")
    assert "of invar_words in a folder must be of one model; got names that begin" in refused(
        base
    )


def test_a_folder_of_renamed_files_is_known_by_their_rows(tmp_path, capsys):
    arms = copied(tmp_path, is_sample, lambda model, name: name.split("_")[2] + ".jsonl")
    (arms[0] / "notes.jsonl").write_text('{"doc_id": 1}\n')
    assert {*read_lm_eval(arms[0], better="higher")} == {
        "choices",
        "lengths",
        "rolling",
        "words",
    }
    code, text, _ = compared(capsys, *arms, "--better", "shared=higher")
    assert code < 2 and "4 parts" in text and "rolling: word perplexity" in text


def test_a_task_that_one_arm_lacks_is_left_out_on_request(tmp_path, capsys):
    base, tuned = copied(tmp_path)
    next(tuned.glob("*invar_words*")).unlink()
    code, _, error = compared(capsys, base, tuned)
    assert code == 3 and "say --intersect to compare these" in error
    for arms in ((base, tuned), (tuned, base)):
        code, text, error = compared(capsys, *arms, "--intersect")
        assert code < 2 and "3 parts" in text
        assert text.count("Left out, since not all have them: invar_words.") == 1, error
    for file in tuned.glob("samples_*"):
        if "rolling" not in file.name:
            file.unlink()
    next(base.glob("*rolling*")).unlink()
    code, _, error = compared(capsys, base, tuned, "--intersect")
    assert code == 3 and "both must have the same tasks" in error


def test_several_runs_in_a_folder_are_said_on_stderr(tmp_path, capsys):
    base, tuned = copied(tmp_path)
    for file in [*tuned.iterdir()]:
        shutil.copy(file, tuned / file.name.replace("T22-06-45", "T23-30-00"))
    code, _, error = compared(capsys, base, tuned)
    assert code < 2 and f"{tuned} holds 2 runs: the newest is read\n" in error
    assert f"{base} holds" not in error


# --- refusals -------------------------------------------------------------------------------------------------------------------------
def refused(path, error=ContractError, **options):
    with pytest.raises(error) as caught:
        read_lm_eval(path, **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("read_lm_eval")
    return str(caught.value)


def edited(
    tmp_path, task, rows=lambda rows: rows, said=lambda says: None, text=lambda text: text
):
    "A copy of the base folder with one task's file, and the results, changed."
    folder = tmp_path / "edited"
    shutil.copytree(DATA / "base", folder)
    file, beside = next(folder.glob(f"samples_{task}_*")), next(folder.glob("results_*"))
    says = json.loads(beside.read_text())
    said(says)
    beside.write_text(json.dumps(says))
    changed = "".join(
        json.dumps(row) + "\n"
        for row in rows([json.loads(line) for line in file.read_text().splitlines()])
    )
    file.write_text(text(changed))
    return folder


def without(key):
    return lambda rows: [{k: v for k, v in row.items() if k != key} for row in rows]


@pytest.mark.parametrize(
    "task, change, part",
    [
        ("invar_rolling", dict(text=lambda t: t + "[1]\n"), "line 21: every line must be"),
        ("invar_rolling", dict(text=lambda t: ""), "got 0. Rows were lost"),
        (
            "invar_rolling",
            dict(rows=lambda r: [r[1], r[0], *r[2:]]),
            "the rows' hashes must give the task hash",
        ),
        (
            "invar_rolling",
            dict(rows=lambda r: [r[0] | {"word_perplexity": [-9.0, 20]}, *r[1:]]),
            "the mean of the rows must be word_perplexity,none of the results file; got ",
        ),
        (
            "invar_rolling",
            dict(rows=lambda r: [r[0] | {"word_perplexity": "x"}, *r[1:]]),
            "line 1: a row must have the numbers of word_perplexity; got str in place of array at value",
        ),
        (
            "invar_choices",
            dict(rows=lambda r: [r[0] | {"acc": 1.0}, *r[1:]]),
            "the mean of the rows must be acc,none of the results file; got 0.3 where it says 0.25",
        ),
        (
            "invar_choices",
            dict(rows=without("filter")),
            "line 1: every line must be a JSON object with the hashes of a row; got Object missing required field filter. Run lm_eval 0.4.5 or newer",
        ),
        *[
            (
                "invar_choices",
                dict(
                    said=lambda s, key=key: s["configs"]["invar_choices"].update({key: [" "]})
                ),
                f"got array in place of str | null at configs.{key}",
            )
            for key in ("target_delimiter", "gen_prefix")
        ],
        *[
            (
                "invar_choices",
                dict(said=lambda s, key=key: s.pop(key)),
                f"must say what was done in the task 'invar_choices'; got Object missing required field {key}",
            )
            for key in ("versions", "n-samples")
        ],
    ],
)
def test_refusals(tmp_path, task, change, part):
    assert part in refused(edited(tmp_path, task, **change), tasks=task)


def test_each_task_has_its_own_filter_and_metric_and_the_first_of_several_is_taken():
    first = {
        task: arm.provenance["source"] for task, arm in read_lm_eval(DATA / "base").items()
    }
    assert (first["invar_lengths"]["metric"], first["invar_lengths"]["other_metrics"]) == (
        "shared",
        ["missing"],
    )
    assert (first["invar_words"]["filter"], first["invar_words"]["other_filters"]) == (
        "first-word",
        ["first-letter"],
    )
    for name in ("first-word", "first-letter"):
        found = read_lm_eval(
            DATA / "base",
            filter=["none", f"invar_words={name}"],
            score=["invar_lengths=missing", "invar_choices=acc_norm"],
        )
        chosen = {
            task: (arm.provenance["source"]["metric"], arm.provenance["source"]["filter"])
            for task, arm in found.items()
        }
        assert chosen == {
            "invar_choices": ("acc_norm", "none"),
            "invar_lengths": ("missing", "none"),
            "invar_rolling": ("word_perplexity", "none"),
            "invar_words": ("exact_match", name),
        }
        alone = read_lm_eval(DATA / "base", tasks="invar_words", filter=name)["invar_words"]
        assert np.array_equal(alone.values, found["invar_words"].values)
    for options, part in (
        (dict(filter="invar_choices=first-word"), "filter must be one of 'none'"),
        (dict(score=["a=x", "a=y"]), "each task must have one score"),
        (dict(score="nothing=shared"), "a task must be one of"),
    ):
        assert part in refused(DATA / "base", UsageError, **options)


@pytest.mark.parametrize("value", [math.nan, "nan", math.inf])
def test_a_likelihood_that_is_no_number_is_named_with_its_line(tmp_path, value):
    folder = edited(
        tmp_path,
        "invar_choices",
        rows=lambda rows: rows[3]["filtered_resps"][1].__setitem__(0, value) or rows,
    )
    assert (
        f".jsonl, line 4: a row must have the numbers of acc; got {value} at filtered_resps[1]. It has no number"
        in refused(folder, tasks="invar_choices")
    )


def test_kinds_are_said_with_their_models():
    arms = [
        read_lm_eval(DATA / model, tasks=task, score=score)[task]
        for model, task, score in (
            ("base", "invar_choices", "acc"),
            ("tuned", "invar_lengths", "shared"),
        )
    ]
    with pytest.raises(
        ContractError,
        match=r"of one kind; got answers \(baseline 'base'\) and scores \(candidate 'tuned'\)",
    ):
        pair(*arms)


def test_direction_numbers_and_names_are_needed(tmp_path):
    assert "whether a higher shared is better; got None" in refused(
        edited(
            tmp_path,
            "invar_lengths",
            said=lambda s: s["higher_is_better"]["invar_lengths"].update(shared=None),
        ),
        tasks="invar_lengths",
        score="shared",
    )
    assert "It has no number for each example" in refused(
        write_run(tmp_path / "a", [{"bleu": ["a", "b"]}] * 2, "generate_until", metric="bleu")
    )
    folder = write_run(tmp_path / "b", [{"x": 1.0}] * 2, "generate_until", metric="x")
    for options, part in (
        (dict(tasks="onw"), "Did you mean 'own'?"),
        (dict(score="y"), "score must be one of 'x'; got 'y'"),
    ):
        assert part in refused(folder, UsageError, **options)
    file = next(folder.glob("samples_*"))
    (folder / "mine.jsonl").write_bytes(file.read_bytes())
    assert "samples without a results file must have a number of each row" in refused(
        folder / "mine.jsonl"
    )
    beside = next(folder.glob("results_*"))
    shutil.copy(beside, folder / f"mine_{TIME}.json")
    assert (
        f"results_{TIME}.json must lie beside samples_own_{TIME}.jsonl; got 2 such files"
        in refused(folder)
    )
    (folder / f"mine_{TIME}.json").unlink()
    beside.write_text('{"results": ')
    assert "must say what was done in the task 'own'; got Expecting value" in refused(folder)
    beside.unlink()
    assert "Copy results_<time>.json beside them" in refused(file)  # no usual metric in it
    file.unlink()
    assert "Run lm_eval with --log_samples" in refused(folder) and "must exist" in refused(
        tmp_path / "none"
    )


# --- the tool itself ------------------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_real_tool_today(tmp_path):
    "Runs the harness on the shipped models and reads what it wrote; INVAR_NB_LM_EVAL names a Python that has it, else it is installed."
    python = python_with(
        "INVAR_NB_LM_EVAL",
        tmp_path / "venv",
        "lm-eval==0.4.13",
        "transformers>=5,<6",
        "accelerate",
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run(
        [python, Path(__file__).parent / "data" / "make_lm_eval.py", MODELS, tmp_path / "out"],
        check=True,
        env=env,
    )
    for model in ("base", "tuned"):
        assert check_folder(tmp_path / "out" / model) == 9
        for task in ("invar_rolling", "invar_choices"):
            new, old = (
                read_lm_eval(folder / model, tasks=task)[task]
                for folder in (tmp_path / "out", DATA)
            )
            assert len(pair(new, old)) == 20
            what = "log_loss" if task == "invar_rolling" else "probabilities"
            np.testing.assert_allclose(getattr(new, what), getattr(old, what), rtol=1e-3)
