"""What ranks on the pseudo device count, as tasks for `tests.forked`: by stage, kernels, waits and their lines."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from configs import EngineSection, RunConfig, preset_model

SECTION = preset_model("vaswani_base", {"d_model": 32, "d_ff": 64, "num_heads": 2})
"""All layers and parameters of the preset, small."""
VOCABULARY = 64
MICRO_BATCHES = 2

Counts = dict[int, dict[str, Any]]


def count_as_rank(stages: Sequence[int]) -> Counts:
    """As one of several ranks, which train with numbers, over gloo."""
    from tests.device.accelerator import use_pseudo_device
    from trainer.ranks.distributed import World

    use_pseudo_device()
    world = World(timeout_minutes=2)
    found = {stage: _count(stage, world, has_numbers=True) for stage in stages}
    world.close()
    return found


def count_alone(rank: int, size: int, stages: Sequence[int]) -> Counts:
    """As a rank whose others are not there, without numbers."""
    from benchmarks.device.budget_counts import lone_rank

    world = lone_rank(rank, size)
    return {stage: _count(stage, world, has_numbers=False) for stage in stages}


def _count(stage: Any, world: Any, *, has_numbers: bool) -> dict[str, Any]:
    from benchmarks.device.budget_counts import added, count_update, counts
    from benchmarks.device.budget_model import SMALL, count_model
    from trainer.ranks.process import tune_process

    tune_process()
    config = dataclasses.replace(RunConfig(), model=SECTION, engine=EngineSection(zero_stage=stage))
    model = count_model(SECTION, shape=SMALL, vocab=VOCABULARY)
    counted = count_update(
        config, world, shape=SMALL, num_micro_batches=MICRO_BATCHES, vocab=VOCABULARY, has_numbers=has_numbers
    )
    lines = {
        "added": dict(added(counted.micro_batches[0], model)),
        "step": dict(counted.step.by_line()),
        "waits": dict(counted.update.waits),
        "uploads": dict(counted.update.uploads),
    }
    return {**counts(counted, sum(m.num_kernels for m in model)), "lines": lines}
