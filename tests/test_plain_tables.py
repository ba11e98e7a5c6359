"""Tables without a header of ours: every format gives the same arm, and what a table leaves open is asked, never guessed."""
import csv
import json
import subprocess
import sys

import numpy as np
import pytest

from invar_nb.comparison.study import compare
from invar_nb.arms.pair import pair
from invar_nb.files.plain_table import read_plain
from invar_nb.foundations.refuse import ContractError, PairingError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")


def write(path, rows):
    "Rows by the writers of csv, json and pyarrow."
    if path.suffix == ".jsonl": path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json": path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet as parquet
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            out.writeheader()
            out.writerows(rows)
    return path


def losses(n=40, **more):
    rng = np.random.default_rng(4)
    return [{"doc_id": f"d{i}", "nll": float(x), "num_tokens": int(t), "group_id": f"g{i // 2}"} | {k: v(i) for k, v in more.items()}
            for i, (x, t) in enumerate(zip(rng.gamma(9, .3, n), rng.integers(5, 300, n), strict=True))]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_losses(tmp_path, suffix):
    rows = losses()
    arm = read_plain(write(tmp_path / f"x{suffix}", rows))
    total = sum(r["num_tokens"] for r in rows)
    assert arm.perplexity == pytest.approx(np.exp(sum(r["nll"] * r["num_tokens"] for r in rows) / total), rel=1e-13)
    assert arm.log_loss.tolist() == [r["nll"] for r in rows] and arm.clusters == tuple(r["group_id"] for r in rows) and arm.ids[1] == "d1"
    summed = [{**r, "nll": r["nll"] * r["num_tokens"]} for r in rows]
    again = read_plain(write(tmp_path / f"y{suffix}", summed), sums=True)
    np.testing.assert_allclose(again.log_loss, arm.log_loss, rtol=1e-14)
    per_byte = [{"doc_id": r["doc_id"], "nll": r["nll"], "bytes": r["num_tokens"]} for r in rows]
    assert read_plain(write(tmp_path / f"z{suffix}", per_byte)).weight_unit == "bytes"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("values", [[True, False, True], [1, 0, 1], [0.5, 0, 1], [1e-300, -2, 7]])
def test_every_format_gives_the_same_scores(tmp_path, suffix, values):
    rows = [{"uid": 10 + i, "mark": x, "topic": "ab"[i % 2]} for i, x in enumerate(values)]
    arm = read_plain(write(tmp_path / f"x{suffix}", rows), score="mark", better="lower", cluster="topic", slices=["topic"])
    assert arm.ids == ("10", "11", "12") and arm.values.tolist() == [float(x) for x in values] and arm.score == "mark" and arm.better == "lower"
    assert arm.clusters == ("a", "b", "a") == arm.slices["topic"] and arm.provenance["source"]["columns"] == {"score": "mark", "cluster": "topic", "id": "uid"}


ROWS = [{"id": f"q{i}", "f1": i / 4, "tokens": 3} for i in range(3)]


@pytest.mark.parametrize("rows, options, parts", [
    ([{"id": 1, "x": 2}], {}, ("one column must be the loss or the score", "columns 'id', 'x'")), ([{"f1": 1, "x": 2}], {}, ("a column must be the id", "'f1', 'x'")),
    ([{"id": 1, "f1": 1, "em": 1}], {}, ("one column must be the score", "'f1', 'em'")), ([{"id": 1, "f1": 1, "loss": 1, "tokens": 2}], {}, ("the loss or the score",)),
    ([{"doc_id": 1, "uid": 2, "f1": 1}], {}, ("one column must be the id", "'doc_id', 'uid'")), ([{"id": 1, "loss": 1}], {}, ("a column must be the tokens",)),
    (ROWS, {"score": "F1"}, ("there must be a column 'F1'", "Did you mean 'f1'?")), (ROWS, {"loss": "f1", "score": "f1"}, ("losses or a score, not both",)),
    (ROWS, {"tokens": "tokens"}, ("a score counts alike",)), (ROWS, {"rename": {"F1": "x"}}, ("there must be a column 'F1'",)), (ROWS, {"rename": {"f1": "id"}}, ("must not repeat",)),
    (ROWS, {"slices": ["topic"]}, ("there must be a column 'topic'",)), (ROWS, {"score": "tokens"}, ("whether a higher 'tokens' is better",)), (ROWS, {"better": "up"}, ("better must be one of",)),
    ([*ROWS, ROWS[0]], {}, ("every id must occur once", "'q0' again", "repeats='mean'")), (ROWS, {"repeats": "first"}, ("repeats must be one of",)),
    ([{"id": 1, "loss": 90.0, "tokens": 30}], {}, ("mean in nats per token", "sums=True")), ([{"id": 1, "loss": -2.0, "tokens": 30}], {}, ("log_loss must be at least 0",)),
    ([{"id": 1, "loss": 2.0, "tokens": 0}], {}, ("whole numbers from 1",)), ([{"id": "a", "f1": 1}, {"id": None, "f1": 1}], {}, ("every row must have 'id'",)),
    ([{"id": "a", "f1": 1}, {"id": "b", "f1": None}], {}, ("f1",)), ([{"id": "a", "f1": "12 %"}], {}, ("f1 must be a finite number",))], ids=str)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_open_is_refused_by_name(tmp_path, rows, options, parts, suffix):
    with pytest.raises(ContractError) as caught: read_plain(write(tmp_path / f"x{suffix}", rows), **options)
    assert all(part in str(caught.value) for part in parts) and "\n" not in str(caught.value), str(caught.value)


