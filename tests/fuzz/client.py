"""Makes calls through servers, each in a folder of its own, and judges what became of them."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import REPO, environment
from tests.fuzz import forgery, genuine, places
from tests.fuzz.call import Call, Outcome
from tests.fuzz.watch import READS, Watch, outside
from tests.waiting import PATIENCE

SECONDS = 60.0
RANKS_SECONDS = 40.0
FORGED_SECONDS, FORGED_BYTES = 20, 2 << 30
"""What a call on forged files may take: seconds of CPU, as the machine may be busy, and memory."""
"""After so many seconds a call is asked to stop where it trains, and is said to hang elsewhere."""
SANDBOX = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro / '
    "&& { ! mountpoint -q /dev || ! test -c /dev/null || mount -o remount,bind,ro /dev; } "
    '&& shift && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
)
LISTED = (
    r"No space left on device",
    r"File too large",
    r"Broken pipe",
)
"""What may be said, in one line, with exit code 1: a disk that fills, and what is not the user's input."""

CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that torch sets in this process."""


class Server:
    """A process that forks; see `tests.fuzz.server`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_sandbox(), sys.executable, "-m", "tests.fuzz.server"],
            cwd=REPO,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._answer() == "ready"

    def close(self) -> None:
        """End it; its children are gone by then."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def make(self, call: Call, *, keep: Path | None = None, tell: Callable[[Outcome], None] | None = None) -> list[str]:
        """Make a call in a new folder; what is wrong with what became of it, of which `tell` is told too."""
        with _scratch(call, keep) as (folder, logs):
            for name, text in call.files.items():
                (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
            if call.forged:
                forgery.apply(folder, call.forged, folder.parent / "outside")
            before = places.contents(folder)
            with Watch(folder.parent / "outside") if call.forged else contextlib.nullcontext() as watch:
                outcome = self._make(call, folder, logs)
                touched = watch.events() if watch else ()
            if tell is not None:
                tell(outcome)
            after = places.contents(folder)
            found = judge(call, outcome, before, after)
            return found + (judge_forged(call, outcome, touched, folder) if call.forged else [])

    def _make(self, call: Call, folder: Path, logs: Path) -> Outcome:
        home = folder / "home"
        given = {
            **environment(),
            "HOME": str(folder.parent / "outside" / "home" if call.forged else home),
            "TMPDIR": str(home),
            "PATH": str(Path(sys.executable).parent),
            **({"XDG_CACHE_HOME": str(home), "MPLCONFIGDIR": str(home)} if call.forged else {}),
        }
        request = {
            "argv": call.argv,
            "cwd": str(folder),
            "logs": str(logs),
            "is_watched": bool(call.forged),
            "cpu_seconds": FORGED_SECONDS if call.forged else None,
            "environment": {**given, **dict.fromkeys(CACHES, str(home)), **call.environment},
            "encoding": call.environment.get("PYTHONIOENCODING", "utf-8"),
            "stdin": call.stdin,
            "stdout": call.stdout,
            "stderr": call.stderr,
            "seconds": PATIENCE if call.forged else RANKS_SECONDS if call.trains else SECONDS,
            "can_stop": call.trains and not call.forged,
        }
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._answer())
        out, err = ((logs / name).read_bytes().decode("utf-8", "replace") for name in ("out", "err"))
        lists = {name: tuple(answer[name]) for name in ("left", "opened")}
        return Outcome(**{**answer, **lists}, out=out, err=err)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fuzzer's server has ended"
        return line.strip()


def judge(call: Call, outcome: Outcome, before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is wrong: empty where the call ended as every call must."""
    said = outcome.out + outcome.err
    tail = f"\n    stdout: {outcome.out[-500:]!r}\n    stderr: {outcome.err[-2500:]}"
    problems = []
    if outcome.hung:
        problems.append(f"hung: still there after {outcome.seconds:.0f} s")
    for sign in (
        "Traceback (most recent call last)",
        "--- Logging error ---",
        "Exception ignored",
        "Fatal Python error",
    ):
        if sign in said:
            problems.append(f"printed {sign!r}")
    if outcome.code == 1 and not _is_listed(call, outcome):
        problems.append("exit code 1, which is not for what a user can fix")
    elif outcome.code not in (0, 1, 2, 75):
        problems.append(f"exit code {outcome.code}")
    if outcome.timed_out and not outcome.hung and outcome.code not in (0, 75):
        problems.append(f"exit code {outcome.code} after SIGTERM; wanted is 75")
    if outcome.code == 2 and call.stderr == "file":
        lines = [line for line in outcome.err.splitlines() if line.strip()]
        if not any(line.startswith("zeromt: error: ") for line in lines):
            problems.append("exit code 2 without a line that begins with 'zeromt: error: '")
    if outcome.left:
        problems.append(f"left running: {', '.join(outcome.left)}")
    changed = [name for name in before if before[name] != after.get(name) and not _may_change(call, name)]
    if changed:
        problems.append(f"changed: {', '.join(sorted(changed)[:5])}")
    return [p + tail for p in problems[:1]] + problems[1:]


