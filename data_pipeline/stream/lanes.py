"""Lanes: windows in memory and their micro-batches one after the other, in this process or in one of their own."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from data_pipeline.order.mixture import PARTS
from data_pipeline.order.state import LaneCursor
from data_pipeline.order.stream_plan import LanePass, StreamPlan
from data_pipeline.order.windows import Integers, WindowPlan
from data_pipeline.prepared.dataset import Block, Dataset, Pieces
from data_pipeline.prepared.index import DataError
from data_pipeline.stream.augment import Augmenter, make_augmenters
from data_pipeline.stream.batch import MicroBatch, Ragged, collate
from data_pipeline.stream.phase_data import PhaseData, make_plans
from data_pipeline.stream.prefetch import Background

CACHE_BYTES = 64 << 20
BLOCKS_AT_ONCE = 8
"""Of a remote dataset."""
READ_NEXT_AFTER = 0.125
"""The fraction of a window that is handed out before the next one is read. So a run's first updates, in which kernels
are built, have the processor for themselves; the rest of a large window lasts far longer than reading the next."""
MAX_EMPTY_PASSES = 10_000
"""Passes in a row that have no micro-batch for a lane, as where hardly a pair fits one."""


class BlockReader:
    """Reads a dataset's blocks. Where pairs are dealt every lane's window draws on every block, so the ones that were
    read last are kept for a rank's other lanes."""

    def __init__(self, dataset: Dataset, *, is_shared: bool = False, background: Background | None = None) -> None:
        """See the class.

        Args:
            dataset: whose blocks.
            is_shared: whether several lanes read a block, else it is used once.
            background: reads blocks at once, for a dataset where each waits for an answer from afar.
        """
        self.dataset = dataset
        self.first_pairs: Integers = dataset.blocks["first_pair"].astype(np.int64)
        """(blocks,): the first pair of each block."""
        self._background = background
        num_kept = CACHE_BYTES // int(dataset.blocks["bytes"].max()) if is_shared else 1
        self._read = lru_cache(max(1, num_kept))(dataset.read_block)

    def read(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Blocks in turn, verified when they were read.

        Raises:
            DataError: during iteration, for a block that is corrupt or cannot be read.
        """
        if self._background is None:
            return map(self._read, numbers)
        begun = [self._background.begin(partial(self._read, number)) for number in numbers]
        return (wait() for wait in begun)


def read_pairs(blocks: BlockReader, pairs: Integers) -> tuple[Ragged, Ragged]:
    """The tokens of source and target of pairs (pairs,) in ascending order, each block read once.

    Raises:
        DataError: a block is corrupt or cannot be read.
    """
    numbers = np.searchsorted(blocks.first_pairs, pairs, side="right") - 1
    parts: tuple[list[Pieces], list[Pieces]] = ([], [])
    cuts = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(pairs)]
    needed = numbers[cuts[:-1]].tolist()
    for (first, last), number, block in zip(itertools.pairwise(cuts), needed, blocks.read(needed), strict=True):
        wanted = np.zeros(len(block.lengths), dtype=bool)
        wanted[pairs[first:last] - blocks.first_pairs[number]] = True
        for side, pieces in enumerate((block.source, block.target)):
            parts[side].append(pieces[np.repeat(wanted, block.lengths[:, side])])
    lengths = blocks.dataset.lengths[pairs].astype(np.int64)
    starts = np.cumsum(lengths, axis=0) - lengths
    source, target = (
        Ragged(
            np.concatenate(parts[side]) if parts[side] else np.empty(0, dtype=np.uint16),
            starts[:, side],
            lengths[:, side],
        )
        for side in (0, 1)
    )
    return source, target


class Fetched(NamedTuple):
    """An update of some lanes."""

    micro_batches: dict[int, MicroBatch] | None
    """By lane, those that are not dry; None where all are dry for this epoch."""
    cursors: dict[int, tuple[LaneCursor, ...]]
    """By lane, after this update."""


class LaneStreamSpec(NamedTuple):
    """What is needed to make the updates of some lanes."""

    phase: PhaseData
    """For another process without its datasets, plans and weights."""
    epoch: int
    update: int
    """The next one within the epoch."""
    cursors: dict[int, tuple[LaneCursor, ...]]
    """By lane, where to continue."""


class Source(NamedTuple):
    """A dataset as the lanes of a rank read it."""

    number: int
    """Number of the dataset among all of the run."""
    first_id: int
    """The id of its first pair: pairs of the run's datasets before it."""
    plan: StreamPlan
    blocks: BlockReader
    augmenter: Augmenter | None


class Window(NamedTuple):
    """A window in memory."""

    num_windows: int
    """Of the lane in the pass; what is beyond them is empty."""
    pairs: Integers
    """In ascending order."""
    plan: WindowPlan
    source: Ragged
    """A row for each pair."""
    target: Ragged


def lane_updates(spec: LaneStreamSpec, places: Sequence[tuple[str, str]]) -> Iterator[Fetched]:
    """Open the datasets and make updates without end: what a loader process runs.

    Args:
        spec: what to make.
        places: location and fingerprint of each dataset.

    Raises:
        UserError: a dataset is not what it was in the process that wrote the spec.
        DataError: as `updates`.
    """
    phase = spec.phase
    datasets = tuple(Dataset.load(location, phase.section) for location, _ in places)
    for dataset, (location, fingerprint) in zip(datasets, places, strict=True):
        if dataset.fingerprint != fingerprint:
            raise DataError(f"{location}: was replaced while it was read; start again")
    plans = make_plans(datasets, phase.section, phase.mixture, seed=phase.seed)
    yield from updates(spec._replace(phase=phase._replace(datasets=datasets, plans=plans)))


def updates(spec: LaneStreamSpec) -> Iterator[Fetched]:
    """Updates without end; each epoch's are followed by a mark that the consumer waits at.

    Raises:
        DataError: a block is corrupt.
    """
    phase, section = spec.phase, spec.phase.section
    background = Background() if section.prefetch_updates or section.workers else None
    fetching = Background(BLOCKS_AT_ONCE) if any("://" in dataset.location for dataset in phase.datasets) else None
    try:
        sources = []
        augmenters = make_augmenters(phase.datasets, section, seed=phase.seed)
        places = zip(phase.numbers, phase.first_ids, phase.datasets, phase.plans, augmenters, strict=True)
        for number, first_id, dataset, plan, augmenter in places:
            blocks = BlockReader(dataset, is_shared=plan.deals_pairs, background=fetching)
            sources.append(Source(number=number, first_id=first_id, plan=plan, blocks=blocks, augmenter=augmenter))
        lanes = {number: Lane(spec, sources, number, background) for number in spec.cursors}
        while True:
            micro_batches: dict[int, MicroBatch] | None = {}
            while micro_batches is not None:
                coming = {number: lane.next() for number, lane in lanes.items()}
                micro_batches = {n: m for n, m in coming.items() if m is not None} or None
                yield Fetched(micro_batches, {n: lane.cursors for n, lane in lanes.items()})
            for lane in lanes.values():
                lane.next_epoch()
    finally:
        for threads in (fetching, background):  # what waits for blocks need not
            if threads is not None:
                threads.close()


class Track:
    """A lane's way through one dataset: pass after pass, window after window, the next one read in the background.

    So up to two windows are in memory; without reading in the background it is one.
    """

    def __init__(self, source: Source, lane: int, cursor: LaneCursor, background: Background | None) -> None:
        """See the class.

        Args:
            source: the dataset.
            lane: which.
            cursor: where to continue.
            background: reads ahead.
        """
        self._source = source
        self._lane = lane
        self._background = background
        self._lane_pass: LanePass | None = None
        self._begun: dict[tuple[int, int], Callable[[], Window]] = {}
        """What waits for windows, by pass and number."""
        self._window: Window | None = None
        """The cursor's, once it is there."""
        self.cursor = cursor
        """The micro-batch that comes next."""

    def begin(self, pass_: int, window: int, before: int) -> None:
        """Begin to read a window.

        Args:
            pass_, window: which.
            before: the lane's micro-batches of the pass before it.
        """
        if (pass_, window) not in self._begun:
            job = partial(self._read, pass_, window, before)
            self._begun[pass_, window] = job if self._background is None else self._background.begin(job)

    def peek(self) -> int | None:
        """Pairs of the next micro-batch; None where the pass is over for the lane.

        Raises:
            DataError: a block is corrupt, or the cursor points at what is not there.
        """
        while True:
            at, window = self.cursor, self._current()
            if at.window >= window.num_windows:
                return None
            count = len(window.plan)
            if at.position >= int(READ_NEXT_AFTER * count):
                is_last = at.window + 1 >= window.num_windows
                self.begin(*((at.pass_ + 1, 0, 0) if is_last else (at.pass_, at.window + 1, at.before + count)))
            if at.position < count:
                first, last = window.plan.bounds[at.position].tolist()
                return int(last - first)
            if at.position > count:
                raise DataError(f"lane {self._lane}: position {at.position} of {count} micro-batches")
            self._leave(window)

    def take(self) -> MicroBatch:
        """The micro-batch that was peeked at."""
        at, window = self.cursor, self._current()
        rows = window.plan.micro_batch(at.position)
        self.cursor = at._replace(position=at.position + 1, taken=at.taken + len(rows))
        if self.cursor.position == len(window.plan):  # so that a resume need not read it again
            self._leave(window)
        return collate(
            self._lane,
            self._source.first_id + window.pairs[rows],
            window.source.rows(rows),
            window.target.rows(rows),
            self._source.plan.budget.length_multiple,
            dataset=self._source.number,
            is_augmented=self._source.augmenter is not None,
        )

    def next_pass(self, *, taken: int) -> None:
        """Go on with the next pass. To be called where this one is over."""
        self._go(LaneCursor(self.cursor.pass_ + 1, 0, 0, taken))

    def find(self) -> int:
        """`peek`; where this pass is over, in the next pass in which the lane gets something."""
        for _ in range(MAX_EMPTY_PASSES):
            if (num_pairs := self.peek()) is not None:
                return num_pairs
            self.next_pass(taken=self.cursor.taken)
        location = self._source.blocks.dataset.location
        raise DataError(f"lane {self._lane}: gets nothing of {location}; allowed is fewer lanes")

    def _leave(self, window: Window) -> None:
        """Go on with the next window."""
        at = self.cursor
        self._go(at._replace(window=at.window + 1, position=0, before=at.before + len(window.plan)))

    def _go(self, cursor: LaneCursor) -> None:
        """Set the cursor on another window, and let go of this one's memory."""
        self.cursor, self._window = cursor, None

    def _current(self) -> Window:
        """The cursor's window, waited for."""
        if self._window is None:
            at = self.cursor
            self.begin(at.pass_, at.window, at.before)
            self._window = self._begun.pop((at.pass_, at.window))()
            self._begun.clear()
        return self._window

    def _read(self, pass_: int, number: int, before: int) -> Window:
        plan, augmenter = self._source.plan, self._source.augmenter
        if self._lane_pass is None or self._lane_pass.number != pass_:
            self._lane_pass = plan.lane(pass_, self._lane)
        num_windows = self._lane_pass.num_windows
        pairs = passes = np.empty(0, dtype=np.int64)
        if number < num_windows:
            pairs, passes = plan.pairs(self._lane_pass, number)
        (source, target), lengths = self._tokens(pairs), plan.lengths[pairs]
        if augmenter is not None:
            source, target = augmenter(source, target, pairs, passes)
            lengths = np.stack([source.lengths, target.lengths], axis=1).astype(np.uint16)
        micro_batches = plan.cut(lengths, pass_=pass_, lane=self._lane, window=number, before=before)
        return Window(num_windows, pairs, micro_batches, source, target)

    def _tokens(self, pairs: Integers) -> tuple[Ragged, Ragged]:
        """A row for each pair, the tokens of those that occur several times once in memory."""
        if self._source.plan.num_copies == 1:
            return read_pairs(self._source.blocks, pairs)
        needed, rows = np.unique(pairs, return_inverse=True)
        source, target = read_pairs(self._source.blocks, needed)
        return source.rows(rows), target.rows(rows)


class Lane:
    """Hands out a lane's micro-batches from its cursors on."""

    def __init__(
        self, spec: LaneStreamSpec, sources: Sequence[Source], lane: int, background: Background | None
    ) -> None:
        """See the class; its arguments are those of `Track`."""
        self._mixture = spec.phase.mixture
        self._epoch, self._update = spec.epoch, spec.update
        cursors = spec.cursors[lane]
        self._tracks = [Track(s, lane, at, background) for s, at in zip(sources, cursors, strict=True)]
        self._usual_pairs = [source.plan.usual_pairs for source in sources]
        self._ahead = [self._mixture.ahead(n, lane, pairs) for n, pairs in enumerate(self._usual_pairs)]
        self._num_updates = self._mixture.epoch_updates(self._epoch, self._usual_pairs)
        if self._mixture.is_single:  # which of many datasets a lane needs, and when, shows in time
            self._tracks[0].begin(cursors[0].pass_, cursors[0].window, cursors[0].before)

    @property
    def cursors(self) -> tuple[LaneCursor, ...]:
        """The micro-batch of each dataset that comes next."""
        return tuple(track.cursor for track in self._tracks)

    def next(self) -> MicroBatch | None:
        """The micro-batch of the next update, or None where the lane is dry for this epoch.

        Raises:
            DataError: as `Track.peek`.
        """
        track = self._next_track()
        if track is None:
            return None
        self._update += 1
        return track.take()

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
