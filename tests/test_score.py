"Losses by the chain rule: GPT-2 and Llama written out in numpy are the referees, one token at a time; for other architectures their own float64 copies."

import copy
import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import (
    DENSE,
    EPS32,
    HYBRIDS,
    SMALL,
    TEXT,
    TOLERANCE,
    ZOO,
    Letters,
    byte_tokenizer,
    chain_rule,
    fill,
    gpt2,
    llama,
    make,
    numpy_gpt2,
    numpy_llama,
    one_window,
    own_float64,
    save,
    text_ids,
    tolerance,
    torch,
    transformers,
)

from invar_nb.arms.windows import Window, plan_windows
from invar_nb.foundations.refuse import ContractError
from invar_nb.models import batches, head_tiles, score
from invar_nb.models import chain_rule as engine_page
from invar_nb.models.batches import plan_scoring, token_log_losses
from invar_nb.models.chain_rule import look_at_model
from invar_nb.models.load import config_digest, load_model, weights_digest
from invar_nb.models.score import score_plan, score_text, score_windows
from invar_nb.models.text import Documents
from invar_nb.models.text_plan import find_classes, plan_text

PLANS = {
    "overlapping": dict(max_length=32, stride=12),
    "disjoint": dict(max_length=32, stride=32),
    "context": dict(max_length=32, stride=12, first_window="context_only"),
    "full length": dict(max_length=40, stride=40),
    "pairs": dict(max_length=2, stride=1),
}
MODELS = {
    "gpt2 tied 97": (gpt2, numpy_gpt2, dict(vocab_size=97, tied=True)),
    "gpt2 untied 131": (gpt2, numpy_gpt2, dict(vocab_size=131, tied=False)),
    "llama untied 97": (llama, numpy_llama, dict(vocab_size=97, tied=False)),
    "llama tied 33": (llama, numpy_llama, dict(vocab_size=33, tied=True)),
}


@pytest.fixture(scope="module")
def truth():
    "(model name, plan name) -> model, ids, windows, losses by the numpy referee; computed when first asked for."
    kept = {}

    def get(name, plan):
        if (name, plan) not in kept:
            build, forward, options = MODELS[name]
            model, ids = build(**options), text_ids(options["vocab_size"])
            windows = plan_windows(len(ids), **PLANS[plan])
            kept[name, plan] = model, ids, windows, chain_rule(forward, model, ids, windows)
        return kept[name, plan]

    return get


# --- the chain rule -------------------------------------------------------------------------------------------------------------------
@pytest.mark.processor
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_equal_the_chain_rule(truth, name, plan):
    model, ids, windows, exact = truth(name, plan)
    order = np.random.default_rng(3).permutation(len(windows))
    for batch_tokens in (1, 70, 100_000):
        found = dict(
            token_log_losses(
                model, ids, [windows[i] for i in order], batch_tokens=batch_tokens
            )
        )
        assert sorted(found) == list(range(len(windows)))
        for k, losses in found.items():
            assert losses.dtype == np.float32
            np.testing.assert_allclose(losses, exact[order[k]], rtol=0, atol=TOLERANCE)


def mixed_windows(model, n=60, longest=40, seed=1):
    "Many documents of many lengths: so that padding would save batches."
    rng = np.random.default_rng(seed)
    texts = {str(d): rng.integers(2, 97, rng.integers(2, longest + 1)) for d in range(n)}
    texts["0"] = rng.integers(2, 97, longest)
    return texts, [
        Window(start=0, score_from=1 + (len(x) > 9) * 3, stop=len(x), document_id=d)
        for d, x in texts.items()
    ]


@pytest.mark.parametrize("name", ZOO)
def test_any_batch_equals_one_window_at_a_time(name, monkeypatch):
    "Against the model's own single passes at every batch size, one with tiles that end inside the vocabulary, the longest with as many inputs as most have positions; and against its float64 copy, one prefix at a time."
    model = make(name)
    texts, windows = mixed_windows(model, longest=41)
    alone = [one_window(model, texts[w.document_id], w) for w in windows]
    how = set()
    for batch_tokens in (1, 60, 400, 4096):
        if batch_tokens == 60:
            monkeypatch.setattr(head_tiles, "COLUMNS", 31)
        scorer = plan_scoring(model, texts, windows, batch_tokens=batch_tokens)
        how.add(scorer.facts["batching"])
        assert sorted(i for b in scorer.batches for i in b) == list(range(len(windows)))
        for one in (scorer, scorer.backwards())[: 1 + (batch_tokens == 400)]:
            for batch in one.batches:
                for i, losses in zip(batch, one.score(batch), strict=True):
                    np.testing.assert_allclose(losses, alone[i], rtol=0, atol=TOLERANCE)
    assert ("padded" in how) != (name == "longrope"), how
    for w in (
        windows[:3] if name not in ("longrope", "mixtral", *HYBRIDS) else ()
    ):  # parts that are float32, or (longrope) frequencies of the prefix
        np.testing.assert_allclose(
            alone[int(w.document_id)],
            chain_rule(own_float64, model, texts[w.document_id], [w])[0],
            rtol=0,
            atol=TOLERANCE,
        )


