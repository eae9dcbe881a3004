"""`zeromt launch node`: two nodes of one job on this machine, with torchrun and ranks of a pretending trainer."""

import argparse
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import UserError
from launcher.agents.job import Job, Node, child_environment, torchrun_command
from launcher.agents.node import check_network, choose_rank
from launcher.agents.peers import listen
from launcher.options.node import rendezvous
from tests.conftest import HOST, Refused, descendants, is_running
from tests.launcher.local.test_launch import run_folder, wait_for
from tests.waiting import PATIENCE

StartNode = Callable[..., "subprocess.Popen[str]"]


def node(rank: int) -> Node:
    return Node(
        rank=rank,
        num_nodes=2,
        job_id="77-0",
        host="n1",
        port=29500,
        interface="ib0",
        join_seconds=300,
        lost_seconds=15,
    )


def job(rank: int) -> Job:
    return Job(
        config="debug",
        overrides=("seed=2",),
        num_processes=2,
        folder=Path("runs/demo"),
        shutdown_seconds=1800,
        node=node(rank),
    )


def test_golden_command_and_environment() -> None:
    found = torchrun_command(job(1), "77-0-1", python="python")
    assert found[3:] == [
        "--nnodes=2",
        "--nproc-per-node=2",
        "--rdzv-backend=zeromt",
        "--rdzv-endpoint=n1:29500",
        "--rdzv-id=77-0-1",
        "--rdzv-conf=is_host=0,join_timeout=300,keep_alive_interval=5,keep_alive_max_attempt=3",
        "--node-rank=1",
        "--max-restarts=0",
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
        "--log-dir=runs/demo/logs/node-1",
        "--redirects=3",
        "--tee=0:3",
        "-m",
        "trainer",
        "debug",
        "seed=2",
    ]
    assert "is_host=1" in torchrun_command(job(0), "77-0-1")[8]
    environment = child_environment({}, job=job(1), cores=8, launch_id="77-0-1", launcher_pid=7)
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(
    ("requested", "environ", "expected"), [(1, {}, 1), (None, {"SLURM_NODEID": "1"}, 1), (0, {"SLURM_NODEID": "1"}, 0)]
)
def test_rank_of_the_node(requested: int | None, environ: dict[str, str], expected: int) -> None:
    assert choose_rank(requested, 2, environ) == expected


@pytest.mark.parametrize(
    ("requested", "environ", "message"),
    [
        (None, {}, "--node-rank: "),
        (2, {}, "--node-rank: 2 "),
        (None, {"SLURM_NODEID": "2"}, "SLURM_NODEID: 2 "),
    ],
)
def test_rank_that_is_none(requested: int | None, environ: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        choose_rank(requested, 2, environ)


def test_network() -> None:
    check_network(("localhost", 29500), None, is_first=False)
    check_network(("n1", 29500), "lo", is_first=True)
    with pytest.raises(UserError, match=r"^--interface: 'no9' has no IP address on "):
        check_network(("n1", 29500), "no9", is_first=True)
    with pytest.raises(UserError, match=r"^--rendezvous: 'no\.such\.host\.invalid' cannot be reached"):
        check_network(("no.such.host.invalid", 29500), None, is_first=False)


def test_interfaces_that_are_named_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one without an address, nor loopback; and the one to give, if this machine's name leads nowhere."""
    found = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.5"], "ib0": ["10.1.0.5", "fe80::1%ib0"], "tunl0": []}
    monkeypatch.setattr(
        "psutil.net_if_addrs",
        lambda: {
            name: [argparse.Namespace(family=socket.AF_INET, address=ip) for ip in ips]
            + [argparse.Namespace(family=socket.AF_PACKET, address="00:00:00:00:00:01")]
            for name, ips in found.items()
        },
    )
    with pytest.raises(UserError, match="'tunl0' has no IP address on "):
        check_network(("n1", 29500), "tunl0", is_first=True)
    monkeypatch.setattr("launcher.agents.node._check_route", lambda *_: "10.1.0.5")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 0))])
    with pytest.raises(UserError, match=r"is 127.0.1.1 "):
        check_network(("n1", 29500), None, is_first=False)
    del found["eth0"], found["ib0"]
    with pytest.raises(UserError, match=r" lo$"):
        check_network(("n1", 29500), "tunl0", is_first=True)


def test_rendezvous_at_an_address_of_ipv6() -> None:
    assert rendezvous("[fd77::1]:29400") == ("fd77::1", 29400)
    for text in ("[fd77::1]", "fd77::1:29400", "[n1]:29400"):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
            rendezvous(text)
    os.close(listen("::1", 0))


