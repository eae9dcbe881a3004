"""Objects without pickles; sums in the background: hops, order, and what ranks on several nodes make of them."""

import math
import os
import pickle
import random
import re
import time
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from data_pipeline.order.state import LaneCursor, StreamState
from tests.conftest import REPO
from tests.forked import exit_codes, fork_ranks
from tests.house import sources
from trainer.ranks.distributed import World
from trainer.ranks.messages import Turn, packed, turns, unpacked
from trainer.runs.run_lock import RunLockedError

Hops = tuple[int, int]
"""Within a node, and between nodes, on the longest way that a number goes."""


class Simulated:
    """Ranks that go through their turns one by one, in an order drawn by chance."""

    def __init__(self, nodes: list[int], numbers: list[float], *, seed: int) -> None:
        self.nodes, self.numbers, self.num_messages = nodes, list(numbers), 0
        self.hops: list[Hops] = [(0, 0)] * len(nodes)
        self._mail: dict[tuple[int, int], deque[tuple[float, Hops]]] = {}
        left = {rank: deque(turns(rank, nodes)) for rank in range(len(nodes))}
        draw, sent = random.Random(seed), set[int]()
        while left:
            ready = [r for r, todo in left.items() if r not in sent or self._has_come(r, todo[0])]
            assert ready, "the ranks wait for one another"
            rank = draw.choice(ready)
            turn = left[rank][0]
            if rank not in sent:
                self._send(rank, turn)
                sent.add(rank)
            if self._has_come(rank, turn):
                self._receive(rank, turn)
                left[rank].popleft()
                sent.discard(rank)
            if not left[rank]:
                del left[rank]
        assert not any(self._mail.values()), "somebody was sent what nobody waits for"

    def _has_come(self, rank: int, turn: Turn) -> bool:
        return all(self._mail.get((other, rank)) for other in turn.by)

    def _send(self, rank: int, turn: Turn) -> None:
        for other in turn.to:
            self.num_messages += 1
            self._mail.setdefault((rank, other), deque()).append((self.numbers[rank], self.hops[rank]))

    def _receive(self, rank: int, turn: Turn) -> None:
        for other in turn.by:
            number, (within, between) = self._mail[other, rank].popleft()
            is_near = self.nodes[rank] == self.nodes[other]
            self.hops[rank] = max(self.hops[rank], (within + is_near, between + (not is_near)), key=sum)
            self.numbers[rank] = number if turn.then == "take" else self.numbers[rank] + number


