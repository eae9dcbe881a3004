"""Checks the keys of DeepSpeed's `zero_optimization` without importing DeepSpeed, before any rank starts.

Names, types and bounds are those of `deepspeed.runtime.zero.config.DeepSpeedZeroConfig` 0.19; a test compares them with
the installed version. Without this check, an unknown key would fail every rank, after all imports.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from configs.errors import UserError
from configs.fields import MAX_INTEGER
from configs.process.text import yaml_scalar

OWN = ("stage", "offload_optimizer", "offload_param")
"""Keys that zeromt sets itself."""
REMOVED = {
    "cpu_offload": "engine.offload_optimizer",
    "cpu_offload_param": "engine.zero_stage=3 with engine.offload_optimizer",
    "cpu_offload_params": "engine.zero_stage=3 with engine.offload_optimizer",
    "cpu_offload_use_pin_memory": "engine.offload_optimizer",
    "stage3_gather_fp16_weights_on_model_save": "nothing: checkpoints hold whole fp32 weights at every stage",
    "elastic_checkpoint": "nothing: every checkpoint is elastic",
    "load_from_fp32_weights": "nothing: checkpoints hold fp32 weights",
    "mics_shard_size": "zero_hpz_partition_size, at stage 3",
    "mics_hierarchical_params_gather": "zero_hpz_partition_size, at stage 3",
    "zeropp_loco_param": "zero_quantized_gradients, without its error feedback",
}
"""Keys that DeepSpeed has removed or deprecated, with what to use instead."""
OF_REDUCTION = (
    "compute_grad_norm",
    "overlap_comm",
    "reduce_scatter",
    "contiguous_gradients",
    "use_multi_rank_bucket_allreduce",
    "parameter_alignment",
)
"""Keys about how DeepSpeed itself reduces gradients at stages 1 and 2."""
_Size = Annotated[int, Field(ge=0)]
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
"""The type of each key; for a section, the types of its own keys."""
HPZ = "zero_hpz_partition_size"
QUANTIZED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")
STAGE_3_ONLY = (HPZ, *QUANTIZED)
"""Keys that are refused below stage 3, because they would silently do nothing. Stage 3's other keys, which only tune
it, are allowed at any stage."""


def zero_problems(given: Mapping[str, Any], stage: int, *, offload: bool = False) -> Iterator[str]:
    """Errors in `zero_optimization`, one line each.

    Args:
        given: the section `zero_optimization`.
        stage: `engine.zero_stage`.
        offload: `engine.offload_optimizer`.
    """
    for key, value in given.items():
        if key in OWN:
            yield (
                f"zero_optimization.{key}: set by zeromt itself; "
                "use engine.zero_stage or engine.offload_optimizer instead"
            )
        elif key in REMOVED:
            yield f"zero_optimization.{key}: DeepSpeed removed it; instead use {REMOVED[key]}"
        elif key == "zenflow":
            if value is not None:
                yield (
                    "zero_optimization.zenflow: not supported: it updates some parameters outside the trainer's steps; "
                    "use engine.offload_optimizer instead"
                )
        else:
            yield from _key_problems("zero_optimization", key, value, KEYS)
    for name in _STAGE_3:
        if name in given and f"stage3_{name}" in given:
            yield f"zero_optimization.{name}: another name for stage3_{name}, which is given too; give one of them"
    for problem in _contradictions({key: value_of(given, key) for key in given}, stage, offload):
        yield f"zero_optimization.{problem}"


def _contradictions(given: Mapping[str, Any], stage: int, offload: bool) -> Iterator[str]:
    """Keys that exclude each other or this stage: DeepSpeed would raise an error, or silently ignore them."""
    if stage < 2 and given.get("overlap_comm"):
        yield f"overlap_comm: true at zero_stage={stage}; it works at stages 2 and 3 only"
    if given.get("legacy_stage1"):
        yield "legacy_stage1: true; DeepSpeed removed it; remove the key"
    if given.get("compute_grad_norm") is False:
        if stage not in (1, 2):
            yield f"compute_grad_norm: false at zero_stage={stage}; it works at stages 1 and 2 only"
        elif offload:
            yield "compute_grad_norm: false with offload_optimizer=true; use one of them"
    if stage < 3 and (given.get("allgather_bucket_size") or 0) % 2:
        yield f"allgather_bucket_size: {given['allgather_bucket_size']}; allowed is an even number"
    if stage < 3 and given.get("round_robin_gradients"):
        yield "round_robin_gradients: true makes DeepSpeed write wrong weights to checkpoints; remove the key"
    if stage < 3:
        for key in (key for key in STAGE_3_ONLY if (given.get(key) or 0) > (key == HPZ)):
            value = yaml_scalar(given[key])
            yield f"{key}: {value} at zero_stage={stage}, where it does nothing; use it at stage 3 only"


def check_ranks(given: Mapping[str, Any], *, ranks: int, on_each: int) -> None:
    """Check the keys of `zero_optimization` that depend on the number of ranks.

    Args:
        given: the section `zero_optimization`, already checked by `zero_problems`.
        ranks: number of ranks in the job.
        on_each: number of ranks on each machine.

    Raises:
        UserError: groups of `zero_hpz_partition_size` ranks would have unequal sizes, or straddle machines.
    """
    size = min(value_of(given, HPZ) or 1, ranks)  # with fewer ranks, DeepSpeed makes a single group
    if ranks % size or (on_each % size and size % on_each):
        allowed = [n for n in range(1, ranks + 1) if not (ranks % n or (on_each % n and n % on_each))]
        raise UserError(
            f"engine.zero_optimization.{HPZ}: {size} with {ranks} ranks, {on_each} on each machine; "
            f"allowed is {', '.join(map(str, allowed[:-1]))}{' or ' if allowed[1:] else ''}{allowed[-1]}"
        )


def sets_reduction(given: Mapping[str, Any]) -> bool:
    """Whether a key says how DeepSpeed itself is to reduce gradients at stages 1 and 2."""
    return any(value_of(given, key) is not None for key in OF_REDUCTION)


def needs_quantizer(given: Mapping[str, Any]) -> str | None:
    """The first given key for which DeepSpeed compiles a CUDA kernel when it starts; None if there is none."""
    return next((key for key in QUANTIZED if value_of(given, key)), None)


def by_deepspeeds_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under the names that zeromt's own settings use; DeepSpeed must not get a key under both its names."""
    return {f"stage3_{key}" if key in _STAGE_3 else key: value for key, value in given.items()}


