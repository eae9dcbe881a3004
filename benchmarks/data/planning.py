"""What `planner` measures, each function in a process of its own: opening, dealing, windows, resuming, shuffling.

Arguments and results are plain JSON. Seconds are of one call; files are in the page cache where they were used before.
"""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.stream_plan import StreamPlan
from data_pipeline.order.windows import WindowPlan
from data_pipeline.prepared.dataset import Dataset

Integers = NDArray[np.int64]

SEED = 1
SAMPLED_LANES = 64
WINDOWS = 4
"""That are timed."""
PAIRS_LOOKED_AT = 2_000_000


class Clock:
    """Seconds since it was last asked."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def nothing() -> dict[str, Any]:
    """What a process takes that only imports."""
    time.sleep(0.5)
    return {}


def scale(*, folder: str, num_lanes: int, lane: int) -> dict[str, Any]:
    """What a rank does before its first micro-batch, and for each window and pass after it."""
    clock = Clock()
    dataset = Dataset.load(Path(folder))
    opened = clock.lap()
    plan = _plan(dataset, num_lanes)
    oversized, _ = plan.oversized()
    planned = clock.lap()
    lane_pass = plan.lane(0, lane)
    dealt = clock.lap()
    plan.window(lane_pass, pass_=0, lane=lane, window=0, before=0)
    first_window = clock.lap()
    windows, pairs, before = [], [], 0
    for number in range(min(WINDOWS, lane_pass.num_windows)):
        rows, cut = plan.window(lane_pass, pass_=0, lane=lane, window=number, before=before)
        windows.append(clock.lap())
        pairs.append(len(rows))
        before += len(cut)
    plan.lane(1, lane)
    return {
        "lanes": num_lanes,
        "units": plan.num_units,
        "oversized": oversized,
        "open": opened,
        "plan": planned,
        "deal": dealt,
        "first_window": first_window,
        "window": float(np.median(windows)),
        "window_pairs": float(np.mean(pairs)),
        "windows_a_lane": lane_pass.num_windows,
        "next_pass": clock.lap(),
    }


def walk(*, folder: str, num_lanes: int, lane: int, updates: Sequence[int]) -> dict[str, Any]:
    """Plan a lane from its beginning on: where some updates stand, and a digest of their pairs.

    Updates that the epoch does not have are left out.
    """
    plan = _plan(Dataset.load(Path(folder)), num_lanes)
    lane_pass = plan.lane(0, lane)
    left, first, places = sorted(updates), 0, []
    for window in range(lane_pass.num_windows):
        pairs, cut = plan.window(lane_pass, pass_=0, lane=lane, window=window, before=first)
        while left and left[0] < first + len(cut):
            update = left.pop(0)
            position = update - first
            digest = _digest(pairs, cut, position)
            where = {"window": window, "position": position, "before": first}
            places.append({"update": update, **where, "digest": digest})
        first += len(cut)
        if not left:
            break
    return {"places": places}


def resume(*, folder: str, num_lanes: int, lane: int, window: int, position: int, before: int) -> dict[str, Any]:
    """What a rank does to go on at a cursor, and a digest of the rest of the window."""
    clock, processor = Clock(), time.process_time()
    dataset = Dataset.load(Path(folder))
    opened = clock.lap()
    plan = _plan(dataset, num_lanes)
    plan.oversized()
    lane_pass = plan.lane(0, lane)
    dealt = clock.lap()
    pairs, cut = plan.window(lane_pass, pass_=0, lane=lane, window=window, before=before)
    planned, busy = clock.lap(), time.process_time() - processor
    digest = _digest(pairs, cut, position)
    return {"open": opened, "deal": dealt, "window": planned, "processor": busy, "digest": digest}


def _digest(pairs: Integers, cut: WindowPlan, position: int) -> str:
    """Of the pairs of a window's micro-batches from a position on."""
    rest = [pairs[cut.micro_batch(number)] for number in range(position, len(cut))]
    return hashlib.sha256(b"".join(a.tobytes() for a in rest)).hexdigest()