@pytest.mark.parametrize(
    "width, device, tokens",
    [
        (16, "cpu", 4096),
        (4, "cpu", 4096),
        (64, "cpu", 1024),
        (65, "cpu", 512),
        (4096, "cpu", 512),
        (None, "cpu", 512),
        (4096, "cuda", 8192),
    ],
)
def test_the_size_of_a_pass_follows_the_width_of_the_model(width, device, tokens):
    assert (
        batches.usual_tokens(SimpleNamespace(width=width, device=SimpleNamespace(type=device)))
        == tokens
    )


def test_one_text_needs_no_padding_and_no_probe(truth):
    model, ids, windows, _ = truth("gpt2 tied 97", "overlapping")
    scorer = plan_scoring(model, ids, windows)
    assert (
        scorer.facts == {"head": "head", "batching": "equal lengths", "batch_tokens": 2560}
        and len(scorer.batches) == 1
    )  # 24 numbers a token
    assert [*scorer.batches[0]] == sorted(
        range(len(windows)), key=lambda i: (windows[i].start - windows[i].stop, i)
    )  # longest first, then in text order


def test_passes_are_the_longest_that_fit():
    "By the definition: windows in order, so many that the padded pass stays in its budget and the padding in its share; both may be used up exactly."
    rng = np.random.default_rng(6)
    for trial in range(300):
        lengths, budget, (way, padding) = (
            rng.integers(1, 9, 12).tolist(),
            int(rng.integers(1, 33)),
            [("padded", 1 / 8), ("equal lengths", 0)][trial % 2],
        )
        windows, order, wanted = (
            [Window(start=0, score_from=1, stop=n + 1) for n in lengths],
            [*range(12)],
            [],
        )
        if trial % 3:
            order.sort(key=lambda i: (-1) ** (trial % 3) * lengths[i])
        fits = lambda part: (
            max(part) * len(part) <= budget
            and max(part) * len(part) - sum(part) <= padding * max(part) * len(part)
        )
        while (done := sum(map(len, wanted))) < 12:
            wanted.append(
                order[
                    done : done
                    + next(
                        k
                        for k in range(1, 13 - done)
                        if k == 12 - done
                        or not fits([lengths[i] for i in order[done : done + k + 1]])
                    )
                ]
            )
        assert batches.cut_passes(windows, budget, way, order) == wanted and (
            trial % 3 != 1 or batches.cut_passes(windows, budget, way) == wanted
        )


@pytest.mark.parametrize("moved, harmless", [(2e-6, True), (2e-5, False), (np.nan, False)])
def test_padding_that_moves_a_loss_by_more_than_rounding_is_harmful(
    moved, harmless, monkeypatch
):
    model, engine = llama(), SimpleNamespace(model=llama())
    texts, windows = mixed_windows(model)
    monkeypatch.setattr(
        batches,
        "score_batch",
        lambda engine, documents, passes: [
            np.full(9, 3.0) + moved * (len(passes) == 1) * (np.arange(9) == 4)
            for part in passes
            for _ in part
        ],
    )
    assert batches._padding_is_harmless(engine, texts, windows) == harmless


def test_whole_logits_bound_a_pass(monkeypatch):
    monkeypatch.setattr(engine_page, "CHUNK_BYTES", 0)
    monkeypatch.setattr(engine_page, "CHUNK_ROWS", 50)
    model = fill(Sloped(transformers.LlamaConfig(**DENSE)), 7)
    texts, windows = mixed_windows(model)
    scorer = plan_scoring(model, texts, windows)
    assert all(
        max(lengths) * len(lengths) <= 50
        for batch in scorer.batches
        for part in scorer.passes(batch)
        for lengths in [[windows[i].stop - 1 for i in part]]
    )


@pytest.mark.processor
def test_a_control_takes_other_passes_of_the_same_windows():
    "In reverse, one token wider where 40 positions allow no more, and the same losses but for rounding."
    model, widths = llama(), []
    texts, windows = mixed_windows(model, n=200)
    scorer = plan_scoring(model, texts, windows, batch_tokens=512)
    control = scorer.backwards()
    assert (
        control.padding == 1
        and control.batches[-1][::-1] == scorer.batches[0]
        and control.facts == {**scorer.facts, "order": "backwards"}
    )
    hook = model.model.register_forward_hook(
        lambda module, given, out: widths.append(out.last_hidden_state.shape[1])
    )
    usual, wide = scorer.score(scorer.batches[0]), len(widths)
    turned = control.score(control.batches[-1])[::-1]
    hook.remove()
    assert max(widths[:wide]) == 39 and max(widths[wide:]) == 40
    for a, b in zip(turned, usual, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)


