"""What a stranger's folders are forged from: a run, a dataset and model folders as the commands of today make them."""

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.conftest import environment
from tests.small import FILES, small_runs
from tests.waiting import PATIENCE

RUN, OTHER, DATASET, MODEL, MARIAN = "runs/small", "runs/other", "dataset", "model", "marian"
CHECKPOINT = f"{RUN}/checkpoints/step-00000006"
COMMANDS = (
    "train small.yaml training.max_updates=6 checkpoint.every_updates=3 evaluation.every_updates=3 "
    "evaluation.max_pairs=2 training.record_pairs=true evaluation.attention_maps=0 training.tensorboard=false",
    f"compare {RUN} --bootstrap=20",
    f"export {RUN} --format=huggingface -o {MODEL}",
)
MADE_MARIAN = """
import sys
from pathlib import Path
from tests.zeromt.importing.made import save_marian
save_marian(Path(sys.argv[1]))
"""
_LOCK = threading.Lock()


@functools.cache
def folder() -> Path:
    """Make them, once in this process."""
    root = Path(tempfile.mkdtemp(prefix="zg-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name in ("corpus", DATASET):
        shutil.copytree(small_runs() / name, root / name)
    shutil.copytree(small_runs() / "runs/mixture", root / OTHER)
    shutil.copy(FILES / "small.yaml", root)
    script = "import shlex, sys\nfrom zeromt.cli.main import main\n"
    _run(script + f"for line in {COMMANDS!r}:\n    assert main(shlex.split(line)) == 0, line\n", root)
    (root / "out").mkdir()
    return root


def build(into: Path, *, marian: bool) -> None:
    """Copy them into a new folder; Marian's is made when it is wanted."""
    with _LOCK:
        made = folder()
        if marian and not (made / MARIAN).exists():
            _run(MADE_MARIAN, made, MARIAN)
    shutil.copytree(made, into)


def _run(script: str, cwd: Path, *arguments: str) -> None:
    variables = {**environment(), "HOME": str(cwd / "state")}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    shutil.rmtree(cwd / "state", ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]
