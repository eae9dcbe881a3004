"""Random moments of a launch: in start-up, after some updates, within a save."""

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

from tests.verification.chaos.job import EVERY_UPDATES, Launch
from tests.verification.chaos.watch import Watch

MOMENTS = {"start-up": 15, "training": 50, "save": 35}
"""How often each is taken, of 100 times."""
PATIENCE = 240.0
"""Seconds for what must happen: a start takes ten on two idle cores, and far longer where others work."""
START_UP = 8.0
"""Seconds of a start in which a fault may come."""
Card = TypeVar("Card")


class Deck(Generic[Card]):
    """Draws kinds in random order, each as often as it has cards before any comes again."""

    def __init__(self, cards: Mapping[Card, int], rng: random.Random) -> None:
        self._all = [name for name, number in cards.items() for _ in range(number)]
        self._rng = rng
        self._left: list[Card] = []

    def draw(self) -> Card:
        """The next kind."""
        if not self._left:
            self._left = self._rng.sample(self._all, len(self._all))
        return self._left.pop()


class Moments:
    """Waits for moments, counted from the last start of the ranks."""

    def __init__(self, checkpoints: Path, watch: Watch, rng: random.Random) -> None:
        self._checkpoints = checkpoints
        self._watch = watch
        self._rng = rng
        self.begin_start()

    def begin_start(self) -> None:
        """The ranks are being started."""
        self._begin = time.monotonic()
        self._num_segments = len(self._watch.segments)
        self._cut_off_saves = self._saves()

    @property
    def num_updates(self) -> int:
        """Updates since the ranks were started."""
        segments = self._watch.segments
        return len(segments[-1].figures) if len(segments) > self._num_segments else 0

    def wait(self, launch: Launch, *, only_in_training: bool) -> str | None:
        """Wait for a random moment and say which it was; None where the launch ends before, or it does not come."""
        moment = "training" if only_in_training else self._rng.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        num_updates = self._rng.randint(1, 4 * EVERY_UPDATES) if moment == "training" else 1
        delay, after = self._rng.uniform(0.05, START_UP), self._rng.uniform(0, 0.03)
        end = time.monotonic() + PATIENCE
        while not launch.has_ended and time.monotonic() < end:
            if moment == "start-up":
                if time.monotonic() > self._begin + delay:
                    return moment
            elif self.num_updates >= num_updates:
                if moment == "training":
                    return f"step {self._watch.step}"
                if self._saves() - self._cut_off_saves:
                    time.sleep(after)
                    return f"save after step {self._watch.step}"
            time.sleep(0.0005 if moment == "save" else 0.01)
        return None

    def _saves(self) -> set[int]:
        """Inodes of the folders that a save is being written to."""
        try:
            return {e.inode() for e in os.scandir(self._checkpoints) if e.name.startswith("tmp-step-")}
        except FileNotFoundError:
            return set()