class Mixing(transformers.LlamaForCausalLM):
    "A row in a batch sees the other rows."

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + 0.1 * out.logits.mean(0, keepdim=True)
        return out


def test_a_model_whose_rows_mix_is_scored_one_window_at_a_time():
    model = fill(Mixing(transformers.LlamaConfig(**DENSE)), 7)
    texts, windows = mixed_windows(model, n=12)
    scorer = plan_scoring(model, texts, windows)
    assert scorer.facts["batching"] == "one window" and all(
        len(part) == 1 for batch in scorer.batches for part in scorer.passes(batch)
    )
    for batch in scorer.batches:
        for i, losses in zip(batch, scorer.score(batch), strict=True):
            np.testing.assert_allclose(
                losses,
                one_window(model, texts[windows[i].document_id], windows[i]),
                rtol=0,
                atol=TOLERANCE,
            )


# --- heads ------------------------------------------------------------------------------------------------------------------------------
class Sloped(transformers.LlamaForCausalLM):
    "Adds to its logits what no config mentions."

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + torch.linspace(
            0, 3, out.logits.shape[-1], dtype=out.logits.dtype
        )
        return out


class Shifted(transformers.LlamaForCausalLM):
    "Changes what its stack is given; the head alone would look right."

    def forward(self, input_ids=None, **kwargs):
        return super().forward(inputs_embeds=2 * self.model.embed_tokens(input_ids), **kwargs)


class Bare(torch.nn.Module):
    "No Hugging Face at all: a bigram table."

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.tensor(np.random.default_rng(8).normal(size=(97, 97)), dtype=torch.float32)
        )

    def forward(self, input_ids):
        return self.table[input_ids]


@pytest.mark.parametrize(
    "name, path",
    [
        ("gemma2", "head+softcap"),
        ("cohere", "head*scale"),
        ("granite", "head/scale"),
        ("mistral", "head"),
        ("roberta", "logits"),
        ("bamba", "head"),
    ],
)
def test_how_the_logits_are_reached(name, path):
    engine = look_at_model(make(name), text_ids(97))
    assert engine.path == path and engine.tiled == (path != "logits")


@pytest.mark.parametrize(
    "build", [lambda: fill(Shifted(transformers.LlamaConfig(**DENSE)), 7), Bare]
)
def test_models_with_logits_of_their_own(build):
    model, ids = build(), text_ids(97, n=60)
    windows = plan_windows(len(ids), max_length=20, stride=12)
    exact = (
        [one_window(model, ids, w) for w in windows]
        if build is Bare
        else chain_rule(own_float64, model, ids, windows)
    )
    for batch_tokens in (1, 64, 4096):
        losses = score_windows(model, ids, windows, batch_tokens=batch_tokens)
        assert losses.provenance["head"] == "logits"
        np.testing.assert_allclose(
            losses.log_loss, [x.mean() for x in exact], rtol=0, atol=TOLERANCE
        )


