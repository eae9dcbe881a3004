"""Who reaches a port of a run neither runs code nor stops it."""

import contextlib
import ipaddress
import os
import pickle
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.process.environment import PRIVATE
from tests.faults.conftest import Canary, Launch, MakeRun, Run
from tests.waiting import wait_until


def ports_of(run: Run) -> Iterator[tuple[str, int]]:
    """Addresses and numbers at which a run's processes listen."""
    for pid in run.processes():
        with contextlib.suppress(psutil.Error):  # it has ended
            for one in psutil.Process(pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    yield one.laddr.ip, one.laddr.port


@pytest.mark.slow
def test_on_one_machine_nothing_listens_beyond_it_and_nothing_sent_there_is_run(
    make_run: MakeRun, launch: Launch, tmp_path: Path
) -> None:
    run = make_run(overrides=("training.max_updates=100000", "evaluation.every_updates=0"))
    command = launch(run, restarts=0)
    wait_until(lambda: run.last_logged() >= 3)
    ports = {*ports_of(run)}
    assert ports, "gloo's"
    assert all(ipaddress.ip_address(address).is_loopback for address, _ in ports)
    poison = pickle.dumps(Canary(tmp_path / "executed"))
    lengths = (len(poison).to_bytes(8, "little"), (0).to_bytes(8, "little"))  # the latter gloo's number of a pair
    for port in ports:
        for message in (poison, *(length + poison for length in lengths), b"GET / HTTP/1.1\r\n\r\n", b""):
            with socket.create_connection(port, 1.5) as one:
                one.sendall(message)
    [folder] = {one.environ()[PRIVATE] for one in psutil.Process(command.process.pid).children()}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert Path(folder, "store").exists()
    before = run.last_logged()
    wait_until(lambda: run.last_logged() >= before + 3)
    os.kill(command.process.pid, signal.SIGTERM)
    done = command.finish()
    assert done.code == 75, done.err[-4000:]
    assert not (tmp_path / "executed").exists()
    assert not Path(folder).exists()
