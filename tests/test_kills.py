"Nothing is lost when a process dies: see kills.py, which also runs by itself."
import pytest


@pytest.mark.slow
def test_two_hundred_kills():
    pytest.importorskip("torch")
    from kills import kill_all
    assert kill_all(200, seed=17) == []
