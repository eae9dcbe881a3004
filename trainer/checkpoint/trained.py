"""Which parameters a run trains where it stands, and since when: by its configuration, phase and checkpoint."""

from collections.abc import Collection

from configs import RunConfig, load_saved
from model import trained as patterns
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.state import TrainerState
from trainer.runs.layout import CONFIG


def trained_at(config: RunConfig, state: TrainerState, phase: int | None, names: Collection[str]) -> dict[str, int]:
    """What is trained, as in `Engine.trained`.

    Args:
        config: of the run.
        state: `trained_since` has those of them that were frozen at first.
        phase: number of the phase; None in a run without.
        names: of all parameters.
    """
    return {
        name: max(state.trained_since.get(name, 0) - state.schedule_start, 0)
        for name in patterns.trained(config, phase, names)
    }


def note_trained(
    state: TrainerState, before: Collection[str], now: Collection[str], *, has_moments: bool = True
) -> None:
    """Note since when what is trained now is trained.

    Args:
        state: of the run, between two updates.
        before: names of what was trained until now.
        now: of what is trained from now on.
        has_moments: whether anything has moments yet.
    """
    applied = state.step - state.skipped_updates
    since = {name: began for name, began in state.trained_since.items() if name in now and name in before}
    state.trained_since = since | {name: applied for name in now if name not in before and has_moments}


def resumed_from(
    config: RunConfig, checkpoint: Checkpoint | None, names: Collection[str], reset: Collection[str]
) -> dict[str, int]:
    """What is trained, as in `Engine.trained`, when a run begins or goes on.

    Args:
        config: of the run as it is now.
        checkpoint: that it goes on from, if any.
        names: of all parameters.
        reset: of `data` and `optimizer`, what begins anew.
    """
    state = TrainerState() if checkpoint is None else TrainerState.from_json(checkpoint.state()["trainer"])
    saved = 0 if state.phase is None else state.phase.number
    phase = None if not config.phases else 0 if "data" in reset else saved
    if checkpoint is None or "optimizer" in reset:
        return trained_at(config, TrainerState(), phase, names)
    then = load_saved(checkpoint.folder / CONFIG, any_version=True)
    before = patterns.trained(then, saved if then.phases else None, names)
    now = patterns.trained(config, phase, names)
    note_trained(state, before, now, has_moments=bool(checkpoint.stored("optimizer")))
    return trained_at(config, state, phase, names)
