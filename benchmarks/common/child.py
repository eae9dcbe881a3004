"""Runs a measurement in a new process: `python -m benchmarks.common.child MODULE FUNCTION < JSON`."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs import UserError

ROOT = Path(__file__).resolve().parents[2]


def call(
    function: Callable[..., dict[str, Any]], *, started: Callable[[int], None] | None = None, **arguments: Any
) -> Any:
    """Call a function in a new process; returns its result. Arguments and result must be plain JSON.

    Args:
        function: a function at the top level of a module.
        started: called with the id of the process.
        arguments: keyword arguments of the function.

    Raises:
        UserError: the process failed; the message has the end of its stderr.
    """
    command = [sys.executable, "-m", "benchmarks.common.child", function.__module__, function.__name__]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        if started is not None:
            started(process.pid)
        output, _ = process.communicate(json.dumps(arguments, default=str).encode())
        if process.returncode:
            log.seek(0)
            raise UserError(f"{function.__name__}: exit code {process.returncode}\n{log.read()[-2000:].decode()}")
    return json.loads(output)


def environment() -> dict[str, str]:
    """Environment variables of a child: numpy and torch use one thread, so that only processes are parallel."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # preparation/writing/shards.py forbids webdataset to open local files, which the webdataset baseline must do
    rest = {name: value for name, value in os.environ.items() if name != "WDS_SECURE"}
    return {**rest, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Call the function named on the command line. All output of it and of its child processes goes to stderr."""
    module, name = sys.argv[1:]
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
        answer.write(json.dumps(result))


if __name__ == "__main__":
    main()
