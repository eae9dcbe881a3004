"""The plugins that a saved configuration names. They are never run, because a run may come from an untrusted source."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.components.registry import kinds
from configs.errors import UserError
from configs.plugins.files import copy_name
from configs.plugins.record import Plugin
from configs.process.files import FileError
from configs.process.files.inside import read_bytes
from configs.process.text import visible

COPIES = "plugins"
"""The folder with copies of plugins, in the run's folder."""


class PluginError(UserError):
    """A plugin that a run or checkpoint was made with was not given."""


class OtherPluginError(UserError):
    """A given plugin differs from the one that a run or checkpoint was made with."""


def missing(named: Sequence[Any], given: Sequence[Plugin], where: Path) -> Iterator[str]:
    """The plugins that a saved configuration needs and that were not given, one line each.

    Args:
        named: the configuration's `plugins`, which may be invalid.
        given: the files that the user named.
        where: path of the configuration.
    """
    for item in named:
        record = _read(item)
        name = Path(record.file or "").name
        if record.file is not None and not any(_rivals(record, plugin) for plugin in given):
            what = f"{', '.join(record.components) or 'a component'} of the plugin {name}{_hash(record)}"
            yield visible(
                f"{where}: needs {what}, but plugins are run only if you name them; add "
                f"--plugins {_nearest(record, where)}"
            )
        if record.package is not None and (gone := [c for c in record.components if not _is_known(c)]):
            yield visible(
                f"{where}: needs {', '.join(gone)} of the package {record.package}, which is not installed; "
                f"install it (pip install {record.package.partition(' ')[0]}), or give a file that has it by --plugins"
            )


def another_file(named: Sequence[Any], given: Sequence[Plugin], where: Path) -> Iterator[str]:
    """The given files that differ from those that a saved configuration names, one line each.

    Args:
        named, given, where: see `missing`.
    """
    hashes = {plugin.sha256 for plugin in given}
    for record in map(_read, named):
        if record.sha256 is None or record.sha256 in hashes:
            continue
        for plugin in given:
            if _rivals(record, plugin):
                yield visible(
                    f"plugin {plugin.file!r}: its SHA-256 is {plugin.sha256}, but {where.parent} was made with "
                    f"{record.sha256}; give the file that it was made with, "
                    f"such as {_nearest(record, where)}"
                )


def _read(item: Any) -> Plugin:
    """A record, from whatever fields the item has."""
    if isinstance(item, str):
        return Plugin(file=item)
    if not isinstance(item, dict):
        return Plugin()
    texts = {key: item[key] for key in ("file", "sha256", "package") if isinstance(item.get(key), str)}
    components = item.get("components")
    return Plugin(**texts, components=list(map(str, components)) if isinstance(components, list) else [])


def _rivals(record: Plugin, plugin: Plugin) -> bool:
    """Whether a file is, or replaces, the one in a record: it has the same content, name, or one of its components."""
    return (
        record.sha256 == plugin.sha256
        or Path(record.file or "").name == Path(plugin.file or "").name
        or not set(record.components).isdisjoint(plugin.components)
    )


def _hash(record: Plugin) -> str:
    return f" (SHA-256 {record.sha256})" if record.sha256 else ""


def _nearest(record: Plugin, where: Path) -> str:
    """Path of a file with the recorded content: the user's own, or else a copy in the run's folder.

    If there is none, it is the recorded path.
    """
    copies = [folder / COPIES / copy_name(record) for folder in (where.parent, *where.parents[2:3])]
    for path in (Path(str(record.file)), *copies):
        try:
            if hashlib.sha256(read_bytes(path)).hexdigest() == record.sha256:
                return str(path)
        except (OSError, ValueError, FileError):
            continue
    return str(record.file)


def _is_known(component: str) -> bool:
    family, _, kind = component.partition(" ")
    try:
        return kind in kinds(family)
    except KeyError:
        return False
