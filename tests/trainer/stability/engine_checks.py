"""What the engine does at every stage and precision, as seen by a rank: `cases` of any number, `alone` of one."""

import gc
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

CASES: list[tuple[int, Precision]] = [(stage, precision) for stage in range(4) for precision in ("fp32", "bf16")]
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
    found: dict[str, list[Any]] = {}
    for p in engine.parameter_states():
        averages = [] if p.ema is None else [p.ema]
        found[p.name] = [t.clone() for t in (p.weight, *(p.moments or {}).values(), *averages)]
    found["steps"] = [float(s["step"]) for s in engine._states.optimizer.state.values()]
    return found


def same(a: dict[str, list[Any]], b: dict[str, list[Any]]) -> bool:
    return all(
        len(a[key]) == len(b[key])
        and all(
            torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(a[key], b[key], strict=True)
        )
        for key in a.keys() | b.keys()
    )


def tries(stage: int, precision: Precision, world: World) -> dict[str, Any]:
    """Whether shapes that are tried leave no trace, in this update or the next ones."""
    untouched, tried = make_engine(stage, precision, world), make_engine(stage, precision, world)
    weights = {p.name: p.weight.clone() for p in tried.parameter_states()}
    tried.try_shapes([(1, 1, 1)])
    tried.try_shapes([(2, 3, 5), (16, 2, 3), (1, 30, 40)])
    same_weights = all(torch.equal(p.weight, weights[p.name]) for p in tried.parameter_states())
    losses = train(untouched, world, updates=3), train(tried, world, updates=3)
    refused = False
    try:
        tried.try_shapes([(1, 1, 1)])
    except AssertionError:
        refused = True
    return {
        "same_weights": same_weights,
        "same_losses": losses[0] == losses[1],
        "same_states": same(everything(untouched), everything(tried)),
        "learns": losses[1][-1] < losses[1][0],
        "refused_later": refused,
    }


def closes(stage: int, world: World) -> float:
    """Fraction of an engine's memory that is still taken after it was closed."""
    before = live_bytes()
    engine = make_engine(stage, "bf16", world)
    train(engine, world, updates=1)
    within = live_bytes()
    engine.close()
    del engine
    gc.collect()
    return (live_bytes() - before) / (within - before)


def live_bytes() -> int:
    """Of all tensors."""
    gc.collect()
    storages = [o.untyped_storage() for o in gc.get_objects() if isinstance(o, torch.Tensor)]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def bf16_accumulates_in_fp32(stage: int, world: World) -> float:
    """How far the moments after 32 micro-batches of one update are from the sum in fp32, relative to the largest."""
    found = []
    precisions: tuple[Precision, ...] = ("bf16", "fp32")
    for precision in precisions:
        engine = make_engine(stage, precision, world)
        train(engine, world, updates=1, micro_batches=32)
        found.append({p.name: p.moments["exp_avg"].clone() for p in engine.parameter_states() if p.moments})
        engine.close()
    ours, exact = found
    names = [name for name in exact if name.endswith("weight") and "norm" not in name]
    errors = [float((ours[n] - exact[n]).norm() / exact[n].norm()) for n in names]
    return sum(errors) / len(errors)


def fp16_losses(world: World) -> dict[str, Any]:
    """fp16 at every stage on a CPU, which DeepSpeed would refuse: it says no to precision, not to arithmetic.

    Norms are of weights that do not change, losses of training: there Adam's first steps are of the gradients' signs,
    and fp16's roundings soon tell weights apart.
    """
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    accelerator.is_fp16_supported = lambda: True
    found: dict[str, Any] = {}
    for stage in range(4):
        engine = make_engine(stage, "fp16", world)
        losses, norms, scales = [], [], [engine.loss_scale]
        for rate, update in [(rate, update) for rate in (0.0, 3e-3) for update in range(8)]:
            out = engine.accumulate(random_batch(update), scale=1 / (TOKENS * world.size), is_last=True)
            result = engine.step(rate)
            losses.append(float(out.loss_sum) / TOKENS)
            if not rate:
                norms.append(float(result.grad_norm))
        engine.set_fp16_state({"scale": 128.0, "since": 0, "hysteresis": 1})
        scales.append(engine.loss_scale)
        found[str(stage)] = {"losses": losses, "norms": norms, "scales": scales}
        engine.close()
    return found


def cases(world: World) -> dict[str, Any]:
    """What is looked at on any number of ranks."""
    return {f"{stage} {precision}": tries(stage, precision, world) for stage, precision in CASES}


def alone(world: World) -> dict[str, Any]:
    """What is the same on any number of ranks."""
    return {
        "closes": {str(stage): closes(stage, world) for stage in (1, 3)},
        "fp32_sums": {str(stage): bf16_accumulates_in_fp32(stage, world) for stage in (0, 2)},
        "fp16": fp16_losses(world),
    }
