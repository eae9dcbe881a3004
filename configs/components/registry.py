"""Components: classes with their own fields, which a section of the configuration chooses by `kind:`.

A *family* is a place in the configuration that takes one of several components: the schedule, a norm, a filter. A
component is a class with typed fields, registered under a kind:

    @component("schedule", "their_wsd")
    class WarmupStableDecay(Schedule):
        \"\"\"Warm-up, then a constant rate, then a linear decay (Hu et al., 2024).\"\"\"

        decay_updates: Positive

        def factor(self, update: int, last: int) -> float:
            return min(1.0, (last - update) / self.decay_updates)

Its file contains fields, costs and limits, and imports torch only in the functions that need it, so that plans work
without torch. Our own components are in the family's package: every module in it is found automatically. Users name
single files: see `configs.plugins`.
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from configs.errors import UserError
from configs.fields import STRICT

FAMILIES: dict[str, str] = {
    "attention": "model.components",
    "feed_forward": "model.components",
    "filter": "data_pipeline.preparation.filters",
    "initialisation": "model.components",
    "loss": "model.components",
    "metric": "trainer.metrics",
    "modifier": "data_pipeline.stream.modifiers",
    "norm": "model.components",
    "optimizer": "trainer.optimizers",
    "positions": "model.components",
    "reader": "data_pipeline.preparation.readers",
    "residual": "model.components",
    "sampler": "model.components",
    "schedule": "trainer.schedules",
    "tracker": "trainer.trackers",
}
"""The package with our own components of each family."""

C = TypeVar("C")


@dataclasses.dataclass(kw_only=True, frozen=True)
class Component:
    """The base class of all components."""

    kind: str = ""
    """The name by which a configuration chooses it."""
    family: ClassVar[str] = ""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        return iter(())


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def component(family: str, kind: str) -> Callable[[type[C]], type[C]]:
    """Make a class a component: a frozen dataclass with strictly checked fields, chosen by `kind`.

    Args:
        family: one of `FAMILIES`; the family's base class defines the interface.
        kind: the component's name, unique in the family.

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
        if kind in known:
            where = f"{_place(known[kind])} and in {_place(made)}"
            raise UserError(f"{family}: two components are named {kind!r}, in {where}; rename one of them")
        known[kind] = made
        return made

    return register


def kinds(family: str) -> Mapping[str, type[Any]]:
    """The components of a family by kind: zeromt's own, and those of loaded plugins."""
    _import_ours(family)
    return _registered.get(family, {})


def check(component: type[Any]) -> None:
    """Check that a component of a plugin is valid.

    It must derive from the family's base class, which has the family's name: FeedForward for `feed_forward`.

    Raises:
        UserError: it does not derive from that class, or its fields cannot be checked.
    """
    own = next(c for c in kinds(component.family).values() if c.__module__.startswith(FAMILIES[component.family]))
    name = component.family.title().replace("_", "")
    base = next(c for c in own.__mro__ if c.__name__ == name)
    what = f"{component.family} {component.kind}"
    if not issubclass(component, base):
        raise UserError(f"{what}: {component.__qualname__} is not a {base.__name__}; derive it from that class")
    try:
        TypeAdapter(component)
    except Exception as error:  # any error: pydantic's own, or one raised by the code of an annotation
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"{what}: its fields cannot be checked: {said}") from error


def registered(leaving_out: Collection[type[Any]] = ()) -> dict[str, dict[str, type[Any]]]:
    """All components registered so far, by family and kind; for `restore`.

    Args:
        leaving_out: components to omit.
    """
    return {
        family: {kind: c for kind, c in _registered.get(family, {}).items() if c not in leaving_out}
        for family in FAMILIES
    }


def restore(components: Mapping[str, Mapping[str, type[Any]]]) -> None:
    """Make these the only registered components; `registered` returns such a mapping."""
    for family, by_kind in components.items():
        _registered[family] = dict(by_kind)


def make(family: str, kind: str, **fields: Any) -> Any:
    """Make a component from some fields, which are not checked, and defaults for the others.

    Raises:
        UserError: there is no such kind.
    """
    known = kinds(family)
    if kind not in known:
        raise UserError(f"{family}: {unknown(kind, known)}")
    return known[kind](**fields)


def unknown(name: object, known: Mapping[str, object], *, what: str = "kind") -> str:
    """The error message for an unknown name: it suggests the most similar known name, or lists all."""
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    others = f"known are {', '.join(sorted(known))}" if known else "none is known"
    hint = f"did you mean {near[0]}?" if near else others
    return f"there is no {what} {name!r}; {hint}"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Part of an annotation, `Annotated[Schedule, Choice("schedule", "cosine")]`: the field is a component of a family.

    In a configuration the value is a kind, or a mapping with the component's fields, which may omit the kind if there
    is a default.
    """

    family: str
    default: str | None = None
    """The default kind; None if a kind must be given."""
    is_optional: bool = False
    """Whether the field can be null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The union of all components of the family, discriminated by kind."""
        # the prefix makes the kind in an error's location no field's name, for `configs.load`
        schemas = {f"function-{kind}": handler.generate_schema(cls) for kind, cls in kinds(self.family).items()}
        union = core_schema.tagged_union_schema(schemas, discriminator=_tag)
        return core_schema.nullable_schema(union) if self.is_optional else union

    def expanded(self, value: Any) -> Any:
        """The value as a mapping with a `kind`; a value that cannot be made one is returned unchanged."""
        if isinstance(value, str):
            return {"kind": value}
        if self.default is None or not isinstance(value, dict):
            return value
        return {"kind": self.default, **value}

    def section(self, value: Any) -> type[Any] | None:
        """The component class that an expanded value chooses; None if there is none."""
        kind = value.get("kind") if isinstance(value, dict) else None
        return kinds(self.family).get(kind) if isinstance(kind, str) else None


def choice_of(annotation: Any) -> Choice | None:
    """The `Choice` in an annotation; None if there is none."""
    return next((part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, Choice)), None)


def item_of(annotation: Any) -> Any:
    """The annotation of the items, if a field is a list of components or of sections (or None); else None."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is types.UnionType:
        return next((item for part in inner if (item := item_of(part)) is not None), None)
    if origin is not list:
        return None
    is_section = isinstance(inner[0], type) and dataclasses.is_dataclass(inner[0])
    return inner[0] if is_section or choice_of(inner[0]) is not None else None


def _place(component: type[Any]) -> str:
    """The component's module, or its file if it cannot be imported by name."""
    module = component.__module__
    return repr(sys.modules[module].__file__) if module.startswith("zeromt_plugin_") else module


def _tag(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"function-{kind}"


def _import_ours(family: str) -> None:
    if family in _searched:
        return
    _searched.add(family)
    package = importlib.import_module(FAMILIES[family])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    known = _registered.get(family, {})  # sorted, since modules may have been imported in another order before
    _registered[family] = dict(sorted(known.items(), key=lambda item: item[1].__module__))


_registered: dict[str, dict[str, type[Any]]] = {}
_searched: set[str] = set()
