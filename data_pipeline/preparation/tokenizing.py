"""The tokenizer of a dataset: an existing one, or one trained on an even sample of the corpus; its unknown pieces."""

import bisect
import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import sentencepiece

from configs import PrepareSection, TokenizerSection, UserError
from configs.process.files.inside import read_bytes
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.corpus import RawSpan
from data_pipeline.preparation.report import Report
from data_pipeline.tokenizer import (
    BOS_ID,
    EOS_ID,
    JOINT_FILE,
    PAD_ID,
    SIDES,
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
    """A uniform sample of the corpus: the pairs with the smallest random keys, in one pass and bounded memory.

    Each pair's key is a function of seed, span and row, so the sample does not depend on the order in which spans are
    added. Pairs with a blank side are skipped, and those with a side of more than `max_characters`, which the dataset
    will not have.
    """

    size: int
    """Maximum number of pairs."""
    max_bytes: int
    """Maximum bytes of text of both sides, in UTF-8."""
    seed: int
    max_characters: int = sys.maxsize
    num_long: int = 0
    """Number of pairs that are not in the sample because of their length."""
    _sampled: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    """Key, span, row; source, line feed and target in one string, which takes half the memory of two."""
    _num_bytes: int = 0
    _highest: int = (1 << 64) - 1
    """Pairs with a higher key can no longer be in the sample."""

    def add(self, span: RawSpan, number: int) -> None:
        """Add a span's pairs; `number` is the span's in the corpus."""
        keys = random_bits(span.num_pairs, self.seed, Purpose.TOKENIZER_SAMPLE, number)
        rows = np.flatnonzero(keys <= np.uint64(self._highest))
        for row, (source, target) in zip(rows.tolist(), span.rows(rows), strict=True):
            if not source.strip() or not target.strip():
                continue
            if max(len(source), len(target)) > self.max_characters:
                self.num_long += 1
                continue
            text = f"{source}\n{target}".encode()
            self._sampled.append((int(keys[row]), number, row, text))
            self._num_bytes += len(text)
        if len(self._sampled) > SLACK * self.size or self._num_bytes > SLACK * self.max_bytes:
            self._prune()

    def finish(self) -> tuple[list[str], list[str]]:
        """Sources and targets of the sample, in corpus order. This empties the sample."""
        self._prune()
        sampled, self._sampled = sorted(self._sampled, key=lambda one: one[1:3]), []
        pairs = [text.decode().split("\n") for *_, text in sampled]
        return [source for source, _ in pairs], [target for _, target in pairs]

    def _prune(self) -> None:
        """Keep the pairs with the smallest keys, within both bounds."""
        self._sampled.sort()
        ends = list(itertools.accumulate(len(text) for *_, text in self._sampled))
        kept = min(self.size, bisect.bisect_right(ends, self.max_bytes))
        if kept < len(self._sampled):
            self._highest = self._sampled[kept][0]
            del self._sampled[kept:]
        self._num_bytes = ends[kept - 1] if kept else 0


def existing_tokenizer(section: TokenizerSection) -> Tokenizer | None:
    """The tokenizer that `section.path` names, or None if one must be trained.

    The path is a prepared dataset, another folder with a tokenizer, or the file of a joint one. The section's kind and
    size are ignored.

    Raises:
        UserError: there is none, it cannot be used, or it lacks one of the section's tags.
    """
    if section.path is None:
        return None
    path = Path(section.path)
    where = f"prepare.tokenizer.path: {path}"
    try:
        tokenizer = Tokenizer.load(path) if path.is_dir() else Tokenizer({JOINT_FILE: read_bytes(path)})
    except OSError as error:
        raise UserError(
            f"{where}: {error.strerror}; allowed is a prepared dataset, or a folder that holds {JOINT_FILE}"
        ) from error
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('tokenizer: ')}") from error
    for tag in section.tags:
        if tag not in tokenizer.tags:
            have = ", ".join(tokenizer.tags) or "none"
            raise UserError(
                f"prepare.tokenizer.tags: {tag} is not a piece of {path}; allowed is one of its own ({have})"
            )
    return tokenizer


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
            control_symbols=section.tags if has_tags else [],
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
    marks = re.compile("|".join(map(re.escape, ["<pad>", "<s>", "</s>", UNKNOWN_PIECE, *section.tags])))
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
        if len(tags) != 1:
            have = ", ".join(tags or tokenizer.tags) or "none"
            raise UserError(f"prepare.{name}: >>{language}<<: the tokenizer's tags are {have}; name one of them")
    if section.tag_both_sides and not tokenizer.is_joint:
        raise UserError("prepare.tag_both_sides: true with two vocabularies; use a joint one")


def check_unknown(section: PrepareSection, report: Report) -> None:
    """Refuse a corpus with too many unknown pieces.

    Raises:
        UserError: naming the side and the fraction.
    """
    for side in SIDES:
        if report.share_of_unknown(side) > section.max_unknown:
            raise UserError(
                f"prepare.max_unknown: {section.max_unknown:g}, and {report.unknown_pieces(side)} are unknown to the "
                "tokenizer (<unk>); take another prepare.tokenizer.path, or train one with a higher character_coverage "
                "or byte_fallback=true; or allow it with a larger prepare.max_unknown"
            )
