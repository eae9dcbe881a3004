"""The windows of a lane, or of a group of lanes that takes turns at them: planned and read once for all of them."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_pipeline.order.stream_plan import LanePass, StreamPlan
from data_pipeline.order.windows import WindowPlan
from data_pipeline.stream.augmentation.augmenter import Augmented, Augmenter
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.window_tokens import BlockCache, CorruptBlocks, Tokens, read_pairs

Integers = NDArray[np.int64]
Place = tuple[int, int]
"""Pass and window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A dataset as the lanes of a rank read it."""

    number: int
    """Number of the dataset among all of the run."""
    first_id: int
    """The id of its first pair: pairs of the run's datasets before it."""
    plan: StreamPlan
    cache: BlockCache
    augmenter: Augmenter | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What is in memory of a window: the pairs of the micro-batches that lanes of this process take."""

    num_windows: int
    """Windows of the group in the pass."""
    pairs: Integers
    """In ascending order."""
    plan: WindowPlan
    """All micro-batches of the window; those of other processes' lanes are empty."""
    tokens: Tokens
    augmented: Augmented | None = None
    """Whose rows these are, where they are not those of the dataset."""


class GroupWindows:
    """The windows of a group of lanes, for those of its lanes that this process has.

    A window is kept until the last of these lanes has gone past it; they are about one micro-batch apart. Not for
    several threads at a time; reading is done in the background where there is one.
    """

    def __init__(
        self, source: Source, lanes: Sequence[int], corrupt: CorruptBlocks, background: Background | None
    ) -> None:
        """See the class.

        Args:
            source: the dataset.
            lanes: of one group, all that this process has of it.
            corrupt: corrupt blocks so far.
            background: reads ahead.
        """
        sharing = source.plan.sharing
        self.source = source
        self.corrupt = corrupt
        self._lane = sharing.group(lanes[0])
        self._members = np.isin(np.arange(sharing.num_members), [sharing.member(lane) for lane in lanes])
        self._background = background
        self._of_pass: tuple[int, LanePass] | None = None
        self._begun: dict[Place, Callable[[], Window]] = {}
        self._places: dict[int, Place] = {}
        self._num_lanes: Counter[Place] = Counter()
        """By where they stand."""

    def stand(self, lane: int, place: Place) -> None:
        """Note where a lane stands, and let go of the windows that all lanes are past."""
        before = self._places.get(lane)
        self._places[lane] = place
        self._num_lanes[place] += 1
        if before is None:
            return
        self._num_lanes[before] -= 1
        if self._num_lanes[before] == 0:
            del self._num_lanes[before]
            first = min(self._num_lanes)
            for past in [place for place in self._begun if place < first]:
                del self._begun[past]

    def begin(self, place: Place, *, before: int, first: int) -> Callable[[], Window]:
        """Begin to read a window, an empty one where there is no such window in the pass.

        Args:
            place: which.
            before: micro-batches of the pass before it.
            first: the member of the group whose turn its first micro-batch is.

        Returns:
            What waits for it.
        """
        if place not in self._begun:
            job = partial(self._read, *place, before, first)
            self._begun[place] = functools.cache(job) if self._background is None else self._background.begin(job)
        return self._begun[place]

    def _read(self, pass_: int, number: int, before: int, first: int) -> Window:
        plan = self.source.plan
        if self._of_pass is None or self._of_pass[0] != pass_:
            self._of_pass = pass_, plan.lane(pass_, self._lane)
        lane_pass = self._of_pass[1]
        if number >= lane_pass.num_windows:
            none = np.empty(0, dtype=np.int64)
            pairs, micro_batches = none, WindowPlan(none, np.empty((0, 2), dtype=np.int64))
        elif self.source.augmenter is not None:
            return self._augmented(self.source.augmenter, lane_pass, pass_, number, before)
        else:
            pairs, micro_batches = plan.window(lane_pass, pass_=pass_, lane=self._lane, window=number, before=before)
            if plan.sharing.is_shared:
                turns = (first + np.arange(len(micro_batches))) % len(self._members)
                pairs, micro_batches = _only(pairs, micro_batches, self._members[turns])
        return Window(
            lane_pass.num_windows, pairs, micro_batches, read_pairs(self.source.cache, pairs, self.corrupt.limit)
        )

    def _augmented(self, augmenter: Augmenter, lane_pass: LanePass, pass_: int, number: int, before: int) -> Window:
        """A window that is planned with what became of its pairs. So the pairs of all its lanes are read."""
        plan = self.source.plan
        tokens, augmented = None, None

        def measure(pairs: Integers) -> NDArray[np.uint16]:
            nonlocal tokens, augmented
            passes = plan.sharing.num_passes
            own_passes = pass_ * passes + np.arange(len(pairs)) % passes
            needed, rows = np.unique(pairs, return_inverse=True)
            read = read_pairs(self.source.cache, needed, self.corrupt.limit)
            tokens = Tokens(read.source.rows(rows), read.target.rows(rows), read.is_there[rows], read.corrupt)
            augmented = augmenter(tokens.source, tokens.target, tokens.is_there, pairs, own_passes)
            return np.where(tokens.is_there[:, None], augmented.lengths, plan.lengths[pairs])

        pairs, micro_batches = plan.window(
            lane_pass, pass_=pass_, lane=self._lane, window=number, before=before, measure=measure
        )
        assert tokens is not None
        assert augmented is not None
        read = Tokens(augmented.source, augmented.target, tokens.is_there, tokens.corrupt)
        return Window(lane_pass.num_windows, pairs, micro_batches, read, augmented)


def _only(pairs: Integers, plan: WindowPlan, wanted: NDArray[np.bool_]) -> tuple[Integers, WindowPlan]:
    """Some of a window's micro-batches, the others empty, and their pairs, each once, in ascending order."""
    counts = np.where(wanted, plan.bounds[:, 1] - plan.bounds[:, 0], 0)
    ends = np.cumsum(counts)
    rows = [plan.micro_batch(number) for number in np.flatnonzero(wanted).tolist()]
    stand = pairs[np.concatenate(rows)] if rows else np.empty(0, dtype=np.int64)
    needed, places = np.unique(stand, return_inverse=True)
    return needed, WindowPlan(places, np.stack([ends - counts, ends], axis=1))
