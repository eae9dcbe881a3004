"""Protects the environment of programs that call this project's functions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_environment() -> Iterator[None]:
    """Restore this process's environment at the end of the block.

    Libraries read their configuration from variables at first use, so a run sets some. These must not affect a program
    that calls a run as a function, or children that it starts later.
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
