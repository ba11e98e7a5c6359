"""Windows spread over documents: larger budgets keep smaller ones, shares of documents, and the same choice in score, compare, shards, resumed runs and files."""
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from invar_nb.arms.spread import Budget, choose_windows, rank_windows
from invar_nb.files.losses import read_losses
from invar_nb.foundations.refuse import ContractError, UsageError

TEXTS = st.lists(st.integers(1, 12), min_size=2, max_size=12)


def text_of(sizes):
    owners = [f"d{k}" for k, size in enumerate(sizes) for _ in range(size)]
    return [f"{owner}:{i}" for i, owner in enumerate(owners)], owners


@given(TEXTS, st.integers(0, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_a_share_of_the_windows_is_a_share_of_each_document(sizes, seed, data):
    ids, owners = text_of(sizes)
    n = data.draw(st.integers(1, sum(sizes)))
    rows, more = (choose_windows(Budget(n=k, seed=seed), ids, owners) for k in (n, min(2 * n, len(ids))))
    assert len(rows) == n and (np.diff(rows) > 0).all() and {*rows} <= {*more}
    counts = np.bincount([int(owners[i][1:]) for i in rows], minlength=len(sizes))
    share = [((c - 1) / m, (c + 1) / m) for c, m in zip(counts, sizes, strict=True)]   # the share of which a count is the rounding
    assert max(low for low, _ in share) < min(high for _, high in share) + 1e-9
    order = data.draw(st.permutations(range(len(sizes))))                       # documents in another order, or one more: the same ranks
    moved = [i for d in order for i in range(len(ids)) if owners[i] == f"d{d}"]
    again = rank_windows([ids[i] for i in moved] + ["z:0"], [owners[i] for i in moved] + ["z"], seed)
    assert [ids[moved[i]] for i in again if i < len(ids)] == [ids[i] for i in rank_windows(ids, owners, seed)]


@pytest.mark.parametrize("n, total", [(1, 7), (6, 40), (7, 40), (40, 80)])
def test_windows_of_one_document_are_evenly_spaced(n, total):
    ids = [f"0:{i}" for i in range(total)]
    rows, twice = (choose_windows(Budget(n=k), ids, ["0"] * total) for k in (n, 2 * n))
    gaps = np.diff([*rows, rows[0] + total])
    assert {*gaps} <= {total // n, math.ceil(total / n)} and {*rows} <= {*twice}


def test_40_windows_of_40_documents():
    "As many documents as equal chances permit, sum of min(1, m f), to a rounding; a hash of each window alone misses a quarter of them."
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for sizes, least in ((np.full(40, 8), 40), (rng.integers(4, 13, 40), 30), (rng.geometric(1 / 8, 40), 20)):
            ids, owners = text_of(sizes)
            reached = len({owners[i] for i in choose_windows(Budget(n=40, seed=seed), ids, owners)})
            assert reached >= max(least, np.minimum(1, sizes * 40 / len(ids)).sum() - 4 * math.sqrt(10))


@pytest.mark.parametrize("value", ["", "0", "first:0", "last:4", "first", "4.0", "-4", "\u0664", True, 0, 4.5])
def test_what_is_no_budget_is_refused(value):
    with pytest.raises(UsageError): Budget.of(value)
    with pytest.raises(ContractError, match="must not ask for more"): choose_windows(Budget(n=3), ["a", "b"], ["x", "y"])


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    pytest.importorskip("torch")
    here = tmp_path_factory.mktemp("spread")
    documents = ["".join(f"Sentence {k} after number {i} counts to {i * i * k}.\n" for i in range(1, 3 + k % 9)) for k in range(1, 41)]
    (here / "docs.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in documents))
    return here


def score(texts, out, *more, code=0):
    from test_shards import BASE
    from test_shell import shell
    done = shell("score", BASE, "--text", texts / "docs.jsonl", "--max-length", 64, "--out", out, "-q", *more)
    assert done[0] == code, done
    return done[2] if code or "--shard" in more else read_losses(out)


def test_score_takes_the_same_windows_as_a_file_and_shards_say(texts, tmp_path):
    from test_shards import TUNED
    from test_shell import shell
    all_of_it, few, twice, first = (
        score(texts, tmp_path / f"{n}.jsonl".replace(":", ""), *(["--windows", n] if n != "all" else [])) for n in ("all", "40", "80", "first:40"))
    assert [*first.window_ids] == [*all_of_it.window_ids][:40] and len(set(first.document_ids)) < 15 and first.provenance["windows_rule"] == "first"
    assert len(few) == 40 and {*few.window_ids} < {*twice.window_ids} and len(set(few.document_ids)) >= 25
    assert (few.provenance["windows_rule"], few.provenance["windows_seed"]) == ("spread", 0) and "windows_rule" not in all_of_it.provenance
    of = dict(zip(all_of_it.window_ids, all_of_it.log_loss.tolist(), strict=True))
    np.testing.assert_allclose(few.log_loss, [of[name] for name in few.window_ids], rtol=1e-4)
    for i in (1, 2): score(texts, tmp_path / "parts", "--windows", 40, "--shard", f"{i}/2")
    assert shell("merge", tmp_path / "parts", "--out", tmp_path / "merged.jsonl")[0] == 0
    assert (tmp_path / "merged.jsonl").read_bytes() == (tmp_path / "40.jsonl").read_bytes()
    assert "part-1-of-2" in score(texts, tmp_path / "parts", "--windows", "first:40", "--shard", "1/2", code=3)   # parts of another choice are not taken for its own
    for name in ("40", "first40"):                                  # the file brings its windows along
        code, out, err = shell("compare", tmp_path / f"{name}.jsonl", TUNED, "--text", texts / "docs.jsonl", "--out", tmp_path / f"r{name}", "-q", "--json")
        assert code in (0, 1), err
        assert json.loads(out)["dataset"]["windows"]["stats"]["paired_windows"] == 40
    seeded = score(texts, tmp_path / "seeded.jsonl", "--windows", 40, "scoring.windows_seed=3")
    assert {*seeded.window_ids} != {*few.window_ids}
    assert shell("compare", tmp_path / "seeded.jsonl", TUNED, "--text", texts / "docs.jsonl", "--out", tmp_path / "rs", "-q")[0] in (0, 1)
    code, _, err = shell("compare", tmp_path / "40.jsonl", TUNED, "--text", texts / "docs.jsonl", "--windows", "first:40", "--out", tmp_path / "no", "-q")
    assert code == 3 and "one plan of windows" in err
    code, _, err = shell("compare", tmp_path / "40.jsonl", tmp_path / "first40.jsonl", "--out", tmp_path / "no", "-q")
    assert code == 3 and not (tmp_path / "no").exists()


def test_the_study_file_takes_both_spellings(texts, tmp_path):
    for k, (value, rule) in enumerate((("12", "spread"), ('"12"', "spread"), ('"first:12"', "first"))):
        (tmp_path / f"{k}.toml").write_text(f"[scoring]\nwindows = {value}\n")
        losses = score(texts, tmp_path / f"{k}.jsonl", "--study", tmp_path / f"{k}.toml")
        assert len(losses) == 12 and losses.provenance["windows_rule"] == rule
    for value in ('"last:12"', "0", "true", "1.5"):
        (tmp_path / "bad.toml").write_text(f"[scoring]\nwindows = {value}\n")
        assert "windows" in score(texts, tmp_path / "bad.jsonl", "--study", tmp_path / "bad.toml", code=2)
    assert "first: and a number" in score(texts, tmp_path / "bad.jsonl", "--windows", "last:4", code=2)
