"""Saving with and without stopping: the same bytes, and failures that cost nothing but the save."""

import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.conftest import contents
from tests.conftest import small_disk as mounted
from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import SmallEngine, engine, leftovers, manager
from trainer.checkpoint import tensor_file
from trainer.checkpoint.format import read_checkpoint, verify
from trainer.checkpoint.manager import CheckpointManager, SaveOutcome
from trainer.engines.protocol import Engine
from trainer.ranks import host_memory
from trainer.ranks.distributed import World
from trainer.runs.layout import list_steps


def save(checkpoints: CheckpointManager, step: int, *, of: Engine | None = None, wait: bool = False) -> SaveOutcome:
    checkpoints.save(step, of or engine(step), {"step": step}, scores={}, wait=wait)
    outcome = checkpoints.commit()
    assert outcome is not None
    assert outcome.step == step
    return outcome


@pytest.mark.parametrize(("size", "keeps_ema"), [(1, True), (2, False), (5, True)])
def test_both_ways_give_the_same_bytes(size: int, keeps_ema: bool, tmp_path: Path) -> None:
    def task(world: World) -> None:
        for name, asynchronous, wait in (("a", True, False), ("b", False, False), ("c", True, True)):
            checkpoints = manager(tmp_path / name, world, asynchronous=asynchronous)
            for step, has_moments in ((1, False), (2, True), (3, True)):
                small = engine(step, has_moments=has_moments, keeps_ema=keeps_ema)
                checkpoints.save(step, small, {"step": step}, scores={}, wait=wait)
                assert checkpoints.in_flight == (name == "a")
                outcome = checkpoints.commit()
                assert outcome is not None
                assert (outcome.step, outcome.succeeded, outcome.problem) == (step, True, None)
                assert 0 < outcome.stopped_seconds <= outcome.seconds
                assert checkpoints.commit() is None
                assert not checkpoints.in_flight
                assert checkpoints.is_written
            checkpoints.close()

    fork_ranks(size, task)
    first, *others = [contents(tmp_path / name / "step-00000003") for name in "abc"]
    assert all(first == other for other in others)
    assert len(first) == (2 + keeps_ema) * size + 5
    assert leftovers(tmp_path / "a") == []
    checkpoint = read_checkpoint(tmp_path / "a" / "step-00000003")
    assert verify(checkpoint) == []
    weights, moments, averages = (dict(checkpoint.tensors(kind)) for kind in ("model", "optimizer", "ema"))
    assert checkpoint.weights_kind(raw=False) == ("ema" if keeps_ema else "model")
    assert checkpoint.weights_kind(raw=True) == "model"
    for name, (weight, mean, square, average) in SmallEngine(3).tensors.items():
        assert torch.equal(weights[name], weight)
        assert not keeps_ema or torch.equal(averages[name], average)
        assert torch.equal(moments[f"exp_avg/{name}"], mean)
        assert torch.equal(moments[f"exp_avg_sq/{name}"], square)


class Gate:
    """Holds this process's writing of tensors until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        write = vars(tensor_file)["write_all"]

        def held(descriptor: int, content: bytes | memoryview) -> None:
            self.open.wait()
            write(descriptor, content)

        vars(tensor_file)["write_all"] = held


def test_what_changes_while_it_is_written_is_not_in_it(tmp_path: Path) -> None:
    def task(world: World) -> None:
        save(manager(tmp_path / "blocking", world), 7, wait=True)
        gate = Gate()
        checkpoints = manager(tmp_path / "background", world)
        trained, state = SmallEngine(7), {"step": 7}
        checkpoints.save(7, trained, state, scores={}, wait=False)  # type: ignore[arg-type]
        for tensors in trained.tensors.values():
            tensors.fill_(13.0)
        state["step"] = 8
        assert checkpoints.in_flight
        assert not checkpoints.is_written
        assert list_steps(tmp_path / "background") == []
        gate.open.set()
        outcome = checkpoints.commit()
        assert outcome is not None
        assert outcome.succeeded

    fork_ranks(2, task)
    assert contents(tmp_path / "blocking" / "step-00000007") == contents(tmp_path / "background" / "step-00000007")


def test_one_is_in_flight_at_most_and_the_next_save_finishes_it(tmp_path: Path) -> None:
    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world, keep_last=9)
        for step in (1, 2, 3):
            checkpoints.save(step, engine(step), {}, scores={}, wait=step == 3)
        outcome = checkpoints.commit()
        assert outcome is not None
        assert outcome.step == 3

    fork_ranks(2, task)
    assert [p.name for p in list_steps(tmp_path)] == ["step-00000003", "step-00000002", "step-00000001"]


def test_a_step_that_is_saved_again_is_replaced_as_a_broken_one_is(tmp_path: Path) -> None:
    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world)
        for step in (1, 2):
            assert save(checkpoints, step).succeeded
        written = (tmp_path / "step-00000002" / "state.json").stat().st_ino
        assert save(checkpoints, 2).succeeded
        assert (tmp_path / "step-00000002" / "state.json").stat().st_ino != written
        (tmp_path / "step-00000002" / "state.json").write_text("{}")
        again = manager(tmp_path, world)
        newest = again.newest()
        assert newest is not None
        assert newest.manifest["step"] == 1
        assert save(again, 2).succeeded

    fork_ranks(1, task)
    assert verify(read_checkpoint(tmp_path / "step-00000002")) == []
    assert leftovers(tmp_path) == []


def limit_files(num_bytes: int) -> None:
    """A disk that is full for this process alone."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("full", [0, 1])
