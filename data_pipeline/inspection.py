"""`zeromt inspect` for a prepared dataset: its contents, and whether it is whole."""

from pathlib import Path

import numpy as np

from configs import StreamSection, UserError
from data_pipeline.preparation.report import Report, describe
from data_pipeline.preparation.tokenizing import warnings
from data_pipeline.prepared.dataset import Dataset, check_files, open_index
from data_pipeline.prepared.index import INDEX_FILE


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
    lines = []
    try:
        dataset = Dataset.load(folder_or_url, stream)
        location, entry = dataset.location, dataset.index.report
        report = Report.from_json(dataset.read_file(entry), f"{location}/{entry.file}")
        lines = [*describe(dataset, report), *(f"warning   {line}" for line in warnings(report))]
        problems = dataset.verify()
    except UserError as error:
        storage, index, _ = open_index(folder_or_url, stream)  # raises again if the index itself is broken
        location, problems = storage.location, list(check_files(storage, index)) or [str(error)]
    whole = f"NO: {len(problems)} problems" if problems else "yes: every byte was read and is as the index says"
    return [f"dataset   {location}", *lines, f"whole     {whole}", *(f"  {one}" for one in problems)], not problems


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
    order = np.argsort(-scores[there] if highest else scores[there], kind="stable")
    lines = []
    for pair in there[order[:count]].tolist():
        source_ids, target_ids = dataset.pieces(pair)
        [source] = dataset.tokenizer.decode_source([source_ids])
        [target] = dataset.tokenizer.decode_target([target_ids])
        lines += [f"{scores[pair]:<12.6g} {dataset.place(pair) or f'pair {pair}'}", f"  {source}", f"  {target}"]
    return lines
