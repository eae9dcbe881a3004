"""Plugins that were read when a run was started, for the processes that it starts: they read no edited file.

A launcher says in an environment variable which bytes they are. Their copies lie in the run's folder; until it is
there, and where it is not, the files themselves will do as long as they hold these bytes.
"""

import base64
import contextlib
import dataclasses
import json
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from configs.errors import UserError
from configs.files import TEMPORARY, explain
from configs.plugins.files import Source, copy_name, source_of
from configs.plugins.record import Plugin
from configs.plugins.saved import COPIES

PINS = "ZEROMT_PLUGINS"
"""The environment variable."""
_LONGEST = 120_000
"""Characters of it; Linux takes no variable of more than 128 KiB."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A file by its bytes."""

    file: str
    """As the user named it."""
    sha256: str
    copy: str
    content: str | None = None
    """The bytes themselves, compressed and in base64, for machines that see neither file nor copy."""

    def read(self) -> Source:
        """The bytes.

        Raises:
            UserError: neither the copy nor the file holds them.
        """
        if self.content is not None:
            with contextlib.suppress(ValueError, zlib.error):
                source = Source(self.file, zlib.decompress(base64.b64decode(self.content)))
                if source.sha256 == self.sha256:
                    return source
        for path in (self.copy, self.file):
            with contextlib.suppress(OSError):
                source = Source(self.file, Path(path).read_bytes())
                if source.sha256 == self.sha256:
                    return source
        raise UserError(
            f"plugin {self.file!r}: neither it nor {self.copy!r} has the SHA-256 that the run was started with, "
            f"{self.sha256}; start it again with the file as it is now"
        )


def pins_of(plugins: Sequence[Plugin], folder: Path, *, travels: bool = False) -> list[Pin]:
    """What processes of a run read.

    Args:
        plugins: of the run.
        folder: the run's.
        travels: whether they see no file of this machine.
    """

    def content(plugin: Plugin) -> str | None:
        return base64.b64encode(zlib.compress(source_of(plugin).content)).decode() if travels else None

    return [
        Pin(str(p.file), str(p.sha256), str(folder / COPIES / copy_name(p)), content(p))
        for p in plugins
        if p.file is not None
    ]


def variables(config_name: str, pins: Sequence[Pin]) -> dict[str, str]:
    """The environment of processes that are started for a configuration.

    Raises:
        UserError: the files have to travel in it, and are too large.
    """
    if not pins:
        return {}
    text = json.dumps({"config": config_name, "plugins": [dataclasses.asdict(pin) for pin in pins]})
    if len(text) > _LONGEST:
        raise UserError(
            f"plugins: compressed and with their names they take {len(text):,} bytes to go with the job; allowed are "
            f"{_LONGEST:,}: install what is large as a package with an entry point (zeromt.plugins)"
        )
    return {PINS: text}


def read_pins(tree: object) -> list[Pin]:
    """Pins that were written as JSON.

    Raises:
        ValueError: they are none.
    """
    return TypeAdapter(list[Pin]).validate_python(tree)


def pinned(config_name: str, environ: Mapping[str, str]) -> list[Pin] | None:
    """What whoever started this process has read for a configuration; None where nobody has."""
    try:
        tree = json.loads(environ.get(PINS, "null"))
        if tree is None or tree["config"] != config_name:
            return None
        return read_pins(tree["plugins"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{PINS}: is not what a launch of zeromt has set; take it out of the environment") from error


def keep_copies(folder: Path, plugins: Sequence[Plugin]) -> None:
    """Write the files that a run was started with into its folder, each under a name with its hash.

    Args:
        folder: of the run; it is there.
        plugins: of the run.

    Raises:
        UserError: they cannot be written.
    """
    for plugin, pin in zip((p for p in plugins if p.file is not None), pins_of(plugins, folder), strict=True):
        try:
            write_copy(Path(pin.copy), source_of(plugin).content)
        except OSError as error:
            raise UserError(f"output: {pin.copy!r} cannot be written: {explain(error)}") from error


def write_copy(path: Path, content: bytes) -> None:
    """A whole file, or the one that was there; nothing where it holds that already."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return
    path.parent.mkdir(exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    finally:
        Path(beside).unlink(missing_ok=True)
