"""Sketches against the one-pass jackknife: sizes, laws, cuts, orders, documents, text order; what a sketch refuses."""
import json

import numpy as np
import pytest

from invar_nb import ContractError, Sketch, UsageError, WindowLosses, pair, pair_arrays
from invar_nb.comparison.compare import compare
from invar_nb.statistics.jackknife import jackknife_ratio
from invar_nb.statistics.serial import block_size, serial_ratio
from invar_nb.statistics.sketch import BlockSums, DocumentSums, RatioSums
from invar_nb.statistics.totals import unit_totals

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
        with pytest.raises(ValueError, match="(serial|merging) needs every window of the text once"): at_random(broken, rng).fit()


# --- pairs ----------------------------------------------------------------------------------------------------------------------------
def pairs(n, seed, documents=None, move=None):
    rng = np.random.default_rng(seed)
    base, tokens = rng.gamma(30, 0.1, n), rng.integers(1, 513, n)
    moved = 0.02 + 0.05 * rng.standard_t(3, n) if move is None else move(rng, n)
    return base, np.maximum(base + moved, 0), tokens, None if documents is None else np.repeat(np.arange(documents), n // documents)


def sketched(arrays, cuts, **options):
    base, candidate, tokens, ids = arrays
    made = []
    for rows in np.split(np.arange(len(base)), cuts):
        part = pair_arrays(base[rows], candidate[rows], tokens[rows], document_ids=None if ids is None else ids[rows])
        made.append(Sketch.from_json(Sketch(part, **options, **({"start": int(rows[0])} if ids is None else {})).to_json()))
    return at_random_sketches(made)


def at_random_sketches(made):
    rng = np.random.default_rng(0)
    while len(made) > 1:
        one, other = (made.pop(rng.integers(len(made))) for _ in range(2))
        made.append(one.merge(other))
    return made[0]


MOVES = {"t3": None, "none": lambda rng, n: np.zeros(n), "equal": lambda rng, n: np.full(n, 0.25), "rounding": lambda rng, n: 1e-16 * rng.normal(size=n),
         "skewed": lambda rng, n: 0.01 * rng.lognormal(0, 1.5, n)}


@pytest.mark.parametrize("documents", [None, 5, 60])
@pytest.mark.parametrize("move", MOVES)
def test_difference_is_that_of_compare(documents, move):
    "Every field, also where nothing moved, all moved alike, or by rounding only; 5 documents are too few, and a sketch without blocks says so."
    arrays = pairs(600, 11, documents, MOVES[move])
    whole = compare(pair_arrays(*arrays[:3], document_ids=arrays[3])).primary.to_dict()
    made = sketched(arrays, [7, 200, 201, 430])
    if documents == 5:
        with pytest.raises(UsageError, match="units='serial' needs totals of consecutive blocks"): made.difference()
        return
    found = made.difference().to_dict()
    assert found.keys() == whole.keys() and (found["fallback"] is None) == (move not in ("none", "equal", "rounding"))
    for name, value in whole.items():
        if isinstance(value, float): assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-15), name
        elif name not in ("ci", "display_ci"): assert found[name] == value, name
    width = whole["ci"][1] - whole["ci"][0]
    assert np.abs(np.subtract(found["ci"], whole["ci"])).max() <= 1e-12 * width + 1e-16


def test_a_share_of_which_nothing_was_seen():
    "Clopper and Pearson's bound, as compare has it."
    arm = lambda **more: WindowLosses.from_arrays(range(40), [8] * 40, [1.0] * 40, **more)
    both = pair(arm(), arm(columns={"top1_changed": [0.0] * 40}))
    found, whole = Sketch(both, metric="top1_changed", start=0).difference(), compare(both, metrics=["top1_changed"]).primary
    assert found.method == whole.method == "clopper_pearson" and found.interval == whole.interval and found.baseline is None


@pytest.mark.parametrize("change", [
    lambda d: d.pop("rows"), lambda d: d.update(schema="invar_nb/sketch/2"), lambda d: d.update(metric="none"), lambda d: d.update(more=1),
    lambda d: d["rows"].update(sums=d["rows"]["sums"][:-16]), lambda d: d["rows"].update(largest="AAAAAAAA+H8AAAAAAAD4fw=="),
    lambda d: d["blocks"].update(end=700), lambda d: d["blocks"].update(size=0), lambda d: d["rows"].update(shift="x"), lambda d: d["rows"].update(shift=None),
    lambda d: d.update(windows=-1), lambda d: d.update(windows=0), lambda d: d.update(windows=599), lambda d: d.update(windows=10**30), lambda d: d["rows"].update(units=-1), lambda d: d["blocks"].update(end=2**53),
    lambda d: d["sums"].__setitem__(0, float("nan")), lambda d: d["sums"].append(1.0), lambda d: d["sums"].__setitem__(0, d["sums"][0] * (1 + 1e-15)), lambda d: d.pop("digest"), lambda d: d.update(parts="AAA="), lambda d: d.update(parts="")])
def test_json_that_was_changed_is_refused(change):
    d = json.loads(Sketch(pair_arrays(*pairs(600, 3)[:3]), start=0).to_json())
    change(d)
    with pytest.raises(ContractError, match="Sketch.from_json: the text must be one that Sketch.to_json wrote") as said: Sketch.from_json(json.dumps(d))
    assert "\n" not in str(said.value) and len(str(said.value)) < 250


@pytest.mark.parametrize("wrong", [3, None, [], {}, Sketch()])
def test_a_sketch_is_read_from_text(wrong):
    with pytest.raises(UsageError, match=f"Sketch.from_json: the sketch must be text; got {type(wrong).__name__}"): Sketch.from_json(wrong)


