"""All that is changed in DeepSpeed, each change with its reason, and how it is told that it can be made.

None is applied with `engine.plain_deepspeed: true`, nor where a probe fails: another version of DeepSpeed may have
renamed what a patch leans on.
"""

import inspect
import logging
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
from deepspeed.comm.torch import TorchBackend
from torch import distributed

from trainer.engines.deepspeed.reduction import Reduction

log = logging.getLogger(__name__)

Row = tuple[str, ...]
"""A place, as `pkgutil.resolve_name` takes it, and what is there: attributes, or texts in its file."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Patch:
    """A change of another package."""

    target: str
    """What is changed."""
    needs: tuple[Row, ...]
    """What it leans on."""
    apply: Callable[..., Any]

    def missing(self) -> list[str]:
        """What of its needs is not there."""
        return [one for row in self.needs for one in missing(row)]


def missing(row: Row) -> list[str]:
    """What of a row is not there."""
    try:
        found = pkgutil.resolve_name(row[0])
    except (ImportError, AttributeError):
        return [row[0]]
    lacking = [name for name in row[1:] if not hasattr(found, name)]
    source = inspect.getsource(inspect.getmodule(found) or found) if lacking else ""
    return [f"{row[0]}: {name}" for name in lacking if name not in source]


def time_out_groups(timeout: timedelta) -> None:
    """Give every process group that DeepSpeed makes our time-out.

    Args:
        timeout: of a collective.
    """

    def new_group(_: Any, ranks: Sequence[int]) -> Any:
        return distributed.new_group(ranks, timeout=timeout)

    TorchBackend.new_group = new_group


def ask_torch_for_memory() -> None:
    """Make DeepSpeed ask torch for free memory; torch understands GPU names too."""

    def available_memory(accelerator: Any, device_index: int | None = None) -> int:
        return torch.cuda.mem_get_info(accelerator.current_device() if device_index is None else device_index)[0]

    CUDA_Accelerator.available_memory = available_memory


def keep_out_shared_memory_op() -> None:
    """Keep DeepSpeed from compiling its C++ op for gloo."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def reduce_in_backward(engine: Any, *, each: bool, in_place: bool) -> Reduction:
    """Make stages 1 and 2 sum gradients by a `Reduction`, in place of DeepSpeed's own.

    `trainer.engines.deepspeed.stages` then makes the step: of flat sums, of which one norm shows NaN and infinities.

    Args:
        engine: DeepSpeed's, at its stage 1.
        each: see `Reduction`.
        in_place: see `Reduction`.
    """
    optimizer = engine.optimizer
    engine.enable_backward_allreduce = False
    for hook in optimizer._grad_acc_hooks:  # with offload
        hook.remove()
    parts = [len(master) for master in optimizer.single_partition_of_fp32_groups]
    places = {parameter: place for place, parameter in enumerate(engine.module.parameters())}
    return Reduction(optimizer.bit16_groups, parts, places, each=each, in_place=in_place)


KEEP_OUT_SHARED_MEMORY_OP = Patch(
    target="deepspeed.ops.__compatible_ops__",
    needs=(
        ("deepspeed.ops.op_builder.cpu.comm:ShareMemCommBuilder", 'NAME = "deepspeed_shm_comm"'),
        ("deepspeed.comm.torch", "deepspeed.ops.__compatible_ops__.get(builder.NAME"),
    ),
    apply=keep_out_shared_memory_op,
)
"""On CPUs it compiles an op in C++ when it starts: a minute or more, and it needs a compiler."""
ASK_TORCH_FOR_MEMORY = Patch(
    target="CUDA_Accelerator.available_memory",
    needs=(
        (
            "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator",
            "available_memory(self, device_index",
            "current_device",
        ),
    ),
    apply=ask_torch_for_memory,
)
"""Names of GPUs in CUDA_VISIBLE_DEVICES (GPU-..., MIG-...), which it takes for numbers, end a run."""
TIME_OUT_GROUPS = Patch(
    target="deepspeed.comm.torch.TorchBackend.new_group",
    needs=(
        ("deepspeed.comm.torch:TorchBackend", "return torch.distributed.new_group(ranks)"),
        ("deepspeed.comm.comm", "return cdb.new_group(ranks)"),
    ),
    apply=time_out_groups,
)
"""Its groups have torch's time-out, 10 (NCCL) or 30 minutes (gloo), whatever the default group was given."""
REDUCE_IN_BACKWARD = Patch(
    target="gradients of stages 1 and 2",
    needs=(
        ("deepspeed.runtime.engine:DeepSpeedEngine", "if self.enable_backward_allreduce and", "self.basic_optimizer ="),
        (
            "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer",
            "single_partition_of_fp32_groups",
            "bit16_groups",
            "_grad_acc_hooks",
            "update_lp_params",
            "self.loss_scaler = CreateLossScaler(",
        ),
    ),
    apply=reduce_in_backward,
)
"""It goes through gradients one by one: a ZeRO-1 update of base has 1,482 kernels and two waits of the host, without it
500 and none. And every rank receives the sums of all partitions, after the backward pass."""
PATCHES = (KEEP_OUT_SHARED_MEMORY_OP, ASK_TORCH_FOR_MEMORY, TIME_OUT_GROUPS, REDUCE_IN_BACKWARD)


def can_be_applied() -> bool:
    """Whether this DeepSpeed has all that they need; else a warning says what it lacks."""
    lacking = [f"{patch.target} ({', '.join(names)})" for patch in PATCHES if (names := patch.missing())]
    if lacking:
        log.warning(
            "DeepSpeed %s lacks what is changed in it: %s; going on slower, as with engine.plain_deepspeed=true",
            deepspeed.__version__,
            "; ".join(lacking),
        )
    return not lacking
