"""SentencePiece models that others have trained, as this project needs them: the special pieces first, in its order.

A piece's id is its place in the model, and no text is cut by places: moving pieces, or adding those that no text has,
changes ids alone. So SentencePiece's own ids (unk 0, bos 1, eos 2, no pad), Marian's (eos 0, unk 1) and T5's (pad 0,
eos 1, unk 2) are all taken.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from data_pipeline.tag_pieces import TAG

SPECIAL = ("pad", "bos", "eos", "unk")
"""In the order of their ids, from 0."""
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece


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
