"""Waiting for what another process or thread does. No limit here is a claim: it only ends what hangs."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 240.0
"""Seconds: ten times what anything that is waited for takes."""


def wait_until(condition: Callable[[], T], what: str | Callable[[], str] = "", *, seconds: float = PATIENCE) -> T:
    """What `condition` gives as soon as that is true; fails with `what`, or what that says, after so many seconds."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            missing = what() if callable(what) else what
            raise AssertionError(f"{missing or condition} did not come within {seconds:g} s")
        time.sleep(0.01)
    return result
