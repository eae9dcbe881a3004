"""The newest whole checkpoint is found whatever has become of the others and of the pointer, and it is said aloud."""

import io
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import engine, leftovers, manager
from trainer.checkpoint.format import CheckpointError
from trainer.ranks.distributed import World
from trainer.runs.layout import step_folder

WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1, 2 and 3; not to be written to."""
    folder = tmp_path_factory.mktemp("template")

    def task(world: World) -> None:
        checkpoints = manager(folder, world, keep_last=9)
        for step in (1, 2, 3):
            checkpoints.save(step, engine(step), {}, scores={}, wait=True)

    fork_ranks(2, task)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(template, tmp_path / "checkpoints"))


def find(folder: Path, size: int = 2) -> tuple[int | str | None, str]:
    """The step that `newest` finds on every rank, or why it refuses; and what rank 0 says."""

    def task(world: World) -> tuple[int | str | None, str]:
        said, log = io.StringIO(), logging.getLogger("trainer")
        log.addHandler(logging.StreamHandler(said))
        log.setLevel(logging.INFO)
        try:
            newest = manager(folder, world).newest()
            return None if newest is None else newest.manifest["step"], said.getvalue()
        except CheckpointError as error:
            return str(error), said.getvalue()

    (found, said), *others = fork_ranks(size, task)
    assert [other for other, _ in others] == [found] * (size - 1)
    return found, said


def test_a_whole_one_is_taken_without_a_word(folder: Path) -> None:
    assert find(folder) == (3, "")
    assert find(folder, size=3) == (3, "")


@pytest.mark.parametrize("pointer", ["", "garbage\n", "step-00000001\n", "step-00000009\n", "../../elsewhere\n", None])
def test_the_pointer_is_repaired(pointer: str | None, folder: Path) -> None:
    if pointer is None:
        (folder / "latest").unlink()
    else:
        (folder / "latest").write_text(pointer)
    found, said = find(folder)
    assert found == 3
    assert "now it names step-00000003" in said
    assert find(folder) == (3, "")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("break_", [cut, flip, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", [WEIGHTS, "state.json", "manifest.json", "manifest.sha256", "tokenizer.model"])
def test_the_one_before_is_taken_and_the_broken_file_named(
    name: str, break_: Callable[[Path], object], folder: Path
) -> None:
    break_(folder / "step-00000003" / name)
    found, said = find(folder)
    assert found == 2
    assert f"step-00000003/{name.replace('sha256', '')}" in said
    assert "going back to" in said


def test_none_that_is_whole_is_no_new_start(folder: Path) -> None:
    for step in (1, 2, 3):
        flip(folder / step_folder(step) / WEIGHTS)
    refusal, _ = find(folder)
    assert isinstance(refusal, str)
    assert "none of 3" in refusal
    assert "--fresh" in refusal


def test_none_where_there_was_one_is_no_new_start(folder: Path) -> None:
    for step in (1, 2, 3):
        (folder / step_folder(step)).rename(folder / f"away-{step}")
    refusal, _ = find(folder)
    assert isinstance(refusal, str)
    assert "names 'step-00000003', and none is there" in refusal
    assert "--fresh" in refusal


def test_leftovers_are_removed(folder: Path) -> None:
    (folder / "tmp-step-00000004").mkdir()
    (folder / "tmp-step-00000004" / "state.json").write_text("{}")
    (folder / "tmp-delete-step-00000000").symlink_to(folder / "step-00000001")
    (folder / "tmp-latest").write_text("step")
    assert find(folder) == (3, "")
    assert leftovers(folder) == []
    assert (folder / "step-00000001" / "state.json").exists()


def test_a_new_run_has_none(tmp_path: Path) -> None:
    assert find(tmp_path / "checkpoints", size=1) == (None, "")
