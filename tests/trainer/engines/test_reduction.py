"""Sums of gradients in buckets: each rank has the averages of its partition, whatever its own backward pass does."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed import comm
from torch import Tensor, distributed, nn

from tests.forked import Forked
from trainer.engines.deepspeed import patches
from trainer.engines.deepspeed.reduction import Reduction, buckets_of
from trainer.ranks.distributed import World

SHAPES = ((7, 5), (5,), (3,), (4, 4), (2, 3), (1,), (9, 2), (6,))
MICRO_BATCHES = 3
UPDATES = 4
MOST_ELEMENTS = (1, 20, 1000)


def groups_of(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Matrices and vectors."""
    return [[p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim == 1]]


def partition_of(group: list[nn.Parameter], num_ranks: int) -> int:
    """As DeepSpeed cuts a group: filled up to a multiple of twice the ranks."""
    return -(-sum(p.numel() for p in group) // (2 * num_ranks)) * 2


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("most", MOST_ELEMENTS)
def test_buckets_cover_the_groups(num_ranks: int, most: int) -> None:
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    groups = groups_of(parameters)
    sizes = [partition_of(group, num_ranks) for group in groups]
    places = {p: n for n, p in enumerate(parameters)}
    buckets = buckets_of(groups, sizes, places, num_ranks=num_ranks, most_elements=most)
    lowest = [min(places[p] for p in bucket.parameters) for bucket in buckets]
    assert lowest == sorted(lowest, reverse=True), "the end of the model comes first"
    for number, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        of_group = sorted((b for b in buckets if b.group == number), key=lambda b: b.begin)
        assert [id(p) for b in of_group for p in b.parameters] == [id(p) for p in group]
        assert [b.begin for b in of_group] == [0, *(b.end for b in of_group[:-1])]
        assert of_group[-1].end == sum(p.numel() for p in group)
        for bucket in of_group:
            assert sum(bucket.parts) == sum(p.numel() for p in bucket.parameters)
            assert len(bucket.parameters) == 1 or sum(bucket.parts) <= most
            owners = [place // size for place in range(bucket.begin, bucket.end)]
            assert bucket.parts == [owners.count(rank) for rank in range(num_ranks)]


class Wire:
    """What is sent: the numbers of elements, and whether the backward pass was over."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bool]] = []
        self.is_over = False
        send = comm.reduce_scatter

        def counted(output: Tensor, parts: list[Tensor], **others: Any) -> Any:
            self.sent.append((sum(part.numel() for part in parts), self.is_over))
            return send(output, parts, **others)

        vars(comm)["reduce_scatter"] = counted


def reduce_with(world: World, dtype: torch.dtype, each: bool, most: int, wire: Wire) -> list[list[tuple[int, bool]]]:
    """Reduce gradients of which each rank lacks others; what was sent, update by update."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    groups = groups_of(parameters)
    sizes = [partition_of(group, world.size) for group in groups]
    flats = [] if each or dtype == torch.float32 else [torch.zeros(size * world.size) for size in sizes]
    buckets = buckets_of(
        groups, sizes, {p: n for n, p in enumerate(parameters)}, num_ranks=world.size, most_elements=most
    )
    group = distributed.group.WORLD
    reduction = Reduction(buckets, group, each=each, partitions=sizes, flats=flats)
    draw, dice = torch.Generator().manual_seed(world.rank), random.Random(world.rank)
    found = []
    for update in range(UPDATES):
        wire.sent.clear()
        expected = [torch.zeros(size * world.size) for size in sizes]
        for slot in range(MICRO_BATCHES):
            is_dry = (update + world.rank) % 3 == 0 and slot == MICRO_BATCHES - 1
            used = [not is_dry and (update == 0 or dice.random() < 0.8) for _ in parameters]
            factors = [torch.randint(-8, 8, shape, generator=draw) for shape in SHAPES]
            for number, of_group in enumerate(groups):
                ids = {id(p) for p in of_group}
                of_all = zip(parameters, factors, used, strict=True)
                pieces = [(factor * is_used).flatten() for p, factor, is_used in of_all if id(p) in ids]
                expected[number][: sum(map(len, pieces))] += torch.cat(pieces)
            reduction.begin(is_last=slot == MICRO_BATCHES - 1)
            wire.is_over = False
            order = list(zip(parameters, factors, used, strict=True))
            dice.shuffle(order)
            if any(used):
                torch.autograd.backward([(p * f.to(dtype)).sum() for p, f, is_used in order if is_used])
            wire.is_over = True
            reduction.end()
        sums = reduction.take() or [flat.view(world.size, -1)[world.rank] for flat in flats]
        for own, whole in zip(sums, expected, strict=True):
            distributed.all_reduce(whole)
            torch.testing.assert_close(own, whole.view(world.size, -1)[world.rank] / world.size)
            own.fill_(math.nan)  # by the step
        for flat in flats:
            flat.zero_()
        found.append(list(wire.sent))
    reduction.close()
    assert not any(p._post_accumulate_grad_hooks for p in parameters)
    return found


def reduce_all(world: World) -> dict[tuple[bool, bool, int], list[list[tuple[int, bool]]]]:
    patches.KEEP_OUT_SHARED_MEMORY_OP.apply(deepspeed.ops.__compatible_ops__)
    comm.init_distributed("gloo", dist_init_required=False)
    wire = Wire()
    return {
        (is_half, each, most): reduce_with(world, torch.bfloat16 if is_half else torch.float32, each, most, wire)
        for is_half, each, most in itertools.product((False, True), (False, True), MOST_ELEMENTS)
    }


@pytest.mark.parametrize("number", [2, 3])
def test_averages_are_those_of_an_all_reduce(number: int, forked: Forked, tmp_path: Path) -> None:
    """With gradients that come in any order and that a rank lacks, as where it has no micro-batch."""
    by_rank = forked.ranks(number, reduce_all, cwd=tmp_path)
    for (is_half, each, most), first in by_rank[0].items():
        sizes = [[size for size, _ in sent] for sent in first]
        for other in by_rank[1:]:
            assert [[size for size, _ in sent] for sent in other[is_half, each, most]] == sizes, (
                "in one order on all ranks"
            )
        times = MICRO_BATCHES if each else 1
        assert all(len(sent) == len(sizes[0]) for sent in sizes)
        assert len(sizes[0]) == times * {1: len(SHAPES), 20: 5, 1000: 2}[most]
        # in the first update all parameters have gradients on all ranks but the one that is dry
        assert not any(is_over for _, is_over in by_rank[1][is_half, each, most][0])
        assert all(is_over for _, is_over in first[0][-len(sizes[0]) // times :]), "rank 0 is dry at last"
