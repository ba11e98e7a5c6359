"Every format is recognised by its content, under any name, and two files are paired only where they belong together."

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from invar_nb import page_data
from invar_nb.arms.pair import pair
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.study import compare
from invar_nb.files.losses import write_losses
from invar_nb.foundations.refuse import ContractError, PairingError, UsageError
from invar_nb.readers.every_eval import read_every_eval
from invar_nb.readers.reader import Reading
from invar_nb.readers.recognise import find_source, read_arms, read_together
from invar_nb.report.verify import verify

DATA = Path(__file__).parent / "data"
ROWS = [
    dict(
        id=f"q{i}",
        score=i / 10,
        label="yn"[i % 2],
        prediction="yn"[i % 3 % 2],
        seed=i,
        loss=1 + i / 10,
        tokens=5,
    )
    for i in range(12)
]


def read_pairs(a, b, reading=None):
    "task -> pair of two files or folders."
    arms = read_together({"baseline": a, "candidate": b}, reading)
    return {
        task: pair(arms["baseline", task], arms["candidate", task])
        for name, task in arms
        if name == "baseline"
    }


def table(path, *columns, rows=ROWS):
    rows = [{name: row[name] for name in columns} for row in rows]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        path.write_text(
            "\n".join([",".join(columns), *(",".join(map(str, row.values())) for row in rows)])
            + "\n"
        )
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".parquet"])
def test_tables_are_told_apart_by_their_columns(tmp_path, ending):
    kinds = {
        "answers": ("id", "label", "prediction"),
        "table": ("id", "score"),
        "runs": ("seed", "score"),
    }
    for kind, columns in kinds.items():
        assert find_source(path := table(tmp_path / f"x{ending}", *columns)).name == kind
        if ending == ".csv":  # as Excel writes it
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
            assert find_source(path).name == kind
    both = table(tmp_path / f"both{ending}", "id", "label", "prediction", "score")
    assert (
        find_source(both).name == "answers"
        and find_source(both, Reading(score="score")).name == "table"
    )
    assert (
        read_arms(both, Reading(score="score"))[""].kind == "scores"
        and read_arms(both)[""].kind == "answers"
    )
    assert (
        read_arms(table(tmp_path / f"l{ending}", "id", "loss", "tokens"))[""].kind == "losses"
    )
    if ending in (".jsonl", ".parquet"):  # our own, by their header
        write_losses(
            WindowLosses.from_arrays(["a", "b"], [3, 4], [1.0, 2.0], model="m"),
            own := tmp_path / f"own{ending}",
        )
        assert find_source(own).name == "losses" and read_arms(own)[""].model == "m"


