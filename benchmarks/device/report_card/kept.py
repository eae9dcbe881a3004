"""What is known: a file with one JSON object a line, each of which is on the disk before the next cell begins."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT
from configs import UserError

FILE = "report.jsonl"
DONE = ("ok", "skipped")
"""States that stay; what failed is tried again when all others have been."""
SOURCES = ("configs", "model", "data_pipeline", "trainer", "launcher", "zeromt", "benchmarks", "tests")
Line = dict[str, Any]


class Kept:
    """The lines of a folder's file.

    Args:
        folder: of the file; made if it is not there.
        earlier: another folder, whose lines are taken over if this one has no file.

    Raises:
        UserError: the earlier folder has no file.
    """

    def __init__(self, folder: Path, earlier: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / FILE
        if earlier is not None and not (earlier / FILE).exists():
            raise UserError(f"--from {earlier}: has no {FILE}; give the OUT folder of an earlier report")
        if earlier is not None and not self.file.exists():
            self.file.write_bytes((earlier / FILE).read_bytes())
        self.lines: list[Line] = list(_lines(self.file))

    def add(self, line: Line) -> None:
        """Append a line, and return when it is on the disk."""
        text = json.dumps(line) + "\n"
        with self.file.open("ab+") as file:
            if file.tell():  # the last line may be half a line, of a machine that went away
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else f"\n{text}"
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)

    def of(self, place: Mapping[str, Any], cell: str) -> list[Line]:
        """A cell's lines on a kind of card by a state of the code."""
        return [line for line in self.lines if line["cell"] == cell and place.items() <= line.items()]


def _lines(file: Path) -> Iterable[Line]:
    if file.exists():
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict) and line.keys() >= {"cell", "status", "card", "code"}:
                yield line


def code() -> str:
    """A hash of the source files: an unpacked tree without git has one too."""
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml")]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def order(kept: Kept, place: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The cells that are not done: first those never tried or cut short once, then those that failed.

    A cell that was twice begun and never ended may be what ends the machine: it comes with those that failed. What
    only another state of the code has measured on this card comes after what none has.
    """
    any_code = {key: value for key, value in place.items() if key != "code"}

    def rank(name: str) -> tuple[bool, bool]:
        states = [line["status"] for line in kept.of(place, name)]
        return "failed" in states or states.count("begun") > 1, _is_done(kept.of(any_code, name))

    return sorted((name for name in names if not _is_done(kept.of(place, name))), key=rank)


def _is_done(lines: Iterable[Line]) -> bool:
    return any(line["status"] in DONE for line in lines)
