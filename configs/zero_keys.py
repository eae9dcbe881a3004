"""What DeepSpeed takes in `zero_optimization`, checked without importing it, and before any rank starts.

The names, types and bounds are those of `deepspeed.runtime.zero.config.DeepSpeedZeroConfig`, 0.19; a test holds them
against the version that is installed. A key that DeepSpeed does not know ended every rank, after all of its imports.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from configs.fields import MOST

OWN = ("stage", "offload_optimizer", "offload_param")
"""What this project sets itself."""
REMOVED = {
    "cpu_offload": "engine.offload_optimizer",
    "cpu_offload_param": "engine.zero_stage=3 with engine.offload_optimizer",
    "cpu_offload_params": "engine.zero_stage=3 with engine.offload_optimizer",
    "cpu_offload_use_pin_memory": "engine.offload_optimizer",
    "stage3_gather_fp16_weights_on_model_save": "nothing: checkpoints hold whole fp32 weights at every stage",
    "elastic_checkpoint": "nothing: every checkpoint is elastic",
    "load_from_fp32_weights": "nothing: checkpoints hold fp32 weights",
}
"""What DeepSpeed dropped or is about to drop, with what to use in its place."""
_Size = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_ZENFLOW: dict[str, Any] = {
    "topk_ratio": Annotated[float, Field(gt=0.0, lt=1.0)],
    "select_strategy": str,
    "select_interval": str | int,
    "update_interval": str | int,
    "overlap_step": bool,
    "offload": bool,
    "auto_ratio": _Share,
    "full_warm_up_rounds": int,
    "pt_reserved_cores_perc": _Share,
    "steps_per_epoch": int | None,
}
_LEAF_MODULE: dict[str, Any] = dict.fromkeys(("classes", "names", "name_suffixes"), str | list[str])
_STAGE_3: dict[str, Any] = {
    "prefetch_bucket_size": _Size,
    "param_persistence_threshold": _Size,
    "model_persistence_threshold": _Size,
    "max_live_parameters": _Size,
    "max_reuse_distance": _Size,
    "gather_16bit_weights_on_model_save": bool,
    "module_granularity_threshold": int,
    "use_all_reduce_for_fetch_params": bool,
    "allgather_sequential": bool,
}
KEYS: dict[str, Any] = {
    "contiguous_gradients": bool,
    "reduce_scatter": bool,
    "reduce_bucket_size": Annotated[int, Field(gt=0)],
    "use_multi_rank_bucket_allreduce": bool,
    "allgather_partitions": bool,
    "allgather_bucket_size": _Size,
    "overlap_comm": bool | None,
    "compute_grad_norm": bool,
    "zenflow": _ZENFLOW,
    "sub_group_size": _Size,
    **_STAGE_3,
    **{f"stage3_{name}": type_ for name, type_ in _STAGE_3.items()},
    "ignore_unused_parameters": bool,
    "legacy_stage1": bool,
    "round_robin_gradients": bool,
    "parameter_alignment": bool,
    "zero_hpz_partition_size": _Size,
    "zero_quantized_weights": bool,
    "zero_quantized_nontrainable_weights": bool,
    "zero_quantized_gradients": bool,
    "memory_efficient_linear": bool,
    "pipeline_loading_checkpoint": bool,
    "override_module_apply": bool,
    "log_trace_cache_warnings": bool,
    "enable_sanity_checks": bool,
    "save_muon_momentum_buffer_in_memory": bool,
    "leaf_module": _LEAF_MODULE,
}
"""The type of each key; of a section in it, its own keys."""


def zero_problems(given: Mapping[str, Any], stage: int) -> Iterator[str]:
    """What is wrong with `zero_optimization` at a stage, one line each."""
    for key, value in given.items():
        if key in OWN:
            yield (
                f"zero_optimization.{key}: set by this project; "
                "allowed in its place is engine.zero_stage or engine.offload_optimizer"
            )
        elif key in REMOVED:
            yield f"zero_optimization.{key}: DeepSpeed removed it; allowed in its place is {REMOVED[key]}"
        else:
            yield from _key_problems("zero_optimization", key, value, KEYS)
    if stage < 2 and given.get("overlap_comm"):
        yield f"zero_optimization.overlap_comm: true at zero_stage={stage}; allowed at stages 2 and 3"
    if stage not in (1, 2) and given.get("compute_grad_norm") is False:
        yield f"zero_optimization.compute_grad_norm: false at zero_stage={stage}; allowed at stages 1 and 2"


def _key_problems(where: str, key: str, value: Any, keys: Mapping[str, Any]) -> Iterator[str]:
    if key not in keys:
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
        hint = f"did you mean engine.{where}.{near[0]}?" if near else f"allowed: {', '.join(keys)}"
        yield f"{where}.{key}: unknown key of DeepSpeed; {hint}"
    elif value == "auto":  # DeepSpeed leaves it to itself
        return
    elif isinstance(keys[key], dict):
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield from _key_problems(f"{where}.{key}", inner, inner_value, keys[key])
        elif value is not None:
            yield f"{where}.{key}: {value!r}; allowed is a section with keys"
    else:
        try:
            found = TypeAdapter(keys[key]).validate_python(value)
        except ValidationError as error:
            wanted = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
            shown = "a section" if isinstance(value, dict) else repr(value)
            yield f"{where}.{key}: {shown}; allowed is {wanted}"
            return
        if isinstance(found, int) and abs(found) > MOST:
            yield f"{where}.{key}: {value!r}; allowed is at most {MOST}"
