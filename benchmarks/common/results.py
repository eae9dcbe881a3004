"""Results as files QUESTION/DATE-COMMIT.json, from which docs/benchmarks.md is generated.

A file answers one question. `rows` is a table; a cell is a string, a number, `[median, lowest, highest]` of several
rounds, or a longer list (a curve). `details` has everything else that was measured, by round.
"""

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT
from benchmarks.common.measure import median

Row = dict[str, Any]
FOLDER = ROOT / "benchmarks" / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result file."""

    question: str
    date: str
    """Date, or date and time, in ISO 8601."""
    commit: str
    """Short hash; ends in + if files differed from the commit."""
    machine: str
    cores: int
    memory_gib: int | None = None
    versions: dict[str, str]
    command: str
    sequence: int = 0
    """Order among results of the same day without a time."""
    estimated: list[str] = field(default_factory=list)
    """Columns of `rows` that are estimates."""
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    path: Path

    def part(self, name: str) -> list[Row]:
        """The rows whose column `part` is `name`."""
        return [row for row in self.rows if row.get("part") == name]


def load(folder: Path = FOLDER) -> list[Result]:
    """Load all results below a folder, oldest first."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields.pop("details", None)
        found.append(Result(**fields, path=path))
    return sorted(found, key=lambda result: (result.date, result.sequence))


def figure(values: Iterable[float]) -> float | list[float]:
    """The table cell for a figure measured in one or more rounds."""
    known = list(values)
    return known[0] if len(known) == 1 else [median(known), min(known), max(known)]


def middle(cell: Any) -> float:
    """The median of a table cell."""
    return float(cell[0] if isinstance(cell, list) else cell)


def record(
    args: Namespace,
    question: str,
    rows: Sequence[Row],
    figures: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    estimated: Sequence[str] = (),
    name: str = "",
) -> None:
    """Write a result if `--json` or `--results` is given.

    Args:
        args: the parsed command line of `measure.parser`.
        question: the question that the result answers.
        rows: the table.
        figures: everything that was measured; "machine" is `measure.machine()`.
        versions: of other programs, in addition to the packages of `measure.PACKAGES`.
        settings: settings of the measurement that the page shows.
        estimated: columns of the table that are estimates.
        name: appended to the file's name, if a commit has several results for the question.
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
        "estimated": list(estimated),
        "settings": _rounded(dict(settings or {})),
        "notes": [f"other work was running: load {machine['load']:.1f}"] if machine["load"] > 0.3 else [],
        "rows": [_rounded(row) for row in rows],
        "details": {name: value for name, value in figures.items() if name != "machine"},
    }
    if args.json is not None:
        _write(args.json, result)
    if args.results is not None:
        parts = [machine["date"][:10], result["commit"].rstrip("+"), *([name] if name else [])]
        _write(args.results / question / f"{'-'.join(parts)}.json", result)


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
    path.write_text(to_text(result), encoding="utf-8")


def to_text(result: Mapping[str, Any]) -> str:
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
