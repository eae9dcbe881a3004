"""Reads a configuration: defaults < preset < YAML < `section.key=value`. It is validated and saved as a whole."""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from configs.errors import ConfigError, UserError
from configs.model import ModelSection
from configs.plugins import OtherPluginError, PluginError, another_file, installed, loaded, missing, pinned
from configs.plugins.of_run import plugins_of_run
from configs.process import files
from configs.process.files.inside import write_text
from configs.reading.interpolations import as_plain_text, refuse_unread, with_variables
from configs.reading.own_files import other_kind
from configs.reading.scalars import Texts, as_written, number_problems, place_of
from configs.reading.sections import expanded, unknown_keys, without_leftovers, without_unknown
from configs.reading.shipped import find_config, find_preset
from configs.reading.tree import Tree, dotted
from configs.schema import RunConfig

RUN_CONFIG = "config.yaml"
"""The resolved configuration in a run's folder."""
RUN_FILES = ("checkpoints", "status.json", "metrics.jsonl")
"""Files beside it, by which it is distinguished from a configuration that a person wrote."""
CHECKPOINT_FILE = "manifest.json"
_SECTIONS = ("name", "output", "prepare", "stream", "model", "loss", "optimizer", "schedule", "engine", "training")


def load_run(
    name: str,
    overrides: Sequence[str] = (),
    *,
    plugins: Sequence[str] = (),
) -> RunConfig:
    """Read a run's configuration: defaults < preset < YAML < overrides.

    The key `preset` of the file or of an override names the preset; the result holds the merged values, not its name.
    The plugins given here are run, and those that the file names, unless it is the saved configuration of a run.

    Args:
        name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings, of which the last one wins. Values are read as YAML.
        plugins: further files with components.

    Raises:
        ConfigError: the configuration has errors; the message has a line for each.
        UserError: the file, or a plugin, cannot be read.
    """
    path, what = find_config(name), f"CONFIG: {name}"
    tree = Tree.read(path, what=what, is_saved=is_resolved_one(path))
    saved = (path, tree.take_plain("plugins", [], what=what)) if is_resolved_one(path) else None
    _merge(tree, path, overrides, what=what)
    named = tree.take_plain("plugins", [], what=what)
    base = path.parent if path == Path(name) else Path.cwd()
    run_plugins = plugins_of_run(named, plugins, base=base, saved=saved, pins=pinned(name, os.environ))
    if saved is not None:
        refuse_unread(tree.node, what=what)
    plain = _current(tree, RunConfig, what=what)
    config = parse_run({**plain, "plugins": list(map(dataclasses.asdict, run_plugins))}, tree.texts)
    config = dataclasses.replace(config, plugins=[*run_plugins, *installed(config)])
    marked: RunConfig = with_variables(config, tree.variables())
    return marked


def load_saved(path: Path, *, any_version: bool = False) -> RunConfig:
    """Read the resolved configuration of a run or checkpoint. The plugins that it names are not run.

    Args:
        any_version: accept plugins whose content differs from that of the run's.

    Raises:
        PluginError: a plugin that it needs was not given.
        OtherPluginError: a given plugin has different content.
        UserError: the file cannot be read.
    """
    tree = Tree.read(path, what=str(path), is_saved=True)
    _merge(tree, path, (), what=str(path))
    named = tree.take_plain("plugins", [], what=str(path))
    if problems := list(missing(named, loaded(), path)):
        raise PluginError("\n".join(problems))
    if problems := [] if any_version else list(another_file(named, loaded(), path)):
        raise OtherPluginError("\n".join(problems))
    config = parse_run({**_current(tree, RunConfig, what=str(path)), "plugins": named}, tree.texts)
    marked: RunConfig = with_variables(config, tree.variables())  # a password that someone has written there
    return marked


def _merge(tree: Tree, path: Path, overrides: Sequence[str], *, what: str) -> None:
    """Merge a file's tree with the overrides, which replace its values, and with its preset, which it replaces."""
    plain = cast("dict[Any, Any]", OmegaConf.to_container(tree.node, resolve=False))
    if (said := other_kind(plain, "run", str(path))) is not None:
        raise UserError(f"{what}: {said}")
    if "name" not in tree.node:
        tree.node["name"] = path.stem
    if is_of_a_run(path, tree.node):  # the run's folder may have been moved: it resumes where it is now
        here = path.parent.absolute()
        here = here.resolve() if ".." in here.parts else here
        if Path(str(tree.node["output"]), str(tree.node["name"])).resolve() != here.resolve():
            tree.node["output"], tree.node["name"] = str(here.parent), here.name
    for item in overrides:
        tree.put(item)
    preset = tree.take("preset", what=what)
    if preset is not None:
        tree.put_below(_read_preset(preset), what=what)


