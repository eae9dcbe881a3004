import dataclasses
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from configs import PrepareSection, StreamSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Block, Dataset
from data_pipeline.stream.reader import LaneCursor, StreamReader, StreamState
from tests.data_pipeline.stream.made import close, ids_of, merged, open_readers, read_epoch

SECTION = StreamSection(micro_batches=4, source_tokens=300, target_tokens=300, window_pairs=100, prefetch_updates=2)


def test_batches_hold_the_corpus(small: Dataset, small_section: PrepareSection) -> None:
    """An epoch's rows are the lines of the corpus, read by sentencepiece alone, each once."""
    root = Path(small_section.root)
    lines = [gzip.decompress((root / f"valid.{e}.gz").read_bytes()).decode().splitlines() for e in ("en", "fr")]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(small.folder / "tokenizer.model"))
    wanted = Counter(zip(*(map(tuple, processor.encode(side)) for side in lines), strict=True))
    reader = StreamReader([(small, 1.0)], dataclasses.replace(SECTION, length_multiple=8), seed=1, rank=0, world_size=1)
    pairs: Counter[tuple[tuple[int, ...], ...]] = Counter()
    while batches := [batch for batch in reader.next_update() if batch is not None]:
        for batch in batches:
            assert batch.source.shape[1] % 8 == batch.target_output.shape[1] % 8 == 0
            assert batch.num_padded_source <= 300 >= batch.num_padded_target
            for row in range(batch.num_pairs):
                sides = (batch.source[row], batch.target_input[row], batch.target_output[row])
                source, target_input, target = (tuple(i for i in side.tolist() if i) for side in sides)
                assert (source[-1], target_input, target[-1]) == (2, (1, *target[:-1]), 2)
                pairs[source[:-1], target[:-1]] += 1
    assert pairs == wanted
    reader.close()


def test_restoring_costs_one_window(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    section = dataclasses.replace(SECTION, micro_batches=1)
    readers = open_readers([small], section)
    read_epoch(readers, 30)
    state = merged(readers)
    assert state.lanes[0][0].window > 2
    close(readers)
    read: list[int] = []
    original = Dataset.read_block

    def watched(self: Dataset, number: int) -> Block:
        read.append(number)
        return original(self, number)

    monkeypatch.setattr(Dataset, "read_block", watched)
    again = open_readers([small], dataclasses.replace(section, prefetch_updates=0), state=state)
    again[0].next_update()
    assert 1 <= len(read) <= 100 // 32  # blocks of one window


def test_another_k_only_between_epochs(small: Dataset) -> None:
    readers = open_readers([small], SECTION)
    read_epoch(readers)
    between = merged(readers)
    read_epoch(readers, 1)
    within = merged(readers)
    close(readers)
    other = dataclasses.replace(SECTION, micro_batches=6)
    moved, fresh = open_readers([small], other, 2, between), open_readers([small], other, 2)
    read_epoch(fresh)
    assert ids_of(read_epoch(moved)) == ids_of(read_epoch(fresh))
    close(moved, fresh)
    with pytest.raises(UserError, match=r"stream.micro_batches: 6 where the stream was begun with 4"):
        open_readers([small], other, 2, within)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"seed": 8}, {}, r"seed: 7 where the stream was begun with 8"),
    ({"fingerprints": ["0" * 64]}, {}, r"is not the dataset that the run was trained on: .* 000000000000"),
    ({"fingerprints": []}, {}, r"is not the dataset"),
    ({}, {"source_tokens": 301}, r"stream.source_tokens: 301 where the stream was begun with 300"),
    ({}, {"window_pairs": 64}, r"stream.window_pairs: 64 where"),
    ({"lanes": {0: (LaneCursor(0, 0, 1),)}}, {}, r"lane 1 is missing"),
]


@pytest.mark.parametrize(("change", "setting", "message"), REFUSED)
def test_states_of_something_else_are_refused(
    small: Dataset, change: dict[str, Any], setting: dict[str, Any], message: str
) -> None:
    readers = open_readers([small], SECTION)
    read_epoch(readers, 2)
    state = dataclasses.replace(merged(readers), **change)
    close(readers)
    with pytest.raises(UserError, match=message):
        open_readers([small], dataclasses.replace(SECTION, **setting), state=state)


def test_broken_states_are_refused(small: Dataset) -> None:
    tree = open_readers([small], SECTION)[0].state().to_json()
    assert tree["lanes"]["2"] == [[0, 0, 0, 0, 0]]
    assert StreamState.from_json(tree).to_json() == tree
    for change in (
        {"epoch": -1},
        {"update": "3"},
        {"lanes": {"0": [1, 2, 3, 4, 5]}},
        {"lanes": {"x": [[1, 2, 3, 4, 5]]}},
        {"lanes": {"0": [[1, -2, 3, 4, 5]]}},
        {"lanes": {"0": [[1, 2.5, 3, 4, 5]]}},
        {"lanes": None},
        {"color": "red"},
    ):
        with pytest.raises(UserError, match="stream state: "):
            StreamState.from_json({**tree, **change})


def test_merging_needs_every_lane_once(small: Dataset) -> None:
    states = [reader.state() for reader in open_readers([small], SECTION, 2)]
    assert sorted(StreamState.merge(states[::-1]).lanes) == [0, 1, 2, 3]
    for wrong in (states[:1], [states[0], states[0]], [states[0], dataclasses.replace(states[1], update=1)]):
        with pytest.raises(ValueError, match=r"lane|contradict"):
            StreamState.merge(wrong)


def test_pairs_that_never_fit(
    corpus: Callable[..., PrepareSection], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(f"cat {n}", f"chat {n}") for n in range(60)]
    pairs[17] = ("cat " * 90, "chat")
    pairs[33] = ("cat", "chat " * 70)
    prepare.run(corpus(pairs))
    dataset = Dataset.load(tmp_path / "out")
    too_long = np.flatnonzero((dataset.lengths > 63).any(axis=1)).tolist()
    assert len(too_long) == 2
    longest = dataset.lengths[too_long[0]].astype(int) + 1
    side, needed = ("source", longest[0]) if longest[0] > 64 else ("target", longest[1])
    small = StreamSection(micro_batches=2, source_tokens=64, target_tokens=64)
    with pytest.raises(
        UserError,
        match=rf"stream.{side}_tokens: pair {too_long[0]} of .*out takes {needed} tokens, {needed} > 64 \(2 such",
    ):
        open_readers([dataset], small)
    readers = open_readers([dataset], dataclasses.replace(small, on_oversized_pair="drop"))
    assert "; 2 such pairs are left out" in caplog.text
    used = [pair for _, pairs in ids_of(read_epoch(readers)) for pair in pairs]
    assert sorted(used) == [n for n in range(60) if n not in too_long]
    close(readers)
    with pytest.raises(UserError, match="and no other pair fits"):
        open_readers([dataset], dataclasses.replace(small, source_tokens=1, on_oversized_pair="drop"))


def test_an_epoch_ends_only_where_it_does(small: Dataset) -> None:
    """A rank whose lanes are dry, or that has none, waits for the others as long as it takes."""
    reader, *_, idle = open_readers([small], SECTION, 6)
    reader.next_update()
    with pytest.raises(RuntimeError, match="still hold pairs"):
        reader.end_epoch()
    reader.close()
    assert [idle.next_update() for _ in range(9)] == [[None]] * 9
    assert idle.state().update == 9
    idle.end_epoch()
    assert (idle.epoch, idle.update, idle.next_update()) == (1, 0, [None])
    idle.close()
