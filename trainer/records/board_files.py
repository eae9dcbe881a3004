"""What is read of a run's earlier event files, to go on with one."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from trainer.runs.layout import BOARD

RENEWED = ("custom_scalars__config__", "_hparams_/", "run/")
"""What the tags of what stands once for a run begin with."""
AT_STARTS = ("events/start", "events/rewind/", "events/changed", "events/score_series", "events/left_out")
"""Likewise of what a start writes at the update that it goes on from."""


def kept(files: Sequence[Path], step: int, now: float, event: Any) -> list[bytes]:
    """Events of updates up to `step`, in order, each tag of a step once, at times that do not go back nor beyond now.

    What stands once for a run (`RENEWED`), or for a start at this update (`AT_STARTS`), is left out: every start
    writes it anew.
    """
    newest: dict[tuple[str, int], tuple[int, float, bytes]] = {}
    for path in files:
        for found in _events(path, event):
            for value in found.summary.value:
                update = int(value.node_name) if value.node_name.isdecimal() else found.step
                is_renewed = value.tag.startswith(RENEWED) or (update == step and value.tag.startswith(AT_STARTS))
                if update > step or is_renewed:
                    continue
                alone = event(step=found.step)
                alone.summary.value.append(value)
                newest[value.tag, found.step] = update, found.wall_time, alone.SerializeToString()
    records: list[bytes] = []
    latest = now
    for _, wall_time, data in sorted(newest.values(), key=lambda one: one[0], reverse=True):
        latest = min(latest, wall_time)
        records.append(event(wall_time=latest).SerializeToString() + data)  # joined messages are one
    return records[::-1]


def _events(path: Path, event: Any) -> Iterator[Any]:
    """The events of a file up to one that is broken: length, its checksum, data, its checksum."""
    data = path.read_bytes()
    place = 0
    while place + 12 <= len(data):
        [length] = struct.unpack_from("<Q", data, place)
        begin, place = place + 12, place + 12 + length + 4
        if place > len(data):
            return
        try:
            yield event.FromString(data[begin : begin + length])
        except DecodeError:
            return


def stamp_of(path: Path) -> int:
    """The seconds in a file's name."""
    digits = path.name.removeprefix(BOARD).partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
