"""SentencePiece tokenizers (Kudo and Richardson, 2018): one joint vocabulary, or one for each side.

In this project's files a tag is the control symbol `>>fra<<`, which SentencePiece never cuts from a text: the tokenizer
takes tags at the beginning of a line alone. Where others are to encode `>>fra<< A dog` with SentencePiece alone, as
with what is exported for CTranslate2, it is the user-defined symbol `\u2581>>fra<<`, spelled as the first piece of a
word. Piece by piece the two are one vocabulary.
"""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from configs import UserError
from configs.languages import same_language
from configs.process.files.inside import read_bytes, write_bytes

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

WORD_BEGIN = "\u2581"
"""What SentencePiece writes for a space."""
TAG = re.compile(r">>[^<>\s]{1,32}<<")
"""A target-language tag. Where the source model has it as a piece of its own, it has meaning at the start of a line."""
_PIECE = sentencepiece_model_pb2.ModelProto.SentencePiece

PAD_ID = 0
BOS_ID = 1
EOS_ID = 2
UNK_ID = 3
UNKNOWN_PIECE = "<unk>"

JOINT_FILE = "tokenizer.model"
SOURCE_FILE = "tokenizer.source.model"
TARGET_FILE = "tokenizer.target.model"

_LEADING_TAG = re.compile(rf"\ufeff?({TAG.pattern}) ?")
"""At the start of a line, or behind a byte order mark: files that are joined bring such marks into the middle."""
_ALMOST_LEADING_TAG = re.compile(rf"[\s\ufeff\u200b-\u200f\u2060]*({TAG.pattern})")


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
    """A control symbol, or a user-defined one that begins a word: any other occurs in texts as what it says."""
    is_symbol = piece.type == _PIECE.USER_DEFINED and piece.piece.startswith(WORD_BEGIN)
    return (is_symbol or piece.type == _PIECE.CONTROL) and tag_of(piece.piece) is not None


