"""Draws calls by seeds, makes them, and gathers what is wrong."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz import forged
from tests.fuzz.call import Call, Outcome
from tests.fuzz.calls import calls, targets
from tests.fuzz.client import Server
from tests.fuzz.genuine import MARIAN

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
        found += _draw_about(calls(target, ranks=ranks), each + (place < more), 1000 * seed_ + place)
    return found


def draw_forged(number: int, seed_: int, *, marian: bool) -> list[Call]:
    """So many calls on forged files, as `draw` draws; without `marian` none on Marian's folder, which takes seconds."""
    about = [t for t in forged.targets() if marian or t.folder != MARIAN]
    Random(seed_).shuffle(about)
    each, more = divmod(number, len(about))
    drawn = [_draw_about(forged.calls(t), each + (i < more), 1000 * seed_ + i) for i, t in enumerate(about)]
    return [call for calls_ in drawn for call in calls_]


def _draw_about(strategy: SearchStrategy[Call], number: int, seed_: int) -> list[Call]:
    found: list[Call] = []

    @seed(seed_)
    @settings(
        max_examples=number + 1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def gather(call: Call) -> None:
        found.append(call)

    if number:
        gather()
    return found[1:]  # the first is always the simplest there is


def make(
    todo: Sequence[Call], *, server: Server | None = None, tell: Callable[[Outcome], None] | None = None
) -> list[str]:
    """Make calls, by a server or as many at a time as there are cores; what is wrong, with how to make it again."""
    free: SimpleQueue[Server] = SimpleQueue()
    started = [] if server else [Server() for _ in range(min(2, os.cpu_count() or 1))]
    for one_more in [server] if server else started:
        free.put(one_more)
    problems: list[str] = []
    lock = threading.Lock()

    def one(call: Call) -> None:
        maker = free.get()
        try:
            found = maker.make(call, tell=tell)
            if any(problem.startswith("outside: ") for problem in found):  # another process may have looked there
                found = maker.make(call)
        finally:
            free.put(maker)
        if found:
            with lock:
                problems.append("; ".join(found) + "\n" + call.reproduction())

    try:
        with ThreadPoolExecutor(len(started) or 1) as pool:
            list(pool.map(one, todo))
    finally:
        for one_more in started:
            one_more.close()
    return problems