@pytest.mark.parametrize("documents, units", [(None, "windows"), (None, "serial"), (60, "documents"), (3, "documents")])
def test_json_gives_the_sketch_back_to_the_last_bit(documents, units):
    "Also of one that was merged, in both orders, where fewer units than 64 are kept, and of one whose documents are all open."
    for n, seed in ((60, 1), (600, 2), (600, 3), (600, 4)):
        arrays = pairs(n, seed, documents)
        part = lambda a, b: Sketch(pair_arrays(*(v[a:b] for v in arrays[:3]), document_ids=None if documents is None else arrays[3][a:b]), start=a)
        one, other = part(0, n // 3), part(n // 3, n)
        for sketch in (part(0, n), one.merge(other), other.merge(one)):
            again = Sketch.from_json(sketch.to_json())
            assert again.to_json() == sketch.to_json() and again.difference(units=units) == sketch.difference(units=units)
        assert Sketch.from_json(one.to_json()).merge(Sketch.from_json(other.to_json())).to_json() == one.merge(other).to_json()


def test_shards_inside_of_documents_choose_the_shift_of_their_losses():
    "One document a shard, all about 1 nat: around 0 the interval would be off by 1e-4 of its width."
    rng = np.random.default_rng(1)
    t, d, parts = np.full(1000, 512.0), 1 + 0.001 * rng.gamma(2.0, size=1000), []
    for k in range(1000):
        parts.append(DocumentSums())
        parts[-1].add([f"d{k}"], np.zeros(1, int), t[k:k + 1], (t * d)[k:k + 1])
    assert apart(jackknife_ratio(t * d, t), at_random(parts, rng).whole().fit()) < 1e-8


# --- what was counted in --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", range(6))
def test_a_part_is_counted_once_in_any_order_and_any_batches(order):
    "The second copy came in other batches, and went through JSON; parts of equal losses that begin elsewhere are two."
    rng, arrays = np.random.default_rng(order), pairs(800, 3)
    part = lambda a, b, step=800: [pair_arrays(*(v[i:min(b, i + step)] for v in arrays[:3])) for i in range(a, b, step)]
    made = []
    for a in range(0, 800, 100):
        made.append(Sketch())
        for one in part(a, a + 100): made[-1].add(one)
    again = Sketch()
    for one in part(200, 300, 30): again.add(one)
    rng.shuffle(made)
    assert at_random_sketches(list(made)).difference(units="windows", windows=800).n == 800
    made.insert(order, Sketch.from_json(again.to_json()))
    with pytest.raises(ContractError, match="Sketch.merge: each part must be counted once; got 1 part again"): at_random_sketches(made)
    with pytest.raises(ContractError, match="1 part again, of 1 and 1"): again.merge(again)
    still = lambda start: Sketch(pair_arrays([1.0] * 9, [1.0] * 9, [5] * 9), start=start)
    assert still(0).merge(still(9)).n == 18


def test_the_number_of_windows_and_their_places():
    arrays = pairs(600, 3)
    part = lambda a, b, **more: Sketch(pair_arrays(*(v[a:b] for v in arrays[:3])), **more)
    both = part(0, 400).merge(part(300, 600))
    assert both.difference(units="windows").n == 700
    for wrong, said in ((600, "600 windows together; got 700. Some windows are there twice"), (701, "701 windows together; got 700. A part is missing"), (1.5, "windows must be a whole number")):
        with pytest.raises(ContractError, match=said): both.difference(units="windows", windows=wrong)
    with pytest.raises(ContractError, match="merging needs every window of the text once; got 2 windows from window 300 on"): part(0, 400, start=0).merge(part(300, 600, start=300))


@pytest.mark.parametrize("documents, more", [(60, {}), (None, {"start": 0})])
def test_parts_of_scoring_in_shards_have_no_whole_documents(documents, more):
    "The windows of a part lie all over the text: taken for documents that follow each other, the interval was .58 as wide."
    base, candidate, tokens, ids = pairs(600, 3, documents)
    arm = lambda loss, rows: WindowLosses.from_arrays(rows, tokens[rows], loss[rows], document_ids=None if ids is None else ids[rows], columns={"window": rows.astype(float)})
    both = lambda rows: pair(arm(base, rows), arm(candidate, rows))
    with pytest.raises(ContractError, match="windows that follow each other; got a part of scoring in shards"): Sketch(both(np.arange(0, 600, 2)), **more)
    assert Sketch(both(np.arange(100, 600)), **more).n == 500 and (documents or Sketch(both(np.arange(0, 600, 2))).n == 300)


def test_what_a_sketch_refuses():
    a, b = (Sketch(pair_arrays(*pairs(60, 3)[:3]), **more) for more in ({}, {"start": 0}))
    for wrong, said in ((lambda: a.merge(b), "both must have blocks, or neither"), (lambda: a.merge(3), "other must be a Sketch"), (lambda: Sketch(3), "pair must be a Pair of losses"),
                        (lambda: Sketch().to_json(), "some window must be counted in"), (lambda: Sketch().difference(), "some unit must have a weight"),
                        (lambda: a.difference(units="documents"), "needs a document for every window"), (lambda: Sketch(start=-1), "start must be a whole number"),
                        (lambda: Sketch(metric="accuracy", pair=pair_arrays(*pairs(60, 3)[:3])), "the metric must be one of losses")):
        with pytest.raises(ContractError, match=said): wrong()
    assert Sketch().merge(a) is a and a.merge(Sketch()) is a and repr(a) == "Sketch(perplexity, n=60)"
    assert len(a.to_json()) < 2200
