"""docs/reference.md and configs/run.schema.json, from the code: `make reference`."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from configs.reading.json_schema import schema
from configs.reading.meanings import FieldHelp, fields
from zeromt.cli.completion import tree
from zeromt.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE, SCHEMA = ROOT / "docs" / "reference.md", ROOT / "configs" / "run.schema.json"
HEAD = """# Reference

Every setting and every option, made from the code by `make reference`; `zeromt help`, `zeromt help optimizer` and
`zeromt COMMAND --help` print the same. What the settings mean together is told in
[configuration.md](configuration.md) and [data.md](data.md).

An editor with YAML's language server completes and checks a configuration that begins with

```yaml
# yaml-language-server: $schema=PATH/TO/zeromt/configs/run.schema.json
```

([run.schema.json](../configs/run.schema.json)). It knows each setting by itself; what they mean together, zeromt knows
alone, so a file that an editor likes may still be refused.

Exit codes and files: [files.md](files.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, "## Settings\n", *_settings(), "## Commands\n", *_commands()])


def schema_text() -> str:
    """The schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _settings() -> Iterator[str]:
    section = None
    for field in fields():
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
        parser = tree({name: command})
        for word in name.split():
            [below] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
            parser = below.choices[word]
        usage = f"```text\nzeromt {name} {command.usage}\n```\n"
        yield f"### zeromt {name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n{usage}"
        rows = [action for action in parser._actions if "--help" not in action.option_strings]
        if rows:
            yield "| argument | meaning |\n|---|---|"
            yield from (f"| {_argument(action)} | {_cell((action.help or '').replace('%%', '%'))} |" for action in rows)
        yield ""


def _argument(action: argparse.Action) -> str:
    shown = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if action.choices is not None and action.nargs != 0:
        shown = f"{{{','.join(map(str, action.choices))}}}"
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, (names, str(shown))))}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
