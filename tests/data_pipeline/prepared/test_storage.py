"""Datasets at a URL: the same as on the disk, or an error by name."""

import dataclasses
import hashlib
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import StreamSection, UserError
from data_pipeline.inspection import inspect_dataset
from data_pipeline.prepared import remote
from data_pipeline.prepared.dataset import DataError, Dataset
from data_pipeline.prepared.disk_cache import DiskCache
from data_pipeline.stream.reader import StreamReader
from tests.conftest import environment
from tests.data_pipeline.prepared.http_folder import FAULTS, Fault, HttpFolder, faults_at_random

Serve = Callable[..., HttpFolder]

SHARD = "train-000001.tar"


def _third(dataset: Dataset) -> int:
    """The number of block 000001-000002."""
    return int(np.searchsorted(dataset.blocks["shard"], 1)) + 2


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves folders until the test ends; waits between tries are short."""
    monkeypatch.setattr(remote, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(remote, "LONGEST_WAIT_SECONDS", 0.01)
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
        timeout_seconds=0.5,
        micro_batches=3,
        source_tokens=400,
        target_tokens=400,
        window_pairs=128,
        prefetch_updates=2,
    )


def _with(section: StreamSection, **changes: Any) -> StreamSection:
    return dataclasses.replace(section, **changes)


def _content(dataset: Dataset) -> str:
    """A hash of all that a run reads of a dataset."""
    whole = hashlib.sha256(dataset.fingerprint.encode())
    for number in range(len(dataset.blocks)):
        block = dataset.read_block(number)
        for array in (block.source, block.target, block.lengths):
            whole.update(array.tobytes())
    whole.update(np.ascontiguousarray(dataset.lengths).tobytes())
    whole.update(repr((dataset.held_out("valid"), dataset.tokenizer.fingerprint)).encode())
    return whole.hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("??/*"))


@pytest.mark.parametrize("ranges", [True, False])
def test_equal_to_the_local_one(small: Dataset, section: StreamSection, serve: Serve, ranges: bool) -> None:
    server = serve(small.folder, ranges=ranges)
    dataset = Dataset.load(server.url + "/", section)
    assert (dataset.location, dataset.name) == (server.url, "folder")
    assert _content(dataset) == _content(small)
    first = dict(server.requests)
    assert first["lengths.npy"] == first["tokenizer.model"] == 1
    assert first[SHARD] == (small.index.shards[1].blocks if ranges else 1)  # a request for each block, or one for all
    assert _content(Dataset.load(server.url, section)) == _content(small)
    again = {file: count for file, count in (server.requests - type(server.requests)(first)).items() if count}
    assert again == {"index.json": 2}  # all else stands in the cache
    assert dataset.verify() == []
    lines, whole = inspect_dataset(server.url, section)
    assert whole
    assert lines[0] == f"dataset   {server.url}"


def test_one_stream(small: Dataset, section: StreamSection, serve: Serve) -> None:
    server = serve(small.folder, fault=faults_at_random(3, 0.2, ("drop", "cut", "short", "flip", "503")))
    streams = []
    for dataset in (small, Dataset.load(server.url, section)):
        reader = StreamReader([(dataset, 1.0)], section, seed=5, rank=0, world_size=1)
        updates = []
        while update := [m for m in reader.next_update() if m is not None]:
            updates.append([(m.pair_ids.tolist(), m.source.tolist(), m.target_output.tolist()) for m in update])
        reader.close()
        streams.append(updates)
    assert streams[0] == streams[1]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_faults_at_random(
    small: Dataset, section: StreamSection, serve: Serve, caplog: pytest.LogCaptureFixture, seed: int, ranges: bool
) -> None:
    faults = tuple(f for f in FAULTS if f != "delay") if seed > 1 else FAULTS
    server = serve(small.folder, ranges=ranges, fault=faults_at_random(seed, 0.2 if seed == 1 else 0.5, faults))
    dataset = Dataset.load(server.url, _with(section, timeout_seconds=0.2))
    assert _content(dataset) == _content(small)
    if ranges:
        assert server.requests.total() > len(small.blocks) + len(small.index.side_files()) + 2
        assert "try 1 of 13 failed" in caplog.text


REASONS: dict[Fault, str] = {
    "drop": "ServerDisconnectedError",
    "reset": "Error",
    "cut": "Error",
    "short": "bytes came",
    "flip": "its hash is not the index's",
    "500": "HTTP 500",
    "503": "HTTP 503",
    "delay": "no answer within stream.timeout_seconds=0.2",
}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_never_comes_stops_by_name(
    small: Dataset, section: StreamSection, serve: Serve, fault: Fault, ranges: bool
) -> None:
    server = serve(small.folder, ranges=ranges)
    section = _with(section, retries=2, timeout_seconds=0.2)
    dataset = Dataset.load(server.url, section)
    server.fault = lambda file, number: fault
    started = time.monotonic()
    with pytest.raises(
        DataError, match=rf"{server.url}/{SHARD}: block 000001-000002: after 3 tries: .*{REASONS[fault]}"
    ) as caught:
        dataset.read_block(_third(dataset))
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 10
    assert server.requests[SHARD] == (6 if fault == "drop" else 3)  # aiohttp tries a lost connection once more
    server.fault = lambda file, number: fault if file == "blocks.npy" else None
    with pytest.raises(DataError, match=rf"{server.url}/blocks.npy: after 3 tries: .*{REASONS[fault]}"):
        Dataset.load(server.url, _with(section, cache=section.cache + "2"))
    if fault != "flip":
        server.fault = lambda file, number: fault if file == "index.json" else None
        with pytest.raises(UserError, match=rf"{server.url}/index.json: after 3 tries: "):
            Dataset.load(server.url, section)


def test_what_no_try_can_mend_stops_at_once(copied: Path, section: StreamSection, serve: Serve) -> None:
    server = serve(copied)
    dataset = Dataset.load(server.url, section)
    (copied / SHARD).unlink()
    with pytest.raises(DataError, match=rf"{server.url}/{SHARD}: block 000001-000002: not found"):
        dataset.read_block(_third(dataset))
    server.fault = lambda file, number: "403"
    (copied / SHARD).touch()
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: HTTP 403"):
        dataset.read_block(_third(dataset))
    server.fault = lambda file, number: None
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: HTTP 416"):  # cut to nothing
        dataset.read_block(_third(dataset))
    assert server.requests[SHARD] == 3
    (copied / "lengths.npy").unlink()
    with pytest.raises(DataError, match=rf"{server.url}/lengths.npy: not found"):
        Dataset.load(server.url, _with(section, cache=section.cache + "2"))
    (copied / "index.json").unlink()
    with pytest.raises(UserError, match=rf"dataset: {server.url} holds no index.json"):
        Dataset.load(server.url, section)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_shard_replaced_while_it_is_read(copied: Path, section: StreamSection, serve: Serve, ranges: bool) -> None:
    server = serve(copied, ranges=ranges)
    section = _with(section, retries=1)
    dataset = Dataset.load(server.url, section)
    before = dataset.read_block(0)
    data = (copied / SHARD).read_bytes()
    (copied / SHARD).write_bytes(data[512:] + data[:512])
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: after 2 tries: its hash is not the index's"):
        dataset.read_block(_third(dataset))
    assert dataset.read_block(0).source.tolist() == before.source.tolist()
    if ranges:
        assert any(SHARD in problem for problem in dataset.verify())


def test_nobody_there(section: StreamSection, tmp_path: Path, serve: Serve) -> None:
    server = serve(tmp_path)
    server.__exit__(None, None, None)
    with pytest.raises(UserError, match=rf"dataset: {server.url}/index.json: after 3 tries: ClientConnectorError"):
        Dataset.load(server.url, _with(section, retries=2))


# The cache.


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
    before = _content(dataset)
    num_entries, num_requests = len(_entries(section)), server.requests[SHARD]
    for path in _entries(section):
        path.write_bytes(path.read_bytes())  # another file than the one that is mapped
        BREAKS[how](path)
    assert server.requests[SHARD] == num_requests
    again = Dataset.load(server.url, section)
    assert _content(again) == before
    assert server.requests[SHARD] == 2 * num_requests
    assert len(_entries(section)) == num_entries
    assert sorted(p.name for p in _entries(section)) == sorted(
        hashlib.sha256(p.read_bytes()).hexdigest() for p in _entries(section)
    )


@pytest.mark.parametrize("ranges", [True, False])
def test_the_bound_holds(small: Dataset, section: StreamSection, serve: Serve, ranges: bool) -> None:
    server = serve(small.folder, ranges=ranges)
    most = 400_000  # the dataset has 510,000 bytes, its side files 335,000
    section = _with(section, cache_gigabytes=most / 1e9)
    dataset = Dataset.load(server.url, section)
    for number in range(len(dataset.blocks)):
        assert dataset.read_block(number).source.tolist() == small.read_block(number).source.tolist()
        assert _size(Path(section.cache)) <= most
    assert _size(Path(section.cache)) < 300_000  # the tokenizer had to go
    assert _content(dataset) == _content(small)
    assert server.requests["tokenizer.model"] == 2
    with pytest.raises(UserError, match=r"stream.cache_gigabytes: 0.0001; allowed is 0.00024\d+ or more"):
        Dataset.load(server.url, _with(section, cache=section.cache + "2", cache_gigabytes=0.0001))


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    contents = [bytes([65 + n]) * 20 for n in range(6)]
    keys = [hashlib.sha256(c).hexdigest() for c in contents]
    for number in range(5):
        cache.write(keys[number], contents[number])
        os.utime(tmp_path / keys[number][:2] / keys[number], (number, number))
    assert cache.read(keys[0]) == contents[0]  # used now
    stale = tmp_path / keys[5][:2] / f"{keys[5]}.1-1.20.part"
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    os.utime(stale, (0.5, 0.5))
    cache.write(keys[5], contents[5])
    assert not stale.exists()  # of a process that died
    assert [cache.read(k) is not None for k in keys] == [True, False, False, True, True, True]
    assert cache.find(keys[3], 20) is not None
    assert cache.find(keys[3], 21, hashed=False) is None
    assert cache.find(keys[3], 20) is None  # a wrong size is a broken file


def test_a_cache_that_cannot_be_written(small: Dataset, section: StreamSection, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = serve(small.folder)
    with pytest.raises(UserError, match=r"stream.cache: .*/file/cache: cannot be written: Not a directory"):
        Dataset.load(server.url, _with(section, cache=str(tmp_path / "file" / "cache")))


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
{inspect.getsource(_content)}
section = StreamSection(cache=sys.argv[2], cache_gigabytes=float(sys.argv[3]), retries=5)
print(*{{_content(Dataset.load(sys.argv[1], section)) for _ in range(3)}})
"""


