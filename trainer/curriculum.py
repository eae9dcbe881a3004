"""How a run goes from phase to phase: between two updates, each with an epoch of its own."""

import logging
from collections.abc import Callable

from configs import RunConfig
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.lookahead import Lookahead
from trainer.phase import has_next, phase_end, phase_of
from trainer.records.metrics import Metrics
from trainer.runs.metrics_file import PHASE_EVENT
from trainer.saving import Saver

log = logging.getLogger(__name__)


class Curriculum:
    """Goes through a run's phases. All ranks call it alike, between two updates."""

    def __init__(
        self, config: RunConfig, state: TrainerState, *, updates: Lookahead, saver: Saver, metrics: Metrics
    ) -> None:
        self._config = config
        self._state = state
        self._updates = updates
        self._saver = saver
        self._metrics = metrics

    @property
    def ends_with_next(self) -> bool:
        """Whether it is known that the next update is the phase's last, so that none must be fetched ahead."""
        phase, begun = phase_of(self._config, self._state), self._state.phase
        if phase is None or begun is None or phase.until is None or phase.until.updates is None:
            return False
        return self._state.step + 1 - begun.step >= phase.until.updates

    def go_on_if_due(self, *, settle: Callable[[], None]) -> None:
        """Begin the next phase if this one is over; what was fetched of this one is thrown away.

        Args:
            settle: is called before, to look at the loss of the update before.
        """
        state, begun = self._state, self._state.phase
        why = phase_end(self._config, state, self._updates.epoch)
        if begun is None or why is None or not has_next(self._config, state):
            return
        settle()
        number = begun.number + 1
        name = self._config.phases[number].name
        epoch = self._updates.begin_phase(number)
        applied = state.step - state.skipped_updates
        state.phase = PhaseState(number=number, name=name, step=state.step, epoch=epoch, applied=applied)
        state.recent_losses.clear()  # of other data: what is usual there may be a spike here, and the other way round
        self._saver.note_position()
        self._metrics.event(state.step, {"event": PHASE_EVENT, **state.phase_figures(), "epoch": epoch, "reason": why})
        of = f"{number + 1} of {len(self._config.phases)}"
        log.info("step %d  phase %s (%s) begins with epoch %d: %s", state.step, name, of, epoch, why)
