"""A run's own configuration is of the run in whose folder it lies."""

from pathlib import Path

import pytest

from configs import load_run, save_run


def made(folder: Path, *overrides: str) -> Path:
    """A run's folder with its resolved configuration."""
    folder.mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    save_run(load_run("debug", overrides), folder / "config.yaml")
    return folder / "config.yaml"


def test_in_its_place_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = made(tmp_path / "runs" / "a", "name=a", "output=runs")
    for name in ("runs/a/config.yaml", str(config)):
        assert load_run(name).folder == "runs/a"


def test_moved_copied_or_seen_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = made(tmp_path / "runs" / "a", "name=a", "output=runs")
    assert load_run(str(config)).folder == str(tmp_path / "runs" / "a"), "a relative output, from another folder"
    (tmp_path / "runs").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved" / "a")
    assert load_run("config.yaml").folder == str(tmp_path / "moved" / "a")
    assert load_run("../a/config.yaml").folder == str(tmp_path / "moved" / "a")
    assert load_run("config.yaml", ["name=b"]).folder == str(tmp_path / "moved" / "b")
    made(tmp_path / "copy", "name=a", f"output={tmp_path}/moved")
    assert load_run(str(tmp_path / "copy" / "config.yaml")).folder == str(tmp_path / "copy"), "both are there"
