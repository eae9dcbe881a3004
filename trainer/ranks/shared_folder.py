"""A run's folder, and a check that all ranks see the same one."""

import contextlib
import tempfile
import uuid
from pathlib import Path

from configs import UserError
from configs.process.files import exists, explain
from configs.process.files.inside import look_again, read_text, write_text
from trainer.ranks.distributed import World
from trainer.runs.layout import CHECKPOINTS


def make_shared(folder: Path, world: World) -> None:
    """Make the run's folder, and check that every rank sees what rank 0 writes there.

    Raises:
        UserError: it cannot be written, or is not shared between the machines.
    """
    token = world.from_main(uuid.uuid4().hex)
    probe = folder / f".shared-{token}"
    problem, where = None, folder
    if world.is_main:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(probe, token)
            where = folder / CHECKPOINTS
            _probe(where)
        except OSError as error:
            _remove(probe)  # a full disk leaves an empty file
            problem = f"output: {str(where)!r} cannot be written: {explain(error)}"
    problem = world.from_main(problem)
    if problem is not None:
        raise UserError(problem)
    blind = [rank for rank, sees in enumerate(world.gather(_reads(probe, token))) if not sees]
    world.barrier()
    if world.is_main:
        _remove(probe)
    if blind:
        raise UserError(
            f"output: {str(folder)!r} is not shared: rank {blind[0]} does not see what rank 0 wrote; "
            "choose a folder that all machines of the run share"
        )


def _probe(checkpoints: Path) -> None:
    """Check that checkpoints can be written to their place, before there is anything to save.

    Raises:
        OSError: they cannot.
    """
    if exists(checkpoints):  # if it does not exist, it will be made in a folder that is known to be writable
        with tempfile.TemporaryFile(dir=checkpoints):
            pass


def _remove(probe: Path) -> None:
    with contextlib.suppress(OSError):
        probe.unlink(missing_ok=True)


def _reads(probe: Path, token: str) -> bool:
    try:
        look_again(probe.parent)
        return read_text(probe) == token
    except OSError:
        return False
