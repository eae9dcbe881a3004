"""What a pair of a dataset was made of, held against the raw text that it comes from."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs import CleaningSection, CorpusFiles, UserError
from configs.components import ChangingFilter, Corpus, DroppingFilter, Filter, make
from configs.load import parse_tree
from configs.process.files import exists
from data_pipeline.preparation.cleaning import built_in
from data_pipeline.preparation.raw.corpus import unit_of, unit_paths
from data_pipeline.preparation.raw.unit import RowUnit, Span, Unit
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import joined, unit_and_line
from zeromt.tracing.links import Link

LINES_AT_ONCE = 1 << 14
Sides = tuple[str | None, str | None]
"""Raw text of source and target; None where it was not found."""


def link_of(dataset: Dataset, pair: int) -> Link:
    """A pair, and what its dataset says of it."""
    index, tokenizer = dataset.index, dataset.tokenizer
    source, target = dataset.pieces(pair)
    texts = {"source": tokenizer.decode_source([source])[0]}
    if not dataset.is_monolingual:
        texts["target"] = tokenizer.decode_target([target])[0]
    settings = index.recipe.get("settings", {})
    defaults = dataclasses.asdict(CleaningSection())
    cleaning = {name: v for name, v in settings.get("cleaning", {}).items() if name in defaults and v != defaults[name]}
    return Link(
        what="pair",
        where=f"{dataset.location}: pair {pair}",
        facts={
            **texts,
            **_said(dataset, pair),
            "dataset": dataset.fingerprint,
            "cleaning": cleaning,
            "filters": settings.get("filters", []),
            "passed": ", ".join(index.dropped),
            "scores": dict(_scores(dataset, pair)),
            "made_with": index.made_with,
        },
    )


def _said(dataset: Dataset, pair: int) -> dict[str, str]:
    """Licence and attribution of a pair; of one whose file is not known those of all files that it may be from."""
    sources, places = dataset.index.sources or [], dataset.index.places
    if places is not None and sources:
        sources = [sources[unit_and_line(int(dataset.places(slice(pair, pair + 1))[0]))[0]]]
    said = {name: joined(getattr(entry, name) for entry in sources) for name in ("licence", "attribution")}
    return {name: text for name, text in said.items() if text is not None}


def _scores(dataset: Dataset, pair: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in dataset.scores():
        value = float(dataset.score(name)[pair])
        yield name, {"value": None if np.isnan(value) else value, "made_by": dataset.score_entry(name).made_by}


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Place:
    """Where a pair was in the raw corpus."""

    files: CorpusFiles
    """The corpus."""
    paths: tuple[Path, ...]
    """Of its unit, where they are now; or were, of those that are gone. Translations without their side file."""
    line: int
    """In the unit, from 1."""

    @classmethod
    def of(cls, dataset: Dataset, pair: int) -> "Place":
        """The place of a pair.

        Raises:
            UserError: it was not recorded.
        """
        if (places := dataset.index.places) is None:
            raise UserError("where it comes from was not recorded; prepare with record_places=true")
        unit, line = unit_and_line(int(dataset.places(slice(pair, pair + 1))[0]))
        origin = dataset.origin()
        try:
            names = places.units[unit]
            if origin is None:
                raise UserError(f"line {line} of {', '.join(names)}, in folders that were not recorded; prepare again")
            files: CorpusFiles = parse_tree(origin["train"], CorpusFiles)
            roots = (origin["root"], str(Path(origin["folder"], origin["root"])))
            now, then = (unit_paths(files, root)[unit] for root in roots)
            if files.translations is not None:  # their side file has no name there
                now, then = now[:-1], then[:-1]
            paths = tuple(_found(*one) for one in zip(names, now, then, strict=True))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(f"{dataset.location}: its origin.json is corrupt") from error
        return cls(files=files, paths=paths, line=line)

    def text(self, dataset: Dataset) -> tuple[Link, Sides]:
        """The raw line, of a corpus that is no translation."""
        names = list(dict.fromkeys(map(str, self.paths)))
        link = Link(what="text", where=f"{', '.join(names)}: line {self.line}", facts={"line": self.line})
        if link.are_missing(self.paths):
            return link, (None, None)
        languages = dataset.source_language, dataset.target_language
        with link.noting():
            source, target = _raw_line(unit_of(self.files, self.paths, languages=languages), self.line)
            link.facts |= {"source": source} | ({} if dataset.is_monolingual else {"target": target})
            return link, (source, target)
        return link, (None, None)


def _found(name: str, now: Path, then: Path) -> Path:
    """The path of a file, whose name only the dataset knows where a folder was given."""
    now, then = (path if path.name == name else path.with_name(name) for path in (now, then))
    return now if exists(now) else then


def _raw_line(unit: Unit, line: int) -> tuple[str, str]:
    if isinstance(unit, RowUnit) and unit.is_seekable:
        return unit.read(Span(unit=0, number=0, first_line=line, pairs=1)).rows(np.array([0]))[0]
    for span, raw in unit.stream(0, 0, LINES_AT_ONCE):
        if span.first_line <= line < span.first_line + span.pairs:
            return raw.rows(np.array([line - span.first_line]))[0]
    raise UserError(f"{unit.paths[0]}: ends before line {line}, which it had when it was prepared")


def compare(dataset: Dataset, pair: int, sides: Sides) -> Iterator[str]:
    """In what the raw text, cleaned as then, is not the pair: a text for each side."""
    changes, unknown = _changes(dataset)
    cleaned = [side or "" for side in sides]
    with_filters = [cleaned[0]], [cleaned[1]]
    for change in changes:
        sources, targets = change(*with_filters)
        with_filters = list(sources), list(targets)
    pieces = dataset.pieces(pair)
    for name, number in (("source", 0), ("target", 1))[: 1 if dataset.is_monolingual else 2]:
        if sides[number] is not None and encoded(dataset, number, with_filters[number][0]) != pieces[number]:
            after = f", nor can what {', '.join(unknown)} made of it be told" if unknown else ""
            yield f"the {name} is not what stands there{after}"


def encoded(dataset: Dataset, side: int, line: str) -> list[int]:
    """The pieces that preparation makes of a side's line (0: source), with its tag: see `encode.SpanEncoder`."""
    index, tokenizer = dataset.index, dataset.tokenizer
    if side == 0:
        tag = tokenizer.tags_of(index.source_language)[0] if dataset.tag_both_sides else index.target_tag
        return tokenizer.encode_source([f"{tag} {line}" if tag else line])[0]
    first = [tokenizer.tag_id(tokenizer.tags_of(index.target_language)[0])] if dataset.tag_both_sides else []
    return [*first, *tokenizer.encode_target([line])[0]]


def _changes(dataset: Dataset) -> tuple[list[Any], list[str]]:
    """What changed the text, as functions; and the kinds of filters of which it is not known whether they did."""
    settings: Mapping[str, Any] = dataset.index.recipe.get("settings", {})
    fields = {name: settings.get("cleaning", {}).get(name) for name in ("normalization", "control_characters")}
    section = CleaningSection(**{name: value for name, value in fields.items() if value is not None})
    filters: list[Filter] = [filter_ for _, filter_ in built_in(section)]
    unknown = []
    for tree in settings.get("filters", []):
        try:
            filters.append(make("filter", **tree))
        except (UserError, TypeError):
            unknown.append(str(tree.get("kind")))
    corpus = Corpus(source_language=dataset.source_language, target_language=dataset.target_language)
    changing = [one.open(corpus, "prepare.filters") for one in filters if isinstance(one, ChangingFilter)]
    judging = [one.kind for one in filters if not isinstance(one, ChangingFilter | DroppingFilter)]
    return changing, [*unknown, *judging]
