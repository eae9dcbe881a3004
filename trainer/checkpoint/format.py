"""The files of a checkpoint: how they are written, and how they are verified before any byte is used.

    step-00000500/manifest.json       every other file with bytes and SHA-256; written after all that it lists
    step-00000500/manifest.sha256     of the manifest's own bytes
    step-00000500/model-00000-of-00002.safetensors      fp32 weights, whole tensors
    step-00000500/optimizer-00000-of-00002.safetensors  KEY/NAME, with AdamW exp_avg/NAME and exp_avg_sq/NAME,
                                      of what is trained
    step-00000500/ema-00000-of-00002.safetensors        their moving average, if `training.ema_decay` keeps one
    step-00000500/state.json, config.yaml, tokenizer*.model

A rank with much to write has more files of a kind, `model-00000-of-00002-1.safetensors` and so on. A checkpoint that
was averaged or imported has no optimizer files; its manifest says so (`weights_only.py`). Nothing is ever unpickled.
What the manifest lists is trusted once it is verified: `state.json` is not searched for values that no run writes.
"""

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from configs import UserError
from configs.process.files import FileError, inside
from trainer.runs.layout import CONFIG, MANIFEST, MANIFEST_HASH, STATE
from trainer.runs.new_folder import as_os_error

FORMAT = 2
TARGET_TAGS = "target_tags"
"""In the manifest: the tag before each source line of each dataset, or null; missing where no dataset has one."""
SOURCES = "sources"
"""In the manifest: files, pairs, licence and attribution (`SourceEntry`) of all that was trained on, by this run and
those that it began from; missing where no dataset has any."""
_PLAIN_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")

PART_BYTES = 256 << 20
"""Size of a file from which another one is begun, so that little is held at a time where no copy is."""
FLOAT_BYTES = 4

Named = tuple[str, str, Tensor]
"""Kind of file, name and tensor."""
Record = dict[str, Any]
"""What the manifest says of a file: `bytes` and `sha256`."""


