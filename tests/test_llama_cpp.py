"""Files of llama-perplexity: those of the tool give its own numbers, uniform ones of any shape; logs; every refusal. The page has the loops."""
import json
import math
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import invar_nb.files.llama_cpp as page
from invar_nb.comparison.study import compare, evaluate
from invar_nb.arms.pair import pair
from invar_nb.files.llama_cpp import (is_perplexity_log, read_logit_arm, read_logit_pair, read_perplexity_log,
                                      read_perplexity_pair)
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.report.verify import verify


REAL = Path(__file__).parent / "data" / "llama_cpp"  # files of the tool itself, see data/make_llama_cpp.sh


def uniform(n_ctx=8, n_vocab=7, n_chunk=13):
    "A file in which every token is as likely as any other."
    head = b"_logits_" + struct.pack(f"<3i{n_ctx * n_chunk}i", n_ctx, n_vocab, n_chunk, *[i % n_vocab for i in range(n_ctx * n_chunk)])
    return head + (n_ctx - 1 - n_ctx // 2) * n_chunk * (struct.pack("<ff", 0, -math.log(n_vocab)) + b"\0\0" * (n_vocab + n_vocab % 2))


@pytest.fixture
def files(tmp_path):
    for name, source in (("a.kld", "base"), ("b.kld", "tuned")): (tmp_path / name).write_bytes((REAL / f"{source}.kld").read_bytes())
    return tmp_path


@pytest.mark.parametrize("n_ctx, n_vocab, n_chunk", [(8, 7, 13), (9, 12, 11), (3, 2, 40)])
def test_uniform_files_of_any_shape(tmp_path, n_ctx, n_vocab, n_chunk):
    (tmp_path / "a").write_bytes(uniform(n_ctx, n_vocab, n_chunk))
    both, scored = read_logit_pair(tmp_path / "a", tmp_path / "a"), n_ctx - 1 - n_ctx // 2
    np.testing.assert_allclose(both.baseline.log_loss, math.log(n_vocab), rtol=1e-7)
    assert len(both) == n_chunk and (both.baseline.tokens == scored).all() and both.ids[1] == f"0:{n_ctx + n_ctx // 2 + 1}-{2 * n_ctx}" and both.clusters is None
    assert not both.candidate.columns["kl_divergence"].any() and not both.candidate.columns["top1_changed"].any() and both.baseline.columns == {}
    assert sum(v for k, v in both.candidate.columns.items() if k.startswith("dp<")).tolist() == [scored] * n_chunk


def test_blocks_of_any_size_give_the_same(files, monkeypatch):
    whole = read_logit_pair(files / "a.kld", files / "b.kld")
    monkeypatch.setattr(page, "_BLOCK", 1)
    rows, alone = read_logit_pair(files / "a.kld", files / "b.kld"), read_logit_arm(files / "a.kld")
    assert (rows.baseline.log_loss == whole.baseline.log_loss).all() and (alone.log_loss == whole.baseline.log_loss).all() and alone.data_id == whole.baseline.data_id and not alone.columns
    for name, column in whole.candidate.columns.items(): np.testing.assert_allclose(rows.candidate.columns[name], column, rtol=1e-5, atol=1e-6)


def row(i, scale=None, least=None):
    "An edit of the tool's file: another scale, or another least log-probability, in row i."
    def edit(data):
        n_ctx, n_vocab, n_chunk = struct.unpack_from("<iii", data, 8)
        at = 20 + 4 * n_ctx * n_chunk + i * (8 + 4 * ((n_vocab + 1) // 2))
        old = struct.unpack_from("<ff", data, at)
        return data[:at] + struct.pack("<ff", old[0] if scale is None else scale, old[1] if least is None else least) + data[at + 8:]
    return edit


def header(at, value): return lambda d: d[:at] + struct.pack("<i", value) + d[at + 4:]


@pytest.mark.parametrize("edit, part", [
    (lambda d: d + b"\0", "the size must be"), (lambda d: d[:1000], "the size must be"), (lambda d: d[:100], "the header must name"), (lambda d: d[:14], "the header must name"), (lambda d: b"", "must begin with '_logits_'"),
    (header(8, -8), "the header must name"), (header(16, 2**30), "the header must name"), (header(20, 10**6), "tokens must lie below"), (row(5, scale=math.nan), "row 2 of chunk 1"), (row(5, least=3.0), "between 0 and 1"), (row(38, scale=-1.0), "row 2 of chunk 12")])
def test_damage_is_refused_before_and_while_reading(files, edit, part):
    (files / "x").write_bytes(edit((files / "b.kld").read_bytes()))
    for read in (lambda: read_logit_arm(files / "x"), lambda: read_logit_pair(files / "a.kld", files / "x"), lambda: read_logit_pair(files / "x", files / "a.kld")):
        with pytest.raises(ContractError) as caught: read()
        assert part in str(caught.value) and caught.value.code in ("damaged", "contract") and "\n" not in str(caught.value)


@pytest.mark.parametrize("change, part", [(dict(n_ctx=9), "n_ctx must match; got 8 and 9"), (dict(n_vocab=8), "n_vocab must match; got 7 and 8"), (dict(n_chunk=12), "n_chunk must match; got 13 and 12")])
def test_other_texts_and_contexts_are_refused_by_name(tmp_path, change, part):
    for name, more in (("a", {}), ("x", change)): (tmp_path / name).write_bytes(uniform(**more))
    with pytest.raises(PairingError, match=part): read_logit_pair(tmp_path / "a", tmp_path / "x")
    with pytest.raises(PairingError, match="(n_ctx|n_chunk|data_id) must match"): pair(read_logit_arm(tmp_path / "a"), read_logit_arm(tmp_path / "x"))


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_BLOCK", 2**17)
    rng, n_ctx, n_vocab, n_chunk = np.random.default_rng(0), 64, 4000, 40
    tokens, rows = rng.integers(0, n_vocab, n_ctx * n_chunk).astype("<i4"), np.empty((31 * n_chunk, n_vocab + 4), "<u2")
    for name in "ab":
        rows[:] = rng.integers(0, 65536, rows.shape, dtype=np.uint16)
        rows[:, :4].view("<f4")[:] = 10 / 65535, -18
        (tmp_path / name).write_bytes(b"_logits_" + struct.pack("<iii", n_ctx, n_vocab, n_chunk) + tokens.tobytes() + rows.tobytes())
    tracemalloc.start()
    read_logit_pair(tmp_path / "a", tmp_path / "b")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6 < (tmp_path / "a").stat().st_size / 1.9


# --- reports --------------------------------------------------------------------------------------------------------------------------
def test_a_pair_is_reported_with_divergences_that_verify(files, tmp_path):
    both = read_logit_pair(files / "a.kld", files / "b.kld")
    report = compare(both).report()
    d = report.document()
    rows = {row["key"]["metric"]: row["value"] for row in d["rows"]}
    assert list(rows) == ["perplexity", "kl_divergence", "top1_changed", *[f"probability_change{end}" for end in ("", "_p1", "_p99")]] and rows["kl_divergence"]["baseline"] is None and not rows["kl_divergence"]["judged"]
    assert d["exit"]["rule"] in ("no_regression_shown", "not_worse", "primary_regressed") and d["arms"]["candidate"]["provenance"]["source"]["format"] == "llama.cpp logits"
    saved = report.save(tmp_path / "r")
    assert verify(saved).report.headline == report.headline and "KL divergence" in (saved / "report.md").read_text() and "None" not in (saved / "report.md").read_text()
    assert "KL divergence" in compare(both)._repr_html_() and compare(both).to_frame().set_index("metric").loc["kl_divergence", "value"] > 0
    first = compare(both, primary="kl_divergence").report()
    assert first.exit_code == 0 and first.document()["claim"] == "inconclusive" and "KL divergence is 0.722" in first.document()["rationale"]
    assert [row.key.metric for row in evaluate(both.candidate) if row.value.estimate is not None] == ["perplexity"]
    edited = json.loads((saved / "report.json").read_text())
    edited["rows"][1]["value"]["candidate"] *= 1.001
    (saved / "report.json").write_text(json.dumps(edited))
    with pytest.raises(ContractError): verify(saved)


def test_divergences_of_another_baseline_are_not_shown(files):
    (files / "c.kld").write_bytes(row(0, scale=0, least=-2.0)((files / "a.kld").read_bytes()))
    candidate, other = read_logit_pair(files / "a.kld", files / "b.kld").candidate, read_logit_arm(files / "c.kld")
    shown = compare(pair(other, candidate))
    assert [row.key.metric for row in shown] == ["perplexity"] and "must be from this baseline" in shown.missing["kl_divergence"]
    with pytest.raises(ContractError, match="must be from this baseline"): compare(pair(other, candidate), metrics=["kl_divergence"])
    assert "kl_divergence" in compare(pair(read_logit_arm(files / "a.kld"), candidate))
    assert compare(pair(candidate, candidate)).missing.keys() == {*candidate.columns} - {name for name in candidate.columns if name.startswith("dp<")} | {"probability_change_p1", "probability_change_p99"}


# --- logs -----------------------------------------------------------------------------------------------------------------------------
def log(losses, kind, n_ctx=512, n_seq=4, final=True):
    "What the tool prints, both streams."
    running = [math.fsum(losses[:k]) / k for k in range(1, len(losses) + 1)]
    head = f"main: build = 1\n0.00.123 I perplexity: calculating perplexity over {len(losses)} chunks, n_ctx={n_ctx}, batch_size=2048, n_seq={n_seq}\nperplexity: 1.23 seconds per pass - ETA 2.00 minutes\n"
    if kind == 1: body = "".join(f"{k // n_seq * n_seq * n_ctx:8d}  {math.exp(x):.4f}  {x:4f}  {.1:4f}\n" for k, x in enumerate(running))
    else: body = "".join(f"[{k}]{math.exp(x):.4f}," for k, x in enumerate(running, 1)) + "\n"
    return head + body + ("\nFinal estimate: PPL = %.4f +/- 0.04000\n" % math.exp(running[-1]) if final else "")


@pytest.mark.parametrize("spread, kind, good", [(.003, 1, True), (.003, 0, False), (.05, 0, True), (.0001, 1, False)])
def test_logs_pair_where_rounding_is_small(tmp_path, spread, kind, good):
    rng = np.random.default_rng(1)
    a = rng.normal(2, .3, 500)
    b = a + rng.normal(.001, spread, 500)
    for name, losses in (("a", a), ("b", b)): (tmp_path / name).write_text(log(losses, kind))
    if good:
        both = read_perplexity_pair(tmp_path / "a", tmp_path / "b")
        assert abs((both.candidate.log_loss - both.baseline.log_loss).mean() - (b - a).mean()) < 2e-4 / 2
        assert both.ids[0] == "0:257-512" and set(both.baseline.tokens.tolist()) == {255} and both.baseline.provenance["source"]["rounding"] > 0
    else:
        with pytest.raises(ContractError, match="must exceed the rounding of the logs"): read_perplexity_pair(tmp_path / "a", tmp_path / "b")
    if kind:
        np.testing.assert_allclose(read_perplexity_log(tmp_path / "a").log_loss, a, atol=1e-3)
    else:
        with pytest.raises(ContractError, match="losses need 6 decimals.*--ppl-output-type 1"): read_perplexity_log(tmp_path / "a")


def test_the_stated_rounding_is_that_of_the_windows(tmp_path):
    rng = np.random.default_rng(6)
    for kind in (0, 1):
        (tmp_path / "a").write_text(log(losses := rng.normal(2, .3, 4000), kind))
        arm = page._of_log(tmp_path / "a", "x")[0]
        seen = (arm.log_loss - losses).std()
        assert arm.provenance["source"]["rounding"] == pytest.approx(seen, rel=.06)        # 4 sigma of 4000 correlated errors


@pytest.mark.parametrize("edit, part", [
    (lambda t: t.split("\n", 2)[2], "Keep both streams"), (lambda t: t.replace("[3]", "[4]"), "must have 20 chunks"), (lambda t: t[:t.index("[15]")], "must have 20 chunks, each once; got 14"),
    (lambda t: t.replace("PPL = 7", "PPL = 8"), "must give the final estimate"), (lambda t: t + log(np.full(3, 2.0), 1), "each once")])
def test_cut_and_changed_logs_are_refused(tmp_path, edit, part):
    text = log(np.full(20, 2.0), 0)
    (tmp_path / "a").write_text(edit(text))
    assert edit(text) != text
    with pytest.raises(ContractError) as caught: read_perplexity_pair(tmp_path / "a", tmp_path / "a")
    assert part in str(caught.value)


# --- files of the tool itself -----------------------------------------------------------------------------------------------------------
def test_files_of_the_tool_give_its_own_numbers():
    "Every line of `--kl-divergence`: perplexity, its ratio, the divergence and equal first choices of the first k chunks."
    both = read_logit_pair(REAL / "base.kld", REAL / "tuned.kld")
    lines = re.findall(r"^ +(\d+) +([\d.]+) ± +[\d.]+ +(-?[\d.]+) ± +[\d.]+ +([\d.]+) ± .* ([\d.]+) ±", (REAL / "divergence.log").read_text(), re.M)
    loss, kl, changed = (np.cumsum(x) for x in (both.candidate.totals[0], *[both.candidate.columns[name] for name in ("kl_divergence", "top1_changed")]))
    tokens, old = np.cumsum(both.candidate.tokens), np.cumsum(both.baseline.totals[0])
    for k, (n, ppl, ratio, divergence, same) in enumerate(lines):
        assert int(n) == k + 1 and math.exp(loss[k] / tokens[k]) == pytest.approx(float(ppl), rel=1e-4)
        assert (loss[k] - old[k]) / tokens[k] == pytest.approx(float(ratio), abs=1e-4) and 100 * (1 - changed[k] / tokens[k]) == pytest.approx(float(same), abs=1e-3)
        assert kl[k] / tokens[k] == pytest.approx(float(divergence), abs=5e-4)       # the tool has the candidate's logits below the cut-off
    assert len(lines) == 20 and both.baseline.provenance["source"]["tokens_at_cut_off"] == 0


def test_logs_of_the_tool_give_the_losses_of_its_files():
    both = read_logit_pair(REAL / "base.kld", REAL / "tuned.kld")
    printed = read_perplexity_pair(REAL / "base.default.log", REAL / "tuned.default.log")
    for arm, name in ((both.baseline, "base"), (both.candidate, "tuned")):
        log = read_perplexity_log(REAL / f"{name}.type1.log")
        np.testing.assert_allclose(log.log_loss, arm.log_loss, atol=2e-4)
        assert log.ids == arm.ids and is_perplexity_log(REAL / f"{name}.default.log")
    np.testing.assert_allclose(printed.candidate.log_loss, both.candidate.log_loss, atol=1e-3)
