"""Merges YAML files and `section.key=value` settings into one tree, before its types are checked."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.files.inside import read_bytes
from configs.process.text import shortened
from configs.reading.variables import Place, check_forms, dotted, leaves, of_saved, resolved
from configs.reading.yaml12 import read_yaml

_KEY = re.compile(r"[^.\[\]]+(?:\[[^.\[\]]+\]|\.[^.\[\]]+)*")
_WORD = re.compile(r"[^.\[\]]+")


@dataclass(slots=True)
class Layers:
    """The values given so far."""

    values: dict[str, Any] = field(default_factory=dict)
    leftovers: set[Place] = field(default_factory=set)
    """Fields of a component whose kind a higher layer has changed; those that the new kind lacks are dropped."""

    @classmethod
    def read(cls, path: Path, *, what: str, is_saved: bool = False) -> "Layers":
        """Read a YAML file.

        Args:
            path: path of the file.
            what: beginning of error messages.
            is_saved: zeromt wrote it, perhaps a stranger's: `${...}` is plain text.

        Raises:
            UserError: the file cannot be read, is not a mapping, or has a `${...}` that is not allowed.
        """
        try:
            content = read_bytes(path) if is_saved else path.read_bytes()
        except OSError as error:
            raise UserError(f"{what}: cannot be read: {error.strerror}") from error
        tree = read_yaml(content, what)
        if not isinstance(tree, dict | None):
            raise UserError(f"{what}: is not a mapping; write lines such as `key: value`")
        tree = of_saved(tree or {}) if is_saved else tree or {}
        check_forms(tree, what)
        return cls(tree)

    def put(self, item: str, *, what: str = "override") -> None:
        """Apply one setting `section.key=value`. The value is YAML; `list[0]` and `list.0` are an item of a list, and
        `section={}` is a section without what was given in it before.

        Raises:
            UserError: the text is not such a setting, or its key is an item beyond the end of a list.
        """
        key, separator, text = item.partition("=")
        what = f"{what}: {shortened(item)!r}"
        if not separator or not _KEY.fullmatch(key):
            raise UserError(f"{what}; allowed is section.key=value, without spaces, behind one YAML file")
        try:
            value = "~" if text.strip() == "~" else read_yaml(text, what)  # the home folder; null may be left empty
        except UserError as error:
            raise UserError(f"{what}: the value is not valid YAML; if it is text, put it in quotes") from error
        place = tuple(_WORD.findall(key))
        check_forms(value, what, place)
        given = {(*place, *inner) for inner in _places(value)}
        self.leftovers = {one for one in self.leftovers if one not in given}
        if value == {}:
            self.put_values(_nested(self.values, place, None, what, set()))  # or it would be merged with what is there
        self.put_values(_nested(self.values, place, value, what, self.leftovers))

    def put_values(self, layer: dict[str, Any]) -> None:
        """Merge nested dictionaries into the values."""
        self.values = _merged(self.values, layer, self.leftovers)

    def put_below(self, lower: dict[str, Any]) -> None:
        """Add the values of a lower layer for keys that are not given here."""
        self.values = _merged(lower, self.values, self.leftovers)

    def resolved(self, *, what: str) -> dict[str, Any]:
        """The values with all `${...}` replaced.

        Raises:
            UserError: one cannot be replaced, or a value is not valid Unicode.
        """
        tree: dict[str, Any] = resolved(self.values, self.values, what)
        for place, value in leaves(tree):
            if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
                raise UserError(f"{what}: {dotted(place)}: {value!r} is not valid Unicode; allowed is UTF-8")
        return tree


def _section(value: Any) -> Any:
    """A kind alone, `schedule: cosine`, as a section; others as they are."""
    return {"kind": value} if isinstance(value, str) else value


def _merged(lower: Any, higher: Any, leftovers: set[Place], place: Place = ()) -> Any:
    """Two layers as one: sections are merged, all other values of the higher one replace those of the lower one.

    A part of the model that is a kind alone (`model.norm: rms`) leaves the fields that the lower layer has.
    """
    if place[:-1] == ("model",) and isinstance(lower, dict):
        higher = _section(higher)
    lower = _section(lower) if isinstance(higher, dict) else lower
    if not (isinstance(lower, dict) and isinstance(higher, dict)):
        return higher
    if higher.get("kind", lower.get("kind")) != lower.get("kind"):
        leftovers |= {(*place, key) for key in lower if key not in higher}
    both = {key: _merged(lower[key], higher[key], leftovers, (*place, key)) for key in higher if key in lower}
    return lower | higher | both


def _nested(tree: Any, place: Place, value: Any, what: str, leftovers: set[Place], above: Place = ()) -> Any:
    """A value in nested dictionaries at a place. A list on the way is included as a whole.

    Args:
        tree: the present value, above the place.
        place: of the value, in it.
        value: to set.
        what: the beginning of error messages.
        leftovers: see `Layers`; fields of an item whose kind changes are added.
        above: the place of `tree`.

    Raises:
        UserError: the place is beyond the end of a list.
    """
    if not place:
        return value
    step, rest, here = place[0], place[1:], (*above, place[0])
    if tree is None and step.isdecimal():
        tree = []
    if not isinstance(tree, list):
        inner = tree.get(step) if isinstance(tree, dict) else None
        return {step: _nested(inner, rest, value, what, leftovers, here)}
    if not step.isdecimal() or int(step) > len(tree):
        raise UserError(
            f"{what}: {dotted(above)} has {len(tree)} items; use an index from 0 to {len(tree)}, which adds one"
        )
    number = int(step)
    old = tree[number] if number < len(tree) else None
    new = _merged(_section(old), _nested(old, rest, value, what, leftovers, here), leftovers, here)
    return [*tree[:number], new, *tree[number + 1 :]]


def _places(tree: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all sections and leaves."""
    yield place
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from _places(value, (*place, str(key)))
