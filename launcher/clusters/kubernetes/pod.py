"""The program of a pod: `python -m launcher.clusters.kubernetes.pod node|part ...`.

`node` runs `zeromt launch node` between two decisions. Before: whether there is anything left to do, and with which
pods. After: what happens to the Job, expressed by the pod's exit code, which `podFailurePolicy` reads: 0 done (the run
is finished, or a user has stopped it), 2 refused (the Job fails), 75 to be started again (a preemption, a node that is
lost), 1 failed. `part` turns the pod's number into the part of a command.
"""

import argparse
import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_run
from configs.process.files.inside import read_text
from configs.process.signals import STOPPED_BY_FILE
from configs.process.streams import note, tell
from launcher.agents.node import launch_node
from launcher.agents.peers import LOST_NODE, NOT_HERE
from launcher.agents.root_cause import REFUSED, STOPPED
from launcher.agents.secret import SECRET, secret_file, shared_secret
from launcher.clusters.kubernetes import rendezvous
from launcher.clusters.kubernetes.jobset import ATTEMPT
from launcher.jobs import End, Ending, ending_of
from launcher.jobs.batch import slowest_save
from launcher.jobs.end import Requeues, read_requeues, write_requeues
from launcher.jobs.job import command_of
from launcher.machine.supervise import Supervisor
from launcher.options.node import parse_launch_node
from trainer.runs.layout import LAUNCH_LOCK, METRICS_FILE, STATUS_FILE, STUCK_FILE
from trainer.runs.run_lock import RunLock, RunLockedError
from trainer.runs.status import Status, read_status

FAILED = 1
LOCK_SECONDS = 150.0
"""Seconds to wait for the lock of a lost node, which NFS keeps for about a lease."""


def main(argv: Sequence[str]) -> int:
    """Run the pod's task.

    Args:
        argv: the pod's own arguments, then `--` and those of the command that it runs.

    Returns:
        The pod's exit code.
    """
    where = argv.index("--")
    parser = argparse.ArgumentParser(prog="python -m launcher.clusters.kubernetes.pod", allow_abbrev=False)
    parser.add_argument("what", choices=("node", "part"))
    parser.add_argument("--parts", type=int)
    parser.add_argument("--message", type=Path)
    parser.add_argument("--max-requeues", type=int, default=0)
    parser.add_argument("--join-timeout", type=float, default=0.0)
    parser.add_argument("--grace", type=float, default=0.0)
    given, rest = parser.parse_args(argv[:where]), argv[where + 1 :]
    index = int(os.environ["JOB_COMPLETION_INDEX"])
    if given.what == "part":
        os.execv(sys.executable, command_of(rest, f"{index + 1}/{given.parts}"))
    with Supervisor() as supervisor:
        ending = _node(supervisor, given, rest, index)
        supervisor.settle()
    note(f"pod {index}: {ending.why}")
    with contextlib.suppress(OSError):
        given.message.write_text(f"{ending.end.value}: {ending.why}"[:2000], encoding="utf-8")
    return exit_code(ending.end)


def exit_code(end: End) -> int:
    """The pod's exit code, which decides whether the Job goes on or ends."""
    return STOPPED if end.goes_on else {End.FINISHED: 0, End.STOPPED: 0, End.REFUSED: REFUSED}.get(end, FAILED)


def decide_begin(status: Status | None, job: str) -> Ending | None:
    """How the Job has already ended, for a pod that starts afterwards; None if there is work to do.

    Args:
        status: of the run.
        job: the Job's name.
    """
    if status is None:
        return None
    if status.refused_job == job:
        return Ending(end=End.REFUSED, why=f"the run was refused: {status.refusal}")
    if status.job_id != job:
        return None
    if status.state == "finished":
        return Ending(end=End.FINISHED, why="the run is finished")
    if status.state == "refused":
        return Ending(end=End.REFUSED, why=f"the run was refused: {status.error}")
    if status.state == "stopped" and status.stop_reason == STOPPED_BY_FILE:
        return Ending(end=End.STOPPED, why="the run was stopped by `zeromt stop`")
    return None


