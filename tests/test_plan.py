"""Plans through the command: from models, files, one file, a standard deviation; which windows a pilot takes; what a run then keeps."""

import json
import math
import re
import shlex

import numpy as np
import pytest
from scipy import stats
from studies import answers, losses
from test_shell import shell

from invar_nb.arms.pair import pair_arrays
from invar_nb.arms.pilot import Supply, choose_pilot, share_between, with_tails
from invar_nb.comparison.study import compare
from invar_nb.files.losses import read_losses, write_losses
from invar_nb.foundations.refuse import ContractError, UsageError
from invar_nb.models.demo_text import demo_documents
from invar_nb.report.plan import plan_comparison
from invar_nb.shell.demo import demo_model, quantised_copy
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.planning import Goal, as_pilot


def test_a_pilot_reaches_from_one_end_of_the_text_to_the_other():
    places, block = choose_pilot("serial", np.arange(1000), 40)
    assert block == 5 and len(places) == 40 and places[-1] == 999
    assert list(places[:6]) == [0, 1, 2, 3, 4, 142]
    assert choose_pilot("serial", np.arange(41), 40)[0].size == 40
    assert list(choose_pilot("serial", np.arange(30), 40)[0]) == list(range(30))
    places, block = choose_pilot("documents", np.repeat(np.arange(100)[::-1], 20), 40)
    documents = places // 20
    assert block == 1 and len(places) == 320 and len(set(documents)) == 40
    assert np.bincount(documents)[documents].min() == 8 and documents[-1] >= 97
    assert list(choose_pilot("windows", np.arange(100), 10)[0]) == list(range(5, 100, 10))


def test_documents_are_whole_and_what_is_beyond_the_text_is_in_proportion():
    supply = Supply(
        tokens=np.full(30, 10), read=2 * np.full(30, 20), codes=np.repeat(range(10), 3)
    )
    assert supply.size(4) == {"windows": 12, "tokens": 120, "model_tokens": 480}
    assert supply.size(3.2)["windows"] == 12 and supply.size(10)["windows"] == 30
    assert supply.size(25)["windows"] == 75 and supply.units == 10


def test_a_shift_of_all_windows_changes_no_share_between_documents():
    rng, codes = np.random.default_rng(3), np.repeat(np.arange(12), 5)
    d = rng.normal(size=12)[codes] + rng.normal(size=60)
    share = lambda shift: share_between(
        pair_arrays(np.full(60, 9.0), 9 + shift + 0.1 * d, np.full(60, 64)), codes
    )
    assert 0 < share(0) < 1 and share(0.5) == pytest.approx(share(0), rel=1e-9)


def test_a_plan_from_a_standard_deviation_is_the_textbooks():
    code, out, _ = shell("plan", "--sd", "0.05", "--margin", "1%", "--json")
    d = json.loads(out)
    exact = ((stats.norm.ppf(0.975) + stats.norm.ppf(0.9)) * 5) ** 2
    assert (
        code == 0
        and d["exit_code"] == 0
        and exact < d["needed"]["windows"] < exact + 4
        and d["text"] is None
        and d["next"] is None
    )
    one = json.loads(
        shell(
            "plan",
            "--sd",
            "0.05",
            "--margin",
            "1%",
            "--expect",
            "2%",
            "--power",
            "0.9",
            "--json",
        )[1]
    )["needed"]["windows"]
    edge = ((stats.norm.ppf(0.975) + stats.norm.ppf(0.9)) * 2.5) ** 2
    assert edge < one < edge + 4
    half = json.loads(shell("plan", "--sd", "0.05", "--half-width", "1%", "--json")[1])
    assert (
        96 < half["needed"]["windows"] < 120
        and half["needed"]["power"] is None
        and half["needed"]["half_width"] <= 0.01
    )
    for r in d["table"]:
        assert r["smallest_margin"] > r["smallest_change"] > r["half_width"] > 0


