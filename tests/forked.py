"""The one way to run ranks: processes forked from one that has imported all that a run needs already.

    forked.ranks(2, task, 3)      what `task(world, 3)` returned on each of two ranks
    forked.trainer(2, CONFIG)     `python -m trainer CONFIG` on two ranks
    forked.zeromt("train", ...)   a command of `zeromt`

`forked` is a fixture: a process that waits for such calls, so that two ranks start and meet in 0.1 CPU seconds. Ranks
that lived on from test to test would save no more, and hand on what a test leaves. What a task takes and returns is
pickled, and the task itself by its name. Tasks that need no engine can be forked from the process of the tests, and may
then be any function: `fork_ranks` and `fork`. That torchrun itself starts ranks, and that commands start by themselves,
is tried elsewhere.
"""

import gc
import importlib
import os
import pickle
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pytest

from tests.conftest import Finished, descendants, environment
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from trainer.ranks.distributed import World

T = TypeVar("T")
CURRENT = "PYTEST_CURRENT_TEST"
"""Environment variable, of pytest: the test that asks."""
IMPORTED = (
    *(
        "trainer.main",
        "trainer.build",
        "trainer.engines.deepspeed.engine",
        "trainer.report",
        "trainer.trackers.tensorboard",
    ),
    *("model.kernels.cpu", "torch._dynamo", "torch.utils.tensorboard", "tensorboard.plugins.hparams.plugin_data_pb2"),
    *("deepspeed.module_inject.auto_ep_layer", "sacrebleu", "langcodes", "PIL.JpegImagePlugin"),
)
"""What a run imports sooner or later. In each new rank it took longer than all else that a small run does."""

KILLED = -signal.SIGKILL
OTHERS_SECONDS = 30.0
"""Seconds between SIGTERM to the ranks that are left when one has failed, and SIGKILL."""


Ended = tuple[int, bytes]
"""An exit code, negative for a signal, and what the task returned, pickled; nothing where it failed."""


class Forked:
    """The process that ranks and commands are forked from; it starts with the first of them."""

    def __init__(self, *prefix: str) -> None:
        """Begin.

        Args:
            prefix: of the process's command, such as `env NAME=VALUE`.
        """
        self._command = [*prefix, sys.executable, "-m", "tests.forked"]
        self._server: subprocess.Popen[bytes] | None = None
        self._environment = environment()  # before a test that comes to start it sets variables

    def ranks(
        self,
        size: int,
        task: Callable[..., T],
        *arguments: Any,
        cwd: Path,
        meet: bool = True,
        seconds: float = PATIENCE,
        variables: Mapping[str, str] | None = None,
    ) -> list[T]:
        """What `task(world, *arguments)` returns on each of `size` ranks, none of which may fail.

        Args:
            size: how many.
            task: a function of a module.
            arguments: what it gets beside the world.
            cwd: the folder that it runs in.
            meet: False: it gets no world, and the ranks may make theirs.
            seconds: that they may take.
            variables: more of the environment.
        """
        call, given = (_in_world, (task, *arguments)) if meet else (task, arguments)
        done, ended = self._call(call, given, size, cwd, seconds, variables)
        assert done.code == 0, done.err[-4000:]
        return _values_of(ended)

    def trainer(self, size: int, *arguments: str, cwd: Path, seconds: float = PATIENCE) -> Finished:
        """`python -m trainer ARGUMENT...` on `size` ranks; 1 where one of several fails, as torchrun has it."""
        return self._call(_trainer, arguments, size, cwd, seconds)[0]

    def zeromt(
        self, *arguments: str, cwd: Path, seconds: float = PATIENCE, surroundings: Mapping[str, str] | None = None
    ) -> Finished:
        """`zeromt ARGUMENT...`; `surroundings` is its whole environment, in place of this process's."""
        if surroundings is None:
            return self._call(_zeromt, arguments, 1, cwd, seconds)[0]
        return self._call(_zeromt_in, (dict(surroundings), *arguments), 1, cwd, seconds)[0]

    def close(self) -> None:
        """End the process and whatever it has started."""
        if self._server is None:
            return
        for pid in [*descendants(self._server.pid), self._server.pid]:
            send(pid, signal.SIGKILL)
        self._server.wait()
        for pipe in (self._server.stdin, self._server.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self._server = None

    def _call(
        self,
        task: Callable[..., object],
        arguments: Sequence[Any],
        size: int,
        cwd: Path,
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> tuple[Finished, list[Ended]]:
        """Let `size` processes call `task(*arguments)`."""
        if self._server is None:
            pipe = subprocess.PIPE
            self._server = subprocess.Popen(self._command, env=self._environment, stdin=pipe, stdout=pipe)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            call = pickle.dumps((task, tuple(arguments)))
            given = {CURRENT: os.environ.get(CURRENT, ""), **(variables or {})}
            pickle.dump((call, size, str(cwd), seconds, given), self._server.stdin)
            self._server.stdin.flush()
            ended, out, err = pickle.load(self._server.stdout)
        except BaseException:  # its answer to this call would be taken for one to the next
            self.close()
            raise
        if ended is None:
            pytest.fail(f"{task.__name__}{arguments!r:.500} ran longer than {seconds} s\n{out[-2000:]}\n{err[-4000:]}")
        codes = [code for code, _ in ended]
        return Finished(code=codes[0] if size == 1 else int(any(codes)), out=out, err=err), ended


def found_again(forked: Forked, run: Path, step: int, folder: Path) -> str:
    """What `zeromt batch` says of an update in a folder; its pairs must be those that the run recorded."""
    done = forked.zeromt("batch", str(run), str(step), cwd=folder)
    assert "equal to that of metrics.jsonl" in done.out, done.err
    return done.out


def fork(task: Callable[[], T], *, seconds: float = PATIENCE) -> T:
    """What `task` returns in a new process, which must not fail."""
    return _values_of(fork_all([task], seconds=seconds))[0]  # type: ignore[no-any-return]


def fork_ranks(size: int, task: "Callable[[World], T]", *, seconds: float = PATIENCE) -> list[T]:
    """What `task` returns in each of `size` new ranks, none of which may fail."""
    return _values_of(fork_all(_as_ranks(size, partial(_in_world, task)), seconds=seconds))


def exit_codes(size: int, task: "Callable[[World], object]", *, seconds: float = PATIENCE) -> list[int]:
    """How `task` ends in each of `size` new ranks: 0, 1 where it raises, or negative for a signal."""
    return [code for code, _ in fork_all(_as_ranks(size, partial(_in_world, task)), seconds=seconds)]


def _values_of(ended: Sequence[Ended]) -> list[Any]:
    codes = [code for code, _ in ended]
    assert not any(codes), f"exit codes {codes}; what they wrote stands on stderr"
    return [pickle.loads(answer) for _, answer in ended]


# In the processes that are forked.


def _with(variables: Mapping[str, str], call: Callable[[], T]) -> T:
    os.environ |= variables
    return call()


def _in_world(task: Callable[..., T], *arguments: Any) -> T:
    from trainer.ranks.distributed import World
    from trainer.ranks.process import tune_process

    tune_process()
    world = World(timeout_minutes=10 * PATIENCE / 60)  # who waits for one that is gone is told so at once, or never
    answer = task(world, *arguments)
    world.close()
    return answer


def _trainer(*arguments: str) -> None:
    sys.argv[1:] = arguments
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)


def _zeromt(*arguments: str) -> None:
    from zeromt.cli.main import main

    sys.exit(main(list(arguments)))


def _zeromt_in(variables: Mapping[str, str], *arguments: str) -> None:
    os.environ.clear()
    os.environ |= variables
    sys.path[:0] = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    _zeromt(*arguments)


# In the process that they are forked from, which may be the tests'.


def _as_ranks(size: int, call: Callable[[], object]) -> list[Callable[[], object]]:
    if size == 1:
        return [call]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    world |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return [partial(_with, {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)}, call) for rank in range(size)]


