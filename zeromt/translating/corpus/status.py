"""`zeromt status OUT`: how far the translation of a corpus is, over all its parts."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from zeromt.translating.corpus.folder import finished, parts_progress, read_job, table_of
from zeromt.translating.corpus.source import ROW

_SILENT_SECONDS = 600.0
"""Without a new chunk for so long, or three times what the last one took, a part does not count as working."""


def status(folder: Path, *, as_json: bool) -> int:
    """Print lines done, speed and time left."""
    found = found_in(folder)
    print(json.dumps(found) if as_json else "\n".join(_lines(folder, found)))
    return 0


def found_in(folder: Path) -> dict[str, Any]:
    """What is known: lines done and in all, chunks, parts, lines a second of those that work, seconds left or None."""
    tree = read_job(folder)
    lines = np.memmap(table_of(folder), ROW, "r")["lines"]
    done = chunks = 0
    for number in finished(folder):
        if number < len(lines):
            done, chunks = done + int(lines[number]), chunks + 1
    parts, now = parts_progress(folder), time.time()
    working = [part for part in parts if _works(part, now)]
    rate = sum(_rate(part) for part in working)
    left = tree["input"]["lines"] - done
    return {
        "engine": tree["engine"].get("kind"),
        "lines": tree["input"]["lines"],
        "done": done,
        "chunks": tree["input"]["chunks"],
        "chunks_done": chunks,
        "parts": len(parts),
        "parts_working": len(working),
        "lines_per_second": rate,
        "seconds_left": left / rate if rate and left else None if left else 0.0,
    }


def _rate(part: dict[str, Any]) -> float:
    return float((part["done"] - part["before"]) / max(part["updated"] - part["begun"], 1e-3))


def _works(part: dict[str, Any], now: float) -> bool:
    if part["done"] >= part["total"]:
        return False
    return bool(now - part["updated"] < max(_SILENT_SECONDS, 3 * part["chunk_seconds"]))


def _lines(folder: Path, found: dict[str, Any]) -> list[str]:
    percent = found["done"] / max(1, found["lines"])
    shown = {
        "corpus": str(folder),
        "engine": found["engine"],
        "lines": f"{found['done']:,} of {found['lines']:,} ({percent:.1%})",
        "chunks": f"{found['chunks_done']:,} of {found['chunks']:,}",
        "parts": f"{found['parts_working']} working of {found['parts']} begun",
    }
    if found["lines_per_second"]:
        shown["speed"] = f"{found['lines_per_second']:,.1f} lines/s"
    if found["seconds_left"] is not None:
        left = found["seconds_left"]
        shown["time left"] = tqdm.format_interval(left) if left else "none; --merge joins the parts"
    width = max(map(len, shown))
    return [f"{name:<{width}}  {value}" for name, value in shown.items()]
