"""The files of a checkpoint: how they are written, and how they are verified before a byte of them is used.

    step-00000500/manifest.json       every other file with bytes and SHA-256; written after all that it lists
    step-00000500/manifest.sha256     of the manifest's own bytes
    step-00000500/model-00000-of-00002.safetensors      fp32 weights, whole tensors
    step-00000500/optimizer-00000-of-00002.safetensors  KEY/NAME, with AdamW exp_avg/NAME and exp_avg_sq/NAME,
                                      of what is trained
    step-00000500/ema-00000-of-00002.safetensors        their moving average, if `training.ema_decay` keeps one
    step-00000500/state.json, config.yaml, tokenizer*.model

A checkpoint that was averaged or imported has no optimizer files; its manifest says so (`weights_only.py`).
Nothing is ever unpickled.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open
from torch import Tensor

from configs import UserError
from configs.process.files import FileError, inside
from trainer.checkpoint.state import TrainerState
from trainer.runs.layout import CONFIG, MANIFEST, MANIFEST_HASH, STATE

FORMAT = 1
TARGET_TAGS = "target_tags"
"""In the manifest: the tag before each source line of each dataset, or null; missing where no dataset has one."""
SOURCES = "sources"
"""In the manifest: files, pairs, licence and attribution (`SourceEntry`) of all that was trained on, by this run and
those that it began from; missing where no dataset has any."""
_PLAIN_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


FileState = tuple[int, int, int]
"""Inode, bytes and time of change."""


class CheckpointError(UserError):
    """A checkpoint is not whole; the message names the file."""


@dataclass(kw_only=True, slots=True, frozen=True)
class FileRecord:
    """What the manifest says of a file."""

    bytes: int
    sha256: str


@dataclass(kw_only=True, slots=True, frozen=True)
class Checkpoint:
    """A checkpoint whose manifest has been verified; `verify` checks the other files."""

    folder: Path
    manifest: dict[str, Any]
    states: dict[str, FileState | None] = field(default_factory=dict)
    """States of the files before they were verified."""

    def must_be_unchanged(self) -> None:
        """Raise if a file of a checkpoint that was verified is now another one.

        Raises:
            CheckpointError: naming the file.
        """
        for name, state in self.states.items():
            if _state(self.folder / name) != state:
                raise CheckpointError(f"{self.folder / name}: was replaced while it was read; run the command again")

    @property
    def files(self) -> dict[str, FileRecord]:
        """Every file but the manifest and its hash."""
        return {name: FileRecord(**record) for name, record in self.manifest["files"].items()}

    def state(self) -> dict[str, Any]:
        """The trainer's state.

        Raises:
            CheckpointError: it is not valid JSON, or lacks what is in every state.
        """
        path = self.folder / STATE
        try:
            tree: dict[str, Any] = inside.read_json(path)
            check_state(tree)
        except (OSError, ValueError, FileError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        return tree

    def stored(self, kind: str) -> "StoredTensors":
        """The tensors of `model`, `optimizer` or `ema`, none of them read yet.

        Raises:
            CheckpointError: a file is no safetensors file.
        """
        return StoredTensors(
            [self.folder / n for n in sorted(self.files) if n.startswith(f"{kind}-") and n.endswith(".safetensors")]
        )

    def tensors(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors of `model`, `optimizer` or `ema`, one at a time.

        Raises:
            CheckpointError: a file cannot be read, or one is not that which was verified.
        """
        yield from self.stored(kind).items()
        self.must_be_unchanged()

    def weights_kind(self, *, raw: bool) -> Literal["model", "ema"]:
        """Which weights to use: `ema` if there is a moving average, unless `raw` asks for the weights themselves.

        Raises:
            CheckpointError: a file is no safetensors file.
        """
        return "model" if raw or not self.stored("ema") else "ema"


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of several safetensors files by name; each is read from disk whenever it is asked for."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the files' headers.

        Args:
            paths: of the files.

        Raises:
            CheckpointError: a file is no safetensors file.
        """
        self._files: dict[str, tuple[Path, Any]] = {}
        for path in paths:
            try:
                with inside.opened(path) as plain:
                    file: Any = safe_open(inside.name_of(plain), framework="pt")
                self._files |= dict.fromkeys(file.keys(), (path, file))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path}: cannot be read: {error}") from error
            except FileError as error:
                raise CheckpointError(str(error)) from error

    def __getitem__(self, name: str) -> Tensor:
        path, file = self._files[name]
        try:
            tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        return tensor

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, without reading it."""
        _, file = self._files[name]
        shape: list[int] = file.get_slice(name).get_shape()
        return shape

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def shard_name(kind: str, rank: int, world_size: int) -> str:
    """The file of one rank's shard."""
    return f"{kind}-{rank:05d}-of-{world_size:05d}.safetensors"


