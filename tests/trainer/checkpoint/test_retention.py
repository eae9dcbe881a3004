"""What is kept: as a table, and on a disk."""

from pathlib import Path

import pytest

from configs import CheckpointSection
from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import Saving, leftovers
from trainer.checkpoint.newest import find_newest, remove_leftovers, steps_to_keep
from trainer.ranks.distributed import World
from trainer.runs.layout import list_steps, step_of


@pytest.mark.parametrize(
    ("steps", "scores", "last", "best", "every", "kept"),
    [
        ([], {}, 2, 1, 0, set()),
        ([10], {}, 2, 1, 0, {10}),
        ([10, 20, 30], {}, 2, 0, 0, {20, 30}),
        ([30, 10, 20], {10: 5.0, 20: 1.0}, 2, 1, 0, {10, 20, 30}),
        ([10, 20, 30, 40], {10: 5.0, 20: 5.0}, 2, 1, 0, {20, 30, 40}),  # of equals the newer
        ([10, 20, 30, 40], {5: 9.0, 10: 5.0}, 2, 1, 0, {10, 30, 40}),  # the best of those that are there
        ([10, 20, 30, 40, 50], {}, 2, 2, 20, {20, 40, 50}),
        ([5, 10, 15, 20], {5: -1.0, 10: -2.0}, 2, 2, 7, {5, 10, 15, 20}),
    ],
)
def test_table(steps: list[int], scores: dict[int, float], last: int, best: int, every: int, kept: set[int]) -> None:
    section = CheckpointSection(keep_last=last, keep_best=best, keep_every=every)
    assert steps_to_keep(steps, scores, section) == kept


def test_on_a_disk_broken_ones_count_for_nothing(tmp_path: Path) -> None:
    """Found broken or without a manifest, they take no whole one's place, and stay until a whole one is newer."""
    folder = tmp_path / "checkpoints"

    def save(world: World, last: int, *steps: int) -> list[int | None]:
        _, refused = find_newest(folder, world)
        Saving(tmp_path, world, refused=sorted(refused), keep_last=last).save(*steps)
        return [step_of(path) for path in list_steps(folder)]

    fork_ranks(1, lambda world: save(world, 9, 1, 2, 3, 4, 8))
    (folder / "step-00000004" / "manifest.sha256").unlink()
    (folder / "step-00000008" / "state.json").write_text("{}")
    assert fork_ranks(1, lambda world: save(world, 2, 5)) == [[8, 5, 3]]
    assert fork_ranks(1, lambda world: save(world, 2, 6, 7, 8, 9)) == [[9, 8]]
    assert leftovers(folder) == []


def test_a_kill_while_a_step_is_replaced_loses_nothing(tmp_path: Path) -> None:
    replaced, step = tmp_path / "tmp-replaced-step-00000004", tmp_path / "step-00000004"
    for content in ("before", "after"):
        replaced.mkdir()
        (replaced / "state.json").write_text("before")
        remove_leftovers(tmp_path)
        assert (step / "state.json").read_text() == content
        (step / "state.json").write_text("after")
        assert leftovers(tmp_path) == []
