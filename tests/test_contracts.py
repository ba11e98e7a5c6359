"""What a report promises: identities, policies by profile, canonical bytes, and that verify finds any one change.

The referees share no code with the report: `jsonschema` for the structure, `hashlib` and `json` for digests, `html.parser` for pages."""
import hashlib
import html.parser
import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from invar_nb import WindowLosses, bootstrap_interval, build_report, check_report, verify
from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.statement import report as room

jsonschema = pytest.importorskip("jsonschema")


def ranged_ids(tokens, document="0"):
    stop = 1 + np.cumsum(tokens)
    return [f"{document}:{b - t}-{b}" for t, b in zip(tokens.tolist(), stop.tolist(), strict=True)]


LANGUAGES = {"document_languages": {"0": "en", "1": "es"}}


def make_arms(n=40, shift=0.03, noise=0.02, seed=7, equal_tokens=False, ids=None, told=None, **more):
    rng = np.random.default_rng(seed)
    tokens = np.full(n, 128) if equal_tokens else rng.integers(100, 140, n)
    base = rng.gamma(30, 0.1, n)
    about = {"tokenizer_digest": "sha256:" + "0" * 64, "weights_digest": "sha256:" + "a" * 64, "text_digests": ["sha256:" + "b" * 64],
             "max_length": 256, "stride": 128, "dtype": "float32", **(told or {})}
    make = lambda name, loss: WindowLosses.from_arrays(ids or ranged_ids(tokens), tokens, loss, model=name, data_id="sha256:" + "c" * 64,
                                                       provenance=about, **more)
    return make("base", base), make("edited", base + shift + noise * rng.normal(size=n))


DRAWN = {"replicates": 1500, "seed": 0}  # where the engine is not what is tested, the fast one
ENVIRONMENT = {"created": "2026-01-01T00:00:00+00:00", "host": "h", "platform": "p", "python": "3", "versions": {"numpy": "2"}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "out"
    room.save_comparison(*make_arms(n_bytes=np.full(40, 500), document_ids=["0"] * 25 + ["1"] * 15, told=LANGUAGES), folder, suffix=".jsonl", **DRAWN)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "out")


