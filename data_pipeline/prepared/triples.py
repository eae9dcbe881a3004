"""Triples: a source, a chosen and a rejected translation, stored as one pair.

The stored target is the chosen translation, EOS, and the rejected one, the shorter of both filled up with EOS: two
halves of one length L, 2 L + 1 pieces. So whatever a dataset, its order and its budgets promise of pairs holds of
triples: with the EOS at the end, it takes twice L + 1 tokens, as two rows of L pieces do.
"""

from collections.abc import Sequence

from data_pipeline.tokenizer import EOS_ID


def joined(chosen: Sequence[int], rejected: Sequence[int]) -> list[int]:
    """The target that is stored, of the pieces of both translations."""
    length = max(len(chosen), len(rejected))
    ends = [[EOS_ID] * (length - len(one)) for one in (chosen, rejected)]
    return [*chosen, *ends[0], EOS_ID, *rejected, *ends[1]]


def longest_half(longest: int) -> int:
    """Target tokens of the longest row, EOS included, where the longest stored target has so many pieces."""
    return (longest + 1) // 2
