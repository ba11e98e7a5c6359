"""Small studies of every kind, made from seeds: the arms, and one study for each shape that a report can have."""

import numpy as np

from invar_nb import (
    Predictions,
    Rules,
    Scores,
    Translations,
    WindowLosses,
    compare,
    pair,
    study,
)
from invar_nb.comparison.looks import look_at, order_units
from invar_nb.metrics.divergence import change_columns, change_counts
from invar_nb.runs.evaluator import RunsArm
from invar_nb.runs.runs import read_row


def losses(shift=0.0, noise=0.03, n=96, seed=1, **more):
    "A pair of loss arms, one document a window."
    rng = np.random.default_rng(seed)
    base = rng.gamma(9, 0.3, n)
    arm = lambda values, name: WindowLosses.from_arrays(
        [f"{i}:0-64" for i in range(n)],
        [64] * n,
        values,
        model=name,
        data_id="sha256:abc",
        **{"document_ids": [f"d{i}" for i in range(n)], "n_bytes": [200] * n} | more,
    )
    return pair(arm(base, "old"), arm(base + shift + rng.normal(0, noise, n), "new"))


def answers(flips=6, n=200, worse="es", candidate="new"):
    "A pair of answers; the candidate is wrong on the first examples of one language."
    rng = np.random.default_rng(5)
    label = ["yes" if x else "no" for x in rng.integers(0, 2, n)]
    other = {"yes": "no", "no": "yes"}
    wrong = rng.random(n) < 0.2
    base = [other[t] if w else t for t, w in zip(label, wrong, strict=True)]
    language = ["es" if i % 4 == 0 else "en" for i in range(n)]
    hit = [i for i in range(n) if language[i] == worse and not wrong[i]][:flips]
    new = [
        other[t] if i in hit else p for i, (t, p) in enumerate(zip(label, base, strict=True))
    ]
    arm = lambda prediction, name: Predictions(
        model=name,
        data_id="",
        ids=[f"q{i}" for i in range(n)],
        labels=("no", "yes"),
        label=label,
        prediction=prediction,
        confidence=np.full(n, 0.8),
        slices={"language": language},
    )
    return pair(arm(base, "old"), arm(new, candidate))


def marks(n=60, shift=0.05, binary=False, seed=8, **more):
    "A pair of scores, with prompts; 0 or 1 where asked."
    rng = np.random.default_rng(seed)
    base = rng.random(n)
    values = [
        x.round().clip(0, 1) if binary else x
        for x in (base, base + shift + rng.normal(0, 0.05, n))
    ]
    arm = lambda x, name: Scores(
        ids=[f"q{i:03d}" for i in range(n)],
        values=x,
        model=name,
        score="f1",
        data_id="squad@2",
        prompt_digests=[f"sha256:{i}" for i in range(n)],
        **more,
    )
    return pair(arm(values[0], "old"), arm(values[1], "new"))


def translations(n=40):
    "A pair of translations; the candidate loses the last word of every other sentence."
    right = [" ".join(f"w{(7 * i + k * k) % 11}" for k in range(5 + i % 7)) for i in range(n)]
    arm = lambda texts, name: Translations(
        ids=range(n), hypotheses=texts, references=right, model=name
    )
    old = [text.replace("w3", "w4") for text in right]
    return pair(
        arm(old, "old"),
        arm([x.rsplit(" ", 1 + i % 2)[0] + " w1" for i, x in enumerate(old)], "new"),
    )


def scored_again(arm):
    "The baseline scored twice: noise of a millionth of a nat, in other batches."
    noise = np.random.default_rng(2).normal(0, 1e-6, len(arm))
    return arm.changed(
        log_loss=arm.log_loss + noise, provenance={"batch_tokens": 2048, "order": "backwards"}
    )


def arms_of(parts, control=False):
    "(name, part) -> arm of pairs by part, with a control where asked."
    arms = {
        (name, part): getattr(both, name)
        for part, both in parts.items()
        for name in ("baseline", "candidate")
    }
    return arms | {
        ("control", part): scored_again(both.baseline)
        for part, both in parts.items()
        if control
    }


def looked(shift=0.0, noise=0.03, n=240, seed=1, margin=None, **design):
    "A comparison that stopped at the look that decided, or at the last."
    record = {
        "target": "text",
        "looks": 4,
        "spending": "pocock",
        "seed": 7,
        **design,
        "windows": n,
        "tokens": 64 * n,
    }
    whole = losses(shift, noise, n, seed, provenance={"looks": record})
    for k in (order := order_units(whole.baseline)).at:
        seen = whole.take(order.rows(k))
        if look_at(seen, margin=margin).looks.decided:
            break
    return seen


def with_passages():
    "Documents of two windows, from two files."
    both = losses(0.03, n=48)
    ids = [f"d{i // 2}" for i in range(len(both))]
    facts = {
        "document_files": {
            name: "a.txt" if i % 3 else "b.txt" for i, name in enumerate(dict.fromkeys(ids))
        },
        "windows_planned": 60,
    }
    return pair(
        *(
            arm.changed(document_ids=tuple(ids), provenance=facts)
            for arm in (both.baseline, both.candidate)
        )
    )


def with_divergence(n=40):
    "Losses with columns of a change of probability, with four values."
    rng, tokens = np.random.default_rng(6), losses(n=n).candidate.tokens
    drawn = [rng.choice([-0.3, -0.01, 0, 0.02], t) for t in tokens]
    columns = change_columns(
        np.array([x.sum() for x in drawn]), np.array([change_counts(x) for x in drawn])
    )
    return losses(
        0.01,
        n=n,
        columns={"kl_divergence": np.linspace(0.1, 1, n), "top1_changed": [0] * n, **columns},
    )


