"""Loads the plugins of a run, which its configuration and the command line name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.plugins.files import load, load_named, read
from configs.plugins.pins import Pin
from configs.plugins.record import Plugin
from configs.plugins.saved import PluginError, missing


def plugins_of_run(
    named: Any, options: Sequence[str], *, base: Path, saved: tuple[Path, Any] | None, pins: Sequence[Pin] | None
) -> list[Plugin]:
    """Load the plugins of a run, those of the configuration first.

    Args:
        named: the user's own `plugins`, from a file that a person wrote or from a setting on the command line.
        options: the files that `--plugins` names.
        base: folder that paths in `named` are relative to.
        saved: path of a run's saved configuration and its `plugins`, which are not run; None for other files.
        pins: if given, these files are loaded instead of all others.

    Raises:
        UserError: a file cannot be read or run, or the saved configuration needs one that the user does not name.
    """
    if pins is not None:
        plugins = [load(pin.read()) for pin in pins]
    else:
        plugins = [load(read(name, f"plugins.{number}", base=base)) for number, name in enumerate(_names(named))]
        plugins += load_named(options)
    if saved is not None and (problems := list(missing(saved[1], plugins, saved[0]))):
        raise PluginError("\n".join(problems))
    return list({plugin.sha256: plugin for plugin in reversed(plugins)}.values())[::-1]


def _names(named: Any) -> list[str]:
    """The paths in a configuration's `plugins`.

    Raises:
        ConfigError: `plugins` is not a list of paths.
    """
    if not isinstance(named, list):
        shown = "a section" if isinstance(named, dict) else "null" if named is None else repr(named)
        raise ConfigError([f"plugins: {shown}; allowed is a list of Python files, such as [my_filters.py]"])
    problems, names = [], []
    for number, item in enumerate(named):
        if isinstance(item, str) and item:
            names.append(item)
        elif isinstance(item, dict) and isinstance(item.get("file"), str):
            problems.append(
                f"plugins.{number}: {item['file']!r} is written as in a run's saved configuration, and is not run; "
                f"give only its path, or --plugins {item['file']}"
            )
        elif not (isinstance(item, dict) and item.get("package")):  # a missing package gives an unknown kind later
            shown = "a section" if isinstance(item, dict) else repr(item)
            problems.append(f"plugins.{number}: {shown}; allowed is the path of a Python file")
    if problems:
        raise ConfigError(problems)
    return names
