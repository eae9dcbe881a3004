"""Corrupt blocks are skipped and counted, up to a limit."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from configs import StreamSection
from configs.components import make
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DataError
from tests.data_pipeline.stream.made import Ids, close, ids_of, open_readers, read_epoch, write_dataset

BROKEN = (3, 20)


@pytest.fixture
def broken(copied: Path) -> Path:
    """The small dataset, with a flipped byte in two blocks."""
    blocks = np.load(copied / "blocks.npy")
    for number in BROKEN:
        path = copied / f"train-{int(blocks['shard'][number]):06d}.tar"
        data = bytearray(path.read_bytes())
        data[int(blocks["offset"][number]) + 600] ^= 1
        path.write_bytes(data)
    return copied


def _pairs_gone(small: Dataset) -> set[int]:
    rows = small.blocks[list(BROKEN)]
    return {pair for row in rows for pair in range(int(row["first_pair"]), int(row["first_pair"] + row["pairs"]))}


def _without(ids: Ids, gone: set[int]) -> Ids:
    left = ((lane, [i for i in pairs if i not in gone]) for lane, pairs in ids)
    return [(lane, pairs) for lane, pairs in left if pairs]


@pytest.mark.parametrize("num_lanes", [4, 40])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_corrupt_blocks_are_skipped_and_counted(
    small: Dataset, broken: Path, num_lanes: int, prefetch: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each lane hands out the same as of the whole dataset, less the corrupt blocks' pairs."""
    section = StreamSection(
        micro_batches=num_lanes, source_tokens=300, target_tokens=300, window_pairs=100, prefetch_updates=prefetch
    )
    whole, corrupt = (
        open_readers([small], section),
        open_readers([Dataset.load(broken)], dataclasses.replace(section, max_corrupt_blocks=2)),
    )
    gone = _pairs_gone(small)
    for _ in range(2):
        all_, left = ids_of(read_epoch(whole)), ids_of(read_epoch(corrupt))
        wanted = _without(all_, gone)
        for lane in range(num_lanes):
            assert [i for n, i in wanted if n == lane] == [i for n, i in left if n == lane]
    assert corrupt[0].num_corrupt_blocks == 2
    warnings = [r.getMessage() for r in caplog.records]
    assert len(warnings) == 2, "each is named once, though every lane and epoch meets it"
    assert any("block 000000-000003: its hash is not the index's" in w for w in warnings)
    close(whole, corrupt)
    with pytest.raises(DataError, match=r"block .*; 1 blocks were skipped before, as many as .*max_corrupt_blocks=1"):
        read_epoch(open_readers([Dataset.load(broken)], dataclasses.replace(section, max_corrupt_blocks=1)))
    with pytest.raises(DataError, match=r"block 0000\d\d-0000\d\d: its hash is not the index's[^;]*$"):
        read_epoch(open_readers([Dataset.load(broken)], section))


def test_workers_share_one_limit(small: Dataset, broken: Path) -> None:
    section = StreamSection(micro_batches=2, source_tokens=300, target_tokens=300, window_pairs=100, workers=2)
    readers = open_readers([Dataset.load(broken)], dataclasses.replace(section, max_corrupt_blocks=2))
    ids = [i for _, pairs in ids_of(read_epoch(readers)) for i in pairs]
    assert sorted(ids) == [i for i in range(1000) if i not in _pairs_gone(small)]
    assert readers[0].num_corrupt_blocks == 2
    close(readers)
    for limit in (0, 1):
        readers = open_readers([Dataset.load(broken)], dataclasses.replace(section, max_corrupt_blocks=limit))
        with pytest.raises(DataError, match=r"block 0000\d\d-0000\d\d: its hash is not the index's"):
            read_epoch(readers)
        close(readers)
    before = Dataset.load(broken)
    before.fingerprint = "0" * 64  # as it was when the run began
    readers = open_readers([before], section)
    with pytest.raises(DataError, match="was replaced while it was read"):
        readers[0].next_update()
    close(readers)


def test_broken_blocks_do_not_change_a_mixtures_order(small: Dataset, broken: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", small, 700, seed=2, pairs_per_block=16)
    section = StreamSection(micro_batches=4, source_tokens=100, target_tokens=100, window_pairs=60)
    corrupt = Dataset.load(broken)
    gone = {700 + i for i in _pairs_gone(small)}
    whole = open_readers([other, small], section)
    left = open_readers([other, corrupt], dataclasses.replace(section, max_corrupt_blocks=5), 3)
    before: Ids = []
    after: Ids = []
    for _ in range(2):
        wanted = _without(ids_of(read_epoch(whole)), gone)
        got = ids_of(read_epoch(left))
        for lane in range(4):
            mine, theirs = ([ids for n, ids in some if n == lane] for some in (before + wanted, after + got))
            # In place of a micro-batch without a pair left the lane takes the next one.
            assert theirs[: len(mine)] == mine
        before, after = before + wanted, after + got
    assert sum(reader.num_corrupt_blocks for reader in left) >= 2
    close(whole, left)


@pytest.mark.parametrize("num_lanes", [4, 40])
def test_augmented_they_are_skipped_too(small: Dataset, broken: Path, num_lanes: int) -> None:
    """Their pairs cannot be changed, nor be anybody's neighbour; the others are there once, at any number of ranks."""
    modifiers = [make("modifier", kind, probability=0.5) for kind in ("merge", "upper_case", "bpe_dropout")]
    section = StreamSection(
        micro_batches=num_lanes,
        source_tokens=300,
        target_tokens=300,
        window_pairs=100,
        max_corrupt_blocks=2,
        augment=modifiers,
    )
    alone, two = (open_readers([Dataset.load(broken)], section, ranks) for ranks in (1, 2))
    first, second = read_epoch(alone), read_epoch(two)
    assert sorted(i for m in first for i in m.pair_ids.tolist()) == sorted(set(range(1000)) - _pairs_gone(small))
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.source, other.source)
        assert np.array_equal(one.target_output, other.target_output)
    assert alone[0].num_corrupt_blocks == 2
    close(alone, two)
