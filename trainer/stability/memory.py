"""Checks before update 1 that the largest micro-batches fit the device, settles budgets, and advises if they do not."""

import dataclasses
import logging
from collections.abc import Callable, Sequence

import torch

from configs import RunConfig, StreamSection, UserError, load_saved
from data_pipeline.prepared.dataset import Dataset
from model.layout import PACKED
from trainer.checkpoint.format import Checkpoint
from trainer.datasets import SIDES
from trainer.engines.protocol import Engine, Shape
from trainer.engines.trial import MARGIN, bounded_memory, is_out_of_memory
from trainer.evaluation.evaluator import Evaluator
from trainer.ranks.distributed import World
from trainer.runs.layout import CONFIG

__all__ = [
    "MARGIN",
    "advice",
    "evaluation_advice",
    "fit",
    "fit_budget",
    "is_out_of_memory",
    "lanes_to_merge",
    "largest_shapes",
    "probe",
    "probe_evaluation",
    "settle_memory",
]

log = logging.getLogger(__name__)

TINY: Shape = (1, 1, 1)
TRIALS = 64
"""Number of steps in which budgets are tried, up to those given."""
MAX_ROWS = 65_535
"""Rows of a merged pass: attention launches a block per row along a grid dimension that CUDA limits to this."""
MEETING_SECONDS = 30.0
"""Seconds for which a rank that ran out of memory waits for the others, which may be stuck waiting for it."""


