"""Hard word alignments from attention, in the format of Pharaoh and fast_align."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.tag_pieces import WORD_BEGIN
from data_pipeline.tokenizer import UNKNOWN_PIECE
from model.search.alignment import Weights, align_words, default_layer


@dataclass(kw_only=True, slots=True, frozen=True)
class Attention:
    """The attention of one translation."""

    weights: Weights
    """(layers, T + 1, S): see `model.search.alignment.cross_attention`."""
    source_pieces: list[str]
    """S pieces, with EOS."""
    target_pieces: list[str]
    """T pieces, without EOS."""
    source_words: list[int]
    """The number of each source piece's word in its line, without the tag of `has_tags`; -1 for none."""
    target_words: list[int]
    """Likewise of each target piece."""
    has_tags: bool = False
    """The first piece of either side is a language tag, which is not part of the text."""
    is_reference: bool = False
    """The target was given; the model did not generate it."""


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The number of the word that each piece of a translation belongs to, words being separated by spaces; -1 for none.

    An unknown piece is written as a word of its own.
    """
    numbers: list[int] = []
    word, is_new = -1, True
    for piece in pieces:
        stands_alone = piece.startswith(">>") or piece == UNKNOWN_PIECE
        is_new = is_new or stands_alone or piece.startswith(WORD_BEGIN)
        has_text = bool(piece.strip(WORD_BEGIN))
        if has_text and is_new:
            word += 1
        numbers.append(word if has_text else -1)
        is_new = stands_alone or (is_new and not has_text)
    return numbers


def pharaoh(attention: Attention, layer: int | None = None) -> str:
    """`i-j` for each target word j, i being the source word with its highest attention; counted from 0.

    Args:
        layer: of the decoder, from 1; see `default_layer` for None.
    """
    tags = int(attention.has_tags)
    weights_TS = attention.weights[(layer or default_layer(len(attention.weights))) - 1, 1 + tags :, tags:]
    pairs = align_words(weights_TS, attention.source_words, attention.target_words)
    return " ".join(f"{i}-{j}" for i, j in pairs)
