"""Plugin files: the user's Python files with components, identified by SHA-256 and run only where the user names them.

Each is read once, so that the same bytes are hashed, run, copied and sent on. Those that a saved configuration names
are never run by it, as a run may come from anybody.
"""

import dataclasses
import hashlib
import json
import os
import re
import sys
import traceback
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from configs.components.registry import FAMILIES, check, kinds, registered, restore
from configs.errors import ConfigError, UserError
from configs.fields import STRICT
from configs.process.files import FileError, expand, naming
from configs.process.files.inside import read_bytes, write_bytes
from configs.process.text import visible

COPIES = "plugins"
"""The folder with copies of plugins, in the run's folder."""
VARIABLE = "ZEROMT_PLUGINS"
"""The environment variable by which a launcher tells ranks a configuration and the copies that they are to read."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Plugin:
    """A plugin file, as the resolved configuration records it."""

    __pydantic_config__ = STRICT

    file: str
    """Absolute path of the file that the user named."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the file, which identifies it."""
    components: list[str] = field(default_factory=list)
    """Family and kind of each component, such as `filter few_words`."""


class OtherPluginError(UserError):
    """A run or checkpoint was made with another version of a plugin."""


_loaded: dict[str, tuple[Plugin, bytes]] = {}
"""The plugins that this process has run, and their content, by SHA-256."""
_origins: dict[type[Any], Plugin] = {}
"""The plugin of each component that comes from one."""


def load(name: str, what: str, *, base: Path | None = None, is_copy: bool = False) -> Plugin:
    """Run a plugin file, once per process, and register its components. They replace those of an earlier version.

    Args:
        name: path of the file; `~` is the home folder.
        what: the option or field that names it, for messages.
        base: folder that a relative path is relative to; by default the current one.
        is_copy: whether its name contains its hash.

    Raises:
        FileError: the file cannot be read.
        UserError: it raises an error, registers no valid component, or registers a kind that already exists; or it is a
            copy that has been changed.
    """
    with naming(what):
        path = ((base or Path.cwd()) / expand(name)).absolute()
        try:
            content = read_bytes(path)
        except FileNotFoundError as error:
            raise FileError(f"{str(path)!r}: no such file; give a Python file") from error
    if is_copy and not path.stem.endswith(hashlib.sha256(content).hexdigest()[:16]):
        raise UserError(f"plugin {str(path)!r}: has been changed since the run was started; start it again")
    return _run(str(path), content)


