"""A job's secret, which its nodes alone know: by it they tell one another's messages from a stranger's.

torch's stores let everybody in who reaches their port. What agents read there is JSON or text, and counts only with the
mark that the secret gives it; it is never unpickled.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files.inside import is_listed, look_again

SECRET = "ZEROMT_SECRET"
"""Environment variable, from a launch that reaches every node by a channel of its own: SLURM by srun."""
_LENGTH = 64
_LOOK_SECONDS = 0.5


def new_secret() -> str:
    """256 bits, in hexadecimal."""
    return secrets.token_hex(_LENGTH // 2)


def shared_secret(folder: Path, start: str, *, is_first: bool, has_ended: Callable[[], bool]) -> str | None:
    """The secret of a start: that of the environment, or one that node 0 leaves in the run's folder for the others.

    Args:
        folder: the run's, which all nodes share.
        start: its name, the same on all nodes.
        is_first: whether this node makes it.
        has_ended: whether to wait no longer for node 0.

    Returns:
        None if node 0 left none in time.

    Raises:
        UserError: others can read or could have written it.
    """
    if given := os.environ.get(SECRET):
        return given
    path = secret_file(folder, start)
    if is_first:
        with contextlib.suppress(FileExistsError):
            _write(path, new_secret())
    while True:
        if look_again(folder) and is_listed(path) and (secret := _read(path)) is not None:
            return secret
        if has_ended():
            return None
        time.sleep(_LOOK_SECONDS)


def secret_file(folder: Path, start: str) -> Path:
    """Where node 0 leaves it, until all have read it."""
    return folder / f".secret-{start}"


def _write(path: Path, secret: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe(path, str(error.strerror)) from error
    with os.fdopen(descriptor) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or os.geteuid() not in (0, status.st_uid):
            raise _unsafe(path, "others can read it, or have made it")
        content = file.read(_LENGTH)
    return content if len(content) == _LENGTH else None


def _unsafe(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: {why}; it holds the secret by which the nodes of a job know one another; give every node the "
        f"same random text as {SECRET} in its environment, which takes its place"
    )


def tag(secret: str, start: str) -> str:
    """A name of a start that only those who share the secret know."""
    return hmac.new(secret.encode(), f"zeromt tag {start}".encode(), hashlib.sha256).hexdigest()[:32]


class Board:
    """A store of torch in which the nodes of one start leave messages for one another.

    Who reaches the store can take them away or overwrite them, but makes none that is believed.
    """

    def __init__(self, store: Any, secret: str, start: str) -> None:
        """Make it over a `torch.distributed.Store`."""
        self._key = hmac.digest(secret.encode(), f"zeromt {start}".encode(), "sha256")
        self.store = store

    def put(self, name: str, text: str = "") -> None:
        """Leave a message, in the place of an earlier one.

        Raises:
            RuntimeError: the store is gone.
        """
        text = text.encode(errors="replace").decode()
        self.store.set(name, f"{self._mark(name, text)}{text}")

    def read(self, name: str) -> str | None:
        """The message of this name, without waiting; None if there is none, or it is a stranger's.

        Raises:
            RuntimeError: the store is gone.
        """
        content: bytes = self.store.compare_set(name, "-", "-")  # changes nothing, and, unlike `get`, never waits
        text = content.decode(errors="replace")
        mark, text = text[:_LENGTH], text[_LENGTH:]
        return text if hmac.compare_digest(mark.encode(), self._mark(name, text).encode()) else None

    def _mark(self, name: str, text: str) -> str:
        return hmac.new(self._key, f"{name}\0{text}".encode(), hashlib.sha256).hexdigest()
