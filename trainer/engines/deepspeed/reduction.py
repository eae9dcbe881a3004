"""Sums of gradients over the ranks at ZeRO stages 1 and 2: bucket by bucket, begun in the backward pass.

Each rank receives the sums of the partition that it updates, and sends half of what an all-reduce sends. A bucket is a
run of parameters that lie next to each other in DeepSpeed's flat groups. It is sent as soon as the backward pass has
the gradients of all its parameters, while the pass goes on; the device, not the host, waits for it before the norm.
The order of the buckets is fixed at the start: a bucket that is complete waits for those before it, and what the pass
leaves out (a parameter without a gradient counts as 0) follows after it. So ranks with other gradients, or without a
micro-batch, send the same buckets in the same order.
"""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from deepspeed import comm
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.zero.stage_1_and_2 import GradPartitionBufferGroup
from torch import Tensor, nn

from trainer.engines.deepspeed.steps import GradientSum, Patch

ON_THE_WAY = 2
"""Buckets with memory of their own that are sent at a time."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Bucket:
    """A run of parameters in a flat group."""

    group: int
    parameters: list[nn.Parameter]
    begin: int
    """The place of its first element in the group."""
    parts: list[int]
    """How many of its elements are in the partition of each rank."""

    @property
    def end(self) -> int:
        """The place behind its last element."""
        return self.begin + sum(self.parts)


def buckets_of(
    groups: Sequence[Sequence[nn.Parameter]],
    partitions: Sequence[int],
    places: Mapping[nn.Parameter, int],
    *,
    num_ranks: int,
    most_elements: int,
) -> list[Bucket]:
    """Divide groups into buckets, in the order in which a backward pass completes them.

    Args:
        groups: the parameters of each flat group, as they lie in it.
        partitions: how many elements of each group a rank has.
        places: each parameter's place in the model's order.
        num_ranks: that have a partition.
        most_elements: of a bucket of several parameters.
    """
    buckets: list[Bucket] = []
    for number, (group, partition) in enumerate(zip(groups, partitions, strict=True)):
        ends = list(itertools.accumulate(p.numel() for p in group))
        last = len(group)
        while last:
            first = last - 1
            while first and ends[last - 1] - (ends[first - 2] if first > 1 else 0) <= most_elements:
                first -= 1
            begin = ends[first - 1] if first else 0
            cuts = [min(max(rank * partition, begin), ends[last - 1]) for rank in range(num_ranks + 1)]
            parts = [end - start for start, end in itertools.pairwise(cuts)]
            buckets.append(Bucket(group=number, parameters=list(group[first:last]), begin=begin, parts=parts))
            last = first
    return sorted(buckets, key=lambda bucket: -min(places[p] for p in bucket.parameters))


class Reduction:
    """Sends the gradients of an update's last micro-batch, or of each, to the ranks that own them.

    Call `begin`, run a pass forward and backward, call `end`; after the last micro-batch call `take`.
    """

    def __init__(
        self,
        buckets: Sequence[Bucket],
        group: Any,
        *,
        each: bool,
        partitions: Sequence[int],
        flats: Sequence[Tensor] = (),
    ) -> None:
        """Put hooks on the parameters.

        Args:
            buckets: in the order in which they are to be sent.
            group: the process group of the ranks.
            each: whether every micro-batch is reduced, and not only an update's last.
            partitions: how many elements of each flat group a rank has.
            flats: an fp32 tensor for each group, all 0, in which gradients of half precision are summed in place.
                Without them autograd sums gradients, and a rank has new sums of its own partition alone.
        """
        self._buckets, self._group, self._each = list(buckets), group, each
        self._size, self._rank = comm.get_world_size(group), comm.get_rank(group)
        self._partitions = list(partitions)
        device = self._buckets[0].parameters[0].device
        # in place of a part that has no element: whether NCCL sums none is not documented
        self._nothing = torch.zeros(1, device=device)
        self._flats = [flats[bucket.group][bucket.begin : bucket.end] for bucket in self._buckets] if flats else []
        self._in_place = [
            GradientSum(bucket.parameters, flat, factor=1 / self._size)
            for bucket, flat in zip(self._buckets, self._flats, strict=False)
        ]
        self._sums: list[Tensor] = []
        self._is_open, self._is_first = False, True
        self._next = 0
        self._missing = [0] * len(self._buckets)
        self._sent: deque[_Sent] = deque()
        self._hooks = [
            _hooked(parameter, lambda _, number=number: self._count(number))
            for number, bucket in enumerate(self._buckets)
            for parameter in bucket.parameters
        ]

    def begin(self, *, is_last: bool) -> None:
        """Begin a micro-batch."""
        self._is_open = is_last or self._each
        self._next = 0
        self._missing = [len(bucket.parameters) for bucket in self._buckets]

    @torch.no_grad()
    def end(self) -> None:
        """Send what the backward pass has left out; between reductions, add gradients to the sums in place."""
        if not self._is_open:
            for one in self._in_place:
                one.add()
            return
        while self._next < len(self._buckets):
            self._send()
        self._is_open = self._is_first = False
        assert all(p.grad is None for bucket in self._buckets for p in bucket.parameters), "a gradient came too late"

    @torch.no_grad()
    def take(self) -> list[Tensor]:
        """Let the device wait for all that is on its way; the averages of this rank's partition of each group, in fp32.

        None with `flats`, where they lie in place. The step may change them: the next update begins others.
        """
        self._receive(len(self._sent))
        sums, self._sums, self._is_first = [] if self._in_place else self._begun(), [], True
        return sums

    def close(self) -> None:
        """Remove the hooks, which hold the sums."""
        for hook in self._hooks:
            hook.remove()

    @torch.no_grad()
    def _count(self, number: int) -> None:
        """Note that a parameter of a bucket has its gradient, and send what has become complete."""
        if not self._is_open:
            return
        self._missing[number] -= 1
        while self._next < len(self._buckets) and not self._missing[self._next]:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[self._next]
        if self._in_place:
            self._in_place[self._next].add()
            flat = self._flats[self._next]
        else:
            self._receive(len(self._sent) - ON_THE_WAY + 1)
            flat = _concatenated(bucket.parameters)
        self._next += 1
        pieces = iter(torch.split(flat, [size for size in bucket.parts if size]))
        parts = [next(pieces) if size else self._nothing for size in bucket.parts]
        own, work = parts[self._rank], None
        if self._size > 1:
            work = comm.reduce_scatter(own, parts, group=self._group, async_op=True)
        self._sent.append(_Sent(work=work, bucket=bucket, flat=flat, own=own, is_first=self._is_first))

    def _receive(self, number: int) -> None:
        """Let the device wait for so many buckets, and add what this rank owns of them to its sums."""
        places, parts = [], []
        for _ in range(number):
            sent = self._sent.popleft()
            if sent.work is not None:
                sent.work.wait()
            if self._in_place or not sent.bucket.parts[self._rank]:
                continue
            place = self._place(sent.bucket)
            if sent.is_first:
                torch.mul(sent.own, 1 / self._size, out=place)
            else:
                places.append(place)
                parts.append(sent.own)
        if places:
            torch._foreach_add_(places, parts, alpha=1 / self._size)

    def _place(self, bucket: Bucket) -> Tensor:
        """Where the sums have what this rank owns of a bucket."""
        begin = max(bucket.begin - self._rank * self._partitions[bucket.group], 0)
        return self._begun()[bucket.group][begin : begin + bucket.parts[self._rank]]

    def _begun(self) -> list[Tensor]:
        """The sums of this update, of which every bucket's first one writes a part."""
        if not self._sums:
            self._sums = [self._nothing.new_empty(partition) for partition in self._partitions]
            for number, (sums, partition) in enumerate(zip(self._sums, self._partitions, strict=True)):
                end = max((bucket.end for bucket in self._buckets if bucket.group == number), default=0)
                filling = sums[max(end - self._rank * partition, 0) :]
                if filling.numel():
                    filling.zero_()
        return self._sums


