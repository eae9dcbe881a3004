"""The phase that a run is in, and whether it is over.

That is a function of the configuration and of what checkpoints remember, so all ranks decide alike, and so does whoever
goes on after a kill.
"""

from collections.abc import Collection

from configs import PhaseSection, RunConfig, UserError
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.evaluation.best import current_plateau


def phase_of(config: RunConfig, state: TrainerState) -> PhaseSection | None:
    """The phase that the next update belongs to; None in a run without phases."""
    number = -1 if state.phase is None else state.phase.number
    return config.phases[number] if 0 <= number < len(config.phases) else None


def has_next(config: RunConfig, state: TrainerState) -> bool:
    """Whether another phase follows."""
    return state.phase is not None and state.phase.number + 1 < len(config.phases)


def phase_end(config: RunConfig, state: TrainerState, epoch: int) -> str | None:
    """Why the phase is over; None where it is not.

    Args:
        config: of the run.
        state: of the run, between two updates.
        epoch: of the next update.
    """
    phase, begun = phase_of(config, state), state.phase
    if phase is None or begun is None or phase.until is None:
        return None
    until = phase.until
    if until.updates is not None and state.step - begun.step >= until.updates:
        return f"{until.updates:,} updates of {phase.name} are done"
    if until.passes is not None and epoch - begun.epoch >= until.passes:
        passes = "1 pass" if until.passes == 1 else f"{until.passes:,} passes"
        return f"{passes} over the data of {phase.name} {'is' if until.passes == 1 else 'are'} done"
    return plateau(config, state)


def plateau(config: RunConfig, state: TrainerState) -> str | None:
    """Why the phase is over, where its evaluations say so."""
    phase, begun = phase_of(config, state), state.phase
    section = None if phase is None or phase.until is None else phase.until.plateau
    if section is None or phase is None or begun is None:
        return None
    figure = section.metric or config.best_by
    stalled = current_plateau(
        state.planned_scores(figure, after=begun.step),
        higher_is_better=config.evaluation.directions[figure],
        min_delta=section.min_delta,
        after=begun.step,
    )
    if stalled.num_evaluations < section.patience:
        return None
    by = f" by more than {section.min_delta:g}" if section.min_delta else ""
    best = f"{stalled.best:.4g} of step {stalled.step:,}"
    return f"no {figure} better{by} than {best} in {stalled.evaluations} of {phase.name}"


def check_phase(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Refuse phases of which the checkpoint's is not one. Those that follow may change, and when they begin.

    Raises:
        UserError: naming it.
    """
    saved = TrainerState.from_json(checkpoint.state()["trainer"]).phase
    if saved is None or (not config.phases and saved.number == 0):
        return
    names = [phase.name for phase in config.phases]
    if names[saved.number : saved.number + 1] != [saved.name]:
        raise UserError(
            f"phases: {', '.join(names) or 'none'}, and {checkpoint.folder} stands in {saved.name}, number "
            f"{saved.number + 1}; allowed is a list with it there, or --reset data to begin with the first"
        )


def enter_phase(config: RunConfig, state: TrainerState, *, reset: Collection[str]) -> None:
    """Put the state of a run that begins, or that had no phases before, into the first; any other stays as it is.

    Args:
        config: of the run.
        state: as it goes on.
        reset: of `data` and `optimizer`, what begins anew.
    """
    if not config.phases:
        state.phase = None
    elif state.phase is None or "data" in reset:
        applied = state.step - state.skipped_updates if "data" in reset else state.schedule_start
        place = {"step": state.start_step, "epoch": state.start_epoch, "applied": applied}
        state.phase = PhaseState(number=0, name=config.phases[0].name, **place)
