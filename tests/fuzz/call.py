"""A call of the command line, made in a process of its own, and whether it ended as every call must."""

import ctypes
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.conftest import descendants, environment, is_running
from tests.forked import fork_all, send
from tests.waiting import PATIENCE

PR_SET_CHILD_SUBREAPER = 36
LEAVE_SECONDS = 10.0
"""Within which what a call started must be gone after it."""
FILE_BYTES, MEMORY_BYTES, CPU_SECONDS = 256 << 20, 2 << 30, 20
"""Of a file that is written, and, of a call on forged files, what is held at a time and computed."""
FOLDERS = ("TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that name where a command may write."""
STREAMS = {
    "null": (os.devnull, os.O_RDWR), "text": ("corpus/in.en", os.O_RDONLY), "binary": ("binary", os.O_RDONLY),
    "write-only": ("out/old.txt", os.O_WRONLY), "full": ("/dev/full", os.O_WRONLY),
    "read-only": ("/dev/null", os.O_RDONLY),
}  # fmt: skip
"""Beside `out`, a file; `closed`; and `gone`, a pipe that nobody reads."""
OUTPUT_OPTIONS = ("-o", "--output", "--to", "--jsonl", "prepare.output")
TYPED_OUTPUT = re.compile(rf"(?:^|\0)(?:{'|'.join(OUTPUT_OPTIONS)})[=\0]?([^\0]*)")
MAY_CHANGE = {
    "train": "runs/", "launch": "runs/", "stop": "runs/", "prepare": "(?!corpus/|runs/)", "score": "dataset",
    "report": ".*/report[.]",
}  # fmt: skip
"""Names that a command may change unasked, as regular expressions."""
LISTED = "No space left on device|File too large|Broken pipe"
"""What may be said with exit code 1: it is not the user's input."""
SIGNS = ("Traceback (most recent call last)", "--- Logging error ---", "Exception ignored", "Fatal Python error")


@dataclass(kw_only=True, frozen=True)
class Call:
    """What is typed, and where: in the folder that `places.build` fills."""

    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Written into the folder first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    streams: tuple[str, str, str] = ("null", "out", "out")
    forged: tuple[str, str] | None = None
    """A file of a stranger's, and what takes its place (`forgery.py`)."""


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    code: int | None
    """Negative for a signal; None where it did not end."""
    left: list[str]
    """Processes that were still there when it had ended."""
    memory_bytes: int
    out: str
    err: str


def perform(call: Call, root: Path) -> Outcome:
    """Make a call in the folder `here` of the root; to be called in a process that does nothing else."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        [(ended, answer)] = fork_all([partial(_command, call, root)], seconds=PATIENCE)
        code = ended or pickle.loads(answer)
    except TimeoutError:
        code = None
    end = time.monotonic() + LEAVE_SECONDS
    while (left := list(filter(is_running, descendants(os.getpid())))) and time.monotonic() < end:
        time.sleep(0.01)
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
    for pid in left:
        send(pid, signal.SIGKILL)
    texts = (
        (root / name).read_bytes().decode("utf-8", "replace") if (root / name).exists() else "" for name in ("1", "2")
    )
    return Outcome(code, commands, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, *texts)


def _command(call: Call, root: Path) -> int:
    """Be the process that a shell would have started."""
    from zeromt.cli.main import main

    os.setsid()
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))
    home = str(root / "home")
    variables = environment() | {"PATH": str(Path(sys.executable).parent), "HOME": home}
    if call.forged:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        variables["HOME"] = str(root / "outside/home")
    os.environ.clear()
    os.environ |= {**variables, **dict.fromkeys(FOLDERS, home), **call.environment}
    tempfile.tempdir = None
    _open(call.streams)
    sys.argv = ["zeromt", *call.argv]
    code = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # as at the end of an interpreter
    return code


def _open(streams: Sequence[str]) -> None:
    """0, 1 and 2 as the call wants them, and Python's streams over those that are there."""
    for number, kind in enumerate(streams):
        if kind in STREAMS:
            os.dup2(os.open(*STREAMS[kind]), number)
        elif kind == "out":
            os.dup2(os.open(f"../{number}", os.O_WRONLY | os.O_CREAT), number)
        elif kind == "gone":
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = None  # as at the start of an interpreter
        if streams[number] == "closed":
            os.close(number)
        else:
            errors = "backslashreplace" if name == "stderr" else "strict"
            stream = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)


def problems(call: Call, outcome: Outcome, folder: Path, changed: Sequence[str]) -> list[str]:
    """What is wrong: nothing where the call ended as every call must.

    Args:
        changed: names in the folder that are not what they were.
    """
    said, code = outcome.out + outcome.err, outcome.code
    wrong = [f"printed {sign!r}" for sign in SIGNS if sign in said]
    if code is None or code not in (0, 1, 2, 75) or (code == 1 and not _is_listed(call, said)):
        wrong.append(f"exit code {code}")
    errors = [line for line in outcome.err.splitlines() if line.startswith("zeromt: error: ")]
    if code == 2 and call.streams[2] == "out" and not errors:
        wrong.append("exit code 2 without a line that says why")
    if call.forged and code == 2 and len(errors) > 1 and "config.yaml" not in call.forged[0]:  # a line for each field
        wrong.append(f"{len(errors)} lines of errors")
    if call.forged and outcome.memory_bytes > MEMORY_BYTES:
        wrong.append(f"took {outcome.memory_bytes >> 20} MiB")
    lost = [name for name in changed if not _may_change(call, folder, name)]
    return wrong + [f"left running: {one}" for one in outcome.left] + [f"changed: {name}" for name in lost]


def _is_listed(call: Call, said: str) -> bool:
    """Whether exit code 1 is right: a disk that fills, a stream that is none, a fault that is found or trained into."""
    return (
        call.argv[0] in ("train", "launch", "inspect", "doctor")
        or call.streams[1:] != ("out", "out")
        or re.search(LISTED, said) is not None
    )


def _may_change(call: Call, folder: Path, name: str) -> bool:
    """Whether a file is an output that is named, and no input; or one that the command is there to change."""
    if re.match(MAY_CHANGE.get(call.argv[0], "$"), name):
        return True
    typed, path = "\0".join(call.argv), (folder / name).resolve()
    outputs = [folder / word for word in TYPED_OUTPUT.findall(typed)]
    inputs = [folder / word for word in re.split("[\0=]", TYPED_OUTPUT.sub("", typed)) if os.path.normpath(word) != "."]
    if "--replace" in call.argv and any(path.is_relative_to(o.resolve()) or ".replaced-" in name for o in outputs):
        return True  # what is there is renamed
    return any(o.resolve() == path for o in outputs) and not any(path.is_relative_to(i.resolve()) for i in inputs)
