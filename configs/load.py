"""Reads a configuration: defaults < preset < YAML < `section.key=value`. It is validated and saved as a whole."""

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from configs.errors import ConfigError, UserError
from configs.model import ModelSection
from configs.plugins import check_given, plugins_of_run
from configs.process import files
from configs.process.files.inside import write_text
from configs.reading.layers import Layers
from configs.reading.own_files import other_kind
from configs.reading.sections import Fitting
from configs.reading.shipped import find_config, find_preset
from configs.reading.variables import FromEnvironment, Place, as_saved, dotted, escaped, leaves, remembering
from configs.schema import RunConfig

RUN_CONFIG = "config.yaml"
"""The resolved configuration in a run's folder."""
RUN_FILES = ("checkpoints", "status.json", "metrics.jsonl")
"""Files beside it, by which it is distinguished from a configuration that a person wrote."""
CHECKPOINT_FILE = "manifest.json"
_SECTIONS = ("name", "output", "prepare", "stream", "model", "loss", "optimizer", "schedule", "engine", "training")


def load_run(name: str, overrides: Sequence[str] = (), *, plugins: Sequence[str] = ()) -> RunConfig:
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
    is_saved = is_resolved_one(path)
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
    if (said := other_kind(values, "run", str(path))) is not None:
        raise UserError(f"{what}: {said}")
    values.setdefault("name", path.stem)
    if is_of_a_run(path, values):  # the run's folder may have been moved: it resumes where it is now
        here = path.parent.absolute()
        here = here.resolve() if ".." in here.parts else here
        if Path(str(values["output"]), str(values["name"])).resolve() != here.resolve():
            values["output"], values["name"] = str(here.parent), here.name
    for item in overrides:
        layers.put(item)
    preset = layers.values.pop("preset", None)
    if preset is not None:
        layers.put_below(_read_preset(preset).values)


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
    layers = _read_preset(preset)
    for change in changes:
        layers.put_values({"model": dict(change)})
    return _model_of(layers)


def model_section(**fields: Any) -> ModelSection:
    """The section `model` with these fields, given as in a YAML file.

    Raises:
        ConfigError: the section has errors; the message has a line for each.
    """
    return _model_of(Layers({"model": fields}))


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class _Model:
    """A configuration that has only the section `model`."""

    model: ModelSection


def _model_of(layers: Layers) -> ModelSection:
    tree = {"model": layers.resolved(what="model").get("model", {})}
    parsed: _Model = parse_tree(tree, _Model, layers.leftovers)
    return parsed.model


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
    unknown = {line.partition(":")[0].rpartition(".")[0] for line in problems}
    for line in _problems_of(config):
        item = line.partition(":")[0].rpartition(".")[0]
        if not (item in unknown and item.rpartition(".")[2].isdecimal()):  # of which the unknown key is the cause
            problems.append(line)
    if problems:
        raise ConfigError(problems)
    return config


def _typed(type_: Any, tree: Any) -> Any:
    """The validated tree. It goes through JSON, since strict mode then takes mappings, but no text for numbers."""
    return TypeAdapter(type_).validate_json(json.dumps(tree))


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
    if error["type"].startswith("union_tag") and isinstance(value, dict):
        said = f"{value['kind']!r}; allowed is the name of a kind" if "kind" in value else "missing; name a kind"
        return f"{where}.kind: {said}"
    if error["type"] in _SECTIONS_WANTED or error["type"].startswith("union_tag"):
        return f"{where}: {shown}; write a section with keys"
    if error["type"] == "string_pattern_mismatch":
        return f"{where}: {shown}; allowed is text that matches {error['ctx']['pattern']}"
    if error["type"] == "string_type" and isinstance(value, bool | int | float):
        return f"{where}: {shown}; allowed is text: put it in quotes, '{shown}'"
    if error["type"] in ("int_from_float", "int_type") and isinstance(value, float) and value.is_integer():
        return f"{where}: {shown}; allowed is a whole number, such as {int(value)}"
    if error["type"] == "list_type" and isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
        return f"{where}: {shown}; allowed is a list, such as [{value}]"
    message = _TYPES.get(error["type"]) or re.sub(r"^(Input should be|[A-Z]\w+ should have) ", "", error["msg"])
    return f"{where}: {shown}; allowed is {message}"
