"""Gradients in fp16 that are too small for it by themselves, and are kept by the loss scale."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from model.loss import CrossEntropy
from tests.forked import Forked


def norms(stages: Sequence[Any]) -> list[tuple[float, float]]:
    """As the only rank, on the pseudo device: by stage, the norm in fp16 and in fp32."""
    from benchmarks.device.budget_model import make_objective
    from configs import EngineSection, RunConfig
    from tests.device.accelerator import use_pseudo_device
    from tests.device.counting import SECTION, VOCABULARY
    from trainer.engines.batches import DeviceBatch
    from trainer.engines.deepspeed.engine import DeepSpeedEngine
    from trainer.ranks.distributed import World

    use_pseudo_device()
    world = World(timeout_minutes=2)
    section = dataclasses.replace(SECTION, encoder_layers=1, decoder_layers=1, dropout=0.0, output_bias=True)

    def norm(stage: Any, precision: Any) -> float:
        objective: Any = make_objective(section, VOCABULARY)
        objective.loss = CrossEntropy(0.0)
        with torch.no_grad():
            objective.model.output.bias[5] = 20.0  # of the others' probabilities, some 2e-9 each, fp16 holds nothing
        engine = DeepSpeedEngine(
            objective,
            section=EngineSection(zero_stage=stage),
            optimizer=RunConfig().optimizer,
            precision=precision,
            device=world.device,
        )
        ids = torch.full((2, 6), 5, device=world.device)
        engine.accumulate(DeviceBatch(source=ids, target_input=ids, target_output=ids), scale=0.5, is_last=True)
        result = engine.step(0.0)
        engine.close()
        return float(result.grad_norm)

    by_stage = [(norm(stage, "fp16"), norm(stage, "fp32")) for stage in stages]
    world.close()
    return by_stage


@pytest.mark.parametrize("stages", [[1], pytest.param([0, 2, 3], marks=pytest.mark.slow)], ids=str)
def test_an_engine_scales_them(stages: list[int], forked: Forked, tmp_path: Path) -> None:
    [by_stage] = forked.ranks(1, norms, stages, meet=False, cwd=tmp_path)
    for half, full in by_stage:
        assert 0 < full < 1e-5
        assert half == pytest.approx(full, rel=0.1)
