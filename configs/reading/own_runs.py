"""Whether a run's configuration names paths that its user chose, or a stranger did.

What a run's configuration names (datasets, held-out sets, the cache) may be anything: a private file, a server, a
folder of the caller's. Training therefore leaves a seal in the run's folder, made with a key in the user's home, and
commands that use a run read what it names without asking only if its seal is theirs.
"""

import dataclasses
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from configs.data import StreamSection
from configs.errors import UserError
from configs.load import RUN_CONFIG
from configs.process.files import FileError, expand
from configs.process.files.inside import appending, reading, write_text
from configs.reading.interpolations import as_saved
from configs.schema import RunConfig

SEALS_FILE = "seals"
"""In a run's folder: a line for each different set of paths that it was trained with."""
_KEY_BYTES = 32
_MAX_SEALS_BYTES = 1 << 20


def write_config(run: Path, config: RunConfig, text: str) -> None:
    """Write the configuration of a run, and a seal by which it is known that this user has chosen its paths.

    Without a home folder to keep a key in there is no seal.

    Args:
        run: its folder.
        config: the configuration.
        text: it as YAML.

    Raises:
        OSError: the run's folder cannot be written.
    """
    write_text(run / RUN_CONFIG, text)
    seal(run, config)


def seal(run: Path, config: RunConfig) -> None:
    """Leave the seal in a run's folder.

    Raises:
        OSError: it cannot be written.
    """
    key = _key(create=True)
    if key is None or is_own(run, config):
        return
    with os.fdopen(appending(run / SEALS_FILE), "a", encoding="ascii") as file:
        file.write(_seal(key, config) + "\n")


def is_own(run: Path, config: RunConfig) -> bool:
    """Whether this user has trained with these paths in that folder, or in one that it is a copy of."""
    key = _key(create=False)
    if key is None:
        return False
    try:
        with reading(run / SEALS_FILE) as file:
            lines = file.read(_MAX_SEALS_BYTES).split(b"\n")
    except (OSError, FileError):
        return False
    mine = _seal(key, config).encode()
    return any(hmac.compare_digest(line, mine) for line in lines)


def of_caller(run: Path, config: RunConfig, *, allow: bool, sets: bool = False) -> RunConfig:
    """A run's configuration as the caller may use it: of a run not his own with the usual cache in place of its own.

    Args:
        run: its folder.
        config: a configuration in it.
        allow: the caller has said that what it names may be read.
        sets: the files of `evaluation.sets` are to be read, not only datasets.

    Raises:
        UserError: it names something, the run is not the caller's, and he has not allowed it.
    """
    if is_own(run, config):
        return config
    if not allow:
        field, value = next(_named(config, sets=sets))
        raise UserError(
            f"RUN: {run} names {field}: {value!r}, and you have not trained it on this machine; "
            "if that may be read, add --allow-paths"
        )
    usual = StreamSection()
    stream = dataclasses.replace(config.stream, cache=usual.cache, cache_gigabytes=usual.cache_gigabytes)
    return dataclasses.replace(config, stream=stream)


def _named(config: RunConfig, *, sets: bool) -> Iterator[tuple[str, str]]:
    """What a configuration has commands read, with the names of the fields."""
    for number, one in enumerate(config.evaluation.sets if sets else ()):
        if one.source is not None:
            yield f"evaluation.sets[{number}].source", one.source
    yield from (("stream.datasets", source.path) for source in config.datasets)


def _seal(key: bytes, config: RunConfig) -> str:
    kept: RunConfig = as_saved(config)
    paths = {
        "datasets": sorted(source.path for source in kept.datasets),
        "sets": [[one.source, *one.references] for one in kept.evaluation.sets],
        "cache": [kept.stream.cache, kept.stream.cache_gigabytes],
    }
    return hmac.digest(key, json.dumps(paths, sort_keys=True).encode(), "sha256").hex()


def _key(*, create: bool) -> bytes | None:
    """The user's key, 32 random bytes in a file that only he may read; None if there is none."""
    path = Path(os.environ.get("XDG_STATE_HOME") or expand("~/.local/state"), "zeromt", "key")
    try:
        if create and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_key(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
            key = file.read(_KEY_BYTES) if stat.S_ISREG(status.st_mode) and is_private else b""
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _write_key(path: Path) -> None:
    """Write a new key; of several processes that do so at once, the first one's stays."""
    part = path.with_name(f"key.{secrets.token_hex(8)}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()
