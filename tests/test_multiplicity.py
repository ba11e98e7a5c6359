"""Adjusted p-values under generated tables, beyond what their page enumerates and simulates."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from invar_nb.statistics.multiplicity import PROCEDURES, adjust, benjamini_hochberg, holm

p_value = st.one_of(st.sampled_from([0.0, 1.0, 0.05, 0.025, 0.01, 0.5, 5e-324, 1 - 2**-53]), st.floats(0, 1), st.integers(0, 20).map(lambda i: i / 20))
tables = st.lists(p_value, max_size=40)


def test_published_example():
    "Benjamini and Hochberg (1995), section 3.1: 15 p-values; at 0.05 the line takes four, Bonferroni's walk three."
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert np.sum(benjamini_hochberg(p) <= 0.05) == 4 and np.sum(holm(p) <= 0.05) == 3


@settings(max_examples=150, deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_order_ties_and_ends(p, random):
    order = list(range(len(p)))
    random.shuffle(order)
    for name in PROCEDURES:
        found = adjust(p, name)
        assert found.shape == (len(p),) and found.dtype == np.float64 and not found.flags.writeable
        assert adjust([p[i] for i in order], name).tolist() == [found[i] for i in order]
        assert len(set(zip(p, found.tolist(), strict=True))) == len(set(p))  # equal p, equal answer
        assert (np.diff(found[np.argsort(p, kind="stable")]) >= 0).all() and (found <= 1).all() and (found >= p).all()
        assert all(v == 0 for v, q in zip(found, p, strict=True) if q == 0) and all(v == 1 for v, q in zip(found, p, strict=True) if q == 1)
    assert (benjamini_hochberg(p) <= holm(p)).all()
    if p:
        np.testing.assert_allclose(benjamini_hochberg(p).max(), max(p), rtol=0)
        np.testing.assert_allclose(holm(p).min(), min(1.0, len(p) * min(p)), rtol=0)


def test_one_more_hypothesis_never_helps_holm():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, more = rng.random(12) ** 3, rng.random()
        assert (holm([*p, more])[:12] >= holm(p)).all()
