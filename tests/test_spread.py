"""Windows spread over documents: larger budgets keep smaller ones, shares of documents, and the same choice in score, compare, shards, resumed runs and files."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_coverage import DEMO_LOSSES, TABLE, generator, read, write
from test_families import OTHER

from invar_nb.arms.spread import Budget, choose_windows, rank_windows
from invar_nb.files.losses import read_losses
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.statistics.jackknife import jackknife_ratio

TEXTS = st.lists(st.integers(1, 12), min_size=2, max_size=12)


def text_of(sizes):
    owners = [f"d{k}" for k, size in enumerate(sizes) for _ in range(size)]
    return [f"{owner}:{i}" for i, owner in enumerate(owners)], owners


@given(TEXTS, st.integers(0, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_a_share_of_the_windows_is_a_share_of_each_document(sizes, seed, data):
    ids, owners = text_of(sizes)
    n = data.draw(st.integers(1, sum(sizes)))
    rows, more = (
        choose_windows(Budget(n=k, seed=seed), ids, owners) for k in (n, min(2 * n, len(ids)))
    )
    assert len(rows) == n and (np.diff(rows) > 0).all() and {*rows} <= {*more}
    counts = np.bincount([int(owners[i][1:]) for i in rows], minlength=len(sizes))
    share = [
        ((c - 1) / m, (c + 1) / m) for c, m in zip(counts, sizes, strict=True)
    ]  # the share of which a count is the rounding
    assert max(low for low, _ in share) < min(high for _, high in share) + 1e-9
    order = data.draw(
        st.permutations(range(len(sizes)))
    )  # documents in another order, or one more: the same ranks
    moved = [i for d in order for i in range(len(ids)) if owners[i] == f"d{d}"]
    again = rank_windows(
        [ids[i] for i in moved] + ["z:0"], [owners[i] for i in moved] + ["z"], seed
    )
    assert [ids[moved[i]] for i in again if i < len(ids)] == [
        ids[i] for i in rank_windows(ids, owners, seed)
    ]


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
        for sizes, least in (
            (np.full(40, 8), 40),
            (rng.integers(4, 13, 40), 30),
            (rng.geometric(1 / 8, 40), 20),
        ):
            ids, owners = text_of(sizes)
            reached = len(
                {owners[i] for i in choose_windows(Budget(n=40, seed=seed), ids, owners)}
            )
            assert reached >= max(
                least, np.minimum(1, sizes * 40 / len(ids)).sum() - 4 * math.sqrt(10)
            )


@pytest.mark.parametrize(
    "value", ["", "0", "first:0", "last:4", "first", "4.0", "-4", "\u0664", True, 0, 4.5]
)
def test_what_is_no_budget_is_refused(value):
    with pytest.raises(UsageError):
        Budget.of(value)
    with pytest.raises(ContractError, match="must not exceed"):
        choose_windows(Budget(n=3), ["a", "b"], ["x", "y"])


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    pytest.importorskip("torch")
    here = tmp_path_factory.mktemp("spread")
    documents = [
        "".join(
            f"Sentence {k} after number {i} counts to {i * i * k}.\n"
            for i in range(1, 3 + k % 9)
        )
        for k in range(1, 41)
    ]
    (here / "docs.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in documents)
    )
    return here


def score(texts, out, *more, code=0):
    from test_shards import BASE
    from test_shell import shell

    done = shell(
        "score",
        BASE,
        "--text",
        texts / "docs.jsonl",
        "--max-length",
        64,
        "--out",
        out,
        "-q",
        *more,
    )
    assert done[0] == code, done
    return done[2] if code or "--shard" in more else read_losses(out)


def test_score_takes_the_same_windows_as_a_file_and_shards_say(texts, tmp_path):
    from test_shards import TUNED
    from test_shell import shell

    all_of_it, few, twice, first = (
        score(
            texts,
            tmp_path / f"{n}.jsonl".replace(":", ""),
            *(["--windows", n] if n != "all" else []),
            "--no-cache",  # byte for byte what its shards are: they are never taken from it
        )
        for n in ("all", "40", "80", "first:40")
    )
    assert (
        [*first.window_ids] == [*all_of_it.window_ids][:40]
        and len(set(first.document_ids)) < 15
        and first.provenance["windows_rule"] == "first"
    )
    assert (
        len(few) == 40
        and {*few.window_ids} < {*twice.window_ids}
        and len(set(few.document_ids)) >= 25
    )
    assert (few.provenance["windows_rule"], few.provenance["windows_seed"]) == (
        "spread",
        0,
    ) and "windows_rule" not in all_of_it.provenance
    of = dict(zip(all_of_it.window_ids, all_of_it.log_loss.tolist(), strict=True))
    np.testing.assert_allclose(few.log_loss, [of[name] for name in few.window_ids], rtol=1e-4)
    for i in (1, 2):
        score(texts, tmp_path / "parts", "--windows", 40, "--shard", f"{i}/2")
    assert shell("merge", tmp_path / "parts", "--out", tmp_path / "merged.jsonl")[0] == 0
    assert (tmp_path / "merged.jsonl").read_bytes() == (tmp_path / "40.jsonl").read_bytes()
    assert "part-1-of-2" in score(
        texts, tmp_path / "parts", "--windows", "first:40", "--shard", "1/2", code=3
    )  # parts of another choice are not taken for its own
    for name in ("40", "first40"):  # the file brings its windows along
        code, out, err = shell(
            "compare",
            tmp_path / f"{name}.jsonl",
            TUNED,
            "--text",
            texts / "docs.jsonl",
            "--out",
            tmp_path / f"r{name}",
            "-q",
            "--json",
        )
        assert code in (0, 1), err
        assert json.loads(out)["dataset"]["windows"]["stats"]["paired_windows"] == 40
    seeded = score(texts, tmp_path / "seeded.jsonl", "--windows", 40, "scoring.windows_seed=3")
    assert {*seeded.window_ids} != {*few.window_ids}
    assert shell(
        "compare",
        tmp_path / "seeded.jsonl",
        TUNED,
        "--text",
        texts / "docs.jsonl",
        "--out",
        tmp_path / "rs",
        "-q",
    )[0] in (0, 1)
    code, _, err = shell(
        "compare",
        tmp_path / "40.jsonl",
        TUNED,
        "--text",
        texts / "docs.jsonl",
        "--windows",
        "first:40",
        "--out",
        tmp_path / "no",
        "-q",
    )
    assert code == 3 and "the same text and windows" in err
    code, _, err = shell(
        "compare",
        tmp_path / "40.jsonl",
        tmp_path / "first40.jsonl",
        "--out",
        tmp_path / "no",
        "-q",
    )
    assert code == 3 and not (tmp_path / "no").exists()


def test_a_larger_budget_scores_only_what_it_adds(texts, tmp_path, monkeypatch):
    "The same --out with --force: windows in it are taken; another model, text or type is scored anew."
    from test_shards import BASE, TUNED
    from test_shell import shell

    from invar_nb.models.batches import Scorer

    scored, measure = [], Scorer.score
    monkeypatch.setattr(
        Scorer,
        "score",
        lambda self, batch, *more: scored.extend(batch) or measure(self, batch, *more),
    )

    def command(out, n, *more, candidate=TUNED, text="docs.jsonl"):
        scored.clear()
        done = shell(
            "compare",
            BASE,
            candidate,
            "--text",
            texts / text,
            "--max-length",
            64,
            "--windows",
            n,
            "--out",
            out,
            "--force",
            *more,
        )
        assert done[0] in (0, 1), done
        return len(scored), done[2], read_losses(out / "baseline.parquet")

    at_once, _, whole = command(tmp_path / "once", 80, "--no-cache")
    assert at_once == 160 and command(tmp_path / "r", 40)[0] == 80
    n, said, grown = command(tmp_path / "r", 80)
    assert (
        n == 80
        and said.count("40 of 80 windows reused from the cache") == 2
        and grown.data_id == whole.data_id
    )
    np.testing.assert_allclose(grown.log_loss, whole.log_loss, rtol=1e-5)
    assert shell("verify", tmp_path / "r")[0] == 0
    assert (
        command(tmp_path / "r", 80, "--margin", "5%")[0] == 0
    )  # another question of the same losses
    n, said, _ = command(
        tmp_path / "r", 80, "--dtype", "bfloat16"
    )  # whatever moves a loss, and it is told
    assert n == 160 and "reused" not in said
    assert (
        command(tmp_path / "r", 100, "--dtype", "bfloat16", candidate=BASE)[0] == 20
    )  # by the digest of weights, not by name
    (texts / "more.jsonl").write_text(
        (texts / "docs.jsonl").read_text() + '{"text": "One more document."}\n'
    )
    assert command(tmp_path / "r", 100, "--dtype", "bfloat16", text="more.jsonl")[0] == 200
    assert shell("verify", tmp_path / "r")[0] == 0
    assert [command(tmp_path / "few", n)[0] for n in (12, 24)] == [0, 0]  # they nest
    (tmp_path / "r" / "baseline.parquet").write_bytes(b"PAR1 damaged")  # no report is needed
    assert command(tmp_path / "r", 100, "--dtype", "bfloat16", text="more.jsonl")[0] == 0


def test_the_study_file_takes_both_spellings(texts, tmp_path):
    for k, (value, rule) in enumerate(
        (("12", "spread"), ('"12"', "spread"), ('"first:12"', "first"))
    ):
        (tmp_path / f"{k}.toml").write_text(f"[scoring]\nwindows = {value}\n")
        losses = score(texts, tmp_path / f"{k}.jsonl", "--study", tmp_path / f"{k}.toml")
        assert len(losses) == 12 and losses.provenance["windows_rule"] == rule
    for value in ('"last:12"', "0", "true", "1.5"):
        (tmp_path / "bad.toml").write_text(f"[scoring]\nwindows = {value}\n")
        assert "windows" in score(
            texts, tmp_path / "bad.jsonl", "--study", tmp_path / "bad.toml", code=2
        )
    assert "first: and a number" in score(
        texts, tmp_path / "bad.jsonl", "--windows", "last:4", code=2
    )


# --- widths and coverage on real losses ---------------------------------------------------------------------------------------------------
SPREAD_TABLE, SHARES = TABLE.with_name("spread.csv"), (1, 2, 4, 8)
EDITS = (
    "int8",
    "int4",
    "tuned",
    *(
        f"{text}/{edit}"
        for text in ("tests", "licences")
        for edit in ("int8", "int4", "int3", "pruned", "tuned")
    ),
)


def draws(edit, share, trials, chosen_by):
    "N_d, W_d of the documents in samples of equal tokens: 20 whole documents, or a part of 40, 80, 160."
    text, slash, _ = edit.rpartition("/")
    data, rng = np.load(OTHER if slash else DEMO_LOSSES), generator("spread", edit, share)
    t, d = (
        data[f"{text}{slash}tokens"].astype(float),
        data[edit].astype(float) - data[f"{text}{slash}base"],
    )
    rows = np.split(
        np.arange(d.size), np.cumsum(np.bincount(data[f"{text}{slash}document"]))[:-1]
    )
    for trial in range(trials):
        drawn = [rows[k] for k in rng.integers(0, len(rows), 20 * share)]
        w, owner = np.concatenate(drawn), np.repeat(np.arange(20 * share), [*map(len, drawn)])
        if share > 1:
            w, owner = (
                x[chosen_by(owner, round(owner.size / share), trial, rng)] for x in (w, owner)
            )
        W = np.bincount(owner, t[w])
        yield np.bincount(owner, (t * d)[w])[W > 0], W[W > 0], (t @ d) / t.sum()


def by_hash(owner, n, trial, rng):
    return choose_windows(
        Budget(n=n, seed=trial), [f"{o}:{i}" for i, o in enumerate(owner)], [*map(str, owner)]
    )


def simulate_spread(edit, share, trials=2000):
    width, hits, effective, documents = np.zeros(4)
    for N, W, truth in draws(edit, share, trials, by_hash):
        fit = jackknife_ratio(N, W)
        interval = fit.interval(0.95)
        width, hits, effective, documents = (
            width + interval.width,
            hits + interval.contains(truth),
            effective + fit.units_eff,
            documents + W.size,
        )
    return dict(
        edit=edit,
        share=share,
        trials=trials,
        width=float(f"{width / trials:.4g}"),
        coverage=round(hits / trials, 4),
        effective=round(effective / trials, 1),
        documents=round(documents / trials, 1),
    )


@pytest.mark.tables
def test_write_the_spread():
    write(SPREAD_TABLE, [simulate_spread(edit, share) for edit in EDITS for share in SHARES])
    test_spread_windows_give_narrower_intervals_at_equal_tokens()


def test_spread_windows_give_narrower_intervals_at_equal_tokens():
    rows = read(SPREAD_TABLE)
    of = {(r["edit"], r["share"]): r for r in rows}
    assert [*of] == [(edit, share) for edit in EDITS for share in SHARES]
    for (edit, share), r in of.items():
        if share > 1:
            assert (
                0.46 <= r["width"] / of[edit, 1]["width"] <= 0.9
                and 0.92 <= r["coverage"] <= 0.97
            )
    for edit, share in (("int8", 2), ("int4", 4), ("tuned", 8)):
        again, stored = simulate_spread(edit, share, 150), of[edit, share]
        assert (
            abs(again["coverage"] - stored["coverage"]) < 4 * math.sqrt(0.05 * 0.95 / 150)
            and abs(again["width"] / stored["width"] - 1) < 0.1
        )


def test_the_widths_by_other_means():
    "Nothing of the package: windows of each document by a random permutation, the rounding by one draw, a linearised ratio, quantiles of t."

    def thinned(owner, n, _, rng):
        key = np.empty(owner.size)
        for o in np.unique(owner):
            m = (owner == o).sum()
            key[owner == o] = (rng.permutation(m) + rng.random()) / m
        return np.sort(np.argsort(key)[:n])

    widths = {}
    for share in (1, 4):
        made = [
            (
                math.sqrt((x := N - W * N.sum() / W.sum()) @ x * W.size / (W.size - 1))
                / W.sum()
                * 2
                * stats.t.ppf(0.975, W.size - 1)
            )
            for N, W, _ in draws("int4", share, 200, thinned)
        ]
        widths[share] = np.mean(made)
    of = {(r["edit"], r["share"]): r["width"] for r in read(SPREAD_TABLE)}
    assert abs(widths[4] / widths[1] / (of["int4", 4] / of["int4", 1]) - 1) < 0.1


def test_looks_take_the_windows_of_a_budget(texts, tmp_path):
    from test_looks import as_one_text, rounds
    from test_shell import shell

    text = texts / "docs.jsonl"
    code, out, err = shell(*rounds(text, tmp_path / "r", "--windows", "60", "--json"))
    assert code in (0, 1) and json.loads(out)["looks"]["pairs"][0]["total"] == 60, err
    one = as_one_text(text, tmp_path / "one.txt")
    code, _, err = shell(*rounds(one, tmp_path / "t", "--windows", "60"))
    assert code == 2 and "needs no draw of windows" in err and "first:N" in err
    assert shell(*rounds(one, tmp_path / "t", "--windows", "first:60"))[0] in (0, 1)
