"""How rows attend on GPUs: of what all ranks can do, what is made for rows as long as the data's."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import RunConfig, UserError, load_saved
from model.kernels.check import problem
from model.layout import PACKED, LayoutKind, first_possible
from trainer.checkpoint.format import Checkpoint
from trainer.engines import Engine
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.ranks.precision import DTYPES
from trainer.runs.layout import CONFIG

log = logging.getLogger(__name__)

QUANTILE = 0.999
"""The part of the rows that have at most the length that counts."""
SHORT_ROWS = 128
"""Tokens up to which kernels that compute less than 128 x 128 at a time are the faster ones."""
FOR_SHORT: tuple[LayoutKind, ...] = ("efficient", "flash", "padded")
FOR_LONG: tuple[LayoutKind, ...] = ("flash", "efficient", "padded")


def settle_attention(
    config: RunConfig, lengths: NDArray[np.integer], engine: Engine, world: World, checkpoint: Checkpoint | None
) -> RunConfig:
    """Give the engine the same layout on all ranks: as `engine.attention` says, else the checkpoint, else by a rule.

    Args:
        config: the run's.
        lengths: (pairs, 2), source and target lengths of a sample of the data, without EOS.
        engine: new.
        world: the ranks.
        checkpoint: that the run is resumed from.

    Returns:
        The configuration that the run keeps, with what was chosen.

    Raises:
        UserError: what was asked for is impossible on a rank.
    """
    is_gpu = not is_host(world.device)
    layouts = _agreed_layouts(engine, world, is_checked=is_gpu and config.engine.kernels == "auto")
    asked, kept = config.engine.attention, "auto"
    if checkpoint is not None:
        kept = load_saved(checkpoint.folder / CONFIG, any_version=True).engine.attention
    wanted: Any = kept if asked == "auto" else asked
    chosen = next((kind for kind in layouts if kind == wanted), None)
    why = "" if chosen is None else layouts[chosen]
    if chosen is None and wanted in PACKED and is_gpu:
        why = "engine.kernels is plain"
    if why and wanted != kept:
        raise UserError(f"engine.attention: {wanted} is impossible here: {why}; set it to auto")
    if why:
        log.warning("engine.attention: %s, as before, is impossible here: %s; another is chosen", wanted, why)
        wanted, chosen = "auto", None
    if chosen is not None:
        engine.layout_kind, engine.why_padded = chosen, ""
    else:
        engine.layout_kind, engine.why_padded = _by_lengths(layouts, lengths)
        if wanted == "auto" and engine.layout_kind in PACKED:
            wanted = engine.layout_kind
    return dataclasses.replace(config, engine=dataclasses.replace(config.engine, attention=wanted))


def _agreed_layouts(engine: Engine, world: World, *, is_checked: bool) -> dict[LayoutKind, str]:
    """The engine's layouts, each with why one of the ranks cannot have it; the same on all ranks.

    Only packed lanes are merged: ranks with other layouts would make other numbers of passes, and wait for each other
    without end in the collectives of the others' passes.

    Args:
        engine: this rank's.
        world: the ranks.
        is_checked: whether an attention is left out that computes something wrong on this rank's GPU.
    """
    own = dict(engine.layouts)
    for kind in PACKED & own.keys() if is_checked else ():
        if not own[kind] and (why := problem(world.device, DTYPES[engine.precision], kind)):
            own[kind] = f"it failed its check ({why})"
            log.warning("engine.attention: not %s, which failed its check on this card (%s)", kind, why)
    of_ranks: list[Mapping[LayoutKind, str]] = world.gather(own)
    return {kind: next((of_rank[kind] for of_rank in of_ranks if of_rank[kind]), "") for kind in own}


def _by_lengths(layouts: Mapping[LayoutKind, str], lengths: NDArray[np.integer]) -> tuple[LayoutKind, str]:
    """The layout for rows of these lengths, and why rows are padded if they are."""
    is_short = np.quantile(lengths.max(axis=1), QUANTILE, method="higher") < SHORT_ROWS  # EOS comes to it
    order = FOR_SHORT if is_short else FOR_LONG
    return first_possible({kind: layouts[kind] for kind in order if kind in layouts} or layouts)
