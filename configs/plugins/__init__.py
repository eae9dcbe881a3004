"""Plugin files: the user's Python files with components. They are read once, identified by SHA-256, and run only where
the user names them.
"""

from configs.plugins.files import Source, dumps, load, load_named, loaded, loads, read, source_of
from configs.plugins.pins import PINS, keep_copies, pinned, pins_of, variables
from configs.plugins.record import Plugin, hashes, installed, label, origin_of
from configs.plugins.saved import OtherPluginError, PluginError, another_file, missing

__all__ = [
    "PINS",
    "OtherPluginError",
    "Plugin",
    "PluginError",
    "Source",
    "another_file",
    "dumps",
    "hashes",
    "installed",
    "keep_copies",
    "label",
    "load",
    "load_named",
    "loaded",
    "loads",
    "missing",
    "origin_of",
    "pinned",
    "pins_of",
    "read",
    "source_of",
    "variables",
]
