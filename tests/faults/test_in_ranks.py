"""Rows 12, 13, 18, 20, 23, 25, 26 and 28: what two ranks live through, run after run in the same processes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Corpus, read_metrics, read_pairs
from tests.conftest import small_disk as mounted
from tests.faults.conftest import SETTINGS, Run, injected
from tests.faults.injected import Fault, write_plan
from tests.faults.injected_runs import run_all
from tests.forked import Forked
from trainer.runs.layout import BOARD

NUM_PAIRS = 1000
SHORT = 30
"""Updates of runs that have shown by then what they are to show."""
FULL = 3000
"""Bytes of the largest file that a full disk takes."""
UNWRITABLE = Path("/sys/kernel")
"""Where nobody, not even root, makes a folder."""


@dataclass(frozen=True)
class Ended:
    """A run, and what it said on either rank."""

    run: Run
    outcomes: tuple[str, str]
    logs: tuple[str, str]


class Runs:
    """Collects runs, then starts them."""

    def __init__(self, folder: Path, corpus: Corpus) -> None:
        self._folder = folder
        self._corpus = corpus
        self._runs: dict[str, Run] = {}

    def add(
        self,
        name: str,
        *faults: Fault,
        overrides: Sequence[str] = (),
        key: str | None = None,
        output: Path | None = None,
    ) -> Run:
        """A run; `key` tells apart several starts of one run."""
        key = key or name
        output = output or self._folder
        settings = (*self._corpus.overrides, *SETTINGS, f"output={output}", f"name={name}", *overrides)
        run = Run(folder=output / name, plan=self._folder / f"{key}.plan", settings=settings)
        write_plan(run.plan, faults)
        self._runs[key] = run
        return run

    def start(self, shim: Path, num_ranks: int) -> dict[str, Ended]:
        first, *_ = self._runs.values()
        with closing(Forked(*injected(shim, first))) as forked:
            given = [(run.settings, run.plan) for run in self._runs.values()]
            found = forked.ranks(num_ranks, run_all, given, cwd=self._folder)
        ended = zip(self._runs.items(), found[0], found[-1], strict=True)
        return {key: Ended(run, *zip(one, other, strict=True)) for (key, run), one, other in ended}


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A disk of 16 MB, where one may be mounted."""
    with mounted(tmp_path_factory.mktemp("disk") / "small", "16m") as folder:
        yield folder


