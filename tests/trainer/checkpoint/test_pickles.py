"""A pickle put in place of any file of a run's folder, or beside it, is never executed.

What it would do is make a file, the canary. Where a pickle takes the place of a checkpoint's file, the manifest is
made to agree with it: whoever can write one file can write two.
"""

import io
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.faults.conftest import Canary
from tests.forked import Forked, fork
from tests.trainer.checkpoint.small_engine import put
from tests.trainer.conftest import TrainedRun
from trainer.inference import loading
from trainer.main import main
from zeromt.cli.main import main as zeromt


def pickles(canary: Path) -> list[bytes]:
    """A plain pickle, what `torch.save` writes, and an array of objects as numpy writes it."""
    zipped, array = io.BytesIO(), io.BytesIO()
    torch.save({"module": Canary(canary)}, zipped)
    np.save(array, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    return [pickle.dumps(Canary(canary)), zipped.getvalue(), array.getvalue()]


@pytest.fixture
def copied(trained: TrainedRun, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the trained run, and its configuration."""
    run = tmp_path / "runs" / "heart"
    shutil.copytree(trained.folder, run)
    config = tmp_path / "heart.yaml"
    config.write_text(trained.config.read_text().replace(str(trained.folder.parent), str(run.parent)))
    return run, config


def is_refused(action: Callable[[], object]) -> bool:
    """Whether it raises in a process of its own, or gives an exit code of failure."""

    def tried() -> bool:
        try:
            return isinstance(code := action(), int) and code != 0
        except Exception:
            return True

    return fork(tried)


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "manifest.json", "manifest.sha256", "model-00000-of-00002.safetensors",
     "optimizer-00001-of-00002.safetensors", "state.json", "tokenizer.model"],
)  # fmt: skip
def test_in_place_of_a_file_of_a_checkpoint(name: str, copied: tuple[Path, Path], tmp_path: Path) -> None:
    run, config = copied
    for number, content in enumerate(pickles(tmp_path / "canary")):
        checkpoints = sorted((run / "checkpoints").glob("step-*"))  # one more where training was not refused
        for checkpoint in checkpoints:
            put(checkpoint, name, content)
        if not name.startswith("optimizer"):  # which only training reads
            refused = is_refused(lambda: loading.load_trained(run))
            assert refused or name == "state.json", number  # which only training reads, too
            is_refused(partial(zeromt, ["inspect", str(checkpoints[-1])]))
        if number == 0:
            refused = is_refused(lambda: main([str(config), "training.max_updates=301"]))
            assert refused or name == "tokenizer.model"  # training has the dataset's
        assert not (tmp_path / "canary").exists()


def test_in_place_of_the_other_files_and_beside_all(copied: tuple[Path, Path], tmp_path: Path, forked: Forked) -> None:
    run, config = copied
    contents = pickles(tmp_path / "canary")
    others = [p for p in run.rglob("*") if p.is_file() and "checkpoints" not in p.parts]
    assert {"config.yaml", "metrics.jsonl", "status.json", "ledger.json"} <= {p.name for p in others}
    for number, path in enumerate([*others, run / "checkpoints" / "latest"]):
        path.write_bytes(contents[number % len(contents)])
    for folder in [run, *(p for p in run.rglob("*") if p.is_dir())]:
        names = ["mp_rank_00_model_states.pt", "pytorch_model.bin", "data.pkl", ".metadata", "model.pickle"]
        names += [f"{p.stem}.{end}" for p in folder.iterdir() if p.is_file() for end in ("pkl", "pt", "pickle", "npy")]
        for number, name in enumerate(names):
            (folder / name).write_bytes(contents[number % len(contents)])
    forked.zeromt("status", str(run), cwd=tmp_path)
    is_refused(lambda: zeromt(["inspect", str(run)]))
    assert forked.trainer(1, str(config), "training.max_updates=302", cwd=tmp_path).code == 0
    assert not is_refused(lambda: loading.load_trained(run))
    assert (run / "checkpoints" / "step-00000302").is_dir()
    assert not (tmp_path / "canary").exists()