@pytest.fixture
def files(tmp_path):
    both = losses(0.0, n=90)
    for name, arm in (("a", both.baseline), ("b", both.candidate)):
        write_losses(arm.changed(document_ids=None), tmp_path / f"{name}.jsonl")
    return tmp_path / "a.jsonl", tmp_path / "b.jsonl"


def test_two_files_one_file_and_answers(files, tmp_path):
    code, out, _ = shell("plan", *files, "--margin", "1%", "--out", tmp_path / "p")
    assert code == 0 and "planned" in out and "windows in text order" in out
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["plan.json"]
    d = json.loads((tmp_path / "p" / "plan.json").read_text())
    assert f"Planned: {d['needed']['windows']:,} windows" in out
    assert (
        d["needed"]["power"] >= 0.8
        and d["units"] == "serial"
        and d["pilot"]["dof"] < 10
        and "tokens" in d["needed"]
    )
    assert (
        shell("plan", *files, "--margin", "1%", "--out", tmp_path / "p")[0] == 2
        and shell("plan", *files, "--out", tmp_path / "p", "--force")[0] == 0
    )
    widths = [
        json.loads(
            shell("plan", files[0], "--correlation", r, "--units", "windows", "--json")[1]
        )["pilot"]["sd"]
        for r in (0.99, 0.9975)
    ]
    assert widths[0] == pytest.approx(2 * widths[1])
    plan = plan_comparison(answers(), goal=Goal(margin=0.05), metric="accuracy")
    assert plan.items == "examples" and "points" in str(plan) and plan.needed["windows"] > 10


@pytest.mark.parametrize(
    "options, code, words",
    [
        ((), 2, "plan needs BASELINE and CANDIDATE"),
        (("--sd", "0"), 2, "--sd must be"),
        (("--sd", "nan"), 2, "--sd must be"),
        (("a", "--sd", "1"), 2, "without models"),
        (("--sd", "1", "--margin", "0%"), 2, "--margin must be"),
        (("--sd", "1", "--half-width", "x"), 2, "--half-width must be"),
        (("--sd", "1", "--margin", "2%", "--expect", "2%"), 2, "as large as the margin"),
        (("--sd", "1", "--price", "2/h"), 2, "No such option: --price"),
        (("--sd", "1", "--units", "documents"), 2, "independent units"),
        (("--sd", "1", "--pilot", "50"), 2, "--pilot works only when models"),
        (("--sd", "1", "--stride", "5"), 2, "--stride works only when models"),
        (("a",), 2, "one file with --correlation"),
        (("a", "--correlation", "1"), 2, "correlation"),
        (("a", "b", "--correlation", ".9"), 2, "works with one file"),
        (("a", "a"), 3, "must show some spread"),
        (("--power", "1", "--sd", "1"), 2, "power"),
        (("a", "b", "--margin", "brier=2%"), 2, "--margin must be a size"),
        (("a", "missing.jsonl"), 2, "must exist"),
        (("a", "b", "--units", "documents"), 2, "needs a document or cluster"),
    ],
)
def test_what_makes_no_plan_is_refused_in_one_line(
    files, tmp_path, monkeypatch, options, code, words
):
    monkeypatch.chdir(tmp_path)
    named = {"a": files[0], "b": files[1]}
    found, out, err = shell("plan", *(named.get(word, word) for word in options), "--quiet")
    assert found == code and not out and len(err.strip().splitlines()) == 1 and words in err, (
        err
    )
    assert not (tmp_path / "invar-nb-plan").exists()


def test_the_library_refuses_too():
    with pytest.raises(UsageError, match="margin"):
        Goal(margin=None)
    with pytest.raises(ContractError, match="10 effective"):
        plan_comparison(losses(0.0, n=8))
    with pytest.raises(UsageError, match="as large as the margin"):
        Goal(margin=0.01, expected=-0.01)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    pytest.importorskip("torch")
    here = tmp_path_factory.mktemp("plan")
    for name in ("base", "tuned"):
        (here / name).symlink_to(demo_model(name))
    (here / "docs.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in demo_documents()[1])
    )
    (here / "one.txt").write_text("\n\n".join(t for t in demo_documents()[1])[:12000])
    return here


