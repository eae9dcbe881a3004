"""The next update, fetched and counted while the current one is trained on.

All ranks need every update's counts over all ranks: of pairs, to agree on the end of an epoch, and of target tokens,
for the mean. In the same message go each rank's part of the newest losses, and flags. It is sent before an update is
trained on and read once that is on its way, so that no rank waits: counts arrive one update ahead, and losses two
updates late, as they are read from the device one update late.
"""

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.reader import StreamReader, StreamState
from trainer.engines import Engine
from trainer.engines.batches import DeviceBatch, Update, UpdateCounts, count, micro_batch_seed
from trainer.engines.layouts import stage
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class Flags:
    """What a rank tells the others in addition to the counts of its next update, or what all told: any of their flags,
    and sums of the numbers."""

    stop_requested: bool = False
    time_is_up: bool = False
    is_writing: bool = False
    """Whether the rank is still writing its shard of a checkpoint."""
    milliseconds: int = 0
    """Since the run began, by rank 0's clock; 0 from the others."""
    loss_sums: Sequence[float] = ()
    """Of updates whose outcome was read since the last message; of as many on all ranks."""


@dataclass(slots=True)
class _Fetched:
    """An update whose counts are being exchanged, or are known."""

    update: Update
    """Without counts and seconds, until those of all ranks are read."""
    state: StreamState
    """After it."""
    problem: Exception | None


class Lookahead:
    """A reader that fetches the next update before it is needed. All ranks make the same calls.

    `state` is that after the last update taken, as if nothing had been fetched since.
    """

    def __init__(self, reader: StreamReader, world: World) -> None:
        self.reader = reader
        """The reader to fetch from; it is ahead of the updates taken."""
        self._world = world
        self._state = reader.state()
        self._fetched: _Fetched | None = None
        self._wait: Callable[[], tuple[list[int], list[float]]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next update to be taken."""
        return self.reader.epoch

    @property
    def fetched(self) -> Update | None:
        """The update that is fetched and not taken."""
        return None if self._fetched is None else self._fetched.update

    def state(self) -> StreamState:
        """The stream's state after the last update taken."""
        return self._state

    def begin_phase(self, number: int) -> int:
        """Go on with another phase's data. What was fetched of this one's is thrown away.

        Args:
            number: of the phase, from 0.

        Returns:
            Its first epoch: this one if none of its updates was taken, else the next.
        """
        assert self._wait is None
        self._fetched = None
        epoch = self._state.epoch + (self._state.update > 0)
        self.reader.begin_phase(number, epoch=epoch)
        self._state = self.reader.state()
        return epoch

    def begin(self, flags: Flags, *, step: int, fetch: bool) -> float:
        """Fetch the next update, and begin to tell the others; returns the seconds of waiting for its data.

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
        told = [flags.stop_requested, flags.time_is_up, flags.is_writing, flags.milliseconds]
        self._wait = self._world.begin_sums([*mine.numbers(), *map(int, told)], flags.loss_sums)
        return seconds

    def _fetch(self, step: int) -> _Fetched:
        epoch, number, problem = self.reader.epoch, self.reader.update, None
        try:
            micro_batches = self.reader.next_update()
        except Exception as error:  # raised when the update is taken, so that those before it are not lost
            micro_batches, problem = [], error
        update = Update(epoch=epoch, number=number, micro_batches=micro_batches, seconds_step=step)
        return _Fetched(update, self.reader.state(), problem)

    def read(self) -> Flags:
        """Wait for the message of all ranks, and return it."""
        assert self._wait is not None
        (*numbers, stops, times, writing, milliseconds), loss_sums = self._wait()
        self._wait = None
        if self._fetched is not None:
            counts, seconds = UpdateCounts(*numbers), milliseconds / 1000
            self._fetched.update = dataclasses.replace(self._fetched.update, counts=counts, seconds=seconds)
        return Flags(
            stop_requested=stops > 0,
            time_is_up=times > 0,
            is_writing=writing > 0,
            milliseconds=milliseconds,
            loss_sums=loss_sums,
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
        self._state = fetched.state
        update = fetched.update
        if update.counts.pairs == 0:
            self.reader.end_epoch()
            log.info("epoch %d ended after %d updates", update.epoch, update.number)
            self._state = self.reader.state()
            return None
        return update


@dataclass(kw_only=True, slots=True, frozen=True)
class Pass:
    """Micro-batches of one or several lanes, to go through the model as one: ready on the host."""

    micro_batches: list[MicroBatch]
    """Empty where all lanes are dry; then the batch is one token, of weight 0."""
    seed: int
    """Seed of what is drawn from torch's generator."""
    send: Callable[[], DeviceBatch]
    """Begins to copy it to the device."""

    @property
    def lanes(self) -> tuple[int, ...]:
        """Lanes of the micro-batches."""
        return tuple(m.lane for m in self.micro_batches)


def lay_out(update: Update, engine: Engine, *, seed: int) -> list[Pass]:
    """This rank's micro-batches of an update, for an engine, ready for the device; as many passes on all ranks.

    A thread may do so.

    Args:
        update: of which they are.
        engine: that they are for.
        seed: of the run.
    """
    slots, step, of_rank = update.micro_batches, engine.merged_lanes, []
    for begin in range(0, len(slots), step):
        filled = [m for m in slots[begin : begin + step] if m is not None]
        seeds = [micro_batch_seed(seed, update.epoch, update.number, m.lane) for m in filled]
        send = stage(filled, seeds, engine.device, kind=engine.layout_kind)
        of_rank.append(Pass(micro_batches=filled, seed=seeds[0] if seeds else 0, send=send))
    return of_rank


class Layouts:
    """Lays updates out in a thread, before they are needed: a device that waits for them computes nothing.

    On a CPU there is nothing to win, and it is done where it is needed.
    """

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._seed = seed
        self._thread = None if is_host(engine.device) else Background()
        self._begun = deque[tuple[Update, Callable[[], list[Pass]]]]()

    def begin(self, update: Update) -> None:
        """Begin with an update that is going to be trained on, unless it is left out."""
        if self._thread is not None:
            self._begun.append((update, self._thread.begin(lambda: self._lay_out(update))))

    def _lay_out(self, update: Update) -> list[Pass]:
        with torch.get_device_module(self._engine.device).device(self._engine.device):  # memory is pinned for this one
            return lay_out(update, self._engine, seed=self._seed)

    def passes(self, update: Update) -> list[Pass]:
        """`lay_out` of an update, once it is done."""
        while self._begun:  # those before it were left out
            one, wait = self._begun.popleft()
            if one.micro_batches is update.micro_batches:
                return wait()
        return lay_out(update, self._engine, seed=self._seed)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()
