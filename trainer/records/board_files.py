"""Reads a run's earlier event files, so that a resumed run can continue with a single one."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from configs.process.files.inside import read_bytes
from trainer.runs.layout import BOARD

ONCE_PER_RUN = ("custom_scalars__config__", "_hparams_/", "run/")
"""Prefixes of the tags that describe the whole run."""
ONCE_PER_START = ("events/start", "events/rewind/", "events/changed", "events/score_series", "events/left_out")
"""Prefixes of the tags that every start writes at the step that it resumes from."""


def kept_events(files: Sequence[Path], step: int, now: float, event: Any) -> list[bytes]:
    """The events up to `step`, in order and each tag of a step once; their wall times never decrease or exceed `now`.

    Events with tags of `ONCE_PER_RUN`, and at `step` those of `ONCE_PER_START`, are dropped, because every start writes
    them again.
    """
    newest: dict[tuple[str, int], tuple[int, float, bytes]] = {}
    for path in files:
        for message in _events(path, event):
            for value in message.summary.value:
                update = int(value.node_name) if value.node_name.isdecimal() else message.step
                is_rewritten = value.tag.startswith(ONCE_PER_RUN)
                is_rewritten |= update == step and value.tag.startswith(ONCE_PER_START)
                if update > step or is_rewritten:
                    continue
                alone = event(step=message.step)
                alone.summary.value.append(value)
                newest[value.tag, message.step] = update, message.wall_time, alone.SerializeToString()
    records: list[bytes] = []
    latest = now
    for _, wall_time, data in sorted(newest.values(), key=lambda one: one[0], reverse=True):
        latest = min(latest, wall_time)
        # two serialized messages, concatenated, parse as one with the fields of both
        records.append(event(wall_time=latest).SerializeToString() + data)
    return records[::-1]


def _events(path: Path, event: Any) -> Iterator[Any]:
    """The events of a file before the first corrupt one. A record is: length, its checksum, data, its checksum."""
    data = read_bytes(path, most=None)
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


def timestamp_of(path: Path) -> int:
    """The seconds since the epoch in an event file's name; 0 if there are none."""
    digits = path.name.removeprefix(BOARD).partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
