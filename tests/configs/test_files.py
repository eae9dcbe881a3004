"""What the file system says of paths that users name, in one line each; outputs that are inputs or cannot be."""

import errno
import os
from pathlib import Path

import pytest

from configs import load_run
from configs.files import FileError, check_apart, describe, exists, expand, is_dir, problem_of, written

LONG = "x" * 300


def test_names_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    for path, said in ((tmp_path / LONG, "too long"), (tmp_path / "loop", "circle"), (Path("a\0b"), "null byte")):
        with pytest.raises(FileError, match=said):
            exists(path)
    assert not exists(tmp_path / "file" / "in-a-file")
    assert not is_dir(tmp_path / "file")


def test_closed_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(FileError, match="Permission denied; change its permissions"):
        exists(tmp_path)


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand("~/a") == f"{tmp_path}/a"
    assert expand("a/~") == "a/~"
    with pytest.raises(FileError, match="no such home folder"):
        expand("~nobody-of-this-name/a")
    run = load_run("debug", ["output=~/runs", "prepare.root=~", "stream.datasets=[{path: ~/d}]"])
    assert (run.output, run.prepare.root, run.datasets[0].path) == (f"{tmp_path}/runs", str(tmp_path), f"{tmp_path}/d")


class TestApart:
    def test_by_name_link_and_place(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("a")
        (tmp_path / "soft").symlink_to(tmp_path / "a")
        os.link(tmp_path / "a", tmp_path / "hard")
        for name in ("a", "soft", "hard", "../" + tmp_path.name + "/a"):
            with pytest.raises(FileError, match=r"--output: .* is what --input names, too"):
                check_apart({"--input": str(tmp_path / "a")}, {"--output": str(tmp_path / name)})

    def test_two_outputs_that_are_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "to-new").symlink_to(tmp_path / "new")
        with pytest.raises(FileError, match="--alignment"):
            check_apart({}, {"--output": str(tmp_path / "new"), "--alignment": str(tmp_path / "to-new")})

    def test_what_may_be_named_often(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("a")
        check_apart({"--source": str(tmp_path / "a"), "--reference": str(tmp_path / "a")}, {"--output": None})
        check_apart({"--input": "/dev/null"}, {"--output": "/dev/null", "--alignment": "/dev/null"})


class TestWritten:
    def test_appears_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_text("old")
        path.chmod(0o640)
        with written(str(path), "--output") as file:
            file.write("new")
            assert path.read_text() == "old"
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
        assert list(tmp_path.iterdir()) == [path]

    def test_what_was_there_stays_when_something_fails(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_text("old")
        with pytest.raises(TypeError), written(str(path), "--output") as file:
            file.write(1)
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]

    def test_a_link_stays_one(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "a")
        with written(str(tmp_path / "link"), "--output") as file:
            file.write("new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "a").read_text() == "new"

    def test_devices_are_written_as_they_are(self) -> None:
        with written("/dev/null", "--output") as file:
            file.write("new")
        with pytest.raises(FileError, match="--output: '/dev/full' cannot be written: No space left on device; make"):  # noqa: SIM117
            with written("/dev/full", "--output") as file:
                file.write("new")

    def test_is_opened_before_the_work(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(FileError, match=r"--output: .* cannot be written: Not a directory; a file stands"),
            written(str(tmp_path / "file" / "a"), "--output"),
        ):
            pytest.fail("the work has begun")


def test_which_errors_are_the_users() -> None:
    assert str(problem_of(OSError(errno.EROFS, "Read-only file system", "/a"))) == (
        "'/a': Read-only file system; give a place that can be written"
    )
    assert problem_of(OSError(errno.ENOSPC, "No space left on device", "/a")) is None
    assert problem_of(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) is None
    assert describe(OSError(errno.ENOSPC, "No space left on device")).endswith("make room, or give another place")
