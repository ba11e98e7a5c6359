"What else changed, beside perplexity: tiles of both heads against the whole vocabulary in float64, the metrics, the command."

import copy
import csv
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import main
from scipy.stats import beta, chi2

import invar_nb
from invar_nb import (
    ContractError,
    PairingError,
    UsageError,
    WindowLosses,
    bootstrap_interval,
    compare,
    jackknife_interval,
    pair,
    plan_windows,
    score_windows,
)
from invar_nb.foundations.store import digest
from invar_nb.metrics.divergence import change_columns, change_counts
from invar_nb.report.verify import verify

torch = pytest.importorskip("torch")
import small_models as small  # noqa: E402

from invar_nb.models import chain_rule, head_tiles  # noqa: E402
from invar_nb.models import together as tiles
from invar_nb.models.load import load_model  # noqa: E402
from invar_nb.models.score import score_plan  # noqa: E402
from invar_nb.models.text_plan import (
    find_classes,  # noqa: E402
    plan_ids,  # noqa: E402
)

BASE = Path(invar_nb.__file__).parent / "demo_models" / "base"
CLOSE = 16 * small.EPS32 * 32  # the shipped models' logits are below 32
NAMES = [
    "kl_divergence",
    "top1_changed",
    "probability_change",
    "probability_change_p1",
    "probability_change_p99",
]


# --- both models, token by token -------------------------------------------------------------------------------------------------------
def plan_of(ids, max_length=16, stride=8):
    return plan_ids({"0": ids}, plan_windows(len(ids), max_length=max_length, stride=stride))


def moved(model, seed=9, size=0.02):
    "A copy with every weight moved a little."
    found, rng = copy.deepcopy(model), np.random.default_rng(seed)
    with torch.no_grad():
        for p in found.parameters():
            p += torch.tensor(size * rng.normal(size=p.shape), dtype=torch.float32)
    found.tie_weights()
    return found


def exact(forward, models, plan):
    "Means over each window of what each token says: losses, KL, changed first choice, change of its probability."
    ids, found = plan.token_ids["0"], []
    for w in plan.windows:
        rows = []
        for j in range(w.score_from, w.stop):
            p, q = (small.softmax(forward(model, ids[w.start : j])) for model in models)
            rows.append(
                (
                    -np.log(p[ids[j]]),
                    -np.log(q[ids[j]]),
                    (p * np.log(p / q)).sum(),
                    p.argmax() != q.argmax(),
                    q[ids[j]] - p[ids[j]],
                )
            )
        found.append(np.mean(rows, axis=0))
    return np.array(found)


def means(arms):
    return np.stack(
        [
            arms[0].log_loss,
            arms[1].log_loss,
            *[arms[1].columns[name] / arms[1].tokens for name in NAMES[:3]],
        ],
        axis=1,
    )


@pytest.mark.processor
@pytest.mark.parametrize(
    "change", [dict(COLUMNS=7), dict(ROWS=3), dict(COLUMNS=2000, ROWS=5), "whole"]
)
def test_neither_tiles_nor_blocks_change_anything(monkeypatch, change):
    models = [one := small.llama(307), moved(one)]
    plan = plan_of(small.text_ids(307, n=60))
    usual = tiles.score_together(*models, plan)
    if change == "whole":
        monkeypatch.setattr(chain_rule, "can_tile", lambda *_: False)
    else:
        [
            monkeypatch.setattr({"COLUMNS": head_tiles, "ROWS": chain_rule}[name], name, value)
            for name, value in change.items()
        ]
    again = tiles.score_together(*models, plan)
    np.testing.assert_allclose(
        means(again),
        means(usual),
        rtol=0,
        atol=small.tolerance(*models, ids=plan.token_ids["0"], windows=plan.windows),
    )
    assert (again[1].provenance["together"] == "whole logits") == (change == "whole")


def test_ties_go_to_the_smaller_id_in_both_models_wherever_the_tiles_end(monkeypatch):
    monkeypatch.setattr(head_tiles, "COLUMNS", 10)
    engines, hidden = (
        [],
        torch.eye(4).repeat(3, 1)[:10],
    )  # one component each: the products are exact
    for weight in (
        torch.eye(4).repeat(10, 1),
        torch.cat([torch.eye(4), torch.zeros(36, 4)]),
    ):  # ids 4 and up tie with 0 to 3 in one model only
        head = torch.nn.Linear(4, 40, bias=False)
        head.weight.data[:] = weight
        engines.append(SimpleNamespace(path="head", head=head, after=None))
    with torch.inference_mode():
        found = tiles._in_tiles(torch, engines, [hidden, hidden], torch.arange(10))
    assert not found[3].any() and found[2].min() > 0


