"""A lane: windows in memory, and their micro-batches one after the other."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_pipeline.errors import DataError
from data_pipeline.order.mixture import Mixture
from data_pipeline.order.stream_plan import LanePass, StreamPlan
from data_pipeline.order.windows import WindowPlan
from data_pipeline.stream.batch import MicroBatch, collate
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.state import LaneCursor
from data_pipeline.stream.window_tokens import BlockCache, LeftOut, Tokens, read_pairs

Integers = NDArray[np.int64]

READ_NEXT_AFTER = 0.125
"""The share of a window that is handed out before the next one is read: a run's first updates, where kernels are made,
have the processor for themselves, and what is left of a large window lasts far longer than reading takes."""

MAX_EMPTY_PASSES = 10_000
"""Passes in a row of which a lane gets nothing. `StreamReader` refuses datasets so small that this could come about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dataset as the lanes of a rank read it."""

    number: int
    """Of the dataset in the mixture."""
    first_id: int
    """The id of its first pair: pairs of the datasets before it."""
    plan: StreamPlan
    cache: BlockCache


@dataclass(frozen=True, slots=True)
class _Window:
    num_windows: int
    """Of the lane in the pass."""
    pairs: Integers
    plan: WindowPlan
    tokens: Tokens


class Track:
    """A lane's way through one dataset: pass after pass, window after window, the next one read in the background.

    So up to two windows are in memory; without `background` it is one.
    """

    def __init__(
        self, source: Source, lane: int, cursor: LaneCursor, left_out: LeftOut, background: Background | None
    ) -> None:
        self._source = source
        self._lane = lane
        self._left_out = left_out
        self._background = background
        self._share: tuple[int, LanePass] | None = None
        self._window: _Window | None = None
        self._num_windows: int | None = None
        self.cursor = cursor
        """The micro-batch that comes next."""
        self._coming: Callable[[], _Window] | None = self._begin(cursor.pass_, cursor.window, cursor.before)

    def peek(self) -> int | None:
        """Pairs of the next micro-batch, those of broken blocks included; None where the pass is over for the lane.

        Raises:
            DataError: more blocks are broken than may be, or the cursor points at what is not there.
        """
        while True:
            if self._num_windows is not None and self.cursor.window >= self._num_windows:
                return None
            if self._window is None:
                self._load()
                continue
            plan, position = self._window.plan, self.cursor.position
            if self._coming is None and position >= int(READ_NEXT_AFTER * len(plan)):
                self._coming = self._begin_next(self._window)
            if position < len(plan):
                first, last = plan.bounds[position].tolist()
                return int(last - first)
            if position > len(plan):
                raise DataError(f"lane {self._lane}: position {position} of {len(plan)} micro-batches")
            self._move(position, num_pairs=0)

    def take(self) -> MicroBatch | None:
        """The micro-batch that was peeked at; None where all its pairs stand in broken blocks."""
        assert self._window is not None
        window = self._window
        rows = window.plan.micro_batch(self.cursor.position)
        self._move(self.cursor.position + 1, num_pairs=len(rows))
        if window.tokens.broken:
            rows = rows[window.tokens.is_there[rows]]
        if len(rows) == 0:
            return None
        return collate(
            self._lane,
            self._source.first_id + window.pairs[rows],
            window.tokens.source.rows(rows),
            window.tokens.target.rows(rows),
            self._source.plan.budget.length_multiple,
            dataset=self._source.number,
        )

    def next_pass(self, *, taken: int) -> None:
        """Go on with the next pass. To be called where this one is over."""
        assert self._num_windows is not None
        self._window = self._num_windows = None
        self.cursor = LaneCursor(self.cursor.pass_ + 1, 0, 0, taken)

    def peek_in_any_pass(self) -> int:
        """`peek`, in the next pass of which the lane gets something where this one is over."""
        for _ in range(MAX_EMPTY_PASSES):
            if (num_pairs := self.peek()) is not None:
                return num_pairs
            self.next_pass(taken=self.cursor.taken)
        raise DataError(
            f"lane {self._lane}: gets nothing of {self._source.cache.dataset.location}; allowed is fewer lanes"
        )

    def _move(self, position: int, *, num_pairs: int) -> None:
        """Set the cursor, on the next window where this one is used up, whose memory is let go of."""
        assert self._window is not None
        at = dataclasses.replace(self.cursor, position=position, taken=self.cursor.taken + num_pairs)
        if position == len(self._window.plan):
            at = dataclasses.replace(at, window=at.window + 1, position=0, before=at.before + position)
            self._window = None
        self.cursor = at

    def _load(self) -> None:
        """Wait for the cursor's window."""
        at = self.cursor
        window = (self._coming or self._begin(at.pass_, at.window, at.before))()
        self._coming = None
        self._left_out.add({(self._source.number, block): what for block, what in window.tokens.broken.items()})
        self._window, self._num_windows = window, window.num_windows

    def _begin_next(self, window: _Window) -> Callable[[], _Window]:
        """Begin to read what follows the cursor's window: the next one, or the next pass's first."""
        pass_, number, before = self.cursor.pass_, self.cursor.window + 1, self.cursor.before + len(window.plan)
        return self._begin(pass_, number, before) if number < window.num_windows else self._begin(pass_ + 1, 0, 0)

    def _begin(self, pass_: int, number: int, before: int) -> Callable[[], _Window]:
        job = partial(self._read, pass_, number, before)
        return job if self._background is None else self._background.begin(job)

    def _read(self, pass_: int, number: int, before: int) -> _Window:
        """A window, an empty one where the lane has no such window in the pass."""
        if self._share is None or self._share[0] != pass_:
            self._share = pass_, self._source.plan.lane(pass_, self._lane)
        share = self._share[1]
        if number >= share.num_windows:
            none = np.empty(0, dtype=np.int64)
            pairs, plan = none, WindowPlan(none, np.empty((0, 2), dtype=np.int64))
        else:
            pairs, plan = self._source.plan.window(share, pass_=pass_, lane=self._lane, window=number, before=before)
        return _Window(share.num_windows, pairs, plan, read_pairs(self._source.cache, pairs, self._left_out.limit))


