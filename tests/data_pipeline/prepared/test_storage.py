"""Datasets at a URL: the same as on the disk, or an error by name."""

import os
import sys
from pathlib import Path

import pytest

from configs import StreamSection, UserError
from data_pipeline.preparation.report import inspect_dataset
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DataError
from data_pipeline.prepared.storage import Cache
from tests.data_pipeline.prepared.conftest import SHARD, Serve, changed, content, third
from tests.data_pipeline.prepared.http_folder import FAULTS, Fault, faults_at_random


@pytest.mark.parametrize("ranges", [True, False])
def test_equal_to_the_local_one(small: Dataset, section: StreamSection, serve: Serve, ranges: bool) -> None:
    server = serve(small.folder, ranges=ranges)
    dataset = Dataset.load(server.url + "/", section)
    assert (dataset.location, dataset.name) == (server.url, "folder")
    assert content(dataset) == content(small)
    first = dict(server.requests)
    assert first["lengths.npy"] == first["tokenizer.model"] == 1
    assert first[SHARD] == (small.index.shards[1].blocks if ranges else 1)  # a request for each block, or one for all
    assert content(Dataset.load(server.url, section)) == content(small)
    again = {file: count for file, count in (server.requests - type(server.requests)(first)).items() if count}
    assert again == {"index.json": 1}  # all else stands in the cache
    assert dataset.verify() == []
    lines, whole = inspect_dataset(server.url, section)
    assert whole
    assert lines[0] == f"dataset   {server.url}"


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_at_random(
    small: Dataset, section: StreamSection, serve: Serve, caplog: pytest.LogCaptureFixture, seed: int, ranges: bool
) -> None:
    faults = tuple(f for f in FAULTS if f != "delay") if seed > 1 else FAULTS
    server = serve(small.folder, ranges=ranges, fault=faults_at_random(seed, 0.2 if seed == 1 else 0.5, faults))
    dataset = Dataset.load(server.url, changed(section, timeout_seconds=0.2 if seed == 1 else section.timeout_seconds))
    assert content(dataset) == content(small)
    if ranges:
        assert server.requests.total() > len(small.blocks) + len(small.index.side_files()) + 2
        assert "try 1 of 13 failed" in caplog.text


REASONS: dict[Fault, str] = {
    "drop": "ServerDisconnectedError",
    "cut": "Error",
    "flip": "its hash is not the index's",
    "503": "HTTP 503",
    "delay": "no answer within stream.timeout_seconds=0.5",
}


@pytest.mark.parametrize(
    ("fault", "ranges"),
    [*((fault, True) for fault in FAULTS), *((fault, False) for fault in FAULTS if fault != "flip")],
)
def test_what_never_comes_stops_by_name(
    small: Dataset, section: StreamSection, serve: Serve, fault: Fault, ranges: bool
) -> None:
    server = serve(small.folder, ranges=ranges)
    section = changed(section, retries=2, **({"timeout_seconds": 0.5} if fault == "delay" else {}))
    dataset = Dataset.load(server.url, section)
    server.fault = lambda file, number: fault
    with pytest.raises(
        DataError, match=rf"{server.url}/{SHARD}: block 000001-000002: after 3 tries: .*{REASONS[fault]}"
    ) as caught:
        dataset.read_block(third(dataset))
    assert "\n" not in str(caught.value)
    assert server.requests[SHARD] == (6 if fault == "drop" else 3)  # aiohttp tries a lost connection once more
    server.fault = lambda file, number: fault if file == "blocks.npy" else None
    with pytest.raises(DataError, match=rf"{server.url}/blocks.npy: after 3 tries: .*{REASONS[fault]}"):
        Dataset.load(server.url, changed(section, cache=section.cache + "2"))
    if fault != "flip":  # the index is what everything else is verified by
        server.fault = lambda file, number: fault if file == "index.json" else None
        with pytest.raises(UserError, match=rf"{server.url}/index.json: after 3 tries: "):
            Dataset.load(server.url, section)


def test_what_no_try_can_mend_stops_at_once(copied: Path, section: StreamSection, serve: Serve) -> None:
    server = serve(copied)
    dataset = Dataset.load(server.url, section)
    (copied / SHARD).unlink()
    with pytest.raises(DataError, match=rf"{server.url}/{SHARD}: block 000001-000002: not found"):
        dataset.read_block(third(dataset))
    server.fault = lambda file, number: "403"
    (copied / SHARD).touch()
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: HTTP 403"):
        dataset.read_block(third(dataset))
    assert server.requests[SHARD] == 2
    server.fault = lambda file, number: None
    (copied / "lengths.npy").unlink()
    with pytest.raises(DataError, match=rf"{server.url}/lengths.npy: not found"):
        Dataset.load(server.url, changed(section, cache=section.cache + "2"))
    (copied / "index.json").unlink()
    with pytest.raises(UserError, match=rf"dataset: {server.url} holds no index.json"):
        Dataset.load(server.url, section)


@pytest.mark.parametrize(("url", "package"), [("http://h/d", "aiohttp"), ("s3://b/d", "s3fs"), ("gs://b/d", "gcsfs")])
def test_missing_packages(monkeypatch: pytest.MonkeyPatch, url: str, package: str) -> None:
    for module in (package, "fsspec.implementations.http"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"dataset: {url}: a package is missing .*`pip install zeromt\[{url[:2]}"):
        Dataset.load(url)


def test_the_oldest_files_of_the_cache_go(tmp_path: Path) -> None:
    """And no file that is not the cache's."""
    cache = Cache(tmp_path, 1000)
    paths = [cache.path(f"{number:064x}") for number in range(30)]
    foreign = paths[0].with_name("b51d7")
    cache.add(foreign, 0, Path.touch)
    os.utime(foreign, (0, 0))
    for number, path in enumerate(paths):
        cache.add(path, 100, lambda part: part.write_bytes(bytes(100)))
        os.utime(path, (number, number))
    there = [path.exists() for path in paths]
    assert there == [number >= 30 - sum(there) for number in range(30)]
    assert 5 <= sum(there) <= 10
    assert foreign.exists()
    with pytest.raises(UserError, match=r"stream\.cache_gigabytes: 1e-06; allowed is 2e-06 or more"):
        cache.add(cache.path("f" * 64), 2000, lambda part: part.touch())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"stream\.cache: .*file: cannot be written"):
        Cache(tmp_path / "file", 1000).add(tmp_path / "file" / "x" / "y", 1, lambda part: part.touch())
