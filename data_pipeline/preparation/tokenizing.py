"""The tokenizer of a dataset: an existing one, or one trained on an even sample of the corpus; its unknown pieces."""

import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from configs import PrepareSection, TokenizerSection, UserError
from configs.process.files.inside import read_bytes
from data_pipeline.foreign_models import fitted
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.raw.unit import RawSpan
from data_pipeline.preparation.report import NUM_TAGS, SIDES, PieceCount, Report
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tag_pieces import spare_names
from data_pipeline.tokenizer import (
    BOS_ID,
    EOS_ID,
    JOINT_FILE,
    PAD_ID,
    SOURCE_FILE,
    TARGET_FILE,
    UNK_ID,
    UNKNOWN_PIECE,
    Tokenizer,
)

PIECE_CHARS = 16
"""Characters of the longest piece that SentencePiece makes: a line of more than so many for each piece that a pair may
have is dropped as too long."""
SEGMENT_CHARS = 1000
"""Maximum number of characters of a line; SentencePiece skips lines of more than 4,192 bytes."""
UNKNOWN_CHARACTER = "\u2585"
"""SentencePiece's character for what a vocabulary omits; it cannot become a piece."""
SLACK = 1.5
"""A sample grows to this multiple of its size before the surplus is dropped."""


@dataclass(slots=True)
class Sample:
    """A uniform sample of the corpus: the pairs with the smallest random keys.

    Each pair's key is a function of seed, span and row, so the sample does not depend on the order in which spans are
    added. It needs one pass and bounded memory. Pairs with a blank side are skipped, and those with a side of more than
    `max_characters`, which the dataset will not have.
    """

    size: int
    """Maximum number of pairs."""
    max_bytes: int
    """Maximum bytes of text of both sides, in UTF-8."""
    seed: int
    max_characters: int = sys.maxsize
    num_seen: int = 0
    """Number of pairs seen, including blank ones."""
    num_long: int = 0
    """Number of pairs that would have been in the sample but for their length."""
    _keys: list[NDArray[np.uint64]] = field(default_factory=list)
    _places: list[NDArray[np.int64]] = field(default_factory=list)
    """(pairs, 2): span and row."""
    _texts: list[bytes] = field(default_factory=list)
    """Source, line feed and target in one string, which takes half the memory of two."""
    _num_bytes: int = 0
    _highest: int = (1 << 64) - 1
    """Pairs with a higher key can no longer be in the sample."""

    def add(self, span: RawSpan, number: int) -> None:
        """Add a span's pairs; `number` is the span's in the corpus.

        Raises:
            UserError: a pair that is decoded is invalid (see `RawSpan.pairs`). Not every pair is decoded.
        """
        keys = random_bits(span.num_pairs, self.seed, Purpose.TOKENIZER_SAMPLE, number)
        rows = np.flatnonzero(keys <= np.uint64(self._highest))
        self.num_seen += span.num_pairs
        pairs = span.rows(rows)
        is_text = np.array([bool(s.strip() and t.strip()) for s, t in pairs], dtype=np.bool_)
        is_long = np.array([max(map(len, pair)) > self.max_characters for pair in pairs], dtype=np.bool_) & is_text
        self.num_long += int(is_long.sum())
        is_kept = is_text & ~is_long
        texts = [f"{s}\n{t}".encode() for (s, t), kept in zip(pairs, is_kept.tolist(), strict=True) if kept]
        rows = rows[is_kept]
        self._keys.append(keys[rows])
        self._places.append(np.stack([np.full(len(rows), number), rows], axis=1))
        self._texts += texts
        self._num_bytes += sum(map(len, texts))
        if len(self._texts) > SLACK * self.size or self._num_bytes > SLACK * self.max_bytes:
            self._prune()

    def finish(self) -> tuple[list[str], list[str]]:
        """Sources and targets of the sample, in corpus order. This empties the sample."""
        self._prune()
        places = np.concatenate([np.empty((0, 2), dtype=np.int64), *self._places])
        pairs = [self._texts[i].decode().split("\n") for i in np.lexsort((places[:, 1], places[:, 0])).tolist()]
        self._texts, self._keys, self._places = [], [], []  # frees memory for training
        return [source for source, _ in pairs], [target for _, target in pairs]

    def _prune(self) -> None:
        """Keep the pairs with the smallest keys, within both bounds."""
        if not self._texts:
            return
        keys, places = np.concatenate(self._keys), np.concatenate(self._places)
        order = np.lexsort((places[:, 1], places[:, 0], keys))
        sizes = np.fromiter(map(len, self._texts), dtype=np.int64, count=len(self._texts))[order]
        kept = min(self.size, int(np.searchsorted(np.cumsum(sizes), self.max_bytes, side="right")))
        if kept < len(order):
            self._highest = int(keys[order[kept]])
        order = order[:kept]
        self._keys, self._places = [keys[order]], [places[order]]
        self._texts = [self._texts[i] for i in order.tolist()]
        self._num_bytes = int(sizes[:kept].sum())


