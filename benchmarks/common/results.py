"""The last result of each benchmark, as a file QUESTION.json; docs/gpus.md has figures of some.

`rows` is a table; a cell is a string, a number, or `[median, lowest, highest]` of several rounds.
"""

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common.child import ROOT
from benchmarks.common.measure import median

Row = dict[str, Any]


def figure(values: Iterable[float]) -> float | list[float]:
    """The table cell for a figure measured in one or more rounds."""
    known = list(values)
    return known[0] if len(known) == 1 else [median(known), min(known), max(known)]


def record(
    args: Namespace,
    question: str,
    rows: Sequence[Row],
    machine: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a result to the folder of `--results`, if it is given, replacing the last one.

    Args:
        args: the parsed command line of `measure.parser`.
        question: the question that the result answers.
        rows: the table.
        machine: `measure.machine()`.
        versions: of other programs, in addition to the packages of `measure.PACKAGES`.
        settings: settings of the measurement.
    """
    result = {
        "question": question,
        "date": machine["date"],
        "commit": commit(),
        "machine": machine["processor"],
        "cores": machine["cores"],
        "memory_gib": round(machine["memory"] / 2**30),
        "versions": {"python": machine["python"], **machine["versions"], **(versions or {})},
        "command": args.command,
        "settings": dict(settings or {}),
        "notes": [f"other work was running: load {machine['load']:.1f}"] if machine["load"] > 0.3 else [],
        "rows": list(rows),
    }
    if args.results is not None:
        args.results.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=1, default=str, ensure_ascii=False)
        (args.results / f"{question}.json").write_text(f"{text}\n", encoding="utf-8")


def commit() -> str:
    """Short hash of the working tree's commit, with + if tracked files differ from it."""

    def git(*arguments: str) -> str:
        ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return ended.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
