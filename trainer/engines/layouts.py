"""From one or several micro-batches to one forward pass on the device, with where each of its tokens stands.

For kernels that know a `model.layout.Layout`. Shapes: N tokens of a side, R pairs, of all lanes together.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.phase_data import WEIGHT_ONE
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model.layout import PACKED, Layout, LayoutKind, Side
from trainer.engines.batches import DeviceBatch

ALIGNMENT = 16
"""Bytes: arrays that are copied as one begin at multiples of this."""


def full_batch(rows: int, source: int, target: int, device: torch.device, kind: LayoutKind) -> DeviceBatch:
    """One without padding, to see whether its shape fits the memory."""
    ids = np.full((rows, max(source, target)), EOS_ID)
    micro_batch = MicroBatch(
        lane=0,
        dataset=0,
        pair_ids=np.arange(rows),
        source=ids[:, :source],
        target_input=ids[:, :target],
        target_output=ids[:, :target],
    )
    return stage([micro_batch], [0], device, kind=kind)()


def to_device(micro_batch: MicroBatch, device: torch.device) -> DeviceBatch:
    """A micro-batch for modules that do not know where its tokens stand."""
    return stage([micro_batch], [0], device, kind="none")()


def stage(
    micro_batches: Sequence[MicroBatch], seeds: Sequence[int], device: torch.device, *, kind: LayoutKind
) -> Callable[[], DeviceBatch]:
    """Have micro-batches ready as one pass; what is returned sends it.

    Args:
        micro_batches: of different lanes; at most one, unless rows are packed.
        seeds: of each one's dropout.
        device: where they go, in one copy for which the host does not wait.
        kind: of the layout; packed, ids are (1, N).
    """
    if not micro_batches:
        return partial(_empty_batch, device)
    is_packed = kind in PACKED
    assert is_packed or len(micro_batches) == 1, "padded lanes have different lengths"
    is_text = [[m.source != PAD_ID for m in micro_batches], [m.target_output != PAD_ID for m in micro_batches]]

    def joined(arrays: list[NDArray[Any]], side: int) -> NDArray[Any]:
        if not is_packed:
            return arrays[0]
        return np.concatenate([array[text] for array, text in zip(arrays, is_text[side], strict=True)])[None]

    arrays = [
        joined([m.source for m in micro_batches], 0),
        joined([m.target_input for m in micro_batches], 1),
        joined([m.target_output for m in micro_batches], 1),
    ]
    weighs = any(m.weights is not None for m in micro_batches)
    if weighs:
        arrays.append(joined([_token_scales(m) for m in micro_batches], 1))
    for texts in is_text if kind != "none" else ():
        arrays += [_places(texts, seeds, is_packed=is_packed), _bounds(texts)]
    longest = [max(int(text.sum(1).max()) if is_packed else text.shape[1] for text in texts) for texts in is_text]
    send_arrays = _staged(arrays, device)

    def send() -> DeviceBatch:
        source, target_input, target_output, *more = send_arrays()
        scales = more.pop(0) if weighs else None
        layout = None
        if more:
            sides = [
                Side(places=more[2 * i], bounds=more[2 * i + 1] if is_packed else None, longest=longest[i])
                for i in range(2)
            ]
            layout = Layout(source=sides[0], target=sides[1], kind=kind)
        return DeviceBatch(
            source=source, target_input=target_input, target_output=target_output, layout=layout, scales=scales
        )

    return send


def _empty_batch(device: torch.device) -> DeviceBatch:
    """One token of weight 0 for lanes that are dry: collectives need a forward and backward pass of every rank."""
    bos, eos = (torch.full((1, 1), token, device=device) for token in (BOS_ID, EOS_ID))
    return DeviceBatch(source=eos, target_input=bos, target_output=eos)


def _token_scales(micro_batch: MicroBatch) -> NDArray[np.float32]:
    """(B, T): the weight of each target token, and of the padding behind them."""
    ones = np.ones(micro_batch.target_output.shape, dtype=np.float32)
    if micro_batch.weights is None:
        return ones
    return ones * (micro_batch.weights[:, None] / WEIGHT_ONE).astype(np.float32)


def _places(texts: Sequence[NDArray[np.bool_]], seeds: Sequence[int], *, is_packed: bool) -> NDArray[np.int32]:
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


def _staged(arrays: Sequence[NDArray[Any]], device: torch.device) -> Callable[[], list[torch.Tensor]]:
    """Have arrays ready; what is returned sends them to a device, as one copy out of pinned memory."""
    arrays = [np.ascontiguousarray(array) for array in arrays]
    if device.type == "cpu":
        return lambda: [torch.from_numpy(array) for array in arrays]
    starts = np.cumsum([0, *(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)])
    together = np.zeros(starts[-1], dtype=np.uint8)
    for array, start in zip(arrays, starts, strict=False):
        together[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    pinned = torch.from_numpy(together).pin_memory()

    def send() -> list[torch.Tensor]:
        memory = pinned.to(device, non_blocking=True)
        return [
            memory[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
            for array, start in zip(arrays, starts, strict=False)
        ]

    return send
