"""Row 24: a loss that jumps, or gradients that stay non-finite, and the way back."""

import pytest

from tests.conftest import read_metrics
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened
from tests.forked import Forked, found_again

SPIKE = 17
"""Update of the first epoch, and step less 1."""
SKIPPED = 4
OVERRIDES = [
    f"stability.skip_updates={SKIPPED}", "training.max_updates=24", "evaluation.every_updates=0",
    "checkpoint.every_updates=10",
]  # fmt: skip


@pytest.mark.slow
def test_spike_is_left_out_and_a_rewind_that_is_killed_ends_the_same(
    undisturbed: Run, make_run: MakeRun, launch: Launch, forked: Forked
) -> None:
    """Back to the newest checkpoint and past the window."""
    spike = Fault(point="accumulate", action="spike", update=SPIKE, times=0)
    plain = make_run(spike, name="plain", overrides=OVERRIDES)
    done = launch(plain, restarts=0).finish()
    assert done.code == 0, done.err[-4000:]
    assert f"rewinding, to skip updates {SPIKE - SKIPPED + 1} to {SPIKE} of epoch 0" in done.out
    left_out = [event["update"] for event in plain.events("left_out")]
    assert left_out == list(range(SPIKE - SKIPPED + 1, SPIKE + 1))
    losses, expected = plain.losses(), undisturbed.losses()
    before = SPIKE - SKIPPED + 1  # updates and steps up to here
    assert {s: losses[s] for s in range(1, before + 1)} == {s: expected[s] for s in range(1, before + 1)}
    positions = {line["step"]: (line["epoch"], line["update"]) for line in read_metrics(plain.folder)}
    assert positions[before + 1] == (0, SPIKE + 1)
    for step in (1, before, before + 1, 24):  # what is found again knows of the rewind
        found_again(forked, plain.folder, step, plain.folder)
    assert max(losses.values()) < 2 * expected[1]
    # That update is reached after the rewind alone, and no checkpoint since then knows of it.
    kill = Fault(point="accumulate", action="kill", rank=1, update=SPIKE + 2)
    killed = make_run(spike, kill, name="killed", overrides=OVERRIDES)
    assert launch(killed, restarts=1).finish().code == 0
    assert has_happened(killed.plan, 1, 1)
    assert killed.losses() == plain.losses()
    assert killed.pairs() == plain.pairs()
    assert killed.weights(24) == plain.weights(24)
