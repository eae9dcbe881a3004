"""All that is changed in DeepSpeed, each change with its reason, and what each leans on.

None is applied with `engine.plain_deepspeed: true`, nor where DeepSpeed lacks what one leans on: another version may
have renamed it.
"""

import inspect
import logging
import pkgutil
from collections.abc import Sequence
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
NEEDS: dict[str, tuple[Row, ...]] = {
    "keep_out_shared_memory_op": (
        ("deepspeed.ops.op_builder.cpu.comm:ShareMemCommBuilder", 'NAME = "deepspeed_shm_comm"'),
        ("deepspeed.comm.torch", "deepspeed.ops.__compatible_ops__.get(builder.NAME"),
    ),
    "ask_torch_for_memory": (
        (
            "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator",
            "available_memory(self, device_index",
            "current_device",
        ),
    ),
    "time_out_groups": (
        ("deepspeed.comm.torch:TorchBackend", "return torch.distributed.new_group(ranks)"),
        ("deepspeed.comm.comm", "return cdb.new_group(ranks)"),
    ),
    "reduce_in_backward": (
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
}
"""What each of the functions below leans on."""


def keep_out_shared_memory_op() -> None:
    """Keep DeepSpeed from compiling its C++ op for gloo: that takes a minute or more at a start, and a compiler."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def ask_torch_for_memory() -> None:
    """Make DeepSpeed ask torch for free memory.

    It takes names of GPUs in CUDA_VISIBLE_DEVICES (GPU-..., MIG-...) for numbers, which ends a run.
    """

    def available_memory(accelerator: Any, device_index: int | None = None) -> int:
        return torch.cuda.mem_get_info(accelerator.current_device() if device_index is None else device_index)[0]

    CUDA_Accelerator.available_memory = available_memory


def time_out_groups(timeout: timedelta) -> None:
    """Give every process group that DeepSpeed makes our time-out.

    It gives them torch's, 10 (NCCL) or 30 minutes (gloo), whatever the default group was given.

    Args:
        timeout: of a collective.
    """

    def new_group(_: Any, ranks: Sequence[int]) -> Any:
        return distributed.new_group(ranks, timeout=timeout)

    TorchBackend.new_group = new_group


def reduce_in_backward(engine: Any, *, each: bool, in_place: bool) -> Reduction:
    """Make stages 1 and 2 sum gradients by a `Reduction` instead of DeepSpeed's own.

    `trainer.engines.deepspeed.stages` then makes the step, from flat sums, whose norm shows NaN and infinities.
    DeepSpeed goes through gradients one by one: a ZeRO-1 update of base has 1,482 kernels and two waits of the host,
    without it 500 and none. And there every rank receives the sums of all partitions, after the backward pass.

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


def missing(row: Row) -> list[str]:
    """What of a row is not there."""
    try:
        resolved = pkgutil.resolve_name(row[0])
    except (ImportError, AttributeError):
        return [row[0]]
    lacking = [name for name in row[1:] if not hasattr(resolved, name)]
    source = inspect.getsource(inspect.getmodule(resolved) or resolved) if lacking else ""
    return [f"{row[0]}: {name}" for name in lacking if name not in source]


def can_be_applied() -> bool:
    """Whether this DeepSpeed has all that they need; else a warning says what it lacks."""
    lacking = [name for rows in NEEDS.values() for row in rows for name in missing(row)]
    if lacking:
        log.warning(
            "DeepSpeed %s lacks what is changed in it: %s; going on slower, as with engine.plain_deepspeed=true",
            deepspeed.__version__,
            ", ".join(lacking),
        )
    return not lacking
