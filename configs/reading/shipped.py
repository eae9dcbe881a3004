"""Finds configurations by name: the user's files, and those shipped with zeromt."""

from importlib import resources
from pathlib import Path

from configs.errors import UserError
from configs.process import files


def find_config(name: str) -> Path:
    """The YAML file of a run, given by its path or by the name of a shipped one (`tatoeba_demo`).

    Raises:
        UserError: there is no such file; the message lists those that are shipped.
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
        UserError: there is no preset of this name; the message lists those that are shipped.
    """
    known = shipped("configs.presets")
    if isinstance(name, str) and name in known:
        return known[name]
    raise UserError(f"preset: there is no preset {name!r}; use one of {', '.join(known)}")


def shipped_presets() -> list[str]:
    """The names of all presets."""
    return list(shipped("configs.presets"))


def shipped(package: str) -> dict[str, Path]:
    """The YAML files of a package by name, sorted."""
    files = (p for p in resources.files(package).iterdir() if p.name.endswith(".yaml"))
    return {p.name.removesuffix(".yaml"): Path(str(p)) for p in sorted(files, key=lambda p: p.name)}
