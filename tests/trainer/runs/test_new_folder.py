"""Folders that commands make: what cannot be made is said before the work, and named."""

import errno
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from configs import UserError
from trainer.runs.new_folder import check_new, new_folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", "is a link or a file"),
        ("link", "is a link or a file"),
        ("full", "is not empty"),
        (".", "or the current folder"),
        ("/proc", "is not empty"),
        ("no/new", "no such folder"),
        ("file/new", "no such folder"),
        ("x" * 300, "too long"),
        ("loop/new", "links form a loop"),
        ("run/checkpoints/new", "what RUN reads"),
    ],
)
def test_what_cannot_be_made(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    for folder in ("here", "full/a", "run/checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(here if name == "." else tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("new")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=said):
        check_new(Path(name), {"RUN": "run/checkpoints"})
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_there_is_renamed_when_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").touch()
    with pytest.raises(UserError, match="is not empty; give a new or an empty folder, or --replace"):
        check_new(tmp_path / "a")
    with pytest.raises(UserError, match="holds what RUN reads; give another place"):
        check_new(tmp_path / "a", {"RUN": str(tmp_path / "a" / "old")}, replaces=True)
    with new_folder(tmp_path / "a", replaces=True) as folder:
        (folder / "new").touch()
        assert (tmp_path / "a" / "old").exists()
    [aside] = tmp_path.glob("a.replaced-*")
    assert [path.name for path in (*aside.iterdir(), *(tmp_path / "a").iterdir())] == ["old", "new"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError('Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space" })'),
    ],
)
def test_a_full_disk(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught, new_folder(tmp_path / "new"):
        raise error
    what = "No space left on device; free some space, or give another place"
    said = f"-o: {str(tmp_path / 'new')!r} cannot be written: {what}"
    assert str(caught.value) == said
    assert not list(tmp_path.iterdir())
