"""Keys of earlier versions and what replaces them: a table that is applied to every configuration that is read.

Configurations of all earlier versions (users' files, and those saved in runs and checkpoints) can be read for ever. If
an old key is in the user's own file or on the command line, the user is told its new name.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from configs.components import kinds
from configs.reading.scalars import Place

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldKey:
    """A key of an earlier version."""

    old: str
    """Path of the key."""
    new: str | None
    """Path of the key that has replaced it; None if the key is dropped, because it has no effect."""
    applies: Callable[[Tree], bool] = lambda _: True
    """Whether the rule applies to a tree, if that depends on other keys."""
    value: Callable[[Any], Any] = lambda value: value
    """Converts the value."""
    is_said: bool = True
    """Whether to tell the user. False if every saved configuration of earlier versions has the key, or if the old form
    is still allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """A tree whose old keys are replaced by today's."""

    tree: Tree
    moves: dict[Place, Place]
    """The new places of moved values, by their old places."""
    said: list[str]
    """A line for each key whose new name the user is told."""

    def now(self, place: Place) -> Place:
        """The new place of a value; the value itself, or a section or list that contains it, may have moved."""
        for n in range(len(place), 0, -1):
            if place[:n] in self.moves:
                return self.moves[place[:n]] + place[n:]
        return place


def _is_text(path: str) -> Callable[[Tree], bool]:
    """A test whether the value at a path is text, that is, only a kind."""

    def applies(tree: Tree) -> bool:
        found: Any = tree
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return isinstance(found, str)

    return applies


def _has_no_effect(family: str, field: str, default: Any) -> Callable[[Tree], bool]:
    """A test whether a tree has a field with its default although the chosen part of the model has no such field."""

    def applies(tree: Tree) -> bool:
        section = tree["model"][family]
        part = kinds(family).get(str(section.get("kind")))
        has_field = part is None or field in {f.name for f in dataclasses.fields(part)}
        return not has_field and bool(section[field] == default)

    return applies


def _is_constant(tree: Tree) -> bool:
    schedule = tree.get("schedule")
    return isinstance(schedule, dict) and schedule.get("kind") == "constant"


_SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
"""Fields of sampling, with the values that have no effect."""


def _of_search(tree: Tree) -> Mapping[str, Any]:
    search: Any = tree
    for part in ("evaluation", "search"):
        search = search.get(part) if isinstance(search, dict) else None
    return search if isinstance(search, dict) else {}


def _samples(value: bool) -> Callable[[Tree], bool]:
    return lambda tree: _of_search(tree).get("sample") is value


def _is_not_off(tree: Tree) -> bool:
    return not _samples(False)(tree)


def _is_idle(name: str) -> Callable[[Tree], bool]:
    return lambda tree: bool(_of_search(tree)[name] == _SAMPLING[name])


def _draws_nothing(tree: Tree) -> bool:
    """Whether the sampler has no kind, and only fields with values that have no effect."""
    sampler = _of_search(tree).get("sampler")
    return isinstance(sampler, dict) and bool(sampler) and sampler.items() <= _SAMPLING.items()


_PARTS = ("attention", "feed_forward", "initialisation", "norm", "positions", "residual")
"""Parts of a model. In earlier versions each was only the name of a kind; now it is a section with fields."""
_MODEL = {
    "num_heads": "attention.num_heads",
    "num_kv_heads": "attention.num_kv_heads",
    "head_width": "attention.head_width",
    "attention_bias": "attention.bias",
    "attention_output_bias": "attention.output_bias",
    "attention_scale": "attention.scale",
    "attention_dropout": "attention.dropout",
    "activation": "feed_forward.kind",
    "d_ff": "feed_forward.d_ff",
    "feed_forward_bias": "feed_forward.bias",
    "activation_dropout": "feed_forward.dropout",
    "position_base": "positions.base",
    "position_layout": "positions.layout",
    "position_offset": "positions.offset",
    "norm_eps": "norm.eps",
    "norm_position": "residual.kind",
}
OLD_KEYS: tuple[OldKey, ...] = (
    # before the other keys, which put fields beside the kind
    *(
        OldKey(old=f"model.{part}", new=f"model.{part}.kind", applies=_is_text(f"model.{part}"), is_said=False)
        for part in _PARTS
    ),
    *(OldKey(old=f"model.{old}", new=f"model.{new}") for old, new in _MODEL.items()),
    # every run of earlier versions has these, whatever its kind of positions
    *(
        OldKey(old=f"model.positions.{name}", new=None, applies=_has_no_effect("positions", name, value), is_said=False)
        for name, value in (("base", 10000.0), ("layout", "interleaved"), ("offset", 0))
    ),
    # with `sample: false` these are not moved, since they have no effect
    *(
        OldKey(old=f"evaluation.search.{name}", new=f"evaluation.search.sampler.{name}", applies=_is_not_off)
        for name in _SAMPLING
    ),
    OldKey(
        old="evaluation.search.sample",
        new="evaluation.search.sampler.kind",
        applies=_samples(True),
        value=lambda _: "truncated",
    ),
    OldKey(
        old="evaluation.search.sample",
        new="evaluation.search.sampler",
        applies=_samples(False),
        value=lambda _: None,
        is_said=False,
    ),
    *(OldKey(old=f"evaluation.search.{name}", new=None, applies=_is_idle(name), is_said=False) for name in _SAMPLING),
    OldKey(old="evaluation.search.sampler", new=None, applies=_draws_nothing, is_said=False),
    # every run of earlier versions has it, even if it has no effect
    OldKey(old="schedule.min_lr_ratio", new=None, applies=_is_constant, is_said=False),
)

