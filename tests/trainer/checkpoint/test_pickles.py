"""A pickle put in place of any file of a run's folder, or beside it, is never executed.

What it would do is make a folder, the canary. Where a pickle takes the place of a checkpoint's file, the manifest is
made to agree with it: whoever can write one file can write two.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.forked import Forked, fork
from tests.trainer.conftest import TrainedRun
from trainer.inference import loading
from trainer.main import main
from zeromt.inspecting import describe as inspect


class Canary:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._folder),)


def plain(canary: Path) -> bytes:
    return pickle.dumps(Canary(canary))


def zipped(canary: Path) -> bytes:
    """What `torch.save` writes."""
    buffer = io.BytesIO()
    torch.save({"module": Canary(canary)}, buffer)
    return buffer.getvalue()


def array(canary: Path) -> bytes:
    """An array of objects as numpy writes it."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


KINDS = (plain, zipped, array)


@pytest.fixture
def copied(trained: TrainedRun, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the trained run, and its configuration."""
    run = tmp_path / "runs" / "heart"
    shutil.copytree(trained.folder, run)
    config = tmp_path / "heart.yaml"
    config.write_text(trained.config.read_text().replace(str(trained.folder.parent), str(run.parent)))
    return run, config


def test_the_canary_would_show_it(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for kind, load in (
        (plain, pickle.loads),
        (zipped, lambda content: torch.load(io.BytesIO(content), weights_only=False)),
        (array, lambda content: np.load(io.BytesIO(content), allow_pickle=True)),
    ):
        load(kind(canary))
        assert canary.is_dir()
        canary.rmdir()


def put(checkpoint: Path, name: str, content: bytes) -> None:
    """Replace a file, and let the manifest say what it is now."""
    (checkpoint / name).write_bytes(content)
    if name == "manifest.json":
        manifest = content
    elif name == "manifest.sha256":
        return
    else:
        tree = json.loads((checkpoint / "manifest.json").read_text())
        tree["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest = json.dumps(tree).encode()
    (checkpoint / "manifest.json").write_bytes(manifest)
    (checkpoint / "manifest.sha256").write_text(hashlib.sha256(manifest).hexdigest() + "\n")


FILES = (
    "config.yaml",
    "manifest.json",
    "manifest.sha256",
    "model-00000-of-00002.safetensors",
    "optimizer-00001-of-00002.safetensors",
    "state.json",
    "tokenizer.model",
)


def is_refused(action: Callable[[], object]) -> bool:
    """Whether it raises in a process of its own, or gives an exit code of failure."""

    def tried() -> bool:
        try:
            return isinstance(found := action(), int) and found != 0
        except Exception:
            return True

    return fork(tried)


@pytest.mark.parametrize("name", FILES)
def test_in_place_of_a_file_of_a_checkpoint(name: str, copied: tuple[Path, Path], tmp_path: Path) -> None:
    run, config = copied
    canary = tmp_path / "canary"
    newest = run / "checkpoints" / "step-00000300"
    assert {p.name.replace("0-of", "x-of").replace("1-of", "x-of") for p in newest.iterdir()} == {
        n.replace("0-of", "x-of").replace("1-of", "x-of") for n in FILES
    }
    for number, kind in enumerate(KINDS):
        checkpoints = sorted((run / "checkpoints").glob("step-*"))  # one more where training was not refused
        for checkpoint in checkpoints:
            put(checkpoint, name, kind(canary))

        if not name.startswith("optimizer"):  # which only training reads
            refused = is_refused(lambda: loading.load_trained(run))
            assert refused or name == "state.json", kind  # which only training reads, too
            is_refused(partial(inspect.run, path=str(checkpoints[-1])))
        if number == 0:
            refused = is_refused(lambda: main([str(config), "training.max_updates=301"]))
            assert refused or name == "tokenizer.model"  # training has the dataset's
        assert not canary.exists()


def test_in_place_of_the_other_files_and_beside_all(copied: tuple[Path, Path], tmp_path: Path, forked: Forked) -> None:
    run, config = copied
    canary = tmp_path / "canary"
    (run / "pairs").mkdir(exist_ok=True)
    (run / "pairs" / "rank-00000.jsonl").touch()
    others = [p for p in run.rglob("*") if p.is_file() and "checkpoints" not in p.parts]
    written = {p.name for p in others}
    assert {"config.yaml", "metrics.jsonl", "status.json", "ledger.json", "rank-00000.jsonl"} <= written
    for number, path in enumerate(others):
        path.write_bytes(KINDS[number % len(KINDS)](canary))
    (run / "checkpoints" / "latest").write_bytes(plain(canary))
    for folder in [run, *(p for p in run.rglob("*") if p.is_dir())]:
        names = ["mp_rank_00_model_states.pt", "pytorch_model.bin", "data.pkl", ".metadata", "model.pickle"]
        names += [f"{p.stem}.{end}" for p in folder.iterdir() if p.is_file() for end in ("pkl", "pt", "pickle", "npy")]
        for number, name in enumerate(names):
            (folder / name).write_bytes(KINDS[number % len(KINDS)](canary))
    train = [str(config), "training.max_updates=302"]
    forked.zeromt("status", str(run), cwd=tmp_path)
    is_refused(lambda: inspect.run(path=str(run)))
    is_refused(lambda: main([*train, "training.record_pairs=true"]))
    assert not canary.exists()
    shutil.rmtree(run / "pairs")
    assert forked.trainer(1, *train, cwd=tmp_path).code == 0
    assert not is_refused(lambda: loading.load_trained(run))
    assert (run / "checkpoints" / "step-00000302").is_dir()
    assert not canary.exists()
