"What somebody with files of other tools reads: which number is shown, which setting differs, whose file it is, what to type instead."

import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import main

from invar_nb import page_data

DATA = Path(__file__).parent / "data"
BASE, TUNED = (page_data("lm_eval") / name for name in ("base", "tuned"))


@pytest.fixture
def said(tmp_path, capsys, monkeypatch):
    "(exit code, everything that was printed, in one line)."

    def run(command, *arms, out="r"):
        monkeypatch.chdir(tmp_path)
        head, *options = command.split()
        code = main(
            [head, *map(str, arms), *options, *(["--out", out, "--force"] if out else [])]
        )
        found = capsys.readouterr()
        return code, " ".join((found.out + found.err).split())

    return run


def results_of(folder, task):
    return json.loads(next(folder.glob("results_*")).read_text())["results"][task]


def edited(folder, task, rows=lambda rows: rows, of=TUNED, **results):
    "One task of a folder of lm-eval, with changed rows, other fields of its results, and hashes that fit."
    file, beside = next(of.glob(f"samples_{task}_*")), next(of.glob("results_*"))
    folder.mkdir()
    kept = rows([json.loads(line) for line in file.read_text().splitlines()])
    (folder / file.name).write_text("".join(json.dumps(row) + "\n" for row in kept))
    d = json.loads(beside.read_text()) | {
        name: value for name, value in results.items() if not isinstance(value, dict)
    }
    for name, value in results.items():
        if isinstance(value, dict):
            d[name] |= value
    d["task_hashes"][task] = hashlib.sha256(
        "".join(
            row[key] for row in kept for key in ("doc_hash", "prompt_hash", "target_hash")
        ).encode()
    ).hexdigest()
    (folder / beside.name).write_text(json.dumps(d))
    return folder


# --- which number it is ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options, words",
    [
        (
            "--task invar_rolling",
            (
                "word perplexity -23",
                "also have byte_perplexity, bits_per_byte (--score byte_perplexity)",
            ),
        ),
        ("--task invar_rolling --score byte_perplexity", (": byte perplexity -5.1 %",)),
        (
            "--task invar_rolling --score bits_per_byte",
            (": byte perplexity -5.1 %", "bits_per_byte of invar_rolling is shown as byte"),
        ),
        (
            "--task invar_choices",
            ("accuracy (acc) +15", "also have acc_norm (--score acc_norm)"),
        ),
        ("--task invar_choices --score acc_norm", ("accuracy (acc_norm) 0 points",)),
    ],
)
def test_the_title_says_which_number_it_is(said, tmp_path, options, words):
    code, text = said(f"compare {options}", BASE, TUNED)
    assert (
        code == 0
        and all(word in text for word in words)
        and ("also have" in text) == ("--score" not in options)
    ), text
    _, card = said("card", tmp_path / "r", out=None)
    assert (
        "perplexity" not in card
        or f"name: {words[0].split()[0 if 'word' in words[0] else 1]} perplexity" in card
    ) and "name: perplexity" not in card


def test_a_change_per_word_is_not_hidden_by_a_margin_per_byte(said, tmp_path):
    "+1.5 % per byte is inside 2 %; per word it is +7.9 %."

    def worse(rows):
        return [
            row
            | {
                name: [row[name][0] - size * row[name][1], row[name][1]]
                for name, size in (("word_perplexity", 0.076), ("byte_perplexity", 0.015))
            }
            for row in rows
        ]

    said_of = results_of(BASE, "invar_rolling")
    new = {
        name: said_of[name] * math.exp(change)
        for name, change in (("word_perplexity,none", 0.076), ("byte_perplexity,none", 0.015))
    }
    other = edited(
        tmp_path / "worse",
        "invar_rolling",
        of=BASE,
        rows=worse,
        results={"invar_rolling": new},
    )
    assert (
        "Regressed: word perplexity +7.9"
        in said("compare --task invar_rolling", BASE, other)[1]
    )
    assert (
        "Equivalent within 2 %: byte perplexity +1.5"
        in said("compare --task invar_rolling --score byte_perplexity", BASE, other)[1]
    )


