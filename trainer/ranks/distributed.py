"""The ranks of a run and the small messages between them.

The model's tensors are sent by DeepSpeed, over NCCL if there are GPUs. Flags, counts and short objects are sent over
gloo in a group of their own, so that they never wait for the GPU or mix with its collectives.
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
from trainer.ranks.device import backend, choose_device, compare, describe, time_out
from trainer.ranks.messages import Messages, Sums
from trainer.runs.process import flight_recorder
from trainer.runs.process.environment import read_environment

T = TypeVar("T")


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
            store, _, _ = next(rendezvous("env://", timeout=timeout))
            self._store = PrefixStore(_attempt(os.environ), store)
        with waiting():
            compare(self._store, describe(self.device), self.rank, self.size)
        if backend(self.device) == "nccl":
            flight_recorder.switch_on(os.environ)
        prefixed = PrefixStore("default", self._store)
        dist.init_process_group(
            backend(self.device),
            rank=self.rank,
            world_size=self.size,
            store=prefixed,
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
            nodes = [places.index(place) for place in places]
            self._messages = Messages(self._control, self.rank, nodes)
        done = self._messages.begin(integers, floats)

        def wait() -> Sums:
            with self._waiting():
                return done()

        return wait

    def all_succeeded(self, succeeded: bool) -> bool:
        """Whether the argument is true on every rank."""
        return self.sum([int(not succeeded)]) == [0]

    def gather(self, item: Any) -> list[Any]:
        """All ranks' items in rank order, on every rank. Items are trusted: they come from this run's own processes."""
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
        """Run an action on rank 0 alone, and return its result on every rank.

        Raises:
            UserError: if the action raised it, on every rank.
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


def _attempt(environ: Mapping[str, str]) -> str:
    """A prefix for keys in the store, which survives a restart of the ranks by torchrun.

    Without it they would read addresses of dead ranks as their own. With several nodes the prefix is constant: agents
    count only failures of their own ranks, so the ranks of one attempt may get different numbers.
    """
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE")
    return f"attempt {environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if is_one_node else "attempt"
