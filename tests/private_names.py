"""The private names of other packages that zeromt uses, each with a probe: whether it is still there, and as it was.

Another version may rename them. `test_private_names` runs the probes and says which name is gone; it fails, too, where
the code uses a private name that is not listed here. A probe raises AssertionError, AttributeError or ImportError if
something is gone.
"""

import importlib
import inspect
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from trainer.engines.deepspeed import patches, reduction, steps
from trainer.engines.deepspeed.steps import Patch

Probe = Callable[[], None]


@dataclass(kw_only=True, frozen=True)
class Row:
    """Private names that are used together."""

    package: str
    names: tuple[str, ...]
    """As the code writes them."""
    probe: Probe
    patch: Patch | None = None
    """The patch that relies on them."""


ROWS: list[Row] = []


def private(package: str, *names: str, patch: Patch | None = None) -> Callable[[Probe], Probe]:
    """Add a row for the probe below."""

    def add(probe: Probe) -> Probe:
        ROWS.append(Row(package=package, names=names, probe=probe, patch=patch))
        return probe

    return add


def of(patch: Patch, *names: str) -> Callable[[Probe], Probe]:
    """Add a row for what a patch of DeepSpeed relies on."""
    return private("deepspeed", *names, patch=patch)


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


def arguments(operator: Any, *names: str) -> None:
    """Assert that an operator has exactly these arguments at its beginning, in this order."""
    found = [argument.name for argument in operator.default._schema.arguments]
    assert found[: len(names)] == list(names), f"{operator} takes {', '.join(found)}"


@private("torch", "_foreach_copy_", "_foreach_add_", "_foreach_mul_", "_foreach_lerp_", "_foreach_norm")
def foreach() -> None:
    """Operators on many tensors at once: sums, norms and moving averages of gradients and weights."""
    ones = [torch.ones(2), torch.ones(3)]
    torch._foreach_copy_(ones, [torch.full((2,), 2.0), torch.full((3,), 2.0)])
    torch._foreach_add_(ones, ones)
    torch._foreach_mul_(ones, 0.5)
    torch._foreach_lerp_(ones, [torch.zeros(2), torch.zeros(3)], 0.5)
    assert [x.tolist() for x in ones] == [[1.0] * 2, [1.0] * 3]
    norms = torch._foreach_norm(ones, 2, dtype=torch.float64)
    assert [(x.dtype, x.shape) for x in norms] == [(torch.float64, ())] * 2


@private("torch", "_step_supports_amp_scaling")
def scaled_steps() -> None:
    """Optimizers that divide gradients by `grad_scale` and skip the step by `found_inf`, its own count included."""
    weight = torch.ones(2, requires_grad=True)
    optimizer: Any = torch.optim.AdamW([weight], lr=0.5, fused=True)
    assert optimizer._step_supports_amp_scaling
    assert not getattr(torch.optim.AdamW([weight], foreach=True), "_step_supports_amp_scaling", False)
    for is_skipped, gradient in ((0.0, 8.0), (1.0, torch.nan)):
        weight.grad = torch.full((2,), gradient)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(2.0), torch.tensor(is_skipped)
        optimizer.step()
        [state] = optimizer.state.values()
        assert float(state["step"]) == 1
        torch.testing.assert_close(state["exp_avg"], torch.full((2,), 0.4))


@private("torch", "_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
def onednn() -> None:
    """Matmuls by oneDNN, which torch.compile uses: plain ones and those of reordered weights."""
    x, weight, bias = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2)
    expected = x @ weight.T + bias
    assert torch.equal(torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""), expected)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    assert torch.equal(torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""), expected)
    assert torch.ops.mkldnn._is_mkldnn_bf16_supported() in (True, False)