HARD = {  # name: vocabulary, what multiplies the head's weights, bias of token v
    "two tokens": (2, 1, None),
    "one token beyond the tiles": (81, 1, None),
    "logits of ten thousand": (97, 3000, None),
    "all logits equal": (97, 0, None),
    "one token at 1 - 1e-12": (97, 0, lambda v: (v == 61) * (np.log(96) + np.log(1e12))),
    "far below zero": (97, 1, lambda v: -300.0 - v),
    "a first tile ruled out": (97, 1, lambda v: np.where(v < 20, -np.inf, -300.0)),
    "every third ruled out": (97, 1, lambda v: np.where(v % 3 == 2, -np.inf, v)),
    "a last tile ruled out": (97, 30, lambda v: np.where(v > 79, -np.inf, 0.0)),
}


@pytest.mark.processor
@pytest.mark.parametrize("case", HARD)
def test_hard_heads_equal_log_softmax_alone_and_together(case, monkeypatch):
    monkeypatch.setattr(head_tiles, "COLUMNS", 20)
    size, scale, bias = HARD[case]
    models = [one := small.llama(size), moved(one)]
    bias = np.zeros(size) if bias is None else bias(np.arange(size))
    for model in models:
        model.lm_head.weight.data *= scale
        model.lm_head.bias = torch.nn.Parameter(
            torch.tensor(bias * (1 if model is one or scale else 0.9), dtype=torch.float32)
        )
    allowed = np.flatnonzero(np.isfinite(bias))
    plan = plan_of(allowed[small.text_ids(len(allowed), n=50)])
    ids, found, largest = torch.tensor(plan.token_ids["0"]), [], 1.0
    for w in plan.windows:
        with torch.no_grad():
            z = [
                copy.deepcopy(m)
                .double()(input_ids=ids[None, w.start : w.stop - 1])
                .logits[0, w.score_from - 1 - w.start :]
                for m in models
            ]
        p, q = (x.log_softmax(1) for x in z)
        at = torch.arange(w.tokens), ids[w.score_from : w.stop]
        found.append(
            [
                -p[at].mean(),
                -q[at].mean(),
                torch.where(p.exp() > 0, p.exp() * (p - q), 0).sum(1).mean(),
                (p.argmax(1) != q.argmax(1)).double().mean(),
                (q.exp() - p.exp())[at].mean(),
            ]
        )
        largest = max(largest, *(float(x[x.isfinite()].abs().max()) for x in z))
    arms = tiles.score_together(*models, plan)
    np.testing.assert_allclose(
        means(arms), np.array(found), rtol=0, atol=16 * small.EPS32 * largest
    )
    assert arms[1].provenance["together"] == "tiles"
    for arm, model in zip(arms, models, strict=True):
        np.testing.assert_allclose(
            score_windows(model, plan.token_ids, plan.windows).log_loss,
            arm.log_loss,
            rtol=0,
            atol=16 * small.EPS32 * largest,
        )


class Forbidding(small.transformers.LlamaForCausalLM):
    "Rules out some tokens."

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits[..., self.out_of] = -torch.inf
        return out


def test_what_neither_allows_adds_nothing_and_what_only_the_candidate_rules_out_is_refused():
    config = small.transformers.LlamaConfig(
        **small.DENSE, bos_token_id=None, eos_token_id=None
    )
    one = small.fill(Forbidding(config), 3)
    one.out_of, ids = [90, 95], np.arange(1, 60)
    two, plan = moved(one), plan_of(ids)
    assert (
        np.isfinite(means(arms := tiles.score_together(one, two, plan))).all()
        and arms[1].columns["kl_divergence"].min() > 0
    )
    two.out_of = [90, 95, 96]
    with pytest.raises(
        ContractError,
        match="must allow what the baseline allows; got an infinite divergence in window '0:",
    ):
        tiles.score_together(one, two, plan)


@pytest.mark.parametrize("name, factor", [("llama", 25), ("granite", 75)])
def test_rows_beyond_float32_are_done_again(name, factor, monkeypatch):
    "Granite divides its logits by 3 behind the head."
    one = (
        small.llama(2100)
        if name == "llama"
        else small.fill(
            small.transformers.GraniteForCausalLM(
                small.transformers.GraniteConfig(
                    **small.DENSE | dict(vocab_size=2100),
                    logits_scaling=3.0,
                    tie_word_embeddings=False,
                )
            ),
            2,
        )
    )
    one.lm_head.weight.data[1500:] *= factor
    models, plan, seen, own = (
        [one, moved(one, size=0.002)],
        plan_of(small.text_ids(2100, n=40)),
        [],
        tiles._from_rows,
    )
    monkeypatch.setattr(
        tiles,
        "_from_rows",
        lambda torch, rows, target, places: (
            seen.append(len(places)) or own(torch, rows, target, places)
        ),
    )
    found = means(tiles.score_together(*models, plan))
    assert 0 < sum(seen) < sum(plan.tokens)
    np.testing.assert_allclose(
        found, exact(small.own_float64, models, plan), rtol=1e-4, atol=1e-3
    )


