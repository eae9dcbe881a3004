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
from launcher.options.node import rendezvous
from launcher.start.node import check_network, choose_rank
from tests.conftest import HOST, Refused, descendants
from tests.launcher.start.test_launch import run_folder, wait_for
from tests.waiting import PATIENCE, wait_until
from trainer.runs.status import read_status

StartNode = Callable[..., "subprocess.Popen[str]"]


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
    addresses = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.5"], "ib0": ["10.1.0.5", "fe80::1%ib0"], "tunl0": []}
    monkeypatch.setattr(
        "psutil.net_if_addrs",
        lambda: {
            name: [argparse.Namespace(family=socket.AF_INET, address=ip) for ip in ips]
            + [argparse.Namespace(family=socket.AF_PACKET, address="00:00:00:00:00:01")]
            for name, ips in addresses.items()
        },
    )
    with pytest.raises(UserError, match="'tunl0' has no IP address on "):
        check_network(("n1", 29500), "tunl0", is_first=True)
    monkeypatch.setattr("launcher.start.node._route", lambda *_: "10.1.0.5")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 0))])
    with pytest.raises(UserError, match=r"is 127.0.1.1 "):
        check_network(("n1", 29500), None, is_first=False)


def test_rendezvous_at_an_address_of_ipv6() -> None:
    assert rendezvous("[fd77::1]:29400") == ("fd77::1", 29400)
    for text in ("[fd77::1]", "fd77::1:29400", "[n1]:29400"):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
            rendezvous(text)


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
    ],
)
def test_bad_input(refused: Refused, workplace: Path, arguments: list[str], message: str) -> None:
    assert refused("launch", "node", "debug", *arguments).startswith(message)


def test_refusal_of_a_node_stands_in_the_status(refused: Refused, workplace: Path) -> None:
    """srun's exit code may be that of another node, which it killed because of this one."""
    (workplace / "runs" / "debug").mkdir(parents=True)
    options = ("--nnodes", "2", "--node-rank", "1", "--rendezvous", "localhost:1", "--job-id", "start")
    assert refused("launch", "node", "debug", *options, "--interface", "no9").startswith("--interface: 'no9'")
    status = read_status(workplace / "runs" / "debug" / "status.json", "start")
    assert status is not None
    assert status.state == "refused"


@pytest.fixture
def start_node(launch: Callable[..., "subprocess.Popen[str]"], port: int) -> StartNode:
    """Start one of two nodes with one rank each; `fake` says what the ranks do, by rank."""

    def start(rank: int, fake: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        options = ("--nnodes", "2", "--node-rank", str(rank), "--rendezvous", f"localhost:{port}", "--job-id", "j")
        return launch(fake, *options, "--nproc", "1", *arguments, command="node", **variables)

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
    children = [start_node(rank, "file,file") for rank in (0, 1)]
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    (folder / "status.json").write_text('{"state": "running"}')
    ((code, _, err),) = end(start_node(0, "finish,finish", "--job-id", "other"))
    assert code == 2
    assert "is being written by process" in err
    children[0].send_signal(signal.SIGUSR1)
    wait_for(folder / "signals-0")
    (folder / "STOP").touch()  # as ranks agree on a stop
    assert [code for code, _, _ in end(*children)] == [75, 75]
    assert (folder / "signals-0").read_text() == "SIGTERM"
    assert not (folder / "signals-1").exists()


def test_under_srun_what_was_agreed_ends_no_other_node(start_node: StartNode, workplace: Path) -> None:
    children = [start_node(rank, "file,file", SLURM_STEP_ID="0") for rank in (0, 1)]
    wait_for(run_folder(workplace) / "pid-0", run_folder(workplace) / "pid-1")
    (run_folder(workplace) / "STOP").touch()
    assert [code for code, _, _ in end(*children)] == [0, 0]


def test_failure_is_named_by_every_node_and_none_starts_again(start_node: StartNode, workplace: Path) -> None:
    ended = end(*(start_node(rank, "once,die") for rank in (0, 1)))
    assert [code for code, _, _ in ended] == [1, 1], ended
    for _, _, err in ended:
        assert f"zeromt: rank 1 on {HOST} failed first: was ended by SIGKILL" in err
    assert "was ended by SIGKILL" in (run_folder(workplace) / "status.json").read_text()


def test_node_that_is_asked_while_it_waits_for_the_others_ends(start_node: StartNode, workplace: Path) -> None:
    child = start_node(1, "finish,finish")
    wait_until(lambda: descendants(child.pid) != [])
    child.send_signal(signal.SIGTERM)
    ((code, _, _),) = end(child)
    assert code == 75
