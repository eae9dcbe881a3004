"""`zeromt stop` and `zeromt log`, `--fresh`, and two jobs on one run."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.slurm.record import begin, held
from tests.conftest import Call, Refused
from tests.launcher.conftest import command_line, environment
from tests.launcher.start.test_launch import run_folder, wait_for
from tests.waiting import PATIENCE, wait_until
from trainer.runs.status import write_status

Launch = Callable[..., "subprocess.Popen[str]"]


def look(call: Call, folder: Path) -> dict[str, Any]:
    done = call("status", str(folder), "--json")
    assert done.code == 0, done.err
    status: dict[str, Any] = json.loads(done.out)
    return status


def test_life_of_a_run_and_its_stop(launch: Launch, workplace: Path, call: Call) -> None:
    folder = run_folder(workplace)
    folder.mkdir(parents=True)
    (folder / "STOP").touch()
    assert look(call, folder)["state"] == "empty"
    child = launch("file", "--nproc", "1")
    wait_for(folder / "status.json")
    status = look(call, folder)
    assert (status["state"], status["step"], status["stop_requested"]) == ("running", 7, False)

    # Another job is refused, and so is one that would move the run away.
    for arguments in ([], ["--fresh"]):
        other = call("launch", "local", "debug", "--nproc", "1", *arguments)
        assert other.code == 2
        assert re.search(
            rf"error: output: 'runs/debug' is being written by process {child.pid} on \S+ since .*zeromt stop",
            other.err,
        )

    done = call("stop", str(folder))
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines()[-1] == f"zeromt: {folder}: stopped at step 7"
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 75, err
    assert f"{Path('runs/debug/STOP')}, from before this start, is removed" in err
    assert look(call, folder)["state"] == "stopped"
    again = call("stop", str(folder))
    assert again.code == 2
    assert "is not running" in again.err
    assert not (folder / "STOP").exists()


def test_stop_while_the_ranks_fail(launch: Launch, workplace: Path, call: Call) -> None:
    """The launcher does not start them again, and the request, which waits for nobody, is not left for the next."""
    folder = run_folder(workplace)
    child = launch("wait", "--nproc", "1")
    wait_for(folder / "pid-0")
    assert call("stop", str(folder), "--no-wait").code == 0
    os.kill(int((folder / "pid-0").read_text()), signal.SIGKILL)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 1, err
    assert "asks to stop: they are not started again" in err
    assert look(call, folder)["state"] == "failed"
    assert not (folder / "STOP").exists()


def test_train_resets_and_renames_and_deletes_nothing(workplace: Path) -> None:
    """As the launcher does, in one process."""
    (workplace / "fake" / "trainer" / "main.py").write_text(
        "from pathlib import Path\n"
        "def run(config, overrides, *, reset, plugins, parent=None):\n"
        "    print(config, overrides, sorted(reset), Path('runs/debug').exists())\n"
        "    return 75\n"
    )
    paths = os.pathsep.join([str(workplace / "fake"), environment()["PYTHONPATH"]])
    checkpoint = run_folder(workplace) / "checkpoints" / "step-00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "precious").write_text("weights")
    outs = []
    for arguments in (["--reset", "optimizer"], ["--fresh"]):
        done = subprocess.run(
            command_line(["train", "debug", "seed=5", *arguments]),
            cwd=workplace,
            env=environment(PYTHONPATH=paths),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 75, done.stderr
        outs.append(done.stdout)
    assert outs == ["debug ['seed=5'] ['optimizer'] True\n", "debug ['seed=5'] [] False\n"]
    (replaced,) = run_folder(workplace).parent.glob("debug.replaced-*")
    assert re.fullmatch(r"debug\.replaced-\d{8}-\d{6}", replaced.name)
    assert f"--fresh: what was in runs/debug is now in runs/{replaced.name}" in done.stderr
    assert (replaced / "checkpoints" / checkpoint.name / "precious").read_text() == "weights"


def test_ctrl_c_of_a_waiting_stop(tmp_path: Path) -> None:
    """Of a run that this process writes, for all that its status says."""
    write_status(tmp_path, "running")
    waits = subprocess.Popen(
        [sys.executable, "-m", "zeromt", "stop", str(tmp_path)], env=environment(), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: (tmp_path / "STOP").exists(), "the request to stop")
    waits.send_signal(signal.SIGINT)
    _, err = waits.communicate(timeout=PATIENCE)
    assert waits.returncode == 130
    assert "Traceback" not in err


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A SLURM in which every job waits; the file of those that were cancelled."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, text in (("squeue", "echo 'PENDING|Dependency|5:00'"), ("scancel", f"echo $1 >> {tmp_path}/cancelled")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path / "cancelled"


def test_a_job_that_waits_is_cancelled_if_it_was_submitted_here(
    slurm: Path, tmp_path: Path, call: Call, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    write_status(tmp_path / "run", "stopped")
    said = "'run' waits as job 7, submitted elsewhere; use `scancel 7`"
    assert said in refused("stop", "run")
    assert not slurm.exists()
    assert "job          7 PENDING, Dependency, 5:00 to its time limit" in call("status", "run").out
    with held(tmp_path / "run", ()) as file:
        begin(file, {})
        file.write("7\n8\n")
    assert "'run' is not running" in refused("stop", "run", PATH="/nowhere")
    done = call("stop", "run")
    assert done.code == 0, done.err
    assert slurm.read_text().split() == ["8", "7"]
    (tmp_path / "scancel").write_text("#!/bin/sh\necho denied >&2; exit 1\n")
    assert refused("stop", "run") == "scancel: denied; only your own jobs can be stopped"


def test_log_of_the_newest_job_or_start(tmp_path: Path, call: Call, refused: Refused) -> None:
    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)
    assert "'run/logs' has no output" in refused("log", "run")
    names = (
        *("a/attempt_0/0/stdout.log", "b/attempt_0/0/stdout.log", "b/attempt_0/1/stderr.log"),
        *("slurm-6.out", "prepare-7_1.out", "prepare-7_2.out"),
    )
    for age, name in enumerate(names):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text(f"{name}\n")
        for path in (logs / name, logs / name.split("/")[0]):
            os.utime(path, (1000.0 + age,) * 2)

    def shown() -> list[str]:
        return [line for line in call("log", "run").out.splitlines() if line in names]

    assert shown() == ["prepare-7_1.out", "prepare-7_2.out"]
    for path in logs.glob("prepare*"):
        path.unlink()
    assert shown() == ["slurm-6.out"]
    os.utime(logs / "b")
    assert shown() == ["b/attempt_0/0/stdout.log", "b/attempt_0/1/stderr.log"]
