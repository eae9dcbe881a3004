"""Tries the largest micro-batches before update 1, with smaller ones where they are too large, and advises."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch

from configs import RunConfig, StreamSection, UserError, load_saved
from data_pipeline.prepared.dataset import Dataset
from model import Objective
from model.layout import PACKED
from trainer.checkpoint.format import Checkpoint
from trainer.datasets import SIDES
from trainer.engines import Engine
from trainer.engines.batches import Shape
from trainer.evaluation.evaluator import Evaluator
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.runs.layout import CONFIG

log = logging.getLogger(__name__)

TINY: Shape = (1, 1, 1)
SHRINK = 0.9
"""Of the budgets, from one trial to the next."""
MARGIN = 0.05
"""Fraction of a GPU's memory that fitted budgets leave free: memory fragments."""
MAX_ROWS = 65_535
"""Rows of a merged pass: attention launches a block per row along a grid dimension that CUDA limits to this."""
MEETING_SECONDS = 30.0
"""Seconds for which a rank that ran out of memory waits for the others, which may be stuck waiting for it."""
Of = Literal["model", "stream", "evaluation"]
"""What needed the memory: the model alone, an update, an evaluation."""
PHRASES = ("out of memory", "allocate memory", "not enough memory", "bad_alloc", "ALLOC_FAILED")


