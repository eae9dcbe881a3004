"""How ranks meet in a store that outlives them, as torchrun's does on several nodes."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest import mock

import pytest
import torch
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


@pytest.mark.parametrize(("device", "expected"), [("cuda:1", torch.device("cuda", 1)), ("cpu", None)])
def test_nccl_connects_at_the_start(
    device: str, expected: torch.device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does when it is told its GPU; else at the first collective."""
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    for name in ("_shared_store", "agree_on_start", "describe", "compare", "PrefixStore"):
        monkeypatch.setattr(distributed, name, mock.Mock())
    monkeypatch.setattr(distributed, "choose_device", lambda _: torch.device(device))
    monkeypatch.setattr("configs.process.flight_recorder.switch_on", mock.Mock())
    started = mock.Mock()
    monkeypatch.setattr("torch.distributed.init_process_group", started)
    monkeypatch.setattr("torch.distributed.new_group", mock.Mock())
    distributed.World(timeout_minutes=1)
    assert started.call_args.kwargs["device_id"] == expected


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
