"""The configuration as a JSON schema, with which editors complete and check YAML files.

It is less strict than `load_run`: rules between fields are checked only there.
"""

import dataclasses
import types
import typing
from typing import Any, Literal

from configs.components import Choice, kinds
from configs.reading.meanings import meanings
from configs.schema import RunConfig

_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    types.NoneType: {"type": "null"},
}
_BOUNDS = {
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum",
    "min_length": "minLength", "max_length": "maxLength", "pattern": "pattern",
}  # fmt: skip


def schema() -> dict[str, Any]:
    """The JSON schema of a run's configuration (draft 2020-12)."""
    section = _section(RunConfig)
    section["properties"]["preset"] = {"type": "string", "description": "The name of a preset."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of zeromt",
        **section,
    }


def _section(type_: Any, kind: str | None = None) -> dict[str, Any]:
    said = meanings(type_)
    properties = {}
    for field in dataclasses.fields(type_):
        subschema = {"const": kind} if kind is not None and field.name == "kind" else _of(field.type)
        if meaning := said.get(field.name):
            subschema = {**subschema, "description": meaning}
        properties[field.name] = subschema
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _of(annotation: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        choice = next((one for one in inner[1:] if isinstance(one, Choice)), None)
        if choice is not None:
            return _component(choice)
        subschema = _of(inner[0])
        bounds = {key: value for one in inner[1:] for key, value in _bounds(one).items()}
        return {**subschema, **bounds} if "anyOf" not in subschema else subschema
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(one) for one in inner]}
    if origin in (list, tuple):
        return {"anyOf": [{"type": "array", "items": _of(inner[0])}, {"type": "string"}]}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _section(annotation)
    return dict(_PLAIN.get(origin or annotation, {}))


def _component(choice: Choice) -> dict[str, Any]:
    """The schema of a component: its kind as text, or a section with its fields. Fields of a plugin's kind are not
    checked.
    """
    known = kinds(choice.family)
    sections = [_section(component, kind) for kind, component in known.items()]
    other = {"type": "object", "properties": {"kind": {"not": {"enum": list(known)}}}, "required": ["kind"]}
    optional = [{"type": "null"}] if choice.is_optional else []
    return {"anyOf": [{"type": "string"}, *sections, other, *optional]}


def _bounds(constraint: Any) -> dict[str, Any]:
    return {
        key: value
        for one in getattr(constraint, "metadata", [constraint])
        for name, key in _BOUNDS.items()
        if (value := getattr(one, name, None)) is not None
    }
