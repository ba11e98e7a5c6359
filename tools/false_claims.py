"""How often some claim is wrong, by simulation: one row alone, and families of independent rows by Holm, for documents of equal and of geometric length.
Nothing here is the package's but the two tests of one row that it is checked against (tests/test_rates.py): the fit of the rows is written for all of them at once.
`python tools/false_claims.py` writes invar_nb/data/rates.csv (twenty minutes)."""

import csv
import math
import sys
import zlib
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from invar_nb.statistics.paired_test import sign_flip_test

TABLE = Path(__file__).parent.parent / "invar_nb" / "data" / "rates.csv"
FIELDS = (
    "law",
    "lengths",
    "documents",
    "effective",
    "rows",
    "tables",
    "equivalent",
    "changed",
)
EVEN, SHARES = "normal", (10, 5, 3, 2)  # % of the documents that carry the whole change
CARRY = tuple(f"{share} % carry all" for share in SHARES)
SKEWED = ("exponential", "lognormal 1", *CARRY)
ROWS, TABLES, ALONE, FEWEST, ALPHA = (1, 2, 5, 10, 20, 40), 2000, 80_000, 10, 0.05
DOCUMENTS = {
    "equal": (10, 12, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300, 500),
    "geometric": (20, 28, 40, 60, 80, 100, 111, 150, 200, 300, 400, 600, 1000),
}
NOISE = 0.01  # of a document that carries no part of the change, beside a change of 1


def carried(share):
    """A law in which a share of the documents carries the whole change: 1 in these, else 0.

    A little noise is added. Returns a function (rng, size) -> values with mean 0, deviation 1.
    """
    sd = math.sqrt(share * (1 - share) + NOISE**2)
    return lambda rng, size: (
        ((rng.random(size, np.float32) < share) - share + NOISE * rng.standard_normal(size))
        / sd
    )


LAWS = {
    "normal": lambda rng, size: rng.standard_normal(
        size
    ),  # mean 0, standard deviation 1; a few documents far above the rest
    "exponential": lambda rng, size: rng.standard_exponential(size) - 1,
    "lognormal 1": lambda rng, size: (
        (rng.lognormal(0, 1, size) - math.exp(0.5)) / math.sqrt(math.exp(2) - math.e)
    ),
    **{name: carried(share / 100) for name, share in zip(CARRY, SHARES, strict=True)},
}
LENGTHS = {
    "equal": lambda rng, size: np.ones(size),
    "geometric": lambda rng, size: rng.geometric(1 / 8, size).astype(float),
}


def fit_rows(numerators, weights):
    """The result of each row: (D, p of "no change", effective units, nu).

    By the formulas of the jackknife's page, for all rows at once. `numerators` and `weights`
    have the shape (rows, units); nu are the degrees of freedom.
    """
    n, total = weights.shape[1], weights.sum(1, keepdims=True)
    D = numerators.sum(1, keepdims=True) / total
    y = numerators - D * weights
    error = np.sqrt(((y / (total - weights)) ** 2).sum(1))
    sums, power = {}, y.copy()
    for k in range(2, 7):
        power *= y
        sums[k] = power.mean(1)
    g, kurtosis, m5, m6 = (sums[k] / sums[2] ** (k / 2) for k in (3, 4, 5, 6))
    nu = np.where(
        kurtosis > 1, np.clip(2 * n / np.maximum(kurtosis - 1, 1e-12), 2, n - 1), n - 1
    )
    noise = (
        np.maximum(
            0, m6 - 6 * kurtosis + 9 + g * (11 * g - 3 * m5 + 2.25 * g * (kurtosis - 1))
        )
        / n
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.where(g**2 > noise, g - noise / g, 0) / (2 * math.sqrt(n))
    s = D[:, 0] / error
    x = s + c * s**2 / 3 + c**2 * s**3 / 27 + c / 6
    return (
        D[:, 0],
        np.minimum(1, 2 * stdtr(nu, -np.abs(x))),
        total[:, 0] ** 2 / (weights**2).sum(1),
        nu,
    )


def draw(law, lengths, documents, rows, rng):
    "(numerators, weights) of simulated rows, each of shape (rows, documents)."
    weights = LENGTHS[lengths](rng, (rows, documents))
    return LAWS[law](rng, (rows, documents)) * weights, weights


def simulate(law, lengths, documents, counts=ROWS, tables=TABLES, alone=ALONE, seed=0):
    """Shares of simulated tables in which some row is claimed wrongly, for each row count.

    *equivalent*: every row is worse by exactly the margin, a wide one. The p against the
    margin is then the p of "no change" of the row without that shift.

    *changed*: no row changed. A single row is claimed by its fit. Rows of a table are also
    tested by sign, and are claimed as changes for the worse: the law is turned round.
    """
    rng = np.random.default_rng([zlib.crc32(repr((law, lengths, documents)).encode()), seed])
    n_rows = max(tables * max(counts), alone if 1 in counts else 0)
    block = max(1, 2_000_000 // documents)  # rows at a time, so that they fit into memory
    fits = []
    significant_rows = {}  # row -> its numerators, for the test by signs
    for start in range(0, n_rows, block):
        numerators, weights = draw(law, lengths, documents, min(block, n_rows - start), rng)
        fits.append(fit_rows(numerators, weights))
        for i in np.flatnonzero(fits[-1][1] <= ALPHA):
            # y + D w is the numerator, up to a factor.
            significant_rows[start + i] = numerators[i].copy()
    D, p, effective, nu = map(np.concatenate, zip(*fits, strict=True))
    enough = (effective >= FEWEST) & (nu >= 4)
    flips = {}  # row -> p of its sign-flip test
    lines = []

    def by_signs(i):
        "The p of the sign-flip test of one row, computed when it is first needed."
        if i not in flips:
            row = significant_rows[i]
            one_sign = (row > 0).all() or (row < 0).all()
            flips[i] = 2.0 ** (1 - documents) if one_sign else sign_flip_test(row).p_value
        return flips[i]

    for rows in counts:
        size = alone if rows == 1 else tables
        by_table = lambda values: values[: size * rows].reshape(size, rows)
        limit = ALPHA / np.maximum(by_table(enough).sum(1, keepdims=True), 1)
        shown = by_table(enough) & (by_table(p) <= limit)
        equivalent = (shown & (by_table(D) < 0)).any(1)
        if rows == 1:
            changed = shown[:, 0]
        else:
            changed = [
                any(by_signs(t * rows + j) <= limit[t, 0] for j in np.flatnonzero(shown[t]))
                for t in range(size)
            ]
        lines.append(
            dict(
                zip(
                    FIELDS,
                    (
                        law,
                        lengths,
                        documents,
                        float(effective.mean()),
                        rows,
                        size,
                        float(np.mean(equivalent)),
                        float(np.mean(changed)),
                    ),
                    strict=True,
                )
            )
        )
    return lines


def main(path=TABLE):
    "Simulate every law, length and number of documents, and write the table."
    cells = [
        (law, lengths, n)
        for lengths in DOCUMENTS
        for n, law in product(DOCUMENTS[lengths], LAWS)
    ]
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, FIELDS, lineterminator="\n")
        out.writeheader()
        for cell in cells:
            for line in simulate(*cell):
                out.writerow(
                    line
                    | {
                        name: f"{line[name]:.{1 if name == 'effective' else 4}f}"
                        for name in ("effective", "equivalent", "changed")
                    }
                )
            file.flush()
            print(*cell, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
