"""What a change to somebody else's code as it runs consists of; see `patches`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True, slots=True, frozen=True)
class Patch:
    """A change to somebody else's code as it runs."""

    target: str
    """What is changed."""
    versions: str
    """Of which package it was written for."""
    reason: str
    apply: Callable[..., Any]
    """Changes what it is given; `WITHOUT_COMPILER` for the time of a `with` block."""
    probe: Callable[[], None]
    """Raises AssertionError, AttributeError or ImportError where the patch has nothing to hold on to."""
