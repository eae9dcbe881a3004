"""A parallel corpus: its files, its languages, and pairs to hold out."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from configs import CorpusFiles, UserError
from configs.languages import is_known, language
from configs.process.progress import Progress
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.corpus import corpus_units
from data_pipeline.preparation.filters.texts import fold
from data_pipeline.preparation.lines import BYTE_ORDER_MARK, COMPRESSED, byte_lines, decode_lines
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.preparation.readers.tmx import Tmx

LEAST_PAIRS, LEAST_SET, MOST_SET, PART_OF_SET = 40, 2, 1000, 20
"""Pairs of a corpus, and of a held-out set, which has at most one pair in so many."""
SAMPLE_PAIRS, CHUNK_PAIRS, LONGEST = 20_000, 16_384, 2000
"""Pairs that are looked at and may be held out, pairs read at a time, and characters of a side of the former."""
SEED = 1
CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4}){0,2}")
HEAD_LINES = 20
"""Of a TSV, which show whether it is what it looks like."""
_NO_CODES = frozenset(
    {
        "all", "bpe", "bz", "csv", "dev", "doc", "gz", "in", "low", "no", "of", "out", "raw", "ref", "src", "tab",
        "tgt", "the", "tmx", "to", "tok", "trg", "tsv", "tst", "txt", "val", "xz", "zst",
    }
)  # fmt: skip
"""Parts of files' names that are codes of languages too, and are not meant so. (Norwegian is `nb` or `nn`.)"""
Pair = tuple[str, str]


