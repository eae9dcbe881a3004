"""The DeepSpeed configuration of a run: a pure function of its sections."""

from typing import Any

from configs import EngineSection
from configs.zero_keys import by_deepspeeds_names, value_of
from trainer.ranks.precision import Precision

BUCKET_ELEMENTS = 50_000_000
"""Elements of a reduction bucket; DeepSpeed's default, 500 million, would take a gigabyte before the first step."""
EARLY_BUCKET_ELEMENTS = 25_000_000
"""Elements of a bucket that is reduced in the backward pass: a few in a model, of which only the last comes late."""


def early_bucket_elements(section: EngineSection) -> int | None:
    """The most elements of a bucket of several parameters that is reduced in the backward pass; None if none is."""
    if not section.reduces_in_buckets:
        return None
    return value_of(section.zero_optimization, "reduce_bucket_size") or EARLY_BUCKET_ELEMENTS


def deepspeed_config(
    section: EngineSection, *, precision: Precision, clip_norm: float, world_size: int
) -> dict[str, Any]:
    """The configuration for `deepspeed.initialize`.

    The batch sizes are nominal: DeepSpeed counts samples, an update here is measured in tokens and the trainer counts
    for itself.
    """
    # where it is not told to reduce gradients, it need not know that they are partitioned
    zero: dict[str, Any] = {"stage": 1 if section.reduces_in_buckets else section.zero_stage}
    if section.zero_stage > 0:
        zero["reduce_bucket_size"] = BUCKET_ELEMENTS
    if section.zero_stage in (1, 2):
        # What DeepSpeed 0.19.8 calls a reduce-scatter there is an all-reduce of a copy of the bucket, copied back.
        zero |= {"allgather_bucket_size": BUCKET_ELEMENTS, "reduce_scatter": False}
    if section.reduces_in_buckets:
        zero["contiguous_gradients"] = False
    if section.zero_stage == 3:
        zero["stage3_prefetch_bucket_size"] = BUCKET_ELEMENTS
    if section.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    clips_itself = not section.reduces_in_buckets and (section.zero_stage > 0 or precision != "fp32")
    config: dict[str, Any] = {
        "train_batch_size": world_size,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # else the engine clips, with the norm that it has computed already
        "gradient_clipping": clip_norm if clips_itself else 0.0,
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
        if section.zero_stage and not section.reduces_in_buckets:  # stage 0 accumulates gradients in bf16 alone
            config["data_types"] = {"grad_accum_dtype": "fp32"}
    if precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": section.fp16_initial_scale_power}
        config["communication_data_type"] = "fp32"
    return config