def _run(file: str, content: bytes) -> Plugin:
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 in _loaded:
        return dataclasses.replace(_loaded[sha256][0], file=file)
    for family in FAMILIES:  # ours first, so that the error about a kind that exists names the plugin
        kinds(family)
    before = registered()
    kept = registered(leaving_out={c for c, plugin in _origins.items() if plugin.file == file})
    module = types.ModuleType(f"zeromt_plugin_{sha256[:16]}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses, pydantic and pickle look up names in the module
    try:
        restore(kept)
        exec(compile(content, file, "exec", dont_inherit=True), module.__dict__)
        made = [c for family, known in registered().items() for kind, c in known.items() if kind not in kept[family]]
        if not made:
            raise UserError("registers no component; write a class under @component(FAMILY, KIND)")
        for component in made:
            check(component)
    except BaseException as error:
        restore(before)
        del sys.modules[module.__name__]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(f"plugin {file!r}: {visible(_described(error, file))}") from error
    plugin = Plugin(file=file, sha256=sha256, components=sorted(map(label, made)))
    for old in [one.sha256 for one, _ in _loaded.values() if one.file == file]:
        del _loaded[old]
    _origins.update(dict.fromkeys(made, plugin))
    _loaded[sha256] = plugin, content
    return plugin


def _described(error: BaseException, file: str) -> str:
    """The error and the line of the file that caused it, as one line."""
    if isinstance(error, UserError):
        return str(error)
    lines = [f"line {f.lineno}: " for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return " ".join(f"cannot be run: {lines[-1] if lines else ''}{type(error).__name__}: {error}".split())


def load_named(names: Sequence[str]) -> list[Plugin]:
    """Load the files that the option `--plugins` names; errors as of `load`."""
    return [load(name, "--plugins") for name in names]


def label(component: type[Any]) -> str:
    """The family and kind of a component."""
    return f"{component.family} {component.kind}"


def origin_of(component: type[Any]) -> Plugin | None:
    """The plugin that a component comes from; None for zeromt's own."""
    return _origins.get(component)


def hashes(plugins: Iterable[Plugin]) -> dict[str, dict[str, str]]:
    """The names and SHA-256 of a run's plugins, under the key `plugins` of a checkpoint's manifest; empty without."""
    digests = {f"{Path(plugin.file).name} ({', '.join(plugin.components)})": plugin.sha256 for plugin in plugins}
    return {"plugins": digests} if digests else {}


def dumps(work: object) -> bytes:
    """Pickle an object for another process, together with the loaded plugins."""
    import pickle

    return pickle.dumps(([(plugin.file, content) for plugin, content in _loaded.values()], pickle.dumps(work)))


def loads(content: bytes) -> Any:
    """Run the plugins that `dumps` has pickled, and unpickle the object."""
    import pickle

    sources, work = pickle.loads(content)
    for file, source in sources:
        _run(file, source)
    return pickle.loads(work)


def copy_of(plugin: Plugin, folder: Path) -> Path:
    """The copy of a plugin in a run's folder: its name contains the hash."""
    end = f"-{plugin.sha256[:16]}"
    word = re.sub(r"[^A-Za-z0-9]+", "_", Path(plugin.file).stem.removesuffix(end))[:80].strip("_") or "plugin"
    return folder / COPIES / f"{word}{end}.py"


def keep_copies(folder: Path, plugins: Iterable[Plugin]) -> None:
    """Copy a run's plugins to its folder, so that a later change of a file does not change the run.

    Raises:
        FileError: a copy cannot be written.
    """
    for plugin in plugins:
        path = copy_of(plugin, folder)
        with naming("output"):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, _loaded[plugin.sha256][1])


def variables(config_name: str, plugins: Sequence[Plugin], folder: Path) -> dict[str, str]:
    """The environment variables with which ranks of a configuration read the copies in the run's folder."""
    copies = [str(copy_of(plugin, folder).absolute()) for plugin in plugins]
    return {VARIABLE: json.dumps([config_name, *copies])} if copies else {}


def plugins_of_run(named: Any, options: Sequence[str], *, config: str, base: Path) -> list[Plugin]:
    """Load the plugins of a run, those of the configuration first; where a launcher made copies, only these.

    Args:
        named: the user's own `plugins`, from a file that a person wrote or from a setting on the command line.
        options: the files that `--plugins` names.
        config: the configuration as the command line names it.
        base: folder that paths in `named` are relative to.

    Raises:
        UserError: `named` is not a list of paths, a file cannot be read or run, or a copy has been changed.
    """
    launched, *copies = json.loads(os.environ.get(VARIABLE, "[null]"))
    if launched == config:
        plugins = [load(copy, VARIABLE, is_copy=True) for copy in copies]
    else:
        plugins = [load(name, f"plugins.{number}", base=base) for number, name in enumerate(_checked(named))]
        plugins += load_named(options)
    return list({plugin.sha256: plugin for plugin in reversed(plugins)}.values())[::-1]


def _checked(named: Any) -> list[str]:
    if not isinstance(named, list):
        raise ConfigError([f"plugins: {named!r}; allowed is a list of Python files, such as [my_filters.py]"])
    problems = []
    for number, item in enumerate(named):
        if isinstance(item, dict) and "file" in item:
            problems.append(f"plugins.{number}: a saved configuration runs no file; add --plugins {item['file']}")
        elif not (isinstance(item, str) and item):
            problems.append(f"plugins.{number}: {item!r}; allowed is the path of a Python file")
    if problems:
        raise ConfigError(problems)
    return named


def check_given(named: Any, where: Path, *, any_version: bool = False) -> None:
    """Check that this process has loaded the plugins that a saved configuration needs.

    Args:
        named: the configuration's `plugins`, which may be anything.
        where: path of the configuration.
        any_version: accept files with other content that have the same components.

    Raises:
        OtherPluginError: a given one has other content.
        UserError: one was not given.
    """
    for item in named if isinstance(named, list) else []:
        fields = item if isinstance(item, dict) else {"file": item}
        listed = fields.get("components")
        needed = list(map(str, listed)) if isinstance(listed, list) else []
        record = Plugin(file=str(fields.get("file")), sha256=str(fields.get("sha256")), components=needed)
        is_there = bool(needed) and set(needed) <= {label(c) for known in registered().values() for c in known.values()}
        if record.sha256 in _loaded or (any_version and is_there):
            continue
        copies = [copy_of(record, folder) for folder in (where.parent, *where.parents[2:3])]
        nearest = next((path for path in copies if path.is_file()), record.file)
        of = f"of the plugin {Path(record.file).name} (SHA-256 {record.sha256})"
        if is_there:
            raise OtherPluginError(
                visible(f"{where}: was made with another version {of}; give that: --plugins {nearest}")
            )
        what = ", ".join(needed) or "a component"
        said = f"{where}: needs {what} {of}, but plugins are run only if you name them; add --plugins {nearest}"
        raise UserError(visible(said))
