"""`engine.zero_optimization` is held against the installed DeepSpeed, and wrong keys are named before a start."""

import re
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
    "setting",
    ["overlap_com=true", "xyzzy=1", "reduce_bucket_size=many", "reduce_bucket_size=0", "reduce_bucket_size=null",
     "reduce_bucket_size=18446744073709551616", "reduce_bucket_size.x=1", "contiguous_gradients=maybe",
     "leaf_module=1", "leaf_module.name=1", "leaf_module.names=5", "zenflow.topk_ratio=0.1", "cpu_offload_param=true",
     "zeropp_loco_param.err_beta=0.1", "zero_hpz_partition_size=8", "zero_hpz_partition_size=-1",
     "zero_quantized_weights=true", "overlap_comm=true", "legacy_stage1=true"],
)  # fmt: skip
def test_wrong_key_is_one_line(setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", ["engine.zero_stage=0", f"engine.zero_optimization.{setting}"])
    [line] = caught.value.problems
    assert line.startswith(f"engine.zero_optimization.{re.split('[.=]', setting)[0]}")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("zero_stage=2 zero_optimization.zero_hpz_partition_size=8", "zero_hpz_partition_size"),
        ("zero_stage=1 zero_optimization.overlap_comm=true", "overlap_comm"),
        ("zero_stage=1 zero_optimization.allgather_bucket_size=3", "allgather_bucket_size"),
        ("zero_stage=0 zero_optimization.compute_grad_norm=false", "compute_grad_norm"),
        ("zero_stage=2 zero_optimization.round_robin_gradients=true", "round_robin_gradients"),
        ("zero_stage=2 zero_optimization.compute_grad_norm=false", "compute_grad_norm"),
        ("zero_stage=3 device=cpu zero_optimization.zero_quantized_gradients=true", "zero_quantized_gradients"),
        (
            "zero_stage=3 zero_optimization.max_live_parameters=1 zero_optimization.stage3_max_live_parameters=2",
            "max_live_parameters",
        ),
    ],
)
def test_keys_that_other_settings_rule_out(settings: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", [f"engine.{setting}" for setting in settings.split()])
    assert any(line.startswith(f"engine.zero_optimization.{key}:") for line in caught.value.problems)


def test_without_a_norm_nothing_is_offloaded() -> None:
    settings = ["zero_stage=2", "offload_optimizer=true", "zero_optimization.compute_grad_norm=false"]
    with pytest.raises(ConfigError, match="compute_grad_norm: "):
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
    assert str(caught.value).startswith(f"engine.zero_optimization.zero_hpz_partition_size: {size} ")
    assert str(caught.value).endswith(f" {allowed}")


@pytest.mark.parametrize(
    "setting",
    ["reduce_bucket_size=5e8", "overlap_comm=false", "stage3_max_live_parameters=10", "max_live_parameters=10",
     "sub_group_size=auto", "leaf_module.names=a", "zenflow=null", "parameter_alignment=1"],
)  # fmt: skip
def test_what_deepspeed_takes_passes(setting: str) -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    given = load_run("debug", [f"engine.zero_optimization.{setting}"]).engine.zero_optimization
    DeepSpeedZeroConfig(**given)
