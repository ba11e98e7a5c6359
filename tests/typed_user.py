"A user's file: the names that other programs call, as a type checker sees them."

from pathlib import Path

import numpy as np

import invar_nb
from invar_nb import (
    HIGHER,
    LINEAR,
    METRICS,
    ContractError,
    Difference,
    Evaluator,
    Interval,
    Metric,
    MetricSpec,
    Pair,
    PairingError,
    Predictions,
    Report,
    Row,
    Rules,
    RunsArm,
    Study,
    UnitTotals,
    UsageError,
    WindowLosses,
    bootstrap_interval,
    brier_score,
    compare,
    compare_models,
    compare_weights,
    effective_sample_size,
    evaluate,
    holm,
    jackknife_interval,
    judge_runs,
    load_model,
    mcnemar,
    n_for_power,
    pair,
    pair_arrays,
    paired_t_test,
    pass_at_k,
    perplexity,
    plan_windows,
    read_losses,
    read_predictions,
    read_runs,
    register_metric,
    score_text,
    study,
    sum_pair,
    totals_difference,
    verify,
    weighted_mean,
    wilson_interval,
    write_losses,
)

before, tokens = np.linspace(2.5, 3.5, 60), np.full(60, 256)
both: Pair = pair_arrays(
    before, before + 0.001, tokens, document_ids=[f"d{k // 3}" for k in range(60)]
)
both = pair_arrays(before.tolist(), before.tolist(), tokens.tolist())
result: Study = compare(both, margin=0.02, level=0.95, by=None)
from_arrays: Study = compare(before, before.tolist(), score="f1", margin=0.01)
from_files: Study = compare("old.csv", Path("new.csv"), score="f1")
of_pages: Study = compare(before, before, score="f1", cluster=np.array(["page"] * 60))
of_tables: Study = compare("a.csv", "b.csv", cluster="doc", id="q", repeats="mean", by="topic")
of_few: Study = compare(before, before, score="rho", better="higher", same_unit=True)
of_models: Study = compare("base", "int8", text="docs.jsonl", max_length=256, gate=1.1)
strict: Study = study({}, required="equivalent", intersect=True, pooling="equal")
word: str | None = result.claim
headline: str = result.headline
rationale: str = result.rationale
delta: float = result.delta
ratio: float | None = result.ratio
interval: Interval = result.interval
low, high = interval
width: float = high - low
again: Interval | None = result.ratio_interval
p: float | None = result.p_value
n: int = result.n
n_eff: float = result.n_eff
units: str = result.units
baseline: float | None = result.baseline
candidate: float = result.candidate
row: Row = result["perplexity"]
row = result[row.key]
for one in result.rows:
    value = one.value
    claim: str | None = one.claim
    candidate_name: str = one.key.candidate
    if isinstance(value, Difference):
        change: float = value.delta
chosen: list[Row] = list(result.select(candidate="int8", metric="perplexity"))
report: Report = result.report()
code: int = report.exit_code
exit_code: int = int(report.exit.code)
saved: Path = report.save("report")
text: str = str(verify(saved))
print(result.summary(), result.to_markdown(), text, repr(result))
frame = result.to_frame()
axes = result.plot()
result.plot(ax=axes)
print(report.to_frame(), interval.plot(), result.row.to_frame(), frame[["change"]])

a = WindowLosses.from_arrays(
    ["w0", "w1"], [3, 4], [1.0, 2.0], model="a", document_ids=["d", "d"]
)
b = WindowLosses.from_arrays(["w0", "w1"], np.array([3, 4]), np.array([1.0, 2.0]), model="b")
matched: Pair = pair(a, b)
write_losses(a, "a.jsonl")
c: WindowLosses = read_losses("a.jsonl")
losses: np.ndarray = c.log_loss
names = c.window_ids
sweep: Study = study(
    {("baseline", ""): a, ("int8", ""): b}, Rules(margin=0.02, deciding=("int8",))
)
by_name: Study = study({"baseline": a, "int8": b}, Rules(margin={"perplexity": 0.02}))
alone: Study = evaluate(a)
models: Study = compare_models(
    "base", ["int8", "int4"], text="docs.jsonl", rules=Rules(margin=0.02), max_length=256
)
one_model: Study = compare_models("base", {"mine": "int8"}, questions=Path("arc.jsonl"))
made: Interval = jackknife_interval(before, tokens, units="serial", level=0.95)
drawn: Interval = bootstrap_interval(before, tokens, method="bca", seed=1)
metric: Metric = register_metric(
    Metric(name="seconds", unit="s", better="lower", scale="linear", margin=0.1)
)
known: list[str] = list(METRICS)
totals: UnitTotals = sum_pair(both, "perplexity")
totals = totals + totals
totals.write("t.json")
difference: Difference = totals_difference(UnitTotals.read("t.json"))
spec = MetricSpec("accuracy", direction=HIGHER, scale=LINEAR)
runs = read_runs("runs.jsonl")
over_seeds_: Study = study({"baseline": runs, "new": runs}, better={"loss": "lower"})
means: Study = evaluate(runs)
kept = RunsArm(runs=runs, model="adam")
verdict = judge_runs(spec, baseline_runs=runs, candidate_runs=runs)
said: str = verdict.verdict
why: str = verdict.rationale
source = Evaluator()
ppl: float = perplexity(before, tokens)
mean: float = weighted_mean(before, tokens)
size: float = effective_sample_size(tokens)
t = paired_t_test(before, before)
p_value: float | None = t.p_value
share: Interval = wilson_interval(7, 10)
tries: float = pass_at_k(10, 3, 1)
needed: int | None = n_for_power(0.1, 0.0, 0.02)
adjusted = holm([0.01, 0.2])
first_adjusted: float = adjusted[0]
score: float = brier_score(np.array([[0.5, 0.5]]), np.array([0]))
test = mcnemar(3, 5, 100)
model = load_model("base", dtype="float32")
scored: WindowLosses = score_text(model, ["a text"], max_length=64, stride=32)
plan = plan_windows(1000, max_length=256, stride=128)
begin: int = plan[0].start
answers: Predictions = read_predictions("a.jsonl")
changed = compare_weights("base", "int8")
try:
    pair(a, b)
except PairingError as error:
    where: str = error.culprit + error.cure + error.code
except (UsageError, ContractError) as other:
    print(other.code)
version: str = invar_nb.__version__
