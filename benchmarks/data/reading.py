"""Reads a prepared dataset with `StreamReader`. These functions run in child processes (see `child`)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs import StreamSection
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader

SEED = 1


def read_epochs(*, dataset: str, stream: dict[str, Any], seconds: float = 0) -> dict[str, Any]:
    """Read whole epochs on one rank: at least one epoch, and for at least `seconds`.

    A first epoch, in which the loader's processes start, is not counted.

    Args:
        dataset: a prepared folder.
        stream: fields of `StreamSection`.
        seconds: minimum time.
    """
    opened = Dataset.load(Path(dataset))
    reader = StreamReader([(opened, 1.0)], StreamSection(**stream), seed=SEED, rank=0, world_size=1)
    for _ in micro_batches(reader):
        pass
    pairs = padded = num_micro_batches = 0
    begin = time.monotonic()
    taken = -1.0
    while taken < seconds:
        reader.end_epoch()
        for micro_batch in micro_batches(reader):
            pairs += micro_batch.num_pairs
            padded += micro_batch.num_padded_source + micro_batch.num_padded_target
            num_micro_batches += 1
        taken = time.monotonic() - begin
    num_epochs = reader.epoch
    reader.close()
    assert pairs == num_epochs * opened.num_pairs, f"{pairs} pairs in {num_epochs} epochs of {opened.num_pairs}"
    tokens = opened.index.source_tokens + opened.index.target_tokens + 2 * opened.num_pairs  # EOS counts
    return {
        "seconds": taken,
        "tokens": num_epochs * tokens,
        "padded": padded,
        "micro_batches": num_micro_batches,
    }


def micro_batches(reader: StreamReader) -> Iterator[MicroBatch]:
    """The remaining micro-batches of a rank's epoch."""
    while update := [m for m in reader.next_update() if m is not None]:
        yield from update
