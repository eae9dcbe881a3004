"""The cache of datasets at a URL: whole, bounded, and shared by threads and processes."""

import hashlib
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from configs import StreamSection, UserError
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import environment
from tests.data_pipeline.prepared.conftest import SHARD, Serve, changed, content
from tests.data_pipeline.prepared.http_folder import Fault, faults_at_random
from tests.waiting import PATIENCE


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("??/*"))


def _entries(section: StreamSection) -> list[Path]:
    return sorted(Path(section.cache).glob("??/*"))


BREAKS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:600] + b"?" + path.read_bytes()[601:]),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("how", BREAKS)
def test_broken_entries_are_fetched_again(
    small: Dataset, section: StreamSection, serve: Serve, how: str, ranges: bool
) -> None:
    server = serve(small.folder, ranges=ranges)
    dataset = Dataset.load(server.url, section)
    before = content(dataset)
    num_entries, num_requests = len(_entries(section)), server.requests[SHARD]
    for path in _entries(section):
        path.write_bytes(path.read_bytes())  # another file than the one that is mapped
        BREAKS[how](path)
    assert server.requests[SHARD] == num_requests
    again = Dataset.load(server.url, section)
    assert content(again) == before
    assert server.requests[SHARD] == 2 * num_requests
    assert len(_entries(section)) == num_entries
    assert sorted(p.name for p in _entries(section)) == sorted(
        hashlib.sha256(p.read_bytes()).hexdigest() for p in _entries(section)
    )


@pytest.mark.parametrize("ranges", [True, False])
def test_the_bound_holds(small: Dataset, section: StreamSection, serve: Serve, ranges: bool) -> None:
    server = serve(small.folder, ranges=ranges)
    most = 400_000  # the dataset has 510,000 bytes, its side files 335,000
    section = changed(section, cache_gigabytes=most / 1e9)
    dataset = Dataset.load(server.url, section)
    for number in range(len(dataset.blocks)):
        assert dataset.read_block(number).source.tolist() == small.read_block(number).source.tolist()
        assert _size(Path(section.cache)) <= most
    assert _size(Path(section.cache)) < 300_000  # the tokenizer had to go
    assert content(dataset) == content(small)
    assert server.requests["tokenizer.model"] == 2
    with pytest.raises(UserError, match=r"stream.cache_gigabytes: 0.0001"):
        Dataset.load(server.url, changed(section, cache=section.cache + "2", cache_gigabytes=0.0001))


def test_only_names_of_a_cache_are_deleted(
    small: Dataset, section: StreamSection, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "ab").mkdir()
    for name in ("ab/notes.txt", f"ab/{'1' * 64}", "mine"):
        (tmp_path / name).write_bytes(b"mine")
        os.utime(tmp_path / name, (1, 1))
    section = changed(section, cache=str(tmp_path), cache_gigabytes=0.0004)
    assert content(Dataset.load(serve(small.folder).url, section)) == content(small)
    assert not (tmp_path / "ab" / ("1" * 64)).exists()  # the oldest, evicted
    assert (tmp_path / "ab" / "notes.txt").read_bytes() == (tmp_path / "mine").read_bytes() == b"mine"


def test_a_cache_that_cannot_be_written(small: Dataset, section: StreamSection, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = serve(small.folder)
    with pytest.raises(UserError, match=r"stream.cache: .*/file/cache: cannot be written: Not a directory"):
        Dataset.load(server.url, changed(section, cache=str(tmp_path / "file" / "cache")))


def test_threads_read_at_once(small: Dataset, section: StreamSection, serve: Serve) -> None:
    server = serve(small.folder, ranges=False, fault=faults_at_random(4, 0.3, ("drop", "cut", "500")))
    dataset = Dataset.load(server.url, section)
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(dataset.read_block, [*range(30), *range(30)]))
    for number, block in enumerate(blocks):
        assert block.source.tolist() == small.read_block(number % 30).source.tolist()


READ = f"""
import hashlib, sys
import numpy as np
from configs import StreamSection
from data_pipeline.prepared.dataset import Dataset
{inspect.getsource(content)}
section = StreamSection(cache=sys.argv[2], cache_gigabytes=float(sys.argv[3]), retries=5)
print(*{{content(Dataset.load(sys.argv[1], section)) for _ in range(3)}})
"""


@pytest.mark.parametrize("gigabytes", [1, 0.0004])
def test_processes_share_the_cache(small: Dataset, section: StreamSection, serve: Serve, gigabytes: float) -> None:
    """Where there is room each side file comes once; where there is none they remove each other's, and do not mind."""
    server = serve(small.folder)
    arguments = [sys.executable, "-c", READ, server.url, section.cache, str(gigabytes)]
    readers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(3)]
    assert {reader.communicate()[0].strip() for reader in readers} == {content(small)}
    if gigabytes == 1:
        assert {server.requests[e.file] for e in small.index.side_files()} == {1}
    else:
        assert _size(Path(section.cache)) <= 400_000
    assert not list(Path(section.cache).glob("??/*.part"))


def test_who_dies_with_a_lock_blocks_nobody(small: Dataset, section: StreamSection, serve: Serve) -> None:
    waiting = threading.Event()

    def fault(file: str, number: int) -> Fault | None:
        if file == "lengths.npy" and not waiting.is_set():
            waiting.set()
            return "delay"
        return None

    server = serve(small.folder, fault=fault)
    arguments = [sys.executable, "-c", READ, server.url, section.cache, "1"]
    reader = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment())
    assert waiting.wait(PATIENCE)
    reader.kill()
    reader.communicate()
    assert content(Dataset.load(server.url, section)) == content(small)
