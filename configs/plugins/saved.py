"""Which plugins a run uses. Those that a saved configuration names are never run, as a run may come from anybody."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.components.registry import kinds
from configs.errors import ConfigError, UserError
from configs.plugins.files import copy_of, load, load_copies, load_named, loaded, read
from configs.plugins.record import Plugin
from configs.process.text import visible


class PluginError(UserError):
    """A plugin that a run or checkpoint was made with was not given."""


class OtherPluginError(UserError):
    """A given plugin differs from the one that a run or checkpoint was made with."""


def plugins_of_run(named: Any, options: Sequence[str], *, config: str, base: Path) -> list[Plugin]:
    """Load the plugins of a run, those of the configuration first; where a launcher made copies, only these.

    Args:
        named: the user's own `plugins`, from a file that a person wrote or from a setting on the command line.
        options: the files that `--plugins` names.
        config: the configuration as the command line names it.
        base: folder that paths in `named` are relative to.

    Raises:
        UserError: a file cannot be read or run.
    """
    plugins = load_copies(config, os.environ)
    if plugins is None:
        plugins = [load(read(name, f"plugins.{number}", base=base)) for number, name in enumerate(_names(named))]
        plugins += load_named(options)
    return list({plugin.sha256: plugin for plugin in reversed(plugins)}.values())[::-1]


def check_given(named: Any, where: Path, *, any_version: bool = False) -> None:
    """Check that this process has loaded the plugins that a saved configuration needs.

    Args:
        named: the configuration's `plugins`, which may be anything.
        where: path of the configuration.
        any_version: accept files with other content.

    Raises:
        PluginError: one was not given.
        OtherPluginError: a given one has other content.
    """
    records = [_record(item) for item in named] if isinstance(named, list) else []
    if problems := list(_missing(records, where)):
        raise PluginError("\n".join(map(visible, problems)))
    if not any_version and (problems := list(_changed(records, where))):
        raise OtherPluginError("\n".join(map(visible, problems)))


def _names(named: Any) -> list[str]:
    """The paths in a configuration's `plugins`.

    Raises:
        ConfigError: `plugins` is not a list of paths.
    """
    if not isinstance(named, list):
        shown = "a section" if isinstance(named, dict) else "null" if named is None else repr(named)
        raise ConfigError([f"plugins: {shown}; allowed is a list of Python files, such as [my_filters.py]"])
    problems = []
    for number, item in enumerate(named):
        record = _record(item)
        if isinstance(item, dict) and record.file is not None:
            problems.append(f"plugins.{number}: a saved configuration runs no file; add --plugins {record.file}")
        elif not (isinstance(item, str) and item) and record.package is None:
            problems.append(f"plugins.{number}: {item!r}; allowed is the path of a Python file")
    if problems:
        raise ConfigError(problems)
    return [item for item in named if isinstance(item, str)]


def _record(item: Any) -> Plugin:
    """A record, from whatever fields the item has."""
    if not isinstance(item, dict):
        return Plugin(file=item if isinstance(item, str) else None)
    texts = {key: item[key] for key in ("file", "sha256", "package") if isinstance(item.get(key), str)}
    components = item.get("components")
    return Plugin(**texts, components=list(map(str, components)) if isinstance(components, list) else [])


def _missing(records: Sequence[Plugin], where: Path) -> Iterator[str]:
    for record in records:
        what = ", ".join(record.components) or "a component"
        if record.file is not None and not any(_replaces(plugin, record) for plugin in loaded()):
            yield (
                f"{where}: needs {what} of the plugin {Path(record.file).name} (SHA-256 {record.sha256}), but plugins "
                f"are run only if you name them; add --plugins {_nearest(record, where)}"
            )
        if record.package is not None and not all(map(_is_known, record.components)):
            yield f"{where}: needs {what} of the package {record.package}, which is not installed; install it"


def _changed(records: Sequence[Plugin], where: Path) -> Iterator[str]:
    hashes = {plugin.sha256 for plugin in loaded()}
    for record in records:
        for plugin in loaded() if record.sha256 is not None and record.sha256 not in hashes else ():
            if _replaces(plugin, record):
                yield (
                    f"plugin {plugin.file!r}: its SHA-256 is {plugin.sha256}, but {where.parent} was made with "
                    f"{record.sha256}; give the file that it was made with, such as {_nearest(record, where)}"
                )


def _replaces(plugin: Plugin, record: Plugin) -> bool:
    """Whether a file is, or replaces, the one in a record: it has the same content, name, or one of its components."""
    return (
        record.sha256 == plugin.sha256
        or Path(record.file or "").name == Path(plugin.file or "").name
        or not set(record.components).isdisjoint(plugin.components)
    )


def _nearest(record: Plugin, where: Path) -> str:
    """The copy in the folder of the run or of a checkpoint's run; if there is none, the recorded path."""
    copies = [copy_of(record, folder) for folder in (where.parent, *where.parents[2:3])]
    return str(next((path for path in copies if path.is_file()), record.file))


def _is_known(component: str) -> bool:
    family, _, kind = component.partition(" ")
    try:
        return kind in kinds(family)
    except KeyError:
        return False
