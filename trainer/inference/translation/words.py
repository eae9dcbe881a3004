"""From pieces to words: hard alignments in the format of Pharaoh and fast_align."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.tag_pieces import WORD_BEGIN
from data_pipeline.tokenizer import UNKNOWN_PIECE
from model.search.alignment import Weights, align_words, default_layer


@dataclass(kw_only=True, slots=True, frozen=True)
class Attention:
    """What one translation looked at."""

    weights: Weights
    """(layers, T + 1, S): see `model.search.alignment.cross_attention`."""
    source_pieces: list[str]
    """S of them, EOS among them."""
    target_pieces: list[str]
    """T of them, without EOS."""
    has_tags: bool = False
    """The first piece of either side is a language's tag, which stands in no text."""
    is_reference: bool = False
    """The target was given, and is no translation of the model's."""


def word_numbers(pieces: Sequence[str], *, is_source: bool) -> list[int]:
    """The number of the word that each piece belongs to, words being what stands between spaces; -1 for none.

    Args:
        pieces: as the vocabulary spells them.
        is_source: the last piece is EOS; an unknown piece is part of its word, while among the pieces of a
            translation it is written as a word of its own.
    """
    numbers: list[int] = []
    word, is_new = -1, True
    for piece in pieces[: len(pieces) - is_source]:
        stands_alone = piece.startswith(">>") or (piece == UNKNOWN_PIECE and not is_source)
        is_new = is_new or stands_alone or piece.startswith(WORD_BEGIN)
        has_text = bool(piece.strip(WORD_BEGIN))
        if has_text and is_new:
            word += 1
        numbers.append(word if has_text else -1)
        is_new = stands_alone or (is_new and not has_text)
    return [*numbers, -1] if is_source else numbers


def pharaoh(attention: Attention, layer: int | None = None) -> str:
    """`i-j` for each target word j and the source word i that it looks at most, counted from 0, by target word.

    Args:
        layer: of the decoder, from 1; see `default_layer` for None.
    """
    tags = int(attention.has_tags)
    weights_TS = attention.weights[(layer or default_layer(len(attention.weights))) - 1, 1 + tags :, tags:]
    pairs = align_words(
        weights_TS,
        word_numbers(attention.source_pieces[tags:], is_source=True),
        word_numbers(attention.target_pieces[tags:], is_source=False),
    )
    return " ".join(f"{i}-{j}" for i, j in pairs)
