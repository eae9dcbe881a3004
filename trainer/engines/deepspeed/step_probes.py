"""Whether DeepSpeed still has what the patches of `steps` rely on; see `probes`."""

from trainer.engines.deepspeed.probes import assigns, says, takes


def step_on_full_gradients() -> None:
    """Of `step_on_full_gradients`."""
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer as Optimizer

    assigns(Optimizer.__init__, "fp16_groups", "fp32_groups", "optimizer", "overflow")
    takes(Optimizer.unscale_and_clip_grads, "total_norm", "apply_scale")
    takes(Optimizer._update_scale, "skip")
    takes(Optimizer._skip_invalid_grad_norm)  # called only at the first gradient that is not finite
    assigns(Optimizer._skip_invalid_grad_norm, "overflow", "_update_scale")


def step_on_flat_gradients() -> None:
    """Of `step_on_flat_gradients`."""
    from deepspeed.runtime import engine
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer as Optimizer

    assigns(Optimizer._setup_for_real_optimizer, "fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition")
    assigns(Optimizer.backward_epilogue, "update_hp_grads")
    assigns(Optimizer.zero_grad, "clear_hp_grads")
    takes(Optimizer.update_lp_params)
    takes(Optimizer._lazy_init_hp_params_optimizer_state)
    assigns(engine.DeepSpeedEngine._take_model_step, "zero_grad", "overflow")
    assigns(engine.DeepSpeedEngine._backward_epilogue, "enable_backward_allreduce")


def measure_once() -> None:
    """Of `measure_once`."""
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


def measure_shards_once() -> None:
    """Of `measure_shards_once`."""
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


def gather_without_waiting() -> None:
    """Of `gather_without_waiting`."""
    from deepspeed.runtime.zero import partition_parameters, partitioned_param_coordinator

    assert "AVAILABLE" in partition_parameters.ZeroParamStatus.__members__
    assigns(partition_parameters.NoGatherHandle.wait, "_NoGatherHandle__param", "synchronize", "ds_status")
    says(partition_parameters, "class NoGatherCoalescedHandle:", "for param in self.__params:")
    says(partitioned_param_coordinator, "get_accelerator().current_stream().wait_stream(self.__allgather_stream)")