def test_a_pilot_of_models_in_one_text(models, monkeypatch):
    monkeypatch.chdir(models)
    code, out, err = shell(
        "plan",
        "base",
        "tuned",
        "--text",
        "one.txt",
        "--max-length",
        "64",
        "--stride",
        "63",
        "--out",
        "serial",
        "--json",
    )
    d = json.loads(out)
    assert code == 0 and d["enough"] is False, err
    assert 2 * d["needed"]["tokens"] < d["needed"]["model_tokens"]
    assert sorted(path.name for path in (models / "serial").iterdir()) == [
        "baseline.jsonl",
        "candidate.jsonl",
        "plan.json",
    ]
    assert "--windows" not in d["next"] and d["next"].startswith(
        "invar-nb compare base tuned --text one.txt --max-length 64 --stride 63"
    )
    again = json.loads(
        shell("plan", "serial/baseline.jsonl", "serial/candidate.jsonl", "--json")[1]
    )
    assert (
        shell(
            "score",
            "base",
            "--text",
            "one.txt",
            "--max-length",
            "64",
            "--stride",
            "63",
            "--out",
            "base.jsonl",
        )[0]
        == 0
    )
    half, once_more = (
        json.loads(
            shell(
                "plan",
                "base.jsonl",
                "tuned",
                "--text",
                "one.txt",
                "--half-width",
                "20%",
                "--out",
                "half",
                "--json",
                "--force",
            )[1]
        )
        for _ in range(2)
    )
    assert once_more["needed"]["windows"] == half["needed"]["windows"], (
        "a plan takes the place of an older one"
    )
    assert half["decided"] is None and "A plan claims nothing" in shell("verify", "half")[2]
    assert [plan_comparison(losses(m, n=60)).decided for m in (0.1, 0.0, 0.02)] == [
        "regressed, beyond the margin of 2 %",
        "equivalent within 2 %",
        "regressed, perhaps by less than 2 %",
    ]
    assert (
        half["enough"]
        and half["next"] == "invar-nb compare base.jsonl tuned --text one.txt"
        and half["needed"]["model_tokens"] < d["needed"]["model_tokens"] / 2
    )
    assert (
        again["needed"]["units"] == d["needed"]["units"]
        and again["pilot"]["sd"] == d["pilot"]["sd"]
        and not list(models.glob(".*journal"))
    )


def test_a_plan_from_chosen_windows_is_named_and_works(models, monkeypatch):
    "The refusal of --windows says how to size a pilot, and the commands that plan from them."
    monkeypatch.chdir(models)
    options = ("--text", "one.txt", "--max-length", "64", "--margin", "2%")
    code, _, err = shell("plan", "base", "tuned", *options, "--windows", "20")
    assert code == 2 and "--pilot N chooses the size of the pilot" in err, err
    commands = err.split("Or plan from these windows: ")[1].strip().removesuffix(".")
    for command in commands.split(" && "):
        code, out, err = shell(*shlex.split(command)[1:])
        assert code == 0, err
    assert "Goal: equivalent within 2 %" in out and "Pilot: 20 windows" in out


def test_the_size_of_a_pilot_is_said_before_it_is_scored(models, monkeypatch):
    monkeypatch.chdir(models)
    options = ("--text", "docs.jsonl", "--max-length", "32", "--pilot", "12", "--out", "sized")
    _, _, err = shell("plan", "base", "tuned", *options, "--half-width", "20%")
    announced = re.search(
        r"pilot: (\d+) windows, [\d,]+ tokens with each model, from 12 documents; --pilot N",
        err,
    )
    assert announced and 12 < int(announced[1]) <= 96, err
    assert err.index("pilot: ") < err.index("baseline: perplexity")


