"""Components: what a section of the configuration chooses by `kind:`, each a class with fields of its own.

A *family* is a place in the configuration that takes one of several components: the schedule, a norm, a filter. A
component is a class with typed fields, registered under a kind:

    @component("schedule", "wsd")
    class WarmupStableDecay(Schedule):
        \"\"\"Warm-up, then a constant rate, then a linear decay (Hu et al., 2024).\"\"\"

        decay_updates: Positive

        def factor(self, update: int, last: int) -> float:
            return min(1.0, (last - update) / self.decay_updates)

Its file holds fields, costs and limits, and imports torch only within the functions that need it, so that a plan can be
made where there is no torch. Our own lie in the family's package, in which every module is found by itself; those of
other packages are named by entry points of the group `zeromt.plugins`.
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from configs.errors import UserError
from configs.fields import STRICT

FAMILIES: dict[str, str] = {
    "filter": "data_pipeline.preparation.filters",
    "metric": "trainer.metrics",
    "optimizer": "trainer.optimizers",
    "schedule": "trainer.schedules",
    "tracker": "trainer.trackers",
}
"""The package with our own components of each family."""
ENTRY_POINTS = "zeromt.plugins"

C = TypeVar("C")


@dataclasses.dataclass(kw_only=True, frozen=True)
class Component:
    """What all components have in common."""

    kind: str = ""
    """The name that a configuration chooses it by."""
    family: ClassVar[str] = ""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        return iter(())


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def component(family: str, kind: str) -> Callable[[type[C]], type[C]]:
    """Make a class a component: a frozen dataclass whose fields are checked strictly, chosen by `kind`.

    Args:
        family: one of `FAMILIES`; its base class says what a component of it does.
        kind: its name, which no other component of the family has.

    Raises:
        UserError: another component has this name, or there is no such family.
    """
    if family not in FAMILIES:
        raise UserError(f"component {kind!r}: {unknown(family, FAMILIES, what='family')}")

    def register(cls: type[C]) -> type[C]:
        cls.__annotations__ = {"kind": Literal[kind], **inspect.get_annotations(cls)}
        cls.kind = kind  # type: ignore[attr-defined]
        cls.family = family  # type: ignore[attr-defined]
        cls.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
        made = dataclasses.dataclass(kw_only=True, frozen=True)(cls)
        known = _registered.setdefault(family, {})
        if kind in known and known[kind].__module__ != made.__module__:
            where = f"{known[kind].__module__} and in {made.__module__}"
            raise UserError(f"{family}: two components are called {kind!r}, in {where}; rename one of them")
        known[kind] = made
        return made

    return register


def kinds(family: str) -> Mapping[str, type[Any]]:
    """The components of a family by their kinds: ours, and those of installed packages.

    Raises:
        UserError: an installed package's cannot be imported.
    """
    if family not in _searched:
        _searched.add(family)
        package = importlib.import_module(FAMILIES[family])
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
        _load_installed()
    return _registered.get(family, {})


def make(family: str, kind: str, **fields: Any) -> Any:
    """A component with some fields, which are not checked, and its own defaults.

    Raises:
        UserError: there is no such kind.
    """
    known = kinds(family)
    if kind not in known:
        raise UserError(f"{family}: {unknown(kind, known)}")
    return known[kind](**fields)


def unknown(name: object, known: Mapping[str, object], *, what: str = "kind") -> str:
    """What to say of a name that is not known: the nearest, or all."""
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return f"there is no {what} {name!r}; {hint}"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """In an annotation, `Annotated[Schedule, Choice("schedule", "cosine")]`: any component of a family.

    In a configuration it is a mapping, with the default's kind where it names none, or a kind alone.
    """

    family: str
    default: str | None = None
    """The kind of a mapping that names none; None: a kind must be named."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Every component, told apart by its kind."""
        # `function-` is what `configs.reading.scalars.place_of` takes for no part of a place
        found = {f"function-{kind}": handler.generate_schema(cls) for kind, cls in kinds(self.family).items()}
        return core_schema.tagged_union_schema(found, discriminator=_tag)

    def expanded(self, value: Any) -> Any:
        """A value as a mapping that names its kind."""
        if isinstance(value, str):
            return {"kind": value}
        if self.default is None or not isinstance(value, dict):
            return value
        return {"kind": self.default, **value}

    def section(self, value: Any) -> type[Any] | None:
        """The component that an expanded value chooses; None where there is none."""
        kind = value.get("kind") if isinstance(value, dict) else None
        return kinds(self.family).get(kind) if isinstance(kind, str) else None


def choice_of(annotation: Any) -> Choice | None:
    """The choice that an annotation holds."""
    return next((part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, Choice)), None)


def item_of(annotation: Any) -> Any:
    """What the items of a list of components are annotated with; None for all else."""
    if typing.get_origin(annotation) is list and choice_of(item := typing.get_args(annotation)[0]) is not None:
        return item
    return None


def _tag(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"function-{kind}"


def _load_installed() -> None:
    if ENTRY_POINTS in _searched:
        return
    _searched.add(ENTRY_POINTS)
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise UserError(f"plugin {entry.name} ({entry.value}): cannot be imported: {problem}") from error


_registered: dict[str, dict[str, type[Any]]] = {}
_searched: set[str] = set()
