"""Unknown pieces in encoded text: the limit, and warnings."""

import itertools
from collections.abc import Iterator, Mapping

from configs import PrepareSection, UserError
from data_pipeline.preparation.report import NUM_TAGS, SIDES, PieceCount, Report
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import UNK_ID

WORTH_A_WARNING = 0.001
"""Fraction of a side's pieces above which there is a warning."""


class UnknownPiecesError(UserError):
    """The fraction of unknown pieces exceeds `prepare.max_unknown`."""


def check_unknown(section: PrepareSection, report: Report) -> None:
    """Refuse a corpus with too many unknown pieces.

    Raises:
        UnknownPiecesError: naming the side and the fraction.
    """
    for side in SIDES:
        count = report.num_pieces(side)
        if count.fraction > section.max_unknown:
            given = section.tokenizer.path
            other = (
                f"another tokenizer than that of {given}"
                if given is not None
                else "a higher prepare.tokenizer.character_coverage, or prepare.tokenizer.byte_fallback=true"
            )
            raise UnknownPiecesError(
                f"prepare.max_unknown: {section.max_unknown:g}, and {count} {side} pieces are unknown to the tokenizer "
                f"(<unk>); take {other}; or allow it with a larger prepare.max_unknown"
            )


def warnings(report: Report, dataset: Dataset) -> Iterator[str]:
    """Warnings about unknown pieces in a prepared dataset's training pairs and held-out sets."""
    for side in SIDES:
        count = report.num_pieces(side)
        if count.fraction > WORTH_A_WARNING:
            yield f"prepare.train: {count} {side} pieces are unknown to the tokenizer (<unk>)"
    for split in dataset.index.held_out:
        for side, count in zip(SIDES, _of_held_out(dataset, split), strict=True):
            if count.fraction > WORTH_A_WARNING:
                yield f"prepare.{split}: {count} {side} pieces are unknown to the tokenizer (<unk>)"
        tags = dataset.tokenizer.tags_that_are_text(dataset.held_out(split)[0])
        yield from (f"prepare.{split}: {line}" for line in describe_tags(tags))
    yield from (f"prepare.train: {line}" for line in describe_tags(report.tags_as_text))


def describe_tags(tags: Mapping[str, int]) -> Iterator[str]:
    """Warnings about tags at the beginning of source lines that were taken for text, for the first few."""
    for tag, lines in itertools.islice(tags.items(), NUM_TAGS):
        yield (
            f"{lines:,} source lines begin with {tag}, which is taken for text: a tag stands at the very start of a "
            "line, is one of prepare.tokenizer.tags, and has no other before it"
        )


def _of_held_out(dataset: Dataset, split: str) -> list[PieceCount]:
    sources, targets = dataset.held_out(split)
    rows = dataset.tokenizer.encode_source(sources), dataset.tokenizer.encode_target(targets)
    return [PieceCount(unknown=sum(row.count(UNK_ID) for row in side), pieces=sum(map(len, side))) for side in rows]
