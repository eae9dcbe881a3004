"""Kernels that DeepSpeed adds, collectives and waits of the host: what an update may have, and how they are counted."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.device.budget_model import SMALL, count_model
from configs import preset_model
from tests.device.counting import MICRO_BATCHES, Case, Counts, as_rank
from tests.forked import Forked

pytestmark = pytest.mark.slow


Budget = tuple[int, int, int, Sequence[str]]
"""The most that an update of two micro-batches may have on each of two ranks, with 6 + 6 layers, bf16 and clipping:
kernels that DeepSpeed adds to any micro-batch, those of the step, waits between two updates, all of the loop included,
and collectives in their order: when, how many of a kind, and bytes for each parameter, on the larger side."""


# At stages 1 and 2 a micro-batch and a step are to have 80 together; at 3 it is what DeepSpeed adds: after the step it
# gathers the parameters that it keeps whole one by one. Without the wait six to eight kernels of one number each decide
# on the step; a pass over the gradients is saved.
_SCATTERED = tuple(f"micro-batch {number}: 1 reduce_scatter, 4.0" for number in (1, 2))
_IN_BUCKETS = tuple(f"micro-batch {number}: 2 reduce_scatter, 4.0" for number in (1, 2))
_NORM, _WEIGHTS = "step: 1 all_reduce, 0.0", "step: 2 all_gather, 2.0"
# the last micro-batch sends what the step sent
_AT_1 = 12, 26, 0, (_IN_BUCKETS[1], _NORM, _WEIGHTS)
BUDGETS: dict[Case, Budget] = {
    (0, False): _AT_1,
    (1, False): _AT_1,
    (2, False): (12, 28, 0, (*_IN_BUCKETS, _NORM, _WEIGHTS)),  # the last buckets arrive in the step
    (3, False): (623, 825, 4, (*_SCATTERED, "step: 2 all_reduce, 0.0", "step: 253 all_gather, 2.0")),
    (2, True): (12, 13, 1, (*_IN_BUCKETS, _NORM, _WEIGHTS)),
}
MODEL = {
    ("vaswani_base", "plain"): (258, 492),
    ("vaswani_base", "cuda"): (132, 293),
    ("modern", "cuda"): (371, 706),
    ("deep_shallow", "cuda"): (216, 509),
}
"""Kernels of a micro-batch of the model alone, at most, forward and backward."""


STAGES = list(range(4))


@pytest.fixture(scope="module")
def on_device(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Counts, list[list[float]]]]:
    """Of two real ranks that train on the pseudo device over gloo: counts by case, losses and norms by stage."""
    folder = tmp_path_factory.mktemp("counted")
    return forked.ranks(2, as_rank, True, list(BUDGETS), STAGES, cwd=folder, meet=False, seconds=290)


@pytest.mark.parametrize("case", BUDGETS, ids=lambda case: f"ZeRO-{case[0]}{' offload' if case[1] else ''}")
def test_an_update_keeps_within_its_budget(on_device: list[tuple[Counts, list[list[float]]]], case: Case) -> None:
    for rank, (by_case, _) in enumerate(on_device):
        counts, (added, step, waits, sent) = by_case[case], BUDGETS[case]
        told = f"rank {rank}: {json.dumps(counts, indent=1)}"
        assert max(counts["added"], counts["added_later"]) <= added, told
        assert counts["step"] <= step, told
        assert counts["waits"] <= waits, told
        assert counts["sent"] == list(sent), told
        assert case[1] or not counts["lines"]["uploads"], told
        # of the update before, norm and losses are read when the device has all passes of this one
        queued, is_late = counts["lines"]["queued"], not case[1] and case[0] < 3
        assert not is_late or (len(queued) == 2 and min(queued) > MICRO_BATCHES * sum(MODEL["vaswani_base", "cuda"])), (
            told
        )


def test_updates_are_those_of_the_cpu(
    on_device: list[tuple[Counts, list[list[float]]]], forked: Forked, tmp_path: Path
) -> None:
    """Losses and norms of two ranks at every stage: what is counted is the real thing."""
    cpu = forked.ranks(2, as_rank, False, [], STAGES, cwd=tmp_path, meet=False)
    for (_, mine), (_, theirs) in zip(on_device, cpu, strict=True):
        for stage, (sums_and_norms, expected) in enumerate(zip(mine, theirs, strict=True)):
            assert sums_and_norms == pytest.approx(expected, rel=1e-5), f"ZeRO-{stage}"


@pytest.mark.parametrize(("preset", "kernels"), MODEL)
def test_kernels_of_the_model(preset: str, kernels: str) -> None:
    """Attention is one forward and three backward."""
    meters = count_model(preset_model(preset, {}), shape=SMALL, vocab=37_000, kernels=kernels)
    for meter, most in zip(meters, MODEL[preset, kernels], strict=True):
        assert meter.num_kernels <= most, meter.kernels_by("operator")
        assert not meter.waits
