"""Memory of a process tree, medians, tables, and a description of the machine."""

import argparse
import datetime
import os
import platform
import re
import shlex
import statistics
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from configs import UserError

PACKAGES = ("numpy", "sentencepiece", "webdataset", "torch", "deepspeed")


class TreeMemory:
    """Samples the memory of a process and its descendants in a thread. Linux only.

    Args:
        pid: id of the process.
        seconds: between two samples.
    """

    def __init__(self, pid: int, *, seconds: float = 0.5) -> None:
        self._pid = pid
        self._seconds = seconds
        self._marks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """Stop sampling; returns the sum of the processes' high-water marks in bytes, an upper bound of the peak."""
        self._stop.set()
        self._thread.join()
        return sum(self._marks.values())

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            for pid in tree(self._pid):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:  # it ended
                    continue
                if match := re.search(r"VmHWM:\s*(\d+)", status):
                    self._marks[pid] = 1024 * int(match[1])


def tree(root: int) -> list[int]:
    """Ids of a process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:  # it ended
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    pids = [root]
    for pid in pids:
        pids.extend(parents.get(pid, []))
    return pids


def median(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)


def shown(cell: Any) -> str:
    """A table's cell as text; a figure of several rounds is its median, with the lowest and highest value."""
    if isinstance(cell, list):
        middle, low, high = cell
        return f"{middle:,.2f} ({low:,.2f} to {high:,.2f})"
    return f"{cell:,.4g}" if isinstance(cell, float) else str(cell)


def print_table(title: str, table: Sequence[Mapping[str, Any]]) -> None:
    """Print rows, some of which may lack columns, with equal widths; the first column is left-aligned."""
    columns: list[str] = []
    for row in table:
        columns += [column for column in row if column not in columns]
    rows = [columns, *([shown(row.get(column, "")) for column in columns] for row in table)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    print(f"\n{title}")
    for first, *rest in rows:
        padded = map(str.rjust, rest, widths[1:])
        print("  ".join([first.ljust(widths[0]), *padded]), flush=True)


def machine() -> dict[str, Any]:
    """Date, processor, memory, load and versions of this machine."""
    names = (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name"))
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": next(names, platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def print_machine(figures: Mapping[str, Any]) -> None:
    """Print the machine in one line, and a warning if other work is running."""
    versions = ", ".join(f"{n} {v}" for n, v in figures["versions"].items())
    memory = f"{figures['memory'] / 2**30:.0f} GiB"
    print(f"{figures['date']}, {figures['cores']} cores of {figures['processor']}, {memory}, {versions}")
    if figures["load"] > 0.3:
        print(f"other work is running: the machine's load is {figures['load']:.1f}")


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="write the result to FOLDER, replacing the last one there"
    )
    parser.add_argument(
        "--work", type=folder, metavar="FOLDER", help="for temporary files; default: the system's folder"
    )
    parser.set_defaults(command=shlex.join(["python", *sys.orig_argv[1:]]))
    return parser


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark as a program and exit with its code; a UserError becomes a one-line message, with exit code 2."""
    try:
        code = main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)


def folder(text: str) -> Path:
    """Argument type: an existing folder."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return Path(text)
