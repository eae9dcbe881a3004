"""Vocabularies of Transformers' checkpoints as SentencePiece models with this project's special pieces.

Here 0 to 3 are PAD, BOS, EOS and UNK. Then come the other rows of their embedding in order, then pieces that their
SentencePiece model has and their vocabulary lacks, which they read as UNK. Language codes become target-language tags
such as `>>fra<<`. Every row has a piece, so that a softmax is over the same logits as theirs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from configs.process.files import is_file
from configs.process.files.inside import read_bytes
from data_pipeline.tag_pieces import TAG
from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer
from zeromt.importing.json_files import TOKENIZER, TOKENIZER_CONFIG, read_json, taken_apart
from zeromt.importing.settings import check_tokenizer_config, read_tokenizer_config
from zeromt.importing.tokenizer_json import PIECES, model_of, names_of
from zeromt.importing.weights import listed

_FAIRSEQ_MARKS = ("<unk>", "<s>", "</s>")
"""The first pieces of NLLB's SentencePiece model; its vocabulary has them elsewhere."""
_FAIRSEQ_SPECIAL = len(_FAIRSEQ_MARKS)
_CODES = (re.compile(r"^__([a-z]{2,4})__$"), re.compile(r"^([a-z]{3}_[A-Z][a-z]{3})$"))
"""Language codes of M2M100 and of NLLB."""
_M2M100_LANGUAGES = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el",
    "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu", "hy",
    "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt", "lv", "mg",
    "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sd",
    "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi",
    "wo", "xh", "yi", "yo", "zh", "zu",
]  # fmt: skip
SENTENCEPIECE = "sentencepiece.bpe.model"
_WMT21_LANGUAGES = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]
_LANGUAGES = {"m2m100": _M2M100_LANGUAGES, "wmt21": _WMT21_LANGUAGES}
"""Languages by the tokenizer's `language_codes`, in the order of their ids, copied from its tokenizer's code."""
_MARKS = ("<pad>", "<s>", "</s>", "<unk>")
_UNUSED_MARKS = ("<mask>", "<eop>", "<eod>")
"""Special pieces of their tokenizers that translation models do not use."""
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece


@dataclass(kw_only=True, slots=True, frozen=True)
class Side:
    """One side's vocabulary."""

    model: bytes
    """The SentencePiece model."""
    rows: list[int]
    """For every piece, its row in their matrices."""
    never: list[int]
    """Pieces that their model cannot generate, because another piece has the same row."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Vocabularies:
    """Both sides'."""

    tokenizer: Tokenizer
    source: Side
    target: Side


def read_vocabularies(folder: Path, config: Mapping[str, Any], *, sizes: tuple[int, int]) -> Vocabularies:
    """The tokenizer of a checkpoint.

    Args:
        folder: of the checkpoint.
        config: its `config.json`.
        sizes: rows of the source's and of the target's embedding.

    Raises:
        UserError: a file is missing or invalid.
    """
    settings = read_tokenizer_config(folder)
    check_tokenizer_config(settings, config)
    if is_file(folder / "source.spm") or config["model_type"] != "m2m_100":
        read = _read_two(folder, settings)
    else:
        read = [_read_one(folder, settings)] * 2
    for (_, names), size in zip(read, sizes, strict=True):
        if beyond := [name for i, name in sorted(names.items()) if i >= size]:
            raise UserError(
                f"--huggingface: {folder}: the tokenizer has {max(names) + 1} pieces and the embedding {size} rows, "
                f"none for {listed(beyond)}; give the tokenizer of this model"
            )
    sides = [_side(m, names, config, size) for (m, names), size in zip(read, sizes, strict=True)]
    if sides[0] == sides[1]:
        files = {JOINT_FILE: sides[0].model}
    else:
        files = {SOURCE_FILE: sides[0].model, TARGET_FILE: sides[1].model}
    return Vocabularies(tokenizer=Tokenizer(files), source=sides[0], target=sides[1])


def _read_two(folder: Path, settings: Mapping[str, Any]) -> list[tuple[bytes, dict[int, str]]]:
    """A SentencePiece model and a vocabulary for each side, as in MarianTokenizer."""
    is_separate = settings.get("separate_vocabs", is_file(folder / "target_vocab.json"))
    vocabularies = ("vocab.json", "target_vocab.json" if is_separate else "vocab.json")
    sides = zip(("source.spm", "target.spm"), vocabularies, strict=True)
    return [(_read(folder, model), _names(folder, vocabulary)) for model, vocabulary in sides]


