"""How the pods of a start find each other and agree on its name.

Pods come and go one by one: the pod of a lost machine may be back before the others have noticed, while these still
hold the old rendezvous. So each start has its own name. The first pod chooses it and, when all pods are there, sends it
to them over a port that it then closes. A pod that comes too late for one start waits for the next.
"""

import contextlib
import select
import socket
import time
import uuid
from collections.abc import Callable

_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_LONGEST_LINE = 200


class MissingError(Exception):
    """Other pods did not come. The message names them."""


class StoppedError(Exception):
    """The pod was asked to stop while it waited."""


def host(job: str, *, num_pods: int, port: int, seconds: float, is_stopped: Callable[[], bool]) -> str:
    """The first pod's part: wait for all others, and send them the name of the start.

    Args:
        job: the Job's name.
        num_pods: number of all pods.
        port: to listen on.
        seconds: to wait.
        is_stopped: called several times a second.

    Raises:
        MissingError: not all came in time.
        StoppedError: `is_stopped` returned true.
    """
    there: dict[int, socket.socket] = {}
    deadline = time.monotonic() + seconds
    try:
        with socket.create_server(("", port)) as server:
            while len(there) < num_pods - 1:
                _check(is_stopped, deadline, lambda: _missing(there, num_pods, seconds))
                if select.select([server], [], [], _LOOK_SECONDS)[0]:
                    _let_in(server, there, job, num_pods)
                for number in [number for number, one in there.items() if _has_left(one)]:
                    there.pop(number).close()
        start = f"{job}-{uuid.uuid4().hex[:8]}"
        for one in there.values():
            with contextlib.suppress(OSError):  # its absence is noticed at the rendezvous
                one.sendall(f"{start}\n".encode())
        return start
    finally:
        for one in there.values():
            one.close()


def ask(job: str, *, index: int, address: tuple[str, int], seconds: float, is_stopped: Callable[[], bool]) -> str:
    """Another pod's part: get the name of the start from the first pod.

    Args:
        job: the Job's name.
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
            first.sendall(f"{job} {index}\n".encode())
            first.setblocking(False)
            line = b""
            while not line.endswith(b"\n"):
                _check(is_stopped, deadline, lambda: f"pod 0 waits for others, after {seconds:.0f} s")
                if select.select([first], [], [], _LOOK_SECONDS)[0]:
                    more = first.recv(_LONGEST_LINE)
                    if not more:
                        break
                    line += more
            start = line.decode(errors="replace").strip()
            if line.endswith(b"\n") and start.startswith(f"{job}-"):
                return start
        time.sleep(_LOOK_SECONDS)


def _check(is_stopped: Callable[[], bool], deadline: float, what: Callable[[], str]) -> None:
    if is_stopped():
        raise StoppedError
    if time.monotonic() >= deadline:
        raise MissingError(what())


def _missing(there: dict[int, socket.socket], num_pods: int, seconds: float) -> str:
    numbers = [str(number) for number in range(1, num_pods) if number not in there]
    return f"pod {', '.join(numbers)} of {num_pods} did not come within {seconds:.0f} s"


def _let_in(server: socket.socket, there: dict[int, socket.socket], job: str, num_pods: int) -> None:
    """Accept a pod that belongs to the job; a pod that connects again replaces its earlier connection."""
    one, _ = server.accept()
    try:
        one.settimeout(_ANSWER_SECONDS)
        name, _, number = one.makefile("rb").readline(_LONGEST_LINE).decode(errors="replace").partition(" ")
        if name != job or not number.strip().isdecimal() or not 0 < int(number) < num_pods:
            raise ValueError(name)
    except (OSError, ValueError):
        one.close()
        return
    if int(number) in there:
        there[int(number)].close()
    there[int(number)] = one


def _has_left(one: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        return bool(select.select([one], [], [], 0)[0]) and not one.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
