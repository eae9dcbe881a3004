"""TMX, the exchange format of translation memories: XML with units (`tu`) of translations (`tuv`) of a segment."""

import codecs
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from typing_extensions import override

from configs import UserError
from configs.components import LeftOut, RawFiles, Reader, Row, component
from configs.languages import same_language
from data_pipeline.preparation.lines import MAX_NAMES, listed, unpacked_blocks

MAX_UNIT_CHARACTERS = 4 << 20
"""Most characters of a file between the ends of two units."""
CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Elements within a segment whose content is another program's markup, and no text."""
Unit = tuple[list[tuple[str, str]], dict[str, str]]
"""A `tu`: codes of languages with texts, and texts of `prop` by type."""
NO_XML = LeftOut("units that are no XML")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
PLACEHOLDER = "\ufffc"
"""What replaces a `ph`: Unicode's character for an object that is not text."""
_BETWEEN_WORDS = re.compile(rf"(?<=\w){PLACEHOLDER}+(?=\w)")
_LINE_END = re.compile(r"[ \t]*[\r\n]\s*")
_BEGIN = re.compile(r"<tu(?=[\s>])")
_END = re.compile(r"</tu\s*>")
_ENCODING = re.compile(rb"\s*<\?xml[^>]*encoding\s*=\s*[\"']([\w.-]+)")


@component("reader", "tmx")
class Tmx(Reader):
    """TMX: the units (`tu`) that have both languages, by any of their codes. Scores are types of `prop`."""

    source_field: str | None = None
    """Code of the source's language in the file; by default `prepare.source_language`."""
    target_field: str | None = None
    """Code of the target's language in the file; by default `prepare.target_language`."""

    @override
    def rows(self, files: RawFiles) -> Iterator[Row | LeftOut]:
        [path] = files.paths
        wanted = self.source_field or files.source_language, self.target_field or files.target_language
        has_pair, seen = False, set[str]()
        for unit in read_units(path):
            if unit is None:
                yield NO_XML
                continue
            translations, properties = unit
            codes = tuple(code for code, _ in translations)
            places = [_places(language, codes) for language in wanted]
            if not all(places):
                seen.update(codes if len(seen) < MAX_NAMES else ())
                yield LeftOut(f"units without {wanted[0] if not places[0] else wanted[1]}")
                continue
            for language, [_, *others] in zip(wanted, places, strict=True):
                yield from (LeftOut(f"further translations of a unit into {language}") for _ in others)
            has_pair = True
            sides = [translations[first][1] for first, *_ in places]
            yield [*sides, *(properties.get(field, "") for field in files.further)]
        if not has_pair:
            raise UserError(
                f"{path}: has no unit with {wanted[0]} and {wanted[1]}; its languages: {listed(sorted(seen))} "
                "(prepare.source_language, prepare.target_language; or the file's own as source_field, target_field)"
            )


@functools.lru_cache(maxsize=4096)
def _places(language: str, codes: tuple[str, ...]) -> list[int]:
    """The numbers of the codes that mean a language."""
    same = same_language(language, codes)
    return [number for number, code in enumerate(codes) if code in same]


def read_units(path: Path) -> Iterator[Unit | None]:
    """The units of a file with their translations, in constant memory; None for one that is not XML.

    Each unit is parsed by itself, so that a bad character spoils no other, and knows no entities of the file's own.

    Raises:
        UserError: during reading, if the file is cut short, defines entities, or is not TMX.
    """
    rest, is_first = "", True
    for text in _decoded(path):
        *whole, rest = _END.split(rest + text)
        if is_first and whole:
            is_first = False
            if re.search(r"<!DOCTYPE[^>]*\[", _BEGIN.split(whole[0])[0]):
                raise UserError(f"{path}: has a DTD within, whose entities are not read; remove <!DOCTYPE ... [...]>")
        for piece in whole:
            yield _unit_of(f"<tu{_BEGIN.split(piece)[-1]}</tu>")
        if len(rest) > MAX_UNIT_CHARACTERS:
            raise UserError(f"{path}: has no end of a unit in {MAX_UNIT_CHARACTERS >> 20} MiB; allowed is TMX")
    if not re.search(r"</tmx\s*>", rest):
        raise UserError(f"{path}: is cut short, or no TMX: it does not end with </tmx>")


def _decoded(path: Path) -> Iterator[str]:
    """The text of a file, in the encoding that its beginning names; U+FFFD for what is not in it."""
    blocks = unpacked_blocks(path)
    head = next(blocks, b"")
    named = _ENCODING.match(head)
    encoding = named[1].decode() if named else "utf-8"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        "".encode(encoding)  # refuses codecs that are not of text
        decoder = codecs.getincrementaldecoder(encoding)("replace")
    except LookupError as error:
        raise UserError(f"{path}: cannot be read: {error}; convert it to UTF-8") from error
    yield decoder.decode(head)
    yield from map(decoder.decode, blocks)


def _unit_of(text: str) -> Unit | None:
    if "\ufffd" in text:
        return None
    try:
        element = ElementTree.fromstring(text)
        translations = [
            (one.get(_LANGUAGE) or one.get("lang") or "", _on_one_line("".join(_texts(segment))))
            for one in element.iter("tuv")
            for segment in one.iter("seg")
        ]
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    properties = [(one.get("type", ""), _on_one_line("".join(one.itertext()))) for one in element.iter("prop")]
    return translations, dict(reversed(properties))  # of one type, the first


def _texts(element: ElementTree.Element) -> Iterator[str]:
    """The text within an element, but that of other programs' markup."""
    yield element.text or ""
    for inner in element:
        if inner.tag not in CODES:
            yield from _texts(inner)
        elif inner.tag == "ph":
            yield PLACEHOLDER
        yield inner.tail or ""


def _on_one_line(text: str) -> str:
    """The text without the line ends, and the indentation, that only make a file easy to read.

    A placeholder between two words, such as a line break of another program, is a space.
    """
    text = _BETWEEN_WORDS.sub(" ", text).replace(PLACEHOLDER, "")
    return _LINE_END.sub(" ", text).strip(" \t") if "\n" in text or "\r" in text else text
