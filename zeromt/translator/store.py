"""Work in numbered chunks, on any number of machines: what is there is done, and is of the same material.

A folder has `job.json`, which says what all chunks are made of, and `chunks/000/000123.jsonl.zst`: a line of JSON for
each item of a chunk. A chunk is there as a whole or not at all.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from configs import UserError
from configs.process.files import disk_errors, exists, explain, inside, put_aside

JOB_FILE = "job.json"
_IN_A_FOLDER = 1000
"""Chunks in a folder, for file systems that are slow with many."""
_LEVEL = 6


class Store:
    """A folder of chunks.

    Args:
        root: the folder.
        material: what the chunks are made of, as JSON.
        option: that names the folder, for messages.
        begins: note the material if nothing is there yet.
        replaces: rename what is there if it was begun with other material.

    Raises:
        UserError: it was begun with other material, or not begun.
    """

    def __init__(
        self,
        root: Path,
        material: Mapping[str, Any],
        option: str,
        *,
        begins: bool = True,
        replaces: bool = False,
    ) -> None:
        self.root, self._option = root, option
        if exists(root / JOB_FILE):
            try:
                self._check(material)
            except UserError:
                if not replaces:
                    raise
                with disk_errors(option, root):
                    put_aside(root, "--replace")
        elif not begins:
            raise UserError(f"{option}: {str(root)!r} has no {JOB_FILE}: nothing was begun there; run a --part")
        if not exists(root / JOB_FILE):
            with disk_errors(option, root):
                root.mkdir(parents=True, exist_ok=True)
                inside.write_text(root / JOB_FILE, json.dumps(material, indent=1, ensure_ascii=False))

    def _check(self, material: Mapping[str, Any]) -> None:
        before = dict(_leaves(read_material(self.root, self._option)))
        for name, now in _leaves(material):
            if before.get(name) != now:
                raise UserError(
                    f"{name}: {json.dumps(now)}, and {str(self.root)!r} was begun with {json.dumps(before.get(name))}; "
                    "give that, or begin anew (--replace)"
                )

    def path(self, number: int) -> Path:
        """The file of a chunk."""
        return path_of(self.root, number)

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Those of some chunks that are not there yet."""
        return [number for number in numbers if not self.path(number).exists()]

    def write(self, number: int, items: Sequence[Any]) -> None:
        """Write a chunk, to the disk.

        Raises:
            UserError: the disk is full, or has another error.
        """
        text = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items)
        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text.encode())
        path = self.path(number)
        with disk_errors(self._option, self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            inside.write_bytes(path, packed, sync=True)

    def read(self, number: int, count: int) -> list[Any]:
        """The items of a chunk, which has `count`.

        Raises:
            UserError: it is missing, damaged, or has another number.
        """
        path = self.path(number)
        try:
            packed = inside.read_bytes(path, most=None)
            text = zstandard.ZstdDecompressor().decompress(packed).decode()
            items = [json.loads(line) for line in text.split("\n")[:-1]]
        except OSError as error:
            raise UserError(f"{self._option}: {str(path)!r} cannot be read: {explain(error)}") from error
        except (zstandard.ZstdError, ValueError, RecursionError) as error:
            raise UserError(f"{self._option}: {str(path)!r} is corrupt; remove it and run its --part again") from error
        if len(items) != count:
            raise UserError(
                f"{self._option}: {str(path)!r} has {len(items)} lines for {count} of the input; remove it and run its "
                "--part again"
            )
        return items

    def must_be_complete(self, number: int) -> None:
        """Raise unless chunks 0 to `number` - 1 are there.

        Raises:
            UserError: naming the first that is not.
        """
        if missing := self.missing(range(number)):
            raise UserError(
                f"{self._option}: {str(self.root)!r}: {len(missing)} of {number} chunks are missing, the first is "
                f"{missing[0]}; run the parts that are not ready, or `--part 1/1`, which makes what is missing"
            )


def path_of(root: Path, number: int) -> Path:
    """The file of a chunk."""
    return root / "chunks" / f"{number // _IN_A_FOLDER:03d}" / f"{number:06d}.jsonl.zst"


def read_material(root: Path, option: str) -> dict[str, Any]:
    """What the chunks of a folder are made of.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return dict(inside.read_json(root / JOB_FILE))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{option}: {str(root / JOB_FILE)!r} cannot be read; give another {option}") from error


def _leaves(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _leaves(value, f"{place}.{name}" if place else name)
    else:
        yield place, tree
