"""Documents that together hold every key of a configuration, and every word that stands for a choice.

A document takes one kind of each family. It is grown key by key, by values that are not the defaults if possible: what
the configuration refuses beside the rest is left out, as is what an earlier document holds.
"""

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from configs import ConfigError
from configs.components import Choice, kinds
from configs.components.registry import Component

Document = dict[str, Any]
Read = Callable[[Document], Any]
"""What reads a document; raises a ConfigError where it has errors."""
Place = tuple[str | int, ...]
_TEXTS: dict[str, Any] = {
    "command": ["cat", "-n"],
    "scripts": ["Latin", "Greek"],
    "target_tag": ">>de<<",
    "tag": ">>de<<",
    "tags": [">>de<<"],
    "scores": {"a": "b"},
    "zero_optimization": {"sub_group_size": 1000},
    "time": "1-00:00:00",
}
"""Values of fields that take none but such text."""


def documents(type_: Any, read: Read, beginnings: Iterable[Document], turns: int) -> list[Document]:
    """Documents, each read as it was given.

    Args:
        type_: of the whole, a dataclass.
        read: what reads a document.
        beginnings: of documents, grown first; if there are turns, in these sections alone.
        turns: how many more to grow from nothing: at least as many as a family has kinds, and a choice has words.
    """
    made: list[Document] = []
    seen: set[str] = set()
    for beginning in beginnings:
        assert _is_read(beginning, read), beginning
        made.append(_grown(beginning, list(_places(type_, 0, ())), read, seen, tops=[*beginning] if turns else None))
    made += [_grown({}, list(_places(type_, turn, ())), read, seen, tops=None) for turn in range(turns)]
    return [document for document in map(_pruned, made) if document]


def holds(given: Any, read: Any) -> bool:
    """Whether what was read has every value that a document gave."""
    if isinstance(given, dict):
        return isinstance(read, dict) and all(name in read and holds(given[name], read[name]) for name in given)
    if isinstance(given, list):
        return isinstance(read, list) and len(given) == len(read) and all(map(holds, given, read))
    return type(given) is type(read) and bool(given == read)


def plain(config: Any) -> Any:
    """What was read, of the types that YAML has."""
    return to_jsonable_python(dataclasses.asdict(config))


def keys_of(tree: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Every key of a document, such as `optimizer(adamw).lr`, without the places of lists and the names of mappings."""
    for name, value in tree.items():
        yield f"{where}{name}"
        inner = value if isinstance(value, list) else [value, *value.values()] if isinstance(value, dict) else []
        for one in inner:
            if isinstance(one, dict):
                kind = f"({one['kind']})" if "kind" in one else ""
                yield from keys_of(one, f"{where}{name}{kind}.")


def _grown(begun: Document, places: Iterable[Any], read: Read, seen: set[str], tops: Sequence[str] | None) -> Document:
    grown = copy.deepcopy(begun)
    for _ in range(2):  # a key may need one that comes later
        for place, values, is_section in places:
            if (tops is not None and place[0] not in tops) or _has(grown, place) or not _has(grown, place[:-1]):
                continue
            for value in values:
                sign = _sign(grown, place, value)
                if sign in seen and not is_section:
                    break
                tried = _with(grown, place, value)
                if _is_read(tried, read):
                    grown = tried
                    seen.add(sign)
                    break
    return grown


def _sign(document: Document, place: Place, value: Any) -> str:
    """What a value is at a place, whatever the others are, but for the kinds around it."""
    around = []
    for end, step in enumerate(place):
        tree = _at(document, place[:end])
        kind = tree.get("kind", "") if isinstance(tree, dict) else ""
        around.append(f"({kind}){step}")
    return f"{'.'.join(around)}={json.dumps(value)}"


def _is_read(document: Document, read: Read) -> bool:
    try:
        return holds(document, plain(read(document)))
    except ConfigError:
        return False


def _pruned(tree: Any) -> Any:
    """Without sections in which nothing was set."""
    if not isinstance(tree, dict):
        return tree
    return {name: less for name, value in tree.items() if (less := _pruned(value)) != {}}


def _places(type_: Any, turn: int, where: Place) -> Iterator[tuple[Place, Sequence[Any], bool]]:
    """Places below a section or component, with values to try there, and whether others are in it, which come later."""
    for field in dataclasses.fields(type_):
        if field.name == "kind" and issubclass(type_, Component):
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if default is not dataclasses.MISSING:  # else it stands in what holds it
            yield from _below(field.type, to_jsonable_python(default), turn, (*where, field.name))


def _below(annotation: Any, default: Any, turn: int, place: Place) -> Iterator[tuple[Place, Sequence[Any], bool]]:
    container, section = _section(annotation, turn)
    if section is None:
        yield place, [*_values(annotation, default, turn, str(place[-1])), default], False
        return
    inner = {list: (0,), dict: ("a",)}.get(container, ())
    begun = empty(section, turn)
    yield place, [[begun] if container is list else {"a": begun} if container is dict else begun], True
    yield from _places(section, turn, (*place, *inner))


def _section(annotation: Any, turn: int) -> tuple[Any, Any]:
    """list, dict or None, as a place holds several sections or one; and the class of these, None if it holds none."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        choice = next((one for one in inner[1:] if isinstance(one, Choice)), None)
        if choice is None:
            return _section(inner[0], turn)
        known = list(kinds(choice.family).values())
        return None, known[turn % len(known)]
    if origin in (list, dict):
        return origin, _section(inner[-1], turn)[1]
    if origin in (typing.Union, types.UnionType):
        return next((found for one in inner if (found := _section(one, turn))[1] is not None), (None, None))
    is_section = isinstance(annotation, type) and dataclasses.is_dataclass(annotation)
    return None, annotation if is_section else None


def empty(section: Any, turn: int = 0) -> Document:
    """A section with its kind and the fields that have no default."""
    made = {"kind": section.kind} if issubclass(section, Component) else {}
    for field in dataclasses.fields(section):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            made[field.name] = next(iter(_values(field.type, None, turn, field.name)))
    return made


def _values(annotation: Any, default: Any, turn: int, name: str) -> Iterator[Any]:
    """Values that the type may take; those of a choice begin with another one in each turn."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if name in _TEXTS:
        yield _TEXTS[name]
    elif origin is typing.Annotated:
        yield from _values(inner[0], default, turn, name)
    elif origin is Literal:
        yield inner[turn % len(inner)]
    elif origin in (typing.Union, types.UnionType):
        for one in inner:
            yield from _values(one, default, turn, name)
    elif origin is list:
        yield from ([one] for one in _values(inner[0], None, turn, name))
    elif annotation is bool:
        yield default is not True
    elif annotation is int:
        yield from (1 + default if isinstance(default, int) else 3, 2)
    elif annotation is float:
        yield from (0.0625 + default if isinstance(default, float) else 0.5, 0.5)
    elif annotation is str:
        yield from (f"a {name}", name.replace("_", "-"), "de")


def _has(tree: Any, place: Place) -> bool:
    try:
        _at(tree, place)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _at(tree: Any, place: Place) -> Any:
    for step in place:
        tree = tree[step]
    return tree


def _with(document: Document, place: Place, value: Any) -> Document:
    """A copy of a document that has a value at a place, whose parent is there."""
    changed = copy.deepcopy(document)
    _at(changed, place[:-1])[place[-1]] = value
    return changed
