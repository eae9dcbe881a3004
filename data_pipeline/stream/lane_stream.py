"""The updates of some lanes, in this process or in one of their own."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from configs import StreamSection
from data_pipeline.errors import DataError
from data_pipeline.order.mixture import Mixture
from data_pipeline.order.state import LaneCursor
from data_pipeline.order.stream_plan import StreamPlan
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augmentation.augmenter import make_augmenters
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.lane_windows import GroupWindows, Source
from data_pipeline.stream.lanes import Lane
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.window_tokens import BLOCKS_AT_ONCE, CACHE_BYTES, BlockCache, CorruptBlocks

LEAST_WINDOW_PAIRS = 16_384
"""Minimum for a dataset in a mixture, whatever its proportion."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An update of some lanes."""

    micro_batches: dict[int, MicroBatch] | None
    """By lane, those that are not dry; None where all of them are dry for this epoch."""
    cursors: dict[int, tuple[LaneCursor, ...]]
    """By lane, after this update."""
    corrupt: dict[tuple[int, int], str]
    """What is wrong with the blocks skipped so far, by numbers of dataset and block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStreamSpec:
    """What another process needs to make the updates of some lanes: `lane_updates`."""

    locations: tuple[str, ...]
    """Where the datasets are."""
    fingerprints: tuple[str, ...]
    numbers: tuple[int, ...]
    """Numbers of the datasets among all of the run."""
    first_ids: tuple[int, ...]
    """The id of each dataset's first pair."""
    section: StreamSection
    mixture: Mixture
    seed: int
    epoch: int
    update: int
    """The next one within the epoch."""
    cursors: dict[int, tuple[LaneCursor, ...]]
    """By lane, where to go on."""


def make_plans(datasets: Sequence[Dataset], section: StreamSection, mixture: Mixture, *, seed: int) -> list[StreamPlan]:
    """The plan of each dataset.

    In a mixture the pairs of `section.window_pairs` are divided among the datasets as those of an update are, so that
    memory does not grow with their number; each has at least 16,384, or a block, that its batches are not padded more.
    """
    if mixture.is_single:
        return [StreamPlan.of(datasets[0], section, seed=seed)]
    plans = []
    for number, dataset in enumerate(datasets):
        least = max(LEAST_WINDOW_PAIRS, int(dataset.blocks["pairs"].max()))
        window_pairs = min(section.window_pairs, max(least, mixture.part(section.window_pairs, number)))
        own = dataclasses.replace(section, window_pairs=window_pairs)
        place = {"number": number, "num_datasets": len(datasets), "lane_pairs": mixture.lane_pairs}
        plans.append(StreamPlan.of(dataset, own, seed=seed, **place))
    return plans


def lane_updates(spec: LaneStreamSpec) -> Iterator[Fetched]:
    """Open the datasets and make updates without end: what a loader process runs.

    Raises:
        UserError: a dataset is not what it was in the process that wrote the spec.
        DataError: as `updates`.
    """
    datasets = [Dataset.load(location, spec.section) for location in spec.locations]
    for dataset, fingerprint in zip(datasets, spec.fingerprints, strict=True):
        if dataset.fingerprint != fingerprint:
            raise DataError(f"{dataset.location}: was replaced while it was read; start again")
    yield from updates(datasets, make_plans(datasets, spec.section, spec.mixture, seed=spec.seed), spec)


def updates(datasets: Sequence[Dataset], plans: Sequence[StreamPlan], spec: LaneStreamSpec) -> Iterator[Fetched]:
    """Updates without end; each epoch's are followed by a mark that the consumer waits at.

    Raises:
        DataError: more blocks are corrupt than `stream.max_corrupt_blocks`.
    """
    section = spec.section
    background = Background() if section.prefetch_updates or section.workers else None
    fetching = Background(BLOCKS_AT_ONCE) if any("://" in dataset.location for dataset in datasets) else None
    try:
        corrupt = CorruptBlocks(section.max_corrupt_blocks)
        sources = []
        augmenters = make_augmenters(datasets, section, seed=spec.seed)
        places = zip(spec.numbers, spec.first_ids, strict=True)
        for (number, first_id), dataset, plan, augmenter in zip(places, datasets, plans, augmenters, strict=True):
            # Blocks and shards belong to one lane and one window, which reads them once.
            cache = BlockCache(dataset, max_bytes=CACHE_BYTES if plan.deals_pairs else 0, background=fetching)
            sources.append(Source(number=number, first_id=first_id, plan=plan, cache=cache, augmenter=augmenter))
        windows = [_group_windows(source, list(spec.cursors), corrupt, background) for source in sources]
        lanes = {
            number: Lane(
                spec.mixture,
                [of_lane[number] for of_lane in windows],
                number,
                cursors,
                epoch=spec.epoch,
                update=spec.update,
            )
            for number, cursors in spec.cursors.items()
        }
        while True:
            micro_batches: dict[int, MicroBatch] | None = {}
            while micro_batches is not None:
                coming = {number: lane.next() for number, lane in lanes.items()}
                micro_batches = {n: m for n, m in coming.items() if m is not None} or None
                yield Fetched(micro_batches, {n: lane.cursors for n, lane in lanes.items()}, dict(corrupt.messages))
            for lane in lanes.values():
                lane.next_epoch()
    finally:
        for threads in (fetching, background):  # what waits for blocks need not
            if threads is not None:
                threads.close()


def _group_windows(
    source: Source, lanes: Sequence[int], corrupt: CorruptBlocks, background: Background | None
) -> dict[int, GroupWindows]:
    """Those of a dataset by lane, the same for all lanes of a group."""
    groups: dict[int, list[int]] = {}
    for lane in lanes:
        groups.setdefault(source.plan.sharing.group(lane), []).append(lane)
    made = [(members, GroupWindows(source, members, corrupt, background)) for members in groups.values()]
    return {lane: windows for members, windows in made for lane in members}
