"""Stopping early: false stops by simulation, rounds that resume to the same bytes, both demo edits decided early."""
import json
import math
import signal
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from test_coverage import REAL_LOSSES as DATA
from test_shell import MODELS, command, shell

from invar_nb.arms.pair import pair
from invar_nb.arms.window_losses import WindowLosses
from invar_nb.comparison.looks import look_at, look_bounds, look_counts, order_units
from invar_nb.foundations.refuse import ContractError
from invar_nb.report.verify import verify
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.sequential import boundaries, crossing, edge_z, information, of_this_text, spent
from studies import looked


def test_a_text_known_in_part_against_all_its_orders():
    "Six values in all 720 orders: covariances of the means, and the expected square of the standard error, counted."
    values = np.array([.3, -.1, .8, .2, -.5, .4])
    orders = values[np.array(list(permutations(range(6))))]
    means = {k: orders[:, :k].mean(1) - values.mean() for k in (2, 3, 5)}
    for j, k in ((2, 2), (2, 3), (2, 5), (3, 5)):
        assert (means[j] * means[k]).mean() == pytest.approx(values.var(ddof=1) / information(k, 6), rel=1e-12)
    fits = [of_this_text(jackknife_ratio(row[:5], np.ones(5), means=True), 5 / 6) for row in orders]
    assert np.mean([fit.standard_error ** 2 for fit in fits]) * 4 / 5 == pytest.approx((means[5] ** 2).mean(), rel=1e-12)
    assert information(7) == 7 and information(6, 6) == math.inf
    np.testing.assert_allclose(spent([.5, 1]), [.05 * math.log(.5 + .5 * math.e), .05], rtol=1e-12)
    np.testing.assert_allclose(spent([.25, 1], .9, "linear"), [.025, .1], rtol=1e-12)


@pytest.mark.parametrize("total", [None, 400])
@pytest.mark.parametrize("spending", ["pocock", "linear"])
@pytest.mark.parametrize("units", [(40, 60, 100, 200, 399), (40, 41, 42, 43, 44, 45), range(20, 400, 19), (300,)])
def test_what_leaves_is_what_is_spent(units, spending, total):
    "Streams of normals, drawn; the recursion shares no code with them."
    at = np.array(units)
    known, error = information(at, total), spent(at / 400, .95, spending)
    bounds = boundaries(known, error)
    paths = np.cumsum(np.random.default_rng(4).normal(size=(40_000, len(at))) * np.sqrt(np.diff(known, prepend=0)), axis=1) / np.sqrt(known)
    assert abs((np.abs(paths) > bounds).any(1).mean() - error[-1]) < 4 * math.sqrt(error[-1] / 40_000)
    np.testing.assert_allclose(crossing(known, bounds).cumsum(), error, rtol=1e-9)
    np.testing.assert_array_equal(boundaries(known[:2], error[:2]), bounds[:2])       # later looks change nothing


def test_a_look_at_this_text_is_narrower_by_what_was_seen():
    found = looked(.02, n=80)
    for row in look_at(found).looks.rows:
        seen = found.take(order_units(found.baseline).rows(row.units))
        fit = jackknife_ratio(seen.candidate.log_loss - seen.baseline.log_loss, np.full(row.units, 64.0), means=True)
        assert row.high - row.low == pytest.approx(fit.interval(row.level).width * math.sqrt(1 - row.units / 80), rel=1e-9)
        assert row.level == pytest.approx(2 * stats.norm.cdf(row.bound) - 1 if row.bound else .95, abs=1e-4)


def test_the_order_is_fair_and_a_look_forgets_the_order_of_rows():
    "Each window comes first equally often over seeds, and the rows of a look may stand in any order."
    found = looked(.02, n=80)
    six = found.baseline.take(np.arange(6))
    first = np.bincount([int(order_units(six, {**six.provenance["looks"], "seed": seed}).place.argmin()) for seed in range(1200)], minlength=6)
    assert stats.chisquare(first).pvalue > 1e-3
    turned = look_at(found.take(np.random.default_rng(1).permutation(found.n)))
    for a, b in zip(look_at(found).looks.rows, turned.looks.rows, strict=True):
        np.testing.assert_allclose([a.delta, a.low, a.high, *a.z], [b.delta, b.low, b.high, *b.z], rtol=1e-9)


@pytest.mark.parametrize("edit", [{"seed": 8}, {"units": 81}, {"looks": 3}, {"target": "texts-like-this"}, {"spending": "linear"}])
def test_another_design_gives_another_sequence_or_is_refused(edit):
    found = looked(.02, n=80)
    arms = [arm.changed(provenance={"looks": {**arm.provenance["looks"], **edit}}) for arm in (found.baseline, found.candidate)]
    other = replace(found, baseline=arms[0], candidate=arms[1])
    try: assert look_at(other).looks.rows != look_at(found).looks.rows
    except ContractError as error: assert error.code == "not_a_look"
    with pytest.raises(ContractError, match="one order"): look_at(replace(found, baseline=arms[0]))


