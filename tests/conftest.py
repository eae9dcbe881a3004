"""Tools that several folders' tests share: a small prepared dataset, and ranks in real processes."""

import gc
import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.once import begin, once
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.forked import Forked

REPO = Path(__file__).parents[1]
BUNDLED = REPO / "data" / "tatoeba-en-fr"
HOST = socket.gethostname()

settings.register_profile("no deadlines", deadline=None, derandomize=False)  # a busy machine is no fault
settings.register_profile("same examples", deadline=None, derandomize=True)
settings.load_profile("same examples")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """What the marks that are asked for decide, for all tests.

    Tests compute on the CPU, also on a machine with GPUs; those marked gpu, asked for by name, on its GPUs. Properties
    are tried on the same examples each time, so that what passed once passes again; slow tests draw new ones.
    """
    begin()
    marks = config.getoption("markexpr", "")
    if not asks_for(marks, "gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if asks_for(marks, "slow"):
        settings.load_profile("no deadlines")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where CI runs, a skip for a reason that tests/skips.txt does not list fails."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if "CI" not in os.environ or reporter is None:  # as in a process of xdist, which tells the first one
        return
    rows = (REPO / "tests" / "skips.txt").read_text().splitlines()
    allowed = tuple(row.partition(" | ")[0] for row in rows if not row.startswith("#"))
    for report in reporter.stats.get("skipped", ()):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(allowed):
            reporter.write_line(f"{report.nodeid}: skipped for a reason not in tests/skips.txt: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def asks_for(marks: str, mark: str) -> bool:
    """Whether an expression of `pytest -m` takes tests with this mark."""
    return mark in marks.replace(f"not {mark}", "")


# A shell starts background jobs with these ignored, children inherit that, and the launcher honours it (nohup). The
# tests must not depend on how they were started.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)
_HANDLERS = {
    n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
}


def environment() -> dict[str, str]:
    """What a child process gets: this checkout's packages, and not those of the current folder."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHELASTIC_", "ZEROMT_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        variables.pop(name, None)
    return {**variables, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}


def ask_python(code: str, *arguments: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> Any:
    """What `answer` is when a new Python has run a script, which must not fail; None where it sets none."""
    with tempfile.NamedTemporaryFile(mode="r") as file:
        code = f"answer = None\n{code}\nimport json\nwith open({file.name!r}, 'w') as file: json.dump(answer, file)\n"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=cwd,
            env=environment() if variables is None else variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.load(file)


@dataclass(kw_only=True, frozen=True)
class Finished:
    """What a command printed and returned."""

    code: int
    out: str
    err: str


class Command:
    """A running command and all that it started."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        stdin: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._stdin = stdin
        self.process = subprocess.Popen(
            list(arguments),
            cwd=cwd,
            env=environment() if variables is None else variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )

    def finish(self, timeout: float = PATIENCE) -> Finished:
        """Wait for it; when the time is up, end everything and fail."""
        try:
            out, err = self.process.communicate(self._stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            pytest.fail(f"{self.process.args!r} ran longer than {timeout} s\n{out[-2000:]}\n{err[-4000:]}")
        return Finished(code=self.process.returncode, out=out, err=err)

    def kill(self) -> None:
        """SIGKILL to everything it started, in whatever session."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs."""
    pids: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            child = int(entry.name)
            pids += [*descendants(child), child]
    return pids


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


Start = Callable[..., Command]


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    """After each test, nothing is left of what commands and libraries in this process have set."""
    variables = dict(os.environ)
    yield
    _leave_as_found()
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _leave_as_found() -> None:
    """Take back what would have ended with a command's process.

    It flushes subnormal numbers to 0, and a launch that is over ignores requests to stop, which children inherit.
    """
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A file leaves this process as the next one expects it, whichever that is."""
    before = _surroundings()
    yield

    def left() -> dict[str, set[Any]]:
        after = _surroundings()
        return {name: after[name] - earlier for name, earlier in before.items() if after[name] - earlier}

    if left():
        gc.collect()  # what nobody can reach any more may have files open
    assert left() == {}, "what this file leaves behind"


_OF_LIBRARIES = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR", "WDS_SECURE"}
"""Variables that are set where pytest, torch and webdataset read them, in a fixture too."""


def _surroundings() -> dict[str, set[Any]]:
    """What tests share without saying so."""
    shared: dict[str, set[Any]] = {
        "variables": {(k, v) for k, v in os.environ.items() if k not in _OF_LIBRARIES},
        "folder": {Path.cwd()},
        "handlers": {(n, signal.getsignal(n)) for n in signal.Signals if n != signal.SIGALRM},  # of a time-out
        "threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
        "files": {path for path in (link.resolve() for link in Path("/proc/self/fd").iterdir()) if path.is_file()},
    }
    if torch := sys.modules.get("torch"):
        shared["torch"] = {
            torch.get_default_dtype(),
            ("gradients", torch.is_grad_enabled()),
            ("deterministic", torch.are_deterministic_algorithms_enabled()),
            ("process group", torch.distributed.is_initialized()),
        }
    if registry := sys.modules.get("configs.components.registry"):
        all_of = [component for family in registry.registered().values() for component in family.values()]
        shared["components"] = {c for c in all_of if not c.__module__.startswith(tuple(registry.FAMILIES.values()))}
    return shared


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends what is left of them."""
    running: list[Command] = []

    def begin(*arguments: str, cwd: Path | None = None, **options: Any) -> Command:
        running.append(Command(arguments, cwd=cwd or tmp_path, **options))
        return running[-1]

    yield begin
    for command in running:
        if command.process.poll() is None:
            command.kill()
            command.process.wait()


def zeromt(*arguments: str) -> list[str]:
    """The console command, from this checkout."""
    return [sys.executable, "-m", "zeromt", *arguments]


def torchrun(number: int, *arguments: str) -> list[str]:
    """`arguments` as `number` ranks of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={number}"]
    return [*command, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *arguments]


def read_metrics(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl of one kind."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def bundled(language: str, lines: slice) -> bytes:
    """Lines of the bundled validation set."""
    text = gzip.decompress((BUNDLED / f"valid.{language}.gz").read_bytes())
    return b"".join(text.splitlines(keepends=True)[lines])


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path | None]:
    """A file system of so many bytes (`16m`) in a new folder; None where none may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    is_mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield folder if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


Call = Callable[..., Finished]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in this process, in the test's folder or another, and with more of the environment."""
    from zeromt.cli.main import main

    def run(*arguments: str, cwd: Path = tmp_path, stdin: str = "", **variables: str) -> Finished:
        monkeypatch.chdir(cwd)
        with ExitStack() as stack, monkeypatch.context() as patch:
            files = []
            for number, name in enumerate(("stdin", "stdout", "stderr")):  # of what the command starts, too
                file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape", newline="")  # noqa: SIM115
                files.append(stack.enter_context(file))
                saved = os.dup(number)
                stack.callback(os.close, saved)
                stack.callback(os.dup2, saved, number)
                os.dup2(file.fileno(), number)
                patch.setattr(sys, name, file)
            given, out, err = files
            given.write(stdin)
            given.seek(0)
            for name, value in {"XDG_STATE_HOME": str(tmp_path / "state"), **variables}.items():
                patch.setenv(name, value)
            before = dict(os.environ)
            code = main(list(arguments))
            assert dict(os.environ) == before, "a command leaves its caller's environment alone"
            _leave_as_found()
            out.seek(0)
            err.seek(0)
            return Finished(code=code, out=out.read(), err=err.read())

    return run


Refused = Callable[..., str]


@pytest.fixture
def refused(call: Call) -> Refused:
    """Makes a command that must be refused in one line, with exit code 2; what the line says."""

    def run(*arguments: str, **options: Any) -> str:
        done = call(*arguments, **options)
        assert (done.code, done.out) == (2, ""), done
        [line] = done.err.splitlines()
        assert line.startswith("zeromt: error: ")
        return line.removeprefix("zeromt: error: ")

    return run


@dataclass(kw_only=True, frozen=True)
class Corpus:
    """A prepared dataset, and the settings that a run needs to use it."""

    folder: Path
    overrides: tuple[str, ...]


@pytest.fixture(scope="session")
def forked() -> "Iterator[Forked]":
    """For ranks, and for commands that are not to be tried as a process of their own: see tests/forked.py."""
    from tests.forked import Forked

    server = Forked()
    yield server
    server.close()


@pytest.fixture(scope="session")
def corpus_en_fr() -> Corpus:
    """1,000 bundled pairs in one vocabulary of 500 pieces, prepared by the command itself; not to be written to."""

    def overrides(root: Path) -> tuple[str, ...]:
        return (f"prepare.output={root / 'prepared'}", f"prepare.root={BUNDLED}")

    def prepare(root: Path) -> None:
        done = Command(zeromt("prepare", "debug", *overrides(root), "prepare.pairs_per_block=32"), cwd=root).finish()
        assert done.code == 0, done.err

    root = once("corpus", prepare)
    return Corpus(folder=root / "prepared", overrides=overrides(root))