# --- memory, modes, numbers ------------------------------------------------------------------------------------------------------------
def test_a_look_at_a_large_vocabulary_makes_few_logits():
    "262,144 logits of each of 96 tokens took seconds of every call."
    config = transformers.LlamaConfig(
        vocab_size=2**18,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    n_tokens = []
    count = model.lm_head.register_forward_pre_hook(
        lambda _, inputs: n_tokens.append(inputs[0].shape[:-1].numel())
    )
    engine = look_at_model(model, text_ids(97))
    count.remove()
    assert engine.path == "head" and engine.vocab_size == 2**18
    assert n_tokens == [8, 16, 8]  # the example, twice beside a change, and by the head alone


def test_a_look_costs_three_short_passes(truth):
    "Then only scored rows reach the head: packed into blocks, in tiles; a head that somebody listens to is called."
    model, ids, windows, _ = truth("llama untied 97", "overlapping")
    rows, passes, blocks = [], [], []
    hooks = [
        model.lm_head.register_forward_hook(
            lambda module, given, out: rows.append(out.numel() // out.shape[-1])
        ),
        model.model.register_forward_hook(
            lambda module, given, out: passes.append(tuple(out.last_hidden_state.shape[:2]))
        ),
    ]
    try:
        heard = dict(token_log_losses(model, ids, windows, batch_tokens=64))
    finally:
        hooks[0].remove()
    assert (
        rows[:3] == [24, 48, 24]
        and sum(rows[3:]) == len(ids) - 1
        and passes[:3] == [(1, 24), (2, 24), (1, 24)]
    )
    own = engine_page.head_losses
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_page, "ROWS", 33)
        patch.setattr(
            engine_page,
            "head_losses",
            lambda torch, head, after, hidden, target: (
                blocks.append(len(hidden)) or own(torch, head, after, hidden, target)
            ),
        )
        tiled = dict(token_log_losses(model, ids, windows, batch_tokens=64))
    hooks[1].remove()
    assert blocks == [33, 33, 33, 1] and all(n * length <= 64 for n, length in passes[3:])
    for i, losses in heard.items():
        np.testing.assert_allclose(tiled[i], losses, rtol=0, atol=TOLERANCE)


@pytest.mark.processor
@pytest.mark.parametrize("change", ["late peak", "overflow", "bias"])
def test_peaked_heads_against_float64(change, monkeypatch):
    "Logits of later tiles far above the first: the sum leaves float32 and the row is done again."
    monkeypatch.setattr(head_tiles, "COLUMNS", 20)
    model, ids, careful, own = (
        llama(),
        text_ids(97, n=60),
        [],
        head_tiles._losses_by_running_maximum,
    )
    monkeypatch.setattr(
        head_tiles,
        "_losses_by_running_maximum",
        lambda *a: careful.append(len(a[3])) or own(*a),
    )
    if change == "bias":
        model.lm_head.bias = torch.nn.Parameter(torch.linspace(0, 300, 97))
    else:
        model.lm_head.weight.data[50:] *= 6 if change == "late peak" else 120
    windows = plan_windows(len(ids), max_length=20, stride=12)
    exact = chain_rule(own_float64, model, ids, windows)
    close = tolerance(model, ids=ids, windows=windows)
    for i, losses in token_log_losses(model, ids, windows):
        np.testing.assert_allclose(losses, exact[i], rtol=0, atol=close)
    assert (sum(careful) > 0) == (change != "late peak")


class Doubling(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "build, path", [(llama, "head"), (lambda: make("granite"), "head/scale")]
)
@pytest.mark.parametrize("change", ["subclass", "own forward", "hook", "pre-hook"])
def test_a_head_that_does_more_than_its_matrix_is_called(change, build, path):
    "As an adapter's is, or one that a library has wrapped: the rows of its weight are not the logits."
    model, ids, double = build(), text_ids(97, n=40), lambda *given: 2 * given[-1]
    head = model.lm_head
    if change == "subclass":
        head.__class__ = Doubling
    if change == "own forward":
        head.forward = lambda x: 2 * torch.nn.functional.linear(x, head.weight)
    if change == "hook":
        head.register_forward_hook(double)
    if change == "pre-hook":
        head.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    assert look_at_model(model, ids).path == path
    windows = plan_windows(len(ids), max_length=20, stride=12)
    for i, losses in token_log_losses(model, ids, windows):
        np.testing.assert_allclose(
            losses, one_window(model, ids, windows[i]), rtol=0, atol=TOLERANCE
        )


AFTER = {"": None, " capped": lambda z: (z / 5).tanh() * 5, " scaled": lambda z: 2 * z}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("columns, bias", [(20, True), (20, False), (12, True), (61, True)])
def test_blocks_against_log_softmax_and_which_rows_are_done_again(
    columns, bias, after, dtype, monkeypatch
):
    "Rows of very different size beside each other, products that are exact, 61 tokens in tiles of 20 (the last has one) or of 12: only rows that leave float32 take the second way."
    monkeypatch.setattr(head_tiles, "COLUMNS", columns)
    rng, again, own = np.random.default_rng(4), [], head_tiles._losses_by_running_maximum
    monkeypatch.setattr(
        head_tiles,
        "_losses_by_running_maximum",
        lambda torch, head, after, hidden, target: (
            again.append((hidden, target)) or own(torch, head, after, hidden, target)
        ),
    )
    hidden = torch.tensor(
        rng.integers(-3, 4, (60, 8)) * np.array([1, 4, 16])[rng.integers(0, 3, (60, 1))]
    ).to(dtype)
    target, head = (
        torch.tensor(rng.integers(0, 61, 60)),
        torch.nn.Linear(8, 61, bias=bias, dtype=dtype),
    )
    target[:3] = torch.tensor([60, 0, 20])
    for p in head.parameters():
        p.data[:] = torch.tensor(rng.integers(-2, 3, p.shape))
    with torch.inference_mode():
        z, found = (
            head(hidden),
            head_tiles.head_losses(torch, head, AFTER[after], hidden, target),
        )
        z = (AFTER[after](z) if after else z).double()
    np.testing.assert_allclose(
        found,
        -z.log_softmax(1).gather(1, target[:, None])[:, 0],
        rtol=0,
        atol=1e-5 + 4 * EPS32 * float(z.abs().max()),
    )
    far = (beyond := (z - z[:, :columns].amax(1, keepdim=True)).logsumexp(1) / np.log(2)) > 128
    assert (beyond - 128).abs().min() > 0.1 and bool(again) == bool(far.any()) == (
        columns < 61 and "capped" not in after
    )
    if again:
        assert (
            torch.equal(again[0][0], hidden[far])
            and torch.equal(again[0][1], target[far])
            and 3 < far.sum() < 50
        )


@pytest.mark.parametrize(
    "build, path",
    [(llama, "head"), (lambda: fill(Sloped(transformers.LlamaConfig(**DENSE)), 7), "logits")],
)
def test_half_precision_models_get_a_float32_softmax(build, path):
    model, ids = build().to(torch.bfloat16), text_ids(97)
    assert look_at_model(model, ids).path == path
    windows = plan_windows(len(ids), max_length=32, stride=16)
    for i, losses in token_log_losses(model, ids, windows, batch_tokens=1):
        np.testing.assert_allclose(
            losses, one_window(model, ids, windows[i]), rtol=0, atol=TOLERANCE
        )


def test_dropout_is_off_and_the_mode_is_given_back():
    model, ids = gpt2(resid_pdrop=0.5, embd_pdrop=0.5), text_ids(97)
    windows = plan_windows(len(ids), max_length=32, stride=16)
    calm = score_windows(model, ids, windows).log_loss
    model.train()
    assert np.array_equal(score_windows(model, ids, windows).log_loss, calm) and model.training
    with pytest.raises(ContractError):
        score_windows(model, np.array([1, 97]), plan_windows(2, max_length=2, stride=1))
    assert model.training and not any(p.grad is not None for p in model.parameters())


def test_a_model_of_no_numbers_is_refused_by_window_and_token():
    broken, ids = llama(), text_ids(97)
    broken.model.norm.weight.data[3] = float("nan")
    with pytest.raises(
        ContractError, match=r"got nan at window '0:\d+-\d+', token \d+ \(id \d+\).*float32"
    ):
        score_windows(broken, ids, plan_windows(len(ids), max_length=20, stride=10))


@pytest.mark.parametrize(
    "ids, windows, options, words",
    [
        (
            [1, 2, 97],
            None,
            {},
            "token ids must be below the model's vocabulary of 97; got 97 at token 2",
        ),
        ([1, -100, 3], None, {}, "token ids must not be negative; got -100 at token 1"),
        ([1.0, 2.0, 3.0], None, {}, "token ids must be integers"),
        ([[1, 2, 3]], None, {}, "one dimension"),
        ([1, 2, 3], (), {}, "there must be a window to score"),
        (
            [1, 2, 3],
            (Window(start=0, score_from=1, stop=4),),
            {},
            "a window must end inside its document; got stop 4 of 3 tokens at window 0",
        ),
        ([1, -1, 3], None, {}, "token ids must not be negative; got -1 at token 1"),
        (
            {"0": np.arange(3), "1": np.array([1, 97])},
            None,
            {},
            "vocabulary of 97; got 97 at token 1",
        ),
        (
            list(range(60)),
            (Window(start=0, score_from=1, stop=42),),
            {},
            "must not exceed .* got 41 tokens, model 40",
        ),
        ([1, 2, 3], None, dict(batch_tokens=0), "batch_tokens must be"),
    ],
)
def test_bad_input_is_refused(ids, windows, options, words):
    windows = plan_windows(3, max_length=3, stride=3) if windows is None else windows
    with pytest.raises(ContractError, match=words) as caught:
        score_windows(
            llama(), ids if isinstance(ids, dict) else np.array(ids), windows, **options
        )
    assert "\n" not in str(caught.value)
    with pytest.raises(ContractError, match=words):
        token_log_losses(
            llama(), ids if isinstance(ids, dict) else np.array(ids), windows, **options
        )  # before the first loss is asked for


@pytest.mark.parametrize(
    "error, kind, words",
    [
        *(
            (
                error,
                ContractError,
                "a pass must fit into memory; got 2 windows of up to 40 tokens. Use fewer tokens per pass",
            )
            for error in (
                torch.OutOfMemoryError("CUDA out of memory"),
                MemoryError(),
                RuntimeError(
                    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
                ),
            )
        ),
        (
            RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
            RuntimeError,
            "shapes cannot",
        ),
    ],
)
def test_running_out_of_memory_names_the_cure(error, kind, words, monkeypatch):
    def full(*_):
        raise error

    monkeypatch.setattr(batches, "score_batch", full)
    with pytest.raises(kind, match=words) as caught:
        score_windows(llama(), text_ids(97), plan_windows(101, max_length=40, stride=40))
    assert getattr(caught.value, "code", "memory") == "memory"


# --- windows of losses -----------------------------------------------------------------------------------------------------------------
def test_what_score_windows_knows_of_ids_and_windows():
    model, ids = llama(), text_ids(97)
    windows = [
        dataclasses.replace(w, document_id="a", split="final")
        for w in plan_windows(101, max_length=32, stride=16)
    ]
    losses = score_windows(model, ids, windows)
    assert losses.document_ids == ("a",) * len(windows) and losses.split == ("final",) * len(
        windows
    )
    assert (
        score_windows(model, ids.astype(np.uint8), windows).log_loss.tolist()
        == score_windows(model, {"a": ids}, windows).log_loss.tolist()
        == losses.log_loss.tolist()
    )
    facts = losses.provenance
    assert (
        facts["device"] == "cpu"
        and facts["model"] == "LlamaForCausalLM"
        and facts["config_digest"] == config_digest(model.config)
        and "config_digest" not in {k for k, v in facts.items() if v is None}
    )
    assert (
        losses.data_id
        and losses.data_id != score_windows(model, ids[::-1].copy(), windows).data_id
        and losses.data_id != score_windows(model, ids, windows[1:]).data_id
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in (("gpt2", gpt2(257)), ("llama", llama(257, tied=True))):
        save(model, root / name)
    return root


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_from_folder_to_losses(saved, name):
    loaded = load_model(saved / name)
    plan = plan_text(loaded, [TEXT, "short"], max_length=32, stride=16)
    losses = score_plan(loaded, plan)
    forward = numpy_gpt2 if name == "gpt2" else numpy_llama
    exact = [
        chain_rule(forward, loaded.model, plan.token_ids[w.document_id], [w])[0].mean()
        for w in plan.windows
    ]
    np.testing.assert_allclose(losses.log_loss, exact, rtol=0, atol=TOLERANCE)
    assert (
        losses.window_ids == plan.window_ids
        and losses.data_id == plan.data_id
        and losses.document_ids == plan.document_ids
        and losses.split[-1] == "final"
    )
    assert losses.n_bytes.sum() == len(TEXT.encode()) + 5 and losses.model == name
    facts = losses.provenance
    assert (
        facts["weights_digest"] == loaded.weights_digest
        and facts["head"] == "head"
        and facts["bos_tokens"] == [256]
        and facts["stride"] == 16
    )
    assert {*score.KEY} - {"order"} <= {
        *facts
    } and "order" not in facts  # said where windows are scored backwards only
    assert (
        score_text(loaded, [TEXT, "short"], max_length=32, stride=16).log_loss.tolist()
        == losses.log_loss.tolist()
    )
    bare = score_text(
        loaded.model, [TEXT, "short"], tokenizer=loaded.tokenizer, max_length=32, stride=16
    )
    assert bare.log_loss.tolist() == losses.log_loss.tolist() and bare.provenance[
        "weights_digest"
    ] == weights_digest(loaded.model)


def test_progress_counts_scored_tokens_of_each_pass(saved, tmp_path):
    loaded, calls = load_model(saved / "llama"), []
    plan = plan_text(loaded, TEXT, max_length=24, stride=12)
    n_tokens = plan.counts["tokens"]
    score_plan(loaded, plan, batch_tokens=1, progress=lambda *step: calls.append(step))
    assert (
        {total for _, total in calls} == {n_tokens} == {calls[-1][0]}
        and [done for done, _ in calls] == sorted({done for done, _ in calls})
        and len(calls) == len(plan.windows) + 1
        and calls[0][0] == 0
    )


def test_progress_begins_with_what_an_earlier_run_finished(saved, tmp_path):
    loaded, calls = load_model(saved / "llama"), []
    plan = plan_text(loaded, TEXT, max_length=24, stride=12)
    how = {"batch_tokens": 1, "journal": tmp_path / "j"}
    with pytest.raises(KeyboardInterrupt):
        score_plan(loaded, plan, progress=stop_after(10), **how)  # in the second batch
    score_plan(loaded, plan, progress=lambda done, total: calls.append(done), **how)
    n_before = int(plan.tokens[:8].sum())  # a batch has 8 passes, here of a window each
    assert calls[0] == n_before and len(calls) == len(plan.windows) - 8 + 1


def test_documents_pieces_and_languages_reach_the_losses(saved):
    loaded = load_model(saved / "llama")
    texts = Documents(
        texts=(TEXT, "one more", "short"),
        documents=("0", "0", "1"),
        languages=("en", "en", None),
    )
    losses = score_text(loaded, texts, max_length=32, stride=16)
    assert (
        set(losses.document_ids) == {"0", "1"}
        and losses.window_ids[-1] == "1.0:1-6"
        and losses.provenance["languages"]["und"] == {"documents": 1, "tokens": 5}
    )
    assert (
        score_plan(llama(), plan_text(Letters(), "abcdefghij", max_length=6, stride=3)).n_bytes
        is None
    )


def test_what_score_text_needs(saved):
    loaded = load_model(saved / "llama")
    for act, words in (
        (lambda: score_text(loaded.model, TEXT), "a bare model needs its tokenizer"),
        (
            lambda: score_text(loaded.model, TEXT, tokenizer=loaded.tokenizer, max_length=42),
            "must not exceed the positions",
        ),
        (
            lambda: score_plan(loaded, plan_text(loaded.tokenizer, TEXT, max_length=42)),
            "must not exceed the positions",
        ),
    ):
        with pytest.raises(ContractError, match=words):
            act()
    far, plain = (
        fill(
            transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    **DENSE | dict(vocab_size=257, max_position_embeddings=4096)
                )
            ),
            2,
        ),
        byte_tokenizer(bos=False),
    )
    assert score_text(far, TEXT, tokenizer=loaded.tokenizer).provenance["max_length"] == 1024
    assert (
        score_text(loaded, TEXT, tokenizer=plain).tokens.sum()
        == score_text(loaded, TEXT).tokens.sum() - 1
    )
    loaded.tokenizer.add_tokens(["beside"])
    with pytest.raises(
        ContractError,
        match="token ids must be below the model's vocabulary of 257; got 257 at token",
    ):
        score_text(loaded, TEXT)


