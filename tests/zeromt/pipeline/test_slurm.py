"""Steps as jobs, of a scheduler that is pretended: what cannot be brought about on a real one (tests/slurm/)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.conftest import environment
from tests.waiting import PATIENCE, wait_until
from tests.zeromt.pipeline.conftest import STEPS, command, write

PLACE = {"kind": "slurm", "settings": {"gpus_per_node": 0}, "poll_seconds": 1}
SCHEDULER = """
import os, subprocess, sys
from pathlib import Path

queue, program = Path("queue"), Path(sys.argv[0]).name
if program == "srun":
    os.execvp(sys.argv[4], sys.argv[4:])
if program == "sbatch":
    script, number = sys.stdin.read(), len(list(queue.glob("*.sh"))) + 1
    name = script.partition("--job-name=")[2].partition("\\n")[0]
    (queue / f"{number}.sh").write_text(f"SLURM_JOB_ID={number}\\n{script}")
    (queue / f"{number}.job").write_text(f"{number}|{name}\\n")
    print(number)
elif (queue / "down").exists():
    sys.exit("no controller")
else:
    print("".join(one.read_text() for one in queue.glob("*.job")), end="")
"""


@pytest.fixture
def sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> "subprocess.Popen[str]":
    """A driver whose first step has been sent, and waits in the queue."""
    (folder / "queue").mkdir()
    (folder / "bin").mkdir()
    for name in ("sbatch", "squeue", "srun"):
        (folder / "bin" / name).write_text(f"#!{sys.executable}\n{SCHEDULER}")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    write(folder, {**STEPS, "upper": {**STEPS["upper"], "launch": "--time 5"}}, place=PLACE)
    driver = start(folder)
    wait_until((folder / "queue/1.job").exists, "the job")
    return driver


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def work(folder: Path, job: int) -> None:
    """Run a job that waits in the queue, as soon as it is there."""
    wait_until((folder / f"queue/{job}.job").exists, "the job")
    subprocess.run(["bash", f"queue/{job}.sh"], cwd=folder, env=environment(), timeout=PATIENCE, check=True)
    (folder / f"queue/{job}.job").unlink()


def test_a_job_whose_number_was_lost_is_found_by_its_name(sent: "subprocess.Popen[str]", folder: Path) -> None:
    """The machine fell when sbatch had not answered; then the controller is down for a while."""
    sent.kill()
    sent.communicate()
    (numbers,) = (folder / "out/my/.pipeline").glob("upper.*.jobs")
    numbers.write_text("")
    driver = start(folder)
    assert driver.stdout is not None
    assert [driver.stdout.readline() for _ in range(2)][1] == "upper: job 1 is adopted\n"
    (folder / "queue/down").touch()
    for job in (1, 2, 3):
        work(folder, job)
    out, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, out + err
    assert (folder / "out/my/both").read_text() == "A\nB\nC\nA\nB\n"
    assert "#SBATCH --time=0-00:05:00\n" in (folder / "out/my/.pipeline/upper.sh").read_text()


def test_a_step_that_changed_waits_for_its_job_of_before(sent: "subprocess.Popen[str]", folder: Path) -> None:
    """Both would write the same result."""
    sent.send_signal(signal.SIGTERM)
    assert "upper: job 1 goes on; `scancel 1` would end it" in sent.communicate(timeout=PATIENCE)[1]
    assert sent.returncode == 75
    (folder / "in.txt").write_text("d\n")
    refused = start(folder)
    assert (
        "steps.upper: has changed, and its job 1 of before is still in the queue; `scancel 1`"
        in (refused.communicate(timeout=PATIENCE)[1])
    )
    assert refused.returncode == 2
    (folder / "queue/1.job").unlink()
    driver = start(folder)
    for job in (2, 3, 4):
        work(folder, job)
    assert driver.wait(PATIENCE) == 0
    assert (folder / "out/my/both").read_text() == "D\nD\n"