def test_folders_of_other_tools(tmp_path):
    base, tuned = page_data("lm_eval") / "base", page_data("lm_eval") / "tuned"
    assert (
        find_source(base).name == "lm-eval"
        and find_source(DATA / "inspect" / "base").name == "inspect"
    )
    pairs = read_pairs(base, tuned, Reading(tasks=("invar_rolling", "invar_choices")))
    assert {name: p.kind for name, p in pairs.items()} == {
        "invar_rolling": "losses",
        "invar_choices": "answers",
    }
    assert find_source(next(base.glob("samples_*rolling*"))).name == "lm-eval"
    other = tmp_path / "fewer"
    shutil.copytree(tuned, other)
    for file in other.glob("samples_invar_choices*"):
        file.unlink()
    with pytest.raises(
        PairingError,
        match="no task 'invar_choices' in .* .candidate.*Both have 'invar_lengths', .*as in tasks='invar_lengths'",
    ):
        read_pairs(base, other, Reading(score="shared", filter="first-word"))
    with pytest.raises(UsageError, match="nope"):
        read_arms(base, Reading(tasks=("nope",)))
    with pytest.raises(UsageError, match="nope"):
        read_arms(
            DATA / "inspect" / "base" / "choices.json",
            Reading(tasks=("nope",), score="choice"),
        )
    assert set(
        read_arms(DATA / "inspect" / "base" / "choices.json", Reading(score="choice"))
    ) == {"choices"}
    (tmp_path / "logs").mkdir()
    for name in ("choices.json", "texts.json"):
        shutil.copy(DATA / "inspect" / "base" / name, tmp_path / "logs")
    assert set(
        read_arms(tmp_path / "logs", Reading(tasks=("texts",), score="perplexity"))
    ) == {"texts"}  # the other task has no such scorer


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"\x00\x01\x02" * 50,
        b"\xff\xfe\x00a",
        b"PK\x03\x04broken",
        b"[" * 5000,
        b'{"a": ' * 3000,
        b"_logits_",
        "ünï\n".encode("utf-16"),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "x",
        "x.bin",
        "x.json",
        "x.jsonl",
        "x.csv",
        "x.eval",
        "samples_a_2026-01-01T00-00-00.1.jsonl",
    ],
)
def test_strange_bytes_are_refused_and_never_crash(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ContractError) as caught:
        read_arms(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_damaged_footers_of_parquet_are_refused_and_never_crash(tmp_path):
    path, refused = table(tmp_path / "x.parquet", "id", "score"), 0
    good = path.read_bytes()
    for at in range(len(good) - 8 - int.from_bytes(good[-8:-4], "little"), len(good), 3):
        path.write_bytes(good[:at] + b"\xff" + good[at + 1 :])
        try:
            find_source(path)
        except ContractError as error:
            assert "the file must be Parquet" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 50


def test_what_is_refused_and_how(tmp_path):
    llama = DATA / "llama_cpp"
    (tmp_path / "folder").mkdir()
    with pytest.raises(ContractError, match="with nothing.*invar-nb help files"):
        find_source(tmp_path / "folder")
    with pytest.raises(ContractError, match="absent"):
        find_source(tmp_path / "absent.jsonl")
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ContractError, match="none.jsonl, an empty file") as caught:
        read_pairs(llama / "base.kld", tmp_path / "none.jsonl")
    assert not isinstance(caught.value, UsageError)
    with pytest.raises(ContractError, match="must hold samples"):
        read_every_eval(tmp_path / "none.jsonl")
    with pytest.raises(
        UsageError,
        match="base.kld and .*type1.log must be of one format; got logits and perplexity log",
    ):
        read_pairs(llama / "base.kld", llama / "tuned.type1.log")
    with pytest.raises(UsageError, match="score is an option"):
        read_pairs(llama / "base.kld", llama / "tuned.kld", Reading(score="x"))
    a, b = (
        table(tmp_path / "a.csv", "id", "score"),
        table(tmp_path / "b.csv", "id", "label", "prediction"),
    )
    with pytest.raises(
        UsageError, match="a.csv and .*b.csv must be of one format; got table and answers"
    ):
        read_pairs(a, b)
    with pytest.raises(UsageError, match="filter is an option of lm-eval"):
        read_arms(a, Reading(filter="x"))
    with pytest.raises(
        UsageError, match="cluster is an option of lm-eval, inspect, .*answers, table"
    ):
        read_arms(llama / "base.kld", Reading(cluster="seed"))
    with pytest.raises(ContractError, match="must be a column 'seed'"):
        read_arms(b, Reading(cluster="seed"))
    with pytest.raises(UsageError, match="compared or evaluated, not planned"):
        read_arms(table(tmp_path / "r.csv", "seed", "score"))
    with pytest.raises(ContractError, match="at most 1e.150 in size; got 1e.308"):
        read_arms(
            table(
                tmp_path / "huge.csv",
                "id",
                "score",
                rows=[row | {"score": 1e308} for row in ROWS],
            )
        )
    with pytest.raises(PairingError, match="hold the same ids"):
        read_pairs(a, table(tmp_path / "c.csv", "id", "score", rows=ROWS[:-1]))
    assert read_pairs(a, a)[""].n == len(ROWS) and np.isclose(
        read_pairs(a, a)[""].baseline.values.sum(), 6.6
    )