# --- the journal ------------------------------------------------------------------------------------------------------------------------
def stop_after(n):
    calls = []

    def progress(done, total):
        calls.append(done)
        if len(calls) == n:
            raise KeyboardInterrupt

    return progress


@pytest.mark.processor
def test_a_control_is_scored_backwards_and_classes_get_their_columns(saved, tmp_path):
    loaded = load_model(saved / "llama")
    plan = plan_text(loaded, [TEXT, "short"], max_length=24, stride=12)
    turned, usual = score_plan(loaded, plan, backwards=True), score_plan(loaded, plan)
    assert (
        turned.provenance["order"] == "backwards"
        and "order" not in usual.provenance
        and usual.columns == {}
    )
    np.testing.assert_allclose(turned.log_loss, usual.log_loss, rtol=0, atol=TOLERANCE)
    plans = [
        dataclasses.replace(plan, classes=find_classes(plan.token_ids, plan.windows, by))
        for by in (["frequency"], ["context"])
    ]
    for by, one in zip(("frequency", "context"), plans, strict=True):
        columns = score_plan(loaded, one).columns
        for unit, wanted in (
            ("tokens", usual.tokens),
            ("nats", usual.log_loss * usual.tokens),
        ):
            np.testing.assert_allclose(
                sum(
                    x
                    for name, x in columns.items()
                    if name.startswith(by) and name.endswith(f"[{unit}]")
                ),
                wanted,
                rtol=1e-6,
            )
    score_plan(loaded, plans[0], journal=tmp_path / "j")
    for other in (plan, plans[1]):
        with pytest.raises(ContractError, match="classes"):
            score_plan(loaded, other, journal=tmp_path / "j")


