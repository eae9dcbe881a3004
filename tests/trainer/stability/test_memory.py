"""The largest shapes, the budget that fits, and what someone without memory is told."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from configs import RunConfig, StreamSection, load_run
from data_pipeline.order.windows import Budget
from tests.conftest import Corpus
from tests.forked import Forked
from trainer.engines import trial
from trainer.ranks.distributed import World
from trainer.runs.failure import TrainingError
from trainer.stability import memory
from trainer.stability.memory import (
    _engine_advice,
    advice,
    evaluation_advice,
    fit_budget,
    is_out_of_memory,
    largest_shapes,
)


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
        assert rows <= max(r for r, _, _ in shapes)
        assert rows * s <= max(r * x for r, x, _ in shapes)
        assert rows * t <= max(r * x for r, _, x in shapes)
        assert rows * (s + t) <= max(r * (x + y) for r, x, y in shapes)
        assert rows * max(s, t) ** 2 <= max(r * max(x, y) ** 2 for r, x, y in shapes)  # attention


def test_corner_shapes_of_usual_budgets() -> None:
    assert largest_shapes(4096, 4096, 1024, 128, 128, 1) == [(1024, 4, 4), (32, 128, 128)]
    assert largest_shapes(4096, 4096, 1024, 100, 128, 8) == [(512, 8, 8), (32, 104, 128)]
    assert largest_shapes(25000, 25000, 1024, 257, 257, 8) == [(625, 40, 40), (94, 264, 264), (1024, 24, 24)]


def test_pairs_beyond_the_budget_are_not_tried() -> None:
    assert largest_shapes(64, 64, 8, 1000, 1000, 1) == [(8, 8, 8), (1, 64, 64)]


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
        RuntimeError("could not create a primitive"),
    ],
)
def test_knows_that_memory_ran_out(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_does_not_take_other_errors_for_it() -> None:
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(RuntimeError("could not create a primitive descriptor for the matmul primitive"))
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


def test_an_evaluation_gets_the_same_advice() -> None:
    said = evaluation_advice(torch.OutOfMemoryError("CUDA out of memory.\nmore"), RunConfig())
    assert "\n" not in said
    for part in ("evaluation.search.batch_tokens=4096", "CUDA out of memory.", *_engine_advice(RunConfig())):
        assert part in said


class Hungry(nn.Module):
    """Takes so many bytes while it goes forward."""

    num_bytes = 1 << 32

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, *_: torch.Tensor) -> tuple[torch.Tensor]:
        taken = torch.empty(self.num_bytes, dtype=torch.uint8)
        return (self.weight.sum() * (taken.numel() > 0),)


def fits_into(num_bytes: int) -> tuple[bool, bool]:
    """As a rank: whether the hungry model fits beside the margin, and whether what it takes would without one."""
    vars(trial)["available"] = lambda: num_bytes
    plan, cpu = trial.blueprint(Hungry(), torch.float32), torch.device("cpu")
    fits = trial.fits(plan, [(1, 1, 1)], cpu, token=3, kind="none")
    with trial.bounded_memory(cpu):
        return fits, torch.empty(Hungry.num_bytes, dtype=torch.uint8).numel() == Hungry.num_bytes


@pytest.mark.parametrize(("more", "expected"), [(1.03, False), (1.2, True)])
def test_budgets_that_fit_leave_a_margin(more: float, expected: bool, forked: Forked, tmp_path: Path) -> None:
    found = forked.ranks(1, fits_into, int(more * Hungry.num_bytes), cwd=tmp_path, meet=False)
    assert found == [(expected, True)]


def out_of_memory_in_an_evaluation(world: World, settings: Sequence[str]) -> tuple[bool, str]:
    """As a rank: whether the model that is evaluated was there before the first update, and what the run said."""
    from trainer.build import build

    config = load_run("debug", settings)
    Path(config.folder).mkdir(parents=True)
    built = build(config, world, stop_requested=lambda: False)
    is_there = built.evaluator.is_prepared

    def evaluate(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    vars(built.evaluator)["evaluate"] = evaluate
    try:
        built.trainer.fit()
    except TrainingError as error:
        return is_there, str(error)
    return is_there, ""


@pytest.mark.parametrize("every", [1, 0])
def test_out_of_memory_in_an_evaluation(every: int, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    settings = (*corpus_en_fr.overrides, f"output={tmp_path}", f"evaluation.every_updates={every}")
    limits = ("training.max_updates=1", "stream.micro_batches=1")
    [(is_there, said)] = forked.ranks(1, out_of_memory_in_an_evaluation, (*settings, *limits), cwd=tmp_path)
    assert is_there == (every > 0)
    assert said.startswith("evaluation.search.batch_tokens=4096: out of memory in an evaluation (CUDA out of memory.")


def test_what_a_search_holds_is_tried_before_the_first_update(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    settings = ("debug", *corpus_en_fr.overrides, f"output={tmp_path}", "evaluation.search.batch_tokens=10000000000")
    done = forked.trainer(1, *settings, cwd=tmp_path)
    assert done.code == 2, done.err
    assert "evaluation.search.batch_tokens=10000000000: out of memory in an evaluation" in done.err
    assert "step 1 " not in done.out


@pytest.mark.parametrize(("given", "expected"), [("auto", 60), ("50", 50), ("100", 63)])
def test_merged_lanes_have_no_more_rows_than_a_grid(given: str, expected: int) -> None:
    """Attention refuses more. Of 120 lanes of up to 1,024 rows that all fit the memory: an even part below 64."""
    config = load_run(
        "debug",
        ["stream.micro_batches=120", "stream.source_tokens=8192", "stream.target_tokens=8192",
         "stream.max_rows=1024", "stream.length_multiple=8", f"engine.merge_lanes={given}"],
    )  # fmt: skip
    engine: Any = SimpleNamespace(
        layout_kind="short", device=torch.device("cpu"), would_fit=lambda _: True, try_shapes=lambda _: None
    )
    world: Any = SimpleNamespace(size=1, rank=0, all_succeeded=lambda x: x, meets=lambda _: True, gather=lambda x: [x])
    assert memory.lanes_to_merge(engine, config, longest=(30, 30), world=world) == expected
