"""What the work folder of a preparation was begun with, and which of its parts are whole.

A work folder outlives the process that began it: parts are made on other machines, and a killed preparation goes on
after an upgrade. So it keeps the recipe and the versions that decide its bytes.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files import inside
from configs.process.progress import say
from data_pipeline.preparation.recipe import differences
from data_pipeline.preparation.staging import DISCARDED, WorkFolder, made_with
from data_pipeline.preparation.writing.spill import SpillFolder

BEGUN_FILE = "begun.json"


class WorkFolderError(UserError):
    """A work folder cannot be gone on with as it is. What it holds stays."""


def versions() -> dict[str, str]:
    """Versions that decide them, this package's included."""
    return {**made_with(), "zeromt": metadata.version("zeromt")}


def check_begun(folder: Path, recipe: Mapping[str, Any], output: Path) -> None:
    """Note what a recipe's folder is begun with, or compare what is noted there. No other process may be doing so.

    Raises:
        WorkFolderError: it was begun with other versions.
    """
    now = versions()
    was = _begun(folder)
    if was is None:
        inside.write_text(folder / BEGUN_FILE, json.dumps({"recipe": recipe, "made_with": now}, indent=1))
        return
    old = was["made_with"]
    if changed := [f"{name} was {old.get(name)} and is {now[name]}" for name in now if old.get(name) != now[name]]:
        raise WorkFolderError(
            f"prepare.output: {output}: the work in {folder.parent} was begun with other versions, which may give "
            f"other bytes ({', '.join(changed)}); go on with those, or remove that folder to begin again"
        )


def check_others(work: WorkFolder, recipe: Mapping[str, Any], output: Path, *, is_part: bool, merge: bool) -> None:
    """Say in what the other recipes of a work folder differ, and what becomes of them. A merge needs parts of its own.

    Raises:
        WorkFolderError: there are none to merge.
    """
    inside.look_again(work.folder_of(recipe))
    others = list(_others(work, recipe))
    if not merge:
        then = "is not merged with this part" if is_part else "is removed"
        for changed in others:
            say(f"zeromt: warning: {work.root} has work of other settings, which {then} ({changed})", file=sys.stderr)
    elif _begun(work.folder_of(recipe)) is None:
        if not others:
            raise WorkFolderError(f"prepare.output: {output}: no part is prepared; run each --part, or without --merge")
        raise WorkFolderError(
            f"prepare.output: {output}: no part is prepared with these settings; those in {work.root} are of others "
            f"({'; or '.join(others)}): merge with the settings of the parts, overrides included"
        )


def damaged_spans(spill: SpillFolder, num_spans: int, output: Path, work: WorkFolder, problem: str) -> WorkFolderError:
    """Remove all spans that are not whole, so that they are encoded again; the error that says so.

    Args:
        spill: the spans.
        num_spans: their number.
        output: of the preparation.
        work: its work folder.
        problem: what was found to be wrong with one of them.
    """
    damaged = [span for span in range(num_spans) if not spill.is_whole(span)]
    for span in damaged:
        spill.remove(span)
    parts = [f"--part {part}" for part in _parts_of(work, damaged)]
    again = f"{' and '.join(parts)} again, then --merge" if parts else "the same command again"
    return WorkFolderError(
        f"prepare.output: {output}: {len(damaged)} of {num_spans} encoded spans of the corpus were damaged and have "
        f"been removed ({problem}); run {again}: the others stay"
    )


def _begun(folder: Path) -> dict[str, Any] | None:
    """What is noted in a recipe's folder; None if nothing is.

    Raises:
        WorkFolderError: the note is damaged.
    """
    if not inside.is_listed(folder / BEGUN_FILE):
        return None
    try:
        noted = inside.read_json(folder / BEGUN_FILE)
        return {"recipe": dict(noted["recipe"]), "made_with": dict(noted["made_with"])}
    except FileNotFoundError:  # another process has just removed it
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise WorkFolderError(f"{folder / BEGUN_FILE}: is damaged; remove {folder.parent} to begin again") from error


def _others(work: WorkFolder, recipe: Mapping[str, Any]) -> Iterator[str]:
    """In what each other recipe of the work folder differs."""
    for folder in sorted(work.root.iterdir()) if work.root.is_dir() else ():
        if not folder.is_dir() or folder == work.folder_of(recipe) or folder.name.startswith(DISCARDED):
            continue
        try:
            was = _begun(folder)
        except WorkFolderError as error:
            yield str(error)
        else:
            yield "without a note of its settings" if was is None else ", ".join(differences(was["recipe"], recipe))


def _parts_of(work: WorkFolder, spans: Sequence[int]) -> list[str]:
    """The parts, as I/N, that were prepared and have one of these spans."""
    names = (path.stem.split("-") for path in work.root.glob("part-*-of-*.lock"))
    parts = sorted((int(of), int(number)) for _, number, _, of in names)
    return [f"{number}/{of}" for of, number in parts if any(span % of == number - 1 for span in spans)]
