"""Reads a configuration: defaults < preset < YAML < `section.key=value`. It is validated and saved as a whole."""

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from configs.components.registry import FAMILIES, kinds
from configs.errors import ConfigError, UserError
from configs.model import ModelSection
from configs.plugins import check_given, plugins_of_run
from configs.process import files
from configs.process.files.inside import write_text
from configs.reading.layers import Layers
from configs.reading.sections import Fitting
from configs.reading.shipped import find_preset, find_yaml
from configs.reading.variables import FromEnvironment, Place, as_saved, dotted, escaped, leaves, remembering
from configs.schema import RunConfig

RUN_CONFIG = "config.yaml"
"""The resolved configuration in a run's folder."""
RUN_FILES = ("checkpoints", "status.json", "metrics.jsonl")
"""Files in the same folder that tell it from a configuration that a person wrote."""
CHECKPOINT_FILE = "manifest.json"


def load_run(name: str, overrides: Sequence[str] = (), *, plugins: Sequence[str] = ()) -> RunConfig:
    """Read a run's configuration: defaults < preset < YAML < overrides.

    The key `preset` of the file or of an override names the preset; the result holds the merged values, not its name.
    The plugins given here are run, and those that the file names, unless it is the saved configuration of a run.

    Args:
        name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings; the last one wins. Values are read as YAML.
        plugins: further files with components.

    Raises:
        ConfigError: the configuration has errors; the message has a line for each.
        UserError: the file, or a plugin, cannot be read.
    """
    path, what = find_yaml("CONFIG", name, "configs.runs"), f"CONFIG: {name}"
    is_saved = any(_is_beside(one, *RUN_FILES, CHECKPOINT_FILE, "model.safetensors") for one in (path, path.resolve()))
    layers = Layers.read(path, what=what, is_saved=is_saved)
    saved = layers.values.pop("plugins", []) if is_saved else []
    _merge(layers, path, overrides, what=what)
    named = layers.values.pop("plugins", [])
    base = path.parent if path == Path(name) else Path.cwd()
    run_plugins = plugins_of_run(named, plugins, config=name, base=base)
    check_given(saved, path, any_version=True)
    for place, text in leaves(layers.values):
        if isinstance(text, FromEnvironment):
            key = dotted(place)
            raise UserError(f"{what}: {key}: a saved configuration keeps no value of {text}; give it: {key}=VALUE")
    tree = {**layers.resolved(what=what), "plugins": list(map(dataclasses.asdict, run_plugins))}
    return parse_run(tree, layers.leftovers)


def load_saved(path: Path, *, any_version: bool = False) -> RunConfig:
    """Read the resolved configuration of a run or checkpoint. The plugins that it names are not run.

    Args:
        any_version: accept plugins whose content differs from that of the run's.

    Raises:
        OtherPluginError: a given plugin has different content.
        UserError: a plugin that it needs was not given, or the file cannot be read.
    """
    layers = Layers.read(path, what=str(path), is_saved=True)
    _merge(layers, path, (), what=str(path))
    named = layers.values.pop("plugins", [])
    check_given(named, path, any_version=any_version)
    return parse_run({**layers.resolved(what=str(path)), "plugins": named})


def _merge(layers: Layers, path: Path, overrides: Sequence[str], *, what: str) -> None:
    """Merge a file's values with the overrides, which replace them, and with its preset, which they replace."""
    values = layers.values
    values.setdefault("name", path.stem)
    is_whole = {"prepare", "stream", "model", "schedule", "engine"} <= values.keys()  # people omit most sections
    if is_whole and _is_beside(path, *RUN_FILES):  # the run's folder may have been moved: it resumes where it is now
        here = path.parent.absolute()
        here = here.resolve() if ".." in here.parts else here
        if Path(str(values.get("output")), str(values["name"])).resolve() != here.resolve():
            values["output"], values["name"] = str(here.parent), here.name
    for item in overrides:
        layers.put(item)
    preset = layers.values.pop("preset", None)
    if preset is not None:
        layers.put_below(_read_preset(preset).values)


def _is_beside(path: Path, *names: str) -> bool:
    """Whether a file is the configuration of a run, a checkpoint or an export, by the files in its folder."""
    return path.name == RUN_CONFIG and any(files.exists(path.parent / name) for name in names)


def preset_model(preset: str | None, *changes: Mapping[str, Any]) -> ModelSection:
    """The section `model` of a preset, or of none, changed by each of `changes` in turn, given as in a YAML file.

    Raises:
        UserError: there is no such preset.
        ConfigError: the section has errors; the message has a line for each.
    """
    layers = Layers() if preset is None else _read_preset(preset)
    for change in changes:
        layers.put_values({"model": dict(change)})
    tree = {"model": layers.resolved(what="model").get("model", {})}
    parsed: _Model = parse_tree(tree, _Model, layers.leftovers)
    return parsed.model


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class _Model:
    """A configuration that has only the section `model`."""

    model: ModelSection


def _read_preset(preset: object) -> Layers:
    return Layers.read(find_preset(preset), what=f"preset: {preset}")


def parse_run(tree: dict[str, Any], leftovers: Collection[Place] = ()) -> RunConfig:
    """Validate a configuration that consists of plain dictionaries, and make it typed.

    Args:
        tree: the given values.
        leftovers: see `Layers`.

    Raises:
        ConfigError: the configuration has errors; the message has a line for each.
    """
    config: RunConfig = parse_tree(tree, RunConfig, leftovers)
    return config