@pytest.mark.processor
def test_bfloat16_gives_the_losses_of_scoring_alone():
    models, plan = (
        [(one := small.llama(2100)).bfloat16(), moved(one.float()).bfloat16()],
        plan_of(small.text_ids(2100, n=40)),
    )
    models[0] = one.bfloat16()
    close = (
        2.0**-8
        / small.EPS32
        / 16
        * small.tolerance(*models, ids=plan.token_ids["0"], windows=plan.windows)
    )  # one step of the largest logit in bfloat16
    for arm, model in zip(tiles.score_together(*models, plan), models, strict=True):
        np.testing.assert_allclose(
            arm.log_loss,
            score_windows(model, plan.token_ids, plan.windows).log_loss,
            rtol=0,
            atol=close,
        )


class Mixing(small.transformers.LlamaForCausalLM):
    "A row in a batch sees the other rows."

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + 0.1 * out.logits.mean(0, keepdim=True)
        return out


@pytest.mark.parametrize(
    "first, batching",
    [
        (lambda: small.make("longrope"), "equal lengths"),
        (lambda: small.llama(97), "padded"),
        (lambda: small.make("mixtral"), "padded"),
        (
            lambda: small.fill(Mixing(small.transformers.LlamaConfig(**small.DENSE)), 7),
            "one window",
        ),
    ],
)
def test_the_more_careful_batches_are_taken_for_both(first, batching):
    rng = np.random.default_rng(4)
    texts = {str(d): rng.integers(1, 97, rng.integers(2, 36)) for d in range(30)}
    windows = [
        invar_nb.Window(start=0, score_from=1, stop=len(x), document_id=d)
        for d, x in texts.items()
    ]
    plan = plan_ids(texts, windows)
    for models in ((first(), small.llama(97)), (small.llama(97), first())):
        scorer = tiles.plan_together(*models, plan, batch_tokens=256)
        assert (
            sorted(i for batch in scorer.batches for i in batch) == list(range(30))
            and scorer.facts["batching"] == batching
        )
        if batching == "one window":
            assert all(
                len(part) == 1
                for batch in scorer.batches
                for part in scorer.scorers[0].passes(batch)
            )


