"""What is tried of a component of somebody else's."""

from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True, frozen=True)
class Case:
    """A component, how a configuration chooses it, and how its fields are refused."""

    code: str
    chosen: dict[str, Any]
    """Sections of a configuration."""
    wrong: tuple[str, str]
    """A setting, and what is said of it."""
