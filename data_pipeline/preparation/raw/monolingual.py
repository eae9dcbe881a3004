"""A monolingual dataset in place of a text file: its lines in the order of its pairs, as its pieces spell them."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from configs import UserError
from data_pipeline.preparation.raw.lines import MAX_TAKE_BYTES, LineReader
from data_pipeline.prepared.dataset import Dataset


class DatasetReader:
    """Reads a dataset as `LineReader` reads a file.

    Args:
        path: its folder.

    Raises:
        UserError: there is no dataset, or it is not monolingual.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Bytes handed out."""
        self.num_lines = 0
        """Lines handed out, or skipped."""
        self._dataset = Dataset.load(path)
        if not self._dataset.is_monolingual:
            raise UserError(f"{path}: is a dataset of pairs; give one of prepare.monolingual=true, or a text file")
        self._block, self._lines = -1, list[str]()

    def take(self, count: int) -> bytes:
        """The next `count` lines, or those that are left; each ends in a line feed. Fewer where lines are long."""
        taken: list[str] = []
        size, end = 0, min(self.num_lines + count, self._dataset.num_pairs)
        while self.num_lines < end and size < MAX_TAKE_BYTES:
            taken.append(self._line(self.num_lines))
            size += len(taken[-1])
            self.num_lines += 1
        text = "".join(f"{line}\n" for line in taken).encode()
        self.offset += len(text)
        return text

    def lines(self) -> Iterator[str]:
        """The lines that are left, as text."""
        while self.num_lines < self._dataset.num_pairs:
            yield self._line(self.num_lines)
            self.num_lines += 1

    def skip(self, count: int) -> None:
        """Leave out `count` lines, which are not read."""
        self.num_lines += count

    def _line(self, number: int) -> str:
        block = int(np.searchsorted(self._firsts, number, side="right")) - 1
        if block != self._block:
            content = self._dataset.read_block(block)
            rows = np.split(content.source, np.cumsum(content.lengths[:, 0], dtype=np.int64)[:-1])
            self._lines = self._dataset.tokenizer.decode_source([row.tolist() for row in rows])
            self._block = block
        return self._lines[number - int(self._firsts[block])]

    @cached_property
    def _firsts(self) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        return np.ascontiguousarray(self._dataset.blocks["first_pair"])


def reader_of(path: Path) -> LineReader | DatasetReader:
    """The reader of a text file, or of a monolingual dataset."""
    return DatasetReader(path) if path.is_dir() else LineReader(path)
