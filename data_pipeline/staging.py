"""Where a dataset is made and what it is made from: the recipe, the temporary folder, the disk."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import PrepareSection, UserError
from data_pipeline.index import INDEX_FILE, check_local, hash_file, parse_index
from data_pipeline.raw_text import corpus_paths

NOT_IN_RECIPE = ("output", "root", "workers", "train", "valid", "test")
COMPRESSION_RATIO = 4  # of text under gzip or zstandard, roughly
BYTES_A_BYTE = 0.7  # of shards for each byte of text, roughly: pieces of some four characters take two bytes


@dataclass(frozen=True, slots=True)
class Input:
    """A corpus file as it was when it was first seen."""

    split: str
    path: Path
    name: str
    bytes: int
    mtime_ns: int
    sha256: str


def inspect_inputs(section: PrepareSection) -> list[Input]:
    """Every input file with size and hash.

    Raises:
        UserError: one is missing, unreadable or empty.
    """
    inputs = []
    for split in ("train", "valid", "test"):
        for path in corpus_paths(getattr(section, split), section.root):
            if not path.exists():
                raise UserError(f"prepare.{split}: {path}: no such file")
            if not path.is_file():
                raise UserError(f"prepare.{split}: {path}: is no file; allowed is a text file")
            try:
                status = path.stat()
                if status.st_size == 0:
                    raise UserError(f"prepare.{split}: {path}: is empty; allowed is text with at least one line")
                digest = hash_file(path)
            except OSError as error:
                raise UserError(f"prepare.{split}: {path}: cannot be read: {error.strerror}") from error
            inputs.append(Input(split, path, path.name, status.st_size, status.st_mtime_ns, digest))
    return inputs


def check_unchanged(inputs: list[Input]) -> None:
    """Raise if an input was written to while it was read.

    Raises:
        UserError: naming the file.
    """
    for file in inputs:
        status = file.path.stat()
        if (status.st_size, status.st_mtime_ns) != (file.bytes, file.mtime_ns):
            raise UserError(f"prepare.{file.split}: {file.path}: was changed while it was read; prepare again")


def make_recipe(section: PrepareSection, inputs: list[Input]) -> dict[str, Any]:
    """What fixes the dataset's bytes, as plain JSON: settings, and inputs by content (not by place)."""
    settings = {k: v for k, v in dataclasses.asdict(section).items() if k not in NOT_IN_RECIPE}
    files = [
        {"split": f.split, "file": f.name, "bytes": f.bytes, "sha256": f.sha256, "tsv": _is_tsv(section, f)}
        for f in inputs
    ]
    recipe: dict[str, Any] = json.loads(json.dumps({"settings": settings, "inputs": files}))
    return recipe


def _is_tsv(section: PrepareSection, file: Input) -> bool:
    return bool(getattr(section, file.split).tsv)


def is_already_prepared(output: Path, recipe: dict[str, Any]) -> bool:
    """Whether the output holds the dataset of this recipe.

    Raises:
        UserError: it holds something else, which is never overwritten.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return False
    advice = "remove it, or choose another prepare.output"
    if not (output / INDEX_FILE).is_file():
        raise UserError(f"prepare.output: {output} exists and is no prepared dataset; {advice}")
    index = parse_index((output / INDEX_FILE).read_bytes(), output / INDEX_FILE)
    if index.recipe == recipe:
        return True
    for part in ("settings", "inputs"):
        if index.recipe.get(part) != recipe[part]:
            difference = (
                _difference(index.recipe.get(part), recipe[part]) if part == "settings" else "other input files"
            )
            break
    raise UserError(f"prepare.output: {output} holds another dataset ({difference}); {advice}")


def _difference(old: Any, new: dict[str, Any]) -> str:
    old = old if isinstance(old, dict) else {}
    key = next(k for k in {**new, **old} if old.get(k) != new.get(k))
    if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
        return f"{key}.{_difference(old[key], new[key])}"
    return f"{key} was {old.get(key)!r} and is {new.get(key)!r}"


def check_disk(output: Path, inputs: list[Input]) -> None:
    """Refuse to start what the disk cannot hold, by a rough estimate.

    Raises:
        UserError: with what is needed against what is free.
    """
    text = {True: 0, False: 0}
    for file in inputs:
        packed = file.path.suffix.lower() in (".gz", ".zst")
        text[file.split == "train"] += file.bytes * (COMPRESSION_RATIO if packed else 1)
    needed = int(text[True] * BYTES_A_BYTE) + text[False]
    folder = output.absolute().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"prepare.output: {output} needs some {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free; "
            "allowed is a folder with room"
        )


@contextlib.contextmanager
def staging_folder(output: Path) -> Iterator[Path]:
    """A folder beside the output that becomes it when the block ends well, and goes when it does not.

    Raises:
        UserError: the folder cannot be made or the disk is full.
    """
    check_local(str(output))
    parent = output.absolute().parent
    folder = parent / f".{output.name}.preparing-{socket.gethostname()}-{os.getpid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(output)
        folder.mkdir()
    except OSError as error:
        raise UserError(f"prepare.output: {output}: cannot be written: {error.strerror}") from error
    try:
        yield folder
        sync_folder(folder)
        folder.rename(output.absolute())
        sync_folder(parent)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(parent).free / 1e6
            raise UserError(f"prepare.output: {output}: the disk is full, {free:,.0f} MB are free") from error
        raise UserError(f"prepare.output: {output}: cannot be written: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove_abandoned(output: Path) -> None:
    """Remove what killed preparations of this machine left behind."""
    prefix = f".{output.name}.preparing-{socket.gethostname()}-"
    for path in output.absolute().parent.glob(prefix + "*"):
        pid = path.name.removeprefix(prefix)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Have a folder's entries on the disk, and its files' contents."""
    for path in (*(p for p in folder.iterdir() if p.is_file()), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