def test_a_plan_says_what_skewed_documents_do_to_its_promise(models, monkeypatch):
    "Documents of unequal length have tails; what is offered is a command that runs, and with --until-decided one that stops."
    monkeypatch.chdir(models)
    paragraphs = [p for text in demo_documents()[1] for p in text.split("\n\n") if len(p) > 60]
    (models / "paragraphs.jsonl").write_text(
        "".join(json.dumps({"text": p}) + "\n" for p in dict.fromkeys(paragraphs))
    )
    scoring = "base tuned --text paragraphs.jsonl --max-length 64 --margin 3%"
    code, out, err = shell("plan", *scoring.split(), "--out", "offered", "--json")
    d = json.loads(out)
    assert code == 0 and d["units"] == "documents", err
    offered, margin = scoring.split(" --margin ")
    windows = f" --windows {d['needed']['windows']}" if d["enough"] else ""
    assert d["next"] == f"invar-nb compare {offered}{windows} --margin {margin}"
    assert 0.4 < d["if_skewed"] < 0.8 and d["pilot"]["tail"] < 1
    looks = [*scoring.split(), "--until-decided", "--windows", "200", "--out", "stopped"]
    code, out, err = shell("compare", *looks, "--json")
    assert code in (0, 1) and json.loads(out)["looks"]["pairs"][0]["decided"], err
    one = ["base", "tuned", "--text", "one.txt", "--max-length", "64", "--stride", "63"]
    pilot = json.loads(shell("plan", *one, "--out", "unoffered", "--json")[1])
    assert pilot["if_skewed"] is None


@pytest.mark.slow
def test_plan_then_run(models, monkeypatch, capsys):
    "Plans of every edit beside the runs that follow: a promise for 80 of 100 pilots, and no two of these are alike."
    monkeypatch.chdir(models)
    for bits in (8, 4):
        quantised_copy(demo_model("base"), models / f"int{bits}", bits=bits)
    kept = []
    for text, length in (("docs.jsonl", 256), ("one.txt", 64)):
        for edit, widths in (
            ("int8", ("0.06%", "0.1%")),
            ("int4", ("0.6%", "1%")),
            ("tuned", ("3%", "5%")),
        ):
            for width in widths:
                code, out, err = shell(
                    "plan",
                    "base",
                    edit,
                    "--text",
                    text,
                    "--max-length",
                    length,
                    "--half-width",
                    width,
                    "--json",
                    "--force",
                )
                d = json.loads(out)
                code, out, err = shell(*shlex.split(d["next"])[1:], "--json", "--force")
                low, high = next(
                    row["value"]["ci"]
                    for row in json.loads(out)["rows"]
                    if row["role"] == "lead"
                )
                half, planned = (high - low) / 2, (d["needed"] if d["enough"] else d["text"])
                kept.append(half <= planned["half_width"])
                with capsys.disabled():
                    print(
                        f"\n{text} {edit} {width}: {planned['windows']} of {d['text']['windows']} windows, planned {planned['half_width']:.5f}, run {half:.5f}",
                        end="",
                    )
    assert np.mean(kept) > 0.5, kept


@pytest.mark.slow
def test_plans_of_real_documents(models, monkeypatch, capsys):
    "Losses of the shipped models: a pilot of 40 documents at random, a run over others drawn at random until it is as large as planned."
    monkeypatch.chdir(models)
    if not (models / "int8").exists():
        quantised_copy(demo_model("base"), models / "int8", bits=8)
    rng = np.random.default_rng(0)
    for edit, widths in (("int8", (0.0004, 0.0006, 0.001)), ("tuned", (0.05, 0.08))):
        assert shell(
            "compare",
            "base",
            edit,
            "--text",
            "docs.jsonl",
            "--max-length",
            256,
            "--out",
            f"full-{edit}",
        )[0] in (0, 1)
        a, b = (
            read_losses(f"full-{edit}/{name}.parquet") for name in ("baseline", "candidate")
        )
        codes = np.unique(list(map(int, a.document_ids)), return_inverse=True)[1]
        W, N = (
            np.bincount(codes, a.tokens).astype(float),
            np.bincount(codes, a.tokens * (b.log_loss - a.log_loss)),
        )
        for width in widths:
            held = []
            for _ in range(400):
                some, run = rng.permutation(W.size)[:40], rng.integers(0, W.size, 400)
                own, text = (
                    Supply(tokens=w, codes=np.arange(w.size)) for w in (W[some], W[run])
                )
                pilot = with_tails(as_pilot(jackknife_ratio(N[some], W[some])), own, text)
                m = text.size(Goal(margin=None, half_width=width).needs(pilot))["windows"]
                found = (
                    jackknife_ratio(N[run[:m]], W[run[:m]]).interval()
                    if m <= run.size
                    else None
                )
                if found is not None:
                    held.append(found.high - found.low <= 2 * width)
            with capsys.disabled():
                print(
                    f"\n{edit} half-width {width}: kept {np.mean(held):.3f} of {len(held)}",
                    end="",
                )
            assert np.mean(held) > 0.8 - 3 * math.sqrt(0.8 * 0.2 / 400)


