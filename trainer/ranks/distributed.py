"""The ranks of a run and the small messages between them.

The model's tensors are sent by DeepSpeed, over NCCL if there are GPUs. Flags, counts and short objects are sent over
gloo in a group of their own, so that they never wait for the GPU or mix with its collectives.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import psutil
import torch
import torch.distributed as dist
from torch.distributed import FileStore, HashStore, PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from configs import UserError
from configs.process import flight_recorder
from configs.process.environment import PRIVATE, is_one_node, read_environment
from trainer.ranks.device import backend, choose_device, compare, describe, time_out
from trainer.ranks.messages import Messages, Sums, from_first, gathered
from trainer.runs.failure import TrainingError

T = TypeVar("T")
_LOOK_SECONDS = 0.02
_REACH_SECONDS = 15.0


class World:
    """This process among the ranks. With a single rank, every method works without sending anything."""

    def __init__(
        self,
        *,
        timeout_minutes: float,
        control_minutes: float | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Join the other ranks, as the environment set by torchrun says; without it, be a single rank.

        Args:
            timeout_minutes: a collective that takes longer is an error.
            control_minutes: the same for messages by which ranks agree on something, which also wait while another rank
                saves or evaluates; by default `timeout_minutes`.
            waiting: entered while this rank waits for the others, so that the watchdog can tell waiting ranks from
                stuck ones.

        Raises:
            UserError: RANK, WORLD_SIZE and LOCAL_RANK contradict each other, the ranks' devices differ, or torch has
                no code for this rank's card.
        """
        self.rank, self.size, self.local_rank = read_environment(os.environ)
        if torch.cuda.is_available():
            if self.local_rank >= torch.cuda.device_count():
                raise UserError(
                    f"LOCAL_RANK: {self.local_rank} with {torch.cuda.device_count()} GPUs on this machine; "
                    "start one rank per GPU, or set CUDA_VISIBLE_DEVICES= in the environment to train on the CPU"
                )
            torch.cuda.set_device(self.local_rank)
        self.device = choose_device(self.local_rank)
        timeout = timedelta(minutes=timeout_minutes)
        if self.size == 1:  # DeepSpeed needs a process group even so; no port is opened for it
            self._store: Store = HashStore()
        else:
            shared = _shared_store(os.environ, timeout)
            with waiting():
                self._store = PrefixStore(agree_on_start(shared, self.rank, self.size, timeout), shared)
        with waiting():
            own = describe(self.device)
            if not is_one_node(os.environ):
                own = replace(own, unreached=find_unreached(self._store, self.rank, self.size, os.environ))
            compare(self._store, own, self.rank, self.size)
        is_nccl = backend(self.device) == "nccl"
        if is_nccl:
            flight_recorder.switch_on(os.environ)
        dist.init_process_group(
            backend(self.device),
            device_id=self.device if is_nccl and self.size > 1 else None,  # NCCL then connects here, or hangs here
            rank=self.rank,
            world_size=self.size,
            store=PrefixStore("default", self._store),
            timeout=time_out(self.device, timeout_minutes),
        )
        self._control = dist.new_group(backend="gloo", timeout=timedelta(minutes=control_minutes or timeout_minutes))
        self._waiting = waiting
        self._num_meetings = 0
        self._messages: Messages | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which does everything that is done once."""
        return self.rank == 0

    def sum(self, numbers: Sequence[int]) -> list[int]:
        """Elementwise sums over the ranks; 64-bit, wrapping."""
        total = torch.tensor(list(numbers), dtype=torch.int64)
        with self._waiting():
            dist.all_reduce(total, group=self._control)
        return [int(n) for n in total.tolist()]

    def sum_floats(self, numbers: Sequence[float]) -> list[float]:
        """Elementwise sums over the ranks, in fp64."""
        total = torch.tensor(list(numbers), dtype=torch.float64)
        with self._waiting():
            dist.all_reduce(total, group=self._control)
        return [float(n) for n in total.tolist()]

    def begin_sums(
        self, integers: Sequence[int], floats: Sequence[float]
    ) -> Callable[[], tuple[list[int], list[float]]]:
        """Begin sums over the ranks, of wrapping 64-bit integers and in fp64; all ranks begin them in the same order.

        Returns:
            A function that waits for the sums: bitwise the same on all ranks, and in every run with as many ranks.
        """
        if self.size == 1:
            return lambda: (list(integers), list(floats))
        if self._messages is None:
            places = self.gather((socket.gethostname(), os.environ.get("GROUP_RANK")))
            self._messages = Messages(self._control, self.rank, [places.index(place) for place in places])
        done = self._messages.begin(integers, floats)

        def wait() -> Sums:
            with self._waiting():
                return done()

        return wait

    def all_succeeded(self, succeeded: bool) -> bool:
        """Whether the argument is true on every rank."""
        return self.sum([int(not succeeded)]) == [0]

    def gather(self, item: Any, *kinds: type) -> list[Any]:
        """All ranks' items in rank order, on every rank.

        Args:
            item: see `trainer.ranks.messages.packed`.
            kinds: dataclasses that may be in it.
        """
        if self.size == 1:
            return [item]
        with self._waiting():
            return gathered(item, *kinds, group=self._control)

    def from_main(self, item: Any, *kinds: type) -> Any:
        """Rank 0's item, on every rank; for the arguments see `gather`."""
        if self.size == 1:
            return item
        with self._waiting():
            return from_first(item, *kinds, group=self._control)

    def on_main(self, action: Callable[[], T], *kinds: type) -> T:
        """Run an action on rank 0 alone, and return its result on every rank; for `kinds` see `gather`.

        Raises:
            UserError: if the action raised it, on every rank.
        """
        outcome: tuple[T | None, UserError | None] = None, None
        if self.is_main:
            try:
                outcome = action(), None
            except UserError as error:
                outcome = None, error
        value, problem = self.from_main(outcome, *kinds)
        if problem is not None:
            raise problem
        return cast("T", value)

    def barrier(self) -> None:
        """Wait for every rank."""
        self.sum([0])

    def meets(self, seconds: float) -> bool:
        """Wait for every rank, but not for long; False if one did not come.

        This is for a rank that may have left the others waiting in a collective: on True it can tell them something, on
        False it should end. After a False the ranks must not communicate again.
        """
        # Through the store: a collective that is given up keeps a thread, and so the process, until its own time-out
        # (torch 2.13; on ranks other than 0, monitored_barrier waits as long, whatever its time-out is).
        self._num_meetings += 1
        arrivals = [f"meeting {self._num_meetings}: rank {rank}" for rank in range(self.size)]
        try:
            with self._waiting():
                self._store.set(arrivals[self.rank], "here")
                self._store.wait(arrivals, timedelta(seconds=seconds))
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Leave the group. Must not be called after an error, since the other ranks may be gone."""
        if self._messages is not None:
            self._messages.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        if backend(self.device) == "nccl":
            flight_recorder.remove_pipe(os.environ, self.rank)


def _shared_store(environ: Mapping[str, str], timeout: timedelta) -> Store:
    """Where the ranks meet: on one machine a file that no other user reaches; else a TCP store, as torchrun says."""
    if is_one_node(environ) and (folder := environ.get(PRIVATE)):
        store: Store = FileStore(f"{folder}/store")
        store.set_timeout(timeout)
        return store
    tcp_store: Store = next(rendezvous("env://", timeout=timeout))[0]
    return tcp_store


def agree_on_start(store: Store, rank: int, size: int, timeout: timedelta) -> str:
    """A name that the ranks of this start alone have, for their keys in a store that may have those of dead ranks.

    torchrun's store outlives its ranks, who would find the addresses of dead ones there. Its agents count only failures
    of their own ranks, so its number of restarts is no such name. Here every rank leaves a mark of its own, and rank 0
    sends the name to the mark, until every rank has answered: a mark of a dead rank is replaced before.

    Args:
        store: shared by all ranks.
        rank: of this process.
        size: number of ranks.
        timeout: to wait.

    Raises:
        TrainingError: a rank did not come in time.
    """
    mine = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    store.set(f"mark of rank {rank}", mine)
    if rank:
        while (start := _read(store, f"start of {mine}")) is None:
            _wait_until(end, "rank 0")
        store.set(f"{start}: rank {rank}", mine)
        return start
    told: dict[int, str] = {}
    missing = list(range(1, size))
    while missing:
        for other in missing:
            mark = _read(store, f"mark of rank {other}")
            if mark is not None and told.get(other) != mark:
                store.set(f"start of {mark}", mine)
                told[other] = mark
        missing = [other for other in missing if _read(store, f"{mine}: rank {other}") is None]
        if missing:
            _wait_until(end, f"rank {', '.join(map(str, missing))}")
    return mine


def find_unreached(store: Store, rank: int, size: int, environ: Mapping[str, str]) -> str:
    """Why this rank does not reach its neighbours in the order of ranks; empty if it does.

    gloo opens a port for every group, and waits for half an hour where a firewall lets none of them through. So ranks
    first try ports of the same addresses.

    Args:
        store: shared by all ranks.
        rank: of this process.
        size: number of ranks.
        environ: of this process.
    """
    mark = uuid.uuid4().hex
    with _open_port(environ) as server:
        threading.Thread(target=_greet, args=(server, mark), daemon=True).start()
        store.set(f"address of rank {rank}", json.dumps([socket.gethostname(), *server.getsockname()[:2], mark]))
        problem = ""
        for other in sorted({(rank - 1) % size, (rank + 1) % size} - {rank}):
            host, address, port, wanted = json.loads(store.get(f"address of rank {other}"))
            try:
                with socket.create_connection((address, port), timeout=_REACH_SECONDS) as connection:
                    why = "" if connection.recv(len(mark)) == wanted.encode() else "another program answered"
            except OSError as error:
                why = error.strerror or str(error)
            if why and not problem:
                problem = (
                    f"network: rank {rank} on {socket.gethostname()} does not reach rank {other} on {host} at "
                    f"{address}:{port}: {why}; ranks talk at any TCP port: let the firewall pass them all between the "
                    "machines, and name the network between these: --interface NAME, or GLOO_SOCKET_IFNAME"
                )
        store.set(f"tried by rank {rank}", "")
        store.wait([f"tried by rank {other}" for other in range(size)])
        server.shutdown(socket.SHUT_RDWR)  # which ends the thread's waiting; closing alone does not
    return problem


def _open_port(environ: Mapping[str, str]) -> socket.socket:
    """A socket that listens at the address that gloo takes, any port: of its interface, or of this machine's name."""
    name = environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    addresses: list[tuple[int, str]] = []
    if name:
        addresses = [(int(one.family), one.address) for one in psutil.net_if_addrs().get(name, [])]
    else:
        with contextlib.suppress(OSError):
            infos = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
            addresses = [(int(info[0]), str(info[4][0])) for info in infos]
    for family, address in addresses:
        if family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                return socket.create_server((address, 0), family=family)
    return socket.create_server(("127.0.0.1", 0))


def _greet(server: socket.socket, mark: str) -> None:
    """Tell who connects that it is this rank, until the socket is closed."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):  # who hangs up keeps nobody else from being answered
                connection.sendall(mark.encode())


def _read(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def _wait_until(end: float, whom: str) -> None:
    if time.monotonic() >= end:
        raise TrainingError(
            f"{whom} did not come within engine.communication_timeout_minutes; the logs of that rank and of its "
            "launcher say why"
        )
    time.sleep(_LOOK_SECONDS)
