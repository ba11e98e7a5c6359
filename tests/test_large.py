"""Losses that stay in their files: judged as in memory, refused where pair refuses, through the shell, added up in any order, in bounded memory."""

import json
import subprocess
import sys

import numpy as np
import pytest
from test_shell import shell

from invar_nb import (
    PairingError,
    WindowLosses,
    open_losses,
    pair,
    pair_arrays,
    read_losses,
    write_losses,
)
from invar_nb.arms.window_losses import StreamedLosses
from invar_nb.comparison.measured import sum_pair
from invar_nb.comparison.rules import Rules
from invar_nb.comparison.study import compare, study
from invar_nb.files.losses import loss_writer
from invar_nb.foundations.refuse import ContractError
from invar_nb.report.verify import verify
from invar_nb.statistics.serial import block_size
from invar_nb.statistics.totals import sum_totals

MOVES = {
    "t3": lambda rng, n: 0.02 + 0.05 * rng.standard_t(3, n),
    "none": lambda rng, n: np.zeros(n),
    "equal": lambda rng, n: np.full(n, 0.25),
    "rounding": lambda rng, n: 1e-16 * rng.normal(size=n),
    "skewed": lambda rng, n: 0.01 * rng.lognormal(0, 1.5, n),
}
VALUES = ("delta", "p_value", "n", "n_units", "units", "units_eff", "baseline", "candidate")


