"""Every group of ranks has the time-out that is asked for, DeepSpeed's own too."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.distributed_c10d import _world

from configs import EngineSection, SupervisionSection, UserError
from configs.components import make
from model import Objective
from model.loss import CrossEntropy
from tests.forked import Forked
from tests.trainer.stability.engine_checks import random_batch, small_model
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.main import run
from trainer.ranks.distributed import World

MINUTES, CONTROL_MINUTES = 3.0, 5.0
SETTINGS: dict[str, dict[str, Any]] = {
    "0": {"zero_stage": 0},
    "1": {"zero_stage": 1},
    "2": {"zero_stage": 2},
    "2 beside the backward pass": {"zero_stage": 2, "zero_optimization": {"overlap_comm": True}},
    "3": {"zero_stage": 3},
    "3 with a second copy in each node": {"zero_stage": 3, "zero_optimization": {"zero_hpz_partition_size": 2}},
}


def minutes_now() -> list[float]:
    """The time-outs of this rank's groups."""
    options = [group._get_backend(torch.device("cpu")).options for group in _world.pg_map]
    return [option._timeout.total_seconds() / 60 for option in options]


def minutes_of_groups(setting: dict[str, Any]) -> tuple[int, list[float]]:
    """As a rank: how many groups there were before the engine, and the time-outs of all after an update of it."""
    world = World(timeout_minutes=MINUTES, control_minutes=CONTROL_MINUTES)
    num_before = len(_world.pg_map)
    engine = DeepSpeedEngine(
        Objective(small_model(), CrossEntropy(0.1)).train(),
        section=EngineSection(communication_timeout_minutes=MINUTES, **setting),
        optimizer=make("optimizer", "adamw"),
        precision="bf16",
        device=world.device,
    )
    engine.accumulate(random_batch(world.rank), scale=0.01, is_last=True)
    engine.step(1e-3)
    minutes = minutes_now()
    world.close()
    return num_before, minutes


@pytest.mark.parametrize("name", SETTINGS)
def test_time_outs(name: str, forked: Forked, tmp_path: Path) -> None:
    for num_before, minutes in forked.ranks(2, minutes_of_groups, SETTINGS[name], cwd=tmp_path, meet=False):
        assert len(minutes) > num_before, "DeepSpeed has made no group: this test says nothing"
        assert minutes == [MINUTES, CONTROL_MINUTES, *[MINUTES] * (len(minutes) - 2)]


LIMITS = [field.name for field in fields(SupervisionSection)]


def minutes_where(longest: str) -> list[float]:
    """As the only rank of a run, refused when it has its groups: their time-outs, where one limit is the longest."""
    limits = [f"supervision.{name}={CONTROL_MINUTES if name == longest else 1}" for name in LIMITS]
    with pytest.raises(UserError, match=r"^--from: "):
        run("debug", [f"engine.communication_timeout_minutes={MINUTES}", *limits], parent="none")
    return minutes_now()


@pytest.mark.parametrize("longest", [*LIMITS, "none of them"])
def test_ranks_wait_for_the_longest_activity_of_another(longest: str, forked: Forked, tmp_path: Path) -> None:
    expected = CONTROL_MINUTES if longest in LIMITS else MINUTES
    assert forked.ranks(1, minutes_where, longest, cwd=tmp_path, meet=False) == [[MINUTES, expected]]
