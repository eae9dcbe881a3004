"""The last result of each benchmark, as a file QUESTION.json; docs/gpus.md has figures of some.

`rows` is a table; a cell is a string, a number, `[median, lowest, highest]` of several rounds, or a longer list (a
curve). With `--json` a file also has `details`: everything else that was measured, by round.
"""

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
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
    figures: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str = "",
) -> None:
    """Write a result if `--json` or `--results` is given; in the folder it takes the place of the last one.

    Args:
        args: the parsed command line of `measure.parser`.
        question: the question that the result answers.
        rows: the table.
        figures: everything that was measured; "machine" is `measure.machine()`.
        versions: of other programs, in addition to the packages of `measure.PACKAGES`.
        settings: settings of the measurement.
        name: appended to the file's name, if the question has several results.
    """
    machine = figures["machine"]
    result = {
        "question": question,
        "date": machine["date"],
        "commit": commit(),
        "machine": machine["processor"],
        "cores": machine["cores"],
        "memory_gib": round(machine["memory"] / 2**30),
        "versions": {"python": machine["python"], **machine["versions"], **(versions or {})},
        "command": args.command,
        "settings": _rounded(dict(settings or {})),
        "notes": [f"other work was running: load {machine['load']:.1f}"] if machine["load"] > 0.3 else [],
        "rows": [_rounded(row) for row in rows],
    }
    if args.json is not None:
        details = {name: value for name, value in figures.items() if name != "machine"}
        _write(args.json, result | {"details": details})
    if args.results is not None:
        _write(args.results / f"{'-'.join(filter(None, (question, name)))}.json", result)


def _rounded(cell: Any) -> Any:
    """A row or cell with numbers rounded to six significant digits."""
    match cell:
        case dict():
            return {key: _rounded(value) for key, value in cell.items()}
        case list() | tuple():
            return [_rounded(value) for value in cell]
        case float():
            return float(f"{cell:.6g}")
        case _:
            return cell


def _write(path: Path, result: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_to_text(result), encoding="utf-8")


def _to_text(result: Mapping[str, Any]) -> str:
    """JSON with one line for each field, row and note."""

    def value(item: Any) -> str:
        text = json.dumps(item, default=str, ensure_ascii=False)
        if not isinstance(item, list) or len(text) < 100:
            return text
        return "[\n  " + ",\n  ".join(json.dumps(i, default=str, ensure_ascii=False) for i in item) + "\n ]"

    return "{\n" + ",\n".join(f' "{name}": {value(item)}' for name, item in result.items()) + "\n}\n"


def commit() -> str:
    """Short hash of the working tree's commit, with + if tracked files differ from it."""

    def git(*arguments: str) -> str:
        ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return ended.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
