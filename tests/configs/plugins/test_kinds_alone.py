"""A kind alone (`schedule: cosine`) in any layer: the kind that is chosen last is the kind that is built."""

import dataclasses
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import RunConfig, load_run
from configs.components import choice_of, component, item_of, kinds

PLACES = {
    "loss": "loss", "optimizer": "optimizer", "schedule": "schedule", "evaluation.search.sampler": "sampler",
    "trackers.0": "tracker", "evaluation.metrics.0": "metric",
    "stream.augment.0": "modifier", "prepare.filters.0": "filter", "phases.0.schedule": "schedule",
    "phases.0.augment.0": "modifier", "model.attention": "attention", "model.feed_forward": "feed_forward",
    "model.positions": "positions", "model.norm": "norm", "model.residual": "residual",
    "model.initialisation": "initialisation", "prepare.train.reader": "reader", "prepare.valid.reader": "reader",
    "prepare.test.reader": "reader",
}  # fmt: skip
"""Every place of a configuration that takes a component, in lists that of their first item, and its family."""
PHASE = {"name": "first", "until": {"updates": 9000}}


@pytest.fixture(autouse=True)
def others(alone: None) -> None:
    """A further kind of each family with a field of its own, whose default is 3."""
    for family in set(PLACES.values()):
        base = next(c for kind, c in kinds(family).items() if needs_nothing(family, kind))
        component(family, "further")(type("Further", (base,), {"__annotations__": {"extra": int}, "extra": 3}))


def needs_nothing(family: str, kind: str) -> bool:
    """Whether all fields of a kind have a default."""
    given = [(f.default, f.default_factory) for f in dataclasses.fields(kinds(family)[kind])]
    return (dataclasses.MISSING, dataclasses.MISSING) not in given


def in_file(place: str, value: Any) -> dict[str, Any]:
    """A value in a configuration's file, beside what a phase needs."""
    for step in reversed(place.split(".")):
        value = [value] if step == "0" else {step: value}
    if "phases" in value:
        value["phases"] = [{**PHASE, **value["phases"][0]}, {"name": "second"}]
    tree: dict[str, Any] = value
    return tree


def at(section: Any, place: str) -> Any:
    """The component at a place."""
    for step in place.split("."):
        section = section[int(step)] if step.isdecimal() else getattr(section, step)
    return section


def load(folder: Path, tree: dict[str, Any], *overrides: str) -> RunConfig:
    """A configuration whose file is this tree."""
    (folder / "my.yaml").write_text(json.dumps(tree))
    return load_run(str(folder / "my.yaml"), overrides)


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_kind_chosen_last_is_the_kind_that_is_built(tmp_path: Path, data: st.DataObject) -> None:
    """A file names a kind, settings may name others, each in any of three ways; the last one sets a field of it."""
    place = data.draw(st.sampled_from(sorted(PLACES)))
    family = PLACES[place]
    others = (kind for kind in sorted(kinds(family)) if needs_nothing(family, kind))
    named = st.sampled_from(["further", *others])
    ways = st.sampled_from(["{}", "{{kind: {}}}", "kind"])
    kind, way = data.draw(named), data.draw(ways)
    tree = in_file(place, kind if way == "{}" else {"kind": kind})
    overrides = ["engine.zero_stage=0"]  # the stage at which every optimizer is sound
    for kind, way in data.draw(st.lists(st.tuples(named, ways), max_size=2)):
        overrides.append(f"{place}.kind={kind}" if way == "kind" else f"{place}={way.format(kind)}")
        if kind == "further" and data.draw(st.booleans()):  # a field that other kinds lack
            overrides.append(f"{place}.extra=3")
    expected = kinds(family)[kind]()
    if kind == "further":
        overrides.append(f"{place}.extra=5")
        expected = dataclasses.replace(expected, extra=5)
    assert at(load(tmp_path, tree, *overrides), place) == expected


def test_every_place_that_takes_a_component_is_among_them() -> None:
    def places(type_: Any, where: str = "") -> Iterator[str]:
        for f in dataclasses.fields(type_):
            for one, name in ((f.type, f.name), (item_of(f.type), f"{f.name}.0")):
                for part in (one, *(one.__args__ if isinstance(one, types.UnionType) else ())):
                    if choice_of(part) is not None:
                        yield where + name
                    elif isinstance(part, type) and dataclasses.is_dataclass(part):
                        yield from places(part, f"{where}{name}.")

    assert set(places(RunConfig)) == set(PLACES)
