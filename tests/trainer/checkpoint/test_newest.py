"""The newest whole checkpoint is found whatever has become of the others and of the pointer, and it is said aloud."""

import io
import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import Saving, leftovers, put
from trainer.checkpoint.format import CheckpointError, read_whole
from trainer.checkpoint.newest import find_newest
from trainer.ranks.distributed import World


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1, 2 and 3; not to be written to."""
    run = tmp_path_factory.mktemp("template")
    fork_ranks(2, lambda world: Saving(run, world, keep_last=9).save(1, 2, 3))
    return run / "checkpoints"


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(template, tmp_path / "checkpoints"))


def find(folder: Path, size: int = 2) -> tuple[int | str | None, str]:
    """The step that every rank finds, or why it refuses; and what rank 0 says."""

    def task(world: World) -> tuple[int | str | None, str]:
        said = io.StringIO()
        logging.getLogger("trainer").addHandler(logging.StreamHandler(said))
        try:
            newest, _ = find_newest(folder, world)
            return None if newest is None else newest.manifest["step"], said.getvalue()
        except CheckpointError as error:
            return str(error), said.getvalue()

    (outcome, said), *others = fork_ranks(size, task)
    assert [other for other, _ in others] == [outcome] * (size - 1)
    return outcome, said


def test_a_whole_one_is_taken_without_a_word_and_leftovers_are_removed(folder: Path) -> None:
    (folder / "tmp-step-00000004").mkdir()
    (folder / "tmp-delete-step-00000000").symlink_to(folder / "step-00000001")
    for path in list((folder / "step-00000003").iterdir()):  # as where it is on a scratch disk
        path.symlink_to(path.rename(folder.parent / path.name))
    assert find(folder, size=3) == (3, "")
    assert leftovers(folder) == []
    assert (folder / "step-00000001" / "state.json").exists()
    assert find(folder / "new", size=1) == (None, "")


@pytest.mark.parametrize("pointer", ["", "step-00000001\n", "../../elsewhere\n", None])
def test_the_pointer_is_repaired(pointer: str | None, folder: Path) -> None:
    (folder / "latest").unlink() if pointer is None else (folder / "latest").write_text(pointer)
    step, said = find(folder)
    assert step == 3
    assert "now it names step-00000003" in said
    assert find(folder) == (3, "")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("break_", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "state.json", "manifest.json", "manifest.sha256"])
def test_the_one_before_is_taken_and_the_broken_file_named(
    name: str, break_: Callable[[Path], object], folder: Path
) -> None:
    break_(folder / "step-00000003" / name)
    step, said = find(folder)
    assert step == 2
    assert f"step-00000003/{name.replace('sha256', '')}" in said
    assert "going back to" in said


def test_none_that_is_whole_is_no_new_start(folder: Path) -> None:
    for path in folder.glob("step-*"):
        flip(path / "state.json")
    refusal, _ = find(folder)
    assert "none of 3" in str(refusal)
    for path in folder.glob("step-*"):
        shutil.rmtree(path)
    refusal, _ = find(folder)
    assert "has none, and step-00000003 was saved there" in str(refusal)
    assert "--fresh" in str(refusal)


def test_a_thousand_random_bytes(folder: Path) -> None:
    """One byte of a checkpoint, anywhere, is another: it is refused, and the file named."""
    draw, checkpoint = random.Random(1), folder / "step-00000001"
    paths = sorted(checkpoint.iterdir())
    assert len(paths) == 9
    for trial in range(1000):
        path = paths[trial % len(paths)]
        whole = path.read_bytes()
        position, value = draw.randrange(len(whole)), draw.randrange(1, 256)
        path.write_bytes(whole[:position] + bytes([whole[position] ^ value]) + whole[position + 1 :])
        with pytest.raises(CheckpointError) as caught:
            read_whole(checkpoint)
        assert str(caught.value).startswith(f"{checkpoint}/"), (path.name, position, value)
        assert path.name in str(caught.value), (path.name, position, value)
        path.write_bytes(whole)
    read_whole(checkpoint)


def test_names_outside_the_folder_are_refused(folder: Path) -> None:
    checkpoint = folder / "step-00000001"
    tree = json.loads((checkpoint / "manifest.json").read_text())
    for name in ("../outside", "/etc/passwd"):
        put(checkpoint, "manifest.json", json.dumps({**tree, "files": {name: {"bytes": 1, "sha256": ""}}}).encode())
        with pytest.raises(CheckpointError, match="allowed are plain file names"):
            read_whole(checkpoint)
