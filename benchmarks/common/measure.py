"""Memory of a process tree, medians, tables, and a description of the machine."""

import argparse
import datetime
import os
import platform
import shlex
import statistics
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from configs import UserError

PACKAGES = ("numpy", "sentencepiece", "webdataset", "torch", "deepspeed")


@dataclass(slots=True)
class TreePeak:
    """Peak memory of a process and its descendants, in bytes."""

    anonymous: int = 0
    """Highest sum of anonymous memory at one moment, without mapped files (RssAnon)."""
    high_water: int = 0
    """Sum of the processes' high-water marks, which need not be simultaneous: an upper bound."""
    num_samples: int = 0


class TreeMemory:
    """Samples the memory of a process and its descendants in a thread. Linux only.

    Args:
        pid: id of the process.
        seconds: between two samples.
    """

    def __init__(self, pid: int, *, seconds: float = 0.05) -> None:
        self._pid = pid
        self._seconds = seconds
        self._marks: dict[int, int] = {}
        self._stop = threading.Event()
        self.peak = TreePeak()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def finish(self) -> TreePeak:
        """Stop sampling; returns the peak."""
        self._stop.set()
        self._thread.join()
        return self.peak

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            found = {pid: f for pid in tree(self._pid) if (f := _memory(pid))}
            self._marks |= {pid: f["VmHWM"] for pid, f in found.items()}
            peak = self.peak
            peak.high_water = sum(self._marks.values())
            peak.anonymous = max(peak.anonymous, sum(f["RssAnon"] for f in found.values()))
            peak.num_samples += 1


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
    found = [root]
    for pid in found:
        found.extend(parents.get(pid, []))
    return found


def high_water(root: int) -> int:
    """Sum of the kernel's high-water marks of a process and its living descendants, in bytes."""
    return sum(_memory(pid).get("VmHWM", 0) for pid in tree(root))


def _memory(pid: int) -> dict[str, int]:
    """A process's memory in bytes by the kernel's field names; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    lines = (line.split() for line in text.splitlines())
    fields = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1:] == ["kB"]}
    return fields if "VmRSS" in fields else {}


def median(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float], form: str = ",.2f") -> str:
    """The median with the lowest and highest value, as text."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def print_table(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows with equal columns; the first column is left-aligned, the others right-aligned."""
    columns = list(rows[0])
    widths = [max(len(c), *(len(row[c]) for row in rows)) for c in columns]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])

    print(f"\n{title}", line(columns), *(line([row[c] for c in columns]) for row in rows), sep="\n", flush=True)


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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="write the result to FOLDER, in place of the last one there"
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
