"""Monkey patches of DeepSpeed and torch, each an object with its reason.

A patch relies on private names, which another version may rename: tests/private_names.py has a row for each patch.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from trainer.engines.deepspeed import reduction, steps
from trainer.engines.deepspeed.steps import Patch


def keep_out_shared_memory_op(compatible: dict[str, bool]) -> None:
    """Keep DeepSpeed from compiling its C++ op for gloo, which takes a minute and needs a compiler.

    Args:
        compatible: `deepspeed.ops.__compatible_ops__`.
    """
    compatible["deepspeed_shm_comm"] = False


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


KEEP_OUT_SHARED_MEMORY_OP = Patch(
    target="deepspeed.ops.__compatible_ops__",
    versions="deepspeed 0.19",
    reason="on CPUs it compiles an op in C++ when it starts",
    apply=keep_out_shared_memory_op,
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
    KEEP_OUT_SHARED_MEMORY_OP,
    ASK_TORCH_FOR_MEMORY,
    TIME_OUT_GROUPS,
    LINK_MOMENTS,
    *steps.PATCHES,
    *reduction.PATCHES,
)
