"""The environment of whoever calls this project's functions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_environment() -> Iterator[None]:
    """Leave this process's environment as it was.

    Libraries are configured by variables that they read when they are first used, so a run sets some. They are the
    run's, not those of a program that calls it as a function, nor of the children that it starts later.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
