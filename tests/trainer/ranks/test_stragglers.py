"""Who is slow, and by how much."""

import math

import pytest

from trainer.records.interval import describe_stragglers, step_times, stragglers


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([], []),
        ([1.0], []),
        ([1.0, 1.4], []),
        ([1.0, 1.6], [1]),
        ([3.0, 1.0], [0]),
        ([1.0, 1.1, 0.9, 2.0], [3]),
        ([2.0, 1.0, 2.0, 1.0], [0, 2]),
        ([2.0, 2.0, 2.0, 1.0], []),
        ([1.0, math.nan, 0.0, 1.0, 5.0], [4]),  # without tokens there is nothing to compare
        ([math.nan, math.inf], []),
    ],
)
def test_stragglers(seconds: list[float], expected: list[int]) -> None:
    assert stragglers(seconds) == expected


def test_factor() -> None:
    assert stragglers([1.0, 1.6, 2.1], factor=2) == []
    assert stragglers([1.0, 1.0, 2.1], factor=2) == [2]


def test_what_the_log_says() -> None:
    assert describe_stragglers([1.0, 1.0, 2.1], [2]) == "rank 2 needs 2.1 times the median's seconds for a token"


def test_step_times() -> None:
    assert step_times([float(n) for n in range(1, 101)]) == (50.5, 95)
    assert step_times([3.0]) == (3, 3)
    assert all(map(math.isnan, step_times([])))
