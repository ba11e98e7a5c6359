"""Instances of Every Eval Ever: the scores of each evaluation, joined by hash, and every refusal."""
import json

import numpy as np
import pytest

from invar_nb.comparison.compare import compare
from invar_nb.comparison.pair import pair
from invar_nb.files.every_eval import is_every_eval, read_every_eval
from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.report.build import build_report
from invar_nb.report.verify import verify


def row(i, score, model="org/a", name="GSM8K", correct=None, **more):
    "A sample with every field that the schema asks for."
    return {"schema_version": "instance_level_eval_0.2.1", "evaluation_id": f"{name}/{model}/1", "model_id": model, "evaluation_name": name, "sample_id": f"q{i}",
            "sample_hash": f"{hash((name, i)) % 2**64:064x}", "interaction_type": "single_turn", "input": {"raw": f"{i} + 1", "reference": [f"{i + 1}"], "choices": None},
            "output": {"raw": ["?"]}, "messages": None, "answer_attribution": [], "error": None,
            "evaluation": {"score": score, "is_correct": score == 1 if correct is None else correct}} | more


def write(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    return path


def test_two_files_pair_by_hash_and_report(tmp_path):
    rng = np.random.default_rng(0)
    right = rng.random((2, 20)) < [[.5], [.7]]
    paths = [write(tmp_path / f"{m}.jsonl", [row(i, float(x), f"org/{m}") for i, x in enumerate(r)] + [row(i, -i / 7, f"org/{m}", "cost", correct=i < 3) for i in range(5)])
             for m, r in zip("ab", right, strict=True)]
    found = [read_every_eval(p) for p in paths]
    assert list(found[0]) == ["GSM8K", "cost"] and is_every_eval(paths[0]) and found[0]["cost"].better == "higher" and found[1]["GSM8K"].model == "org/b"
    made = compare(pair(*[arms["GSM8K"] for arms in found]))
    assert made.method == "tango" and made.delta == pytest.approx(right[1].mean() - right[0].mean()) and made.pair.baseline.data_id == "every-eval:GSM8K"
    assert verify(build_report(made).save(tmp_path / "r")).report.document()["evidence"]["candidate"]["provenance"]["source"]["format"] == "Every Eval Ever"
    with pytest.raises(PairingError, match="evaluation_name must match; got 'GSM8K' and 'cost'"): pair(found[0]["GSM8K"], found[1]["cost"])


@pytest.mark.parametrize("scores, better", [([(1, True), (0, False)], "higher"), ([(3.5, True), (9.0, False)], "lower"), ([(1, True), (1, True)], "higher"), ([(0, False)], "higher")])
def test_direction_comes_from_the_correct_samples(tmp_path, scores, better):
    path = write(tmp_path / "x.jsonl", [row(i, x, correct=right) for i, (x, right) in enumerate(scores)])
    assert read_every_eval(path)["GSM8K"].better == better


@pytest.mark.parametrize("change, part", [
    ({"sample_hash": ""}, "must have a sample_hash"), ({"evaluation_id": "other"}, "one evaluation_id"),
    ({"sample_id": "q0"}, "ids must be unique"), ({"evaluation": {"score": "1", "is_correct": True}}, "line 2"), ({"evaluation": {"score": 1.0}}, "is_correct"), ({"sample_id": 7}, "line 2"),
    ({"evaluation": {"score": 2.0, "is_correct": True}}, None), ({"evaluation": {"score": 0.5, "is_correct": True}, "evaluation_name": "x"}, "whether a higher score is better")])
def test_what_cannot_be_paired_is_refused(tmp_path, change, part):
    path = write(tmp_path / "x.jsonl", [row(0, 1.0), row(1, 1.0, **change)])
    if part is None:
        with pytest.raises(ContractError, match="whether a higher score is better"): read_every_eval(path)
        assert read_every_eval(path, better="lower")["GSM8K"].better == "lower"
        return
    with pytest.raises(ContractError) as caught: read_every_eval(path)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_empty_and_shuffled_files(tmp_path):
    rows = [row(i, float(i % 2)) for i in range(6)]
    whole = write(tmp_path / "a.jsonl", rows)
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ContractError, match="must hold samples"): read_every_eval(tmp_path / "none.jsonl")
    arm = read_every_eval(whole)["GSM8K"]
    other = [{**r, "sample_hash": rows[(i + 1) % 6]["sample_hash"]} for i, r in enumerate(rows)]
    with pytest.raises(PairingError, match="prompt_digests must match"): pair(arm, read_every_eval(write(tmp_path / "c.jsonl", other))["GSM8K"])
    assert pair(arm, read_every_eval(write(tmp_path / "d.jsonl", rows[::-1]))["GSM8K"]).n == 6
    assert not is_every_eval(tmp_path) and not is_every_eval(tmp_path / "none.jsonl") and not is_every_eval(tmp_path / "absent")
