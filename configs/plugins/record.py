"""The record of plugins in a resolved configuration."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from configs.components.registry import ENTRY_POINTS, FAMILIES, Component
from configs.fields import STRICT

_OURS = frozenset({"configs", *(package.partition(".")[0] for package in FAMILIES.values())})
"""Top-level packages that contain zeromt's own components."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Plugin:
    """The origin of components that are not zeromt's own: a plugin file, or an installed package."""

    __pydantic_config__ = STRICT

    file: str | None = None
    """Absolute path of the file that the user named."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the file, which identifies it."""
    package: str | None = None
    """Name and version of the installed package."""
    components: list[str] = field(default_factory=list)
    """Family and kind of each component, such as `filter few_words`; of a package, only those that the run uses."""


def hashes(plugins: Iterable[Plugin]) -> dict[str, dict[str, str]]:
    """The names and SHA-256 of plugin files, under the key `plugins` of a checkpoint's manifest; empty without any.

    Args:
        plugins: the run's plugins.
    """
    digests = {f"{Path(p.file).name} ({', '.join(p.components)})": str(p.sha256) for p in plugins if p.file is not None}
    return {"plugins": digests} if digests else {}


def label(component: type[Any]) -> str:
    """The family and kind of a component."""
    return f"{component.family} {component.kind}"


def origin_of(component: type[Any]) -> Plugin | None:
    """The origin of a component; None for zeromt's own."""
    if (origin := origins.get(component)) is not None:
        return origin
    top = component.__module__.partition(".")[0]
    if top in _OURS:
        return None
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.module.partition(".")[0] == top and entry.dist is not None:
            return Plugin(package=f"{entry.dist.name} {entry.dist.version}")
    return None


def used(section: Any) -> Iterator[Component]:
    """Every component in a section and its subsections."""
    if isinstance(section, Component):
        yield section
    if dataclasses.is_dataclass(section):
        for one in dataclasses.fields(section):
            yield from used(getattr(section, one.name))
    elif isinstance(section, list):
        for item in section:
            yield from used(item)


def installed(section: Any) -> list[Plugin]:
    """The installed packages that the components of a section come from."""
    labels: dict[str, set[str]] = {}
    for component in used(section):
        origin = origin_of(type(component))
        if origin is not None and origin.package is not None:
            labels.setdefault(origin.package, set()).add(label(type(component)))
    return [Plugin(package=package, components=sorted(labels[package])) for package in sorted(labels)]


origins: dict[type[Any], Plugin] = {}
"""The plugin file of each component that comes from one."""
