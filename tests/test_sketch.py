"""Sketches against the one-pass jackknife: sizes, laws, cuts, orders, documents, text order; what a sketch refuses."""
import numpy as np
import pytest

from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import block_size, serial_ratio
from invar_nb.statistics.sketch import BlockSums, DocumentSums, RatioSums
from invar_nb.statistics.weighted import unit_totals

LAWS = {"normal": lambda rng, n: rng.standard_normal(n), "skewed": lambda rng, n: rng.lognormal(0, 1, n), "t3": lambda rng, n: rng.standard_t(3, n)}


def apart(a, b):
    "Distance of the ends in widths, of the p-values, and of what else a fit says."
    i, j = a.interval(), b.interval()
    rest = [abs(x / y - 1) for x, y in zip((a.nu, a.units_eff, a.n_units), (b.nu, b.units_eff, b.n_units), strict=True)]
    return max(abs(i.low - j.low) / i.width, abs(i.high - j.high) / i.width, abs(a.p_value(a.estimate / 2) - b.p_value(a.estimate / 2)), *rest)


def at_random(parts, rng):
    parts = list(parts)
    while len(parts) > 1:
        one, other = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        parts.append(one.merged(other))
    return parts[0]


def windows(n, law, seed, equal=False):
    rng = np.random.default_rng(seed)
    t = np.full(n, 512.0) if equal else np.ceil(100 * rng.lognormal(0, 1.2, n))
    return rng, t, t * (0.02 + 0.05 * LAWS[law](rng, n))


@pytest.mark.parametrize("n", [3, 65, 1000, pytest.param(10**4, marks=pytest.mark.slow), pytest.param(10**5, marks=pytest.mark.slow), pytest.param(10**6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("equal", [True, False])
def test_any_size_and_law_a_shift_one_sd_off(n, law, equal):
    rng, t, N = windows(n, law, n, equal)
    exact = jackknife_ratio(N, t)
    for shift in (None, exact.estimate + float(np.std(N / t)), exact.estimate - float(np.std(N / t))):
        sums = RatioSums(shift)
        for rows in np.array_split(np.arange(n), 3 + n // 65536):
            if rows.size: sums.add(t[rows], N[rows])
        assert apart(exact, sums.fit()) < 1e-10 and sums.n == n


@pytest.mark.parametrize("law", LAWS)
def test_64_shards_of_documents_in_100_orders(law):
    rng, t, N = windows(30_000, law, 7)
    document = np.repeat(np.arange(3000), rng.multinomial(30_000, rng.dirichlet(np.ones(3000))))
    parts, rows_of = [], np.split(np.arange(t.size), np.sort(rng.choice(np.arange(1, t.size), 63, replace=False)))
    for rows in rows_of:
        parts.append(DocumentSums())
        for some in np.array_split(rows, 2):
            if not some.size: continue
            names, codes = np.unique(document[some], return_inverse=True)
            parts[-1].add(names.astype(str).tolist(), codes, t[some], N[some])
    names, codes = np.unique(document, return_inverse=True)
    exact = jackknife_ratio(unit_totals(N, codes, names.size), unit_totals(t, codes, names.size))
    for _ in range(100): assert apart(exact, at_random(parts, rng).whole().fit()) < 1e-12


def test_blocks_of_a_long_text(monkeypatch):
    "As the serial interval of the whole, whatever the cut and the batch, where blocks of 4 are needed."
    rng, t, N = windows(4001, "t3", 5)
    for module in ("serial", "sketch"):
        monkeypatch.setattr(f"invar_nb.statistics.{module}.block_size", lambda n, most=1024: block_size(n, 1024))
    whole, parts, start = serial_ratio(N, t), [], 0
    assert whole.n_units == 4001
    for rows in np.split(np.arange(4001), [1, 700, 701, 2049]):
        parts.append(BlockSums(start))
        for some in np.array_split(rows, 4): some.size and parts[-1].add(t[some], N[some])
        start += rows.size
    for _ in range(10):
        found = at_random(parts, rng)
        assert found.size == 4 and found.used == 1001
        i, j = whole.interval(), found.fit().interval()
        assert max(abs(i.low - j.low), abs(i.high - j.high)) < 1e-12 * i.width
    for broken in (parts[1:], parts[:2] + parts[3:], parts + parts[2:3]):
        with pytest.raises(ValueError, match="serial needs every window of the text once"): at_random(broken, rng).fit()