def test_repeats_are_averaged_and_must_be_as_many(tmp_path):
    rows = lambda counts, shift=0: [{"id": f"q{i}", "f1": (i + k) / 9 + shift, "cluster": i // 2} for i, c in enumerate(counts) for k in range(c)]
    read = lambda name, counts, repeats, shift=0: read_plain(write(tmp_path / name, rows(counts, shift)), repeats=repeats)
    a, b = read("a.csv", [2, 3, 1], "mean"), read("b.jsonl", [2, 3, 1], "mean", .1)
    assert a.values.tolist() == pytest.approx([1 / 18, 2 / 9, 2 / 9]) and a.repeats.tolist() == [2, 3, 1] and a.clusters == ("0", "0", "1")
    assert compare(pair(a, b)).delta == pytest.approx(.1)
    with pytest.raises(PairingError, match="repeats must match; got 3 and 2 at item 1"): pair(a, read("c.csv", [2, 2, 1], "mean"))
    assert pair(read("d.csv", [2, 3, 1], "unequal"), read("e.csv", [2, 2, 1], "unequal")).n == 3
    clash = [{"id": "q", "f1": 1, "cluster": "a"}, {"id": "q", "f1": 0, "cluster": "b"}]
    with pytest.raises(ContractError, match="line 3.*must agree on 'cluster'; got 'a' and 'b' for 'q'"): read_plain(write(tmp_path / "f.csv", clash), repeats="mean")


N = 15_000  # rows of more than one batch
MANY = [{"id": f"q{i:070d}", "f1": i % 7 / 8, "cluster": f"t{i % 57}", "note": 'two\nlines, "quoted"'} for i in range(N)]


def changed(i, **more):
    "The rows with one of them changed; None takes a field away."
    return [row if j != i else {k: v for k, v in {**row, **more}.items() if v is not None} for j, row in enumerate(MANY)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rows_of_many_batches_are_the_rows_of_one(tmp_path, suffix):
    arm = read_plain(write(tmp_path / f"x{suffix}", MANY), slices=["cluster"])
    assert (tmp_path / f"x{suffix}").stat().st_size > 2**20 or suffix == ".parquet"  # which is compressed
    assert arm.ids == tuple(row["id"] for row in MANY) and arm.clusters == arm.slices["cluster"] == tuple(row["cluster"] for row in MANY)
    assert arm.values.tolist() == [row["f1"] for row in MANY]


@pytest.mark.parametrize("more, options, parts", [
    ({"id": None}, {}, ("line {}", "every row must have 'id'")), ({"f1": "1_0"}, {}, ("line {}", "'1_0'")), ({"f1": True}, {}, ("line {}", "True")),
    ({"acc": 1}, {}, ("one column must be the score", "'acc'")), ({"tokens": 1, "cluster": None}, {"score": "f1"}, ("line {}", "every row must have 'cluster'")),
    ({"topic": 1}, {"slices": ["note", "topic"]}, ("'topic'",)),
    ({"id": MANY[3]["id"]}, {}, ("line {}", "003' again")), ({"id": MANY[3]["id"]}, {"repeats": "mean"}, ("line {}", "agree on 'cluster'"))], ids=str)
def test_late_rows_are_refused_like_early_ones(tmp_path, more, options, parts):
    for i, suffix in ((4, ".jsonl"), (N - 2, ".jsonl"), *[(N - 2, ".csv")] * ("id" in more)):
        with pytest.raises(ContractError) as caught: read_plain(write(tmp_path / f"x{suffix}", changed(i, **more) if suffix == ".jsonl" else [MANY[j] | more if j == i else MANY[j] for j in range(N)]), **options)
        assert all(part.format(i + 1 if suffix == ".jsonl" else 2 * i + 2) in str(caught.value) for part in parts), str(caught.value)


def test_a_late_key_that_would_have_been_chosen_is_refused(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "cluster"} for row in MANY]
    with pytest.raises(ContractError, match="line 1: every row must have 'cluster'"): read_plain(write(tmp_path / "x.jsonl", [*rows[:-1], MANY[-1]]))
    mixed = [{"id": "a", "correct": True, "note": "x" * 2**20}, {"id": "b", "correct": 0.5}]  # a batch each
    with pytest.raises(ContractError, match="correct must be a finite number; got True .line 1.. Write 1 or 0"): read_plain(write(tmp_path / "y.jsonl", mixed))


PEAK = """import resource, sys
from invar_nb.files.plain_table import read_plain
for path in sys.argv[1:]:
    arm = read_plain(path)
    print(len(arm), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_memory_holds_the_columns_and_one_batch(tmp_path, suffix):
    "Four times the rows, each with 4 kB of text beside its loss: the peak grows by the ids and numbers, not by the file."
    rng, sizes = np.random.default_rng(5), (4_000, 16_000)
    paths = [write(tmp_path / f"{n}{suffix}", [{"id": f"q{i}", "loss": 2.5, "tokens": 9, "output": rng.bytes(2000).hex()} for i in range(n)]) for n in sizes]
    out = subprocess.run([sys.executable, "-c", PEAK, *map(str, paths)], capture_output=True, text=True, check=True).stdout.split()
    assert tuple(map(int, out[::2])) == sizes
    grown, rows = 1024 * (int(out[3]) - int(out[1])), sizes[1] - sizes[0]
    assert grown < 300 * rows < (paths[1].stat().st_size - paths[0].stat().st_size) / 6, f"{grown / rows:.0f} bytes a row"


def test_rows_of_one_document_are_its_windows(tmp_path):
    "With the document's id alone, with the document as cluster, and with a number that starts again in each: the same windows, documents and interval. A repeated id that names no document is refused with the cure."
    rng = np.random.default_rng(3)
    for name in "ab":
        lines = [f"d{i // 5},{i % 5},{3 + rng.normal(0, .1):.4f},100" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("doc_id,window,nll,n_tokens\n" + "\n".join(lines) + "\n")
        (tmp_path / f"{name}2.csv").write_text("id,window,nll,n_tokens\n" + "\n".join(lines) + "\n")
    found = {}
    for how in ({}, {"cluster": "doc_id"}, {"cluster": "doc_id", "id": "window"}):
        arms = [read_plain(tmp_path / f"{name}.csv", **how) for name in "ab"]
        assert arms[0].documents == 12 and len(arms[0]) == 60
        found[str(how)] = compare(pair(*arms)).interval
    assert len({(ends.low, ends.high) for ends in found.values()}) == 1
    with pytest.raises(ContractError, match="line 3: every id must occur once; got 'd0' again. If 'id' names documents of several rows, say cluster='id'"): read_plain(tmp_path / "a2.csv")
    assert compare(pair(*(read_plain(tmp_path / f"{name}2.csv", cluster="id") for name in "ab"))).interval == found["{}"]
    one = tmp_path / "one.csv"
    one.write_text("doc_id,nll,n_tokens\n" + "".join(f"d{i},3,100\n" for i in range(20)))
    assert read_plain(one).documents == 20


@pytest.mark.parametrize("margin", ["5%", "0.05", "correct=0.05", "correct=5%"])
def test_the_margin_of_scores_that_are_shares_is_typed_as_that_of_any_share(tmp_path, margin):
    "In per cent too, and under the name of its own column; beyond 1 only where scores are."
    from test_shell import shell
    for k, name in enumerate(("old", "new")):
        (tmp_path / f"{name}.csv").write_text("id,correct\n" + "".join(f"q{i},{int((i * 7 + k * (i % 9 == 0)) % 3 > 0)}\n" for i in range(200)))
    code, out, err = shell("compare", tmp_path / "old.csv", tmp_path / "new.csv", "--margin", margin, "--out", tmp_path / "r")
    assert code in (0, 1) and "5 points" in out, (out, err)
    code, _, err = shell("compare", tmp_path / "old.csv", tmp_path / "new.csv", "--margin", "5", "--out", tmp_path / "s")
    assert code == 2 and "For 5 % write 5%" in err, err
