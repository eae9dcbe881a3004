"""A small corpus (some of the bundled one, CC BY 2.0 FR), and what the commands make of it: datasets, and runs on them.

`small.yaml` prepares `dataset` from a.en and a.fr, and trains `runs/small` on it to update 10, with a score and a
checkpoint every 5. `dataset_b` is b.en and b.fr in the same vocabulary; `runs/mixture` was trained on both to update 4.
"""

import functools
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import environment
from tests.once import once
from tests.waiting import PATIENCE

FILES = Path(__file__).parent
"""Of the corpus, and small.yaml."""
_COMMANDS = (
    ("prepare", "small.yaml"),
    (
        *("prepare", "small.yaml", "prepare.output=dataset_b", "prepare.tokenizer.path=dataset"),
        "prepare.train={source: [b.en], target: [b.fr]}",
    ),
    ("train", "small.yaml"),
    (
        *("train", "small.yaml", "name=mixture", "stream.datasets=[{path: dataset}, {path: dataset_b}]"),
        *("stream.temperature=3", "training.max_updates=4", "training.tensorboard=false"),
        *("evaluation.every_updates=0", "checkpoint.every_updates=4"),
    ),
)
_SCRIPT = f"""
import os
import trainer.main  # torch, for both runs
from zeromt.cli.main import main
for line in {_COMMANDS!r}:
    if not (child := os.fork()):
        os._exit(main(line))
    assert os.waitpid(child, 0)[1] == 0, line
"""


@functools.cache
def small_runs() -> Path:
    """All of it, made once in a run of the tests and not to be written to."""
    return once("small", _make)


def _make(root: Path) -> None:
    shutil.copytree(FILES / "corpus", root / "corpus")
    shutil.copy(FILES / "small.yaml", root)
    variables = {**environment(), "HOME": str(root / "state")}
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-4000:]
    shutil.rmtree(root / "state", ignore_errors=True)