def test_a_run_that_stopped_goes_on_and_other_models_are_refused(tmp_path, monkeypatch):
    models, plan = [one := small.llama(97), moved(one)], plan_of(small.text_ids(97))
    whole = tiles.score_together(*models, plan, batch_tokens=1)

    def stop(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiles.score_together(
            *models, plan, batch_tokens=1, journal=tmp_path / "j", progress=stop
        )
    again = tiles.score_together(*models, plan, batch_tokens=1, journal=tmp_path / "j")
    assert all(
        (a.log_loss == b.log_loss).all() and a.provenance == b.provenance
        for a, b in zip(whole, again, strict=True)
    )
    assert all(
        (whole[1].columns[name] == again[1].columns[name]).all() for name in whole[1].columns
    )
    digests = [digest(arm.log_loss.tobytes()) for arm in whole]
    assert (
        whole[0].provenance["digest"]
        == whole[1].provenance["against"]
        == digests[0]
        != digests[1]
    )
    changes = {
        "candidate.weights_digest": (one, one, {}),
        "baseline.weights_digest": (models[1], models[1], {}),
        "data_id": (*models, {"data_id": "other"}),
        "classes": (*models, {"classes": classes_of(plan, "context")}),
    }
    for field, (*others, change) in changes.items():
        with pytest.raises(ContractError, match=field):
            tiles.score_together(
                *others,
                dataclasses.replace(plan, **change),
                batch_tokens=1,
                journal=tmp_path / "j",
            )
    with pytest.raises(PairingError, match="97 and 98 logits"):
        tiles.score_together(one, small.llama(98), plan)
    monkeypatch.setattr(chain_rule, "can_tile", lambda *_: False)
    with pytest.raises(PairingError, match="97 and 98 logits"):
        tiles.score_together(one, small.llama(98), plan)
    with pytest.raises(ContractError, match="together"):
        tiles.score_together(*models, plan, batch_tokens=1, journal=tmp_path / "j")


def classes_of(plan, *by):
    return find_classes(plan.token_ids, plan.windows, by)


def test_each_arm_has_the_classes_of_its_own_losses():
    models = [one := small.llama(97), moved(one)]
    plan = plan_of(small.text_ids(97))
    plan = dataclasses.replace(plan, classes=classes_of(plan, "frequency", "context"))
    for arm, model in zip(tiles.score_together(*models, plan), models, strict=True):
        alone = score_plan(model, plan).columns
        assert alone and {*alone} == {
            name for name in arm.columns if name.endswith(("[tokens]", "[nats]"))
        }
        for name, values in alone.items():
            np.testing.assert_allclose(
                arm.columns[name], values, rtol=0, atol=max(plan.tokens) * small.TOLERANCE
            )


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("way", ["tiles", "whole"])
def test_a_model_with_nan_is_named_with_its_token(broken, way, monkeypatch):
    models, plan = [small.llama(97), small.llama(97)], plan_of(small.text_ids(97, n=40))
    models[broken].lm_head.weight.data[96, 3] = float("nan")
    if way == "whole":
        monkeypatch.setattr(chain_rule, "can_tile", lambda *_: False)
    with pytest.raises(
        ContractError,
        match=r"every loss must be finite; got nan at window '0:1-16', token 1 \(id \d+\)",
    ):
        tiles.score_together(*models, plan)


def test_dropout_is_off_in_both_and_an_edited_model_is_not_scored_under_its_name():
    models, plan = (
        [small.gpt2(resid_pdrop=0.5), small.gpt2(resid_pdrop=0.5, seed=2)],
        plan_of(small.text_ids(97, n=40)),
    )
    calm = means(tiles.score_together(*models, plan))
    for model in models:
        model.train()
    assert (means(tiles.score_together(*models, plan)) == calm).all() and all(
        model.training for model in models
    )
    loaded, edited = load_model(BASE), load_model(BASE)
    next(edited.model.parameters()).data[0] += 1
    for pair_of in ((loaded, edited), (edited, loaded)):
        with pytest.raises(
            ContractError, match="score_together: a loaded model must be as it was loaded"
        ):
            tiles.score_together(*pair_of, plan)


@pytest.mark.processor
def test_a_divergence_is_never_negative():
    "Distributions that are equal but for rounding: all logits of one model are moved by a constant. Whole rows are computed in float64."
    rng, engines = np.random.default_rng(2), []
    hidden, target = (
        torch.tensor(rng.normal(size=(200, 8)), dtype=torch.float32),
        torch.tensor(rng.integers(0, 300, 200)),
    )
    for more in (0, 1.7):
        head = torch.nn.Linear(8, 300).requires_grad_(False)
        head.weight[:] = torch.tensor(np.random.default_rng(3).normal(size=(300, 8)))
        head.bias[:] = more
        engines.append(SimpleNamespace(path="head", head=head, after=None))
    x, y = (e.head(hidden) for e in engines)

    def whole(*rows):
        return tiles._from_rows(
            torch, [lambda at, x=x: x[at] for x in rows], target, torch.arange(200)
        )

    largest = float(y.abs().max())
    for found, eps in (
        (tiles._in_tiles(torch, engines, [hidden, hidden], target), small.EPS32),
        (whole(x, x.double() + 1.7), 2.0**-52),
    ):
        assert 0 <= found[2].min() <= found[2].max() < 4 * eps * largest
    z, again = 1e4 * x.double().numpy(), whole(1e4 * x.double(), 1e4 * x.double())
    np.testing.assert_allclose(
        whole(torch.tensor(z).float(), torch.tensor(z).float())[0],
        again[0],
        rtol=0,
        atol=2 * small.EPS32 * np.abs(z).max(),
    )
    shifted = np.float32(z).astype(float) - np.float32(z).max(1, keepdims=True)
    np.testing.assert_allclose(
        whole(torch.tensor(np.float32(z)), y)[0],
        np.log(np.exp(shifted).sum(1)) - shifted[np.arange(200), target],
        rtol=1e-12,
        atol=1e-12,
    )


# --- the metrics -----------------------------------------------------------------------------------------------------------------------
def arms(kl, flips, change, tokens, documents=None):
    "A pair whose candidate has the columns; the change of each window's tokens in a list."
    ids = [f"0:{i}-{i + 1}" for i in range(len(tokens))]
    columns = {
        "kl_divergence": kl,
        "top1_changed": flips,
        **change_columns(
            np.array([c.sum() for c in change]), np.array([change_counts(c) for c in change])
        ),
    }
    a, b = (
        WindowLosses.from_arrays(
            ids, tokens, np.full(len(tokens), 2.0), document_ids=documents, columns=c
        )
        for c in (None, columns)
    )
    return pair(a, b)


def test_a_percentile_has_woodruffs_interval():
    rng = np.random.default_rng(2)
    tokens = rng.integers(60, 200, 50)
    change = [rng.normal(0, 0.03, t) * rng.gamma(2, 0.5) for t in tokens]
    made = compare(
        arms(tokens * 0.1, tokens * 0 + 1, change, tokens), metrics=NAMES, units="windows"
    )
    every = np.sort(np.concatenate(change))
    for name, share in (("probability_change_p1", 0.01), ("probability_change_p99", 0.99)):
        d = made[name].value
        np.testing.assert_allclose(d.candidate, np.quantile(every, share), rtol=0.03)
        below = np.array([(c <= np.quantile(every, share)).mean() for c in change])
        ends = jackknife_interval(below, tokens, units="windows")
        np.testing.assert_allclose(
            [d.interval.low, d.interval.high],
            np.quantile(every, [ends.low, ends.high]),
            rtol=0.06,
        )
        drawn = compare(
            arms(tokens * 0.1, tokens * 0 + 1, change, tokens),
            metrics=[name],
            method="percentile",
            replicates=400,
            seed=1,
        ).row.value
        ends = bootstrap_interval(below, tokens, method="percentile", replicates=400, seed=1)
        np.testing.assert_allclose(
            [drawn.interval.low, drawn.interval.high],
            np.quantile(every, [ends.low, ends.high]),
            rtol=0.06,
        )
        assert (
            d.delta == d.candidate
            and d.baseline is None
            and d.p_value is None
            and not d.judged
            and 0 < d.standard_error < abs(d.delta)
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_percentile_of_few_tokens_has_two_right_digits(seed, tmp_path):
    "Few tokens far apart: what the report prints is what the tokens say, rounded."
    rng = np.random.default_rng(seed)
    change = [rng.uniform(-1, 1, 101) ** 3 for _ in range(8)]
    made = compare(arms(np.ones(8), np.zeros(8), change, [101] * 8), metrics=NAMES)
    every = np.sort(np.concatenate(change))
    made.report().save(tmp_path / "r")
    page = (tmp_path / "r" / "report.md").read_text(encoding="utf-8")
    for name, share in (("probability_change_p1", 0.01), ("probability_change_p99", 0.99)):
        near = every[[int(share * every.size) - 1, int(share * every.size)]]
        row = made[name]
        printed = f"{row.value.candidate:#.2g}"  # with its zeros: -0.90
        assert printed in {f"{value:#.2g}" for value in near}
        lines = [line for line in page.splitlines() if row.value.title in line]
        assert len(lines) == 2 and all(line.endswith(f"| {printed} |") for line in lines)


def test_counts_on_another_grid_are_refused():
    "They do not add up to the tokens, and the cure makes them anew."
    both = arms(np.ones(2), np.zeros(2), [np.zeros(100)] * 2, [100] * 2)
    columns = {k: v for k, v in both.candidate.columns.items() if not k.startswith("change<")}
    columns |= {"dp<0.5": np.array([100.0, 100.0])}
    both = pair(both.baseline, both.candidate.changed(columns=columns))
    with pytest.raises(ContractError, match="add up to its tokens.*Score both models again"):
        compare(both, metrics=["probability_change_p1"])


@pytest.mark.parametrize("name", ["kl_divergence", "top1_changed"])
def test_a_margin_judges_a_divergence_on_one_side(name):
    "Small enough below it, exit 1 above it, inconclusive between, alone, as one of a family, and where it leads; without a margin it is shown as before."
    rng = np.random.default_rng(4)
    tokens = rng.integers(100, 200, 60)
    both = arms(
        tokens * rng.lognormal(-3, 0.5, 60),
        rng.binomial(tokens, 0.06),
        [rng.normal(0, 0.03, t) for t in tokens],
        tokens,
    )
    d = compare(both, units="windows", metrics=("perplexity", name))[name].value
    assert not d.judged and compare(both, units="windows").report().exit.code == 0
    edges = {
        1.2 * d.interval.high: ("equivalent", 0),
        0.8 * d.interval.low: ("regressed", 1),
        d.delta: ("inconclusive", 0),
    }
    for margin, (claim, code) in edges.items():
        for metrics in (("perplexity", name), (name,), ()):
            made = compare(both, units="windows", metrics=metrics, margin={name: margin})
            assert made[name].claim == claim and made.report().exit.code == code, (
                margin,
                metrics,
            )
            assert metrics != (name,) or made.headline.startswith(
                {"equivalent": "Small enough: ", "regressed": "Regressed: "}.get(
                    claim, "Inconclusive: "
                )
            )
        made.report().save(path := Path(tempfile.mkdtemp()) / "r")
        assert verify(path)
    for one in ("probability_change", "probability_change_p1"):
        with pytest.raises(UsageError, match="shown, not judged"):
            compare(both, margin={one: 0.01})


def test_the_grid_knows_signs_ends_and_nothing_at_all():
    counts = change_counts(np.array([-1.0, -0.5, -1e-7, 0.0, 1e-7, 0.5, 1.0]))
    assert counts.sum() == 7 and counts[0] == 1 and counts[len(counts) // 2] == 3
    assert counts[-1] == 1
    still = compare(
        arms(np.ones(20), np.zeros(20), [np.zeros(30)] * 20, [30] * 20), metrics=NAMES
    )
    assert [still[name].value.delta for name in NAMES[2:]] == [0, 0, 0] and still[
        "probability_change_p1"
    ].value.interval.width == 0
    wrong = arms(np.ones(20), np.zeros(20), [np.zeros(30)] * 20, [30] * 20)
    wrong = pair(
        wrong.baseline,
        wrong.candidate.changed(
            tokens=wrong.candidate.tokens,
            columns={**wrong.candidate.columns, "change<0.505": np.ones(20)},
        ),
    )
    made = compare(wrong)
    assert (
        "must add up to its tokens; got 31 of 30 in window 0"
        in made.measured["candidate", ""].missing["probability_change_p1"]
    )
    assert "probability_change" in {
        row.key.metric for row in made
    } and "probability_change_p1" not in {row.key.metric for row in made}


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(
    "documents, units", [(None, 25), (np.repeat(range(12), 3)[:25].tolist(), None)]
)
def test_no_flip_has_clopper_and_pearsons_bound(documents, units, level):
    d = compare(
        arms(np.ones(25), np.zeros(25), [np.zeros(9)] * 25, [9] * 25, documents),
        metrics=["top1_changed"],
        units="documents" if documents else "auto",
        level=level,
    ).row.value
    n = units or 25**2 / sum(documents.count(k) ** 2 for k in set(documents))
    np.testing.assert_allclose(
        [d.interval.low, d.interval.high], [0, beta.ppf(1 - (1 - level) / 2, 1, n)], rtol=1e-12
    )
    assert d.method == "clopper_pearson" and d.fallback is None and d.p_value is None


@pytest.mark.parametrize(
    "name, kl, flips, said",
    [
        (
            "kl_divergence",
            -9.0,
            0,
            "kl_divergence must be at least 0; got -9 in window 3 of 9 tokens",
        ),
        ("top1_changed", 0.1, 10, "at least 0, and at most the tokens; got 10 in window 3"),
    ],
)
def test_what_no_divergence_can_be_is_refused(name, kl, flips, said):
    columns = [np.where(np.arange(25) == 3, one, 0.0) for one in (kl, flips)]
    with pytest.raises(ContractError, match=said):
        compare(
            arms(*columns, [np.zeros(9)] * 25, [9] * 25, None), metrics=["perplexity", name]
        )


# --- the command -----------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    (tmp_path / "t.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "text": f"Numbered text {i}: "
                    + "the heap is a tree in a list, and the smallest item comes first. "
                    * (1 + i % 3)
                }
            )
            + "\n"
            for i in range(12)
        )
    )
    shutil.copytree(BASE, tmp_path / "cand")
    from safetensors.numpy import load_file, save_file

    weights = load_file(tmp_path / "cand" / "model.safetensors")
    rng = np.random.default_rng(1)
    save_file(
        {
            k: (w * (1 + 0.05 * rng.normal(size=w.shape))).astype(w.dtype)
            for k, w in weights.items()
        },
        tmp_path / "cand" / "model.safetensors",
        metadata={"format": "pt"},
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments, out="r", text=True):
        code = main(
            [
                "compare",
                *map(str, arguments),
                *(["--text", "t.jsonl"] if text else []),
                "--out",
                out,
                "--json",
            ]
        )
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run