def value_of(given: Mapping[str, Any], key: str) -> Any:
    """The value that DeepSpeed reads for a key; None if it is missing, `auto` or invalid."""
    value = given.get(key)
    try:
        return None if value in ("auto", None) else TypeAdapter(KEYS[key]).validate_python(value)
    except (KeyError, TypeError, ValidationError):
        return None


def _key_problems(where: str, key: str, value: Any, keys: Mapping[str, Any]) -> Iterator[str]:
    if key not in keys:
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
        hint = f"did you mean engine.{where}.{near[0]}?" if near else f"allowed: {', '.join(keys)}"
        yield f"{where}.{key}: unknown key of DeepSpeed; {hint}"
    elif value == "auto":  # DeepSpeed chooses the value
        return
    elif isinstance(keys[key], dict):
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield from _key_problems(f"{where}.{key}", inner, inner_value, keys[key])
        elif value is not None:
            yield f"{where}.{key}: {value!r}; write a section with keys"
    else:
        try:
            parsed = TypeAdapter(keys[key]).validate_python(value)
        except ValidationError as error:
            wanted = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
            shown = "a section" if isinstance(value, dict) else repr(value)
            yield f"{where}.{key}: {shown}; allowed is {wanted}"
            return
        if isinstance(parsed, int) and abs(parsed) > MAX_INTEGER:
            yield f"{where}.{key}: {value!r}; allowed is at most {MAX_INTEGER}"
