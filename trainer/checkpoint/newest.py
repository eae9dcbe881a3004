"""A folder of checkpoints: the newest whole one, found and verified by all ranks together, and which are kept.

A kill between any two operations leaves every kept checkpoint whole: a folder is renamed before the first of its files
is deleted, and names that begin with `tmp-` never count.
"""

import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from configs import CheckpointSection, UserError
from configs.process import files
from configs.process.files import FileError, naming
from configs.process.files.inside import read_text, sync_folder, write_bytes
from trainer.checkpoint.format import Checkpoint, CheckpointError, divide, read_checkpoint, verify
from trainer.ranks.distributed import World
from trainer.runs.layout import LATEST, METRICS_FILE, TEMPORARY, list_steps, looks_complete, step_folder, step_of
from trainer.runs.metrics_file import read_lines, whole

log = logging.getLogger(__name__)

REPLACED = f"{TEMPORARY}replaced-"
UNUSABLE = "what is computed with its weights is not finite"


def find_newest(folder: Path, world: World, passed_over: Collection[int] = ()) -> tuple[Checkpoint | None, set[str]]:
    """The newest whole checkpoint, with every byte verified, and the names of newer ones that were refused.

    None if there never was one. The log names each broken checkpoint, and a pointer that named something else. The
    ranks divide the hashing among them. The remains of an interrupted save are removed.

    Args:
        folder: of the checkpoints.
        world: the ranks.
        passed_over: steps that nothing can be trained from.

    Raises:
        CheckpointError: there are checkpoints, but none is whole; or there were, as the pointer or
            metrics.jsonl says.
        UserError: the folder cannot be read.
    """
    if problem := attempt(world, partial(remove_leftovers, folder)):
        log.warning("checkpoints: leftovers cannot be removed: %s", problem)
    names, pointer, lost = world.on_main(partial(_look, folder))
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
    if lost is not None:
        raise CheckpointError(
            f"checkpoints: {folder} has none, and {lost} was saved there; bring them back, or begin at step 0 by "
            "--fresh, which puts this run aside"
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


def _look(folder: Path) -> tuple[list[str], str | None, str | None]:
    """Names of checkpoints, the newest first; what the pointer says; and the last one, if all are gone."""
    with naming("checkpoints"):
        names = [path.name for path in list_steps(folder)]
        pointer = folder / LATEST
        said = read_text(pointer, errors="replace").strip() if pointer.is_file() else None
        lines = () if names else read_lines(folder.parent / METRICS_FILE, having='"checkpoint"')
        steps = filter(None, (whole(line.get("step")) for line in lines if line.get("succeeded")))
        saved = max(map(step_folder, steps), default=None)
        return names, said, None if names else said or saved


def steps_to_keep(steps: Iterable[int], scores: Mapping[int, float], section: CheckpointSection) -> set[int]:
    """The steps whose checkpoints are kept.

    Args:
        steps: with a complete checkpoint.
        scores: by step, higher is better; a step without a score is never among the best. Of equal scores the newer
            wins.
        section: says how many.
    """
    there, every = sorted(steps, reverse=True), section.keep_every
    by_score = sorted((s for s in there if s in scores), key=lambda s: (-scores[s], -s))
    multiples = {s for s in there if every and s % every == 0}
    return {*there[: section.keep_last], *by_score[: section.keep_best], *multiples}


def retain(folder: Path, scores: Mapping[int, float], section: CheckpointSection, refused: Collection[str]) -> None:
    """Delete the checkpoints that are not kept; for the scores see `steps_to_keep`.

    Those that were refused (their folders' names) or look incomplete do not count. They stay, for inspection, until a
    complete one is newer.

    Raises:
        OSError: a folder cannot be renamed.
    """
    there = {step: path for path in list_steps(folder) if (step := step_of(path)) is not None}
    complete = [step for step, path in there.items() if path.name not in refused and looks_complete(path)]
    keep = steps_to_keep(complete, scores, section)
    for step, path in there.items():
        if step not in keep and step <= max(complete, default=-1):
            path.rename(folder / f"{TEMPORARY}delete-{path.name}")
    remove_leftovers(folder)


def publish(folder: Path, temporary: Path, step: int) -> None:
    """Make a complete folder a step's checkpoint.

    It replaces one that was found broken, or that was saved before the step had its scores.

    Raises:
        OSError: a folder cannot be renamed.
    """
    final = folder / step_folder(step)
    if final.exists():
        final.rename(folder / f"{REPLACED}{final.name}")
    temporary.rename(final)


def remove_leftovers(folder: Path) -> None:
    """Delete what was put aside or replaced, and the remains of interrupted saves.

    Raises:
        OSError: something cannot be deleted.
    """
    for replaced in folder.glob(f"{REPLACED}*"):
        final = folder / replaced.name.removeprefix(REPLACED)
        if not final.exists():  # killed between the two renames
            replaced.rename(final)
    leftovers = sorted((*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"{files.TEMPORARY}*")))
    if leftovers:
        sync_folder(folder)  # the renames first: a crash must not keep a deletion and lose its rename
    for path in leftovers:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
