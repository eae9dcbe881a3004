"""Folders that machines share through clients that remember for an hour what was not there; NFS does for a minute."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.process.files.inside import is_listed, look_again
from tests.waiting import wait_until

SECONDS = 3600


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Path]:
    """Where a machine has the folder `back`, which others change behind its back."""
    if shutil.which("bindfs") is None or os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("no shared folders without root, bindfs and /dev/fuse")
    back, place = tmp_path / "back", tmp_path / "client"
    back.mkdir()
    place.mkdir()
    caches = ",".join(f"{what}_timeout={SECONDS}" for what in ("attr", "entry", "negative"))
    with subprocess.Popen(["bindfs", "-f", "-o", caches, str(back), str(place)], stdin=subprocess.DEVNULL) as server:
        wait_until(lambda: place.is_mount() or server.poll() is not None)
        if server.poll() is not None:
            pytest.skip("bindfs mounts nothing here")
        yield place
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True)


def test_what_another_machine_has_made_is_seen(client: Path, tmp_path: Path) -> None:
    folder, theirs = client / "a" / "b", tmp_path / "back" / "a" / "b"
    assert not look_again(folder)
    assert not folder.parent.exists()
    theirs.mkdir(parents=True)
    (theirs / "file").write_text("")
    assert not folder.parent.exists(), "it is remembered as absent, else this test shows nothing"
    assert look_again(folder)
    assert is_listed(folder / "file")
    (theirs / "file").unlink()
    assert not is_listed(folder / "file")
