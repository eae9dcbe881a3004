"""What DeepSpeed is told."""

from typing import Literal

import pytest

from configs import EngineSection
from trainer.engines.deepspeed.config import deepspeed_config
from trainer.ranks.precision import Precision


def test_golden_zero_2_in_bf16() -> None:
    section = EngineSection(zero_stage=2, plain_deepspeed=True)
    config = deepspeed_config(section, precision="bf16", clip_norm=0.5, world_size=4)
    assert config == {
        "train_batch_size": 4,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.5,
        "zero_optimization": {
            "stage": 2,
            "reduce_bucket_size": 50_000_000,
            "allgather_bucket_size": 50_000_000,
            "reduce_scatter": False,
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
        "wall_clock_breakdown": False,
        "timers": {"throughput": {"enabled": False}},
        "bf16": {"enabled": True},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
    }


def test_users_zero_keys_pass_through() -> None:
    section = EngineSection(
        zero_stage=3, offload_optimizer=True, zero_optimization={"reduce_bucket_size": 7, "overlap_comm": True}
    )
    zero = deepspeed_config(section, precision="fp32", clip_norm=0.0, world_size=1)["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["reduce_bucket_size"] == 7
    assert zero["overlap_comm"] is True
    assert zero["offload_optimizer"] == {"device": "cpu"}


@pytest.mark.parametrize("name", ["prefetch_bucket_size", "stage3_prefetch_bucket_size"])
def test_a_key_by_its_other_name_replaces_ours(name: str) -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    section = EngineSection(zero_stage=3, zero_optimization={name: 7})
    zero = deepspeed_config(section, precision="fp32", clip_norm=0.0, world_size=1)["zero_optimization"]
    assert DeepSpeedZeroConfig(**zero).prefetch_bucket_size == 7


@pytest.mark.parametrize(
    ("stage", "precision", "clipped"),
    [(0, "fp32", 0.0), (0, "bf16", 0.5), (0, "fp16", 0.5), (1, "fp32", 0.0), (3, "fp32", 0.5)],
)
def test_who_clips(stage: Literal[0, 1, 3], precision: Precision, clipped: float) -> None:
    """At stage 0 in fp32, at 1 and 2, the engine, by the norm that it takes for itself."""
    config = deepspeed_config(EngineSection(zero_stage=stage), precision=precision, clip_norm=0.5, world_size=2)
    assert config["gradient_clipping"] == clipped
