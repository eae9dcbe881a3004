"""Failures, restarts and their bounds, with torchrun and ranks of a pretending trainer."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.conftest import HOST
from tests.launcher.start.test_launch import run_folder
from tests.waiting import PATIENCE

Launch = Callable[..., "subprocess.Popen[str]"]


def test_crash_loop_ends_with_the_step_that_it_cannot_pass(launch: Launch, workplace: Path) -> None:
    checkpoint = run_folder(workplace) / "checkpoints" / "step-00000030"
    checkpoint.mkdir(parents=True)
    for name in ("manifest.json", "manifest.sha256"):
        (checkpoint / name).touch()
    (checkpoint.parent / "tmp-step-00000040").mkdir()
    (checkpoint.parent / "step-00000040").mkdir()  # without a manifest it is no checkpoint
    child = launch("die", "--nproc", "1", "--max-restarts", "1")
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1, err
    assert [line for line in err.splitlines() if "restart" in line] == [
        "zeromt: the ranks failed; restart 1 of 1 since step 30, from the newest checkpoint"
    ]
    assert err.splitlines()[-2].startswith(
        "zeromt: step 30 is saved: once the cause is fixed, the same command resumes it"
    )
    assert err.splitlines()[-1] == "zeromt: no new checkpoint since step 30: the ranks failed 2 times; given up"


def test_progress_earns_restarts_and_a_reset_is_not_repeated(launch: Launch, workplace: Path) -> None:
    (run_folder(workplace) / "checkpoints" / "step-00000005").mkdir(parents=True)  # there must be weights to go on with
    child = launch("progress", "--nproc", "1", "--max-restarts", "1", "--reset", "data,optimizer")
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    said = [line for line in err.splitlines() if "the ranks failed; restart" in line]
    assert [re.findall(r"restart 1 of 1 since step (\d+)", line) for line in said] == [["0"], ["10"]]
    asked = (run_folder(workplace) / "attempts").read_text().splitlines()
    assert asked == ["data,optimizer"] * 2 + ["None"]


def test_a_rank_that_hangs_or_is_killed_is_named_and_is_in_the_status(launch: Launch, workplace: Path) -> None:
    messages = {
        "stuck": "stuck in evaluation of update 12: its limit is 0.01 minutes",
        "die": "was ended by SIGKILL",
    }
    children = {todo: launch(f"wait,{todo}", "--max-restarts", "0", f"name={todo}") for todo in messages}
    for todo, child in children.items():
        _, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 1, err
        assert f"zeromt: rank 1 on {HOST} failed first: {messages[todo]}" in err
        folder = workplace / "runs" / todo
        assert f"rank 1 on {HOST}: {messages[todo]}" in (folder / "status.json").read_text()
        stacks = [path.name for path in folder.glob("failures/*/*.stacks") if "in <module>" in path.read_text()]
        assert stacks == (["1_evaluation_12_0.01.stacks"] if todo == "stuck" else [])
        assert ("zeromt: rank 1 is stuck in evaluation of update 12" in err) == (todo == "stuck")