def write(folder, document):
    (folder / "report.json").write_text(json.dumps(document, sort_keys=True, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def sha(value):
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def with_new_digests(document):
    "The careful forger: every digest is made to fit again."
    document["environment"]["digest"] = sha({k: v for k, v in document["environment"].items() if k != "digest"})
    document["digest"] = sha({k: v for k, v in document.items() if k not in ("digest", "environment")})
    return document


def leaves(value, path=()):
    if isinstance(value, dict):
        for key in sorted(value): yield from leaves(value[key], path + (key,))
    elif isinstance(value, list) and value:
        for i, item in enumerate(value): yield from leaves(item, path + (i,))
    else: yield path, value


def put(document, path, value):
    for step in path[:-1]: document = document[step]
    document[path[-1]] = value


# --- the referee of the structure -----------------------------------------------------------------------------------------------------
def variants():
    yield "plain", build_report(*make_arms(), environment=ENVIRONMENT)
    yield "monte carlo", build_report(*make_arms(), environment=ENVIRONMENT, replicates=400, seed=0, method="percentile", resample="tokens")
    yield "one window", build_report(*make_arms(1), environment=ENVIRONMENT)
    yield "all equal", build_report(*make_arms(noise=0, shift=0), environment=ENVIRONMENT)
    yield "bytes, documents, splits", build_report(*make_arms(n_bytes=np.full(40, 500), document_ids=["a"] * 20 + ["b"] * 20, split=["preview"] * 10 + ["final"] * 30),
                                                   environment=ENVIRONMENT, **DRAWN)
    yield "languages", build_report(*make_arms(document_ids=["0"] * 25 + ["1"] * 15, told=LANGUAGES), environment=ENVIRONMENT, **DRAWN)
    yield "languages counted only", build_report(*make_arms(equal_tokens=True, told={"languages": {"en": {"documents": 3, "tokens": 5120}}}), environment=ENVIRONMENT, **DRAWN)
    yield "no ranges, final only", build_report(*make_arms(ids=[f"w{i}" for i in range(40)], split=["final"] * 40), environment=ENVIRONMENT, **DRAWN)
    yield "improved", build_report(*make_arms(shift=-0.1), environment=ENVIRONMENT, method="expanded", **DRAWN)
    yield "undecided", build_report(*make_arms(shift=0.015, noise=0.2), environment=ENVIRONMENT, tier="conservative", **DRAWN)


VARIANTS = dict(variants())
REFEREE = jsonschema.Draft202012Validator(room.report_schema())


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(room.report_schema())


@pytest.mark.parametrize("name", VARIANTS)
def test_reports_keep_schema_and_contracts(name):
    document = VARIANTS[name].document()
    REFEREE.validate(document)
    assert check_report(document) == check_report(VARIANTS[name]) == []


def some_of(rng, k, *values): return [values[i] for i in rng.permutation(len(values))[:k]]


def test_our_reading_of_the_schema_agrees_with_jsonschema():
    "More than a thousand damaged documents: valid for one reader iff valid for the other."
    seen, rng = {True: 0, False: 0}, np.random.default_rng(0)
    for name in ("plain", "bytes, documents, splits", "one window", "languages"):
        document = VARIANTS[name].document()
        for path, old in leaves(document):
            for value in some_of(rng, 6, None, True, -1, 0, 1.5, 2.0, 1e9, "", "x", "sha256:" + "0" * 64, [], [1, 2], [1, 2, 3], {}, {"code": "all_equal", "reason": ""}):
                put(document, path, value)
                good = REFEREE.is_valid(document)
                assert good == (not list(room.structure_errors(document, room.report_schema()))), (path, value)
                seen[good] += 1
            put(document, path, old)
        if name != "plain": continue
        for path, _ in leaves(document):
            for depth in range(max(1, len(path) - 1), len(path) + 1):
                inner = document
                for step in path[:depth - 1]: inner = inner[step]
                if isinstance(inner, dict):
                    old = inner.pop(path[depth - 1])
                    assert REFEREE.is_valid(document) == (not list(room.structure_errors(document, room.report_schema())))
                    inner["surprise"] = 1
                    assert REFEREE.is_valid(document) == (not list(room.structure_errors(document, room.report_schema())))
                    del inner["surprise"]
                    inner[path[depth - 1]] = old
    assert seen[True] > 300 and seen[False] > 300, seen


@pytest.mark.parametrize("path, value", [(("contracts", "display_ci_is_exp_of_ci"), 1), (("contracts", "display_ci_is_exp_of_ci"), 1.0), (("gate", "passed"), 1),
                                         (("dataset", "windows", "stats", "paired_windows"), True), (("dataset", "windows", "stats", "paired_windows"), 40.0),
                                         (("inputs", "seed"), False), (("verdict", "noise_kind"), "none")])
def test_true_is_not_one_and_40_0_is_whole(path, value):
    document = VARIANTS["plain"].document()
    put(document, path, value)
    assert REFEREE.is_valid(document) == (not list(room.structure_errors(document, room.report_schema()))) == (value == 40.0)


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(ContractError, match="known keywords"):
        list(room.structure_errors(1, {"multipleOf": 2}))


# --- identities -----------------------------------------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(n=st.integers(1, 60), shift=st.floats(-0.5, 0.5), noise=st.sampled_from([0.0, 0.01, 0.3]), seed=st.integers(0, 99), method=st.sampled_from(["bca", "percentile", "expanded"]))
def test_the_seeds_identities(n, shift, noise, seed, method):
    baseline, candidate = make_arms(n, shift=max(shift, -1.0), noise=noise, seed=seed) if shift > -1 else (None, None)
    d = build_report(baseline, candidate, method=method, environment=ENVIRONMENT, replicates=200, seed=seed).document()
    metric, stats = d["primary_metric"], d["dataset"]["windows"]["stats"]
    np.testing.assert_allclose(metric["display_ci"], np.exp(metric["ci"]), rtol=1e-12)
    assert math.isclose(metric["ratio"], math.exp(metric["delta"]), rel_tol=1e-12)
    weighted = float(np.average(candidate.log_loss - baseline.log_loss, weights=baseline.tokens))
    assert math.isclose(metric["delta"], weighted, rel_tol=1e-9, abs_tol=1e-13)
    assert stats["window_match_fraction"] == 1.0 and stats["window_overlap_fraction"] == 0.0 and stats["window_overlap_basis"] == "token_ranges"
    assert stats["paired_windows"] == n and d["dataset"]["windows"]["preview"] == n // 2 and d["dataset"]["windows"]["final"] == n - n // 2
    half = slice(0, n // 2), slice(n // 2, n)
    for part, keep in zip(("preview", "final"), half, strict=True):
        t, l = candidate.tokens[keep], candidate.log_loss[keep]
        assert metric[part] == (None if not len(t) else pytest.approx(math.exp(float(np.average(l, weights=t))), rel=1e-12))
    if n > 1:
        own = {arm: metric["arms"][arm]["final"] / metric["arms"][arm]["preview"] for arm in ("baseline", "candidate")}
        assert metric["drift"]["relative"] == pytest.approx(own["candidate"] / own["baseline"], rel=1e-12)
        assert stats["paired_delta_summary"]["std"] == pytest.approx(float(np.std(candidate.log_loss - baseline.log_loss, ddof=1)), rel=1e-9, abs=1e-15)


def test_the_seeds_fields_are_where_the_seeds_say():
    d = VARIANTS["monte carlo"].document()
    for path in ("primary_metric.kind", "primary_metric.preview", "primary_metric.final", "primary_metric.ci", "primary_metric.display_ci",
                 *("dataset.windows.stats." + s for s in ("window_match_fraction", "window_overlap_fraction", "paired_windows", "paired_delta_summary.mean",
                   "paired_delta_summary.std", "paired_delta_summary.degenerate", "bootstrap.replicates", "bootstrap.seed", "bootstrap.method",
                   "bootstrap.resample", "bootstrap.fallback", "coverage.preview", "coverage.final", "n_eff", "dependence.lag1")), "signature"):
        value = d
        for step in path.split("."): value = value[step]
    assert d["dataset"]["windows"]["stats"]["bootstrap"]["replicates"] == 400 and d["dataset"]["windows"]["stats"]["bootstrap"]["seed"] == 0


def test_the_interval_uses_every_window_whatever_the_split():
    whole = build_report(*make_arms(), environment=ENVIRONMENT, **DRAWN).document()["primary_metric"]
    split = build_report(*make_arms(split=["preview"] * 5 + ["final"] * 35), environment=ENVIRONMENT, **DRAWN).document()["primary_metric"]
    assert whole["ci"] == split["ci"] and whole["final"] != split["final"]


@pytest.mark.parametrize("path, value, name", [
    (("primary_metric", "display_ci"), [1.02, 1.03], "display_ci_is_exp_of_ci"),
    (("primary_metric", "ratio"), 1.0, "ratio_is_exp_of_delta"),
    (("primary_metric", "arms", "baseline", "all"), 17.0, "ratio_is_quotient_of_perplexities"),
    (("primary_metric", "preview"), 17.0, "preview_and_final_are_the_candidates"),
    (("primary_metric", "drift", "relative"), 1.0, "drift_is_final_over_preview"),
    (("dataset", "windows", "stats", "paired_delta_summary", "mean"), 0.5, "mean_of_deltas_is_delta"),
    (("dataset", "windows", "stats", "paired_delta_summary", "degenerate"), True, "degenerate_has_a_reason"),
    (("dataset", "windows", "preview"), 21, "windows_are_counted_once"),
    (("dataset", "total_tokens"), 21, "tokens_are_counted_once"),
    (("inputs", "level"), 0.9, "bootstrap_is_the_one_asked_for"),
    (("dataset", "windows", "stats", "coverage", "ok"), True, "coverage_follows_from_counts"),
    (("gate", "limit"), 1.2, "gate_is_on_the_upper_end"),
    (("gate", "passed"), False, "gate_is_on_the_upper_end"),
    (("verdict", "verdict"), "improved", "verdict_follows_from_its_numbers"),
    (("verdict", "noise_kind"), "equivalent", "noise_is_told_which"),
    (("contracts", "coverage_meets_the_floor"), True, "contracts_are_told_as_they_are"),
    (("dataset", "windows", "stats", "window_overlap_fraction"), 0.5, "contracts_are_told_as_they_are"),
    (("dataset", "windows", "stats", "window_match_fraction"), 0.5, "contracts_are_told_as_they_are"),
    (("warnings",), [], "warnings_are_told_as_they_are"),
    (("sentence",), "All is well.", "sentence_follows_from_its_numbers"),
    (("digest",), "sha256:" + "0" * 64, "digest_is_of_these_bytes"),
    (("environment", "host"), "elsewhere", "environment_digest_is_of_these_bytes"),
    (("schema",), "invar_nb.report/0", "structure"),
    (("primary_metric", "ci"), [0.01], "structure")])
def test_each_contract_has_a_name_and_can_break(path, value, name):
    document = VARIANTS["plain"].document()
    put(document, path, value)
    assert name in {line.split(":")[0] for line in check_report(document)}


def test_a_report_that_breaks_a_contract_is_not_born():
    good, document = VARIANTS["plain"], VARIANTS["plain"].document()
    document["primary_metric"]["display_ci"][0] += 1e-6
    with pytest.raises(ContractError, match="Report: every contract must hold; got display_ci_is_exp_of_ci"):
        room.Report(text=json.dumps(document), pairs=good.pairs, comparison=good.comparison, verdict=good.verdict)


# --- profiles -------------------------------------------------------------------------------------------------------------------------
def enough(n=360, **more):
    return make_arms(n, **more)


BREAKS = {
    "preview_and_final_counts_agree": lambda: enough(split=["preview"] * 181 + ["final"] * 180, n=361),
    "coverage_meets_the_floor": lambda: enough(n=358),
    "deltas_vary": lambda: enough(shift=0, noise=0),
    "no_token_is_scored_twice": lambda: enough(equal_tokens=True, ids=[f"0:{1 + 128 * (i - (i == 9))}-{129 + 128 * (i - (i == 9))}" if i != 9 else "0:1100-1228" for i in range(360)])}


@pytest.mark.parametrize("profile", ["ci", "release"])
@pytest.mark.parametrize("name", BREAKS)
def test_ci_and_release_refuse_what_dev_warns_of(name, profile):
    report = build_report(*BREAKS[name](), environment=ENVIRONMENT, **DRAWN)
    assert report.document()["contracts"][name] is False and any(name in line for line in report.warnings) and check_report(report) == []
    with pytest.raises(ContractError, match=f"build_report: profile '{profile}' needs every contract of policy to hold; got broken .*{name}"):
        build_report(*BREAKS[name](), profile=profile, environment=ENVIRONMENT, **DRAWN)
    forged = report.document()
    forged["inputs"]["profile"] = profile
    assert any(line.startswith(name) for line in check_report(with_new_digests(forged)))


@pytest.mark.parametrize("profile", room.PROFILES)
def test_enough_windows_pass_every_profile(profile):
    report = build_report(*enough(), profile=profile, environment=ENVIRONMENT, **DRAWN)
    assert report.warnings == () and all(report.document()["contracts"].values())


@pytest.mark.parametrize("profile", room.PROFILES)
def test_pairing_below_one_is_refused_in_every_profile(profile):
    a, b = enough()
    fewer = WindowLosses.from_arrays(b.window_ids[:-1], b.tokens[:-1], b.log_loss[:-1], data_id=b.data_id)
    assert room.match_fraction(a, fewer) == 359 / 360
    with pytest.raises(PairingError, match="window ids must match"):
        build_report(a, fewer, profile=profile)


def test_tiers_are_the_seeds():
    assert {k: (t.preview, t.final, t.replicates, t.limit) for k, t in room.TIERS.items()} == {
        "conservative": (220, 220, 1500, 1.05), "balanced": (180, 180, 1200, 1.10), "aggressive": (140, 140, 800, 1.20)}


@pytest.mark.parametrize("tier", room.TIERS)
def test_floors_bite_exactly(tier):
    floor = room.TIERS[tier]
    build_report(*make_arms(floor.preview + floor.final), tier=tier, profile="release", replicates=floor.replicates, seed=1, environment=ENVIRONMENT)
    for n, replicates, seed in ((floor.preview + floor.final - 2, floor.replicates, 1), (floor.preview + floor.final, floor.replicates - 1, 1)):
        with pytest.raises(ContractError, match="coverage_meets_the_floor"):
            build_report(*make_arms(n), tier=tier, profile="ci", replicates=replicates, seed=seed)


def test_exact_engine_counts_as_infinitely_many_replicates():
    part = build_report(*enough(), environment=ENVIRONMENT).coverage["replicates"]
    assert part == {"used": None, "required": 1200, "ok": True}


def test_gate_is_on_the_upper_end():
    "Reference D1: ratio 1.09, upper end 1.277, limit 1.10 was accepted on the estimate."
    z = np.random.default_rng(1).normal(size=24)
    z -= z.mean()
    reach = bootstrap_interval(z, np.full(24, 128)).high
    delta = np.log(1.09) + z * (np.log(1.277) - np.log(1.09)) / reach
    ids, tokens = ranged_ids(np.full(24, 128)), np.full(24, 128)
    report = build_report(WindowLosses.from_arrays(ids, tokens, np.full(24, 3.0)), WindowLosses.from_arrays(ids, tokens, 3.0 + delta), environment=ENVIRONMENT)
    d = report.document()
    assert d["primary_metric"]["ratio"] == pytest.approx(1.09, rel=1e-9) and report.gate["observed"] == pytest.approx(1.277, rel=1e-6)
    assert d["primary_metric"]["ratio"] < report.gate["limit"] and report.gate["passed"] is False


def test_drift_is_judged_beside_the_baseline():
    hard = np.r_[np.zeros(20), np.full(20, 0.3)]
    a, b = make_arms(shift=0.0, noise=0.001)
    lift = lambda arm: WindowLosses.from_arrays(arm.window_ids, arm.tokens, arm.log_loss + hard, model=arm.model, data_id=arm.data_id)
    drift = build_report(lift(a), lift(b), environment=ENVIRONMENT, **DRAWN).document()["primary_metric"]["drift"]
    assert not 0.95 <= drift["candidate"] <= 1.05 and drift["within_band"] is True
    bent = WindowLosses.from_arrays(b.window_ids, b.tokens, b.log_loss + hard, model="bent", data_id=b.data_id)
    report = build_report(a, bent, environment=ENVIRONMENT, **DRAWN)
    assert report.document()["primary_metric"]["drift"]["within_band"] is False and any("differently" in line for line in report.warnings)


@pytest.mark.parametrize("ids, tokens, expected", [
    (["0:1-11", "0:11-21"], [10, 10], (0.0, "token_ranges")), (["0:1-11", "0:10-20"], [10, 10], (0.05, "token_ranges")),
    (["0:1-11", "1:1-11"], [10, 10], (0.0, "token_ranges")), (["0:1-21", "0:5-10"], [20, 5], (0.2, "token_ranges")),
    (["0:11-21", "0:1-11"], [10, 10], (0.0, "token_ranges")), (["a:b:1-11", "a:b:6-16"], [10, 10], (0.25, "token_ranges")),
    (["0:1-11", "w2"], [10, 10], (0.0, "window_ids")), (["2024:10-11", "2024:11-12"], [512, 512], (0.0, "window_ids")), (["0:11-1", "0:1-1"], [1, 1], (0.0, "window_ids"))])
def test_overlap_is_measured_from_the_windows(ids, tokens, expected):
    found = room.overlap_fraction(tuple(ids), np.array(tokens))
    assert found[1] == expected[1] and found[0] == pytest.approx(expected[0], abs=1e-15)


def test_overlap_by_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(200):
        start, length, document = rng.integers(0, 60, 8), rng.integers(1, 20, 8), rng.integers(0, 2, 8)
        spans = sorted({(str(d), int(a), int(a + k)) for d, a, k in zip(document, start, length, strict=True)})
        tokens = [(d, t) for d, a, b in spans for t in range(a, b)]
        found = room.overlap_fraction(tuple(f"{d}:{a}-{b}" for d, a, b in spans), np.array([b - a for _, a, b in spans]))
        assert found[0] == pytest.approx(1 - len(set(tokens)) / len(tokens), abs=1e-12)


@pytest.mark.parametrize("what, bad", [("margin", 0), ("margin", -1), ("margin", float("nan")), ("margin", None), ("margin", True), ("level", 95), ("tier", "strict"),
                                       ("profile", "prod"), ("method", "magic"), ("resample", "blocks"), ("hypothesis_id", -1), ("replicates", 1200), ("seed", 3)])
def test_settings_are_refused_in_one_line(what, bad):
    with pytest.raises(ContractError) as caught:
        build_report(*make_arms(), **{what: bad})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer_digest", "text_digests"])
def test_arms_of_another_origin_are_refused(name):
    a, b = make_arms()
    other = WindowLosses.from_arrays(b.window_ids, b.tokens, b.log_loss, data_id=b.data_id, provenance={**b.provenance, name: "sha256:other"})
    with pytest.raises(PairingError, match="one " + name.split("_")[0]):
        build_report(a, other)


# --- the test set: its digest and its languages ----------------------------------------------------------------------------------------
def with_provenance(losses, document_ids=None, **change):
    return WindowLosses.from_arrays(losses.window_ids, losses.tokens, losses.log_loss, model=losses.model, data_id=losses.data_id, document_ids=document_ids,
                                    provenance={**losses.provenance, **change})


def mixed_arms(n=40, seed=3):
    "Twelve documents in three languages, dealt out at random; document 5 is not scored."
    rng = np.random.default_rng(seed)
    documents = [str(d) for d in rng.choice([d for d in range(12) if d != 5], n)]
    of = {str(d): ("en", "es", "und")[int(rng.integers(3))] for d in range(12)}
    return [with_provenance(losses, documents, document_languages=of) for losses in make_arms(n)], documents, of


@pytest.mark.parametrize("seed", range(5))
def test_languages_are_what_adding_up_by_hand_gives(seed):
    (a, b), documents, of = mixed_arms(seed=seed)
    report = build_report(a, b, **DRAWN)
    found = report.document()["dataset"]["languages"]
    assert sorted(found) == sorted({of[d] for d in documents}) and "document_languages" not in report.document()["evidence"]["baseline"]["scoring"]
    for name, part in found.items():
        rows = [i for i, d in enumerate(documents) if of[d] == name]
        tokens = [int(a.tokens[i]) for i in rows]
        assert (part["windows"], part["tokens"], part["documents"]) == (len(rows), sum(tokens), len({documents[i] for i in rows}))
        for arm, losses in (("baseline", a), ("candidate", b)):
            mean = math.fsum(t * float(losses.log_loss[i]) for t, i in zip(tokens, rows, strict=True)) / sum(tokens)
            assert math.isclose(part["perplexity"][arm], math.exp(mean), rel_tol=1e-12)
        for page in (room.render_markdown(report), room.render_html(report)):
            assert name in page and report.document()["dataset"]["data_id"] in page and f"{part['tokens']:,}" in page


def test_a_text_that_did_not_tell_is_null_and_said_so():
    report = build_report(*make_arms(), **DRAWN)
    assert report.document()["dataset"]["languages"] is None
    for page in (room.render_markdown(report), room.render_html(report)): assert "did not tell its languages" in page and report.document()["dataset"]["data_id"] in page


@pytest.mark.parametrize("change, says", [
    ({"text_digests": ["sha256:other"]}, "one text"), ({"tokenizer_digest": "sha256:other"}, "one tokenizer"), ({"document_languages": {"0": "en", "1": "pt"}}, '"es".*"pt"'),
    ({"document_languages": {"0": "en"}}, "one split of languages"), ({"languages": {"en": {"documents": 2, "tokens": 7}}}, '"tokens":6.*"tokens":7'),
    ({"languages": {"es": {"documents": 2, "tokens": 6}}}, '"en".*"es"')])
def test_two_test_sets_are_no_pair(tmp_path, change, says):
    "Whatever names the test set: told by both arms and told otherwise, it is refused, from arrays and from files."
    a, b = (with_provenance(x, **LANGUAGES, languages={"en": {"documents": 2, "tokens": 6}}) for x in make_arms())
    other = with_provenance(b, **change)
    with pytest.raises(PairingError, match=says): build_report(a, other, **DRAWN)
    with pytest.raises(PairingError, match=says): room.save_comparison(a, other, tmp_path / "out", suffix=".jsonl", **DRAWN)
    assert not list(tmp_path.iterdir())


def test_another_data_id_is_no_pair():
    a, b = make_arms()
    other = WindowLosses.from_arrays(b.window_ids, b.tokens, b.log_loss, data_id="sha256:other", provenance=b.provenance)
    with pytest.raises(PairingError, match="data_id must match"): build_report(a, other)


def test_one_arm_that_tells_is_enough():
    (a, b), documents, _ = mixed_arms()
    old = WindowLosses.from_arrays(a.window_ids, a.tokens, a.log_loss, model=a.model, data_id=a.data_id, provenance=make_arms()[0].provenance)
    both, one = build_report(a, b, **DRAWN), build_report(old, b, **DRAWN)
    assert one.document()["dataset"]["languages"] == both.document()["dataset"]["languages"] is not None


def test_counts_without_documents_are_shown_without_perplexities():
    part = VARIANTS["languages counted only"].document()["dataset"]["languages"]
    assert part == {"en": {"documents": 3, "tokens": 5120, "windows": None, "perplexity": None}}
    with pytest.raises(ContractError, match="add up"): build_report(*make_arms(told={"languages": {"en": {"documents": 3, "tokens": 5120}}}), **DRAWN)


def test_documents_that_the_losses_rename_are_counted_and_not_guessed():
    a, b = (with_provenance(x, ["x"] * 40, **LANGUAGES) for x in make_arms())
    assert build_report(a, b, **DRAWN).document()["dataset"]["languages"] is None


def test_a_part_of_the_windows_has_the_languages_of_that_part():
    (a, b), documents, of = mixed_arms()
    half = [WindowLosses.from_arrays(x.window_ids, x.tokens, x.log_loss, document_ids=documents, split=["preview"] * 15 + ["final"] * 25, provenance=x.provenance).select("final")
            for x in (a, b)]
    found = build_report(*half, **DRAWN).document()["dataset"]["languages"]
    assert sum(part["windows"] for part in found.values()) == 25 and set(found) == {of[d] for d in documents[15:]}


@pytest.mark.parametrize("bad", [{"languages": []}, {"languages": {}}, {"languages": {"en": 3}}, {"languages": {"en": {"documents": 0, "tokens": 1}}}, {"languages": {"en": {"documents": 1, "tokens": True}}},
                                 {"languages": {"en": {"documents": 1, "tokens": 1.5}}}, {"languages": {"": {"documents": 1, "tokens": 1}}}, {"document_languages": ["en"]}, {"document_languages": {"0": 3}},
                                 {"document_languages": {"0": ""}}, {"languages": "en"}])
def test_languages_that_are_none_are_refused_in_one_line(bad):
    a, b = make_arms()
    with pytest.raises(ContractError, match="languages must be counts") as caught: build_report(a, with_provenance(b, **bad), **DRAWN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("forge", [lambda part: part.update(tokens=part["tokens"] + 1), lambda part: part.update(documents=part["documents"] + 1), lambda part: part["perplexity"].update(ratio=1.0),
                                   lambda part: part["perplexity"].update(baseline=part["perplexity"]["baseline"] * 1.001), lambda part: part.update(perplexity=None)])
def test_languages_that_do_not_make_up_the_whole_break_a_contract(forge):
    document = VARIANTS["languages"].document()
    forge(document["dataset"]["languages"]["en"])
    assert any(line.startswith("languages_add_up") for line in check_report(with_new_digests(document)))


# --- bytes ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_same_inputs_same_bytes(tmp_path, monkeypatch, suffix):
    if suffix == ".parquet": pytest.importorskip("pyarrow")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one", "two"): room.save_comparison(*make_arms(), tmp_path / name, suffix=suffix, **DRAWN)
    files = {name: {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two")}
    assert files["one"] == files["two"] and set(files["one"]) == {"report.json", "report.md", "report.html", "baseline" + suffix, "candidate" + suffix}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    later = room.save_comparison(*make_arms(), tmp_path / "three", suffix=suffix, **DRAWN)
    changed = [p.name for p in (tmp_path / "three").iterdir() if p.read_bytes() != files["one"][p.name]]
    assert changed == ["report.json"] and later.digest == json.loads(files["one"]["report.json"])["digest"]
    assert verify(tmp_path / "three").digest == later.digest


def test_bytes_are_canonical_strict_json(folder):
    raw = (folder / "report.json").read_bytes()
    document = json.loads(raw, parse_constant=lambda literal: pytest.fail(f"{literal} is not JSON"))
    assert raw == (json.dumps(document, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()
    assert document == json.loads(json.dumps(with_new_digests(json.loads(raw)))), "the digests are those that hashlib gives"


# --- verify: any one change -----------------------------------------------------------------------------------------------------------
def test_what_was_saved_verifies(folder):
    report = verify(folder / "report.json")
    assert report.digest == verify(folder).digest == json.loads((folder / "report.json").read_text())["digest"] and check_report(report) == []
    (folder / "report.md").unlink(), (folder / "report.html").unlink()
    assert verify(folder).sentence == report.sentence


def test_the_exact_engine_verifies_too(tmp_path):
    report = room.save_comparison(*make_arms(), tmp_path / "out", suffix=".jsonl")
    assert report.document()["dataset"]["windows"]["stats"]["bootstrap"]["engine"] != "monte_carlo"
    assert verify(tmp_path / "out").digest == report.digest
    document = report.document()
    document["primary_metric"]["ci"][0] -= 1e-6
    document["primary_metric"]["display_ci"][0] = math.exp(document["primary_metric"]["ci"][0])
    document["sentence"] = room._sentence(document)
    write(tmp_path / "out", with_new_digests(document))
    assert check_report(document) == [], "the document alone cannot know"
    with pytest.raises(ContractError, match=r"primary_metric.ci\[0\]"):
        verify(tmp_path / "out")


def other_values(old):
    if isinstance(old, bool): return [not old]
    if old is None: return [0.5, 3, "x", False]
    if isinstance(old, int): return [old + 1, old - 1, old + 0.5]
    if isinstance(old, float): return [math.nextafter(old, math.inf), old * (1 + 1e-6) + 1e-9, -old if old else 1.0, old + 1]
    if isinstance(old, str): return [old + " ", "x" + old[1:]]
    return ["x"]


@pytest.mark.parametrize("careful", [False, True], ids=["one leaf", "one leaf and all digests"])
def test_every_leaf_of_the_report_matters(folder, careful):
    "Each number (and string, flag and null) in turn; the careful forger recomputes the digests, and is found by the losses."
    original = json.loads((folder / "report.json").read_text())
    (folder / "report.md").unlink(), (folder / "report.html").unlink()
    tried = 0
    for path, old in list(leaves(original)):
        if careful and (path[0] == "environment" or path[-1] == "digest"): continue
        for value in other_values(old):
            if careful and isinstance(old, float) and isinstance(value, float) and math.isclose(old, value, rel_tol=1e-9, abs_tol=1e-12): continue
            document = json.loads(json.dumps(original))
            put(document, path, value)
            write(folder, with_new_digests(document) if careful else document)
            with pytest.raises(ContractError) as caught:
                verify(folder)
            assert "\n" not in str(caught.value), path
            tried += 1
    assert tried > (250 if careful else 300)
    write(folder, original)
    verify(folder)


def test_a_changed_number_is_named_with_both_values(folder):
    document = json.loads((folder / "report.json").read_text())
    truth = document["primary_metric"]["ci"][1]
    document["primary_metric"]["ci"][1] = 0.05
    write(folder, document)
    with pytest.raises(ContractError, match=re.escape(f"primary_metric.ci[1] must be what the loss files give; got 0.05, recomputed {truth!r}")):
        verify(folder)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_every_byte_of_a_loss_file_matters(tmp_path, suffix):
    if suffix == ".parquet": pytest.importorskip("pyarrow")
    folder = tmp_path / "out"
    room.save_comparison(*make_arms(), folder, suffix=suffix, **DRAWN)
    rng = np.random.default_rng(0)
    for arm in ("baseline", "candidate"):
        path = folder / (arm + suffix)
        good = path.read_bytes()
        for at in {0, len(good) - 1, *rng.integers(0, len(good), 300).tolist()}:
            bad = bytearray(good)
            bad[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(bad))
            with pytest.raises(ContractError, match="digest"):
                verify(folder)
        for bad in (good[:-1], good + b"\n", b""):
            path.write_bytes(bad)
            with pytest.raises(ContractError):
                verify(folder)
        path.write_bytes(good)
    verify(folder)


@pytest.mark.parametrize("name", ["report.json", "report.md", "report.html"])
def test_every_byte_of_the_report_and_its_pages_matters(folder, name):
    rng = np.random.default_rng(1)
    path = folder / name
    good = path.read_bytes()
    for at in {0, len(good) - 1, *rng.integers(0, len(good), 60).tolist()}:
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        with pytest.raises(ContractError):
            verify(folder)
    for bad in (good[:-1], good + b"\n", good.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + good, b""):
        path.write_bytes(bad)
        with pytest.raises(ContractError):
            verify(folder)
    path.write_bytes(good)
    verify(folder)


@pytest.mark.parametrize("spelling", [lambda t: t.replace('"margin": 0.02', '"margin": 0.020'), lambda t: t.replace('"margin": 0.02', '"margin": 2e-2'), lambda t: t.rstrip("\n"),
                                      lambda t: t.replace("  ", "\t"), lambda t: json.dumps(json.loads(t)), lambda t: t.replace('"margin": 0.02', '"margin": NaN'),
                                      lambda t: t.replace('"margin": 0.02', '"margin": 0.02,\n    "margin": 0.02')])
def test_only_one_spelling_is_believed(folder, spelling):
    path = folder / "report.json"
    changed = spelling(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(ContractError):
        verify(folder)


def test_the_losses_of_two_runs_cannot_be_mixed(folder, tmp_path):
    room.save_comparison(*make_arms(seed=8), tmp_path / "other", suffix=".jsonl", **DRAWN)
    shutil.copy(tmp_path / "other" / "candidate.jsonl", folder / "candidate.jsonl")
    with pytest.raises(ContractError, match="evidence.candidate.sha256"):
        verify(folder)
    (folder / "candidate.jsonl").unlink()
    with pytest.raises(ContractError, match="must lie beside the report"):
        verify(folder)


def test_arms_cannot_be_swapped(folder):
    document = json.loads((folder / "report.json").read_text())
    document["evidence"]["baseline"], document["evidence"]["candidate"] = document["evidence"]["candidate"], document["evidence"]["baseline"]
    write(folder, with_new_digests(document))
    with pytest.raises(ContractError):
        verify(folder)


@pytest.mark.parametrize("name", ["../out/baseline.jsonl", "..", ".", "", "/etc/hostname", "sub/baseline.jsonl", "..\\baseline.jsonl", "C:baseline.jsonl", "baseline.jsonl\x00"])
def test_a_report_that_points_elsewhere_is_not_followed(folder, name):
    document = json.loads((folder / "report.json").read_text())
    document["evidence"]["baseline"]["file"] = name
    write(folder, with_new_digests(document))
    with pytest.raises(ContractError, match="plain name"):
        verify(folder)


def test_other_inputs_make_another_true_report(folder):
    "What verify promises: a report is consistent with its losses and its inputs. Honest inputs are the reader's to judge."
    baseline, candidate = (room.read_losses(folder / f"{arm}.jsonl") for arm in ("baseline", "candidate"))
    document = json.loads((folder / "report.json").read_text())
    files = {arm: (document["evidence"][arm]["file"], document["evidence"][arm]["sha256"]) for arm in ("baseline", "candidate")}
    other = build_report(baseline, candidate, files=files, margin=0.1, level=0.9, tier="aggressive", **DRAWN)
    room.write_report(other, folder)
    assert verify(folder).verdict.noise_kind == "equivalent" and json.loads((folder / "report.json").read_text())["inputs"]["margin"] == 0.1


def test_a_report_of_another_version_is_rebuilt_and_says_so(folder):
    baseline, candidate = (room.read_losses(folder / f"{arm}.jsonl") for arm in ("baseline", "candidate"))
    evidence = json.loads((folder / "report.json").read_text())["evidence"]
    files = {arm: (evidence[arm]["file"], evidence[arm]["sha256"]) for arm in ("baseline", "candidate")}
    room.write_report(build_report(baseline, candidate, files=files, version="0.0.9", **DRAWN), folder)
    assert "invar_nb:0.0.9|" in verify(folder).document()["signature"]
    document = json.loads((folder / "report.json").read_text())
    document["primary_metric"]["p_value"] = 0.5
    write(folder, document)
    with pytest.raises(ContractError, match="written by 0.0.9"):
        verify(folder)
    document = json.loads((folder / "report.json").read_text())
    document["version"] = "0.0.8"
    write(folder, with_new_digests(document))
    with pytest.raises(ContractError):
        verify(folder)


def test_a_report_of_unsaved_arrays_says_that_it_cannot_be_verified(tmp_path):
    report = build_report(*make_arms(), **DRAWN)
    room.write_report(report, tmp_path)
    assert "never saved" in (tmp_path / "report.md").read_text()
    with pytest.raises(ContractError, match="must name a saved loss file"):
        verify(tmp_path)


# --- writing --------------------------------------------------------------------------------------------------------------------------
def test_nothing_is_written_when_the_report_is_refused(tmp_path):
    for bad in ({"profile": "ci"}, {"margin": 0}, {"tier": "x"}, {"suffix": ".txt"}):
        with pytest.raises(ContractError):
            room.save_comparison(*make_arms(), tmp_path / "deep" / "out", **bad)
    assert list(tmp_path.rglob("*")) == [tmp_path / "deep"]


def test_a_report_is_not_overwritten_unasked(folder):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(ContractError, match="never overwritten"):
        room.save_comparison(*make_arms(seed=9), folder, **DRAWN)
    assert before == {p.name: p.read_bytes() for p in folder.iterdir()}
    (folder / "notes.txt").write_text("mine")
    pytest.importorskip("pyarrow")
    report = room.save_comparison(*make_arms(seed=9), folder, force=True, suffix=".parquet", **DRAWN)
    assert verify(folder).digest == report.digest and (folder / "notes.txt").read_text() == "mine"
    assert not list(folder.glob("*.jsonl")), "files of the former report are gone"


@pytest.mark.parametrize("at", range(5))
def test_a_crash_while_replacing_never_leaves_a_report_that_lies(folder, monkeypatch, at):
    old = verify(folder).digest
    moves, real = [], os.replace

    def failing(source, target):
        if "whole" in str(source) and str(target).startswith(str(folder)):
            moves.append(target)
            if len(moves) > at: raise OSError(28, "No space left on device")
        return real(source, target)
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError):
        room.save_comparison(*make_arms(seed=9), folder, force=True, suffix=".jsonl", **DRAWN)
    monkeypatch.undo()
    assert [p.name for p in folder.parent.iterdir()] == ["out"], "the shelter is gone"
    assert "report.json" not in [os.path.basename(m) for m in moves[:4]], "report.json comes last"
    assert verify(folder).digest == old, "what was there is put back"


@pytest.mark.parametrize("at", range(11))
def test_a_death_while_replacing_never_leaves_an_old_report_beside_new_losses(folder, at):
    "The process ends at the n-th rename, with nobody left to put anything back."
    code = """if True:
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from test_contracts import make_arms, room, DRAWN
        folder, left = sys.argv[2], [int(sys.argv[3])]
        def deadly(real):
            def move(source, target):
                if str(source).startswith(folder) or str(target).startswith(folder):
                    if left[0] == 0: os._exit(9)
                    left[0] -= 1
                return real(source, target)
            return move
        os.replace, os.rename = deadly(os.replace), deadly(os.rename)
        room.save_comparison(*make_arms(seed=9), folder, force=True, suffix=".jsonl", **DRAWN)"""
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__), str(folder), str(at)], capture_output=True, text=True)
    assert done.returncode in (0, 9), done.stderr
    assert (done.returncode == 9) == (at < 10), "the deaths happen"
    assert (folder / "report.json").exists() == (at in (0, 10))
    if at in (0, 10):
        assert verify(folder)
        assert ({p.name: p.read_bytes() for p in folder.iterdir()} == before) == (at == 0)


@pytest.mark.parametrize("name", ["report.json", "candidate.parquet", "report.html", "baseline.jsonl"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(folder, name, monkeypatch):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    (folder / name / "mine.txt").write_text("mine")
    before = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    monkeypatch.setattr(room, "write_losses", lambda *_: pytest.fail("written"))
    with pytest.raises(ContractError, match=f"{name}.*is a folder"):
        room.save_comparison(*make_arms(seed=9), folder, force=True, suffix=".jsonl", **DRAWN)
    assert {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("version", ["0.1.0; rm -rf ~", "0.1.0\n", "0.1 ", "1", "x0.1", "0.1.0 --pre other", "0.1.0\x1b[2J", "0..1", "\u0660.1"])
def test_a_version_is_a_version(folder, version):
    document = json.loads((folder / "report.json").read_text())
    document["version"] = version
    document["signature"] = document["signature"].replace(document["signature"].split("|")[0], f"invar_nb:{version}")
    write(folder, with_new_digests(document))
    for page in ("report.md", "report.html"): (folder / page).unlink()
    with pytest.raises(ContractError, match="version"): verify(folder)
    with pytest.raises(ContractError, match="version"): build_report(*make_arms(), version=version, **DRAWN)


@pytest.mark.parametrize("version", ["0.1", "0.1.0", "1.2.3rc1", "1.2.3.dev0+g12ab"])
def test_versions_of_other_builds_are_versions(version):
    assert build_report(*make_arms(), version=version, environment=ENVIRONMENT, **DRAWN).document()["version"] == version


def test_a_digest_ends_where_it_ends(folder):
    document = json.loads((folder / "report.json").read_text())
    document["digest"] += "\n"
    assert any("digest" in line for line in room.structure_errors(document, room.report_schema()))


def with_losses(value, arm, n=40):
    losses = list(make_arms(n))
    base = losses[arm]
    losses[arm] = WindowLosses.from_arrays(base.window_ids, base.tokens, np.full(n, value), model=base.model, data_id=base.data_id, provenance=base.provenance)
    return losses


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize("value", [710.0, 1e5, 1e308])
def test_a_mean_loss_beyond_a_float_is_refused(arm, value):
    with pytest.raises(ContractError, match="709.78|fit float64"): build_report(*with_losses(value, arm), **DRAWN)


@pytest.mark.filterwarnings("error")
def test_an_interval_beyond_a_float_is_refused():
    a, b = make_arms(40)
    loss = np.where(np.arange(40) % 2, 5.0, 1400.0)  # the mean fits, the interval's upper end does not
    b = WindowLosses.from_arrays(b.window_ids, np.full(40, 100), loss, model="b", data_id=b.data_id)
    a = WindowLosses.from_arrays(a.window_ids, np.full(40, 100), np.ones(40), model="a", data_id=a.data_id)
    with pytest.raises(ContractError, match="exp of an endpoint"): build_report(a, b, **DRAWN)


@pytest.mark.parametrize("what, bad", [("margin", 700), ("margin", 1e300), ("level", 0.99999999999999989), ("level", 1e-300), ("replicates", 10**15)])
def test_settings_beyond_use_are_refused_before_the_work(what, bad, monkeypatch):
    monkeypatch.setattr(room, "compare", lambda *_, **__: pytest.fail("the work was begun"))
    with pytest.raises(ContractError, match=what): build_report(*make_arms(), **{**DRAWN, what: bad})


def test_the_largest_settings_give_a_report():
    for more in ({"margin": 50}, {"level": 1 - 1e-6}, {"level": 1e-6}):
        assert check_report(build_report(*make_arms(), environment=ENVIRONMENT, **more)) == []


ORDERS = "m\x1b[31mred\x1b]0;title\x07\x00\x9b2J\u202eedit"


def test_control_characters_are_shown_not_obeyed():
    a, b = make_arms()
    arms = [WindowLosses.from_arrays(x.window_ids, x.tokens, x.log_loss, model=ORDERS + name, data_id=x.data_id,
                                     provenance={**x.provenance, "dtype": name + ORDERS, "extra\x1b": ORDERS}) for x, name in ((a, "a"), (b, "b"))]
    report = build_report(*arms, environment=ENVIRONMENT, **DRAWN)
    for text in (report.sentence, room.render_markdown(report), room.render_html(report), *report.warnings):
        assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "[31mred" in report.sentence and "[31mred" in room.render_html(report) and any("[31mred" in line for line in report.warnings)
    assert report.document()["evidence"]["baseline"]["model"] == ORDERS + "a", "the evidence itself is not edited"


@pytest.mark.parametrize("name, one, two", [("dtype", "float32", "bfloat16"), ("device", "cpu", "cuda"), ("batch_tokens", 4096, 512), ("first_window", "all", "context_only"),
                                            ("bos", "auto", "none"), ("padding_side", "right", "left")])
def test_arms_scored_differently_are_warned_of(name, one, two):
    def report(x, y):
        arms = [WindowLosses.from_arrays(arm.window_ids, arm.tokens, arm.log_loss, model=arm.model, data_id=arm.data_id,
                                         provenance={**arm.provenance, **({} if value is None else {name: value})}) for arm, value in zip(make_arms(), (x, y), strict=True)]
        return build_report(*arms, environment=ENVIRONMENT, **DRAWN)
    said = [line for line in report(one, two).warnings if name in line]
    assert len(said) == 1 and str(one) in said[0] and str(two) in said[0]
    assert not [line for line in report(one, one).warnings if name in line]


# --- pages ----------------------------------------------------------------------------------------------------------------------------
class Page(html.parser.HTMLParser):
    void = {"meta", "br", "hr", "img", "link"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.void: self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text += data


NASTY = '<script>alert("1")</script> | `x` *b* [l](javascript:1) & \' </title>\n# head'


def test_pages_escape_every_string():
    a, b = make_arms(document_ids=["0"] * 40)
    rename = lambda arm, name: WindowLosses.from_arrays(arm.window_ids, arm.tokens, arm.log_loss, model=name, data_id=NASTY, provenance={NASTY: NASTY, "text_digests": [NASTY]})
    report = build_report(rename(a, NASTY), rename(b, NASTY + "2"), environment=ENVIRONMENT, **DRAWN)
    page = Page(room.render_html(report))
    assert page.open == [] and "script" not in page.tags and "a" not in page.tags and 'alert("1")' in page.text
    assert not [k for k, v in page.attributes if k.startswith("on") or (v or "").strip().startswith("javascript")]
    text = room.render_markdown(report)
    assert "<script" not in text and not re.search(r"(?<!\\)\[l(?<!\\)\]\(", text) and "\n# head" not in text
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert rows and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {3, 4, 5}


@pytest.mark.parametrize("name", VARIANTS)
def test_pages_stand_alone_and_say_the_sentence_first(name):
    report = VARIANTS[name]
    text = room.render_html(report)
    page = Page(text)
    assert page.open == [] and page.tags.count("svg") == 2 and "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", text.lower().split("<body>")[1])
    assert not re.search(r"""(?:src|href|action)\s*=|@import|url\(|<script|<iframe|<link""", text)
    assert not [u for u in re.findall(r"https?://[^\s\"'<]+", text) if not u.startswith("http://www.w3.org/2000/svg")]
    body = page.text[page.text.index("against"):]
    assert body.index(report.sentence) < body.index("The numbers") < body.index("How to recompute") < body.index("What it refuses to say")
    assert report.sentence in room.render_markdown(report).replace("\\", "")
    assert len(report.sentence) < 320 and "\n" not in report.sentence


def test_pages_of_many_windows_stay_small():
    report = build_report(*make_arms(5000), environment=ENVIRONMENT, replicates=100, seed=0)
    assert len(room.render_html(report)) < 150_000


@pytest.mark.parametrize("shift, noise, word", [(0.05, 0.02, "Regressed"), (-0.05, 0.02, "Improved"), (0.001, 0.01, "Equivalent"), (0.015, 0.2, "Undecided")])
def test_the_sentence_says_what_the_verdict_says(shift, noise, word):
    assert build_report(*make_arms(120, shift=shift, noise=noise), environment=ENVIRONMENT, **DRAWN).sentence.startswith(word + ":")
