"""What zeromt uses of the insides of other packages, which another version may rename, and where each is found.

A row is a place, as `pkgutil.resolve_name` takes it, and what is there: an attribute, or a text in its source or, of an
operator, among its arguments. `test_private_names` looks all of it up, and fails where a private name is used that is
not listed.
"""

from trainer.engines.deepspeed.patches import NEEDS, Row

ROWS: tuple[Row, ...] = (
    ("collections:namedtuple", "_replace"),
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
    ("torch.nn:Module", "_modules", "_parameters"),
    ("torch.nn:Module", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"),
    ("torch.distributed.elastic.multiprocessing.api:SubprocessContext", "_start", "death_sig", "timeout"),
    ("torch.distributed.elastic.agent.server.api:SimpleElasticAgent.run", "SignalException", "_shutdown(e.sigval"),
    ("deepspeed.runtime.bf16_optimizer:BF16_Optimizer", "fp32_groups_flat_partition", "bf16_groups"),
    ("deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer", "averaged_gradients"),
    (
        "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer",
        "fp16_groups",
        "fp32_groups",
        "loss_scale_config",
    ),
    (
        "deepspeed.runtime.fp16.loss_scaler",
        "cur_scale",
        "cur_iter",
        "last_overflow_iter",
        "cur_hysteresis",
        "update_scale",
    ),
    ("deepspeed.runtime.zero.partition_parameters", "ds_tensor", "ds_numel", "ds_shape", "ds_process_group", "ds_id"),
    ("fsspec.asyn:AsyncFileSystem", "_info", "_cat_file"),
    *(row for rows in NEEDS.values() for row in rows),
)
