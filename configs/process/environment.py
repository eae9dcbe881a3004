"""The variables that ranks read from their environment, checked before anything else reads them. Without torch."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from configs.errors import UserError

PRIVATE = "ZEROMT_PRIVATE"
"""Environment variable: the folder of `private_folder`. Where a launch has one node, its ranks meet there."""
_WHOLE = re.compile(r"[0-9]{1,9}")
_DEVICE = re.compile(r"-?[0-9]{1,9}|(GPU|MIG)-[\w/-]+|NoDevFiles|none|void", re.IGNORECASE)
"""Valid entries as CUDA documents them, and what SLURM and containers write for no device."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of this machine that no other user can enter (mode 0700), for what a launch's processes share.

    It is locked, which keeps systemd-tmpfiles from emptying it after ten days.

    Raises:
        UserError: it cannot be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="zeromt-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(f"TMPDIR: no folder can be made there: {error}; name one that can be written") from error
    with folder as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(descriptor)


def is_one_node(environment: Mapping[str, str]) -> bool:
    """Whether all ranks are on this machine, as torchrun says; a process without it is alone."""
    return environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE")


def read_environment(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """(rank, world size, local rank) from RANK, WORLD_SIZE and LOCAL_RANK; (0, 1, 0) if none of them is set.

    Raises:
        UserError: they are incomplete, not numbers, or contradict each other.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = {name: environment[name] for name in names if name in environment}
    if not given:
        return 0, 1, 0
    for name in names:
        if not _WHOLE.fullmatch(given.get(name, "")):
            raise UserError(f"{name}: {given.get(name, '')!r}; allowed is a whole number in each of {', '.join(names)}")
    rank, size, local_rank = (int(given[name]) for name in names)
    if size < 1 or rank >= size:
        raise UserError(f"RANK: {rank} with WORLD_SIZE={size}; allowed is 0 to WORLD_SIZE - 1")
    if local_rank > rank:
        raise UserError(f"LOCAL_RANK: {local_rank} with RANK={rank}; allowed is at most RANK")
    return rank, size, local_rank


def check_rank(environment: Mapping[str, str]) -> None:
    """Refuse variables that would make a rank fail when it joins the others.

    Raises:
        UserError: naming the variable, its value and what is allowed.
    """
    _, size, _ = read_environment(environment)
    if size > 1 and not (is_one_node(environment) and environment.get(PRIVATE)):
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                raise UserError(f"{name}: not set with WORLD_SIZE={size}; start with torchrun, which sets it")
    check_process(environment)


def check_process(environment: Mapping[str, str]) -> None:
    """Refuse a list of GPUs of which CUDA would ignore all from the first unknown one on.

    Raises:
        UserError: naming the variable, its value and what is allowed.
    """
    devices = environment.get("CUDA_VISIBLE_DEVICES", "")
    for device in devices.split(","):
        if device.strip() and not _DEVICE.fullmatch(device.strip()):
            raise UserError(
                f"CUDA_VISIBLE_DEVICES: {devices!r}; allowed are numbers of GPUs, or their names as `nvidia-smi -L` "
                "gives them, with commas between them; nothing at all for the CPU"
            )


@contextmanager
def restored_environment() -> Iterator[None]:
    """Restore this process's environment at the end of the block.

    Libraries read their configuration from variables at first use, so a run sets some. These must not affect a program
    that calls a run as a function, or children that it starts later.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
