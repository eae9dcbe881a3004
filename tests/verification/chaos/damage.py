"""What happens to files: flipped bytes, cut and missing ones, a disk that is full. And which checkpoints are whole."""

import hashlib
import json
import os
import random
import re
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WAYS = ("flipped", "cut short", "emptied", "removed")
POINTER_WAYS = ("garbage", "empty", "dangling", "removed")
_STEP = re.compile(r"^step-(\d{8,})$")
_LEFTOVER = re.compile(r"^tmp-|^\.shared-|\.tmp$|\.json\.\d+$|^STOP$")


def step_folders(checkpoints: Path) -> dict[int, Path]:
    """Folders named after a step, the newest first."""
    if not checkpoints.is_dir():
        return {}
    found = {int(match[1]): p for p in checkpoints.iterdir() if (match := _STEP.match(p.name))}
    return dict(sorted(found.items(), reverse=True))


def whole_steps(checkpoints: Path) -> list[int]:
    """Steps with a complete checkpoint, the newest first; every byte is looked at, by none of the project's code."""
    return [step for step, folder in step_folders(checkpoints).items() if is_whole(folder)]


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint is what its manifest says, and its manifest what its hash says."""
    try:
        content = (folder / "manifest.json").read_bytes()
        if (folder / "manifest.sha256").read_text().strip() != hashlib.sha256(content).hexdigest():
            return False
        for name, record in json.loads(content)["files"].items():
            data = (folder / name).read_bytes()
            if (len(data), hashlib.sha256(data).hexdigest()) != (record["bytes"], record["sha256"]):
                return False
    except (OSError, ValueError):
        return False
    return True


def damage(folder: Path, rng: random.Random) -> str:
    """Damage one file of a checkpoint, and say what was done.

    The file is replaced, not written to: hard links keep what was there.
    """
    path = rng.choice(sorted(p for p in folder.iterdir() if p.stat().st_size))
    way = rng.choice(WAYS)
    content = bytearray(path.read_bytes())
    if way == "removed":
        path.unlink()
        return f"{path.name} of {folder.name} {way}"
    if way == "flipped":
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    else:
        del content[0 if way == "emptied" else rng.randrange(len(content)) :]
    _replace(path, bytes(content))
    return f"{path.name} of {folder.name} {way}"


def damage_pointer(checkpoints: Path, rng: random.Random) -> str:
    """Damage `latest`, and say how."""
    way = rng.choice(POINTER_WAYS)
    pointer = checkpoints / "latest"
    if way == "removed":
        pointer.unlink(missing_ok=True)
    else:
        contents = {"garbage": rng.randbytes(40), "empty": b"", "dangling": b"step-99999999\n"}
        _replace(pointer, contents[way])
    return f"pointer {way}"


def limit_files(pids: Iterable[int], num_bytes: int | None) -> None:
    """Let no file that these processes write grow beyond so many bytes: a full disk, for them alone.

    Args:
        num_bytes: None lifts the limit.
    """
    for pid in pids:
        try:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if num_bytes is None else num_bytes, hard))
        except ProcessLookupError:
            continue


def leftovers(*folders: Path) -> list[str]:
    """Temporary files and folders below these."""
    return sorted(str(p) for folder in folders for p in folder.rglob("*") if _LEFTOVER.search(p.name))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _replace(path: Path, content: bytes) -> None:
    beside = path.parent.parent / f"damage-{os.getpid()}"
    beside.write_bytes(content)
    beside.replace(path)
