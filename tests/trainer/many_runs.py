"""Several runs one after the other in the same ranks."""

from collections.abc import Callable, Sequence
from pathlib import Path

from configs import load_run
from trainer.build import build
from trainer.loop import Trainer
from trainer.ranks.distributed import World


def train_all(
    world: World,
    runs: Sequence[Sequence[str]],
    disturb: Callable[[Trainer, World], None] | None = None,
    parent: str | None = None,
) -> None:
    """As a rank: train `debug` with each of several lists of overrides.

    Args:
        world: of the rank.
        runs: the overrides of each.
        disturb: gets each run before its first update.
        parent: RUN[@step] whose weights they begin with.
    """
    for overrides in runs:
        config = load_run("debug", overrides)
        if world.is_main:
            Path(config.folder).mkdir(parents=True, exist_ok=True)
        world.barrier()
        built = build(config, world, stop_requested=lambda: False, parent=parent)
        if disturb is not None:
            disturb(built, world)
        built.fit()
        built.close()