def divide(sizes: Mapping[str, int], world_size: int) -> list[list[str]]:
    """Assign tensors to ranks, balanced by size: the largest first, each to the rank with the least so far."""
    shards: list[list[str]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        rank = loads.index(min(loads))
        shards[rank].append(name)
        loads[rank] += sizes[name]
    return shards


def write_bytes(path: Path, content: bytes) -> FileRecord:
    """Write a file of a new folder, and fsync it.

    Raises:
        OSError: it cannot be written.
    """
    with inside.opened(path, "xb", buffering=0) as file:
        write_all(file.fileno(), content)
        os.fsync(file.fileno())
    return FileRecord(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write every byte: one system call may take fewer, as on a disk that is nearly full.

    Raises:
        OSError: nothing more can be written.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def encode_state(tree: Mapping[str, Any]) -> bytes:
    """The content of state.json."""
    return (json.dumps(tree, indent=1) + "\n").encode()


def complete(
    folder: Path,
    *,
    tensors: Mapping[str, FileRecord],
    state: bytes,
    config_yaml: bytes,
    tokenizer_files: Mapping[str, bytes],
    manifest: Mapping[str, Any],
) -> None:
    """Complete a checkpoint's folder, which holds the tensors: add the small files, and last the manifest of them all.

    Args:
        folder: with the tensor files, already fsynced.
        tensors: the manifest's record of each tensor file.
        state: see `encode_state`.
        config_yaml: the resolved configuration.
        tokenizer_files: by name.
        manifest: step, world size, versions and fingerprints.

    Raises:
        OSError: it cannot be written.
    """
    small = {STATE: state, CONFIG: config_yaml, **tokenizer_files}
    records = {**tensors, **{name: write_bytes(folder / name, content) for name, content in small.items()}}
    files = {name: asdict(record) for name, record in records.items()}
    write_manifest(folder, {"format": FORMAT, **manifest, "files": files})
    inside.sync_folder(folder)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest and its hash; everything else must be on the disk already."""
    content = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
    write_bytes(folder / MANIFEST, content)
    write_bytes(folder / MANIFEST_HASH, _hash_line(content))


def read_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint by its manifest. `file_problem` checks the other files.

    Raises:
        CheckpointError: the manifest is missing, does not match its hash, or lists names outside the folder.
    """
    try:
        content = inside.read_bytes(folder / MANIFEST)
        expected = inside.read_bytes(folder / MANIFEST_HASH)
    except OSError as error:
        raise CheckpointError(f"{error.filename}: no complete checkpoint: {error.strerror}") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    if _hash_line(content) != expected:
        raise CheckpointError(f"{folder / MANIFEST}: SHA-256 differs from {MANIFEST_HASH}")
    try:
        manifest = {"versions": {}, **inside.parse_json(content)}
        checkpoint = Checkpoint(folder=folder, manifest=manifest)
        names = list(checkpoint.files)
        check_manifest(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: is not a manifest: {error}") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder / MANIFEST}: format {manifest.get('format')!r}; allowed is {FORMAT}")
    for name in names:
        if not _PLAIN_NAME.match(name):
            raise CheckpointError(f"{folder / MANIFEST}: names {name!r}; allowed are plain file names")
    return checkpoint


def read_whole(folder: Path) -> Checkpoint:
    """Open a checkpoint, every byte of it verified.

    Raises:
        CheckpointError: see `read_checkpoint`; or a file is not what the manifest says.
    """
    checkpoint = read_checkpoint(folder)
    checkpoint.states.update({name: _state(folder / name) for name in (MANIFEST, *checkpoint.files)})
    if problems := verify(checkpoint):
        raise CheckpointError(problems[0])
    return checkpoint


def file_problem(checkpoint: Checkpoint, name: str) -> str | None:
    """What is wrong with a file of the checkpoint, in one line that names it; None if nothing is."""
    path, record = checkpoint.folder / name, checkpoint.files[name]
    try:
        with inside.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
        if size != record.bytes:
            return f"{path}: {size} bytes, {record.bytes} were written"
        if _sha256(path) != record.sha256:
            return f"{path}: SHA-256 differs from the manifest's"
    except FileError as error:
        return str(error)
    except FileNotFoundError:
        return f"{path}: is missing"
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    return None


def verify(checkpoint: Checkpoint) -> list[str]:
    """All problems of a checkpoint's files, one line each."""
    return [p for name in sorted(checkpoint.files) if (p := file_problem(checkpoint, name)) is not None]


def _state(path: Path) -> FileState | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _hash_line(manifest: bytes) -> bytes:
    return f"{hashlib.sha256(manifest).hexdigest()}\n".encode()


def _sha256(path: Path) -> str:
    with inside.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_MANIFEST: dict[str, type] = {"step": int, "versions": dict, "fingerprints": dict}
"""Entries of every checkpoint's manifest."""
_OF_SOME: dict[str, type] = {"world_size": int, "zero_stage": int, "precision": str}
_NUMBERS = {f.name: f.type for f in fields(TrainerState) if f.type in (int, float)}
_SHOWN = ("step", "target_tokens", "seconds")


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check the values that commands take apart.

    Raises:
        ValueError: one is of another type; the message names it.
    """
    for name, wanted in (_MANIFEST | {n: t for n, t in _OF_SOME.items() if n in manifest}).items():
        _check(name, manifest.get(name), wanted)
    _check(SOURCES, manifest.get(SOURCES, []), list)
    fingerprints = manifest["fingerprints"]
    _check("fingerprints.tokenizer", fingerprints.get("tokenizer"), str)
    _check("fingerprints.data", fingerprints.get("data"), list)
    _check("fingerprints.plugins", fingerprints.get("plugins", {}), dict)
    for fingerprint in (*fingerprints["data"], *fingerprints.get("plugins", {}).values()):
        _check("fingerprints", fingerprint, str)


def check_state(tree: Any) -> None:
    """Check what commands show of a checkpoint's state. Training reads all of it by `TrainerState` and `StreamState`.

    Raises:
        ValueError: a value is missing or of another type.
    """
    _check("state", tree, dict)
    _check("trainer", tree.get("trainer"), dict)
    if tree.get("stream") is not None:
        _check("stream", tree["stream"], dict)
        for name in ("epoch", "update"):
            _check(f"stream.{name}", tree["stream"].get(name), int)
    trainer = tree["trainer"]
    for name, wanted in _NUMBERS.items():
        if name in trainer or name in _SHOWN:
            _check(f"trainer.{name}", trainer.get(name), wanted)
    if trainer.get("phase") is not None:
        _check("trainer.phase", trainer["phase"], dict)
        _check("trainer.phase.name", trainer["phase"].get("name"), str)
        _check("trainer.phase.step", trainer["phase"].get("step"), int)


def _check(name: str, value: Any, wanted: type) -> None:
    types = (int, float) if wanted is float else wanted
    if not isinstance(value, types) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise ValueError(f"{name} is {str(value)!r:.80}; allowed is {wanted.__name__}")
