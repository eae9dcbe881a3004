"""`engine.zero_optimization` is held against the installed DeepSpeed, and wrong keys are named before a start."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from configs import ConfigError, load_run
from configs.zero_keys import KEYS, OWN, REMOVED


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

    _assert_same(KEYS, DeepSpeedZeroConfig, {*OWN, *REMOVED})


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
        (["zenflow=1"], "zenflow: 1; allowed is a section with keys"),
        (["zenflow.topk=1"], "zenflow.topk: unknown key of DeepSpeed; did you mean"),
        (["leaf_module.names=5"], "leaf_module.names: 5; allowed is"),
        (["cpu_offload_param=true"], "cpu_offload_param: DeepSpeed removed it"),
        (["compute_grad_norm=false"], "compute_grad_norm: false at zero_stage=0; allowed at stages 1 and 2"),
    ],
)  # fmt: skip
def test_wrong_key_is_one_line(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", ["engine.zero_stage=0", *(f"engine.zero_optimization.{s}" for s in settings)])
    [line] = caught.value.problems
    assert line.startswith("engine.zero_optimization.")
    assert said in line


@pytest.mark.parametrize(
    "setting",
    ["reduce_bucket_size=5e8", "overlap_comm=false", "stage3_max_live_parameters=10", "max_live_parameters=10",
     "sub_group_size=auto", "leaf_module.names=a", "zenflow=null", "round_robin_gradients=1"],
)  # fmt: skip
def test_what_deepspeed_takes_passes(setting: str) -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    given = load_run("debug", [f"engine.zero_optimization.{setting}"]).engine.zero_optimization
    DeepSpeedZeroConfig(**given)
