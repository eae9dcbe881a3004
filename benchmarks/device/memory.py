"""Peak GPU memory while the real engine trains."""

from typing import Any

import torch

from configs import EngineSection, RunConfig, preset_model
from model import Objective, SpecialIds, build_transformer
from model.loss import CrossEntropy
from trainer.engines.batches import DeviceBatch
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.ranks.distributed import World


def peak(*, preset: str, stage: int, tokens: int, length: int, vocabulary: int) -> dict[str, Any]:
    """Peak bytes of torch's allocator over two updates of two micro-batches in bf16, on one rank.

    Args:
        preset: preset of the model.
        stage: ZeRO stage.
        tokens: padded tokens per side of a micro-batch.
        length: length of every sentence.
        vocabulary: vocabulary size.
    """
    world = World(timeout_minutes=2)
    model = build_transformer(
        preset_model(preset, {}),
        source_vocab_size=vocabulary,
        target_vocab_size=vocabulary,
        special=SpecialIds(pad=0, bos=1, eos=2),
        seed=1,
    )
    engine = DeepSpeedEngine(
        Objective(model, CrossEntropy(0.1)).train(),
        section=EngineSection(zero_stage=stage),  # type: ignore[arg-type]
        optimizer=RunConfig().optimizer,
        precision="bf16",
        device=world.device,
    )
    torch.cuda.reset_peak_memory_stats()
    ids = torch.full((tokens // length, length), 5, device=world.device)
    batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
    for _ in range(2):
        for is_last in (False, True):
            engine.accumulate(batch, scale=1 / tokens, is_last=is_last)
        engine.step(1e-4)
    figures = {"peak": torch.cuda.max_memory_allocated()}
    engine.close()
    world.close()
    return figures