def test_a_promise_may_stand_beside_the_goal():
    both = pair_arrays(*np.random.default_rng(2).normal(3, 0.1, (2, 60)), np.full(60, 64))
    plans = [
        plan_comparison(both, margin=0.01, power=0.9),
        plan_comparison(both, goal=Goal(margin=0.05, power=0.9), margin=0.01),
        plan_comparison(both, goal=Goal(margin=0.01, power=0.9)),
    ]
    assert len({str(plan) for plan in plans}) == 1
    with pytest.raises(UsageError, match="Did you mean 'margin'"):
        plan_comparison(both, marign=0.01)
    printed = str(plan_comparison(both))
    names_fewer = (
        "windows decide; `compare` names fewer, since it treats the pilot's spread as known."
    )
    assert names_fewer in printed and printed.count("pilots like this one") == 1


@pytest.mark.parametrize(
    ("shift", "decided"),
    [
        (0.02, "regressed, perhaps by less than 2 %"),
        (0.1, "regressed, beyond the margin of 2 %"),
    ],
)
def test_a_plan_says_what_a_comparison_of_its_pilot_would_say(shift, decided):
    "Text was planned for a question that `compare` had just answered."
    said = str(plan_comparison(losses(shift, n=60), margin=0.02))
    assert f"The pilot already decides: {decided}." in said
    assert "If the true change is the pilot's" not in said
    undecided = str(plan_comparison(losses(0.005, n=60, noise=0.2), margin=0.02))
    assert "already decides" not in undecided
    assert "If the true change is the pilot's" in undecided


def test_a_pilot_that_is_equivalent_but_moved_names_the_windows_that_its_change_takes():
    "It said that fewer windows are enough, as if nothing had changed."
    rng = np.random.default_rng(2)
    before = rng.normal(3, 0.4, 60)
    for shift, is_named in ((0.0115, True), (0.0, False)):
        after = before + shift + rng.normal(0, 0.02, 60)
        plan = plan_comparison(pair_arrays(before, after, np.full(60, 200)), margin=0.02)
        assert plan.decided == "equivalent within 2 %"
        assert ("If the true change is the pilot's, " in str(plan)) == is_named, str(plan)


