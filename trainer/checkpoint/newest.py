"""The newest whole checkpoint of a folder, found and verified by all ranks together, and the pointer that names it."""

import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from configs import UserError
from configs.process.files import FileError, naming
from configs.process.files.inside import read_text, sync_folder, write_bytes
from trainer.checkpoint.format import Checkpoint, CheckpointError, divide, read_checkpoint, verify
from trainer.checkpoint.retention import remove_leftovers
from trainer.ranks.distributed import World
from trainer.runs.layout import LATEST, list_steps, step_of

log = logging.getLogger(__name__)

UNUSABLE = "what is computed with its weights is not finite"


def find_newest(folder: Path, world: World, passed_over: Collection[int] = ()) -> tuple[Checkpoint | None, set[str]]:
    """The newest whole checkpoint, every byte of it verified, and the names of newer ones that were refused.

    None if there never was one. The log names each broken checkpoint, and a pointer that named something else. The
    ranks divide the hashing among them. The remains of an interrupted save are removed.

    Args:
        folder: of the checkpoints.
        world: the ranks.
        passed_over: steps that nothing can be trained from.

    Raises:
        CheckpointError: there are checkpoints, and none of them is whole; or there were, as the pointer says.
        UserError: the folder cannot be read.
    """
    if problem := attempt(world, partial(remove_leftovers, folder)):
        log.warning("checkpoints: leftovers cannot be removed: %s", problem)
    names, pointer = world.on_main(partial(_look, folder))
    for number, name in enumerate(names):
        if step_of(folder / name) in passed_over:
            checkpoint, problems = None, [f"{folder / name}: {UNUSABLE}"]
        else:
            checkpoint, problems = verified(folder / name, world)
        if checkpoint is not None:
            if number:
                log.warning("checkpoints: going back to %s: newer ones are not whole, or wrecked", folder / name)
            if pointer != name:
                log.warning("checkpoints: %s said %r; now it names %s", folder / LATEST, pointer, name)
                if problem := attempt(world, partial(point_to, folder, name)):
                    log.warning("checkpoints: %s cannot be written: %s", LATEST, problem)
            return checkpoint, set(names[:number])
        for problem in problems:
            log.warning("checkpoint refused: %s", problem)
    if names:
        raise CheckpointError(
            f"checkpoints: none of {len(names)} in {folder} is whole; restore one from a copy, "
            "or begin a new run by --fresh or under another name (name=...)"
        )
    if pointer is not None:
        raise CheckpointError(
            f"checkpoints: {folder / LATEST} names {pointer!r}, and none is there; bring them back, or begin at "
            "step 0 by --fresh, which puts this run aside"
        )
    return None, set()


def verified(folder: Path, world: World) -> tuple[Checkpoint | None, list[str]]:
    """A checkpoint, and what is wrong with it: None if anything is. Each rank reads about as many bytes."""
    checkpoint = None
    try:
        checkpoint = read_checkpoint(folder)
        sizes = {name: record["bytes"] for name, record in checkpoint.files.items()}
        mine = verify(checkpoint, divide(sizes, world.size)[world.rank])
    except CheckpointError as error:
        mine = [str(error)]
    problems = list(dict.fromkeys(problem for one in world.gather(mine) for problem in one))
    return None if problems else checkpoint, problems


def point_to(folder: Path, name: str) -> None:
    """Let `latest` name a checkpoint, atomically.

    Raises:
        OSError: that failed.
    """
    write_bytes(folder / LATEST, f"{name}\n".encode(), sync=True)
    sync_folder(folder)


def attempt(world: World, action: Callable[[], object]) -> str | None:
    """Run an action on rank 0; every rank gets what went wrong with the disk, if anything did."""
    problem: str | None = None
    if world.is_main:
        try:
            action()
        except (OSError, FileError) as error:
            problem = of_rank(world.rank, error)
    answer: str | None = world.from_main(problem)
    return answer


def of_rank(rank: int, error: BaseException) -> str:
    """`rank 1: [Errno 28] No space left on device`."""
    what = str(error) if isinstance(error, (OSError, UserError)) else f"{type(error).__name__}: {error}"
    return f"rank {rank}: {what}"


def _look(folder: Path) -> tuple[list[str], str | None]:
    """Names of checkpoints, the newest first, and what the pointer says."""
    with naming("checkpoints"):
        names = [path.name for path in list_steps(folder)]
        pointer = folder / LATEST
        return names, read_text(pointer, errors="replace").strip() if pointer.is_file() else None
