"""A lane: windows in memory, and their micro-batches one after the other."""

import dataclasses
from collections.abc import Callable, Sequence

from data_pipeline.errors import DataError
from data_pipeline.order.mixture import PARTS, Mixture
from data_pipeline.order.state import LaneCursor
from data_pipeline.stream.batch import MicroBatch, collate
from data_pipeline.stream.lane_windows import GroupWindows, Source, Window

__all__ = ["GroupWindows", "Lane", "Source", "Track"]

READ_NEXT_AFTER = 0.125
"""The fraction of a window that is handed out before the next one is read. So a run's first updates, in which kernels
are built, have the processor for themselves; the rest of a large window lasts far longer than reading the next."""

MAX_EMPTY_PASSES = 10_000
"""Passes in a row that have no micro-batch for a lane or its group, as where hardly a pair fits one."""


class Track:
    """A lane's way through one dataset: pass after pass, window after window, the next one read in the background.

    So up to two windows are in memory; without reading in the background it is one.
    """

    def __init__(self, windows: GroupWindows, lane: int, cursor: LaneCursor) -> None:
        self._windows = windows
        self._source = windows.source
        self._lane = lane
        sharing = self._source.plan.sharing
        self._step, self._member = sharing.num_members, sharing.member(lane)
        self._window: Window | None = None
        self._num_windows: int | None = None
        self._is_next_begun = False
        self.cursor = cursor
        """The micro-batch that comes next. Its position may be beyond the window's end where lanes take turns."""
        windows.stand(lane, (cursor.pass_, cursor.window))

    def begin(self) -> Callable[[], Window]:
        """Begin to read the cursor's window, and return what waits for it."""
        at = self.cursor
        first = (self._member - at.position) % self._step
        return self._windows.begin((at.pass_, at.window), before=at.before, first=first)

    def peek(self) -> int | None:
        """Pairs of the next micro-batch, those of corrupt blocks included; None where the pass is over for the lane.

        Raises:
            DataError: more blocks are corrupt than may be, or the cursor points at what is not there.
        """
        while True:
            if self._num_windows is not None and self.cursor.window >= self._num_windows:
                return None
            if self._window is None:
                self._load()
                continue
            plan, position = self._window.plan, self.cursor.position
            if not self._is_next_begun and position >= int(READ_NEXT_AFTER * len(plan)):
                self._begin_next(self._window)
            if position < len(plan):
                first, last = plan.bounds[position].tolist()
                return int(last - first)
            if position > len(plan) and self._step == 1:
                raise DataError(f"lane {self._lane}: position {position} of {len(plan)} micro-batches")
            self._move(position, num_pairs=0)

    def take(self) -> MicroBatch | None:
        """The micro-batch that was peeked at; None where all its pairs stand in corrupt blocks."""
        assert self._window is not None
        window = self._window
        rows = window.plan.micro_batch(self.cursor.position)
        self._move(self.cursor.position + self._step, num_pairs=len(rows))
        if window.tokens.corrupt:
            rows = rows[window.tokens.is_there[rows]]
        if len(rows) == 0:
            return None
        augmented = window.augmented
        return collate(
            self._lane,
            self._source.first_id + window.pairs[rows],
            window.tokens.source.rows(rows),
            window.tokens.target.rows(rows),
            self._source.plan.budget.length_multiple,
            dataset=self._source.number,
            num_augmented=None if augmented is None else int(augmented.is_changed[rows].sum()),
            num_fell_back=0 if augmented is None else int(augmented.fell_back[rows].sum()),
        )

    def next_pass(self, *, taken: int) -> None:
        """Go on with the next pass. To be called where this one is over."""
        assert self._num_windows is not None
        self._window = self._num_windows = None
        self._go(LaneCursor(self.cursor.pass_ + 1, 0, self.cursor.position, taken))

    def find(self) -> int:
        """`peek`, in the next pass of which the lane gets something where this one is over."""
        num_empty = 0
        while num_empty < MAX_EMPTY_PASSES:
            position = self.cursor.position
            if (num_pairs := self.peek()) is not None:
                return num_pairs
            num_empty = num_empty + 1 if self.cursor.position == position else 0
            self.next_pass(taken=self.cursor.taken)
        raise DataError(
            f"lane {self._lane}: gets nothing of {self._source.cache.dataset.location}; allowed is fewer lanes"
        )

    def _move(self, position: int, *, num_pairs: int) -> None:
        """Set the cursor, on the next window where this one is used up, whose memory is let go of."""
        assert self._window is not None
        count = len(self._window.plan)
        at = dataclasses.replace(self.cursor, position=position, taken=self.cursor.taken + num_pairs)
        if position >= count:
            at = dataclasses.replace(at, window=at.window + 1, position=position - count, before=at.before + count)
            self._window = None
        self._go(at)

    def _go(self, cursor: LaneCursor) -> None:
        if (cursor.pass_, cursor.window) != (self.cursor.pass_, self.cursor.window):
            self._is_next_begun = False
            self._windows.stand(self._lane, (cursor.pass_, cursor.window))
        self.cursor = cursor

    def _load(self) -> None:
        """Wait for the cursor's window."""
        window = self.begin()()
        number = self._source.number
        self._windows.corrupt.add({(number, block): what for block, what in window.tokens.corrupt.items()})
        self._window, self._num_windows = window, window.num_windows

    def _begin_next(self, window: Window) -> None:
        """Begin to read what follows the cursor's window: the next one, or the next pass's first."""
        at, count = self.cursor, len(window.plan)
        first = (self._member - at.position + count) % self._step
        is_last = at.window + 1 >= window.num_windows
        place, before = ((at.pass_ + 1, 0), 0) if is_last else ((at.pass_, at.window + 1), at.before + count)
        self._windows.begin(place, before=before, first=first)
        self._is_next_begun = True


