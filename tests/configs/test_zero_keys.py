"""`engine.zero_optimization` is held against the installed DeepSpeed, and wrong keys are named before a start."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from configs import ConfigError, UserError, load_run
from configs.zero_keys import KEYS, OWN, REMOVED, check_ranks


def _assert_same(keys: Mapping[str, Any], model: Any, left_out: set[str]) -> None:
    fields = {**model.model_fields, **{f.alias: f for f in model.model_fields.values() if f.alias}}
    assert set(keys) == set(fields) - left_out
    for name, ours in keys.items():
        theirs = fields[name]
        if isinstance(ours, dict):
            inner = next(
                t
                for t in (theirs.annotation, *getattr(theirs.annotation, "__args__", ()))
                if hasattr(t, "model_fields")
            )
            _assert_same(ours, inner, set())
        elif "leaf_module" not in model.__name__.lower() and not model.__name__.endswith("LeafModuleConfig"):
            annotated: Any = Annotated[theirs.annotation, *theirs.metadata] if theirs.metadata else theirs.annotation
            assert TypeAdapter(ours).json_schema() == TypeAdapter(annotated).json_schema(), name


def test_keys_are_those_of_the_installed_deepspeed() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    _assert_same(KEYS, DeepSpeedZeroConfig, {*OWN, *REMOVED, "zenflow"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["overlap_com=true"], "unknown key of DeepSpeed; did you mean engine.zero_optimization.overlap_c"),
        (["stage3_prefetch_bucketsize=1"], "did you mean engine.zero_optimization.stage3_prefetch_bucket_size?"),
        (["xyzzy=1"], "xyzzy: unknown key of DeepSpeed; allowed: contiguous_gradients, "),
        (["reduce_bucket_size=many"], "reduce_bucket_size: 'many'; allowed is a valid integer"),
        (["reduce_bucket_size=0"], "reduce_bucket_size: 0; allowed is greater than 0"),
        (["reduce_bucket_size=1.5"], "reduce_bucket_size: 1.5; allowed is a valid integer"),
        (["reduce_bucket_size=null"], "reduce_bucket_size: None; allowed is a valid integer"),
        (["reduce_bucket_size=18446744073709551616"], "allowed is at most 9223372036854775807"),
        (["reduce_bucket_size=[1]"], "reduce_bucket_size: [1]; allowed is a valid integer"),
        (["reduce_bucket_size.x=1"], "reduce_bucket_size: a section; allowed is a valid integer"),
        (["contiguous_gradients=maybe"], "contiguous_gradients: 'maybe'; allowed is a valid boolean"),
        (["leaf_module=1"], "leaf_module: 1; write a section with keys"),
        (["leaf_module.name=1"], "leaf_module.name: unknown key of DeepSpeed; did you mean"),
        (["zenflow.topk_ratio=0.1"], "zenflow: not supported: it updates some parameters"),
        (["leaf_module.names=5"], "leaf_module.names: 5; allowed is"),
        (["cpu_offload_param=true"], "cpu_offload_param: DeepSpeed removed it"),
        (["mics_shard_size=8"], "DeepSpeed removed it; instead use zero_hpz_partition_size, at stage 3"),
        (["mics_hierarchical_params_gather=true"], "instead use zero_hpz_partition_size, at stage 3"),
        (["mics_shards=8"], "mics_shards: unknown key of DeepSpeed; "),
        (["zeropp_loco_param.err_beta=0.1"], "instead use zero_quantized_gradients"),
        (["zero_hpz_partition=8"], "did you mean engine.zero_optimization.zero_hpz_partition_size?"),
        (["zero_hpz_partition_size=8"], "8 at zero_stage=0, where it does nothing; use it at stage 3"),
        (["zero_hpz_partition_size=-1"], "zero_hpz_partition_size: -1; allowed is greater than or equal to 0"),
        (["zero_quantized_weights=true"], "true at zero_stage=0, where it does nothing; use it at stage 3"),
        (["overlap_comm=true"], "overlap_comm: true at zero_stage=0; it works at stages 2 and 3"),
        (["legacy_stage1=true"], "legacy_stage1: true; DeepSpeed removed it; remove the key"),
        (["max_live_parameters=1", "stage3_max_live_parameters=2"], "another name for stage3_max_live_parameters"),
    ],
)  # fmt: skip
def test_wrong_key_is_one_line(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", ["engine.zero_stage=0", *(f"engine.zero_optimization.{s}" for s in settings)])
    [line] = caught.value.problems
    assert line.startswith("engine.zero_optimization.")
    assert said in line


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["zero_stage=2", "zero_optimization.zero_hpz_partition_size=8"], "engine.zero_optimization.zero_hpz_part"),
        (["zero_stage=1", "zero_optimization.overlap_comm=true"], "overlap_comm: true at zero_stage=1"),
        (["zero_stage=1", "zero_optimization.allgather_bucket_size=3"], "3; allowed is an even number"),
        (["zero_stage=0", "zero_optimization.compute_grad_norm=false"], "it works at stages 1 and 2"),
        (["zero_stage=2", "zero_optimization.round_robin_gradients=true"], "DeepSpeed write wrong weights"),
        (["zero_stage=2", "zero_optimization.compute_grad_norm=false"], "or optimizer.clip_norm=0"),
        (
            ["zero_stage=3", "device=cpu", "zero_optimization.zero_quantized_gradients=true"],
            "zero_quantized_gradients: true with device=cpu, for which DeepSpeed has no kernel; use GPUs",
        ),
    ],
)
def test_keys_that_other_settings_rule_out(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", [f"engine.{setting}" for setting in settings])
    assert any(said in line for line in caught.value.problems), caught.value.problems


def test_without_a_norm_nothing_is_offloaded() -> None:
    settings = ["zero_stage=2", "offload_optimizer=true", "zero_optimization.compute_grad_norm=false"]
    with pytest.raises(ConfigError, match="compute_grad_norm: false with offload_optimizer=true"):
        load_run("debug", ["optimizer.clip_norm=0", *(f"engine.{setting}" for setting in settings)])


@pytest.mark.parametrize(
    ("size", "ranks", "on_each", "allowed"),
    [
        (8, 64, 8, None),
        (4, 64, 8, None),
        (16, 64, 8, None),  # two machines each
        (8, 4, 4, None),  # DeepSpeed makes one group of all
        (1, 7, 7, None),
        (0, 7, 7, None),
        ("auto", 7, 7, None),
        ("4", 8, 8, None),
        (3, 8, 8, "1, 2, 4 or 8"),
        (8, 12, 4, "1, 2, 4 or 12"),
        (6, 24, 4, "1, 2, 4, 8, 12 or 24"),  # divides the ranks, and lies across machines
        (4, 6, 6, "1, 2, 3 or 6"),
        (8, 4_096, 8, None),
    ],
)
def test_groups_of_ranks_come_out_even(size: Any, ranks: int, on_each: int, allowed: str | None) -> None:
    keys = {"zero_hpz_partition_size": size}
    if allowed is None:
        check_ranks(keys, ranks=ranks, on_each=on_each)
        return
    with pytest.raises(UserError) as caught:
        check_ranks(keys, ranks=ranks, on_each=on_each)
    assert str(caught.value) == (
        f"engine.zero_optimization.zero_hpz_partition_size: {size} with {ranks} ranks, {on_each} on each machine; "
        f"allowed is {allowed}"
    )


@pytest.mark.parametrize(
    "setting",
    ["reduce_bucket_size=5e8", "overlap_comm=false", "stage3_max_live_parameters=10", "max_live_parameters=10",
     "sub_group_size=auto", "leaf_module.names=a", "zenflow=null", "parameter_alignment=1"],
)  # fmt: skip
def test_what_deepspeed_takes_passes(setting: str) -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    given = load_run("debug", [f"engine.zero_optimization.{setting}"]).engine.zero_optimization
    DeepSpeedZeroConfig(**given)
