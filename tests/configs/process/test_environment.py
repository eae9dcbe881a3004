"""The environment: a run leaves it as it was, and variables that make no sense are refused by name."""

import shutil
from pathlib import Path

import pytest

from configs import UserError
from configs.process.environment import check_process
from tests.conftest import ask_python, contents, environment
from tests.forked import Forked
from tests.small import small_runs
from trainer.ranks.distributed import check_rank, read_environment

RUN = """if True:
    import os
    from trainer.main import run
    before = dict(os.environ)
    run("small.yaml", ["training.max_updates=11"])
    answer = dict(os.environ) == before
"""


def test_a_run_leaves_it_alone(tmp_path: Path) -> None:
    """DeepSpeed reads LOCAL_RANK whether or not anybody launched."""
    kept = Path(shutil.copytree(small_runs(), tmp_path / "kept"))
    assert ask_python(RUN, cwd=kept) is True
    assert (kept / "runs" / "small" / "checkpoints" / "step-00000011").is_dir()


TWO = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "x"}, "RANK: 'x'"),
        (TWO | {"RANK": "x"}, "RANK: 'x'"),
        (TWO | {"RANK": "9" * 5000}, "RANK: '999"),
        (TWO | {"RANK": "3"}, "RANK: 3 "),
        ({"WORLD_SIZE": "1"}, "RANK: "),
        ({"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0"}, "RANK: 0 with WORLD_SIZE=0"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "LOCAL_RANK: 1 with RANK=0"),
        (TWO | {"MASTER_ADDR": ""}, "MASTER_ADDR: "),
        ({"CUDA_VISIBLE_DEVICES": "abc"}, "CUDA_VISIBLE_DEVICES: 'abc'"),
        ({"CUDA_VISIBLE_DEVICES": "0,x"}, "CUDA_VISIBLE_DEVICES: '0,x'"),
    ],
    ids=str,
)
def test_variable_that_makes_no_sense(variables: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=f"^{named}"):
        check_rank(variables)


@pytest.mark.parametrize("devices", ["", "0,-1,1", "GPU-8932f937-d72c", "MIG-GPU-1/0/0", "NoDevFiles", "0,"])
def test_variables_that_do(devices: str) -> None:
    check_rank(TWO | {"CUDA_VISIBLE_DEVICES": devices})
    check_process({})
    assert read_environment({}) == (0, 1, 0)
    assert read_environment({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}) == (5, 8, 1)


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (["train", "small.yaml"], "WORLD_SIZE=1"),
        (["launch", "local", "small.yaml", "--nproc", "2"], "CUDA_VISIBLE_DEVICES=0,x"),
        (["translate", "runs/small", "-i", "corpus/in.en"], "CUDA_VISIBLE_DEVICES=abc"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_commands_refuse_it_in_one_line(command: list[str], variable: str, tmp_path: Path, forked: Forked) -> None:
    """Before anything is started or written."""
    kept = Path(shutil.copytree(small_runs(), tmp_path / "kept"))
    before = contents(kept)
    name, _, value = variable.partition("=")
    done = forked.zeromt(*command, cwd=kept, surroundings=environment() | {name: value})
    assert done.code == 2, done.err
    [line] = done.err.splitlines()
    assert line.startswith("zeromt: error: ")
    assert name in line
    assert contents(kept) == before


def test_deepspeed_does_not_import_trackers(tmp_path: Path) -> None:
    """It does wherever they are installed, and MLflow starts threads: a fork of the rank would lose them."""
    for name in ("mlflow", "wandb"):
        (tmp_path / f"{name}.py").write_text("print('imported')\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from configs.process.with_torch import quick_imports
with quick_imports():
    import deepspeed
answer = [name in sys.modules for name in ("mlflow", "wandb")]
import mlflow, wandb
answer += [mlflow.__file__, wandb.__file__]
"""
    assert ask_python(code) == [False, False, str(tmp_path / "mlflow.py"), str(tmp_path / "wandb.py")]
