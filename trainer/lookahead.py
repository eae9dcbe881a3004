"""Fetches the next update, and counts it over all ranks, while the current one is trained on.

At every update the ranks exchange the number of tokens of the next one, their part of the loss, and `LocalFlags`. This
is one message, sent before an update is trained on and read after it, so that no rank waits: counts arrive one update
ahead, and losses two updates late, as they are read from the device one update late.
"""

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_pipeline.stream.reader import StreamReader, StreamState
from trainer.engines.batches import Update, UpdateCounts, count
from trainer.ranks.distributed import World
from trainer.ranks.messages import Sums

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class LocalFlags:
    """What a rank tells the others in addition to the counts of its next update."""

    stop_requested: bool
    time_is_up: bool
    is_writing: bool
    """Whether the rank is still writing its shard of a checkpoint."""
    milliseconds: int
    """Since the run began, by rank 0's clock; 0 from the others."""
    loss_sums: tuple[float, ...]
    """Loss sums of the updates that were recorded since the last message, filled up with 0 to a fixed number."""


@dataclass(kw_only=True, slots=True, frozen=True)
class GlobalFlags:
    """What the ranks' `LocalFlags` come to together."""

    stop_requested: bool = False
    """True if any rank said so; likewise the next two."""
    time_is_up: bool = False
    is_writing: bool = False
    loss_sums: tuple[float, ...] = ()

    @property
    def ends(self) -> bool:
        """Whether no further update is to be made."""
        return self.stop_requested or self.time_is_up


@dataclass(slots=True)
class _Fetched:
    """An update whose counts are being exchanged, or are known."""

    update: Update
    """Without counts and seconds, until those of all ranks are read."""
    state: StreamState
    """After it."""
    num_corrupt_blocks: int
    problem: Exception | None


class Lookahead:
    """A reader that fetches the next update before it is needed. All ranks make the same calls.

    `state` and `num_corrupt_blocks` are those after the last update taken, as if nothing had been fetched since.
    """

    def __init__(self, reader: StreamReader, world: World) -> None:
        self.reader = reader
        """The reader to fetch from; it is ahead of the updates taken."""
        self._world = world
        self._state = reader.state()
        self._fetched: _Fetched | None = None
        self._wait: Callable[[], Sums] | None = None
        self.num_corrupt_blocks = reader.num_corrupt_blocks
        """Number of corrupt blocks that this rank has skipped so far."""
        self.lay_out: Callable[[Update], Callable[[], list[Any]] | None] | None = None
        """If set, is called with every update that is fetched, for `Update.laid_out`."""

    @property
    def epoch(self) -> int:
        """The epoch of the next update to be taken."""
        return self.reader.epoch

    @property
    def has_next(self) -> bool:
        """Whether an update is fetched and counted."""
        return self._fetched is not None

    def state(self) -> StreamState:
        """The stream's state after the last update taken."""
        return self._state

    def begin_phase(self, number: int) -> int:
        """Go on with another phase's data. What was fetched of this one's is thrown away.

        Args:
            number: of the phase, from 0.

        Returns:
            Its first epoch: this one where no update of it was taken, else the next.
        """
        assert self._wait is None
        self._fetched = None
        epoch = self._state.epoch + (self._state.update > 0)
        self.reader.begin_phase(number, epoch=epoch)
        self._state = self.reader.state()
        return epoch

    def begin(self, flags: LocalFlags, *, step: int, fetch: bool) -> float:
        """Fetch the next update, and begin to tell the others of it; returns the seconds of waiting for its data.

        Args:
            flags: what else to tell them.
            step: updates done.
            fetch: False if there is no next one; only the flags are exchanged.
        """
        assert self._wait is None
        assert self._fetched is None
        begin = time.monotonic()
        self._fetched = self._fetch(step) if fetch else None
        seconds = time.monotonic() - begin
        mine = count([] if self._fetched is None else self._fetched.update.micro_batches)
        told = [flags.stop_requested, flags.time_is_up, flags.is_writing]
        self._wait = self._world.begin_sums([*mine.numbers(), *map(int, told), flags.milliseconds], flags.loss_sums)
        return seconds

    def _fetch(self, step: int) -> _Fetched:
        epoch, number, problem = self.reader.epoch, self.reader.update, None
        try:
            micro_batches = self.reader.next_update()
        except Exception as error:  # raised when the update is taken, so that those before it are not lost
            micro_batches, problem = [], error
        update = Update(epoch=epoch, number=number, micro_batches=micro_batches, seconds_step=step)
        if self.lay_out is not None:
            update = dataclasses.replace(update, laid_out=self.lay_out(update))
        return _Fetched(update, self.reader.state(), self.reader.num_corrupt_blocks, problem)

    def read(self) -> GlobalFlags:
        """Wait for the message of all ranks, and return it."""
        assert self._wait is not None
        (*numbers, stops, times, writing, milliseconds), loss_sums = self._wait()
        self._wait = None
        if self._fetched is not None:
            counts, seconds = UpdateCounts(*numbers), milliseconds / 1000
            self._fetched.update = dataclasses.replace(self._fetched.update, counts=counts, seconds=seconds)
        return GlobalFlags(
            stop_requested=stops > 0, time_is_up=times > 0, is_writing=writing > 0, loss_sums=tuple(loss_sums)
        )

    def take(self) -> Update | None:
        """The update that was fetched and counted; None if the epoch is over and the next one begins.

        Raises:
            Exception: what the reader raised.
        """
        fetched, self._fetched = self._fetched, None
        assert fetched is not None
        assert self._wait is None
        if fetched.problem is not None:
            raise fetched.problem
        self._state, self.num_corrupt_blocks = fetched.state, fetched.num_corrupt_blocks
        update = fetched.update
        if update.counts.pairs == 0:
            self.reader.end_epoch()
            log.info("epoch %d ended after %d updates", update.epoch, update.number)
            self._state = self.reader.state()
            return None
        return update
