"""Shards of webdataset that other programs made: tar files whose members belong to samples, of which each is a pair.

The library groups members into samples. What it leaves out in silence is found here: members without an extension,
samples that lack a side (as where the members of one do not follow one another), and all that is behind the place at
which an archive is broken, was cut, or was joined to another one.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files.inside import parse_json
from data_pipeline.preparation.raw.fields import MISSING, check_text, find, further_text, listed, side_of, splits
from data_pipeline.preparation.raw.lines import MAX_LINE_BYTES, unpacked_blocks
from data_pipeline.preparation.raw.unit import LeftOut, Row, RowUnit

TAR_BLOCK = 512
"""Bytes of a header; of zeros, it is the end of an archive."""
MAX_MEMBER_BYTES = 1 << 34
"""More are a broken header's."""
_METADATA = re.compile(r"__[^/]*__($|/)")
"""Names that the library skips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebdatasetUnit(RowUnit):
    """One shard. A field is a member's extension, such as `en.txt`, or a field in one of JSON, such as `json.en`."""

    @property
    def is_seekable(self) -> bool:
        """Never."""
        return False

    def rows(self, first: int) -> Iterator[Row | LeftOut]:
        """See `RowUnit.rows`."""
        os.environ.setdefault("WDS_SECURE", "1")  # it reads it at import; see writing/shards.py
        from webdataset.tariterators import group_by_keys  # imports torch

        [path] = self.paths
        left_out: list[str] = []
        seen, has_pair = dict[str, None](), False
        try:
            for sample in group_by_keys(self._members(left_out)):
                yield from map(LeftOut, left_out)
                left_out.clear()
                row = self._row(sample)
                yield row
                if not has_pair:
                    has_pair = not isinstance(row, LeftOut)
                    seen.update(dict.fromkeys(name for name in sample if not name.startswith("__")))
        except (tarfile.TarError, ValueError) as error:
            raise UserError(f"{path}: cannot be read by webdataset: {listed([str(error.args[0])])}") from error
        yield from map(LeftOut, left_out)
        if not has_pair:
            raise UserError(
                f"{path}: has no sample with {self.source_field} and {self.target_field} (source_field, "
                f"target_field); its members' extensions: {listed(seen)}"
            )

    def _members(self, left_out: list[str]) -> Iterator[dict[str, Any]]:
        """The members as the library takes them; those that are not needed without their content."""
        from webdataset.tariterators import base_plus_ext

        [path] = self.paths
        stream = _Stream(filter(None, unpacked_blocks(path)))
        wanted = {name.lower() for field in self.fields for name, _ in splits(field)}
        library: Any = tarfile  # whose types ask for more of a stream than it uses
        with library.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                if member.size > MAX_MEMBER_BYTES:  # tarfile would read as many at the end of the file, 10 KB at a time
                    raise UserError(
                        f"{path}: {listed([member.name])} has {member.size:,} bytes; allowed is a whole tar"
                    )
                extension = base_plus_ext(member.name)[1]
                if _METADATA.match(member.name) or not member.isreg():
                    left_out += [] if member.isdir() else ["members that are no files, or metadata by their names"]
                elif extension is None:
                    left_out.append("members without an extension")
                else:
                    is_wanted = extension.lower() in wanted
                    if is_wanted and member.size > MAX_LINE_BYTES:
                        raise UserError(
                            f"{path}: {listed([member.name])} has more than {MAX_LINE_BYTES} bytes; allowed is a text"
                        )
                    file = tar.extractfile(member) if is_wanted else None
                    yield {"fname": member.name, "data": file.read() if file else b"", "__url__": str(path)}
                tar.members = []  # constant memory, as the library does
            stream.check_end(path, tar.offset)

    def _row(self, sample: dict[str, Any]) -> Row | LeftOut:
        where = f"{self.paths[0]}: sample {listed([sample['__key__']])}"
        row = []
        for number, field in enumerate(self.fields):
            value = _value_at(sample, field, where)
            if number < 2 and value is MISSING:
                return LeftOut(f"samples without {field}")
            text = side_of(value, field, where) if number < 2 else further_text(value)
            check_text(text, field, where)
            row.append(text)
        return row


def _value_at(sample: dict[str, Any], field: str, where: str) -> Any:
    """The text of a member, without the end of its line, or a value within its JSON; `MISSING` if there is none."""
    for name, rest in splits(field):
        content = sample.get(name.lower())
        if not isinstance(content, bytes):  # the library's own entries are not
            continue
        try:
            text = content.decode()
            if rest is None:
                return text.removesuffix("\n").removesuffix("\r")
            if (value := find(parse_json(text), rest)) is not MISSING:
                return value
        except ValueError as error:
            kind = "UTF-8" if isinstance(error, UnicodeDecodeError) else "JSON"
            raise UserError(
                f"{where}: {name} is no {kind}; allowed is text in UTF-8, or JSON where a field is in it"
            ) from error
    return MISSING


class _Stream:
    """What `tarfile` reads, and whether there is more of it than it takes for the archive."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._block = b""
        self._begin = 0
        """Of what is left of the block."""
        self._size = 0
        self._end_of_data = 0
        """Behind the last byte that is not zero."""

    def read(self, size: int) -> bytes:
        """Some of the next bytes; none at the end."""
        if self._begin == len(self._block):
            self._block, self._begin = next(self._blocks, b""), 0
        data = self._block[self._begin : self._begin + size]
        self._begin += len(data)
        if end := len(data.rstrip(b"\0")):
            self._end_of_data = self._size + end
        self._size += len(data)
        return data

    def check_end(self, path: Path, offset: int) -> None:
        """Refuse an archive that does not end where `tarfile` ended, which takes whatever is there for its end.

        Raises:
            UserError: it is cut, or there is more.
        """
        while self.read(tarfile.RECORDSIZE):
            pass
        if self._end_of_data > offset:
            raise UserError(
                f"{path}: is broken at byte {offset}, or another archive was joined to it there, which webdataset "
                "leaves out; allowed is one whole tar file"
            )
        if self._size < offset + TAR_BLOCK:
            raise UserError(f"{path}: is cut short: the end of the archive is missing")