def spread(num_ranks: int, num_nodes: int) -> list[int]:
    return [rank * num_nodes // num_ranks for rank in range(num_ranks)]


def test_hops_of_512_ranks_on_64_nodes() -> None:
    simulated = Simulated(spread(512, 64), [1.0] * 512, seed=0)
    within, between = max(simulated.hops, key=sum)
    print(f"512 ranks on 64 nodes: {between} hops between nodes and {within} within, a ring has {2 * 511}")
    assert between <= 2 * math.log2(64)
    assert within <= 2
    assert set(simulated.numbers) == {512.0}


@pytest.mark.parametrize(
    "nodes",
    [
        *(spread(ranks, num) for ranks, num in [(2, 1), (2, 2), (8, 1), (8, 2), (9, 3), (5, 5), (40, 7), (96, 24)]),
        [4, 4, 0, 0, 0, 2],  # as many as there are, in any order
        [0, 1, 0, 1, 0],
    ],
    ids=str,
)
def test_sums_whoever_comes_first(nodes: list[int]) -> None:
    draw, num_nodes = random.Random(3), len(set(nodes))
    numbers = [draw.uniform(-1, 1) * 10.0 ** draw.randint(-12, 12) for _ in nodes]
    found = [Simulated(nodes, numbers, seed=seed) for seed in range(8)]
    sums = {number for one in found for number in one.numbers}
    assert len(sums) == 1, "the order of adding depends on who comes first, or on the rank"
    exact = float(sum(map(Fraction, numbers)))
    assert sums.pop() == pytest.approx(exact, abs=1e-15 * sum(map(abs, numbers)))
    within, between = max(found[0].hops, key=sum)
    assert within <= 2
    assert between <= 2 * math.log2(num_nodes)
    assert found[0].num_messages <= 2 * (len(nodes) - num_nodes) + num_nodes * (2 + math.log2(num_nodes))


NODES = [0, 0, 1, 1, 2]
LARGE = 2**62


def tell(world: World) -> list[Any]:
    """Ten sums, of which several are begun before the first is asked for, among others of the same group."""
    os.environ["GROUP_RANK"] = str(NODES[world.rank])
    draw = random.Random(world.rank)
    found: list[Any] = []
    for first in range(0, 10, 2):
        time.sleep(draw.uniform(0, 0.02))
        waits = [world.begin_sums([world.rank + n, LARGE], [0.1 * (world.rank + n)]) for n in (first, first + 1)]
        found.append(world.sum([1]))
        found += [wait() for wait in waits]
        found.append(world.begin_sums([], [1.5])())
    return found


def test_real_ranks_of_three_nodes() -> None:
    found = fork_ranks(5, tell)
    assert all(one == found[0] for one in found)
    wrapped = (5 * LARGE + 2**63) % 2**64 - 2**63
    for first in range(0, 10, 2):
        mine = found[0][2 * first : 2 * first + 4]
        assert mine[0] == [5]
        for n, said in zip((first, first + 1), mine[1:3], strict=True):
            expected = Simulated(NODES, [0.1 * (rank + n) for rank in range(5)], seed=1).numbers[0]
            assert said == ([10 + 5 * n, wrapped], [expected])
        assert mine[3] == ([], [7.5])


def leave_one(world: World) -> None:
    """The last rank goes before it has said anything."""
    os.environ["GROUP_RANK"] = str(NODES[world.rank])
    world.begin_sums([1], [])()
    if world.rank == 4:
        os._exit(0)
    world.begin_sums([1], [])()


def test_a_rank_that_is_gone_is_an_error_of_all_others_at_once() -> None:
    assert exit_codes(5, leave_one) == [1, 1, 1, 1, 0]


# --- objects

STREAM = StreamState(
    epoch=1,
    update=2,
    lanes={0: (LaneCursor(pass_=0, window=1, position=2),), 3: ()},
    seed=4,
    micro_batches=2,
    fingerprints=["a"],
    shares=[1],
)
PICKLES = {"configs/plugins/files.py", "data_pipeline/stream/process_prefetch.py"}
"""Between a process and those that it forks or starts, through memory and pipes that no other reaches."""


@pytest.mark.parametrize(
    "item",
    [
        [None, True, 2**70, -0.1, "a\n\udcff\U0001f600", [], ""],
        (math.inf, (), {"a": {1, 2}, 3: ("b", None)}, Path("a/b")),
        ({}, {("a", 1): [{}]}, {"tuple": [1]}, {"dict": {"Path": "a"}}),
        STREAM,
    ],
)
def test_objects_arrive_as_they_were_sent(item: Any) -> None:
    assert unpacked(packed(item), StreamState, LaneCursor) == item


def test_errors_keep_what_they_mean_to_who_catches_them() -> None:
    for error in (UserError("a"), RunLockedError("b")):
        found = unpacked(packed((None, error)))[1]
        assert (type(found), str(found)) == (type(error), str(error))


@pytest.mark.parametrize(
    "content", [pickle.dumps(STREAM), b"", packed(STREAM), b'{"eval": "1"}', b'{"tuple": [], "set": []}']
)
def test_what_no_rank_sends_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # JSON's errors too
        unpacked(content)
    with pytest.raises(TypeError, match="ranks cannot send object"):
        packed([object()])


def test_nothing_else_unpickles_what_another_process_sent() -> None:
    of_ours = [path for path in sources(REPO) if path.parts[0] not in ("tests", "benchmarks")]
    unsafe = re.compile(r"\bpickle\.loads?\(|\w+_object(_list)?\(")
    found = {str(path) for path in of_ours if unsafe.search((REPO / path).read_text())}
    assert found == PICKLES