def largest_shapes(
    source_tokens: int,
    target_tokens: int,
    max_rows: int,
    longest_source: int,
    longest_target: int,
    length_multiple: int,
) -> list[Shape]:
    """The extreme shapes that the stream can produce: most tokens, most rows, most pairs of positions.

    The one with the most tokens comes first.

    Args:
        source_tokens: budget of a micro-batch: rows times padded source length.
        target_tokens: budget of a micro-batch: rows times padded target length.
        max_rows: rows of a micro-batch at most.
        longest_source: longest source of the data, EOS included.
        longest_target: longest target of the data, EOS included.
        length_multiple: padded lengths are multiples of this.
    """

    def padded(longest: int, budget: int) -> int:
        """The longest padded length that occurs and fits a budget; longer pairs are dropped or refused."""
        return min(-(-longest // length_multiple), budget // length_multiple) * length_multiple

    source, target = padded(longest_source, source_tokens), padded(longest_target, target_tokens)
    assert source > 0
    assert target > 0
    candidates = set()
    for budget, length in ((source_tokens, source), (target_tokens, target)):
        for padded_length in range(length_multiple, length + 1, length_multiple):
            rows = min(max_rows, budget // padded_length, source_tokens // length_multiple)
            rows = min(rows, target_tokens // length_multiple)
            candidates.add((rows, padded(source, source_tokens // rows), padded(target, target_tokens // rows)))
    return sorted({max(candidates, key=lambda c: (measure(c), c)) for measure in _MEASURES}, key=_MEASURES[0])[::-1]


_MEASURES: tuple[Callable[[Shape], int], ...] = (
    lambda shape: shape[0] * (shape[1] + shape[2]),  # most layers' activations
    lambda shape: shape[0] * shape[1],  # encoder
    lambda shape: shape[0] * shape[2],  # decoder and output
    lambda shape: shape[0] * max(shape[1], shape[2]) ** 2,  # attention weights
    lambda shape: shape[0],
)


def probe(engine: Engine, config: RunConfig, *, longest: Sequence[int], world: World) -> None:
    """Try a forward and backward pass on the largest shapes, on all ranks together, and discard the result.

    Must be called before the first update and before moments are loaded. The optimizer's step is tried too.

    Args:
        engine: new.
        config: whose stream sets the shapes.
        longest: source and target length of the data's longest pairs, EOS included.
        world: the ranks.

    Raises:
        UserError: a rank has too little memory; raised on all ranks that can still be reached, naming what to set.
    """
    shapes = _merged(_shapes(config.stream, longest), engine.merged_lanes)
    num_passes = -(-slots_of_rank(config, world) // engine.merged_lanes)
    updates = [[shape] for shape in shapes] if num_passes == 1 else [[TINY, *shapes]]
    # the first creates the optimizer's state, next to which the others must fit
    _try(engine, [[TINY], *updates], config, world)


def lanes_to_merge(engine: Engine, config: RunConfig, *, longest: Sequence[int], world: World) -> int:
    """How many of a rank's micro-batches go through the model as one; see `engine.merge_lanes`.

    Args:
        engine: new.
        config: whose stream sets the shapes.
        longest: source and target length of the data's longest pairs, EOS included.
        world: the ranks.
    """
    slots, given = slots_of_rank(config, world), config.engine.merge_lanes
    if engine.layout_kind not in PACKED or slots == 1 or len(config.datasets) > 1:
        return 1
    shapes = _shapes(config.stream, longest)
    most = max(1, MAX_ROWS // max(rows for rows, _, _ in shapes))
    if given != "auto":
        return min(given, slots, most)
    _try(engine, [[TINY]], config, world)  # the moments are there from then on
    for lanes in sorted({-(-slots // num_passes) for num_passes in range(1, slots)}, reverse=True):
        if lanes <= most and world.all_succeeded(engine.would_fit(_merged(shapes, lanes))):
            return lanes
    return 1


def fit(engine: Engine, config: RunConfig, *, longest: Sequence[int], world: World) -> tuple[int, int]:
    """The largest budgets that fit every rank's device: at most those that are set, and in their proportion.

    `MARGIN` of the memory stays free.

    Args:
        engine: new.
        config: whose stream sets budgets.
        longest: source and target length of the data's longest pairs, EOS included.
        world: the ranks.

    Returns:
        `source_tokens` and `target_tokens`.

    Raises:
        UserError: not even a micro-batch with only the longest pair fits.
    """
    stream = config.stream
    _try(engine, [[TINY]], config, world)
    most = max(stream.source_tokens, stream.target_tokens)

    def budgets(tokens: int) -> tuple[int, int]:
        return stream.source_tokens * tokens // most, stream.target_tokens * tokens // most

    def fits_everywhere(tokens: int) -> bool:
        source, target = budgets(tokens)
        shapes = _shapes(stream, longest, source_tokens=source, target_tokens=target)
        fits = world.all_succeeded(engine.would_fit([*shapes, shapes[0]]))
        log.info(
            "stream.source_tokens=%d, stream.target_tokens=%d: %s", source, target, "fits" if fits else "too large"
        )
        return fits

    # with a budget below the longest pair, that would be dropped or the data refused
    least = max(
        -(-min(n, budget) * most // budget) for n, budget in zip(_padded(stream, longest), budgets(most), strict=True)
    )
    granularity = max(1, most // TRIALS, stream.length_multiple)
    tokens = fit_budget(fits_everywhere, most, granularity, least=least)
    if tokens == 0:
        raise UserError(
            f"training.fit_memory: not even {budgets(least)[0]} source and {budgets(least)[1]} target tokens, "
            f"which the longest pair needs, fit the memory; use {'; or '.join(_engine_advice(config))}"
        )
    return budgets(tokens)


def fit_budget(try_budget: Callable[[int], bool], most: int, granularity: int, *, least: int = 1) -> int:
    """The largest budget that fits, by bisection: `most`, `least` or a step between; 0 if not even `least` fits.

    Args:
        try_budget: whether a budget fits; the same answer on all ranks, and monotonic.
        most: upper bound.
        granularity: size of the steps between.
        least: lower bound.
    """
    if try_budget(most):
        return most
    steps: list[int] = [least, *range((least // granularity + 1) * granularity, most, granularity)]
    if least >= most or not try_budget(least):
        return 0
    low, high = 0, len(steps)  # steps[low] fits, steps[high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if try_budget(steps[middle]):
            low = middle
        else:
            high = middle
    return steps[low]


def advice(error: BaseException, config: RunConfig, *, shapes: Sequence[Shape] = ()) -> str:
    """The message for a user who is out of memory: the settings, their values and what to do.

    Args:
        error: the error that was raised.
        config: the run's.
        shapes: of the micro-batches that were tried, if known.
    """
    stream = config.stream
    what = _first_line(error)
    if list(shapes) == [TINY]:  # not the micro-batches are too large, the model is
        return f"model: out of memory before any micro-batch ({what}); use {'; or '.join(_engine_advice(config))}"
    tried = ", ".join(f"{r} x ({s} + {t})" for r, s, t in shapes if (r, s, t) != TINY)
    where = f" on micro-batches of pairs x (source + target tokens): {tried}" if tried else ""
    fewer = (
        f"less, with stream.micro_batches above {stream.micro_batches} for as large an update "
        "(training.fit_memory=true finds what fits a new run)"
    )
    return (
        f"stream.source_tokens={stream.source_tokens}, stream.target_tokens={stream.target_tokens}: out of memory"
        f"{where} ({what}); use {'; or '.join([fewer, *_engine_advice(config)])}"
    )


def probe_evaluation(held: int, config: RunConfig, world: World) -> None:
    """Check that an evaluation fits next to everything allocated already.

    Args:
        held: bytes; see `Evaluator.bytes_to_come`.
        config: the run's.
        world: the ranks.

    Raises:
        UserError: see `probe`.
    """

    def hold() -> None:
        with bounded_memory(world.device):
            torch.empty(held, dtype=torch.uint8, device=world.device)

    _attempt(hold, lambda error: evaluation_advice(error, config), world)


def evaluation_advice(error: BaseException, config: RunConfig) -> str:
    """The message for a user whose evaluation is out of memory; see `advice`."""
    fewer = "less, which changes no score"
    return (
        f"evaluation.search.batch_tokens={config.evaluation.search.batch_tokens}: out of memory in an evaluation "
        f"({_first_line(error)}); use {'; or '.join([fewer, *_engine_advice(config)])}"
    )


def _try(engine: Engine, updates: Sequence[Sequence[Shape]], config: RunConfig, world: World) -> None:
    """Try updates with some shapes each.

    Raises:
        UserError: a rank has not enough memory.
    """
    tried = updates[0]

    def try_all() -> None:
        nonlocal tried
        with bounded_memory(engine.device):
            for tried in updates:
                engine.try_shapes(tried)

    _attempt(try_all, lambda error: advice(error, config, shapes=tried), world)


def _attempt(action: Callable[[], None], describe: Callable[[BaseException], str], world: World) -> None:
    """Run an action that may need more memory than a rank has.

    Raises:
        UserError: it did, with the advice.
    """
    problem = None
    try:
        action()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        problem = f"rank {world.rank}: {describe(error)}"
    if not world.meets(MEETING_SECONDS) and problem is not None:
        raise UserError(problem)  # the others wait for this rank in the engine, so they end with it
    problem = next((p for p in world.gather(problem) if p is not None), None)
    if problem is not None:
        raise UserError(problem)


def slots_of_rank(config: RunConfig, world: World) -> int:
    """Micro-batches of a rank in an update."""
    return -(-config.stream.micro_batches // world.size)


def _merged(shapes: Sequence[Shape], lanes: int) -> list[Shape]:
    """Shapes after merging `lanes` micro-batches into one."""
    return [(rows * lanes, source, target) for rows, source, target in shapes]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _engine_advice(config: RunConfig) -> list[str]:
    """Settings that reduce the engine's memory and are not set already."""
    stage, settings = config.engine.zero_stage, []
    if stage < 3:
        settings.append(f"engine.zero_stage above {stage}, on more ranks")
    if not config.engine.offload_optimizer:
        settings.append("engine.offload_optimizer=true" + (" with engine.zero_stage above 0" if stage == 0 else ""))
    return [*settings, "a smaller model"]


def _shapes(
    stream: StreamSection,
    longest: Sequence[int],
    *,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
) -> list[Shape]:
    return largest_shapes(
        source_tokens or stream.source_tokens,
        target_tokens or stream.target_tokens,
        stream.max_rows,
        longest[0],
        longest[1],
        stream.length_multiple,
    )


def _padded(stream: StreamSection, longest: Sequence[int]) -> list[int]:
    return [-(-n // stream.length_multiple) * stream.length_multiple for n in longest]


def settle_memory(
    config: RunConfig,
    datasets: Sequence[Dataset],
    engine: Engine,
    evaluator: Evaluator,
    world: World,
    checkpoint: Checkpoint | None,
) -> RunConfig:
    """Check that the largest shapes fit the device next to the evaluator's model, and that a search fits without them.

    A new run with `training.fit_memory` uses the largest budgets that fit.

    Raises:
        UserError: they do not, naming the settings to lower.
    """
    if config.evaluation.every_updates and (config.training.fit_memory or config.training.memory_probe):
        evaluator.prepare()  # it stays allocated from the first evaluation on
    longest = [max(dataset.longest(side) for dataset in datasets) for side in SIDES]
    if config.training.fit_memory:
        if checkpoint is not None:
            budgets = load_saved(checkpoint.folder / CONFIG, any_version=True).stream
            tokens = budgets.source_tokens, budgets.target_tokens
        else:
            tokens = fit(engine, config, longest=longest, world=world)
            left = f"{MARGIN:.0%} of it stay free"
            log.info("budgets that fit the memory: %d source tokens, %d target tokens; %s", *tokens, left)
        stream = dataclasses.replace(config.stream, source_tokens=tokens[0], target_tokens=tokens[1])
        config = dataclasses.replace(config, stream=stream)
    engine.merged_lanes = lanes_to_merge(engine, config, longest=longest, world=world)
    if config.training.memory_probe:
        probe(engine, config, longest=longest, world=world)
        held = evaluator.bytes_to_come(config.model, sum(engine.parameter_sizes().values()))
        probe_evaluation(held, config, world)
    return config
