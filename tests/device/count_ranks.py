"""The counts of real ranks: `python -m tests.start_ranks 2 tests.device.count_ranks OUT STAGE...`.

Each trains on the pseudo device with numbers, over gloo, and writes OUT.RANK: by stage what `budget_counts.counts`
gives, and the lines of code behind it. `--alone 1/2` counts rank 1 of 2 without the others, and without numbers.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from benchmarks.device.budget_counts import added, count_update, counts, lone_rank
from benchmarks.device.budget_model import SMALL, count_model
from configs import EngineSection, RunConfig, preset_model
from tests.device.accelerator import use_pseudo_device
from trainer.ranks.distributed import World
from trainer.ranks.process import tune_process

SECTION = preset_model("vaswani_base", {"d_model": 32, "d_ff": 64, "num_heads": 2})
"""All layers and parameters of the preset, small."""
VOCABULARY = 64
MICRO_BATCHES = 2


def main() -> None:
    """Count every stage that is asked for."""
    options = argparse.ArgumentParser()
    options.add_argument("out")
    options.add_argument("stages", type=int, nargs="+", choices=range(4))
    options.add_argument("--alone", metavar="RANK/SIZE")
    args = options.parse_args()
    tune_process()
    if args.alone:
        world = lone_rank(*map(int, args.alone.split("/")))
    else:
        use_pseudo_device()
        world = World(timeout_minutes=2)
    found = {stage: _count(stage, world, has_numbers=not args.alone) for stage in args.stages}
    Path(f"{args.out}.{world.rank}").write_text(json.dumps(found), encoding="utf-8")
    if not args.alone:
        world.close()


def _count(stage: Any, world: World, *, has_numbers: bool) -> dict[str, Any]:
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


if __name__ == "__main__":
    main()
