"""What each release made, which all later ones must read. `python -m tests.kept` makes it, once, before the tag is set.

A folder for each release has `keys.txt`: the fields of a run and of a site's profile with their choices;
`dataset` and `runs/kept`, which two ranks trained on it under ZeRO-1; and `expected.json`: what training on gives.
"""

from collections.abc import Iterator
from pathlib import Path

from configs.reading.meanings import fields
from configs.schema import RunConfig
from launcher.slurm.profile import Profile

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


def keys() -> Iterator[str]:
    """A line for each field, `PATH (KIND)`, and one for each choice that it has, `PATH (KIND): CHOICE`."""
    for where, section in (("run", RunConfig), ("site", Profile)):
        for field in fields(section, f"{where}."):
            name = f"{field.path} ({field.kind or ''})"
            yield name
            choices = field.type.rpartition(": ")[2].partition(" or ")[0].split(" | ")
            yield from (f"{name}: {choice}" for choice in choices if len(choices) > 1)
