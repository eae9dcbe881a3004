"""The last step of preparation: tables, report, held-out sets and index, when all shards are written."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.process.files.inside import read_bytes, replacing, write_bytes
from configs.process.progress import say
from data_pipeline.preparation.cleaning import DUPLICATE
from data_pipeline.preparation.report import SIDES, Report
from data_pipeline.preparation.staging import made_with
from data_pipeline.preparation.tokenizing import warnings
from data_pipeline.preparation.writing.origins import sources_of
from data_pipeline.preparation.writing.shards import ShardJob
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import (
    BLOCKS_FILE,
    INDEX_FILE,
    LENGTHS_FILE,
    PLACES_FILE,
    REPORT_FILE,
    VERSION,
    DatasetIndex,
    HeldOutEntry,
    HeldOutSplit,
    PlacesEntry,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    describe_file,
    units_and_lines,
)
from data_pipeline.prepared.scores import write_scores
from data_pipeline.tokenizer import Tokenizer


def write_index(
    job: ShardJob,
    num_shards: int,
    report: Report,
    *,
    held_out: Mapping[HeldOutSplit, HeldOutEntry],
    recipe: dict[str, Any],
    scores: Mapping[str, Mapping[str, Any]],
) -> DatasetIndex:
    """Write the tables of blocks and lengths, the report, the tokenizer, and the index that lists every file.

    Args:
        job: the job that wrote the shards.
        num_shards: number of shards.
        report: on the pairs before they reached the shards.
        held_out: the entries of the held-out sets, whose files are written already.
        recipe: of the dataset.
        scores: what made each score, in the order in which spans have them.

    Raises:
        UserError: no pair was kept.
    """
    folder, section = job.folder, job.encoding.section
    entries, all_blocks, num_duplicates = _write_tables(job, num_shards)
    num_pairs = sum(entry.pairs for entry in entries)
    if section.cleaning.duplicates == "drop":
        report = report.merge(Report.of(dropped={DUPLICATE: num_duplicates}))
    if num_pairs == 0:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in report.dropped().items())
        raise UserError(f"prepare.train: nothing is left of {report.read:,} pairs ({reasons})")
    write_bytes(folder / REPORT_FILE, report.to_json())
    tokenizer = Tokenizer(job.encoding.tokenizer_files)
    tokenizer.save(folder)
    index = DatasetIndex(
        version=VERSION,
        source_language=section.languages[0],
        target_language=section.languages[1],
        pairs=num_pairs,
        blocks=len(all_blocks),
        source_tokens=int(all_blocks["source_tokens"].sum()),
        target_tokens=int(all_blocks["target_tokens"].sum()),
        token_dtype=job.encoding.dtype,
        dropped=report.dropped(),
        source_equals_target=report.identical,
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
        made_with=made_with(),
        places=_write_places(job, num_shards) if section.record_places else None,
        sources=_sources(job, num_shards),
    )
    if scores:
        write_scores(folder, scores, num_pairs, _scores_of(job, num_shards))
    write_bytes(folder / INDEX_FILE, index.to_json())
    return index


def _write_tables(job: ShardJob, num_shards: int) -> tuple[list[ShardEntry], NDArray[Any], int]:
    """Join the shards' lengths and blocks into the side files; entries, all blocks and duplicates."""
    entries, blocks, num_pairs, num_duplicates = [], [], 0, 0
    with replacing(job.folder / LENGTHS_FILE) as file:  # one shard's lengths at a time: all may be gigabytes
        header = {"descr": "<u2", "fortran_order": False, "shape": (job.num_pairs(num_shards), 2)}
        np.lib.format.write_array_header_1_0(file, header)
        for shard in range(num_shards):
            table = job.read_table(shard)
            table.blocks["first_pair"] += np.uint64(num_pairs)
            file.write(table.lengths.astype("<u2").tobytes())
            entries.append(table.entry)
            blocks.append(table.blocks)
            num_pairs += table.entry.pairs
            num_duplicates += table.duplicates
    all_blocks = np.concatenate(blocks)
    with replacing(job.folder / BLOCKS_FILE) as file:
        np.save(file, all_blocks, allow_pickle=False)
    return entries, all_blocks, num_duplicates


def _write_places(job: ShardJob, num_shards: int) -> PlacesEntry:
    """Join the shards' places into a side file.

    Files are recorded by name without folder, so that a dataset's bytes do not depend on its corpus's location.
    """
    with replacing(job.folder / PLACES_FILE) as file:
        header = {"descr": "<u8", "fortran_order": False, "shape": (job.num_pairs(num_shards),)}
        np.lib.format.write_array_header_1_0(file, header)
        for shard in range(num_shards):
            places = job.read_table(shard).places
            assert places is not None
            file.write(places.astype("<u8").tobytes())
    entry = describe_file(job.folder / PLACES_FILE)
    units = [[path.name for path in unit.paths] for unit in job.encoding.units]
    return PlacesEntry(file=entry.file, bytes=entry.bytes, sha256=entry.sha256, units=units)


def _sources(job: ShardJob, num_shards: int) -> list[SourceEntry] | None:
    """What is said of each unit of the corpus, with the number of its pairs."""
    entries = sources_of(job.encoding.section)
    if entries is None or len(entries) == 1:
        return entries and [dataclasses.replace(entries[0], pairs=job.num_pairs(num_shards))]
    counts = np.zeros(len(entries), dtype=np.int64)
    for shard in range(num_shards):
        places = job.read_table(shard).places
        assert places is not None
        counts += np.bincount(units_and_lines(places)[0], minlength=len(entries))
    return [dataclasses.replace(entry, pairs=int(count)) for entry, count in zip(entries, counts, strict=True)]


def _scores_of(job: ShardJob, num_shards: int) -> Iterator[NDArray[np.float32]]:
    """(pairs of a shard, scores), shard by shard."""
    for shard in range(num_shards):
        scores = job.read_table(shard).scores
        assert scores is not None
        yield scores


def print_summary(output: Path, index: DatasetIndex, seconds: float) -> None:
    """Print what was prepared, and what the filters did."""
    report = Report.from_json(read_bytes(output / REPORT_FILE))
    size = sum(shard.bytes for shard in index.shards)
    vocabulary = index.tokenizer
    has_unknown = any(report.num_pieces(side).unknown for side in SIDES)
    unknown = ", ".join(f"{report.num_pieces(side)} {side}" for side in SIDES) if has_unknown else "none"
    print(f"{output}: prepared in {seconds:.1f} s")
    print(f"  pairs    {index.pairs:,} kept of {report.read:,}")
    for line in report.table():
        print(f"           {line}")
    if index.source_equals_target:
        print(f"           {index.source_equals_target:,} whose source is their target")
    for line in report.left_out_lines():
        print(f"  left out {line}")
    print(f"  tokens   {index.source_tokens:,} source, {index.target_tokens:,} target")
    print(f"  unknown  {unknown} (<unk>)")
    print(f"  pieces   {vocabulary.source_vocab_size:,} source, {vocabulary.target_vocab_size:,} target")
    print(f"  shards   {len(index.shards):,} of {size:,} bytes, {index.blocks:,} blocks")
    if index.places is not None:
        print(f"  places   {index.places.bytes:,} bytes: file and line of each pair")
    if "valid" not in index.held_out and index.target_tokens:
        print("  no validation set (prepare.valid): training will report its loss alone")
    dataset = Dataset.load(output)
    if scores := dataset.scores():
        print(f"  scores   {', '.join(scores)}")
    sys.stdout.flush()
    for line in warnings(report, dataset):
        say(f"zeromt: warning: {line}", file=sys.stderr)
