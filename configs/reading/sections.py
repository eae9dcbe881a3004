"""Relates a plain tree to typed sections: the components that it chooses, and keys that sections do not have."""

import dataclasses
import difflib
import types
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from configs.components import Component, choice_of, item_of, kinds, unknown
from configs.process.text import shortened
from configs.reading.variables import Place, dotted

_NEAR = 0.75
"""Likeness, by difflib, of a guess: below it, guesses lead astray."""
_NOTHING = object()


@dataclass(slots=True)
class Fitting:
    """Makes of a tree what pydantic takes: each component with its kind, and without unknown keys."""

    leftovers: Collection[Place] = ()
    """Fields that may be dropped where the chosen kind does not have them; see `Layers`."""
    problems: list[str] = field(default_factory=list)
    """A message for each unknown key and kind."""

    def fitted(self, value: Any, annotation: Any, place: Place = ()) -> Any:
        """A value as its field takes it. A list with an unknown kind is left out as a whole, so that no item moves.

        Args:
            value: plain.
            annotation: the type of its field, or the section.
            place: of the value.
        """
        made = self._fitted(value, annotation, place)
        return {} if made is _NOTHING else made

    def _fitted(self, value: Any, annotation: Any, place: Place) -> Any:
        item = _item(annotation, value)
        if item is not None:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            made = {key: self._fitted(one, item, (*place, str(key))) for key, one in items}
            if _NOTHING in made.values():
                return _NOTHING
            return made if isinstance(value, dict) else list(made.values())
        section: Any
        if (choice := choice_of(annotation)) is not None:
            value = choice.expanded(value)
            section = choice.section(value)
            if section is None and isinstance(value, dict) and isinstance(value.get("kind"), str):
                self.problems.append(f"{dotted(place)}.kind: {unknown(value['kind'], kinds(choice.family))}")
                return _NOTHING
        else:
            options = get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
            section = next((one for one in options if dataclasses.is_dataclass(one)), None)
        return value if section is None or not isinstance(value, dict) else self._section(value, section, place)

    def _section(self, tree: dict[str, Any], type_: Any, place: Place) -> dict[str, Any]:
        fields = {f.name: f.type for f in dataclasses.fields(type_)}
        made = {}
        for key, value in tree.items():
            here = (*place, key)
            if key in fields:
                made[key] = self._fitted(value, fields[key], here)
            elif not (here in self.leftovers and issubclass(type_, Component)):
                self.problems.append(_unknown_key(key, value, fields, place))
        return {key: value for key, value in made.items() if value is not _NOTHING}


def _item(annotation: Any, value: Any) -> Any:
    """The type of the items, where the value is a list of components or sections, or a mapping of names to sections."""
    if isinstance(value, dict) and get_origin(annotation) is dict:
        item = get_args(annotation)[-1]
        return item if dataclasses.is_dataclass(item) else None
    return item_of(annotation) if isinstance(value, list) else None


def _unknown_key(key: str, value: Any, fields: Collection[str], place: Place) -> str:
    """The message for an unknown key: what a user may have meant, or all keys of the section."""
    shown = dotted((*place, shortened(key if key.isprintable() else repr(key))))
    name, colon, rest = key.partition(":")
    if value is None and key.isdigit():
        hint = "a comma in {...} begins a new key: write numbers without commas, such as 8000"
    elif value is None and colon and rest and name.isidentifier():
        hint = f"a space is missing behind the colon: {name}: {rest}"
    else:
        hint = _meant(key, fields, place)
        hint += "; a list is written [a, b]" if value is None and hint.startswith("allowed") else ""
    return f"{shown}: unknown key; {hint}"


def _meant(key: str, fields: Collection[str], place: Place) -> str:
    from configs.reading.meanings import paths_of  # imported late, because it imports the schema, which needs this

    elsewhere = [path for path in paths_of(key)[:3] if path != dotted((*place, key))]  # a field of another kind
    did_you_mean = f"did you mean {' or '.join(elsewhere)}?"
    if elsewhere and not place:
        return did_you_mean
    near = difflib.get_close_matches(key, fields, n=1, cutoff=_NEAR)
    near = near or [name for name in fields if key in name.split("_") or name in key.split("_")]
    if near:
        return f"did you mean {dotted((*place, near[0]))}?"
    return did_you_mean if elsewhere else f"allowed: {', '.join(fields)}"
