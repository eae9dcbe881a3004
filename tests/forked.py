"""The one way to run ranks: processes forked from one that has imported all that a run needs already.

    forked.ranks(2, task, 3)      what `task(world, 3)` returned on each of two ranks
    forked.trainer(2, CONFIG)     `python -m trainer CONFIG` on two ranks
    forked.zeromt("train", ...)   a command of `zeromt`

`forked` is a fixture: a process that waits for such calls, so that two ranks start and meet in 0.1 CPU seconds. Ranks
that lived on from test to test would save no more, and hand on what a test leaves. What a task takes and returns is
pickled, and the task itself by its name. Tasks that need no engine can be forked from the process of the tests, and may
then be any function: `fork_ranks` and `fork` of `tests.forking`. That torchrun itself starts ranks, and that commands
start by themselves, is tried elsewhere.
"""

import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

from tests.conftest import Finished, descendants, environment
from tests.forking import Ended, as_ranks, fork_all, send, values_of
from tests.waiting import PATIENCE

T = TypeVar("T")
CURRENT = "PYTEST_CURRENT_TEST"
"""Environment variable, of pytest: the test that asks."""
IMPORTED = (
    *("trainer.main", "trainer.build", "trainer.engines.deepspeed.engine", "trainer.report", "trainer.records.board"),
    *("model.kernels.cpu", "torch._dynamo", "torch.utils.tensorboard", "tensorboard.plugins.hparams.plugin_data_pb2"),
    *("deepspeed.module_inject.auto_ep_layer", "sacrebleu", "langcodes", "PIL.JpegImagePlugin"),
)
"""What a run imports sooner or later. In each new rank it took longer than all else that a small run does."""


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
        return values_of(ended)

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
            is_late, codes, answers, out, err = pickle.load(self._server.stdout)
        except BaseException:  # its answer to this call would be taken for one to the next
            self.close()
            raise
        if is_late:
            pytest.fail(f"{task.__name__}{arguments!r:.500} ran longer than {seconds} s\n{out[-2000:]}\n{err[-4000:]}")
        code = codes[0] if size == 1 else int(any(codes))
        return Finished(code=code, out=out, err=err), list(map(Ended, codes, answers))


# In the processes that are forked.


def _in_world(task: "Callable[..., object]", *arguments: Any) -> object:
    from trainer.ranks.distributed import World
    from trainer.ranks.process import tune_process

    tune_process()
    world = World(timeout_minutes=2)
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


# In the process that they are forked from.


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries speak while they are imported
    from configs.components.registry import FAMILIES
    from configs.process.with_torch import quick_imports

    with quick_imports():
        for name in IMPORTED:
            importlib.import_module(name)
        for package in map(importlib.import_module, FAMILIES.values()):
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{package.__name__}.{module.name}")
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
) -> tuple[bool, list[int], list[bytes], str, str]:
    """Whether it took too long, exit codes, answers, and what was written to stdout and stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:

        def run() -> object:
            for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out.fileno()), (2, err.fileno())):
                os.dup2(file, number)
            os.environ |= variables
            os.chdir(cwd)
            task, arguments = pickle.loads(call)
            return task(*arguments)

        ended: list[Ended] = []
        is_late = False
        try:
            ended = fork_all(as_ranks(size, run), seconds=seconds, ends_others=True)
        except TimeoutError:
            is_late = True
        codes, answers = [one.code for one in ended], [one.answer for one in ended]
        return is_late, codes, answers, _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    _serve()
