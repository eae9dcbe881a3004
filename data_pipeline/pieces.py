"""The special pieces of a SentencePiece model: language tags, each one piece before a text, and those of training.

In this project's files a tag is the control symbol `>>fra<<`, which SentencePiece never cuts from a text: the tokenizer
takes tags at the beginning of a line alone. Where others are to encode `>>fra<< A dog` with SentencePiece alone, as
with what is exported for CTranslate2, it is the user-defined symbol `\u2581>>fra<<`, spelled as the first piece of a
word. Piece by piece the two are one vocabulary.
"""

import re
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

WORD_BEGIN = "\u2581"
"""What SentencePiece writes in place of a space."""
TAG = re.compile(r">>[^<>\s]{1,32}<<")
"""A target-language tag. Where the source model has it as a piece of its own, it has meaning at the start of a line."""
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece


def cut_tag(line: str) -> tuple[str, str]:
    """The tag that a source line begins with and the space behind it, empty where there is none; and the rest."""
    match = TAG.match(line)
    end = 0 if match is None else match.end() + line[match.end() :].startswith(" ")
    return line[:end], line[end:]


def as_symbols(model: bytes) -> bytes:
    """The model with its tags as user-defined symbols; models without tags as they are."""
    return _retyped(model, _PIECE.USER_DEFINED, WORD_BEGIN)


def as_controls(model: bytes, *, begin: str = "") -> bytes:
    """The model with its tags as control symbols, spelled with `begin` before them; without tags as it is."""
    return _retyped(model, _PIECE.CONTROL, begin)


def tag_of(piece: str) -> str | None:
    """The tag that a piece is, however it is spelled; None for other pieces."""
    tag = piece.removeprefix(WORD_BEGIN)
    return tag if TAG.fullmatch(tag) else None


def _retyped(model: bytes, type_: int, begin: str) -> bytes:
    if b">>" not in model:  # spares most models the reading
        return model
    proto: Any = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError:  # no model at all, which its reader says
        return model
    others = [p for p in proto.pieces if _is_tag(p) and (p.piece, p.type) != (f"{begin}{tag_of(p.piece)}", type_)]
    for piece in others:
        piece.piece, piece.type = f"{begin}{tag_of(piece.piece)}", type_
    content: bytes = proto.SerializeToString(deterministic=True) if others else model
    return content


def _is_tag(piece: Any) -> bool:
    """A control symbol, or a user-defined one that begins a word: another stands for what it says in any text."""
    is_symbol = piece.type == _PIECE.USER_DEFINED and piece.piece.startswith(WORD_BEGIN)
    return (is_symbol or piece.type == _PIECE.CONTROL) and tag_of(piece.piece) is not None
