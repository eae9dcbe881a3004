"""Which checkpoints are kept, and how the others are deleted.

A kill between any two operations leaves every kept checkpoint whole: a folder is renamed before the first of its files
is deleted, and names that begin with `tmp-` never count.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from configs import CheckpointSection
from configs.process import files
from configs.process.files.inside import sync_folder
from trainer.runs.layout import TEMPORARY, list_steps, looks_complete, step_folder, step_of

REPLACED = f"{TEMPORARY}replaced-"


def steps_to_keep(steps: Iterable[int], scores: Mapping[int, float], *, last: int, best: int, every: int) -> set[int]:
    """The steps whose checkpoints are kept.

    Args:
        steps: with a complete checkpoint.
        scores: by step, higher is better; a step without a score is never among the best. Of equal scores the newer
            wins.
        last: how many of the newest to keep.
        best: how many of the best to keep.
        every: keep all multiples of this step; 0 for none.
    """
    there = sorted(set(steps))
    by_score = sorted((s for s in there if s in scores), key=lambda s: (-scores[s], -s))
    multiples = {s for s in there if every and s % every == 0}
    return {*there[len(there) - min(last, len(there)) :], *by_score[:best], *multiples}


def retain(folder: Path, scores: Mapping[int, float], section: CheckpointSection, refused: Collection[str]) -> None:
    """Delete the checkpoints that are not kept; for the scores see `steps_to_keep`.

    Those that were refused (their folders' names) or look incomplete do not count. They stay, for inspection, until a
    complete one is newer.

    Raises:
        OSError: a folder cannot be renamed.
    """
    there = {step: path for path in list_steps(folder) if (step := step_of(path)) is not None}
    complete = [step for step, path in there.items() if path.name not in refused and looks_complete(path)]
    last, best, every = section.keep_last, section.keep_best, section.keep_every
    keep = steps_to_keep(complete, scores, last=last, best=best, every=every)
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