_SLURM = (
    *("partition", "account", "qos", "constraint", "reservation", "time", "gpus_per_node", "gpu_request"),
    *("cpus_per_node", "memory", "exclusive", "requeue", "max_requeues", "signal_lead", "modules", "source"),
    *("environment", "python", "container", "container_image", "container_mounts", "interface", "port_base"),
    *("join_timeout", "node_timeout"),
)
OLD_SITE_KEYS = tuple(OldKey(old=key, new=f"slurm.{key}") for key in _SLURM)
"""Old keys of a site's profile, which used to be for SLURM only."""


def renew(tree: Tree) -> Tree:
    """A complete tree with only today's keys."""
    return without_dropped_keys(moved(tree).tree)


def moved(tree: Tree, keys: tuple[OldKey, ...] = OLD_KEYS) -> Renewed:
    """A tree, or one of the layers that are merged into it, with the values of old keys moved to today's.

    If a layer has an old key and today's, today's wins.

    Args:
        tree: the given values.
        keys: the table of old keys.
    """
    moves: dict[Place, Place] = {}
    said = []
    for key in keys:
        path = tuple(key.old.split("."))
        if key.new is not None and _has(tree, path) and key.applies(tree):
            new = tuple(key.new.split("."))
            tree, value = _without(tree, path)
            tree = _with(tree, new, key.value(value))
            moves[path] = new
            said += [f"{key.old} is now {key.new}"] if key.is_said else []
    return Renewed(tree=_with_references(tree, moves) if moves else tree, moves=moves, said=said)


def without_dropped_keys(tree: Tree) -> Tree:
    """A complete tree without the keys that have no effect in it, which earlier versions wrote nevertheless."""
    for key in OLD_KEYS:
        path = tuple(key.old.split("."))
        if key.new is None and _has(tree, path) and key.applies(tree):
            tree, _ = _without(tree, path)
    return tree


def paths(tree: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The dotted path of every leaf of a tree."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from paths(value, f"{where}{key}.")
        else:
            yield f"{where}{key}"


def _has(tree: Any, path: Place) -> bool:
    for part in path:
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True


def _without(tree: Tree, path: Place) -> tuple[Tree, Any]:
    if len(path) == 1:
        return {k: v for k, v in tree.items() if k != path[0]}, tree[path[0]]  # type: ignore[index]
    inner, value = _without(tree[path[0]], path[1:])  # type: ignore[index]
    return {**tree, path[0]: inner}, value  # type: ignore[dict-item]


def _with(tree: Tree, path: Place, value: Any) -> Tree:
    """The tree with a value at a path, unless it already has one there."""
    if len(path) == 1:
        return {path[0]: value, **tree}  # type: ignore[dict-item]
    inner = tree.get(path[0], {})  # type: ignore[arg-type]
    if not isinstance(inner, dict):  # only a kind
        inner = {"kind": inner}
    return {**tree, path[0]: _with(inner, path[1:], value)}  # type: ignore[dict-item]


_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")


def _with_references(tree: Any, moves: Mapping[Place, Place]) -> Any:
    """The tree with references to moved keys (`${model.d_ff}`) replaced by ones to their new places."""
    before = {new: old for old, new in moves.items()}

    def follow(value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {key: follow(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [follow(item, (*place, number)) for number, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        above = before.get(place, place)

        def replaced(match: re.Match[str]) -> str:
            dots, name = match.groups()
            path: Place = tuple(name.split("."))
            if dots:
                path = above[: len(above) - len(dots)] + path
            return "${" + ".".join(map(str, moves.get(path, path))) + "}"

        return _REFERENCE.sub(replaced, value)

    return follow(tree, ())
