"""`zeromt launch local`: torchrun on this machine, with the ranks' real outcome as exit code; or a command in parts."""

import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from configs.plugins import keep_copies, pins_of, variables
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.agents.node import launch as train
from launcher.machine.supervise import Supervisor
from launcher.options.command import InParts
from launcher.start.run_folder import Place


def launch(supervisor: Supervisor, *, array: InParts | None, **arguments: Any) -> int:
    """Train on this machine, or run the parts of an array and their merge.

    Args:
        supervisor: runs the ranks; its signal handlers are in place.
        array: a command to run in parts, `nproc` or one at a time, all of which read the plugins that were read here;
            None for training.
        arguments: those of `launcher.agents.node.launch`.

    Returns:
        See there; of an array `run_array`.

    Raises:
        UserError: see there.
    """
    if array is None:
        return train(supervisor, **arguments)
    config = arguments["config"]
    place = Place.of(array, config, arguments["overrides"], arguments["plugins"])
    keep_copies(Path(place.folder), place.plugins)
    pins = pins_of(place.plugins, Path(place.folder))
    return run_array(supervisor, array, {**os.environ, **variables(config, pins)}, at_a_time=arguments["nproc"] or 1)


def run_array(supervisor: Supervisor, array: InParts, environment: Mapping[str, str], *, at_a_time: int) -> int:
    """Run a command in parts.

    Args:
        supervisor: runs the parts; its signal handlers are in place.
        array: the command, and how many parts.
        environment: of the parts.
        at_a_time: parts that run side by side.

    Returns:
        0; 75 stopped on request; or the exit code of the first part, or of the merge, that failed, 1 if a signal killed
        it. Then no other is begun, and those that run come to their end.
    """
    codes: list[int] = []

    def run(part: str | None) -> None:
        if any(codes):
            return
        share = ["--merge"] if part is None else ["--part", part]
        command = [sys.executable, "-P", "-m", "zeromt", array.words[0], *share, *array.words[1:]]
        code = supervisor.run(command, environment)
        if code and supervisor.was_stopped:
            code = STOPPED
        elif code:
            how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
            note(f"{array.words[0]} --{'merge' if part is None else f'part {part}'} {how}")
        codes.append(max(code, 1) if code else 0)

    with ThreadPoolExecutor(at_a_time) as pool:
        parts = [pool.submit(run, f"{number + 1}/{array.number}") for number in range(array.number)]
        while wait(parts, timeout=0.2).not_done:
            pass  # in turns: Python handles a signal that came just before an endless wait only when that ends
        for part in parts:
            part.result()
    run(None)
    return next(filter(None, codes), 0)
