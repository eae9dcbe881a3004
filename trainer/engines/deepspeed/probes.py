"""Probes: whether DeepSpeed and torch still have what each patch relies on; see `patches`.

A probe raises AssertionError, AttributeError or ImportError if something is gone.
"""

import importlib
import inspect
from typing import Any

import torch
from torch import distributed
from torch._compile import _disable_dynamo


def without_compiler() -> None:
    """Of `without_compiler`."""
    from deepspeed.runtime import compiler
    from deepspeed.runtime.zero import parameter_offload

    says(parameter_offload, "@torch.compiler.disable")
    says(compiler, "torch.compile(")
    takes(torch.compile, "model")
    takes(torch.compiler.disable, "fn")


def shared_memory_op() -> None:
    """Of `keep_out_shared_memory_op`."""
    from deepspeed import ops
    from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder

    assert ShareMemCommBuilder.NAME == "deepspeed_shm_comm"
    assert isinstance(ops.__compatible_ops__, dict)
    says(importlib.import_module("deepspeed.comm.torch"), "deepspeed.ops.__compatible_ops__.get(builder.NAME")


def compiler() -> None:
    """Of `show_to_compiler`."""
    from deepspeed.runtime.zero import partitioned_param_coordinator

    says(partitioned_param_coordinator, "@compiler.lazy_disable")
    assert hasattr(_disable_dynamo(lambda: None), "__wrapped__")


def gather_together() -> None:
    """Of `gather_together`."""
    from deepspeed.runtime.zero import partition_parameters, stage3

    assert {"NOT_AVAILABLE", "AVAILABLE"} <= set(partition_parameters.ZeroParamStatus.__members__)
    says(stage3, "self.persistent_parameters[0].all_gather(self.persistent_parameters)")
    says(partition_parameters, "param.all_gather = all_gather", "param.all_gather_coalesced = all_gather_coalesced")


def collectives() -> None:
    """Probe of `gather_by_broadcasts` and `use_shared_memory`."""
    from deepspeed.comm import comm

    backends = importlib.import_module("deepspeed.comm.torch")  # `from deepspeed.comm import torch` is torch itself
    assert hasattr(comm, "cdb")
    says(backends, "def all_reduce(self, tensor, op=", "self.all_gather_function(output_tensor=output_tensor,")
    assigns(backends.TorchBackend.__init__, "all_gather_function", "reduce_scatter_function")
    takes(backends.TorchBackend._reduce_op, "op")
    assert callable(distributed.reduce_scatter_single)


def groups() -> None:
    """Of `time_out_groups`."""
    comm = importlib.import_module("deepspeed.comm.comm")
    backends = importlib.import_module("deepspeed.comm.torch")
    says(backends, "return torch.distributed.new_group(ranks)")
    says(comm, "return cdb.new_group(ranks)")
    takes(backends.TorchBackend.new_group, "ranks")
    takes(distributed.new_group, "ranks", "timeout")


def memory_reports() -> None:
    """Of `hide_memory_reports`."""
    from deepspeed.runtime import bf16_optimizer

    assert callable(bf16_optimizer.see_memory_usage)


def muon() -> None:
    """Of `keep_out_muon`."""
    from deepspeed.runtime.zero.muon import original_muon  # noqa: F401


def available_memory() -> None:
    """Of `ask_torch_for_memory`."""
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    takes(CUDA_Accelerator.available_memory, "device_index")
    assert callable(CUDA_Accelerator.current_device)


def link_moments() -> None:
    """Of `link_moments`."""
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Optimizer

    assigns(Optimizer.__init__, "_hp_optimizer_states_linked")
    takes(Optimizer._lazy_init_hp_params_optimizer_state)


def takes(function: Any, *names: str) -> None:
    """Assert that a function has these parameters."""
    found = inspect.signature(function).parameters
    missing = [name for name in names if name not in found]
    assert not missing, f"{function.__qualname__} takes no {', '.join(missing)}; it takes {', '.join(found)}"


def assigns(function: Any, *names: str) -> None:
    """Assert that a method's code names these attributes."""
    used = inspect.unwrap(function).__code__.co_names
    missing = [name for name in names if name not in used]
    assert not missing, f"{function.__qualname__} knows no {', '.join(missing)}"


def says(module: Any, *texts: str) -> None:
    """Assert that a module's source contains these texts: there is no other way to see inside functions."""
    source = inspect.getsource(module)
    missing = [text for text in texts if text not in source]
    assert not missing, f"{module.__name__} says nothing of {', '.join(missing)}"
