"""`zeromt log`: the output of a run's newest SLURM job, or of the ranks of its last start."""

import re
import subprocess
import sys
from pathlib import Path

from configs import UserError
from configs.process.files import naming
from configs.process.files.inside import opened
from launcher.monitoring.look import written
from trainer.runs.layout import LOGS


def log(*, run: str, follow: bool) -> int:
    """`zeromt log`: print it, and with `follow` what is added.

    Raises:
        UserError: there is no output, or a file of it is no plain file.
    """
    logs = Path(run, LOGS)
    shown = newest_logs(logs)
    if not shown:
        raise UserError(f"RUN: {str(logs)!r} has no output; of `launch local`, rank 0 writes to its terminal alone")
    with naming("RUN"):
        for file in shown:
            opened(file).close()
    command = ["tail", *(["-F"] if follow else []), "-n", "+1", "--", *map(str, shown)]
    if not sys.stdout.isatty():
        return subprocess.run(command, check=False).returncode
    # through our own standard output, on which text cannot control the terminal
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        for line in child.stdout or ():
            sys.stdout.write(line.decode(errors="backslashreplace"))
            sys.stdout.flush()
    return child.returncode


def newest_logs(logs: Path) -> list[Path]:
    """Log files of the newest job, all tasks of an array, or of the ranks of the last start on each node.

    Args:
        logs: folder of logs in the run's.
    """
    starts = {
        path: written(path) for path in (*logs.glob("*/"), *logs.glob("node-*/*/")) if any(path.glob("attempt_*"))
    }
    jobs = {path: written(path) for path in logs.glob("*.out")}
    if jobs and max(jobs.values()) >= max(starts.values(), default=0.0):
        stem = re.sub(r"(-\d+)_\d+$", r"\1", max(jobs, key=lambda path: jobs[path]).stem)
        return sorted(path for path in jobs if path.stem == stem or path.stem.startswith(f"{stem}_"))
    newest = {path.parent: path for path in sorted(starts, key=lambda path: starts[path])}
    return sorted(file for path in newest.values() for file in path.rglob("std*.log") if file.stat().st_size)
