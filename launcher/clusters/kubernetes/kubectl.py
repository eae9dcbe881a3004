"""Calls kubectl, and reads a job's state from its answers."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from configs import UserError
from launcher.clusters.kubernetes.manifest import JOB_LABEL, JOB_NAME
from launcher.jobs import End, JobState
from launcher.jobs.job import GONE, UNKNOWN

SUBMIT_SECONDS, ASK_SECONDS = 120, 5


def command(context: str | None, namespace: str | None, *words: str) -> list[str]:
    """kubectl with its arguments.

    Args:
        context: of its configuration; None: the current one.
        namespace: None: the context's.
        words: its command.
    """
    return ["kubectl", *where_options(context, namespace), *words]


def where_options(context: str | None, namespace: str | None) -> list[str]:
    """Options for cluster and namespace; empty for the current ones."""
    return [f"--{name}={value}" for name, value in (("context", context), ("namespace", namespace)) if value]


def run(words: Sequence[str], *, text: str | None = None, seconds: int = SUBMIT_SECONDS) -> str:
    """Run kubectl; returns its stdout.

    Args:
        words: of `command`.
        text: its stdin.
        seconds: time limit.

    Raises:
        UserError: it is missing, does not answer, or refuses.
    """
    try:
        done = subprocess.run(words, input=text or "", capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise UserError("kubectl: no such command; use a machine that has it, or --dry-run") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"kubectl: no answer within {seconds} s; try again when the cluster answers") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UserError(f"kubectl: {said}; ask for what this cluster takes, see --site, --set and --dry-run")
    return done.stdout


def find_job(job: str, context: str | None, namespace: str | None) -> JobState:
    """Ask for a job, for ten seconds at most."""
    if not JOB_NAME.fullmatch(job):
        return JobState(id=job, state=UNKNOWN)
    try:
        words = command(context, namespace, "get", "job", job, "--output=json")
        found = json.loads(run(words, seconds=ASK_SECONDS))
        return state_of(job, found, find_pods(job, context, namespace))
    except UserError as error:
        return JobState(id=job, state=GONE if "(NotFound)" in str(error) else UNKNOWN)
    except (ValueError, KeyError, TypeError, AttributeError):
        return JobState(id=job, state=UNKNOWN)


def find_pods(job: str, context: str | None, namespace: str | None) -> list[dict[str, Any]]:
    """The pods of a job that the cluster still knows.

    Raises:
        UserError: it cannot be asked.
        ValueError: its answer is invalid.
    """
    words = command(context, namespace, "get", "pods", f"--selector={JOB_LABEL}={job}", "--output=json")
    return list(json.loads(run(words, seconds=ASK_SECONDS))["items"])


def state_of(name: str, job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobState:
    """The state of a Job and its pods, as `JobState`."""
    status = job.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or [] if c.get("status") == "True"}
    if "Complete" in conditions:
        messages = map(_message, pods)
        was_stopped = any(message.startswith(End.STOPPED.value) for message in messages)
        return JobState(id=name, state="COMPLETED", end=End.STOPPED if was_stopped else End.FINISHED)
    if "Failed" in conditions:
        is_refused = conditions["Failed"].get("reason") == "PodFailurePolicy"
        return JobState(id=name, state="FAILED", end=End.REFUSED if is_refused else End.FAILED)
    are_left = [pod for pod in pods if _phase(pod) in ("Pending", "Running")]
    if "Suspended" in conditions or (job.get("spec") or {}).get("suspend"):
        return (
            JobState(id=name, state="COMPLETING") if are_left else JobState(id=name, state="SUSPENDED", end=End.STOPPED)
        )
    if conditions.keys() & {"FailureTarget", "SuccessCriteriaMet"}:
        return JobState(id=name, state="COMPLETING")
    if any(is_up(pod) for pod in are_left):
        return JobState(id=name, state="RUNNING")
    reasons = [reason for pod in are_left if (reason := _why_it_waits(pod))]
    return JobState(id=name, state="PENDING", reason=reasons[0] if reasons else None)


def is_up(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is running and not about to end."""
    return _phase(pod) == "Running" and "deletionTimestamp" not in pod["metadata"]


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase"))


def _message(pod: Mapping[str, Any]) -> str:
    """The termination message of the pod's process."""
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return "".join(str(((c.get("state") or {}).get("terminated") or {}).get("message") or "") for c in containers)


def _why_it_waits(pod: Mapping[str, Any]) -> str | None:
    """One line on why a pod waits: no machine, no image, or an earlier job."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return " ".join(f"{condition.get('reason')}: {condition.get('message')}".split())
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = container.get("state") or {}
        if "running" in state:
            return "waits for the job before it"
        reason = (state.get("waiting") or {}).get("reason")
        if reason not in (None, "PodInitializing", "ContainerCreating"):
            return str(reason)
    return None
