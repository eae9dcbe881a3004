"""A model's fields in one place, for equations that are written over all of them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

from configs import ModelSection
from configs.reading.old_keys import OLD_KEYS

_NAMES = {key.old.removeprefix("model."): key.new for key in OLD_KEYS if key.new and key.old.startswith("model.")}


def flat(section: ModelSection) -> Any:
    """The fields of the section and of its parts, by the names that they had when it was one; None where a part has no
    such field."""
    tree = dataclasses.asdict(section)

    def at(path: str) -> Any:
        part, field = path.split(".")[1:]
        return tree[part].get(field)

    return SimpleNamespace(**{**tree, **{old: at(new) for old, new in _NAMES.items()}})
