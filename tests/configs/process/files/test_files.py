"""What the file system says of paths that users name, in one line each; outputs that are inputs or cannot be."""

from pathlib import Path

import pytest

from configs import load_run
from configs.process.files import FileError, expand
from configs.process.files.inside import written
from launcher.slurm.profile import load_profile
from tests.conftest import Refused

LONG = "x" * 300


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand("~/a") == f"{tmp_path}/a"
    assert expand("a/~") == "a/~"
    with pytest.raises(FileError, match="no such home folder"):
        expand("~nobody-of-this-name/a")
    run = load_run("debug", ["output=~/runs", "prepare.root=~", "stream.datasets=[{path: ~/d}]"])
    site = load_profile(None, ["python=~/bin/python", "source=[~/activate]", "container_mounts=['~/a:/b']"])
    assert (site.python, site.source) == (f"{tmp_path}/bin/python", [f"{tmp_path}/activate"])
    assert site.container_mounts == [f"{tmp_path}/a:/b"]
    assert (run.output, run.prepare.root, run.datasets[0].path) == (f"{tmp_path}/runs", str(tmp_path), f"{tmp_path}/d")


def test_what_was_there_stays_when_something_fails(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(TypeError), written(str(path), "--output") as file:
        file.write(1)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]


def test_devices_are_written_as_they_are() -> None:
    with written("/dev/null", "--output") as file:
        file.write("new")
    with pytest.raises(FileError, match="--output: '/dev/full' cannot be written: No space left on device"):  # noqa: SIM117
        with written("/dev/full", "--output") as file:
            file.write("new")


def test_an_open_file_is_written_where_it_is(tmp_path: Path) -> None:
    """`{ echo head; zeromt ... -o /dev/stdout; } > a`: what was written before stays."""
    with (tmp_path / "a").open("w") as opened:
        opened.write("head\n")
        opened.flush()
        with written(f"/dev/fd/{opened.fileno()}", "--output") as file:
            file.write("new\n")
    assert (tmp_path / "a").read_text() == "head\nnew\n"


def test_is_opened_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="Not a directory"):
        written(str(tmp_path / "file" / "a"), "--output").__enter__()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prepare", "c.yaml", "prepare.output=PLACE"], "prepare.output"),
        (["prepare", "c.yaml", "prepare.train.source=[PLACE]"], "prepare.train"),
        (["prepare", "c.yaml", "prepare.root=PLACE"], "prepare.train"),
        (["prepare", "c.yaml", "prepare.tokenizer.path=PLACE"], "prepare.tokenizer.path"),
        (["prepare", "PLACE"], "argument CONFIG"),
        (["train", "c.yaml", "prepare.output=PLACE"], "prepare.output"),
        (["launch", "local", "c.yaml", "prepare.output=PLACE"], "prepare.output"),
        (["launch", "local", "c.yaml", "stream.datasets=[{path: PLACE}]"], "stream.datasets"),
        (["launch", "slurm", "c.yaml", "--site", "PLACE", "--dry-run"], "argument --site"),
        (["status", "PLACE"], "argument RUN"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
@pytest.mark.parametrize("place", ["loop/a", LONG])
def test_the_field_or_option_is_named(
    arguments: list[str], named: str, place: str, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("a", "b"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / "c.yaml").write_text("prepare: {output: out, train: {source: [a], target: [b]}}")
    line = refused(*(argument.replace("PLACE", place) for argument in arguments))
    assert line.startswith(f"{named}: ")
    assert "form a loop" in line or "symbolic links" in line or "too long" in line
