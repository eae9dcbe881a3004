"""Commands on a stranger's run or dataset whose files are FIFOs, devices or sockets."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Refused
from tests.small import small_runs
from zeromt.cli.main import main

CHECKPOINT = "checkpoints/step-00000010"


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}
CASES = [
    ("status.json", "status"),
    ("status.json", "stop"),
    ("logs/slurm-1.out", "log"),
    ("ledger.json", "status"),
    ("launch.lock", "status"),
    ("metrics.jsonl", "report"),
    ("config.yaml", "report"),
    ("history.jsonl", "batch"),
]
"""A file, and a command that reads it."""


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A run, with a dataset in a folder of it."""
    folder = Path(shutil.copytree(small_runs() / "runs" / "small", tmp_path / "stranger"))
    shutil.copytree(small_runs() / "dataset_b", folder / "dataset")
    (folder / "logs").mkdir()
    return folder


@pytest.mark.parametrize(("name", "command"), CASES)
def test_what_is_no_plain_file_is_refused_at_once(name: str, command: str, stranger: Path, refused: Refused) -> None:
    more = {"batch": ["7"]}
    for kind, make in KINDS.items():
        (stranger / name).unlink(missing_ok=True)
        make(stranger / name)
        line = refused(command, str(stranger), *more.get(command, []))
        assert f"{Path(name).name}': is {kind}" in line


@pytest.mark.parametrize(
    "name",
    [
        f"{CHECKPOINT}/manifest.json",
        f"{CHECKPOINT}/model-00000-of-00001.safetensors",
        "dataset/train-000000.tar",
    ],
)
def test_inspect_names_what_is_no_plain_file(name: str, stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, make in KINDS.items():
        (stranger / name).unlink()
        make(stranger / name)
        assert main(["inspect", str((stranger / name).parent)]) in (1, 2)
        said = "".join(capsys.readouterr())
        assert Path(name).name in said
        assert f"is {kind}" in said or "is a folder or device" in said
