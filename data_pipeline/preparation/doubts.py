"""What is probably not meant in a preparation that works: unknown languages, exchanged sides. Warnings alone."""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection
from configs.languages import MULTIPLE, is_known, language
from configs.process.progress import say
from data_pipeline.prepared.dataset import Dataset

LEAST_LINES = 10
"""A smaller set says little."""
MOST_LINES, MOST_BLOCKS = 2000, 8
MARGIN = 1.1
"""How much nearer a side must be to the other language."""

Fractions = NDArray[np.float64]


def of_languages(section: PrepareSection) -> Iterator[str]:
    """Doubts about a section's languages, one line each."""
    codes = section.languages
    for side, code in zip(("source", "target"), codes, strict=True):
        if not is_known(code):
            yield f"prepare.{side}_language: {code}: is no code of a language; give one such as en, eng or eng_Latn"
    if language(codes[0]) == language(codes[1]) and codes[0] != MULTIPLE:
        yield f"prepare.target_language: {codes[1]}: is the language of the source too ({codes[0]})"


def warn_of_languages(section: PrepareSection) -> None:
    """Say these doubts."""
    for doubt in of_languages(section):
        say(f"zeromt: warning: {doubt}", file=sys.stderr)


def of_sides(dataset: Dataset) -> Iterator[str]:
    """Doubts about the sides of a dataset's held-out sets, one line each, by the pieces that they have."""
    splits = [str(split) for split, entry in dataset.index.held_out.items() if entry.lines >= LEAST_LINES]
    if not splits:
        return
    ours, theirs = _of_training(dataset)
    for split in splits:
        source, target = (_fractions(dataset, lines[:MOST_LINES]) for lines in dataset.held_out(split))
        if _is_nearer(source, theirs, than=ours) and _is_nearer(target, ours, than=theirs):
            yield (
                f"prepare.{split}: its source is nearer to the training target and its target to the training source; "
                f"are the sides of prepare.{split} exchanged, or those of prepare.train?"
            )


def _of_training(dataset: Dataset) -> tuple[Fractions, Fractions]:
    """The fraction of each piece in a sample of either side."""
    numbers = np.unique(np.linspace(0, dataset.index.blocks - 1, MOST_BLOCKS).astype(np.int64)).tolist()
    sides: tuple[list[str], list[str]] = [], []
    for block in map(dataset.read_block, numbers):
        ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)[:-1]
        rows = [np.split(pieces, ends[:, side]) for side, pieces in enumerate((block.source, block.target))]
        sides[0].extend(dataset.tokenizer.decode_source([row.tolist() for row in rows[0]]))
        sides[1].extend(dataset.tokenizer.decode_target([row.tolist() for row in rows[1]]))
    return _fractions(dataset, sides[0]), _fractions(dataset, sides[1])


def _fractions(dataset: Dataset, lines: Sequence[str]) -> Fractions:
    """(P,): the fraction that each piece is, of the source vocabulary, in which both sides are spelled."""
    pieces = [piece for row in dataset.tokenizer.encode_source(lines) for piece in row]
    counts = np.bincount(np.array(pieces, dtype=np.int64), minlength=dataset.tokenizer.source_vocab_size)
    fractions: Fractions = counts / max(1, counts.sum())
    return fractions


def _is_nearer(fractions: Fractions, to: Fractions, *, than: Fractions) -> bool:
    return bool(np.minimum(fractions, to).sum() > MARGIN * np.minimum(fractions, than).sum())
