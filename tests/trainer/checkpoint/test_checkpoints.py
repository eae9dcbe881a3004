"""A checkpoint that is not whole is refused by name, never loaded, never unpickled; the one before it is used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.forked import Forked
from tests.trainer.checkpoint.small_engine import problems
from tests.trainer.conftest import TrainedRun
from trainer.checkpoint.format import divide


@pytest.fixture
def checkpoint(trained: TrainedRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained.folder / "checkpoints" / "step-00000300", tmp_path / "step-00000300"))


def test_a_whole_one_has_no_problems(checkpoint: Path) -> None:
    assert problems(checkpoint) == []
    names = {p.name for p in checkpoint.iterdir()}
    assert {"model-00000-of-00002.safetensors", "optimizer-00001-of-00002.safetensors", "tokenizer.model"} <= names


@pytest.mark.parametrize("breaks", ["truncate", "remove", "empty"])
def test_missing_and_cut_files_are_named(breaks: str, checkpoint: Path, tmp_path: Path) -> None:
    actions: dict[str, Callable[[Path], object]] = {
        "truncate": lambda p: p.write_bytes(p.read_bytes()[:-1]),
        "remove": lambda p: p.unlink(),
        "empty": lambda p: p.write_bytes(b""),
    }
    for name in ("model-00000-of-00002.safetensors", "state.json", "manifest.json"):
        copy = Path(shutil.copytree(checkpoint, tmp_path / f"{breaks}-{name}"))
        actions[breaks](copy / name)
        assert any(name in p for p in problems(copy)), name


def test_links_are_read(checkpoint: Path, tmp_path: Path) -> None:
    """As where a checkpoint is on a scratch disk."""
    for path in checkpoint.iterdir():
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert problems(checkpoint) == []


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", ".hidden", ""])
def test_names_outside_the_folder_are_refused(name: str, checkpoint: Path) -> None:
    import hashlib

    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    content = json.dumps(manifest).encode()
    (checkpoint / "manifest.json").write_bytes(content)
    (checkpoint / "manifest.sha256").write_text(hashlib.sha256(content).hexdigest() + "\n")
    assert "allowed are plain file names" in problems(checkpoint)[0]


def test_shards_are_balanced_whole_and_stable() -> None:
    sizes = {f"p{i}": (i * 7919) % 1000 + 1 for i in range(200)}
    for world_size in (1, 2, 3, 64):
        shards = divide(sizes, world_size)
        assert sorted(n for shard in shards for n in shard) == sorted(sizes)
        loads = [sum(sizes[n] for n in shard) for shard in shards]
        assert max(loads) - min(loads) <= max(sizes.values())
    assert len(divide({"only": 3}, 4)) == 4


@pytest.fixture
def copied_run(trained: TrainedRun, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the trained run, and its configuration."""
    shutil.copytree(trained.folder, tmp_path / "runs" / "heart")
    config = tmp_path / "heart.yaml"
    config.write_text(trained.config.read_text().replace(str(trained.folder.parent), str(tmp_path / "runs")))
    return tmp_path / "runs" / "heart", config


def test_falls_back_to_the_one_before_and_says_so(copied_run: tuple[Path, Path], forked: Forked) -> None:
    run, config = copied_run
    broken = run / "checkpoints" / "step-00000300" / "optimizer-00000-of-00002.safetensors"
    broken.write_bytes(broken.read_bytes()[:-10])
    (run / "checkpoints" / "latest").write_text("garbage")
    done = forked.trainer(1, str(config), "training.max_updates=151", cwd=run.parent)
    assert done.code == 0, done.err
    said = done.out + done.err
    assert "optimizer-00000-of-00002.safetensors" in said
    assert "resumed from" in said
    assert "step 150" in said
    assert (run / "checkpoints" / "latest").read_text() == "step-00000151\n"


def test_no_whole_checkpoint_is_no_start_from_scratch(copied_run: tuple[Path, Path], forked: Forked) -> None:
    run, config = copied_run
    for folder in (run / "checkpoints").glob("step-*"):
        (folder / "manifest.sha256").unlink()
    done = forked.zeromt("train", str(config), cwd=run.parent)
    assert done.code == 2, done.err
    assert "none of 2" in done.err
    assert (run / "checkpoints" / "step-00000300").is_dir()


def test_inspect_tells_whole_from_broken(copied_run: tuple[Path, Path], call: Call, trained: TrainedRun) -> None:
    run, _ = copied_run
    whole, prepared = (call("inspect", str(path)) for path in (run, trained.folder.parents[1] / "prepared"))
    assert whole.code == 0, whole.err
    assert "step-00000300: whole" in whole.out
    assert prepared.code == 0, prepared.err
    (run / "checkpoints" / "step-00000300" / "state.json").write_text("{}")
    broken, other = (call("inspect", str(path)) for path in (run / "checkpoints" / "step-00000300", "/proc"))
    assert broken.code == 1
    assert "state.json" in broken.out
    assert other.code == 2
