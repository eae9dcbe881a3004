"""Scores that stand beside the text: in fields of the corpus, and in side files, a number a line."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.process.files.inside import name_of, replacing
from data_pipeline.preparation.raw.lines import LineReader, TextChunk, decode_lines
from data_pipeline.preparation.raw.text import BYTE_ORDER_MARK

LINES_AT_ONCE = 1 << 16
MOST = float(np.finfo(np.float32).max)
"""The largest score."""

Scores = NDArray[np.float32]
"""(pairs,), NaN where a pair has none."""


def parse(name: str, texts: Sequence[str], where: Callable[[int], str]) -> Scores:
    """The numbers of some texts; of an empty one and `nan` NaN.

    Args:
        name: of the score, for messages.
        texts: of any number of pairs.
        where: file and line of one of them, for messages.

    Raises:
        UserError: one is no number.
    """
    try:
        with np.errstate(over="ignore"):
            scores = np.array([float(text or "nan") for text in texts], dtype=np.float32)
        if not np.isinf(scores).any() and not any("_" in text for text in texts):
            return scores
    except (ValueError, OverflowError):
        pass
    return np.array([_number(name, text, where(row)) for row, text in enumerate(texts)], dtype=np.float32)


def _number(name: str, text: str, where: str) -> float:
    try:
        value = math.inf if "_" in text else float(text.strip() or "nan")  # Python reads 12_34 as a number
    except ValueError:
        value = math.inf
    if abs(value) > MOST:
        raise UserError(f"{where}: {name} is {text!r:.80}; allowed is a number, or nothing where there is no score")
    return value


def write_tables(
    files: Mapping[str, Sequence[Path | None]], pairs: Sequence[int], folder: Path
) -> dict[str, list[Path | None]]:
    """Read side files into tables, of which each process then reads what it needs.

    Args:
        files: of each score, one for each unit of the corpus, or None.
        pairs: number of pairs of each unit.
        folder: for the tables; those that are there are kept.

    Returns:
        The tables of each score, one for each unit, or None.

    Raises:
        UserError: a file cannot be read, has another number of lines than its unit, or a line that is no number.
    """
    tables: dict[str, list[Path | None]] = {}
    for name, of_units in files.items():
        tables[name] = [None if path is None else folder / f"{name}-{unit}.npy" for unit, path in enumerate(of_units)]
        for path, table, count in zip(of_units, tables[name], pairs, strict=True):
            if path is not None and table is not None and not table.exists():
                _write_table(name, path, count, table)
    return tables


def _write_table(name: str, path: Path, count: int, table: Path) -> None:
    reader = LineReader(path)
    table.parent.mkdir(parents=True, exist_ok=True)
    with replacing(table, sync=True) as file:
        scores = np.lib.format.open_memmap(name_of(file), mode="w+", dtype=np.float32, shape=(count,))
        first = 0
        while data := reader.take(LINES_AT_ONCE):
            if reader.num_lines > count:
                break
            numbers = range(first + 1, reader.num_lines + 1)
            lines = decode_lines(path, data if first else data.removeprefix(BYTE_ORDER_MARK), numbers)
            part = TextChunk(str(path), str(path), first + 1, lines, lines)
            scores[first : reader.num_lines] = parse(name, lines, part.where)
            first = reader.num_lines
        if reader.num_lines != count:
            lines_there = reader.count_rest()
            raise UserError(f"{path}: {lines_there} lines of scores beside {count} pairs; both must have as many")
        scores.flush()