@pytest.mark.parametrize("gigabytes", [1, 0.0004])
def test_processes_share_the_cache(small: Dataset, section: StreamSection, serve: Serve, gigabytes: float) -> None:
    """Where there is room each side file comes once; where there is none they remove each other's, and do not mind."""
    server = serve(small.folder)
    arguments = [sys.executable, "-c", READ, server.url, section.cache, str(gigabytes)]
    readers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(3)]
    assert {reader.communicate()[0].strip() for reader in readers} == {_content(small)}
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
    assert waiting.wait(30)
    reader.kill()
    reader.communicate()
    assert _content(Dataset.load(server.url, section)) == _content(small)


# What is asked for.


@pytest.mark.parametrize(("url", "package"), [("http://h/d", "aiohttp"), ("s3://b/d", "s3fs"), ("gs://b/d", "gcsfs")])
def test_missing_packages(monkeypatch: pytest.MonkeyPatch, url: str, package: str) -> None:
    for module in (package, "fsspec.implementations.http"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"dataset: {url}: a package is missing .*`pip install zeromt\[{url[:2]}"):
        Dataset.load(url)


def test_passwords(
    small: Dataset, section: StreamSection, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(small.folder)
    server.password = "secret"
    with pytest.raises(UserError, match=r"index.json: HTTP 401"):
        Dataset.load(server.url, section)
    with pytest.raises(UserError, match=r"without password \(~/.netrc is read\)") as caught:
        Dataset.load(server.url.replace("//", "//me:secret@"), section)
    assert "secret" not in str(caught.value)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert _content(Dataset.load(server.url, section)) == _content(small)
