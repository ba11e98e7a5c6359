"""Files as people keep them: in the form of other tools, of two scales, of another encoding. What is read, what is refused, and whether the
way out that a refusal names is one. The inputs lie in data/cases."""

import gzip
import json
import re
import shutil
import unicodedata

import numpy as np
import pytest
from commands import shell
from frozen_inputs import DATA

from invar_nb import page_data
from invar_nb.arms.arm import Scores
from invar_nb.arms.pair import pair, pair_arrays
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.study import compare, evaluate, study
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.runs.evaluator import MetricSpec, compare_runs

CASES = DATA / "cases"


@pytest.fixture
def said(tmp_path, monkeypatch):
    "(exit code, all that was printed, on one line) of a command, run where copies of the files lie."
    shutil.copytree(CASES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def run(command, *files, out=True):
        words = [command, *files, *(["--out", "r", "--force"] if out else [])]
        code, *printed = shell(*words)
        return code, " ".join(" ".join(printed).split())

    return run


# --- a value of a newer version -------------------------------------------------------------------------------------------------------
def test_samples_of_every_eval_ever_0_3_are_read_as_those_of_0_2(said, tmp_path):
    code, text = said("compare", "eee_030_base.jsonl", "eee_030_new.jsonl")
    assert code == 0, text
    older = [tmp_path / f"older_{arm}.jsonl" for arm in ("base", "new")]
    for file in older:
        file.write_text(
            (tmp_path / file.name.replace("older", "eee_030"))
            .read_text()
            .replace('"0.3.0"', '"instance_level_eval_0.2.1"')
        )
    change = lambda text: re.match(r"Inconclusive: score .*? points\)", text)[0]
    assert change(said("compare", *map(str, older))[1]) == change(text)


def test_a_version_that_is_not_read_is_shown_with_those_that_are(said, tmp_path):
    for name, other in (
        ("0.4.0", "0.4.0"),
        ("instance_level_eval_0.1.0", "instance_level_eval_0.1.0"),
        ("a\\nb", "a\\nb"),
    ):
        (tmp_path / "other.jsonl").write_text(
            (tmp_path / "eee_030_new.jsonl").read_text().replace('"0.3.0"', f'"{name}"')
        )
        code, text = said("compare", "eee_030_base.jsonl", "other.jsonl")
        assert (
            code == 3
            and f"'{other}' at schema_version" in text
            and "0.2 or 0.3" in text
            and "truncated" not in text
        ), text


# --- what was typed is said as it was typed -------------------------------------------------------------------------------------------
TYPED = (
    "seed=1,level=2/t.csv",
    "method=a,model=b.csv",
    "my seed=1 file.csv",
    "bos=1/tokens=2/score=3.csv",
    "level=2",
    "seed=x=y.json",
    "margin=2% of what.csv",
)


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("exists", [True, False])
def test_a_path_that_looks_like_an_option_is_said_as_typed(said, tmp_path, name, exists):
    if exists:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("a,b\n1,2\n")
    else:
        shutil.rmtree(tmp_path / "seed=1,level=2")
    for words in (
        ["evaluate", name],
        ["compare", name, "scale_base.csv"],
        ["compare", "scale_base.csv", name],
        ["compare", name, name, "--score", "b"],
    ):
        code, text = said(*words, out=words[0] != "evaluate")
        assert code in (2, 3) and name in text, text
        assert not re.search(
            r"--(seed|level|method|margin|set|column) (?!(loss|score|id|arm)=?NAME|score=|id=)",
            text.replace(name, ""),
        ), text


@pytest.mark.parametrize("name", [name for name in TYPED if "/" not in name])
def test_an_empty_or_damaged_file_is_said_as_it_was_typed(said, tmp_path, name):
    "Where a sentence has the name without quotes; and where a study file names it, not the command line."
    (tmp_path / name).write_text("")
    code, text = said("compare", name, "scale_base.csv")
    assert code == 3 and f"got {name}, an empty file" in text, text
    (tmp_path / name).write_text("id,f1\n1,0.5\n2,x\n")
    (tmp_path / "s.toml").write_text(
        f"[arms]\nbaseline = {json.dumps(name)}\nq8 = 'fraction_new.csv'\n"
    )
    code, text = said("compare", "--study", "s.toml", "--score", "f1")
    assert (
        code == 3
        and name in text
        and not re.search(r"--(seed|level|method|margin|set) ", text.replace(name, ""))
    ), text


@pytest.mark.parametrize(
    "column, cell, words",
    [
        ("level", "x", "'level' must be"),
        ("seed", "x", "'seed' must be"),
        ("units=2", "x", "'units=2'"),
        ("tokens", "x", "'tokens' must be"),
    ],
)
def test_a_column_that_is_called_as_an_option_is_said_as_it_is_called(
    said, tmp_path, column, cell, words
):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"id,{column}\n1,0\n2,{cell}\n")
    code, text = said("compare", "a.csv", "b.csv", "--score", column, "--better", "higher")
    assert (
        code == 3
        and words in text
        and f"--{column}" not in text
        and f"--set {column}" not in text
    ), text


