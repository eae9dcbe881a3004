"""Sums of gradients in buckets: each rank has the sums of its parts, whatever its own backward pass does."""

import itertools
import math
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, distributed, nn

from tests.forked import Forked
from trainer.engines.deepspeed import reduction
from trainer.engines.deepspeed.reduction import Reduction
from trainer.engines.optimizer_states import decay_groups
from trainer.ranks.distributed import World

SHAPES = ((7, 5), (5,), (3,), (4, 4), (2, 3), (1,), (9, 2), (6,))
MICRO_BATCHES = 3
UPDATES = 4
MOST_ELEMENTS = {1: 8, 20: 5, 1000: 2}
"""Of a bucket of several parameters, and how many buckets there are then."""


def model_of(dtype: torch.dtype) -> nn.Module:
    return nn.ParameterList([nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES])


class Wire:
    """What is sent: the numbers of elements, and whether the backward pass was over."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bool]] = []
        self.is_over = False
        self._send = reduction._reduce_scatter

    def send(self, output: Tensor, whole: Tensor, **others: Any) -> Any:
        self.sent.append((whole.numel(), self.is_over))
        return self._send(output, whole, **others)


def reduce_with(world: World, dtype: torch.dtype, each: bool, most: int, wire: Wire) -> list[list[tuple[int, bool]]]:
    """Reduce gradients of which each rank lacks others; what was sent, update by update."""
    model = model_of(dtype)
    parameters = list(model.parameters())
    buckets = [group["params"] for group in decay_groups(model, 0.0, most)]
    parts = [-(-sum(p.numel() for p in bucket) // (2 * world.size)) * 2 for bucket in buckets]  # as DeepSpeed cuts
    in_place = dtype != torch.float32 and not each
    places = {p: n for n, p in enumerate(parameters)}
    reduction = Reduction(buckets, parts, places, each=each, in_place=in_place)
    draw, dice = torch.Generator().manual_seed(world.rank), random.Random(world.rank)
    sent = []
    for update in range(UPDATES):
        wire.sent.clear()
        expected = [torch.zeros(part * world.size) for part in parts]
        for slot in range(MICRO_BATCHES):
            is_dry = (update + world.rank) % 3 == 0 and slot == MICRO_BATCHES - 1
            used = [not is_dry and (update == 0 or dice.random() < 0.8) for _ in parameters]
            factors = [torch.randint(-8, 8, shape, generator=draw) for shape in SHAPES]
            for number, bucket in enumerate(buckets):
                of_all = zip(parameters, factors, used, strict=True)
                pieces = [(f * is_used).flatten() for p, f, is_used in of_all if any(p is one for one in bucket)]
                expected[number][: sum(map(len, pieces))] += torch.cat(pieces)
            reduction.begin(is_last=slot == MICRO_BATCHES - 1)
            wire.is_over = False
            order = list(zip(parameters, factors, used, strict=True))
            dice.shuffle(order)
            if any(used):
                torch.autograd.backward([(p * f.to(dtype)).sum() for p, f, is_used in order if is_used])
            wire.is_over = True
            reduction.end()
        for own, whole in zip(reduction.take(), expected, strict=True):
            distributed.all_reduce(whole)
            torch.testing.assert_close(own, whole.view(world.size, -1)[world.rank])
            own.fill_(math.nan)  # by the step
        sent.append(list(wire.sent))
    reduction.close()
    assert not any(p._post_accumulate_grad_hooks for p in parameters)
    return sent


def reduce_all(world: World) -> dict[tuple[bool, bool, int], list[list[tuple[int, bool]]]]:
    wire = Wire()
    with patch.object(reduction, "_reduce_scatter", wire.send):
        return {
            (is_half, each, most): reduce_with(world, torch.bfloat16 if is_half else torch.float32, each, most, wire)
            for is_half, each, most in itertools.product((False, True), (False, True), MOST_ELEMENTS)
        }


@pytest.mark.parametrize("number", [2, 3])
def test_sums_are_those_of_an_all_reduce(number: int, forked: Forked, tmp_path: Path) -> None:
    """With gradients that come in any order and that a rank lacks, as where it has no micro-batch."""
    by_rank = forked.ranks(number, reduce_all, cwd=tmp_path)
    for (is_half, each, most), first in by_rank[0].items():
        sizes = [[size for size, _ in sent] for sent in first]
        for other in by_rank[1:]:
            assert [[size for size, _ in sent] for sent in other[is_half, each, most]] == sizes, (
                "in one order on all ranks"
            )
        times = MICRO_BATCHES if each else 1
        assert {len(sent) for sent in sizes} == {times * MOST_ELEMENTS[most]}, "a collective for each bucket"
        # in the first update all parameters have gradients on all ranks but the one that is dry
        assert not any(is_over for _, is_over in by_rank[1][is_half, each, most][0])
        assert all(is_over for _, is_over in first[0][-len(sizes[0]) // times :]), "rank 0 is dry at last"
