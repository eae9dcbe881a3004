"""Killed at any moment and started again, a run goes on as if nothing had happened; at another world size too."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import Corpus, Start, read_metrics, read_pairs, zeromt
from tests.forked import Forked
from tests.waiting import wait_until
from trainer.runs.layout import checkpoint_folder

pytestmark = pytest.mark.slow
"""Whole runs. tests/faults, a storm and a sample of the elastic matrix show the same in less time."""

SETTINGS = (
    "stream.micro_batches=3",
    "stream.source_tokens=256",
    "stream.target_tokens=256",
    "model.dropout=0.1",
    "optimizer.lr=3e-3",
    "schedule.warmup_updates=10",
    "engine.zero_stage=2",
    "training.max_updates=60",
    "training.log_every=1",
    "training.record_pairs=true",
    "evaluation.every_updates=20",
    "evaluation.max_pairs=4",
    "checkpoint.every_updates=20",
    "checkpoint.keep_last=10",
)


def losses(run: Path) -> dict[int, float]:
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), "steps are missing or doubled"
    return {line["step"]: line["loss"] for line in lines}


@pytest.fixture(scope="module")
def overrides(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("runs")
    return folder, [*corpus_en_fr.overrides, *SETTINGS, f"output={folder}"]


@pytest.fixture(scope="module")
def undisturbed(overrides: tuple[Path, list[str]]) -> Path:
    from tests.conftest import Command

    folder, settings = overrides
    command = Command(zeromt("launch", "local", "debug", "--nproc", "2", *settings, "name=undisturbed"), cwd=folder)
    done = command.finish()
    assert done.code == 0, done.err
    assert list(losses(folder / "undisturbed")) == list(range(1, 61))
    return folder / "undisturbed"


def test_killed_half_way_is_bit_for_bit_the_same(
    undisturbed: Path, overrides: tuple[Path, list[str]], start: Start
) -> None:
    folder, settings = overrides
    run = folder / "killed"
    again = zeromt("launch", "local", "debug", "--nproc", "2", *settings, "name=killed")
    command = start(*again)
    wait_until(lambda: (run / "metrics.jsonl").exists() and len(read_text_lines(run)) > 30)
    command.kill()
    command.process.wait()
    assert not (run / "checkpoints" / "step-00000060").exists(), "it had finished before it was killed"

    assert start(*again).finish().code == 0
    assert losses(run) == losses(undisturbed)
    assert read_pairs(run) == read_pairs(undisturbed)
    for kind in ("model", "optimizer"):
        for name in (f"{kind}-00000-of-00002.safetensors", f"{kind}-00001-of-00002.safetensors"):
            ours = run / "checkpoints" / "step-00000060" / name
            assert ours.read_bytes() == (undisturbed / "checkpoints" / "step-00000060" / name).read_bytes()


@pytest.mark.parametrize(
    ("num_ranks", "stage"),
    [(1, 3), (1, 0), (3, 1), (3, 3)],
)
def test_resumed_at_another_world_size_and_stage(
    num_ranks: int, stage: int, undisturbed: Path, overrides: tuple[Path, list[str]], forked: Forked
) -> None:
    folder, settings = overrides
    run = folder / f"elastic-{num_ranks}-{stage}"
    shutil.copytree(undisturbed, run)
    for step in (40, 60):
        shutil.rmtree(checkpoint_folder(run, step))  # `latest` names one of them: it is repaired
    for path in (run / "pairs").iterdir():
        path.unlink()
    arguments = ["debug", *settings, f"name={run.name}", f"engine.zero_stage={stage}"]
    done = forked.trainer(num_ranks, *arguments, "training.max_updates=40", cwd=folder)
    assert done.code == 0, done.err
    expected, found = losses(undisturbed), losses(run)
    assert {s: found[s] for s in range(1, 21)} == {s: expected[s] for s in range(1, 21)}
    for step in range(21, 41):
        assert found[step] == pytest.approx(expected[step], rel=1e-5), step
    their_pairs = {k: v for k, v in read_pairs(undisturbed).items() if 20 < k[0] <= 40}
    assert read_pairs(run) == their_pairs


def test_each_pair_is_used_once_an_epoch(undisturbed: Path) -> None:
    ends = {line["step"]: line["epoch"] for line in read_metrics(undisturbed)}
    first_epoch = [p for (step, _), pairs in read_pairs(undisturbed).items() if ends[step] == 0 for p in pairs]
    assert max(ends.values()) >= 1, "the run saw no epoch's end"
    assert sorted(first_epoch) == list(range(1000))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_asked_to_stop_saves_and_exits_75(
    number: signal.Signals, undisturbed: Path, overrides: tuple[Path, list[str]], start: Start
) -> None:
    folder, settings = overrides
    run = folder / f"stopped-{number.name}"
    again = zeromt("launch", "local", "debug", "--nproc", "2", *settings, f"name={run.name}")
    command = start(*again)
    wait_until(lambda: (run / "metrics.jsonl").exists() and len(read_text_lines(run)) > 5)
    os.kill(command.process.pid, number)
    stopped = command.finish()
    assert stopped.code == 75, stopped.err
    last = max(losses(run))
    assert last < 60
    assert (checkpoint_folder(run, last) / "manifest.json").exists()
    assert start(*again).finish().code == 0
    assert losses(run) == losses(undisturbed)


def read_text_lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines()