class Lane:
    """Hands out a lane's micro-batches from its cursors on."""

    def __init__(
        self,
        mixture: Mixture,
        windows: Sequence[GroupWindows],
        lane: int,
        cursors: Sequence[LaneCursor],
        *,
        epoch: int,
        update: int,
    ) -> None:
        """See the class.

        Args:
            mixture: the proportions.
            windows: of the lane's group, for each dataset.
            lane: which.
            cursors: where to go on in each dataset.
            epoch: which.
            update: the next one within the epoch.
        """
        self._mixture = mixture
        self._epoch, self._update = epoch, update
        self._tracks = [Track(of_group, lane, cursor) for of_group, cursor in zip(windows, cursors, strict=True)]
        plans = [of_group.source.plan for of_group in windows]
        self._usual_pairs = [plan.usual_pairs for plan in plans]
        self._ahead = [mixture.ahead(plan.sharing.turn(lane), plan.usual_pairs) for plan in plans]
        self._num_updates = mixture.epoch_updates(epoch, self._usual_pairs)
        if mixture.is_single:
            self._tracks[0].begin()  # which of many datasets a lane needs, and when, shows in time

    @property
    def cursors(self) -> tuple[LaneCursor, ...]:
        """The micro-batch of each dataset that comes next."""
        return tuple(track.cursor for track in self._tracks)

    def next(self) -> MicroBatch | None:
        """The micro-batch of the next update, or None where the lane is dry for this epoch.

        Raises:
            DataError: as `Track.peek`.
        """
        while (track := self._next_track()) is not None:
            if (micro_batch := track.take()) is not None:
                self._update += 1
                return micro_batch
        return None

    def next_epoch(self) -> None:
        """Go on with the next epoch. To be called where the lane is dry."""
        self._epoch, self._update = self._epoch + 1, 0
        self._num_updates = self._mixture.epoch_updates(self._epoch, self._usual_pairs)
        if self._mixture.is_single:
            self._tracks[0].next_pass(taken=0)

    def _next_track(self) -> Track | None:
        if self._mixture.is_single:
            return self._tracks[0] if self._tracks[0].peek() is not None else None
        if self._update >= self._num_updates:
            return None
        taken = [track.cursor.taken for track in self._tracks]
        counted = [PARTS * pairs + ahead for pairs, ahead in zip(taken, self._ahead, strict=True)]
        coming = [
            PARTS * track.find() if track.cursor.taken else int(PARTS * usual_pairs)
            for track, usual_pairs in zip(self._tracks, self._usual_pairs, strict=True)
        ]
        track = self._tracks[self._mixture.choose(counted, coming)]
        track.find()
        return track
