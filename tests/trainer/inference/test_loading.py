"""Which checkpoint of a run is used, also while others are deleted."""

import shutil
from pathlib import Path

import pytest

from tests.trainer.conftest import TrainedRun
from trainer.checkpoint.format import Checkpoint, read_whole
from trainer.inference.loading import find_checkpoint, with_checkpoints
from zeromt.cli.main import main


@pytest.fixture
def run(trained: TrainedRun, tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(trained.folder, tmp_path / "run"))


def test_before_the_first(trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(trained.folder / "config.yaml", tmp_path)
    for make in (False, True):
        if make:
            (tmp_path / "checkpoints").mkdir()
        assert main(["translate", str(tmp_path)]) == 2
        assert "has no checkpoint yet" in capsys.readouterr().err
    assert main(["translate", str(tmp_path / "checkpoints")]) == 2
    assert "neither a run's folder nor a checkpoint" in capsys.readouterr().err


def test_one_that_is_deleted_while_it_is_looked_at(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_whole

    def deleted_meanwhile(folder: Path) -> Checkpoint:
        if folder.name == "step-00000300" and folder.exists():
            shutil.rmtree(folder)
        return whole(folder)

    monkeypatch.setattr("trainer.inference.loading.read_whole", deleted_meanwhile)
    assert find_checkpoint(run).folder.name == "step-00000150"


def test_errors_of_any_kind(run: Path) -> None:
    """Of a process of the pool, or of a library that finds no file."""

    def load(checkpoints: list[Checkpoint]) -> str:
        if checkpoints[0].folder.name == "step-00000300":
            shutil.rmtree(checkpoints[0].folder)
            raise RuntimeError("in a translation process: FileNotFoundError")
        return checkpoints[0].folder.name

    assert with_checkpoints([str(run)], load) == "step-00000150"
