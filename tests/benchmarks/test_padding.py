import numpy as np
import pytest

from benchmarks.data.padding import padding_fraction


def test_batches_are_filled_up_to_the_budget() -> None:
    lengths = np.array([[2, 2], [3, 1], [4, 5], [1, 1]])
    # 8: the first two make 2 x (3 + 2) = 10 places, three would be 3 x 5 > 8; the last two are 2 x 5 > 8 together.
    assert padding_fraction(lengths, 8, 100) == pytest.approx(1 - 19 / (10 + 9 + 2))
    assert padding_fraction(lengths, 10, 100) == pytest.approx(1 - 19 / (10 + 18))


def test_rows_are_bounded() -> None:
    lengths = np.array([[1, 1], [3, 3], [1, 1], [3, 3]])
    assert padding_fraction(lengths, 1000, 1) == 0
    assert padding_fraction(lengths, 1000, 2) == pytest.approx(1 - 16 / 24)
