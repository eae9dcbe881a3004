"""Plugin files: the user's Python files with components. They are read once, identified by SHA-256, and run only where
the user names them.
"""

from configs.plugins.files import dumps, keep_copies, load_named, loads, variables
from configs.plugins.record import Plugin, hashes, installed, label, origin_of
from configs.plugins.saved import OtherPluginError, PluginError, check_given, plugins_of_run

__all__ = [
    "OtherPluginError",
    "Plugin",
    "PluginError",
    "check_given",
    "dumps",
    "hashes",
    "installed",
    "keep_copies",
    "label",
    "load_named",
    "loads",
    "origin_of",
    "plugins_of_run",
    "variables",
]
