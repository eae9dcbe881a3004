"""A dataset that is overwritten while it is read: refused by name, never read on and never the end of the process."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from configs import StreamSection
from data_pipeline.errors import DataError, OtherDataError
from data_pipeline.preparation import prepare
from data_pipeline.prepared import tables
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.tables import FileTable
from tests.data_pipeline.preparation.made import PAIRS, Corpus
from tests.data_pipeline.stream.made import close, ids_of, open_readers, read_epoch, write_dataset

SECTION = StreamSection(micro_batches=2, source_tokens=300, target_tokens=300, window_pairs=100, max_corrupt_blocks=9)
LARGE = pytest.mark.parametrize("most", [1 << 26, 0], ids=["in memory", "from the file"])


def _copy_over(other: Path, used: Path) -> None:
    """What `cp other/* used/` does: the same inodes, other bytes."""
    for path in sorted(other.iterdir()):
        with path.open("rb") as read, (used / path.name).open("wb") as written:
            shutil.copyfileobj(read, written)


@LARGE
@pytest.mark.parametrize(("pairs", "prefetch"), [(1000, 0), (1000, 2), (300, 0), (2000, 2)])
def test_a_dataset_overwritten_in_place_is_refused(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, pairs: int, prefetch: int
) -> None:
    """With as many pairs, fewer, or more; also where corrupt blocks would be skipped."""
    monkeypatch.setattr(tables, "MAX_IN_MEMORY", most)
    used = write_dataset(tmp_path / "used", small, 1000, pairs_per_block=32)
    other = write_dataset(tmp_path / "other", small, pairs, seed=2, pairs_per_block=32)
    readers = open_readers([used], dataclasses.replace(SECTION, prefetch_updates=prefetch))
    read_epoch(readers, 1)
    _copy_over(other.folder, used.folder)
    with pytest.raises(OtherDataError, match=r"used.*: was (overwritten by another dataset|changed|cut short) while"):
        read_epoch(readers)
    close(readers)


@LARGE
def test_a_dataset_replaced_by_renames_is_refused(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(tables, "MAX_IN_MEMORY", most)
    used = write_dataset(tmp_path / "used", small, 1000, pairs_per_block=32)
    other = write_dataset(tmp_path / "other", small, 1000, seed=2, pairs_per_block=32)
    readers = open_readers([used], dataclasses.replace(SECTION, prefetch_updates=0))
    read_epoch(readers, 1)
    used.folder.rename(tmp_path / "aside")
    other.folder.rename(tmp_path / "used")
    with pytest.raises(OtherDataError, match="used: was overwritten by another dataset while it was read"):
        read_epoch(readers)
    close(readers)


def test_updates_are_the_same_whether_tables_are_held_or_read(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (1 << 26, 0):
        monkeypatch.setattr(tables, "MAX_IN_MEMORY", most)
        for section in (SECTION, dataclasses.replace(SECTION, micro_batches=40)):
            readers = open_readers([Dataset.load(small.folder)], section)
            found.append(ids_of(read_epoch(readers)))
            close(readers)
    assert found[:2] == found[2:]
    assert isinstance(Dataset.load(small.folder).lengths, FileTable)


@pytest.mark.parametrize("name", ["tokenizer.model", "valid.source.txt"])
def test_a_side_file_that_is_replaced_is_refused(copied: Path, name: str) -> None:
    """What is read only when it is needed."""
    dataset = Dataset.load(copied)
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[:-9] + b"x" * 8 + content[-1:])
    with pytest.raises(DataError, match=rf"{name}: its hash is not the index's"):
        _ = dataset.tokenizer if name == "tokenizer.model" else dataset.held_out("valid")


def test_places_of_another_dataset_are_not_shown(corpus: Corpus, tmp_path: Path) -> None:
    for name, pairs in (("used", PAIRS), ("other", PAIRS[50:])):
        prepare.run(corpus(pairs, output=str(tmp_path / name), record_places=True))
    dataset = Dataset.load(tmp_path / "used")
    _copy_over(tmp_path / "other", tmp_path / "used")
    with pytest.raises(OtherDataError, match=r"used: was overwritten by another dataset"):
        dataset.place(0)