class Lane:
    """Hands out a lane's micro-batches from its cursors on."""

    def __init__(
        self,
        mixture: Mixture,
        sources: Sequence[Source],
        lane: int,
        epoch: int,
        cursors: Sequence[LaneCursor],
        left_out: LeftOut,
        background: Background | None,
    ) -> None:
        self._mixture = mixture
        self._lane = lane
        self._epoch = epoch
        self._tracks = [
            Track(source, lane, cursor, left_out, background) for source, cursor in zip(sources, cursors, strict=True)
        ]

    @property
    def cursors(self) -> tuple[LaneCursor, ...]:
        """The micro-batch of each dataset that comes next."""
        return tuple(track.cursor for track in self._tracks)

    def next(self) -> MicroBatch | None:
        """The next micro-batch, or None where the lane is dry for this epoch.

        Raises:
            DataError: as `Track.peek`.
        """
        while (track := self._next_track()) is not None:
            if (micro_batch := track.take()) is not None:
                return micro_batch
        return None

    def next_epoch(self) -> None:
        """Go on with the next epoch. To be called where the lane is dry."""
        self._epoch += 1
        if self._mixture.is_single:
            self._tracks[0].next_pass(taken=0)

    def _next_track(self) -> Track | None:
        if self._mixture.is_single:
            return self._tracks[0] if self._tracks[0].peek() is not None else None
        taken = [track.cursor.taken for track in self._tracks]
        if sum(taken) >= self._mixture.quota(self._epoch + 1, self._lane):
            return None
        return self._tracks[self._mixture.choose(taken, [track.peek_in_any_pass() for track in self._tracks])]
