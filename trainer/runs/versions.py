"""Versions of the packages that have a part in the result, as every checkpoint notes them."""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "deepspeed", "webdataset", "sentencepiece", "sacrebleu", "safetensors")


def versions(packages: Sequence[str] = PACKAGES) -> Mapping[str, str]:
    """By package."""
    by_package = {}
    for name in packages:
        try:
            by_package[name] = version(name)
        except PackageNotFoundError:
            by_package[name] = "unknown"
    return by_package


def source_commit() -> str | None:
    """The commit of the source tree that this runs from, `-dirty` with changes; None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
    return None
