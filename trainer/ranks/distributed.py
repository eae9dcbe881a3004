"""The ranks of a run and the small messages between them.

Tensors of the model travel through DeepSpeed, over NCCL where there are GPUs. Flags, counts and short objects travel
over gloo in a group of their own, so that they never wait for the GPU nor mix with its collectives.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from configs import UserError
from trainer.ranks.device import backend, choose_device, compare, describe
from trainer.ranks.messages import Messages, Sums
from trainer.runs.process import flight_recorder
from trainer.runs.process.environment import read_environment

T = TypeVar("T")


class World:
    """This process among the ranks. With one rank every method does what it says without sending anything."""

    def __init__(
        self, *, timeout_minutes: float, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Join the other ranks as the environment that torchrun sets says; without one, be alone.

        Args:
            timeout_minutes: after which a message that does not come is an error.
            waiting: entered while this rank waits for the others, so that a watchdog knows who keeps whom waiting.

        Raises:
            UserError: RANK, WORLD_SIZE and LOCAL_RANK contradict each other, or the ranks' devices differ.
        """
        self.rank, self.size, self.local_rank = read_environment(os.environ)
        if torch.cuda.is_available():
            if self.local_rank >= torch.cuda.device_count():
                raise UserError(
                    f"LOCAL_RANK: {self.local_rank} with {torch.cuda.device_count()} GPUs on this machine; "
                    "allowed is a GPU for each rank, or CUDA_VISIBLE_DEVICES= in the environment to train on the CPU"
                )
            torch.cuda.set_device(self.local_rank)
        self.device = choose_device(self.local_rank)
        timeout = timedelta(minutes=timeout_minutes)
        if self.size == 1:  # DeepSpeed wants a process group all the same; no port is opened for it
            self._store: Store = HashStore()
        else:
            store, _, _ = next(rendezvous("env://", timeout=timeout))
            self._store = PrefixStore(_attempt(os.environ), store)
        with waiting():
            compare(self._store, describe(self.device), self.rank, self.size)
        if backend(self.device) == "nccl":
            flight_recorder.switch_on(os.environ)
        prefixed = PrefixStore("default", self._store)
        dist.init_process_group(
            backend(self.device), rank=self.rank, world_size=self.size, store=prefixed, timeout=timeout
        )
        self._control = dist.new_group(backend="gloo", timeout=timeout)
        self._waiting = waiting
        self._num_meetings = 0
        self._messages: Messages | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    def sum(self, numbers: Sequence[int]) -> list[int]:
        """Sums over the ranks, number by number; 64-bit, wrapping."""
        total = torch.tensor(list(numbers), dtype=torch.int64)
        with self._waiting():
            dist.all_reduce(total, group=self._control)
        return [int(n) for n in total.tolist()]

    def sum_floats(self, numbers: Sequence[float]) -> list[float]:
        """Sums over the ranks in fp64."""
        total = torch.tensor(list(numbers), dtype=torch.float64)
        with self._waiting():
            dist.all_reduce(total, group=self._control)
        return [float(n) for n in total.tolist()]

    def begin_sums(
        self, integers: Sequence[int], floats: Sequence[float]
    ) -> Callable[[], tuple[list[int], list[float]]]:
        """Begin sums over the ranks, of 64-bit integers that wrap and in fp64; all ranks begin the same in one order.

        Returns:
            What waits for the sums and gives them: to the bit the same on all ranks, and in every run on as many.
        """
        if self.size == 1:
            return lambda: (list(integers), list(floats))
        if self._messages is None:
            places = self.gather((socket.gethostname(), os.environ.get("GROUP_RANK")))
            nodes = [places.index(place) for place in places]
            self._messages = Messages(self._control, self.rank, nodes)
        done = self._messages.begin(integers, floats)

        def wait() -> Sums:
            with self._waiting():
                return done()

        return wait

    def all_succeeded(self, succeeded: bool) -> bool:
        """Whether every rank says so."""
        return self.sum([int(not succeeded)]) == [0]

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item, by rank, on every rank. Items are trusted: they come from this run's own processes."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(items, item, group=self._control)
        return items

    def from_main(self, item: Any) -> Any:
        """Rank 0's item, on every rank."""
        if self.size == 1:
            return item
        box = [item]
        with self._waiting():
            dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def on_main(self, action: Callable[[], T]) -> T:
        """Do something on rank 0 alone, for every rank.

        Raises:
            UserError: what the action raised, on every rank.
        """
        found: tuple[T | None, UserError | None] = None, None
        if self.is_main:
            try:
                found = action(), None
            except UserError as error:
                found = None, error
        value, problem = self.from_main(found)
        if problem is not None:
            raise problem
        return cast("T", value)

    def barrier(self) -> None:
        """Wait for every rank."""
        self.sum([0])

    def meets(self, seconds: float) -> bool:
        """Wait for every rank, but not for long; False where one did not come.

        For a rank that may have left the others alone in a collective: it can then tell them, or end. After a False
        the ranks have nothing more to say to each other.
        """
        # By the store: a collective that is given up keeps a thread, and the process with it, until its own time is up
        # (torch 2.13; on all ranks but 0 monitored_barrier waits as long, whatever time it is given).
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
        """Leave. Not after an error: the other ranks may no longer be there to leave with."""
        if self._messages is not None:
            self._messages.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def _attempt(environ: Mapping[str, str]) -> str:
    """A prefix for what ranks leave in the store, which outlives those that torchrun starts again.

    They would take addresses of ranks that are dead for those of their own. On several nodes it is always the same:
    agents count only the failures of their own ranks, so the ranks of one attempt may be given different numbers.
    """
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE")
    return f"attempt {environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if is_one_node else "attempt"
