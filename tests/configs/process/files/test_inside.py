"""The door: reading follows links and writing does not; what is not a file is refused; deep JSON."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.process.files import FileError, inside

USES: dict[str, Callable[[Path], object]] = {
    "read": inside.read_bytes,
    "read JSON": inside.read_json,
    "append": lambda path: inside.opened(path, "ab").close(),
    "make": lambda path: inside.opened(path, "xb").close(),
}
WRITES: dict[str, Callable[[Path], object]] = {
    "append": USES["append"],
    "make": USES["make"],
    "replace": lambda path: inside.write_text(path, "written"),
    "write over": lambda path: inside.opened(path, "r+b").close(),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder beside `secret`, a file that nothing may touch."""
    (tmp_path / "secret").write_text('"secret"')
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def make_fifo(path: Path, _secret: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path, _secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # the whole path may be too long for a socket


def make_device_link(path: Path, _secret: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = {"a FIFO": make_fifo, "a socket": make_socket, "a device": make_device_link}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_files_are_opened(run: Path, kind: str, use: str) -> None:
    KINDS[kind](run / "file", run.parent / "secret")
    with pytest.raises(FileError, match=f"is {kind}; allowed is a plain file|is a link, through which"):
        USES[use](run / "file")


@pytest.mark.parametrize("kind", ["a FIFO", "a socket"])
def test_writing_replaces_what_is_no_file(run: Path, kind: str) -> None:
    KINDS[kind](run / "file", run)
    inside.write_text(run / "file", "written")
    assert (run / "file").read_text() == "written"
    assert [path.name for path in run.iterdir()] == ["file"]


@pytest.mark.parametrize("target", ["secret", "new"])
@pytest.mark.parametrize("use", WRITES)
def test_nothing_is_written_through_a_link(run: Path, use: str, target: str) -> None:
    (run / "file").symlink_to(run.parent / target)
    with pytest.raises(FileError, match="file': is a link, through which nothing is written"):
        WRITES[use](run / "file")
    assert sorted(path.name for path in run.parent.iterdir()) == ["run", "secret"]
    assert (run.parent / "secret").read_text() == '"secret"'
    assert [path.name for path in run.iterdir()] == ["file"]


def test_links_are_read(run: Path) -> None:
    """Of files, and of folders on the way, as checkpoints on a scratch disk."""
    (run / "file").symlink_to("../secret")
    (run / "checkpoints").symlink_to("..")
    assert inside.read_json(run / "file") == inside.read_json(run / "checkpoints" / "secret") == "secret"


@pytest.mark.parametrize("text", ["[" * 200_000, "[" * 10_000 + "]" * 10_000, '{"a":' * 101 + "1" + "}" * 101])
def test_deep_json_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="is deeper than 100 levels"):
        inside.parse_json(text)


def test_a_file_larger_than_any_of_ours_is_refused(run: Path) -> None:
    with (run / "file").open("wb") as file:
        file.truncate(inside.MOST_BYTES + 1)  # takes no room on the disk
    with pytest.raises(FileError, match=f"file': has more than {256 << 20} bytes"):
        inside.read_json(run / "file")
