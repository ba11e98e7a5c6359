"""Tables without a header of ours: every format gives the same arm, and what a table leaves open is asked, never guessed."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import shell

from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.readers.named_columns import read_plain
from invar_nb.report.verify import verify

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")


def write(path, rows):
    "Rows by the writers of csv, json and pyarrow."
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(
                file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ","
            )
            out.writeheader()
            out.writerows(rows)
    return path


def losses(n=40, **more):
    rng = np.random.default_rng(4)
    return [
        {"doc_id": f"d{i}", "nll": float(x), "num_tokens": int(t), "group_id": f"g{i // 2}"}
        | {k: v(i) for k, v in more.items()}
        for i, (x, t) in enumerate(
            zip(rng.gamma(9, 0.3, n), rng.integers(5, 300, n), strict=True)
        )
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_losses(tmp_path, suffix):
    rows = losses()
    arm = read_plain(write(tmp_path / f"x{suffix}", rows))
    total = sum(r["num_tokens"] for r in rows)
    assert arm.perplexity == pytest.approx(
        np.exp(sum(r["nll"] * r["num_tokens"] for r in rows) / total), rel=1e-13
    )
    assert (
        arm.log_loss.tolist() == [r["nll"] for r in rows]
        and arm.clusters == tuple(r["group_id"] for r in rows)
        and arm.ids[1] == "d1"
    )
    summed = [{**r, "nll": r["nll"] * r["num_tokens"]} for r in rows]
    again = read_plain(write(tmp_path / f"y{suffix}", summed), sums=True)
    np.testing.assert_allclose(again.log_loss, arm.log_loss, rtol=1e-14)
    per_byte = [
        {"doc_id": r["doc_id"], "nll": r["nll"], "bytes": r["num_tokens"]} for r in rows
    ]
    assert read_plain(write(tmp_path / f"z{suffix}", per_byte)).weight_unit == "bytes"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "values", [[True, False, True], [1, 0, 1], [0.5, 0, 1], [1e-300, -2, 7]]
)
def test_every_format_gives_the_same_scores(tmp_path, suffix, values):
    rows = [{"uid": 10 + i, "mark": x, "topic": "ab"[i % 2]} for i, x in enumerate(values)]
    arm = read_plain(
        write(tmp_path / f"x{suffix}", rows),
        score="mark",
        better="lower",
        cluster="topic",
        slices=["topic"],
    )
    assert (
        arm.ids == ("10", "11", "12")
        and arm.values.tolist() == [float(x) for x in values]
        and arm.score == "mark"
        and arm.better == "lower"
    )
    assert arm.clusters == ("a", "b", "a") == arm.slices["topic"] and arm.provenance["source"][
        "columns"
    ] == {"score": "mark", "cluster": "topic", "id": "uid"}


ROWS = [{"id": f"q{i}", "f1": i / 4, "tokens": 3} for i in range(3)]


@pytest.mark.parametrize(
    "rows, options, parts",
    [
        (
            [{"id": 1, "x": 2}],
            {},
            ("one column must be the loss or the score", "columns 'id', 'x'", "Say loss="),
        ),
        (
            [{"id": 1, "Target": 2, "answer": 2}],
            {},
            ("rename 'Target' to 'label' and 'answer' to 'prediction'",),
        ),
        ([{"f1": 1, "x": 2}], {}, ("a column must be the id", "'f1', 'x'")),
        ([{"id": 1, "f1": 1, "em": 1}], {}, ("one column must be the score", "'f1', 'em'")),
        ([{"id": 1, "f1": 1, "loss": 1, "tokens": 2}], {}, ("the loss or the score",)),
        ([{"idx": 1, "uid": 2, "f1": 1}], {}, ("one column must be the id", "'idx', 'uid'")),
        ([{"id": 1, "loss": 1}], {}, ("a column must be the tokens",)),
        (ROWS, {"score": "F1"}, ("there must be a column 'F1'", "Did you mean 'f1'?")),
        (ROWS, {"loss": "f1", "score": "f1"}, ("losses or a score, not both",)),
        (ROWS, {"tokens": "tokens"}, ("about losses",)),
        (ROWS, {"rename": {"F1": "x"}}, ("there must be a column 'F1'",)),
        (ROWS, {"rename": {"f1": "id"}}, ("must not repeat",)),
        (ROWS, {"slices": ["topic"]}, ("there must be a column 'topic'",)),
        (ROWS, {"score": "tokens"}, ("whether higher 'tokens' is better",)),
        (ROWS, {"better": "up"}, ("better must be one of",)),
        ([*ROWS, ROWS[0]], {}, ("every id must occur once", "'q0' again", "repeats='mean'")),
        (ROWS, {"repeats": "first"}, ("repeats must be one of",)),
        ([{"id": 1, "loss": 90.0, "tokens": 30}], {}, ("mean in nats per token", "sums=True")),
        ([{"id": 1, "loss": -2.0, "tokens": 30}], {}, ("log_loss must be at least 0",)),
        ([{"id": 1, "loss": 2.0, "tokens": 0}], {}, ("whole numbers from 1",)),
        ([{"id": "a", "f1": 1}, {"id": None, "f1": 1}], {}, ("every row must have 'id'",)),
        ([{"id": "a", "f1": 1}, {"id": "b", "f1": None}], {}, ("f1",)),
        ([{"id": "a", "f1": "12 %"}], {}, ("'f1' must be a finite number",)),
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_open_is_refused_by_name(tmp_path, rows, options, parts, suffix):
    with pytest.raises(ContractError) as caught:
        read_plain(write(tmp_path / f"x{suffix}", rows), **options)
    assert all(part in str(caught.value) for part in parts) and "\n" not in str(
        caught.value
    ), str(caught.value)


def test_repeats_are_averaged_and_must_be_as_many(tmp_path):
    rows = lambda counts, shift=0: [
        {"id": f"q{i}", "f1": (i + k) / 9 + shift, "cluster": i // 2}
        for i, c in enumerate(counts)
        for k in range(c)
    ]
    read = lambda name, counts, repeats, shift=0: read_plain(
        write(tmp_path / name, rows(counts, shift)), repeats=repeats
    )
    a, b = read("a.csv", [2, 3, 1], "mean"), read("b.jsonl", [2, 3, 1], "mean", 0.1)
    assert (
        a.values.tolist() == pytest.approx([1 / 18, 2 / 9, 2 / 9])
        and a.repeats.tolist() == [2, 3, 1]
        and a.clusters == ("0", "0", "1")
    )
    assert compare(pair(a, b)).delta == pytest.approx(0.1)
    with pytest.raises(PairingError, match="repeats must match; got 3 and 2 at item 1"):
        pair(a, read("c.csv", [2, 2, 1], "mean"))
    assert (
        pair(read("d.csv", [2, 3, 1], "unequal"), read("e.csv", [2, 2, 1], "unequal")).n == 3
    )
    clash = [{"id": "q", "f1": 1, "cluster": "a"}, {"id": "q", "f1": 0, "cluster": "b"}]
    with pytest.raises(
        ContractError, match="line 3.*must agree on 'cluster'; got 'a' and 'b' for 'q'"
    ):
        read_plain(write(tmp_path / "f.csv", clash), repeats="mean")


N = 15_000  # rows of more than one batch
MANY = [
    {
        "id": f"q{i:070d}",
        "f1": i % 7 / 8,
        "cluster": f"t{i % 57}",
        "note": 'two\nlines, "quoted"',
    }
    for i in range(N)
]


def changed(i, **more):
    "The rows with one of them changed; None takes a field away."
    return [
        row if j != i else {k: v for k, v in {**row, **more}.items() if v is not None}
        for j, row in enumerate(MANY)
    ]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rows_of_many_batches_are_the_rows_of_one(tmp_path, suffix):
    arm = read_plain(write(tmp_path / f"x{suffix}", MANY), slices=["cluster"])
    assert (
        tmp_path / f"x{suffix}"
    ).stat().st_size > 2**20 or suffix == ".parquet"  # which is compressed
    assert arm.ids == tuple(row["id"] for row in MANY) and arm.clusters == arm.slices[
        "cluster"
    ] == tuple(row["cluster"] for row in MANY)
    assert arm.values.tolist() == [row["f1"] for row in MANY]


@pytest.mark.parametrize(
    "more, options, parts",
    [
        ({"id": None}, {}, ("line {}", "every row must have 'id'")),
        ({"f1": "1_0"}, {}, ("line {}", "'1_0'")),
        ({"f1": True}, {}, ("line {}", "True")),
        ({"acc": 1}, {}, ("one column must be the score", "'acc'")),
        (
            {"tokens": 1, "cluster": None},
            {"score": "f1"},
            ("line {}", "every row must have 'cluster'"),
        ),
        ({"topic": 1}, {"slices": ["note", "topic"]}, ("'topic'",)),
        ({"id": MANY[3]["id"]}, {}, ("line {}", "003' again")),
        ({"id": MANY[3]["id"]}, {"repeats": "mean"}, ("line {}", "agree on 'cluster'")),
    ],
    ids=str,
)
def test_late_rows_are_refused_like_early_ones(tmp_path, more, options, parts):
    for i, suffix in ((4, ".jsonl"), (N - 2, ".jsonl"), *[(N - 2, ".csv")] * ("id" in more)):
        with pytest.raises(ContractError) as caught:
            read_plain(
                write(
                    tmp_path / f"x{suffix}",
                    changed(i, **more)
                    if suffix == ".jsonl"
                    else [MANY[j] | more if j == i else MANY[j] for j in range(N)],
                ),
                **options,
            )
        assert all(
            part.format(i + 1 if suffix == ".jsonl" else 2 * i + 2) in str(caught.value)
            for part in parts
        ), str(caught.value)


def test_a_late_key_that_would_have_been_chosen_is_refused(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "cluster"} for row in MANY]
    with pytest.raises(ContractError, match="line 1: every row must have 'cluster'"):
        read_plain(write(tmp_path / "x.jsonl", [*rows[:-1], MANY[-1]]))
    mixed = [
        {"id": "a", "correct": True, "note": "x" * 2**20},
        {"id": "b", "correct": 0.5},
    ]  # a batch each
    with pytest.raises(
        ContractError,
        match="'correct' must be a finite number; got True .line 1.. Write 1 or 0",
    ):
        read_plain(write(tmp_path / "y.jsonl", mixed))


PEAK = """import resource, sys
from invar_nb.readers.named_columns import read_plain
for path in sys.argv[1:]:
    arm = read_plain(path)
    print(len(arm), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_memory_holds_the_columns_and_one_batch(tmp_path, suffix):
    "Four times the rows, each with 4 kB of text beside its loss: the peak grows by the ids and numbers, not by the file."
    rng, sizes = np.random.default_rng(5), (4_000, 16_000)
    paths = [
        write(
            tmp_path / f"{n}{suffix}",
            [
                {"id": f"q{i}", "loss": 2.5, "tokens": 9, "output": rng.bytes(2000).hex()}
                for i in range(n)
            ],
        )
        for n in sizes
    ]
    out = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert tuple(map(int, out[::2])) == sizes
    grown, rows = 1024 * (int(out[3]) - int(out[1])), sizes[1] - sizes[0]
    assert grown < 300 * rows < (paths[1].stat().st_size - paths[0].stat().st_size) / 6, (
        f"{grown / rows:.0f} bytes a row"
    )


def test_rows_of_one_document_are_its_windows(tmp_path):
    "With the document's id alone, with the document as cluster, and with a number that starts again in each: the same windows, documents and interval. A repeated id that names no document is refused with the cure."
    rng = np.random.default_rng(3)
    for name in "ab":
        lines = [f"d{i // 5},{i % 5},{3 + rng.normal(0, 0.1):.4f},100" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text(
            "doc_id,window,nll,n_tokens\n" + "\n".join(lines) + "\n"
        )
        (tmp_path / f"{name}2.csv").write_text(
            "id,window,nll,n_tokens\n" + "\n".join(lines) + "\n"
        )
    found = {}
    for how in ({}, {"cluster": "doc_id"}, {"cluster": "doc_id", "id": "window"}):
        arms = [read_plain(tmp_path / f"{name}.csv", **how) for name in "ab"]
        assert arms[0].documents == 12 and len(arms[0]) == 60
        found[str(how)] = compare(pair(*arms)).interval
    assert len({(ends.low, ends.high) for ends in found.values()}) == 1
    with pytest.raises(
        ContractError,
        match="line 3: every id must occur once; got 'd0' again, as in line 2. If 'id' names documents of several rows, say cluster='id'",
    ):
        read_plain(tmp_path / "a2.csv")
    assert (
        compare(
            pair(*(read_plain(tmp_path / f"{name}2.csv", cluster="id") for name in "ab"))
        ).interval
        == found["{}"]
    )
    one = tmp_path / "one.csv"
    one.write_text("doc_id,nll,n_tokens\n" + "".join(f"d{i},3,100\n" for i in range(20)))
    assert read_plain(one).documents == 20


@pytest.mark.parametrize("margin", ["5%", "0.05", "correct=0.05", "correct=5%"])
def test_the_margin_of_scores_that_are_shares_is_typed_as_that_of_any_share(tmp_path, margin):
    "In per cent too, and under the name of its own column; beyond 1 only where scores are."
    from test_shell import shell

    for k, name in enumerate(("old", "new")):
        (tmp_path / f"{name}.csv").write_text(
            "id,correct\n"
            + "".join(f"q{i},{int((i * 7 + k * (i % 9 == 0)) % 3 > 0)}\n" for i in range(200))
        )
    code, out, err = shell(
        "compare",
        tmp_path / "old.csv",
        tmp_path / "new.csv",
        "--margin",
        margin,
        "--out",
        tmp_path / "r",
    )
    assert code in (0, 1) and "5 points" in out, (out, err)
    code, _, err = shell(
        "compare",
        tmp_path / "old.csv",
        tmp_path / "new.csv",
        "--margin",
        "5",
        "--out",
        tmp_path / "s",
    )
    assert code == 2 and "For 5 % write 5%" in err, err


# --- log-probabilities of tokens --------------------------------------------------------------------------------------------------------
def scored(n=24, shift=0.0):
    "(token ids, log-probabilities) of texts, the first token without one."
    rng = np.random.default_rng(8)
    texts = [
        (rng.integers(0, 900, k).tolist(), [None, *(-rng.exponential(2, k - 1)).tolist()])
        for k in rng.integers(12, 40, n)
    ]
    return [
        (ids, [None, *(x * (1 + shift * (1 + i % 3)) for x in values[1:])])
        for i, (ids, values) in enumerate(texts)
    ]


def vllm(ids, values, more=True):
    "prompt_logprobs as vLLM writes them: the text's token, and the likeliest one behind it or before it."
    own = lambda i, x: {str(i): {"logprob": x, "rank": 5, "decoded_token": "x"}}
    top = {"901": {"logprob": -0.01, "rank": 1, "decoded_token": "the"}} if more else {}
    return [
        None,
        *(
            (own(i, x) | top) if k % 2 else (top | own(i, x))
            for k, (i, x) in enumerate(zip(ids[1:], values[1:], strict=True))
        ),
    ]


def reply(k, **choice):
    return {
        "id": f"cmpl-{k * 7919 % 10007}",
        "object": "text_completion",
        "model": "m",
        "choices": [{"index": 0, "text": "..."} | choice],
    }


FORMS = {
    "flat": lambda k, ids, values: {"id": str(k), "logprobs": values},
    "echo": lambda k, ids, values: {
        "id": str(k),
        "tokens": [f"t{i}" for i in ids],
        "token_logprobs": values,
    },
    "generate": lambda k, ids, values: {
        "request_id": str(k),
        "prompt": "...",
        "prompt_token_ids": ids,
        "prompt_logprobs": vllm(ids, values),
        "outputs": [],
        "finished": True,
        "metrics": None,
    },
    "alone": lambda k, ids, values: {
        "request_id": str(k),
        "prompt_logprobs": vllm(ids, values, more=False),
    },
    "response": lambda k, ids, values: (
        reply(
            k,
            logprobs={
                "tokens": [*(f"t{i}" for i in ids), "x"],
                "token_logprobs": [*values, -3.0],
            },
        )
        | {"usage": {"prompt_tokens": len(ids), "completion_tokens": 1}}
    ),
    "vllm response": lambda k, ids, values: (
        reply(k, logprobs=None, prompt_logprobs=vllm(ids, values), prompt_token_ids=ids)
        | {"usage": {"prompt_tokens": len(ids)}}
    ),
    "chat": lambda k, ids, values: (
        reply(k, message={}) | {"prompt_logprobs": vllm(ids, values, more=False)}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_log_probabilities_of_every_form_are_losses(tmp_path, form):
    from test_shell import shell

    arms = []
    for name, shift in (("a", 0.0), ("b", 0.02)):
        write(
            tmp_path / f"{name}.jsonl",
            [FORMS[form](k, *text) for k, text in enumerate(scored(shift=shift))],
        )
        arms.append(read_plain(tmp_path / f"{name}.jsonl"))
        assert arms[-1].tokens.tolist() == [len(ids) - 1 for ids, _ in scored()]
        np.testing.assert_allclose(
            arms[-1].log_loss,
            [-np.mean(values[1:]) for _, values in scored(shift=shift)],
            rtol=1e-14,
        )
    assert (
        bool(arms[0].data_id) is (form != "flat")
        and arms[0].data_id == arms[1].data_id
        and pair(*arms)
    )
    code, out, err = shell(
        "compare",
        tmp_path / "a.jsonl",
        tmp_path / "b.jsonl",
        "--out",
        tmp_path / "r",
        "--quiet",
    )
    assert code == 1 and out.startswith("Regressed: perplexity"), (out, err)
    assert shell("verify", tmp_path / "r")[0] == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_log_probabilities_of_every_format(tmp_path, suffix):
    rows = [
        {
            "doc_id": f"d{k // 2}",
            "logprobs": json.dumps(values) if suffix in (".csv", ".tsv") else values,
        }
        for k, (_, values) in enumerate(scored())
    ]
    arm = read_plain(write(tmp_path / f"x{suffix}", rows))
    assert arm.documents == 12 and arm.log_loss[3] == pytest.approx(
        -np.mean(scored()[3][1][1:]), rel=1e-14
    )


@pytest.mark.parametrize(
    "spoil, message",
    [
        (
            lambda ids, x: {"logprobs": [None, *(-v for v in x[1:])]},
            "at most 0; got .* at token 1. Turn the sign",
        ),
        (lambda ids, x: {"logprobs": [*x[:3], float("nan")]}, "must be finite; got NaN"),
        (
            lambda ids, x: {"logprobs": [*x[:3], float("-inf")]},
            "must be finite; got -Infinity",
        ),
        (
            lambda ids, x: {"logprobs": [*x[:3], -9999.0]},
            "got -9999.0 at token 3. This token has probability 0",
        ),
        (
            lambda ids, x: {"logprobs": [*x[:3], None]},
            "got None at token 3. Only the first token",
        ),
        (
            lambda ids, x: {"logprobs": []},
            "some token must have a log-probability; got 0 tokens",
        ),
        (
            lambda ids, x: {"logprobs": [None]},
            "some token must have a log-probability; got 1 tokens",
        ),
        (lambda ids, x: {"logprobs": "abc"}, "JSON"),
        (lambda ids, x: {"logprobs": -3.0}, "there must be a list"),
        (lambda ids, x: {"logprobs": [None, True]}, "got True at token 1"),
        (
            lambda ids, x: {"prompt_logprobs": vllm(ids, x)},
            "which token of the table is the text's; got 2 and no ids. Keep prompt_token_ids",
        ),
        (
            lambda ids, x: {"prompt_logprobs": vllm(ids, x), "prompt_token_ids": ids[:-1]},
            "one log-probability for each token",
        ),
        (
            lambda ids, x: {
                "prompt_logprobs": vllm(ids, x),
                "prompt_token_ids": [i + 1 for i in ids],
            },
            "must have the one of prompt_token_ids",
        ),
        (lambda ids, x: reply(1, logprobs=None), "in one choice"),
        (
            lambda ids, x: (
                reply(1, logprobs={"token_logprobs": [-1.0]}) | {"usage": {"prompt_tokens": 9}}
            ),
            "1 values without an echo",
        ),
        (lambda ids, x: {"choices": [{}, {}]}, "in one choice"),
    ],
)
def test_log_probabilities_that_are_no_losses_are_refused_by_line(tmp_path, spoil, message):
    row = lambda k, content: {"id": str(k)} | content
    rows = [row(k, spoil(*text)) for k, text in enumerate(scored(3))]
    with pytest.raises(ContractError, match=f"line 1.*{message}") as error:
        read_plain(write(tmp_path / "x.jsonl", rows))
    assert "\n" not in str(error.value)


def test_log_probabilities_of_other_tokens_are_no_pair(tmp_path):
    "Another count is named with its text, other tokens of one count by their digests; per byte two tokenizers can be compared."
    texts = scored()
    arms = {
        "a": texts,
        "other": [([i + 1 for i in ids], x) for ids, x in texts],
        "short": [(ids[:-1], x[:-1]) for ids, x in texts],
    }
    arms = {
        name: read_plain(
            write(
                tmp_path / f"{name}.jsonl",
                [FORMS["generate"](k, *text) for k, text in enumerate(some)],
            )
        )
        for name, some in arms.items()
    }
    with pytest.raises(PairingError, match="data_id must match; got 'tokens:.*one tokenizer"):
        pair(arms["a"], arms["other"])
    rows = lambda cut: [
        {"id": k, "n_chars": 90, "logprobs": x[: len(x) - cut]}
        for k, (_, x) in enumerate(texts)
    ]
    plain = [write(tmp_path / f"{cut}.jsonl", rows(cut)) for cut in (0, 1)]
    with pytest.raises(PairingError, match=r"tokens must match; got \d+ and \d+ at item 0"):
        pair(*map(read_plain, plain))
    both = pair(*(read_plain(path, n_bytes="n_chars") for path in plain))
    assert both.baseline.weight_unit == "bytes" and both.baseline.log_loss[0] == pytest.approx(
        -sum(texts[0][1][1:]) / 90, rel=1e-14
    )


# --- both arms in one table -------------------------------------------------------------------------------------------------------------
def one_table(kind):
    rng = np.random.default_rng(6)
    values = {
        "losses": lambda i, k: {
            "nll": 3 + i % 5 / 10 + k * 0.1 * (1 + i % 3),
            "n_tokens": 50 + i,
        },
        "scores": lambda i, k: {"f1": (i * 7 % 11 + k) / 20},
        "answers": lambda i, k: {
            "label": "ab"[i % 2],
            "prediction": "ab"[(i + (i % (9 - 5 * k) == 0)) % 2],
        },
        "runs": lambda i, k: {"terminal": "ok", "loss": 3 - 0.1 * k + rng.normal(0, 0.02)},
    }[kind]
    return [
        {"seed" if kind == "runs" else "id": i, "optimizer": name} | values(i, k)
        for i in range(40)
        for k, name in enumerate(("adamw", "muon", "lion"))
    ]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("kind", ["losses", "scores", "answers", "runs"])
def test_both_arms_in_one_table_are_those_of_two(tmp_path, kind, suffix):
    "Typed, and said in a study file; the numbers are those of one file for each arm."
    from test_shell import shell

    rows, how = one_table(kind), ["--metric", "loss", "--better", "lower"] * (kind == "runs")
    write(tmp_path / f"all{suffix}", rows)
    for name in ("adamw", "muon"):
        write(
            tmp_path / f"{name}{suffix}",
            [
                {k: v for k, v in row.items() if k != "optimizer"}
                for row in rows
                if row["optimizer"] == name
            ],
        )
    (tmp_path / "study.toml").write_text(
        f'[arms]\nbaseline = "{tmp_path}/all{suffix}"\n[columns]\narm = "optimizer=adamw,muon"\n'
    )
    numbers = {}
    for name, line in (
        ("two", [tmp_path / f"adamw{suffix}", tmp_path / f"muon{suffix}"]),
        ("study", ["--study", tmp_path / "study.toml"]),
        ("one", [tmp_path / f"all{suffix}", "--column", "arm=optimizer=adamw,muon"]),
    ):
        code, out, err = shell("compare", *line, *how, "--out", tmp_path / name, "--quiet")
        assert code in (0, 1), (name, err)
        d = json.loads((tmp_path / name / "report.json").read_text())
        numbers[name] = (
            code,
            [(row["value"]["delta"], row["value"]["ci"], row["claim"]) for row in d["rows"]],
        )
        assert shell("verify", tmp_path / name)[0] == 0
    assert numbers["one"] == numbers["study"] == numbers["two"]
    code, out, err = shell(
        "compare",
        tmp_path / f"all{suffix}",
        "--column",
        "arm=optimizer=adamw,muon,lion",
        *how,
        "--out",
        tmp_path / "three",
        "--quiet",
    )
    assert code in (0, 1) and "muon" in out and "lion" in out, err
    code, _, err = shell(
        "compare", tmp_path / f"all{suffix}", *how, "--out", tmp_path / "none"
    )
    assert code == 2 and "--column arm=optimizer=adamw,muon,lion" in err, err
    code, _, err = shell(
        "compare",
        tmp_path / f"all{suffix}",
        "--column",
        "arm=optimizer=adamw,sgd",
        *how,
        "--out",
        tmp_path / "none",
    )
    assert (
        code == 3
        and "some row must have 'sgd' as 'optimizer'; got only 'adamw', 'muon', 'lion'" in err
        and not (tmp_path / "none").exists()
    ), err


def test_a_column_is_offered_as_the_arms_only_where_it_is_one(tmp_path):
    from invar_nb.readers.recognise import suggested_arms

    rows = [
        {"id": i, "language": "en" if i % 2 else "de", "fold": str(k), "f1": 0.5}
        for i in range(20)
        for k in range(2)
    ]
    assert (
        suggested_arms(write(tmp_path / "a.csv", rows)) is None
    )  # a language has other ids, a fold is a number
    assert (
        suggested_arms(
            write(
                tmp_path / "b.jsonl", [row | {"who": "xy"[int(row["fold"])]} for row in rows]
            )
        )
        == "who=x,y"
    )
    assert suggested_arms(tmp_path / "nowhere.csv") is None
    seeds = [
        {"loss": str(s + 2 * k), "seed": s, "lr": k / 10} for s in range(2) for k in range(2)
    ]
    assert (
        suggested_arms(write(tmp_path / "c.csv", seeds)) == "lr=0.0,0.1"
        and suggested_arms(write(tmp_path / "d.csv", seeds[:2])) is None
    )  # of runs a setting is one


def test_a_plan_and_an_evaluation_take_a_part_of_a_table(tmp_path):
    from test_shell import shell

    path = write(tmp_path / "all.csv", one_table("losses"))
    code, out, err = shell(
        "plan", path, "--column", "arm=optimizer=adamw,muon", "--margin", "5%"
    )
    assert code == 0 and "perplexity +" in out and "already decides: regressed" in out, (
        out,
        err,
    )
    code, out, err = shell(
        "evaluate", path, "--column", "arm=optimizer=adamw", "--out", tmp_path / "e"
    )
    assert code == 0 and "on 40 windows" in out, err
    assert (
        shell(
            "evaluate", path, "--column", "arm=optimizer=adamw,muon", "--out", tmp_path / "f"
        )[0]
        == 2
    )


# --- several scores ---------------------------------------------------------------------------------------------------------------------
def test_several_scores_of_one_table_are_one_family(tmp_path):
    "Each row is that of the score alone but for the adjusted claim, has its own margin and direction, and can be verified."
    from test_shell import shell

    rng = np.random.default_rng(2)
    for name, k in (("a", 0), ("b", 1)):
        write(
            tmp_path / f"{name}.csv",
            [
                {
                    "id": i,
                    "f1": round(float(f) + 0.01 * k, 3),
                    "latency": round(1 + float(t) + 0.4 * k, 3),
                    "words": i % 9 + k,
                }
                for i, (f, t) in enumerate(rng.random((50, 2)))
            ],
        )
    line = [
        "compare",
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        "--score",
        "f1",
        "--score",
        "latency",
        "--score",
        "words",
    ]
    code, _, err = shell(*line, "--out", tmp_path / "r")
    assert (
        code == 2
        and "whether higher 'words' is better" in err
        and "--better words=lower" in err
    ), err
    how = [
        "--better",
        "words=higher",
        "--margin",
        "f1=1%",
        "--margin",
        "latency=3",
        "--margin",
        "words=0.5",
    ]
    code, out, err = shell(*line, *how, "--out", tmp_path / "r", "--quiet")
    rows = {
        row["key"]["metric"]: row
        for row in json.loads((tmp_path / "r/report.json").read_text())["rows"]
    }
    assert (
        code in (0, 1)
        and [*rows] == ["score", "score:latency", "score:words"]
        and out.splitlines()[0].split(": ")[1].startswith("f1 ")
    ), (out, err)
    assert (
        [rows[name]["margin"] for name in rows] == [0.01, 3.0, 0.5]
        and rows["score:words"]["claim"] == "improved"
        and shell("verify", tmp_path / "r")[0] == 0
    )
    assert rows["score:latency"]["claim"] == "equivalent" and [
        row["value"]["better"] for row in rows.values()
    ] == ["higher", "lower", "higher"]
    for name in ("latency", "words"):
        better = ["--better", "higher"] * (name == "words")
        shell(
            "compare",
            tmp_path / "a.csv",
            tmp_path / "b.csv",
            "--score",
            name,
            *better,
            "--out",
            tmp_path / name,
        )
        alone = json.loads((tmp_path / name / "report.json").read_text())["rows"][0]["value"]
        assert {key: alone[key] for key in ("delta", "ci", "p_value")} == {
            key: rows[f"score:{name}"]["value"][key] for key in ("delta", "ci", "p_value")
        }
    code, _, err = shell(*line, *how[:2], "--margin", "lat=1", "--out", tmp_path / "s")
    assert code == 2 and "Did you mean 'latency'?" in err, err
    code, _, err = shell(
        "compare",
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        "--metric",
        "latency",
        "--out",
        tmp_path / "s",
    )
    assert code == 2 and "--score latency" in err, err
    arm = read_plain(tmp_path / "a.csv", score=("f1", "words"), better=["words=lower"])
    assert arm.lower == ("words",) and arm.take([3, 5]).others["words"].tolist() == [
        arm.others["words"][3],
        arm.others["words"][5],
    ]
    with pytest.raises(PairingError, match="lower"):
        compare(
            pair(
                arm,
                read_plain(tmp_path / "b.csv", score=("f1", "words"), better=["words=higher"]),
            )
        )
    with pytest.raises(ContractError, match="there must be columns 'pages', 'wer'"):
        read_plain(tmp_path / "a.csv", score=("pages", "wer"))


def test_repeated_rows_of_several_scores_are_averaged(tmp_path):
    rows = [{"id": i // 2, "f1": i / 10, "latency": i} for i in range(6)]
    arm = read_plain(write(tmp_path / "x.csv", rows), score=("f1", "latency"), repeats="mean")
    assert arm.others["latency"].tolist() == [
        0.5,
        2.5,
        4.5,
    ] and arm.values.tolist() == pytest.approx([0.05, 0.25, 0.45])


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-9, 1.0, 1e12, 1e149])
def test_scores_of_any_size_have_the_numbers_of_others(tmp_path, scale):
    from test_shell import shell

    rng = np.random.default_rng(3)
    for name, k in (("a", 0), ("b", 0.1)):
        write(
            tmp_path / f"{name}.csv",
            [
                {"id": i, "score": scale * (1 + i % 9) * (1 + k * rng.random())}
                for i in range(40)
            ],
        )
    a, b = (read_plain(tmp_path / f"{name}.csv") for name in "ab")
    done, plain = (
        compare(pair(a, b)),
        compare(pair(*(arm.changed(values=arm.values / scale) for arm in (a, b)))),
    )
    assert (
        done.delta / scale == pytest.approx(plain.delta, rel=1e-9)
        and done.interval.low / scale == pytest.approx(plain.interval.low, rel=1e-9)
        and done.claim == plain.claim == "improved"
    )
    code, out, err = shell(
        "compare", tmp_path / "a.csv", tmp_path / "b.csv", "--out", tmp_path / "r", "--quiet"
    )
    assert (
        code == 0
        and max(map(len, out.splitlines())) < 160
        and float(re.search(r"score (\S+)", out)[1]) > 0
    ), (out, err)
    assert shell("verify", tmp_path / "r")[0] == 0


# --- one order, and means ---------------------------------------------------------------------------------------------------------------
def test_losses_are_paired_by_their_ids(tmp_path):
    "In documents any order will do; windows in text order must have one."
    from test_shell import shell

    rng, rows = np.random.default_rng(1), losses(60)
    other = [row | {"nll": row["nll"] * 1.02} for row in rows]
    moved = [other[i] for i in rng.permutation(60)]
    for name, some in (("a", rows), ("b", other), ("moved", moved)):
        write(tmp_path / f"{name}.csv", some)
    read = lambda name, **how: read_plain(tmp_path / f"{name}.csv", id="doc_id", **how)
    both = pair(read("a"), read("moved"))
    assert (
        both.candidate.provenance["reordered"]
        and both.candidate.ids == both.baseline.ids
        and "reordered" not in pair(read("a"), read("b")).candidate.provenance
    )
    assert (
        compare(both).interval == compare(pair(read("a"), read("b"))).interval
        and compare(both).units == "documents"
    )
    assert (
        shell("compare", tmp_path / "a.csv", tmp_path / "moved.csv", "--out", tmp_path / "r")[
            0
        ]
        == 1
        and shell("verify", tmp_path / "r")[0] == 0
    )
    plain = [arm.changed(document_ids=None) for arm in (read("a"), read("moved"))]
    with pytest.raises(
        PairingError,
        match="in two orders. Write both in the order of the text, or name the document",
    ):
        compare(pair(*plain))
    assert compare(pair(*plain), units="windows").units == "windows"


def test_sums_in_the_place_of_means_are_refused_in_python_too(tmp_path):
    from invar_nb.arms.window_losses import WindowLosses
    from invar_nb.files.losses import read_losses

    arrays = ["a", "b"], [100, 50], [300.0, 140.0]
    with pytest.raises(
        ContractError,
        match="mean in nats per token; got 246.7 on average. If each is a sum over its window, say sums=True",
    ):
        WindowLosses.from_arrays(*arrays)
    assert WindowLosses.from_arrays(*arrays, sums=True).log_loss.tolist() == [
        3.0,
        2.8,
    ] and WindowLosses.from_arrays(*arrays, sums=False).log_loss.tolist() == [300.0, 140.0]
    (tmp_path / "x.jsonl").write_text(
        '{"schema":"invar_nb/losses/2","windows":1}\n{"window_id":"a","tokens":100,"log_loss":300.0}\n'
    )
    with pytest.raises(ContractError, match="got 300 on average. Divide each sum"):
        read_losses(tmp_path / "x.jsonl")


def test_a_score_is_asked_once_and_its_direction_said_once(tmp_path):
    path = write(tmp_path / "x.csv", [{"id": i, "f1": i, "mark": 2 * i} for i in range(12)])
    arm = read_plain(
        path, score=["f1", "mark", "f1"], better=["f1=higher", "f1=higher", "mark=lower"]
    )
    assert arm.score == "f1" and [*arm.others] == ["mark"] and arm.lower == ("mark",)
    for better in (["mark=higher", "mark=lower"], ["higher", "lower"]):
        with pytest.raises(
            ContractError, match="better must be said once.*got higher and lower"
        ):
            read_plain(path, score=["f1", "mark"], better=better)


# --- the temperature of samples -----------------------------------------------------------------------------------------------------------
def counts(tmp_path, name, heats, answers):
    "60 problems with 20 samples each, as counts or as answers, with a column of temperatures where there are some."
    head = [
        "id",
        "samples",
        "correct_samples",
        *["label", "prediction"] * answers,
        *["temperature"] * bool(heats),
    ]
    rows = [
        [
            f"q{i}",
            20,
            (7 * i + len(name)) % 21,
            *["yes", "yes" if i % 3 else "no"] * answers,
            *([heats[i % len(heats)]] if heats else []),
        ]
        for i in range(60)
    ]
    (tmp_path / name).write_text(
        "\n".join(",".join(map(str, row)) for row in [head, *rows]) + "\n"
    )
    return tmp_path / name


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize(
    "heats, said",
    [((0.8,), "temperature 0.8"), ((0,), "temperature 0"), ((), "temperature not recorded")],
)
def test_the_temperature_of_samples_is_kept_and_printed_with_pass_at_k(
    answers, heats, said, tmp_path
):
    a, b = (counts(tmp_path, name, heats, answers) for name in ("old.csv", "newer.csv"))
    code, out, err = shell("evaluate", a, "--out", tmp_path / "one")
    line = next(line for line in out.splitlines() if line.startswith("pass@10"))
    assert code == 0 and line.endswith(said), (out, err)
    code, out, err = shell("compare", a, b, "--out", tmp_path / "two")
    report = verify(tmp_path / "two").report  # the evidence keeps it
    assert [
        arm["provenance"].get("temperature") for arm in report.document()["arms"].values()
    ] == [heats[0] if heats else None] * 2
    for name in ("report.md", "report.html"):
        assert (
            f"(2021), {said}." in (page := (tmp_path / "two" / name).read_text())
            or f"problems, {said}." in page
        )
    assert "different temperatures" not in (tmp_path / "two" / "report.md").read_text()


@pytest.mark.parametrize("answers", [False, True])
def test_two_temperatures_in_one_arm_are_refused_and_the_cures_work(answers, tmp_path):
    file = counts(tmp_path, "mixed.csv", (0.2, 0.8), answers)
    code, _, err = shell("evaluate", file, "--out", tmp_path / "no")
    assert (
        code == 3
        and "samples of one arm must be drawn at one temperature; got 0.2 and 0.8." in err
    )
    cures = re.findall(r"--column (arm=temperature=\S+[\d])", err)
    assert cures == ["arm=temperature=0.2", "arm=temperature=0.2,0.8"]
    code, out, err = shell("evaluate", file, "--column", cures[0], "--out", tmp_path / "half")
    assert code == 0 and "temperature 0.2" in out, err
    (tmp_path / "paired.csv").write_text(
        counts(tmp_path, "a.csv", (0.2,), answers).read_text()
        + counts(tmp_path, "b.csv", (0.8,), answers).read_text().partition("\n")[2]
    )
    code, out, err = shell(
        "compare", tmp_path / "paired.csv", "--column", cures[1], "--out", tmp_path / "both"
    )
    assert (
        code in (0, 1)
        and "The samples were drawn at different temperatures: 0.2 and 0.8."
        in (tmp_path / "both" / "report.md").read_text()
    ), err


def test_a_column_of_temperatures_without_samples_is_a_column_as_others(tmp_path):
    (tmp_path / "t.csv").write_text(
        "id,score,temperature\n"
        + "".join(f"q{i},{i % 2},{'hot' if i % 3 else 'cold'}\n" for i in range(30))
    )
    assert shell(
        "evaluate",
        tmp_path / "t.csv",
        "--score",
        "score",
        "--column",
        "better=higher",
        "--out",
        tmp_path / "r",
    )[0] in (0, 2)
    assert (
        "temperature"
        not in read_plain(tmp_path / "t.csv", score="score", better="higher").provenance
    )


def test_the_cure_for_tries_as_a_metric_of_counts_works(tmp_path):
    file = counts(tmp_path, "p.csv", (), False)
    code, _, err = shell("evaluate", file, "--metric", "pass@7", "--out", tmp_path / "no")
    assert code == 2 and (cure := re.search(r"say (--score pass@7)", err)), err
    code, out, _ = shell("evaluate", file, *cure[1].split(), "--out", tmp_path / "r")
    assert code == 0 and "pass@7 0." in out


def test_a_temperature_that_some_rows_do_not_record_is_that_of_the_others(tmp_path):
    for name, cells in (("a.jsonl", (None, 0.8)), ("b.csv", ("", "0.8")), ("c.csv", ("", ""))):
        rows = [
            {"id": i, "samples": 4, "correct_samples": i % 5, "temperature": cells[i % 2]}
            for i in range(20)
        ]
        lines = [json.dumps(row) for row in rows]
        if name.endswith(".csv"):
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        arm = read_plain(tmp_path / name)
        assert arm.provenance.get("temperature") == (None if name == "c.csv" else 0.8)
    (tmp_path / "d.csv").write_text("id,samples,correct_samples,temperature\n1,4,2,hot\n")
    with pytest.raises(
        ContractError, match=r"'temperature' must be a finite number; got 'hot' \(line 2\)"
    ):
        read_plain(tmp_path / "d.csv")


# --- what is wrong in the rows of another arm ---
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet"])
def test_the_rows_of_an_arm_that_nobody_asked_for_may_hold_no_number(tmp_path, ending):
    rows = [
        {"id": i, "arm": arm, "f1": float("nan") if (arm, i) == ("c", 3) else i / 12}
        for i in range(12)
        for arm in "abc"
    ]
    file = tmp_path / f"both.{ending}"
    if ending == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif ending == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        file.write_text("\n".join(lines) + "\n")
    elif ending == "json":
        file.write_text(json.dumps(rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_plain(file, rows=("arm", "b")).values) == 12
    with pytest.raises(ContractError) as caught:
        read_plain(file, rows=("arm", "c"))
    assert re.search(r"(line|row) (12|13)\b", str(caught.value)), caught.value


def test_rows_without_a_value_can_be_left_out_of_both_files(tmp_path):
    "The gap is one arm's: the item leaves both, and the headline counts what each file had."
    marks = [1, 0, 1, 1, 0] * 8
    for name, gaps in (("a", ()), ("b", (3, 9))):
        lines = [f"q{i},{'' if i in gaps else mark}" for i, mark in enumerate(marks)]
        (tmp_path / f"{name}.csv").write_text("id,score\n" + "\n".join(lines) + "\n")
    with pytest.raises(ContractError, match="line 5: every row must have 'score'.*intersect"):
        read_plain(tmp_path / "b.csv")
    arm = read_plain(tmp_path / "b.csv", intersect=True)
    assert (len(arm), arm.provenance["intersected"]) == (38, 40)
    code, out, err = shell(
        "compare",
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        "--intersect",
        "--out",
        tmp_path / "r",
    )
    assert code == 0, err
    assert "On the 38 that all have, of 40 (baseline) and 40 (candidate)." in out
    (tmp_path / "b.csv").write_text("id,score\n" + "".join(f"q{i},\n" for i in range(9)))
    with pytest.raises(ContractError, match="line 2: every row must have 'score'"):
        read_plain(tmp_path / "b.csv", intersect=True)


def test_an_example_that_lacks_one_of_its_marks_is_left_out_whole(tmp_path):
    "Five marks for each example, one of them missing: a mean over the other four is no mark."
    lines = [
        f"q{i},{'' if (i, k) == (3, 2) else (i + k) % 2}" for i in range(9) for k in range(5)
    ]
    (tmp_path / "a.csv").write_text("id,score\n" + "\n".join(lines) + "\n")
    arm = read_plain(tmp_path / "a.csv", intersect=True, repeats="mean")
    assert "q3" not in {*arm.ids} and len({*arm.ids}) == 8
    assert arm.provenance["intersected"] == 9


def test_counts_may_be_called_n_and_c(tmp_path):
    "As the arguments of pass_at_k(n, c, k) are."
    from invar_nb import evaluate, pass_at_k

    rows = [(f"p{i}", 10, i % 8) for i in range(20)]
    path = tmp_path / "counts.csv"
    path.write_text("id,n,c\n" + "".join(f"{name},{n},{c}\n" for name, n, c in rows))
    expected = sum(pass_at_k(n, c, 5) for _, n, c in rows) / 20
    for score in ("pass@5", None):
        arm = read_plain(path, score=score)
        assert arm.score == (score or "pass@1")
    assert evaluate(path, score="pass@5").row.value.estimate == pytest.approx(expected)
    path.write_text(
        "id,n,c,samples,correct_samples\n" + "".join(f"p{i},1,1,10,3\n" for i in range(20))
    )
    assert read_plain(path, score="pass@1").values[0] == pytest.approx(0.3)


def losses_by_document(path, renamed=None):
    "Three rows for each of 20 documents, without ids of rows; one of d1 may be renamed."
    rows = [[f"d{i // 3}", 2 + (i * 7 % 11) / 10, 50] for i in range(60)]
    if renamed:
        rows[3][0] = renamed
    lines = ["doc_id,loss,tokens", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_windows_without_ids_are_never_paired_with_those_of_another_place(tmp_path):
    "Of d1 the first row was renamed: its second row must not be taken for the first."
    old = losses_by_document(tmp_path / "old.csv")
    new = losses_by_document(tmp_path / "new.csv", renamed="d99")
    result = compare(old, new, intersect=True)
    assert result["perplexity"].value.delta == 0 and result["perplexity"].value.n == 57


def test_a_document_of_which_one_row_was_renamed_is_named_with_its_new_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    old = losses_by_document(Path("old.csv"))
    new = losses_by_document(Path("new.csv"), renamed="d99")
    for paths in ((old, new), (new, old)):
        with pytest.raises(PairingError) as caught:
            compare(*paths)
        text = str(caught.value)
        assert "'d1' 3 times" in text and "'d99' is in" in text and "(line 5)" in text, text
        assert "if 'd1' and 'd99' are the same, write it alike in both" in text


def test_a_score_that_is_not_there_lists_the_columns_that_may_be_it(tmp_path):
    path = tmp_path / "marks.csv"
    rows = "".join(f"q{i},a,1,0.5,0\n" for i in range(9))
    path.write_text(f"id,kind,correct,f1,polite\n{rows}")
    for name, words in (
        ("f2", "Did you mean 'f1'? Columns that may be the score, the nearest first: 'f1', "),
        ("zzz", "Columns that may be the score, the nearest first: 'correct', 'f1', "),
        ("F1", "Did you mean 'f1'?"),
    ):
        with pytest.raises(ContractError) as caught:
            read_plain(path, score=name)
        assert words in str(caught.value) and "ename" not in str(caught.value)
