"""Updates on which the device decides: those on which the host does, and a NaN changes nothing."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.forked import Forked

CASES = [(stage, precision) for precision in ("bf16", "fp32", "fp16") for stage in range(3)]
QUICK = [(0, "fp32"), (1, "bf16"), (2, "fp16")]
NAN_AT = 3
UPDATES = 6


def both(cases: list[tuple[int, str]]) -> dict[tuple[int, str], tuple[dict[str, Any], dict[str, Any]]]:
    """As a rank on the pseudo device, by case: what comes out late, and at once."""
    from tests.device.accelerator import use_pseudo_device
    from trainer.ranks.distributed import World

    use_pseudo_device()
    on_device = World(timeout_minutes=2)
    by_case = {
        case: (_train(*case, on_device, is_late=True), _train(*case, on_device, is_late=False)) for case in cases
    }
    on_device.close()
    return by_case


def _train(stage: Any, precision: Any, world: Any, *, is_late: bool) -> dict[str, Any]:
    import dataclasses

    from benchmarks.device.budget_model import make_objective
    from configs import EngineSection
    from configs.components import make
    from tests.device.counting import SECTION, VOCABULARY
    from tests.device.meter import metered
    from trainer.engines.batches import DeviceBatch
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    torch.manual_seed(1)
    # norms are far above 0.02; with a small eps, gradients that are zero but for rounding (a key's bias) would move
    # weights by whole steps
    engine = DeepSpeedEngine(
        make_objective(dataclasses.replace(SECTION, dropout=0.0, encoder_layers=1, decoder_layers=1), VOCABULARY),
        section=EngineSection(zero_stage=stage, fp16_initial_scale_power=8),
        optimizer=make("optimizer", "adamw", clip_norm=0.02, eps=1e-4),
        precision=precision,
        device=world.device,
        ema_decay=0.5,
    )
    assert engine._stage.can_be_late
    engine._stage.can_be_late = is_late
    if precision == "fp16":  # a scale that grows after two updates and is halved at once
        scaler = engine._stage.scaler
        scaler.scale_window, scaler.delayed_shift = 2, 1
    dice = torch.Generator().manual_seed(world.rank)
    results, waits, queued, states, scales = [], [], [], [], []
    for update in range(UPDATES):
        is_hit = update == NAN_AT and world.rank == world.size - 1
        ids = torch.randint(3, VOCABULARY, (3, 7), generator=dice).to(world.device)
        batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
        with metered() as meter:
            engine.accumulate(batch, scale=math.nan if is_hit else 1e-2, is_last=True)
            results.append(engine.step(1e-3))
        waits.append(meter.waits.total())
        queued.append(min(meter.queued, default=0))
        scales.append(engine.loss_scale)  # that of this update, or, if it was made at once, the next one's
        if update >= NAN_AT - 1:
            states.append(_state(engine))
    outcome = {
        "applied": [r.applied for r in results],
        "norms": [float(r.grad_norm) for r in results],
        "waits": waits,
        "queued": queued,
        "scales": scales,
        "last_scale": engine.loss_scale,
        "states": states,
        "steps": {float(state["step"]) for state in engine._states.optimizer.state.values()},
    }
    engine.close()
    return outcome


def _state(engine: Any) -> dict[str, Tensor]:
    """Weights, moments and averages, whole, in fp32, on the host."""
    parts = {s.name: {"weight": s.weight, "ema": s.ema, **s.moments} for s in engine.parameter_states()}
    return {f"{name}/{key}": part.cpu().clone() for name, of in parts.items() for key, part in of.items()}


@pytest.mark.parametrize(("num_ranks", "cases"), [(1, QUICK), pytest.param(2, CASES, marks=pytest.mark.slow)])
def test_the_device_decides_as_the_host_does(
    num_ranks: int, cases: list[tuple[int, str]], forked: Forked, tmp_path: Path
) -> None:
    ranks = forked.ranks(num_ranks, both, cases, cwd=tmp_path, meet=False, seconds=280)
    for rank, case in itertools.product(ranks, cases):
        late, at_once = rank[case]
        assert late["applied"] == at_once["applied"] == [update != NAN_AT for update in range(UPDATES)]
        assert late["waits"][2:] == [0] * (UPDATES - 2), "the first shows the optimizer's states"
        assert min(at_once["waits"]) >= 1
        assert late["last_scale"] == at_once["last_scale"]
        if case[1] == "fp16":
            assert late["scales"][2:] == at_once["scales"][1:-1], "the loss scale is read within the next pass"
            changes = [now / before for before, now in itertools.pairwise([*late["scales"], late["last_scale"]])]
            assert {0.5, 2.0} <= set(changes), late["scales"]
            assert min(late["queued"][2:]) > 40, "behind its kernels forward"
        assert late["steps"] == at_once["steps"] == {UPDATES - 1}
        finite = [update for update in range(UPDATES) if update != NAN_AT]
        assert [late["norms"][i] for i in finite] == pytest.approx([at_once["norms"][i] for i in finite], rel=1e-5)
        assert not math.isfinite(late["norms"][NAN_AT])
        before, after, *_ = late["states"]
        assert all(torch.equal(before[name], after[name]) for name in before), "a NaN changed something"
        torch.testing.assert_close(late["states"], at_once["states"], rtol=1e-4, atol=1e-6)
        assert not all(torch.equal(after[name], late["states"][-1][name]) for name in after)