# --- both models, scored in rounds ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "t.jsonl"
    lines = [f"Document {i}. " + " ".join(f"The {w} number {i * k} is read by line." for k, w in enumerate(("first", "second", "third", "last"))) for i in range(70)]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return path


def rounds(text, out, *more, a="base", b="tuned"):
    return ("compare", f"{MODELS}/{a}", f"{MODELS}/{b}", "--text", text, "--out", out, "--max-length", "64", "--device", "cpu", "--until-decided", *more)


def test_a_comparison_in_rounds_is_verified_and_its_exit_follows_the_decided_claim(text, tmp_path):
    pytest.importorskip("torch")
    code, out, err = shell(*rounds(text, tmp_path / "r", "rules.looks=3"))
    d = json.loads((tmp_path / "r/report.json").read_text())
    assert d["looks"]["units"] == "windows" and d["pairs"][0]["units"]["kind"] == "documents" and d["pairs"][0]["units"]["speaks_of"] == "other documents like these" and "look 1 of" in err
    assert code == d["exit"]["code"] == (1 if d["claim"] == "regressed" else 0) and verify(tmp_path / "r")
    assert "at all" in out and not list(tmp_path.glob(".*.journal"))


@pytest.mark.parametrize("more, said", [
    (["rules.looks=1"], "looks"), (["rules.target=book"], "target"), (["--units", "serial"], "--units"), (["--method", "bca"], "--method"), (["--by", "language"], "--by"),
    (["--metric", "bits_per_byte"], "--metric"), (["--per-byte"], "--per-byte"), (["--profile", "ci"], "--profile"), (["--divergence"], "--divergence"), (["--control"], "--control"),
    (["--questions", "{text}"], "--questions"), (["--score", "f1"], "--score"), ([f"{MODELS}/base"], "one candidate")])
def test_options_that_looks_cannot_share_are_refused_before_anything_is_loaded(text, tmp_path, more, said):
    code, _, err = shell(*rounds(text, tmp_path / "r", *[x.replace("{text}", str(text)) for x in more]))
    assert code == 2 and said in err.splitlines()[-1] and "loading" not in err and not (tmp_path / "r").exists()


@pytest.mark.parametrize("more", ["rules.looks=3", "rules.target=text", "rules.spending=linear", "rules.order_seed=1"])
def test_keys_of_looks_need_looks(text, tmp_path, more):
    arguments = [x for x in rounds(text, tmp_path / "r", more) if x != "--until-decided"]
    code, _, err = shell(*arguments)
    assert code == 2 and f"{more[6:more.index('=')]} of the study file needs --until-decided" in err


@pytest.mark.slow
def test_killed_between_looks_it_resumes_to_the_same_bytes(text, tmp_path):
    "The margin lies at the change, so that no early look decides; one is killed after each of the first looks."
    pytest.importorskip("torch")
    assert shell(*rounds(text, tmp_path / "first", "rules.target=text"))[0] in (0, 1)
    whole = json.loads((tmp_path / "first/report.json").read_text())["looks"]["rows"][-1]["delta"]
    asked = ("rules.target=text", "rules.looks=4", "--margin", f"{abs(whole):.4f}")
    first = command(*rounds(text, tmp_path / "whole", *asked))
    assert first.wait() in (0, 1)
    seen = json.loads((tmp_path / "whole/report.json").read_text())["looks"]["rows"]
    assert len(seen) > 1
    for kill in range(1, len(seen)):
        out = tmp_path / f"r{kill}"
        p = command(*rounds(text, out, *asked))
        while f"look {kill} of" not in (line := p.stderr.readline()): assert line
        p.send_signal(signal.SIGKILL)
        p.communicate()
        assert not out.exists() and list(tmp_path.glob(f".r{kill}.*.journal"))
        assert command(*rounds(text, out, *asked)).wait() in (0, 1)
        for name in ("report.json", "report.html"): assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("edit", ["4-bit copy", "earlier checkpoint"])
@pytest.mark.parametrize("target", ["text", "texts-like-this"])
def test_the_demo_edits_are_decided_with_a_quarter_of_the_tokens(edit, target, tmp_path):
    "On the demo's docstrings, windows of 128, of which each look has seen some of most documents."
    pytest.importorskip("torch")
    from invar_nb.models.demo_text import demo_documents
    from invar_nb.shell.demo import quantised_copy
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in demo_documents()[1]))
    if edit == "4-bit copy": quantised_copy(f"{MODELS}/base", tmp_path / "edited", bits=4)
    a, b = (f"{MODELS}/base", tmp_path / "edited") if edit == "4-bit copy" else (f"{MODELS}/tuned", f"{MODELS}/base")
    code, _, err = shell("compare", a, b, "--text", path, "--out", tmp_path / "r", "--max-length", "128", "--until-decided", f"rules.target={target}")
    found = json.loads((tmp_path / "r/report.json").read_text())
    print(edit, target, *found["looks"]["sentences"], found["headline"])
    assert found["looks"]["decided"] and code == 1 and verify(tmp_path / "r")
    assert found["looks"]["tokens_saved"] >= (.75 if target == "text" else .5)