@pytest.fixture(scope="module")
def ended(
    corpus_en_fr: Corpus,
    shim: Path,
    undisturbed: Run,
    small_disk: Path | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("in-ranks")
    runs = Runs(folder, corpus_en_fr)
    add_full_disks(runs, folder, small_disk)
    add_saves(runs)
    add_pieces(runs, last_step_of_epoch(undisturbed))
    add_faults_of_training(runs)
    return runs.start(shim, 2)


def add_full_disks(runs: Runs, folder: Path, small_disk: Path | None) -> None:
    without_pairs = ["training.record_pairs=false", f"training.max_updates={SHORT}"]
    latest = folder / "full-1" / "checkpoints" / "latest"
    runs.add(
        "full-1",
        Fault(point="save", action="disk_full", rank=1, step=20, value=FULL),
        Fault(point="accumulate", action="copy", rank=0, step=29, value=[str(latest), str(folder / "latest-then")]),
        Fault(point="accumulate", action="disk_full", rank=1, step=29),
        overrides=without_pairs,
    )
    runs.add(
        "full-0",
        Fault(point="accumulate", action="disk_full", rank=0, step=5, value=FULL),
        Fault(point="accumulate", action="disk_full", rank=0, step=25),
        overrides=[*without_pairs, "checkpoint.asynchronous=false", "training.tensorboard=true"],
    )
    if small_disk is not None:
        filler = str(small_disk / "filler")
        runs.add(
            "small-disk",
            Fault(point="accumulate", action="fill", rank=0, step=15, value=filler),
            Fault(point="accumulate", action="remove", rank=0, step=25, value=filler),
            overrides=[*without_pairs, "training.tensorboard=true"],
            output=small_disk,
        )


def add_saves(runs: Runs) -> None:
    unwritable = runs.add("unwritable", overrides=["checkpoint.max_failures=2"])
    unwritable.folder.mkdir()
    (unwritable.folder / "checkpoints").symlink_to(UNWRITABLE)
    runs.add(
        "writer-dies",
        Fault(point="audit:open", path="tmp-step-00000020/optimizer", rank=1, action="raise", value="the writer"),
        overrides=[f"training.max_updates={SHORT}"],
    )
    slow = Fault(point="audit:open", path="/model-", action="sleep", value=0.4, times=0)
    runs.add("slow-writer", slow, overrides=[f"training.max_updates={SHORT}"])


def add_pieces(runs: Runs, last_of_epoch: int) -> None:
    for number, (step, workers) in enumerate(((13, 0), (20, 1), (last_of_epoch, 2), (40, 0))):
        pieces = [f"training.max_updates={step}", f"stream.workers={workers}"]
        runs.add("pieces", key=f"pieces-{number}", overrides=pieces)


def add_faults_of_training(runs: Runs) -> None:
    runs.add(
        "nan",
        Fault(point="accumulate", action="nan", rank=1, step=5),
        overrides=["training.max_updates=6", "checkpoint.every_updates=1", "checkpoint.asynchronous=false"],
    )
    runs.add(
        "straggler",
        Fault(point="forward", action="sleep", rank=1, times=0, value=0.3),
        overrides=["training.max_updates=10", "training.log_every=5"],
    )
    runs.add(
        "drift",
        Fault(point="stepped", action="drift", rank=1, step=6),
        overrides=["training.max_updates=12", "engine.zero_stage=0", "stability.hash_every_updates=5"],
    )
    unwritable_board = runs.add("board", overrides=["training.max_updates=10", "training.tensorboard=true"])
    unwritable_board.folder.mkdir()
    (unwritable_board.folder / f"{BOARD}0000000001.host.1").mkdir()  # in place of an earlier file


def last_step_of_epoch(undisturbed: Run) -> int:
    lines = read_metrics(undisturbed.folder)
    last: int = max(line["step"] for line in lines if line["epoch"] == 0)
    assert 20 < last < 40, "the first epoch does not end within the run"
    return last


def saves(run: Run) -> list[tuple[object, object, object]]:
    """(step, whether it succeeded, failures in a row) of every save."""
    return [(e["step"], e["succeeded"], e["checkpoint_failures"]) for e in run.events("checkpoint")]


def test_full_disk_on_one_rank(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 12: the save fails on all ranks, the older checkpoint stands, training goes on."""
    end = ended["full-1"]
    assert end.outcomes == ("finished", "finished")
    assert saves(end.run) == [(10, True, 0), (20, False, 1), (30, True, 0)]
    assert end.run.complete_steps() == [10, 30]
    assert end.run.leftovers() == []
    assert (end.run.folder.parent / "latest-then").read_text() == "step-00000010\n"
    assert "checkpoint of step 20 failed, the older ones stand: rank 1: " in end.logs[0]
    assert os.strerror(27) in end.logs[0], "EFBIG"
    assert end.run.losses() == {step: loss for step, loss in undisturbed.losses().items() if step <= SHORT}
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_full_disk_on_the_first_rank(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Rows 12 and 28: manifest, metrics and TensorBoard cannot be written for a while."""
    end = ended["full-0"]
    assert end.outcomes == ("finished", "finished")
    assert end.run.complete_steps() == [SHORT]
    assert end.run.leftovers() == []
    assert end.logs[0].count("TensorBoard failed and is dropped") == 1
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_disk_that_is_full_for_everyone(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 12 on a disk of 16 MB: what a save needs is known before it begins."""
    if "small-disk" not in ended:
        pytest.skip("no file system can be mounted here")
    end = ended["small-disk"]
    assert end.outcomes == ("finished", "finished")
    assert end.run.complete_steps() == [10, 30]
    assert end.run.leftovers() == []
    assert "a checkpoint needs" in end.logs[0]
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_unwritable_checkpoints(ended: dict[str, Ended]) -> None:
    """Row 13: loud, tried again, given up after so many failures on all ranks alike."""
    end = ended["unwritable"]
    for outcome in end.outcomes:
        assert outcome.startswith("TrainingError: 2 saves in a row failed")
        assert "checkpoints" in outcome
    assert end.logs[0].count("failed, the older ones stand") == 2
    assert saves(end.run) == [(10, False, 1), (20, False, 2)]


def test_writer_that_dies(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 18: the checkpoint before is kept, the reason is told, and the next save succeeds."""
    end = ended["writer-dies"]
    assert end.outcomes == ("finished", "finished")
    assert saves(end.run) == [(10, True, 0), (20, False, 1), (30, True, 0)]
    assert "rank 1" in end.logs[0]
    assert "injected: the writer" in end.logs[0]
    assert end.run.complete_steps() == [10, 30]
    assert end.run.leftovers() == []
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_snapshot_is_of_its_step(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 18: weights change while they are written, and the files are those of a save that stops training."""
    slow, blocking = ended["slow-writer"].run, ended["full-0"].run
    for event in slow.events("checkpoint")[:2]:
        assert isinstance(event["seconds"], float)
        assert isinstance(event["stopped_seconds"], float)
        assert event["seconds"] > event["stopped_seconds"] + 0.1, "nothing was trained meanwhile"
    for step in (10, 20, SHORT):
        assert slow.weights(step) == undisturbed.weights(step)
    assert blocking.weights(SHORT) == slow.weights(SHORT)


def test_resumed_within_an_epoch_and_at_its_end(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 20, with other numbers of loader processes each time: every pair once an epoch, in the same updates."""
    end = ended["pieces-3"]
    pairs = read_pairs(end.run.folder)
    last = last_step_of_epoch(undisturbed)
    assert f"step {last}, epoch 0" in end.logs[0] or f"step {last}, epoch 1" in end.logs[0]
    assert sorted(p for (step, _), ids in pairs.items() if step <= last for p in ids) == list(range(NUM_PAIRS))
    assert pairs == read_pairs(undisturbed.folder)
    assert end.run.losses() == undisturbed.losses()
    assert end.run.weights(40) == undisturbed.weights(40)


def test_nan_on_one_rank(ended: dict[str, Ended]) -> None:
    """Row 23: all ranks skip, weights and moments stay, the learning rate does not advance."""
    run = ended["nan"].run
    weights = [run.weights(step) for step in range(4, 7)]
    assert weights[1] == weights[0]
    assert weights[2] != weights[1]
    lines = {line["step"]: line for line in read_metrics(run.folder)}
    assert [lines[step]["skipped_updates"] for step in (4, 5, 6)] == [0, 1, 1]
    assert lines[3]["lr"] < lines[4]["lr"] < lines[5]["lr"] == lines[6]["lr"]
    [event] = run.events("skipped_update")
    assert (event["step"], event["epoch"], event["update"], event["micro_batches"]) == (5, 0, 4, [0, 1])


def test_straggler_is_named(ended: dict[str, Ended]) -> None:
    """Row 25."""
    end = ended["straggler"]
    assert end.outcomes == ("finished", "finished")
    assert "rank 1" in end.logs[0]
    lines = read_metrics(end.run.folder)
    assert [line["stragglers"] for line in lines] == [[1], [1]]
    assert all(line["update_seconds_p95"] >= line["update_seconds_median"] > 0.3 for line in lines)


def test_drifting_replica_is_found(ended: dict[str, Ended]) -> None:
    """Row 26: two ranks can only tell that they differ; with more, the tests of `drift` name the one."""
    end = ended["drift"]
    for outcome in end.outcomes:
        assert outcome.startswith("TrainingError: step 10: ")
        assert "differ" in outcome
    assert max(line["step"] for line in read_metrics(end.run.folder)) == 9


def test_unwritable_tensorboard(ended: dict[str, Ended]) -> None:
    """Row 28."""
    end = ended["board"]
    assert end.outcomes == ("finished", "finished")
    assert end.logs[0].count("TensorBoard") == 1
    assert end.run.complete_steps() == [10]
