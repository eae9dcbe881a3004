"""`zeromt prepare`: raw text -> tokenizer, shards and index, the same bytes for the same input."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from data_pipeline.dataset import Dataset
from data_pipeline.encode import Encoder
from data_pipeline.index import (
    BLOCKS_FILE,
    INDEX_FILE,
    LENGTHS_FILE,
    REPORT_FILE,
    VERSION,
    DatasetIndex,
    HeldOutEntry,
    HeldOutSplit,
    TokenizerEntry,
    TokenType,
    check_local,
    describe_file,
)
from data_pipeline.progress import Progress
from data_pipeline.raw_text import TextChunk, read_chunks
from data_pipeline.shards import ShardWriter
from data_pipeline.staging import (
    Input,
    check_disk,
    check_unchanged,
    inspect_inputs,
    is_already_prepared,
    make_recipe,
    staging_folder,
)
from data_pipeline.tokenizer import Tokenizer
from data_pipeline.tokenizer_training import Sample, train_tokenizer

CHUNK_LINES = 4096
HELD_OUT: tuple[HeldOutSplit, ...] = ("valid", "test")
BYTES_A_WORKER = 1 << 20
"""A process takes half a second to start: small corpora are not worth one."""


def run(section: PrepareSection) -> None:
    """Prepare the dataset that a section describes, unless it is there already.

    Raises:
        UserError: an input is broken, nothing is left of it, or the output cannot be written.
    """
    started = time.monotonic()
    check_local(section.output)
    output = Path(section.output)
    if section.train.is_empty:
        raise UserError("prepare.train: no file is named; allowed is source and target, or tsv")
    inputs = inspect_inputs(section)
    recipe = make_recipe(section, inputs)
    if is_already_prepared(output, recipe):
        pairs = Dataset.load(output).num_pairs
        print(f"{output}: already prepared from the same input, {pairs:,} pairs; nothing to do")
        return
    check_disk(output, inputs)
    with staging_folder(output) as folder:
        held_out = {s: h for s in HELD_OUT if (h := _write_held_out(section, s, folder))}
        sample = _draw_sample(section)
        print(f"training the tokenizer on {len(sample.sources):,} of {sample.num_seen:,} pairs", flush=True)
        tokenizer = train_tokenizer(section.tokenizer, sample)
        tokenizer.save(folder)
        num_seen = sample.num_seen
        del sample
        written = _write_shards(section, tokenizer, folder, inputs, num_seen)
        check_unchanged(inputs)
        index = _make_index(section, tokenizer, folder, written, held_out, recipe)
        (folder / INDEX_FILE).write_bytes(index.to_json())
    _print_summary(output, index, num_seen, time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Written:
    """What the encoding came to."""

    writer: ShardWriter
    blocks: NDArray[np.void]
    dropped: Counter[str]
    num_equal: int


def _make_index(
    section: PrepareSection,
    tokenizer: Tokenizer,
    folder: Path,
    written: _Written,
    held_out: dict[HeldOutSplit, HeldOutEntry],
    recipe: dict[str, Any],
) -> DatasetIndex:
    """Write the table of blocks, and describe every file.

    Raises:
        UserError: no pair was kept.
    """
    if written.writer.num_pairs == 0:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(written.dropped.items()))
        raise UserError(f"prepare.train: nothing is left of {written.dropped.total():,} pairs ({reasons})")
    (folder / REPORT_FILE).write_text("{}\n")
    np.save(folder / BLOCKS_FILE, written.blocks, allow_pickle=False)
    return DatasetIndex(
        version=VERSION,
        source_language=section.source_language,
        target_language=section.target_language,
        pairs=written.writer.num_pairs,
        blocks=written.writer.num_blocks,
        source_tokens=int(written.blocks["source_tokens"].sum()),
        target_tokens=int(written.blocks["target_tokens"].sum()),
        token_dtype=_token_dtype(tokenizer),
        dropped=dict(sorted(written.dropped.items())),
        source_equals_target=written.num_equal,
        shards=written.writer.shards,
        length_table=describe_file(folder / LENGTHS_FILE),
        block_table=describe_file(folder / BLOCKS_FILE),
        tokenizer=_tokenizer_entry(tokenizer, folder),
        held_out=held_out,
        report=describe_file(folder / REPORT_FILE),
        target_tag=section.target_tag,
        recipe=recipe,
        made_with={"sentencepiece": sentencepiece.__version__},
    )


def _write_held_out(section: PrepareSection, split: HeldOutSplit, folder: Path) -> HeldOutEntry | None:
    """Store a held-out set as text, one line each."""
    files = section.valid if split == "valid" else section.test
    if files.is_empty:
        return None
    paths = [folder / f"{split}.{side}.txt" for side in ("source", "target")]
    count = 0
    with (
        paths[0].open("w", encoding="utf-8", newline="") as source,
        paths[1].open("w", encoding="utf-8", newline="") as target,
    ):
        for chunk in read_chunks(files, section.root, CHUNK_LINES):
            source.writelines(f"{line}\n" for line in chunk.sources)
            target.writelines(f"{line}\n" for line in chunk.targets)
            count += len(chunk.sources)
    return HeldOutEntry(source=describe_file(paths[0]), target=describe_file(paths[1]), lines=count)


def _draw_sample(section: PrepareSection) -> Sample:
    """One pass over the corpus, which also finds what is wrong with it before anything long is done."""
    sample = Sample(section.tokenizer.sample_pairs, section.seed)
    with Progress("reading") as progress:
        for chunk in read_chunks(section.train, section.root, CHUNK_LINES):
            sample.add(chunk)
            progress.advance(len(chunk.sources))
    if not sample.sources:
        raise UserError(f"prepare.train: nothing is left of {sample.num_seen:,} pairs ({sample.num_seen:,} empty)")
    return sample


def _write_shards(
    section: PrepareSection, tokenizer: Tokenizer, folder: Path, inputs: list[Input], num_pairs: int
) -> _Written:
    """Encode the corpus into shards."""
    dtype = _token_dtype(tokenizer)
    encoder = Encoder(tokenizer.files(), section.max_pieces, section.on_bad_pair == "error", dtype)
    dropped: Counter[str] = Counter()
    num_equal = 0
    writer = ShardWriter(
        folder,
        pairs_per_block=section.pairs_per_block or 1024,
        blocks_per_shard=section.blocks_per_shard,
        dtype=dtype,
    )
    with Progress("encoding", num_pairs) as progress, writer:
        for chunk in encoder.stream(_training_chunks(section), _num_workers(section, inputs)):
            writer.add(chunk)
            dropped.update(chunk.dropped)
            num_equal += chunk.num_equal
            progress.advance(chunk.num_read)
        blocks = writer.finish()
    return _Written(writer, blocks, dropped, num_equal)


def _training_chunks(section: PrepareSection) -> Iterator[TextChunk]:
    return read_chunks(section.train, section.root, CHUNK_LINES)


def _num_workers(section: PrepareSection, inputs: list[Input]) -> int:
    if section.workers:
        return section.workers
    size = sum(file.bytes for file in inputs if file.split == "train")
    return max(1, min(len(os.sched_getaffinity(0)), size // BYTES_A_WORKER))


def _token_dtype(tokenizer: Tokenizer) -> TokenType:
    return "uint16" if max(tokenizer.source_vocab_size, tokenizer.target_vocab_size) <= 65_536 else "uint32"


def _tokenizer_entry(tokenizer: Tokenizer, folder: Path) -> TokenizerEntry:
    return TokenizerEntry(
        files=[describe_file(folder / name) for name in sorted(tokenizer.files())],
        fingerprint=tokenizer.fingerprint,
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
    )


def _print_summary(output: Path, index: DatasetIndex, num_read: int, seconds: float) -> None:
    dropped = ", ".join(f"{n:,} {reason}" for reason, n in index.dropped.items())
    size = sum(shard.bytes for shard in index.shards)
    vocabulary = index.tokenizer
    print(f"{output}: prepared in {seconds:.1f} s")
    print(f"  pairs    {index.pairs:,} kept of {num_read:,}; dropped: {dropped}")
    if index.source_equals_target:
        print(f"           {index.source_equals_target:,} kept whose source is their target")
    print(f"  tokens   {index.source_tokens:,} source, {index.target_tokens:,} target")
    print(f"  pieces   {vocabulary.source_vocab_size:,} source, {vocabulary.target_vocab_size:,} target")
    print(f"  shards   {len(index.shards):,} of {size:,} bytes, {index.blocks:,} blocks")
