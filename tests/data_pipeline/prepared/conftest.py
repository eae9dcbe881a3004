"""Datasets that are served, and what is read of them."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import StreamSection
from data_pipeline.prepared import storage
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.prepared.http_folder import HttpFolder

SHARD = "train-000001.tar"


def third(dataset: Dataset) -> int:
    """The number of block 000001-000002."""
    return int(np.searchsorted(dataset.blocks["shard"], 1)) + 2


Serve = Callable[..., HttpFolder]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves folders until the test ends; waits between tries are short."""
    monkeypatch.setattr(storage, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(storage, "LONGEST_WAIT_SECONDS", 0.01)
    servers: list[HttpFolder] = []

    def start(folder: Path, **settings: Any) -> HttpFolder:
        servers.append(HttpFolder(folder, **settings).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def section(tmp_path: Path) -> StreamSection:
    return StreamSection(
        cache=str(tmp_path / "cache"),
        retries=12,
        timeout_seconds=60,
        micro_batches=3,
        source_tokens=400,
        target_tokens=400,
        window_pairs=128,
        prefetch_updates=2,
    )


def changed(section: StreamSection, **changes: Any) -> StreamSection:
    return dataclasses.replace(section, **changes)


def content(dataset: Dataset) -> str:
    """A hash of all that a run reads of a dataset."""
    whole = hashlib.sha256(dataset.fingerprint.encode())
    for number in range(len(dataset.blocks)):
        block = dataset.read_block(number)
        for array in (block.source, block.target, block.lengths):
            whole.update(array.tobytes())
    whole.update(np.ascontiguousarray(dataset.lengths).tobytes())
    whole.update(repr((dataset.held_out("valid"), dataset.tokenizer.fingerprint)).encode())
    return whole.hexdigest()