def test_an_id_that_looks_like_an_option_is_said_as_it_is(said, tmp_path):
    for name, i in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.csv").write_text(
            "id,f1\n" + "".join(f"seed={i}{k} tokens=3,0.5\n" for k in range(12))
        )
    code, text = said("compare", "a.csv", "b.csv")
    assert code == 3 and "'seed=10 tokens=3'" in text and "'seed=20 tokens=3'" in text, text


# --- each file: the code, what is said, and what is not ---------------------------------------------------------------------------------
ALONE = "samples_t_2025-01-02T03-04-05.678901.jsonl"
ANSWERS, ROWS = (
    ("answers_item_id_base.jsonl", "answers_item_id_new.jsonl"),
    ("humaneval_base.jsonl", "humaneval_new.jsonl"),
)


@pytest.mark.parametrize(
    "words, code, parts",
    [
        (
            ("scale_base.csv", "scale_new.csv"),
            3,
            (
                "'correct' from 0 to 1 in the baseline and from 0 to 100 in the candidate",
                "Divide one by 100",
                "--set same_unit=true",
            ),
        ),
        (
            ("scale_new.csv", "scale_base.csv"),
            3,
            ("from 0 to 100 in the baseline and from 0 to 1",),
        ),
        (("scale_base.csv", "scale_new.csv", "--set", "same_unit=true"), 0, ("correct +74",)),
        (
            ("zero_losses_base.csv", "zero_losses_new.csv"),
            3,
            ("16 losses that are exactly 0. Log-probabilities were not returned",),
        ),
        (
            ("lm_eval_samples_only_base", "lm_eval_samples_only_new"),
            0,
            ("acc -6 points", "without their results file"),
        ),
        (
            (
                f"lm_eval_samples_only_base/{ALONE}",
                f"lm_eval_samples_only_new/{ALONE}",
                "--column",
                "id=doc_id",
                "--score",
                "acc",
            ),
            0,
            ("acc -6 points",),
        ),
        (
            ANSWERS,
            0,
            ("accuracy -6 points",),
        ),
        (
            (*ANSWERS, "--column", "label=golden"),
            3,
            ("there must be a column 'golden'", "Did you mean 'gold'?"),
        ),
        ((*ANSWERS, "--score", "correct"), 0, ("correct -6 points",)),
        (
            (*ANSWERS, "--column", "id=item_id", "--column", "label=gold"),
            0,
            ("accuracy -6 points",),
        ),
        (
            (*ANSWERS, "--by", "metadata.subject", "--score", "correct"),
            0,
            ("metadata.subject s0",),
        ),
        (
            (*ANSWERS, "--column", "id=item_id", "--score", "correct"),
            0,
            ("correct -6 points",),
        ),
        ((*ROWS, "--score", "passed"), 3, ("every id must occur once", "--set repeats=mean")),
        ((*ROWS, "--score", "passed", "--set", "repeats=mean"), 0, ("passed -",)),
        (
            (*ROWS, "--score", "pass@3", "--score", "pass^3"),
            0,
            ("pass@3 -6 points", "pass^3"),
        ),
        (
            (*ROWS, "--score", "pass@4"),
            2,
            ("got pass@4, and a problem with 3. Ask for fewer tries",),
        ),
        (
            ("helm_base.json", "helm_new.json"),
            0,
            ("exact_match -6 points",),
        ),
        (
            ("evalplus_base.json", "evalplus_new.json", "--score", "base"),
            0,
            ("base -6 points",),
        ),
        (("evalplus_base.json", "evalplus_new.json"), 0, ("plus 0 points",)),
        (
            ("ids_int.csv", "ids_float.csv"),
            3,
            (
                "baseline lacks 16 of 16: '0.0'",
                "they would match as numbers. Write the ids alike in both",
            ),
        ),
        (
            ("llama_base.log", "llama_new_utf16.log"),
            3,
            ("llama_new_utf16.log, which is UTF-16. Save it as UTF-8",),
        ),
        (
            ("llama_base.log", "llama_new_two_runs.log"),
            3,
            ("of one run; got 2, of 16 and 16 chunks",),
        ),
        (
            ("minus_inf_base.jsonl", "minus_inf_new.jsonl"),
            3,
            ("token of probability 0", "no perplexity, leave it out of every file"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_each_file_is_read_or_refused_with_a_way_out(said, words, code, parts):
    found, text = said("compare", *words)
    assert found == code and all(part in text for part in parts), text


def test_what_the_refusals_name_works(said, tmp_path):
    "Each cure is followed once."
    rows = lambda name: [
        json.loads(line) for line in (tmp_path / name).read_text().splitlines()
    ]
    write = lambda name, rows: (tmp_path / name).write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    (tmp_path / "divided.csv").write_text(
        (tmp_path / "scale_new.csv").read_text().replace(",100", ",1")
    )
    for arm in ("base", "new"):
        write(
            f"renamed_{arm}.jsonl",
            [
                {"id": row["item_id"], "label": row["gold"], "prediction": row["prediction"]}
                for row in rows(f"answers_item_id_{arm}.jsonl")
            ],
        )
        tasks = {}
        for row in rows(f"humaneval_{arm}.jsonl"):
            tasks.setdefault(row["task_id"], []).append(row["passed"])
        write(
            f"counts_{arm}.jsonl",
            [
                {"task_id": task, "samples": len(passed), "correct_samples": sum(passed)}
                for task, passed in tasks.items()
            ],
        )
        helm, plus = (
            json.loads((tmp_path / f"{tool}_{arm}.json").read_text())
            for tool in ("helm", "evalplus")
        )
        write(
            f"helm_{arm}.jsonl",
            [
                {
                    "id": row["instance_id"],
                    "score": next(
                        s["mean"] for s in row["stats"] if s["name"]["name"] == "exact_match"
                    ),
                }
                for row in helm
            ],
        )
        write(
            f"plus_{arm}.jsonl",
            [
                {"id": task, "score": solved[0]["base_status"] == "pass"}
                for task, solved in plus["eval"].items()
            ],
        )
        write(
            f"finite_{arm}.jsonl",
            [
                row
                for row in rows_of_json(tmp_path / f"minus_inf_{arm}.jsonl")
                if row["id"] != "d3"
            ],
        )
    (tmp_path / "utf8.log").write_text((tmp_path / "llama_new_utf16.log").read_text("utf-16"))
    lines = (tmp_path / "llama_new_two_runs.log").read_text().splitlines(keepends=True)
    (tmp_path / "second.log").write_text("".join(lines[len(lines) // 2 :]))
    (tmp_path / "ids.csv").write_text(
        (tmp_path / "ids_float.csv").read_text().replace(".0,", ",")
    )
    for words in (
        ("scale_base.csv", "divided.csv"),
        ("renamed_base.jsonl", "renamed_new.jsonl"),
        ("counts_base.jsonl", "counts_new.jsonl", "--score", "pass@3"),
        ("helm_base.jsonl", "helm_new.jsonl"),
        ("plus_base.jsonl", "plus_new.jsonl"),
        ("finite_base.jsonl", "finite_new.jsonl"),
        ("llama_base.log", "utf8.log"),
        ("llama_base.log", "second.log"),
        ("ids_int.csv", "ids.csv"),
    ):
        code, text = said("compare", *words)
        assert code in (0, 1) and "change" in text, (words, text)


RIGHT = [(f"q{i}", i % 4 > 0) for i in range(16)]
TOOLS = {  # what a tool writes of these that is not read, and where its refusal sends to
    "the Trainer": (
        "trainer_state.json",
        lambda: json.dumps(
            {
                "epoch": 1.0,
                "global_step": 16,
                "log_history": [{"step": i, "loss": 2.0} for i in range(16)],
            }
        ),
        "give the folder that holds a folder for each seed",
    ),
    "HELM": (
        "scenario_state.json",
        lambda: json.dumps(
            {
                "adapter_spec": {},
                "request_states": [{"instance": {"id": name}} for name, _ in RIGHT],
            }
        ),
        "scores are in per_instance_stats.json",
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_what_another_tool_wrote_is_named_with_what_to_do(said, tmp_path, tool):
    name, written, where = TOOLS[tool]
    for arm in "ab":
        (tmp_path / arm).mkdir()
        (tmp_path / arm / name).write_text(written())
    code, text = said("compare", f"a/{name}", f"b/{name}")
    assert code == 3 and f"as {tool} writes it. " in text and where in text, text


def test_a_log_that_does_not_say_its_context_is_told_how_to_write_one(said, tmp_path):
    "Either stream alone: the numbers without the line before them, or a build that leaves n_ctx out."
    lines = (tmp_path / "llama_base.log").read_text().splitlines(keepends=True)
    for name, text in (
        ("old.log", "".join(lines).replace(", n_ctx=512", "")),
        ("stdout.log", "".join(line for line in lines if line.startswith("[1]"))),
    ):
        (tmp_path / name).write_text(text)
        code, text = said("compare", name, "llama_base.log")
        assert (
            code == 3
            and "does not say n_ctx: keep both streams of a build of 2024 or later, llama-perplexity ... > FILE 2>&1"
            in text
        ), text


def test_samples_of_lm_eval_are_read_under_both_endings(said, tmp_path):
    "Older releases call them .json; the results beside them are still one file."
    folder = shutil.copytree(page_data("lm_eval") / "base", tmp_path / "older")
    for file in folder.rglob("samples_*.jsonl"):
        file.rename(file.with_suffix(".json"))
    change = lambda text: re.sub(r"'?\S*(older|base)\S*", "", text)
    one, two = (
        said(
            "compare", arm, str(page_data("lm_eval") / "tuned"), "--set", "task=invar_rolling"
        )
        for arm in (str(page_data("lm_eval") / "base"), "older")
    )
    assert (
        one[0] == two[0] in (0, 1)
        and change(one[1]).split("Report")[0] == change(two[1]).split("Report")[0]
    ), (one, two)


def rows_of_json(path):
    return [
        json.loads(line.replace("-Infinity", "null")) for line in path.read_text().splitlines()
    ]


# --- units, zeros, ids: what is refused, and what is not --------------------------------------------------------------------------------
def scores(values, name="score", better="higher", **more):
    return Scores(ids=range(len(values)), values=values, score=name, better=better, **more)


SHARE, FLAGS = np.linspace(0.3, 0.75, 16), (np.arange(16) % 4 > 0) * 1.0


@pytest.mark.parametrize(
    "a, b, name, better",
    [
        (SHARE, SHARE * 100, "f1", "higher"),
        (FLAGS * 1.0, FLAGS * 100.0, "acc", "higher"),
        (FLAGS * 1.0, SHARE * 100, "acc", "higher"),
        (SHARE, FLAGS * 50.0, "passed", "higher"),
        (SHARE * 100, SHARE, "wer", "lower"),
        (FLAGS * 1.0, FLAGS * 100.0, "error", "lower"),
        (FLAGS * 1.0, FLAGS * 100.0, "flag", "lower"),
        (SHARE + (FLAGS == 0) * (1.0000001 - SHARE), SHARE * 100, "f1", "higher"),
        (FLAGS * 1.0000001, FLAGS * 100.0, "acc", "higher"),
        (FLAGS * 1.0 - 1e-9, FLAGS * 100.0, "acc", "higher"),
        (SHARE, SHARE * 100, "toxicity", "lower"),
        (SHARE / 9, SHARE * 11, "ece", "lower"),
        (SHARE, SHARE * 100, "hallucination_rate", "lower"),
        (SHARE, SHARE * 90, "refusals", "lower"),
    ],
)
def test_a_share_and_a_percentage_are_two_units(a, b, name, better):
    for x, y in ((a, b), (b, a)):
        with pytest.raises(
            PairingError, match="both arms must be in one unit; got .* Divide one by 100"
        ) as caught:
            pair(scores(x, name, better), scores(y, name, better))
        assert caught.value.code == "unit"
        with pytest.raises(PairingError, match="'second' from"):
            pair(scores(FLAGS, others={"second": x}), scores(FLAGS, others={"second": y}))
        assert (
            len(
                pair(
                    scores(x, name, better, provenance={"same_unit": True}),
                    scores(y, name, better),
                )
            )
            == 16
        )
    with pytest.raises(PairingError, match="one unit"):
        study(
            {("baseline", "t"): scores(a, name, better), ("new", "t"): scores(b, name, better)}
        )


@pytest.mark.parametrize(
    "a, b, name, better",
    [
        (SHARE, SHARE * 1000, "f1", "higher"),
        (FLAGS * 1.0, FLAGS * 1000.0, "acc", "higher"),
        (SHARE * 1000, SHARE, "wer", "lower"),
        (FLAGS * 0.5, FLAGS * 1000.0, "f1", "higher"),
    ],
)
def test_a_share_and_per_mille_are_two_units(a, b, name, better):
    with pytest.raises(
        PairingError, match="both arms must be in one unit; got .* Divide one by 1000, or"
    ):
        pair(scores(a, name, better), scores(b, name, better))


def test_where_two_units_can_only_be_guessed_a_line_says_so():
    "Seconds may well be 100 times as many; of a name that is not known the ranges are said, and compared."
    doubt = "tricks is 0.3 to 0.75 in the baseline and 30 to 75 in the candidate: if one is in per cent, write both alike."
    lines = lambda b, **more: " ".join(
        compare(pair(scores(SHARE, "tricks", "lower", **more), scores(b, "tricks", "lower")))
        .report()
        .document()["warnings"]
    )
    assert (
        doubt in lines(SHARE * 100)
        and "per cent" not in lines(SHARE * 3)
        and "per cent" not in lines(SHARE * 100, provenance={"same_unit": True})
    )


@pytest.mark.parametrize(
    "a, b, better",
    [
        (SHARE, SHARE * 20, "lower"),
        (SHARE, SHARE * 100, "lower"),
        (SHARE, SHARE / 100, "higher"),
        (SHARE, np.where(FLAGS > 0, SHARE, 30), "higher"),
        (SHARE, SHARE * 3, "higher"),
        (SHARE * 10, SHARE * 1000, "higher"),
        (SHARE, -SHARE * 100, "higher"),
        (SHARE - 0.5, SHARE * 100 - 50, "higher"),
        (np.zeros(16), SHARE * 100, "higher"),
        (SHARE, SHARE * 1e4, "higher"),
        (FLAGS * 1.0, FLAGS * 5.0, "higher"),
    ],
)
def test_what_may_be_one_unit_is_compared(a, b, better):
    assert len(pair(scores(a, "mark", better), scores(b, "mark", better))) == 16


def test_losses_that_are_all_zero_were_not_measured():
    arm = lambda values, tokens=5, **more: WindowLosses.from_arrays(
        range(len(values)), np.full(len(values), tokens), values, **more
    )
    losses = lambda *given, **more: pair(*2 * [arm(*given, **more)])
    good = np.linspace(1, 2, 12)
    for values, more in (
        (np.zeros(12), {}),
        (np.where(np.arange(12) < 3, 0, good), {"document_ids": np.arange(12) // 3}),
    ):
        with pytest.raises(ContractError, match="exactly 0|only 0 in document '0'") as caught:
            losses(values, **more)
        assert caught.value.code == "zeros" and "Log-probabilities were not returned" in str(
            caught.value
        )
    with pytest.raises(ContractError, match="exactly 0"):
        pair_arrays(np.zeros(12), good, np.full(12, 5))
    with pytest.raises(ContractError, match="exactly 0"):
        losses(np.zeros(1), 4)
    assert (
        len(losses(np.zeros(3), 1)) == 3
        and len(losses(np.where(np.arange(12) < 1, 0, good))) == 12
        and len(losses(np.where(np.arange(12) < 1, 0, good), 3, document_ids=range(12))) == 12
    )


@pytest.mark.parametrize("document_ids", [None, np.repeat(np.arange(30), 2)])
def test_windows_of_zeros_beside_measured_ones_are_refused(document_ids):
    "Half of each document came back without log-probabilities: the candidate would be much improved."
    rng = np.random.default_rng(3)
    base = rng.normal(3, 0.3, 60)
    half = np.where(np.arange(60) % 2, base, 0)
    for tokens, refused in ((256, True), (16, True), (15, False)):
        counts = np.full(60, tokens)
        if not refused:
            assert pair_arrays(base, half, counts, document_ids=document_ids).n == 60
            continue
        with pytest.raises(
            ContractError, match=r"exactly 0 for all tokens of window '\S+'\. Log-prob"
        ) as caught:
            pair_arrays(base, half, counts, document_ids=document_ids)
        assert caught.value.code == "zeros"


@pytest.mark.parametrize("zeros, code", [(16, 3), (1, 3), (0, 0)])
def test_log_probabilities_of_zero_in_a_file_are_refused(said, tmp_path, zeros, code):
    row = lambda i, zero: {
        "id": f"d{i}",
        "prompt_logprobs": [None] + ([0.0] * 5 if zero else [-1.0 - i / 9] * 5),
    }
    for name, n in (("a", 0), ("b", zeros)):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(row(i, i < n)) + "\n" for i in range(16))
        )
    found, text = said("compare", "a.jsonl", "b.jsonl")
    assert found == code and (
        "candidate: b.jsonl: a loss must have been measured" in text
        and "Log-probabilities were not returned" in text
    ) == bool(zeros), text


@pytest.mark.parametrize(
    "change, how",
    [
        (lambda i: f"{i}.0", "as numbers"),
        (lambda i: f"{i:03d}", "as numbers"),
        (lambda i: f" {i} ", "without the blanks around them"),
        (lambda i: unicodedata.normalize("NFD", f"café-{i}"), "after Unicode normalisation"),
        (lambda i: f"CAFÉ-{i}", "in lower case"),
        (lambda i: f"{i + 5}.0", ""),
        (lambda i: f"other {i}", ""),
    ],
)
def test_ids_that_differ_in_form_only_are_said_to(change, how):
    plain = [f"café-{i}" if "caf" in change(i).lower() else str(i) for i in range(12)]
    with pytest.raises(PairingError, match="hold the same ids") as caught:
        pair(
            scores(np.ones(12)).changed(ids=tuple(plain)),
            scores(np.ones(12)).changed(ids=tuple(map(change, range(12)))),
        )
    assert (
        (f"they would match {how}. Write the ids alike" in str(caught.value))
        if how
        else "they would" not in str(caught.value)
    ), caught.value


# --- names of other tools' options, and words that are no value -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words, parts",
    [
        (("--threshold", "2%"), ("Write --margin",)),
        (("--tolerance", "2%"), ("Write --margin",)),
        (("--alpha", "0.05"), ("Write --level 0.95",)),
        (("--confidence", "0.9"), ("Write --level",)),
        (("--fail-on-regression",), ("exit code is 1",)),
        (
            ("--set", "sums=yes"),
            ("sums must be true or false; got 'yes'. Write true",),
        ),
        (("--set", "repeats=average"), ("one of refuse, mean, unequal",)),
    ],
)
def test_a_wrong_option_is_answered_with_the_right_one(said, words, parts):
    code, text = said("compare", "fraction_base.csv", "fraction_new.csv", *words)
    assert code == 2 and all(part in text for part in parts), text


@pytest.mark.parametrize(
    "counts, lines",
    [
        ((2, 3), ("b.csv, line 4", "'0' 3 times", "2 times in a.csv (line 3)")),
        ((3, 2), ("a.csv, line 4", "'0' 3 times", "2 times in b.csv (line 3)")),
        ((1, 2), ("b.csv, line 3", "'0' 2 times", "once in a.csv (line 2)")),
    ],
)
@pytest.mark.parametrize("words", [(), ("--set", "repeats=mean")])
def test_unequal_repeats_have_one_refusal_whose_cure_works(
    said, tmp_path, counts, lines, words
):
    "Said at once, with both lines: `repeats=mean` led into the next refusal, which named a position."
    for name, n in zip("ab", counts, strict=True):
        (tmp_path / f"{name}.csv").write_text(
            "id,f1\n" + "".join(f"{i},0.{i % 7}{k}\n" for i in range(12) for k in range(n))
        )
    code, text = said("compare", "a.csv", "b.csv", *words)
    assert (
        code == 3
        and all(part in text for part in lines)
        and "Say --set repeats=unequal" in text
        and "repeats=mean" not in text
    ), text
    assert said("compare", "a.csv", "b.csv", "--set", "repeats=unequal")[0] in (0, 1)


def test_equal_repeats_are_averaged_by_the_key_that_the_refusal_names(said, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(
            "id,f1\n" + "".join(f"{i},0.{i % 7}{k}\n" for i in range(12) for k in range(2))
        )
    assert (
        "a.csv, line 3: every id must occur once; got '0' again, as in line 2. Say --set"
        in said("compare", "a.csv", "b.csv")[1]
    )
    assert said("compare", "a.csv", "b.csv", "--set", "repeats=mean")[0] in (0, 1)


# --- the same of runs over seeds, of files of losses, and of one arm alone ------------------------------------------------
def write_runs(path, values, name="accuracy"):
    path.write_text(
        f"seed,terminal,{name}\n"
        + "".join(f"{i},ok,{value:.4f}\n" for i, value in enumerate(values))
    )


@pytest.mark.parametrize(
    "name, a, b, refused",
    [
        ("accuracy", 0.6, 60, True),
        ("accuracy", 60, 0.6, True),
        ("val/f1", 0.5, 52, True),
        ("top1_acc", 0.97, 99, True),
        ("wer", 0.1, 11, True),
        ("toxicity", 0.1, 11, True),
        ("val_ece", 0.1, 11, True),
        ("hallucination_rate", 0.1, 11, True),
        ("accuracy", 0.6, 0.62, False),
        ("accuracy", 60, 61, False),
        ("reward", 0.5, 60, False),
        ("loss", 0.5, 60, False),
    ],
)
def test_runs_of_two_units_are_refused(said, tmp_path, name, a, b, refused):
    noise = 1 + np.sin(np.arange(6)) / 50
    for arm, mean in (("a", a), ("b", b)):
        write_runs(tmp_path / f"{arm}.csv", mean * noise, name)
    better = (
        "lower"
        if name in ("wer", "loss", "toxicity", "val_ece", "hallucination_rate")
        else "higher"
    )
    code, text = said("compare", "a.csv", "b.csv", "--metric", name, "--better", better)
    assert (code == 3) == refused and (
        f"both arms must be in one unit; got '{name}' from" in text
        and "Divide one by 100" in text
    ) == refused, text
    if refused:
        write_runs(tmp_path / "b.csv", b * noise * (a / b * 1.02), name)
        assert said("compare", "a.csv", "b.csv", "--metric", name, "--better", better)[0] in (
            0,
            1,
        )
        with pytest.raises(PairingError, match="one unit") as caught:
            compare_runs(
                MetricSpec(name, better),
                **{
                    f"{arm}_runs": [
                        {"seed": i, "terminal": "ok", name: mean * x}
                        for i, x in enumerate(noise)
                    ]
                    for arm, mean in (("baseline", a), ("candidate", b))
                },
            )
        assert caught.value.code == "unit"


def losses_file(path, zero, documents=True, n=60):
    rows = [
        {
            "window_id": f"w{i}",
            **({"document_id": f"d{i // 3:02}"} if documents else {}),
            "tokens": 5 if i % 2 else 16,
            "log_loss": 0.0 if zero(i) else 1 + i % 7 / 10,
        }
        for i in range(n)
    ]
    path.write_text(
        "".join(
            json.dumps(row) + "\n"
            for row in [
                {
                    "schema": "invar_nb/losses/2",
                    "windows": n,
                    "data_id": "sha256:x",
                    "model": path.stem,
                },
                *rows,
            ]
        )
    )


@pytest.mark.parametrize(
    "zero, documents, words",
    [
        (lambda i: True, True, " losses that are exactly 0"),
        (lambda i: True, False, " losses that are exactly 0"),
        (lambda i: 39 <= i < 42, True, "only 0 in document 'd13' (1 such)"),
        (lambda i: i >= 30, True, "only 0 in document 'd10' (10 such)"),
        (lambda i: i in (39, 41), True, ""),
        (lambda i: i in (39, 41, 43), False, ""),
        (lambda i: i == 13 or i == 19, True, ""),
        (lambda i: 16 <= i < 18, True, "tokens of window 'w16'"),
        (lambda i: i % 4 == 0, False, "tokens of window 'w0'"),
    ],
)
def test_files_of_losses_hold_no_zeros_either(said, tmp_path, zero, documents, words):
    losses_file(tmp_path / "a.jsonl", lambda i: False, documents)
    losses_file(tmp_path / "b.jsonl", zero, documents)
    for files, arm in (
        (("a.jsonl", "b.jsonl"), "candidate"),
        (("b.jsonl", "a.jsonl"), "baseline"),
    ):
        code, text = said("compare", *files)
        assert (code == 3) == bool(words) and (
            words in text and "Log-probabilities were not returned" in text
        ) == bool(words), text


def test_one_arm_of_zeros_is_not_evaluated():
    for values in (np.zeros(12), np.where(np.arange(12) < 3, 0, 1.5)):
        with pytest.raises(ContractError, match="must have been measured") as caught:
            evaluate(
                WindowLosses.from_arrays(
                    range(12), np.full(12, 5), values, document_ids=np.arange(12) // 3
                )
            )
        assert caught.value.code == "zeros"
    assert evaluate(WindowLosses.from_arrays(range(12), np.full(12, 5), np.full(12, 1.5)))


# --- files of tools that are not read: the tool, and where in its file the table lies; what is written so is read -------------------------
def promptfoo(scores):
    return {
        "evalId": "eval-abc",
        "results": {
            "version": 3,
            "results": [
                {"testIdx": i, "promptIdx": 0, "success": s > 0.5, "score": s}
                for i, s in enumerate(scores)
            ],
        },
        "config": {},
    }


def trainer(loss):
    return {
        "global_step": 30,
        "epoch": 1.0,
        "best_metric": None,
        "log_history": [{"step": 10, "loss": loss + 1}, {"step": 30, "eval_loss": loss}],
    }


def openai_evals(scores):
    return [
        {"spec": {"completion_fns": ["m"], "eval_name": "t.dev.v0"}},
        *(
            {
                "run_id": "r",
                "event_id": i,
                "sample_id": f"t.dev.{i}",
                "type": "match",
                "data": {"correct": s > 0.5},
            }
            for i, s in enumerate(scores)
        ),
    ]


def write_table(path, rows):
    rows = [*rows]
    path.write_text(
        "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
        + "\n"
    )


MARKS = {
    "a": [0.4 + i % 5 / 10 for i in range(20)],
    "b": [0.3 + i % 6 / 10 for i in range(20)],
}


def change_in(text):
    "The first line of an answer, without the name of what changed."
    return re.search(
        r"[-+]?[\d.]+ (points|%) \(95 % CI [^)]*\)|0 points[^;.]*|[-+]\S+ \(95 % CI[^)]*\)",
        text,
    )[0]


def test_promptfoo_is_read_as_the_table_of_its_scores(said, tmp_path):
    for arm, marks in MARKS.items():
        (tmp_path / f"{arm}.json").write_text(json.dumps(promptfoo(marks)))
        write_table(
            tmp_path / f"{arm}.csv",
            ({"id": i, "score": score} for i, score in enumerate(marks)),
        )
    for name in ("a", "b"):
        (tmp_path / f"{name}.json.gz").write_bytes(
            gzip.compress((tmp_path / f"{name}.json").read_bytes())
        )
    code, text = said("compare", "a.json", "b.json")
    table = said("compare", "a.csv", "b.csv")[1]
    assert code in (0, 1) and change_in(text) == change_in(table), (text, table)
    assert change_in(said("compare", "a.json.gz", "b.json.gz")[1]) == change_in(table)
    by_paths = [
        f"--column={word}" for word in ("rows=results.results", "id=testIdx", "score=score")
    ]
    assert change_in(said("compare", "a.json", "b.json", *by_paths)[1]) == change_in(table)
    code, text = said("compare", "a.json", "b.json", "--score", "scores")
    assert code == 2 and "must be one of 'score', 'success'; got 'scores'" in text, text


def test_two_models_in_one_file_of_promptfoo_are_two_arms(said, tmp_path):
    both = promptfoo(MARKS["a"])
    for arm, marks in MARKS.items():
        rows = promptfoo(marks)["results"]["results"]
        both["results"]["results"] += [{**row, "provider": {"id": arm}} for row in rows]
    both["results"]["results"] = [
        row for row in both["results"]["results"] if "provider" in row
    ]
    (tmp_path / "both.json").write_text(json.dumps(both))
    code, text = said("evaluate", "both.json")
    cure = re.search(r"--column (arm=provider.id=a,b)", text)
    assert code == 2 and "the rows must be of one model; got 'a', 'b'" in text and cure, text
    code, text = said("compare", "both.json", "--column", cure[1])
    assert code in (0, 1) and "Intervals over 20 examples" in text, text


def test_a_log_of_openai_evals_is_read_as_the_table_of_its_scores(said, tmp_path):
    for arm, marks in MARKS.items():
        (tmp_path / f"{arm}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in openai_evals(marks))
        )
        write_table(
            tmp_path / f"{arm}.csv",
            ({"id": i, "correct": int(score > 0.5)} for i, score in enumerate(marks)),
        )
    code, text = said("compare", "a.jsonl", "b.jsonl")
    table = said("compare", "a.csv", "b.csv")[1]
    assert code in (0, 1) and change_in(text) == change_in(table), (text, table)


@pytest.mark.parametrize("folders", ["seed_{}", "run-{}", "lr1e-4-seed={}/checkpoint-30"])
def test_a_folder_of_states_of_the_trainer_is_read_as_the_table_of_its_runs(
    said, tmp_path, folders
):
    for arm, loss in (("a", 2.0), ("b", 2.1)):
        losses = [loss + i % 3 / 50 + (arm == "b") * i / 900 for i in range(5)]
        for i, value in enumerate(losses):
            run = tmp_path / arm / folders.format(i)
            run.mkdir(parents=True)
            (run / "trainer_state.json").write_text(json.dumps(trainer(value)))
        write_table(
            tmp_path / f"{arm}.csv",
            ({"config.seed": i, "eval_loss": value} for i, value in enumerate(losses)),
        )
    code, text = said("compare", "a", "b", "--metric", "eval_loss")
    table = said("compare", "a.csv", "b.csv", "--metric", "eval_loss")[1]
    assert code in (0, 1) and change_in(text) == change_in(table), (text, table)
    (tmp_path / "a" / folders.format(0).partition("/")[0]).rename(tmp_path / "a" / "final")
    code, text = said("compare", "a", "b", "--metric", "eval_loss")
    assert code == 3 and "the folder of each run must say its seed; got 'final'" in text, text


def test_samples_of_lm_eval_are_read_alone_renamed_and_as_a_list(said, tmp_path):
    for arm in ("base", "new"):
        (file,) = (tmp_path / f"lm_eval_samples_only_{arm}").iterdir()
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        (tmp_path / f"{arm}.jsonl").write_text(file.read_text())
        (tmp_path / f"{arm}.json").write_text(json.dumps(rows, indent=1))
        shutil.copy(file, file.with_suffix(".json"))
        file.unlink()
    for files in (
        ("lm_eval_samples_only_base", "lm_eval_samples_only_new"),
        ("base.jsonl", "new.jsonl"),
        ("base.json", "new.jsonl"),
    ):
        code, text = said("compare", *files)
        assert code == 0 and "acc -6 points" in text and "were not checked" in text, text
    rows[3]["prompt_hash"] = rows[2]["prompt_hash"]
    (tmp_path / "new.json").write_text(json.dumps(rows))
    code, text = said("compare", "base.json", "new.json")
    assert code == 3 and "prompt" in text, text


def test_a_file_that_is_one_object_is_told_how_to_name_its_rows(said, tmp_path):
    for arm, marks in MARKS.items():
        rows = [{"n": i, "m": {"f1": score}} for i, score in enumerate(marks)]
        (tmp_path / f"{arm}.json").write_text(
            json.dumps({"model": arm, "out": {"rows": rows}})
        )
    code, text = said("compare", "a.json", "b.json")
    cure = re.search(r"--column (rows=out.rows)", text)
    assert code == 3 and "JSON list of objects; got dict" in text and cure, text
    words = ["--column", cure[1], "--column", "id=n"]
    code, text = said("compare", "a.json", "b.json", *words, "--score", "m.f2")
    assert code == 3 and "Did you mean 'm.f1'?" in text, text
    assert said("compare", "a.json", "b.json", *words, "--score", "m.f1")[0] in (0, 1)
    code, text = said("compare", "a.json", "b.json", "--column", "rows=out.row")
    assert code == 3 and "'out.row' must lead to rows; got none" in text, text


def test_what_all_arms_have_is_compared_and_the_headline_counts_both_sides(said, tmp_path):
    for arm, n in (("a", 20), ("b", 17)):
        rows = [{"id": i, "f1": score} for i, score in enumerate(MARKS[arm])][-n:]
        (tmp_path / f"{arm}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        rows = [{"id": i, "f1": score} for i, score in enumerate(MARKS[arm])][-17:]
        (tmp_path / f"{arm}17.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert said("compare", "a.jsonl", "b.jsonl")[0] == 3
    code, text = said("compare", "a.jsonl", "b.jsonl", "--intersect")
    sentence = "On the 17 that all have, of 20 (baseline) and 17 (candidate)."
    assert code in (0, 1) and sentence in text, text
    same = said("compare", "a17.jsonl", "b17.jsonl", "--intersect")[1]
    assert change_in(same) == change_in(text) and "that all have" not in same, same
    assert said("compare", "a.jsonl", "b.jsonl", "--intersect")[0] in (0, 1)
    assert said("verify", "r", out=False)[0] == 0
    other = [{"id": f"x{i}", "f1": score} for i, score in enumerate(MARKS["b"])]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
    code, text = said("compare", "a.jsonl", "c.jsonl", "--intersect")
    assert code == 3 and "none in common" in text, text
