"""The measurements of `planner`, each in its own process: opening, dealing, windows, resuming, shuffling.

Arguments and results are plain JSON. Seconds are of one call; files used before are in the page cache.
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
"""Number of windows that are timed."""
MAX_PAIRS_SHUFFLED = 2_000_000


class Clock:
    """A lap timer."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def nothing() -> dict[str, Any]:
    """The baseline: a process that only imports."""
    time.sleep(0.5)
    return {}


def scale(*, folder: str, num_lanes: int, lane: int) -> dict[str, Any]:
    """Seconds of a rank's work before its first micro-batch, and for each later window and pass."""
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
    """Plan a lane from the start; returns the positions of some updates and a digest of the pairs from each on.

    Updates beyond the end of the epoch are omitted.
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
    """Seconds of a rank's work to resume at a cursor, and a digest of the rest of the window."""
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
    """SHA-256 of the pairs of a window's micro-batches from a position on."""
    rest = [pairs[cut.micro_batch(number)] for number in range(position, len(cut))]
    return hashlib.sha256(b"".join(a.tobytes() for a in rest)).hexdigest()


def shuffling(*, folder: str, num_lanes: int, window_pairs: int, tokens: int) -> dict[str, Any]:
    """How far neighbours in a lane's stream are apart in the dataset, and the padding, over the lane's first windows.

    Returns:
        distance: mean distance between neighbours, divided by N / 3, its value after a full permutation.
        same_block: the fraction of neighbours from the same block; after a full permutation 1 / blocks.
        padding: the padding fraction of micro-batches of at most `tokens` padded tokens per side.
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
        if sum(map(len, ids)) >= MAX_PAIRS_SHUFFLED:
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
    """The fraction of empty micro-batches in an epoch over the dataset's first blocks.

    With more than 64 lanes, about 48 sampled lanes estimate the mean, and the 16 lanes with the most tokens give the
    longest.
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
