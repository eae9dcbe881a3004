"""Which updates a rewind leaves out, and when no more is allowed."""

import json

import pytest

from trainer.checkpoint.state import TrainerState
from trainer.runs.history import SkippedRange
from trainer.stability.rewind import Rewind, is_skipped, may_rewind, range_before


@pytest.mark.parametrize(
    ("update", "number", "expected"),
    [(100, 8, (2, 93, 100)), (100, 1, (2, 100, 100)), (3, 8, (2, 0, 3)), (0, 8, (2, 0, 0))],
)
def test_the_range_ends_at_the_update_and_stays_in_its_epoch(update: int, number: int, expected: SkippedRange) -> None:
    assert range_before(2, update, number) == expected


def test_contains_exactly_its_updates() -> None:
    ranges = [(0, 5, 7), (2, 0, 0)]
    inside = {(e, u) for e in range(4) for u in range(20) if is_skipped(ranges, e, u)}
    assert inside == {(0, 5), (0, 6), (0, 7), (2, 0)}
    assert not is_skipped([], 0, 0)


def test_as_many_as_allowed_and_never_the_same_twice() -> None:
    harmful = range_before(0, 50, 8)
    assert may_rewind([], 3, harmful)
    assert not may_rewind([], 0, harmful)
    assert may_rewind([(0, 1, 8), (0, 20, 27)], 3, harmful)
    assert not may_rewind([(0, 1, 8), (0, 20, 27), (1, 0, 7)], 3, harmful)
    assert not may_rewind([harmful], 3, harmful), "it would find what it found before"


def test_a_checkpoint_keeps_them() -> None:
    state = TrainerState(step=60, skipped_ranges=[(0, 1, 8), (0, 43, 50)])
    assert TrainerState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_says_what_happened_and_survives_json() -> None:
    rewind = Rewind(reason="the loss jumped", step=51, skipped_ranges=[(0, 1, 8), (0, 43, 50)])
    assert str(rewind) == "step 51: the loss jumped"
    assert [tuple(w) for w in json.loads(json.dumps(rewind.skipped_ranges))] == rewind.skipped_ranges
