"""Updates with the kernels for GPUs, as a task for `tests.forked`."""

import dataclasses
from typing import Any

from configs import EngineSection, RunConfig
from tests.device.counting import SECTION, UPDATES, VOCABULARY
from tests.model.kernels.cuda.batches import lane

NOTHING_STAYS = {"param_persistence_threshold": 0}
"""By default stage 3 leaves parameters below 100,000 elements whole on every rank: all of a tiny model's."""


def train_with_kernels(world: Any, stages: list[Any]) -> list[list[float]]:
    """By ZeRO stage, loss sums and norms of a few packed updates with dropout in fp32, by the plain implementations."""
    return [_train(world, stage) for stage in stages]


def _train(world: Any, stage: Any) -> list[float]:
    from benchmarks.device.budget_model import make_objective
    from trainer.engines import layouts
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    engine = DeepSpeedEngine(
        make_objective(dataclasses.replace(SECTION, encoder_layers=1, decoder_layers=2), VOCABULARY),
        section=EngineSection(zero_stage=stage, kernels="cuda", zero_optimization=NOTHING_STAYS if stage == 3 else {}),
        optimizer=RunConfig().optimizer,
        precision="fp32",
        device=world.device,
        world_size=world.size,
    )
    found = []
    for number in range(UPDATES):
        for is_last in (False, True):
            seed = 4 * number + 2 * world.rank + is_last
            batch = layouts.stage([lane(seed, rows=3)], [seed], world.device, kind="flash")()
            found.append(float(engine.accumulate(batch, scale=1e-2, is_last=is_last).loss_sum))
        found.append(float(engine.step(1e-3).grad_norm))
    # DeepSpeed notes here which parameters of others a module takes: it keeps them whole for that module's pass
    assert not getattr(engine._model, "_external_params", {})
    engine.close()
    return found
