"""Gradients in fp16 that are too small for it by themselves, and are kept by the loss scale."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.loss import CrossEntropy, OutputLayer
from tests.forked import Forked

SURE = 20.0
"""A logit, so that of the others' probabilities, some 2e-9 each, fp16 holds nothing."""
SCALE = 2.0**16


def sums_and_gradients(dtype: torch.dtype, scale: float) -> list[Tensor]:
    """Of hidden states and of the matrix, in fp32, divided by the scale."""
    layer = OutputLayer(4, 9, padding_id=0, bias=True)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(9, 4, generator=draw))
        assert layer.bias is not None
        layer.bias[5] = SURE
    layer.to(dtype)
    hidden = torch.randn(3, 4, generator=draw).to(dtype).requires_grad_()
    loss_sum, _ = layer(hidden, torch.full((3,), 5), CrossEntropy(0.0), None, lambda: torch.tensor(scale))
    (loss_sum * SCALE).backward()
    assert hidden.grad is not None
    assert layer.weight.grad is not None
    return [hidden.grad.float() / SCALE, layer.weight.grad.float() / SCALE]


def test_they_are_formed_times_the_scale() -> None:
    exact = sums_and_gradients(torch.float32, 1.0)
    assert max(float(x.abs().max()) for x in exact) < torch.finfo(torch.float16).tiny / 100
    for found, expected in zip(sums_and_gradients(torch.float16, SCALE), exact, strict=True):
        torch.testing.assert_close(found, expected, rtol=0.02, atol=float(expected.abs().max()) / 100)
    for found, expected in zip(sums_and_gradients(torch.float32, SCALE), exact, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def norms(stages: list[int]) -> list[list[float]]:
    """As the only rank, on the pseudo device: by stage, the norm in fp16 and in fp32."""
    from tests.device.accelerator import use_pseudo_device
    from trainer.ranks.distributed import World
    from trainer.ranks.process import tune_process

    tune_process()
    use_pseudo_device()
    world = World(timeout_minutes=2)
    found = [[_norm(stage, precision, world) for precision in ("fp16", "fp32")] for stage in stages]
    world.close()
    return found


def _norm(stage: Any, precision: Any, world: Any) -> float:
    from benchmarks.device.budget_model import make_objective
    from configs import EngineSection, RunConfig, preset_model
    from model import Objective
    from tests.device.counting import VOCABULARY
    from trainer.engines.batches import DeviceBatch
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    parts = {"attention": {"num_heads": 2}, "feed_forward": {"d_ff": 64}}
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, "output_bias": True}
    section = preset_model("vaswani_base", {**sizes, **parts})
    model = make_objective(section, VOCABULARY).model
    with torch.no_grad():
        assert model.output.bias is not None
        model.output.bias[5] = SURE
    engine = DeepSpeedEngine(
        Objective(model, CrossEntropy(0.0)).train(),
        section=EngineSection(zero_stage=stage),
        optimizer=RunConfig().optimizer,
        precision=precision,
        device=world.device,
    )
    ids = torch.full((2, 6), 5, device=world.device)
    engine.accumulate(DeviceBatch(source=ids, target_input=ids, target_output=ids), scale=0.5, is_last=True)
    result = engine.step(0.0)
    assert result.applied
    engine.close()
    return float(result.grad_norm)


@pytest.mark.slow
def test_an_engine_scales_them(forked: Forked, tmp_path: Path) -> None:
    [found] = forked.ranks(1, norms, [0, 1, 2, 3], meet=False, cwd=tmp_path)
    for half, full in found:
        assert 0 < full < 1e-5
        assert half == pytest.approx(full, rel=0.1)
