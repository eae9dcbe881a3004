"""What a run did between any two faults, read from its files while it runs: on a resume they are cut back.

A *segment* is what one start of the ranks trained: the step it resumed from, and the figures of every update since. A
*version* is one committed checkpoint; one step may have several, when a later one was lost and its updates redone.
"""

import hashlib
import json
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tests.verification.chaos.damage import step_folders
from tests.verification.chaos.job import Layout

FIGURES = ("loss", "grad_norm", "lr", "epoch", "update", "pairs", "target_tokens", "pairs_digest")


@dataclass(kw_only=True, slots=True)
class Version:
    """A checkpoint that was committed."""

    step: int
    digest: str
    """Of the weights and moments."""
    inode: int
    segment: int
    """Index of the segment that wrote it."""
    copy: Path | None


@dataclass(kw_only=True, slots=True)
class Segment:
    """What one start of the ranks trained."""

    launch: int
    layout: Layout
    start: int
    """The step that it resumed from."""
    root: Version | None
    """The checkpoint that it resumed from."""
    figures: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By step."""

    @property
    def last(self) -> int:
        """The last step of which something was written."""
        return max(self.figures, default=self.start)


class Watch:
    """Follows metrics.jsonl and checkpoints/ from a thread.

    Args:
        aside: keeps hard links of the checkpoints, beyond their retention; None keeps none.
    """

    def __init__(self, run: Path, aside: Path | None) -> None:
        self.segments: list[Segment] = []
        self.versions: list[Version] = []
        self.num_failed_saves = 0
        self.problems: list[str] = []
        self._run = run
        self._aside = aside
        self._launch: tuple[int, Layout] = (0, Layout(num_ranks=0, zero_stage=0))
        self._file: TextIO | None = None
        self._rest = ""
        self._texts: list[str] = []
        self._known: dict[int, Version] = {}
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def step(self) -> int:
        """The step that the run is at."""
        return self.segments[-1].last if self.segments else 0

    def begin_launch(self, number: int, layout: Layout) -> None:
        """Say what is started next. Nothing may be running."""
        self._launch = number, layout

    def settle(self) -> None:
        """Return when all that is there by now has been read.

        Raises:
            Exception: what ended the thread.
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        self._poll()
        self._stop.clear()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Read what is left, and stop."""
        self.settle()
        self._stop.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def drop_copies(self) -> None:
        """Delete the copies from which no segment started, and none can start any more."""
        needed = {id(v) for v in self._known.values()} | {id(s.root) for s in self.segments}
        for version in self.versions:
            if version.copy is not None and id(version) not in needed:
                shutil.rmtree(version.copy)
                version.copy = None

    def _follow(self) -> None:
        try:
            while not self._stop.wait(0.01):
                self._poll()
        except Exception as error:
            self._error = error

    def _poll(self) -> None:
        self._poll_metrics()
        self._poll_checkpoints()  # after the segment that wrote them

    def _poll_metrics(self) -> None:
        path = self._run / "metrics.jsonl"
        try:
            now = path.stat()
        except FileNotFoundError:
            return
        if self._file is None or os.fstat(self._file.fileno()).st_ino != now.st_ino:
            before = self._texts
            if self._file is not None:  # it was replaced, and is read to its end all the same
                self._add(self._read())
                self._file.close()
            self._file = path.open(encoding="utf-8", errors="replace")
            self._texts, self._rest = [], ""
            self._begin(before, self._read())
        else:
            self._add(self._read())

    def _read(self) -> list[dict[str, Any]]:
        """Whole lines that are new. Those of updates are kept as text: they hold times, so no two are the same."""
        assert self._file is not None
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        found = []
        for text in lines:
            line = json.loads(text)
            found.append(line)
            if line["kind"] == "train":
                self._texts.append(text)
        return found

    def _begin(self, before: list[str], lines: list[dict[str, Any]]) -> None:
        """A start of the ranks: what of the file was there before, was kept by the resume."""
        kept = 0
        while kept < min(len(before), len(self._texts)) and before[kept] == self._texts[kept]:
            kept += 1
        start = int(json.loads(before[kept - 1])["step"]) if kept else 0
        number, layout = self._launch
        root = next((v for v in reversed(self.versions) if v.step == start), None)
        if start and root is None:
            self.problems.append(f"launch {number} went on from step {start}, of which no checkpoint was seen")
        self.segments.append(Segment(launch=number, layout=layout, start=start, root=root))
        self._add([line for line in lines if line["step"] > start])

    def _add(self, lines: list[dict[str, Any]]) -> None:
        segment = self.segments[-1]
        for line in lines:
            if line["kind"] != "train":
                self.num_failed_saves += line.get("event") == "checkpoint" and line.get("succeeded") is False
                continue
            if line["step"] != segment.last + 1:
                self.problems.append(f"launch {segment.launch}: step {line['step']} follows step {segment.last}")
            segment.figures[line["step"]] = {name: line.get(name) for name in FIGURES}

    def _poll_checkpoints(self) -> None:
        known = {}
        for step, folder in step_folders(self._run / "checkpoints").items():
            try:
                inode = folder.stat().st_ino
                if step in self._known and self._known[step].inode == inode:
                    known[step] = self._known[step]
                else:
                    known[step] = self._new(step, inode, folder)
            except FileNotFoundError:  # retention
                continue
        self._known = known

    def _new(self, step: int, inode: int, folder: Path) -> Version:
        content = (folder / "manifest.json").read_bytes()
        hashes = {n: r["sha256"] for n, r in json.loads(content)["files"].items() if n.endswith(".safetensors")}
        digest = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
        copy = None
        if self._aside is not None:
            copy = self._aside / f"{len(self.versions):05d}-{folder.name}"
            copy.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                (copy / path.name).hardlink_to(path)
        version = Version(step=step, digest=digest, inode=inode, segment=len(self.segments) - 1, copy=copy)
        self.versions.append(version)
        return version
