"""Running the command line in a process of its own, beside a trainer that only pretends."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[2]

FAKE_TRAINER = '''
"""A rank that does what FAKE says, by rank, and notes the signals that it gets."""
import json, os, signal, sys, time
from pathlib import Path
from configs.process.signals import end_with_parent

rank = int(os.environ["RANK"])
reset = sys.argv[3] if sys.argv[2:3] == ["--reset"] else None
config, *overrides = sys.argv[1:2] + sys.argv[4 if reset else 2:]
assert config == "debug", "of which the next line knows what it says: reading it would take longer than all else"
settings = {"output": "runs", "name": "debug"} | dict(one.split("=", 1) for one in overrides)
folder = Path(settings["output"], settings["name"])
todo = os.environ["FAKE"].split(",")[rank]
got = []
agent = os.getppid()
end_with_parent()

def on_signal(number, frame):
    got.append(signal.Signals(number).name)
    (folder / f"signals-{rank}").write_text(" ".join(got))

for name in ("SIGINT", "SIGUSR1", "SIGHUP", "SIGQUIT", "SIGTERM"):
    signal.signal(getattr(signal, name), on_signal)

def status(state, code, error=None):
    if rank == 0 or state == "refused":
        (folder / "status.json").write_text(json.dumps({
            "state": state, "exit_code": code, "error": error, "pid": os.getpid(), "updated": time.time(),
            "host": os.uname().nodename, "step": 7,
            "stop_reason": "torchrun is gone" if os.getppid() != agent else None,
            "launch_id": os.environ["ZEROMT_LAUNCH_ID"], "job_id": None}))
    if state != "running":
        sys.exit(0 if code == 75 else code)  # as ranks end that have agreed on it

def save(step):
    checkpoint = folder / "checkpoints" / f"step-{step:08}"
    checkpoint.mkdir(parents=True)
    for name in ("manifest.json", "manifest.sha256"):
        (checkpoint / name).touch()

print(f"rank {rank} of {os.environ['WORLD_SIZE']} says hello", flush=True)
(folder / f"pid-{rank}").write_text(str(os.getpid()))
if todo == "progress":  # the first attempt makes no checkpoint, the second does, the third finishes
    attempts = folder / "attempts"
    number = len(attempts.read_text().splitlines()) if attempts.exists() else 0
    with attempts.open("a") as file:
        file.write(f"{reset}\\n")
    if number == 2:
        status("finished", 0)
    if number:
        save(10 * number)
    sys.exit(3)
if todo == "die":
    while not (folder / "pid-0").exists():  # else it would be ended before it has its handlers, and be named too
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "stuck":
    from configs import load_run
    from trainer.ranks.activities import Activities
    limit = "supervision.evaluation_minutes=0.01"
    with Activities(load_run("debug", [limit]), rank=rank)("evaluation", step=12):
        os.read(os.pipe()[0], 1)
if todo == "file":
    status("running", 1)
    while not (folder / "STOP").exists():
        time.sleep(0.05)
    status("stopped", 75)
if todo == "finish":
    status("finished", 0)
if todo == "refuse":
    from trainer.runs.failure import Failure, leave_note
    note = Failure(rank=rank, host="here", time=time.time(), message="field: 1; allowed is 2", says_all=True)
    leave_note(folder, os.environ["ZEROMT_LAUNCH_ID"], note)
    status("refused", 2)
if todo == "fail":
    raise RuntimeError("the root cause")
if todo == "once":
    mark = folder / "failed-once"
    if mark.exists():
        status("finished", 0)
    mark.touch()
    sys.exit(3)
if todo == "orphan":  # whose agent is killed, and that saves for a while
    begun, mark = folder / f"begun-{rank}", folder / f"saved-{rank}"
    if begun.exists():
        status("finished", 0) if mark.exists() else sys.exit("started beside ranks that still save")
    begun.write_text(str(os.getppid()))
    while not got:
        time.sleep(0.02)
    time.sleep(8.0)  # longer than a start takes
    mark.touch()
    status("stopped", 75)
deadline = time.monotonic() + 1000
while (todo == "forever" or not got) and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(1.0)  # the save
if os.environ["FAKE"] == "wait,wait":
    status("stopped", 75)
sys.exit(1)
'''


def environment(**extra: str) -> dict[str, str]:
    """That of a child, without what the surroundings may hold of GPUs and launches."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ZEROMT_LAUNCH_ID", "LOGLEVEL")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | extra


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def command_line(arguments: Sequence[str]) -> list[str]:
    """`zeromt` without its script, which may not be installed; -P: a script has not the current folder."""
    return [
        sys.executable,
        "-P",
        "-c",
        "import sys; from zeromt.cli.main import main; sys.exit(main())",
        *arguments,
    ]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with a prepared dataset, by appearance, and traps for imports from the current folder."""
    dataset = tmp_path / "data" / "prepared" / "debug"
    dataset.mkdir(parents=True)
    (dataset / "index.json").write_text("{}")
    for name in ("trainer", "model", "launcher", "configs", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('picked up from the current folder')")
    fake = tmp_path / "fake" / "trainer"
    fake.mkdir(parents=True)
    # The launcher itself uses modules of the real trainer.
    (fake / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)")
    (fake / "__main__.py").write_text(FAKE_TRAINER)
    return tmp_path


@pytest.fixture
def launch(workplace: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """Start `zeromt launch local debug`, or `launch COMMAND`; the ranks of a pretending trainer do what `fake` says."""

    def start(fake: str, *arguments: str, command: str = "local", **extra: str) -> "subprocess.Popen[str]":
        paths = os.pathsep.join([str(workplace / "fake"), str(ROOT)])
        return subprocess.Popen(
            command_line(["launch", command, "debug", *arguments]),
            cwd=workplace,
            env=environment(FAKE=fake, **{"PYTHONPATH": paths} | extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
