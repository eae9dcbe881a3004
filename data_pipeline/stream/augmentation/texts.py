"""Pairs from pieces to text, through the modifiers, and back."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.components import Draws, MergingModifier, Modifier, TextModifier
from data_pipeline.stream.augmentation.vocabulary import Vocabulary
from data_pipeline.stream.batch import Ragged
from data_pipeline.tokenizer import UNK_ID, Tokenizer

Text = tuple[tuple[list[int], list[int]], tuple[str, str]]
"""The tags before source and target, and both sides' texts behind them."""


class PairTexts:
    """The texts of pairs by way of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocabularies: Sequence[Vocabulary]) -> None:
        """See the class.

        Args:
            tokenizer: whose pieces they have.
            vocabularies: of both sides, or the one of both.
        """
        self._tokenizer = tokenizer
        self._is_control = [set(np.flatnonzero(v.is_control).tolist()) for v in (vocabularies[0], vocabularies[-1])]

    def decode(self, numbers: NDArray[np.int64], source: Ragged, target: Ragged) -> dict[int, Text]:
        """The texts of some rows, by row. Rows are missing that hold an unknown piece, or whose text begins with what
        looks like a tag: encoding it again would make it one.
        """
        rows = numbers.tolist()
        sides: list[tuple[list[list[int]], list[str], list[bool]]] = []
        for side, all_rows in enumerate((source, target)):
            decode = (self._tokenizer.decode_source, self._tokenizer.decode_target)[side]
            pieces = [all_rows[row].tolist() for row in rows]
            tags = [self._num_tags(row, side) for row in pieces]
            texts = decode([row[n:] for n, row in zip(tags, pieces, strict=True)])
            is_known = [
                UNK_ID not in row and (side == 1 or self._tokenizer.cut_tag(text)[0] is None)
                for row, text in zip(pieces, texts, strict=True)
            ]
            sides.append(([row[:n] for n, row in zip(tags, pieces, strict=True)], texts, is_known))
        (before, texts, known), (target_before, target_texts, target_known) = sides
        return {
            row: ((before[n], target_before[n]), (texts[n], target_texts[n]))
            for n, row in enumerate(rows)
            if known[n] and target_known[n]
        }

    def changed(self, modifier: Modifier, text: Text, neighbour: Text | None, state: int) -> Text:
        """A pair after a modifier. A tag that it puts first goes to the tags, which later ones leave alone."""
        tags, pair = text
        if isinstance(modifier, MergingModifier):
            return text if neighbour is None else (tags, modifier.merge(pair, neighbour[1], Draws(state)))
        assert isinstance(modifier, TextModifier)
        source, target = modifier.change(*pair, Draws(state))
        tag, source = self._tokenizer.cut_tag(source)
        return (tags if tag is None else ([*tags[0], tag], tags[1])), (source, target)

    def encode(self, texts: Sequence[Text]) -> tuple[tuple[Ragged, Ragged], NDArray[np.bool_]]:
        """The pieces of pairs, and whether each has some on both sides and no unknown one."""
        encoded = []
        is_spelled = np.ones(len(texts), dtype=bool)
        for side, encode in enumerate((self._tokenizer.encode_source, self._tokenizer.encode_target)):
            rows = encode([pair[side] for _, pair in texts])
            is_spelled &= np.array([bool(row) and UNK_ID not in row for row in rows], dtype=bool)
            encoded.append(Ragged.of([tags[side] + row for (tags, _), row in zip(texts, rows, strict=True)]))
        return (encoded[0], encoded[1]), is_spelled

    def _num_tags(self, row: Iterable[int], side: int) -> int:
        count = 0
        for piece in row:
            if piece not in self._is_control[side]:
                break
            count += 1
        return count


def check_spelling(modifier: Modifier, tokenizer: Tokenizer, where: str) -> None:
    """Refuse a modifier that brings in what the tokenizer has no pieces for.

    Raises:
        UserError: naming the characters, or the tag.
    """
    if not isinstance(modifier, TextModifier):
        return
    encoders = (tokenizer.encode_source, tokenizer.encode_target)
    for side, texts, encode in zip(("source", "target"), modifier.brings_in(), encoders, strict=True):
        wanted = sorted(set(texts))
        missing = [a for a, row in zip(wanted, encode(wanted), strict=True) if not row or UNK_ID in row]
        if missing:
            raise UserError(
                f"{where}: the {side} vocabulary has no pieces for {' '.join(missing[:5])}"
                f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}; prepare the data with "
                "prepare.tokenizer.byte_fallback=true, or name other characters, or leave it out"
            )
    if tags := tokenizer.tags_that_are_text(modifier.brings_in()[0]):
        raise UserError(
            f"{where}: {min(tags)} is no piece of the tokenizer, whose tags are "
            f"{', '.join(tokenizer.tags) or 'none'}; prepare the data with it in prepare.tokenizer.tags"
        )
