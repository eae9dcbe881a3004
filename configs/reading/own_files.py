"""Tells zeromt's own kinds of YAML files apart, so that one in another's place is named as what it is."""

from collections.abc import Mapping
from typing import Any

_OF_RUNS = frozenset(("prepare", "stream", "model", "optimizer", "schedule", "engine", "training", "evaluation"))
_HERE = {
    "run": "a run's configuration: `zeromt train {}` trains it",
    "pipeline": "a pipeline: `zeromt pipeline {}` runs it",
    "site": "a site's profile: give it by --site, behind `zeromt launch slurm`",
}


def other_kind(tree: Mapping[Any, Any], wanted: str, name: str) -> str | None:
    """What to say of a file that is of another kind than the one wanted; None if it may be of that one.

    Args:
        tree: its content, plain.
        wanted: run, pipeline or site.
        name: of the file.
    """
    kind = _kind(tree)
    return None if kind in (None, wanted) else f"this is {_HERE[str(kind)].format(name)}"


def _kind(tree: Mapping[Any, Any]) -> str | None:
    """The kind of file, by keys that no other has; None if there are none, or those of two."""
    kinds_by_keys = {
        "run": bool(_OF_RUNS & set(tree)),
        "pipeline": isinstance(tree.get("steps"), dict),
        "site": bool({"sbatch", "gpus_per_node"} & set(tree)),
    }
    there = [kind for kind, is_it in kinds_by_keys.items() if is_it]
    return there[0] if len(there) == 1 else None
