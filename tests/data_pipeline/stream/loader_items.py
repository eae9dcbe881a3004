"""Iterators that the tests of LoaderProcess run in its process, which imports this module: it stays light."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from configs import UserError
from configs.errors import ConfigError
from data_pipeline.prepared.index import DataError
from data_pipeline.stream.batch import MicroBatch

ERRORS: dict[str, BaseException] = {
    "user": UserError("stream.workers: -1; allowed is 0 or more"),
    "data": DataError("train-000003.tar: block 000003-000012 is cut short"),
    "config": ConfigError(["first: 1; allowed is 2", "second: 3; allowed is 4"]),
    "value": ValueError("bad luck"),
    "exit": SystemExit(3),
    "pipe": BrokenPipeError("of the iterator's own"),
}


def micro_batch(number: int) -> MicroBatch:
    """Of 0 to some 3 million bytes."""
    rows = 1 + number**3
    source, target_input, target_output = np.random.default_rng(number).integers(0, 1000, (3, rows, 20))
    return MicroBatch(
        lane=number,
        dataset=0,
        pair_ids=np.arange(rows) + number,
        source=source,
        target_input=target_input,
        target_output=target_output,
    )


def micro_batches() -> Iterator[dict[int, MicroBatch]]:
    for number in range(20):
        yield {number: micro_batch(number)}


def counted(path: Path, num_bytes: int = 0) -> Iterator[Any]:
    """Arrays; a file holds one byte for each that was begun."""
    while True:
        with path.open("ab") as file:
            file.write(b".")
        yield np.zeros(num_bytes, dtype=np.uint8)


def numbers() -> Iterator[int]:
    return itertools.count()


def busy() -> Iterator[int]:
    """Two items, and then one that never comes, with the GIL held as well as it can be."""
    yield 0
    yield 1
    while True:
        pass


def asleep() -> Iterator[int]:
    yield 0
    yield 1
    time.sleep(3600)


def fails(name: str) -> Iterator[int]:
    """Two items; a thread goes on."""
    yield 0
    yield 1
    threading.Thread(target=time.sleep, args=(3600,)).start()
    raise ERRORS[name]


def modules_of_a_loader() -> Iterator[list[str]]:
    """What a process that makes updates has imported."""
    import data_pipeline.stream.lanes  # noqa: F401

    yield [name for name in ("torch", "deepspeed", "webdataset", "pytest") if name in sys.modules]
    yield []
