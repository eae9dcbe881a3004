"""The real engine on 1, 2 and 4 ranks at every stage, against the plan."""

from pathlib import Path
from typing import Any

import pytest

from configs import RunConfig
from model.parameters import Vocabularies, parameters
from tests.forked import Forked
from tests.zeromt.planning.engine_bytes import CASES, SECTION, SLOTS, VOCABULARY, Case, measure_all
from zeromt.planning.costs.communication import communication_volume
from zeromt.planning.costs.memory import MemoryModel, Setting
from zeromt.planning.costs.model_states import Layout, model_states

VOCABULARIES = Vocabularies(source=VOCABULARY, target=VOCABULARY)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_bytes_that_are_held_and_sent(size: int, forked: Forked, tmp_path: Path) -> None:
    off = []
    for rank, measured in enumerate(forked.ranks(size, measure_all, cwd=tmp_path, seconds=850)):
        for case, found in zip(CASES, measured, strict=True):
            pairs = {(part, 0): pair for part, pair in _held(case, size, rank, found).items()}
            if size > 1:
                pairs |= {(part, 100): pair for part, pair in _sent(case, size, found).items()}  # flags and norms
            off += [
                (case, rank, part, planned, real)
                for (part, few), (planned, real) in pairs.items()
                if real != pytest.approx(planned, rel=0.03, abs=few)
            ]
    assert off == []


def _held(case: Case, size: int, rank: int, found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Planned and measured bytes by part; device and host together, which on a CPU are the same."""
    layout = Layout(
        parameters(SECTION, VOCABULARIES),
        case.engine_section(),
        precision=case.precision,
        world_size=size,
        rank=rank,
        num_moments=2 + case.keeps_ema,
    )
    states = model_states(layout)
    return {
        "weights": (states.weights, found["rest"]["weights"]),
        "weights in use": (states.weights + states.live_weights, found["live"]),
        "gradients": (states.gradients + states.host_gradients, found["gradients"]),
        "optimizer": (states.optimizer + states.host_optimizer, found["rest"]["optimizer"]),
    }


def _sent(case: Case, size: int, found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Planned and measured bytes that went into collectives during an update."""
    model = MemoryModel(RunConfig(engine=case.engine_section(), model=SECTION), VOCABULARIES, precision=case.precision)
    setting = Setting(stage=case.stage, offload=case.offload, checkpointing=False)
    planned, sent = communication_volume(model, setting, world_size=size, num_slots=SLOTS), found["sent"]
    return {
        "reduced": (planned.all_reduced, sent["all_reduce"]),
        "gathered": (planned.gathered, sent["all_gather_into_tensor"] + sent["all_gather"]),
        "scattered": (planned.scattered, sent["reduce_scatter_tensor"] + sent["reduce_scatter"]),
    }
