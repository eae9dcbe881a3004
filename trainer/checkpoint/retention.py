"""Which checkpoints are kept, and how the others go.

A kill between any two operations leaves every kept checkpoint whole: a folder is renamed before the first of its files
is deleted, and names that begin with `tmp-` never count.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainer.checkpoint.format import sync_folder
from trainer.runs.layout import TEMPORARY, list_steps, looks_complete, step_folder, step_of


def steps_to_keep(steps: Iterable[int], scores: Mapping[int, float], *, last: int, best: int, every: int) -> set[int]:
    """The steps whose checkpoints stay, of those that are there.

    Args:
        steps: with a complete checkpoint.
        scores: how good they are by step, the higher the better; steps without one are never among the best. Of equals
            the newer is better.
        last: so many of the newest.
        best: so many of the highest score.
        every: all multiples of this; 0 for none.
    """
    there = sorted(set(steps))
    by_score = sorted((s for s in there if s in scores), key=lambda s: (-scores[s], -s))
    multiples = {s for s in there if every and s % every == 0}
    return {*there[len(there) - min(last, len(there)) :], *by_score[:best], *multiples}


def retain(
    folder: Path,
    scores: Mapping[int, float],
    *,
    last: int,
    best: int,
    every: int,
    refused: Iterable[str] = (),
    awaited: Iterable[int] = (),
) -> None:
    """Delete the checkpoints that are not kept.

    Those that are refused or look incomplete count for nothing. They stay, for whoever wants to look at them, until
    a complete one is newer.

    Args:
        folder: of the checkpoints.
        scores: see `steps_to_keep`, as the rest.
        last: see there.
        best: see there.
        every: see there.
        refused: names of folders that were found broken.
        awaited: steps whose scores are still to come; they stay until then.

    Raises:
        OSError: a folder cannot be renamed.
    """
    there = {step: path for path in list_steps(folder) if (step := step_of(path)) is not None}
    broken = set(refused)
    complete = [step for step, path in there.items() if path.name not in broken and looks_complete(path)]
    keep = steps_to_keep(complete, scores, last=last, best=best, every=every) | set(awaited)
    doomed = [step for step in sorted(there) if step not in keep and step <= max(complete, default=-1)]
    for step in doomed:
        put_aside(folder, step)
    remove_leftovers(folder)


def put_aside(folder: Path, step: int) -> Path:
    """Rename a step's folder, so that it no longer counts.

    Raises:
        OSError: that failed.
    """
    aside = folder / f"{TEMPORARY}delete-{step_folder(step)}"
    if aside.exists():
        shutil.rmtree(aside)
    (folder / step_folder(step)).rename(aside)
    return aside


def remove_leftovers(folder: Path) -> None:
    """Delete what was put aside, and what a save that was cut off has left.

    Raises:
        OSError: something cannot be deleted.
    """
    found = sorted(folder.glob(f"{TEMPORARY}*"))
    if found:
        sync_folder(folder)  # the new names first: a deletion that outlives a rename would break what counts
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
