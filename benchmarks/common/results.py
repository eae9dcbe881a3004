"""What was measured, as files that docs/benchmarks.md is made from: QUESTION/DATE-COMMIT.json.

A file answers one question: `rows` is a table, whose cells are strings, numbers, `[median, lowest, highest]` of several
rounds, or longer lists (a curve). What was measured besides, round by round, is in `details`.
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
    """One file."""

    question: str
    date: str
    """The day, or the moment in ISO 8601."""
    commit: str
    """Ends in + where files differed from it."""
    machine: str
    cores: int
    memory_gib: int | None = None
    versions: dict[str, str]
    command: str
    sequence: int = 0
    """Order among the results of one day whose moments are not known."""
    estimated: list[str] = field(default_factory=list)
    """Columns of `rows` that hold estimates."""
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    path: Path

    def part(self, name: str) -> list[Row]:
        """The rows of a part of the question."""
        return [row for row in self.rows if row.get("part") == name]


def load(folder: Path = FOLDER) -> list[Result]:
    """All results of a folder, oldest first."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields.pop("details", None)
        found.append(Result(**fields, path=path))
    return sorted(found, key=lambda result: (result.date, result.sequence))


def figure(values: Iterable[float]) -> float | list[float]:
    """The cell of a figure that was measured in one round or several."""
    known = list(values)
    return known[0] if len(known) == 1 else [median(known), min(known), max(known)]


def middle(cell: Any) -> float:
    """The median in a cell."""
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
    """Write a result, where `--json` or `--results` asks for it.

    Args:
        args: the command line, by `measure.parser`.
        question: that the result answers.
        rows: the table.
        figures: all that was measured; "machine" is what it was measured on.
        versions: of other programs, beside those of our own packages.
        settings: what the page says of how it was measured.
        estimated: columns of the table that hold estimates.
        name: of the file, behind day and commit, where a commit has several answers.
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
    """A row or cell with six significant digits, which is more than a clock tells."""
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
    """JSON with a line for each field, and one for each row or note."""

    def value(item: Any) -> str:
        text = json.dumps(item, default=str, ensure_ascii=False)
        if not isinstance(item, list) or len(text) < 100:
            return text
        return "[\n  " + ",\n  ".join(json.dumps(i, default=str, ensure_ascii=False) for i in item) + "\n ]"

    return "{\n" + ",\n".join(f' "{name}": {value(item)}' for name, item in result.items()) + "\n}\n"


def commit() -> str:
    """Of the working tree; + where a file that git knows has changed."""

    def git(*arguments: str) -> str:
        ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return ended.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