HPZ_2 = ["stream.micro_batches=6", "engine.zero_stage=3", "engine.zero_optimization.zero_hpz_partition_size=2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --nnodes, --rendezvous, --job-id"),
        (["--rendezvous", "n1"], "argument --rendezvous: 'n1'"),
        (["--rendezvous", "n1;x:1"], "argument --rendezvous: 'n1;x:1'"),
        (["--rendezvous", "n1:70000"], "argument --rendezvous: 'n1:70000'"),
        (["--job-id", "a b"], "argument --job-id: 'a b'"),
        (["--interface", "eth0;"], "argument --interface: 'eth0;'"),
        (
            ["--nnodes", "3", "--rendezvous", "localhost:1", "--job-id", "1", "--node-rank", "0"],
            "--nnodes: 3 is more than stream.micro_batches=2",
        ),
        (
            [
                "--nnodes",
                "2",
                "--rendezvous",
                "localhost:1",
                "--job-id",
                "1",
                "--node-rank",
                "0",
                "--nproc",
                "3",
                *HPZ_2,
            ],
            "engine.zero_optimization.zero_hpz_partition_size: 2 with 6 ranks, 3 on each machine",
        ),
    ],
)
def test_bad_input(refused: Refused, workplace: Path, arguments: list[str], message: str) -> None:
    assert refused("launch", "node", "debug", *arguments).startswith(message)


@pytest.fixture
def start_node(launch: Callable[..., "subprocess.Popen[str]"], port: int) -> StartNode:
    """Start one of two nodes with one rank each; `fake` says what the ranks do, by rank."""

    def start(rank: int, fake: str, *arguments: str) -> "subprocess.Popen[str]":
        options = ("--nnodes", "2", "--node-rank", str(rank), "--rendezvous", f"localhost:{port}", "--job-id", "j")
        return launch(fake, *options, "--nproc", "1", *arguments, command="node")

    return start


def end(*children: "subprocess.Popen[str]") -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each; whoever is left after a while is killed and the test fails."""
    ended = []
    try:
        for child in children:
            out, err = child.communicate(timeout=PATIENCE)
            ended.append((child.returncode, out, err))
    finally:
        for child in children:
            if child.poll() is None:
                for pid in [*descendants(child.pid), child.pid]:
                    os.kill(pid, signal.SIGKILL)
    return ended


def test_finished_run_and_its_logs(start_node: StartNode, workplace: Path) -> None:
    ended = end(start_node(1, "finish,finish"), start_node(0, "finish,finish"))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert sorted(line for _, out, _ in ended for line in out.splitlines()) == [
        "rank 0: rank 0 of 2 says hello",
        "rank 1: rank 1 of 2 says hello",
    ]
    logs = sorted(run_folder(workplace).glob("logs/node-*/*/attempt_0/0/stdout.log"))
    assert [path.parts[-5] for path in logs] == ["node-0", "node-1"]
    assert sorted(path.read_text() for path in logs) == [f"rank {r} of 2 says hello\n" for r in (0, 1)]


def test_second_job_is_refused_and_a_request_to_one_node_stops_both(start_node: StartNode, workplace: Path) -> None:
    children = [start_node(rank, "wait,wait") for rank in (0, 1)]
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    (folder / "status.json").write_text('{"state": "running"}')
    ((code, _, err),) = end(start_node(0, "finish,finish", "--job-id", "other"))
    assert code == 2
    assert "is being written by process" in err
    children[1].send_signal(signal.SIGUSR1)
    assert [code for code, _, _ in end(*children)] == [75, 75]
    assert [(folder / f"signals-{rank}").read_text() for rank in (0, 1)] == ["SIGTERM", "SIGUSR1"]


@pytest.mark.slow
def test_both_start_again_after_a_failure(start_node: StartNode) -> None:
    ended = end(*(start_node(rank, "once,finish") for rank in (0, 1)))
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert all("restart 1 of 3 since step 0" in err for _, _, err in ended)


def test_failure_on_one_node_ends_the_others(start_node: StartNode, workplace: Path) -> None:
    children = [start_node(rank, "wait,fail", "--max-restarts", "0") for rank in (0, 1)]
    ended = end(*children)
    assert [code for code, _, _ in ended] == [1, 1], ended
    said = "".join(err for _, _, err in ended)
    assert said.count(f"zeromt: rank 1 on {HOST} failed first: ended with exit code 1") >= 1
    assert "RuntimeError: the root cause" in said
    assert f"ended on {socket.gethostname()}: node" in said


@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_lost_node_ends_the_others(start_node: StartNode, workplace: Path, lost: int) -> None:
    options = ("--node-timeout", "6", "--join-timeout", "15", "--max-restarts", "1")
    children = [start_node(rank, "forever,forever", *options) for rank in (0, 1)]
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    gone = [*descendants(children[lost].pid), children[lost].pid]
    left = descendants(children[1 - lost].pid)
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    (_, (code, _, err)) = end(children[lost], children[1 - lost])
    assert code == 1
    assert f"a node is lost: node {lost} ({socket.gethostname()}) {'is gone' if lost == 0 else 'gave no sign'}" in err
    assert ("node 0 did not answer" if lost == 0 else "node 1 did not come within 15 s") in err
    assert not any(map(is_running, left)), "a process is left"


def test_port_in_use_is_named(start_node: StartNode, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        ((code, _, err),) = end(start_node(0, "finish,finish", "--join-timeout", "3"))
    assert code == 1
    assert f"--rendezvous: localhost:{port} cannot be opened here" in err
