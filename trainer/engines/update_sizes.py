"""How far an update moves the weights, beside how large they are: a rate that fits moves a part by about 0.001."""

import itertools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from trainer.engines.protocol import Engine

MOST_ELEMENTS = 1 << 20
"""Weights that are looked at, of all ranks together: of so many a norm is known to 0.2 %, in a few milliseconds."""

PARTS = ("embeddings", "encoder", "decoder", "output", "other")


def part_of(name: str) -> str:
    """The part that a parameter is shown with, by the module that it lies in."""
    first = name.split(".", 1)[0]
    return "embeddings" if first.endswith("_embedding") else first if first in PARTS else "other"


def stride_of(shape: Sequence[int], least: int) -> int:
    """The least stride through a matrix that comes by all its columns, for they are not alike; 1 of what is no matrix.

    With a stride of 8 through rows of 256 the embeddings' ratio was off by 0.9 %, with 9 by 0.2 %.
    """
    if len(shape) < 2:
        return 1
    return next(stride for stride in itertools.count(least) if math.gcd(stride, shape[-1]) == 1)


class UpdateSizes:
    """Takes the weights before a step and after it, and sums up the squares of both and of their difference, by part.

    Every rank looks at its own part of the fp32 weights. In a large model that is every k-th element of each matrix,
    the same at any ZeRO stage and number of ranks. Nothing waits for the device before `sums`.
    """

    def __init__(self, engine: Engine, *, most_elements: int = MOST_ELEMENTS) -> None:
        """Take the weights. To be made on all ranks alike, when gradients are complete.

        Args:
            engine: that holds them.
            most_elements: weights that are looked at.
        """
        self._engine = engine
        shapes = engine.parameter_shapes()
        stride = -(-sum(map(math.prod, shapes.values())) // most_elements)
        self._strides = {name: stride_of(shape, stride) for name, shape in shapes.items()}
        self._names: list[str] = []
        self._before = self._taken()
        self._sums: Tensor | None = None

    def compared(self) -> "UpdateSizes":
        """The step was made: take the weights again, and compare."""
        after = self._taken()
        moved = [a - b for a, b in zip(after, self._before, strict=True)]
        self._sums = torch.stack([_squares(moved), _squares(after)], dim=1) if after else torch.zeros(0, 2)
        self._before = []
        return self

    def sums(self) -> list[float]:
        """By part, in the order of PARTS: sums of squares of this rank's changes, then of its weights."""
        sums = torch.zeros(2, len(PARTS), dtype=torch.float64)
        if self._sums is not None:
            places = torch.tensor([PARTS.index(part_of(name)) for name in self._names], dtype=torch.int64)
            of_one = torch.tensor(
                [self._strides[name] for name in self._names], dtype=torch.float64
            )  # stands for so many
            sums.index_add_(1, places, self._sums.to("cpu", torch.float64).T * of_one)
        return sums.flatten().tolist()

    def _taken(self) -> list[Tensor]:
        self._names, taken = [], []
        with torch.no_grad():
            for name, start, values in self._engine.own_weights():
                stride = self._strides[name]
                chosen = values[-start % stride :: stride]
                if chosen.numel():
                    self._names.append(name)
                    taken.append(chosen.clone())
        return taken


def _squares(tensors: Sequence[Tensor]) -> Tensor:
    """(len(tensors),): the sum of squares of each."""
    return torch.stack([norm.to(torch.float32) for norm in torch._foreach_norm(list(tensors), 2)]).square()


def ratios(sums: Iterable[float]) -> dict[str, float]:
    """The L2 norm of each part's change over that of its weights.

    Args:
        sums: `UpdateSizes.sums`, over all ranks.
    """
    values = list(sums)
    both = zip(PARTS, values[: len(PARTS)], values[len(PARTS) :], strict=True)
    return {part: (moved / weights) ** 0.5 for part, moved, weights in both if weights > 0}
