"""TMX, the exchange format of translation memories: XML with units (`tu`) of translations (`tuv`) of a segment.

A file is parsed as it is decompressed, in constant memory, by expat through `xml.etree`, which fetches nothing that a
file names and bounds what its entities expand to.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from xml.etree.ElementTree import ParseError, XMLParser

from configs import CorpusFiles, UserError
from configs.languages import same_language
from data_pipeline.preparation.raw.fields import MAX_NAMES, listed
from data_pipeline.preparation.raw.lines import unpacked_blocks
from data_pipeline.preparation.raw.unit import Languages, LeftOut, Row, RowUnit

MAX_UNIT_BYTES = 64 << 20
"""Most bytes of a file between the ends of two units."""
CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Elements within a segment whose content is another program's markup, and no text."""
FEED_BYTES = 1 << 16
"""Of a file that are parsed at a time: their units are in memory."""
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_LINE_END = re.compile(r"[ \t]*[\r\n]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TmxUnit(RowUnit):
    """One file. The fields of its sides are codes of languages, those of further texts are types of `prop`."""

    keeps_markup: bool

    @classmethod
    def of(cls, files: CorpusFiles, paths: tuple[Path, ...], extra: Mapping[str, str], languages: Languages) -> Self:
        """See `Unit.of`."""
        defaults = dict(zip(("source", "target"), languages, strict=True))  # of one side alone, both are `source`
        source, target = (defaults.get(str(field), str(field)) for field in (files.source_field, files.target_field))
        keeps_markup = files.inline_markup == "keep"
        return cls(paths=paths, source_field=source, target_field=target, extra=extra, keeps_markup=keeps_markup)

    @property
    def is_seekable(self) -> bool:
        """Never."""
        return False

    def rows(self, first: int) -> Iterator[Row | LeftOut]:
        """See `RowUnit.rows`."""
        wanted = self.source_field, self.target_field
        has_pair, seen = False, set[str]()
        for unit in read_units(self.paths[0], keeps_markup=self.keeps_markup):
            codes = tuple(code for code, _ in unit.translations)
            places = [_places(language, codes) for language in wanted]
            if not all(places):
                seen.update(codes if len(seen) < MAX_NAMES else ())
                yield LeftOut(f"units without {wanted[0] if not places[0] else wanted[1]}")
                continue
            for language, [_, *others] in zip(wanted, places, strict=True):
                yield from (LeftOut(f"further translations of a unit into {language}") for _ in others)
            has_pair = True
            sides = [unit.translations[first][1] for first, *_ in places]
            yield (*sides, *(unit.properties.get(field, "") for field in self.extra.values()))
        if not has_pair:
            raise UserError(
                f"{self.paths[0]}: has no unit with {wanted[0]} and {wanted[1]}; its languages: {listed(sorted(seen))} "
                "(prepare.source_language, prepare.target_language; or the file's own as source_field, target_field)"
            )


@functools.lru_cache(maxsize=4096)
def _places(language: str, codes: tuple[str, ...]) -> list[int]:
    """The numbers of the codes that mean a language."""
    same = same_language(language, codes)
    return [number for number, code in enumerate(codes) if code in same]


@dataclass(slots=True)
class _TranslationUnit:
    translations: list[tuple[str, str]] = field(default_factory=list)
    """Code of the language, and text."""
    properties: dict[str, str] = field(default_factory=dict)
    """Texts of `prop` by type."""


class _Handler:
    """Collects units from what the parser finds."""

    def __init__(self, *, keeps_markup: bool) -> None:
        self.units: list[_TranslationUnit] = []
        """Finished ones."""
        self._keeps_markup = keeps_markup
        self._unit = _TranslationUnit()
        self._code = ""
        """Of the current translation."""
        self._property = ""
        """Type of the current `prop`."""
        self._text: list[str] | None = None
        """Of the current segment or property."""
        self._inline: list[int] = []
        """Where, in `_text`, each element began that is open within the segment."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        tag = tag.rpartition("}")[2]
        if self._text is not None:
            self._inline.append(len(self._text))
            if self._keeps_markup and tag not in CODES:
                self._text.append(f"<{tag}>")
        elif tag == "tu":
            self._unit = _TranslationUnit()
        elif tag == "tuv":
            self._code = attributes.get(_LANGUAGE) or attributes.get("lang") or ""
        elif tag in ("seg", "prop"):
            self._text, self._property = [], attributes.get("type", "")

    def data(self, text: str) -> None:
        """Text, perhaps a part of it."""
        if self._text is not None:
            self._text.append(text)

    def end(self, tag: str) -> None:
        """An element ends."""
        tag = tag.rpartition("}")[2]
        if self._text is None:
            if tag == "tu":
                self.units.append(self._unit)
        elif self._inline:
            self._end_inline(tag, self._text, self._inline.pop())
        else:
            text, self._text = _on_one_line("".join(self._text)), None
            if tag == "seg":
                self._unit.translations.append((self._code, text))
            else:
                self._unit.properties.setdefault(self._property, text)

    def _end_inline(self, tag: str, text: list[str], begin: int) -> None:
        if not self._keeps_markup:
            if tag in CODES:
                del text[begin:]
        elif len(text) == begin + (tag not in CODES):
            text[begin:] = [f"<{tag}/>"]
        elif tag not in CODES:
            text.append(f"</{tag}>")


def read_units(path: Path, *, keeps_markup: bool) -> Iterator[_TranslationUnit]:
    """The units of a file with their translations, in constant memory; raises `UserError` if it is no TMX."""
    handler, size = _Handler(keeps_markup=keeps_markup), 0
    parser = XMLParser(target=handler)
    try:
        for block in unpacked_blocks(path):
            for begin in range(0, len(block), FEED_BYTES):
                parser.feed(block[begin : begin + FEED_BYTES])
                size = 0 if handler.units else size + FEED_BYTES
                if size > MAX_UNIT_BYTES:
                    raise UserError(f"{path}: has no end of a unit in {MAX_UNIT_BYTES >> 20} MiB; allowed is TMX")
                yield from handler.units
                handler.units.clear()
        parser.close()
    except ParseError as error:
        reason, line = str(error).partition(":")[0], error.position[0]
        raise UserError(f"{path}: line {line} is no XML: {reason}; allowed is TMX") from error
    except (ValueError, LookupError) as error:  # of its encoding
        raise UserError(f"{path}: cannot be read: {error}; convert it to UTF-8") from error
    yield from handler.units


def _on_one_line(text: str) -> str:
    """The text without the line ends, and the indentation, that only make a file easy to read."""
    return _LINE_END.sub(" ", text).strip(" \t") if "\n" in text or "\r" in text else text
