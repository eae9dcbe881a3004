"""Who is slow, and by how much."""

import math

import pytest

from trainer.records.interval import stragglers


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
    assert [*stragglers(seconds)] == expected


def test_factor() -> None:
    assert stragglers([1.0, 1.6, 2.1], factor=2) == {}
    assert stragglers([1.0, 1.0, 2.1], factor=2) == {2: 2.1}
