"""Importing torch and DeepSpeed without looking for garbage among what they make, and without what nobody asks for."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNASKED = ("mlflow", "wandb")
"""DeepSpeed imports them wherever they are installed: seconds, and threads that a fork of the rank would lose."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Without the garbage collector, and what there is at the end stays out of its sight for good.

    The imports of a rank make a million objects that all stay; looking through them again and again took an eighth of
    the imports' time, and every full collection later, of a rewind or while training, half a second. What is `UNASKED`
    counts as not installed meanwhile, unless it is imported already; a tracker can import it afterwards.
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
