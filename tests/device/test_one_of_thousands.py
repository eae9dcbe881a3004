"""The engine as the last of 4,096 ranks: torch's `fake` process group answers for the others, which are not there.

Shapes, padding, shards and what is built for each rank are real; values mean nothing.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import EngineSection, RunConfig
from tests.device.counting import MICRO_BATCHES, SECTION, VOCABULARY
from tests.forked import Forked

SIZE = 4096
UPDATES = 2
HPZ = "zero_hpz_partition_size"
SHARED_OUT = {"stage3_param_persistence_threshold": 0}
"""Else stage 3 keeps all of so small a model whole."""
NODE = 8


@dataclasses.dataclass(kw_only=True, frozen=True)
class Case:
    """The last of some ranks."""

    stage: Any
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)
    size: int = SIZE
    on_device: bool = False
    """On the pseudo device, where what overlaps has streams; there a view, of which stage 3 makes one for each rank
    whenever it gathers a parameter, takes a hundred times as long as on the CPU."""


CASES = {
    "0": Case(stage=0),
    "2 beside the backward pass": Case(stage=2, keys={"overlap_comm": True}, on_device=True),
    "3": Case(stage=3, keys=SHARED_OUT),
    "3 with a copy on each node": Case(
        stage=3, keys={**SHARED_OUT, HPZ: NODE, "overlap_comm": True}, size=4 * NODE, on_device=True
    ),
}


def as_one_of_many(case: Case) -> dict[str, Any]:
    """Build the engine, make two updates and gather all parameters with their states."""
    from deepspeed.utils import groups

    from benchmarks.device.budget_counts import lone_rank
    from benchmarks.device.budget_model import make_objective
    from trainer.engines.batches import DeviceBatch
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    world = lone_rank(case.size - 1, case.size, on_device=case.on_device)
    engine = DeepSpeedEngine(
        make_objective(dataclasses.replace(SECTION, encoder_layers=1, decoder_layers=1), VOCABULARY),
        section=EngineSection(zero_stage=case.stage, zero_optimization=case.keys),
        optimizer=RunConfig().optimizer,
        precision="bf16",
        device=world.device,
    )
    ids = torch.full((3, 7), 5).to(world.device)
    batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
    parameters: list[Any] = list(engine._model.parameters())
    applied, copies = [], []
    for _ in range(UPDATES):
        for slot in range(MICRO_BATCHES):
            engine.accumulate(batch, scale=1e-3, is_last=slot == MICRO_BATCHES - 1)
        if HPZ in case.keys:
            copies = [p.ds_secondary_tensor.numel() for p in parameters]
        applied.append(engine.step(1e-4).applied)
    shapes = engine.parameter_shapes()
    states = {state.name: (state.weight, state.moments) for state in engine.parameter_states()}
    moments = {name: {key: tuple(t.shape) for key, t in (kept or {}).items()} for name, (_, kept) in states.items()}
    return {
        "applied": applied,
        "shapes": shapes,
        "weights": {name: tuple(weight.shape) for name, (weight, _) in states.items()},
        "moments": moments,
        "held": sum(t.numel() for s in engine._states.optimizer.state.values() for t in s.values() if t.ndim > 0),
        "shares": [p.ds_tensor.numel() for p in parameters] if case.stage == 3 else [],
        "copies": copies,
        "node": groups._get_zero_param_intra_parallel_group_ranks() if copies else [],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_last_of_4096_ranks_trains(name: str, forked: Forked, tmp_path: Path) -> None:
    case = CASES[name]
    [found] = forked.ranks(1, as_one_of_many, case, cwd=tmp_path, meet=False)
    assert found["applied"] == [True] * UPDATES
    assert found["weights"] == found["shapes"]
    assert found["moments"] == {
        name: dict.fromkeys(("exp_avg", "exp_avg_sq"), shape) for name, shape in found["shapes"].items()
    }
    sizes = [math.prod(shape) for shape in found["shapes"].values()]
    if case.stage == 3:
        assert found["shares"] == [math.ceil(size / case.size) for size in sizes]
        assert found["held"] == 2 * sum(found["shares"])
    else:  # the last shard of what is cut at once, and filled up; in bf16 stage 0 is stage 1
        assert 0 < found["held"] <= 2 * sum(sizes) / case.size + 4 * len(sizes)
    if HPZ in case.keys:
        assert list(found["node"]) == list(range(case.size - NODE, case.size))
        assert found["copies"] == [math.ceil(size / case.size) * case.size // NODE for size in sizes]
