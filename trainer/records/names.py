"""One system of names for every tracker: GROUP/KEY, where KEY is the figure's in metrics.jsonl.

Groups are `train` and `valid` (what is learnt, how good it is), `machine` (what it costs) and `events` (how often
something went wrong). What is of one dataset, set or part of the model has its name behind: `valid/bleu/news`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

WRITING_SECONDS = "writing_seconds"
TARGET_TOKENS = "total_target_tokens"
"""The second axis: target tokens trained on by then."""
MACHINE = {
    "tokens_per_second", "seconds_per_update", "update_seconds_median", "update_seconds_p95", "waiting_for_data",
    "goodput", "tflops_per_second", "mfu", "device_memory_allocated_gib", "device_memory_peak_gib",
    "device_memory_used_gib", "device_utilization",
    "host_memory_gib", "host_memory_free_gib", "cpu_utilization", WRITING_SECONDS, "wall_seconds", "total_seconds",
    "setup_seconds", "productive_seconds", "redone_seconds", "waiting_for_data_seconds", "saving_seconds",
    "evaluating_seconds", "stalled_seconds",
}  # fmt: skip
EVENTS = {"skipped_updates", "corrupt_blocks", "rewinds", "restarts"}
"""Counters of a run."""
RENAMED = {"seconds": "machine/evaluation_seconds"}
"""Of an evaluation."""
_NO_CURVES = {"pairs_digest", "update", "updates"}


def by_tag(group: Literal["train", "valid"], figures: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among figures, by what they are called in a tracker.

    Args:
        group: of a log step, or of an evaluation.
        figures: by their keys in metrics.jsonl.
    """
    found = {}
    for key, value in figures.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and key not in _NO_CURVES:
            found[tag_of(group, key)] = float(value)
    return found


def tag_of(group: Literal["train", "valid"], key: str) -> str:
    """What a figure is called in a tracker."""
    if group == "valid":
        return RENAMED.get(key, f"valid/{key}")
    return f"machine/{key}" if key in MACHINE else f"events/{key}" if key in EVENTS else f"train/{key}"


def of_event(figures: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event that are curves: what a checkpoint took."""
    if figures.get("event") != "checkpoint":
        return {}
    keys = {"seconds": "checkpoint_seconds", "stopped_seconds": "checkpoint_stopped_seconds"}
    return {f"machine/{name}": float(figures[key]) for key, name in keys.items() if figures.get(key) is not None}


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """The leaves of a configuration by their paths: `optimizer.lr`, `stream.datasets[0].weight`."""
    if isinstance(tree, Mapping):
        parts = [flatten(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in tree.items()]
    elif isinstance(tree, list | tuple) and tree:
        parts = [flatten(value, f"{prefix}[{number}]") for number, value in enumerate(tree)]
    else:
        return {prefix: tree}
    return {key: value for part in parts for key, value in part.items()}


def start_name(folder: Path, resume_step: int) -> str:
    """What one start of a run is called where points cannot be taken back, and each start is a run of its own.

    Args:
        folder: the run's.
        resume_step: of the checkpoint that it goes on from.
    """
    return folder.name if resume_step <= 0 else f"{folder.name} from {resume_step}"