def is_of_a_run(path: Path, tree: Mapping[Any, Any]) -> bool:
    """Whether a file is the resolved configuration in a run's own folder.

    Args:
        path: path of the file.
        tree: its content.
    """
    is_in_run = any(files.exists(path.parent / name) for name in RUN_FILES)
    return path.name == RUN_CONFIG and is_resolved(tree) and is_in_run


def is_resolved(tree: Mapping[Any, Any]) -> bool:
    """Whether a configuration has all sections, as those written by zeromt have; people omit most of them."""
    return set(_SECTIONS) <= set(tree)


def is_resolved_one(path: Path) -> bool:
    """Whether a file is the saved configuration of a run, a checkpoint or an export; symbolic links are followed."""
    return _is_beside(path) or _is_beside(path.resolve())


def _is_beside(path: Path) -> bool:
    """Whether a configuration is beside what a run, a checkpoint or an export holds."""
    beside = (*RUN_FILES, CHECKPOINT_FILE, "model.safetensors")
    return path.name == RUN_CONFIG and any(files.exists(path.parent / name) for name in beside)


def preset_model(preset: str, *changes: Mapping[str, Any]) -> ModelSection:
    """The section `model` of a preset, changed by each of `changes` in turn; see `model_section`.

    Raises:
        UserError: there is no such preset.
        ConfigError: the section has errors; the message has a line for each.
    """
    tree = _read_preset(preset)
    for change in changes:
        tree.put_values({"model": dict(change)})
    return _model_of(tree)


def model_section(**fields: Any) -> ModelSection:
    """The section `model` with these fields, given as in a YAML file.

    Raises:
        ConfigError: the section has errors; the message has a line for each.
    """
    tree = Tree.empty()
    tree.put_values({"model": fields})
    return _model_of(tree)


def parse_run(tree: dict[str, Any], texts: Texts | None = None) -> RunConfig:
    """Validate a configuration that consists of plain dictionaries, and make it typed.

    Args:
        tree: the given values.
        texts: how the values were written in YAML, if they were read from it.

    Raises:
        ConfigError: the configuration has errors; the message has a line for each.
    """
    config: RunConfig = parse_tree(tree, RunConfig, texts)
    return config


def parse_tree(tree: dict[str, Any], type_: Any, texts: Texts | None = None) -> Any:
    """Like `parse_run`, for a section of any type.

    Raises:
        ConfigError: the section has errors; the message has a line for each.
    """
    texts = texts or {}
    tree = expanded(tree, type_)
    unknown = list(unknown_keys(tree, type_, ""))
    problems = list(unknown)
    adapter = _adapter(type_)  # made only once, because that takes longer than using it
    known = as_written(without_unknown(tree, type_), texts, lambda given: _errors(adapter, given))
    odd_numbers = dict(number_problems(known, texts))
    try:
        config = _typed(adapter, known)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems += [_described(e, texts) for e in errors]
        problems += [line for place, line in odd_numbers.items() if place not in map(place_of, errors)]
        broken = {str(e["loc"][0]) for e in errors if e["loc"]}
        for section in dataclasses.fields(type_):  # valid sections still report rules between their own fields
            if section.name in known and section.name not in broken and dataclasses.is_dataclass(section.type):
                problems += _section_problems(_typed(_adapter(section.type), known[section.name]), section.name)
        raise ConfigError(problems) from error
    problems += [*odd_numbers.values(), *_without_consequences(unknown, _section_problems(config, ""))]
    if problems:
        raise ConfigError(problems)
    return config


def _without_consequences(unknown: Sequence[str], problems: Iterable[str]) -> Iterator[str]:
    """Problems, except those of list items that have an unknown key, which is usually the cause of their problems."""
    items = {line.partition(":")[0].rpartition(".")[0] for line in unknown}
    for line in problems:
        place = line.partition(":")[0].rpartition(".")[0]
        if not (place in items and place.rpartition(".")[2].isdecimal()):
            yield line


