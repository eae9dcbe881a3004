"""Files of the user's with components in them: read once, known by their SHA-256, run where the user names them."""

from configs.plugins.files import Source, dumps, load, load_named, loaded, loads, read, source_of
from configs.plugins.pins import PINS, Pin, keep_copies, pinned, pins_of, read_pins, variables, write_copy
from configs.plugins.record import Plugin, hashes, installed, label, origin_of
from configs.plugins.saved import OtherPluginError, PluginError, another_file, missing

__all__ = [
    "PINS",
    "OtherPluginError",
    "Pin",
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
    "read_pins",
    "source_of",
    "variables",
    "write_copy",
]
