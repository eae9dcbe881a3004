"""Several runs one after the other in the same ranks: `many_runs.py JSON`, a list of lists of overrides."""

import json
import sys
from pathlib import Path

from trainer.runs.process.imports import quick_imports

with quick_imports():
    from configs import load_run
    from trainer.build import build
    from trainer.ranks.distributed import World
    from trainer.ranks.process import tune_process


def main() -> None:
    tune_process()
    world = World(timeout_minutes=2)
    for overrides in json.loads(sys.argv[1]):
        config = load_run("debug", overrides)
        if world.is_main:
            Path(config.folder).mkdir(parents=True, exist_ok=True)
        world.barrier()
        built = build(config, world, stop_requested=lambda: False)
        built.trainer.fit()
        built.close()
    world.close()


if __name__ == "__main__":
    main()