# --- refusals -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options, words",
    [
        ("--score brier", "--score must be one of 'acc', 'acc_norm',"),
        ("--score accnorm", "Did you mean 'acc_norm'?"),
        ("--task invar_choices columns.filter=foo", "filter must be one of 'none'; got 'foo'"),
        ("--task invar_lengths --score nope", "got 'nope'"),
        (
            "--task invar_choices --metric acc_norm",
            "It is a metric of lm-eval: use --score acc_norm",
        ),
        (
            "--task invar_choices --margin acc=30%",
            "It is called accuracy here: --margin accuracy=30%",
        ),
    ],
)
def test_a_name_of_another_tool_is_understood_or_refused(said, options, words):
    code, text = said(f"compare {options}", BASE, TUNED)
    assert code == 2 and words in text, text


half = lambda rows: rows[:10]
asked = lambda rows: [row | {"prompt_hash": "f" * 64} for row in rows]


@pytest.mark.parametrize(
    "change, words",
    [
        (
            dict(rows=asked, **{"n-shot": {"invar_choices": 5}}),
            "num_fewshot 0 for the baseline and 5 for the candidate. Run both with the same num_fewshot",
        ),
        (
            dict(rows=asked, chat_template_sha="ab" * 32),
            "chat template none for the baseline and abababababab for the candidate",
        ),
        (
            dict(
                rows=lambda rows: half(rows),
                config={"limit": 10.0},
                results={"invar_choices": {"acc,none": 0.4, "alias": "x"}},
                **{"n-samples": {"invar_choices": {"original": 20, "effective": 10}}},
            ),
            "candidate lacks 10 of 20 (it was run with --limit 10)",
        ),
        (
            dict(rows=lambda rows: [*rows[:3], rows[3] | {"acc": "x"}, *rows[4:]]),
            "candidate: edited/samples_invar_choices",
        ),
        (
            dict(results={"invar_choices": {"acc,none": 0.9}}),
            "candidate: edited/samples_invar_choices",
        ),
    ],
)
def test_the_setting_that_differs_is_named(said, tmp_path, change, words):
    code, text = said(
        "compare --task invar_choices",
        BASE,
        edited(tmp_path / "edited", "invar_choices", **change),
    )
    assert code == 3 and words in text, text


def test_the_side_the_task_and_the_rows_that_are_lacking_are_named(said, tmp_path):
    other, two = edited(tmp_path / "edited", "invar_choices"), tmp_path / "two"
    shutil.copytree(BASE, two, ignore=shutil.ignore_patterns("*_words_*", "*_lengths_*"))
    for asked, words in (
        (
            "",
            "edited (candidate). Both have 'invar_choices': say --intersect to compare these, or ask for each, as in --task invar_choices",
        ),
        ("--score word_perplexity", "candidate: --score must be one of 'acc'"),
    ):
        assert words in said(f"compare {asked}", two, other)[1]
    file = next(other.glob("samples_*"))
    file.write_text(file.read_text()[:-40])
    text = said("compare --task invar_choices", BASE, other)[1]
    assert (
        "candidate: edited/samples" in text
        and "line 20: every line must be a JSON object" in text
        and "Copy the file again" in text
        and "b'" not in text
        and 'b"' not in text
    )
    for name, n in (("a", 300), ("b", 250)):
        (tmp_path / f"{name}.csv").write_text(
            "id,score\n" + "".join(f"q{i},{i % 7}\n" for i in range(n))
        )
    assert (
        "300 and 250 items, candidate lacks 50 of 300: 'q250', ..."
        in said("compare", "a.csv", "b.csv")[1]
    )
    rolling = edited(
        tmp_path / "rolling",
        "invar_rolling",
        results={"invar_rolling": {"word_perplexity,none": 700.0}},
    )
    said_mean = re.search(
        r"got ([\d.]+) where it says 700",
        said("compare --task invar_rolling", BASE, rolling)[1],
    )
    assert float(said_mean[1]) == pytest.approx(
        results_of(TUNED, "invar_rolling")["word_perplexity,none"], rel=1e-12
    )


LOGIT = DATA / "llama_cpp"


