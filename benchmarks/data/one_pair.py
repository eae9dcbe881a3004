"""The baseline: webdataset with one pair per sample. These functions run in child processes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from numpy.typing import NDArray

from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch, Ragged, collate

Pieces = NDArray[np.unsignedinteger]

FORMS: Mapping[str, str] = {
    "npy": "two .npy members, as TarWriter writes them",
    "npy-mtime": "two .npy members, mtime=0 (no pax headers)",
    "json": "one .json member, as TarWriter writes it",
}


def write(*, dataset: str, folder: str, pairs: int) -> dict[str, Any]:
    """Write a dataset's first `pairs` pairs in every form; returns the bytes of each form and the number of pairs."""
    rows = list(_pairs(Dataset.load(Path(dataset)), pairs))
    sizes = {}
    for form in FORMS:
        path = Path(folder) / f"{form}.tar"
        with webdataset.TarWriter(str(path), mtime=0 if form == "npy-mtime" else None) as writer:
            for number, (source, target) in enumerate(rows):
                writer.write({"__key__": f"{number:09d}", **_members(form, source, target)})
        sizes[form] = path.stat().st_size
    return {"bytes": sizes, "pairs": len(rows)}


def read(*, folder: str, form: str, rows: int) -> dict[str, Any]:
    """Read such a file with webdataset's own pipeline: decode, shuffle, batch `rows` samples and pad."""
    members = ("json",) if form == "json" else ("src.npy", "tgt.npy")
    pipeline = (
        webdataset.WebDataset(str(Path(folder) / f"{form}.tar"), shardshuffle=False)
        .decode()
        .to_tuple(*members)
        .shuffle(1000)
        .batched(rows, collation_fn=_batch)
    )
    begin = time.monotonic()
    batches: list[tuple[int, int]] = [(b.num_pairs, b.num_source_tokens + b.num_target_tokens) for b in pipeline]
    return {
        "seconds": time.monotonic() - begin,
        "pairs": sum(pairs for pairs, _ in batches),
        "tokens": sum(tokens for _, tokens in batches),
    }


def _pairs(dataset: Dataset, count: int) -> Iterator[tuple[Pieces, Pieces]]:
    for number in range(len(dataset.blocks)):
        block = dataset.read_block(number)
        ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)[:-1]
        sides = np.split(block.source, ends[:, 0]), np.split(block.target, ends[:, 1])
        yield from zip(*(side[:count] for side in sides), strict=True)
        count -= min(count, len(block.lengths))
        if not count:
            return


def _members(form: str, source: Pieces, target: Pieces) -> dict[str, Any]:
    if form == "json":
        return {"json": {"src": source.tolist(), "tgt": target.tolist()}}
    return {"src.npy": source, "tgt.npy": target}


def _rows(rows: Sequence[Pieces]) -> Ragged:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return Ragged(np.concatenate(rows), np.cumsum(lengths) - lengths, lengths)


def _batch(samples: list[tuple[Any, ...]]) -> MicroBatch:
    if len(samples[0]) == 1:
        samples = [(np.array(s["src"], dtype=np.uint16), np.array(s["tgt"], dtype=np.uint16)) for (s,) in samples]
    sources, targets = zip(*samples, strict=True)
    return collate(0, np.arange(len(samples)), _rows(sources), _rows(targets), 1)