@dataclass(kw_only=True, slots=True, frozen=True)
class _Sent:
    """A bucket on its way."""

    work: Any
    """To wait for; None on one rank."""
    bucket: Bucket
    flat: Tensor
    """All of it."""
    own: Tensor
    """The part of this rank."""
    is_first: bool
    """Whether it is of the first micro-batch of the update that is reduced."""


def _hooked(parameter: Any, hook: Callable[..., None]) -> Any:
    return parameter.register_post_accumulate_grad_hook(hook)


def _concatenated(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradients in fp32, (elements), which the parameters then have no more."""
    pieces = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in parameters]
    for p in parameters:
        p.grad = None
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).to(torch.float32)


def reduce_in_backward(engine: Any, *, most_elements: int) -> Reduction:
    """Make stages 1 and 2 reduce gradients by a `Reduction`, in place of DeepSpeed's own.

    Args:
        engine: DeepSpeed's, without offload.
        most_elements: of a bucket of several parameters.
    """
    optimizer = engine.optimizer
    engine.enable_backward_allreduce = False
    places = {parameter: place for place, parameter in enumerate(engine.module.parameters())}
    num_ranks = comm.get_world_size(optimizer.dp_process_group)
    flats: list[Tensor] = []
    if isinstance(optimizer, BF16_Optimizer):
        groups, flats = optimizer.bf16_groups, optimizer.fp32_groups_gradients_flat
        partitions = [flat.numel() // num_ranks for flat in flats]
        optimizer.update_hp_grads = lambda *_, **__: None
    else:
        groups, partitions = optimizer.bit16_groups, optimizer.partition_size
        for hook in optimizer._grad_acc_hooks:
            hook.remove()
        optimizer._grad_acc_hooks.clear()
    buckets = buckets_of(groups, partitions, places, num_ranks=num_ranks, most_elements=most_elements)
    each = engine.zero_optimization_stage() == 2
    return Reduction(buckets, optimizer.dp_process_group, each=each, partitions=partitions, flats=flats)


def give_partitions(optimizer: Any, sums: Sequence[Tensor]) -> None:
    """Let a DeepSpeedZeroOptimizer step on these averages of its partitions."""
    for number, flat in enumerate(sums):
        optimizer.averaged_gradients[number] = GradPartitionBufferGroup([flat], flat)


REDUCE_IN_BACKWARD = Patch(
    target="hooks of DeepSpeedZeroOptimizer, BF16_Optimizer.update_hp_grads, DeepSpeedEngine.enable_backward_allreduce",
    versions="deepspeed 0.19",
    reason="every rank receives the sums of all partitions, after the backward pass",
    apply=reduce_in_backward,
)
PATCHES = (REDUCE_IN_BACKWARD,)
