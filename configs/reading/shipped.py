"""Configurations that are named: files of the user's, and those that are shipped with zeromt."""

from importlib import resources
from pathlib import Path

from configs import files
from configs.errors import UserError


def find_config(name: str) -> Path:
    """The YAML file of a run: a path, or the name of one that is shipped (`tatoeba_demo`).

    Raises:
        UserError: there is no such file; the message names those that are shipped.
    """
    path = Path(name)
    with files.naming("CONFIG"):
        if files.is_file(path):
            return path
    known = shipped("configs.runs")
    if name in known:
        return known[name]
    raise UserError(f"CONFIG: no such file: {name!r}; give a YAML file or one of {', '.join(known)}")


def find_preset(name: object) -> Path:
    """The YAML file of a preset.

    Raises:
        UserError: there is none of this name; the message names those that are shipped.
    """
    known = shipped("configs.presets")
    if isinstance(name, str) and name in known:
        return known[name]
    raise UserError(f"preset: {name!r}; allowed is one of {', '.join(known)}")


def shipped_presets() -> list[str]:
    """The names of the presets."""
    return list(shipped("configs.presets"))


def shipped(package: str) -> dict[str, Path]:
    """The YAML files of a package by their names, sorted."""
    files = (p for p in resources.files(package).iterdir() if p.name.endswith(".yaml"))
    return {p.name.removesuffix(".yaml"): Path(str(p)) for p in sorted(files, key=lambda p: p.name)}
