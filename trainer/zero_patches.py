"""What is replaced in DeepSpeed (0.19.8), whose objects are given here, because it takes time that nobody asks for."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch._compile import _disable_dynamo

from trainer.shared_memory import SharedMemory

SMALL = 1 << 16
"""Bytes of an all-reduce that gloo does itself: one meeting in place of two."""


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Nobody starts torch's compiler in here, which takes a second or two: functions stay as they are."""
    compile_, disable = torch.compile, torch.compiler.disable
    torch.compile = lambda *_, **__: lambda function: function  # type: ignore[assignment]
    torch.compiler.disable = lambda function, *_, **__: function
    try:
        yield
    finally:
        torch.compile, torch.compiler.disable = compile_, disable


def show_to_compiler(kind: type) -> None:
    """Undo that methods of a class are hidden from torch's compiler: the first call of one would start it."""
    hidden = _disable_dynamo(lambda: None).__code__
    for name, method in list(vars(kind).items()):
        if getattr(method, "__code__", None) is hidden:
            setattr(kind, name, method.__wrapped__)


def gather_together(parameters: Sequence[Any]) -> None:
    """Have stage 3 gather in one collective the small parameters that it keeps whole between steps.

    After each step it asks the first one to gather them all, which takes a collective for each.

    Args:
        parameters: `persistent_parameters` of the engine's optimizer.
    """

    def all_gather(param_list: Sequence[Any] | None = None, **_: Any) -> None:
        missing = [p for p in param_list or parameters[:1] if p.ds_status.name == "NOT_AVAILABLE"]
        if missing:
            missing[0].all_gather_coalesced(missing).wait()

    if parameters:
        parameters[0].all_gather = all_gather


def step_on_full_gradients(optimizer: Any) -> None:
    """Have stage 0 in half precision step on gradients that are fp32 already, as they are.

    DeepSpeed reads them all for infinities, rounds them to half precision and back for their norm, scales each by
    itself and copies each weight by itself: a few hundred tensors an update. Here the norm is that of the gradients
    themselves, and it tells of infinities too.

    Args:
        optimizer: the engine's, an FP16_UnfusedOptimizer.
    """

    def step() -> bool:
        halves = [p for group in optimizer.fp16_groups for p in group]
        masters = [p for group in optimizer.fp32_groups for p in group]
        for half, master in zip(halves, masters, strict=True):
            master.grad = torch.zeros_like(master) if half.grad is None else half.grad.float()
        gradients = [master.grad for master in masters]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            return bool(optimizer._skip_invalid_grad_norm())
        optimizer.overflow, optimizer._global_grad_norm = False, norm
        optimizer._update_scale(False)
        divisor = optimizer.unscale_and_clip_grads(norm, apply_scale=False)
        if divisor != 1.0:
            torch._foreach_mul_(gradients, 1.0 / divisor)
        optimizer.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(halves, masters)
        for master in masters:
            master.grad = None
        return False

    optimizer.step = step


class Works:
    """Several collectives as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        """Until all are done."""
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        """Whether all are."""
        return all(work.is_completed() for work in self._works)


def gather_by_broadcasts(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Works | None:
    """`torch.distributed.all_gather_into_tensor` for gloo: every rank's part is broadcast into its place, all at once.

    gloo's own copies what it sends and what it receives: 15 MB of each of two ranks take it 33 to 45 ms, broadcasts 12.

    Args:
        output_tensor: of as many elements as all ranks' inputs, contiguous.
        input_tensor: this rank's; may lie in its place already.
        group: of ranks; None for all.
        async_op: return at once, with what is to be waited for.
    """
    group = group or distributed.group.WORLD
    parts = output_tensor.view(-1).chunk(distributed.get_world_size(group))
    own = parts[distributed.get_rank(group)]
    if own.data_ptr() != input_tensor.data_ptr():
        own.copy_(input_tensor.reshape(-1))
    ranks = distributed.get_process_group_ranks(group)
    works = Works(
        [
            distributed.broadcast(part, src=rank, group=group, async_op=True)
            for rank, part in zip(ranks, parts, strict=True)
        ]
    )
    if async_op:
        return works
    works.wait()
    return None


def use_shared_memory(backend: Any, memory: SharedMemory) -> None:
    """Have DeepSpeed's collectives of all ranks go through memory that they share, where they are sums or gathers.

    30 MB on two ranks of one thread: an all-reduce takes 8 ms in place of gloo's 25, a reduce-scatter 5 in place of
    34, a gather 7 in place of 13 by broadcasts.

    Args:
        backend: `deepspeed.comm.comm.cdb`, over gloo; it keeps what it had for other groups and operations.
        memory: of all ranks.
    """
    all_reduce_by_gloo, total = type(backend).all_reduce, distributed.ReduceOp.SUM

    def is_shared(group: Any, *tensors: Tensor) -> bool:
        return distributed.get_world_size(group) == memory.num_ranks and all(t.is_contiguous() for t in tensors)

    def done(async_op: bool) -> Works | None:
        return Works([]) if async_op else None

    def all_reduce(tensor: Tensor, op: Any = total, group: Any = None, async_op: bool = False) -> Any:
        op = backend._reduce_op(op)
        if op != total or tensor.nbytes <= SMALL or not is_shared(group, tensor):
            return all_reduce_by_gloo(backend, tensor, op, group, async_op)
        memory.all_reduce(tensor)
        return done(async_op)

    def reduce_scatter(output: Tensor, tensor: Tensor, op: Any, group: Any = None, async_op: bool = False) -> Any:
        if op != total or not is_shared(group, output, tensor):
            return distributed.reduce_scatter_single(output, tensor, op, group, async_op)
        memory.reduce_scatter(output, tensor)
        return done(async_op)

    def all_gather(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
        if not is_shared(group, output_tensor, input_tensor):
            return gather_by_broadcasts(output_tensor, input_tensor, group, async_op)
        memory.all_gather(output_tensor, input_tensor)
        return done(async_op)

    backend.all_reduce = all_reduce
    backend.reduce_scatter_function = reduce_scatter
    backend.all_gather_function = all_gather
