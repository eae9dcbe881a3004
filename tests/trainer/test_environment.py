"""The environment of a program that calls this project's functions stays its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import environment
from tests.kept.test_bbb3253 import KEPT

CODE = """if True:
    import os
    before = dict(os.environ)
    def assert_same(what):
        changed = {name for name in before.keys() | os.environ.keys() if before.get(name) != os.environ.get(name)}
        assert not changed, f"{what} leaves {sorted(changed)}"
    from launcher.cli import main
    for command in (
        ["prepare", "small.yaml"],
        ["train", "small.yaml", "training.max_updates=7"],
        ["translate", "runs/small", "-i", "corpus/in.en"],
    ):
        assert main(command) == 0
        assert_same(command[0])
"""
ENGINE = """if True:
    import os
    from trainer.distributed import World
    from tests.trainer.stability.engine_checks import make_engine
    before = dict(os.environ)
    world = World(timeout_minutes=1)
    engine = make_engine(3, "fp32", world)
    assert os.environ["LOCAL_RANK"] == "0", "DeepSpeed reads it"
    engine.close()
    changed = {name for name in os.environ if before.get(name) != os.environ[name]}
    assert not changed, f"the engine leaves {sorted(changed)}"
"""


def _run(code: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_commands_leave_it_alone(tmp_path: Path) -> None:
    _run(CODE, Path(shutil.copytree(KEPT, tmp_path / "kept")))


def test_engine_leaves_it_alone(tmp_path: Path) -> None:
    """DeepSpeed reads LOCAL_RANK whether or not anybody launched."""
    assert "LOCAL_RANK" not in os.environ
    _run(ENGINE, tmp_path)
