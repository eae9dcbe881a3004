"""What can stand in the place of a file in a stranger's folder."""

import contextlib
import json
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.watch import SECRET

SET = "set "
"""Begins a forgery of one value: its number, in the order of the file, and JSON in its place."""
OUTSIDE = "OUTSIDE"
"""In such a value: the folder of the canaries."""
STRANGER = 12_345
"""Another user's number."""
HUGE_BYTES, LINE_BYTES, LEVELS = 5 << 30, 32 << 20, 10_000
_NOTHING = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<u0', 'fortran_order': False, 'shape': (2,)}".ljust(118)
"""The head of a table of numbers of no bytes."""
SOLID_BYTES = 1 << 26
"""Larger files are sparse, and are not hashed."""


def build_outside(folder: Path) -> None:
    """Canaries: what a caller has beside what he names."""
    for name in ("secret", "folder/secret", "home/.ssh/id", "home/.netrc", "home/.cache/zeromt/key"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{SECRET}\n" * 3)
    (folder / "plugin.py").write_text(f"raise SystemExit('{SECRET}')\n")
    (folder / "moved").mkdir()


def apply(folder: Path, forged: dict[str, str], outside: Path) -> None:
    """Forge files of a folder; a name may be a pattern, of which the first match is meant."""
    for pattern, how in forged.items():
        path = next(iter(sorted(folder.glob(pattern))), folder / pattern)
        path.parent.mkdir(parents=True, exist_ok=True)
        if how.startswith(SET):
            _, number, value = how.split(" ", 2)
            _set(path, int(number), json.loads(value.replace(OUTSIDE, str(outside))))
        else:
            KINDS[how](path, outside)
        _seal(path)


def _without(path: Path) -> Path:
    """The path, with nothing there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _link(target: str) -> Callable[[Path, Path], None]:
    return lambda path, outside: _without(path).symlink_to(outside / target)


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def forge(path: Path, _: Path) -> None:
        content = change(_content(path))
        _without(path).write_bytes(content)

    return forge


def _moved(path: Path, outside: Path) -> None:
    """What is right, but elsewhere."""
    there = outside / "moved" / path.name
    if path.exists():
        path.rename(there)
    else:
        there.write_text("1\n")
    path.symlink_to(there)


def _folder_link(path: Path, outside: Path) -> None:
    if path.is_dir():
        _moved(path, outside)
    else:
        _without(path).symlink_to(outside / "folder")


def _others(mode: int) -> Callable[[Path, Path], None]:
    def forge(path: Path, _: Path) -> None:
        if not path.exists():
            path.write_text("1\n")
        path.chmod(mode | 0o111 * (path.is_dir() and bool(mode)))
        with contextlib.suppress(PermissionError):
            os.chown(path, STRANGER, STRANGER)

    return forge


def _socket(path: Path, _: Path) -> None:
    """Moved there, as the whole path may be too long for a socket."""
    near = Path("/tmp") / f"zs-{os.getpid()}-{id(path)}"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(near))
    shutil.move(near, _without(path))


def _huge(path: Path, _: Path) -> None:
    """Zeros after what is there; sparse."""
    if path.is_dir():
        _without(path)
    with path.open("ab") as file:
        file.truncate(HUGE_BYTES)


def _zeros(path: Path, outside: Path) -> None:
    _without(path).touch()
    _huge(path, outside)


def _missing(path: Path, _: Path) -> None:
    _without(path)


def _folder(path: Path, _: Path) -> None:
    (_without(path) / "deeper").mkdir(parents=True)


def _header(change: Callable[[dict[str, Any]], bytes]) -> Callable[[Path, Path], None]:
    """Another header of a safetensors file, of whatever length; of other files their first bytes."""

    def forge(content: bytes) -> bytes:
        try:
            length = int.from_bytes(content[:8], "little")
            tree = json.loads(content[8 : 8 + length])
        except ValueError:
            return struct.pack("<Q", 1 << 62) + content[8:]
        header = change(tree)
        return struct.pack("<Q", len(header)) + header + content[8 + length :]

    return _bytes(forge)


def _larger(tree: dict[str, Any]) -> bytes:
    """Every tensor as if it were of many dimensions and gigabytes."""
    changed = {k: {**v, "shape": [1 << 20, 1 << 20]} if "shape" in v else v for k, v in tree.items()}
    return json.dumps(changed).encode()


def _overlapping(tree: dict[str, Any]) -> bytes:
    return json.dumps({k: {**v, "data_offsets": [0, 1 << 60]} if "shape" in v else v for k, v in tree.items()}).encode()


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link": _link("secret"),
    "link to what is missing": _link("new"),
    "link to what is right": _moved,
    "link to a folder": _folder_link,
    "link to itself": lambda path, _: _without(path).symlink_to(path.name),
    "link to zeros": _link("/dev/zero"),
    "link to stdin": _link("/dev/stdin"),
    "link to a process": _link("/proc/self/environ"),
    "FIFO": lambda path, _: os.mkfifo(_without(path)),
    "socket": _socket,
    "folder": _folder,
    "missing": _missing,
    "empty": _bytes(lambda _: b""),
    "half": _bytes(lambda content: content[: len(content) // 2]),
    "garbled": _bytes(lambda _: bytes(range(256)) * 40),
    "text": _bytes(lambda _: b"\x1b[2J" + "\u202eword\n".encode() * 3),
    "deep list": _bytes(lambda _: b"[" * LEVELS + b"]" * LEVELS),
    "deep mapping": _bytes(lambda _: b'{"a":' * LEVELS + b"1" + b"}" * LEVELS),
    "list": _bytes(lambda _: b"[1, 2]\n"),
    "mapping": _bytes(lambda _: b'{"a": 1}\n'),
    "number": _bytes(lambda _: b"7\n"),
    "large number": _bytes(lambda _: b"9" * 5000),
    "endless line": _bytes(lambda content: content[:1] + b"x" * LINE_BYTES),
    "endless text": _bytes(lambda _: b'{"a": "' + b"x" * LINE_BYTES + b'"}'),
    "many lines": _bytes(lambda _: b"{}\n" * (LINE_BYTES // 16)),
    "repeated": _bytes(lambda content: content * max(2, (1 << 20) // max(1, len(content)))),
    "huge": _huge,
    "zeros": _zeros,
    "of another": _others(0o644),
    "of another, closed": _others(0),
    "header too long": _bytes(lambda content: struct.pack("<Q", 1 << 40) + content[8:]),
    "table of nothing": _bytes(lambda content: _NOTHING + content[128:]),
    "header deep": _header(lambda _: b"[" * LEVELS),
    "header larger": _header(_larger),
    "header overlapping": _header(_overlapping),
}
"""Each is given the path and the folder of the canaries."""


def _set(path: Path, number: int, value: Any) -> None:
    """Another value in a file of JSON, lines of JSON, or YAML; the whole text of others."""
    text = _content(path).decode(errors="replace")
    try:
        if path.suffix == ".jsonl":
            trees: Any = [json.loads(line) for line in text.splitlines()]
        else:
            trees = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    except ValueError:
        trees = None
    places = list(_places(trees))
    if not places:
        _without(path).write_text(value if isinstance(value, str) else json.dumps(value), errors="replace")
        return
    holder, key = places[number % len(places)]
    holder[key] = value
    lines = trees if path.suffix == ".jsonl" else [trees]
    _without(path).write_text("".join(json.dumps(line) + "\n" for line in lines))  # JSON is YAML


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a tree, as what holds it and its key there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def _seal(path: Path) -> None:
    """Sizes and hashes that a checkpoint's manifest or a dataset's index has of a file, as who forges it sets them."""
    for name in ("manifest.json", "index.json"):
        lists = path.with_name(name)
        if not lists.is_file() or lists.is_symlink() or lists.stat().st_size > SOLID_BYTES:
            continue
        with contextlib.suppress(ValueError, AttributeError, OSError, RecursionError):
            text = lists.read_text()
            if lists != path and path.is_file() and path.stat().st_size <= SOLID_BYTES:
                new = {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
                tree = json.loads(text)
                for holder, key in _places({"": tree}):
                    if isinstance(holder[key], dict) and path.name in (key, holder[key].get("file")):
                        holder[key] |= {k: v for k, v in new.items() if k in holder[key]}
                text = json.dumps(tree, indent=1)
                lists.write_text(text)
            hashed = path.with_name("manifest.sha256")
            if name == "manifest.json" and path != hashed:
                hashed.write_text(sha256(text.encode()).hexdigest() + "\n")
