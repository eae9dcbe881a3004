"""Plugins of ranks that torchrun itself restarts: the same as its first ranks', even if the files have changed.

A launcher passes the plugins in the environment (`configs.plugins.pins`). torchrun alone cannot, so the first ranks
leave a note for later ranks of their agent. Does not import torch.
"""

import contextlib
import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs import Plugin, RunConfig, load_run
from configs.load import folder_of
from configs.plugins import PINS, Pin, pins_of, read_pins, write_copy
from configs.process.files.inside import read_json
from trainer.runs.layout import PLUGINS

_RUN, _RESTARTS = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"


def note_start(folder: Path, plugins: Sequence[Plugin], environ: Mapping[str, str]) -> None:
    """Leave a note for ranks that torchrun restarts on this machine; its first rank calls this.

    Args:
        folder: of the run; it exists.
        plugins: of the run.
        environ: of this process.
    """
    if PINS in environ or _RUN not in environ or environ.get("LOCAL_RANK") != "0" or not plugins:
        return
    pins = [dataclasses.asdict(pin) for pin in pins_of(plugins, folder)]
    started = {"start": environ[_RUN], "agent": os.getppid(), "plugins": pins}
    with contextlib.suppress(OSError):  # a full disk: the ranks then read the files, and end if they differ
        write_copy(_started(folder), json.dumps(started).encode())


def load_for_rank(config_name: str, overrides: Sequence[str], plugins: Sequence[str]) -> RunConfig:
    """Load the configuration of a run in a rank; ranks restarted by torchrun get the same plugins as before.

    Args:
        config_name, overrides, plugins: see `load_run`.

    Raises:
        UserError: see `load_run`.
    """
    pins = None
    if PINS not in os.environ and os.environ.get(_RESTARTS, "0") != "0":
        pins = _pins_of_start(folder_of(config_name, overrides))
    return load_run(config_name, overrides, plugins=plugins, pins=pins)


def _pins_of_start(folder: Path) -> list[Pin] | None:
    """The plugins read by the first ranks of this rank's agent; None if not known."""
    try:
        started = read_json(_started(folder))
        if started["start"] != os.environ.get(_RUN) or started["agent"] != os.getppid():
            return None
        return read_pins(started["plugins"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _started(folder: Path) -> Path:
    return folder / PLUGINS / f"started-{socket.gethostname()}.json"
