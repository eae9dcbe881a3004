"""Monkey patches of DeepSpeed and torch, each an object with its reason.

A patch relies on private names, which another version may rename: tests/private_names.py has a row for each patch.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from trainer.engines.deepspeed import reduction, steps
from trainer.engines.deepspeed.steps import Patch
from trainer.engines.shared_memory import SharedMemory

SMALL = 1 << 16
"""All-reduces up to this many bytes are left to gloo, which synchronises once instead of twice."""


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch's compiler from starting in this block, which would take two seconds; nothing is compiled."""
    compile_, disable = torch.compile, torch.compiler.disable
    torch.compile = lambda *_, **__: lambda function: function  # type: ignore[assignment]
    torch.compiler.disable = lambda function, *_, **__: function
    try:
        yield
    finally:
        torch.compile, torch.compiler.disable = compile_, disable


def gather_together(parameters: Sequence[Any]) -> None:
    """Make stage 3 gather the small parameters that it keeps whole between steps in one collective.

    Otherwise it takes one collective for each of them after each step.

    Args:
        parameters: `persistent_parameters` of the engine's optimizer.
    """

    def all_gather(param_list: Sequence[Any] | None = None, **_: Any) -> None:
        missing = [p for p in param_list or parameters[:1] if p.ds_status.name == "NOT_AVAILABLE"]
        for parameter in missing:  # hpZ: the secondary copy is from before the step
            parameter.ds_secondary_tensor = None
        if missing:
            missing[0].all_gather_coalesced(missing).wait()

    if parameters:
        parameters[0].all_gather = all_gather


