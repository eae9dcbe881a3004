"""The phase that a run is in, when it is over, and how the next one begins, between two updates.

All but the last is a function of the configuration and of what checkpoints remember, so all ranks decide alike, and so
does whoever goes on after a kill.
"""

import inspect
import logging
from collections.abc import Collection

from configs import EarlyStoppingSection, PhaseSection, RunConfig, UserError
from configs.data import PlateauSection
from data_pipeline.tokenizer import Tokenizer
from model import Objective
from model.loss import Loss
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.model_files import build_model
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.context import RunContext
from trainer.evaluation.scores import current_plateau

log = logging.getLogger(__name__)


def phase_of(config: RunConfig, state: TrainerState) -> PhaseSection | None:
    """The phase that the next update belongs to; None in a run without phases."""
    number = -1 if state.phase is None else state.phase.number
    return config.phases[number] if 0 <= number < len(config.phases) else None


def phase_end(config: RunConfig, state: TrainerState, epoch: int) -> str | None:
    """Why the phase is over; None where it is not.

    Args:
        config: of the run.
        state: of the run, between two updates.
        epoch: of the next update.
    """
    phase, begun = phase_of(config, state), state.phase
    if phase is None or begun is None or (until := phase.until) is None:
        return None
    if until.updates is not None and state.step - begun.step >= until.updates:
        return f"{until.updates:,} updates of {phase.name} are done"
    if until.passes is not None and epoch - begun.epoch >= until.passes:
        passes = "1 pass" if until.passes == 1 else f"{until.passes:,} passes"
        return f"{passes} over the data of {phase.name} {'is' if until.passes == 1 else 'are'} done"
    stalled = None if until.plateau is None else no_better(config, state, until.plateau, begun.step, begun.step)
    return None if stalled is None else f"{stalled} of {phase.name}"


def no_better(
    config: RunConfig, state: TrainerState, section: EarlyStoppingSection | PlateauSection, since: int, after: int
) -> str | None:
    """Says that a figure has not become better for as many evaluations as a section bears; None where it has.

    Args:
        config: of the run.
        state: with the scores.
        section: whose patience is asked about.
        since: scores of later steps may be the best.
        after: evaluations of later steps count.
    """
    figure = section.metric or config.best_by
    waited, best, step = current_plateau(
        state.planned_scores(figure, after=since),
        higher_is_better=config.evaluation.directions[figure],
        min_delta=section.min_delta,
        after=after,
    )
    if waited < section.patience:
        return None
    by = f" by more than {section.min_delta:g}" if section.min_delta else ""
    evaluations = f"{waited} evaluation{'s' * (waited != 1)}"
    return f"no {figure} better{by} than {best:.4g} of step {step:,} in {evaluations}"


def next_is_due(config: RunConfig, state: TrainerState, epoch: int) -> str | None:
    """Why the next phase begins with the next update; None where it does not. Arguments as of `phase_end`."""
    has_next = state.phase is not None and state.phase.number + 1 < len(config.phases)
    return phase_end(config, state, epoch) if has_next else None


def begin_next(run: RunContext, why: str) -> None:
    """Begin the next phase with an epoch of its own; what was fetched of this one is thrown away.

    Called by all ranks alike, after the newest update was settled.
    """
    config, state = run.config, run.state
    number = 0 if state.phase is None else state.phase.number + 1
    phase = config.phases[number]
    epoch, applied = run.updates.begin_phase(number), state.step - state.skipped_updates
    state.phase = PhaseState(number=number, name=phase.name, step=state.step, epoch=epoch, applied=applied)
    state.recent_losses.clear()  # of other data: what is usual there may be a spike here, and the other way round
    run.metrics.event(state.step, {"event": "phase", **state.phase_figures(), "epoch": epoch, "reason": why})
    of = f"{number + 1} of {len(config.phases)}"
    log.info("step %d  phase %s (%s) begins with epoch %d: %s", state.step, phase.name, of, epoch, why)


def new_objective(config: RunConfig, tokenizer: Tokenizer) -> Objective:
    """The run's model with its loss, as it begins; errors as of `loss_of`."""
    return Objective(build_model(config.model, tokenizer, seed=config.seed), loss_of(config)).train()


def loss_of(config: RunConfig) -> Loss:
    """The training loss.

    Raises:
        UserError: pairs have weights, and it takes none.
    """
    loss: Loss = config.loss.build()
    parameters = inspect.signature(loss).parameters.values()
    if config.weighs_pairs and not any(p.name == "scales_N" or p.kind == p.VAR_KEYWORD for p in parameters):
        raise UserError(
            f"loss.kind: {config.loss.kind} takes no weights of pairs, and loss_weight of a dataset gives some; use "
            "cross_entropy, or give the loss scales_N (model.loss.Loss)"
        )
    return loss


def check_phase(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Refuse phases without the checkpoint's. Those that follow may change, and when they begin.

    Raises:
        UserError: naming it.
    """
    saved = TrainerState.from_json(checkpoint.state()["trainer"]).phase
    if saved is None or (not config.phases and saved.number == 0):
        return
    names = [phase.name for phase in config.phases]
    if names[saved.number : saved.number + 1] != [saved.name]:
        raise UserError(
            f"phases: {', '.join(names) or 'none'}, and {checkpoint.folder} is in {saved.name}, number "
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
