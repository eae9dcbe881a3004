"""What passes between the trainer and its engine: micro-batches on their way to the device, and what a step came to."""

import dataclasses
import hashlib
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_pipeline.order.randomness import GOLDEN, mixed
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.phase_data import WEIGHT_ONE
from data_pipeline.tokenizer import PAD_ID
from model.layout import Layout

Losses = Mapping[tuple[int, ...], torch.Tensor]
"""A rank's passes in an update, by the lanes that went through the model as one: (2,), sums of loss and negative
log-likelihood."""


@dataclass(slots=True, frozen=True)
class UpdateCounts:
    """Totals of micro-batches: of a rank's, of an update's over all ranks, or of several updates'.

    A message between ranks has the fields as integers, in this order: `numbers`, and `UpdateCounts(*numbers)`.
    """

    target_tokens: int = 0
    source_tokens: int = 0
    padded_tokens: int = 0
    """Tokens of both sides, padding included."""
    pairs: int = 0
    micro_batches: int = 0
    """Micro-batches that are not empty."""
    pairs_digest: int = 0
    """Order-free hash of which pair is in which micro-batch, and of augmented pairs' tokens: equal if updates are."""
    weight_units: int = 0
    """Sum of the target tokens' weights, in units of `phase_data.WEIGHT_ONE`: exact, in any order."""

    def numbers(self) -> list[int]:
        """The fields as integers for an all-reduce: each is summed."""
        return list(dataclasses.astuple(self))

    @property
    def has_weight(self) -> bool:
        """False if all pairs have weight 0, so that there is nothing to learn from them."""
        return self.weight_units > 0 or self.target_tokens == 0

    @property
    def divisor(self) -> float:
        """What the sum of an update's losses is divided by: the sum of its target tokens' weights; never 0."""
        return self.weight_units / WEIGHT_ONE or 1.0

    def __add__(self, other: "UpdateCounts") -> "UpdateCounts":
        """Of both; the digest is not wrapped."""
        return UpdateCounts(*map(operator.add, self.numbers(), other.numbers()))


@dataclass(kw_only=True, slots=True, frozen=True)
class Update:
    """This rank's part of an update, and totals of the whole."""

    epoch: int
    number: int
    """Within the epoch."""
    micro_batches: list[MicroBatch | None]
    seconds_step: int
    """Updates done when it was fetched."""
    counts: UpdateCounts = UpdateCounts()
    """Over all ranks."""
    seconds: float = 0.0
    """Seconds of the run when it was fetched, by rank 0's clock."""


def count(micro_batches: Sequence[MicroBatch | None]) -> UpdateCounts:
    """Totals of one rank's micro-batches."""
    filled = [m for m in micro_batches if m is not None]
    target_tokens = [m.num_target_tokens for m in filled]
    return UpdateCounts(
        target_tokens=sum(target_tokens),
        source_tokens=sum(m.num_source_tokens for m in filled),
        padded_tokens=sum(m.num_padded_source + m.num_padded_target for m in filled),
        pairs=sum(m.num_pairs for m in filled),
        micro_batches=len(filled),
        pairs_digest=wrap(sum(pairs_digest(m.lane, m.pair_ids) + tokens_digest(m) for m in filled)),
        weight_units=sum(weight_units(m, tokens) for m, tokens in zip(filled, target_tokens, strict=True)),
    )


def weight_units(micro_batch: MicroBatch, target_tokens: int) -> int:
    """Sum of the target tokens' weights, in units; `target_tokens` is their number."""
    if micro_batch.weights is None:
        return target_tokens * WEIGHT_ONE
    return int(micro_batch.weights @ np.count_nonzero(micro_batch.target_output != PAD_ID, axis=1))


def pairs_digest(lane: int, pair_ids: NDArray[np.int64]) -> int:
    """A 64-bit sum over the pairs of a hash of (lane, pair): SplitMix64's finaliser (Steele et al., 2014)."""
    with np.errstate(over="ignore"):
        return int(mixed(pair_ids.astype(np.uint64) + _multiple(lane + 1)).sum(dtype=np.uint64))


