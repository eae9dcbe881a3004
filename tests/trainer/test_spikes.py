"""What counts as a loss spike, what does not, and what a rewind leaves out."""

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs import StabilitySection, UserError
from trainer.checkpoint.state import TrainerState
from trainer.engines.batches import NotFiniteError, Update
from trainer.runs.failure import TrainingError
from trainer.runs.history import SkippedRange
from trainer.spikes import MIN_HISTORY, Rewind, go_back, is_skipped, past, spike

SECTION = StabilitySection(spike_score=12.0, spike_window=128, max_rewinds=3)


def falling_losses(number: int, *, seed: int = 0, noise: float = 0.05) -> list[float]:
    """A training curve: 8 falling to 3, with noise of normal deviation."""
    draw = random.Random(seed)
    return [3 + 5 * math.exp(-step / 300) + draw.gauss(0, noise) for step in range(number)]


def test_a_jump_is_found_and_moves_nothing_that_follows() -> None:
    losses = falling_losses(500)
    for _ in range(2):
        said = spike(9.0, losses, SECTION)
        assert said is not None
        assert said.startswith("the loss 9.0000 is ")
        assert losses == falling_losses(500)[-128:]


@pytest.mark.parametrize(
    ("before", "loss", "is_spike"),
    [
        ([3.0 + 0.01 * (n % 7) for n in range(80)] + [3.3] * 40, 5.0, True),  # a third of the window are outliers
        (falling_losses(500), 0.1, False),  # downwards
        ([2.0] * 128, 2.1, False),  # a ripple after a flat stretch
        ([2.0] * 128, 2.5, True),
        ([2.0] * (MIN_HISTORY - 1), 50.0, False),  # too few to say
        ([2.0] * MIN_HISTORY, 50.0, True),
        ([2.0] * 128, math.nan, False),  # such an update is skipped
    ],
)
def test_edges(before: list[float], loss: float, is_spike: bool) -> None:
    losses = list(before)
    assert (spike(loss, losses, SECTION) is not None) == is_spike
    assert (losses[-1:] == [loss]) == (not is_spike and math.isfinite(loss))
    assert spike(loss, list(before), StabilitySection(spike_score=0.0)) is None, "0 looks for none"


def test_goes_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    curve, section = falling_losses(400, seed=3, noise=0.3), StabilitySection(spike_score=4.0, spike_window=64)
    curve[300:300] = [9.0]
    losses: list[float] = []
    expected = [spike(loss, losses, section) for loss in curve]
    state, spikes = TrainerState(skipped_ranges=[(0, 1, 8), (0, 43, 50)]), []
    for loss in curve:
        state = TrainerState.from_json(json.loads(json.dumps(state.to_json())))  # saved between any two updates
        spikes.append(spike(loss, state.recent_losses, section))
    assert spikes == expected
    assert any(expected)
    assert state.skipped_ranges == [(0, 1, 8), (0, 43, 50)]


def rewound(ranges: list[SkippedRange], number: int, num_updates: int, *, can_rewind: bool = True) -> Rewind:
    saver: Any = SimpleNamespace(commit=lambda: 0.0, can_rewind=can_rewind)
    state, config = TrainerState(skipped_ranges=ranges), SimpleNamespace(stability=SECTION)
    run: Any = SimpleNamespace(state=state, config=config)
    update = Update(epoch=2, number=number, micro_batches=[], seconds_step=0)
    with pytest.raises(Rewind) as caught:
        go_back(run, saver, update, num_updates, "the loss jumped", step=51)
    return caught.value


@pytest.mark.parametrize(
    ("number", "num_updates", "expected"),
    [(100, 8, (2, 93, 100)), (100, 1, (2, 100, 100)), (3, 8, (2, 0, 3)), (0, 8, (2, 0, 0))],
)
def test_the_range_ends_at_the_update_and_stays_in_its_epoch(
    number: int, num_updates: int, expected: SkippedRange
) -> None:
    rewind = rewound([(0, 1, 8)], number, num_updates)
    assert rewind.skipped_ranges == [(0, 1, 8), expected]
    assert str(rewind) == "step 51: the loss jumped"
    inside = {(e, u) for e in range(4) for u in range(200) if is_skipped([expected], e, u)}
    assert inside == {(2, u) for u in range(expected[1], expected[2] + 1)}


def test_as_many_as_allowed_and_never_the_same_twice() -> None:
    for ranges in ([(0, 1, 8), (0, 20, 27), (1, 0, 7)], [(2, 43, 50)]):  # the same would find what it found before
        with pytest.raises(TrainingError, match=f"the loss jumped; at step 51, after {len(ranges)} rewinds"):
            rewound(ranges, 50, 8)
    with pytest.raises(TrainingError, match="at step 51, and there is no checkpoint to rewind to"):
        rewound([], 50, 8, can_rewind=False)


def test_past_checkpoints_that_nothing_can_be_trained_with() -> None:
    error, folders = NotFiniteError("a loss is nan"), ("step-00000009", "step-00000005")
    rewind: Rewind | None = rewound([], 50, 8)
    for name in folders:
        checkpoint: Any = SimpleNamespace(folder=Path(name))
        rewind = past(checkpoint, rewind, error)
    assert rewind is not None
    assert sorted(rewind.passed_over) == [5, 9]
    assert rewind.skipped_ranges == [(2, 43, 50)]
    with pytest.raises(UserError, match="model: a loss is nan, with the weights that it begins with"):
        past(None, None, error)