@pytest.mark.parametrize(
    "command, arms, words",
    [
        (
            "compare",
            ("nosuch1", "nosuch2"),
            "no file or folder 'nosuch1' here (it was taken for a hub id)",
        ),
        ("compare", (BASE, "nosuch"), "no file or folder 'nosuch' here"),
        (
            "compare",
            (LOGIT / "divergence.log", LOGIT / "base.kld"),
            "the two files that --kl-divergence-base wrote",
        ),
        ("compare", (LOGIT, LOGIT.parent), "Name one file of it, such as "),
        ("verify", ("nosuch",), "got 'nosuch', which does not exist"),
        (
            "verify",
            ("j.json",),
            "the output of --json, j.json. Give the folder that it names: some/where",
        ),
    ],
)
def test_a_slip_is_understood(said, tmp_path, command, arms, words):
    (tmp_path / "j.json").write_text(
        json.dumps({"headline": "", "report": "some/where/report.json"})
    )
    code, text = said(command, *arms, out=None)
    assert code in (2, 3) and words in text, text


def test_the_same_files_twice_are_said(said):
    code, text = said("compare", BASE, BASE)
    assert (
        code == 0
        and "BASELINE and CANDIDATE are the same files" in text
        and "nothing is compared" not in text
    )


def test_a_forgotten_command_is_named(said, tmp_path):
    (tmp_path / "a b").mkdir()
    assert (
        said("compare", "x", out=None)[0] == 2
        and "Did you mean: invar-nb compare base tuned?" not in said("base tuned", out=None)[1]
    )
    (tmp_path / "base").mkdir()
    assert "Did you mean: invar-nb compare base 'a b'." in said("base", "a b", out=None)[1]


def test_what_is_undecided_is_not_called_not_worse(said, tmp_path):
    code, text = said("compare --task invar_choices", BASE, TUNED)
    rule = json.loads((tmp_path / "r" / "report.json").read_text())["exit"]["rule"]
    assert (
        (code, rule) == (0, "no_regression_shown")
        and "Exit code 0: no regression was shown, and none was ruled out; with --fail-inconclusive this is exit 4."
        in text
        and "effective)" not in text
    )
    assert (
        "2 parts: 1 inconclusive (invar_choices +15 points), 1 improved."
        in said("compare --task invar_choices --task invar_rolling", BASE, TUNED)[1]
    )
    assert (
        "to +51 %), perhaps by less than 20 %."
        in said("compare --task invar_rolling --margin 20%", TUNED, BASE)[1]
    )


