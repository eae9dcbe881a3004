"""Keys that earlier versions took, and what became of them: one table, which every tree goes through that is read.

What users have on their disks (files, and the resolved configurations of runs and checkpoints) is read for ever. A key
that is in the user's own file or on the command line is said to be old, with its new name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldKey:
    """A key of an earlier version."""

    old: str
    """Its path."""
    new: str | None
    """Where its value stands now; None: nowhere, since it means nothing there."""
    applies: Callable[[Tree], bool] = lambda _: True
    """Whether it is old in this tree, where that depends on the rest."""
    is_said: bool = True
    """Whether the user is told. Not where every resolved configuration of earlier versions has the key."""


def _is_constant(tree: Tree) -> bool:
    schedule = tree.get("schedule")
    return isinstance(schedule, dict) and schedule.get("kind") == "constant"


OLD_KEYS = (
    # every run of earlier versions names it, also where it meant nothing
    OldKey(old="schedule.min_lr_ratio", new=None, applies=_is_constant, is_said=False),
)


def renew(tree: Tree) -> tuple[Tree, list[str]]:
    """The tree with today's keys, and a line for each that was old."""
    said = []
    for key in OLD_KEYS:
        path = tuple(key.old.split("."))
        if not _has(tree, path) or not key.applies(tree):
            continue
        tree, value = _without(tree, path)
        if key.new is not None:
            tree = _with(tree, tuple(key.new.split(".")), value)
        if key.is_said:
            said.append(f"{key.old} is now {key.new}" if key.new else f"{key.old} is gone, and means nothing")
    return tree, said


def paths(tree: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Every leaf of a tree."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from paths(value, f"{where}{key}.")
        else:
            yield f"{where}{key}"


def _has(tree: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True


def _without(tree: Tree, path: tuple[str, ...]) -> tuple[Tree, Any]:
    if len(path) == 1:
        return {k: v for k, v in tree.items() if k != path[0]}, tree[path[0]]
    inner, value = _without(tree[path[0]], path[1:])
    return {**tree, path[0]: inner}, value


def _with(tree: Tree, path: tuple[str, ...], value: Any) -> Tree:
    """The tree with a value; what stands there already, by today's name, goes before."""
    if len(path) == 1:
        return {path[0]: value, **tree}
    inner = tree.get(path[0], {})
    return {**tree, path[0]: _with(inner if isinstance(inner, dict) else {}, path[1:], value)}
