"""`zeromt status`, `zeromt stop`, `--fresh`, and two jobs on one run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.monitoring.run_status import read_run
from tests.conftest import Call
from tests.launcher.conftest import command_line, environment
from tests.launcher.local.test_launch import run_folder, wait_for
from tests.waiting import PATIENCE, wait_until
from trainer.runs.layout import checkpoint_folder
from trainer.runs.ledger import Ledger

Launch = Callable[..., "subprocess.Popen[str]"]


def look(call: Call, folder: Path) -> dict[str, Any]:
    done = call("status", str(folder), "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_life_of_a_run_and_its_stop(launch: Launch, workplace: Path, call: Call) -> None:
    folder = run_folder(workplace)
    folder.mkdir(parents=True)
    (folder / "STOP").touch()
    assert look(call, folder)["state"] == "empty"
    child = launch("file", "--nproc", "1")
    wait_for(folder / "status.json")
    found = look(call, folder)
    assert (found["state"], found["step"], found["stop_requested"]) == ("running", 7, False)

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


def test_run_whose_processes_are_gone(workplace: Path) -> None:
    folder = run_folder(workplace)
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"state": "running", "pid": 2**22 - 1, "host": os.uname().nodename}))
    assert read_run(folder).state == "died"
    (folder / "status.json").write_text(
        json.dumps({"state": "running", "pid": os.getpid(), "host": os.uname().nodename})
    )
    assert read_run(folder).state == "running"  # it may be on a file system without locks
    (folder / "status.json").write_text("{")
    assert read_run(folder).state == "empty"


def test_lines_of_status(workplace: Path, call: Call) -> None:
    folder = run_folder(workplace)
    for step in (20, 10, 30):
        checkpoint = checkpoint_folder(folder, step)
        checkpoint.mkdir(parents=True)
        if step != 30:
            (checkpoint / "manifest.json").touch()
            os.utime(checkpoint / "manifest.json", (time.time() - 610,) * 2)
            (checkpoint / "manifest.sha256").touch()
    ledger = Ledger(folder / "ledger.json")
    ledger.add("productive", 90)
    ledger.add("saving", 30)
    ledger.write()
    written = {"state": "failed", "error": "rank 1: ValueError: x", "step": 25, "updated": time.time() - 30}
    (folder / "status.json").write_text(json.dumps(written))
    (folder / "stuck.log").write_text("zeromt: rank 1 is stuck: activity 'save'\n")
    done = call("status", str(folder))
    assert done.code == 0
    lines = done.out.splitlines()
    assert re.fullmatch(r"state        failed \(written 3\d s ago\)", lines[1])
    assert [lines[0], *lines[2:]] == [
        f"run          {folder}",
        "done         25 updates",
        "error        rank 1: ValueError: x",
        "checkpoints  20 (10 min ago), 10",
        "time         2 min, goodput 75.0%: productive 90 s, saving 30 s",
        "stuck        rank 1 is stuck: activity 'save'",
    ]


def test_fresh_renames_and_deletes_nothing(launch: Launch, workplace: Path) -> None:
    folder = run_folder(workplace)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "precious").write_text("weights")
    child = launch("finish", "--nproc", "1", "--fresh")
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    (replaced,) = folder.parent.glob("debug.replaced-*")
    assert re.fullmatch(r"debug\.replaced-\d{8}-\d{6}", replaced.name)
    assert f"--fresh: the run that was in runs/debug is now in runs/{replaced.name}" in err
    assert (replaced / "checkpoints" / "precious").read_text() == "weights"
    assert not (folder / "checkpoints").exists()


def test_what_train_is_given(tmp_path: Path, workplace: Path) -> None:
    """`zeromt train` does the same as the launcher, in one process."""
    (workplace / "fake" / "trainer" / "main.py").write_text(
        "from pathlib import Path\n"
        "def run(config, overrides, *, reset, plugins, parent=None):\n"
        "    from trainer.ranks.watchdog import process_watchdog\n"
        "    print(config, overrides, sorted(reset), process_watchdog()._monitor > 0, Path('runs/debug').exists())\n"
        "    return 75\n"
    )
    paths = os.pathsep.join([str(workplace / "fake"), environment()["PYTHONPATH"]])
    (workplace / "runs" / "debug" / "checkpoints" / "step-00000001").mkdir(parents=True)
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
    assert outs == ["debug ['seed=5'] ['optimizer'] True True\n", "debug ['seed=5'] [] True False\n"]
    assert len(list((workplace / "runs").glob("debug.replaced-*"))) == 1


def test_ctrl_c_of_a_waiting_stop(launch: Launch, workplace: Path) -> None:
    folder = run_folder(workplace)
    child = launch("wait", "--nproc", "1", "--max-restarts", "0")  # it minds signals only
    wait_for(folder / "pid-0")
    waits = subprocess.Popen(
        [sys.executable, "-m", "zeromt", "stop", str(folder)], env=environment(), stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: (folder / "STOP").exists(), "the request to stop")
    waits.send_signal(signal.SIGINT)
    _, err = waits.communicate(timeout=PATIENCE)
    assert waits.returncode == 130
    assert "Traceback" not in err
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=PATIENCE)