@private("torch", "_flash_attention_backward", "_efficient_attention_backward")
def backward_of_attention() -> None:
    """Its gradients, without torch's autograd."""
    arguments(
        torch.ops.aten._flash_attention_backward,
        *("grad_out", "query", "key", "value", "out", "logsumexp", "cum_seq_q", "cum_seq_k", "max_q", "max_k"),
        *("dropout_p", "is_causal", "rng_state", "unused", "scale", "window_size_left", "window_size_right"),
    )
    arguments(
        torch.ops.aten._efficient_attention_backward,
        *("grad_out_", "query", "key", "value", "bias", "out", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q"),
        *("max_seqlen_k", "logsumexp", "dropout_p", "philox_seed", "philox_offset", "custom_mask_type"),
        *("bias_requires_grad", "scale"),
    )


@private("torch", "_addmm_activation")
def relu_in_matmul() -> None:
    """A bias and ReLU within a matmul."""
    out = torch._addmm_activation(torch.tensor([1.0, -9.0]), torch.eye(2), torch.eye(2))
    assert out.tolist() == [[2.0, 0.0], [1.0, 0.0]]


@private("torch", "_flash_attention_forward")
def flash_attention() -> None:
    """Flash attention of rows one after the other, whose gradient torch's autograd knows."""
    arguments(
        torch.ops.aten._flash_attention_forward,
        *("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"),
        *("return_debug_mask", "scale", "window_size_left", "window_size_right"),
    )
    found = torch._C._dispatch_has_computed_kernel_for_dispatch_key("aten::_flash_attention_forward", "AutogradCUDA")
    assert found


@private("torch", "_efficient_attention_forward")
def efficient_attention() -> None:
    """The kernels of xFormers for rows one after the other, whose gradient torch's autograd knows."""
    arguments(
        torch.ops.aten._efficient_attention_forward,
        *("query", "key", "value", "bias", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
        *("dropout_p", "custom_mask_type", "compute_log_sumexp", "scale"),
    )
    found = torch._C._dispatch_has_computed_kernel_for_dispatch_key(
        "aten::_efficient_attention_forward", "AutogradCUDA"
    )
    assert found


@private("torch", "_modules", "_parameters")
def parts_of_modules() -> None:
    """Read without `nn.Module.__getattr__`, which takes as long on the host as some kernels on a GPU."""
    module = nn.Sequential(nn.Linear(2, 3))
    assert vars(module)["_modules"]["0"] is module[0]
    assert vars(module[0])["_parameters"]["weight"] is module[0].weight


@private(
    "torch", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_compiled_call_impl"
)
def hooks() -> None:
    """Whether a module has hooks: one that has must be called. Whether it is compiled."""
    module = nn.Linear(1, 1)
    for kind in ("forward_pre", "forward", "full_backward_pre", "full_backward"):
        getattr(module, f"register_{kind}_hook")(lambda *_: None)
        assert getattr(module, f"_{kind.removeprefix('full_')}_hooks"), kind
    assert module._compiled_call_impl is None


@private("torch", "_dynamo", "_inductor")
def compiler_settings() -> None:
    """What compiled layers need: torch's own dropout, and as many compilations as layers."""
    assert isinstance(importlib.import_module("torch._inductor.config").fallback_random, bool)
    assert isinstance(importlib.import_module("torch._dynamo.config").recompile_limit, int)


@private("torchrun", "_start")
def torchrun() -> None:
    """How torchrun starts and ends ranks."""
    api = importlib.import_module("torch.distributed.elastic.multiprocessing.api")
    takes(api.SubprocessContext._start)
    takes(api.SubprocessContext.close, "death_sig", "timeout")
    agent = importlib.import_module("torch.distributed.elastic.agent.server.api").SimpleElasticAgent
    says(agent.run, "except SignalException as e:", "self._shutdown(e.sigval")
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
    takes(errors.ChildFailedError.__init__, "name", "failures")
    stopped = importlib.import_module("torch.distributed.elastic.multiprocessing").SignalException
    assert stopped("", signal.SIGTERM).sigval == signal.SIGTERM


@private("deepspeed", "_hp_mapping")
def parameter_mapping() -> None:
    """Where a rank's part of a parameter stands in DeepSpeed's flat master weights."""
    linkage = importlib.import_module("deepspeed.utils.mixed_precision_linkage")
    fragment = importlib.import_module("deepspeed.utils.tensor_fragment")
    says(linkage, "lp_param._hp_mapping = None", "lp_param._hp_mapping = get_hp_fragment_mapping(")
    says(fragment, "lp_fragment_address: fragment_address", "hp_fragment: torch.Tensor", "start: int")


@private("sacrebleu", "_bootstrap_resample", "_aggregate_and_compute", "_extract_corpus_statistics")
def bootstrap() -> None:
    """The scores of a file that was drawn again and again: the same lines for all systems."""
    scoring: Any = importlib.import_module("sacrebleu.metrics.bleu").BLEU()
    statistics = scoring._extract_corpus_statistics(["a b c d"] * 2, [["a b c d"] * 2])
    assert abs(scoring._aggregate_and_compute(statistics).score - 100) < 1e-9
    seed, drawn = importlib.import_module("sacrebleu.significance")._bootstrap_resample(statistics, scoring, 2)
    assert (seed, len(drawn)) == ("12345", 2)


@private("fsspec", "_info", "_cat_file")
def remote_files() -> None:
    """Files of object stores, asked for with a time limit: fsspec's asynchronous methods."""
    from fsspec.asyn import AsyncFileSystem

    takes(AsyncFileSystem._info, "path")
    takes(AsyncFileSystem._cat_file, "path", "start", "end")


@private("omegaconf", "_get_node")
def configuration_nodes() -> None:
    """A value with its interpolations as they are written."""
    from omegaconf import OmegaConf

    node: Any = OmegaConf.create({"a": "${b}"})
    assert node._get_node("a")._value() == "${b}"


@of(patches.WITHOUT_COMPILER)
def without_compiler() -> None:
    from deepspeed.runtime import compiler
    from deepspeed.runtime.zero import parameter_offload

    says(parameter_offload, "@torch.compiler.disable")
    says(compiler, "torch.compile(")
    takes(torch.compile, "model")
    takes(torch.compiler.disable, "fn")


@of(patches.KEEP_OUT_SHARED_MEMORY_OP)
def shared_memory_op() -> None:
    from deepspeed import ops
    from deepspeed.ops.op_builder.cpu.comm import ShareMemCommBuilder

    assert ShareMemCommBuilder.NAME == "deepspeed_shm_comm"
    assert isinstance(ops.__compatible_ops__, dict)
    says(importlib.import_module("deepspeed.comm.torch"), "deepspeed.ops.__compatible_ops__.get(builder.NAME")


@of(patches.GATHER_TOGETHER)
def gather_together() -> None:
    from deepspeed.runtime.zero import partition_parameters, stage3

    assert {"NOT_AVAILABLE", "AVAILABLE"} <= set(partition_parameters.ZeroParamStatus.__members__)
    says(stage3, "self.persistent_parameters[0].all_gather(self.persistent_parameters)")
    says(partition_parameters, "param.all_gather = all_gather", "param.all_gather_coalesced = all_gather_coalesced")


@of(patches.GATHER_BY_BROADCASTS)
@of(patches.USE_SHARED_MEMORY, "_reduce_op")
def collectives() -> None:
    from deepspeed.comm import comm

    backends = importlib.import_module("deepspeed.comm.torch")  # `from deepspeed.comm import torch` is torch itself
    assert hasattr(comm, "cdb")
    says(backends, "def all_reduce(self, tensor, op=", "self.all_gather_function(output_tensor=output_tensor,")
    assigns(backends.TorchBackend.__init__, "all_gather_function", "reduce_scatter_function")
    takes(backends.TorchBackend._reduce_op, "op")


@of(patches.TIME_OUT_GROUPS)
def groups() -> None:
    comm = importlib.import_module("deepspeed.comm.comm")
    backends = importlib.import_module("deepspeed.comm.torch")
    says(backends, "return torch.distributed.new_group(ranks)")
    says(comm, "return cdb.new_group(ranks)")
    takes(backends.TorchBackend.new_group, "ranks")
    takes(distributed.new_group, "ranks", "timeout")


@of(patches.HIDE_MEMORY_REPORTS)
@of(patches.ASK_TORCH_FOR_MEMORY)
def start() -> None:
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
    from deepspeed.runtime import bf16_optimizer

    assert callable(bf16_optimizer.see_memory_usage)
    takes(CUDA_Accelerator.available_memory, "device_index")
    assert callable(CUDA_Accelerator.current_device)


@of(patches.LINK_MOMENTS, "_hp_optimizer_states_linked", "_lazy_init_hp_params_optimizer_state")
def link_moments() -> None:
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Optimizer

    assigns(Optimizer.__init__, "_hp_optimizer_states_linked")
    takes(Optimizer._lazy_init_hp_params_optimizer_state)


@of(steps.STEP_ON_FULL_GRADIENTS, "_skip_invalid_grad_norm", "_update_scale")
def step_on_full_gradients() -> None:
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer as Optimizer

    assigns(Optimizer.__init__, "fp16_groups", "fp32_groups", "optimizer", "overflow")
    takes(Optimizer.unscale_and_clip_grads, "total_norm", "apply_scale")
    takes(Optimizer._update_scale, "skip")
    takes(Optimizer._skip_invalid_grad_norm)  # called only at the first gradient that is not finite
    assigns(Optimizer._skip_invalid_grad_norm, "overflow", "_update_scale")


@of(steps.STEP_ON_FLAT_GRADIENTS, "_lazy_init_hp_params_optimizer_state")
def step_on_flat_gradients() -> None:
    from deepspeed.runtime import engine
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer as Optimizer

    assigns(Optimizer._setup_for_real_optimizer, "fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition")
    assigns(Optimizer.backward_epilogue, "update_hp_grads")
    assigns(Optimizer.zero_grad, "clear_hp_grads")
    takes(Optimizer.update_lp_params)
    takes(Optimizer._lazy_init_hp_params_optimizer_state)
    assigns(engine.DeepSpeedEngine._take_model_step, "zero_grad", "overflow")
    assigns(engine.DeepSpeedEngine._backward_epilogue, "enable_backward_allreduce")


@of(reduction.REDUCE_IN_BACKWARD, "_grad_acc_hooks")
def reduce_in_backward() -> None:
    from deepspeed.runtime import engine
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Optimizer
    from deepspeed.runtime.zero.stage_1_and_2 import GradPartitionBufferGroup

    backends = importlib.import_module("deepspeed.comm.torch")
    says(backends, "def reduce_scatter(self, output, input_list, op=ReduceOp.SUM, group=None, async_op=False):")
    takes(nn.Parameter.register_post_accumulate_grad_hook, "hook")
    assigns(engine.DeepSpeedEngine._backward_epilogue, "enable_backward_allreduce")
    assigns(BF16_Optimizer._setup_for_real_optimizer, "fp32_groups_gradients_flat", "bf16_groups_flat")
    assigns(BF16_Optimizer.backward_epilogue, "update_hp_grads")
    assigns(Optimizer.__init__, "bit16_groups", "partition_size", "dp_process_group", "_grad_acc_hooks")
    assigns(Optimizer.step, "_get_preflattened_grad_partition")
    takes(GradPartitionBufferGroup, "grad_buffers", "flat_partition")


@of(steps.MEASURE_ONCE, "_get_compact_grad_partition_slice", "_use_compact_grad_partition_buffer")
def measure_once() -> None:
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Optimizer

    assigns(Optimizer.step, "check_overflow", "scaled_global_norm", "is_invalid_grad_norm", "averaged_gradients")
    assigns(Optimizer.average_tensor, "_add_full_reduction_to_compact_grad_partition")
    assigns(Optimizer.reduce_ipg_grads, "_buffered_reduce_fallback_preserving_fp32", "copy_grads_in_partition")
    assigns(Optimizer.unscale_and_clip_grads, "is_invalid_grad_norm")
    assigns(Optimizer.__init__, "real_dp_process_group", "partition_size", "ipg_buckets", "grad_start_offset")
    takes(Optimizer._get_compact_grad_partition_slice, "group_idx", "partition_id", "param_id", "num_elements")
    takes(Optimizer._use_compact_grad_partition_buffer, "group_idx")
    takes(Optimizer.gradient_reduction_w_predivide, "tensor", "communication_data_type")
    takes(Optimizer.clear_grad_attribute, "param")


@of(steps.MEASURE_SHARDS_ONCE, "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition")
@of(steps.MEASURE_SHARDS_ONCE, "_offload_boundary_param_ids", "_get_param_partition_rank", "_get_param_partition_group")
def measure_shards_once() -> None:
    from deepspeed.runtime.zero import stage3

    names = vars(stage3.DeepSpeedZeroOptimizer_Stage3).keys()
    assert {"partition_grads", "check_overflow", "_get_norm_groups"} <= names
    says(  # its methods are wrapped for a profiler, which hides their code
        stage3,
        "self.partition_grads(params_in_bucket, grad_partitions)",
        "self.__param_id_to_grad_partition[param.ds_id].narrow(0, 0, grad_partition.numel())",
        "if self.micro_step_id == 0:  # don't accumulate",
        "self._offload_boundary_param_ids.add(param.ds_id)",
        "if self.dtype == torch.float16:\n            self.check_overflow()",
        "scaled_global_grad_norm = combine_grad_norm_groups(norm_groups)",
        "if is_invalid_grad_norm(scaled_global_grad_norm):",
        "self.reduce_and_partition_stream.synchronize()",
        "self.averaged_gradients[i] = [",
    )


@of(steps.GATHER_WITHOUT_WAITING, "_NoGatherHandle__param", "_NoGatherCoalescedHandle__params")
def gather_without_waiting() -> None:
    from deepspeed.runtime.zero import partition_parameters, partitioned_param_coordinator

    assert "AVAILABLE" in partition_parameters.ZeroParamStatus.__members__
    assigns(partition_parameters.NoGatherHandle.wait, "_NoGatherHandle__param", "synchronize", "ds_status")
    says(partition_parameters, "class NoGatherCoalescedHandle:", "for param in self.__params:")
    says(partitioned_param_coordinator, "get_accelerator().current_stream().wait_stream(self.__allgather_stream)")
