"""Relates a plain tree to typed sections: unknown keys, and the components that sections choose."""

import dataclasses
import difflib
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args, get_origin

from configs.components import Choice, Component, choice_of, item_of, kinds, unknown
from configs.process.text import shortened
from configs.reading.scalars import Place
from configs.reading.tree import dotted

_NEAR = 0.75
"""Likeness, by difflib, of a guess: below it, guesses lead astray."""


def section_of(annotation: Any, value: Any) -> Any:
    """The dataclass of a field that is a section, or the component that the value chooses; None for other fields."""
    if (choice := choice_of(annotation)) is not None:
        return choice.section(value)
    if isinstance(annotation, types.UnionType) and isinstance(value, dict):  # an optional section
        annotation = next((part for part in annotation.__args__ if dataclasses.is_dataclass(part)), None)
    return annotation if isinstance(annotation, type) and dataclasses.is_dataclass(annotation) else None


def unknown_keys(tree: Any, type_: Any, where: str) -> Iterator[str]:
    """An error message for each unknown key, which suggests the most similar known key.

    Args:
        tree: plain dictionaries, with expanded components.
        type_: dataclass of the section.
        where: path of the section, such as `model.`; empty for the whole configuration.
    """
    if not isinstance(tree, dict):
        return
    fields = {f.name: f.type for f in dataclasses.fields(type_)}
    for key, value in tree.items():
        if key in fields:
            for inner, item, annotation in _values(key, value, fields[key]):
                if (choice := choice_of(annotation)) is not None and _names_no_kind(choice, item):
                    yield f"{where}{inner}.kind: {unknown(item['kind'], kinds(choice.family))}"
                elif (section := section_of(annotation, item)) is not None:
                    yield from unknown_keys(item, section, f"{where}{inner}.")
            continue
        shown = str(key) if str(key).isprintable() else repr(key)
        shown = shortened(shown)
        hint = (_mark(str(key)) if value is None else None) or _hint(str(key), value, fields, where)
        comma = "; a list is written [a, b]" if value is None and hint.startswith("allowed") else ""
        yield f"{where}{shown}: unknown key; {hint}{comma}"


def _mark(key: str) -> str | None:
    """What to say of a key without a value that a comma or a missing space has made, as in `{lr:1, steps: 8,000}`."""
    if key.isdigit():
        return "a comma in {...} begins a new key: write numbers without commas, such as 8000"
    name, colon, rest = key.partition(":")
    return f"a space is missing behind the colon: {name}: {rest}" if colon and rest and name.isidentifier() else None


def _hint(key: str, value: Any, fields: Collection[str], where: str) -> str:
    """What a user may have meant by an unknown key; all keys of the section where nothing is near enough."""
    elsewhere = [path for path in _elsewhere(key) if path != f"{where}{key}"]  # that is a field of another kind
    elsewhere_said = f"did you mean {' or '.join(elsewhere)}?"
    if elsewhere and not where and not isinstance(value, dict):
        return elsewhere_said
    near = difflib.get_close_matches(key, fields, n=1, cutoff=_NEAR)
    near = near or [name for name in fields if key in name.split("_") or name in key.split("_")]
    if near:
        return f"did you mean {where}{near[0]}?"
    return elsewhere_said if elsewhere else f"allowed: {', '.join(fields)}"


def _elsewhere(name: str) -> list[str]:
    """Fields with this name in any section: the user may have forgotten the section."""
    from configs.reading.meanings import paths_of  # imported late, because it imports the schema, which needs this

    return paths_of(name)[:3]


def without_unknown(tree: Any, type_: Any) -> Any:
    """The tree without unknown keys, so that all other errors can be found at the same time."""
    if not isinstance(tree, dict):
        return tree
    fields = {f.name: f.type for f in dataclasses.fields(type_)}
    known: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in fields:
            continue
        kept = []
        for _, item, annotation in _values(key, value, fields[key]):
            if (choice := choice_of(annotation)) is None or not _names_no_kind(choice, item):
                section = section_of(annotation, item)
                kept.append(item if section is None else without_unknown(item, section))
        if not _has_items(value, fields[key]):
            if kept:
                known[key] = kept[0]
        elif len(kept) == len(value):  # else drop the whole list, so that no item gets another index in messages
            known[key] = _joined(value, kept)
    return known


def _values(key: str, value: Any, annotation: Any) -> Iterator[tuple[str, Any, Any]]:
    """A field's value, or the items of a list or mapping of components or sections: name, value, annotation of each."""
    if not _has_items(value, annotation):
        yield key, value, annotation
        return
    item = get_args(annotation)[-1] if isinstance(value, dict) else item_of(annotation)
    for place, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield dotted((key, place)), one, item


def _has_items(value: Any, annotation: Any) -> bool:
    """Whether a field's value is a list of components or sections, or a mapping of names to sections."""
    if isinstance(value, dict):
        return get_origin(annotation) is dict and dataclasses.is_dataclass(get_args(annotation)[-1])
    return isinstance(value, list) and item_of(annotation) is not None


def _joined(value: Any, items: Sequence[Any]) -> Any:
    """Other items in a list or mapping."""
    return dict(zip(value, items, strict=True)) if isinstance(value, dict) else list(items)


def expanded(tree: Any, type_: Any) -> Any:
    """The tree with every component as a mapping that includes its kind."""
    if not isinstance(tree, dict):
        return tree
    fields = {f.name: f.type for f in dataclasses.fields(type_)}
    expanded = {}
    for key, value in tree.items():
        items = [_expanded_value(item, kind) for _, item, kind in _values(key, value, fields.get(key))]
        expanded[key] = _joined(value, items) if _has_items(value, fields.get(key)) else items[0]
    return expanded


def _expanded_value(value: Any, annotation: Any) -> Any:
    choice = choice_of(annotation)
    value = value if choice is None else choice.expanded(value)
    section = section_of(annotation, value)
    return value if section is None else expanded(value, section)


def _names_no_kind(choice: Choice, value: Any) -> bool:
    """Whether an expanded value names an unknown kind."""
    return isinstance(value, dict) and isinstance(value.get("kind"), str) and choice.section(value) is None


def without_leftovers(tree: Any, type_: Any, leftovers: Collection[Place]) -> Any:
    """The tree without fields that were given for another kind of component, and that the chosen kind does not have.

    Args:
        tree: plain dictionaries, with expanded components.
        type_: dataclass of the section.
        leftovers: see `Tree`.
    """
    if not isinstance(tree, dict):
        return tree
    fields = {f.name: f.type for f in dataclasses.fields(type_)}
    is_chosen = issubclass(type_, Component)
    kept = {}
    for key, value in tree.items():
        if (key,) in leftovers and is_chosen and key not in fields:
            continue
        inner = [place[1:] for place in leftovers if place[0] == key and len(place) > 1]
        kept[key] = _without_leftovers(value, fields.get(key), inner) if inner else value
    return kept


def _without_leftovers(value: Any, annotation: Any, leftovers: Collection[Place]) -> Any:
    item = item_of(annotation)
    if item is not None and isinstance(value, list):
        inner = [[place[1:] for place in leftovers if place[0] == n and len(place) > 1] for n in range(len(value))]
        return [_without_leftovers(one, item, left) for one, left in zip(value, inner, strict=True)]
    section = section_of(annotation, value)
    return value if section is None or not leftovers else without_leftovers(value, section, leftovers)
