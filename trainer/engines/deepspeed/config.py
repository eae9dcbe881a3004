"""The DeepSpeed configuration of a run: a function of its sections alone, and of the keys that DeepSpeed knows."""

from typing import Any

from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from pydantic import ValidationError

from configs import EngineSection, UserError
from configs.components import unknown
from trainer.ranks.precision import Precision

BUCKET_ELEMENTS = 50_000_000
"""Elements of a reduction bucket; DeepSpeed's default, 500 million, would take a gigabyte before the first step."""
EARLY_BUCKET_ELEMENTS = 25_000_000
"""Elements of a bucket that is reduced in the backward pass. A model has a few buckets; only the last comes late."""


REFUSED = {
    "stage": "give engine.zero_stage",
    "offload_optimizer": "give engine.offload_optimizer",
    "cpu_offload": "give engine.offload_optimizer",
    "offload_param": "weights are not offloaded; remove it",
    "cpu_offload_param": "weights are not offloaded; remove it",
    "zenflow": "it updates parameters outside the trainer's steps; give engine.offload_optimizer",
    "round_robin_gradients": "DeepSpeed would write wrong weights to checkpoints; remove it",
    "legacy_stage1": "DeepSpeed has removed it; remove it too",
}
"""Keys that DeepSpeed knows and a run cannot have, and what to do instead."""


def check_keys(section: EngineSection, *, clip_norm: float, ranks: int, on_each: int, is_host: bool = False) -> None:
    """Check the keys of `engine.zero_optimization`: `DeepSpeedConfig` itself takes unknown ones.

    Args:
        section: the run's.
        clip_norm: `optimizer.clip_norm`.
        ranks: number of ranks in the job.
        on_each: number of ranks on each machine.
        is_host: whether the ranks compute on CPUs.

    Raises:
        UserError: naming the key and what is allowed.
    """
    where, given = "engine.zero_optimization", section.zero_optimization
    for key in REFUSED.keys() & given:
        raise UserError(f"{where}.{key}: {given[key]!r}; {REFUSED[key]}")
    try:
        keys = DeepSpeedZeroConfig(**{**given, "stage": section.zero_stage})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (where, *first["loc"])))
        if first["type"] == "extra_forbidden":
            said = unknown(first["loc"][-1], DeepSpeedZeroConfig.model_fields, what="key of DeepSpeed")
        else:
            said = f"{first['input'] if first['loc'] else given!r}; {first['msg']}"
        raise UserError(f"{place}: {said}") from error
    if clip_norm and not keys.compute_grad_norm:
        raise UserError(f"{where}.compute_grad_norm: false, which optimizer.clip_norm={clip_norm} needs; set it to 0")
    for key in (key for key in given if key.startswith("zero_quantized_") and given[key] and is_host):
        raise UserError(f"{where}.{key}: true, and DeepSpeed quantizes on GPUs alone; remove it")
    size = min(keys.zero_hpz_partition_size or 1, ranks)  # with fewer ranks, DeepSpeed makes a single group
    if ranks % size or (on_each % size and size % on_each):
        raise UserError(
            f"{where}.zero_hpz_partition_size: {size} with {ranks} ranks, {on_each} on each machine; allowed is a "
            "divisor of the ranks whose groups do not lie across machines, such as 1"
        )


def early_bucket_elements(section: EngineSection) -> int | None:
    """The most elements of a bucket of several parameters that is reduced in the backward pass; None if none is."""
    if not section.reduces_in_buckets:
        return None
    given = section.zero_optimization.get("reduce_bucket_size", "auto")
    return EARLY_BUCKET_ELEMENTS if given == "auto" else int(given)


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
    aliases = {name: field.alias for name, field in DeepSpeedZeroConfig.model_fields.items() if field.alias}
    zero |= {aliases.get(key, key): value for key, value in section.zero_optimization.items()}
    config: dict[str, Any] = {
        "train_batch_size": world_size,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # else the engine clips, with the norm that it has computed already
        "gradient_clipping": clip_norm if clips_itself else 0.0,
        "zero_optimization": zero,
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
