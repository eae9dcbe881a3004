"""`origin.json` in a run's folder: which file the run was configured by. Without torch."""

import contextlib
import filecmp
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import UserError, find_config
from configs.load import RUN_CONFIG
from configs.reading.tree import Tree
from trainer.runs.layout import ORIGIN_FILE


def claim(folder: Path, config_name: str, overrides: Sequence[str], *, resets: bool = False) -> None:
    """See that the run in a folder is the one that a file describes; of a new run, note which.

    A run that is called after its file is another run than one that is called after a file of the same name elsewhere;
    so is one whose file gives it the name that a file with other settings gives. Where the name stands on the command
    line, something is reset, the other file is gone, or the run was copied or moved here, that run is meant.

    Args:
        folder: of the run; it need not be there.
        config_name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        resets: whether data or optimizer begin anew.

    Raises:
        UserError: the run belongs to another file.
    """
    mine = origin_of(config_name)
    noted = _read(folder / ORIGIN_FILE)
    other = noted.get("config")
    if not isinstance(other, str):
        if not (folder / RUN_CONFIG).exists():  # else it may yet be refused, and refusals write nothing
            note(folder, config_name)
        return
    is_elsewhere = noted.get("folder") != str(folder.resolve())
    is_named = any(item.startswith("name=") for item in overrides)
    is_meant = resets or is_named or is_elsewhere or _is_own(folder, config_name)
    if other != mine and not is_meant and _is_another(other, config_name):
        raise UserError(
            f"name: {folder} is the run of {other}, and this is {mine}; give this one a name (name=...), "
            f"or name={folder.name} to go on with that run"
        )


def note(folder: Path, config_name: str) -> None:
    """Note which file a run is configured by, where it is not its own."""
    if folder.is_dir() and not _is_own(folder, config_name):
        noted = {"config": origin_of(config_name), "folder": str(folder.resolve())}
        with contextlib.suppress(OSError):
            (folder / ORIGIN_FILE).write_text(json.dumps(noted) + "\n", encoding="utf-8")


def origin_of(config_name: str) -> str:
    """A file's absolute path, by which every folder's process finds it; or the name of a shipped run."""
    path = Path(config_name)
    return str(path.absolute()) if path.is_file() else config_name


def _is_own(folder: Path, config_name: str) -> bool:
    """Whether it is the configuration that the run itself has written: who goes on by it says nothing new."""
    path = Path(config_name)
    return path.name == RUN_CONFIG and path.resolve().parent == folder.resolve()


def _is_another(other: str, config_name: str) -> bool:
    """Whether the other file is there, and is not this one by another path, or a copy that gives the run its name."""
    mine = find_config(config_name)
    try:
        theirs = find_config(other)
        if mine.samefile(theirs):
            return False
        is_named = "name" in Tree.read(mine, what="CONFIG").node
        return not (is_named and filecmp.cmp(mine, theirs, shallow=False))
    except (UserError, OSError):  # it is gone
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
