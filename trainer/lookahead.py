"""The next update, fetched and counted over all ranks while the one before is trained on.

At every update ranks tell one another how many tokens the next one holds, their part of the loss, and what else is in a
`Note`. All of it goes in one message, which is begun before an update is trained on and read after it, so that nobody
waits: counts are there one update ahead, and losses one late.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader, StreamState
from trainer.engines.batches import Update, UpdateCounts, count
from trainer.ranks.distributed import World
from trainer.ranks.messages import Sums

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class Note:
    """What a rank says beside the counts of its next update."""

    stop_requested: bool
    time_is_up: bool
    is_writing: bool
    """Whether it still writes a checkpoint's shard."""
    milliseconds: int
    """Of the run, by the clock of rank 0; 0 from the others."""
    loss_sum: float
    """Of the update before; 0 where there is none, or its sum is known already."""


@dataclass(kw_only=True, slots=True, frozen=True)
class News:
    """What all ranks said."""

    stop_requested: bool = False
    """By anybody. So with the next two."""
    time_is_up: bool = False
    is_writing: bool = False
    loss_sum: float = 0.0


@dataclass(slots=True)
class _Fetched:
    """An update of which the counts are on their way, or there."""

    epoch: int
    number: int
    step: int
    """Updates done when it was fetched."""
    micro_batches: list[MicroBatch | None]
    state: StreamState
    """After it."""
    num_corrupt_blocks: int
    problem: Exception | None
    counts: UpdateCounts | None = None
    seconds: float = 0.0


class Lookahead:
    """A reader of which the next update is fetched before it is needed. All ranks call it alike.

    `state` and `num_corrupt_blocks` are those after the update that was taken last, as if nothing was fetched since.
    """

    def __init__(self, reader: StreamReader, world: World) -> None:
        self.reader = reader
        """What is fetched from; it is ahead of what was taken."""
        self._world = world
        self._state = reader.state()
        self._fetched: _Fetched | None = None
        self._wait: Callable[[], Sums] | None = None
        self.num_corrupt_blocks = reader.num_corrupt_blocks
        """Corrupt blocks that this rank skipped so far."""

    @property
    def epoch(self) -> int:
        """Of the update that is taken next."""
        return self.reader.epoch

    @property
    def has_next(self) -> bool:
        """Whether an update is fetched and counted."""
        return self._fetched is not None

    def state(self) -> StreamState:
        """See StreamReader."""
        return self._state

    def begin(self, note: Note, *, step: int, fetch: bool) -> float:
        """Fetch the next update, and tell the others of it; the seconds that its data were waited for.

        Args:
            note: what else to tell them.
            step: updates done.
            fetch: False where there is no next one; the others are told the rest.
        """
        assert self._wait is None
        assert self._fetched is None
        begin = time.monotonic()
        micro_batches: list[MicroBatch | None] = []
        if fetch:
            self._fetched = self._fetch(step)
            micro_batches = self._fetched.micro_batches
        seconds = time.monotonic() - begin
        flags = [note.stop_requested, note.time_is_up, note.is_writing]
        self._wait = self._world.begin_sums(
            [*count(micro_batches).numbers(), *map(int, flags), note.milliseconds], [note.loss_sum]
        )
        return seconds

    def _fetch(self, step: int) -> _Fetched:
        epoch, number, problem = self.reader.epoch, self.reader.update, None
        try:
            micro_batches = self.reader.next_update()
        except Exception as error:  # raised where the update is taken: those before it are not lost
            micro_batches, problem = [], error
        return _Fetched(
            epoch=epoch,
            number=number,
            step=step,
            micro_batches=micro_batches,
            state=self.reader.state(),
            num_corrupt_blocks=self.reader.num_corrupt_blocks,
            problem=problem,
        )

    def read(self) -> News:
        """What all ranks said, once they have."""
        assert self._wait is not None
        (*numbers, stops, times, writing, milliseconds), [loss_sum] = self._wait()
        self._wait = None
        if self._fetched is not None:
            self._fetched.counts = UpdateCounts(
                **dict(zip(UpdateCounts.__dataclass_fields__, numbers, strict=True))  # in their order
            )
            self._fetched.seconds = milliseconds / 1000
        return News(stop_requested=stops > 0, time_is_up=times > 0, is_writing=writing > 0, loss_sum=loss_sum)

    def take(self) -> Update | None:
        """The update that was fetched and counted; None where the epoch is over, and the next one has begun.

        Raises:
            Exception: what the reader raised.
        """
        fetched, self._fetched = self._fetched, None
        assert fetched is not None
        assert fetched.counts is not None
        if fetched.problem is not None:
            raise fetched.problem
        self._state, self.num_corrupt_blocks = fetched.state, fetched.num_corrupt_blocks
        if fetched.counts.pairs == 0:
            self.reader.end_epoch()
            log.info("epoch %d ended after %d updates", fetched.epoch, fetched.number)
            self._state = self.reader.state()
            return None
        return Update(
            epoch=fetched.epoch,
            number=fetched.number,
            micro_batches=fetched.micro_batches,
            counts=fetched.counts,
            seconds=fetched.seconds,
            seconds_step=fetched.step,
        )