def settle_memory(
    config: RunConfig,
    datasets: Sequence[Dataset],
    engine: Engine,
    evaluator: Evaluator,
    world: World,
    checkpoint: Checkpoint | None,
    objective: Callable[[], Objective],
) -> RunConfig:
    """Try the largest shapes on the engine, next to the evaluator's model.

    Where they are too large, fewer lanes are merged, and a new run with `training.fit_memory` gets smaller budgets; a
    resumed one has those of its checkpoint. On a CPU only that one is tried with more than a token: there the system
    ends a process that takes too much, unless a limit is set.

    Args:
        config: the run's.
        datasets: of all phases.
        engine: new; before moments are loaded.
        evaluator: of the run.
        world: the ranks, which all call this.
        checkpoint: that the run is resumed from.
        objective: makes the engine's model as it was, to start the engine again.

    Returns:
        The configuration with the budgets of the run.

    Raises:
        UserError: a rank has too little memory; raised on all ranks that can still be reached, naming what to set.
    """
    if config.training.fit_memory and checkpoint is not None:
        kept = load_saved(checkpoint.folder / CONFIG, any_version=True).stream
        config = _with_budgets(config, kept.source_tokens, kept.target_tokens)
    longest = [max(dataset.longest(side) for dataset in datasets) for side in SIDES]
    slots = -(-config.stream.micro_batches // world.size)
    is_fitted = config.training.fit_memory and checkpoint is None
    trials = _trials(config, longest, slots if engine.layout_kind in PACKED else 1, is_fitted=is_fitted)

    def begin() -> None:
        if config.evaluation.every_updates:
            evaluator.prepare()  # it stays allocated from the first evaluation on
        engine.try_shapes([TINY])  # which makes the moments, next to which the others must fit

    def try_largest(*, steps: bool) -> None:
        total = 0 if is_host(world.device) or not is_fitted else torch.cuda.mem_get_info(world.device)[1]
        spare = torch.empty(int(MARGIN * total), dtype=torch.uint8, device=world.device)
        lanes = engine.merged_lanes
        shapes = [(rows * lanes, source, target) for rows, source, target in largest_shapes(config.stream, longest)]
        for update in [[shape] for shape in shapes] if lanes >= slots else [[TINY, *shapes]]:
            engine.try_shapes(update, steps=steps)
        del spare

    problem: str | None = None
    for number, (config, engine.merged_lanes) in enumerate(trials):
        if number:
            log.info("too large: %s; the engine starts again with less", problem)
            engine.renew(objective())
            torch.cuda.empty_cache()
        if (problem := _problem(begin, "model", config, world)) is not None:
            raise UserError(problem)
        if is_host(world.device) and not is_fitted:
            return config
        # a rank that runs out of memory alone can tell the others as long as they do not wait for it in the engine
        ways = (partial(try_largest, steps=False), partial(try_largest, steps=True))
        problem = next(filter(None, (_problem(way, "stream", config, world) for way in ways)), None)
        if problem is None:
            break
    else:
        raise UserError(problem)
    if is_fitted:
        log.info("stream.source_tokens=%d, stream.target_tokens=%d fit the memory", *_budgets(config.stream))
    return config


def _trials(
    config: RunConfig, longest: Sequence[int], slots: int, *, is_fitted: bool
) -> Iterator[tuple[RunConfig, int]]:
    """Budgets, and how many lanes are merged, to be tried one after the other; each needs less memory.

    Args:
        config: the run's.
        longest: source and target length of the data's longest pairs, EOS included.
        slots: a rank's micro-batches of an update that may be merged.
        is_fitted: whether budgets may be smaller than those of the configuration.
    """
    given, stream = config.engine.merge_lanes, config.stream
    most = MAX_ROWS // max(rows for rows, _, _ in largest_shapes(stream, longest))
    lanes = max(1, min(slots if given == "auto" else given, slots, most)) if len(config.datasets) == 1 else 1
    yield config, lanes
    while lanes > 1 and given == "auto":
        lanes = -(-lanes // 2)
        yield config, lanes
    # with a budget below the longest pair, that would be dropped or the data refused
    least = [
        min(-(-n // stream.length_multiple) * stream.length_multiple, budget)
        for n, budget in zip(longest, _budgets(stream), strict=True)
    ]
    factor = SHRINK
    while is_fitted:
        source, target = (int(factor * budget) for budget in _budgets(stream))
        if source < least[0] or target < least[1]:
            return
        yield _with_budgets(config, source, target), 1
        factor *= SHRINK


def largest_shapes(stream: StreamSection, longest: Sequence[int]) -> list[Shape]:
    """The extreme shapes that the stream can produce: most tokens, most rows, most pairs of positions.

    The one with the most tokens comes first.

    Args:
        stream: with its budgets.
        longest: see `_trials`.
    """
    multiple, (source, target) = stream.length_multiple if stream.budget == "padded" else 1, _budgets(stream)

    def padded(side: int, budget: int) -> int:
        """The longest padded length that occurs and fits a budget; longer pairs are dropped or refused."""
        return min(-(-longest[side] // multiple), budget // multiple) * multiple

    candidates: set[Shape] = set()
    for side, budget in enumerate((source, target)):
        for length in range(multiple, padded(side, budget) + 1, multiple):
            rows = min(stream.max_rows, budget // length, source // multiple, target // multiple)
            candidates.add((rows, padded(0, source // rows), padded(1, target // rows)))
    return sorted({max(candidates, key=lambda c: (measure(c), c)) for measure in _MEASURES}, key=_MEASURES[0])[::-1]


_MEASURES: tuple[Callable[[Shape], int], ...] = (
    lambda shape: shape[0] * (shape[1] + shape[2]),  # most layers' activations
    lambda shape: shape[0] * shape[1],  # encoder
    lambda shape: shape[0] * shape[2],  # decoder and output
    lambda shape: shape[0] * max(shape[1], shape[2]) ** 2,  # attention weights
    lambda shape: shape[0],
)


def _budgets(stream: StreamSection) -> tuple[int, int]:
    return stream.source_tokens, stream.target_tokens


def _with_budgets(config: RunConfig, source: int, target: int) -> RunConfig:
    stream = dataclasses.replace(config.stream, source_tokens=source, target_tokens=target)
    return dataclasses.replace(config, stream=stream)


def _problem(action: Callable[[], None], of: Of, config: RunConfig, world: World) -> str | None:
    """Run an action that may need more memory than a rank has; the advice if one did, on all ranks.

    Raises:
        UserError: the others wait for this rank in the engine, so they end with it.
    """
    problem = None
    try:
        action()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        problem = f"rank {world.rank}: {advice(error, config, of)}"
    if not world.meets("memory", MEETING_SECONDS) and problem is not None:
        raise UserError(problem)
    return next((p for p in world.gather(problem) if p is not None), None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the host has no memory left; torch has several ways of saying it."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in PHRASES)


@contextlib.contextmanager
def advised(config: RunConfig, of: Of, kind: type[Exception]) -> Iterator[None]:
    """In this block, an error for want of memory becomes one of another kind, with the advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise kind(advice(error, config, of)) from error


def advice(error: BaseException, config: RunConfig, of: Of = "stream") -> str:
    """The line for a user whose run is out of memory: the settings, their values and what to do.

    Args:
        error: the error that was raised.
        config: the run's.
        of: what needed the memory.
    """
    source, target = _budgets(config.stream)
    field, use = {
        "model": ("model", ""),
        "stream": (
            f"stream.source_tokens={source}, stream.target_tokens={target}",
            f"less, with stream.micro_batches above {config.stream.micro_batches} for as large an update "
            "(training.fit_memory=true finds what fits a new run); or ",
        ),
        "evaluation": (
            f"evaluation.search.batch_tokens={config.evaluation.search.batch_tokens}",
            "less, which changes no score; or ",
        ),
    }[of]
    said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return (
        f"{field}: out of memory ({said}); use {use}engine.zero_stage above {config.engine.zero_stage} on more ranks, "
        "engine.offload_optimizer=true or a smaller model"
    )