class Works:
    """Several collectives as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        """Wait until all are done."""
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        """Whether all are."""
        return all(work.is_completed() for work in self._works)


def gather_by_broadcasts(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Works | None:
    """`torch.distributed.all_gather_into_tensor` for gloo: concurrent broadcasts put every rank's part into its place.

    gloo's own makes extra copies: with 15 MB from each of two ranks it takes 33 to 45 ms, broadcasts 12 ms.

    Args:
        output_tensor: contiguous, with the elements of all ranks' inputs.
        input_tensor: this rank's; may be its part of the output.
        group: of ranks; None for all.
        async_op: return at once, with an object to wait for.
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
    """Route DeepSpeed's sums and gathers over all ranks through memory that they share.

    With 30 MB on two ranks of one thread, an all-reduce takes 8 ms (gloo: 25), a reduce-scatter 5 (gloo: 34), a gather
    7 (broadcasts: 13).

    Args:
        backend: `deepspeed.comm.comm.cdb`, over gloo; other groups and operations still go through gloo.
        memory: of all ranks.
    """
    all_reduce_by_gloo, total = type(backend).all_reduce, distributed.ReduceOp.SUM
    reduce_parts_by_gloo = type(backend).reduce_scatter
    reduce_scatter_by_gloo = backend.reduce_scatter_function

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
            return reduce_scatter_by_gloo(output, tensor, op, group, async_op)
        memory.reduce_scatter(output, tensor)
        return done(async_op)

    def reduce_parts(
        output: Tensor, input_list: Sequence[Tensor], op: Any = total, group: Any = None, async_op: bool = False
    ) -> Any:
        op = backend._reduce_op(op)
        if op != total or not is_shared(group, *input_list):
            return reduce_parts_by_gloo(backend, output, input_list, op, group, async_op)
        memory.reduce_parts(output, input_list)
        return done(async_op)

    def all_gather(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
        if not is_shared(group, output_tensor, input_tensor):
            return gather_by_broadcasts(output_tensor, input_tensor, group, async_op)
        memory.all_gather(output_tensor, input_tensor)
        return done(async_op)

    backend.all_reduce = all_reduce
    backend.reduce_scatter = reduce_parts
    backend.reduce_scatter_function = reduce_scatter
    backend.all_gather_function = all_gather


def keep_out_shared_memory_op(compatible: dict[str, bool]) -> None:
    """Keep DeepSpeed from compiling its C++ op for gloo, which takes a minute and needs a compiler.

    Args:
        compatible: `deepspeed.ops.__compatible_ops__`.
    """
    compatible["deepspeed_shm_comm"] = False


def hide_memory_reports(module: Any) -> None:
    """Skip BF16_Optimizer's six memory reports at its start, each with a garbage collection."""
    module.see_memory_usage = lambda *_, **__: None


def ask_torch_for_memory(kind: type) -> None:
    """Make DeepSpeed ask torch for free memory; torch understands GPU names too.

    DeepSpeed asks NVML by the number that it expects in CUDA_VISIBLE_DEVICES, which may hold `GPU-...` or `MIG-...`.

    Args:
        kind: `CUDA_Accelerator`.
    """

    def available_memory(accelerator: Any, device_index: int | None = None) -> int:
        return torch.cuda.mem_get_info(accelerator.current_device() if device_index is None else device_index)[0]

    kind.available_memory = available_memory  # type: ignore[attr-defined]


def time_out_groups(backend: type, timeout: timedelta) -> None:
    """Give every process group that DeepSpeed makes our time-out; it uses torch's, 10 (NCCL) or 30 minutes (gloo).

    Args:
        backend: `deepspeed.comm.torch.TorchBackend`.
        timeout: of a collective.
    """

    def new_group(_: Any, ranks: Sequence[int]) -> Any:
        return distributed.new_group(ranks, timeout=timeout)

    backend.new_group = new_group  # type: ignore[attr-defined]


def link_moments(optimizer: Any) -> None:
    """Make DeepSpeed's getters find the moments of every parameter group, at stages 1 and 2.

    DeepSpeed links them once, after the first group's first step, when the other groups have none yet (0.19.8: 'exp_avg
    not found in optimizer state fragment').
    """
    if hasattr(optimizer, "_hp_optimizer_states_linked"):
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()


WITHOUT_COMPILER = Patch(
    target="torch.compile and torch.compiler.disable",
    versions="deepspeed 0.19, torch 2.13",
    reason="what DeepSpeed decorates by them as it starts would start the compiler: two seconds of every rank",
    apply=without_compiler,
)
GATHER_TOGETHER = Patch(
    target="persistent_parameters[0].all_gather of stage 3",
    versions="deepspeed 0.19",
    reason="after each step it gathers small parameters by a collective for each",
    apply=gather_together,
)
GATHER_BY_BROADCASTS = Patch(
    target="deepspeed.comm.comm.cdb.all_gather_function",
    versions="deepspeed 0.19, torch 2.13",
    reason="gloo's all-gather copies what it sends and receives",
    apply=lambda backend: setattr(backend, "all_gather_function", gather_by_broadcasts),
)
USE_SHARED_MEMORY = Patch(
    target="deepspeed.comm.comm.cdb",
    versions="deepspeed 0.19, torch 2.13",
    reason="ranks on one machine send through gloo's sockets what they could share",
    apply=use_shared_memory,
)
KEEP_OUT_SHARED_MEMORY_OP = Patch(
    target="deepspeed.ops.__compatible_ops__",
    versions="deepspeed 0.19",
    reason="on CPUs it compiles an op in C++ when it starts",
    apply=keep_out_shared_memory_op,
)
HIDE_MEMORY_REPORTS = Patch(
    target="deepspeed.runtime.bf16_optimizer.see_memory_usage",
    versions="deepspeed 0.19",
    reason="it collects garbage and prints the machine's memory six times at the start",
    apply=hide_memory_reports,
)
ASK_TORCH_FOR_MEMORY = Patch(
    target="CUDA_Accelerator.available_memory",
    versions="deepspeed 0.19",
    reason="names of GPUs in CUDA_VISIBLE_DEVICES, which it takes for numbers, end the run where it starts",
    apply=ask_torch_for_memory,
)
TIME_OUT_GROUPS = Patch(
    target="deepspeed.comm.torch.TorchBackend.new_group",
    versions="deepspeed 0.19, torch 2.13",
    reason="its groups have torch's default time-out, whatever the default group was given",
    apply=time_out_groups,
)
LINK_MOMENTS = Patch(
    target="DeepSpeedZeroOptimizer._hp_optimizer_states_linked",
    versions="deepspeed 0.19",
    reason="moments of all parameter groups but the first are not found by its getters",
    apply=link_moments,
)
PATCHES = (
    WITHOUT_COMPILER,
    GATHER_TOGETHER,
    GATHER_BY_BROADCASTS,
    USE_SHARED_MEMORY,
    KEEP_OUT_SHARED_MEMORY_OP,
    HIDE_MEMORY_REPORTS,
    ASK_TORCH_FOR_MEMORY,
    TIME_OUT_GROUPS,
    LINK_MOMENTS,
    *steps.PATCHES,
    *reduction.PATCHES,
)
