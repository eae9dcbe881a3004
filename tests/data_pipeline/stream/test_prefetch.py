import threading
from collections.abc import Iterator

import pytest

from data_pipeline.stream.prefetch import Prefetch
from tests.waiting import wait_until


def test_reading_ahead_is_bounded_and_ends() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number
        raise ValueError("broken")

    ahead = Prefetch(count(), 3)
    for number in range(100):
        wait_until(lambda: len(made) >= min(number + 3, 100), "the items ahead")  # noqa: B023
        assert len(made) <= number + 3
        assert ahead.next() == number
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            ahead.next()
    ahead.close()
    before = threading.active_count()
    other = Prefetch(iter(range(1000)), 3)
    assert other.next() == 0
    other.close()
    assert threading.active_count() == before
