"""What an update sends, by stage: kinds of collectives, bytes and order, as one of eight ranks on the fake group."""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import EngineSection, RunConfig
from tests.device.counting import MICRO_BATCHES, SECTION, VOCABULARY
from tests.forked import Forked
from trainer.ranks.precision import Precision
from zeromt.planning.costs.model_states import ELEMENT

pytestmark = pytest.mark.slow
SIZE = 8
KINDS = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor", "all_gather_into_tensor", "all_gather", "broadcast")
BACKWARD, BETWEEN, STEP = "in DeepSpeed's backward", "after it", "in the step"


@dataclasses.dataclass(kw_only=True, frozen=True)
class Case:
    """How the engine is set."""

    stage: Any
    precision: Precision = "bf16"
    in_backward: bool = True
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES = {
    "0": Case(stage=0),
    "1 in small buckets": Case(stage=1, keys={"reduce_bucket_size": 5000}),
    "1 after the backward pass": Case(stage=1, in_backward=False),
    "2 in fp32": Case(stage=2, precision="fp32"),
    "2 after the backward pass": Case(stage=2, in_backward=False),
}


def sent_by(case: Case) -> tuple[list[tuple[str, str, int]], list[int]]:
    """When, how and how many bytes the second update sends; and the sizes of the parameters."""
    from benchmarks.device.budget_counts import lone_rank
    from benchmarks.device.budget_model import make_objective
    from trainer.engines.deepspeed import engine as engines
    from trainer.engines.protocol import DeviceBatch

    world = lone_rank(3, SIZE, on_device=False)
    engines._make_collectives_fast = lambda: None  # it asks the others
    sent: list[tuple[str, str, int]] = []
    moment = [STEP]

    def counting(kind: str, collective: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, (torch.Tensor, list))]
            sides = [sum(t.nbytes for t in (value if isinstance(value, list) else [value])) for value in given]
            sent.append((moment[0], kind, max(sides)))
            return collective(*args, **kwargs)

        return counted

    for kind in KINDS:  # DeepSpeed takes some of them when it starts
        setattr(torch.distributed, kind, counting(kind, getattr(torch.distributed, kind)))
    engine = engines.DeepSpeedEngine(
        make_objective(dataclasses.replace(SECTION, encoder_layers=2, decoder_layers=2), VOCABULARY),
        section=EngineSection(zero_stage=case.stage, zero_optimization=case.keys, reduce_in_backward=case.in_backward),
        optimizer=RunConfig().optimizer,
        precision=case.precision,
        device=world.device,
        world_size=world.size,
    )
    backward = engine._engine.backward

    def noting(*args: Any, **kwargs: Any) -> None:
        moment[0] = BACKWARD
        backward(*args, **kwargs)
        moment[0] = BETWEEN

    engine._engine.backward = noting
    ids = torch.full((3, 7), 5)
    batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
    for _ in range(2):
        sent.clear()
        for slot in range(MICRO_BATCHES):
            engine.accumulate(batch, scale=1e-3, is_last=slot == MICRO_BATCHES - 1)
        moment[0] = STEP
        assert engine.step(1e-4).applied
    return sent, [math.prod(shape) for shape in engine.parameter_shapes().values()]


def summed(sent: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """With those of one kind that follow one another as one."""
    groups = itertools.groupby(sent, key=lambda one: one[:2])
    return [(moment, kind, sum(size for *_, size in group)) for (moment, kind), group in groups]


@pytest.mark.parametrize("name", CASES)
def test_what_an_update_sends(name: str, forked: Forked, tmp_path: Path) -> None:
    case = CASES[name]
    [(sent, sizes)] = forked.ranks(1, sent_by, case, cwd=tmp_path, meet=False)
    gradients, weights = 4 * sum(sizes), ELEMENT[case.precision] * sum(sizes)
    few = 4 * SIZE * len(sent)
    """For each rank that has nothing of a bucket a number; and what fills up a group."""
    norm, gathered = (STEP, "all_reduce", 8), (STEP, "all_gather_into_tensor", pytest.approx(weights, abs=few))
    times = MICRO_BATCHES if case.stage == 2 else 1
    reduced = (BACKWARD, "reduce_scatter", pytest.approx(times * gradients, abs=few))
    all_reduced = (STEP if case.stage < 2 else BACKWARD, "all_reduce", times * gradients)
    if case.stage == 0:
        assert summed(sent) == [all_reduced]
    elif case.in_backward:
        assert summed(sent) == [reduced, norm, gathered]
        num_reduced = sum(kind == "reduce_scatter" for _, kind, _ in sent)
        assert num_reduced == times * (12 if case.keys else 2), "vectors, and the matrices in one or many buckets"
    elif case.stage == 1:
        assert summed(sent) == [(*all_reduced[:2], gradients + 8), gathered]
    else:
        assert summed(sent) == [all_reduced, norm, gathered]
