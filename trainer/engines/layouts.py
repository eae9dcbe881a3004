"""From one or several micro-batches to one forward pass on the device, with where each of its tokens stands.

For kernels that know a `model.layout.Layout`. Shapes: N tokens of a side, R pairs, of all lanes together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.tokenizer import EOS_ID, PAD_ID
from model.layout import PACKED, Layout, LayoutKind, Side
from trainer.engines.batches import Update, empty_batch, micro_batch_seed, to_device
from trainer.engines.protocol import DeviceBatch, Engine

Ids = NDArray[np.int64]
ALIGNMENT = 16
"""Bytes: arrays that are copied as one begin at multiples of it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Pass:
    """Micro-batches of one or several lanes, to go through the model as one."""

    micro_batches: list[MicroBatch]
    """Empty where all lanes are dry; then the batch is one token, of weight 0."""
    seed: int
    """Seed of what is drawn from torch's generator."""
    batch: DeviceBatch

    @property
    def lanes(self) -> tuple[int, ...]:
        """Lanes of the micro-batches."""
        return tuple(m.lane for m in self.micro_batches)


def passes(update: Update, engine: Engine, *, seed: int) -> list[Pass]:
    """This rank's micro-batches of an update; as many passes on all ranks.

    Args:
        update: of which they are.
        engine: that they are for.
        seed: of the run.
    """
    slots, step, of_rank = update.micro_batches, engine.merged_lanes, []
    for begin in range(0, len(slots), step):
        filled = [m for m in slots[begin : begin + step] if m is not None]
        seeds = [micro_batch_seed(seed, update.epoch, update.number, m.lane) for m in filled]
        batch = _batch(filled, seeds, engine.device, engine.layout_kind)
        of_rank.append(Pass(micro_batches=filled, seed=seeds[0] if seeds else 0, batch=batch))
    return of_rank


def full_batch(
    rows: int, source: int, target: int, device: torch.device, kind: LayoutKind, *, token: int = EOS_ID
) -> DeviceBatch:
    """One without padding, to see whether its shape fits the memory."""
    sides = [np.full((rows, length), token) for length in (source, target, target)]
    micro_batch = MicroBatch(
        lane=0,
        dataset=0,
        pair_ids=np.arange(rows),
        source=sides[0],
        target_input=sides[1],
        target_output=sides[2],
    )
    return _batch([micro_batch], [0], device, kind)


def _batch(filled: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, kind: LayoutKind) -> DeviceBatch:
    if not filled:
        return empty_batch(device)
    if kind == "none":
        return to_device(filled[0], device)
    return laid_out(filled, seeds, device, kind=kind)


def laid_out(
    micro_batches: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, *, kind: LayoutKind
) -> DeviceBatch:
    """Micro-batches as one pass.

    Args:
        micro_batches: of different lanes; one, unless rows are packed.
        seeds: of each one's dropout.
        device: where they go, in one copy for which the host does not wait.
        kind: of the layout; packed, ids are (1, N).
    """
    is_packed = kind in PACKED
    assert is_packed or len(micro_batches) == 1, "padded lanes have different lengths"
    sources, targets = ([getattr(m, name) for m in micro_batches] for name in ("source", "target_output"))
    inputs = [m.target_input for m in micro_batches]
    is_text = [[ids != PAD_ID for ids in side] for side in (sources, targets)]
    ids = [
        np.concatenate([x[text] for x, text in zip(side, texts, strict=True)])[None] if is_packed else side[0]
        for side, texts in ((sources, is_text[0]), (inputs, is_text[1]), (targets, is_text[1]))
    ]
    arrays = [*ids]
    for texts in is_text:
        arrays += [_tokens(texts, seeds, is_packed=is_packed), _bounds(texts)]
    source, target_input, target_output, *places = _to_device(arrays, device)
    sides = [
        Side(
            places=places[2 * i],
            bounds=places[2 * i + 1] if is_packed else None,
            longest=max(int(text.sum(1).max()) if is_packed else text.shape[1] for text in texts),
        )
        for i, texts in enumerate(is_text)
    ]
    layout = Layout(source=sides[0], target=sides[1], kind=kind)
    return DeviceBatch(source=source, target_input=target_input, target_output=target_output, layout=layout)


def _tokens(texts: Sequence[NDArray[np.bool_]], seeds: Sequence[int], *, is_packed: bool) -> NDArray[np.int32]:
    """`Side.places` of these rows."""
    places = []
    for text, seed in zip(texts, seeds, strict=True):
        place = np.empty((*text.shape, 4), dtype=np.uint32)
        place[..., 0], place[..., 1] = seed & 0xFFFFFFFF, seed >> 32
        place[..., 2], place[..., 3] = np.indices(text.shape)
        places.append(place[text] if is_packed else place.reshape(-1, 4))
    return np.concatenate(places).view(np.int32)


def _bounds(texts: Sequence[NDArray[np.bool_]]) -> NDArray[np.int32]:
    """`Side.bounds` of these rows."""
    lengths = np.concatenate([text.sum(1) for text in texts])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _to_device(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """All as tensors on the device: one copy out of pinned memory."""
    if device.type == "cpu":
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    starts = np.cumsum([0, *(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)])
    there = np.zeros(starts[-1], dtype=np.uint8)
    for array, start in zip(arrays, starts, strict=False):
        there[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    memory = torch.from_numpy(there).pin_memory().to(device, non_blocking=True)
    return [
        memory[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
        for array, start in zip(arrays, starts, strict=False)
    ]
