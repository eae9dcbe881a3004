"""Other parameters are trained from some update on: as in plain PyTorch, whose AdamW counts steps by parameter."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from configs import EngineSection
from configs.components import make
from model import Objective, Transformer
from model.loss import CrossEntropy
from tests.forked import Forked
from tests.trainer.stability.engine_checks import TOKENS, random_batch, small_model
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.retraining import retrain
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision

UPDATES, RATE, EMA = 5, 3e-3, 0.3
"""Updates of a phase, and what each is made with."""
OPTIMIZER = {"weight_decay": 0.1, "clip_norm": 0.5, "eps": 1e-3}
PHASES = (("encoder.",), ("source_embedding.", "decoder.layers.0.feed_forward."), (), ("encoder.",))
"""What is frozen: the encoder begins after 5 updates, the embedding rests for 5, and the encoder rests in the end."""


def is_frozen(name: str, phase: int) -> bool:
    return name.startswith(PHASES[phase]) if PHASES[phase] else False


def objective() -> Objective:
    return Objective(small_model(), CrossEntropy(0.1)).train()


def trained_in(phase: int, begun: dict[str, int]) -> dict[str, int]:
    """Since when; `begun` is brought up to the phase."""
    for name, _ in small_model().named_parameters():
        if is_frozen(name, phase):
            begun.pop(name, None)
        else:
            begun.setdefault(name, UPDATES * phase)
    return dict(begun)


def engines(world: World, stage: int, precision: Precision) -> dict[str, Any]:
    """Weights and averages in the end, of an engine; what of its weights was changed by a change of phase."""
    begun: dict[str, int] = {}
    engine = DeepSpeedEngine(
        objective(),
        section=EngineSection(zero_stage=stage),  # type: ignore[arg-type]
        optimizer=make("optimizer", "adamw", **OPTIMIZER),
        precision=precision,
        device=world.device,
        ema_decay=EMA,
        trained=trained_in(0, begun),
    )
    first = {state.name: state.weight.clone() for state in engine.parameter_states()}
    shapes = engine.parameter_shapes()
    engine.load_moments(
        lambda name: dict.fromkeys(("exp_avg", "exp_avg_sq"), torch.zeros(shapes[name])),
        first.__getitem__,
        first.__getitem__,
        num_steps=0,
    )
    changed, kept = [], []
    for phase in range(len(PHASES)):
        if phase:
            before = {state.name: state.weight.clone() for state in engine.parameter_states()}
            retrain(engine, objective(), trained_in(phase, begun), num_steps=UPDATES * phase)
            after = {state.name: state for state in engine.parameter_states()}
            changed += [name for name, weight in before.items() if not torch.equal(after[name].weight, weight)]
            kept.append(sorted(name for name, state in after.items() if state.moments))
        for update in range(UPDATES):
            batch = random_batch(UPDATES * phase + update)
            engine.accumulate(batch, scale=1 / (TOKENS * world.size), is_last=True)
            assert engine.step(RATE).applied
    states = {state.name: state for state in engine.parameter_states()}
    found = {"weights": {name: state.weight for name, state in states.items()}, "changed": changed, "kept": kept}
    found["ema"] = {name: state.ema for name, state in states.items()}
    engine.close()
    return found


def plain() -> Transformer:
    """The same in plain PyTorch: whatever is not asked for has no gradient, and loses its state."""
    model = small_model().train()
    named = dict(model.named_parameters())
    adamw = torch.optim.AdamW(
        [{"params": [p], "lr": RATE, "weight_decay": 0.1 * (p.ndim > 1)} for p in named.values()],
        betas=(0.9, 0.98),
        eps=OPTIMIZER["eps"],
    )
    for update in range(UPDATES * len(PHASES)):
        batch, phase = random_batch(update), update // UPDATES
        hidden = model(batch.source, batch.target_input)
        logits = F.linear(hidden, model.output.weight, model.output.bias).flatten(0, 1)
        targets = batch.target_output.flatten()
        loss = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum") / TOKENS
        model.zero_grad()
        torch.autograd.backward(loss)
        for name, p in named.items():
            if is_frozen(name, phase):
                p.grad = None
                adamw.state.pop(p, None)
        torch.nn.utils.clip_grad_norm_([p for p in named.values() if p.grad is not None], OPTIMIZER["clip_norm"])
        adamw.step()
    return model


SOME, ALL = [(0, "bf16"), (3, "fp32")], list(itertools.product(range(4), ("fp32", "bf16")))


def each(world: World, cases: list[tuple[int, Precision]]) -> list[dict[str, Any]]:
    return [engines(world, *case) for case in cases]


@pytest.mark.parametrize("cases", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
def test_as_in_plain_pytorch(cases: list[tuple[int, Precision]], forked: Forked, tmp_path: Path) -> None:
    ranks = forked.ranks(2, each, cases, cwd=tmp_path)
    expected = dict(plain().named_parameters())
    for (_, precision), one, other in zip(cases, *ranks, strict=True):
        assert one["changed"] == other["changed"] == [], "a change of what is trained leaves weights to the bit"
        for number, names in enumerate(one["kept"], 1):
            assert names == sorted(name for name in expected if not is_frozen(name, number))
        worst = max(float((one["weights"][name] - p.detach()).abs().max()) for name, p in expected.items())
        assert worst < (1e-5 if precision == "fp32" else 2e-2)
        assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in expected)
        assert all(torch.equal(one["ema"][n], one["weights"][n]) == is_frozen(n, 3) for n in expected)
