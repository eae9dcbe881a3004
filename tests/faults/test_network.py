"""Two machines' worth of agents in two network namespaces, joined by a veth pair: a real interface that goes down."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import HOST, Command, Start, read_metrics, read_pairs, wait_until
from tests.faults.conftest import MakeRun, Run, injected, launch_command
from tests.faults.injected import Fault, has_happened
from tests.faults.test_nodes import node_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
INTERFACE = "veth0"
ADDRESSES = ("10.213.77.1", "10.213.77.2")
PORT = 29_400
LAST = 12
SHORT = (f"training.max_updates={LAST}", "evaluation.every_updates=0", "checkpoint.every_updates=4")
SHORT_PATIENCE = "engine.communication_timeout_minutes=1"


@dataclass(frozen=True)
class Network:
    """Two namespaces."""

    names: tuple[str, str]

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command on one of the machines."""
        return ["ip", "netns", "exec", self.names[node], *command]

    def set_link(self, state: str) -> None:
        """Up or down, of the first machine's interface."""
        _ip("-n", self.names[0], "link", "set", INTERFACE, state)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    made = Network(names=(f"zeromt-{os.getpid()}-a", f"zeromt-{os.getpid()}-b"))
    try:
        try:
            for name in made.names:
                _ip("netns", "add", name)
            first, second = made.names
            _ip("-n", first, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", second)
            for name, address in zip(made.names, ADDRESSES, strict=True):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", INTERFACE, "up")
        except OSError as error:
            pytest.skip(f"this kernel gives no network namespaces: {error}")
        yield made
    finally:
        for name in made.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def start_nodes(start: Start, shim: Path, network: Network, run: Run, job_id: str) -> list[Command]:
    """One node in each namespace, by the interface between them."""
    options = ("--interface", INTERFACE, "--max-restarts", "0")
    commands = [node_command(run, rank, PORT, job_id, *options, host=ADDRESSES[0]) for rank in (0, 1)]
    return [start(*network.command(rank, injected(shim, run, *command))) for rank, command in enumerate(commands)]


def digests(run: Run) -> list[tuple[int, int]]:
    """The hash of each update's pairs."""
    return [(line["step"], line["pairs_digest"]) for line in read_metrics(run.folder)]


def test_link_that_goes_down_for_twenty_seconds(network: Network, make_run: MakeRun, start: Start, shim: Path) -> None:
    """Each rank pauses before update 10, so that the link is down when they want to talk about it."""
    alone = make_run(name="alone", overrides=SHORT)
    done = start(*injected(shim, alone, *launch_command(alone))).finish(600)
    assert done.code == 0, done.err[-4000:]

    run = make_run(Fault(point="data", action="sleep", step=10, value=3), overrides=[*SHORT, SHORT_PATIENCE])
    nodes = start_nodes(start, shim, network, run, "first")
    wait_until(lambda: has_happened(run.plan, 0, 0) and has_happened(run.plan, 0, 1), seconds=600)
    network.set_link("down")
    begin = time.monotonic()
    ended: dict[int, float] = {}
    while (now := time.monotonic()) < begin + 20:
        ended |= {n: now - begin for n, node in enumerate(nodes) if n not in ended and node.process.poll() is not None}
        time.sleep(0.1)
    network.set_link("up")
    for number, node in enumerate(nodes):
        done = node.finish(100)
        seconds = ended.get(number, time.monotonic() - begin)
        assert done.code == 1, done.err[-4000:]
        assert seconds < 75, "not within the time-outs of node and communication"
        cause = next(line for line in done.err.splitlines() if "failed first" in line or "a node is lost" in line)
        print(json.dumps({"node": number, "ended_after": round(seconds, 1), "said": cause}))
        assert re.search(rf"a node is lost: node {1 - number} \({HOST}\) gave no (sign of life|answer) for", cause)
    wait_until(lambda: run.processes() == [], seconds=30)
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
