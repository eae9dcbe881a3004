"""A scheduler that is pretended: its jobs wait in the folder `queue` until a test works them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launcher.conftest import environment
from tests.waiting import PATIENCE, wait_until

PROGRAM = """
import os, sys
from pathlib import Path

queue, (name, *words) = Path(os.environ["QUEUE"]), [Path(sys.argv[0]).name, *sys.argv[1:]]
with (queue / "log").open("a") as log:
    log.write(" ".join([name, *words]) + "\\n")
if name == "srun":
    os.execvp(words[3], words[3:])
if name == "sbatch":
    script, number = sys.stdin.read(), len(list(queue.glob("*.sh"))) + 1
    if words == ["--test-only"]:
        sys.exit((queue / "refuses").exists() and "sbatch: error: no such partition")
    assert "SLURM_JOB_ID" not in os.environ
    job = script.partition("--job-name=")[2].partition("\\n")[0]
    (queue / f"{number}.sh").write_text(script)
    (queue / f"{number}.job").write_text(job)
    print(number)
elif (queue / "down").exists():
    sys.exit("no controller")
elif "--states=all" in words:
    print("job 1: TIMEOUT")
elif "--name" in words:
    print("".join(f"{one.stem}\\n" for one in queue.glob("*.job") if one.read_text() == words[3]), end="")
elif (queue / f"{words[2]}.job").exists():
    print("PENDING|Dependency|UNLIMITED")
"""


class Scheduler:
    """One in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue, binaries = folder / "queue", folder / "bin"
        for one in (self.queue, binaries):
            one.mkdir()
        for name in ("sbatch", "squeue", "srun"):
            (binaries / name).write_text(f"#!{sys.executable}\n{PROGRAM}")
            (binaries / name).chmod(0o755)
        self.variables = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "QUEUE": str(self.queue),
            "SLURM_JOB_ID": "7",  # of an allocation from which is sent
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def asked(self, name: str = "sbatch") -> list[str]:
        """The arguments with which one of its commands was called."""
        lines = (self.queue / "log").read_text().splitlines() if (self.queue / "log").exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]

    def script(self, job: int) -> str:
        """The script of a job."""
        return (self.queue / f"{job}.sh").read_text()

    def wait_for(self, job: int) -> None:
        """Wait until a job has been sent."""
        wait_until((self.queue / f"{job}.job").exists, "the job")

    def work(self, job: int, *, task: int | None = None) -> None:
        """Run a job as soon as it is there, or a task of it, after which it stays."""
        self.wait_for(job)
        own = {"SLURM_JOB_ID": str(job)} | (
            {}
            if task is None
            else {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "4"}
        )
        script = self.queue / f"{job}.sh"
        output = self.script(job).partition("--output=")[2].partition("\n")[0]
        for pattern, value in (("%j", str(job)), ("%A", str(job)), ("%a", str(task))):
            output = output.replace(pattern, value)
        with Path(output).open("a") as file:
            subprocess.run(
                ["bash", str(script)],
                cwd=self.folder,
                env=environment(**{**self.variables, **own}),
                stdout=file,
                stderr=file,
                timeout=PATIENCE,
            )
        if task is None:
            self.leave(job)

    def leave(self, job: int) -> None:
        """Take a job out of the queue."""
        (self.queue / f"{job}.job").unlink()