def table_of_losses(path, size, texts=("wiki",)):
    "Losses on 40 documents of each text, which change by up to `size` per document."
    path.parent.mkdir(exist_ok=True)
    lines = ["doc,text,loss,tokens"]
    for text in texts:
        change = size * (1 if text == "wiki" else 3)
        lines += [
            f"{text}{i},{text},{2 + i % 7 / 9 + change * (i % 3 - 1)},300" for i in range(40)
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_several_candidates_and_texts_are_planned_each_and_the_largest_need_is_the_answer(
    tmp_path,
):
    "Several candidates were refused as an extra argument, several tasks one by one."
    texts = ("wiki", "code")
    paths = [
        table_of_losses(tmp_path / f"{name}.csv", size, texts)
        for name, size in (("f16", 0), ("q8", 0.001), ("q4", 0.004))
    ]
    options = ("--column", "part=text", "--margin", "0.5%")
    code, out, _ = shell("plan", *paths, *options, "--json")
    facts = json.loads(out)
    needs = {(p["candidate"], p["part"]): p["needed"]["windows"] for p in facts["plans"]}
    assert code == 0 and [*needs.values()] == sorted(needs.values(), reverse=True)
    assert next(iter(needs)) == ("q4", "code") and len(needs) == 4
    assert facts["needed"]["windows"] == needs["q4", "code"] == max(needs.values())
    for (name, text), need in needs.items():  # each is what a plan of it alone says
        pair = (paths[0], tmp_path / f"{name}.csv")
        alone = json.loads(shell("plan", *pair, *options, "--task", text, "--json")[1])
        assert alone["needed"]["windows"] == need and "plans" not in alone
    code, out, _ = shell("plan", *paths, *options)
    need = f"{needs['q4', 'code']:,} windows"
    assert f"The largest need of 4 comparisons is {need}, for q4 on code." in out
    assert "--level 0.9875 are enough for 4" in out and "q8 on wiki" in out
    assert out.count(f"Planned: {need}") == 1
    code, out, _ = shell("plan", *paths[:2], *options)
    assert "of 2 comparisons" in out and " code" in out and "q8 on" not in out


def test_a_study_file_plans_its_candidates_with_the_margin_of_each_text(tmp_path):
    for name, size in (("f16", 0), ("q8", 0.002), ("q4", 0.002)):
        for text in ("wiki", "code"):
            table_of_losses(tmp_path / name / f"{text}.csv", size)
    arms = "".join(
        f'{key} = "{tmp_path / name}"\n'
        for key, name in (("baseline", "f16"), ("q8", "q8"), ("q4", "q4"))
    )
    study = tmp_path / "s.toml"
    study.write_text(f'[arms]\n{arms}[rules]\nmargin = {{wiki = "0.2%", perplexity = "1%"}}\n')
    plans = json.loads(shell("plan", "--study", study, "--json")[1])["plans"]
    margins = {(p["candidate"], p["part"]): p["goal"]["margin"] for p in plans}
    assert margins == {
        (name, text): pytest.approx(0.002 if text == "wiki" else 0.01)
        for name in ("q8", "q4")
        for text in ("wiki", "code")
    }


def test_a_candidate_that_changed_nothing_needs_no_plan_beside_others(tmp_path):
    same, other, changed = (
        table_of_losses(tmp_path / f"{name}.csv", size)
        for name, size in (("f16", 0), ("copy", 0), ("q4", 0.004))
    )
    code, out, _ = shell("plan", same, other, changed)
    assert code == 0 and "-  copy, where every unit changed by the same amount" in out
    assert "for q4" in out
    code, _, err = shell("plan", same, other)
    assert code == 3 and "the pilot must show some spread" in err


def test_several_scores_are_refused_in_words(tmp_path):
    for name, shift in (("a", 0), ("b", 0.2)):
        rows = [f"{i},{i % 5 / 5},{1 + i % 7 / 9 + shift * (i % 3)}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,f1,seconds", *rows]) + "\n")
    files = [tmp_path / f"{name}.csv" for name in "ab"]
    scores = ("--score", "f1", "--score", "seconds")
    better = ("--better", "f1=higher", "--better", "seconds=lower")
    code, _, err = shell("plan", *files, *scores, *better)
    assert code == 2 and "one score, whose unit its margin has; got f1, seconds" in err, err
    assert "Give one --score, such as --score f1" in err
    cure = ("--score", "seconds", "--better", "lower", "--margin", "0.1")
    assert shell("plan", *files, *cure)[0] == 0


def test_three_arms_of_one_table_are_planned(tmp_path):
    rows = [
        f"{seed},{name},ok,{3 + seed % 4 / 50 + size * (7 * seed % 5 - 1)}"
        for name, size in (("adamw", 0), ("muon", 0.004), ("lion", 0.01))
        for seed in range(8)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["seed,optimizer,terminal,loss", *rows]) + "\n")
    arms = ("--column", "arm=optimizer=adamw,muon,lion")
    code, out, err = shell("plan", path, *arms, "--metric", "loss", "--margin", "0.3%")
    assert code == 0 and "of 2 comparisons" in out and "seeds, for lion" in out, out + err