def shuffling(*, folder: str, num_lanes: int, window_pairs: int, tokens: int) -> dict[str, Any]:
    """How far apart in the dataset neighbours of a lane's stream stand, and the padding, over its first windows.

    Returns:
        distance: the mean distance between neighbours' rows, over N / 3, what it is after a full permutation.
        same_block: the fraction of neighbours out of one block. A full permutation has one over the number of blocks.
        padding: 1 - tokens / places of micro-batches of at most `tokens` places a side.
    """
    dataset = Dataset.load(Path(folder))
    plan = _plan(dataset, num_lanes, window_pairs=window_pairs, source_tokens=tokens, target_tokens=tokens)
    lane_pass = plan.lane(0, 0)
    firsts = dataset.blocks["first_pair"].astype(np.int64)
    clock, seconds = Clock(), 0.0
    ids, places, real, before = [], 0, 0, 0
    for number in range(lane_pass.num_windows):
        clock.lap()
        pairs, cut = plan.window(lane_pass, pass_=0, lane=0, window=number, before=before)
        seconds += clock.lap()
        before += len(cut)
        for micro_batch in range(len(cut)):
            ids.append(pairs[cut.micro_batch(micro_batch)])
            lengths = dataset.lengths[ids[-1]].astype(np.int64) + 1
            places += len(lengths) * int(lengths.max(axis=0).sum())
            real += int(lengths.sum())
        if sum(map(len, ids)) >= PAIRS_LOOKED_AT:
            break
    stream = np.concatenate(ids)
    blocks = np.searchsorted(firsts, stream, side="right")
    return {
        "window_pairs": window_pairs,
        "units": plan.num_units,
        "distance": float(np.abs(np.diff(stream)).mean() / (dataset.num_pairs / 3)),
        "same_block": float((np.diff(blocks) == 0).mean()),
        "padding": 1 - real / places,
        "seconds_a_million": seconds / len(stream) * 1e6,
    }


def balance(*, folder: str, num_lanes: int, blocks_a_lane: float) -> dict[str, Any]:
    """The fraction of empty micro-batches in an epoch of the dataset's first blocks.

    Of more than 64 lanes, 48 tell the mean and the 16 that have most tokens the longest.
    """
    dataset = Dataset.load(Path(folder))
    blocks = dataset.blocks[: round(num_lanes * blocks_a_lane)]
    pairs = int(blocks["pairs"].sum())
    plan = StreamPlan(dataset.lengths[:pairs], blocks, StreamSection(micro_batches=num_lanes), seed=SEED)
    lanes = list(range(num_lanes))
    heavy: list[int] = []
    if num_lanes > SAMPLED_LANES and plan.num_units == len(blocks):
        tokens = (blocks["source_tokens"] + blocks["target_tokens"]).astype(np.int64)
        load = [int(tokens[plan.lane(0, lane).units].sum()) for lane in lanes]
        heavy = np.argsort(load)[-SAMPLED_LANES // 4 :].tolist()
    step = max(1, num_lanes * 4 // (SAMPLED_LANES * 3))
    sample = lanes if num_lanes <= SAMPLED_LANES else lanes[::step]
    counts = {lane: sum(1 for _ in plan.micro_batches(0, lane)) for lane in {*sample, *heavy}}
    mean = float(np.mean([counts[lane] for lane in sample]))
    return {
        "lanes": num_lanes,
        "blocks": len(blocks),
        "by_blocks": plan.num_units == len(blocks),
        "updates": max(counts.values()),
        "empty": 1 - mean / max(counts.values()),
        "lanes_looked_at": len(counts),
    }


def _plan(dataset: Dataset, num_lanes: int, **settings: int) -> StreamPlan:
    section = dataclasses.replace(StreamSection(micro_batches=num_lanes), **settings)  # type: ignore[arg-type]
    return StreamPlan.of(dataset, section, seed=SEED)
