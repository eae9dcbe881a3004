"""What is tried of a component of somebody else's."""

from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True, frozen=True)
class Case:
    """A component, and how a configuration chooses it."""

    code: str
    chosen: dict[str, Any]
    """Sections of a configuration."""
