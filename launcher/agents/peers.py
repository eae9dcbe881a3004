"""The agents of a job on several nodes: they wait for each other at the start, and notice when one is lost.

torchrun alone would keep waiting: a node that loses power sends nothing, and gloo and NCCL notice only after minutes to
half an hour. Here every agent sends heartbeats through the rendezvous' store, which node 0 hosts; node 0 watches all
nodes, and the others watch node 0. An agent that misses another ends, and the kernel ends its ranks with it.
"""

import argparse
import contextlib
import importlib
import json
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from launcher.machine.processes import descendants
from trainer.runs.layout import STUCK_FILE
from trainer.runs.process.streams import tell
from trainer.runs.signals import STOP_SIGNALS

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


class LostError(Exception):
    """Another node did not join, or is gone. The message names it."""


def join(arguments: argparse.Namespace, folder: Path, launcher: int | None) -> "Peers":
    """Wait until the agents of all nodes have joined.

    Args:
        arguments: torchrun's; `launcher.agents.job` makes them.
        folder: the run's, to note the cause when a node is lost.
        launcher: id of the process to stop when another node was stopped.

    Raises:
        LostError: not all came in time, or the port is in use.
    """
    conf = dict(pair.split("=", 1) for pair in arguments.rdzv_conf.split(","))
    host, _, port = arguments.rdzv_endpoint.rpartition(":")
    return Peers(
        endpoint=(host, int(port)),
        rank=int(arguments.node_rank),
        num_nodes=int(arguments.nnodes),
        launch_id=arguments.rdzv_id,
        join_seconds=float(conf["join_timeout"]),
        lost_seconds=float(conf["keep_alive_interval"]) * float(conf["keep_alive_max_attempt"]),
        folder=folder,
        launcher=launcher,
    )


def note_loss(folder: Path, line: str) -> None:
    """Note the cause in the run's folder for the launcher, as a watchdog does."""
    with contextlib.suppress(OSError), (folder / STUCK_FILE).open("a") as file:
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
        join_seconds: float,
        lost_seconds: float,
        folder: Path,
        launcher: int | None,
    ) -> None:
        """Wait for all; see `join`."""
        self._distributed = importlib.import_module("torch.distributed")
        self._endpoint = endpoint
        self._rank = rank
        self._others = [r for r in range(num_nodes) if r != rank]
        self._launch_id = launch_id
        self._lost_seconds = lost_seconds
        self._folder = folder
        self._launcher = launcher
        self._stop_seen: float | None = None
        self._store: Any = None
        self._hosts: dict[int, str] = {}
        self._meet(time.monotonic() + join_seconds, join_seconds)
        self._has_left = threading.Event()
        self._code: int | None = None
        self._last_talk = time.monotonic()
        self._problem: str | None = None
        # Heartbeat count of each watched node, and when it last grew.
        self._seen = dict.fromkeys([0] if self._rank else self._others, (0, self._last_talk))
        for target in (self._talk, self._guard):
            threading.Thread(target=target, daemon=True).start()

    def say(self, cause: str) -> None:
        """Tell the others why this node failed; the first message stands."""
        with contextlib.suppress(RuntimeError):
            self._store.compare_set("failed", "", f"node {self._rank} ({socket.gethostname()}): {cause}")

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
                self._store.set("stop", "1")
            self._store.set(f"ended/{self._rank}", "1")
            self._store.add("num_ended", 1)
            while self._problem is None and self._store.add("num_ended", 0) <= len(self._others):
                time.sleep(_END_SECONDS)
            self._store.add("num_left", 1)
            while self._rank == 0 and self._store.add("num_left", 0) <= len(self._others):
                time.sleep(_END_SECONDS)  # the guard ends this wait when a node is lost
        self._has_left.set()

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
            return bool(self._store.check([f"ended/{rank}"]))
        except RuntimeError:
            return False

    # --- before the ranks start

    def _meet(self, deadline: float, join_seconds: float) -> None:
        """Join the store. At first there may be none, or the store of an earlier attempt, which goes away."""
        while True:
            try:
                self._store = self._connect(deadline)
                mine = json.dumps({"host": socket.gethostname()})
                self._store.set(f"here/{self._rank}", mine)
                if self._rank == 0:
                    self._wait_for_all(deadline, join_seconds)
                    self._store.set("begin", "1")
                else:
                    self._store.wait(["begin"], _until(deadline))
                for rank in [0] if self._rank else self._others:
                    self._hosts[rank] = json.loads(self._store.get(f"here/{rank}"))["host"]
                return
            except RuntimeError as error:  # torch's errors of the network are
                self._store = None
                if self._rank == 0:
                    raise LostError(f"--rendezvous: {self._name()} cannot be opened here: {_line(error)}") from error
                if time.monotonic() >= deadline:
                    raise LostError(
                        f"{LOST_NODE}node 0 did not answer at {self._name()}, or missed another, "
                        f"within {join_seconds:.0f} s"
                    ) from error
                time.sleep(_RETRY_SECONDS)

    def _connect(self, deadline: float) -> Any:
        host, port = self._endpoint
        store = self._distributed.TCPStore(
            host,
            port,
            is_master=self._rank == 0,
            multi_tenant=True,  # torchrun opens the same one again
            wait_for_workers=False,
            timeout=_until(deadline),
        )
        store.set_timeout(timedelta(seconds=self._lost_seconds))
        return self._distributed.PrefixStore(f"zeromt/{self._launch_id}", store)

    def _wait_for_all(self, deadline: float, join_seconds: float) -> None:
        missing = list(self._others)
        while missing:
            missing = [rank for rank in missing if not self._store.check([f"here/{rank}"])]
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
                self._store.add(f"beat/{self._rank}", 1)
                for rank, (count, since) in seen.items():
                    now = self._store.add(f"beat/{rank}", 0)
                    seen[rank] = (count, since) if now == count else (now, time.monotonic())
                self._last_talk = time.monotonic()
                self._pass_on_stop()
                self._problem = self._find_problem(seen)
        except RuntimeError:
            self._problem = f"{LOST_NODE}node 0 ({self._hosts.get(0, '?')}) is gone"

    def _pass_on_stop(self) -> None:
        """Stop here too if another node was asked to stop.

        Ranks agree on a stop by themselves, but on the other node they may not have begun.
        """
        if self._launcher is None or self._code is not None or not self._store.check(["stop"]):
            return
        if self._stop_seen is None:
            self._stop_seen = time.monotonic()
        elif time.monotonic() - self._stop_seen > _STOP_SECONDS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._launcher, signal.SIGTERM)
            self._launcher = None

    def _find_problem(self, seen: dict[int, tuple[int, float]]) -> str | None:
        """Why the job cannot go on; None if it can."""
        if self._store.check(["failed"]):
            return str(self._store.get("failed").decode())
        now = time.monotonic()
        for rank, (_, since) in seen.items():
            if now - since > self._lost_seconds and not self._store.check([f"ended/{rank}"]):
                line = f"{LOST_NODE}node {rank} ({self._hosts[rank]}) gave no sign of life for {now - since:.0f} s"
                self._store.compare_set("failed", "", line)
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
        return f"{self._endpoint[0]}:{self._endpoint[1]}"


def _until(deadline: float) -> timedelta:
    return timedelta(seconds=max(1.0, deadline - time.monotonic()))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
