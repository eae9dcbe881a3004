"""Rows 29 and 30 without SLURM: a process or a node that is killed, and a time limit that is near.

Two `zeromt launch node` with real ranks. What SLURM does then, starting the same job again, is done here.
"""

import os
import signal
import socket
import sys

import pytest

from tests.conftest import HOST, Command, Start, descendants, zeromt
from tests.faults.conftest import MakeRun, Run, injected
from tests.faults.injected import Fault, has_happened
from tests.waiting import wait_until

NUM_NODES = 2
SLOW_SECONDS = 40


def node_command(run: Run, rank: int, port: int, job_id: str, *options: str, host: str = "localhost") -> list[str]:
    """`zeromt launch node` for a run, one rank on each of two nodes."""
    where = ["--nnodes", str(NUM_NODES), "--node-rank", str(rank), "--rendezvous", f"{host}:{port}"]
    return zeromt("launch", "node", "debug", *where, "--job-id", job_id, "--nproc", "1", *run.settings, *options)


def free_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def start_nodes(start: Start, shim: os.PathLike[str], run: Run, job_id: str, *options: str) -> list[Command]:
    """Both nodes, on this machine."""
    port = free_port()
    commands = (node_command(run, rank, port, job_id, *options) for rank in range(NUM_NODES))
    return [start(*injected(shim, run, *command)) for command in commands]  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
@pytest.mark.parametrize("to_all", [False, True], ids=["launcher", "all its processes"])
def test_stop_on_one_node_while_the_other_is_slow(
    make_run: MakeRun, start: Start, shim: os.PathLike[str], name: str, to_all: bool
) -> None:
    """No rank is killed that saves, or waits for one that does, though torchrun's own patience is 30 s."""
    run = make_run(
        Fault(point="data", action="sleep", step=7, value=3, rank=1),
        Fault(point="save", action="sleep", since=6, value=SLOW_SECONDS, rank=0),
    )
    nodes = start_nodes(start, shim, run, "first")
    wait_until(lambda: has_happened(run.plan, 0, 1))
    pid = nodes[1].process.pid
    for one in [pid, *descendants(pid)] if to_all else [pid]:
        os.kill(one, signal.Signals[name])
    for node in nodes:
        done = node.finish()
        assert done.code == 75, done.err[-4000:]
    assert has_happened(run.plan, 1, 0)
    assert run.status()["state"] == "stopped"
    assert run.complete_steps()[-1] == run.last_logged() < 20
    assert run.leftovers() == []
    wait_until(lambda: run.processes() == [])


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["rank", "torchrun", "node"])
def test_kill_on_one_node_ends_both_and_they_go_on(
    undisturbed: Run, make_run: MakeRun, start: Start, shim: os.PathLike[str], whom: str
) -> None:
    run = make_run(Fault(point="data", action="sleep", step=18, value=3, rank=1), after=(undisturbed, 15))
    nodes = start_nodes(start, shim, run, "first")
    wait_until(lambda: has_happened(run.plan, 0, 1))
    pid = nodes[1].process.pid
    below = descendants(pid)  # the youngest first: the rank, torchrun
    for one in {"rank": below[-2:-1], "torchrun": below[-1:], "node": [pid, *below]}[whom]:
        os.kill(one, signal.SIGKILL)
    ended = [node.finish() for node in nodes]
    assert [done.code for done in ended] == [1, -signal.SIGKILL if whom == "node" else 1]
    if whom == "rank":
        assert all(f"rank 1 on {HOST} failed first: was ended by SIGKILL" in done.err for done in ended)
    wait_until(lambda: run.processes() == [])
    for node in start_nodes(start, shim, run, "second"):
        done = node.finish()
        assert done.code == 0, done.err[-4000:]
    run.assert_same(undisturbed)


def torchrun_command(run: Run, port: int, *options: str, host: str = "localhost") -> list[str]:
    """Plain torchrun for a run, one rank on each of two nodes."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", f"r{port}"]
    agent = ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", sys.executable, "-m", "torch.distributed.run"]
    agent += ["--nnodes", str(NUM_NODES), "--nproc-per-node", "1"]
    return [*agent, "--max-restarts", "3", *meeting, *options, "-m", "trainer", "debug", *run.settings]


@pytest.mark.slow
def test_plain_torchrun_starts_the_ranks_of_two_nodes_again(
    make_run: MakeRun, start: Start, shim: os.PathLike[str]
) -> None:
    """In a store that has nothing of the dead rank."""
    run = make_run(Fault(point="data", action="kill", rank=0, step=7), overrides=["training.max_updates=10"])
    command = torchrun_command(run, free_port(), "--local-addr", "localhost")
    for node in [start(*injected(shim, run, *command)) for _ in range(NUM_NODES)]:  # type: ignore[arg-type]
        done = node.finish()
        assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    assert run.status()["state"] == "finished"
    assert run.complete_steps() == [5, 10]
    assert run.processes() == []
