"""The configuration of a run or checkpoint, or what looks like one, runs no plugin by itself."""

import re
import shutil
from pathlib import Path

import pytest

from configs import OtherPluginError, UserError, load_run, load_saved, plugins
from configs.components.registry import registered, restore
from configs.load import save_run
from configs.plugins import keep_copies
from tests.configs.plugins.halves import HALVES, USED, runs, said, sha256


@pytest.fixture
def run(folder: Path) -> Path:
    """The folder of a run with a checkpoint, and a process that has not loaded its plugin."""
    run = folder / "runs" / "r"
    checkpoint = run / "checkpoints" / "step-00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    config = load_run(str(folder / "my.yaml"), [f"output={folder}/runs", "name=r"])
    keep_copies(run, config.plugins)
    for place in (run, checkpoint):
        save_run(config, place / "config.yaml")
    plugins._loaded.clear()
    restore(registered(leaving_out={type(config.schedule)}))
    Path(f"{folder}/halves.py.runs").unlink()
    return run


@pytest.mark.parametrize("place", [".", "checkpoints/step-00000001", "link", "copy"])
@pytest.mark.parametrize("form", ["as it is written", "path", "relative path", "with evil settings"])
def test_runs_no_file(place: str, form: str, run: Path, folder: Path) -> None:
    path = run / place / "config.yaml"
    if place == "link":
        path = folder / "mine.yaml"
        path.symlink_to(run / "config.yaml")
    if form != "as it is written":
        name = "halves.py" if form == "relative path" else str(folder / "halves.py")
        shutil.copy(folder / "halves.py", run)
        text = {"with evil settings": f"plugins: ['{name}']\nname: ${{oc.env:HOME}}\n"}
        (run / "config.yaml").write_text(text.get(form, f"{USED}plugins: ['{name}']\n"))
        shutil.copy(run / "config.yaml", run / "checkpoints" / "step-00000001")
    if place == "copy":
        if form != "as it is written":
            return  # then it is the user's own
        path = folder / "copied.yaml"
        shutil.copy(run / "config.yaml", path)
    line = said(str(path))
    assert "halves.py" in line
    assert "--plugins" in line
    if place != "copy":
        with pytest.raises(UserError):
            load_saved(path)
    assert runs(folder / "halves.py") + runs(run / "halves.py") == 0


def test_is_told_what_to_give(run: Path, folder: Path) -> None:
    [copy] = (run / "plugins").iterdir()
    checkpoint = run / "checkpoints" / "step-00000001" / "config.yaml"
    hash_ = sha256(folder / "halves.py")
    for path in (run / "config.yaml", checkpoint):
        assert re.match(rf"{path}: .*{hash_}.* --plugins {copy}$", said(str(path)))
    copy.unlink()
    assert said(str(checkpoint)).endswith(f" --plugins {folder}/halves.py")


def test_goes_on_where_it_is_given(run: Path, folder: Path) -> None:
    assert load_run(str(run / "config.yaml"), plugins=["../halves.py"]).schedule.kind == "halves"
    assert load_saved(run / "config.yaml").plugins[0].file == str(folder / "halves.py")


def test_another_file_is_refused_with_both_hashes(run: Path, folder: Path) -> None:
    then = sha256(folder / "halves.py")
    (folder / "halves.py").write_text(HALVES + "\n")
    load_run(str(folder / "my.yaml"))
    path = run / "checkpoints" / "step-00000001" / "config.yaml"
    [copy] = (run / "plugins").iterdir()
    with pytest.raises(OtherPluginError, match=rf"another version of the plugin halves.py .*{then}.*{copy}$"):
        load_saved(path)
    assert load_saved(path, any_version=True).schedule.kind == "halves"
