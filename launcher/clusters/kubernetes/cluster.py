"""Kubernetes, as a cluster of zeromt."""

import shlex
import sys
from pathlib import Path

from configs import UserError
from configs.components import component
from launcher.clusters.kubernetes.kubectl import (
    SUBMIT_SECONDS,
    command,
    find_job,
    find_pods,
    is_up,
    label_of,
    logs_of,
    run,
    where_options,
)
from launcher.clusters.kubernetes.manifest import (
    JOB_NAME,
    following,
    render_array,
    render_training,
)
from launcher.clusters.kubernetes.section import KubernetesSection
from launcher.jobs import Array, Job, JobState, Training

_CREATED = {"job": "job.batch", "jobset": "jobset.jobset.x-k8s.io"}


@component("cluster", "kubernetes")
class KubernetesCluster(KubernetesSection):
    """Kubernetes: Indexed Jobs, whose pods are restarted after preemptions and lost nodes."""

    def processes(self) -> int:
        """One for each GPU."""
        return self.gpus_per_node

    def render(self, job: Job) -> str:
        """The manifest of a job."""
        if isinstance(job, Training):
            return render_training(self, job)
        assert isinstance(job, Array)
        return render_array(self, job)

    def check(self, text: str) -> None:
        """Ask the API server whether it would take a manifest."""
        self._run("create", "--dry-run=server", "--output=name", "--filename=-", text=text.rpartition("---\n")[2])

    def submit(self, text: str, *, after: str | None, needs_success: bool) -> str:
        """Create the Service through which pods meet, then the Job; returns the Job's name."""
        service, _, job = text.rpartition("---\n")
        if service:
            self._run("apply", "--filename=-", text=service)
        if after is not None:
            job = following(job, after)
        kind, _, name = self._run("create", "--output=name", "--filename=-", text=job).strip().partition("/")
        if kind != _CREATED[self.workload] or not JOB_NAME.fullmatch(name):
            raise UserError(f"kubectl: {name!r} is no job's name; use Kubernetes' own kubectl")
        return name

    def how_to_follow(self, jobs: list[str], run: str, logs: Path, *, array: str | None) -> list[str]:
        """By kubectl and zeromt's own commands."""
        shown = shlex.join(self._words("get", "pods", f"--selector={label_of(self)} in ({','.join(jobs)})"))
        if array is not None:
            return [
                f"submitted job {' and '.join(jobs)}: the parts, then their merge",
                f"follow them:  {shown};  zeromt log {run} --follow",
                *([f"launch after them:  zeromt launch kubernetes ... --after {jobs[1]}"] if jobs[1:] else []),
            ]
        return [
            f"submitted job {jobs[0]}",
            f"follow it:  {shown};  zeromt status {run};  zeromt log {run} --follow",
            f"save and end it:  zeromt stop {run}",
        ]

    def query(self, job: str) -> JobState | None:
        """The state of the Job and its pods."""
        return find_job(job, self)

    def owns(self, job: str, logs: Path) -> bool:
        """Whether the Job was made for the run with these logs; who may end it, Kubernetes itself decides."""
        return JOB_NAME.fullmatch(job) is not None and logs_of(job, self) == logs.resolve()

    def stop(self, job: str) -> None:
        """Suspend a Job: its pods are asked to stop, and no new ones are started."""
        suspend(job, self)

    def log(self, job: str, logs: Path, *, follow: bool) -> list[str]:
        """The command that shows the output of all pods, each line prefixed with the pod's name."""
        _check_name(job)
        selector = f"--selector={label_of(self)}={job}"
        shown = ["--all-containers", "--prefix", "--tail=-1", "--max-log-requests=1000", "--ignore-errors"]
        return self._words("logs", selector, *shown, *(["--follow"] if follow else []))

    def reach(self, job: str, words: list[str]) -> list[str] | None:
        """Through the first running pod; `zeromt stop` suspends the Job, since pods that just end come back."""
        if not JOB_NAME.fullmatch(job):
            return None
        try:
            pods = [pod for pod in find_pods(job, self) if is_up(pod)]
            first = min(pods, key=lambda pod: pod["metadata"]["name"], default=None)
            if first is None:
                return None
            if words[0] == "stop":
                code = [sys.executable, "-P", "-m", "launcher.clusters.kubernetes.stop"]
                code += [*where_options(self), f"--workload={self.workload}"]
                return [*code, *(word for word in words[1:] if word == "--no-wait"), job]
            # The pod's own value, not the profile's: the record that led here may be in anyone's folder.
            python = first["spec"]["containers"][0]["command"][0]
            return self._words(
                "exec", first["metadata"]["name"], "--container=zeromt", "--", python, "-P", "-m", "zeromt", *words
            )
        except (UserError, ValueError, KeyError, TypeError):
            return None

    def _words(self, *words: str) -> list[str]:
        return command(self, *words)

    def _run(self, *words: str, text: str) -> str:
        return run(self._words(*words), text=text, seconds=SUBMIT_SECONDS)


def suspend(job: str, site: KubernetesSection) -> None:
    """Suspend a Job.

    Raises:
        UserError: the cluster refuses.
    """
    _check_name(job)
    change = '{"spec": {"suspend": true}}'
    run(command(site, "patch", site.workload, job, "--type=merge", f"--patch={change}"))


def _check_name(job: str) -> None:
    if not JOB_NAME.fullmatch(job):
        raise UserError(f"RUN: {job!r} is no job of Kubernetes; name a run that was submitted there")
