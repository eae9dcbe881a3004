"""The special pieces of a SentencePiece model: language tags, each one piece before a text, and those of training.

In this project's files a tag is the control symbol `>>fra<<`, which SentencePiece never cuts from a text: the tokenizer
takes tags at the beginning of a line alone. Where others are to encode `>>fra<< A dog` with SentencePiece alone, as
with what is exported for CTranslate2, it is the user-defined symbol `\u2581>>fra<<`, spelled as the first piece of a
word. Piece by piece the two are one vocabulary.

Models that others have trained are `fitted`: the special pieces are put first, in this project's order. A piece's id is
its place in the model, and no text is cut by places: moving pieces, or adding those that no text has, changes only ids.
So SentencePiece's own ids (unk 0, bos 1, eos 2, no pad), Marian's (eos 0, unk 1) and T5's (pad 0, eos 1, unk 2) are all
taken.
"""

import re
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from configs import UserError

WORD_BEGIN = "\u2581"
"""What SentencePiece writes in place of a space."""
TAG = re.compile(r">>[^<>\s]{1,32}<<")
"""A target-language tag. Where the source model has it as a piece of its own, it has meaning at the start of a line."""
SPECIAL = ("pad", "bos", "eos", "unk")
"""In the order of their ids, from 0."""
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


def fitted(model: bytes, tags: Sequence[str] = ()) -> bytes:
    """A model with special pieces where this project has them; as it is if they are there, or if it is no model.

    Args:
        model: its bytes.
        tags: user-defined symbols that become tags. In a model with other ids all that look like one do.

    Raises:
        UserError: it has no unknown piece, or cuts a special piece from texts.
    """
    proto: Any = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError:
        return model
    if not proto.pieces:
        return model
    names = [str(getattr(proto.trainer_spec, f"{name}_piece")) for name in SPECIAL]
    is_ours = [piece.piece for piece in proto.pieces[: len(names)]] == names
    symbols = [piece for piece in proto.pieces if piece.type == _PIECE.USER_DEFINED]
    new_tags = [p for p in symbols if p.piece in tags or (not is_ours and TAG.fullmatch(p.piece))]
    for piece in new_tags:
        piece.type = _PIECE.CONTROL
    if not is_ours:
        _move(proto, names)
    content: bytes = proto.SerializeToString(deterministic=True) if new_tags or not is_ours else model
    return content


def _move(proto: Any, names: Sequence[str]) -> None:
    """Put the special pieces first, adding those that are missing."""
    there = {str(piece.piece): piece for piece in proto.pieces}
    first = []
    for name, text in zip(SPECIAL, names, strict=True):
        type_ = _PIECE.UNKNOWN if name == "unk" else _PIECE.CONTROL
        piece = there.get(text)
        if piece is None and name != "unk":
            piece = _PIECE(piece=text, score=0.0, type=type_)
        if piece is None or piece.type != type_:
            problem = "is missing" if piece is None else "is a piece of texts"
            raise UserError(
                f"{name}: {text} {problem}; train the model with SentencePiece's own {name}_id, or with "
                f"{', '.join(f'--{one}_id={number}' for number, one in enumerate(SPECIAL))}"
            )
        first.append(piece)
    others = [piece for piece in proto.pieces if piece.piece not in names]
    copies = [_PIECE.FromString(piece.SerializeToString()) for piece in (*first, *others)]
    del proto.pieces[:]
    proto.pieces.extend(copies)
    proto.trainer_spec.vocab_size = len(copies)
    for number, name in enumerate(SPECIAL):
        setattr(proto.trainer_spec, f"{name}_id", number)
