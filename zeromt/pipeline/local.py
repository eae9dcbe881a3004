"""Steps on this machine: each is a process of its own, and gets the cores and GPUs that it asks for."""

import os
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from configs.process.gpus import named_gpus, num_gpus
from launcher.machine.supervise import Supervisor
from zeromt.pipeline.work import Work, held


class Local:
    """Runs steps on this machine."""

    def __init__(self, supervisor: Supervisor, *, cores: int | None, cards: int | None) -> None:
        """Make one.

        Args:
            supervisor: passes requests to stop on; its signal handlers are in place.
            cores: to use at most; None: all that this process may use.
            cards: GPUs to use at most; None: all that are visible.
        """
        self._supervisor = supervisor
        self._lock = threading.Lock()
        allowed, visible = sorted(os.sched_getaffinity(0)), _visible_cards()
        self._cores, self._cards = _Free(map(str, allowed[:cores])), _Free(visible[:cards])

    def launcher(self, job: str) -> Sequence[str]:
        """The words behind `zeromt launch`."""
        return ["local"]

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """None, once the lock is free that what was begun holds."""
        with held(lock):
            return []

    def take(self, work: Work) -> bool:
        """Take the cores and GPUs of a step, if all are free."""
        with self._lock:
            wanted = self._cores.number(work.cores), self._cards.number(work.cards)
            if wanted[0] > len(self._cores.free) or wanted[1] > len(self._cards.free):
                return False
            self._cores.take(work.name, wanted[0])
            self._cards.take(work.name, wanted[1])
            return True

    def run(self, work: Work) -> int:
        """Run a step whose cores were taken, and give them back.

        Returns:
            Its exit code; 75 if it was asked to stop.
        """
        cores, cards = self._cores.taken[work.name], self._cards.taken[work.name]
        program = [sys.executable, "-P", "-m", "zeromt", *work.words[1:]] if work.is_zeromt else work.words
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": ",".join(cards)} if self._cards.all else {})}
        start = [sys.executable, "-P", "-m", "zeromt.pipeline.start", str(os.getpid())]
        try:
            code = self._supervisor.run(
                [*start, str(work.lock), str(work.log), str(work.stdout or ""), ",".join(cores), *program], environment
            )
        finally:
            with self._lock:
                self._cores.give(work.name)
                self._cards.give(work.name)
        return 75 if self._supervisor.was_stopped and code else code


class _Free:
    """Cores or cards, by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.all = list(names)
        self.free = list(self.all)
        self.taken: dict[str, list[str]] = {}

    def number(self, wanted: int | None) -> int:
        """How many a step gets: never more than there are."""
        return len(self.all) if wanted is None else min(wanted, len(self.all))

    def take(self, step: str, number: int) -> None:
        self.taken[step], self.free = self.free[:number], self.free[number:]

    def give(self, step: str) -> None:
        self.free = [name for name in self.all if name in self.free or name in self.taken[step]]
        del self.taken[step]


def _visible_cards() -> Sequence[str]:
    number = num_gpus(os.environ)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(card) for card in range(number)] if visible is None else named_gpus(visible, number)
