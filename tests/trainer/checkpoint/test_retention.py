"""What is kept: as a table, by property, and on a disk."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import engine, leftovers, manager
from trainer.checkpoint.retention import remove_leftovers, steps_to_keep
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
    assert steps_to_keep(steps, scores, last=last, best=best, every=every) == kept


@given(
    st.sets(st.integers(0, 1000)),
    st.dictionaries(st.integers(0, 1000), st.floats(0, 100)),
    st.integers(2, 5),
    st.integers(0, 3),
    st.integers(0, 50),
)
def test_kept_steps_are_there_and_keeping_twice_changes_nothing(
    steps: set[int], scores: dict[int, float], last: int, best: int, every: int
) -> None:
    kept = steps_to_keep(steps, scores, last=last, best=best, every=every)
    assert kept <= steps
    assert kept >= set(sorted(steps)[-last:])
    assert kept >= {s for s in steps if every and s % every == 0}
    assert len(kept - set(sorted(steps)[-last:]) - {s for s in steps if every and s % every == 0}) <= best
    assert steps_to_keep(kept, scores, last=last, best=best, every=every) == kept
    if best and (scored := {s: scores[s] for s in steps if s in scores}):
        assert any(scores[s] == max(scored.values()) for s in kept if s in scored)


def test_on_a_disk_broken_ones_count_for_nothing(tmp_path: Path) -> None:
    """Found broken or without a manifest, they take no whole one's place, and stay until a whole one is newer."""
    folder = tmp_path / "run" / "checkpoints"

    def save(world: World, last: int, *steps: int) -> None:
        checkpoints = manager(folder, world, keep_last=last)
        checkpoints.newest()
        for step in steps:
            checkpoints.save(step, engine(step), {}, scores={1: 9.0}, wait=False)
            checkpoints.commit()

    def steps() -> list[int | None]:
        return [step_of(p) for p in list_steps(folder)]

    fork_ranks(1, lambda world: save(world, 9, 1, 2, 3, 4, 8))
    (folder / "step-00000004" / "manifest.sha256").unlink()
    (folder / "step-00000008" / "state.json").write_text("{}")
    fork_ranks(1, lambda world: save(world, 2, 5))
    assert steps() == [8, 5, 3]
    fork_ranks(1, lambda world: save(world, 2, 6, 7, 8, 9))
    assert steps() == [9, 8]
    assert leftovers(folder) == []


def test_a_kill_while_a_step_is_replaced_loses_nothing(tmp_path: Path) -> None:
    replaced, step = tmp_path / "tmp-replaced-step-00000004", tmp_path / "step-00000004"
    for name in ("only one", "the new one"):
        replaced.mkdir()
        (replaced / "state.json").write_text("before")
        remove_leftovers(tmp_path)
        assert (step / "state.json").read_text() == ("before" if name == "only one" else "after")
        (step / "state.json").write_text("after")
        assert leftovers(tmp_path) == []
