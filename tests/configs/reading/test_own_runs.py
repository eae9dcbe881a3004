"""Whose paths a run's configuration names: the caller's, by a seal in the run, or a stranger's."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from configs import DatasetSource, HeldOutSection, RunConfig, UserError
from configs.data import StreamSection
from configs.load import dump_run
from configs.process.files import FileError
from configs.reading.own_runs import SEALS_FILE, is_own, of_caller, write_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


def config(path: str = "/data/mine", *, cache: str = "/cache", sets: tuple[str, ...] = ()) -> RunConfig:
    stream = StreamSection(datasets=[DatasetSource(path=path)], cache=cache)
    held_out = [HeldOutSection(name=f"s{n}", source=one, references=[one]) for n, one in enumerate(sets)]
    run = RunConfig(stream=stream)
    return dataclasses.replace(run, evaluation=dataclasses.replace(run.evaluation, sets=held_out))


def trained(folder: Path, *configs: RunConfig) -> Path:
    folder.mkdir()
    for one in configs:
        write_config(folder, one, dump_run(one))
    return folder


def test_ones_own_run_is_read_without_asking(tmp_path: Path, home: Path) -> None:
    mine = [config(), config("/data/more", sets=("a",))]
    run = trained(tmp_path / "run", *mine, mine[0])
    assert [of_caller(run, one, allow=False, sets=True) for one in mine] == mine
    assert len((run / SEALS_FILE).read_text().split()) == 2
    assert (home / "zeromt" / "key").stat().st_mode & 0o777 == 0o600
    more_training = dataclasses.replace(mine[0].training, max_updates=7)
    assert is_own(run, dataclasses.replace(mine[0], training=more_training))
    assert is_own(Path(shutil.copytree(run, tmp_path / "copy")), mine[0])


@pytest.mark.parametrize("change", ["path", "cache", "sets"])
def test_other_paths_are_not_ones_own(change: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", config())
    other = {
        "path": config("/home/me/.ssh"),
        "cache": config(cache="/home/me/.git/objects"),
        "sets": config(sets=("/home/me/letters.txt",)),
    }
    assert not is_own(run, other[change])


def test_strangers_run_asks_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = config("https://host/d", cache="/home/me/.git/objects", sets=("/home/me/letters.txt",))
    run = trained(tmp_path / "run", theirs)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "me"))
    with pytest.raises(UserError) as caught:
        of_caller(run, theirs, allow=False)
    assert str(caught.value) == (
        f"RUN: {run} names stream.datasets: 'https://host/d', and you have not trained it on this machine; "
        "if that may be read, add --allow-paths"
    )
    with pytest.raises(UserError, match=r"evaluation\.sets\[0\]\.source: '/home/me/letters\.txt'"):
        of_caller(run, theirs, allow=False, sets=True)
    usual = StreamSection()
    allowed = of_caller(run, theirs, allow=True)
    assert allowed.datasets == theirs.datasets
    assert (allowed.stream.cache, allowed.stream.cache_gigabytes) == (usual.cache, usual.cache_gigabytes)


@pytest.mark.parametrize("broken", ["readable by others", "short", "a link", "none can be made"])
def test_key_that_is_not_private_is_no_key(broken: str, tmp_path: Path, home: Path) -> None:
    """A key that a stranger may have chosen or read seals nothing; training goes on without."""
    run = trained(tmp_path / "run", config())
    key = home / "zeromt" / "key"
    if broken == "readable by others":
        key.chmod(0o644)
    elif broken == "short":
        key.write_bytes(b"0")
    elif broken == "a link":
        key.replace(tmp_path / "elsewhere")
        key.symlink_to(tmp_path / "elsewhere")
    else:
        shutil.rmtree(home)
        home.write_text("no folder")
    assert not is_own(run, config())
    assert json.dumps(dump_run(config())) == json.dumps((run / "config.yaml").read_text())
    trained(tmp_path / "next", config())
    assert not is_own(tmp_path / "next", config())


def test_seals_are_read_from_no_link(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", config())
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / SEALS_FILE).symlink_to(run / SEALS_FILE)
    assert not is_own(tmp_path / "stranger", config())
    with pytest.raises(FileError, match="is a link"):
        write_config(tmp_path / "stranger", config("/else"), "")