def test_several_metrics_of_a_study_file_and_slices_are_refused_with_a_cure(tmp_path):
    "A plan took the first metric of a study file without a word."
    rows = [f"{i},{'ab'[i % 2]},{'ab'[(i // 3) % 2]},{0.5 + i % 5 / 10}" for i in range(60)]
    for name in ("one", "two"):
        text = "\n".join(["id,label,prediction,confidence", *rows]) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
        rows = [row.replace(",b,b,", ",b,a,") if "1" in row else row for row in rows]
    study = tmp_path / "study.toml"
    study.write_text('[rules]\nmetrics = ["accuracy", "brier"]\n')
    files = (tmp_path / "one.csv", tmp_path / "two.csv")
    code, _, err = shell("plan", *files, "--study", study)
    assert code == 2 and "got accuracy, brier of the study file. Add one" in err, err
    assert shell("plan", *files, "--study", study, "--metric", "accuracy")[0] == 0
    code, _, err = shell("plan", *files, "--by", "kind")
    assert code == 2 and "--column part=NAME plans each value of a column by itself" in err
    scores = []
    for name, shift in (("old", 0), ("new", 0.2)):
        rows = [f"{i},{'xy'[i % 2]},{i % 7 / 9 + shift * (i % 3 == 0)}" for i in range(80)]
        scores.append(tmp_path / f"{name}.csv")
        scores[-1].write_text("\n".join(["id,kind,f1", *rows]) + "\n")
    cure = ("--score", "f1", "--margin", "0.1", "--column", "part=kind")
    code, out, err = shell("plan", *scores, *cure)
    assert code == 0 and "The largest need of 2 comparisons" in out, out + err


def test_seeds_are_not_tested_until_decided_and_the_refusal_leads_to_a_plan(tmp_path):
    tables = []
    for name, shift in (("a", 0), ("b", 0.01)):
        rows = [f"{seed},{2 + seed % 4 / 50 + shift * (seed % 3)}" for seed in range(8)]
        tables.append(tmp_path / f"{name}.csv")
        tables[-1].write_text("\n".join(["seed,loss", *rows]) + "\n")
    metric = ("--metric", "loss", "--better", "loss=lower")
    code, _, err = shell("compare", *tables, *metric, "--until-decided")
    assert code == 2 and "a test after each new seed would find changes by chance" in err, err
    assert "Plan their number first: invar-nb plan" in err
    assert shell("plan", *tables, *metric, "--margin", "1%")[0] == 0


def test_several_models_are_planned_from_one_pilot(models, monkeypatch):
    "Each candidate that had to be scored needed a plan, and a baseline, of its own."
    monkeypatch.chdir(models)
    (models / "sub").mkdir(exist_ok=True)
    for name, bits in (("q8", 8), ("sub/q5", 5)):
        if not (models / name).exists():
            quantised_copy(demo_model("base"), models / name, bits=bits)
    options = ("--text", "docs.jsonl", "--max-length", "32", "--pilot", "40", "--margin", "3%")
    words = ("plan", "base", "q8", "sub/q5", "tuned", *options, "--out", "several")
    code, out, err = shell(*words)
    assert code == 0 and "The largest need of 3 comparisons is" in out, out + err
    files = {path.name for path in (models / "several").iterdir()}
    assert files == {"plan.json", "baseline.jsonl", "q8.jsonl", "q5.jsonl", "tuned.jsonl"}
    facts = json.loads((models / "several/plan.json").read_text())
    of_each = {plan["candidate"]: plan["needed"] for plan in facts["plans"]}
    assert [*of_each] == sorted(of_each, key=lambda name: -of_each[name]["windows"])
    assert facts["needed"] == next(iter(of_each.values()))
    # the same plans as from the saved pilot, and as of each by itself
    again = re.search(r"from the same pilot: invar-nb (.*) --margin 1%", out)[1]
    from_files = json.loads(shell(*shlex.split(again), "--margin", "3%", "--json")[1])
    assert {plan["candidate"] for plan in from_files["plans"]} == {*of_each}
    code, alone, err = shell("plan", "base", "q8", *options, "--json", "--out", "alone")
    assert code == 0 and json.loads(alone)["needed"]["windows"] == of_each["q8"]["windows"]
    # --force replaces it, also where its pilots had other names
    fewer = ("plan", "base", "q8", *options, "--out", "several", "--force", "-q")
    assert shell(*fewer)[0] == 0
    files = {path.name for path in (models / "several").iterdir()}
    assert files == {"plan.json", "baseline.jsonl", "candidate.jsonl"}
    if plan := re.search(r"run: invar-nb (compare .*)", out):
        assert all(name in plan[1] for name in ("q8", "sub/q5", "tuned"))


