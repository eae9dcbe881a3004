"""docs/reference.md and configs/run.schema.json, from the code: `make reference`."""

import argparse
import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema
from typing_extensions import override

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
    return "\n".join([HEAD, "## Settings\n", *_settings(), "## Commands\n", *_commands()])


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


def _commands() -> Iterator[str]:
    for name, command in COMMANDS.items():
        parser = Parser(prog=name)
        command.add_arguments(parser)
        usage = textwrap.fill(f"zeromt {name} {command.usage}", 110, subsequent_indent=" " * 4, break_on_hyphens=False)
        yield f"### zeromt {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n```text\n{usage}\n```\n"
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
    shown = re.sub(r"(`+).+?\1|<", lambda match: match[0] if match[1] else "&lt;", text)  # code shows it as it is
    return " ".join(shown.split()).replace("|", "\\|")


class _Schema(GenerateJsonSchema):
    """Of a file that people write: a component may be its kind alone, or a plugin's, and a list a single text."""

    @override
    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
        known = super().tagged_union_schema(schema)["oneOf"]
        names = [str(name).removeprefix("function-") for name in schema["choices"]]
        other = {"type": "object", "properties": {"kind": {"not": {"enum": names}}}, "required": ["kind"]}
        return {"anyOf": [{"type": "string"}, *known, other]}

    @override
    def list_schema(self, schema: core_schema.ListSchema) -> dict[str, Any]:
        return {"anyOf": [super().list_schema(schema), {"type": "string"}]}

    @override
    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        generated = super().dataclass_schema(schema)
        said = meanings(schema["cls"])
        for name, field in generated["properties"].items():
            field |= {"description": said[name]} if name in said else {}
        return generated


def schema() -> dict[str, Any]:
    """The JSON schema of a run's configuration (draft 2020-12)."""
    generated = TypeAdapter(RunConfig).json_schema(schema_generator=_Schema)
    generated["properties"]["preset"] = {"type": "string", "description": "The name of a preset."}
    return {"$schema": _Schema.schema_dialect, **generated, "title": "A run of zeromt"}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