def test_the_command_shows_what_else_changed_and_nothing_else_moves(shell, tmp_path):
    alone = shell(BASE, "cand", out="alone")
    code, found, said = shell(BASE, "cand", "--divergence")
    rows = {row["key"]["metric"]: row for row in found["rows"]}
    assert (
        list(rows) == ["perplexity", *NAMES]
        and len(rows) == len(found["rows"])
        and code == alone[0]
        and found["claim"] == alone[1]["claim"] is not None
    )
    assert [row["role"] for row in rows.values()] == [
        "lead",
        *["rest"] * len(NAMES),
    ] and found["exit"] == alone[1]["exit"]
    assert (
        "--divergence also shows" in alone[2]
        and "--divergence" not in said
        and not list(tmp_path.glob(".*journal"))
    )
    np.testing.assert_allclose(
        rows["perplexity"]["value"]["ci"],
        alone[1]["rows"][0]["value"]["ci"],
        rtol=0,
        atol=CLOSE,
    )
    assert (
        rows["kl_divergence"]["value"]["candidate"] > 0
        and 0 < rows["top1_changed"]["value"]["candidate"] < 1
        and "points" in rows["probability_change"]["words"]["change"]
    )
    assert (
        verify(tmp_path / "r").report.headline == found["headline"]
        and "KL divergence" in (tmp_path / "r" / "report.html").read_text()
    )
    chosen = shell(BASE, "cand", "--divergence", "--metric", "perplexity", out="chosen")[1]
    assert [row["key"]["metric"] for row in chosen["rows"]] == [
        "perplexity",
        *NAMES,
    ] and verify(tmp_path / "chosen")