class CheckpointError(UserError):
    """A checkpoint is not whole; the message names the file."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Checkpoint:
    """A checkpoint whose manifest has been verified; `verify` checks the other files."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def files(self) -> dict[str, Record]:
        """Every file but the manifest and its hash."""
        files: dict[str, Record] = self.manifest["files"]
        return files

    def state(self) -> dict[str, Any]:
        """The state of trainer and stream.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            tree: dict[str, Any] = inside.read_json(self.folder / STATE)
        except (OSError, ValueError, FileError) as error:
            raise CheckpointError(f"{self.folder / STATE}: cannot be read: {error}") from error
        return tree

    def stored(self, kind: str) -> "StoredTensors":
        """The tensors of `model`, `optimizer` or `ema`, not read yet.

        Raises:
            CheckpointError: a file is not a safetensors file.
        """
        return StoredTensors(
            [self.folder / n for n in sorted(self.files) if n.startswith(f"{kind}-") and n.endswith(".safetensors")]
        )

    def weights_kind(self, *, raw: bool) -> Literal["model", "ema"]:
        """Which weights to use: `ema` if there is a moving average, unless `raw` asks for the weights themselves.

        Raises:
            CheckpointError: a file is not a safetensors file.
        """
        return "model" if raw or not self.stored("ema") else "ema"


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of several safetensors files by name; each is read from disk whenever it is asked for."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the files' headers.

        Args:
            paths: of the files.

        Raises:
            CheckpointError: a file is not a safetensors file.
        """
        self._files: dict[str, Any] = {}
        for path in paths:
            try:
                with inside.opened(path) as plain:
                    file: Any = safe_open(inside.name_of(plain), framework="pt")
            except (SafetensorError, OSError, FileError) as error:
                raise CheckpointError(f"{path}: cannot be read: {error}") from error
            self._files |= dict.fromkeys(file.keys(), file)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, without reading it."""
        shape: list[int] = self._files[name].get_slice(name).get_shape()
        return shape

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def divide(sizes: Mapping[str, int], world_size: int) -> list[list[str]]:
    """Assign tensors to ranks, balanced by size: the largest first, each to the rank with the least so far."""
    shards: list[list[str]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        rank = loads.index(min(loads))
        shards[rank].append(name)
        loads[rank] += sizes[name]
    return shards


def write_bytes(path: Path, content: bytes) -> Record:
    """Write a file, and fsync it.

    Raises:
        OSError: it cannot be written.
    """
    inside.write_bytes(path, content, sync=True)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> Record:
    """Write a safetensors file of contiguous tensors, and fsync it; the same tensors give the same bytes.

    Raises:
        OSError: it cannot be written.
    """
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        raise as_os_error(error, path) from error
    with suppress(OSError):  # where the file system has no modes
        path.chmod(path.parent.stat().st_mode & 0o666)  # the library's files are their owner's alone
    with inside.opened(path) as file:
        os.fsync(file.fileno())
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def parts(tensors: Iterable[Named]) -> Iterator[dict[str, dict[str, Tensor]]]:
    """Some tensors at a time, by kind of file and name: fp32, on the host, of `PART_BYTES` in all or a tensor more."""
    part: dict[str, dict[str, Tensor]] = defaultdict(dict)
    size = 0
    for kind, name, tensor in tensors:
        part[kind][name] = tensor.to("cpu", torch.float32).contiguous()
        size += FLOAT_BYTES * tensor.numel()
        if size >= PART_BYTES:
            yield part
            part, size = defaultdict(dict), 0
    yield part


def write_part(
    folder: Path, part: Mapping[str, dict[str, Tensor]], number: int, *, rank: int = 0, world_size: int = 1
) -> dict[str, Record]:
    """Write a part of a rank's tensors, a file of each kind; returns the records of these files.

    Args:
        folder: to write in.
        part: of `parts`.
        number: of the part, from 0.
        rank: whose tensors they are.
        world_size: number of ranks.

    Raises:
        OSError: it cannot be written.
    """
    more = f"-{number}" if number else ""
    names = {kind: f"{kind}-{rank:05d}-of-{world_size:05d}{more}.safetensors" for kind in part}
    return {name: write_tensors(folder / name, part[kind]) for kind, name in names.items()}


def complete(
    folder: Path,
    *,
    tensors: Mapping[str, Record],
    state: Mapping[str, Any],
    config_yaml: str,
    tokenizer_files: Mapping[str, bytes],
    manifest: Mapping[str, Any],
) -> None:
    """Complete a checkpoint's folder, which holds the tensors: add the small files, and last the manifest of all files.

    Args:
        folder: with the tensor files, already fsynced.
        tensors: the manifest's record of each tensor file.
        state: of trainer and stream.
        config_yaml: the resolved configuration.
        tokenizer_files: by name.
        manifest: step, world size, versions and fingerprints.

    Raises:
        OSError: it cannot be written.
    """
    small = {STATE: json.dumps(state, indent=1).encode(), CONFIG: config_yaml.encode(), **tokenizer_files}
    files = {**tensors, **{name: write_bytes(folder / name, content) for name, content in small.items()}}
    content = (json.dumps({"format": FORMAT, **manifest, "files": files}, indent=1, sort_keys=True) + "\n").encode()
    write_bytes(folder / MANIFEST, content)
    write_bytes(folder / MANIFEST_HASH, _hash_line(content))
    inside.sync_folder(folder)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint by its manifest.

    Raises:
        CheckpointError: the manifest is missing, does not match its hash, or lists names outside the folder.
    """
    try:
        content, expected = (inside.read_bytes(folder / name) for name in (MANIFEST, MANIFEST_HASH))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: no complete checkpoint: {error.strerror}") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    if _hash_line(content) != expected:
        raise CheckpointError(f"{folder / MANIFEST}: SHA-256 differs from {MANIFEST_HASH}")
    try:
        checkpoint = Checkpoint(folder=folder, manifest=inside.parse_json(content))
        strange = [name for name in checkpoint.files if not _PLAIN_NAME.match(name)]
        version = checkpoint.manifest["format"]
    except (ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: is not a manifest: {error}") from error
    if version != FORMAT:
        raise CheckpointError(f"{folder / MANIFEST}: format {version!r}; allowed is {FORMAT}")
    if strange:
        raise CheckpointError(f"{folder / MANIFEST}: names {strange[0]!r}; allowed are plain file names")
    return checkpoint


def read_whole(folder: Path) -> Checkpoint:
    """Open a checkpoint after verifying every byte.

    Raises:
        CheckpointError: see `read_checkpoint`; or a file is not what the manifest says.
    """
    checkpoint = read_checkpoint(folder)
    if problems := verify(checkpoint):
        raise CheckpointError(problems[0])
    return checkpoint


def verify(checkpoint: Checkpoint, names: Collection[str] | None = None) -> list[str]:
    """All problems of a checkpoint's files, or of those given: one line each, which names the file."""
    chosen = sorted(checkpoint.files if names is None else names)
    return [problem for name in chosen if (problem := _problem(checkpoint.folder / name, checkpoint.files[name]))]


def _problem(path: Path, record: Record) -> str | None:
    try:
        with inside.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != record["bytes"]:
                return f"{path}: {size} bytes, {record['bytes']} were written"
            if hashlib.file_digest(file, "sha256").hexdigest() != record["sha256"]:
                return f"{path}: SHA-256 differs from the manifest's"
    except FileError as error:
        return str(error)
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    return None


def _hash_line(manifest: bytes) -> bytes:
    return f"{hashlib.sha256(manifest).hexdigest()}\n".encode()
