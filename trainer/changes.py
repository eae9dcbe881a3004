"""Which settings have changed since the checkpoint that a run resumes from was saved."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import RunConfig, load_saved
from configs.reading.variables import saved_fields
from data_pipeline.order.state import StreamState
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import WEIGHTS_ONLY
from trainer.datasets import check_prepared
from trainer.limits import Limits, NothingToDo
from trainer.ranks.distributed import World
from trainer.records.names import flatten
from trainer.runs.failure import TrainingError
from trainer.runs.layout import CONFIG, STATUS_FILE
from trainer.runs.status import read_status
from trainer.transfer import Ancestry

log = logging.getLogger(__name__)

NOT_LISTED = ("name", "output", "prepare", "plugins")
"""Fields that say where the run and its plugins are and what the data are made of; other checks compare their bytes."""


def check_changes(
    config: RunConfig,
    datasets: Sequence[Dataset],
    checkpoint: Checkpoint | None,
    ancestry: Ancestry,
    world: World,
    *,
    reset: frozenset[str],
    is_rewind: bool,
) -> None:
    """Check that the data were prepared as the configuration says, and that there is anything left to do.

    Raises:
        NothingToDo: a limit is reached, and the step has its scores; those of a finished run may be newer than its
            checkpoint.
        TrainingError: a limit is reached, with a validation loss that is not finite.
        UserError: the data are others.
    """
    saved = None if checkpoint is None else load_saved(checkpoint.folder / CONFIG, any_version=True).prepare
    check_prepared(datasets, config, saved=saved, reset="data" in reset, has_parent=ancestry.parent is not None)
    if checkpoint is None or reset or is_rewind:
        return
    tree = checkpoint.state()
    state = TrainerState.from_json(tree["trainer"])
    limits = Limits(config, state).reached(StreamState.from_json(tree["stream"]).epoch)
    if limits and (problem := state.problem()) is not None:
        raise TrainingError(f"step {state.step}: {problem}")
    status = read_status(Path(config.folder) / STATUS_FILE) if world.is_main else None
    is_finished = status is not None and (status.state, status.step) == ("finished", state.step)
    if limits and (state.step in state.best_scores or world.from_main(is_finished)):
        raise NothingToDo(limits, step=state.step)


def announce_changes(config: RunConfig, checkpoint: Checkpoint, state: TrainerState) -> dict[str, tuple[Any, Any]]:
    """Log which fields differ from the checkpoint, and return them.

    Args:
        config: of the run as it is now.
        checkpoint: that it goes on from.
        state: as it goes on.
    """
    if WEIGHTS_ONLY in checkpoint.manifest:  # of another run
        return {}
    changes = changed_fields(load_saved(checkpoint.folder / CONFIG, any_version=True), config)
    for key, (then, now) in changes.items():
        log.info("changed at step %d: %s was %s and is %s", state.step, key, _shown(then), _shown(now))
    return changes


def changed_fields(then: RunConfig, now: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, by path: their values then and now; None where there was none."""
    before, after = (flatten(saved_fields(one)) for one in (then, now))
    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and key.split(".")[0] not in NOT_LISTED}


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"
