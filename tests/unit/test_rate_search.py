"""The search of tests/benchmarks/rate_search.py: no method is compared at the edge of a grid."""

import sys
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from rate_search import EXTREMES, FACTOR, best_rate

RATES = (1e-3, 2e-3, 4e-3)


@given(st.floats(3e-4, 1.5e-2))
def test_the_best_rate_is_found_wherever_it_is(peak: float):
    tried: list[float] = []

    def accuracy(rate: float) -> float:
        tried.append(rate)
        return -abs(log(rate / peak))

    found = best_rate(accuracy, RATES)
    assert 1 / FACTOR <= found / peak <= FACTOR
    assert min(tried) < found < max(tried)
    assert len(tried) == len(set(tried))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_grid_grows_no_further_than_the_extremes(sign: int):
    tried: list[float] = []

    def accuracy(rate: float) -> float:
        tried.append(rate)
        return sign * rate

    found = best_rate(accuracy, RATES)
    assert found in (min(tried), max(tried))
    assert EXTREMES[0] <= min(tried)
    assert max(tried) <= EXTREMES[1]
    assert len(tried) > len(RATES)
