"""The largest shapes, the budget that fits, and what someone without memory is told."""

import random

import numpy as np
import pytest
import torch

from configs import RunConfig, StreamSection
from data_pipeline.order.windows import Budget
from trainer.stability import memory
from trainer.stability.memory import advice, fit_budget, is_out_of_memory, largest_shapes


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize(("source", "target"), [(512, 512), (512, 300), (200, 900)])
def test_no_micro_batch_is_larger_than_the_largest_shapes(source: int, target: int, multiple: int) -> None:
    draw = random.Random(source + multiple)
    longest = (60, 90)
    section = StreamSection(source_tokens=source, target_tokens=target, max_rows=40, length_multiple=multiple)
    shapes = largest_shapes(source, target, 40, *longest, multiple)
    budget = Budget.of(section)
    for rows, s, t in shapes:
        assert rows * s <= source
        assert rows * t <= target
        assert 1 <= rows <= 40
        assert s % multiple == t % multiple == 0
    for _ in range(2000):  # micro-batches as the stream cuts them
        row = np.array([[draw.randrange(0, longest[0]), draw.randrange(0, longest[1])]], dtype=np.uint16)
        padded = budget.padded(row)
        s, t = padded[0].tolist()
        rows = min(source // s, target // t, 40)
        assert any(rows <= r for r, _, _ in shapes)
        assert any(s <= x for _, x, _ in shapes)
        assert any(t <= x for _, _, x in shapes)
        assert rows * s <= max(r * x for r, x, _ in shapes)
        assert rows * t <= max(r * x for r, _, x in shapes)
        # what attention holds grows with the squares
        assert rows * s * s <= max(r * x * x for r, x, _ in shapes)


def test_corner_shapes_of_a_usual_budget() -> None:
    assert largest_shapes(4096, 4096, 1024, 128, 128, 1) == [(32, 128, 128), (1024, 4, 4)]
    assert largest_shapes(4096, 4096, 1024, 100, 128, 8) == [(1024 // 2, 8, 8), (39, 104, 104), (32, 104, 128)]


def test_pairs_beyond_the_budget_are_not_tried() -> None:
    assert largest_shapes(64, 64, 8, 1000, 1000, 1)[-1] == (8, 8, 8)
    assert largest_shapes(64, 64, 8, 1000, 1000, 1)[0] == (1, 64, 64)


@pytest.mark.parametrize("most", [1, 63, 64, 65, 1000, 4096])
@pytest.mark.parametrize("granularity", [1, 7, 64])
def test_the_largest_budget_that_fits(most: int, granularity: int) -> None:
    for limit in (0, 1, 5, 64, 100, 999, 4095, 4096, 10_000):
        for least in (1, 50):
            asked: list[int] = []

            def fits(budget: int, limit: int = limit, asked: list[int] = asked) -> bool:
                asked.append(budget)
                return budget <= limit

            least = min(least, most)
            found = fit_budget(fits, most, granularity, least=least)
            assert len(asked) <= 16
            allowed = {most, least, *(n for n in range(granularity, most, granularity) if n > least)}
            assert found == max((n for n in allowed if n <= limit), default=0)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_knows_that_memory_ran_out(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_does_not_take_other_errors_for_it() -> None:
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(OSError("No space left on device"))


def test_torch_itself_says_it_on_this_machine() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.int8)
    assert is_out_of_memory(caught.value)


def test_advice_names_settings_and_values() -> None:
    config = RunConfig(stream=StreamSection(source_tokens=1234, target_tokens=5678))
    said = advice(torch.OutOfMemoryError("CUDA out of memory.\nmore"), config, shapes=[memory.TINY, (3, 4, 5)])
    assert "\n" not in said
    for part in (
        "stream.source_tokens=1234",
        "stream.target_tokens=5678",
        "3 x (4 + 5)",
        "CUDA out of memory.",
        "stream.micro_batches",
        "training.fit_memory",
        "engine.zero_stage",
        "engine.offload_optimizer",
    ):
        assert part in said
    alone = advice(MemoryError(), config, shapes=[memory.TINY])
    assert "stream." not in alone
    assert "engine.zero_stage" in alone