def test_what_is_not_judged_is_called_so_everywhere(shell, tmp_path):
    code, found, _ = shell(BASE, "cand", "--divergence", "--by", "position")
    rows = list(csv.DictReader((tmp_path / "r" / "slices.csv").open()))
    assert {row["claim"] for row in rows if row["metric"] in NAMES} == {"not judged"} and {
        row["claim"] for row in rows if row["metric"] == "perplexity"
    } <= {"regressed", "inconclusive", "equivalent"}
    assert {
        row["words"]["claim"] for row in found["rows"] if row["key"]["metric"] in NAMES
    } == {"not judged"} and verify(tmp_path / "r")


def test_a_stopped_command_goes_on(shell, tmp_path, monkeypatch):
    whole, own, calls = (
        shell(BASE, "cand", "--divergence", out="whole")[1],
        tiles.PairScorer.score,
        [],
    )

    def stop(self, batch, *more):
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return own(self, batch, *more)

    monkeypatch.setattr(tiles.PairScorer, "score", stop)
    assert (
        main(
            [
                "compare",
                str(BASE),
                "cand",
                "--text",
                "t.jsonl",
                "--divergence",
                "--batch-tokens",
                "100",
                "--out",
                "r",
                "-q",
            ]
        )
        == 130
    )
    again = shell(BASE, "cand", "--divergence", "--batch-tokens", "100")[1]
    assert (
        len({tuple(batch) for batch in calls}) == len(calls) - 1
    )  # only the batch that was stopped is asked for twice
    np.testing.assert_allclose(
        [row["value"]["delta"] for row in again["rows"]],
        [row["value"]["delta"] for row in whole["rows"]],
        rtol=1e-4,
        atol=CLOSE,
    )


