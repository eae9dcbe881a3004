"""The canonical stream of one rank: the same updates at any world size, from any point on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection, UserError
from data_pipeline.batch import MicroBatch
from data_pipeline.dataset import Dataset
from data_pipeline.lanes import BlockCache, Lane
from data_pipeline.prefetch import Prefetch
from data_pipeline.state import LaneCursor, StreamState
from data_pipeline.stream_plan import StreamPlan

__all__ = ["LaneCursor", "StreamReader", "StreamState"]

POSITION_SETTINGS = ("source_tokens", "target_tokens", "max_rows", "window_pairs", "length_multiple")


@dataclass(frozen=True, slots=True)
class _Fetched:
    micro_batches: list[MicroBatch | None] | None
    """Of an update; None where the epoch has no more for this rank."""
    cursors: dict[int, LaneCursor]


class StreamReader:
    """Hands out this rank's micro-batches, update after update.

    An update has K micro-batches, one of each lane; lane j belongs to rank j mod W. What a lane holds depends
    on the dataset, the section, the seed and the epoch alone.
    """

    def __init__(
        self,
        datasets: Sequence[tuple[Dataset, float]],
        section: StreamSection,
        *,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        """Plan the stream; nothing is read before the first update is asked for.

        Raises:
            UserError: there is not one dataset, or a pair fits no micro-batch and such pairs are refused.
        """
        assert 0 <= rank < world_size
        if len(datasets) != 1:
            raise UserError(f"stream.datasets: {len(datasets)} named; allowed is one (mixtures are not built yet)")
        self._dataset, _ = datasets[0]
        self._section = section
        self._seed = seed
        self._num_slots = -(-section.micro_batches // world_size)
        self._lanes = range(rank, section.micro_batches, world_size)
        self._plan = StreamPlan(self._dataset.lengths, *unit_bounds(self._dataset), section, seed=seed)
        self.num_dropped = _check_sizes(self._dataset, self._plan, section)
        """Pairs of the dataset that are left out of every epoch because no micro-batch can hold them."""
        self._cache = BlockCache(self._dataset)
        self.epoch = 0
        self.update = 0
        """Updates handed out within the epoch."""
        self._cursors = self._epoch_start(0)
        self._is_dry = False
        self._prefetch: Prefetch[_Fetched] | None = None

    def next_update(self) -> list[MicroBatch | None]:
        """This rank's micro-batches of the next update, ceil(K / W) of them.

        None stands where a lane is dry for this epoch or there is no such lane.

        Raises:
            DataError: a block that the update needs is broken.
        """
        micro_batches = None
        if not self._is_dry:
            fetched = self._fetch()
            micro_batches = fetched.micro_batches
            self._cursors = fetched.cursors
            self._is_dry = micro_batches is None
        self.update += 1
        return micro_batches if micro_batches is not None else [None] * self._num_slots

    def end_epoch(self) -> None:
        """Go on with the next epoch.

        To be called when no rank had a pair in the update just fetched; that update does not count.
        """
        if not self._is_dry:
            raise RuntimeError("end_epoch() was called while this rank's lanes still hold pairs")
        self.epoch += 1
        self.update = 0
        self._cursors = self._epoch_start(self.epoch)
        self._is_dry = False

    def state(self) -> StreamState:
        """Where the stream stands after what was handed out; this rank's lanes only."""
        return StreamState(
            epoch=self.epoch,
            update=self.update,
            lanes=dict(self._cursors),
            seed=self._seed,
            micro_batches=self._section.micro_batches,
            fingerprints=[self._dataset.fingerprint],
            settings=self._settings(),
        )

    def restore(self, state: StreamState) -> None:
        """Go on where a merged state of all ranks, of any world size, left off.

        Raises:
            UserError: the state is of another seed or dataset, or, within an epoch, of another K or other
                budgets.
        """
        _must_equal("seed", state.seed, self._seed, "the run's own")
        if state.fingerprints != [self._dataset.fingerprint]:
            raise UserError(
                f"stream.datasets: {self._dataset.folder} is not the dataset that the run was trained on: "
                f"fingerprint {self._dataset.fingerprint[:12]}; "
                f"allowed is {', '.join(f[:12] for f in state.fingerprints)}"
            )
        cursors = self._epoch_start(state.epoch)
        if state.update > 0:
            allowed = "that, until the epoch ends"
            _must_equal("stream.micro_batches", state.micro_batches, self._section.micro_batches, allowed)
            for name, value in self._settings().items():
                _must_equal(f"stream.{name}", state.settings.get(name, value), value, allowed)
            if missing := [lane for lane in self._lanes if lane not in state.lanes]:
                raise UserError(f"stream state: lane {missing[0]} is missing; allowed is a state merged of all ranks")
            cursors = {lane: state.lanes[lane] for lane in self._lanes}
        self.close()
        self.epoch, self.update, self._cursors, self._is_dry = state.epoch, state.update, cursors, False

    def close(self) -> None:
        """End the thread that reads ahead. The next update starts another."""
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def _epoch_start(self, epoch: int) -> dict[int, LaneCursor]:
        return {lane: LaneCursor(epoch, 0, 0) for lane in self._lanes}

    def _settings(self) -> dict[str, int]:
        return {name: int(getattr(self._section, name)) for name in POSITION_SETTINGS}

    def _fetch(self) -> _Fetched:
        if self._prefetch is None:
            self._prefetch = Prefetch(self._fetch_all(self.epoch, self._cursors), self._section.prefetch_updates)
        return self._prefetch.next()

    def _fetch_all(self, epoch: int, cursors: dict[int, LaneCursor]) -> Iterator[_Fetched]:
        """Updates without end; each epoch's are followed by a mark that the consumer waits at."""
        while True:
            lanes = {
                lane: Lane(self._dataset, self._cache, self._plan, lane, cursor) for lane, cursor in cursors.items()
            }
            micro_batches: list[MicroBatch | None] = [lane.next() for lane in lanes.values()]
            while any(m is not None for m in micro_batches):
                absent = [None] * (self._num_slots - len(lanes))
                yield _Fetched([*micro_batches, *absent], {n: lane.cursor for n, lane in lanes.items()})
                micro_batches = [lane.next() for lane in lanes.values()]
            yield _Fetched(None, {n: lane.cursor for n, lane in lanes.items()})
            epoch += 1
            cursors = self._epoch_start(epoch)


