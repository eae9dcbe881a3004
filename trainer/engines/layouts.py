"""From one or several micro-batches to one forward pass on the device, with where each of its tokens stands.

For kernels that know a `model.layout.Layout`. Shapes: N tokens of a side, R pairs, of all lanes together.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.prefetch import Background
from data_pipeline.tokenizer import EOS_ID, PAD_ID
from model.layout import PACKED, Layout, LayoutKind, Side
from trainer.engines.batches import (
    Staged,
    Update,
    empty_batch,
    micro_batch_seed,
    stage,
    token_scales,
)
from trainer.engines.protocol import DeviceBatch, Engine

Ids = NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class Pass:
    """Micro-batches of one or several lanes, to go through the model as one: ready on the host."""

    micro_batches: list[MicroBatch]
    """Empty where all lanes are dry; then the batch is one token, of weight 0."""
    seed: int
    """Seed of what is drawn from torch's generator."""
    send: Callable[[], DeviceBatch]
    """Begins to copy it to the device."""

    @property
    def lanes(self) -> tuple[int, ...]:
        """Lanes of the micro-batches."""
        return tuple(m.lane for m in self.micro_batches)


def lay_out(update: Update, engine: Engine, *, seed: int) -> list[Pass]:
    """This rank's micro-batches of an update, for an engine, ready for the device; as many passes on all ranks.

    A thread may do so.

    Args:
        update: of which they are.
        engine: that they are for.
        seed: of the run.
    """
    slots, step, of_rank = update.micro_batches, engine.merged_lanes, []
    for begin in range(0, len(slots), step):
        filled = [m for m in slots[begin : begin + step] if m is not None]
        seeds = [micro_batch_seed(seed, update.epoch, update.number, m.lane) for m in filled]
        send = _staged(filled, seeds, engine.device, engine.layout_kind)
        of_rank.append(Pass(micro_batches=filled, seed=seeds[0] if seeds else 0, send=send))
    return of_rank


class Layouts:
    """Lays updates out in a thread, before they are needed: a device that waits for them computes nothing.

    On a CPU there is nothing to win, and it is done where it is needed.
    """

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._seed = seed
        self._thread = None if engine.device.type == "cpu" else Background()
        self._begun = deque[tuple[Update, Callable[[], list[Pass]]]]()

    def begin(self, update: Update) -> None:
        """Begin with an update that is going to be trained on, unless it is left out."""
        if self._thread is not None:
            self._begun.append((update, self._thread.begin(lambda: self._lay_out(update))))

    def _lay_out(self, update: Update) -> list[Pass]:
        with torch.get_device_module(self._engine.device).device(self._engine.device):  # memory is pinned for this one
            return lay_out(update, self._engine, seed=self._seed)

    def passes(self, update: Update) -> list[Pass]:
        """`lay_out` of an update, once it is done."""
        while self._begun:  # those before it were left out
            one, wait = self._begun.popleft()
            if one.micro_batches is update.micro_batches:
                return wait()
        return lay_out(update, self._engine, seed=self._seed)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()


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
    return _staged([micro_batch], [0], device, kind)()


def _staged(
    filled: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, kind: LayoutKind
) -> Callable[[], DeviceBatch]:
    if not filled:
        return partial(empty_batch, device)
    if kind == "none":
        return stage(filled[0], device)
    return stage_laid_out(filled, seeds, device, kind=kind)


def laid_out(
    micro_batches: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, *, kind: LayoutKind
) -> DeviceBatch:
    """Micro-batches as one pass; see `stage_laid_out`."""
    return stage_laid_out(micro_batches, seeds, device, kind=kind)()


def stage_laid_out(
    micro_batches: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, *, kind: LayoutKind
) -> Callable[[], DeviceBatch]:
    """Have micro-batches ready as one pass; what is returned sends it.

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
    arrays: list[NDArray[Any]] = [*ids]
    for texts in is_text:
        arrays += [_tokens(texts, seeds, is_packed=is_packed), _bounds(texts)]
    weighs = any(m.weights is not None for m in micro_batches)
    if weighs:
        scales = [token_scales(m) for m in micro_batches]
        packed = [x[text] for x, text in zip(scales, is_text[1], strict=True)]
        arrays.append(np.concatenate(packed)[None] if is_packed else scales[0])
    longest = [max(int(text.sum(1).max()) if is_packed else text.shape[1] for text in texts) for texts in is_text]
    staged = Staged(arrays, device)

    def send() -> DeviceBatch:
        source, target_input, target_output, *places = staged.send()
        sides = [
            Side(places=places[2 * i], bounds=places[2 * i + 1] if is_packed else None, longest=longest[i])
            for i in range(2)
        ]
        return DeviceBatch(
            source=source,
            target_input=target_input,
            target_output=target_output,
            layout=Layout(source=sides[0], target=sides[1], kind=kind),
            scales=places[-1] if weighs else None,
        )

    return send


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
