"""Tests of how files inside runs, datasets, caches and outputs are opened: links, what is no file, deep JSON."""

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.process.files import TEMPORARY, FileError, inside

USES: dict[str, Callable[[Path], object]] = {
    "read": inside.read_bytes,
    "read JSON": inside.read_json,
    "append": lambda path: os.close(inside.appending(path)),
    "make": lambda path: os.close(inside.opened(path, os.O_RDWR | os.O_CREAT)),
}
"""What opens a file by its own name; `write_bytes` replaces it."""


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


def make_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def make_dangling_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret.with_name("new"))


KINDS = {
    "a FIFO": make_fifo,
    "a socket": make_socket,
    "a link": make_link,
    "a link ": make_dangling_link,
    "a link  ": make_device_link,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_files_are_opened(run: Path, kind: str, use: str) -> None:
    KINDS[kind](run / "file", run.parent / "secret")
    with pytest.raises(FileError) as error:
        USES[use](run / "file")
    assert str(error.value) == f"{str(run / 'file')!r}: is {kind.strip()}; allowed is a plain file"
    assert sorted(path.name for path in run.parent.iterdir()) == ["run", "secret"]
    assert (run.parent / "secret").read_text() == '"secret"'


@pytest.mark.parametrize("kind", KINDS)
def test_writing_replaces_whatever_has_the_name(run: Path, kind: str) -> None:
    KINDS[kind](run / "file", run.parent / "secret")
    inside.write_text(run / "file", "written")
    assert stat.S_ISREG((run / "file").lstat().st_mode)
    assert (run / "file").read_text() == "written"
    assert [path.name for path in run.iterdir()] == ["file"]
    assert (run.parent / "secret").read_text() == '"secret"'


def test_a_link_that_the_caller_names_is_read(run: Path) -> None:
    (run / "file").symlink_to("../secret")
    assert inside.read_json(run / "file", follow=True) == "secret"
    (run / "zero").symlink_to("/dev/zero")
    with pytest.raises(FileError, match="is a device"):
        inside.read_bytes(run / "zero", follow=True)


def test_an_error_leaves_the_old_file_and_nothing_beside_it(run: Path) -> None:
    (run / "file").write_text("old")

    def fail() -> None:
        with inside.replacing(run / "file") as file:
            file.write(b"half")
            [name] = [path.name for path in run.iterdir() if path.name != "file"]
            assert name.startswith(TEMPORARY)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in run.iterdir()] == ["file"]
    assert (run / "file").read_text() == "old"


@pytest.mark.parametrize("linked", ["eval", "eval/kept"])
def test_nothing_is_written_through_a_linked_folder(run: Path, linked: str) -> None:
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    (run / linked).parent.mkdir(exist_ok=True)
    (run / linked).symlink_to(elsewhere)
    uses: list[Callable[[], object]] = [
        lambda: inside.make_folder(run / "eval/kept/more", within=run),
        lambda: inside.write_text(run / linked / "file", "written", within=run),
        lambda: os.close(inside.appending(run / linked / "file", within=run)),
    ]
    for use in uses:
        with pytest.raises(FileError, match=f"run/{linked}': is a link; allowed is a folder"):
            use()
    assert not list(elsewhere.iterdir())


def test_folders_are_made_and_written(run: Path) -> None:
    inside.make_folder(run / "eval/kept", within=run)
    inside.make_folder(run / "eval/kept", within=run)
    inside.write_text(run / "eval/kept/file", "written", within=run)
    assert inside.read_text(run / "eval/kept/file", within=run) == "written"


def test_a_linked_folder_is_read_if_the_caller_made_the_link(run: Path) -> None:
    (run.parent / "scratch").mkdir()
    (run.parent / "scratch" / "file").write_text("[1]")
    (run / "checkpoints").symlink_to("../scratch")
    assert inside.read_json(run / "checkpoints/file", within=run) == [1]
    if os.geteuid() == 0:  # only root can make a link of another user
        os.chown(run / "checkpoints", 1234, 1234, follow_symlinks=False)
        with pytest.raises(FileError, match="checkpoints': is a link of another user"):
            inside.read_json(run / "checkpoints/file", within=run)


def test_no_path_leads_out(run: Path) -> None:
    (run / "eval").mkdir()
    with pytest.raises(FileError, match="leads out of its folder"):
        inside.read_bytes(run / "eval/../../secret", within=run)


@pytest.mark.parametrize("text", ["[" * 200_000, "[" * 10_000 + "]" * 10_000, '{"a":' * 101 + "1" + "}" * 101])
def test_deep_json_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="is deeper than 100 levels"):
        inside.parse_json(text)


def test_json_of_allowed_depth_is_read() -> None:
    tree: object = 1
    for _ in range(50):
        tree = {"a": [tree, "[" * 200]}
    assert inside.parse_json(json.dumps(tree)) == tree
