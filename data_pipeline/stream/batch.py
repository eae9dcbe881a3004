"""A micro-batch, and how rows of tokens become one.

Shapes: B pairs, S padded source length, T padded target length.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID

Ids = NDArray[np.int64]
Pieces = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The pairs of one micro-batch, padded with `PAD_ID` on the right."""

    lane: int
    """Number of the micro-batch within its update, from 0 to K - 1."""
    dataset: int
    """Number of the dataset among all of the run; 0 where there is one."""
    pair_ids: Ids
    """(B,): rows of the length tables of all datasets, one table after the other."""
    source: Ids
    """(B, S): each row ends with `EOS_ID`."""
    target_input: Ids
    """(B, T): each row starts with `BOS_ID`."""
    target_output: Ids
    """(B, T): each row ends with `EOS_ID`; position t is what `target_input` up to t predicts."""
    is_augmented: bool = False
    """Whether their dataset has modifiers."""
    weights: Ids | None = None
    """(B,): what each row's loss is multiplied by, in units of `phase_data.WEIGHT_ONE`; None: 1."""

    @property
    def num_pairs(self) -> int:
        """B."""
        return len(self.pair_ids)

    @property
    def num_source_tokens(self) -> int:
        """Source tokens without padding, with EOS."""
        return int(np.count_nonzero(self.source != PAD_ID))

    @property
    def num_target_tokens(self) -> int:
        """Target tokens to predict, EOS among them."""
        return int(np.count_nonzero(self.target_output != PAD_ID))

    @property
    def num_padded_source(self) -> int:
        """B * S, padding included."""
        return self.source.size

    @property
    def num_padded_target(self) -> int:
        """B * T, padding included."""
        return self.target_output.size


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of raw pieces of different lengths, within one array."""

    pieces: Pieces
    starts: Ids
    """(rows,): row r is pieces[starts[r] : starts[r] + lengths[r]]."""
    lengths: Ids
    """(rows,)."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Pieces]) -> "Ragged":
        """The same rows, copied one after the other."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        pieces = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.uint32, count=int(lengths.sum()))
        return cls(pieces, np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> Pieces:
        start = int(self.starts[row])
        return self.pieces[start : start + int(self.lengths[row])]

    def rows(self, numbers: Ids) -> "Ragged":
        """Some rows, nothing copied."""
        return Ragged(self.pieces, self.starts[numbers], self.lengths[numbers])


def collate(
    lane: int,
    pair_ids: Ids,
    sources: Ragged,
    targets: Ragged,
    length_multiple: int,
    *,
    dataset: int = 0,
    is_augmented: bool = False,
) -> MicroBatch:
    """Pad pairs of raw pieces (no special ids) to one micro-batch.

    Args:
        lane: number of the micro-batch within its update.
        pair_ids: (B,).
        sources: B rows.
        targets: B rows.
        length_multiple: S and T are rounded up to a multiple of it.
        dataset: number of the dataset in the mixture.
        is_augmented: see MicroBatch.
    """
    target_output = _pad(targets, length_multiple)
    target_input = np.empty_like(target_output)
    target_input[:, 0] = BOS_ID
    target_input[:, 1:] = target_output[:, :-1]
    is_shorter = np.flatnonzero(targets.lengths + 1 < target_input.shape[1])
    target_input[is_shorter, targets.lengths[is_shorter] + 1] = PAD_ID  # where EOS came to stand
    return MicroBatch(
        lane=lane,
        dataset=dataset,
        pair_ids=np.asarray(pair_ids, dtype=np.int64),
        source=_pad(sources, length_multiple),
        target_input=target_input,
        target_output=target_output,
        is_augmented=is_augmented,
    )


def _pad(rows: Ragged, multiple: int) -> Ids:
    """(B, longest + 1 rounded up): each row with EOS, then padding."""
    columns = np.arange(-(-(int(rows.lengths.max()) + 1) // multiple) * multiple)
    lengths = rows.lengths[:, None]
    pieces = rows.pieces if len(rows.pieces) else np.zeros(1, dtype=np.uint16)
    padded = pieces.take(rows.starts[:, None] + columns, mode="clip").astype(np.int64)
    padded[columns >= lengths] = PAD_ID
    padded[columns == lengths] = EOS_ID
    return padded
