from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.preparation.report import Report
from data_pipeline.preparation.writing.spill import PairRows, SpillFolder, first_occurrences, take, take_at

Row = tuple[list[int], list[int], int]


def _rows(rows: list[Row], keys: np.random.Generator) -> PairRows:
    return PairRows(
        keys=keys.integers(0, 1 << 32, len(rows), dtype=np.uint32),
        hashes=np.array([[number] * 16 for *_, number in rows], dtype=np.uint8).reshape(-1, 16),
        lengths=np.array([[len(s), len(t)] for s, t, _ in rows], dtype=np.uint16).reshape(-1, 2),
        source=np.array([piece for s, _, _ in rows for piece in s], dtype=np.uint16),
        target=np.array([piece for _, t, _ in rows for piece in t], dtype=np.uint16),
    )


def _split(pairs: PairRows) -> list[tuple[int, bytes, tuple[int, ...], tuple[int, ...]]]:
    sides = [
        np.split(pieces, np.cumsum(pairs.lengths[:, side], dtype=np.int64)[:-1])
        for side, pieces in enumerate((pairs.source, pairs.target))
    ]
    return [
        (int(key), pairs.hashes[row].tobytes(), tuple(sides[0][row].tolist()), tuple(sides[1][row].tolist()))
        for row, key in enumerate(pairs.keys)
    ]


PIECES = st.lists(st.integers(0, 65_535), max_size=5)
ROWS = st.lists(st.tuples(PIECES, PIECES, st.integers(0, 3)), max_size=12)


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(ROWS, min_size=1, max_size=4), num_shards=st.integers(1, 5), seed=st.integers(0, 99))
def test_what_goes_in_comes_out_by_shard_in_corpus_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Row]], num_shards: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    folder = SpillFolder(tmp_path_factory.mktemp("spill"), num_shards=num_shards, has_hashes=True, dtype="uint16")
    wanted: list[list[object]] = [[] for _ in range(num_shards)]
    for number, rows in enumerate(parts):
        pairs = _rows(rows, random)
        shards = random.integers(0, num_shards, len(rows))
        assert folder.missing([number]) == [number]
        folder.write(number, pairs, shards, Report.of(dropped={"empty": number}))
        assert folder.missing([number]) == []
        assert folder.report(number) == Report.of(dropped={"empty": number})
        for shard, row in zip(shards.tolist(), _split(pairs), strict=True):
            wanted[shard].append(row)
    folder.collect_segments(len(parts))
    assert [_split(folder.read(shard)) for shard in range(num_shards)] == wanted


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    folder = SpillFolder(tmp_path, num_shards=1, has_hashes=True, dtype="uint16")
    folder.write(0, _rows([([1, 2], [3], 0)], np.random.default_rng(0)), np.zeros(1, dtype=np.int64), Report.empty())
    folder.collect_segments(1)
    path = tmp_path / "00000000.pairs"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match=r"00000000\.pairs: is cut short"):
        folder.read(0)


@given(hashes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_first_occurrences(hashes: list[tuple[int, int]]) -> None:
    table = np.array(hashes, dtype=np.uint64).reshape(-1, 2).view(np.uint8).reshape(-1, 16)
    assert first_occurrences(table).tolist() == [h not in hashes[:i] for i, h in enumerate(hashes)]


@given(rows=st.lists(PIECES, min_size=1, max_size=10), data=st.data())
def test_take(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=12))
    flat = np.array([piece for row in rows for piece in row], dtype=np.uint16)
    lengths = np.array([len(row) for row in rows], dtype=np.uint16)
    wanted = [piece for row in chosen for piece in rows[row]]
    assert take(flat, lengths, np.array(chosen)).tolist() == wanted
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    assert take_at(flat, starts[chosen], lengths[chosen]).tolist() == wanted
