"""The DeepSpeed configuration of a run: a pure function of its sections."""

from typing import Any

from configs import EngineSection
from configs.zero_keys import by_deepspeeds_names, value_of
from trainer.ranks.precision import Precision

BUCKET_ELEMENTS = 50_000_000
"""Elements of a reduction bucket; DeepSpeed's default, 500 million, would take a gigabyte before the first step."""
EARLY_BUCKET_ELEMENTS = 10_000_000
"""Elements of a bucket that is reduced in the backward pass: some ten in a model, of which only the last comes late."""


def early_bucket_elements(section: EngineSection) -> int:
    """The most elements of a bucket of several parameters that is reduced in the backward pass."""
    return value_of(section.zero_optimization, "reduce_bucket_size") or EARLY_BUCKET_ELEMENTS


def deepspeed_config(
    section: EngineSection, *, precision: Precision, clip_norm: float, world_size: int
) -> dict[str, Any]:
    """The configuration for `deepspeed.initialize`.

    The batch sizes are nominal: DeepSpeed counts samples, an update here is measured in tokens and the trainer counts
    for itself.
    """
    zero: dict[str, Any] = {"stage": section.zero_stage}
    if section.zero_stage > 0:
        zero["reduce_bucket_size"] = BUCKET_ELEMENTS
    if section.zero_stage in (1, 2):
        # What DeepSpeed 0.19.8 calls a reduce-scatter there is an all-reduce of a copy of the bucket, copied back.
        zero |= {"allgather_bucket_size": BUCKET_ELEMENTS, "reduce_scatter": False}
    overlaps = section.zero_optimization.get("overlap_comm")  # DeepSpeed then needs a second buffer to write to
    fills_at_once = section.zero_stage == 2 and precision == "bf16" and not (section.offload_optimizer or overlaps)
    if fills_at_once or section.reduces_in_buckets:
        # a bucket is filled in one operation instead of one copy per parameter, or it is none of DeepSpeed's
        zero["contiguous_gradients"] = False
    if section.zero_stage == 3:
        zero["stage3_prefetch_bucket_size"] = BUCKET_ELEMENTS
    if section.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    config: dict[str, Any] = {
        "train_batch_size": world_size,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # there the engine clips, with the norm that it has computed already
        "gradient_clipping": 0.0 if precision == "fp32" and section.zero_stage == 0 else clip_norm,
        "zero_optimization": zero | by_deepspeeds_names(section.zero_optimization),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # torch's own AdamW steps on the CPU, so that no compiler is needed
        "steps_per_print": None,
        "wall_clock_breakdown": False,
        "timers": {"throughput": {"enabled": False}},  # or the host would wait for the device at every micro-batch
    }
    if precision == "bf16":
        config["bf16"] = {"enabled": True}
        config["communication_data_type"] = "fp32"
        if section.zero_stage > 0:  # stage 0 does not support this combination; its gradients accumulate in bf16
            config["data_types"] = {"grad_accum_dtype": "fp32"}
    if precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": section.fp16_initial_scale_power}
        config["communication_data_type"] = "fp32"
    return config
