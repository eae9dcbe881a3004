"""How ranks meet in a store that outlives them, as torchrun's does on several nodes."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from tests.conftest import environment
from tests.waiting import PATIENCE
from trainer.ranks import distributed
from trainer.ranks.distributed import agree_on_start, find_unreached
from trainer.runs.failure import TrainingError

SIZE = 3


def starts(store: Store, ranks: list[int], seconds: float = PATIENCE) -> list[str]:
    """The name of the start that each of these ranks gets."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(lambda rank: agree_on_start(store, rank, SIZE, timedelta(seconds=seconds)), ranks))


def test_ranks_that_are_started_again_share_nothing_with_the_dead() -> None:
    """Also with ranks of a start that never came to be: a mark of theirs is answered, and then replaced."""
    store = HashStore()
    first = set(starts(store, [0, 1, 2]))
    with pytest.raises(TrainingError, match="rank 2 did not come"):
        starts(store, [0, 1], seconds=0.1)
    second = set(starts(store, [2, 1, 0]))
    assert len(first) == len(second) == 1
    assert first.isdisjoint(second)


def test_ranks_that_do_not_reach_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached() -> list[str]:
        store = HashStore()
        with ThreadPoolExecutor(SIZE) as pool:
            return list(
                pool.map(lambda rank: find_unreached(store, rank, SIZE, {"GLOO_SOCKET_IFNAME": "lo"}), range(SIZE))
            )

    assert unreached() == [""] * SIZE
    monkeypatch.setattr(distributed, "_REACH_SECONDS", 1.0)
    monkeypatch.setattr(distributed, "_greet", lambda server, _: server.accept()[0].close())
    found = unreached()
    assert found[0].startswith("network: rank 0 on ")
    assert all("does not reach rank" in problem and "--interface" in problem for problem in found)


WAIT = """
import os, sys
from torch.distributed import HashStore
from configs.process.signals import ending_at_stop, stop_request
stop_request()
if sys.argv[1:]:
    os.kill(os.getpid(), int(sys.argv[1]))
with ending_at_stop():
    print("waits", flush=True)
    HashStore().get("what never comes")
"""


@pytest.mark.parametrize(("number", "is_early"), [(signal.SIGTERM, True), (signal.SIGUSR1, False)])
def test_rank_that_waits_for_the_others_ends_when_it_is_stopped(number: signal.Signals, is_early: bool) -> None:
    """It waits in C++, where Python's handlers are not run; or it was asked before it began to wait."""
    command = [sys.executable, "-c", WAIT, *([str(int(number))] if is_early else [])]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    assert waiting.stdout is not None
    with waiting:
        try:
            assert waiting.stdout.readline() == b"waits\n"
            if not is_early:
                os.kill(waiting.pid, number)
            assert waiting.wait(PATIENCE) == 75
        finally:
            waiting.kill()
