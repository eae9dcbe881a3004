"""`zeromt` commands in children forked from one process that has imported torch: a second each in place of five.

For what takes many starts of one small run. That the commands start by themselves is tried elsewhere.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import Finished, environment


class Commands:
    """Makes the calls, one at a time."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, cwd: Path) -> Finished:
        """`zeromt ARGUMENT...` in a folder."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"argv": arguments, "cwd": str(cwd)}) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line, "the server has ended"
        answer: dict[str, Any] = json.loads(line)
        return Finished(code=answer["code"], out=answer["out"], err=answer["err"])

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(30)
        self._server.kill()
        self._server.wait()


def _main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries speak while they are imported
    from trainer.runs.process.imports import quick_imports

    with quick_imports():
        import trainer.build
        import trainer.engines.deepspeed.engine
        import trainer.main  # noqa: F401
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                _run(request, out.fileno(), err.fileno())
            answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
            for name, file in (("out", out), ("err", err)):
                file.seek(0)
                answer[name] = file.read().decode(errors="replace")
        print(json.dumps(answer), file=answers, flush=True)


def _run(request: dict[str, Any], out: int, err: int) -> None:
    """In the child: does not return."""
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(request["cwd"])
        from launcher.cli import main

        code = main(request["argv"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main()
