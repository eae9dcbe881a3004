"""The variables that ranks read from their environment, checked before anything else reads them. Without torch."""

import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from configs.errors import UserError

PRIVATE = "ZEROMT_PRIVATE"
"""Environment variable: the folder of `private_folder`. Where a launch has one node, its ranks meet there."""
_WHOLE = re.compile(r"[0-9]{1,9}")
_THREADS = re.compile(r"\s*(\+?0*[1-9]\d{0,4}\s*(,\s*0*[1-9]\d{0,4}\s*)*)?")
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
    missing = [name for name in names if name not in given]
    if missing:
        raise UserError(
            f"{missing[0]}: not set beside {', '.join(given)}; "
            f"allowed is all of {', '.join(names)}, as torchrun sets them, or none"
        )
    for name, value in given.items():
        if not _WHOLE.fullmatch(value):
            raise UserError(f"{name}: {value!r}; allowed is a whole number from 0")
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
        port = environment["MASTER_PORT"]
        if not _WHOLE.fullmatch(port) or not 0 < int(port) < 1 << 16:
            raise UserError(f"MASTER_PORT: {port!r}; allowed is 1 to 65535")
    check_machine(environment)


def check_machine(environment: Mapping[str, str]) -> None:
    """Refuse variables that would end or slow down all ranks of this machine.

    Raises:
        UserError: naming the variable, its value and what is allowed.
    """
    check_process(environment)
    there = [name for _, name in socket.if_nameindex()]
    for name in filter(None, environment.get("GLOO_SOCKET_IFNAME", "").split(",")):
        if name not in there:
            raise UserError(
                f"GLOO_SOCKET_IFNAME: {name!r} is no network interface of {socket.gethostname()}; "
                f"allowed is one of {', '.join(there)}"
            )


def check_process(environment: Mapping[str, str]) -> None:
    """Refuse variables that would end a process, or make it use other threads or devices than the user meant.

    OpenMP uses all cores if it cannot parse the number, and CUDA ignores all devices from the first unknown one on.

    Raises:
        UserError: naming the variable, its value and what is allowed.
    """
    threads = environment.get("OMP_NUM_THREADS", "")
    if not _THREADS.fullmatch(threads):
        raise UserError(f"OMP_NUM_THREADS: {threads!r}; allowed is a number of threads, from 1")
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
