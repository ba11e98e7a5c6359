"""Files of llama-perplexity: written here from their description in plain Python, read by the package, equal by loops; logs; every refusal."""

import json
import math
import random
import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from commands import shell
from documents import summary_markdown

import invar_nb.readers.llama_cpp as page
from invar_nb.arms.pair import pair, pair_arrays
from invar_nb.comparison.study import compare, evaluate, study
from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.readers.llama_cpp import (
    is_logit_file,
    is_perplexity_log,
    read_logit_arm,
    read_logit_pair,
    read_perplexity_log,
    read_perplexity_pair,
)
from invar_nb.readers.recognise import find_source
from invar_nb.report.report import report_of
from invar_nb.report.verify import verify


def quantised(logits):
    "A row as the tool stores it: scale, least log-probability, whole numbers."
    top = max(logits)
    low = max(min(logits), top - 16)
    norm = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    scale = struct.unpack("<f", struct.pack("<f", (top - low) / 65535))[0]
    least = struct.unpack("<f", struct.pack("<f", low - norm))[0]
    return (
        scale,
        least,
        [0 if x <= low or not scale else min(round((x - low) / scale), 65535) for x in logits],
    )


def stored(rows, tokens, n_ctx, n_vocab, n_chunk=None):
    n_chunk = len(tokens) // n_ctx if n_chunk is None else n_chunk
    out = (
        b"_logits_"
        + struct.pack("<iii", n_ctx, n_vocab, n_chunk)
        + struct.pack(f"<{len(tokens)}i", *tokens)
    )
    for scale, least, q in rows:
        out += (
            struct.pack("<ff", scale, least)
            + struct.pack(f"<{n_vocab}H", *q)
            + b"\xab\xcd" * (n_vocab % 2)
        )
    return out


