"""The report on what each filter dropped and changed: `report.json`; and what `zeromt inspect` says of a dataset."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs import StreamSection, UserError
from configs.fields import STRICT, Count
from data_pipeline.preparation.lines import TextChunk
from data_pipeline.prepared.dataset import Dataset, check_files, open_index
from data_pipeline.prepared.index import INDEX_FILE, parsed
from data_pipeline.tokenizer import Side

NUM_EXAMPLES = 3
EXAMPLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Example:
    """A dropped pair, as it was read; its sides are cut to 200 characters."""

    __pydantic_config__ = STRICT

    where: str
    """File name and line, without the folder, so that a dataset's bytes do not depend on its corpus's location."""
    source: str
    target: str

    @classmethod
    def of(cls, text: TextChunk, row: int) -> "Example":
        """The pair in a row of a chunk."""
        where = f"{Path(text.file).name}: line {text.first_line + row}"
        return cls(where, text.sources[row][:EXAMPLE_CHARACTERS], text.targets[row][:EXAMPLE_CHARACTERS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened to the pairs of a corpus, or of a part of one."""

    __pydantic_config__ = STRICT

    read: Count = 0
    dropped: dict[str, Count] = field(default_factory=dict)
    """Pairs that each filter dropped: all that were on, in order of application."""
    changed: dict[str, Count] = field(default_factory=dict)
    """Pairs that a filter changed on either side, whether or not a later one dropped them."""
    examples: dict[str, list[Example]] = field(default_factory=dict)
    """The first pairs that a filter dropped, in corpus order; none for duplicates."""
    pieces: dict[Side, Count] = field(default_factory=dict)
    """Pieces of a side, over the pairs that the filters of text and pieces kept."""
    unknown: dict[Side, Count] = field(default_factory=dict)
    """How many of these are `<unk>`; SentencePiece writes one for several consecutive unknown characters."""
    left_out: dict[str, Count] = field(default_factory=dict)
    """What in the corpus's files makes no pair, and is not counted as read: counts by reason (`LeftOut`)."""

    @property
    def kept(self) -> int:
        """Number of pairs that no filter dropped."""
        return self.read - sum(self.dropped.values())

    def merge(self, later: "Report") -> "Report":
        """The report of this part of the corpus and a later one."""
        examples = _sums(self.examples, later.examples)
        return Report(
            read=self.read + later.read,
            dropped=_sums(self.dropped, later.dropped),
            changed=_sums(self.changed, later.changed),
            examples={name: pairs[:NUM_EXAMPLES] for name, pairs in examples.items()},
            pieces=_sums(self.pieces, later.pieces),
            unknown=_sums(self.unknown, later.unknown),
            left_out=_sums(self.left_out, later.left_out),
        )

    def share_of_unknown(self, side: Side) -> float:
        """Fraction of a side's pieces that are unknown."""
        return self.unknown.get(side, 0) / max(1, self.pieces.get(side, 0))

    def unknown_pieces(self, side: Side) -> str:
        """The unknown pieces of a side in words."""
        share = f"{self.share_of_unknown(side):.2%}"
        return f"{self.unknown.get(side, 0):,} of {self.pieces.get(side, 0):,} ({share}) {side} pieces"

    def lines(self) -> Iterator[str]:
        """What each filter did, one a line under a header; and what was left out."""
        rows = [("filter", "rejected", "fraction", "changed")]
        for name, count in self.dropped.items():
            rows.append((name, f"{count:,}", f"{count / max(1, self.read):.2%}", f"{self.changed.get(name, 0):,}"))
        width = max(len(row[0]) for row in rows)
        for name, *cells in rows:
            yield "  ".join([name.ljust(width), *(cell.rjust(10) for cell in cells)])
        yield from (f"left out: {count:,} {reason}" for reason, count in self.left_out.items())

    def to_json(self) -> bytes:
        """The bytes of `report.json`; the same report gives the same bytes."""
        return (json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode()


def _sums(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """The values of both by key; those of keys that both have are added."""
    sums = dict(one)
    for key, value in other.items():
        sums[key] = sums[key] + value if key in sums else value
    return sums


def describe(dataset: Dataset, report: Report) -> Iterator[str]:
    """What a dataset holds, and what the filters did, one a line."""
    index = dataset.index
    pieces = index.tokenizer
    held_out = ", ".join(f"{split} {entry.lines:,}" for split, entry in index.held_out.items()) or "none"
    yield f"hash      {dataset.fingerprint}"
    for entry in index.sources or ():
        said = "; ".join(filter(None, (entry.licence or "licence not recorded", entry.attribution)))
        yield f"source    {', '.join(entry.files)}: {entry.pairs:,} pairs, {said}"
    tag = f", tag {index.target_tag}" if index.target_tag else ""
    yield f"languages {index.source_language} -> {index.target_language}{tag}"
    yield f"pairs     {index.pairs:,} kept of {report.read:,}"
    yield from (f"          {line}" for line in report.lines())
    yield f"held out  {held_out}"
    yield f"tokens    {index.source_tokens:,} source, {index.target_tokens:,} target"
    yield f"unknown   {report.unknown_pieces('source')}, {report.unknown_pieces('target')} (<unk>)"
    yield f"pieces    {pieces.source_vocab_size:,} source, {pieces.target_vocab_size:,} target"
    yield f"shards    {len(index.shards):,} of {sum(s.bytes for s in index.shards):,} bytes, {index.blocks:,} blocks"
    if scores := dataset.scores():
        yield f"scores    {', '.join(scores)}"


def is_dataset(folder: Path) -> bool:
    """Whether a folder has the index of a prepared dataset."""
    return (folder / INDEX_FILE).is_file()


def inspect_dataset(folder_or_url: Path | str, stream: StreamSection | None = None) -> tuple[list[str], bool]:
    """Read every byte of a dataset, and describe it.

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
        report = parsed(Report, dataset.read_file(entry), f"{location}/{entry.file}")
        lines = [*describe(dataset, report)]
        problems = dataset.verify()
    except UserError as error:
        storage, index, _ = open_index(folder_or_url, stream)  # raises again if the index itself is broken
        location, problems = storage.location, list(check_files(storage, index)) or [str(error)]
    whole = f"NO: {len(problems)} problems" if problems else "yes: every byte was read and is as the index says"
    return [f"dataset   {location}", *lines, f"whole     {whole}", *(f"  {one}" for one in problems)], not problems
