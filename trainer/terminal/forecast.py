"""The fraction of a run that is done, and the time left at the pace so far."""

from dataclasses import dataclass

from tqdm import tqdm

from configs import RunConfig
from trainer.checkpoint.state import TrainerState


@dataclass(kw_only=True, slots=True, frozen=True)
class Outlook:
    """How far a run has come. Early stopping, which cannot be predicted, may end it earlier."""

    fraction: float
    """Fraction done of the nearest limit, 0 to 1."""
    share: str
    """The same in words, after the updates done: `67 updates, 02:46 of 10:00`."""
    seconds_left: float | None
    """Seconds to the nearest limit at this start's mean pace, with evaluations and saves; None before an update."""
    seconds_per_update: float | None

    def __str__(self) -> str:
        done = f"{self.fraction:.1%} done"
        return done if self.seconds_left is None else f"{done}  {interval(self.seconds_left)} left"


def interval(seconds: float) -> str:
    """Seconds as [hours:]minutes:seconds."""
    return str(tqdm.format_interval(seconds))


class Forecast:
    """Progress towards the limits of the section `training`."""

    def __init__(self, config: RunConfig, state: TrainerState, *, updates_an_epoch: float | None = None) -> None:
        """Start measuring the pace.

        Args:
            config: of the run.
            state: of the run; it is updated by the trainer.
            updates_an_epoch: an estimate, replaced by the true count once an epoch is over; None if not known.
        """
        self._section = config.training
        self._state = state
        self._first_step, self._first_second = state.step, state.seconds
        self._estimate = updates_an_epoch

    @property
    def last_step(self) -> int:
        """That `max_updates` allows."""
        return self._state.start_step + self._section.max_updates

    def look(self, epoch: int, number: int) -> Outlook:
        """How far the run has come.

        Args:
            epoch: of the last update.
            number: of the last update in its epoch, from 0.
        """
        state, section = self._state, self._section
        new, done = state.step - self._first_step, state.step - state.start_step
        pace = (state.seconds - self._first_second) / new if new > 0 else None
        updates = f"{state.step:,} update{'s' * (state.step != 1)}"
        shares = [(done / section.max_updates, f"{state.step:,} of {self.last_step:,} updates")]
        if section.max_target_tokens is not None:
            tokens, most = state.target_tokens - state.start_tokens, section.max_target_tokens
            shares.append((tokens / most, f"{updates}, {tokens:,} of {most:,} target tokens"))
        if section.max_epochs is not None and (an_epoch := self.updates_an_epoch(epoch, number + 1)):
            epochs = epoch - state.start_epoch + (number + 1) / an_epoch
            shares.append((epochs / section.max_epochs, f"{updates}, {epochs:.1f} of {section.max_epochs} epochs"))
        left = None if pace is None else pace * done * (1 / max(shares)[0] - 1)
        if section.max_minutes is not None:
            seconds, limit = state.seconds - state.start_seconds, 60 * section.max_minutes
            shares.append((seconds / limit, f"{updates}, {interval(seconds)} of {interval(limit)}"))
            left = None if left is None else min(left, limit - seconds)
        fraction, share = max(shares)
        return Outlook(
            fraction=min(max(fraction, 0.0), 1.0),
            share=share,
            seconds_left=None if left is None else max(left, 0.0),
            seconds_per_update=pace,
        )

    def updates_an_epoch(self, epoch: int, done: int) -> float | None:
        """Mean over the epochs finished since limits are counted, else the estimate; None if it is not known.

        Args:
            epoch: that the run is in.
            done: updates done of it.
        """
        epochs = epoch - self._state.start_epoch
        counted = self._state.step - self._state.start_step - done
        return counted / epochs if epochs > 0 and counted > 0 else self._estimate