def test_a_plan_takes_two_models_as_compare_does(tmp_path):
    "It took frames of runs and of losses only: arrays and tables of scores need `score`."
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    before = rng.random(200)
    after = np.clip(before + rng.normal(-0.01, 0.1, 200), 0, 1)
    old = pandas.DataFrame({"id": range(200), "f1": before})
    new = old.assign(f1=after)
    files = [tmp_path / "old.csv", tmp_path / "new.csv"]
    for frame, file in zip((old, new), files, strict=True):
        frame.to_csv(file, index=False)
    plans = [
        plan_comparison(before, after, score="f1", margin=0.01),
        plan_comparison(old.f1, new.f1, score="f1", metric="f1", margin="1%"),
        plan_comparison(old, new, score="f1", id="id", margin=0.01),
        plan_comparison(old, new, metric="f1", margin=0.01),
        plan_comparison(*files, score="f1", id="id", margin=0.01),
        plan_comparison(compare(before, after, score="f1"), metric="f1", margin=0.01),
    ]
    assert all(plan.needed == plans[0].needed for plan in plans)
    with pytest.raises(UsageError, match="per cent|percentage"):
        plan_comparison(
            old, new.assign(f1=20 * after), score="f1", same_unit=True, margin="1%"
        )


def test_options_of_a_plan_that_mean_nothing_are_refused_with_what_to_write():
    with pytest.raises(UsageError, match="about two tables, arrays or files"):
        plan_comparison(0.05, score="f1")
    with pytest.raises(UsageError, match="help.plan_comparison. and help.compare. list them"):
        plan_comparison(0.05, zzz=1)
    with pytest.raises(UsageError, match="of one model|correlation"):
        plan_comparison(losses(0.0, n=60).baseline)


def test_the_frame_of_a_plan_names_what_is_counted_and_what_is_effective():
    "Examples and seeds stood under `windows`, and units were any."
    both = pair_arrays(*np.random.default_rng(2).normal(3, 0.1, (2, 60)), np.full(60, 64))
    columns = [*plan_comparison(both).to_frame().columns]
    assert columns[:3] == ["windows", "units_eff", "tokens"]
    scores = np.random.default_rng(2).random((2, 60))
    plan = plan_comparison(*scores, score="f1")
    assert [*plan.to_frame().columns][:2] == ["examples", "units_eff"]
    assert [*plan.to_frame()["examples"]] == [row["windows"] for row in plan.rows]


def test_a_plan_takes_metrics_as_compare_does():
    "metrics=[...] was a TypeError."
    pandas = pytest.importorskip("pandas")
    old = pandas.DataFrame({"seed": range(8), "loss": [2 + k % 4 / 50 for k in range(8)]})
    new = old.assign(loss=[value + k % 3 / 90 for k, value in enumerate(old.loss)])
    found = plan_comparison(old, new, metrics=["loss"], margin="1%")
    assert found.needed == plan_comparison(old, new, metric="loss", margin="1%").needed
    with pytest.raises(UsageError, match="a plan must be of one metric; got 'loss', 'f1'"):
        plan_comparison(old, new, metrics=["loss", "f1"])
