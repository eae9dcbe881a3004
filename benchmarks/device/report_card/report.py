"""The results: a file with one JSON object for each cell that has run, and a page with their tables."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT
from benchmarks.device.report_card.cells import CELLS

FILE, PAGE = "report.jsonl", "page.md"
DONE = ("ok", "skipped")
"""States that stay; what failed is tried again when all others have been."""
SOURCES = ("configs", "model", "data_pipeline", "trainer", "launcher", "zeromt", "benchmarks", "tests")
SHOWN = 8
"""Last lines of what failed; the file of results has more."""
READING = """\
## How to read it

- **Target tokens/s** do not count padding. **MFU** (Chowdhery et al., 2022) is FLOP/s by the formulas of
  `zeromt plan`, without padding, over the data sheet's dense bf16 rate.
- **Pass** is forward and backward of a micro-batch, as a mean over twelve that have the corpus's lengths. **Host ms**:
  until the host has launched it all on an idle device. **Device ms**: time in which a kernel ran. **Pass ms**: twelve
  passes back to back, until the device is done. If device ms are near pass ms, the card limits; otherwise launches do,
  and larger micro-batches, fewer kernels or a faster processor help.
- **A kernel pays** where it takes fewer ms than plain torch. What counts in the end: `cuda` beside `plain`, of base and
  big.
- **GiB** are the peak of torch's allocator, next to `zeromt plan`'s for the same micro-batch.
"""
Line = dict[str, Any]


class Report:
    """A folder of results.

    Args:
        folder: made if it is not there.
        place: the code, the card, and whether all is at toy size; lines of other places are neither resumed nor shown.
    """

    def __init__(self, folder: Path, place: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._place = folder, place
        file = folder / FILE
        self._lines: list[Line] = list(map(json.loads, file.read_text().splitlines())) if file.exists() else []

    def add(self, line: Line) -> None:
        """Append a line to the file, and write the page; both are on the disk on return."""
        self._lines.append({**self._place, **line})
        text = "".join(json.dumps(each) + "\n" for each in self._lines)
        for name, content in ((FILE, text), (PAGE, self._page())):
            new = self._folder / f".{name}"
            with new.open("w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._folder / name)

    def order(self, names: Sequence[str]) -> list[str]:
        """The cells that are not done: first those never tried, then those that failed."""
        last = self._last()
        left = [name for name in names if name not in last or last[name]["status"] not in DONE]
        return sorted(left, key=lambda name: name in last)

    def _last(self) -> dict[str, Line]:
        """The last line of each cell at this place."""
        return {line["cell"]: line for line in self._lines if self._place.items() <= line.items()}

    def _page(self) -> str:
        last = self._last()
        newest = self._lines[-1]
        versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
        done = [name for name in CELLS if name in last and last[name]["status"] in DONE]
        out = [
            f"# What {newest['cards']} x {newest['card']} say of zeromt\n",
            f"{len(done)} of {len(CELLS)} cells; code {newest['code']}, commit {newest['commit']}; {versions}.\n",
            *(["**At toy size on a CPU: no figure here means anything.**\n"] if newest["toy"] else []),
            READING,
        ]
        tables: dict[tuple[str, ...], list[list[str]]] = {}
        for name, line in last.items():
            for row in line.get("rows", ()):
                tables.setdefault(("cell", *row), []).append([name, *map(_shown, row.values())])
        for columns, rows in tables.items():
            table = [columns, ["---"] * len(columns), *rows]
            out += [*(f"| {' | '.join(cells)} |" for cells in table), ""]
        for name, line in last.items():
            if "reason" in line:
                end = "\n".join(line["reason"].strip().splitlines()[-SHOWN:])
                out += [f"`{name}` {line['status']}:\n", "```text", end, "```", ""]
        return "\n".join(out)


def _shown(value: Any) -> str:
    """A table's cell; empty if it was not measured."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)


def code() -> str:
    """A hash of the source files: an unpacked tree without git has one too."""
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml")]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:10]
