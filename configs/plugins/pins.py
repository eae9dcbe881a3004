"""Pins: the content of plugin files at a run's start, so that processes started later do not read edited files.

A launcher passes the SHA-256 of each file in an environment variable. The run's folder has copies of the files. If
there is no copy (yet), the original file is used, provided that its content is still the same.
"""

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from configs.errors import UserError
from configs.plugins.files import Source, copy_name, source_of
from configs.plugins.record import Plugin
from configs.plugins.saved import COPIES
from configs.process.files import FileError, explain
from configs.process.files.inside import read_bytes, write_bytes

PINS = "ZEROMT_PLUGINS"
"""Name of the environment variable."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A plugin file with a fixed content."""

    file: str
    """Path of the file, as the user gave it."""
    sha256: str
    """SHA-256 of the content."""
    copy: str
    """Path of the copy in the run's folder."""

    def read(self) -> Source:
        """Read the content.

        Raises:
            UserError: neither the copy nor the file has it.
        """
        for path in (self.copy, self.file):
            with contextlib.suppress(OSError, FileError):
                source = Source(self.file, read_bytes(Path(path)))
                if source.sha256 == self.sha256:
                    return source
        raise UserError(
            f"plugin {self.file!r}: neither the file nor its copy {self.copy!r} has the SHA-256 that the run was "
            f"started with, {self.sha256}; start the run again to use the file as it is now"
        )


def pins_of(plugins: Sequence[Plugin], folder: Path) -> list[Pin]:
    """The pins for the processes of a run, whose folder has the copies."""
    return [Pin(str(p.file), str(p.sha256), str(folder / COPIES / copy_name(p))) for p in plugins if p.file is not None]


def variables(config_name: str, pins: Sequence[Pin]) -> dict[str, str]:
    """The environment variables for processes that are started for a configuration."""
    if not pins:
        return {}
    return {PINS: json.dumps({"config": config_name, "plugins": [dataclasses.asdict(pin) for pin in pins]})}


def pinned(config_name: str, environ: Mapping[str, str]) -> list[Pin] | None:
    """The pins that the process which started this one has passed for a configuration; None if it has passed none."""
    try:
        tree = json.loads(environ.get(PINS, "null"))
        if tree is None or tree["config"] != config_name:
            return None
        return TypeAdapter(list[Pin]).validate_python(tree["plugins"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{PINS}: has a value that zeromt did not set; remove it from the environment") from error


def keep_copies(folder: Path, plugins: Sequence[Plugin]) -> None:
    """Copy the plugin files that a run was started with to its folder; their names contain their hashes.

    Args:
        folder: the run's folder.
        plugins: the run's plugins.

    Raises:
        UserError: a copy cannot be written.
    """
    for plugin, pin in zip((p for p in plugins if p.file is not None), pins_of(plugins, folder), strict=True):
        try:
            _write_copy(Path(pin.copy), source_of(plugin).content)
        except OSError as error:
            raise UserError(f"output: {pin.copy!r} cannot be written: {explain(error)}") from error


def _write_copy(path: Path, content: bytes) -> None:
    """Write a file atomically, unless it already has this content."""
    with contextlib.suppress(OSError, FileError):
        if read_bytes(path) == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
