import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial

import pytest

from data_pipeline.stream.prefetch import Background, Prefetch
from tests.waiting import PATIENCE, wait_until


def test_reading_ahead_is_bounded_and_ends() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number
        raise ValueError("broken")

    ahead = Prefetch(count(), 3)
    wait_until(lambda: len(made) >= 3, "the items ahead")
    time.sleep(0.02)
    assert len(made) == 3
    assert [ahead.next() for _ in range(100)] == list(range(100))
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            ahead.next()
    ahead.close()
    before = threading.active_count()
    other = Prefetch(iter(range(1000)), 3)
    assert other.next() == 0
    other.close()
    assert threading.active_count() == before


def test_background_jobs() -> None:
    """In order, errors to who asks; closing leaves out what was not begun, and nobody waits for ever."""
    before = threading.active_count()
    background = Background()
    done: list[int] = []
    waits = [background.begin(partial(done.append, number)) for number in range(5)]
    failing = background.begin(partial(int, "x"))
    with pytest.raises(ValueError, match="invalid literal"):
        failing()
    assert [wait() for wait in waits] == [None] * 5
    assert done == list(range(5))
    started, go_on = threading.Event(), threading.Event()

    def job() -> int:
        started.set()
        go_on.wait(PATIENCE)
        return 42

    running, waiting = background.begin(job), background.begin(partial(done.append, 5))
    assert started.wait(PATIENCE)
    closing = threading.Thread(target=background.close)
    closing.start()
    wait_until(lambda: background._is_closed, "the end")
    go_on.set()
    closing.join(PATIENCE)
    assert running() == 42
    for wait in (waiting, background.begin(partial(done.append, 6))):
        with pytest.raises(CancelledError):
            wait()
    assert done == list(range(5))
    assert threading.active_count() == before
