"""Finds the cause of a loss spike: the dataset, and its blocks, without which the update's loss is normal.

It is found by bisection over forks.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.process.text import visible
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from trainer.datasets import dataset_names
from trainer.ranks.distributed import World
from zeromt.inspecting.forks import Forking, Leaves, train_fork
from zeromt.inspecting.found import open_stream, updates_from

T = TypeVar("T")

FRACTION = 0.5
"""The search goes on within a half only if leaving it out removes at least this fraction of the excess loss."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Blamed(Generic[T]):
    """The result of a bisection."""

    parts: Sequence[T]
    """The candidates that remain."""
    loss: float
    """The loss without them; the control's if nothing was narrowed down."""
    num_replays: int


def most_replays(count: int) -> int:
    """Most replays that a bisection among this many candidates takes."""
    return 1 if count == 1 else 2 * math.ceil(math.log2(count))


def bisect(
    candidates: Sequence[T], loss_without: Callable[[Sequence[T]], float], *, control: float, usual: float
) -> Blamed[T]:
    """Halve the candidates until one is left, or until omitting neither half removes half of the excess loss.

    Each step omits each half in turn, and continues with the half whose omission gives the lower loss. This finds a
    single cause; if there are several causes in different halves, those that together explain half of the excess stay
    together.

    Args:
        candidates: parts of the data, related ones next to each other.
        loss_without: the loss of the update in a fork without some of them; NaN if nothing of the update remains, in
            which case the other half is preferred.
        control: the loss in a fork without omissions.
        usual: what the loss should be.
    """
    enough = control - FRACTION * (control - usual)
    parts, loss, num_replays = list(candidates), control, 0
    while len(parts) > 1 or num_replays == 0:
        middle = (len(parts) + 1) // 2
        halves = [half for half in (parts[:middle], parts[middle:]) if half]
        losses = [loss_without(half) for half in halves]
        num_replays += len(halves)
        known = [enough if math.isnan(value) else value for value in losses]
        best = known.index(min(known))
        if known[best] > enough:
            break
        parts, loss = halves[best], losses[best]
        if len(halves) == 1:
            break
    return Blamed(parts=parts, loss=loss, num_replays=num_replays)


MOST_NAMED = 12

Integers = NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class Data:
    """The data of the updates from a checkpoint to the one in question."""

    datasets: Mapping[str, Dataset]
    """Datasets by name, in the order of the mixture."""
    numbers: Collection[int]
    """Numbers of the datasets that have pairs in these updates."""
    pairs: Integers
    """Ids of all pairs, in ascending order."""

    @property
    def first_blocks(self) -> list[int]:
        """(datasets + 1,): the number of each dataset's first block, counting blocks over all datasets."""
        return list(itertools.accumulate((len(dataset.blocks) for dataset in self.datasets.values()), initial=0))

    def blocks_of(self, pairs: Integers) -> Integers:
        """The block of each pair, counting blocks over all datasets."""
        first_ids, first = [], 0
        for dataset in self.datasets.values():
            first_ids.append(dataset.blocks["first_pair"].astype(np.int64) + first)
            first += dataset.num_pairs
        return np.searchsorted(np.concatenate(first_ids), pairs, side="right") - 1


def read_data(forking: Forking, update: int) -> Data:
    """Read the data of the updates from the beginning of a fork to the one in question."""
    reader = open_stream(forking.standing)
    pairs, numbers = [], set()
    try:
        for _, (_, _, micro_batches) in zip(
            range(update - forking.step), updates_from(reader, forking.standing), strict=False
        ):
            pairs += [m.pair_ids for m in micro_batches]
            numbers |= {m.dataset for m in micro_batches}
    finally:
        reader.close()
    return Data(
        datasets=dataset_names(reader.datasets), numbers=sorted(numbers), pairs=np.unique(np.concatenate(pairs))
    )


class _Replays:
    """Runs forks, prints a line for each, and counts them."""

    def __init__(self, forking: Forking, world: World, update: int) -> None:
        self._forking, self._world, self._update = forking, world, update
        self.count = 0

    def loss(self, leaves: Leaves | None, what: str) -> float:
        """The loss of the update in a fork; NaN if nothing of it remains or it is not reached."""
        by_update = train_fork(self._forking, self._world, self._update - self._forking.step, leaves)
        self.count += 1
        loss = by_update[self._update].loss if self._update in by_update else math.nan
        print(f"replay {self.count}\t{'nothing remains' if math.isnan(loss) else f'{loss:.4f}'}\t{what}", flush=True)
        return loss


