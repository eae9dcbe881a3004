"""`zeromt inspect` for a prepared dataset: its contents, and whether it is whole."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection, UserError
from data_pipeline.order.windows import Budget, plan_window
from data_pipeline.preparation.report import BAR_WIDTH, Report
from data_pipeline.preparation.tokenizing import describe_tags
from data_pipeline.prepared.dataset import Dataset, check_files, open_index
from data_pipeline.prepared.index import INDEX_FILE, SourceEntry

HISTOGRAM_EDGES = (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 65_536)
ROWS_AT_ONCE = 1 << 20
PADDING_BUDGETS = (1024, 4096, 16_384)
"""Budgets for which padding is measured, in padded tokens per side."""
PADDING_PAIRS = 262_144
"""Pairs of the window on which padding is measured: the dataset's first, which is typical as datasets are shuffled."""


def is_dataset(folder: Path) -> bool:
    """Whether a folder has the index of a prepared dataset."""
    return (folder / INDEX_FILE).is_file()


def inspect_dataset(folder_or_url: Path | str, stream: StreamSection | None = None) -> tuple[list[str], bool]:
    """Describe a dataset after reading every byte of it.

    Args:
        folder_or_url: see `Dataset.load`.
        stream: cache, retries and time-outs for a remote dataset.

    Returns:
        Lines of text, which include any errors, and whether the dataset is whole.

    Raises:
        UserError: there is no dataset of this version.
    """
    try:
        dataset = Dataset.load(folder_or_url, stream)
        report = read_report(dataset)
    except UserError as error:
        storage, index, _ = open_index(folder_or_url, stream)  # raises again if the index itself is broken
        problems = list(check_files(storage, index)) or [str(error)]
        return [f"dataset   {storage.location}", *_wholeness(problems)], False
    problems = dataset.verify()
    return [*describe(dataset, report), *_wholeness(problems)], not problems


def pairs_by_score(dataset: Dataset, name: str, count: int, *, highest: bool) -> list[str]:
    """The pairs of the lowest or highest scores as text: score and place, source, target.

    Args:
        dataset: the dataset.
        name: of the score.
        count: most pairs.
        highest: whether those of the highest scores are wanted, the best or worst.

    Raises:
        UserError: there is no such score.
        DataError: its table or a block is corrupt.
    """
    scores = dataset.score(name)[:]
    there = np.flatnonzero(~np.isnan(scores))
    values = -scores[there] if highest else scores[there]
    if len(values) > count:  # sorting all would take long
        is_among = values <= np.partition(values, count - 1)[count - 1]
        there, values = there[is_among], values[is_among]
    pairs = there[np.argsort(values, kind="stable")][:count]
    texts = _texts(dataset, pairs)
    return [
        line
        for pair in pairs.tolist()
        for line in (f"{scores[pair]:<12.6g} {dataset.place(pair) or f'pair {pair}'}", *map("  {}".format, texts[pair]))
    ]


def _texts(dataset: Dataset, pairs: NDArray[np.int64]) -> dict[int, tuple[str, str]]:
    """Source and target of pairs, by their numbers."""
    firsts, texts = dataset.blocks["first_pair"].astype(np.int64), {}
    blocks = np.searchsorted(firsts, pairs, side="right") - 1
    for number in np.unique(blocks).tolist():
        block, wanted = dataset.read_block(number), pairs[blocks == number]
        ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)
        for pair in wanted.tolist():
            row = pair - int(firsts[number])
            (s0, t0), (s1, t1) = ends[row] - block.lengths[row], ends[row]
            [source] = dataset.tokenizer.decode_source([block.source[s0:s1].tolist()])
            [target] = dataset.tokenizer.decode_target([block.target[t0:t1].tolist()])
            texts[pair] = source, target
    return texts


def _wholeness(problems: list[str]) -> list[str]:
    if not problems:
        return ["whole     yes: every byte was read and is as the index says"]
    return [f"whole     NO: {len(problems)} problems", *(f"  {problem}" for problem in problems)]


def read_report(dataset: Dataset) -> Report:
    """Read the report on the preparation's filters.

    Raises:
        DataError: the report is broken.
    """
    entry = dataset.index.report
    return Report.from_json(dataset.read_file(entry), f"{dataset.location}/{entry.file}")


