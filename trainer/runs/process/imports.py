"""Importing torch and DeepSpeed without looking for garbage among what they make."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Without the garbage collector, and what there is at the end stays out of its sight for good.

    The imports of a rank make a million objects that all stay; looking through them again and again took an eighth of
    the imports' time, and every full collection later, of a rewind or while training, half a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()
