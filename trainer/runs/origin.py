"""`origin.json` in a run's folder: the configuration file that the run was started with. Without torch."""

import contextlib
import filecmp
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import UserError, find_config
from configs.load import RUN_CONFIG
from configs.process.files.inside import read_json, write_text
from configs.reading.tree import Tree
from trainer.runs.layout import ORIGIN_FILE


def claim(folder: Path, config_name: str, overrides: Sequence[str], *, resets: bool = False) -> None:
    """Check that the run in a folder belongs to a configuration file; for a new run, record the file.

    Two files of the same name in different folders describe different runs, and so do two files with different settings
    that give the same `name:`. But the existing run is meant if its name is on the command line, if something is reset,
    if the other file is gone, or if the run was copied or moved here.

    Args:
        folder: of the run; it need not exist.
        config_name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        resets: whether `--reset` is given.

    Raises:
        UserError: the run belongs to another file.
    """
    mine = origin_of(config_name)
    noted = _read(folder / ORIGIN_FILE)
    other = noted.get("config")
    if not isinstance(other, str):
        if not (folder / RUN_CONFIG).exists():  # the start may still be refused, and a refused start writes nothing
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
    """Record the configuration file of a run, unless it is the run's own resolved one."""
    if folder.is_dir() and not _is_own(folder, config_name):
        noted = {"config": origin_of(config_name), "folder": str(folder.resolve())}
        with contextlib.suppress(OSError):
            write_text(folder / ORIGIN_FILE, json.dumps(noted) + "\n")


def origin_of(config_name: str) -> str:
    """A file's absolute path, valid from every folder; or the name of a shipped run."""
    path = Path(config_name)
    return str(path.absolute()) if path.is_file() else config_name


def _is_own(folder: Path, config_name: str) -> bool:
    """Whether the file is the run's own resolved configuration, which adds no information."""
    path = Path(config_name)
    return path.name == RUN_CONFIG and path.resolve().parent == folder.resolve()


def _is_another(other: str, config_name: str) -> bool:
    """Whether the other file exists and is neither this one by another path nor a copy of it that sets `name:`."""
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
        tree = read_json(path)
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
