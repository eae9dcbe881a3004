"""Vocabularies of Transformers' checkpoints as SentencePiece models with this project's special pieces.

Here 0 to 3 are PAD, BOS, EOS and UNK. Then come the other rows of their embedding in order, then pieces that their
SentencePiece model has and their vocabulary lacks, which they read as UNK. Language codes become target-language tags
such as `>>fra<<`. Every row has a piece, so that a softmax is over the same logits as theirs.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from configs.process.files.inside import read_bytes
from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, TAG, TARGET_FILE, Tokenizer

_CODES = (re.compile(r"^__([a-z]{2,4})__$"), re.compile(r"^([a-z]{3}_[A-Z][a-z]{3})$"))
"""Language codes of M2M100 and of NLLB."""
_MARKS = ("<pad>", "<s>", "</s>", "<unk>")
_UNUSED_MARKS = ("<mask>", "<eop>", "<eod>")
"""Special pieces of their tokenizers that translation models do not use."""
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece


class Side(NamedTuple):
    """One side's vocabulary."""

    model: bytes
    """The SentencePiece model."""
    rows: list[int]
    """For every piece, its row in their matrices."""
    never: list[int]
    """Pieces that their model cannot generate, because another piece has the same row."""


class Vocabularies(NamedTuple):
    """Both sides'."""

    tokenizer: Tokenizer
    source: Side
    target: Side


def read_vocabularies(folder: Path, theirs: Any, config: Any, *, sizes: tuple[int, int]) -> Vocabularies:
    """The tokenizer of a checkpoint.

    Args:
        folder: of the checkpoint.
        theirs: its tokenizer in Transformers.
        config: its configuration in Transformers.
        sizes: rows of the source's and of the target's embedding.

    Raises:
        UserError: a SentencePiece model is missing or invalid, or the tokenizer has other pieces than the model.
    """
    names: list[dict[int, str | None]]
    if config.model_type == "m2m_100":
        models = ["sentencepiece.bpe.model"] * 2
        names = [dict(enumerate(theirs.convert_ids_to_tokens(list(range(size))))) for size in sizes]
    else:  # MarianTokenizer's two vocabularies
        models = ["source.spm", "target.spm"]
        names = [{i: piece for piece, i in theirs.encoder.items()}, dict(theirs.decoder)]
        if not all(isinstance(i, int) for of_side in names for i in of_side):
            raise UserError(f"--huggingface: {folder}: ids in vocab.json are not all whole numbers; repair it")
    known = (*_MARKS, *_UNUSED_MARKS)
    added = [str(token) for token in theirs.added_tokens_decoder.values()]
    if others := [name for name in added if name not in known and language_of(name) is None]:
        raise UserError(
            f"--huggingface: {folder}: the tokenizer cuts {others[0]} from a text before all others, which zeromt has "
            "nothing like; give a tokenizer without added pieces"
        )
    if (most := max(len(theirs), *(max(of_side) + 1 for of_side in names))) > min(sizes):
        raise UserError(
            f"--huggingface: {folder}: the tokenizer has {most} pieces and the embedding {min(sizes)} rows; give the "
            "tokenizer of this model"
        )
    source, target = (
        _side(_read(folder, model), of_side, config, size)
        for model, of_side, size in zip(models, names, sizes, strict=True)
    )
    files = {JOINT_FILE: source.model} if source == target else {SOURCE_FILE: source.model, TARGET_FILE: target.model}
    return Vocabularies(tokenizer=Tokenizer(files), source=source, target=target)


def language_of(piece: str) -> str | None:
    """The language that a piece names."""
    return next((match[1] for pattern in _CODES if (match := pattern.match(piece))), None)


def _side(model: bytes, names: Mapping[int, str | None], config: Any, size: int) -> Side:
    proto = _parse(model)
    start = config.decoder_start_token_id
    unknown = next((i for i, name in names.items() if name == "<unk>"), 3)
    special = [config.pad_token_id, start, config.eos_token_id, unknown]
    rows = [*special, *(i for i in range(size) if i not in special)]
    if not all(0 <= i < size for i in special):
        raise UserError(f"--huggingface: config.json names the ids {special}; allowed is less than {size}")
    pieces = [*_MARKS, *(_our_name(names.get(i), i) for i in rows[4:])]
    strange = [p.piece for p in proto.pieces if p.type not in (_PIECE.CONTROL, _PIECE.UNKNOWN)]
    missing = [p for p in strange if p not in set(pieces)]
    never = [1] if start in (special[0], *special[2:]) else []
    never += range(len(pieces), len(pieces) + len(missing))
    return Side(model=_rebuilt(proto, [*pieces, *missing]), rows=[*rows, *[unknown] * len(missing)], never=never)


def _our_name(theirs: str | None, row: int) -> str:
    if theirs is None or theirs in _MARKS:
        return f"<unused-{row}>"
    language = language_of(theirs)
    return theirs if language is None else f">>{language}<<"


def _rebuilt(proto: Any, pieces: list[str]) -> bytes:
    """The model with a new list of pieces: known ones keep score and type, the others never match text.

    BPE also merges to unused pieces and splits these again at the end, so they come after all others.
    """
    known = {p.piece: p for p in proto.pieces}
    lowest = min(p.score for p in proto.pieces) - 1.0
    types = {"<unk>": _PIECE.UNKNOWN, **dict.fromkeys(_MARKS[:3], _PIECE.CONTROL)}
    new = sentencepiece_model_pb2.ModelProto()
    new.CopyFrom(proto)
    del new.pieces[:]
    for text in pieces:
        piece = new.pieces.add(piece=text)
        if text in types:
            piece.type = types[text]
        elif TAG.fullmatch(text):
            piece.type = _PIECE.CONTROL
        elif text in known:
            piece.score, piece.type = known[text].score, known[text].type
        else:
            piece.score, piece.type = lowest, _PIECE.UNUSED
    spec = new.trainer_spec
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = range(4)
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = _MARKS
    spec.vocab_size = len(pieces)
    content: bytes = new.SerializeToString(deterministic=True)
    return content


def _parse(model: bytes) -> Any:
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception as error:  # protobuf's error class differs between its implementations
        raise UserError("--huggingface: its SentencePiece model cannot be read; give a complete one") from error
    if not proto.pieces:
        raise UserError("--huggingface: its SentencePiece model has no pieces; give a complete one")
    return proto


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_bytes(folder / name)
    except OSError as error:
        raise UserError(
            f"--huggingface: {folder / name} cannot be read: {error.strerror}; copy the SentencePiece models of the "
            "original checkpoint, next to the weights"
        ) from error