def copies(n=60):
    "Losses of a baseline and four candidates: the same, a little, some, much worse."
    rng, base = np.random.default_rng(4), losses(n=n).baseline
    arm = lambda name, shift, noise: base.changed(
        model=name, log_loss=base.log_loss + shift + noise * rng.normal(size=n)
    )
    return {
        ("baseline", ""): base,
        ("same", ""): arm("same", 0, 0),
        ("q8", ""): arm("q8", 0.0005, 0.003),
        ("q4", ""): arm("q4", 0.03, 0.02),
        ("q2", ""): arm("q2", 0.2, 0.1),
    }


def sized():
    "Two candidates with scores where less is better, and their sizes."
    rng, base = np.random.default_rng(3), marks(better="lower").baseline
    arm = lambda k: base.changed(
        model=f"q{k}",
        values=base.values + 0.2 * k + rng.normal(0, 0.2, len(base)),
        provenance={"bits_per_weight": 8 - k},
    )
    return {("baseline", ""): base} | {(f"q{k}", ""): arm(k) for k in range(2)}


def everything():
    "Three candidates on two texts with languages and on questions, the texts with a control."
    arms = {}
    for text, seed in (("law", 2), ("news", 3)):
        facts = {"document_languages": {f"d{i}": ("en", "es")[i % 2] for i in range(30)}}
        base = losses(n=30, seed=seed, provenance=facts).baseline
        arms |= {
            ("baseline", text): base,
            ("control", text): base.changed(log_loss=scored_again(base).log_loss),
        }
        arms |= {
            (f"q{k}", text): base.changed(
                model=f"q{k}",
                log_loss=losses(k / 60, n=30, seed=seed + k).candidate.log_loss
                - losses(n=30, seed=seed + k).baseline.log_loss
                + base.log_loss,
            )
            for k in (1, 2, 3)
        }
    arms["baseline", "quiz"] = answers(n=60).baseline
    return arms | {
        (f"q{k}", "quiz"): answers(4 * k, 60, candidate=f"q{k}").candidate for k in (1, 2, 3)
    }


def recipes(ends=()):
    "Runs of a baseline and three recipes: one is better, one as good, one may have failed; `ends` of the last run of some."
    rows = [
        {"seed": s, "terminal": "ok", "loss": 2.3 + 0.01 * s, "hours": 3.0 + s % 3}
        for s in range(6)
    ]
    made = {
        name: [
            row
            | {
                "loss": row["loss"] + shift + 0.003 * ((7 * s + k) % 5),
                "hours": 3.0 + (s + k) % 2,
            }
            for s, row in enumerate(rows)
        ]
        for k, (name, shift) in enumerate((("lion", -0.15), ("sgd", 0.0), ("adagrad", 0.2)))
    } | {"baseline": rows}
    for name, end in dict(ends).items():
        made[name][-1] |= {"terminal": end}
    return {
        (name, "runs"): RunsArm(runs=tuple(map(read_row, part)), model=name)
        for name, part in made.items()
    }


def three_texts():
    return {
        name: losses(0.02 * k, n=30, seed=k)
        for k, name in enumerate(("code", "law", "news"), 1)
    }


BY_LANGUAGE = {"slices": {"language": ["en", "es"] * 30}}
STUDIES = {
    "losses": lambda: compare(losses(0.03, n=40), gate=1.2),
    "bootstrap": lambda: compare(
        losses(0.03, n=40), metrics=["perplexity"], method="bca", replicates=999, seed=3
    ),
    "passages": lambda: compare(
        with_passages(),
        metrics=["perplexity"],
        by=["source"],
    ),
    "control": lambda: study(arms_of({"": with_divergence()}, control=True)),
    "looks": lambda: compare(looked(0.015, n=150, looks=3), gate=1.2),
    "answers": lambda: compare(answers(n=60), metrics=["accuracy", "brier"]),
    "scores": lambda: compare(
        marks(better="lower", clusters=np.repeat(range(20), 3).tolist()), margin=0.1
    ),
    "shares": lambda: compare(marks(binary=True, **BY_LANGUAGE)),
    "translations": lambda: compare(translations()),
    "candidates": lambda: study(sized(), Rules(deciding="q0", margin=0.1)),
    "tasks": lambda: study(
        arms_of({"one": marks(better="lower"), "two/x": marks(binary=True)})
    ),
    "text and questions": lambda: study(
        arms_of({"text": losses(0.03, n=40), "examples": answers(n=60)}),
        Rules(deciding="text", by=()),
    ),
    "pooled": lambda: study(
        arms_of(three_texts()), Rules(pooling="random", metrics=["perplexity"])
    ),
    "everything": lambda: study(
        everything(), Rules(metrics=["perplexity", "accuracy"], required="all")
    ),
    "runs of several": lambda: study(
        recipes(),
        Rules(
            metrics=["loss", "hours"],
            better={"loss": "lower", "hours": "lower"},
            scale={"loss": "log"},
            multiplicity="benjamini_hochberg",
        ),
    ),
    "one arm's losses": lambda: study({("baseline", ""): losses(n=40).baseline}),
    "one arm's answers": lambda: study({("baseline", ""): answers(n=60).candidate}),
    "one arm's scores": lambda: study(
        {("baseline", ""): marks(**BY_LANGUAGE).candidate}, Rules(level=0.9)
    ),
}
