"""Versions of the packages that have a part in the result, as every checkpoint notes them."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "deepspeed", "webdataset", "sentencepiece", "sacrebleu", "safetensors")


def versions(packages: Sequence[str] = PACKAGES) -> Mapping[str, str]:
    """By package."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