def test_a_reader_that_stops_early_is_told_nothing():
    with subprocess.Popen(
        [sys.executable, "-m", "invar_nb", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() != 0


# --- what newcomers typed -------------------------------------------------------------------------------------------------------------
def test_names_devices_and_texts_that_are_nearly_right(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("base", "int8"):
        (tmp_path / name).mkdir()
    for name in ("base", "int8"):
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "base" / "model.safetensors").write_bytes(b"x" * 20)
    for line, words in (
        ("base int88 --text t.jsonl", "got 'int88'. Did you mean 'int8'?"),
        ("base int8 t.jsonl", "Is t.jsonl the text? Write --text t.jsonl"),
        ("base int8 --text t.jsonl --device gpu", "--device must be auto, cpu, cuda"),
        (
            "base/model.safetensors int8 --text t.jsonl",
            "These are weights: give their folder, base",
        ),
        (
            "base int8 --text t.jsonl --margin 150%",
            "got 1.5 for perplexity. Write less than 100 %",
        ),
        ("base", "for one alone: invar-nb score base"),
        (
            "base int8 --text t.jsonl --level 95",
            "--level must be at most 0.999999; got '95'. Did you mean 0.95?",
        ),
        (
            "base int8 --text t.jsonl --gate 5%",
            "--gate must be a number; got '5%'. Exit 1 if the upper end of the perplexity ratio exceeds this, such as 1.02. Rules such as 'ratio<=1.02' are rated by: invar-nb plan",
        ),
        ("base int8 --text t.jsonl --units document", "Did you mean 'documents'?"),
        ("base int8 --text t.jsonl --out -q", "got '-q'. If it is one, write ./-q"),
    ):
        code, text = said(f"compare {line}", out=None)
        assert code in (2, 3) and words in text, text
    assert "Did you mean 'compare'?" in said("comparr base int8", out=None)[1]


def test_a_folder_in_use_is_said_before_any_work(said, tmp_path):
    from invar_nb.foundations.store import locked

    with locked(tmp_path / "r", "test"):
        code, text = said("compare --task invar_choices", BASE, TUNED)
    assert (
        code == 2
        and "--out must be free; got 'r', in use by another process" in text
        and not (tmp_path / "r").exists()
    )
    assert said("compare --task invar_choices", BASE, TUNED)[0] == 0


def test_runs_as_a_tracker_exports_them(said, tmp_path):
    "State says how a run ended, an empty cell is no number, and a setting that never varies is not proposed as the metric."
    rows = [
        "opt,lr,State,seed,val_loss",
        *(
            f"{opt},0.1,{'crashed' if dead else 'finished'},{i},{'' if dead else 2.3 + i / 100 - s * (1 + i % 3 / 4)}"
            for opt, s in (("a", 0), ("b", 0.03))
            for i in range(12)
            for dead in [opt == "b" and i == 7]
        ),
    ]
    (tmp_path / "w.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "ok.csv").write_text("\n".join(row for row in rows if ",7," not in row) + "\n")
    code, text = said("compare w.csv --column arm=opt=a,b")
    assert (
        code == 2
        and "(columns: val_loss, lr)" in text
        and "terminal" not in text
        and "()" not in text
    )
    how = "--column arm=opt=a,b --metric val_loss --better lower"
    code, text = said(f"compare w.csv {how}")
    assert (
        code == 5
        and "seed 7 ended in 'crashed'" in text
        and "add --set drop_failed=true" in text
        and "|  |" not in (tmp_path / "r" / "summary.md").read_text()
    )
    code, text = said(f"compare ok.csv {how}")
    assert code == 0 and text.startswith(
        "Better, but equivalent within 2 % (0.0471): val_loss -1.5"
    )
    assert said(f"compare w.csv {how} --set drop_failed=true")[0] == 0
    (tmp_path / "empty.csv").write_text(
        (tmp_path / "w.csv").read_text().replace("crashed", "finished")
    )
    assert "wrote no number for val_loss" in said(f"compare empty.csv {how}")[1]


def test_intersect_leaves_texts_out_of_losses_too(said, tmp_path):
    "A digest of all tokens is of another text where one is missing; a refusal names the cure."
    rows = [
        {
            "id": f"d{i}",
            "prompt_token_ids": [i, 8, 9],
            "prompt_logprobs": [None, -1 - i % 3, -2],
        }
        for i in range(16)
    ]
    other = [
        {**row, "prompt_token_ids": [0, 8, 8]} if row["id"] == "d3" else row for row in rows
    ]
    for name, kept in (("a", rows), ("b", rows[1:]), ("c", rows[:-1]), ("d", other[1:])):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in kept)
        )
    code, text = said("compare a.jsonl b.jsonl --intersect")
    assert code == 0 and "On the 15 that all have, of 16 (baseline) and 15 (candidate)" in text
    code, text = said("compare b.jsonl c.jsonl --intersect")
    assert code == 0 and "On the 14 that all have, of 15 (baseline) and 15 (candidate)" in text
    assert said("compare a.jsonl a.jsonl --intersect")[0] == 0
    code, text = said("compare a.jsonl d.jsonl --intersect")
    assert code == 3 and "data_id must match" in text
    for name, n in (("l", 16), ("m", 15)):
        lines = [f"d{i},{2 + i / 100},{30 + i}" for i in range(n)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,loss,tokens", *lines]) + "\n")
    code, text = said("compare l.csv m.csv")
    assert code == 3 and ": --intersect" in text
    assert said("compare l.csv m.csv --intersect")[0] == 0


def test_arms_of_one_table_are_named_by_their_values(said, tmp_path):
    rows = [
        f"{opt},{i},{3 + i / 100 - (opt == 'b') * (i % 3) / 50}"
        for opt in "ab"
        for i in range(6)
    ]
    (tmp_path / "w.csv").write_text("\n".join(["opt,seed,loss", *rows]) + "\n")
    how = "w.csv --column arm=opt=a,b --metric loss"
    assert "invar-nb compare: a and b of w.csv" in said(f"compare {how}")[1]
    assert "invar-nb plan: a and b of w.csv" in said(f"plan {how} --margin 2%", out=None)[1]


def test_slicing_by_a_column_of_objects_names_a_field_of_it(said, tmp_path):
    rows = [
        {"id": i, "label": "y", "prediction": "yn"[i % 5 == 0], "meta": {"of": "ab"[i % 2]}}
        for i in range(40)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    code, text = said("compare a.jsonl b.jsonl --by meta")
    assert code == 2 and "'meta', which holds nested values, such as meta.of" in text
    assert said("compare a.jsonl b.jsonl --by meta.of")[0] == 0


def test_a_margin_of_a_score_has_its_shown_name_where_only_one_is_meant(said, tmp_path):
    "Two tasks with two scores have a margin each: no name is offered and then refused."
    for name in "ab":
        for task, metric in (("t", "f1"), ("u", "em")):
            (tmp_path / name).mkdir(exist_ok=True)
            rows = [
                {
                    "doc_id": i,
                    "filter": "none",
                    "metrics": [metric],
                    "doc": {"q": f"{task} {i}"},
                }
                | {"target": "", "arguments": [], "filtered_resps": [""]}
                | {metric: (i * 7 % 10 - (name == "b") * (i % 3)) / 12 + 0.2}
                for i in range(40)
            ]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / name / f"samples_{task}.jsonl").write_text(text)
    assert said("compare a b --task t --margin f1=5%")[0] < 2
    code, text = said("compare a b --margin accuracy=5%")
    assert code == 2 and "Choose from f1, em, t, u." in text
    for name in ("f1", "em", "t", "u"):
        assert said(f"compare a b --margin {name}=5%")[0] < 2
    code, text = said("compare a b --margin score=5%")
    assert code == 2 and "--margin f1=5% or --margin em=5%" in text


@pytest.mark.parametrize("column", ["random_state", "train_seed", "config.seed"])
def test_runs_without_a_usual_column_of_seeds_are_told_to_name_it(said, tmp_path, column):
    "Their rows are no examples: nothing asks for an id, tokens or a loss, and the cure works."
    rows = [
        f"{opt}-{i},{opt},{i},{3 + i / 100 - (opt == 'b') / 9}"
        for opt in "ab"
        for i in range(6)
    ]
    (tmp_path / "w.csv").write_text("\n".join([f"Name,opt,{column},val/loss", *rows]) + "\n")
    how = "compare w.csv --column arm=opt=a,b --metric val/loss"
    if column != "config.seed":
        for typed in (
            "",
            " --column loss=val/loss",
            f" --column loss=val/loss --column id={column}",
        ):
            code, text = said(how + typed)
            left_out = " ".join(sorted(typed.split(" --column ")[1:]))
            assert code == 2 and "runs need a column of seeds" in text
            assert f"Write --column seed={column}" in text
            assert all(word in text.partition("leave out")[2] for word in left_out.split())
        code, text = said(how.replace("compare", "evaluate").replace("a,b", "a"))
        assert code == 2 and f"Write --column seed={column}" in text
    code, text = said(f"{how} --column seed={column} --column loss=val/loss")
    assert code == 2 and "Leave out --column loss=val/loss" in text
    code, text = said(f"{how} --column seed={column}")
    assert code == 0 and "over 6 seeds" in text
    code, text = said(f"{how} --column seed=Name")
    assert (
        code == 3
        and "the seed of a run must be a whole number" in text
        and "--seed" not in text
    )
    noted = f"of runs over seeds write --column seed={column} --metric val/loss"
    code, text = said(f"{how.replace('--metric', '--score')} --column id={column}")
    assert code == 0 and (noted in text) == ("seed" in column)


def test_examples_with_a_metric_of_ours_are_no_runs(said, tmp_path):
    "A column may be called as one of our metrics, and seeds may be missing altogether."
    rows = [f"{i},{2 + i / 100},{30 + i},9,7" for i in range(30)]
    (tmp_path / "a.csv").write_text(
        "\n".join(["doc_id,loss,tokens,perplexity,data_seed", *rows]) + "\n"
    )
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text().replace(",2.1", ",2.2"))
    assert said("compare a.csv b.csv --metric perplexity")[0] in (0, 1)
    (tmp_path / "w.csv").write_text("opt,val\na,1.5\na,1.6\nb,1.4\nb,1.3\n")
    code, text = said("compare w.csv --column arm=opt=a,b --metric val")
    assert code == 2 and "Add a column seed with the seed of each run" in text