def parse_tree(tree: dict[str, Any], type_: Any, leftovers: Collection[Place] = ()) -> Any:
    """Like `parse_run`, for a section of any type.

    Raises:
        ConfigError: the section has errors; the message has a line for each.
    """
    config = _parsed(tree, type_, leftovers)
    if not any(isinstance(text, FromEnvironment) for _, text in leaves(tree)):
        return config
    # what is saved must be readable again: a variable can only be where any text can
    return remembering(config, _parsed(as_saved(tree), type_, leftovers))


def _parsed(tree: dict[str, Any], type_: Any, leftovers: Collection[Place]) -> Any:
    fitting = Fitting(leftovers)
    known = fitting.fitted(tree, type_)
    problems = fitting.problems
    try:
        config = _typed(type_, known)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems += _described_all(errors, known)
        broken = {str(e["loc"][0]) for e in errors if e["loc"]}
        for section in dataclasses.fields(type_):  # valid sections still report rules between their own fields
            if section.name in known and section.name not in broken and dataclasses.is_dataclass(section.type):
                problems += _problems_of(_typed(section.type, known[section.name]), section.name)
        raise ConfigError(problems) from error
    problems += _problems_of(config)
    if problems:
        raise ConfigError(problems)
    return config


def _typed(type_: Any, tree: Any) -> Any:
    """The validated tree. It goes through JSON, since strict mode then takes mappings, but no text for numbers."""
    known = frozenset(c for family in FAMILIES for c in kinds(family).values())
    return _adapter(type_, known).validate_json(json.dumps(tree))


@functools.lru_cache(maxsize=8)
def _adapter(type_: Any, _: frozenset[type[Any]]) -> TypeAdapter[Any]:
    """Made once for the registered components, because that takes 0.2 s for a run."""
    return TypeAdapter(type_)


def _problems_of(section: Any, where: str = "") -> list[str]:
    """Problems of a section and of its subsections, each beginning with the path of a field.

    Args:
        section: a dataclass.
        where: its path.
    """
    prefix = f"{where}." if where else ""
    problems = [prefix + p for p in section.problems()] if hasattr(section, "problems") else []
    for f in dataclasses.fields(section):
        value = getattr(section, f.name)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, item in [(None, value), *items]:
            if dataclasses.is_dataclass(item):
                problems += _problems_of(item, prefix + (f.name if name is None else f"{f.name}.{name}"))
    return problems


def save_run(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as YAML."""
    write_text(path, dump_run(config))


def dump_run(config: RunConfig) -> str:
    """The resolved configuration as YAML, without values of environment variables."""
    tree = to_jsonable_python(escaped(dataclasses.asdict(config)))
    if not config.phases:
        del tree["phases"]
    return yaml.dump(tree, Dumper=_Dumper, allow_unicode=True, sort_keys=False, default_flow_style=False)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 reads as anything else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.][0-9_.]*([eE][-+]?[0-9]+)?$"), None)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"0o[0-7]+$"), None)

_SECTIONS_WANTED = ("dataclass_type", "dataclass_exact_type", "dict_type")
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "float_type": "a number",
}


def _described_all(errors: Sequence[Any], tree: Any) -> list[str]:
    """A line for each field with errors; of a field of several types pydantic has an error for each type."""
    lines: dict[Place, str] = {}
    for error in errors:
        place = _place_of(error, tree)
        line = _described(error, dotted(place))
        lines[place] = f"{lines[place]} or {line.partition('allowed is ')[2]}" if place in lines else line
    return list(lines.values())


def _place_of(error: Any, tree: Any) -> Place:
    """Where an error is; pydantic's own place also has names of types and kinds."""
    place: Place = ()
    for step in error["loc"]:
        is_there = (isinstance(tree, dict) and step in tree) or (isinstance(tree, list) and isinstance(step, int))
        if is_there or (error["type"] == "missing" and step == error["loc"][-1]):
            place = (*place, str(step))
            tree = tree[step] if is_there else None
    return place


def _described(error: Any, where: str) -> str:
    """The line for one of pydantic's errors: field, value and what is allowed."""
    value, kind = error["input"], error["type"]
    if kind == "value_error":
        return f"{where}: {error['ctx']['error']}"
    if kind == "missing":
        return f"{where}: missing; give it a value"
    if kind.startswith("union_tag") and isinstance(value, dict):
        said = f"{value['kind']!r}; allowed is the name of a kind" if "kind" in value else "missing; name a kind"
        return f"{where}.kind: {said}"
    shown = "a section" if isinstance(value, dict) else repr(value)
    if value is None or isinstance(value, bool):
        shown = json.dumps(value)  # as YAML writes it
    if kind in _SECTIONS_WANTED or kind.startswith("union_tag"):
        return f"{where}: {shown}; write a section with keys"
    if kind == "string_type":
        return f"{where}: {shown}; allowed is text: put it in quotes, '{shown}'"
    if kind == "string_pattern_mismatch":
        return f"{where}: {shown}; allowed is text that matches {error['ctx']['pattern']}"
    message = _TYPES.get(kind) or re.sub(r"^(Input should be|[A-Z]\w+ should have) ", "", error["msg"])
    return f"{where}: {shown}; allowed is {message}"
