"""Two machines' worth of agents in two network namespaces, joined by a veth pair: a real interface that goes down."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Command, Start, read_metrics, read_pairs
from tests.faults.conftest import MakeRun, Run, injected, launch_command
from tests.faults.injected import Fault, has_happened
from tests.faults.test_nodes import node_command
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
INTERFACE = "veth0"
ADDRESSES = ("10.213.77.1", "10.213.77.2")
ADDRESSES_V6 = ("fd77::1", "fd77::2")
PORT = 29_400
LAST = 12
SHORT = (f"training.max_updates={LAST}", "evaluation.every_updates=0", "checkpoint.every_updates=4")
SHORT_PATIENCE = "supervision.step_minutes=1"


@dataclass(frozen=True)
class Network:
    """Two namespaces."""

    names: tuple[str, str]

    def command(self, node: int, command: Sequence[str], *, hosts: Path = Path("/etc/hosts")) -> list[str]:
        """A command on one of the machines, with its own file of names."""
        private = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
        return ["ip", "netns", "exec", self.names[node], *private, *command]

    def set_link(self, state: str) -> None:
        """Up or down, of the first machine's interface."""
        _ip("-n", self.names[0], "link", "set", INTERFACE, state)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@pytest.fixture
def network() -> Iterator[Network]:
    yield from made(ADDRESSES, "/24")


@pytest.fixture
def network_v6() -> Iterator[Network]:
    yield from made(ADDRESSES_V6, "/64")


def made(addresses: tuple[str, str], prefix: str) -> Iterator[Network]:
    """Namespaces in which the interface has one address each."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("no network namespaces without root and iproute2")
    pair = Network(names=(f"zeromt-{os.getpid()}-a", f"zeromt-{os.getpid()}-b"))
    try:
        try:
            for name in pair.names:
                _ip("netns", "add", name)
            first, second = pair.names
            _ip("-n", first, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", second)
            for name, address in zip(pair.names, addresses, strict=True):
                without_waiting = ["nodad"] if ":" in address else []
                _ip("-n", name, "address", "add", f"{address}{prefix}", "dev", INTERFACE, *without_waiting)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", INTERFACE, "up")
        except OSError as error:
            pytest.skip(f"no network namespaces: {error}")
        yield pair
    finally:
        for name in pair.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def start_nodes(
    start: Start, shim: Path, network: Network, run: Run, job_id: str, host: str = ADDRESSES[0]
) -> list[Command]:
    """One node in each namespace, by the interface between them."""
    options = ("--interface", INTERFACE)
    commands = [node_command(run, rank, PORT, job_id, *options, host=host) for rank in (0, 1)]
    return [start(*network.command(rank, injected(shim, run, *command))) for rank, command in enumerate(commands)]


def digests(run: Run) -> list[tuple[int, int]]:
    """The hash of each update's pairs."""
    return [(line["step"], line["pairs_digest"]) for line in read_metrics(run.folder)]


def test_link_that_goes_down(network: Network, make_run: MakeRun, start: Start, shim: Path) -> None:
    """Each rank pauses before update 10, so that the link is down when they want to talk about it."""
    alone = make_run(name="alone", overrides=SHORT)
    done = start(*injected(shim, alone, *launch_command(alone))).finish(600)
    assert done.code == 0, done.err[-4000:]

    run = make_run(Fault(point="data", action="sleep", step=10, value=3), overrides=[*SHORT, SHORT_PATIENCE])
    nodes = start_nodes(start, shim, network, run, "first")
    wait_until(lambda: has_happened(run.plan, 0, 0) and has_happened(run.plan, 0, 1), seconds=600)
    network.set_link("down")
    began = time.monotonic()
    for node in nodes:
        done = node.finish(600)
        assert done.code == 1, done.err[-4000:]
        assert "failed first: stuck in step of update 10" in done.err
    print(f"link down: both have ended after {time.monotonic() - began:.1f} s")
    wait_until(lambda: run.processes() == [])
    network.set_link("up")
    assert run.complete_steps()[0] == 4, "that of step 8 may have been on its way"
    assert run.last_logged() < LAST

    for node in start_nodes(start, shim, network, run, "again"):
        done = node.finish(600)
        assert done.code == 0, done.err[-4000:]
    assert digests(run) == digests(alone)
    assert run.losses() == alone.losses()
    assert read_pairs(run.folder) == read_pairs(alone.folder)
    assert run.weights(LAST) == alone.weights(LAST)
    assert run.processes() == []


def test_nodes_that_have_addresses_of_ipv6_alone(
    network_v6: Network, make_run: MakeRun, start: Start, shim: Path
) -> None:
    run = make_run(overrides=SHORT)
    for node in start_nodes(start, shim, network_v6, run, "first", host=f"[{ADDRESSES_V6[0]}]"):
        done = node.finish(600)
        assert done.code == 0, done.err[-4000:]
    assert run.last_logged() == LAST
