"""Vocabularies against one another: which pieces two of them share, and how one cuts the pieces of the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from data_pipeline.tag_pieces import WORD_BEGIN, tag_of
from data_pipeline.tokenizer import UNK_ID, Side, Tokenizer

_BYTE = 6
"""SentencePiece's type of a byte's piece, such as `<0x41>`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Match:
    """Where each piece of a new vocabulary is in an old one."""

    kept: Mapping[int, int]
    """By its id, that of the same piece in the old one."""
    cut: Mapping[int, Sequence[int]]
    """By its id, the old pieces that its text is cut into."""
    unknown: Sequence[int]
    """Ids of those whose text the old one cannot spell."""

    def counts(self) -> dict[str, int]:
        """How many there are of each."""
        return {"kept": len(self.kept), "averaged": len(self.cut), "new": len(self.unknown)}


def widest(tokenizers: Sequence[Tokenizer]) -> Tokenizer | None:
    """The one of several tokenizers that has all tags of the others, which are the same but for spare pieces that those
    tags have taken; None where there is none."""
    return next((one for one in tokenizers if all(one.extends(other) for other in tokenizers)), None)


def match(old: Tokenizer, new: Tokenizer, side: Side) -> Match:
    """Find the pieces of one side of a new tokenizer in an old one's.

    The four special pieces are one another's, and a tag that has taken the place of a spare piece has that one's row. A
    tag is the old tag of the same language, by whatever code; one of another language is cut into all tags that the old
    one has: what they have in common is that they are tags. Any other piece that the old one has not is cut as the old
    one cuts its text where it stands, within a word or at its beginning; what is unknown of that is passed over.

    Args:
        old, new: the tokenizers.
        side: whose vocabulary.
    """
    if new.extends(old):
        size = new.source_vocab_size if side == "source" else new.target_vocab_size
        return Match(kept={number: number for number in range(size)}, cut={}, unknown=[])
    before, now = (_Vocabulary.of(tokenizer, side) for tokenizer in (old, new))
    ids = {piece: number for number, piece in enumerate(before.pieces)}
    tags = [old.tag_id(tag) for tag in old.tags] if side == "source" or old.is_joint else []
    kept: dict[int, int] = {}
    rest: dict[int, Sequence[int]] = {}
    texts: dict[int, str] = {}
    for number, piece in enumerate(now.pieces):
        tag = tag_of(piece) if now.is_control(number) else None
        same = old.tags_of(tag[2:-2]) if tag is not None and tags else []
        if number <= UNK_ID:
            kept[number] = number
        elif piece in ids:
            kept[number] = ids[piece]
        elif len(same) == 1:
            kept[number] = old.tag_id(same[0])
        elif tag is not None:
            rest[number] = tags
        elif (text := now.text(number)) is not None:
            texts[number] = text
        else:
            rest[number] = []
    rest |= dict(zip(texts, before.cut(list(texts.values())), strict=True))
    return Match(
        kept=kept,
        cut={number: cut for number, cut in sorted(rest.items()) if cut},
        unknown=[number for number, cut in sorted(rest.items()) if not cut],
    )


@dataclass(slots=True)
class _Vocabulary:
    """One side of a tokenizer."""

    pieces: Sequence[str]
    proto: Any

    @classmethod
    def of(cls, tokenizer: Tokenizer, side: Side) -> "_Vocabulary":
        proto = tokenizer.proto(side)
        return cls([piece.piece for piece in proto.pieces], proto)

    def is_control(self, number: int) -> bool:
        """Whether text never becomes this piece."""
        return bool(self.proto.pieces[number].type == sentencepiece_model_pb2.ModelProto.SentencePiece.CONTROL)

    def text(self, number: int) -> str | None:
        """What a piece stands for, a word's beginning as a space; None where it stands for no text of its own."""
        piece = self.proto.pieces[number]
        if self.is_control(number):
            return None
        if piece.type != _BYTE:
            return str(piece.piece).replace(WORD_BEGIN, " ")
        byte = int(piece.piece[3:-1], 16)
        return chr(byte) if byte < 128 else None  # any other is part of a character

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of texts as they stand, without a space that SentencePiece puts before a line; no unknown ones."""
        bare: Any = sentencepiece_model_pb2.ModelProto()
        bare.CopyFrom(self.proto)
        bare.normalizer_spec.add_dummy_prefix = False
        bare.normalizer_spec.remove_extra_whitespaces = False
        processor = sentencepiece.SentencePieceProcessor()
        if not processor.load_from_serialized_proto(bare.SerializeToString(deterministic=True)):
            raise UserError("tokenizer: is no SentencePiece model")
        rows: list[list[int]] = processor.encode(list(texts), out_type=int, num_threads=1)
        return [[number for number in row if number != UNK_ID] for row in rows]
