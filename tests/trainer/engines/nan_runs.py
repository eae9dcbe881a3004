"""A run at every ZeRO stage whose last rank meets a NaN in its fourth update: `nan_runs.py JSON` (overrides)."""

import json
import sys
from pathlib import Path

from configs import load_run
from model import ObjectiveOutput
from trainer.build import build
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.protocol import DeviceBatch
from trainer.ranks.distributed import World
from trainer.ranks.process import tune_process


def main() -> None:
    tune_process()
    world = World(timeout_minutes=2)
    for stage in range(4):
        config = load_run("debug", [*json.loads(sys.argv[1]), f"engine.zero_stage={stage}", f"name=zero{stage}"])
        if world.is_main:
            Path(config.folder).mkdir(parents=True, exist_ok=True)
        world.barrier()
        built = build(config, world, stop_requested=lambda: False)
        poison(built.engine, world)  # type: ignore[arg-type]
        built.trainer.fit()
        built.close()
    world.close()


def poison(engine: DeepSpeedEngine, world: World) -> None:
    """Let loss and gradient of update 4 be NaN on the last rank alone."""
    accumulate, steps = engine.accumulate, [0]

    def poisoned(batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        hit = steps[0] == 3 and world.rank == world.size - 1
        steps[0] += is_last
        factor = float("nan") if hit else 1.0
        out = accumulate(batch, scale=scale * factor, is_last=is_last)
        return ObjectiveOutput(out.loss_sum * factor, out.nll_sum * factor)

    engine.accumulate = poisoned  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
