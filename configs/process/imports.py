"""Faster imports of torch and DeepSpeed: without garbage collection and without optional packages."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNASKED = ("mlflow", "wandb")
"""Packages that DeepSpeed imports if they are installed, which takes seconds and starts threads that a fork loses."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Turn the garbage collector off in this block, and exempt from it for good all objects that exist at its end.

    A rank's imports make a million objects that stay for ever; scanning them took an eighth of the imports' time, and
    half a second in every later full collection, at a rewind or while training. In the block, packages in `UNASKED`
    appear not to be installed, unless they are imported already; a tracker can import them afterwards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    hidden = [name for name in UNASKED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
        if was_enabled:
            gc.freeze()
            gc.enable()
