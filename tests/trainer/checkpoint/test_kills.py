"""SIGKILL before every operation on files that a save makes, all of them found by watching one that is left alone.

Before every third or seventh, where a test is not marked slow.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.process import files
from tests.conftest import contents
from tests.forked import KILLED, exit_codes, fork_ranks
from tests.trainer.checkpoint.operations import Operations
from tests.trainer.checkpoint.small_engine import Saving, SmallEngine, leftovers
from trainer.checkpoint.format import CheckpointError, read_whole
from trainer.checkpoint.newest import find_newest
from trainer.ranks.distributed import World
from trainer.runs.layout import list_steps, step_folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three complete checkpoints, two broken ones, and what a save that was cut off has left.

    The save of step 40 replaces a broken folder of step 40, and retention then removes 10, a broken 15 and 20.
    """
    run = tmp_path_factory.mktemp("template")
    fork_ranks(1, lambda world: Saving(run, world, keep_last=9).save(10, 20, 30))
    folder = run / "checkpoints"
    for step in (15, 40):
        broken = Path(shutil.copytree(folder / "step-00000010", folder / step_folder(step)))
        (broken / "manifest.json").unlink()
    (folder / "tmp-step-00000040").mkdir()
    (folder / "tmp-step-00000040" / "state.json").write_text("{}")
    return run


def whole(folder: Path) -> list[int]:
    """Steps whose checkpoint is whole, every byte verified."""
    steps = []
    for path in list_steps(folder):
        try:
            checkpoint = read_whole(path)
        except CheckpointError:
            continue
        step = checkpoint.manifest["step"]
        for kind, place in (("model", 0), ("ema", -1)):
            for name, tensor in checkpoint.stored(kind).items():
                assert tensor.equal(SmallEngine().at(step).tensors[name][place]), (path, kind, name)
        steps.append(step)
    return sorted(steps)


def resume_and_save(
    run: Path, *steps: int, asynchronous: bool, watch: Callable[[World], Operations | None] = lambda _: None
) -> Callable[[World], list[str]]:
    """What each rank does: go on from the newest checkpoint and save what is not saved; what was watched meanwhile."""

    def task(world: World) -> list[str]:
        newest, refused = find_newest(run / "checkpoints", world)
        assert newest is not None
        assert newest.manifest["step"] in (30, 40)
        saving = Saving(run, world, SmallEngine(keeps_ema=asynchronous), sorted(refused), asynchronous=asynchronous)
        watched = watch(world)
        for step in steps:
            if step > newest.manifest["step"]:
                assert saving.save(step) is None
                assert whole(run / "checkpoints")[-1] == step
        return [] if watched is None else watched.names

    return task


@pytest.mark.parametrize(
    ("size", "rank", "asynchronous", "stride"),
    [
        (1, 0, False, 7),
        (2, 0, True, 7),
        (2, 1, True, 3),
        *(pytest.param(*case, 1, marks=pytest.mark.slow) for case in ((1, 0, False), (2, 0, True), (2, 1, True))),
    ],
)
def test_kill_before_every_operation_of_a_save(
    size: int,
    rank: int,
    asynchronous: bool,
    stride: int,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel outlives a SIGKILL: hundreds of saves need not wait for the disk.
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def disturbed(kill_before: int | None) -> tuple[Path, Callable[[World], list[str]]]:
        run = Path(shutil.copytree(template, tmp_path / f"killed-{kill_before}"))

        def watch(world: World) -> Operations | None:
            return Operations(run / "checkpoints", kill_before=kill_before) if world.rank == rank else None

        return run, resume_and_save(run, 40, asynchronous=asynchronous, watch=watch)

    run, task = disturbed(None)
    operations = fork_ranks(size, task)[rank]
    assert whole(run / "checkpoints") == [30, 40]

    went_back = 0
    for number in range(0, len(operations), stride):
        before = f"killed before {number}: {operations[number]}"
        run, task = disturbed(number)
        folder = run / "checkpoints"
        assert exit_codes(size, task)[rank] == KILLED, before
        complete = whole(folder)
        assert len(complete) >= 2, before
        assert 30 in complete, before
        went_back += 40 not in complete
        assert exit_codes(size, resume_and_save(run, 40, 50, asynchronous=asynchronous)) == [0] * size, before
        assert whole(folder) == [40, 50], before
        assert leftovers(folder) == [], before
        assert (folder / "latest").read_text() == "step-00000050\n", before
        shutil.rmtree(run)
    before_rename = operations.index("os.rename tmp-step-00000040") + 1 if rank == 0 else len(operations)
    assert went_back == len(range(0, before_rename, stride)), "a save counts from its rename on, and not before"


def test_every_file_is_on_the_disk_before_what_depends_on_it(template: Path, tmp_path: Path) -> None:
    """A machine that loses its power keeps what was synced: files before the rename, the rename before the pointer."""
    run = Path(shutil.copytree(template, tmp_path / "run"))
    watch = resume_and_save(run, 40, asynchronous=True, watch=lambda _: Operations(run / "checkpoints"))
    [done] = fork_ranks(1, watch)
    rename, temporary = done.index("os.rename tmp-step-00000040"), "tmp-step-00000040"
    tensors = [what.removeprefix("write ") for what in done if what.startswith("write ")]
    assert len(tensors) == 3
    small = [n for n, what in enumerate(done[:rename]) if what.startswith(f"os.rename {temporary}/{files.TEMPORARY}")]
    assert len(small) == 5, "state, configuration, tokenizer, manifest and its hash"
    assert len(tensors) + len(small) == len(contents(run / "checkpoints" / "step-00000040")), "of all files"
    for name in tensors:
        assert done.index(f"write {name}") < done.index(f"fsync {name}") < small[0]
    for n in small:
        assert done[n].replace("os.rename", "fsync") in done[:n], "each small file has its name when it is on the disk"
    assert done[rename - 2 : rename] == [f"fsync {temporary}", "os.rename step-00000040"]
    point = next(n for n, what in enumerate(done) if what.startswith(f"os.rename {files.TEMPORARY}"))
    assert "fsync ." in done[rename:point]
    assert done.index(done[point].replace("os.rename", "fsync")) < point
    for step in (10, 15, 20):
        removed = next(n for n, what in enumerate(done) if what.startswith(f"os.remove tmp-delete-step-{step:08d}/"))
        assert "fsync ." in done[done.index(f"os.rename step-{step:08d}") : removed], step
