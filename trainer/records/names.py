"""What trackers show: samples as a table, and figures by tags, GROUP/KEY, where KEY is that in metrics.jsonl.

The groups are `train` and `valid` (training and validation), `machine` (time and hardware) and `events` (counts of
restarts and of what went wrong). A figure of one dataset or of one held-out set ends with its name:
`valid/bleu/news`.
"""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from configs.components import Samples
from configs.process.text import visible
from configs.reading.variables import dotted, leaves

TARGET_TOKENS = "total_target_tokens"
"""Target tokens trained on so far."""
MACHINE = {
    "tokens_per_second", "seconds_per_update", "waiting_for_data", "goodput", "tflops_per_second", "mfu",
    "device_memory_allocated_gib", "device_memory_peak_gib", "device_memory_used_gib", "device_utilization",
    "host_memory_gib", "host_memory_free_gib", "cpu_utilization", "wall_seconds", "total_seconds",
    "setup_seconds", "productive_seconds", "redone_seconds", "waiting_for_data_seconds", "saving_seconds",
    "evaluating_seconds", "stalled_seconds", "evaluation_seconds",
}  # fmt: skip
EVENTS = {"skipped_updates", "rewinds", "restarts"}
"""Counts over the whole run."""
END_EVENT = "end"
"""The last event of a start, which trackers alone get: its `outcome` (a state of status.json), exit code, reason."""
_NOT_PLOTTED = {"pairs_digest", "update", "updates"}


def by_tag(group: Literal["train", "valid"], figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures that are numbers to plot, by tag.

    Args:
        group: `train` for a log step, `valid` for an evaluation.
        figures: values by their keys in metrics.jsonl.
    """
    tags = {}
    for key, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or key in _NOT_PLOTTED:
            continue
        if key == "seconds":
            key = "evaluation_seconds"
        tags[f"{'machine' if key in MACHINE else 'events' if key in EVENTS else group}/{key}"] = float(value)
    return tags


def event_by_tag(figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures of an event that are plotted, by tag: the times of a checkpoint; empty for other events."""
    if figures.get("event") != "checkpoint":
        return {}
    keys = {"seconds": "checkpoint_seconds", "stopped_seconds": "checkpoint_stopped_seconds"}
    return {f"machine/{name}": float(figures[key]) for key, name in keys.items() if figures.get(key) is not None}


def flatten(tree: Any) -> dict[str, Any]:
    """The values of a configuration by their paths: `optimizer.lr`, `stream.datasets.0.weight`."""
    return {dotted(place): value for place, value in leaves(tree)}


def start_name(folder: Path, resume_step: int) -> str:
    """The name of one start of a run, for trackers that cannot delete points, where every start is a separate run.

    Args:
        folder: the run's folder.
        resume_step: step of the checkpoint that the start resumes from.
    """
    return folder.name if resume_step <= 0 else f"{folder.name} from {resume_step}"


def samples_table(samples: Samples) -> str:
    """Sources with references and translations."""
    return html_table([("source", "reference", "translation"), *samples])


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """A table in which text is displayed literally, also by TensorBoard, which takes it for Markdown.

    Control characters and line separators, which would be invisible, become Python's escape sequences.
    """
    lines = ("".join(f"<td>{html.escape(visible(cell))}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
