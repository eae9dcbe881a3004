"""What a path that leads nowhere may have meant: a run in `runs/`, a name one letter off, `RUN@step`, a file."""

import difflib
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NEAR = 0.75
_MOST_NAMES = 1000
"""Names of a folder that are looked at."""


def no_folder(text: str, advice: str) -> str:
    """What to say of a path that is no folder: that it is a file, or that there is none, and what may have been meant.

    Args:
        text: the path as it was given.
        advice: what to give, where nothing is near.
    """
    with suppress(OSError, ValueError):  # of a name that is too long, or has a NUL
        if Path(text).is_file():
            run = Path("runs", Path(text).stem)
            is_ours = Path(text).suffix in (".yaml", ".yml") and run.is_dir()
            return f"{text!r}: is a file; {f'did you mean {str(run)!r}?' if is_ours else advice}"
    return nothing(text, "folder", advice)


def nothing(text: str, what: str, advice: str) -> str:
    """What to say of a path at which there is nothing.

    Args:
        text: the path as it was given.
        what: was looked for, such as `file or folder`.
        advice: what to give, where nothing is near.
    """
    near = None
    with suppress(OSError, ValueError):
        near = next(_meant(text), None)
    return f"{text!r}: no such {what}; {advice if near is None else f'did you mean {near!r}?'}"


def _meant(text: str) -> Iterator[str]:
    path = Path(text)
    run, at, step = text.partition("@")
    if at and re.fullmatch(r"[0-9]+", step) and Path(run).is_dir():
        yield from (str(one) for one in [Path(run, "checkpoints", f"step-{int(step):08d}")] if one.is_dir())
    if not path.is_absolute() and Path("runs", path).is_dir():
        yield str(Path("runs", path))
    names = {one.name.lower(): one for one in itertools.islice(path.parent.iterdir(), _MOST_NAMES)}
    for name in difflib.get_close_matches(path.name.lower(), names, n=1, cutoff=_NEAR):
        yield str(names[name])
