"""The memory of a run for every setting; tests of a GPU hold its peak."""

import pytest
import torch

from benchmarks.common.child import call
from benchmarks.device.memory import peak
from configs import load_run
from model.flops import Vocabularies
from zeromt.planning.memory import MemoryModel, Setting, settings

VOCABULARIES = Vocabularies(source=32_000, target=32_000)
ALL = list(settings(load_run("wmt_base")))


def model(run: str = "wmt_base", *overrides: str) -> MemoryModel:
    return MemoryModel(load_run(run, overrides), VOCABULARIES, precision="bf16")


def test_settings_come_in_order_and_are_allowed() -> None:
    assert [str(s) for s in ALL[:5]] == ["ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-0 + checkpointing"]
    assert len(ALL) == 14
    checkpointed = settings(load_run("wmt_base", ["model.activation_checkpointing=true"]))
    assert all(one.checkpointing for one in checkpointed)
    offloaded = settings(load_run("wmt_base", ["engine.offload_optimizer=true", "engine.zero_stage=1"]))
    assert all(one.offload for one in offloaded)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("preset", ["vaswani_base", "vaswani_big", "nllb_600m"])
def test_peak_of_a_gpu(preset: str, stage: int) -> None:
    """torch's own peak over two updates of two micro-batches on one GPU in bf16."""
    tokens, length = 8192, 64
    measured = call(peak, preset=preset, stage=stage, tokens=tokens, length=length, vocabulary=VOCABULARIES.target)
    planned = model("wmt_base", f"preset={preset}", "prepare.max_pieces=255", "evaluation.every_updates=0")
    setting = Setting(stage=stage, offload=False, checkpointing=False)
    memory = planned.memory(
        setting, world_size=1, source_tokens=tokens, target_tokens=tokens, num_rows=tokens // length
    )
    assert memory.peak == pytest.approx(measured["peak"], rel=0.1), memory
