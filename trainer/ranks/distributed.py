"""The ranks of a run and the small messages between them.

The model's tensors are sent by DeepSpeed, over NCCL if there are GPUs. Flags, counts and short objects are sent over
gloo in a group of their own, so that they never wait for the GPU or mix with its collectives. Objects go as JSON:
torch's object collectives (`all_gather_object` and the like) unpickle what arrives, so who reaches a rank's port could
run code there; nothing else in the tree may use them (a test sees to it).
"""

import json
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from operator import methodcaller
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python
from torch.distributed import FileStore, HashStore, PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from configs import UserError
from configs.process.environment import PRIVATE, check_process
from trainer.ranks.device import backend, choose_device, platform
from trainer.runs.failure import TrainingError
from trainer.runs.run_lock import RunLockedError

T = TypeVar("T")
Sums = tuple[list[int], list[float]]
_WHOLE = re.compile(r"[0-9]{1,9}")
_COME_MINUTES = 10.0
"""For which ranks wait for one that is not there at the start; slow file systems take minutes for its imports."""


class World:
    """This process among the ranks. With a single rank, every method works without sending anything."""

    def __init__(self, *, timeout_minutes: float, control_minutes: float | None = None) -> None:
        """Join the other ranks, as the environment set by torchrun says; without it, be a single rank.

        Args:
            timeout_minutes: a collective that takes longer is an error.
            control_minutes: the same for messages by which ranks agree on something, which also wait while another rank
                saves or evaluates; by default `timeout_minutes`.

        Raises:
            UserError: RANK, WORLD_SIZE and LOCAL_RANK contradict each other, or the ranks' devices differ.
            TrainingError: a rank did not come, or is not reached.
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
        self._num_meetings = 0
        try:
            self._store = _shared_store(os.environ, self.size)
            self._meet_at_first()
            is_nccl = backend(self.device) == "nccl"
            dist.init_process_group(
                backend(self.device),
                device_id=self.device if is_nccl and self.size > 1 else None,  # NCCL then connects here, or hangs here
                rank=self.rank,
                world_size=self.size,
                store=PrefixStore("default", self._store),
                timeout=timedelta(minutes=timeout_minutes),
            )
            minutes = control_minutes or timeout_minutes
            self._control = dist.new_group(backend="gloo", timeout=timedelta(minutes=minutes))
        except RuntimeError as error:
            raise TrainingError(
                f"network: the ranks do not reach one another ({' '.join(str(error).split())[:300]}); they talk at any "
                "TCP port: let the firewall pass them all between the machines, and name the network between these: "
                "--interface NAME, or GLOO_SOCKET_IFNAME"
            ) from error

    def _meet_at_first(self) -> None:
        """Wait for all ranks, and see that all compute with the same, or they would wait for one another."""
        own = platform(self.device)
        self._store.add(own, 1)
        if missing := self._missing("start", 60 * _COME_MINUTES):
            raise TrainingError(
                f"rank {', '.join(map(str, missing))} of {self.size} did not come within {_COME_MINUTES:g} minutes; "
                "its log, and its launcher's, say why"
            )
        if (num := self._store.add(own, 0)) < self.size:
            raise UserError(
                f"engine.device: rank {self.rank} on {socket.gethostname()} computes with {own}, {num} of {self.size} "
                "ranks do; see that every node shows its GPUs and has the same torch, or set engine.device=cpu"
            )

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which does everything that is done once."""
        return self.rank == 0

    def begin_sums(self, integers: Sequence[int], floats: Sequence[float]) -> Callable[[], Sums]:
        """Begin sums over the ranks, of wrapping 64-bit integers and in fp64; all ranks begin them in the same order.

        Returns:
            A function that waits for the sums: bitwise the same on all ranks, and in every run with as many ranks.
        """
        sums = torch.tensor(integers, dtype=torch.int64), torch.tensor(floats, dtype=torch.float64)
        works = [dist.all_reduce(one, group=self._control, async_op=True) for one in sums if len(one)]

        def wait() -> Sums:
            for work in works:
                work.wait()
            return sums[0].tolist(), sums[1].tolist()

        return wait

    def sum(self, numbers: Sequence[int]) -> list[int]:
        """Elementwise sums over the ranks; 64-bit, wrapping."""
        return self.begin_sums(numbers, [])()[0]

    def barrier(self) -> None:
        """Wait for every rank."""
        self.sum([0])

    def gather(self, item: Any, kind: Any = Any) -> list[Any]:
        """All ranks' items in rank order, on every rank.

        Args:
            item: that JSON can hold: of this rank alone it comes as it is, of several tuples come as lists.
            kind: its type, where it is to be more, such as a dataclass.

        Raises:
            ValueError: a rank sent something else.
        """
        if self.size == 1:
            return [item]
        mine = packed(item)
        lengths = self.sum([len(mine) if rank == self.rank else 0 for rank in range(self.size)])
        parts = list(torch.empty(self.size, max(lengths), dtype=torch.uint8))
        dist.all_gather(parts, _tensor(mine.ljust(max(lengths))), group=self._control)
        return [unpacked(part.numpy().tobytes(), kind) for part in parts]

    def from_main(self, item: Any, kind: Any = Any) -> Any:
        """Rank 0's item, on every rank; see `gather`."""
        if self.size == 1:
            return item
        mine = packed(item) if self.is_main else b""
        [length] = self.sum([len(mine)])
        content = _tensor(mine) if self.is_main else torch.empty(length, dtype=torch.uint8)
        dist.broadcast(content, 0, group=self._control)
        return item if self.is_main else unpacked(content.numpy().tobytes(), kind)

    def on_main(self, action: Callable[[], T], kind: Any = Any) -> T:
        """Run an action on rank 0 alone, and return its result on every rank; for `kind` see `gather`.

        Raises:
            UserError: if the action raised it, on every rank; there it is one, of whatever kind, but for the lock's.
        """
        value, problem = None, None
        if self.is_main:
            try:
                value = action()
            except UserError as error:
                problem = error
        told = None if problem is None else [str(problem), isinstance(problem, RunLockedError)]
        value, told = self.from_main((value, told), tuple[kind | None, Any])
        if told is not None:
            raise problem or (RunLockedError if told[1] else UserError)(told[0])
        return cast("T", value)

    def meets(self, what: str, seconds: float) -> bool:
        """Wait for every rank to come to a meeting of this name, but not for long; False if one did not come.

        This is for a rank that may have left the others waiting in a collective: on True it can tell them something, on
        False it must end.
        """
        # Through the store: a collective that is given up keeps a thread, and so the process, until its own time-out
        # (torch 2.13; on ranks other than 0, monitored_barrier waits as long, whatever its time-out is).
        self._num_meetings += 1
        try:
            return not self._missing(f"{what} {self._num_meetings}", seconds)
        except RuntimeError:  # the store ended with its rank
            return False

    def _missing(self, what: str, seconds: float) -> list[int]:
        """The ranks that have not come here within so long."""
        keys = [f"{what} of rank {rank}" for rank in range(self.size)]
        self._store.set(keys[self.rank], "here")
        try:
            self._store.wait(keys, timedelta(seconds=seconds))
        except RuntimeError:
            return [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        return []

    def close(self) -> None:
        """Leave the group. Must not be called after an error, since the other ranks may be gone."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _shared_store(environ: Mapping[str, str], size: int) -> Store:
    """Where the ranks meet: on one machine a file that no other user reaches; else a TCP store, as torchrun says."""
    if size == 1:  # DeepSpeed needs a process group even so; no port is opened for it
        return HashStore()
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise UserError(
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE: not set with torchrun's --max-restarts, whose ranks would find what "
            "those before them left; set it to 1"
        )
    timeout = timedelta(minutes=_COME_MINUTES)
    if is_one_node(environ) and (folder := environ.get(PRIVATE)):
        store: Store = FileStore(f"{folder}/store")
        store.set_timeout(timeout)
        return store
    tcp_store: Store = next(rendezvous("env://", timeout=timeout))[0]
    return tcp_store


def packed(item: Any) -> bytes:
    """An object as JSON."""
    return json.dumps(to_jsonable_python(item, fallback=methodcaller("item"))).encode()  # numpy's numbers


def unpacked(content: bytes, kind: Any = Any) -> Any:
    """The object that `packed` was given, checked to be of a kind; the content may be a stranger's.

    Raises:
        ValueError: it is not.
    """
    return json.loads(content) if kind is Any else TypeAdapter(kind).validate_json(content)


def is_one_node(environment: Mapping[str, str]) -> bool:
    """Whether all ranks are on this machine, as torchrun says; a process without it is alone."""
    return environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE")


def read_environment(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """(rank, world size, local rank) from RANK, WORLD_SIZE and LOCAL_RANK; (0, 1, 0) if none is set.

    Raises:
        UserError: they are incomplete, not numbers, or contradict each other.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = {name: environment[name] for name in names if name in environment}
    if not given:
        return 0, 1, 0
    for name in names:
        if not _WHOLE.fullmatch(given.get(name, "")):
            raise UserError(f"{name}: {given.get(name, '')!r}; allowed is a whole number in each of {', '.join(names)}")
    rank, size, local_rank = (int(given[name]) for name in names)
    if size < 1 or rank >= size:
        raise UserError(f"RANK: {rank} with WORLD_SIZE={size}; allowed is 0 to WORLD_SIZE - 1")
    if local_rank > rank:
        raise UserError(f"LOCAL_RANK: {local_rank} with RANK={rank}; allowed is at most RANK")
    return rank, size, local_rank


def check_rank(environment: Mapping[str, str]) -> None:
    """Refuse variables that would make a rank fail when it joins the others.

    Raises:
        UserError: naming the variable, its value and what is allowed.
    """
    _, size, _ = read_environment(environment)
    if size > 1 and not (is_one_node(environment) and environment.get(PRIVATE)):
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not environment.get(name):
                raise UserError(f"{name}: not set with WORLD_SIZE={size}; start with torchrun, which sets it")
    check_process(environment)