def fingerprint_of(hashes: Mapping[str, str]) -> str:
    """SHA-256 over a tokenizer's files, given the SHA-256 of each by name."""
    lines = "".join(f"{name} {hashes[name]}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


class Tokenizer:
    """Text to pieces and back. Pieces are given without BOS and EOS."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Build from the files' contents, by name.

        Raises:
            UserError: a model cannot be read, or its special pieces are not those of this project.
        """
        if set(files) not in ({JOINT_FILE}, {SOURCE_FILE, TARGET_FILE}):
            names = ", ".join(sorted(files)) or "none"
            raise UserError(f"tokenizer: files {names}; allowed is {JOINT_FILE}, or {SOURCE_FILE} with {TARGET_FILE}")
        self._files = {name: as_controls(content) for name, content in files.items()}
        self.is_joint = JOINT_FILE in files
        """Whether both sides share one vocabulary."""
        self._source = _processor(self.file_name("source"), files)
        self._target = self._source if self.is_joint else _processor(self.file_name("target"), files)
        self._tags = _tags(self._source)
        self._tag_ids = frozenset(self._tags.values())
        self._meanings: dict[str, int | None] = dict(self._tags)
        """Ids of the tags that lines began with so far; None for those that are text."""
        self._unused: dict[Side, dict[str, int]] = {}
        """Pieces that text is never cut into, by their text, once they are asked for."""

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read the tokenizer in a folder.

        Raises:
            UserError: there is none, or it cannot be used.
        """
        names = [n for n in (JOINT_FILE, SOURCE_FILE, TARGET_FILE) if (folder / n).exists()]
        if not names:
            raise UserError(
                f"tokenizer: {folder} holds none; allowed is {JOINT_FILE}, or {SOURCE_FILE} with {TARGET_FILE}"
            )
        try:
            return cls({n: read_bytes(folder / n) for n in names})
        except OSError as error:
            raise UserError(f"tokenizer: {folder}: cannot be read: {error.strerror}") from error

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a folder."""
        for name, content in self._files.items():
            write_bytes(folder / name, content)

    def files(self) -> dict[str, bytes]:
        """The files' contents, by name."""
        return dict(self._files)

    def file_name(self, side: Side) -> str:
        """The name of the file with a side's vocabulary."""
        return JOINT_FILE if self.is_joint else SOURCE_FILE if side == "source" else TARGET_FILE

    def proto(self, side: Side) -> Any:
        """SentencePiece's model of a side, in which tags are control symbols; a new one at every call."""
        proto: Any = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(self._files[self.file_name(side)])
        return proto

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the files, in hexadecimal."""
        return fingerprint_of({n: hashlib.sha256(c).hexdigest() for n, c in self._files.items()})

    @property
    def source_vocab_size(self) -> int:
        """Pieces of the source vocabulary, special ones included."""
        return int(self._source.get_piece_size())

    @property
    def target_vocab_size(self) -> int:
        """Pieces of the target vocabulary, special ones included."""
        return int(self._target.get_piece_size())

    @property
    def tags(self) -> tuple[str, ...]:
        """Target-language tags of the source vocabulary, such as `>>fra<<`, in the order of their ids."""
        return tuple(self._tags)

    def tag_id(self, tag: str) -> int:
        """The id of one of `tags`."""
        return self._tags[tag]

    def tags_of(self, language: str) -> list[str]:
        """The tags of a language, named by any of its codes: one, none, or several where the code may mean several."""
        by_code = {tag[2:-2]: tag for tag in self._tags}
        return [by_code[code] for code in same_language(language, by_code)]

    def source_vocabulary(self) -> list[str]:
        """The source vocabulary in the order of ids."""
        return [str(self._source.id_to_piece(i)) for i in range(self.source_vocab_size)]

    def target_vocabulary(self) -> list[str]:
        """The target vocabulary in the order of ids."""
        return [str(self._target.id_to_piece(i)) for i in range(self.target_vocab_size)]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each source line, without BOS and EOS. A blank line has none.

        A tag at the very start becomes its own piece, and the space after it goes; any code of its language will do
        (`>>fr<<` for `>>fra<<`). Anywhere else a tag is text, as `</s>` and the like are everywhere.
        """
        if not self._tags:
            return self._encode("source", lines)
        cut = [self.cut_tag(line) for line in lines]
        rows = self._encode("source", [text for _, text in cut])
        for (tag, _), row in zip(cut, rows, strict=True):
            if tag is not None:
                row.insert(0, tag)
        return rows

    def cut_tag(self, line: str) -> tuple[int | None, str]:
        """The id of the tag that a source line begins with, None if there is none; and the text behind it."""
        match = _LEADING_TAG.match(line)
        tag = self._meaning(match[1]) if match else None
        return (None, line) if match is None or tag is None else (tag, line[match.end() :])

    def begins_without_tag(self, line: str) -> bool:
        """Whether a source line begins with no tag, and with nothing that looks like one."""
        return self.cut_tag(line)[0] is None and not self.tags_that_are_text([line])

    def num_text_pieces(self, row: Sequence[int]) -> int:
        """How many of a source row's pieces are its text's: a tag is none, so a blank line with a tag has 0."""
        return len(row) - (bool(row) and row[0] in self._tag_ids)

    def tags_that_are_text(self, lines: Iterable[str]) -> Counter[str]:
        """Tags at the beginning of source lines that `encode_source` takes for text, and how many lines have each.

        Either the vocabulary has no such piece, or white space or something invisible stands before it.
        """
        counts: Counter[str] = Counter()
        for line in lines:
            if ">>" in line and (almost := _ALMOST_LEADING_TAG.match(line)):
                meant = _LEADING_TAG.match(line)
                if meant is None or self._meaning(meant[1]) is None:
                    counts[almost[1]] += 1
        return counts

    def _meaning(self, tag: str) -> int | None:
        """The id in the vocabulary of a tag in a text; None where it is text."""
        if tag not in self._meanings:
            tags = self.tags_of(tag[2:-2])
            self._meanings[tag] = self._tags[tags[0]] if len(tags) == 1 else None
        return self._meanings[tag]

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each target line, without BOS and EOS."""
        return self._encode("target", lines)

    def _encode(self, side: Side, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of lines; what SentencePiece leaves unknown is looked up by its text among the unused pieces.

        Imported models have such: Marian's two SentencePiece models cut text for one vocabulary, and a character that
        one of them lacks may have a row.
        """
        processor = self._source if side == "source" else self._target
        # One thread: preparation has processes for it, and a rank must not take its neighbours' cores.
        rows: list[list[int]] = processor.encode(list(lines), out_type=int, num_threads=1)
        odd = [number for number, row in enumerate(rows) if UNK_ID in row]
        if odd and side not in self._unused:
            unused = [i for i in range(processor.get_piece_size()) if processor.is_unused(i)]
            self._unused[side] = {str(processor.id_to_piece(i)): i for i in unused}
        if odd and (by_text := self._unused[side]):
            texts = processor.encode([lines[number] for number in odd], out_type=str, num_threads=1)
            for number, pieces in zip(odd, texts, strict=True):
                both = zip(rows[number], pieces, strict=True)
                rows[number] = [by_text.get(piece, i) if i == UNK_ID else i for i, piece in both]
        return rows

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each target id as the vocabulary spells it: a word's first one begins with U+2581."""
        return [str(self._target.id_to_piece(i)) for i in ids]

    def decode_target(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """The text of each row of target ids, always one line for each.

        PAD, BOS, EOS, tags and ids beyond the vocabulary are ignored (a model may pad its output
        layer).
        """
        size = self.target_vocab_size
        kept = [[int(i) for i in row if EOS_ID < i < size] for row in rows]
        return _decode(self._target, kept)

    def decode_source(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """The text of each row of source ids, as `decode_target`; leading tags stay before it."""
        tags = {number: tag for tag, number in self._tags.items()}
        size = self.source_vocab_size
        kept = [[int(i) for i in row if EOS_ID < i < size] for row in rows]
        before = ["".join(f"{tags[i]} " for i in itertools.takewhile(tags.__contains__, row)) for row in kept]
        return [tag + text for tag, text in zip(before, _decode(self._source, kept), strict=True)]


def _decode(processor: sentencepiece.SentencePieceProcessor, rows: list[list[int]]) -> list[str]:
    texts: list[str] = processor.decode(rows, num_threads=1) if rows else []
    return [text.replace("\n", " ").replace("\r", " ") for text in texts]  # byte_fallback can spell a line feed


def _tags(processor: sentencepiece.SentencePieceProcessor) -> dict[str, int]:
    """The tags of a model and their ids."""
    controls = (i for i in range(processor.get_piece_size()) if processor.is_control(i))
    return {tag: i for i in controls if (tag := tag_of(str(processor.id_to_piece(i))))}


def _processor(name: str, files: Mapping[str, bytes]) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        loaded = bool(files[name]) and processor.load_from_serialized_proto(as_controls(files[name], begin=WORD_BEGIN))
    except (RuntimeError, OSError):
        loaded = False
    if not loaded:
        raise UserError(f"tokenizer: {name}: is not a SentencePiece model; give one made by zeromt prepare")
    ids = processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()
    if ids != (wanted := (PAD_ID, BOS_ID, EOS_ID, UNK_ID)):
        raise UserError(f"tokenizer: {name}: pad, bos, eos and unk are {ids}; allowed is {wanted} (-1: missing)")
    return processor


class Match(NamedTuple):
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


def match(old: Tokenizer, new: Tokenizer, side: Side) -> Match:
    """Find the pieces of one side of a new tokenizer in an old one's.

    The four special pieces are one another's. A tag is the old tag of the same language, by whatever code; one of
    another language is cut into all tags that the old one has: what they have in common is that they are tags. Any
    other piece that the old one has not is cut as the old one cuts its text where it stands, within a word or at its
    beginning; what is unknown of that is passed over.

    Args:
        old, new: the tokenizers.
        side: whose vocabulary.
    """
    theirs, ours = old.proto(side), new.proto(side)
    ids = {piece.piece: number for number, piece in enumerate(theirs.pieces)}
    tags = [old.tag_id(tag) for tag in old.tags] if side == "source" or old.is_joint else []
    kept: dict[int, int] = {}
    rest: dict[int, Sequence[int]] = {}
    texts: dict[int, str] = {}
    for number, piece in enumerate(ours.pieces):
        is_control = piece.type == _PIECE.CONTROL
        tag = tag_of(piece.piece) if is_control else None
        same = old.tags_of(tag[2:-2]) if tag is not None and tags else []
        if number <= UNK_ID:
            kept[number] = number
        elif piece.piece in ids:
            kept[number] = ids[piece.piece]
        elif len(same) == 1:
            kept[number] = old.tag_id(same[0])
        elif tag is not None:
            rest[number] = tags
        elif not is_control and (text := _text_of(piece)) is not None:
            texts[number] = text
        else:
            rest[number] = []
    rest |= dict(zip(texts, _cut_bare(theirs, list(texts.values())), strict=True))
    return Match(
        kept=kept,
        cut={number: cut for number, cut in sorted(rest.items()) if cut},
        unknown=[number for number, cut in sorted(rest.items()) if not cut],
    )


def _text_of(piece: Any) -> str | None:
    """The text of a piece, a word's beginning as a space; None for a piece without text of its own."""
    if piece.type != _PIECE.BYTE:
        return str(piece.piece).replace(WORD_BEGIN, " ")
    byte = int(piece.piece[3:-1], 16)
    return chr(byte) if byte < 128 else None  # any other is part of a character


def _cut_bare(proto: Any, texts: Sequence[str]) -> list[list[int]]:
    """The pieces of texts as they stand, without a space that SentencePiece puts before a line; no unknown ones."""
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor()
    if not processor.load_from_serialized_proto(proto.SerializeToString(deterministic=True)):
        raise UserError("tokenizer: is not a SentencePiece model")
    rows: list[list[int]] = processor.encode(list(texts), out_type=int, num_threads=1)
    return [[number for number in row if number != UNK_ID] for row in rows]
