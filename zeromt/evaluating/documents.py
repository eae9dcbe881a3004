"""Scores of whole documents: the lines of each are joined before they are compared (d-BLEU; Liu et al., 2020)."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from configs import UserError
from data_pipeline.preparation.raw.lines import LineReader
from zeromt.translating.corpus.splitting import join


def read_documents(file: Path, num_lines: int) -> list[range]:
    """The rows of each document; neighbouring lines of one id are one.

    Args:
        file: an id for each line of the sources, perhaps compressed.
        num_lines: lines of the sources.

    Raises:
        UserError: it has another number of lines, or one without an id.
    """
    ids = [line.strip() for line in LineReader(file).lines()]
    if len(ids) != num_lines:
        raise UserError(f"--documents: {file}: {len(ids)} lines beside {num_lines} of --source; give an id for each")
    if "" in ids:
        raise UserError(f"--documents: {file}: line {ids.index('') + 1} is empty; give an id for each line")
    ends = list(itertools.accumulate(len(list(group)) for _, group in itertools.groupby(ids)))
    return [range(begin, end) for begin, end in itertools.pairwise([0, *ends])]


def joined_documents(lines: Sequence[str], documents: Sequence[range]) -> list[str]:
    """Each document as one line."""
    return [join([lines[row].strip() for row in document]) for document in documents]