def example(seed=0, n_ctx=8, n_vocab=7, n_chunk=13, noise=0.4, spread=6.0, shared=1):
    "(rows of each arm, tokens): ties, a uniform row, logits below the cut-off."
    draw, texts = random.Random(seed), random.Random(shared)
    tokens = [texts.randrange(n_vocab) for _ in range(n_ctx * n_chunk)]
    old = [
        [texts.gauss(0, spread) for _ in range(n_vocab)]
        for _ in range((n_ctx - 1 - n_ctx // 2) * n_chunk)
    ]
    old[1], old[2][:2] = [0.0] * n_vocab, [9.0, 9.0]
    new = [[x + draw.gauss(0, noise) for x in row] for row in old]
    old[3][:2], new[3][:2] = [8.0, 9.0], [9.0, 9.0]
    return [list(map(quantised, rows)) for rows in (old, new)], tokens


def by_loops(arms, tokens, n_ctx, n_chunk):
    "(losses of both, KL, changed, cut-offs of both) of each chunk."
    first = n_ctx // 2
    rows, found = n_ctx - 1 - first, []
    for c in range(n_chunk):
        loss, kl, changed, cut = [0.0, 0.0], 0.0, 0, [0, 0]
        for i in range(rows):
            target = tokens[c * n_ctx + first + i + 1]
            both = [arm[c * rows + i] for arm in arms]
            logs = [[scale * x + least for x in q] for scale, least, q in both]
            for k in range(2):
                loss[k] += max(-logs[k][target], 0)
                cut[k] += both[k][2][target] == 0 and both[k][0] * 65535 > 15.99
            kl += sum(math.exp(a) * (a - b) for a, b in zip(*logs, strict=True) if a > -16)
            tops = [{v for v, x in enumerate(q) if x == max(q)} for _, _, q in both]
            changed += min(tops[0]) not in tops[1] and min(tops[1]) not in tops[0]
        found.append((*loss, kl, changed, *cut))
    return np.array(found).T


@pytest.mark.parametrize(
    "n_ctx, n_vocab, n_chunk, spread",
    [(8, 7, 13, 6), (9, 12, 11, 1), (3, 2, 40, 6), (32, 301, 12, 6), (32, 301, 12, 40)],
)
@pytest.mark.parametrize("block", [1, 2**22])
def test_files_equal_loops_over_their_rows(
    tmp_path, monkeypatch, n_ctx, n_vocab, n_chunk, spread, block
):
    monkeypatch.setattr(page, "_BLOCK", block)
    arms, tokens = example(
        n_ctx=n_ctx, n_vocab=n_vocab, n_chunk=n_chunk, spread=spread, noise=spread / 15
    )
    for name, rows in zip(("a.kld", "b.kld"), arms, strict=True):
        (tmp_path / name).write_bytes(stored(rows, tokens, n_ctx, n_vocab))
    both, want = (
        read_logit_pair(tmp_path / "a.kld", tmp_path / "b.kld"),
        by_loops(arms, tokens, n_ctx, n_chunk),
    )
    scored = n_ctx - 1 - n_ctx // 2
    for k, arm in enumerate((both.baseline, both.candidate)):
        np.testing.assert_allclose(arm.log_loss * scored, want[k], rtol=1e-12, atol=1e-12)
        assert (
            arm.provenance["source"]["tokens_at_cut_off"] == want[4 + k].sum()
            and (arm.tokens == scored).all()
            and arm.model == "ab"[k] + ".kld"
        )
        alone = read_logit_arm(tmp_path / arm.model)
        assert (
            (alone.log_loss == arm.log_loss).all()
            and alone.data_id == arm.data_id
            and not alone.columns
        )
    np.testing.assert_allclose(
        both.candidate.columns["kl_divergence"], want[2], rtol=1e-5, atol=2e-5
    )
    np.testing.assert_array_equal(both.candidate.columns["top1_changed"], want[3])
    assert (
        both.baseline.columns == {}
        and sum(
            v for k, v in both.candidate.columns.items() if k.startswith("change<")
        ).tolist()
        == [scored] * n_chunk
    )
    if scored == 1:
        np.testing.assert_allclose(
            both.candidate.columns["probability_change"],
            np.exp(-want[1]) - np.exp(-want[0]),
            atol=1e-9,
        )
    assert (
        both.ids[1] == f"0:{n_ctx + n_ctx // 2 + 1}-{2 * n_ctx}"
        and both.clusters is None
        and compare(both).units == "serial"
    )


def test_rows_at_the_cut_off_and_without_spread_are_counted_apart():
    (old, _), _ = example(spread=30)
    floored = sum(scale * 65535 > 15.99 for scale, _, _ in old)
    assert (
        old[1][0] == 0
        and 0 < floored < len(old)
        and math.isclose(old[1][1], -math.log(7), rel_tol=1e-6)
    )


@pytest.mark.parametrize("spread, said", [(1, False), (30, True)])
def test_a_report_says_what_the_cut_off_may_hide(tmp_path, spread, said):
    "Tokens at the cut-off were counted in the provenance, where nobody reads it."
    arms, tokens = example(spread=spread)
    for name, rows in zip(("a.kld", "b.kld"), arms, strict=True):
        (tmp_path / name).write_bytes(stored(rows, tokens, 8, 7))
    both = read_logit_pair(tmp_path / "a.kld", tmp_path / "b.kld")
    cut = [
        arm.provenance["source"]["tokens_at_cut_off"]
        for arm in (both.baseline, both.candidate)
    ]
    lines = [
        line for line in compare(both).report().document()["warnings"] if "cut-off" in line
    ]
    assert bool(any(cut)) == said == bool(lines)
    first_look = summary_markdown(report_of(compare(both)).document())
    in_words = f"({max(cut)} tokens of a model at most), so perplexities are lower than those"
    assert (in_words in first_look) == said
    if said:
        most = max(cut) / both.baseline.tokens.sum()
        bound = f"each nat lost there moves a change by up to {100 * math.expm1(most):.2g} %."
        assert bound in first_look
        more = 100 * (math.exp(max(cut) / both.baseline.tokens.sum()) - 1)
        assert f"{cut[0]} tokens of the baseline and {cut[1]} of the candidate" in lines[
            0
        ] and lines[0].endswith(f"One nat more for each would be {more:.2g} % of perplexity.")


@pytest.fixture
def files(tmp_path):
    arms, tokens = example()
    for name, rows in zip(("a.kld", "b.kld"), arms, strict=True):
        (tmp_path / name).write_bytes(stored(rows, tokens, 8, 7))
    return tmp_path, arms, tokens


def changed_row(data, i, scale=None, least=None, n_vocab=7, tokens=104):
    at = 20 + 4 * tokens + i * 2 * (2 * ((n_vocab + 1) // 2) + 4)
    old = struct.unpack_from("<ff", data, at)
    return (
        data[:at]
        + struct.pack(
            "<ff", old[0] if scale is None else scale, old[1] if least is None else least
        )
        + data[at + 8 :]
    )


@pytest.mark.parametrize(
    "edit, part",
    [
        (lambda d: d[:-1], "the size must be"),
        (lambda d: d + b"\0", "the size must be"),
        (lambda d: d[:1000], "the size must be"),
        (lambda d: d[:100], "the header must name"),
        (lambda d: d[:14], "the header must name"),
        (lambda d: b"", "must begin with '_logits_'"),
        (lambda d: b"GGUF" + d[4:], "must begin with '_logits_'"),
        (lambda d: d[:8] + struct.pack("<i", -8) + d[12:], "the header must name"),
        (lambda d: d[:16] + struct.pack("<i", 2**30) + d[20:], "the header must name"),
        (lambda d: d[:16] + struct.pack("<i", 12) + d[20:], "the size must be"),
        (lambda d: d[:12] + struct.pack("<i", 9) + d[16:], "the size must be"),
        (lambda d: d[:20] + struct.pack("<i", 7) + d[24:], "tokens must lie below"),
        (lambda d: changed_row(d, 5, scale=math.nan), "row 2 of chunk 1"),
        (lambda d: changed_row(d, 5, least=3.0), "between 0 and 1"),
        (lambda d: changed_row(d, 38, scale=-1.0), "row 2 of chunk 12"),
    ],
)
def test_damage_is_refused_before_and_while_reading(files, edit, part):
    folder, _, _ = files
    (folder / "x").write_bytes(edit((folder / "b.kld").read_bytes()))
    for read in (
        lambda: read_logit_arm(folder / "x"),
        lambda: read_logit_pair(folder / "a.kld", folder / "x"),
        lambda: read_logit_pair(folder / "x", folder / "a.kld"),
    ):
        with pytest.raises(ContractError) as caught:
            read()
        assert part in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change, part",
    [
        (dict(n_ctx=9), "n_ctx must match; got 8 and 9"),
        (dict(n_vocab=8), "n_vocab must match; got 7 and 8"),
        (dict(n_chunk=12), "n_chunk must match; got 13 and 12"),
        (dict(shared=5), "the tokens must match"),
    ],
)
def test_other_texts_and_contexts_are_refused_by_name(files, change, part):
    folder, _, _ = files
    arms, tokens = example(**change)
    (folder / "x").write_bytes(
        stored(arms[1], tokens, change.get("n_ctx", 8), change.get("n_vocab", 7))
    )
    with pytest.raises(PairingError) as caught:
        read_logit_pair(folder / "a.kld", folder / "x")
    assert part in str(caught.value)
    with pytest.raises(PairingError, match="(n_ctx|n_chunk|data_id) must match"):
        pair(read_logit_arm(folder / "a.kld"), read_logit_arm(folder / "x"))


def test_content_decides_what_a_file_is(files):
    folder, _, _ = files
    (folder / "log").write_text(log(np.full(20, 2.0), 1))
    assert (
        is_logit_file(folder / "a.kld")
        and not is_logit_file(folder / "log")
        and not is_logit_file(folder)
        and not is_logit_file(folder / "none")
    )
    assert (
        is_perplexity_log(folder / "log")
        and not is_perplexity_log(folder / "a.kld")
        and not is_perplexity_log(folder)
    )


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_BLOCK", 2**17)
    rng, n_ctx, n_vocab, n_chunk = np.random.default_rng(0), 64, 4000, 40
    tokens, rows = (
        rng.integers(0, n_vocab, n_ctx * n_chunk).astype("<i4"),
        np.empty((31 * n_chunk, n_vocab + 4), "<u2"),
    )
    for name in "ab":
        rows[:] = rng.integers(0, 65536, rows.shape, dtype=np.uint16)
        rows[:, :4].view("<f4")[:] = 10 / 65535, -18
        (tmp_path / name).write_bytes(
            b"_logits_"
            + struct.pack("<iii", n_ctx, n_vocab, n_chunk)
            + tokens.tobytes()
            + rows.tobytes()
        )
    tracemalloc.start()
    read_logit_pair(tmp_path / "a", tmp_path / "b")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6 < (tmp_path / "a").stat().st_size / 1.9


# --- reports --------------------------------------------------------------------------------------------------------------------------
def test_a_pair_is_reported_with_divergences_that_verify(files, tmp_path):
    folder, _, _ = files
    both = read_logit_pair(folder / "a.kld", folder / "b.kld")
    report = compare(both).report()
    d = report.document()
    rows = {row["key"]["metric"]: row["value"] for row in d["rows"]}
    assert (
        list(rows)
        == [
            "perplexity",
            "kl_divergence",
            "top1_changed",
            *[f"probability_change{end}" for end in ("", "_p1", "_p99")],
        ]
        and rows["kl_divergence"]["baseline"] is None
        and not rows["kl_divergence"]["judged"]
    )
    assert (
        d["exit"]["rule"] in ("no_regression_shown", "primary_regressed")
        and d["arms"]["candidate"]["provenance"]["source"]["format"] == "llama.cpp logits"
    )
    saved = report.save(tmp_path / "r")
    assert (
        verify(saved).report.headline == report.headline
        and "KL divergence" in (saved / "report.md").read_text()
        and "None" not in (saved / "report.md").read_text()
    )
    assert (
        "KL divergence" in (saved / "report.html").read_text()
        and compare(both).to_frame().set_index("metric").loc["kl_divergence", "value"] > 0
    )
    first = compare(both, primary="kl_divergence").report()
    assert (
        first.exit_code == 0
        and first.document()["claim"] == "inconclusive"
        and "is 0.0" in first.document()["rationale"]
    )
    assert [
        row.key.metric for row in evaluate(both.candidate) if row.value.estimate is not None
    ] == ["perplexity"]
    edited = json.loads((saved / "report.json").read_text())
    edited["rows"][1]["value"]["candidate"] *= 1.001
    (saved / "report.json").write_text(json.dumps(edited))
    with pytest.raises(ContractError):
        verify(saved)


def test_divergences_of_another_baseline_are_not_shown(files):
    folder, arms, tokens = files
    other = example(seed=3, noise=1)[0][1]
    (folder / "c.kld").write_bytes(stored(other, tokens, 8, 7))
    candidate = read_logit_pair(folder / "a.kld", folder / "b.kld").candidate
    found = compare(pair(read_logit_arm(folder / "c.kld"), candidate))
    assert [row.key.metric for row in found] == [
        "perplexity"
    ] and "must be from this baseline" in found.missing["kl_divergence"]
    with pytest.raises(ContractError, match="must be from this baseline"):
        compare(pair(read_logit_arm(folder / "c.kld"), candidate), metrics=["kl_divergence"])
    assert "kl_divergence" in compare(pair(read_logit_arm(folder / "a.kld"), candidate))
    assert compare(pair(candidate, candidate)).missing.keys() == {*candidate.columns} - {
        name for name in candidate.columns if name.startswith("change<")
    } | {"probability_change_p1", "probability_change_p99"}


# --- logs -----------------------------------------------------------------------------------------------------------------------------
def log(losses, kind, n_ctx=512, n_seq=4, final=True):
    "What the tool prints, both streams."
    running = [math.fsum(losses[:k]) / k for k in range(1, len(losses) + 1)]
    head = f"main: build = 1\n0.00.123 I perplexity: calculating perplexity over {len(losses)} chunks, n_ctx={n_ctx}, batch_size=2048, n_seq={n_seq}\nperplexity: 1.23 seconds per pass - ETA 2.00 minutes\n"
    if kind == 1:
        body = "".join(
            f"{k // n_seq * n_seq * n_ctx:8d}  {math.exp(x):.4f}  {x:4f}  {0.1:4f}\n"
            for k, x in enumerate(running)
        )
    else:
        body = "".join(f"[{k}]{math.exp(x):.4f}," for k, x in enumerate(running, 1)) + "\n"
    return (
        head
        + body
        + (
            "\nFinal estimate: PPL = %.4f +/- 0.04000\n" % math.exp(running[-1])
            if final
            else ""
        )
    )


@pytest.mark.parametrize(
    "spread, kind, good",
    [(0.003, 1, True), (0.003, 0, False), (0.05, 0, True), (0.0001, 1, False)],
)
def test_logs_pair_where_rounding_is_small(tmp_path, spread, kind, good):
    rng = np.random.default_rng(1)
    a = rng.normal(2, 0.3, 500)
    b = a + rng.normal(0.001, spread, 500)
    for name, losses in (("a", a), ("b", b)):
        (tmp_path / name).write_text(log(losses, kind))
    if good:
        both = read_perplexity_pair(tmp_path / "a", tmp_path / "b")
        assert (
            abs((both.candidate.log_loss - both.baseline.log_loss).mean() - (b - a).mean())
            < 2e-4 / 2
        )
        assert (
            both.ids[0] == "0:257-512"
            and set(both.baseline.tokens.tolist()) == {255}
            and both.baseline.provenance["source"]["rounding"] > 0
        )
    else:
        with pytest.raises(ContractError, match="must exceed the rounding of the logs"):
            read_perplexity_pair(tmp_path / "a", tmp_path / "b")
    arms = [read_perplexity_log(tmp_path / name) for name in "ab"]
    atol = 1e-3 if kind else 6 * arms[0].provenance["source"]["rounding"]
    np.testing.assert_allclose(arms[0].log_loss, a, atol=atol)
    if good:  # logs that were read one by one are judged by the same rule
        both = read_perplexity_pair(tmp_path / "a", tmp_path / "b")
        assert (pair(*arms).candidate.log_loss == both.candidate.log_loss).all()
        assert compare(*arms).delta == compare(both).delta
    else:
        with pytest.raises(PairingError, match="must exceed the rounding of the logs"):
            compare(*arms)
        with pytest.raises(PairingError, match="must exceed the rounding of the logs"):
            study({"baseline": arms[0], "q4": arms[1]})


def test_a_log_whose_chunks_differ_by_rounding_alone_is_refused(tmp_path):
    rng = np.random.default_rng(6)
    (tmp_path / "flat").write_text(log(2 + rng.normal(0, 1e-4, 500), False))
    with pytest.raises(ContractError, match="by more than the rounding.*--ppl-output-type 1"):
        read_perplexity_log(tmp_path / "flat")
    (tmp_path / "flat").write_text(log(2 + rng.normal(0, 1e-2, 500), True))
    assert len(read_perplexity_log(tmp_path / "flat")) == 500


def test_the_default_log_of_the_tool_is_read_by_itself_and_evaluated(tmp_path):
    "Python refused the default log that the shell compares, and so did evaluate."
    paths = [REAL / f"{name}.default.log" for name in ("base", "tuned")]
    result = compare(*map(read_perplexity_log, paths))
    assert result.delta == compare(read_perplexity_pair(*paths)).delta
    code, out, err = shell("evaluate", paths[0], "--out", tmp_path / "r")
    assert code == 0 and "perplexity" in out, err


def test_the_stated_rounding_is_that_of_the_windows(tmp_path):
    rng = np.random.default_rng(6)
    for kind in (0, 1):
        (tmp_path / "a").write_text(log(losses := rng.normal(2, 0.3, 4000), kind))
        arm = page._arm_of_log(tmp_path / "a", page._read_running_means(tmp_path / "a", "x"))
        seen = (arm.log_loss - losses).std()
        assert arm.provenance["source"]["rounding"] == pytest.approx(
            seen, rel=0.06
        )  # 4 sigma of 4000 correlated errors


@pytest.mark.parametrize(
    "edit, part",
    [
        (lambda t: t.split("\n", 2)[2], "Keep both streams"),
        (lambda t: t.replace("[3]", "[4]"), "must have 20 chunks"),
        (lambda t: t[: t.index("[15]")], "must have 20 chunks, each once; got 14"),
        (lambda t: t.replace("PPL = 7", "PPL = 8"), "must give the final estimate"),
        (
            lambda t: t + log(np.full(3, 2.0), 1),
            "must be of one run; got 2, of 20 and 3 chunks",
        ),
    ],
)
def test_cut_and_changed_logs_are_refused(tmp_path, edit, part):
    text = log(np.full(20, 2.0), 0)
    (tmp_path / "a").write_text(edit(text))
    assert edit(text) != text
    with pytest.raises(ContractError) as caught:
        read_perplexity_pair(tmp_path / "a", tmp_path / "a")
    assert part in str(caught.value)


def test_a_log_is_itself_whatever_its_line_ends(tmp_path):
    "Saved by an editor of Windows: a mark, CRLF. Nothing changed, which no rounding hides."
    text = log(np.random.default_rng(4).normal(3, 0.3, 24), 0)
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "b.log").write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    both = read_perplexity_pair(tmp_path / "a.log", tmp_path / "b.log")
    assert (both.candidate.log_loss == both.baseline.log_loss).all()


@pytest.mark.parametrize("encoding, name", [("le", "unicode"), ("be", "bigendianunicode")])
def test_a_log_in_utf_16_without_a_mark_is_called_so(tmp_path, encoding, name):
    text = log(np.full(20, 2.0), 0)
    (tmp_path / "a.log").write_bytes(text.encode(f"utf-16-{encoding}"))
    with pytest.raises(ContractError, match=f"is UTF-16. .*-Encoding {name} OLD"):
        find_source(tmp_path / "a.log")


def test_logs_of_two_texts_are_refused_and_ruined_models_are_not(tmp_path):
    "A log does not name its text; chunks of one text rise and fall together."
    rng = np.random.default_rng(3)
    loss = rng.normal(3, 0.3, 24)
    quants = {
        "same": loss + rng.normal(0.03, 0.02, 24),
        "ruined": loss + 0.4 + rng.normal(0, 0.1, 24),
    }
    texts = {"other": rng.normal(3.1, 0.3, 24), "turned": loss[::-1]}
    for name, losses in ({"base": loss} | quants | texts).items():
        (tmp_path / f"{name}.log").write_text(log(losses, 1))
    for name in quants:
        assert len(read_perplexity_pair(tmp_path / "base.log", tmp_path / f"{name}.log")) == 24
    for name in texts:
        with pytest.raises(
            PairingError, match="one text, whose chunks rise and fall together"
        ):
            read_perplexity_pair(tmp_path / "base.log", tmp_path / f"{name}.log")


# --- files of the tool itself, see data/make_llama_cpp.sh -----------------------------------------------------------------------------
REAL = Path(__file__).parent / "data" / "llama_cpp"


def test_files_of_the_tool_give_its_own_numbers():
    "Every line of `--kl-divergence`: perplexity, its ratio, the divergence and equal first choices of the first k chunks."
    both = read_logit_pair(REAL / "base.kld", REAL / "tuned.kld")
    lines = re.findall(
        r"^ +(\d+) +([\d.]+) ± +[\d.]+ +(-?[\d.]+) ± +[\d.]+ +([\d.]+) ± .* ([\d.]+) ±",
        (REAL / "divergence.log").read_text(),
        re.M,
    )
    loss, kl, changed = (
        np.cumsum(x)
        for x in (
            both.candidate.totals[0],
            *[both.candidate.columns[name] for name in ("kl_divergence", "top1_changed")],
        )
    )
    tokens, old = np.cumsum(both.candidate.tokens), np.cumsum(both.baseline.totals[0])
    for k, (n, ppl, ratio, divergence, same) in enumerate(lines):
        assert int(n) == k + 1 and math.exp(loss[k] / tokens[k]) == pytest.approx(
            float(ppl), rel=1e-4
        )
        assert (loss[k] - old[k]) / tokens[k] == pytest.approx(
            float(ratio), abs=1e-4
        ) and 100 * (1 - changed[k] / tokens[k]) == pytest.approx(float(same), abs=1e-3)
        assert kl[k] / tokens[k] == pytest.approx(
            float(divergence), abs=5e-4
        )  # the tool has the candidate's logits below the cut-off
    assert len(lines) == 20 and both.baseline.provenance["source"]["tokens_at_cut_off"] == 0


def test_logs_of_the_tool_give_the_losses_of_its_files():
    both = read_logit_pair(REAL / "base.kld", REAL / "tuned.kld")
    printed = read_perplexity_pair(REAL / "base.default.log", REAL / "tuned.default.log")
    for arm, name in ((both.baseline, "base"), (both.candidate, "tuned")):
        log = read_perplexity_log(REAL / f"{name}.type1.log")
        np.testing.assert_allclose(log.log_loss, arm.log_loss, atol=2e-4)
        assert log.ids == arm.ids and is_perplexity_log(REAL / f"{name}.default.log")
    np.testing.assert_allclose(printed.candidate.log_loss, both.candidate.log_loss, atol=1e-3)


@pytest.mark.parametrize("log", ["q4.log", "q4.txt"])  # which is no text for its name
def test_a_model_beside_a_log_is_refused_before_a_text_is_asked_for(tmp_path, log):
    (tmp_path / "f16.gguf").write_bytes(b"GGUF")
    (tmp_path / log).write_text(
        "perplexity: calculating perplexity over 2 chunks, n_ctx=512, n_seq=1\n"
        "[1]4.5000,[2]5.0000,\nFinal estimate: PPL = 5.0000 +/- 0.10000\n"
    )
    code, _, err = shell("compare", tmp_path / "f16.gguf", tmp_path / log)
    assert code == 2
    assert "both arms must be of the same kind; got model and perplexity log" in err
    assert "--text" not in err  # that would lead to this refusal


def test_a_pilot_of_few_chunks_is_refused_with_the_number_that_decides(tmp_path):
    "The cure named --sd, which counts independent windows: half of what a text's order takes."
    of_chunks = np.array([3.0, 3.4, 2.8, 3.2, 2.9, 3.5, 3.1, 2.7])
    change = np.array([0.02, 0.05, 0.04, 0.01, 0.03, 0.06, 0.02, 0.05])
    for name, losses in (("a", of_chunks), ("b", of_chunks + change)):
        means = np.cumsum(losses) / np.arange(1, 9)
        printed = ",".join(f"[{k}]{math.exp(mean):.4f}" for k, mean in enumerate(means, 1))
        (tmp_path / f"{name}.log").write_text(
            "perplexity: calculating perplexity over 8 chunks, n_ctx=512, n_seq=1\n"
            f"{printed},\nFinal estimate: PPL = {math.exp(means[-1]):.4f} +/- 0.10000\n"
        )
    code, _, err = shell("plan", tmp_path / "a.log", tmp_path / "b.log", "--margin", "2%")
    found = re.search(
        r"got 8\. Measure more: from what these few show, about (\d+) would", err
    )
    assert code == 3 and found and "--sd" not in err, err
    n, rng = int(found[1]), np.random.default_rng(0)
    claims = []
    for _ in range(60):
        base = rng.normal(3, 0.3, n)
        again = base + rng.normal(0, change.std(ddof=1), n)
        claims.append(compare(pair_arrays(base, again, [256] * n), margin=0.02).row.claim)
    assert 0.6 <= np.mean(np.array(claims) == "equivalent") < 1, n


def test_a_log_beside_a_file_of_log_probabilities_says_which_is_which(tmp_path):
    "The message asked whether one was damaged."
    for paths in (("base.kld", "tuned.type1.log"), ("base.type1.log", "tuned.kld")):
        code, _, err = shell("compare", *(REAL / path for path in paths))
        assert code == 2 and "damaged" not in err, err
        assert ".type1.log is what llama-perplexity printed" in err, err
        assert "give two logs, or two such files, one of each model" in err, err


def test_divergence_of_logs_says_what_makes_it(tmp_path):
    logs = [REAL / f"{name}.type1.log" for name in ("base", "tuned")]
    for name in ("kl_divergence", "top1_changed"):
        code, _, err = shell("compare", *logs, "--metric", name, "--out", tmp_path / "r")
        assert code == 3 and "A log holds no distributions: run llama-perplexity" in err, err
        assert "--kl-divergence-base FILE" in err, err
    code, _, err = shell("compare", *logs, "--metric", "kl", "--out", tmp_path / "r")
    assert code == 2 and "It is called kl_divergence here: --metric kl_divergence" in err, err
    files = [REAL / f"{name}.kld" for name in ("base", "tuned")]
    code, out, err = shell(
        "compare", *files, "--metric", "kl_divergence", "--out", tmp_path / "s"
    )
    assert code < 2, err


SIZES_IN_LOGS = {
    "f16": "print_info: file size   = 256.63 MiB (16.00 BPW) ",
    "q4": "0.00.111.222 I llm_load_print_meta: model size       = 3.56 GiB (4.54 BPW)",
    "q2": "print_info: file size   = 82.41 MiB (2.63 BPW) ",
}


def test_the_bits_per_weight_of_a_log_are_the_size_of_its_model(tmp_path):
    "The picture of size against change needed --size for each, which the log says."
    for name, line in SIZES_IN_LOGS.items():
        source = "base" if name == "f16" else "tuned"
        text = (REAL / f"{source}.type1.log").read_text()
        (tmp_path / f"{name}.log").write_text(f"{line}\n{text}")
    logs = [tmp_path / f"{name}.log" for name in SIZES_IN_LOGS]
    code, out, err = shell("compare", *logs, "--out", tmp_path / "r")
    assert code == 0 and re.search(r"bits +after", out), out + err
    assert re.search(r"q2 +2\.6", out) and re.search(r"q4 +4\.5", out), out
    assert "Smallest that is not worse: q2" in out, out
    sizes = ("--size", "q2=8", "--size", "q4=4")
    code, out, err = shell("compare", *logs, *sizes, "--out", tmp_path / "s")
    assert code == 0 and re.search(r"q2 +8", out) and "not worse: q4" in out, out + err
    # the log of another tool's sizes names two: neither is taken
    (tmp_path / "q2.log").write_text(SIZES_IN_LOGS["q4"] + "\n" + logs[2].read_text())
    assert "bits_per_weight" not in read_perplexity_log(logs[2]).provenance


def test_the_ranking_of_a_report_has_intervals_of_divergence_and_flips(tmp_path):
    "A ranking of quants had the intervals of KL and flips in a table further down only."
    from shutil import copy

    for name, source in (("f16", "base"), ("q8", "base"), ("q4", "tuned")):
        copy(REAL / f"{source}.kld", tmp_path / f"{name}.kld")
    files = [tmp_path / f"{name}.kld" for name in ("f16", "q8", "q4")]
    out = tmp_path / "r"
    assert shell("compare", *files, "--out", out)[0] == 0
    rows = json.loads((out / "report.json").read_text())["rows"]
    value_of = {
        row["value"]["metric"]: row["value"]
        for row in rows
        if row["key"]["candidate"] == "q4" and not row["key"].get("slice")
    }
    text = (out / "report.md").read_text()
    heads, line = (
        next(found for found in text.splitlines() if found.startswith(start))
        for start in ("| candidate | perplexity", "| q4 |")
    )
    assert "KL (95 % CI)" in heads and "flips, % (95 % CI)" in heads, heads
    for metric, scale in (("kl_divergence", 1), ("top1_changed", 100)):
        low, high = (scale * end for end in value_of[metric]["ci"])
        shown = re.search(rf"{scale * value_of[metric]['delta']:.2g} \((\S+) to (\S+)\)", line)
        assert shown, line
        assert float(shown[1]) == pytest.approx(low, rel=0.06)
        assert float(shown[2]) == pytest.approx(high, rel=0.06)
    assert shell("verify", out)[0] == 0


def test_files_without_sizes_say_how_to_give_them(tmp_path):
    "Logs of today's llama.cpp name no sizes, and nothing said what would order by size."
    from shutil import copy

    from invar_nb.shell.candidates import bits_of_gguf, gguf_beside

    for name, source in (("f16", "base"), ("q8", "base"), ("q4", "tuned")):
        copy(REAL / f"{source}.kld", tmp_path / f"{name}.kld")
    files = [tmp_path / f"{name}.kld" for name in ("f16", "q8", "q4")]
    code, _, err = shell("compare", *files, "--out", tmp_path / "r")
    said = " ".join(err.split())
    assert code == 0 and "give the BPW that llama-quantize prints: --size q8=BITS" in said, err
    assert "--size" not in shell("compare", *files[:2], "--out", tmp_path / "one")[2]
    # a GGUF with 6 weights in 32 bits each, of the name of the file or ending in it
    text = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    entry = struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, 2, 3, 0, 0)
    header = text + entry
    model = header + bytes(-len(header) % 32) + bytes(24)
    for name in ("q8.gguf", "small-q4.gguf"):
        (tmp_path / name).write_bytes(model)
    assert bits_of_gguf(tmp_path / "q8.gguf") == 32 and bits_of_gguf(files[0]) is None
    assert gguf_beside(files[2]).name == "small-q4.gguf" and gguf_beside(files[0]) is None
    code, _, err = shell("compare", *files, "--out", tmp_path / "s")
    said = " ".join(err.split())
    assert code == 0 and "of the GGUFs beside them: --size q8=32 --size q4=32" in said, err
    options = re.findall(r"--size \S+", said)
    words = " ".join(options).split()
    code, out, err = shell("compare", *files, *words, "--out", tmp_path / "t")
    assert code == 0 and re.search(r"^ +bits ", out, re.M) and "GGUFs" not in err, out + err
    (tmp_path / "other-q4.gguf").write_bytes(model)  # two could be meant
    assert gguf_beside(files[2]) is None