def existing_tokenizer(section: TokenizerSection) -> Tokenizer | None:
    """The tokenizer that `section.path` names, or None if one must be trained.

    The path is a prepared dataset, another folder with a tokenizer, or the file of a joint one, also of others
    (`data_pipeline.foreign_models`). The section's kind and size are ignored; new tags replace its spare pieces.

    Raises:
        UserError: there is none, it cannot be used, or it has no spare piece for a missing tag.
    """
    if section.path is None:
        return None
    path = Path(section.path)
    where = f"prepare.tokenizer.path: {path}"
    try:
        if path.is_dir():
            files = {n: read_bytes(path / n) for n in (JOINT_FILE, SOURCE_FILE, TARGET_FILE) if (path / n).exists()}
        else:
            files = {JOINT_FILE: read_bytes(path)}
        tokenizer = Tokenizer({name: fitted(content, section.tags) for name, content in files.items()})
    except FileNotFoundError as error:
        allowed = f"a prepared dataset, or a folder that holds {JOINT_FILE}"
        raise UserError(f"{where}: no such file or folder; allowed is {allowed}") from error
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('tokenizer: ')}") from error
    missing, spares = [tag for tag in section.tags if tag not in tokenizer.tags], tokenizer.spares
    if len(missing) > len(spares):
        have = ", ".join(tokenizer.tags) or "none"
        raise UserError(
            f"prepare.tokenizer.tags: {missing[len(spares)]} is no piece of {path}, which has {len(spares)} spare ones "
            f"(prepare.tokenizer.spare); allowed is one of its own ({have})"
        )
    return tokenizer.with_tags(missing)


def train_tokenizer(section: TokenizerSection, sources: Sequence[str], targets: Sequence[str]) -> Tokenizer:
    """Train a tokenizer on pairs. The same pairs and section give the same bytes.

    Raises:
        UserError: the vocabulary is too large or too small for the corpus; the message gives the limit.
    """
    if section.vocabulary == "joint":
        lines = itertools.chain.from_iterable(zip(sources, targets, strict=True))
        return Tokenizer({JOINT_FILE: _train(section, lines, "vocab_size", section.vocab_size)})
    target_size = section.target_vocab_size or section.vocab_size
    target_field = "target_vocab_size" if section.target_vocab_size else "vocab_size"
    return Tokenizer(
        {
            SOURCE_FILE: _train(section, sources, "vocab_size", section.vocab_size),
            TARGET_FILE: _train(section, targets, target_field, target_size, has_tags=False),
        }
    )


def forecast_memory(section: TokenizerSection, sources: Sequence[str], targets: Sequence[str]) -> int:
    """An upper bound on the bytes of a process that trains on these pairs, including the interpreter.

    Both kinds hold the text; in addition BPE keeps the positions of symbols in distinct words, and unigram a suffix
    array of all characters. So text without spaces, where a sentence is a word, costs BPE ten times as much. The
    factors are upper bounds of peak resident memory measured with SentencePiece 0.2.3 in a separate process, on Tatoeba
    and Multi30k (7 MB), Zipf-distributed words (8, 32 and 100 MB), Han characters (8 MB, BPE 24) and letters (4 MB)
    without spaces, vocabularies of 8,000 and 32,000, 1 and 4 threads: the bound is 1.1 to 1.9 times the measured
    memory.
    """
    sides = [[*sources, *targets]] if section.vocabulary == "joint" else [sources, targets]
    return 30_000_000 + max(_training_bytes(section.kind, lines) for lines in sides)


def _training_bytes(kind: str, lines: Sequence[str]) -> int:
    words: set[str] = set()
    for line in lines:
        words.update(line.split())
    distinct = sum(map(len, words))
    if kind == "bpe":
        return 4 * sum(len(line.encode()) for line in lines) + 150 * distinct
    return 24 * sum(map(len, lines)) + 75 * distinct


def _train(section: TokenizerSection, lines: Iterable[str], field_name: str, size: int, has_tags: bool = True) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=segments(without_marks(lines, section)),
            model_writer=model,
            model_type=section.kind,
            vocab_size=size,
            character_coverage=section.character_coverage,
            byte_fallback=section.byte_fallback,
            normalization_rule_name=section.normalization,
            num_threads=section.threads,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            control_symbols=[*section.tags, *spare_names(section.spare)] if has_tags else [],
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(str(error), field_name, size) from error
    return model.getvalue()


def without_marks(lines: Iterable[str], section: TokenizerSection) -> Iterator[str]:
    """The lines without characters for which SentencePiece's trainer would skip a whole sentence.

    These are its special symbols, including tags, wherever normalisation produces one, and its character for unknown
    text. A symbol is split by a space, keeping its characters; the character is removed.
    """
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=section.normalization)
    controls = [*section.tags, *spare_names(section.spare)]
    marks = re.compile("|".join(map(re.escape, ["<pad>", "<s>", "</s>", UNKNOWN_PIECE, *controls])))
    for line in lines:
        if not line.isascii() or "<" in line:
            normal = str(normalizer.normalize(line))
            if UNKNOWN_CHARACTER in normal or marks.search(normal):
                yield marks.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", normal.replace(UNKNOWN_CHARACTER, " "))
                continue
        yield line


