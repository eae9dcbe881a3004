"""What is augmented is the same at any number of ranks and loader processes, and after any number of resumes."""

import dataclasses
from collections.abc import Sequence

import pytest

from configs import StreamSection, UserError
from configs.components import Modifier, make
from configs.data import DatasetSource
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augment import modifiers_of
from data_pipeline.stream.batch import MicroBatch
from tests.data_pipeline.stream.made import close, merged, open_readers, read_epoch

SECTION = StreamSection(micro_batches=4, source_tokens=400, target_tokens=400, window_pairs=150)


def test_passes_differ_and_budgets_hold(spelling: Dataset, everything: list[Modifier]) -> None:
    """Every pair once a pass, in other words; nothing longer than the budget; padding about what it was."""
    readers = open_readers([spelling], dataclasses.replace(SECTION, augment=everything))
    plain = open_readers([spelling], SECTION)
    passes = [read_epoch(readers), read_epoch(readers)]
    without = read_epoch(plain)
    close(readers, plain)
    for batches in (*passes, without):
        assert sorted(i for m in batches for i in m.pair_ids.tolist()) == list(range(1000))
        assert max(max(m.source.size, m.target_output.size) for m in batches) <= 400
    rows = [_rows(batches) for batches in passes]
    original = _rows(without)
    differing = sum(rows[0][i] != rows[1][i] for i in range(1000))
    assert differing > 900, "BPE-dropout alone gives most pairs other pieces"
    assert sum(rows[0][i] != original[i] for i in range(1000)) > 900

    def padding(batches: list[MicroBatch]) -> float:
        padded = sum(m.num_padded_source + m.num_padded_target for m in batches)
        return 1 - sum(m.num_source_tokens + m.num_target_tokens for m in batches) / padded

    assert padding(passes[0]) < padding(without) + 0.03


def _rows(batches: Sequence[MicroBatch]) -> dict[int, tuple[list[int], list[int]]]:
    return {
        int(m.pair_ids[row]): (
            m.source[row][m.source[row] > 0].tolist(),
            m.target_output[row][m.target_output[row] > 0].tolist(),
        )
        for m in batches
        for row in range(m.num_pairs)
    }


def test_another_list_waits_for_the_end_of_the_epoch(spelling: Dataset, everything: list[Modifier]) -> None:
    readers = open_readers([spelling], dataclasses.replace(SECTION, augment=everything))
    read_epoch(readers, 3)
    in_the_middle = merged(readers)
    read_epoch(readers)
    at_the_end = merged(readers)
    close(readers)
    for other in ([], everything[:-1]):
        section = dataclasses.replace(SECTION, augment=other)
        with pytest.raises(UserError, match=r"stream\.augment: is not what epoch 0 was begun with"):
            open_readers([spelling], section, state=in_the_middle)
        assert len(read_epoch(open_readers([spelling], section, state=at_the_end))) > 10


def test_only_the_datasets_that_are_named(spelling: Dataset) -> None:
    """By their paths."""
    upper = make("modifier", "upper_case", probability=1.0, datasets=["b"])
    section = dataclasses.replace(SECTION, datasets=[DatasetSource(path="a"), DatasetSource(path="b")], augment=[upper])
    assert modifiers_of(section, 0) == []
    assert modifiers_of(section, 1) == [(0, upper)]
    readers = open_readers([spelling, spelling], section)
    batches = read_epoch(readers)
    close(readers)
    texts = [(m.dataset, text) for m in batches for text in spelling.tokenizer.decode_source(m.source.tolist())]
    other = sum(text != text.upper() for dataset, text in texts if dataset == 1)
    assert other < 0.2 * len(texts), "capitals are more pieces: too long"
    assert not any(text == text.upper() for dataset, text in texts if dataset == 0 and len(text) > 20)
    assert all(m.is_augmented == (m.dataset == 1) for m in batches)
