"""The reduce step of preparation: gathers and shuffles a shard's pairs and writes them as blocks; at last the index.

The same pairs give the same bytes.
"""

import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.process.files.inside import opened, replacing, write_bytes
from configs.reading.variables import as_saved
from data_pipeline.preparation.report import Report
from data_pipeline.preparation.spans import Encoded, EncodeJob, first_occurrences
from data_pipeline.prepared.index import (
    BLOCK_DTYPE,
    BLOCKS_FILE,
    INDEX_FILE,
    LENGTHS_FILE,
    LINE_BITS,
    PLACES_FILE,
    REPORT_FILE,
    VERSION,
    DatasetIndex,
    HeldOutEntry,
    PlacesEntry,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    block_key,
    describe_file,
    write_score,
    write_table,
)
from data_pipeline.tokenizer import Tokenizer


class ShardJob(NamedTuple):
    """The part of the work that a process needs to write shards."""

    encoding: EncodeJob
    num_spans: int
    pairs_per_block: int

    @property
    def dataset(self) -> Path:
        """The folder for the shards, which becomes the output."""
        return self.encoding.folder / "dataset"

    def open(self) -> Callable[[int], int]:
        """The function that writes a shard and returns its number of pairs."""
        return self.write

    def shard(self, number: int) -> Path:
        """The file of a shard."""
        return self.dataset / f"train-{number:06d}.tar"

    def table(self, number: int) -> Path:
        """What is noted of a shard for the tables."""
        return self.encoding.folder / f"shard-{number:06d}.npz"

    def missing(self) -> list[int]:
        """Shards that are not written."""
        numbers = range(self.encoding.num_shards)
        return [number for number in numbers if not (self.table(number).exists() and self.shard(number).exists())]

    def write(self, number: int) -> int:
        """Gather, shuffle and write a shard; its table is written last."""
        pairs = self.encoding.gather(number, self.num_spans)
        left = np.arange(len(pairs.rows))
        if self.encoding.section.cleaning.duplicates == "drop":
            left = first_occurrences(pairs.rows["hash"])
        order = left[np.argsort(pairs.rows["key"][left], kind="stable")]
        with replacing(self.shard(number), sync=True) as file:
            blocks = _write_blocks(file, number, pairs, order, self.pairs_per_block)
            sha256 = _hash_blocks(file, blocks)
            size = file.tell()
        with replacing(self.table(number), sync=True) as file:
            np.savez(
                file,
                blocks=blocks,
                lengths=pairs.rows["lengths"][order],
                places=pairs.rows["place"][order],
                scores=pairs.rows["scores"][order],
                sha256=sha256,
                bytes=size,
                duplicates=len(pairs.rows) - len(order),
            )
        return len(order)

    def noted(self, name: str) -> Iterator[NDArray[Any]]:
        """An array of each shard's table."""
        for number in range(self.encoding.num_shards):
            with opened(self.table(number)) as file, np.load(file, allow_pickle=False) as table:
                yield table[name]


def _write_blocks(
    file: BinaryIO, shard: int, pairs: Encoded, order: NDArray[np.int64], pairs_per_block: int
) -> NDArray[np.void]:
    """Write pairs in a given order, and return the table of their blocks, still without hashes."""
    os.environ.setdefault("WDS_SECURE", "1")
    import webdataset  # imports torch

    writer: Any = webdataset.TarWriter(
        file, user="zeromt", group="zeromt", mode=0o444, mtime=0, compress=False, encoder=False
    )
    starts = pairs.starts()
    firsts = range(0, len(order), pairs_per_block)
    blocks = np.zeros(len(firsts), dtype=BLOCK_DTYPE)
    for row, first in enumerate(firsts):
        block = pairs.take(order[first : first + pairs_per_block], starts)
        lengths = block.rows["lengths"]
        offset = writer.tarstream.offset
        arrays = {"src.npy": block.source, "tgt.npy": block.target, "len.npy": lengths}
        members = {name: _npy_bytes(array) for name, array in arrays.items()}
        writer.write({"__key__": block_key(shard, row), **members})
        size = writer.tarstream.offset - offset
        counts = len(block.rows), first, len(block.source), len(block.target)
        blocks[row] = (shard, offset, size, *counts, *lengths.max(axis=0).tolist(), np.zeros(32, "u1"))
    writer.close()
    return blocks


