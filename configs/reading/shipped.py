"""Finds configurations by name: the user's files, and those shipped with zeromt."""

import difflib
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from configs.errors import UserError
from configs.process import files

_SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*=")
_COMMANDS = ("help", "prepare", "train", "translate", "evaluate", "launch")
_NEAR = 0.75
"""Likeness, by difflib, from which a name may have been meant."""


def find_config(name: str) -> Path:
    """The YAML file of a run, given by its path or by the name of a shipped one (`tatoeba_demo`).

    Raises:
        UserError: there is no such file; the message lists those that are shipped.
    """
    return find_yaml("CONFIG", name, "configs.runs")


def find_yaml(what: str, name: str, package: str) -> Path:
    """The YAML file of any kind, given by its path or by the name of a shipped one.

    Args:
        what: the argument or option.
        name: as it was given.
        package: with the shipped ones.

    Raises:
        UserError: there is no such file; the message lists those that are shipped.
    """
    path = Path(name)
    with files.naming(what):
        if files.is_file(path):
            return path
    known = shipped(package)
    if name in known:
        return known[name]
    raise _no_yaml(what, name, known)


def _no_yaml(what: str, name: str, known: Iterable[str]) -> UserError:
    """The error of a name that is neither a YAML file's nor of a shipped one: what is there instead, or what is near.

    Args:
        what: the argument or option.
        name: as it was given.
        known: the names of those that are shipped.
    """
    path = Path(name)
    if name in _COMMANDS and not files.is_dir(path):
        word = f"`zeromt {name}` is a command of its own" if name != "help" else "add --help for help"
        return UserError(f"{what}: {name!r} is no YAML file; {word}")
    if files.is_dir(path):
        own = [folder / "config.yaml" for folder in (path.parent.parent, path) if files.is_dir(folder / "checkpoints")]
        if own and files.is_file(own[0]):
            return UserError(f"{what}: {name!r} is a folder; the configuration of its run is {str(own[0])!r}")
    if _SETTING.match(name):
        return UserError(f"{what}: {name!r} is a setting; give the YAML file before the settings")
    beside = [path.with_suffix(suffix) for suffix in (".yaml", ".yml") if path.name]
    near = [str(one) for one in beside if files.is_file(one)] or difflib.get_close_matches(name, known, 1, _NEAR)
    meant = f"did you mean {near[0]!r}? Else give" if near else "give"
    return UserError(f"{what}: no such file: {name!r}; {meant} a YAML file or one of {', '.join(known)}")


def find_preset(name: object) -> Path:
    """The YAML file of a preset.

    Raises:
        UserError: there is no preset of this name; the message lists those that are shipped.
    """
    known = shipped("configs.presets")
    if isinstance(name, str) and name in known:
        return known[name]
    near = difflib.get_close_matches(name.removesuffix(".yaml"), known, 1, _NEAR) if isinstance(name, str) else []
    meant = f"did you mean {near[0]}? There are" if near else "use one of"
    raise UserError(f"preset: there is no preset {name!r}; {meant} {', '.join(known)}")


def shipped_presets() -> list[str]:
    """The names of all presets."""
    return list(shipped("configs.presets"))


def shipped(package: str) -> dict[str, Path]:
    """The YAML files of a package by name, sorted."""
    files = (p for p in resources.files(package).iterdir() if p.name.endswith(".yaml"))
    return {p.name.removesuffix(".yaml"): Path(str(p)) for p in sorted(files, key=lambda p: p.name)}
