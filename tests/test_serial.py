"""The cosine terms against sums written out and scipy's transform; the public function against its parts."""
import math

import numpy as np
import pytest
from scipy.fft import dct

from invar_nb.foundations.refuse import ContractError, PairingError
from invar_nb.statistics import serial
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import jackknife_interval, serial_ratio, serial_ratio_difference


def written_out(d, t):
    "SE and degrees of freedom as @eq-serial-joined prints them, term by term."
    n, T = d.size, t.sum()
    x, independent = t * (d - (t @ d) / T) / T, jackknife_ratio(t * d, t)
    B = min(n - 1, max(2, round(0.4 * n ** (2 / 3))))
    L = [math.sqrt(2 / n) * sum(x[i] * math.cos(math.pi * j * (i + 0.5) / n) for i in range(n)) for j in range(1, B + 1)]
    error = math.sqrt(n * sum(v * v for v in L) / B) * independent.standard_error / math.sqrt(x @ x)
    return max(error, independent.standard_error) if n < 10 else error, 1 / (1 / B + 1 / independent.nu)


@pytest.mark.parametrize("n", [2, 3, 4, 9, 10, 11, 60, 181, 1000])
def test_formula(n):
    rng = np.random.default_rng(n)
    d, t = rng.gamma(1, size=n), np.rint(rng.lognormal(4, 0.8, n)) + 1
    fit, plain = serial_ratio(t * d, t), jackknife_ratio(t * d, t)
    np.testing.assert_allclose([fit.standard_error, fit.dof], written_out(d, t), rtol=1e-10)
    assert (fit.estimate, fit.skewness, fit.nu, fit.units_eff, fit.n_units) == (plain.estimate, plain.skewness, plain.nu, plain.units_eff, n)
    a, b = rng.normal(size=n), rng.normal(size=n)
    two, one = serial_ratio_difference((a * t, t), (b * t, t)), serial_ratio((b - a) * t, t)
    np.testing.assert_allclose([two.standard_error, two.dof], [one.standard_error, one.dof], rtol=1e-9)


@pytest.mark.parametrize("n", [2049, 2053, 10_007, 65_536, 100_003, 400_009])
def test_waves_of_a_long_text_are_the_cosine_transform(n):
    x, terms = np.random.default_rng(n).standard_t(3, n), serial.cosine_terms(n)
    direct = dct(x, 2)[1:terms + 1] / 2
    np.testing.assert_allclose(serial._slow_waves(x, terms), direct, rtol=0, atol=1e-9 * math.sqrt((direct**2).mean()))


def test_both_sides_of_the_change_of_method_agree(monkeypatch):
    x = np.random.default_rng(0).normal(size=2048)
    np.testing.assert_allclose(serial._cosines(2048) @ x, serial._slow_waves(x, serial.cosine_terms(2048)), atol=1e-9 * math.sqrt(1024))


def test_correlated_neighbours_widen_and_order_matters():
    rng = np.random.default_rng(1)
    d = np.convolve(rng.normal(size=640), np.ones(40) / 40, "valid")[:600]
    t = np.ones(600)
    plain, wide, shuffled = jackknife_ratio(d, t), serial_ratio(d, t), serial_ratio(rng.permutation(d), t)
    assert wide.standard_error > 4 * plain.standard_error and shuffled.standard_error < 1.5 * plain.standard_error
    backwards = serial_ratio(d[::-1].copy(), t)
    assert backwards.standard_error == pytest.approx(wide.standard_error, rel=1e-10)  # the text read backwards


@pytest.mark.parametrize("units", ["serial", "windows"])
def test_the_door_is_its_parts(units):
    rng = np.random.default_rng(2)
    d, t = rng.standard_t(3, 180), rng.integers(1, 900, 180)
    parts = (serial_ratio if units == "serial" else jackknife_ratio)(t * d, t.astype(float)).interval(0.9)
    for tokens in (t, t.astype(float), t.tolist(), t.astype(np.int32), t.astype(np.float32)):
        for delta in (d, d.tolist()):
            shown = jackknife_interval(delta, tokens, units=units, level=0.9)
            np.testing.assert_allclose([shown.low, shown.high], [parts.low, parts.high], rtol=1e-10)
            assert (shown.level, shown.method, shown.engine, shown.fallback) == (0.9, "jackknife", "closed_form", None)


