"""Finds configurations by name: the user's files, and those shipped with zeromt."""

import difflib
from importlib import resources
from pathlib import Path

from configs.components import unknown
from configs.errors import UserError
from configs.process import files

_NEAR = 0.75
"""Likeness, by difflib, from which a name may have been meant."""


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
    if files.is_dir(path):
        raise UserError(f"{what}: {name!r} is a folder; give a YAML file, such as config.yaml in that of a run")
    near = [str(path.with_suffix(".yaml"))] if path.name and files.is_file(path.with_suffix(".yaml")) else []
    near = near or difflib.get_close_matches(name, known, 1, _NEAR)
    meant = f"did you mean {near[0]!r}? Else give" if near else "give"
    raise UserError(f"{what}: no such file: {name!r}; {meant} a YAML file or one of {', '.join(known)}")


def find_preset(name: object) -> Path:
    """The YAML file of a preset.

    Raises:
        UserError: there is no preset of this name; the message lists those that are shipped.
    """
    known = shipped("configs.presets")
    if isinstance(name, str) and name in known:
        return known[name]
    raise UserError(f"preset: {unknown(name, known, what='preset')}")


def shipped(package: str) -> dict[str, Path]:
    """The YAML files of a package by name, sorted."""
    files = (p for p in resources.files(package).iterdir() if p.name.endswith(".yaml"))
    return {p.name.removesuffix(".yaml"): Path(str(p)) for p in sorted(files, key=lambda p: p.name)}
