"""A dataset that is overwritten while it is read is refused by name."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from configs import StreamSection
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DataError
from tests.data_pipeline.stream.made import close, open_readers, read_epoch, write_dataset

SECTION = StreamSection(micro_batches=2, source_tokens=300, target_tokens=300, window_pairs=100)


@pytest.mark.parametrize("way", ["in place", "by renames"])
@pytest.mark.parametrize(("prefetch", "workers"), [(0, 0), (2, 0), (2, 2)])
def test_an_overwritten_dataset_is_refused(
    small: Dataset, tmp_path: Path, way: str, prefetch: int, workers: int
) -> None:
    used = write_dataset(tmp_path / "used", small, 1000, pairs_per_block=32)
    other = write_dataset(tmp_path / "other", small, 2000, seed=2, pairs_per_block=32)
    readers = open_readers([used], dataclasses.replace(SECTION, prefetch_updates=prefetch, workers=workers))
    read_epoch(readers, 1)
    if way == "by renames":
        used.folder.rename(tmp_path / "aside")
        other.folder.rename(tmp_path / "used")
    else:  # what `cp other/* used/` does: the same inodes, other bytes
        for path in sorted(other.folder.iterdir()):
            with path.open("rb") as read, (used.folder / path.name).open("wb") as written:
                shutil.copyfileobj(read, written)
    with pytest.raises(  # between the two renames there is no file
        DataError,
        match=r"used/train-.*: block 0000\d\d-0000\d\d: (its hash is not the index's|cannot be read: No such file)",
    ):
        read_epoch(readers)
    close(readers)


def test_one_that_was_replaced_before_a_loader_opened_it_is_refused(small: Dataset, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "used", small, 100)
    dataset.fingerprint = "0" * 64  # as it was when the run began
    readers = open_readers([dataset], dataclasses.replace(SECTION, workers=2))
    with pytest.raises(DataError, match="was replaced while it was read"):
        readers[0].next_update()
    close(readers)


@pytest.mark.parametrize("name", ["tokenizer.model", "valid.source.txt"])
def test_a_side_file_that_is_replaced_is_refused(copied: Path, name: str) -> None:
    """What is read only when it is needed."""
    dataset = Dataset.load(copied)
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[:-9] + b"x" * 8 + content[-1:])
    with pytest.raises(DataError, match=rf"{name}: its hash is not the index's"):
        _ = dataset.tokenizer if name == "tokenizer.model" else dataset.held_out("valid")