def test_models_that_do_not_fit_are_refused_before_loading(shell, monkeypatch):
    from invar_nb.shell import open_models
    from invar_nb.shell import side_by_side as together

    monkeypatch.setattr(
        together.psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20)
    )
    monkeypatch.setattr(open_models, "load_model", None)
    code, found, _ = shell(BASE, "cand", "--divergence")
    assert (
        code == 2
        and "both models must fit into memory for --divergence; got at least" in found["error"]
        and "Give --dtype bfloat16, or leave --divergence out" in found["error"]
    )
    numbers = sum(
        w.size
        for w in __import__("safetensors.numpy")
        .numpy.load_file(BASE / "model.safetensors")
        .values()
    )
    o = lambda **more: SimpleNamespace(
        dtype="auto",
        revision=None,
        trust_remote_code=False,
        allow_pickle=False,
        device="cpu",
        **more,
    )
    assert (
        together.memory_needed(str(BASE), o()) == 4 * numbers
        and together.memory_needed(str(BASE), o(), on_cpu=False)
        == (BASE / "model.safetensors").stat().st_size
    )


@pytest.mark.parametrize(
    "arguments, text, part",
    [
        (
            ("cand", "l.jsonl", "--divergence"),
            True,
            "--divergence needs two models on this machine; got model and losses",
        ),
        (("l.jsonl", "l.jsonl", "--divergence"), False, "got losses and losses"),
        (("cand", "openai:http://localhost:1", "--divergence"), True, "got model and served"),
        (("cand", "cand", "--divergence", "--per-byte"), True, "token by token"),
        (
            ("cand", "cand", "--divergence", "--questions", "q.jsonl"),
            False,
            "--divergence needs a text",
        ),
        (
            ("cand", "cand", "--metric", "top1_changed"),
            True,
            "--metric top1_changed needs both models side by side",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    shell, tmp_path, monkeypatch, arguments, text, part
):
    from invar_nb.shell import open_models

    monkeypatch.setattr(open_models, "load_model", None)
    invar_nb.write_losses(WindowLosses.from_arrays(["a"], [3], [1.0]), tmp_path / "l.jsonl")
    (tmp_path / "q.jsonl").write_text(
        '{"id": "a", "prompt": "x", "candidates": ["a", "b"], "label": "a"}\n'
    )
    code, found, _ = shell(*arguments, text=text)
    assert code == 2 and part in found["error"]


# --- coverage --------------------------------------------------------------------------------------------------------------------------
def drawn(rng, n, dof, correlation):
    "Chi-square effects of windows in text order, mean 1."
    if not correlation:
        return rng.chisquare(dof, n) / dof
    z = np.empty(n)
    z[0] = rng.normal()
    for i in range(1, n):
        z[i] = correlation * z[i - 1] + np.sqrt(1 - correlation**2) * rng.normal()
    from scipy.special import ndtr

    return chi2.ppf(ndtr(z), dof) / dof


def tokens_of(rng, u, t):
    "(KL, flip, change of probability) of t tokens whose window has effect u."
    return (
        0.02 * u * rng.chisquare(1, t),
        rng.random(t) < min(1, 0.05 * u),
        np.clip(rng.normal(0, 0.05, t) * np.sqrt(u) * rng.uniform(0, 1, t) ** 2, -1, 1)
        - 0.002 * u,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dof", [1, 2, 4])
def test_intervals_cover_at_an_effective_size_of_40(dof, trials=2000):
    rng, effects = (
        np.random.default_rng(99),
        np.random.default_rng(98).chisquare(dof, 400_000) / dof,
    )
    change = np.clip(
        rng.normal(0, 0.05, 5 * effects.size)
        * np.sqrt(np.repeat(effects, 5))
        * rng.uniform(0, 1, 5 * effects.size) ** 2,
        -1,
        1,
    ) - 0.002 * np.repeat(effects, 5)
    truth = dict(
        zip(
            NAMES,
            (
                0.02,
                np.minimum(1, 0.05 * effects).mean(),
                -0.002,
                *np.quantile(change, [0.01, 0.99]),
            ),
            strict=True,
        )
    )
    for design, sizes, per_document, correlation in (
        ("40 windows", lambda r: [128] * 40, 1, 0),
        ("40 documents of 3 windows", lambda r: [64] * 120, 3, 0),
        ("49 unequal documents", lambda r: r.integers(20, 237, 49).tolist(), 1, 0),
        ("serial, 40 windows", lambda r: [128] * 40, 0, 0),
        ("serial, 74 windows, correlation .3", lambda r: [128] * 74, 0, 0.3),
    ):
        rng, inside = np.random.default_rng(5), dict.fromkeys(NAMES, 0)
        for _ in range(trials):
            tokens = sizes(rng)
            u = np.repeat(
                drawn(rng, len(tokens) // max(1, per_document), dof, correlation),
                max(1, per_document),
            )
            kl, flips, change = zip(
                *[tokens_of(rng, *each) for each in zip(u, tokens, strict=True)], strict=True
            )
            documents = (
                (np.arange(len(tokens)) // per_document).tolist() if per_document else None
            )
            made = compare(
                arms(
                    [x.sum() for x in kl],
                    [float(x.sum()) for x in flips],
                    change,
                    tokens,
                    documents,
                ),
                metrics=NAMES,
                units="documents" if documents else "serial",
            )
            for name in NAMES:
                inside[name] += made[name].value.interval.contains(truth[name])
        print(
            f"chi-square {dof}, {design}: "
            + ", ".join(f"{name} {count / trials:.3f}" for name, count in inside.items())
        )
        assert min(inside.values()) >= 0.92 * trials, (design, inside)


@pytest.mark.processor
@pytest.mark.parametrize(
    "make, forward, together",
    [
        (lambda: small.gpt2(2100), small.numpy_gpt2, "tiles"),
        (lambda: small.llama(2100), small.numpy_llama, "tiles"),
        (lambda: small.llama(97, tied=True), small.numpy_llama, "tiles"),
        (lambda: small.make("gemma2"), small.own_float64, "tiles"),
    ],
)
def test_windows_equal_float64_over_the_whole_vocabulary(make, forward, together):
    models = [one := make(), moved(one)]
    plan = plan_of(small.text_ids(one.config.vocab_size, n=50))
    arms = tiles.score_together(*models, plan)
    close = small.tolerance(*models, ids=plan.token_ids["0"], windows=plan.windows)
    np.testing.assert_allclose(means(arms), exact(forward, models, plan), rtol=0, atol=close)
    assert (
        arms[1].provenance["together"] == together
        and arms[1].columns["kl_divergence"].min() > 1e-3
    )
    for arm, model in zip(
        arms, models, strict=True
    ):  # and both losses are those of scoring one by one
        np.testing.assert_allclose(
            arm.log_loss,
            score_windows(model, plan.token_ids, plan.windows).log_loss,
            rtol=0,
            atol=close,
        )
