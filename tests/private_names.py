"""What zeromt uses of the insides of other packages, which another version may rename, and where each is found.

A row is a place, as `pkgutil.resolve_name` takes it, and what is there: an attribute, or a text in its source or, of an
operator, among its arguments. `test_private_names` looks all of it up, and fails where a private name is used that is
not listed.
"""

from trainer.engines.deepspeed import patches, reduction, steps
from trainer.engines.deepspeed.steps import Patch

Row = tuple[str, ...]

ROWS: tuple[Row, ...] = (
    ("torch", "_foreach_copy_", "_foreach_add_", "_foreach_mul_", "_foreach_lerp_", "_foreach_norm"),
    ("torch", "_addmm_activation"),
    ("torch.optim:Adam", "_step_supports_amp_scaling"),
    ("torch:ops.mkldnn", "_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported"),
    (
        "torch:ops.aten._flash_attention_forward",
        "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale window_size_left",
    ),
    (
        "torch:ops.aten._flash_attention_backward",
        "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal rng_state unused",
    ),
    (
        "torch:ops.aten._efficient_attention_forward",
        "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type",
        "compute_log_sumexp scale",
    ),
    (
        "torch:ops.aten._efficient_attention_backward",
        "grad_out_ query key value bias out cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k logsumexp dropout_p",
        "philox_seed philox_offset custom_mask_type bias_requires_grad scale",
    ),
    ("torch.nn:Module", "_modules", "_parameters", "_compiled_call_impl"),
    ("torch.nn:Module", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"),
    ("torch._dynamo.config", "recompile_limit"),
    ("torch._inductor.config", "fallback_random"),
    ("torch.distributed.elastic.multiprocessing.api:SubprocessContext", "_start", "death_sig", "timeout"),
    ("torch.distributed.elastic.agent.server.api:SimpleElasticAgent.run", "SignalException", "_shutdown(e.sigval"),
    ("deepspeed.utils.mixed_precision_linkage", "lp_param._hp_mapping = get_hp_fragment_mapping("),
    ("deepspeed.utils.tensor_fragment:tensor_fragment", "lp_fragment_address", "hp_fragment:"),
    ("sacrebleu.metrics.bleu:BLEU", "_aggregate_and_compute", "_extract_corpus_statistics"),
    ("sacrebleu.significance", "_bootstrap_resample"),
    ("fsspec.asyn:AsyncFileSystem", "_info", "_cat_file"),
)

_ENGINE = "deepspeed.runtime.engine:DeepSpeedEngine"
_BACKENDS = "deepspeed.comm.torch"
_FULL = "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer"
_FLAT = "deepspeed.runtime.bf16_optimizer:BF16_Optimizer"
_PARTITIONED = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_SHARDED = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"

OF_PATCHES: dict[Patch, tuple[Row, ...]] = {
    patches.KEEP_OUT_SHARED_MEMORY_OP: (
        ("deepspeed.ops.op_builder.cpu.comm:ShareMemCommBuilder", '"deepspeed_shm_comm"'),
        (_BACKENDS, "deepspeed.ops.__compatible_ops__.get(builder.NAME"),
    ),
    patches.TIME_OUT_GROUPS: (
        (f"{_BACKENDS}:TorchBackend.new_group", "return torch.distributed.new_group(ranks)"),
        ("deepspeed.comm.comm", "return cdb.new_group(ranks)"),
    ),
    patches.ASK_TORCH_FOR_MEMORY: (
        (
            "deepspeed.accelerator.cuda_accelerator:CUDA_Accelerator",
            "available_memory(self, device_index",
            "current_device",
        ),
    ),
    patches.LINK_MOMENTS: ((_PARTITIONED, "_hp_optimizer_states_linked", "_lazy_init_hp_params_optimizer_state"),),
    steps.STEP_ON_FULL_GRADIENTS: (
        (_FULL, "fp16_groups", "fp32_groups", "self.overflow", "unscale_and_clip_grads(self, total_norm, apply_scale"),
        (_FULL, "_update_scale", "_skip_invalid_grad_norm"),
    ),
    steps.STEP_ON_FLAT_GRADIENTS: (
        (_FLAT, "fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition", "update_lp_params"),
        (_FLAT, "_lazy_init_hp_params_optimizer_state", "self.update_hp_grads(", "self.clear_hp_grads("),
        (f"{_ENGINE}._take_model_step", "zero_grad", "overflow"),
        (f"{_ENGINE}._backward_epilogue", "enable_backward_allreduce"),
    ),
    steps.MEASURE_ONCE: (
        (f"{_PARTITIONED}.step", "check_overflow", "scaled_global_norm", "is_invalid_grad_norm", "averaged_gradients"),
        (_PARTITIONED, "real_dp_process_group", "partition_size", "ipg_buckets", "grad_start_offset"),
        (_PARTITIONED, "_get_compact_grad_partition_slice", "_use_compact_grad_partition_buffer"),
        (f"{_PARTITIONED}.average_tensor", "_add_full_reduction_to_compact_grad_partition"),
        (f"{_PARTITIONED}.reduce_ipg_grads", "_buffered_reduce_fallback_preserving_fp32", "copy_grads_in_partition"),
        (_PARTITIONED, "gradient_reduction_w_predivide(self, tensor, communication_data_type", "clear_grad_attribute"),
    ),
    steps.MEASURE_SHARDS_ONCE: (
        (_SHARDED, "_get_param_partition_rank", "_get_param_partition_group", "reduce_and_partition_stream"),
        (_SHARDED, "self.partition_grads(params_in_bucket, grad_partitions)"),
        (_SHARDED, "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition", "_get_norm_groups"),
        (_SHARDED, "_offload_boundary_param_ids", "check_overflow", "if self.micro_step_id == 0:"),
        (_SHARDED, "combine_grad_norm_groups(norm_groups)", "is_invalid_grad_norm(", "self.averaged_gradients[i] = ["),
    ),
    reduction.REDUCE_IN_BACKWARD: (
        (_FLAT, "fp32_groups_gradients_flat", "bf16_groups_flat", "self.update_hp_grads("),
        (_PARTITIONED, "bit16_groups", "partition_size", "dp_process_group", "_grad_acc_hooks"),
        (f"{_PARTITIONED}.step", "_get_preflattened_grad_partition"),
        ("deepspeed.runtime.zero.stage_1_and_2:GradPartitionBufferGroup", "grad_buffers", "flat_partition"),
    ),
}