def _npy_bytes(array: NDArray[Any]) -> bytes:
    """What `np.save` writes."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _hash_blocks(file: BinaryIO, blocks: NDArray[np.void]) -> str:
    """Fill in the blocks' hashes from the written file, and return the hash of the whole file."""
    whole = hashlib.sha256()
    file.seek(0)
    for block in blocks:
        data = file.read(int(block["bytes"]))
        whole.update(data)
        block["sha256"] = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
    whole.update(file.read())  # the end of the tar
    return whole.hexdigest()


def write_dataset(
    job: ShardJob, report: Report, held_out: Mapping[str, HeldOutEntry], recipe: dict[str, Any]
) -> DatasetIndex:
    """Write the tables, the report, the tokenizer, and at last the index that lists every file.

    Args:
        job: the job that wrote the shards.
        report: on the pairs.
        held_out: the entries of the held-out sets, whose files are written already.
        recipe: of the dataset.

    Raises:
        UserError: no pair was kept.
    """
    folder, section = job.dataset, job.encoding.section
    blocks = list(job.noted("blocks"))
    entries = [
        ShardEntry(
            file=job.shard(number).name,
            bytes=int(size),
            sha256=str(sha256),
            pairs=int(table["pairs"].sum()),
            blocks=len(table),
        )
        for number, (table, size, sha256) in enumerate(
            zip(blocks, job.noted("bytes"), job.noted("sha256"), strict=True)
        )
    ]
    num_pairs = sum(entry.pairs for entry in entries)
    if num_pairs == 0:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in report.dropped.items())
        raise UserError(f"prepare.train: nothing is left of {report.read:,} pairs ({reasons})")
    all_blocks = np.concatenate(blocks)
    all_blocks["first_pair"] = np.cumsum(all_blocks["pairs"], dtype=np.uint64) - all_blocks["pairs"]
    write_table(folder / BLOCKS_FILE, BLOCK_DTYPE, (len(all_blocks),), [all_blocks])
    write_table(folder / LENGTHS_FILE, np.dtype("<u2"), (num_pairs, 2), job.noted("lengths"))
    write_bytes(folder / REPORT_FILE, report.to_json())
    tokenizer = Tokenizer(job.encoding.tokenizer_files)
    tokenizer.save(folder)
    index = DatasetIndex(
        version=VERSION,
        source_language=section.source_language,
        target_language=section.target_language,
        pairs=num_pairs,
        blocks=len(all_blocks),
        source_tokens=int(all_blocks["source_tokens"].sum()),
        target_tokens=int(all_blocks["target_tokens"].sum()),
        dropped=report.dropped,
        shards=entries,
        length_table=describe_file(folder / LENGTHS_FILE),
        block_table=describe_file(folder / BLOCKS_FILE),
        tokenizer=TokenizerEntry(
            files=[describe_file(folder / name) for name in sorted(tokenizer.files())],
            fingerprint=tokenizer.fingerprint,
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
        ),
        held_out=dict(held_out),
        report=describe_file(folder / REPORT_FILE),
        target_tag=section.target_tag,
        recipe=recipe,
        places=_write_places(job, num_pairs) if section.record_places else None,
        sources=_sources(section, job.noted("places")),
    )
    for column, (name, made_by) in enumerate(recipe["settings"]["scores"].items()):
        write_score(folder, name, made_by, num_pairs, (scores[:, column] for scores in job.noted("scores")))
    write_bytes(folder / INDEX_FILE, index.to_json(), sync=True)
    return index


def _write_places(job: ShardJob, num_pairs: int) -> PlacesEntry:
    """Write where in the corpus each pair is.

    Files are recorded by name without folder, so that a dataset's bytes do not depend on its corpus's location.
    """
    write_table(job.dataset / PLACES_FILE, np.dtype("<u8"), (num_pairs,), job.noted("places"))
    entry = describe_file(job.dataset / PLACES_FILE)
    units = [[path.name for path in unit.files.paths] for unit in job.encoding.units]
    return PlacesEntry(**dataclasses.asdict(entry), units=units)


def _sources(section: PrepareSection, places: Iterator[NDArray[np.uint64]]) -> list[SourceEntry] | None:
    """Licence and attribution of each unit of the corpus, with the number of its pairs; None if none has any."""
    files = as_saved(section.train)
    if files.licence is None and files.attribution is None:
        return None
    units = files.units
    counts = np.zeros(len(units), dtype=np.int64)
    for part in places:
        counts += np.bincount((part >> np.uint64(LINE_BITS)).astype(np.int64), minlength=len(units))
    return [
        SourceEntry(
            files=list(dict.fromkeys(Path(name).name for name in names)),
            pairs=int(counts[number]),
            licence=files.source_of("licence", number),
            attribution=files.source_of("attribution", number),
        )
        for number, names in enumerate(units)
    ]
