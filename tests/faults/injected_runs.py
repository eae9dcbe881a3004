"""Several runs one after the other in the same ranks, each with its faults: `injected_runs.py FILE`.

FILE is a JSON list of {"settings", "plan"}. What became of a run is written to PLAN.outcome-RANK, what it logged to
PLAN.log-RANK.
"""

import json
import logging
import sys
import time
from pathlib import Path

from trainer.runs.process.imports import quick_imports

with quick_imports():
    from configs import RunConfig, load_run
    from tests.faults.injected import current
    from trainer.build import build
    from trainer.ranks.distributed import World
    from trainer.ranks.phases import Phases
    from trainer.ranks.process import tune_process
    from trainer.ranks.watchdog import Watchdog
    from trainer.runs.layout import LEDGER_FILE
    from trainer.runs.ledger import Ledger


def main() -> None:
    tune_process()
    world = World(timeout_minutes=2)
    logging.getLogger("trainer").setLevel(logging.INFO)
    for entry in json.loads(Path(sys.argv[1]).read_text()):
        plan = Path(entry["plan"])
        current().load(plan)
        handler = logging.FileHandler(f"{plan}.log-{world.rank}")
        logging.getLogger().addHandler(handler)
        try:
            outcome = fit(load_run("debug", entry["settings"]), world)
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        logging.getLogger().removeHandler(handler)
        handler.close()
        Path(f"{plan}.outcome-{world.rank}").write_text(outcome)
        world.barrier()
    world.close()


def fit(config: RunConfig, world: World) -> str:
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    world.barrier()
    ledger = Ledger(folder / LEDGER_FILE, started=time.time()) if world.is_main else None
    phases = Phases(Watchdog(world.rank, on=False), ledger, config.supervision)
    built = build(config, world, stop_requested=lambda: False, phases=phases, ledger=ledger)
    try:
        return built.trainer.fit()
    finally:
        built.close()


if __name__ == "__main__":
    main()
