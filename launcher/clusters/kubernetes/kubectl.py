"""Calls kubectl, and reads a job's state from its answers."""

import dataclasses
import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.streams import note
from launcher.clusters.kubernetes.jobset import FAILED_BY_RULE, JOBSET_LABEL
from launcher.clusters.kubernetes.manifest import JOB_NAME, LOGS_ANNOTATION
from launcher.clusters.kubernetes.podspec import JOB_LABEL
from launcher.clusters.kubernetes.section import KubernetesSection
from launcher.jobs import End, JobState
from launcher.jobs.job import GONE, UNKNOWN

SUBMIT_SECONDS, ASK_SECONDS, EVENTS_SECONDS = 120, 3, 2


def command(site: KubernetesSection, *words: str) -> list[str]:
    """kubectl with its arguments."""
    return ["kubectl", *where_options(site), *words]


def label_of(site: KubernetesSection) -> str:
    """The label of pods that holds the name of their Job or JobSet."""
    return JOB_LABEL if site.workload == "job" else JOBSET_LABEL


def where_options(site: KubernetesSection) -> list[str]:
    """Options for cluster and namespace; empty for the current ones."""
    given = (("context", site.context), ("namespace", site.namespace))
    return [f"--{name}={value}" for name, value in given if value]


def run(words: Sequence[str], *, text: str | None = None, seconds: int = SUBMIT_SECONDS) -> str:
    """Run kubectl; returns its stdout, and says what the cluster warns of, such as pods that it will not admit.

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
    for line in done.stderr.splitlines():
        if line.startswith("Warning:"):
            _say_once(line)
    return done.stdout


@functools.cache
def _say_once(line: str) -> None:
    note(f"kubectl: {' '.join(line.split())}")


def find_job(job: str, site: KubernetesSection) -> JobState:
    """Ask for a job, for ten seconds at most."""
    if not JOB_NAME.fullmatch(job):
        return JobState(id=job, state=UNKNOWN)
    try:
        resource = json.loads(run(command(site, "get", site.workload, job, "--output=json"), seconds=ASK_SECONDS))
        pods = find_pods(job, site)
        state = state_of(job, resource, pods)
        if state.is_waiting and state.reason is None:
            names = [pod["metadata"]["name"] for pod in pods if _phase(pod) == "Pending"][:1] or [job]
            if names == [job] and site.workload == "jobset":
                names = [f"{job}-{resource['spec']['replicatedJobs'][0]['name']}-0", job]
            said = (_last_warning(name, site) for name in names)
            state = dataclasses.replace(state, reason=next(filter(None, said), None))
        return state
    except UserError as error:
        return JobState(id=job, state=GONE if "(NotFound)" in str(error) else UNKNOWN)
    except (ValueError, KeyError, TypeError, AttributeError):
        return JobState(id=job, state=UNKNOWN)


def _last_warning(name: str, site: KubernetesSection) -> str | None:
    """What the cluster last warned of about a Job or a pod: a quota or a service account that lets it have no pods."""
    words = command(site, "get", "events", f"--field-selector=involvedObject.name={name},type=Warning", "--output=json")
    try:
        events = json.loads(run(words, seconds=EVENTS_SECONDS))["items"]
        last = max(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""), default=None)
        return last and " ".join(f"{last['reason']}: {last['message']}".split())
    except (
        UserError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # who may not read events can still ask for jobs
        return None


def logs_of(job: str, site: KubernetesSection) -> Path | None:
    """The folder of logs of the run that a Job was made for; None if Kubernetes does not say so."""
    try:
        resource = json.loads(run(command(site, "get", site.workload, job, "--output=json"), seconds=ASK_SECONDS))
        return Path(resource["metadata"]["annotations"][LOGS_ANNOTATION]).resolve()
    except (UserError, ValueError, KeyError, TypeError):
        return None


def find_pods(job: str, site: KubernetesSection) -> list[dict[str, Any]]:
    """The pods of a job that the cluster still knows.

    Raises:
        UserError: it cannot be asked.
        ValueError: its answer is invalid.
    """
    words = command(site, "get", "pods", f"--selector={label_of(site)}={job}", "--output=json")
    return list(json.loads(run(words, seconds=ASK_SECONDS))["items"])


def state_of(name: str, job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobState:
    """The state of a Job or JobSet and its pods, as `JobState`."""
    status = job.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or [] if c.get("status") == "True"}
    if conditions.keys() & {"Complete", "Completed"}:
        was_stopped = any(message.startswith(End.STOPPED.value) for message in map(_message, pods))
        return JobState(id=name, state="COMPLETED", end=End.STOPPED if was_stopped else End.FINISHED)
    if "Failed" in conditions:
        is_refused = conditions["Failed"].get("reason") in ("PodFailurePolicy", FAILED_BY_RULE)
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
        waiting = state.get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return " ".join(": ".join(map(str, filter(None, (waiting["reason"], waiting.get("message"))))).split())
    return None
