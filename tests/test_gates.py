"""Gates: what a rule of one's own and ours do where nothing changed and at a loss, as `plan --gate` prints it, against runs through the real path.

`make tables` writes invar_nb/data/gates.csv: 1000 runs a cell, each through compare and the exit code; beside them what plans from 100 pilots of
the same size print, in the mean. A plan takes the spread as large as 80 of 100 pilots allow, so it should err on the side of more red builds."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from documents import exit_of, rule_line
from scipy import stats
from scipy.signal import lfilter
from studies import answers, losses
from test_shell import shell

from invar_nb import Scores, WindowLosses, compare, pair
from invar_nb.files.losses import write_losses
from invar_nb.foundations.refuse import UsageError
from invar_nb.metrics.metric import METRICS
from invar_nb.report.plan import gate_limit, gate_rates, plan_comparison
from invar_nb.statistics.planning import Goal, Pilot, chance_beyond, chance_of_red

TABLE = Path(__file__).parent.parent / "invar_nb" / "data" / "gates.csv"
TRIALS = 1000
RULES = {"compare": None, "compare --require not-worse": "not-worse"}


def answers_pair(rng, n, loss):
    "Accuracy 0.755; 12 % of the answers change, more to wrong than to right by the loss."
    right, u = rng.random(n) < 0.755, rng.random(n)
    lost, gained = (0.06 + loss / 2) / 0.755, (0.06 - loss / 2) / 0.245
    other = np.where(right, u >= lost, u < gained)
    return pair(
        *(
            Scores(ids=range(n), values=x.astype(float), model=name, score="exact match")
            for name, x in (("old", right), ("new", other))
        )
    )


def losses_pair(rng, d, ids, tokens):
    base = rng.gamma(9, 0.3, d.size)
    arm = lambda x, name: WindowLosses.from_arrays(
        [str(i) for i in range(d.size)],
        tokens,
        x,
        model=name,
        data_id="sha256:a",
        document_ids=ids,
    )
    return pair(arm(base, "old"), arm(base + d, "new"))


def documents_pair(rng, n, loss):
    "n documents of a geometric number of windows that share a tenth of a nat between them."
    windows = rng.geometric(1 / 6, n)
    d = loss + np.repeat(rng.normal(0, 0.03, n), windows) + rng.laplace(0, 0.04, windows.sum())
    return losses_pair(
        rng, d, [str(i) for i in np.repeat(range(n), windows)], rng.integers(200, 513, d.size)
    )


def text_pair(rng, n, loss):
    "n windows of one text; neighbours correlate by 0.3."
    d = lfilter([math.sqrt(1 - 0.09)], [1, -0.3], rng.standard_normal(n + 60))[60:]
    return losses_pair(rng, loss + 0.08 * d, None, np.full(n, 512))


KINDS = {
    "answers": (answers_pair, (200, 1000), 0.03),
    "documents": (documents_pair, (60, 240), 0.02),
    "one text": (text_pair, (90, 360), 0.02),
}  # draw, sizes, margin


def printed(kind, size, pilots):
    "rule -> rates at no loss, the margin, twice the margin: what plans from pilots of this size print for a run of it, in the mean."
    draw, _, margin = KINDS[kind]
    gate, more = (
        ("ratio>=0.945", {"metric": "score"}) if kind == "answers" else ("ratio<=1.02", {})
    )
    plans = [
        plan_comparison(
            draw(np.random.default_rng([1, seed]), size, 0.0),
            goal=Goal(margin=margin),
            gate=gate,
            **more,
        )
        for seed in range(pilots)
    ]
    rows = [plan.gate["rows"][:3] for plan in plans]
    return {
        row["rule"]: np.mean([one[k]["red"] for one in rows], axis=0)
        for k, row in enumerate(rows[0])
    }


def reds(kind, size, loss, trials, seed=0):
    "Share of runs that are red, rule by rule: compare, its claim, its exit code."
    draw, _, margin = KINDS[kind]
    rng, found = (
        np.random.default_rng([seed, size, round(1000 * loss)]),
        dict.fromkeys(RULES, 0),
    )
    for _ in range(trials):
        both = draw(rng, size, loss)
        study = compare(both, margin=margin, by=())
        for name, asked in RULES.items():
            found[name] += (
                exit_of(replace(study, rules=replace(study.rules, required=asked)))["code"]
                == 1
            )
    return {name: count / trials for name, count in found.items()}


def simulate(kind, trials=TRIALS, pilots=100):
    margin = KINDS[kind][2]
    for size in KINDS[kind][1]:
        rates = printed(kind, size, pilots)
        for k in range(3):
            for rule, share in reds(kind, size, k * margin, trials).items():
                yield {
                    "kind": kind,
                    "n": size,
                    "margin": margin,
                    "loss": round(k * margin, 4),
                    "rule": rule,
                    "trials": trials,
                    "red": round(share, 4),
                    "printed": round(rates[rule][k], 4),
                }


def broken(rows):
    "Cells that are red more often than printed where nothing changed, or less often at a loss, beyond 3 standard errors of the draws."
    slack = lambda r: (
        3 * math.sqrt(max(r["printed"] * (1 - r["printed"]), 1 / r["trials"]) / r["trials"])
    )
    return [
        r
        for r in rows
        if (
            r["red"] > r["printed"] + slack(r)
            if not r["loss"]
            else r["red"] < r["printed"] - slack(r)
        )
    ]


@pytest.mark.tables
def test_write_the_gates():
    rows = [row for kind in KINDS for row in simulate(kind)]
    with open(TABLE, "w", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    assert not broken(rows), broken(rows)


def stored():
    with open(TABLE, encoding="utf-8", newline="") as f:
        return [
            {k: v if k in ("kind", "rule") else float(v) for k, v in row.items()}
            for row in csv.DictReader(f)
        ]


def test_gates_are_red_as_often_as_printed():
    rows = stored()
    assert len(rows) == 36 and not broken(rows)
    line = rule_line(compare(losses()).report().document())
    said = (
        float(line.split("in about ")[1].split()[0]) / 100
    )  # the report's own rate of an edit without effect
    for r in rows:
        if r["rule"] == "compare" and not r["loss"]:
            assert r["red"] <= said + 3 * math.sqrt(said * (1 - said) / r["trials"])


def test_the_formula_gives_the_stored_shares():
    "Answers, whose spread is known; the rate of a normal law is off by what a lattice of 1/n leaves."
    for r in (r for r in stored() if r["kind"] == "answers"):
        p = chance_of_red(
            Pilot(sd=math.sqrt(0.12 - r["loss"] ** 2)),
            int(r["n"]),
            delta=r["loss"],
            margin=0.03,
            proof="require" in r["rule"],
        )
        assert (
            abs(p - r["red"])
            <= 4 * math.sqrt(max(p * (1 - p), 0.01) / r["trials"])
            + 0.5 / math.sqrt(0.12 * r["n"]) / 2.5
        ), r


@pytest.mark.parametrize("kind", KINDS)
def test_some_runs_again(kind):
    _, (size, _), margin = KINDS[kind]
    known = {
        (r["loss"], r["rule"]): r for r in stored() if (r["kind"], r["n"]) == (kind, size)
    }
    for loss in (0.0, 2 * margin):
        for rule, share in reds(kind, size, loss, 60, seed=1).items():
            p = known[loss, rule]["red"]
            assert abs(share - p) <= 4 * math.sqrt(max(p * (1 - p), 0.01) / 60), (
                loss,
                rule,
                share,
            )


def test_the_exit_code_is_the_reports():
    both = documents_pair(np.random.default_rng(0), 60, 0.04)
    study = compare(both, margin=0.02)
    assert (
        study.report().exit_code == exit_of(study)["code"] == 1
        and compare(documents_pair(np.random.default_rng(1), 60, 0.0), margin=0.02)
        .report()
        .exit_code
        == 0
    )


@pytest.mark.parametrize(
    "rule, metric, level, limit",
    [
        ("ratio>=0.95", "accuracy", 0.8, 0.04),
        ("drop<=2%", "accuracy", 0.8, 0.02),
        ("drop <= 0.02", "accuracy", None, 0.02),
        ("drop<=3", "score", 70, 3),
        ("rtol=8%", "accuracy", 0.5, 0.04),
        ("accuracy>=70%", "accuracy", 0.75, 0.05),
        ("accuracy>=0.8", "accuracy", 0.75, -0.05),
        ("ratio<=1.02", "perplexity", None, math.log(1.02)),
        ("perplexity<=20", "perplexity", 10, math.log(2)),
        ("brier<=0.3", "brier", 0.2, 0.1),
        ("ratio<=1.5", "brier", 0.2, 0.1),
    ],
)
def test_a_rule_is_a_limit_of_the_loss(rule, metric, level, limit):
    assert gate_limit(rule, METRICS[metric], level) == pytest.approx(limit, abs=1e-12)


def test_a_rule_names_a_score_as_its_column_is_called():
    right = replace(METRICS["score"], title="correct", unit="share")
    for name in ("correct", "score", "accuracy"):
        assert gate_limit(f"{name}>=0.78", right, 0.8) == pytest.approx(0.02)
    with pytest.raises(
        UsageError,
        match=r"must be .* correct>=VALUE; got 'recovery>=0.98'. Write ratio>=0.98, a share of the baseline's, or drop<=2%, points lost",
    ):
        gate_limit("recovery>=0.98", right, 0.8)
    with pytest.raises(UsageError, match="a gate on seconds"):
        gate_limit("accuracy>=0.78", replace(right, title="seconds", unit=""), 0.8)


@pytest.mark.parametrize(
    "rule, metric, level, words",
    [
        ("ratio<=0.95", "accuracy", 0.8, "ratio>=VALUE"),
        ("drop<=2%", "perplexity", 9, "ratio<=VALUE"),
        ("drop<=2", "accuracy", 0.8, "drop<=2%"),
        ("rtol=1", "accuracy", 0.8, "rtol=VALUE"),
        ("ratio>=0", "accuracy", 0.8, "got 'ratio>=0'"),
        ("perplexity<=20", "perplexity", None, "ratio<=VALUE or rtol=VALUE or upper<=VALUE;"),
        ("", "perplexity", 9, "perplexity<=VALUE"),
        ("perplexity<=20%", "perplexity", 9, "got 'perplexity<=20%'"),
        ("drop<=2%", "score", 0.8, "got 'drop<=2%'"),
        ("kl_divergence<=0.1", "kl_divergence", None, "answers, scores, or losses"),
    ],
)
def test_what_is_no_rule_is_refused(rule, metric, level, words):
    with pytest.raises(UsageError, match="a gate") as error:
        gate_limit(rule, METRICS[metric], level)
    assert words in str(error.value)


@pytest.mark.parametrize("n", [50, 200, 1000])
@pytest.mark.parametrize("loss", [0.0, 0.02, 0.06])
def test_rates_of_answers_against_the_exact_law(n, loss):
    "Losses less gains: a binomial number of flips, each a loss with one probability."
    flips, limit = 0.12, 0.05 * 0.755
    least = math.floor(limit * n + 1e-9) + 1  # losses less gains that are red
    m = np.arange(n + 1)
    exact = stats.binom.pmf(m, n, flips) @ stats.binom.sf(
        np.ceil((m + least) / 2) - 1, m, (flips + loss) / 2 / flips
    )
    assert chance_beyond(
        Pilot(sd=math.sqrt(flips - loss**2)), n, delta=loss, limit=limit, step=1 / n
    ) == pytest.approx(exact, abs=0.012)


def test_a_plan_says_how_often_a_rule_is_red():
    plan = plan_comparison(
        answers(flips=12), goal=Goal(margin=0.02), metric="accuracy", gate="ratio>=0.95"
    )
    rows, facts = plan.gate["rows"], plan.to_dict()["gate"]
    assert (
        [row["windows"] for row in rows[::3]] == [200, plan.needed["windows"]]
        and facts["losses"] == [0, 0.02, 0.04]
        and facts["limit"]
        == pytest.approx(0.05 * compare(answers(flips=12)).row.value.baseline)
    )
    assert (
        "ratio>=0.95" in str(plan)
        and "-4 points" in str(plan)
        and plan_comparison(0.05).gate is None
    )
    for row in rows:
        assert row["red"] == sorted(row["red"])
    known = dict(level=0.755, metric=METRICS["accuracy"])
    wide, narrow = (
        gate_rates("drop<=2%", Pilot(sd=sd), {400: 400}, Goal(), **known)["rows"]
        for sd in (0.4, 0.2)
    )
    assert wide[0]["red"][0] > narrow[0]["red"][0] and wide[1]["red"][2] < narrow[1]["red"][2]
    with pytest.raises(UsageError, match="losses of the margin"):
        plan_comparison(0.05, goal=Goal(margin=None, half_width=0.01), gate="ratio<=1.02")


def test_every_source_of_a_plan_takes_a_gate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    both = losses()
    for name, arm in (("a", both.baseline), ("b", both.candidate)):
        write_losses(arm, tmp_path / f"{name}.jsonl")
    for name, shift in (("x", 0), ("y", 0.01)):
        (tmp_path / f"{name}.csv").write_text(
            "seed,terminal,loss\n"
            + "".join(f"{i},ok,{3 + shift + i % 3 / 50 * (1 + shift)}\n" for i in range(6))
        )
    ppl = compare(both).row.value.baseline

    def gate(line):
        return json.loads(shell("plan", *line.split(), "--json")[1])["gate"]

    for line in ("a.jsonl b.jsonl", "a.jsonl --correlation 0.999", "--sd 0.05"):
        assert (
            gate(f"{line} --gate rtol=2%")["limit"] == pytest.approx(math.log(1.02))
            and gate(line) is None
        )
    for line in ("a.jsonl b.jsonl", "a.jsonl --correlation 0.999"):
        assert gate(f"{line} --gate perplexity<={1.5 * ppl:.12f}")["limit"] == pytest.approx(
            math.log(1.5)
        ), "the level is the file's own"
    upper, _, proof = (
        row["red"]
        for row in gate(f"a.jsonl b.jsonl --margin 2% --gate upper<={math.exp(0.02)}")["rows"][
            :3
        ]
    )
    assert (
        upper == pytest.approx(proof)
        and shell("plan", "a.csv", "b.csv", "--gate", "upper<=1.02")[0] == 2
    )
    code, out, err = shell(
        "plan", "x.csv", "y.csv", "--metric", "loss", "--gate", "ratio<=1.02"
    )
    assert code == 2 and not out and "a gate needs answers, scores, or losses" in err


def test_scores_of_0_and_1_are_planned_as_they_are_compared(tmp_path, monkeypatch):
    "Their margin is 2 points where none is given, and a percentage is points."
    monkeypatch.chdir(tmp_path)
    right = np.arange(400) % 4 > 0
    for name, flip in (("x", 1), ("y", 17)):
        (tmp_path / f"{name}.csv").write_text(
            "id,correct\n"
            + "".join(f"q{i},{int(r ^ (i % flip == 1))}\n" for i, r in enumerate(right))
        )

    def goal(*more):
        return json.loads(shell("plan", "x.csv", "y.csv", *more, "--json")[1])["goal"][
            "margin"
        ]

    assert goal() == goal("--margin", "2%") == 0.02 and goal("--margin", "3%") == 0.03
    code, _, err = shell("plan", "x.csv", "y.csv", "--gate", "round(new/old, 2) >= 0.95")
    assert code == 2 and "Write ratio>=0.945, unrounded." in err
