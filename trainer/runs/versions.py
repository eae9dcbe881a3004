"""Versions of the packages that have a part in the result, as every checkpoint notes them."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

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
