"""One rank's shard of a checkpoint: choosing its parameters, copying them to host memory, writing them.

A shard is written directly as the engine gathers parameters, or from a copy in host memory while training goes on. Both
write the same tensors in the same order, so the files are identical.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from trainer.checkpoint.format import FileRecord, divide, shard_name
from trainer.checkpoint.tensor_file import TensorFile
from trainer.engines.protocol import ParameterState
from trainer.ranks.device import is_host, wait

KINDS = ("model", "optimizer", "ema")
FLOAT_BYTES = 4

Shapes = Mapping[str, Sequence[int]]


class Shard:
    """Which parameters a rank writes, and how large they are."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        rank: int,
        world_size: int,
        count: Callable[[Mapping[str, int]], int],
        *,
        has_ema: bool,
    ) -> None:
        """Choose this rank's parameters.

        Args:
            sizes: number of elements of every parameter.
            rank: of this process.
            world_size: number of ranks.
            count: the number of elements saved for given parameters; see `num_elements`.
            has_ema: whether the weights' moving average is saved too.
        """
        self._names = frozenset(divide(sizes, world_size)[rank])
        self.file_names = {kind: shard_name(kind, rank, world_size) for kind in KINDS if has_ema or kind != "ema"}
        own = {name: sizes[name] for name in self._names}
        self.num_elements = count(own)

    def shapes(self, shapes: Shapes) -> dict[str, Sequence[int]]:
        """The shapes of the parameters that this rank writes."""
        return {name: shape for name, shape in shapes.items() if name in self._names}

    def of(self, parameters: Iterable[ParameterState]) -> Iterator[ParameterState]:
        """This rank's parameters; the iteration goes through all, since all ranks take part in gathering each."""
        return (p for p in parameters if p.name in self._names)


def num_elements(sizes: Mapping[str, int], *, moments: Mapping[str, Shapes], has_ema: bool) -> int:
    """Number of elements saved for some parameters: weights, optimizer state and moving average.

    Args:
        sizes: of the parameters, by name.
        moments: see `Engine.moments`.
        has_ema: whether there is an average.
    """
    kept = sum(math.prod(shape) for name in sizes for shape in moments[name].values())
    return (1 + has_ema) * sum(sizes.values()) + kept


def tensors_of(parameter: ParameterState) -> Iterator[tuple[str, str, Tensor]]:
    """Kind of file, name and fp32 tensor, in the order in which they are written."""
    yield "model", parameter.name, parameter.weight.to(torch.float32)
    if parameter.moments is not None:
        for key, moment in parameter.moments.items():
            yield "optimizer", f"{key}/{parameter.name}", moment.to(torch.float32)
    if parameter.ema is not None:
        yield "ema", parameter.name, parameter.ema.to(torch.float32)


class ShardFiles:
    """A rank's files, being written."""

    def __init__(
        self, folder: Path, shard: Shard, shapes: Mapping[str, Shapes], *, cancelled: threading.Event | None = None
    ) -> None:
        """Open them.

        Args:
            folder: to write in.
            shard: this rank's.
            shapes: by kind of file and name, in the order of writing.
            cancelled: see TensorFile.

        Raises:
            OSError: they cannot be written.
        """
        self._names = shard.file_names
        folder.mkdir(parents=True, exist_ok=True)  # rank 0 has, but this machine may remember that it was not there
        with ExitStack() as stack:
            self._files = {
                kind: stack.enter_context(TensorFile(folder / name, shapes[kind], cancelled=cancelled))
                for kind, name in self._names.items()
            }
            self._stack = stack.pop_all()

    def write(self, kind: str, name: str, tensor: Tensor) -> None:
        """Write the next tensor of a file; see TensorFile."""
        self._files[kind].write(name, tensor)

    def finish(self) -> dict[str, FileRecord]:
        """Fsync the files; their records for the manifest, by name."""
        return {self._names[kind]: file.finish() for kind, file in self._files.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._stack.close()


class HostCopy:
    """A rank's shard in host memory, allocated once and reused by every save.

    It is page-locked if there is a GPU, so that the copy runs at the bus's speed.
    """

    def __init__(self, num_elements: int, device: torch.device) -> None:
        """Allocate the memory.

        Raises:
            RuntimeError: there is too little.
        """
        self._device = device
        self._buffer = torch.empty(num_elements, dtype=torch.float32, pin_memory=not is_host(device))
        self._tensors: list[tuple[str, str, Tensor]] = []

    def fill(self, parameters: Iterable[ParameterState]) -> None:
        """Copy the current parameters."""
        self._tensors, used = [], 0
        for parameter in parameters:
            for kind, name, tensor in tensors_of(parameter):
                place = self._buffer[used : used + tensor.numel()].view(tensor.shape)
                place.copy_(tensor, non_blocking=True)
                self._tensors.append((kind, name, place))
                used += tensor.numel()
        wait(self._device)

    def write(self, folder: Path, shard: Shard, cancelled: threading.Event) -> dict[str, FileRecord]:
        """Write the files.

        Raises:
            OSError: they cannot be written.
            Cancelled: the save was given up.
        """
        shapes = {kind: {name: tensor.shape for k, name, tensor in self._tensors if k == kind} for kind in KINDS}
        with ShardFiles(folder, shard, shapes, cancelled=cancelled) as files:
            for kind, name, tensor in self._tensors:
                files.write(kind, name, tensor)
            return files.finish()


def write_while_gathering(
    folder: Path,
    shard: Shard,
    shapes: Shapes,
    parameters: Iterable[ParameterState],
    *,
    moments: Mapping[str, Shapes],
) -> tuple[dict[str, FileRecord], Exception | None]:
    """Write the files while parameters are gathered; returns their records, or the error.

    After a failure the gathering still goes on to its end, since all ranks take part in it.

    Args:
        folder: to write in.
        shard: this rank's.
        shapes: of all parameters, in the order in which they come.
        parameters: this rank's, as `Shard.of` gives them.
        moments: see `Engine.moments`.
    """
    problem: Exception | None = None
    with ExitStack() as stack:
        files: ShardFiles | None = None

        def opened(*, has_moments: bool, has_ema: bool) -> ShardFiles:
            own = shard.shapes(shapes)
            kept = {f"{key}/{n}": s for n in own for key, s in moments[n].items()} if has_moments else {}
            layout = {"model": own, "optimizer": kept, "ema": own if has_ema else {}}
            return stack.enter_context(ShardFiles(folder, shard, layout))

        for parameter in parameters:
            if problem is None:
                try:
                    has_moments, has_ema = parameter.moments is not None, parameter.ema is not None
                    files = files or opened(has_moments=has_moments, has_ema=has_ema)
                    for kind, name, tensor in tensors_of(parameter):
                        files.write(kind, name, tensor)
                except Exception as error:
                    problem = error
        try:
            return ({}, problem) if problem else ((files or opened(has_moments=False, has_ema=False)).finish(), None)
        except Exception as error:
            return {}, error