def describe(dataset: Dataset, report: Report) -> list[str]:
    """Describe a dataset in lines of text, in bounded memory.

    Args:
        dataset: the dataset.
        report: the dataset's.
    """
    index = dataset.index
    pieces = index.tokenizer
    kind = "joint" if len(pieces.files) == 1 else "separate"
    held_out = ", ".join(f"{split} {entry.lines:,}" for split, entry in index.held_out.items()) or "none"
    size = sum(shard.bytes for shard in index.shards)
    return [
        f"dataset   {dataset.location}",
        f"hash      {dataset.fingerprint}",
        *(f"source    {line}" for line in map(_source, index.sources or ())),
        f"languages {dataset.source_language} -> {dataset.target_language}"
        + (f", tag {index.target_tag}" if index.target_tag else ""),
        f"pairs     {index.pairs:,}; source equal to target: {index.source_equals_target:,}",
        f"held out  {held_out}",
        f"tokens    {index.source_tokens:,} source, {index.target_tokens:,} target",
        f"unknown   {report.num_pieces('source')} source tokens, {report.num_pieces('target')} target (<unk>)",
        *(f"          {line}" for line in describe_tags(report.tags_as_text)),
        f"pieces    {pieces.source_vocab_size:,} source, {pieces.target_vocab_size:,} target, {kind}",
        f"shards    {len(index.shards):,} of {size:,} bytes, {index.blocks:,} blocks",
        "filters",
        *(f"  {line}" for line in report.table()),
        *(f"left out  {line}" for line in report.left_out_lines()),
        *([f"scores    {', '.join(names)}"] if (names := dataset.scores()) else []),
        *_histogram(dataset.lengths),
        *_padding(dataset.lengths),
    ]


def _source(entry: SourceEntry) -> str:
    said = f"{entry.licence or 'licence not recorded'}{f'; {entry.attribution}' if entry.attribution else ''}"
    return f"{', '.join(entry.files)}: {entry.pairs:,} pairs, {said}"


def _histogram(lengths: NDArray[np.uint16]) -> list[str]:
    by_length = np.zeros((2, HISTOGRAM_EDGES[-1]), dtype=np.int64)
    for first in range(0, len(lengths), ROWS_AT_ONCE):
        for side in (0, 1):
            by_length[side] += np.bincount(
                lengths[first : first + ROWS_AT_ONCE][:, side], minlength=HISTOGRAM_EDGES[-1]
            )
    counts = np.add.reduceat(by_length, HISTOGRAM_EDGES[:-1], axis=1).T.tolist()
    most = max(1, *(target for _, target in counts))
    lines = ["lengths   pieces        source       target"]
    for low, high, (source, target) in zip(HISTOGRAM_EDGES, HISTOGRAM_EDGES[1:], counts, strict=False):
        if source or target:
            bar = "#" * round(BAR_WIDTH * target / most)
            lines.append(f"  {low:>9,}-{high - 1:<7,} {source:>10,}   {target:>10,} {bar}".rstrip())
    return lines


def _padding(lengths: NDArray[np.uint16]) -> list[str]:
    """The fraction of padding in micro-batches of several budgets."""
    window = lengths[:PADDING_PAIRS]
    lines = [f"padding   in micro-batches of the first {len(window):,} pairs, by padded tokens a side"]
    for tokens in PADDING_BUDGETS:
        budget = Budget(source_tokens=tokens, target_tokens=tokens, max_rows=tokens, length_multiple=1)
        plan = plan_window(window, budget, seed=0, place=(0, 0, 0, 0), before=0)
        real = padded = 0
        for number in range(len(plan)):
            rows = budget.padded(window[plan.micro_batch(number)])
            real += int(rows.sum())
            padded += len(rows) * int(rows.max(axis=0).sum())
        left_out = len(window) - len(plan.rows)
        oversized = f"; {left_out:,} pairs fit none" if left_out else ""
        fraction = f"{(padded - real) / padded:.1%}" if padded else "-"
        lines.append(f"  {tokens:>9,} {fraction:>10} in {len(plan):,} micro-batches{oversized}")
    return lines