def decide_end(run: Path, code: int, start: str | None, *, was_stopped: bool) -> Ending:
    """How this start of the Job ended.

    Args:
        run: the run's folder.
        code: exit code of `launch node`.
        start: its name, a prefix of its launches' ids; None with a single pod.
        was_stopped: whether this pod was asked to stop.
    """
    status = read_status(run / STATUS_FILE)
    if start is not None and status is not None and not (status.launch_id or "").startswith(f"{start}-"):
        status = None  # this start's ranks had not begun, so the status is about another
    if code == STOPPED and status is None:
        return Ending(end=End.INTERRUPTED, why="stopped before the ranks had begun")
    ending = ending_of(status, code, signal="USR1" if was_stopped else "none")
    if ending.end is End.FAILED and (lost := _lost_node(run)):
        return Ending(end=End.LOST_NODE, why=lost)  # the first pod, which writes the status, may be the lost one
    return ending


def _node(supervisor: Supervisor, given: argparse.Namespace, words: Sequence[str], index: int) -> Ending:
    """`zeromt launch node`, and before it the rendezvous."""
    try:
        arguments = parse_launch_node(words)
        job: str = os.environ["ZEROMT_JOB_ID"]
        run = load_run(arguments["config"], arguments["overrides"], plugins=arguments["plugins"])
        folder = Path(run.folder)
        status = read_status(folder / STATUS_FILE)
        if (ending := decide_begin(status, job)) is not None:
            return ending
        requeues = read_requeues(folder, job)
        if index == 0 and requeues.number > given.max_requeues + 1:
            # It had been given up when another pod, which cannot know that, was the first to end.
            return Ending(end=End.FAILED, why=_given_up(requeues, given.max_requeues))
        if status is not None and status.job_id == job:
            arguments["fresh"] = False  # this Job has begun the run
            if index == 0:
                _wait_for_lock(supervisor, folder)
        _warn_of_grace(run, given.grace)
        start = _meet(supervisor, given, arguments, job, index, folder, status)
        arguments |= {"node_rank": index, "job_id": start}
        code = launch_node(supervisor, **arguments)
    except rendezvous.StoppedError:
        return Ending(end=End.INTERRUPTED, why="stopped before the pods had met")
    except rendezvous.MissingError as error:  # possibly for lack of machines, which does not count as a failure
        return Ending(end=End.LOST_NODE, why=f"{error}; to be started again")
    except SystemExit as leaving:  # a usage error, which has been printed
        return Ending(end=End.REFUSED, why=f"refused with exit code {leaving.code}")
    except UserError as error:
        for line in str(error).splitlines():
            tell(f"zeromt: error: {line}")
        return Ending(end=End.REFUSED, why=str(error))
    except Exception as error:
        traceback.print_exc()
        return Ending(end=End.FAILED, why=f"{type(error).__name__}: {error}")
    several = start if arguments["nnodes"] > 1 else None
    ending = decide_end(folder, code, several, was_stopped=supervisor.was_stopped)
    if ATTEMPT not in os.environ or NOT_HERE not in ending.why:  # for want of machines, as above
        ending = _capped(folder, job, given.max_requeues, ending, index)
    if index == 0 and not ending.end.goes_on:
        secret_file(folder.parent, job).unlink(missing_ok=True)
    return ending


def start_of(job: str, attempt: str, status: Status | None) -> str:
    """The name of a start of a JobSet, the same in all of its pods: they read the same status before any rank begins.

    A JobSet that was suspended may go on with the number that its last start had. What that start left under its name
    must not be taken for the new one's, so a name whose ranks have begun gets a further number.

    Args:
        job: the JobSet's name.
        attempt: the number of its start.
        status: of the run.
    """
    name, launch = f"{job}-{attempt}", status.launch_id if status is not None else None
    last, _, number = (launch or "").rpartition("-")[0].partition(".")
    return f"{name}.{int(number or 0) + 1}" if last == name and (number or "0").isdigit() else name


