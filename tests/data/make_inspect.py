"""Runs inspect_ai on its mock model, offline, and keeps its logs; the files in tests/data/inspect were made so.

    python make_inspect.py MODELS OUT      MODELS holds base/ and tuned/; run by a Python that has inspect_ai, torch and transformers

The mock model is a callable: log-probabilities are those of the shipped models, answers are drawn at random. Each log is written as JSON,
those of base as .eval too. Before that it loses what describes the machine or is of no use here: revision, events, messages, outputs, timing."""

import argparse
import json
import random
from pathlib import Path

import torch
from inspect_ai import Task
from inspect_ai import eval as run
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalStats, write_eval_log
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import Score, choice, match, mean, perplexity, scorer
from inspect_ai.solver import generate, multiple_choice
from transformers import AutoModelForCausalLM

NOUNS = [
    "file",
    "name",
    "value",
    "module",
    "class",
    "object",
    "number",
    "string",
    "function",
    "method",
    "argument",
    "error",
    "result",
    "test",
    "item",
    "list",
]


@scorer(metrics=[mean()])
def letters():
    "A number: how many letters the model said."

    async def score(state, target):
        return Score(value=len(state.output.completion) / 7)

    return score


@scorer(metrics={"long": [mean()], "first": [mean()]})
def several():
    "Two numbers under one name."

    async def score(state, target):
        return Score(
            value={
                "long": len(state.output.completion),
                "first": int(state.output.completion[:1] == "A"),
            }
        )

    return score


def log_probs(model, text):
    "Of every byte after the first: the shipped tokenizer's tokens are bytes."
    ids = torch.tensor([list(text.encode())])
    with torch.no_grad():
        logits = model(ids).logits.double().log_softmax(-1)[0, :-1]
    return logits.gather(1, ids[0, 1:, None])[:, 0].tolist()


def callable_model(folder, name):
    "A mock model: log-probabilities are those of the weights, answers are drawn from the question."
    model, calls = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), {}

    def answer(messages, tools, tool_choice, config):
        text = messages[-1].text
        calls[text] = calls.get(text, -1) + 1
        again = calls[text] * (
            random.Random(text).random() < 0.3
        )  # most questions are answered alike in both epochs
        noise = random.Random(f"{name} {again} {text}")
        said = (
            noise.choice(["ANSWER: A", "ANSWER: B", "ANSWER: C", "I do not know"])
            if "ANSWER" in text
            else noise.choice(NOUNS)
        )
        logprobs = (
            [Logprob(token="", logprob=x) for x in log_probs(model, "\n" + text[:250])]
            if config.prompt_logprobs
            else None
        )
        return ModelOutput(
            model=name,
            usage=ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2),
            choices=[
                ChatCompletionChoice(
                    message=ChatMessageAssistant(content=said),
                    stop_reason="stop",
                    prompt_logprobs=logprobs and Logprobs(content=logprobs),
                )
            ],
        )

    return get_model(
        "mockllm/model", custom_outputs=answer, memoize=False, config=GenerateConfig()
    )


def tasks():
    r = random.Random(16)
    sentence = lambda: (
        f"The {r.choice(NOUNS)} of a {r.choice(NOUNS)} is the {r.choice(NOUNS)} of this {r.choice(NOUNS)}."
    )
    picked = [
        Sample(
            id=f"q{i:02d}",
            input=f"Which word follows in: {sentence()}",
            choices=r.sample(NOUNS, 3),
            target=r.choice("ABC"),
        )
        for i in range(20)
    ]
    texts = [
        Sample(
            id=i + 1,
            input=" ".join(sentence() for _ in range(r.randrange(1, 4))),
            target=r.choice(NOUNS),
        )
        for i in range(20)
    ]
    yield Task(
        name="choices",
        dataset=MemoryDataset(picked, name="picked"),
        solver=multiple_choice(),
        scorer=[choice(), letters(), several()],
        epochs=2,
        version=1,
    )
    yield Task(
        name="texts",
        dataset=MemoryDataset(texts, name="texts"),
        solver=generate(prompt_logprobs=1),
        scorer=[perplexity(), match(location="any")],
        version=1,
    )


def scrubbed(log, name):
    log.eval.revision, log.eval.task_file, log.eval.packages, log.stats = (
        None,
        None,
        {},
        EvalStats(),
    )
    log.eval.model, log.location = f"shipped/{name}", ""
    for sample in log.samples:
        (
            sample.events,
            sample.messages,
            sample.output,
            sample.attachments,
            sample.store,
            sample.model_usage,
        ) = [], [], ModelOutput(), {}, {}, {}
        for field in (
            "timelines",
            "events_data",
            "started_at",
            "completed_at",
            "total_time",
            "working_time",
            "uuid",
            "role_usage",
            "turn_count",
        ):
            if getattr(sample, field, None):
                setattr(sample, field, {} if field == "role_usage" else None)
        for score in sample.scores.values():
            score.explanation, score.history = None, []
    for reduction in log.reductions or ():
        reduction.samples = []
    return log


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument("models", type=Path)
    a.add_argument("out", type=Path)
    a = a.parse_args()
    for name in ("base", "tuned"):
        (a.out / name).mkdir(parents=True, exist_ok=True)
        for log in run(
            list(tasks()),
            model=callable_model(a.models / name, name),
            log_dir=str(a.out / "raw"),
            display="none",
            log_samples=True,
        ):
            if log.status != "success":
                raise SystemExit(json.dumps(str(log.error)))
            for form in ("json", "eval")[: 2 if name == "base" else 1]:
                write_eval_log(
                    scrubbed(log, name),
                    str(a.out / name / f"{log.eval.task}.{form}"),
                    format=form,
                )


if __name__ == "__main__":
    main()