@dataclass(kw_only=True, slots=True, frozen=True)
class Usual:
    """The losses before an update."""

    median: float
    count: int

    def check(self, update: int, loss: float) -> None:
        """Refuse to look for the cause of a loss that is none.

        Raises:
            UserError: the update's loss is not above the usual loss.
        """
        if not loss > self.median:
            raise UserError(
                f"--blame: the loss of update {update} is {loss:.4f}, and {self.median:.4f} the median of the "
                f"{self.count} before it; allowed is an update whose loss is above"
            )


def usual_loss(update: int, losses: Mapping[int, float]) -> Usual:
    """What is usual before an update, by the losses that the run has recorded; of the update too, if that is kept.

    Raises:
        UserError: none is kept, or the update's own is not above them.
    """
    before = [loss for step, loss in losses.items() if step < update and math.isfinite(loss)]
    if not before:
        raise UserError(f"--blame: no loss of an update before {update} is kept, to say what is usual")
    usual = Usual(median=statistics.median(before), count=len(before))
    if math.isfinite(own := losses.get(update, math.nan)):
        usual.check(update, own)
    return usual


def find_cause(forking: Forking, world: World, data: Data, update: int, before: Usual) -> None:
    """Search for the cause, printing every step.

    Args:
        forking: where the replays begin.
        world: of one rank.
        data: of the updates to replay.
        update: the one whose loss is too high.
        before: what is usual.

    Raises:
        UserError: its loss is not above the usual loss.
    """
    usual = before.median
    print(f"# every replay is of updates {forking.step + 1} to {update}, from {forking.checkpoint.folder.name}")
    replays = _Replays(forking, world, update)
    control = replays.loss(None, "with nothing left out")
    before.check(update, control)
    print(f"# usual is {usual:.4f}, the median of the {before.count} before it: an excess of {control - usual:.4f}")
    print(f"# stopping rule: halve what is left out, until one is left or neither half takes {FRACTION:.0%} of it away")
    names = [visible(name) for name in data.datasets]
    datasets = list(data.numbers)
    if len(datasets) > 1:
        blamed = _narrow(replays, "dataset", datasets, _of_datasets, names.__getitem__, control=control, usual=usual)
        datasets = list(blamed.parts)
    bounds = data.first_blocks
    number = datasets[0]
    blocks = [b for b in np.unique(data.blocks_of(data.pairs)).tolist() if bounds[number] <= b < bounds[number + 1]]
    if len(datasets) == 1 and len(blocks) > 1:

        def name(block: int) -> str:
            return f"block {block - bounds[number]} of {names[number]}"

        def of_blocks(some: Sequence[int]) -> Leaves:
            return lambda m: np.isin(data.blocks_of(m.pair_ids), some)

        _narrow(replays, "block", blocks, of_blocks, name, control=control, usual=usual)
    print(f"# {replays.count} replays in all")


def _of_datasets(some: Sequence[int]) -> Leaves:
    def leaves(micro_batch: MicroBatch) -> NDArray[np.bool_]:
        return np.full(micro_batch.num_pairs, micro_batch.dataset in some)

    return leaves


def _narrow(
    replays: _Replays,
    what: str,
    candidates: Sequence[int],
    leaves: Callable[[Sequence[int]], Leaves],
    name: Callable[[int], str],
    *,
    control: float,
    usual: float,
) -> Blamed[int]:
    """Bisect, and print the result."""
    print(f"# {len(candidates)} {what}s: at most {most_replays(len(candidates))} replays")

    def loss_without(some: Sequence[int]) -> float:
        return replays.loss(leaves(some), f"without {_named(some, name)}")

    blamed = bisect(candidates, loss_without, control=control, usual=usual)
    if len(blamed.parts) == len(candidates):
        print(f"behind it: no {what} by itself, nor one half of the {len(candidates)}")
    else:
        loss = "nothing of the update remains" if math.isnan(blamed.loss) else f"the loss is {blamed.loss:.4f}"
        print(f"behind it: {_named(blamed.parts, name)}: without, {loss}")
    return blamed


def _named(some: Sequence[int], name: Callable[[int], str]) -> str:
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return ", ".join(map(name, some[:MOST_NAMED])) + more