def _read_preset(preset: object) -> Tree:
    return Tree.read(find_preset(preset), what=f"preset: {preset}")


def _current(tree: Tree, type_: Any, *, what: str) -> dict[str, Any]:
    """A tree's values as plain dictionaries, without fields of kinds that a higher layer has replaced."""
    plain: dict[str, Any] = without_leftovers(expanded(tree.plain(what=what), type_), type_, tree.leftovers)
    return plain


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class _Model:
    """A configuration that has only the section `model`."""

    model: ModelSection


def _model_of(tree: Tree) -> ModelSection:
    parsed: _Model = parse_tree({"model": _current(tree, _Model, what="model").get("model", {})}, _Model)
    return parsed.model


def save_run(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as YAML."""
    write_text(path, dump_run(config))


def dump_run(config: RunConfig) -> str:
    """The resolved configuration as YAML, without values of environment variables and passwords in URLs."""
    tree = to_jsonable_python(as_plain_text(dataclasses.asdict(config), is_raw=False))
    if not config.phases:
        del tree["phases"]
    return OmegaConf.to_yaml(OmegaConf.create(tree))


def _section_problems(section: Any, where: str) -> list[str]:
    """Problems of a section and of its subsections, each beginning with the path of a field."""
    prefix = f"{where}." if where else ""
    problems = [prefix + p for p in section.problems()] if hasattr(section, "problems") else []
    for f in dataclasses.fields(section):
        value = getattr(section, f.name)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, item in [(None, value), *items]:
            if dataclasses.is_dataclass(item):
                problems += _section_problems(item, prefix + (f.name if name is None else dotted((f.name, name))))
    return problems


def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


def _typed(adapter: TypeAdapter[Any], tree: Any) -> Any:
    """The validated tree. It goes through JSON, since strict mode then takes mappings, but no text for numbers."""
    return adapter.validate_json(json.dumps(tree))


def _errors(adapter: TypeAdapter[Any], tree: Any) -> list[Any]:
    """Pydantic's errors for a tree."""
    try:
        _typed(adapter, tree)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    return []


_SECTIONS_WANTED = ("dataclass_type", "dataclass_exact_type", "dict_type")
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "float_type": "a number",
}


def _described(error: Any, texts: Texts | None = None) -> str:
    """The line for one of pydantic's errors: field, value and what is allowed.

    Args:
        error: it, as a mapping.
        texts: how plain scalars were written.
    """
    place = place_of(error)
    where = dotted(place)
    value = error["input"]
    if isinstance(value, dict):
        shown = "a section"
    elif value is None or isinstance(value, bool):
        shown = json.dumps(value)  # as YAML writes it
    else:
        shown = repr(value)
    if error["type"] == "value_error":
        return f"{where}: {error['ctx']['error']}"
    if error["type"] == "missing":
        return f"{where}: missing; give it a value"
    if error["type"] == "unexpected_keyword_argument":
        return f"{where}: unknown key"
    if error["type"].startswith("union_tag") and isinstance(value, dict):
        if "kind" not in value:
            return f"{where}.kind: missing; name a kind"
        return f"{where}.kind: {value['kind']!r}; allowed is the name of a kind"
    if error["type"] in _SECTIONS_WANTED or error["type"].startswith("union_tag"):
        return f"{where}: {shown}; write a section with keys"
    if error["type"] == "string_pattern_mismatch":
        return f"{where}: {shown}; allowed is text that matches {error['ctx']['pattern']}"
    if error["type"] == "string_type" and isinstance(value, bool | int | float):
        return f"{where}: {shown}; allowed is text: put it in quotes, '{(texts or {}).get(place, shown)}'"
    if error["type"] in ("int_from_float", "int_type") and isinstance(value, float) and value.is_integer():
        return f"{where}: {shown}; allowed is a whole number, such as {int(value)}"
    if error["type"] == "list_type" and isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
        return f"{where}: {shown}; allowed is a list, such as [{value}]"
    message = _TYPES.get(error["type"]) or re.sub(r"^(Input should be|[A-Z]\w+ should have) ", "", error["msg"])
    return f"{where}: {shown}; allowed is {message}"
