"""`origin.json` in a run's folder: which file the run was configured by. Without torch."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import UserError, find_config
from configs.load import is_of_a_run

ORIGIN_FILE = "origin.json"


def claim(folder: Path, config_name: str, overrides: Sequence[str]) -> None:
    """See that the run in a folder is the one that a file describes, and note which file it was.

    A run that is called after its file is another run than one that is called after a file of the same name elsewhere.
    Where the name was given (`name:` in the file, `name=` on the command line), or the other file is gone, it is meant.

    Args:
        folder: of the run; it need not be there.
        config_name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.

    Raises:
        UserError: the run belongs to another file of the same name.
    """
    path = find_config(config_name).resolve()
    if is_of_a_run(path):  # the run's own: who goes on by it says nothing new
        return
    known = _read(folder / ORIGIN_FILE)
    other = known.get("config")
    if isinstance(other, str) and other != str(path) and not _is_named(path, overrides) and Path(other).is_file():
        raise UserError(
            f"name: {folder} is the run of {other}, and this is {path}; give this one a name (name=...), "
            f"or name={folder.name} to go on with that run"
        )
    with contextlib.suppress(OSError):
        if other != str(path) and folder.is_dir():
            (folder / ORIGIN_FILE).write_text(json.dumps({"config": str(path)}) + "\n", encoding="utf-8")


def _is_named(path: Path, overrides: Sequence[str]) -> bool:
    """Whether the run's name was given, and does not come from the file's."""
    if any(item.startswith("name=") for item in overrides):
        return True
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.startswith(("name:", "name :", '"name"')) for line in lines)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
