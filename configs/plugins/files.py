"""Reads and runs plugin files. Each is read once, so that the same bytes are hashed, run, copied and sent on."""

import dataclasses
import hashlib
import importlib.util
import json
import re
import sys
import traceback
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.components.registry import FAMILIES, check, kinds, registered, restore
from configs.errors import UserError
from configs.plugins.record import Plugin, label, origins
from configs.process.files import FileError, expand, naming
from configs.process.files.inside import read_bytes, write_bytes
from configs.process.text import visible

COPIES = "plugins"
"""The folder with copies of plugins, in the run's folder."""
VARIABLE = "ZEROMT_PLUGINS"
"""The environment variable by which a launcher tells ranks a configuration and the copies that they are to read."""


@dataclass(frozen=True, slots=True)
class Source:
    """A plugin file and its content."""

    file: str
    """Absolute path."""
    content: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def read(name: str, what: str, *, base: Path | None = None) -> Source:
    """Read a plugin file.

    Args:
        name: path of the file; `~` is the home folder.
        what: the option or field that names it, for messages.
        base: folder that a relative path is relative to; by default the current one.

    Raises:
        FileError: the file cannot be read.
    """
    with naming(what):
        path = ((base or Path.cwd()) / expand(name)).absolute()
        try:
            return Source(str(path), read_bytes(path))
        except FileNotFoundError as error:
            raise FileError(f"{str(path)!r}: no such file; give a Python file") from error


def load(source: Source) -> Plugin:
    """Run a plugin file, once per process, and register its components. They replace those of an earlier version.

    Raises:
        UserError: the file raises an error, registers no valid component, or registers a kind that already exists.
    """
    if (known := _loaded.get(source.sha256)) is not None:
        return dataclasses.replace(known, file=source.file)
    for family in FAMILIES:  # ours first, so that the error about a kind that exists names the plugin
        kinds(family)
    before = registered()
    module = types.ModuleType(f"zeromt_plugin_{source.sha256[:16]}")
    module.__file__ = source.file
    sys.modules[module.__name__] = module  # dataclasses, pydantic and pickle look up names in the module
    try:
        made = _execute(source, module)
        for component in made:
            check(component)
    except BaseException as error:
        restore(before)
        del sys.modules[module.__name__]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(f"plugin {source.file!r}: {_describe(error, source)}") from error
    plugin = Plugin(file=source.file, sha256=source.sha256, components=sorted(map(label, made)))
    for old in [one for one in _loaded.values() if one.file == source.file]:
        del _loaded[str(old.sha256)]
    origins.update(dict.fromkeys(made, plugin))
    _loaded[source.sha256], _sources[source.sha256] = plugin, source
    return plugin


def load_named(names: Sequence[str]) -> list[Plugin]:
    """Load the files that the option `--plugins` names.

    Raises:
        UserError: see `read` and `load`.
    """
    return [load(read(name, "--plugins")) for name in names]


def loaded() -> list[Plugin]:
    """The plugin files that this process has loaded."""
    return list(_loaded.values())


def source_of(plugin: Plugin) -> Source:
    """The source of a plugin file that this process has loaded."""
    return _sources[str(plugin.sha256)]


def dumps(work: object) -> bytes:
    """Pickle an object for another process, together with the loaded plugin files."""
    import pickle

    return pickle.dumps(([source_of(plugin) for plugin in loaded()], pickle.dumps(work)))


def loads(content: bytes) -> Any:
    """Load the plugin files that `dumps` has pickled, and unpickle the object.

    Raises:
        UserError: see `load`.
    """
    import pickle

    sources, work = pickle.loads(content)
    for source in sources:
        load(source)
    return pickle.loads(work)


def copy_of(plugin: Plugin, folder: Path) -> Path:
    """The copy of a plugin file in a run's folder: its name contains the hash."""
    end = f"-{str(plugin.sha256)[:16]}"
    word = re.sub(r"[^A-Za-z0-9]+", "_", Path(str(plugin.file)).stem.removesuffix(end))[:80].strip("_") or "plugin"
    return folder / COPIES / f"{word}{end}.py"


def keep_copies(folder: Path, plugins: Iterable[Plugin]) -> None:
    """Copy the plugin files of a run to its folder, so that a later change of a file does not change the run.

    Raises:
        UserError: a copy cannot be written.
    """
    for plugin in plugins:
        if plugin.file is not None:
            path = copy_of(plugin, folder)
            with naming("output"):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path, source_of(plugin).content)


def variables(config_name: str, plugins: Sequence[Plugin], folder: Path) -> dict[str, str]:
    """The environment variables with which ranks of a configuration read the copies in the run's folder."""
    copies = [str(copy_of(plugin, folder).absolute()) for plugin in plugins if plugin.file is not None]
    return {VARIABLE: json.dumps([config_name, *copies])} if copies else {}


def load_copies(config_name: str, environ: Mapping[str, str]) -> list[Plugin] | None:
    """Load the copies that a launcher named for a configuration; None if it named none.

    Raises:
        UserError: a copy is missing, or has been changed.
    """
    name, *copies = json.loads(environ.get(VARIABLE, "[null]"))
    if name != config_name:
        return None
    sources = [read(copy, VARIABLE) for copy in copies]
    for source in sources:
        if not Path(source.file).stem.endswith(source.sha256[:16]):
            raise UserError(f"plugin {source.file!r}: has been changed since the run was started; start it again")
    return [load(source) for source in sources]


def _execute(source: Source, module: types.ModuleType) -> list[type[Any]]:
    """Run the file; returns the components that it registers."""
    kept = registered(leaving_out={c for c, plugin in origins.items() if plugin.file == source.file})
    restore(kept)
    importlib.util.decode_source(source.content)  # compile() alone accepts invalid UTF-8 in comments
    exec(compile(source.content, source.file, "exec", dont_inherit=True), module.__dict__)
    made = [c for family, by_kind in registered().items() for kind, c in by_kind.items() if kind not in kept[family]]
    if not made:
        raise UserError("registers no component; write a class under @component(FAMILY, KIND)")
    return made


def _describe(error: BaseException, source: Source) -> str:
    """The error and the line of the file that caused it, as one line."""
    if isinstance(error, UserError):
        return visible(str(error))
    if isinstance(error, SyntaxError) and error.filename in (source.file, None):
        where, message = f"line {error.lineno}: " if error.lineno else "", f"{type(error).__name__}: {error.msg}"
    else:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == source.file]
        where, message = f"line {lines[-1]}: " if lines else "", f"{type(error).__name__}: {error}"
    return f"cannot be run: {where}{visible(' '.join(message.split()))}"


_loaded: dict[str, Plugin] = {}
"""The loaded files by SHA-256."""
_sources: dict[str, Source] = {}