@dataclass(kw_only=True, frozen=True, slots=True)
class Corpus:
    """The files, and the languages of source and target."""

    files: CorpusFiles
    languages: tuple[str, str]
    how: str
    """How the languages are known, for a comment."""

    def pairs(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Sources and targets, some thousands at a time.

        Raises:
            UserError: a file is broken, empty or no text, or its sides differ in length.
        """
        for unit in corpus_units(self.files, ".", {}, self.languages):
            for _, raw in unit.stream(0, 0, CHUNK_PAIRS):
                for chunk in raw.chunks(CHUNK_PAIRS):
                    yield chunk.sources, chunk.targets


class CorpusSummary(NamedTuple):
    """What a corpus has."""

    num_pairs: int
    """With text on both sides."""
    sample: Sequence[Pair]
    """Pairs drawn evenly from all, in a random order."""
    valid: Sequence[Pair] = ()
    test: Sequence[Pair] = ()


def find_corpus(paths: Sequence[str], source: str | None, target: str | None) -> Corpus:
    """The corpus that was given.

    Args:
        paths: two files, or one TSV or TMX.
        source, target: codes of languages that the user named.

    Raises:
        UserError: a path is not a file or of an unknown format, or its languages are not known.
    """
    given = [Path(path) for path in paths]
    for name, path in zip(paths, given, strict=True):
        if "${" in name or not name.isprintable():
            raise UserError(f"CORPUS: {name!r}: a configuration cannot hold this name; rename it")
        if not path.is_file():
            raise UserError(f"CORPUS: {name}: is not a file; give two text files, a TSV of two columns or a TMX")
    if len(given) > 2 or len({path.resolve() for path in given}) < len(given):
        raise UserError("CORPUS: give two different text files, the source's first, or one TSV or TMX")
    if len(given) == 2:
        files = CorpusFiles(source=[paths[0]], target=[paths[1]])
        named = [_code_in(given[0]), _code_in(given[1])]
    else:
        is_tmx = _plain_name(given[0]).lower().endswith(".tmx")
        if not is_tmx:
            _check_columns(given[0])
        files = CorpusFiles(files=[paths[0]], reader=Tmx() if is_tmx else Tsv(source_field=1, target_field=2))
        codes = [part for part in re.split(r"[._-]", _plain_name(given[0])) if _is_code(part)]
        named = codes[-2:] if len(codes) > 1 else [None, None]
    source_code, target_code = source or named[0], target or named[1]
    if source_code is None or target_code is None:
        raise UserError(
            f"CORPUS: {paths[0]}: no name says the {'source' if source_code is None else 'target'}'s language, as in "
            "corpus.en or corpus.en-cs.tsv; give --source-language and --target-language"
        )
    source_language, target_language = language(source_code), language(target_code)
    if (source_language.code, source_language.script) == (target_language.code, target_language.script):
        raise UserError(f"CORPUS: both sides are in one language ({source_code}); give text in two, or name them")
    how = "as given" if source and target else "by the names of the files"
    return Corpus(files=files, languages=(source_code, target_code), how=how)


def _plain_name(path: Path) -> str:
    """The name without the suffix of a compression."""
    return path.stem if path.suffix.lower() in COMPRESSED else path.name


def _is_code(text: str) -> bool:
    return text.lower() not in _NO_CODES and CODE.fullmatch(text) is not None and is_known(text)


def _code_in(path: Path) -> str | None:
    """The code of a language in a file's name, the last if there are several."""
    name = _plain_name(path)
    parts = [part for split in (r"\.", r"[._-]") for part in reversed(re.split(split, name))]
    return next(filter(_is_code, parts), None)


def _check_columns(path: Path) -> None:
    """Check that a TSV has two columns of text from its first line on.

    Raises:
        UserError: it has not, or its first line names columns, or the first lines are in quotation marks.
    """
    head = [line + b"\n" for line in islice(byte_lines(path), HEAD_LINES)]
    lines = decode_lines(path, b"".join(head), range(1, HEAD_LINES + 1))
    rows = [line.removeprefix(BYTE_ORDER_MARK).split("\t") for line in lines]
    first = rows[0]
    if len(first) != 2:
        raise UserError(
            f"CORPUS: {path}: line 1 has {len(first)} columns; give a TSV of two, source and target (cut -f 1,2), a "
            "TMX, or two text files"
        )
    if all(cell.lower() in ("source", "target") or _is_code(cell) for cell in first):
        raise UserError(f"CORPUS: {path}: line 1 names columns and would be a pair; leave it out (tail -n +2)")
    if all(cell.startswith('"') for row in rows for cell in row):
        raise UserError(f"CORPUS: {path}: columns are in quotation marks, which are text in a TSV; write it without")


def summarise(corpus: Corpus) -> CorpusSummary:
    """Read the corpus twice: for figures and a sample, then to count where the sample's sentences stand.

    Raises:
        UserError: a file cannot be read, or there are too few pairs to hold any out.
    """
    kept, highest, num_pairs = list[tuple[int, Pair]](), sys.maxsize, 0
    with Progress("reading") as progress:
        for number, (sources, targets) in enumerate(corpus.pairs()):
            keys = (random_bits(len(sources), SEED, Purpose.TOKENIZER_SAMPLE, number) >> np.uint64(1)).tolist()
            for key, source, target in zip(keys, sources, targets, strict=True):
                has_text = bool(source.strip() and target.strip())
                num_pairs += has_text
                if has_text and key < highest and max(len(source), len(target)) <= LONGEST:
                    kept.append((key, (source.strip(), target.strip())))
            if len(kept) > 2 * SAMPLE_PAIRS:
                kept = sorted(kept)[:SAMPLE_PAIRS]
                highest = kept[-1][0]
            progress.advance(len(sources))
    if num_pairs < LEAST_PAIRS:
        raise UserError(
            f"CORPUS: {num_pairs} pairs with text on both sides are too few to hold some out; give at least "
            f"{LEAST_PAIRS}, or write a configuration by hand (docs/quick-start.md)"
        )
    sample = [pair for _, pair in sorted(kept)[:SAMPLE_PAIRS]]
    unique = _unique(sample, corpus)
    size = min(MOST_SET, num_pairs // PART_OF_SET, len(unique) // 2)
    if size < LEAST_SET:
        raise UserError(
            f"CORPUS: of {num_pairs:,} pairs only {len(unique)} have sentences that stand there once, too few to hold "
            "some out; give more varied text, or sets of your own (docs/quick-start.md)"
        )
    return CorpusSummary(num_pairs, sample, unique[0 : 2 * size : 2], unique[1 : 2 * size : 2])


def _unique(sample: Sequence[Pair], corpus: Corpus) -> list[Pair]:
    """The pairs of a sample whose sentences both occur only once in the corpus."""
    uses: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for pair in sample:
        for counts, line in zip(uses, pair, strict=True):
            counts[fold(line)] = 0
    with Progress("reading again") as progress:
        for sides in corpus.pairs():
            for counts, lines in zip(uses, sides, strict=True):
                for line in map(fold, lines):
                    if line in counts:
                        counts[line] += 1
            progress.advance(len(sides[0]))
    pairs = []
    for pair in sample:
        source, target = map(fold, pair)
        if uses[0][source] == uses[1][target] == 1 and source != target and any(map(str.isalpha, source)):
            pairs.append(pair)
    return pairs
