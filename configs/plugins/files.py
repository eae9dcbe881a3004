"""Reads and runs plugin files. Each is read once, so that the same bytes are hashed, run, copied and sent on."""

import dataclasses
import hashlib
import importlib.util
import re
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.components.registry import FAMILIES, check, kinds, registered, restore
from configs.errors import UserError
from configs.plugins.record import Plugin, label, origins
from configs.process.files import FileError, expand, explain
from configs.process.files.inside import read_bytes
from configs.process.text import visible

_NO_WORD = re.compile(r"[^A-Za-z0-9]+")


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
        FileError: the file cannot be read, or imports modules from its own folder.
    """
    try:
        path = ((base or Path.cwd()) / expand(name)).absolute()
        str(path).encode()
        content = read_bytes(path)
    except FileError as error:
        raise FileError(f"{what}: {error}") from error
    except UnicodeEncodeError as error:
        raise FileError(f"{what}: {name!r}: the name is not UTF-8; give the file one that is") from error
    except FileNotFoundError as error:
        raise FileError(f"{what}: {str(path)!r}: no such file; give a Python file") from error
    except OSError as error:
        raise FileError(f"{what}: {name!r}: {explain(error)}") from error
    source = Source(str(path), content)
    if (sibling := next(_siblings(source), None)) is not None:
        raise FileError(
            f"{what}: {str(path)!r} imports {sibling} from its own folder, but a plugin must be a single file; "
            f"put {sibling} into it, or install both as a package with an entry point (zeromt.plugins)"
        )
    return source


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
    module = types.ModuleType(f"zeromt_plugin_{_word(source.file)}_{source.sha256[:12]}")
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


def copy_name(plugin: Plugin) -> str:
    """The name of the copy of a plugin file in the run's folder."""
    return f"{_word(str(plugin.file))}-{str(plugin.sha256)[:16]}.py"


def _word(file: str) -> str:
    return _NO_WORD.sub("_", Path(file).stem)[:80].strip("_") or "plugin"


def _siblings(source: Source) -> Iterator[str]:
    """Modules that the file imports from its own folder and that cannot be imported from elsewhere."""
    import ast  # imported late: most commands read a configuration, but few load a plugin

    folder = Path(source.file).parent
    try:
        nodes = list(ast.walk(ast.parse(source.content)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # reported when the file is run
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in (name.partition(".")[0] for name in names):
            beside = [folder / f"{name}.py", folder / name / "__init__.py"]
            if any(path.is_file() for path in beside) and not _is_elsewhere(name, folder):
                yield name


def _is_elsewhere(name: str, folder: Path) -> bool:
    """Whether a module can be imported from outside this folder."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return True
    if spec is None:
        return False
    return (
        not spec.has_location
        or spec.origin is None
        or folder.resolve()
        not in (
            Path(spec.origin).resolve().parent,
            Path(spec.origin).resolve().parent.parent,
        )
    )


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