def test_disk_full_on_one_rank_fails_the_save_on_all(full: int, asynchronous: bool, tmp_path: Path) -> None:
    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world, asynchronous=asynchronous)
        assert save(checkpoints, 1).succeeded
        if world.rank == full:
            limit_files(100)
        for num_failures, step in enumerate((2, 3), start=1):
            outcome = save(checkpoints, step, wait=step == 3)
            assert not outcome.succeeded
            assert f"rank {full}: [Errno 27] File too large" in (outcome.problem or "")
            assert checkpoints.num_failures == num_failures
            world.barrier()
            assert leftovers(tmp_path) == []
            assert (tmp_path / "latest").read_text() == "step-00000001\n"
            world.barrier()  # before the next save makes its folder
        limit_files(resource.RLIM_INFINITY)
        assert save(checkpoints, 4).succeeded
        assert checkpoints.num_failures == 0

    fork_ranks(2, task)
    assert [p.name for p in list_steps(tmp_path)] == ["step-00000004", "step-00000001"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    with mounted(tmp_path / "disk", "6m") as folder:
        if folder is None:
            pytest.skip("no file system can be mounted here")
        yield folder


def test_a_real_disk_that_is_full(small_disk: Path) -> None:
    def task(world: World) -> None:
        checkpoints = manager(small_disk / "checkpoints", world)
        assert save(checkpoints, 1, of=engine(1, scale=4)).succeeded
        gate = Gate()
        checkpoints.save(2, engine(2, scale=4), {}, scores={}, wait=False)
        with suppress(OSError):  # it had room when the save began
            while True:
                with (small_disk / "other").open("ab") as file:
                    file.write(bytes(4096))
        gate.open.set()
        outcome = checkpoints.commit()
        assert outcome is not None
        assert "[Errno 28] No space left on device" in (outcome.problem or "")
        outcome = save(checkpoints, 3, of=engine(3, scale=4))
        assert "bytes are free, a checkpoint needs" in (outcome.problem or "")
        (small_disk / "other").unlink()
        assert save(checkpoints, 4, of=engine(4, scale=4)).succeeded

    fork_ranks(1, task)
    assert [p.name for p in list_steps(small_disk / "checkpoints")] == ["step-00000004", "step-00000001"]
    assert leftovers(small_disk / "checkpoints") == []


def test_too_little_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    class HugeEngine(SmallEngine):
        def __init__(self, step: int) -> None:
            super().__init__(step)
            self.moments = {name: dict.fromkeys(self.kept, (10**15,)) for name in self.tensors}

        def parameter_sizes(self) -> dict[str, int]:
            return dict.fromkeys(self.tensors, 10**15)

    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world)
        outcome = save(checkpoints, 1, of=HugeEngine(1))  # type: ignore[arg-type]
        assert not outcome.succeeded
        assert "bytes are free, a checkpoint needs 48,000,000,004,194,304" in (outcome.problem or "")

    fork_ranks(2, task)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "checkpoints"
        folder.mkdir()
        folder.chmod(0o555)
        Path(name).chmod(0o755)

        def task(world: World) -> None:
            if os.geteuid() == 0:  # who may write everywhere
                os.seteuid(65534)
            checkpoints = manager(folder, world)
            for _ in range(3):
                outcome = save(checkpoints, 1)
                assert "rank 0: [Errno 13] Permission denied" in (outcome.problem or "")
            assert checkpoints.num_failures == 3
            assert checkpoints.newest() is None

        fork_ranks(2, task)
        folder.chmod(0o755)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_writer_that_dies_of_anything_is_a_failed_save(asynchronous: bool, tmp_path: Path) -> None:
    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world, asynchronous=asynchronous)
        assert save(checkpoints, 1).succeeded
        write = vars(tensor_file)["write_all"]

        def breaks(descriptor: int, content: bytes | memoryview) -> None:
            raise RuntimeError("out of luck")

        if world.rank == 1:
            vars(tensor_file)["write_all"] = breaks
        outcome = save(checkpoints, 2)
        assert outcome.problem == "rank 1: RuntimeError: out of luck"
        vars(tensor_file)["write_all"] = write
        assert save(checkpoints, 3).succeeded

    fork_ranks(2, task)
    assert [p.name for p in list_steps(tmp_path)] == ["step-00000003", "step-00000001"]


def test_closing_leaves_nothing_of_a_save_that_is_being_written(tmp_path: Path) -> None:
    def task(world: World) -> None:
        gate = Gate()
        checkpoints = manager(tmp_path, world)
        checkpoints.save(1, engine(1), {}, scores={}, wait=False)
        assert not checkpoints.is_written
        opener = threading.Timer(0.2, gate.open.set)
        opener.start()
        checkpoints.close()
        assert not checkpoints.in_flight
        assert threading.active_count() <= 2, threading.enumerate()
        opener.join()

    fork_ranks(3, task)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keeps_ema", [False, True])
def test_without_memory_for_a_copy_training_stops_for_the_save(keeps_ema: bool, tmp_path: Path) -> None:
    share = (16 if keeps_ema else 12) * sum(SmallEngine(1).parameter_sizes().values())

    def task(world: World) -> None:
        checkpoints = manager(tmp_path, world)
        for step, left in ((1, 2 * share - 1), (2, 2 * share)):
            vars(host_memory)["available"] = lambda: left if world.rank == 0 else None  # noqa: B023 (called at once)
            checkpoints.save(step, engine(step, keeps_ema=keeps_ema), {}, scores={}, wait=False)
            assert checkpoints.in_flight == (step == 2)
            outcome = checkpoints.commit()
            assert outcome is not None
            assert outcome.succeeded

    fork_ranks(2, task)
