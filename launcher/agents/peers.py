"""The agents of a job on several nodes: they wait for each other at the start, and notice when one is lost.

torchrun alone would keep waiting: a node that loses power sends nothing, and gloo and NCCL notice only after minutes to
half an hour. Here every agent sends heartbeats through a store that node 0 hosts (`Board`); node 0 watches all nodes,
and the others watch node 0. An agent that misses another ends, and the kernel ends its ranks with it.
"""

import argparse
import contextlib
import importlib
import ipaddress
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from configs.process.files.inside import opened
from configs.process.signals import STOP_SIGNALS
from configs.process.streams import tell
from launcher.agents.secret import Board, secret_file, shared_secret, tag
from launcher.machine.processes import descendants
from trainer.runs.layout import STUCK_FILE

LOST_NODE = "a node is lost: "
"""Begins the error of a run that lost a node; a new start on other machines may succeed."""
_BEAT_SECONDS = 1.0
_GRACE_SECONDS = 10.0
"""Seconds for ranks and agent to end by themselves after a loss; they know more about the cause."""
_SILENT_SECONDS = 4.0
"""Seconds of silence after which a node is taken for the cause of the failure of the ranks here."""
_STOP_SECONDS = 5.0
"""Seconds for the ranks to end like those of a node that was stopped."""
_RETRY_SECONDS = 0.5
_END_SECONDS = 0.1
_BACKLOG = 4096


class LostError(Exception):
    """Another node did not join, or is gone. The message names it."""


def join(arguments: argparse.Namespace, folder: Path, launcher: int | None) -> "Peers":
    """Wait until the agents of all nodes have joined.

    Args:
        arguments: torchrun's; `launcher.agents.job` makes them.
        folder: the run's, to note the cause when a node is lost, and to hand over the secret.
        launcher: id of the process to stop when another node was stopped.

    Raises:
        LostError: not all came in time, or the port is in use.
        UserError: the secret is not one.
    """
    conf = dict(pair.split("=", 1) for pair in arguments.rdzv_conf.split(","))
    host, _, port = arguments.rdzv_endpoint.rpartition(":")
    rank, start, seconds = int(arguments.node_rank), arguments.rdzv_id, float(conf["join_timeout"])
    deadline = time.monotonic() + seconds
    try:
        secret = shared_secret(folder, start, is_first=rank == 0, has_ended=lambda: time.monotonic() >= deadline)
        if secret is None:
            raise LostError(f"{LOST_NODE}node 0 left no secret in {folder} within {seconds:.0f} s")
        return Peers(
            endpoint=(host, int(port)),
            rank=rank,
            num_nodes=int(arguments.nnodes),
            launch_id=start,
            secret=secret,
            join_seconds=seconds,
            lost_seconds=float(conf["keep_alive_interval"]) * float(conf["keep_alive_max_attempt"]),
            folder=folder,
            launcher=launcher,
        )
    finally:
        if rank == 0:
            secret_file(folder, start).unlink(missing_ok=True)


def note_loss(folder: Path, line: str) -> None:
    """Note the cause in the run's folder for the launcher, as a watchdog does."""
    with contextlib.suppress(OSError), opened(folder / STUCK_FILE, "a") as file:
        file.write(f"zeromt: {line}\n")


