"""Saving with and without stopping: the same bytes, and failures that cost nothing."""

from pathlib import Path

import pytest
import torch

from tests.trainer.checkpoint.forked import SmallEngine, contents, engine, fork_ranks, leftovers, manager
from trainer.checkpoint.format import read_checkpoint, verify
from trainer.distributed import World


@pytest.mark.parametrize("size", [1, 2, 5])
def test_both_ways_give_the_same_bytes(size: int, tmp_path: Path) -> None:
    def task(world: World) -> None:
        for name, asynchronous, wait in (("a", True, False), ("b", False, False), ("c", True, True)):
            checkpoints = manager(tmp_path / name, world, asynchronous=asynchronous)
            for step, has_moments in ((1, False), (2, True), (3, True)):
                checkpoints.save(step, engine(step, has_moments=has_moments), {"step": step}, scores={}, wait=wait)
                assert checkpoints.in_flight == (name == "a")
                outcome = checkpoints.commit()
                assert outcome is not None
                assert (outcome.step, outcome.succeeded, outcome.problem) == (step, True, None)
                assert 0 < outcome.stopped_seconds <= outcome.seconds
                assert checkpoints.commit() is None
                assert not checkpoints.in_flight
                assert checkpoints.is_written
            checkpoints.close()

    assert fork_ranks(size, task) == [0] * size
    first, *others = [contents(tmp_path / name / "step-00000003") for name in "abc"]
    assert all(first == other for other in others)
    assert len(first) == 2 * size + 5
    assert leftovers(tmp_path / "a") == []
    checkpoint = read_checkpoint(tmp_path / "a" / "step-00000003")
    assert verify(checkpoint) == []
    weights, moments = dict(checkpoint.tensors("model")), checkpoint.stored("optimizer")
    for name, (weight, mean, square) in SmallEngine(3).tensors.items():
        assert torch.equal(weights[name], weight)
        assert torch.equal(moments[f"exp_avg/{name}"], mean)
        assert torch.equal(moments[f"exp_avg_sq/{name}"], square)
