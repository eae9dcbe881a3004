"""Micro-batches on their way from the reader to the device, and the seed of each."""

import dataclasses
import hashlib
import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from data_pipeline.order.randomness import GOLDEN, mixed
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.pair_weights import WEIGHT_ONE
from data_pipeline.tokenizer import PAD_ID

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
    augmented: int = 0
    """Pairs that `stream.augment` changed."""
    fell_back: int = 0
    """Pairs that it should have changed but could not."""
    weight_units: int = 0
    """Sum of the target tokens' weights, in units of `pair_weights.WEIGHT_ONE`: exact, in any order."""

    def numbers(self) -> list[int]:
        """The fields as integers for an all-reduce: each is summed."""
        return list(dataclasses.astuple(self))

    @property
    def has_weight(self) -> bool:
        """False if all pairs have weight 0, so that there is nothing to learn from them."""
        return self.weight_units > 0 or self.target_tokens == 0

    def divisor(self, normalize_by: Literal["weights", "tokens"]) -> float:
        """What the sum of an update's losses is divided by: that of its weights, or its target tokens; never 0."""
        total = self.weight_units / WEIGHT_ONE if normalize_by == "weights" else float(self.target_tokens)
        return total or 1.0

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
        augmented=sum(m.num_augmented or 0 for m in filled),
        fell_back=sum(m.num_fell_back for m in filled),
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
    if micro_batch.num_augmented is None:
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
