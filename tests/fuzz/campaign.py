"""Draws calls by seeds, makes them, and gathers what is wrong."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.call import Call
from tests.fuzz.calls import Target, calls, targets
from tests.fuzz.client import Server

RANKS_EVERY = 20
"""One call in so many may start ranks."""


def draw(number: int, seed_: int) -> list[Call]:
    """So many calls, the same for the same seed and version of hypothesis."""
    ranks = number // RANKS_EVERY
    return _draw(number - ranks, seed_, ranks=False) + _draw(ranks, seed_, ranks=True)


def _draw(number: int, seed_: int, *, ranks: bool) -> list[Call]:
    """About every target in turns, in an order of the seed's."""
    about = targets(ranks=ranks)
    Random(seed_).shuffle(about)
    found: list[Call] = []
    each, more = divmod(number, len(about))
    for place, target in enumerate(about):
        found += _draw_about(target, each + (place < more), 1000 * seed_ + place, ranks=ranks)
    return found


def _draw_about(target: Target, number: int, seed_: int, *, ranks: bool) -> list[Call]:
    found: list[Call] = []

    @seed(seed_)
    @settings(
        max_examples=number + 1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls(target, ranks=ranks))
    def gather(call: Call) -> None:
        found.append(call)

    if number:
        gather()
    return found[1:]  # the first is always the simplest there is


def make(todo: Sequence[Call], *, servers: int | None = None) -> list[str]:
    """Make calls, as many at a time as there are cores; what is wrong with each, with how to make it again."""
    servers = servers or min(2, os.cpu_count() or 1)
    free: SimpleQueue[Server] = SimpleQueue()
    started = [Server() for _ in range(servers)]
    for server in started:
        free.put(server)
    problems: list[str] = []
    lock = threading.Lock()

    def one(call: Call) -> None:
        server = free.get()
        try:
            found = server.make(call)
        finally:
            free.put(server)
        if found:
            with lock:
                problems.append("; ".join(found) + "\n" + call.reproduction())

    try:
        with ThreadPoolExecutor(servers) as pool:
            list(pool.map(one, todo))
    finally:
        for server in started:
            server.close()
    return problems
