"""Triples in the stream: a row for the chosen and one for the rejected translation, each with the source.

The two targets of a triple are planned as one stored target (`data_pipeline.prepared.triples`), of which the rows take
as many tokens. Of the source the plan counts one, and of rows; so these get half the budget.
"""

import dataclasses

import numpy as np

from configs import StreamSection
from data_pipeline.stream.batch import Ids, MicroBatch
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID


def halved(section: StreamSection) -> StreamSection:
    """The budgets in which triples are planned, so that their rows keep within those of the section."""
    return dataclasses.replace(
        section, source_tokens=max(1, section.source_tokens // 2), max_rows=max(1, section.max_rows // 2)
    )


def as_rows(stored: MicroBatch) -> MicroBatch:
    """Two rows for each triple, the chosen translation and then the rejected one.

    Args:
        stored: B triples, as their dataset has them.

    Returns:
        2 B rows of at most half the length, rounded up; each pair's number stands twice.
    """
    target_BT = stored.target_output
    length_B1 = np.count_nonzero(target_BT != PAD_ID, axis=1)[:, None] // 2
    columns_T = np.arange(-(-target_BT.shape[1] // 2))
    halves = [_half(target_BT, columns_T + begin, columns_T < length_B1) for begin in (0, length_B1)]
    target_output = np.stack(halves, axis=1).reshape(-1, len(columns_T))
    target_input = np.full_like(target_output, PAD_ID)
    target_input[:, 0] = BOS_ID
    is_before_last = (target_output[:, :-1] != EOS_ID) & (target_output[:, :-1] != PAD_ID)
    target_input[:, 1:][is_before_last] = target_output[:, :-1][is_before_last]
    return dataclasses.replace(
        stored,
        pair_ids=stored.pair_ids.repeat(2),
        source=stored.source.repeat(2, axis=0),
        target_input=target_input,
        target_output=target_output,
        has_triples=True,
    )


def _half(target_BT: Ids, columns: Ids, is_in: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ids:
    """Some columns of each row, up to its first EOS."""
    places = np.broadcast_to(np.minimum(columns, target_BT.shape[1] - 1), is_in.shape)
    half = np.take_along_axis(target_BT, places, axis=1)
    is_end = half == EOS_ID
    is_behind = np.cumsum(is_end, axis=1) - is_end > 0
    return np.where(is_in & ~is_behind, half, PAD_ID)
