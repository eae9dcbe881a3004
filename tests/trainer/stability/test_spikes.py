"""What counts as a loss spike, and what does not."""

import json
import math
import random

from trainer.stability.spikes import MIN_HISTORY, SpikeDetector


def falling_losses(number: int, *, seed: int = 0, noise: float = 0.05) -> list[float]:
    """A training curve: 8 falling to 3, with noise of normal deviation."""
    draw = random.Random(seed)
    return [3 + 5 * math.exp(-step / 300) + draw.gauss(0, noise) for step in range(number)]


def test_a_jump_is_found_and_said() -> None:
    detector = SpikeDetector(12.0, 128, falling_losses(1000))
    spike = detector.observe(6.0)
    assert spike is not None
    assert spike.score > 12
    assert 3 < spike.median < 3.5
    assert "6.0000" in str(spike)


def test_an_ordinary_curve_has_no_spike() -> None:
    for seed in range(20):
        detector = SpikeDetector(12.0, 128, [])
        assert [loss for loss in falling_losses(3000, seed=seed) if detector.observe(loss)] == []


def test_a_spike_does_not_move_what_follows() -> None:
    losses = falling_losses(500)
    detector = SpikeDetector(12.0, 128, losses)
    before = list(losses)
    assert detector.observe(9.0) is not None
    assert losses == before
    assert detector.observe(9.0) is not None, "the first one was taken for normal"


def test_half_the_window_may_be_outliers() -> None:
    quiet = [3.0 + 0.01 * (n % 7) for n in range(80)]
    detector = SpikeDetector(12.0, 128, quiet + [3.3] * 40)
    spike = detector.observe(5.0)
    assert spike is not None
    assert spike.median < 3.1


def test_downward_jumps_and_non_finite_losses_are_ignored() -> None:
    losses = falling_losses(500)
    detector = SpikeDetector(12.0, 128, losses)
    assert detector.observe(0.1) is None
    before = list(losses)
    assert detector.observe(math.nan) is None
    assert detector.observe(math.inf) is None
    assert losses == before


def test_a_flat_stretch_does_not_make_a_ripple_a_spike() -> None:
    detector = SpikeDetector(12.0, 128, [2.0] * 128)
    assert detector.observe(2.1) is None
    assert detector.observe(2.5) is not None


def test_nothing_is_said_before_there_is_history() -> None:
    detector = SpikeDetector(12.0, 128, [])
    for _ in range(MIN_HISTORY - 1):
        assert detector.observe(2.0) is None
    assert detector.observe(50.0) is None
    assert detector.observe(2.0) is None
    assert detector.observe(50.0) is not None


def test_a_score_of_0_looks_for_none() -> None:
    detector = SpikeDetector(0.0, 128, [2.0] * 128)
    assert detector.observe(1e6) is None


def test_goes_on_from_a_checkpoint_as_if_nothing_had_happened() -> None:
    curve = falling_losses(400, seed=3, noise=0.3)
    curve[300:300] = [9.0]
    undisturbed = SpikeDetector(4.0, 64, [])
    expected = [undisturbed.observe(loss) for loss in curve]
    kept: list[float] = []
    found = []
    for loss in curve:
        kept = json.loads(json.dumps(kept))  # saved and resumed between any two updates
        found.append(SpikeDetector(4.0, 64, kept).observe(loss))
    assert found == expected
    assert any(expected)
    assert len(kept) == 64
