"""How ranks meet, and what they send one another: sums, and objects without pickles."""

import math
import os
import pickle
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from configs.process.environment import PRIVATE
from configs.process.files import FileError
from data_pipeline.order.state import StreamState
from tests.conftest import REPO, environment
from tests.forked import Forked, exit_codes, fork_ranks
from tests.house import sources
from tests.waiting import PATIENCE
from trainer.ranks import distributed
from trainer.ranks.distributed import World, packed, unpacked
from trainer.runs.failure import TrainingError
from trainer.runs.run_lock import RunLockedError

# --- meeting


def meet(comes: int, platforms: str) -> str:
    """As a rank, of which some do not come, and each computes with something: what it is refused for."""
    rank = int(os.environ["RANK"])
    vars(distributed).update(_COME_MINUTES=0.02, platform=lambda _: platforms[rank])
    try:
        if rank < comes:
            World(timeout_minutes=1).close()
    except (UserError, TrainingError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("comes", "platforms", "told"),
    [(2, "abb", "rank 2 of 3 did not come within 0.02 minutes; "), (3, "aba", "engine.device: rank ")],
)
def test_a_rank_that_does_not_come_or_has_another_device(
    comes: int, platforms: str, told: str, forked: Forked, tmp_path: Path
) -> None:
    variables = {PRIVATE: str(tmp_path)}
    messages = forked.ranks(3, meet, comes, platforms, meet=False, cwd=tmp_path, variables=variables)
    assert [said.startswith(told) for said in messages] == [rank < comes for rank in range(3)]
    if comes == 3:
        assert [re.findall(r"\w of 3", said) for said in messages] == [["2 of 3"], ["1 of 3"], ["2 of 3"]]


def test_restarts_of_a_torchrun_that_keeps_its_store_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in (names | {"TORCHELASTIC_MAX_RESTARTS": "3"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"^TORCH_DISABLE_SHARE_RDZV_TCP_STORE: not set with torchrun's --max-restarts"):
        World(timeout_minutes=1)


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


# --- sums

LARGE = 2**62


def tell(world: World) -> list[Any]:
    """Sums of which several are begun before the first is asked for, among other messages."""
    waits = [world.begin_sums([world.rank + n, LARGE], [0.1 * (world.rank + n)]) for n in (0, 1)]
    answers: list[Any] = [world.sum([1]), world.gather(world.rank)]
    return [*answers, *(wait() for wait in waits), world.begin_sums([], [1.5])()]


def test_sums_wrap_and_are_the_same_on_all_ranks() -> None:
    answers = fork_ranks(5, tell)
    assert all(one == answers[0] for one in answers)
    wrapped = (5 * LARGE + 2**63) % 2**64 - 2**63
    floats = [pytest.approx(0.1 * (10 + 5 * n), rel=1e-15) for n in (0, 1)]
    sums = [([10 + 5 * n, wrapped], [floats[n]]) for n in (0, 1)]
    assert answers[0] == [[5], [0, 1, 2, 3, 4], *sums, ([], [7.5])]


def leave_one(world: World) -> None:
    """The last rank goes before it has said anything."""
    world.begin_sums([1], [])()
    if world.rank == 2:
        os._exit(0)
    world.begin_sums([1], [])()


def test_a_rank_that_is_gone_is_an_error_of_all_others_at_once() -> None:
    assert exit_codes(3, leave_one) == [1, 1, 0]


# --- objects

STREAM = StreamState(
    epoch=1,
    update=2,
    lanes={0: (), 3: ()},
    seed=4,
    micro_batches=2,
    fingerprints=["a"],
    proportions=[1],
)
PICKLES = {"configs/plugins.py", "data_pipeline/stream/prefetch.py"}
"""Between a process and those that it forks or starts, through memory and pipes that no other reaches."""


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ([None, True, 2**70, -0.1, math.inf, "a\n\udcff\U0001f600", [], ""], Any),
        ({"tuple": [1], "a": {"Path": "a"}}, Any),
        (
            (frozenset({"a"}), [Path("a/b")], {3: "b"}, math.inf),
            tuple[frozenset[str], list[Path], dict[int, str], float],
        ),
        (STREAM, StreamState),
    ],
)
def test_objects_arrive_as_they_were_sent(item: Any, kind: Any) -> None:
    assert unpacked(packed(item), kind) == item


def refuse(world: World) -> list[str]:
    """As a rank: the classes of what others raise."""

    def fail(error: UserError) -> None:
        raise error

    classes = []
    for error in (UserError("a"), RunLockedError("b"), FileError("c")):
        with pytest.raises(UserError) as caught:
            world.on_main(partial(fail, error))
        assert str(caught.value) == str(error)
        classes.append(type(caught.value).__name__)
    assert world.on_main(lambda: Path("a"), Path) == Path("a")
    return classes


def test_errors_keep_what_they_mean_to_who_catches_them() -> None:
    expected = ["UserError", "RunLockedError", "FileError"], ["UserError", "RunLockedError", "UserError"]
    assert fork_ranks(2, refuse) == [*expected]


@pytest.mark.parametrize("content", [pickle.dumps(STREAM), b"", b'{"eval": "1"}'])
def test_what_no_rank_sends_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # JSON's errors too
        unpacked(content, StreamState)


def test_nothing_else_unpickles_what_another_process_sent() -> None:
    of_ours = [path for path in sources(REPO) if path.parts[0] not in ("tests", "benchmarks")]
    unsafe = re.compile(r"\bpickle\.loads?\(|(gather|broadcast|scatter|send|recv)_object(_list)?\(")
    files = {str(path) for path in of_ours if unsafe.search((REPO / path).read_text())}
    assert files == PICKLES
