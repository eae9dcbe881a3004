import time

import numpy as np
import pytest

from data_pipeline.prepared.dataset import Block, Dataset
from data_pipeline.prepared.index import DataError
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.window_tokens import BlockReader


@pytest.mark.parametrize("num_threads", [0, 4])
def test_blocks_come_in_turn_and_are_read_once(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, num_threads: int
) -> None:
    """As for a remote dataset: later blocks are there first, and one is broken."""
    original, reads = Dataset.read_block, []

    def slow(self: Dataset, number: int) -> Block:
        reads.append(number)
        time.sleep(0.02 if number % 3 == 0 else 0)
        if number == 7:
            raise DataError("block 7 is broken")
        return original(self, number)

    background = Background(num_threads) if num_threads else None
    reader = BlockReader(small, is_shared=True, background=background)
    numbers = list(range(20))
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "read_block", slow)
        blocks = [*reader.read(numbers), *reader.read([7, 2])]
    if background is not None:
        background.close()
    for number, block in zip([*numbers, 7, 2], blocks, strict=True):
        if number == 7:
            assert isinstance(block, DataError)
        else:
            assert isinstance(block, Block)
            assert np.array_equal(block.source, small.read_block(number).source)
    assert sorted(reads) == numbers, "each is read once, the broken one too"
