"""`zeromt trace`: the chain behind a pair of a dataset, or a line of translations, down to text files.

Each link is held against the next where it can be: a pair against its raw line, cleaned as then and cut into the same
pieces; a translation against its chunk, and the text that was translated against its hash.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from configs import UserError
from configs.process.files import is_file
from data_pipeline.inspection import is_dataset
from data_pipeline.preparation.raw.lines import LineReader, merged_file, side_file
from data_pipeline.preparation.raw.translations import hash_of
from data_pipeline.prepared.dataset import Dataset
from zeromt.tracing.links import Link
from zeromt.tracing.pairs import Place, Sides, compare, encoded, link_of
from zeromt.tracing.translations import Merged, folder_of, line_of, originals_of, records_of
from zeromt.translating.corpus.options import is_corpus

MOST = 20
"""Lines with a text that are traced."""


def run(*, corpus: str, line: int | str, translated: Sequence[str], as_json: bool) -> int:
    """Print the chain behind a line; returns 0 if it is whole, else 1.

    Args:
        corpus: a dataset, a folder of translations, or a merged file.
        line: its number, or a text.
        translated: folders of translations that were merged elsewhere.
        as_json: print JSON.

    Raises:
        UserError: there is no such line, or the corpus is none.
    """
    tracer = Tracer(given=[Path(folder) for folder in translated])
    chains = list(islice(_chains(tracer, corpus, line), MOST))
    if not chains:
        raise UserError(f"LINE: {line!r}: no line of {corpus} is that text; give all of one, or a number")
    for chain in chains:
        print(json.dumps(chain.tree(), ensure_ascii=False) if as_json else "\n".join(chain.lines()))
    return 0 if all(chain.is_whole for chain in chains) else 1


def _chains(tracer: "Tracer", corpus: str, line: int | str) -> Iterator[Link]:
    path = Path(corpus)
    if "://" in corpus or is_dataset(path):
        dataset = Dataset.load(corpus)
        if isinstance(line, int) and line >= dataset.num_pairs:
            raise UserError(f"LINE: {line}: {corpus} has the pairs 0 to {dataset.num_pairs - 1}")
        pairs = [line] if isinstance(line, int) else _pairs_of(dataset, line)
        yield from (tracer.pair(dataset, pair) for pair in pairs)
        return
    file = merged_file(path) if is_corpus(corpus) else path
    if not (is_file(file) and is_file(side_file(file))):
        raise UserError(f"CORPUS: {corpus!r} is no dataset, and no merged file of `zeromt translate` is there")
    if line == 0:
        raise UserError("LINE: 0; lines of a merged file are counted from 1")
    for number in [line] if isinstance(line, int) else _lines_of(file, line):
        yield tracer.translation(Merged.find(file, number), None)


def _pairs_of(dataset: Dataset, text: str) -> Iterator[int]:
    """The pairs of which a side is a text."""
    tokenizer, lengths = dataset.tokenizer, dataset.lengths
    as_given = tokenizer.encode_source([text])[0], tokenizer.encode_target([text])[0]
    wanted = [[ids for ids in (given, encoded(dataset, side, text)) if ids] for side, given in enumerate(as_given)]
    for first in range(0, dataset.num_pairs, 1 << 20):
        rows = lengths[first : first + (1 << 20)]
        sizes = [[len(ids) for ids in side] for side in wanted]
        may_be = np.isin(rows[:, 0], sizes[0]) | np.isin(rows[:, 1], sizes[1])
        for pair in (np.flatnonzero(may_be) + first).tolist():
            if any(ids in side for ids, side in zip(dataset.pieces(pair), wanted, strict=True)):
                yield pair


def _lines_of(file: Path, text: str) -> Iterator[int]:
    """The lines of a merged file that are a text, or are translations of it."""
    is_of = f'"source": "{hash_of(text)}"'
    beside = zip(LineReader(file).lines(), records_of(file), strict=False)
    for number, (translation, (_, record)) in enumerate(beside, start=1):
        if translation == text or is_of in record:
            yield number


@dataclasses.dataclass(kw_only=True, slots=True)
class Tracer:
    """Follows lines."""

    given: Sequence[Path]
    """Folders of translations that were merged elsewhere."""
    _within: list[str] = dataclasses.field(default_factory=list)
    """The datasets of the chain so far."""

    def pair(self, dataset: Dataset, pair: int) -> Link:
        """The chain behind a pair."""
        link = link_of(dataset, pair)
        if dataset.fingerprint in self._within:
            link.problems.append("leads back to itself")
            return link
        self._within.append(dataset.fingerprint)
        with link.noting():
            place = Place.of(dataset, pair)
            if place.files.translations is None:
                below, sides = place.text(dataset)
            else:
                *originals, translations = place.paths
                below, sides = self._translated(place, translations, originals)
            link.made_of.append(below)
            link.problems += [f"{below.where}: {what}" for what in compare(dataset, pair, sides)]
        self._within.pop()
        return link

    def _translated(self, place: Place, translations: Path, originals: Sequence[Path]) -> tuple[Link, Sides]:
        where = f"{translations}: line {place.line}"
        link = Link(what="translation", where=where, facts={"line": place.line})
        if link.are_missing([translations, side_file(translations)]):
            return link, (None, None)
        below = self.translation(Merged.find(translations, place.line), originals)
        source = next((link.facts.get("source") for link in below.made_of), None)
        sides = source, below.facts["text"]
        return below, sides if place.files.source else sides[::-1]

    def translation(self, merged: Merged, originals: Sequence[Path] | None) -> Link:
        """The chain behind a line of translations.

        Args:
            merged: the line.
            originals: the files that were translated; None for those that the folder names.
        """
        folder = folder_of(merged, self.given)
        link = merged.link(line_of(merged.file, merged.line), folder)
        with link.noting():
            if originals is None:
                if folder is None:
                    return link
                originals = originals_of(folder)
            path, number = merged.original(originals, folder)
            below = self._original(path, number)
            link.made_of.append(below)
            text = below.facts.get("source")
            if text is not None and hash_of(text) != merged.record["source"]:
                link.problems.append(f"{below.where}: is not the text that was translated")
        return link

    def _original(self, path: Path, number: int) -> Link:
        link = Link(what="text", where=f"{path}: line {number}", facts={"line": number})
        if link.are_missing([path]):
            return link
        with link.noting():
            if is_dataset(path):
                dataset = Dataset.load(path)
                if number > dataset.num_pairs:
                    raise UserError(f"{path}: has {dataset.num_pairs:,} pairs")
                return self.pair(dataset, number - 1)
            link.facts["source"] = line_of(path, number)
        return link