def test_a_journal_of_something_else_is_refused(saved, tmp_path):
    "Whatever moves a loss: config, weights, text, type, batches, code, versions (finding 9)."
    loaded = load_model(saved / "llama")
    plan = plan_text(loaded, TEXT, max_length=24, stride=12)
    path = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        score_plan(loaded, plan, batch_tokens=60, journal=path, progress=stop_after(2))
    folder = shutil.copytree(saved / "llama", tmp_path / "edited")
    config = folder / "config.json"
    config.write_text(
        config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 10.0')
    )
    edited = load_model(folder)
    assert edited.weights_digest == loaded.weights_digest
    known = lambda **change: dataclasses.replace(
        loaded, provenance={**loaded.provenance, **change}
    )
    other = copy.deepcopy(loaded.model)
    other.model.norm.weight.data[0] += 1
    cases = {
        "config_digest": (edited, plan, {}),
        "weights_digest": (other, plan, {}),
        "dtype": (load_model(saved / "llama", dtype="bfloat16"), plan, {}),
        "data_id": (loaded, plan_text(loaded, TEXT + ".", max_length=24, stride=12), {}),
        "batch_tokens": (loaded, plan, {"batch_tokens": 61}),
        "code_digest": (known(code_digest="sha256:1"), plan, {}),
        "torch": (known(torch="1.0"), plan, {}),
        "transformers": (known(transformers="4.0"), plan, {}),
        "attention": (known(attention="eager"), plan, {}),
        "device": (known(device="cuda"), plan, {}),
    }
    for field, (model, its_plan, options) in cases.items():
        with pytest.raises(ContractError, match=field):
            score_plan(model, its_plan, journal=path, **{"batch_tokens": 60, **options})
    assert (
        score_plan(loaded, plan, batch_tokens=60, journal=path).log_loss.tobytes()
        == score_plan(loaded, plan, batch_tokens=60).log_loss.tobytes()
    )


