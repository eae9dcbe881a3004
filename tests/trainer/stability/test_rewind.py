"""Which updates a rewind leaves out, and when no more is allowed."""

import json

import pytest

from trainer.stability.rewind import Rewind, Window, is_left_out, may_rewind, window_before


@pytest.mark.parametrize(
    ("update", "number", "expected"),
    [(100, 8, (2, 93, 100)), (100, 1, (2, 100, 100)), (3, 8, (2, 0, 3)), (0, 8, (2, 0, 0))],
)
def test_the_window_ends_at_the_update_and_stays_in_its_epoch(update: int, number: int, expected: Window) -> None:
    assert window_before(2, update, number) == expected


def test_contains_exactly_its_updates() -> None:
    windows = [(0, 5, 7), (2, 0, 0)]
    inside = {(e, u) for e in range(4) for u in range(20) if is_left_out(windows, e, u)}
    assert inside == {(0, 5), (0, 6), (0, 7), (2, 0)}
    assert not is_left_out([], 0, 0)


def test_as_many_as_allowed_and_never_the_same_twice() -> None:
    window = window_before(0, 50, 8)
    assert may_rewind([], 3, window)
    assert not may_rewind([], 0, window)
    assert may_rewind([(0, 1, 8), (0, 20, 27)], 3, window)
    assert not may_rewind([(0, 1, 8), (0, 20, 27), (1, 0, 7)], 3, window)
    assert not may_rewind([window], 3, window), "it would find what it found before"


def test_says_what_happened_and_survives_json() -> None:
    rewind = Rewind(reason="the loss jumped", step=51, left_out=[(0, 1, 8), (0, 43, 50)])
    assert str(rewind) == "step 51: the loss jumped"
    assert [tuple(w) for w in json.loads(json.dumps(rewind.left_out))] == rewind.left_out
