"""Datasets written straight from random tokens, by tarfile and numpy alone, and readers of them."""

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import FileEntry, ShardEntry, block_key
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.phase_data import StreamPhase
from data_pipeline.stream.reader import StreamReader, StreamState
from tests.data_pipeline.order.synthetic import even_table

Ids = list[tuple[int, list[int]]]


def write_dataset(
    folder: Path, like: Dataset, num_pairs: int, *, seed: int = 1, pairs_per_block: int = 256, mean: float = 12
) -> Dataset:
    """Random tokens of a tokenizer of 500 pieces, in one shard.

    Args:
        folder: where to.
        like: whose tokenizer and index to take.
        num_pairs: how many.
        seed: of the tokens.
        pairs_per_block: of all blocks but the last.
        mean: pieces of a sentence.
    """
    folder.mkdir(parents=True)
    random = np.random.Generator(np.random.Philox(seed))
    lengths = drawn_lengths(random, num_pairs, mean)
    blocks = even_table(lengths, pairs_per_block, -(-num_pairs // pairs_per_block) * pairs_per_block)
    shard = io.BytesIO()
    for row, block in enumerate(blocks):
        own = lengths[int(block["first_pair"]) :][: int(block["pairs"])]
        source, target = (random.integers(4, 500, int(n)).astype("<u2") for n in own.sum(axis=0, dtype=np.int64))
        data = _tar({"src.npy": source, "tgt.npy": target, "len.npy": own}, block_key(0, row))
        block["offset"], block["bytes"] = shard.tell(), len(data)
        block["sha256"] = np.frombuffer(hashlib.sha256(data).digest(), dtype="u1")
        shard.write(data)
    (folder / "train-000000.tar").write_bytes(shard.getvalue() + bytes(1024))
    np.save(folder / "lengths.npy", lengths)
    np.save(folder / "blocks.npy", blocks)
    for file in (like.index.report, *like.index.tokenizer.files):
        (folder / file.file).write_bytes((like.folder / file.file).read_bytes())
    tokens = lengths.sum(axis=0, dtype=np.int64).tolist()
    counts: dict[str, Any] = {"pairs": num_pairs, "blocks": len(blocks)}
    index = dataclasses.replace(
        like.index,
        **counts,
        source_tokens=tokens[0],
        target_tokens=tokens[1],
        shards=[ShardEntry(**dataclasses.asdict(_entry(folder / "train-000000.tar")), **counts)],
        length_table=_entry(folder / "lengths.npy"),
        block_table=_entry(folder / "blocks.npy"),
        held_out={},
    )
    (folder / "index.json").write_bytes(index.to_json())
    return Dataset.load(folder)


def drawn_lengths(random: np.random.Generator, num_pairs: int, mean: float) -> NDArray[np.uint16]:
    """(pairs, 2): the first that `write_dataset` draws."""
    drawn = random.gamma(2, mean / 2, (num_pairs, 1)) * random.uniform(0.8, 1.2, (num_pairs, 2))
    return np.clip(drawn, 1, 120).astype("<u2")


def _entry(path: Path) -> FileEntry:
    content = path.read_bytes()
    return FileEntry(file=path.name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _tar(arrays: dict[str, NDArray[Any]], key: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            info = tarfile.TarInfo(f"{key}.{name}")
            info.size = content.tell()
            content.seek(0)
            tar.addfile(info, content)
        end = tar.offset
    return buffer.getvalue()[:end]


def open_readers(
    datasets: Sequence[Dataset],
    section: StreamSection,
    world_size: int = 1,
    state: StreamState | None = None,
    weights: Sequence[float | None] | None = None,
    *,
    seed: int = 7,
    phases: Sequence[StreamPhase] = (),
) -> list[StreamReader]:
    pairs = list(zip(datasets, weights or [None] * len(datasets), strict=True))
    place: dict[str, Any] = {"seed": seed, "world_size": world_size, "phases": phases}
    readers = [StreamReader(pairs, section, rank=rank, **place) for rank in range(world_size)]
    if state is not None:
        for reader in readers:
            reader.restore(state)
    return readers


def close(*groups: list[StreamReader]) -> None:
    for readers in groups:
        for reader in readers:
            reader.close()


def merged(readers: list[StreamReader]) -> StreamState:
    return StreamState.merge([StreamState.from_json(json.loads(json.dumps(r.state().to_json()))) for r in readers])


def read_epoch(readers: list[StreamReader], limit: int | None = None) -> list[MicroBatch]:
    """The rest of an epoch, or some updates of it."""
    batches, updates = [], 0
    while limit is None or updates < limit:
        fetched = [m for reader in readers for m in reader.next_update() if m is not None]
        if not fetched:
            for reader in readers:
                reader.end_epoch()
            break
        batches += sorted(fetched, key=lambda m: m.lane)
        updates += 1
    return batches


def ids_of(batches: Sequence[MicroBatch]) -> Ids:
    return [(m.lane, m.pair_ids.tolist()) for m in batches]