def tokens_digest(micro_batch: MicroBatch) -> int:
    """A 64-bit sum over the pairs of a hash of (lane, pair, tokens); 0 where `stream.augment` changes none."""
    if not micro_batch.is_augmented:
        return 0
    with np.errstate(over="ignore"):
        row = mixed(micro_batch.pair_ids.astype(np.uint64) + _multiple(micro_batch.lane + 1))
        for tokens in (micro_batch.source, micro_batch.target_output):
            places = np.arange(tokens.shape[1], dtype=np.uint64) * _multiple(1)
            hashes = mixed(tokens.astype(np.uint64) + places) * (tokens != PAD_ID).astype(np.uint64)
            row = mixed(row + hashes.sum(axis=1, dtype=np.uint64))
        return int(row.sum(dtype=np.uint64))


def _multiple(number: int) -> np.uint64:
    """A multiple of SplitMix64's increment, modulo 2 ** 64."""
    return np.uint64(number * int(GOLDEN) & (2**64 - 1))


def wrap(number: int) -> int:
    """As a signed 64-bit integer, wrapped as an all-reduce wraps."""
    return (number + 2**63) % 2**64 - 2**63


def micro_batch_seed(seed: int, epoch: int, update: int, lane: int) -> int:
    """The seed of a micro-batch's dropout. It does not depend on the rank, so any world size draws the same."""
    packed = struct.pack("<4q", seed, epoch, update, lane)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1


Shape = tuple[int, int, int]
"""Shape of a micro-batch: rows, padded source length, padded target length."""


@dataclass(kw_only=True, slots=True, frozen=True)
class DeviceBatch:
    """What goes through the model at once, on the device: source (B, S), target with BOS (B, T) and with EOS (B, T).

    Packed, (1, N) each.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    layout: Layout | None = None
    """Where the tokens stand, for kernels that know it."""
    scales: Tensor | None = None
    """(B, T) or (1, N) in fp32: weights of the targets' losses; None: all 1."""

    def arguments(self) -> tuple[Any, ...]:
        """Those of `Objective.forward`; the layout is among them only if there is one: plain objectives take none."""
        layout = () if self.layout is None else (self.layout,)
        return self.source, self.target_input, self.target_output, *layout


class HostCopy:
    """A copy of a tensor to the host, made behind what the device has been given so far.

    Read it once the device has been given more to do: a read that comes too early waits, but the device continues.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Begin it."""
        self._tensor = tensor.detach()
        self._event: torch.Event | None = None
        if tensor.device.type != "cpu":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
            self._tensor.copy_(tensor.detach(), non_blocking=True)
            self._event = torch.get_device_module(tensor.device).Event()
            self._event.record()

    def read(self) -> Tensor:
        """The copy, complete."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensor


class StepResult:
    """The outcome of an update. The device may not have made it yet: a reader that comes too early waits."""

    def __init__(self, *, grad_norm: Tensor | float | Callable[[], Tensor], applied: bool | None = None) -> None:
        """Of a step that was made, or that the device decides on.

        Args:
            grad_norm: the property, or what reads it from the device.
            applied: the property; None if the norm tells.
        """
        self._grad_norm = grad_norm
        self._applied = applied

    @property
    def applied(self) -> bool:
        """False if a gradient was not finite; then no rank changed anything."""
        return math.isfinite(float(self.grad_norm)) if self._applied is None else self._applied

    @property
    def grad_norm(self) -> Tensor | float:
        """Global L2 norm of the gradient before clipping; infinite or NaN if the update was not applied."""
        if callable(self._grad_norm) and not isinstance(self._grad_norm, Tensor):
            self._grad_norm = self._grad_norm()
        return self._grad_norm


class NotFiniteError(Exception):
    """Nothing can be trained with an engine's weights: what a pass computes with them is not finite."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ParameterState:
    """One whole parameter in fp32, with its optimizer states (None before the first step, none of a frozen one)."""

    name: str
    weight: Tensor
    moments: dict[str, Tensor] | None
    ema: Tensor | None = None
    """Its exponential moving average; None if none is kept, or before the first update or trial."""
