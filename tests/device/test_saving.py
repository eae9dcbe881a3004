"""Saves from a device: host memory for their copy is page-locked, which takes more than it holds."""

from pathlib import Path

import torch

from tests.device.pseudo import DEVICE
from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import Saving, SmallEngine
from trainer.checkpoint import save
from trainer.ranks.distributed import World


def test_a_copy_is_counted_as_it_is_taken(tmp_path: Path) -> None:
    share = 3 * 4 * sum(SmallEngine().parameter_sizes().values())
    taken = 1 << share.bit_length()
    assert share < taken < 2 * share

    def task(world: World) -> None:
        SmallEngine.device = DEVICE
        empty = torch.empty
        vars(torch)["empty"] = lambda *size, pin_memory: empty(*size)  # this torch has nothing to lock pages with
        saving = Saving(tmp_path / "run", world)
        for step, left in ((1, 2 * taken - 1), (2, 2 * taken)):
            vars(save)["available_memory"] = lambda: left  # noqa: B023 (called at once)
            saving.begin(step)
            assert saving.saver.in_flight == (step == 2)
            saving.saver.commit()
            assert saving.events[-1]["succeeded"]

    fork_ranks(1, task)
