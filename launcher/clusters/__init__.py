"""Where jobs run: one folder per kind of cluster, named nowhere else. README.md describes the protocol.

A folder holds `options.py`, with the kind's `COMMAND`, which imports nothing heavy, and `cluster.py`, its component.
"""

import dataclasses
import importlib
import pkgutil

from launcher.options.command import Command


def commands() -> dict[str, Command]:
    """`launch KIND` for each built-in kind."""
    by_name = {}
    for folder in pkgutil.iter_modules(__path__):
        command: Command = importlib.import_module(f"{__name__}.{folder.name}.options").COMMAND
        by_name[f"launch {folder.name}"] = dataclasses.replace(command, given={"kind": folder.name})
    return by_name
