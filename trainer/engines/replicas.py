"""Checks that the replicas of the weights are equal on every rank."""

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22
"""Elements hashed at once: they take 100 MB of integers."""
_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64
"""An odd constant with well-mixed bits (SplitMix64's increment), as a signed integer."""


def digest(tensors: Iterable[Tensor]) -> int:
    """A 64-bit hash of the bits of all tensors in their order. One changed bit always changes it.

    It is the sum of every element times an odd number that depends on its place, modulo 2^64. An integer sum does not
    depend on the order, so it is the same on every device; the host waits for the device once.
    """
    total: Tensor | None = None
    place = 1
    for tensor in tensors:
        flat = tensor.detach().contiguous().flatten()
        flat = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
        for part in torch.split(flat, CHUNK_ELEMENTS):
            places = torch.arange(place, place + part.numel(), dtype=torch.int64, device=part.device)
            odd = places.mul_(_MULTIPLIER).bitwise_or_(1)
            value = odd.mul_(part).sum()
            total = value if total is None else total + value
            place += part.numel()
    return 0 if total is None else int(total.item())


def compare(digests: Sequence[int | None]) -> str | None:
    """What is wrong with the replicas; None if nothing is, or if there are no replicas (ZeRO-3).

    Args:
        digests: of every rank, by rank.
    """
    counts = Counter(digests)
    if len(counts) <= 1:
        return None
    most, number = counts.most_common(1)[0]
    if 2 * number <= len(digests):
        listed = ", ".join(f"rank {rank} has {_hex(d)}" for rank, d in enumerate(digests))
        return f"the replicas of the weights differ and no majority tells which is right: {listed}"
    others = [rank for rank, d in enumerate(digests) if d != most]
    names = ", ".join(map(str, others))
    return (
        f"the replicas of the weights differ: rank{'s' * (len(others) > 1)} {names} of {len(digests)} "
        f"{'have' if len(others) > 1 else 'has'} other weights than the majority"
    )


def _hex(number: int | None) -> str:
    return "none" if number is None else f"{number % 2**64:016x}"
