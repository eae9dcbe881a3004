"""What DeepSpeed is told."""

from pathlib import Path
from typing import Any, Literal

import pytest

from configs import EngineSection, UserError
from tests.conftest import Corpus, environment
from tests.forked import Forked
from trainer.engines.deepspeed.config import check_keys, deepspeed_config


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
    ("stage", "keys", "said"),
    [
        (
            1,
            {"overlap_com": True},
            "overlap_com: there is no key of DeepSpeed 'overlap_com'; did you mean overlap_comm?",
        ),
        (1, {"reduce_bucket_size": "many"}, "reduce_bucket_size: 'many'; Input should be a valid integer"),
        (1, {"leaf_module": {"names": 5}}, "leaf_module.names"),
        (1, {"stage": 2}, "stage: 2; give engine.zero_stage"),
        (2, {"round_robin_gradients": True}, "round_robin_gradients: True; DeepSpeed would write wrong weights"),
        (3, {"compute_grad_norm": False}, ": {"),
        (2, {"compute_grad_norm": False}, "compute_grad_norm: false, which optimizer.clip_norm=1.0 needs"),
        (3, {"zero_hpz_partition_size": 4}, "zero_hpz_partition_size: 4 with 12 ranks, 6 on each machine"),
        (3, {"zero_quantized_weights": True}, "zero_quantized_weights: true, and DeepSpeed quantizes on GPUs alone"),
        (3, {"zero_hpz_partition_size": 8}, "zero_hpz_partition_size: 8 with 12 ranks"),
    ],
    ids=str,
)
def test_keys_that_deepspeed_or_a_run_cannot_have(stage: Literal[1, 2, 3], keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        check_keys(
            EngineSection(zero_stage=stage, zero_optimization=keys), clip_norm=1.0, ranks=12, on_each=6, is_host=True
        )
    assert str(caught.value).startswith("engine.zero_optimization")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_that_deepspeed_takes() -> None:
    keys = {"reduce_bucket_size": 5e8, "sub_group_size": "auto", "leaf_module": {"names": ["a"]}, "overlap_comm": None}
    for size in (1, 2, 3, 6, 12):
        section = EngineSection(zero_stage=3, zero_optimization={**keys, "zero_hpz_partition_size": size})
        check_keys(section, clip_norm=1.0, ranks=12, on_each=6)


def test_a_dry_run_asks_torch_and_deepspeed(corpus_en_fr: Corpus, tmp_path: Path, forked: Forked) -> None:
    overrides = ("debug", *corpus_en_fr.overrides)
    dry = ("launch", "local", *overrides, "engine.zero_optimization.xyzzy=1", "--dry-run", "--nproc", "1")
    for done, said in (
        (
            forked.zeromt(*dry, cwd=tmp_path, surroundings=environment()),
            "engine.zero_optimization.xyzzy: there is no key of DeepSpeed 'xyzzy'",
        ),
        (
            forked.trainer(1, *overrides, "training.freeze=['encodr.*']", "--check", cwd=tmp_path),
            "training.freeze: 'encodr.*' matches no parameter",
        ),
    ):
        assert done.code == 2
        [line] = done.err.splitlines()
        assert line.startswith(f"zeromt: error: {said}")
    assert not list(tmp_path.iterdir())
