"""Variables of the environment that a launch shares, checks or restores. Without torch."""

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
_DEVICE = re.compile(r"-?[0-9]{1,9}|(GPU|MIG)-[\w/-]+|NoDevFiles|none|void", re.IGNORECASE)
"""Valid entries as CUDA documents them, and what SLURM and containers write for no device."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of this machine that no other user can enter (mode 0700), for what a launch's processes share.

    It is locked, which keeps systemd-tmpfiles from emptying it after ten days.
    """
    with tempfile.TemporaryDirectory(prefix="zeromt-", ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(descriptor)


def check_process(environment: Mapping[str, str]) -> None:
    """Refuse a list with an unknown GPU, because CUDA would ignore it and all that follow.

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
