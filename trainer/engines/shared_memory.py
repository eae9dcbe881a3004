"""Collectives through shared memory, for ranks on the CPUs of one machine; gloo's go through sockets."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.ranks.messages import gathered

SLOT_BYTES = 8 << 20
"""Bytes that a rank passes on at a time; below 4 MiB, synchronising costs more than copying."""
TURNS = 2
"""Slots of each rank: one may still be read while the next is written."""


class SharedMemory:
    """Collectives of all ranks through memory that each can read and write.

    What one rank writes the others read after a barrier: an all-reduce of one number by the group's own backend, which
    notices a missing rank as in any collective. All ranks call the same methods in the same order.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self.num_ranks = dist.get_world_size()
        self._rank = dist.get_rank()
        self._others = [rank for rank in range(self.num_ranks) if rank != self._rank]
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(TURNS, self.num_ranks, SLOT_BYTES)
        self._turn = 0

    @classmethod
    def of_all_ranks(cls) -> Self | None:
        """The shared memory of the default group's ranks; None on all of them if they cannot share memory.

        It is in no file system and disappears with the last process that uses it, however that ends.
        """
        if len(set(gathered(_place()))) > 1:
            return None
        owner = dist.get_rank() == 0
        size = TURNS * dist.get_world_size() * SLOT_BYTES
        descriptor = _new_memory(size) if owner else None
        process, number = gathered((os.getpid(), descriptor))[0]
        if number is None:
            return None
        if not owner:
            descriptor = _open(Path(f"/proc/{process}/fd/{number}"))
        memory = None if descriptor is None else mmap.mmap(descriptor, size)
        everybody_has_it = all(gathered(memory is not None))
        if descriptor is not None:
            os.close(descriptor)
        return cls(memory) if memory is not None and everybody_has_it else None

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over the ranks, in place; the sums are bitwise equal on all ranks.

        Args:
            tensor: contiguous, the same size on all ranks.
        """
        for part in torch.split(tensor.view(-1), SLOT_BYTES // tensor.element_size()):
            shares = part.tensor_split(self.num_ranks)
            slots = [slot[: part.numel()].tensor_split(self.num_ranks) for slot in self._next_slots(part.dtype)]
            own = shares[self._rank]
            self._add_up(own, shares, slots)
            slots[self._rank][self._rank].copy_(own)
            self._meet()
            for rank in self._others:
                shares[rank].copy_(slots[rank][rank])

    def reduce_scatter(self, output: Tensor, tensor: Tensor) -> None:
        """Sum over the ranks; each gets its own part of the sums.

        Args:
            output: contiguous, for this rank's part; may be its part of `tensor`.
            tensor: contiguous; a part for each rank, one after the other.
        """
        self.reduce_parts(output, [*tensor.view(self.num_ranks, *output.shape)])

    def reduce_parts(self, output: Tensor, parts: Sequence[Tensor]) -> None:
        """Sum over the ranks; each gets its own part of the sums.

        Args:
            output: contiguous, for this rank's part; may be that part.
            parts: one for each rank, contiguous, of any sizes, but the same ones on all ranks.
        """
        if output.data_ptr() != parts[self._rank].data_ptr():
            output.copy_(parts[self._rank])
        flats = [part.view(-1) for part in parts]
        flats[self._rank] = output.view(-1)
        width = SLOT_BYTES // output.element_size() // max(1, sum(flat.numel() > 0 for flat in flats))
        for begin in range(0, max(flat.numel() for flat in flats), width):
            shares = [flat[begin : begin + width] for flat in flats]
            sizes = [share.numel() for share in shares]
            slots = [torch.split(slot[: sum(sizes)], sizes) for slot in self._next_slots(output.dtype)]
            self._add_up(shares[self._rank], shares, slots)

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        """Gather every rank's tensor, one after the other.

        Args:
            output: contiguous, with the elements of all ranks' tensors.
            tensor: contiguous, this rank's; may be its part of `output`.
        """
        width = SLOT_BYTES // tensor.element_size()
        parts = torch.split(output.view(self.num_ranks, -1), width, dim=1)
        for own, part in zip(torch.split(tensor.view(-1), width), parts, strict=True):
            slots = [slot[: own.numel()] for slot in self._next_slots(own.dtype)]
            slots[self._rank].copy_(own)
            if own.data_ptr() != part[self._rank].data_ptr():
                part[self._rank].copy_(own)
            self._meet()
            for rank in self._others:
                part[rank].copy_(slots[rank])

    def _add_up(self, own: Tensor, shares: Sequence[Tensor], slots: Sequence[Sequence[Tensor]]) -> None:
        """Add the other ranks' values to this rank's part, and pass on theirs."""
        for rank in self._others:
            slots[self._rank][rank].copy_(shares[rank])
        self._meet()
        for rank in self._others:
            own.add_(slots[rank][self._rank])

    def _next_slots(self, dtype: torch.dtype) -> Tensor:
        """The next slot of each rank.

        No rank still reads these slots: there was a barrier since, which the others reached only after reading them.
        """
        self._turn = (self._turn + 1) % TURNS
        return self._slots[self._turn].view(dtype)

    def _meet(self) -> None:
        dist.all_reduce(torch.zeros(1))


def _place() -> str:
    """Equal only for processes in the same PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot}, {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"rank {dist.get_rank()}, who cannot tell"


def _new_memory(size: int) -> int | None:
    """A descriptor of this many bytes of allocated memory; None if the machine has too little."""
    descriptor = os.memfd_create("zeromt")
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR)
    except OSError:  # ranks of different users, or a machine that hides processes from each other
        return None