def fork_all(calls: Sequence[Callable[[], object]], *, seconds: float, ends_others: bool = False) -> list[Ended]:
    """Call each in a new process.

    Args:
        calls: of one process each.
        seconds: that they may take together.
        ends_others: whether a process that fails ends the others.

    Raises:
        TimeoutError: they took longer; they are killed, and what they started.
    """
    files = [os.memfd_create("answer") for _ in calls]
    pids = [_fork(call, file) for call, file in zip(calls, files, strict=True)]
    codes = _wait(pids, seconds, ends_others=ends_others)
    answers = []
    for file in files:
        with os.fdopen(file, "rb") as answer:
            answer.seek(0)
            answers.append(answer.read())
    return list(zip(codes, answers, strict=True))


def _fork(call: Callable[[], object], file: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        answer = pickle.dumps(call())
        _let_files_grow()
        with os.fdopen(file, "wb") as written:
            written.write(answer)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        _let_files_grow()
        traceback.print_exc()
    finally:  # whatever happens, no child goes on as a second pytest
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _let_files_grow() -> None:
    """A task may have limited them, for a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _wait(pids: Sequence[int], seconds: float, *, ends_others: bool) -> list[int]:
    """Exit codes of children, negative for a signal."""
    codes: dict[int, int] = {}
    left = set(pids)
    end, others_end = time.monotonic() + seconds, float("inf")
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
                left.discard(pid)
        if left and ends_others and others_end == float("inf") and any(codes.values()):
            others_end = time.monotonic() + OTHERS_SECONDS
            for pid in left:
                send(pid, signal.SIGTERM)
        if time.monotonic() > others_end:
            for pid in left:
                send(pid, signal.SIGKILL)
        if left and time.monotonic() > end:
            for pid in left:
                for started in [*descendants(pid), pid]:
                    send(started, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise TimeoutError(f"{len(left)} of {len(pids)} processes were not done within {seconds} s")
        time.sleep(0.002)
    return [codes[pid] for pid in pids]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


# The process of `Forked`.


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries speak while they are imported
    from configs import load_run
    from configs.process.with_torch import quick_imports

    with quick_imports():
        for name in IMPORTED:
            importlib.import_module(name)
        load_run("debug")  # all components, and what pydantic makes of a run's sections
    _ = sys.modules["deepspeed"].ops.__compatible_ops__  # which starts programs to find them
    num_threads = len(list(Path("/proc/self/task").iterdir()))  # those of libraries too
    assert num_threads == 1, "what is imported has started threads, which a fork would lose"
    gc.freeze()
    with suppress(EOFError):
        while True:
            answer = _answer(*pickle.load(sys.stdin.buffer))
            pickle.dump(answer, answers)
            answers.flush()


def _answer(
    call: bytes, size: int, cwd: str, seconds: float, variables: Mapping[str, str]
) -> tuple[list[Ended] | None, str, str]:
    """How they ended, None where that took too long, and what was written to stdout and stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:

        def run() -> object:
            for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out.fileno()), (2, err.fileno())):
                os.dup2(file, number)
            os.environ |= variables
            os.chdir(cwd)
            task, arguments = pickle.loads(call)
            return task(*arguments)

        ended: list[Ended] | None = None
        with suppress(TimeoutError):
            ended = fork_all(_as_ranks(size, run), seconds=seconds, ends_others=True)
        return ended, _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    _serve()
