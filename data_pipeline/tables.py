"""What is known of prepared datasets, as tables of a report."""

from collections.abc import Iterator, Sequence

from configs.process.document import Cell, Code, Table, bar
from data_pipeline.inspection import read_report
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import SourceEntry


def dataset_tables(dataset: Dataset, name: str, *, num_samples: int = 0) -> Iterator[Table]:
    """Pairs, what filters dropped, where the pairs come from, and the first of them.

    Args:
        dataset: the dataset.
        name: of it, in titles.
        num_samples: pairs to show.

    Raises:
        UserError: a file of it is broken.
    """
    index, read = dataset.index, max(read_report(dataset).read, 1)
    languages = f"{index.source_language} to {index.target_language}"
    dropped: list[Sequence[Cell]] = [
        (rule, f"{number:,}", f"{number / read:.1%}", bar(number / read))
        for rule, number in index.dropped.items()
        if number
    ]
    kept = f"{languages}, {index.pairs:,} of {read:,} pairs kept"
    head = ("dropped by", "pairs", "of those read", "") if dropped else ()
    yield Table(title=name, head=head, rows=dropped, notes=[kept])
    if index.sources:
        yield sources_table(index.sources)
    pairs = [dataset.pieces(number) for number in range(min(num_samples, dataset.num_pairs))]
    if pairs:
        sources, targets = zip(*pairs, strict=True)
        texts = [dataset.tokenizer.decode_source(list(sources)), dataset.tokenizer.decode_target(list(targets))]
        yield Table(
            head=("source", "target"), rows=[[[(text, False)] for text in pair] for pair in zip(*texts, strict=True)]
        )


def sources_table(entries: Sequence[SourceEntry]) -> Table:
    """Of each source the files, pairs, licence and attribution."""
    rows: list[Sequence[Cell]] = [
        (Code(", ".join(one.files)), f"{one.pairs:,}", *(t or "not recorded" for t in (one.licence, one.attribution)))
        for one in entries
    ]
    return Table(head=("files", "pairs", "licence", "attribution"), rows=rows)
