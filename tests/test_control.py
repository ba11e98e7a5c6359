"The baseline scored twice: its interval is a floor, and nothing below it has improved or regressed."
import numpy as np
import pytest
from test_report import losses
from test_verify import again

from invar_nb.comparison.compare import compare
from invar_nb.comparison.control import measure_control
from invar_nb.comparison.pair import pair
from invar_nb.foundations.numbers import ContractError, PairingError
from invar_nb.report.build import build_report
from invar_nb.report.verify import verify


def moved(by, noise=1e-9):
    "A pair that moves by so many nats, the same way in every window."
    both = losses(n=60)
    rng = np.random.default_rng(4)
    return pair(both.baseline, both.candidate.changed(log_loss=both.baseline.log_loss + by + rng.normal(0, noise, 60)))


@pytest.mark.parametrize("by", [-1e-7, 1e-7])
def test_an_edit_below_the_floor_is_never_a_change(by, tmp_path):
    both = moved(by)
    alone = build_report(compare(both), margin=0)
    assert alone.document()["verdict"]["claim"] == ("regressed" if by > 0 else "improved") and alone.exit_code == (by > 0)
    r = build_report(compare(both), margin=0, control=again(both))
    d = r.document()
    low, high = d["control"]["ci"]
    assert d["control"]["floor"] == max(-low, high) > abs(by) and d["control"]["below"] and r.exit_code == 0
    assert (d["verdict"]["claim"], d["verdict"]["verdict"], d["verdict"]["beyond_margin"]) == ("inconclusive", "noise", False)
    assert "below the numerical noise of" in d["headline"] and "The edit is below numerical noise." in str(r)
    assert {row["metric"]: row["claim"] for row in d["comparison"]} == {"perplexity": "inconclusive"}
    r.save(tmp_path / "r")
    assert verify(tmp_path / "r").report.document()["control"] == d["control"] and len([*tmp_path.glob("r/control.*")]) == 1
    assert "baseline scored twice" in (tmp_path / "r" / "report.html").read_text()


def test_above_the_floor_nothing_changes_and_equivalent_stays():
    both = moved(1e-4)
    plain, beside = (build_report(compare(both), margin=m, control=c).document() for m, c in ((0, None), (0, again(both))))
    assert not beside["control"]["below"] and {k: v for k, v in beside.items() if k not in ("control", "evidence", "digest", "environment")} == {
        k: v for k, v in plain.items() if k not in ("control", "evidence", "digest", "environment")}
    assert build_report(compare(moved(1e-7)), control=again(both)).document()["verdict"]["claim"] == "equivalent"


def test_a_control_is_of_the_baseline_and_its_windows():
    both = losses(n=40)
    known = both.baseline.changed(provenance={"weights_digest": "sha256:a"})
    with pytest.raises(PairingError, match="control: the control must be the baseline, scored again; got weights_digest None"):
        measure_control(compare(pair(known, both.candidate)), both.baseline)
    with pytest.raises(ContractError): measure_control(compare(both), losses(n=30).baseline)
    columns = losses(.01, n=40, columns={"kl_divergence": np.linspace(.1, 1, 40), "top1_changed": [2] * 40})
    only = compare(columns, metrics=["kl_divergence"])
    with pytest.raises(ContractError, match="some metric must have a value of the baseline"): measure_control(only, again(columns))
    assert {key[0] for key in measure_control(compare(columns), again(columns)).floors} == {"perplexity"}