@pytest.mark.parametrize(
    ("kind", "name", "damage", "says"),
    [
        (
            "answers",
            "x.csv",
            lambda data: data.replace(b",", b";"),
            "x.csv, line 1: cells must be separated by commas",
        ),
        (
            "answers",
            "x.csv",
            lambda data: data.decode().encode("utf-16"),
            "x.csv, line 1: text must be UTF-8 without NUL",
        ),
        (
            "answers",
            "x.csv",
            lambda data: data.replace(b"\n", b"\r"),
            "x.csv, line 1: lines must end with a line feed",
        ),
        (
            "answers",
            "x.jsonl",
            lambda data: b"\x80" + data,
            "x.jsonl, line 1: text must be UTF-8",
        ),
        (
            "answers",
            "x.jsonl",
            lambda data: b"\0" * 9 + data,
            "x.jsonl, line 1: text must be UTF-8 without NUL",
        ),
        (
            "losses",
            "x.jsonl",
            lambda data: data.replace(b"invar_nb/", b"other/"),
            'x.jsonl:1: the header must be an object with "schema"',
        ),
    ],
)
def test_one_damaged_file_of_two_is_said_as_it_would_be_alone(
    tmp_path, kind, name, damage, says
):
    (tmp_path / "good").mkdir()
    bad, good = tmp_path / name, tmp_path / "good" / name
    if kind == "losses":
        write_losses(WindowLosses.from_arrays(["a", "b"], [3, 4], [1.0, 2.0], model="m"), good)
    else:
        table(good, "id", "label", "prediction")
    bad.write_bytes(damage(good.read_bytes()))
    for a, b in ((good, bad), (bad, good)):
        with pytest.raises(ContractError) as caught:
            read_pairs(a, b)
        assert says in str(caught.value) and not isinstance(caught.value, UsageError)


def test_translations_are_texts_with_references(tmp_path):
    for name, lines in {
        "a": ["the cat sat on the mat", "a dog"],
        "b": ["the cat sat on a mat", "the dog"],
        "ref": ["the cat sat on the mat", "the dog"],
        "short": ["one"],
    }.items():
        (tmp_path / name).write_text("\r\n".join(lines) + "\r\n")
    reading = Reading(references=(str(tmp_path / "ref"), str(tmp_path / "a")), tokenize="none")
    found = read_pairs(tmp_path / "a", tmp_path / "b", reading)[""]
    assert (
        found.kind == "translations"
        and found.n == 2
        and found.baseline.references[0] == ("the cat sat on the mat",) * 2
        and found.baseline.tokenize == "none"
    )
    with pytest.raises(ContractError, match="as many lines.*1 lines"):
        read_arms(tmp_path / "a", Reading(references=(str(tmp_path / "short"),)))
    (tmp_path / "b").write_bytes(b"caf\xe9")
    with pytest.raises(ContractError, match="UTF-8.*0xe9 at offset 3"):
        read_arms(tmp_path / "b", Reading(references=(str(tmp_path / "ref"),)))
    with pytest.raises(UsageError, match="tokenize is an option of translations"):
        read_arms(table(tmp_path / "t.csv", "id", "score"), Reading(tokenize="char"))


# --- Every Eval Ever ------------------------------------------------------------------------------------------------------------------
def row(i, score, model="org/a", name="GSM8K", correct=None, **more):
    "A sample with every field that the schema asks for."
    return {
        "schema_version": "instance_level_eval_0.2.1",
        "evaluation_id": f"{name}/{model}/1",
        "model_id": model,
        "evaluation_name": name,
        "sample_id": f"q{i}",
        "sample_hash": f"{hash((name, i)) % 2**64:064x}",
        "interaction_type": "single_turn",
        "input": {"raw": f"{i} + 1", "reference": [f"{i + 1}"], "choices": None},
        "output": {"raw": ["?"]},
        "messages": None,
        "answer_attribution": [],
        "error": None,
        "evaluation": {
            "score": score,
            "is_correct": score == 1 if correct is None else correct,
        },
    } | more


def write(path, rows):
    path.write_text(
        "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8"
    )
    return path


def test_two_files_pair_by_hash_and_report(tmp_path):
    rng = np.random.default_rng(0)
    right = rng.random((2, 20)) < [[0.5], [0.7]]
    paths = [
        write(
            tmp_path / f"{m}.jsonl",
            [row(i, float(x), f"org/{m}") for i, x in enumerate(r)]
            + [row(i, -i / 7, f"org/{m}", "cost", correct=i < 3) for i in range(5)],
        )
        for m, r in zip("ab", right, strict=True)
    ]
    found = [read_every_eval(p) for p in paths]
    assert (
        list(found[0]) == ["GSM8K", "cost"]
        and find_source(paths[0]).name == "every-eval"
        and found[0]["cost"].better == "higher"
        and found[1]["GSM8K"].model == "org/b"
    )
    made = compare(pair(*[arms["GSM8K"] for arms in found]))
    assert (
        made.method == "tango"
        and made.delta == pytest.approx(right[1].mean() - right[0].mean())
        and made.arms["baseline", ""].data_id == "every-eval:GSM8K"
    )
    assert (
        verify(made.report().save(tmp_path / "r")).report.document()["arms"]["candidate"][
            "provenance"
        ]["source"]["format"]
        == "Every Eval Ever"
    )
    with pytest.raises(
        PairingError, match="evaluation_name must match; got 'GSM8K' and 'cost'"
    ):
        pair(found[0]["GSM8K"], found[1]["cost"])
    shuffled = write(
        tmp_path / "d.jsonl",
        [row(i, float(x), "org/a") for i, x in reversed([*enumerate(right[0])])],
    )
    assert pair(found[0]["GSM8K"], read_every_eval(shuffled)["GSM8K"]).n == 20


