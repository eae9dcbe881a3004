"""Help on every field of the configuration, with its type, bounds and default: `zeromt help`.

All of it is read from the dataclasses of the configuration: a field's help is the string below it.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from configs.components import Choice, kinds
from configs.schema import RunConfig

_WIDTH = 110
_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "mapping", Any: "anything"}
_BOUNDS = {
    "gt": "above {}",
    "ge": "at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "pattern": "on one line",  # of a form that the error shows
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}
_HUGE = 2**62
"""Bounds beyond this are not shown: they only exclude integers that are too large for a computer."""


@dataclass(kw_only=True, slots=True, frozen=True)
class FieldHelp:
    """The help on one field."""

    path: str
    """Path of the field, such as `optimizer.lr`, or `evaluation.sets[N].name` for items of a list."""
    kind: str | None
    """Kind of the component that the field belongs to; None for fields of sections."""
    type: str
    """Type and bounds in words."""
    default: str
    meaning: str
    is_section: bool = False
    """Whether it is a section, whose own fields follow."""


def fields(type_: Any = RunConfig, where: str = "", kind: str | None = None) -> Iterator[FieldHelp]:
    """Every field in order, including those of subsections and of all registered components.

    Args:
        type_: a section, or a component.
        where: path of the section, such as `model.`; empty for the whole configuration.
        kind: kind of the component.
    """
    said = meanings(type_)
    for field in dataclasses.fields(type_):
        if kind is not None and field.name == "kind":
            continue
        path, inner = f"{where}{field.name}", list(_inside(field.type))
        yield FieldHelp(
            path=path,
            kind=kind,
            type=describe(field.type),
            default=_default(field),
            meaning=said.get(field.name) or next((_first_line(one) for one, _ in inner), ""),
            is_section=bool(inner),
        )
        items = "[N]" if _is_list(field.type) else ".NAME" if typing.get_origin(field.type) is dict else ""
        for one, name in inner:
            yield from fields(one, f"{path}{items}.", name)


def meanings(type_: type[Any]) -> dict[str, str]:
    """The strings below the fields of a class and of its base classes, by field, each as one line."""
    by_field: dict[str, str] = {}
    for one in reversed(type_.__mro__):
        if dataclasses.is_dataclass(one):
            by_field |= _own_meanings(one)
    return by_field


@functools.cache
def _own_meanings(type_: type[Any]) -> dict[str, str]:
    try:
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(type_))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # a class without a file
        return {}
    body: Sequence[ast.stmt] = getattr(tree, "body", ())
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def describe(annotation: Any) -> str:
    """A type and its bounds in words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        choice = next((one for one in inner[1:] if isinstance(one, Choice)), None)
        if choice is not None:
            return f"kind: {' | '.join(kinds(choice.family))}"
        return ", ".join([describe(inner[0]), *(text for one in inner[1:] for text in _bounds(one))])
    if origin is Literal:
        return " | ".join(_shown(value) for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys("null" if one is types.NoneType else describe(one) for one in inner))
    if origin is list:
        return f"list of: {describe(inner[0])}"
    if dataclasses.is_dataclass(annotation):
        return "section"
    return _WORDS.get(origin or annotation, getattr(annotation, "__name__", str(annotation)))


def text(words: Sequence[str] = ()) -> str:
    """The help on fields as text.

    Args:
        words: a field or section, such as `optimizer` or `optimizer.lr`; or what path and meaning of a field must have
            in them; none for all fields.
    """
    every, name = list(fields()), " ".join(words)
    named = [field for field in every if f".{name}." in f".{field.path.replace('[N]', '')}."]
    others = [field for field in every if has_words(f"{field.path} {field.meaning}", words)]
    lines = []
    for field in [*named, *(field for field in others if field not in named)]:
        of = "" if field.kind is None else f" ({field.kind})"
        default = f"; default {field.default}" if field.default else ""
        lines.append(f"  {field.path}{of}  <{field.type}{default}>")
        lines += textwrap.wrap(field.meaning, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def has_words(text: str, words: Sequence[str]) -> bool:
    """Whether a text has all words, in any case, also as beginnings of longer ones."""
    return all(re.search(rf"(?<![^\W_]){re.escape(word)}", text, re.IGNORECASE) for word in words)


def paths_of(name: str) -> list[str]:
    """Paths of the fields with this path, or else with this name in any section; the least nested first."""
    paths = list(dict.fromkeys(field.path for field in fields() if "[N]" not in field.path))
    named = [path for path in paths if path == name] or [path for path in paths if path.rpartition(".")[2] == name]
    return sorted(named, key=lambda path: path.count("."))


def _inside(annotation: Any) -> Iterator[tuple[type[Any], str | None]]:
    """The section in a field, or the components that can be in it, with their kinds."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        choice = next((one for one in inner[1:] if isinstance(one, Choice)), None)
        if choice is None:
            yield from _inside(inner[0])
        else:
            yield from ((component, kind) for kind, component in kinds(choice.family).items())
    elif origin in (list, dict, typing.Union, types.UnionType):
        for one in inner:
            yield from _inside(one)
    elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield annotation, None


def _is_list(annotation: Any) -> bool:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    return origin is list or (origin is typing.Annotated and _is_list(inner[0]))


def _bounds(constraint: Any) -> Iterator[str]:
    """The bounds of a constraint in words; a pydantic Field can have several."""
    for one in getattr(constraint, "metadata", [constraint]):
        for name, words in _BOUNDS.items():
            bound = getattr(one, name, None)
            if bound is not None and (isinstance(bound, str) or abs(bound) < _HUGE):
                yield words.format(bound)


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        return _shown(field.default)
    if field.default_factory is dataclasses.MISSING:
        return ""
    made = field.default_factory()
    if dataclasses.is_dataclass(made):
        return str(getattr(made, "kind", ""))
    if isinstance(made, list):
        return f"[{', '.join(str(getattr(one, 'kind', one)) for one in made)}]"
    return _shown(made)


def _shown(value: Any) -> str:
    """The value as it is written in YAML."""
    return json.dumps(value) if value is None or isinstance(value, bool | dict) else str(value)


def _first_line(type_: type[Any]) -> str:
    return (type_.__doc__ or "").strip().partition("\n")[0]
