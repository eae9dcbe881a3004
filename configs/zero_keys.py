"""What DeepSpeed takes in `zero_optimization`, checked without importing it, and before any rank starts.

The names, types and bounds are those of `deepspeed.runtime.zero.config.DeepSpeedZeroConfig`, 0.19; a test holds them
against the version that is installed. A key that DeepSpeed does not know ended every rank, after all of its imports.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from configs.errors import UserError
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
    "mics_shard_size": "zero_hpz_partition_size, at stage 3",
    "mics_hierarchical_params_gather": "zero_hpz_partition_size, at stage 3",
    "zeropp_loco_param": "zero_quantized_gradients, without its error feedback",
}
"""What DeepSpeed dropped or is about to drop, with what to use in its place."""
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
"""The type of each key; of a section in it, its own keys."""
HPZ = "zero_hpz_partition_size"
QUANTIZED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")
AT_STAGE_3_ALONE = (HPZ, *QUANTIZED)
"""What is asked for and would be missed; other keys of stage 3 do no harm elsewhere, and stay when a stage is tried."""


def zero_problems(given: Mapping[str, Any], stage: int, *, offload: bool = False) -> Iterator[str]:
    """What is wrong with `zero_optimization`, one line each.

    Args:
        given: its keys.
        stage: `engine.zero_stage`.
        offload: `engine.offload_optimizer`.
    """
    for key, value in given.items():
        if key in OWN:
            yield (
                f"zero_optimization.{key}: set by this project; "
                "allowed in its place is engine.zero_stage or engine.offload_optimizer"
            )
        elif key in REMOVED:
            yield f"zero_optimization.{key}: DeepSpeed removed it; allowed in its place is {REMOVED[key]}"
        elif key == "zenflow":
            if value is not None:
                yield (
                    "zero_optimization.zenflow: updates some parameters in other steps than those of the trainer; "
                    "allowed in its place is engine.offload_optimizer"
                )
        else:
            yield from _key_problems("zero_optimization", key, value, KEYS)
    for name in _STAGE_3:
        if name in given and f"stage3_{name}" in given:
            yield f"zero_optimization.{name}: is stage3_{name} by another name; allowed is one of them"
    for problem in _contradictions({key: value_of(given, key) for key in given}, stage, offload):
        yield f"zero_optimization.{problem}"


def _contradictions(given: Mapping[str, Any], stage: int, offload: bool) -> Iterator[str]:
    """What cannot be had together, or at this stage: DeepSpeed raises an error, or says nothing and does nothing."""
    if stage < 2 and given.get("overlap_comm"):
        yield f"overlap_comm: true at zero_stage={stage}; allowed at stages 2 and 3"
    if given.get("legacy_stage1"):
        yield "legacy_stage1: true; DeepSpeed removed it; allowed is false"
    if given.get("compute_grad_norm") is False:
        if stage not in (1, 2):
            yield f"compute_grad_norm: false at zero_stage={stage}; allowed at stages 1 and 2"
        elif offload:
            yield "compute_grad_norm: false with offload_optimizer=true; allowed is one of them"
    if stage in (1, 2) and (given.get("allgather_bucket_size") or 0) % 2:
        yield f"allgather_bucket_size: {given['allgather_bucket_size']}; allowed is an even number"
    if stage in (1, 2) and given.get("round_robin_gradients"):
        yield "round_robin_gradients: true, with which DeepSpeed gives checkpoints wrong weights; allowed is false"
    if stage < 3:
        for key in (key for key in AT_STAGE_3_ALONE if (given.get(key) or 0) > (key == HPZ)):
            yield f"{key}: {_yaml(given[key])} at zero_stage={stage}, where it does nothing; allowed at stage 3"


def check_ranks(given: Mapping[str, Any], *, ranks: int, on_each: int) -> None:
    """Refuse keys of `zero_optimization` that so many ranks cannot have.

    Args:
        given: the keys; nothing is wrong with them by themselves.
        ranks: of the job.
        on_each: of its machines.

    Raises:
        UserError: groups of `zero_hpz_partition_size` ranks would not come out even, or lie across machines.
    """
    size = min(value_of(given, HPZ) or 1, ranks)  # DeepSpeed makes one group where there are fewer
    if ranks % size or (on_each % size and size % on_each):
        allowed = [n for n in range(1, ranks + 1) if not (ranks % n or (on_each % n and n % on_each))]
        raise UserError(
            f"engine.zero_optimization.{HPZ}: {size} with {ranks} ranks, {on_each} on each machine; "
            f"allowed is {', '.join(map(str, allowed[:-1]))}{' or ' if allowed[1:] else ''}{allowed[-1]}"
        )


def needs_quantizer(given: Mapping[str, Any]) -> str | None:
    """A key that DeepSpeed needs its CUDA kernels for, which it compiles as it starts; None where there is none."""
    return next((key for key in QUANTIZED if value_of(given, key)), None)


def by_deepspeeds_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under the names that our own settings have: of a key under two names DeepSpeed takes one value."""
    return {f"stage3_{key}" if key in _STAGE_3 else key: value for key, value in given.items()}


def value_of(given: Mapping[str, Any], key: str) -> Any:
    """What DeepSpeed reads under a key; None where there is nothing, or nothing that it takes."""
    value = given.get(key)
    try:
        return None if value in ("auto", None) else TypeAdapter(KEYS[key]).validate_python(value)
    except (KeyError, TypeError, ValidationError):
        return None


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            yield f"{where}.{key}: {value!r}; write a section with keys"
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
