"""What ranks on the pseudo device count and compute, as tasks for `tests.forked`.

They import DeepSpeed within: it takes the device that it finds for the whole process.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from configs import EngineSection, RunConfig, preset_model

SECTION = preset_model("vaswani_base", {"d_model": 32, "feed_forward": {"d_ff": 64}, "attention": {"num_heads": 2}})
"""All layers and parameters of the preset, small."""
VOCABULARY = 64
MICRO_BATCHES = 2
UPDATES = 3

Case = tuple[int, bool]
"""The ZeRO stage, and whether the optimizer is on the host."""
Counts = dict[Case, dict[str, Any]]


def as_rank(on_device: bool, cases: Sequence[Case], stages: Sequence[int]) -> tuple[Counts, list[list[float]]]:
    """Kernels, collectives, waits and their lines as one of several ranks, which train with numbers, over gloo.

    And by stage, loss sums and norms of a few updates in fp32, in the same process: it takes seconds to have the
    device. Without it on the CPU, on which there is nothing to count.
    """
    from trainer.ranks.distributed import World
    from trainer.ranks.process import tune_process

    tune_process()
    if on_device:
        from tests.device.accelerator import use_pseudo_device

        use_pseudo_device()
    world = World(timeout_minutes=2)
    counts = {case: _count(case, world) for case in cases}
    trained = [_train(stage, world) for stage in stages]
    world.close()
    return counts, trained


def _count(case: Any, world: Any) -> dict[str, Any]:
    from benchmarks.device.budget_counts import added, collectives, count_update, counts
    from benchmarks.device.budget_model import SMALL, count_model, make_objective

    engine = EngineSection(zero_stage=case[0], offload_optimizer=case[1])
    config = dataclasses.replace(RunConfig(), model=SECTION, engine=engine)
    model = count_model(SECTION, shape=SMALL, vocab=VOCABULARY)  # with what DeepSpeed has patched by now
    counted = count_update(config, world, shape=SMALL, num_micro_batches=MICRO_BATCHES, vocab=VOCABULARY)
    lines = {
        "added": dict(added(counted.micro_batches[0], model)),
        "step": dict(counted.step.kernels_by("line")),
        "waits": dict(counted.update.waits),
        "uploads": dict(counted.update.uploads),
        "queued": list(counted.update.queued),
    }
    parameters = sum(p.numel() for p in make_objective(SECTION, VOCABULARY).parameters())
    sent = [
        f"{row['when']}: {row['times']} {row['kind']}, {row['bytes'] / parameters:.1f}" for row in collectives(counted)
    ]
    return {**counts(counted, sum(m.num_kernels for m in model)), "sent": sent, "lines": lines}


def _train(stage: Any, world: Any) -> list[float]:
    from benchmarks.device.budget_model import make_objective
    from trainer.engines.batches import DeviceBatch
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    section = dataclasses.replace(SECTION, dropout=0.0, encoder_layers=1, decoder_layers=2)
    engine = DeepSpeedEngine(
        make_objective(section, VOCABULARY),
        section=EngineSection(zero_stage=stage),
        optimizer=RunConfig().optimizer,
        precision="fp32",
        device=world.device,
    )
    dice = torch.Generator().manual_seed(world.rank)
    sums_and_norms = []
    for _ in range(UPDATES):
        for is_last in (False, True):
            ids = torch.randint(3, VOCABULARY, (3, 7), generator=dice).to(world.device)
            batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
            sums_and_norms.append(float(engine.accumulate(batch, scale=1e-2, is_last=is_last).loss_sum))
        sums_and_norms.append(float(engine.step(1e-3).grad_norm))
    engine.close()
    return sums_and_norms