@pytest.mark.parametrize(
    "scores, better",
    [
        ([(1, True), (0, False)], "higher"),
        ([(3.5, True), (9.0, False)], "lower"),
        ([(1, True), (1, True)], "higher"),
        ([(0, False)], "higher"),
    ],
)
def test_direction_comes_from_the_correct_samples(tmp_path, scores, better):
    path = write(
        tmp_path / "x.jsonl", [row(i, x, correct=right) for i, (x, right) in enumerate(scores)]
    )
    assert read_every_eval(path)["GSM8K"].better == better


@pytest.mark.parametrize(
    "change, part",
    [
        ({"sample_hash": ""}, "line 2: every line must be a sample"),
        ({"evaluation_id": "other"}, "one evaluation_id"),
        ({"sample_id": "q0"}, "ids must be unique"),
        ({"evaluation": {"score": "1", "is_correct": True}}, "line 2"),
        ({"evaluation": {"score": 1.0}}, "is_correct"),
        ({"sample_id": 7}, "line 2"),
        ({"evaluation": {"score": 2.0, "is_correct": True}}, None),
        (
            {"evaluation": {"score": 0.5, "is_correct": True}, "evaluation_name": "x"},
            "whether a higher score is better",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(tmp_path, change, part):
    path = write(tmp_path / "x.jsonl", [row(0, 1.0), row(1, 1.0, **change)])
    if part is None:
        with pytest.raises(ContractError, match="whether a higher score is better"):
            read_every_eval(path)
        assert read_every_eval(path, better="lower")["GSM8K"].better == "lower"
        return
    with pytest.raises(ContractError) as caught:
        read_every_eval(path)
    assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "strip"),
    [
        ("x.jsonl", lambda data: data.partition(b"\n")[2]),  # as pandas writes its rows again
        ("x.parquet", lambda data: data.replace(b"invar_nb", b"invar_mb")),
    ],
)
def test_losses_without_our_header_are_a_table_beside_saved_ones(tmp_path, name, strip):
    (tmp_path / "good").mkdir()
    good = tmp_path / "good" / name
    write_losses(WindowLosses.from_arrays(["a", "b"], [3, 4], [1.0, 2.0]), good)
    bare = tmp_path / name
    bare.write_bytes(strip(good.read_bytes()))
    matched = read_pairs(good, bare)[""]
    assert np.array_equal(matched.baseline.log_loss, matched.candidate.log_loss)


@pytest.mark.parametrize("saved_arm", ["baseline", "candidate"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_saved_losses_are_compared_with_a_table_of_losses(tmp_path, saved_arm, suffix):
    old = table(tmp_path / f"old.{suffix}", "id", "loss", "tokens")
    saved = tmp_path / "saved.parquet"
    losses = WindowLosses.from_arrays(
        [row["id"] for row in ROWS],
        [row["tokens"] for row in ROWS],
        [row["loss"] + 0.01 for row in ROWS],
    )
    write_losses(losses, saved)
    paths = [saved, old] if saved_arm == "baseline" else [old, saved]
    change = compare(*map(str, paths))["perplexity"].value.delta
    assert change == pytest.approx(-0.01 if saved_arm == "baseline" else 0.01)


def test_saved_losses_beside_a_table_that_has_none_lead_to_what_is_needed(tmp_path):
    saved = tmp_path / "saved.parquet"
    write_losses(WindowLosses.from_arrays(["q0", "q1"], [5, 5], [1.0, 2.0]), saved)
    marks = table(tmp_path / "marks.csv", "id", "score")
    with pytest.raises(UsageError, match="same ids, a column of losses and one of tokens"):
        read_together({"baseline": saved, "candidate": marks})
    loose = table(tmp_path / "loose.csv", "id", "seed", "tokens")  # its losses are called seed
    with pytest.raises(PairingError, match="candidate lacks|same ids"):
        read_pairs(saved, loose, Reading(loss="seed"))
