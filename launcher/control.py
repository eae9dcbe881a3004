"""`zeromt status` and `zeromt stop`: a run looked at, and asked to stop, from another process."""

import dataclasses
import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from configs import UserError
from launcher.run_folder import complete_steps
from trainer.supervision.ledger import LEDGER_FILE, read_figures
from trainer.supervision.run_lock import LAUNCH_LOCK, RUN_LOCK, holder_since, is_locked
from trainer.supervision.signals import STOP_FILE
from trainer.supervision.status import STATUS_FILE, Status, read_status
from trainer.supervision.watchdog import STUCK_FILE

_LOOK_SECONDS = 0.2
_LINE_SECONDS = 10.0
ACTIVE = ("starting", "running")


@dataclass(kw_only=True, slots=True, frozen=True)
class RunStatus:
    """What a run is doing."""

    run: str
    state: str
    """starting, running, finished, stopped, failed, refused; died: its processes ended without a word; empty: it was
    never started."""
    stop_requested: bool
    step: int | None
    """Updates done when the state was written."""
    updated: float | None
    """Seconds since the epoch at which it was written."""
    pid: int | None
    host: str | None
    error: str | None
    checkpoints: list[int]
    """Steps of those that are complete."""
    ledger: dict[str, float] | None
    """Seconds by kind, and the goodput."""
    stuck: list[str]
    """Which ranks were ended by their watchdogs."""


def status(*, run: str, as_json: bool) -> int:
    """`zeromt status`: print what a run is doing."""
    found = read_run(Path(run))
    print(json.dumps(dataclasses.asdict(found)) if as_json else "\n".join(_lines(found)))
    return 0


def stop(*, run: str, wait: bool) -> int:
    """`zeromt stop`: ask a run to save and stop, and wait until it has.

    Returns:
        0 stopped or finished, or asked where it does not wait; 1 the run ended in another way.

    Raises:
        UserError: it is not running, or its folder cannot be written.
    """
    folder = Path(run)
    found = read_run(folder)
    if found.state not in ACTIVE:
        raise UserError(f"RUN: {run!r} is not running, its state is {found.state}; allowed is a run that is")
    request = folder / STOP_FILE
    try:
        request.touch()
    except OSError as error:
        raise UserError(
            f"RUN: {str(request)!r} cannot be written: {error.strerror}; allowed is a folder to write in"
        ) from error
    if not wait:
        _say(f"{run}: asked to save and stop")
        return 0
    found = _wait(folder)
    request.unlink(missing_ok=True)  # of a run that ended before it looked
    at = f" at step {found.step}" if found.step is not None else ""
    _say(f"{run}: {found.state}{at}" + (f": {found.error}" if found.error else ""))
    return 0 if found.state in ("stopped", "finished") else 1


def _wait(folder: Path) -> RunStatus:
    """Wait until nobody writes the run any more, so that it can be started again; with a line on how it goes."""
    begin = said = time.monotonic()
    is_terminal = sys.stderr.isatty()
    while (found := read_run(folder)).state in ACTIVE or is_locked(folder, LAUNCH_LOCK) or is_locked(folder, RUN_LOCK):
        now = time.monotonic()
        at = f" (step {found.step})" if found.step is not None else ""
        line = f"zeromt: waiting for {folder} to save and stop{at}, {now - begin:.0f} s"
        if is_terminal:
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        elif now - said >= _LINE_SECONDS:
            print(line, file=sys.stderr, flush=True)
            said = now
        time.sleep(_LOOK_SECONDS)
    if is_terminal:
        print(file=sys.stderr)
    return found


def read_run(folder: Path) -> RunStatus:
    """Look at a run's folder."""
    written = read_status(folder / STATUS_FILE)
    try:
        stuck = (folder / STUCK_FILE).read_text(errors="replace").splitlines()
    except OSError:
        stuck = []
    return RunStatus(
        run=str(folder),
        state=_state(folder, written),
        stop_requested=(folder / STOP_FILE).exists(),
        step=written.step if written else None,
        updated=written.updated if written else None,
        pid=written.pid if written else None,
        host=written.host if written else None,
        error=written.error if written else None,
        checkpoints=complete_steps(folder),
        ledger=read_figures(folder / LEDGER_FILE),
        stuck=stuck,
    )


def _state(folder: Path, written: Status | None) -> str:
    """What was written last, if it still holds."""
    is_launched = is_locked(folder, LAUNCH_LOCK)
    if written is not None and written.state == "running":
        return "running" if is_launched or is_locked(folder, RUN_LOCK) or _is_alive(written) else "died"
    if is_launched:
        # A launcher that began after that was written is about to start ranks; one that has not is about to end, or
        # starts ranks that failed again.
        since = holder_since(folder, LAUNCH_LOCK) or 0.0
        if written is None or (written.updated or 0.0) < since or written.state == "failed":
            return "starting"
    return "empty" if written is None else written.state


def _is_alive(written: Status) -> bool:
    """Whether the process that wrote it is there, as far as this machine can tell: a file system may have no locks."""
    if written.pid is None or written.host != socket.gethostname():
        return False
    try:
        state = Path(f"/proc/{written.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def _lines(found: RunStatus) -> list[str]:
    lines = [f"run          {found.run}"]
    about = []
    if found.updated is not None:
        about.append(f"written {_duration(time.time() - found.updated)} ago")
    if found.pid is not None and found.state in ACTIVE:
        about.append(f"process {found.pid}" + (f" on {found.host}" if found.host else ""))
    if found.stop_requested and found.state in ACTIVE:
        about.append("asked to stop")
    lines.append(f"state        {found.state}" + (f" ({', '.join(about)})" if about else ""))
    if found.step is not None:
        lines.append(f"step         {found.step}")
    if found.error:
        lines.append(f"error        {found.error}")
    newest_first = ", ".join(str(step) for step in reversed(found.checkpoints))
    lines.append(f"checkpoints  {newest_first or 'none'}")
    if found.ledger:
        kinds = {key.removesuffix("_seconds"): s for key, s in found.ledger.items() if key.endswith("_seconds")}
        total = kinds.pop("wall")
        shares = ", ".join(f"{kind.replace('_', ' ')} {_duration(s)}" for kind, s in kinds.items() if s)
        lines.append(f"time         {_duration(total)}, goodput {found.ledger['goodput']:.1%}: {shares}")
    return lines + [f"stuck        {line.removeprefix('zeromt: ')}" for line in found.stuck]


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _say(line: str) -> None:
    print(f"zeromt: {line}", file=sys.stderr, flush=True)
