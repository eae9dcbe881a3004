"""The type of a monkey patch; see `patches`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True, slots=True, frozen=True)
class Patch:
    """A monkey patch of another package."""

    target: str
    """What is changed."""
    versions: str
    """The package and version that it was written for."""
    reason: str
    apply: Callable[..., Any]
    """Applies the patch to its argument; `WITHOUT_COMPILER` only for the duration of a `with` block."""
