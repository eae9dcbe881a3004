"""JSON lines: an object a line, with both sides in fields of it."""

from collections.abc import Sequence

from typing_extensions import override

from configs import UserError
from configs.components import RawFiles, component
from configs.corpus import FieldPath
from configs.process.files.inside import parse_json
from data_pipeline.preparation.raw.fields import checked, texts_of
from data_pipeline.preparation.raw.lines import LineFormat, Split


@component("reader", "jsonl")
class JsonLines(LineFormat):
    """A JSON object a line."""

    source_field: FieldPath = "source"
    """Key of the source. `translation.en` is the key of this name or, if there is none, the key `en` within
    `translation`."""
    target_field: FieldPath = "target"
    """Key of the target."""

    @override
    def open(self, files: RawFiles) -> Split:
        fields = [str(self.source_field), str(self.target_field), *files.further]

        def split(lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
            rows = [
                _row(line, fields, f"{files.paths[0]}: line {number}")
                for number, line in zip(numbers, lines[0], strict=True)
            ]
            return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in fields]

        return split


def _row(line: str, fields: list[str], where: str) -> list[str]:
    try:
        tree = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where}: is not JSON ({error}); allowed is one object a line") from error
    row = texts_of(tree, fields, where)
    return [checked(text, where) for text in row] if "\\" in line else row  # only escapes can write what is refused
