"""What a resolved configuration names of plugins. It runs none: a run may come from anywhere."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.components.registry import kinds
from configs.errors import UserError
from configs.plugins.files import copy_name
from configs.plugins.record import Plugin
from configs.text import visible

COPIES = "plugins"
"""The folder in a run's in which copies are kept."""


class PluginError(UserError):
    """A plugin that a run or checkpoint was made with is not at hand."""


class OtherPluginError(UserError):
    """A plugin has other bytes than the one that a run or checkpoint was made with."""


def missing(named: Sequence[Any], given: Sequence[Plugin], where: Path) -> Iterator[str]:
    """What a resolved configuration needs and is not at hand, one line each.

    Args:
        named: its `plugins`, as they stand there; anybody may have written them.
        given: files that the user named.
        where: the configuration.
    """
    for item in named:
        record = _read(item)
        name = Path(record.file or "").name
        if record.file is not None and not any(_rivals(record, plugin) for plugin in given):
            what = f"{', '.join(record.components) or 'a component'} of the plugin {name}{_hash(record)}"
            yield visible(
                f"{where}: needs {what}, and plugins are run only where you name them: give it by "
                f"--plugins {_nearest(record, where)}"
            )
        if record.package is not None and (gone := [c for c in record.components if not _is_known(c)]):
            yield visible(
                f"{where}: needs {', '.join(gone)} of the package {record.package}, which is not installed: "
                f"install it (pip install {record.package.partition(' ')[0]}), or give a file that has it by --plugins"
            )


def another_file(named: Sequence[Any], given: Sequence[Plugin], where: Path) -> Iterator[str]:
    """The files that were given in place of those that something was made with, one line each.

    Args:
        named, given, where: as of `missing`.
    """
    hashes = {plugin.sha256 for plugin in given}
    for record in map(_read, named):
        if record.sha256 is None or record.sha256 in hashes:
            continue
        for plugin in given:
            if _rivals(record, plugin):
                yield visible(
                    f"plugin {plugin.file!r}: its SHA-256 is {plugin.sha256}, and {where.parent} was made with "
                    f"{record.sha256}; allowed is the file that it was made with, "
                    f"such as {_nearest(record, where)}"
                )


def _read(item: Any) -> Plugin:
    """A record, or as much of one as there is."""
    if isinstance(item, str):
        return Plugin(file=item)
    if not isinstance(item, dict):
        return Plugin()
    texts = {key: item[key] for key in ("file", "sha256", "package") if isinstance(item.get(key), str)}
    components = item.get("components")
    return Plugin(**texts, components=list(map(str, components)) if isinstance(components, list) else [])


def _rivals(record: Plugin, plugin: Plugin) -> bool:
    """Whether a file is what a record names, or stands in its place: by its bytes, its name or its components."""
    return (
        record.sha256 == plugin.sha256
        or Path(record.file or "").name == Path(plugin.file or "").name
        or not set(record.components).isdisjoint(plugin.components)
    )


def _hash(record: Plugin) -> str:
    return f" (SHA-256 {record.sha256})" if record.sha256 else ""


def _nearest(record: Plugin, where: Path) -> str:
    """A file that is what the record names, the user's own before a copy in the run's folder; else its name."""
    copies = [folder / COPIES / copy_name(record) for folder in (where.parent, *where.parents[2:3])]
    for path in (Path(str(record.file)), *copies):
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() == record.sha256:
                return str(path)
        except (OSError, ValueError):
            continue
    return str(record.file)


def _is_known(component: str) -> bool:
    family, _, kind = component.partition(" ")
    try:
        return kind in kinds(family)
    except KeyError:
        return False
