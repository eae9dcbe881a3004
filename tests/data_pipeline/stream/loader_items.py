"""Iterators that the tests of ProcessPrefetch run in its process, which imports this module: it stays light."""

import dataclasses
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from configs import UserError
from configs.errors import ConfigError
from data_pipeline.errors import DataError
from data_pipeline.stream.batch import MicroBatch

ERRORS: dict[str, BaseException] = {
    "user": UserError("stream.workers: -1; allowed is 0 or more"),
    "data": DataError("train-000003.tar: block 000003-000012 is cut short"),
    "config": ConfigError(["first: 1; allowed is 2", "second: 3; allowed is 4"]),
    "stop": StopIteration(),
    "value": ValueError("bad luck"),
    "exit": SystemExit(3),
    "pipe": BrokenPipeError("of the iterator's own"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Nested:
    """An item with items inside."""

    batches: list[MicroBatch | None]
    extra: dict[str, Any]


def micro_batch(number: int, rows: int = 3, columns: int = 5) -> MicroBatch:
    arrays = np.random.default_rng(number).integers(0, 1000, (3, rows, columns))
    return MicroBatch(
        lane=number,
        dataset=0,
        pair_ids=np.arange(rows) + number,
        source=arrays[0].copy(),
        target_input=arrays[1].copy(),
        target_output=arrays[2].copy(),
    )


def mixed(num_items: int) -> Iterator[Any]:
    """Items of every shape, of 0 to some 40,000 bytes."""
    for number in range(num_items):
        generator = np.random.default_rng(number)
        read_only = generator.integers(0, 9, 100)
        read_only.flags.writeable = False
        yield [
            number,
            None,
            {"text": "é" * number, "empty": np.empty((0, 3)), "scalar": np.array(number)},
            Nested([micro_batch(number), None], {"cursor": (number, 2)}),
            np.asfortranarray(generator.random((4, 6))),
            generator.random((10, 12))[::3, ::2],
            generator.integers(0, 2**16, generator.integers(0, 20_000)).astype(np.uint16),
            read_only,
            np.arange(number, dtype=">i4"),
        ][number % 5 if number % 3 else 0 :: 1 + number % 2]


def numbers() -> Iterator[int]:
    return itertools.count()


def counted(path: Path, num_bytes: int = 0) -> Iterator[bytearray | np.ndarray[Any, np.dtype[np.uint8]]]:
    """Arrays; a file holds one byte for each that was begun."""
    while True:
        with path.open("ab") as file:
            file.write(b".")
        yield np.zeros(num_bytes, dtype=np.uint8)


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


def fails(name: str, good: int) -> Iterator[int]:
    return Failing(ERRORS[name], good)


class Failing(Iterator[int]):
    """Not a generator: those raise no StopIteration."""

    def __init__(self, error: BaseException, good: int) -> None:
        self._error = error
        self._numbers = iter(range(good))

    def __next__(self) -> int:
        for number in self._numbers:
            return number
        raise self._error


def never_made() -> Iterator[int]:
    raise DataError("index.json: is missing")


def unpicklable() -> Iterator[Any]:
    yield 0
    yield lambda: 0


def ends(code: int) -> Iterator[int]:
    yield 0
    os._exit(code)


def modules_of_a_loader() -> Iterator[list[str]]:
    """What a process that makes updates has imported."""
    import data_pipeline.stream.lane_stream  # noqa: F401

    yield [name for name in ("torch", "deepspeed", "webdataset", "pytest") if name in sys.modules]


class Unloadable:
    """Can be sent but not made again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> NoReturn:
    raise OSError("cannot be made again")


def unloadable() -> Iterator[Any]:
    yield 0
    yield Unloadable()


def leaves_a_thread() -> Iterator[int]:
    yield 0
    threading.Thread(target=time.sleep, args=(3600,)).start()
    raise DataError("block 000000-000000 is broken")
