"""Components that a configuration chooses by their kinds: the registry, and what each family's components are."""

from configs.components.registry import Choice, Component, choice_of, component, kinds, make, unknown
from configs.components.schedule import Schedule

__all__ = ["Choice", "Component", "Schedule", "choice_of", "component", "kinds", "make", "unknown"]
