"""How a run goes from phase to phase: between two updates, each with an epoch of its own."""

import logging
from collections.abc import Callable

from trainer.checkpoint.state import PhaseState
from trainer.context import RunContext
from trainer.phase import has_next, phase_end, phase_of
from trainer.runs.metrics_file import PHASE_EVENT
from trainer.saving import Saver

log = logging.getLogger(__name__)


class Curriculum:
    """Goes through a run's phases. All ranks call it alike, between two updates."""

    def __init__(self, run: RunContext, saver: Saver, retrain: Callable[[], None]) -> None:
        """Stand where the run stands.

        Args:
            run: of this rank.
            saver: of the run.
            retrain: makes the engine train what the present phase says.
        """
        self._run = run
        self._saver = saver
        self._retrain = retrain

    @property
    def ends_with_next(self) -> bool:
        """Whether it is known that the next update is the phase's last, so that none must be fetched ahead."""
        phase, begun = phase_of(self._run.config, self._run.state), self._run.state.phase
        if phase is None or begun is None or phase.until is None or phase.until.updates is None:
            return False
        return self._run.state.step + 1 - begun.step >= phase.until.updates

    def go_on_if_due(self, *, settle: Callable[[], None]) -> None:
        """Begin the next phase if this one is over; what was fetched of this one is thrown away.

        Args:
            settle: is called before, to count the update before as applied or skipped, and to look at its loss.
        """
        config, state, begun = self._run.config, self._run.state, self._run.state.phase
        why = phase_end(config, state, self._run.updates.epoch)
        if begun is None or why is None or not has_next(config, state):
            return
        settle()
        number = begun.number + 1
        name = config.phases[number].name
        epoch = self._run.updates.begin_phase(number)
        applied = state.step - state.skipped_updates
        state.phase = PhaseState(number=number, name=name, step=state.step, epoch=epoch, applied=applied)
        with self._run.activities("setup"):
            self._retrain()
        state.recent_losses.clear()  # of other data: what is usual there may be a spike here, and the other way round
        self._saver.note_position()
        figures = {"event": PHASE_EVENT, **state.phase_figures(), "epoch": epoch, "reason": why}
        self._run.metrics.event(state.step, figures)
        of = f"{number + 1} of {len(config.phases)}"
        log.info("step %d  phase %s (%s) begins with epoch %d: %s", state.step, name, of, epoch, why)
