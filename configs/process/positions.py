"""How far a rank has come, and which of several stuck ranks is furthest behind.

If a GPU waits for other GPUs in a collective, its host waits too, but looks to the kernel as if it were computing. Of
several such ranks the one furthest behind is the likely cause. When a rank's time is up, its watchdog's monitor writes
the rank's position next to the notes of failures, and reads the others'.
"""

import contextlib
import json
import struct
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from configs.process.files.inside import read_json, write_text

_RECORD = struct.Struct("=qi?")
SIZE = _RECORD.size
_LOOK_SECONDS = 0.5


@dataclass(kw_only=True, slots=True, frozen=True, order=True)
class Position:
    """A rank's position; positions compare by progress, the one further behind being less."""

    update: int
    """The current update, counted from 1; 0 before the first."""
    micro_batch: int
    """The micro-batch begun last, counted from 1; 0 before the first, and beyond the last during the step."""
    in_device: bool = False
    """Whether the host may be waiting for a GPU."""

    def pack(self) -> bytes:
        """As SIZE bytes."""
        return _RECORD.pack(self.update, self.micro_batch, self.in_device)

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        """The inverse of `pack`; zeros are the initial position."""
        update, micro_batch, in_device = _RECORD.unpack(content)
        return cls(update=update, micro_batch=micro_batch, in_device=in_device)

    def __str__(self) -> str:
        return f"micro-batch {self.micro_batch} of update {self.update}{' on its device' if self.in_device else ''}"


def leave(folder: Path, rank: int, position: Position) -> None:
    """Write the position of a stuck rank; errors are ignored.

    Args:
        folder: of the launch.
        rank: whose.
        position: its.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(_file(folder, rank), json.dumps(asdict(position)))


def withdraw(folder: Path, rank: int) -> None:
    """Remove the rank's position: it has gone on."""
    with contextlib.suppress(OSError):
        _file(folder, rank).unlink(missing_ok=True)


def read_positions(folder: Path) -> dict[int, Position]:
    """The positions of the ranks whose time is up; unreadable ones are ignored."""
    positions = {}
    for path in folder.glob("position-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            tree = read_json(path)
            values = {field.name: int(tree[field.name]) for field in fields(Position)}
            positions[int(path.stem.removeprefix("position-"))] = Position(
                update=values["update"], micro_batch=values["micro_batch"], in_device=bool(values["in_device"])
            )
    return positions


def furthest_behind(positions: Mapping[int, Position]) -> int | None:
    """The rank furthest behind; None if there are no positions."""
    return min(positions, key=lambda rank: (positions[rank], rank), default=None)


class Comparison:
    """Compares a rank's position with the others', in a thread, since the file system may hang too."""

    def __init__(self, folder: Path, rank: int, position: Position) -> None:
        self._folder, self._rank, self._position = folder, rank, position
        self.behind: tuple[int, Position] | None = None
        """The rank furthest behind, if it is behind this one."""
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name="positions", daemon=True).start()

    def end(self) -> None:
        """Stop: the rank has gone on."""
        self._is_over.set()

    def _run(self) -> None:
        leave(self._folder, self._rank, self._position)
        while not self._is_over.wait(_LOOK_SECONDS):
            positions = {**read_positions(self._folder), self._rank: self._position}
            rank = furthest_behind(positions)
            is_other = rank is not None and positions[rank] < self._position
            self.behind = (rank, positions[rank]) if rank is not None and is_other else None
        withdraw(self._folder, self._rank)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"position-{rank}.json"
