"""How the pods of a start find each other and agree on its name.

Pods come and go one by one: the pod of a lost machine may be back before the others have noticed, while these still
hold the old rendezvous. So each start has its own name. The first pod chooses it and, when all pods are there, sends it
to them over a port that it then closes. A pod that comes too late for one start waits for the next.

Anybody in the cluster reaches the port. The first pod greets who connects with a number of that connection; a pod
answers with its own and what the Job's secret makes of both, as the first does with the name of the start. Who says
something else, or nothing, is sent away, and keeps nobody waiting.
"""

import contextlib
import hashlib
import hmac
import secrets
import select
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.agents.peers import listen_everywhere

_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_LONGEST_LINE = 400
_MOST_STRANGERS = 64
"""Connections that have not said yet who they are; the oldest makes room."""


class MissingError(Exception):
    """Other pods did not come. The message names them."""


class StoppedError(Exception):
    """The pod was asked to stop while it waited."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Caller:
    """A connection to the first pod, before it has said who it is."""

    connection: socket.socket
    greeting: str = field(default_factory=lambda: secrets.token_hex(16))
    came: float = field(default_factory=time.monotonic)
    said: bytes = b""


@dataclass(slots=True)
class _There:
    """A pod that has come."""

    connection: socket.socket
    number: str
    """The pod's own, which makes the answer one for this connection."""


def host(job: str, secret: str, *, num_pods: int, port: int, seconds: float, is_stopped: Callable[[], bool]) -> str:
    """The first pod's part: wait for all others, and send them the name of the start.

    Args:
        job: the Job's name.
        secret: the Job's, which all its pods share.
        num_pods: number of all pods.
        port: to listen on.
        seconds: to wait.
        is_stopped: called several times a second.

    Raises:
        MissingError: not all came in time.
        StoppedError: `is_stopped` returned true.
    """
    there: dict[int, _There] = {}
    callers: list[_Caller] = []
    deadline = time.monotonic() + seconds
    try:
        with listen_everywhere(port) as server:
            while len(there) < num_pods - 1:
                _check(is_stopped, deadline, lambda: _missing(there, num_pods, seconds))
                heard = select.select([server, *(one.connection for one in callers)], [], [], _LOOK_SECONDS)[0]
                if server in heard:
                    _greet(server, callers)
                for caller in [one for one in callers if one.connection in heard]:
                    _receive(caller, callers, there, job, secret, num_pods)
                for caller in [one for one in callers if time.monotonic() - one.came > _ANSWER_SECONDS]:
                    _send_away(caller, callers)
                for index in [index for index, one in there.items() if _has_left(one.connection)]:
                    there.pop(index).connection.close()
        start = f"{job}-{uuid.uuid4().hex[:8]}"
        for one in there.values():
            with contextlib.suppress(OSError):  # its absence is noticed at the rendezvous
                one.connection.sendall(f"{start} {_mark(secret, 'start', one.number, start)}\n".encode())
        return start
    finally:
        for connection in [*(one.connection for one in there.values()), *(one.connection for one in callers)]:
            connection.close()


def ask(
    job: str,
    secret: str,
    *,
    index: int,
    address: tuple[str, int],
    seconds: float,
    is_stopped: Callable[[], bool],
) -> str:
    """Another pod's part: get the name of the start from the first pod.

    Args:
        job: the Job's name.
        secret: the Job's, which all its pods share.
        index: of this pod.
        address: of the first pod; its name is looked up again for every attempt, since its address changes.
        seconds: to wait.
        is_stopped: called several times a second.

    Raises:
        MissingError: the first did not come in time, or waits for others.
        StoppedError: `is_stopped` returned true.
    """
    deadline = time.monotonic() + seconds
    while True:
        _check(
            is_stopped, deadline, lambda: f"pod 0 did not answer at {address[0]}:{address[1]} within {seconds:.0f} s"
        )
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=_ANSWER_SECONDS) as first:
            first.setblocking(False)

            def check() -> None:
                _check(is_stopped, deadline, lambda: f"pod 0 waits for others, after {seconds:.0f} s")

            greeting, number = _line(first, check), secrets.token_hex(16)
            first.sendall(
                f"{job} {index} {number} {_mark(secret, 'pod', greeting, job, str(index), number)}\n".encode()
            )
            start, _, mark = _line(first, check).partition(" ")
            if hmac.compare_digest(mark.encode(), _mark(secret, "start", number, start).encode()):
                return start
        time.sleep(_LOOK_SECONDS)


def _check(is_stopped: Callable[[], bool], deadline: float, what: Callable[[], str]) -> None:
    if is_stopped():
        raise StoppedError
    if time.monotonic() >= deadline:
        raise MissingError(what())


def _line(connection: socket.socket, check: Callable[[], None]) -> str:
    """The next line; empty if the other side has closed the connection, or says too much."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        check()
        if select.select([connection], [], [], _LOOK_SECONDS)[0]:
            more = connection.recv(1)  # what follows the line is of the next
            if not more:
                return ""
            line += more
    return line.decode(errors="replace").strip()


def _mark(secret: str, *words: object) -> str:
    """What only those make of these words who know the secret."""
    return hmac.new(secret.encode(), repr(words).encode(errors="replace"), hashlib.sha256).hexdigest()


def _missing(there: dict[int, _There], num_pods: int, seconds: float) -> str:
    numbers = [str(number) for number in range(1, num_pods) if number not in there]
    return f"pod {', '.join(numbers)} of {num_pods} did not come within {seconds:.0f} s"


def _greet(server: socket.socket, callers: list[_Caller]) -> None:
    with contextlib.suppress(OSError):
        connection, _ = server.accept()
        connection.setblocking(False)
        caller = _Caller(connection=connection)
        callers.append(caller)
        if len(callers) > _MOST_STRANGERS:
            _send_away(callers[0], callers)
        connection.sendall(f"{caller.greeting}\n".encode())


def _receive(
    caller: _Caller, callers: list[_Caller], there: dict[int, _There], job: str, secret: str, num_pods: int
) -> None:
    """Take what has come from a caller; a pod that comes again replaces its earlier connection."""
    try:
        more = caller.connection.recv(_LONGEST_LINE)
    except OSError:
        more = b""
    caller.said += more
    if more and not caller.said.endswith(b"\n") and len(caller.said) < _LONGEST_LINE:
        return
    name, index, number, mark = (caller.said.decode(errors="replace").split() + [""] * 4)[:4]
    wanted = _mark(secret, "pod", caller.greeting, job, index, number)
    is_pod = name == job and hmac.compare_digest(mark.encode(), wanted.encode())
    if not (is_pod and index.isdecimal() and 0 < int(index) < num_pods):
        _send_away(caller, callers)
        return
    callers.remove(caller)
    if (before := there.get(int(index))) is not None:
        before.connection.close()
    there[int(index)] = _There(caller.connection, number)


def _send_away(caller: _Caller, callers: list[_Caller]) -> None:
    callers.remove(caller)
    caller.connection.close()


def _has_left(one: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        return bool(select.select([one], [], [], 0)[0]) and not one.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
