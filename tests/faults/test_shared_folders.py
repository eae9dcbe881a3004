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
SHORT = ("training.max_updates=12", "evaluation.every_updates=0", "checkpoint.every_updates=4")


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Where either machine has a folder that they share."""
    if shutil.which("bindfs") is None or os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("no shared folders without root, bindfs and /dev/fuse")
    back, *mounted = (tmp_path / name for name in ("back", "one", "other"))
    back.mkdir()
    caches = ",".join(f"{what}_timeout={SECONDS}" for what in ("attr", "entry", "negative"))
    serving = []
    try:
        for place in mounted:
            place.mkdir()
            command = ["bindfs", "-f", "-o", caches, str(back), str(place)]
            serving.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        for place, server in zip(mounted, serving, strict=True):
            wait_until(lambda place=place, server=server: place.is_mount() or server.poll() is not None)  # type: ignore[misc]
            if server.poll() is not None:
                pytest.skip(f"no shared folders: {server.communicate()[1].strip()}")
        yield mounted[0], mounted[1]
    finally:
        for place, server in zip(mounted, serving, strict=False):
            subprocess.run(["umount", "--lazy", str(place)], capture_output=True)
            server.communicate()


def test_what_another_machine_has_made_is_seen(clients: tuple[Path, Path]) -> None:
    one, other = clients
    folder = Path("a", "b", "c")
    assert not look_again(other / folder)
    assert not (other / "a").exists()
    (one / folder).mkdir(parents=True)
    (one / folder / "file").write_text("")
    assert not (other / "a").exists(), "it is remembered as absent, else this test shows nothing"
    assert look_again(other / folder)
    assert is_listed(other / folder / "file")
    (one / folder / "file").unlink()
    assert not is_listed(other / folder / "file")
