"""A small engine of any stage and precision, updates of it, and all that they change."""

from typing import Any

import torch

from configs import EngineSection
from configs.components import make
from model import Objective, SpecialIds, Transformer, build_transformer
from model.loss import CrossEntropy
from tests.model.flat import section_of
from trainer.engines.batches import DeviceBatch
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision

VOCABULARY = 100
TOKENS = 8 * 12
EMA_DECAY = 0.5
"""From the ninth update on; before, it is (1 + t) / (10 + t)."""


def small_model() -> Transformer:
    return build_transformer(
        section_of(d_model=16, num_heads=2, d_ff=32, encoder_layers=1, decoder_layers=1, max_positions=64, dropout=0),
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        special=SpecialIds(pad=0, bos=1, eos=2),
        seed=1,
    )


def make_engine(
    stage: int, precision: Precision, world: World, *, offload: bool = False, times: float = 1.0
) -> DeepSpeedEngine:
    """An engine, whose parameters are `times` as large as at other times."""
    model = small_model()
    for parameter in model.parameters():
        parameter.data.mul_(times)
    return DeepSpeedEngine(
        Objective(model, CrossEntropy(0.1)).train(),
        section=EngineSection(zero_stage=stage, offload_optimizer=offload),  # type: ignore[arg-type]
        optimizer=make("optimizer", "adamw", weight_decay=0.1),
        precision=precision,
        device=world.device,
        ema_decay=EMA_DECAY,
    )


def random_batch(seed: int) -> DeviceBatch:
    draw = torch.Generator().manual_seed(seed)
    source = torch.randint(3, VOCABULARY, (8, 10), generator=draw)
    target = torch.randint(3, VOCABULARY, (8, 12), generator=draw)
    return DeviceBatch(source=source, target_input=target, target_output=target)


def train(engine: DeepSpeedEngine, world: World, *, updates: int, micro_batches: int = 2) -> list[float]:
    """Losses of some updates; every rank has the same micro-batches."""
    losses = []
    for update in range(updates):
        total = 0.0
        for slot in range(micro_batches):
            batch = random_batch(100 * update + slot)
            scale = 1 / (TOKENS * micro_batches * world.size)
            total += float(engine.accumulate(batch, scale=scale, is_last=slot == micro_batches - 1).loss_sum)
        assert engine.step(3e-3).applied
        losses.append(total / (TOKENS * micro_batches))
    return losses


def full_weights(engine: DeepSpeedEngine) -> dict[str, torch.Tensor]:
    """In fp64, without the moments that `parameter_states` fetches as well."""
    return {name: engine._stage.weight(p).double() for name, p in engine._model.named_parameters()}


def everything(engine: DeepSpeedEngine) -> dict[str, list[Any]]:
    """All that an update changes: weights, masters, moments, averages, step counters."""
    states: dict[str, list[Any]] = {}
    for p in engine.parameter_states():
        averages = [] if p.ema is None else [p.ema]
        states[p.name] = [t.clone() for t in (p.weight, *(p.moments or {}).values(), *averages)]
    states["steps"] = [float(s["step"]) for s in engine._states.optimizer.state.values()]
    return states


def same(a: dict[str, list[Any]], b: dict[str, list[Any]]) -> bool:
    return all(
        len(a[key]) == len(b[key])
        and all(
            torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a[key], b[key], strict=True)
        )
        for key in a.keys() | b.keys()
    )
