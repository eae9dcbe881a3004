"""Runs a measurement in a new process: `python -m benchmarks.common.child MODULE FUNCTION < JSON`.

The process may be of another commit, checked out next to this tree.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from configs import UserError

ROOT = Path(__file__).resolve().parents[2]


def call(function: Callable[..., dict[str, Any]], **arguments: Any) -> Any:
    """Call a function at the top level of a module in a new process; see `call_named`."""
    return call_named(function.__module__, function.__name__, **arguments)


def call_named(module: str, function: str, *, limit: float | None = None, tree: Path = ROOT, **arguments: Any) -> Any:
    """Call a function of a module in a new process; returns its result. Arguments and result must be plain JSON.

    Args:
        module, function: names; this process does not import the module.
        limit: seconds. With a limit, the process and all that it started are killed after it, on any error here (such
            as KeyboardInterrupt), and by themselves where this process is killed.
        tree: the checkout whose module it is.
        arguments: keyword arguments of the function.

    Raises:
        UserError: the process failed or took longer than its limit; the message has the end of its stderr.
    """
    command = [sys.executable, "-m", "benchmarks.common.child", module, function]
    if limit is not None:
        command.append(str(os.getpid()))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=limit is not None,
        )
        late = ""
        try:
            output, _ = process.communicate(json.dumps(arguments, default=str).encode(), timeout=limit)
        except subprocess.TimeoutExpired:
            late = f"took longer than {limit:.0f} s, "
        finally:
            if limit is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            log.seek(0)
            end = log.read()[-2000:].decode(errors="replace")
            raise UserError(f"{function}: {late}exit code {process.returncode}\n{end}")
    return json.loads(output)


def _end_with(parent: int) -> None:
    """Kill this process's group when the process that started it has ended."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os.killpg(os.getpgrp(), signal.SIGKILL)


@contextlib.contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of a commit, removed at the end."""
    git("worktree", "add", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    """Run git; returns its output.

    Raises:
        UserError: it failed.
    """
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UserError(f"git {arguments[0]}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def environment(tree: Path = ROOT) -> dict[str, str]:
    """Environment variables of a child: numpy and torch use one thread, so that only processes are parallel."""
    paths = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    # preparation/writing/shards.py forbids webdataset to open local files, which the webdataset baseline must do
    rest = {name: value for name, value in os.environ.items() if name != "WDS_SECURE"}
    return {**rest, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Call the function named on the command line. Whatever it and its child processes print goes to stderr."""
    module, name, *parent = sys.argv[1:]
    if parent:
        threading.Thread(target=_end_with, args=(int(parent[0]),), daemon=True).start()
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        result = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
        answer.write(json.dumps(result))


if __name__ == "__main__":
    main()
