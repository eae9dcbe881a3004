"""`python -m tests.fuzz.server`: makes calls in children forked from a process that has imported everything.

A call so costs a fork and not the seconds of importing torch. Reads one JSON object a line, answers with one.
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from tests.fuzz import watch

PR_SET_CHILD_SUBREAPER = 36
STOP_SECONDS = 25.0
"""Within which a training that is asked to stop must have stopped."""
LEAVE_SECONDS = 5.0
"""Within which what a call started must be gone after it."""
MEMORY_BYTES, FILE_BYTES, PROCESSES = 16 << 30, 256 << 20, 400


def main() -> None:
    """Import, then serve."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    import_all()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    print("ready", file=answers)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers)


def import_all() -> None:
    """Every module of the product that a call may want; torch among them, but no thread is started."""
    import importlib

    from zeromt.cli.main import COMMANDS

    for module in [c.target.partition(":")[0] for c in COMMANDS.values()]:
        importlib.import_module(module)
    for module in (
        "trainer.main",
        "trainer.build",
        "data_pipeline.preparation.prepare",
        "launcher.local",
        "launcher.agents.node",
    ):
        importlib.import_module(module)
    for module in (
        "configs",
        "sacrebleu",
        "tensorboard.plugins.text.text_plugin",
        "torch.utils.tensorboard",
    ):
        importlib.import_module(module)
    assert threading.active_count() == 1


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Make one call and wait for it."""
    begin = time.monotonic()
    folder = Path(request["logs"])
    child = os.fork()
    if not child:
        _child(request, folder)
    status, used, timed_out, hung = _wait(child, begin + request["seconds"], request["can_stop"])
    left = _sweep()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - begin,
        "timed_out": timed_out,
        "hung": hung,
        "left": left,
        "memory_bytes": used.ru_maxrss * 1024,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "opened": watch.told(folder),
    }


def _wait(child: int, end: float, can_stop: bool) -> tuple[int, resource.struct_rusage, bool, bool]:
    """The child's status, what it used, whether its time was over, and whether it had to be killed."""
    timed_out = False
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return status, used, timed_out, False
        if time.monotonic() > end:
            if timed_out or not can_stop:
                os.kill(child, signal.SIGABRT if not timed_out else signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    time.sleep(0.5)
                    os.kill(child, signal.SIGKILL)
                return *os.wait4(child, 0)[1:], True, True
            timed_out, end = True, time.monotonic() + STOP_SECONDS
            os.kill(child, signal.SIGTERM)
        time.sleep(0.005)


def _sweep() -> list[str]:
    """End what a call left behind; what was not gone by itself after some seconds, by its command line."""
    end = time.monotonic() + LEAVE_SECONDS
    while (found := _descendants()) and time.monotonic() < end:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    left = [f"{pid} {_command(pid)}" for pid in found]
    while found:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
        found = _descendants()
    return left


def _descendants() -> list[int]:
    """Children of this process and theirs: as a subreaper it inherits those whose parents are gone."""
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        for listed in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                mine = [int(pid) for pid in listed.read_text().split()]
                found += mine
                todo += mine
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return "?"


def _child(request: dict[str, Any], logs: Path) -> None:
    """Be the process that a shell would have started, and end as Python would."""
    code = 1
    try:
        os.setsid()
        outputs = [os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
        _limits(request["cpu_seconds"])
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        tempfile.tempdir = None
        _streams(request, outputs)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if request["is_watched"]:
            watch.tell_opened(logs)
        code = _run(request["argv"])
    except BaseException:  # as Python ends by itself
        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _limits(cpu_seconds: int | None) -> None:
    if cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    if os.getuid() != 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


def _run(argv: list[str]) -> int:
    """The exit code of the command, and what the interpreter does after it."""
    from zeromt.cli.main import main as command

    sys.argv = ["zeromt", *argv]
    try:
        code = command(None)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            if stream is sys.stdout:
                code = 120
                if sys.stderr is not None:
                    print("Exception ignored while flushing sys.stdout", file=sys.stderr)
    return int(code)


def _streams(request: dict[str, Any], outputs: list[int]) -> None:
    """0, 1 and 2 as the call wants them, and Python's streams over those that are there."""
    kinds = request["stdin"], request["stdout"], request["stderr"]
    for number, kind in enumerate(kinds):
        if kind != "closed":
            os.dup2(_stream(kind, outputs[number - 1] if number else -1), number)
    os.closerange(3, 1024)
    for number, kind in enumerate(kinds):
        if kind == "closed":
            os.close(number)
    encoding = request["encoding"]
    for number, name, errors in ((0, "stdin", "strict"), (1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        try:
            os.fstat(number)
            raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
            opened: Any = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
            stream = io.TextIOWrapper(opened, encoding=encoding, errors=errors, line_buffering=number == 2)
        except OSError:
            stream = None  # as at the start of an interpreter
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(kind: str, output: int) -> int:
    if kind == "file":
        return output
    if kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        return writing
    name, how = {
        "null": (os.devnull, os.O_RDWR),
        "text": ("corpus/in.en", os.O_RDONLY),
        "binary": ("binary", os.O_RDONLY),
        "write-only": ("out/old.txt", os.O_WRONLY),
        "full": ("/dev/full", os.O_WRONLY),
        "read-only": ("/dev/null", os.O_RDONLY),
    }[kind]
    return os.open(name, how)


if __name__ == "__main__":
    main()
