"""Collectives through memory that the ranks of one machine share, against gloo's own."""

import itertools
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed

from tests.forked import Forked
from trainer.engines import shared_memory
from trainer.engines.shared_memory import SharedMemory
from trainer.ranks.distributed import World

SLOT_ELEMENTS = 24
"""Of fp32; small, so that a few hundred numbers take many parts."""


def compare_with_gloo(world: World) -> int:
    """As one of any number of ranks; how many sizes of how many types were compared."""
    shared_memory.SLOT_BYTES = 4 * SLOT_ELEMENTS
    memory = SharedMemory.of_all_ranks()
    assert memory is not None
    dice = torch.Generator().manual_seed(world.rank)
    num_compared = 0
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for size in (1, 7, SLOT_ELEMENTS, 5 * SLOT_ELEMENTS + 1, 300):
            own, whole = (torch.randint(-99, 99, (n,), generator=dice).to(dtype) for n in (size, size * world.size))
            check_all_reduce(memory, own)
            for is_in_place in (False, True):
                check_reduce_scatter(memory, whole, size, in_place=is_in_place)
                check_all_gather(memory, own, in_place=is_in_place)
                check_reduce_parts(memory, whole, in_place=is_in_place)
            num_compared += 1
    sums = 0.1 * torch.randn(1000, generator=dice)
    memory.all_reduce(sums)
    everybodys = world.gather(sums.tolist())
    assert all(sums.tolist() == others for others in everybodys), "not the same to the bit"
    check_refusals(world)
    return num_compared


def check_refusals(world: World) -> None:
    """Where one rank cannot share, none does."""
    is_last, open_ = world.rank == world.size - 1, shared_memory._open
    for name, refusal in {
        "_place": lambda: "another machine" if is_last else "this one",
        "_new_memory": lambda _: None,
        "_open": lambda path: None if is_last else open_(path),
    }.items():
        with mock.patch.object(shared_memory, name, refusal):
            assert SharedMemory.of_all_ranks() is None, name
    assert SharedMemory.of_all_ranks() is not None


def check_all_reduce(memory: SharedMemory, own: Tensor) -> None:
    expected, found = own.clone(), own.clone().view(1, -1)
    distributed.all_reduce(expected)
    memory.all_reduce(found)
    assert torch.equal(found, expected.view(1, -1)), (own.dtype, own.shape)


def check_reduce_scatter(memory: SharedMemory, whole: Tensor, size: int, *, in_place: bool) -> None:
    rank, total = distributed.get_rank(), whole.clone()
    distributed.all_reduce(total)
    given = whole.clone()
    own = slice(rank * size, (rank + 1) * size)
    found = given[own] if in_place else torch.full((size,), -1, dtype=whole.dtype)
    memory.reduce_scatter(found, given)
    assert torch.equal(found, total[own]), (whole.dtype, size, in_place)


def check_reduce_parts(memory: SharedMemory, whole: Tensor, *, in_place: bool) -> None:
    """Rank 0 has a third, the others all or nothing of what is left."""
    rank, total = distributed.get_rank(), whole.clone()
    distributed.all_reduce(total)
    for rest in range(1, memory.num_ranks):
        cuts = [whole.numel() // 3] + [2 * whole.numel()] * (rest - 1)
        ends = [0, *(min(cut, whole.numel()) for cut in cuts[:rest]), *[whole.numel()] * (memory.num_ranks - rest)]
        given = whole.clone()
        parts = [given[begin:end] for begin, end in itertools.pairwise(ends)]
        found = parts[rank] if in_place else torch.full_like(parts[rank], -1)
        memory.reduce_parts(found, parts)
        assert torch.equal(found, total[ends[rank] : ends[rank + 1]]), (whole.dtype, ends, in_place)


def check_all_gather(memory: SharedMemory, own: Tensor, *, in_place: bool) -> None:
    parts = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, own)
    found = torch.full((len(parts), own.numel()), -1, dtype=own.dtype)
    given = own
    if in_place:
        given = found[distributed.get_rank()]
        given.copy_(own)
    memory.all_gather(found, given)
    assert torch.equal(found, torch.stack(parts)), (own.dtype, own.shape, in_place)


@pytest.mark.parametrize("number", [2, 3])
def test_it_does_what_gloo_does(tmp_path: Path, number: int, forked: Forked) -> None:
    assert forked.ranks(number, compare_with_gloo, cwd=tmp_path) == [15] * number, "compared by each rank"