class Peers:
    """This agent's link to the others. One thread sends and checks heartbeats, another watches that thread."""

    def __init__(
        self,
        *,
        endpoint: tuple[str, int],
        rank: int,
        num_nodes: int,
        launch_id: str,
        secret: str,
        join_seconds: float,
        lost_seconds: float,
        folder: Path,
        launcher: int | None,
    ) -> None:
        """Wait for all; see `join`."""
        self._distributed = importlib.import_module("torch.distributed")
        self.endpoint = endpoint
        """Host and port of the store."""
        self._rank = rank
        self._others = [r for r in range(num_nodes) if r != rank]
        self._launch_id = launch_id
        self._secret = secret
        self._lost_seconds = lost_seconds
        self._folder = folder
        self._launcher = launcher
        self._stop_seen: float | None = None
        self._board: Any = None
        self._hosts: dict[int, str] = {}
        self._meet(time.monotonic() + join_seconds, join_seconds)
        self._has_left = threading.Event()
        self._code: int | None = None
        self._last_talk = time.monotonic()
        self._problem: str | None = None
        # The last heartbeat of each watched node, and when it came.
        self._seen = dict.fromkeys([0] if self._rank else self._others, ("", self._last_talk))
        for target in (self._talk, self._guard):
            threading.Thread(target=target, daemon=True).start()

    def say(self, cause: str) -> None:
        """Tell the others why this node failed; the first message stands."""
        with contextlib.suppress(RuntimeError):
            if self._board.read("failed") is None:
                self._board.put("failed", f"node {self._rank} ({socket.gethostname()}): {cause}")

    def leave(self, code: int) -> None:
        """Leave together with the others: no node leaves before the ranks of all have ended.

        A scheduler may kill the rest of a job as soon as one of its tasks ends with a code other than 0; and node 0
        leaves last, as it hosts the store.

        Args:
            code: with which this process is about to end.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the ranks have ended, so there is nothing left to stop
        self._code = code
        if code == 1:
            self.say("the ranks failed")
        is_stopped = code > 128  # by a signal
        with contextlib.suppress(RuntimeError):
            if is_stopped:
                self._board.put("stop")
            self._board.put(f"ended/{self._rank}")
            if self._rank == 0:
                self._wait_for("ended", self._others)
                self._board.put("ended/all")
                self._wait_for("left", self._others, even_so=True)  # the guard ends this when a node is lost
            else:
                self._wait_for("ended", ["all"])
                self._board.put(f"left/{self._rank}")
        self._has_left.set()

    def _wait_for(self, what: str, whom: Sequence[object], *, even_so: bool = False) -> None:
        """Wait for their messages, but not if the job cannot go on, unless `even_so`."""
        left = list(whom)
        while left and (even_so or self._problem is None):
            left = [one for one in left if self._board.read(f"{what}/{one}") is None]
            time.sleep(_END_SECONDS if left else 0.0)

    def lost(self) -> str | None:
        """One line that names a node which seems to be gone by now; None if all send heartbeats."""
        if self._problem is not None and self._problem.startswith(LOST_NODE):
            return self._problem
        now = time.monotonic()
        for rank, (_, since) in list(self._seen.items()):
            silence = now - since
            if silence > _SILENT_SECONDS and not self._has_ended(rank):
                return f"{LOST_NODE}node {rank} ({self._hosts[rank]}) gave no sign of life for {silence:.0f} s"
        return None

    def _has_ended(self, rank: int) -> bool:
        try:
            return self._board.read(f"ended/{rank}") is not None
        except RuntimeError:
            return False

    # --- before the ranks start

    def _meet(self, deadline: float, join_seconds: float) -> None:
        """Join the store. At first there may be none, or the store of an earlier attempt, which goes away."""
        while True:
            try:
                self._board = self._connect(deadline)
                self._board.put(f"here/{self._rank}", socket.gethostname())
                if self._rank == 0:
                    self._wait_for_all(deadline, join_seconds)
                    self._board.put("begin")
                while self._board.read("begin") is None:
                    if time.monotonic() >= deadline:
                        raise TimeoutError("no sign to begin")
                    time.sleep(_RETRY_SECONDS)
                for rank in [0] if self._rank else self._others:
                    self._hosts[rank] = self._board.read(f"here/{rank}") or "?"
                return
            except (RuntimeError, OSError) as error:  # torch's errors of the network are the former
                self._board = None
                if self._rank == 0:
                    raise LostError(f"--rendezvous: {self._name()} cannot be opened here: {_line(error)}") from error
                if time.monotonic() >= deadline:
                    raise LostError(
                        f"{LOST_NODE}node 0 did not answer at {self._name()}, or missed another, "
                        f"within {join_seconds:.0f} s"
                    ) from error
                time.sleep(_RETRY_SECONDS)

    def _connect(self, deadline: float) -> Board:
        host, port = self.endpoint
        store = self._distributed.TCPStore(
            host,
            port,
            is_master=self._rank == 0,
            wait_for_workers=False,
            timeout=timedelta(seconds=max(1.0, deadline - time.monotonic())),
            master_listen_fd=listen(host, port) if self._rank == 0 else None,
        )
        store.set_timeout(timedelta(seconds=self._lost_seconds))
        return Board(self._prefixed("nodes", store), self._secret, self._launch_id)

    def connect_again(self) -> Any:
        """A connection of torchrun's own to the store: what waits for an answer blocks a connection."""
        store = self._distributed.TCPStore(*self.endpoint, is_master=False, wait_for_workers=False)
        return self._prefixed("torchrun", store)

    def _prefixed(self, what: str, store: Any) -> Any:
        """The store's part for this start, which strangers cannot guess."""
        return self._distributed.PrefixStore(f"zeromt/{tag(self._secret, self._launch_id)}/{what}", store)

    def _wait_for_all(self, deadline: float, join_seconds: float) -> None:
        missing = list(self._others)
        while missing:
            missing = [rank for rank in missing if self._board.read(f"here/{rank}") is None]
            if missing and time.monotonic() >= deadline:
                which = ", ".join(map(str, missing))
                raise LostError(f"{LOST_NODE}node {which} did not come within {join_seconds:.0f} s")
            time.sleep(_RETRY_SECONDS if missing else 0.0)

    # --- while they run

    def _talk(self) -> None:
        """Send heartbeats, and check those of others, until leaving."""
        seen = self._seen
        try:
            while not self._has_left.wait(_BEAT_SECONDS) and self._problem is None:
                self._board.put(f"beat/{self._rank}", str(time.monotonic()))
                for rank, (last, since) in seen.items():
                    now = self._board.read(f"beat/{rank}") or last
                    seen[rank] = (last, since) if now == last else (now, time.monotonic())
                self._last_talk = time.monotonic()
                self._pass_on_stop()
                self._problem = self._find_problem(seen)
        except RuntimeError:
            self._problem = f"{LOST_NODE}node 0 ({self._hosts.get(0, '?')}) is gone"

    def _pass_on_stop(self) -> None:
        """Stop here too if another node was asked to stop.

        Ranks agree on a stop by themselves, but on the other node they may not have begun.
        """
        if self._launcher is None or self._code is not None or self._board.read("stop") is None:
            return
        if self._stop_seen is None:
            self._stop_seen = time.monotonic()
        elif time.monotonic() - self._stop_seen > _STOP_SECONDS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._launcher, signal.SIGTERM)
            self._launcher = None

    def _find_problem(self, seen: dict[int, tuple[str, float]]) -> str | None:
        """Why the job cannot go on; None if it can."""
        if (failed := self._board.read("failed")) is not None:
            return str(failed)
        now = time.monotonic()
        for rank, (_, since) in seen.items():
            if now - since > self._lost_seconds and not self._has_ended(rank):
                line = f"{LOST_NODE}node {rank} ({self._hosts[rank]}) gave no sign of life for {now - since:.0f} s"
                self._board.put("failed", line)
                return line
        return None

    def _guard(self) -> None:
        """Kill this process, and so its ranks, if the job cannot go on and it does not end by itself."""
        while not self._has_left.wait(_BEAT_SECONDS):
            silence = time.monotonic() - self._last_talk
            if self._problem is None and silence > self._lost_seconds:
                self._problem = f"{LOST_NODE}node 0 ({self._hosts.get(0, '?')}) gave no answer for {silence:.0f} s"
            if self._problem is not None:
                break
        if self._problem is None or self._has_left.wait(_GRACE_SECONDS):
            return
        if self._code is not None:  # the ranks have ended, and the last messages were not received
            os._exit(self._code)
        if self._problem.startswith(LOST_NODE):
            note_loss(self._folder, self._problem)
        for pid in descendants(os.getpid()):  # they cannot save without the others
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        tell(f"zeromt: ended on {socket.gethostname()}: {self._problem}")
        os._exit(1)

    def _name(self) -> str:
        return f"{self.endpoint[0]}:{self.endpoint[1]}"


def listen(host: str, port: int) -> int:
    """A listening socket for torch's store, which would listen at every address; the descriptor is the caller's.

    It listens at the address by which the others find this machine, if the name says which: Debian's /etc/hosts gives a
    machine's own name an address of its loopback interface, and a cluster may translate addresses on the way.

    Raises:
        OSError: the port is in use.
    """
    addresses = {(info[0], str(info[4][0])) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    first = [one for one in addresses if one[0] == socket.AF_INET] or list(addresses)
    if len(first) == 1:
        family, own = first[0]
        if host in ("localhost", own) or not ipaddress.ip_address(own).is_loopback:
            with contextlib.suppress(OSError):
                return socket.create_server((own, port), family=family, backlog=_BACKLOG).detach()
    return listen_everywhere(port).detach()


def listen_everywhere(port: int) -> socket.socket:
    """A socket that listens at every address of this machine, of IPv4 and IPv6.

    Raises:
        OSError: the port is in use.
    """
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=is_dual, backlog=_BACKLOG)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
