"""Objects that ranks send one another, as JSON.

torch's object collectives (`all_gather_object` and the like) unpickle what arrives, so who reaches a rank's port could
run code there; nothing else in the tree may use them (a test sees to it).
"""

import dataclasses
import json
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from configs import UserError
from trainer.runs.run_lock import RunLockedError


def packed(item: Any) -> bytes:
    """An object as JSON: numbers, text, lists, tuples, sets, dictionaries, paths, dataclasses and errors of the user.

    Raises:
        AttributeError: it holds something else.
    """
    return json.dumps(_tree(item), default=methodcaller("item")).encode()  # numpy's numbers


def _tree(item: Any) -> Any:
    """For JSON: every kind but those that JSON has itself is an object of one key, its name."""
    if isinstance(item, list):
        return [_tree(one) for one in item]
    if isinstance(item, (tuple, set, frozenset)):
        value: Any = [*item]
    elif isinstance(item, dict):
        value = [[key, one] for key, one in item.items()]
    elif isinstance(item, UserError):  # for other ranks a refusal is one, of whatever kind; but the lock's says all
        return {"RunLockedError" if isinstance(item, RunLockedError) else "UserError": str(item)}
    elif isinstance(item, Path):
        value = str(item)
    elif dataclasses.is_dataclass(item):
        value = [getattr(item, field.name) for field in dataclasses.fields(item)]
    else:
        return item
    return {type(item).__name__: _tree(value)}


def unpacked(content: bytes, *kinds: type) -> Any:
    """The object that `packed` was given.

    Args:
        content: JSON, perhaps of a stranger: nothing is called but constructors of these dataclasses.
        kinds: dataclasses that may be in it.

    Raises:
        ValueError: it is not that.
    """
    plain = (tuple, set, frozenset, dict, type(Path()), UserError, RunLockedError)
    known: dict[str, Any] = {kind.__name__: kind for kind in plain}
    known |= {kind.__name__: partial(_made, kind) for kind in kinds}

    def made(tree: dict[str, Any]) -> Any:
        [(name, value)] = tree.items()
        if name not in known:
            raise ValueError(f"ranks sent {name!r}; expected is one of {', '.join(known)}")
        return known[name](value)

    return json.loads(content, object_hook=made)


def _made(kind: Any, values: list[Any]) -> Any:
    return kind(**dict(zip((field.name for field in dataclasses.fields(kind)), values, strict=True)))
