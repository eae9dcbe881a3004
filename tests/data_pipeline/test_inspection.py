"""What `zeromt inspect` counts in a dataset."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from configs import PrepareSection, StreamSection, TokenizerSection
from data_pipeline.inspection import HISTOGRAM_EDGES, inspect_dataset
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.reader import StreamReader


def test_what_inspect_counts(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_pipeline.inspection.ROWS_AT_ONCE", 300)
    lines, _ = inspect_dataset(small.folder)
    rows = [line.split() for line in lines[lines.index("lengths   pieces        source       target") + 1 :]]
    counts = [[int(row[1]), int(row[2])] for row in rows[: [row[0] for row in rows].index("padding")]]
    expected = np.stack([np.histogram(small.lengths[:, side], bins=HISTOGRAM_EDGES)[0] for side in (0, 1)], axis=1)
    assert counts == expected[expected.any(axis=1)].tolist()

    section = StreamSection(micro_batches=1, source_tokens=1024, target_tokens=1024, prefetch_updates=0)
    reader = StreamReader([(small, 1.0)], section, seed=0, rank=0, world_size=1)
    real = padded = num_micro_batches = 0
    while (micro_batch := reader.next_update()[0]) is not None:
        real += micro_batch.num_source_tokens + micro_batch.num_target_tokens
        padded += micro_batch.num_padded_source + micro_batch.num_padded_target
        num_micro_batches += 1
    assert f"      1,024 {1 - real / padded:>10.1%} in {num_micro_batches} micro-batches" in lines


def test_inspect_says_what_fits_no_budget(corpus: Callable[..., PrepareSection], tmp_path: Path) -> None:
    prepare.run(
        corpus(
            [("a b c", "d e f")] * 40 + [("g " * 1200, "h")] * 2,
            max_pieces=2000,
            tokenizer=TokenizerSection(vocab_size=20),
        )
    )
    lines, whole = inspect_dataset(tmp_path / "out")
    assert whole
    assert [line.split()[-4:] for line in lines if "fit none" in line] == [["2", "pairs", "fit", "none"]]
    assert any("too long" in line for line in lines)  # the filters' report
