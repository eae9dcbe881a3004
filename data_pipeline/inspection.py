"""What a prepared dataset holds, and whether it is whole: the lines of `zeromt inspect`."""

import itertools
from pathlib import Path

import numpy as np

from configs import UserError
from data_pipeline.dataset import Dataset, file_problems
from data_pipeline.index import INDEX_FILE, parse_index

HISTOGRAM_EDGES = (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 65_536)
BAR_WIDTH = 40


def is_dataset(folder: Path) -> bool:
    """Whether a folder calls itself a prepared dataset."""
    return (folder / INDEX_FILE).is_file()


def inspect_dataset(folder: Path) -> tuple[list[str], bool]:
    """Describe a dataset after reading every byte of it.

    Returns:
        Lines of text, and whether it is whole. What is wrong stands in the lines.

    Raises:
        UserError: the folder is no dataset of this version.
    """
    try:
        dataset = Dataset.load(folder)
    except UserError as error:
        path = folder / INDEX_FILE
        if not path.is_file():
            raise
        problems = file_problems(folder, parse_index(path.read_bytes(), path)) or [str(error)]
        return [f"dataset   {folder}", *_wholeness(problems)], False
    problems = dataset.verify()
    return [*describe(dataset), *_wholeness(problems)], not problems


def _wholeness(problems: list[str]) -> list[str]:
    if not problems:
        return ["whole     yes: every byte was read and is as the index says"]
    return [f"whole     NO: {len(problems)} problems", *(f"  {problem}" for problem in problems)]


def describe(dataset: Dataset) -> list[str]:
    """What a dataset holds, as lines of text."""
    index = dataset.index
    pieces = index.tokenizer
    kind = "joint" if len(pieces.files) == 1 else "separate"
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in index.dropped.items()) or "none"
    held_out = ", ".join(f"{split} {entry.lines:,}" for split, entry in index.held_out.items()) or "none"
    size = sum(shard.bytes for shard in index.shards)
    return [
        f"dataset   {dataset.folder}",
        f"hash      {dataset.fingerprint}",
        f"languages {dataset.source_language} -> {dataset.target_language}",
        f"pairs     {index.pairs:,}; source equal to target: {index.source_equals_target:,}",
        f"dropped   {dropped}",
        f"held out  {held_out}",
        f"tokens    {index.source_tokens:,} source, {index.target_tokens:,} target",
        f"pieces    {pieces.source_vocab_size:,} source, {pieces.target_vocab_size:,} target, {kind}",
        f"shards    {len(index.shards):,} of {size:,} bytes, {index.blocks:,} blocks",
        *_histogram(dataset),
    ]


def _histogram(dataset: Dataset) -> list[str]:
    counts = [np.histogram(dataset.lengths[:, side], bins=HISTOGRAM_EDGES)[0] for side in (0, 1)]
    most = max(1, *(int(c.max()) for c in counts))
    lines = ["lengths   pieces        source       target"]
    for number, (low, high) in enumerate(itertools.pairwise(HISTOGRAM_EDGES)):
        source, target = int(counts[0][number]), int(counts[1][number])
        if source or target:
            bar = "#" * round(BAR_WIDTH * target / most)
            lines.append(f"  {low:>9,}-{high - 1:<7,} {source:>10,}   {target:>10,} {bar}".rstrip())
    return lines
