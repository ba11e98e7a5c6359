"Questions with candidates: normalizations, ties, unwritable candidates, the journal, refusals."

import json
import re

import numpy as np
import pytest
from commands import shell
from small_models import (
    byte_tokenizer,
    gpt2,
    llama,
    numpy_gpt2,
    numpy_llama,
    save,
    unigram_tokenizer,
    word_tokenizer,
)

from invar_nb.arms.pair import pair
from invar_nb.comparison.study import compare
from invar_nb.files.answers import read_predictions, write_predictions
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.models.load import load_model
from invar_nb.models.questions import answer_examples, plan_candidates, read_examples
from invar_nb.models.score import score_plan

ROWS = [
    dict(
        id="sea",
        prompt="It is",
        candidates=[" a", " a cat", " the sea"],
        label=" a cat",
        language="en",
    ),
    dict(id="one", prompt="Zür", candidates=["ich"], label=0, language="de"),
    dict(
        id="many",
        prompt="n: ",
        candidates=[str(i) for i in range(50)],
        label="49",
        language="en",
    ),
    dict(id="none", prompt="", candidates=["the", "cat"], label="cat", language="en"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("answer")
    return {
        name: load_model(save(make(257, **more), root / name))
        for name, make, more in (("gpt2", gpt2, {}), ("llama", llama, dict(tied=True)))
    }


@pytest.fixture
def examples(tmp_path):
    def written(rows=ROWS):
        (path := tmp_path / "e.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        return read_examples(path)

    return written


def score_candidates(loaded, asked, separator="", bos="auto", **how):
    plan, unwritable = plan_candidates(loaded, asked, separator=separator, bos=bos)
    return score_plan(loaded, plan, **how), unwritable


def test_normalizations_and_what_becomes_of_them(models, examples, tmp_path):
    asked, loaded = examples(), models["llama"]
    losses, _ = score_candidates(loaded, asked)
    raw = [
        np.split(values, np.cumsum([*map(len, asked.candidates)])[:-1])
        for values in (-losses.log_loss * losses.tokens, losses.tokens)
    ]
    for normalize, length in (
        ("none", lambda text, n: 1),
        ("tokens", lambda text, n: n),
        ("bytes", lambda text, n: len(text.encode())),
    ):
        arm = answer_examples(loaded, asked, normalize=normalize)
        for i, name in enumerate(asked.ids):
            k = arm.ids.index(name)
            x = np.array(
                [
                    ll / length(text, n)
                    for ll, text, n in zip(
                        raw[0][i], asked.candidates[i], raw[1][i], strict=True
                    )
                ]
            )
            p = np.exp(x) / np.exp(x).sum()
            assert arm.prediction[k] == str(x.argmax()) and arm.confidence[k] == pytest.approx(
                p.max(), rel=1e-9
            )
            assert (
                arm.probabilities[k][: len(p)] == pytest.approx(p, rel=1e-9)
                and (arm.probabilities[k][len(p) :] == 0).all()
            )
        assert (
            arm.choices
            and arm.provenance["normalize"] == normalize
            and arm.slices["language"]
            and arm.label[arm.ids.index("many")] == "49"
        )
    write_predictions(arm, tmp_path / "answers.jsonl")
    again = read_predictions(tmp_path / "answers.jsonl")
    assert (
        again.probabilities.tobytes() == arm.probabilities.tobytes()
        and again.choices
        and pair(again, arm)
    )


def test_shared_candidates_are_classes_and_two_models_are_compared(models, examples):
    rows = [
        dict(id=i, prompt=f"Is {i} even?", candidates=[" yes", " no"], label=i % 2)
        for i in range(24)
    ]
    arms = [answer_examples(models[name], examples(rows)) for name in ("gpt2", "llama")]
    assert arms[0].labels == (" yes", " no") and not arms[0].choices
    found = compare(pair(*arms))
    assert {"accuracy", "brier", "macro_f1"} <= {
        row.key.metric for row in found
    } and found.report().document()["parts"][0]["labels"] == [" yes", " no"]


def test_a_tie_goes_to_the_first_and_is_counted(models, examples):
    model = gpt2(257)
    for p in model.parameters():
        p.data.zero_()
    flat = answer_examples(
        model_of(models["gpt2"], model),
        examples([dict(id=1, prompt="x", candidates=["ab", "cd", "ef"], label="cd")]),
    )
    assert (
        flat.prediction == ("ab",)
        and flat.ties == 1
        and flat.confidence[0] == pytest.approx(1 / 3)
    )


def model_of(loaded, model, tokenizer=None):
    import dataclasses

    from invar_nb.models.load import checksum

    return dataclasses.replace(
        loaded, model=model, tokenizer=tokenizer or loaded.tokenizer, checksum=checksum(model)
    )


@pytest.mark.parametrize(
    "tokenizer, lost",
    [(word_tokenizer, ["xyz"]), (unigram_tokenizer, ["dog"]), (byte_tokenizer, [])],
)
def test_a_candidate_that_cannot_be_written_is_kept_and_named(
    models, examples, tokenizer, lost
):
    words = tokenizer()
    texts = {"word": ["cat", "xyz"], "unigram": ["cat", "dog"], "byte": ["cat", "東"]}[
        tokenizer.__name__.split("_")[0]
    ]
    arm = answer_examples(
        model_of(models["llama"], llama(257), words),
        examples([dict(id="q", prompt="the ", candidates=texts, label=0)]),
    )
    assert (
        arm.provenance["model_oov"] == ({"q": lost} if lost else {})
        and (arm.probabilities > 0).all()
    )


def test_stopped_and_run_again_no_batch_is_scored_twice(
    models, examples, tmp_path, monkeypatch
):
    from invar_nb.models import batches

    loaded, asked = models["gpt2"], examples()
    whole, _ = score_candidates(loaded, asked, batch_tokens=20)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_candidates(loaded, asked, batch_tokens=20, journal=tmp_path / "j", progress=stop)
    scored, own = [], batches.score_batch
    monkeypatch.setattr(
        batches, "score_batch", lambda *a: scored.append(sum(map(len, a[2]))) or own(*a)
    )
    again, _ = score_candidates(loaded, asked, batch_tokens=20, journal=tmp_path / "j")
    assert (
        again.log_loss.tobytes() == whole.log_loss.tobytes()
        and 0 < sum(scored) < len(whole) + 20
    )
    with pytest.raises(ContractError):
        score_candidates(loaded, asked, separator=" ", batch_tokens=20, journal=tmp_path / "j")


def test_what_is_refused(models, examples):
    bare = model_of(models["gpt2"], models["gpt2"].model, byte_tokenizer(bos=False))
    ask = lambda **row: examples([dict(id=1, candidates=["a", "b"], label=0) | row])
    for call, error, says in (
        (
            lambda: score_candidates(models["gpt2"], ask(prompt="x" * 60)),
            ContractError,
            "40 tokens; got 62 at line 1",
        ),
        (
            lambda: score_candidates(bare, ask(prompt="")),
            ContractError,
            "token to start from.*line 1",
        ),
        (
            lambda: score_candidates(bare, ask(prompt="x"), bos="never"),
            UsageError,
            "bos must be one of",
        ),
        (
            lambda: answer_examples(bare, ask(prompt="x"), normalize="words"),
            UsageError,
            "normalize must be one of",
        ),
    ):
        with pytest.raises(error, match=says):
            call()


def spelled(loaded, text):
    return loaded.tokenizer(text)["input_ids"]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_likelihoods_equal_a_float64_loop(models, examples, name):
    loaded, forward = models[name], {"gpt2": numpy_gpt2, "llama": numpy_llama}[name]
    losses, unwritable = score_candidates(loaded, examples(), batch_tokens=100)
    of = {
        place: (-loss * n, n)
        for place, loss, n in zip(
            losses.document_ids, losses.log_loss, losses.tokens, strict=True
        )
    }
    assert not any(unwritable) and len(of) == len(losses) == sum(
        len(row["candidates"]) for row in ROWS
    )
    for i, row in enumerate(ROWS):
        begun = len(spelled(loaded, row["prompt"]))
        for k, text in enumerate(row["candidates"][:6]):
            ids, total = spelled(loaded, row["prompt"] + text), 0.0
            for j in range(begun, len(ids)):
                z = forward(loaded.model, ids[:j])
                total += z[ids[j]] - z.max() - np.log(np.exp(z - z.max()).sum())
            ll, n = of[f"{i}.{k}"]
            assert (
                ll == pytest.approx(total, abs=1e-5 * max(1, len(ids) - begun))
                and n == len(ids) - begun
            )
    assert of["0.0"][0] > of["0.1"][0], (
        "a longer text that begins with the candidate cannot be more probable"
    )


def test_a_field_of_questions_is_their_cluster(tmp_path):
    "As a field of files is: kinds of minimal pairs, for instance."
    root = save(gpt2(257), tmp_path / "base")
    save(llama(257, tied=True), tmp_path / "new")
    rows = [
        {
            "id": i,
            "prompt": f"{i} is",
            "candidates": [" odd", " even"],
            "label": " odd" if i % 2 else " even",
            "meta": {"kind": f"k{i // 4}"},
        }
        for i in range(48)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_examples(tmp_path / "q.jsonl", "meta.kind").columns["cluster"][4] == "k1"
    line = ["compare", root, tmp_path / "new", "--questions", tmp_path / "q.jsonl"]
    line += ["--out", tmp_path / "r", "--force"]
    code, out, err = shell(*line, "--column", "cluster=meta.kind")
    assert code in (0, 1) and "Intervals over 12 clusters" in out, (out, err)
    code, out, err = shell(*line, "--column", "cluster=meta.sort")
    assert code == 3 and "some row must have 'meta.sort'; got none of 48" in err, err
    code, out, err = shell(*line, "--column", "id=meta.kind")
    assert code == 2 and "--column id= works only with files of other tools" in err, err


def test_all_missing_columns_are_named_with_rows_that_have_them(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = {"id": "a", "text": "Who left?"}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(
        ContractError, match="columns 'prompt', 'candidates', 'label'"
    ) as caught:
        read_examples(path)
    for example in re.findall(r"\{.*?\}", caught.value.cure):
        path.write_text(example + "\n")
        assert read_examples(path).answers == (0,)


def minimal_pairs(n=48, uid=True):
    "Minimal pairs as BLiMP has them; the number of a pair counts within its kind."
    rows = [
        {"sentence_good": f"{i} is.", "sentence_bad": f"{i} are.", "pairID": str(i % 4)}
        for i in range(n)
    ]
    if uid:
        rows = [row | {"UID": f"k{i // 4}", "field": "syntax"} for i, row in enumerate(rows)]
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_minimal_pairs_are_questions_as_they_are(tmp_path):
    "BLiMP had to be converted: prompt and rests, which no recipe for pairs has."
    pairs = read_examples(write_rows(tmp_path / "blimp.jsonl", minimal_pairs()))
    assert pairs.candidates[5] == ("5 is.", "5 are.") and {*pairs.answers} == {0}
    assert {*pairs.prompts} == {""} and pairs.ids[5] == "k1-1"
    assert pairs.cluster == "UID" and pairs.columns["cluster"][5] == "k1"
    assert pairs.columns["field"][0] == "syntax" and "sentence_good" not in pairs.columns
    # another cluster, ids and columns of another form, no kinds
    by_field = read_examples(tmp_path / "blimp.jsonl", "field")
    assert {*by_field.columns["cluster"]} == {"syntax"} and by_field.cluster == "field"
    row = {"id": "x", "good": "I am.", "bad": "I is.", "kind": "agreement"}
    short = read_examples(write_rows(tmp_path / "short.jsonl", [row]))
    assert short.ids == ("x",) and short.columns["cluster"] == ("agreement",)
    plain = [{"good": "I am.", "bad": "I is."}, {"good": "We are.", "bad": "We is."}]
    numbered = read_examples(write_rows(tmp_path / "plain.jsonl", plain))
    assert numbered.ids == ("0", "1") and numbered.cluster == ""
    for wrong, words in (
        ({"good": "I am.", "bad": "I am."}, "none twice"),
        ({"good": "I am.", "bad": ""}, "candidates must be"),
        ({"good": "I am.", "bad": 3}, "candidates must be"),
        ({"id": "x", "good": "I am.", "bad": "I is."}, "an id of its own"),
    ):
        path = write_rows(tmp_path / "wrong.jsonl", [row, {"id": "y"} | wrong])
        with pytest.raises(ContractError, match=words):
            read_examples(path)


def test_a_folder_of_minimal_pairs_has_a_file_for_each_kind(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for k in range(3):
        rows = minimal_pairs(4, uid=False)
        write_rows(folder / f"kind{k}.jsonl", rows)
    pairs = read_examples(folder)
    assert len(pairs) == 12 and pairs.ids[4] == "kind1-0" and pairs.cluster == "file"
    assert pairs.columns["cluster"][4] == "kind1"
    write_rows(folder / "zz.jsonl", [ROWS[0]])
    with pytest.raises(ContractError, match="3 of 4 files with pairs"):
        read_examples(folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ContractError, match="0 of 0 files"):
        read_examples(empty)


def test_minimal_pairs_are_compared_over_their_kinds(tmp_path):
    "The likelihood of whole sentences needs a token before them."
    root = save(gpt2(257), tmp_path / "base")
    save(llama(257, tied=True), tmp_path / "new")
    path = write_rows(tmp_path / "blimp.jsonl", minimal_pairs())
    line = ["compare", root, tmp_path / "new", "--questions", path, "--out", tmp_path / "r"]
    code, out, err = shell(*line, "--set", "bos=none")
    assert code == 3 and "a prompt must give the model a token to start from" in err, err
    code, out, err = shell(*line, "--set", "bos=add")
    assert code in (0, 1) and "Intervals over 12 clusters" in out, (out, err)
    said = " ".join(err.split())
    assert (
        "48 pairs of sentences, sentence_good against sentence_bad; 12 clusters by UID" in said
    )
    model = load_model(root)
    answers = answer_examples(model, read_examples(path), bos="add")
    plan, _ = plan_candidates(model, read_examples(path), bos="add")
    losses = score_plan(model, plan)
    totals = (losses.log_loss * losses.tokens).reshape(-1, 2)  # of whole sentences
    assert losses.tokens[:2].tolist() == [len("0 is."), len("0 are.")]
    assert answers.correct.tolist() == (totals[:, 0] <= totals[:, 1]).tolist()