def test_scoring_prints_nothing():
    "Nor does transformers beside it: GPT-2 gives advice about masks when a row begins or ends with its padding id. Afterwards it may speak again."
    log, heard, model = transformers.utils.logging, [], gpt2(pad_token_id=0)
    level = log.get_verbosity()
    log.set_verbosity_warning()
    model.register_forward_hook(lambda *_: heard.append(log.get_verbosity()))
    try:
        score_windows(model, text_ids(97), plan_windows(101, max_length=20, stride=20))
        assert set(heard) == {log.ERROR} and log.get_verbosity() == log.WARNING
    finally:
        log.set_verbosity(level)


@pytest.mark.parametrize("limit, even", [(64, True), (62, False)])
def test_padded_rows_are_a_multiple_of_16_tokens_where_the_model_sees_as_many(limit, even):
    rng = np.random.default_rng(2)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=limit,
    )
    model, texts, read = (
        fill(transformers.LlamaForCausalLM(config), 1),
        {str(d): rng.integers(2, 97, rng.integers(2, 60)) for d in range(80)},
        [],
    )
    scorer = plan_scoring(
        model,
        texts,
        [Window(start=0, score_from=1, stop=len(x), document_id=d) for d, x in texts.items()],
    )
    model.model.register_forward_pre_hook(
        lambda module, given, named: read.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    for batch in scorer.batches:
        scorer.score(batch)
    plain, back = {*read}, scorer.backwards()
    read.clear()
    for batch in back.batches:
        back.score(batch)
    assert (
        scorer.facts["batching"] == "padded"
        and all(n % 16 == 0 for n in plain) == even
        and max(plain) <= limit
    )
    assert {*read} - plain, "a control must not read the same rows"


def test_the_referee_would_notice(truth):
    "A window with one token less context is far outside the tolerance."
    model, ids, windows, exact = truth("gpt2 tied 97", "overlapping")
    early = [dataclasses.replace(w, start=w.start + 1) for w in windows[1:]]
    assert (
        min(np.abs(x - exact[i + 1]).max() for i, x in token_log_losses(model, ids, early))
        > 1000 * TOLERANCE
    )


@pytest.mark.processor
@pytest.mark.parametrize(
    "name, tiled",
    [
        ("gemma2", True),
        ("cohere", True),
        ("granite", True),
        ("mixtral", True),
        ("bamba", True),
        ("roberta", False),
    ],
)
def test_tiles_and_whole_logits_give_the_same_losses(name, tiled, monkeypatch):
    "Of these architectures, against float64 token by token, with tiles that end inside the vocabulary."
    model = make(name)
    texts, windows = mixed_windows(model, n=12)
    assert look_at_model(model, texts["0"]).tiled == tiled
    whole = dict(token_log_losses(model, texts, windows))
    monkeypatch.setattr(head_tiles, "COLUMNS", 31)
    for i, losses in token_log_losses(model, texts, windows):
        np.testing.assert_allclose(losses, whole[i], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(
            losses,
            one_window(model, texts[windows[i].document_id], windows[i]),
            rtol=0,
            atol=TOLERANCE,
        )


def test_memory_does_not_grow_with_the_text():
    "Ten times the text: never more tokens in a batch."
    model, most = llama(), {}
    for n in (100, 1000):
        sizes = []
        hook = model.model.register_forward_hook(
            lambda module, given, out: sizes.append(out.last_hidden_state.shape[:2].numel())
        )
        try:
            score_windows(
                model,
                text_ids(97, n=n),
                plan_windows(n, max_length=32, stride=16),
                batch_tokens=128,
            )
        finally:
            hook.remove()
        most[n] = max(sizes)
    assert most[100] == most[1000] <= 128
    assert look_at_model(model, text_ids(97)).chunk_rows == 64 * 2**20 // (4 * 97)


class Forbidding(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits[..., 13] = -torch.inf
        return out


def test_losses_that_are_no_numbers_name_window_and_token():
    model = fill(Forbidding(transformers.LlamaConfig(**DENSE)), 9)
    ids = np.where(text_ids(97) == 13, 14, text_ids(97))
    windows = plan_windows(len(ids), max_length=20, stride=10)
    assert np.isfinite(score_windows(model, ids, windows).log_loss).all()
    ids[57] = 13
    with pytest.raises(
        ContractError,
        match=r"every loss must be finite; got inf at window '0:\d+-\d+', token 57 \(id 13\)",
    ):
        score_windows(model, ids, windows)
    broken = llama()
    broken.model.norm.weight.data[3] = float("nan")
    with pytest.raises(
        ContractError, match=r"got nan at window '0:\d+-\d+', token \d+ \(id \d+\).*float32"
    ):
        score_windows(broken, ids, windows)


@pytest.mark.parametrize(
    "build",
    [
        lambda: transformers.BertLMHeadModel(
            transformers.BertConfig(**SMALL, intermediate_size=40, max_position_embeddings=40)
        ).eval(),
        lambda: fill(
            transformers.RobertaForMaskedLM(
                transformers.RobertaConfig(
                    **SMALL, intermediate_size=40, max_position_embeddings=60
                )
            ),
            3,
        ),
    ],
)
def test_a_model_that_sees_the_future_is_refused(build):
    with pytest.raises(
        ContractError, match="the model must be causal: a later token must not move"
    ) as caught:
        score_windows(build(), text_ids(97), plan_windows(101, max_length=20, stride=10))
    assert caught.value.code == "not_causal"
