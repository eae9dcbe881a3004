"""The sets of WMT and IWSLT: SGML with a side a file, or XML with source and references in one.

Segments are paired by the ids of documents and segments. The SGML of such sets is no XML (`AT&T`, attributes without
quotation marks), so both are read as HTML is, which takes anything.
"""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path

from configs import UserError
from data_pipeline.preparation.raw.compression import COMPRESSED
from data_pipeline.preparation.raw.fields import listed
from data_pipeline.preparation.raw.lines import unpacked_blocks
from data_pipeline.preparation.raw.unit import LeftOut, Row, RowUnit

SUFFIXES = frozenset({".sgm", ".sgml", ".xml"})
MAX_DOCUMENT_BYTES = 16 << 20
_ROLES = frozenset({"src", "ref", "hyp"})
"""Elements of XML within a document: a side of it, or a system's output."""
_LINE_END = re.compile(r"\s*[\r\n]\s*")


def is_wmt(path: Path) -> bool:
    """Whether a file's name says that it is such a set."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower() in SUFFIXES


@dataclass(frozen=True, slots=True, kw_only=True)
class WmtUnit(RowUnit):
    """A file of sources and one of references, the same file in XML. Further fields are attributes of documents."""

    @property
    def is_seekable(self) -> bool:
        """Never."""
        return False

    def rows(self, first: int) -> Iterator[Row | LeftOut]:
        """See `RowUnit.rows`."""
        documents = [_read_documents(path, role) for path, role in zip(self.paths, ("src", "ref"), strict=True)]
        for source, reference in zip_longest(*documents):
            if source is None or reference is None or source.name != reference.name:
                names = [f"document {listed([one.name])}" if one else "no document" for one in (source, reference)]
                raise UserError(
                    f"{self.paths[0]}: {names[0]} beside {names[1]} of {self.paths[1]}; both must have the same"
                )
            further = [source.further(name) for name in self.extra.values()]
            for number, text in source.segments.items():
                if number in reference.segments:
                    yield (text, reference.segments[number], *further)
                else:
                    yield LeftOut("segments without a reference")
            unread = len(reference.segments.keys() - source.segments.keys())
            yield from [LeftOut("segments without a source")] * unread
            yield from [LeftOut("segments of further references")] * reference.num_further


@dataclass(slots=True)
class _Document:
    attributes: Mapping[str, str | None]
    segments: dict[str, str] = field(default_factory=dict)
    """Of the wanted side, by id."""
    num_further: int = 0
    """Number of segments of other references than the first."""

    @property
    def name(self) -> str:
        return self.attributes.get("docid") or self.attributes.get("id") or ""

    def further(self, attribute: str) -> str:
        """An attribute; the id by either of its names."""
        return self.name if attribute in ("docid", "id") else self.attributes.get(attribute) or ""


class _Handler(HTMLParser):
    """Collects documents. `role` is the wanted one of `_ROLES`; in SGML, which has none, every segment is wanted."""

    def __init__(self, path: Path, role: str) -> None:
        super().__init__()
        self.documents: list[_Document] = []
        """Finished ones."""
        self.root = ""
        self.has_ended = False
        """Whether the root element has."""
        self._path, self._role = path, role
        self._document = _Document({})
        self._roles: list[str] = []
        """Those in the document so far, the current one last."""
        self._segment: str | None = None
        """Id of the current one."""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """An element begins; names are in lower case."""
        self.root = self.root or tag
        if tag == "doc":
            self._document, self._roles = _Document(dict(attrs)), []
        elif tag in _ROLES:
            self._roles.append(tag)
        elif tag == "seg":
            self._segment, self._text = dict(attrs).get("id") or f"{len(self._document.segments) + 1}", []

    def handle_data(self, data: str) -> None:
        """Text, perhaps a part of it."""
        self._text.append(data)

    def unknown_decl(self, data: str) -> None:
        """Of `<![CDATA[text]]>`, what is behind `<![`."""
        if data.startswith("CDATA["):
            self._text.append(data.removeprefix("CDATA["))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        if tag == "seg" and self._segment is not None:
            role = self._roles[-1] if self._roles else self._role
            if role == self._role and self._roles.count(role) < 2:
                self._add(self._segment, _LINE_END.sub(" ", "".join(self._text)).strip())
            elif role == self._role:
                self._document.num_further += 1
            self._segment = None
        elif tag == "doc":
            self.documents.append(self._document)
        self.has_ended = self.has_ended or tag == self.root

    def _add(self, number: str, text: str) -> None:
        if number in self._document.segments:
            line, document = self.getpos()[0], listed([self._document.name])
            raise UserError(f"{self._path}: line {line}: segment {listed([number])} of {document} is there twice")
        self._document.segments[number] = text


def _read_documents(path: Path, role: str) -> Iterator[_Document]:
    """The documents of a file, with the segments of one role."""
    handler, decoder, size = _Handler(path, role), codecs.getincrementaldecoder("utf-8-sig")(), 0
    for block in unpacked_blocks(path):
        try:
            handler.feed(decoder.decode(block))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: line {handler.getpos()[0]} or later is not UTF-8; allowed is UTF-8 text"
            ) from error
        except AssertionError as error:  # of the library, for declarations that it does not know
            raise UserError(f"{path}: line {handler.getpos()[0]} is broken: {error}; allowed is WMT's SGML") from error
        size = 0 if handler.documents else size + len(block)
        if size > MAX_DOCUMENT_BYTES:
            raise UserError(
                f"{path}: has no end of a document in {MAX_DOCUMENT_BYTES >> 20} MiB; allowed is WMT's SGML"
            )
        yield from handler.documents
        handler.documents.clear()
    if not handler.has_ended:
        what = (
            f"is cut short: it has no </{listed([handler.root])}>"
            if handler.root
            else "has no element; allowed is WMT's SGML"
        )
        raise UserError(f"{path}: {what}")
