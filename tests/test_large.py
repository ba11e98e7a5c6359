"""Many windows: parts that are added up in any order, and millions in memory."""

import subprocess
import sys

import numpy as np
import pytest

from invar_nb import (
    PairingError,
    pair_arrays,
)
from invar_nb.comparison.measured import sum_pair
from invar_nb.comparison.study import compare
from invar_nb.files.losses import loss_writer
from invar_nb.foundations.refuse import ContractError
from invar_nb.statistics.serial import block_size
from invar_nb.statistics.totals import sum_totals

MOVES = {
    "t3": lambda rng, n: 0.02 + 0.05 * rng.standard_t(3, n),
    "none": lambda rng, n: np.zeros(n),
    "equal": lambda rng, n: np.full(n, 0.25),
    "rounding": lambda rng, n: 1e-16 * rng.normal(size=n),
    "skewed": lambda rng, n: 0.01 * rng.lognormal(0, 1.5, n),
}


def arrays(n, documents=None, move="t3"):
    rng = np.random.default_rng(5)
    base, tokens = rng.gamma(30, 0.1, n), rng.integers(1, 513, n)
    return (
        base,
        np.maximum(base + MOVES[move](rng, n), 0),
        tokens,
        None if documents is None else np.repeat(np.arange(documents), n // documents),
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


# --- four million ------------------------------------------------------------------------------------------------------------------------
def names(start, stop, mark, step=1):
    return [f"{mark}{i // step:09d}" for i in range(start, stop)]


PEAK = """
import sys
from invar_nb.shell.cli import main
code = main(sys.argv[1:])
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), "code", code)
"""


@pytest.mark.slow
def test_four_million_windows_below_two_gibibytes(tmp_path):
    n = 4 * 10**6
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
                    loss = np.maximum(loss + 0.001 + 0.05 * move.standard_t(4, b - a), 0.01)
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
        assert code == "0" and int(peak) < 2**21, done.stderr


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