def segments(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with long ones cut at spaces into segments that SentencePiece accepts."""
    for line in lines:
        rest = line
        while len(rest) > SEGMENT_CHARS:
            space = rest.rfind(" ", 0, SEGMENT_CHARS)
            cut = space if space > 0 else SEGMENT_CHARS
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def _explain(message: str, field_name: str, size: int) -> Exception:
    """Translate SentencePiece's error into this project's terms."""
    where = f"prepare.tokenizer.{field_name}: {size} pieces"
    if match := re.search(r"Please set it to a value <= (\d+)", message):
        return UserError(f"{where} are more than the corpus supports; allowed is at most {match[1]}")
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{where} do not hold the corpus's characters; allowed is at least {match[1]}, "
            "or a lower prepare.tokenizer.character_coverage"
        )
    if "all_chars_count" in message or "sentences_.empty()" in message:
        return UserError(
            "prepare.train: no text is left to train a tokenizer on; look at the corpus and at prepare.cleaning"
        )
    return RuntimeError(f"SentencePiece: {message}")


def check_tags(section: PrepareSection, tokenizer: Tokenizer) -> None:
    """Check that the tokenizer has the tags that the section needs.

    Raises:
        UserError: it does not.
    """
    wanted = {"target_tag": section.target_tag[2:-2]} if section.target_tag is not None else {}
    if section.tag_both_sides:
        wanted |= {f"{side}_language": getattr(section, f"{side}_language") for side in ("source", "target")}
    for name, language in wanted.items():
        tags = tokenizer.tags_of(language)
        if not tags:
            have = ", ".join(tokenizer.tags) or "none"
            number = len(tokenizer.spares)
            spare = f"; prepare.tokenizer.tags takes one of its {number} spare pieces" if number else ""
            raise UserError(f"prepare.{name}: >>{language}<<: the tokenizer's tags are {have}{spare}")
        if len(tags) > 1:
            raise UserError(
                f"prepare.{name}: {language!r} may be {' or '.join(tags)} of the tokenizer; name one of them"
            )
    if section.tag_both_sides and not tokenizer.is_joint:
        raise UserError("prepare.tag_both_sides: true with two vocabularies; use a joint one")


WORTH_A_WARNING = 0.001
"""Fraction of a side's pieces above which there is a warning."""


class UnknownPiecesError(UserError):
    """The fraction of unknown pieces exceeds `prepare.max_unknown`."""


def check_unknown(section: PrepareSection, report: Report) -> None:
    """Refuse a corpus with too many unknown pieces.

    Raises:
        UnknownPiecesError: naming the side and the fraction.
    """
    for side in SIDES:
        count = report.num_pieces(side)
        if count.fraction > section.max_unknown:
            given = section.tokenizer.path
            other = (
                f"another tokenizer than that of {given}"
                if given is not None
                else "a higher prepare.tokenizer.character_coverage, or prepare.tokenizer.byte_fallback=true"
            )
            raise UnknownPiecesError(
                f"prepare.max_unknown: {section.max_unknown:g}, and {count} {side} pieces are unknown to the tokenizer "
                f"(<unk>); take {other}; or allow it with a larger prepare.max_unknown"
            )


def warnings(report: Report, dataset: Dataset) -> Iterator[str]:
    """Warnings about unknown pieces in a prepared dataset's training pairs and held-out sets."""
    for side in SIDES:
        count = report.num_pieces(side)
        if count.fraction > WORTH_A_WARNING:
            yield f"prepare.train: {count} {side} pieces are unknown to the tokenizer (<unk>)"
    for split in dataset.index.held_out:
        for side, count in zip(SIDES, _of_held_out(dataset, split), strict=True):
            if count.fraction > WORTH_A_WARNING:
                yield f"prepare.{split}: {count} {side} pieces are unknown to the tokenizer (<unk>)"
        tags = dataset.tokenizer.tags_that_are_text(dataset.held_out(split)[0])
        yield from (f"prepare.{split}: {line}" for line in describe_tags(tags))
    yield from (f"prepare.train: {line}" for line in describe_tags(report.tags_as_text))


def describe_tags(tags: Mapping[str, int]) -> Iterator[str]:
    """Warnings about tags at the beginning of source lines that were taken for text, for the first few."""
    for tag, lines in itertools.islice(tags.items(), NUM_TAGS):
        yield (
            f"{lines:,} source lines begin with {tag}, which is taken for text: a tag stands at the very start of a "
            "line, is one of prepare.tokenizer.tags, and has no other before it"
        )


def _of_held_out(dataset: Dataset, split: str) -> list[PieceCount]:
    sources, targets = dataset.held_out(split)
    rows = dataset.tokenizer.encode_source(sources), dataset.tokenizer.encode_target(targets)
    return [PieceCount(unknown=sum(row.count(UNK_ID) for row in side), pieces=sum(map(len, side))) for side in rows]
