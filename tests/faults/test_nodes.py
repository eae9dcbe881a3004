"""Rows 29 and 30 without SLURM: a node that vanishes, and a time limit that is near.

Two `zeromt launch node` with real ranks. What SLURM does then, starting the same job again, is done here.
"""

import os
import signal
import socket
import time

import pytest

from tests.conftest import HOST, Command, Start, wait_until, zeromt
from tests.faults.conftest import MakeRun, Run, injected
from tests.faults.injected import Fault, has_happened
from tests.faults.test_kills import assert_same

pytestmark = pytest.mark.alone

NUM_NODES = 2


def node_command(run: Run, rank: int, port: int, job_id: str, *options: str, host: str = "localhost") -> list[str]:
    """`zeromt launch node` for a run, one rank on each of two nodes."""
    where = ["--nnodes", str(NUM_NODES), "--node-rank", str(rank), "--rendezvous", f"{host}:{port}"]
    patience = ["--join-timeout", "60", "--node-timeout", "9"]
    return zeromt(
        "launch", "node", "debug", *where, *patience, "--job-id", job_id, "--nproc", "1", *run.settings, *options
    )


def start_nodes(start: Start, shim: os.PathLike[str], run: Run, job_id: str, *options: str) -> list[Command]:
    """Both nodes, on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    commands = (node_command(run, rank, port, job_id, *options) for rank in range(NUM_NODES))
    return [start(*injected(shim, run, *command)) for command in commands]  # type: ignore[arg-type]


def test_node_that_vanishes_and_a_time_limit_that_is_near(
    undisturbed: Run, make_run: MakeRun, start: Start, shim: os.PathLike[str]
) -> None:
    """Rows 29 and 30 in one run.

    A node vanishes: the other one ends soon and names it; the job, started again, goes on from the last checkpoint.
    SLURM signals every node ahead of the limit: the job saves, tells why, and goes on when started again.
    """
    run = make_run(
        Fault(point="data", action="sleep", step=33, value=60),
        Fault(point="data", action="sleep", step=34, value=3),
        after=(undisturbed, 30),
    )
    nodes = start_nodes(start, shim, run, "first", "--max-restarts", "0")
    wait_until(lambda: run.last_logged() >= 32)
    begin = time.monotonic()
    nodes[1].kill()
    nodes[1].finish(30)
    done = nodes[0].finish(100)
    assert done.code == 1, done.err[-4000:]
    assert time.monotonic() - begin < 60
    first = next(line for line in done.err.splitlines()[1:] if line.startswith("zeromt: "))
    assert f"node 1 ({HOST})" in first, "the loss is named first"
    wait_until(lambda: run.processes() == [], seconds=20)

    nodes = start_nodes(start, shim, run, "second")
    wait_until(lambda: all(has_happened(run.plan, 1, rank) for rank in range(NUM_NODES)))
    for node in nodes:
        os.kill(node.process.pid, signal.SIGUSR1)
    for node in nodes:
        done = node.finish(240)
        assert done.code == 75, done.err[-4000:]
    assert (run.status()["state"], run.status()["stop_reason"]) == ("stopped", "SIGUSR1")
    last = run.last_logged()
    assert run.complete_steps()[-1] == last < 40

    for node in start_nodes(start, shim, run, "third"):
        done = node.finish(240)
        assert done.code == 0, done.err[-4000:]
    assert_same(run, undisturbed)
    assert run.processes() == []


@pytest.mark.slow
def test_rank_on_another_node_is_named_by_every_node(make_run: MakeRun, start: Start, shim: os.PathLike[str]) -> None:
    """Row 8 on two nodes."""
    run = make_run(Fault(point="accumulate", action="raise", rank=1, step=5, value="the root cause"))
    for node in start_nodes(start, shim, run, "first", "--max-restarts", "0"):
        done = node.finish(240)
        assert done.code == 1
        first = next(line for line in done.err.splitlines() if "failed first" in line or "ended on" in line)
        assert first == f"zeromt: rank 1 on {HOST} failed first: RuntimeError: injected: the root cause"
