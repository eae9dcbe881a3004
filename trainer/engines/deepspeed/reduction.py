"""Sums of gradients over the ranks at ZeRO stages 1 and 2: bucket by bucket, begun in the backward pass.

A bucket is a parameter group of DeepSpeed's; each rank updates an equal part: one collective gives every rank
the sums of its own part, and sends half of what an all-reduce sends. A bucket is sent as soon as the backward pass has
the gradients of all its parameters, while the pass continues; the device, not the host, waits for it before the norm.
The order of the buckets is fixed at the start: a bucket that is complete waits for those before it, and what the pass
leaves out (a parameter without a gradient counts as 0) follows after it. So ranks with other gradients, or without a
micro-batch, send the same buckets in the same order.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

ON_THE_WAY = 2
"""Buckets with memory of their own that are sent at a time."""
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""By torch's name for it, which is another one from 2.13 on."""


class Reduction:
    """Sends the gradients of an update's last micro-batch, or of each, to the ranks that own them.

    Call `begin`, run a pass forward and backward, call `end`; after the last micro-batch call `take`.
    """

    def __init__(
        self,
        buckets: Sequence[Sequence[Any]],
        parts: Sequence[int],
        places: Mapping[nn.Parameter, int],
        *,
        each: bool,
        in_place: bool,
    ) -> None:
        """Put hooks on the parameters.

        Args:
            buckets: the parameters of each, as they lie in it.
            parts: how many elements of each a rank owns; with padding at the end of the last rank's.
            places: each parameter's place in the model's order; a backward pass begins at the end.
            each: whether every micro-batch is reduced, and not only an update's last.
            in_place: whether gradients of half precision are summed in fp32 over micro-batches, and reduced there.
                Else autograd sums them, and a rank has sums of its own parts alone.
        """
        self._buckets, self._parts, self._each, self._in_place = list(buckets), list(parts), each, in_place
        self._order = sorted(range(len(buckets)), key=lambda number: -min(places[p] for p in buckets[number]))
        self._size, self._rank = dist.get_world_size(), dist.get_rank()
        sizes = [sum(p.numel() for p in bucket) for bucket in buckets]
        wholes = [part * self._size for part in parts]
        some = buckets[0][0]
        self._padding = some.new_zeros(max(whole - size for whole, size in zip(wholes, sizes, strict=True)))
        self._flats = [some.new_zeros(whole, dtype=torch.float32) for whole in wholes] if in_place else []
        self._sums: list[Tensor | None] = [None] * len(buckets)
        self._is_open, self._is_first = False, True
        self._next, self._missing = 0, [0] * len(buckets)
        self._sent: deque[tuple[Any, int, Tensor, Tensor]] = deque()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._count, number))
            for number, bucket in enumerate(buckets)
            for parameter in bucket
        ]

    def begin(self, *, is_last: bool) -> None:
        """Begin a micro-batch."""
        self._is_open = is_last or self._each
        self._next, self._missing = 0, [len(bucket) for bucket in self._buckets]

    @torch.no_grad()
    def end(self) -> None:
        """Send what the backward pass has left out; between reductions, add gradients to the sums in place."""
        if self._is_open:
            while self._next < len(self._order):
                self._send()
            assert all(p.grad is None for bucket in self._buckets for p in bucket), "a gradient came too late"
        elif self._in_place:
            for number in range(len(self._buckets)):
                self._add(number)
        self._is_open = self._is_first = False

    @torch.no_grad()
    def take(self) -> list[Tensor]:
        """Let the device wait for all that is on its way; the sums of this rank's part of each bucket, in fp32."""
        self._receive(len(self._sent))
        sums, self._sums, self._is_first = self._sums, [None] * len(self._buckets), True
        return [one for one in sums if one is not None]

    def close(self) -> None:
        """Remove the hooks, which hold the sums."""
        for hook in self._hooks:
            hook.remove()

    @torch.no_grad()
    def _count(self, number: int, _: nn.Parameter) -> None:
        """Note that a parameter of a bucket has its gradient, and send what has become complete."""
        self._missing[number] -= 1
        while self._is_open and self._next < len(self._order) and self._missing[self._order[self._next]] == 0:
            self._send()

    def _send(self) -> None:
        number = self._order[self._next]
        self._next += 1
        if self._in_place:
            self._add(number)
            flat = self._flats[number]
        else:
            self._receive(len(self._sent) - ON_THE_WAY + 1)
            pieces = self._pieces(number)
            flat = (torch.cat(pieces) if len(pieces) > 1 else pieces[0]).to(torch.float32)
        own, work, part = flat, None, self._parts[number]
        if self._size > 1:
            own = flat.narrow(0, self._rank * part, part) if self._in_place else flat.new_empty(part)
            work = _reduce_scatter(own, flat, async_op=True)
        self._sent.append((work, number, own, flat))

    def _receive(self, count: int) -> None:
        """Let the device wait for so many buckets, and add this rank's part of each to its sums."""
        for _ in range(count):
            work, number, own, _flat = self._sent.popleft()
            if work is not None:
                work.wait()
            if (sums := self._sums[number]) is None:
                self._sums[number] = own
            else:
                sums.add_(own)

    def _pieces(self, number: int) -> list[Tensor]:
        """A bucket's gradients and padding, each in a row, which the parameters then have no more."""
        bucket = self._buckets[number]
        pieces = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in bucket]
        if padding := self._parts[number] * self._size - sum(map(len, pieces)):
            pieces.append(self._padding[:padding])
        for p in bucket:
            p.grad = None
        return pieces

    def _add(self, number: int) -> None:
        """Add a bucket's gradients to its sums, or replace those of the last update."""
        pieces = self._pieces(number)
        if self._padding.device.type != "cpu":  # where a kernel takes longer to launch than to run
            pieces = [torch.cat(pieces)]
        for piece, place in zip(pieces, self._flats[number].split([*map(len, pieces)]), strict=True):
            if self._is_first:
                place.copy_(piece)
            else:
                place.add_(piece)
