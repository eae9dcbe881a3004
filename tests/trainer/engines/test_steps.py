"""Steps that are changed in DeepSpeed, under its other settings: the same updates, and those with NaN refused."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from configs import EngineSection
from configs.components import make
from model import Objective
from model.loss import CrossEntropy
from tests.forked import Forked
from tests.trainer.stability.engine_checks import TOKENS, everything, full_weights, random_batch, same, small_model
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.update_sizes import UpdateSizes, ratios, stride_of
from trainer.ranks.distributed import World

Stage = Literal[0, 1, 2, 3]
PLAIN = "plain"
"""In place of keys of `zero_optimization`: DeepSpeed unchanged."""
SETTINGS: dict[str, tuple[Stage, bool, dict[str, Any]]] = {
    "0": (0, False, {}),
    "2": (2, False, {}),
    "2 beside the backward pass": (2, False, {"overlap_comm": True}),
    "2 in a buffer": (2, False, {"contiguous_gradients": True}),
    "2 in small buckets": (2, False, {"reduce_bucket_size": 300}),
    "2 by reduce-scatter": (2, False, {"reduce_scatter": True, "contiguous_gradients": True}),
    "2 without a norm": (2, False, {"compute_grad_norm": False}),
    "2 offloaded": (2, True, {}),
    "1": (1, False, {}),
    "1 offloaded": (1, True, {}),
    "0 unchanged": (0, False, {PLAIN: True}),
    "1 unchanged": (1, False, {PLAIN: True}),
    "2 unchanged": (2, False, {PLAIN: True}),
    "2 unchanged, offloaded": (2, True, {PLAIN: True}),
    "3": (3, False, {}),
    "3 in small buckets": (3, False, {"reduce_bucket_size": 300}),
    "3 offloaded": (3, True, {}),
    # the last: DeepSpeed keeps the groups for whatever engine the process makes next
    "3 with a second copy": (3, False, {"zero_hpz_partition_size": 2}),
}

MOST_ELEMENTS = (1 << 24, 1000)
"""All weights, and every tenth or so of the matrices."""
LARGEST_DIFFERENCE = 1e-4
"""Of weights that moved by up to 0.02."""


def found_under(setting: tuple[Stage, bool, dict[str, Any]], world: World) -> dict[str, Any]:
    """Weights after three updates, of which the middle one has a NaN on the last rank alone."""
    stage, offload, keys = setting
    engine = DeepSpeedEngine(
        Objective(small_model(), CrossEntropy(0.1)).train(),
        section=EngineSection(
            zero_stage=stage,
            offload_optimizer=offload,
            plain_deepspeed=PLAIN in keys,
            zero_optimization={} if PLAIN in keys else keys,
        ),
        optimizer=make("optimizer", "adamw", clip_norm=0.0 if "compute_grad_norm" in keys else 0.05),
        precision="bf16",
        device=world.device,
        world_size=world.size,
    )
    results, states = [], []
    for update in range(3):
        for slot in range(2):
            is_hit = update == 1 and slot == 0 and world.rank == world.size - 1
            scale = math.nan if is_hit else 1 / (2 * TOKENS * world.size)
            engine.accumulate(random_batch(10 * update + slot + world.rank), scale=scale, is_last=slot == 1)
        weights = full_weights(engine)
        sizes = [UpdateSizes(engine, most_elements=most) for most in MOST_ELEMENTS]
        results.append(engine.step(1e-2))
        shown = [ratios(world.sum_floats(one.compared().sums())) for one in sizes]
        states.append(everything(engine))
    before, weights = weights, full_weights(engine)
    engine.close()
    norms = [r.grad_norm for r in results if r.applied]
    return {
        "applied": [r.applied for r in results],
        "unchanged": same(states[0], states[1]),
        "norms": [math.nan if n is None else float(n) for n in norms],
        "weights": weights,
        "shown": shown,
        "moved": [moved(before, weights, most) for most in MOST_ELEMENTS],
    }


def moved(before: Mapping[str, Tensor], after: Mapping[str, Tensor], most: int) -> dict[str, float]:
    """How far a step moved each part, of whole weights; every k-th of a large parameter where they are too many."""
    stride = -(-sum(w.numel() for w in after.values()) // most)
    sums: dict[str, list[float]] = {}
    for name, weight in after.items():
        each = stride_of(weight.shape, stride)
        now, then = weight.flatten()[::each], before[name].flatten()[::each]
        both = sums.setdefault(name.split(".")[0].replace("source_embedding", "embeddings"), [0.0, 0.0])
        both[0] += each * float((now - then).square().sum())
        both[1] += each * float(now.square().sum())
    return {part: math.sqrt(change / whole) for part, (change, whole) in sums.items()}


def under_all(world: World) -> dict[str, Any]:
    return {name: found_under(setting, world) for name, setting in SETTINGS.items()}


@pytest.fixture(scope="module")
def found(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return forked.ranks(2, under_all, cwd=tmp_path_factory.mktemp("steps"), seconds=280)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_nan_is_refused_and_forgotten(found: list[dict[str, Any]], name: str) -> None:
    for rank in found:
        assert rank[name]["applied"] == [True, False, True]
        assert rank[name]["unchanged"]
        assert all(torch.isfinite(weight).all() for weight in rank[name]["weights"].values())


@pytest.mark.parametrize("name", [name for name in SETTINGS if "without a norm" not in name])
def test_the_updates_are_the_same(found: list[dict[str, Any]], name: str) -> None:
    for rank in found:
        one, other = rank[name], rank["3 offloaded" if name[0] == "3" else "2 unchanged"]
        assert one["norms"] == pytest.approx(other["norms"], rel=1e-3)
        assert min(one["norms"]) > 0.05, "all are clipped"
        off = max(float((one["weights"][key] - other["weights"][key]).abs().max()) for key in one["weights"])
        assert off < LARGEST_DIFFERENCE, off


@pytest.mark.parametrize("name", SETTINGS)
def test_how_far_a_step_moves_a_part_is_that_of_whole_weights(found: list[dict[str, Any]], name: str) -> None:
    for rank in found:
        for shown, moved, of_stage_2 in zip(rank[name]["shown"], rank[name]["moved"], rank["2"]["moved"], strict=True):
            assert shown.keys() == {"embeddings", "encoder", "decoder"}
            assert shown == pytest.approx(moved, rel=1e-4)
            assert shown == pytest.approx(of_stage_2, rel=0.05 if "without a norm" in name else 1e-2)
            assert min(shown.values()) > 1e-3
        every, some = rank[name]["moved"]
        assert some != pytest.approx(every, rel=1e-4), "some are left out"
        assert some == pytest.approx(every, rel=0.2), "of 400 weights a part"


@pytest.mark.parametrize(
    ("shape", "least", "stride"),
    [((8000, 256), 8, 9), ((10, 27), 3, 4), ((50, 210), 2, 11), ((256,), 8, 1), ((4, 4), 1, 1)],
)
def test_every_column_is_looked_at(shape: tuple[int, ...], least: int, stride: int) -> None:
    assert stride_of(shape, least) == stride
    columns = {i % shape[-1] for i in range(0, math.prod(shape), stride)}
    assert len(columns) == shape[-1]
