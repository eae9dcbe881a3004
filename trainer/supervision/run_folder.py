"""A run's folder: its status, its resolved configuration, and whether all ranks see the same one."""

import json
import os
import socket
import time
import uuid
from pathlib import Path

from configs import UserError
from trainer.distributed import World

LAUNCH_ID = "ZEROMT_LAUNCH_ID"


def write_status(
    folder: Path, state: str, *, exit_code: int, error: str | None = None, step: int | None = None
) -> None:
    """Write `status.json`, whole or not at all: what the run is doing, for whoever started it.

    Of several ranks that fail, the first word stands: the later ones are its victims.

    Args:
        state: running, finished, stopped, failed or refused.
        exit_code: what the process ends with in that state.
        error: what went wrong.
        step: updates done, where that is known.
    """
    path = folder / "status.json"
    status = {
        "state": state,
        "exit_code": exit_code,
        "error": error,
        "step": step,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "updated": time.time(),
        "launch_id": os.environ.get(LAUNCH_ID),
    }
    if state == "failed" and _has_failed_already(path, status["launch_id"]):
        return
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"status.json.{os.getpid()}"
    beside.write_text(json.dumps(status) + "\n", encoding="utf-8")
    beside.replace(path)


def _has_failed_already(path: Path, launch_id: object) -> bool:
    """Whether another rank of this launch has written that it failed."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (
        launch_id is not None
        and isinstance(tree, dict)
        and tree.get("launch_id") == launch_id
        and tree.get("state") == "failed"
    )


def make_shared(folder: Path, world: World) -> None:
    """Make the run's folder, and check that every rank sees what rank 0 writes there.

    Raises:
        UserError: it cannot be written, or is not shared between the machines.
    """
    token = world.from_main(uuid.uuid4().hex)
    probe = folder / f".shared-{token}"
    problem = None
    if world.is_main:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_text(token)
        except OSError as error:
            problem = f"output: {str(folder)!r} cannot be written: {error.strerror}; allowed is a folder to write in"
    problem = world.from_main(problem)
    if problem is not None:
        raise UserError(problem)
    blind = [rank for rank, sees in enumerate(world.gather(_reads(probe, token))) if not sees]
    world.barrier()
    if world.is_main:
        probe.unlink(missing_ok=True)
    if blind:
        raise UserError(
            f"output: {str(folder)!r} is not shared: rank {blind[0]} does not see what rank 0 wrote; "
            "allowed is a folder that all machines of the run share"
        )


def _reads(probe: Path, token: str) -> bool:
    try:
        return probe.read_text() == token
    except OSError:
        return False
