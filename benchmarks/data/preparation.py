"""`zeromt prepare` and bare SentencePiece on the same lines. These functions run in child processes (see `child`)."""

import resource
import time
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.common.text import read_lines
from configs import CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation.prepare import run
from data_pipeline.prepared.dataset import Dataset

LINES_A_CALL = 4096


def prepare(
    *,
    source: str,
    target: str,
    output: str,
    workers: int,
    tokenizer: str | None = None,
    held_out: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Prepare two files with default settings. Includes the start of worker processes, but not Python's start and
    imports.

    Args:
        source: source file.
        target: target file.
        output: folder for the dataset.
        workers: `prepare.workers`.
        tokenizer: `prepare.tokenizer.path`; None trains a tokenizer.
        held_out: source and target file of a validation set.
    """
    section = PrepareSection(
        output=output,
        root="/",
        train=CorpusFiles(source=[source], target=[target]),
        valid=CorpusFiles(source=[held_out[0]], target=[held_out[1]]) if held_out else CorpusFiles(),
        tokenizer=TokenizerSection(path=tokenizer),
        workers=workers,
    )
    begin, processor_begin = time.monotonic(), _processor_seconds()
    run(section)
    seconds, processor_seconds = time.monotonic() - begin, _processor_seconds() - processor_begin
    dataset = Dataset.load(Path(output))
    index = dataset.index
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "pairs": index.pairs,
        "tokens": index.source_tokens + index.target_tokens,
        "shards": [shard.sha256 for shard in index.shards],
    }


def bare_sentencepiece(*, source: str, target: str, tokenizer: str, threads: int) -> dict[str, Any]:
    """Encode all lines of two files and discard the pieces. Reading the files is not timed."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(Path(tokenizer) / "tokenizer.model"))
    sides = [read_lines(Path(source)), read_lines(Path(target))]
    begin, processor_begin = time.monotonic(), _processor_seconds()
    tokens = 0
    for lines in sides:
        for first in range(0, len(lines), LINES_A_CALL):
            call = lines[first : first + LINES_A_CALL]
            tokens += sum(map(len, processor.encode(call, out_type=int, num_threads=threads)))
    return {
        "seconds": time.monotonic() - begin,
        "processor_seconds": _processor_seconds() - processor_begin,
        "pairs": len(sides[0]),
        "tokens": tokens,
    }


def _processor_seconds() -> float:
    """User and system CPU seconds of this process and its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