def _read_one(folder: Path, settings: Mapping[str, Any]) -> tuple[bytes, dict[int, str]]:
    """One SentencePiece model and vocabulary for both sides, as in M2M100 and NLLB."""
    path = folder / TOKENIZER
    tree = read_json(path) if is_file(path) else {}
    tree = tree if isinstance(tree, dict) else {}
    if is_file(folder / "vocab.json"):
        model = _read(folder, SENTENCEPIECE)
        known = _m2m100_names(folder, settings)
    elif is_file(folder / SENTENCEPIECE):
        model = _read(folder, SENTENCEPIECE)
        known = _fairseq_names(model)
        if PIECES in tree:
            with taken_apart(path):
                others = names_of(tree)
            _check_same(known, others, folder)
    elif PIECES in tree:
        with taken_apart(path):
            model, known = model_of(tree), names_of(tree)
    else:
        raise UserError(
            f"--huggingface: {folder} has no tokenizer; allowed is a checkpoint with {SENTENCEPIECE}, tokenizer.json, "
            "or source.spm and target.spm"
        )
    added = _added_names(folder)
    _check_added(added, known, folder)
    names = {**known, **added}
    if not any(pattern.match(name) for name in names.values() for pattern in _CODES):
        raise UserError(
            f"--huggingface: {folder}: no file says which pieces are languages; save the tokenizer anew with "
            "Transformers' save_pretrained, which writes them down"
        )
    return model, names


def _check_same(one: Mapping[int, str], other: Mapping[int, str], folder: Path) -> None:
    """Check that two files of a folder have the same vocabulary.

    Raises:
        UserError: they do not.
    """
    if unlike := [i for i in sorted({*one, *other}) if one.get(i, other.get(i)) != other.get(i, one.get(i))]:
        first = unlike[0]
        raise UserError(
            f"--huggingface: {folder}: piece {first} is {one.get(first)!r} in {SENTENCEPIECE} and {other.get(first)!r} "
            f"in tokenizer.json; delete the one that is not this model's"
        )


def _check_added(added: Mapping[int, str], known: Mapping[int, str], folder: Path) -> None:
    """Check that only languages and special pieces were added to a vocabulary: others would be split off a text first.

    Raises:
        UserError: others were added.
    """
    others = [
        name
        for i, name in sorted(added.items())
        if known.get(i) != name and name not in (*_MARKS, *_UNUSED_MARKS) and not any(c.match(name) for c in _CODES)
    ]
    if others:
        raise UserError(
            f"--huggingface: {folder}: the tokenizer cuts {listed(others)} from a text before all others, which "
            "zeromt has nothing like; give a tokenizer without added pieces"
        )


def _side(model: bytes, names: Mapping[int, str], config: Mapping[str, Any], size: int) -> Side:
    proto = _parse(model)
    start = config["decoder_start_token_id"]
    unknown = next((i for i, name in names.items() if name == "<unk>"), 3)
    special = [config["pad_token_id"], start, config["eos_token_id"], unknown]
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
    for pattern in _CODES:
        if match := pattern.match(theirs):
            return f">>{match[1]}<<"
    return theirs


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


def _names(folder: Path, name: str) -> dict[int, str]:
    """Pieces by id."""
    with taken_apart(folder / name):
        return {int(i): str(piece) for piece, i in read_json(folder / name).items()}


def _m2m100_names(folder: Path, settings: Mapping[str, Any]) -> dict[int, str]:
    """M2M100's pieces by id, followed by its languages, unless a file of this folder lists these."""
    names = _names(folder, "vocab.json")
    if any(pattern.match(name) for name in (*names.values(), *_added_names(folder).values()) for pattern in _CODES):
        return names
    codes = settings.get("language_codes") or "m2m100"
    if codes not in list(_LANGUAGES):
        raise UserError(f"--huggingface: language_codes {codes!r}; allowed is {', '.join(_LANGUAGES)}")
    return {**names, **{len(names) + i: f"__{code}__" for i, code in enumerate(_LANGUAGES[codes])}}


def _fairseq_names(model: bytes) -> dict[int, str]:
    """NLLB's pieces by id: four special ones, then those of the SentencePiece model."""
    pieces = [p.piece for p in _parse(model).pieces]
    if tuple(pieces[:_FAIRSEQ_SPECIAL]) != _FAIRSEQ_MARKS:
        first = ", ".join(pieces[:_FAIRSEQ_SPECIAL])
        raise UserError(
            f"--huggingface: {SENTENCEPIECE} begins with {first}; allowed is {', '.join(_FAIRSEQ_MARKS)}, as NLLB's"
        )
    return {
        **dict(enumerate(("<s>", "<pad>", "</s>", "<unk>"))),
        **{i + 1: p for i, p in enumerate(pieces) if i >= _FAIRSEQ_SPECIAL},
    }


def _added_names(folder: Path) -> dict[int, str]:
    """Added pieces by id: language codes and the like."""
    return dict(_added(folder))


def _added(folder: Path) -> Iterator[tuple[int, str]]:
    if is_file(path := folder / TOKENIZER):
        with taken_apart(path):
            yield from [(int(t["id"]), str(t["content"])) for t in read_json(path).get("added_tokens", [])]
    if is_file(path := folder / TOKENIZER_CONFIG):
        with taken_apart(path):
            decoder = read_json(path).get("added_tokens_decoder", {})
            yield from [(int(i), str(t["content"])) for i, t in decoder.items()]
    if is_file(path := folder / "added_tokens.json"):
        with taken_apart(path):
            yield from [(int(i), str(piece)) for piece, i in read_json(path).items()]


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_bytes(folder / name)
    except OSError as error:
        raise UserError(
            f"--huggingface: {folder / name} cannot be read: {error.strerror}; allowed is a checkpoint with its "
            "SentencePiece models (source.spm and target.spm, or sentencepiece.bpe.model)"
        ) from error
