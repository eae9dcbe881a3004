import time

import numpy as np
import pytest

from data_pipeline.prepared.dataset import Block, Dataset
from data_pipeline.prepared.index import DataError
from data_pipeline.stream.prefetch import Background
from data_pipeline.stream.window_tokens import BlockCache, read_pairs


def test_the_cache_is_bounded(small: Dataset) -> None:
    cache = BlockCache(small, max_bytes=20_000)
    everything = np.arange(1000)
    tokens = read_pairs(cache, everything)
    assert cache.num_bytes <= 20_000
    some = np.array([3, 400, 401, 999])
    few = read_pairs(cache, some)
    for side, whole in ((few.source, tokens.source), (few.target, tokens.target)):
        rows, wanted = side.rows(np.arange(4)), whole.rows(some)
        assert all(np.array_equal(rows[number], wanted[number]) for number in range(4))
    (block,) = BlockCache(small, max_bytes=1).read([3])
    assert isinstance(block, Block)
    assert block.lengths.shape == (32, 2)


def test_blocks_read_at_once_come_in_turn(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a remote dataset: later blocks are there first, and one is broken."""
    original, reads = Dataset.read_block, []

    def slow(self: Dataset, number: int) -> Block:
        reads.append(number)
        time.sleep(0.02 if number % 3 == 0 else 0)
        if number == 7:
            raise DataError("block 7 is broken")
        return original(self, number)

    background = Background(4)
    cache = BlockCache(small, background=background)
    numbers = [*range(20), 3, 7]
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "read_block", slow)
        blocks = list(cache.read(numbers))
        blocks += cache.read([7, 2])
    background.close()
    for number, block in zip([*numbers, 7, 2], blocks, strict=True):
        if number == 7:
            assert isinstance(block, DataError)
        else:
            assert isinstance(block, Block)
            assert np.array_equal(block.source, small.read_block(number).source)
    assert sorted(reads) == list(range(20)), "each is read once, the broken one too"
    assert cache.num_bytes == sum(small.read_block(n).num_bytes for n in range(20) if n != 7)