# --- false stops ----------------------------------------------------------------------------------------------------------------------
LAWS = {"normal": lambda rng, n: rng.normal(size=n), "gamma": lambda rng, n: rng.gamma(1.0, size=n) - 1, "t3": lambda rng, n: rng.standard_t(3, size=n)}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["text", "texts-like-this"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("spread", [0.0, 0.5, 0.7])
def test_false_stops_keep_their_promise(law, spread, target, streams=5000, n=600):
    "Share of streams at a true change of exactly the margin that any look decides."
    rng, wrong, of_text = np.random.default_rng(11), 0, target == "text"
    for _ in range(streams):
        tokens = np.ceil(100 * np.exp(spread * rng.normal(size=n)))
        d = LAWS[law](rng, n)
        if of_text: d -= tokens @ d / tokens.sum()
        at = look_counts(tokens, n, 5)
        for k, bound in zip(at, look_bounds(at, n, "windows" if of_text else "documents", .95, "pocock"), strict=True):
            if bound is None: break
            fit = jackknife_ratio(d[:k], tokens[:k], means=True)
            if abs(edge_z(of_this_text(fit, k / n) if of_text else fit, 0.0)) > bound:
                wrong += 1
                break
    print(f"{law} {spread} {target}: {wrong / streams:.4f}")
    assert wrong / streams <= .065


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "gamma"])
@pytest.mark.parametrize("alike", [0, .3, 1])
@pytest.mark.parametrize("documents", [111, 300])
def test_false_stops_of_windows_that_documents_share(documents, alike, law, streams=3000):
    "Windows in random order, documents as units, a true change of exactly the margin; the boundaries know nothing of what documents have in common."
    rng, wrong = np.random.default_rng(12), 0
    for _ in range(streams):
        owners = np.repeat(np.arange(documents), rng.geometric(1 / 7, documents))
        d = math.sqrt(alike) * LAWS[law](rng, documents)[owners] + math.sqrt(1 - alike) * LAWS[law](rng, owners.size)
        t, order = rng.choice([128.0, 128.0, 60.0], owners.size), rng.permutation(owners.size)
        at = look_counts(t[order], t.size, 5, owners[order])
        for k, bound in zip(at, look_bounds(at, t.size, "documents", .95, "pocock"), strict=True):
            rows = order[:k]
            W = np.bincount(owners[rows], t[rows])
            fit = jackknife_ratio(np.bincount(owners[rows], (t * d)[rows])[W > 0], W[W > 0])
            if abs(edge_z(fit, 0.0)) > bound:
                wrong += 1
                break
    print(f"{documents} {alike} {law}: {wrong / streams:.4f}")
    assert wrong / streams <= .065


def stops(edit, walk, margin, seeds):
    "Tokens at the stop, over orders, of an edit of the demo at windows of 256."
    data, found = np.load(DATA), []
    ids, owners = [f"{d}:{i}" for i, d in enumerate(data["document"])], [str(d) for d in data["document"]]
    for seed in seeds:
        record = {"target": "texts-like-this", "looks": 5, "spending": "pocock", "seed": seed, "units": len({*owners}) if walk == "documents" else len(ids),
                  "windows": len(ids), "tokens": int(data["tokens"].sum()), **({"walk": walk} if walk == "windows" else {})}
        whole = pair(*(WindowLosses.from_arrays(ids, data["tokens"], data[name], document_ids=owners, provenance={"looks": record}) for name in ("base", edit)))
        for k in (order := order_units(whole.baseline)).at:
            seen = whole.take(order.rows(k))
            if (looks := look_at(seen, margin=margin).looks).decided: break
        assert looks.units == walk and order_units(seen.baseline).at == order.at
        found.append(looks.rows[-1].tokens)
    return np.mean(found)


@pytest.mark.parametrize("edit, margin, share", [("int4", .02, .9), ("int4", .01, .4), ("int8", .02, .4)])
def test_looks_at_windows_need_fewer_tokens_than_looks_at_whole_documents(edit, margin, share):
    "Evidence of older looks, at whole documents, is read as before. An edit near the margin needs most of the text either way."
    windows, documents = (stops(edit, walk, margin, range(10)) for walk in ("windows", "documents"))
    assert windows < share * documents, (windows, documents)
