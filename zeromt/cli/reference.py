"""docs/reference.md and configs/run.schema.json, from the code: `make reference`."""

import argparse
import dataclasses
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from configs.components import Choice, Optimizer, kinds, make
from configs.components.training import ALL_STAGES
from configs.reading.meanings import FieldHelp, fields, meanings
from configs.schema import RunConfig
from launcher.options.parser import Parser
from zeromt.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE, SCHEMA = ROOT / "docs" / "reference.md", ROOT / "configs" / "run.schema.json"
HEAD = """# Reference

Every setting and every option, made from the code by `make reference`; `zeromt help`, `zeromt help optimizer` and
`zeromt COMMAND --help` print the same. What the settings mean together is told in [configure and train](training.md)
and [data.md](data.md).

An editor with YAML's language server completes and checks a configuration that begins with

```yaml
# yaml-language-server: $schema=PATH/TO/zeromt/configs/run.schema.json
```

([run.schema.json](../configs/run.schema.json)). It knows each setting by itself; what they mean together, zeromt knows
alone, so a file that an editor likes may still be refused.

[Files](monitoring.md#files) and [exit codes](monitoring.md#exit-codes) are on the page about monitoring.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, "## Settings\n", *_settings(), *_optimizers(), "## Commands\n", *_commands()])


def schema_text() -> str:
    """The schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


REPEATED = {
    "prepare.valid": "prepare.train",
    "prepare.test": "prepare.train",
    "phases[N].datasets": "stream.datasets",
    "phases[N].augment": "stream.augment",
    "phases[N].schedule": "schedule",
}
"""Sections that have the fields of another."""


def _settings() -> Iterator[str]:
    section, known = None, {(field.path.replace("[N]", ""), field.kind, field.type) for field in fields()}
    for field in fields():
        same = next((one for one in REPEATED if field.path.startswith(f"{one}.")), None)
        if same and (field.path.replace(same, REPEATED[same]), field.kind, field.type) in known:
            continue
        if field.path in REPEATED:
            field = dataclasses.replace(field, meaning=f"{field.meaning} Fields: those of `{REPEATED[field.path]}`.")
        top = re.split(r"[.\[]", field.path)[0]
        if top != section:
            section = top
            yield f"\n### {top}\n\n| setting | value | default | meaning |\n|---|---|---|---|"
        yield _row(field)
    yield ""


def _row(field: FieldHelp) -> str:
    of = f" ({field.kind})" if field.kind else ""
    ticks = "``" if "`" in field.default else "`"
    default = f"{ticks}{field.default}{ticks}" if field.default and not field.is_section else field.default
    return f"| `{field.path}`{of} | {_cell(field.type)} | {_cell(default)} | {_cell(field.meaning)} |"


def _optimizers() -> Iterator[str]:
    """What each optimizer says of itself: where it is sound, and what it keeps."""
    yield "## Optimizers\n"
    yield (
        "At which ZeRO stages (`engine.zero_stage`) each is sound, in any precision; a run with another is refused "
        "before it starts. Offloaded: with `engine.offload_optimizer`. What is kept is in a checkpoint under these "
        "names; the count of steps is kept for all.\n"
    )
    heads = [*map(str, ALL_STAGES), "offloaded"]
    yield f"| optimizer | it works by | {' | '.join(heads)} | it keeps of |"
    yield "|---" * (len(heads) + 3) + "|"
    for kind in kinds("optimizer"):
        made: Optimizer = make("optimizer", kind)
        sound = [made.stage_problem(stage, offload=False) is None for stage in ALL_STAGES]
        sound.append(made.stage_problem(1, offload=True) is None)
        marks = " | ".join("yes" if one else "no" for one in sound)
        yield f"| `{kind}` | {made.scope} | {marks} | {_kept(made)} |"
    yield ""


_EXAMPLES = {
    "a layer's matrix": ("encoder.layers.0.feed_forward.inner.weight", (2, 3)),
    "an embedding": ("source_embedding.tokens.weight", (2, 3)),
    "a vector": ("encoder.norm.bias", (5,)),
}
_SIDES = {2: "rows", 3: "columns", 5: "elements"}


def _kept(optimizer: Optimizer) -> str:
    """Names and shapes of what it keeps of each of the examples."""
    by_states: dict[str, list[str]] = {}
    for what, (name, shape) in _EXAMPLES.items():
        kept = optimizer.states_of(name, shape).items()
        said = [
            f"`{key}`" + ("" if own == shape else f" ({' x '.join(_SIDES.get(n, str(n)) for n in own)})")
            for key, own in kept
        ]
        by_states.setdefault(", ".join(said), []).append(what)
    return "; ".join(f"{' or '.join(of)}: {said}" for said, of in by_states.items())


def _commands() -> Iterator[str]:
    for name, command in COMMANDS.items():
        parser = Parser(prog=name)
        command.add_arguments(parser)
        lines = textwrap.wrap(f"zeromt {name} {command.usage}", 110, subsequent_indent=" " * 4, break_on_hyphens=False)
        usage = "```text\n{}\n```\n".format("\n".join(lines))
        yield f"### zeromt {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n{usage}"
        rows = [action for action in parser.arguments if "--help" not in action.option_strings]
        if rows:
            yield "| argument | meaning |\n|---|---|"
            yield from (f"| {_argument(action)} | {_cell((action.help or '').replace('%%', '%'))} |" for action in rows)
        yield ""


def _argument(action: argparse.Action) -> str:
    shown = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    shown = " ".join(shown) if isinstance(shown, tuple) else shown
    if action.choices is not None and action.nargs != 0:
        shown = f"{{{','.join(map(str, action.choices))}}}"
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, (names, str(shown))))}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