def unit_bounds(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs at which the dataset's blocks and shards begin, and its end."""
    blocks = np.append(dataset.blocks["first_pair"].astype(np.int64), dataset.num_pairs)
    shards = np.cumsum([0, *(shard.pairs for shard in dataset.index.shards)], dtype=np.int64)
    return blocks, shards


def _check_sizes(dataset: Dataset, plan: StreamPlan, section: StreamSection) -> int:
    """The number of pairs that fit no micro-batch.

    Raises:
        UserError: there are some and they are refused, or there is nothing else.
    """
    count, first = plan.oversized()
    if first is None:
        return 0
    padded = plan.budget.padded(dataset.lengths[first : first + 1])[0].tolist()
    side = "source" if padded[0] > section.source_tokens else "target"
    needed, budget = padded[side == "target"], getattr(section, f"{side}_tokens")
    what = f"stream.{side}_tokens: pair {first} of {dataset.folder} takes {needed} tokens, {needed} > {budget}"
    if section.on_oversized_pair == "error":
        others = f" ({count} such pairs)" if count > 1 else ""
        raise UserError(f"{what}{others}; allowed is {needed} or more, or stream.on_oversized_pair=drop")
    if count == dataset.num_pairs:
        raise UserError(f"{what}, and no other pair fits; allowed is a larger budget")
    return count


def _must_equal(name: str, was: int, is_: int, allowed: str) -> None:
    if was != is_:
        raise UserError(f"{name}: {is_} where the stream was begun with {was}; allowed is {allowed}")
