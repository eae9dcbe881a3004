"""What pyproject.toml and constraints.txt ask for."""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

from installation.errors import InstallationError

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
BUILDING = ("numpy", "setuptools>=77", "wheel")
"""What building DeepSpeed and zeromt needs; both are built with what is installed."""
DEEPSPEED_VARIABLES = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"}
"""DeepSpeed's build compiles nothing, and asks for no CUDA toolkit, which machines with GPUs need not have."""


def normalized(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """constraints.txt: versions by normalized names."""
    lines = [line.strip() for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()]
    named = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {normalized(name): version for name, version in named}


def constraints_without(names: Collection[str]) -> str:
    """The text of constraints.txt without these packages, whose names are normalized."""
    return "".join(f"{name}=={version}\n" for name, version in pins().items() if name not in names)


def requirements(extras: str) -> list[str]:
    """What zeromt with these extras ("[export,gpu]", or nothing) requires, with zeromt's own extras resolved.

    Raises:
        InstallationError: there is no such extra.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = list(project["dependencies"])
    waiting = re.findall(r"[\w-]+", extras)
    for extra in waiting:  # it grows
        if extra not in project["optional-dependencies"]:
            raise InstallationError(f"EXTRAS: {extra!r} is none of {', '.join(project['optional-dependencies'])}")
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(r"zeromt\[(.+)\]", requirement)
            if own:
                waiting += own[1].split(",")
            else:
                found.append(requirement)
    return found
