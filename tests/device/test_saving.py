"""Saves from a device: host memory for their copy is page-locked, which takes more than it holds."""

from pathlib import Path

import torch

from tests.device.pseudo import DEVICE
from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import SmallEngine, engine, manager
from trainer.checkpoint import manager as checkpoint_manager
from trainer.checkpoint.shard import HostCopy
from trainer.ranks import host_memory
from trainer.ranks.distributed import World


def test_a_copy_is_counted_as_it_is_taken(tmp_path: Path) -> None:
    share = 3 * 4 * sum(SmallEngine(1).parameter_sizes().values())
    taken = 1 << share.bit_length()
    assert share < taken < 2 * share

    def task(world: World) -> None:
        SmallEngine.device = DEVICE
        # this torch has nothing to lock pages with
        vars(checkpoint_manager)["HostCopy"] = lambda size, _: HostCopy(size, torch.device("cpu"))
        checkpoints = manager(tmp_path, world)
        for step, left in ((1, 2 * taken - 1), (2, 2 * taken)):
            vars(host_memory)["available"] = lambda: left  # noqa: B023 (called at once)
            checkpoints.save(step, engine(step), {}, scores={}, wait=False)
            assert checkpoints.in_flight == (step == 2)
            outcome = checkpoints.commit()
            assert outcome is not None
            assert outcome.succeeded

    fork_ranks(1, task)
