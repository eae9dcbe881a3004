"""How rows attend on GPUs: what all ranks can do, and which of it is the fastest."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from configs import RunConfig, UserError, load_saved
from data_pipeline.prepared.dataset import Dataset
from model.kernels.check import problem
from model.layout import PACKED, LayoutKind, first_possible
from trainer.checkpoint.format import Checkpoint
from trainer.engines.layout_times import milliseconds, sampled_micro_batches
from trainer.engines.protocol import Engine
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.ranks.precision import DTYPES
from trainer.runs.layout import CONFIG
from trainer.stability.memory import slots_of_rank

log = logging.getLogger(__name__)

Attention = Literal["auto", "padded", "flash", "efficient", "short"]

MERGED_TOKENS = 32_768
"""Most tokens of micro-batches that are timed as one pass, where lanes may be merged."""


def settle_attention(
    config: RunConfig, datasets: Sequence[Dataset], engine: Engine, world: World, checkpoint: Checkpoint | None
) -> RunConfig:
    """Give the engine the same layout on all ranks, as `engine.attention` says: the configuration that the run keeps.

    A resumed run takes what its checkpoint says unless it is asked for another way, and chooses anew where that is
    impossible. On a CPU nothing is chosen.

    Args:
        config: the run's.
        datasets: of all phases.
        engine: new.
        world: the ranks.
        checkpoint: that the run is resumed from.

    Raises:
        UserError: what was asked for is impossible on a rank.
    """
    layouts = agreed_layouts(engine, world, is_checked=config.engine.kernels == "auto")
    wanted = _wanted(config.engine.attention, layouts, world, checkpoint)
    if wanted in layouts:
        engine.layout_kind, engine.why_padded = cast("LayoutKind", wanted), ""
        return _with(config, wanted)
    engine.layout_kind, engine.why_padded = first_possible(layouts)
    possible = [kind for kind, why in layouts.items() if not why]
    # a deterministic run must not go by a clock
    if is_host(world.device) or len(possible) == 1 or config.training.deterministic:
        return _with(config, wanted)
    engine.layout_kind = world.on_main(lambda: _fastest(config, datasets, engine, possible, world))
    return _with(config, cast("Attention", engine.layout_kind))


def agreed_layouts(engine: Engine, world: World, *, is_checked: bool) -> dict[LayoutKind, str]:
    """The engine's layouts, each with why one of the ranks cannot have it; the same on all ranks.

    Only packed lanes are merged: ranks with other layouts would make other numbers of passes, and wait for each other
    without end in the collectives of the others' passes.

    Args:
        engine: this rank's.
        world: the ranks.
        is_checked: whether an attention is left out that computes something wrong on this rank's GPU.
    """
    own = dict(engine.layouts)
    for kind in own if is_checked and not is_host(engine.device) else ():
        if kind in PACKED and not own[kind] and (why := problem(engine.device, DTYPES[engine.precision], kind)):
            own[kind] = f"it failed its check ({why})"
            log.warning("engine.attention: not %s, which failed its check on this card (%s)", kind, why)
    of_ranks: list[Mapping[LayoutKind, str]] = world.gather(own)
    return {kind: next((of_rank[kind] for of_rank in of_ranks if of_rank[kind]), "") for kind in own}


def _wanted(
    asked: Attention, layouts: Mapping[LayoutKind, str], world: World, checkpoint: Checkpoint | None
) -> Attention:
    """What was asked for, else what the checkpoint says; auto where the latter is impossible.

    Raises:
        UserError: what was asked for is impossible.
    """
    kept: Attention = "auto"
    if checkpoint is not None:
        kept = load_saved(checkpoint.folder / CONFIG, any_version=True).engine.attention
    wanted = kept if asked == "auto" else asked
    is_plain = "none" in layouts and not is_host(world.device) and wanted in PACKED
    why = "engine.kernels is plain" if is_plain else next((why for kind, why in layouts.items() if kind == wanted), "")
    if not why:
        return wanted
    if wanted != kept:
        raise UserError(f"engine.attention: {wanted} is impossible here: {why}; set it to auto")
    if world.is_main:
        log.warning("engine.attention: %s, as before, is impossible here: %s; another is chosen", wanted, why)
    return "auto"


def _fastest(
    config: RunConfig, datasets: Sequence[Dataset], engine: Engine, possible: Sequence[LayoutKind], world: World
) -> LayoutKind:
    """The layout whose passes take the least time on this rank's device; says so."""
    stream, given = config.stream, config.engine.merge_lanes
    most = max(1, MERGED_TOKENS // max(stream.source_tokens, stream.target_tokens))
    slots = slots_of_rank(config, world)
    lanes = min(slots, most, slots if given == "auto" else given)
    times = milliseconds(
        config.model,
        sampled_micro_batches(datasets, stream, seed=config.seed),
        possible,
        engine.device,
        DTYPES[engine.precision],
        lanes=lanes if len(config.datasets) == 1 else 1,
    )
    if not times:
        return engine.layout_kind
    fastest = min(times, key=lambda kind: times[kind])
    listed = ", ".join(f"{kind} {times[kind]:.2f}" for kind in sorted(times, key=lambda kind: times[kind]))
    log.info("engine.attention: %s; ms of a layer of each stack, forward and backward: %s", fastest, listed)
    return fastest


def _with(config: RunConfig, attention: Attention) -> RunConfig:
    return dataclasses.replace(config, engine=dataclasses.replace(config.engine, attention=attention))
