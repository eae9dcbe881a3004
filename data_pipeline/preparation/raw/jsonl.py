"""JSON lines: an object a line, with both sides in fields of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from configs import UserError
from configs.process.files.inside import parse_json
from data_pipeline.preparation.raw.fields import MISSING, check_text, find, further_text, side_of
from data_pipeline.preparation.raw.text import LineUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonUnit(LineUnit):
    """One file."""

    def split(self, lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
        """See `LineUnit.split`."""
        rows = [
            self._row(line, f"{self.paths[0]}: line {number}") for number, line in zip(numbers, lines[0], strict=True)
        ]
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in self.fields]

    def _row(self, line: str, where: str) -> list[str]:
        try:
            tree = parse_json(line)
        except ValueError as error:
            raise UserError(f"{where} is no JSON ({error}); allowed is one object a line") from error
        if not isinstance(tree, dict):
            raise UserError(f"{where} is no JSON object; allowed is one object a line")
        row = [_side_at(tree, field, where) for field in (self.source_field, self.target_field)]
        row += [further_text(find(tree, field)) for field in self.extra.values()]
        if "\\" in line:  # only an escape can contain a line feed, a NUL or half of a surrogate pair
            for text, field in zip(row, self.fields, strict=True):
                check_text(text, field, where)
        return row


def _side_at(tree: dict[str, Any], field: str, where: str) -> str:
    value = find(tree, field)
    if value is MISSING:
        raise UserError(f"{where} has no {field}; allowed is a string there (see source_field, target_field)")
    return side_of(value, field, where)