def _meet(
    supervisor: Supervisor,
    given: argparse.Namespace,
    arguments: dict[str, Any],
    job: str,
    index: int,
    folder: Path,
    status: Status | None,
) -> str:
    """Wait for all pods, unless a JobSet has started them together; returns the name of this start."""
    host, port = arguments["rendezvous"]
    deadline = time.monotonic() + given.join_timeout

    def is_stopped() -> bool:
        return supervisor.was_stopped

    attempt = os.environ.get(ATTEMPT)
    limits: dict[str, Any] = {"seconds": given.join_timeout, "is_stopped": is_stopped}
    if arguments["nnodes"] == 1:
        return rendezvous.host(job, "", num_pods=1, port=port + 1, **limits)
    os.environ[SECRET] = _secret(folder, job, index, lambda: supervisor.was_stopped or time.monotonic() >= deadline)
    if attempt is not None:
        if index:
            _wait_for_name(host, is_stopped, deadline)
        return start_of(job, attempt, status)
    if index == 0:
        return rendezvous.host(job, os.environ[SECRET], num_pods=arguments["nnodes"], port=port + 1, **limits)
    return rendezvous.ask(job, os.environ[SECRET], index=index, address=(host, port + 1), **limits)


def _wait_for_name(host: str, is_stopped: Callable[[], bool], deadline: float) -> None:
    """Wait until the cluster knows the first pod's name, which may not be there yet."""
    while not is_stopped():
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, None)
            return
        if time.monotonic() >= deadline:
            raise rendezvous.MissingError(f"pod 0 has no address, {host} is not known")
        time.sleep(1.0)
    raise rendezvous.StoppedError


def _secret(folder: Path, job: str, index: int, has_ended: Callable[[], bool]) -> str:
    """The Job's secret, from a file beside the run's folder that the first pod makes, and its later starts find."""
    if index == 0:
        folder.parent.mkdir(parents=True, exist_ok=True)
    secret = shared_secret(folder.parent, job, is_first=index == 0, has_ended=has_ended)
    if secret is None:
        raise rendezvous.MissingError(f"pod 0 left no secret in {folder.parent}")
    return secret


def _capped(folder: Path, job: str, limit: int, ending: Ending, index: int) -> Ending:
    """The ending, or giving up after too many restarts without progress; the first pod counts them."""
    if not ending.end.goes_on or index != 0:
        return ending
    requeues = read_requeues(folder, job)
    write_requeues(folder, requeues)
    if requeues.number > limit:
        return Ending(end=End.FAILED, why=f"{ending.why}; {_given_up(requeues, limit)}")
    return Ending(end=ending.end, why=f"{ending.why}; to be started again")


def _given_up(requeues: Requeues, limit: int) -> str:
    return f"not started again: no new checkpoint since step {requeues.step}, {limit} times"


def _wait_for_lock(supervisor: Supervisor, folder: Path) -> None:
    """Wait until the earlier start has released the run; `launch node` reports it if not."""
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline and not supervisor.was_stopped:
        lock = RunLock(folder, LAUNCH_LOCK)
        with contextlib.suppress(RunLockedError):
            lock.acquire(1.0)
            lock.release()
            return


def _warn_of_grace(run: RunConfig, grace: float) -> None:
    """Warn if the grace period is too short for a save, which the launch could not check."""
    save = slowest_save(Path(run.folder) / METRICS_FILE)
    if save >= grace:
        note(
            f"warning: the slowest save took {save:.0f} s and the pods have {grace:.0f} s to end "
            "(terminationGracePeriodSeconds): a preemption may cut it off; set `grace` in the site's profile"
        )


def _lost_node(run: Path) -> str | None:
    """The note about a lost node; the first pod removes older notes."""
    try:
        lines = read_text(run / STUCK_FILE, errors="replace").splitlines()
    except OSError:
        return None
    return next((line[line.index(LOST_NODE) :] for line in reversed(lines) if LOST_NODE in line), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