def test_documents_by_any_names():
    rng = np.random.default_rng(3)
    d, t, codes = rng.normal(size=300), rng.integers(1, 900, 300), np.sort(rng.integers(0, 40, 300))
    codes[codes == 7] = 8  # a code that no window has
    names = [f"page {c}" for c in codes]
    N, W = (np.array([v[codes == c].sum() for c in dict.fromkeys(codes.tolist())]) for v in (t * d, t.astype(float)))
    truth = jackknife_ratio(N, W).interval()
    shuffle = rng.permutation(300)
    for ids in (codes, codes.astype(np.int32), codes.tolist(), names, codes * 10**9, codes - 20):
        for order in (np.arange(300), shuffle):
            shown = jackknife_interval(d[order], t[order], units="documents", document_ids=[ids[i] for i in order] if isinstance(ids, list) else ids[order])
            np.testing.assert_allclose([shown.low, shown.high], [truth.low, truth.high], rtol=1e-10)
    assert jackknife_interval(d, t, units="documents", document_ids=["one"] * 300).fallback.code == "single_pair"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("call, message", [
    (dict(delta=[0.1, math.nan], tokens=[1, 2]), "delta must be finite; got nan at index 1"),
    (dict(delta=np.array([0.1, math.inf]), tokens=np.array([1, 2])), "delta must be finite; got inf at index 1"),
    (dict(delta=np.array([0.1, 0.2]), tokens=np.array([1, 0])), "tokens must be whole numbers from 1"),
    (dict(delta=np.array([0.1, 0.2]), tokens=np.array([1, 2.5])), "tokens must be whole numbers from 1"),
    (dict(delta=np.array([0.1, 0.2]), tokens=np.array([1, math.nan])), "tokens must be whole numbers from 1"),
    (dict(delta=np.array([0.1, 0.2]), tokens=np.array([2**53, 5])), "the total of tokens"),
    (dict(delta=np.array([1e308, 1e308]), tokens=np.array([9, 9])), "delta times tokens must fit float64"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2, 3]), "delta must have 3 entries; got 2"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2], units="document"), "Did you mean 'documents'?"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2], units="documents"), "document_ids and units='documents' belong together"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2], document_ids=["a", "b"]), "document_ids and units='documents' belong together"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2], units="documents", document_ids=["a"]), "document_ids must have 2 entries; got 1"),
    (dict(delta=[0.1, 0.2], tokens=[1, 2], level=95), "Did you mean 0.95?")])
def test_refusals(call, message):
    with pytest.raises(ContractError) as error: jackknife_interval(**call)
    assert message in str(error.value) and str(error.value).startswith("jackknife_interval: ") and "\n" not in str(error.value)


def test_nothing_is_a_pairing_error():
    for empty in ([], np.array([])):
        with pytest.raises(PairingError, match="at least one pair"): jackknife_interval(empty, empty)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("units", ["serial", "windows"])
def test_few_windows_and_equal_ones(units):
    assert jackknife_interval([0.3], [5], units=units).fallback.code == "single_pair"
    assert jackknife_interval([0.3] * 50, range(1, 51), units=units).fallback.code == "all_equal"
    for n in range(2, 14):
        for d in (np.r_[1.0, np.zeros(n - 1)], (-1.0) ** np.arange(n), np.arange(n) * 1.0):
            interval = jackknife_interval(d, np.ones(n), units=units, level=0.999)
            assert interval.low < interval.high and interval.contains(d.mean())


def test_below_ten_windows_never_narrower():
    rng = np.random.default_rng(5)
    for n in range(2, 10):
        for _ in range(50):
            d, t = rng.normal(size=n), rng.integers(1, 9, n) * 1.0
            assert serial_ratio(t * d, t).standard_error >= jackknife_ratio(t * d, t).standard_error


def test_input_is_not_changed():
    d, t = np.random.default_rng(6).normal(size=50_000), np.ones(50_000)
    before = d.copy(), t.copy()
    for units in ("serial", "windows"): jackknife_interval(d, t, units=units)
    assert (d == before[0]).all() and (t == before[1]).all()