def judge_forged(call: Call, outcome: Outcome, touched: Sequence[tuple[str, str]], folder: Path) -> list[str]:
    """What is wrong beside that with a call on forged files."""
    problems = []
    bad = [f"{what} {path}" for what, path in touched if what not in READS]
    if bad:
        problems.append(f"outside: {', '.join(bad[:6])}")
    home = folder.parent / "outside" / "home"
    if elsewhere := outside(outcome.opened, folder.parent, home):
        problems.append(f"opened elsewhere: {', '.join(elsewhere[:6])}")
    if outcome.memory_bytes > FORGED_BYTES:
        problems.append(f"took {outcome.memory_bytes >> 20} MiB")
    if outcome.code == 2:
        lines = [line for line in outcome.err.splitlines() if line.startswith("zeromt: error: ")]
        if len(lines) != 1 and "config.yaml" not in " ".join(call.forged):  # a line for each field
            problems.append(f"{len(lines)} lines of errors")
    return problems


def _is_listed(call: Call, outcome: Outcome) -> bool:
    """Whether exit code 1 is right: the failure stands in the list, in one line."""
    if call.stdout in ("gone", "full", "read-only"):
        lines = outcome.err.splitlines()  # of progress, and one of the error
        errors = [line for line in lines if line.startswith("zeromt: error: ")]
        return (len(errors) <= 1 and all(line.startswith("zeromt: ") for line in lines)) or call.trains
    if call.argv[0] == "inspect":
        return bool(re.search(r"^broken|BROKEN|^whole +NO", outcome.out, re.MULTILINE))
    if call.argv[0] == "doctor":
        return bool(re.search(r'^FAULT|"grade": "fault"', outcome.out, re.MULTILINE))
    lines = [line for line in outcome.err.splitlines() if re.search("|".join(LISTED), line)]
    return bool(lines) and (len(outcome.err.splitlines()) == 1 or call.trains)


def _may_change(call: Call, name: str) -> bool:
    """An output that is named and no input, and what belongs to a run that trains, or to a dataset that is prepared."""
    command = call.argv[0]
    if call.trains or command == "stop":
        return name.startswith(("runs/", "home/"))
    if command == "prepare" and name.startswith(("made/", "dataset-broken/", "dataset-garbled/")):
        return True
    if call.forged and command in ("evaluate", "compare") and "/eval/kept/" in name:
        return True
    if command == "report" and name.rpartition("/")[2] in ("report.md", "report.svg"):
        return True
    if command == "init" and name.startswith("out/new-data/"):
        return True
    inputs, outputs = (({_behind_links(n) for n in names if n}) for names in call.names())
    is_input = name in inputs or any(str(parent) in inputs for parent in Path(name).parents)
    return (name in outputs and not is_input) or name.startswith("home/")


def _behind_links(name: str) -> str:
    first, *others = Path(os.path.normpath(name)).parts
    return os.path.join(places.LINKS.get(first, first), *others)  # noqa: PTH118


@contextmanager
def _scratch(call: Call, keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder with the places, or with what is to be forged, and one for what is printed."""
    root = keep or Path(tempfile.mkdtemp(prefix="zf-"))
    folder, logs = root / "here", root / "logs"
    logs.mkdir(parents=True)
    root.chmod(0o755)
    if call.forged:
        genuine.build(folder, marian=genuine.MARIAN in str(call.argv))
        (folder / "home").mkdir()
        forgery.build_outside(root / "outside")
    else:
        folder.mkdir()
        places.build(folder)
    try:
        yield folder, logs
    finally:
        if keep is None:
            for name in ("closed", "read-only"):
                with contextlib.suppress(OSError):
                    (folder / name).chmod(0o755)
            shutil.rmtree(root, ignore_errors=True)


def _sandbox() -> list[str]:
    """Of root, to whom every place is open: without its rights, and with nothing to write in but temporary folders."""
    if os.getuid() != 0:
        return []
    found = ["unshare", "--mount", "sh", "-c", SANDBOX, "sh", tempfile.gettempdir()]
    try:
        works = subprocess.run([*found, "true"], capture_output=True, timeout=PATIENCE).returncode == 0
    except OSError:
        works = False
    return found if works else []