def arrays(n, documents=None, move="t3"):
    rng = np.random.default_rng(5)
    base, tokens = rng.gamma(30, 0.1, n), rng.integers(1, 513, n)
    return (
        base,
        np.maximum(base + MOVES[move](rng, n), 0),
        tokens,
        None if documents is None else np.repeat(np.arange(documents), n // documents),
    )


def written(
    folder, n=600, documents=60, move="t3", changes=({}, {}), suffix=".parquet", **more
):
    "Paths of two files; `changes`: fields of each arm that are replaced."
    base, candidate, tokens, ids = arrays(n, documents, move)
    paths = []
    for name, loss, new in zip(
        ("baseline", "candidate"), (base, candidate), changes, strict=True
    ):
        fields = dict(
            window_ids=[f"w{i}" for i in range(n)],
            tokens=tokens,
            log_loss=loss,
            document_ids=None if ids is None else [f"d{k}" for k in ids],
            model=name,
            data_id="sha256:ab",
            **more,
        )
        paths.append(folder / f"{name}{suffix}")
        write_losses(
            WindowLosses.from_arrays(
                **fields | {k: v(fields[k]) if callable(v) else v for k, v in new.items()}
            ),
            paths[-1],
        )
    return paths


def opened(paths):
    "Arms whose files come in batches of 128 windows."
    files = [open_losses(path) for path in paths]
    for file in files:
        file.batches = lambda rows=128, columns=None, own=file.batches: own(rows, columns)
    return [StreamedLosses(file=file) for file in files]


def judged(paths, **rules):
    return study(
        dict(zip((("baseline", ""), ("candidate", "")), opened(paths), strict=True)),
        Rules(**rules),
    )


def same(ours, theirs):
    "Rows of a study on sums and on windows; the effective sample size lacks one part in n."
    for a, b in ((row, theirs.select(**row.key._asdict())[0]) for row in ours.rows):
        assert a.claim == b.claim and a.role == b.role
        for name in VALUES:
            x, y = (getattr(row.value, name) for row in (a, b))
            assert (
                x == y
                if isinstance(x, str) or None in (x, y)
                else x == pytest.approx(y, rel=1e-12, abs=1e-15)
            ), (a.key, name)
        for x, y in zip(
            *((row.value.interval.low, row.value.interval.high) for row in (a, b)), strict=True
        ):
            assert x == pytest.approx(y, rel=1e-11, abs=1e-14)
        assert a.value.n_eff == pytest.approx(b.value.n_eff, rel=1e-2)


@pytest.mark.parametrize(
    "documents, units, suffix",
    [
        (60, "auto", ".parquet"),
        (60, "serial", ".jsonl"),
        (5, "auto", ".parquet"),
        (None, "auto", ".jsonl"),
        (5, "documents", ".parquet"),
    ],
)
def test_every_row_is_that_of_the_windows_in_memory(tmp_path, documents, units, suffix):
    more = dict(n_bytes=np.arange(1, 601), columns={"top1_changed": np.arange(600) % 3})
    paths = written(tmp_path, documents=documents, suffix=suffix, **more)
    ours, theirs = (
        judged(paths, units=units),
        compare(pair(*map(read_losses, paths)), units=units, by=[]),
    )
    same(ours, theirs)
    assert [row.key.metric for row in ours] == [
        row.key.metric for row in theirs
    ] and ours.missing == theirs.missing
    a, b = (one.report().document() for one in (ours, theirs))
    for part in ("facts", "missing"):
        assert a["pairs"][0][part] == b["pairs"][0][part]
    one, two = a["pairs"][0]["units"], b["pairs"][0]["units"]
    for units_of in (one, two):
        (
            units_of["words"].pop("pairing", None),
            units_of.pop("pairing"),
        )  # batches keep no sums of an arm alone
    assert (
        one.pop("words") == two.pop("words")
        and (one.pop("alike") is None) == (two.pop("alike") is None)
        and one == pytest.approx(two)
    )
    assert (
        a["parts"] == b["parts"]
        and a["headline"] == b["headline"]
        and any("read in batches" in line for line in a["warnings"])
    )


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("documents", [None, 60])
def test_parts_in_any_order_are_the_whole(documents, move):
    base, new, tokens, ids = arrays(600, documents, move)
    whole = compare(pair_arrays(base, new, tokens, document_ids=ids))
    rng, size = np.random.default_rng(1), 600
    cuts = [0, *sorted(rng.choice(np.arange(1, size), 15, replace=False).tolist()), size]
    part = lambda a, b: sum_pair(
        pair_arrays(base[a:b], new[a:b], tokens[a:b]),
        start=a,
        **({"block": block_size(size)} if ids is None else {"units": ids[a:b]}),
    )
    parts = [part(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    d = sum_totals([parts[i] for i in rng.permutation(16)]).difference()
    assert d.delta == pytest.approx(
        whole.delta, rel=1e-12, abs=1e-15
    ) and d.p_value == pytest.approx(whole.p_value, rel=1e-9)
    for end in ("low", "high"):
        assert getattr(d.interval, end) == pytest.approx(
            getattr(whole.interval, end), rel=1e-11, abs=1e-14
        )
    with pytest.raises(PairingError, match="no window may be counted twice"):
        sum_totals([*parts, parts[3]])
    with pytest.raises(ContractError, match="every window must be counted"):
        sum_totals(parts[:5] + parts[6:]).difference()


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": lambda t: np.r_[t[:-1], t[-1] + 1]},
        {"window_ids": lambda w: [*w[:-1], "other"]},
        {"document_ids": lambda d: [*d[:-1], "other"]},
        {"data_id": "sha256:cd"},
        {"provenance": {"windowing": "old"}},
        {"split": lambda s: [*s[:-1], "preview"]},
        {"n_bytes": lambda n: np.r_[n[:-1], 9999]},
        {"weight_unit": "words"},
    ],
)
def test_the_first_difference_is_named_as_pair_names_it(tmp_path, change):
    paths = written(
        tmp_path,
        changes=({}, change),
        split=["preview"] * 300 + ["final"] * 300,
        n_bytes=np.arange(1, 601),
        provenance={"windowing": "new"},
    )
    with pytest.raises(ContractError) as ours:
        judged(paths)
    with pytest.raises(ContractError) as theirs:
        pair(*map(read_losses, paths))
    must = str(theirs.value).split(";")[0].removeprefix("pair: ")
    assert must in str(ours.value) and ours.value.code == theirs.value.code
    if callable(next(iter(change.values()))):
        assert str(ours.value).startswith("pair: windows 512 to 599: ") and "w599" in str(
            ours.value
        )


def test_names_that_come_again_and_other_lengths(tmp_path):
    again = {"document_ids": lambda d: [*d[:-1], d[0]]}
    with pytest.raises(
        ContractError,
        match="row 600: windows of a document must stand together in a file of this size; got 'd0'",
    ):
        judged(written(tmp_path, changes=(again, again)))
    whole, short = (
        written(tmp_path),
        written(tmp_path / "short", n=540, documents=54)
        if (tmp_path / "short").mkdir() is None
        else None,
    )
    with pytest.raises(PairingError, match="ids must match in order; got 600 and 540 items"):
        judged([whole[0], short[1]])
    for missing in (0, 1):
        paths = written(tmp_path, suffix=".jsonl")
        paths[missing].write_text("".join(paths[missing].read_text().splitlines(True)[:-1]))
        with pytest.raises(
            ContractError,
            match=f"{paths[missing].name}:600: 600 windows must follow the header; got 599",
        ):
            judged(paths)
    for metric, said in (
        ("accuracy", "metrics must read losses"),
        ("kl_divergence", "no column 'kl_divergence'"),
    ):
        with pytest.raises(ContractError, match=said):
            judged(written(tmp_path), metrics=[metric])
    for more, said in (
        ({"units": "documents"}, "units='documents' needs an id for every row"),
        ({"units": "items"}, "units must be one of"),
        ({"primary": "accuracy"}, "primary must be one of"),
    ):
        with pytest.raises(ContractError, match=said):
            judged(written(tmp_path, documents=None), **more)


@pytest.mark.parametrize("move", ["t3", "none", "equal"])
def test_through_the_shell_and_verified(tmp_path, monkeypatch, move):
    paths, out = written(tmp_path, move=move), tmp_path / "report"
    usual = shell("compare", *paths, "--out", tmp_path / "usual", "--json")
    monkeypatch.setattr("invar_nb.files.losses.LARGE", 500)
    code, said, _ = shell("compare", *paths, "--out", out, "--json")
    d = json.loads(said)
    assert (
        code == usual[0]
        and d["headline"] == json.loads(usual[1])["headline"]
        and d["pairs"][0]["passages"] is None
    )
    assert (
        shell("verify", out)[0] == 0
        and (out / "baseline.parquet").read_bytes() == paths[0].read_bytes()
    )
    if move != "t3":
        return
    for i, needs_rows in enumerate(
        (
            ["--units", "windows"],
            ["--method", "bca"],
            ["--control", f"arms.control={paths[0]}"],
        )
    ):
        code, said, _ = shell(
            "compare", *paths, "--out", tmp_path / str(i), "--json", *needs_rows
        )
        assert (
            code in (0, 1)
            and json.loads(said)["pairs"][0]["passages"]
            and shell("verify", tmp_path / str(i))[0] == 0
        ), needs_rows
    several = shell("compare", *paths, paths[0], "--out", tmp_path / "three", "--json")
    assert (
        several[0] == 1
        and [row["role"] for row in json.loads(several[1])["rows"]].count("lead") == 2
        and shell("verify", tmp_path / "three")[0] == 0
    )
    assert json.loads(shell("evaluate", paths[1], "--out", tmp_path / "one", "--json")[1])[
        "rows"
    ]
    (out / "baseline.parquet").write_bytes(paths[1].read_bytes())
    assert shell("verify", out)[0] == 3


# --- ten million, a hundred million ---------------------------------------------------------------------------------------------------
def names(start, stop, mark, step=1):
    return [f"{mark}{i // step:09d}" for i in range(start, stop)]


PEAK = """
import sys
from invar_nb.shell.cli import main
code = main(sys.argv[1:])
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), "code", code)
"""


@pytest.mark.slow
def test_ten_million_windows_below_five_hundred_mebibytes(tmp_path):
    n = 10**7
    for k, arm in enumerate(("baseline", "candidate")):
        rng, move = np.random.default_rng(1), np.random.default_rng(2)
        with loss_writer(
            tmp_path / f"{arm}.parquet",
            names=["window_id", "tokens", "log_loss", "document_id"],
            windows=n,
            model=arm,
        ) as out:
            for a in range(0, n, 2**16):
                b = min(n, a + 2**16)
                loss = rng.gamma(30, 0.1, b - a)
                if k:
                    loss = np.maximum(loss + 0.001 + 0.05 * move.standard_t(4, b - a), 0)
                out.write(
                    {
                        "window_id": names(a, b, "w"),
                        "document_id": names(a, b, "d", 16),
                        "tokens": rng.integers(64, 513, b - a),
                        "log_loss": loss,
                    }
                )
    for command in (
        [
            "compare",
            tmp_path / "baseline.parquet",
            tmp_path / "candidate.parquet",
            "--out",
            tmp_path / "r",
        ],
        ["verify", tmp_path / "r"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *map(str, command)], capture_output=True, text=True
        )
        peak, code = done.stdout.split()[-3], done.stdout.split()[-1]
        print(command[0], int(peak) // 1024, "MiB")
        assert code == "0" and int(peak) < 500 * 2**10, done.stderr


# --- what an attack found -------------------------------------------------------------------------------------------------------------
def rewritten(folder, **new):
    "Two files as they are written, row by row, with other columns: nothing is checked by the writer."
    base, candidate, tokens, _ = arrays(600)
    for name, loss in (("baseline", base), ("candidate", candidate)):
        columns = {
            "window_id": [f"w{i}" for i in range(600)],
            "tokens": tokens,
            "log_loss": loss,
        } | new
        with loss_writer(folder / f"{name}.parquet", names=[*columns], windows=600) as out:
            out.write(columns)
    return [folder / f"{name}.parquet" for name in ("baseline", "candidate")]


@pytest.mark.parametrize("first, again", [(10, 11), (10, 100), (10, 500)])
def test_a_window_id_that_comes_again_is_refused_near_and_far(tmp_path, first, again):
    ids = [f"w{i}" for i in range(600)]
    ids[again] = ids[first]
    with pytest.raises(
        ContractError, match=f"row {again + 1}: window_id must be unique; got 'w{first}'"
    ):
        judged(rewritten(tmp_path, window_id=ids))


@pytest.mark.parametrize("names", ["aabba", "abbba", "aba"])
def test_a_document_that_returns_is_refused_wherever_a_batch_ends(tmp_path, names):
    documents = [f"d{i // 20}" for i in range(600)]
    documents[100 : 100 + 40 * len(names)] = [name for name in names for _ in range(40)]
    with pytest.raises(ContractError, match="windows of a document must stand together"):
        judged(rewritten(tmp_path, document_id=documents))


def test_totals_know_what_they_add_up(tmp_path):
    base, new, tokens, _ = arrays(600)
    whole, other = pair_arrays(base, new, tokens), pair_arrays(base, new, tokens)
    part = sum_pair(whole.take(np.arange(300)))
    for wrong in (
        lambda: part.difference("bits_per_byte"),
        lambda: part.difference(windows=600),
        lambda: sum_pair(whole, units=np.zeros(3, int)),
        lambda: sum_pair(whole, units=np.full(600, 0.5)),
        lambda: sum_pair(whole, block=0),
        lambda: part + sum_pair(other.take(np.arange(300, 600)), start=300, plan="other"),
    ):
        with pytest.raises(ContractError):
            wrong()
    assert part.difference(windows=300).n == 300
    part.write(tmp_path / "t.npz")
    arrays_of = dict(np.load(tmp_path / "t.npz"))
    for name, change in (
        ("positions", lambda a: a[:-1]),
        ("positions", lambda a: a[::-1]),
        ("windows", lambda a: a * 0),
        ("spans", lambda a: a[:0]),
        ("sums", lambda a: a.astype(str)),
        ("sums", lambda a: a[:0]),
        ("block", lambda a: a * 0),
        ("largest", lambda a: a[:3]),
    ):
        np.savez(tmp_path / "u.npz", **arrays_of | {name: change(arrays_of[name])})
        with pytest.raises(ContractError, match="the file must hold totals"):
            type(part).read(tmp_path / "u.npz")


def test_streamed_texts_are_pooled_and_reports_of_arms_in_memory_verify(tmp_path, monkeypatch):
    one, two = (
        written(tmp_path / name, documents=d, move=move)
        for name, d, move in (("a", 60, "t3"), ("b", 30, "skewed"))
        if (tmp_path / name).mkdir() is None
    )
    arms = {
        key: arm
        for part, paths in (("t1", one), ("t2", two))
        for key, arm in zip(
            (("baseline", part), ("candidate", part)), opened(paths), strict=True
        )
    }
    memory = {key: arm.file.read() for key, arm in arms.items()}
    same(
        study(arms, Rules(pooling="equal", by=[])),
        study(memory, Rules(pooling="equal", by=[])),
    )
    monkeypatch.setattr("invar_nb.files.losses.LARGE", 100)
    assert verify(study(memory).report().save(tmp_path / "r")) and verify(
        study(
            {
                key: StreamedLosses(file=open_losses(one[i]))
                for i, key in enumerate((("baseline", ""), ("candidate", "")))
            }
        )
        .report()
        .save(tmp_path / "s")
    )


@pytest.mark.parametrize("m", [1, 5])
def test_copies_of_documents_in_batches_count_as_one_and_are_said(tmp_path, m, monkeypatch):
    "Thirty documents ten times, batches that end inside documents: what thirty say; windows without documents: that nobody looked."
    base, new, tokens, _ = arrays(30 * m)
    for times in (1, 10):
        (tmp_path / str(times)).mkdir()
        for name, loss in (("baseline", base), ("candidate", new)):
            n = 30 * m * times
            write_losses(
                WindowLosses.from_arrays(
                    window_ids=[f"w{i}" for i in range(n)],
                    tokens=np.tile(tokens, times),
                    log_loss=np.tile(loss, times),
                    document_ids=[f"d{i // m}" for i in range(n)],
                    model=name,
                    data_id="sha256:ab",
                ),
                tmp_path / str(times) / f"{name}.parquet",
            )
    noise = lambda: 1 + np.random.default_rng(5).uniform(-1e-9, 1e-9, 300 * m)
    (tmp_path / "noisy").mkdir()
    for name in ("baseline", "candidate"):
        arm = open_losses(tmp_path / f"10/{name}.parquet").read()
        write_losses(
            arm.changed(log_loss=arm.log_loss * noise()), tmp_path / f"noisy/{name}.parquet"
        )
    other = judged([tmp_path / f"noisy/{name}.parquet" for name in ("baseline", "candidate")])
    assert (
        other.n_units == 30
        and "270 of 300 documents are copies of others in tokens and losses, up to the order of their windows and the rounding of another batch"
        in str(other.report())
    )
    once, often = (
        judged(
            [tmp_path / str(times) / f"{name}.parquet" for name in ("baseline", "candidate")]
        )
        for times in (1, 10)
    )
    np.testing.assert_allclose(
        [*often.interval, often.delta, often.p_value],
        [*once.interval, once.delta, once.p_value],
        rtol=1e-9,
    )
    assert (often.n_units, often.units, often.claim) == (30, "documents", once.claim)
    said = "270 of 300 documents are copies of others, bit for bit in tokens and losses. Copies count as one: 30 documents differ."
    assert (
        said in str(often.report())
        and said in often.report().document()["doubts"][0]
        and "are copies" not in str(once.report())
    )
    bare = judged(written(tmp_path, documents=None))
    assert any(
        "copies of windows were not looked for" in line
        for line in bare.report().document()["warnings"]
    )
    assert not any("not looked for" in line for line in once.report().document()["warnings"])
    rounded = lambda x: np.round(x, 1)
    few = judged(
        written(
            tmp_path,
            documents=600,
            changes=(
                {"log_loss": rounded, "tokens": lambda t: np.full(600, 64)},
                {"log_loss": rounded, "tokens": lambda t: np.full(600, 64)},
            ),
        )
    )
    assert few.n_units == 600 and "are copies" not in str(few.report())


def test_pair_arrays_shares_the_strings_of_names():
    "A name takes about 60 bytes and its place 8; equal names of documents are one string."
    import tracemalloc

    from invar_nb import WindowLosses, pair_arrays

    n, rng = 100_000, np.random.default_rng(0)
    tokens, a, b = rng.integers(60, 129, n), rng.gamma(9, 0.3, n), rng.gamma(9, 0.3, n)
    documents = np.arange(n) // 20
    pair_arrays(a[:99], b[:99], tokens[:99])  # imports
    tracemalloc.start()
    both = pair_arrays(a, b, tokens, document_ids=documents)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({*map(id, both.baseline.window_ids + both.candidate.window_ids)}) == n
    assert len({*map(id, both.baseline.document_ids)}) == n // 20
    assert peak / n < 250
    expected = WindowLosses.from_arrays(
        [str(i) for i in range(n)],
        tokens,
        b,
        document_ids=[str(d) for d in documents.tolist()],
    )
    for name in ("window_ids", "document_ids"):
        assert getattr(both.candidate, name) == getattr(expected, name)
    np.testing.assert_array_equal(both.candidate.log_loss, expected.log_loss)


@pytest.mark.parametrize(
    "a, b, refused",
    [
        ([0, 1, 1], [0, 0, 0], True),
        ([0, 0, 0], [0, 1, 0], True),
        ([1, 1, 1], [1, 1, 1], False),
        ([0, 1, 2], [0, 1, 0], False),
    ],
)
def test_zeros_and_ones_are_no_losses(a, b, refused):
    from invar_nb import ContractError, pair_arrays

    if refused:
        with pytest.raises(ContractError, match="only 0 and 1"):
            pair_arrays(a, b, [1, 1, 1])
    else:
        assert len(pair_arrays(a, b, [1, 1, 1])) == 3
