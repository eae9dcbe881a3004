"""Several runs one after the other in the same ranks, each with its faults."""

import io
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from configs import RunConfig, load_run
from tests.faults.injected import current
from trainer.build import build
from trainer.ranks.activities import Activities
from trainer.ranks.distributed import World
from trainer.runs.layout import LEDGER_FILE
from trainer.runs.ledger import Ledger


def run_all(world: World, runs: Sequence[tuple[Sequence[str], Path]]) -> list[tuple[str, str]]:
    """As a rank: train with each of several lists of overrides and the plan beside it.

    Returns:
        What became of each run, and what it logged.
    """
    logging.getLogger("trainer").setLevel(logging.INFO)
    ended = []
    for settings, plan in runs:
        current().load(plan)
        logged = io.StringIO()
        handler = logging.StreamHandler(logged)
        logging.getLogger().addHandler(handler)
        try:
            outcome = fit(load_run("debug", settings), world)
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        logging.getLogger().removeHandler(handler)
        ended.append((outcome, logged.getvalue()))
        world.barrier()
    return ended


def fit(config: RunConfig, world: World) -> str:
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    world.barrier()
    activities = Activities(config)
    activities.ledger = Ledger(folder / LEDGER_FILE, started=time.time()) if world.is_main else None
    built = build(config, world, stop_requested=lambda: False, activities=activities)
    try:
        return built.fit()
    finally:
        built.close()
