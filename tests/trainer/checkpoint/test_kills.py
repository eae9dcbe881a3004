"""SIGKILL before every operation on files that a save makes, all of them found by watching one that is left alone.

Before every third or seventh, where a test is not marked slow.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.process import files
from tests.forked import KILLED, exit_codes, fork_ranks
from tests.trainer.checkpoint.operations import Operations
from tests.trainer.checkpoint.small_engine import SmallEngine, engine, leftovers, manager
from trainer.checkpoint.format import CheckpointError, read_checkpoint, verify
from trainer.ranks.distributed import World
from trainer.runs.layout import list_steps, step_folder

# The save of step 40 replaces a broken folder of step 40, and retention then removes 10, a broken 15 and 20.
SAVED = (10, 20, 30)
SCORES = {10: 1.0, 20: 2.0, 30: 1.0}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three complete checkpoints, two broken ones, and what a save that was cut off has left."""
    folder = tmp_path_factory.mktemp("template") / "checkpoints"

    def task(world: World) -> None:
        checkpoints = manager(folder, world, keep_last=9)
        for step in SAVED:
            checkpoints.save(step, engine(step), {"step": step}, scores={}, wait=True)

    fork_ranks(1, task)
    for step in (15, 40):
        broken = Path(shutil.copytree(folder / "step-00000010", folder / step_folder(step)))
        (broken / "manifest.json").unlink()
    (folder / "tmp-step-00000040").mkdir()
    (folder / "tmp-step-00000040" / "state.json").write_text("{}")
    return folder


def whole(folder: Path) -> list[int]:
    """Steps whose checkpoint is whole, every byte verified."""
    found = []
    for path in list_steps(folder):
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError:
            continue
        if not verify(checkpoint):
            found.append(checkpoint.manifest["step"])
            weights, averages = (dict(checkpoint.tensors(kind)) for kind in ("model", "ema"))
            for name, tensors in SmallEngine(checkpoint.manifest["step"]).tensors.items():
                assert weights[name].equal(tensors[0]), (path, name)
                assert not averages or averages[name].equal(tensors[-1]), (path, name)
    return sorted(found)


def resume_and_save(
    folder: Path,
    *,
    asynchronous: bool,
    keeps_ema: bool = False,
    watch: Callable[[World], Operations | None] = lambda _: None,
    then: int | None = None,
) -> Callable[[World], tuple[list[str], list[str]]]:
    """What each run does: go on from the newest checkpoint to step 40, and to one more.

    Returns:
        A rank's task, which gives the operations that were watched, and what they do not explain.
    """

    def task(world: World) -> tuple[list[str], list[str]]:
        checkpoints = manager(folder, world, asynchronous=asynchronous, keep_last=2)
        newest = checkpoints.newest()
        assert newest is not None
        assert newest.manifest["step"] in (30, 40)
        watched = watch(world)
        for step in (40, then):
            if step is not None and step > newest.manifest["step"]:
                checkpoints.save(step, engine(step, keeps_ema=keeps_ema), {"step": step}, scores=SCORES, wait=False)
                outcome = checkpoints.commit()
                assert outcome is not None
                assert outcome.succeeded
                assert sorted(whole(folder))[-1] == step
        checkpoints.close()
        return (watched.names, watched.unseen()) if watched is not None else ([], [])

    return task


@pytest.mark.parametrize(
    ("size", "rank", "asynchronous", "keeps_ema", "stride"),
    [
        (1, 0, True, True, 3),
        (1, 0, False, False, 7),
        (2, 0, True, True, 7),
        (2, 1, True, False, 3),
        pytest.param(1, 0, True, True, 1, marks=pytest.mark.slow),
        pytest.param(1, 0, False, True, 1, marks=pytest.mark.slow),
        pytest.param(2, 0, True, False, 1, marks=pytest.mark.slow),
        pytest.param(2, 1, True, False, 1, marks=pytest.mark.slow),
    ],
)
def test_kill_before_every_operation_of_a_save(
    size: int,
    rank: int,
    asynchronous: bool,
    keeps_ema: bool,
    stride: int,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel outlives a SIGKILL: hundreds of saves need not wait for the disk.
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def prepare(name: str, kill_before: int | None) -> tuple[Path, Callable[[World], tuple[list[str], list[str]]]]:
        folder = Path(shutil.copytree(template, tmp_path / name / "checkpoints"))

        def watch(world: World) -> Operations | None:
            if world.rank != rank:
                return None
            return Operations(folder, kill_before=kill_before, watch=kill_before is None)

        return folder, resume_and_save(folder, asynchronous=asynchronous, keeps_ema=keeps_ema, watch=watch)

    folder, task = prepare("undisturbed", None)
    operations, unseen = fork_ranks(size, task)[rank]
    print(*(f"{n:3} {name}" for n, name in enumerate(operations)), sep="\n")
    if size == 1:  # else the other rank changes the folder too
        assert unseen == []
    assert whole(folder) == [30, 40]
    assert any("/ema-" in name for name in operations) == keeps_ema

    went_back = 0
    for number in range(0, len(operations), stride):
        before = f"killed before {number}: {operations[number]}"
        folder, task = prepare(f"killed-{number}", number)
        assert exit_codes(size, task)[rank] == KILLED, before
        complete = whole(folder)
        assert len(complete) >= 2, before
        assert 30 in complete, before
        went_back += 40 not in complete
        task = resume_and_save(folder, asynchronous=asynchronous, keeps_ema=keeps_ema, then=50)
        assert exit_codes(size, task) == [0] * size, before
        assert whole(folder) == [40, 50], before
        assert leftovers(folder) == [], before
        assert (folder / "latest").read_text() == "step-00000050\n", before
        shutil.rmtree(folder.parent)
    before_rename = operations.index("os.rename tmp-step-00000040") + 1 if rank == 0 else len(operations)
    assert went_back == len(range(0, before_rename, stride)), "a save counts from its rename on, and not before"


def test_every_file_is_on_the_disk_before_what_depends_on_it(template: Path, tmp_path: Path) -> None:
    """A machine that loses its power keeps what was synced: files before the rename, the rename before the pointer."""
    folder = Path(shutil.copytree(template, tmp_path / "checkpoints"))
    task = resume_and_save(folder, asynchronous=True, watch=lambda _: Operations(folder, watch=True))
    [(done, _)] = fork_ranks(1, task)
    rename = done.index("os.rename tmp-step-00000040")
    for name in (p.name for p in (folder / "step-00000040").iterdir()):
        path = f"tmp-step-00000040/{name}"
        last_write = max(n for n, what in enumerate(done) if what == f"write {path}")
        synced = max(n for n, what in enumerate(done) if what == f"fsync {path}")
        assert last_write < synced < rename, name
        if not name.startswith("manifest"):
            assert synced < done.index("open tmp-step-00000040/manifest.json"), name
    assert done[rename - 2 : rename] == ["fsync tmp-step-00000040", "os.rename step-00000040"]
    point = next(n for n, what in enumerate(done) if what.startswith(f"os.rename {files.TEMPORARY}"))
    assert "fsync ." in done[rename:point]
    assert done.index(done[point].replace("os.rename", "fsync")) < point
    for step in (10, 15, 20):
        aside = done.index(f"os.rename step-{step:08d}")
        first_removal = next(
            n for n, what in enumerate(done) if what.startswith(f"os.remove tmp-delete-step-{step:08d}/")
        )
        assert "fsync ." in done[aside:first_removal], step
