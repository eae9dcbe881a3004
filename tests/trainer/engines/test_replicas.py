"""Hashes of the weights: every bit counts, and the rank that differs is named."""

import random

import pytest
import torch

from trainer.engines import replicas


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    shapes: list[tuple[int, ...]] = [(7, 5), (), (11,), (3, 4, 2), (0, 3)]
    return [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_bit_counts(dtype: torch.dtype) -> None:
    original = replicas.digest(tensors(dtype))
    assert replicas.digest(tensors(dtype)) == original
    assert -(2**63) <= original < 2**63
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    draw = random.Random(2)
    for _ in range(300):
        changed = tensors(dtype)
        tensor = draw.choice([t for t in changed if t.numel()])
        bits = tensor.reshape(-1).view(integers[tensor.element_size()])
        bits[draw.randrange(len(bits))] ^= 1 << draw.randrange(8 * tensor.element_size() - 1)
        assert replicas.digest(changed) != original


def test_the_order_counts() -> None:
    first = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    assert replicas.digest(first) != replicas.digest(first[::-1])
    assert replicas.digest([torch.tensor([1.0, 2.0])]) != replicas.digest([torch.tensor([2.0, 1.0])])
    assert replicas.digest([]) == 0


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = replicas.digest(tensors(torch.float32))
    monkeypatch.setattr(replicas, "CHUNK_ELEMENTS", 4)
    assert replicas.digest(tensors(torch.float32)) == whole


@pytest.mark.parametrize("digests", [[5], [5, 5], [5, 5, 5], [None, None]])
def test_equal_replicas_are_no_problem(digests: list[int | None]) -> None:
    assert replicas.compare(digests) is None


def test_names_who_differs_from_the_majority() -> None:
    assert "rank 2 of 4 has" in (replicas.compare([5, 5, 6, 5]) or "")
    assert "ranks 0, 3 of 5 have" in (replicas.compare([1, 5, 5, 2, 5]) or "")


@pytest.mark.parametrize("digests", [[5, 6], [5, 5, 6, 6], [1, 2, 3], [-1, 1]])
def test_without_a_majority_says_what_each_has(digests: list[int | None]) -> None:
    problem = replicas.compare(digests)
    assert problem is not None
    assert "no majority" in problem
    assert all(f"rank {rank} has {(d or 0) % 2**64:016x}" in problem for rank, d in enumerate(digests))
